#!/bin/bash
# labels.sh KEYHOLE OUT - labels only: "smc" with its defaults beside the paper's ABC-SMC at equal budgets of queries, on a
# trained model and three tasks, three seeds. Each finished run is kept in OUT and skipped next time, so it may be stopped and
# started again. At the end OUT/labels.csv holds a row a run, and the means are printed.
#
# MODEL, DATA       folders (default ../shared/models/minilm-mlm and ../shared/data)
# TASKS, SEEDS      what to run (default "sst2 agnews dbpedia", "13 21 42")
# BUDGETS           queries for each of the tasks, in their order (default "24000 48000 112000": 750 or 500 candidates)
# ROWS              test rows to judge on, spread evenly over the file (default 200)
# PRECISION         f32 (default), bf16, ...
set -u
keyhole=$1 out=$2
model=${MODEL:-../shared/models/minilm-mlm} data=${DATA:-../shared/data}
tasks=(${TASKS:-sst2 agnews dbpedia}) seeds=(${SEEDS:-13 21 42}) budgets=(${BUDGETS:-24000 48000 112000})
rows=${ROWS:-200} precision=${PRECISION:-f32}
mkdir -p "$out" || exit 1

# value KEY FILE: a number in JSON
value() { sed -n "s/.*\"$1\": *\\([-+.e0-9]*\\).*/\\1/p" "$2" | head -n 1; }

# one TASK BUDGET SEED NAME OPTIONS...: tunes, predicts, judges; the last file written says that it is done
one() {
    local task=$1 budget=$2 seed=$3 run=$out/$1-$4-$3
    shift 4
    [ -s "$run/metrics.json" ] && return
    echo "$run" >&2
    "$keyhole" tune "$@" --access labels --model "$model" --task "$task" --data "$data/$task" --seed "$seed" --precision "$precision" \
        --budget-queries "$budget" --out "$run" --force --json >"$run.tune" 2>/dev/null || { echo "$run: tuning failed" >&2; return 1; }
    "$keyhole" predict "$run" "$out/$task.tsv" --output probs >"$run/probs.jsonl" 2>/dev/null &&
        "$keyhole" metrics "$run/probs.jsonl" --json >"$run/metrics.part" && mv "$run.tune" "$run/tune.json" &&
        mv "$run/metrics.part" "$run/metrics.json"
}

for i in "${!tasks[@]}"; do
    task=${tasks[i]}
    total=$(($(wc -l <"$data/$task/test.tsv") - 1))
    awk -v n="$rows" -v total="$total" 'NR == 1 || int((NR - 1) * n / total) > int((NR - 2) * n / total)' "$data/$task/test.tsv" >"$out/$task.tsv"
    for seed in "${seeds[@]}"; do
        one "$task" "${budgets[i]}" "$seed" smc --method smc
        one "$task" "${budgets[i]}" "$seed" abc-smc --method abc-smc --paper-exact
    done
done

echo "task,method,seed,budget,queries,samples,dev,accuracy,ece,nll,aurrrc" >"$out/labels.csv"
for i in "${!tasks[@]}"; do
    for method in smc abc-smc; do
        for seed in "${seeds[@]}"; do
            run=$out/${tasks[i]}-$method-$seed
            [ -s "$run/metrics.json" ] || continue
            echo "${tasks[i]},$method,$seed,${budgets[i]},$(value queries "$run/tune.json"),$(value samples "$run/tune.json"),$(
                value dev "$run/tune.json"),$(value accuracy "$run/metrics.json"),$(value ece "$run/metrics.json"),$(
                value nll "$run/metrics.json"),$(value aurrrc "$run/metrics.json")"
        done
    done
done >>"$out/labels.csv"

awk -F, 'NR > 1 { k = $1 "," $2; if (!(k in n)) order[++m] = k; n[k]++; q[k] += $5; a[k] += $8; e[k] += $9; l[k] += $10; r[k] += $11 }
    END { printf "%-10s %-8s %4s %9s %9s %9s %9s %9s\n", "task", "method", "runs", "queries", "accuracy", "ece", "nll", "aurrrc"
          for (i = 1; i <= m; i++) { k = order[i]; split(k, x, ",")
              printf "%-10s %-8s %4d %9.0f %9.4f %9.4f %9.4f %9.4f\n", x[1], x[2], n[k], q[k] / n[k], a[k] / n[k], e[k] / n[k], l[k] / n[k], r[k] / n[k] } }' "$out/labels.csv"
