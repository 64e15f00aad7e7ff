/* test_tune_abc.c - likelihood-free methods against posteriors that are known: agreement in mean
 * and variance, calibration by simulation, 500 dimensions, early rejection, reasons to stop. No
 * language model is asked. */
#include "test.h"

#include "base/alloc.h"
#include "tune/toys.h"

#include <math.h>

static const kh_sampler *const ALL[] = { &kh_sampler_abc_rejection, &kh_sampler_abc_smc,
    &kh_sampler_smc };

/* A run with options given as names and values, ending in NULL. */
typedef struct outcome {
    kh_population p;
    kh_monitor watch;
    long long max_queries;
    kh_simulator *sim;
    char facts[256];
    int steps;
} outcome;

static bool may(kh_monitor *w, long long queries, int members, bool have) {
    (void)members, (void)have;
    const outcome *o = w->self;
    if (o->max_queries > 0 && o->sim->asked + queries > o->max_queries)
        kh_monitor_stop(w, "budget");
    return !w->stopped[0];
}

static int done(
    kh_monitor *w, const kh_population *p, const kh_level_done *step, bool last, kh_err *err) {
    (void)last, (void)err;
    outcome *o = w->self;
    double sum = 0;
    for (int i = 0; i < p->n; i++)
        sum += p->weight[i];
    assert_true(fabs(sum - 1) < 1e-9);
    snprintf(o->facts, sizeof o->facts, "%s", step->facts);
    o->steps++;
    return 0;
}

static int run_rc(outcome *o, const kh_sampler *m, kh_simulator *sim, uint64_t seed,
    const char *const *set, kh_err *err) {
    void *opts = calloc(1, m->opts_size);
    kh_opts_init(m->opts, opts);
    for (; set && *set; set += 2)
        assert_int_equal(
            kh_opts_set(kh_opts_find(m->opts, set[0], strlen(set[0])), opts, set[1], NULL), 0);
    o->sim = sim;
    o->watch = (kh_monitor){ .may = may, .done = done, .self = o };
    int rc = m->run(&o->p, sim, opts, seed, &o->watch, err);
    free(opts);
    return rc;
}

static outcome run(const kh_sampler *m, kh_simulator *sim, uint64_t seed, const char *const *set) {
    outcome o = { 0 };
    kh_err err;
    if (run_rc(&o, m, sim, seed, set, &err) != 0)
        fail_msg("%s: %s", m->name, err.msg);
    assert_true(o.watch.stopped[0]);
    return o;
}

#define SET(...) ((const char *const[]){ __VA_ARGS__, NULL })

static kh_toy *toy_new(const char *name, int dim, uint64_t seed) {
    kh_toy *t;
    kh_err err;
    if (kh_toy_new(&t, name, dim, seed, &err) != 0)
        fail_msg("%s", err.msg);
    return t;
}

/* ---------------------------------------------------------------------- the posterior is right */

enum { RUNS = 20, MAX_DIM = 10 };

/* Mean and variance of each coordinate, averaged over independent runs, are within five standard
 * errors of the truth; the runs themselves tell their standard error. */
static void check_posterior(
    const char *problem, int dim, const kh_sampler *m, int tolerance, const char *const *set) {
    static double mean[RUNS][MAX_DIM], var[RUNS][MAX_DIM];
    double exact_mean[MAX_DIM], exact_var[MAX_DIM];
    kh_toy *toy = toy_new(problem, dim, 7);
    assert_true(kh_toy_moments(toy, tolerance, exact_mean, exact_var));
    if (m->steps)
        kh_toy_carry_noise(toy);
    for (int r = 0; r < RUNS; r++) {
        outcome o = run(m, kh_toy_simulator(toy), (uint64_t)r, set);
        assert_int_equal(o.p.tolerance, tolerance);
        for (int j = 0; j < dim; j++) {
            mean[r][j] = var[r][j] = 0;
            for (int i = 0; i < o.p.n; i++) {
                assert_true(o.p.errors[i] <= tolerance);
                mean[r][j] += o.p.weight[i] * (double)o.p.z[i * o.p.dim + j];
            }
            for (int i = 0; i < o.p.n;
                 i++) /* around the exact mean, so that small populations are not biased */
                var[r][j] += o.p.weight[i] * pow((double)o.p.z[i * o.p.dim + j] - exact_mean[j], 2);
        }
        kh_population_free(&o.p);
    }
    for (int j = 0; j < dim; j++) {
        double m1[RUNS], v1[RUNS], mm, ms, vm, vs;
        for (int r = 0; r < RUNS; r++)
            m1[r] = mean[r][j], v1[r] = var[r][j];
        kh_mean_sd(m1, RUNS, &mm, &ms);
        kh_mean_sd(v1, RUNS, &vm, &vs);
        if (fabs(mm - exact_mean[j]) > 5 * ms / sqrt(RUNS))
            fail_msg("%s in %d: mean %d is %g +- %g, exactly %g", m->name, dim, j, mm,
                ms / sqrt(RUNS), exact_mean[j]);
        if (fabs(vm - exact_var[j]) > 5 * vs / sqrt(RUNS))
            fail_msg("%s in %d: variance %d is %g +- %g, exactly %g", m->name, dim, j, vm,
                vs / sqrt(RUNS), exact_var[j]);
    }
    kh_toy_free(toy);
}

static void rejection_samples_the_posterior(void **state) {
    (void)state;
    check_posterior("linear-gaussian", 2, ALL[0], 1, SET("samples", "200", "tolerance", "1"));
    check_posterior("linear-gaussian", 10, ALL[0], 16, SET("samples", "100", "tolerance", "16"));
    check_posterior("signs", 6, ALL[0], 1, SET("samples", "100", "tolerance", "1"));
}

static void abc_smc_with_weights_samples_the_posterior(void **state) {
    (void)state;
    check_posterior("linear-gaussian", 2, ALL[1], 1,
        SET("samples", "200", "tolerance", "1", "weights", "importance"));
    check_posterior("linear-gaussian", 10, ALL[1], 20,
        SET("samples", "500", "tolerance", "20", "weights", "importance"));
}

static void smc_samples_the_posterior(void **state) {
    (void)state;
    check_posterior("linear-gaussian", 2, ALL[2], 0, SET("samples", "100", "max-moves", "60"));
    check_posterior("linear-gaussian", 10, ALL[2], 2,
        SET("samples", "100", "tolerance", "2", "max-moves", "200"));
    check_posterior(
        "signs", 10, ALL[2], 1, SET("samples", "100", "tolerance", "1", "max-moves", "60"));
}

/* The draws that set the tolerance are a part of the sample that they cost: with a tolerance that
 * does not depend on them, exactly so. */
static void smc_reuses_its_first_draws(void **state) {
    (void)state;
    check_posterior("signs", 6, ALL[2], 3,
        SET("samples", "100", "tolerance", "3", "first-draws", "100", "reuse-draws", "true"));
    check_posterior("signs", 10, ALL[2], 1,
        SET("samples", "100", "tolerance", "1", "max-moves", "60", "reuse-draws", "true"));
    const char *const *set =
        SET("samples", "40", "tolerance", "3", "first-draws", "20", "reuse-draws", "false");
    const char *const *reuse =
        SET("samples", "40", "tolerance", "3", "first-draws", "20", "reuse-draws", "true");
    kh_toy *a = toy_new("signs", 6, 7), *b = toy_new("signs", 6, 7);
    outcome x = run(ALL[2], kh_toy_simulator(a), 1, set),
            y = run(ALL[2], kh_toy_simulator(b), 1, reuse);
    assert_int_equal(x.p.n, y.p.n);
    assert_true(kh_toy_simulator(b)->asked < kh_toy_simulator(a)->asked);
    assert_int_equal(kh_population_ancestors(&y.p), 40); /* nobody twice */
    for (int i = 0; i < 40; i++)
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(y.p.z + i * 6, y.p.z + j * 6, 6 * sizeof *y.p.z);
    kh_population_free(&x.p);
    kh_population_free(&y.p);
    kh_toy_free(a);
    kh_toy_free(b);
}

/* Where the first draws happen to set a tolerance that hardly any draw meets, members are made by
 * moves: for less, and still from the posterior. */
static void smc_grows_where_draws_are_scarce(void **state) {
    (void)state;
    long long asked[2] = { 0, 0 };
    check_posterior("signs", 10, ALL[2], 1,
        SET("samples", "100", "tolerance", "1", "max-moves", "60", "first-draws", "3",
            "reuse-draws", "true"));
    for (int reuse = 0; reuse < 2; reuse++)
        for (uint64_t seed = 0; seed < 30; seed++) {
            kh_toy *toy = toy_new("signs", 20, 7);
            outcome o = run(ALL[2], kh_toy_simulator(toy), seed,
                SET("samples", "20", "first-draws", "3", "reuse-draws", reuse ? "true" : "false",
                    "budget-levels", "1", "max-moves", "6", "unmoved", "0.3"));
            assert_int_equal(o.p.n, 20);
            for (int i = 0; i < o.p.n; i++)
                assert_true(o.p.errors[i] <= o.p.tolerance);
            asked[reuse] += kh_toy_simulator(toy)->asked;
            kh_population_free(&o.p);
            kh_toy_free(toy);
        }
    print_message("# %lld queries, with moves %lld\n", asked[0], asked[1]);
    assert_true(asked[1] < asked[0] * 3 / 4);
}

/* Without weights the kernel widens the population: the test above must be able to tell. */
static void uniform_weights_do_not(void **state) {
    (void)state;
    kh_toy *toy = toy_new("linear-gaussian", 2, 7);
    double mean[2], var[2], found = 0;
    assert_true(kh_toy_moments(toy, 1, mean, var));
    for (int r = 0; r < RUNS; r++) {
        outcome o = run(ALL[1], kh_toy_simulator(toy), (uint64_t)r,
            SET("samples", "200", "tolerance", "1", "kernel-mean", "10"));
        for (int i = 0; i < o.p.n; i++)
            found += pow((double)o.p.z[2 * i] - mean[0], 2) / (o.p.n * RUNS);
        kh_population_free(&o.p);
    }
    assert_true(found > 1.1 * var[0]);
    kh_toy_free(toy);
}

/* Steps along directions that the population tells, to the same posteriors. */
static void smc_learns_directions_and_samples_the_posterior(void **state) {
    (void)state;
    check_posterior("linear-gaussian", 2, ALL[2], 0,
        SET("samples", "100", "max-moves", "60", "learn-moves", "true"));
    check_posterior("linear-gaussian", 10, ALL[2], 2,
        SET("samples", "100", "tolerance", "2", "max-moves", "200", "learn-moves", "true"));
    check_posterior("signs", 10, ALL[2], 1,
        SET("samples", "100", "tolerance", "1", "max-moves", "60", "learn-moves", "true"));
}

enum { NARROW_DIM = 10 };

/* The sum of the coordinates, of unit variance, must be near 1.5: one direction in which there is
 * little room, and nine in which nothing matters. */
static int narrow_errors(kh_simulator *s, const kh_candidates *c, const int *allowance, int *errors,
    int *answer, kh_err *err) {
    (void)allowance, (void)answer, (void)err;
    for (int i = 0; i < c->n; i++) {
        double sum = 0;
        for (int j = 0; j < NARROW_DIM; j++)
            sum += (double)c->z[i * NARROW_DIM + j] / sqrt(NARROW_DIM);
        double off = fabs(sum - 1.5) / 0.05;
        errors[i] = off < s->n_error ? (int)off : s->n_error;
    }
    s->asked += c->n;
    return 0;
}

/* Where the posterior is narrow in one direction only, one step length for all directions is as
 * short as that, and members stay near their ancestors; with directions learned they do not. Each
 * z_j has mean 1.5 / sqrt(10) and variance 1 - 1 / 10, so that a mean of 100 independent members
 * has variance 0.009. */
static void learned_directions_forget_the_ancestors(void **state) {
    (void)state;
    enum { SEEDS = 60 };
    double off[2] = { 0, 0 }, square[2] = { 0, 0 };
    long long asked[2] = { 0, 0 };
    for (int learn = 0; learn < 2; learn++)
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            kh_simulator sim = {
                .dim = NARROW_DIM, .prior_var = 1, .n_error = 40, .cost = 1, .errors = narrow_errors
            };
            outcome o = run(ALL[2], &sim, seed,
                SET("samples", "100", "max-moves", "10", "learn-moves", learn ? "true" : "false"));
            assert_int_equal(o.p.tolerance, 0);
            asked[learn] += sim.asked;
            for (int j = 0; j < NARROW_DIM; j++) {
                double mean = 0;
                for (int i = 0; i < o.p.n; i++) {
                    double d = (double)o.p.z[i * NARROW_DIM + j] - 1.5 / sqrt(NARROW_DIM);
                    mean += d / o.p.n;
                    square[learn] += d * d / o.p.n / NARROW_DIM / SEEDS;
                }
                off[learn] += mean * mean / NARROW_DIM / SEEDS;
            }
            kh_population_free(&o.p);
        }
    print_message("# variance of a mean %.4f, learned %.4f (0.009); of z %.3f, %.3f (0.9); "
                  "queries %lld, %lld\n",
        off[0], off[1], square[0], square[1], asked[0], asked[1]);
    assert_true(off[1] < 0.6 * off[0] && asked[1] < asked[0] * 11 / 10);
    assert_true(fabs(square[1] - 0.9) < 0.03);
}

/* With labels that are wrong with probability eta, each row of `signs` is on its own: wrong with
 * probability eta. Many moves, as a population that has not forgotten the prior yet is a little
 * wrong, however many members it has. */
static void soft_acceptance_samples_its_posterior(void **state) {
    (void)state;
    kh_toy *toy = toy_new("signs", 20, 3);
    kh_simulator *sim = kh_toy_simulator(toy);
    double wrong[RUNS], first[RUNS], mean, sd;
    for (int r = 0; r < RUNS; r++) {
        outcome o = run(ALL[2], sim, (uint64_t)r,
            SET("samples", "200", "accept", "soft", "label-noise", "0.2", "unmoved", "0.0001",
                "max-moves", "80"));
        assert_string_equal(o.watch.stopped, "the likelihood counts in full");
        assert_true(fabs(o.p.rate - log(4)) < 1e-12);
        wrong[r] = first[r] = 0;
        for (int i = 0; i < o.p.n; i++) {
            wrong[r] += o.p.errors[i] / 20.0 / o.p.n;
            first[r] += (double)o.p.z[i * 20] * (double)sim->observed[0] / o.p.n;
        }
        kh_population_free(&o.p);
    }
    kh_mean_sd(wrong, RUNS, &mean, &sd);
    assert_true(fabs(mean - 0.2) < 5 * sd / sqrt(RUNS));
    kh_mean_sd(first, RUNS, &mean, &sd);
    assert_true(fabs(mean - 0.6 * sqrt(2 * 50 / M_PI)) < 5 * sd / sqrt(RUNS));
    kh_toy_free(toy);
}

/* ------------------------------------------------------------- calibration by simulation (SBC) */

enum { SETS = 200, ROWS = 8, EPS = 2, TAKEN = 15 };

/* Labels that z and "at most EPS errors" could have made: those of z with up to EPS of them turned
 * round, all such sets equally likely. Given these labels, the posterior is exactly the one that is
 * sampled. */
static void draw_labels(const float *z, kh_rng *r, float *label) {
    double ways[EPS + 1] = { 1 };
    int order[ROWS];
    for (int k = 1; k <= EPS; k++)
        ways[k] = ways[k - 1] * (ROWS - k + 1) / k;
    int wrong = kh_rng_categorical(r, ways, EPS + 1);
    kh_rng_permutation(r, order, ROWS);
    for (int j = 0; j < ROWS; j++)
        label[j] = z[j] > 0 ? 1 : -1;
    for (int k = 0; k < wrong; k++)
        label[order[k]] = -label[order[k]];
}

/* The rank of the true z among draws of the posterior is uniform, coordinate by coordinate:
 * chi-square with 15 degrees of freedom is above 37.7 once in a thousand times. */
static void smc_is_calibrated(void **state) {
    (void)state;
    int count[2][TAKEN + 1] = { { 0 } };
    kh_toy *toy = toy_new("signs", ROWS, 1);
    kh_simulator *sim = kh_toy_simulator(toy);
    for (int set = 0; set < SETS; set++) {
        kh_rng r = kh_rng_stream(5, KH_RNG_TEST, (uint32_t)set, 0);
        float truth[ROWS], label[ROWS];
        kh_prior_draw(sim, &r, truth);
        draw_labels(truth, &r, label);
        sim->observed = label;
        outcome o = run(ALL[2], sim, (uint64_t)set,
            SET("samples", "120", "tolerance", "2", "unmoved", "0.05", "max-moves", "20"));
        for (int q = 0; q < 2; q++) {
            int rank = 0;
            for (int i = 0; i < TAKEN; i++)
                rank += o.p.z[i * 8 * ROWS + q] < truth[q];
            count[q][rank]++;
        }
        kh_population_free(&o.p);
    }
    for (int q = 0; q < 2; q++) {
        double chi = 0, expected = (double)SETS / (TAKEN + 1);
        for (int k = 0; k <= TAKEN; k++)
            chi += (count[q][k] - expected) * (count[q][k] - expected) / expected;
        if (chi > 37.7)
            fail_msg("ranks of coordinate %d are not uniform: chi-square %g", q, chi);
    }
    kh_toy_free(toy);
}

/* ------------------------------------------------------------------------------ 500 dimensions */

/* Errors that have nothing to do with z. */
static int blind_errors(kh_simulator *s, const kh_candidates *c, const int *allowance, int *errors,
    int *answer, kh_err *err) {
    (void)allowance, (void)answer, (void)err;
    for (int i = 0; i < c->n; i++) {
        kh_rng r = kh_rng_stream(77, KH_RNG_TEST, c->round, c->first + (uint32_t)i);
        errors[i] = (int)kh_rng_below(&r, (uint32_t)s->n_error + 1);
    }
    s->asked += c->n;
    return 0;
}

static void smc_keeps_the_prior_if_the_constraint_is_empty(void **state) {
    (void)state;
    kh_simulator sim = {
        .dim = 500, .prior_var = 50, .n_error = 31, .cost = 1, .errors = blind_errors
    };
    outcome o = run(ALL[2], &sim, 1, SET("samples", "200", "max-moves", "20"));
    double mean = 0, square = 0, n = 200 * 500;
    for (int i = 0; i < 200 * 500; i++) {
        mean += (double)o.p.z[i] / n;
        square += (double)o.p.z[i] * (double)o.p.z[i] / n;
    }
    assert_true(o.steps > 3);
    assert_true(fabs(mean) < 0.15);            /* sqrt(50 / 1e5) is 0.022 for independent members */
    assert_true(fabs(square / 50 - 1) < 0.03); /* 0.0045 for independent ones */
    for (int j = 0; j < 500; j += 50) {        /* and each marginal has its width */
        double var = 0;
        for (int i = 0; i < 200; i++)
            var += pow((double)o.p.z[i * 500 + j], 2) / 200;
        assert_true(var > 20 && var < 100);
    }
    kh_population_free(&o.p);
}

/* Errors grow with the distance of |z| from 3 and if z_0 is below 0: known exactly from draws of
 * the prior. */
static int shell_errors(kh_simulator *s, const kh_candidates *c, const int *allowance, int *errors,
    int *answer, kh_err *err) {
    (void)allowance, (void)answer, (void)err;
    for (int i = 0; i < c->n; i++) {
        const float *z = c->z + (size_t)i * (size_t)s->dim;
        double square = 0;
        for (int j = 0; j < s->dim; j++)
            square += (double)z[j] * (double)z[j];
        double far = fabs(sqrt(square) - 3) * 4 + (z[0] < 0 ? 5 : 0);
        errors[i] = far < s->n_error ? (int)far : s->n_error;
    }
    s->asked += c->n;
    return 0;
}

typedef struct moments {
    double n, sum[3], square[3]; /* of z_0, |z|^2 and the width */
} moments;

static void moments_add(moments *m, const float *z, int dim, double width) {
    double x[3] = { (double)z[0], 0, width };
    for (int j = 0; j < dim; j++)
        x[1] += (double)z[j] * (double)z[j];
    for (int k = 0; k < 3; k++) {
        m->sum[k] += x[k];
        m->square[k] += x[k] * x[k];
    }
    m->n++;
}

/* With a prior of unknown width, against draws from it that meet the tolerance. */
static void smc_learns_the_width_of_the_prior(void **state) {
    (void)state;
    enum { MEMBERS = 200, SEEDS = 20 };
    for (int dim = 2; dim <= 8; dim += 6) {
        kh_simulator sim = { .dim = dim,
            .prior_var = 0.25,
            .prior_spread = 1,
            .n_error = 20,
            .cost = 1,
            .errors = shell_errors };
        moments exact = { 0 }, got = { 0 };
        for (uint32_t i = 0; exact.n < 20000; i++) {
            float z[8];
            int errors;
            kh_rng r = kh_rng_stream(99, KH_RNG_TEST, i, 0);
            double width = kh_prior_draw(&sim, &r, z);
            shell_errors(&sim, &(kh_candidates){ .z = z, .n = 1 }, NULL, &errors, NULL, NULL);
            if (errors <= 2)
                moments_add(&exact, z, dim, width);
        }
        for (uint64_t seed = 1; seed <= SEEDS; seed++) {
            outcome o = run(ALL[2], &sim, seed,
                SET("samples", "200", "tolerance", "2", "max-moves", "60", "learn-moves",
                    seed % 2 ? "true" : "false"));
            for (int i = 0; i < o.p.n; i++)
                moments_add(&got, o.p.z + (size_t)i * (size_t)dim, dim, o.p.width[i]);
            kh_population_free(&o.p);
        }
        for (int k = 0; k < 3; k++) {
            double mean = exact.sum[k] / exact.n, var = exact.square[k] / exact.n - mean * mean,
                   m = got.sum[k] / got.n;
            double off = (m - mean) /
                sqrt(
                    var * (1 / exact.n + 4 / got.n)); /* members are related: as if four were one */
            if (fabs(off) > 4 || fabs((got.square[k] / got.n - m * m) / var - 1) > 0.15)
                fail_msg("dim %d, number %d: mean %g, %g wanted; variance %g, %g wanted", dim, k, m,
                    mean, got.square[k] / got.n - m * m, var);
        }
        assert_true(exact.sum[2] / exact.n > 0.5); /* the width that fits is not the prior's */
    }
}

static void smc_keeps_its_ancestors_where_weights_collapse(void **state) {
    (void)state;
    kh_toy *toy = toy_new("signs", 500, 1);
    for (uint64_t seed = 1; seed <= 5; seed++) {
        outcome o = run(ALL[2], kh_toy_simulator(toy), seed,
            SET("tolerance", "14", "samples", "100", "max-moves", "6"));
        assert_true(kh_population_ancestors(&o.p) > 50);
        assert_true(kh_population_ess(&o.p) > 99.9);
        kh_population_free(&o.p);
        o = run(ALL[1], kh_toy_simulator(toy), seed,
            SET("tolerance", "14", "weights", "importance", "first-draws", "3"));
        if (o.steps > 1)
            assert_true(kh_population_ess(&o.p) < 2);
        kh_population_free(&o.p);
    }
    kh_toy_free(toy);
}

/* ------------------------------------------------------------------------ what must not matter */

static void same(const kh_population *a, const kh_population *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->z, b->z, (size_t)a->n * (size_t)a->dim * sizeof *a->z);
    assert_memory_equal(a->errors, b->errors, (size_t)a->n * sizeof *a->errors);
    assert_memory_equal(
        a->answer, b->answer, (size_t)a->n * (size_t)a->n_answer * sizeof *a->answer);
    assert_memory_equal(a->weight, b->weight, (size_t)a->n * sizeof *a->weight);
}

static void early_rejection_accepts_the_same(void **state) {
    (void)state;
    for (int m = 0; m < 4; m++) {
        const kh_sampler *s = ALL[m < 3 ? m : 2];
        kh_toy *one = toy_new("signs", 40, 2), *two = toy_new("signs", 40, 2);
        const char *accept = m == 2 ? "hard" : m == 3 ? "soft" : NULL;
        outcome on = run(s, kh_toy_simulator(one), 4,
            accept ? SET("tolerance", "8", "early-rejection", "on", "accept", accept)
                   : SET("tolerance", "12", "early-rejection", "on"));
        outcome off = run(s, kh_toy_simulator(two), 4,
            accept ? SET("tolerance", "8", "early-rejection", "off", "accept", accept)
                   : SET("tolerance", "12", "early-rejection", "off"));
        same(&on.p, &off.p);
        assert_true(kh_toy_simulator(one)->saved > 0);
        assert_int_equal(kh_toy_simulator(two)->saved, 0);
        assert_int_equal(kh_toy_simulator(one)->asked + kh_toy_simulator(one)->saved,
            kh_toy_simulator(two)->asked);
        kh_population_free(&on.p);
        kh_population_free(&off.p);
        kh_toy_free(one);
        kh_toy_free(two);
    }
}

static void a_seed_fixes_the_run(void **state) {
    (void)state;
    kh_toy *toy = toy_new("linear-gaussian", 4, 2);
    for (int m = 0; m < 3; m++) {
        outcome a = run(ALL[m], kh_toy_simulator(toy), 4, SET("samples", "20", "tolerance", "8"));
        outcome b = run(ALL[m], kh_toy_simulator(toy), 4, SET("samples", "20", "tolerance", "8"));
        outcome c = run(ALL[m], kh_toy_simulator(toy), 5, SET("samples", "20", "tolerance", "8"));
        same(&a.p, &b.p);
        assert_memory_not_equal(a.p.z, c.p.z, 4 * sizeof *a.p.z);
        kh_population_free(&a.p);
        kh_population_free(&b.p);
        kh_population_free(&c.p);
    }
    kh_toy_free(toy);
}

/* ----------------------------------------------------------------------------- reasons to stop */

static void check_reason(const kh_sampler *m, const char *problem, int dim, long long budget,
    const char *const *set, const char *why) {
    kh_toy *toy = toy_new(problem, dim, 1);
    outcome o = { .max_queries = budget };
    assert_int_equal(run_rc(&o, m, kh_toy_simulator(toy), 3, set, NULL), 0);
    if (!strstr(o.watch.stopped, why))
        fail_msg("%s stopped: \"%s\", expected \"%s\"", m->name, o.watch.stopped, why);
    assert_true(o.p.n >= 1); /* something always comes out */
    assert_true(budget == 0 || kh_toy_simulator(toy)->asked <= budget);
    kh_population_free(&o.p);
    kh_toy_free(toy);
}

static void every_run_ends_and_says_why(void **state) {
    (void)state;
    check_reason(ALL[0], "signs", 32, 0, SET("tolerance", "14", "samples", "20"),
        "20 draws with at most 14 errors are there");
    check_reason(ALL[0], "signs", 32, 0, SET("tolerance", "1"),
        "no candidate of the last 1000 had at most 1 errors");
    check_reason(ALL[0], "signs", 32, 0, SET("tolerance", "10", "min-rate", "0.5"),
        "less than --min-rate 0.5");
    check_reason(ALL[0], "signs", 32, 1000, SET("tolerance", "10"), "budget");
    check_reason(
        ALL[1], "signs", 10, 0, SET("samples", "20"), "the tolerance of 0 errors is reached");
    check_reason(ALL[1], "signs", 32, 0, SET("samples", "20", "max-misses", "3"),
        "no candidate of the last 60 had at most");
    check_reason(
        ALL[1], "signs", 32, 0, SET("budget-generations", "2"), "all 2 generations are done");
    check_reason(ALL[1], "signs", 32, 0, SET("min-rate", "0.2"), "less than --min-rate 0.2");
    check_reason(ALL[1], "signs", 32, 3000, NULL, "budget");
    check_reason(ALL[1], "signs", 32, 700, SET("first-draws", "20"), "budget");
    check_reason(ALL[2], "signs", 10, 0, NULL, "the tolerance of 0 errors is reached");
    check_reason(ALL[2], "signs", 32, 0, SET("budget-levels", "3"), "all 3 levels are done");
    check_reason(ALL[2], "signs", 32, 5000, NULL, "budget");
    check_reason(ALL[2], "signs", 32, 700, NULL, "budget");
    check_reason(ALL[2], "signs", 32, 0, SET("min-rate", "0.6"),
        "moves were accepted, less than --min-rate 0.6");
    check_reason(ALL[2], "signs", 32, 1700, SET("accept", "soft"), "budget");
}

static int different(const kh_population *p) {
    size_t dim = (size_t)p->dim, bytes = dim * sizeof *p->z;
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        bool seen = false;
        for (int j = 0; j < i && !seen; j++)
            seen = memcmp(p->z + (size_t)i * dim, p->z + (size_t)j * dim, bytes) == 0;
        n += !seen;
    }
    return n;
}

/* Wherever the budget ends: a level whose copies have not moved is no population, and the one
 * before it comes out. */
static void smc_takes_back_a_level_that_it_cannot_pay_for(void **state) {
    (void)state;
    kh_toy *toy = toy_new("signs", 32, 1);
    int taken_back = 0;
    for (int accept = 0; accept < 2; accept++)
        for (long long budget = 1500; budget < 9000; budget += 150) {
            outcome o = { .max_queries = budget };
            kh_toy_simulator(toy)->asked = 0;
            assert_int_equal(run_rc(&o, ALL[2], kh_toy_simulator(toy), 3,
                                 SET("samples", "20", "max-moves", "6", "unmoved", "0.3", "accept",
                                     accept ? "soft" : "hard"),
                                 NULL),
                0);
            if (different(&o.p) * 2 <= o.p.n)
                fail_msg("%lld queries, accept %d: %d members, %d different", budget, accept, o.p.n,
                    different(&o.p));
            for (int i = 0; i < o.p.n && !accept; i++)
                assert_true(o.p.errors[i] <= o.p.tolerance);
            taken_back += strstr(o.facts, " taken-back=1") != NULL;
            kh_population_free(&o.p);
        }
    assert_in_range(taken_back, 5, 95);
    kh_toy_free(toy);
}

/* A simulator that cannot be satisfied: its errors never fall below one. */
static int stubborn_errors(kh_simulator *s, const kh_candidates *c, const int *allowance,
    int *errors, int *answer, kh_err *err) {
    int rc = blind_errors(s, c, allowance, errors, answer, err);
    for (int i = 0; i < c->n; i++)
        errors[i] = errors[i] > 1 ? errors[i] : 1;
    return rc;
}

static void smc_gives_up_where_nothing_is_better(void **state) {
    (void)state;
    kh_simulator sim = {
        .dim = 3, .prior_var = 1, .n_error = 5, .cost = 1, .errors = stubborn_errors
    };
    outcome o = run(ALL[2], &sim, 1, NULL);
    assert_string_equal(o.watch.stopped, "no member got below 1 errors in 4 levels");
    assert_int_equal(o.p.tolerance, 1);
    kh_population_free(&o.p);
}

static int failing_errors(kh_simulator *s, const kh_candidates *c, const int *allowance,
    int *errors, int *answer, kh_err *err) {
    (void)s, (void)c, (void)allowance, (void)errors, (void)answer;
    snprintf(err->msg, sizeof err->msg, "the box is gone");
    return err->code = KH_EIO;
}

static void a_box_that_fails_ends_the_run(void **state) {
    (void)state;
    kh_simulator sim = {
        .dim = 3, .prior_var = 1, .n_error = 5, .cost = 1, .errors = failing_errors
    };
    for (int m = 0; m < 3; m++) {
        outcome o = { 0 };
        kh_err err = { 0 };
        assert_int_equal(run_rc(&o, ALL[m], &sim, 1, NULL, &err), KH_EIO);
        assert_says(&err, "the box is gone");
        kh_population_free(&o.p);
    }
}

static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    for (int m = 0; m < 3; m++)
        for (long n = 1;; n++) {
            kh_err err = { 0 };
            kh_toy *toy = NULL;
            outcome o = { 0 };
            kh_alloc_fail_at(n, false);
            int rc = kh_toy_new(&toy, "signs", 6, 1, &err);
            if (rc == 0)
                rc = run_rc(&o, ALL[m], kh_toy_simulator(toy), 1,
                    SET("samples", "20", "tolerance", "2"), &err);
            bool all = kh_alloc_count() < n;
            kh_alloc_fail_at(0, false);
            assert_int_equal(rc, all ? 0 : KH_ENOMEM);
            kh_population_free(&o.p);
            kh_toy_free(toy);
            if (all)
                break;
        }
}

/* ---------------------------------------------------------------------------------------- toys */

static void toys_refuse_what_they_are_not(void **state) {
    (void)state;
    kh_toy *t;
    kh_err err;
    assert_int_equal(kh_toy_new(&t, "three-moons", 2, 1, &err), KH_EARG);
    assert_says(&err, "unknown problem \"three-moons\"; there are linear-gaussian|signs|two-moons");
    assert_int_equal(kh_toy_new(&t, "two-moons", 3, 1, &err), KH_EARG);
    assert_says(&err, "problem two-moons has 2 dimensions, not 3");
    assert_int_equal(kh_toy_new(&t, "signs", 0, 1, &err), KH_EARG);
    assert_says(&err, "problem signs in 0 dimensions; it takes 1 to 65536");
}

/* Rejection with a small tolerance and the analytic draws of two-moons are the same distribution:
 * compared are the moments of the two directions in which it is simple. */
static void two_moons_draws_are_those_of_rejection(void **state) {
    (void)state;
    enum { N = 1000 };
    static double theta[2 * N], reference[2 * N];
    kh_toy *toy = toy_new("two-moons", 2, 1);
    double mean, var, sum[2] = { 0 }, square[2] = { 0 };
    assert_false(kh_toy_moments(toy, 1, &mean, &var));
    outcome o = run(ALL[0], kh_toy_simulator(toy), 1,
        SET("samples", "1000", "tolerance", "0", "max-misses", "10000"));
    kh_toy_parameters(toy, o.p.z, N, theta);
    kh_toy_reference(toy, N, 2, reference);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < N; i++) {
            const double *x = (k ? reference : theta) + 2 * i;
            sum[k] += fabs(x[0] + x[1]) / sqrt(2) / N;
            square[k] += pow(x[1] - x[0], 2) / 2 / N;
        }
    assert_true(fabs(sum[0] - sum[1]) < 0.01); /* 0.25 + 0.2 / pi, give or take 0.03 / sqrt N */
    assert_true(fabs(sum[1] - 0.25 - 0.2 / M_PI) < 0.005);
    assert_true(fabs(square[0] - square[1]) < 0.0008); /* 0.005, give or take 0.004 / sqrt N */
    kh_population_free(&o.p);
    kh_toy_free(toy);
}

/* What is observed and what is counted as errors are the same simulation. */
static void observations_and_errors_agree(void **state) {
    (void)state;
    kh_toy *toy = toy_new("linear-gaussian", 3, 1);
    kh_simulator *s = kh_toy_simulator(toy);
    float z[5 * 3], x[5 * 3];
    int errors[5], allowance[5] = { 24, 24, 24, 24, 24 }, answer[1];
    kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 0, 0);
    for (int i = 0; i < 15; i++)
        z[i] = (float)kh_rng_normal(&r);
    kh_candidates c = { z, 5, 9, 40 };
    assert_int_equal(s->observe(s, &c, x, NULL), 0);
    assert_int_equal(s->errors(s, &c, allowance, errors, answer, NULL), 0);
    for (int i = 0; i < 5; i++) {
        int count = 0;
        for (int j = 0; j < 3; j++) {
            int off = (int)(fabs((double)x[3 * i + j] - (double)s->observed[j]) / 0.5);
            count += off < 8 ? off : 8;
        }
        assert_int_equal(errors[i], count);
    }
    kh_toy_free(toy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rejection_samples_the_posterior),
        cmocka_unit_test(abc_smc_with_weights_samples_the_posterior),
        cmocka_unit_test(smc_samples_the_posterior),
        cmocka_unit_test(smc_reuses_its_first_draws),
        cmocka_unit_test(smc_grows_where_draws_are_scarce),
        cmocka_unit_test(uniform_weights_do_not),
        cmocka_unit_test(smc_learns_directions_and_samples_the_posterior),
        cmocka_unit_test(learned_directions_forget_the_ancestors),
        cmocka_unit_test(soft_acceptance_samples_its_posterior),
        cmocka_unit_test(smc_is_calibrated),
        cmocka_unit_test(smc_keeps_the_prior_if_the_constraint_is_empty),
        cmocka_unit_test(smc_learns_the_width_of_the_prior),
        cmocka_unit_test(smc_keeps_its_ancestors_where_weights_collapse),
        cmocka_unit_test(early_rejection_accepts_the_same),
        cmocka_unit_test(a_seed_fixes_the_run),
        cmocka_unit_test(every_run_ends_and_says_why),
        cmocka_unit_test(smc_takes_back_a_level_that_it_cannot_pay_for),
        cmocka_unit_test(smc_gives_up_where_nothing_is_better),
        cmocka_unit_test(a_box_that_fails_ends_the_run),
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(toys_refuse_what_they_are_not),
        cmocka_unit_test(two_moons_draws_are_those_of_rejection),
        cmocka_unit_test(observations_and_errors_agree),
    };
    return cmocka_run_group_tests_name("abc", tests, NULL, NULL);
}
