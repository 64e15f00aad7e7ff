#!/bin/bash
# A Unigram vocabulary that SentencePiece has trained (Debian: sentencepiece) on texts of this repository, with its own table of characters
# (nmt_nfkc, which XLM-RoBERTa has, too), as a tokenizer.json in XLM-RoBERTa's two layouts: keyhole and Hugging Face's library (npm: tokenizers,
# in $KH_NPM or a scratch folder) give the same ids for the hard texts of tests/vectors/tokenizers/texts.json and for those of examples/foreign.
# SentencePiece itself differs from both on spaces at the end and on piled-up accents.
names=("as Hugging Face's library, old layout" "as Hugging Face's library, new layout")
. tests/npm.sh
need spm_train node python3
packages tokenizers@0.23.2

cat examples/*/*.tsv README.md doc/*.md tests/vectors/tokenizers/corpus.txt >"$dir/corpus"
spm_train --input="$dir/corpus" --model_prefix="$dir/spm" --vocab_size=2000 --model_type=unigram --character_coverage=0.9995 --num_threads=1 \
    >"$dir/log" 2>&1 || { tail -n 3 "$dir/log"; skip_all "spm_train does not run here"; }

# make.py: spm.model to old.json and new.json, and the texts, one JSON string a line; ids as fairseq has them (<s>, <pad>, </s>, <unk>, pieces).
cat >"$dir/make.py" <<'END2'
import base64, json, struct, sys
dir, texts = sys.argv[1:]
def fields(b):  # of a protocol buffer: number, value
    at = 0
    def number():
        nonlocal at
        x = shift = 0
        while True:
            x |= (b[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if b[at - 1] < 128:
                return x
    while at < len(b):
        key = number()
        if key & 7 == 0:
            yield key >> 3, number()
            continue
        n = number() if key & 7 == 2 else {1: 8, 5: 4}[key & 7]
        at += n
        yield key >> 3, b[at - n:at]
pieces, charsmap = [], b""
for field, value in fields(open(dir + "/spm.model", "rb").read()):
    if field == 1:
        p = dict(fields(value))
        if p.get(3, 1) == 1:  # an ordinary one
            pieces.append([p[1].decode(), struct.unpack("<f", p[2])[0]])
    if field == 3:
        charsmap = dict(fields(value))[2]
vocab = [[t, 0.0] for t in ("<s>", "<pad>", "</s>", "<unk>")] + pieces + [["<mask>", 0.0]]
special = [(0, "<s>"), (1, "<pad>"), (2, "</s>"), (3, "<unk>"), (len(vocab) - 1, "<mask>")]
rules = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}
space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
one, two = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}
begin, end = ({"SpecialToken": {"id": t, "type_id": 0}} for t in ("<s>", "</s>"))
for name, normalizer, pre in (
    ("old", rules, {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]}),
    ("new", {"type": "Sequence", "normalizers": [rules, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}, space)):
    json.dump({"version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": t, "single_word": False, "lstrip": t == "<mask>", "rstrip": False, "normalized": False,
            "special": True} for i, t in special],
        "normalizer": normalizer, "pre_tokenizer": pre, "decoder": space,
        "post_processor": {"type": "TemplateProcessing", "single": [begin, one, end], "pair": [begin, one, end, end, two, end],
            "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for i, t in special if i in (0, 2)}},
        "model": {"type": "Unigram", "unk_id": 3, "vocab": vocab, "byte_fallback": False}}, open(f"{dir}/{name}.json", "w"))
rows = [t["text"] for t in json.load(open(texts)) if "text" in t]
rows += [line.split("\t")[1].strip() for line in open("examples/foreign/test.tsv") if "\t" in line]
open(dir + "/texts", "w").writelines(json.dumps(t) + "\n" for t in rows)
END2
cat >"$dir/theirs.mjs" <<'END2'
import { createRequire } from "node:module";
import fs from "node:fs";
const { Tokenizer } = createRequire(`${process.env.KH_NPM}/`)("tokenizers");
const [, , file, texts] = process.argv;
const t = Tokenizer.fromString(fs.readFileSync(file, "utf8"));
for (const line of fs.readFileSync(texts, "utf8").trimEnd().split("\n"))
    console.log((await t.encode(JSON.parse(line), null, { addSpecialTokens: true })).getIds().join(" "));
END2
python3 "$dir/make.py" "$dir" tests/vectors/tokenizers/texts.json || skip_all "the vocabulary cannot be read"
# same TEXTS HAVE WANT: whether they are, and where not
same() {
    echo "# $(wc -l <"$1") texts, $(diff "$2" "$3" | grep -c '^<') wrong"
    [ -s "$2" ] && cmp -s "$2" "$3" && return
    paste -d '\n' "$1" "$2" "$3" |
        awk 'NR % 3 == 1 { t = $0 } NR % 3 == 2 { a = $0 } NR % 3 == 0 && a != $0 { print "# " t "\n#   have " a "\n#   want " $0 }' | head -n 30
    return 1
}
k=0
for layout in old new; do
    k=$((k + 1))
    "$KEYHOLE" tokenize --model "$dir/$layout.json" --json-input <"$dir/texts" >"$dir/have"
    node "$dir/theirs.mjs" "$dir/$layout.json" "$dir/texts" >"$dir/want"
    same "$dir/texts" "$dir/have" "$dir/want"
    result $? $k
done
finish
