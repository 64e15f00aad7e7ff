#!/bin/bash
# Efforts, the net under a search and class priors, as a user meets them.
. tests/tap.sh
. tests/kill.sh
rows=(--model "$model" --task "$task" --data "$data" --shots 8 --p0 random --features-model none)

# ---- what an effort costs, before and after
costs() {
    run 0 tune --method ensemble "${rows[@]}" --dry-run --out "$here/none" && out_has "--effort quick     at most 3000 queries" &&
        out_has "--effort normal    at most 20000 queries" && out_has "--effort thorough  at most 120000 queries" &&
        out_has "--effort paper     at most 962400 queries" && [ ! -e "$here/none" ]
}
ok "a dry run says what each effort takes" costs
# many dev rows: an effort's budget grows to what one generation takes, and the forecast says so and names no effort as faster than itself
mkdir "$here/many"
{
    printf 'label\ttext\n'
    for i in $(seq 400); do printf '%d\tthe boats number %d were green\n' $((i % 2)) "$i"; done
} >"$here/many/train.tsv"
grown() {
    run 0 tune --method elbo "${rows[@]}" --data "$here/many" --shots 100 --effort quick --dry-run --out "$here/none" || return 1
    local most
    most=$(cat "$here/out" "$here/err" | sed -n 's/.*candidates, \([0-9]*\) queries.*/\1/p')
    [ "$most" -gt 3000 ] && out_has "--effort quick     at most $most queries" && ! grep -q "faster: --effort quick" "$here/out" "$here/err"
}
ok "an effort that needs more than its budget says so" grown
as_json() { run 0 tune --method bbt "${rows[@]}" --dry-run --json --out "$here/none" && out_has '"efforts":{"paper":{"queries":'; }
ok "and so in JSON" as_json
quick() {
    run 0 tune --method bbt "${rows[@]}" --effort quick --json --out "$here/quick" || return 1
    local asked
    asked=$(sed -n 's/.*"queries":\([0-9]*\).*/\1/p' "$here/out")
    echo "# $asked queries"
    [ "$asked" -le 3000 ] && [ "$asked" -gt 1000 ]
}
ok "a quick search keeps to 3,000" quick
own() {
    run 0 tune --method bbt "${rows[@]}" --effort quick --budget-generations 2 --pop 4 --slots 3 --dim 7 --race 0 --fallback none \
        --json --out "$here/own" && out_has '"train_queries":128,' && grep -q '"dim": 7' "$here/own/posterior.json" &&
        grep -q '"slots": 3' "$here/own/posterior.json"
}
ok "options beside it win" own
ok "an effort that is none" says 2 "--effort takes one of paper|quick|normal|thorough" tune --method bbt "${rows[@]}" --effort lazy
ok "the paper's settings and another effort" says 2 "--paper-exact takes the paper's settings" tune --method bbt "${rows[@]}" \
    --effort quick --paper-exact --out "$here/none"

# ---- all texts are the same, so that there is nothing to find, whichever way the CPU's kernels round
mkdir "$here/same"
{
    printf 'label\ttext\n'
    for i in $(seq 40); do printf '%d\tthe boats were green\n' $((i % 2)); done
} >"$here/same/train.tsv"
nothing=(--model "$model" --task "$task" --data "$here/same" --shots 8 --p0 random --features-model none --effort quick)
fell() {
    local seed
    for seed in 13 21 42; do
        run 0 tune --method bbt "${nothing[@]}" --seed $seed --out "$here/fell$seed" &&
            grep -q '"method": "manual"' "$here/fell$seed/posterior.json" &&
            grep -q 'found nothing that is surely better' "$here/fell$seed/posterior.json" || return 1
    done
    run 0 predict "$here/fell13" "the boats were small" && out_has '"label"'
}
ok "a search that finds nothing returns the template" fell
kept() { grep -q '"method": "bbt"' "$here/own/posterior.json"; }
ok "not with --fallback none" kept

# ---- killed and resumed, the net included
common=("${rows[@]}" --effort quick)
options_of() { :; }
whole_and_killed() { whole "$1" && killed "$1" 2; }
for method in bbt smc elbo; do ok "killed with a net, the same bits: $method" whole_and_killed $method; done

ok "options that 0.1 did not have belong to a run, too" says 1 "holds another run: --first-draws was 12 --reuse-draws true and is 12 now" tune --method smc \
    "${rows[@]}" --effort quick --no-reuse-draws --resume --out "$here/smc"

# ---- classes that are not equally frequent
shifted() { # p' is p times prior over share, scaled
    run 0 predict "$here/quick" --jsonl "the boats were small" && cp "$here/out" "$here/even" &&
        run 0 predict "$here/quick" --jsonl --class-prior 0.9,0.1 "the boats were small" || return 1
    local p q
    p=$(sed -n 's/.*"distribution":{"bad":\([0-9.e-]*\).*/\1/p' "$here/even") q=$(sed -n 's/.*"distribution":{"bad":\([0-9.e-]*\).*/\1/p' "$here/out")
    echo "# $p becomes $q"
    awk -v p="$p" -v q="$q" 'BEGIN { want = 0.9 * p / (0.9 * p + 0.1 * (1 - p)); exit !(want - q < 1e-4 && q - want < 1e-4 && q != p) }'
}
ok "a class prior at prediction" shifted
tuned() {
    run 0 tune --method manual "${rows[@]}" --class-prior 9,1 --out "$here/prior" && grep -q '"prior": \[0.9' "$here/prior/posterior.json" &&
        run 0 predict "$here/prior" --jsonl "the boats were small" && cp "$here/out" "$here/a" &&
        run 0 tune --method manual "${rows[@]}" --out "$here/none" && run 0 predict "$here/none" --jsonl --class-prior 0.9,0.1 "the boats were small" &&
        cmp <(grep -o '"distribution":{[^}]*}' "$here/a") <(grep -o '"distribution":{[^}]*}' "$here/out")
}
ok "a class prior at tuning is the same" tuned
judged() {
    cp "$data/train.tsv" "$data/test.tsv" && run 0 eval "$here/none" --class-prior 0.9,0.1 --no-report --out "$here/judged" &&
        says 1 "a class prior is 2 positive numbers" eval "$here/none" --class-prior 0.9 --no-report --out "$here/judged"
}
ok "a class prior at evaluation" judged
before_sets() { # all but certain of one class: dev rows of the other are all but impossible
    run 0 eval "$here/none" --class-prior 999999,1 --no-report --out "$here/judged" || return 1
    sed -n 's/.*"scores": \[\(.*\)\].*/\1/p' "$here/judged/results.json" | tr ',' '\n' |
        awk '$1 > 0.9 { far++ } $1 < 0.1 { near++ } END { exit !(near + far == NR && near > 0 && far > 0) }'
}
ok "and sets are fitted to what it makes of dev rows" before_sets
for bad in 1 1,2,3 0,1 -1,2 x,y 1,,2 nan,1; do
    ok "no class prior: $bad" says 1 "a class prior is 2 positive numbers" tune --method manual "${rows[@]}" --class-prior $bad --out "$here/no"
done
inside() {
    run 0 tune --method bbt "${rows[@]}" --label-prior inside --effort quick --budget-generations 2 --fallback none --out "$here/inside" &&
        grep -q '"label_prior": {"method": "batch"' "$here/inside/posterior.json" &&
        says 1 "method smc sees labels only here" tune --method smc "${rows[@]}" --label-prior inside --out "$here/no"
}
ok "the prior of labels inside a search" inside

echo "1..$n"
exit $failed
