/* text_search.c - the best single text prompt: the baseline for what a distribution over them is
 * worth.
 *
 * The first half of the candidates are the task's own prompt and draws from the prior; the second
 * half are steps from the best so far. A candidate's loss is the sum of -log p of the train labels,
 * or the number of wrong ones where the box gives labels only. Both only grow from row to row, so a
 * candidate that is already worse than the best is asked no further. */
#include "tune/text_box.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/map.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK = 8 };                 /* rows between two looks at the loss */
static const double STEP = 0.4;     /* of the second half: mostly small moves */
static const double LEAST_P = 1e-9; /* what a label has at least, however sure a prompt is */

typedef struct search_opts {
    int candidates;
    kh_text_space_opts text;
} search_opts;

static const kh_opt search_table[] = {
    { "candidates", KH_OPT_INT, offsetof(search_opts, candidates), "32", .min = 1, .max = 1 << 20,
        .arg = "N", .help = "text prompts to try" },
    KH_TEXT_ROWS(search_opts, text),
    { 0 },
};

typedef struct text_search {
    kh_tuning *t;
    const search_opts *o;
    kh_text_box box;
    float *point, *best;
    double loss; /* of the best */
    long long saved;
    float *logprob; /* [CHUNK, n_label] */
    kh_map seen;
    kh_arena keys; /* of it */
} text_search;

static int text_search_new(text_search *s, kh_tuning *t, const search_opts *o, kh_err *err) {
    *s = (text_search){ .t = t, .o = o, .loss = INFINITY };
    int rc = kh_text_box_open(&s->box, t, &o->text, true, err);
    if (rc != 0)
        return rc;
    size_t dim = (size_t)s->box.space->dim;
    s->point = kh_calloc(dim, sizeof *s->point);
    s->best = kh_calloc(dim, sizeof *s->best);
    s->logprob = kh_calloc((size_t)CHUNK * (size_t)t->task->n_label, sizeof *s->logprob);
    return s->point && s->best && s->logprob ? 0 : kh_fail_memory(err);
}

static void text_search_free(text_search *s) {
    kh_text_box_close(&s->box);
    kh_map_free(&s->seen);
    kh_arena_free(&s->keys);
    kh_free(s->point);
    kh_free(s->best);
    kh_free(s->logprob);
}

/* The loss of s->point; any number above the best's if it is worse. */
static int measure(text_search *s, double *loss, kh_err *err) {
    const kh_tuning *t = s->t;
    int n_label = t->task->n_label, index[CHUNK], label[CHUNK], rc = 0, first = 0;
    float *logprob = s->box.scorer ? s->logprob : NULL;
    *loss = 0;
    for (int n; first < t->n_train && rc == 0 && *loss <= s->loss; first += n) {
        n = t->n_train - first < CHUNK ? t->n_train - first : CHUNK;
        for (int i = 0; i < n; i++)
            index[i] = first + i;
        rc = kh_text_box_ask(&s->box, s->point, &(kh_text_rows){ t->train_row, true }, index, n,
            logprob, label, err);
        for (int i = 0; i < n && rc == 0; i++) {
            int truth = t->train_row[first + i].label;
            *loss += logprob
                ? fmin(-log(LEAST_P), -(double)logprob[(size_t)i * (size_t)n_label + (size_t)truth])
                : label[i] != truth;
        }
    }
    s->saved += t->n_train - first;
    return rc;
}

static void propose(text_search *s, int i) {
    kh_rng r = kh_rng_stream(s->t->o->seed, KH_RNG_TEXT, 1, (uint32_t)i);
    if (i == 0)
        kh_text_space_own(s->box.space, s->point);
    else if (2 * i < s->o->candidates)
        kh_text_space_draw(s->box.space, &r, s->point);
    else
        kh_text_space_move(s->box.space, &r, STEP, s->best, s->point);
}

static int try_one(text_search *s, int i, kh_err *err) {
    size_t bytes = (size_t)s->box.space->dim * sizeof *s->point;
    double loss;
    char facts[KH_FACTS];
    propose(s, i);
    if (kh_map_get(&s->seen, (const char *)s->point, bytes, &(int32_t){ 0 }))
        return 0; /* was asked before */
    char *key = kh_arena_alloc(&s->keys, bytes);
    if (!key)
        return kh_fail_memory(err);
    memcpy(key, s->point, bytes);
    if (kh_map_add(&s->seen, key, bytes, i, NULL) < 0)
        return kh_fail_memory(err);
    kh_err why = { 0 };
    int rc = measure(s, &loss, &why);
    if (rc != 0 && kh_text_box_useless(&s->box, s->point, rc, &why))
        return 0;
    if (rc != 0)
        return kh_fail(err, rc, "%s", why.msg);
    if (loss < s->loss) {
        s->loss = loss;
        memcpy(s->best, s->point, bytes);
    }
    snprintf(facts, sizeof facts, "loss=%.6f best=%.6f saved=%lld", loss / s->t->n_train,
        s->loss / s->t->n_train, s->saved);
    kh_tuning_report(s->t, "text-search",
        &(kh_generation){ -1, i + 1, i + 1, s->o->candidates, NAN, facts, 0, false });
    return 0;
}

static int run_search(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    const search_opts *o = opts;
    text_search s;
    int rc = text_search_new(&s, t, o, err);
    for (int i = 0; i < o->candidates && rc == 0 && kh_tuning_may(t, t->n_train + t->n_dev, i > 0);
         i++)
        rc = try_one(&s, i, err);
    if (rc == 0 && !t->stopped[0])
        kh_tuning_stop(t, "all %d candidates were tried", o->candidates);
    if (rc == 0)
        rc = kh_text_box_fill(&s.box, s.best, &(double){ 1 }, 1, p, err);
    if (rc == 0 && !t->o->label_prior)
        rc = kh_tuning_judge(t, p, t->plm, err);
    text_search_free(&s);
    return rc;
}

static long long least(const kh_tuning *t, const void *opts) {
    (void)opts;
    return t->n_train + (t->o->label_prior ? 0 : t->n_dev);
}

static void most(const kh_tuning *t, const void *opts, kh_plan *plan) {
    const search_opts *o = opts;
    plan->candidates = o->candidates;
    plan->shown = o->text.demos;
    plan->train = (long long)o->candidates * t->n_train;
    plan->dev = t->o->label_prior ? 0 : t->n_dev;
}

const kh_method kh_method_text_search = {
    .name = "text-search",
    .summary = "the best single text prompt; a baseline",
    .access = KH_ACCESS_LABELS,
    .text = true,
    .holds = true,
    .opts = search_table,
    .opts_size = sizeof(search_opts),
    .least = least,
    .most = most,
    .run = run_search,
};
