/* loss.c - see loss.h. Sums are taken in double and in the order of the rows. */
#include "tune/loss.h"

#include "base/logsum.h"

#include <math.h>

static const double MARGIN = 2; /* of the hinge loss, as in BBT */

/* (T6) of one row. */
static double cross_entropy(const float *x, int label, int n) {
    return kh_log_sum_exp_floats(x, n) - (double)x[label];
}

/* (T7) of one row: multi-class, with respect to every wrong label, on logits, so that shifting all
 * of them changes nothing. */
static double hinge(const float *x, int label, int n) {
    double sum = 0;
    for (int k = 0; k < n; k++) {
        double short_by = MARGIN + (double)x[k] - (double)x[label];
        sum += k != label && short_by > 0 ? short_by : 0;
    }
    return sum;
}

/* (T8) of one row. */
static double brier(const float *x, int label, int n) {
    double total = kh_log_sum_exp_floats(x, n), sum = 0;
    for (int k = 0; k < n; k++) {
        double off = exp((double)x[k] - total) - (k == label);
        sum += off * off;
    }
    return sum;
}

/* The first of equals. */
static int best_of(const float *x, int n) {
    int best = 0;
    for (int k = 1; k < n; k++)
        best = x[k] > x[best] ? k : best;
    return best;
}

/* Counts of what accuracy and F1 are made of. */
typedef struct tally {
    int right, hit, predicted, there; /* of class 1: found, said, in the data */
} tally;

static void count(tally *t, int predicted, int label) {
    t->right += predicted == label;
    t->hit += predicted == 1 && label == 1;
    t->predicted += predicted == 1;
    t->there += label == 1;
}

/* F1 of a class that is neither there nor ever said is 0, as in scikit-learn. */
static double value_of(kh_metric metric, const tally *t, int n) {
    if (metric == KH_METRIC_ACCURACY)
        return (double)t->right / n;
    return t->predicted + t->there > 0 ? 2.0 * t->hit / (t->predicted + t->there) : 0;
}

double kh_metric_of(kh_metric metric, const float *logprob, const int *label, int n, int n_label) {
    tally t = { 0 };
    for (int i = 0; i < n; i++)
        count(&t, best_of(logprob + (size_t)i * (size_t)n_label, n_label), label[i]);
    return value_of(metric, &t, n);
}

double kh_metric_of_p(kh_metric metric, const double *p, const int *label, int n, int n_label) {
    tally t = { 0 };
    for (int i = 0; i < n; i++)
        count(&t, kh_predicted(p + (size_t)i * (size_t)n_label, n_label), label[i]);
    return value_of(metric, &t, n);
}

/* (T6) to (T9): the mean over the rows; METRIC is negative, because everything here is minimised.
 */
double kh_loss_value(
    kh_loss loss, kh_metric metric, const float *logprob, const int *label, int n, int n_label) {
    static double (*const OF_ROW[])(const float *, int,
        int) = { [KH_LOSS_CE] = cross_entropy, [KH_LOSS_HINGE] = hinge, [KH_LOSS_BRIER] = brier };
    if (loss == KH_LOSS_METRIC)
        return -kh_metric_of(metric, logprob, label, n, n_label);
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += OF_ROW[loss](logprob + (size_t)i * (size_t)n_label, label[i], n_label);
    return sum / n;
}
