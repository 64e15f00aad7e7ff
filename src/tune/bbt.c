/* bbt.c - black-box tuning (Sun et al. 2022) and ensembles of it.
 *
 * CMA-ES minimises the train loss over z. Every dev_every-th generation, and the last one, the generation's best z by train
 * loss is scored on dev; the best of those is the result, the later one of equals. An ensemble is several such searches
 * with seeds of their own and, unless told otherwise, projections of their own. doc/methods.md, T10 and T11. */
#include "tune/cmaes.h"
#include "tune/method.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

typedef struct bbt_opts {
    int generations, dev_every, loss;
    double sigma;
    int pop, variant;
    bool active;
    double bound;
    int members; /* ensembles */
    bool share;
} bbt_opts;

#define BBT_ROWS(default_bound) \
    { "budget-generations", KH_OPT_INT, offsetof(bbt_opts, generations), "300", .min = 1, .max = 1 << 30, .arg = "N", \
        .help = "generations of a search" }, \
    { "pop", KH_OPT_INT, offsetof(bbt_opts, pop), "20", .min = 2, .max = KH_CMAES_MAX_POP, .arg = "N", \
        .help = "candidates per generation" }, \
    { "sigma", KH_OPT_NUMBER, offsetof(bbt_opts, sigma), "1", .min = 1e-9, .max = 1e9, .arg = "X", .help = "first step size" }, \
    { "bound", KH_OPT_NUMBER, offsetof(bbt_opts, bound), default_bound, .min = 0, .max = 1e9, .arg = "X", \
        .help = "z stays within -X .. X; 0: no bounds" }, \
    { "loss", KH_OPT_CHOICE, offsetof(bbt_opts, loss), "ce", .arg = KH_LOSS_NAMES, \
        .help = "what is minimised on the train rows" }, \
    { "dev-every", KH_OPT_INT, offsetof(bbt_opts, dev_every), "20", .min = 1, .max = 1 << 30, .arg = "N", \
        .help = "generations between two looks at the dev rows" }, \
    { "variant", KH_OPT_CHOICE, offsetof(bbt_opts, variant), "full", .arg = "full|separable", \
        .help = "covariance of CMA-ES: all of it, or its diagonal" }, \
    { "active", KH_OPT_FLAG, offsetof(bbt_opts, active), "true", .help = "learn from bad candidates, too" }

static const kh_opt bbt_table[] = { BBT_ROWS("100"), { 0 } };

static const kh_opt ensemble_table[] = {
    { "members", KH_OPT_INT, offsetof(bbt_opts, members), "10", .min = 1, .max = 1 << 16, .arg = "N", .help = "searches" },
    { "share-projection", KH_OPT_FLAG, offsetof(bbt_opts, share), .help = "one matrix A for all members instead of one for each" },
    BBT_ROWS("0"),
    { 0 },
};

/* ------------------------------------------------------------------------------------------------- one search */

/* Everything that a search is in the middle of. */
typedef struct search {
    const bbt_opts *o;
    int dim, gen;
    kh_cmaes *es;
    double *x, *f;   /* [pop, dim], [pop]: the generation's candidates and losses */
    float *z;        /* [pop, dim]: the candidates as prompts are made of them */
    int top;         /* the best of them */
    double best;     /* the least loss so far */
    float *chosen;   /* [dim]: the best on dev so far, */
    double *answers; /* [dev rows, labels] with these answers there */
    double dev;      /* and this metric; NaN: none yet */
    double *scratch; /* as answers */
    int judged;      /* the last generation that dev was asked about */
} search;

static int search_new(search *s, const bbt_opts *o, const kh_tuning *t, uint64_t seed, kh_err *err) {
    int dim = t->space.dim;
    size_t n = (size_t)o->pop * (size_t)dim;
    kh_cmaes_opts c = kh_cmaes_defaults();
    c.pop = o->pop;
    c.variant = o->variant;
    c.active = o->active;
    c.bound = o->bound;
    c.seed = seed;
    *s = (search){ .o = o,
        .dim = dim,
        .x = kh_malloc(n * sizeof *s->x),
        .f = kh_malloc((size_t)o->pop * sizeof *s->f),
        .z = kh_malloc(n * sizeof *s->z),
        .chosen = kh_calloc((size_t)dim, sizeof *s->chosen),
        .answers = kh_calloc(kh_dev_size(t), sizeof *s->answers),
        .scratch = kh_calloc(kh_dev_size(t), sizeof *s->scratch),
        .best = INFINITY,
        .dev = NAN };
    if (!s->x || !s->f || !s->z || !s->chosen || !s->answers || !s->scratch)
        return kh_fail_memory(err);
    return kh_cmaes_new(&s->es, NULL, dim, o->sigma, &c, err);
}

static void search_free(search *s) {
    kh_cmaes_free(s->es);
    kh_free(s->x);
    kh_free(s->f);
    kh_free(s->z);
    kh_free(s->chosen);
    kh_free(s->answers);
    kh_free(s->scratch);
}

/* One generation: ask, evaluate, tell. The loss told of a candidate is that of its float numbers, which are what is kept. */
static int search_step(search *s, const kh_objective *loss, kh_err *err) {
    kh_cmaes_ask(s->es, s->x);
    for (size_t i = 0; i < (size_t)s->o->pop * (size_t)s->dim; i++)
        s->z[i] = (float)s->x[i];
    int rc = loss->value(loss->self, s->z, s->o->pop, s->f, err);
    if (rc != 0)
        return rc;
    kh_cmaes_tell(s->es, s->f);
    s->gen++;
    s->top = 0;
    for (int k = 1; k < s->o->pop; k++)
        s->top = s->f[k] < s->f[s->top] ? k : s->top;
    s->best = s->f[s->top] < s->best ? s->f[s->top] : s->best;
    return 0;
}

static int search_judge(search *s, kh_tuning *t, const kh_subspace *space, kh_err *err) {
    const float *top = s->z + (size_t)s->top * (size_t)s->dim;
    int rc = kh_tuning_dev(t, space, top, 1, s->scratch, err);
    double dev = rc == 0 ? kh_dev_metric(t, s->scratch) : 0;
    if (rc == 0 && !(dev < s->dev)) { /* later wins ties, and anything wins against none */
        memcpy(s->chosen, top, (size_t)s->dim * sizeof *top);
        memcpy(s->answers, s->scratch, kh_dev_size(t) * sizeof *s->answers);
        s->dev = dev;
    }
    s->judged = s->gen;
    return rc;
}

/* A whole search. Its queries stay within the budget, the last look at dev included. */
static int search_run(search *s, kh_tuning *t, const kh_subspace *space, const char *phase, int member, kh_err *err) {
    const bbt_opts *o = s->o;
    kh_train_loss on_train = kh_tuning_loss(t, space, (kh_loss)o->loss);
    kh_objective loss = kh_objective_of(&on_train);
    long long cost = (long long)o->pop * t->train->n_row + t->dev->n_row;
    int rc = 0;
    while (rc == 0 && s->gen < o->generations && kh_cmaes_stop(s->es) == KH_CMAES_GOING && kh_tuning_may(t, cost, s->gen > 0)) {
        rc = search_step(s, &loss, err);
        if (rc == 0 && s->gen % o->dev_every == 0)
            rc = search_judge(s, t, space, err);
        if (rc == 0) {
            char facts[KH_FACTS];
            kh_loss_facts(facts, s->f[s->top], s->best);
            kh_tuning_report(t, phase,
                &(kh_generation){ member, s->gen, (long)(member < 0 ? 0 : member) * o->generations + s->gen,
                    (long)(member < 0 ? 1 : o->members) * o->generations, s->dev, facts });
        }
    }
    return rc == 0 && s->gen > 0 && s->judged < s->gen ? search_judge(s, t, space, err) : rc;
}

/* The reason for the end of a search that no budget ended. */
static void search_reason(const search *s, kh_tuning *t) {
    if (t->stopped[0])
        return;
    if (s->gen == s->o->generations)
        kh_tuning_stop(t, "all %d generations are done", s->gen);
    else
        kh_tuning_stop(t, "CMA-ES stopped after %d generations: %s", s->gen, kh_cmaes_stop_name(kh_cmaes_stop(s->es)));
}

static long long one_generation(const kh_tuning *t, const void *opts) {
    return (long long)((const bbt_opts *)opts)->pop * t->train->n_row + t->dev->n_row;
}

/* -------------------------------------------------------------------------------------------------------- BBT */

static int run_bbt(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    kh_subspace *space;
    search s = { 0 };
    int rc = kh_subspace_new(&space, &t->space, t->plm, t->o->seed, err);
    if (rc == 0)
        rc = search_new(&s, opts, t, t->o->seed, err);
    if (rc == 0)
        rc = search_run(&s, t, space, "bbt", -1, err);
    if (rc == 0) {
        search_reason(&s, t);
        p->dev = s.dev;
        rc = kh_posterior_add(p, s.chosen, t->o->seed, err);
    }
    search_free(&s);
    kh_subspace_free(space);
    return rc;
}

const kh_method kh_method_bbt = {
    .name = "bbt",
    .summary = "black-box tuning: one soft prompt, found by CMA-ES",
    .access = KH_ACCESS_LOGPROBS,
    .soft = true,
    .opts = bbt_table,
    .opts_size = sizeof(bbt_opts),
    .least = one_generation,
    .run = run_bbt,
};

/* -------------------------------------------------------------------------------------------------- ensembles */

/* Member 0 has the seed itself, so that an ensemble of one is BBT. */
static uint64_t member_seed(uint64_t seed, int member) {
    kh_rng r = kh_rng_stream(seed, KH_RNG_MEMBER, (uint32_t)member, 0);
    return member == 0 ? seed : kh_rng_u64(&r);
}

/* Adds the member's sample to the posterior and its answers on dev to `sum`. */
static int run_member(kh_tuning *t, const bbt_opts *o, int member, kh_posterior *p, double *sum, kh_err *err) {
    uint64_t seed = member_seed(t->o->seed, member), projection = o->share ? t->o->seed : seed;
    kh_subspace *space;
    search s = { 0 };
    int rc = kh_subspace_new(&space, &t->space, t->plm, projection, err);
    if (rc == 0)
        rc = search_new(&s, o, t, seed, err);
    if (rc == 0)
        rc = search_run(&s, t, space, "ensemble", member, err);
    if (rc == 0 && s.gen > 0) {
        rc = kh_posterior_add(p, s.chosen, projection, err);
        for (size_t i = 0; i < kh_dev_size(t); i++)
            sum[i] += s.answers[i];
    }
    search_free(&s);
    kh_subspace_free(space);
    return rc;
}

static int run_ensemble(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    const bbt_opts *o = opts;
    double *sum = kh_calloc(kh_dev_size(t), sizeof *sum);
    int rc = sum ? 0 : kh_fail_memory(err);
    for (int member = 0; member < o->members && rc == 0 && !t->stopped[0]; member++)
        rc = run_member(t, o, member, p, sum, err);
    if (rc == 0 && !t->stopped[0])
        kh_tuning_stop(t, "all %d members are done", o->members);
    if (rc == 0)
        p->dev = kh_dev_metric(t, sum); /* the mean's, whose largest are the sum's */
    kh_free(sum);
    return rc;
}

static void ensemble_exact(void *opts) { ((bbt_opts *)opts)->share = true; }

const kh_method kh_method_ensemble = {
    .name = "ensemble",
    .summary = "several searches of BBT whose answers are averaged",
    .access = KH_ACCESS_LOGPROBS,
    .soft = true,
    .opts = ensemble_table,
    .opts_size = sizeof(bbt_opts),
    .exact = ensemble_exact,
    .least = one_generation,
    .run = run_ensemble,
};
