#!/bin/bash
# foreign.sh KEYHOLE OUT - how well texts of another kind are told apart: AUROC of each score, for the template with labels only and with
# log-probabilities, on the examples (against examples/foreign), sst2 against rte and agnews against dbpedia. The distance does not depend on the
# method: it is that of the text's own features to the train rows. "both" is energy and distance as one score. Finished runs in OUT are skipped; OUT/foreign.csv holds a row a score.
#
# MODEL       that answers and whose features are compared (default models/builtin)
# DATA        (default ../shared/data)
# SEEDS       (default "13 21 42"; of --shots: the examples have one split)
# ACCESS      (default "labels logprobs")
# ROWS        test rows of each set (default 300)
# PRECISION   (default int8); the features are read in f32
# THREADS     (default 0: one for each core)
set -u
keyhole=$1 out=$2
model=${MODEL:-models/builtin} data=${DATA:-../shared/data} top=$(cd "$(dirname "$0")/.." && pwd)
commit=$(git -C "$top" rev-parse --short HEAD 2>/dev/null || echo unknown)
csv=$out/foreign.csv
mkdir -p "$out" || exit 1

# one NAME FOLDER OTHERS SEED ACCESS TASK-OPTIONS...
one() {
    local name=$1 folder=$2 others=$3 seed=$4 access=$5 run=$out/$1-$5-$4
    shift 5
    [ -s "$run/foreign.json" ] && return
    "$keyhole" tune --method manual --access "$access" --model "$model" --features-model "$model" "$@" --data "$folder" --seed "$seed" \
        --precision "${PRECISION:-int8}" --threads "${THREADS:-0}" --out "$run" --resume >"$run.out" 2>"$run.err" &&
        "$keyhole" eval "$run" --ood "$others" --rows "${ROWS:-300}" --bootstrap 0 --no-report --threads "${THREADS:-0}" --json \
            >"$run/part.json" 2>"$run.err" && mv "$run/part.json" "$run/foreign.json" || { echo "$run: $(tail -n 1 "$run.err")" >&2; return 1; }
    [ -s "$csv" ] || echo "set,access,seed,score,auroc,rows,foreign,commit" >"$csv"
    python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
for o in d["ood"]:
    for score, m in o.items():
        if isinstance(m, dict): print(",".join(map(str, sys.argv[2:5] + [score, round(m["auroc"]["value"], 4), d["eval"]["rows"], o["rows"], sys.argv[5]])))
' "$run/foreign.json" "$name" "$access" "$seed" "$commit" >>"$csv"
}

for seed in ${SEEDS:-13 21 42}; do
    for access in ${ACCESS:-labels logprobs}; do
        for name in reviews topics tickets; do one $name "$top/examples/$name" "$top/examples/foreign" "$seed" $access; done
        one sst2-rte "$data/sst2" "rte=$data/rte" "$seed" $access --task sst2 --shots 16
        one agnews-dbpedia "$data/agnews" "dbpedia=$data/dbpedia" "$seed" $access --task agnews --shots 16
    done
done
awk -F, 'NR > 1 { k = $1 " " $2 " " $4; if (!(k in n)) order[++m] = k; n[k]++; sum[k] += $5 }
    END { for (i = 1; i <= m; i++) printf "%-36s %d runs  AUROC %.3f\n", order[i], n[order[i]], sum[order[i]] / n[order[i]] }' "$csv"
