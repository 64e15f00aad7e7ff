/* leave_one_out.h - calibration on a few labelled rows, without losing rows to a split: which map
 * to take, and conformal sets in which every row is both learned from and calibrated on.
 *
 *     kh_loo l;
 *     if (kh_loo_fit(&l, KH_CALIBRATE_AFFINE, x, label, n, n_label, 0.1, err) == 0)
 *         size = kh_loo_set(&l, x_new, in);
 *     kh_loo_free(&l);
 *
 * doc/judging.md, [31] to [33], has the promise. */
#ifndef KH_JUDGE_LEAVE_ONE_OUT_H
#define KH_JUDGE_LEAVE_ONE_OUT_H

#include "keyhole.h"

/* The map with the least cross-validated NLL among temperature, vector, affine (whose grid holds
 * "no change") and none: *none is true if no change is best. x [n, n_label] are scores. */
int kh_calibration_choose(kh_calibration *out, bool *none, const double *x, const int *label, int n,
    int n_label, kh_err *err);

typedef struct kh_loo {
    double alpha;
    int n, n_label;
    kh_calibrator *without; /* [n] the map of all rows but one */
    double *score;          /* [n] of that one by it: 1 - p(true class) */
    double *p;              /* [n_label] scratch */
} kh_loo;

/* Jackknife+. Free it, failed ones too. */
int kh_loo_fit(kh_loo *out, kh_calibration, const double *x, const int *label, int n, int n_label,
    double alpha, kh_err *err);
void kh_loo_free(kh_loo *);
/* in [n_label]: which classes are in the set of the scores x [n_label]; returns how many. */
int kh_loo_set(const kh_loo *, const double *x, bool *in);

#endif
