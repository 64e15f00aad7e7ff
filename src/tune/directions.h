/* directions.h - steps that are reversible under N(0, I) and are shorter in some directions than in
 * others.
 *
 *     kh_directions d;
 *     if (kh_directions_new(&d, 50, dim, err) == 0) {
 *         kh_directions_learn(&d, x, n);                 from points [n, dim], n <= 50
 *         kh_directions_move(&d, b, &rng, from, to);     as often as is wanted
 *     }
 *     kh_directions_free(&d);
 */
#ifndef KH_TUNE_DIRECTIONS_H
#define KH_TUNE_DIRECTIONS_H

#include "base/rng.h"
#include "keyhole.h"

typedef struct kh_directions {
    int dim, n;     /* n: directions that are known; the rest of space is all the same */
    double *w;      /* [n, dim] of unit length, at right angles */
    double *length; /* [n] of a step in each, against 1 elsewhere: less */
    int most;
    double *gram, *value, *work, *mean, *noise; /* scratch */
} kh_directions;

/* For points of so many dimensions, `most` at most. Knows of no direction yet. Free it also on
 * failure. */
int kh_directions_new(kh_directions *, int most, int dim, kh_err *err);
void kh_directions_free(kh_directions *);

/* From the covariance of points x [n, dim]. */
void kh_directions_learn(kh_directions *, const double *x, int n);

/* A step of size b, 0 < b <= 1. */
void kh_directions_move(const kh_directions *, double b, kh_rng *, const double *from, double *to);

#endif
