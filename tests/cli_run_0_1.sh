#!/bin/bash
# cli_run_0_1.sh - folders that version 0.1 made open, and give the bytes that it gave (tools/make_run_0_1.sh made them).
. tests/tap.sh
: >"$here/out"; : >"$here/err"
export KEYHOLE_KERNELS=generic # as when they were made: bits depend on the kernels
cp -r tests/vectors/run-0.1 "$here/old"
cd_old() { (cd "$here/old" && "$@"); }
KEYHOLE=$(realpath "$KEYHOLE")

# Bits are promised between machines of one kind, and the stored ones are of x86: elsewhere numbers may differ as floats do.
machine=$("$KEYHOLE" --version --json | sed 's/.*"machine": "\([^"]*\)".*/\1/')
skip() { n=$((n + 1)); echo "# skipped: $1: $2"; echo "ok $n - $1 # SKIP $2"; }
near() { # near FILE FILE: the same words, and numbers within 0.00001
    awk -v RS='[][ \t\n,:{}"]+' 'NR == FNR { a[n = NR] = $0; next } { m = FNR; d = a[m] - $0 }
        a[m] != $0 && !(a[m] ~ /^-?[0-9.e+-]+$/ && $0 ~ /^-?[0-9.e+-]+$/ && d < 1e-5 && d > -1e-5) { bad = 1 } END { exit bad || m != n }' "$1" "$2"
}
same() { if [ "$machine" = x86_64 ]; then cmp "$1" "$2"; else near "$1" "$2"; fi; }

same_probs() { # the predictive distribution of every test row, byte for byte
    cd_old "$KEYHOLE" predict "$1" data/test.tsv --model model --output probs >"$here/out" 2>"$here/err" &&
        same "$here/out" "$here/old/$1/probs.txt"
}
metrics_of() { tr -d '\n' <"$1" | grep -oE '"metrics": *\{.*' | grep -oE '"[a-z0-9_]+": *\{ *"value": *[^,}]*' | grep -v '^"macro_f1"' | head -n 20; } # 0.1 had no macro F1
same_metrics() { # every number that 0.1 knew, as it wrote it
    cd_old "$KEYHOLE" eval "$1" --model model --data data --bootstrap 0 --no-report --json --out "$here/judged" >"$here/new.json" 2>"$here/err" &&
        metrics_of "$here/old/$1/eval.json" >"$here/want" && metrics_of "$here/new.json" >"$here/is" && [ -s "$here/want" ] &&
        same "$here/want" "$here/is" >"$here/out"
}
for run in manual icl bbt ensemble elbo abc-smc smc snpe prompt-tuning feature-mlp; do
    ok "$run: predicts what 0.1 predicted" same_probs $run
    ok "$run: is judged as 0.1 judged it" same_metrics $run
done
shows() { cd_old "$KEYHOLE" runs smc >"$here/out" 2>"$here/err" && out_has smc && out_has finished; }
ok "a journal of 0.1 is read" shows

# Runs that 0.1 had begun and was killed in: --effort paper has the defaults that it had. Of posterior.json all is compared but what is another thing today: the version,
# paths from the root, the calibration, which is an option of tune now and no longer of the method (here it is off), and options that are new, if they are off.
plain() { sed -E -e 's/"keyhole": "[^"]*"/"keyhole": ""/' -e 's/"path": "[^"]*"/"path": ""/' -e 's/"calibrate":"[a-z]*",//' -e 's/"reuse-draws":false,//' -e 's/"learn-moves":false,//' -e 's/"race":0,//' -e 's/"budget-stall":0,//' -e '/^  "calibration": /d' "$1"; }
resumes() { # resumes METHOD ACCESS OPTION...
    rm -rf "$here/old/here" && mkdir "$here/old/here" || return 1
    for file in run.sqlite run.sqlite-wal; do gzip -dc "$here/old/begun/$1/$file.gz" >"$here/old/here/$file" || return 1; done
    cd_old "$KEYHOLE" tune --method "$1" --access "$2" --model model --data data --task task.json --shots 0 --seed 13 --out here "${@:3}" \
        --effort paper --calibrate none --features-model none --resume --json >"$here/out" 2>"$here/err"
}
as_finished() { # as if nobody had killed it
    cmp "$here/old/here/posterior.safetensors" "$here/old/$1/posterior.safetensors" && cmp "$here/old/here/log.txt" "$here/old/$1/log.txt" &&
        diff <(plain "$here/old/here/posterior.json") <(plain "$here/old/$1/posterior.json") >"$here/out"
}
asks_the_rest() { diff <(grep -oE '"(queries|replayed)":[0-9]+' "$here/old/here.json") "$here/old/begun/$1/counts.txt" >"$here/out"; }
goes_on() {
    ok "$1: begun by 0.1, goes on" resumes "$@"
    cp "$here/out" "$here/old/here.json"
    ok "$1: ends in the posterior and the log of 0.1" as_finished "$1"
    # Answers are kept by the bits of their prompts, of which some are others on another kind of machine: it asks again there.
    if [ "$machine" = x86_64 ]; then ok "$1: asks nothing twice" asks_the_rest "$1"; else skip "$1: asks nothing twice" "begun on x86, continued on $machine"; fi
}
soft="--dim 8 --slots 3 --p0 random"
goes_on bbt logprobs $soft --budget-generations 5
goes_on ensemble logprobs $soft --members 2 --budget-generations 3
goes_on elbo logprobs $soft --budget-generations 3 --samples 5
goes_on abc-smc labels $soft --samples 8 --budget-generations 3
goes_on smc labels $soft --samples 8 --budget-levels 3
goes_on snpe labels $soft --samples 8 --simulations 50 --budget-rounds 1 --transforms 2 --hidden 8
echo "1..$n"
exit $failed
