/* golden.h - holding a tokenizer to the answers in a NAME.jsonl (tests/vectors/tokenizers/README.md
 * has the format). */
#ifndef KH_TEST_GOLDEN_H
#define KH_TEST_GOLDEN_H

#include "test.h"

#include "base/json.h"
#include "base/file.h"

/* The text of a line: its "text" or the bytes of its hexadecimal "bytes". Free it. */
static inline char *golden_text(const json_t *line, size_t *n) {
    const char *hex = json_string_value(json_object_get(line, "bytes"));
    const json_t *text = json_object_get(line, "text");
    *n = hex ? strlen(hex) / 2 : json_string_length(text);
    char *out = malloc(*n + 1);
    for (size_t i = 0; hex && i < *n; i++) {
        unsigned byte;
        sscanf(hex + 2 * i, "%2x", &byte);
        out[i] = (char)byte;
    }
    if (!hex)
        memcpy(out, json_string_value(text), *n);
    return out;
}

static inline bool golden_same_ids(const json_t *expected, const kh_ids *ids) {
    bool same = json_array_size(expected) == (size_t)ids->n;
    for (int i = 0; same && i < ids->n; i++)
        same = json_integer_value(json_array_get(expected, (size_t)i)) == ids->id[i];
    return same;
}

static inline void golden_show(const char *what, const json_t *expected, const kh_ids *ids) {
    char *text = json_dumps(expected, JSON_ENCODE_ANY | JSON_COMPACT);
    printf("#   %s: expected %s\n#   got [", what, text);
    for (int i = 0; i < ids->n; i++)
        printf("%s%d", i ? "," : "", ids->id[i]);
    printf("]\n");
    free(text);
}

/* Compares ids, if the line has them under this key. */
static inline bool golden_check_ids(const json_t *line, const char *key, const kh_ids *ids) {
    const json_t *expected = json_object_get(line, key);
    if (!expected || golden_same_ids(expected, ids))
        return true;
    golden_show(key, expected, ids);
    return false;
}

static inline bool golden_check_decoded(
    const kh_tokenizer *t, const json_t *line, const char *key, const kh_ids *ids, bool skip) {
    const json_t *expected = json_object_get(line, key);
    if (!expected)
        return true;
    char *text;
    size_t n;
    kh_err err;
    assert_int_equal(kh_tokenizer_decode(t, ids->id, ids->n, skip, &text, &n, &err), 0);
    bool same =
        n == json_string_length(expected) && memcmp(text, json_string_value(expected), n) == 0;
    if (!same)
        printf("#   %s: expected \"%s\"\n#   got \"%s\"\n", key, json_string_value(expected), text);
    kh_text_free(text);
    return same;
}

static inline int golden_encode(const kh_tokenizer *t, const json_t *line, unsigned flags,
    kh_ids *ids, kh_ids *types, kh_err *err) {
    const json_t *pair = json_object_get(line, "pair");
    size_t n;
    char *text = golden_text(line, &n);
    int rc = pair ? kh_tokenizer_encode_pair(t, text, n, json_string_value(pair),
                        json_string_length(pair), flags, ids, types, err)
                  : kh_tokenizer_encode(t, text, n, flags, ids, err);
    free(text);
    return rc;
}

/* The strings of tokens: those of added tokens show what of the text they took, so only the model's
 * are compared. */
static inline bool golden_check_tokens(
    const kh_tokenizer *t, const json_t *line, const kh_ids *ids) {
    const json_t *expected = json_object_get(line, "tokens");
    for (size_t i = 0; expected && i < (size_t)ids->n; i++) {
        const char *want = json_string_value(json_array_get(expected, i)),
                   *have = kh_tokenizer_token(t, ids->id[i]);
        bool added = have &&
            (strchr(have, '<') || strchr(have, '[') || kh_tokenizer_id(t, want) != ids->id[i]);
        if (!have || (!added && strcmp(want, have) != 0)) {
            printf("#   token %zu: expected \"%s\"\n#   got \"%s\"\n", i, want,
                have ? have : "nothing");
            return false;
        }
    }
    return true;
}

static inline bool golden_line(const kh_tokenizer *t, const json_t *line) {
    kh_ids ids = { 0 }, plain = { 0 }, types = { 0 };
    kh_err err = { 0 };
    bool ok = true;
    const json_t *decode = json_object_get(line, "decode");
    for (size_t i = 0; i < json_array_size(decode); i++) {
        ids.id = realloc(ids.id, (i + 1) * sizeof *ids.id);
        ids.id[ids.n++] = (int32_t)json_integer_value(json_array_get(decode, i));
    }
    if (!decode &&
        (golden_encode(t, line, KH_ENCODE_FRAME, &ids, &types, &err) != 0 ||
            golden_encode(t, line, 0, &plain, NULL, &err) != 0)) {
        printf("#   %s\n", err.msg);
        ok = false;
    } else {
        ok = (decode || golden_check_ids(line, "ids", &ids)) &&
            golden_check_ids(line, decode ? "-" : "ids_plain", &plain);
        ok = ok && golden_check_tokens(t, line, &ids) && golden_check_ids(line, "type_ids", &types);
        ok = ok && golden_check_decoded(t, line, "decoded", &ids, true) &&
            golden_check_decoded(t, line, "decoded_all", &ids, false);
    }
    kh_ids_free(&ids);
    kh_ids_free(&plain);
    kh_ids_free(&types);
    return ok;
}

/* All lines of a golden file; `model` and `answers` are path patterns with %s for the name. */
static inline void golden_file(const char *name, const char *model, const char *answers) {
    char path[512];
    kh_tokenizer *t;
    kh_err err = { 0 };
    snprintf(path, sizeof path, model, name);
    if (kh_tokenizer_open(&t, path, &err) != 0)
        fail_msg("%s", err.msg);
    snprintf(path, sizeof path, answers, name);
    kh_buf text;
    assert_int_equal(kh_file_read(path, 64 << 20, &text, &err), 0);
    int number = 0, wrong = 0;
    for (char *at = text.data, *end; at < text.data + text.len; at = end + 1) {
        end = strchr(at, '\n');
        assert_non_null(end);
        json_t *line;
        number++;
        if (kh_json_parse(at, (size_t)(end - at), path, &line, &err) != 0)
            fail_msg("%s", err.msg);
        if (!golden_line(t, line) && ++wrong <= 5)
            printf("# %s:%d differs: %.300s\n", path, number, at);
        json_decref(line);
    }
    kh_buf_free(&text);
    kh_tokenizer_close(t);
    assert_true(number > 0);
    if (wrong)
        fail_msg("%s: %d of %d lines differ", path, wrong, number);
}

#endif
