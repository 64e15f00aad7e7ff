/* load_json.c - a tokenizer.json, as Hugging Face's library "tokenizers" writes it.
 *
 * "truncation" and "padding" are read over: keyhole cuts texts itself, where a template says it
 * may, and never pads. */
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "text/decode.h"
#include "text/normalize.h"
#include "text/postprocess.h"
#include "text/pretokenize.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

int kh_tokenizer_load_ids(kh_tokenizer *t, json_t *vocab, const char *place, kh_err *err) {
    if (!json_is_object(vocab) || json_object_size(vocab) == 0)
        return kh_fail(err, KH_EFORMAT,
            "%s: the vocabulary must be an object of tokens and their ids, with at least one token",
            place);
    for (void *at = json_object_iter(vocab); at; at = json_object_iter_next(vocab, at)) {
        const char *token = json_object_iter_key(at);
        const json_t *id = json_object_iter_value(at);
        if (!json_is_integer(id))
            return kh_fail(err, KH_EFORMAT, "%s: the id of token \"%.100s\" must be a whole number",
                place, token);
        int rc = kh_vocab_add(&t->vocab, token, strlen(token), json_integer_value(id), place, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* A copy of an optional text in the arena; *out stays as it is if the key is missing or null. */
static int load_text(kh_tokenizer *t, const json_t *obj, const char *key, const char **out,
    const char *place, kh_err *err) {
    const char *s = NULL;
    int rc = kh_json_string_opt(obj, key, &s, place, err);
    if (rc == 0 && s && (*out = kh_arena_strndup(&t->arena, s, strlen(s))) == NULL)
        rc = kh_fail_memory(err);
    return rc;
}

/* -------------------------------------------------------------------------------------- models */

/* One merge: "left right", or ["left", "right"]. A first line of merges.txt may have come along. */
static int load_merge(
    kh_tokenizer *t, const json_t *merge, int rank, const char *place, kh_err *err) {
    const char *left = json_string_value(merge), *right;
    size_t n_left, n_right;
    if (left) {
        if (strncmp(left, "#version", 8) == 0)
            return 0;
        const char *space = strchr(left, ' ');
        if (!space || strchr(space + 1, ' '))
            return kh_fail(err, KH_EFORMAT,
                "%s: \"%.100s\" is not two tokens with a space between them", place, left);
        n_left = (size_t)(space - left);
        right = space + 1;
        n_right = strlen(right);
    } else {
        const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
        if (json_array_size(merge) != 2 || !json_is_string(a) || !json_is_string(b))
            return kh_fail(err, KH_EFORMAT,
                "%s: a merge must be \"left right\" or [\"left\", \"right\"]", place);
        left = json_string_value(a);
        right = json_string_value(b);
        n_left = json_string_length(a);
        n_right = json_string_length(b);
    }
    return kh_bpe_merge(&t->bpe, rank, left, n_left, right, n_right, place, err);
}

static int load_bpe(kh_tokenizer *t, json_t *obj, const char *place, kh_err *err) {
    kh_bpe *m = &t->bpe;
    double dropout = 0;
    m->vocab = &t->vocab;
    m->prefix = m->suffix = "";
    t->model = KH_MODEL_BPE;
    int rc = kh_json_number_opt(obj, "dropout", &dropout, place, err);
    if (rc == 0 && dropout != 0)
        rc = kh_fail(err, KH_EUNSUPPORTED,
            "%s: \"dropout\" is %g: tokenizing at random is not supported, set it to null", place,
            dropout);
    if (rc == 0)
        rc = load_text(t, obj, "unk_token", &m->unk_token, place, err);
    if (rc == 0)
        rc = load_text(t, obj, "continuing_subword_prefix", &m->prefix, place, err);
    if (rc == 0)
        rc = load_text(t, obj, "end_of_word_suffix", &m->suffix, place, err);
    if (rc == 0)
        rc = kh_json_bool_opt(obj, "fuse_unk", &m->fuse_unk, place, err);
    if (rc == 0)
        rc = kh_json_bool_opt(obj, "byte_fallback", &m->byte_fallback, place, err);
    if (rc == 0)
        rc = kh_json_bool_opt(obj, "ignore_merges", &m->ignore_merges, place, err);
    if (rc == 0)
        rc = kh_tokenizer_load_ids(t, json_object_get(obj, "vocab"), place, err);
    const json_t *merges = json_object_get(obj, "merges");
    if (rc == 0 && (!json_is_array(merges) || json_array_size(merges) > INT_MAX))
        rc = kh_fail(err, KH_EFORMAT, "%s: \"merges\" must be a list", place);
    for (size_t i = 0; rc == 0 && i < json_array_size(merges); i++) {
        char at[700];
        snprintf(at, sizeof at, "%.500s: merges[%zu]", place, i);
        rc = load_merge(t, json_array_get(merges, i), (int)i, at, err);
    }
    return rc ? rc : kh_bpe_ready(m, err);
}

static int load_wordpiece(kh_tokenizer *t, json_t *obj, const char *place, kh_err *err) {
    kh_wordpiece *m = &t->wordpiece;
    m->vocab = &t->vocab;
    m->unk_token = "[UNK]";
    m->prefix = "##";
    m->max_chars = 100;
    t->model = KH_MODEL_WORDPIECE;
    int rc = load_text(t, obj, "unk_token", &m->unk_token, place, err);
    if (rc == 0)
        rc = load_text(t, obj, "continuing_subword_prefix", &m->prefix, place, err);
    if (rc == 0)
        rc =
            kh_json_int_opt(obj, "max_input_chars_per_word", 0, INT_MAX, &m->max_chars, place, err);
    if (rc == 0)
        rc = kh_tokenizer_load_ids(t, json_object_get(obj, "vocab"), place, err);
    return rc ? rc : kh_wordpiece_ready(m, err);
}

/* One piece: ["text", score]; its id is its place in the list. */
static int load_piece(
    kh_tokenizer *t, const json_t *piece, size_t id, const char *place, kh_err *err) {
    const json_t *text = json_array_get(piece, 0), *score = json_array_get(piece, 1);
    if (json_array_size(piece) != 2 || !json_is_string(text) || !json_is_number(score))
        return kh_fail(err, KH_EFORMAT,
            "%s: vocab[%zu] must be a piece and its score: [\"text\", number]", place, id);
    const char *s = json_string_value(text);
    size_t n = json_string_length(text);
    t->unigram.score[id] = json_number_value(score);
    /* Of a piece that is there twice the library finds the last; its own files have none. */
    if (kh_vocab_id(&t->vocab, s, n) >= 0 || n == 0)
        return kh_vocab_name(&t->vocab, s, n, (long long)id, place, err);
    return kh_vocab_add(&t->vocab, s, n, (long long)id, place, err);
}

static int load_unigram(kh_tokenizer *t, json_t *obj, const char *place, kh_err *err) {
    kh_unigram *m = &t->unigram;
    const json_t *vocab = json_object_get(obj, "vocab");
    size_t n = json_array_size(vocab);
    int unk = -1;
    t->model = KH_MODEL_UNIGRAM;
    m->vocab = &t->vocab;
    if (n == 0 || n > KH_VOCAB_MAX)
        return kh_fail(err, KH_EFORMAT,
            "%s: \"vocab\" must be a list of 1 to %d pieces with their scores", place,
            KH_VOCAB_MAX);
    m->score = kh_calloc(n, sizeof *m->score);
    int rc = m->score ? 0 : kh_fail_memory(err);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = load_piece(t, json_array_get(vocab, i), i, place, err);
    if (rc == 0)
        rc = kh_json_int_opt(obj, "unk_id", 0, (long)n - 1, &unk, place, err);
    if (rc == 0)
        rc = kh_json_bool_opt(obj, "byte_fallback", &m->byte_fallback, place, err);
    m->unk = unk;
    return rc ? rc : kh_unigram_ready(m, err);
}

static const struct {
    const char *type, *telling; /* telling: a key that gives the model away where "type" is missing,
                                   as in old files */
    int (*load)(kh_tokenizer *, json_t *, const char *place, kh_err *);
} models[] = { { "BPE", "merges", load_bpe },
    { "WordPiece", "max_input_chars_per_word", load_wordpiece },
    { "Unigram", "unk_id", load_unigram } };

static int load_model(kh_tokenizer *t, json_t *obj, const char *name, kh_err *err) {
    const char *type = NULL;
    char place[640];
    snprintf(place, sizeof place, "%.500s: model", name);
    if (!json_is_object(obj))
        return kh_fail(err, KH_EFORMAT, "%s: must be an object", place);
    int rc = kh_json_string_opt(obj, "type", &type, place, err);
    if (rc != 0)
        return rc;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (type ? strcmp(type, models[i].type) == 0
                 : json_object_get(obj, models[i].telling) != NULL)
            return models[i].load(t, obj, place, err);
    if (!type)
        return kh_fail(err, KH_EFORMAT, "%s: \"type\" is missing", place);
    return kh_fail(err, KH_EUNSUPPORTED,
        "%s: type \"%.100s\" is not supported; BPE, WordPiece and Unigram are", place, type);
}

/* -------------------------------------------------------------------------------- added tokens */

static int load_added(kh_tokenizer *t, const json_t *list, const char *name, kh_err *err) {
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list))
        return kh_fail(err, KH_EFORMAT, "%s: \"added_tokens\" must be a list", name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *obj = json_array_get(list, i);
        kh_added_token a = { 0 };
        int id = 0;
        char place[640];
        snprintf(place, sizeof place, "%.500s: added_tokens[%zu]", name, i);
        if (!json_is_object(obj))
            return kh_fail(err, KH_EFORMAT, "%s: must be an object", place);
        int rc = kh_json_int(obj, "id", 0, KH_VOCAB_MAX - 1, &id, place, err);
        if (rc == 0)
            rc = kh_json_string(obj, "content", &a.content, place, err);
        const struct {
            const char *key;
            bool *into;
        } flags[] = { { "single_word", &a.single_word }, { "lstrip", &a.lstrip },
            { "rstrip", &a.rstrip }, { "normalized", &a.normalized }, { "special", &a.special } };
        for (size_t k = 0; k < sizeof flags / sizeof *flags && rc == 0; k++)
            rc = kh_json_bool(obj, flags[k].key, flags[k].into, place, err);
        if (rc != 0)
            return rc;
        a.id = id;
        a.n = strlen(a.content);
        if ((rc = kh_tokenizer_add_token(t, &a, place, err)) != 0)
            return rc;
    }
    return 0;
}

/* ------------------------------------------------------------------------------------ the file */

int kh_tokenizer_load_json(kh_tokenizer *t, json_t *root, const char *name, kh_err *err) {
    if (!json_is_object(root))
        return kh_fail(err, KH_EFORMAT, "%s: a tokenizer.json must hold an object", name);
    const struct {
        const char *key, *list_key;
        kh_chain *chain;
        const kh_kind *kinds;
    } families[] = {
        { "normalizer", "normalizers", &t->normalizers, kh_normalizers },
        { "pre_tokenizer", "pretokenizers", &t->pretokenizers, kh_pretokenizers },
        { "post_processor", "processors", &t->postprocessors, kh_postprocessors },
        { "decoder", "decoders", &t->decoders, kh_decoders },
    };
    int rc = load_model(t, json_object_get(root, "model"), name, err);
    for (size_t i = 0; i < sizeof families / sizeof *families && rc == 0; i++) {
        char place[640];
        snprintf(place, sizeof place, "%.500s: %s", name, families[i].key);
        kh_source from = { place, &t->arena };
        rc = kh_chain_load(families[i].chain, families[i].kinds, families[i].list_key,
            json_object_get(root, families[i].key), &from, err);
    }
    return rc ? rc : load_added(t, json_object_get(root, "added_tokens"), name, err);
}
