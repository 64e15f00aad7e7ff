/* both.c - energy and distance as one score ([37] of doc/judging.md): a soft maximum of the two,
 * each from the middle of the classifier's own rows and in their spread, so that a text counts as
 * foreign by whichever of them says so.
 *
 * Middle and spread are the median and the median absolute deviation: a few odd rows among some
 * dozens move neither. */
#include "base/alloc.h"
#include "base/err.h"
#include "judge/metrics.h"

#include <math.h>
#include <string.h>

static const double NORMAL = 1.4826; /* times the deviation: the standard deviation of a normal */

enum { EVERY = -1 };

/* Of sorted [n] without the one at `out`, or of every one. */
static double median(const double *sorted, int n, int out) {
    bool without = out != EVERY;
    int m = n - without, high = m / 2, low = (m - 1) / 2;
    return (sorted[low + (without && low >= out)] + sorted[high + (without && high >= out)]) / 2;
}

/* How many of sorted [n] are below x: where x stands among them. */
static int rank_of(const double *sorted, int n, double x) {
    int low = 0;
    while (n > low) {
        int mid = low + (n - low) / 2;
        if (sorted[mid] < x)
            low = mid + 1;
        else
            n = mid;
    }
    return low;
}

static void sort_deviations(const double *x, int n, double middle, double *out) {
    for (int i = 0; i < n; i++)
        out[i] = fabs(x[i] - middle);
    kh_sort_doubles(out, n);
}

/* Whole numbers would divide by zero where most rows say the same, and one row's absence can make
 * that so: then it is measured like the others. */
static double standard(double x, double middle, double spread, double otherwise) {
    return (x - middle) / (spread > 0 ? spread : otherwise);
}

/* z [n]: each row from the middle of the others. Leaving one out of n moves the median to one of
 * three values at most, those without the first, the middle one and the last, so that n rows need
 * three sorts. sorted [n], deviation [n]. */
static void standard_without(
    const double *x, int n, double spread, const double *sorted, double *deviation, double *z) {
    const int one[] = { 0, n / 2, n - 1 };
    for (int k = 0; k < 3; k++) {
        double middle = median(sorted, n, one[k]);
        sort_deviations(x, n, middle, deviation);
        for (int i = 0; i < n; i++)
            if (median(sorted, n, rank_of(sorted, n, x[i])) == middle) {
                int own = rank_of(deviation, n, fabs(x[i] - middle));
                z[i] = standard(x[i], middle, NORMAL * median(deviation, n, own), spread);
            }
    }
}

/* log(exp(a) + exp(b)), without overflow. */
static double soft_maximum(double a, double b) {
    return fmax(a, b) + log1p(exp(fmin(a, b) - fmax(a, b)));
}

int kh_both_fit(kh_both *out, const double *energy, const double *distance, int n, double *left_out,
    kh_err *err) {
    const double *x[] = { energy, distance };
    *out = (kh_both){ 0 };
    int rc = kh_scores_check(energy, n, "energies", err);
    if (rc == 0)
        rc = kh_scores_check(distance, n, "distances", err);
    if (rc == 0 && n < 3)
        rc = kh_fail(err, KH_EARG, "%d rows have no middle and spread; 3 are needed", n);
    double *sorted = rc == 0 ? kh_malloc(4 * (size_t)n * sizeof *sorted) : NULL;
    if (rc == 0 && !sorted)
        rc = kh_fail_memory(err);
    if (rc != 0)
        return rc;
    double *deviation = sorted + n, *z[] = { sorted + 2 * (size_t)n, sorted + 3 * (size_t)n };
    for (int k = 0; k < 2; k++) {
        memcpy(sorted, x[k], (size_t)n * sizeof *sorted);
        kh_sort_doubles(sorted, n);
        out->middle[k] = median(sorted, n, EVERY);
        sort_deviations(x[k], n, out->middle[k], deviation);
        out->spread[k] = NORMAL * median(deviation, n, EVERY);
        if (out->spread[k] > 0)
            standard_without(x[k], n, out->spread[k], sorted, deviation, z[k]);
    }
    for (int i = 0; left_out && kh_both_known(out) && i < n; i++)
        left_out[i] = soft_maximum(z[0][i], z[1][i]);
    kh_free(sorted);
    return 0;
}

bool kh_both_known(const kh_both *b) { return b->spread[0] > 0 && b->spread[1] > 0; }

double kh_both_score(const kh_both *b, double energy, double distance) {
    if (isnan(energy) || isnan(distance))
        return NAN;
    return soft_maximum(
        (energy - b->middle[0]) / b->spread[0], (distance - b->middle[1]) / b->spread[1]);
}
