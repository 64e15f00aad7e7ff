/* prune_vocab.c - see prune_vocab.h. The files are changed as JSON, so that what is not understood
 * here comes through as it was: only ids are looked for, in the vocabulary, the added tokens, the
 * post-processors and the files beside. */
#include "text/prune_vocab.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_one_character(const char *s, size_t n) {
    int len, ok = 1;
    if (n == 0)
        return false;
    kh_utf8_next(s, n, &len, &ok);
    return ok && (size_t)len == n;
}

int kh_prune_mark(const kh_tokenizer *t, bool *keep, const char *name, kh_err *err) {
    if (t->model != KH_MODEL_WORDPIECE)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: only the vocabulary of a WordPiece tokenizer can be pruned", name);
    size_t prefix = strlen(t->wordpiece.prefix);
    for (int32_t id = 0; id < t->vocab.size; id++) {
        const char *token = t->vocab.token[id];
        size_t n = token ? t->vocab.len[id] : 0;
        bool inside = n > prefix && memcmp(token, t->wordpiece.prefix, prefix) == 0;
        if (token &&
            (kh_added_find(&t->added, token, n) || is_one_character(token, n) ||
                (inside && is_one_character(token + prefix, n - prefix))))
            keep[id] = true;
    }
    for (int i = 0; i < KH_N_SPECIAL; i++)
        if (t->special[i] >= 0)
            keep[t->special[i]] = true;
    return 0;
}

/* --------------------------------------------------------------------------------- new numbers */

typedef struct numbers {
    int32_t *now; /* [n] the new id of an old one, or -1 */
    int n, kept;
} numbers;

static int number(numbers *m, const bool *keep, int n, kh_err *err) {
    *m = (numbers){ .now = kh_calloc((size_t)n, sizeof *m->now), .n = n };
    if (!m->now)
        return kh_fail_memory(err);
    for (int i = 0; i < n; i++)
        m->now[i] = keep[i] ? m->kept++ : -1;
    return 0;
}

/* The new id as a JSON number, which the caller owns. */
static int renumber(
    const numbers *m, const json_t *old, json_t **out, const char *place, kh_err *err) {
    json_int_t id = json_is_integer(old) ? json_integer_value(old) : -1;
    *out = NULL;
    if (id < 0 || id >= m->n || m->now[id] < 0)
        return kh_fail(err, KH_EFORMAT,
            "%s: the id of a token that must stay is not in the vocabulary", place);
    return (*out = json_integer(m->now[id])) ? 0 : kh_fail_memory(err);
}

static int renumber_key(
    const numbers *m, json_t *obj, const char *key, const char *place, kh_err *err) {
    json_t *id;
    int rc =
        json_object_get(obj, key) ? renumber(m, json_object_get(obj, key), &id, place, err) : 1;
    if (rc != 0)
        return rc > 0 ? 0 : rc;
    return json_object_set_new(obj, key, id) == 0 ? 0 : kh_fail_memory(err);
}

static int renumber_item(const numbers *m, json_t *list, size_t i, const char *place, kh_err *err) {
    json_t *id;
    int rc = renumber(m, json_array_get(list, i), &id, place, err);
    if (rc == 0 && json_array_set_new(list, i, id) != 0)
        rc = kh_fail_memory(err);
    return rc;
}

typedef struct entry {
    const char *token;
    int32_t id;
} entry;

static int by_id(const void *a, const void *b) {
    return ((const entry *)a)->id - ((const entry *)b)->id;
}

/* {"token": id} without those that go, in the order of the new ids; *out is the caller's. */
static int prune_vocab(const numbers *m, json_t *vocab, json_t **out, kh_err *err) {
    entry *all = kh_calloc(json_object_size(vocab) + 1, sizeof *all);
    size_t n = 0;
    *out = json_object();
    for (void *at = json_object_iter(vocab); all && at; at = json_object_iter_next(vocab, at)) {
        json_int_t id = json_integer_value(json_object_iter_value(at));
        if (id >= 0 && id < m->n && m->now[id] >= 0)
            all[n++] = (entry){ json_object_iter_key(at), m->now[id] };
    }
    if (n > 0)
        qsort(all, n, sizeof *all, by_id);
    bool ok = all && *out;
    for (size_t i = 0; i < n && ok; i++)
        ok = json_object_set_new(*out, all[i].token, json_integer(all[i].id)) == 0;
    kh_free(all);
    return ok ? 0 : kh_fail_memory(err);
}

static int prune_key(const numbers *m, json_t *obj, const char *key, kh_err *err) {
    json_t *pruned = NULL;
    int rc = prune_vocab(m, json_object_get(obj, key), &pruned, err);
    if (rc == 0)
        return json_object_set_new(obj, key, pruned) == 0 ? 0 : kh_fail_memory(err);
    json_decref(pruned);
    return rc;
}

/* ----------------------------------------------------------------------------------- the files */

/* TemplateProcessing has {"special_tokens": {"[SEP]": {"ids": [..]}}}, the older ones {"sep":
 * ["[SEP]", 102]}. */
static int renumber_post(const numbers *m, json_t *post, const char *place, kh_err *err) {
    json_t *specials = json_object_get(post, "special_tokens"), *token;
    static const char *const ends[] = { "sep", "cls" };
    const char *name;
    int rc = 0;
    json_object_foreach(specials, name, token) {
        json_t *ids = json_object_get(token, "ids");
        for (size_t i = 0; i < json_array_size(ids) && rc == 0; i++)
            rc = renumber_item(m, ids, i, place, err);
    }
    for (int i = 0; i < 2 && rc == 0; i++)
        if (json_array_size(json_object_get(post, ends[i])) == 2)
            rc = renumber_item(m, json_object_get(post, ends[i]), 1, place, err);
    json_t *list = json_object_get(post, "processors");
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++)
        rc = renumber_post(m, json_array_get(list, i), place, err);
    return rc;
}

static int prune_main(const numbers *m, json_t *root, const char *place, kh_err *err) {
    json_t *added = json_object_get(root, "added_tokens");
    int rc = prune_key(m, json_object_get(root, "model"), "vocab", err);
    for (size_t i = 0; i < json_array_size(added) && rc == 0; i++)
        rc = renumber_key(m, json_array_get(added, i), "id", place, err);
    if (rc == 0)
        rc = renumber_key(m, json_object_get(root, "padding"), "pad_id", place, err);
    return rc ? rc : renumber_post(m, json_object_get(root, "post_processor"), place, err);
}

/* tokenizer_config.json has {"added_tokens_decoder": {"102": {"content": "[SEP]", ...}}}. */
static int prune_config(const numbers *m, json_t *root, const char *place, kh_err *err) {
    json_t *old = json_object_get(root, "added_tokens_decoder"), *now, *token;
    const char *key;
    if (!old)
        return 0;
    if (!(now = json_object()))
        return kh_fail_memory(err);
    int rc = 0;
    json_object_foreach(old, key, token) {
        char name[16];
        long id = strtol(key, NULL, 10);
        if (id < 0 || id >= m->n || m->now[id] < 0)
            rc = kh_fail(err, KH_EFORMAT,
                "%s: added_tokens_decoder: \"%.40s\" is no id of the tokenizer", place, key);
        else {
            snprintf(name, sizeof name, "%d", (int)m->now[id]);
            rc = json_object_set(now, name, token) == 0 ? 0 : kh_fail_memory(err);
        }
        if (rc != 0)
            break;
    }
    if (rc == 0)
        return json_object_set_new(root, "added_tokens_decoder", now) == 0 ? 0
                                                                           : kh_fail_memory(err);
    json_decref(now);
    return rc;
}

/* special_tokens_map.json knows no ids. */
static int keep_as_is(const numbers *m, json_t *root, const char *place, kh_err *err) {
    (void)m, (void)root, (void)place, (void)err;
    return 0;
}

static const struct {
    const char *name;
    kh_tokenizer_part part;
    int (*change)(const numbers *, json_t *, const char *place, kh_err *);
} FILES[] = {
    { "tokenizer.json", KH_FILE_MAIN, prune_main },
    { "tokenizer_config.json", KH_FILE_CONFIG, prune_config },
    { "special_tokens_map.json", KH_FILE_MAP, keep_as_is },
};

static int write_json(json_t *root, const char *folder, const char *name, kh_err *err) {
    char *path = kh_path_join(folder, name), *text = json_dumps(root, JSON_COMPACT);
    int rc = path && text ? kh_file_write(path, text, strlen(text), err) : kh_fail_memory(err);
    free(text);
    kh_free(path);
    return rc;
}

static int write_files(
    const kh_tokenizer_files *f, const numbers *m, const char *folder, kh_err *err) {
    int rc = 0;
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES && rc == 0; i++) {
        const kh_tokenizer_file *file = &f->file[FILES[i].part];
        json_t *root;
        if (!file->there ||
            (rc = kh_json_parse(file->bytes.data, file->bytes.len, file->path, &root, err)) != 0)
            continue;
        if ((rc = FILES[i].change(m, root, file->path, err)) == 0)
            rc = write_json(root, folder, FILES[i].name, err);
        json_decref(root);
    }
    return rc;
}

int kh_prune_write(const char *path, const bool *keep, int n, const char *folder, kh_err *err) {
    kh_tokenizer_files f;
    numbers m = { 0 };
    int rc = kh_tokenizer_files_read(&f, path, err);
    size_t len = rc == 0 ? strlen(f.file[KH_FILE_MAIN].path) : 0;
    if (rc == 0 && len >= 4 && strcmp(f.file[KH_FILE_MAIN].path + len - 4, ".txt") == 0)
        rc = kh_fail(err, KH_EUNSUPPORTED,
            "%s: a vocabulary is pruned in a tokenizer.json; save the tokenizer as one",
            f.file[KH_FILE_MAIN].path);
    if (rc == 0 && (rc = number(&m, keep, n, err)) == 0)
        rc = write_files(&f, &m, folder, err);
    kh_free(m.now);
    kh_tokenizer_files_free(&f);
    return rc;
}
