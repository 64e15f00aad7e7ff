#!/bin/bash
# cli_run_0_1.sh - folders that version 0.1 made open, and give the bytes that it gave (tools/make_run_0_1.sh made them).
. tests/tap.sh
: >"$here/out"; : >"$here/err"
export KEYHOLE_KERNELS=generic # as when they were made: bits depend on the kernels
cp -r tests/vectors/run-0.1 "$here/old"
cd_old() { (cd "$here/old" && "$@"); }
KEYHOLE=$(realpath "$KEYHOLE")

same_probs() { # the predictive distribution of every test row, byte for byte
    cd_old "$KEYHOLE" predict "$1" data/test.tsv --model model --output probs >"$here/out" 2>"$here/err" &&
        cmp "$here/out" "$here/old/$1/probs.txt"
}
metrics_of() { tr -d '\n' <"$1" | grep -oE '"metrics": *\{.*' | grep -oE '"[a-z0-9_]+": *\{ *"value": *[^,}]*' | head -n 20; }
same_metrics() { # every number that 0.1 knew, as it wrote it
    cd_old "$KEYHOLE" eval "$1" --model model --data data --bootstrap 0 --no-report --json --out "$here/judged" >"$here/new.json" 2>"$here/err" &&
        metrics_of "$here/old/$1/eval.json" >"$here/want" && metrics_of "$here/new.json" >"$here/is" && [ -s "$here/want" ] &&
        diff "$here/want" "$here/is" >"$here/out"
}
for run in manual icl bbt ensemble elbo abc-smc smc snpe prompt-tuning feature-mlp; do
    ok "$run: predicts what 0.1 predicted" same_probs $run
    ok "$run: is judged as 0.1 judged it" same_metrics $run
done
shows() { cd_old "$KEYHOLE" runs smc >"$here/out" 2>"$here/err" && out_has smc && out_has finished; }
ok "a journal of 0.1 is read" shows
echo "1..$n"
exit $failed
