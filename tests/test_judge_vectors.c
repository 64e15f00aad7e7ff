/* test_judge_vectors.c - metrics, curves, bounds, sets and calibrators against scikit-learn, scipy
 * and plain numpy. */
#include "judge_vectors.h"

static void check_answers(const json_t *row) {
    int n, k, m;
    double *p = doubles_of(row, "probs", &n, &k);
    int *label = ints_of(row, "labels", &m);
    kh_err err;
    kh_metrics got;
    assert_int_equal(n, m);
    assert_int_equal(kh_metrics_compute(
                         &got, &(kh_answers){ p, label, n, k }, (int)number_of(row, "bins"), &err),
        0);
    const json_t *expected = json_object_get(row, "expected");
    int i = 0;
    for (; kh_metrics_name(i); i++) {
        char what[256];
        snprintf(what, sizeof what, "%s of \"%s\"", kh_metrics_name(i),
            json_string_value(json_object_get(row, "name")));
        assert_near(
            what, kh_metrics_value(&got, i), number_of(expected, kh_metrics_name(i)), 1e-11);
    }
    assert_int_equal(json_object_size(expected), i);
    free(p);
    free(label);
}

static void metrics_agree_with_scikit_learn(void **state) {
    (void)state;
    assert_int_equal(each_line("answers.jsonl", check_answers), 29);
}

static void check_ood(const json_t *row) {
    int n_in, n_out;
    double *in = doubles_of(row, "in", &n_in, NULL), *out = doubles_of(row, "out", &n_out, NULL);
    kh_err err;
    kh_ood got;
    assert_int_equal(kh_ood_compute(&got, in, n_in, out, n_out, &err), 0);
    for (int i = 0; kh_ood_name(i); i++)
        assert_near(kh_ood_name(i), kh_ood_value(&got, i),
            number_of(json_object_get(row, "expected"), kh_ood_name(i)), 1e-11);
    free(in);
    free(out);
}

static void ood_metrics_agree_with_scikit_learn(void **state) {
    (void)state;
    assert_int_equal(each_line("ood.jsonl", check_ood), 9);
}

static void check_binomial(const json_t *row) {
    int k = (int)number_of(row, "k"), n = (int)number_of(row, "n");
    if (json_object_get(row, "cdf")) {
        double want = number_of(row, "cdf"), got = kh_binomial_cdf(k, n, number_of(row, "p"));
        assert_near("a binomial sum", got, want, 1e-10 * want + 1e-15);
    } else
        assert_near("a Clopper-Pearson bound", kh_binomial_upper(k, n, number_of(row, "delta")),
            number_of(row, "upper"), 1e-10);
}

static void binomials_agree_with_scipy(void **state) {
    (void)state;
    assert_int_equal(each_line("binomial.jsonl", check_binomial), 18 * 8);
}

static void check_selector(const json_t *row) {
    int n;
    double *u = doubles_of(row, "u", &n, NULL);
    bool *good = bools_of(row, "good");
    kh_selector got;
    kh_err err;
    assert_int_equal(kh_selector_fit(&got, u, good, n, number_of(row, "max_risk"),
                         number_of(row, "delta"), &err),
        0);
    assert_int_equal(got.n_needed, (int)number_of(row, "needed"));
    const json_t *best = json_object_get(row, "best");
    if (json_is_null(best)) {
        assert_int_equal(got.n_accepted, 0);
        assert_true(isinf(got.threshold) && got.threshold < 0);
    } else {
        assert_int_equal(got.n_accepted, (int)number_of(best, "accepted"));
        assert_int_equal(got.n_wrong, (int)number_of(best, "wrong"));
        double threshold = number_of(best, "threshold");
        assert_near("the threshold", got.threshold, isnan(threshold) ? INFINITY : threshold, 0);
        assert_true(got.risk_bound <= got.max_risk);
    }
    free(u);
    free(good);
}

static void selectors_agree_with_a_literal_search(void **state) {
    (void)state;
    assert_int_equal(each_line("selector.jsonl", check_selector), 42);
}

static void check_conformal(const json_t *row) {
    int n, k, m;
    double *p = doubles_of(row, "probs", &n, &k);
    int *label = ints_of(row, "labels", &m);
    kh_conformal c;
    kh_err err;
    bool in[16];
    assert_int_equal(kh_conformal_fit(&c, &(kh_answers){ p, label, n, k }, number_of(row, "alpha"),
                         json_is_true(json_object_get(row, "per_class")), &err),
        0);
    assert_near("the smallest level", c.min_alpha, number_of(row, "min_alpha"), 1e-15);
    const json_t *sets = json_object_get(row, "sets");
    for (size_t i = 0; i < json_array_size(sets); i++) {
        const json_t *set = json_array_get(sets, i);
        double *q = doubles_of(set, "p", &m, NULL);
        bool *want = bools_of(set, "in");
        int size = kh_conformal_set(&c, q, number_of(set, "u"), in), expected = 0;
        for (int j = 0; j < k; j++) {
            assert_int_equal(in[j], want[j]);
            expected += want[j];
        }
        assert_int_equal(size, expected);
        free(q);
        free(want);
    }
    kh_conformal_free(&c);
    free(p);
    free(label);
}

static void conformal_sets_agree_with_the_definition(void **state) {
    (void)state;
    assert_int_equal(each_line("conformal.jsonl", check_conformal), 12);
}

static void check_calibration(const json_t *row) {
    int n, k, m;
    double *x = doubles_of(row, "x", &n, &k), t = number_of(row, "temperature");
    int *label = ints_of(row, "labels", &m);
    const char *name = json_string_value(json_object_get(row, "name"));
    bool votes = json_is_true(json_object_get(row, "votes"));
    kh_calibrator c;
    kh_err err;
    assert_int_equal(kh_calibrator_fit(&c, votes ? KH_CALIBRATE_VOTES : KH_CALIBRATE_TEMPERATURE, x,
                         label, n, k, &err),
        0);
    assert_near(name, log(c.temperature), log(t), 1e-4);
    if (votes)
        assert_near(name, c.alpha, number_of(row, "alpha"), 1e-9);
    else {
        double *w = doubles_of(row, "weight", &m, NULL), *b = doubles_of(row, "bias", &m, NULL);
        assert_int_equal(kh_calibrator_fit(&c, KH_CALIBRATE_VECTOR, x, label, n, k, &err), 0);
        for (int j = 0; j < k; j++) {
            assert_near(name, c.weight[j], w[j], 1e-5);
            assert_near(name, c.bias[j], b[j], 1e-5);
        }
        kh_calibrator_free(&c);
        free(w);
        free(b);
    }
    free(x);
    free(label);
}

static void check_map(const json_t *row, kh_calibration method) {
    int n, k, m;
    double *x = doubles_of(row, "x", &n, &k), *w = doubles_of(row, "weight", &m, NULL),
           *b = doubles_of(row, "bias", &m, NULL);
    int *label = ints_of(row, "labels", &m);
    const char *name = json_string_value(json_object_get(row, "name"));
    kh_calibrator c;
    kh_err err;
    assert_int_equal(kh_calibrator_fit(&c, method, x, label, n, k, &err), 0);
    assert_near(name, c.strength, number_of(row, "strength"), 1e-9);
    if (method == KH_CALIBRATE_VOTES_AFFINE)
        assert_near(name, c.alpha, number_of(row, "alpha"), 1e-9);
    for (int j = 0; j < k; j++) {
        assert_near(name, c.weight[j], w[j], 1e-4);
        assert_near(name, c.bias[j], b[j], 1e-4);
    }
    kh_calibrator_free(&c);
    free(x);
    free(w);
    free(b);
    free(label);
}

static void check_affine(const json_t *row) { check_map(row, KH_CALIBRATE_AFFINE); }

static void check_votes_affine(const json_t *row) { check_map(row, KH_CALIBRATE_VOTES_AFFINE); }

static void votes_with_biases_are_those_of_scipys_folds(void **state) {
    (void)state;
    assert_int_equal(each_line("votes_affine.jsonl", check_votes_affine), 8);
}

static void the_strength_of_affine_calibration_is_that_of_scipys_folds(void **state) {
    (void)state;
    assert_int_equal(each_line("affine.jsonl", check_affine), 6);
}

static void calibrators_agree_with_scipys_optima(void **state) {
    (void)state;
    assert_int_equal(each_line("calibration.jsonl", check_calibration), 11);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(metrics_agree_with_scikit_learn),
        cmocka_unit_test(ood_metrics_agree_with_scikit_learn),
        cmocka_unit_test(binomials_agree_with_scipy),
        cmocka_unit_test(selectors_agree_with_a_literal_search),
        cmocka_unit_test(conformal_sets_agree_with_the_definition),
        cmocka_unit_test(calibrators_agree_with_scipys_optima),
        cmocka_unit_test(the_strength_of_affine_calibration_is_that_of_scipys_folds),
        cmocka_unit_test(votes_with_biases_are_those_of_scipys_folds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
