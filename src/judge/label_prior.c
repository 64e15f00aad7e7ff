/* label_prior.c - see label_prior.h.
 *
 * Contextual calibration (Zhao et al. 2021) asks about texts that say nothing: the mean of the
 * answers is the prior. Batch calibration (Zhou et al. 2023) takes the mean over rows that say
 * something, as many of each class. Divided by that mean, answers of a model that is too sure of
 * itself are still far from even; so here it is done again with the corrected answers, until they
 * are even: Sinkhorn's scaling of a matrix, which ends whatever the answers are. */
#include "judge/label_prior.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/logsum.h"

#include <math.h>

static const double DEEPEST = -100; /* logarithms end here: e^-100 is as good as never */
static const double EVEN = 1e-6;    /* means this close to 1 / n_label, or the shares, will do */

/* Sinkhorn's scaling converges geometrically, in a few rounds for answers that are not extreme;
 * answers that are get what 500 rounds give. */
enum { MAX_ROUNDS = 500 };

const char *kh_label_prior_name(kh_label_prior p) {
    static const char *const NAMES[] = { "none", "batch", "contextual" };
    return NAMES[p];
}

/* T16: the mean of the answers corrected by the prior. v: scratch [n_label]. */
static void mean_answer(
    const double *prior, const float *logprob, int n_row, int n_label, double *v, double *mean) {
    for (int k = 0; k < n_label; k++)
        mean[k] = 0;
    for (int i = 0; i < n_row; i++, logprob += n_label) {
        for (int k = 0; k < n_label; k++)
            v[k] = fmax((double)logprob[k], DEEPEST) - prior[k];
        double total = kh_log_sum_exp(v, n_label);
        for (int k = 0; k < n_label; k++)
            mean[k] += exp(v[k] - total) / n_row;
    }
}

/* As even as the shares that are aimed at. */
static bool is_even(const double *mean, const double *share, int n) {
    for (int k = 0; k < n; k++)
        if (fabs(mean[k] - (share ? share[k] : 1.0 / n)) > EVEN)
            return false;
    return true;
}

/* Contextual is one round of the same update. The result is normalised, so that priors of different
 * samples can be compared. */
int kh_label_prior_fit(kh_label_prior kind, const float *logprob, int n_row, int n_label,
    const double *share, double *prior, kh_err *err) {
    double *mean = kh_calloc(2 * (size_t)n_label, sizeof *mean);
    if (!mean)
        return kh_fail_memory(err);
    double *v = mean + n_label;
    int rounds = kind == KH_LABEL_PRIOR_BATCH ? MAX_ROUNDS : 1;
    for (int k = 0; k < n_label; k++)
        prior[k] = 0;
    for (int r = 0; r < rounds; r++) {
        mean_answer(prior, logprob, n_row, n_label, v, mean);
        if (is_even(mean, share, n_label))
            break;
        for (int k = 0; k < n_label; k++)
            prior[k] += share ? log(mean[k] / share[k]) : log(mean[k]);
    }
    double total = kh_log_sum_exp(prior, n_label);
    for (int k = 0; k < n_label; k++)
        prior[k] -= total;
    kh_free(mean);
    return 0;
}

/* (T18): subtracts the prior and normalises again, in place. */
void kh_label_prior_correct(const double *prior, float *logprob, int n_row, int n_label) {
    for (int i = 0; i < n_row; i++, logprob += n_label) {
        double max = -INFINITY, sum = 0;
        for (int k = 0; k < n_label; k++)
            max = fmax(max, (double)logprob[k] - prior[k]);
        for (int k = 0; k < n_label; k++)
            sum += exp((double)logprob[k] - prior[k] - max);
        double total = max + log(sum);
        for (int k = 0; k < n_label; k++)
            logprob[k] = (float)((double)logprob[k] - prior[k] - total);
    }
}
