#!/bin/bash
# cli_examples.sh - the data in examples/ is what its README says: read without complaint, balanced, without near-duplicates.
. tests/tap.sh
touch "$here/out" "$here/err"

# texts FILE... - the text column, without the header.
texts() { awk -F '\t' 'FNR > 1 { print $2 }' "$@"; }

# counts FILE WANTED - how many rows each class has, as "0:32 1:32".
counts() {
    awk -F '\t' 'FNR > 1 { n[$1]++ } END { for (c = 0; c in n; c++) printf "%s%d:%d", c ? " " : "", c, n[c] }' "$1" >"$here/out"
    [ "$(cat "$here/out")" = "$2" ]
}

# alike FILE... - prints the pairs of texts of which 0.6 or more of the words are common (Jaccard, words taken once, in lower
# case). Only words that two texts share are visited, by a list of the texts that hold each word.
alike() {
    texts "$@" | LC_ALL=C awk '
        { line[NR] = $0
          n = split(tolower($0), w, /[^a-z0-9\x27]+/)
          split("", seen); split("", both)
          for (i = 1; i <= n; i++)
              if (w[i] != "" && !(w[i] in seen)) {
                  seen[w[i]]; size[NR]++
                  m = split(rows[w[i]], r, " ")
                  for (j = 1; j <= m; j++) both[r[j]]++
                  rows[w[i]] = rows[w[i]] " " NR
              }
          for (o in both) if (both[o] >= 0.6 * (size[o] + size[NR] - both[o])) print line[o] "\n  and " line[NR] }'
}
none_alike() { alike "$@" >"$here/out"; [ ! -s "$here/out" ]; }

# lengths FILE... - prints the texts that have fewer than 4 or more than 45 words.
lengths() { texts "$@" | awk 'NF < 4 || NF > 45 { print NF ": " $0 }' >"$here/out"; [ ! -s "$here/out" ]; }

# openings FILE... - prints the first two words with which more than 3 % of the texts begin.
openings() {
    texts "$@" | awk '{ n[tolower($1 " " $2)]++ } END { for (o in n) if (n[o] > 0.03 * NR) print n[o] " x " o }' >"$here/out"
    [ ! -s "$here/out" ]
}

# plain FILE... - valid UTF-8, one tab a line, no carriage return, no space at either end of a text.
plain() {
    cat "$@" | iconv -f UTF-8 -t UTF-8 >/dev/null 2>"$here/err" &&
        ! awk -F '\t' 'NF != 2 || /\r/ || $2 ~ /^ | $|  / { print FILENAME ":" FNR ": " $0; bad = 1 } END { exit !bad }' "$@" \
        >"$here/out"
}

reviews=(examples/reviews/{train,dev,test}.tsv)
topics=(examples/topics/{train,dev,test}.tsv)
tickets=(examples/tickets/{train,dev,test}.tsv)
foreign=examples/foreign/test.tsv

# The flat file has 20 rows of each class: a split with 10 shots takes them all, and writes them with tabs, as the checks want them.
mkdir "$here/flat" && cp examples/tickets.csv "$here/flat/train.csv"
ok "tickets.csv: every row is read" both 0 "1 file, 60 rows, no problems" data check examples/tickets.csv
ok "tickets.csv: ten shots take the whole of it" both 0 "train.tsv 30 rows, dev.tsv 30 rows" \
    data split "$here/flat" --shots 10 --out "$here/flat10"
ok "tickets.csv: its classes go by name" cmp "$here/flat10/labels.txt" <(head -n 3 examples/tickets/labels.txt)
ok "tickets.csv: one text has a line break, others commas and quotes" eval \
    '[ "$(wc -l <examples/tickets.csv)" = 63 ] && grep -q "^\"Hi, .*\",bug" examples/tickets.csv && grep -q "\"\"Team\"\"" examples/tickets.csv'
flat=("$here"/flat10/{train,dev}.tsv)
all=("${reviews[@]}" "${topics[@]}" "${tickets[@]}" "${flat[@]}" "$foreign")

for set in reviews topics tickets; do
    ok "$set: the task file is right" run 0 task check examples/$set/task.json
    ok "$set: every row is read" both 0 "3 files" data check examples/$set --task examples/$set/task.json
    ok "$set: nothing is wrong with them" out_has "no problems"
    ok "$set: no row of one file stands in another" both 0 "overlap: 0 of" data stats examples/$set
    ok "$set: 16 shots can be drawn" both 0 "drawn (16 shots, seed 13)" data split examples/$set --shots 16 --out "$here/$set"
done
ok "foreign: every row is read" both 0 "1 file, 238 rows, no problems" data check examples/foreign --unlabelled
ok "reviews: train is balanced" counts examples/reviews/train.tsv "0:32 1:32"
ok "reviews: dev is balanced" counts examples/reviews/dev.tsv "0:32 1:32"
ok "reviews: test is balanced" counts examples/reviews/test.tsv "0:218 1:218"
ok "topics: train is balanced" counts examples/topics/train.tsv "0:32 1:32 2:32 3:32"
ok "topics: dev is balanced" counts examples/topics/dev.tsv "0:16 1:16 2:16 3:16"
ok "topics: test is balanced" counts examples/topics/test.tsv "0:80 1:80 2:80 3:80"
ok "tickets: train is balanced" counts examples/tickets/train.tsv "0:32 1:32 2:32 3:32"
ok "tickets: dev is balanced" counts examples/tickets/dev.tsv "0:16 1:16 2:16 3:16"
ok "tickets: test is balanced" counts examples/tickets/test.tsv "0:64 1:64 2:64 3:64"
ok "texts have 4 to 45 words" lengths "${all[@]}"
ok "texts are clean UTF-8" plain "${all[@]}"
ok "no two texts are alike" none_alike "${all[@]}"
ok "reviews do not begin alike" openings "${reviews[@]}"
ok "topics do not begin alike" openings "${topics[@]}"
ok "tickets do not begin alike" openings "${tickets[@]}"

# The checks above can fail.
{ cat "$foreign"; printf 'recipe\tfold the egg whites into the batter with a spoon, a third at a time, and stop\n'; } >"$here/twin.tsv"
ok "a near-duplicate is found" eval '! none_alike "$here/twin.tsv"'
ok "both texts are shown" out_has "  and fold the egg whites"
printf 'kind\ttext\nx\ttoo short\n' >"$here/short.tsv"
ok "a short text is found" eval '! lengths "$here/short.tsv"'
printf 'kind\ttext\nx\tbroken \xc3\x28 bytes here\n' >"$here/bytes.tsv"
ok "broken UTF-8 is found" eval '! plain "$here/bytes.tsv"'
printf 'kind\ttext\nx\ttwo  spaces in a row\n' >"$here/spaces.tsv"
ok "doubled spaces are found" eval '! plain "$here/spaces.tsv"'
ok "a common opening is found" eval '! openings "$here/spaces.tsv"'
echo "1..$n"
exit $failed
