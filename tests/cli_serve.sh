#!/bin/bash
# serve, and tune, predict and export through it: the same files as without a wire, an orderly end, and complaints.
. tests/tap.sh
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null; rm -rf "$here"' EXIT
: >"$here/out" && : >"$here/err"

# start ARGS... - a server in the background, at $port if that is set; $url is where it is.
start() {
    rm -f "$here/port"
    "$KEYHOLE" serve "$@" --port "${port:-0}" >"$here/port" 2>"$here/server.err" &
    server=$!
    soon $server [ -s "$here/port" ] || return 1
    url=$(sed 's/.* at //' "$here/port")
}
# stop - ends it; true if it ended in order.
stop() { kill -TERM "$server" && wait "$server"; local status=$?; server=; return $status; }
same() { cmp "$here/$1/posterior.json" "$here/$2/posterior.json" &&
    cmp "$here/$1/posterior.safetensors" "$here/$2/posterior.safetensors"; }

if "$KEYHOLE" serve --model /nowhere 2>&1 | grep -q "built without libmicrohttpd" || ! command -v curl >/dev/null; then
    echo "# skipped: serve: built without libmicrohttpd, or no curl"
    echo "ok 1 - serve # SKIP built without libmicrohttpd, or no curl"
    exit 0
fi
. tests/toy.sh
ok a_tiny_model random_model
common=(--task "$here/toy.json" --data "$here/data" --effort paper --shots 4 --dim 12 --slots 5 --p0 random --features-model none)
bbt=(--method bbt --budget-generations 4 --pop 5)

# ---- the same files through the wire
through() { # through METHOD-OPTIONS... - tunes natively and through the server
    rm -rf "$here/a" "$here/b"
    run 0 tune "$@" "${common[@]}" --model "$model" --out "$here/a" &&
        run 0 tune "$@" "${common[@]}" --model "$url" --out "$here/b" &&
        same a b && ! grep -q "${url#http://}" "$here/b/posterior.json"
}
ok starts_with_log_probabilities start --model "$model" --access logprobs
ok bbt_gives_the_same_files through "${bbt[@]}"
ok prompts_in_front_give_the_same_files through "${bbt[@]}" --inject embed-prefix
ok predicts_through_the_wire run 0 predict "$here/b" "$here/data/train.tsv" --model "$url"
cp "$here/out" "$here/wire"
same_predictions() { run 0 predict "$here/a" "$here/data/train.tsv" && cmp "$here/out" "$here/wire"; }
ok predicts_the_same same_predictions
answers() { curl -s "$url/v1/models" | grep -q '"object":"list"' && curl -s "$url/metrics" |
    grep -q '^keyhole_queries_total [1-9]'; }
ok speaks_to_others answers
ok ends_in_order stop
ok starts_with_labels start --model "$model" --access labels
ok manual_by_labels_gives_the_same_files through --method manual --access labels
ok bbt_is_refused_before_the_first_query says 1 "method bbt needs a box that lets out logprobs" tune "${bbt[@]}" "${common[@]}" \
    --model "$url" --out "$here/none"
no_query() { curl -s "$url/metrics" | grep -q '^keyhole_queries_total 8$'; } # those of the method before
ok nothing_was_asked no_query
ok smc_by_labels_gives_the_same_files through --method smc --samples 20 --budget-queries 4000

# ---- SIGTERM in the middle of a request: it is answered, and then the server ends
body() { # a question of two thousand rows
    printf '{"task":%s,"texts":["the boats"' "$(cat "$here/toy.json")"
    for i in $(seq 2000); do printf ',"the boats number %d were green and small and of no other kind"' "$i"; done
    printf ']}'
}
body >"$here/body"
received() { curl -s "$url/metrics" | sed -n 's/^keyhole_received_bytes_total //p'; }
drains() { # when most of the body has arrived, on top of what the questions before had
    local asking enough=$(($(received) + 100000))
    curl -s -o "$here/answer" --json @"$here/body" "$url/v1/score" &
    asking=$!
    for _ in $(seq 2000); do [ "$(received)" -gt "$enough" ] && break; sleep 0.01; done
    stop && wait "$asking" && grep -q '"shape":\[1,2001\]' "$here/answer"
}
ok drains_on_sigterm drains

# ---- a service that dies under a run: the journal keeps what was answered, and the files are those of a native run
long=(--method bbt --budget-generations 150 --pop 10 --sigma 3 --dev-every 7)
lines() { if [ -e "$here/dying/log.txt" ]; then wc -l <"$here/dying/log.txt"; else echo 0; fi; }
under_way() { [ "$(lines)" -gt "$far" ]; }
# begin ARGS... - tuning through the service in the background, as $tuning, until it is under way
begin() {
    "$KEYHOLE" tune "${long[@]}" "${common[@]}" --model "$url" --out "$here/dying" "$@" >"$here/out" 2>"$here/err" &
    tuning=$!
    soon $tuning under_way
}
crash() { kill -KILL "$server"; wait "$server" 2>/dev/null; server=; }
ok starts_to_die start --model "$model" --access logprobs
stays_away() {
    far=5
    begin --retries 1 && crash && ! wait "$tuning" && err_has "${url#http://}" && [ ! -e "$here/dying/posterior.json" ]
}
ok a_service_that_stays_away_ends_the_run stays_away
comes_back() { # at the same place, while the client waits for it
    far=$(($(lines) + 5))
    begin --resume --retries 20 && crash && sleep 0.2 && port=${url##*:} start --model "$model" --access logprobs && wait "$tuning"
}
ok starts_elsewhere start --model "$model" --access logprobs
ok one_that_comes_back_is_waited_for comes_back
natively() { run 0 tune "${long[@]}" "${common[@]}" --model "$model" --out "$here/native" && same native dying &&
    cmp "$here/native/log.txt" "$here/dying/log.txt"; }
ok the_files_are_those_of_a_native_run natively
answers_of() { "$KEYHOLE" runs "$here/$1" --json | sed -n 's/.*"answers":\([0-9]*\).*/\1/p'; }
ok no_answer_was_recorded_twice eval '[ -n "$(answers_of dying)" ] && [ "$(answers_of dying)" = "$(answers_of native)" ]'
ok it_ends stop

# ---- a token, HTTPS, a classifier
echo "open-sesame" >"$here/token"
ok starts_with_a_token start --model "$model" --access labels --token-file "$here/token"
ok without_the_token_nothing says 1 "HTTP 401: this server wants a bearer token" tune --method manual "${common[@]}" \
    --model "$url" --out "$here/none"
with_token() { run 0 tune --method manual "${common[@]}" --model "$url" --key-file "$here/token" --out "$here/token-run"; }
ok with_the_token_all with_token
ok the_token_is_in_no_file_nor_message eval '! grep -rqF open-sesame "$here/token-run" "$here/out" "$here/err" "$here/server.err"'
ok ends_with_a_token stop
if command -v openssl >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$here/key.pem" -out "$here/cert.pem" -days 2 -subj /CN=localhost \
        -addext subjectAltName=IP:127.0.0.1 >/dev/null 2>&1
    ok starts_with_https start --model "$model" --access labels --tls-cert "$here/cert.pem" --tls-key "$here/key.pem"
    ok an_unknown_certificate_is_refused says 1 "certificate" tune --method manual "${common[@]}" --model "$url" --out "$here/none"
    https() { run 0 tune --method manual "${common[@]}" --model "$url" --ca-file "$here/cert.pem" --out "$here/https"; }
    ok https_works https
    ok ends_with_https stop
fi
ok starts_with_probabilities start --model "$model" --access logprobs
by_questions() { # through /v1/decisions and /v1/systemone: the same calibration, digit for digit, as beside the model
    run 0 tune --method manual "${common[@]}" --model "$model" --out "$here/beside" || return 1
    for b in decisions systemone; do
        run 0 tune --method manual "${common[@]}" --model "$url" --backend $b --out "$here/$b" &&
            python3 -c 'import json,sys
a, b = (json.load(open(f)) for f in sys.argv[1:])
assert a["calibration"] == b["calibration"] and a["score"] == b["score"] and a["dev"] == b["dev"]' \
                "$here/beside/posterior.json" "$here/$b/posterior.json" &&
            echo "the boats" >"$here/text" &&
            "$KEYHOLE" predict "$here/$b" --model "$url" --backend $b --output probs <"$here/text" >"$here/out" 2>"$here/err" &&
            "$KEYHOLE" predict "$here/beside" --output probs <"$here/text" 2>"$here/err" | sed 's/,"energy":[^,}]*//' | cmp - "$here/out" ||
            return 1
    done
}
ok asks_closed_questions by_questions
judged_by_questions() { # a run knows what its service speaks; the address is named again
    run 0 predict "$here/decisions" --model "$url" "the boats" && run 0 eval "$here/decisions" --model "$url" --split train --no-report &&
        out_has "jackknife+" && grep -q '"shift"' "$here/decisions/decisions.json" &&
        run 0 predict "$here/decisions" --model "$url" --json "the boats" && out_has '"set"'
}
ok is_judged_by_questions judged_by_questions
priced() { run 0 tune --method manual "${common[@]}" --model "$url" --backend decisions --dry-run --price-per-1k-tokens 1 \
    --out "$here/none" && grep -E "tokens.*cost|cost" "$here/out" | grep -vq "cost 0$"; }
ok a_price_is_told priced
ok ends_with_probabilities stop
ok starts_with_a_run start --run "$here/a"
classify() { curl -s --json '{"text":"the boats"}' "$url/v1/classify" | grep -q '"distribution":{"bad":' && curl -s "$url/" |
    grep -q '<h1>keyhole</h1>'; }
ok classifies classify
ok "what was cut is said" eval 'curl -s --json "{\"text\":\"$(printf "boats %.0s" $(seq 2000))\"}" "$url/v1/classify" | grep -q "\"cut\":true" &&
    curl -s --json "{\"text\":\"boats\"}" "$url/v1/classify" | grep -q "\"cut\":false"'
ok ends_with_a_run stop

# ---- export
run 0 tune "${bbt[@]}" "${common[@]}" --inject embed-prefix --model "$model" --out "$here/prefix"
export_all() {
    for format in npz jsonl safetensors peft; do run 0 export "$here/prefix" --format $format --out "$here/export.$format" ||
        return 1; done
    [ "$(wc -l <"$here/export.jsonl")" -eq 1 ] &&
        grep -q '"peft_type": "PROMPT_TUNING"' "$here/export.peft/sample-000/adapter_config.json" &&
        [ -s "$here/export.peft/sample-000/adapter_model.safetensors" ] && [ "$(head -c 2 "$here/export.npz")" = PK ]
}
ok exports export_all
same_bytes() { run 0 export "$here/prefix" --format npz --out "$here/again.npz" && cmp "$here/export.npz" "$here/again.npz"; }
ok the_same_export_twice same_bytes
run 0 tune "${bbt[@]}" "${common[@]}" --model "$model" --out "$here/added"
ok peft_cannot_add_behind_layernorm says 1 "tune with --inject embed-prefix" export "$here/added" --format peft --out "$here/none"
run 0 tune --method manual "${common[@]}" --model "$model" --out "$here/plain"
ok nothing_to_export says 1 "was made without a soft prompt" export "$here/plain" --format npz --out "$here/none"
ok export_needs_a_place says 2 "--out PATH is needed" export "$here/prefix"

# ---- complaints
ok serve_what says 2 "--model DIR or --run RUN is needed" serve
ok no_such_model says 1 "/nowhere" serve --model /nowhere --port 0
ok no_such_address says 1 "is no address to listen on" serve --model "$model" --host moon
ok half_of_https says 1 "HTTPS needs both" serve --model "$model" --port 0 --tls-cert x
ok nobody_there says 1 "127.0.0.1" tune --method manual "${common[@]}" --model http://127.0.0.1:1 --retries 0 --out "$here/none"
a_wrong_port() {
    local before=$SECONDS
    says 1 "is the service running, and is this where it listens?" tune --method manual "${common[@]}" --model http://127.0.0.1:1 \
        --out "$here/none" &&
        [ $((SECONDS - before)) -lt 20 ]
}
ok a_wrong_port_is_told_at_once a_wrong_port
ok unknown_backend says 1 'unknown backend "gopher"' tune --method manual "${common[@]}" --model http://127.0.0.1:1 \
    --backend gopher --out "$here/none"

echo "1..$n"
exit $failed
