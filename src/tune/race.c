/* race.c - see race.h.
 *
 * CMA-ES is told losses and looks at their ranks; what moves its mean is the better half. So all
 * candidates are asked about a quarter of the rows, then those that may still be of the better half
 * about the next, and so on. The rows asked so far are a sample, without replacement, of all rows:
 * the mean difference between two candidates on all of them has the standard error
 *
 *     s sqrt((1 - asked / rows) / asked),   s the standard deviation of the rows' differences
 *
 * and a candidate is left behind if, by that, it is better than the last of the better half with a
 * probability below `wrong`. Classes take turns in the order of the rows, as a candidate that leans
 * to one class would otherwise win or lose by the order. (An order by how much rows tell candidates
 * apart, learned on the way, brought nothing in simulations.) */
#include "tune/race.h"

#include "base/alloc.h"
#include "base/clamp.h"
#include "base/err.h"
#include "plm/backend.h"

#include <math.h>
#include <string.h>

enum {
    PARTS = 4,      /* of the rows; with eight no further gain, and questions become small */
    FEWEST_ROWS = 4 /* in a part: a standard deviation of less says nothing */
};

bool kh_race_suits(const kh_train_loss *l) { return l->loss != KH_LOSS_METRIC && !l->share; }

/* Classes take turns while they have rows: the k-th row of each class before any (k+1)-th. */
static void take_turns(const kh_batch *b, int n_label, int *count, int *order) {
    int n = 0;
    for (int turn = 0; n < b->n_row; turn++) {
        memset(count, 0, (size_t)n_label * sizeof *count);
        for (int i = 0; i < b->n_row; i++)
            if (count[b->label[i]]++ == turn)
                order[n++] = i;
    }
}

int kh_race_new(kh_race *r, const kh_batch *train, int n_label, double wrong, kh_err *err) {
    int *order = kh_calloc((size_t)train->n_row + (size_t)n_label, sizeof *order);
    *r = (kh_race){ .wrong = wrong, .label = kh_calloc((size_t)train->n_row, sizeof *r->label) };
    int rc = order && r->label ? 0 : kh_fail_memory(err);
    if (rc == 0) {
        take_turns(train, n_label, order + train->n_row, order);
        rc = kh_batch_reorder(&r->rows, train, order, err);
    }
    for (int i = 0; rc == 0 && i < train->n_row; i++)
        r->label[i] = train->label[order[i]];
    r->rows.label = r->label;
    kh_free(order);
    return rc;
}

void kh_race_free(kh_race *r) {
    kh_free(r->rows.memory);
    kh_free(r->label);
    *r = (kh_race){ 0 };
}

/* ------------------------------------------------------------------------------------ the rule */

static double mean_of(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum / n;
}

/* How many of those in the running are better than k on the first rows, the earlier of equals. */
static int rank_of(const double *loss, int n, int n_row, int asked, const bool *running, int k) {
    double own = mean_of(loss + (size_t)k * (size_t)n_row, asked);
    int rank = 0;
    for (int i = 0; i < n; i++) {
        double other =
            running[i] && i != k ? mean_of(loss + (size_t)i * (size_t)n_row, asked) : NAN;
        rank += other < own || (other == own && i < k);
    }
    return rank;
}

/* The probability that a's loss on all rows is less than b's, by the first ones of them. */
static double may_win(const double *a, const double *b, int n_row, int asked) {
    double mean = 0, squares = 0;
    for (int i = 0; i < asked; i++)
        mean += (a[i] - b[i]) / asked;
    for (int i = 0; i < asked; i++)
        squares += (a[i] - b[i] - mean) * (a[i] - b[i] - mean);
    double error = sqrt(squares / (asked - 1) * (1 - (double)asked / n_row) / asked);
    if (error == 0)
        return mean <= 0;
    return erfc(mean / error / sqrt(2)) / 2;
}

void kh_race_drop(const double *loss, int n, int n_row, int asked, double wrong, bool *running) {
    int half = n / 2, last = -1, left = 0;
    for (int k = 0; k < n; k++) {
        left += running[k];
        if (running[k] && rank_of(loss, n, n_row, asked, running, k) == half - 1)
            last = k;
    }
    if (last < 0 || left <= half)
        return;
    for (int k = 0; k < n; k++) /* the better half stays, so that ranks behind it stay behind it */
        if (running[k] && rank_of(loss, n, n_row, asked, running, k) >= half &&
            may_win(loss + (size_t)k * (size_t)n_row, loss + (size_t)last * (size_t)n_row, n_row,
                asked) < wrong)
            running[k] = false;
}

/* ------------------------------------------------------------------------------------ the race */

/* Everything that a generation's race is in the middle of. */
typedef struct race {
    const kh_race *r;
    const kh_train_loss *l;
    const float *z;
    int n, dim, n_row;
    bool *running;
    int *asked;     /* [n] rows */
    double *loss;   /* [n, n_row] */
    float *some_z;  /* [n, dim] of those in the running */
    float *logprob; /* [n, n_row, n_label] scratch */
} race;

static int race_new(race *x, kh_err *err) {
    size_t n = (size_t)x->n, rows = n * (size_t)x->n_row;
    x->running = kh_calloc(n, sizeof *x->running);
    x->asked = kh_calloc(n, sizeof *x->asked);
    x->loss = kh_calloc(rows, sizeof *x->loss);
    x->some_z = kh_calloc(n * (size_t)x->dim, sizeof *x->some_z);
    x->logprob = kh_calloc(rows * (size_t)x->l->target.words->n_label, sizeof *x->logprob);
    if (!x->running || !x->asked || !x->loss || !x->some_z || !x->logprob)
        return kh_fail_memory(err);
    for (int k = 0; k < x->n; k++)
        x->running[k] = true;
    return 0;
}

static void race_free(race *x) {
    kh_free(x->running);
    kh_free(x->asked);
    kh_free(x->loss);
    kh_free(x->some_z);
    kh_free(x->logprob);
}

/* Rows [first, end) of those in the running. */
static int ask_part(race *x, int first, int end, kh_err *err) {
    int n_label = x->l->target.words->n_label, some = 0, at = 0;
    kh_batch part = kh_batch_part(&x->r->rows, first, end - first);
    kh_target target = x->l->target;
    target.batch = &part;
    for (int k = 0; k < x->n; k++)
        if (x->running[k])
            memcpy(x->some_z + (size_t)some++ * (size_t)x->dim, x->z + (size_t)k * (size_t)x->dim,
                (size_t)x->dim * sizeof *x->z);
    int rc = kh_target_score(&target, x->some_z, some, x->logprob, err);
    for (int k = 0; k < x->n && rc == 0; k++) {
        for (int i = first; i < end && x->running[k]; i++, at++)
            x->loss[(size_t)k * (size_t)x->n_row + (size_t)i] = x->l->scale *
                kh_loss_value(x->l->loss, x->l->metric, x->logprob + (size_t)at * (size_t)n_label,
                    &x->r->label[i], 1, n_label);
        x->asked[k] = x->running[k] ? end : x->asked[k];
    }
    return rc;
}

/* Losses of those who finished; for others what they had, and as much more as the finishers have on
 * all rows than on these, but more than the last of the better half has. */
static void settle(const race *x, double *f) {
    int finished = 0;
    double last = -INFINITY;
    for (int k = 0; k < x->n; k++) {
        f[k] = mean_of(x->loss + (size_t)k * (size_t)x->n_row, x->asked[k]);
        finished += x->running[k];
    }
    for (int k = 0; k < x->n; k++) {
        int better = 0;
        for (int i = 0; i < x->n; i++)
            better += x->running[i] && (f[i] < f[k] || (f[i] == f[k] && i < k));
        last = x->running[k] && better == x->n / 2 - 1 ? f[k] : last;
    }
    for (int k = 0; k < x->n; k++) {
        double more = 0;
        for (int i = 0; i < x->n && !x->running[k]; i++)
            if (x->running[i])
                more += (f[i] - mean_of(x->loss + (size_t)i * (size_t)x->n_row, x->asked[k])) /
                    finished;
        if (!x->running[k])
            f[k] = fmax(f[k] + more, nextafter(last, INFINITY));
    }
}

int kh_race_losses(const kh_race *r, const kh_train_loss *l, const float *z, int n, double *f,
    long long *asked, kh_err *err) {
    race x = { .r = r,
        .l = l,
        .z = z,
        .n = n,
        .dim = kh_subspace_space(l->target.space)->dim,
        .n_row = r->rows.n_row };
    int parts = kh_clamp_int(x.n_row / FEWEST_ROWS, 1, PARTS), rc = race_new(&x, err);
    for (int p = 0; p < parts && rc == 0; p++) {
        int first = x.n_row * p / parts, end = x.n_row * (p + 1) / parts;
        if (first > 0)
            kh_race_drop(x.loss, n, x.n_row, first, r->wrong, x.running);
        rc = ask_part(&x, first, end, err);
    }
    for (int k = 0; k < n && rc == 0; k++)
        *asked += x.asked[k];
    if (rc == 0)
        settle(&x, f);
    race_free(&x);
    return rc;
}
