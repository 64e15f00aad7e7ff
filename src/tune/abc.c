/* abc.c - approximate Bayesian computation: rejection, and the sequential Monte Carlo of the paper.
 * doc/methods.md, L1 to L6.
 *
 * Candidates are drawn in batches of 20, each from a random stream of its own; those with few
 * enough errors are accepted in the order of their numbers. The first population is made of prior
 * draws. Each later one perturbs members of the one before it by a normal kernel and allows one
 * error less. Errors are whole numbers, so that ties are ties.
 *
 * Every loop ends: a population may have at most `max-misses` batches in a row without an
 * acceptance. */
#include "tune/likelihood_free.h"

#include "base/alloc.h"
#include "base/clamp.h"
#include "base/err.h"
#include "base/logsum.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct abc_opts {
    kh_labels_opts labels; /* first: likelihood_free.c looks for it there */
    int samples, first_draws, max_misses, early, tolerance;
    double min_rate;
    int generations, importance; /* ABC-SMC */
    double kernel_mean;
} abc_opts;

/* Candidates asked in one question: enough to fill the engine. */
enum { BATCH = 20 };

#define OWN_ROWS \
    { "samples", KH_OPT_INT, offsetof(abc_opts, samples), "100", .min = 1, .max = 1 << 20, \
        .arg = "N", .help = "members of a population" }, \
        { "first-draws", KH_OPT_INT, offsetof(abc_opts, first_draws), "1", .min = 1, \
            .max = 1 << 16, .arg = "N", \
            .help = "prior draws whose least error count is the first tolerance" }, \
        { "max-misses", KH_OPT_INT, offsetof(abc_opts, max_misses), "50", .min = 1, \
            .max = 1 << 20, .arg = "N", \
            .help = "batches of 20 candidates without an acceptance before the run ends" }, \
        { "min-rate", KH_OPT_NUMBER, offsetof(abc_opts, min_rate), "0", .min = 0, .max = 1, \
            .arg = "X", .help = "share of candidates accepted below which the run ends" }, \
    { \
        "early-rejection", KH_OPT_CHOICE, offsetof(abc_opts, early), "on", \
            .arg = "off|on", \
            .help = "stop asking about a candidate that has too many errors; accepts the same" \
    }

#define REJECTION_ROWS \
    { \
        "tolerance", KH_OPT_INT, offsetof(abc_opts, tolerance), "-1", \
            .min = -1, .max = 1 << 30, .arg = "N", \
            .help = "errors allowed; -1: as many as the best of the first draws makes" \
    }

#define SMC_ROWS \
    { "tolerance", KH_OPT_INT, offsetof(abc_opts, tolerance), "0", .min = 0, .max = 1 << 30, \
        .arg = "N", .help = "errors allowed in the last generation" }, \
        { "budget-generations", KH_OPT_INT, offsetof(abc_opts, generations), "1000", .min = 1, \
            .max = 1 << 30, .arg = "N", .help = "generations" }, \
        { "weights", KH_OPT_CHOICE, offsetof(abc_opts, importance), "uniform", \
            .arg = "uniform|importance", \
            .help = "of the members; importance weights are correct, and collapse in many " \
                    "dimensions" }, \
    { \
        "kernel-mean", KH_OPT_NUMBER, offsetof(abc_opts, kernel_mean), "0", \
            .min = 0, .max = 1e9, .arg = "X", \
            .help = \
                "scale the kernel's variances to this mean; 0: they are those of the population" \
    }

static const kh_opt rejection_table[] = { KH_LABELS_ROWS(abc_opts, labels), OWN_ROWS,
    REJECTION_ROWS, { 0 } };
static const kh_opt smc_table[] = { KH_LABELS_ROWS(abc_opts, labels), OWN_ROWS, SMC_ROWS, { 0 } };
static const kh_opt toy_rejection_table[] = { OWN_ROWS, REJECTION_ROWS, { 0 } };
static const kh_opt toy_smc_table[] = { OWN_ROWS, SMC_ROWS, { 0 } };

/* ----------------------------------------------------------------------------------- the state */

typedef struct abc {
    const abc_opts *o;
    kh_simulator *s;
    kh_monitor *w;
    uint64_t seed;
    int gen, eps;
    kh_population now, next; /* the last whole population; the one that is being filled */
    kh_population batch;     /* candidates */
    int allowance[BATCH];
    double *kernel; /* [dim] variances */
    double *terms;  /* [samples] */
    uint32_t tried; /* candidates of this generation */
    int accepted, misses;
} abc;

static int abc_new(
    abc *a, const abc_opts *o, kh_simulator *s, uint64_t seed, kh_monitor *w, kh_err *err) {
    *a = (abc){ .o = o, .s = s, .w = w, .seed = seed };
    int rc = kh_population_new(&a->now, o->samples, s, err);
    if (rc == 0)
        rc = kh_population_new(&a->next, o->samples, s, err);
    if (rc == 0)
        rc = kh_population_new(&a->batch, BATCH, s, err);
    a->kernel = kh_calloc((size_t)s->dim, sizeof *a->kernel);
    a->terms = kh_calloc((size_t)o->samples, sizeof *a->terms);
    return rc == 0 && (!a->kernel || !a->terms) ? kh_fail_memory(err) : rc;
}

static void abc_free(abc *a) {
    kh_population_free(&a->now);
    kh_population_free(&a->next);
    kh_population_free(&a->batch);
    kh_free(a->kernel);
    kh_free(a->terms);
}

static float *z_of(const kh_population *p, int i) { return p->z + (size_t)i * (size_t)p->dim; }

/* ------------------------------------------------------------------------ filling a population */

/* L3: a member of the last population, chosen by weight, plus noise; in the first generation, a
 * prior draw. */
static void propose(abc *a, int i) {
    kh_rng r = kh_rng_stream(a->seed, KH_RNG_ABC, (uint32_t)a->gen, a->tried + (uint32_t)i);
    float *z = z_of(&a->batch, i);
    a->batch.moves[i] = 0;
    a->batch.ancestor[i] = -1;
    if (a->gen <= 1) {
        kh_prior_draw(a->s, &r, z);
        return;
    }
    int parent = kh_rng_categorical(&r, a->now.weight, a->now.n);
    const float *from = z_of(&a->now, parent);
    for (int j = 0; j < a->s->dim; j++)
        z[j] = (float)((double)from[j] + sqrt(a->kernel[j]) * kh_rng_normal(&r));
    a->batch.ancestor[i] = a->now.ancestor[parent];
    a->batch.moves[i] = a->now.moves[parent] + 1;
}

/* With early rejection a candidate's allowance is the tolerance itself: beyond it nobody needs the
 * exact count. */
static int ask_batch(abc *a, int n, kh_err *err) {
    for (int i = 0; i < n; i++) {
        propose(a, i);
        a->allowance[i] = a->o->early ? a->eps : a->s->n_error;
    }
    kh_candidates c = { a->batch.z, n, (uint32_t)a->gen, a->tried };
    return a->s->errors(a->s, &c, a->allowance, a->batch.errors, a->batch.answer, err);
}

/* Accepted in the order of their numbers; what is left of a batch when the population is full is
 * not looked at. */
static void accept_batch(abc *a) {
    int before = a->accepted;
    for (int i = 0; i < BATCH && a->accepted < a->o->samples; i++, a->tried++)
        if (a->batch.errors[i] <= a->eps) {
            kh_population_put(&a->next, a->accepted, &a->batch, i);
            if (a->gen <= 1)
                a->next.ancestor[a->accepted] = a->accepted;
            a->accepted++;
        }
    a->misses = a->accepted > before ? 0 : a->misses + 1;
}

/* How many members there may be to look at after another batch: the population, if that may fill
 * it, or what there is of the first one; later the last whole one stands until then (0). */
static int next_look(const abc *a) {
    int n = a->accepted + BATCH;
    if (n >= a->o->samples)
        return a->o->samples;
    return a->gen > 1 ? 0 : n;
}

/* True if the population is still worth filling. Otherwise the watch says why not. */
static bool goes_on(abc *a) {
    if (a->misses >= a->o->max_misses)
        kh_monitor_stop(
            a->w, "no candidate of the last %d had at most %d errors", a->misses * BATCH, a->eps);
    else if (a->tried >= BATCH && a->accepted < a->o->min_rate * a->tried)
        kh_monitor_stop(a->w,
            "only %d of %u candidates had at most %d errors, less than --min-rate %g", a->accepted,
            (unsigned)a->tried, a->eps, a->o->min_rate);
    return kh_monitor_may(
        a->w, (long long)BATCH * a->s->cost, next_look(a), a->gen > 1 || a->accepted > 0);
}

/* L2: until S are accepted or the run must end. */
static int fill(abc *a, kh_err *err) {
    int rc = 0;
    a->tried = 0;
    a->accepted = a->misses = 0;
    while (rc == 0 && a->accepted < a->o->samples && goes_on(a)) {
        rc = ask_batch(a, BATCH, err);
        if (rc == 0)
            accept_batch(a);
    }
    return rc;
}

/* L1: the first tolerance is the least error count of some prior draws, all rows asked; the best of
 * them is kept in case that nothing better is found. */
static int first_tolerance(abc *a, kh_err *err) {
    int rc = 0, left = a->o->first_draws;
    a->eps = a->s->n_error;
    while (left > 0 && rc == 0 &&
        kh_monitor_may(
            a->w, (long long)(left < BATCH ? left : BATCH) * a->s->cost, 1, a->now.n == 1)) {
        int n = left < BATCH ? left : BATCH, eps = a->eps;
        a->eps = a->s->n_error;
        rc = ask_batch(a, n, err);
        a->eps = eps;
        for (int i = 0; i < n && rc == 0; i++)
            if (a->batch.errors[i] < a->eps || a->now.n != 1) {
                a->eps = a->batch.errors[i];
                kh_population_put(&a->now, 0, &a->batch, i);
                a->now.n = 1;
            }
        left -= n;
        a->tried += (uint32_t)n;
    }
    a->now.weight[0] = 1;
    a->now.tolerance = a->eps;
    return rc;
}

/* ----------------------------------------------------------------------------- weights, kernel */

/* L4: the diagonal of the weighted variance of the population. Diagonal: with 100 members in 500
 * dimensions a full covariance would be singular. */
static void set_kernel(abc *a) {
    const kh_population *p = &a->now;
    double total = 0;
    for (int j = 0; j < p->dim; j++) {
        double mean = 0, var = 0;
        for (int i = 0; i < p->n; i++)
            mean += p->weight[i] * (double)z_of(p, i)[j];
        for (int i = 0; i < p->n; i++)
            var += p->weight[i] * ((double)z_of(p, i)[j] - mean) * ((double)z_of(p, i)[j] - mean);
        a->kernel[j] = var;
        total += var;
    }
    for (int j = 0; j < p->dim && a->o->kernel_mean > 0 && total > 0; j++)
        a->kernel[j] *= a->o->kernel_mean * p->dim / total;
}

/* L5, in logarithms: prior density over the density of the proposal, up to constants that are the
 * same for all. */
static void weigh(abc *a) {
    kh_population *p = &a->next;
    double most = -INFINITY, total = 0;
    for (int i = 0; i < p->n; i++) {
        double prior = 0;
        for (int j = 0; j < p->dim; j++)
            prior -= (double)z_of(p, i)[j] * (double)z_of(p, i)[j] / (2 * a->s->prior_var);
        for (int k = 0; k < a->now.n; k++) {
            double distance = 0;
            for (int j = 0; j < p->dim; j++) {
                double off = (double)z_of(p, i)[j] - (double)z_of(&a->now, k)[j];
                distance += off * off / a->kernel[j];
            }
            a->terms[k] = log(a->now.weight[k]) - distance / 2;
        }
        p->weight[i] = prior - kh_log_sum_exp(a->terms, a->now.n);
        most = p->weight[i] > most ? p->weight[i] : most;
    }
    for (int i = 0; i < p->n; i++)
        total += p->weight[i] = exp(p->weight[i] - most);
    for (int i = 0; i < p->n; i++)
        p->weight[i] /= total;
}

/* ------------------------------------------------------------------------------------- the run */

static int report(abc *a, bool last, kh_err *err) {
    const kh_population *p = &a->now;
    char facts[256];
    double sum = 0;
    int best = p->errors[0];
    for (int i = 0; i < p->n; i++) {
        sum += p->errors[i];
        best = p->errors[i] < best ? p->errors[i] : best;
    }
    snprintf(facts, sizeof facts,
        "eps=%d accepted=%d tried=%u rate=%.4f ess=%.1f ancestors=%d errors=%d/%.2f saved=%lld",
        a->eps, p->n, (unsigned)a->tried, (double)p->n / (double)a->tried, kh_population_ess(p),
        kh_population_ancestors(p), best, sum / p->n, a->s->saved);
    return kh_monitor_done(a->w, p, &(kh_level_done){ a->gen, a->gen, 0, facts }, last, err);
}

/* The population just filled becomes the last whole one. Buffers change places; a population that
 * did not fill is not handed on. */
static void turn(abc *a) {
    kh_population old = a->now;
    a->next.n = a->accepted;
    a->next.tolerance = a->eps;
    for (int i = 0; i < a->accepted; i++)
        a->next.weight[i] = 1.0 / a->accepted;
    if (a->gen > 1 && a->o->importance)
        weigh(a);
    a->now = a->next;
    a->next = old;
    a->next.n = a->o->samples;
}

/* A population that was cut short is kept only if it is the first: it is a sample from the prior
 * given the tolerance, and the only one that there is. */
static int one_generation(abc *a, bool last, kh_err *err) {
    int rc = fill(a, err);
    if (rc != 0 || (a->accepted < a->o->samples && (a->gen > 1 || a->accepted == 0)))
        return rc; /* what was there before stands */
    turn(a);
    return report(a, last || a->w->stopped[0], err);
}

static int hand_over(abc *a, kh_population *out, int rc) {
    if (rc == 0) {
        *out = a->now;
        a->now = (kh_population){ 0 };
    }
    abc_free(a);
    return rc;
}

/* (L1), (L2). */
static int run_rejection(kh_population *out, kh_simulator *s, const void *opts, uint64_t seed,
    kh_monitor *w, kh_err *err) {
    const abc_opts *o = opts;
    abc a;
    int rc = abc_new(&a, o, s, seed, w, err);
    if (rc == 0)
        rc = first_tolerance(&a, err);
    a.gen = 1;
    a.eps = o->tolerance >= 0 ? o->tolerance : a.eps;
    if (rc == 0)
        rc = one_generation(&a, true, err);
    if (rc == 0)
        kh_monitor_stop(w, "%d draws with at most %d errors are there", a.accepted, a.eps);
    return hand_over(&a, out, rc);
}

/* (L1) to (L5). eps falls by one a generation, as errors are counted. */
static int run_abc_smc(kh_population *out, kh_simulator *s, const void *opts, uint64_t seed,
    kh_monitor *w, kh_err *err) {
    const abc_opts *o = opts;
    abc a;
    int rc = abc_new(&a, o, s, seed, w, err);
    if (rc == 0)
        rc = first_tolerance(&a, err);
    a.eps = a.eps > o->tolerance ? a.eps : o->tolerance;
    for (a.gen = 1; rc == 0 && a.gen <= o->generations && a.eps >= o->tolerance && !w->stopped[0];
         a.gen++, a.eps--) {
        if (a.gen > 1)
            set_kernel(&a);
        rc = one_generation(&a, a.gen == o->generations || a.eps == o->tolerance, err);
    }
    if (rc == 0 && a.eps < o->tolerance)
        kh_monitor_stop(w, "the tolerance of %d errors is reached", o->tolerance);
    if (rc == 0)
        kh_monitor_stop(w, "all %d generations are done", o->generations);
    return hand_over(&a, out, rc);
}

/* The published code: the first tolerance is the best of 20 draws, the kernel's variances have mean
 * 10, and all rows are asked. */
static void exact(void *opts) {
    abc_opts *o = opts;
    o->first_draws = 20;
    o->kernel_mean = 10;
    o->early = false;
}

/* ------------------------------------------------------------------------------------ the rows */

const kh_sampler kh_sampler_abc_rejection = {
    .name = "abc-rejection",
    .summary = "prior draws with few enough errors",
    .opts = toy_rejection_table,
    .opts_size = sizeof(abc_opts),
    .exact = exact,
    .run = run_rejection,
};

const kh_sampler kh_sampler_abc_smc = {
    .name = "abc-smc",
    .summary = "the paper's sequential ABC: perturbed populations, one error less each",
    .opts = toy_smc_table,
    .opts_size = sizeof(abc_opts),
    .exact = exact,
    .run = run_abc_smc,
};

static long long least(const kh_tuning *t, const void *opts) {
    return kh_labels_least(t, ((const abc_opts *)opts)->samples);
}

/* Every member may take all the misses that there may be. An upper bound for the forecast; runs end
 * far before it. */
static double most_draws(const abc_opts *o) {
    double n = (double)o->samples * o->max_misses * BATCH,
           by_rate = o->min_rate > 0 ? o->samples / o->min_rate + BATCH : n;
    return n < by_rate ? n : by_rate;
}

static void most_of_rejection(const kh_tuning *t, const void *opts, kh_plan *most) {
    const abc_opts *o = opts;
    kh_labels_most(t, &o->labels, o->first_draws + most_draws(o), 1, o->samples, most);
}

/* The tolerance, which is all rows at most, falls by one with each population. */
static void most_of_abc_smc(const kh_tuning *t, const void *opts, kh_plan *most) {
    const abc_opts *o = opts;
    int n = kh_clamp_int(t->train->n_row - o->tolerance + 1, 1, o->generations);
    kh_labels_most(t, &o->labels, o->first_draws + n * most_draws(o), n, o->samples, most);
}

const kh_method kh_method_abc_rejection = {
    .name = "abc-rejection",
    .summary = "labels only: prior draws with few enough errors",
    .access = KH_ACCESS_LABELS,
    .soft = true,
    .holds = true,
    .opts = rejection_table,
    .opts_size = sizeof(abc_opts),
    .exact = exact,
    .least = least,
    .most = most_of_rejection,
    .sampler = &kh_sampler_abc_rejection,
};

const kh_method kh_method_abc_smc = {
    .name = "abc-smc",
    .summary = "labels only: the paper's sequential ABC",
    .access = KH_ACCESS_LABELS,
    .soft = true,
    .holds = true,
    .opts = smc_table,
    .opts_size = sizeof(abc_opts),
    .exact = exact,
    .least = least,
    .most = most_of_abc_smc,
    .sampler = &kh_sampler_abc_smc,
};
