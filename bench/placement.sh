#!/bin/bash
# placement.sh KEYHOLE MODEL OUT - what after-text does to accuracy: bbt on a decoder with the soft prompt in front (the task's soft template) and
# after the text, two tasks, three seeds, the same budget of questions and test rows for both. The model is opened once, by a service. Finished
# runs in OUT are kept and skipped; OUT/placement.csv has a row a run. Without the net under the search (--fallback none): the prompt itself is judged.
keyhole=$(realpath "${1:-build/release/keyhole}") model=$(realpath "$2") out=${3:-build/placement}
data=$(realpath "${DATA:-../shared/data}")
queries=${QUERIES:-1000} search=${SEARCH:-32} rows=${ROWS:-100} seeds=${SEEDS:-13 21 42}
commit=$(git rev-parse --short HEAD 2>/dev/null || echo none)
mkdir -p "$out" && cd "$out" || exit 1
[ -f placement.csv ] || echo "date,commit,task,seed,placement,queries,search_rows,rows,accuracy,nll,ece,seconds" >placement.csv
"$keyhole" serve --model "$model" --precision int8 --access logprobs --port 0 >port 2>serve.log &
server=$!
trap 'kill $server 2>/dev/null' EXIT
for _ in $(seq 600); do [ -s port ] && break; sleep 0.5; done
url=$(sed 's/.* at //' port)
value() { tr -d ' \n' <"$1" | grep -o "\"$2\":{\"value\":[0-9.]*" | head -n 1 | sed 's/.*://'; }
for seed in $seeds; do
    for task in sst2 agnews; do
        shots=16
        [ $task = agnews ] && shots=8 # 32 rows to learn from in either task
        for placement in template after-text; do
            run=$task-$seed-$placement
            grep -q ",$task,$seed,$placement," placement.csv && continue
            "$keyhole" tune --method bbt --model "$url" --task $task --data "$data/$task" --shots $shots --seed "$seed" --placement $placement \
                --slots 5 --dim 25 --p0 random --sigma 1 --effort quick --search-rows "$search" --budget-queries "$queries" --fallback none --features-model none \
                --out "$run" --resume >"$run.log" 2>&1 &&
                "$keyhole" eval "$run" --model "$url" --data "$data/$task" --rows "$rows" --json >"$run.json" 2>>"$run.log" || { tail -n 2 "$run.log"; continue; }
            seconds=$(sed -n 's/^seconds *//p' "$run.log")
            echo "$(date +%F),$commit,$task,$seed,$placement,$queries,$search,$rows,$(value "$run.json" accuracy),$(value "$run.json" nll),$(value "$run.json" ece),$seconds" |
                tee -a placement.csv
        done
    done
done
