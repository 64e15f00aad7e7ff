#!/bin/sh
# builtin.sh KEYHOLE CORPUS WORK - how a built-in model is made by keyhole itself from the texts in CORPUS (files NAME.txt.xz or
# NAME.txt, one text a line). It takes hours. Stop it when you like: the same command goes on where it was.
#   INIT=DIR    start from the model in this folder (models/builtin: from all-MiniLM-L6-v2), instead of from random weights and a
#               vocabulary of our own
#   PRUNE=N     tokens of its vocabulary that stay, those that the texts use most; default 12000, 0: all
#   TOKENS=N    how much text to learn from; another number, given later, changes how the learning rate falls from then on
#   DATA=DIR    holds data sets sst2 and agnews: on their test rows it is measured now and then what the model can do untuned
#   INTO=DIR    where the result goes; default models/builtin
# What the trainer says of itself, losses, learning rate and probes, goes beside the result as log.tsv.
set -eu
keyhole=$1 corpus=$2 work=$3
into=${INTO:-models/builtin}
die() { echo "builtin: $*" >&2 && exit 1; }

# File, and how often its lines come. Reviews and news, which the tasks are about, more often than their size would have it.
mix() {
    if [ -n "${INIT:-}" ]; then
        echo wikipedia_en_2015 0.5 imdb_unsup 1 imdb_train 1 yelp_reviews 5 amazon_reviews 8 agnews_nontest 6 bbc_news 3 reuters21578 0.5 \
            movie_reviews_panglee 2 abc_news 2 yahoo_questions 2 nli_train_sentences 3 subj_sentences 8 brown 1 webtext 1 state_union_inaugural 0.3
    else
        echo wikipedia_en_2015 1 imdb_unsup 1.5 imdb_train 1.5 yelp_reviews 5 amazon_reviews 5 agnews_nontest 5 bbc_news 3 reuters21578 0.7 \
            movie_reviews_panglee 3 abc_news 3 yahoo_questions 2 nli_train_sentences 2 subj_sentences 4 brown 2 webtext 2 state_union_inaugural 1
    fi
}

[ -d "$corpus" ] || die "there are no texts in $corpus; CORPUS=DIR says where they are (models/builtin/README.md lists them)"
mkdir -p "$work/corpus" "$into"
set -- $(mix)
files='' weighted=''
while [ $# -gt 0 ]; do
    text=$work/corpus/$1.txt
    if [ ! -s "$text" ]; then
        if [ -f "$corpus/$1.txt.xz" ]; then xz -dc "$corpus/$1.txt.xz" >"$text.part"
        elif [ -f "$corpus/$1.txt" ]; then cp "$corpus/$1.txt" "$text.part"
        else die "$corpus holds neither $1.txt.xz nor $1.txt"; fi
        mv "$text.part" "$text"
    fi
    files="$files $text" weighted="$weighted $text:$2"
    shift 2
done

# Words, not letters in two sizes, are what a small model should spend its vocabulary on.
tokenizer=$work/tokenizer.json
if [ -z "${INIT:-}" ]; then
    [ -s "$tokenizer" ] || "$keyhole" tokenizer train --corpus $files --vocab 10000 --lowercase --out "$tokenizer"
elif [ "${PRUNE:-12000}" = 0 ]; then
    tokenizer=$INIT
else
    tokenizer=$work/pruned
    [ -s "$tokenizer/tokenizer.json" ] || "$keyhole" model prune --model "$INIT" --corpus $weighted --vocab "${PRUNE:-12000}" \
        --task examples/reviews/task.json examples/topics/task.json --dtype f32 --out "$tokenizer"
fi

probes=''
[ -z "${DATA:-}" ] || probes="--probe-task sst2 agnews --probe-data $DATA/sst2 $DATA/agnews --probe-rows 400"
# Short sequences first: they cost less, and teach words before sentences.
if [ -n "${INIT:-}" ]; then
    how="--init $tokenizer --seq-schedule 64:0.8,128:0.2 --lr 5e-4 --warmup 0.04 --mask-rate 0.25 --tokens ${TOKENS:-5e6} --eval-every 200"
else
    how="--layers 6 --hidden 256 --positions 258 --seq-schedule 32:0.5,64:0.3,128:0.15,256:0.05 --lr 1e-3 --warmup 0.02 --mask-rate 0.2 --tokens ${TOKENS:-4e7} --eval-every 500"
fi
resume=''
[ ! -f "$work/model/training.json" ] || resume=--resume
"$keyhole" pretrain --corpus $weighted --tokenizer "$tokenizer" --out "$work/model" $how --batch-tokens 2048 --dtype bf16 \
    --checkpoint-every 300 --seed 1 $probes $resume

for file in config.json model.safetensors tokenizer.json vocab.txt tokenizer_config.json log.tsv; do
    [ ! -f "$work/model/$file" ] || cp "$work/model/$file" "$into/$file"
done
echo "builtin: the model is in $into ($(du -sk "$into" | cut -f1) KB):"
"$keyhole" inspect "$into"
"$keyhole" fill-mask --model "$into" \
    --top 5 "The movie was $(grep -q '"\[MASK\]"' "$into/tokenizer.json" && echo '[MASK]' || echo '<mask>')."
