#!/bin/bash
# bench sbi: every method on every problem, samples as a table, equal bytes for equal seeds, and its complaints.
. tests/tap.sh

number() { sed -n "s/.*\"$1\":\\([-+.e0-9]*\\).*/\\1/p" "$here/out"; }
table() { [ "$(wc -l <"$here/$1")" -eq $(($2 + 1)) ] && [ "$(head -n 1 "$here/$1")" = "$(printf "$3")" ] &&
    [ "$(awk -F'\t' '{ print NF }' "$here/$1" | sort -u)" = "$4" ]; }

every() {
    local method problem
    for method in reference abc-rejection abc-smc smc; do
        for problem in linear-gaussian signs two-moons; do
            run 0 bench sbi --problem $problem --dim 2 --method $method --samples 20 --seed 3 --samples-out "$here/t.tsv" --json &&
                out_has "{\"problem\":\"$problem\",\"dim\":2,\"method\":\"$method\",\"seed\":3,\"samples\":20," &&
                table t.tsv 20 'z1\tz2' 2 || return 1
        done
    done
}
ok every_method_on_every_problem every

# The mean of the samples is near the exact one, which is printed beside it.
near() {
    run 0 bench sbi --dim 2 --method "$@" --tolerance 1 --samples 400 --json &&
        awk -v a="$(sed 's/.*"mean":\[\([-.0-9]*\),.*/\1/' "$here/out")" \
        -v b="$(sed 's/.*"exact_mean":\[\([-.0-9]*\),.*/\1/' "$here/out")" \
            'BEGIN { d = a - b; exit !(d < 0.15 && d > -0.15) }'
}
ok rejection_is_near_the_posterior near abc-rejection
ok weighted_abc_smc_is_near_the_posterior near abc-smc --weights importance
ok smc_is_near_the_posterior near smc

twice() {
    for t in 1 2; do
        run 0 bench sbi --dim 5 --method smc --problem signs --samples 30 --threads $t --samples-out "$here/$t.tsv" || return 1
    done
    cmp -s "$here/1.tsv" "$here/2.tsv"
}
ok same_seed_same_samples_for_any_threads twice

early() {
    local saved
    run 0 bench sbi --dim 500 --method smc --problem signs --tolerance 12 --early-rejection off --samples-out "$here/off.tsv" \
        --json &&
        [ "$(number saved)" -eq 0 ] &&
        run 0 bench sbi --dim 500 --method smc --problem signs --tolerance 12 --early-rejection on --samples-out "$here/on.tsv" \
        --json &&
        [ "$(number saved)" -gt 0 ] && cmp -s "$here/on.tsv" "$here/off.tsv"
}
ok early_rejection_accepts_the_same early

ok a_budget_is_kept both 0 '"stopped":"the budget of 900 queries is used up"' bench sbi --method smc --problem signs --dim 40 \
    --budget-queries 900 --json
kept() { [ "$(number queries)" -le 900 ]; }
ok and_not_exceeded kept
ok text_for_people both 0 'exactly' bench sbi --method abc-rejection --samples 20
ok a_trace_of_generations says 0 'gen=1 queries=' bench sbi --method smc --problem signs --dim 40 --tolerance 12 --trace
collapse() {
    run 0 bench sbi --method abc-smc --problem signs --dim 500 --weights importance --budget-generations 2 --json &&
        awk -v e="$(number ess)" 'BEGIN { exit !(e < 2) }'
}
ok importance_weights_collapse_in_500_dimensions collapse

ok unknown_method says 2 'abc-smc' bench sbi --method magic
ok unknown_problem says 2 'linear-gaussian|signs|two-moons' bench sbi --method smc --problem moon
ok wrong_dimension says 1 'problem two-moons has 2 dimensions, not 3' bench sbi --method smc --problem two-moons --dim 3
ok no_such_folder says 1 '/no/such/folder' bench sbi --method reference --samples-out /no/such/folder/x.tsv
ok help_teaches both 0 '--early-rejection' bench sbi --method smc --help

echo "1..$n"
exit $failed
