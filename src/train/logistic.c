/* logistic.c - see logistic.h. L-BFGS (Liu and Nocedal 1989) with a backtracking line search: sums
 * in double, in the order of the rows, on one thread. */
#include "train/logistic.h"

#include "base/alloc.h"
#include "base/blas.h"
#include "base/err.h"
#include "base/logsum.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

enum { MEMORY = 10, MAX_STEPS = 500, MAX_HALVINGS = 40 };
static const double FLAT = 1e-7;   /* the largest slope at which it is done */
static const double ENOUGH = 1e-4; /* of the decrease that the slope promises (Armijo) */

typedef struct fit {
    const kh_logistic_rows *r;
    double ridge;
    int size;          /* numbers in w */
    double *logit;     /* [n, n_label] */
    double *w, *g, *d; /* point, slope, direction */
    double *trial, *trial_g;
    double *s[MEMORY], *y[MEMORY]; /* the last steps and changes of slope */
    double rho[MEMORY], a[MEMORY];
    int n_kept;
} fit;

/* logits become log-probabilities */
static void normalise(double *v, int n) {
    double all = kh_log_sum_exp(v, n);
    for (int k = 0; k < n; k++)
        v[k] -= all;
}

void kh_logistic_answer(
    const double *w, const double *x, int n, int dim, int n_label, double *logprob) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n_label; k++)
            logprob[(size_t)i * (size_t)n_label + (size_t)k] =
                w[(size_t)k * ((size_t)dim + 1) + (size_t)dim];
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n_label, dim, 1, x, dim, w, dim + 1, 1,
        logprob, n_label);
    for (int i = 0; i < n; i++)
        normalise(logprob + (size_t)i * (size_t)n_label, n_label);
}

/* The value at w, and its slope g. */
static double value(fit *f, const double *w, double *g) {
    const kh_logistic_rows *r = f->r;
    size_t dim = (size_t)r->dim, n_label = (size_t)r->n_label;
    double sum = 0, used = 0;
    for (int i = 0; i < r->n; i++)
        used += r->label[i] >= 0;
    kh_logistic_answer(w, r->x, r->n, r->dim, r->n_label, f->logit);
    for (int i = 0; i < r->n; i++) {
        double *p = f->logit + (size_t)i * n_label;
        int label = r->label[i];
        sum -= label >= 0 ? p[label] / used : 0;
        for (int k = 0; k < r->n_label; k++)
            p[k] = label >= 0 ? (exp(p[k]) - (k == label)) / used : 0;
    }
    memset(g, 0, (size_t)f->size * sizeof *g);
    cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, r->n_label, r->dim, r->n, 1, f->logit,
        r->n_label, r->x, r->dim, 0, g, r->dim + 1);
    for (size_t k = 0; k < n_label; k++) {
        double *own = g + k * (dim + 1);
        const double *from = w + k * (dim + 1);
        for (int i = 0; i < r->n; i++)
            own[dim] += f->logit[(size_t)i * n_label + k];
        for (size_t j = 0; j < dim; j++) {
            own[j] += f->ridge * from[j];
            sum += f->ridge / 2 * from[j] * from[j];
        }
    }
    return sum;
}

static double dot(const double *a, const double *b, int n) { return cblas_ddot(n, a, 1, b, 1); }

/* d = -H g, H the inverse of the curvature as the last steps show it. */
static void choose_direction(fit *f) {
    int n = f->size, kept = f->n_kept < MEMORY ? f->n_kept : MEMORY;
    for (int i = 0; i < n; i++)
        f->d[i] = -f->g[i];
    for (int i = 0; i < kept; i++) {
        int m = (f->n_kept - 1 - i) % MEMORY;
        f->a[m] = f->rho[m] * dot(f->s[m], f->d, n);
        cblas_daxpy(n, -f->a[m], f->y[m], 1, f->d, 1);
    }
    if (kept > 0) {
        int m = (f->n_kept - 1) % MEMORY;
        cblas_dscal(n, 1 / (f->rho[m] * dot(f->y[m], f->y[m], n)), f->d, 1);
    }
    for (int i = kept - 1; i >= 0; i--) {
        int m = (f->n_kept - 1 - i) % MEMORY;
        double b = f->rho[m] * dot(f->y[m], f->d, n);
        cblas_daxpy(n, f->a[m] - b, f->s[m], 1, f->d, 1);
    }
}

static void remember(fit *f) {
    int m = f->n_kept % MEMORY;
    for (int i = 0; i < f->size; i++) {
        f->s[m][i] = f->trial[i] - f->w[i];
        f->y[m][i] = f->trial_g[i] - f->g[i];
    }
    double curve = dot(f->s[m], f->y[m], f->size);
    if (curve > 0) { /* always, but for rounding */
        f->rho[m] = 1 / curve;
        f->n_kept++;
    }
    memcpy(f->w, f->trial, (size_t)f->size * sizeof *f->w);
    memcpy(f->g, f->trial_g, (size_t)f->size * sizeof *f->g);
}

/* A step along d that decreases the value enough; false: rounding leaves none. */
static bool step(fit *f, double *now) {
    double slope = dot(f->g, f->d, f->size), length = 1;
    for (int i = 0; i < MAX_HALVINGS; i++, length /= 2) {
        for (int j = 0; j < f->size; j++)
            f->trial[j] = f->w[j] + length * f->d[j];
        double then = value(f, f->trial, f->trial_g);
        if (then <= *now + ENOUGH * length * slope && then < *now) {
            *now = then;
            remember(f);
            return true;
        }
    }
    return false;
}

int kh_logistic_fit(const kh_logistic_rows *r, double ridge, double *w, kh_err *err) {
    int size = r->n_label * (r->dim + 1);
    size_t n = (size_t)size;
    fit f = { .r = r, .ridge = ridge, .size = size, .w = w };
    double *memory =
        kh_malloc(((4 + 2 * MEMORY) * n + (size_t)r->n * (size_t)r->n_label) * sizeof *memory);
    if (!memory)
        return kh_fail_memory(err);
    f.g = memory, f.d = f.g + n, f.trial = f.d + n, f.trial_g = f.trial + n;
    for (int m = 0; m < MEMORY; m++) {
        f.s[m] = f.trial_g + n + 2 * (size_t)m * n;
        f.y[m] = f.s[m] + n;
    }
    f.logit = f.trial_g + n + 2 * MEMORY * n;
    kh_blas_hold();
    double now = value(&f, w, f.g);
    for (int i = 0; i < MAX_STEPS; i++) {
        if (fabs(f.g[cblas_idamax(size, f.g, 1)]) < FLAT)
            break;
        choose_direction(&f);
        if (!step(&f, &now))
            break;
    }
    kh_blas_release();
    kh_free(memory);
    return 0;
}
