/* cmaes.c - the optimiser itself: parameters, ask, tell.
 *
 * One generation, in the order of the tutorial and of doc/methods.md, section CMA-ES: sample y = B
 * D z (C1); rank; move the mean (C2); path and step size (C3, C4); path and covariance (C5 to C8);
 * decompose C when it has changed enough (C9). A step in the whitened space, C^(-1/2) y, is B z: no
 * inverse is ever formed, and |C^(-1/2) y| is |z|.
 *
 * Every element of every product is summed by one thread in a fixed order, so bits do not depend on
 * the number of threads. Loops over matrices run along rows, several sums at a time, which
 * compilers vectorise without reordering any of them.
 *
 * Left out on purpose: elitism, mirrored sampling, injection of foreign points, per-coordinate
 * first step sizes. */
#include "tune/cmaes_impl.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/rng.h"
#include "tune/boundary.h"
#include "base/eigen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Squares of step sizes and variances within these stay finite whatever a caller does after a stop.
 */
static const double SIGMA_MIN = 1e-150, SIGMA_MAX = 1e150, VARIANCE_MIN = 1e-100,
                    VARIANCE_MAX = 1e100;

/* Multiplications that take some milliseconds; for less, on a busy machine, threads are waited for
 * longer than they help. */
enum { WORTH_THREADS = 1 << 23 };

static size_t rows(int a, int b) { return (size_t)a * (size_t)b; }

static double *variance(const kh_cmaes *c, int i) {
    return c->C + (c->full ? rows(i, c->n + 1) : (size_t)i);
}

double cmaes_variance(const kh_cmaes *c, int i) { return *variance(c, i); }

/* ---------------------------------------------------------------------------------- parameters */

/* (C11) The negative weights add up to the least of three numbers. */
static void set_weights(kh_cmaes *c, const double alpha[3]) {
    double negative = 0, least = fmin(alpha[0], fmin(alpha[1], alpha[2]));
    for (int i = c->mu; i < c->pop; i++)
        negative += c->w[i];
    for (int i = c->mu; i < c->pop; i++)
        c->w[i] = c->o.active && negative < 0 ? c->w[i] * least / -negative : 0;
}

/* (C10) to (C13). */
void cmaes_parameters(kh_cmaes *c) {
    double n = c->n, sum[2] = { 0, 0 }, squares[2] = { 0, 0 };
    c->mu = c->pop / 2;
    for (int i = 0; i < c->pop; i++) {
        c->w[i] = log((c->pop + 1) / 2.0) - log(i + 1);
        sum[i >= c->mu] += c->w[i];
        squares[i >= c->mu] += c->w[i] * c->w[i];
    }
    double mueff = c->mueff = sum[0] * sum[0] / squares[0],
           mueff_neg = squares[1] > 0 ? sum[1] * sum[1] / squares[1] : 0;
    for (int i = 0; i < c->mu; i++)
        c->w[i] /= sum[0];
    c->cs = (mueff + 2) / (n + mueff + 5);
    c->damps = 1 + 2 * fmax(0, sqrt((mueff - 1) / (n + 1)) - 1) + c->cs;
    c->cc = (4 + mueff / n) / (n + 4 + 2 * mueff / n);
    /* (C13) The diagonal alone has n parameters instead of n^2 / 2 and can be learnt faster. */
    double faster = c->full ? 1 : (n + 2) / 3;
    c->c1 = fmin(1, faster * 2 / ((n + 1.3) * (n + 1.3) + mueff));
    c->cmu =
        fmin(1 - c->c1, faster * 2 * (0.25 + mueff + 1 / mueff - 2) / ((n + 2) * (n + 2) + mueff));
    set_weights(c,
        (double[]){ 1 + c->c1 / c->cmu, 1 + 2 * mueff_neg / (mueff + 2),
            (1 - c->c1 - c->cmu) / (n * c->cmu) });
    c->chi = sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n));
    c->gap = c->pop / (c->c1 + c->cmu) / n / 10;
    c->max_evals = c->o.max_evals > 0
        ? c->o.max_evals
        : (long long)(c->pop * floor(100 + 150 * (n + 3) * (n + 3) / sqrt(c->pop)));
}

/* ----------------------------------------------------------------------------- new, copy, free */

/* The next n doubles of the block, 64-byte aligned; *at counts without a block, too. */
static double *take(double *memory, size_t *at, size_t n) {
    double *p = memory ? memory + *at : NULL;
    *at += (n + 7) / 8 * 8;
    return p;
}

/* Sets every array pointer into c->memory, or, while that is NULL, only counts. Returns the size of
 * the block. */
static size_t layout(kh_cmaes *c) {
    size_t n = (size_t)c->n, pop = (size_t)c->pop, square = c->full ? n * n : 0, at = 0;
    double **state[] = { &c->m, &c->ps, &c->pc, &c->best, &c->D };
    double **passing[] = { &c->zw, &c->yw }, **per_candidate[] = { &c->w, &c->len, &c->coef };
    for (int i = 0; i < 5; i++)
        *state[i] = take(c->memory, &at, n);
    c->lo = take(c->memory, &at, c->bounded ? n : 0);
    c->hi = take(c->memory, &at, c->bounded ? n : 0);
    c->C = take(c->memory, &at, c->full ? square : n);
    c->B = take(c->memory, &at, square);
    c->hist = take(c->memory, &at, CMAES_HISTORY);
    c->hist_median = take(c->memory, &at, CMAES_HISTORY);
    c->n_state = at;
    for (int i = 0; i < 2; i++)
        *passing[i] = take(c->memory, &at, n);
    for (int i = 0; i < 3; i++)
        *per_candidate[i] = take(c->memory, &at, pop);
    c->z = take(c->memory, &at, pop * n);
    c->y = take(c->memory, &at, pop * n);
    c->work = take(c->memory, &at, c->full ? kh_eigen_work(c->n) : 0);
    c->window = take(c->memory, &at, CMAES_HISTORY);
    c->rank = (rank *)(void *)take(c->memory, &at, pop * sizeof(rank) / sizeof(double));
    return at;
}

int cmaes_alloc(kh_cmaes *c, kh_err *err) {
    c->memory = NULL;
    c->memory = kh_aligned(layout(c) * sizeof(double));
    if (!c->memory)
        return kh_fail_memory(err);
    layout(c);
    memset(c->memory, 0,
        c->n_state *
            sizeof(double)); /* not the rest: huge populations touch it only when they are used */
    return 0;
}

void kh_cmaes_free(kh_cmaes *c) {
    if (c)
        kh_free(c->memory);
    kh_free(c);
}

int kh_cmaes_copy(kh_cmaes **out, const kh_cmaes *from, kh_err *err) {
    *out = NULL;
    kh_cmaes *c = kh_malloc(sizeof *c);
    if (!c)
        return kh_fail_memory(err);
    *c = *from;
    if (cmaes_alloc(c, err)) {
        kh_free(c);
        return KH_ENOMEM;
    }
    memcpy(c->memory, from->memory, c->n_state * sizeof(double));
    memcpy(c->w, from->w, (size_t)c->pop * sizeof(double));
    c->sampled = false;
    *out = c;
    return 0;
}

/* Bounds of the options into c->lo and c->hi. */
static int set_bounds(kh_cmaes *c, const kh_cmaes_opts *o, kh_err *err) {
    for (int i = 0; i < c->n; i++) {
        double wide = o->bound > 0 ? o->bound : INFINITY;
        double lo = o->lower ? o->lower[i] : -wide, hi = o->upper ? o->upper[i] : wide;
        if (!(lo < hi) || lo == INFINITY || hi == -INFINITY)
            return kh_fail(err, KH_EARG,
                "CMA-ES: coordinate %d is bounded by %g below and %g above; the first must be the "
                "smaller",
                i, lo, hi);
        if ((isfinite(lo) && fabs(lo) > 1e100) || (isfinite(hi) && fabs(hi) > 1e100))
            return kh_fail(err, KH_EARG,
                "CMA-ES: coordinate %d is bounded by %g below and %g above; instead of bounds "
                "beyond 1e+100 give none",
                i, lo, hi);
        c->lo[i] = lo, c->hi[i] = hi;
    }
    return 0;
}

static int set_start(kh_cmaes *c, const double *x0, kh_err *err) {
    for (int i = 0; i < c->n; i++) {
        double x = x0 ? x0[i] : 0;
        if (!(fabs(x) <= 1e100))
            return kh_fail(err, KH_EARG,
                "CMA-ES: coordinate %d of the start is %g; a number between -1e+100 and 1e+100 is "
                "needed",
                i, x);
        if (c->bounded && (x < c->lo[i] || x > c->hi[i]))
            return kh_fail(err, KH_EARG,
                "CMA-ES: coordinate %d of the start is %g, outside its bounds %g .. %g", i, x,
                c->lo[i], c->hi[i]);
        c->best[i] = x;
        c->m[i] = c->bounded ? kh_boundary_inverse(x, c->lo[i], c->hi[i]) : x;
    }
    return 0;
}

/* Steps must stay small beside the period of the boundary map, or the distribution wraps around: a
 * standard deviation is held to a third of the interval. */
static void limit_sigma(kh_cmaes *c) {
    c->sigma = fmin(fmax(c->sigma, SIGMA_MIN), SIGMA_MAX);
    for (int i = 0; c->bounded && i < c->n; i++) /* the other side may be infinite: no limit */
        c->sigma = fmin(c->sigma, (c->hi[i] - c->lo[i]) / 3 / sqrt(cmaes_variance(c, i)));
}

int kh_cmaes_new(
    kh_cmaes **out, const double *x0, int n, double sigma, const kh_cmaes_opts *opts, kh_err *err) {
    *out = NULL;
    kh_cmaes_opts o = opts ? *opts : kh_cmaes_defaults();
    if (cmaes_check(&o, n, sigma, err))
        return KH_EARG;
    kh_cmaes *c = kh_calloc(1, sizeof *c);
    if (!c)
        return kh_fail_memory(err);
    *c = (kh_cmaes){ .o = o,
        .n = n,
        .pop = o.pop > 0 ? o.pop : 4 + (int)floor(3 * log(n)),
        .full = o.variant == KH_CMAES_FULL,
        .bounded = o.lower || o.upper || o.bound > 0,
        .sigma = sigma,
        .best_f = INFINITY,
        .condition = 1 };
    c->o.lower = c->o.upper = NULL;
    c->o.pop = c->pop;
    int rc = cmaes_alloc(c, err);
    if (rc == 0 && c->bounded)
        rc = set_bounds(c, &o, err);
    if (rc == 0)
        rc = set_start(c, x0, err);
    if (rc) {
        kh_cmaes_free(c);
        return rc;
    }
    cmaes_parameters(c);
    for (int i = 0; i < n; i++) {
        c->D[i] = 1;
        *variance(c, i) = 1;
        if (c->full)
            c->B[rows(i, n + 1)] = 1;
    }
    limit_sigma(c);
    c->sigma0 = c->sigma;
    *out = c;
    return 0;
}

/* ----------------------------------------------------------------------------------------- ask */

/* out [k, n] = in [k, n] B, where row j of `in` is scaled by scale (or not, if NULL): k sums over
 * eigenvectors at a time, for one strip of coordinates after another. */
static void times_basis(
    const kh_cmaes *c, const double *in, int k, const double *scale, double *out) {
    enum {
        STRIP = 128
    }; /* coordinates: the sums of 20 candidates then stay in the first-level cache */
    int n = c->n, strips = (n + STRIP - 1) / STRIP;
#pragma omp parallel for schedule(static) \
    num_threads(kh_threads()) if (rows(k, n) * (size_t)n > WORTH_THREADS)
    for (int s = 0; s < strips; s++) {
        int from = s * STRIP, wide = n - from < STRIP ? n - from : STRIP;
        for (int i = 0; i < k; i++)
            memset(out + rows(i, n) + from, 0, (size_t)wide * sizeof *out);
        for (int j = 0; j < n; j++) {
            const double *restrict b = c->B + rows(j, n) + from;
            for (int i = 0; i < k; i++) {
                double *restrict o = out + rows(i, n) + from,
                                 a = in[rows(i, n) + (size_t)j] * (scale ? scale[j] : 1);
                for (int t = 0; t < wide; t++)
                    o[t] += a * b[t];
            }
        }
    }
}

/* (C1) z, y = B D z and |z|^2 of every candidate of this generation. */
static void sample(kh_cmaes *c) {
    int n = c->n;
#pragma omp parallel for schedule(static) \
    num_threads(kh_threads()) if (rows(c->pop, n) > WORTH_THREADS / 32)
    for (int k = 0; k < c->pop; k++) {
        kh_rng r = kh_rng_stream(c->o.seed, KH_RNG_CMAES, (uint32_t)c->generation, (uint32_t)k);
        double *z = c->z + rows(k, n), sum = 0;
        for (int i = 0; i < n; i++) {
            z[i] = kh_rng_normal(&r);
            sum += z[i] * z[i];
            if (!c->full)
                c->y[rows(k, n) + (size_t)i] = c->D[i] * z[i];
        }
        c->len[k] = sum;
    }
    if (c->full)
        times_basis(c, c->z, c->pop, c->D, c->y);
    c->sampled = true;
}

static void point(const kh_cmaes *c, const double *y, double *x) {
    for (int i = 0; i < c->n; i++) {
        double g = y ? c->m[i] + c->sigma * y[i] : c->m[i];
        x[i] = c->bounded ? kh_boundary_map(g, c->lo[i], c->hi[i]) : g;
    }
}

void kh_cmaes_ask(kh_cmaes *c, double *x) {
    if (!c->sampled)
        sample(c);
    for (int k = 0; k < c->pop; k++)
        point(c, c->y + rows(k, c->n), x + rows(k, c->n));
}

/* ---------------------------------------------------------------------------------------- tell */

static int compare(const void *a, const void *b) {
    const rank *p = a, *q = b;
    if (isnan(p->f) != isnan(q->f))
        return isnan(p->f) ? 1 : -1;
    if (p->f != q->f && !isnan(p->f))
        return p->f < q->f ? -1 : 1;
    return p->k < q->k ? -1 : 1;
}

static void order(kh_cmaes *c, const double *f) {
    for (int k = 0; k < c->pop; k++)
        c->rank[k] = (rank){ f[k], k };
    qsort(c->rank, (size_t)c->pop, sizeof *c->rank, compare);
    if (c->rank[0].f < c->best_f) {
        c->best_f = c->rank[0].f;
        point(c, c->y + rows(c->rank[0].k, c->n), c->best);
    }
    c->flat = c->rank[0].f == c->rank[c->pop - 1].f ? c->flat + 1 : 0;
    /* NaN would spoil the medians; as a value it is as bad as infinity. */
    size_t at = (size_t)(c->generation % CMAES_HISTORY);
    double median = c->rank[c->pop / 2].f;
    c->hist[at] = isnan(c->rank[0].f) ? INFINITY : c->rank[0].f;
    c->hist_median[at] = isnan(median) ? INFINITY : median;
}

/* (C2) The weighted means of the better half's y and z; the mean follows the first. */
static void move_mean(kh_cmaes *c) {
    size_t n = (size_t)c->n;
    memset(c->yw, 0, n * sizeof *c->yw);
    memset(c->zw, 0, n * sizeof *c->zw);
    for (int r = 0; r < c->mu; r++) {
        const double *y = c->y + (size_t)c->rank[r].k * n, *z = c->z + (size_t)c->rank[r].k * n,
                     w = c->w[r];
        for (size_t i = 0; i < n; i++) {
            c->yw[i] += w * y[i];
            c->zw[i] += w * z[i];
        }
    }
    for (size_t i = 0; i < n; i++)
        c->m[i] += c->sigma * c->yw[i];
}

/* (C3) The path of the step size, |p_s| returned. It adds up whitened steps: C^(-1/2) y_w = B z_w.
 */
static double update_step_path(kh_cmaes *c) {
    const double *step = c->zw;
    if (c->full) {
        times_basis(c, c->zw, 1, NULL, c->work);
        step = c->work;
    }
    double more = sqrt(c->cs * (2 - c->cs) * c->mueff), sum = 0;
    for (int i = 0; i < c->n; i++) {
        c->ps[i] = (1 - c->cs) * c->ps[i] + more * step[i];
        sum += c->ps[i] * c->ps[i];
    }
    return sqrt(sum);
}

/* (C5) The path of the covariance; stalls (false returned) while the step size is growing fast. */
static bool update_path(kh_cmaes *c, double norm) {
    double started = 1 - pow(1 - c->cs, 2.0 * (double)(c->generation + 1));
    bool go = norm / sqrt(started) < (1.4 + 2.0 / (c->n + 1)) * c->chi;
    double more = go ? sqrt(c->cc * (2 - c->cc) * c->mueff) : 0;
    for (int i = 0; i < c->n; i++)
        c->pc[i] = (1 - c->cc) * c->pc[i] + more * c->yw[i];
    return go;
}

/* What candidate k counts for in C. A bad candidate's step is scaled to the expected length of a
 * step (C7), so that its negative weight cannot make C indefinite. Returns what is kept of C (C8).
 */
static double weigh(kh_cmaes *c, bool go) {
    double total = 0,
           stalled =
               go ? 0 : c->c1 * c->cc * (2 - c->cc); /* makes up for a path that stood still */
    for (int r = 0; r < c->pop; r++) {
        int k = c->rank[r].k;
        total += c->w[r];
        c->coef[k] = c->cmu * (c->w[r] >= 0 ? c->w[r] : c->w[r] * c->n / c->len[k]);
    }
    return 1 - c->c1 - c->cmu * total + stalled;
}

/* (C6) Rank-one and rank-mu update of the lower triangle. */
static void update_full(kh_cmaes *c, double keep) {
    int n = c->n;
#pragma omp parallel for schedule(dynamic, 16) \
    num_threads(kh_threads()) if (rows(c->pop, n) * (size_t)n > WORTH_THREADS)
    for (int i = 0; i < n; i++) {
        double *restrict row = c->C + rows(i, n), a = c->c1 * c->pc[i];
        for (int j = 0; j <= i; j++)
            row[j] = keep * row[j] + a * c->pc[j];
        for (int k = 0; k < c->pop; k++) {
            const double *restrict y = c->y + rows(k, n);
            double b = c->coef[k] * y[i];
            for (int j = 0; j <= i; j++)
                row[j] += b * y[j];
        }
    }
}

/* The same for the diagonal. */
static void update_diagonal(kh_cmaes *c, double keep) {
    for (int i = 0; i < c->n; i++)
        c->C[i] = keep * c->C[i] + c->c1 * c->pc[i] * c->pc[i];
    for (int k = 0; k < c->pop; k++) {
        const double *y = c->y + rows(k, c->n);
        for (int i = 0; i < c->n; i++)
            c->C[i] += c->coef[k] * y[i] * y[i];
    }
}

bool cmaes_in_range(const kh_cmaes *c) {
    bool ok = true;
    for (int i = 0; i < c->n; i++)
        ok = ok && cmaes_variance(c, i) > VARIANCE_MIN && cmaes_variance(c, i) < VARIANCE_MAX;
    return ok;
}

/* The diagonal as eigenvalues: all there is to do for the separable variant. */
static void take_diagonal(kh_cmaes *c) {
    if (c->full)
        memset(c->B, 0, rows(c->n, c->n) * sizeof *c->B);
    for (int i = 0; i < c->n; i++) {
        c->D[i] = cmaes_variance(c, i);
        if (c->full)
            c->B[rows(i, c->n + 1)] = 1;
    }
}

/* (C9) B and D from C. Should LAPACK ever fail, coordinates are taken as independent, and the
 * infinite condition number is a reason to stop. Beyond a condition number of 1e14 rounding can
 * make C indefinite; for callers who do not stop there, C gets the missing bit of a sphere. */
static void decompose(kh_cmaes *c) {
    int n = c->n;
    bool ok = true;
    if (c->full) {
        for (int i = 0; i < n; i++)
            memcpy(c->B + rows(i, n), c->C + rows(i, n), (size_t)(i + 1) * sizeof *c->B);
        ok = kh_eigen_symmetric(n, c->B, c->D, c->work);
    }
    if (!c->full || !ok)
        take_diagonal(c);
    double least = INFINITY, most = 0;
    for (int i = 0; i < n; i++) {
        least = fmin(least, c->D[i]);
        most = fmax(most, c->D[i]);
    }
    double missing = fmax(0, 1e-14 * most - least);
    for (int i = 0; i < n; i++) {
        *variance(c, i) += missing;
        c->D[i] = sqrt(c->D[i] + missing);
    }
    c->condition = ok && least > 0 ? most / least : INFINITY;
    c->eigen_evals = c->evals;
}

/* The distribution after a generation whose values are ranked. */
static void adapt(kh_cmaes *c) {
    move_mean(c);
    double norm = update_step_path(c);
    bool go = update_path(c, norm);
    if (cmaes_in_range(c)) {
        double keep = weigh(c, go);
        if (c->full)
            update_full(c, keep);
        else
            update_diagonal(c, keep);
    }
    c->sigma *= exp(fmin(1, c->cs / c->damps * (norm / c->chi - 1))); /* (C4) */
    if (!c->full || (double)(c->evals - c->eigen_evals) > c->gap)
        decompose(c);
    limit_sigma(c);
}

void kh_cmaes_tell(kh_cmaes *c, const double *f) {
    if (!c->sampled)
        sample(c);
    order(c, f);
    c->evals += c->pop;
    if (!isnan(c->rank[0].f))
        adapt(c);
    c->generation++;
    c->sampled = false;
    c->stop = cmaes_judge(c);
}

/* ------------------------------------------------------------------------------------- getters */

kh_cmaes_reason kh_cmaes_stop(const kh_cmaes *c) { return c->stop; }
int kh_cmaes_dim(const kh_cmaes *c) { return c->n; }
int kh_cmaes_pop(const kh_cmaes *c) { return c->pop; }
long long kh_cmaes_generation(const kh_cmaes *c) { return c->generation; }
long long kh_cmaes_evals(const kh_cmaes *c) { return c->evals; }
double kh_cmaes_sigma(const kh_cmaes *c) { return c->sigma; }
double kh_cmaes_condition(const kh_cmaes *c) { return c->condition; }
void kh_cmaes_mean(const kh_cmaes *c, double *x) { point(c, NULL, x); }

const double *kh_cmaes_best(const kh_cmaes *c, double *f) {
    if (f)
        *f = c->best_f;
    return c->best;
}
