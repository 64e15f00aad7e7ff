#!/bin/bash
# keyhole bench sbi --method snpe, and the row of snpe in keyhole tune --help.
. tests/tap.sh
small=(bench sbi --method snpe --problem two-moons --budget-rounds 2 --simulations 60 --samples 20 --transforms 2 --hidden 8
    --max-epochs 3)

same_with_threads() {
    run 0 "${small[@]}" --threads 1 --samples-out "$here/one.tsv" || return 1
    run 0 "${small[@]}" --threads 2 --samples-out "$here/two.tsv" || return 1
    cmp "$here/one.tsv" "$here/two.tsv" && [ "$(wc -l <"$here/one.tsv")" -eq 21 ]
}
other_seed_differs() {
    run 0 "${small[@]}" --seed 14 --samples-out "$here/other.tsv" && ! cmp -s "$here/one.tsv" "$here/other.tsv"
}
traces() {
    run 0 "${small[@]}" --trace && err_has "gen=2 queries=120 train=" && err_has " acceptance=" && out_has "all 2 rounds are done"
}

ok same_samples_with_any_threads same_with_threads
ok another_seed_gives_others other_seed_differs
ok json_has_the_queries both 0 '"queries":120' "${small[@]}" --json
ok a_line_for_each_round traces
ok a_budget_ends_it both 0 "the budget of 100 queries is used up" "${small[@]}" --budget-queries 100
ok options_are_checked says 2 "--atoms takes a whole number from 2" "${small[@]}" --atoms 1
ok help_teaches_its_options both 0 "--condition" tune --method snpe --help
exit $failed
