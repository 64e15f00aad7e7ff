/* test_judge_calibrate.c - calibrators on easy, tiny, separable and absurd rows; their files; the
 * reader of predictions. */
#include "judge_vectors.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "judge/calibrate.h"
#include "judge/predictions.h"

static kh_err err;

static double nll_of(const double *p, const int *label, int n, int k) {
    kh_metrics m;
    assert_int_equal(kh_metrics_compute(&m, &(kh_answers){ p, label, n, k }, 0, &err), 0);
    return m.nll;
}

static void assert_sane(const kh_calibrator *c) {
    assert_true(c->temperature >= KH_T_MIN && c->temperature <= KH_T_MAX);
    if (kh_calibration_votes(c->method))
        assert_true(isfinite(c->alpha) && c->alpha > 0);
    for (int k = 0; k < c->n_label && kh_calibration_per_class(c->method); k++)
        assert_true(fabs(c->weight[k]) <= KH_WEIGHT_MAX && fabs(c->bias[k]) <= KH_WEIGHT_MAX);
}

/* Fits, checks the parameters, and returns the probabilities [n, k]: finite and adding up to one.
 */
static double *fit_apply(kh_calibration method, const double *x, const int *label, int n, int k) {
    kh_calibrator c;
    double *p = malloc((size_t)n * (size_t)k * sizeof *p);
    assert_int_equal(kh_calibrator_fit(&c, method, x, label, n, k, &err), 0);
    assert_sane(&c);
    kh_calibrator_apply(&c, x, n, p);
    assert_int_equal(kh_answers_check(&(kh_answers){ p, label, n, k }, &err), 0);
    kh_calibrator_free(&c);
    return p;
}

/* Logits of a calibrated classifier times `scale`. */
static void make_logits(double *x, int *label, int n, int k, double scale, uint64_t seed) {
    kh_rng r = kh_rng_stream(seed, KH_RNG_TEST, 0, 0);
    double p[16];
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int j = 0; j < k; j++)
            sum += p[j] = exp(2 * kh_rng_normal(&r));
        label[i] = kh_rng_categorical(&r, p, k);
        for (int j = 0; j < k; j++)
            x[i * k + j] = scale * log(p[j] / sum);
    }
}

static void a_known_temperature_is_found(void **state) {
    (void)state;
    enum { N = 20000 };
    static double x[3 * N];
    static int label[N];
    for (double scale = 0.5; scale < 5; scale *= 2) {
        kh_calibrator c;
        make_logits(x, label, N, 3, scale, 1);
        assert_int_equal(kh_calibrator_fit(&c, KH_CALIBRATE_TEMPERATURE, x, label, N, 3, &err), 0);
        assert_near("T", c.temperature / scale, 1, 0.04);
        assert_int_equal(kh_calibrator_fit(&c, KH_CALIBRATE_VECTOR, x, label, N, 3, &err), 0);
        for (int k = 0; k < 3; k++) {
            assert_near("w", c.weight[k] * scale, 1, 0.06);
            assert_near("b - b0", c.bias[k] - c.bias[0], 0, 0.1);
        }
        kh_calibrator_free(&c);
    }
}

static void calibration_lowers_nll_on_new_rows(void **state) {
    (void)state;
    enum { N = 64, NEW = 2000 };
    static double x[2 * N], y[2 * NEW], p[2 * NEW], one[2 * NEW];
    static int label[N], label_new[NEW];
    make_logits(x, label, N, 2, 4, 2);
    make_logits(y, label_new, NEW, 2, 4, 3);
    kh_calibrator c = { .method = KH_CALIBRATE_TEMPERATURE, .n_label = 2, .temperature = 1 };
    kh_calibrator_apply(&c, y, NEW, one);
    for (kh_calibration m = KH_CALIBRATE_TEMPERATURE; m <= KH_CALIBRATE_VECTOR; m++) {
        assert_int_equal(kh_calibrator_fit(&c, m, x, label, N, 2, &err), 0);
        kh_calibrator_apply(&c, y, NEW, p);
        assert_true(nll_of(p, label_new, NEW, 2) < 0.8 * nll_of(one, label_new, NEW, 2));
        kh_calibrator_free(&c);
    }
}

static void temperature_never_changes_the_answer(void **state) {
    (void)state;
    enum { N = 300 };
    static double x[4 * N];
    static int label[N];
    make_logits(x, label, N, 4, 3, 4);
    double *p = fit_apply(KH_CALIBRATE_TEMPERATURE, x, label, N, 4);
    for (int i = 0; i < N; i++)
        assert_int_equal(kh_predicted(p + 4 * i, 4), kh_predicted(x + 4 * i, 4));
    free(p);
}

static void separable_rows_do_not_run_away(void **state) {
    (void)state;
    enum { N = 32 };
    double x[2 * N], votes[2 * N];
    int label[N];
    for (double margin = 0.01; margin < 1e6; margin *= 100) {
        for (int i = 0; i < N; i++) {
            label[i] = i % 2;
            x[2 * i + label[i]] = margin;
            x[2 * i + 1 - label[i]] = -margin;
            votes[2 * i + label[i]] = 100;
            votes[2 * i + 1 - label[i]] = 0;
        }
        free(fit_apply(KH_CALIBRATE_TEMPERATURE, x, label, N, 2));
        free(fit_apply(KH_CALIBRATE_VECTOR, x, label, N, 2));
        double *p = fit_apply(KH_CALIBRATE_VOTES, votes, label, N, 2);
        assert_true(p[0] > 0.9 && p[0] < 1 && p[1] > 0); /* sure, but never certain */
        free(p);
    }
}

static void perfectly_wrong_rows_do_not_run_away(void **state) {
    (void)state;
    double x[] = { 50, -50, -50, 50, 50, -50 }, votes[] = { 10, 0, 0, 10, 10, 0 };
    const int label[] = { 1, 0, 1 };
    double *p = fit_apply(KH_CALIBRATE_TEMPERATURE, x, label, 3, 2);
    assert_true(p[1] > 1e-3); /* flattened as far as allowed */
    free(p);
    free(fit_apply(KH_CALIBRATE_VECTOR, x, label, 3, 2));
    p = fit_apply(KH_CALIBRATE_VOTES, votes, label, 3, 2);
    assert_true(p[1] > 0.2);
    free(p);
}

static void one_class_and_one_row(void **state) {
    (void)state;
    enum { N = 20 };
    double x[3 * N];
    int label[N];
    make_logits(x, label, N, 3, 1, 6);
    memset(label, 0, sizeof label);
    for (int n = 1; n <= N; n += n < 6 ? 1 : 7) {
        free(fit_apply(KH_CALIBRATE_TEMPERATURE, x, label, n, 3));
        double *p = fit_apply(KH_CALIBRATE_VECTOR, x, label, n, 3);
        assert_true(p[0] < 1 && p[1] > 0);
        free(p);
        double votes[3 * N];
        for (int i = 0; i < 3 * n; i++)
            votes[i] = exp(x[i]);
        free(fit_apply(KH_CALIBRATE_VOTES, votes, label, n, 3));
    }
}

static void absurd_scores_stay_finite(void **state) {
    (void)state;
    const double scores[] = { 0, 1e-300, 1, 1e3, 1e150, -1e150, 1e308, -1e308 };
    double x[2 * 64];
    int label[64], n = 0;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++, n++) {
            x[2 * n] = scores[i];
            x[2 * n + 1] = scores[j];
            label[n] = (i + j) % 2;
        }
    for (kh_calibration m = KH_CALIBRATE_TEMPERATURE; m <= KH_CALIBRATE_VECTOR; m++)
        free(fit_apply(m, x, label, n, 2));
    for (int i = 0; i < 2 * n; i++)
        x[i] = fabs(x[i]) > 1e290 ? 1e290 : fabs(x[i]);
    free(fit_apply(KH_CALIBRATE_VOTES, x, label, n, 2));
    for (int i = 0; i < 2 * n; i++)
        x[i] = 7; /* no information at all */
    for (kh_calibration m = KH_CALIBRATE_TEMPERATURE; m <= KH_CALIBRATE_VOTES_AFFINE; m++) {
        double *p = fit_apply(m, x, label, n, 2);
        assert_near("the share", p[0], 0.5, 0.02);
        free(p);
    }
}

static void random_small_sets_stay_sane(void **state) {
    (void)state;
    for (int s = 0; s < 150; s++) {
        kh_rng r = kh_rng_stream(17, KH_RNG_TEST, (uint32_t)s, 0);
        int n = 1 + (int)kh_rng_below(&r, 12), k = 2 + (int)kh_rng_below(&r, 4), label[12];
        double x[12 * 5], scale = exp(3 * kh_rng_normal(&r));
        for (int i = 0; i < n * k; i++)
            x[i] = scale * kh_rng_normal(&r);
        for (int i = 0; i < n; i++)
            label[i] = (int)kh_rng_below(&r, (uint32_t)k);
        free(fit_apply(KH_CALIBRATE_TEMPERATURE, x, label, n, k));
        free(fit_apply(KH_CALIBRATE_VECTOR, x, label, n, k));
        for (int i = 0; i < n * k; i++)
            x[i] = kh_rng_below(&r, 4);
        x[0] = 1;
        free(fit_apply(KH_CALIBRATE_VOTES, x, label, n, k));
    }
}

static void votes_are_never_turned_into_nothing(void **state) {
    (void)state;
    const double votes[] = { 10, 0, 9, 1, 0, 10, 3, 7, 10, 0, 1, 9 };
    const int label[] = { 0, 0, 1, 1, 0, 1 };
    double *p = fit_apply(KH_CALIBRATE_VOTES, votes, label, 6, 2);
    assert_true(p[1] > 0 && p[4] > 0);
    assert_true(p[0] > p[2]); /* ten votes still count for more than nine */
    free(p);
}

static void apply_works_in_place(void **state) {
    (void)state;
    double x[] = { 1, 2, 3, -1, 0, 5 }, p[6];
    for (kh_calibration m = KH_CALIBRATE_TEMPERATURE; m <= KH_CALIBRATE_VOTES_AFFINE; m++) {
        double y[6];
        kh_calibrator c;
        for (int i = 0; i < 6; i++)
            y[i] = kh_calibration_votes(m) ? fabs(x[i]) : x[i];
        assert_int_equal(kh_calibrator_fit(&c, m, y, (int[]){ 2, 0 }, 2, 3, &err), 0);
        kh_calibrator_apply(&c, y, 2, p);
        kh_calibrator_apply(&c, y, 2, y);
        assert_memory_equal(p, y, sizeof p);
        kh_calibrator_free(&c);
    }
}

static void crossfit_has_not_seen_the_row(void **state) {
    (void)state;
    enum { N = 10 };
    double x[2 * N], p[2 * N], q[2 * N];
    int label[N];
    make_logits(x, label, N, 2, 3, 8);
    assert_int_equal(
        kh_calibrator_crossfit(KH_CALIBRATE_TEMPERATURE, x, label, N, 2, N, p, &err), 0);
    /* Leaving one out: the same as fitting on the other nine. */
    for (int i = 0; i < N; i++) {
        double rest[2 * N];
        int rest_label[N], m = 0;
        for (int j = 0; j < N; j++)
            if (j != i) {
                memcpy(rest + 2 * m, x + 2 * j, 2 * sizeof *x);
                rest_label[m++] = label[j];
            }
        kh_calibrator c;
        assert_int_equal(
            kh_calibrator_fit(&c, KH_CALIBRATE_TEMPERATURE, rest, rest_label, m, 2, &err), 0);
        kh_calibrator_apply(&c, x + 2 * i, 1, q);
        assert_memory_equal(q, p + 2 * i, 2 * sizeof *q);
    }
    assert_int_equal(
        kh_calibrator_crossfit(KH_CALIBRATE_TEMPERATURE, x, label, N, 2, 1, p, &err), KH_EARG);
    assert_says(&err, "1 folds of 10 rows, expected 2 to the number of rows");
    assert_int_equal(
        kh_calibrator_crossfit(KH_CALIBRATE_TEMPERATURE, x, (int[]){ 0, 0 }, 2, 2, 2, p, &err), 0);
}

static void refuses(kh_calibration m, const double *x, const int *label, int n, int k, int code,
    const char *sentence) {
    kh_calibrator c;
    assert_int_equal(kh_calibrator_fit(&c, m, x, label, n, k, &err), code);
    assert_says(&err, sentence);
    kh_calibrator_free(&c);
}

static void what_cannot_be_fitted_is_refused(void **state) {
    (void)state;
    const double x[] = { 1, 2, INFINITY, -1 }, none[] = { 0, 0 };
    const int label[] = { 0, 2 };
    refuses(KH_CALIBRATE_TEMPERATURE, x, label, 0, 2, KH_EARG,
        "there are no labelled rows to calibrate on");
    refuses(KH_CALIBRATE_TEMPERATURE, x, label, 1, 1, KH_EARG,
        "1 class, but a classifier needs at least two");
    refuses(KH_CALIBRATE_VECTOR, x, label, 2, 2, KH_EARG,
        "row 1: the score of class 0 is not a finite number");
    refuses(KH_CALIBRATE_VOTES, x, label, 2, 2, KH_EARG,
        "row 1: the vote count of class 0 is not a finite number");
    refuses(KH_CALIBRATE_VOTES, (double[]){ 1, -1 }, label, 1, 2, KH_EARG,
        "row 0: -1 votes for class 1, expected 0 or more");
    refuses(KH_CALIBRATE_VOTES, none, label, 1, 2, KH_EARG, "the votes of all rows add up to 0");
    refuses(KH_CALIBRATE_TEMPERATURE, none, label + 1, 1, 2, KH_EARG,
        "row 0: label 2, expected 0 to 1");
    refuses(KH_CALIBRATE_TEMPERATURE, none, label, INT32_MAX, 2, KH_ELIMIT,
        "are more than can be calibrated on");
}

/* --------------------------------------------------------------------------------------- files */

static void calibrators_come_back_from_their_files(void **state) {
    (void)state;
    double x[3 * 30], votes[3 * 30], p[3 * 30], q[3 * 30];
    int label[30];
    make_logits(x, label, 30, 3, 2, 9);
    for (int i = 0; i < 90; i++)
        votes[i] = floor(20 * exp(x[i]));
    for (kh_calibration m = KH_CALIBRATE_TEMPERATURE; m <= KH_CALIBRATE_VOTES_AFFINE; m++) {
        kh_calibrator c, d;
        const double *from = kh_calibration_votes(m) ? votes : x;
        const char *path = test_file("calibrator.json", "", 0);
        assert_int_equal(kh_calibrator_fit(&c, m, from, label, 30, 3, &err), 0);
        assert_int_equal(kh_calibrator_save(&c, path, &err), 0);
        assert_int_equal(kh_calibrator_open(&d, path, &err), 0);
        assert_int_equal(d.n, 30);
        kh_calibrator_apply(&c, from, 30, p);
        kh_calibrator_apply(&d, from, 30, q);
        assert_memory_equal(p, q, sizeof p);
        kh_calibrator_free(&c);
        kh_calibrator_free(&d);
        remove(path);
    }
}

static void bad_file(const char *json, const char *sentence) {
    kh_calibrator c;
    assert_int_equal(kh_calibrator_parse(&c, json, strlen(json), "cal.json", &err), KH_EFORMAT);
    assert_says(&err, sentence);
    kh_calibrator_free(&c);
}

#define HEAD "{\"format\": \"keyhole calibrator\", \"version\": 1, \"n_label\": 2, \"rows\": 5, "

static void broken_files_are_refused(void **state) {
    (void)state;
    bad_file("{", "cal.json:1: not valid JSON");
    bad_file("[1]",
        "cal.json: not a file of \"keyhole calibrate --out\": \"format\" must be \"keyhole "
        "calibrator\"");
    bad_file("{\"format\": \"x\"}", "\"format\" must be \"keyhole calibrator\"");
    bad_file("{\"format\": \"keyhole calibrator\", \"version\": 2}",
        "\"version\" must be a whole number from 1 to 1");
    bad_file(HEAD "\"method\": \"platt\"}",
        "cal.json: method \"platt\", expected temperature, vector, votes, affine or votes-affine");
    bad_file(HEAD "\"method\": \"temperature\"}", "cal.json: \"temperature\" is missing");
    bad_file(HEAD "\"method\": \"temperature\", \"temperature\": 0}",
        "cal.json: \"temperature\" is 0, expected 0.05 to 20");
    bad_file(HEAD "\"method\": \"votes\", \"temperature\": 1, \"alpha\": -1}",
        "cal.json: \"alpha\" is -1");
    bad_file(HEAD "\"method\": \"vector\", \"weight\": [1]}",
        "cal.json: \"weight\" must be a list of 2 numbers");
    bad_file(HEAD "\"method\": \"vector\", \"weight\": [1, 99], \"bias\": [0, 0]}",
        "cal.json: \"weight\" must hold numbers from -20 to 20");
    bad_file(HEAD "\"method\": \"vector\", \"weight\": [1, 1], \"bias\": [0, \"x\"]}",
        "cal.json: \"bias\" must hold numbers from -20 to 20");
    kh_calibrator c;
    assert_int_equal(kh_calibrator_open(&c, "tests/nowhere.json", &err), KH_EMISSING);
}

/* --------------------------------------------------------------------------------- predictions */

static const kh_evidence any[] = { KH_PROBS, KH_LOGITS, KH_VOTES };

static int parse(kh_predictions *r, const char *text) {
    return kh_predictions_parse(r, text, strlen(text), "p.jsonl", any, 3, &err);
}

static void predictions_of_every_kind(void **state) {
    (void)state;
    kh_predictions r;
    double p[4], x[4];
    assert_int_equal(parse(&r,
                         "\xEF\xBB\xBF{\"probs\": [0.25, 0.75], \"label\": 1, \"id\": \"a\"}\r\n\n "
                         " \n{\"probs\": [1, 0]}"),
        0);
    assert_true(r.n == 2 && r.n_label == 2 && r.n_known == 1 && r.kind == KH_PROBS);
    assert_true(r.label[0] == 1 && r.label[1] == -1 && r.line[0] == 1 && r.line[1] == 4);
    kh_predictions_scores(&r, x);
    assert_near("log p", x[0], log(0.25), 1e-15);
    assert_near("log of nothing", x[3], log(1e-12), 1e-12);
    kh_predictions_free(&r);
    assert_int_equal(parse(&r,
                         "{\"logits\": [0, 0.6931471805599453], \"label\": null}\n{\"logits\": "
                         "[1e308, -1e308], \"label\": -1}\n"),
        0);
    kh_predictions_probs(&r, p);
    assert_near("softmax", p[1], 2.0 / 3, 1e-15);
    assert_true(p[2] == 1 && p[3] == 0 && r.n_known == 0);
    kh_predictions_free(&r);
    assert_int_equal(
        parse(&r,
            "{\"votes\": [1, 3], \"logits\": [1, 2]}\n{\"votes\": [0.5, 0], \"logits\": [1, 2]}"),
        0);
    assert_int_equal(r.kind, KH_LOGITS);
    kh_predictions_free(&r);
    static const kh_evidence votes[] = { KH_VOTES };
    const char *text = "{\"votes\": [1, 3], \"logits\": [1, 2]}\n{\"votes\": [0.5, 0]}";
    assert_int_equal(kh_predictions_parse(&r, text, strlen(text), "p.jsonl", votes, 1, &err), 0);
    kh_predictions_probs(&r, p);
    assert_true(p[1] == 0.75 && p[2] == 1);
    kh_predictions_free(&r);
}

static void energies_stand_beside_any_kind(void **state) {
    (void)state;
    kh_predictions r;
    assert_int_equal(parse(&r,
                         "{\"probs\": [1, 0], \"energy\": -7.5}\n{\"probs\": [1, 0], \"energy\": "
                         "null}\n{\"probs\": [1, 0]}\n"),
        0);
    assert_true(r.n_energy == 1 && r.energy[0] == -7.5 && isnan(r.energy[1]) && isnan(r.energy[2]));
    kh_predictions_free(&r);
}

static void rounded_predictions_are_made_to_add_up(void **state) {
    (void)state;
    kh_predictions r;
    assert_int_equal(parse(&r, "{\"probs\": [0.333, 0.333, 0.333]}"), 0);
    assert_near("a third", r.x[0], 1.0 / 3, 1e-15);
    kh_predictions_free(&r);
}

static void bad_lines(const char *text, const char *sentence) {
    kh_predictions r;
    assert_int_equal(parse(&r, text), KH_EFORMAT);
    assert_says(&err, sentence);
    kh_predictions_free(&r);
}

#define GOOD "{\"probs\": [0.5, 0.5]}\n"

static void each_malformed_line_is_one_sentence(void **state) {
    (void)state;
    bad_lines("", "p.jsonl: no lines; expected one JSON object a line");
    bad_lines(" \n\n", "p.jsonl: no lines");
    bad_lines(GOOD "{", "p.jsonl:2: not valid JSON");
    bad_lines(GOOD "[0.5, 0.5]",
        "p.jsonl:2: must be a JSON object such as {\"probs\": [0.1, 0.9], \"label\": 1}");
    bad_lines(
        "{\"p\": [0.5, 0.5]}", "p.jsonl:1: no \"probs\", \"logits\" or \"votes\" in this line");
    bad_lines("{\"probs\": 0.5}",
        "p.jsonl:1: \"probs\" must be a list of 2 to 65536 numbers, one for each class");
    bad_lines("{\"probs\": [1]}", "p.jsonl:1: \"probs\" must be a list of 2 to 65536 numbers");
    bad_lines(GOOD "{\"votes\": [1, 2]}",
        "p.jsonl:2: no list \"probs\" in this line, but in the lines before");
    bad_lines(
        GOOD "\n{\"probs\": [0.2, 0.3, 0.5]}", "p.jsonl:3: 3 \"probs\", but 2 in the lines before");
    bad_lines(GOOD "{\"probs\": [0.5, null]}", "p.jsonl:2: \"probs\" of class 1 is not a number");
    bad_lines(GOOD "{\"probs\": [0.5, NaN]}", "p.jsonl:2: not valid JSON");
    bad_lines(GOOD "{\"probs\": [1e999, 0]}", "p.jsonl:2: not valid JSON");
    bad_lines(GOOD "{\"probs\": [1.5, -0.5]}",
        "p.jsonl:2: \"probs\" of class 1 is -0.5, expected 0 or more");
    bad_lines(GOOD "{\"probs\": [0.5, 0.6]}", "p.jsonl:2: \"probs\" add up to 1.1, expected 1");
    bad_lines("{\"votes\": [0, 0]}", "p.jsonl:1: \"votes\" add up to 0, expected more than 0");
    bad_lines("{\"votes\": [3, -1]}", "p.jsonl:1: \"votes\" of class 1 is -1, expected 0 or more");
    bad_lines("{\"probs\": [0.5, 0.5], \"label\": 2}",
        "p.jsonl:1: \"label\" must be a whole number from 0 to 1, the true class, or -1");
    bad_lines(
        "{\"probs\": [0.5, 0.5], \"label\": 0.5}", "p.jsonl:1: \"label\" must be a whole number");
    bad_lines("{\"probs\": [0.5, 0.5], \"label\": \"yes\"}",
        "p.jsonl:1: \"label\" must be a whole number");
    bad_lines(GOOD "{\"probs\": [0.5, 0.5], \"energy\": \"high\"}",
        "p.jsonl:2: \"energy\" is not a number");
    bad_lines("{\"probs\": [0.5, 0.5], \"probs\": [1, 0]}",
        "p.jsonl:1: not valid JSON: duplicate object key");
}

/* -------------------------------------------------------------------------------------- memory */

static int all_of_it(void) {
    const double x[] = { 1, 2, 3, 0, 2, 2 };
    const int label[] = { 0, 1, 1 };
    double p[6];
    kh_calibrator c;
    kh_predictions r;
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    int rc = 0;
    for (kh_calibration m = KH_CALIBRATE_TEMPERATURE; m <= KH_CALIBRATE_VOTES_AFFINE && rc == 0;
         m++) {
        rc = kh_calibrator_fit(&c, m, x, label, 3, 2, &err);
        kh_calibrator_free(&c);
        rc = rc ? rc : kh_calibrator_crossfit(m, x, label, 3, 2, 3, p, &err);
    }
    const char *text = HEAD "\"method\": \"vector\", \"weight\": [1, 1], \"bias\": [0, 0]}";
    if (rc == 0) {
        rc = kh_calibrator_parse(&c, text, strlen(text), "c", &err);
        if (rc == 0) {
            kh_calibrator_json(&c, &b);
            rc = kh_buf_failed(&b) ? KH_ENOMEM : 0;
        }
        kh_calibrator_free(&c);
    }
    if (rc == 0) {
        rc = parse(&r, GOOD GOOD GOOD);
        kh_predictions_free(&r);
    }
    kh_buf_free(&b);
    return rc;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    kh_alloc_fail_at(0, false);
    assert_int_equal(all_of_it(), 0);
    long n = kh_alloc_count();
    assert_true(n > 30);
    for (long i = 1; i <= n; i++) {
        kh_alloc_fail_at(i, i % 2);
        assert_int_equal(all_of_it(), KH_ENOMEM);
    }
    kh_alloc_fail_at(0, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_known_temperature_is_found),
        cmocka_unit_test(calibration_lowers_nll_on_new_rows),
        cmocka_unit_test(temperature_never_changes_the_answer),
        cmocka_unit_test(separable_rows_do_not_run_away),
        cmocka_unit_test(perfectly_wrong_rows_do_not_run_away),
        cmocka_unit_test(one_class_and_one_row),
        cmocka_unit_test(absurd_scores_stay_finite),
        cmocka_unit_test(random_small_sets_stay_sane),
        cmocka_unit_test(votes_are_never_turned_into_nothing),
        cmocka_unit_test(apply_works_in_place),
        cmocka_unit_test(crossfit_has_not_seen_the_row),
        cmocka_unit_test(what_cannot_be_fitted_is_refused),
        cmocka_unit_test(calibrators_come_back_from_their_files),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(predictions_of_every_kind),
        cmocka_unit_test(energies_stand_beside_any_kind),
        cmocka_unit_test(rounded_predictions_are_made_to_add_up),
        cmocka_unit_test(each_malformed_line_is_one_sentence),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
