/* pca.h - the samples of a posterior on a plane: principal components. */
#ifndef KH_JUDGE_PCA_H
#define KH_JUDGE_PCA_H

#include "keyhole.h"

/* x [n, d] with weights [n] (NULL: equal) -> xy [n, 2], the coordinates along the two directions of
 * the largest weighted variance, and the share of all variance that each of them holds. The sign of
 * a direction is such that the coordinate of largest size is positive. n >= 1. */
int kh_pca_plane(
    const float *x, const float *weight, int n, size_t d, double *xy, double share[2], kh_err *err);

#endif
