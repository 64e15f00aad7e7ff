/* test_model_kernels.c - every row of the kernel table against plain sums in double precision, on
 * odd sizes; and the promise that a row of the result depends on nothing but its own input. */
#include "test.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "model/kernels.h"

#include <math.h>

static float *random_floats(int n, int stream) {
    kh_rng r = kh_rng_stream(7, KH_RNG_TEST, (uint32_t)stream, 0);
    float *x = kh_aligned((size_t)(n > 0 ? n : 1) * sizeof *x);
    assert_non_null(x);
    for (int i = 0; i < n; i++)
        x[i] = (float)kh_rng_normal(&r);
    return x;
}

static double gelu_exact(double x) { return 0.5 * x * erfc(-x / sqrt(2)); }

static double bend_exactly(kh_epilogue epilogue, double x) {
    switch (epilogue) {
    case KH_GELU: return gelu_exact(x);
    case KH_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case KH_RELU: return x > 0 ? x : 0;
    case KH_SILU: return x / (1 + exp(-x));
    case KH_PLAIN: break;
    }
    return x;
}

typedef struct shape {
    int rows, k, n;
} shape;

static const shape SHAPES[] = { { 1, 1, 1 }, { 7, 100, 33 }, { 12, 256, 16 }, { 13, 257, 31 },
    { 5, 1030, 65 }, { 50, 64, 50 }, { 25, 2051, 9 } };
enum { N_SHAPE = sizeof SHAPES / sizeof SHAPES[0] };

/* Root of the mean squared error relative to that of the exact result, which is x w^T + bias +
 * residual, bent. */
static double product_error(
    const kh_kernels *k, kh_precision precision, shape s, kh_epilogue epilogue) {
    float *a = random_floats(s.rows * s.k, 1), *w = random_floats(s.n * s.k, 2),
          *bias = random_floats(s.n, 3);
    float *residual = random_floats(s.rows * s.n, 4), *c = random_floats(s.rows * s.n, 5);
    void *packed = kh_aligned(kh_packed_bytes(k, precision, s.k, s.n)),
         *scratch = kh_aligned(kh_kernels_scratch(s.rows, 64));
    k->pack(precision, w, s.k, s.n, packed);
    kh_product p = { .precision = precision,
        .a = a,
        .lda = (size_t)s.k,
        .rows = s.rows,
        .k = s.k,
        .n = s.n,
        .w = packed,
        .bias = bias,
        .residual = residual,
        .epilogue = epilogue,
        .c = c,
        .ldc = (size_t)s.n };
    k->product(&p, scratch);
    double off = 0, size = 1e-12; /* a single number may be bent to 0 */
    for (int i = 0; i < s.rows; i++)
        for (int j = 0; j < s.n; j++) {
            double sum = bias[j] + residual[i * s.n + j];
            for (int q = 0; q < s.k; q++)
                sum += (double)a[i * s.k + q] * (double)w[j * s.k + q];
            sum = bend_exactly(epilogue, sum);
            off += (sum - c[i * s.n + j]) * (sum - c[i * s.n + j]);
            size += sum * sum;
        }
    float *all[] = { a, w, bias, residual, c, packed, scratch };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        kh_free(all[i]);
    return sqrt(off / size);
}

static void check_products(kh_precision precision, double limit) {
    const kh_kernels *k;
    for (int row = 0; (k = kh_kernels_at(row)) != NULL; row++)
        for (int i = 0; i < N_SHAPE; i++)
            for (int bend = KH_PLAIN; bend <= KH_RELU; bend++) {
                double off = product_error(k, precision, SHAPES[i], (kh_epilogue)bend);
                if (!(off < limit))
                    fail_msg("%s: rows %d, k %d, n %d, epilogue %d: relative error %g", k->name,
                        SHAPES[i].rows, SHAPES[i].k, SHAPES[i].n, bend, off);
            }
}

static void products_are_exact_in_f32(void **state) {
    (void)state;
    check_products(KH_F32, 2e-6);
}

static void products_are_close_in_bf16(void **state) {
    (void)state;
    check_products(KH_BF16, 5e-3);
}

/* Normal numbers reach 3.7 deviations at these sizes: a step is 3.7/63 of one for weights
 * and 7.4/255 for activations, and rounding errs by a step over the root of 12, which makes 1.9 %
 * together. */
static void products_are_near_in_int8(void **state) {
    (void)state;
    check_products(KH_INT8, 3e-2);
}

/* The extremes: weights and activations that would overflow 16-bit sums if bytes were multiplied
 * carelessly. */
static void int8_does_not_saturate(void **state) {
    (void)state;
    const kh_kernels *k;
    enum { K = 64, N = 40 };
    float a[2 * K], w[N * K], c[2 * N];
    for (int i = 0; i < 2 * K; i++)
        a[i] = i < K ? 3.0f : -3.0f;
    for (int i = 0; i < N * K; i++)
        w[i] = (i / K) % 2 ? 1.0f : -1.0f;
    for (int row = 0; (k = kh_kernels_at(row)) != NULL; row++) {
        void *packed = kh_aligned(kh_packed_bytes(k, KH_INT8, K, N)),
             *scratch = kh_aligned(kh_kernels_scratch(2, 64));
        k->pack(KH_INT8, w, K, N, packed);
        k->product(&(kh_product){ .precision = KH_INT8,
                       .a = a,
                       .lda = K,
                       .rows = 2,
                       .k = K,
                       .n = N,
                       .w = packed,
                       .c = c,
                       .ldc = N },
            scratch);
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < N; j++)
                assert_true(fabsf(c[i * N + j] -
                                (i ? -1.0f : 1.0f) * (j % 2 ? 1.0f : -1.0f) * 3 * K) < 0.01f);
        kh_free(packed);
        kh_free(scratch);
    }
}

/* The largest sums that random weights can meet: row j is 1 where column j is above 0, and row N +
 * j where it is below. All that is lost is the rounding of weights, half a step each: of 64 that is
 * far below 2 % of their sum. */
static void int8_sums_of_one_sign_are_exact(void **state) {
    (void)state;
    const kh_kernels *k;
    enum { K = 64, N = 40 };
    float *w = random_floats(N * K, 8), a[2 * N * K], c[2 * N * N];
    for (int i = 0; i < N * K; i++) {
        a[i] = w[i] > 0;
        a[N * K + i] = w[i] < 0;
    }
    for (int row = 0; (k = kh_kernels_at(row)) != NULL; row++) {
        void *packed = kh_aligned(kh_packed_bytes(k, KH_INT8, K, N)),
             *scratch = kh_aligned(kh_kernels_scratch(2 * N, 64));
        k->pack(KH_INT8, w, K, N, packed);
        k->product(&(kh_product){ .precision = KH_INT8,
                       .a = a,
                       .lda = K,
                       .rows = 2 * N,
                       .k = K,
                       .n = N,
                       .w = packed,
                       .c = c,
                       .ldc = N },
            scratch);
        for (int i = 0; i < 2 * N; i++) {
            float sum = 0;
            for (int q = 0; q < K; q++)
                sum += a[i * K + q] * w[i % N * K + q];
            if (!(fabsf(c[i * N + i % N] - sum) < 0.02f * fabsf(sum)))
                fail_msg("%s: row %d: %g, expected %g", k->name, i, (double)c[i * N + i % N],
                    (double)sum);
        }
        kh_free(packed);
        kh_free(scratch);
    }
    kh_free(w);
}

/* All epilogues of one product, one after the other: [KH_SILU + 1][rows, n]. */
static float *all_products(const kh_kernels *k, kh_precision precision, shape s) {
    float *a = random_floats(s.rows * s.k, 1), *w = random_floats(s.n * s.k, 2),
          *bias = random_floats(s.n, 3), *residual = random_floats(s.rows * s.n, 4),
          *c = random_floats((KH_SILU + 1) * s.rows * s.n, 5);
    for (int i = 0; i < s.k / 3; i++)
        a[i] = 0; /* a group without any range */
    void *packed = kh_aligned(kh_packed_bytes(k, precision, s.k, s.n)),
         *scratch = kh_aligned(kh_kernels_scratch(s.rows, 64));
    k->pack(precision, w, s.k, s.n, packed);
    for (int bend = KH_PLAIN; bend <= KH_SILU; bend++)
        k->product(&(kh_product){ .precision = precision,
                       .a = a,
                       .lda = (size_t)s.k,
                       .rows = s.rows,
                       .k = s.k,
                       .n = s.n,
                       .w = packed,
                       .bias = bend % 2 ? bias : NULL,
                       .residual = bend == KH_PLAIN || bend == KH_RELU ? residual : NULL,
                       .epilogue = (kh_epilogue)bend,
                       .c = c + bend * s.rows * s.n,
                       .ldc = (size_t)s.n,
                       .more = bend == KH_SILU },
            scratch);
    float *all[] = { a, w, bias, residual, packed, scratch };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        kh_free(all[i]);
    return c;
}

static const kh_kernels *row_named(const char *name) {
    const kh_kernels *k;
    for (int row = 0; (k = kh_kernels_at(row)) != NULL; row++)
        if (strcmp(k->name, name) == 0)
            return k;
    return NULL;
}

/* A row that claims the bits of another has them: whole tiles, edges of all kinds, several blocks
 * of K. */
static void rows_of_the_same_bits_agree(void **state) {
    (void)state;
    static const shape MORE[] = { { 16, 64, 32 }, { 17, 65, 33 }, { 32, 384, 64 }, { 48, 192, 96 },
        { 33, 128, 32 }, { 100, 704, 70 }, { 49, 4161, 40 } };
    const kh_kernels *k;
    int pairs = 0;
    for (int row = 0; (k = kh_kernels_at(row)) != NULL; row++)
        for (int i = 0; strcmp(k->bits, k->name) != 0 && i < N_SHAPE + 7; i++)
            for (int precision = KH_F32; precision <= KH_INT8; precision++, pairs++) {
                shape s = i < N_SHAPE ? SHAPES[i] : MORE[i - N_SHAPE];
                const kh_kernels *other = row_named(k->bits);
                assert_non_null(other);
                float *have = all_products(k, (kh_precision)precision, s),
                      *want = all_products(other, (kh_precision)precision, s);
                if (memcmp(have, want, (size_t)((KH_SILU + 1) * s.rows * s.n) * sizeof *have) != 0)
                    fail_msg("%s is not %s: precision %d, rows %d, k %d, n %d", k->name, k->bits,
                        precision, s.rows, s.k, s.n);
                kh_free(have);
                kh_free(want);
            }
    if (pairs == 0)
        test_skip("no row of this CPU has the bits of another (amx would)");
}

/* Any run of rows, computed alone, gives the bits it gives among others. */
static void rows_do_not_know_their_neighbours(void **state) {
    (void)state;
    const kh_kernels *k;
    enum { ROWS = 61, K = 530, N = 70 };
    float *a = random_floats(ROWS * K, 1), *w = random_floats(N * K, 2),
          *all = random_floats(ROWS * N, 3), *part = random_floats(ROWS * N, 4);
    for (int row = 0; (k = kh_kernels_at(row)) != NULL; row++)
        for (int precision = KH_F32; precision <= KH_INT8; precision++) {
            void *packed = kh_aligned(kh_packed_bytes(k, (kh_precision)precision, K, N)),
                 *scratch = kh_aligned(kh_kernels_scratch(ROWS, 64));
            k->pack((kh_precision)precision, w, K, N, packed);
            kh_product p = { .precision = (kh_precision)precision,
                .a = a,
                .lda = K,
                .rows = ROWS,
                .k = K,
                .n = N,
                .w = packed,
                .c = all,
                .ldc = N };
            k->product(&p, scratch);
            for (int first = 0; first < ROWS; first += 7)
                for (int rows = 1; rows <= ROWS - first; rows += 5) {
                    p.a = a + first * K, p.rows = rows, p.c = part;
                    k->product(&p, scratch);
                    assert_memory_equal(part, all + first * N, (size_t)rows * N * sizeof *part);
                }
            kh_free(packed);
            kh_free(scratch);
        }
    kh_free(a), kh_free(w), kh_free(all), kh_free(part);
}

static void gelu_is_that_of_erf(void **state) {
    (void)state;
    const kh_kernels *k;
    enum { N = 4001 };
    float x[N];
    for (int row = 0; (k = kh_kernels_at(row)) != NULL; row++) {
        for (int i = 0; i < N; i++)
            x[i] = (float)(i - N / 2) * 0.005f;
        k->gelu(x, N);
        for (int i = 0; i < N; i++) {
            double at = (float)(i - N / 2) * 0.005f, off = fabs(x[i] - gelu_exact(at));
            if (off > 3e-7 * (1 + fabs(at)))
                fail_msg("%s: gelu(%g) is off by %g", k->name, at, off);
        }
        float odd[3] = { NAN, INFINITY, -INFINITY };
        k->gelu(odd, 3);
        assert_true(isnan(odd[0]) && odd[1] == INFINITY && !(odd[2] > 0));
    }
}

static void layer_norm_has_mean_0_and_variance_1(void **state) {
    (void)state;
    const kh_kernels *k;
    static const int SIZES[] = { 1, 5, 32, 100, 1027 };
    for (int row = 0; (k = kh_kernels_at(row)) != NULL; row++)
        for (int s = 0; s < 5; s++) {
            int n = SIZES[s];
            float *x = random_floats(3 * n, 1), *g = random_floats(n, 2), *b = random_floats(n, 3),
                  *y = random_floats(3 * n, 4);
            k->layer_norm(x, 3, n, 1e-5f, g, b, y);
            for (int r = 0; r < 3; r++) {
                double mean = 0, var = 0;
                for (int i = 0; i < n; i++)
                    mean += x[r * n + i] / (double)n;
                for (int i = 0; i < n; i++)
                    var += (x[r * n + i] - mean) * (x[r * n + i] - mean) / n;
                for (int i = 0; i < n; i++) {
                    double want = (x[r * n + i] - mean) / sqrt(var + 1e-5) * g[i] + b[i];
                    assert_true(fabs(y[r * n + i] - want) < 2e-5 * (1 + fabs(want)));
                }
            }
            k->layer_norm(x, 3, n, 1e-5f, g, b, x);
            assert_memory_equal(x, y, (size_t)(3 * n) * sizeof *x);
            kh_free(x), kh_free(g), kh_free(b), kh_free(y);
        }
}

/* softmax(q k^T / sqrt d) v in double precision, one head of one query. */
static void attend_exactly(const kh_attention *t, int query, int head, double *out) {
    double weight[256], total = 0, top = -INFINITY;
    for (int i = 0; i < t->n; i++) {
        weight[i] = 0;
        for (int q = 0; q < t->d; q++)
            weight[i] += (double)t->q[(size_t)query * t->ldq + (size_t)(head * t->d + q)] *
                t->k[(size_t)i * t->ldk + (size_t)(head * t->d + q)];
        weight[i] /= sqrt(t->d);
        top = fmax(top, weight[i]);
    }
    for (int i = 0; i < t->n; i++)
        total += weight[i] = exp(weight[i] - top);
    for (int q = 0; q < t->d; q++) {
        out[q] = 0;
        for (int i = 0; i < t->n; i++)
            out[q] += weight[i] / total * t->v[(size_t)i * t->ldv + (size_t)(head * t->d + q)];
    }
}

static void attention_is_softmax_of_products(void **state) {
    (void)state;
    const kh_kernels *k;
    static const shape CASES[] = { { 1, 1, 8 }, { 2, 33, 24 }, { 80, 80, 64 },
        { 130, 130, 8 } }; /* queries, tokens, d */
    for (int row = 0; (k = kh_kernels_at(row)) != NULL; row++)
        for (int i = 0; i < 4; i++) {
            int heads = 3, d = CASES[i].n, n = CASES[i].k, wide = heads * d;
            float *q = random_floats(CASES[i].rows * wide, 1), *kv = random_floats(n * 2 * wide, 2),
                  *out = random_floats(CASES[i].rows * wide, 3);
            void *scratch = kh_aligned(kh_kernels_scratch(n, d));
            kh_attention t = { .q = q,
                .k = kv,
                .v = kv + wide,
                .ldq = (size_t)wide,
                .ldk = 2 * (size_t)wide,
                .ldv = 2 * (size_t)wide,
                .n_query = CASES[i].rows,
                .n = n,
                .heads = heads,
                .d = d,
                .out = out,
                .ldo = (size_t)wide };
            k->attention(&t, scratch);
            double want[64];
            for (int r = 0; r < t.n_query; r++)
                for (int h = 0; h < heads; h++) {
                    attend_exactly(&t, r, h, want);
                    for (int j = 0; j < d; j++)
                        assert_true(fabs(out[r * wide + h * d + j] - want[j]) < 1e-5);
                }
            kh_free(q), kh_free(kv), kh_free(out), kh_free(scratch);
        }
}

static void a_row_can_be_forced(void **state) {
    (void)state;
    setenv("KEYHOLE_KERNELS", "generic", 1);
    assert_string_equal(kh_kernels_pick()->name, "generic");
    setenv("KEYHOLE_KERNELS", "no such row", 1);
    const kh_kernels *best = kh_kernels_pick();
    unsetenv("KEYHOLE_KERNELS");
    assert_ptr_equal(best, kh_kernels_pick());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_exact_in_f32),
        cmocka_unit_test(products_are_close_in_bf16),
        cmocka_unit_test(products_are_near_in_int8),
        cmocka_unit_test(int8_does_not_saturate),
        cmocka_unit_test(int8_sums_of_one_sign_are_exact),
        cmocka_unit_test(rows_of_the_same_bits_agree),
        cmocka_unit_test(rows_do_not_know_their_neighbours),
        cmocka_unit_test(gelu_is_that_of_erf),
        cmocka_unit_test(layer_norm_has_mean_0_and_variance_1),
        cmocka_unit_test(attention_is_softmax_of_products),
        cmocka_unit_test(a_row_can_be_forced),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
