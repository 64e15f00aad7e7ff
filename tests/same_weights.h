/* same_weights.h - two models compared number by number. */
#ifndef KH_TESTS_SAME_WEIGHTS_H
#define KH_TESTS_SAME_WEIGHTS_H

#include "test.h"

#include "model/model.h"
#include "model/weights.h"

#include <math.h>

static inline kh_model *open_model(const char *path) {
    kh_model *m;
    kh_err err;
    if (kh_model_open(&m, path, NULL, &err) != 0)
        fail_msg("%s", err.msg);
    return m;
}

/* All tensors of two models of one kind. */
static inline void same_weights(kh_model *a, kh_model *b, double tolerance) {
    for (const kh_weight *row = kh_weight_table; row->cols; row++) {
        if (!kh_weight_wanted(row, &a->config, b->head))
            continue;
        for (int layer = 0; layer < (row->layered ? a->config.layers : 1); layer++) {
            const kh_tensor *x = kh_weight_tensor(row, &a->w, layer),
                            *y = kh_weight_tensor(row, &b->w, layer);
            assert_true(x->rows == y->rows && x->cols == y->cols);
            float *p = malloc((size_t)x->cols * 8), *q = p + x->cols;
            for (int r = 0; r < x->rows; r++) {
                kh_tensor_row(x, r, p);
                kh_tensor_row(y, r, q);
                for (int c = 0; c < x->cols; c++)
                    if (fabs((double)p[c] - (double)q[c]) > tolerance)
                        fail_msg("row %zd of the table, layer %d [%d, %d]: %g and %g",
                            row - kh_weight_table, layer, r, c, (double)p[c], (double)q[c]);
            }
            free(p);
        }
    }
}

static inline void same_config(const kh_config *a, const kh_config *b) {
    assert_ptr_equal(a->arch, b->arch);
    assert_int_equal(a->layers, b->layers);
    assert_int_equal(a->hidden, b->hidden);
    assert_int_equal(a->heads, b->heads);
    assert_int_equal(kh_config_kv_heads(a), kh_config_kv_heads(b));
    assert_int_equal(kh_config_head_width(a), kh_config_head_width(b));
    assert_int_equal(a->inner, b->inner);
    assert_int_equal(a->vocab, b->vocab);
    assert_int_equal(a->positions, b->positions);
    assert_int_equal(a->types, b->types);
    assert_int_equal(a->act, b->act);
    assert_int_equal(a->tied, b->tied);
    assert_true(a->eps == b->eps);
    assert_true(a->rope.theta == b->rope.theta && a->rope.kind == b->rope.kind);
}

#endif
