#!/bin/bash
# What a stranger may leave in a run folder, a model or an answer, and what keyhole must not do then: contact an address that stands in a
# folder, write through a link, print what is no number. doc/reliability.md has the list.
. tests/tap.sh
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null; rm -rf "$here"' EXIT
: >"$here/out" && : >"$here/err"
run() { # as in tap.sh, but nothing here may go on for long
    local want=$1 got
    shift
    timeout "${KEYHOLE_PATIENCE:-20}" "$KEYHOLE" "$@" >"$here/out" 2>"$here/err"
    got=$?
    [ "$got" -eq "$want" ] || { echo "# status $got, expected $want"; return 1; }
}

. tests/toy.sh
cp "$here/data/train.tsv" "$here/data/test.tsv"
ok a_tiny_model random_model
common=(--task "$here/toy.json" --data "$here/data" --effort paper --shots 4 --features-model none)
manual=(tune --method manual "${common[@]}")
ok a_run run 0 "${manual[@]}" --model "$model" --out "$here/run"

# ---- an address in a folder is data
if "$KEYHOLE" serve --model /nowhere 2>&1 | grep -q "built without libmicrohttpd" || ! command -v curl >/dev/null; then
    echo "# skipped: addresses in folders: built without libmicrohttpd, or no curl"
else
    start() { # the stranger's service, which would see a key
        rm -f "$here/port"
        "$KEYHOLE" serve --model "$model" --access logprobs --port 0 >"$here/port" 2>"$here/server.err" &
        server=$!
        soon $server [ -s "$here/port" ]
        url=$(sed 's/.* at //' "$here/port")
    }
    asked() { curl -s -m 5 "$url/metrics" | awk '/^keyhole_requests_total/ { n += $2 } END { print n }'; }
    start
    cp -r "$here/run" "$here/received"
    sed -i "s|\"path\": \"$model\"|\"path\": \"$url\"|" "$here/received/posterior.json"
    export KEYHOLE_API_KEY=the-secret-key
    untouched() { # untouched TEXT ARGS... - refused with the text, and nobody was asked
        local before after
        before=$(asked)
        says 2 "$@" || return 1
        after=$(asked)
        [ $((after - before)) -le 1 ] # our own question for the figures
    }
    why="an address that stands in a folder is not contacted"
    ok predict_asks_nobody untouched "$why" predict "$here/received" "$here/data/test.tsv"
    ok eval_asks_nobody untouched "$why" eval "$here/received" --data "$here/data"
    ok serve_asks_nobody untouched "$why" serve --run "$here/received" --port 0
    ok named_by_the_person_it_is_asked run 0 predict "$here/received" "$here/data/test.tsv" --model "$url"
    # ---- a key that is bound to a host goes nowhere else
    export KEYHOLE_API_KEY="host=api.example.org the-secret-key"
    ok a_bound_key_stays_home says 1 "the key is for api.example.org" predict "$here/run" "$here/data/test.tsv" --model "$url"
    export KEYHOLE_API_KEY="host=${url#http://} the-secret-key"
    ok a_bound_key_goes_home run 0 predict "$here/run" "$here/data/test.tsv" --model "$url"
    unset KEYHOLE_API_KEY
    kill "$server"; wait "$server" 2>/dev/null; server=
fi

# ---- links in a folder lead nowhere
victim=$here/victim
fresh() { rm -rf "$here/trap"; mkdir "$here/trap"; printf 'precious\n' >"$victim"; }
precious() { [ "$(cat "$victim")" = precious ]; }
linked() { # linked NAME STATUS ARGS... - a run folder with NAME as a link to the victim
    fresh
    ln -s "$victim" "$here/trap/$1"
    run "$2" "${@:3}"
    precious
}
new_run=("${manual[@]}" --model "$model" --out "$here/trap")
ok a_linked_lock linked run.lock 1 "${new_run[@]}"
ok a_linked_lock_is_told err_has "run.lock"
ok a_linked_log linked log.txt 0 "${new_run[@]}"
ok a_linked_journal linked run.sqlite 1 "${new_run[@]}" --resume
ok a_linked_wal linked run.sqlite-wal 1 "${new_run[@]}"
ok a_linked_posterior linked posterior.json 1 "${new_run[@]}"
ok a_linked_posterior_forced linked posterior.json 0 "${new_run[@]}" --force
hard() { fresh; ln "$victim" "$here/trap/$1"; run "$2" "${@:3}"; precious; }
ok a_second_name_as_lock hard run.lock 1 "${new_run[@]}"
fifo() { fresh; mkfifo "$here/trap/$1"; run "$2" "${@:3}"; }
ok a_pipe_as_lock fifo run.lock 1 "${new_run[@]}"
results() { # eval writes its results over whatever stands there
    rm -rf "$here/judged"; cp -r "$here/run" "$here/judged"; printf 'precious\n' >"$victim"
    for f in results.json report.html decisions.json; do ln -s "$victim" "$here/judged/$f"; done
    run 0 eval "$here/judged" --data "$here/data" --split train && precious && [ ! -L "$here/judged/results.json" ]
}
ok linked_results results
model_link() { # model tuning writes a model into the folder
    fresh; mkdir -p "$here/elsewhere"; printf 'precious\n' >"$here/elsewhere/config.json"
    ln -s "$here/elsewhere" "$here/trap/model"
    run 1 tune --method model-tuning "${common[@]}" --model "$model" --out "$here/trap" --epochs 1
    [ "$(cat "$here/elsewhere/config.json")" = precious ]
}
ok a_linked_folder model_link

# ---- cross-fitted answers that do not belong to the run
crossed() { # crossed TEXT LINE - eval refuses a folder with such an answer
    rm -rf "$here/crossed"; cp -r "$here/run" "$here/crossed"; printf '%s\n' "$2" >"$here/crossed/crossfit.jsonl"
    says 1 "$1" eval "$here/crossed" --data "$here/data" --split train
}
ok answers_about_other_classes crossed "3 classes" '{"probs":[0.2,0.3,0.5],"label":0}'
ok answers_without_labels crossed "0 of 1 rows with a label" '{"probs":[0.5,0.5]}'
ok answers_of_a_class_that_is_not_there crossed "crossfit.jsonl" '{"probs":[0.5,0.5],"label":7}'
ok answers_that_are_none crossed "crossfit.jsonl" '{"probs":[9,-8],"label":0}'

# ---- texts in a folder do not reach the terminal as they are
if python3 -c 'import sqlite3' 2>/dev/null; then
    searched=(tune --method bbt "${common[@]}" --model "$model" --budget-generations 2 --pop 3 --dim 6 --slots 3 --p0 random)
    ok a_run_with_a_log run 0 "${searched[@]}" --out "$here/searched"
    ok a_judged_run run 0 eval "$here/searched" --data "$here/data"
    paint() { python3 tests/paint.py "$KEYHOLE" "$here/searched" "$model" "$here/data" "$here/painted" >"$here/out" 2>"$here/err"; }
    ok texts_command_no_terminal paint
else
    echo "# skipped: texts of folders on terminals: no Python"
fi

# ---- a text is a text
# Nobody listens there: a command that asked the hub would fail.
export HF_ENDPOINT=http://127.0.0.1:9 HF_TOKEN=the-secret-token HF_HUB_CACHE=$here/cache
ok a_text_is_no_name_of_a_model both 0 '"label"' predict "$here/run" "hf:stranger/model"
ok nor_is_one_of_fill_mask says 1 "no mask" fill-mask --model "$model" "hf:stranger/model"
unset HF_ENDPOINT HF_TOKEN HF_HUB_CACHE

# ---- models and tokenizers
huge_weights() { # weights of 8e37: what comes out is no number, and is not printed as one
    local f=$here/huge/model.safetensors n size
    cp -r "$model" "$here/huge"
    n=$(od -An -tu8 -N8 "$f") size=$(wc -c <"$f")
    { head -c $((8 + n)) "$model/model.safetensors"; head -c $((size - 8 - n)) /dev/zero | tr '\0' '~'; } >"$f"
    echo "a <mask>" | "$KEYHOLE" fill-mask --model "$here/huge" >"$here/out" 2>"$here/err"
    [ $? -eq 1 ] && err_has "is not a number" && ! out_has nan
}
ok weights_that_overflow huge_weights
multiply() { # a Replace normalizer that makes a megabyte of a byte, a thousand times
    printf '{"version":"1.0","added_tokens":[],"normalizer":{"type":"Replace","pattern":{"String":"a"},"content":"%s"},"pre_tokenizer":null,"post_processor":null,"decoder":null,"model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":{"[UNK]":0,"b":1}}}' \
        "$(head -c 100000 /dev/zero | tr '\0' b)" >"$here/multiply.json"
    head -c 1000 /dev/zero | tr '\0' a | "$KEYHOLE" tokenize --model "$here/multiply.json" >"$here/out" 2>"$here/err"
    [ $? -eq 1 ] && err_has "Replace makes more than"
}
ok a_text_is_not_multiplied multiply

echo "1..$n"
exit $failed
