#!/bin/sh
# fuzz.sh SECONDS TARGET... - runs each libFuzzer target on its seed corpus (fuzz/corpus/NAME) for SECONDS seconds.
seconds=$1
shift
failed=0
for target; do
    name=$(basename "$target")
    work=$(dirname "$target")/corpus-$name
    mkdir -p "$work" "fuzz/corpus/$name"
    echo "== $name"
    if ! "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix="$work/" "$work" "fuzz/corpus/$name" >"$work.log" 2>&1; then
        tail -n 40 "$work.log"
        failed=1
    fi
    grep -E 'stat::number_of_executed_units|stat::peak_rss_mb' "$work.log"
done
exit $failed
