/* kernels.h - the arithmetic of the encoder, one row of functions per instruction set.
 *
 * Products are C = A W with W packed once, when the model is opened. Every element of C is summed
 * over k in one fixed order that depends on neither the number of rows nor their place, so a
 * sequence gives the same bits whatever it is batched with and however many threads run. The rows
 * of the table differ from each other in their last bits only.
 *
 *     const kh_kernels *k = kh_kernels_pick();
 *     void *w = kh_aligned(kh_packed_bytes(k, KH_F32, K, N));
 *     k->pack(KH_F32, weight, K, N, w);               weight [N, K], as checkpoints store it
 *     kh_product p = { .a = x, .lda = K, .rows = T, .k = K, .n = N, .w = w, .bias = b,
 *         .c = y, .ldc = N };
 *     k->product(&p, scratch);
 *
 * Letters: T rows (tokens), K inputs, N outputs. */
#ifndef KH_MODEL_KERNELS_H
#define KH_MODEL_KERNELS_H

#include "keyhole.h"

enum {
    KH_INT8_GROUP = 64, /* int8 rounds so many values of k together */
    KH_BLOCK_WORDS =
        512, /* 32-bit words of a row of A that are multiplied before its part of C is put away */
};

typedef enum kh_epilogue {
    KH_PLAIN,
    KH_GELU,
    KH_GELU_TANH,
    KH_RELU,
    KH_SILU
} kh_epilogue; /* GELU by erf, or its tanh form */

typedef struct kh_product {
    kh_precision precision;
    const float *a; /* [rows, K], row stride lda */
    size_t lda;
    int rows, k, n;
    const void *w;     /* packed [K, N] */
    const float *bias; /* [N] or NULL */
    const float *
        residual; /* [rows, N], row stride ldc, added after the bias; or NULL; must not overlap c */
    kh_epilogue epilogue;
    float *c; /* [rows, N], row stride ldc */
    size_t ldc;
    bool more; /* the sums go on from what stands in c, as if K were longer: the same bits */
} kh_product;

typedef struct kh_attention {
    const float *q, *k,
        *v; /* q [n_query, heads * d], k and v [n, heads * d]; row strides ldq, ldk, ldv */
    size_t ldq, ldk, ldv;
    int n_query, n, heads, d;
    float *out; /* [n_query, heads * d], row stride ldo */
    size_t ldo;
} kh_attention;

/* Keys and values of some places in a row: [n, kv_heads * d] each, row stride ld. */
typedef struct kh_part {
    const float *k, *v;
    size_t ld;
    int n;
} kh_part;

/* Causal attention for sequences that share their beginning. A place sees itself and those before
 * it; with a window only the last so many. What a query gets depends on it and on what it sees
 * alone: neither on how the places before it are cut into parts, nor on who else asks. */
typedef struct kh_causal {
    const float *q; /* [sum of queries, heads * d], row stride ldq: sequence after sequence */
    size_t ldq;
    int heads, kv_heads, d;
    float scale;
    int window;            /* 0: none */
    const kh_part *shared; /* [n_shared] the beginning, part after part, from place 0 on */
    int n_shared;
    const kh_part *own; /* [n_seq] what follows it in each sequence */
    const int *queries; /* [n_seq] how many of its last places ask */
    int n_seq;
    float *out; /* as q, row stride ldo */
    size_t ldo;
} kh_causal;

typedef struct kh_kernels {
    const char *name;
    const char *bits; /* the row whose bits its results have: itself, or a slower one */
    int columns;      /* of a packed panel; N is rounded up to it */
    bool (*usable)(void);

    /* Packs w [N, K] into kh_packed_bytes, 64-byte aligned. */
    void (*pack)(kh_precision, const float *w, int k, int n, void *packed);
    /* scratch: kh_kernels_scratch bytes, 64-byte aligned, one per thread. */
    void (*product)(const kh_product *, void *scratch);
    /* out = softmax(q k^T / sqrt d) v, head by head, for one sequence. */
    void (*attention)(const kh_attention *, void *scratch);
    /* y = LayerNorm(x) * gain + bias over rows of n; x and y may be the same. */
    void (*layer_norm)(
        const float *x, int rows, int n, float eps, const float *gain, const float *bias, float *y);
    void (*gelu)(float *x, size_t n);
    /* y = x / sqrt(mean of x^2 + eps) * gain over rows of n, ld apart; x and y may be the same. */
    void (*rms_norm)(
        const float *x, size_t ld, int rows, int n, float eps, const float *gain, float *y);
    /* scratch: kh_causal_scratch bytes. */
    void (*causal)(const kh_causal *, void *scratch);
    /* rounds of operations that touch no memory, for benchmarks: returns how many, *result is
     * worthless. */
    double (*spin)(int rounds, float *result);
    const struct kh_ops_f32 *train; /* ops.h */
} kh_kernels;

/* The best row this CPU can run, or the one that the environment variable KEYHOLE_KERNELS names
 * (generic, avx2, avx512-vnni, avx512, amx and so on). */
const kh_kernels *kh_kernels_pick(void);
/* Rows that this CPU can run, best last; NULL after the last. */
const kh_kernels *kh_kernels_at(int index);

size_t kh_packed_bytes(const kh_kernels *, kh_precision, int k, int n);
/* Scratch for products of up to `rows` rows, and for attention over up to `rows` tokens with heads
 * of d. */
size_t kh_kernels_scratch(int rows, int d);
/* Scratch for causal attention of `rows` queries over `keys` places in all, `longest` of which one
 * sequence has, shared ones included. */
size_t kh_causal_scratch(int rows, int keys, int parts, int longest, int d);

extern const kh_kernels kh_kernels_generic;
#if defined(__x86_64__)
extern const kh_kernels kh_kernels_avx2, kh_kernels_avx512_vnni, kh_kernels_avx512, kh_kernels_amx;
#elif defined(__aarch64__)
extern const kh_kernels kh_kernels_neon, kh_kernels_neon_dot, kh_kernels_neon_i8mm;
#endif

#endif
