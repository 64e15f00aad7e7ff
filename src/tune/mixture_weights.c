/* mixture_weights.c - see mixture_weights.h.
 *
 *     w ~ Dirichlet(alpha_1, ..., alpha_n),   p(y_i | w) = sum_m w_m l_im
 *
 * Say that row i was labelled by member z_i. Given how many rows each member has labelled, k_m, the
 * weights are Dirichlet(alpha_m + k_m), so that all there is to know is how probable each vector of
 * counts is. Its probability is the coefficient of prod_m x_m^k_m in prod_i sum_m l_im x_m, times a
 * ratio of gamma functions.
 *
 * exact: the coefficients of that polynomial, row by row. There are about n_row^(n - 1) / (n - 1)!
 * of them: two or three members, or few rows.
 *
 * sample: Gibbs sampling of the z_i, w integrated out. The posterior of w is log-concave, a single
 * hill, so that nothing is ever missed.
 *
 * Neither is variational: the mean-field solution takes the z_i for independent, is far too sure,
 * and was off by up to 0.29 where these are exact. */
#include "tune/mixture_weights.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

static const double CELLS_MOST = 1 << 20; /* counts that are kept, */
static const double WORK_MOST = 4e8; /* and rows, members and counts, or sweeps: a second or so */
enum { SWEEPS_MOST = 1 << 20, SWEEPS_LEAST = 1 << 12, UNUSED = 200 };

static double prior_sum(const kh_mixture *x) {
    double sum = 0;
    for (int m = 0; m < x->n; m++)
        sum += x->prior[m];
    return sum;
}

/* --------------------------------------------------------------------------------------- exact */

/* Coefficients by the counts of all members but the last, whose count is what remains. */
typedef struct counts {
    const kh_mixture *x;
    size_t n_cell; /* (n_row + 1)^(n - 1) */
    double *c;     /* [n_cell] */
    int *k;        /* [n] scratch */
} counts;

/* One row more. In place, from the largest counts down: a cell takes from smaller ones. Each row is
 * scaled so that the coefficients stay within the numbers there are. */
static void add_row(const counts *q, int row) {
    const kh_mixture *x = q->x;
    const double *l = x->like + (size_t)row * (size_t)x->n;
    double scale = 0;
    for (int m = 0; m < x->n; m++)
        scale += l[m];
    for (size_t i = q->n_cell; i-- > 0;) {
        double sum = q->c[i] * l[x->n - 1];
        size_t step = 1, left = i;
        for (int m = 0; m < x->n - 1; m++, step *= (size_t)x->n_row + 1) {
            if (left % ((size_t)x->n_row + 1) > 0)
                sum += q->c[i - step] * l[m];
            left /= (size_t)x->n_row + 1;
        }
        q->c[i] = sum / scale;
    }
}

/* The counts of a cell; false: they are more than there are rows. */
static bool read_counts(const counts *q, size_t cell) {
    int rest = q->x->n_row;
    for (int m = 0; m < q->x->n - 1; m++) {
        q->k[m] = (int)(cell % ((size_t)q->x->n_row + 1));
        cell /= (size_t)q->x->n_row + 1;
        rest -= q->k[m];
    }
    q->k[q->x->n - 1] = rest;
    return rest >= 0;
}

/* X7: the log-probability of a vector of counts, up to a constant. */
static double log_term(const counts *q, size_t cell) {
    double sum = log(q->c[cell]);
    for (int m = 0; m < q->x->n; m++)
        sum += lgamma(q->x->prior[m] + q->k[m]) - lgamma(q->x->prior[m]);
    return sum;
}

static void add_up(const counts *q, double *weight, double *log_evidence) {
    const kh_mixture *x = q->x;
    double top = -INFINITY, total = 0, all = prior_sum(x), scale = 0;
    for (size_t i = 0; i < q->n_cell; i++)
        if (read_counts(q, i) && q->c[i] > 0)
            top = fmax(top, log_term(q, i));
    memset(weight, 0, (size_t)x->n * sizeof *weight);
    for (size_t i = 0; i < q->n_cell; i++)
        if (read_counts(q, i) && q->c[i] > 0) {
            double p = exp(log_term(q, i) - top);
            total += p;
            for (int m = 0; m < x->n; m++)
                weight[m] += p * (x->prior[m] + q->k[m]) / (all + x->n_row);
        }
    for (int m = 0; m < x->n; m++)
        weight[m] /= total;
    for (int i = 0; i < x->n_row && log_evidence; i++) {
        double sum = 0;
        for (int m = 0; m < x->n; m++)
            sum += x->like[(size_t)i * (size_t)x->n + (size_t)m];
        scale += log(sum);
    }
    if (log_evidence)
        *log_evidence = top + log(total) + scale + lgamma(all) - lgamma(all + x->n_row);
}

static double n_cells(const kh_mixture *x) { return pow((double)x->n_row + 1, x->n - 1); }

static bool can_be_exact(const kh_mixture *x) {
    return n_cells(x) <= CELLS_MOST && n_cells(x) * x->n_row * x->n <= WORK_MOST;
}

int kh_mixture_exact(const kh_mixture *x, double *weight, double *log_evidence, kh_err *err) {
    if (!can_be_exact(x))
        return kh_fail(
            err, KH_ELIMIT, "%d members and %d rows have too many counts", x->n, x->n_row);
    counts q = { .x = x, .n_cell = (size_t)n_cells(x) };
    q.c = kh_calloc(q.n_cell, sizeof *q.c);
    q.k = kh_calloc((size_t)x->n, sizeof *q.k);
    int rc = q.c && q.k ? 0 : kh_fail_memory(err);
    if (rc == 0) {
        q.c[0] = 1;
        for (int i = 0; i < x->n_row; i++)
            add_row(&q, i);
        add_up(&q, weight, log_evidence);
    }
    kh_free(q.c);
    kh_free(q.k);
    return rc;
}

/* ------------------------------------------------------------------------------------ sampling */

/* X8: one sweep. The member of a row, given those of all other rows; w itself is integrated out.
 * What joins the sum is how probable each member was, which varies less than the one drawn. */
static void sweep(
    const kh_mixture *x, kh_rng *r, int *member, double *count, double *p, double *sum) {
    for (int i = 0; i < x->n_row; i++) {
        const double *l = x->like + (size_t)i * (size_t)x->n;
        double total = 0;
        if (member[i] >= 0)
            count[member[i]]--;
        for (int m = 0; m < x->n; m++)
            total += p[m] = l[m] * (x->prior[m] + count[m]);
        double u = total * kh_rng_uniform(r), below = 0;
        int drawn = -1;
        for (int m = 0; m < x->n; m++) {
            sum[m] += p[m] / total;
            below += p[m];
            drawn = drawn < 0 && (u < below || m + 1 == x->n) ? m : drawn;
        }
        member[i] = drawn;
        count[drawn]++;
    }
}

int kh_mixture_sample(const kh_mixture *x, uint64_t seed, int sweeps, double *weight, kh_err *err) {
    size_t n = (size_t)x->n;
    double *count = kh_calloc(2 * n, sizeof *count), *p = count + n;
    int *member = kh_malloc((size_t)x->n_row * sizeof *member + 1);
    int rc = count && member ? 0 : kh_fail_memory(err);
    for (int i = 0; i < x->n_row && rc == 0; i++)
        member[i] = -1;
    for (int s = -UNUSED; s < sweeps && rc == 0; s++) {
        if (s <= 0) /* the first ones still know where they began */
            memset(weight, 0, n * sizeof *weight);
        kh_rng r = kh_rng_stream(seed, KH_RNG_WEIGH, 0, (uint32_t)(s + UNUSED));
        sweep(x, &r, member, count, p, weight);
    }
    for (size_t m = 0; m < n && rc == 0; m++)
        weight[m] = (x->prior[m] + weight[m] / sweeps) / (prior_sum(x) + x->n_row);
    kh_free(count);
    kh_free(member);
    return rc;
}

int kh_mixture_weights(const kh_mixture *x, uint64_t seed, double *weight, kh_err *err) {
    if (can_be_exact(x))
        return kh_mixture_exact(x, weight, NULL, err);
    double sweeps = WORK_MOST / ((double)x->n_row * x->n);
    sweeps = fmax(SWEEPS_LEAST, fmin(SWEEPS_MOST, sweeps));
    return kh_mixture_sample(x, seed, (int)sweeps, weight, err);
}
