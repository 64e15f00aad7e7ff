#!/bin/sh
# demo.sh KEYHOLE - a tour of what exists, on nothing but the clone. The model here has random weights: it answers nonsense,
# at full speed. A trained one will take its place.
keyhole=$1
set -e
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
step() { printf '\n\033[1m%s\033[0m\n' "$1"; }
[ -t 1 ] || step() { printf '\n%s\n' "$1"; }

step "1. Learn a vocabulary from keyhole's own documents, and use it"
"$keyhole" tokenizer train --corpus README.md doc/*.md --vocab 1500 --out "$dir/tokenizer.json" 2>/dev/null
echo "The box answers, and never opens." | "$keyhole" tokenize --model "$dir/tokenizer.json" --json

step "2. The paper's tasks, and one of them closely"
"$keyhole" task list
"$keyhole" task show rte --model "$dir/tokenizer.json"

step "3. A model of random weights, and what is known of it"
"$keyhole" model random --arch tiny --layers 4 --hidden 128 --heads 4 --inner 512 --positions 258 --tokenizer "$dir/tokenizer.json" --out "$dir/model" 2>/dev/null
"$keyhole" inspect "$dir/model"
"$keyhole" fill-mask --model "$dir/model" --top 3 "The box was <mask>."

step "4. How fast it answers"
"$keyhole" bench engine --model "$dir/model" --rows 256 --length 64 --reps 3

step "Next"
echo "keyhole --help                                 every command"
echo "keyhole fill-mask --model MODEL \"It was <mask>.\" with a model folder from Hugging Face"
echo "keyhole data stats DATA                        with a folder of your own rows"
