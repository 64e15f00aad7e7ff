/* elbo.c - see elbo.h.
 *
 * The bound of a candidate is estimated from a few draws. With common random numbers (the default)
 * all candidates of a generation use the same noise, so that their ranking, all that CMA-ES looks
 * at, is about the candidates and not about luck. The candidate that is kept is chosen by the dev
 * cross-entropy of the mixture of the very draws that are returned.
 *
 * The posterior is approximated by a Gaussian with a diagonal covariance, q(z) = N(mu, diag |v|),
 * whose 2 d parameters lambda = (mu, v) are searched by CMA-ES: the bound (T12) needs no gradient
 * of the model, only answers to draws of z (T13). v is free in sign and its absolute value is the
 * variance, so that the search has no boundary to run into. The divergence from the prior is in
 * closed form (T14); the likelihood is estimated.
 *
 * What a generation costs: pop * draws questions about every train row, which is `draws` times the
 * cost of BBT at the same population. */
#include "tune/elbo.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/rng.h"
#include "tune/cmaes.h"
#include "tune/fallback.h"
#include "tune/method.h"

#include <math.h>
#include <string.h>

static const double LEAST_VARIANCE =
    1e-30; /* keeps the logarithm of a variance that CMA-ES put at 0 finite */
static const uint32_t RETURNED = UINT32_MAX; /* the "generation" of the draws that are returned */

const kh_opt kh_elbo_table[] = {
    KH_SEARCH_ROWS(kh_elbo_opts, "generations"),
    { "draws", KH_OPT_INT, offsetof(kh_elbo_opts, draws), "10", .min = 1, .max = 1 << 12,
        .arg = "N", .help = "draws of z for each candidate" },
    { "samples", KH_OPT_INT, offsetof(kh_elbo_opts, samples), "100", .min = 1, .max = 1 << 20,
        .arg = "N", .help = "draws of z returned" },
    { "kl-weight", KH_OPT_NUMBER, offsetof(kh_elbo_opts, kl_weight), "1", .min = 0, .max = 1e9,
        .arg = "X", .help = "weight of the divergence from the prior; 1 is the bound itself" },
    { "prior-variance", KH_OPT_NUMBER, offsetof(kh_elbo_opts, prior), "50", .min = 1e-9, .max = 1e9,
        .arg = "X", .help = "of each coordinate of z" },
    { "common-noise", KH_OPT_FLAG, offsetof(kh_elbo_opts, common), "true",
        .help = "the same noise for all candidates of a generation" },
    KH_SEARCH_STEP_ROWS(kh_elbo_opts, "0", "means and variances stay"),
    KH_SEARCH_DEV_ROW(kh_elbo_opts),
    { "dev-all", KH_OPT_FLAG, offsetof(kh_elbo_opts, dev_all),
        .help = "score every candidate on dev, with the draws of its generation" },
    KH_SEARCH_SHAPE_ROWS(kh_elbo_opts),
    { 0 },
};

/* -------------------------------------------------------------------------------- the Gaussian */

static double variance(const double *lambda, int dim, int i) {
    double v = fabs(lambda[dim + i]);
    return v > LEAST_VARIANCE ? v : LEAST_VARIANCE;
}

/* (T14), for variances |v_j| and a prior N(0, prior I). */
double kh_elbo_kl(const double *lambda, int dim, double prior) {
    double sum = 0;
    for (int i = 0; i < dim; i++) {
        double v = variance(lambda, dim, i);
        sum += (v + lambda[i] * lambda[i]) / prior - 1 - log(v / prior);
    }
    return sum / 2;
}

/* (T13). The stream is named by (seed, generation, draw): the same noise wherever it is asked for.
 */
void kh_elbo_draw(
    const double *lambda, int dim, uint64_t seed, uint32_t generation, uint32_t draw, float *z) {
    kh_rng r = kh_rng_stream(seed, KH_RNG_VARIATION, generation, draw);
    for (int i = 0; i < dim; i++)
        z[i] = (float)(lambda[i] + sqrt(variance(lambda, dim, i)) * kh_rng_normal(&r));
}

/* ------------------------------------------------------------------------------------- the fit */

/* Starts at mu = 0, v = 1: the middle of the prior, but narrower than its variance of 50. */
int kh_elbo_new(kh_elbo **out, int dim, const kh_elbo_opts *o, uint64_t seed, kh_err *err) {
    *out = NULL;
    size_t pop = (size_t)o->pop, d = (size_t)dim, draws = (size_t)o->draws;
    kh_elbo *e = kh_calloc(1, sizeof *e);
    double *start = kh_calloc(2 * d, sizeof *start);
    kh_cmaes_opts c = kh_cmaes_defaults();
    c.pop = o->pop;
    c.variant = o->variant;
    c.active = o->active;
    c.bound = o->bound;
    c.seed = seed;
    int rc = e && start ? 0 : kh_fail_memory(err);
    if (rc == 0) {
        *e = (kh_elbo){ .o = o,
            .dim = dim,
            .seed = seed,
            .best = INFINITY,
            .x = kh_malloc(pop * 2 * d * sizeof *e->x),
            .loss = kh_malloc(pop * sizeof *e->loss),
            .z = kh_malloc(pop * draws * d * sizeof *e->z),
            .nll = kh_malloc(pop * draws * sizeof *e->nll) };
        for (size_t i = 0; i < d; i++)
            start[d + i] = 1;
        rc = e->x && e->loss && e->z && e->nll
            ? kh_cmaes_new(&e->es, start, 2 * dim, o->sigma, &c, err)
            : kh_fail_memory(err);
    }
    kh_free(start);
    if (rc != 0)
        kh_elbo_free(e);
    else
        *out = e;
    return rc;
}

void kh_elbo_free(kh_elbo *e) {
    if (!e)
        return;
    kh_cmaes_free(e->es);
    kh_free(e->x);
    kh_free(e->loss);
    kh_free(e->z);
    kh_free(e->nll);
    kh_free(e);
}

const double *kh_elbo_candidate(const kh_elbo *e, int k) {
    return e->x + (size_t)k * 2 * (size_t)e->dim;
}

/* All draws of all candidates in one question. What is told to CMA-ES is minus the bound, to be
 * minimised. */
int kh_elbo_step(kh_elbo *e, const kh_objective *nll, kh_err *err) {
    const kh_elbo_opts *o = e->o;
    kh_cmaes_ask(e->es, e->x);
    for (int k = 0; k < o->pop; k++)
        for (int s = 0; s < o->draws; s++) {
            uint32_t stream = (uint32_t)(o->common ? s : k * o->draws + s);
            kh_elbo_draw(kh_elbo_candidate(e, k), e->dim, e->seed, (uint32_t)e->gen, stream,
                e->z + ((size_t)k * (size_t)o->draws + (size_t)s) * (size_t)e->dim);
        }
    int rc = nll->value(nll->self, e->z, o->pop * o->draws, e->nll, err);
    if (rc != 0)
        return rc;
    e->top = 0;
    for (int k = 0; k < o->pop; k++) {
        double sum = 0;
        for (int s = 0; s < o->draws; s++)
            sum += e->nll[k * o->draws + s];
        e->loss[k] =
            sum / o->draws + o->kl_weight * kh_elbo_kl(kh_elbo_candidate(e, k), e->dim, o->prior);
        e->top = e->loss[k] < e->loss[e->top] ? k : e->top;
    }
    kh_cmaes_tell(e->es, e->loss);
    e->gen++;
    e->best = e->loss[e->top] < e->best ? e->loss[e->top] : e->best;
    return 0;
}

/* ---------------------------------------------------------------------------------- the method */

/* What has been kept so far. */
typedef struct choice {
    double *lambda; /* [2 dim] */
    float *z;       /* [samples, dim] scratch for draws */
    double *answers;
    double ce, dev; /* of the one kept; NaN: none yet */
    int judged;     /* the last generation that dev was asked about */
    int stale;      /* looks at dev since one was better than all before it */
} choice;

static int choice_new(choice *c, const kh_tuning *t, const kh_elbo_opts *o, kh_err *err) {
    size_t d = (size_t)t->space.dim;
    *c = (choice){ .lambda = kh_calloc(2 * d, sizeof *c->lambda),
        .z = kh_malloc((size_t)o->samples * d * sizeof *c->z),
        .answers = kh_malloc(kh_dev_size(t) * sizeof *c->answers),
        .ce = NAN,
        .dev = NAN };
    return c->lambda && c->z && c->answers ? 0 : kh_fail_memory(err);
}

static void choice_free(choice *c) {
    kh_free(c->lambda);
    kh_free(c->z);
    kh_free(c->answers);
}

static void draw_returned(const kh_elbo *e, const double *lambda, float *z) {
    for (int s = 0; s < e->o->samples; s++)
        kh_elbo_draw(
            lambda, e->dim, e->seed, RETURNED, (uint32_t)s, z + (size_t)s * (size_t)e->dim);
}

/* Scores a Gaussian by n draws of it, and keeps it if none was better. */
static int consider(choice *c, kh_tuning *t, const kh_subspace *space, const kh_elbo *e,
    const double *lambda, const float *z, int n, kh_err *err) {
    int rc = kh_tuning_dev(t, space, z, n, c->answers, err);
    double ce = rc == 0 ? kh_dev_ce(t, c->answers) : 0;
    if (rc == 0 && !(ce > c->ce)) { /* later wins ties, and anything wins against none */
        memcpy(c->lambda, lambda, 2 * (size_t)e->dim * sizeof *c->lambda);
        c->ce = ce;
        c->dev = kh_dev_metric(t, c->answers);
    }
    c->judged = e->gen;
    return rc;
}

static int looks_of(const kh_elbo *e, const kh_tuning *t) {
    const kh_elbo_opts *o = e->o;
    int looks = o->dev_all ? e->gen * o->pop : (e->gen + o->dev_every - 1) / o->dev_every;
    return looks + kh_tuning_guards(t); /* one at the prior */
}

static bool is_stalled(const choice *c, const kh_elbo_opts *o) {
    return o->stall > 0 && c->stale >= o->stall;
}

/* The generation's best candidate by the draws that would be returned; or, as the published code
 * does, every candidate by the draws that it was estimated with. */
static int look_at_dev(
    choice *c, kh_tuning *t, const kh_subspace *space, const kh_elbo *e, kh_err *err) {
    int rc = 0, draws = e->o->draws;
    double before = c->ce;
    if (!e->o->dev_all) {
        draw_returned(e, kh_elbo_candidate(e, e->top), c->z);
        rc = consider(c, t, space, e, kh_elbo_candidate(e, e->top), c->z, e->o->samples, err);
    }
    for (int k = 0; e->o->dev_all && k < e->o->pop && rc == 0; k++)
        rc = consider(c, t, space, e, kh_elbo_candidate(e, k),
            e->z + (size_t)k * (size_t)draws * (size_t)e->dim, draws, err);
    c->stale = c->ce < before || isnan(before) ? 0 : c->stale + 1;
    return rc;
}

/* The prior itself: what is returned if no fit is better on dev. Not in the paper. */
static int look_at_prior(
    choice *c, kh_tuning *t, const kh_subspace *space, const kh_elbo *e, kh_err *err) {
    double *lambda = kh_calloc(2 * (size_t)e->dim, sizeof *lambda);
    if (!lambda)
        return kh_fail_memory(err);
    for (int i = 0; i < e->dim; i++)
        lambda[e->dim + i] = e->o->prior;
    draw_returned(e, lambda, c->z);
    int rc = consider(c, t, space, e, lambda, c->z, e->o->samples, err);
    kh_free(lambda);
    return rc;
}

/* One look at dev asks every sample that would be returned: a hundred by default, which is why dev
 * is not looked at in each generation. */
static long long dev_cost(const kh_tuning *t, const kh_elbo_opts *o) {
    return (long long)t->dev->n_row * (o->dev_all ? (long long)o->pop * o->draws : o->samples);
}

static long long one_generation(const kh_tuning *t, const void *opts) {
    const kh_elbo_opts *o = opts;
    return (long long)o->pop * o->draws * t->train->n_row + dev_cost(t, o);
}

static long long prior_cost(const kh_tuning *t, const kh_elbo_opts *o) {
    return kh_tuning_guards(t) ? (long long)t->dev->n_row * o->samples : 0;
}

static long long least_of_elbo(const kh_tuning *t, const void *opts) {
    return one_generation(t, opts) + prior_cost(t, opts);
}

/* ---- the state of a fit as bytes that the same run reads again */

typedef struct saved {
    int gen, judged, stale;
    double best, ce, dev;
} saved;

/* Under which name a fit is kept; the number changes with the layout. */
#define FIT "fit/2"

/* The lambdas: the one kept, and the last generation's best. */
static int keep_fit(const kh_elbo *e, const choice *c, kh_tuning *t, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    saved head = { e->gen, c->judged, c->stale, e->best, c->ce, c->dev };
    size_t lambda = 2 * (size_t)e->dim * sizeof *c->lambda;
    kh_buf_bytes(&b, &head, sizeof head);
    kh_buf_bytes(&b, c->lambda, lambda);
    kh_buf_bytes(&b, kh_elbo_candidate(e, e->top), lambda);
    int rc = kh_cmaes_save(e->es, &b, err);
    if (rc == 0)
        rc =
            kh_buf_failed(&b) ? kh_fail_memory(err) : kh_tuning_keep(t, FIT, 0, b.data, b.len, err);
    kh_buf_free(&b);
    return rc;
}

static int recall_fit(kh_elbo *e, choice *c, kh_tuning *t, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_cmaes *es = NULL;
    saved head;
    size_t lambda = 2 * (size_t)e->dim * sizeof *c->lambda, used = sizeof head + 2 * lambda;
    int rc = kh_tuning_recall(t, FIT, 0, &b, err);
    if (rc == 1)
        rc = b.len < used
            ? kh_fail(err, KH_EFORMAT, "the kept state of a fit is damaged: %zu bytes", b.len)
            : kh_cmaes_load(&es, b.data + used, b.len - used, "the kept state", err);
    if (rc == 0 && es) {
        memcpy(&head, b.data, sizeof head);
        memcpy(c->lambda, b.data + sizeof head, lambda);
        memcpy(e->x, b.data + sizeof head + lambda, lambda);
        e->top = 0;
        e->gen = head.gen, e->best = head.best;
        c->judged = head.judged, c->stale = head.stale, c->ce = head.ce, c->dev = head.dev;
        kh_cmaes_free(e->es);
        e->es = es;
    }
    kh_buf_free(&b);
    return rc;
}

static int samples_of(const void *opts) { return ((const kh_elbo_opts *)opts)->samples; }

static void all_generations(const kh_tuning *t, const void *opts, kh_plan *most) {
    const kh_elbo_opts *o = opts;
    long long looks =
        o->dev_all ? o->generations : (o->generations + o->dev_every - 1) / o->dev_every;
    most->candidates = (long long)o->pop * o->generations;
    most->train = most->candidates * o->draws * t->train->n_row;
    most->dev = looks * dev_cost(t, o) + prior_cost(t, o);
}

/* The last generation is always looked at, whatever dev-every says: it is the most likely one to be
 * kept. */
static int fit(kh_elbo *e, choice *c, kh_tuning *t, const kh_subspace *space, kh_err *err) {
    const kh_elbo_opts *o = e->o;
    kh_train_loss likelihood = kh_tuning_loss(t, space, KH_LOSS_CE);
    likelihood.scale = t->train->n_row; /* N times the mean cross-entropy is -log p(data | z) */
    kh_objective nll = kh_objective_of(&likelihood);
    int rc = recall_fit(e, c, t, err);
    if (rc == 0 && e->gen == 0 && kh_tuning_guards(t) && kh_tuning_may(t, prior_cost(t, o), false))
        rc = look_at_prior(c, t, space, e, err);
    while (rc == 0 && e->gen < o->generations && kh_cmaes_stop(e->es) == KH_CMAES_GOING &&
        !is_stalled(c, o) && kh_tuning_may(t, one_generation(t, o), e->gen > 0)) {
        rc = kh_elbo_step(e, &nll, err);
        if (rc == 0 && (o->dev_all || e->gen % o->dev_every == 0))
            rc = look_at_dev(c, t, space, e, err);
        if (rc == 0) {
            char facts[KH_FACTS];
            kh_loss_facts(facts, e->loss[e->top], e->best);
            kh_tuning_report(t, "elbo",
                &(kh_generation){ -1, e->gen, e->gen, o->generations, c->dev, facts, 0, false });
        }
        if (rc == 0 && kh_tuning_due(t))
            rc = keep_fit(e, c, t, err);
    }
    return rc == 0 && c->judged < e->gen ? look_at_dev(c, t, space, e, err) : rc;
}

static void say_why(const kh_elbo *e, const choice *c, kh_tuning *t) {
    if (t->stopped[0])
        return;
    if (e->gen == e->o->generations)
        kh_tuning_stop(t, "all %d generations are done", e->gen);
    else if (is_stalled(c, e->o))
        kh_tuning_stop(t,
            "after %d generations: the last %d looks at the dev rows found nothing better", e->gen,
            c->stale);
    else
        kh_tuning_stop(t, "CMA-ES stopped after %d generations: %s", e->gen,
            kh_cmaes_stop_name(kh_cmaes_stop(e->es)));
}

static int run_elbo(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    const kh_elbo_opts *o = opts;
    kh_subspace *space;
    kh_elbo *e = NULL;
    choice c = { 0 };
    int rc = kh_subspace_new(&space, &t->space, t->plm, t->o->seed, err);
    if (rc == 0)
        rc = kh_elbo_new(&e, t->space.dim, o, t->o->seed, err);
    if (rc == 0)
        rc = choice_new(&c, t, o, err);
    if (rc == 0)
        rc = fit(e, &c, t, space, err);
    if (rc == 0) {
        say_why(e, &c, t);
        draw_returned(e, c.lambda, c.z);
        t->looks = looks_of(e, t);
        p->dev = c.dev;
    }
    for (int s = 0; s < o->samples && rc == 0; s++)
        rc = kh_posterior_add(p, c.z + (size_t)s * (size_t)t->space.dim, t->o->seed, err);
    choice_free(&c);
    kh_elbo_free(e);
    kh_subspace_free(space);
    return rc;
}

/* Text and code of the paper differ; this is the code: a weak divergence, fresh noise for every
 * candidate, bounds, and every candidate scored on dev. */
static void elbo_exact(void *opts) {
    kh_elbo_opts *o = opts;
    o->kl_weight = 1e-3;
    o->common = false;
    o->dev_all = true;
    o->bound = 100;
}

const kh_method kh_method_elbo = {
    .name = "elbo",
    .summary = "variational inference without gradients: a Gaussian over prompts",
    .access = KH_ACCESS_LOGPROBS,
    .soft = true,
    .opts = kh_elbo_table,
    .opts_size = sizeof(kh_elbo_opts),
    .exact = elbo_exact,
    .samples = samples_of,
    .least = least_of_elbo,
    .most = all_generations,
    .run = run_elbo,
};
