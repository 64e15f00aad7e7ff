#!/bin/bash
# examples.sh KEYHOLE OUT - every method as it is by default on the three examples, and auto beside them: seconds, questions, accuracy, NLL, ECE
# on the test rows. Finished runs in OUT are skipped, stopped ones go on; OUT/examples.csv holds a row a run, and auto is compared with the best.
#
# MODEL       (default: the built-in model)
# SETS        (default "reviews topics tickets")
# METHODS     (default: all that there are); auto is tried last, with all access that the model gives
# THREADS     (default 0: one for each core)
set -u
keyhole=$1 out=$2 top=$(cd "$(dirname "$0")/.." && pwd)
all="manual icl feature-logistic feature-mlp feature-bilstm prompt-tuning p-tuning-v2 model-tuning bbt ensemble elbo text-ensemble text-search"
all="$all smc abc-smc abc-rejection snpe text-smc auto"
weights=" feature-logistic feature-mlp feature-bilstm prompt-tuning p-tuning-v2 model-tuning auto " labels=" smc abc-smc abc-rejection snpe text-smc "
commit=$(git -C "$top" rev-parse --short HEAD 2>/dev/null || echo unknown)
csv=$out/examples.csv
mkdir -p "$out" || exit 1
[ -s "$csv" ] || echo "set,method,access,seconds,queries,returned,accuracy,nll,ece,rows,commit" >"$csv"

# one SET METHOD
one() {
    local run=$out/$1-$2 access=logprobs
    grep -q "^$1,$2," "$csv" && return
    case $weights in *" $2 "*) access=weights ;; esac
    case $labels in *" $2 "*) access=labels ;; esac
    "$keyhole" tune --method "$2" --access $access --data "$top/examples/$1" --task "$top/examples/$1/task.json" ${MODEL:+--model "$MODEL"} \
        --shots 0 --features-model none --threads "${THREADS:-0}" --out "$run" --resume --json >"$run.tune" 2>"$run.err" &&
        "$keyhole" eval "$run" --data "$top/examples/$1" --no-report --bootstrap 0 --threads "${THREADS:-0}" --json >"$run.eval" 2>>"$run.err" ||
        { echo "$run: $(tail -n 1 "$run.err")" >&2; return 1; }
    python3 -c '
import json, sys
t, e, p = json.load(open(sys.argv[1])), json.load(open(sys.argv[2])), json.load(open(sys.argv[3]))
m = e["metrics"]
print(",".join(map(str, sys.argv[4:7] + [round(t["seconds"], 1), t["queries"], p["method"], round(m["accuracy"]["value"], 4), round(m["nll"]["value"], 4),
    round(m["ece"]["value"], 4), e["eval"]["rows"], sys.argv[7]])))' "$run.tune" "$run.eval" "$run/posterior.json" "$1" "$2" $access "$commit" | tee -a "$csv"
}

for set in ${SETS:-reviews topics tickets}; do
    for method in ${METHODS:-$all}; do one "$set" "$method"; done
done
