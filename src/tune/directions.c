/* directions.c - see directions.h. doc/methods.md, L19 and L20.
 *
 * A step along an axis w that is x' = sqrt(1 - b^2) x + b xi in the coordinate w.x is reversible
 * under the standard normal distribution of that coordinate, whatever b is; coordinates along axes
 * at right angles are independent under N(0, I), so that each may have a b of its own (the
 * operator-weighted steps of Law 2014 and of Cui, Law and Marzouk 2016). Where the points hardly
 * differ there is room for short steps only, and these must not hold back the others.
 *
 * The points are few, and eigenvalues of their covariance differ by chance alone: those of n draws
 * from N(0, I) in d dimensions are not below (1 - sqrt(d / n))^2 (Marchenko and Pastur 1967). A
 * direction is known where the eigenvalue is half of that or less; with fewer points than twice the
 * dimensions, none is. Everything is computed from the points' inner products: n by n, however many
 * dimensions there are. */
#include "tune/directions.h"

#include "base/alloc.h"
#include "base/eigen.h"
#include "base/err.h"

#include <math.h>
#include <string.h>

static const double SURELY = 0.5; /* of what chance leaves at least */
static const double SHORTEST = 0.02, TINY = 1e-12;

int kh_directions_new(kh_directions *d, int most, int dim, kh_err *err) {
    size_t n = (size_t)most, size = n * (size_t)dim;
    *d = (kh_directions){ .dim = dim,
        .most = most,
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
                sum +=
                    (x[(size_t)i * dim + k] - d->mean[k]) * (x[(size_t)j * dim + k] - d->mean[k]);
            d->gram[i * n + j] = d->gram[j * n + i] = sum;
        }
}

/* Row j of the eigenvectors of the inner products, as a direction in the points' own space. */
static void put_direction(kh_directions *d, const double *x, int n, int j, double *w) {
    size_t dim = (size_t)d->dim;
    memset(w, 0, dim * sizeof *w);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < dim; k++)
            w[k] += d->gram[j * n + i] * (x[(size_t)i * dim + k] - d->mean[k]);
    for (int i = 0; i < d->n; i++) { /* at right angles to the last bits */
        const double *known = d->w + (size_t)i * dim;
        double part = dot(w, known, d->dim);
        for (size_t k = 0; k < dim; k++)
            w[k] -= part * known[k];
    }
    double norm = sqrt(dot(w, w, d->dim));
    for (size_t k = 0; k < dim && norm > 0; k++)
        w[k] /= norm;
}

/* (L19) Of the n eigenvalues of the inner products, all but dim are zero: the points have
 * no more directions. What stands behind these in the ascending order are the narrow ones. */
void kh_directions_learn(kh_directions *d, const double *x, int n) {
    double mean = 0, few = sqrt((double)d->dim / n);
    d->n = 0;
    if (n <= 2 * d->dim || n > d->most)
        return;
    inner_products(d, x, n);
    for (int i = 0; i < n; i++)
        mean += d->gram[i * n + i] / n / d->dim;
    if (!kh_eigen_symmetric(n, d->gram, d->value, d->work))
        return;
    for (int j = n - d->dim; j < n; j++) {
        double variance = d->value[j] / n / mean;
        if (!(variance > TINY) || variance > SURELY * (1 - few) * (1 - few))
            continue;
        put_direction(d, x, n, j, d->w + (size_t)d->n * (size_t)d->dim);
        d->length[d->n++] = fmax(sqrt(variance), SHORTEST);
    }
}

/* (L20) */
void kh_directions_move(
    const kh_directions *d, double b, kh_rng *r, const double *from, double *to) {
    double keep = sqrt(1 - b * b);
    for (int k = 0; k < d->dim; k++) {
        d->noise[k] = kh_rng_normal(r);
        to[k] = keep * from[k] + b * d->noise[k];
    }
    for (int j = 0; j < d->n; j++) {
        const double *w = d->w + (size_t)j * (size_t)d->dim;
        double own = b * d->length[j];
        double more = (sqrt(1 - own * own) - keep) * dot(w, from, d->dim) +
            (own - b) * dot(w, d->noise, d->dim);
        for (int k = 0; k < d->dim; k++)
            to[k] += more * w[k];
    }
}
