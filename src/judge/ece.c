/* ece.c - calibration errors and the reliability table: does "90 % sure" mean right nine times in
 * ten?
 *
 * Equations [5] and [6] of doc/judging.md. Bins of equal width hold low <= c < high; the edges are
 * low + b * width as numpy's linspace computes them, so that confidences on an edge fall where
 * UQ360 puts them. Bins of equal mass are cut by rank, and equal confidences share the bin of the
 * first of them: the order of the rows must not matter, and votes tie all the time. */
#include "judge/metrics.h"

#include "base/alloc.h"
#include "base/clamp.h"
#include "base/err.h"

#include <math.h>
#include <stdlib.h>

int kh_bins_check(int *n_bin, kh_err *err) {
    if (*n_bin == 0)
        *n_bin = KH_BINS;
    if (*n_bin < 1 || *n_bin > 10000)
        return kh_fail(err, KH_EARG, "%d bins, expected 1 to 10000", *n_bin);
    return 0;
}

typedef struct rated {
    double c;
    bool good;
} rated;

/* What a row contributes: how sure its answer is, and whether it is right. */
static rated rate(const kh_answers *a, int i) {
    const double *p = a->p + (size_t)i * (size_t)a->n_label;
    int k = kh_predicted(p, a->n_label);
    return (rated){ p[k], k == a->label[i] };
}

/* -------------------------------------------------------------------------------- equal widths */

static void make_bins(kh_bin *bin, int n_bin, double low, double high) {
    double width = (high - low) / n_bin;
    for (int b = 0; b < n_bin; b++)
        bin[b] = (kh_bin){ .low = low + b * width, .high = low + (b + 1) * width };
    bin[n_bin - 1].high = high;
}

/* The last bin that starts at or below c; what is below the first bin goes there too. */
static kh_bin *find_bin(kh_bin *bin, int n_bin, double c) {
    int guess = (int)((c - bin[0].low) / (bin[n_bin - 1].high - bin[0].low) * n_bin);
    int b = kh_clamp_int(guess, 0, n_bin - 1);
    while (b > 0 && c < bin[b].low)
        b--;
    while (b + 1 < n_bin && c >= bin[b + 1].low)
        b++;
    return &bin[b];
}

static void add_to(kh_bin *bin, double c, bool good) {
    bin->n++;
    bin->confidence += c;
    bin->accuracy += good;
}

/* Sums become means; returns sum over bins of n_b/n |accuracy - confidence|. */
static double finish(kh_bin *bin, int n_bin, int n) {
    double ece = 0;
    for (int b = 0; b < n_bin; b++) {
        if (bin[b].n == 0)
            continue;
        bin[b].confidence /= bin[b].n;
        bin[b].accuracy /= bin[b].n;
        ece += (double)bin[b].n / n * fabs(bin[b].accuracy - bin[b].confidence);
    }
    return ece;
}

/* [6]: every class's own probability is binned, not only the largest, so that a classifier that is
 * calibrated only in what it says first does not look calibrated. */
double kh_ece_classwise(const kh_answers *a, int n_bin, kh_bin *bin) {
    double sum = 0;
    for (int k = 0; k < a->n_label; k++) {
        make_bins(bin, n_bin, 0, 1);
        for (int i = 0; i < a->n; i++) {
            double c = a->p[(size_t)i * (size_t)a->n_label + (size_t)k];
            add_to(find_bin(bin, n_bin, c), c, a->label[i] == k);
        }
        sum += finish(bin, n_bin, a->n);
    }
    return sum / a->n_label;
}

/* ---------------------------------------------------------------------------------- equal mass */

static int by_confidence(const void *a, const void *b) {
    double x = ((const rated *)a)->c, y = ((const rated *)b)->c;
    return (x > y) - (x < y);
}

/* Item of rank r goes to bin floor(r * B / n). */
static int adaptive(const kh_answers *a, int n_bin, kh_bin *bin, kh_err *err) {
    rated *item = kh_malloc((size_t)a->n * sizeof *item);
    if (!item)
        return kh_fail_memory(err);
    for (int i = 0; i < a->n; i++)
        item[i] = rate(a, i);
    qsort(item, (size_t)a->n, sizeof *item, by_confidence);
    int b = 0, last = -1;
    for (int i = 0; i < a->n; i++) {
        if (i == 0 || item[i].c != item[i - 1].c)
            b = (int)((long long)i * n_bin / a->n);
        if (b != last)
            bin[b].low = item[i].c;
        bin[b].high = item[i].c;
        add_to(&bin[b], item[i].c, item[i].good);
        last = b;
    }
    kh_free(item);
    return 0;
}

/* UQ360 begins its bins at 0.5 for two classes, where the largest probability cannot be lower; the
 * paper's numbers are made that way. */
int kh_ece(
    const kh_answers *a, kh_binning binning, int n_bin, kh_bin *bin, double *ece, kh_err *err) {
    make_bins(bin, n_bin, binning == KH_BINS_UQ360 && a->n_label == 2 ? 0.5 : 0, 1);
    if (binning == KH_BINS_ADAPTIVE) {
        for (int b = 0; b < n_bin; b++)
            bin[b] = (kh_bin){ 0 };
        int rc = adaptive(a, n_bin, bin, err);
        if (rc != 0)
            return rc;
    } else
        for (int i = 0; i < a->n; i++) {
            rated r = rate(a, i);
            add_to(find_bin(bin, n_bin, r.c), r.c, r.good);
        }
    double error = finish(bin, n_bin, a->n);
    if (ece)
        *ece = error;
    return 0;
}

int kh_reliability(
    const kh_answers *a, kh_binning binning, int n_bin, kh_bin *bin, double *ece, kh_err *err) {
    int rc = kh_bins_check(&n_bin, err);
    if (rc == 0)
        rc = kh_answers_check(a, err);
    return rc == 0 ? kh_ece(a, binning, n_bin, bin, ece, err) : rc;
}
