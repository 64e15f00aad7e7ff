/* leave_one_out.c - see leave_one_out.h.
 *
 * Split conformal prediction spends half of the rows on the map and half on the threshold; of 32
 * rows neither half is worth much. The jackknife+ (Barber, Candes, Ramdas, Tibshirani 2021; for
 * classes Romano, Sesia, Candes 2020) fits the map n times, each time without one row, scores that
 * row by it, and asks of a new row how often, over the n maps, a class would have a larger score
 * than the row that was left out. A map of a few rows takes microseconds to fit, so n of them cost
 * nothing beside one question to a model. The promise is 1 - 2 alpha for every n and every
 * distribution; what is observed is 1 - alpha (doc/judging.md). */
#include "judge/leave_one_out.h"

#include "base/alloc.h"
#include "base/err.h"

#include <math.h>
#include <string.h>

enum { N_FOLD = 5 };

static double mean_nll(const double *p, const int *label, int n, int n_label) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum -= log(fmax(p[(size_t)i * (size_t)n_label + (size_t)label[i]], 1e-15));
    return sum / n;
}

/* p [n, n_label] of the scores as they are. */
static void no_change(const double *x, int n, int n_label, double *p) {
    kh_calibrator same = {
        .method = KH_CALIBRATE_TEMPERATURE, .n_label = n_label, .temperature = 1
    };
    kh_calibrator_apply(&same, x, n, p);
}

int kh_calibration_choose(kh_calibration *out, bool *none, const double *x, const int *label, int n,
    int n_label, kh_err *err) {
    /* Of equals the first: fewer parameters. */
    static const kh_calibration MAPS[] = { KH_CALIBRATE_TEMPERATURE, KH_CALIBRATE_AFFINE,
        KH_CALIBRATE_VECTOR };
    int n_fold = n < N_FOLD ? n : N_FOLD, rc = 0;
    *out = KH_CALIBRATE_AFFINE;
    *none = false;
    if (n_fold < 2)
        return 0;
    double *p = kh_malloc((size_t)n * (size_t)n_label * sizeof *p);
    if (!p)
        return kh_fail_memory(err);
    no_change(x, n, n_label, p);
    double least = mean_nll(p, label, n, n_label);
    *none = true;
    for (size_t i = 0; i < sizeof MAPS / sizeof MAPS[0] && rc == 0; i++) {
        rc = kh_calibrator_crossfit(MAPS[i], x, label, n, n_label, n_fold, p, err);
        double nll = rc == 0 ? mean_nll(p, label, n, n_label) : INFINITY;
        if (nll < least) {
            least = nll;
            *out = MAPS[i];
            *none = false;
        }
    }
    kh_free(p);
    return rc;
}

/* The map of all rows but `left`, and that row's score by it. */
static int fit_without(kh_loo *l, kh_calibration method, const double *x, const int *label,
    int left, double *some, int *some_label, kh_err *err) {
    size_t k = (size_t)l->n_label, at = (size_t)left * k;
    int rest = l->n - left - 1;
    memcpy(some, x, at * sizeof *some);
    memcpy(some + at, x + at + k, (size_t)rest * k * sizeof *some);
    memcpy(some_label, label, (size_t)left * sizeof *label);
    memcpy(some_label + left, label + left + 1, (size_t)rest * sizeof *label);
    int rc =
        kh_calibrator_fit(&l->without[left], method, some, some_label, l->n - 1, l->n_label, err);
    if (rc == 0) {
        kh_calibrator_apply(&l->without[left], x + at, 1, l->p);
        l->score[left] = 1 - l->p[label[left]];
    }
    return rc;
}

int kh_loo_fit(kh_loo *out, kh_calibration method, const double *x, const int *label, int n,
    int n_label, double alpha, kh_err *err) {
    *out = (kh_loo){ .alpha = alpha, .n = n, .n_label = n_label };
    if (!(alpha > 0 && alpha < 1))
        return kh_fail(err, KH_EARG,
            "the share of sets that may miss the true class is %g, expected between 0 and 1",
            alpha);
    if (n < 2)
        return kh_fail(err, KH_EARG, "leaving one of %d rows out leaves none to fit on", n);
    if (n_label < 2 || n_label > 65536)
        return kh_fail(err, KH_EARG, "%d classes, expected 2 to 65536", n_label);
    size_t k = (size_t)n_label;
    double *some = kh_malloc((size_t)n * k * sizeof *some);
    int *some_label = kh_malloc((size_t)n * sizeof *some_label);
    out->without = kh_calloc((size_t)n, sizeof *out->without);
    out->score = kh_malloc((size_t)n * sizeof *out->score);
    out->p = kh_malloc(k * sizeof *out->p);
    int rc = some && some_label && out->without && out->score && out->p ? 0 : kh_fail_memory(err);
    for (int i = 0; i < n && rc == 0; i++)
        rc = fit_without(out, method, x, label, i, some, some_label, err);
    kh_free(some);
    kh_free(some_label);
    return rc;
}

void kh_loo_free(kh_loo *l) {
    for (int i = 0; l->without && i < l->n; i++)
        kh_calibrator_free(&l->without[i]);
    kh_free(l->without);
    kh_free(l->score);
    kh_free(l->p);
    *l = (kh_loo){ 0 };
}

int kh_loo_set(const kh_loo *l, const double *x, bool *in) {
    /* A class goes if it is stranger than (1 - alpha)(n + 1) of the rows left out; the slack keeps
     * that a whole number where it is one on paper. */
    double most = (1 - l->alpha) * (l->n + 1.0) - 1e-9;
    int size = 0;
    int *stranger = kh_calloc((size_t)l->n_label, sizeof *stranger);
    for (int i = 0; i < l->n && stranger; i++) {
        kh_calibrator_apply(&l->without[i], x, 1, l->p);
        for (int k = 0; k < l->n_label; k++)
            stranger[k] += l->score[i] < 1 - l->p[k];
    }
    for (int k = 0; k < l->n_label; k++) { /* out of memory: all classes keep every promise */
        in[k] = !stranger || stranger[k] < most;
        size += in[k];
    }
    kh_free(stranger);
    return size;
}
