#!/bin/bash
# slow_tokenizer_train.sh - our trainer beside Hugging Face's: the same merges on random and real texts, and a file that two of
# their implementations (Rust and JavaScript) and our own read and agree on. Uses the npm packages in $KH_NPM, or installs them
# into a scratch folder.
names=("random texts train alike" "random texts with prefix space train alike" "English text trains alike"
    "Rust, JavaScript and keyhole read the file and agree")
. tests/npm.sh
need node python3
packages tokenizers@0.23.2 @huggingface/tokenizers@0.2.0

# train.mjs CORPUS MERGES PREFIX: what the Rust trainer learns
cat >"$dir/train.mjs" <<'END'
import { createRequire } from "node:module";
import fs from "node:fs";
const t = createRequire(`${process.env.KH_NPM}/`)("tokenizers");
const [, , corpus, out, prefix] = process.argv;
const tokenizer = new t.Tokenizer(t.BPE.empty());
tokenizer.setPreTokenizer(t.byteLevelPreTokenizer(prefix === "1", true));
tokenizer.train([corpus]);
tokenizer.save(out);
END

# agree.mjs TOKENIZER TEXTS IDS: encodes every line with both implementations and compares with the ids of keyhole
cat >"$dir/agree.mjs" <<'END'
import { createRequire } from "node:module";
import fs from "node:fs";
const need = createRequire(`${process.env.KH_NPM}/`);
const [, , file, texts, ids] = process.argv;
const definition = fs.readFileSync(file, "utf8");
const rust = need("tokenizers").Tokenizer.fromString(definition);
const js = new (need("@huggingface/tokenizers").Tokenizer)(JSON.parse(definition), {});
const lines = fs.readFileSync(texts, "utf8").split("\n"), ours = fs.readFileSync(ids, "utf8").split("\n");
for (const [k, line] of lines.entries()) {
    const a = (await rust.encode(line, null, { addSpecialTokens: true })).getIds(), b = js.encode(line).ids;
    if (a.join() !== b.join() || a.join(" ") !== ours[k]) {
        console.log("#", JSON.stringify(line), a.join(" "), "|", b.join(" "), "|", ours[k]);
        process.exit(1);
    }
    const inner = a.slice(1, -1);
    if (a[0] !== 0 || a.at(-1) !== 2 || (!line.includes("<") && (await rust.decode(inner, false)) !== line)) {
        console.log("#", JSON.stringify(line), "does not come back from", a.join(" "));
        process.exit(1);
    }
}
END

cat >"$dir/make_text.py" <<'END'
import random, sys
r = random.Random(int(sys.argv[1]))
alphabet = r.choice([list("ab"), list("aab  \t"), list("=-*. \n'sS1"), list("abc\u00e9\u4e2d\U0001f600 \u00a0\u3000\n\r\t019")])
with open(sys.argv[2], "w", encoding="utf-8", newline="") as f:
    for _ in range(r.randrange(1, 400)):
        f.write("".join(r.choice(alphabet) for _ in range(r.randrange(60))) + r.choice(["\n", "\n", "\r\n", "  \n"]))
    f.write("".join(r.choice("acgt") for _ in range(r.choice([0, 20000])))) # one long word
    f.write(r.choice(["", "tail"]))
END

# The first list must be the beginning of the second (the Rust trainer stops at 30,000 tokens, with a smaller alphabet).
cat >"$dir/same.py" <<'END'
import json, sys
def merges(file):
    return [m if isinstance(m, str) else " ".join(m) for m in json.load(open(file, encoding="utf-8"))["model"]["merges"]]
a, b = merges(sys.argv[1]), merges(sys.argv[2])
sys.exit(0 if len(a) > 0 and a == b[: len(a)] and (len(a) == len(b) or len(a) > 29000) else 1)
END

# alike CORPUS PREFIX
alike() {
    local prefix=--no-prefix-space
    [ "$2" = 1 ] && prefix=--prefix-space
    node "$dir/train.mjs" "$1" "$dir/theirs.json" "$2" >/dev/null 2>&1 &&
        "$KEYHOLE" tokenizer train --corpus "$1" --out "$dir/ours.json" --vocab 30261 --min-frequency 1 $prefix >/dev/null 2>&1 &&
        python3 "$dir/same.py" "$dir/theirs.json" "$dir/ours.json"
}
random_alike() {
    for seed in $(seq 1 25); do
        python3 "$dir/make_text.py" "$seed" "$dir/random.txt" && alike "$dir/random.txt" "$1" && continue
        echo "# seed $seed differs"
        return 1
    done
}

random_alike 0
result $? 1
random_alike 1
result $? 2
if [ -r ../shared/corpus/brown.txt.xz ]; then
    xz -dc ../shared/corpus/brown.txt.xz >"$dir/brown.txt"
    alike "$dir/brown.txt" 0
    result $? 3
else
    skip 3 "../shared/corpus/brown.txt.xz is not there"
fi
{ tr -d '\r' <tests/vectors/bpe-train/corpus.txt; printf '\nIs it <mask> or  <mask>?\n</s><s> plain'; } >"$dir/texts"
"$KEYHOLE" tokenizer train --corpus tests/vectors/bpe-train/corpus.txt --vocab 600 --out "$dir/ours.json" >/dev/null 2>&1 &&
    "$KEYHOLE" tokenize --model "$dir/ours.json" <"$dir/texts" >"$dir/ids" &&
    node "$dir/agree.mjs" "$dir/ours.json" "$dir/texts" "$dir/ids"
result $? 4
finish
