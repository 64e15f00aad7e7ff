#!/bin/bash
# model random, inspect, fill-mask, features: what they print, and their complaints.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n=0 failed=0
model=$work/m

# ok NAME STATUS: the last line of a check; STATUS 0 is success
ok() {
    n=$((n + 1))
    if [ "$2" -eq 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; failed=1; sed 's/^/# /' "$work/out" "$work/err"; fi
}
# run STATUS ARGUMENTS...: runs keyhole with output in files; fails unless it exits with STATUS
run() {
    local want=$1
    shift
    "$KEYHOLE" "$@" >"$work/out" 2>"$work/err" </dev/null
    [ $? -eq "$want" ]
}
# says FILE TEXT: the file holds the text
says() { grep -qF -- "$2" "$work/$1"; }

run 0 model random --out "$model" --family bert --seed 3 --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-wordpiece/vocab.txt &&
    [ ! -s "$work/out" ] && [ -r "$model/vocab.txt" ] && [ -r "$model/config.json" ]
ok random_model_with_tokenizer $?

cp "$model/model.safetensors" "$work/first" && run 0 model random --out "$model" --family bert --seed 3 --std 0.3 --threads 2 \
    --tokenizer tests/vectors/tokenizers/tiny-wordpiece/vocab.txt && cmp -s "$model/model.safetensors" "$work/first"
ok same_seed_same_file $?

run 0 model random --out "$work/other" --seed 4 --dtype f16 --layers 3 && run 0 inspect "$work/other" &&
    says out "layers       3" &&
    says out "type         roberta" && says out "stored as    F16" && says out "tokenizer    none"
ok inspect_prints_sizes $?

run 0 inspect "$model" --json && says out '"type":"bert","layers":2,"hidden":32' && says out '"head":true,"tied":true' &&
    says out '"fits":true' && says out '"mask":"[MASK]"' && [ "$(wc -l <"$work/out")" -eq 1 ]
ok inspect_json $?

run 0 fill-mask --model "$model" --top 3 "[MASK] is" && [ "$(wc -l <"$work/out")" -eq 4 ] && says out '"[MASK] is"'
ok fill_mask_prints_the_top $?

run 0 fill-mask --model "$model" --top 2 --json "[MASK] is [MASK]" && says out '"masks":[{"place":1,"tokens":[{"id":' &&
    says out '{"place":3,"tokens":['
ok fill_mask_several_masks $?

run 0 fill-mask --model "$model" --top 3 "a [MASK] is [MASK]" && tail -n +2 "$work/out" >"$work/own" &&
    run 0 fill-mask --model "$model" --top 3 "a <mask> is <mask>" && tail -n +2 "$work/out" | cmp - "$work/own"
ok fill_mask_other_spelling $?

# Over the whole vocabulary, probabilities sum to one.
run 0 fill-mask --model "$model" --top 1000 "a [MASK]" &&
    awk 'NR > 1 { sum += exp($2) } END { exit !(sum > 0.999 && sum < 1.001) }' "$work/out"
ok fill_mask_probabilities_sum_to_one $?

printf '"a \\n[MASK]"\n"[MASK]"\n' | "$KEYHOLE" fill-mask --model "$model" --json --json-input >"$work/out" 2>"$work/err" &&
    [ "$(wc -l <"$work/out")" -eq 2 ] && says out '{"text":"a \n[MASK]"'
ok fill_mask_json_input $?

run 1 fill-mask --model "$model" "no gap" && says err 'the text has no mask; write [MASK] where a token is to be guessed'
ok fill_mask_without_mask $?

printf '[MASK]\nx\n' | "$KEYHOLE" fill-mask --model "$model" >"$work/out" 2>"$work/err"
[ $? -eq 1 ] && says err 'standard input: line 2: the text has no mask'
ok fill_mask_names_the_line $?

printf 'x\n' | "$KEYHOLE" fill-mask --model "$model" --json-input >"$work/out" 2>"$work/err"
[ $? -eq 1 ] && says err 'standard input: line 1:1: not valid JSON'
ok json_input_that_is_none $?

printf '7\n' | "$KEYHOLE" fill-mask --model "$model" --json-input >"$work/out" 2>"$work/err"
[ $? -eq 1 ] && says err 'standard input: line 1: must be a JSON string'
ok json_input_that_is_no_string $?

run 1 fill-mask --model tests/vectors/models/bert "[MASK]" && says err 'tests/vectors/models/bert'
ok fill_mask_needs_a_tokenizer $?

cp -r tests/vectors/models/bert-no-head "$work/headless" && cp "$model/vocab.txt" "$work/headless" &&
    run 1 fill-mask --model "$work/headless" "[MASK]" &&
    says err 'the model has no masked-language-model head, which fill-mask needs'
ok fill_mask_needs_a_head $?

name=fill_mask_knows_paris minilm=../shared/models/minilm-mlm
if [ -r $minilm/model.safetensors ]; then
    run 0 fill-mask --model $minilm "The capital of France is [MASK]." && says out '"paris"'
    ok $name $?
else
    echo "# skipped: $name: $minilm is not there"
    ok "$name # SKIP $minilm is not there" 0
fi

run 1 fill-mask --model "$model" "$(yes '[MASK]' | head -n 200 | tr '\n' ' ')" &&
    says err 'a sequence of 202 tokens is longer than the 128'
ok too_long_a_text $?

printf '[MASK] a\nb [MASK] c [MASK]\n[MASK]\nd e f g [MASK]\n[MASK] [MASK] [MASK]\n' >"$work/texts"
# same_for_any_batch ARGS...: about those texts
same_for_any_batch() {
    for batch in 1 2 3 32; do
        "$KEYHOLE" "$@" --batch $batch --threads 2 <"$work/texts" >"$work/batch$batch" 2>"$work/err" &&
            [ -s "$work/batch1" ] && cmp -s "$work/batch1" "$work/batch$batch" || return 1
    done
}
same_for_any_batch fill-mask --model "$model" --json && [ "$(wc -l <"$work/batch32")" -eq 5 ]
ok fill_mask_does_not_depend_on_the_batch $?

same_for_any_batch features --model "$model" --pool none
ok features_do_not_depend_on_the_batch $?

printf '[MASK]\na [MASK]\nx\n[MASK]\n' | "$KEYHOLE" fill-mask --model "$model" --json >"$work/out" 2>"$work/err"
[ $? -eq 1 ] && says err 'standard input: line 3: the text has no mask' && [ "$(wc -l <"$work/out")" -eq 2 ]
ok fill_mask_answers_what_came_before_a_bad_text $?

printf '2 5 6\n2 7\n2 x\n' | "$KEYHOLE" features --model tests/vectors/models/roberta --ids >"$work/out" 2>"$work/err"
[ $? -eq 1 ] && says err 'standard input: line 3: expected token ids' && [ "$(wc -l <"$work/out")" -eq 2 ]
ok features_of_what_came_before_bad_ids $?

echo "2 5 6" | "$KEYHOLE" features --model tests/vectors/models/roberta --ids --pool none >"$work/out" 2>"$work/err" &&
    [ "$(wc -l <"$work/out")" -eq 4 ] && [ "$(head -n 1 "$work/out" | wc -w)" -eq 32 ]
ok features_of_every_token $?

echo "2 5 6" | "$KEYHOLE" features --model tests/vectors/models/roberta --ids --pool mean >"$work/mean" 2>"$work/err" &&
    awk 'NR == FNR { for (i = 1; i <= NF; i++) mean[i] = $i; next } { for (i = 1; i <= NF; i++) sum[i] += $i }
        END { for (i = 1; i <= 32; i++) if ((d = sum[i] / 3 - mean[i]) > 1e-6 || d < -1e-6) bad = 1; exit bad }' "$work/mean" "$work/out"
ok features_mean $?

head -n 1 "$work/out" >"$work/cls" &&
    echo "2 5 6" | "$KEYHOLE" features --model tests/vectors/models/roberta --ids --pool cls --layer 2 2>"$work/err" |
    cmp -s - "$work/cls"
ok features_cls_is_the_first_token $?

run 0 features --model "$model" --json --layer 0 "hello" && says out '"layer":0,"pool":"mean","features":['
ok features_of_a_text_as_json $?

run 2 features --model "$model" --layer 3 x && says err '--layer takes "last" or a number from 0 to 2 for this model; got "3"'
ok features_of_a_layer_that_is_none $?

echo "2 x" | "$KEYHOLE" features --model tests/vectors/models/roberta --ids >"$work/out" 2>"$work/err"
[ $? -eq 1 ] && says err 'standard input: line 1: expected token ids, found "x"'
ok features_of_ids_that_are_none $?

echo "2 -7" | "$KEYHOLE" features --model tests/vectors/models/roberta --ids >"$work/out" 2>"$work/err"
[ $? -eq 1 ] && says err 'expected token ids, found " -7"'
ok features_of_negative_ids $?

run 2 model random --out "$work/x" --vocab 3 --tokenizer tests/vectors/tokenizers/tiny-wordpiece/vocab.txt &&
    says err '--vocab 3 is too small for'
ok random_model_too_small_for_its_tokenizer $?

run 1 model random --out "$work/x" --heads 5 && says err 'a hidden size of 32 cannot be divided among 5 attention heads' &&
    [ ! -e "$work/x/config.json" ]
ok random_model_that_is_impossible $?

run 1 inspect "$work/nothing" && says err 'there is no such folder; a model is a folder with config.json and model.safetensors'
ok inspect_of_nothing $?

run 2 inspect && says err 'MODEL|RUN is needed'
ok inspect_needs_a_model $?

run 0 bench engine --arch bert-tiny --precision f32,int8 --rows 2 --reps 1 && says out 'bert-tiny, 2 sequences' &&
    says out 'of peak' &&
    says out '6 layers x 256' && [ "$(grep -c '^  int8 .* /s .* %' "$work/out")" -eq 2 ] &&
    [ "$(grep -c '^  bf16' "$work/out")" -eq 0 ]
ok bench_engine_prints_its_table $?

run 0 bench engine --arch bert-tiny --precision bf16 --rows 2 --reps 1 --slots 5 --length 20 --json &&
    says out '"precision":"bf16"' &&
    [ "$(wc -l <"$work/out")" -eq 1 ]
ok bench_engine_times_one_case $?

run 2 bench engine --arch bert-tiny --precision f64 &&
    says err '--precision takes f32, bf16 and int8, separated by commas; got "f64"'
ok bench_engine_of_unknown_precision $?

run 0 model random --family bert --out "$work/wordy" --tokenizer tests/vectors/tokenizers/tiny-wordpiece.json
[ $? -eq 0 ] && cmp -s "$work/wordy/tokenizer.json" tests/vectors/tokenizers/tiny-wordpiece.json && run 0 inspect "$work/wordy" &&
    says out "328 tokens" &&
    run 0 features --model "$work/wordy" "the lazy dog"
ok random_model_has_the_tokenizer_whatever_its_file_was_called $?
printf 'the quick brown fox\nthe dog was lazy\n' >"$work/words.txt"
run 0 model prune --model "$work/wordy" --corpus "$work/words.txt:2" --vocab 310 --out "$work/fewer" --json --dtype bf16 &&
    says out '"before":328' &&
    says out '"covered":1.0' && run 0 inspect "$work/fewer" && says out BF16 && run 0 features --model "$work/fewer" "the lazy dog"
ok pruned_model_is_a_model $?

run 0 pretrain --init "$work/fewer" --tokenizer "$work/fewer" --corpus "$work/words.txt" --valid-share 0 --seq-len 8 \
    --batch-tokens 8 --steps 1 --out "$work/on" &&
    run 0 fill-mask --model "$work/on" "the [MASK] dog"
ok pruned_model_is_trained_on $?

run 1 model prune --model "$work/wordy" --corpus "$work/words.txt" --vocab 10 --out "$work/fewer" &&
    says err 'must stay; 10 are too few'
ok pruned_too_far $?

run 0 fill-mask --help && says out 'keyhole fill-mask --model'
ok help_teaches $?

echo "1..$n"
exit $failed
