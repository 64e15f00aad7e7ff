// make_bpe_vectors.mjs - writes tests/vectors/bpe-train/*.merges: what Hugging Face's Rust trainer learns from corpus.txt.
//
//     npm install --ignore-scripts --prefix "$KH_NPM" tokenizers@0.23.2
//     KH_NPM=... node tools/make_bpe_vectors.mjs
//
// The trainer runs with its defaults: no minimum frequency, 30,000 tokens, which the small corpus does not reach.
import { createRequire } from "node:module";
import fs from "node:fs";

const t = createRequire(`${process.env.KH_NPM}/`)("tokenizers");
const dir = "tests/vectors/bpe-train";
for (const [name, prefix] of [["plain", false], ["prefix", true]]) {
    const tokenizer = new t.Tokenizer(t.BPE.empty());
    tokenizer.setPreTokenizer(t.byteLevelPreTokenizer(prefix, true));
    tokenizer.train([`${dir}/corpus.txt`]);
    tokenizer.save(`${dir}/${name}.tmp`);
    const merges = JSON.parse(fs.readFileSync(`${dir}/${name}.tmp`)).model.merges;
    fs.unlinkSync(`${dir}/${name}.tmp`);
    fs.writeFileSync(`${dir}/${name}.merges`, merges.map((m) => (Array.isArray(m) ? m.join(" ") : m) + "\n").join(""));
}
