#!/bin/sh
# fuzz.sh SECONDS TARGET... - runs each libFuzzer target for SECONDS seconds on its seeds (fuzz/corpus/NAME), with its dictionary
# (fuzz/NAME.dict, or the words of JSON). What it finds is in BUILD/fuzz/fuzz/corpus-NAME; an input that breaks something goes into
# fuzz/corpus/NAME once it is mended, where "make test" tries it for ever. One line a target: its executions, and what it covers.
seconds=$1
shift
failed=0
[ $# -gt 0 ] || { echo 'fuzz.sh: no target has that in its name; see fuzz/' >&2; exit 1; }
for target; do
    name=$(basename "$target")
    work=$(dirname "$target")/corpus-$name
    dict=fuzz/$name.dict
    [ -f "$dict" ] || dict=fuzz/json.dict
    mkdir -p "$work"
    "$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 -dict="$dict" \
        -artifact_prefix="$work/" "$work" "fuzz/corpus/$name" >"$work.log" 2>&1
    status=$?
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work.log")
    edges=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$work.log" | tail -n 1)
    printf '%-22s %10s executions %7s edges  %s\n' "$name" "${runs:-?}" "${edges:-?}" \
        "$([ $status -eq 0 ] && echo ok || echo FOUND)"
    if [ $status -ne 0 ]; then
        tail -n 40 "$work.log"
        failed=1
    fi
done
exit $failed
