/* runlog.c - see runlog.h. */
#include "report/runlog.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const size_t LOG_MAX = (size_t)1 << 30;

int kh_runlog_find(const kh_runlog *l, const char *key) {
    for (int i = 0; i < l->n_key; i++)
        if (strcmp(l->key[i], key) == 0)
            return i;
    return -1;
}

double kh_runlog_at(const kh_runlog *l, int line, int column) {
    return column < 0 ? NAN : l->value[(size_t)line * KH_RUNLOG_KEYS + (size_t)column];
}

int kh_runlog_count(const kh_runlog *l, int column) {
    int n = 0;
    for (int i = 0; i < l->n; i++)
        n += !isnan(kh_runlog_at(l, i, column));
    return n;
}

/* The column of a key of n bytes, new if need be; -1: no room. */
static int column_of(kh_runlog *l, const char *key, size_t n) {
    char name[sizeof l->key[0]];
    if (n == 0 || n >= sizeof name)
        return -1;
    memcpy(name, key, n);
    name[n] = '\0';
    int at = kh_runlog_find(l, name);
    if (at >= 0 || l->n_key == KH_RUNLOG_KEYS)
        return at;
    memcpy(l->key[l->n_key], name, n + 1);
    return l->n_key++;
}

/* A number that is the whole of n bytes, or NaN. */
static double number(const char *s, size_t n) {
    char text[64], *end;
    if (n == 0 || n >= sizeof text)
        return NAN;
    memcpy(text, s, n);
    text[n] = '\0';
    double x = strtod(text, &end);
    return *end || !isfinite(x) ? NAN : x;
}

/* Returns whether the line held a pair. */
static bool read_line(kh_runlog *l, double *row, const char *s, const char *end) {
    bool any = false;
    while (s < end) {
        const char *stop = memchr(s, ' ', (size_t)(end - s));
        stop = stop ? stop : end;
        const char *equals = memchr(s, '=', (size_t)(stop - s));
        int column = equals ? column_of(l, s, (size_t)(equals - s)) : -1;
        if (column >= 0) {
            row[column] = number(equals + 1, (size_t)(stop - equals - 1));
            any = true;
        }
        s = stop + 1;
    }
    return any;
}

int kh_runlog_parse(kh_runlog *out, const char *text, size_t n, kh_err *err) {
    *out = (kh_runlog){ 0 };
    for (const char *s = text, *end = n ? text + n : text; s < end;) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        stop = stop ? stop : end;
        if (!kh_grow(
                &out->value, &out->cap, ((size_t)out->n + 1) * KH_RUNLOG_KEYS, sizeof *out->value))
            return kh_fail_memory(err);
        double *row = out->value + (size_t)out->n * KH_RUNLOG_KEYS;
        for (int i = 0; i < KH_RUNLOG_KEYS; i++)
            row[i] = NAN;
        out->n += read_line(out, row, s, stop);
        s = stop + 1;
    }
    return 0;
}

int kh_runlog_open(kh_runlog *out, const char *dir, kh_err *err) {
    *out = (kh_runlog){ 0 };
    char *path = kh_path_join(dir, "log.txt");
    kh_buf text = kh_buf_init(0);
    int rc = path ? 0 : kh_fail_memory(err);
    if (rc == 0 && kh_file_exists(path)) {
        rc = kh_file_read(path, LOG_MAX, &text, err);
        if (rc == 0)
            rc = kh_runlog_parse(out, text.data, text.len, err);
    }
    kh_buf_free(&text);
    kh_free(path);
    return rc;
}

void kh_runlog_free(kh_runlog *l) { kh_free(l->value); }
