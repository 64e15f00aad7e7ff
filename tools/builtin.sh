#!/bin/sh
# builtin.sh KEYHOLE CORPUS WORK - how the built-in model is made by keyhole itself, in two stages: from the texts in CORPUS (files NAME.txt.xz
# or NAME.txt, one text a line) it learns language, and from labelled rows it learns to answer questions. It takes hours. Stop it when you
# like: the same command goes on where it was.
#   INIT=DIR    start from the model in this folder (models/builtin: from gte-small), instead of from random weights and a vocabulary of
#               our own
#   PRUNE=N     tokens of its vocabulary that stay, those that the texts use most; default 16000, 0: all
#   TOKENS=N    how much text to learn from; another number, given later, changes how the learning rate falls from then on
#   DATA=DIR    holds data sets, one folder each: on test rows of sst2 and agnews it is measured now and then what the model can do
#               untuned, and train rows of sst2, agnews, mnli, snli, rte and mrpc are the questions of stage two
#   STAGE=1     the model of stage one, which has seen no labelled row, is the result: what experiments must use. Default: 2 with DATA
#   STEPS=N     steps of stage two; default 600
#   PRECISION=P of the products: bf16 (default) or f32
#   LEAVE=LIST  tasks that stage two leaves out, to see what it can do on a kind of task that it has not seen
#   INTO=DIR    where the result goes; default models/builtin
# What the trainer says of itself, losses, learning rate and probes, goes beside the result as log.tsv and stage1.tsv.
set -eu
keyhole=$1 corpus=$2 work=$3
into=${INTO:-models/builtin}
stage=${STAGE:-$([ -n "${DATA:-}" ] && echo 2 || echo 1)}
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
[ "$stage" = 1 ] || [ -n "${DATA:-}" ] || die "stage two learns from labelled rows; DATA=DIR says where they are"
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
elif [ "${PRUNE:-16000}" = 0 ]; then
    tokenizer=$INIT
else
    tokenizer=$work/pruned
    [ -s "$tokenizer/tokenizer.json" ] || "$keyhole" model prune --model "$INIT" --corpus $weighted --vocab "${PRUNE:-16000}" \
        --task tools/builtin_words.json examples/reviews/task.json examples/topics/task.json --dtype f32 --out "$tokenizer"
fi

# train OUT DTYPE OPTIONS... - goes on if it was begun.
probes=''
[ -z "${DATA:-}" ] || probes="--probe-task sst2 agnews --probe-data $DATA/sst2 $DATA/agnews --probe-rows 200"
train() {
    out=$1 resume=''
    [ ! -f "$out/training.json" ] || resume=--resume
    shift
    "$keyhole" pretrain --corpus $weighted --out "$out" --precision "${PRECISION:-bf16}" --mask-rate 0.25 --checkpoint-every 300 --seed 1 $probes $resume "$@"
}

# ---- stage one: language. Short sequences first: they cost less, and teach words before sentences.
if [ -n "${INIT:-}" ]; then
    train "$work/model" --tokenizer "$tokenizer" --init "$tokenizer" --seq-len 64 --lr 5e-4 --warmup 0.04 --tokens "${TOKENS:-6e6}" \
        --batch-tokens 2048 --eval-every 100 --dtype q8_0
else
    train "$work/model" --tokenizer "$tokenizer" --layers 6 --hidden 256 --positions 258 --seq-schedule 32:0.5,64:0.3,128:0.15,256:0.05 \
        --lr 1e-3 --warmup 0.02 --tokens "${TOKENS:-4e7}" --batch-tokens 2048 --eval-every 500 --dtype q8_0
fi
result=$work/model

# ---- stage two: questions, and a third of plain text, so that language is not forgotten
if [ "$stage" = 2 ]; then
    rows=''
    for one in sst2:3 agnews:3 mnli:0.4 snli:0.4 rte:0.5 mrpc:0.3; do
        case " ${LEAVE:-} " in *" ${one%:*} "*) continue ;; esac
        [ ! -d "$DATA/${one%:*}" ] || rows="$rows tools/questions/${one%:*}.json=$DATA/$one"
    done
    [ -n "$rows" ] || die "$DATA holds no folder of sst2, agnews, mnli, snli, rte or mrpc"
    result=$work/asked
    train "$result" --tokenizer "$tokenizer" --init "$work/model" --rows $rows --rows-share 0.67 --seq-len 96 --lr 1.5e-4 --warmup 0.06 \
        --steps "${STEPS:-600}" --batch-tokens 1280 --shards 2 --eval-every 100 --eval-tokens 8192 --dtype q8_0
    cp "$work/model/log.tsv" "$into/stage1.tsv"
fi

for file in config.json model.safetensors tokenizer.json vocab.txt tokenizer_config.json log.tsv; do
    [ ! -f "$result/$file" ] || cp "$result/$file" "$into/$file"
done
echo "builtin: the model is in $into ($(du -sk "$into" | cut -f1) KB):"
"$keyhole" inspect "$into"
"$keyhole" fill-mask --model "$into" \
    --top 5 "The movie was $(grep -q '"\[MASK\]"' "$into/tokenizer.json" && echo '[MASK]' || echo '<mask>')."
