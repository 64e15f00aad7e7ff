#!/bin/bash
# tinyllama.sh KEYHOLE MODEL.gguf [ROWS] - tuning a decoder on sst2 with 16 shots: the template, bbt and smc, with and without the batch label
# prior; accuracy, NLL and ECE on ROWS test rows (default 200; the standard error of an accuracy of 0.8 is then 0.03). The prompt stands in front and
# begins as reviews with their answers, near which the searches stay; doc/results.md says why. The searches' own results are judged, without the net
# that would return the template. MODEL is meant to be TinyLlama 1.1B, a 2-bit model. A few minutes a method on two free cores.
keyhole=$(realpath "${1:-build/release/keyhole}") model=$2 rows=${3:-200}
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
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
judge manual --method manual
judge manual-prior --method manual --label-prior batch
judge bbt-prior --method bbt --label-prior batch --sigma 0.4 "${soft[@]}"
judge smc --method smc --samples 10 --prior-variance 0.16 "${soft[@]}"
