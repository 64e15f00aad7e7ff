/* heads.h - small classifiers on the hidden states of a frozen model: values and exact gradients;
 * formulas in doc/training.md, (G8) to (G10).
 *
 *     kh_head *h;
 *     kh_head_new(&h, &adapter, 2, err);
 *     kh_head_run(h, adapter.x, rows, n, true, NULL, &loss, err);
 *     ... kh_head_gradient(h) [kh_adapter_size]
 *
 * Everything is computed in double: next to the model these heads cost nothing. Rows are cut into a
 * fixed number of shards, whose gradients are added in their order, so the bits do not depend on
 * threads. */
#ifndef KH_TRAIN_HEADS_H
#define KH_TRAIN_HEADS_H

#include "model/adapter.h"

typedef struct kh_head_row {
    const float *state; /* [n, H] */
    int n;              /* 1, but for a BiLSTM */
    int label;          /* -1: not known; such a row has no loss */
} kh_head_row;

typedef struct kh_head kh_head;

/* Only the sizes of the adapter are taken, not its numbers. */
int kh_head_new(kh_head **out, const kh_adapter *, int shards, kh_err *err);
void kh_head_free(kh_head *);

/* Numbers to start from: uniform within 1 / sqrt(inputs), forget gates open by 1. */
void kh_head_start(const kh_adapter *, uint64_t seed, float *x);

/* The head with the numbers x: the mean cross-entropy of the rows; log-probabilities [n, K] unless
 * NULL; the gradient if wanted. */
int kh_head_run(kh_head *, const float *x, const kh_head_row *, int n, bool gradients,
    float *logprob, double *loss, kh_err *err);
float *kh_head_gradient(kh_head *); /* of the last run; may be written to until the next */

#endif
