/* logistic.h - multinomial logistic regression with a ridge penalty; doc/methods.md, (W1).
 *
 * The problem is convex, so that what comes out depends on the rows alone, not on a start, a seed
 * or threads: for a few dozen rows this is worth more than anything a network could add. */
#ifndef KH_TRAIN_LOGISTIC_H
#define KH_TRAIN_LOGISTIC_H

#include "keyhole.h"

typedef struct kh_logistic_rows {
    const double *x;  /* [n, dim] */
    const int *label; /* [n] of 0 .. n_label - 1; -1: the row is left out */
    int n, dim, n_label;
} kh_logistic_rows;

/* Minimises the mean of -log p(label | x) plus ridge / 2 times the squares of the weights, biases
 * apart. w [n_label, dim + 1]: where to start, and the result; the last of each row is the bias. */
int kh_logistic_fit(const kh_logistic_rows *, double ridge, double *w, kh_err *err);
/* log p(. | x) of n rows: logprob [n, n_label]. */
void kh_logistic_answer(
    const double *w, const double *x, int n, int dim, int n_label, double *logprob);

#endif
