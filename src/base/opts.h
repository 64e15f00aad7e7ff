/* opts.h - one table row per option feeds the parser, --help, the man page, shell completion and
 * the echo in results.
 *
 *     typedef struct { int pop; double sigma; bool json; int loss; } my_opts;
 *     static const kh_opt table[] = {
 *         { "pop",   KH_OPT_INT,    offsetof(my_opts, pop),   "20", .min = 2, .max = 100000, .arg =
 * "N", .help = "candidates" }, { "loss",  KH_OPT_CHOICE, offsetof(my_opts, loss),  "ce", .arg =
 * "ce|hinge", .help = "what is minimised" }, { "json",  KH_OPT_FLAG,   offsetof(my_opts, json),
 * .help = "print JSON" }, { 0 } };
 *
 * A default stands in its row and nowhere else. */
#ifndef KH_BASE_OPTS_H
#define KH_BASE_OPTS_H

#include "base/buf.h"
#include "keyhole.h"

typedef enum kh_opt_type {
    KH_OPT_FLAG,   /* bool; --name, --no-name */
    KH_OPT_INT,    /* int within [min, max] */
    KH_OPT_SEED,   /* uint64_t */
    KH_OPT_NUMBER, /* double within [min, max]; min = max = 0 means any */
    KH_OPT_TEXT,   /* const char *, borrowed from the caller of kh_opts_set */
    KH_OPT_CHOICE, /* int: index into arg, which is "first|second|..." */
    KH_OPT_LIST,   /* kh_strings, each value added to the end */
} kh_opt_type;

typedef struct kh_opt {
    const char *name; /* NULL ends a table */
    kh_opt_type type;
    size_t offset;
    const char *value; /* the default as the user would type it; NULL: zero, false, nothing */
    double min, max;
    const char *arg;  /* what --help calls the value; for choices, the choices */
    const char *help; /* one line, no full stop */
    bool required;
    const char *old; /* an earlier name, which still works and which help does not show; or NULL */
} kh_opt;

/* Sets every option of the table to its default; with kh_opts_free it brackets the life of an
 * options struct. */
void kh_opts_init(const kh_opt *table, void *opts);
void kh_opts_free(const kh_opt *table, void *opts);

/* Adds to the end, borrowed; false: out of memory. */
bool kh_strings_add(kh_strings *, const char *value);

/* The row called name (n bytes), or NULL. */
const kh_opt *kh_opts_find(const kh_opt *table, const char *name, size_t n);

/* Sets one option from text. KH_EARG with a sentence when the value does not fit. */
int kh_opts_set(const kh_opt *row, void *opts, const char *value, kh_err *err);

/* Appends the options as one JSON object, in the order of the table. Seeds above 2^53 are strings.
 */
void kh_opts_json(const kh_opt *table, const void *opts, kh_buf *out);

/* Appends the value of one option as JSON. */
void kh_opts_value(const kh_opt *row, const void *opts, kh_buf *out);

#endif
