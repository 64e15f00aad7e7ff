/* load_gguf.c - the tokenizer that a GGUF file carries.
 *
 *     tokenizer.ggml.model   llama: SentencePiece's BPE with scores;
 *                            gpt2: byte-level BPE with merges; bert: WordPiece
 *     tokenizer.ggml.pre     how gpt2's texts are cut into words, by the name of a model
 *
 * and the tokens, their scores and kinds, the merges, and which ids play a part. The vocabulary is
 * read from these lists. The components around it, which a file only names, are put together from
 * the same parts as those of a tokenizer.json.
 *
 * A file that keyhole wrote holds the tokenizer's own files instead, whole, and is read as they are
 * (kh_tokenizer_files_read). */
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/gguf.h"
#include "base/json.h"
#include "text/decode.h"
#include "text/normalize.h"
#include "text/postprocess.h"
#include "text/pretokenize.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define KEY "tokenizer.ggml."
#define SPACE_MARK "\xE2\x96\x81" /* U+2581, which stands for a space in SentencePiece's pieces */

/* Kinds of tokens: the file's numbers. */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

typedef struct loader {
    kh_tokenizer *t;
    const kh_gguf *f;
    const char *name;
    int n;         /* tokens */
    uint8_t *kind; /* [n] */
    json_t *roles; /* {"bos_token": "<s>", ...} */
    int32_t bos, eos, sep, cls;
} loader;

/* ------------------------------------------------------------------------------ vocabulary */

static int read_kinds(loader *l, kh_err *err) {
    kh_gguf_list list;
    long long kind;
    int rc = kh_gguf_ints(l->f, KEY "token_type", &list, err);
    l->kind = rc == 0 ? kh_malloc((size_t)l->n) : NULL;
    if (rc != 0)
        return rc;
    if (!l->kind)
        return kh_fail_memory(err);
    memset(l->kind, NORMAL, (size_t)l->n);
    if (list.n != 0 && list.n != (size_t)l->n)
        return kh_fail(err, KH_EFORMAT,
            "%s: %zu kinds of tokens (\"" KEY "token_type\") for %d "
            "tokens",
            l->name, list.n, l->n);
    for (int i = 0; kh_gguf_next_int(&list, &kind); i++)
        l->kind[i] = kind >= NORMAL && kind <= BYTE ? (uint8_t)kind : UNUSED;
    return 0;
}

/* WordPiece in a GGUF file: words start with the mark, and what continues one has lost its "##". */
static int put_bert_token(
    const loader *l, const char *s, size_t n, int id, kh_buf *out, kh_err *err) {
    size_t mark = strlen(SPACE_MARK);
    kh_buf_reset(out);
    if (n >= mark && memcmp(s, SPACE_MARK, mark) == 0)
        kh_buf_bytes(out, s + mark, n - mark);
    else {
        bool special = l->kind[id] != NORMAL || (n > 1 && s[0] == '[' && s[n - 1] == ']');
        kh_buf_text(out, special ? "" : "##");
        kh_buf_bytes(out, s, n);
    }
    return kh_buf_failed(out) ? kh_fail_memory(err) : 0;
}

/* A token that is there already, or is empty, has an id and cannot be found by its text. */
static int read_tokens(loader *l, bool bert, kh_err *err) {
    kh_gguf_list list;
    int rc = kh_gguf_texts(l->f, KEY "tokens", &list, err);
    if (rc != 0)
        return rc;
    if (list.n == 0 || list.n > KH_VOCAB_MAX)
        return kh_fail(err, KH_EFORMAT, "%s: \"" KEY "tokens\" holds %zu tokens, expected 1 to %d",
            l->name, list.n, KH_VOCAB_MAX);
    l->n = (int)list.n;
    if ((rc = read_kinds(l, err)) != 0)
        return rc;
    kh_vocab *v = &l->t->vocab;
    kh_buf word = kh_buf_init(1 << 20);
    const char *s;
    size_t n;
    for (int i = 0; rc == 0 && kh_gguf_next_text(&list, &s, &n); i++) {
        if (bert && (rc = put_bert_token(l, s, n, i, &word, err)) == 0) {
            s = word.len ? word.data : "";
            n = word.len;
        }
        if (rc != 0)
            break;
        if (n == 0 || kh_vocab_id(v, s, n) >= 0)
            rc = kh_vocab_name(v, s, n, i, l->name, err);
        else
            rc = kh_vocab_add(v, s, n, i, l->name, err);
    }
    kh_buf_free(&word);
    return rc;
}

/* Control tokens and those that a user defined are found in texts before the model sees them. */
static int add_tokens(loader *l, bool strips_mask, kh_err *err) {
    kh_vocab *v = &l->t->vocab;
    int mask = -1;
    int rc = kh_gguf_int_opt(l->f, KEY "mask_token_id", 0, l->n - 1, &mask, err);
    for (int i = 0; i < l->n && rc == 0; i++) {
        bool special = l->kind[i] == CONTROL || l->kind[i] == UNKNOWN;
        if ((!special && l->kind[i] != USER_DEFINED) || kh_vocab_id(v, v->token[i], v->len[i]) != i)
            continue;
        kh_added_token a = { .content = v->token[i], .n = v->len[i], .id = i, .special = special };
        a.lstrip = strips_mask && i == mask;
        rc = kh_tokenizer_add_token(l->t, &a, l->name, err);
    }
    return rc;
}

/* -------------------------------------------------------------------------------- the parts */

/* The id that plays a part, or -1; its token goes to the roles. */
static int read_role(loader *l, const char *key, const char *role, int32_t *id, kh_err *err) {
    int x = -1;
    int rc = kh_gguf_int_opt(l->f, key, -1, INT_MAX, &x, err);
    if (rc != 0)
        return rc;
    if (x >= l->n)
        return kh_fail(err, KH_EFORMAT, "%s: \"%s\" is %d, but there are only %d tokens", l->name,
            key, x, l->n);
    *id = x;
    const char *token = x >= 0 ? l->t->vocab.token[x] : NULL;
    if (token && json_object_set_new(l->roles, role, json_string(token)) != 0)
        json_object_del(l->roles, role); /* no UTF-8: it plays its part by number only */
    return 0;
}

static int read_roles(loader *l, kh_err *err) {
    int32_t other;
    const struct {
        const char *key, *role;
        int32_t *id;
    } rows[] = { { KEY "bos_token_id", "bos_token", &l->bos },
        { KEY "eos_token_id", "eos_token", &l->eos },
        { KEY "unknown_token_id", "unk_token", &other },
        { KEY "padding_token_id", "pad_token", &other },
        { KEY "mask_token_id", "mask_token", &other },
        { KEY "seperator_token_id", "sep_token", &l->sep }, /* the format's spelling */
        { KEY "cls_token_id", "cls_token", &l->cls } };
    l->roles = json_object();
    if (!l->roles)
        return kh_fail_memory(err);
    int rc = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && rc == 0; i++)
        rc = read_role(l, rows[i].key, rows[i].role, rows[i].id, err);
    return rc;
}

/* Components given as JSON, which is taken over. */
static int add_steps(loader *l, kh_chain *chain, const kh_kind *kinds, const char *list_key,
    json_t *obj, kh_err *err) {
    if (!obj)
        return kh_fail_memory(err);
    kh_source from = { l->name, &l->t->arena };
    int rc = kh_chain_load(chain, kinds, list_key, obj, &from, err);
    json_decref(obj);
    return rc;
}

static void put_special(json_t *list, json_t *all, const char *token, int32_t id, int type) {
    json_array_append_new(
        list, json_pack("{s:{s:s,s:i}}", "SpecialToken", "id", token, "type_id", type));
    json_object_set_new(
        all, token, json_pack("{s:s,s:[i],s:[s]}", "id", token, "ids", id, "tokens", token));
}

/* first A last, and for pairs first A last first B last: what Hugging Face does with such models.
 */
static int add_template(loader *l, int32_t first, int32_t last, kh_err *err) {
    if (first < 0 && last < 0)
        return 0;
    json_t *lists[2] = { json_array(), json_array() }, *all = json_object();
    for (int pair = 0; pair < 2; pair++)
        for (int i = 0; i <= pair; i++) {
            if (first >= 0)
                put_special(lists[pair], all, "first", first, i);
            json_array_append_new(lists[pair],
                json_pack("{s:{s:s,s:i}}", "Sequence", "id", i ? "B" : "A", "type_id", i));
            if (last >= 0)
                put_special(lists[pair], all, "last", last, i);
        }
    return add_steps(l, &l->t->postprocessors, kh_postprocessors, "processors",
        json_pack("{s:s,s:o,s:o,s:o}", "type", "TemplateProcessing", "single", lists[0], "pair",
            lists[1], "special_tokens", all),
        err);
}

/* What stands around a text, by the file's switches or else by habit. */
static int add_frame(loader *l, bool bos, bool eos, kh_err *err) {
    int rc = kh_gguf_bool_opt(l->f, KEY "add_bos_token", &bos, err);
    if (rc == 0)
        rc = kh_gguf_bool_opt(l->f, KEY "add_eos_token", &eos, err);
    return rc == 0 ? add_template(l, bos ? l->bos : -1, eos ? l->eos : -1, err) : rc;
}

/* ------------------------------------------------------------------------------------ llama */

static int read_scores(loader *l, kh_err *err) {
    kh_spm *m = &l->t->spm;
    kh_gguf_list list;
    double score;
    int rc = kh_gguf_numbers(l->f, KEY "scores", &list, err);
    if (rc != 0)
        return rc;
    if (list.n != (size_t)l->n)
        return kh_fail(err, KH_EFORMAT, "%s: %zu scores (\"" KEY "scores\") for %d tokens", l->name,
            list.n, l->n);
    m->score = kh_calloc((size_t)l->n, sizeof *m->score);
    if (!m->score)
        return kh_fail_memory(err);
    for (int i = 0; kh_gguf_next_number(&list, &score); i++) {
        if (!isfinite(score))
            return kh_fail(
                err, KH_EFORMAT, "%s: the score of token %d is not a finite number", l->name, i);
        bool piece = l->kind[i] != CONTROL && l->kind[i] != UNKNOWN && l->kind[i] != BYTE;
        m->score[i] = piece ? (float)score : NAN;
    }
    return 0;
}

static int load_llama(loader *l, kh_err *err) {
    kh_tokenizer *t = l->t;
    int unk = -1;
    bool prefix = true;
    t->model = KH_MODEL_SPM;
    int rc = read_scores(l, err);
    if (rc == 0)
        rc = kh_gguf_int_opt(l->f, KEY "unknown_token_id", -1, l->n - 1, &unk, err);
    if (rc == 0)
        rc = kh_gguf_bool_opt(l->f, KEY "add_space_prefix", &prefix, err);
    if (rc == 0)
        rc = add_tokens(l, false, err);
    if (rc != 0)
        return rc;
    for (int i = 0; i < l->n && unk < 0; i++)
        unk = l->kind[i] == UNKNOWN ? i : -1;
    t->spm.vocab = &t->vocab;
    t->spm.unk = unk;
    kh_spm_ready(&t->spm);
    if (prefix)
        rc = add_steps(l, &t->normalizers, kh_normalizers, "normalizers",
            json_pack("{s:s,s:s}", "type", "Prepend", "prepend", SPACE_MARK), err);
    if (rc == 0)
        rc = add_steps(l, &t->normalizers, kh_normalizers, "normalizers",
            json_pack("{s:s,s:{s:s},s:s}", "type", "Replace", "pattern", "String", " ", "content",
                SPACE_MARK),
            err);
    if (rc == 0)
        rc = add_steps(l, &t->decoders, kh_decoders, "decoders",
            json_pack("{s:s,s:[{s:s,s:{s:s},s:s},{s:s},{s:s}]}", "type", "Sequence", "decoders",
                "type", "Replace", "pattern", "String", SPACE_MARK, "content", " ", "type",
                "ByteFallback", "type", "Fuse"),
            err);
    if (rc == 0 && prefix)
        rc = add_steps(l, &t->decoders, kh_decoders, "decoders",
            json_pack("{s:s,s:s,s:i,s:i}", "type", "Strip", "content", " ", "start", 1, "stop", 0),
            err);
    return rc == 0 ? add_frame(l, true, false, err) : rc;
}

/* ------------------------------------------------------------------------------------- gpt2 */

#define ENGLISH "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define LINES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define NO_WORD "[^\\r\\n\\p{L}\\p{N}]?"
#define LLAMA3 ENGLISH "|" NO_WORD "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" LINES

/* The letters with case that deepseek-llm keeps together. */
#define CASED \
    "\\x{41}-\\x{5A}\\x{61}-\\x{7A}\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}" \
    "\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}" \
    "\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}" \
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}" \
    "\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}" \
    "\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}" \
    "\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}" \
    "\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}" \
    "\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}" \
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}" \
    "\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}" \
    "\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}" \
    "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}" \
    "\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}" \
    "\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}" \
    "\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}" \
    "\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}" \
    "\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

enum { WORDS_MAX = 6 };

/* How a text becomes words: by regular expressions, each applied to what the one before it left or
 * found, and at last by GPT-2's own if so said. Names are those of "tokenizer.ggml.pre". */
static const struct pre {
    const char *names; /* with a space on both sides of each */
    const char *word[WORDS_MAX];
    bool gpt2;
    bool ignore_merges; /* a word that is a token is not made of merges */
    bool bos;
} pre_table[] = {
    { " gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat a.x-4.0 mellum modern-bert "
      "exaone4 mpt olmo jais trillion granite-docling roberta-bpe jina-v1-en jina-v2-code ",
        { NULL }, true, false, false },
    { " smollm starcoder refact command-r codeshell exaone minerva-7b mellum2 ", { "\\p{N}" }, true,
        false, false },
    { " llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
        { LLAMA3 }, false, true, true },
    { " dbrx smaug-bpe glm4 chatglm-bpe ", { LLAMA3 }, false, false, false },
    { " qwen2 deepseek-r1-qwen stablelm2 hunyuan solar-open megrez grok-2 kormo f2llmv2 ",
        { ENGLISH "|" NO_WORD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" LINES }, false,
        false, false },
    { " qwen35 ",
        { ENGLISH "|" NO_WORD
                  "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES },
        false, false, false },
    { " gpt-4o llama4 kanana2 minimax-m2 ",
        { NO_WORD UPPER "*" LOWER "+" ENGLISH "?|" NO_WORD UPPER "+" LOWER "*" ENGLISH
                        "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" LINES },
        false, false, false },
    { " tekken ",
        { NO_WORD UPPER "*" LOWER "+|" NO_WORD UPPER "+" LOWER
                        "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" LINES },
        false, true, true },
    { " deepseek-llm ",
        { "[\\r\\n]", "\\s?[" CASED "]+",
            "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}"
            "\\x{3000}-\\x{3002}]+",
            "\\s+$", "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}+" },
        false, false, false },
    { " deepseek-coder ",
        { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
            "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}" },
        false, false, false },
    { " deepseek-v3 hunyuan-dense joyai-llm ",
        { "\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
            "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES },
        false, false, false },
    { " falcon ", { "[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]" }, false, false, false },
    { " default ", { "[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]" }, false,
        false, false },
};

static int find_pre(loader *l, const struct pre **out, const char **name, kh_err *err) {
    char word[64];
    *name = "default"; /* files from before there were names */
    int rc = kh_gguf_text_opt(l->f, KEY "pre", name, err);
    if (rc != 0)
        return rc;
    if ((size_t)snprintf(word, sizeof word, " %s ", *name) < sizeof word && !strchr(*name, ' '))
        for (size_t i = 0; i < sizeof pre_table / sizeof *pre_table; i++)
            if (strstr(pre_table[i].names, word)) {
                *out = &pre_table[i];
                return 0;
            }
    return kh_fail(err, KH_EUNSUPPORTED,
        "%s: \"" KEY "pre\" is \"%.60s\", a way of cutting texts into words that is not known; "
        "give the model's folder with its tokenizer.json instead",
        l->name, *name);
}

static int read_merges(loader *l, kh_err *err) {
    kh_gguf_list list;
    const char *s;
    size_t n;
    int rc = kh_gguf_texts(l->f, KEY "merges", &list, err);
    for (int rank = 0; rc == 0 && kh_gguf_next_text(&list, &s, &n); rank++) {
        char place[640];
        snprintf(place, sizeof place, "%.500s: merge %d", l->name, rank);
        const char *space = n > 1 ? memchr(s + 1, ' ', n - 1) : NULL;
        if (!space)
            return kh_fail(err, KH_EFORMAT,
                "%s: \"%.*s\" is not two tokens with a space between "
                "them",
                place, n < 100 ? (int)n : 100, s);
        size_t left = (size_t)(space - s);
        rc = kh_bpe_merge(&l->t->bpe, rank, s, left, space + 1, n - left - 1, place, err);
    }
    return rc;
}

static int add_words(loader *l, const struct pre *pre, kh_err *err) {
    kh_chain *chain = &l->t->pretokenizers;
    int rc = 0;
    for (int i = 0; i < WORDS_MAX && pre->word[i] && rc == 0; i++)
        rc = add_steps(l, chain, kh_pretokenizers, "pretokenizers",
            json_pack("{s:s,s:{s:s},s:s,s:b}", "type", "Split", "pattern", "Regex", pre->word[i],
                "behavior", "Isolated", "invert", 0),
            err);
    if (rc != 0)
        return rc;
    rc = add_steps(l, chain, kh_pretokenizers, "pretokenizers",
        json_pack(
            "{s:s,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", 0, "use_regex", pre->gpt2),
        err);
    return rc ? rc
              : add_steps(l, &l->t->decoders, kh_decoders, "decoders",
                    json_pack("{s:s}", "type", "ByteLevel"), err);
}

static int load_gpt2(loader *l, kh_err *err) {
    kh_tokenizer *t = l->t;
    const struct pre *pre = pre_table;
    const char *name;
    int rc = find_pre(l, &pre, &name, err);
    if (rc != 0)
        return rc;
    bool roberta = strcmp(name, "roberta-bpe") == 0;
    t->model = KH_MODEL_BPE;
    t->bpe = (kh_bpe){ .vocab = &t->vocab, .prefix = "", .suffix = "" };
    t->bpe.ignore_merges = pre->ignore_merges;
    if ((rc = read_merges(l, err)) != 0 || (rc = kh_bpe_ready(&t->bpe, err)) != 0 ||
        (rc = add_tokens(l, roberta, err)) != 0 || (rc = add_words(l, pre, err)) != 0)
        return rc;
    if (!roberta || l->bos < 0 || l->eos < 0)
        return add_frame(l, pre->bos, false, err);
    kh_around *post =
        kh_chain_add(&t->postprocessors, kh_postprocessors, "RobertaProcessing", &t->arena);
    if (!post)
        return kh_fail_memory(err);
    *post = (kh_around){ .cls = l->bos, .sep = l->eos };
    return 0;
}

/* ------------------------------------------------------------------------------------- bert */

/* The file does not say whether the model knows case. A word with a capital letter does. */
static bool is_cased(const loader *l) {
    const kh_vocab *v = &l->t->vocab;
    for (int i = 0; i < l->n; i++)
        for (uint32_t k = 0; k < v->len[i] && l->kind[i] == NORMAL && v->token[i][0] != '['; k++)
            if (v->token[i][k] >= 'A' && v->token[i][k] <= 'Z')
                return true;
    return false;
}

static int load_bert(loader *l, kh_err *err) {
    kh_tokenizer *t = l->t;
    const char *unk = json_string_value(json_object_get(l->roles, "unk_token"));
    bool cased = is_cased(l);
    t->model = KH_MODEL_WORDPIECE;
    t->wordpiece = (kh_wordpiece){ .vocab = &t->vocab, .prefix = "##", .max_chars = 100 };
    unk = unk ? unk : "[UNK]";
    t->wordpiece.unk_token = kh_arena_strndup(&t->arena, unk, strlen(unk));
    if (!t->wordpiece.unk_token)
        return kh_fail_memory(err);
    int rc = kh_wordpiece_ready(&t->wordpiece, err);
    for (int i = 0; i < l->n; i++) /* llama.cpp's converter calls some of them normal */
        if (l->kind[i] == NORMAL && t->vocab.len[i] > 2 && t->vocab.token[i][0] == '[' &&
            (i == l->cls || i == l->sep || i == l->bos || i == l->eos))
            l->kind[i] = CONTROL;
    if (rc == 0)
        rc = add_tokens(l, false, err);
    if (rc == 0)
        rc = add_steps(l, &t->normalizers, kh_normalizers, "normalizers",
            json_pack("{s:s,s:b,s:b,s:b,s:b}", "type", "BertNormalizer", "clean_text", 1,
                "handle_chinese_chars", 1, "strip_accents", !cased, "lowercase", !cased),
            err);
    if (rc == 0)
        rc = add_steps(l, &t->pretokenizers, kh_pretokenizers, "pretokenizers",
            json_pack("{s:s}", "type", "BertPreTokenizer"), err);
    if (rc == 0)
        rc = add_steps(l, &t->decoders, kh_decoders, "decoders",
            json_pack("{s:s,s:s,s:b}", "type", "WordPiece", "prefix", "##", "cleanup", 1), err);
    int32_t cls = l->cls >= 0 ? l->cls : l->bos, sep = l->sep >= 0 ? l->sep : l->eos;
    if (rc != 0 || cls < 0 || sep < 0)
        return rc;
    kh_around *post =
        kh_chain_add(&t->postprocessors, kh_postprocessors, "BertProcessing", &t->arena);
    if (!post)
        return kh_fail_memory(err);
    *post = (kh_around){ .cls = cls, .sep = sep };
    return 0;
}

/* --------------------------------------------------------------------------------- the file */

int kh_tokenizer_load_gguf(
    kh_tokenizer *t, const char *bytes, size_t n, const char *name, json_t **roles, kh_err *err) {
    static const struct {
        const char *model;
        int (*load)(loader *, kh_err *);
    } models[] = { { "llama", load_llama }, { "gpt2", load_gpt2 }, { "bert", load_bert } };
    kh_gguf *f;
    const char *model = "";
    loader l = { .t = t, .name = name, .bos = -1, .eos = -1, .sep = -1, .cls = -1 };
    int rc = kh_gguf_parse(&f, bytes, n, name, err), which = 0;
    l.f = f;
    if (rc == 0)
        rc = kh_gguf_text(f, KEY "model", &model, err);
    while (which < 3 && strcmp(models[which].model, model) != 0)
        which++;
    if (rc == 0 && which == 3)
        rc = kh_fail(err, KH_EUNSUPPORTED,
            "%s: \"" KEY "model\" is \"%.60s\"; llama, gpt2 and bert are read", name, model);
    if (rc == 0 && (rc = read_tokens(&l, which == 2, err)) == 0 && (rc = read_roles(&l, err)) == 0)
        rc = models[which].load(&l, err);
    kh_free(l.kind);
    kh_gguf_close(f);
    *roles = l.roles;
    return rc;
}

/* Names under which files stand in a GGUF file that keyhole wrote; tokenizer.json has a key of the
 * format's own. */
#define OWN "keyhole.file."

static int take_own_file(
    kh_tokenizer_file *out, const kh_gguf *f, const char *key, const char *name, kh_err *err) {
    const char *text = NULL;
    int rc = kh_gguf_text_opt(f, key, &text, err);
    if (rc != 0)
        return rc;
    char *path = kh_path_join(kh_gguf_path(f), name);
    if (!path)
        return kh_fail_memory(err);
    kh_free(out->path);
    out->path = path;
    if (!text)
        return 0;
    out->bytes = kh_buf_init(KH_TOKENIZER_FILE_MAX);
    kh_buf_text(&out->bytes, text);
    out->there = !kh_buf_failed(&out->bytes);
    return out->there ? 0 : kh_fail_memory(err);
}

int kh_tokenizer_files_gguf(kh_tokenizer_files *files, const char *path, kh_err *err) {
    static const char *const mains[][2] = { { "tokenizer.huggingface.json", "tokenizer.json" },
        { OWN "vocab.json", "vocab.json" }, { OWN "vocab.txt", "vocab.txt" } };
    static const char *const others[][2] = { { OWN "merges.txt", "merges.txt" },
        { OWN "tokenizer_config.json", "tokenizer_config.json" },
        { OWN "special_tokens_map.json", "special_tokens_map.json" },
        { OWN "added_tokens.json", "added_tokens.json" } };
    kh_gguf *f;
    kh_tokenizer_file *main = &files->file[KH_FILE_MAIN];
    int rc = kh_gguf_open(&f, path, err);
    for (int i = 0; i < 3 && rc == 0 && !main->there; i++)
        if (kh_gguf_has(f, mains[i][0]))
            rc = take_own_file(main, f, mains[i][0], mains[i][1], err);
    for (int i = 0; i < 4 && rc == 0 && main->there; i++)
        if (i > 0 || kh_gguf_has(f, others[0][0]))
            rc =
                take_own_file(&files->file[KH_FILE_MERGES + i], f, others[i][0], others[i][1], err);
    if (rc == 0 && !main->there) {
        /* The vocabulary alone, as a GGUF file: small enough to be kept and sent. */
        kh_gguf_keys keys = kh_gguf_keys_init();
        const char *key;
        for (int i = 0; (key = kh_gguf_key(f, i)) != NULL; i++)
            if (strncmp(key, KEY, strlen(KEY)) == 0)
                kh_gguf_put_copy(&keys, f, key);
        main->bytes = kh_buf_init(KH_TOKENIZER_FILE_MAX);
        kh_gguf_put_file(&main->bytes, &keys);
        main->path = kh_strdup(path);
        main->there = true;
        if (!main->path || kh_buf_failed(&main->bytes))
            rc = kh_fail_memory(err);
        kh_gguf_keys_free(&keys);
    }
    kh_gguf_close(f);
    return rc;
}
