#!/bin/bash
# texts.sh KEYHOLE OUT - text prompts: the template alone, demonstrations, the best single text prompt, a weighted set of them and a
# distribution by labels alone, on the same rows. Each finished run is kept in OUT and skipped next time, so it may be stopped and
# started again. At the end OUT/texts.csv holds a row a run, with the commit and the machine, and the means are printed. What text-smc, which
# sees labels only, is to be compared with is manual-labels: the template with labels only.
#
# MODEL, DATA       folders (default models/builtin and ../shared/data); MODEL may be a GGUF file, or the address of a "keyhole serve" that has
#                   the model open: a large one is then read once, not twice a run, and its answers are the same to the bit
# TASKS, SEEDS      what to run (default "sst2 agnews", "13 21 42")
# METHODS           of "manual text-ensemble text-search icl manual-labels text-smc" (default: all)
# SHOTS             rows of each class (default: 32 divided by the number of classes)
# PROMPTS           of text-ensemble, and its questions, N x (train + dev), are the budget of the others (default 16)
# ICL_DEMOS         demonstrations of icl (default 8)
# ROWS              test rows to judge on, spread evenly over the file (default 300)
# PRECISION         int8 (default), f32, bf16
# FALLBACK          none (default): the prompts themselves are judged; auto: what a person gets, the template beside them or in their place
# THREADS           of each run (default 0: one for each core)
# NAME              what the rows call the model (default: the last part of MODEL)
# COMMIT            what the rows say that the program was built from (default: the one of this folder)
set -u
keyhole=$1 out=$2
model=${MODEL:-models/builtin} data=${DATA:-../shared/data} rows=${ROWS:-300} prompts=${PROMPTS:-16}
tasks=(${TASKS:-sst2 agnews}) seeds=(${SEEDS:-13 21 42})
methods=(${METHODS:-manual text-ensemble text-search icl manual-labels text-smc})
commit=${COMMIT:-$(git -C "$(dirname "$0")" rev-parse --short HEAD 2>/dev/null || echo unknown)}
machine=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
where=() # what a service needs to be told: a slow model may take minutes for a request
case $model in http*) where=(--timeout 3600 --in-flight 1) ;; esac
mkdir -p "$out" || exit 1

# value KEY FILE: a number in JSON
value() { sed -n "s/.*\"$1\": *\\([-+.e0-9]*\\).*/\\1/p" "$2" | head -n 1; }

# options METHOD: prompts are kept short, and questions equal. text-smc begins with 20 prompts about all rows and ends with as many
# members about dev, so it cannot do with less than 28 x train questions.
options() {
    local train=$((shots * classes))
    local text="--demos 2 --demo-length 80" most=$((prompts * 2 * train)) least=$((28 * train))
    case $1 in
    manual-labels) echo --access labels ;;
    icl) echo --demos "${ICL_DEMOS:-8}" ;;
    text-search) echo $text --budget-queries $most ;;
    text-ensemble) echo $text --prompts "$prompts" ;;
    text-smc) echo $text --samples 8 --budget-queries $((most > least ? most : least)) ;;
    esac
}

one() {
    local run=$out/$task-$method-$seed classes shots
    classes=$(grep -c . "$data/$task/labels.txt")
    shots=${SHOTS:-$((32 / classes))}
    [ -s "$run/metrics.json" ] && return
    echo "$run" >&2
    "$keyhole" tune --method "${method%-labels}" $(options "$method") --model "$model" --task "$task" --data "$data/$task" \
        --shots "$shots" --seed "$seed" --precision "${PRECISION:-int8}" --threads "${THREADS:-0}" "${where[@]}" --features-model none --fallback "${FALLBACK:-none}" \
        --out "$run" --force --json >"$run.tune" 2>"$run.err" || { echo "$run: tuning failed: $(tail -n 1 "$run.err")" >&2; return 1; }
    "$keyhole" predict "$run" "$out/$task.tsv" --model "$model" "${where[@]}" --output probs --threads "${THREADS:-0}" >"$run/probs.jsonl" 2>>"$run.err" &&
        "$keyhole" metrics "$run/probs.jsonl" --json >"$run/metrics.part" && mv "$run.tune" "$run/tune.json" &&
        echo "$commit,$machine" >"$run/made" && mv "$run/metrics.part" "$run/metrics.json" || echo "$run: judging failed" >&2
}

for i in "${!tasks[@]}"; do # rows at equal distances, under the header
    task=${tasks[i]}
    [ -s "$out/$task.tsv" ] || awk -v want="$rows" 'NR == 1 { print; next } { row[n++] = $0 }
        END { for (k = 0; k < want && k < n; k++) print row[int(k * n / (want < n ? want : n))] }' "$data/$task/test.tsv" >"$out/$task.tsv"
done
for method in "${methods[@]}"; do
    for i in "${!tasks[@]}"; do
        task=${tasks[i]}
        for seed in "${seeds[@]}"; do one; done
    done
done

echo "task,method,seed,accuracy,ece,nll,queries,samples,commit,machine,model,rows,prompts" >"$out/texts.csv"
for task in "${tasks[@]}"; do
    for method in "${methods[@]}"; do
        for seed in "${seeds[@]}"; do
            run=$out/$task-$method-$seed
            [ -s "$run/metrics.json" ] && echo "$task,$method,$seed,$(value accuracy "$run/metrics.json"),$(value ece "$run/metrics.json"),$(
                value nll "$run/metrics.json"),$(value queries "$run/tune.json"),$(value samples "$run/tune.json"),$(cat "$run/made"),${NAME:-$(basename "$model")},$(($(wc -l <"$out/$task.tsv") - 1)),$prompts" >>"$out/texts.csv"
        done
    done
done
awk -F, 'NR > 1 { k = $1 " " $2; if (!(k in n)) order[m++] = k; n[k]++; a[k] += $4; e[k] += $5; l[k] += $6; q[k] += $7 }
    END { for (i = 0; i < m; i++) { k = order[i]; printf "%-24s accuracy %.3f  ECE %.3f  NLL %.3f  questions %.0f  (%d seeds)\n",
        k, a[k] / n[k], e[k] / n[k], l[k] / n[k], q[k] / n[k], n[k] } }' "$out/texts.csv"
