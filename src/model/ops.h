/* ops.h - what training does to rows of numbers besides products: one table of functions per
 * instruction set, in f32, and one in double (backward_f64.c), which is the specification.
 *
 * Rows lie ld numbers apart. "share" is 1 / sqrt(variance + eps) of a row; "hat" a row with its
 * mean taken off, times share. */
#ifndef KH_MODEL_OPS_H
#define KH_MODEL_OPS_H

#include "model/config.h"

/* How far a step of AdamW goes; beta1 and beta2 are those of the optimiser. */
#define KH_ADAMW_STEP(real) \
    { \
        real scale; /* of the gradient: clipping */ \
        real keep;  /* 1 - rate * decay */ \
        real beta1, beta2; \
        real rate;       /* learning rate / (1 - beta1^t) */ \
        real correction; /* 1 / sqrt(1 - beta2^t) */ \
        real eps; \
    }

/* c [m, n] = a b, or c += a b with `add`; the numbers of a and b are rounded to bf16, sums are f32.
 * a is [m, k], or [k, m] if turned; b is [k, n], or [n, k] if turned. */
typedef struct kh_bf16_product {
    int m, n, k;
    const float *a, *b;
    size_t lda, ldb, ldc;
    bool a_turned, b_turned, add;
    float *c;
} kh_bf16_product;
enum {
    KH_BF16_DEPTH = 384, /* of k that are packed together, and rows of a */
    KH_BF16_ROWS = 768,
    KH_BF16_SCRATCH = KH_BF16_DEPTH / 2 * (KH_BF16_ROWS + 64), /* 32-bit words */
};

#define KH_OPS(real, adamw_step) \
    { \
        /* y = bias + more; either may be NULL */ \
        void (*fill)(real * y, size_t ldy, int rows, int n, const real *bias, const real *more, \
            size_t ldm); \
        /* x becomes hat, y = hat * gain + bias */ \
        void (*norm)(real * x, int rows, int n, real eps, const real *gain, const real *bias, \
            real *share, real *y); \
        /* d, the gradient of y, becomes that of x; adds to those of gain and bias unless they are \
         * NULL */ \
        void (*norm_back)(real * d, int rows, int n, const real *hat, const real *share, \
            const real *gain, real *d_gain, real *d_bias); \
        /* x becomes the slope of the activation, y its value */ \
        void (*bend)(kh_act, real * x, size_t n, real * y); \
        /* each row becomes softmax(scale * row); what lies between n and ld may become anything \
         * but NaN */ \
        void (*softmax)(real * x, size_t ld, int rows, int n, real scale); \
        /* d, the gradient of p = softmax(scale * x), becomes that of x */ \
        void (*softmax_back)(real * d, const real *p, size_t ld, int rows, int n, real scale); \
        /* the loss -log softmax(x)[target], times scale; x becomes its gradient */ \
        double (*cross_entropy)(real * x, int n, int target, real scale); \
        void (*column_sums)(const real *x, size_t ld, int rows, int n, real *sum); /* sum += */ \
        void (*multiply)(real * x, const real *y, size_t n);                       /* x *= y */ \
        void (*add)(real * x, const real *y, size_t n);                            /* x += y */ \
        double (*square_sum)(const real *x, size_t n); \
        void (*adamw)(const adamw_step *, real *w, const real *g, real *m, real *v, size_t n); \
        /* scratch: KH_BF16_SCRATCH words, 64-byte aligned; NULL in double */ \
        void (*product_bf16)(const kh_bf16_product *, void *scratch); \
    }

typedef struct kh_adamw_f32 KH_ADAMW_STEP(float) kh_adamw_f32;
typedef struct kh_adamw_f64 KH_ADAMW_STEP(double) kh_adamw_f64;
typedef struct kh_ops_f32 KH_OPS(float, kh_adamw_f32) kh_ops_f32;
typedef struct kh_ops_f64 KH_OPS(double, kh_adamw_f64) kh_ops_f64;

/* The row that goes with kh_kernels_pick. */
const kh_ops_f32 *kh_ops_pick(void);
extern const kh_ops_f64 kh_ops_plain;

#endif
