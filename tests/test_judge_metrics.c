/* test_judge_metrics.c - metrics by hand, what is refused, intervals, spreads, decomposition of
 * uncertainty. */
#include "judge_vectors.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "judge/metrics.h"

static kh_err err;

/* Four rows of two classes: right 0.9, right 0.6, wrong 0.8, right 0.7. */
static const double four_p[] = { 0.9, 0.1, 0.4, 0.6, 0.8, 0.2, 0.3, 0.7 };
static const int four_label[] = { 0, 1, 1, 1 };
static const kh_answers four = { four_p, four_label, 4, 2 };

static void simple_metrics_by_hand(void **state) {
    (void)state;
    kh_metrics m;
    assert_int_equal(kh_metrics_compute(&m, &four, 0, &err), 0);
    assert_near("accuracy", m.accuracy, 0.75, 0);
    assert_near("f1", m.f1, 0.8, 1e-15); /* 2 hits, 2 predicted, 3 actual */
    assert_near("macro_f1", m.macro_f1, (0.8 + 2.0 / 3) / 2, 1e-15);
    assert_near("nll", m.nll, -(log(0.9) + log(0.6) + log(0.2) + log(0.7)) / 4, 1e-15);
    assert_near("brier", m.brier, (0.02 + 0.32 + 1.28 + 0.18) / 4, 1e-15);
    assert_near("confidence", m.confidence, 0.75, 1e-15);
    assert_near("zeros", m.zeros, 0, 0);
    /* each in a bin of its own, all three ways */
    assert_near("ece", m.ece, (0.1 + 0.4 + 0.8 + 0.3) / 4, 1e-15);
    assert_near("ece_plain", m.ece_plain, (0.1 + 0.4 + 0.8 + 0.3) / 4, 1e-15);
    assert_near("ece_adaptive", m.ece_adaptive, (0.1 + 0.4 + 0.8 + 0.3) / 4, 1e-15);
}

static void curves_by_hand(void **state) {
    (void)state;
    kh_metrics m;
    assert_int_equal(kh_metrics_compute(&m, &four, 0, &err), 0);
    /* order of certainty: right, wrong, right, right */
    assert_near("aurc", m.aurc, (0 + 1.0 / 2 + 1.0 / 3 + 1.0 / 4) / 4, 1e-15);
    assert_near("aurc_min", m.aurc_min, 0.25 / 4, 1e-15);
    assert_near(
        "auroc_error", m.auroc_error, 1.0 / 3, 1e-15); /* below one of the three right ones */
    assert_near("aurrrc", m.aurrrc, 0.25, 1e-15); /* fewer than ten rows: all of them ten times */
}

static void aurrrc_includes_ties(void **state) {
    (void)state;
    /* 20 rows, step 2: the two most certain and the five that tie with the second come at once. */
    double u[20];
    bool good[20];
    for (int i = 0; i < 20; i++) {
        u[i] = i == 0 ? 0 : i < 7 ? 1 : i;
        good[i] = i >= 7 || i < 2; /* rows 2 .. 6 are bad */
    }
    kh_curve c;
    double sum = 3 * 5.0 / 7; /* ranks 2, 4 and 6 */
    for (int rank = 8; rank <= 20; rank += 2)
        sum += 5.0 / rank;
    assert_int_equal(kh_curve_compute(&c, u, good, 20, &err), 0);
    assert_near("aurrrc", c.aurrrc, sum / 10, 1e-15);
    /* The oracle: 15 good rows; ranks 16, 18 and 20 fall among the bad ones and bring in all of
     * them. */
    assert_near("aurrrc_oracle", c.aurrrc_oracle, 3 * 0.25 / 10, 1e-15);
    assert_near("aurrrc_min", c.aurrrc_min, (1.0 / 16 + 3.0 / 18 + 5.0 / 20) / 10, 1e-15);
}

static void aurc_of_ties_does_not_depend_on_the_order(void **state) {
    (void)state;
    double u[] = { 0.5, 0.5, 0.5, 0.1 };
    bool one[] = { false, true, true, true }, other[] = { true, true, false, true };
    kh_curve a, b;
    assert_int_equal(kh_curve_compute(&a, u, one, 4, &err), 0);
    assert_int_equal(kh_curve_compute(&b, u, other, 4, &err), 0);
    assert_true(a.aurc == b.aurc);
    assert_near("aurc", a.aurc, (0 + 1.0 / 3 / 2 + 2.0 / 3 / 3 + 1.0 / 4) / 4, 1e-15);
}

static void risk_coverage_by_hand(void **state) {
    (void)state;
    double u[] = { 0.3, 0.1, 0.3, 0.2 };
    bool good[] = { false, true, true, false };
    kh_curve_point p[4];
    int n;
    assert_int_equal(kh_risk_coverage(u, good, 4, p, &n, &err), 0);
    assert_int_equal(n, 3);
    assert_true(p[0].u == 0.1 && p[0].coverage == 0.25 && p[0].risk == 0);
    assert_true(p[1].u == 0.2 && p[1].coverage == 0.5 && p[1].risk == 0.5);
    assert_true(p[2].u == 0.3 && p[2].coverage == 1 && p[2].risk == 0.5);
}

static void undefined_areas_are_nan(void **state) {
    (void)state;
    const double p[] = { 0.9, 0.1, 0.2, 0.8 };
    kh_metrics m;
    assert_int_equal(kh_metrics_compute(&m, &(kh_answers){ p, (int[]){ 0, 1 }, 2, 2 }, 0, &err), 0);
    assert_true(isnan(m.auroc_error) && isnan(m.auroc_error_entropy));
    assert_true(m.aurc == 0 && m.aurrrc == 0);
    assert_int_equal(kh_metrics_compute(&m, &(kh_answers){ p, (int[]){ 1, 0 }, 2, 2 }, 0, &err), 0);
    assert_true(isnan(m.auroc_error) && m.aurc == 1 && m.aurc_min == 1 && m.aurrrc == 1);
}

static void nll_of_an_impossible_class_is_floored_and_counted(void **state) {
    (void)state;
    kh_metrics m;
    assert_int_equal(kh_metrics_compute(&m,
                         &(kh_answers){ (double[]){ 1, 0, 0, 1 }, (int[]){ 1, 1 }, 2, 2 }, 0, &err),
        0);
    assert_near("nll", m.nll, -log(1e-15) / 2, 1e-12);
    assert_near("zeros", m.zeros, 0.5, 0);
}

static void the_first_of_equals_is_predicted(void **state) {
    (void)state;
    assert_int_equal(kh_predicted((double[]){ 0.4, 0.4, 0.2 }, 3), 0);
    assert_int_equal(kh_predicted((double[]){ 0.2, 0.4, 0.4 }, 3), 1);
}

static void reliability_by_hand(void **state) {
    (void)state;
    kh_bin bin[5];
    double ece;
    assert_int_equal(kh_reliability(&four, KH_BINS_UQ360, 5, bin, &ece, &err), 0);
    assert_near("an edge", bin[1].low, 0.6, 1e-15);
    assert_true(bin[4].high == 1);
    int n[] = { 0, 1, 1, 1, 1 }; /* 0.6, 0.7, 0.8 and 0.9 open bins of their own */
    for (int b = 0; b < 5; b++)
        assert_int_equal(bin[b].n, n[b]);
    assert_int_equal(kh_reliability(&four, KH_BINS_PLAIN, 2, bin, &ece, &err), 0);
    assert_int_equal(bin[1].n, 4);
    assert_true(bin[0].n == 0 && bin[0].confidence == 0);
    assert_near("ece", ece, 0, 1e-15); /* mean confidence 0.75, accuracy 0.75 */
    assert_int_equal(kh_reliability(&four, KH_BINS_ADAPTIVE, 2, bin, &ece, &err), 0);
    assert_true(bin[0].n == 2 && bin[0].low == 0.6 && bin[0].high == 0.7 && bin[1].n == 2);
    assert_near("ece", ece, 0.5 * 0.35 + 0.5 * 0.35, 1e-15);
}

static void adaptive_bins_keep_ties_together(void **state) {
    (void)state;
    double p[20];
    int label[10];
    kh_bin bin[5];
    double ece;
    for (int i = 0; i < 10; i++) {
        p[2 * i] = 0.8;
        p[2 * i + 1] = 0.2;
        label[i] = i >= 8;
    }
    assert_int_equal(
        kh_reliability(&(kh_answers){ p, label, 10, 2 }, KH_BINS_ADAPTIVE, 5, bin, &ece, &err), 0);
    assert_int_equal(bin[0].n, 10);
    assert_near("ece", ece, 0, 1e-15);
}

static void uncertainty_scores_by_hand(void **state) {
    (void)state;
    assert_near(
        "1 - max p", kh_uncertainty(KH_SCORE_MAXP, (double[]){ 0.2, 0.7, 0.1 }, 3), 0.3, 1e-15);
    assert_near("entropy", kh_uncertainty(KH_SCORE_ENTROPY, (double[]){ 0.25, 0.25, 0.5 }, 3),
        1.5 * log(2), 1e-12);
    assert_true(kh_uncertainty(KH_SCORE_ENTROPY, (double[]){ 0, 1 }, 2) == 0);
    /* the last bits of these two sums differ, the scores may not */
    double a[] = { 0.1, 0.2, 0.7 }, b[] = { 0.7, 0.1, 0.2 };
    assert_true(kh_uncertainty(KH_SCORE_ENTROPY, a, 3) == kh_uncertainty(KH_SCORE_ENTROPY, b, 3));
}

static void disagreement_and_ambiguity(void **state) {
    (void)state;
    /* members that are sure and disagree; members that agree to be unsure */
    kh_decomposition d = kh_uncertainty_parts((double[]){ 1, 0, 0, 1 }, NULL, 2, 2);
    assert_near("total", d.total, log(2), 1e-15);
    assert_near("disagreement", d.disagreement, log(2), 1e-15);
    assert_near("ambiguity", d.ambiguity, 0, 0);
    d = kh_uncertainty_parts((double[]){ 0.5, 0.5, 0.5, 0.5 }, NULL, 2, 2);
    assert_near("disagreement", d.disagreement, 0, 1e-15);
    assert_near("ambiguity", d.ambiguity, log(2), 1e-15);
    /* weights 3:1 of sure members are the distribution (3/4, 1/4) */
    d = kh_uncertainty_parts((double[]){ 1, 0, 0, 1 }, (double[]){ 3, 1 }, 2, 2);
    assert_near("total", d.total, -0.75 * log(0.75) - 0.25 * log(0.25), 1e-15);
    /* a mixture: total = entropy of (0.5, 0.5), members have 0.9/0.1 */
    d = kh_uncertainty_parts((double[]){ 0.9, 0.1, 0.1, 0.9 }, NULL, 2, 2);
    double h = -0.9 * log(0.9) - 0.1 * log(0.1);
    assert_near("ambiguity", d.ambiguity, h, 1e-15);
    assert_near("disagreement", d.disagreement, log(2) - h, 1e-15);
}

/* ------------------------------------------------------------------------------------- refused */

static void refuses(const double *p, const int *label, int n, int k, const char *sentence) {
    kh_metrics m;
    kh_bin bin[KH_BINS];
    kh_answers a = { p, label, n, k };
    assert_int_equal(kh_metrics_compute(&m, &a, 0, &err), KH_EARG);
    assert_says(&err, sentence);
    assert_int_equal(kh_reliability(&a, KH_BINS_PLAIN, KH_BINS, bin, NULL, &err), KH_EARG);
    assert_says(&err, sentence);
}

static void what_cannot_be_judged_is_refused(void **state) {
    (void)state;
    const int label[] = { 0, 1 };
    refuses(four_p, four_label, 0, 2, "there are no rows to judge");
    refuses(four_p, four_label, 4, 1, "1 class, but a classifier needs at least two");
    refuses((double[]){ 0.5, 0.5, NAN, 0.5 }, label, 2, 2,
        "row 1: the probability of class 0 is not a number");
    refuses((double[]){ 1.2, -0.2, 0.5, 0.5 }, label, 2, 2,
        "row 0: the probability of class 0 is 1.2, expected 0 to 1");
    refuses((double[]){ 0.5, 0.5, 0.5, -0.5 }, label, 2, 2,
        "row 1: the probability of class 1 is -0.5, expected 0 to 1");
    refuses((double[]){ 0.5, 0.5, 0.5, INFINITY }, label, 2, 2,
        "row 1: the probability of class 1 is inf, expected 0 to 1");
    refuses((double[]){ 0.5, 0.4, 0.5, 0.5 }, label, 2, 2,
        "row 0: the probabilities add up to 0.9, expected 1");
    refuses(
        (double[]){ 0.5, 0.5, 0.5, 0.5 }, (int[]){ 0, 2 }, 2, 2, "row 1: label 2, expected 0 to 1");
    refuses((double[]){ 0.5, 0.5, 0.5, 0.5 }, (int[]){ -1, 0 }, 2, 2,
        "row 0: label -1, expected 0 to 1");
}

static void rounded_probabilities_are_accepted(void **state) {
    (void)state;
    kh_metrics m;
    assert_int_equal(
        kh_metrics_compute(
            &m, &(kh_answers){ (double[]){ 0.333, 0.333, 0.333 }, (int[]){ 2 }, 1, 3 }, 0, &err),
        0);
}

static void wrong_options_are_refused(void **state) {
    (void)state;
    kh_metrics m, low, high;
    kh_bootstrap_opts o = kh_bootstrap_defaults();
    assert_int_equal(kh_metrics_compute(&m, &four, -1, &err), KH_EARG);
    assert_says(&err, "-1 bins, expected 1 to 10000");
    o.n_resample = 0;
    assert_int_equal(kh_metrics_bootstrap(&low, &high, &four, 0, &o, &err), KH_EARG);
    assert_says(&err, "0 bootstrap resamples, expected 1 to 1000000");
    o = kh_bootstrap_defaults();
    o.level = 1;
    assert_int_equal(kh_metrics_bootstrap(&low, &high, &four, 0, &o, &err), KH_EARG);
    assert_says(&err, "the level of a bootstrap interval is 1, expected between 0 and 1");
}

static void scores_that_are_no_numbers_are_refused(void **state) {
    (void)state;
    const double u[] = { 0.1, NAN };
    const bool good[] = { true, false };
    kh_curve c;
    kh_ood o;
    kh_curve_point p[2];
    int n;
    assert_int_equal(kh_curve_compute(&c, u, good, 2, &err), KH_EARG);
    assert_says(&err, "among the rows, the score of row 1 is not a number");
    assert_int_equal(kh_curve_compute(&c, u, good, 0, &err), KH_EARG);
    assert_says(&err, "there are no rows to judge");
    assert_int_equal(kh_risk_coverage(u, good, 2, p, &n, &err), KH_EARG);
    assert_int_equal(kh_ood_compute(&o, u, 1, u, 2, &err), KH_EARG);
    assert_says(&err, "among the rows from outside, the score of row 1 is not a number");
    assert_int_equal(kh_ood_compute(&o, u, 1, u, 0, &err), KH_EARG);
    assert_says(&err, "there are no rows from outside to judge");
    assert_int_equal(kh_ood_compute(&o, u, 2, u, 1, &err), KH_EARG);
    assert_says(&err, "among the rows of the distribution, the score of row 1 is not a number");
}

/* --------------------------------------------------------------------------- spread, bootstrap */

static void spread_over_seeds(void **state) {
    (void)state;
    kh_metrics runs[3] = { { .accuracy = 0.8, .auroc_error = NAN },
        { .accuracy = 0.9, .auroc_error = 0.5 }, { .accuracy = 0.7, .auroc_error = 0.7 } };
    kh_metrics mean, sd;
    kh_metrics_spread(runs, 3, &mean, &sd);
    assert_near("mean", mean.accuracy, 0.8, 1e-15);
    assert_near("sd", sd.accuracy, 0.1, 1e-15);
    assert_near("mean of the defined", mean.auroc_error, 0.6, 1e-15);
    kh_metrics_spread(runs, 1, &mean, &sd);
    assert_true(isnan(sd.accuracy) && isnan(mean.auroc_error));
    double m, s;
    kh_mean_sd((double[]){ 1, 2, 3, 4 }, 4, &m, &s);
    assert_near("mean", m, 2.5, 0);
    assert_near("sd", s, sqrt(5.0 / 3), 1e-15);
}

static void metrics_go_by_number(void **state) {
    (void)state;
    kh_metrics m = { .accuracy = 1, .zeros = 2 };
    assert_string_equal(kh_metrics_name(0), "accuracy");
    assert_true(kh_metrics_value(&m, 0) == 1 && kh_metrics_value(&m, KH_N_METRIC - 1) == 2);
    assert_string_equal(kh_metrics_name(KH_N_METRIC - 1), "zeros");
    assert_null(kh_metrics_name(KH_N_METRIC));
    assert_null(kh_metrics_name(-1));
    assert_null(kh_metrics_text(KH_N_METRIC));
    assert_true(isnan(kh_metrics_value(&m, KH_N_METRIC)));
    assert_int_equal(kh_metrics_better(0), 1);
    assert_null(kh_ood_name(KH_N_OOD));
}

/* n rows of two classes, right with probability 0.8, confidence as the seed likes */
static void make_rows(double *p, int *label, int n, uint64_t seed) {
    kh_rng r = kh_rng_stream(seed, KH_RNG_TEST, 0, 0);
    for (int i = 0; i < n; i++) {
        double c = 0.5 + 0.5 * kh_rng_uniform(&r);
        int k = (int)kh_rng_below(&r, 2);
        p[2 * i + k] = c;
        p[2 * i + 1 - k] = 1 - c;
        label[i] = kh_rng_uniform(&r) < 0.8 ? k : 1 - k;
    }
}

static void intervals_are_as_wide_as_they_should_be(void **state) {
    (void)state;
    static double p[2 * 800];
    static int label[800];
    make_rows(p, label, 800, 5);
    kh_answers a = { p, label, 800, 2 };
    kh_metrics m, low, high;
    kh_bootstrap_opts o = { .n_resample = 1000, .level = 0.9, .seed = 3 };
    assert_int_equal(kh_metrics_compute(&m, &a, 0, &err), 0);
    assert_int_equal(kh_metrics_bootstrap(&low, &high, &a, 0, &o, &err), 0);
    double width = 2 * 1.6449 * sqrt(m.accuracy * (1 - m.accuracy) / 800);
    assert_near("the width", high.accuracy - low.accuracy, width, 0.15 * width);
    assert_true(low.accuracy < m.accuracy && m.accuracy < high.accuracy);
    assert_true(low.nll < m.nll && m.nll < high.nll && low.auroc_error < m.auroc_error);
}

static void intervals_do_not_depend_on_threads(void **state) {
    (void)state;
    kh_metrics low[2], high[2];
    kh_bootstrap_opts o = { .n_resample = 60, .level = 0.95, .seed = 9 };
    for (int i = 0; i < 2; i++) {
        kh_threads_set(i ? 3 : 1);
        assert_int_equal(kh_metrics_bootstrap(&low[i], &high[i], &four, 0, &o, &err), 0);
    }
    kh_threads_set(0);
    assert_memory_equal(
        &low[0].accuracy, &low[1].accuracy, sizeof(double) * 12); /* the last ones may be NaN */
    assert_memory_equal(&high[0].accuracy, &high[1].accuracy, sizeof(double) * 12);
    o.seed = 10;
    assert_int_equal(kh_metrics_bootstrap(&low[1], &high[1], &four, 0, &o, &err), 0);
    assert_true(memcmp(&low[0], &low[1], sizeof low[0]) != 0 ||
        memcmp(&high[0], &high[1], sizeof high[0]) != 0);
}

static void paired_differences(void **state) {
    (void)state;
    enum { N = 300 };
    static double p[2 * N], worse[2 * N];
    static int label[N];
    make_rows(p, label, N, 7);
    memcpy(worse, p, sizeof p);
    for (int i = 0; i < N; i += 10) { /* turns every tenth answer round */
        worse[2 * i] = p[2 * i + 1];
        worse[2 * i + 1] = p[2 * i];
    }
    kh_answers a = { p, label, N, 2 }, b = { worse, label, N, 2 };
    kh_metrics m[2];
    kh_compared d;
    kh_bootstrap_opts o = kh_bootstrap_defaults();
    assert_int_equal(kh_metrics_compute(&m[0], &a, 0, &err), 0);
    assert_int_equal(kh_metrics_compute(&m[1], &b, 0, &err), 0);
    assert_int_equal(kh_metrics_compare(&d, &a, &b, 0, &o, &err), 0);
    assert_near("the difference", d.diff.accuracy, m[0].accuracy - m[1].accuracy, 0);
    assert_true(d.low.accuracy > 0 && d.p.accuracy < 0.05);
    /* Paired: much narrower than two intervals side by side. */
    kh_metrics low, high;
    assert_int_equal(kh_metrics_bootstrap(&low, &high, &a, 0, &o, &err), 0);
    assert_true(d.high.accuracy - d.low.accuracy < high.accuracy - low.accuracy);
    /* Nothing differs from itself. */
    assert_int_equal(kh_metrics_compare(&d, &a, &a, 0, &o, &err), 0);
    assert_true(d.diff.nll == 0 && d.low.nll == 0 && d.high.nll == 0 && d.p.nll == 1);
}

static void rows_that_do_not_belong_together_are_refused(void **state) {
    (void)state;
    kh_compared d;
    kh_bootstrap_opts o = kh_bootstrap_defaults();
    kh_answers three = { four_p, four_label, 3, 2 },
               other = { four_p, (int[]){ 0, 1, 0, 1 }, 4, 2 };
    assert_int_equal(kh_metrics_compare(&d, &four, &three, 0, &o, &err), KH_EMISMATCH);
    assert_says(&err, "4 rows of 2 classes and 3 rows of 2 classes cannot be compared row by row");
    assert_int_equal(kh_metrics_compare(&d, &four, &other, 0, &o, &err), KH_EMISMATCH);
    assert_says(
        &err, "row 2 is of class 1 in the one and of class 0 in the other: not the same rows");
}

static void ood_intervals_hold_the_value(void **state) {
    (void)state;
    double in[80], out[60];
    kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 0, 0);
    for (int i = 0; i < 80; i++)
        in[i] = kh_rng_uniform(&r);
    for (int i = 0; i < 60; i++)
        out[i] = 0.3 + kh_rng_uniform(&r);
    kh_ood v, low, high;
    kh_bootstrap_opts o = kh_bootstrap_defaults();
    assert_int_equal(kh_ood_compute(&v, in, 80, out, 60, &err), 0);
    assert_int_equal(kh_ood_bootstrap(&low, &high, in, 80, out, 60, &o, &err), 0);
    assert_true(low.auroc < v.auroc && v.auroc < high.auroc && high.auroc - low.auroc < 0.25);
    assert_int_equal(kh_ood_bootstrap(&low, &high, in, 0, out, 60, &o, &err), KH_EARG);
}

/* -------------------------------------------------------------------------------------- memory */

static int all_of_it(void) {
    kh_metrics m, low, high;
    kh_ood o, o_low, o_high;
    kh_compared d;
    kh_bin bin[KH_BINS];
    kh_bootstrap_opts opts = { .n_resample = 3, .level = 0.9, .seed = 1 };
    const double u[] = { 0.1, 0.2, 0.3 };
    int rc = kh_metrics_compute(&m, &four, 0, &err);
    rc = rc ? rc : kh_reliability(&four, KH_BINS_ADAPTIVE, KH_BINS, bin, NULL, &err);
    rc = rc ? rc : kh_metrics_bootstrap(&low, &high, &four, 0, &opts, &err);
    rc = rc ? rc : kh_metrics_compare(&d, &four, &four, 0, &opts, &err);
    rc = rc ? rc : kh_ood_compute(&o, u, 3, u, 2, &err);
    return rc ? rc : kh_ood_bootstrap(&o_low, &o_high, u, 3, u, 2, &opts, &err);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    kh_threads_set(1);
    kh_alloc_fail_at(0, false);
    assert_int_equal(all_of_it(), 0);
    long n = kh_alloc_count();
    assert_true(n > 50);
    for (long i = 1; i <= n; i++) {
        kh_alloc_fail_at(i, i % 2);
        int rc = all_of_it();
        kh_alloc_fail_at(0, false);
        assert_int_equal(rc, KH_ENOMEM);
        assert_says(&err, "memory");
    }
    kh_threads_set(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simple_metrics_by_hand),
        cmocka_unit_test(curves_by_hand),
        cmocka_unit_test(aurrrc_includes_ties),
        cmocka_unit_test(aurc_of_ties_does_not_depend_on_the_order),
        cmocka_unit_test(risk_coverage_by_hand),
        cmocka_unit_test(undefined_areas_are_nan),
        cmocka_unit_test(nll_of_an_impossible_class_is_floored_and_counted),
        cmocka_unit_test(the_first_of_equals_is_predicted),
        cmocka_unit_test(reliability_by_hand),
        cmocka_unit_test(adaptive_bins_keep_ties_together),
        cmocka_unit_test(uncertainty_scores_by_hand),
        cmocka_unit_test(disagreement_and_ambiguity),
        cmocka_unit_test(what_cannot_be_judged_is_refused),
        cmocka_unit_test(rounded_probabilities_are_accepted),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(scores_that_are_no_numbers_are_refused),
        cmocka_unit_test(spread_over_seeds),
        cmocka_unit_test(metrics_go_by_number),
        cmocka_unit_test(intervals_are_as_wide_as_they_should_be),
        cmocka_unit_test(intervals_do_not_depend_on_threads),
        cmocka_unit_test(paired_differences),
        cmocka_unit_test(rows_that_do_not_belong_together_are_refused),
        cmocka_unit_test(ood_intervals_hold_the_value),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
