/* metrics.c - accuracy, F1, NLL, Brier, uncertainty scores, and the struct that gathers every
 * metric.
 *
 * Numbers in brackets are equations of doc/judging.md. Sums run in the order of the rows, so the
 * same rows give the same bits. Each metric is one small function of checked answers; kh_metrics_of
 * calls them all. */
#include "judge/metrics.h"

#include "base/alloc.h"
#include "base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double P_FLOOR =
    1e-15; /* of NLL: scikit-learn's, and log of it is still a number people can read */

static const double *row_of(const kh_answers *a, int i) {
    return a->p + (size_t)i * (size_t)a->n_label;
}

/* -------------------------------------------------------------------------------------- checks */

/* A distribution may miss 1 by what single precision loses, and no more (KH_SUM_TOLERANCE): metrics
 * of numbers that are no probabilities would look like metrics. */
static int check_row(const kh_answers *a, int i, kh_err *err) {
    const double *p = row_of(a, i);
    double sum = 0;
    for (int k = 0; k < a->n_label; k++) {
        if (isnan(p[k]))
            return kh_fail(
                err, KH_EARG, "row %d: the probability of class %d is not a number", i, k);
        if (p[k] < 0 || p[k] > 1 + KH_SUM_TOLERANCE)
            return kh_fail(err, KH_EARG,
                "row %d: the probability of class %d is %g, expected 0 to 1", i, k, p[k]);
        sum += p[k];
    }
    if (fabs(sum - 1) > KH_SUM_TOLERANCE * (1 + 1e-9))
        return kh_fail(err, KH_EARG, "row %d: the probabilities add up to %g, expected 1", i, sum);
    if (a->label[i] < 0 || a->label[i] >= a->n_label)
        return kh_fail(
            err, KH_EARG, "row %d: label %d, expected 0 to %d", i, a->label[i], a->n_label - 1);
    return 0;
}

int kh_answers_check(const kh_answers *a, kh_err *err) {
    if (a->n <= 0)
        return kh_fail(err, KH_EARG, "there are no rows to judge");
    if (a->n_label < 2)
        return kh_fail(err, KH_EARG, "%d class%s, but a classifier needs at least two", a->n_label,
            a->n_label == 1 ? "" : "es");
    for (int i = 0; i < a->n; i++) {
        int rc = check_row(a, i, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int kh_scores_check(const double *u, int n, const char *what, kh_err *err) {
    if (n <= 0)
        return kh_fail(err, KH_EARG, "there are no %s to judge", what);
    for (int i = 0; i < n; i++)
        if (isnan(u[i]))
            return kh_fail(
                err, KH_EARG, "among the %s, the score of row %d is not a number", what, i);
    return 0;
}

/* ------------------------------------------------------------------------------------- one row */

/* The first of equals, as numpy's argmax: every metric, decision and vote goes by this one
 * function. */
int kh_predicted(const double *p, int n_label) {
    int best = 0;
    for (int k = 1; k < n_label; k++)
        if (p[k] > p[best])
            best = k;
    return best;
}

/* In nats; 0 log 0 is 0. Rounding can leave it just below 0. */
static double entropy(const double *p, int n_label) {
    double h = 0;
    for (int k = 0; k < n_label; k++)
        if (p[k] > 0)
            h -= p[k] * log(p[k]);
    return h > 0 ? h : 0;
}

/* [8], [9]. Entropies are rounded to multiples of 2^-40: rows with the same probabilities in
 * another order of classes are equally certain, and the last bits of a sum must not say otherwise,
 * because ties count. */
double kh_uncertainty(kh_score score, const double *p, int n_label) {
    if (score > KH_SCORE_ENTROPY)
        return NAN;
    if (score == KH_SCORE_MAXP)
        return 1 - p[kh_predicted(p, n_label)];
    return nearbyint(entropy(p, n_label) * 0x1p40) * 0x1p-40;
}

/* [10] */
kh_decomposition kh_uncertainty_parts(
    const double *p, const double *weight, int n_sample, int n_label) {
    kh_decomposition parts = { 0 };
    double sum = 0;
    for (int s = 0; s < n_sample; s++)
        sum += weight ? weight[s] : 1;
    for (int k = 0; k < n_label; k++) {
        double mean = 0;
        for (int s = 0; s < n_sample; s++)
            mean += (weight ? weight[s] : 1) / sum * p[(size_t)s * (size_t)n_label + (size_t)k];
        if (mean > 0)
            parts.total -= mean * log(mean);
    }
    for (int s = 0; s < n_sample; s++)
        parts.ambiguity +=
            (weight ? weight[s] : 1) / sum * entropy(p + (size_t)s * (size_t)n_label, n_label);
    parts.total = parts.total > 0 ? parts.total : 0;
    parts.disagreement = parts.total - parts.ambiguity;
    if (parts.disagreement < 0) { /* by rounding alone: entropy is concave */
        parts.disagreement = 0;
        parts.ambiguity = parts.total;
    }
    return parts;
}

/* ------------------------------------------------------------------------------ single metrics */

/* [1]; good [n] becomes whether each row is answered right. The rows' own right and wrong is what
 * curves are made of, and is kept on the way. */
static double accuracy(const kh_answers *a, bool *good) {
    int right = 0;
    for (int i = 0; i < a->n; i++) {
        good[i] = kh_predicted(row_of(a, i), a->n_label) == a->label[i];
        right += good[i];
    }
    return (double)right / a->n;
}

/* [2]; class 1 is only one of many where there are more than two. A class that is neither said nor
 * true has no F1 and is left out of the mean. */
static int f1(kh_metrics *m, const kh_answers *a, kh_err *err) {
    int *hits = kh_calloc(2 * (size_t)a->n_label, sizeof *hits);
    if (!hits)
        return kh_fail_memory(err);
    int *both = hits + a->n_label; /* [n_label]: how often it is said, and how often it is true */
    for (int i = 0; i < a->n; i++) {
        int said = kh_predicted(row_of(a, i), a->n_label), is = a->label[i];
        hits[is] += said == is;
        both[said]++, both[is]++;
    }
    double sum = 0;
    int classes = 0;
    for (int k = 0; k < a->n_label; k++)
        if (both[k] > 0) {
            sum += 2.0 * hits[k] / both[k];
            classes++;
        }
    m->macro_f1 = sum / classes;
    m->f1 = NAN;
    if (a->n_label == 2)
        m->f1 = both[1] > 0 ? 2.0 * hits[1] / both[1] : 0;
    kh_free(hits);
    return 0;
}

/* [3]; *zeros: the share of rows at the floor */
static double nll(const kh_answers *a, double *zeros) {
    double sum = 0;
    int n_zero = 0;
    for (int i = 0; i < a->n; i++) {
        double p = row_of(a, i)[a->label[i]];
        n_zero += p < P_FLOOR;
        sum -= log(p < P_FLOOR ? P_FLOOR : p);
    }
    *zeros = (double)n_zero / a->n;
    return sum / a->n;
}

/* [4] */
static double brier(const kh_answers *a) {
    double sum = 0;
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < a->n_label; k++) {
            double d = row_of(a, i)[k] - (k == a->label[i]);
            sum += d * d;
        }
    return sum / a->n;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void kh_sort_doubles(double *x, int n) { qsort(x, (size_t)n, sizeof *x, by_value); }

static double mean_of(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum / n;
}

/* --------------------------------------------------------------------------------- all of them */

/* Each ranking of the rows gives its own curves: by the largest probability, and by entropy. */
static int curves_of(kh_metrics *m, const kh_answers *a, double *u, const bool *good, kh_err *err) {
    kh_curve c;
    for (int i = 0; i < a->n; i++)
        u[i] = kh_uncertainty(KH_SCORE_MAXP, row_of(a, i), a->n_label);
    int rc = kh_curve_compute(&c, u, good, a->n, err);
    if (rc != 0)
        return rc;
    m->confidence = 1 - mean_of(u, a->n);
    m->aurrrc = c.aurrrc, m->aurrrc_oracle = c.aurrrc_oracle, m->aurrrc_min = c.aurrrc_min;
    m->aurc = c.aurc, m->aurc_min = c.aurc_min, m->auroc_error = c.auroc;
    for (int i = 0; i < a->n; i++)
        u[i] = kh_uncertainty(KH_SCORE_ENTROPY, row_of(a, i), a->n_label);
    rc = kh_curve_compute(&c, u, good, a->n, err);
    m->entropy = mean_of(u, a->n);
    m->aurrrc_entropy = c.aurrrc, m->aurc_entropy = c.aurc, m->auroc_error_entropy = c.auroc;
    return rc;
}

/* Answers are checked by the caller, once, and not again for each of a thousand bootstrap
 * resamples. */
int kh_metrics_of(kh_metrics *out, const kh_answers *a, int n_bin, kh_err *err) {
    kh_metrics m = { 0 };
    double *u = kh_malloc((size_t)a->n * sizeof *u);
    bool *good = kh_malloc((size_t)a->n * sizeof *good);
    kh_bin *bin = kh_malloc((size_t)n_bin * sizeof *bin);
    int rc = u && good && bin ? 0 : kh_fail_memory(err);
    if (rc != 0)
        goto done;
    m.accuracy = accuracy(a, good);
    m.nll = nll(a, &m.zeros);
    m.brier = brier(a);
    m.ece_classwise = kh_ece_classwise(a, n_bin, bin);
    if ((rc = f1(&m, a, err)) != 0 ||
        (rc = kh_ece(a, KH_BINS_UQ360, n_bin, bin, &m.ece, err)) != 0 ||
        (rc = kh_ece(a, KH_BINS_PLAIN, n_bin, bin, &m.ece_plain, err)) != 0 ||
        (rc = kh_ece(a, KH_BINS_ADAPTIVE, n_bin, bin, &m.ece_adaptive, err)) != 0)
        goto done;
    rc = curves_of(&m, a, u, good, err);
done:
    kh_free(u);
    kh_free(good);
    kh_free(bin);
    if (rc == 0)
        *out = m;
    return rc;
}

int kh_metrics_compute(kh_metrics *out, const kh_answers *a, int n_bin, kh_err *err) {
    int rc = kh_bins_check(&n_bin, err);
    if (rc == 0)
        rc = kh_answers_check(a, err);
    return rc == 0 ? kh_metrics_of(out, a, n_bin, err) : rc;
}

/* ----------------------------------------------------------------------------------- by number */

/* The lists of keyhole.h (KH_METRICS, KH_OOD_METRICS) are the only place where a metric is named;
 * fields, names, help, which direction is better and the columns of tables come from them. */
typedef struct metric_row {
    const char *name, *text;
    int better;
} metric_row;

#define METRIC_ROW(name, better, text) { #name, text, better },
static const metric_row metric_rows[] = { KH_METRICS(METRIC_ROW){ 0 } };
static const metric_row ood_rows[] = { KH_OOD_METRICS(METRIC_ROW){ 0 } };

_Static_assert(sizeof(kh_metrics) == KH_N_METRIC * sizeof(double), "metrics are doubles only");
_Static_assert(sizeof(kh_ood) == KH_N_OOD * sizeof(double), "metrics are doubles only");

static double double_at(const void *s, int i, int n) {
    double x = NAN;
    if (i >= 0 && i < n)
        memcpy(&x, (const char *)s + (size_t)i * sizeof x, sizeof x);
    return x;
}

static const metric_row *row_at(const metric_row *rows, int i, int n) {
    return &rows[i >= 0 && i < n ? i : n];
}

const char *kh_metrics_name(int i) { return row_at(metric_rows, i, KH_N_METRIC)->name; }
const char *kh_metrics_text(int i) { return row_at(metric_rows, i, KH_N_METRIC)->text; }
int kh_metrics_better(int i) { return row_at(metric_rows, i, KH_N_METRIC)->better; }
double kh_metrics_value(const kh_metrics *m, int i) { return double_at(m, i, KH_N_METRIC); }
const char *kh_ood_name(int i) { return row_at(ood_rows, i, KH_N_OOD)->name; }
const char *kh_ood_text(int i) { return row_at(ood_rows, i, KH_N_OOD)->text; }
double kh_ood_value(const kh_ood *o, int i) { return double_at(o, i, KH_N_OOD); }

/* -------------------------------------------------------------------------------------- spread */

/* x[0], x[stride], ...: [7], undefined values left out */
static void spread_of(const double *x, size_t stride, int n, double *mean, double *sd) {
    double sum = 0, squares = 0;
    int count = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(x[(size_t)i * stride])) {
            sum += x[(size_t)i * stride];
            count++;
        }
    *mean = count ? sum / count : NAN;
    for (int i = 0; i < n; i++)
        if (!isnan(x[(size_t)i * stride])) {
            double d = x[(size_t)i * stride] - *mean;
            squares += d * d;
        }
    *sd = count > 1 ? sqrt(squares / (count - 1)) : NAN;
}

void kh_mean_sd(const double *x, int n, double *mean, double *sd) { spread_of(x, 1, n, mean, sd); }

void kh_metrics_spread(const kh_metrics *runs, int n, kh_metrics *mean, kh_metrics *sd) {
    double m[KH_N_METRIC], s[KH_N_METRIC];
    for (int i = 0; i < KH_N_METRIC; i++)
        spread_of((const double *)runs + i, KH_N_METRIC, n, &m[i], &s[i]);
    memcpy(mean, m, sizeof m);
    memcpy(sd, s, sizeof s);
}
