/* test_judge_leave_one_out.c - leave-one-out sets against their definition, written out; the choice
 * of a map; what is refused; every allocation fails in turn. */
#include "test.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "judge/leave_one_out.h"

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
        cmocka_unit_test(a_bias_wants_biases),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("leave one out", tests, NULL, NULL);
}
