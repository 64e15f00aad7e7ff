// make_unicode.mjs - writes src/text/unicode_data.h: the classes of every code point, asked of Hugging Face's Rust library.
//
//     npm install --ignore-scripts --prefix "$KH_NPM" tokenizers@0.23.2
//     KH_NPM=... node tools/make_unicode.mjs > src/text/unicode_data.h
//
// That library mixes Unicode versions: its regular expressions know Unicode 16, BERT's rules know Unicode 8. Token ids depend on
// it, so the tables are taken from its answers and not from a Unicode version.
import { createRequire } from "node:module";

const t = createRequire(`${process.env.KH_NPM}/`)("tokenizers");
const bert = (on) =>
    t.bertNormalizer({ cleanText: false, handleChineseChars: false, stripAccents: false, lowercase: false, ...on });
const split = (pattern) =>
    t.Tokenizer.fromString(JSON.stringify({
        version: "1.0", truncation: null, padding: null, added_tokens: [], normalizer: null, post_processor: null, decoder: null,
        pre_tokenizer: { type: "Split", pattern: { Regex: pattern }, behavior: "Removed", invert: false },
        model: { type: "BPE", dropout: null, unk_token: null, vocab: { a: 0 }, merges: [] },
    })).getPreTokenizer();

const pieces = (pre, text) => pre.preTokenizeString(text).length;
const gpt2 = t.byteLevelPreTokenizer(false, true);
const whitespace = t.whitespacePreTokenizer();
const digits = t.digitsPreTokenizer(false);
const bertSplit = t.bertPreTokenizer();
const punct = split("\\p{P}");
const space = split("\\s");
const clean = bert({ cleanText: true }), chinese = bert({ handleChineseChars: true }), accents = bert({ stripAccents: true });
const marks = t.stripAccentsNormalizer();

// The name of each class of unicode.h and whether the character s belongs to it.
const classes = [
    ["KH_CHAR_LETTER", (s) => pieces(gpt2, `a${s}a`) === 1],
    ["KH_CHAR_NUMBER", (s) => pieces(gpt2, `1${s}1`) === 1],
    ["KH_CHAR_SPACE", (s) => pieces(space, `x${s}y`) === 2],
    ["KH_CHAR_PUNCT", (s) => pieces(punct, `x${s}y`) === 2],
    ["KH_CHAR_WORD", (s) => pieces(whitespace, `a${s}a`) === 1],
    ["KH_CHAR_NUMERIC", (s) => pieces(digits, `1${s}1`) === 1],
    ["KH_CHAR_MARK", (s) => marks.normalizeString(`x${s}`) === "x"],
    ["KH_CHAR_BERT_PUNCT", (s) => pieces(bertSplit, `x${s}y`) === 3],
    ["KH_CHAR_BERT_DROP", (s) => clean.normalizeString(`x${s}y`) === "xy"],
    ["KH_CHAR_BERT_CJK", (s) => chinese.normalizeString(s) === ` ${s} `],
    ["KH_CHAR_BERT_MN", (s) => accents.normalizeString(`x${s}`) === "x"],
];

const kinds = ["0"]; // distinct combinations, in order of appearance
const runs = [];     // [first code point, index of kind]
for (let c = 0; c < 0x110000; c++) {
    let kind = 0;
    if (c < 0xd800 || c > 0xdfff) { // a surrogate is no character: no class
        const s = String.fromCodePoint(c);
        const name = classes.filter(([, is]) => is(s)).map(([n]) => n).join(" | ") || "0";
        kind = kinds.indexOf(name);
        if (kind < 0)
            kind = kinds.push(name) - 1;
    }
    if (runs.length === 0 || runs.at(-1)[1] !== kind)
        runs.push([c, kind]);
}
if (kinds.length > 32)
    throw new Error(`${kinds.length} kinds do not fit the five bits kept for them`);

const lines = [
    "/* unicode_data.h - written by tools/make_unicode.mjs; do not edit. The classes of all code points, as the Rust library",
    ` * "tokenizers" 0.23.2 sees them. */`,
    "#ifndef KH_TEXT_UNICODE_DATA_H", "#define KH_TEXT_UNICODE_DATA_H", "", '#include "text/unicode.h"', "",
    "/* The combinations of classes that occur. */", "static const uint16_t char_kinds[] = {",
    ...kinds.map((k) => `    ${k},`), "};", "",
    "/* Runs of code points of one kind, in order: first code point << 5 | index into char_kinds. */",
    "static const uint32_t char_runs[] = {",
];
let line = "   ";
for (const [first, kind] of runs) {
    const word = ` 0x${(first * 32 + kind).toString(16)},`;
    if (line.length + word.length > 132) {
        lines.push(line);
        line = "   ";
    }
    line += word;
}
lines.push(line, "};", "", "#endif");
console.log(lines.join("\n"));
