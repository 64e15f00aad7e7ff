#!/bin/bash
# tune and predict: from a tiny random model to predictions, the same bytes for any number of threads, and their complaints.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n=0 failed=0
model=$work/model data=$work/data task=$work/toy.json

# ok NAME STATUS: the last line of a check; STATUS 0 is success
ok() {
    n=$((n + 1))
    if [ "$2" -eq 0 ]; then echo "ok $n - $1"; else echo "not ok $n - $1"; failed=1; sed 's/^/# /' "$work/out" "$work/err"; fi
}
# run STATUS ARGUMENTS...: runs keyhole with output in files and $work/in as input; fails unless it exits with STATUS
: >"$work/in"
run() {
    local want=$1
    shift
    "$KEYHOLE" "$@" >"$work/out" 2>"$work/err" <"$work/in"
    [ $? -eq "$want" ]
}
# says FILE TEXT: the file holds the text
says() { grep -qF -- "$2" "$work/$1"; }

mkdir "$data"
cat >"$task" <<'END'
{ "name": "toy", "template": "{text} It was {mask} .",
  "labels": [ { "name": "bad", "words": ["lower"] }, { "name": "good", "words": ["better"] } ] }
END
{
    printf 'label\ttext\n'
    for i in $(seq 24); do printf '%d\tthe boats number %d were green\n' $((i % 2)) "$i"; done
} >"$data/train.tsv"
cp "$data/train.tsv" "$data/test.tsv"
run 0 model random --arch tiny --seed 3 --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-bpe.json --out "$model"
ok a_tiny_model $?

common=(--model "$model" --task "$task" --data "$data" --effort paper --shots 4 --dim 12 --slots 5 --p0 random --features-model none)
small=(--budget-generations 4 --dev-every 2 --pop 5)

# ---- every method, tuned and used
echo "the boats were small" >"$work/in"
for method in manual icl bbt ensemble elbo abc-rejection abc-smc smc prompt-tuning p-tuning-v2 model-tuning feature-mlp feature-bilstm feature-logistic; do
    opts=()
    case $method in
    bbt) opts=("${small[@]}") ;;
    ensemble) opts=("${small[@]}" --members 2) ;;
    elbo) opts=("${small[@]}" --draws 2 --samples 4) ;;
    abc-rejection) opts=(--access labels --samples 5) ;;
    abc-smc) opts=(--access labels --samples 5 --budget-generations 2) ;;
    smc) opts=(--access labels --samples 5 --budget-levels 2) ;;
    feature-logistic) ;;
    *-tuning* | feature-*) opts=(--epochs 2) ;;
    esac
    run 0 tune --method $method "${common[@]}" "${opts[@]}" --out "$work/$method" && says out "dev       accuracy" &&
        says out "stopped" &&
        [ -s "$work/$method/posterior.json" ] && [ -s "$work/$method/posterior.safetensors" ] && [ -e "$work/$method/log.txt" ] &&
        run 0 predict "$work/$method" && [ "$(wc -l <"$work/out")" -eq 1 ] && says out '"distribution":{"bad":'
    ok "tune_and_predict_$method" $?
done

# A method that learns from dev rows too is judged by cross-fitted answers; others have their dev rows.
run 0 tune --method feature-logistic "${common[@]}" --fallback none --out "$work/learned" &&
    [ "$(wc -l <"$work/learned/crossfit.jsonl")" -eq 16 ] && [ ! -e "$work/feature-mlp/crossfit.jsonl" ] &&
    run 0 eval "$work/learned" --no-report && says out "decisions, chosen on 16 cross-fitted rows"
ok sets_by_rows_not_learned_from $?

run 0 tune --method bbt "${common[@]}" "${small[@]}" --out "$work/bbt" --force --json &&
    says out '"queries":176,"train_queries":160,"dev_queries":16,' &&
    says out '"stopped":"all 4 generations are done"'
ok summary_as_json $?

[ "$(wc -l <"$work/bbt/log.txt")" -eq 4 ] &&
    [ "$(grep -cE '^gen=[0-9]+ queries=[0-9]+ loss=[0-9.]+ best=[0-9.]+ dev=[-0-9.]+$' "$work/bbt/log.txt")" -eq 4 ]
ok one_line_a_generation $?
grep -qE '^member=1 gen=4 queries=' "$work/ensemble/log.txt"
ok members_in_the_log $?
says err "bbt done=4 total=4 gen=4 queries="
ok progress_is_shown $?

for t in 1 2; do
    for method in bbt elbo; do
        run 0 tune --method $method "${common[@]}" --budget-generations 4 --threads $t --out "$work/$method-$t"
    done
done
cmp "$work/bbt-1/posterior.safetensors" "$work/bbt-2/posterior.safetensors" &&
    cmp "$work/bbt-1/posterior.json" "$work/bbt-2/posterior.json" &&
    cmp "$work/elbo-1/posterior.safetensors" "$work/elbo-2/posterior.safetensors" &&
    cmp "$work/elbo-1/posterior.json" "$work/elbo-2/posterior.json" &&
    cmp "$work/bbt-1/log.txt" "$work/bbt-2/log.txt"
ok same_bytes_for_any_threads $?

# ---- the box open
for method in p-tuning-v2 feature-mlp feature-bilstm; do
    for t in 1 2; do
        run 0 tune --method $method "${common[@]}" --epochs 2 --threads $t --out "$work/$method-$t"
    done
    cmp "$work/$method-1/posterior.safetensors" "$work/$method-2/posterior.safetensors" &&
        cmp "$work/$method-1/posterior.json" "$work/$method-2/posterior.json" &&
        cmp "$work/$method-1/log.txt" "$work/$method-2/log.txt" &&
        run 0 eval "$work/$method-1" --data "$data" && says out "accuracy"
    ok "same_bytes_and_eval_$method" $?
done
run 0 compare "$work/p-tuning-v2-1" "$work/feature-mlp-1" "$work/feature-bilstm-1" && says out "p-tuning-v2" &&
    says out "feature-bilstm"
ok compare_of_open_methods $?
run 0 tune --method prompt-tuning "${common[@]}" --epochs 2 --patience 9 --out "$work/passes" &&
    says out "passes    40 rows through the weights, 16 of them back" &&
    says out "queries   8: 0 on train, 8 on dev" &&
    grep -q '"passes": {"forward": 40, "backward": 16}' "$work/passes/posterior.json" &&
    grep -qE '^gen=2 queries=0 loss=[0-9.]+ best=[0-9.]+ forward=40 backward=16 dev=' "$work/passes/log.txt"
ok passes_are_told $?
run 1 tune --method feature-mlp "${common[@]}" --access labels --out "$work/none" &&
    says err "method feature-mlp needs a box that lets out weights"
ok features_need_the_weights $?
for method in prompt-tuning feature-mlp; do
    "$KEYHOLE" tune --method $method "${common[@]}" --epochs 1000000 --patience 1000000 \
        --out "$work/stopped-$method" >"$work/out" 2>"$work/err" &
    while [ ! -s "$work/stopped-$method/log.txt" ]; do sleep 0.1; done
    kill -TERM $!
    wait $!
    [ $? -eq 143 ] && says err "the same command with --resume goes on"
    ok "sigterm_ends_$method" $?
done
run 1 export "$work/feature-mlp" --format peft --out "$work/none" &&
    says err "was made without a soft prompt, so there is nothing to export"
ok heads_are_not_exported $?

# ---- ModernBERT: from files to predictions, in every mode, with the same bytes for 1 and 3 threads; through a GGUF file
modern=(--model "$work/modern" --task "$task" --data "$data" --shots 4 --dim 12 --slots 5 --p0 random --features-model none)
run 0 model random --family modernbert --seed 3 --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-bpe.json --out "$work/modern" &&
    run 0 inspect "$work/modern" --json && says out '"type":"modernbert"'
ok a_modernbert $?
for inject in post-ln-add embed-prefix embed-inplace; do
    run 0 tune --method bbt "${modern[@]}" "${small[@]}" --inject $inject --threads 1 --out "$work/modern-$inject" &&
        run 0 tune --method bbt "${modern[@]}" "${small[@]}" --inject $inject --threads 3 --out "$work/modern-$inject-3" &&
        cmp "$work/modern-$inject/posterior.safetensors" "$work/modern-$inject-3/posterior.safetensors" &&
        run 0 predict "$work/modern-$inject" && says out '"distribution":{"bad":'
    ok "modernbert_$inject" $?
done
echo "the boats <mask> green" >"$work/in"
run 0 model convert --model "$work/modern" --format gguf --type f32 --out "$work/modern.gguf" && run 0 fill-mask --model "$work/modern" --json &&
    cp "$work/out" "$work/folder" && run 0 fill-mask --model "$work/modern.gguf" --json && cmp "$work/out" "$work/folder"
ok modernbert_as_gguf $?
run 1 tune --method prompt-tuning "${modern[@]}" --epochs 2 --out "$work/modern-gradient" && says err "gradients of modernbert models are not computed"
ok modernbert_has_no_gradients $?
run 1 tune --method p-tuning-v2 "${modern[@]}" --epochs 2 --out "$work/modern-prefix" && says err "modernbert"
ok modernbert_has_no_prefixes $?
echo "the boats were small" >"$work/in"

# ---- budgets and refusals
run 0 tune --method bbt "${common[@]}" --pop 5 --budget-queries 100 --out "$work/budget" &&
    says out "the next generation would exceed the budget of 100 queries"
ok query_budget $?
run 0 tune --method bbt "${common[@]}" --pop 5 --budget-time 0.001 --out "$work/time" &&
    says out "the budget of 0.001 seconds is used up"
ok time_budget $?
run 1 tune --method bbt "${common[@]}" "${small[@]}" --out "$work/bbt" &&
    says err "holds a posterior already, of a finished run of bbt; --force writes over it"
ok a_result_is_not_overwritten $?
run 1 tune --method bbt "${common[@]}" --budget-queries 5 --out "$work/none" && says err "a budget of 5 queries is too small" &&
    [ ! -e "$work/none" ]
ok a_refused_run_leaves_nothing $?
run 2 tune --method bbt "${common[@]}" --budget-queries 0 --out "$work/none" &&
    says err "--budget-queries takes a whole number from 1"
ok zero_budget $?
run 2 tune --method guess "${common[@]}" --out "$work/none" && says err '--method takes one of auto, manual, icl, bbt, ensemble, elbo'
ok unknown_method $?
run 2 tune --method bbt "${common[@]}" --kl-weight 1 --out "$work/none" &&
    says err 'unknown option --kl-weight for "keyhole tune --method bbt"'
ok options_of_another_method $?
run 2 tune --method bbt --model "$model" && says err "data is needed: a file of labelled texts" && says err "--task (made from the labels)"
ok data_is_needed_and_all_else_is_named $?
run 1 tune --method bbt "${common[@]}" --dim 161 --out "$work/none" && says err "dimension 161 is larger than the prompt itself"
ok dimension_too_large $?
run 1 tune --method bbt "${common[@]}" --access labels --out "$work/none" &&
    says err "method bbt needs a box that lets out logprobs"
ok labels_only $?
run 1 tune --method smc "${common[@]}" --label-prior batch --out "$work/none" && says err "method smc sees labels only here"
ok label_prior_needs_probabilities $?
run 0 predict "$work/bbt" && cp "$work/out" "$work/plain.out"
for how in batch contextual; do
    run 0 tune --method bbt "${common[@]}" "${small[@]}" --label-prior $how --out "$work/$how" && run 0 predict "$work/$how" && cp "$work/out" "$work/$how.out" &&
        ! cmp -s "$work/$how.out" "$work/plain.out" && grep -q "\"label_prior\": {\"method\": \"$how\"" "$work/$how/posterior.json"
    ok "label_prior_$how" $?
done
run 0 tune --method bbt "${common[@]}" "${small[@]}" --out "$work/later" && ! grep -q label_prior "$work/later/posterior.json" &&
    run 0 tune --method bbt "${common[@]}" "${small[@]}" --label-prior batch --resume --out "$work/later" &&
    cmp "$work/later/posterior.json" "$work/batch/posterior.json" && says out "were answered before"
ok a_finished_run_gets_its_label_prior_later $?
cp -r "$model" "$work/headless" && cp tests/vectors/models/bert-no-head/config.json tests/vectors/models/bert-no-head/model.safetensors "$work/headless/" 2>"$work/err" &&
    run 1 tune --method bbt "${common[@]}" --model "$work/headless" --out "$work/none" && says err "no masked-language-model head"
ok model_without_head $?
mkdir "$work/lopsided" && cp "$data/train.tsv" "$work/lopsided/" && grep -v '^1' "$data/train.tsv" >"$work/lopsided/dev.tsv" &&
    run 1 tune --method bbt "${common[@]}" --shots 0 --data "$work/lopsided" --out "$work/none" &&
    says err 'the dev rows hold none of class 1 ("good")'
ok dev_without_a_class $?
run 0 tune --method elbo "${common[@]}" "${small[@]}" --draws 1 --samples 2 --paper-exact --out "$work/exact" &&
    grep -q '"kl-weight":0.001' "$work/exact/posterior.json"
ok paper_exact $?
run 0 tune --method elbo "${common[@]}" "${small[@]}" --draws 1 --samples 2 --kl-weight 0.5 --paper-exact --out "$work/exact" \
    --force &&
    grep -q '"kl-weight":0.5' "$work/exact/posterior.json"
ok what_is_said_goes_before_paper_exact $?
run 0 tune --method elbo --help && says out "options of --method elbo" && says out "--kl-weight X" && run 0 tune --help &&
    says out "values of --method:" && says out "  ensemble"
ok help_of_a_method $?

# ---- predict: input and output
run 0 predict "$work/bbt" "$data/test.tsv" && [ "$(wc -l <"$work/out")" -eq 24 ] && cp "$work/out" "$work/tsv"
ok predict_tsv $?
cut -f 2 "$data/test.tsv" | tail -n +2 >"$work/in"
run 0 predict "$work/bbt" && sed 's/"line":[0-9]*,//' "$work/out" >"$work/a" && sed 's/"line":[0-9]*,//' "$work/tsv" |
    cmp - "$work/a"
ok lines_of_standard_input $?
{ echo text; sed 's/.*/"&"/' "$work/in"; } >"$work/rows.csv" && run 0 predict "$work/bbt" "$work/rows.csv" &&
    sed 's/"line":[0-9]*,//' "$work/out" | cmp - "$work/a"
ok predict_csv $?
sed 's/.*/{"text":"&","label":"whatever"}/' "$work/in" >"$work/rows.jsonl" && run 0 predict "$work/bbt" "$work/rows.jsonl" &&
    sed 's/"line":[0-9]*,//' "$work/out" | cmp - "$work/a"
ok predict_jsonl $?
run 0 predict "$work/bbt" "$data/test.tsv" --output tsv --with-text && [ "$(head -1 "$work/out")" = "$(printf 'line\tlabel\tconfidence\tentropy\tambiguity\tdisagreement\tabstain\tset\tenergy\tood_score\tood\tp_bad\tp_good\ttext')" ] &&
    [ "$(awk -F'\t' 'NF == 14' "$work/out" | wc -l)" -eq 25 ] && [ "$(sed -n '2p' "$work/out" | cut -f 1)" = 2 ]
ok tsv_output $?
run 0 predict "$work/bbt" "$data/test.tsv" --output probs && cp "$work/out" "$work/in" && run 0 metrics - && says out "accuracy" &&
    head -1 "$work/in" | cut -d ']' -f 2 | grep -qE '^,("energy":-?[0-9.]+,"label":1|"label":1,"energy":-?[0-9.]+)\}$'
ok output_for_metrics $?
{ printf 'label\ttext\n'; for i in $(seq 700); do printf '0\tboats %d\n' "$i"; done; printf '0\tbroken \xff\n'; } >"$work/long.tsv"
run 1 predict "$work/manual" "$work/long.tsv" && says err "long.tsv:702:" && [ "$(wc -l <"$work/out")" -gt 500 ] &&
    head -n 701 "$work/long.tsv" >"$work/fine.tsv" &&
    run 0 predict "$work/manual" "$work/fine.tsv" && [ "$(wc -l <"$work/out")" -eq 700 ] && says out '"line":701,'
ok long_files_in_parts $?
printf 'text\n"the boats\nwere ""green"""\n"small"\n' >"$work/quoted.csv" &&
    run 0 predict "$work/manual" "$work/quoted.csv" --with-text && [ "$(wc -l <"$work/out")" -eq 2 ] &&
    says out '"text":"the boats\nwere \"green\""'
ok line_breaks_in_quotes $?
printf 'one\n\nthree\n' >"$work/in" && run 0 predict "$work/manual" && [ "$(wc -l <"$work/out")" -eq 3 ]
ok an_empty_line_is_a_line $?
printf 'one\nb\xff\n' >"$work/in" && run 1 predict "$work/manual" && says err "standard input:2: not valid UTF-8"
ok bad_bytes $?
: >"$work/in" && run 0 predict "$work/manual" && [ ! -s "$work/out" ]
ok nothing_in_nothing_out $?
cp "$data/test.tsv" "$work/rows" && run 2 predict "$work/manual" "$work/rows" &&
    says err "cannot tell its format by its name; give --format" &&
    run 0 predict "$work/manual" "$work/rows" --format tsv
ok format_by_name $?

# ---- predict: what belongs together
run 0 model random --arch tiny --seed 4 --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-bpe.json --out "$work/other" &&
    run 1 predict "$work/bbt" "$data/test.tsv" --model "$work/other" && says err "the posterior was made with other weights"
ok another_model $?
run 1 predict "$work/bbt" "$data/test.tsv" --task sst2 && says err 'the posterior was made for task "toy" with the template'
ok another_task $?
run 0 predict "$work/bbt" "$data/test.tsv" --task "$task" && sed 's/"line":[0-9]*,//' "$work/out" | cmp - "$work/a"
ok the_same_task $?
mv "$model" "$work/moved" && run 1 predict "$work/bbt" "$data/test.tsv" && says err "--model says where it is now" &&
    run 0 predict "$work/bbt" "$data/test.tsv" --model "$work/moved" && sed 's/"line":[0-9]*,//' "$work/out" | cmp - "$work/a"
ok a_model_that_moved $?
run 1 predict "$work/data" "$data/test.tsv" && says err "no posterior.json in it"
ok no_posterior $?

echo "1..$n"
exit $failed
