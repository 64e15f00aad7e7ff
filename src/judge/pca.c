/* pca.c - see pca.h.
 *
 * There are fewer samples than dimensions, so the eigenvectors are taken of the n x n matrix of
 * inner products of the centred, weighted samples, by LAPACK. If G = U diag(l) U', the coordinates
 * of sample i are sqrt(l_k) u_ik / sqrt(w_i). */
#include "judge/pca.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/eigen.h"

#include <math.h>

static void centre(const float *x, const double *w, int n, size_t d, double *out) {
    for (size_t k = 0; k < d; k++) {
        double mean = 0;
        for (int i = 0; i < n; i++)
            mean += w[i] * (double)x[(size_t)i * d + k];
        for (int i = 0; i < n; i++)
            out[(size_t)i * d + k] = (double)x[(size_t)i * d + k] - mean;
    }
}

/* sqrt(w_i w_j) <c_i, c_j>, symmetric. */
static void inner_products(const double *c, const double *w, int n, size_t d, double *g) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double sum = 0;
            for (size_t k = 0; k < d; k++)
                sum += c[(size_t)i * d + k] * c[(size_t)j * d + k];
            g[(size_t)i * (size_t)n + (size_t)j] = g[(size_t)j * (size_t)n + (size_t)i] =
                sum * sqrt(w[i] * w[j]);
        }
}

/* Coordinate k of all samples from an eigenvector. Samples without weight are projected onto the
 * direction instead. Eigenvectors have no sign: the sample that is farthest out is put on the
 * positive side, so that pictures of the same posterior look alike. */
static void project(const double *c, const double *w, int n, size_t d, const double *u, double l,
    int k, double *xy) {
    double scale = l > 0 ? sqrt(l) : 0, largest = 0;
    for (int i = 0; i < n; i++) {
        double at = 0;
        for (int j = 0; j < n && l > 0 && w[i] <= 0; j++) {
            double dot = 0;
            for (size_t m = 0; m < d; m++)
                dot += c[(size_t)i * d + m] * c[(size_t)j * d + m];
            at += dot * sqrt(w[j]) * u[j] / scale;
        }
        xy[2 * i + k] = w[i] > 0 ? scale * u[i] / sqrt(w[i]) : at;
        largest = fabs(xy[2 * i + k]) > fabs(largest) + 1e-12 ? xy[2 * i + k] : largest;
    }
    for (int i = 0; i < n && largest < 0; i++)
        xy[2 * i + k] = -xy[2 * i + k];
}

int kh_pca_plane(const float *x, const float *weight, int n, size_t d, double *xy, double share[2],
    kh_err *err) {
    size_t m = (size_t)n;
    double *c = kh_malloc(m * d * sizeof *c), *g = kh_aligned(m * m * sizeof *g),
           *l = kh_aligned(m * sizeof *l), *w = kh_malloc(m * sizeof *w),
           *work = kh_aligned(kh_eigen_work(n) * sizeof *work);
    int rc = c && g && l && w && work ? 0 : kh_fail_memory(err);
    if (rc == 0) {
        double sum = 0, total = 0;
        for (int i = 0; i < n; i++)
            sum += weight ? (double)weight[i] : 1;
        for (int i = 0; i < n; i++)
            w[i] = (weight ? (double)weight[i] : 1) / sum;
        centre(x, w, n, d, c);
        inner_products(c, w, n, d, g);
        if (!kh_eigen_symmetric(n, g, l, work))
            rc = kh_fail(err, KH_EFORMAT, "the samples have no principal components");
        for (int i = 0; i < n && rc == 0; i++)
            total += l[i] > 0 ? l[i] : 0;
        for (int k = 0; k < 2 && rc == 0; k++) { /* eigenvalues ascend */
            bool there = k < n && l[n - 1 - k] > 1e-12 * total;
            share[k] = there ? l[n - 1 - k] / total : 0;
            project(c, w, n, d, g + (k < n ? m - 1 - (size_t)k : 0) * m, there ? l[n - 1 - k] : 0,
                k, xy);
        }
    }
    kh_free(c);
    kh_free(g);
    kh_free(l);
    kh_free(w);
    kh_free(work);
    return rc;
}
