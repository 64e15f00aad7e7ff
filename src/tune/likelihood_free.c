/* likelihood_free.c - see likelihood_free.h.
 *
 * Rows are asked hardest first, by the share of wrong answers so far, so that a hopeless candidate
 * is known early. The order follows from the answers that came before and from nothing else; what
 * is accepted does not depend on it.
 *
 * Calibration of votes. The votes on dev are honest: no z was accepted because of them. Those on
 * train are not, but they can be made so: given that z makes at most eps - 1 errors on all other
 * rows, it is accepted whatever it says to row i, so that the members of which this is true are
 * unbiased voters on row i. That costs no query. doc/methods.md, L16 to L18. */
#include "tune/likelihood_free.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/hooks.h"
#include "base/map.h"
#include "judge/calibrate.h"
#include "tune/fallback.h"

#include <math.h>
#include <string.h>

enum {
    AT_ONCE = 32, /* candidates whose labels are in memory before they become observations */
    CHUNK = 4,    /* rows between two looks at the allowance: 20 candidates still fill the engine */
    TIGHT_CHUNK = 2, /* the same where looks are timed by the allowance: they are few anyway */
    LEAST = 20, /* candidates of the least run: a batch of the methods that accept and reject */
    FEWEST_VOTERS = 5 /* train rows count for calibration if four of five members, and five of
                         them, may vote on each of them */
};

/* Long enough to cost nothing, short enough that a terminal never looks dead. */
static const double TICK_SECONDS = 5; /* between two words on progress inside a generation */

/* ------------------------------------------------------------------------------------- the box */

typedef struct box {
    kh_simulator sim;
    const kh_label_source *from;
    kh_target target;     /* soft prompts: the train rows */
    const kh_batch *rows; /* the train rows, whatever the source */
    kh_tuning *t;
    int *order;            /* [n_row] hardest first */
    long *wrong, *answers; /* [n_row] so far */
    float *observed;       /* [n_row, n_label] one-hot true labels */
    int *label;            /* [AT_ONCE, n_row] */
} box;

/* Whether row a has been wrong more often than row b, in exact arithmetic; a row that was never
 * asked counts as half wrong. */
static bool harder(const box *b, int x, int y) {
    return (b->wrong[x] * 2 + 1) * (b->answers[y] + 1) >
        (b->wrong[y] * 2 + 1) * (b->answers[x] + 1);
}

/* Insertion: a few answers move a few rows by a few places. */
static void sort_rows(box *b) {
    int n = b->rows->n_row;
    for (int i = 1; i < n; i++) { /* nearly sorted already */
        int row = b->order[i], j = i;
        for (; j > 0 && harder(b, row, b->order[j - 1]); j--)
            b->order[j] = b->order[j - 1];
        b->order[j] = row;
    }
}

/* What was answered is also what the order of the rows learns from; answers that were not asked for
 * are -1. */
static int box_errors(kh_simulator *s, const kh_candidates *c, const int *allowance, int *errors,
    int *answer, kh_err *err) {
    box *b = s->self;
    const kh_batch *batch = b->rows;
    long long before = kh_plm_meter(b->t->plm).queries;
    int rc = b->from->within(b->from->self, c->z, c->n,
        &(kh_patience){ allowance, b->order, s->tight ? -TIGHT_CHUNK : CHUNK }, errors, answer,
        err);
    if (rc != 0)
        return rc;
    long long asked = kh_plm_meter(b->t->plm).queries - before;
    s->asked += asked;
    s->saved += (long long)c->n * batch->n_row - asked;
    for (int i = 0; i < c->n * batch->n_row; i++)
        if (answer[i] >= 0) {
            b->answers[i % batch->n_row]++;
            b->wrong[i % batch->n_row] += answer[i] != batch->label[i % batch->n_row];
        }
    sort_rows(b);
    return 0;
}

static void one_hot(const int *label, size_t n, int n_label, float *x) {
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < n_label; k++)
            *x++ = label[i] == k;
}

/* SNPE's view of the box: the labels of all train rows, one-hot, as the numbers x that a density is
 * conditioned on. */
static int box_observe(kh_simulator *s, const kh_candidates *c, float *x, kh_err *err) {
    box *b = s->self;
    int rc = 0;
    for (int first = 0; first < c->n && rc == 0; first += AT_ONCE) {
        int n = c->n - first < AT_ONCE ? c->n - first : AT_ONCE;
        rc = kh_target_answer(&b->target, c->z + (size_t)first * (size_t)s->dim, n, b->label, err);
        if (rc == 0)
            one_hot(b->label, (size_t)n * (size_t)s->n_answer, s->n_class,
                x + (size_t)first * (size_t)s->n_obs);
        s->asked += (long long)n * s->cost;
    }
    return rc;
}

const kh_label_source *kh_label_source_of(const kh_simulator *s) {
    return ((const box *)s->self)->from;
}

/* The box as a simulator: what samplers run on toys, they run on a language model. Errors are wrong
 * labels on the train rows. */
static int box_new(box *b, kh_tuning *t, const kh_label_source *from, const kh_target *target,
    const kh_labels_opts *o, kh_err *err) {
    int n_row = t->train->n_row, n_label = t->words->n_label;
    size_t rows = (size_t)n_row;
    *b = (box){ .from = from,
        .target = *target,
        .rows = t->train,
        .t = t,
        .order = kh_malloc(rows * sizeof *b->order),
        .wrong = kh_calloc(rows, sizeof *b->wrong),
        .answers = kh_calloc(rows, sizeof *b->answers),
        .observed = kh_malloc(rows * (size_t)n_label * sizeof *b->observed),
        .label = kh_malloc(AT_ONCE * rows * sizeof *b->label) };
    if (!b->order || !b->wrong || !b->answers || !b->observed || !b->label)
        return kh_fail_memory(err);
    for (int i = 0; i < n_row; i++)
        b->order[i] = i;
    one_hot(t->train->label, rows, n_label, b->observed);
    b->sim = (kh_simulator){ .dim = from->dim,
        .draw = from->draw,
        .move = from->move,
        .prior_var = o->prior,
        .prior_spread = o->prior_spread,
        .n_error = n_row,
        .n_class = n_label,
        .n_answer = n_row,
        .errors = box_errors,
        .n_obs = n_row * n_label,
        .observed = b->observed,
        .observe = box_observe,
        .cost = n_row,
        .self = b };
    return 0;
}

static void box_free(box *b) {
    kh_free(b->order);
    kh_free(b->wrong);
    kh_free(b->answers);
    kh_free(b->observed);
    kh_free(b->label);
}

/* ---------------------------------------------------------------------------------- looking on */

typedef struct dev_monitor {
    kh_monitor watch;
    kh_tuning *t;
    const kh_label_source *from;
    const kh_labels_opts *o;
    const char *phase;
    int samples;
    int *label;         /* [samples, dev rows] */
    float *z;           /* [samples, dim] the different members of a population, */
    int *which;         /* [samples] and which of them each one is */
    double *votes;      /* [dev rows, labels] of the population just judged */
    bool judged;        /* the last population that was done, */
    int n;              /* and how many members it has */
    long done, total;   /* progress, as last told, */
    double told;        /* and when */
    kh_population best; /* on dev, the later of equals, */
    double *best_votes; /* with these votes */
    double dev;         /* and this metric, */
    double worth;       /* and worth so much (kh_tuning_worth); NaN: none yet */
} dev_monitor;

/* Every member is asked about every dev row. */
static long long dev_cost(const kh_tuning *t, int samples) {
    return (long long)samples * t->dev->n_row;
}

static int dev_monitor_new(dev_monitor *l, kh_tuning *t, const kh_label_source *from,
    const kh_labels_opts *o, int samples, kh_err *err) {
    *l = (dev_monitor){ .t = t,
        .from = from,
        .o = o,
        .samples = samples,
        .label = kh_malloc((size_t)dev_cost(t, samples) * sizeof *l->label),
        .z = kh_malloc((size_t)samples * (size_t)from->dim * sizeof *l->z),
        .which = kh_malloc((size_t)samples * sizeof *l->which),
        .votes = kh_malloc(kh_dev_size(t) * sizeof *l->votes),
        .best_votes = kh_malloc(kh_dev_size(t) * sizeof *l->best_votes),
        .dev = NAN,
        .worth = NAN };
    return l->label && l->z && l->which && l->votes && l->best_votes ? 0 : kh_fail_memory(err);
}

static void dev_monitor_free(dev_monitor *l) {
    kh_population_free(&l->best);
    kh_free(l->label);
    kh_free(l->z);
    kh_free(l->which);
    kh_free(l->votes);
    kh_free(l->best_votes);
}

static bool may(kh_monitor *w, long long queries, int members, bool have) {
    dev_monitor *l = w->self;
    int look = l->judged ? 0 : l->n; /* what comes out will be judged */
    if (members > 0)
        look = members;
    if (!kh_tuning_may(l->t, queries + dev_cost(l->t, look), have))
        kh_monitor_stop(w, "%s", l->t->stopped);
    return !w->stopped[0];
}

static int room(const kh_monitor *w, long long queries, int most) {
    const kh_tuning *t = ((const dev_monitor *)w->self)->t;
    long long left = t->o->max_queries - t->reserve - kh_tuning_queries(t) - queries,
              each = dev_cost(t, 1);
    if (t->o->max_queries <= 0 || left >= each * most)
        return most;
    return left > 0 ? (int)(left / each) : 0;
}

/* Copies answer alike: each member that differs from those before it goes into l->z, *n of them.
 * After resampling, a population holds copies. Asking one of each is the same vote for fewer
 * queries. */
static int find_different(dev_monitor *l, const kh_population *p, int *n, kh_err *err) {
    size_t dim = (size_t)p->dim, bytes = dim * sizeof *l->z;
    kh_map seen = { 0 };
    int rc = 0;
    *n = 0;
    for (int i = 0; i < p->n && rc == 0; i++) {
        int32_t same = *n;
        float *z = l->z + (size_t)*n * dim;
        memcpy(z, p->z + (size_t)i * dim, bytes);
        if (!kh_map_get(&seen, (const char *)z, bytes, &same)) {
            rc = kh_map_add(&seen, (const char *)z, bytes, *n, NULL) < 0 ? kh_fail_memory(err) : 0;
            same = (*n)++;
        }
        l->which[i] = (int)same;
    }
    kh_map_free(&seen);
    return rc;
}

/* The votes of the population on dev, in members: weight 1 / n is one vote. */
static int vote(dev_monitor *l, const kh_population *p, kh_err *err) {
    int n_row = l->t->dev->n_row, n_label = l->t->words->n_label, n = 0;
    int rc = find_different(l, p, &n, err);
    long long before = kh_tuning_queries(l->t);
    if (rc == 0)
        rc = l->from->dev(l->from->self, l->z, n, l->label, err);
    if (rc != 0)
        return rc;
    l->t->dev_queries += kh_tuning_queries(l->t) - before;
    memset(l->votes, 0, kh_dev_size(l->t) * sizeof *l->votes);
    for (int s = 0; s < p->n; s++)
        for (int i = 0; i < n_row; i++)
            l->votes[(size_t)i * (size_t)n_label +
                (size_t)l->label[(size_t)l->which[s] * (size_t)n_row + (size_t)i]] +=
                p->weight[s] * p->n;
    return 0;
}

/* (L6): the population with the most worth on dev is kept, the later of equals: later populations
 * allow fewer errors. */
static int judge(dev_monitor *l, const kh_population *p, kh_err *err) {
    int rc = vote(l, p, err);
    double worth = rc == 0 ? kh_tuning_worth(l->t, l->votes, true, p->n, err) : 0;
    if (isnan(worth))
        return err ? err->code : KH_ENOMEM;
    if (rc == 0 && !(worth < l->worth)) { /* later wins ties, and anything wins against none */
        if (!l->best.z)
            rc = kh_population_new(&l->best, l->samples,
                &(kh_simulator){ .dim = p->dim, .n_answer = p->n_answer }, err);
        if (rc == 0) {
            kh_population_copy(&l->best, p);
            memcpy(l->best_votes, l->votes, kh_dev_size(l->t) * sizeof *l->votes);
            l->dev = kh_dev_metric(l->t, l->votes);
            l->worth = worth;
        }
    }
    return rc;
}

/* With a budget of queries, progress is told in queries: generations have no end that is known. */
static int done(
    kh_monitor *w, const kh_population *p, const kh_level_done *step, bool last, kh_err *err) {
    dev_monitor *l = w->self;
    const kh_tune_opts *o = l->t->o;
    l->judged = last || (l->o->dev_every > 0 && step->gen % l->o->dev_every == 0);
    int rc = l->judged ? judge(l, p, err) : 0;
    if (rc != 0)
        return rc;
    bool budget = o->max_queries > 0;
    l->n = p->n;
    l->done = budget ? (long)kh_tuning_queries(l->t) : step->done;
    l->total = budget ? (long)o->max_queries : step->total;
    l->told = kh_tuning_seconds(l->t);
    kh_tuning_report(l->t, l->phase,
        &(kh_generation){ -1, step->gen, l->done, l->total, l->dev, step->facts, 0, false });
    if (l->t->stopped[0])
        kh_monitor_stop(w, "%s", l->t->stopped);
    return 0;
}

/* Fitting a flow takes minutes without a question: this is where Ctrl-C and the clock are looked at
 * meanwhile. */
static int tick(kh_monitor *w, const char *what, bool have, kh_err *err) {
    dev_monitor *l = w->self;
    kh_tuning *t = l->t;
    const kh_answer_cache *cache = t->o->run ? kh_run_cache(t->o->run) : NULL;
    if (cache && cache->stop(cache->self))
        return kh_fail(err, KH_STOPPED, "stopped on request");
    if (kh_tuning_seconds(t) - l->told >= TICK_SECONDS) {
        l->told = kh_tuning_seconds(t);
        if (kh_report_progress(t->o->hooks, l->phase, l->done, l->total, what) != 0) {
            if (!have)
                return kh_fail(err, KH_STOPPED, "stopped on request");
            kh_tuning_stop(t, "stopped on request");
        }
    }
    if (!kh_tuning_may(t, 0, have))
        kh_monitor_stop(w, "%s", t->stopped);
    return w->stopped[0] ? 1 : 0;
}

static int keep(kh_monitor *w, int number, const void *bytes, size_t n, kh_err *err) {
    dev_monitor *l = w->self;
    return kh_tuning_due(l->t) ? kh_tuning_keep(l->t, l->phase, number, bytes, n, err) : 0;
}

static int recall(kh_monitor *w, int number, kh_buf *bytes, kh_err *err) {
    dev_monitor *l = w->self;
    return kh_tuning_recall(l->t, l->phase, number, bytes, err);
}

/* --------------------------------------------------------------------------------- calibration */

bool kh_votes_without(const kh_population *p, const int *truth, int i, int n_label, double *votes) {
    double sum = 0, squares = 0;
    for (int k = 0; k < n_label; k++)
        votes[k] = 0;
    for (int s = 0; s < p->n; s++) {
        int said = p->answer[(size_t)s * (size_t)p->n_answer + (size_t)i];
        bool wrong = said != truth[i];
        double w = p->errors[s] - wrong < p->tolerance ? p->weight[s] : 0;
        if (p->rate > 0)
            w = p->weight[s] * exp(p->rate * wrong);
        votes[said] += w;
        sum += w;
        squares += w * w;
    }
    double voters = sum > 0 ? sum * sum / squares : 0;
    for (int k = 0; k < n_label && sum > 0; k++)
        votes[k] *= p->n / sum;
    voters += 1e-9 * p->n; /* weights of 1 / n are rounded: eight of ten are eight */
    return voters >= FEWEST_VOTERS && 5 * voters >= 4 * p->n;
}

/* The votes on all train rows, or of none: whether a row has voters enough depends on what was said
 * to it. Where most members make as many errors as are allowed, it is the rows that they had wrong
 * that have some, and taken alone these would teach the calibrator, and whoever compares by such
 * rows, what is so of the hard rows only. Where many members may not vote, those who had the row
 * wrong weigh more than among new rows, which all vote on. Returns how many rows there are. */
static int train_votes(const dev_monitor *l, double *votes, int *label, int *row) {
    const kh_tuning *t = l->t;
    const kh_population *p = &l->best;
    int n_label = t->words->n_label, n_row = p->n_answer > 0 ? t->train->n_row : 0;
    for (int i = 0; i < n_row; i++) {
        if (!kh_votes_without(p, t->train->label, i, n_label, votes + (size_t)i * (size_t)n_label))
            return 0;
        row[i] = t->dev->n_row + (t->search_row ? t->search_row[i] : i);
        label[i] = t->train->label[i];
    }
    return n_row;
}

static int hold_votes(const dev_monitor *l, kh_err *err) {
    kh_tuning *t = l->t;
    int n_label = t->words->n_label, n = t->dev->n_row;
    size_t rows = (size_t)n + (size_t)t->train->n_row;
    double *votes = kh_malloc(rows * (size_t)n_label * sizeof *votes);
    int *label = kh_malloc(2 * rows * sizeof *label), *row = label ? label + rows : NULL;
    int rc = votes && label ? 0 : kh_fail_memory(err);
    if (rc == 0) {
        for (int i = 0; i < n; i++)
            row[i] = i;
        memcpy(votes, l->best_votes, kh_dev_size(t) * sizeof *votes);
        memcpy(label, t->dev->label, (size_t)n * sizeof *label);
        n += train_votes(l, votes + kh_dev_size(t), label + n, row + n);
        rc = kh_tuning_hold(t, votes, label, row, n, err);
    }
    kh_free(votes);
    kh_free(label);
    return rc;
}

/* ------------------------------------------------------------------------------------- the run */

static int fill_posterior(const dev_monitor *l, kh_posterior *p, kh_err *err) {
    int rc = l->from->fill(l->from->self, &l->best, p, err);
    p->access = KH_ACCESS_LABELS; /* its samples vote, whatever more the box lets out */
    p->dev = l->dev;
    return rc == 0 ? hold_votes(l, err) : rc;
}

static int run_sampler(kh_tuning *t, const kh_label_source *from, const kh_target *target,
    const kh_sampler *sampler, const void *opts, kh_posterior *p, kh_err *err) {
    const kh_labels_opts *o = opts;
    int samples = *(const int *)((const char *)opts +
        kh_opts_find(sampler->opts, "samples", strlen("samples"))->offset);
    kh_population out = { 0 };
    box b = { 0 };
    dev_monitor l = { 0 };
    int rc = box_new(&b, t, from, target, o, err);
    if (rc == 0)
        rc = dev_monitor_new(&l, t, from, o, samples, err);
    if (rc == 0) {
        l.phase = sampler->name;
        l.watch = (kh_monitor){ .may = may,
            .room = room,
            .done = done,
            .tick = tick,
            .keep = keep,
            .recall = recall,
            .self = &l };
        rc = sampler->run(&out, &b.sim, opts, t->o->seed, &l.watch, err);
    }
    if (rc == 0 && !l.judged)
        rc = judge(&l, &out, err);
    if (rc == 0) {
        if (!t->stopped[0])
            kh_tuning_stop(t, "%s", l.watch.stopped);
        rc = fill_posterior(&l, p, err);
    }
    kh_population_free(&out);
    dev_monitor_free(&l);
    box_free(&b);
    return rc;
}

static int run_fitted(kh_tuning *t, const kh_label_source *from, const kh_target *target,
    const kh_sampler *sampler, const void *opts, kh_posterior *p, kh_err *err) {
    void *own = kh_malloc(sampler->opts_size); /* strings in it stay the caller's */
    if (!own)
        return kh_fail_memory(err);
    memcpy(own, opts, sampler->opts_size);
    if (sampler->fit)
        sampler->fit(own, t->o->max_queries, t->train->n_row);
    int rc = run_sampler(t, from, target, sampler, own, p, err);
    kh_free(own);
    return rc;
}

int kh_labels_run_from(kh_tuning *t, const kh_label_source *from, const kh_sampler *sampler,
    const void *opts, kh_posterior *p, kh_err *err) {
    return run_fitted(t, from, &(kh_target){ 0 }, sampler, opts, p, err);
}

/* Soft prompts. */
typedef struct soft_source {
    kh_target train, dev;
    uint64_t seed;
} soft_source;

static int soft_within(void *self, const float *z, int n, const kh_patience *patience, int *errors,
    int *label, kh_err *err) {
    return kh_target_answer_within(
        &((soft_source *)self)->train, z, n, patience, errors, label, err);
}

static int soft_dev(void *self, const float *z, int n, int *label, kh_err *err) {
    return kh_target_answer(&((soft_source *)self)->dev, z, n, label, err);
}

static int soft_fill(void *self, const kh_population *from, kh_posterior *p, kh_err *err) {
    const soft_source *s = self;
    int rc = 0;
    for (int i = 0; i < from->n && rc == 0; i++)
        rc = kh_posterior_add(p, from->z + (size_t)i * (size_t)from->dim, s->seed, err);
    for (int i = 0; i < from->n && rc == 0; i++)
        p->weight[i] = (float)from->weight[i];
    return rc;
}

int kh_labels_run(
    kh_tuning *t, const kh_sampler *sampler, const void *opts, kh_posterior *p, kh_err *err) {
    kh_subspace *space;
    int rc = kh_subspace_new(&space, &t->space, t->plm, t->o->seed, err);
    soft_source soft = { .train = { NULL, t->labeler, space, t->train, t->words },
        .dev = { NULL, t->labeler, space, t->dev, t->words },
        .seed = t->o->seed };
    kh_label_source from = { .dim = t->space.dim,
        .within = soft_within,
        .dev = soft_dev,
        .fill = soft_fill,
        .self = &soft };
    if (rc == 0)
        rc = run_fitted(t, &from, &soft.train, sampler, opts, p, err);
    kh_subspace_free(space);
    return rc;
}

long long kh_labels_least(const kh_tuning *t, int samples) {
    return (long long)LEAST * t->train->n_row + dev_cost(t, samples < LEAST ? samples : LEAST);
}

static long long whole(double x) { return x < 1e15 ? (long long)x : (long long)1e15; }

void kh_labels_most(const kh_tuning *t, const kh_labels_opts *o, double candidates, int populations,
    int samples, kh_plan *most) {
    double looks =
        o->dev_every > 0 ? populations / o->dev_every + (populations % o->dev_every > 0) : 1;
    most->candidates = whole(candidates);
    most->train = whole(candidates * t->train->n_row);
    most->dev = whole(looks * samples * t->dev->n_row);
}
