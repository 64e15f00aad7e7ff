/* json.c - see json.h. jansson's own depth limit is 2048 and fixed at its build, so the depth is
 * checked first, by a scan that only has to tell strings from brackets. It also measures the
 * longest string: jansson (2.14) collects a string in a buffer and, when that cannot grow, loses
 * characters or writes beyond a block; so memory for it is asked for before jansson is. And it
 * tells what the tree will take: three bytes, "{},", become 240, so that the limit on a file is no
 * limit on memory. */
#include "base/json.h"

#include "base/alloc.h"
#include "base/controls.h"
#include "base/err.h"
#include "base/file.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum { SMALL = 4096 }; /* bytes that are always there */

/* What jansson (2.14, on a machine of 64 bits) takes for a value, from its structures and malloc's
 * rounding; a table that is doubled is counted in full. */
enum {
    OBJECT_COST = 240,
    MEMBER_COST = 112, /* and the key */
    ARRAY_COST = 136,
    STRING_COST = 88, /* and its bytes */
    NUMBER_COST = 32,
    ELEMENT_COST = 24
};

typedef struct shape {
    long deep;      /* the line on which nesting passes KH_JSON_DEPTH, or 0 */
    size_t longest; /* bytes of the longest string, with its escapes */
    size_t cost;    /* of the tree, at most */
} shape;

/* Measures a text that need not be valid, without building anything. */
static shape measure(const char *text, size_t n) {
    shape s = { 0 };
    int depth = 0;
    long line = 1;
    bool quoted = false, word = false; /* word: within a number, true, false or null */
    size_t start = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '\n')
            line++;
        if (quoted) {
            if (c == '\\')
                i++;
            else if (c == '"') {
                quoted = false;
                s.longest = i - start > s.longest ? i - start : s.longest;
                s.cost += i - start;
            }
            continue;
        }
        bool in_word = word;
        word = false;
        switch (c) {
        case '"':
            quoted = true;
            start = i;
            s.cost += STRING_COST + ELEMENT_COST;
            break;
        case '{':
        case '[':
            s.cost += (size_t)(c == '{' ? OBJECT_COST : ARRAY_COST) + ELEMENT_COST;
            if (++depth > KH_JSON_DEPTH) {
                s.deep = line;
                return s;
            }
            break;
        case '}':
        case ']': depth--; break;
        case ':': /* its key was counted as a string value, which takes more than a key */
            s.cost += MEMBER_COST > STRING_COST + ELEMENT_COST
                ? (size_t)(MEMBER_COST - STRING_COST - ELEMENT_COST)
                : 0;
            break;
        case ',':
        case ' ':
        case '\t':
        case '\n':
        case '\r': break;
        default:
            word = true;
            if (!in_word)
                s.cost += NUMBER_COST + ELEMENT_COST;
        }
    }
    if (quoted) /* it never ends; jansson reads on until it sees that */
        s.longest = n - start > s.longest ? n - start : s.longest;
    return s;
}

size_t kh_json_cost(const char *text, size_t n) { return measure(text, n).cost; }

/* A string, the buffer that holds it while it grows, and the one that it grows into. */
static bool has_room(size_t longest) {
    void *room = longest > SMALL ? kh_malloc(4 * longest) : NULL;
    kh_free(room);
    return longest <= SMALL || room;
}

int kh_json_parse_line(
    const char *text, size_t n, const char *name, long first, json_t **root, kh_err *err) {
    *root = NULL;
    shape s = measure(text, n);
    if (s.deep)
        return kh_fail_at(err, KH_ELIMIT, name, first + s.deep - 1,
            "JSON is nested deeper than %d levels", (int)KH_JSON_DEPTH);
    if (s.cost > KH_JSON_TREE + KH_JSON_TREE_RATIO * n)
        return kh_fail(err, KH_ELIMIT,
            "%s: %zu bytes of JSON that would take %zu MB of memory; that many empty or tiny "
            "values "
            "are refused",
            name, n, s.cost >> 20);
    if (!has_room(s.longest))
        return kh_fail_memory(err);
    json_error_t why;
    *root = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    if (*root)
        return 0;
    if (json_error_code(&why) == json_error_out_of_memory ||
        why.text[0] == '\0') /* without a word: no memory for the reader */
        return kh_fail_memory(err);
    return kh_fail_at(err, KH_EFORMAT, name, first + why.line - 1, "not valid JSON: %s (column %d)",
        why.text, why.column);
}

int kh_json_parse(const char *text, size_t n, const char *name, json_t **root, kh_err *err) {
    return kh_json_parse_line(text, n, name, 1, root, err);
}

int kh_json_read(const char *path, size_t max, json_t **root, kh_err *err) {
    *root = NULL;
    kh_buf bytes;
    int rc = kh_file_read(path, max, &bytes, err);
    if (rc == 0)
        rc = kh_json_parse(bytes.data, bytes.len, path, root, err);
    kh_buf_free(&bytes);
    return rc;
}

static int missing(const char *key, const char *place, kh_err *err) {
    return kh_fail(err, KH_EFORMAT, "%s: \"%s\" is missing", place, key);
}

static const json_t *find(const json_t *obj, const char *key) {
    const json_t *v = json_object_get(obj, key);
    return json_is_null(v) ? NULL : v;
}

int kh_json_int_opt(const json_t *obj, const char *key, long min, long max, int *out,
    const char *place, kh_err *err) {
    const json_t *v = find(obj, key);
    if (!v)
        return 0;
    if (min < INT_MIN)
        min = INT_MIN;
    if (max > INT_MAX)
        max = INT_MAX;
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : 0;
    if (!json_is_integer(v) || n < min || n > max)
        return kh_fail(err, KH_EFORMAT, "%s: \"%s\" must be a whole number from %ld to %ld", place,
            key, min, max);
    *out = (int)n;
    return 0;
}

int kh_json_number_opt(
    const json_t *obj, const char *key, double *out, const char *place, kh_err *err) {
    const json_t *v = find(obj, key);
    if (!v)
        return 0;
    if (!json_is_number(v) || !isfinite(json_number_value(v)))
        return kh_fail(err, KH_EFORMAT, "%s: \"%s\" must be a number", place, key);
    *out = json_number_value(v);
    return 0;
}

int kh_json_bool_opt(
    const json_t *obj, const char *key, bool *out, const char *place, kh_err *err) {
    const json_t *v = find(obj, key);
    if (!v)
        return 0;
    if (!json_is_boolean(v))
        return kh_fail(err, KH_EFORMAT, "%s: \"%s\" must be true or false", place, key);
    *out = json_is_true(v);
    return 0;
}

int kh_json_string_opt(
    const json_t *obj, const char *key, const char **out, const char *place, kh_err *err) {
    const json_t *v = find(obj, key);
    if (!v)
        return 0;
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
        return kh_fail(err, KH_EFORMAT, "%s: \"%s\" must be a string", place, key);
    *out = json_string_value(v);
    return 0;
}

int kh_json_int(const json_t *obj, const char *key, long min, long max, int *out, const char *place,
    kh_err *err) {
    return find(obj, key) ? kh_json_int_opt(obj, key, min, max, out, place, err)
                          : missing(key, place, err);
}

int kh_json_number(
    const json_t *obj, const char *key, double *out, const char *place, kh_err *err) {
    return find(obj, key) ? kh_json_number_opt(obj, key, out, place, err)
                          : missing(key, place, err);
}

int kh_json_bool(const json_t *obj, const char *key, bool *out, const char *place, kh_err *err) {
    return find(obj, key) ? kh_json_bool_opt(obj, key, out, place, err) : missing(key, place, err);
}

int kh_json_string(
    const json_t *obj, const char *key, const char **out, const char *place, kh_err *err) {
    return find(obj, key) ? kh_json_string_opt(obj, key, out, place, err)
                          : missing(key, place, err);
}

void kh_json_quote(kh_buf *out, const char *s, size_t n) {
    kh_buf_char(out, '"');
    for (size_t i = 0; i < n;) {
        int len;
        uint32_t c = kh_utf8_next(s + i, n - i, &len, NULL);
        char utf8[4];
        i += (size_t)len;
        if (c == '"' || c == '\\')
            kh_buf_printf(out, "\\%c", (char)c);
        else if (c == '\n')
            kh_buf_text(out, "\\n");
        else if (c == '\t')
            kh_buf_text(out, "\\t");
        else if (kh_is_control(c)) /* the same text to a reader, and nothing to a terminal */
            kh_buf_printf(out, "\\u%04x", (unsigned)c);
        else
            kh_buf_bytes(out, utf8, (size_t)kh_utf8_put(c, utf8));
    }
    kh_buf_char(out, '"');
}

void kh_json_u64(kh_buf *out, uint64_t n) {
    const char *quote = n > (uint64_t)1 << 53 ? "\"" : "";
    kh_buf_printf(out, "%s%" PRIu64 "%s", quote, n, quote);
}
