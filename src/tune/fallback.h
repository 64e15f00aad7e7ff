/* fallback.h - the net under every search: its result is returned only if it beats the plain
 * template (doc/methods.md, "Never worse than the template"). */
#ifndef KH_TUNE_FALLBACK_H
#define KH_TUNE_FALLBACK_H

#include "tune/method.h"

/* Whether results are compared with the template, and chosen by the score below: by default where
 * answers are calibrated, the paper's effort apart. */
bool kh_tuning_guards(const kh_tuning *);
/* Whether a method's own result is: not the template, and not what chooses among others. */
bool kh_tuning_has_net(const kh_tuning *, const kh_method *);
/* How many queries it takes. */
long long kh_tuning_net_cost(const kh_tuning *, const kh_method *);

/* What answers to the dev rows are worth, to choose by; more is better: the cross-validated mean of
 * log p after calibration, or, without the net, the task's metric. answers [dev rows, n_label]:
 * distributions, or votes of so many samples. */
double kh_tuning_worth(
    const kh_tuning *, const double *answers, bool votes, int samples, kh_err *err);

/* p is calibrated, and t has its answers to rows that it was not learned from. If it is not better
 * than the template there, it becomes the template, and t->stopped says so. */
int kh_tuning_fall_back(kh_tuning *, const kh_method *, kh_posterior *, kh_err *err);

/* Whether what answers together with the template stays, if it is ahead of the template by so many
 * standard errors; paid: the lead has paid for its looks, or nothing was chosen by these rows. */
bool kh_pool_stays(const kh_posterior *, double by, bool paid);

/* (T23) The template, which answered these rows so, answers beside p by a share that the rows of t
 * tell, and both together are calibrated again; not if the share is next to nothing. */
int kh_tuning_pool(kh_tuning *, kh_posterior *p, const kh_posterior *plain,
    const kh_held_rows *answers, kh_err *err);

/* a - b over the rows that both know, in standard errors of the rows' differences; INFINITY where
 * all differ alike; 0: nothing to tell. *mean: of the differences. */
double kh_scores_apart(const kh_row_scores *a, const kh_row_scores *b, double *mean);

#endif
