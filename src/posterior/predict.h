/* predict.h - predictions beyond what the public header says. */
#ifndef KH_POSTERIOR_PREDICT_H
#define KH_POSTERIOR_PREDICT_H

#include "keyhole.h"

/* The weighted mean of distributions given as logarithms: logprob [n_sample, n_row, n_label],
 * weight [n_sample] -> p [n_row, n_label], summed in the order of the samples. doc/methods.md, T1
 * and T2. Adds to p, which the caller has zeroed. */
void kh_mixture_add(
    double *p, const float *logprob, const float *weight, int n_sample, int n_row, int n_label);
/* The weighted mean of energies [n_sample, n_row], added to mean [n_row]; doc/judging.md, [29]. */
void kh_mixture_energy(
    double *mean, const float *energy, const float *weight, int n_sample, int n_row);
/* Makes each row of p add up to one, which rounded weights do not quite. */
void kh_mixture_finish(double *p, int n_row, int n_label);
/* Answers p of a mixture and q of the template, pooled by the template's share: doc/methods.md,
 * T22. Rows of p add up to one afterwards. */
void kh_mixture_pool(double *p, const double *q, double share, bool votes, int n_row, int n_label);
/* What the samples say one by one, added to votes [n_row, n_label] and ambiguity [n_row]
 * (kh_explained). */
void kh_mixture_parts(double *votes, double *ambiguity, const float *logprob, const float *weight,
    int n_sample, int n_row, int n_label);

/* Distributions or shares of votes [n] -> what the calibrator of a posterior was fitted on: their
 * logarithms, or numbers of votes. */
void kh_calibration_input(bool votes, int samples, double *p, size_t n);

/* What each sample answers by itself, as it was given: logprob [samples, n, n_label]. */
int kh_predictor_each(kh_predictor *, const kh_row *rows, int n, float *logprob, kh_err *err);

/* Whether the row is longer than the model reads, so that its end is left out. */
int kh_predictor_cuts(kh_predictor *, const kh_row *, bool *cut, kh_err *err);

/* The soft prompts of the samples [n, slots, hidden], or NULL without; they live as long as the
 * predictor. */
const float *kh_predictor_prompts(const kh_predictor *);

#endif
