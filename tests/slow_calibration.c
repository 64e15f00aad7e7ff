/* slow_calibration.c - calibration of a service on a few labelled rows, by simulation. A stand-in
 * service knows the true logits of some classes and answers with softmax(sharp z + bias): in the
 * main case three classes, over-confident and biased. How far its calibration error falls by
 * temperature and by the affine map; how often leave-one-out sets hold the true class, and how
 * large they are beside split conformal's. The figures are in doc/judging.md. */
#include "test.h"

#include "base/rng.h"
#include "judge/leave_one_out.h"

#include <math.h>
#include <string.h>

enum { K = 3, MOST = 14, FEW = 32, FEW_MOST = 100, MANY = 4000, SEEDS = 20 };
enum { SETS = 200, FRESH = 500 };

static double bias = 8; /* of the first class; the last has as much against it, others between */
static double sharp = 3;
static int classes = K;

static void softmax(const double *z, double *p) {
    double sum = 0;
    for (int k = 0; k < classes; k++)
        sum += p[k] = exp(z[k]);
    for (int k = 0; k < classes; k++)
        p[k] /= sum;
}

/* n rows: what the service says, as log-probabilities, and the true class. */
static void draw(uint64_t seed, int stream, int n, double *x, int *label) {
    kh_rng r = kh_rng_stream(seed, KH_RNG_TEST, (uint32_t)stream, 0);
    for (int i = 0; i < n; i++, x += classes) {
        double z[MOST], p[MOST];
        for (int k = 0; k < classes; k++)
            z[k] = 1.5 * kh_rng_normal(&r);
        softmax(z, p);
        double u = kh_rng_uniform(&r);
        for (label[i] = 0; label[i] < classes - 1 && u >= p[label[i]]; label[i]++)
            u -= p[label[i]];
        for (int k = 0; k < classes; k++)
            z[k] = sharp * z[k] + bias * (1 - 2.0 * k / (classes - 1));
        softmax(z, p);
        for (int k = 0; k < classes; k++)
            x[k] = log(fmax(p[k], 1e-12));
    }
}

static kh_metrics metrics_by(const kh_calibrator *c, const double *x, const int *label, int n) {
    static double p[MANY * MOST];
    kh_metrics m;
    kh_calibrator same = {
        .method = KH_CALIBRATE_TEMPERATURE, .n_label = classes, .temperature = 1
    };
    kh_calibrator_apply(c ? c : &same, x, n, p);
    assert_int_equal(
        kh_metrics_compute(&m, &(kh_answers){ p, label, n, classes }, KH_BINS, NULL), 0);
    return m;
}

/* Sums over seeds: nothing done, temperature, vector, affine. */
typedef struct outcome {
    double ece[4], nll[4], accuracy[4];
} outcome;

static void try_service(outcome *o, int n_few, int n_many, int seeds) {
    static double few[FEW_MOST * MOST], many[MANY * MOST];
    static int few_label[FEW_MOST], many_label[MANY];
    static const kh_calibration MAPS[] = { KH_CALIBRATE_TEMPERATURE, KH_CALIBRATE_VECTOR,
        KH_CALIBRATE_AFFINE };
    for (uint64_t seed = 0; seed < (uint64_t)seeds; seed++) {
        draw(seed, 1, n_few, few, few_label);
        draw(seed, 2, n_many, many, many_label);
        for (int m = 0; m < 4; m++) {
            kh_calibrator c = { 0 };
            if (m > 0)
                assert_int_equal(
                    kh_calibrator_fit(&c, MAPS[m - 1], few, few_label, n_few, classes, NULL), 0);
            kh_metrics got = metrics_by(m > 0 ? &c : NULL, many, many_label, n_many);
            o->ece[m] += got.ece;
            o->nll[m] += got.nll;
            o->accuracy[m] += got.accuracy;
            kh_calibrator_free(&c);
        }
    }
}

static void print_outcome(const outcome *o, int n) {
    printf("before, temperature, vector, affine: ECE %.3f %.3f %.3f %.3f; NLL %.3f %.3f %.3f %.3f; "
           "accuracy %.3f %.3f %.3f %.3f\n",
        o->ece[0] / n, o->ece[1] / n, o->ece[2] / n, o->ece[3] / n, o->nll[0] / n, o->nll[1] / n,
        o->nll[2] / n, o->nll[3] / n, o->accuracy[0] / n, o->accuracy[1] / n, o->accuracy[2] / n,
        o->accuracy[3] / n);
}

static void a_bias_is_not_a_temperature(void **state) {
    (void)state;
    for (bias = 0; bias < 9; bias += 2) {
        outcome o = { 0 };
        try_service(&o, FEW, MANY, SEEDS);
        printf("# bias %g, %d seeds, %d rows: ", bias, SEEDS, FEW);
        print_outcome(&o, SEEDS);
        assert_true(o.ece[3] < 1.05 * o.ece[1]); /* where there is no bias, nothing is lost */
        if (bias > 0)
            assert_true(o.nll[3] < o.nll[1] && o.accuracy[3] > o.accuracy[1]);
        if (bias > 5)
            assert_true(o.ece[3] <= 0.5 * o.ece[1]);
    }
    bias = 8;
}

/* Services of many kinds: the default map must be the better choice on average over what may be
 * wrong. */
static void no_kind_of_service_is_spoilt(void **state) {
    (void)state;
    static const int CLASSES[] = { 2, 3, 4, 14 }, ROWS[] = { 16, 32, 100 };
    static const double SHARP[] = { 0.5, 1, 3 };
    enum { FEW_SEEDS = 5, CASES = 12 * FEW_SEEDS };
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 3; j++) {
            outcome o = { 0 };
            classes = CLASSES[i];
            if (ROWS[j] < 2 * classes) /* hardly a row of each class */
                continue;
            for (int k = 0; k < 3; k++)
                for (bias = 0; bias<9; bias = bias> 0 ? 2 * bias : 2) {
                    sharp = SHARP[k];
                    try_service(&o, ROWS[j], MANY / 2, FEW_SEEDS);
                }
            printf("# %d classes, %d rows, 12 services, %d seeds: ", classes, ROWS[j], FEW_SEEDS);
            print_outcome(&o, CASES);
            assert_true(o.nll[3] < o.nll[1] && o.nll[3] < o.nll[2]);
            if (classes <= 4) /* of 14, a temperature makes answers timid, which is calibrated */
                assert_true(o.ece[3] < o.ece[1]);
        }
    classes = K, sharp = 3, bias = 8;
}

static void leave_one_out_sets_keep_their_promise(void **state) {
    (void)state;
    classes = K, sharp = 3, bias = 8;
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
        cmocka_unit_test(no_kind_of_service_is_spoilt),
        cmocka_unit_test(leave_one_out_sets_keep_their_promise),
    };
    return cmocka_run_group_tests_name("calibration on few rows", tests, NULL, NULL);
}
