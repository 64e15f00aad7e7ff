/* test_tune_directions.c - steps of different lengths in different directions: reversible under
 * N(0, I) whatever was learned, and what is learned is what there is. */
#include "test.h"

#include "base/alloc.h"
#include "tune/directions.h"

#include <math.h>

enum { DIM = 6, POINTS = 60, DRAWS = 40000 };

static const double AXIS[DIM] = { 0.6, 0.8, 0, 0, 0, 0 }; /* along which the points hardly differ */

static double dot(const double *a, const double *b) {
    double sum = 0;
    for (int k = 0; k < DIM; k++)
        sum += a[k] * b[k];
    return sum;
}

/* Draws of N(0, I), but with this standard deviation along the axis, around 1 there. */
static void draw(double *x, int n, double sd, uint32_t seed) {
    for (int i = 0; i < n; i++) {
        kh_rng r = kh_rng_stream(seed, KH_RNG_TEST, (uint32_t)i, 0);
        double *at = x + i * DIM;
        for (int k = 0; k < DIM; k++)
            at[k] = kh_rng_normal(&r);
        double t = dot(at, AXIS);
        for (int k = 0; k < DIM && sd < 1; k++)
            at[k] += (1 + sd * t - t) * AXIS[k];
    }
}

static kh_directions learned(double sd, int n, uint32_t seed) {
    kh_directions d;
    double x[POINTS * DIM];
    draw(x, n, sd, seed);
    assert_int_equal(kh_directions_new(&d, POINTS, DIM, NULL), 0);
    kh_directions_learn(&d, x, n);
    return d;
}

static void a_narrow_direction_is_found(void **state) {
    (void)state;
    kh_directions d = learned(0.1, POINTS, 1);
    assert_int_equal(d.n, 1);
    assert_true(fabs(fabs(dot(d.w, AXIS)) - 1) < 0.01);
    assert_true(fabs(d.length[0] - 0.1) < 0.04);
    kh_directions_free(&d);
}

/* Draws of the prior itself are as wide everywhere, but for chance; and fewer points than there are
 * dimensions have no width at all in most directions, which says nothing. */
static void chance_is_no_direction(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < 50; seed++)
        for (int n = 1; n <= POINTS; n += 5) {
            kh_directions d = learned(1, n, 100 + seed);
            assert_int_equal(d.n, 0);
            kh_directions_free(&d);
        }
    kh_directions d = learned(0.1, DIM, 1);
    assert_int_equal(d.n, 0);
    kh_directions_free(&d);
}

/* x and where it goes are exchangeable: both N(0, I), and their covariance is symmetric, sqrt(1 -
 * (b length)^2) along the axis and sqrt(1 - b^2) across it. */
static void a_step_is_reversible_under_the_prior(void **state) {
    (void)state;
    kh_directions d = learned(0.1, POINTS, 1);
    double b = 0.8, across[DIM] = { 0.8, -0.6, 0, 0, 0, 0 };
    double cov[DIM][DIM] = { { 0 } }, var[DIM][DIM] = { { 0 } }, wcov = 0, own = 0;
    for (int i = 0; i < DRAWS; i++) {
        kh_rng r = kh_rng_stream(3, KH_RNG_TEST, (uint32_t)i, 0);
        double from[DIM], to[DIM];
        for (int k = 0; k < DIM; k++)
            from[k] = kh_rng_normal(&r);
        kh_directions_move(&d, b, &r, from, to);
        for (int j = 0; j < DIM; j++)
            for (int k = 0; k < DIM; k++) {
                cov[j][k] += from[j] * to[k] / DRAWS;
                var[j][k] += to[j] * to[k] / DRAWS;
            }
        own += dot(from, d.w) * dot(to, d.w) / DRAWS;
        wcov += dot(from, across) * dot(to, across) / DRAWS;
    }
    double error = 5 * sqrt(2.0 / DRAWS); /* of a variance of one */
    for (int j = 0; j < DIM; j++)
        for (int k = 0; k < DIM; k++) {
            assert_true(fabs(cov[j][k] - cov[k][j]) < error);
            assert_true(fabs(var[j][k] - (j == k)) < error);
        }
    assert_true(fabs(own - sqrt(1 - b * b * d.length[0] * d.length[0])) < error);
    assert_true(fabs(wcov - sqrt(1 - b * b)) < 2 * error); /* w is not quite the axis */
    kh_directions_free(&d);
}

static void memory_may_run_out(void **state) {
    (void)state;
    for (long n = 1;; n++) {
        kh_directions d;
        kh_alloc_fail_at(n, false);
        int rc = kh_directions_new(&d, POINTS, DIM, NULL);
        bool all = kh_alloc_count() < n;
        kh_alloc_fail_at(0, false);
        assert_int_equal(rc, all ? 0 : KH_ENOMEM);
        kh_directions_free(&d);
        if (all)
            break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_narrow_direction_is_found),
        cmocka_unit_test(chance_is_no_direction),
        cmocka_unit_test(a_step_is_reversible_under_the_prior),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
