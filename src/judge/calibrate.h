/* calibrate.h - the parts of calibration that tests and the file format want to see; the rest is in
 * keyhole.h. */
#ifndef KH_JUDGE_CALIBRATE_H
#define KH_JUDGE_CALIBRATE_H

#include "base/buf.h"
#include "keyhole.h"

/* Bounds of the parameters; files that leave them are refused. */
#define KH_T_MIN 0.05
#define KH_T_MAX 20.0
#define KH_WEIGHT_MAX 20.0 /* of |w| and |b| */

const char *kh_calibration_name(kh_calibration);
/* Whether it has a weight and a bias for each class. */
static inline bool kh_calibration_per_class(kh_calibration c) {
    return c == KH_CALIBRATE_VECTOR || c == KH_CALIBRATE_AFFINE || c == KH_CALIBRATE_VOTES_AFFINE;
}
/* Whether it maps numbers of votes. */
static inline bool kh_calibration_votes(kh_calibration c) {
    return c == KH_CALIBRATE_VOTES || c == KH_CALIBRATE_VOTES_AFFINE;
}
/* Whether its slope is one for all classes, and its strength cross-validated. */
static inline bool kh_calibration_affine(kh_calibration c) {
    return c == KH_CALIBRATE_AFFINE || c == KH_CALIBRATE_VOTES_AFFINE;
}
/* What a posterior's answers are calibrated by. */
static inline kh_calibration kh_calibration_of(bool votes) {
    return votes ? KH_CALIBRATE_VOTES_AFFINE : KH_CALIBRATE_AFFINE;
}
/* kh_calibrator_crossfit, and what it has fitted: map [n_fold], which hold nothing before (free
 * each, failed ones too), fold [n]: the map that has not seen the row. NULL: not wanted. */
int kh_calibrator_crossfit_maps(kh_calibration, const double *x, const int *label, int n,
    int n_label, int n_fold, double *p, kh_calibrator *map, int *fold, kh_err *err);
void kh_calibrator_json(const kh_calibrator *, kh_buf *out);
/* From JSON in memory; messages call it by `name`. */
int kh_calibrator_parse(
    kh_calibrator *out, const char *json, size_t n, const char *name, kh_err *err);

#endif
