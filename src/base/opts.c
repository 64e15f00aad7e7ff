/* opts.c - options from text by table; see opts.h.
 *
 * A row says where in a struct the value lies and what it may be; parsing, defaults, the echo in
 * results and in journals all walk the same row, so no default and no limit is written twice. */
#include "base/opts.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_out.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_name(const char *name, const char *s, size_t n) {
    return name && strlen(name) == n && memcmp(name, s, n) == 0;
}

static void *field(const kh_opt *row, void *opts) { return (char *)opts + row->offset; }

/* Old names are understood for ever, and shown nowhere. */
const kh_opt *kh_opts_find(const kh_opt *table, const char *name, size_t n) {
    for (const kh_opt *row = table; row && row->name; row++)
        if (is_name(row->name, name, n) || is_name(row->old, name, n))
            return row;
    return NULL;
}

/* "--flag" alone is "true" and "--no-flag" is "false": the caller's doing. */
static int set_flag(const kh_opt *row, bool *out, const char *value, kh_err *err) {
    if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
        return kh_fail(
            err, KH_EARG, "--%s takes no value, or true or false; got \"%s\"", row->name, value);
    *out = value[0] == 't';
    return 0;
}

/* Nothing but these characters: strtol and strtod also take white space, hexadecimal and words. */
static bool is_made_of(const char *value, const char *characters) {
    return value[strspn(value, characters)] == '\0';
}

/* Bounds that are both 0 mean none but the type's own. */
static int set_int(const kh_opt *row, int *out, const char *value, kh_err *err) {
    double min = row->min, max = row->max == 0 && row->min == 0 ? INT_MAX : row->max;
    char *end;
    errno = 0;
    long n = strtol(value, &end, 10);
    if (end == value || !is_made_of(value, "-0123456789") || *end || errno || (double)n < min ||
        (double)n > max)
        return kh_fail(err, KH_EARG, "--%s takes a whole number from %.0f to %.0f; got \"%s\"",
            row->name, min, max, value);
    *out = (int)n;
    return 0;
}

static int set_seed(const kh_opt *row, uint64_t *out, const char *value, kh_err *err) {
    char *end;
    errno = 0;
    unsigned long long n = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end || errno)
        return kh_fail(err, KH_EARG,
            "--%s takes a whole number from 0 to 18446744073709551615; got \"%s\"", row->name,
            value);
    *out = n;
    return 0;
}

/* strtod goes by the locale; the program stays in the C locale, where "0.5" is a half. */
static int set_number(const kh_opt *row, double *out, const char *value, kh_err *err) {
    char *end;
    double x = strtod(value, &end);
    bool any = row->min == 0 && row->max == 0;
    if (end == value || !is_made_of(value, "+-.0123456789eE") || *end || !isfinite(x))
        return kh_fail(err, KH_EARG, "--%s takes a number; got \"%s\"", row->name, value);
    if (!any && (x < row->min || x > row->max))
        return kh_fail(err, KH_EARG, "--%s takes a number from %g to %g; got \"%s\"", row->name,
            row->min, row->max, value);
    *out = x;
    return 0;
}

/* Choices are "a|b|c" in the help, and the index is the value: enums follow the order of the words.
 */
static int set_choice(const kh_opt *row, int *out, const char *value, kh_err *err) {
    size_t n = strlen(value);
    int index = 0;
    for (const char *at = row->arg;; index++) {
        size_t len = strcspn(at, "|");
        if (len == n && memcmp(at, value, n) == 0) {
            *out = index;
            return 0;
        }
        if (!at[len])
            return kh_fail(
                err, KH_EARG, "--%s takes one of %s; got \"%s\"", row->name, row->arg, value);
        at += len + 1;
    }
}

bool kh_strings_add(kh_strings *list, const char *value) {
    if (!kh_grow(&list->item, &list->cap, (size_t)list->n + 1, sizeof *list->item))
        return false;
    list->item[list->n++] = value;
    return true;
}

/* Texts are borrowed: arguments of a program live as long as it does. */
int kh_opts_set(const kh_opt *row, void *opts, const char *value, kh_err *err) {
    void *out = field(row, opts);
    switch (row->type) {
    case KH_OPT_FLAG: return set_flag(row, out, value, err);
    case KH_OPT_INT: return set_int(row, out, value, err);
    case KH_OPT_SEED: return set_seed(row, out, value, err);
    case KH_OPT_NUMBER: return set_number(row, out, value, err);
    case KH_OPT_TEXT: *(const char **)out = value; return 0;
    case KH_OPT_CHOICE: return set_choice(row, out, value, err);
    case KH_OPT_LIST: return kh_strings_add(out, value) ? 0 : kh_fail_memory(err);
    }
    return kh_fail(err, KH_EARG, "--%s has no type", row->name);
}

void kh_opts_init(const kh_opt *table, void *opts) {
    for (const kh_opt *row = table; row && row->name; row++) {
        assert(!(row->type == KH_OPT_LIST && row->value)); /* a list starts empty */
        if (row->type == KH_OPT_LIST)
            *(kh_strings *)field(row, opts) = (kh_strings){ 0 };
        if (!row->value)
            continue;
        int rc = kh_opts_set(row, opts, row->value, NULL);
        assert(rc == 0); /* a default that its own row refuses is our bug */
        (void)rc;
    }
}

void kh_opts_free(const kh_opt *table, void *opts) {
    for (const kh_opt *row = table; row && row->name; row++)
        if (row->type == KH_OPT_LIST) {
            kh_strings *list = field(row, opts);
            kh_free(list->item);
            *list = (kh_strings){ 0 };
        }
}

static void put_choice(const kh_opt *row, int index, const char *key, kh_json_out *j) {
    const char *at = row->arg;
    while (index-- > 0)
        at += strcspn(at, "|") + 1;
    kh_json_put_text(j, key, at, strcspn(at, "|"));
}

static void put_value(const kh_opt *row, const void *value, const char *key, kh_json_out *j) {
    switch (row->type) {
    case KH_OPT_FLAG: kh_json_put_bool(j, key, *(const bool *)value); break;
    case KH_OPT_INT: kh_json_put_int(j, key, *(const int *)value); break;
    case KH_OPT_SEED: kh_json_put_u64(j, key, *(const uint64_t *)value); break;
    case KH_OPT_NUMBER: kh_json_put_number(j, key, *(const double *)value, 17); break;
    case KH_OPT_TEXT: kh_json_put_string(j, key, *(const char *const *)value); break;
    case KH_OPT_CHOICE: put_choice(row, *(const int *)value, key, j); break;
    case KH_OPT_LIST: {
        const kh_strings *list = value;
        kh_json_open_array(j, key);
        for (int i = 0; i < list->n; i++)
            kh_json_put_string(j, NULL, list->item[i]);
        kh_json_close(j);
        break;
    }
    }
}

void kh_opts_value(const kh_opt *row, const void *opts, kh_buf *out) {
    kh_json_out j = kh_json_out_init(out, KH_JSON_COMPACT);
    put_value(row, (const char *)opts + row->offset, NULL, &j);
}

void kh_opts_json(const kh_opt *table, const void *opts, kh_buf *out) {
    kh_json_out j = kh_json_out_init(out, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    for (const kh_opt *row = table; row && row->name; row++)
        put_value(row, (const char *)opts + row->offset, row->name, &j);
    kh_json_close(&j);
}
