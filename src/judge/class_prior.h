/* class_prior.h - classes that are more or less frequent among the texts to come than among the
 * rows of tuning (doc/methods.md, T21). */
#ifndef KH_JUDGE_CLASS_PRIOR_H
#define KH_JUDGE_CLASS_PRIOR_H

#include "keyhole.h"

/* "P1,P2,...": n positive numbers, in the order of the labels -> prior [n], scaled to add up to
 * one. */
int kh_class_prior_parse(double *prior, const char *text, int n, kh_err *err);
/* p [n_row, n_label]: answers that hold where classes have the shares `share` (NULL: even) become
 * those that hold where they have the shares `prior`. */
void kh_class_prior_apply(
    const double *prior, const double *share, double *p, int n_row, int n_label);

#endif
