#!/bin/bash
# make_run_0_1.sh KEYHOLE - makes tests/vectors/run-0.1 with the program of version 0.1 (commit 6bc83bf): small runs of several
# methods on a tiny random model, and what that program predicted and found. Kernels are the portable ones, so that bits do not
# depend on the machine. In begun/ are the journals of some of the same runs that were killed on their way, with what that program
# counted when it went on with them. tests/cli_run_0_1.sh has this version open, use, judge and resume them.
set -e
keyhole=$(realpath "$1")
cd "$(dirname "$0")/.."
out=tests/vectors/run-0.1
rm -rf $out && mkdir -p $out/data && cd $out
export KEYHOLE_KERNELS=generic
"$keyhole" model random --arch tiny --layers 1 --dtype bf16 --std 0.3 --seed 5 --tokenizer ../tokenizers/tiny-bpe.json --out model
cp ../tokenizers/tiny-bpe.json model/tokenizer.json
for part in train dev test; do
    shift=$(( $(printf '%d' "'$part") % 7 ))
    { printf 'text\tlabel\n'; for i in $(seq 0 15); do
        words=(lower new wide newest low unbelievable tokens words)
        printf '%s %s %s\t%d\n' "${words[(i + shift) % 8]}" "${words[(3 * i + shift) % 8]}" "${words[(5 * i + 1) % 8]}" $((i % 2))
    done; } >data/$part.tsv
done
cat >task.json <<'END'
{"name": "tiny", "template": "{text} It was {mask} .", "labels": [{"name": "no", "words": ["lower"]}, {"name": "yes", "words": ["new"]}]}
END
tune() { # tune METHOD ACCESS OPTION...
    "$keyhole" tune --method "$1" --access "$2" --model model --data data --task task.json --shots 0 --seed 13 --out "$1" "${@:3}" >/dev/null
    rm -f "$1"/*.sqlite-*
}
soft="--dim 8 --slots 3 --p0 random"
tune manual logprobs
tune icl logprobs --demos 4
tune bbt logprobs $soft --budget-generations 5
tune ensemble logprobs $soft --members 2 --budget-generations 3
tune elbo logprobs $soft --budget-generations 3 --samples 5
tune abc-smc labels $soft --samples 8 --budget-generations 3
tune smc labels $soft --samples 8 --budget-levels 3
tune snpe labels $soft --samples 8 --simulations 50 --budget-rounds 1 --transforms 2 --hidden 8
tune prompt-tuning weights --slots 3 --p0 random --epochs 2
tune feature-mlp weights --epochs 2
for run in manual icl bbt ensemble elbo abc-smc smc snpe prompt-tuning feature-mlp; do
    "$keyhole" predict $run data/test.tsv --model model --output probs >$run/probs.txt
    "$keyhole" eval $run --model model --data data --bootstrap 0 --no-report --json >$run/eval.json
    [ $run = smc ] || rm -f $run/run.sqlite
    rm -f $run/run.lock $run/results.json
done

# The kernel ends a program that writes beyond the limit of a file's size: always with the same answers in the journal. SQLite's log
# is left as the kill left it. Compressed, for most of a journal's pages are zeros.
begin() { # begin METHOD KILOBYTES ACCESS OPTION...
    local to=begun/$1 words=(tune --method "$1" --access "$3" --model model --data data --task task.json --shots 0 --seed 13 --out here "${@:4}")
    (ulimit -c 0 -f "$2" && exec "$keyhole" "${words[@]}") >/dev/null 2>&1 && { echo "$1 was not killed" >&2; exit 1; }
    mkdir -p $to && cp here/run.sqlite here/run.sqlite-wal $to/ && gzip -9n $to/run.sqlite $to/run.sqlite-wal
    "$keyhole" "${words[@]}" --resume --json 2>/dev/null | grep -oE '"(queries|replayed)":[0-9]+' >$to/counts.txt
    for file in posterior.json posterior.safetensors log.txt; do cmp here/$file "$1"/$file; done
    rm -rf here
}
begin bbt 150 logprobs $soft --budget-generations 5
begin ensemble 150 logprobs $soft --members 2 --budget-generations 3
begin elbo 150 logprobs $soft --budget-generations 3 --samples 5
begin abc-smc 150 labels $soft --samples 8 --budget-generations 3
begin smc 300 labels $soft --samples 8 --budget-levels 3
begin snpe 80 labels $soft --samples 8 --simulations 50 --budget-rounds 1 --transforms 2 --hidden 8
