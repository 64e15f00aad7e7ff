#!/bin/bash
# small.sh KEYHOLE OUT FILE... - "keyhole tune FILE" beside naive Bayes on the words of the same rows, three seeds: how many of the rows that
# were held out each gets right. FILE is CSV with the columns text and label. Finished runs in OUT are skipped.
#
# SEEDS     (default "13 21 42")
# MODEL     a folder (default: the built-in model)
set -u
keyhole=$1 out=$2
shift 2
mkdir -p "$out" || exit 1
# Counts of words with one added, classes as frequent as they are. The rows that keyhole judged itself on are the held-out ones.
bayes='
import csv, json, math, re, sys
words = lambda t: re.findall(r"[a-z0-9]+", t.lower())
held = [json.loads(l) for l in open(sys.argv[2])]
held = {r["line"]: r["label"] == r["true"] for r in held if r["rows"] == "test"}
rows = csv.DictReader(open(sys.argv[1], newline=""))
train, test, n, seen = [], [], {}, {}
for r in rows: (test if rows.line_num in held else train).append((words(r["text"]), r["label"]))
for t, y in train:
    n[y] = n.get(y, 0) + 1
    for w in t: seen.setdefault(y, {})[w] = seen.setdefault(y, {}).get(w, 0) + 1
size = len({w for y in seen for w in seen[y]})
score = lambda t, y: math.log(n[y]) + sum(math.log((seen[y].get(w, 0) + 1) / (sum(seen[y].values()) + size)) for w in t)
print("keyhole %d, naive Bayes %d of %d" % (sum(held.values()), sum(max(n, key=lambda y: score(t, y)) == y for t, y in test), len(test)))
'
for file; do
    for seed in ${SEEDS:-13 21 42}; do
        run=$out/$(basename "${file%.*}")-$seed
        if [ ! -s "$run.rows" ]; then
            "$keyhole" tune "$file" --seed "$seed" ${MODEL:+--model "$MODEL"} --out "$run" --resume >"$run.out" 2>"$run.err" &&
                "$keyhole" eval "$run" --rows-out "$run.part" --no-report --out "$run.eval" >/dev/null 2>&1 && mv "$run.part" "$run.rows" ||
                { echo "$run failed: $(tail -n 1 "$run.err")" >&2; continue; }
        fi
        echo "$file, seed $seed: $(python3 -c "$bayes" "$file" "$run.rows"), by $(sed -n 's/^method *\([^,]*\),.*/\1/p' "$run.out")"
    done
done
