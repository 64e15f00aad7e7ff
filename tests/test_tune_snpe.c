/* test_tune_snpe.c - SNPE-C: the atomic loss, teaching a flow, rounds on problems with a known
 * posterior, and on the box. */
#include "judge_vectors.h"
#include "tiny.h"

#include "posterior/posterior.h"
#include "tune/method.h"
#include "tune/snpe.h"
#include "tune/toys.h"

#define SET(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* ------------------------------------------------------------------------------------ the loss */

static void one_atom_is_minus_the_log_density(void **state) {
    (void)state;
    double g;
    assert_true(kh_atomic_loss((double[]){ -3.5 }, (double[]){ -1 }, 1, &g) == 3.5);
    assert_true(g == -1);
}

/* Two atoms: the loss is log(1 + exp(r_1 - r_0)), r = log q - log prior. */
static void two_atoms_are_a_logistic_loss(void **state) {
    (void)state;
    double q[2] = { -1, -2.5 }, prior[2] = { -0.3, -4 }, g[2];
    double gap = (q[1] - prior[1]) - (q[0] - prior[0]), share = 1 / (1 + exp(-gap));
    assert_true(fabs(kh_atomic_loss(q, prior, 2, g) - log1p(exp(gap))) < 1e-14);
    assert_true(fabs(g[0] + share) < 1e-14 && fabs(g[1] - share) < 1e-14);
}

/* A flow that is the prior itself cannot tell atoms apart, however far out they lie. */
static void equals_cannot_be_told_apart(void **state) {
    (void)state;
    double q[8], prior[8], g[8];
    for (int i = 0; i < 8; i++) {
        prior[i] = -1000.0 * i;
        q[i] = prior[i] - 2000;
    }
    assert_true(fabs(kh_atomic_loss(q, prior, 8, g) - log(8)) < 1e-12);
    for (int i = 0; i < 8; i++)
        assert_true(fabs(g[i] - (1.0 / 8 - (i == 0))) < 1e-12);
}

static void check_atomic(const json_t *row) {
    int n, m = (int)number_of(row, "m"), n_atom;
    double *logq = doubles_of(row, "logq", &n, NULL), *prior = doubles_of(row, "prior", &n, NULL),
           g[16], loss = 0;
    n_atom = n / m;
    for (int i = 0; i < m; i++)
        loss += kh_atomic_loss(logq + i * n_atom, prior + i * n_atom, n_atom, g + i * n_atom) / m;
    assert_true(fabs(loss - number_of(row, "atomic")) < 1e-12 * (1 + fabs(loss)));
    free(logq);
    free(prior);
}

static void pytorch_has_the_same_loss(void **state) {
    (void)state;
    assert_int_equal(each_line("../flow/maf.jsonl", check_atomic), 3);
}

/* ------------------------------------------------------------------------------------ teaching */

static const kh_fit_opts QUICK = {
    .atoms = 5, .batch = 20, .patience = 10, .max_epochs = 60, .rate = 3e-3, .clip = 5
};

/* x = z + noise of half its size: given x, z is N(0.8 x, 0.2). The last tenth is held out; half of
 * them are of round 2. */
static void simulate_line(kh_simulations *s, int n) {
    kh_rng r = kh_rng_stream(4, KH_RNG_TEST, 1, 0);
    *s = (kh_simulations){ .dim = 1, .n_obs = 1 };
    assert_int_equal(kh_simulations_grow(s, n, NULL), 0);
    for (s->n = 0; s->n < n; s->n++) {
        double z = kh_rng_normal(&r);
        s->z[s->n] = (float)z;
        s->x[s->n] = (float)(z + 0.5 * kh_rng_normal(&r));
        s->log_prior[s->n] = -z * z / 2;
        s->round[s->n] = 1 + s->n % 2;
        s->held[s->n] = s->n >= n - n / 10;
    }
}

static kh_flow *small_flow(void) {
    kh_flow *f;
    assert_int_equal(kh_flow_new(&f, 1, 1, &(kh_flow_opts){ 2, 8, 1 }, 3, NULL), 0);
    return f;
}

/* Mean and spread of q(z | x = 1) by quadrature, divided by its mass. */
static void moments_given_one(kh_flow *f, double *mean, double *var) {
    kh_flow_work *w;
    double sum = 0, first = 0, second = 0;
    assert_int_equal(kh_flow_work_new(&w, f, 1, 1, NULL), 0);
    kh_flow_context(f, w, (float[]){ 1 }, 1);
    for (double z = -6; z < 6; z += 0.01) {
        double logq;
        kh_flow_density(f, w, &z, (int[]){ 0 }, 1, &logq);
        sum += exp(logq);
        first += z * exp(logq);
        second += z * z * exp(logq);
    }
    kh_flow_work_free(w);
    *mean = first / sum;
    *var = second / sum - *mean * *mean;
}

/* By -log q and by atoms alike: the simulations are draws from the prior. */
static void a_flow_learns_a_known_posterior(void **state) {
    (void)state;
    kh_simulations s;
    simulate_line(&s, 600);
    for (int round = 1; round <= 3; round++) {
        kh_flow *f = small_flow();
        kh_fit_opts o = QUICK;
        kh_fit_report report;
        double mean, var;
        o.combined = round == 3;
        assert_int_equal(kh_fit(f, &s, round, &o, 5, NULL, &report, NULL), 0);
        assert_true(report.epochs > 1 && report.epochs <= 60);
        moments_given_one(f, &mean, &var);
        if (fabs(mean - 0.8) > 0.12 || fabs(var - 0.2) > 0.07)
            fail_msg("round %d: mean %g, variance %g, expected 0.8 and 0.2", round, mean, var);
        kh_flow_free(f);
    }
    kh_simulations_free(&s);
}

/* Steps far too large make it worse: the weights it started from are kept. */
static void the_best_weights_are_kept(void **state) {
    (void)state;
    kh_simulations s;
    simulate_line(&s, 100);
    kh_flow *f = small_flow();
    double *before = malloc(kh_flow_size(f) * sizeof *before);
    memcpy(before, kh_flow_weights(f), kh_flow_size(f) * sizeof *before);
    kh_fit_opts o = QUICK;
    kh_fit_report report;
    o.rate = 1;
    o.clip = 1e9;
    o.patience = 3;
    assert_int_equal(kh_fit(f, &s, 1, &o, 5, NULL, &report, NULL), 0);
    assert_int_equal(report.epochs, 3);
    assert_memory_equal(kh_flow_weights(f), before, kh_flow_size(f) * sizeof *before);
    free(before);
    kh_flow_free(f);
    kh_simulations_free(&s);
}

static void something_must_be_held_out(void **state) {
    (void)state;
    kh_simulations s;
    kh_fit_report report;
    kh_err err;
    kh_flow *f = small_flow();
    simulate_line(&s, 9);
    assert_int_equal(kh_fit(f, &s, 1, &QUICK, 5, NULL, &report, &err), KH_EARG);
    assert_says(&err, "9 simulations to learn from and 0 held out; there must be one of each");
    kh_flow_free(f);
    kh_simulations_free(&s);
}

/* -------------------------------------------------------------------------------------- rounds */

typedef struct run {
    kh_population p;
    kh_monitor watch;
    int rounds, budget;
    char facts[256];
} run;

static bool may(kh_monitor *w, long long queries, int members, bool have) {
    run *r = w->self;
    assert_true(queries > 0 && members > 0 && have == (r->rounds > 0));
    if (r->budget > 0 && r->rounds >= r->budget)
        kh_monitor_stop(w, "enough");
    return !w->stopped[0];
}

static int done(
    kh_monitor *w, const kh_population *p, const kh_level_done *step, bool last, kh_err *err) {
    (void)err, (void)last;
    run *r = w->self;
    assert_int_equal(step->gen, ++r->rounds);
    assert_true(p->n > 0);
    snprintf(r->facts, sizeof r->facts, "%s", step->facts);
    return 0;
}

static int snpe(run *r, kh_simulator *sim, const char *const *set, uint64_t seed, kh_err *err) {
    const kh_sampler *m = &kh_sampler_snpe;
    void *opts = calloc(1, m->opts_size);
    kh_opts_init(m->opts, opts);
    for (; *set; set++) {
        size_t n = strcspn(*set, "=");
        assert_int_equal(kh_opts_set(kh_opts_find(m->opts, *set, n), opts, *set + n + 1, err), 0);
    }
    r->watch = (kh_monitor){ .may = may, .done = done, .self = r };
    int rc = m->run(&r->p, sim, opts, seed, &r->watch, err);
    free(opts);
    return rc;
}

static void the_linear_gaussian_posterior_is_found(void **state) {
    (void)state;
    kh_toy *toy;
    kh_err err;
    run r = { 0 };
    assert_int_equal(kh_toy_new(&toy, "linear-gaussian", 2, 1, NULL), 0);
    kh_simulator *sim = kh_toy_simulator(toy);
    const char *const *set = SET("budget-rounds=3", "simulations=300", "samples=500",
        "transforms=3", "hidden=12", "rate=0.003", "max-epochs=40", "patience=8");
    if (snpe(&r, sim, set, 2, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(r.p.n, 500);
    assert_int_equal(r.rounds, 3);
    assert_int_equal(sim->asked, 3 * 300);
    assert_string_equal(r.watch.stopped, "all 3 rounds are done");
    assert_true(strncmp(r.facts, "train=", 6) == 0 && strstr(r.facts, " valid=") &&
        strstr(r.facts, " epochs=") && strstr(r.facts, " acceptance=1.0000"));
    for (int j = 0; j < 2; j++) { /* N(0.8 x, 0.2) in each coordinate */
        double mean = 0, var = 0, want = 0.8 * (double)sim->observed[j];
        for (int i = 0; i < 500; i++)
            mean += (double)r.p.z[2 * i + j] / 500;
        for (int i = 0; i < 500; i++)
            var += ((double)r.p.z[2 * i + j] - mean) * ((double)r.p.z[2 * i + j] - mean) / 500;
        if (fabs(mean - want) > 0.2 || var < 0.1 || var > 0.4)
            fail_msg("coordinate %d: mean %g, expected %g; variance %g, expected 0.2", j, mean,
                want, var);
    }
    kh_population_free(&r.p);
    kh_toy_free(toy);
}

#define TINY \
    "budget-rounds=3", "simulations=40", "samples=7", "transforms=2", "hidden=5", "max-epochs=2", \
        "batch=10", "atoms=4"

static void same_bits_with_any_threads(void **state) {
    (void)state;
    float *z[3];
    for (int i = 0; i < 3; i++) {
        kh_toy *toy;
        run r = { 0 };
        assert_int_equal(kh_toy_new(&toy, "linear-gaussian", 4, 1, NULL), 0);
        kh_threads_set(i == 1 ? 2 : 1);
        assert_int_equal(
            snpe(&r, kh_toy_simulator(toy), SET(TINY, "hidden=200"), i < 2 ? 1 : 2, NULL), 0);
        z[i] = r.p.z;
        r.p.z = NULL;
        kh_population_free(&r.p);
        kh_toy_free(toy);
    }
    kh_threads_set(0);
    assert_memory_equal(z[0], z[1], 7 * 4 * sizeof(float));
    assert_memory_not_equal(z[0], z[2], 7 * 4 * sizeof(float));
    for (int i = 0; i < 3; i++)
        kh_free(z[i]);
}

static void a_budget_ends_the_run_between_rounds(void **state) {
    (void)state;
    kh_toy *toy;
    run r = { .budget = 2 };
    assert_int_equal(kh_toy_new(&toy, "two-moons", 2, 1, NULL), 0);
    assert_int_equal(snpe(&r, kh_toy_simulator(toy), SET(TINY), 1, NULL), 0);
    assert_int_equal(r.rounds, 2);
    assert_int_equal(r.p.n, 7);
    assert_string_equal(r.watch.stopped, "enough");
    kh_population_free(&r.p);
    kh_toy_free(toy);
}

/* Given the best simulation instead of the observation: another population, from the same
 * simulations in round 1. */
static void the_best_simulation_may_stand_for_the_observation(void **state) {
    (void)state;
    float *z[2];
    for (int i = 0; i < 2; i++) {
        kh_toy *toy;
        run r = { .budget = 1 };
        assert_int_equal(kh_toy_new(&toy, "linear-gaussian", 3, 1, NULL), 0);
        assert_int_equal(
            snpe(&r, kh_toy_simulator(toy), i ? SET(TINY, "condition=best") : SET(TINY), 1, NULL),
            0);
        z[i] = r.p.z;
        r.p.z = NULL;
        kh_population_free(&r.p);
        kh_toy_free(toy);
    }
    assert_memory_not_equal(z[0], z[1], 7 * 3 * sizeof(float));
    kh_free(z[0]);
    kh_free(z[1]);
}

static void a_simulator_that_only_counts_is_refused(void **state) {
    (void)state;
    run r = { 0 };
    kh_err err;
    assert_int_equal(
        snpe(&r, &(kh_simulator){ .dim = 2, .prior_var = 1 }, SET(TINY), 1, &err), KH_EUNSUPPORTED);
    assert_says(&err,
        "snpe needs a simulator that says what it would have observed; this one only counts "
        "errors");
}

/* Draws are bounded in number: where hardly any is within reach, simulations come from the prior,
 * and in the end there is an error in the first round or an early end in a later one. */
static void draws_out_of_reach_end_the_run(void **state) {
    (void)state;
    bool failed = false, ended = false;
    for (uint64_t seed = 1; seed < 200 && !(failed && ended); seed++) {
        kh_toy *toy;
        kh_err err;
        run r = { 0 };
        assert_int_equal(kh_toy_new(&toy, "linear-gaussian", 2, 1, NULL), 0);
        int rc = snpe(&r, kh_toy_simulator(toy),
            SET("budget-rounds=3", "simulations=10", "samples=1", "transforms=1", "hidden=2",
                "max-epochs=1", "reach=0.15"),
            seed, &err);
        if (rc != 0) {
            assert_int_equal(rc, KH_EUNSUPPORTED);
            assert_says(&err,
                "snpe, round 1: none of 20 draws from the flow lies within 0.15 standard "
                "deviations of the prior; ");
            failed = true;
        } else if (strstr(r.watch.stopped, "round 2: none of 20 draws")) {
            assert_int_equal(r.p.n, 1);
            ended = true;
        }
        kh_population_free(&r.p);
        kh_toy_free(toy);
    }
    assert_true(failed && ended);
}

static void every_failed_allocation_is_survived(void **state) {
    (void)state;
    kh_threads_set(1);
    int rc = -1, n = 1;
    for (; rc != 0; n++) {
        kh_toy *toy;
        run r = { 0 };
        kh_err err = { 0 };
        assert_int_equal(kh_toy_new(&toy, "linear-gaussian", 2, 1, NULL), 0);
        kh_alloc_fail_at(n, n % 2 == 0);
        rc = snpe(&r, kh_toy_simulator(toy),
            SET("budget-rounds=2", "simulations=10", "samples=3", "transforms=1", "hidden=2",
                "max-epochs=1"),
            1, &err);
        kh_alloc_fail_at(0, false);
        assert_true(rc == 0 || rc == KH_ENOMEM);
        kh_population_free(&r.p);
        kh_toy_free(toy);
        assert_true(n < 1000);
    }
    assert_true(n > 80);
    kh_threads_set(0);
}

/* ---------------------------------------------------------------------------------- on the box */

enum { TRAIN = 8, DEV = 6 };

typedef struct lines {
    int n;
    char last[512];
} lines;

static void record(void *user, const char *line) {
    lines *l = user;
    l->n++;
    snprintf(l->last, sizeof l->last, "%s", line);
}

static void tune_on_the_box(bool exact, int threads, kh_posterior **p, lines *l) {
    kh_plm *plm = tiny_open(KH_ACCESS_LABELS);
    const kh_task *task = tiny_task();
    kh_dataset *train = tiny_rows(TRAIN, 1, -1), *dev = tiny_rows(DEV, 2, -1);
    kh_tune_opts o = kh_tune_defaults();
    kh_err err;
    o.space = tiny_space();
    o.seed = 13;
    o.paper_exact = exact;
    o.fallback = KH_FALLBACK_NONE; /* the flow's own draws are looked at */
    o.record = record;
    o.user = l;
    kh_threads_set(threads);
    const char *const *set = SET("budget-rounds=2", "simulations=30", "samples=5", "transforms=2",
        "hidden=6", "max-epochs=3");
    if (kh_tune(p, "snpe", set, plm, task, train, dev, &o, &err))
        fail_msg("%s", err.msg);
    kh_threads_set(0);
    kh_dataset_close(train);
    kh_dataset_close(dev);
    kh_task_close(task);
    kh_plm_close(plm);
}

static void labels_are_enough(void **state) {
    (void)state;
    kh_posterior *p, *again;
    lines l = { 0 };
    tune_on_the_box(false, 1, &p, &l);
    assert_int_equal(p->n, 5);
    assert_int_equal(p->train_queries, 2 * 30 * TRAIN);
    assert_int_equal(p->dev_queries, 2 * 5 * DEV);
    assert_int_equal(p->access, KH_ACCESS_LABELS);
    assert_string_equal(p->stopped, "all 2 rounds are done");
    assert_non_null(strstr(p->options, "\"condition\":\"observed\""));
    assert_int_equal(l.n, 2);
    assert_true(strncmp(l.last, "gen=2 queries=540 ", 18) == 0 && strstr(l.last, "valid=") &&
        strstr(l.last, "dev="));
    tune_on_the_box(false, 2, &again, &l);
    assert_memory_equal(p->z, again->z, 5 * 12 * sizeof *p->z);
    assert_true(p->dev == again->dev);
    kh_posterior_free(again);
    kh_posterior_free(p);
    tune_on_the_box(true, 1, &p, &l);
    assert_non_null(strstr(p->options, "\"condition\":\"best\""));
    assert_false(p->calibrated);
    kh_posterior_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_atom_is_minus_the_log_density),
        cmocka_unit_test(two_atoms_are_a_logistic_loss),
        cmocka_unit_test(equals_cannot_be_told_apart),
        cmocka_unit_test(pytorch_has_the_same_loss),
        cmocka_unit_test(a_flow_learns_a_known_posterior),
        cmocka_unit_test(the_best_weights_are_kept),
        cmocka_unit_test(something_must_be_held_out),
        cmocka_unit_test(the_linear_gaussian_posterior_is_found),
        cmocka_unit_test(same_bits_with_any_threads),
        cmocka_unit_test(a_budget_ends_the_run_between_rounds),
        cmocka_unit_test(the_best_simulation_may_stand_for_the_observation),
        cmocka_unit_test(a_simulator_that_only_counts_is_refused),
        cmocka_unit_test(draws_out_of_reach_end_the_run),
        cmocka_unit_test(every_failed_allocation_is_survived),
        cmocka_unit_test_setup_teardown(labels_are_enough, tiny_setup, tiny_teardown),
    };
    return cmocka_run_group_tests_name("tune snpe", tests, NULL, NULL);
}
