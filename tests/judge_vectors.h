/* judge_vectors.h - reading the files of tests/vectors/metrics (made by
 * tools/make_metric_vectors.py). */
#ifndef KH_TEST_JUDGE_VECTORS_H
#define KH_TEST_JUDGE_VECTORS_H

#include "test.h"

#include "base/file.h"
#include "base/json.h"

#include <math.h>

/* Calls check on every line of the file; returns how many there were. */
static inline int each_line(const char *name, void (*check)(const json_t *)) {
    char path[256];
    kh_err err;
    kh_buf b;
    int n = 0;
    snprintf(path, sizeof path, "tests/vectors/metrics/%s", name);
    assert_int_equal(kh_file_read(path, 1 << 24, &b, &err), 0);
    for (char *at = b.data, *end = b.data + b.len; at < end; n++) {
        char *stop = memchr(at, '\n', (size_t)(end - at));
        json_t *row;
        assert_non_null(stop);
        assert_int_equal(kh_json_parse(at, (size_t)(stop - at), path, &row, &err), 0);
        check(row);
        json_decref(row);
        at = stop + 1;
    }
    kh_buf_free(&b);
    return n;
}

static inline double number_of(const json_t *row, const char *key) {
    const json_t *v = json_object_get(row, key);
    assert_non_null(v);
    return json_is_null(v) ? NAN : json_number_value(v);
}

/* A list of numbers, or of lists of numbers one after another; free it. *n gets the length of the
 * outer list. */
static inline double *doubles_of(const json_t *row, const char *key, int *n, int *width) {
    const json_t *list = json_object_get(row, key);
    assert_true(json_is_array(list));
    *n = (int)json_array_size(list);
    const json_t *first = json_array_get(list, 0);
    int k = json_is_array(first) ? (int)json_array_size(first) : 1;
    double *x = malloc((size_t)*n * (size_t)k * sizeof *x);
    for (int i = 0; i < *n * k; i++) {
        const json_t *v = json_array_get(list, (size_t)(i / k));
        x[i] = json_number_value(json_is_array(v) ? json_array_get(v, (size_t)(i % k)) : v);
    }
    if (width)
        *width = k;
    return x;
}

static inline int *ints_of(const json_t *row, const char *key, int *n) {
    double *x = doubles_of(row, key, n, NULL);
    int *out = malloc((size_t)*n * sizeof *out);
    for (int i = 0; i < *n; i++)
        out[i] = (int)x[i];
    free(x);
    return out;
}

static inline bool *bools_of(const json_t *row, const char *key) {
    const json_t *list = json_object_get(row, key);
    bool *out = malloc(json_array_size(list) * sizeof *out + 1);
    for (size_t i = 0; i < json_array_size(list); i++)
        out[i] = json_is_true(json_array_get(list, i));
    return out;
}

/* NaN equals NaN. */
#define assert_near(what, x, y, tolerance) \
    do { \
        double x_ = (x), y_ = (y); \
        if (!(x_ == y_ || fabs(x_ - y_) <= (tolerance) || (isnan(x_) && isnan(y_)))) \
            fail_msg("%s is %.17g, expected %.17g", what, x_, y_); \
    } while (0)

#endif
