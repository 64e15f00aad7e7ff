#!/bin/bash
# Decision services, both sides of the wire. The clients "openai" and "@typesafe-ai/sdk" from npm, unmodified, against
# "keyhole serve"; and keyhole as a client that is killed with SIGKILL and resumed, against a stand-in that counts. Needs node and npm.
skip() {
    echo "# skipped: decisions: $1"
    echo "ok 1 - decisions # SKIP $1"
    exit 0
}
command -v npm >/dev/null && command -v node >/dev/null || skip "no node or npm"
work=$(mktemp -d)
servers=()
trap 'for s in "${servers[@]}"; do kill "$s" 2>/dev/null; done; rm -rf "$work"' EXIT
npm install --prefix "$work" --no-fund --no-audit openai@7.53.0 @typesafe-ai/sdk@0.6.0 >"$work/npm.log" 2>&1 ||
    skip "npm cannot install openai and @typesafe-ai/sdk"
mkdir "$work/data"
cat >"$work/toy.json" <<'END'
{ "name": "toy", "template": "{text} It was {mask} .",
  "labels": [ { "name": "bad", "words": ["lower"] }, { "name": "good", "words": ["better"] } ] }
END
{
    printf 'label\ttext\n'
    for i in $(seq 120); do printf '%d\tthe boats number %d were green\n' $((i % 2)) "$i"; done
} >"$work/data/train.tsv"
common=(--task "$work/toy.json" --data "$work/data" --method manual)
"$KEYHOLE" model random --arch tiny --seed 3 --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-bpe.json \
    --out "$work/model" >/dev/null &&
    "$KEYHOLE" tune "${common[@]}" --shots 8 --model "$work/model" --out "$work/a" >/dev/null 2>&1 &&
    "$KEYHOLE" tune "${common[@]}" --shots 12 --model "$work/model" --out "$work/b" >/dev/null 2>&1 ||
    { echo "not ok 1 - classifiers to ask"; exit 1; }
failed=0
urls=()
start() { # NAME ARGS...: a server in the background, its address at the end of urls
    "$KEYHOLE" serve --port 0 "${@:2}" >"$work/$1.at" 2>"$work/$1.err" &
    servers+=($!)
    for _ in $(seq 100); do [ -s "$work/$1.at" ] && break; sleep 0.1; done
    urls+=("$(sed 's/.* at //' "$work/$1.at")")
}
start runs --run mood="$work/a" --run other="$work/b"
start model --model "$work/model" --access logprobs
start labels --model "$work/model" --access labels
echo open-sesame >"$work/token"
start keyed --model "$work/model" --access logprobs --token-file "$work/token"
start busy --model "$work/model" --access logprobs --queue 1
NODE_PATH=$work/node_modules node tests/slow_decisions.js "${urls[@]}" || failed=1

# ---- killed and resumed: the stand-in writes down every body that it answers, and kills us at the 20th and the 41st request
cat >"$work/stand_in.js" <<'END'
const http = require("http"), fs = require("fs");
const [log, pidFile, ...at] = process.argv.slice(2);
let n = 0;
const server = http.createServer((req, res) => {
  let body = "";
  req.on("data", d => body += d);
  req.on("end", () => {
    if (req.method === "GET") return res.end('{"data":[{"id":"m"}]}');
    if (at.includes(String(++n))) return process.kill(Number(fs.readFileSync(pidFile)), "SIGKILL");
    fs.appendFileSync(log, body + "\n");
    res.end(JSON.stringify({ model: "m", answers: [{ type: "choice", name: "q", choice: "lower", confidence: 0.2,
      probabilities: [{ value: "lower", probability: 0.6 }, { value: "better", probability: 0.4 }] }] }));
  });
}).listen(0, "127.0.0.1", () => console.log("http://127.0.0.1:" + server.address().port));
END
node "$work/stand_in.js" "$work/bodies" "$work/pid" 20 41 >"$work/stand_in" &
servers+=($!)
for _ in $(seq 100); do [ -s "$work/stand_in" ] && break; sleep 0.1; done
url=$(cat "$work/stand_in")
status=137 turns=0 # 30 rows of two classes to train on and as many for dev: 120 questions
while [ $status -eq 137 ] && [ $turns -lt 5 ]; do
    turns=$((turns + 1))
    (echo "$BASHPID" >"$work/pid"; exec "$KEYHOLE" tune "${common[@]}" --shots 30 --model "$url" --backend decisions --in-flight 1 \
        --resume --out "$work/killed") >"$work/out" 2>"$work/err"
    status=$?
done
seen=$(wc -l <"$work/bodies") different=$(sort -u "$work/bodies" | wc -l)
if [ $status -eq 0 ] && [ $turns -eq 3 ] && [ "$seen" -eq 120 ] && [ "$different" -eq 120 ]; then
    echo "ok - killed twice, resumed twice: $seen answers, none of them asked for twice"
else
    echo "not ok - killed and resumed # status $status, $turns turns, $seen answers, $different different"
    sed 's/^/# /' "$work/err"
    failed=1
fi
exit $failed
