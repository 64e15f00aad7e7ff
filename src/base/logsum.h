/* logsum.h - log(e^x_1 + ... + e^x_n), from the largest term down: what turns scores into
 * log-probabilities wherever that is needed. No e^x overflows, and the sum runs in double in the
 * order of the terms, so that equal scores give equal bits. If no term is finite, the largest. */
#ifndef KH_BASE_LOGSUM_H
#define KH_BASE_LOGSUM_H

#include <math.h>

static inline double kh_log_sum_exp(const double *x, int n) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int i = 0; i < n && isfinite(top); i++)
        sum += exp(x[i] - top);
    return isfinite(top) ? top + log(sum) : top;
}

static inline double kh_log_sum_exp_floats(const float *x, int n) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        top = (double)x[i] > top ? (double)x[i] : top;
    for (int i = 0; i < n && isfinite(top); i++)
        sum += exp((double)x[i] - top);
    return isfinite(top) ? top + log(sum) : top;
}

#endif
