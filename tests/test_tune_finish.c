/* test_tune_finish.c - what is done to the result of a search before it is returned: calibration by
 * rows that it was not learned from, in memory and in files. */
#include "tiny_tune.h"

#include "base/alloc.h"
#include "base/file.h"
#include "posterior/eval.h"
#include "posterior/posterior.h"
#include "posterior/predict.h"
#include "tune/method.h"

#include <jansson.h>
#include <math.h>

enum { TRAIN = 8, DEV = 12 };

static int open_all(void **state) {
    return tune_setup(state, "finish", KH_ACCESS_WEIGHTS, TRAIN, DEV, 2);
}

static kh_tune_opts whole_options(void) {
    kh_tune_opts o = tune_options();
    o.uncalibrated = false;
    return o;
}

static const struct {
    const char *name;
    const char *const *set;
} METHODS[] = {
    { "manual", NULL },
    { "icl", SET("orders=2") },
    { "bbt", SET("budget-generations=4", "pop=5") },
    { "ensemble", SET("members=2", "budget-generations=3", "pop=5") },
    { "elbo", SET("budget-generations=2", "pop=5", "draws=2", "samples=4") },
    { "smc", SET("samples=12", "budget-levels=1") },
    { "feature-mlp", SET("epochs=5") },
};
enum { N_METHOD = sizeof METHODS / sizeof METHODS[0] };

static void answers_of(const kh_posterior *p, double *answer) {
    kh_predictor *predictor;
    assert_int_equal(kh_predictor_new(&predictor, p, plm, NULL, NULL), 0);
    assert_int_equal(kh_predictor_run(predictor, kh_dataset_rows(dev), DEV, answer, NULL), 0);
    kh_predictor_free(predictor);
}

static double nll_of(const double *answer) {
    double sum = 0;
    for (int i = 0; i < DEV; i++)
        sum -= log(answer[2 * i + kh_dataset_rows(dev)[i].label]);
    return sum / DEV;
}

/* What is returned is what was found, and answers through the calibrator. */
static void every_method_is_calibrated(void **state) {
    (void)state;
    for (int m = 0; m < N_METHOD; m++) {
        kh_tune_opts o = tune_options();
        kh_posterior *plain = tune_with(METHODS[m].name, METHODS[m].set, &o);
        o = whole_options();
        kh_posterior *p = tune_with(METHODS[m].name, METHODS[m].set, &o);
        double raw[2 * DEV], answer[2 * DEV];
        assert_true(p->calibrated && !plain->calibrated && isnan(plain->score));
        assert_int_equal(p->n, plain->n);
        assert_int_equal(p->calibrator.method,
            p->access == KH_ACCESS_LABELS ? KH_CALIBRATE_VOTES_AFFINE : KH_CALIBRATE_AFFINE);
        assert_true(p->score > 0 && p->score_rows >= DEV);
        answers_of(plain, raw);
        answers_of(p, answer);
        kh_calibration_input(p->access == KH_ACCESS_LABELS, p->n, raw, 2 * DEV);
        kh_calibrator_apply(&p->calibrator, raw, DEV, raw);
        for (int i = 0; i < 2 * DEV; i++)
            assert_true(fabs(answer[i] - raw[i]) < 1e-6);
        kh_posterior_free(plain);
        kh_posterior_free(p);
    }
}

/* Calibration on the very rows cannot make them less probable. */
static void calibration_never_costs_on_its_own_rows(void **state) {
    (void)state;
    for (int m = 0; m < N_METHOD; m++) {
        kh_tune_opts o = tune_options();
        kh_posterior *plain = tune_with(METHODS[m].name, METHODS[m].set, &o);
        o = whole_options();
        kh_posterior *p = tune_with(METHODS[m].name, METHODS[m].set, &o);
        double raw[2 * DEV], answer[2 * DEV];
        answers_of(plain, raw);
        answers_of(p, answer);
        if (p->access != KH_ACCESS_LABELS) /* a vote may give no chance at all */
            assert_true(nll_of(answer) <= nll_of(raw) + 1e-6);
        kh_posterior_free(plain);
        kh_posterior_free(p);
    }
}

static void paper_exact_is_not_calibrated(void **state) {
    (void)state;
    kh_tune_opts o = whole_options();
    o.paper_exact = true;
    kh_posterior *p = tune_with("bbt", SET("budget-generations=2", "pop=5"), &o);
    assert_false(p->calibrated);
    kh_posterior_free(p);
}

static void files_keep_the_map(void **state) {
    (void)state;
    kh_tune_opts o = whole_options();
    kh_posterior *p = tune_with("manual", NULL, &o), *again;
    kh_err err;
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    assert_int_equal(kh_posterior_open(&again, run_dir, NULL), 0);
    assert_true(again->calibrated && again->calibrator.strength == p->calibrator.strength &&
        again->score == p->score && again->score_rows == p->score_rows);
    for (int k = 0; k < 2; k++)
        assert_true(again->calibrator.weight[k] == p->calibrator.weight[k] &&
            again->calibrator.bias[k] == p->calibrator.bias[k]);
    kh_posterior_free(again);
    static const struct {
        const char *from, *to, *says;
    } bad[] = {
        { "\"method\": \"affine\"", "\"method\": \"votes\"", "must be by votes if" },
        { "\"weight\": [", "\"weight\": [1, ", "\"weight\" of \"calibration\" must be 2 numbers" },
        { "\"bias\": [", "\"bias\": [99, 1], \"y\": [", "\"bias\" of \"calibration\" must be" },
        { "\"strength\": ", "\"strength\": -", "has strength -" },
        { "\"score\": {", "\"score\": 1, \"x\": {", "\"score\" must be an object" },
    };
    char *path = kh_path_join(run_dir, "posterior.json");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kh_buf json = { 0 }, out = kh_buf_init(KH_BUF_MAX);
        p->calibrator.strength = 0.5;
        assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
        assert_int_equal(kh_file_read(path, 1 << 20, &json, NULL), 0);
        char *at = strstr(json.data, bad[i].from);
        assert_non_null(at);
        kh_buf_bytes(&out, json.data, (size_t)(at - json.data));
        kh_buf_text(&out, bad[i].to);
        kh_buf_text(&out, at + strlen(bad[i].from));
        assert_int_equal(kh_file_write(path, out.data, out.len, NULL), 0);
        assert_int_equal(kh_posterior_open(&again, run_dir, &err), KH_EFORMAT);
        assert_says(&err, bad[i].says);
        kh_buf_free(&out);
        kh_buf_free(&json);
    }
    kh_free(path);
    kh_posterior_free(p);
}

/* ------------------------------------------------------------------------------- fresh answers */

/* Every row once, with its line, each answered by a fit without it: decisions go by them, of the
 * posterior in memory as of its folder, and another posterior's do not stay there. */
static void answers_to_all_rows_are_kept(void **state) {
    (void)state;
    kh_tune_opts o = whole_options();
    kh_eval_opts judge = kh_eval_defaults();
    judge.test = judge.dev = dev;
    judge.bootstrap.n_resample = 0;
    o.fallback = KH_FALLBACK_NONE;
    kh_posterior *p = tune_with("feature-logistic", NULL, &o), *again;
    assert_int_equal(p->fresh.n, TRAIN + DEV);
    for (int i = 0; i < p->fresh.n; i++) {
        bool of_dev = i < DEV;
        const kh_row *row = of_dev ? &kh_dataset_rows(dev)[i] : &kh_dataset_rows(train)[i - DEV];
        assert_true(p->fresh.label[i] == row->label && p->fresh.line[i] == row->line);
        assert_true(fabs(p->fresh.p[2 * i] + p->fresh.p[2 * i + 1] - 1) < 1e-9);
    }
    kh_eval e;
    assert_int_equal(kh_eval_run(&e, p, plm, &judge, NULL), 0);
    assert_int_equal(e.n_cross, TRAIN + DEV);
    double limit = e.decisions.selector.threshold;
    kh_eval_clear(&e);
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    assert_int_equal(kh_posterior_open(&again, run_dir, NULL), 0);
    judge.run = run_dir;
    assert_int_equal(kh_eval_run(&e, again, plm, &judge, NULL), 0);
    assert_int_equal(e.n_cross, TRAIN + DEV);
    assert_true(limit == e.decisions.selector.threshold ||
        fabs(e.decisions.selector.threshold - limit) < 1e-9);
    kh_eval_clear(&e);
    char *path = kh_path_join(run_dir, KH_CROSSFIT_NAME);
    assert_int_equal(kh_posterior_save(again, run_dir, NULL), 0);
    assert_true(kh_file_exists(path)); /* an opened one does not know, and leaves them */
    kh_posterior_free(again);
    again = tune_with("feature-mlp", SET("epochs=2"), &o);
    assert_int_equal(again->fresh.n, 0);
    assert_int_equal(kh_posterior_save(again, run_dir, NULL), 0);
    assert_false(kh_file_exists(path));
    kh_free(path);
    kh_posterior_free(again);
    kh_posterior_free(p);
}

/* ------------------------------------------------------------------------------ with the template
 */

/* By hand: a head's answers and the template's, which has a prior over labels of its own, pooled
 * and calibrated; and the same from a folder. */
static void a_head_is_pooled_with_the_template(void **state) {
    (void)state;
    kh_tune_opts o = whole_options();
    o.fallback = KH_FALLBACK_NONE;
    kh_posterior *p = tune_with("feature-logistic", NULL, &o),
                 *plain = tune_with("manual", NULL, &o), *again;
    double prior[] = { log(0.25), log(0.75) }, share = 0.4, answer[4][2 * DEV];
    kh_posterior both = *p, alone = *p, words = *plain;
    both.template_share = share;
    both.template_prior = prior;
    alone.calibrated = words.calibrated = false;
    answers_of(&both, answer[0]);
    answers_of(&alone, answer[1]);
    answers_of(&words, answer[2]);
    for (int i = 0; i < DEV; i++) {
        double odds = (1 - share) * log(answer[1][2 * i + 1] / answer[1][2 * i]) +
            share * (log(answer[2][2 * i + 1] / answer[2][2 * i]) - log(3));
        double x[] = { -log1p(exp(odds)), -log1p(exp(-odds)) }, y[2];
        kh_calibrator_apply(&p->calibrator, x, 1, y);
        assert_true(fabs(y[1] - answer[0][2 * i + 1]) < 1e-6);
    }
    assert_int_equal(kh_posterior_save(&both, run_dir, NULL), 0);
    assert_int_equal(kh_posterior_open(&again, run_dir, NULL), 0);
    assert_true(again->template_share == share);
    answers_of(again, answer[3]);
    assert_memory_equal(answer[0], answer[3], sizeof answer[0]);
    kh_posterior_free(again);
    kh_posterior_free(plain);
    kh_posterior_free(p);
}

/* -------------------------------------------------------------------------------- method auto */

static char *json_of(const kh_posterior *p) {
    char *path = kh_path_join(run_dir, "posterior.json");
    kh_buf json = { 0 };
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    assert_int_equal(kh_file_read(path, 1 << 20, &json, NULL), 0);
    kh_free(path);
    return json.data;
}

static void auto_returns_the_best_of_what_it_tried(void **state) {
    (void)state;
    kh_tune_opts o = whole_options();
    o.max_queries = 1200;
    kh_posterior *p = tune_with("auto", NULL, &o), *again;
    char *text = json_of(p);
    json_t *root = json_loads(text, 0, NULL), *list = json_object_get(root, "tried"), *row;
    size_t i;
    long long queries = 0;
    bool bbt = false;
    int pooled = 0;
    assert_true(json_array_size(list) >= 4);
    json_array_foreach(list, i, row) {
        const char *name = json_string_value(json_object_get(row, "method"));
        if (strcmp(name, p->method) == 0)
            assert_true(json_number_value(json_object_get(row, "score")) == p->score);
        else if (strcmp(name, "manual") == 0) /* a search must be surely better, the rest better */
            assert_true(json_number_value(json_object_get(row, "score")) > p->score);
        queries += json_integer_value(json_object_get(row, "queries"));
        double share = json_number_value(json_object_get(row, "template_share"));
        assert_true(share >= 0 && share < 1 && !(share > 0 && strcmp(name, "manual") == 0));
        pooled += share > 0; /* the template answers beside what it is tried against */
        bbt |= strcmp(json_string_value(json_object_get(row, "method")), "bbt") == 0;
    }
    assert_true(pooled > 0);
    assert_true(bbt && queries == p->train_queries + p->dev_queries && queries <= 1200);
    assert_true(strcmp(p->method, "auto") != 0 && p->calibrated);
    assert_int_equal(kh_posterior_open(&again, run_dir, NULL), 0);
    char *first = json_of(p), *second = json_of(again);
    assert_string_equal(first, second);
    kh_posterior_free(again);
    again = tune_with("auto", NULL, &o);
    kh_free(second);
    second = json_of(again);
    assert_string_equal(first, second);
    kh_free(first);
    kh_free(second);
    json_decref(root);
    kh_free(text);
    kh_posterior_free(again);
    kh_posterior_free(p);
}

/* A search that would end before it has moved is not begun; one with a few generations is; and what
 * asks about every row once is never cut short. */
static void auto_counts_tokens(void **state) {
    (void)state;
    kh_tune_opts o = whole_options();
    static const struct {
        long long tokens;
        bool logistic, bbt;
    } CASES[] = { { 1, false, false }, { 4000, true, false }, { 40000, true, true } };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        o.max_tokens = CASES[i].tokens;
        kh_posterior *p = tune_with("auto", NULL, &o);
        assert_non_null(strstr(p->tried, "\"manual\""));
        assert_int_equal(strstr(p->tried, "\"feature-logistic\"") != NULL, CASES[i].logistic);
        assert_int_equal(strstr(p->tried, "\"bbt\"") != NULL, CASES[i].bbt);
        kh_posterior_free(p);
    }
    long long before = kh_plm_meter(plm).tokens;
    o.max_tokens = 9000;
    kh_posterior_free(tune_with("bbt", SET("pop=5"), &o));
    long long asked = kh_plm_meter(plm).tokens - before;
    assert_true(asked > 4000 && asked <= 9500); /* rows are of slightly different lengths */
    kh_err err = { 0 };
    kh_posterior *p;
    o.max_tokens = 3;
    assert_int_equal(kh_tune(&p, "bbt", NULL, plm, task, train, dev, &o, &err), KH_EARG);
    assert_non_null(strstr(err.msg, "a budget of 3 tokens is too small: a question has"));
}

static void auto_with_labels_only_never_sees_more(void **state) {
    (void)state;
    kh_plm *closed = tiny_open(KH_ACCESS_LABELS), *open = plm;
    kh_tune_opts o = whole_options();
    o.max_queries = 1500;
    plm = closed;
    kh_posterior *p = tune_with("auto", NULL, &o);
    plm = open;
    assert_int_equal(p->access, KH_ACCESS_LABELS);
    assert_non_null(strstr(p->tried, "\"smc\""));
    assert_null(strstr(p->tried, "\"bbt\""));
    kh_posterior_free(p);
    kh_plm_close(closed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method_is_calibrated),
        cmocka_unit_test(calibration_never_costs_on_its_own_rows),
        cmocka_unit_test(paper_exact_is_not_calibrated),
        cmocka_unit_test(files_keep_the_map),
        cmocka_unit_test(answers_to_all_rows_are_kept),
        cmocka_unit_test(a_head_is_pooled_with_the_template),
        cmocka_unit_test(auto_counts_tokens),
        cmocka_unit_test(auto_returns_the_best_of_what_it_tried),
        cmocka_unit_test(auto_with_labels_only_never_sees_more),
    };
    return cmocka_run_group_tests_name("finish", tests, open_all, tune_teardown);
}
