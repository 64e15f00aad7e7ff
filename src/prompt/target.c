/* target.c - z of a population become prompts, some at a time, and prompts become answers. */
#include "prompt/target.h"

#include "base/alloc.h"
#include "base/err.h"
#include "model/question.h"
#include "plm/together.h"

#include <math.h>

enum {
    AT_ONCE = 512
}; /* prompts in memory, if so many are asked about: 105 MB for RoBERTa-large's 50 x 1024 */

/* What is wanted of each z, and where it goes: logprob; or label; or, with patience, errors and
 * label. */
typedef struct wanted {
    float *logprob;
    int *label, *errors;
    const kh_patience *patience;
} wanted;

/* A question whose prompts are those of z number `first` on. */
static int ask(
    const kh_target *t, const kh_question *q, int first, const wanted *out, kh_err *err) {
    size_t at = (size_t)first * (size_t)t->batch->n_row;
    if (out->logprob)
        return kh_plm_score(t->scorer, q, out->logprob + at * (size_t)t->words->n_label, err);
    if (!out->patience)
        return kh_plm_answer(t->labeler, q, out->label + at, err);
    kh_patience some = *out->patience;
    some.allowance += first;
    return kh_plm_answer_within(t->labeler, q, &some, out->errors + first, out->label + at, err);
}

/* Prompts [first, first + some) of n_target * n, which stand target after target. Targets differ in
 * their subspace: members of an ensemble have projections of their own, and are asked together. */
static int make_prompts(const kh_target *t, const float *const *z, int n, int first, int some,
    float *prompts, kh_err *err) {
    const kh_space *s = kh_subspace_space(t->space);
    size_t size = (size_t)s->slots * (size_t)s->hidden;
    int rc = 0;
    for (int i = 0, count; i < some && rc == 0; i += count) {
        int target = (first + i) / n, at = (first + i) % n;
        count = n - at < some - i ? n - at : some - i;
        rc = kh_subspace_prompts(t[target].space, z[target] + (size_t)at * (size_t)s->dim, count,
            prompts + (size_t)i * size, err);
    }
    return rc;
}

/* One question for as many prompts as memory allows: what the box can share between prompts, it
 * shares within a question. */
static int ask_all(const kh_target *t, int n_target, const float *const *z, int n,
    const wanted *out, kh_err *err) {
    const kh_space *s = kh_subspace_space(t->space);
    size_t size = (size_t)s->slots * (size_t)s->hidden;
    int all = n_target * n;
    float *prompts = kh_malloc((size_t)(all < AT_ONCE ? all : AT_ONCE) * size * sizeof *prompts);
    int rc = prompts ? 0 : kh_fail_memory(err);
    for (int first = 0; first < all && rc == 0; first += AT_ONCE) {
        int some = all - first < AT_ONCE ? all - first : AT_ONCE;
        rc = make_prompts(t, z, n, first, some, prompts, err);
        if (rc == 0)
            rc = ask(
                t, &(kh_question){ t->batch, t->words, s->inject, prompts, some }, first, out, err);
    }
    kh_free(prompts);
    return rc;
}

int kh_target_score(const kh_target *t, const float *z, int n, float *logprob, kh_err *err) {
    return ask_all(t, 1, &z, n, &(wanted){ .logprob = logprob }, err);
}

int kh_target_answer(const kh_target *t, const float *z, int n, int *label, kh_err *err) {
    return ask_all(t, 1, &z, n, &(wanted){ .label = label }, err);
}

int kh_target_answer_within(const kh_target *t, const float *z, int n, const kh_patience *patience,
    int *errors, int *label, kh_err *err) {
    return ask_all(
        t, 1, &z, n, &(wanted){ .label = label, .errors = errors, .patience = patience }, err);
}

int kh_targets_score(
    const kh_target *t, int n_target, const float *const *z, int n, float *logprob, kh_err *err) {
    return ask_all(t, n_target, z, n, &(wanted){ .logprob = logprob }, err);
}

/* A label as a log-probability of class k; no label, of a row that a service refused, is none. */
static float vote(int label, int k) {
    if (label < 0)
        return NAN;
    return label == k ? 0 : -INFINITY;
}

/* Labels [n] as votes [n, n_label]. */
static void put_votes(const int *label, size_t n, int n_label, float *logprob) {
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < n_label; k++)
            logprob[i * (size_t)n_label + (size_t)k] = vote(label[i], k);
}

/* Answers of a box that gives labels only, in the shape of log-probabilities: 0 for the label,
 * minus infinity for the others. Their mixture is the share of votes (T2), by the same code as
 * (T1). */
int kh_ask(kh_scorer *scorer, kh_labeler *labeler, const kh_question *q, float *logprob,
    float *energy, kh_err *err) {
    if (scorer)
        return energy ? kh_plm_score_energy(scorer, q, logprob, energy, err)
                      : kh_plm_score(scorer, q, logprob, err);
    size_t pairs = kh_question_pairs(q);
    int *label = kh_calloc(pairs + 1, sizeof *label);
    int rc = label ? kh_plm_answer(labeler, q, label, err) : kh_fail_memory(err);
    for (size_t i = 0; rc == 0 && energy && i < pairs; i++)
        energy[i] = NAN; /* a label says nothing of it */
    if (rc == 0)
        put_votes(label, pairs, q->words->n_label, logprob);
    kh_free(label);
    return rc;
}

int kh_ask_together(kh_scorer *scorer, kh_labeler *labeler, const kh_question *q, int n,
    float *logprob, kh_err *err) {
    if (scorer)
        return kh_plm_score_together(scorer, q, n, logprob, err);
    size_t pairs = (size_t)n * (size_t)q->batch->n_row;
    int *label = kh_calloc(pairs + 1, sizeof *label);
    int rc = label ? kh_plm_answer_together(labeler, q, n, label, err) : kh_fail_memory(err);
    if (rc == 0)
        put_votes(label, pairs, q->words->n_label, logprob);
    kh_free(label);
    return rc;
}
