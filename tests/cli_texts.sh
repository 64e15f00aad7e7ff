#!/bin/bash
# Text prompts from end to end: tune, predict, eval, report, export, a kill, and the same posterior through services that take text.
. tests/tap.sh
server=
trap '[ -n "$server" ] && kill "$server" 2>/dev/null; rm -rf "$here"' EXIT
: >"$here/out" && : >"$here/err"

. tests/toy.sh
{
    printf 'label\ttext\n'
    for i in $(seq 40); do printf '%d\tthe boats number %d were %s\n' $((i % 2)) "$i" "$([ $((i % 3)) -eq 0 ] && echo green || echo small)"; done
} >"$here/data/train.tsv"
cp "$here/data/train.tsv" "$here/data/test.tsv"
printf '# ways to ask\nSay how the boats were.\nAre {they} green?\n{text} were {mask} !\n' >"$here/lines.txt"
ok a_tiny_model random_model
common=(--task "$here/toy.json" --data "$here/data" --shots 6 --features-model none --demos 2 --fallback none)
options_of() {
    case $1 in
    text-search) echo --candidates 12 ;;
    text-ensemble) echo --prompts 5 ;;
    text-smc) echo --samples 12 --budget-levels 3 ;;
    esac
}

# ---- from rows to a report
whole() { # METHOD ARGS...
    # shellcheck disable=SC2046
    run 0 tune --method "$1" $(options_of "$1") "${common[@]}" --model "$model" --out "$here/$1" "${@:2}" && out_has "dev       accuracy" &&
        grep -q '"format": 3' "$here/$1/posterior.json" && grep -q '"texts": {"rows": \[' "$here/$1/posterior.json"
}
used() { # METHOD
    run 0 predict "$here/$1" "the boats were small" && out_has '"distribution":{"bad":' &&
        run 0 eval "$here/$1" --data "$here/data" --rows 12 && [ -s "$here/$1/results.json" ] &&
        grep -q 'Prompts that carry the weight</h2>' "$here/$1/report.html" && grep -q 'class="said">weight <b>' "$here/$1/report.html"
}
exported() { # METHOD
    run 0 export "$here/$1" --format text --out "$here/$1.txt" && grep -q '^## weight ' "$here/$1.txt" && grep -qF '[TEXT]' "$here/$1.txt" &&
        grep -q '^\[ANSWER\] is one of ' "$here/$1.txt" &&
        [ "$(sed -n 's/^## weight //p' "$here/$1.txt" | sort -rn)" = "$(sed -n 's/^## weight //p' "$here/$1.txt")" ] &&
        says 1 "its text prompts go by --format text" export "$here/$1" --format npz --out "$here/x.npz"
}
for method in text-search text-ensemble text-smc; do
    ok "tune_$method" whole $method
    ok "use_$method" used $method
    ok "export_$method" exported $method
done
from_file() {
    run 0 tune --method text-ensemble --prompts 6 --instructions "$here/lines.txt" "${common[@]}" --model "$model" --out "$here/lines" &&
        run 0 export "$here/lines" --format text --out "$here/lines.out" && grep -qE 'boats|\{they\}|!' "$here/lines.out" &&
        ! grep -q Classify "$here/lines.out"
}
ok instructions_from_a_file from_file
own_words() {
    run 0 tune --method text-ensemble --prompts 4 --synonyms model "${common[@]}" --model "$model" --out "$here/words"
}
ok synonyms_of_the_model_itself own_words
ok a_file_that_is_not_there says 1 "/nowhere" tune --method text-smc --instructions /nowhere "${common[@]}" --model "$model" --out "$here/no"
ok the_prior_of_labels_can_be_learned run 0 tune --method text-ensemble --prompts 3 --label-prior batch "${common[@]}" --model "$model" --out "$here/prior"
ok votes_have_none says 1 "sees labels only here" tune --method text-smc --label-prior batch "${common[@]}" --model "$model" --out "$here/no2"
no_texts() {
    run 0 tune --method manual --task "$here/toy.json" --data "$here/data" --shots 6 --features-model none --model "$model" --out "$here/manual" &&
        says 1 "has no text prompts" export "$here/manual" --format text --out "$here/x"
}
ok nothing_to_export no_texts

# ---- models that continue texts
decoder() { run 0 model random --family llama --std 0.3 --seed 5 --tokenizer tests/vectors/tokenizers/tiny-bpe.json --out "$here/llama"; }
ok a_decoder decoder
continued() { # METHOD
    # shellcheck disable=SC2046
    run 0 tune --method "$1" $(options_of "$1") "${common[@]}" --model "$here/llama" --out "$here/$1-llama" &&
        run 0 predict "$here/$1-llama" "the boats were small" && out_has '"distribution":{"bad":'
}
for method in text-search text-ensemble text-smc; do ok "decoder_$method" continued $method; done

# ---- a run that is killed ends as if it had not been, and asks nothing twice
same() { cmp "$here/$1/posterior.json" "$here/$2/posterior.json" && cmp "$here/$1/posterior.safetensors" "$here/$2/posterior.safetensors" &&
    cmp "$here/$1/log.txt" "$here/$2/log.txt"; }
killed() { # METHOD: with a smaller budget first, then with SIGKILL, then to its end
    local pid opts
    opts=$(options_of "$1")
    # shellcheck disable=SC2086
    for turn in 1 2 3; do
        "$KEYHOLE" tune --method "$1" $opts "${common[@]}" --model "$model" --out "$here/$1-killed" --resume >"$here/out" 2>"$here/err" &
        pid=$!
        sleep 0.0$((turn * 3))
        kill -KILL $pid 2>/dev/null
        wait $pid 2>/dev/null
    done
    # shellcheck disable=SC2086
    run 0 tune --method "$1" $opts "${common[@]}" --model "$model" --out "$here/$1-killed" --resume && same "$1" "$1-killed"
}
for method in text-search text-ensemble text-smc; do ok "killed_$method" killed $method; done

# ---- through services that take text alone: the same posterior
if "$KEYHOLE" serve --model /nowhere 2>&1 | grep -q "built without libmicrohttpd"; then
    echo "# skipped: serve: built without libmicrohttpd"
    echo "1..$n"
    exit $failed
fi
start() { # ACCESS
    rm -f "$here/port"
    "$KEYHOLE" serve --model "$model" --access "$1" "${@:2}" --port 0 >"$here/port" 2>"$here/server.err" &
    server=$!
    soon $server [ -s "$here/port" ] || return 1
    url=$(sed 's/.* at //' "$here/port")
}
stop() { kill -TERM "$server" && wait "$server"; server=; }
# part FILE: the prompts and the calibration, which a service has no part in
part() { sed -n '/"texts": {/,/"calibration"/p; /"bias"/p; /"queries"/p' "$1/posterior.json"; }
through() { # METHOD BACKEND ACCESS
    local run=$here/$1-$2
    # shellcheck disable=SC2046
    run 0 tune --method "$1" $(options_of "$1") "${common[@]}" --model "$model" --access "$3" --out "$run-in" &&
        run 0 tune --method "$1" $(options_of "$1") "${common[@]}" --model "$url" --backend "$2" --access "$3" --out "$run" &&
        cmp "$run/posterior.safetensors" "$run-in/posterior.safetensors" && [ -n "$(part "$run")" ] && cmp <(part "$run") <(part "$run-in")
}
ok starts start logprobs
# A request carries all prompts that are asked about a row: the task's own first, then the others until there are enough, then all about dev.
answered() { curl -s "$url/metrics" | sed -n 's/^keyhole_requests_total{status="2xx"} //p'; }
few_requests() {
    local before after queries
    before=$(answered)
    run 0 tune --method text-ensemble --prompts 12 "${common[@]}" --model "$url" --backend decisions --access logprobs --out "$here/few" || return
    after=$(answered)
    queries=$(sed -n 's/^queries *\([0-9]*\).*/\1/p' "$here/out")
    echo "# $((after - before - 1)) requests, $queries questions"
    [ "$((3 * (after - before - 1)))" -le "$queries" ]
}
if command -v curl >/dev/null; then ok ensemble_shares_requests few_requests; fi
ok ensemble_through_decisions through text-ensemble decisions logprobs
ok ensemble_through_systemone through text-ensemble systemone logprobs
ok search_through_decisions through text-search decisions logprobs
ok smc_through_decisions through text-smc decisions labels
# what a service that shows no energies can know
without_energy() { sed 's/"energy":[^,]*,//; s/"ood_score":[^,]*,//' "$here/out"; }
predicts() {
    run 0 predict "$here/text-ensemble-decisions" "the boats were small" --model "$url" --backend decisions && without_energy >"$here/wire" &&
        run 0 predict "$here/text-ensemble-decisions-in" "the boats were small" && cmp <(without_energy) "$here/wire"
}
ok predicts_through_decisions predicts
ok stops stop
serves() { # the classifier itself behind HTTP
    rm -f "$here/port"
    "$KEYHOLE" serve --run "$here/text-ensemble" --model "$model" --port 0 >"$here/port" 2>"$here/server.err" &
    server=$!
    soon $server [ -s "$here/port" ]
    url=$(sed 's/.* at //' "$here/port")
    curl -s --json '{"model":"x","input":"the boats were small","questions":[{"name":"q","type":"choice","choices":[{"value":"bad"},{"value":"good"}]}]}' \
        "$url/v1/decisions" >"$here/out" && out_has '"answers"' && stop
}
if command -v curl >/dev/null; then ok serves_the_classifier serves; fi
echo "1..$n"
exit $failed
