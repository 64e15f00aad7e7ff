/* test_judge_ladder.c - the promise of kh_selector_ladder, by simulation: over 500 data sets of
 * each kind, promises that do not hold are at most delta of them.
 *
 * Two kinds of simulation. In the first, rows have an uncertainty u, uniform in (0, 1), and are
 * wrong with a known probability f(u), so the risk below any threshold is an integral. In the
 * second, a classifier is learned from few rows, thresholds come from cross-fitted answers to the
 * same rows, and the risk is that of the classifier learned from all of them, on 2,000 fresh rows:
 * what "keyhole tune FILE" does. */
#include "test.h"

#include "base/rng.h"
#include "judge/decisions.h"

#include <math.h>

enum { SETS = 500, ROWS_MOST = 480 };
static const double DELTA = 0.1;

/* Seven kinds of classifiers: as good as the promise needs, slightly worse, better where surest. */
static double wrong_at(int kind, double u) {
    switch (kind) {
    case 0: return 0.05;
    case 1: return 0.11;
    case 2: return 0.21;
    case 3: return 0.31;
    case 4: return 0.6 * u;
    case 5: return u < 0.2 ? 0.11 : u < 0.5 ? 0.29 : 0.5;
    default: return 0.06 + 0.3 * u;
    }
}
enum { KINDS = 7 };

static double risk_below(int kind, double threshold) {
    double sum = 0, t = threshold < 1 ? threshold : 1;
    for (int i = 0; i < 200; i++)
        sum += wrong_at(kind, t * (i + 0.5) / 200) / 200;
    return sum;
}

static void promises_hold_for_known_risks(void **state) {
    (void)state;
    static const int SIZES[] = { 12, 24, 48, 160, ROWS_MOST };
    double u[ROWS_MOST];
    bool good[ROWS_MOST];
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t j = 0; j < sizeof SIZES / sizeof *SIZES; j++) {
            int broken = 0, promised = 0;
            double answered = 0;
            for (int set = 0; set < SETS; set++) {
                kh_rng r = kh_rng_stream(
                    7, KH_RNG_EVAL, (uint32_t)set, (uint32_t)(kind * 8) + (uint32_t)j);
                for (int i = 0; i < SIZES[j]; i++) {
                    u[i] = kh_rng_uniform(&r);
                    good[i] = kh_rng_uniform(&r) >= wrong_at(kind, u[i]);
                }
                kh_selector s;
                assert_int_equal(kh_selector_ladder(&s, u, good, SIZES[j], DELTA, NULL), 0);
                assert_true(s.n_accepted > 0);
                promised += !s.estimate;
                broken += !s.estimate && risk_below(kind, s.threshold) > s.max_risk + 1e-9;
                answered += s.threshold < 1 ? s.threshold : 1;
            }
            print_message("# kind %d, %d rows: %.3f promised, %.3f broken, %.2f answered\n", kind,
                SIZES[j], promised / (double)SETS, broken / (double)SETS, answered / SETS);
            assert_true(broken <= DELTA * SETS);
        }
}

/* ---------------------------------------------------------------------------------- cross-fits */

enum { CLASSES = 3, DIM = 8, PER_CLASS = 16, N = CLASSES * PER_CLASS, FOLDS = 5, FRESH = 2000 };

typedef struct point {
    double x[DIM];
    int label;
} point;

static point draw_point(kh_rng *r, int label, double apart) {
    point p = { .label = label };
    for (int d = 0; d < DIM; d++)
        p.x[d] = kh_rng_normal(r) + (d == label ? apart : 0);
    return p;
}

/* Class means of the points whose fold is another. */
static void learn(const point *p, const int *fold, int leave, double mean[CLASSES][DIM]) {
    int count[CLASSES] = { 0 };
    memset(mean, 0, sizeof(double[CLASSES][DIM]));
    for (int i = 0; i < N; i++) {
        if (fold[i] == leave)
            continue;
        count[p[i].label]++;
        for (int d = 0; d < DIM; d++)
            mean[p[i].label][d] += p[i].x[d];
    }
    for (int k = 0; k < CLASSES; k++)
        for (int d = 0; d < DIM; d++)
            mean[k][d] /= count[k];
}

/* The nearest mean; 1 - its probability is the uncertainty. */
static bool classify(const point *p, double mean[CLASSES][DIM], double *u) {
    double score[CLASSES], sum = 0;
    int best = 0;
    for (int k = 0; k < CLASSES; k++) {
        score[k] = 0;
        for (int d = 0; d < DIM; d++)
            score[k] -= (p->x[d] - mean[k][d]) * (p->x[d] - mean[k][d]) / 2;
        best = score[k] > score[best] ? k : best;
    }
    for (int k = 0; k < CLASSES; k++)
        sum += exp(score[k] - score[best]);
    *u = 1 - 1 / sum;
    return best == p->label;
}

static void promises_hold_for_cross_fitted_rows(void **state) {
    (void)state;
    static const double APART[] = { 0, 1, 1.5, 2, 3 };
    for (size_t a = 0; a < sizeof APART / sizeof *APART; a++) {
        int broken = 0, promised = 0;
        double answered = 0;
        for (int set = 0; set < SETS; set++) {
            point p[N];
            int fold[N];
            double u[N], mean[CLASSES][DIM];
            bool good[N];
            kh_rng r = kh_rng_stream(11, KH_RNG_EVAL, (uint32_t)set, (uint32_t)a);
            for (int i = 0; i < N; i++) {
                p[i] = draw_point(&r, i % CLASSES, APART[a]);
                fold[i] = i / CLASSES % FOLDS;
            }
            for (int f = 0; f < FOLDS; f++) {
                learn(p, fold, f, mean);
                for (int i = 0; i < N; i++)
                    if (fold[i] == f)
                        good[i] = classify(&p[i], mean, &u[i]);
            }
            kh_selector s;
            assert_int_equal(kh_selector_ladder(&s, u, good, N, DELTA, NULL), 0);
            learn(p, fold, -1, mean);
            int given = 0, wrong = 0;
            for (int i = 0; i < FRESH; i++) {
                double v;
                point fresh = draw_point(&r, i % CLASSES, APART[a]);
                bool right = classify(&fresh, mean, &v);
                given += v < s.threshold;
                wrong += v < s.threshold && !right;
            }
            promised += !s.estimate;
            broken += !s.estimate && wrong > s.max_risk * given;
            answered += given / (double)FRESH;
        }
        print_message(
            "# cross-fitted, means %.1f apart: %.3f promised, %.3f broken, %.2f answered\n",
            APART[a], promised / (double)SETS, broken / (double)SETS, answered / SETS);
        assert_true(broken <= DELTA * SETS);
    }
}

/* Where nothing can be promised, something is answered, and it is called an estimate. */
static void few_rows_give_an_estimate(void **state) {
    (void)state;
    double u[6] = { 0.1, 0.2, 0.3, 0.4, 0.5, 0.6 };
    bool good[6] = { true, true, true, true, false, false };
    kh_selector s;
    assert_int_equal(kh_selector_ladder(&s, u, good, 6, DELTA, NULL), 0);
    assert_true(s.estimate);
    assert_int_equal(s.n_accepted, 4);
    assert_true(fabs(s.max_risk - 0.1) < 1e-12); /* (0 + 1/2) / 5 */
    assert_true(s.threshold == 0.5);
    memset(good, 0, sizeof good);
    assert_int_equal(kh_selector_ladder(&s, u, good, 6, DELTA, NULL), 0);
    assert_true(s.estimate && s.n_accepted == 6 && isinf(s.threshold));
}

/* The surest 150 of 400 rows are all right, of the others one in seven is wrong: 5 % could be
 * promised for less than half of the rows, and 10 % is, for more. */
static void a_risk_that_answers_half_is_preferred(void **state) {
    (void)state;
    enum { ALL = 400, SURE = 150, EVERY = 7 };
    double u[ALL];
    bool good[ALL];
    for (int i = 0; i < ALL; i++) {
        u[i] = i / (double)ALL;
        good[i] = i < SURE || i % EVERY != 0;
    }
    kh_selector s, tight;
    assert_int_equal(kh_selector_fit(&tight, u, good, ALL, 0.05, DELTA, NULL), 0);
    assert_true(tight.n_accepted > 0 && tight.coverage < 0.5);
    assert_int_equal(kh_selector_ladder(&s, u, good, ALL, DELTA, NULL), 0);
    assert_true(!s.estimate && s.max_risk == 0.1 && s.coverage >= 0.5);
    assert_true(s.risk_bound <= s.max_risk);
}

/* One early error does not end the search: 24 rows, the second surest wrong. */
static void one_early_error_is_forgiven(void **state) {
    (void)state;
    double u[24];
    bool good[24];
    for (int i = 0; i < 24; i++) {
        u[i] = i;
        good[i] = i != 1;
    }
    kh_selector s;
    assert_int_equal(kh_selector_ladder(&s, u, good, 24, DELTA, NULL), 0);
    assert_false(s.estimate);
    assert_int_equal(s.n_accepted, 24);
}

/* Without errors 0.95^m <= 3/4 0.1 takes 51 rows, so twice as many, less one, have them in their
 * half; 10 % passes as it is, for all rows. */
static void remedies_are_counted(void **state) {
    (void)state;
    double u[40];
    bool good[40];
    kh_ladder_step step[KH_LADDER_STEPS];
    for (int i = 0; i < 40; i++) {
        u[i] = i;
        good[i] = true;
    }
    assert_int_equal(kh_ladder_steps(step, u, good, 40, DELTA, NULL), 0);
    assert_true(step[0].risk == 0.05 && step[0].coverage == 0);
    assert_int_equal(step[0].rows, 101);
    assert_true(step[1].risk == 0.1 && step[1].coverage == 1);
    memset(good, 0, sizeof good);
    assert_int_equal(kh_ladder_steps(step, u, good, 40, DELTA, NULL), 0);
    assert_int_equal(step[3].rows, 0); /* no number of rows makes up for a half that is wrong */
}

/* What rows show that the classifier was chosen on is no promise; fresh rows make one again. */
static void rows_that_were_chosen_on_promise_nothing(void **state) {
    (void)state;
    enum { ROWS = 60 };
    double p[ROWS][2];
    int label[ROWS];
    for (int i = 0; i < ROWS; i++) {
        p[i][0] = 0.99 - i * 0.001;
        p[i][1] = 1 - p[i][0];
        label[i] = 0;
    }
    kh_answers a = { &p[0][0], label, ROWS, 2 };
    kh_decision_opts o = kh_decision_defaults();
    kh_decisions d;
    assert_int_equal(kh_decisions_fit(&d, &a, NULL, &o, NULL), 0);
    assert_false(d.selector.estimate);
    kh_decisions_free(&d);
    assert_int_equal(kh_decisions_fit(&d, &a, NULL, &o, NULL), 0);
    kh_decisions_chosen_on(&d);
    assert_true(d.selector.estimate && d.selector.n_accepted > 0);
    assert_int_equal(kh_decisions_select(&d, &a, NULL), 0);
    assert_false(d.selector.estimate);
    assert_int_equal(d.conformal.start[2], ROWS);
    double u[39];
    for (int i = 0; i < 39; i++)
        u[i] = (i * 7) % 39;
    assert_int_equal(kh_decisions_outside(&d, u, 39, NULL), 0);
    assert_true(d.ood == 37); /* the 38th smallest: 40 * 0.95 */
    kh_decisions_free(&d);
}

/* A classifier that has learned from its dev rows is too sure of them, and sets by them are too
 * small; those of cross-fitted rows are what a fit on these rows gives, and no memory is lost. */
static void sets_follow_the_rows_that_were_not_learned_from(void **state) {
    (void)state;
    enum { ROWS = 50 };
    double sure[ROWS][2], fresh[ROWS][2];
    int label[ROWS] = { 0 };
    for (int i = 0; i < ROWS; i++) {
        sure[i][0] = 0.999 - i * 1e-5;
        fresh[i][0] = 0.95 - i * 0.01;
        sure[i][1] = 1 - sure[i][0];
        fresh[i][1] = 1 - fresh[i][0];
    }
    kh_answers learned = { &sure[0][0], label, ROWS, 2 }, held = { &fresh[0][0], label, ROWS, 2 };
    kh_decision_opts o = kh_decision_defaults();
    kh_decisions d;
    bool in[2];
    kh_row row = { .a = "a", .n_a = 1 };
    const double p[2] = { 0.9, 0.1 };
    assert_int_equal(kh_decisions_fit(&d, &learned, NULL, &o, NULL), 0);
    assert_int_equal(kh_decide(&d, &row, p, NAN, in).set_size, 0);
    assert_int_equal(kh_decisions_select(&d, &held, NULL), 0);
    assert_int_equal(kh_decide(&d, &row, p, NAN, in).set_size, 1);
    assert_true(in[0]);
    assert_int_equal(d.conformal.start[2], ROWS);
    assert_true(fabs(d.conformal.score[0] - 0.05) < 1e-12);
    kh_decisions_free(&d);
    o.max_risk = 0; /* sets alone */
    assert_int_equal(kh_decisions_fit(&d, &learned, NULL, &o, NULL), 0);
    assert_int_equal(kh_decisions_select(&d, &held, NULL), 0);
    assert_int_equal(kh_decide(&d, &row, p, NAN, in).set_size, 1);
    kh_decisions_free(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(promises_hold_for_known_risks),
        cmocka_unit_test(promises_hold_for_cross_fitted_rows),
        cmocka_unit_test(few_rows_give_an_estimate),
        cmocka_unit_test(a_risk_that_answers_half_is_preferred),
        cmocka_unit_test(one_early_error_is_forgiven),
        cmocka_unit_test(remedies_are_counted),
        cmocka_unit_test(rows_that_were_chosen_on_promise_nothing),
        cmocka_unit_test(sets_follow_the_rows_that_were_not_learned_from),
    };
    return cmocka_run_group_tests_name("judge_ladder", tests, NULL, NULL);
}
