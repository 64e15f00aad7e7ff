/* predict.h - predictions beyond what the public header says. */
#ifndef KH_JUDGE_PREDICT_H
#define KH_JUDGE_PREDICT_H

#include "keyhole.h"

/* The weighted mean of distributions given as logarithms: logprob [n_sample, n_row, n_label], weight [n_sample] -> p [n_row,
 * n_label], summed in the order of the samples. doc/methods.md, T1 and T2. Adds to p, which the caller has zeroed. */
void kh_mixture_add(double *p, const float *logprob, const float *weight, int n_sample, int n_row, int n_label);
/* Makes each row of p add up to one, which rounded weights do not quite. */
void kh_mixture_finish(double *p, int n_row, int n_label);

#endif
