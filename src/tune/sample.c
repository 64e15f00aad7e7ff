/* sample.c - likelihood-free samplers on a simulator of the caller's own.
 *
 * A kh_problem becomes a kh_simulator, the seam that the methods of tuning use as well. Samplers
 * accept by whole numbers of errors, so that ties are exact: with labels an error is a wrong label;
 * with observations it is a unit of distance, by default a hundredth of the mean distance of prior
 * draws.
 *
 * Noise. Simulators are given standard normal numbers, in number n_noise. For samplers that accept
 * and reject afresh they come from a stream named by the candidate. Samplers that move by small
 * steps (smc) need the same answer to the same point: for them the noise is part of the point, as
 * further coordinates of z whose prior is N(0, 1) as well, and is left out of what is returned
 * (pseudo-marginal in spirit: Andrieu and Roberts 2009). */
#include "tune/simulator.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/hooks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    PROBES = 100,      /* prior draws that the unit of distance is taken from, */
    UNITS = 100,       /* of whose mean distance it is this fraction */
    MAX_COUNT = 10000, /* errors at most: anything farther away counts as this far */
    MAX_SIZE = 1 << 24 /* of dimensions, observations, rows: keeps products within size_t */
};

typedef struct own {
    kh_simulator sim;
    kh_monitor monitor;
    const kh_problem *p;
    const kh_sample_opts *o;
    const char *phase;
    uint64_t seed;
    int dim, n_noise; /* of the problem; sim.dim is larger if z carries the noise */
    double sd, unit;
    bool carried;
    double *noise;  /* [n_noise] */
    float *x;       /* [n_obs] */
    int *label;     /* [n_row] */
    float *one_hot; /* [n_row, n_class] the observed labels */
} own;

/* ------------------------------------------------------------------------------- the simulator */

/* The noise of candidate i, which only matters to problems that are random. */
static void draw_noise(own *w, const kh_candidates *c, int i) {
    const float *z = c->z + (size_t)i * (size_t)w->sim.dim;
    kh_rng r = kh_rng_stream(w->seed, KH_RNG_SIMULATE, c->round, c->first + (uint32_t)i);
    for (int k = 0; k < w->n_noise; k++)
        w->noise[k] = w->carried ? (double)z[w->dim + k] / w->sd : kh_rng_normal(&r);
}

static int simulate(own *w, const kh_candidates *c, int i, float *x, kh_err *err) {
    kh_err why = { 0 };
    draw_noise(w, c, i);
    int rc = w->p->simulate(w->p->user, c->z + (size_t)i * (size_t)w->sim.dim, w->noise, x, &why);
    for (int k = 0; rc == 0 && k < w->p->n_obs; k++)
        if (!isfinite(x[k]))
            return kh_fail(err, KH_EFORMAT,
                "number %d of a simulated observation is not finite; simulate must fill all %d", k,
                w->p->n_obs);
    if (rc == 0)
        return 0;
    return kh_fail(err, rc < 0 ? rc : KH_EIO, "%s",
        why.msg[0] ? why.msg : "the simulator failed and gave no reason");
}

static double distance_of(const own *w, const float *x) {
    if (w->p->distance)
        return w->p->distance(w->p->user, x);
    double sum = 0;
    for (int k = 0; k < w->p->n_obs; k++) {
        double off = (double)x[k] - (double)w->p->observed[k];
        sum += off * off;
    }
    return sqrt(sum);
}

static int distance_errors(kh_simulator *s, const kh_candidates *c, const int *allowance,
    int *errors, int *answer, kh_err *err) {
    own *w = s->self;
    (void)allowance, (void)answer;
    for (int i = 0; i < c->n; i++) {
        int rc = simulate(w, c, i, w->x, err);
        if (rc != 0)
            return rc;
        double units = distance_of(w, w->x) / w->unit;
        errors[i] = units < MAX_COUNT ? (int)units : MAX_COUNT; /* NaN, too, is as far as can be */
    }
    s->asked += c->n;
    return 0;
}

static int observe(kh_simulator *s, const kh_candidates *c, float *x, kh_err *err) {
    int rc = 0;
    for (int i = 0; i < c->n && rc == 0; i++)
        rc = simulate(s->self, c, i, x + (size_t)i * (size_t)s->n_obs, err);
    s->asked += c->n;
    return rc;
}

static int answer_row(own *w, const float *z, int *label, kh_err *err) {
    const kh_problem *p = w->p;
    kh_err why = { 0 };
    int rc = p->answer(p->user, z, label, &why);
    if (rc != 0)
        return kh_fail(err, rc < 0 ? rc : KH_EIO, "%s",
            why.msg[0] ? why.msg : "the simulator failed and gave no reason");
    for (int k = 0; k < p->n_row; k++)
        if (label[k] < 0 || label[k] >= p->n_class)
            return kh_fail(err, KH_EFORMAT, "row %d was answered with label %d, outside 0..%d", k,
                label[k], p->n_class - 1);
    return 0;
}

static int label_errors(kh_simulator *s, const kh_candidates *c, const int *allowance, int *errors,
    int *answer, kh_err *err) {
    own *w = s->self;
    (void)allowance;
    for (int i = 0; i < c->n; i++) {
        int *label = answer + (size_t)i * (size_t)s->n_answer;
        int rc = answer_row(w, c->z + (size_t)i * (size_t)s->dim, label, err);
        if (rc != 0)
            return rc;
        errors[i] = 0;
        for (int k = 0; k < w->p->n_row; k++)
            errors[i] += label[k] != w->p->truth[k];
    }
    s->asked += (long long)c->n * s->cost;
    return 0;
}

static void put_one_hot(const own *w, const int *label, float *x) {
    for (int r = 0; r < w->p->n_row; r++)
        for (int k = 0; k < w->p->n_class; k++)
            *x++ = label[r] == k;
}

static int label_observe(kh_simulator *s, const kh_candidates *c, float *x, kh_err *err) {
    own *w = s->self;
    for (int i = 0; i < c->n; i++) {
        int rc = answer_row(w, c->z + (size_t)i * (size_t)s->dim, w->label, err);
        if (rc != 0)
            return rc;
        put_one_hot(w, w->label, x + (size_t)i * (size_t)s->n_obs);
    }
    s->asked += (long long)c->n * s->cost;
    return 0;
}

/* --------------------------------------------------------------------------------- preparation */

static int check(const kh_problem *p, kh_err *err) {
    if (p->dim < 1 || p->dim > MAX_SIZE || p->n_noise < 0 || p->n_noise > MAX_SIZE)
        return kh_fail(err, KH_EARG,
            "a problem has 1 to %d dimensions, not %d, and 0 or more "
            "numbers of noise, not %d",
            MAX_SIZE, p->dim, p->n_noise);
    if (!p->simulate == !p->answer)
        return kh_fail(
            err, KH_EARG, "a problem has either a function `simulate` or a function `answer`");
    if (p->simulate && (p->n_obs < 1 || p->n_obs > MAX_SIZE || !p->observed))
        return kh_fail(err, KH_EARG, "a problem with `simulate` needs n_obs numbers `observed`");
    if (p->answer && (p->n_row < 1 || p->n_row > MAX_SIZE || p->n_class < 2 || !p->truth))
        return kh_fail(err, KH_EARG,
            "a problem with `answer` needs n_row labels `truth` of at least two classes");
    if (!(p->prior_var >= 0) || !(p->unit >= 0))
        return kh_fail(err, KH_EARG, "a variance or a unit of distance cannot be negative");
    return 0;
}

/* The mean distance of prior draws, in steps that make it UNITS long. */
static int measure_unit(own *w, kh_err *err) {
    double sum = 0;
    int n = 0;
    float *z = kh_malloc((size_t)w->sim.dim * sizeof *z);
    int rc = z ? 0 : kh_fail_memory(err);
    for (int i = 0; i < PROBES && rc == 0; i++) {
        /* a round that no sampler reaches: no noise is used twice */
        kh_rng r = kh_rng_stream(w->seed, KH_RNG_OBSERVE, UINT32_MAX, (uint32_t)i);
        kh_prior_draw(&w->sim, &r, z);
        kh_candidates one = { z, 1, UINT32_MAX, (uint32_t)i };
        rc = simulate(w, &one, 0, w->x, err);
        double d = rc == 0 ? distance_of(w, w->x) : NAN;
        if (isfinite(d)) {
            sum += d;
            n++;
        }
    }
    w->sim.asked += PROBES;
    w->unit = n > 0 && sum > 0 ? sum / n / UNITS : 1;
    kh_free(z);
    return rc;
}

static int prepare(own *w, const kh_sampler *sampler, kh_err *err) {
    const kh_problem *p = w->p;
    double var = p->prior_var > 0 ? p->prior_var : 1;
    w->dim = p->dim;
    w->n_noise = p->simulate ? p->n_noise : 0;
    w->carried = sampler->steps;
    w->sd = sqrt(var);
    w->sim = (kh_simulator){
        .dim = p->dim + (w->carried ? w->n_noise : 0), .prior_var = var, .cost = 1, .self = w
    };
    w->noise = kh_calloc((size_t)w->n_noise + 1, sizeof *w->noise);
    w->x = kh_calloc((size_t)p->n_obs + 1, sizeof *w->x);
    w->label = kh_calloc((size_t)p->n_row + 1, sizeof *w->label);
    w->one_hot = kh_calloc((size_t)p->n_row * (size_t)p->n_class + 1, sizeof *w->one_hot);
    if (!w->noise || !w->x || !w->label || !w->one_hot)
        return kh_fail_memory(err);
    if (p->simulate) {
        w->sim.n_error = MAX_COUNT;
        w->sim.errors = distance_errors;
        w->sim.n_obs = p->n_obs;
        w->sim.observed = p->observed;
        w->sim.observe = observe;
        w->unit = p->unit;
        return p->unit > 0 ? 0 : measure_unit(w, err);
    }
    put_one_hot(w, p->truth, w->one_hot);
    w->sim.n_error = w->sim.n_answer = w->sim.cost = p->n_row;
    w->sim.n_class = p->n_class;
    w->sim.errors = label_errors;
    w->sim.n_obs = p->n_row * p->n_class;
    w->sim.observed = w->one_hot;
    w->sim.observe = label_observe;
    return 0;
}

static void own_free(own *w) {
    kh_free(w->noise);
    kh_free(w->x);
    kh_free(w->label);
    kh_free(w->one_hot);
}

/* --------------------------------------------------------------------------------------- a run */

static bool may(kh_monitor *m, long long queries, int members, bool have) {
    const own *w = m->self;
    (void)members, (void)have;
    long long most = w->o ? w->o->max_simulations : 0;
    if (most > 0 && (w->sim.asked + queries) / w->sim.cost > most)
        kh_monitor_stop(m, "the budget of %lld simulations is used up", most);
    return !m->stopped[0];
}

static int done(
    kh_monitor *m, const kh_population *p, const kh_level_done *step, bool last, kh_err *err) {
    const own *w = m->self;
    (void)p, (void)last, (void)err;
    if (w->o &&
        kh_report_progress(w->o->hooks, w->phase, step->done, step->total, step->facts) != 0)
        kh_monitor_stop(m, "stopped on request");
    return 0;
}

static int set_options(const kh_sampler *s, void *opts, const char *const *set, kh_err *err) {
    int rc = 0;
    for (; set && *set && rc == 0; set++) {
        size_t n = strcspn(*set, "=");
        const kh_opt *row = kh_opts_find(s->opts, *set, n);
        rc = row && (*set)[n] == '='
            ? kh_opts_set(row, opts, *set + n + 1, err)
            : kh_fail(err, KH_EARG,
                  "sampler %s has no option \"%s\"; options are written name=value", s->name, *set);
    }
    return rc;
}

/* What the caller gets: the problem's own coordinates, without carried noise. */
static int hand_over(kh_samples *out, const own *w, const kh_population *p, kh_err *err) {
    size_t n = (size_t)p->n, dim = (size_t)w->dim;
    *out = (kh_samples){ .n = p->n, .dim = w->dim, .simulations = w->sim.asked / w->sim.cost };
    out->z = kh_malloc(n * dim * sizeof *out->z + 1);
    out->weight = kh_malloc(n * sizeof *out->weight + 1);
    if (!out->z || !out->weight)
        return kh_fail_memory(err);
    out->distance = NAN;
    for (size_t i = 0; i < n; i++) {
        memcpy(out->z + i * dim, p->z + i * (size_t)p->dim, dim * sizeof *out->z);
        out->weight[i] = p->weight[i];
        double far = p->errors[i] < 0 ? NAN : (double)p->errors[i];
        if (w->p->simulate) /* a count of whole units: the next one was not reached */
            far = (far + 1) * w->unit;
        if (isnan(out->distance) || far > out->distance)
            out->distance = far;
    }
    snprintf(out->stopped, sizeof out->stopped, "%s", w->monitor.stopped);
    return 0;
}

int kh_sample(kh_samples *out, const char *sampler, const char *const *set,
    const kh_problem *problem, uint64_t seed, const kh_sample_opts *o, kh_err *err) {
    *out = (kh_samples){ 0 };
    const kh_sampler *s = kh_sampler_find(sampler);
    if (!s)
        return kh_fail(err, KH_EARG,
            "unknown sampler \"%s\"; there are abc-rejection, abc-smc, smc and snpe", sampler);
    int rc = check(problem, err);
    if (rc != 0)
        return rc;
    own w = { .p = problem, .o = o, .phase = s->name, .seed = seed };
    kh_population found = { 0 };
    void *opts = kh_calloc(1, s->opts_size + 1);
    if (!opts)
        return kh_fail_memory(err);
    kh_opts_init(s->opts, opts);
    rc = set_options(s, opts, set, err);
    if (rc == 0)
        rc = prepare(&w, s, err);
    w.sim.self = &w;
    w.monitor = (kh_monitor){ .may = may, .done = done, .self = &w };
    if (rc == 0)
        rc = s->run(&found, &w.sim, opts, seed, &w.monitor, err);
    if (rc == 0)
        rc = hand_over(out, &w, &found, err);
    if (rc != 0)
        kh_samples_free(out);
    kh_population_free(&found);
    kh_opts_free(s->opts, opts);
    kh_free(opts);
    own_free(&w);
    return rc;
}

void kh_samples_free(kh_samples *s) {
    kh_free(s->z);
    kh_free(s->weight);
    *s = (kh_samples){ 0 };
}
