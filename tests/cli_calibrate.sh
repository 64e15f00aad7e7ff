#!/bin/bash
# cli_calibrate.sh - keyhole calibrate and keyhole metrics, as a user types them.
. tests/tap.sh

# Logits of a classifier that is much too sure: right three times in four, at a margin of 4 or 6.
for i in $(seq 0 39); do
    label=$((i % 2)) sure=$((4 + i % 3))
    [ $((i % 4)) -eq 3 ] && said=$((1 - label)) || said=$label
    [ $said -eq 0 ] && logits="$sure, 0.5" || logits="0.5, $sure"
    echo "{\"id\": \"row $i\", \"logits\": [$logits], \"label\": $label}"
done >"$here/dev.jsonl"
sed 's/"label": [01]/"label": null/' "$here/dev.jsonl" >"$here/new.jsonl"
head -n 20 "$here/dev.jsonl" >"$here/test.jsonl"
for i in $(seq 0 31); do
    label=$((i % 2))
    [ $((i % 8)) -eq 5 ] && v="6, 4" || { [ $label -eq 0 ] && v="10, 0" || v="1, 9"; }
    echo "{\"votes\": [$v], \"label\": $label}"
done >"$here/votes.jsonl"

# ------------------------------------------------------------------------------------------------ calibrate
ok "calibrate on the rows themselves" run 0 calibrate "$here/dev.jsonl"
ok "every line comes back" test "$(wc -l <"$here/out")" -eq 40
ok "other keys stay, logits go" grep -q '^{"id":"row 0","label":0,"probs":\[0\.[0-9]*,0\.[0-9]*\]}$' "$here/out"
ok "the table has a before" grep -q "before  *40 " "$here/err"
ok "the table has a cross-validated after" grep -q "after, by cross-validation  *40 " "$here/err"
before=$(awk '/before/ {print $(NF-2)}' "$here/err") after=$(awk '/cross-validation/ {print $(NF-2)}' "$here/err")
ok "calibration lowers NLL" awk "BEGIN {exit !($after < 0.7 * $before)}"
cp "$here/out" "$here/calibrated.jsonl"
ok "what was calibrated can be judged" both 0 "40 rows, 2 classes, probs" metrics "$here/calibrated.jsonl"
ok "parameters are written" run 0 calibrate "$here/dev.jsonl" --out "$here/cal.json"
ok "parameters are JSON" grep -q '"method": "temperature"' "$here/cal.json"
ok "parameters are applied" run 0 calibrate "$here/dev.jsonl" --apply "$here/cal.json"
ok "and give the same lines" cmp "$here/out" "$here/calibrated.jsonl"
ok "rows without labels are calibrated" run 0 calibrate "$here/new.jsonl" --apply "$here/cal.json"
ok "into the same probabilities" cmp <(sed 's/"label":null/X/' "$here/out") <(sed 's/"label":[01]/X/' "$here/calibrated.jsonl")
ok "fit on one file, calibrate another" run 0 calibrate "$here/test.jsonl" --fit "$here/dev.jsonl"
ok "its own before is in the table" grep -q "test.jsonl.* before  *20 " "$here/err"
ok "its own after is in the table" grep -q "test.jsonl.* after  *20 " "$here/err"
ok "standard input" bash -c '"$KEYHOLE" calibrate - --apply "$0/cal.json" <"$0/dev.jsonl" 2>/dev/null | cmp - "$0/calibrated.jsonl"' "$here"
ok "vector scaling" run 0 calibrate "$here/dev.jsonl" --method vector --json --out "$here/vector.json"
ok "before and after as JSON" err_has '"what": "after, by cross-validation", "rows": 40, "nll": 0.'
ok "vector parameters are applied" run 0 calibrate "$here/dev.jsonl" --apply "$here/vector.json"
ok "votes" run 0 calibrate "$here/votes.jsonl" --method votes --out "$here/votes.json"
ok "votes with biases" run 0 calibrate "$here/votes.jsonl" --method votes-affine --out "$here/votes-affine.json"
ok "in a file" eval 'grep -q "\"method\": \"votes-affine\"" "$here/votes-affine.json" && grep -q "\"bias\"" "$here/votes-affine.json"'
ok "which is applied" run 0 calibrate "$here/votes.jsonl" --apply "$here/votes-affine.json"
ok "nobody is given no chance" bash -c '! grep -qE "[[,]0(\.0)?[],]" "$0/out"' "$here"
ok "temperature of votes" run 0 calibrate "$here/votes.jsonl"
grep '"label": 0' "$here/dev.jsonl" >"$here/one.jsonl"
ok "rows of one class are calibrated with a warning" says 0 "every row is of class 0, which says little about the others" \
    calibrate "$here/one.jsonl" --method vector
head -n 1 "$here/dev.jsonl" >"$here/single.jsonl"
ok "a single row is calibrated" run 0 calibrate "$here/single.jsonl"
printf '\xef\xbb\xbf{"probs": [1, 0], "label": 0}\r\n\n{"probs": [0, 1], "label": 1}' >"$here/odd.jsonl"
ok "byte-order mark, CR, blank line, no last newline" run 0 calibrate "$here/odd.jsonl"
ok "two lines come back" test "$(wc -l <"$here/out")" -eq 2

ok "no labels to fit on" says 1 "new.jsonl: no line has a \"label\" to fit on; --fit names a file that has, --apply parameters" \
    calibrate "$here/new.jsonl"
ok "fit and apply exclude each other" says 2 "--fit and --apply exclude each other" calibrate "$here/new.jsonl" \
    --fit "$here/dev.jsonl" --apply "$here/cal.json"
ok "standard input twice" says 2 "standard input cannot be both" calibrate - --fit -
ok "votes from logits" says 1 'dev.jsonl:1: no "votes" in this line' calibrate "$here/dev.jsonl" --method votes
printf '{"probs": [0.2, 0.3, 0.5]}\n' >"$here/three.jsonl"
ok "another number of classes" says 1 "three.jsonl: rows of 3 classes, but the calibrator is for 2" calibrate "$here/three.jsonl" \
    --apply "$here/cal.json"
printf '{"probs": [0.5, 0.5], "label": 0}\n{"probs": [0.5, 0.6], "label": 0}\n' >"$here/bad.jsonl"
ok "a malformed line is one sentence" says 1 'bad.jsonl:2: "probs" add up to 1.1, expected 1' calibrate "$here/bad.jsonl"
ok "and nothing is printed" test ! -s "$here/out"
ok "a missing file" says 1 "nowhere.jsonl: cannot open" calibrate "$here/nowhere.jsonl"
ok "parameters that are none" says 1 'not a file of "keyhole calibrate --out"' calibrate "$here/dev.jsonl" \
    --apply "$here/single.jsonl"
ok "an unknown method" says 2 "--method takes one of temperature|vector|votes|affine" calibrate "$here/dev.jsonl" --method platt
: >"$here/empty.jsonl"
ok "an empty file" says 1 "no lines; expected one JSON object a line" calibrate "$here/empty.jsonl"

# -------------------------------------------------------------------------------------------------- metrics
ok "metrics" both 0 "dev.jsonl: 40 rows, 2 classes, logits" metrics "$here/dev.jsonl"
ok "accuracy" grep -q "^  accuracy  *0.7500 " "$here/out"
ok "metrics of votes" both 0 "32 rows, 2 classes, votes" metrics "$here/votes.jsonl"
ok "intervals" both 0 "interval (90 %)" metrics "$here/dev.jsonl" --bootstrap 100 --level 0.9
cp "$here/out" "$here/first"
ok "the same seed" run 0 metrics "$here/dev.jsonl" --bootstrap 100 --level 0.9 --threads 1
ok "the same intervals, on any number of threads" cmp "$here/out" "$here/first"
ok "reliability and curve" both 0 "0.9500 - 1.0000" metrics "$here/dev.jsonl" --reliability --curve
ok "the curve ends at full coverage" grep -q " 1.0000    0.2500$" "$here/out"
ok "JSON" both 0 '"metrics": {"accuracy": 0.75, ' metrics "$here/dev.jsonl" --json --bootstrap 20 --curve
ok "undefined is null in JSON" both 0 '"auroc_error": null' metrics "$here/odd.jsonl" --json
ok "undefined is a dash in text" both 0 "auroc_error                -" metrics "$here/odd.jsonl"
ok "versus itself" both 0 "p = 1.0000" metrics "$here/dev.jsonl" --versus "$here/dev.jsonl"
ok "versus the calibrated" run 0 metrics "$here/calibrated.jsonl" --versus "$here/dev.jsonl"
ok "is better" grep -qE "^  nll +-0\.[0-9]+ .*p = 0\.0" "$here/out"
ok "versus other rows" says 1 "cannot be compared row by row" metrics "$here/dev.jsonl" --versus "$here/test.jsonl"
printf '{"probs": [0.5, 0.5]}\n{"probs": [0.6, 0.4]}\n' >"$here/ood.jsonl"
ok "rows from elsewhere" both 0 "against 2 rows of $here/ood.jsonl, by entropy:" metrics "$here/dev.jsonl" --ood "$here/ood.jsonl" \
    --bootstrap 20
ok "are turned away" grep -q "lets in 0.0000 of the others" "$here/out"
ok "too few rows for a threshold" both 0 "20 rows are too few for a threshold that keeps 0.99 of such rows" \
    metrics "$here/test.jsonl" --ood "$here/ood.jsonl" --keep 0.99
ok "rows from elsewhere as JSON" both 0 '"ood": {"rows": 2,' metrics "$here/dev.jsonl" --ood "$here/ood.jsonl" --json
for i in 1 2 3 4 5 6 7 8 9 10; do printf '{"probs": [0.9, 0.1], "label": 0, "energy": -%d}\n' $i; done >"$here/calm.jsonl"
printf '{"probs": [0.9, 0.1], "energy": 3}\n{"probs": [0.9, 0.1], "energy": -1.5}\n' >"$here/high.jsonl"
printf '{"probs": [0.9, 0.1], "energy": 3}\n{"probs": [0.9, 0.1]}\n' >"$here/some.jsonl"
by_energy() { # of 20 pairs all but one stand right
    both 0 '"energy": {"value": {"auroc": 0.95,' metrics "$here/calm.jsonl" --ood "$here/high.jsonl" --keep 0.8 --json &&
        out_has '"score": "energy", "threshold": -2, "kept": 0.9, "let_in": 0'
}
ok "rows that have energies are told apart by them" by_energy
ok "energies for people" both 0 "threshold -2 on energy keeps 0.9000 of these rows and lets in 0.0000" metrics "$here/calm.jsonl" --ood "$here/high.jsonl" --keep 0.8
ok "another score may be told to decide" both 0 "on entropy keeps" metrics "$here/calm.jsonl" --ood "$here/high.jsonl" --keep 0.8 --ood-score entropy
ok "its earlier name still works" both 0 "on entropy keeps" metrics "$here/calm.jsonl" --ood "$here/high.jsonl" --keep 0.8 --foreign-score entropy
without() { both 0 '"score": "maxp"' metrics "$here/calm.jsonl" --ood "$here/some.jsonl" --keep 0.8 --json && ! out_has '"energy": {'; }
ok "energies that some rows lack are left out" without
ok "max-risk" both 0 "chosen on $here/votes.jsonl: answer where 1 - max p < " metrics "$here/votes.jsonl" --max-risk 0.2
ok "coverage to expect" out_has "coverage to expect: "
ok "chosen and judged on the same rows is said" out_has "These rows were chosen on and judged on at once"
ok "max-risk on other rows" both 0 "on $here/test.jsonl: coverage " metrics "$here/test.jsonl" --dev "$here/votes.jsonl" \
    --max-risk 0.2
ok "max-risk that cannot be shown" both 0 "cannot show it: abstain always; it takes at least 230 answers, all right" \
    metrics "$here/votes.jsonl" --max-risk 0.01
ok "never, in JSON" both 0 '"answers": "never", "threshold": null' metrics "$here/votes.jsonl" --max-risk 0.01 --json
ok "conformal sets" both 0 "hold the true class, mean size " metrics "$here/test.jsonl" --dev "$here/dev.jsonl" --conformal 0.2
ok "the level that can be promised" both 0 "which can promise 0.02439 at best: sets of all classes are needed" \
    metrics "$here/dev.jsonl" --conformal 0.01
ok "conformal sets per class, by entropy" both 0 "in every class" metrics "$here/dev.jsonl" --conformal 0.2 --per-class \
    --score entropy
ok "conformal sets as JSON" both 0 '"conformal": {"alpha": 0.2, "per_class": false' metrics "$here/dev.jsonl" --conformal 0.2 --json
ok "labels are needed" says 1 'new.jsonl:1: no "label" (the true class, from 0) in this line' metrics "$here/new.jsonl"
ok "classes must agree" says 1 "three.jsonl has 3 classes, but $here/dev.jsonl has 2" metrics "$here/dev.jsonl" \
    --ood "$here/three.jsonl"
ok "a malformed line" says 1 'bad.jsonl:2: "probs" add up to 1.1, expected 1' metrics "$here/bad.jsonl"
ok "a risk out of range" says 2 "--max-risk takes a number from 0 to 0.999" metrics "$here/dev.jsonl" --max-risk 2
ok "help teaches" both 0 "keyhole metrics test.jsonl --dev dev.jsonl --max-risk 0.05" metrics --help

# ---- leave-one-out sets, and the map that cross-validation prefers
few() { # 32 rows of three classes by a service that leans to the first
    awk 'BEGIN { srand(4); for (i = 0; i < '"$1"'; i++) { c = i % 3; for (k = 0; k < 3; k++) z[k] = 3 * ((k == c) + 1.2 * rand()) + 3 * (1 - k);
        printf "{\"logits\": [%.4f, %.4f, %.4f], \"label\": %d}\n", z[0], z[1], z[2], c } }'
}
few 32 >"$here/few.jsonl"; few 300 >"$here/many.jsonl"
sets() {
    run 0 calibrate "$here/many.jsonl" --fit "$here/few.jsonl" --method auto --sets 0.1 && err_has "leave-one-out on 32 rows (jackknife+)" &&
        err_has "probability >= 0.8 whatever the classifier, and about 0.9 in practice" && err_has "of 300 labelled rows here" &&
        python3 -c 'import json,sys
rows = [json.loads(l) for l in open(sys.argv[1])]
assert len(rows) == 300 and all(set(r["set"]) <= {0, 1, 2} for r in rows)
assert sum(r["label"] in r["set"] for r in rows) >= 0.8 * len(rows)' "$here/out"
}
ok "leave-one-out sets" sets
same_twice() { cp "$here/out" "$here/first" && run 0 calibrate "$here/many.jsonl" --fit "$here/few.jsonl" --method auto --sets 0.1 && cmp -s "$here/out" "$here/first"; }
ok "the same twice" same_twice
auto_of_biased() { run 0 calibrate "$here/few.jsonl" --method auto --json && grep -qE '"method": "(affine|vector)"' "$here/err"; }
ok "a bias is not taken for a temperature" auto_of_biased
ok "sets need rows" says 2 "--sets needs the labelled rows" calibrate "$here/few.jsonl" --apply x --sets 0.1
echo "1..$n"
exit $failed
