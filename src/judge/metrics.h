/* metrics.h - the numbers of (probabilities, labels); the public ones are in keyhole.h.
 *
 * kh_metrics and kh_ood hold nothing but doubles, so that intervals, spreads, tables and JSON walk
 * them by number. */
#ifndef KH_JUDGE_METRICS_H
#define KH_JUDGE_METRICS_H

#include "keyhole.h"

#define KH_METRIC_ONE(name, better, text) +1
enum {
    KH_N_METRIC = 0 KH_METRICS(KH_METRIC_ONE),
    KH_N_OOD = 0 KH_OOD_METRICS(KH_METRIC_ONE),
};

/* A distribution's sum may be this far from one: tools print rounded numbers. */
#define KH_SUM_TOLERANCE 1e-3

/* The metrics of answers that were checked before. */
int kh_metrics_of(kh_metrics *out, const kh_answers *, int n_bin, kh_err *err);

/* ece.c: calibration errors of checked answers. */
int kh_ece(const kh_answers *, kh_binning, int n_bin, kh_bin *bin, double *ece, kh_err *err);
double kh_ece_classwise(const kh_answers *, int n_bin, kh_bin *scratch);
int kh_bins_check(int *n_bin, kh_err *err); /* 0 becomes KH_BINS */

void kh_sort_doubles(double *x, int n); /* ascending */

/* For complaints: "row 3" counts from 0, as the arrays do. */
int kh_scores_check(const double *u, int n, const char *what, kh_err *err);

/* selective.c: whether n rows are enough for kh_ood_threshold to find one. */
bool kh_ood_enough(int n, double keep);

/* Rows in the order in which a selective classifier takes them. */
typedef struct kh_ranked {
    double u;
    bool good;
} kh_ranked;
/* curves.c: *out [n], ascending in u; kh_free it, also after failure. */
int kh_rank_rows(kh_ranked **out, const double *u, const bool *good, int n, kh_err *err);

/* selective.c: what each risk of the ladder would take, for sentences that name a remedy. */
enum { KH_LADDER_STEPS = 4 };
typedef struct kh_ladder_step {
    double risk;
    double coverage; /* answered, if this risk is asked for; 0: it cannot be promised */
    int rows;        /* that could promise it for half of the rows, if errors stay in proportion;
                        0: no number of rows would */
} kh_ladder_step;
int kh_ladder_steps(kh_ladder_step out[KH_LADDER_STEPS], const double *u, const bool *good, int n,
    double delta, kh_err *err);

#endif
