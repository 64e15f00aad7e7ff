/* class_prior.c - see class_prior.h.
 *
 * If texts of a class look the same whatever its share is, p(k | x) is proportional to p(x | k)
 * times the share of k, so that another share is a factor (Saerens et al. 2002). Few-shot rows are
 * as many of each class; the world is not. */
#include "judge/class_prior.h"

#include "base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Positive numbers, normalised here: "7,3" means 0.7 and 0.3. strspn refuses what strtod would take
 * and a person would not write: hexadecimal, inf, nan, blanks. */
int kh_class_prior_parse(double *prior, const char *text, int n, kh_err *err) {
    const char *at = text;
    double sum = 0;
    bool good = true;
    int k = 0;
    for (; good && k < n && *at; k++) {
        char *end;
        prior[k] = strtod(at, &end);
        good = end != at && isfinite(prior[k]) && prior[k] > 0 && prior[k] < 1e9 &&
            (*end == ',' || !*end) && strspn(at, "0123456789.eE+-") == (size_t)(end - at);
        sum += prior[k];
        at = *end ? end + 1 : end;
    }
    if (!good || k < n || *at)
        return kh_fail(err, KH_EARG,
            "a class prior is %d positive numbers, one for each label in their order, as in %s; "
            "got \"%s\"",
            n, n == 2 ? "0.7,0.3" : "0.5,0.3,0.2", text);
    for (k = 0; k < n; k++)
        prior[k] /= sum;
    return 0;
}

/* (T21). share NULL: classes were equally frequent among the rows of tuning. */
void kh_class_prior_apply(
    const double *prior, const double *share, double *p, int n_row, int n_label) {
    for (int i = 0; i < n_row; i++, p += n_label) {
        double sum = 0;
        for (int k = 0; k < n_label; k++)
            sum += p[k] *= prior[k] / (share ? share[k] : 1.0 / n_label);
        for (int k = 0; k < n_label && sum > 0; k++)
            p[k] /= sum;
    }
}
