/* bbt.c - black-box tuning (Sun et al. 2022) and ensembles of it.
 *
 * CMA-ES minimises the train loss over z. Every dev_every-th generation, and the last one, the
 * generation's best z by train loss is scored on dev; the best of those is the result, the later
 * one of equals. An ensemble is several such searches with seeds of their own and, unless told
 * otherwise, projections of their own. doc/methods.md, T10 and T11.
 *
 * Members know nothing of each other, so several may go in step (kh_tune_opts.groups): their
 * populations are asked in one question, which gives many ranks, threads or connections more to do
 * at a time. What is written down must not show it: a member's lines wait until the members before
 * it are done, and count the queries that would have been asked by then. */
#include "tune/cmaes.h"
#include "tune/fallback.h"
#include "tune/method.h"
#include "tune/race.h"

#include "base/alloc.h"
#include "base/clamp.h"
#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

typedef struct bbt_opts {
    int generations, dev_every, stall, loss;
    double sigma, race;
    int pop, variant;
    bool active;
    double bound;
    int members; /* ensembles */
    bool share;
} bbt_opts;

#define BBT_ROWS(default_bound) \
    KH_SEARCH_ROWS(bbt_opts, "generations of a search"), \
        KH_SEARCH_STEP_ROWS(bbt_opts, default_bound, "z stays"), \
        { "loss", KH_OPT_CHOICE, offsetof(bbt_opts, loss), "ce", .arg = KH_LOSS_NAMES, \
            .help = "what is minimised on the train rows" }, \
        { "race", KH_OPT_NUMBER, offsetof(bbt_opts, race), "0", .min = 0, .max = 0.5, .arg = "P", \
            .help = "ask no further about a candidate that is of the better half with a " \
                    "probability below P; 0: about all rows" }, \
        KH_SEARCH_DEV_ROW(bbt_opts), KH_SEARCH_SHAPE_ROWS(bbt_opts)

static const kh_opt bbt_table[] = { BBT_ROWS("100"), { 0 } };

static const kh_opt ensemble_table[] = {
    { "members", KH_OPT_INT, offsetof(bbt_opts, members), "10", .min = 1, .max = 1 << 16,
        .arg = "N", .help = "searches" },
    { "share-projection", KH_OPT_FLAG, offsetof(bbt_opts, share),
        .help = "one matrix A for all members instead of one for each" },
    BBT_ROWS("0"),
    { 0 },
};

/* ---------------------------------------------------------------------------------- one search */

/* A generation whose line waits for the members before it. */
typedef struct note {
    int gen;
    long long queries; /* of this search alone */
    double loss, best, dev;
} note;

/* Everything that a search is in the middle of. */
typedef struct search {
    const bbt_opts *o;
    int member; /* -1: there are no others */
    uint64_t projection;
    kh_subspace *space;
    int dim, gen;
    kh_cmaes *es;
    double *x, *f;            /* [pop, dim], [pop]: the generation's candidates and losses */
    float *z;                 /* [pop, dim]: the candidates as prompts are made of them */
    int top;                  /* the best of them */
    double best;              /* the least loss so far */
    float *chosen;            /* [dim]: the best on dev so far, */
    double *answers;          /* [dev rows, labels] with these answers there */
    double dev;               /* and this metric, */
    double worth;             /* and worth so much (kh_tuning_worth); NaN: none yet */
    double *scratch;          /* as answers */
    int judged;               /* the last generation that dev was asked about */
    int stale;                /* looks at dev since one was better than all before it */
    long long queries, share; /* asked, and may be asked at most; share 0: no limit of its own */
    note *note;               /* [n_note] */
    int n_note;
    size_t cap_note;
} search;

/* Searches in step. */
typedef struct group {
    kh_tuning *t;
    const bbt_opts *o;
    search *s;
    int n;
    long long base; /* queries before them */
    const char *phase;
    kh_race race; /* if candidates are raced: rows is empty otherwise */
} group;

static long long one_generation(const kh_tuning *t, const void *opts) {
    return (long long)((const bbt_opts *)opts)->pop * t->train->n_row + t->dev->n_row;
}

/* How many members the budget pays for, a generation each at least. The paper's effort spends it on
 * the first ones, as version 0.1 did; otherwise all have the same share. */
static bool shares(const kh_tuning *t, const bbt_opts *o) {
    return o->members > 1 && t->o->effort != KH_EFFORT_PAPER && t->o->max_queries > 0;
}

static int paid_members(const kh_tuning *t, const bbt_opts *o) {
    long long n = (t->o->max_queries - t->reserve) / one_generation(t, o);
    if (!shares(t, o) || n > o->members)
        return o->members;
    return n > 1 ? (int)n : 1;
}

static long long member_share(const kh_tuning *t, const bbt_opts *o) {
    return shares(t, o) ? (t->o->max_queries - t->reserve) / paid_members(t, o) : 0;
}

/* like: whose subspace it shares, or NULL. */
static int search_new(search *s, group *g, int member, uint64_t seed, uint64_t projection,
    search *like, kh_err *err) {
    const bbt_opts *o = g->o;
    kh_tuning *t = g->t;
    int dim = t->space.dim;
    size_t n = (size_t)o->pop * (size_t)dim;
    kh_cmaes_opts c = kh_cmaes_defaults();
    c.pop = o->pop;
    c.variant = o->variant;
    c.active = o->active;
    c.bound = o->bound;
    c.seed = seed;
    *s = (search){ .o = o,
        .member = member,
        .projection = projection,
        .space = like ? like->space : NULL,
        .dim = dim,
        .x = kh_malloc(n * sizeof *s->x),
        .f = kh_malloc((size_t)o->pop * sizeof *s->f),
        .z = kh_malloc(n * sizeof *s->z),
        .chosen = kh_calloc((size_t)dim, sizeof *s->chosen),
        .answers = kh_calloc(kh_dev_size(t), sizeof *s->answers),
        .scratch = kh_calloc(kh_dev_size(t), sizeof *s->scratch),
        .share = member_share(t, o),
        .best = INFINITY,
        .dev = NAN,
        .worth = NAN };
    if (!s->x || !s->f || !s->z || !s->chosen || !s->answers || !s->scratch)
        return kh_fail_memory(err);
    int rc = s->space ? 0 : kh_subspace_new(&s->space, &t->space, t->plm, projection, err);
    return rc == 0 ? kh_cmaes_new(&s->es, NULL, dim, o->sigma, &c, err) : rc;
}

static void group_free(group *g) {
    for (int i = 0; g->s && i < g->n; i++) {
        search *s = &g->s[i];
        if (i == 0 || s->space != g->s[0].space)
            kh_subspace_free(s->space);
        kh_cmaes_free(s->es);
        kh_free(s->x);
        kh_free(s->f);
        kh_free(s->z);
        kh_free(s->chosen);
        kh_free(s->answers);
        kh_free(s->scratch);
        kh_free(s->note);
    }
    kh_race_free(&g->race);
    kh_free(g->s);
}

static int looks_of(const search *s) { return (s->gen + s->o->dev_every - 1) / s->o->dev_every; }

static bool is_stalled(const search *s) { return s->o->stall > 0 && s->stale >= s->o->stall; }

/* cost: of a generation and the look at dev that must follow the last one. */
static bool search_goes_on(const search *s, long long cost) {
    return s->gen < s->o->generations && kh_cmaes_stop(s->es) == KH_CMAES_GOING && !is_stalled(s) &&
        (s->share == 0 || s->queries + cost <= s->share);
}

static void search_tell(search *s) {
    kh_cmaes_tell(s->es, s->f);
    s->gen++;
    s->top = 0;
    for (int k = 1; k < s->o->pop; k++)
        s->top = s->f[k] < s->f[s->top] ? k : s->top;
    s->best = s->f[s->top] < s->best ? s->f[s->top] : s->best;
}

/* ------------------------------------------------------------------- searches, one step of all */

/* Some of a group's searches and what is asked about each. */
typedef struct selection {
    search **of; /* [n] */
    kh_train_loss *loss;
    const kh_subspace **space;
    const float **z;
    double **out;
    int n;
} selection;

static int selection_new(selection *p, int most, kh_err *err) {
    size_t n = (size_t)most;
    *p = (selection){ kh_calloc(n, sizeof *p->of), kh_calloc(n, sizeof *p->loss),
        kh_calloc(n, sizeof *p->space), kh_calloc(n, sizeof *p->z), kh_calloc(n, sizeof *p->out),
        0 };
    return p->of && p->loss && p->space && p->z && p->out ? 0 : kh_fail_memory(err);
}

static void selection_free(selection *p) {
    kh_free(p->of);
    kh_free(p->loss);
    kh_free(p->space);
    kh_free(p->z);
    kh_free(p->out);
}

/* The losses of all candidates. Raced, each search is asked about by itself: who is asked further
 * differs from one to the other. */
static int evaluate(const group *g, selection *p, kh_err *err) {
    int rc = 0;
    if (g->race.rows.n_row == 0) {
        rc = kh_train_losses(p->loss, p->n, p->z, g->o->pop, p->out, err);
        for (int i = 0; i < p->n && rc == 0; i++)
            p->of[i]->queries += (long long)g->o->pop * g->t->train->n_row;
    }
    for (int i = 0; i < p->n && rc == 0 && g->race.rows.n_row > 0; i++)
        rc = kh_race_losses(
            &g->race, &p->loss[i], p->z[i], g->o->pop, p->out[i], &p->of[i]->queries, err);
    return rc;
}

/* One generation: ask, evaluate, tell. The loss told of a candidate is that of its float numbers,
 * which are what is kept. */
static int step_all(group *g, selection *p, kh_err *err) {
    kh_tuning *t = g->t;
    for (int i = 0; i < p->n; i++) {
        search *s = p->of[i];
        kh_cmaes_ask(s->es, s->x);
        for (size_t k = 0; k < (size_t)g->o->pop * (size_t)s->dim; k++)
            s->z[k] = (float)s->x[k];
        p->loss[i] = kh_tuning_loss(t, s->space, (kh_loss)g->o->loss);
        p->z[i] = s->z;
        p->out[i] = s->f;
    }
    int rc = evaluate(g, p, err);
    for (int i = 0; i < p->n && rc == 0; i++)
        search_tell(p->of[i]);
    return rc;
}

/* Dev is asked about the last generation's best of each. */
static int judge_all(group *g, selection *p, kh_err *err) {
    kh_tuning *t = g->t;
    for (int i = 0; i < p->n; i++) {
        search *s = p->of[i];
        p->space[i] = s->space;
        p->z[i] = s->z + (size_t)s->top * (size_t)s->dim;
        p->out[i] = s->scratch;
    }
    int rc = p->n > 0 ? kh_tuning_dev_each(t, p->space, p->z, p->n, p->out, err) : 0;
    for (int i = 0; i < p->n && rc == 0; i++) {
        search *s = p->of[i];
        double worth = kh_tuning_worth(t, s->scratch, false, 1, err);
        if (isnan(worth))
            return err ? err->code : KH_ENOMEM;
        s->stale = worth > s->worth || isnan(s->worth) ? 0 : s->stale + 1;
        if (!(worth < s->worth)) { /* later wins ties, and anything wins against none */
            memcpy(s->chosen, p->z[i], (size_t)s->dim * sizeof *s->chosen);
            memcpy(s->answers, s->scratch, kh_dev_size(t) * sizeof *s->answers);
            s->dev = kh_dev_metric(t, s->scratch);
            s->worth = worth;
        }
        s->judged = s->gen;
        s->queries += t->dev->n_row;
    }
    return rc;
}

/* ---------------------------------------------------------------------------------- the record */

/* before: queries that the searches before this one take. */
static void report(const group *g, const search *s, const note *x, long long before, bool late) {
    char facts[KH_FACTS];
    long first = s->member < 0 ? 0 : s->member, done = 0;
    for (int i = 0; i < g->n; i++)
        done += g->s[i].gen;
    kh_loss_facts(facts, x->loss, x->best);
    kh_tuning_report(g->t, g->phase,
        &(kh_generation){ s->member, x->gen, (first - (s - g->s)) * g->o->generations + done,
            (long)(s->member < 0 ? 1 : g->o->members) * g->o->generations, x->dev, facts,
            g->base + before + x->queries, late });
}

/* The generation that has just been done: the first search's is told at once, the others' wait. */
static int take_down(const group *g, search *s, kh_err *err) {
    note x = { s->gen, s->queries, s->f[s->top], s->best, s->dev };
    if (s == g->s)
        report(g, s, &x, 0, false);
    else if (!kh_grow(&s->note, &s->cap_note, (size_t)s->n_note + 1, sizeof *s->note))
        return kh_fail_memory(err);
    else
        s->note[s->n_note++] = x;
    return 0;
}

static void report_waiting(const group *g) {
    long long before = 0;
    for (int i = 0; i < g->n; before += g->s[i++].queries)
        for (int k = 0; k < g->s[i].n_note; k++)
            report(g, &g->s[i], &g->s[i].note[k], before, true);
}

/* ---------------------------------- states and results, as bytes that the same run reads again */

typedef struct saved {
    int gen, judged, stale, n_note;
    double best, dev, worth;
    long long queries;
    size_t optimiser; /* bytes of it */
} saved;

/* What a search has found, the last generation's best, and, for one that goes on, its optimiser and
 * the lines that wait. */
static int put_search(const search *s, const kh_tuning *t, bool goes_on, kh_buf *out, kh_err *err) {
    kh_buf es = kh_buf_init(KH_BUF_MAX);
    int rc = goes_on ? kh_cmaes_save(s->es, &es, err) : 0;
    saved head = { s->gen, s->judged, s->stale, goes_on ? s->n_note : 0, s->best, s->dev, s->worth,
        s->queries, es.len };
    kh_buf_bytes(out, &head, sizeof head);
    kh_buf_bytes(out, s->chosen, (size_t)s->dim * sizeof *s->chosen);
    kh_buf_bytes(out, s->z + (size_t)s->top * (size_t)s->dim, (size_t)s->dim * sizeof *s->z);
    kh_buf_bytes(out, s->answers, kh_dev_size(t) * sizeof *s->answers);
    kh_buf_bytes(out, s->note, (size_t)head.n_note * sizeof *s->note);
    kh_buf_bytes(out, es.data, es.len);
    kh_buf_free(&es);
    return rc;
}

/* A part of the state; NULL: there is not so much left. */
static const char *take(const char **at, size_t *left, size_t n) {
    const char *part = *at;
    if (n > *left)
        return NULL;
    *at += n;
    *left -= n;
    return part;
}

static int damaged(kh_err *err) {
    return kh_fail(err, KH_EFORMAT, "the kept state of a search is damaged");
}

static int take_search(search *s, const kh_tuning *t, const char **at, size_t *left, kh_err *err) {
    size_t size = (size_t)s->dim * sizeof *s->z, answers = kh_dev_size(t) * sizeof *s->answers;
    saved head = { 0 };
    const char *part[5] = { take(at, left, sizeof head) };
    if (part[0])
        memcpy(&head, part[0], sizeof head);
    part[1] = take(at, left, 2 * size);
    part[2] = take(at, left, answers);
    part[3] = head.n_note >= 0 ? take(at, left, (size_t)head.n_note * sizeof *s->note) : NULL;
    part[4] = take(at, left, head.optimiser);
    for (int i = 0; i < 5; i++)
        if (!part[i])
            return damaged(err);
    if (head.n_note > 0 && !kh_grow(&s->note, &s->cap_note, (size_t)head.n_note, sizeof *s->note))
        return kh_fail_memory(err);
    memcpy(s->chosen, part[1], size);
    memcpy(s->z, part[1] + size, size);
    memcpy(s->answers, part[2], answers);
    if (head.n_note > 0)
        memcpy(s->note, part[3], (size_t)head.n_note * sizeof *s->note);
    s->gen = head.gen, s->judged = head.judged, s->best = head.best, s->dev = head.dev;
    s->worth = head.worth, s->stale = head.stale;
    s->queries = head.queries, s->n_note = head.n_note;
    s->top = 0;
    kh_cmaes *es = NULL;
    int rc =
        head.optimiser > 0 ? kh_cmaes_load(&es, part[4], head.optimiser, "the kept state", err) : 0;
    if (rc == 0 && es) {
        kh_cmaes_free(s->es);
        s->es = es;
    }
    return rc;
}

/* Under which name searches that go on are kept; the number changes with the layout. */
#define SEARCHES "searches/3"

/* All searches at once, by the number of the first. name: SEARCHES while they go on, "members" when
 * they are done. */
static int keep_group(const group *g, const char *name, bool goes_on, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    int rc = 0;
    kh_buf_bytes(&b, &g->base, sizeof g->base);
    for (int i = 0; i < g->n && rc == 0; i++)
        rc = put_search(&g->s[i], g->t, goes_on, &b, err);
    if (rc == 0)
        rc = kh_buf_failed(&b)
            ? kh_fail_memory(err)
            : kh_tuning_keep(g->t, name, g->s->member < 0 ? 0 : g->s->member, b.data, b.len, err);
    kh_buf_free(&b);
    return rc;
}

/* 1: they are as they were then; 0: nothing was kept. */
static int recall_group(group *g, const char *name, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    int rc = kh_tuning_recall(g->t, name, g->s->member < 0 ? 0 : g->s->member, &b, err);
    const char *at = b.data, *base;
    size_t left = b.len;
    if (rc == 1 && (base = take(&at, &left, sizeof g->base)) != NULL)
        memcpy(&g->base, base, sizeof g->base);
    for (int i = 0; i < g->n && rc == 1; i++) {
        int taken = take_search(&g->s[i], g->t, &at, &left, err);
        rc = taken == 0 ? 1 : taken;
    }
    if (rc == 1 && left > 0)
        rc = damaged(err);
    kh_buf_free(&b);
    return rc;
}

/* ------------------------------------------------------------------------------ whole searches */

static int one_round(group *g, selection *p, kh_err *err) {
    int n = p->n, rc = step_all(g, p, err), due = 0;
    for (int i = 0; i < n;
         i++) /* those that dev is asked about come first; the order changes nothing */
        if (p->of[i]->gen % g->o->dev_every == 0) {
            search *s = p->of[i];
            p->of[i] = p->of[due];
            p->of[due++] = s;
        }
    p->n = due;
    if (rc == 0)
        rc = judge_all(g, p, err);
    for (int i = 0; i < n && rc == 0; i++)
        rc = take_down(g, p->of[i], err);
    if (rc == 0 && kh_tuning_due(g->t))
        rc = keep_group(g, SEARCHES, true, err);
    return rc;
}

/* The searches from where they are to their end. Queries stay within the budget, the last look at
 * dev included. */
static int run_group(group *g, kh_err *err) {
    kh_tuning *t = g->t;
    long long cost = one_generation(t, g->o);
    selection p;
    int rc = selection_new(&p, g->n, err);
    kh_train_loss loss = kh_tuning_loss(t, g->s->space, (kh_loss)g->o->loss);
    if (rc == 0 && g->o->race > 0 && kh_race_suits(&loss))
        rc = kh_race_new(&g->race, t->train, t->words->n_label, g->o->race, err);
    int known = rc == 0 ? recall_group(g, SEARCHES, err) : rc;
    rc = known < 0 ? known : 0;
    while (rc == 0) {
        p.n = 0;
        for (int i = 0; i < g->n; i++)
            if (search_goes_on(&g->s[i], cost))
                p.of[p.n++] = &g->s[i];
        if (p.n == 0 || !kh_tuning_may(t, p.n * cost, g->s->gen > 0))
            break;
        rc = one_round(g, &p, err);
    }
    p.n = 0;
    for (int i = 0; i < g->n && rc == 0; i++)
        if (g->s[i].gen > 0 && g->s[i].judged < g->s[i].gen)
            p.of[p.n++] = &g->s[i];
    if (rc == 0)
        rc = judge_all(g, &p, err);
    if (rc == 0)
        report_waiting(g);
    selection_free(&p);
    return rc;
}

/* The reason for the end of a search that no budget ended. */
static void search_reason(const search *s, kh_tuning *t) {
    if (t->stopped[0])
        return;
    if (s->gen == s->o->generations)
        kh_tuning_stop(t, "all %d generations are done", s->gen);
    else if (is_stalled(s))
        kh_tuning_stop(t,
            "after %d generations: the last %d looks at the dev rows found nothing better", s->gen,
            s->stale);
    else
        kh_tuning_stop(t, "CMA-ES stopped after %d generations: %s", s->gen,
            kh_cmaes_stop_name(kh_cmaes_stop(s->es)));
}

static void all_searches(const kh_tuning *t, const bbt_opts *o, int members, kh_plan *most) {
    long long looks = (o->generations + o->dev_every - 1) / o->dev_every;
    most->candidates = (long long)members * o->generations * o->pop;
    most->train = most->candidates * t->train->n_row;
    most->dev = members * looks * t->dev->n_row;
}

/* ----------------------------------------------------------------------------------------- BBT */

static void all_of_bbt(const kh_tuning *t, const void *opts, kh_plan *most) {
    all_searches(t, opts, 1, most);
}

static int run_bbt(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    group g = { .t = t, .o = opts, .s = kh_calloc(1, sizeof *g.s), .n = 1, .phase = "bbt" };
    int rc = g.s ? search_new(g.s, &g, -1, t->o->seed, t->o->seed, NULL, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = run_group(&g, err);
    if (rc == 0) {
        search_reason(g.s, t);
        t->looks = looks_of(g.s);
        p->dev = g.s->dev;
        rc = kh_posterior_add(p, g.s->chosen, t->o->seed, err);
        if (rc == 0)
            rc = kh_tuning_hold(t, g.s->answers, t->dev->label, NULL, t->dev->n_row, err);
    }
    group_free(&g);
    return rc;
}

const kh_method kh_method_bbt = {
    .name = "bbt",
    .summary = "black-box tuning: one soft prompt, found by CMA-ES",
    .access = KH_ACCESS_LOGPROBS,
    .soft = true,
    .holds = true,
    .opts = bbt_table,
    .opts_size = sizeof(bbt_opts),
    .least = one_generation,
    .most = all_of_bbt,
    .run = run_bbt,
};

/* ----------------------------------------------------------------------------------- ensembles */

/* Member 0 has the seed itself, so that an ensemble of one is BBT. */
static uint64_t member_seed(uint64_t seed, int member) {
    kh_rng r = kh_rng_stream(seed, KH_RNG_MEMBER, (uint32_t)member, 0);
    return member == 0 ? seed : kh_rng_u64(&r);
}

/* How many of the members that are left go in step. Where a budget of queries might end one of
 * them, only the first: which members the budget is spent on must not depend on how many go in
 * step. */
static int group_size(const kh_tuning *t, const bbt_opts *o, int left) {
    kh_plan most;
    int n = kh_clamp_int(t->o->groups, 1, left);
    all_searches(t, o, 1, &most);
    long long fit = t->o->max_queries > 0 && !shares(t, o)
        ? (t->o->max_queries - t->reserve - kh_tuning_queries(t)) / (most.train + most.dev)
        : n;
    if (fit >= n)
        return n;
    return fit > 1 ? (int)fit : 1;
}

static int new_members(group *g, int first, kh_err *err) {
    int rc = g->s ? 0 : kh_fail_memory(err);
    for (int i = 0; i < g->n && rc == 0; i++) {
        uint64_t seed = member_seed(g->t->o->seed, first + i),
                 projection = g->o->share ? g->t->o->seed : seed;
        rc = search_new(
            &g->s[i], g, first + i, seed, projection, g->o->share && i > 0 ? g->s : NULL, err);
    }
    return rc;
}

/* Runs members of so many from *next on and counts them there, adds their samples to the posterior
 * and their answers on dev to `sum`. */
static int run_members(kh_tuning *t, const bbt_opts *o, int members, int *next, kh_posterior *p,
    double *sum, kh_err *err) {
    int first = *next;
    group g = { .t = t,
        .o = o,
        .n = group_size(t, o, members - first),
        .base = kh_tuning_queries(t),
        .phase = "ensemble" };
    g.s = kh_calloc((size_t)g.n, sizeof *g.s);
    int rc = new_members(&g, first, err);
    int known = rc == 0 ? recall_group(&g, "members", err) : rc;
    if (known <= 0)
        rc = known;
    if (rc == 0 && known == 0) {
        rc = run_group(&g, err);
        if (rc == 0 && !t->stopped[0])
            rc = keep_group(&g, "members", false, err);
        if (rc == 0 && !t->stopped[0])
            rc = kh_tuning_forget(t, SEARCHES, first, err);
    }
    for (int i = 0; i < g.n && rc == 0; i++) {
        if (g.s[i].gen == 0)
            continue;
        t->looks += looks_of(&g.s[i]);
        rc = kh_posterior_add(p, g.s[i].chosen, g.s[i].projection, err);
        for (size_t k = 0; k < kh_dev_size(t); k++)
            sum[k] += g.s[i].answers[k];
    }
    *next += g.n;
    group_free(&g);
    return rc;
}

static int members_of(const void *opts) { return ((const bbt_opts *)opts)->members; }

static void all_of_ensemble(const kh_tuning *t, const void *opts, kh_plan *most) {
    all_searches(t, opts, ((const bbt_opts *)opts)->members, most);
}

static int run_ensemble(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    const bbt_opts *o = opts;
    double *sum = kh_calloc(kh_dev_size(t), sizeof *sum);
    int rc = sum ? 0 : kh_fail_memory(err);
    int members = paid_members(t, o);
    for (int next = 0; next < members && rc == 0 && !t->stopped[0];)
        rc = run_members(t, o, members, &next, p, sum, err);
    if (rc == 0 && !t->stopped[0])
        kh_tuning_stop(t,
            shares(t, o) ? "all %d members have had their share of the budget"
                         : "all %d members are done",
            members);
    if (rc == 0) {
        p->dev = kh_dev_metric(t, sum); /* the mean's, whose largest are the sum's */
        rc = kh_tuning_hold(t, sum, t->dev->label, NULL, t->dev->n_row, err);
    }
    kh_free(sum);
    return rc;
}

static void ensemble_exact(void *opts) { ((bbt_opts *)opts)->share = true; }

const kh_method kh_method_ensemble = {
    .name = "ensemble",
    .summary = "several searches of BBT whose answers are averaged",
    .access = KH_ACCESS_LOGPROBS,
    .soft = true,
    .holds = true,
    .opts = ensemble_table,
    .opts_size = sizeof(bbt_opts),
    .exact = ensemble_exact,
    .samples = members_of,
    .least = one_generation,
    .most = all_of_ensemble,
    .run = run_ensemble,
};
