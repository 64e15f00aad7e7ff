/* directions.c - see directions.h. doc/methods.md, L19 and L20.
 *
 * A step along an axis w that is x' = sqrt(1 - b^2) x + b xi in the coordinate w.x is reversible
 * under the standard normal distribution of that coordinate, whatever b is; coordinates along axes
 * at right angles are independent under N(0, I), so that each may have a b of its own (the
 * operator-weighted steps of Law 2014 and of Cui, Law and Marzouk 2016). Where the points differ
 * much from each other there is room for long steps, where they hardly differ for short ones only.
 *
 * The points are few, often fewer than the dimensions, and the eigenvalues of their covariance
 * differ much by chance alone. So it is drawn towards a multiple of the identity as far as Ledoit
 * and Wolf (2004) estimate from the same points; where that is all the way, no direction is known
 * and steps are as long everywhere. Everything is computed from the points' inner products: n by n,
 * however many dimensions there are. */
#include "tune/directions.h"

#include "base/alloc.h"
#include "base/eigen.h"
#include "base/err.h"

#include <math.h>
#include <string.h>

enum { LEAST_POINTS = 4 };
static const double TINY = 1e-9; /* of the largest eigenvalue: the points are not spread there */

int kh_directions_new(kh_directions *d, int most, int dim, kh_err *err) {
    size_t n = (size_t)most, size = n * (size_t)dim;
    *d = (kh_directions){ .dim = dim,
        .most = most,
        .rest = 1,
        .w = kh_malloc(size * sizeof *d->w),
        .length = kh_malloc(n * sizeof *d->length),
        .gram = kh_aligned(n * n * sizeof *d->gram),
        .value = kh_aligned(n * sizeof *d->value),
        .work = kh_aligned(kh_eigen_work(most) * sizeof *d->work),
        .mean = kh_malloc((size_t)dim * sizeof *d->mean),
        .noise = kh_malloc((size_t)dim * sizeof *d->noise) };
    bool all = d->w && d->length && d->gram && d->value && d->work && d->mean && d->noise;
    return all ? 0 : kh_fail_memory(err);
}

void kh_directions_free(kh_directions *d) {
    kh_free(d->w);
    kh_free(d->length);
    kh_free(d->gram);
    kh_free(d->value);
    kh_free(d->work);
    kh_free(d->mean);
    kh_free(d->noise);
    *d = (kh_directions){ 0 };
}

static double dot(const double *a, const double *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Inner products of the points, around their mean. */
static void inner_products(kh_directions *d, const double *x, int n) {
    size_t dim = (size_t)d->dim;
    memset(d->mean, 0, dim * sizeof *d->mean);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < dim; k++)
            d->mean[k] += x[(size_t)i * dim + k] / n;
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double sum = 0;
            for (size_t k = 0; k < dim; k++)
                sum += (x[(size_t)i * dim + k] - d->mean[k]) *
                    (x[(size_t)j * dim + k] - d->mean[k]);
            d->gram[i * n + j] = d->gram[j * n + i] = sum;
        }
}

/* (L19) How much of the covariance's deviation from a multiple of the identity is chance: its
 * estimated variance against what there is of it. `mean`: that multiple. */
static double chance(const kh_directions *d, int n, double *mean) {
    double trace = 0, squares = 0, fourth = 0;
    for (int i = 0; i < n; i++) {
        trace += d->gram[i * n + i] / n;
        fourth += d->gram[i * n + i] * d->gram[i * n + i] / n;
        for (int j = 0; j < n; j++)
            squares += d->gram[i * n + j] * d->gram[i * n + j] / n / n;
    }
    *mean = trace / d->dim;
    double off = squares - trace * trace / d->dim, noise = (fourth - squares) / n;
    return off > 0 && noise < off ? noise / off : 1;
}

/* Row j of the eigenvectors of the inner products, as a direction in the points' own space. */
static void put_direction(kh_directions *d, const double *x, int n, int j, double *w) {
    size_t dim = (size_t)d->dim;
    memset(w, 0, dim * sizeof *w);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < dim; k++)
            w[k] += d->gram[j * n + i] * (x[(size_t)i * dim + k] - d->mean[k]);
    double norm = sqrt(dot(w, w, d->dim));
    for (size_t k = 0; k < dim; k++)
        w[k] /= norm;
}

void kh_directions_learn(kh_directions *d, const double *x, int n) {
    double mean;
    d->n = 0;
    d->rest = d->shrunk = 1;
    if (n < LEAST_POINTS || n > d->most)
        return;
    inner_products(d, x, n);
    d->shrunk = chance(d, n, &mean);
    if (d->shrunk >= 1 || !kh_eigen_symmetric(n, d->gram, d->value, d->work)) {
        d->shrunk = 1;
        return;
    }
    d->rest = sqrt(d->shrunk);
    for (int j = n - 1; j >= 0 && d->n < d->dim && d->value[j] > TINY * d->value[n - 1]; j--) {
        double variance = d->shrunk * mean + (1 - d->shrunk) * d->value[j] / n;
        put_direction(d, x, n, j, d->w + (size_t)d->n * (size_t)d->dim);
        d->length[d->n++] = sqrt(variance / mean);
    }
}

/* (L20) */
void kh_directions_move(
    const kh_directions *d, double b, kh_rng *r, const double *from, double *to) {
    double step = b * d->rest < 1 ? b * d->rest : 1, keep = sqrt(1 - step * step);
    for (int k = 0; k < d->dim; k++) {
        d->noise[k] = kh_rng_normal(r);
        to[k] = keep * from[k] + step * d->noise[k];
    }
    for (int j = 0; j < d->n; j++) {
        const double *w = d->w + (size_t)j * (size_t)d->dim;
        double own = b * d->length[j] < 1 ? b * d->length[j] : 1;
        double more = (sqrt(1 - own * own) - keep) * dot(w, from, d->dim) +
            (own - step) * dot(w, d->noise, d->dim);
        for (int k = 0; k < d->dim; k++)
            to[k] += more * w[k];
    }
}
