#!/bin/bash
# decoder.sh - decoders: tokens a second of prompt processing, and candidates a second with and without sharing.
#
#     bench/decoder.sh [MODEL] [PRECISION]
#
# MODEL is a decoder (folder or GGUF file); without one, TinyLlama's shape with random weights is made in $TMPDIR (4.4 GB). Questions are
# 32 rows of sst2, a population of 20, 10 slots; the same number of generations is run with the slots before the text and after it, and the
# seconds that the model took are compared. Meant for a quiet machine: figures of one run only are compared with each other.
set -e
KEYHOLE=${KEYHOLE:-build/release/keyhole}
precision=${2:-int8}
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
model=$1
if [ -z "$model" ]; then
    model=$here/tinyllama
    "$KEYHOLE" model random --arch tinyllama --dtype bf16 --out "$model" --tokenizer ../shared/tokenizers/gpt2 >/dev/null
fi
# 32 rows of about 60 tokens
mkdir "$here/data"
awk -F'\t' 'NR == 1 || length($0) > 150' ../shared/data/sst2/train.tsv | head -400 >"$here/data/train.tsv"
generations=${GENERATIONS:-3}
for placement in template after-text; do
    "$KEYHOLE" tune --effort paper --method bbt --model "$model" --precision "$precision" --task sst2 --data "$here/data" --shots 16 --dim 50 --slots 10 \
        --p0 random --pop 20 --budget-generations "$generations" --placement "$placement" --out "$here/$placement" --json >"$here/$placement.json"
    awk -v p="$placement" -v g="$generations" 'match($0, /"seconds": *[0-9.]+/) {
        s = substr($0, RSTART, RLENGTH); sub(/.*: */, "", s); printf "%-12s %8.2f s  %6.2f candidates a second\n", p, s, 20 * g / s }' \
        "$here/$placement.json"
done
uname -m
git rev-parse --short HEAD 2>/dev/null || true
