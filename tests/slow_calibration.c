/* slow_calibration.c - calibration of a service on 32 labelled rows, by simulation. A stand-in
 * service knows the true logits of three classes and answers with softmax(3 z + bias):
 * over-confident and biased. How far its calibration error falls by temperature and by the affine
 * map; how often leave-one-out sets hold the true class, and how large they are beside split
 * conformal's. The figures are in doc/judging.md. */
#include "test.h"

#include "base/rng.h"
#include "judge/leave_one_out.h"

#include <math.h>
#include <string.h>

enum { K = 3, FEW = 32, MANY = 4000, SEEDS = 20, SETS = 200, FRESH = 500 };

static double bias = 8; /* of the first class; the last has as much against it */
static const double SHARP = 3;

static void softmax(const double *z, double *p) {
    double sum = 0;
    for (int k = 0; k < K; k++)
        sum += p[k] = exp(z[k]);
    for (int k = 0; k < K; k++)
        p[k] /= sum;
}

/* n rows: what the service says, as log-probabilities, and the true class. */
static void draw(uint64_t seed, int stream, int n, double *x, int *label) {
    kh_rng r = kh_rng_stream(seed, KH_RNG_TEST, (uint32_t)stream, 0);
    for (int i = 0; i < n; i++, x += K) {
        double z[K], p[K];
        for (int k = 0; k < K; k++)
            z[k] = 1.5 * kh_rng_normal(&r);
        softmax(z, p);
        double u = kh_rng_uniform(&r);
        label[i] = u < p[0] ? 0 : u < p[0] + p[1] ? 1 : 2;
        for (int k = 0; k < K; k++)
            z[k] = SHARP * z[k] + bias * (1 - k);
        softmax(z, p);
        for (int k = 0; k < K; k++)
            x[k] = log(fmax(p[k], 1e-12));
    }
}

static kh_metrics metrics_by(const kh_calibrator *c, const double *x, const int *label, int n) {
    static double p[MANY * K];
    kh_metrics m;
    kh_calibrator same = { .method = KH_CALIBRATE_TEMPERATURE, .n_label = K, .temperature = 1 };
    kh_calibrator_apply(c ? c : &same, x, n, p);
    assert_int_equal(kh_metrics_compute(&m, &(kh_answers){ p, label, n, K }, KH_BINS, NULL), 0);
    return m;
}

/* Means over the seeds: nothing done, temperature, vector, affine. */
static void try_bias(double ece[4], double nll[4], double accuracy[4]) {
    static double few[FEW * K], many[MANY * K];
    static int few_label[FEW], many_label[MANY];
    static const kh_calibration MAPS[] = { KH_CALIBRATE_TEMPERATURE, KH_CALIBRATE_VECTOR,
        KH_CALIBRATE_AFFINE };
    int chosen = 0;
    for (int m = 0; m < 4; m++)
        ece[m] = nll[m] = accuracy[m] = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        kh_calibration best;
        bool none;
        draw(seed, 1, FEW, few, few_label);
        draw(seed, 2, MANY, many, many_label);
        for (int m = 0; m < 4; m++) {
            kh_calibrator c = { 0 };
            if (m > 0)
                assert_int_equal(
                    kh_calibrator_fit(&c, MAPS[m - 1], few, few_label, FEW, K, NULL), 0);
            kh_metrics got = metrics_by(m > 0 ? &c : NULL, many, many_label, MANY);
            ece[m] += got.ece / SEEDS;
            nll[m] += got.nll / SEEDS;
            accuracy[m] += got.accuracy / SEEDS;
            kh_calibrator_free(&c);
        }
        assert_int_equal(kh_calibration_choose(&best, &none, few, few_label, FEW, K, NULL), 0);
        chosen += !none && best != KH_CALIBRATE_TEMPERATURE;
    }
    printf("# bias %g, %d seeds, %d rows: before, temperature, vector, affine: ECE %.3f %.3f %.3f "
           "%.3f; NLL %.3f %.3f %.3f %.3f; accuracy %.3f %.3f %.3f %.3f; biases chosen in %d\n",
        bias, SEEDS, FEW, ece[0], ece[1], ece[2], ece[3], nll[0], nll[1], nll[2], nll[3],
        accuracy[0], accuracy[1], accuracy[2], accuracy[3], chosen);
}

static void a_bias_is_not_a_temperature(void **state) {
    (void)state;
    double ece[4], nll[4], accuracy[4];
    for (bias = 2; bias < 9; bias += 2)
        try_bias(ece, nll, accuracy);
    bias = 8;
    assert_true(ece[3] <= 0.5 * ece[1] && nll[3] < nll[1] && accuracy[3] > accuracy[1]);
}

static void leave_one_out_sets_keep_their_promise(void **state) {
    (void)state;
    static double few[FEW * K], fresh[FRESH * K], p[FRESH * K];
    static int few_label[FEW], fresh_label[FRESH];
    const double alpha = 0.1;
    double covered[3] = { 0 }, size[3] = { 0 };
    for (uint64_t seed = 0; seed < SETS; seed++) {
        kh_loo l;
        kh_calibrator c;
        kh_conformal half, own;
        double q[FEW * K];
        bool in[K];
        draw(seed, 3, FEW, few, few_label);
        draw(seed, 4, FRESH, fresh, fresh_label);
        assert_int_equal(
            kh_loo_fit(&l, KH_CALIBRATE_AFFINE, few, few_label, FEW, K, alpha, NULL), 0);
        for (int i = 0; i < FRESH; i++) {
            size[0] += kh_loo_set(&l, fresh + (size_t)i * K, in);
            covered[0] += in[fresh_label[i]];
        }
        kh_loo_free(&l);
        /* split: half of the rows for the map, half for the threshold; and the same rows for both
         */
        for (int way = 1; way < 3; way++) {
            int n = way == 1 ? FEW / 2 : FEW, first = way == 1 ? FEW / 2 : 0;
            kh_conformal *f = way == 1 ? &half : &own;
            assert_int_equal(
                kh_calibrator_fit(&c, KH_CALIBRATE_AFFINE, few, few_label, n, K, NULL), 0);
            kh_calibrator_apply(&c, few + (size_t)first * K, FEW - first, q);
            assert_int_equal(
                kh_conformal_fit(
                    f, &(kh_answers){ q, few_label + first, FEW - first, K }, alpha, false, NULL),
                0);
            kh_calibrator_apply(&c, fresh, FRESH, p);
            for (int i = 0; i < FRESH; i++) {
                size[way] += kh_conformal_set(f, p + (size_t)i * K, 1, in);
                covered[way] += in[fresh_label[i]];
            }
            kh_conformal_free(f);
            kh_calibrator_free(&c);
        }
    }
    double n = (double)SETS * FRESH;
    printf(
        "# alpha %.1f, %d data sets of %d rows: leave-one-out covers %.4f, size %.4f; split covers "
        "%.4f, size %.4f; the same rows for map and threshold cover %.4f, size %.4f\n",
        alpha, SETS, FEW, covered[0] / n, size[0] / n, covered[1] / n, size[1] / n, covered[2] / n,
        size[2] / n);
    assert_true(covered[0] / n >= 1 - 2 * alpha);
    assert_true(covered[0] / n >= 1 - alpha - 0.01); /* what is observed, not promised */
    assert_true(size[0] < size[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bias_is_not_a_temperature),
        cmocka_unit_test(leave_one_out_sets_keep_their_promise),
    };
    return cmocka_run_group_tests_name("calibration on few rows", tests, NULL, NULL);
}
