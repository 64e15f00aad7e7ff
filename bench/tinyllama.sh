#!/bin/bash
# tinyllama.sh KEYHOLE MODEL.gguf [ROWS] - tuning a decoder on sst2 with 16 shots: the template, bbt and smc, with and without the batch label
# prior; accuracy, NLL and ECE on ROWS test rows (default 200; the standard error of an accuracy of 0.8 is then 0.03). The prompt stands in front and
# begins as reviews with their answers, near which the searches stay; doc/results.md says why. The searches' own results are judged, without the net
# that would return the template. MODEL is meant to be TinyLlama 1.1B, a 2-bit model. A few minutes a method on two free cores.
# METHODS chooses some of them (manual manual-prior manual-labels bbt-prior smc ensemble elbo abc-smc); the last three have QUERIES (900) questions
# only: they show that each runs from end to end, not what it could do. OUT, if given, keeps the runs.
keyhole=$(realpath "${1:-build/release/keyhole}") model=$2 rows=${3:-200}
here=${OUT:-$(mktemp -d)}
mkdir -p "$here" || exit 1
[ -n "${OUT:-}" ] || trap 'rm -rf "$here"' EXIT
common=(--model "$model" --precision int8 --task sst2 --data "${DATA:-../shared/data/sst2}" --shots 16 --seed "${SEED:-13}" --features-model none)
text='a warm and funny film . It was great. a dull, lifeless mess . It was bad. the jokes fall flat . It was bad.'
soft=(--inject embed-prefix --slots 30 --p0 text --p0-text "$text" --effort quick --fallback none)
judge() { # NAME OPTIONS...
    local name=$1
    shift
    "$keyhole" tune "${common[@]}" "$@" --out "$here/$name" >"$here/$name.log" 2>&1 || { tail -n 3 "$here/$name.log"; return; }
    "$keyhole" eval "$here/$name" --data "${DATA:-../shared/data/sst2}" --rows "$rows" --json >"$here/$name.json" 2>>"$here/$name.log"
    printf '%-14s' "$name"
    for key in accuracy nll ece; do
        printf '  %s %s' "$key" "$(tr -d ' \n' <"$here/$name.json" | grep -o "\"$key\":{\"value\":[0-9.]*" | head -n 1 | sed 's/.*://')"
    done
    echo
}
few=(--budget-queries "${QUERIES:-900}" --prior-variance 0.16)
all="manual manual-prior manual-labels bbt-prior smc ensemble elbo abc-smc"
for method in ${METHODS:-$all}; do
    case $method in
    manual) judge $method --method manual ;;
    manual-prior) judge $method --method manual --label-prior batch ;;
    manual-labels) judge $method --method manual --access labels ;;
    bbt-prior) judge $method --method bbt --label-prior batch --sigma 0.4 "${soft[@]}" ;;
    smc) judge $method --method smc --samples 10 --prior-variance 0.16 "${soft[@]}" ;;
    ensemble) judge $method --method ensemble --members 3 --pop 8 --sigma 0.4 --budget-queries "${QUERIES:-900}" "${soft[@]}" ;;
    elbo) judge $method --method elbo --pop 6 --draws 2 --samples 5 --sigma 0.4 "${few[@]}" "${soft[@]}" ;;
    abc-smc) judge $method --method abc-smc --samples 5 "${few[@]}" "${soft[@]}" ;;
    esac
done
