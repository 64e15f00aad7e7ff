// make_tokenizer_vectors.mjs - golden vectors for the tokenizers, from Hugging Face's own implementation.
//
//   mkdir -p "$KH_NPM" && npm install --ignore-scripts --prefix "$KH_NPM" tokenizers@0.23.2
//   KH_NPM=... node tools/make_tokenizer_vectors.mjs [--out DIR] [--shared DIR] [--compare] [PART...]
//
// PART is one or more of: small real rows codepoints (default: all). Written to DIR, tests/vectors/tokenizers by default:
//   small       NAME.json, NAME.jsonl, tiny-bpe/, tiny-wordpiece/    from texts.json and corpus.txt
//   real        real-NAME.jsonl                                      needs SHARED/tokenizers  (SHARED: ../shared by default)
//   rows        rows-NAME.txt                                        needs SHARED/tokenizers and SHARED/data
//   codepoints  codepoints.txt                                       every code point through the basic components
// --compare also asks two other implementations and prints where they differ; nothing else changes. It needs in addition
//   npm install --ignore-scripts --prefix "$KH_NPM" @anush008/tokenizers@0.6.0 @huggingface/tokenizers@0.2.0
// README.md beside the vectors defines the formats.

import fs from 'node:fs'
import path from 'node:path'
import { createRequire } from 'node:module'

const here = path.dirname(new URL(import.meta.url).pathname)
const args = process.argv.slice(2)
const option = (name, otherwise) => {
  const at = args.indexOf(name)
  return at < 0 ? otherwise : args.splice(at, 2)[1]
}
const out = option('--out', path.join(here, '../tests/vectors/tokenizers'))
const shared = option('--shared', path.join(here, '../../shared'))
const compare = args.includes('--compare') && args.splice(args.indexOf('--compare'), 1)
const parts = args.length ? args : ['small', 'real', 'rows', 'codepoints']

if (!process.env.KH_NPM) throw new Error('set KH_NPM to the directory that npm installed into')
const need = createRequire(path.join(path.resolve(process.env.KH_NPM), 'x.js'))
const rust = need('tokenizers')

// ---- Files ----------------------------------------------------------------------------------------------------------

// Everything that an editor or a terminal could swallow is escaped; letters and symbols stay readable.
const json = (value) =>
  JSON.stringify(value).replace(/[\x7f\ufffd\p{C}\p{Z}\p{M}]/gu, (c) =>
    c === ' ' ? c : [...Array(c.length).keys()].map((i) => '\\u' + c.charCodeAt(i).toString(16).padStart(4, '0')).join(''))

const write = (name, text) => {
  fs.mkdirSync(path.dirname(path.join(out, name)), { recursive: true })
  fs.writeFileSync(path.join(out, name), text)
}
const read = (...names) => fs.readFileSync(path.join(...names), 'utf8')

// ---- Oracles: encode(text, pair, special) -> { ids, tokens, type_ids }, decode(ids, skip) -> text ------------------------

const rustOracle = (library, definition) => {
  const t = library.Tokenizer.fromString(definition)
  t.disableTruncation()
  t.disablePadding()
  const unpack = (e) => ({ ids: [...e.getIds()], tokens: e.getTokens(), type_ids: [...e.getTypeIds()] })
  return {
    encode: async (text, pair, special) => unpack(await t.encode(text, pair ?? null, { addSpecialTokens: special })),
    encodeMany: async (texts) => (await t.encodeBatch(texts, { addSpecialTokens: true })).map((e) => e.getIds()),
    decode: (ids, skip) => t.decode(ids, skip),
    idOf: (token) => t.tokenToId(token),
  }
}

const jsOracle = ({ Tokenizer }, definition) => {
  const t = new Tokenizer(JSON.parse(definition), {})
  const encode = (text, pair, special) => {
    const e = t.encode(text, { text_pair: pair ?? null, add_special_tokens: special, return_token_type_ids: true })
    return { ids: [...e.ids], tokens: e.tokens, type_ids: e.token_type_ids }
  }
  return {
    encode: async (...a) => encode(...a),
    encodeMany: async (texts) => texts.map((text) => encode(text, null, true).ids),
    decode: async (ids, skip) => (ids.length ? t.decode(ids, { skip_special_tokens: skip, clean_up_tokenization_spaces: false }) : ''),
  }
}

const others = (definition) => {
  const make = (name, f) => {
    try {
      return [name, f()]
    } catch (e) {
      console.log(`  ${name} cannot load it: ${e.message}`)
      return null
    }
  }
  if (!compare) return []
  return [
    make('rust 0.22.2', () => rustOracle(need('@anush008/tokenizers'), definition)),
    make('js', () => jsOracle(need('@huggingface/tokenizers'), definition)),
  ].filter(Boolean)
}

// ---- One line of golden output ----------------------------------------------------------------------------------------

const bytesToText = (hex) => new TextDecoder('utf-8', { ignoreBOM: true }).decode(Buffer.from(hex, 'hex'))

const answer = async (oracle, input) => {
  if (input.decode) return { decode: input.decode, decoded: await oracle.decode(input.decode, true), decoded_all: await oracle.decode(input.decode,
    false) }
  const text = input.bytes ? bytesToText(input.bytes) : input.text
  const full = await oracle.encode(text, input.pair, true)
  const plain = await oracle.encode(text, input.pair, false)
  return {
    ...(input.bytes ? { bytes: input.bytes } : { text }),
    ...(input.pair === undefined ? {} : { pair: input.pair }),
    ids: full.ids,
    tokens: full.tokens,
    ...(input.pair === undefined ? {} : { type_ids: full.type_ids }),
    ids_plain: plain.ids,
    decoded: await oracle.decode(full.ids, true),
    decoded_all: await oracle.decode(full.ids, false),
  }
}

// Asks the oracle (and, with --compare, the others), returns the lines. keep: which fields to write.
const golden = async (name, definition, inputs, keep = () => true) => {
  const oracle = rustOracle(rust, definition)
  const rivals = others(definition)
  const differing = {}
  const lines = []
  for (const input of inputs) {
    if (input.tokens) input.decode = input.tokens.map((t) => (typeof t === 'number' ? t : oracle.idOf(t)))
    const right = await answer(oracle, input)
    lines.push(json(Object.fromEntries(Object.entries(right).filter(([k]) => keep(k)))))
    for (const [rival, o] of rivals) {
      const theirs = await answer(o, input).catch((e) => ({ error: String(e) }))
      const fields = Object.keys(right).filter((k) => json(right[k]) !== json(theirs[k] ?? null))
      if (!fields.length) continue
      ;(differing[rival] ??= []).push(input)
      const field = fields[0]
      console.log(`  ${name}, ${rival}: ${json(input).slice(0, 150)}\n    ${fields}\n    ${json(right[field]).slice(0, 300)}\n    ${json(theirs[field] ?? theirs.error ?? null).slice(0, 300)}`)
    }
  }
  if (compare) console.log(`${name}: ${lines.length} inputs; differ: ${json(Object.fromEntries(Object.entries(differing).map(([k, v]) => [k, v.length])))}`)
  return lines.join('\n') + '\n'
}

// ---- Small tokenizers: shared pieces ------------------------------------------------------------------------------------

// The 256 printable characters that byte-level BPE writes bytes with; index = byte.
const printable = (b) => (b > 32 && b < 127) || (b > 160 && b < 173) || b > 173
let spare = 256
const byteChar = [...Array(256).keys()].map((b) => String.fromCharCode(printable(b) ? b : spare++))
const alphabet = [...byteChar].sort((a, b) => a.charCodeAt(0) - b.charCodeAt(0))

const index = (tokens) => Object.fromEntries([...new Set(tokens)].map((t, i) => [t, i]))
const BPE = (tokens, merges = [], more = {}) => ({
  type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null,
  fuse_unk: false, byte_fallback: false, ignore_merges: false, ...more, vocab: index(tokens), merges,
})
const WordPiece = (tokens, more = {}) => ({
  type: 'WordPiece', unk_token: '[UNK]', continuing_subword_prefix: '##', max_input_chars_per_word: 100, ...more, vocab: index(tokens),
})
const Added = (content, more = {}) => ({ content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true, ...more })
const Seq = (key, ...list) => ({ type: 'Sequence', [key]: list })
const normalizers = (...list) => Seq('normalizers', ...list)
const pretokenizers = (...list) => Seq('pretokenizers', ...list)
const decoders = (...list) => Seq('decoders', ...list)
const ByteLevel = (add_prefix_space = false, use_regex = true, trim_offsets = true) => ({ type: 'ByteLevel', add_prefix_space, trim_offsets,
  use_regex })
const Bert = (clean_text, handle_chinese_chars, strip_accents, lowercase) => ({ type: 'BertNormalizer', clean_text, handle_chinese_chars,
  strip_accents, lowercase })
const Metaspace = (prepend_scheme, split = true, replacement = '▁') => ({ type: 'Metaspace', replacement, prepend_scheme, split })
const Regex = (source) => ({ Regex: source.raw[0] })
const Split = (pattern, behavior, invert = false) => ({ type: 'Split', pattern: typeof pattern === 'string' ? { String: pattern } : pattern, behavior,
  invert })
const Replace = (pattern, content) => ({ type: 'Replace', pattern: typeof pattern === 'string' ? { String: pattern } : pattern, content })
const Template = (single, pair, special) => {
  const piece = (s) => {
    const [id, type] = s.split(':')
    return { [/^[AB]$/.test(id) ? 'Sequence' : 'SpecialToken']: { id, type_id: Number(type) } }
  }
  return { type: 'TemplateProcessing', single: single.split(' ').map(piece), pair: pair.split(' ').map(piece), special_tokens: special }
}
const specialToken = (...pairs) => Object.fromEntries(pairs.map(([id, ids, tokens = [id]]) => [id, { id, ids: [].concat(ids), tokens }]))

// Model that shows the normalized text byte by byte, and one that also shows where each pre-token ends:
// the last byte of a pre-token has the suffix "</w>".
const showBytes = BPE(alphabet)
const showPieces = BPE([...alphabet, ...alphabet.map((c) => c + '</w>')], [], { end_of_word_suffix: '</w>' })
const asBytes = ByteLevel(false, false)
const joinPieces = decoders(Replace('</w>', ''), ByteLevel())

// Added tokens get the id that the model's vocabulary gives them, or the next free one.
const tokenizer = ({ added = [], normalizer = null, pre_tokenizer = null, model, post_processor = null, decoder = null }) => {
  let next = Object.keys(model.vocab).length
  const added_tokens = added.map((t) => ({ id: t.content in model.vocab ? model.vocab[t.content] : next++, ...t }))
  return { version: '1.0', truncation: null, padding: null, added_tokens, normalizer, pre_tokenizer, post_processor, decoder, model }
}

const small = new Map() // NAME -> { definition, groups, extra }
const define = (name, groups, parts, ...extra) => small.set(name, { definition: tokenizer(parts), groups: groups.split(' '), extra })
const normalizes = (name, groups, normalizer) => define('norm-' + name, groups, { normalizer, pre_tokenizer: asBytes, model: showBytes,
  decoder: ByteLevel() })
const splits = (name, groups, pre_tokenizer, ...extra) =>
  define('pre-' + name, groups, { pre_tokenizer: pretokenizers(pre_tokenizer, asBytes), model: showPieces, decoder: joinPieces }, ...extra)

// ---- Small tokenizers: normalizers --------------------------------------------------------------------------------------

const unicodeTexts = 'core accents case compat scripts'
normalizes('bert', unicodeTexts + ' cjk emoji control space', Bert(true, true, null, true))
normalizes('bert-cased', 'core accents case cjk control', Bert(true, true, null, false))
normalizes('bert-cased-strip', 'core accents case cjk', Bert(true, true, true, false))
normalizes('bert-lower-keep', 'core accents case cjk', Bert(true, true, false, true))
normalizes('bert-no-clean', 'core accents cjk control space', Bert(false, false, null, true))
normalizes('nfc', unicodeTexts + ' cjk', { type: 'NFC' })
normalizes('nfd', unicodeTexts + ' cjk', { type: 'NFD' })
normalizes('nfkc', unicodeTexts + ' cjk', { type: 'NFKC' })
normalizes('nfkd', unicodeTexts + ' cjk', { type: 'NFKD' })
normalizes('lowercase', 'core accents case', { type: 'Lowercase' })
normalizes('strip-accents', 'core accents scripts', { type: 'StripAccents' })
normalizes('nfd-lower-strip-accents', unicodeTexts, normalizers({ type: 'NFD' }, { type: 'Lowercase' }, { type: 'StripAccents' }))
normalizes('replace-string', 'core space', Replace(' ', '_'))
normalizes('replace-string-longer', 'core added', Replace('ab', 'aba'))
normalizes('replace-regex', 'core space digits punct', Replace(Regex`\s+|\p{N}{2,}`, ' '))
normalizes('replace-regex-group', 'core added punct', Replace(Regex`(b+|[a-d]c)`, '$1<\\1>'))
normalizes('replace-remove', 'core space', Replace(Regex`[aeiou]`, ''))
normalizes('prepend', 'core space', { type: 'Prepend', prepend: '▁' })
normalizes('strip-both', 'core space control', { type: 'Strip', strip_left: true, strip_right: true })
normalizes('strip-left', 'core space', { type: 'Strip', strip_left: true, strip_right: false })
normalizes('strip-right', 'core space', { type: 'Strip', strip_left: false, strip_right: true })
normalizes('sequence', unicodeTexts + ' space',
  normalizers({ type: 'Strip', strip_left: true, strip_right: true }, { type: 'NFKC' }, Replace(Regex` {2,}`, ' '), normalizers({ type: 'Lowercase' },
    { type: 'Prepend', prepend: '·' })))

// ---- Small tokenizers: pre-tokenizers -------------------------------------------------------------------------------------

const byteLevel = (name, groups, pre_tokenizer) => define('pre-' + name, groups, { pre_tokenizer, model: showPieces, decoder: joinPieces })
const splitTexts = 'core space punct contractions'
byteLevel('bytelevel', splitTexts + ' accents scripts digits emoji control mixed', ByteLevel(false))
byteLevel('bytelevel-prefix', splitTexts, ByteLevel(true))
byteLevel('bytelevel-prefix-no-regex', splitTexts, ByteLevel(true, false))
byteLevel('bytelevel-no-trim', 'core space', ByteLevel(false, true, false))
splits('bert', splitTexts + ' accents cjk scripts emoji', { type: 'BertPreTokenizer' })
splits('whitespace', splitTexts + ' accents scripts digits emoji control', { type: 'Whitespace' })
splits('whitespace-split', splitTexts + ' control', { type: 'WhitespaceSplit' })
splits('digits', 'core digits compat', { type: 'Digits', individual_digits: false })
splits('digits-individual', 'core digits compat', { type: 'Digits', individual_digits: true })

const behaviors = ['Isolated', 'Removed', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous']
for (const b of behaviors) {
  const name = b.replace(/(?<=[a-z])[A-Z]/g, '-$&').toLowerCase()
  splits(`punctuation-${name}`, b === 'Isolated' ? 'core punct contractions' : 'core punct', { type: 'Punctuation', behavior: b })
  splits(`split-string-${name}`, 'core added punct', Split('-', b), { text: '-' }, { text: '--' }, { text: 'over-the--wall' })
  splits(`split-regex-${name}`, 'core digits added', Split(Regex`\d{1,3}|ab?|\s`, b), { text: '12' }, { text: 'a1234b' })
  splits(`split-regex-${name}-invert`, 'core digits added', Split(Regex`[a-z]+|\d`, b, true), { text: '--' }, { text: 'a--b' })
}
splits('split-string-removed-invert', 'core punct', Split('-', 'Removed', true))
splits('split-string-space', 'core space', Split(' ', 'MergedWithPrevious'))
splits('split-regex-words', splitTexts + ' scripts digits mixed',
  Split(Regex`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`, 'Isolated'))
splits('split-regex-empty-matches', 'core', Split(Regex`x*`, 'Isolated'), { text: 'axxb' }, { text: 'xx' })
splits('split-regex-anchors', 'core space', Split(Regex`^\w|\b\w\b|.$`, 'Isolated'))

const metaspace = (name, groups, pre_tokenizer, added = []) =>
  define('pre-metaspace-' + name, groups, { added, pre_tokenizer: pretokenizers(pre_tokenizer, asBytes), model: showPieces, decoder: joinPieces })
metaspace('always', 'core space', Metaspace('always'))
metaspace('first', 'core space', Metaspace('first'))
metaspace('never', 'core space', Metaspace('never'))
metaspace('no-split', 'core space', Metaspace('always', false))
metaspace('underscore', 'core space punct', Metaspace('always', true, '_'))
metaspace('old-prefix', 'core space', { type: 'Metaspace', replacement: '▁', str_rep: '▁', add_prefix_space: true })
metaspace('old-no-prefix', 'core space', { type: 'Metaspace', replacement: '▁', add_prefix_space: false, prepend_scheme: 'never' })
for (const scheme of ['always', 'first', 'never']) metaspace(`${scheme}-added`, 'special', Metaspace(scheme), [Added('<s>'), Added('<mask>',
  { lstrip: true })])
metaspace('first-twice', 'core space special', pretokenizers({ type: 'Punctuation', behavior: 'Isolated' }, Metaspace('first')), [Added('<s>')])

define('pre-metaspace-first-strip', 'core space control', // "first" asks for offset 0 in the original text
  { normalizer: normalizers({ type: 'Strip', strip_left: true, strip_right: false }, Replace(Regex`\x01`, '')),
    pre_tokenizer: pretokenizers(Metaspace('first'), asBytes), model: showPieces, decoder: joinPieces },
  { text: '\x01ab' }, { text: 'ab' })
splits('sequence', 'core digits punct contractions', pretokenizers({ type: 'WhitespaceSplit' }, { type: 'Punctuation', behavior: 'Contiguous' },
  { type: 'Digits', individual_digits: true }))
define('pre-none', 'core space', { model: showBytes, decoder: ByteLevel() }, { text: 'ab', pair: 'cd' })

// ---- Small tokenizers: models --------------------------------------------------------------------------------------------

// "low lower lowest newest widest" in the classic manner; the capital letters, digits and everything else are unknown.
const letters = [...'abcdefghijklmnopqrstuvwxyz.,!']
const lowMerges = [['e', 's'], ['es', 't'], ['l', 'o'], ['lo', 'w'], ['e', 'r'], ['low', 'er'], ['n', 'e'], ['ne', 'w'], ['t', 'h'], ['th', 'e'],
  ['i', 'n']]
const spaced = (merges) => merges.map((m) => m.join(' '))
const low = ['<unk>', ...letters, ...lowMerges.map((m) => m.join(''))]
const lowTexts = 'core accents cjk added'
const words = { type: 'WhitespaceSplit' }
const lowBpe = (name, more, extraTokens = [], added = []) => define('model-bpe-' + name, lowTexts,
  { added, pre_tokenizer: words, model: BPE([...low, ...extraTokens], spaced(lowMerges), more) },
  { text: 'lowXYZlow' }, { text: 'XX low X' }, { text: 'é中ælow中é' }, { text: 'lowest' }, { text: 'thethe' })
lowBpe('no-unk', {})
lowBpe('unk', { unk_token: '<unk>' })
lowBpe('unk-added', { unk_token: '<unk>' }, [], [Added('<unk>')])
lowBpe('fuse-unk', { unk_token: '<unk>', fuse_unk: true })
lowBpe('ignore-merges', { unk_token: '<unk>', ignore_merges: true }, ['lowest', 'newest', 'Hello,', '中文', 'wid'])
lowBpe('no-ignore-merges', { unk_token: '<unk>' }, ['lowest', 'newest', 'Hello,', '中文', 'wid'])

const byteTokens = [...Array(256).keys()].map((b) => `<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`)
const llamaLike = { normalizer: normalizers({ type: 'Prepend', prepend: '▁' }, Replace(' ', '▁')), decoder: decoders(Replace('▁', ' '),
  { type: 'ByteFallback' }, { type: 'Fuse' }, { type: 'Strip', content: ' ', start: 1, stop: 0 }) }
const someBytes = byteTokens.filter((t) => !/E4|F0/.test(t))
const lowAndMeta = [...low, '▁', '▁low', '▁the']
const metaMerges = [...lowMerges, ['▁', 'low'], ['▁', 'the']]
const fallback = (name, bytes, more, parts) => define('model-bpe-byte-fallback' + name, 'core accents cjk emoji invalid control',
  { added: [Added('<unk>')], ...parts, model: BPE([...lowAndMeta.slice(0, 1), ...bytes, ...lowAndMeta.slice(1)], spaced(metaMerges),
    { unk_token: '<unk>', byte_fallback: true, ...more }) },
  { text: '中é中' }, { text: 'é中中é' }, { text: '中low中' }, { text: '中' }, { text: 'é' }, { text: '<0x41>' },
  { tokens: ['<0xC3>', '<0xA9>', '<0xC3>', 'a', '<0x41>', '<0xFF>', '<0xE2>', '<0x82>'] })
fallback('', byteTokens, { fuse_unk: true }, llamaLike)
fallback('-partial', someBytes, { fuse_unk: false }, { pre_tokenizer: words })
fallback('-partial-fuse', someBytes, { fuse_unk: true }, { pre_tokenizer: words })
fallback('-suffix', byteTokens, { end_of_word_suffix: '</w>' }, { pre_tokenizer: words })

const suffixed = ['<unk>', ...letters, ...letters.map((c) => c + '</w>'), 'es', 'est</w>', 'lo', 'low', 'low</w>', 'er</w>', 'lower</w>', 'wi',
  'the</w>', 'th']
const suffixMerges = ['e s', 'es t</w>', 'l o', 'lo w', 'lo w</w>', 'e r</w>', 'low er</w>', 'w i', 't h', 'th e</w>']
define('model-bpe-suffix', lowTexts, { pre_tokenizer: words, model: BPE(suffixed, suffixMerges, { unk_token: '<unk>', end_of_word_suffix: '</w>' }),
  decoder: { type: 'BPEDecoder', suffix: '</w>' } },
  { text: 'low lower l w' }, { text: 'lowX Xlow X' }, { tokens: ['low', 'er</w>', 'low</w>', '<unk>', 'wi'] }, { tokens: ['low</w>'] })
const prefixed = ['<unk>', ...letters, ...letters.map((c) => '@@' + c), '@@est', '@@es', 'lo', 'low', '@@er', 'lower', '@@we', '@@in', 'th', 'the']
const prefixMerges = ['@@e @@s', '@@es @@t', 'l @@o', 'lo @@w', '@@e @@r', 'low @@er', '@@w @@e', '@@i @@n', 't @@h', 'th @@e']
define('model-bpe-prefix', lowTexts, { pre_tokenizer: words, model: BPE(prefixed, prefixMerges, { unk_token: '<unk>',
  continuing_subword_prefix: '@@' }) },
  { text: 'low lower l w' }, { text: 'lowX Xlow X' })
const both = [...prefixed, ...letters.map((c) => c + '</w>'), ...letters.map((c) => '@@' + c + '</w>'), '@@est</w>', '@@er</w>', 'lower</w>',
  'low</w>']
define('model-bpe-prefix-suffix', 'core added', { pre_tokenizer: words,
  model: BPE(both, ['@@e @@s', '@@es @@t</w>', 'l @@o', 'lo @@w', 'lo @@w</w>', '@@e @@r</w>', 'low @@er</w>', '@@i @@n'], { unk_token: '<unk>',
    continuing_subword_prefix: '@@', end_of_word_suffix: '</w>' }),
  decoder: { type: 'BPEDecoder', suffix: '</w>' } }, { text: 'low lower l w' })
define('model-bpe-merge-pairs', lowTexts, { model: BPE(['<unk>', ' ', ...letters, ...lowMerges.map((m) => m.join('')), ' low', 'the low'],
  [...lowMerges, [' ', 'low'], ['the', ' low']], { unk_token: '<unk>' }) },
  { text: 'the low the lower' })
define('model-bpe-merge-order', 'core', { pre_tokenizer: words, model: BPE(['<unk>', 'a', 'b', 'c', 'ab', 'bc', 'aa', 'aaa', 'aaaa', 'abc'], ['b c',
  'a b', 'a a', 'aa a', 'aa aa', 'a bc'], { unk_token: '<unk>' }) },
  ...['abc', 'abab', 'aaaa', 'aaaaa', 'aaaaaaa', 'aabcc', 'abcabc', 'aaabc'].map((text) => ({ text })))

const wordTokens = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', ...letters, ...letters.map((c) => '##' + c), 'low', 'lower', '##er', '##est', '##e',
  'new', 'the', 'The', 'hello', '##llo', 'he', 'un', '##break', '##able',
  '中', '文', '##文', 'caf', '##é', 'é', "'", '-', '##-', 's']
const wordPiece = (name, more, tokens = wordTokens) => define('model-wordpiece' + name, lowTexts + ' long', { pre_tokenizer: words,
  model: WordPiece(tokens, more), decoder: { type: 'WordPiece', prefix: '##', cleanup: false } },
  { text: 'unbreakable unbreakableX lowest thethe' }, { text: 'abcdefgh abcdefghi ééééé 中文中文中 中文文' })
wordPiece('', {})
wordPiece('-max8', { max_input_chars_per_word: 8 })
wordPiece('-unk', { unk_token: '[MASK]', max_input_chars_per_word: 5 })
wordPiece('-at-prefix', { continuing_subword_prefix: '@@' }, wordTokens.map((t) => t.replace(/^##/, '@@')))
wordPiece('-empty-prefix', { continuing_subword_prefix: '' })

// ---- Small tokenizers: post-processors -----------------------------------------------------------------------------------

// ---- Unigram: pieces with scores, and SentencePiece's table of characters ---------------------------------------------

// Rules as SentencePiece compiles them: u32 bytes of trie, a double-array trie of the texts, what they become, each ended by NUL.
// A unit: byte that leads here, 1 << 8 if a text ends here, offset << 10; the unit at place ^ offset holds the text's value.
const charsmap = (rules) => {
  const root = { next: new Map() }
  let texts = Buffer.alloc(0)
  for (const [from, to] of rules) {
    let node = root
    for (const byte of Buffer.from(from)) node = node.next.get(byte) ?? node.next.set(byte, { next: new Map() }).get(byte)
    node.value = texts.length
    texts = Buffer.concat([texts, Buffer.from(to), Buffer.from([0])])
  }
  const unit = new Map([[0, 0]])
  const place = (node, at, label) => {
    const bytes = [...node.next.keys()].concat(node.value === undefined ? [] : [0])
    let base = 1
    while (bytes.some((byte) => unit.has(base ^ byte))) base++
    for (const byte of bytes) unit.set(base ^ byte, 0)
    unit.set(at, (label | (node.value === undefined ? 0 : 256) | (at ^ base) << 10) >>> 0)
    if (node.value !== undefined) unit.set(base, (node.value | 0x80000000) >>> 0)
    for (const [byte, child] of node.next) place(child, base ^ byte, byte)
  }
  place(root, 0, 0)
  const trie = Buffer.alloc((Math.max(...unit.keys()) + 256) * 4)
  for (const [at, value] of unit) trie.writeUInt32LE(value, at * 4)
  const size = Buffer.alloc(4)
  size.writeUInt32LE(trie.length)
  return Buffer.concat([size, trie, texts]).toString('base64')
}
const Precompiled = (rules) => ({ type: 'Precompiled', precompiled_charsmap: charsmap(rules) })
const someRules = [['\ufb01', 'fi'], ['\u00c5', 'A\u030a'], ['e\u0301', '\u00e9'], ['\t', ' '], ['\n', ' '], ['\u3000', ' '], ['\u00a0', ' '], ['\u200b', ''],
  ['\u0007', ''], ['\u304b\u3099', '\u304c'], ['\uff21', 'A'], ['\uff22', 'B'], ['\u2026', '...'], ['\u00bd', '1\u20442'], ['T', 't'], ['Th', 'th'], ['\u{1d400}', 'A']]

// Pieces: what words of the corpus begin with or hold, scored by how often; no training, but numbers of the same kind.
const somePieces = (() => {
  const count = new Map()
  for (const word of read(here, '../tests/vectors/tokenizers/corpus.txt').split(/\s+/)) {
    const letters = ['\u2581', ...word]
    for (let i = 0; i < letters.length; i++)
      for (let k = 1; k <= 7 && i + k <= letters.length; k++) {
        const piece = letters.slice(i, i + k).join('')
        count.set(piece, (count.get(piece) ?? 0) + 1)
      }
  }
  const kept = [...count].filter(([piece, n]) => n >= 3 || [...piece].length === 1).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, 700)
  const total = kept.reduce((sum, [, n]) => sum + n, 0)
  return kept.map(([piece, n]) => [piece, +Math.log(n * [...piece].length ** 2 / total).toFixed(6)])
})()
const unigramAdded = ['<s>', '<pad>', '</s>', '<unk>'].map((t) => Added(t)).concat(Added('<mask>', { lstrip: true }))
const Unigram = (list, byte_fallback) => ({ type: 'Unigram', unk_id: 3, byte_fallback,
  vocab: [['<s>', 0], ['<pad>', 0], ['</s>', 0], ['<unk>', 0], ...list, ['<mask>', 0]] })
const frame = Template('<s>:0 A:0 </s>:0', '<s>:0 A:0 </s>:0 </s>:0 B:0 </s>:0', specialToken(['<s>', 0], ['</s>', 2]))
const unigram = (name, parts) => define('model-unigram' + name, 'core accents compat cjk emoji scripts space special pair long mixed invalid control', {
  added: unigramAdded, pre_tokenizer: pretokenizers(words, Metaspace('always')), model: Unigram(somePieces, false), post_processor: frame, decoder: Metaspace('always'), ...parts })
unigram('', { normalizer: Precompiled(someRules) })
unigram('-plain', {})
unigram('-bytes', { model: Unigram([...byteTokens.map((t) => [t, -12]), ...somePieces], true), decoder: decoders({ type: 'ByteFallback' }, Metaspace('always')) })
unigram('-some-bytes', { model: Unigram([...someBytes.map((t) => [t, -12]), ...somePieces], true) })
unigram('-albert', { normalizer: normalizers(Replace('``', '"'), { type: 'NFKD' }, { type: 'StripAccents' }, { type: 'Lowercase' }, Precompiled(someRules)) })
unigram('-spaces', { normalizer: normalizers(Precompiled(someRules), Replace(Regex` {2,}`, ' ')), pre_tokenizer: Metaspace('always') })

const robertaAdded = ['<s>', '<pad>', '</s>', '<unk>'].map((t) => Added(t)).concat(Added('<mask>', { lstrip: true }))
const robertaModel = BPE(['<s>', '<pad>', '</s>', '<unk>', ...alphabet, 'Ġt', 'he', 'Ġthe', 'in', '<mask>'], ['Ġ t', 'h e', 'Ġt he', 'i n'])
const bertModel = WordPiece(wordTokens)
const bertAdded = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'].map((t) => Added(t))
const roberta = (trim_offsets, add_prefix_space) => ({ type: 'RobertaProcessing', sep: ['</s>', 2], cls: ['<s>', 0], trim_offsets, add_prefix_space })
const bytePost = (name, post_processor, prefix = false) => define('post-' + name, 'core special pair', { added: robertaAdded,
  pre_tokenizer: ByteLevel(prefix), model: robertaModel, post_processor, decoder: ByteLevel() })
const bertPost = (name, post_processor) => define('post-' + name, 'core special pair',
  { added: bertAdded, normalizer: Bert(true, true, null, true), pre_tokenizer: { type: 'BertPreTokenizer' }, model: bertModel, post_processor,
    decoder: { type: 'WordPiece', prefix: '##', cleanup: true } })
bytePost('none', null)
bytePost('roberta', roberta(true, false))
bytePost('roberta-prefix', roberta(true, true), true)
bytePost('roberta-no-trim', roberta(false, true))
bytePost('bytelevel', ByteLevel(true, true, false))
bytePost('sequence', { type: 'Sequence', processors: [ByteLevel(false, true, true), Template('<s>:0 A:0 </s>:0', '<s>:0 A:0 </s>:0 </s>:0 B:0 </s>:0',
  specialToken(['<s>', 0], ['</s>', 2]))] })
bertPost('bert', { type: 'BertProcessing', sep: ['[SEP]', 3], cls: ['[CLS]', 2] })
bertPost('template', Template('[CLS]:0 A:0 [SEP]:0', '[CLS]:0 A:0 [SEP]:0 B:1 [SEP]:1', specialToken(['[CLS]', 2], ['[SEP]', 3])))
bertPost('template-odd', Template('A:3', 'two:4 B:1 [SEP]:2 A:5', specialToken(['[SEP]', 3], ['two', [5, 6], ['a', 'b']])))

// ---- Small tokenizers: decoders ------------------------------------------------------------------------------------------

const wordVocab = [...wordTokens, ...'?"()$%&*+/:;<=>@[]_`{|}~#0123456789\\^', 'I', 'don', 're', 've', 'not', 'do', '##.', "n't", "'s", "'m", "'ve",
  "'re", ' .', ' do not', ' ']
const wordDecodes = [['don', "'", 't', '.'], ['do', "n't", '!'], ['he', "'s", ',', 'I', "'m", '?'], ['he', "'ve", "'re", "'"], ['do', 'not', '.'],
  ['##est', '##er', 'low', '##er'], ['##e'], ['low', '##.', '##er'],
  ['a', ' .', 'b'], ['a', ' do not', 'b'], ['n', "'", 't', "'", 's', 'low'], ['[CLS]', 'low', '[SEP]', '##er', '.'], ['.', '.', '!'], ["'", 'm', "'",
    've'], ['a', "'", 'b'], ['a', ' ', '.', ' ', 'b'], [], ['low', 100000, '##er'],
  ['[PAD]', '##er'], ['[UNK]', '[UNK]', ',']].map((tokens) => ({ tokens }))
const wordDecoder = (name, decoder) => define('dec-wordpiece' + name, 'core contractions punct special',
  { added: bertAdded, pre_tokenizer: { type: 'BertPreTokenizer' }, model: WordPiece(wordVocab), decoder }, ...wordDecodes)
wordDecoder('-cleanup', { type: 'WordPiece', prefix: '##', cleanup: true })
wordDecoder('', { type: 'WordPiece', prefix: '##', cleanup: false })
wordDecoder('-other-prefix', { type: 'WordPiece', prefix: 'l', cleanup: true })

// One vocabulary for the decoders of SentencePiece-like and byte-level models; the texts are sequences of its tokens.
const pieceVocab = ['<unk>', '<s>', '</s>', ...byteTokens, '▁', '▁▁', '▁Oak', '▁leaf', 'ly', '!', '▁a▁b', 'a', 'b', 'aa', ' ', ' a ', '  a', 'Oak▁',
  '▁the</w>', 'cat</w>', 'wor', 'd</w>', '</w>', '</w>x', '<0xZZ>', '<0x4>', '<0xc3>', 'Ġ', 'ĠOak', 'Ã', '©', 'âĤ', '¬', 'é', '中', 'x_y', '_', 'aba',
  ' .', '▁é', 'zaz', 'zzazz', 'zazzz']
const pieceDecodes = [['▁Oak', '▁leaf', 'ly', '!'], ['▁', '▁Oak'], ['▁▁', '▁Oak'], ['Oak▁', '▁'], ['▁a▁b', '▁a▁b'], ['a', '▁Oak'], ['<s>', '▁Oak',
  '</s>'], ['<s>', '▁Oak', '</s>', '▁leaf'], [' a ', ' a ', '  a'], [' ', ' ', 'a'],
  ['<0xC3>', '<0xA9>'], ['<0xC3>', 'a'], ['a', '<0xE4>', '<0xB8>', '<0xAD>', 'b'], ['<0xE4>', '<0xB8>', 'b'], ['<0xE4>', '<0xB8>'], ['<0xC3>',
    '<0xC3>', '<0xA9>'], ['<0xC3>', '<0xA9>', '<0xFF>'], ['<0x41>', '<0x42>', ' ', '<0xF0>', '<0x9F>', '<0x98>', '<0x80>'], ['<0xZZ>', '<0x4>',
    '<0xc3>', '<0xA9>'],
  ['<0xC3>', '<s>', '<0xA9>'], ['▁the</w>', 'cat</w>', 'wor', 'd</w>'], ['</w>', '</w>x', 'a', '</w>'], ['cat</w>', '<s>'], ['wor'], ['ĠOak', 'Ġ',
    'Ã', '©', 'âĤ', '¬'], ['Ã'], ['âĤ', 'a'], ['©', 'é', '中', ' '], ['x_y', '_', 'aba', 'aa', 'aa'],
  ['é', '▁é'], [], ['<unk>'], ['<s>'], [99999], ['a', 99999, '▁Oak'], ['▁'], ['!', '▁', '▁', '!'], ['a', ' .'], ['zaz', 'zzazz',
    'zazzz']].map((tokens) => ({ tokens }))
const decodes = (name, decoder) => define('dec-' + name, 'core', { added: [Added('<unk>'), Added('<s>'), Added('</s>')],
  pre_tokenizer: Metaspace('always'), model: BPE(pieceVocab, [], { unk_token: '<unk>', byte_fallback: true }), decoder }, ...pieceDecodes)
decodes('none', null)
decodes('bytelevel', ByteLevel(true))
decodes('metaspace-always', Metaspace('always'))
decodes('metaspace-first', Metaspace('first'))
decodes('metaspace-never', Metaspace('never'))
decodes('metaspace-old', { type: 'Metaspace', replacement: '▁', add_prefix_space: true })
decodes('metaspace-underscore', Metaspace('always', true, '_'))
decodes('bpe', { type: 'BPEDecoder', suffix: '</w>' })
decodes('byte-fallback', { type: 'ByteFallback' })
decodes('fuse', { type: 'Fuse' })
decodes('strip-left', { type: 'Strip', content: ' ', start: 1, stop: 0 })
// (Strip panics in this version when "stop" reaches beyond the token, so no such case here.)
decodes('strip-right', { type: 'Strip', content: 'a', start: 0, stop: 1 })
decodes('strip-both', { type: 'Strip', content: 'z', start: 1, stop: 2 })
decodes('fuse-strip', decoders({ type: 'Fuse' }, { type: 'Strip', content: '▁', start: 1, stop: 0 }))
decodes('replace-string', Replace('▁', ' '))
decodes('replace-regex', Replace(Regex`[ab]+|_`, '<$0>'))
decodes('llama', llamaLike.decoder)
decodes('sequence', decoders(decoders({ type: 'ByteFallback' }, Metaspace('always')), { type: 'WordPiece', prefix: '##', cleanup: true }))
decodes('bytelevel-twice', decoders(Replace('a', 'Ġ'), ByteLevel(), { type: 'Fuse' }))

// ---- Small tokenizers: added tokens --------------------------------------------------------------------------------------

const addedTexts = 'core added special'
const addsTo = (name, parts, ...added) => define('added-' + name, addedTexts, { pre_tokenizer: ByteLevel(), model: showPieces, decoder: joinPieces,
  ...parts, added })
const flags = [Added('<l>', { lstrip: true }), Added('<r>', { rstrip: true }), Added('<b>', { lstrip: true, rstrip: true }), Added('<w>',
  { single_word: true })]
const plain = { special: false, normalized: true }
addsTo('strip', {}, ...flags)
addsTo('strip-prefix-space', { pre_tokenizer: ByteLevel(true) }, ...flags)
addsTo('strip-plain', {}, ...flags.map((t) => ({ ...t, special: false })))
addsTo('single-word', {}, Added('ab', { single_word: true }), Added('<w>', { single_word: true, lstrip: true }), Added('new', { single_word: true,
  special: false }))
addsTo('overlap', {}, Added('<a'), Added('<a>'), Added('<ab>'), Added('<abc>'), Added('ab', { special: false }), Added('abcd', { special: false }),
  Added('bc'), Added('de'))
addsTo('overlap-single-word', {}, Added('abc', { single_word: true }), Added('ab'), Added('bcd'))
addsTo('overlap-normalized', {}, Added('ab', plain), Added('abc'), Added('bcd', { normalized: true }), Added('a', plain), Added('<ab>', plain),
  Added('<abc', {}))
addsTo('with-spaces', {}, Added('new york', plain), Added(' york', plain), Added('<l> ', { rstrip: true }), Added('  ', { special: false }),
  Added(' <w>', {}))
const lower = { normalizer: { type: 'Lowercase' } }
addsTo('normalized-lower', lower, Added('<N>', { normalized: true }), Added('<SN>'), Added('New York', plain), Added('ÉTÉ', plain), Added('ABC',
  { special: false }), Added('ab', plain))
addsTo('normalized-nfd', { normalizer: normalizers({ type: 'NFD' }, { type: 'StripAccents' }) }, Added('café', plain), Added('été',
  { special: false }), Added('ÉTÉ', { normalized: true }))
addsTo('normalized-bert', { normalizer: Bert(true, true, null, true), pre_tokenizer: pretokenizers({ type: 'BertPreTokenizer' }, asBytes) },
  Added('[MASK]'), Added('[SEP]', { normalized: true }), Added('New York', plain), Added('中文', plain), Added('<l>', { lstrip: true,
    normalized: true }), Added('<w>', { single_word: true, normalized: true }))
addsTo('normalized-prepend', { normalizer: normalizers({ type: 'Prepend', prepend: '▁' }, Replace(' ', '▁')), pre_tokenizer: asBytes }, Added('<s>'),
  Added('<mask>', { lstrip: true }), Added('new york', plain), Added('abc', { normalized: true }))
addsTo('normalized-strip-flags', lower, Added('<L>', { lstrip: true, normalized: true }), Added('<R>', { rstrip: true, normalized: true }),
  Added('<B>', { lstrip: true, rstrip: true, ...plain }), Added('<W>', { single_word: true, ...plain }))
addsTo('normalized-remove', { normalizer: Replace(Regex`[<>]`, '') }, Added('<n>', { normalized: true }), Added('<s>'), Added('<mask>',
  { normalized: true, lstrip: true }))
addsTo('in-vocab', {}, Added('a</w>', plain), Added('!', { special: false }), Added('<mask>', { lstrip: true }))
addsTo('roberta', { model: robertaModel, post_processor: roberta(true, false), decoder: ByteLevel() }, ...robertaAdded)
addsTo('roberta-normalized', { model: robertaModel, post_processor: roberta(true, false), decoder: ByteLevel() }, ...robertaAdded.map((t) => ({ ...t,
  normalized: true })))
addsTo('no-pretokenizer', { pre_tokenizer: null, model: BPE([...low, ' '], spaced(lowMerges), { unk_token: '<unk>' }), decoder: null },
  Added('<mask>', { lstrip: true }), Added('abc', plain))

// ---- The two tiny tokenizers ---------------------------------------------------------------------------------------------

// Byte-pair encoding learnt from corpus.txt: join the most frequent adjacent pair, ties to the pair that sorts first.
const learnMerges = (text, count) => {
  const pattern = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu
  const times = new Map()
  for (const [word] of text.matchAll(pattern)) times.set(word, (times.get(word) ?? 0) + 1)
  const corpus = [...times].map(([word, n]) => ({ n, symbols: [...Buffer.from(word)].map((b) => byteChar[b]) }))
  const merges = []
  while (merges.length < count) {
    const pairs = new Map()
    for (const { n, symbols } of corpus)
      for (let i = 1; i < symbols.length; i++) {
        const key = symbols[i - 1] + ' ' + symbols[i]
        pairs.set(key, (pairs.get(key) ?? 0) + n)
      }
    const [best] = [...pairs].reduce((a, b) => (b[1] > a[1] || (b[1] === a[1] && b[0] < a[0]) ? b : a))
    const [left, right] = best.split(' ')
    for (const { symbols } of corpus)
      for (let i = 1; i < symbols.length; i++) if (symbols[i - 1] === left && symbols[i] === right) symbols.splice(i - 1, 2, left + right)
    merges.push(best)
  }
  return merges
}

// Rows of vocab.txt after the five special tokens: characters, continued characters, words, endings.
const tinyWords = () => {
  const characters = [...'!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~0123456789abcdefghijklmnopqrstuvwxyz',
    ...'£§©°±·×÷€…“”‘’–—¿¡«»、。，！αβγδεσςωабвгдежийклмнопрстя中文日本語大年月我你好世界', ...'กขสวดابةتحرسعلمهوיםשלותबनमहस', ...'ᄀᄒ하ßøłı²½ﬁ']
  const continued = [...'abcdefghijklmnopqrstuvwxyz0123456789', ...'σςωабвгдеийклнорстяᅡᆫابحرסלוםמת²ß']
  const words = 'the a an of to in is it was that he she they we you and or not do don t s re ve ll m new york low high light lower quick brown fox over lazy dog hello world two three space line end text cafe naive user test woman asleep mends old bicycle there short reply only first second open sat sentence hang angstrom uber'
  const endings = 'er est ing ed s ly ness ment ation able ow ox umps ick own zy llo rld ello orld ines ext'
  return [...characters, ...continued.map((c) => '##' + c), ...words.split(' '), ...endings.split(' ').map((w) => '##' + w)]
}

const buildTiny = () => {
  const merges = learnMerges(read(out, 'corpus.txt'), 400)
  const model = BPE(['<s>', '<pad>', '</s>', '<unk>', ...alphabet, ...merges.map((m) => m.replace(' ', '')), '<mask>'], merges)
  small.set('tiny-bpe', { definition: tokenizer({ added: robertaAdded, pre_tokenizer: ByteLevel(), model, post_processor: roberta(true, false),
    decoder: ByteLevel() }), groups: null, extra: [] })
  write('tiny-bpe/vocab.json', json(model.vocab) + '\n')
  write('tiny-bpe/merges.txt', '#version: 0.2\n' + merges.join('\n') + '\n')

  const words = WordPiece(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', ...tinyWords()])
  small.set('tiny-wordpiece', { definition: tokenizer({ added: bertAdded, normalizer: Bert(true, true, null, true),
    pre_tokenizer: { type: 'BertPreTokenizer' }, model: words,
    post_processor: Template('[CLS]:0 A:0 [SEP]:0', '[CLS]:0 A:0 [SEP]:0 B:1 [SEP]:1', specialToken(['[CLS]', 2], ['[SEP]', 3])),
      decoder: { type: 'WordPiece', prefix: '##', cleanup: true } }), groups: null, extra: [] })
  write('tiny-wordpiece/vocab.txt', Object.entries(words.vocab).sort((a,
    b) => a[1] - b[1]).map(([t]) => t + '\n').join('')) // (keys such as "7" come first in an object)
}

// ---- Parts -----------------------------------------------------------------------------------------------------------------

const texts = JSON.parse(read(out, 'texts.json'))

const makeSmall = async () => {
  buildTiny()
  for (const [name, { definition, groups, extra }] of small) {
    write(name + '.json', json(definition) + '\n')
    const inputs = texts.filter((t) => !groups || groups.includes(t.group)).map(({ group, ...input }) => input)
    write(name + '.jsonl', await golden(name, read(out, name + '.json'), [...inputs, ...extra]))
  }
}

const realNames = ['roberta-base', 'gpt2', 'bert-base-uncased', 'babyberta']
const realDefinition = (name) => read(shared, 'tokenizers', name, 'tokenizer.json')

const makeReal = async () => {
  const inputs = texts.map(({ group, ...input }) => input)
  for (const name of realNames)
    write(`real-${name}.jsonl`, await golden(name, realDefinition(name), inputs, (field) => !['tokens', 'decoded_all'].includes(field)))
}

// FNV-1a, 64 bits, kept as two halves: multiplying by 2^40 + 0x1b3 is a shift and a small product.
class Fnv {
  hi = 0xcbf29ce4
  lo = 0x84222325
  byte(b) {
    const x = (this.lo ^ b) >>> 0
    const product = x * 0x1b3
    this.hi = (this.hi * 0x1b3 + Math.floor(product / 2 ** 32) + (x << 8 >>> 0)) % 2 ** 32
    this.lo = product % 2 ** 32
  }
  word(w) {
    for (let shift = 0; shift < 32; shift += 8) this.byte((w >>> shift) & 255)
  }
  text(s) {
    for (const b of Buffer.from(s)) this.byte(b)
  }
  hex() {
    return [this.hi, this.lo].map((h) => h.toString(16).padStart(8, '0')).join('')
  }
}

const block = 16
const makeRows = async () => {
  const tasks = fs.readdirSync(path.join(shared, 'data')).filter((d) => fs.existsSync(path.join(shared, 'data', d, 'test.tsv'))).sort()
  for (const name of realNames) {
    const oracle = rustOracle(rust, realDefinition(name))
    const rivals = others(realDefinition(name))
    const lines = []
    const differing = {}
    for (const task of tasks) {
      const rows = read(shared, 'data', task, 'test.tsv').split('\n').slice(1)
      if (rows.at(-1) === '') rows.pop()
      const fields = rows.map((row) => row.split('\t').slice(1))
      for (let first = 0; first < fields.length; first += block) {
        const part = fields.slice(first, first + block)
        const hash = new Fnv()
        for (const ids of await oracle.encodeMany(part.flat())) {
          for (const id of ids) hash.word(id)
          hash.word(0xffffffff)
        }
        lines.push(`${task} ${first} ${part.length} ${hash.hex()}`)
        for (const [rival, o] of rivals) {
          const ours = await oracle.encodeMany(part.flat())
          const theirs = await o.encodeMany(part.flat())
          ours.forEach((ids, i) => {
            if (String(ids) === String(theirs[i])) return
            const seen = (differing[`${rival} ${task}`] ??= [])
            if (seen.push(part.flat()[i]) <= 2) {
              const at = [...ids].findIndex((id, k) => id !== theirs[i][k])
              console.log(`  ${rival} ${task}: ${json(part.flat()[i]).slice(0, 300)}\n    first difference at ${at}: ${ids.slice(at, at + 8)} / ${theirs[i].slice(at, at + 8)}`)
            }
          })
        }
      }
    }
    write(`rows-${name}.txt`, lines.join('\n') + '\n')
    if (compare) console.log(`${name}: ${lines.length} blocks; texts that differ: ${json(Object.fromEntries(Object.entries(differing).map(([k, v]) => [k, v.length])))}`)
  }
}

// ---- Every code point ------------------------------------------------------------------------------------------------------

const component = (parts) => rust.Tokenizer.fromString(json(tokenizer({ model: showBytes, ...parts })))
const normal = (normalizer) => {
  const n = component({ normalizer }).getNormalizer()
  return (text) => n.normalizeString(text)
}
const pieces = (pre_tokenizer) => {
  const p = component({ pre_tokenizer }).getPreTokenizer()
  return (text) => p.preTokenizeString(text).length
}

// A mark of every canonical combining class, highest first. NFD sorts "a", these, c, U+0334: c then follows a mark of its own
// class, and if c is of class 0, U+0334 stays at the end.
const marks = new Map((
  '240:0345 234:035d 233:035c 232:0315 230:0300 228:05ae 226:1d16d 224:302e 222:059a 220:0316 218:302a 216:031b 214:1dce ' +
  '202:0321 132:0f74 130:0f72 129:0f71 122:0ec8 118:0eb8 107:0e48 103:0e38 91:0c56 84:0c55 36:0711 35:0670 34:0652 ' +
  '33:0651 32:061a 31:0619 30:0618 29:064d 28:064c 27:064b 26:fb1e 25:05c2 24:05c1 23:05bf 22:05bd 21:05bc ' +
  '20:05bb 19:05b9 18:05b8 17:05b7 16:05b6 15:05b5 14:05b4 13:05b3 12:05b2 11:05b1 10:05b0 9:094d 8:3099 ' +
  '7:093c 1:0334 '
).trim().split(' ').map((m) => [String.fromCodePoint(parseInt(m.split(':')[1], 16)), m.split(':')[0]]))
const manyMarks = [...marks.keys()].join('')

const makeCodepoints = async () => {
  const nfd = normal({ type: 'NFD' })
  const outputs = { // code point -> text; written as one hash for each block of 256 in which any output differs from the input
    bert: normal(Bert(true, true, null, true)),
    lowercase: normal({ type: 'Lowercase' }),
    nfd,
    nfkd: normal({ type: 'NFKD' }),
    nfc: normal({ type: 'NFC' }),
    nfkc: normal({ type: 'NFKC' }),
    compose: normal(normalizers({ type: 'NFD' }, { type: 'NFC' })),
  }
  const clean = normal(Bert(true, false, false, false))
  const chinese = normal(Bert(false, true, false, false))
  const unaccent = normal(Bert(false, false, true, false))
  const accents = normal({ type: 'StripAccents' })
  const strip = normal({ type: 'Strip', strip_left: true, strip_right: true })
  const gpt2 = pieces(ByteLevel())
  const bert = pieces({ type: 'BertPreTokenizer' })
  const punctuation = pieces({ type: 'Punctuation', behavior: 'Isolated' })
  const whitespace = pieces({ type: 'Whitespace' })
  const digits = pieces({ type: 'Digits', individual_digits: false })
  const regex = (source) => {
    const p = pieces({ type: 'Split', pattern: { Regex: source }, behavior: 'Isolated', invert: false })
    return (c) => (p('\0' + c + '\0') === 3 ? 'yes' : '')
  }
  const classes = { // code point -> class, '' being the usual one; written as ranges of equal class
    clean: (c) => ({ [c]: '', ' ': 'space', '': 'removed' })[clean(c)],
    chinese: (c) => (chinese(c) === c ? '' : 'spaced'),
    'bert-mn': (c) => (unaccent(c) === '' ? 'removed' : ''),
    'strip-accents': (c) => (accents(c) === '' ? 'removed' : ''),
    strip: (c) => (strip(c) === '' ? 'space' : ''),
    combining: (c) => {
      const sorted = [...nfd('a' + manyMarks + c + '\u0334')]
      const at = sorted.lastIndexOf(c)
      return at < 0 || sorted.at(-1) === '\u0334' ? '' : marks.get(sorted[at - 1])
    },
    gpt2: (c) => (gpt2('a' + c) === 1 ? 'L' : gpt2('1' + c) === 1 ? 'N' : gpt2('!' + c) === 1 ? '' : 'space'),
    'bert-split': (c) => ['', '', 'space', 'punctuation'][bert('a' + c + 'a')],
    punctuation: (c) => (punctuation('a' + c + 'a') === 3 ? 'yes' : ''),
    whitespace: (c) => ['', 'word', 'space', ''][whitespace('a' + c + 'a')],
    digits: (c) => (digits('a' + c + 'a') === 3 ? 'yes' : ''),
    '\\s': regex('\\s'), '\\w': regex('\\w'), '\\d': regex('\\d'),
    ...Object.fromEntries(['L', 'M', 'N', 'P', 'S', 'Z', 'Lu', 'Ll', 'Han'].map((p) => [`\\p{${p}}`, regex(`\\p{${p}}`)])),
  }
  const lines = []
  const last = 0x10ffff
  const each = function* (from, to) {
    for (let c = from; c <= to; c++) if (c < 0xd800 || c > 0xdfff) yield c
  }
  const hex = (c) => c.toString(16).padStart(4, '0')
  for (const [name, f] of Object.entries(classes)) {
    let run = null // { first, last, kind }
    const flush = () => run?.kind && lines.push(`${hex(run.first)} ${hex(run.last)} ${run.kind}`)
    lines.push(`class ${name}`)
    for (const c of each(0, last)) {
      const kind = f(String.fromCodePoint(c))
      if (run?.kind === kind && run.last === c - 1) run.last = c
      else flush(), (run = { first: c, last: c, kind })
    }
    flush()
  }
  for (const [name, f] of Object.entries(outputs)) {
    lines.push(`hash ${name}`)
    for (let first = 0; first <= last; first += 256) {
      const hash = new Fnv()
      let changed = false
      for (const c of each(first, first + 255)) {
        const from = String.fromCodePoint(c)
        const to = f(from)
        changed ||= to !== from
        hash.text(to)
        hash.byte(0xff)
      }
      if (changed) lines.push(`${hex(first)} ${hash.hex()}`)
    }
  }
  write('codepoints.txt', lines.join('\n') + '\n')
}

for (const part of parts) await { small: makeSmall, real: makeReal, rows: makeRows, codepoints: makeCodepoints }[part]()
