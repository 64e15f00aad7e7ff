/* test_train_adamw.c - AdamW against PyTorch's, the schedules, clipping, threads; and every row of
 * ops.h against double. */
#include "training_vectors.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "train/adamw.h"
#include "train/gradient.h"
#include "model/kernels.h"
#include "model/ops.h"
#include "model/random_model.h"

#include <math.h>

static void steps_as_pytorch(void **state) {
    (void)state;
    const kh_param_group segment[] = { { 5, true }, { 4, false } };
    kh_adamw a;
    float w[9], g[9];
    assert_int_equal(kh_adamw_init(&a, segment, 2, NULL), 0);
    kh_adamw_opts o = { .beta1 = 0.9, .beta2 = 0.98, .eps = 1e-6, .weight_decay = 0.1 };
    for (int i = 0; i < 9; i++)
        w[i] = (float)(0.5 * sin(1.3 * i + 0.3));
    for (int step = 0; step < 20; step++) {
        for (int i = 0; i < 9; i++)
            g[i] = (float)(sin(0.7 * i + 1.9 * step) * (1 + i));
        kh_adamw_step(&a, &o, 1e-2 * (1 + step % 3), w, g, NULL);
        if (step != 0 && step != 19)
            continue;
        double *want = vector_read(step == 0 ? "adamw.1" : "adamw.20", 9);
        for (int i = 0; i < 9; i++)
            if (!(fabs((double)w[i] - want[i]) < 2e-6))
                fail_msg("step %d, number %d: %.8f, PyTorch has %.8f", step + 1, i, (double)w[i],
                    want[i]);
        free(want);
    }
    kh_adamw_free(&a);
}

static void assert_rate(kh_adamw_opts o, long step, double want) {
    double have = kh_adamw_rate(&o, step, 100);
    if (!(fabs(have - want) < 1e-12))
        fail_msg("rate at step %ld is %g, expected %g", step, have, want);
}

static void schedules(void **state) {
    (void)state;
    kh_adamw_opts o = { .lr = 2, .warmup = 9, .decay = KH_DECAY_CONSTANT };
    assert_rate(o, 0, 0.2);
    assert_rate(o, 8, 1.8);
    assert_rate(o, 9, 2);
    assert_rate(o, 99, 2);
    o.warmup = 0.2; /* a share */
    o.decay = KH_DECAY_LINEAR;
    assert_rate(o, 20, 2);
    assert_rate(o, 60, 1);
    assert_rate(o, 100, 0);
    assert_rate(o, 1000, 0);
    o.floor = 0.1;
    assert_rate(o, 100, 0.2);
    o.decay = KH_DECAY_COSINE;
    assert_rate(o, 20, 2);
    assert_rate(o, 60, 1.1);
    assert_rate(o, 100, 0.2);
}

/* A gradient ten times too long is the gradient ten times shorter. */
static void clipping(void **state) {
    (void)state;
    enum { N = 200000 }; /* several pieces */
    const kh_param_group segment = { N, false };
    float *w = kh_calloc(2 * N, sizeof *w), *g = kh_calloc(2 * N, sizeof *g);
    kh_adamw a[2];
    kh_adamw_opts o = kh_adamw_defaults();
    double norm[2];
    for (int i = 0; i < N; i++) {
        g[i] = 3.0f * (float)(i % 2);
        g[N + i] = g[i] * 0.5f;
    }
    for (int k = 0; k < 2; k++)
        assert_int_equal(kh_adamw_init(&a[k], &segment, 1, NULL), 0);
    double length = 3 * sqrt(N / 2);
    o.eps = 1; /* so that the size of the gradient matters */
    o.clip = length / 2;
    kh_adamw_step(&a[0], &o, 0.1, w, g, &norm[0]);
    o.clip = 0;
    kh_threads_set(3);
    kh_adamw_step(&a[1], &o, 0.1, w + N, g + N, &norm[1]);
    kh_threads_set(0);
    assert_true(
        fabs(norm[0] - length) < 1e-6 * length && fabs(norm[1] - length / 2) < 1e-6 * length);
    assert_memory_equal(w, w + N, N * sizeof *w);
    for (int k = 0; k < 2; k++)
        kh_adamw_free(&a[k]);
    kh_free(w);
    kh_free(g);
}

static void out_of_memory(void **state) {
    (void)state;
    const kh_param_group segment = { 10, true };
    int rc = KH_ENOMEM;
    for (long n = 1; rc != 0; n++) {
        kh_adamw a;
        kh_err err;
        kh_alloc_fail_at(n, false);
        rc = kh_adamw_init(&a, &segment, 1, &err);
        kh_alloc_fail_at(0, false);
        kh_adamw_free(&a);
        assert_true(rc == 0 || rc == KH_ENOMEM);
    }
}

/* ------------------------------------------------------------------------------- rows of ops.h */

enum { ROWS = 5, N = 37, LD = 48 };

typedef struct numbers {
    float f[ROWS * LD];
    double d[ROWS * LD];
} numbers;

static numbers draw(uint32_t stream, double std) {
    numbers x;
    kh_rng r = kh_rng_stream(4, KH_RNG_TEST, stream, 0);
    for (int i = 0; i < ROWS * LD; i++) {
        x.f[i] = (float)(std * kh_rng_normal(&r));
        x.d[i] = (double)x.f[i];
    }
    return x;
}

/* Within n columns of rows that lie ld apart. */
static void assert_same(
    const char *kernels, const char *what, const numbers *x, int rows, int n, int ld) {
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++) {
            double have = (double)x->f[r * ld + i], want = x->d[r * ld + i];
            if (!(fabs(have - want) < 3e-6 * (1 + fabs(want))))
                fail_msg(
                    "%s, %s: [%d, %d] is %.9g, expected %.9g", kernels, what, r, i, have, want);
        }
}

static void check_row(const char *name, const kh_ops_f32 *f) {
    const kh_ops_f64 *d = &kh_ops_plain;
    numbers x = draw(1, 2), y = draw(2, 1), g = draw(3, 1), b = draw(4, 1), s = draw(5, 1),
            dg = draw(6, 1), db = draw(7, 1);
    f->norm(x.f, ROWS, N, 1e-5f, g.f, b.f, s.f, y.f),
        d->norm(x.d, ROWS, N, 1e-5, g.d, b.d, s.d, y.d);
    assert_same(name, "hat", &x, ROWS, N, N);
    assert_same(name, "norm", &y, ROWS, N, N);
    f->norm_back(y.f, ROWS, N, x.f, s.f, g.f, dg.f, db.f),
        d->norm_back(y.d, ROWS, N, x.d, s.d, g.d, dg.d, db.d);
    assert_same(name, "norm_back", &y, ROWS, N, N);
    assert_same(name, "gain", &dg, 1, N, N);
    assert_same(name, "bias", &db, 1, N, N);
    for (int act = KH_ACT_GELU; act <= KH_ACT_RELU; act++) {
        numbers in = draw(8, 3), out = draw(9, 1);
        f->bend((kh_act)act, in.f, 101, out.f), d->bend((kh_act)act, in.d, 101, out.d);
        assert_same(name, "slope", &in, 1, 101, 101);
        assert_same(name, "bend", &out, 1, 101, 101);
    }
    numbers p = draw(10, 2), dp = draw(11, 1), z = draw(12, 4), sum = draw(13, 1),
            fill = draw(14, 1);
    f->softmax(p.f, LD, ROWS, N, 0.4f), d->softmax(p.d, LD, ROWS, N, (double)0.4f);
    assert_same(name, "softmax", &p, ROWS, N, LD);
    f->softmax_back(dp.f, p.f, LD, ROWS, N, 0.4f),
        d->softmax_back(dp.d, p.d, LD, ROWS, N, (double)0.4f);
    assert_same(name, "softmax_back", &dp, ROWS, N, LD);
    double loss = f->cross_entropy(z.f, N, 20, 0.5f), exact = d->cross_entropy(z.d, N, 20, 0.5);
    assert_true(fabs(loss - exact) < 1e-5);
    assert_same(name, "cross_entropy", &z, 1, N, N);
    f->column_sums(p.f, LD, ROWS, N, sum.f), d->column_sums(p.d, LD, ROWS, N, sum.d);
    assert_same(name, "column_sums", &sum, 1, N, N);
    f->fill(fill.f, LD, ROWS, N, sum.f, p.f, LD), d->fill(fill.d, LD, ROWS, N, sum.d, p.d, LD);
    assert_same(name, "fill", &fill, ROWS, N, LD);
    f->fill(fill.f, LD, 1, N, NULL, NULL, 0), d->fill(fill.d, LD, 1, N, NULL, NULL, 0);
    assert_same(name, "fill with nothing", &fill, 1, N, LD);
    f->multiply(sum.f, p.f, N), d->multiply(sum.d, p.d, N);
    f->add(sum.f, dp.f, N), d->add(sum.d, dp.d, N);
    assert_same(name, "multiply and add", &sum, 1, N, N);
    assert_true(fabs(f->square_sum(x.f, 101) - d->square_sum(x.d, 101)) < 1e-3);
}

static void every_row_follows_double(void **state) {
    (void)state;
    const kh_kernels *k;
    for (int i = 0; (k = kh_kernels_at(i)) != NULL; i++)
        check_row(k->name, k->train);
}

/* -------------------------------------------------------------------------------- over-fitting */

/* Eight sequences, eight masks: gradients and optimiser together must learn them by heart. */
static void eight_examples_by_heart(void **state) {
    (void)state;
    enum { SEQ = 8, LENGTH = 6 };
    kh_config c = *kh_arch_find("roberta-tiny");
    kh_params p;
    assert_int_equal(kh_params_init(&p, &c, NULL), 0);
    kh_layer none[2] = { 0 };
    float *w = kh_calloc(p.size, sizeof *w);
    kh_params_take(&p, &(kh_model){ .config = c, .w = { .layer = none } }, 7, w);
    kh_slot slot[SEQ * LENGTH];
    int start[SEQ + 1], first_at[SEQ + 1], at[SEQ];
    int32_t target[SEQ];
    kh_rng r = kh_rng_stream(5, KH_RNG_TEST, 0, 0);
    for (int s = 0; s <= SEQ; s++)
        start[s] = s * LENGTH, first_at[s] = s;
    for (int i = 0; i < SEQ * LENGTH; i++)
        slot[i] = (kh_slot){ (int32_t)kh_rng_below(&r, 300), -1, -1, 2 + i % LENGTH };
    for (int s = 0; s < SEQ; s++) {
        at[s] = s * LENGTH + 3;
        target[s] = (int32_t)kh_rng_below(&r, 300);
    }
    kh_packed text = { SEQ, start, slot, at, first_at };
    kh_lm_loss how = { .target = target, .scale = 1.0 / SEQ };
    kh_gradient *g;
    kh_adamw a;
    double loss = INFINITY;
    kh_adamw_opts o = kh_adamw_defaults();
    assert_int_equal(kh_gradient_new(&g, &p, 2, KH_WRT_WEIGHTS, 0, 0, NULL), 0);
    assert_int_equal(kh_adamw_init(&a, &(kh_param_group){ p.size, false }, 1, NULL), 0);
    for (int step = 0; step < 300 && loss > 0.01; step++) {
        assert_int_equal(kh_gradient_run(g, &(kh_pass_f32){ .w = w, .text = &text, .loss = &how },
                             true, &loss, NULL),
            0);
        kh_adamw_step(&a, &o, 3e-3, w, kh_gradient_weights(g), NULL);
    }
    if (!(loss < 0.01))
        fail_msg("the loss is still %g", loss);
    kh_adamw_free(&a);
    kh_gradient_free(g);
    kh_params_free(&p);
    kh_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_as_pytorch),
        cmocka_unit_test(schedules),
        cmocka_unit_test(clipping),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(every_row_follows_double),
        cmocka_unit_test(eight_examples_by_heart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
