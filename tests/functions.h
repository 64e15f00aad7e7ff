/* functions.h - functions with a known optimum, and a loop that minimises them. */
#ifndef KH_TEST_FUNCTIONS_H
#define KH_TEST_FUNCTIONS_H

#include "test.h"

#include "tune/cmaes.h"

#include <math.h>

typedef double function(const double *x, int n);

static inline double sphere(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

static inline double ellipsoid(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += pow(10, 6.0 * i / (n - 1)) * x[i] * x[i];
    return sum;
}

static inline double cigar(const double *x, int n) {
    return x[0] * x[0] + 1e6 * sphere(x + 1, n - 1);
}
static inline double discus(const double *x, int n) {
    return 1e6 * x[0] * x[0] + sphere(x + 1, n - 1);
}

static inline double diffpow(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += pow(fabs(x[i]), 2 + 10.0 * i / (n - 1));
    return sum;
}

static inline double rosenbrock(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i + 1 < n; i++)
        sum += 100 * pow(x[i] * x[i] - x[i + 1], 2) + pow(x[i] - 1, 2);
    return sum;
}

/* The ellipsoid after a reflection at a plane across all coordinates, which mixes every one with
 * every other. */
static inline double turned_ellipsoid(const double *x, int n) {
    double y[64], dot = 0, length = 0;
    assert_true(n <= 64);
    for (int i = 0; i < n; i++) {
        dot += (1 + i % 3) * x[i];
        length += (1 + i % 3) * (1 + i % 3);
    }
    for (int i = 0; i < n; i++)
        y[i] = x[i] - 2 * dot / length * (1 + i % 3);
    return ellipsoid(y, n);
}

/* From (start, start, ...). */
static inline kh_cmaes *new_cmaes(int n, double start, double sigma, const kh_cmaes_opts *o) {
    double *x0 = calloc((size_t)n, sizeof *x0);
    for (int i = 0; i < n; i++)
        x0[i] = start;
    kh_err err = { 0 };
    kh_cmaes *c;
    if (kh_cmaes_new(&c, x0, n, sigma, o, &err))
        fail_msg("%s", err.msg);
    free(x0);
    return c;
}

/* At most so many generations, or until a stop; fewer than 0: until a stop. */
static inline kh_cmaes_reason minimise(kh_cmaes *c, function *f, int generations) {
    int n = kh_cmaes_dim(c), pop = kh_cmaes_pop(c);
    double *x = malloc((size_t)n * (size_t)pop * sizeof *x),
           *value = malloc((size_t)pop * sizeof *value);
    for (int g = 0; g != generations && (generations >= 0 || !kh_cmaes_stop(c)); g++) {
        kh_cmaes_ask(c, x);
        for (int k = 0; k < pop; k++)
            value[k] = f(x + (size_t)k * (size_t)n, n);
        kh_cmaes_tell(c, value);
    }
    free(x);
    free(value);
    return kh_cmaes_stop(c);
}

#endif
