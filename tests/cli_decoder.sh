#!/bin/bash
# Decoders on the command line: next, every method end to end, the same bytes however the work is cut, ranks, a kill, a service.
. tests/tap.sh
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null; rm -rf "$here"' EXIT
. tests/kill.sh
trap '[ -n "$server" ] && kill "$server" 2>/dev/null; rm -rf "$here"' EXIT

# Label words of one token and of several, with a beginning in common.
cat >"$task" <<'END'
{ "name": "toy", "template": "{text} It was {mask} .", "decoder_template": "{text} It was {mask}",
  "labels": [ { "name": "bad", "words": ["lower", "lower boats"] }, { "name": "good", "words": ["better"] } ] }
END
decoder() { # DIR FAMILY SIZES...
    "$KEYHOLE" model random --family "$2" --std 0.3 --seed 5 --tokenizer tests/vectors/tokenizers/tiny-bpe.json --out "$1" "${@:3}" \
        >/dev/null
}
rm -rf "$model"
ok model_random_llama decoder "$model" llama --hidden 64 --inner 256 # large enough that threads are worth it
ok model_random_gpt2 decoder "$here/gpt2" gpt2
ok inspect both 0 '"type":"llama"' inspect "$model" --json

# ---- next
ok next_prints_the_top both 0 '"the boats"' next --model "$model" --top 3 "the boats"
json() { run 0 next --model "$model" --top 2 --json "the boats" && out_has '"text":"the boats","ids":[' && out_has '"next":[{"id":'; }
ok next_json json
lines() { printf 'the boats\nit was\n' | "$KEYHOLE" next --model "$1" --json --batch 1 >"$here/one" && [ "$(wc -l <"$here/one")" -eq 2 ]; }
ok next_lines lines "$model"
batched() { printf 'the boats\nit was\n' | "$KEYHOLE" next --model "$1" --json >"$here/many" && cmp "$here/one" "$here/many"; }
ok next_does_not_depend_on_the_batch batched "$model"
tiny_model "$here/encoder" 4
ok next_of_an_encoder says 1 'fills masks' next --model "$here/encoder" --top 1 "x"
ok fill_mask_of_a_decoder says 1 'fills no masks' fill-mask --model "$model" "x"
long() { "$KEYHOLE" next --model "$model" "$(seq -s ' ' 300)" 2>"$here/err"; [ $? -eq 1 ] && err_has 'longer than the 128 that the model can take'; }
ok next_of_a_text_that_is_too_long long
ok features both 0 '"features":[' features --model "$model" --json "the boats"
ok task_show both 0 'asked by       a continuation' task show sst2 --model "$model"

predicts() { printf 'text\nthe boats were green\n' >"$here/rows.tsv" && run 0 predict "$here/$1" "$here/rows.tsv" && [ -s "$here/out" ]; }
# ---- task files
refused() { # WHAT KEY VALUE
    sed "s/\"decoder_template\": [^,]*/\"$2\": \"$3\"/" "$task" >"$here/wrong.json" && says 1 "$1" task check "$here/wrong.json"
}
ok template_that_goes_on refused 'must end with {mask}' decoder_template '{text} It was {mask} .'
ok template_of_pairs refused 'must hold the same texts' decoder_template '{text_a} {text_b} {mask}'
ok template_with_a_prompt refused 'must not hold {prompt}' decoder_template '{prompt} {text} {mask}'
ok soft_template_alone refused 'needs a "decoder_template"' decoder_soft_template '{prompt} {text} {mask}'
ok word_score_of_an_unknown_kind refused 'it is sum or mean' word_score median
ok chat_format_of_an_unknown_kind refused 'is not known' chat smalltalk

# ---- every method, then what is done with its result
ends() { whole "$1" && predicts "$1"; }
for method in bbt ensemble elbo smc abc-smc manual icl; do
    ok "$method" ends "$method"
done
ok feature_mlp run 0 tune --method feature-mlp --model "$model" --task "$task" --data "$data" --shots 8 --epochs 3 --out "$here/mlp"
ok predict_by_feature_mlp predicts mlp
ok gpt2 run 0 tune --method bbt --model "$here/gpt2" --task "$task" --data "$data" --effort paper --shots 8 --dim 12 --slots 5 --p0 random \
    --budget-generations 5 --out "$here/by-gpt2"
cp "$data/train.tsv" "$data/test.tsv"
ok eval both 0 accuracy eval "$here/bbt" --data "$data"
recorded() { grep -q '"inject": "embed-inplace"' "$here/bbt/posterior.json" && grep -q '"decoder_template"' "$here/bbt/posterior.json"; }
ok posterior_records_how_it_asks recorded
prefix() { run 0 tune --method bbt "${common[@]}" --inject embed-prefix --budget-generations 3 --out "$here/prefix" &&
    run 0 export "$here/prefix" --format peft --out "$here/peft" && grep -q CAUSAL_LM "$here/peft"/*/adapter_config.json "$here/peft"/adapter_config.json 2>/dev/null; }
ok export_peft prefix

# ---- the same bytes: threads, memory, ranks, a kill, a service
# Text prompts: texts that stand first are kept in this process, not across the wire.
texts=(--method text-ensemble --prompts 6 --demos 2 --edits 0 --fallback none)
texts() { run 0 tune "${texts[@]}" "${common[@]}" --out "$here/texts" && predicts texts && cp "$here/out" "$here/texts.said"; }
ok text_ensemble texts
texts_variant() { # NAME ARGS...
    run 0 tune "${texts[@]}" "${common[@]}" --out "$here/$1" "${@:2}" && cmp "$here/texts/posterior.json" "$here/$1/posterior.json"
}
ok text_ensemble_on_5_threads texts_variant texts-five --threads 5
ok text_ensemble_without_memory texts_variant texts-none --cache-memory 0.000001
one_by_one() { "$KEYHOLE" predict "$here/texts" "the boats were green" >"$here/out" && grep -qF -- "$(grep -o '"confidence": *[0-9.]*' "$here/texts.said")" "$here/out"; }
ok text_ensemble_of_one_text one_by_one
variant() { # NAME ARGS...
    run 0 tune --method bbt "${common[@]}" --placement after-text --budget-generations 6 --pop 10 --out "$here/$1" "${@:2}" &&
        cmp "$here/after/posterior.safetensors" "$here/$1/posterior.safetensors"
}
after() { run 0 tune --method bbt "${common[@]}" --placement after-text --budget-generations 6 --pop 10 --out "$here/after" &&
    grep -q '"placement": "after-text"' "$here/after/posterior.json" && predicts after; }
ok after_text after
ok after_text_on_1_thread variant thread --threads 1
ok after_text_on_5_threads variant five --threads 5
ok after_text_without_memory variant none --cache-memory 0.000001
mean() { run 0 tune --method bbt "${common[@]}" --word-score mean --budget-generations 3 --out "$here/mean" &&
    grep -q '"word_score": "mean"' "$here/mean/posterior.json" && predicts mean; }
ok word_score_mean mean
ok bbt_after_a_kill killed bbt 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
if command -v mpirun >/dev/null && [ -e "$(dirname "$KEYHOLE")/keyhole-mpi.so" ]; then
    # MPI's own libraries leak: a sanitizer is not to count that (tests/mpi_ranks.sh).
    ranks() { LSAN_OPTIONS=detect_leaks=0 ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 timeout 120 mpirun -q --oversubscribe --bind-to none -n 2 "$KEYHOLE" tune --method bbt "${common[@]}" --placement after-text \
        --budget-generations 6 --pop 10 --out "$here/ranks" --threads 1 >"$here/out" 2>"$here/err" &&
        cmp "$here/after/posterior.safetensors" "$here/ranks/posterior.safetensors"; }
    ok two_ranks ranks
fi
if ! "$KEYHOLE" serve --model /nowhere 2>&1 | grep -q "built without libmicrohttpd"; then
    served() {
        rm -f "$here/port"
        "$KEYHOLE" serve --model "$model" --access logprobs --port 0 >"$here/port" 2>"$here/err" &
        server=$!
        soon $server [ -s "$here/port" ]
        url=$(sed 's/.* at //' "$here/port")
        run 0 tune --method bbt --model "$url" --task "$task" --data "$data" --effort paper --shots 8 --dim 12 --slots 5 --p0 random \
            --placement after-text --budget-generations 6 --pop 10 --out "$here/served" &&
            cmp "$here/after/posterior.safetensors" "$here/served/posterior.safetensors"
        local status=$?
        run 0 tune "${texts[@]}" --model "$url" --task "$task" --data "$data" --effort paper --shots 8 --out "$here/texts-served" &&
            run 0 predict "$here/texts-served" "$here/rows.tsv" --model "$url" && cmp "$here/texts.said" "$here/out" || status=1
        # one token of a completion is the best of keyhole next
        if command -v curl >/dev/null; then
            curl -s --json '{"model":"m","prompt":"the boats","max_tokens":1,"logprobs":1}' "$url/v1/completions" >"$here/completion"
            "$KEYHOLE" next --model "$model" --top 1 --json "the boats" >"$here/out"
            grep -qF -- "$(grep -o '"logprob":-[0-9]*\.[0-9]\{3\}' "$here/out" | sed 's/"logprob"://')" "$here/completion" || status=1
        fi
        kill -TERM "$server" && wait "$server"
        server=
        return $status
    }
    ok through_a_service served
fi

# ---- chats, and complaints
ok chat_without_template says 1 'tokenizer_config.json' tune --method manual "${common[@]}" --chat --out "$here/chat"
wrap() { printf '{"chat_template": "%s"}' "$1" >"$model/tokenizer_config.json"; }
wrap 'nobody knows'
ok chat_of_an_unknown_kind says 1 'known are chatml, llama3, gemma, zephyr, llama2' tune --method manual "${common[@]}" --chat --out "$here/chat"
wrap '<|im_start|>{{ messages }}'
chat() { run 0 tune --method manual "${common[@]}" --chat --out "$here/chat" && grep -q '"chat": "chatml"' "$here/chat/posterior.json"; }
ok chat chat
ok after_text_with_embed_prefix says 1 'after-text goes with' tune --method bbt "${common[@]}" --inject embed-prefix --placement after-text \
    --out "$here/no"
sed 's/, "lower boats"//' "$task" >"$here/single.json"
single=(--model "$model" --task "$here/single.json" --data "$data" --effort paper --shots 8)
learns() { run 0 tune --method prompt-tuning "${single[@]}" --slots 5 --p0 random --epochs 3 --out "$here/tuned" && predicts tuned; }
ok prompt_tuning learns
ok prompt_tuning_with_long_words says 1 'has several tokens' tune --method prompt-tuning "${common[@]}" --out "$here/no"
ok model_tuning says 1 'gradients are computed for soft prompts only' tune --method model-tuning "${single[@]}" --out "$here/other"
ok p_tuning says 1 'gradients are computed for soft prompts only' tune --method p-tuning-v2 "${single[@]}" --slots 5 --out "$here/prefixes"
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 3/' "$model/config.json"
ok missing_tensors says 1 'the decoder of a llama model with 3 layers needs it' inspect "$model"
sed -i 's/"num_key_value_heads": 2/"num_key_value_heads": 3/' "$model/config.json"
ok wrong_heads says 1 'cannot share 3 heads' inspect "$model"
echo "1..$n"
exit $failed
