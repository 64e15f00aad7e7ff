/* test_judge_both.c - energy and distance as one score: against medians taken the slow way, what it
 * says of single numbers, and whether the threshold on it keeps its promise. */
#include "test.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "judge/metrics.h"
#include "keyhole.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 128 };

/* --------------------------------------------------------------------------- the slow way */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double slow_median(const double *x, int n) {
    double s[MOST];
    memcpy(s, x, (size_t)n * sizeof *s);
    qsort(s, (size_t)n, sizeof *s, ascending);
    return n % 2 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

/* From the middle, in spreads. */
static double slow_standard(double of, const double *x, int n) {
    double d[MOST], m = slow_median(x, n);
    for (int i = 0; i < n; i++)
        d[i] = fabs(x[i] - m);
    return (of - m) / (1.4826 * slow_median(d, n));
}

static double slow_score(double e, double d, const double *energy, const double *distance, int n) {
    return log(exp(slow_standard(e, energy, n)) + exp(slow_standard(d, distance, n)));
}

static int all_but(const double *x, int n, int i, double *out) {
    int m = 0;
    for (int k = 0; k < n; k++)
        if (k != i)
            out[m++] = x[k];
    return m;
}

static void left_out_is_what_the_others_say(void **state) {
    (void)state;
    kh_rng r = kh_rng_stream(7, KH_RNG_TEST, 0, 0);
    for (int n = 7; n < 60; n++)
        for (int ties = 0; ties < 2; ties++) {
            double e[MOST], d[MOST], u[MOST], x[MOST], y[MOST];
            for (int i = 0; i < n; i++) { /* ties: numbers of ten values, half of them twice */
                e[i] = ties ? (double)kh_rng_below(&r, 10) : kh_rng_normal(&r);
                d[i] = ties ? i % 7 : exp(kh_rng_normal(&r));
            }
            kh_both b;
            assert_int_equal(kh_both_fit(&b, e, d, n, u, NULL), 0);
            assert_true(b.middle[0] == slow_median(e, n) && b.middle[1] == slow_median(d, n));
            if (!kh_both_known(&b))
                continue;
            for (int i = 0; i < n; i++) {
                double want = slow_score(e[i], d[i], e, d, n);
                assert_true(fabs(kh_both_score(&b, e[i], d[i]) - want) < 1e-9);
                int m = all_but(e, n, i, x);
                all_but(d, n, i, y);
                want = slow_score(e[i], d[i], x, y, m);
                if (isfinite(want)) /* else its absence leaves no spread */
                    assert_true(fabs(u[i] - want) < 1e-9);
                assert_true(isfinite(u[i]));
            }
        }
}

static void either_of_the_two_may_say_so(void **state) {
    (void)state;
    const kh_both b = { .middle = { -8, 0.25 }, .spread = { 0.5, 0.05 } };
    assert_true(fabs(kh_both_score(&b, -8, 0.25) - log(2)) < 1e-12);
    assert_true(fabs(kh_both_score(&b, -3, 0.25) - 10) < 1e-4); /* energy alone */
    assert_true(fabs(kh_both_score(&b, -8, 0.75) - 10) < 1e-4); /* distance alone */
    assert_true(kh_both_score(&b, -100, 0.75) > 9.999);         /* one does not outvote the other */
    assert_true(kh_both_score(&b, -7.5, 0.3) > kh_both_score(&b, -7.5, 0.29));
    assert_true(kh_both_score(&b, 1e6, 0.25) == (1e6 + 8) / 0.5); /* no overflow */
    assert_true(isnan(kh_both_score(&b, NAN, 1)) && isnan(kh_both_score(&b, 1, NAN)));
}

static void without_a_spread_there_is_none(void **state) {
    (void)state;
    const double same[] = { 1, 1, 1, 2 }, apart[] = { 1, 2, 3, 4 }, odd[] = { 1, NAN, 2, 3 };
    kh_both b;
    kh_err err;
    assert_int_equal(kh_both_fit(&b, same, apart, 4, NULL, NULL), 0);
    assert_false(kh_both_known(&b));
    assert_int_equal(kh_both_fit(&b, apart, same, 4, NULL, NULL), 0);
    assert_false(kh_both_known(&b));
    assert_int_equal(kh_both_fit(&b, apart, apart, 4, NULL, NULL), 0);
    assert_true(kh_both_known(&b) && b.middle[0] == 2.5 && fabs(b.spread[1] - 1.4826) < 1e-12);
    assert_int_equal(kh_both_fit(&b, apart, odd, 4, NULL, &err), KH_EARG);
    assert_says(&err, "distances");
    assert_false(kh_both_known(&b));
    assert_int_equal(kh_both_fit(&b, apart, apart, 2, NULL, &err), KH_EARG);
    assert_says(&err, "2 rows have no middle and spread; 3 are needed");
    kh_alloc_fail_at(1, false);
    assert_int_equal(kh_both_fit(&b, apart, apart, 4, NULL, NULL), KH_ENOMEM);
    kh_alloc_fail_at(0, false);
}

/* ----------------------------------------------------------------------------- the promise */

enum { KINDS = 6, SETS = 1000, FRESH = 40, SIZES = 4 };

/* Energies and distances of rows of one kind: light and heavy tails, lopsided ones, alike, lumps.
 */
static void draw(kh_rng *r, int kind, double *e, double *d) {
    double a = kh_rng_normal(r), b = kh_rng_normal(r);
    *e = a;
    *d = b;
    if (kind == 1)
        *d = a + 0.3 * b;
    if (kind == 2) {
        *e = exp(a);
        *d = exp(b);
    }
    if (kind == 3) {
        *e = tan(3.14159265 * (kh_rng_uniform(r) - 0.5));
        *d = tan(3.14159265 * (kh_rng_uniform(r) - 0.5));
    }
    if (kind == 4) {
        *e = 0.2 * a + (kh_rng_uniform(r) < 0.1 ? 4 : 0);
        *d = 0.2 * b + (kh_rng_uniform(r) < 0.3 ? 3 : 0);
    }
    if (kind == 5)
        *d = -log(1 - kh_rng_uniform(r));
}

/* 19 rows are the fewest that can keep 95 %: there the slack is nothing, and the rows' own part in
 * middle and spread would break it. */
static void five_of_a_hundred_at_most_are_turned_away(void **state) {
    (void)state;
    static const int SIZE[SIZES] = { 19, 32, 64, 100 };
    for (int kind = 0; kind < KINDS; kind++)
        for (int s = 0; s < SIZES; s++) {
            kh_rng r = kh_rng_stream(11, KH_RNG_TEST, (uint32_t)kind, (uint32_t)s);
            long long away = 0;
            for (int set = 0; set < SETS; set++) {
                double e[MOST], d[MOST], u[MOST], t, x, y;
                for (int i = 0; i < SIZE[s]; i++)
                    draw(&r, kind, &e[i], &d[i]);
                kh_both b;
                assert_int_equal(kh_both_fit(&b, e, d, SIZE[s], u, NULL), 0);
                assert_int_equal(kh_ood_threshold(&t, u, SIZE[s], 0.95, NULL), 0);
                for (int i = 0; i < FRESH; i++) {
                    draw(&r, kind, &x, &y);
                    away += kh_both_score(&b, x, y) > t;
                }
            }
            double share = (double)away / (SETS * FRESH);
            if (share > 0.053) /* 0.05, and three standard errors of 1000 data sets */
                fail_msg("kind %d, %d rows: %.4f turned away", kind, SIZE[s], share);
            assert_true(share > 0.01); /* and not by turning away nothing */
        }
}

static void enough_rows_are_those_that_find_a_threshold(void **state) {
    (void)state;
    double u[60];
    for (int i = 0; i < 60; i++)
        u[i] = i;
    for (int n = 1; n <= 60; n++) {
        double t;
        assert_int_equal(kh_ood_threshold(&t, u, n, 0.95, NULL), 0);
        assert_true(kh_ood_enough(n, 0.95) == isfinite(t));
    }
    assert_true(!kh_ood_enough(18, 0.95) && kh_ood_enough(19, 0.95));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(left_out_is_what_the_others_say),
        cmocka_unit_test(either_of_the_two_may_say_so),
        cmocka_unit_test(without_a_spread_there_is_none),
        cmocka_unit_test(five_of_a_hundred_at_most_are_turned_away),
        cmocka_unit_test(enough_rows_are_those_that_find_a_threshold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
