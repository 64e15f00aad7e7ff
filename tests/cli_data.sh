#!/bin/bash
# cli_data.sh - keyhole data check, stats and split, as a user types them.
. tests/tap.sh

d=$here/data
mkdir -p "$d/kshot2"
{
    printf 'label\ttext\n'
    for i in 1 2 3 4 5 6; do printf '0\tdull number %d\n1\tfine number %d\n' $i $i; done
} >"$d/train.tsv"
printf 'label\ttext\n0\tdull number 1\n1\tnew\n1\tnew\n0\tnew\n' >"$d/test.tsv"
printf 'negative\npositive\n' >"$d/labels.txt"
printf 'label\ttext\n0\ta\n1\tb\n0\tc\n1\td\n' >"$d/kshot2/seed7.train.tsv"
printf 'label\ttext\n0\te\n1\tf\n0\tg\n1\th\n' >"$d/kshot2/seed7.dev.tsv"

ok "check finds nothing wrong" both 0 "4 files, 24 rows, no problems" data check "$d"
ok "check with a task" both 0 "no problems" data check "$d" --task sst2
ok "check as JSON" both 0 '"n_problems": 0, "n_files": 4, "n_rows": 24' data check "$d" --json
printf 'label\ttext\n0\ta\nx\n2\tb\n1\t\n' >"$here/bad.tsv"
ok "check prints each problem and says" says 1 "3 problems in 1 file" data check "$here/bad.tsv"
ok "check names file and line" out_has "bad.tsv:3: 1 columns, but 2 in the first row"
ok "check names the empty text" out_has "bad.tsv:5: the text is empty"
ok "check names the class without rows" out_has "bad.tsv: no row has label 1"
ok "check stops printing where asked" says 1 "--max-problems shows more" data check "$here/bad.tsv" --max-problems 1
ok "one line was printed" test "$(wc -l <"$here/out")" -eq 1
ok "check as JSON says too" both 1 '"n_problems": 3' data check "$here/bad.tsv" --json
printf 'label,text\n0,"a\n' >"$here/q.csv"
ok "check of an unclosed quote" both 1 "q.csv:2: a quoted field of the row that starts here is never closed" \
    data check "$here/q.csv"
ok "check of a missing file" both 1 "nowhere.tsv: cannot open" data check "$here/nowhere.tsv"
mkdir "$here/empty"
ok "check of an empty folder" says 1 "empty: no train, dev or test file" data check "$here/empty"
ok "check of no argument is wrong usage" says 2 "DIR|FILE is needed" data check
ok "check of an unknown task" says 1 "neither a task file nor a built-in task" data check "$d" --task sst9
ok "check with a task for pairs" both 1 "rows hold one text, but task \"rte\" takes two" data check "$d/test.tsv" --task rte
printf 'index\tsentence\n0\ta\n' >"$here/u.tsv"
ok "check wants labels" both 1 "u.tsv:1: no label column" data check "$here/u.tsv"
ok "check without labels, if asked" both 0 "no problems" data check "$here/u.tsv" --unlabelled

ok "stats of a folder" both 0 "overlap: 1 of 4 test rows also stand in train" data stats "$d"
ok "stats count classes" out_has "0 negative                       6   50.0 %"
ok "stats count duplicates" out_has "2 rows repeat an earlier one, 1 of them with another label"
ok "stats list splits" out_has "few-shot splits of 2: seeds 7"
ok "stats measure characters" out_has "characters  mean 13.0, median 13, 95 % up to 13, max 13"
ok "stats of one file" both 0 "rows        4" data stats "$d/test.tsv"
ok "stats as JSON" both 0 '"overlap": 1, "splits": [{"shots": 2, "seed": 7}]' data stats "$d" --json
ok "stats of bad rows fail" says 1 "bad.tsv:3: 1 columns" data stats "$here/bad.tsv"
ok "stats skip bad rows, if asked" both 0 "rows        2, and 2 malformed ones left out" data stats "$here/bad.tsv" --skip-bad-rows
ok "skipped rows are reported" err_has "bad.tsv:3: 1 columns"
ok "stats of unlabelled rows" both 0 "rows        1, 1 of them without a label" data stats "$here/u.tsv"
ok "stats in tokens" both 0 "; 4 rows over 5" data stats "$d/test.tsv" --model tests/vectors/tokenizers/tiny-bpe.json --max-len 5 \
    --task sst2
ok "stats in tokens without a task" both 0 "tokens      mean" data stats "$d/test.tsv" \
    --model tests/vectors/tokenizers/tiny-wordpiece.json
ok "stats of a forced format" says 1 "no text column" data stats "$d/test.tsv" --format csv

ok "split draws" both 0 "train.tsv 4 rows, dev.tsv 4 rows, drawn (2 shots, seed 13)" data split "$d" --shots 2 --out "$here/few"
ok "split writes files that check" both 0 "2 files, 8 rows, no problems" data check "$here/few"
ok "split writes the names of classes" test "$(cat "$here/few/labels.txt")" = "$(printf 'negative\npositive')"
ok "split does not write over files" says 1 "train.tsv: is there already; --force writes over it" data split "$d" --shots 2 \
    --out "$here/few"
cp "$here/few/train.tsv" "$here/before.tsv"
ok "split again, by force" run 0 data split "$d" --shots 2 --out "$here/few" --force
ok "split is the same every time" cmp -s "$here/before.tsv" "$here/few/train.tsv"
ok "split takes a ready-made one" both 0 "ready-made (2 shots, seed 7)" data split "$d" --shots 2 --seed 7 --out "$here/ready"
ok "split as it was" grep -q "^1	d$" "$here/ready/train.tsv"
ok "split of too many shots" says 1 "class 0 (negative) has 6 rows; 4 shots for train and as many for dev need 8" data split "$d" \
    --shots 4 --out "$here/x"
ok "split as JSON" both 0 '"drawn": true, "train_rows": 6, "dev_rows": 6' data split "$d" --shots 3 --out "$here/y" --json
ok "split wants --out" says 2 "--out DIR is needed" data split "$d"
ok "help teaches" both 0 "keyhole data split DIR --shots 16 --seed 13 --out few" data split --help
ok "the family is listed" both 0 "data stats" data --help

for task in sst2 yelp imdb agnews dbpedia mrpc rte snli mnli; do
    if [ -r "../shared/data/$task/test.tsv" ]; then
        ok "check of $task" both 0 "no problems" data check "../shared/data/$task" --task $task
        ok "stats of $task" both 0 "characters" data stats "../shared/data/$task"
    else
        n=$((n + 1))
        echo "# skipped: check of $task: ../shared/data/$task is not there"
        echo "ok $n - check of $task # SKIP ../shared/data/$task is not there"
    fi
done
echo "1..$n"
exit $failed
