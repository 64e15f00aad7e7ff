/* load_vocab.c - the files that came before tokenizer.json: vocab.json with merges.txt (GPT-2,
 * RoBERTa) and vocab.txt (BERT).
 *
 * They hold tokens only; the rest follows the conventions of the models that they belong to, and
 * what tokenizer_config.json, special_tokens_map.json and added_tokens.json beside them say. */
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "text/decode.h"
#include "text/normalize.h"
#include "text/postprocess.h"
#include "text/pretokenize.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------- the files beside the vocabulary */

static int open_one(const kh_tokenizer_file *f, const char **path, json_t **root, kh_err *err) {
    *path = f->path;
    if (!f->there)
        return 0;
    int rc = kh_json_parse(f->bytes.data, f->bytes.len, f->path, root, err);
    if (rc == 0 && !json_is_object(*root))
        rc = kh_fail(err, KH_EFORMAT, "%s: must hold an object", f->path);
    return rc;
}

int kh_beside_open(kh_beside *b, const kh_tokenizer_files *f, kh_err *err) {
    int rc = open_one(&f->file[KH_FILE_CONFIG], &b->config_path, &b->config, err);
    if (rc == 0)
        rc = open_one(&f->file[KH_FILE_MAP], &b->map_path, &b->map, err);
    return rc == 0 ? open_one(&f->file[KH_FILE_ADDED], &b->added_path, &b->added, err) : rc;
}

void kh_beside_close(kh_beside *b) {
    json_decref(b->config);
    json_decref(b->map);
    json_decref(b->added);
}

int kh_beside_role(
    const kh_beside *b, const char *role, const char **token, const json_t **flags, kh_err *err) {
    const json_t *const files[] = { b->config, b->map };
    const char *const paths[] = { b->config_path, b->map_path };
    *token = NULL;
    *flags = NULL;
    for (int i = 0; i < 2 && !*token; i++) {
        const json_t *v = json_object_get(files[i], role);
        if (!v || json_is_null(v) || json_is_false(v))
            continue;
        if (json_is_object(v)) {
            *flags = v;
            v = json_object_get(v, "content");
        }
        if (!json_is_string(v))
            return kh_fail(err, KH_EFORMAT,
                "%s: \"%s\" must be a token, or an object with the token as its \"content\"",
                paths[i], role);
        *token = json_string_value(v);
    }
    return 0;
}

/* Reads whichever of the flags an object gives. */
static int read_flags(kh_added_token *a, const json_t *obj, const char *place, kh_err *err) {
    int rc = kh_json_bool_opt(obj, "single_word", &a->single_word, place, err);
    if (rc == 0)
        rc = kh_json_bool_opt(obj, "lstrip", &a->lstrip, place, err);
    if (rc == 0)
        rc = kh_json_bool_opt(obj, "rstrip", &a->rstrip, place, err);
    if (rc == 0)
        rc = kh_json_bool_opt(obj, "normalized", &a->normalized, place, err);
    return rc ? rc : kh_json_bool_opt(obj, "special", &a->special, place, err);
}

/* "added_tokens_decoder": {"50264": {"content": "<mask>", "lstrip": true, ...}, ...} of
 * tokenizer_config.json. */
static int add_from_config(kh_tokenizer *t, const kh_beside *b, kh_err *err) {
    json_t *all = json_object_get(b->config, "added_tokens_decoder");
    if (!all || json_is_null(all))
        return 0;
    if (!json_is_object(all))
        return kh_fail(
            err, KH_EFORMAT, "%s: \"added_tokens_decoder\" must be an object", b->config_path);
    for (void *at = json_object_iter(all); at; at = json_object_iter_next(all, at)) {
        const char *key = json_object_iter_key(at);
        const json_t *obj = json_object_iter_value(at);
        char *end, place[640];
        long id = strtol(key, &end, 10);
        snprintf(
            place, sizeof place, "%.500s: added_tokens_decoder[\"%.20s\"]", b->config_path, key);
        if (end == key || *end || id < 0 || id >= KH_VOCAB_MAX || !json_is_object(obj))
            return kh_fail(err, KH_EFORMAT, "%s: must be an id and an object", place);
        kh_added_token a = { .id = (int32_t)id };
        int rc = kh_json_string(obj, "content", &a.content, place, err);
        if (rc == 0)
            rc = read_flags(&a, obj, place, err);
        if (rc != 0)
            return rc;
        a.n = strlen(a.content);
        if (!kh_added_find(&t->added, a.content, a.n) &&
            (rc = kh_tokenizer_add_token(t, &a, place, err)) != 0)
            return rc;
    }
    return 0;
}

/* {"token": id, ...} of added_tokens.json: tokens that users added. */
static int add_from_list(kh_tokenizer *t, const kh_beside *b, kh_err *err) {
    for (void *at = json_object_iter(b->added); at; at = json_object_iter_next(b->added, at)) {
        const char *token = json_object_iter_key(at);
        const json_t *id = json_object_iter_value(at);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= KH_VOCAB_MAX)
            return kh_fail(err, KH_EFORMAT,
                "%s: the id of \"%.100s\" must be a whole number from 0 to %d", b->added_path,
                token, KH_VOCAB_MAX - 1);
        kh_added_token a = { .content = token,
            .n = strlen(token),
            .id = (int32_t)json_integer_value(id),
            .normalized = true };
        if (kh_added_find(&t->added, a.content, a.n))
            continue;
        int rc = kh_tokenizer_add_token(t, &a, b->added_path, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* The token that plays a part, by the files or else by habit, made an added token if it is in the
 * vocabulary. *id: its id, or -1. strips: takes white space on its left, as RoBERTa's mask does. */
static int add_role(kh_tokenizer *t, const kh_beside *b, const char *role, const char *habit,
    bool strips, int32_t *id, kh_err *err) {
    const char *token;
    const json_t *flags;
    int rc = kh_beside_role(b, role, &token, &flags, err);
    if (rc != 0)
        return rc;
    char place[640];
    bool mapped = flags && flags == json_object_get(b->map, role);
    snprintf(place, sizeof place, "%.500s: %s", mapped ? b->map_path : b->config_path, role);
    kh_added_token a = { .content = token ? token : habit, .lstrip = strips, .special = true };
    a.n = strlen(a.content);
    *id = kh_tokenizer_find(t, a.content, a.n);
    if (*id < 0 || kh_added_find(&t->added, a.content, a.n))
        return 0;
    if (flags)
        rc = read_flags(&a, flags, place, err);
    a.special = true;
    return rc ? rc : kh_tokenizer_add_token(t, &a, place, err);
}

/* The next line of text from *at on, without its end; false at the end of the text. */
static bool next_line(const char *text, size_t n, size_t *at, const char **line, size_t *len) {
    if (*at >= n)
        return false;
    const char *end = memchr(text + *at, '\n', n - *at);
    *line = text + *at;
    *len = end ? (size_t)(end - *line) : n - *at;
    *at += *len + 1;
    if (*len > 0 && (*line)[*len - 1] == '\r')
        (*len)--;
    return true;
}

/* ------------------------------------------------------------------- vocab.json and merges.txt */

static int read_merges(kh_tokenizer *t, const char *text, size_t n, const char *path, kh_err *err) {
    size_t at = 0, len;
    const char *line;
    int rank = 0;
    for (long number = 1; next_line(text, n, &at, &line, &len); number++) {
        if (len >= 8 && memcmp(line, "#version", 8) == 0)
            continue;
        if (len == 0 && at >= n)
            break;
        const char *space = memchr(line, ' ', len);
        size_t left = space ? (size_t)(space - line) : 0;
        if (!space || memchr(space + 1, ' ', len - left - 1))
            return kh_fail_at(err, KH_EFORMAT, path, number,
                "a merge must be two tokens with a space between them");
        char place[640];
        snprintf(place, sizeof place, "%.500s:%ld", path, number);
        int rc = kh_bpe_merge(&t->bpe, rank++, line, left, space + 1, len - left - 1, place, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* Whether texts get <s> and </s> around them: RoBERTa and its kin do, GPT-2 and its kin do not. */
static bool frames(const kh_beside *b, int32_t cls, int32_t sep) {
    const char *class = json_string_value(json_object_get(b->config, "tokenizer_class"));
    return cls >= 0 && sep >= 0 && cls != sep && !(class && strncmp(class, "GPT2", 4) == 0);
}

int kh_tokenizer_load_merges(kh_tokenizer *t, json_t *vocab, const char *vocab_path,
    const char *text, size_t n, const char *merges_path, const kh_beside *b, kh_err *err) {
    t->model = KH_MODEL_BPE;
    t->bpe.vocab = &t->vocab;
    t->bpe.prefix = t->bpe.suffix = "";
    int rc = kh_tokenizer_load_ids(t, vocab, vocab_path, err);
    if (rc == 0)
        rc = read_merges(t, text, n, merges_path, err);
    if (rc == 0)
        rc = kh_bpe_ready(&t->bpe, err);
    if (rc == 0)
        rc = add_from_config(t, b, err);
    bool roberta =
        kh_vocab_id(&t->vocab, "<s>", 3) >= 0; /* its vocabulary holds <|endoftext|> too, unused */
    const struct {
        const char *role, *habit;
        bool strips;
    } roles[] = { { "cls_token", "<s>", false }, { "sep_token", "</s>", false },
        { "bos_token", roberta ? "<s>" : "<|endoftext|>", false },
        { "eos_token", roberta ? "</s>" : "<|endoftext|>", false }, { "unk_token", "<unk>", false },
        { "pad_token", "<pad>", false }, { "mask_token", "<mask>", true } };
    int32_t id[7] = { 0 };
    for (size_t i = 0; i < sizeof roles / sizeof *roles && rc == 0; i++)
        rc = add_role(t, b, roles[i].role, roles[i].habit, roles[i].strips, &id[i], err);
    if (rc == 0)
        rc = add_from_list(t, b, err);
    kh_byte_level *pre =
        rc == 0 ? kh_chain_add(&t->pretokenizers, kh_pretokenizers, "ByteLevel", &t->arena) : NULL;
    if (rc == 0 && (!pre || !kh_chain_add(&t->decoders, kh_decoders, "ByteLevel", &t->arena)))
        rc = kh_fail_memory(err);
    if (rc != 0)
        return rc;
    pre->use_regex = true;
    rc = kh_json_bool_opt(
        b->config, "add_prefix_space", &pre->add_prefix_space, b->config_path, err);
    t->fingerprint =
        kh_hash64_more(t->fingerprint, &pre->add_prefix_space, sizeof pre->add_prefix_space);
    if (rc != 0 || !frames(b, id[0], id[1]))
        return rc;
    kh_around *post =
        kh_chain_add(&t->postprocessors, kh_postprocessors, "RobertaProcessing", &t->arena);
    if (!post)
        return kh_fail_memory(err);
    *post = (kh_around){ .cls = id[0], .sep = id[1] };
    return 0;
}

/* ----------------------------------------------------------------------------------- vocab.txt */

/* One token a line; the line's number, from 0, is its id. An empty line is an id without a token.
 */
static int read_words(kh_tokenizer *t, const char *text, size_t n, const char *path, kh_err *err) {
    size_t at = 0, len;
    const char *line;
    for (long id = 0; next_line(text, n, &at, &line, &len); id++) {
        if (len == 0)
            continue;
        if (memchr(line, '\0', len))
            return kh_fail_at(err, KH_EFORMAT, path, id + 1, "a token holds a NUL byte");
        int32_t other = kh_vocab_id(&t->vocab, line, len);
        if (other >= 0)
            return kh_fail_at(err, KH_EFORMAT, path, id + 1,
                "token \"%.*s\" stands in line %d already", len < 100 ? (int)len : 100, line,
                other + 1);
        int rc = kh_vocab_add(&t->vocab, line, len, id, path, err);
        if (rc != 0)
            return rc;
    }
    return t->vocab.size > 0 ? 0 : kh_fail(err, KH_EFORMAT, "%s: holds no token", path);
}

static int add_bert_normalizer(kh_tokenizer *t, const kh_beside *b, kh_err *err) {
    kh_bert_normalizer *norm =
        kh_chain_add(&t->normalizers, kh_normalizers, "BertNormalizer", &t->arena);
    if (!norm)
        return kh_fail_memory(err);
    norm->clean_text = norm->handle_chinese_chars = norm->lowercase = true;
    int rc = kh_json_bool_opt(b->config, "do_lower_case", &norm->lowercase, b->config_path, err);
    norm->strip_accents = norm->lowercase;
    if (rc == 0)
        rc =
            kh_json_bool_opt(b->config, "strip_accents", &norm->strip_accents, b->config_path, err);
    if (rc == 0)
        rc = kh_json_bool_opt(
            b->config, "tokenize_chinese_chars", &norm->handle_chinese_chars, b->config_path, err);
    kh_bert_normalizer_ready(norm);
    t->fingerprint = kh_hash64_more(t->fingerprint, norm, sizeof *norm);
    return rc;
}

int kh_tokenizer_load_words(kh_tokenizer *t, const char *text, size_t n, const char *path,
    const kh_beside *b, kh_err *err) {
    const char *unk;
    const json_t *flags;
    int rc = read_words(t, text, n, path, err);
    if (rc == 0)
        rc = kh_beside_role(b, "unk_token", &unk, &flags, err);
    if (rc != 0)
        return rc;
    t->model = KH_MODEL_WORDPIECE;
    t->wordpiece = (kh_wordpiece){ .vocab = &t->vocab, .prefix = "##", .max_chars = 100 };
    t->wordpiece.unk_token =
        kh_arena_strndup(&t->arena, unk ? unk : "[UNK]", strlen(unk ? unk : "[UNK]"));
    if (!t->wordpiece.unk_token)
        return kh_fail_memory(err);
    rc = kh_wordpiece_ready(&t->wordpiece, err);
    if (rc == 0)
        rc = add_bert_normalizer(t, b, err);
    if (rc == 0)
        rc = add_from_config(t, b, err);
    static const char *const roles[][2] = { { "cls_token", "[CLS]" }, { "sep_token", "[SEP]" },
        { "unk_token", "[UNK]" }, { "pad_token", "[PAD]" }, { "mask_token", "[MASK]" } };
    int32_t id[5] = { 0 };
    for (int i = 0; i < 5 && rc == 0; i++)
        rc = add_role(t, b, roles[i][0], roles[i][1], false, &id[i], err);
    if (rc == 0)
        rc = add_from_list(t, b, err);
    if (rc == 0 &&
        !kh_chain_add(&t->pretokenizers, kh_pretokenizers, "BertPreTokenizer", &t->arena))
        rc = kh_fail_memory(err);
    kh_wordpiece_decoder *decoder =
        rc == 0 ? kh_chain_add(&t->decoders, kh_decoders, "WordPiece", &t->arena) : NULL;
    if (rc == 0 && !decoder)
        rc = kh_fail_memory(err);
    if (rc != 0)
        return rc;
    *decoder = (kh_wordpiece_decoder){ "##", true };
    if (id[0] < 0 || id[1] < 0)
        return 0;
    kh_around *post =
        kh_chain_add(&t->postprocessors, kh_postprocessors, "BertProcessing", &t->arena);
    if (!post)
        return kh_fail_memory(err);
    *post = (kh_around){ .cls = id[0], .sep = id[1] };
    return 0;
}
