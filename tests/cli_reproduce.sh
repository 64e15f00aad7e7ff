#!/bin/bash
# reproduce: the paper's grid in small, on a tiny random model and generated rows: tables, second calls, kills, refusals.
. tests/tap.sh
model=$here/model data=$here/data
: >"$here/out" && : >"$here/err"
mkdir -p "$data/sst2" "$data/agnews" "$data/rte" "$data/dbpedia"
rows() { # FILE CLASSES N
    {
        printf 'label\ttext\n'
        for i in $(seq "$3"); do printf '%d\tthe boats number %d were green\n' $((i % $2)) $((i * 7 % 50)); done
    } >"$1"
}
rows "$data/sst2/train.tsv" 2 40 && rows "$data/sst2/test.tsv" 2 30
rows "$data/agnews/train.tsv" 4 40 && rows "$data/agnews/test.tsv" 4 20
{
    printf 'text_a\ttext_b\n'
    for i in $(seq 15); do printf 'it rains %d\tthe sun shines\n' "$i"; done
} >"$data/rte/test.tsv"
random_model() { "$KEYHOLE" model random --arch tiny --seed 3 --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-bpe.json \
    --out "$1" >/dev/null; }
ok "a tiny model" random_model "$model"
common=(reproduce --model "$model" --data "$data" --shots 4 --dim 12 --slots 5 --p0 random --preset fast)
small=("${common[@]}" --tasks sst2,agnews --methods bbt,ensemble,smc --seeds 13,21 --tables 1,2,3,4)
page=$here/out1/reproduction.md
hashes() { (cd "$1/runs" && find . -type f ! -name '*-shm' ! -name '*-wal' ! -name run.lock -exec sha256sum {} + | sort); }

# ---- the grid
ok "two tasks, three methods, two seeds" both 0 "runs      12, 12 of them done, 12 now" "${small[@]}" --out "$here/out1"
ok "every run is a folder with its results" [ "$(ls "$here"/out1/runs/*/results.json | wc -l)" -eq 12 ]
ok "progress counts runs" err_has "reproduce done=12 total=12 run=agnews-smc-21 done left=0.0s"
for title in "Table 1: accuracy" "Table 2: calibration" "Table 3: selective" "Table 4: out-of-distribution rows" "What labels only cost" "Rank of" \
    "Significance" "Cost of a run"; do
    ok "there is $title" grep -qF "## $title" "$page"
done
ok "and as a page" grep -qF "<h2>Table 1: accuracy</h2>" "$here/out1/reproduction.html"
ok "tables that were not asked for are not there" test "$(grep -c "Ablations" "$page")" -eq 0
first_table() { sed -n '/Table 1/,/Table 2/p' "$page" | grep -qE '^\| method \| sst2 \| agnews \| average \|$'; }
ok "methods x tasks and the average" first_table
ok "mean and deviation over seeds" grep -qE '^\| (BBT|SMC \(ours\)) \| (\*\*)?[0-9.]+ ± [0-9.]+' "$page"
ok "the paper's number stands below ours" grep -qE '^\| BBT \| [^|]*\(86.9 · 74.8\)' "$page"
ours_alone() { sed -n '/Table 1/,/Table 2/p' "$page" | grep -E '^\| SMC' | grep -vq '·'; }
ok "a method of ours has none" ours_alone
ok "the paper's best of each access level" grep -qF "| average accuracy or F1 | 74.4 (Ensembles) | 70.1 (ABC-SMC) |" "$page"
ok "the pair from elsewhere" grep -qF "| method | sst2/rte |" "$page"
ok "its lower bound" grep -qF "| lower bound |" "$page"
ok "no row is empty" test "$(grep -cE '^\|(  \|)+$' "$page")" -eq 0
ok "paired tests" grep -qE '^\| ensemble - bbt \| sst2 \| (\*\*)?[+-]' "$page"
mean_is_right() { # of the table against the results of the two runs
    awk -F'"value": ' '/"accuracy"/ { split($2, x, "[,}]"); s += x[1] } END { printf "%.1f", 50 * s }' \
        "$here"/out1/runs/sst2-bbt-{13,21}/results.json >"$here/mean" &&
        sed -n '/Table 1/,/Table 2/p' "$page" | grep -E '^\| BBT' | tr -d '*' | grep -qF "| $(cat "$here/mean") ±"
}
ok "the mean is that of the runs" mean_is_right

ok "the questions come first" [ "$(grep '^## ' "$page" | sed -n 1p)" = "## The six questions" ]
ok "then what the paper found and we do not" [ "$(grep '^## ' "$page" | sed -n 2p)" = "## What the paper found and we do not" ]
verdicts() { [ "$(sed -n '/^## The six/,/^## What/p' "$page" | grep -cE '^\| [1-6]\. .* \| (yes|no|cannot tell) \|$')" -eq 6 ]; }
ok "each answered by yes, no or cannot tell" verdicts
ok "conformal sets on and off" grep -qE '^\| BBT \| (\*\*)?[0-9.]+ \| [0-9.]+ \| [0-9.]+ \|$' "$page"
ok "queries to reach a dev accuracy" grep -qE '^\| SMC \(ours\) \| [0-9]+ \([1-4] of 4\)' "$page"
ok "fast asks in int8" grep -q '"precision": "int8"' "$here/out1/runs/sst2-bbt-13/results.json"
ok "unless told otherwise" run 0 "${common[@]}" --tasks sst2 --methods bbt --seeds 13 --tables 1 --precision f32 --out "$here/f32"
ok "it does" grep -q '"precision": "f32"' "$here/f32/runs/sst2-bbt-13/results.json"

# ---- what tune does, beside the paper's methods
as_tune_does() { # the same posterior as from the command itself, which keeps features beside it unless told not to
    run 0 "${common[@]}" --tasks sst2 --methods bbt,tune-bbt,tune-smc --seeds 13 --tables defaults --out "$here/defaults" &&
        run 0 tune --method bbt --effort quick --model "$model" --task sst2 --data "$data/sst2" --shots 4 --seed 13 --dim 12 --slots 5 \
            --p0 random --precision int8 --features-model none --out "$here/tuned" &&
        cmp "$here/tuned/posterior.safetensors" "$here/defaults/runs/sst2-tune-bbt-13/posterior.safetensors"
}
ok "the rows of defaults are runs of tune" as_tune_does
ok "they have a table" grep -qF "## Beyond the paper: what tune does by default" "$here/defaults/reproduction.md"
ok "the paper's stand in it" grep -qE '^\| BBT \| ' "$here/defaults/reproduction.md"
ok "and labels only against log-probabilities" grep -qF "As tune has it, over 1 task: bbt" "$here/defaults/reproduction.md"

# ---- what is kept of a grid makes its tables again, without texts of the data or paths
packs() {
    bench/grid.py pack "$here/grid.tar.xz" "$here/out1" && bench/grid.py unpack "$here/grid.tar.xz" "$here/again" "$model" "$data" &&
        run 0 "${small[@]}" --out "$here/again" && out_has "12 of them done, 0 now" && cmp "$page" "$here/again/reproduction.md"
}
no_leak() { mkdir "$here/packed" && tar -C "$here/packed" -xf "$here/grid.tar.xz" && ! grep -rqE "$here|boats" "$here/packed"; }
kept_rows() { bench/grid.py rows "$here/out1" >"$here/rows" && [ "$(wc -l <"$here/rows")" -eq 13 ] && grep -q "^sst2,bbt,13,30,0\.[0-9]*," "$here/rows"; }
if python3 -c 'import sqlite3, lzma' 2>/dev/null; then
    ok "a packed grid makes the same tables" packs
    ok "it holds no text and no path" no_leak
    ok "a row a run" kept_rows
else
    n=$((n + 1)) && echo "ok $n - a packed grid makes the same tables # SKIP no python3 with sqlite3 and lzma"
fi

# ---- again
hashes "$here/out1" >"$here/before" && cp "$page" "$here/page"
again() { run 0 "${small[@]}" --out "$here/out1" && out_has "12 of them done, 0 now" && hashes "$here/out1" |
    cmp - "$here/before" && cmp "$page" "$here/page"; }
ok "a second call touches no run and writes the same tables" again
without_model() { mv "$model" "$here/away" && again; local rc=$?; mv "$here/away" "$model"; return $rc; }
ok "it does not even open the model" without_model
ok "as JSON" both 0 '{"runs":12,"done":12,"new":0,"failed":0,"left_out":0}' "${small[@]}" --out "$here/out1" --json
more() { run 0 "${small[@]}" --out "$here/out1" --seeds 13,21,42 --methods bbt && out_has "runs      6, 6 of them done, 2 now"; }
ok "more seeds take only the new runs" more
judged_again() {
    sqlite() { "$KEYHOLE" runs "$here/out1/runs/sst2-bbt-13" --json | sed 's/.*"queries":\([0-9]*\).*/\1/'; }
    local before
    before=$(sqlite) && run 0 "${small[@]}" --out "$here/out1" --tasks sst2 --methods bbt --rows 10 && out_has "2 now" &&
        [ "$(sqlite)" = "$before" ] &&
        grep -q '"rows": 10, "of": 30' "$here/out1/runs/sst2-bbt-13/results.json"
}
ok "other rows are judged without tuning again" judged_again

# ---- kills
one=("${common[@]}" --tasks sst2 --methods elbo,abc-smc --seeds 13,21 --tables 1)
ok "undisturbed" run 0 "${one[@]}" --out "$here/whole"
reached() { run 0 "${common[@]}" --tasks sst2 --methods abc-smc,smc --seeds 13,21 --tables 1 --out "$here/whole" &&
    grep -qE 'In [12] pairs? of runs, to the best dev accuracy that both reach' "$here/whole/reproduction.md"; }
ok "smc and abc-smc by their records" reached
killed() { # SIGNAL STATUS: some kills, then to the end; the posteriors are those of the undisturbed runs
    local pid status i
    rm -rf "$here/cut"
    for i in 1 2 3; do
        "$KEYHOLE" "${one[@]}" --out "$here/cut" >"$here/out" 2>"$here/err" &
        pid=$!
        sleep "0.$((1 + i * 2))"
        kill "-$1" $pid 2>/dev/null
        wait $pid
        status=$?
        [ $status -eq "$2" ] || [ $status -eq 0 ] || return 1
    done
    run 0 "${one[@]}" --out "$here/cut" && for i in elbo-13 elbo-21 abc-smc-13 abc-smc-21; do
        cmp "$here/whole/runs/sst2-$i/posterior.safetensors" "$here/cut/runs/sst2-$i/posterior.safetensors" || return 1
    done
}
ok "killed, it goes on to the same bits" killed KILL 137 2>/dev/null
ok "so it does after Ctrl-C" killed INT 130
without_time() { # the page but for the seconds that runs took
    sed -E '/^## Cost of a run/,/^## /s/^(\| [^|]+ \| [0-9]+ \| [0-9]+ \| [0-9]+ \|) [0-9.]+ (\| [0-9]+ \|) [0-9.]+ \|$/\1 \2/' "$1"
}
same_tables() {
    run 0 "${one[@]}" --out "$here/whole" && without_time "$here/whole/reproduction.md" >"$here/a" &&
        without_time "$here/cut/reproduction.md" | cmp - "$here/a"
}
ok "and to the same tables, all but the seconds" same_tables
standard=("${common[@]}" --preset standard --tasks sst2 --methods manual,bbt,smc-10 --seeds 13 --tables 1,2,samples)
twice() { # two folders, and a second call in the first
    run 0 "${standard[@]}" --out "$here/st1" && run 0 "${standard[@]}" --out "$here/st2" || return 1
    local f
    for f in manual-13 bbt-13 smc-10-13; do
        cmp "$here/st1/runs/sst2-$f/posterior.json" "$here/st2/runs/sst2-$f/posterior.json" &&
            cmp "$here/st1/runs/sst2-$f/answers.jsonl" "$here/st2/runs/sst2-$f/answers.jsonl" || return 1
    done
    without_time "$here/st1/reproduction.md" >"$here/a" && without_time "$here/st2/reproduction.md" | cmp - "$here/a" || return 1
    hashes "$here/st1" >"$here/before" && cp "$here/st1/reproduction.html" "$here/page.html" &&
        run 0 "${standard[@]}" --out "$here/st1" && out_has "3 of them done, 0 now" && hashes "$here/st1" | cmp - "$here/before" &&
        cmp "$here/st1/reproduction.html" "$here/page.html"
}
ok "the standard preset gives the same bits twice" twice
ok "and says what it is" grep -qF "Preset: standard." "$here/st1/reproduction.md"
interrupted() {
    "$KEYHOLE" "${common[@]}" --tasks sst2 --methods bbt --preset paper --seeds 13 --tables 1 \
        --out "$here/int" >"$here/out" 2>"$here/err" &
    local pid=$!
    soon $pid [ -s "$here/int/runs/sst2-bbt-13/run.sqlite" ]
    kill -INT $pid
    wait $pid
    [ $? -eq 130 ] && err_has "interrupted with 0 of 1 runs done; the same command goes on"
}
ok "which says how to go on" interrupted
ok "no time" both 0 "the time is up, the same command goes on" "${small[@]}" --out "$here/notime" --budget-time 0.000001
ok "the page says what is not done" grep -qF "| sst2-bbt-13 | not done yet: the same command goes on |" \
    "$here/notime/reproduction.md"

# ---- forecasts
ok "a forecast" both 0 "forecast: 12 runs, at most " "${small[@]}" --out "$here/dry" --dry-run
ok "leaves nothing behind" [ ! -e "$here/dry" ]
ok "as JSON, too" both 0 '{"runs":12,"queries":' "${small[@]}" --out "$here/dry" --dry-run --json

# ---- what is not there
missing() {
    run 0 "${common[@]}" --tasks sst2,snli,yelp --methods manual,feature-mlp,manual-exact --seeds 13 --out "$here/missing" &&
        err_has "left out: snli: there is no folder $data/snli, so its columns are empty" &&
        [ "$(grep -c "snli" "$here/err")" -eq 1 ] && grep -qF "| snli | there is no folder" "$here/missing/reproduction.md"
}
ok "folders that are not there are named once, and in the page" missing
broken() { # dbpedia has no rows
    run 1 "${common[@]}" --tasks sst2,dbpedia --methods manual --seeds 13 --tables 1 --out "$here/broken" &&
        err_has "1 of 2 runs failed; $here/broken/reproduction.md says why" &&
        grep -qF "| dbpedia-manual-13 |" "$here/broken/reproduction.md"
}
ok "a run that fails is written down, the others go on" broken
"$KEYHOLE" model random --arch tiny --seed 4 --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-bpe.json \
    --out "$here/third" >/dev/null
ok "another model in the same folder" says 1 "the model's fingerprint was" "${common[@]}" --model "$here/third" --tasks sst2 \
    --methods elbo --seeds 13 --tables 1 --out "$here/whole"

# ---- several backbones
beside() {
    run 0 "${standard[@]}" --model "$here/third" --out "$here/st3" --beside "$here/st1" &&
        grep -qF '| question | third | model |' "$here/st3/reproduction.md" &&
        grep -qE '^\| Manual Prompt \| (\*\*)?[0-9.]+ \([0-9.]+\)' "$here/st3/reproduction.md" &&
        grep -qF "Line 2 of a cell is model: 3 of 3 runs are done." "$here/st3/reproduction.md"
}
ok "another model's numbers stand in the same cells" beside
ok "a folder that is no grid" says 1 "grid.json: not there; --beside takes the --out of another" "${standard[@]}" \
    --out "$here/st1" --beside "$here/model"

# ---- published numbers
cat >"$here/published.json" <<'END'
{ "source": "a test", "values": [ { "table": "1", "method": "bbt", "task": "sst2", "value": 12.5, "sd": 0.5 }, { "table": "1", "method": "bbt", "task": "average", "value": 11 } ] }
END
ok "published numbers from a file" run 0 "${small[@]}" --out "$here/out1" --published "$here/published.json"
ok "stand below ours, instead of what is built in" grep -qE '^\| BBT \| [^|]*\(12.5 · 74.8\)(\*\*)? \|.*\(11.0\)(\*\*)? \|$' "$page"
ok "and change ranks" grep -qE '^\| BBT \| [0-9] \| 12 \| [0-9] \| 3 \|$' "$page"
refused() { echo "$1" >"$here/p.json" && says 1 "$2" "${small[@]}" --out "$here/out1" --published "$here/p.json"; }
ok "without a source" refused '{"values": []}' 'must say where its numbers come from, in "source"'
ok "without values" refused '{"source": "x"}' '"values" must be an array'
ok "without a method" refused '{"source": "x", "values": [{"table": "1"}]}' 'value 1: "method" is missing'
ok "an unknown table" refused '{"source": "x", "values": [{"table": "9", "method": "bbt", "task": "sst2", "value": 1}]}' \
    '"table" is "9", expected "1" to "4"'
ok "an unknown method" refused '{"source": "x", "values": [{"table": "1", "method": "b", "task": "sst2", "value": 1}]}' \
    '"method" is "b", which no table has'
ok "an unknown task" refused '{"source": "x", "values": [{"table": "1", "method": "bbt", "task": "s", "value": 1}]}' \
    '"task" is "s", which no table has'

# ---- refusals
ok "an unknown table to make" says 2 '--tables: there is no "5"; there are 1, 2, 3, 4, weights' "${small[@]}" --out "$here/x" \
    --tables 1,5
ok "an unknown task to run" says 2 '--tasks: there is no "sst3"; there are sst2, yelp' "${small[@]}" --out "$here/x" --tasks sst3
ok "an unknown method to run" says 2 '--methods: there is no "bbq"; there are manual, icl' "${small[@]}" --out "$here/x" \
    --methods bbq
ok "no table" says 2 "--tables names none" "${small[@]}" --out "$here/x" --tables ,
ok "seeds that are none" says 2 '--seeds takes whole numbers with commas between them; got "x"' "${small[@]}" --out "$here/x" \
    --seeds 1,x
ok "no seeds" says 2 "--seeds names none" "${small[@]}" --out "$here/x" --seeds ,
ok "a seed twice" says 2 "--seeds names 13 twice" "${small[@]}" --out "$here/x" --seeds 13,13
ok "no data" says 1 "there is no such folder; --data takes one with a folder for each task" "${small[@]}" --out "$here/x" \
    --data "$here/nowhere"
ok "nothing to run" says 1 "nothing to run: the methods that were named are in none of the tables" "${small[@]}" --out "$here/x" \
    --tables weights --methods bbt
ok "no task there" says 1 "nothing to run: snli: there is no folder" "${small[@]}" --out "$here/x" --tasks snli
few() { run 0 "${small[@]}" --methods manual --out "$here/few" && ! grep -qE "More samples|Appendix: uniform" "$here/few/reproduction.html" &&
    grep -q "No task has runs of two methods that are compared here." "$here/few/reproduction.html"; }
ok "tables without a row are left out" few
: >"$here/a-file"
ok "no folder to write to" says 1 "a-file" "${small[@]}" --out "$here/a-file/deep"

echo "1..$n"
exit $failed
