/* test_tune_cmaes.c - CMA-ES: evaluation counts against pycma's, bounds, stop reasons, bad values,
 * threads. */
#include "functions.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "tune/boundary.h"
#include "base/eigen.h"

static int by_value(const void *a, const void *b) {
    const double *p = a, *q = b;
    return *p < *q ? -1 : *p > *q;
}

/* ------------------------------------------------------------------ evaluations, against pycma */

enum { SEEDS = 7 };

/* The median number of evaluations to 1e-9 over seeds that reach it; at most one may not. */
static double median_evals(function *f, int n, double start, double sigma, int variant) {
    double evals[SEEDS];
    int reached = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        kh_cmaes_opts o = kh_cmaes_defaults();
        o.target = 1e-9, o.seed = seed, o.variant = variant;
        kh_cmaes *c = new_cmaes(n, start, sigma, &o);
        if (minimise(c, f, -1) == KH_CMAES_TARGET) {
            double best;
            assert_true(f(kh_cmaes_best(c, &best), n) == best && best <= 1e-9);
            evals[reached++] = (double)kh_cmaes_evals(c);
        }
        kh_cmaes_free(c);
    }
    assert_true(reached >= SEEDS - 1);
    qsort(evals, (size_t)reached, sizeof *evals, by_value);
    return (evals[(reached - 1) / 2] + evals[reached / 2]) / 2;
}

static void assert_within(double got, double expected, double share) {
    if (fabs(got / expected - 1) > share)
        fail_msg("%.0f evaluations, expected %.0f within %.0f %%", got, expected, 100 * share);
}

/* pycma's median in tests/vectors/cmaes/reference.txt. */
static void read_reference(const char *wanted, int dim, int *pop, double *median) {
    FILE *in = fopen("tests/vectors/cmaes/reference.txt", "r");
    assert_non_null(in);
    char line[256], name[32];
    int n;
    bool found = false;
    while (!found && fgets(line, sizeof line, in))
        found = sscanf(line, "%31s %d %d %lf", name, &n, pop, median) == 4 &&
            strcmp(name, wanted) == 0 && n == dim;
    fclose(in);
    assert_true(found);
}

static void compare(function *f, const char *name, int n) {
    int pop;
    double expected;
    read_reference(name, n, &pop, &expected);
    bool valley = f == rosenbrock;
    kh_cmaes *c = new_cmaes(n, 0, 1, NULL);
    assert_int_equal(kh_cmaes_pop(c), pop);
    kh_cmaes_free(c);
    assert_within(
        median_evals(f, n, valley ? 0 : 3, valley ? 0.5 : 2, KH_CMAES_FULL), expected, 0.15);
}

#define REFERENCE_TEST(f, n) \
    static void f##_in_##n##_dimensions(void **state) { \
        (void)state; \
        compare(f, #f, n); \
    }
REFERENCE_TEST(sphere, 10)
REFERENCE_TEST(ellipsoid, 10)
REFERENCE_TEST(cigar, 10)
REFERENCE_TEST(discus, 10)
REFERENCE_TEST(diffpow, 10)
REFERENCE_TEST(rosenbrock, 10)
REFERENCE_TEST(sphere, 40)
REFERENCE_TEST(cigar, 40)

static void a_rotation_changes_nothing(void **state) {
    (void)state;
    assert_within(median_evals(turned_ellipsoid, 10, 3, 2, KH_CMAES_FULL),
        median_evals(ellipsoid, 10, 3, 2, KH_CMAES_FULL), 0.15);
}

/* Ros and Hansen (2008): on separable functions about n / 10 times faster than full CMA-ES, and
 * useless on rotated ones. */
static void the_separable_variant_is_faster_where_it_may_be(void **state) {
    (void)state;
    double full = median_evals(ellipsoid, 20, 3, 2, KH_CMAES_FULL);
    double separable = median_evals(ellipsoid, 20, 3, 2, KH_CMAES_SEPARABLE);
    assert_true(separable < full / 2);
    kh_cmaes_opts o = kh_cmaes_defaults();
    o.target = 1e-9, o.variant = KH_CMAES_SEPARABLE, o.max_evals = 4 * (int)full;
    kh_cmaes *c = new_cmaes(20, 3, 2, &o);
    assert_int_equal(minimise(c, turned_ellipsoid, -1), KH_CMAES_MAX_EVALS);
    kh_cmaes_free(c);
}

static void separable_in_200_dimensions(void **state) {
    (void)state;
    static const struct {
        function *f;
        long long evals;
    } cases[] = { { sphere, 25000 }, { ellipsoid, 70000 } };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        kh_cmaes_opts o = kh_cmaes_defaults();
        o.target = 1e-9, o.variant = KH_CMAES_SEPARABLE;
        kh_cmaes *c = new_cmaes(200, 3, 2, &o);
        assert_int_equal(minimise(c, cases[k].f, -1), KH_CMAES_TARGET);
        if (kh_cmaes_evals(c) > cases[k].evals)
            fail_msg("case %zu took %lld evaluations", k, kh_cmaes_evals(c));
        kh_cmaes_free(c);
    }
}

static void progress_in_500_dimensions(void **state) {
    (void)state;
    kh_cmaes_opts o = kh_cmaes_defaults();
    o.pop = 20, o.bound = 100;
    kh_cmaes *c = new_cmaes(500, 3, 1, &o);
    minimise(c, sphere, 30);
    double f;
    kh_cmaes_best(c, &f);
    assert_true(f < 0.85 * 4500); /* f(x0) */
    kh_cmaes_free(c);
}

static void small_dimensions_work(void **state) {
    (void)state;
    for (int n = 1; n <= 3; n++)
        for (int pop = 2; pop <= 9; pop++)
            for (int variant = 0; variant < 2; variant++) {
                kh_cmaes_opts o = kh_cmaes_defaults();
                o.pop = pop, o.variant = variant, o.target = 1e-9, o.max_evals = 20000;
                kh_cmaes *c = new_cmaes(n, 3, 2, &o);
                kh_cmaes_reason r = minimise(c, sphere, -1);
                assert_true(r == KH_CMAES_TARGET ||
                    pop < 4); /* two or three candidates tell too little to promise anything */
                kh_cmaes_free(c);
            }
}

static void without_active_updates_the_discus_takes_longer(void **state) {
    (void)state;
    double evals[2];
    for (int active = 0; active < 2; active++) {
        kh_cmaes_opts o = kh_cmaes_defaults();
        o.target = 1e-9, o.active = active;
        kh_cmaes *c = new_cmaes(20, 3, 2, &o);
        assert_int_equal(minimise(c, discus, -1), KH_CMAES_TARGET);
        evals[active] = (double)kh_cmaes_evals(c);
        kh_cmaes_free(c);
    }
    assert_true(evals[1] < 0.9 * evals[0]);
}

/* ----------------------------------------------------------------------------------- ask, tell */

static void candidates_come_from_named_streams(void **state) {
    (void)state;
    kh_cmaes_opts o = kh_cmaes_defaults();
    o.seed = 99;
    kh_cmaes *c = new_cmaes(6, 1.5, 0.25, &o);
    double x[9 * 6], again[9 * 6];
    assert_int_equal(kh_cmaes_pop(c), 9);
    kh_cmaes_ask(c, x);
    kh_cmaes_ask(c, again);
    assert_memory_equal(x, again, sizeof x);
    for (uint32_t k = 0; k < 9; k++) {
        kh_rng r = kh_rng_stream(99, KH_RNG_CMAES, 0, k);
        for (int i = 0; i < 6; i++)
            assert_true(x[k * 6 + (uint32_t)i] == 1.5 + 0.25 * kh_rng_normal(&r));
    }
    kh_cmaes_free(c);
}

/* The whole state after some generations, as bytes. */
static kh_buf state_of(const kh_cmaes *c) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    assert_int_equal(kh_cmaes_save(c, &b, NULL), 0);
    return b;
}

static void assert_same_state(const kh_cmaes *a, const kh_cmaes *b) {
    kh_buf p = state_of(a), q = state_of(b);
    assert_true(p.len == q.len && memcmp(p.data, q.data, p.len) == 0);
    kh_buf_free(&p);
    kh_buf_free(&q);
}

static void telling_without_asking_is_the_same(void **state) {
    (void)state;
    kh_cmaes *a = new_cmaes(5, 1, 1, NULL), *b = new_cmaes(5, 1, 1, NULL);
    double x[8 * 5], f[8] = { 5, 3, 8, 1, 2, 9, 4, 7 };
    for (int g = 0; g < 4; g++) {
        kh_cmaes_ask(a, x);
        kh_cmaes_tell(a, f);
        kh_cmaes_tell(b, f);
    }
    assert_same_state(a, b);
    kh_cmaes_free(a);
    kh_cmaes_free(b);
}

static double cubed(const double *x, int n) { return pow(ellipsoid(x, n), 3) - 7; }

/* Only the order of values counts. */
static void monotone_transformations_change_nothing(void **state) {
    (void)state;
    kh_cmaes *a = new_cmaes(7, 1, 1, NULL), *b = new_cmaes(7, 1, 1, NULL);
    minimise(a, ellipsoid, 60);
    minimise(b, cubed, 60);
    double x[2][7];
    kh_cmaes_mean(a, x[0]);
    kh_cmaes_mean(b, x[1]);
    assert_memory_equal(x[0], x[1], sizeof x[0]);
    assert_true(kh_cmaes_sigma(a) == kh_cmaes_sigma(b));
    kh_cmaes_free(a);
    kh_cmaes_free(b);
}

static void the_getters_tell_the_state(void **state) {
    (void)state;
    kh_cmaes *c = new_cmaes(4, 2, 0.5, NULL);
    double f, x[4];
    const double *best = kh_cmaes_best(c, &f);
    assert_true(isinf(f) && f > 0 && best[3] == 2);
    kh_cmaes_mean(c, x);
    assert_true(x[0] == 2 && kh_cmaes_sigma(c) == 0.5 && kh_cmaes_condition(c) == 1);
    assert_true(kh_cmaes_dim(c) == 4 && kh_cmaes_pop(c) == 8 && kh_cmaes_generation(c) == 0 &&
        kh_cmaes_evals(c) == 0);
    assert_int_equal(kh_cmaes_stop(c), KH_CMAES_GOING);
    minimise(c, cigar, 50);
    assert_true(
        kh_cmaes_generation(c) == 50 && kh_cmaes_evals(c) == 400 && kh_cmaes_condition(c) > 10);
    kh_cmaes_free(c);
    kh_cmaes_free(NULL);
}

/* -------------------------------------------------------------------------------------- bounds */

static void the_boundary_map(void **state) {
    (void)state;
    static const double cases[][2] = { { -100, 100 }, { 0, 1 }, { -3, 1e6 }, { 5, 5.001 },
        { -INFINITY, 2 }, { 4, INFINITY }, { -INFINITY, INFINITY } };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        double lo = cases[k][0], hi = cases[k][1], wide = isinf(hi - lo) ? 50 : hi - lo;
        double from = !isinf(lo) ? lo : isinf(hi) ? -50 : hi - 50, before = NAN, step = wide / 1000;
        for (double g = from - 5 * wide; g < from + 6 * wide; g += step) {
            double x = kh_boundary_map(g, lo, hi);
            assert_true(x >= lo && x <= hi);
            assert_true(!(
                fabs(x - before) > 1.01 * step)); /* continuous: never steeper than the identity */
            before = x;
            assert_true(fabs(kh_boundary_map(kh_boundary_inverse(x, lo, hi), lo, hi) - x) <=
                1e-12 * (fabs(x) + wide));
        }
    }
    assert_true(kh_boundary_map(0.3, 0, 1) == 0.3 && kh_boundary_map(17, -100, 100) == 17);
    assert_true(kh_boundary_map(-5.05, 0 - 5, 1) ==
        -5 + 0.25 * 0.25 / 1.2); /* margin 0.3: (g - (lo - al))^2 / (4 al) */
    assert_true(kh_boundary_map(-0.05, 0, 1) == 0 &&
        kh_boundary_inverse(0, 0, 1) == -0.05); /* the bound itself */
    assert_true(fabs(kh_boundary_map(-1.5, 0, 1) - kh_boundary_map(1.4, 0, 1)) <
        1e-15); /* mirrored at -0.05 */
    assert_true(kh_boundary_map(1e300, -1, 1) <= 1);
}

static double shift; /* where bowl has its optimum, in every coordinate */
static double bound_low, bound_high;
static double bowl(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        assert_true(x[i] >= bound_low && x[i] <= bound_high);
        sum += (1 + i) * (x[i] - shift) * (x[i] - shift);
    }
    return sum;
}

static void candidates_stay_within_bounds(void **state) {
    (void)state;
    static const double optimum[] = { 0.3, 1, 4, -1, -25, 0 };
    for (size_t k = 0; k < sizeof optimum / sizeof *optimum; k++)
        for (int variant = 0; variant < 2; variant++) {
            kh_cmaes_opts o = kh_cmaes_defaults();
            o.bound = 1, o.variant = variant;
            bound_low = -1, bound_high = 1, shift = optimum[k];
            kh_cmaes *c = new_cmaes(8, 0.5, 1, &o);
            assert_true(kh_cmaes_sigma(c) <= 2.0 / 3);
            kh_cmaes_reason r = minimise(c, bowl, -1);
            assert_true(r == KH_CMAES_TOLFUN || r == KH_CMAES_TOLX || r == KH_CMAES_TOLFUNHIST ||
                r == KH_CMAES_FLAT);
            double x[8];
            kh_cmaes_mean(c, x);
            for (int i = 0; i < 8; i++)
                assert_true(fabs(kh_cmaes_best(c, NULL)[i] - fmin(1, fmax(-1, shift))) < 1e-5 &&
                    x[i] >= -1 && x[i] <= 1);
            kh_cmaes_free(c);
        }
}

static void bounds_of_each_coordinate(void **state) {
    (void)state;
    double lower[3] = { 2, -INFINITY, -1 }, upper[3] = { INFINITY, -3, INFINITY };
    kh_cmaes_opts o = kh_cmaes_defaults();
    o.lower = lower, o.upper = upper, o.bound = 0.1;
    kh_cmaes *c;
    assert_int_equal(kh_cmaes_new(&c, (double[]){ 2, -3, 5 }, 3, 1, &o, NULL), 0);
    lower[0] = 7; /* they were copied */
    minimise(c, sphere, -1);
    const double *x = kh_cmaes_best(c, NULL);
    assert_true(
        x[0] >= 2 && x[0] < 2 + 1e-6 && x[1] <= -3 && x[1] > -3 - 1e-6 && fabs(x[2]) < 1e-4);
    kh_cmaes_free(c);
    /* one of the two alone */
    o.lower = (double[]){ 1 }, o.upper = NULL, o.bound = 0;
    assert_int_equal(kh_cmaes_new(&c, (double[]){ 3 }, 1, 1, &o, NULL), 0);
    minimise(c, sphere, -1);
    assert_true(fabs(kh_cmaes_best(c, NULL)[0] - 1) < 1e-6);
    kh_cmaes_free(c);
}

/* -------------------------------------------------------------------------------- stop reasons */

static double linear(const double *x, int n) { return -x[0] - 0.1 * x[n - 1]; }
static double constant(const double *x, int n) { return x[0] > 1e300 ? n : 3; }
static double not_a_number(const double *x, int n) { return n > 0 ? NAN : x[0]; }
static double far_bowl(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (x[i] - shift) * (x[i] - shift);
    return sum;
}
static double half_far_bowl(const double *x, int n) {
    return sphere(x + 1, n - 1) + (x[0] - shift) * (x[0] - shift);
}
/* Values that have nothing to do with x. */
static double noise(const double *x, int n) {
    uint64_t bits;
    memcpy(&bits, x, sizeof bits);
    kh_rng r = kh_rng_stream(bits, KH_RNG_TEST, (uint32_t)n, 0);
    return kh_rng_uniform(&r);
}

static kh_cmaes_opts nothing_stops(void) {
    kh_cmaes_opts o = kh_cmaes_defaults();
    o.tolfun = o.tolfunhist = o.tolx = o.tolfacupx = o.tolupsigma = o.tolcondition = 0;
    o.tolflat = 0, o.stagnation = false, o.max_evals = 100000;
    return o;
}

static void assert_stops(
    function *f, double start, const kh_cmaes_opts *o, kh_cmaes_reason expected) {
    int variants =
        expected == KH_CMAES_NO_EFFECT_AXIS ? 1 : 2; /* the separable one has no axes of its own */
    for (int variant = 0; variant < variants; variant++) {
        kh_cmaes_opts v = *o;
        v.variant = variant;
        kh_cmaes *c = new_cmaes(4, start, 1, &v);
        kh_cmaes_reason got = minimise(c, f, -1);
        if (got != expected)
            fail_msg("stopped by %s after %lld evaluations, expected %s", kh_cmaes_stop_name(got),
                kh_cmaes_evals(c), kh_cmaes_stop_name(expected));
        kh_cmaes_free(c);
    }
}

static void every_stop_reason(void **state) {
    (void)state;
    kh_cmaes_opts o = nothing_stops();
    o.max_evals = 1001;
    assert_stops(cigar, 3, &o, KH_CMAES_MAX_EVALS);
    o = nothing_stops(), o.target = 1;
    assert_stops(sphere, 3, &o, KH_CMAES_TARGET);
    o = nothing_stops();
    assert_stops(not_a_number, 3, &o, KH_CMAES_ALL_NAN);
    o = nothing_stops(), o.tolflat = 3;
    assert_stops(constant, 3, &o, KH_CMAES_FLAT);
    o = nothing_stops(), o.tolfun = 1e-11, o.tolfunhist = 1e-12;
    assert_stops(sphere, 3, &o, KH_CMAES_TOLFUN);
    o = nothing_stops(), o.tolfunhist = 1e-12;
    assert_stops(sphere, 3, &o, KH_CMAES_TOLFUNHIST);
    o = nothing_stops(), o.tolx = 1e-11;
    assert_stops(sphere, 3, &o, KH_CMAES_TOLX);
    o = nothing_stops(), o.tolfacupx = 1e3;
    assert_stops(linear, 3, &o, KH_CMAES_TOLFACUPX);
    o = nothing_stops(), o.tolupsigma = 10;
    assert_stops(linear, 3, &o, KH_CMAES_TOLUPSIGMA);
    o = nothing_stops(), o.tolcondition = 1e4;
    assert_stops(cigar, 3, &o, KH_CMAES_CONDITION);
    o = nothing_stops(), shift = 1e8;
    assert_stops(far_bowl, 1e8 + 10, &o, KH_CMAES_NO_EFFECT_AXIS);
    o = nothing_stops(), shift = 1e8;
    assert_stops(half_far_bowl, 1e8, &o, KH_CMAES_NO_EFFECT_COORD);
    o = nothing_stops(), o.stagnation = true;
    assert_stops(noise, 3, &o, KH_CMAES_STAGNATION);
}

static void reasons_have_names_and_sentences(void **state) {
    (void)state;
    for (int r = KH_CMAES_GOING; r <= KH_CMAES_STAGNATION; r++) {
        const char *text = kh_cmaes_stop_text((kh_cmaes_reason)r);
        assert_true(
            strlen(kh_cmaes_stop_name((kh_cmaes_reason)r)) > 2 && text[strlen(text) - 1] == '.');
    }
    assert_string_equal(kh_cmaes_stop_name(KH_CMAES_TOLX), "tolx");
}

/* While the step size is still growing fast, the path of C stands still: otherwise C would become a
 * needle first. */
static void a_growing_step_size_holds_the_covariance_back(void **state) {
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        kh_cmaes_opts o = nothing_stops();
        o.variant = variant;
        kh_cmaes *c = new_cmaes(20, 0, 1e-3, &o);
        minimise(c, linear, 45);
        assert_true(kh_cmaes_sigma(c) > 0.03 &&
            kh_cmaes_condition(c) < (variant == KH_CMAES_FULL ? 30 : 1000));
        kh_cmaes_free(c);
    }
}

/* A caller who does not heed stops still gets finite candidates, whatever f does. */
static void going_on_after_a_stop_stays_finite(void **state) {
    (void)state;
    static function *const cases[] = { linear, constant, not_a_number, sphere, noise, cigar };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int variant = 0; variant < 2; variant++) {
            kh_cmaes_opts o = nothing_stops();
            o.variant = variant, o.pop = 6;
            kh_cmaes *c = new_cmaes(2, 3, 1, &o);
            minimise(c, cases[k], 20000);
            double x[6 * 2];
            kh_cmaes_ask(c, x);
            for (int i = 0; i < 12; i++)
                assert_true(isfinite(x[i]));
            kh_buf b = state_of(c);
            kh_cmaes *again;
            kh_err err = { 0 };
            if (kh_cmaes_load(&again, b.data, b.len, "state", &err))
                fail_msg("case %zu: %s", k, err.msg);
            kh_buf_free(&b);
            kh_cmaes_free(again);
            kh_cmaes_free(c);
        }
}

/* ---------------------------------------------------------------------------------- bad values */

static double sphere_with_holes(const double *x, int n) { return x[0] > 0.1 ? NAN : sphere(x, n); }
static double sphere_with_walls(const double *x, int n) {
    return x[0] > 0.1 ? INFINITY : sphere(x, n);
}

static void not_a_number_is_worst(void **state) {
    (void)state;
    kh_cmaes_opts o = kh_cmaes_defaults();
    o.target = 1e-9;
    kh_cmaes *a = new_cmaes(5, -2, 1, &o), *b = new_cmaes(5, -2, 1, &o);
    assert_int_equal(minimise(a, sphere_with_holes, -1), KH_CMAES_TARGET);
    assert_int_equal(minimise(b, sphere_with_walls, -1), KH_CMAES_TARGET);
    assert_same_state(a, b); /* a wall of infinity ranks just as one of NaN */
    kh_cmaes_free(a);
    kh_cmaes_free(b);
    /* infinity before NaN: the mean follows the four that are not NaN */
    a = new_cmaes(3, 0, 1, NULL), b = new_cmaes(3, 0, 1, NULL);
    kh_cmaes_tell(a, (double[]){ NAN, 1, INFINITY, NAN, 2, 7, NAN });
    kh_cmaes_tell(b, (double[]){ 9, 1, 8, 10, 2, 7, 11 });
    double x[2][3];
    kh_cmaes_mean(a, x[0]);
    kh_cmaes_mean(b, x[1]);
    assert_memory_equal(x[0], x[1], sizeof x[0]);
    kh_cmaes_free(a);
    kh_cmaes_free(b);
}

static void all_not_a_number_moves_nothing(void **state) {
    (void)state;
    kh_cmaes *c = new_cmaes(3, 1, 1, NULL);
    double before[7 * 3], after[7 * 3], x[3], f[7] = { NAN, NAN, NAN, NAN, NAN, NAN, NAN };
    kh_cmaes_ask(c, before);
    kh_cmaes_tell(c, f);
    assert_int_equal(kh_cmaes_stop(c), KH_CMAES_ALL_NAN);
    kh_cmaes_mean(c, x);
    assert_true(x[0] == 1 && x[2] == 1 && kh_cmaes_sigma(c) == 1 && kh_cmaes_evals(c) == 7);
    kh_cmaes_ask(c, after);
    assert_memory_not_equal(
        before, after, sizeof before); /* but the next generation is another one */
    minimise(c, sphere, 1);
    assert_int_equal(kh_cmaes_stop(c), KH_CMAES_GOING);
    kh_cmaes_free(c);
}

/* ------------------------------------------------------------------------------------- threads */

extern void openblas_set_num_threads(int);
extern int openblas_get_num_threads(void);

static void threads_change_no_bit(void **state) {
    (void)state;
    static const int threads[] = { 1, 2, 3 };
    kh_cmaes *c[3];
    int blas = openblas_get_num_threads();
    for (int t = 0; t < 3; t++) {
        kh_cmaes_opts o = kh_cmaes_defaults();
        o.pop = 100, o.bound = 5; /* enough work for threads to be used */
        kh_threads_set(threads[t]);
        openblas_set_num_threads(threads[t]);
        c[t] = new_cmaes(300, 3, 1, &o);
        minimise(c[t], ellipsoid, 4);
        assert_int_equal(openblas_get_num_threads(), threads[t]); /* left as it was */
        assert_true(kh_cmaes_condition(c[t]) > 1.01);             /* C was decomposed */
    }
    openblas_set_num_threads(blas);
    kh_threads_set(0);
    assert_same_state(c[0], c[1]);
    assert_same_state(c[0], c[2]);
    for (int t = 0; t < 3; t++)
        kh_cmaes_free(c[t]);
}

static void eigenvectors_are_right(void **state) {
    (void)state;
    enum { N = 150 };
    double *a = kh_aligned(N * N * sizeof *a), *v = kh_aligned(N * N * sizeof *v),
           *d = kh_aligned(N * sizeof *d);
    double *work = kh_aligned(kh_eigen_work(N) * sizeof *work);
    kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 0, 0);
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++)
            a[i * N + j] = a[j * N + i] = kh_rng_normal(&r);
    memcpy(v, a, N * N * sizeof *v);
    assert_true(kh_eigen_symmetric(N, v, d, work));
    for (int j = 0; j < N; j++) {
        assert_true(j == 0 || d[j] >= d[j - 1]);
        double length = 0;
        for (int i = 0; i < N; i++) {
            double sum = 0;
            for (int k = 0; k < N; k++)
                sum += a[i * N + k] * v[j * N + k];
            assert_true(fabs(sum - d[j] * v[j * N + i]) < 1e-12 * N);
            length += v[j * N + i] * v[j * N + i];
        }
        assert_true(fabs(length - 1) < 1e-12);
    }
    kh_free(a);
    kh_free(v);
    kh_free(d);
    kh_free(work);
}

/* ------------------------------------------------------------------------------------ refusals */

static void refused(
    const double *x0, int n, double sigma, const kh_cmaes_opts *o, const char *says) {
    kh_err err = { 0 };
    kh_cmaes *c;
    assert_int_equal(kh_cmaes_new(&c, x0, n, sigma, o, &err), KH_EARG);
    assert_null(c);
    assert_says(&err, says);
}

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    kh_cmaes_opts o = kh_cmaes_defaults();
    refused(NULL, 0, 1, NULL, "CMA-ES: 0 dimensions; the full variant takes 1 to 16384");
    refused(NULL, 20000, 1, NULL,
        "CMA-ES: 20000 dimensions; the full variant takes 1 to 16384, the separable one more");
    o.variant = KH_CMAES_SEPARABLE;
    refused(NULL, 2000000, 1, &o, "2000000 dimensions; the separable variant takes 1 to 1048576");
    o.variant = 7;
    refused(NULL, 3, 1, &o, "CMA-ES: variant is 7; from 0 to 1 is allowed");
    refused(NULL, 3, 0, NULL, "the step size sigma is 0; from 1e-100 to 1e+100 is allowed");
    refused(NULL, 3, NAN, NULL, "the step size sigma is nan");
    o = kh_cmaes_defaults(), o.pop = 1;
    refused(NULL, 3, 1, &o, "a population of 1; at least 2 candidates are needed to compare");
    o.pop = -4;
    refused(NULL, 3, 1, &o, "CMA-ES: pop is -4; from 0 to 65536 is allowed");
    o = kh_cmaes_defaults(), o.tolx = -1;
    refused(NULL, 3, 1, &o, "CMA-ES: tolx is -1; from 0 to 1e+300 is allowed");
    o = kh_cmaes_defaults(), o.target = NAN;
    refused(NULL, 3, 1, &o, "CMA-ES: target is nan; from -inf to inf is allowed");
    refused((double[]){ 0, INFINITY }, 2, 1, NULL,
        "coordinate 1 of the start is inf; a number between -1e+100 and 1e+100 is");
    o = kh_cmaes_defaults(), o.bound = 2;
    refused((double[]){ 0, -3 }, 2, 1, &o,
        "coordinate 1 of the start is -3, outside its bounds -2 .. 2");
    o.lower = (double[]){ -1, 2 };
    refused(NULL, 2, 1, &o,
        "coordinate 1 is bounded by 2 below and 2 above; the first must be the smaller");
    o.lower = (double[]){ -1, NAN };
    refused(NULL, 2, 1, &o, "coordinate 1 is bounded by nan below and 2 above");
    o.lower = (double[]){ -1, -1e200 };
    refused(NULL, 2, 1, &o, "instead of bounds beyond 1e+100 give none");
}

static void memory_may_run_out(void **state) {
    (void)state;
    for (long n = 1;; n++) {
        kh_err err = { 0 };
        kh_cmaes_opts o = kh_cmaes_defaults();
        o.bound = 3;
        kh_cmaes *c = NULL, *copy = NULL, *again = NULL;
        kh_buf b = kh_buf_init(KH_BUF_MAX);
        kh_alloc_fail_at(n, n % 2);
        int rc = kh_cmaes_new(&c, NULL, 6, 1, &o, &err);
        if (rc == 0)
            rc = kh_cmaes_copy(&copy, c, &err);
        if (rc == 0)
            rc = kh_cmaes_save(c, &b, &err);
        if (rc == 0)
            rc = kh_cmaes_load(&again, b.data, b.len, "state", &err);
        kh_alloc_fail_at(0, false);
        kh_buf_free(&b);
        kh_cmaes_free(c);
        kh_cmaes_free(copy);
        kh_cmaes_free(again);
        if (rc == 0)
            break;
        assert_int_equal(rc, KH_ENOMEM);
        assert_true(n < 100);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sphere_in_10_dimensions),
        cmocka_unit_test(ellipsoid_in_10_dimensions),
        cmocka_unit_test(cigar_in_10_dimensions),
        cmocka_unit_test(discus_in_10_dimensions),
        cmocka_unit_test(diffpow_in_10_dimensions),
        cmocka_unit_test(rosenbrock_in_10_dimensions),
        cmocka_unit_test(sphere_in_40_dimensions),
        cmocka_unit_test(cigar_in_40_dimensions),
        cmocka_unit_test(a_rotation_changes_nothing),
        cmocka_unit_test(the_separable_variant_is_faster_where_it_may_be),
        cmocka_unit_test(separable_in_200_dimensions),
        cmocka_unit_test(progress_in_500_dimensions),
        cmocka_unit_test(small_dimensions_work),
        cmocka_unit_test(without_active_updates_the_discus_takes_longer),
        cmocka_unit_test(candidates_come_from_named_streams),
        cmocka_unit_test(telling_without_asking_is_the_same),
        cmocka_unit_test(monotone_transformations_change_nothing),
        cmocka_unit_test(the_getters_tell_the_state),
        cmocka_unit_test(the_boundary_map),
        cmocka_unit_test(candidates_stay_within_bounds),
        cmocka_unit_test(bounds_of_each_coordinate),
        cmocka_unit_test(every_stop_reason),
        cmocka_unit_test(reasons_have_names_and_sentences),
        cmocka_unit_test(a_growing_step_size_holds_the_covariance_back),
        cmocka_unit_test(going_on_after_a_stop_stays_finite),
        cmocka_unit_test(not_a_number_is_worst),
        cmocka_unit_test(all_not_a_number_moves_nothing),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(eigenvectors_are_right),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests_name("tune_cmaes", tests, NULL, NULL);
}
