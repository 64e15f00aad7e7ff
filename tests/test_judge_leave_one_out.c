/* test_judge_leave_one_out.c - leave-one-out sets against their definition, written out; the choice
 * of a map; what is refused; every allocation fails in turn. */
#include "test.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "judge/jackknife.h"
#include "judge/leave_one_out.h"

#include <math.h>
#include <string.h>

enum { N = 17, K = 3 };

static double x[N * K];
static int label[N];

/* Scores that lean to class 0 by `bias`. */
static void draw(uint64_t seed, double bias) {
    kh_rng r = kh_rng_stream(seed, KH_RNG_TEST, 31, 0);
    for (int i = 0; i < N; i++) {
        label[i] = i % K;
        for (int k = 0; k < K; k++)
            x[i * K + k] = kh_rng_normal(&r) + (k == label[i] ? 1.5 : 0) + (k == 0 ? bias : 0);
    }
}

/* [31], by maps that are fitted here. */
static void by_definition(kh_calibration method, double alpha, const double *row, bool *in) {
    int above[K] = { 0 };
    for (int left = 0; left < N; left++) {
        double some[N * K], p[K], own[K];
        int of[N], n = 0;
        kh_calibrator c;
        for (int i = 0; i < N; i++)
            if (i != left) {
                memcpy(some + n * K, x + i * K, K * sizeof *x);
                of[n++] = label[i];
            }
        assert_int_equal(kh_calibrator_fit(&c, method, some, of, n, K, NULL), 0);
        kh_calibrator_apply(&c, x + left * K, 1, own);
        kh_calibrator_apply(&c, row, 1, p);
        for (int k = 0; k < K; k++)
            above[k] += 1 - own[label[left]] < 1 - p[k];
        kh_calibrator_free(&c);
    }
    for (int k = 0; k < K; k++)
        in[k] = above[k] < (1 - alpha) * (N + 1) - 1e-9;
}

static void sets_are_as_defined(void **state) {
    (void)state;
    static const kh_calibration MAPS[] = { KH_CALIBRATE_TEMPERATURE, KH_CALIBRATE_AFFINE };
    draw(1, 2);
    for (int m = 0; m < 2; m++)
        for (double alpha = 0.06; alpha < 0.5; alpha += 0.11) {
            kh_loo l;
            assert_int_equal(kh_loo_fit(&l, MAPS[m], x, label, N, K, alpha, NULL), 0);
            for (int i = 0; i < N; i++) {
                bool in[K], want[K];
                int size = kh_loo_set(&l, x + i * K, in);
                by_definition(MAPS[m], alpha, x + i * K, want);
                assert_memory_equal(in, want, sizeof in);
                assert_int_equal(size, in[0] + in[1] + in[2]);
            }
            kh_loo_free(&l);
        }
}

/* The sets that decisions hold are the same, made of what the map of all rows says alone. */
static void sets_of_answers_are_those_of_scores(void **state) {
    (void)state;
    static const kh_calibration MAPS[] = { KH_CALIBRATE_TEMPERATURE, KH_CALIBRATE_AFFINE };
    for (uint64_t seed = 1; seed < 5; seed++)
        for (int m = 0; m < 2; m++) {
            kh_calibrator all;
            kh_left_out left;
            kh_conformal c;
            kh_loo l;
            double held[N * K], again[N * K], p[K];
            draw(seed, 2);
            assert_int_equal(kh_calibrator_fit(&all, MAPS[m], x, label, N, K, NULL), 0);
            assert_int_equal(kh_left_out_fit(&left, &all, x, label, N, K, N, NULL, held, NULL), 0);
            assert_int_equal(kh_calibrator_crossfit(MAPS[m], x, label, N, K, N, again, NULL), 0);
            assert_memory_equal(held, again, sizeof held);
            kh_answers a = { held, label, N, K };
            assert_int_equal(kh_conformal_fit(&c, &a, 0.2, false, NULL), 0);
            assert_true(kh_conformal_promise(&c) == 0.8);
            assert_int_equal(kh_conformal_plus(&c, &left, &a, NULL), 0);
            assert_true(c.n_map == N && fabs(kh_conformal_promise(&c) - 0.6) < 1e-12);
            assert_int_equal(kh_loo_fit(&l, MAPS[m], x, label, N, K, 0.2, NULL), 0);
            kh_rng r = kh_rng_stream(seed, KH_RNG_TEST, 32, 0);
            for (int i = 0; i < 200; i++) {
                double row[K] = { 3 * kh_rng_normal(&r), kh_rng_normal(&r), kh_rng_normal(&r) };
                bool in[K], want[K];
                kh_calibrator_apply(&all, row, 1, p);
                int size = kh_loo_set(&l, row, want);
                assert_int_equal(kh_conformal_set(&c, p, 0.5, in), size);
                assert_memory_equal(in, want, sizeof in);
            }
            kh_loo_free(&l);
            kh_conformal_free(&c);
            kh_left_out_free(&left);
            kh_calibrator_free(&all);
        }
}

/* Whoever takes answers times a prior gets the sets of answers that were taken times it. */
static void a_prior_comes_after_the_map(void **state) {
    (void)state;
    static const double PRIOR[K] = { 0.5, 1, 3 };
    kh_calibrator all;
    kh_left_out left;
    double held[N * K];
    draw(6, 2);
    assert_int_equal(kh_calibrator_fit(&all, KH_CALIBRATE_AFFINE, x, label, N, K, NULL), 0);
    assert_int_equal(kh_left_out_fit(&left, &all, x, label, N, K, N, PRIOR, held, NULL), 0);
    for (int i = 0; i < N; i++) { /* a row's answer by the map without it, from that by all */
        double p[K], q[K], sum[2] = { 0 };
        kh_calibrator_apply(&all, x + i * K, 1, p);
        for (int k = 0; k < K; k++)
            sum[0] += p[k] *= PRIOR[k];
        for (int k = 0; k < K; k++) {
            int map = left.fold[i];
            sum[1] += q[k] = exp(left.slope[map] * log(p[k] / sum[0]) + left.shift[map * K + k]);
        }
        for (int k = 0; k < K; k++)
            assert_true(fabs(q[k] / sum[1] - held[i * K + k]) < 1e-12);
    }
    kh_left_out_free(&left);
    kh_calibrator_free(&all);
}

/* Votes cannot be traced back: the sets stay those without maps. Fewer maps than rows promise a
 * little less. */
static void what_maps_promise(void **state) {
    (void)state;
    kh_calibrator all;
    kh_left_out left;
    kh_conformal c;
    double votes[N * K], held[N * K];
    draw(7, 1);
    for (int i = 0; i < N * K; i++)
        votes[i] = floor(10 * exp(x[i]) / (1 + exp(x[i])));
    kh_answers a = { held, label, N, K };
    assert_int_equal(kh_calibrator_fit(&all, KH_CALIBRATE_VOTES, votes, label, N, K, NULL), 0);
    assert_int_equal(kh_left_out_fit(&left, &all, votes, label, N, K, N, NULL, held, NULL), 0);
    assert_int_equal(left.n_map, 0);
    assert_int_equal(kh_conformal_fit(&c, &a, 0.2, false, NULL), 0);
    assert_int_equal(kh_conformal_plus(&c, &left, &a, NULL), 0);
    assert_int_equal(c.n_map, 0);
    kh_conformal_free(&c);
    kh_left_out_free(&left);
    kh_calibrator_free(&all);
    assert_int_equal(kh_calibrator_fit(&all, KH_CALIBRATE_AFFINE, x, label, N, K, NULL), 0);
    assert_int_equal(kh_left_out_fit(&left, &all, x, label, N, K, 5, NULL, held, NULL), 0);
    assert_int_equal(kh_conformal_fit(&c, &a, 0.2, true, NULL), 0);
    assert_int_equal(kh_conformal_plus(&c, &left, &a, NULL), 0);
    assert_int_equal(c.n_map, 5);
    assert_true(fabs(kh_conformal_promise(&c) - (0.6 - (1 - 5.0 / N) / 6)) < 1e-12);
    kh_conformal_free(&c);
    kh_left_out_free(&left);
    kh_calibrator_free(&all);
}

static void a_bias_wants_biases(void **state) {
    (void)state;
    kh_calibration map;
    bool none;
    draw(2, 6);
    assert_int_equal(kh_calibration_choose(&map, &none, x, label, N, K, NULL), 0);
    assert_true(!none && map != KH_CALIBRATE_TEMPERATURE);
    assert_int_equal(kh_calibration_choose(&map, &none, x, label, 1, K, NULL), 0);
    assert_true(!none && map == KH_CALIBRATE_AFFINE); /* one row cannot be left out */
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    kh_loo l;
    kh_err err;
    draw(3, 0);
    assert_int_equal(kh_loo_fit(&l, KH_CALIBRATE_AFFINE, x, label, N, K, 1, &err), KH_EARG);
    assert_says(&err, "expected between 0 and 1");
    kh_loo_free(&l);
    assert_int_equal(kh_loo_fit(&l, KH_CALIBRATE_AFFINE, x, label, 1, K, 0.1, &err), KH_EARG);
    assert_says(&err, "leaving one of 1 rows out");
    kh_loo_free(&l);
    assert_int_equal(kh_loo_fit(&l, KH_CALIBRATE_AFFINE, x, label, N, 1, 0.1, &err), KH_EARG);
    assert_says(&err, "1 classes");
    kh_loo_free(&l);
    label[4] = K;
    assert_int_equal(kh_loo_fit(&l, KH_CALIBRATE_AFFINE, x, label, N, K, 0.1, &err), KH_EARG);
    assert_says(&err, "label 3, expected 0 to 2");
    kh_loo_free(&l);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    draw(4, 1);
    for (int n = 1;; n++) {
        kh_loo l;
        kh_err err = { 0 };
        kh_alloc_fail_at(n, true);
        int rc = kh_loo_fit(&l, KH_CALIBRATE_TEMPERATURE, x, label, N, K, 0.1, &err);
        bool done = kh_alloc_count() < n;
        kh_alloc_fail_at(0, false);
        kh_loo_free(&l);
        if (done) {
            assert_int_equal(rc, 0);
            return;
        }
        assert_int_equal(rc, KH_ENOMEM);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_are_as_defined),
        cmocka_unit_test(sets_of_answers_are_those_of_scores),
        cmocka_unit_test(a_prior_comes_after_the_map),
        cmocka_unit_test(what_maps_promise),
        cmocka_unit_test(a_bias_wants_biases),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("leave one out", tests, NULL, NULL);
}
