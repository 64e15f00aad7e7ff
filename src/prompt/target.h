/* target.h - a question with a hole for z: box, subspace and batch. What every method of tuning
 * asks.
 *
 *     kh_target t = { .scorer = scorer, .space = space, .batch = batch, .words = words };
 *     kh_target_score(&t, z, 20, logprob, err);
 */
#ifndef KH_PROMPT_TARGET_H
#define KH_PROMPT_TARGET_H

#include "prompt/subspace.h"

typedef struct kh_target {
    kh_scorer *scorer; /* NULL for a method that may see labels only */
    kh_labeler *labeler;
    const kh_subspace *space;
    const kh_batch *batch;
    const kh_words *words;
} kh_target;

/* z [n, d] -> logprob [n, n_row, n_label]. */
int kh_target_score(const kh_target *, const float *z, int n, float *logprob, kh_err *err);
/* z [n, d] -> label [n, n_row]. */
int kh_target_answer(const kh_target *, const float *z, int n, int *label, kh_err *err);
/* z [n, d] -> errors [n] against the batch's labels, and label [n, n_row], -1 where nothing was
 * asked: a z is asked no further than its patience goes (kh_plm_answer_within). */
int kh_target_answer_within(const kh_target *, const float *z, int n, const kh_patience *,
    int *errors, int *label, kh_err *err);
/* Several targets that differ in nothing but their subspace, in one question, so that the box has
 * more to do at a time: z [n_target] of [n, d] -> logprob [n_target, n, n_row, n_label]. */
int kh_targets_score(
    const kh_target *, int n_target, const float *const *z, int n, float *logprob, kh_err *err);

/* One question about a batch: log-probabilities if `scorer` is not NULL, else the labels' votes as
 * log-probabilities, 0 for the label and minus infinity for the others. energy [n_prompt, n_row],
 * NaN where it is not known; NULL: not wanted. For code that weighs answers of either kind. */
int kh_ask(
    kh_scorer *, kh_labeler *, const kh_question *, float *logprob, float *energy, kh_err *err);
/* The same of several text prompts about the same rows, asked together (plm/together.h): logprob
 * [n, n_row, n_label], NaN where a service refused. */
int kh_ask_together(
    kh_scorer *, kh_labeler *, const kh_question *q, int n, float *logprob, kh_err *err);

#endif
