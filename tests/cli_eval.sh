#!/bin/bash
# eval, compare, and what predict decides after eval: a tiny random model, two sets from elsewhere, hostile text.
. tests/tap.sh
model=$here/model data=$here/data pair=$here/pair.json toy=$here/toy.json
mkdir "$data" "$here/rain" "$here/numbers"
cat >"$toy" <<'END'
{ "name": "toy", "template": "{text} It was {mask} .",
  "labels": [ { "name": "bad", "words": ["lower"] }, { "name": "good", "words": ["better"] } ] }
END
cat >"$pair" <<'END'
{ "name": "rain", "template": "{text_a} ? {mask} , {text_b}",
  "labels": [ { "name": "yes", "words": ["new"] }, { "name": "no", "words": ["old"] }, { "name": "so", "words": ["boat"] } ] }
END
{
    printf 'label\ttext\n'
    for i in $(seq 80); do printf '%d\tthe boats number %d were green\n' $((i % 2)) "$i"; done
} >"$data/train.tsv"
{
    printf 'label\ttext\n'
    for i in $(seq 40); do printf '%d\t<script>alert("%d")</script> & \xe2\x80\xae evil\n' $((i % 2)) "$i"; done
} >"$data/test.tsv"
{
    printf 'text_a\ttext_b\n'
    for i in $(seq 30); do printf 'it rains %d\tthe sun shines\n' "$i"; done
} >"$here/rain/test.tsv"
{
    printf 'text\n'
    for i in $(seq 20); do printf 'number %d\n' "$i"; done
} >"$here/numbers/test.tsv"
: >"$here/out" && : >"$here/err"

random_model() {
    run 0 model random --arch tiny --seed 3 --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-bpe.json --out "$model"
}
common=(--model "$model" --task "$toy" --data "$data" --effort paper --shots 16 --dim 12 --slots 5 --p0 random --features-model "$model")
tune() { # tune NAME METHOD SEED OPTIONS...
    run 0 tune --method "$2" "${common[@]}" --seed "$3" --out "$here/$1" "${@:4}"
}
small=(--budget-generations 4 --dev-every 2 --pop 5 --draws 2 --samples 6)
ok "a tiny model" random_model
ok "a posterior of six prompts" tune elbo elbo 13 "${small[@]}"
ok "and of another seed" tune elbo21 elbo 21 "${small[@]}"
ok "and of other options" tune elbo-pop elbo 13 "${small[@]}" --kl-weight 0.5
ok "and a manual prompt" tune manual manual 13

# ---- predict before eval
echo "the boats were small" >"$here/text"
predict() { "$KEYHOLE" predict "$here/elbo" "$@" <"$here/text" >"$here/out" 2>"$here/err"; }
before_eval() {
    predict && out_has '"abstain":null,"set":null,' && out_has '"ood":null,' && out_has '"disagreement":' &&
        ! out_has '"disagreement":null' &&
        [ "$(wc -l <"$here/err")" -eq 1 ] && err_has "keyhole eval $here/elbo --data DIR"
}
ok "without decisions predict says how to get them" before_eval
quiet_probs() { predict --output probs && [ ! -s "$here/err" ]; }
ok "for metrics it needs none" quiet_probs

# ---- eval
ood=(--ood "$pair=$here/rain" "$toy=$here/numbers")
evaluate() { run 0 eval "$here/$1" "${@:2}"; }
all_numbers() {
    evaluate elbo --data "$data" "${ood[@]}" --all --bootstrap 100 --rows-out "$here/rows.jsonl" || return 1
    for metric in accuracy f1 nll brier ece ece_plain ece_classwise ece_adaptive aurrrc aurrrc_entropy aurrrc_oracle aurc auroc_error \
        auroc aupr_in aupr_out fpr95; do
        grep -qE "^  $metric +[0-9.]+ +[0-9.]+ to [0-9.]+" "$here/out" || { echo "# no $metric"; return 1; }
    done
    out_has "against 30 rows of rain" && out_has "against 20 rows of toy" && out_has "decisions, chosen on 32 dev rows" &&
        out_has "disagreement between prompts"
}
ok "eval prints all numbers" all_numbers
ok "and tells progress" err_has "eval rain done=30 total=30"
files() { [ -s "$here/elbo/results.json" ] && [ -s "$here/elbo/decisions.json" ] && [ -s "$here/elbo/report.html" ]; }
ok "results, decisions and a report are written" files
plus() { grep -q '"shift": \[' "$here/elbo/decisions.json" && out_has "(jackknife+: 0.8 is certain)" && grep -q "(jackknife+)" "$here/elbo/report.html"; }
ok "sets of rows that taught the calibrator are those of the jackknife+" plus
wholesome() { python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); assert d["schema"]=="keyhole-results" and d["version"]==1 and len(d["ood"])==2 and d["eval"]["rows"]==40' "$here/elbo/results.json"; }
if command -v python3 >/dev/null; then ok "another reader of JSON reads them" wholesome; fi
escaped() {
    ! grep -q '<script' "$here/elbo/report.html" && grep -q '<bdi>&lt;script&gt;alert(&quot;' "$here/elbo/report.html" &&
        grep -qF '[U+202E]' "$here/elbo/report.html" &&
        ! grep -q $'\xe2\x80\xae' "$here/elbo/report.html"
}
ok "hostile text is text" escaped

same_as_metrics() {
    grep '"rows":"test"' "$here/rows.jsonl" >"$here/test.jsonl" && [ "$(wc -l <"$here/test.jsonl")" -eq 40 ] &&
        [ "$(wc -l <"$here/rows.jsonl")" -eq 90 ] || return 1
    run 0 metrics "$here/test.jsonl" || return 1
    for metric in accuracy nll ece aurrrc_entropy; do
        { awk -v m=$metric '$1 == m { print $2 }' "$here/out"; grep -oE "\"$metric\": \{\"value\": [0-9.]+" \
            "$here/elbo/results.json" | grep -oE '[0-9.]+$'; } |
            awk 'NR == 1 { a = $1 } NR == 2 { d = a - $1; ok = d < 6e-5 && d > -6e-5 } END { exit !ok }' ||
            { echo "# $metric differs"; return 1; }
    done
}
ok "keyhole metrics finds the same in the rows" same_as_metrics
same_bytes() {
    cp "$here/elbo/results.json" "$here/first.json" && cp "$here/elbo/decisions.json" "$here/first-decisions.json" &&
        evaluate elbo --data "$data" "${ood[@]}" --all --bootstrap 100 --rows-out "$here/rows2.jsonl" --threads 1 &&
        cmp "$here/rows.jsonl" "$here/rows2.jsonl" &&
        sed 's/rows2.jsonl/rows.jsonl/' "$here/elbo/results.json" | cmp - "$here/first.json" &&
        cmp "$here/elbo/decisions.json" "$here/first-decisions.json"
}
ok "the same bytes again, with another number of threads" same_bytes
as_json() { run 0 eval "$here/elbo" --json --no-report --bootstrap 0 --out "$here/elsewhere" &&
    cmp "$here/out" "$here/elsewhere/results.json" && [ ! -e "$here/elsewhere/report.html" ]; }
ok "the data of tuning, JSON, no report, another folder" as_json
dev_split() { run 0 eval "$here/elbo" --split dev --no-report --out "$here/elsewhere" && out_has "32 dev rows" &&
    out_has "These rows were chosen on and judged on at once"; }
ok "other splits" dev_split
some_rows() { run 0 eval "$here/elbo" --rows 10 --bootstrap 0 --no-report --out "$here/elsewhere" && out_has "10 test rows" &&
    grep -q '"rows": 10, "of": 40' "$here/elsewhere/results.json"; }
ok "some rows" some_rows
no_dev() {
    mkdir -p "$here/onlytest" && cp "$data/test.tsv" "$here/onlytest/" && cp -r "$here/elbo21" "$here/bare" &&
        run 0 eval "$here/bare" --data "$here/onlytest" --bootstrap 0 &&
        out_has "no decisions, as there are no dev rows to choose them on" &&
        [ ! -e "$here/bare/decisions.json" ] && grep -q '"decisions": null' "$here/bare/results.json"
}
ok "a folder without dev rows gives no decisions" no_dev
no_gnuplot() {
    mkdir -p "$here/path" &&
        PATH="$here/path" "$(realpath "$KEYHOLE")" eval "$here/elbo" --bootstrap 0 --out "$here/plain" >"$here/out" 2>"$here/err" &&
        err_has "has no plots: gnuplot cannot be started" && err_has "gnuplot-nox" &&
        grep -q "Confidence and accuracy, bin by bin" "$here/plain/report.html" &&
        grep -q 'class="missing"' "$here/plain/report.html"
}
ok "without gnuplot the tables are there, and it is said" no_gnuplot
plots() { [ "$(grep -c '<svg ' "$here/elbo/report.html")" -eq 7 ]; }
if command -v gnuplot >/dev/null; then
    ok "with gnuplot there are seven plots" plots
fi

# ---- what is out-of-distribution: by energy and distance as one score, of the template from train and dev rows
run 0 tune --method manual --model "$model" --task "$toy" --data "$data" --shots 16 --features-model "$model" --seed 13 --out "$here/apart"
by() { grep -q "\"ood\": {\"score\": \"$1\"" "$here/apart/decisions.json"; }
joint() { evaluate apart --data "$data" --bootstrap 0 --no-report --ood "$here/numbers" && by both && out_has "out-of-distribution where energy and distance is above " &&
    out_has "(from 64 rows)" && grep -q '"threshold": [0-9.e+-]*, "energy": {"middle": ' "$here/apart/decisions.json" && grep -q '"both": {' "$here/apart/results.json"; }
ok "energy and distance decide together" joint
single() { evaluate apart --data "$data" --bootstrap 0 --no-report --ood-score distance && by distance && ! grep -q '"middle"' "$here/apart/decisions.json"; }
ok "one alone where it is asked for" single
small_keep() { evaluate apart --data "$data" --bootstrap 0 --no-report --keep 0.99 && by distance && out_has "64 rows are too few"; }
ok "too few rows for both: distance" small_keep
again() { evaluate apart --data "$data" --bootstrap 0 --no-report && cp "$here/apart/decisions.json" "$here/first.json" &&
    evaluate apart --data "$data" --bootstrap 0 --no-report --threads 1 && cmp -s "$here/first.json" "$here/apart/decisions.json" &&
    run 0 predict "$here/apart" "$here/numbers/test.tsv" --format text && out_has '"ood":true'; }
ok "the same bits again, and predict goes by them" again

# ---- predict after eval
evaluate elbo --data "$data" --bootstrap 0 --no-report >/dev/null
after_eval() { predict && err_has "warning: when it was judged, " && [ "$(wc -l <"$here/err")" -eq 1 ] &&
    grep -qE '"abstain":(true|false),"set":\[[^]]*\],"ood_score":-?[0-9.]+,"ood":(true|false),' "$here/out"; }
ok "predict decides" after_eval
agrees() { # the rows file of eval and predict decide alike, line by line
    run 0 predict "$here/elbo" "$data/test.tsv" && grep -oE '"abstain":(true|false)' "$here/out" | tr -d ' ' >"$here/a" &&
        grep '"rows":"test"' "$here/rows.jsonl" | grep -oE '"abstain":(true|false)' | cmp - "$here/a" &&
        grep -oE '"(energy|ood_score|ood)":[^,]*' "$here/out" >"$here/c" && grep -q '"energy":-*[0-9]' "$here/c" &&
        grep '"rows":"test"' "$here/rows.jsonl" | grep -oE '"(energy|ood_score|ood)":[^,]*' | cmp - "$here/c" &&
        grep -oE '"set":\[[^]]*\]' "$here/out" | tr -cd ',\n' | awk '{ print length }' >"$here/b" &&
        grep '"rows":"test"' "$here/rows.jsonl" | grep -oE '"set":\[[^]]*\]' | tr -cd ',\n' | awk '{ print length }' |
        cmp - "$here/b"
}
ok "and as eval did" agrees
table() { run 0 predict "$here/elbo" "$data/test.tsv" --output tsv && [ "$(awk -F'\t' 'NF == 13' "$here/out" | wc -l)" -eq 41 ] &&
    sed -n 2p "$here/out" | grep -qE $'\t(yes|no)\t'; }
ok "in a table, too" table
one_record() { # eval's rows are predict's records with the truth and the text beside them; --json holds the same
    run 0 predict "$here/elbo" "$data/test.tsv" --json && cp "$here/out" "$here/whole.json" &&
        run 0 predict "$here/elbo" "$data/test.tsv" --jsonl && run 2 predict "$here/elbo" "$data/test.tsv" --json --tsv &&
        run 0 predict "$here/elbo" "$data/test.tsv" && grep '"rows":"test"' "$here/rows.jsonl" >"$here/test.jsonl" &&
        python3 -c 'import json,sys
whole = json.load(open(sys.argv[1]))["predictions"]
lines = [json.loads(l) for l in open(sys.argv[2])]
rows = [json.loads(l) for l in open(sys.argv[3])]
assert whole == lines and len(rows) == len(lines)
for r in rows: assert r.pop("rows") == "test" and r.pop("true") in r["distribution"] and r.pop("text")
assert rows == lines' "$here/whole.json" "$here/out" "$here/test.jsonl"
}
ok "one record for all" one_record
stale() { cp -r "$here/elbo21" "$here/stale" && cp "$here/elbo/decisions.json" "$here/stale/" &&
    says 1 "was made for another posterior" predict "$here/stale" "$here/text" --format text; }
ok "decisions of another posterior are refused" stale
flat() { # the same peak for ten times the rows; looked at without a pause, for a short run must be seen near its end
    for i in $(seq 2000); do echo "the boats number $i"; done >"$here/few" &&
        for i in $(seq 10); do cat "$here/few"; done >"$here/many"
    for f in few many; do
        ASAN_OPTIONS=quarantine_size_mb=1:thread_local_quarantine_size_kb=16 \
            "$KEYHOLE" predict "$here/manual" "$here/$f" --format text --threads 1 >"$here/out" 2>"$here/err" &
        pid=$! peak=0
        while kill -0 $pid 2>/dev/null; do
            now=$(awk '/VmHWM/ { print $2 }' "/proc/$pid/status" 2>/dev/null) && [ -n "$now" ] && peak=$now
        done
        wait $pid || return 1
        echo "$peak" >"$here/peak-$f"
    done
    [ "$(wc -l <"$here/out")" -eq 20000 ] && [ "$(cat "$here/peak-many")" -lt $(($(cat "$here/peak-few") + 6000)) ]
}
ok "twenty thousand rows take no more memory than two thousand" flat

# ---- compare
evaluate elbo21 --bootstrap 0 --no-report >/dev/null
evaluate elbo-pop --bootstrap 0 --no-report >/dev/null
side_by_side() { run 0 compare "$here/elbo" "$here/elbo21" "$here/elbo-pop" --metrics accuracy,ece &&
    [ "$(wc -l <"$here/out")" -eq 3 ] && out_has " ± " && grep -qE '^  elbo kl-weight=1(\.0)? +2 ' "$here/out" && out_has "*"; }
ok "compare shows seeds together and the best" side_by_side
for format in table markdown csv latex html; do
    ok "compare as $format" run 0 compare "$here/elbo" "$here/elbo-pop" --format $format
done
ok "compare as JSON" both 0 '"best": true' compare "$here/elbo" "$here/elbo-pop" --metrics all --json
ok "the same seed twice" says 1 "are the same method with the same seed; name one of them" compare "$here/elbo" "$here/elbo"
ok "a run that was not judged" says 1 "no results.json in it; \"keyhole eval $here/manual --data DIR\" makes one" \
    compare "$here/manual"
ok "a metric that nobody has" says 1 'no run has a metric "speed"' compare "$here/elbo" --metrics speed
ok "no metric" says 2 "--metrics names none" compare "$here/elbo" --metrics ,

# ---- refusals
ok "an OOD set without a name" says 2 "--ood takes NAME=DIR" eval "$here/elbo" --ood "$here/nowhere"
own_template() {
    run 0 eval "$here/elbo" --no-report --bootstrap 0 --ood "$here/numbers/" "$toy=$here/numbers" &&
        out_has "against 20 rows of numbers" &&
        [ "$(grep '^  auroc  ' "$here/out" | uniq | wc -l)" -eq 1 ]
}
ok "a folder alone takes the template of the run" own_template
ok "an unknown task" says 1 "nosuchtask" eval "$here/elbo" --ood nosuchtask="$here/rain"
ok "an OOD folder that is not there" says 1 "nowhere" eval "$here/elbo" --ood rte="$here/nowhere"
ok "no test rows" says 1 "to judge on" eval "$here/elbo" --data "$model"
ok "no posterior" says 1 "no posterior.json in it" eval "$data"
ok "an output that cannot be written" says 1 "test.tsv" eval "$here/elbo" --bootstrap 0 --no-report --out "$data/test.tsv/deep"
ok "a wrong split" says 2 "--split takes one of test|dev|train" eval "$here/elbo" --split all

echo "1..$n"
exit $failed
