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

# same N TOTAL - whether the run is as it would be if nobody had killed it
same() {
    local f left
    for f in posterior.json posterior.safetensors; do
        cmp -s "$here/ref/$f" "$here/run/$f" || { echo "# call $1 of $2: $f differs"; return 1; }
    done
    left=$(find "$here/run" -name '*.tmp-*' -o -name run.lock)
    [ -z "$left" ] || { echo "# call $1 of $2: left $left"; return 1; }
}

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
        same "$n" "$total" || { bad=1; break; }
    done
    echo "# $name: $total calls that change files, killed before $killed of them"
    [ $bad -eq 0 ]
}
# sweep_finish TUNE-ARGUMENTS... - a run that was cut in its middle, and every call of making a classifier of what is there
sweep_finish() {
    local n total killed=0
    tune=("$KEYHOLE" tune "$@" --model "$model" --task "$here/toy.json" --data "$here/data" --shots 4 --effort paper)
    rm -rf "$here/cut" "$here/ref"
    { KILL_AT=${CUT:-60} LD_PRELOAD=$shim "${tune[@]}" --out "$here/cut" >/dev/null 2>&1; } 2>/dev/null
    cp -r "$here/cut" "$here/ref"
    KILL_COUNT=$here/count LD_PRELOAD=$shim "${tune[@]}" --out "$here/ref" --resume --finish >"$here/out" 2>"$here/err" || return 1
    total=$(cat "$here/count")
    for ((n = 1; n <= total; n += ${STEP:-1})); do
        rm -rf "$here/run"
        cp -r "$here/cut" "$here/run"
        { KILL_AT=$n LD_PRELOAD=$shim "${tune[@]}" --out "$here/run" --resume --finish >/dev/null 2>&1; } 2>/dev/null
        [ $? -eq 137 ] && killed=$((killed + 1))
        "${tune[@]}" --out "$here/run" --resume --finish >"$here/out" 2>"$here/err" || { echo "# call $n of $total: does not go on"; return 1; }
        same "$n" "$total" || return 1
    done
    echo "# --finish: $total calls that change files, killed before $killed of them"
}
ok kill_before_every_call_of_bbt sweep bbt --method bbt --budget-generations 2 --pop 3 --dim 6 --slots 3 --p0 random
ok kill_before_every_call_of_manual sweep manual --method manual
ok kill_before_every_call_of_text_smc sweep text-smc --method text-smc --access labels --budget-levels 1 --samples 4 --first-draws 4 --max-moves 1
ok kill_before_every_call_of_auto sweep auto --method auto
ok kill_before_every_call_of_finish sweep_finish --method bbt --budget-generations 4 --pop 3 --dim 6 --slots 3 --p0 random

echo "1..$n"
exit $failed
