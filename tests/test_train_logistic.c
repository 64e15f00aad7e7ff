/* test_train_logistic.c - logistic regression against Newton's method in plain Python, and the
 * method that puts it on hidden states. */
#include "tiny_tune.h"

#include "base/alloc.h"
#include "posterior/features.h"
#include "posterior/posterior.h"
#include "train/logistic.h"
#include "tune/tuning.h"

#include <math.h>

enum { TRAIN = 24, DEV = 12 };

static int open_all(void **state) {
    return tune_setup(state, "logistic", KH_ACCESS_WEIGHTS, TRAIN, DEV, 2);
}

static void newton_finds_the_same(void **state) {
    (void)state;
    FILE *f = fopen("tests/vectors/logistic.txt", "r");
    assert_non_null(f);
    char line[256];
    int cases = 0;
    while (fgets(line, sizeof line, f)) {
        int n, dim, labels, label[64];
        double ridge, x[256], w[64] = { 0 }, want, mean = 0;
        if (sscanf(line, "case %d %d %d %lf", &n, &dim, &labels, &ridge) != 4)
            continue;
        for (int i = 0; i < n; i++) {
            assert_int_equal(fscanf(f, "%d", &label[i]), 1);
            for (int j = 0; j < dim; j++)
                assert_int_equal(fscanf(f, "%lf", &x[i * dim + j]), 1);
        }
        kh_logistic_rows r = { x, label, n, dim, labels };
        assert_int_equal(kh_logistic_fit(&r, ridge, w, NULL), 0);
        for (int k = 0; k < labels; k++)
            mean += w[k * (dim + 1) + dim] / labels;
        for (int k = 0; k < labels; k++)
            for (int j = 0; j <= dim; j++) {
                assert_int_equal(fscanf(f, "%lf", &want), 1);
                double got = w[k * (dim + 1) + j] - (j == dim ? mean : 0);
                if (fabs(got - want) > 1e-4)
                    fail_msg("case %d: %g is not %g", cases, got, want);
            }
        cases++;
    }
    fclose(f);
    assert_int_equal(cases, 4);
}

/* Rows with label -1 take no part, wherever the search for the least begins. */
static void left_out_rows_do_not_count(void **state) {
    (void)state;
    double x[] = { 0.2, -1, 5, 0.7, 1.1, -9, -0.4, 0.1 }, some[] = { 0.2, -1, 0.7, 1.1, -0.4, 0.1 };
    int all[] = { 0, 1, -1, 1, 0, -1, 0, 1 }, part[] = { 0, 1, 1, 0, 0, 1 };
    double a[4] = { 3, -2, 1, 4 }, b[4] = { 0 };
    assert_int_equal(kh_logistic_fit(&(kh_logistic_rows){ x, all, 8, 1, 2 }, 0.1, a, NULL), 0);
    assert_int_equal(kh_logistic_fit(&(kh_logistic_rows){ some, part, 6, 1, 2 }, 0.1, b, NULL), 0);
    double pa[2], pb[2], at = 0.3;
    kh_logistic_answer(a, &at, 1, 1, 2, pa);
    kh_logistic_answer(b, &at, 1, 1, 2, pb);
    assert_true(fabs(pa[0] - pb[0]) < 1e-5 && fabs(exp(pa[0]) + exp(pa[1]) - 1) < 1e-12);
}

/* One feature, +1 or -1 with its label: by symmetry the two weights are w and -w, and the slope is
 * zero where ridge w = sigmoid(-2 w). */
static void one_feature_in_closed_form(void **state) {
    (void)state;
    double x[] = { 1, -1 }, w[4] = { 0 };
    int label[] = { 0, 1 };
    assert_int_equal(kh_logistic_fit(&(kh_logistic_rows){ x, label, 2, 1, 2 }, 0.05, w, NULL), 0);
    assert_true(fabs(w[0] + w[2]) < 1e-6 && fabs(w[1]) < 1e-6 && fabs(w[3]) < 1e-6);
    assert_true(fabs(0.05 * w[0] - 1 / (1 + exp(2 * w[0]))) < 1e-6);
}

/* ------------------------------------------------------------------------------------ the method
 */

static kh_posterior *fitted(const char *const *set) {
    kh_tune_opts o = tune_options();
    o.uncalibrated = false;
    return tune_with("feature-logistic", set, &o);
}

static void every_row_is_read_once_and_held(void **state) {
    (void)state;
    kh_posterior *p = fitted(NULL);
    assert_int_equal(p->train_queries, TRAIN);
    assert_int_equal(p->dev_queries, DEV);
    assert_int_equal(p->adapter.kind, KH_ADAPTER_LINEAR);
    assert_int_equal(p->score_rows, TRAIN + DEV);
    assert_true(p->calibrated && isfinite(p->score) && p->dev >= 0 && p->dev <= 1);
    kh_posterior_free(p);
}

/* What a predictor answers is what the fit to all rows says of the states, in the posterior's own
 * numbers and after a way through files. */
static void a_predictor_answers_as_the_fit(void **state) {
    (void)state;
    kh_tune_opts o = tune_options(); /* uncalibrated */
    kh_posterior *p = tune_with("feature-logistic", SET("ridge=0.1", "states=first"), &o), *again;
    kh_words *words;
    kh_features f;
    kh_predictor *predictor;
    double a[2 * DEV], b[2 * DEV];
    assert_int_equal(kh_words_new(&words, task, kh_plm_tokenizer(plm), false, NULL), 0);
    kh_batch_opts how = { .max_len = kh_plm_describe(plm).max_len };
    assert_int_equal(kh_features_read(&f, plm, task, words, &how, KH_POOL_FIRST,
                         kh_dataset_rows(dev), DEV, NULL),
        0);
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    assert_int_equal(kh_posterior_open(&again, run_dir, NULL), 0);
    kh_posterior *both[] = { p, again };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kh_predictor_new(&predictor, both[i], plm, NULL, NULL), 0);
        assert_int_equal(
            kh_predictor_run(predictor, kh_dataset_rows(dev), DEV, i ? b : a, NULL), 0);
        kh_predictor_free(predictor);
    }
    assert_memory_equal(a, b, sizeof a);
    int dim = p->adapter.hidden;
    for (int i = 0; i < DEV; i++) {
        double logit[2];
        for (int k = 0; k < 2; k++) {
            logit[k] = (double)p->adapter.x[2 * dim + k];
            for (int j = 0; j < dim; j++)
                logit[k] += (double)p->adapter.x[k * dim + j] * (double)f.row[i].state[j];
        }
        assert_true(fabs(a[2 * i + 1] - 1 / (1 + exp(logit[0] - logit[1]))) < 1e-5);
    }
    kh_features_free(&f);
    kh_words_free(words);
    kh_posterior_free(p);
    kh_posterior_free(again);
}

static void the_same_bits_on_any_threads(void **state) {
    (void)state;
    kh_posterior *p[2];
    for (int i = 0; i < 2; i++) {
        kh_threads_set(i == 0 ? 1 : 3);
        p[i] = fitted(NULL);
    }
    kh_threads_set(0);
    assert_memory_equal(p[0]->adapter.x, p[1]->adapter.x,
        kh_adapter_size(&p[0]->adapter) * sizeof *p[0]->adapter.x);
    assert_true(p[0]->score == p[1]->score);
    kh_posterior_free(p[0]);
    kh_posterior_free(p[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(newton_finds_the_same),
        cmocka_unit_test(left_out_rows_do_not_count),
        cmocka_unit_test(one_feature_in_closed_form),
        cmocka_unit_test(every_row_is_read_once_and_held),
        cmocka_unit_test(a_predictor_answers_as_the_fit),
        cmocka_unit_test(the_same_bits_on_any_threads),
    };
    return cmocka_run_group_tests_name("logistic", tests, open_all, tune_teardown);
}
