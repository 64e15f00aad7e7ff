/* bootstrap.c - intervals for every metric: rows drawn with replacement, all metrics computed
 * again, percentiles.
 *
 * Resample i draws from the stream (seed, KH_RNG_BOOTSTRAP, i, which sample), so it is the same on
 * any number of threads. All metrics of one resample are one row of a table; an interval is a pair
 * of quantiles of a column (linear between ranks, as numpy's default). Resamples in which a metric
 * is not defined are left out of its column. */
#include "judge/metrics.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

/* A thousand resamples put a 95 % limit at the 25th of them on either side, which moves the
 * interval by little between seeds. */
kh_bootstrap_opts kh_bootstrap_defaults(void) {
    return (kh_bootstrap_opts){ .n_resample = 1000, .level = 0.95, .seed = 0 };
}

static int check_opts(const kh_bootstrap_opts *o, kh_err *err) {
    if (o->n_resample < 1 || o->n_resample > 1000000)
        return kh_fail(
            err, KH_EARG, "%d bootstrap resamples, expected 1 to 1000000", o->n_resample);
    if (!(o->level > 0 && o->level < 1))
        return kh_fail(err, KH_EARG,
            "the level of a bootstrap interval is %g, expected between 0 and 1", o->level);
    return 0;
}

/* ----------------------------------------------------------------------------------- resamples */

/* One resample: fills stat [n_stat]. May run on any thread. */
typedef int (*resample_fn)(const void *data, uint64_t seed, uint32_t i, double *stat, kh_err *err);

/* table [n_resample, n_stat] The first failure is kept; what runs already is left to end. */
static int resample(resample_fn one, const void *data, const kh_bootstrap_opts *o, double *table,
    int n_stat, kh_err *err) {
    int failed = 0;
#pragma omp parallel for schedule(dynamic) num_threads(kh_threads())
    for (int i = 0; i < o->n_resample; i++) {
        int before;
#pragma omp atomic read
        before = failed;
        if (before != 0)
            continue;
        kh_err why = { 0 };
        int rc = one(data, o->seed, (uint32_t)i, table + (size_t)i * (size_t)n_stat, &why);
        if (rc != 0) {
#pragma omp critical(kh_bootstrap)
            {
                failed = rc;
                if (err)
                    *err = why;
            }
        }
    }
    return failed;
}

/* x sorted, n > 0 Linear interpolation between order statistics, numpy's default (type 7 of Hyndman
 * and Fan 1996). */
static double quantile(const double *x, int n, double q) {
    double at = q * (n - 1);
    int i = (int)at;
    return i + 1 < n ? x[i] + (at - i) * (x[i + 1] - x[i]) : x[n - 1];
}

/* Column j of the table without NaN, sorted, into column [n_resample]; returns how many. */
static int sort_column(const double *table, int n_resample, int n_stat, int j, double *column) {
    int n = 0;
    for (int i = 0; i < n_resample; i++) {
        double x = table[(size_t)i * (size_t)n_stat + (size_t)j];
        if (!isnan(x))
            column[n++] = x;
    }
    kh_sort_doubles(column, n);
    return n;
}

/* Two-sided: twice the smaller of the shares of differences on either side of 0, the observed one
 * counted among them. */
static double p_value(const double *column, int n) {
    int below = 0, above = 0;
    for (int i = 0; i < n; i++) {
        below += column[i] <= 0;
        above += column[i] >= 0;
    }
    double p = 2.0 * ((below < above ? below : above) + 1) / (n + 1.0);
    return p < 1 ? p : 1;
}

/* low, high, p [n_stat]; p may be NULL. */
static int intervals(resample_fn one, const void *data, const kh_bootstrap_opts *o, int n_stat,
    double *low, double *high, double *p, kh_err *err) {
    double *table = kh_calloc((size_t)o->n_resample, (size_t)n_stat * sizeof *table);
    double *column = kh_calloc((size_t)o->n_resample, sizeof *column);
    int rc = table && column ? resample(one, data, o, table, n_stat, err) : kh_fail_memory(err);
    for (int j = 0; j < n_stat && rc == 0; j++) {
        int n = sort_column(table, o->n_resample, n_stat, j, column);
        low[j] = n ? quantile(column, n, (1 - o->level) / 2) : NAN;
        high[j] = n ? quantile(column, n, (1 + o->level) / 2) : NAN;
        if (p)
            p[j] = n ? p_value(column, n) : NAN;
    }
    kh_free(table);
    kh_free(column);
    return rc;
}

/* ------------------------------------------------------------------- the metrics of one or two */

typedef struct pair {
    const kh_answers *a, *b; /* b NULL: one classifier */
    int n_bin;
} pair;

/* The rows index[] of a, in p and label. */
static int metrics_of_rows(double *stat, const kh_answers *a, const int *index, double *p,
    int *label, int n_bin, kh_err *err) {
    size_t k = (size_t)a->n_label;
    for (int i = 0; i < a->n; i++) {
        memcpy(p + (size_t)i * k, a->p + (size_t)index[i] * k, k * sizeof *p);
        label[i] = a->label[index[i]];
    }
    kh_metrics m;
    int rc = kh_metrics_of(&m, &(kh_answers){ p, label, a->n, a->n_label }, n_bin, err);
    if (rc == 0)
        memcpy(stat, &m, sizeof m);
    return rc;
}

/* Two classifiers are compared on the same resampled rows: what is hard for one is hard for the
 * other, and the difference varies far less than either. */
static int resample_metrics(
    const void *data, uint64_t seed, uint32_t number, double *stat, kh_err *err) {
    const pair *d = data;
    int n = d->a->n, k = d->a->n_label, rc = 0;
    double *p = kh_malloc((size_t)n * (size_t)k * sizeof *p); /* a->p exists, so the product fits */
    int *index = kh_malloc((size_t)n * sizeof *index),
        *label = kh_malloc((size_t)n * sizeof *label);
    if (!p || !index || !label) {
        rc = kh_fail_memory(err);
        goto done;
    }
    kh_rng r = kh_rng_stream(seed, KH_RNG_BOOTSTRAP, number, 0);
    for (int i = 0; i < n; i++)
        index[i] = (int)kh_rng_below(&r, (uint32_t)n);
    rc = metrics_of_rows(stat, d->a, index, p, label, d->n_bin, err);
    if (rc == 0 && d->b) {
        double other[KH_N_METRIC];
        rc = metrics_of_rows(other, d->b, index, p, label, d->n_bin, err);
        for (int j = 0; j < KH_N_METRIC && rc == 0; j++)
            stat[j] -= other[j];
    }
done:
    kh_free(p);
    kh_free(index);
    kh_free(label);
    return rc;
}

int kh_metrics_bootstrap(kh_metrics *low, kh_metrics *high, const kh_answers *a, int n_bin,
    const kh_bootstrap_opts *o, kh_err *err) {
    double lo[KH_N_METRIC], hi[KH_N_METRIC];
    pair d = { .a = a, .n_bin = n_bin };
    int rc = check_opts(o, err);
    if (rc == 0)
        rc = kh_bins_check(&d.n_bin, err);
    if (rc == 0)
        rc = kh_answers_check(a, err);
    if (rc == 0)
        rc = intervals(resample_metrics, &d, o, KH_N_METRIC, lo, hi, NULL, err);
    if (rc == 0) {
        memcpy(low, lo, sizeof lo);
        memcpy(high, hi, sizeof hi);
    }
    return rc;
}

/* Paired comparison only makes sense on the same rows; true labels are all that can be compared
 * here. */
static int check_pair(const kh_answers *a, const kh_answers *b, kh_err *err) {
    int rc = kh_answers_check(a, err);
    if (rc == 0)
        rc = kh_answers_check(b, err);
    if (rc != 0)
        return rc;
    if (a->n != b->n || a->n_label != b->n_label)
        return kh_fail(err, KH_EMISMATCH,
            "%d rows of %d classes and %d rows of %d classes cannot be compared row by row", a->n,
            a->n_label, b->n, b->n_label);
    for (int i = 0; i < a->n; i++)
        if (a->label[i] != b->label[i])
            return kh_fail(err, KH_EMISMATCH,
                "row %d is of class %d in the one and of class %d in the other: not the same rows",
                i, a->label[i], b->label[i]);
    return 0;
}

int kh_metrics_compare(kh_compared *out, const kh_answers *a, const kh_answers *b, int n_bin,
    const kh_bootstrap_opts *o, kh_err *err) {
    double stat[4][KH_N_METRIC]; /* difference, low, high, p */
    kh_metrics m[2];
    pair d = { .a = a, .b = b, .n_bin = n_bin };
    int rc = check_opts(o, err);
    if (rc == 0)
        rc = kh_bins_check(&d.n_bin, err);
    if (rc == 0)
        rc = check_pair(a, b, err);
    if (rc == 0)
        rc = kh_metrics_of(&m[0], a, d.n_bin, err);
    if (rc == 0)
        rc = kh_metrics_of(&m[1], b, d.n_bin, err);
    if (rc == 0)
        rc = intervals(resample_metrics, &d, o, KH_N_METRIC, stat[1], stat[2], stat[3], err);
    if (rc != 0)
        return rc;
    for (int j = 0; j < KH_N_METRIC; j++)
        stat[0][j] = kh_metrics_value(&m[0], j) - kh_metrics_value(&m[1], j);
    _Static_assert(sizeof stat == sizeof *out, "four structs of doubles");
    memcpy(out, stat, sizeof stat);
    return 0;
}

/* ----------------------------------------------------------------------------------------- OOD */

typedef struct two_samples {
    const double *in, *out;
    int n_in, n_out;
} two_samples;

/* Rows of the distribution and others are drawn apart: how many there are of each is a choice, not
 * chance. */
static int resample_ood(
    const void *data, uint64_t seed, uint32_t number, double *stat, kh_err *err) {
    const two_samples *d = data;
    double *u = kh_malloc(((size_t)d->n_in + (size_t)d->n_out) * sizeof *u);
    if (!u)
        return kh_fail_memory(err);
    kh_rng r = kh_rng_stream(seed, KH_RNG_BOOTSTRAP, number, 1),
           s = kh_rng_stream(seed, KH_RNG_BOOTSTRAP, number, 2);
    for (int i = 0; i < d->n_in; i++)
        u[i] = d->in[kh_rng_below(&r, (uint32_t)d->n_in)];
    for (int i = 0; i < d->n_out; i++)
        u[d->n_in + i] = d->out[kh_rng_below(&s, (uint32_t)d->n_out)];
    kh_ood o;
    int rc = kh_ood_compute(&o, u, d->n_in, u + d->n_in, d->n_out, err);
    if (rc == 0)
        memcpy(stat, &o, sizeof o);
    kh_free(u);
    return rc;
}

int kh_ood_bootstrap(kh_ood *low, kh_ood *high, const double *u_in, int n_in, const double *u_out,
    int n_out, const kh_bootstrap_opts *o, kh_err *err) {
    double lo[KH_N_OOD], hi[KH_N_OOD];
    kh_ood all;
    two_samples d = { u_in, u_out, n_in, n_out };
    int rc = check_opts(o, err);
    if (rc == 0)
        rc = kh_ood_compute(&all, u_in, n_in, u_out, n_out, err); /* for its checks */
    if (rc == 0)
        rc = intervals(resample_ood, &d, o, KH_N_OOD, lo, hi, NULL, err);
    if (rc == 0) {
        memcpy(low, lo, sizeof lo);
        memcpy(high, hi, sizeof hi);
    }
    return rc;
}
