// make_chat_vectors.mjs - writes tests/vectors/chat: the token ids that Hugging Face's libraries give for chats of one message, five
// formats. The template is run by their Jinja, the text that comes out is encoded by their Rust library, without a frame, as
// apply_chat_template does.
//
//     npm install --ignore-scripts --prefix "$KH_NPM" tokenizers@0.23.2 @huggingface/jinja
//     KH_NPM=... node tools/make_chat_vectors.mjs
//
// NAME/tokenizer.json is made here, from the merges of tests/vectors/tokenizers/tiny-bpe.json, in the manner of the models that use the
// format; NAME/tokenizer_config.json holds the template; NAME.jsonl the message and its ids.
import { createRequire } from "node:module";
import fs from "node:fs";

const require = createRequire(`${process.env.KH_NPM}/`);
const { Tokenizer } = require("tokenizers");
const { Template } = require("@huggingface/jinja");
const out = "tests/vectors/chat";
const tiny = JSON.parse(fs.readFileSync("tests/vectors/tokenizers/tiny-bpe.json"));
const pairs = tiny.model.merges.map((m) => (Array.isArray(m) ? m : m.split(" ")));

const special = (content, id) => ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true });
const split = (Regex) => ({ type: "Sequence", pretokenizers: [{ type: "Split", pattern: { Regex }, behavior: "Isolated", invert: false },
    { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false }] });
const frame = (bos, id) => ({ type: "TemplateProcessing", single: [{ SpecialToken: { id: bos, type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
    pair: [{ Sequence: { id: "A", type_id: 0 } }, { Sequence: { id: "B", type_id: 1 } }], special_tokens: { [bos]: { id: bos, ids: [id], tokens: [bos] } } });

// Byte-level BPE, as Qwen and Llama 3 have it.
function byteLevel(regex, specials, bos) {
    const vocab = Object.fromEntries(Object.entries(tiny.model.vocab).filter(([t]) => !/^<.+>$/.test(t)).map(([t], i) => [t, i]));
    const first = Object.keys(vocab).length;
    return { version: "1.0", truncation: null, padding: null, added_tokens: specials.map((s, i) => special(s, first + i)), normalizer: null,
        pre_tokenizer: split(regex), post_processor: bos ? frame(bos, first + specials.indexOf(bos)) : null,
        decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
        model: { ...tiny.model, vocab } };
}

// BPE on characters with bytes for the rest, as Llama 2, Zephyr and Gemma have it.
function characters(specials, bos, normalizer, pre_tokenizer) {
    const tokens = ["<unk>", "<s>", "</s>", ...specials];
    for (let i = 0; i < 256; i++)
        tokens.push(`<0x${i.toString(16).toUpperCase().padStart(2, "0")}>`);
    const seen = new Set(tokens), add = (t) => { if (!seen.has(t)) { seen.add(t); tokens.push(t); } };
    for (let c = 33; c < 127; c++)
        add(String.fromCharCode(c));
    add("▁");
    const merges = pairs.map((p) => p.map((t) => t.replaceAll("Ġ", "▁"))).filter((p) => /^[!-~▁]+$/.test(p.join("")));
    merges.forEach((p) => { p.forEach(add); add(p.join("")); });
    const vocab = Object.fromEntries(tokens.map((t, i) => [t, i]));
    return { version: "1.0", truncation: null, padding: null, added_tokens: ["<unk>", "<s>", "</s>", ...specials].map((s) => special(s, vocab[s])),
        normalizer, pre_tokenizer, post_processor: frame(bos, vocab[bos]),
        decoder: { type: "Sequence", decoders: [{ type: "Replace", pattern: { String: "▁" }, content: " " }, { type: "ByteFallback" }, { type: "Fuse" }] },
        model: { type: "BPE", dropout: null, unk_token: "<unk>", continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: true,
            byte_fallback: true, ignore_merges: false, vocab, merges: merges.map((p) => p.join(" ")) } };
}

const underscore = { type: "Replace", pattern: { String: " " }, content: "▁" };
const words = "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+", rest = " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", short = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const turn = "{% for m in messages %}";
const formats = {
    chatml: { tokenizer: byteLevel(`${short}|${words}|\\p{N}|${rest}`, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]), eos: "<|im_end|>",
        template: turn + "{% if loop.first and m['role'] != 'system' %}{{ '<|im_start|>system\\nYou are asked for one word.<|im_end|>\\n' }}{% endif %}" +
            "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}" +
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}" },
    llama3: { tokenizer: byteLevel(`${short}|${words}|\\p{N}{1,3}|${rest}`, ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        "<|begin_of_text|>"), bos: "<|begin_of_text|>", eos: "<|eot_id|>",
        template: turn + "{% set text = '<|start_header_id|>' + m['role'] + '<|end_header_id|>\\n\\n' + m['content'] | trim + '<|eot_id|>' %}" +
            "{% if loop.index0 == 0 %}{% set text = bos_token + text %}{% endif %}{{ text }}{% endfor %}" +
            "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}" },
    gemma: { tokenizer: characters(["<bos>", "<start_of_turn>", "<end_of_turn>"], "<bos>", underscore,
        { type: "Split", pattern: { String: " " }, behavior: "MergedWithPrevious", invert: false }), bos: "<bos>", eos: "<end_of_turn>",
        template: "{{ bos_token }}" + turn + "{% set role = 'model' if m['role'] == 'assistant' else m['role'] %}" +
            "{{ '<start_of_turn>' + role + '\\n' + m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}" +
            "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}" },
    zephyr: { tokenizer: characters([], "<s>", null, { type: "Metaspace", replacement: "▁", prepend_scheme: "first", split: false }), bos: "<s>", eos: "</s>",
        template: turn + "{{ '<|' + m['role'] + '|>\\n' + m['content'] + eos_token + '\\n' }}{# <|user|> #}{% endfor %}" +
            "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}" },
    llama2: { tokenizer: characters([], "<s>", { type: "Sequence", normalizers: [{ type: "Prepend", prepend: "▁" }, underscore] }, null), bos: "<s>", eos: "</s>",
        template: turn + "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + m['content'] | trim + ' [/INST]' }}{% endif %}{% endfor %}" },
};
const messages = ["The film is very good. It was", "one", "  two spaces in front", "\nA line, then text", "It's 12345 times as good as '05!\nOr not?",
    "Äpfel, 日本 and 😀 are e\u0301", "a  b\t c\n\n d", "(brackets) [INST or user\nassistant", "the the the: This is news about", "..."];

for (const [name, f] of Object.entries(formats)) {
    fs.mkdirSync(`${out}/${name}`, { recursive: true });
    fs.writeFileSync(`${out}/${name}/tokenizer.json`, JSON.stringify(f.tokenizer) + "\n");
    fs.writeFileSync(`${out}/${name}/tokenizer_config.json`, JSON.stringify({ ...(f.bos && { bos_token: f.bos }), eos_token: f.eos, chat_template: f.template }, null, 1) + "\n");
    const library = Tokenizer.fromString(JSON.stringify(f.tokenizer)), template = new Template(f.template);
    const lines = [];
    for (const text of messages) {
        const whole = template.render({ messages: [{ role: "user", content: text }], add_generation_prompt: true, bos_token: f.bos ?? "", eos_token: f.eos });
        lines.push(JSON.stringify({ text, ids: (await library.encode(whole, null, { addSpecialTokens: false })).getIds() }) + "\n");
    }
    fs.writeFileSync(`${out}/${name}.jsonl`, lines.join(""));
}
