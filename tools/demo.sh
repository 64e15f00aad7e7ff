#!/bin/sh
# demo.sh KEYHOLE - a tour of what exists where the built-in model is not: the model here has random weights and answers nonsense, at
# full speed. With the built-in model "make demo" runs "keyhole demo" instead.
keyhole=$1
set -e
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
step() { printf '\n\033[1m%s\033[0m\n' "$1"; }
[ -t 1 ] || step() { printf '\n%s\n' "$1"; }

echo "The built-in model is not in this tree (models/builtin). This tour makes do with a model of random weights: what it does is"
echo "real, what it answers is nonsense. \"keyhole demo --model DIR\" is the real thing with a model of yours."

step "1. Learn a vocabulary from keyhole's own documents, and use it"
"$keyhole" tokenizer train --corpus README.md doc/*.md --vocab 1500 --out "$dir/tokenizer.json" 2>/dev/null
echo "The box answers, and never opens." | "$keyhole" tokenize --model "$dir/tokenizer.json" --json

step "2. The paper's tasks, and one of them closely"
"$keyhole" task list
"$keyhole" task show rte --model "$dir/tokenizer.json"

step "3. A model of random weights, and what is known of it"
"$keyhole" model random --arch tiny --layers 4 --hidden 128 --heads 4 --inner 512 --positions 258 \
    --tokenizer "$dir/tokenizer.json" --out "$dir/model" 2>/dev/null
"$keyhole" inspect "$dir/model"
"$keyhole" fill-mask --model "$dir/model" --top 3 "The box was <mask>."

step "4. How fast it answers"
"$keyhole" bench engine --model "$dir/model" --rows 256 --length 64 --reps 3

step "5. Tune it on a few rows, judge it, write a report"
mkdir "$dir/data"
for set in train test; do
    { printf 'label\ttext\n'; i=0; while [ $i -lt 80 ]; do printf '%d\tthe %s box number %d\n' \
        $((i % 2)) $set $i; i=$((i + 1)); done; } >"$dir/data/$set.tsv"
done
"$keyhole" tune --effort paper --method elbo --model "$dir/model" --task sst2 --data "$dir/data" --shots 8 --dim 50 --slots 10 --p0 random \
    --budget-generations 4 --dev-every 2 --pop 4 \
    --draws 1 --samples 6 --out "$dir/run" 2>/dev/null
"$keyhole" eval "$dir/run" --bootstrap 200 --out "${TMPDIR:-/tmp}/keyhole-demo" 2>/dev/null |
    grep -E 'by elbo|metric|accuracy|ece |saved'
echo "the box never opens" | "$keyhole" predict "$dir/run"

step "Next"
echo "keyhole --help                                 every command"
echo "keyhole fill-mask --model MODEL \"It was <mask>.\" with a model folder from Hugging Face"
echo "keyhole data stats DATA                        with a folder of your own rows"
