#!/bin/bash
# bench cmaes: what it prints, that a seed fixes it, and its complaints.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n=0 failed=0

# ok NAME STATUS: the last line of a check; STATUS 0 is success
ok() {
    n=$((n + 1))
    if [ "$2" -eq 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; failed=1; sed 's/^/# /' "$work/out" "$work/err"; fi
}
# run STATUS ARGUMENTS...: runs keyhole bench cmaes with output in files; fails unless it exits with STATUS
run() {
    local want=$1
    shift
    "$KEYHOLE" bench cmaes "$@" >"$work/out" 2>"$work/err" </dev/null
    [ $? -eq "$want" ]
}
# says FILE TEXT: the file holds the text
says() { grep -qF -- "$2" "$work/$1"; }
# number KEY: its value in the JSON printed last
number() { sed -n "s/.*\"$1\":\\([-+.e0-9]*\\).*/\\1/p" "$work/out"; }

run 0 --function ellipsoid --dim 10 --x0 3 --sigma 2 --target 1e-9 --seed 1 --json &&
    says out '{"function":"ellipsoid","dim":10,"x0":3,"sigma0":2,' && says out '"stop":"target"' && [ "$(number pop)" -eq 10 ] &&
    [ "$(number evaluations)" -gt 3700 ] && [ "$(number evaluations)" -lt 5000 ] &&
    awk -v f="$(number f)" 'BEGIN { exit !(f > 0 && f <= 1e-9) }'
ok json_tells_evaluations_value_and_reason $?

first=$(number evaluations)
for threads in 1 2; do
    run 0 --function ellipsoid --dim 10 --target 1e-9 --seed 1 --json --threads $threads &&
        [ "$(number evaluations)" -eq "$first" ] || break
done
ok same_seed_same_run_for_any_threads $?

run 0 --function ellipsoid --dim 10 --target 1e-9 --seed 2 --json && [ "$(number evaluations)" -ne "$first" ]
ok another_seed_another_run $?

for f in sphere cigar discus diffpow rotated-ellipsoid rotated-cigar rotated-discus rotated-diffpow; do
    run 0 --function $f --dim 5 --target 1e-9 --json && says out '"stop":"target"' || break
done
ok functions_are_solved $?

for f in rosenbrock rotated-rosenbrock; do
    run 0 --function $f --dim 6 --x0 0 --sigma 0.5 --target 1e-9 --json --seed 3 && says out '"stop":"target"' || break
done
ok rosenbrock_is_solved $?

run 0 --function rastrigin --dim 4 --pop 100 --target 1e-9 && says out 'The target value was reached.'
ok rastrigin_with_a_large_population $?

run 0 --dim 20 --pop 8 --max-evals 100 && says out 'sphere, dimension 20, population 8, seed 1' &&
    says out 'evaluations  104 in 13 generations' &&
    says out 'stopped      max-evals: The limit of evaluations was reached.' && says out 'own time'
ok text_for_people $?

run 0 --dim 3000 --variant separable --max-evals 100 --json && says out '"variant":"separable"'
ok separable_in_many_dimensions $?

run 2 --function beale && says err '--function takes one of sphere|ellipsoid|'
ok unknown_function $?

run 1 --dim 3 --pop 1 && says err 'a population of 1; at least 2 candidates are needed'
ok too_small_a_population $?

run 1 --dim 20000 && says err '20000 dimensions; the full variant takes 1 to 16384, the separable one more'
ok too_many_dimensions $?

run 2 --dim 20000 --function rotated-cigar --variant separable &&
    says err 'rotated functions take at most 16384 dimensions; got --dim 20000'
ok too_many_dimensions_to_rotate $?

run 1 --bound 1 --x0 3 && says err 'coordinate 0 of the start is 3, outside its bounds -1 .. 1'
ok start_outside_the_bounds $?

run 0 --help && says out 'keyhole bench cmaes --function rotated-ellipsoid' && says out '--tolfun'
ok help_teaches $?

echo "1..$n"
exit $failed
