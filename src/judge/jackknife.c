/* jackknife.c - see jackknife.h.
 *
 * leave_one_out.h has the same sets from scores; here they are made of what a classifier says, so
 * that whoever holds its decisions needs nothing else. The maps are softmax(w x + b) with one
 * slope, and so what the map without row i would say follows from what the map of all rows says:
 * x = (log p - b) / w up to a constant that the softmax forgets. Maps of votes have no such
 * inverse, nor has a slope of 0; then the sets stay those of [33]. */
#include "judge/jackknife.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/logsum.h"
#include "judge/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double LEAST_SLOPE = 1e-3; /* below it, p has forgotten x */
static const double LEAST_P = 1e-300;

/* ---------------------------------------------------------------------------------------- maps */

static double slope_of(const kh_calibrator *c) {
    return c->method == KH_CALIBRATE_AFFINE ? c->weight[0] : 1 / c->temperature;
}

static double bias_of(const kh_calibrator *c, int k) {
    return c->method == KH_CALIBRATE_AFFINE ? c->bias[k] : 0;
}

/* With a prior both maps have its logarithm among their biases. */
static void relate(kh_left_out *l, int at, const kh_calibrator *all, const kh_calibrator *without,
    const double *prior) {
    double slope = slope_of(without) / slope_of(all);
    l->slope[at] = slope;
    for (int k = 0; k < l->n_label; k++) {
        double more = prior ? log(prior[k]) : 0;
        l->shift[(size_t)at * (size_t)l->n_label + (size_t)k] =
            bias_of(without, k) + more - slope * (bias_of(all, k) + more);
    }
}

static void times_prior(const double *prior, double *p, int n, int n_label) {
    for (int i = 0; i < n; i++, p += n_label) {
        double sum = 0;
        for (int k = 0; k < n_label; k++)
            sum += p[k] *= prior[k];
        for (int k = 0; k < n_label && sum > 0; k++)
            p[k] /= sum;
    }
}

int kh_left_out_fit(kh_left_out *out, const kh_calibrator *all, const double *x, const int *label,
    int n, int n_label, int n_fold, const double *prior, double *p, kh_err *err) {
    *out = (kh_left_out){ .n = n, .n_label = n_label };
    bool one_slope = all->method == KH_CALIBRATE_AFFINE || all->method == KH_CALIBRATE_TEMPERATURE;
    kh_calibrator *map = kh_calloc((size_t)n_fold, sizeof *map);
    out->fold = kh_malloc((size_t)n * sizeof *out->fold);
    out->slope = kh_malloc((size_t)n_fold * sizeof *out->slope);
    out->shift = kh_malloc((size_t)n_fold * (size_t)n_label * sizeof *out->shift);
    int rc = map && out->fold && out->slope && out->shift ? 0 : kh_fail_memory(err);
    if (rc == 0)
        rc = kh_calibrator_crossfit_maps(
            all->method, x, label, n, n_label, n_fold, p, map, out->fold, err);
    if (rc == 0 && prior)
        times_prior(prior, p, n, n_label);
    if (rc == 0 && one_slope && fabs(slope_of(all)) >= LEAST_SLOPE) {
        out->n_map = n_fold;
        for (int i = 0; i < n_fold; i++)
            relate(out, i, all, &map[i], prior);
    }
    for (int i = 0; map && i < n_fold; i++)
        kh_calibrator_free(&map[i]);
    kh_free(map);
    return rc;
}

void kh_left_out_free(kh_left_out *l) {
    kh_free(l->fold);
    kh_free(l->slope);
    kh_free(l->shift);
    *l = (kh_left_out){ 0 };
}

/* ---------------------------------------------------------------------------------------- sets */

typedef struct scored {
    int class, map;
    double score;
} scored;

static int by_class_and_score(const void *a, const void *b) {
    const scored *x = a, *y = b;
    if (x->class != y->class)
        return x->class < y->class ? -1 : 1;
    return (x->score > y->score) - (x->score < y->score);
}

int kh_conformal_plus(kh_conformal *c, const kh_left_out *l, const kh_answers *a, kh_err *err) {
    if (l->n_map == 0 || l->n != a->n || c->start[c->n_label] != a->n)
        return 0;
    size_t labels = (size_t)l->n_label, shifts = (size_t)l->n_map * labels;
    scored *row = kh_malloc((size_t)a->n * sizeof *row);
    c->map = kh_malloc((size_t)a->n * sizeof *c->map);
    c->slope = kh_malloc((size_t)l->n_map * sizeof *c->slope);
    c->shift = kh_malloc(shifts * sizeof *c->shift);
    if (!row || !c->map || !c->slope || !c->shift) {
        kh_free(row);
        return kh_fail_memory(err);
    }
    for (int i = 0; i < a->n; i++)
        row[i] = (scored){ c->per_class ? a->label[i] : 0, l->fold[i],
            1 - a->p[(size_t)i * labels + (size_t)a->label[i]] };
    qsort(row, (size_t)a->n, sizeof *row, by_class_and_score);
    for (int i = 0; i < a->n; i++)
        c->map[i] = row[i].map;
    memcpy(c->slope, l->slope, (size_t)l->n_map * sizeof *c->slope);
    memcpy(c->shift, l->shift, shifts * sizeof *c->shift);
    c->n_map = l->n_map;
    kh_free(row);
    return 0;
}

/* p of every map, [n_map, n_label]. */
static void by_maps(const kh_conformal *c, const double *p, double *q) {
    int m = c->n_label;
    for (int at = 0; at < c->n_map; at++, q += m) {
        for (int k = 0; k < m; k++)
            q[k] = c->slope[at] * log(fmax(p[k], LEAST_P)) +
                c->shift[(size_t)at * (size_t)m + (size_t)k];
        double shift = kh_log_sum_exp(q, m);
        for (int k = 0; k < m; k++)
            q[k] = exp(q[k] - shift);
    }
}

/* [31]. The slack keeps (1 - alpha)(n + 1) a whole number where it is one on paper. */
int kh_conformal_plus_set(const kh_conformal *c, const double *p, bool *in) {
    int m = c->n_label, size = 0;
    double *q = kh_malloc((size_t)c->n_map * (size_t)m * sizeof *q);
    if (q)
        by_maps(c, p, q);
    for (int k = 0; k < m; k++) { /* out of memory: all classes keep every promise */
        int class = c->per_class ? k : 0, n = c->start[class + 1] - c->start[class], stranger = 0;
        for (int i = c->start[class]; q && i < c->start[class + 1]; i++)
            stranger += c->score[i] < 1 - q[(size_t)c->map[i] * (size_t)m + (size_t)k];
        in[k] = !q || stranger < (1 - c->alpha) * (n + 1.0) - 1e-9;
        size += in[k];
    }
    kh_free(q);
    return size;
}

/* CV+ with K folds of n rows (Barber et al. 2021, theorem 4): 1 - 2 alpha - (1 - K/n) / (K + 1),
 * or - 2 (1 - 1/K) / (n/K + 1), whichever is nearer to 1 - 2 alpha. */
double kh_conformal_promise(const kh_conformal *c) {
    double n = c->start[c->n_label], maps = c->n_map;
    if (c->n_map == 0)
        return 1 - c->alpha;
    double less = fmin((1 - maps / n) / (maps + 1), 2 * (1 - 1 / maps) / (n / maps + 1));
    return fmax(0, 1 - 2 * c->alpha - fmax(0, less));
}
