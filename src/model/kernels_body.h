/* kernels_body.h - the kernels, written once in vectors of WIDTH floats. Each kernels_<isa>.c
 * defines the macros below and includes this file; the Makefile compiles each with the flags of its
 * instruction set.
 *
 *   WIDTH     floats in a vector register
 *   TILE      rows of C that a tile keeps in registers: TILE * 2 accumulators, 2 registers for W,
 * the rest for A HAVE_DOT2 v_f32 dot2(v_f32 sum, v_int a, v_int w): two bf16 products per lane
 *   HAVE_DOT4 v_int dot4(v_int sum, v_int a, v_int w): four u8 x s8 products per lane
 *   HAVE_DOT8 v_int dot8(v_int sum, v_int a0, v_int w0, v_int a1, v_int w1): two dot4, exact for
 * weights within TOP_SUM TOP_SUM   where dot8 adds four products in 16 bits, the largest sum of
 * those of their four weights that have the same sign; 4 * 127 where it has no such limit
 *   HAVE_REDUCE, HAVE_IF_LESS max_lanes, if_less and if_nan in fewer instructions, with the bits
 * of the definitions below; which NaN among lanes max_lanes sees is open
 *   HAVE_CHOOSE choose, larger and smaller as instructions; the bits are those of the definitions
 * below, NaN included INT8_ROWS rows of a tile that are multiplied together in int8; divides TILE
 *
 * int8 rounds in groups of GROUP values of k: each group of a weight column and of a token has its
 * own step, so that one large number spoils the rounding of its neighbours only.
 *
 * The product is the classical one (Goto and van de Geijn 2008): W lies in panels of COLUMNS
 * columns; K is cut into blocks, so that a block of a panel stays in the first-level cache while
 * all rows pass; a block of A is repacked, TILE rows at a time, to be read in one stream. Each
 * element of C is the sum over k in ascending order; between blocks it waits in C itself. Nothing
 * in that order knows the number of rows. */

#include "model/kernels.h"

#include <math.h>
#include <string.h>

enum {
    COLUMNS = 2 * WIDTH,
    BLOCK_WORDS = KH_BLOCK_WORDS,
    GROUP_WORDS = KH_INT8_GROUP / 4,
    GROUPS = BLOCK_WORDS / GROUP_WORDS, /* of a block */
    GROUP_ROWS = GROUP_WORDS +
        2,          /* rows of COLUMNS in a packed group: words, then steps, then column sums */
    MOST_ROWS = 32, /* of a tile in any row of the table */
};

static inline v_f32 load(const float *p) {
    v_f32 v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline v_int load_int(const void *p) {
    v_int v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void store(float *p, v_f32 v) { memcpy(p, &v, sizeof v); }
static inline v_f32 splat(float x) { return x - (v_f32){ 0 }; }
static inline v_int splat_int(int32_t x) { return x - (v_int){ 0 }; }
#ifndef HAVE_REDUCE
/* The largest lane. */
static inline float max_lanes(v_f32 v) {
    float x[WIDTH];
    store(x, v);
    for (int i = 1; i < WIDTH; i++)
        x[0] = x[i] > x[0] ? x[i] : x[0];
    return x[0];
}
#endif
#ifndef HAVE_CHOOSE
static inline v_f32 choose(v_int mask, v_f32 yes, v_f32 no) {
    return (v_f32)((mask & (v_int)yes) | (~mask & (v_int)no));
}
static inline v_f32 larger(v_f32 a, v_f32 b) { return choose(a > b, a, b); }
static inline v_f32 smaller(v_f32 a, v_f32 b) { return choose(a < b, a, b); }
#endif
#ifndef HAVE_IF_LESS
static inline v_f32 if_less(v_f32 a, v_f32 b, v_f32 yes, v_f32 no) {
    return choose(a < b, yes, no);
}
static inline v_f32 if_nan(v_f32 x, v_f32 yes, v_f32 no) { return choose(x != x, yes, no); }
#endif

/* The lanes, folded by halves: a fixed order. */
static inline float sum_lanes(v_f32 v) {
    float x[WIDTH];
    store(x, v);
    for (int half = WIDTH / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            x[i] += x[i + half];
    return x[0];
}

/* ----------------------------------------------------------------------------------- exp, GELU */

/* e^x, relative error about 2e-7: x = n ln 2 + r, Taylor series of e^r to r^7 (|r| <= 0.35: the
 * rest is below 6e-9), times 2^n through the exponent bits. Below -87 the result is 0, above 88 it
 * stays at e^88; NaN stays NaN. */
static inline v_f32 exp_f32(v_f32 x) {
    const v_f32 round_bias =
        splat(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
    v_f32 within = smaller(larger(x, splat(-87.0f)), splat(88.0f));
    v_f32 shifted = within * splat(1.44269504f) + round_bias;
    v_f32 n = shifted - round_bias;
    v_f32 r = within - n * splat(0.693359375f) - n * splat(-2.12194440e-4f); /* ln 2 in two parts */
    v_f32 p = splat(1.0f / 5040);
    p = p * r + splat(1.0f / 720);
    p = p * r + splat(1.0f / 120);
    p = p * r + splat(1.0f / 24);
    p = p * r + splat(1.0f / 6);
    p = p * r + splat(0.5f);
    p = p * r + splat(1.0f);
    p = p * r + splat(1.0f);
    v_int exponent = ((v_int)shifted - (v_int)round_bias) << 23;
    v_f32 y = (v_f32)((v_int)p + exponent);
    y = if_less(x, splat(-87.0f), splat(0.0f), y);
    return if_nan(x, x, y);
}

/* x Phi(x), with Phi by erf (Abramowitz and Stegun 7.1.26, absolute error 1.5e-7). */
static inline v_f32 gelu_f32(v_f32 x) {
    v_f32 z = x * splat(0.70710678f);
    v_f32 a = larger(z, -z);
    v_f32 t = splat(1.0f) / (splat(1.0f) + splat(0.3275911f) * a);
    v_f32 p = splat(1.061405429f);
    p = p * t + splat(-1.453152027f);
    p = p * t + splat(1.421413741f);
    p = p * t + splat(-0.284496736f);
    p = p * t + splat(0.254829592f);
    v_f32 tail = p * t * exp_f32(-a * a); /* 1 - erf |z| */
    v_f32 two_phi = if_less(z, splat(0.0f), tail, splat(2.0f) - tail);
    return splat(0.5f) * x * two_phi;
}

/* GELU's tanh form, x / (1 + e^(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3). */
static inline v_f32 gelu_tanh_f32(v_f32 x) {
    v_f32 u = splat(0.79788456f) * (x + splat(0.044715f) * x * x * x);
    return x / (splat(1.0f) + exp_f32(splat(-2.0f) * u));
}

static inline v_f32 silu_f32(v_f32 x) { return x / (splat(1.0f) + exp_f32(-x)); }

static inline v_f32 bend(kh_epilogue epilogue, v_f32 x) {
    switch (epilogue) {
    case KH_GELU: return gelu_f32(x);
    case KH_GELU_TANH: return gelu_tanh_f32(x);
    case KH_RELU: return if_less(x, splat(0.0f), splat(0.0f), x);
    case KH_SILU: return silu_f32(x);
    case KH_PLAIN: break;
    }
    return x;
}

static void gelu(float *x, size_t n) {
    size_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        store(x + i, gelu_f32(load(x + i)));
    float rest[WIDTH] = { 0 };
    memcpy(rest, x + i, (n - i) * sizeof *x);
    store(rest, gelu_f32(load(rest)));
    memcpy(x + i, rest, (n - i) * sizeof *x);
}

/* ----------------------------------------------------------------------------------- packing W */

/* bf16: the upper half of an f32, rounded to nearest even; NaN stays NaN. */
static inline uint32_t bf16_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7FFFFFFF) > 0x7F800000)
        return bits >> 16 | 0x40;
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

/* One word of a column: as many weights of consecutive k as fit in 32 bits. */
static uint32_t float_word(kh_precision precision, const float *w, int left) {
    uint32_t word;
    if (precision == KH_BF16)
        return bf16_bits(w[0]) | (left > 1 ? bf16_bits(w[1]) << 16 : 0);
    memcpy(&word, w, 4);
    return word;
}

/* The largest sum of weights of one sign among four that dot8 adds in 16 bits: two of a word and
 * their likes of the next. */
static float largest_sum(const float w[KH_INT8_GROUP]) {
    float top = 0;
    for (int i = 0; i < KH_INT8_GROUP; i += i % 8 == 2 ? 6 : 2) {
        const float four[] = { w[i], w[i + 1], w[i + 4], w[i + 5] };
        float above = 0, below = 0;
        for (int q = 0; q < 4; q++) {
            above += four[q] > 0 ? four[q] : 0;
            below -= four[q] < 0 ? four[q] : 0;
        }
        top = above > top ? above : top;
        top = below > top ? below : top;
    }
    return top;
}

/* Rounds a group with the smallest step that keeps weights within 127 and their sums, before
 * rounding, within top_sum. */
static float round_group(const float w[KH_INT8_GROUP], int top_sum, float rounded[KH_INT8_GROUP]) {
    float top = 0;
    for (int i = 0; i < KH_INT8_GROUP; i++)
        top = fabsf(w[i]) > top ? fabsf(w[i]) : top;
    float step = top / 127, of_sum = TOP_SUM < 4 * 127 ? largest_sum(w) / (float)top_sum : 0;
    step = of_sum > step ? of_sum : step;
    for (int i = 0; i < KH_INT8_GROUP; i++)
        rounded[i] = step > 0 ? rintf(w[i] / step) : 0;
    return step;
}

/* One group of one column of W, n values: words, step and sum, each a row of COLUMNS apart.
 * Rounding may lift a sum by half a step for each of its four weights; then there must be room for
 * that. */
static void pack_group(const float *w, int n, uint32_t *out) {
    float group[KH_INT8_GROUP] = { 0 }, rounded[KH_INT8_GROUP], sum = 0;
    memcpy(group, w, (size_t)n * sizeof *w);
    float step = round_group(group, TOP_SUM, rounded);
    if (TOP_SUM < 4 * 127 && largest_sum(rounded) > TOP_SUM)
        step = round_group(group, TOP_SUM - 2, rounded);
    for (int i = 0; i < KH_INT8_GROUP; i += 4) {
        uint32_t word = 0;
        for (int q = 0; q < 4; q++) {
            sum += rounded[i + q]; /* whole numbers: exact */
            word |= (uint32_t)(uint8_t)(int8_t)rounded[i + q] << 8 * q;
        }
        out[i / 4 * COLUMNS] = word;
    }
    memcpy(out + GROUP_WORDS * COLUMNS, &step, sizeof step);
    memcpy(out + (GROUP_WORDS + 1) * COLUMNS, &sum, sizeof sum);
}

/* Rows of COLUMNS words that the first k values of a panel take: k must end a block, or be K. */
static size_t panel_rows(kh_precision precision, int k) {
    switch (precision) {
    case KH_BF16: return (size_t)(k + 1) / 2;
    case KH_INT8: return (size_t)(k + KH_INT8_GROUP - 1) / KH_INT8_GROUP * GROUP_ROWS;
    default: return (size_t)k;
    }
}

/* Panel by panel, [panel_rows][COLUMNS] words each; missing columns are zero. */
static void pack(kh_precision precision, const float *w, int k, int n, void *packed) {
    size_t rows = panel_rows(precision, k);
    memset(packed, 0, (size_t)(n + COLUMNS - 1) / COLUMNS * rows * COLUMNS * 4);
    for (int j = 0; j < n; j++) {
        const float *column = w + (size_t)j * (size_t)k;
        uint32_t *out =
            (uint32_t *)packed + (size_t)(j / COLUMNS) * rows * COLUMNS + (size_t)(j % COLUMNS);
        if (precision == KH_INT8)
            for (int i = 0; i < k; i += KH_INT8_GROUP, out += GROUP_ROWS * COLUMNS)
                pack_group(column + i, k - i < KH_INT8_GROUP ? k - i : KH_INT8_GROUP, out);
        else
            for (int i = 0; i < k; i += precision == KH_BF16 ? 2 : 1, out += COLUMNS)
                *out = float_word(precision, column + i, k - i);
    }
}

/* --------------------------------------------------------------------------------------- tiles */

/* A tile: TILE rows of A by one block of K, word by word: a[word][TILE]. The sums of a tile are
 * 32-bit lanes, floats or integers; rows beyond the end of A are zero and their sums are thrown
 * away. */

/* Vector by vector: a copy that the compiler keeps in registers, which memcpy does not. */
static inline void copy_sums(v_f32 to[TILE][2], v_f32 from[TILE][2]) {
#pragma GCC unroll 16
    for (int i = 0; i < TILE; i++)
        to[i][0] = from[i][0], to[i][1] = from[i][1];
}

/* Not inlined: between the caller's variables the sums would not all stay in registers. */
static __attribute__((noinline)) void tile_f32(
    const void *a_words, const uint32_t *w, int words, v_f32 c[TILE][2]) {
    const float *a = a_words;
    v_f32 sum[TILE][2];
    copy_sums(sum, c);
    for (int k = 0; k < words; k++, a += TILE, w += COLUMNS) {
        v_f32 w0 = (v_f32)load_int(w), w1 = (v_f32)load_int(w + WIDTH);
#pragma GCC unroll 16
        for (int i = 0; i < TILE; i++) {
            v_f32 x = splat(a[i]);
            sum[i][0] += x * w0;
            sum[i][1] += x * w1;
        }
    }
    copy_sums(c, sum);
}

#ifndef HAVE_DOT2
static inline v_f32 dot2(v_f32 sum, v_int a, v_int w) {
    const v_int high = splat_int((int32_t)0xFFFF0000);
    sum += (v_f32)(a << 16) * (v_f32)(w << 16);
    return sum + (v_f32)(a & high) * (v_f32)(w & high);
}
#endif

static __attribute__((noinline)) void tile_bf16(
    const void *a_words, const uint32_t *w, int words, v_f32 c[TILE][2]) {
    const int32_t *a = a_words;
    v_f32 sum[TILE][2];
    copy_sums(sum, c);
    for (int k = 0; k < words; k++, a += TILE, w += COLUMNS) {
        v_int w0 = load_int(w), w1 = load_int(w + WIDTH);
#pragma GCC unroll 16
        for (int i = 0; i < TILE; i++) {
            v_int x = splat_int(a[i]);
            sum[i][0] = dot2(sum[i][0], x, w0);
            sum[i][1] = dot2(sum[i][1], x, w1);
        }
    }
    copy_sums(c, sum);
}

#ifndef HAVE_DOT2
/* Without bf16 products a block of W is widened to f32, once for all tiles: [2 * words][COLUMNS].
 */
static void widen(const uint32_t *w, int words, float *out) {
    const v_int high = splat_int((int32_t)0xFFFF0000);
    for (int k = 0; k < words; k++, w += COLUMNS, out += 2 * COLUMNS)
        for (int half = 0; half < COLUMNS; half += WIDTH) {
            v_int pair = load_int(w + half);
            store(out + half, (v_f32)(pair << 16));
            store(out + COLUMNS + half, (v_f32)(pair & high));
        }
}
#endif

#ifndef HAVE_DOT4
static inline v_int dot4(v_int sum, v_int a, v_int w) {
    for (int byte = 0; byte < 4; byte++)
        sum += (a >> 8 * byte & splat_int(255)) * (w << (24 - 8 * byte) >> 24);
    return sum;
}
#endif

#ifndef HAVE_DOT8
static inline v_int dot8(v_int sum, v_int a0, v_int w0, v_int a1, v_int w1) {
    return dot4(dot4(sum, a0, w0), a1, w1);
}
#endif

/* How a group of one token's activations was rounded: x = step * (q - zero), q in 0 .. 255. */
typedef struct rounding {
    float step, per_step, zero;
} rounding;

/* One group of INT8_ROWS rows: exact sums of bytes, then x w = step_a step_w (sum of q_a q_w -
 * zero_a * sum of q_w), added to c. */
static inline void tile_group(
    const int32_t *a, const uint32_t *w, const rounding *r, v_f32 c[INT8_ROWS][2]) {
    v_int sum[INT8_ROWS][2];
#pragma GCC unroll 16
    for (int i = 0; i < INT8_ROWS; i++)
        sum[i][0] = sum[i][1] = splat_int(0);
    for (int k = 0; k < GROUP_WORDS; k += 2, a += 2 * TILE, w += 2 * COLUMNS) {
        v_int w0 = load_int(w), w1 = load_int(w + WIDTH), w2 = load_int(w + COLUMNS),
              w3 = load_int(w + COLUMNS + WIDTH);
#pragma GCC unroll 16
        for (int i = 0; i < INT8_ROWS; i++) {
            v_int x = splat_int(a[i]), y = splat_int(a[TILE + i]);
            sum[i][0] = dot8(sum[i][0], x, w0, y, w2);
            sum[i][1] = dot8(sum[i][1], x, w1, y, w3);
        }
    }
    for (int half = 0; half < 2; half++) {
        v_f32 step = (v_f32)load_int(w + half * WIDTH),
              total = (v_f32)load_int(w + COLUMNS + half * WIDTH);
#pragma GCC unroll 16
        for (int i = 0; i < INT8_ROWS; i++)
            c[i][half] +=
                (__builtin_convertvector(sum[i][half], v_f32) - splat(r[i].zero) * total) *
                (splat(r[i].step) * step);
    }
}

/* r: [groups][stride], from the tile's first row on. */
static __attribute__((noinline)) void tile_int8(const void *a_words, const uint32_t *w, int groups,
    const rounding *r, size_t stride, v_f32 c[TILE][2]) {
    const int32_t *a = a_words;
    for (int g = 0; g < groups;
         g++, a += GROUP_WORDS * TILE, w += GROUP_ROWS * COLUMNS, r += stride)
        for (int i = 0; i < TILE; i += INT8_ROWS)
            tile_group(a + i, w, r + i, c + i);
}

/* --------------------------------------------------------------------------------- gathering A */

/* The range always holds 0, so that 0 is exact. */
static rounding find_rounding(const float *x, int k) {
    v_f32 low = splat(0), high = splat(0);
    int i = 0;
    for (; i + WIDTH <= k; i += WIDTH) {
        low = smaller(low, load(x + i));
        high = larger(high, load(x + i));
    }
    float bottom = -max_lanes(-low), top = max_lanes(high);
    for (; i < k; i++) {
        bottom = x[i] < bottom ? x[i] : bottom;
        top = x[i] > top ? x[i] : top;
    }
    rounding r = { .step = (top - bottom) / 255 };
    r.per_step = r.step > 0 ? 1 / r.step : 0;
    r.zero = rintf(-bottom * r.per_step);
    return r;
}

typedef float v_four __attribute__((vector_size(16)));

static inline v_four load_four(const float *p) {
    v_four v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Four rows by four k: out[q * stride + 0..3] = row[0..3][k + q], for the first n rows only: 2
 * or 4. */
static inline void transpose_four(const float *const row[4], int k, int n, int stride, float *out) {
    v_four a = load_four(row[0] + k), b = load_four(row[1] + k), c = load_four(row[2] + k),
           d = load_four(row[3] + k);
    v_four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5),
           ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    v_four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5),
           cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    v_four t[4] = { __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
        __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
        __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
        __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7) };
    for (int q = 0; q < 4; q++)
        memcpy(out + q * stride, &t[q], (n < 4 ? 2 : 4) * sizeof *out);
}

static void gather_f32(const float *a, size_t lda, int rows, int depth, float *out) {
    static const float ZERO[BLOCK_WORDS] = { 0 };
    for (int i = 0; i < TILE; i += 4) {
        const float *row[4];
        for (int q = 0; q < 4; q++)
            row[q] = i + q < rows && i + q < TILE ? a + (size_t)(i + q) * lda : ZERO;
        int k = 0;
        for (; k + 4 <= depth; k += 4)
            transpose_four(row, k, TILE - i, TILE, out + k * TILE + i);
        for (; k < depth; k++)
            for (int q = 0; q < 4 && i + q < TILE; q++)
                out[k * TILE + i + q] = row[q][k];
    }
}

typedef uint8_t v_bytes __attribute__((vector_size(WIDTH)));

/* n numbers as bytes; up to three zero bytes fill the last word. */
static void narrow_bytes(const float *x, int n, const rounding *r, uint8_t *out) {
    for (int i = 0; i < n; i += WIDTH) {
        float edge[WIDTH] = { 0 };
        int left = n - i;
        if (left < WIDTH)
            memcpy(edge, x + i, (size_t)left * sizeof *x);
        v_f32 q = load(left < WIDTH ? edge : x + i) * splat(r->per_step) + splat(r->zero + 0.5f);
        q = smaller(larger(q, splat(0.0f)), splat(255.0f));
        v_bytes b = __builtin_convertvector(__builtin_convertvector(q, v_int), v_bytes);
        memcpy(out + i, &b, (size_t)(left < WIDTH ? (left + 3) / 4 * 4 : WIDTH));
    }
}

/* The block's groups of TILE rows, and how each was rounded: r [GROUPS][stride]. */
static void gather_int8(
    const float *a, size_t lda, int rows, int depth, rounding *r, size_t stride, float *out) {
    float words[TILE][BLOCK_WORDS];
    int groups = (depth + KH_INT8_GROUP - 1) / KH_INT8_GROUP;
    for (int i = 0; i < TILE && i < rows; i++)
        for (int g = 0; g < groups; g++) {
            const float *x = a + (size_t)i * lda + (size_t)(g * KH_INT8_GROUP);
            int n = depth - g * KH_INT8_GROUP < KH_INT8_GROUP ? depth - g * KH_INT8_GROUP
                                                              : KH_INT8_GROUP;
            rounding *how = &r[(size_t)g * stride + (size_t)i];
            if (n < KH_INT8_GROUP)
                memset(&words[i][g * GROUP_WORDS], 0, GROUP_WORDS * sizeof(float));
            *how = find_rounding(x, n);
            narrow_bytes(x, n, how, (uint8_t *)&words[i][g * GROUP_WORDS]);
        }
    gather_f32(words[0], BLOCK_WORDS, rows, groups * GROUP_WORDS, out);
}

#ifdef HAVE_DOT2
static void gather_bf16(const float *a, size_t lda, int rows, int depth, float *out) {
    float words[TILE][BLOCK_WORDS];
    for (int i = 0; i < TILE && i < rows; i++) {
        for (int k = 0; k < depth + depth % 2; k++) {
            uint16_t half = k < depth ? (uint16_t)bf16_bits(a[(size_t)i * lda + (size_t)k]) : 0;
            memcpy((char *)words[i] + 2 * k, &half, sizeof half);
        }
    }
    gather_f32(words[0], BLOCK_WORDS, rows, (depth + 1) / 2, out);
}
#endif

/* ------------------------------------------------------------------------------------- product */

/* Values of K that make a block. */
static int block_depth(kh_precision precision) {
    switch (precision) {
#ifdef HAVE_DOT2
    case KH_BF16: return 2 * BLOCK_WORDS;
#endif
    case KH_INT8: return 4 * BLOCK_WORDS;
    default: return BLOCK_WORDS; /* bf16 without dot2 is multiplied as f32 */
    }
}

/* The part of C that belongs to a tile of `tall` rows, to and from registers: whole vectors inside,
 * lane by lane at the edges. */
static inline void take_c(
    const float *c, size_t ldc, int rows, int columns, int tall, v_f32 (*sum)[2]) {
    if (rows >= tall && columns >= COLUMNS) {
#pragma GCC unroll 16
        for (int i = 0; i < tall; i++, c += ldc)
            sum[i][0] = load(c), sum[i][1] = load(c + WIDTH);
        return;
    }
    float edge[MOST_ROWS][COLUMNS] = { { 0 } };
    for (int i = 0; i < tall && i < rows; i++)
        memcpy(edge[i], c + (size_t)i * ldc,
            (size_t)(columns < COLUMNS ? columns : COLUMNS) * sizeof *c);
    memcpy(sum, edge, (size_t)tall * sizeof *sum);
}

static inline void put_c(float *c, size_t ldc, int rows, int columns, int tall, v_f32 (*sum)[2]) {
    if (rows >= tall && columns >= COLUMNS) {
#pragma GCC unroll 16
        for (int i = 0; i < tall; i++, c += ldc)
            store(c, sum[i][0]), store(c + WIDTH, sum[i][1]);
        return;
    }
    for (int i = 0; i < tall && i < rows; i++)
        memcpy(c + (size_t)i * ldc, sum[i],
            (size_t)(columns < COLUMNS ? columns : COLUMNS) * sizeof *c);
}

static inline void load_columns(const float *from, int n, v_f32 out[2]) {
    float x[COLUMNS] = { 0 };
    if (from && n >= COLUMNS) {
        out[0] = load(from), out[1] = load(from + WIDTH);
        return;
    }
    if (from)
        memcpy(x, from, (size_t)(n < COLUMNS ? n : COLUMNS) * sizeof *x);
    out[0] = load(x), out[1] = load(x + WIDTH);
}

/* Bias, residual and bend of a finished tile of at most MOST_ROWS. */
static inline void finish(
    const kh_product *p, int row, int column, const v_f32 bias[2], int tall, v_f32 (*sum)[2]) {
    for (int i = 0; i < tall; i++)
        for (int half = 0; half < 2; half++)
            sum[i][half] += bias[half];
    if (p->residual) {
        v_f32 more[MOST_ROWS][2];
        take_c(p->residual + (size_t)row * p->ldc + (size_t)column, p->ldc, p->rows - row,
            p->n - column, tall, more);
        for (int i = 0; i < tall; i++)
            for (int half = 0; half < 2; half++)
                sum[i][half] += more[i][half];
    }
    if (p->epilogue != KH_PLAIN)
        for (int i = 0; i < tall; i++)
            for (int half = 0; half < 2; half++)
                sum[i][half] = bend(p->epilogue, sum[i][half]);
}

/* One block of K, as all tiles need it. */
typedef struct block {
    int k, depth;
    uint32_t *a; /* [padded rows, BLOCK_WORDS]: A, gathered */
    rounding *r; /* [GROUPS, padded rows], for int8 */
    size_t padded;
    float *wide; /* [BLOCK_WORDS, COLUMNS]: room to widen bf16 weights */
} block;

static void gather(const kh_product *p, int row, const block *b) {
    const float *a = p->a + (size_t)row * p->lda + (size_t)b->k;
    float *out = (float *)(b->a + (size_t)row * BLOCK_WORDS);
    int rows = p->rows - row;
    switch (p->precision) {
    case KH_INT8: gather_int8(a, p->lda, rows, b->depth, b->r + row, b->padded, out); break;
#ifdef HAVE_DOT2
    case KH_BF16: gather_bf16(a, p->lda, rows, b->depth, out); break;
#endif
    default: gather_f32(a, p->lda, rows, b->depth, out); break;
    }
}

static inline void tile(
    const kh_product *p, const block *b, int row, const uint32_t *w, v_f32 sum[TILE][2]) {
    const uint32_t *a = b->a + (size_t)row * BLOCK_WORDS;
    switch (p->precision) {
    case KH_INT8:
        tile_int8(a, w, (b->depth + KH_INT8_GROUP - 1) / KH_INT8_GROUP, b->r + row, b->padded, sum);
        break;
#ifdef HAVE_DOT2
    case KH_BF16: tile_bf16(a, w, (b->depth + 1) / 2, sum); break;
#endif
    default: tile_f32(a, w, b->depth, sum); break;
    }
}

/* All tiles of one panel and one block. Meanwhile the cache is told of the next panel's block,
 * which starts where no hardware would guess: a share of it with each tile. */
static void panel_block(const kh_product *p, const block *b, int column, const uint32_t *w,
    const uint32_t *next, size_t next_bytes) {
    int columns = p->n - column, tiles = (p->rows + TILE - 1) / TILE;
    const char *ahead = (const char *)next, *end = ahead + next_bytes;
    size_t share = (next_bytes / 64 / (size_t)tiles + 1) * 64;
    bool first = b->k == 0 && !p->more, last = b->k + b->depth == p->k;
    v_f32 bias[2];
    load_columns(p->bias ? p->bias + column : NULL, columns, bias);
    for (int row = 0; row < p->rows; row += TILE) {
        float *c = p->c + (size_t)row * p->ldc + (size_t)column;
        v_f32 sum[TILE][2];
        if (first)
            for (int i = 0; i < TILE; i++)
                sum[i][0] = sum[i][1] = splat(0);
        else
            take_c(c, p->ldc, p->rows - row, columns, TILE, sum);
        for (const char *stop = ahead + share; ahead < stop && ahead < end; ahead += 64)
            __builtin_prefetch(ahead);
        tile(p, b, row, w, sum);
        if (last)
            finish(p, row, column, bias, TILE, sum);
        put_c(c, p->ldc, p->rows - row, columns, TILE, sum);
    }
}

static void product(const kh_product *p, void *scratch) {
    size_t padded = (size_t)(p->rows + TILE - 1) / TILE * TILE,
           panel = panel_rows(p->precision, p->k) * COLUMNS;
    block b = { .wide = scratch, .padded = padded };
    b.a = (uint32_t *)(b.wide + BLOCK_WORDS * COLUMNS);
    b.r = (rounding *)(b.a + padded * BLOCK_WORDS);
    for (; b.k < p->k; b.k += b.depth) {
        b.depth = p->k - b.k < block_depth(p->precision) ? p->k - b.k : block_depth(p->precision);
        for (int row = 0; row < p->rows; row += TILE)
            gather(p, row, &b);
        const uint32_t *w = (const uint32_t *)p->w + panel_rows(p->precision, b.k) * COLUMNS;
        size_t bytes = panel_rows(p->precision, b.depth) * COLUMNS * 4;
        for (int column = 0; column < p->n; column += COLUMNS, w += panel) {
            const uint32_t *next = column + COLUMNS < p->n ? w + panel : w, *from = w;
#ifndef HAVE_DOT2
            if (p->precision == KH_BF16) {
                widen(w, (b.depth + 1) / 2, b.wide);
                from = (const uint32_t *)b.wide;
            }
#endif
            panel_block(p, &b, column, from, next, bytes);
        }
    }
}

/* ------------------------------------------------------------------------ attention, LayerNorm */

static void softmax(float *x, int n, float scale) {
    v_f32 top = splat(-INFINITY);
    int padded = (n + WIDTH - 1) / WIDTH * WIDTH; /* the row has room for it */
    for (int i = n; i < padded; i++)
        x[i] = -INFINITY;
    for (int i = 0; i < padded; i += WIDTH)
        top = larger(top, load(x + i));
    v_f32 shift = splat(max_lanes(top) * scale), sum = splat(0);
    for (int i = 0; i < padded; i += WIDTH) {
        v_f32 e = exp_f32(load(x + i) * splat(scale) - shift);
        sum += e;
        store(x + i, e);
    }
    v_f32 share = splat(1 / sum_lanes(sum));
    for (int i = 0; i < padded; i += WIDTH)
        store(x + i, load(x + i) * share);
}

/* Rows [n, d] as panels of W for x k^T: column j of the product is row j. Four rows at a time, each
 * read in one go: in memory they lie so far apart that sixteen of them would drive each other out
 * of the cache. */
static void pack_rows(const float *rows, size_t ld, int n, int d, float *out) {
    for (int panel = 0; panel < n; panel += COLUMNS, out += d * COLUMNS)
        for (int j = 0; j < COLUMNS; j += 4) {
            int left = n - panel - j, whole = left >= 4 ? d / 4 * 4 : 0;
            const float *row[4];
            for (int q = 0; q < 4; q++)
                row[q] = rows + (q < left ? (size_t)(panel + j + q) * ld : 0);
            for (int i = 0; i < whole; i += 4)
                transpose_four(row, i, 4, COLUMNS, out + i * COLUMNS + j);
            for (int i = whole; i < d; i++)
                for (int q = 0; q < 4; q++)
                    out[i * COLUMNS + j + q] = q < left ? row[q][i] : 0;
        }
}

/* Columns of [n, d] as panels of W for x v. */
static void pack_columns(const float *rows, size_t ld, int n, int d, float *out) {
    for (int panel = 0; panel < d; panel += COLUMNS)
        for (int i = 0; i < n; i++, out += COLUMNS) {
            v_f32 row[2];
            load_columns(rows + (size_t)i * ld + (size_t)panel, d - panel, row);
            store(out, row[0]), store(out + WIDTH, row[1]);
        }
}

/* A head is two products with f32 "weights" packed on the spot. */
static void attention(const kh_attention *t, void *scratch) {
    size_t n_padded = (size_t)(t->n + 31) / 32 * 32, d_padded = (size_t)(t->d + 31) / 32 * 32;
    float *packed = scratch, *weight = packed + n_padded * d_padded;
    void *rest = weight + (size_t)t->n_query * n_padded;
    float scale = 1 / sqrtf((float)t->d);
    for (int h = 0; h < t->heads; h++) {
        size_t at = (size_t)h * (size_t)t->d;
        pack_rows(t->k + at, t->ldk, t->n, t->d, packed);
        product(&(kh_product){ .a = t->q + at,
                    .lda = t->ldq,
                    .rows = t->n_query,
                    .k = t->d,
                    .n = t->n,
                    .w = packed,
                    .c = weight,
                    .ldc = n_padded },
            rest);
        for (int i = 0; i < t->n_query; i++)
            softmax(weight + (size_t)i * n_padded, t->n, scale);
        pack_columns(t->v + at, t->ldv, t->n, t->d, packed);
        product(&(kh_product){ .a = weight,
                    .lda = n_padded,
                    .rows = t->n_query,
                    .k = t->n,
                    .n = t->d,
                    .w = packed,
                    .c = t->out + at,
                    .ldc = t->ldo },
            rest);
    }
}

/* ---------------------------------------------------------------------------- causal attention */

/* A part, packed for the two products of one head of keys and values. */
static void pack_part(const kh_causal *t, const kh_part *p, int head, float *key, float *value) {
    size_t at = (size_t)head * (size_t)t->d;
    pack_rows(p->k + at, p->ld, p->n, t->d, key);
    pack_columns(p->v + at, p->ld, p->n, t->d, value);
}

/* Floats of a packed part, keys or values. */
static size_t part_size(const kh_causal *t, const kh_part *p) {
    return (size_t)(p->n + 31) / 32 * 32 * ((size_t)(t->d + 31) / 32 * 32);
}

/* Scores of one query, at place `place` of a sequence of n, become weights; unseen places get 0. */
static void weigh_row(float *x, int place, int n, int window, float scale) {
    int first = window > 0 && place + 1 > window ? place + 1 - window : 0;
    int padded = (place + WIDTH) / WIDTH * WIDTH;
    for (int i = 0; i < first; i++)
        x[i] = -INFINITY;
    softmax(x, place + 1, scale);
    for (int i = padded; i < n; i++)
        x[i] = 0;
}

/* One head of queries: rows [M] of q against packed parts. weight is [M, ld]. */
static void causal_head(const kh_causal *t, const float *q, float *out, const float *key,
    const float *value, float *weight, size_t ld, void *rest) {
    int rows = 0, place = 0;
    for (int s = 0; s < t->n_seq; s++)
        rows += t->queries[s];
    const float *k = key, *v = value;
    for (int i = 0; i < t->n_shared; i++) {
        const kh_part *p = &t->shared[i];
        product(&(kh_product){ .a = q,
                    .lda = t->ldq,
                    .rows = rows,
                    .k = t->d,
                    .n = p->n,
                    .w = k,
                    .c = weight + place,
                    .ldc = ld },
            rest);
        k += part_size(t, p);
        place += p->n;
    }
    for (int s = 0, row = 0; s < t->n_seq; row += t->queries[s++]) {
        const kh_part *p = &t->own[s];
        float *x = weight + (size_t)row * ld;
        product(&(kh_product){ .a = q + (size_t)row * t->ldq,
                    .lda = t->ldq,
                    .rows = t->queries[s],
                    .k = t->d,
                    .n = p->n,
                    .w = k,
                    .c = x + place,
                    .ldc = ld },
            rest);
        for (int i = 0; i < t->queries[s]; i++)
            weigh_row(x + (size_t)i * ld, place + p->n - t->queries[s] + i, place + p->n, t->window,
                t->scale);
        k += part_size(t, p);
    }
    place = 0;
    for (int i = 0; i < t->n_shared; i++) {
        const kh_part *p = &t->shared[i];
        product(&(kh_product){ .a = weight + place,
                    .lda = ld,
                    .rows = rows,
                    .k = p->n,
                    .n = t->d,
                    .w = v,
                    .c = out,
                    .ldc = t->ldo,
                    .more = i > 0 },
            rest);
        v += part_size(t, p);
        place += p->n;
    }
    for (int s = 0, row = 0; s < t->n_seq; row += t->queries[s++]) {
        const kh_part *p = &t->own[s];
        product(&(kh_product){ .a = weight + (size_t)row * ld + place,
                    .lda = ld,
                    .rows = t->queries[s],
                    .k = p->n,
                    .n = t->d,
                    .w = v,
                    .c = out + (size_t)row * t->ldo,
                    .ldc = t->ldo,
                    .more = t->n_shared > 0 },
            rest);
        v += part_size(t, p);
    }
}

static void causal(const kh_causal *t, void *scratch) {
    size_t all = 0;
    int rows = 0, before = 0, most = 0, group = t->heads / t->kv_heads;
    for (int i = 0; i < t->n_shared; i++) {
        all += part_size(t, &t->shared[i]);
        before += t->shared[i].n;
    }
    for (int s = 0; s < t->n_seq; s++) {
        all += part_size(t, &t->own[s]);
        rows += t->queries[s];
        most = t->own[s].n > most ? t->own[s].n : most;
    }
    size_t ld = (size_t)(before + most + 1 + 31) / 32 * 32;
    float *key = scratch, *value = key + all, *weight = value + all;
    void *rest = weight + (size_t)(rows + 47) / 48 * 48 * ld;
    for (int g = 0; g < t->kv_heads; g++) {
        float *k = key, *v = value;
        for (int i = 0; i < t->n_shared + t->n_seq; i++) {
            const kh_part *p = i < t->n_shared ? &t->shared[i] : &t->own[i - t->n_shared];
            pack_part(t, p, g, k, v);
            k += part_size(t, p);
            v += part_size(t, p);
        }
        for (int h = g * group; h < (g + 1) * group; h++) {
            size_t at = (size_t)h * (size_t)t->d;
            causal_head(t, t->q + at, t->out + at, key, value, weight, ld, rest);
        }
    }
}

static float row_sum(const float *x, int n, float minus, bool square) {
    v_f32 sum = splat(0);
    int i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        v_f32 d = load(x + i) - splat(minus);
        sum += square ? d * d : d;
    }
    float total = sum_lanes(sum);
    for (; i < n; i++) {
        float d = x[i] - minus;
        total += square ? d * d : d;
    }
    return total;
}

static void layer_norm(
    const float *x, int rows, int n, float eps, const float *gain, const float *bias, float *y) {
    for (int r = 0; r < rows; r++, x += n, y += n) {
        float mean = row_sum(x, n, 0, false) / (float)n;
        float share = 1 / sqrtf(row_sum(x, n, mean, true) / (float)n + eps);
        for (int i = 0; i < n; i++)
            y[i] = (x[i] - mean) * share * gain[i] + bias[i];
    }
}

static void rms_norm(
    const float *x, size_t ld, int rows, int n, float eps, const float *gain, float *y) {
    for (int r = 0; r < rows; r++, x += ld, y += ld) {
        float share = 1 / sqrtf(row_sum(x, n, 0, true) / (float)n + eps);
        for (int i = 0; i < n; i++)
            y[i] = x[i] * share * gain[i];
    }
}

/* Multiply-adds in as many registers as keep the units busy: the most that products could reach. */
static double spin(int rounds, float *result) {
    enum { SUMS = 12 };
    v_f32 sum[SUMS], factor = splat(0.999f), more = splat(1e-3f);
#pragma GCC unroll 16
    for (int i = 0; i < SUMS; i++)
        sum[i] = splat((float)i);
    for (int r = 0; r < rounds; r++)
#pragma GCC unroll 16
        for (int i = 0; i < SUMS; i++)
            sum[i] = sum[i] * factor + more;
    for (int i = 1; i < SUMS; i++)
        sum[0] += sum[i];
    *result = sum_lanes(sum[0]);
    return 2.0 * SUMS * WIDTH * rounds;
}
