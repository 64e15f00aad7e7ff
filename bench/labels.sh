#!/bin/bash
# labels.sh KEYHOLE OUT - labels only: "smc" with its defaults beside the paper's ABC-SMC at equal budgets of queries, on a
# trained model and three tasks, three seeds. Each finished run is kept in OUT and skipped next time, so it may be stopped and
# started again. At the end OUT/labels.csv holds a row a run, and the means are printed.
# Then, for each pair of runs, what share of ABC-SMC's queries smc had made when its members made as few errors on the train rows (their mean)
# as ABC-SMC's at its end.
# Beside them two runs that take one thing away, or add it: smc-raw is smc with plain votes (--calibrate none), abc-smc-early the
# paper's method with exact early rejection.
#
# MODEL, DATA       folders (default ../shared/models/minilm-mlm and ../shared/data)
# TASKS, SEEDS      what to run (default "sst2 agnews dbpedia", "13 21 42")
# METHODS           of "smc abc-smc smc-raw abc-smc-early" (default: all)
# BUDGETS, SHOTS    for each of the tasks, in their order: queries, and rows of each class (default "24000 48000 112000",
#                   "16 16 16": 750 or 500 candidates)
# SMC               options of smc (default: those of the other efforts that are not about the size of the space; SMC=" " for the paper's)
# SAMPLES, SLOTS    of all methods (default: the methods' own, 50)
# ROWS              test rows to judge on, spread evenly over the file (default 200)
# PRECISION         f32 (default), bf16, ...
# THREADS           of each run (default 0: one for each core); two calls with other METHODS and the same OUT may run side by side
set -u
keyhole=$1 out=$2
model=${MODEL:-../shared/models/minilm-mlm} data=${DATA:-../shared/data}
tasks=(${TASKS:-sst2 agnews dbpedia}) seeds=(${SEEDS:-13 21 42}) budgets=(${BUDGETS:-24000 48000 112000})
shots=(${SHOTS:-16 16 16}) methods=" ${METHODS:-smc abc-smc smc-raw abc-smc-early} "
rows=${ROWS:-200} common=(--precision "${PRECISION:-f32}" --slots "${SLOTS:-50}" ${SAMPLES:+--samples "$SAMPLES"} \
    --threads "${THREADS:-0}")
smc=(${SMC:---reuse-draws --early-rejection tight})
mkdir -p "$out" || exit 1

# value KEY FILE: a number in JSON
value() { sed -n "s/.*\"$1\": *\\([-+.e0-9]*\\).*/\\1/p" "$2" | head -n 1; }

# one NAME OPTIONS...: tunes, predicts, judges, with the task, budget, shots and seed of the loops below; the last file written says
# that it is done
one() {
    local run=$out/$task-$1-$seed
    [ -s "$run/metrics.json" ] || [ "${methods/ $1 /}" = "$methods" ] && return
    shift
    echo "$run" >&2
    "$keyhole" tune "$@" --effort paper --access labels --model "$model" --task "$task" --data "$data/$task" --shots "${shots[i]}" --seed "$seed" \
        "${common[@]}" --budget-queries "${budgets[i]}" --out "$run" --force --json >"$run.tune" 2>/dev/null ||
        { echo "$run: tuning failed" >&2; return 1; }
    "$keyhole" predict "$run" "$out/$task.tsv" --output probs --threads "${THREADS:-0}" >"$run/probs.jsonl" 2>/dev/null &&
        "$keyhole" metrics "$run/probs.jsonl" --json >"$run/metrics.part" && mv "$run.tune" "$run/tune.json" &&
        mv "$run/metrics.part" "$run/metrics.json"
}

for i in "${!tasks[@]}"; do # the rows to judge on
    task=${tasks[i]}
    total=$(($(wc -l <"$data/$task/test.tsv") - 1))
    awk -v n="$rows" -v total="$total" 'NR == 1 || int((NR - 1) * n / total) > int((NR - 2) * n / total)' "$data/$task/test.tsv" \
        >"$out/$task.tsv"
done
for seed in "${seeds[@]}"; do
    for i in "${!tasks[@]}"; do
        task=${tasks[i]}
        one smc --method smc "${smc[@]}"
        one abc-smc --method abc-smc --paper-exact
        one smc-raw --method smc "${smc[@]}" --calibrate none
        one abc-smc-early --method abc-smc --paper-exact --early-rejection on
    done
done

echo "task,method,seed,budget,queries,samples,dev,accuracy,ece,nll,aurrrc" >"$out/labels.csv"
for i in "${!tasks[@]}"; do
    for method in smc abc-smc smc-raw abc-smc-early; do
        for seed in "${seeds[@]}"; do
            run=$out/${tasks[i]}-$method-$seed
            [ -s "$run/metrics.json" ] || continue
            echo "${tasks[i]},$method,$seed,${budgets[i]},$(value queries "$run/tune.json"),$(value samples "$run/tune.json"),$(
                value dev "$run/tune.json"),$(value accuracy "$run/metrics.json"),$(value ece "$run/metrics.json"),$(
                value nll "$run/metrics.json"),$(value aurrrc "$run/metrics.json")"
        done
    done
done >>"$out/labels.csv"

# Means over the seeds, and over the tasks of these: every task counts the same.
awk -F, 'function line(task, method, n, x) {
        printf "%-10s %-14s %4d %9.0f %9.4f %9.4f %9.4f %9.4f\n", task, method, n, x[1], x[2], x[3], x[4], x[5] }
    NR > 1 { k = $1 "," $2; if (!(k in n)) order[++m] = k; n[k]++; v[k, 1] += $5; for (c = 2; c <= 5; c++) v[k, c] += $(c + 6) }
    END { printf "%-10s %-14s %4s %9s %9s %9s %9s %9s\n", "task", "method", "runs", "queries", "accuracy", "ece", "nll", "aurrrc"
          for (i = 1; i <= m; i++) { k = order[i]; split(k, x, ","); if (!(x[2] in tasks)) methods[++l] = x[2]
              tasks[x[2]]++; runs[x[2]] += n[k]
              for (c = 1; c <= 5; c++) { mean[c] = v[k, c] / n[k]; sum[x[2], c] += mean[c] }
              line(x[1], x[2], n[k], mean) }
          for (i = 1; i <= l; i++) { for (c = 1; c <= 5; c++) mean[c] = sum[methods[i], c] / tasks[methods[i]]
              line(tasks[methods[i]] " tasks", methods[i], runs[methods[i]], mean) } }' "$out/labels.csv"

# Queries to equal train error: levels stand in log.txt, with the queries so far and "errors=BEST/MEAN".
level() { sed -n 's/.*queries=\([0-9]*\) .* errors=[0-9]*\/\([0-9.]*\) .*/\1 \2/p' "$1"; }
for task in "${tasks[@]}"; do
    for seed in "${seeds[@]}"; do
        [ -s "$out/$task-abc-smc-$seed/log.txt" ] && [ -s "$out/$task-smc-$seed/log.txt" ] || continue
        read -r all error < <(level "$out/$task-abc-smc-$seed/log.txt" | tail -n 1)
        level "$out/$task-smc-$seed/log.txt" | awk -v all="$all" -v error="$error" -v name="$task $seed" '
            !n && $2 <= error { n = $1; mean = $2 }
            END { if (n) printf "%s: as few errors (%s, abc-smc %s) after %d of %d queries, %.2f\n", name, mean, error, n, all, n / all
                  else printf "%s: never as few errors as abc-smc (%s)\n", name, error }'
    done
done | awk '{ print } / after / { n++; sum += $NF } END { if (n) printf "queries to equal train error: %.2f on average (%d pairs)\n", sum / n, n }'
