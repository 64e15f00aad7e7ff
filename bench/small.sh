#!/bin/bash
# small.sh KEYHOLE OUT FILE... - "keyhole tune FILE" beside naive Bayes on the words of the same rows, three seeds: how many of the rows that
# were held out each gets right. Finished runs in OUT are skipped. SEEDS: "13 21 42".
set -u
keyhole=$1 out=$2
shift 2
mkdir -p "$out" || exit 1
# Bernoulli-free, ten lines: word counts with one added, classes as frequent as they are.
bayes='
import csv, json, math, re, sys
words = lambda t: re.findall(r"[a-z0-9]+", t.lower())
rows = list(csv.DictReader(open(sys.argv[1], newline="")))
held = {json.loads(l)["line"] for l in open(sys.argv[2])}
train, test, line = [], [], 1
for r in rows:
    line += 1
    (test if line in held else train).append((words(r["text"]), r["label"]))
seen, total = {}, {}
for t, y in train:
    total[y] = total.get(y, 0) + 1
    for w in t: seen.setdefault(y, {}); seen[y][w] = seen[y].get(w, 0) + 1
size = len({w for y in seen for w in seen[y]})
score = lambda t, y: math.log(total[y]) + sum(math.log((seen[y].get(w, 0) + 1) / (sum(seen[y].values()) + size)) for w in t)
print(sum(max(total, key=lambda y: score(t, y)) == y for t, y in test), len(test))
'
for file; do
    for seed in ${SEEDS:-13 21 42}; do
        run=$out/$(basename "${file%.*}")-$seed
        [ -s "$run.rows" ] || { rm -rf "$run"; "$keyhole" tune "$file" --seed "$seed" ${MODEL:+--model "$MODEL"} --out "$run" >"$run.out" 2>"$run.err" &&
            "$keyhole" eval "$run" --rows-out "$run.rows" --no-report --out "$run.eval" >/dev/null 2>&1; } || echo "$run failed" >&2
        right=$(grep -c '"correct": *true' "$run.rows")
        echo "$file seed $seed: keyhole $right, naive Bayes $(python3 -c "$bayes" "$file" "$run.rows"), $(sed -n 's/^method *//p' "$run.out")"
    done
done
