#!/bin/bash
# serve.sh KEYHOLE [MODEL]: what the wire costs, as ratios within one run.
#   1. Tuning through loopback HTTP beside tuning natively, by turns, the same questions: populations of 64 prompts x 32 rows.
#      Prints queries a second of both (from the program's own meter of time spent asking) and their ratio; the target is 0.8.
#   2. wrk on /v1/classify, 64 connections for SECONDS (60): requests a second, p50, p99, errors, and the server's memory at the
#      start and at the end; the targets are no error, p99 below 10 x p50, memory flat over 300 seconds.
# MODEL: a folder; without one a random model of the size of the built-in one (4 layers, hidden 256) is made.
keyhole=$1 model=$2 seconds=${SECONDS_WRK:-60} rounds=${ROUNDS:-3}
work=$(mktemp -d)
server=
trap '[ -n "$server" ] && kill "$server"; rm -rf "$work"' EXIT
start() {
    rm -f "$work/port"
    "$keyhole" serve "$@" --port 0 >"$work/port" 2>/dev/null &
    server=$!
    for _ in $(seq 600); do [ -s "$work/port" ] && break; sleep 0.1; done
    url=$(sed 's/.* at //' "$work/port")
}
stop() { kill "$server"; wait "$server"; server=; }

mkdir "$work/data"
cat >"$work/toy.json" <<'END'
{ "name": "toy", "template": "{text} It was {mask} .",
  "labels": [ { "name": "bad", "words": ["lower"] }, { "name": "good", "words": ["better"] } ] }
END
{
    printf 'label\ttext\n'
    for i in $(seq 80); do printf '%d\tthe boats number %d were green and the longer they were the better\n' $((i % 2)) "$i"; done
} >"$work/data/train.tsv"
task=$work/toy.json
if [ -z "$model" ]; then
    model=$work/model
    "$keyhole" model random --arch roberta-base --layers 4 --hidden 256 --heads 4 --inner 1024 --seed 3 \
        --tokenizer tests/vectors/tokenizers/tiny-bpe.json --out "$model" >/dev/null || exit 1
fi
tune() { # tune MODEL -> queries a second while asking
    rm -rf "$work/run"
    "$keyhole" tune --effort paper --method bbt --model "$1" --task "$task" --data "$work/data" --shots 16 --dim 100 --slots 20 --p0 random \
        --pop 64 \
        --budget-generations ${GENERATIONS:-5} --dev-every 1000 --out "$work/run" --json 2>/dev/null |
        sed 's/.*"queries":\([0-9]*\).*"seconds":\([0-9.]*\).*/\1 \2/' | awk '{ printf "%.1f\n", $1 / $2 }'
}
start --model "$model" --access logprobs
echo "round native http ratio"
for round in $(seq "$rounds"); do
    native=$(tune "$model") http=$(tune "$url")
    echo "$round $native $http $(awk -v a="$native" -v b="$http" 'BEGIN { printf "%.3f", b / a }')"
done
stop

command -v wrk >/dev/null || { echo "wrk is not there (Debian package wrk)"; exit 0; }
start --run "$work/run" --model "$model"
cat >"$work/post.lua" <<'END'
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local n = 0
request = function() n = n + 1; return wrk.format(nil, nil, nil, '{"text":"the boats number ' .. n .. ' were green"}') end
END
memory() { awk '/VmRSS/ { print $2 }' "/proc/$server/status"; }
wrk -t 2 -c 64 -d 5 -s "$work/post.lua" "$url/v1/classify" >/dev/null
before=$(memory)
wrk -t 2 -c 64 -d "$seconds" --latency -s "$work/post.lua" "$url/v1/classify"
echo "memory_kb before $before after $(memory)"
stop
