/* test_judge_decide.c - do the decisions keep their promises? Conformal sets, --max-risk, OOD
 * thresholds over simulated data sets whose truth is known, and what is refused. */
#include "judge_vectors.h"

#include "base/alloc.h"
#include "base/rng.h"

enum { N_SET = 500 };

static kh_err err;

/* Whether `hits` of n with probability p each is within what chance allows but once in ten
 * thousand, on either side. */
static void assert_binomial(const char *what, int hits, int n, double p) {
    double below = kh_binomial_cdf(hits, n, p), above = 1 - kh_binomial_cdf(hits - 1, n, p);
    if (below < 5e-5 || above < 5e-5)
        fail_msg("%s: %d of %d, expected a share of %g", what, hits, n, p);
}

/* ----------------------------------------------------------------------------------- conformal */

enum { K = 3, N_CAL = 39, N_NEW = 100 };

/* A classifier with something to say; with `votes` its probabilities are shares of so many votes,
 * so they tie. */
static void draw_row(kh_rng *r, int votes, double *p, int *label) {
    double z[K], sum = 0;
    *label = (int)kh_rng_categorical(r, (double[]){ 0.5, 0.3, 0.2 }, K);
    for (int k = 0; k < K; k++) {
        z[k] = exp(1.2 * kh_rng_normal(r) + (k == *label ? 1.5 : 0));
        sum += z[k];
    }
    for (int k = 0; k < K; k++)
        p[k] = votes ? 0 : z[k] / sum;
    for (int v = 0; v < votes; v++)
        p[kh_rng_categorical(r, z, K)] += 1.0 / votes;
}

typedef struct coverage {
    int first;      /* data sets whose first new row is covered: exactly binomial */
    double mean;    /* over all new rows of all data sets */
    double of_rare; /* the same over rows of class 2 */
    double size;
} coverage;

static coverage simulate(int votes, double alpha, bool per_class, bool randomised) {
    coverage c = { 0 };
    int covered = 0, rare = 0, rare_covered = 0;
    for (int s = 0; s < N_SET; s++) {
        kh_rng r = kh_rng_stream(11, KH_RNG_TEST, (uint32_t)s, (uint32_t)votes);
        double p[N_CAL * K], q[K];
        int label[N_CAL], y;
        bool in[K];
        kh_conformal fit;
        for (int i = 0; i < N_CAL; i++)
            draw_row(&r, votes, p + i * K, &label[i]);
        assert_int_equal(
            kh_conformal_fit(&fit, &(kh_answers){ p, label, N_CAL, K }, alpha, per_class, &err), 0);
        for (int i = 0; i < N_NEW; i++) {
            draw_row(&r, votes, q, &y);
            c.size +=
                kh_conformal_set(&fit, q, randomised ? kh_conformal_tie(5, s * N_NEW + i) : 1, in);
            covered += in[y];
            c.first += i == 0 && in[y];
            rare += y == 2;
            rare_covered += y == 2 && in[y];
        }
        kh_conformal_free(&fit);
    }
    c.mean = (double)covered / (N_SET * N_NEW);
    c.of_rare = (double)rare_covered / rare;
    c.size /= N_SET * N_NEW;
    return c;
}

/* The coverage of one data set is Beta distributed around the promise with variance a (1 - a) / (n
 * + 2); 4 standard errors. */
static double band(double alpha, int n) {
    return 4 * sqrt(alpha * (1 - alpha) * (1.0 / (n + 2) + 1.0 / N_NEW) / N_SET);
}

static void randomised_sets_cover_exactly(void **state) {
    (void)state;
    for (int votes = 0; votes <= 10; votes += 5) {
        coverage c = simulate(votes, 0.1, false, true);
        assert_binomial("randomised sets", c.first, N_SET, 0.9);
        assert_near("the mean coverage", c.mean, 0.9, band(0.1, N_CAL));
    }
}

static void levels_between_ranks_are_met_exactly_too(void **state) {
    (void)state;
    coverage c = simulate(0, 0.137, false, true);
    assert_near("the mean coverage", c.mean, 1 - 0.137, band(0.137, N_CAL));
}

static void sets_without_randomness_cover_at_least(void **state) {
    (void)state;
    coverage smooth = simulate(0, 0.1, false, false), votes = simulate(5, 0.1, false, false),
             random = simulate(5, 0.1, false, true);
    /* Without ties (n + 1) alpha = 4 is whole, and the coverage is exact again. */
    assert_near("the mean coverage", smooth.mean, 0.9, band(0.1, N_CAL));
    assert_binomial("sets", smooth.first, N_SET, 0.9);
    /* With ties they cover more, and are larger than randomised ones. */
    assert_true(votes.mean > 0.9 + band(0.1, N_CAL));
    assert_true(votes.size > random.size);
}

static void class_conditional_sets_cover_the_rare_class(void **state) {
    (void)state;
    coverage marginal = simulate(0, 0.2, false, true), within = simulate(0, 0.2, true, true);
    assert_near("coverage of the rare class", within.of_rare, 0.8, 2 * band(0.2, 7));
    assert_near("coverage", within.mean, 0.8, 2 * band(0.2, 7));
    assert_near("marginal coverage", marginal.mean, 0.8, band(0.2, N_CAL));
}

static void too_few_rows_give_all_classes(void **state) {
    (void)state;
    const double p[] = { 0.9, 0.1, 0.8, 0.2, 0.7, 0.3, 0.6, 0.4 };
    kh_conformal c;
    bool in[2];
    assert_int_equal(
        kh_conformal_fit(&c, &(kh_answers){ p, (int[]){ 0, 0, 0, 0 }, 4, 2 }, 0.1, false, &err), 0);
    assert_near("the smallest level", c.min_alpha, 0.2, 1e-15);
    assert_int_equal(kh_conformal_set(&c, (double[]){ 1, 0 }, 1, in), 2);
    kh_conformal_free(&c);
    /* At 0.2 the rank is 4: everything up to the largest score, 0.4, stays. */
    assert_int_equal(
        kh_conformal_fit(&c, &(kh_answers){ p, (int[]){ 0, 0, 0, 0 }, 4, 2 }, 0.2, false, &err), 0);
    assert_int_equal(kh_conformal_set(&c, (double[]){ 0.6, 0.4 }, 1, in), 1);
    assert_true(in[0] && !in[1]);
    assert_int_equal(kh_conformal_set(&c, (double[]){ 0.5, 0.5 }, 1, in),
        0); /* neither fits: an empty set says so */
    kh_conformal_free(&c);
    /* A class that was never seen is never excluded. */
    assert_int_equal(
        kh_conformal_fit(&c, &(kh_answers){ p, (int[]){ 0, 0, 0, 0 }, 4, 2 }, 0.2, true, &err), 0);
    assert_int_equal(kh_conformal_set(&c, (double[]){ 1, 0 }, 1, in), 2);
    assert_near("the smallest level", c.min_alpha, 1, 0);
    kh_conformal_free(&c);
}

static void ties_are_decided_by_seed_and_row(void **state) {
    (void)state;
    assert_true(kh_conformal_tie(1, 2) == kh_conformal_tie(1, 2));
    assert_true(kh_conformal_tie(1, 2) != kh_conformal_tie(1, 3) &&
        kh_conformal_tie(1, 2) != kh_conformal_tie(2, 2));
}

/* ------------------------------------------------------------------------------------ max-risk */

/* Rows of uncertainty u in (0, 1) that are wrong with probability worst * u: the risk below t is
 * worst * t / 2. */
static void draw_scores(kh_rng *r, int n, int votes, double worst, double *u, bool *good) {
    for (int i = 0; i < n; i++) {
        u[i] = kh_rng_uniform(r);
        if (votes)
            u[i] = (double)kh_rng_below(r, (uint32_t)votes + 1) / votes;
        good[i] = kh_rng_uniform(r) >= worst * u[i];
    }
}

/* The true risk of answering where u < t; for votes the mean of the values below t. */
static double true_risk(double t, int votes, double worst) {
    if (!votes)
        return worst * (t < 1 ? t : 1) / 2;
    double sum = 0;
    int count = 0;
    for (int v = 0; v <= votes; v++)
        if ((double)v / votes < t) {
            sum += worst * v / votes;
            count++;
        }
    return count ? sum / count : 0;
}

static double break_promises(
    int n, int votes, double worst, double risk, double delta, double *mean_coverage) {
    enum { MOST = 1000 };
    static double u[MOST];
    static bool good[MOST];
    int broken = 0;
    *mean_coverage = 0;
    for (int s = 0; s < N_SET; s++) {
        kh_rng r = kh_rng_stream(23, KH_RNG_TEST, (uint32_t)s, (uint32_t)(n + votes));
        kh_selector t;
        draw_scores(&r, n, votes, worst, u, good);
        assert_int_equal(kh_selector_fit(&t, u, good, n, risk, delta, &err), 0);
        *mean_coverage += t.coverage / N_SET;
        broken += t.n_accepted > 0 && true_risk(t.threshold, votes, worst) > risk;
    }
    /* at most delta, up to chance: fewer is always fine */
    if (1 - kh_binomial_cdf(broken - 1, N_SET, delta) < 1e-4)
        fail_msg("n %d, votes %d, risk %g: the promise was broken %d of %d times, allowed %g", n,
            votes, risk, broken, N_SET, delta);
    return (double)broken / N_SET;
}

static void the_risk_stays_below_what_was_promised(void **state) {
    (void)state;
    double covers;
    break_promises(32, 0, 0.6, 0.1, 0.1, &covers);
    break_promises(32, 10, 0.6, 0.2, 0.2, &covers);
    break_promises(200, 0, 0.6, 0.1, 0.1, &covers);
    break_promises(200, 10, 0.6, 0.1, 0.1, &covers);
    break_promises(1000, 0, 1, 0.05, 0.05, &covers);
    break_promises(1000, 20, 1, 0.1, 0.1, &covers);
    break_promises(1000, 3, 1, 0.3, 0.1, &covers);
}

static void the_promise_is_not_bought_with_silence(void **state) {
    (void)state;
    double covers;
    /* The best threshold without a promise covers 0.1 * 2 / 0.6 = a third. */
    double broken = break_promises(1000, 0, 0.6, 0.1, 0.1, &covers);
    assert_true(covers > 0.18 && covers < 1.0 / 3);
    assert_true(broken > 0); /* delta is used, not wasted */
    /* A classifier that keeps the promise everywhere answers everywhere. */
    break_promises(1000, 0, 0.05, 0.1, 0.1, &covers);
    assert_true(covers > 0.99);
}

static void a_selector_by_hand(void **state) {
    (void)state;
    enum { N = 30 };
    double u[N];
    bool good[N];
    for (int i = 0; i < N; i++) {
        u[i] = i;
        good[i] = i < 25;
    }
    kh_selector s;
    /* 0.9^22 = 0.0985 <= 0.1 < 0.9^21: start at 22 right answers. */
    assert_int_equal(kh_selector_fit(&s, u, good, N, 0.1, 0.1, &err), 0);
    assert_int_equal(s.n_needed, 22);
    assert_int_equal(s.n_accepted, 25);
    assert_int_equal(s.n_wrong, 0);
    assert_near("threshold", s.threshold, 25, 0);
    assert_near("coverage", s.coverage, 25.0 / 30, 1e-15);
    assert_near("bound", s.risk_bound, 1 - pow(0.1, 1.0 / 25), 1e-12);
    assert_true(s.coverage_low < s.coverage && s.coverage < s.coverage_high);
    good[3] = false; /* one early error and 22 rows cannot show it */
    assert_int_equal(kh_selector_fit(&s, u, good, N, 0.1, 0.1, &err), 0);
    assert_int_equal(s.n_accepted, 0);
    assert_true(isinf(s.threshold) && s.threshold < 0 && isnan(s.risk) && s.coverage == 0 &&
        s.coverage_low == 0);
    /* ties are accepted together */
    for (int i = 0; i < N; i++) {
        u[i] = i < 27 ? 0 : 1;
        good[i] = true;
    }
    assert_int_equal(kh_selector_fit(&s, u, good, N, 0.1, 0.1, &err), 0);
    assert_int_equal(s.n_accepted, 30);
    assert_true(isinf(s.threshold) && s.threshold > 0 && s.coverage == 1);
}

static void binomial_edges(void **state) {
    (void)state;
    assert_true(kh_binomial_cdf(-1, 5, 0.5) == 0 && kh_binomial_cdf(5, 5, 0.5) == 1);
    assert_true(kh_binomial_cdf(0, 5, 0) == 1 && kh_binomial_cdf(4, 5, 1) == 0);
    assert_near("(1 - p)^n", kh_binomial_cdf(0, 50, 0.1), pow(0.9, 50), 1e-15);
    assert_near("the rule of three", kh_binomial_upper(0, 100, 0.05), 1 - pow(0.05, 0.01), 1e-12);
    assert_true(kh_binomial_upper(7, 7, 0.05) == 1);
    double million = kh_binomial_cdf(500000, 1000000, 0.5);
    assert_near("half of a million", million, 0.5 + 0.5 * 7.978845e-4, 1e-6);
    assert_true(kh_binomial_cdf(1000, 1000000, 0.5) == 0);
}

/* ----------------------------------------------------------------------------------------- OOD */

static void the_ood_threshold_keeps_its_share(void **state) {
    (void)state;
    enum { N = 59, NEW = 200 };
    int first = 0;
    double kept = 0, u[N], t;
    for (int s = 0; s < N_SET; s++) {
        kh_rng r = kh_rng_stream(31, KH_RNG_TEST, (uint32_t)s, 0);
        for (int i = 0; i < N; i++)
            u[i] = kh_rng_normal(&r);
        assert_int_equal(kh_ood_threshold(&t, u, N, 0.95, &err), 0);
        for (int i = 0; i < NEW; i++) {
            bool in = kh_rng_normal(&r) <= t;
            kept += (double)in / (N_SET * NEW);
            first += i == 0 && in;
        }
    }
    assert_binomial("rows let in", first, N_SET, 0.95); /* (n + 1) keep = 57 is whole: exact */
    assert_near(
        "the share kept", kept, 0.95, 4 * sqrt(0.95 * 0.05 * (1.0 / (N + 2) + 1.0 / NEW) / N_SET));
    assert_int_equal(kh_ood_threshold(&t, u, 18, 0.95, &err), 0); /* 19 * 0.95 > 18 */
    assert_true(isinf(t));
    assert_int_equal(kh_ood_threshold(&t, (double[]){ 3, 1, 2 }, 3, 0.5, &err), 0);
    assert_true(t == 2);
}

/* ------------------------------------------------------------------------------------- refused */

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    const double p[] = { 0.5, 0.5 }, u[] = { 0.5, NAN };
    const int label[] = { 0 };
    const bool good[] = { true, true };
    kh_conformal c;
    kh_selector s;
    double t;
    assert_int_equal(
        kh_conformal_fit(&c, &(kh_answers){ p, label, 1, 2 }, 0, false, &err), KH_EARG);
    assert_says(
        &err, "the share of sets that may miss the true class is 0, expected between 0 and 1");
    assert_int_equal(
        kh_conformal_fit(&c, &(kh_answers){ p, label, 0, 2 }, 0.1, false, &err), KH_EARG);
    assert_says(&err, "there are no rows to judge");
    kh_conformal_free(&c);
    assert_int_equal(kh_selector_fit(&s, u, good, 1, 1, 0.1, &err), KH_EARG);
    assert_says(&err, "the largest risk is 1, expected between 0 and 1");
    assert_int_equal(kh_selector_fit(&s, u, good, 1, 0.1, NAN, &err), KH_EARG);
    assert_says(&err, "the probability of breaking the promise is nan, expected between 0 and 1");
    assert_int_equal(kh_selector_fit(&s, u, good, 2, 0.1, 0.1, &err), KH_EARG);
    assert_says(&err, "the score of row 1 is not a number");
    assert_int_equal(kh_ood_threshold(&t, u, 1, 1, &err), KH_EARG);
    assert_says(&err, "the share of rows to keep is 1, expected between 0 and 1");
    assert_int_equal(kh_ood_threshold(&t, u, 0, 0.9, &err), KH_EARG);
    assert_says(&err, "there are no rows to judge");
}

static int all_of_it(void) {
    const double p[] = { 0.9, 0.1, 0.2, 0.8 }, u[] = { 0.1, 0.2, 0.3 };
    const bool good[] = { true, true, false };
    kh_conformal c;
    kh_selector s;
    double t;
    int rc = kh_conformal_fit(&c, &(kh_answers){ p, (int[]){ 0, 1 }, 2, 2 }, 0.5, true, &err);
    kh_conformal_free(&c);
    rc = rc ? rc : kh_selector_fit(&s, u, good, 3, 0.5, 0.5, &err);
    return rc ? rc : kh_ood_threshold(&t, u, 3, 0.5, &err);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    kh_alloc_fail_at(0, false);
    assert_int_equal(all_of_it(), 0);
    long n = kh_alloc_count();
    assert_int_equal(n, 4);
    for (long i = 1; i <= n; i++) {
        kh_alloc_fail_at(i, false);
        assert_int_equal(all_of_it(), KH_ENOMEM);
    }
    kh_alloc_fail_at(0, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(randomised_sets_cover_exactly),
        cmocka_unit_test(levels_between_ranks_are_met_exactly_too),
        cmocka_unit_test(sets_without_randomness_cover_at_least),
        cmocka_unit_test(class_conditional_sets_cover_the_rare_class),
        cmocka_unit_test(too_few_rows_give_all_classes),
        cmocka_unit_test(ties_are_decided_by_seed_and_row),
        cmocka_unit_test(the_risk_stays_below_what_was_promised),
        cmocka_unit_test(the_promise_is_not_bought_with_silence),
        cmocka_unit_test(a_selector_by_hand),
        cmocka_unit_test(binomial_edges),
        cmocka_unit_test(the_ood_threshold_keeps_its_share),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
