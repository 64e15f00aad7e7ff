#!/bin/bash
# tinyllama.sh KEYHOLE MODEL.gguf [ROWS] - tuning a decoder on sst2 with 16 shots: the template, bbt and smc, with and without the batch label
# prior; accuracy, NLL and ECE on ROWS test rows (default 400; the standard error of an accuracy of 0.8 is then 0.02). The prompt stands after
# the text, so that a text is computed once a run. MODEL is meant to be TinyLlama 1.1B, a 2-bit model. Minutes a method: BUDGET=240 seconds.
keyhole=$(realpath "${1:-build/release/keyhole}") model=$2 rows=${3:-400}
budget=${BUDGET:-240}
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
common=(--model "$model" --precision int8 --task sst2 --data "${DATA:-../shared/data/sst2}" --shots 16 --seed "${SEED:-13}" --features-model none)
soft=(--placement after-text --slots 5 --dim 50 --budget-time "$budget")
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
judge bbt-prior --method bbt --label-prior batch --pop 10 "${soft[@]}"
judge smc --method smc --samples 20 --first-draws 20 "${soft[@]}"
