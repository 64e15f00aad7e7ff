/* finish.c - the last step of a run: answers become probabilities that mean what they say.
 *
 * A search leaves samples whose mixture is over-confident, timid or biased towards a class, by an
 * amount that rows which it did not learn from can tell: the dev rows, or more where a method knows
 * more of them (kh_tuning_hold). Samples that vote get smoothed votes, others one slope and a
 * bias for each class, of log-probabilities; both are pure functions of src/judge, shrunk to "no
 * change". The same rows, each calibrated by the others, give the score by which results of
 * different methods are compared.
 */
#include "tune/tuning.h"

#include "base/alloc.h"
#include "base/err.h"
#include "judge/calibrate.h"
#include "posterior/predict.h"

#include <math.h>
#include <string.h>

/* As in src/judge: few rows leave no room for more folds. */
enum { N_FOLD = 5 };

bool kh_tuning_calibrates(const kh_tuning *t) { return !t->o->uncalibrated && !t->o->paper_exact; }

/* A method that holds its answers has asked already. */
long long kh_tuning_calibrate_cost(const kh_tuning *t, int samples, bool holds) {
    return kh_tuning_calibrates(t) && !holds ? (long long)samples * t->n_dev : 0;
}

void kh_row_scores_free(kh_row_scores *s) {
    kh_free(s->nll);
    kh_free(s->row);
    *s = (kh_row_scores){ 0 };
}

void kh_held_rows_free(kh_held_rows *a) {
    kh_free(a->p);
    kh_free(a->label);
    kh_free(a->row);
    *a = (kh_held_rows){ 0 };
}

int kh_tuning_hold(
    kh_tuning *t, const double *p, const int *label, const int *row, int n, kh_err *err) {
    size_t k = (size_t)t->task->n_label;
    kh_held_rows_free(&t->held);
    t->held.row = kh_malloc((size_t)n * sizeof *t->held.row);
    t->held.p = kh_malloc((size_t)n * k * sizeof *t->held.p);
    t->held.label = kh_malloc((size_t)n * sizeof *t->held.label);
    if (!t->held.p || !t->held.label || !t->held.row)
        return kh_fail_memory(err);
    for (int i = 0; i < n; i++) {
        if (isnan(p[(size_t)i * k])) /* a service refused it */
            continue;
        memcpy(t->held.p + (size_t)t->held.n * k, p + (size_t)i * k, k * sizeof *p);
        t->held.row[t->held.n] = row ? row[i] : i;
        t->held.label[t->held.n++] = label[i];
    }
    kh_mixture_finish(t->held.p, t->held.n, t->task->n_label);
    return t->held.n > 0 || n == 0
        ? 0
        : kh_fail(err, KH_EIO, "the service answered none of the %d rows to judge on", n);
}

double kh_tuning_held_metric(const kh_tuning *t) {
    int n = 0; /* the dev rows come first */
    while (n < t->held.n && t->held.row[n] < t->n_dev)
        n++;
    return kh_metric_of_p(t->task->metric, t->held.p, t->held.label, n, t->task->n_label);
}

/* How the result did on each row, and their mean as its score. 1e-15 is the floor of NLL everywhere
 * (doc/judging.md, [3]). Of cross-fitted probabilities: a row's own label has had no part in its
 * calibration. */
static int score_rows(kh_tuning *t, kh_posterior *post, const double *p, kh_err *err) {
    int n = t->held.n;
    double sum = 0;
    kh_row_scores_free(&t->scores);
    t->scores = (kh_row_scores){ .nll = kh_malloc((size_t)n * sizeof(double)),
        .row = kh_malloc((size_t)n * sizeof(int)),
        .n = n,
        .looks = t->looks };
    if (!t->scores.nll || !t->scores.row)
        return kh_fail_memory(err);
    for (int i = 0; i < n; i++) {
        double own = p[(size_t)i * (size_t)t->task->n_label + (size_t)t->held.label[i]];
        sum += t->scores.nll[i] = -log(fmax(own, 1e-15));
        t->scores.row[i] = t->held.row[i];
    }
    post->score = sum / n;
    post->score_rows = n;
    return 0;
}

/* Answers to all rows of tuning by fits that had not seen the row stay with the result: they say
 * when to abstain (doc/judging.md, [20c]). Not those of a search, which has been chosen on dev
 * rows, nor of the template, which can be asked about all rows again. */
static int keep_fresh(kh_tuning *t, kh_posterior *post, const double *p, kh_err *err) {
    int n = t->held.n;
    if (n == 0 || !t->crossfitted)
        return 0;
    long *line = kh_malloc((size_t)n * sizeof *line);
    if (!line)
        return kh_fail_memory(err);
    for (int i = 0; i < n; i++) {
        int row = t->held.row[i] - t->n_dev;
        line[i] = row < 0 ? t->dev_row[t->held.row[i]].line : t->train_row[row].line;
    }
    int rc = kh_posterior_set_fresh(post, p, t->held.label, line, n, err);
    kh_free(line);
    return rc;
}

/* Fitted on all held rows for use; cross-fitted once more for the score, since a calibrator
 * flatters the rows that it was fitted on. */
int kh_tuning_calibrate(kh_tuning *t, kh_posterior *p, kh_err *err) {
    if (!kh_tuning_calibrates(t))
        return keep_fresh(t, p, t->held.p, err);
    int rc = t->held.p ? 0 : kh_tuning_judge(t, p, t->plm, err), n = t->held.n;
    int n_label = t->task->n_label, n_fold = n < N_FOLD ? n : N_FOLD;
    bool votes = p->access == KH_ACCESS_LABELS;
    kh_calibration kind = kh_calibration_of(votes);
    size_t size = (size_t)n * (size_t)n_label;
    double *x = rc == 0 ? kh_malloc(2 * size * sizeof *x) : NULL, *fresh = x ? x + size : NULL;
    if (rc == 0 && !x)
        rc = kh_fail_memory(err);
    if (rc == 0) {
        memcpy(x, t->held.p, size * sizeof *x);
        kh_calibration_input(votes, p->n, x, size);
        rc = kh_calibrator_fit(&p->calibrator, kind, x, t->held.label, n, n_label, err);
        p->calibrated = rc == 0;
    }
    if (rc == 0 && n_fold > 1)
        rc = kh_calibrator_crossfit(kind, x, t->held.label, n, n_label, n_fold, fresh, err);
    if (rc == 0 && n_fold > 1)
        rc = score_rows(t, p, fresh, err);
    if (rc == 0 && n_fold > 1)
        rc = keep_fresh(t, p, fresh, err);
    kh_free(x);
    return rc;
}
