/* claims.h - how sure a difference between two methods is: a paired bootstrap over seeds and rows.
 *
 *     kh_claim c;
 *     kh_claim_compare(&reproduction, "ensemble", "bbt", NULL, &c, err);
 *     switch (kh_claim_sign(&c.score)) ...             1: more, -1: less, 0: cannot tell
 *
 * Only tasks and seeds that both methods have done count; both were judged on the same rows. */
#ifndef KH_REPRODUCE_CLAIMS_H
#define KH_REPRODUCE_CLAIMS_H

#include "reproduce/reproduction.h"

/* A difference with its interval of 95 %; NaN: there is nothing to compare. */
typedef struct kh_difference {
    double mean, low, high;
} kh_difference;

typedef struct kh_claim {
    kh_difference score, ece; /* first - second; the task's own score */
    int tasks, pairs;         /* pairs of runs */
} kh_claim;

/* The mean over tasks (x NULL: all) of the mean over seeds. */
int kh_claim_compare(const kh_reproduction *, const char *first, const char *second,
    const kh_experiment *x, kh_claim *out, kh_err *err);

/* The same for numbers that each run has one of: d[i] of unit i, drawn with replacement. One unit
 * has a mean and no interval. */
int kh_claim_units(const double *d, int n, int n_resample, kh_difference *out, kh_err *err);

/* 1: the interval lies above zero, -1: below, 0: it holds zero or is not known. */
int kh_claim_sign(const kh_difference *);

#endif
