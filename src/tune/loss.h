/* loss.h - what is minimised: pure functions of log-probabilities and labels (doc/methods.md, T6 to
 * T9). */
#ifndef KH_TUNE_LOSS_H
#define KH_TUNE_LOSS_H

#include "keyhole.h"

typedef enum kh_loss { KH_LOSS_CE, KH_LOSS_HINGE, KH_LOSS_BRIER, KH_LOSS_METRIC } kh_loss;
#define KH_LOSS_NAMES "ce|hinge|brier|metric" /* in the order of the enum */

/* The loss of one prompt. logprob [n, n_label], up to a constant for each row; label [n]. */
double kh_loss_value(
    kh_loss, kh_metric, const float *logprob, const int *label, int n, int n_label);

/* Accuracy, or F1 of class 1, of the most probable labels: of log-probabilities, of distributions.
 * Both [n, n_label]. */
double kh_metric_of(kh_metric, const float *logprob, const int *label, int n, int n_label);
double kh_metric_of_p(kh_metric, const double *p, const int *label, int n, int n_label);

#endif
