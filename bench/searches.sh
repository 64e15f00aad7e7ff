#!/bin/bash
# searches.sh KEYHOLE OUT - what a search brings over the template: every method on seven tasks with ready-made 16-shot splits,
# judged on test rows. Each finished run is kept in OUT and skipped next time, so it may be stopped and started again; a run that
# was stopped goes on where it was. OUT/searches.csv holds a row a run, with the commit and the machine; the means are printed.
#
# MODEL, DATA     folders (default models/builtin and ../shared/data); a model that was trained on rows of these tasks shows nothing
# TASKS, SEEDS    what to run (default "sst2 yelp agnews dbpedia mrpc rte snli", "13 21 42")
# METHODS         of "manual bbt ensemble elbo smc abc-smc auto ...", in this order; NAME:OPTION:OPTION... adds options, as in
#                 bbt:--label-prior:batch or manual:--access:labels (default "manual bbt ensemble elbo smc abc-smc")
# EFFORT          quick, normal, ... (default quick)
# ROWS            test rows to judge on, spread evenly over the file (default 300)
# PRECISION       int8 (default), f32, ...
# THREADS         of each run (default 0: one for each core)
set -u
keyhole=$1 out=$2
model=${MODEL:-models/builtin} data=${DATA:-../shared/data} effort=${EFFORT:-quick} rows=${ROWS:-300}
tasks=(${TASKS:-sst2 yelp agnews dbpedia mrpc rte snli}) seeds=(${SEEDS:-13 21 42})
methods=(${METHODS:-manual bbt ensemble elbo smc abc-smc})
commit=$(git -C "$(dirname "$0")" rev-parse --short HEAD 2>/dev/null || echo unknown)
machine=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
labels=" smc abc-smc abc-rejection snpe "
csv=$out/searches.csv
mkdir -p "$out" || exit 1

value() { sed -n "s/.*\"$1\": *\"\\{0,1\\}\\([-+.a-z0-9]*\\).*/\\1/p" "$2" | head -n 1; } # value KEY FILE: of JSON

# one SPEC: tunes, predicts, judges, with the task and seed of the loops below
one() {
    local spec=$1 name=${1%%:*} access=logprobs
    local run=$out/$task-$spec-$effort-$seed
    local more=()
    [ "$spec" = "$name" ] || IFS=: read -ra more <<<"${spec#*:}"
    [ -s "$run/metrics.json" ] && return
    case $labels in *" $name "*) access=labels ;; esac
    echo "$run" >&2
    "$keyhole" tune --method "$name" --effort "$effort" --access $access --model "$model" --task "$task" \
        --data "$data/$task" --shots 16 --seed "$seed" --precision "${PRECISION:-int8}" --features-model none \
        --threads "${THREADS:-0}" --out "$run" --resume --json "${more[@]}" >"$run.tune" 2>"$run.err" ||
        { echo "$run: tuning failed: $(tail -n 1 "$run.err")" >&2; return 1; }
    "$keyhole" predict "$run" "$out/$task.tsv" --output probs --threads "${THREADS:-0}" >"$run/probs.jsonl" 2>/dev/null &&
        "$keyhole" metrics "$run/probs.jsonl" --json >"$run/metrics.part" && mv "$run.tune" "$run/tune.json" &&
        mv "$run/metrics.part" "$run/metrics.json" || return 1
    [ -s "$csv" ] || echo "task,method,effort,seed,queries,returned,dev,accuracy,ece,nll,rows,precision,commit,machine" >"$csv"
    echo "$task,$spec,$effort,$seed,$(value queries "$run/tune.json"),$(value method "$run/tune.json"),$(
        value dev "$run/tune.json"),$(value accuracy "$run/metrics.json"),$(value ece "$run/metrics.json"),$(
        value nll "$run/metrics.json"),$rows,${PRECISION:-int8},$commit,$machine" >>"$csv"
}

for task in "${tasks[@]}"; do # the rows to judge on
    total=$(($(wc -l <"$data/$task/test.tsv") - 1))
    awk -v n="$rows" -v total="$total" 'NR == 1 || int((NR - 1) * n / total) > int((NR - 2) * n / total)' "$data/$task/test.tsv" \
        >"$out/$task.tsv"
done
for seed in "${seeds[@]}"; do
    for method in "${methods[@]}"; do
        for task in "${tasks[@]}"; do one "$method"; done
    done
done

# Means over the seeds of each task, and over the tasks of these: every task counts the same.
awk -F, 'function line(task, method, n, x) {
        printf "%-10s %-28s %4d %8.0f %8.3f %8.3f %8.3f\n", task, method, n, x[1], x[2], x[3], x[4] }
    NR > 1 { k = $1 "," $2 "/" $3; if (!(k in n)) order[++m] = k; n[k]++; v[k, 1] += $5; for (c = 2; c <= 4; c++) v[k, c] += $(c + 6) }
    END { printf "%-10s %-28s %4s %8s %8s %8s %8s\n", "task", "method", "runs", "queries", "accuracy", "ece", "nll"
          for (i = 1; i <= m; i++) { k = order[i]; split(k, x, ","); if (!(x[2] in tasks)) methods[++l] = x[2]
              tasks[x[2]]++; runs[x[2]] += n[k]
              for (c = 1; c <= 4; c++) { mean[c] = v[k, c] / n[k]; sum[x[2], c] += mean[c] }
              line(x[1], x[2], n[k], mean) }
          for (i = 1; i <= l; i++) { for (c = 1; c <= 4; c++) mean[c] = sum[methods[i], c] / tasks[methods[i]]
              line(tasks[methods[i]] " tasks", methods[i], runs[methods[i]], mean) } }' "$csv"
