#!/bin/bash
# kill -9 before every single call that changes a file, in a small run; then --resume must come to the same bytes, and no temporary file
# may stay. STEP=7 tries every seventh call.
. tests/tap.sh
: >"$here/out" && : >"$here/err"
shim=$here/kill_shim.so
if ! "${CC:-gcc}" -D_GNU_SOURCE -O1 -shared -fPIC -o "$shim" tests/kill_shim.c -ldl 2>"$here/err"; then
    echo "# skipped: kill_calls: no compiler"
    echo "ok 1 - kill_calls # SKIP no compiler"
    exit 0
fi
. tests/toy.sh
ok a_tiny_model random_model

# sweep NAME TUNE-ARGUMENTS... - every call of this run in turn
sweep() {
    local name=$1 n total bad=0 killed=0
    shift
    tune=("$KEYHOLE" tune "$@" --model "$model" --task "$here/toy.json" --data "$here/data" --shots 4 --effort paper)
    rm -rf "$here/ref"
    KILL_COUNT=$here/count LD_PRELOAD=$shim "${tune[@]}" --out "$here/ref" >"$here/out" 2>"$here/err" || return 1
    total=$(cat "$here/count")
    for ((n = 1; n <= total; n += ${STEP:-1})); do
        rm -rf "$here/run"
        { KILL_AT=$n LD_PRELOAD=$shim "${tune[@]}" --out "$here/run" >/dev/null 2>&1; } 2>/dev/null
        [ $? -eq 137 ] && killed=$((killed + 1))
        "${tune[@]}" --out "$here/run" --resume >"$here/out" 2>"$here/err" || "${tune[@]}" --out "$here/run" >"$here/out" 2>>"$here/err" ||
            grep -q "holds a posterior already" "$here/err" ||
            { echo "# call $n of $total: does not go on"; bad=1; break; }
        for f in posterior.json posterior.safetensors; do
            cmp -s "$here/ref/$f" "$here/run/$f" || { echo "# call $n of $total: $f differs"; bad=1; }
        done
        left=$(find "$here/run" -name '*.tmp-*' -o -name run.lock)
        [ -z "$left" ] || { echo "# call $n of $total: left $left"; bad=1; }
        [ $bad -eq 0 ] || break
    done
    echo "# $name: $total calls that change files, killed before $killed of them"
    [ $bad -eq 0 ]
}
ok kill_before_every_call_of_bbt sweep bbt --method bbt --budget-generations 2 --pop 3 --dim 6 --slots 3 --p0 random
ok kill_before_every_call_of_manual sweep manual --method manual

echo "1..$n"
exit $failed
