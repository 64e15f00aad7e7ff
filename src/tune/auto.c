/* auto.c - several methods in turn, and the best of what they found.
 *
 * Candidates are tried from cheap to dear, as the box's access level allows: the template, a
 * logistic regression on hidden states of an open model, demonstrations, then a search for soft
 * prompts with log-probabilities (bbt) or with labels only (smc), or, where the box takes nothing
 * but text, for text prompts (text-ensemble, text-smc). Each result is calibrated, and
 * judged by -log p of rows that it was not learned from, each calibrated by others (finish.c): a
 * score that few rows can bear, where accuracy is too coarse. For the template and the regression
 * these are all labelled rows, for the others the dev rows. A candidate takes the place of the best
 * so far if it does better on the rows that both know: the regression, whose answers are
 * cross-fitted, by half a standard error of the rows' differences, prompts by one, and a search,
 * whose dev rows have chosen it, by two, or, where only the template was better before, as the net
 * under searches has it (fallback.c says why).
 *
 * None of them stands alone: the template answers beside it by the share that those rows tell
 * (T23). Its answers are known already, and two that err on different rows are better together.
 *
 * What is tried, and how long, is decided by questions, which are the same wherever the run is
 * made. A budget of seconds, if one is given, is looked at between candidates and within searches,
 * as by every method, and never while a resumed run replays its journal. */
#include "tune/fallback.h"
#include "tune/method.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/hooks.h"
#include "base/json_out.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BUDGET = 20000 }; /* questions of all candidates together, unless told otherwise */

typedef struct candidate {
    const kh_method *method;
    kh_access from, to; /* levels at which it is tried */
    const char *const *set;
    int share;     /* percent of the budget that it may take; 0: as much as it needs */
    double margin; /* standard errors by which it must be better than the best before it */
    int pop;       /* of a search by generations, which is not begun for few of them */
} candidate;

#define SET(...) ((const char *const[]){ __VA_ARGS__, NULL })

static const candidate CANDIDATES[] = {
    { &kh_method_manual, KH_ACCESS_LABELS, KH_ACCESS_WEIGHTS, NULL, 0, 0, 0 },
    { &kh_method_feature_logistic, KH_ACCESS_WEIGHTS, KH_ACCESS_WEIGHTS, NULL, 0, 0.5, 0 },
    { &kh_method_icl, KH_ACCESS_LABELS, KH_ACCESS_WEIGHTS, SET("demos=8", "orders=2"), 10, 1, 0 },
    { &kh_method_text_ensemble, KH_ACCESS_LOGPROBS, KH_ACCESS_WEIGHTS, NULL, 60, 1, 0 },
    { &kh_method_text_smc, KH_ACCESS_LABELS, KH_ACCESS_LABELS, NULL, 80, 2, 0 },
    { &kh_method_bbt, KH_ACCESS_LOGPROBS, KH_ACCESS_WEIGHTS,
        SET("pop=10", "sigma=6", "dev-every=2", "budget-stall=5", "race=0.1"), 60, 2, 10 },
    { &kh_method_smc, KH_ACCESS_LABELS, KH_ACCESS_LABELS,
        SET("first-draws=12", "reuse-draws=true", "early-rejection=tight", "prior-variance=500"),
        80, 2, 0 },
};
enum { N_CANDIDATE = sizeof CANDIDATES / sizeof CANDIDATES[0] };

/* The soft prompts of its searches: few vectors and dimensions, so that questions are short and a
 * few thousand of them get somewhere. */
enum { SLOTS = 5, DIM = 50, SEARCH_ROWS = 64, FEW_ROWS = 32 };
/* Generations without which CMA-ES has hardly moved: where the budget has fewer, even with few rows
 * a candidate, it is better saved. */
enum { FEW_GENERATIONS = 5 };

/* `to`: smc is for boxes that give labels only; where there are more, bbt does more with as many
 * questions. Text prompts are searched where the box takes no soft ones: where it does, they were
 * no better for more questions (doc/experiments.md). */
static bool allowed(const candidate *c, const kh_plm *plm) {
    kh_plm_info box = kh_plm_describe(plm);
    bool searched = box.hidden > 0 ? !c->method->text : !c->method->soft;
    return box.access >= c->from && box.access <= c->to && searched;
}

static int n_allowed(const kh_plm *plm) {
    int n = 0;
    for (int i = 0; i < N_CANDIDATE; i++)
        n += allowed(&CANDIDATES[i], plm);
    return n;
}

static long long budget_of(const kh_tuning *t) {
    return t->o->max_queries > 0 ? t->o->max_queries : BUDGET;
}

static long long tokens_asked(const kh_tuning *t) {
    return kh_plm_meter(t->plm).tokens - t->start.tokens;
}

/* The candidate's share of both budgets, and never more than what is left of them. False: nothing
 * is left. What takes as much as it needs (share 0) is not cut short by tokens: it asks about
 * every row once, and a file of many rows is tried, too. */
static bool divide(const kh_tuning *t, const candidate *c, kh_tune_opts *o) {
    long long left = budget_of(t) - kh_tuning_queries(t);
    o->max_queries = c->share > 0 ? budget_of(t) * c->share / 100 : 0;
    if (t->o->max_queries > 0 && (o->max_queries == 0 || o->max_queries > left))
        o->max_queries = left;
    o->max_tokens = 0;
    if (t->o->max_tokens > 0) {
        long long rest = t->o->max_tokens - tokens_asked(t);
        o->max_queries = t->o->max_queries > 0 ? o->max_queries : 0;
        o->max_tokens = c->share > 0 ? t->o->max_tokens * c->share / 100 : 0;
        if (o->max_tokens > rest)
            o->max_tokens = rest;
        if (rest <= 0)
            return false;
    }
    return o->max_queries >= 0 && !(t->o->max_queries > 0 && left == 0);
}

/* How many train rows a search asks each candidate about; 0: too few questions for a search. */
static int rows_for(
    const kh_tuning *t, const candidate *c, const kh_tune_opts *o, int *rows, kh_err *err) {
    double tokens = 0;
    long long queries = o->max_queries;
    int rc = o->max_tokens > 0 ? kh_tuning_row_tokens(t, 0, &tokens, err) : 0;
    *rows = SEARCH_ROWS;
    if (rc != 0 || c->pop == 0 || o->max_tokens == 0)
        return rc;
    long long fit = (long long)((double)o->max_tokens / (tokens + SLOTS));
    if (queries == 0 || fit < queries)
        queries = fit;
    long long needs = (long long)FEW_GENERATIONS * c->pop; /* a row */
    if (queries < needs * (t->n_train < SEARCH_ROWS ? t->n_train : SEARCH_ROWS))
        *rows = FEW_ROWS;
    if (queries < needs * (t->n_train < *rows ? t->n_train : *rows))
        *rows = 0;
    return 0;
}

/* What the run has tried so far, and the best of it. */
typedef struct trials {
    kh_tuning *t;
    kh_posterior *best;
    kh_row_scores scores; /* of the best */
    kh_posterior *plain;  /* the template, */
    kh_held_rows answers; /* and what it answered */
    kh_buf json;          /* the table, as an array */
    int n;
} trials;

/* The table of what was tried goes into posterior.json, so that a person sees what was close. */
static void note(trials *x, const kh_posterior *p, long long queries) {
    kh_tuning *t = x->t;
    char facts[KH_FACTS];
    kh_buf_text(&x->json, x->n ? ", " : "");
    kh_json_out j = kh_json_out_init(&x->json, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "method", p->method);
    kh_json_put_number(&j, "score", p->score, 17);
    kh_json_put_number(&j, "dev", p->dev, 17);
    kh_json_put_int(&j, "queries", queries);
    if (p->template_share > 0)
        kh_json_put_number(&j, "template_share", p->template_share, 17);
    kh_json_close(&j);
    snprintf(facts, sizeof facts, "method=%s score=%.4f", p->method, p->score);
    x->n++;
    kh_tuning_report(
        t, "auto", &(kh_generation){ -1, x->n, x->n, n_allowed(t->plm), p->dev, facts, 0, false });
}

/* Beside nothing but the template a soft prompt stays by the rule of the net under searches: auto
 * must not give away what the search alone would have returned. */
static bool is_better(
    const trials *x, const candidate *c, const kh_posterior *p, const kh_row_scores *scores) {
    double mean, by = x->best ? kh_scores_apart(&x->scores, scores, &mean) : INFINITY;
    return by > 0 &&
        (by >= c->margin ||
            (x->best == x->plain && p->soft && kh_pool_stays(p, by, scores->looks > 1)));
}

/* One candidate; a result that is better than the best so far takes its place. Methods that read
 * the weights have learned the prior of labels already; those that see labels only see nothing to
 * correct. */
static int try_one(trials *x, const candidate *c, kh_err *err) {
    kh_tuning *t = x->t;
    kh_tune_opts o = *t->o;
    bool prior = c->method->access < KH_ACCESS_WEIGHTS && !c->method->text &&
        kh_plm_describe(t->plm).access >= KH_ACCESS_LOGPROBS &&
        !(c->method->soft && c->method->access == KH_ACCESS_LABELS);
    long long before = kh_tuning_queries(t);
    o.space.slots = SLOTS;
    int numbers = SLOTS * kh_plm_describe(t->plm).hidden; /* a box of one's own may have few */
    o.space.dim = numbers < DIM ? numbers : DIM;
    o.uncalibrated = false;
    if (!prior)
        o.label_prior = KH_LABEL_PRIOR_NONE;
    kh_posterior *p = NULL;
    kh_err why = { 0 };
    if (!divide(t, c, &o))
        return 0;
    int rc = rows_for(t, c, &o, &o.search_rows, err);
    if (rc != 0 || o.search_rows == 0)
        return rc;
    o.fallback = KH_FALLBACK_NONE; /* the template is one of the candidates */
    kh_row_scores scores = { 0 };
    kh_trial how = { .set = c->set,
        .o = &o,
        .scores = &scores,
        .answers = x->plain ? NULL : &x->answers,
        .beside = x->plain,
        .beside_answers = &x->answers };
    rc = kh_method_try(t, c->method, &how, &p, &why);
    /* What is left of the budget is too small for it, or the model reads no prompts so long. */
    if ((rc == KH_EARG || rc == KH_ELIMIT) && x->n > 0)
        return 0;
    if (rc != 0)
        return kh_fail(err, rc, "%s", why.msg);
    note(x, p, kh_tuning_queries(t) - before);
    if (!x->plain)
        x->plain = p;
    if (is_better(x, c, p, &scores)) {
        kh_posterior *beaten = x->best;
        kh_row_scores old = x->scores;
        x->best = p, p = beaten;
        x->scores = scores, scores = old;
    }
    if (p != x->plain)
        kh_posterior_free(p);
    kh_row_scores_free(&scores);
    return 0;
}

/* The posterior that the caller made is exchanged for the best one as a whole: method, samples,
 * calibration and books belong together. */
static int run_auto(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    (void)opts;
    trials x = { .t = t, .json = kh_buf_init(1 << 20) };
    int rc = 0;
    for (int i = 0; i < N_CANDIDATE && rc == 0; i++)
        if (allowed(&CANDIDATES[i], t->plm) && kh_tuning_may(t, 0, x.n > 0))
            rc = try_one(&x, &CANDIDATES[i], err);
    if (rc == 0 && !x.best)
        rc = kh_fail(err, KH_EARG, "a budget of %lld queries is too small for any method",
            t->o->max_queries);
    if (rc == 0) {
        kh_posterior own = *p; /* the caller's empty one goes, the best comes into its place */
        *p = *x.best;
        *x.best = own;
        if (!t->stopped[0] && p->template_share > 0)
            kh_tuning_stop(t,
                "%d methods were tried; %s is the best, with the template beside it by a share "
                "of %.2f",
                x.n, p->method, p->template_share);
        else if (!t->stopped[0])
            kh_tuning_stop(t, "%d methods were tried; %s is the best", x.n, p->method);
        p->tried = kh_buf_failed(&x.json) ? NULL : kh_posterior_keep(p, x.json.data);
        rc = p->tried ? 0 : kh_fail_memory(err);
    }
    if (x.plain != x.best)
        kh_posterior_free(x.plain);
    kh_posterior_free(x.best);
    kh_row_scores_free(&x.scores);
    kh_held_rows_free(&x.answers);
    kh_buf_free(&x.json);
    return rc;
}

static void all_of_auto(const kh_tuning *t, const void *opts, kh_plan *most) {
    (void)opts;
    most->candidates += n_allowed(t->plm);
    most->train = budget_of(t);
    if (t->o->max_tokens > 0) { /* the template, the regression, and what is left for searches */
        double tokens = 0;
        int share = 0; /* percent that searches may take together */
        for (int i = 0; i < N_CANDIDATE; i++)
            share += allowed(&CANDIDATES[i], t->plm) ? CANDIDATES[i].share : 0;
        most->train = 2LL * (t->n_train + t->n_dev);
        if (kh_tuning_row_tokens(t, 0, &tokens, NULL) == 0 && tokens > 0)
            most->train += (long long)((double)t->o->max_tokens / tokens * share / 100);
    }
}

const kh_method kh_method_auto = {
    .name = "auto",
    .summary = "several methods in turn, as the access level allows; the best one is returned",
    .access = KH_ACCESS_LABELS,
    .holds = true,
    .chooses = true,
    .most = all_of_auto,
    .run = run_auto,
};
