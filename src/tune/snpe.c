/* snpe.c - sequential neural posterior estimation with atomic proposals (SNPE-C; Greenberg,
 * Nonnenmacher and Macke 2019).
 *
 * Each round simulates: z from the prior in round 1, then from what the flow says of z given the
 * observation. The flow is then taught all simulations of all rounds (snpe_fit.c). Draws beyond
 * what the prior can give are refused; how many may be refused is bounded, and what is missing then
 * comes from the prior, which is as good a proposal as any: the atomic loss does not ask where z
 * came from. After every round, draws from the flow given the observation are the population.
 *
 * Teaching takes long, and so its outcome is kept: a run that is taken up again makes the
 * simulations of each round from what it has on record, and looks the flow's weights up. */
#include "tune/snpe.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/blas.h"
#include "tune/likelihood_free.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TRIES = 20 }; /* draws for each one wanted, at most */

enum { GIVEN_OBSERVED, GIVEN_BEST };

typedef struct snpe_opts {
    kh_labels_opts labels; /* first: likelihood_free.c looks for it there */
    int rounds, simulations, samples;
    kh_flow_opts flow;
    kh_fit_opts fit;
    double holdout, reach;
    int condition;
} snpe_opts;

#define OWN_ROWS \
    { "budget-rounds", KH_OPT_INT, offsetof(snpe_opts, rounds), "5", .min = 1, .max = 1000, \
        .arg = "N", .help = "rounds" }, \
        { "simulations", KH_OPT_INT, offsetof(snpe_opts, simulations), "1000", .min = 10, \
            .max = 1 << 20, .arg = "N", .help = "simulations of a round" }, \
        { "samples", KH_OPT_INT, offsetof(snpe_opts, samples), "100", .min = 1, .max = 1 << 20, \
            .arg = "N", .help = "draws of z returned" }, \
        { "transforms", KH_OPT_INT, offsetof(snpe_opts, flow.transforms), "10", .min = 1, \
            .max = 1000, .arg = "N", .help = "transforms of the flow" }, \
        { "hidden", KH_OPT_INT, offsetof(snpe_opts, flow.hidden), "60", .min = 1, .max = 1 << 14, \
            .arg = "N", .help = "units in a layer of a transform" }, \
        { "layers", KH_OPT_INT, offsetof(snpe_opts, flow.layers), "2", .min = 1, .max = 100, \
            .arg = "N", .help = "layers of units in a transform" }, \
        { "atoms", KH_OPT_INT, offsetof(snpe_opts, fit.atoms), "10", .min = 2, .max = 1 << 16, \
            .arg = "N", \
            .help = "z among which the true one is to be told, in rounds after the first" }, \
        { "combined", KH_OPT_FLAG, offsetof(snpe_opts, fit.combined), \
            .help = "add -log q of the first round's simulations to the atomic loss" }, \
        { "batch", KH_OPT_INT, offsetof(snpe_opts, fit.batch), "50", .min = 2, .max = 1 << 20, \
            .arg = "N", .help = "simulations in a step of learning" }, \
        { "rate", KH_OPT_NUMBER, offsetof(snpe_opts, fit.rate), "0.0005", .min = 1e-9, .max = 1, \
            .arg = "X", .help = "of Adam's steps" }, \
        { "clip", KH_OPT_NUMBER, offsetof(snpe_opts, fit.clip), "5", .min = 1e-9, .max = 1e9, \
            .arg = "X", .help = "longest gradient that is followed in full" }, \
        { "holdout", KH_OPT_NUMBER, offsetof(snpe_opts, holdout), "0.1", .min = 0.01, .max = 0.5, \
            .arg = "X", .help = "share of the simulations that only tell when to stop" }, \
        { "patience", KH_OPT_INT, offsetof(snpe_opts, fit.patience), "20", .min = 1, \
            .max = 1 << 20, .arg = "N", \
            .help = "epochs without improvement before a round stops learning" }, \
        { "max-epochs", KH_OPT_INT, offsetof(snpe_opts, fit.max_epochs), "500", .min = 1, \
            .max = 1 << 20, .arg = "N", .help = "epochs of a round at most" }, \
        { "reach", KH_OPT_NUMBER, offsetof(snpe_opts, reach), "8", .min = 1e-9, .max = 1e9, \
            .arg = "X", \
            .help = "draws with a coordinate beyond so many of the prior's standard deviations " \
                    "are refused" }, \
    { \
        "condition", KH_OPT_CHOICE, offsetof(snpe_opts, condition), "observed", \
            .arg = "observed|best", \
            .help = "the posterior given what was observed, or given the round's simulation that " \
                    "is nearest to it" \
    }

static const kh_opt snpe_table[] = { KH_LABELS_ROWS(snpe_opts, labels), OWN_ROWS, { 0 } };
static const kh_opt toy_table[] = { OWN_ROWS, { 0 } };

typedef struct snpe {
    const snpe_opts *o;
    kh_simulator *sim;
    uint64_t seed;
    int round; /* from 1 */
    kh_simulations sims;
    kh_flow *flow;
    float *given;  /* [n_obs] what the posterior is conditioned on */
    double *ready; /* [simulations or samples, dim] draws, */
    bool *good;    /* and whether they lie within reach */
    double acceptance;
    kh_population now;
} snpe;

/* --------------------------------------------------------------------------------------- draws */

/* True if all of z could have come from the prior. */
static bool within_reach(const snpe *s, const double *z) {
    for (int j = 0; j < s->sim->dim; j++)
        if (!(fabs(z[j]) <= s->o->reach * sqrt(s->sim->prior_var)))
            return false;
    return true;
}

/* Draws number first .. first + n - 1 of the stream, into ready and good. */
static int draw_some(snpe *s, kh_purpose purpose, int first, int n, kh_err *err) {
    int dim = s->sim->dim, threads = kh_threads(), failed = 0;
#pragma omp parallel num_threads(threads) reduction(+ : failed)
    {
        kh_flow_work *work;
        double *u = kh_malloc((size_t)dim * sizeof *u);
        failed = kh_flow_work_new(&work, s->flow, 1, 1, NULL) != 0 || !u;
        if (!failed)
            kh_flow_context(s->flow, work, s->given, 1);
#pragma omp for schedule(static)
        for (int i = 0; i < n; i++) {
            if (failed)
                continue;
            kh_rng r = kh_rng_stream(s->seed, purpose, (uint32_t)s->round, (uint32_t)(first + i));
            double *z = s->ready + (size_t)i * (size_t)dim;
            for (int j = 0; j < dim; j++)
                u[j] = kh_rng_normal(&r);
            kh_flow_inverse(s->flow, work, 0, u, z);
            s->good[i] = within_reach(s, z);
        }
        kh_flow_work_free(work);
        kh_free(u);
    }
    return failed ? kh_fail_memory(err) : 0;
}

/* At most n draws from the flow given `given`, in the order of the stream; *got says how many,
 * s->acceptance which share of what was drawn. */
static int draw_posterior(snpe *s, kh_purpose purpose, float *z, int n, int *got, kh_err *err) {
    int dim = s->sim->dim, drawn = 0, rc = 0;
    *got = 0;
    kh_blas_hold();
    for (int tries = 0; tries < TRIES && *got < n && rc == 0; tries++) {
        rc = draw_some(s, purpose, drawn, n, err);
        for (int i = 0; i < n && *got < n && rc == 0; i++) {
            drawn++;
            if (!s->good[i])
                continue;
            for (int j = 0; j < dim; j++)
                z[(size_t)*got * (size_t)dim + (size_t)j] =
                    (float)s->ready[(size_t)i * (size_t)dim + (size_t)j];
            (*got)++;
        }
    }
    kh_blas_release();
    s->acceptance = drawn > 0 ? (double)*got / drawn : 0;
    return rc;
}

/* --------------------------------------------------------------------------------- simulations */

static int propose(snpe *s, float *z, int n, kh_err *err) {
    int got = 0, rc = 0;
    s->acceptance = 1;
    if (s->round > 1)
        rc = draw_posterior(s, KH_RNG_SNPE_DRAW, z, n, &got, err);
    for (int i = got; i < n && rc == 0; i++) {
        kh_rng r = kh_rng_stream(s->seed, KH_RNG_SNPE_PRIOR, (uint32_t)s->round, (uint32_t)i);
        kh_prior_draw(s->sim, &r, z + (size_t)i * (size_t)s->sim->dim);
    }
    return rc;
}

/* The last of a shuffle of the round's simulations are held out; at least one is, and one is not.
 */
static int hold_out(snpe *s, int first, int n, kh_err *err) {
    int *order = kh_malloc((size_t)n * sizeof *order);
    if (!order)
        return kh_fail_memory(err);
    kh_rng r = kh_rng_stream(s->seed, KH_RNG_SNPE_SPLIT, (uint32_t)s->round, 0);
    int held = (int)(s->o->holdout * n);
    held = held < 1 ? 1 : held;
    kh_rng_permutation(&r, order, n);
    for (int i = 0; i < n; i++)
        s->sims.held[first + order[i]] = i >= n - held;
    kh_free(order);
    return 0;
}

static int simulate(snpe *s, kh_err *err) {
    int n = s->o->simulations, first = s->sims.n, dim = s->sim->dim;
    int rc = kh_simulations_grow(&s->sims, first + n, err);
    if (rc != 0)
        return rc;
    float *z = s->sims.z + (size_t)first * (size_t)dim,
          *x = s->sims.x + (size_t)first * (size_t)s->sim->n_obs;
    rc = propose(s, z, n, err);
    if (rc == 0)
        rc = s->sim->observe(s->sim, &(kh_candidates){ z, n, (uint32_t)s->round, 0 }, x, err);
    for (int i = first; i < first + n && rc == 0; i++) {
        s->sims.round[i] = s->round;
        s->sims.log_prior[i] = 0;
        for (int j = 0; j < dim; j++) {
            double v = (double)s->sims.z[(size_t)i * (size_t)dim + (size_t)j];
            s->sims.log_prior[i] -= v * v / (2 * s->sim->prior_var);
        }
    }
    if (rc == 0)
        rc = hold_out(s, first, n, err);
    s->sims.n = first + n;
    return rc;
}

/* x is measured by what the prior's simulations look like. What never varies there is left as large
 * as it is. */
static int standardise(snpe *s, kh_err *err) {
    size_t dim = (size_t)s->sim->dim, n_obs = (size_t)s->sim->n_obs;
    double *all = kh_calloc(2 * dim + 2 * n_obs, sizeof *all);
    if (!all)
        return kh_fail_memory(err);
    double *z_sd = all + dim, *mean = z_sd + dim, *sd = mean + n_obs;
    for (size_t j = 0; j < dim; j++)
        z_sd[j] = sqrt(s->sim->prior_var);
    for (int i = 0; i < s->sims.n; i++)
        for (size_t j = 0; j < n_obs; j++)
            mean[j] += (double)s->sims.x[(size_t)i * n_obs + j] / s->sims.n;
    for (int i = 0; i < s->sims.n; i++)
        for (size_t j = 0; j < n_obs; j++) {
            double off = (double)s->sims.x[(size_t)i * n_obs + j] - mean[j];
            sd[j] += off * off / s->sims.n;
        }
    for (size_t j = 0; j < n_obs; j++)
        sd[j] = sd[j] > 1e-20 ? sqrt(sd[j]) : 1;
    kh_flow_standardise(s->flow, all, z_sd, mean, sd);
    kh_free(all);
    return 0;
}

/* What the posterior is conditioned on from now on. Nearest is the least sum of squares: for
 * labels, the fewest errors. The first of equals. */
static void condition(snpe *s) {
    int n_obs = s->sim->n_obs, best = -1;
    double least = INFINITY;
    for (int i = s->sims.n - s->o->simulations; i < s->sims.n && s->o->condition == GIVEN_BEST;
         i++) {
        const float *x = s->sims.x + (size_t)i * (size_t)n_obs;
        double far = 0;
        for (int j = 0; j < n_obs; j++)
            far += ((double)x[j] - (double)s->sim->observed[j]) *
                ((double)x[j] - (double)s->sim->observed[j]);
        if (far < least) {
            least = far;
            best = i;
        }
    }
    memcpy(s->given, best < 0 ? s->sim->observed : s->sims.x + (size_t)best * (size_t)n_obs,
        (size_t)n_obs * sizeof *s->given);
}

/* -------------------------------------------------------------------------------------- rounds */

/* The round's population. If the flow has run away, the one of the round before stays, and the run
 * ends. */
static int draw_population(snpe *s, kh_monitor *w, kh_err *err) {
    kh_population *p = &s->now;
    int got, rc = draw_posterior(s, KH_RNG_SNPE_RESULT, p->z, s->o->samples, &got, err);
    if (rc != 0)
        return rc;
    if (got == 0) {
        char what[256];
        snprintf(what, sizeof what,
            "round %d: none of %d draws from the flow lies within %g standard deviations of the "
            "prior",
            s->round, s->o->samples * TRIES, s->o->reach);
        kh_monitor_stop(w, "%s", what);
        return s->round > 1 ? 0
                            : kh_fail(err, KH_EUNSUPPORTED,
                                  "snpe, %s; lower --rate or give it more --simulations", what);
    }
    p->n = got;
    for (int i = 0; i < got; i++) {
        p->weight[i] = 1.0 / got;
        p->errors[i] = -1;
        p->ancestor[i] = i;
    }
    return 0;
}

/* What a fit left: the report, as three numbers, and the weights. */
static int keep_flow(const snpe *s, kh_monitor *w, const kh_fit_report *fit, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    double head[] = { fit->epochs, fit->train, fit->valid };
    kh_buf_bytes(&b, head, sizeof head);
    kh_buf_bytes(&b, kh_flow_weights(s->flow), kh_flow_size(s->flow) * sizeof(double));
    int rc =
        kh_buf_failed(&b) ? kh_fail_memory(err) : kh_monitor_keep(w, s->round, b.data, b.len, err);
    kh_buf_free(&b);
    return rc;
}

/* 1: the flow knows what the fit of this round has taught it. */
static int recall_flow(snpe *s, kh_monitor *w, kh_fit_report *fit, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    double head[3];
    size_t bytes = kh_flow_size(s->flow) * sizeof(double);
    int rc = kh_monitor_recall(w, s->round, &b, err);
    if (rc == 1 && b.len != sizeof head + bytes)
        rc =
            kh_fail(err, KH_EFORMAT, "the kept state of a flow is damaged: %zu bytes, expected %zu",
                b.len, sizeof head + bytes);
    if (rc == 1) {
        memcpy(head, b.data, sizeof head);
        memcpy(kh_flow_weights(s->flow), b.data + sizeof head, bytes);
        *fit = (kh_fit_report){ (int)head[0], head[1], head[2] };
    }
    kh_buf_free(&b);
    return rc;
}

/* 1: the watch has ended the run in the middle of it. */
static int teach(snpe *s, kh_monitor *w, kh_fit_report *fit, kh_err *err) {
    int rc = recall_flow(s, w, fit, err);
    if (rc != 0)
        return rc == 1 ? 0 : rc;
    rc = kh_fit(s->flow, &s->sims, s->round, &s->o->fit, s->seed, w, fit, err);
    return rc == 0 ? keep_flow(s, w, fit, err) : rc;
}

static int run_round(snpe *s, kh_monitor *w, kh_err *err) {
    kh_fit_report fit;
    s->round++;
    int rc = simulate(s, err);
    double acceptance = s->acceptance;
    if (rc == 0 && s->round == 1)
        rc = standardise(s, err);
    if (rc == 0)
        rc = teach(s, w, &fit, err);
    if (rc == 1)
        return 0; /* the population of the round before stands */
    if (rc == 0) {
        condition(s);
        rc = draw_population(s, w, err);
    }
    if (rc != 0)
        return rc;
    char facts[160];
    snprintf(facts, sizeof facts, "train=%.4f valid=%.4f epochs=%d acceptance=%.4f", fit.train,
        fit.valid, fit.epochs, acceptance);
    return kh_monitor_done(w, &s->now, &(kh_level_done){ s->round, s->round, s->o->rounds, facts },
        s->round == s->o->rounds, err);
}

static int run_rounds(snpe *s, kh_monitor *w, kh_err *err) {
    size_t most = (size_t)(s->o->simulations > s->o->samples ? s->o->simulations : s->o->samples);
    s->sims = (kh_simulations){ .dim = s->sim->dim, .n_obs = s->sim->n_obs };
    s->given = kh_calloc((size_t)s->sim->n_obs, sizeof *s->given);
    s->ready = kh_calloc(most * (size_t)s->sim->dim, sizeof *s->ready);
    s->good = kh_calloc(most, sizeof *s->good);
    int rc = s->given && s->ready && s->good ? 0 : kh_fail_memory(err);
    if (rc == 0)
        rc = kh_flow_new(&s->flow, s->sim->dim, s->sim->n_obs, &s->o->flow, s->seed, err);
    if (rc == 0)
        rc = kh_population_new(&s->now, s->o->samples, &(kh_simulator){ .dim = s->sim->dim },
            err); /* answers are not kept */
    long long cost = (long long)s->o->simulations * s->sim->cost;
    while (
        rc == 0 && s->round < s->o->rounds && kh_monitor_may(w, cost, s->o->samples, s->round > 0))
        rc = run_round(s, w, err);
    return rc;
}

static int run_snpe(kh_population *out, kh_simulator *sim, const void *opts, uint64_t seed,
    kh_monitor *w, kh_err *err) {
    if (sim->n_obs == 0)
        return kh_fail(err, KH_EUNSUPPORTED,
            "snpe needs a simulator that says what it would have observed; this one only counts "
            "errors");
    snpe s = { .o = opts, .sim = sim, .seed = seed };
    int rc = run_rounds(&s, w, err);
    if (rc == 0)
        kh_monitor_stop(w, "all %d rounds are done", s.o->rounds);
    *out = s.now;
    if (s.round == 0)
        out->n = 0;
    kh_simulations_free(&s.sims);
    kh_flow_free(s.flow);
    kh_free(s.given);
    kh_free(s.ready);
    kh_free(s.good);
    return rc;
}

/* The published code conditions on the best that was seen instead of what is wanted. */
static void exact(void *opts) {
    snpe_opts *o = opts;
    o->condition = GIVEN_BEST;
}

const kh_sampler kh_sampler_snpe = {
    .name = "snpe",
    .summary = "a masked autoregressive flow taught by simulations, in rounds (SNPE-C)",
    .opts = toy_table,
    .opts_size = sizeof(snpe_opts),
    .exact = exact,
    .run = run_snpe,
};

static long long least(const kh_tuning *t, const void *opts) {
    const snpe_opts *o = opts;
    return (long long)o->simulations * t->train->n_row + (long long)o->samples * t->dev->n_row;
}

static void most(const kh_tuning *t, const void *opts, kh_plan *plan) {
    const snpe_opts *o = opts;
    kh_labels_most(t, &o->labels, (double)o->rounds * o->simulations, o->rounds, o->samples, plan);
}

const kh_method kh_method_snpe = {
    .name = "snpe",
    .summary = "labels only: a flow learns p(z | labels) from simulations, in rounds (SNPE-C)",
    .access = KH_ACCESS_LABELS,
    .soft = true,
    .holds = true,
    .opts = snpe_table,
    .opts_size = sizeof(snpe_opts),
    .exact = exact,
    .least = least,
    .most = most,
    .sampler = &kh_sampler_snpe,
};
