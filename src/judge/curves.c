/* curves.c - how well a score tells good rows from bad ones: risk against coverage, AURRRC, AURC,
 * AUROC, AUPR, FPR@95.
 *
 * A score u is an uncertainty: rows are taken in ascending order of u. "Good" is "answered right"
 * or "from the distribution". Everything is one walk over the rows sorted by u, group by group of
 * equal u, with running counts; equal scores never depend on the order of the rows. Numbers in
 * brackets are equations of doc/judging.md. */
#include "judge/metrics.h"

#include "base/alloc.h"
#include "base/err.h"

#include <math.h>
#include <stdlib.h>

/* The published code's, which rejects 0 to 90 %. */
enum { N_RATE = 10 }; /* rejection rates of AURRRC */

static int by_score(const void *a, const void *b) {
    double x = ((const kh_ranked *)a)->u, y = ((const kh_ranked *)b)->u;
    return (x > y) - (x < y);
}

int kh_rank_rows(kh_ranked **out, const double *u, const bool *good, int n, kh_err *err) {
    kh_ranked *row = kh_malloc((size_t)n * sizeof *row);
    *out = row;
    if (!row)
        return kh_fail_memory(err);
    for (int i = 0; i < n; i++)
        row[i] = (kh_ranked){ u[i], good[i] };
    qsort(row, (size_t)n, sizeof *row, by_score);
    return 0;
}

/* Rows [from, to) have the same score; `good` of them are good, good_before and bad_before are the
 * counts ahead of them. */
typedef struct group {
    int from, to, good, bad;
    int good_before, bad_before;
} group;

/* Steps to the next group; start with {0}. False after the last. */
static bool next_group(group *g, const kh_ranked *row, int n) {
    if (g->to == n)
        return false;
    *g = (group){ .from = g->to,
        .to = g->to,
        .good_before = g->good_before + g->good,
        .bad_before = g->bad_before + g->bad };
    while (g->to < n && row[g->to].u == row[g->from].u)
        g->good += row[g->to++].good;
    g->bad = g->to - g->from - g->good;
    return true;
}

/* -------------------------------------------------------------------------------------- AURRRC */

/* Rank (from 1) of the row that sets the b-th threshold, b = 1 .. 10. Below ten rows the step is 0,
 * and the published code's index -1 is the last row: everything is taken. */
static int rate_rank(int b, int n) { return n < N_RATE ? n : b * (n / N_RATE); }

/* [11]: the share of bad rows among all that are at least as certain as the row of rank b * step,
 * averaged. */
static double aurrrc(const kh_ranked *row, int n) {
    double sum = 0;
    int b = 1;
    for (group g = { 0 }; b <= N_RATE && next_group(&g, row, n);)
        for (; b <= N_RATE && rate_rank(b, n) <= g.to; b++)
            sum += (double)(g.bad_before + g.bad) / g.to;
    return sum / N_RATE;
}

/* [12]: the same by a score that is 0 for good rows and 1 for bad ones; ties bring in all of a
 * kind. */
static double aurrrc_oracle(int n_good, int n) {
    double sum = 0;
    for (int b = 1; b <= N_RATE; b++)
        if (rate_rank(b, n) > n_good)
            sum += (double)(n - n_good) / n;
    return sum / N_RATE;
}

/* [13]: good rows first, no ties. */
static double aurrrc_min(int n_good, int n) {
    double sum = 0;
    for (int b = 1; b <= N_RATE; b++) {
        int rank = rate_rank(b, n);
        if (rank > n_good)
            sum += (double)(rank - n_good) / rank;
    }
    return sum / N_RATE;
}

/* ---------------------------------------------------------------------------------------- AURC */

/* [14]: risk averaged over all coverages 1/n .. 1; inside a group the expected risk under a random
 * order. */
static double aurc(const kh_ranked *row, int n) {
    double sum = 0;
    for (group g = { 0 }; next_group(&g, row, n);)
        for (int i = 1; i <= g.to - g.from; i++)
            sum += (g.bad_before + (double)g.bad * i / (g.to - g.from)) / (g.from + i);
    return sum / n;
}

static double aurc_min(int n_good, int n) {
    double sum = 0;
    for (int i = n_good + 1; i <= n; i++)
        sum += (double)(i - n_good) / i;
    return sum / n;
}

/* --------------------------------------------------------------------------------------- AUROC */

/* [15]: pairs (good, bad) in the right order, ties count half. */
static double auroc(const kh_ranked *row, int n, int n_good) {
    unsigned long long twice = 0;
    for (group g = { 0 }; next_group(&g, row, n);)
        twice += (unsigned long long)g.bad *
            (2 * (unsigned long long)g.good_before + (unsigned long long)g.good);
    int n_bad = n - n_good;
    return n_good && n_bad ? (double)twice / 2 / n_good / n_bad : NAN;
}

static int count_good(const bool *good, int n) {
    int count = 0;
    for (int i = 0; i < n; i++)
        count += good[i];
    return count;
}

/* NaN scores are refused: they would sort anywhere. */
int kh_curve_compute(kh_curve *out, const double *u, const bool *good, int n, kh_err *err) {
    kh_ranked *row = NULL;
    *out = (kh_curve){ 0 };
    int rc = kh_scores_check(u, n, "rows", err);
    if (rc == 0)
        rc = kh_rank_rows(&row, u, good, n, err);
    if (rc == 0) {
        int n_good = count_good(good, n);
        *out = (kh_curve){ .aurrrc = aurrrc(row, n),
            .aurrrc_oracle = aurrrc_oracle(n_good, n),
            .aurrrc_min = aurrrc_min(n_good, n),
            .aurc = aurc(row, n),
            .aurc_min = aurc_min(n_good, n),
            .auroc = auroc(row, n, n_good) };
    }
    kh_free(row);
    return rc;
}

/* One point for each distinct score, since rows with equal scores are accepted or rejected
 * together. point: room for n. */
int kh_risk_coverage(
    const double *u, const bool *good, int n, kh_curve_point *point, int *n_point, kh_err *err) {
    kh_ranked *row = NULL;
    *n_point = 0;
    int rc = kh_scores_check(u, n, "rows", err);
    if (rc == 0)
        rc = kh_rank_rows(&row, u, good, n, err);
    if (rc == 0)
        for (group g = { 0 }; next_group(&g, row, n);)
            point[(*n_point)++] = (kh_curve_point){ row[g.from].u, (double)g.to / n,
                (double)(g.bad_before + g.bad) / g.to };
    kh_free(row);
    return rc;
}

/* ----------------------------------------------------------------------------------------- OOD */

/* [16]: sum over thresholds of the precision there times the recall gained. */
static double average_precision(const kh_ranked *row, int n, int n_good) {
    double sum = 0;
    for (group g = { 0 }; next_group(&g, row, n);)
        sum += (double)g.good / n_good * ((double)(g.good_before + g.good) / g.to);
    return sum;
}

/* [17] */
static double fpr_at(const kh_ranked *row, int n, int n_good, double recall) {
    for (group g = { 0 }; next_group(&g, row, n);)
        if ((double)(g.good_before + g.good) / n_good >= recall)
            return (double)(g.bad_before + g.bad) / (n - n_good);
    return 1;
}

/* The mirror image: least certain rows first, and what was bad is good. */
static void reverse(kh_ranked *row, int n) {
    for (int i = 0, j = n - 1; i <= j; i++, j--) {
        kh_ranked first = { -row[i].u, !row[i].good };
        row[i] = (kh_ranked){ -row[j].u, !row[j].good };
        row[j] = first;
    }
}

/* "Good" is in-distribution: AUROC, AUPR and FPR at 95 % recall say how well the score keeps the
 * out-of-distribution rows behind. AUPR for the other class is the same walk from the other end. */
int kh_ood_compute(
    kh_ood *out, const double *u_in, int n_in, const double *u_out, int n_out, kh_err *err) {
    *out = (kh_ood){ 0 };
    int rc = kh_scores_check(u_in, n_in, "rows of the distribution", err);
    if (rc == 0)
        rc = kh_scores_check(u_out, n_out, "rows from outside", err);
    if (rc == 0 && n_in > INT32_MAX - n_out)
        rc = kh_fail(
            err, KH_ELIMIT, "%d and %d rows are more than can be judged together", n_in, n_out);
    if (rc != 0)
        return rc;
    int n = n_in + n_out;
    kh_ranked *row = kh_malloc((size_t)n * sizeof *row);
    if (!row)
        return kh_fail_memory(err);
    for (int i = 0; i < n; i++)
        row[i] = i < n_in ? (kh_ranked){ u_in[i], true } : (kh_ranked){ u_out[i - n_in], false };
    qsort(row, (size_t)n, sizeof *row, by_score);
    *out = (kh_ood){ .auroc = auroc(row, n, n_in),
        .aupr_in = average_precision(row, n, n_in),
        .fpr95 = fpr_at(row, n, n_in, 0.95),
        .aurrrc = aurrrc(row, n),
        .aurrrc_oracle = aurrrc_oracle(n_in, n) };
    reverse(row, n);
    out->aupr_out = average_precision(row, n, n_out);
    kh_free(row);
    return 0;
}
