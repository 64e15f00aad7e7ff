/* backward_f64.c - gradients in double, and the plain form of ops.h in double: the oracle of the
 * tests. */
typedef double real;
#define SUFFIX(name) name##_f64
#define SUFFIX2(name, end) name##_f64##end
#define gemm cblas_dgemm
#define PICK_OPS() &kh_ops_plain

#include "model/ops.h"

#include "train/backward_body.h"

static void fill(
    real *y, size_t ldy, int rows, int n, const real *bias, const real *more, size_t ldm) {
    for (int r = 0; r < rows; r++, y += ldy, more += more ? ldm : 0)
        for (int i = 0; i < n; i++)
            y[i] = (bias ? bias[i] : 0) + (more ? more[i] : 0);
}

static void norm(
    real *x, int rows, int n, real eps, const real *gain, const real *bias, real *share, real *y) {
    for (int r = 0; r < rows; r++, x += n, y += n) {
        real mean = 0, variance = 0;
        for (int i = 0; i < n; i++)
            mean += x[i] / n;
        for (int i = 0; i < n; i++)
            variance += (x[i] - mean) * (x[i] - mean) / n;
        share[r] = 1 / sqrt(variance + eps);
        for (int i = 0; i < n; i++) {
            x[i] = (x[i] - mean) * share[r];
            y[i] = x[i] * gain[i] + bias[i];
        }
    }
}

static void norm_back(real *d, int rows, int n, const real *hat, const real *share,
    const real *gain, real *d_gain, real *d_bias) {
    for (int r = 0; r < rows; r++, d += n, hat += n) {
        real mean = 0, mean_hat = 0;
        for (int i = 0; i < n; i++) {
            mean += d[i] * gain[i] / n;
            mean_hat += d[i] * gain[i] * hat[i] / n;
        }
        for (int i = 0; i < n; i++) {
            if (d_gain) {
                d_gain[i] += d[i] * hat[i];
                d_bias[i] += d[i];
            }
            d[i] = share[r] * (d[i] * gain[i] - mean - hat[i] * mean_hat);
        }
    }
}

static void bend(kh_act act, real *x, size_t n, real *y) {
    const real root = 0.79788456080286535588; /* sqrt(2 / pi) */
    for (size_t i = 0; i < n; i++) {
        real z = x[i], phi, u;
        switch (act) {
        case KH_ACT_GELU:
            phi = 0.5 * (1 + erf(z * 0.70710678118654752440));
            y[i] = z * phi;
            x[i] = phi + z * 0.39894228040143267794 * exp(-z * z / 2);
            break;
        case KH_ACT_GELU_TANH:
            u = tanh(root * (z + 0.044715 * z * z * z));
            y[i] = 0.5 * z * (1 + u);
            x[i] = 0.5 * (1 + u) + 0.5 * z * (1 - u * u) * root * (1 + 3 * 0.044715 * z * z);
            break;
        case KH_ACT_SILU:
            u = 1 / (1 + exp(-z));
            y[i] = z * u;
            x[i] = u + z * u * (1 - u);
            break;
        case KH_ACT_RELU:
            y[i] = z > 0 ? z : 0;
            x[i] = z > 0 ? 1 : 0;
            break;
        }
    }
}

static void softmax(real *x, size_t ld, int rows, int n, real scale) {
    for (int r = 0; r < rows; r++, x += ld) {
        real max = x[0], sum = 0;
        for (int i = 1; i < n; i++)
            max = x[i] > max ? x[i] : max;
        for (int i = 0; i < n; i++)
            sum += x[i] = exp(scale * (x[i] - max));
        for (int i = 0; i < n; i++)
            x[i] /= sum;
    }
}

static void softmax_back(real *d, const real *p, size_t ld, int rows, int n, real scale) {
    for (int r = 0; r < rows; r++, d += ld, p += ld) {
        real mean = 0;
        for (int i = 0; i < n; i++)
            mean += d[i] * p[i];
        for (int i = 0; i < n; i++)
            d[i] = p[i] * (d[i] - mean) * scale;
    }
}

static double cross_entropy(real *x, int n, int target, real scale) {
    real max = x[0], sum = 0, at_target = x[target];
    for (int i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int i = 0; i < n; i++)
        sum += x[i] = exp(x[i] - max);
    for (int i = 0; i < n; i++)
        x[i] *= scale / sum;
    x[target] -= scale;
    return scale * (log(sum) - (at_target - max));
}

static void column_sums(const real *x, size_t ld, int rows, int n, real *sum) {
    for (int r = 0; r < rows; r++, x += ld)
        for (int i = 0; i < n; i++)
            sum[i] += x[i];
}

static void multiply(real *x, const real *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] *= y[i];
}

static void add(real *x, const real *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

static double square_sum(const real *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

static void adamw(const kh_adamw_f64 *s, real *w, const real *g, real *m, real *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        real d = g[i] * s->scale;
        m[i] = s->beta1 * m[i] + (1 - s->beta1) * d;
        v[i] = s->beta2 * v[i] + (1 - s->beta2) * d * d;
        w[i] = s->keep * w[i] - s->rate * m[i] / (sqrt(v[i]) * s->correction + s->eps);
    }
}

const kh_ops_f64 kh_ops_plain = { fill, norm, norm_back, bend, softmax, softmax_back, cross_entropy,
    column_sums, multiply, add, square_sum, adamw, NULL };
