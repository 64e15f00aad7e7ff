/* jackknife.h - conformal sets of a classifier whose map was fitted on the calibration rows
 * themselves: every row is both learned from and calibrated on. doc/judging.md, [31] to [33].
 *
 *     kh_left_out l;
 *     if (kh_left_out_fit(&l, &calibrator, x, label, n, n_label, folds, p, err) == 0 && ...
 *         kh_conformal_fit(&c, &(kh_answers){ p, label, n, n_label }, alpha, false, err) == 0)
 *         kh_conformal_plus(&c, &l, &answers, err);
 *     kh_left_out_free(&l);
 */
#ifndef KH_JUDGE_JACKKNIFE_H
#define KH_JUDGE_JACKKNIFE_H

#include "keyhole.h"

/* What the map would say without some of its rows, as a function of what it says:
 * softmax(slope log p + shift). */
typedef struct kh_left_out {
    int n, n_map, n_label; /* n_map 0: there is no such function */
    int *fold;             /* [n] the map that has not seen the row */
    double *slope;         /* [n_map] */
    double *shift;         /* [n_map, n_label] */
} kh_left_out;

/* all: the map of all rows. p [n, n_label]: every row by the map that has not seen it, as
 * kh_calibrator_crossfit has it. prior [n_label] (NULL: none): factors that the classifier takes p
 * times afterwards; p gets them, too. Free it, failed ones too. */
int kh_left_out_fit(kh_left_out *out, const kh_calibrator *all, const double *x, const int *label,
    int n, int n_label, int n_fold, const double *prior, double *p, kh_err *err);
void kh_left_out_free(kh_left_out *);

/* Sets that were fitted on these very answers count by the maps from here on (jackknife+; CV+ if a
 * map was fitted without several rows). */
int kh_conformal_plus(kh_conformal *, const kh_left_out *, const kh_answers *, kh_err *err);
/* in [n_label]; returns how many. For sets with maps. */
int kh_conformal_plus_set(const kh_conformal *, const double *p, bool *in);
/* What the sets hold for certain: 1 - 2 alpha, and a little less if maps are fewer than rows; 1 -
 * alpha without maps. */
double kh_conformal_promise(const kh_conformal *);

#endif
