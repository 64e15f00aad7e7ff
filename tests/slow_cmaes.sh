#!/bin/bash
# CMA-ES against pycma's medians on every problem of tests/vectors/cmaes/reference.txt, seven seeds each, within 15 %; rotated
# problems against the same medians; and its own time per generation in 500 and 1000 dimensions.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n=0 failed=0

ok() {
    n=$((n + 1))
    if [ "$2" -eq 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; failed=1; fi
}
field() { sed -n "s/.*\"$1\":\"\\{0,1\\}\\([-+.a-z0-9]*\\).*/\\1/p"; }

# median FUNCTION DIM: of the evaluations of seeds 1..7 that reach the target; at most one may not
median() {
    local x0=3 sigma=2
    case $1 in *rosenbrock) x0=0 sigma=0.5 ;; esac
    for seed in 1 2 3 4 5 6 7; do
        "$KEYHOLE" bench cmaes --function "$1" --dim "$2" --x0 $x0 --sigma $sigma --target 1e-9 --seed $seed --json
    done >"$work/runs"
    [ "$(grep -c '"stop":"target"' "$work/runs")" -ge 6 ] || return 1
    grep '"stop":"target"' "$work/runs" | field evaluations | sort -n |
        awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}
# near NAME GOT EXPECTED
near() {
    echo "# $1: $2 evaluations, pycma $3"
    awk -v a="$2" -v b="$3" 'BEGIN { exit !(a > 0.85 * b && a < 1.15 * b) }'
    ok "$1" $?
}

while read -r function dim pop expected; do
    [ "$function" = "#" ] && continue
    near "${function}_in_${dim}_dimensions" "$(median "$function" "$dim")" "$expected"
    case $function-$dim in
    ellipsoid-* | discus-10 | cigar-10)
        near "rotated_${function}_in_${dim}_dimensions" "$(median "rotated-$function" "$dim")" "$expected" ;;
    esac
done <tests/vectors/cmaes/reference.txt

# A generation of RoBERTa-base (20 prompts, 32 rows, 80 tokens) takes about a minute on two cores; 2 % of it are 1.2 s.
for dim in 500 1000; do
    time=$("$KEYHOLE" bench cmaes --dim $dim --pop 20 --max-evals 1000 --json | field own_seconds_per_generation)
    echo "# $dim dimensions: $time s a generation"
    awk -v t="$time" 'BEGIN { exit !(t > 0 && t < 1.2) }'
    ok "own_time_in_${dim}_dimensions" $?
done

for threads in 1 2; do
    "$KEYHOLE" bench cmaes --function rotated-ellipsoid --dim 700 --pop 20 --max-evals 1000 --threads $threads --json |
        sed 's/,"own_.*//'
done | uniq | awk 'END { exit NR != 1 }'
ok one_and_two_threads_give_the_same_bits $?

echo "1..$n"
exit $failed
