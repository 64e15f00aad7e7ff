/* test_tune_elbo.c - variational inference where the answer is known: the divergence against
 * quadrature, and a Gaussian likelihood whose posterior has a closed form. */
#include "test.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "tune/cmaes.h"
#include "tune/elbo.h"

#include <math.h>

/* ------------------------------------------------------------------------------ the divergence */

/* The integral of q log(q / p) over 24 standard deviations, by the trapezoidal rule, which is exact
 * to rounding here. */
static double kl_by_quadrature(double mu, double v, double prior) {
    const int n = 40000;
    double from = mu - 12 * sqrt(v), step = 24 * sqrt(v) / n, sum = 0;
    for (int i = 0; i <= n; i++) {
        double x = from + i * step, log_q = -(x - mu) * (x - mu) / (2 * v) - log(2 * M_PI * v) / 2;
        double log_p = -x * x / (2 * prior) - log(2 * M_PI * prior) / 2;
        sum += exp(log_q) * (log_q - log_p) * step;
    }
    return sum;
}

static void divergence_is_the_integral(void **state) {
    (void)state;
    static const double mu[] = { 0, 3, -7.5, 0.01 }, v[] = { 50, 1, 0.02, 300 };
    double lambda[8], total = 0;
    for (int i = 0; i < 4; i++) {
        double one[] = { mu[i], v[i] }, want = kl_by_quadrature(mu[i], v[i], 50);
        assert_true(fabs(kh_elbo_kl(one, 1, 50) - want) < 1e-9 * (1 + want));
        lambda[i] = mu[i];
        lambda[4 + i] = i % 2 ? -v[i] : v[i]; /* a variance is taken without its sign */
        total += want;
    }
    assert_true(fabs(kh_elbo_kl(lambda, 4, 50) - total) < 1e-9 * (1 + total));
    assert_true(kh_elbo_kl((double[]){ 0, 50 }, 1, 50) == 0);
    assert_true(isfinite(kh_elbo_kl((double[]){ 1, 0 }, 1, 50)));
}

/* ----------------------------------------------------------------------------------- the draws */

static void draws_have_mean_and_variance(void **state) {
    (void)state;
    enum { N = 20000 };
    double lambda[] = { 2, -1, 4, -0.25 }, sum[2] = { 0 }, squares[2] = { 0 };
    for (int s = 0; s < N; s++) {
        float z[2];
        kh_elbo_draw(lambda, 2, 3, 1, (uint32_t)s, z);
        for (int i = 0; i < 2; i++) {
            sum[i] += z[i];
            squares[i] += (z[i] - lambda[i]) * (z[i] - lambda[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        double v = fabs(lambda[2 + i]);
        assert_true(fabs(sum[i] / N - lambda[i]) < 4 * sqrt(v / N));
        assert_true(fabs(squares[i] / N / v - 1) < 4 * sqrt(2.0 / N));
    }
}

/* ------------------------------------------------------------------- a posterior that is known */

enum { DIM = 3, DATA = 20 };

/* x_ij ~ N(z_j, 9), prior N(0, 50): the posterior of z_j is N(m_j, s^2), 1 / s^2 = DATA / 9 + 1
 * / 50. */
typedef struct toy {
    double x[DATA][DIM];
    int calls;
} toy;

static const double NOISE = 9, PRIOR = 50;

static toy toy_data(void) {
    toy t = { .calls = 0 };
    kh_rng r = kh_rng_stream(5, KH_RNG_TEST, 0, 0);
    for (int i = 0; i < DATA; i++)
        for (int j = 0; j < DIM; j++)
            t.x[i][j] = 4 * j - 3 + sqrt(NOISE) * kh_rng_normal(&r);
    return t;
}

static int toy_nll(void *self, const float *z, int n, double *f, kh_err *err) {
    toy *t = self;
    (void)err;
    t->calls += n;
    for (int k = 0; k < n; k++) {
        f[k] = 0;
        for (int i = 0; i < DATA; i++)
            for (int j = 0; j < DIM; j++)
                f[k] += (t->x[i][j] - (double)z[k * DIM + j]) *
                    (t->x[i][j] - (double)z[k * DIM + j]) / (2 * NOISE);
    }
    return 0;
}

static kh_elbo_opts defaults(void) {
    kh_elbo_opts o = { 0 };
    kh_opts_init(kh_elbo_table, &o);
    return o;
}

static void the_known_posterior_is_found(void **state) {
    (void)state;
    toy t = toy_data();
    kh_elbo_opts o = defaults();
    kh_objective nll = { DIM, toy_nll, &t };
    kh_elbo *e;
    enum { LAST = 60, GENERATIONS = 260 };
    double mu[DIM] = { 0 }, v[DIM] = { 0 }, lambda[2 * DIM];
    o.draws = 100;
    assert_int_equal(kh_elbo_new(&e, DIM, &o, 1, NULL), 0);
    for (int g = 0; g < GENERATIONS; g++) {
        assert_int_equal(kh_elbo_step(e, &nll, NULL), 0);
        kh_cmaes_mean(e->es, lambda);
        for (int j = 0; j < DIM && g >= GENERATIONS - LAST;
             j++) { /* each generation has noise of its own: average it out */
            mu[j] += lambda[j] / LAST;
            v[j] += fabs(lambda[DIM + j]) / LAST;
        }
    }
    assert_int_equal(t.calls, GENERATIONS * o.pop * o.draws);
    double s2 = 1 / (DATA / NOISE + 1 / PRIOR);
    for (int j = 0; j < DIM; j++) {
        double sum = 0;
        for (int i = 0; i < DATA; i++)
            sum += t.x[i][j];
        double m = s2 * sum / NOISE;
        /* 60 generations of 100 draws each estimate mean and variance from 6000 draws in all */
        if (!(fabs(mu[j] - m) < 4 * sqrt(s2 / 6000)))
            fail_msg("coordinate %d: mean %g, expected %g", j, mu[j], m);
        if (!(fabs(v[j] / s2 - 1) < 4 * sqrt(2.0 / 6000)))
            fail_msg("coordinate %d: variance %g, expected %g", j, v[j], s2);
    }
    kh_elbo_free(e);
}

/* Without the divergence nothing holds the variance up. */
static void without_the_prior_the_variance_collapses(void **state) {
    (void)state;
    toy t = toy_data();
    kh_elbo_opts o = defaults();
    o.kl_weight = 0;
    kh_objective nll = { DIM, toy_nll, &t };
    kh_elbo *e;
    assert_int_equal(kh_elbo_new(&e, DIM, &o, 1, NULL), 0);
    for (int g = 0; g < 200; g++)
        assert_int_equal(kh_elbo_step(e, &nll, NULL), 0);
    for (int j = 0; j < DIM; j++)
        assert_true(fabs(kh_elbo_candidate(e, e->top)[DIM + j]) < 0.05);
    kh_elbo_free(e);
}

static void common_noise_is_shared_and_fresh_noise_is_not(void **state) {
    (void)state;
    for (int common = 0; common < 2; common++) {
        toy t = toy_data();
        kh_elbo_opts o = defaults();
        o.common = common;
        kh_objective nll = { DIM, toy_nll, &t };
        kh_elbo *e;
        assert_int_equal(kh_elbo_new(&e, DIM, &o, 1, NULL), 0);
        assert_int_equal(kh_elbo_step(e, &nll, NULL), 0);
        double noise[2];
        for (int k = 0; k < 2; k++) {
            const double *lambda = kh_elbo_candidate(e, k);
            noise[k] = ((double)e->z[(size_t)k * (size_t)o.draws * DIM] - lambda[0]) /
                sqrt(fabs(lambda[DIM]));
        }
        assert_int_equal(fabs(noise[0] - noise[1]) < 1e-5, common);
        kh_elbo_free(e);
    }
}

static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    kh_elbo_opts o = defaults();
    long n = 1;
    for (bool done = false; !done; n++) {
        kh_elbo *e;
        kh_alloc_fail_at(n, false);
        int rc = kh_elbo_new(&e, DIM, &o, 1, NULL);
        done = kh_alloc_count() < n;
        kh_alloc_fail_at(0, false);
        assert_int_equal(rc, done ? 0 : KH_ENOMEM);
        kh_elbo_free(e);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divergence_is_the_integral),
        cmocka_unit_test(draws_have_mean_and_variance),
        cmocka_unit_test(the_known_posterior_is_found),
        cmocka_unit_test(without_the_prior_the_variance_collapses),
        cmocka_unit_test(common_noise_is_shared_and_fresh_noise_is_not),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests_name("elbo", tests, NULL, NULL);
}
