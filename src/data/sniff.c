/* sniff.c - see sniff.h.
 *
 * CSV has no standard that files keep to. Excel writes semicolons where the comma is the decimal
 * mark; exports come with and without a header, and with the label first (AG News, fastText) or
 * last. So a few hundred rows are cut on trial with each separator, and the layout is taken from
 * what they hold. The trial works on a copy, because cutting writes over the buffer. */
#include "data/sniff.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/map.h"
#include "data/columns.h"
#include "data/label_names.h"
#include "data/table.h"

#include <string.h>
#include <strings.h>

enum { TRIAL_BYTES = 1 << 18, TRIAL_ROWS = 400, LEAST_ROWS = 4 };

/* ------------------------------------------------------------------------------------- refusal */

static const struct signature {
    const char *bytes;
    size_t n;
    const char *what, *remedy;
} SIGNATURES[] = {
    { "PK\x03\x04", 4, "an Excel workbook or another ZIP archive",
        "export the sheet as \"CSV UTF-8\"" },
    { "\xD0\xCF\x11\xE0", 4, "an old Excel workbook", "export the sheet as \"CSV UTF-8\"" },
    { "\x1F\x8B", 2, "compressed by gzip", "unpack it with gunzip" },
    { "PAR1", 4, "a Parquet file", "export it as CSV or JSONL" },
    { "SQLite format 3", 15, "an SQLite database", "export the table as CSV" },
    { "\x93NUMPY", 6, "a NumPy array", "write the rows as CSV or JSONL" },
};

/* UTF-16 by its byte order mark, or by the zeros beside ASCII letters. */
static bool is_utf16(const char *s, size_t n) {
    if (n >= 2 && (memcmp(s, "\xFF\xFE", 2) == 0 || memcmp(s, "\xFE\xFF", 2) == 0))
        return true;
    size_t zero[2] = { 0, 0 }, most = n < 64 ? n & ~(size_t)1 : 64;
    for (size_t i = 0; i < most; i++)
        zero[i % 2] += s[i] == '\0';
    return most >= 16 && ((zero[0] > most / 3 && !zero[1]) || (zero[1] > most / 3 && !zero[0]));
}

int kh_sniff_refuse(const char *path, const char *bytes, size_t n, kh_err *err) {
    for (size_t i = 0; i < sizeof SIGNATURES / sizeof SIGNATURES[0]; i++) {
        const struct signature *s = &SIGNATURES[i];
        if (n >= s->n && memcmp(bytes, s->bytes, s->n) == 0)
            return kh_fail(
                err, KH_EFORMAT, "%s: this is %s, not a text file; %s", path, s->what, s->remedy);
    }
    if (!is_utf16(bytes, n))
        return 0;
    return kh_fail_at(err, KH_EFORMAT, path, 1,
        "the file is UTF-16; a data file must be UTF-8: iconv -f UTF-16 -t UTF-8 \"%s\" > utf8.csv",
        path);
}

/* -------------------------------------------------------------------------------------- layout */

/* The different values of one column. */
typedef struct values {
    kh_map seen;
    int n; /* different ones */
    bool first_again;
} values;

typedef struct trial {
    int n_row, n_column; /* of the first row; 0: no such table */
    bool named, ragged;
    values first, last;
} trial;

static bool has_name(const void *table, const char *name) {
    const kh_table *t = table;
    for (int i = 0; i < t->n_field; i++) {
        const char *s = t->field[i].s;
        size_t n = t->field[i].n;
        kh_trim(&s, &n);
        if (strlen(name) == n && strncasecmp(s, name, n) == 0)
            return true;
    }
    return false;
}

/* A first row with a text column's name in it is a header, unless it starts with a number, as a
 * class would. */
static bool has_known_names(const kh_table *t) {
    kh_columns columns;
    const char *half;
    bool number =
        t->n_field > 0 && t->field[0].n > 0 && t->field[0].s[0] >= '0' && t->field[0].s[0] <= '9';
    return !number && (kh_columns_find(&columns, NULL, has_name, t, &half) || half);
}

/* Numbers of the same value differ in the map as in the file: what counts is how they repeat. */
static int add_value(values *v, const kh_field *f, int row) {
    const char *s = f->s;
    size_t n = f->n;
    int32_t before = -1;
    kh_trim(&s, &n);
    int added = kh_map_add(&v->seen, n ? s : " ", n ? n : 1, row, &before);
    v->n += added > 0;
    v->first_again |= added == 0 && before == 0;
    return added < 0 ? added : 0;
}

static int try_rows(trial *out, char *bytes, size_t n, char sep, kh_err *err) {
    kh_table t = {
        .path = "", .at = bytes, .end = bytes + n, .line = 1, .sep = sep, .quotes = true
    };
    kh_err ignored;
    int rc = 0;
    while (rc == 0 && out->n_row < TRIAL_ROWS && kh_table_next(&t, &ignored) > 0) {
        if (out->n_row == 0) {
            out->n_column = t.n_field;
            out->named = has_known_names(&t);
        }
        if (t.n_field != out->n_column) {
            out->ragged = true;
            break;
        }
        rc = add_value(&out->first, &t.field[0], out->n_row);
        if (rc == 0)
            rc = add_value(&out->last, &t.field[t.n_field - 1], out->n_row);
        out->n_row++;
    }
    kh_table_free(&t);
    return rc == 0 ? 0 : kh_fail_memory(err);
}

static void trial_free(trial *t) {
    kh_map_free(&t->first.seen);
    kh_map_free(&t->last.seen);
}

/* The copy ends with the last whole line of what fits. */
static size_t trial_size(const char *bytes, size_t n) {
    if (n <= TRIAL_BYTES)
        return n;
    for (n = TRIAL_BYTES; n > 0 && bytes[n - 1] != '\n'; n--)
        ;
    return n;
}

static void take_layout(kh_layout *out, const trial *t, char sep) {
    *out = (kh_layout){ .sep = sep, .header = t->named, .named = t->named, .label_first = true };
    if (t->named || t->n_row < LEAST_ROWS)
        return;
    out->label_first = t->first.n <= t->last.n;
    const values *label = out->label_first ? &t->first : &t->last;
    /* If nothing repeats, it is no column of labels. */
    out->header = !label->first_again && label->n - 1 <= (t->n_row - 1) / 2;
}

int kh_sniff_layout(kh_layout *out, const char *bytes, size_t n, kh_err *err) {
    static const char SEPARATORS[] = { ',', ';', '\t' };
    *out = (kh_layout){ .sep = ',', .label_first = true };
    n = trial_size(bytes, n);
    char *copy = kh_malloc(n + 1);
    int rc = copy ? 0 : kh_fail_memory(err), best = -1;
    for (int i = 0; i < 3 && rc == 0; i++) {
        trial t = { 0 };
        memcpy(copy, bytes, n);
        rc = try_rows(&t, copy, n, SEPARATORS[i], err);
        /* A comma is what the name of the file promises; others must do better. */
        int merit = (t.named ? 4 : 0) + (t.n_column > 1 && !t.ragged ? 2 : 0) +
            (t.n_column > 1 && i == 0 ? 1 : 0);
        if (rc == 0 && merit > best) {
            best = merit;
            take_layout(out, &t, SEPARATORS[i]);
        }
        trial_free(&t);
    }
    kh_free(copy);
    return rc;
}
