/* conformal.c - sets of classes that hold the true one as often as promised, whatever the
 * classifier (split conformal, LAC).
 *
 * The score of a row is 1 - p(true class) (Sadinle, Lei, Wasserman 2019). A class is kept unless
 * its own score 1 - p(class) would be among the alpha largest of the n calibration scores and
 * itself: equations [22] to [24] of doc/judging.md. Votes tie all the time, and keeping everything
 * that ties covers more than was asked for; a uniform number a row splits ties at random, and then
 * the coverage is exact. */
#include "judge/jackknife.h"
#include "judge/metrics.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/rng.h"

/* Counting sort by class; without classes every row counts as of class 0. */
static void gather(kh_conformal *c, const kh_answers *a) {
    for (int i = 0; i < a->n; i++)
        c->start[(c->per_class ? a->label[i] : 0) + 1]++;
    for (int k = 0; k < a->n_label; k++)
        c->start[k + 1] += c->start[k];
    for (int i = 0; i < a->n; i++) /* moves each start to where the next class starts */
        c->score[c->start[c->per_class ? a->label[i] : 0]++] =
            1 - a->p[(size_t)i * (size_t)a->n_label + (size_t)a->label[i]];
    for (int k = a->n_label; k > 0; k--)
        c->start[k] = c->start[k - 1];
    c->start[0] = 0;
}

/* min_alpha is the least share of misses that n rows can promise, 1 / (n + 1): below it the set is
 * always everything, which callers tell. */
int kh_conformal_fit(
    kh_conformal *out, const kh_answers *a, double alpha, bool per_class, kh_err *err) {
    *out = (kh_conformal){
        .alpha = alpha, .per_class = per_class, .n_label = a->n_label, .min_alpha = 0
    };
    if (!(alpha > 0 && alpha < 1))
        return kh_fail(err, KH_EARG,
            "the share of sets that may miss the true class is %g, expected between 0 and 1",
            alpha);
    int rc = kh_answers_check(a, err);
    if (rc != 0)
        return rc;
    out->score = kh_malloc((size_t)a->n * sizeof *out->score);
    out->start = kh_calloc((size_t)a->n_label + 1, sizeof *out->start);
    if (!out->score || !out->start) {
        kh_conformal_free(out);
        return kh_fail_memory(err);
    }
    gather(out, a);
    for (int k = 0; k < (per_class ? a->n_label : 1); k++) {
        int n = out->start[k + 1] - out->start[k];
        kh_sort_doubles(out->score + out->start[k], n);
        if (1.0 / (n + 1) > out->min_alpha)
            out->min_alpha = 1.0 / (n + 1);
    }
    return 0;
}

void kh_conformal_free(kh_conformal *c) {
    kh_free(c->score);
    kh_free(c->start);
    kh_free(c->map);
    kh_free(c->slope);
    kh_free(c->shift);
    c->score = c->slope = c->shift = NULL;
    c->start = c->map = NULL;
    c->n_map = 0;
}

/* How many of x [n], ascending, are below v, or with `equal` at most v. */
static int count_below(const double *x, int n, double v, bool equal) {
    int low = 0, high = n;
    while (low < high) {
        int mid = low + (high - low) / 2;
        if (x[mid] < v || (equal && x[mid] == v))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* [23], [24]: the class's score is counted among the calibration scores, itself included. u is the
 * row's uniform number; u = 1 keeps all ties, which is conservative. */
int kh_conformal_set(const kh_conformal *c, const double *p, double u, bool *in) {
    int size = 0;
    if (c->n_map > 0)
        return kh_conformal_plus_set(c, p, in);
    for (int k = 0; k < c->n_label; k++) {
        int class = c->per_class ? k : 0, n = c->start[class + 1] - c->start[class];
        const double *score = c->score + c->start[class];
        double s = 1 - p[k];
        int above = n - count_below(score, n, s, true),
            equal = n - above - count_below(score, n, s, false);
        /* The slack keeps (n + 1) alpha a whole number where it is one on paper. */
        in[k] = above + u * (equal + 1) > c->alpha * (n + 1.0) + 1e-9;
        size += in[k];
    }
    return size;
}

/* By the number of the row, so that a set does not depend on which rows were asked before it. */
double kh_conformal_tie(uint64_t seed, int row) {
    kh_rng r = kh_rng_stream(seed, KH_RNG_CONFORMAL, (uint32_t)row, 0);
    return kh_rng_uniform(&r);
}
