/* label_prior.h - what a model likes to say whatever the text is, and how that is taken out of its
 * answers.
 *
 * A model says some label words more readily than others: they are common, or they go well with the
 * template or the prompt. That is a prior over labels, of each sample of a posterior its own.
 * Learned once, as logarithms, it is taken from every answer. */
#ifndef KH_JUDGE_LABEL_PRIOR_H
#define KH_JUDGE_LABEL_PRIOR_H

#include "keyhole.h"

#define KH_LABEL_PRIOR_NAMES "none|batch|contextual" /* in the order of the enum */
const char *kh_label_prior_name(kh_label_prior);

/* The prior of one sample by its answers to some rows, both as logarithms: logprob [n_row, n_label]
 * -> prior [n_label], whose exponentials add up to one. share [n_label]: of the classes among these
 * rows, for batch; NULL: even. doc/methods.md, T16 and T17. */
int kh_label_prior_fit(kh_label_prior, const float *logprob, int n_row, int n_label,
    const double *share, double *prior, kh_err *err);
/* Takes it from answers of that sample: each row is a distribution again. */
void kh_label_prior_correct(const double *prior, float *logprob, int n_row, int n_label);

#endif
