/* text_ensemble.c - a fixed set of text prompts, and how much to listen to each. doc/methods.md, X5
 * to X9.
 *
 * The task's own prompt and draws from the prior are asked about the train rows once. A prompt that
 * knows less than nothing about every other row (more than log K a row) is asked no further, and
 * another one is drawn. Their weights have a Dirichlet prior, so that few rows do not pick one
 * prompt, in which the task's own has a quarter; the posterior mean given the labels of the train
 * rows (mixture_weights.c) is what is needed, as the prediction is linear in the weights. (The idea
 * is that of BayesPE, Tonolini et al. 2024.) */
#include "tune/mixture_weights.h"
#include "tune/text_box.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/map.h"
#include "plm/together.h"
#include "judge/label_prior.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    TRIES = 200,           /* draws in a row that gave nothing new: the space has no more */
    DRAWS_MOST = 3,        /* prompts that are asked about, for each that is wanted */
    N_FOLD = 5,            /* of train rows, */
    FOLD_SWEEPS = 1 << 12, /* and what the weights without one of them are worth */
};
static const double OWN = 0.25; /* of the prior: what the task's own prompt has of the weights */
static const double LEAST_P = 1e-9; /* what a label has at least, however sure a prompt is */

typedef struct ensemble_opts {
    int prompts;
    double alpha;
    bool debias;
    kh_text_space_opts text;
} ensemble_opts;

static const kh_opt ensemble_table[] = {
    { "prompts", KH_OPT_INT, offsetof(ensemble_opts, prompts), "16", .min = 1, .max = 1 << 10,
        .arg = "N", .help = "text prompts in the set, the task's own among them" },
    { "alpha", KH_OPT_NUMBER, offsetof(ensemble_opts, alpha), "1", .min = 1e-2, .max = 1e6,
        .arg = "X",
        .help = "of the Dirichlet prior of their weights; more keeps them nearer to it" },
    { "debias", KH_OPT_FLAG, offsetof(ensemble_opts, debias), "true",
        .help = "take out of each prompt's answers what it likes to say whatever the text is" },
    KH_TEXT_ROWS(ensemble_opts, text),
    { 0 },
};

typedef struct ensemble {
    kh_tuning *t;
    const ensemble_opts *o;
    kh_text_box box;
    int n;          /* prompts so far */
    float *point;   /* [prompts, dim] */
    float *logprob; /* [prompts, n_train, n_label] */
    double *prior;  /* [prompts, n_label] what each likes to say */
    int *all;       /* [n_train] 0, 1, 2, ... */
    double *like;   /* [n_train, n] */
    double *weight; /* [prompts] */
    double *alpha;  /* [prompts] */
    kh_map seen;
    kh_arena keys; /* of it */
    uint32_t drawn;
    int tried;
} ensemble;

static int ensemble_new(ensemble *e, kh_tuning *t, const ensemble_opts *o, kh_err *err) {
    size_t prompts = (size_t)o->prompts, rows = (size_t)t->n_train,
           labels = (size_t)t->task->n_label;
    *e = (ensemble){ .t = t, .o = o };
    int rc = kh_text_box_open(&e->box, t, &o->text, true, err);
    if (rc != 0)
        return rc;
    e->point = kh_calloc(prompts * (size_t)e->box.space->dim, sizeof *e->point);
    e->logprob = kh_calloc(prompts * rows * labels, sizeof *e->logprob);
    e->prior = kh_calloc(prompts * labels, sizeof *e->prior);
    e->all = kh_calloc(rows, sizeof *e->all);
    e->like = kh_calloc(rows * prompts, sizeof *e->like);
    e->weight = kh_calloc(prompts, sizeof *e->weight);
    e->alpha = kh_calloc(prompts, sizeof *e->alpha);
    if (!e->point || !e->logprob || !e->prior || !e->all || !e->like || !e->weight || !e->alpha)
        return kh_fail_memory(err);
    int half = (t->n_train + 1) / 2; /* every other row, then the rest: files may be sorted */
    for (int i = 0; i < t->n_train; i++)
        e->all[i] = i < half ? 2 * i : 2 * (i - half) + 1;
    return 0;
}

static void ensemble_free(ensemble *e) {
    kh_text_box_close(&e->box);
    kh_map_free(&e->seen);
    kh_arena_free(&e->keys);
    kh_free(e->point);
    kh_free(e->logprob);
    kh_free(e->prior);
    kh_free(e->all);
    kh_free(e->like);
    kh_free(e->weight);
    kh_free(e->alpha);
}

/* A prompt that was not asked yet, into a place of the set. 0: there is one; 1: none was found. The
 * first is the task's own prompt. Draws are named by their number, repeated ones included, so that
 * the set does not depend on what was answered before. */
static int find_new(ensemble *e, int at, kh_err *err) {
    size_t dim = (size_t)e->box.space->dim, bytes = dim * sizeof *e->point;
    float *x = e->point + (size_t)at * dim;
    for (int i = 0; i < TRIES; i++) {
        kh_rng r = kh_rng_stream(e->t->o->seed, KH_RNG_TEXT, 0, e->drawn++);
        if (at == 0)
            kh_text_space_own(e->box.space, x);
        else
            kh_text_space_draw(e->box.space, &r, x);
        if (kh_map_get(&e->seen, (const char *)x, bytes, &(int32_t){ 0 }))
            continue;
        char *key = kh_arena_alloc(&e->keys, bytes);
        if (!key)
            return kh_fail_memory(err);
        memcpy(key, x, bytes);
        return kh_map_add(&e->seen, key, bytes, at, NULL) < 0 ? kh_fail_memory(err) : 0;
    }
    return 1;
}

/* The mean of -log p of the labels of the first n rows of e->all, whose answers stand in `said`,
 * corrected by their own prior of labels if that is wanted. */
static int measure(ensemble *e, float *said, int n, double *prior, double *loss, kh_err *err) {
    kh_tuning *t = e->t;
    int n_label = t->task->n_label, rc = 0;
    if (e->o->debias) {
        rc = kh_label_prior_fit(KH_LABEL_PRIOR_BATCH, said, n, n_label, t->train_share, prior, err);
        if (rc == 0)
            kh_label_prior_correct(prior, said, n, n_label);
    }
    *loss = 0;
    for (int i = 0; i < n && rc == 0; i++)
        *loss -=
            (double)said[(size_t)i * (size_t)n_label + (size_t)t->train_row[e->all[i]].label] / n;
    return rc;
}

static float *point_of(const ensemble *e, int m) {
    return e->point + (size_t)m * (size_t)e->box.space->dim;
}

static float *said_by(const ensemble *e, int m) {
    return e->logprob + (size_t)m * (size_t)e->t->n_train * (size_t)e->t->task->n_label;
}

/* Asks the n prompts behind the set about some of the rows of e->all. */
static int ask_rows(ensemble *e, int n, int first, int rows, kh_err *err) {
    size_t n_label = (size_t)e->t->task->n_label;
    return kh_text_box_ask_together(&e->box, point_of(e, e->n), n,
        &(kh_text_rows){ e->t->train_row, true }, e->all + first, rows,
        said_by(e, e->n) + (size_t)first * n_label, (size_t)e->t->n_train * n_label, err);
}

/* A prompt that does worse than a guess (log K a row) on half of the rows, after its own prior was
 * taken out, will not be missed; the other half is saved. */
static int judge_half(ensemble *e, int m, double *loss, bool *kept, kh_err *err) {
    size_t n_label = (size_t)e->t->task->n_label;
    int half = (e->t->n_train + 1) / 2;
    size_t bytes = (size_t)half * n_label * sizeof *e->logprob;
    float *trial = kh_malloc(bytes);
    if (!trial)
        return kh_fail_memory(err);
    memcpy(trial, said_by(e, m), bytes);
    int rc = measure(e, trial, half, e->prior + (size_t)m * n_label, loss, err);
    *kept = rc == 0 && (m == 0 || *loss <= log((double)n_label));
    kh_free(trial);
    return rc;
}

static void move_prompt(ensemble *e, int from, int to) {
    size_t n_label = (size_t)e->t->task->n_label;
    if (from == to)
        return;
    memcpy(point_of(e, to), point_of(e, from), (size_t)e->box.space->dim * sizeof *e->point);
    memcpy(said_by(e, to), said_by(e, from), (size_t)e->t->n_train * n_label * sizeof *e->logprob);
}

static void report(ensemble *e, double loss) {
    char facts[KH_FACTS];
    snprintf(facts, sizeof facts, "prompts=%d rejected=%d loss=%.6f", e->n, e->tried - e->n, loss);
    kh_tuning_report(e->t, "text-ensemble",
        &(kh_generation){ -1, e->tried, e->n, e->o->prompts, NAN, facts, 0, false });
}

/* Asks the n prompts behind the set about half of the train rows, and those that know anything
 * about the others; these join the set. loss, kept [n] */
static int ask_wave(ensemble *e, int n, double *loss, bool *kept, kh_err *err) {
    kh_tuning *t = e->t;
    int half = (t->n_train + 1) / 2, stay = 0, rc = ask_rows(e, n, 0, half, err);
    for (int i = 0; i < n && rc == 0; i++) {
        rc = judge_half(e, e->n + i, &loss[i], &kept[i], err);
        if (rc == 0 && kept[i])
            move_prompt(e, e->n + i, e->n + stay++);
    }
    if (rc == 0 && stay > 0)
        rc = ask_rows(e, stay, half, t->n_train - half, err);
    for (int i = 0, m = e->n; i < n && rc == 0; i++)
        if (kept[i]) {
            rc = measure(e, said_by(e, m), t->n_train,
                e->prior + (size_t)m * (size_t)t->task->n_label, &loss[i], err);
            m++;
        }
    for (int i = 0; i < n && rc == 0; i++) {
        e->n += kept[i];
        e->tried++;
        report(e, loss[i]);
    }
    return rc;
}

/* The same; a prompt that cannot be asked is not kept. Of several it is not known which one that
 * was, so they are asked in turn; the answers that a journal has are not asked for again. */
static int try_wave(ensemble *e, int n, double *loss, bool *kept, kh_err *err) {
    size_t dim = (size_t)e->box.space->dim;
    float *wave = kh_malloc((size_t)n * dim * sizeof *wave); /* their places may change */
    kh_err why = { 0 };
    if (!wave)
        return kh_fail_memory(err);
    memcpy(wave, point_of(e, e->n), (size_t)n * dim * sizeof *wave);
    int rc = ask_wave(e, n, loss, kept, &why);
    if (rc == KH_EFORMAT && n > 1) {
        rc = 0;
        for (int i = 0; i < n && rc == 0; i++) {
            memcpy(point_of(e, e->n), wave + (size_t)i * dim, dim * sizeof *wave);
            rc = try_wave(e, 1, loss, kept, err);
        }
    } else if (rc != 0 && kh_text_box_useless(&e->box, wave, rc, &why)) {
        e->tried++;
        report(e, INFINITY);
        rc = 0;
    } else if (rc != 0)
        kh_fail(err, rc, "%s", why.msg);
    kh_free(wave);
    return rc;
}

/* How many prompts are asked at once: all that may still be wanted, where that saves requests and
 * the budget has room for each of them; then the set is the one that prompts in turn would make. */
static int wave_of(const ensemble *e) {
    const kh_tuning *t = e->t;
    int n = e->o->prompts - e->n, left = DRAWS_MOST * e->o->prompts - e->tried;
    n = n < left ? n : left;
    long long cost = (long long)n * (t->n_train + t->n_dev) + (long long)e->n * t->n_dev;
    bool fits = t->o->max_seconds <= 0 &&
        (t->o->max_queries <= 0 || kh_tuning_queries(t) + cost + t->reserve <= t->o->max_queries);
    return e->n > 0 && kh_plm_shares(t->plm) && fits ? n : 1;
}

/* Prompts until there are enough, or a budget ends, or most of those that are drawn know nothing.
 */
static int ask_all(ensemble *e, kh_err *err) {
    kh_tuning *t = e->t;
    long long cost = t->n_train + t->n_dev;
    size_t most = (size_t)e->o->prompts;
    double *loss = kh_calloc(most, sizeof *loss);
    bool *kept = kh_calloc(most, sizeof *kept), more = true;
    int rc = loss && kept ? 0 : kh_fail_memory(err);
    while (rc == 0 && more && e->n < e->o->prompts && e->tried < DRAWS_MOST * e->o->prompts &&
        kh_tuning_may(t, cost + (long long)e->n * t->n_dev, e->n > 0)) {
        int wave = wave_of(e), n = 0;
        while (n < wave && rc == 0 && more) {
            rc = find_new(e, e->n + n, err);
            more = rc == 0;
            n += more;
            rc = rc == 1 ? 0 : rc;
        }
        if (rc == 0 && n > 0)
            rc = try_wave(e, n, loss, kept, err);
    }
    kh_free(loss);
    kh_free(kept);
    if (rc == 0 && !more)
        kh_tuning_stop(t, "there are no more than %d different prompts", e->tried);
    else if (rc == 0 && !t->stopped[0])
        kh_tuning_stop(t, "%d of %d prompts were kept", e->n, e->tried);
    return rc;
}

/* X7: likelihoods from below LEAST_P would let one confident mistake decide everything. */
static int weigh(ensemble *e, kh_err *err) {
    kh_tuning *t = e->t;
    size_t n_label = (size_t)t->task->n_label, n = (size_t)e->n;
    for (size_t m = 0; m < n; m++) /* the first is the task's own */
        e->alpha[m] = m ? e->o->alpha : e->o->alpha * fmax(1, (double)(n - 1) * OWN / (1 - OWN));
    for (int i = 0; i < t->n_train; i++)
        for (size_t m = 0; m < n; m++)
            e->like[(size_t)i * n + m] = fmax(LEAST_P,
                exp((double)e->logprob[(m * (size_t)t->n_train + (size_t)i) * n_label +
                    (size_t)t->train_row[e->all[i]].label]));
    kh_mixture x = { e->like, t->n_train, e->n, e->alpha };
    return kh_mixture_weights(&x, t->o->seed, e->weight, err);
}

/* The prior of labels that each prompt was found to have goes with it, unless the run learns one
 * itself. */
static int keep_prior(const ensemble *e, kh_posterior *p, kh_err *err) {
    size_t n = (size_t)p->n * (size_t)e->t->task->n_label;
    if (!e->o->debias || e->t->o->label_prior)
        return 0;
    if (!(p->log_prior = kh_arena_array(&p->arena, n, sizeof *p->log_prior)))
        return kh_fail_memory(err);
    memcpy(p->log_prior, e->prior, n * sizeof *p->log_prior);
    p->label_prior = KH_LABEL_PRIOR_BATCH;
    p->prior_rows = e->t->n_train;
    return 0;
}

/* ------------------------------------------------------------------------ rows to calibrate on */

/* The likelihoods of the rows of other folds, one below the other; how many. */
static int rows_without(const ensemble *e, const int *fold, int held, double *like) {
    size_t n = (size_t)e->n;
    int kept = 0;
    for (int i = 0; i < e->t->n_train; i++)
        if (fold[i] != held)
            memcpy(like + (size_t)kept++ * n, e->like + (size_t)i * n, n * sizeof *like);
    return kept;
}

/* What the set says of the i-th row of e->all under these weights; p [n_label]. */
static void mix(const ensemble *e, const double *weight, int i, double *p) {
    size_t n_label = (size_t)e->t->task->n_label;
    for (size_t k = 0; k < n_label; k++) {
        p[k] = 0;
        for (size_t m = 0; m < (size_t)e->n; m++)
            p[k] += weight[m] *
                exp((double)e->logprob[(m * (size_t)e->t->n_train + (size_t)i) * n_label + k]);
    }
}

/* Rows of each class take turns, so that no fold is of one class. */
static void deal(const ensemble *e, int *fold, int *seen) {
    for (int i = 0; i < e->t->n_train; i++)
        fold[i] = seen[e->t->train_row[e->all[i]].label]++ % N_FOLD;
}

/* X9a: p [n_train, n_label] of the train rows, each by weights that have not seen its label.
 * The answers are known, so no question is asked. */
static int crossfit(ensemble *e, double *p, kh_err *err) {
    size_t rows = (size_t)e->t->n_train, labels = (size_t)e->t->task->n_label, n = (size_t)e->n;
    double *like = kh_malloc(rows * n * sizeof *like), *weight = kh_calloc(n, sizeof *weight);
    int *fold = kh_calloc(rows, sizeof *fold), *seen = kh_calloc(labels, sizeof *seen);
    int rc = like && weight && fold && seen ? 0 : kh_fail_memory(err);
    if (rc == 0)
        deal(e, fold, seen);
    for (int held = 0; held < N_FOLD && rc == 0; held++) {
        kh_mixture x = { like, rows_without(e, fold, held, like), e->n, e->alpha };
        rc = kh_mixture_sample(&x, e->t->o->seed, FOLD_SWEEPS, weight, err);
        for (int i = 0; i < (int)rows && rc == 0; i++)
            if (fold[i] == held)
                mix(e, weight, i, p + (size_t)e->all[i] * labels);
    }
    kh_free(like);
    kh_free(weight);
    kh_free(fold);
    kh_free(seen);
    return rc;
}

/* The dev rows are held already; the train rows join them, so that the calibrator has as many rows
 * as the template's. */
static int hold_train(ensemble *e, kh_err *err) {
    kh_tuning *t = e->t;
    size_t k = (size_t)t->task->n_label, n = (size_t)t->held.n + (size_t)t->n_train;
    double *p = kh_malloc(n * k * sizeof *p);
    int *label = kh_malloc(n * sizeof *label), *row = kh_malloc(n * sizeof *row);
    int rc = p && label && row ? 0 : kh_fail_memory(err);
    if (rc == 0) {
        memcpy(p, t->held.p, (size_t)t->held.n * k * sizeof *p);
        memcpy(label, t->held.label, (size_t)t->held.n * sizeof *label);
        memcpy(row, t->held.row, (size_t)t->held.n * sizeof *row);
        rc = crossfit(e, p + (size_t)t->held.n * k, err);
    }
    for (int i = 0; i < t->n_train && rc == 0; i++) {
        label[t->held.n + i] = t->train_row[i].label;
        row[t->held.n + i] = t->n_dev + i;
    }
    if (rc == 0)
        rc = kh_tuning_hold(t, p, label, row, (int)n, err);
    kh_free(p);
    kh_free(label);
    kh_free(row);
    return rc;
}

static int run_ensemble(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    ensemble e;
    int rc = ensemble_new(&e, t, opts, err);
    if (rc == 0)
        rc = ask_all(&e, err);
    if (rc == 0)
        rc = weigh(&e, err);
    if (rc == 0)
        rc = kh_text_box_fill(&e.box, e.point, e.weight, e.n, p, err);
    if (rc == 0)
        rc = keep_prior(&e, p, err);
    if (rc == 0 && !t->o->label_prior)
        rc = kh_tuning_judge(t, p, t->plm, err);
    if (rc == 0 && !t->o->label_prior && t->o->effort != KH_EFFORT_PAPER &&
        kh_tuning_calibrates(t) && t->n_train > N_FOLD)
        rc = hold_train(&e, err);
    ensemble_free(&e);
    return rc;
}

static int prompts_of(const void *opts) { return ((const ensemble_opts *)opts)->prompts; }

/* The task's own prompt alone is a result. */
static long long least(const kh_tuning *t, const void *opts) {
    (void)opts;
    return t->n_train + (t->o->label_prior ? 0 : t->n_dev);
}

static void most(const kh_tuning *t, const void *opts, kh_plan *plan) {
    const ensemble_opts *o = opts;
    plan->candidates = o->prompts;
    plan->shown = o->text.demos;
    plan->train = (long long)o->prompts * (t->n_train + (DRAWS_MOST - 1) * ((t->n_train + 1) / 2));
    plan->dev = t->o->label_prior ? 0 : (long long)o->prompts * t->n_dev;
}

const kh_method kh_method_text_ensemble = {
    .name = "text-ensemble",
    .summary = "a set of text prompts, weighted by how well they explain the labels",
    .access = KH_ACCESS_LOGPROBS,
    .text = true,
    .holds = true,
    .opts = ensemble_table,
    .opts_size = sizeof(ensemble_opts),
    .samples = prompts_of,
    .least = least,
    .most = most,
    .run = run_ensemble,
};
