/* table.h - rows and fields of delimited text, cut in place out of a buffer.
 *
 *     kh_table t = { .path = path, .at = bytes, .end = bytes + n,
 *         .line = 1, .sep = ',', .quotes = true };
 *     while ((rc = kh_table_next(&t, err)) > 0 || rc == KH_EFORMAT)
 *         ...                                    a bad row does not end the table
 *     kh_table_free(&t);
 *
 * A field is bytes of the buffer, unquoted; the byte after each field but the last of a row is free
 * and holds a space, so that neighbouring fields can be read as one text. */
#ifndef KH_DATA_TABLE_H
#define KH_DATA_TABLE_H

#include "keyhole.h"

enum {
    KH_ROW_MAX = 16 << 20
}; /* bytes of a row; more is a wrong file or a lost quote, not a text to classify */

typedef struct kh_field {
    char *s;
    size_t n;
} kh_field;

typedef struct kh_table {
    const char *path; /* for messages */
    char *at, *end;   /* what is left to read */
    long line;        /* the line that `at` is on, from 1 */
    char sep;
    bool quotes;   /* RFC 4180: "a ""quoted"" field" may hold separators and line breaks */
    long row_line; /* where the current row starts */
    kh_field *field;
    int n_field;
    size_t cap;
} kh_table;

/* The next row that is not blank. Returns 1, or 0 at the end, or KH_EFORMAT for a malformed row,
 * after which the call may be repeated for the rows that follow. */
int kh_table_next(kh_table *, kh_err *err);
void kh_table_free(kh_table *);

/* KH_EFORMAT if the bytes hold a NUL or are not UTF-8, or are more than KH_ROW_MAX. */
int kh_row_check(const char *s, size_t n, const char *path, long line, kh_err *err);

/* The end of the line that starts at `at`: its '\n', or `end`. */
char *kh_line_end(char *at, char *end);

#endif
