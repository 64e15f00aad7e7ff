#!/bin/bash
# serve_limit.sh KEYHOLE [MODEL]: where the server's limit lies, and how it behaves there; for a quiet machine, and wrk (Debian package wrk).
#   1. Steps of 1, 2, 4, ... 256 connections on /v1/classify, STEP (15) seconds each: requests a second, p50, p99, errors. The limit is the first
#      step whose rate is less than 5 % above the step before; its number of connections is then kept.
#   2. LIMIT (300) seconds at the limit: p50, p90, p99 and p99 / p50 (goal below 10), errors (goal none), the server's memory before and after
#      (goal flat), and the slowest of one /health a second beside it.
#   3. STEP seconds at four times as many connections: a server that is overrun should stay at its rate and answer late, or 503, but not break.
# One line of CSV goes to bench/serve_limit.csv if the file is there. Exits with 1 if a goal of 2 is missed.
keyhole=$1 model=$2 step=${STEP:-15} limit=${LIMIT:-300}
here=$(dirname "$0")
command -v wrk >/dev/null || { echo "serve_limit.sh: wrk is not there (Debian package wrk)" >&2; exit 1; }
work=$(mktemp -d)
server=
trap '[ -n "$server" ] && kill "$server"; rm -rf "$work"' EXIT
mkdir "$work/data"
cat >"$work/toy.json" <<'END'
{ "name": "toy", "template": "{text} It was {mask} .",
  "labels": [ { "name": "bad", "words": ["lower"] }, { "name": "good", "words": ["better"] } ] }
END
{
    printf 'label\ttext\n'
    for i in $(seq 80); do printf '%d\tthe boats number %d were green and the longer they were the better\n' $((i % 2)) "$i"; done
} >"$work/data/train.tsv"
if [ -z "$model" ]; then
    model=$work/model
    "$keyhole" model random --arch roberta-base --layers 4 --hidden 256 --heads 4 --inner 1024 --seed 3 \
        --tokenizer tests/vectors/tokenizers/tiny-bpe.json --out "$model" >/dev/null || exit 1
fi
"$keyhole" tune --method manual --model "$model" --task "$work/toy.json" --data "$work/data" --shots 16 --features-model none \
    --out "$work/run" >/dev/null 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
"$keyhole" serve --run "$work/run" --port 0 >"$work/port" 2>"$work/server.err" &
server=$!
for _ in $(seq 600); do [ -s "$work/port" ] && break; sleep 0.1; done
url=$(sed 's/.* at //' "$work/port")
# Every text is another one, so that nothing is answered from memory; the last function prints one line of figures in ms.
cat >"$work/post.lua" <<'END'
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local n = 0
request = function() n = n + 1; return wrk.format(nil, nil, nil, '{"text":"the boats number ' .. n .. ' were green"}') end
done = function(summary, latency, requests)
    local e = summary.errors
    io.write(string.format("FIGURES %.1f %.2f %.2f %.2f %d\n", summary.requests / summary.duration * 1e6, latency:percentile(50) / 1e3,
        latency:percentile(90) / 1e3, latency:percentile(99) / 1e3, e.connect + e.read + e.write + e.status + e.timeout))
end
END
load() { # CONNECTIONS SECONDS -> rate p50 p90 p99 errors
    wrk -t "$(($1 < 2 ? 1 : 2))" -c "$1" -d "$2" --timeout 30 -s "$work/post.lua" "$url/v1/classify" | sed -n 's/^FIGURES //p'
}
memory() { awk '/VmRSS/ { print $2 }' "/proc/$server/status"; }
over() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > b) }'; }

load 4 3 >/dev/null # warm
printf '%11s %9s %9s %9s %9s %7s\n' connections rate/s p50_ms p90_ms p99_ms errors
at=1 best=0
for c in 1 2 4 8 16 32 64 128 256; do
    read -r rate p50 p90 p99 errors <<<"$(load "$c" "$step")"
    printf '%11d %9s %9s %9s %9s %7s\n' "$c" "$rate" "$p50" "$p90" "$p99" "$errors"
    at=$c
    over "$rate" "$(awk -v b="$best" 'BEGIN { print 1.05 * b }')" || break
    best=$rate
done

before=$(memory)
: >"$work/health"
{ while sleep 1; do curl -s -m 10 -o /dev/null -w '%{time_total}\n' "$url/health" >>"$work/health"; done; } &
watch=$!
read -r rate p50 p90 p99 errors <<<"$(load "$at" "$limit")"
kill "$watch" && wait "$watch" 2>/dev/null
after=$(memory) ratio=$(awk -v a="$p99" -v b="$p50" 'BEGIN { printf "%.2f", a / b }')
slowest=$(sort -g "$work/health" | tail -n 1)
echo "limit: $at connections for $limit s: $rate/s, p50 $p50 ms, p90 $p90 ms, p99 $p99 ms ($ratio x p50), $errors errors"
echo "memory_kb before $before after $after; slowest /health ${slowest:-?} s of $(wc -l <"$work/health")"
read -r rate4 a b c4 errors4 <<<"$(load $((at * 4)) "$step")"
echo "overrun: $((at * 4)) connections: $rate4/s, p50 $a ms, p90 $b ms, p99 $c4 ms, $errors4 errors"
[ -w "$here/serve_limit.csv" ] && echo "$(date +%F),$(git rev-parse --short HEAD),$at,$limit,$rate,$p50,$p90,$p99,$ratio,$errors,$before,$after,$slowest" \
    >>"$here/serve_limit.csv"
over 10 "$ratio" && [ "$errors" -eq 0 ] && over "$(awk -v b="$before" 'BEGIN { print 1.1 * b + 4096 }')" "$after"
