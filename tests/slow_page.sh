#!/bin/bash
# The page of "keyhole serve --run" in headless Chromium, 390 and 1280 px wide. Needs Debian's chromium, node and npm, and
# playwright-core from npm.
if ! tools/setup.sh chromium || ! command -v npm >/dev/null; then
    echo "# skipped: page: no chromium or npm"
    echo "ok 1 - page # SKIP no chromium or npm"
    exit 0
fi
work=$(mktemp -d)
server=
trap '[ -n "$server" ] && kill "$server"; rm -rf "$work"' EXIT
if ! npm install --prefix "$work" --no-fund --no-audit playwright-core >"$work/npm.log" 2>&1; then
    echo "# skipped: page: npm cannot install playwright-core"
    echo "ok 1 - page # SKIP npm cannot install playwright-core"
    exit 0
fi
mkdir "$work/data"
cat >"$work/toy.json" <<'END'
{ "name": "toy", "template": "{text} It was {mask} .",
  "labels": [ { "name": "bad", "words": ["lower"] }, { "name": "good", "words": ["better"] } ] }
END
{
    printf 'label\ttext\n'
    for i in $(seq 24); do printf '%d\tthe boats number %d were green\n' $((i % 2)) "$i"; done
} >"$work/data/train.tsv"
"$KEYHOLE" model random --arch tiny --seed 3 --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-bpe.json \
    --out "$work/model" >/dev/null &&
    "$KEYHOLE" tune --effort paper --method ensemble --members 4 --budget-generations 3 --pop 5 --model "$work/model" --task "$work/toy.json" \
    --data "$work/data" \
        --shots 4 --dim 12 --slots 5 --p0 random --out "$work/run" >/dev/null 2>&1 ||
        { echo "not ok 1 - a classifier to look at"; exit 1; }
"$KEYHOLE" serve --run "$work/run" --port 0 >"$work/port" 2>/dev/null &
server=$!
for _ in $(seq 100); do [ -s "$work/port" ] && break; sleep 0.1; done
url=$(sed 's/.* at //' "$work/port")
failed=0
for width in 390 1280; do
    NODE_PATH=$work/node_modules node tests/slow_page.js "$url" $width || failed=1
done
exit $failed
