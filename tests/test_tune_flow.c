/* test_tune_flow.c - the masked autoregressive flow: its density is one, its gradients are right,
 * its masks hold, and drawing undoes evaluating. tests/vectors/flow holds what PyTorch makes of the
 * same weights. */
#include "judge_vectors.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "base/blas.h"
#include "tune/flow.h"

enum { ROWS = 12, CONTEXTS = 3 };

typedef struct flow_case {
    int D, C, T, H, L;
    kh_flow *f;
    kh_flow_work *w;
    double z[ROWS * 40], logq[ROWS], g[ROWS];
    float x[CONTEXTS * 40];
    int of[ROWS];
} flow_case;

/* A flow with weights large enough to bend space, and pairs for it. */
static void start(flow_case *c, int D, int C, int T, int H, int L) {
    *c = (flow_case){ .D = D, .C = C, .T = T, .H = H, .L = L };
    assert_int_equal(kh_flow_new(&c->f, D, C, &(kh_flow_opts){ T, H, L }, 3, NULL), 0);
    assert_int_equal(kh_flow_work_new(&c->w, c->f, ROWS, CONTEXTS, NULL), 0);
    assert_int_equal(kh_flow_dim(c->f), D);
    kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 0, 0);
    double *w = kh_flow_weights(c->f);
    for (size_t i = 0; i < kh_flow_size(c->f); i++)
        w[i] = 0.5 * kh_rng_normal(&r);
    kh_flow_mask(c->f, w);
    double m[40], s[40];
    for (int i = 0; i < 40; i++) {
        m[i] = kh_rng_normal(&r);
        s[i] = 0.5 + kh_rng_uniform(&r);
    }
    kh_flow_standardise(c->f, m, s, m, s);
    for (int i = 0; i < ROWS * D; i++)
        c->z[i] = kh_rng_normal(&r);
    for (int i = 0; i < CONTEXTS * C; i++)
        c->x[i] = (float)kh_rng_normal(&r);
    for (int i = 0; i < ROWS; i++) {
        c->of[i] = i % CONTEXTS;
        c->g[i] = kh_rng_normal(&r);
    }
}

static void finish(flow_case *c) {
    kh_flow_work_free(c->w);
    kh_flow_free(c->f);
}

/* sum_i g_i logq_i under the weights as they are. */
static double weighted(flow_case *c) {
    double sum = 0;
    kh_flow_context(c->f, c->w, c->x, CONTEXTS);
    kh_flow_density(c->f, c->w, c->z, c->of, ROWS, c->logq);
    for (int i = 0; i < ROWS; i++)
        sum += c->g[i] * c->logq[i];
    return sum;
}

/* --------------------------------------------------------------------------------- the density */

static void the_density_integrates_to_one(void **state) {
    (void)state;
    enum { N = 300 };
    static double z[2 * N], logq[N];
    static int of[N];
    flow_case c;
    kh_flow_work *w;
    start(&c, 2, 3, 4, 9, 2);
    for (size_t i = 0; i < kh_flow_size(c.f); i++)
        kh_flow_weights(c.f)[i] *=
            0.45; /* all but a thousandth of its mass shall lie on the grid */
    assert_int_equal(kh_flow_work_new(&w, c.f, N, CONTEXTS, NULL), 0);
    kh_flow_context(c.f, w, c.x, CONTEXTS);
    for (int x = 0; x < CONTEXTS; x++) {
        const double from = -20, step = 40.0 / N;
        double sum = 0;
        for (int i = 0; i < N; i++) {
            for (int j = 0; j < N; j++) {
                z[2 * j] = from + (i + 0.5) * step;
                z[2 * j + 1] = from + (j + 0.5) * step;
                of[j] = x;
            }
            kh_flow_density(c.f, w, z, of, N, logq);
            for (int j = 0; j < N; j++)
                sum += exp(logq[j]) * step * step;
        }
        if (fabs(sum - 1) > 1e-3)
            fail_msg("the integral given x number %d is %.6f", x, sum);
    }
    kh_flow_work_free(w);
    finish(&c);
}

static void a_new_flow_is_nearly_standard_normal(void **state) {
    (void)state;
    kh_flow *f;
    kh_flow_work *w;
    double logq[1], z[20] = { 0.5, -1 }, normal = 0;
    float x[4] = { 0.3f, -0.2f, 0.1f, 0.4f };
    assert_int_equal(kh_flow_new(&f, 20, 4, &(kh_flow_opts){ 10, 60, 2 }, 1, NULL), 0);
    assert_int_equal(kh_flow_work_new(&w, f, 1, 1, NULL), 0);
    kh_flow_context(f, w, x, 1);
    kh_flow_density(f, w, z, (int[]){ 0 }, 1, logq);
    for (int i = 0; i < 20; i++)
        normal -= z[i] * z[i] / 2 + log(2 * 3.14159265358979323846) / 2;
    assert_true(fabs(logq[0] - normal) < 2);
    kh_flow_work_free(w);
    kh_flow_free(f);
}

/* A flow of standardised z is the flow of z itself, scaled. */
static void standardising_keeps_it_a_density(void **state) {
    (void)state;
    flow_case c;
    start(&c, 3, 2, 2, 5, 1);
    const double zero[40] = { 0 }, one[3] = { 1, 1, 1 }, mean[3] = { 1, -2, 3 },
                 sd[3] = { 2, 3, 0.5 };
    double y[ROWS * 3], plain[ROWS];
    for (int i = 0; i < ROWS * 3; i++)
        y[i] = (c.z[i] - mean[i % 3]) / sd[i % 3];
    kh_flow_standardise(c.f, zero, one, zero, one);
    kh_flow_context(c.f, c.w, c.x, CONTEXTS);
    kh_flow_density(c.f, c.w, y, c.of, ROWS, plain);
    kh_flow_standardise(c.f, mean, sd, zero, one);
    kh_flow_density(c.f, c.w, c.z, c.of, ROWS, c.logq);
    for (int i = 0; i < ROWS; i++)
        assert_true(fabs(c.logq[i] - (plain[i] - log(2 * 3 * 0.5))) < 1e-12);
    finish(&c);
}

/* ----------------------------------------------------------------------------------- gradients */

static void check_gradients(int D, int C, int T, int H, int L) {
    flow_case c;
    start(&c, D, C, T, H, L);
    size_t n = kh_flow_size(c.f);
    double *grad = calloc(n, sizeof *grad), *w = kh_flow_weights(c.f), worst = 0, largest = 0;
    double *mask = malloc(n * sizeof *mask);
    for (size_t i = 0; i < n; i++)
        mask[i] = 1;
    kh_flow_mask(c.f, mask);
    weighted(&c);
    kh_flow_backward(c.f, c.w, c.g, grad);
    kh_flow_context_backward(c.f, c.w, grad);
    kh_flow_mask(c.f, grad);
    for (size_t i = 0; i < n; i++)
        largest = fabs(grad[i]) > largest ? fabs(grad[i]) : largest;
    for (size_t i = 0; i < n; i++) {
        double keep = w[i], h = 1e-4, d[4];
        if (mask[i] == 0) {
            assert_true(grad[i] == 0 && w[i] == 0);
            continue;
        }
        for (int k = 0; k < 4; k++) { /* a central difference of fourth order */
            w[i] = keep + h * (k < 2 ? k - 2 : k - 1);
            d[k] = weighted(&c);
        }
        w[i] = keep;
        double slope = (d[0] - 8 * d[1] + 8 * d[2] - d[3]) / (12 * h);
        double off = fabs(slope - grad[i]) /
            (largest * 1e-3 > fabs(grad[i]) ? largest * 1e-3 : fabs(grad[i]));
        worst = off > worst ? off : worst;
    }
    if (worst > 1e-6)
        fail_msg("D %d C %d T %d H %d L %d: a gradient is off by %g", D, C, T, H, L, worst);
    free(mask);
    free(grad);
    finish(&c);
}

static void gradients_are_those_of_differences(void **state) {
    (void)state;
    check_gradients(4, 3, 3, 7, 2);
    check_gradients(6, 2, 2, 3, 1); /* fewer units than coordinates */
    check_gradients(1, 1, 2, 2, 3);
    check_gradients(3, 5, 1, 1, 2);
}

/* Backward calls add up, and those of the context are spent when they are handed over. */
static void gradients_add_up(void **state) {
    (void)state;
    flow_case c;
    start(&c, 4, 3, 2, 6, 2);
    size_t n = kh_flow_size(c.f);
    double *whole = calloc(n, sizeof *whole), *parts = calloc(n, sizeof *parts);
    weighted(&c);
    kh_flow_backward(c.f, c.w, c.g, whole);
    kh_flow_context_backward(c.f, c.w, whole);
    kh_flow_context(c.f, c.w, c.x, CONTEXTS);
    for (int i = 0; i < ROWS; i += 4) {
        kh_flow_density(c.f, c.w, c.z + i * 4, c.of + i, 4, c.logq);
        kh_flow_backward(c.f, c.w, c.g + i, parts);
    }
    kh_flow_context_backward(c.f, c.w, parts);
    kh_flow_context_backward(c.f, c.w, parts);
    for (size_t i = 0; i < n; i++)
        assert_true(fabs(whole[i] - parts[i]) <= 1e-11 * (1 + fabs(whole[i])));
    free(whole);
    free(parts);
    finish(&c);
}

/* --------------------------------------------------------------------------------------- masks */

/* In a flow of one transform, u_i changes with y_j only for j <= i; and somewhere below it does,
 * and with x everywhere. */
static void check_order(int D, int H, int L) {
    flow_case c;
    double base[40];
    start(&c, D, 2, 1, H, L);
    const int *perm = kh_flow_order(c.f, 0);
    kh_flow_context(c.f, c.w, c.x, CONTEXTS);
    kh_flow_density(c.f, c.w, c.z, c.of, 1, c.logq);
    memcpy(base, kh_flow_latent(c.w), (size_t)D * sizeof *base);
    int changed = 0;
    for (int j = 0; j < D; j++) {
        double keep = c.z[perm[j]];
        c.z[perm[j]] += 0.7;
        kh_flow_density(c.f, c.w, c.z, c.of, 1, c.logq);
        c.z[perm[j]] = keep;
        for (int i = 0; i < D; i++) {
            bool same = kh_flow_latent(c.w)[i] == base[i];
            if (i < j && !same)
                fail_msg("D %d H %d: u %d changes with y %d", D, H, i, j);
            assert_true(i != j || !same);
            changed += i > j && !same;
        }
    }
    /* Unit k sees y_j for j < degree, and output i sees unit k for i >= degree: so i depends on j
     * if a degree lies between. */
    int expected = 0;
    for (int i = 0; i < D; i++)
        for (int j = 0; j < i; j++) {
            bool between = false;
            for (int k = 0; k < H; k++)
                between |= k * D / H > j && k * D / H <= i;
            expected += between;
        }
    assert_int_equal(changed, expected);
    kh_flow_density(c.f, c.w, c.z, (int[]){ 1 }, 1, c.logq);
    for (int i = 0; i < D; i++)
        assert_true(kh_flow_latent(c.w)[i] != base[i]);
    finish(&c);
}

static void coordinates_see_only_those_before_them(void **state) {
    (void)state;
    check_order(6, 12, 2);
    check_order(6, 6, 1);
    check_order(9, 4, 3);
    check_order(2, 1, 2);
    check_order(1, 3, 2);
}

static void orders_are_permutations_that_differ(void **state) {
    (void)state;
    kh_flow *f;
    assert_int_equal(kh_flow_new(&f, 30, 1, &(kh_flow_opts){ 4, 3, 1 }, 2, NULL), 0);
    for (int t = 0; t < 4; t++) {
        bool seen[30] = { false };
        for (int i = 0; i < 30; i++)
            seen[kh_flow_order(f, t)[i]] = true;
        for (int i = 0; i < 30; i++)
            assert_true(seen[i]);
        for (int s = 0; s < t; s++)
            assert_memory_not_equal(kh_flow_order(f, t), kh_flow_order(f, s), 30 * sizeof(int));
    }
    kh_flow_free(f);
}

/* --------------------------------------------------------------------------------------- draws */

static void check_inverse(int D, int H, int L) {
    flow_case c;
    double z[40];
    start(&c, D, 3, 4, H, L);
    kh_flow_context(c.f, c.w, c.x, CONTEXTS);
    kh_flow_density(c.f, c.w, c.z, c.of, ROWS, c.logq);
    for (int i = 0; i < ROWS; i++) {
        kh_flow_inverse(c.f, c.w, c.of[i], kh_flow_latent(c.w) + (size_t)i * (size_t)D, z);
        for (int j = 0; j < D; j++)
            if (fabs(z[j] - c.z[i * D + j]) > 1e-8)
                fail_msg("D %d H %d L %d: row %d, coordinate %d comes back as %g, was %g", D, H, L,
                    i, j, z[j], c.z[i * D + j]);
    }
    finish(&c);
}

static void drawing_undoes_the_density_s_map(void **state) {
    (void)state;
    check_inverse(2, 10, 2);
    check_inverse(12, 5, 2);
    check_inverse(7, 7, 1);
    check_inverse(1, 2, 3);
}

/* --------------------------------------------------------------------- against another program */

static void same(const char *what, const double *got, const json_t *list, int n, double tolerance) {
    assert_int_equal(json_array_size(list), n);
    for (int i = 0; i < n; i++) {
        double want = json_number_value(json_array_get(list, (size_t)i));
        if (!(fabs(got[i] - want) <= tolerance * (1 + fabs(want))))
            fail_msg("%s %d is %.17g, PyTorch has %.17g", what, i, got[i], want);
    }
}

static void check_vector(const json_t *row) {
    int D = (int)number_of(row, "D"), C = (int)number_of(row, "C"), T = (int)number_of(row, "T"), n,
        m, k;
    kh_flow_opts o = { T, (int)number_of(row, "H"), (int)number_of(row, "L") };
    kh_flow *f;
    kh_flow_work *w;
    assert_int_equal(kh_flow_new(&f, D, C, &o, 7, NULL), 0);
    double *weights = doubles_of(row, "weights", &k, NULL), *z = doubles_of(row, "z", &n, NULL);
    double *x = doubles_of(row, "x", &m, NULL);
    double *stat[4], *g = doubles_of(row, "g", &n, NULL), *grad = calloc((size_t)k, sizeof *grad),
                     logq[16];
    static const char *const STATS[] = { "z_mean", "z_sd", "x_mean", "x_sd" };
    int *of = ints_of(row, "of", &n);
    float *x_float = malloc((size_t)m * sizeof *x_float);
    for (int i = 0; i < m; i++)
        x_float[i] = (float)x[i];
    for (int i = 0; i < 4; i++)
        stat[i] = doubles_of(row, STATS[i], &m, NULL);
    m = (int)number_of(row, "m");
    for (int t = 0; t < T; t++)
        for (int i = 0; i < D; i++)
            assert_int_equal(kh_flow_order(f, t)[i],
                json_integer_value(json_array_get(
                    json_array_get(json_object_get(row, "orders"), (size_t)t), (size_t)i)));
    assert_int_equal(kh_flow_size(f), k);
    memcpy(kh_flow_weights(f), weights, (size_t)k * sizeof *weights);
    kh_flow_standardise(f, stat[0], stat[1], stat[2], stat[3]);
    assert_int_equal(kh_flow_work_new(&w, f, n, m, NULL), 0);
    kh_flow_context(f, w, x_float, m);
    kh_flow_density(f, w, z, of, n, logq);
    kh_flow_backward(f, w, g, grad);
    kh_flow_context_backward(f, w, grad);
    kh_flow_mask(f, grad);
    same("log-density", logq, json_object_get(row, "logq"), n, 1e-12);
    same("gradient", grad, json_object_get(row, "grad"), k, 1e-10);
    kh_flow_mask(f, kh_flow_weights(f)); /* the masks of the two are the same: nothing changes */
    assert_memory_equal(kh_flow_weights(f), weights, (size_t)k * sizeof *weights);
    kh_flow_work_free(w);
    kh_flow_free(f);
    for (int i = 0; i < 4; i++)
        free(stat[i]);
    free(weights);
    free(z);
    free(x);
    free(x_float);
    free(g);
    free(grad);
    free(of);
}

static void pytorch_gives_the_same(void **state) {
    (void)state;
    assert_int_equal(each_line("../flow/maf.jsonl", check_vector), 3);
}

/* ------------------------------------------------------------------------------- out of memory */

static int make_one(kh_err *err) {
    kh_flow *f;
    kh_flow_work *w = NULL;
    int rc = kh_flow_new(&f, 4, 3, &(kh_flow_opts){ 2, 5, 2 }, 1, err);
    if (rc == 0)
        rc = kh_flow_work_new(&w, f, 6, 2, err);
    kh_flow_work_free(w);
    kh_flow_free(f);
    return rc;
}

static void every_failed_allocation_is_survived(void **state) {
    (void)state;
    for (int forever = 0; forever < 2; forever++) {
        int rc = -1, n = 1;
        for (; rc != 0; n++) {
            kh_err err = { 0 };
            kh_alloc_fail_at(n, forever);
            rc = make_one(&err);
            kh_alloc_fail_at(0, false);
            assert_true(rc == 0 || rc == KH_ENOMEM);
            assert_true(n < 100);
        }
        assert_true(n > 8);
    }
}

static void too_large_a_flow_is_refused(void **state) {
    (void)state;
    kh_flow *f;
    kh_err err;
    assert_int_equal(
        kh_flow_new(&f, 1 << 20, 1 << 30, &(kh_flow_opts){ 1000, 10000, 2 }, 1, &err), KH_ELIMIT);
    assert_says(&err,
        "a flow of 1000 transforms of 10000 units for 1048576 numbers given 1073741824 has too "
        "many weights");
    assert_null(f);
}

/* ---------------------------------------------------------------------------------------- BLAS */

extern int openblas_get_num_threads(void);
extern void openblas_set_num_threads(int);

static void blas_is_held_until_the_last_release(void **state) {
    (void)state;
    int before = openblas_get_num_threads();
    openblas_set_num_threads(2);
    kh_blas_hold();
    kh_blas_hold();
    assert_int_equal(openblas_get_num_threads(), 1);
    kh_blas_release();
    assert_int_equal(openblas_get_num_threads(), 1);
    kh_blas_release();
    assert_int_equal(openblas_get_num_threads(), 2);
    openblas_set_num_threads(before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_density_integrates_to_one),
        cmocka_unit_test(a_new_flow_is_nearly_standard_normal),
        cmocka_unit_test(standardising_keeps_it_a_density),
        cmocka_unit_test(gradients_are_those_of_differences),
        cmocka_unit_test(gradients_add_up),
        cmocka_unit_test(coordinates_see_only_those_before_them),
        cmocka_unit_test(orders_are_permutations_that_differ),
        cmocka_unit_test(drawing_undoes_the_density_s_map),
        cmocka_unit_test(pytorch_gives_the_same),
        cmocka_unit_test(every_failed_allocation_is_survived),
        cmocka_unit_test(too_large_a_flow_is_refused),
        cmocka_unit_test(blas_is_held_until_the_last_release),
    };
    return cmocka_run_group_tests_name("tune flow", tests, NULL, NULL);
}
