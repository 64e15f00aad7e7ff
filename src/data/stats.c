/* stats.c - see stats.h. */
#include "data/stats.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/map.h"
#include "base/utf8.h"

#include <limits.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

kh_lengths kh_lengths_of(int *length, int n) {
    double sum = 0;
    qsort(length, (size_t)n, sizeof *length, ascending);
    for (int i = 0; i < n; i++)
        sum += length[i];
    return (kh_lengths){ sum / n, length[(n - 1) / 2],
        length[(size_t)((long)n * 95 + 99) / 100 - 1], length[n - 1] };
}

static size_t characters(const char *s, size_t n) {
    size_t count = 0;
    int len;
    for (size_t at = 0; at < n; at += (size_t)len, count++)
        kh_utf8_next(s + at, n - at, &len, NULL);
    return count;
}

void kh_dataset_characters(const kh_dataset *d, int *length) {
    const kh_row *row = kh_dataset_rows(d);
    for (int i = 0; i < kh_dataset_size(d); i++) {
        size_t n = characters(row[i].a, row[i].n_a) + characters(row[i].b, row[i].n_b);
        length[i] = n < INT_MAX ? (int)n : INT_MAX;
    }
}

/* --------------------------------------------------------------------------------------- twins */

/* The texts of all rows as keys of a map: text a, and for pairs a NUL, which no text holds, and
 * text b. */
typedef struct keys {
    kh_buf bytes;
    size_t *start; /* [n + 1] */
    int n;
} keys;

static int make_keys(keys *k, const kh_dataset *d, kh_err *err) {
    const kh_row *row = kh_dataset_rows(d);
    k->n = kh_dataset_size(d);
    k->bytes = kh_buf_init(KH_BUF_MAX);
    k->start = kh_calloc((size_t)k->n + 1, sizeof *k->start);
    if (!k->start)
        return kh_fail_memory(err);
    for (int i = 0; i < k->n; i++) {
        kh_buf_bytes(&k->bytes, row[i].a, row[i].n_a);
        if (row[i].b) {
            kh_buf_char(&k->bytes, '\0');
            kh_buf_bytes(&k->bytes, row[i].b, row[i].n_b);
        }
        k->start[i + 1] = k->bytes.len;
    }
    return kh_buf_failed(&k->bytes) ? kh_fail_memory(err) : 0;
}

static void free_keys(keys *k) {
    kh_buf_free(&k->bytes);
    kh_free(k->start);
}

static const char *key(const keys *k, int i, size_t *n) {
    *n = k->start[i + 1] - k->start[i];
    return k->bytes.data + k->start[i];
}

int kh_dataset_duplicates(const kh_dataset *d, int *n_duplicate, int *n_conflict, kh_err *err) {
    keys k = { 0 };
    kh_map seen = { 0 };
    const kh_row *row = kh_dataset_rows(d);
    *n_duplicate = *n_conflict = 0;
    int rc = make_keys(&k, d, err);
    for (int i = 0; i < k.n && rc == 0; i++) {
        size_t n;
        const char *s = key(&k, i, &n);
        int32_t first;
        int added = kh_map_add(&seen, s, n, i, &first);
        if (added < 0)
            rc = kh_fail_memory(err);
        else if (added == 0) {
            ++*n_duplicate;
            *n_conflict += row[first].label != row[i].label;
        }
    }
    kh_map_free(&seen);
    free_keys(&k);
    return rc;
}

int kh_dataset_overlap(const kh_dataset *train, const kh_dataset *test, int *n, kh_err *err) {
    keys a = { 0 }, b = { 0 };
    kh_map seen = { 0 };
    *n = 0;
    int rc = make_keys(&a, train, err);
    if (rc == 0)
        rc = make_keys(&b, test, err);
    for (int i = 0; i < a.n && rc == 0; i++) {
        size_t len;
        const char *s = key(&a, i, &len);
        if (kh_map_add(&seen, s, len, i, NULL) < 0)
            rc = kh_fail_memory(err);
    }
    for (int i = 0; i < b.n && rc == 0; i++) {
        size_t len;
        const char *s = key(&b, i, &len);
        int32_t where;
        *n += kh_map_get(&seen, s, len, &where);
    }
    kh_map_free(&seen);
    free_keys(&a);
    free_keys(&b);
    return rc;
}
