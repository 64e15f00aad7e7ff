/* table.c - TSV and CSV, one row a call.
 *
 * TSV is lines and tabs. CSV follows RFC 4180 with one allowance that files in the wild need: a
 * quote inside an unquoted field is a character like any other. Unquoting writes over the buffer:
 * it only ever removes bytes, so that the writing position never overtakes the reading one. */
#include "data/table.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"

#include <string.h>

enum { MAX_FIELDS = 4096 };

char *kh_line_end(char *at, char *end) {
    char *newline = memchr(at, '\n', (size_t)(end - at));
    return newline ? newline : end;
}

int kh_row_check(const char *s, size_t n, const char *path, long line, kh_err *err) {
    if (n > KH_ROW_MAX)
        return kh_fail_at(err, KH_EFORMAT, path, line, "a row of %zu bytes; at most %d are allowed",
            n, (int)KH_ROW_MAX);
    if (memchr(s, '\0', n))
        return kh_fail_at(err, KH_EFORMAT, path, line,
            "the row holds a NUL byte; a data file must be UTF-8 text");
    size_t valid = kh_utf8_prefix(s, n);
    if (valid == n)
        return 0;
    return kh_fail_at(err, KH_EFORMAT, path, line,
        "not valid UTF-8: byte 0x%02X, %zu bytes after the start of the row",
        (unsigned)(unsigned char)s[valid], valid);
}

static int add_field(kh_table *t, char *s, const char *end, kh_err *err) {
    if (t->n_field == MAX_FIELDS)
        return kh_fail_at(
            err, KH_EFORMAT, t->path, t->row_line, "more than %d columns", (int)MAX_FIELDS);
    if (!kh_grow(&t->field, &t->cap, (size_t)t->n_field + 1, sizeof *t->field))
        return kh_fail_memory(err);
    t->field[t->n_field++] = (kh_field){ s, (size_t)(end - s) };
    return 0;
}

/* A line without quoting: `stop` is its end, without the line break. */
static int split_line(kh_table *t, char *stop, kh_err *err) {
    int rc = kh_row_check(t->at, (size_t)(stop - t->at), t->path, t->row_line, err);
    char *from = t->at;
    while (rc == 0) {
        char *tab = memchr(from, t->sep, (size_t)(stop - from));
        rc = add_field(t, from, tab ? tab : stop, err);
        if (!tab)
            break;
        *tab = ' ';
        from = tab + 1;
    }
    return rc;
}

static bool at_line_break(const char *in, const char *end) {
    return in == end || *in == '\n' || (*in == '\r' && (in + 1 == end || in[1] == '\n'));
}

/* The quoted part of a field: *in stands after the opening quote and is left after the closing one.
 * False if there is none. */
static bool unquote(kh_table *t, char **in, char **out) {
    char *r = *in, *w = *out;
    bool closed = false;
    while (r < t->end && !closed) {
        char c = *r++;
        if (c == '\n')
            t->line++;
        if (c == '"' && r < t->end && *r == '"')
            *w++ = *r++;
        else if (c == '"')
            closed = true;
        else
            *w++ = c;
    }
    *in = r;
    *out = w;
    return closed;
}

/* A row with quoting. Leaves t->at after the row, whatever is wrong with it. */
static int split_quoted(kh_table *t, kh_err *err) {
    char *in = t->at, *out = in;
    int rc = 0;
    for (bool more = true; more;) {
        char *from = out;
        if (in < t->end && *in == '"') {
            in++;
            if (!unquote(t, &in, &out)) {
                t->at = t->end;
                return kh_fail_at(err, KH_EFORMAT, t->path, t->row_line,
                    "a quoted field of the row that starts here is never closed; the rest of the "
                    "file cannot be read");
            }
            if (rc == 0 && !at_line_break(in, t->end) && *in != t->sep)
                rc = kh_fail_at(err, KH_EFORMAT, t->path, t->row_line,
                    "text follows the closing quote of field %d; a quote inside a quoted field "
                    "must be doubled",
                    t->n_field + 1);
        }
        while (!at_line_break(in, t->end) && *in != t->sep)
            *out++ = *in++;
        if (rc == 0)
            rc = kh_row_check(from, (size_t)(out - from), t->path, t->row_line, err);
        if (rc == 0)
            rc = add_field(t, from, out, err);
        more = !at_line_break(in, t->end);
        if (more) {
            in++;
            *out++ = ' ';
        }
    }
    if (in < t->end && *in == '\r')
        in++;
    if (in < t->end && *in == '\n') {
        in++;
        t->line++;
    }
    if (rc == 0 && in - t->at > KH_ROW_MAX)
        rc = kh_row_check(t->at, (size_t)(in - t->at), t->path, t->row_line, err);
    t->at = in;
    return rc;
}

int kh_table_next(kh_table *t, kh_err *err) {
    while (t->at < t->end) {
        t->n_field = 0;
        t->row_line = t->line;
        char *newline = kh_line_end(t->at, t->end), *stop = newline;
        if (stop > t->at && stop[-1] == '\r')
            stop--;
        bool blank = stop == t->at;
        if (!blank && t->quotes) {
            int rc = split_quoted(t, err);
            return rc == 0 ? 1 : rc;
        }
        int rc = blank ? 0 : split_line(t, stop, err);
        t->at = newline < t->end ? newline + 1 : t->end;
        t->line++;
        if (!blank)
            return rc == 0 ? 1 : rc;
    }
    return 0;
}

void kh_table_free(kh_table *t) {
    kh_free(t->field);
    t->field = NULL;
    t->cap = 0;
}
