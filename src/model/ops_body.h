/* ops_body.h - ops.h in vectors of WIDTH floats; included after kernels_body.h, whose vectors,
 * exponential and sums it uses. Loops without a sum across lanes are left to the compiler. Every
 * sum has one fixed order. */

#include "model/ops.h"
#include "model/product_bf16_body.h"

static void fill(
    float *y, size_t ldy, int rows, int n, const float *bias, const float *more, size_t ldm) {
    for (int r = 0; r < rows; r++, y += ldy, more = more ? more + ldm : NULL)
        if (bias && more)
            for (int i = 0; i < n; i++)
                y[i] = bias[i] + more[i];
        else if (bias || more)
            memcpy(y, bias ? bias : more, (size_t)n * sizeof *y);
        else
            memset(y, 0, (size_t)n * sizeof *y);
}

static void norm(float *x, int rows, int n, float eps, const float *gain, const float *bias,
    float *share, float *y) {
    for (int r = 0; r < rows; r++, x += n, y += n) {
        float mean = row_sum(x, n, 0, false) / (float)n;
        float s = 1 / sqrtf(row_sum(x, n, mean, true) / (float)n + eps);
        share[r] = s;
        for (int i = 0; i < n; i++) {
            x[i] = (x[i] - mean) * s;
            y[i] = x[i] * gain[i] + bias[i];
        }
    }
}

/* With e = d * gain: share * (e - mean(e) - hat * mean(e * hat)). */
static void norm_back(float *d, int rows, int n, const float *hat, const float *share,
    const float *gain, float *d_gain, float *d_bias) {
    for (int r = 0; r < rows; r++, d += n, hat += n) {
        v_f32 sum = splat(0), sum_hat = splat(0);
        int i = 0;
        for (; i + WIDTH <= n; i += WIDTH) {
            v_f32 e = load(d + i) * load(gain + i);
            sum += e;
            sum_hat += e * load(hat + i);
        }
        float mean = sum_lanes(sum), mean_hat = sum_lanes(sum_hat);
        for (; i < n; i++) {
            mean += d[i] * gain[i];
            mean_hat += d[i] * gain[i] * hat[i];
        }
        mean /= (float)n;
        mean_hat /= (float)n;
        for (i = 0; d_gain && i < n; i++) {
            d_gain[i] += d[i] * hat[i];
            d_bias[i] += d[i];
        }
        for (i = 0; i < n; i++)
            d[i] = share[r] * (d[i] * gain[i] - mean - hat[i] * mean_hat);
    }
}

/* Value and slope of x Phi(x): Phi(x) + x phi(x), where phi(x) is e^(-x^2 / 2) / sqrt(2 pi). erf as
 * in gelu_f32. */
static inline v_f32 gelu_slope(v_f32 x, v_f32 *slope) {
    v_f32 z = x * splat(0.70710678f);
    v_f32 a = larger(z, -z);
    v_f32 t = splat(1.0f) / (splat(1.0f) + splat(0.3275911f) * a);
    v_f32 p = splat(1.061405429f), e = exp_f32(-a * a);
    p = p * t + splat(-1.453152027f);
    p = p * t + splat(1.421413741f);
    p = p * t + splat(-0.284496736f);
    p = p * t + splat(0.254829592f);
    v_f32 tail = splat(0.5f) * p * t * e;
    v_f32 phi = choose(z < splat(0.0f), tail, splat(1.0f) - tail);
    *slope = phi + x * splat(0.39894228f) * e;
    return x * phi;
}

/* s = 1 / (1 + e^(-2 u)): the slope is s + 2 x s (1 - s) u'. */
static inline v_f32 gelu_tanh_slope(v_f32 x, v_f32 *slope) {
    v_f32 u = splat(0.79788456f) * (x + splat(0.044715f) * x * x * x);
    v_f32 s = splat(1.0f) / (splat(1.0f) + exp_f32(splat(-2.0f) * u));
    *slope = s +
        splat(2.0f) * x * s * (splat(1.0f) - s) * splat(0.79788456f) *
            (splat(1.0f) + splat(0.134145f) * x * x);
    return x * s;
}

/* x s with s = 1 / (1 + e^-x): the slope is s + x s (1 - s). */
static inline v_f32 silu_slope(v_f32 x, v_f32 *slope) {
    v_f32 s = splat(1.0f) / (splat(1.0f) + exp_f32(-x));
    *slope = s + x * s * (splat(1.0f) - s);
    return x * s;
}

static inline v_f32 bend_slope(kh_act act, v_f32 x, v_f32 *slope) {
    switch (act) {
    case KH_ACT_GELU: return gelu_slope(x, slope);
    case KH_ACT_GELU_TANH: return gelu_tanh_slope(x, slope);
    case KH_ACT_SILU: return silu_slope(x, slope);
    case KH_ACT_RELU: break;
    }
    *slope = choose(x > splat(0.0f), splat(1.0f), splat(0.0f));
    return choose(x > splat(0.0f), x, splat(0.0f));
}

static void bend_rows(kh_act act, float *x, size_t n, float *y) {
    v_f32 slope;
    size_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        store(y + i, bend_slope(act, load(x + i), &slope));
        store(x + i, slope);
    }
    float rest[WIDTH] = { 0 }, value[WIDTH];
    memcpy(rest, x + i, (n - i) * sizeof *x);
    store(value, bend_slope(act, load(rest), &slope));
    store(rest, slope);
    memcpy(y + i, value, (n - i) * sizeof *x);
    memcpy(x + i, rest, (n - i) * sizeof *x);
}

/* Rows of the attention have room for whole vectors (ld is a multiple of 16). */
static void softmax_rows(float *x, size_t ld, int rows, int n, float scale) {
    for (int r = 0; r < rows; r++, x += ld)
        softmax(x, n, scale);
}

static void softmax_back(float *d, const float *p, size_t ld, int rows, int n, float scale) {
    for (int r = 0; r < rows; r++, d += ld, p += ld) {
        v_f32 sum = splat(0);
        int i = 0;
        for (; i + WIDTH <= n; i += WIDTH)
            sum += load(d + i) * load(p + i);
        float mean = sum_lanes(sum);
        for (; i < n; i++)
            mean += d[i] * p[i];
        for (i = 0; i < n; i++)
            d[i] = p[i] * (d[i] - mean) * scale;
    }
}

static double cross_entropy(float *x, int n, int target, float scale) {
    v_f32 top = splat(-INFINITY), sum = splat(0);
    int i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        top = larger(top, load(x + i));
    float max = max_lanes(top), at_target = x[target];
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (i = 0; i + WIDTH <= n; i += WIDTH) {
        v_f32 e = exp_f32(load(x + i) - splat(max));
        sum += e;
        store(x + i, e);
    }
    float rest[WIDTH] = { 0 };
    for (int j = 0; j < WIDTH; j++)
        rest[j] = i + j < n ? x[i + j] - max : -INFINITY;
    v_f32 e = exp_f32(load(rest));
    sum += e;
    store(rest, e);
    memcpy(x + i, rest, (size_t)(n - i) * sizeof *x);
    float total = sum_lanes(sum), share = scale / total;
    for (i = 0; i < n; i++)
        x[i] *= share;
    x[target] -= scale;
    return (double)scale * (log((double)total) - (double)(at_target - max));
}

static void column_sums(const float *x, size_t ld, int rows, int n, float *sum) {
    for (int r = 0; r < rows; r++, x += ld)
        for (int i = 0; i < n; i++)
            sum[i] += x[i];
}

static void multiply(float *x, const float *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] *= y[i];
}

static void add(float *x, const float *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

/* In double, lane by lane: millions of small squares are added. */
static double square_sum(const float *x, size_t n) {
    double sum[WIDTH] = { 0 };
    size_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH)
        for (int j = 0; j < WIDTH; j++)
            sum[j] += (double)x[i + (size_t)j] * (double)x[i + (size_t)j];
    for (; i < n; i++)
        sum[0] += (double)x[i] * (double)x[i];
    double total = 0;
    for (int j = 0; j < WIDTH; j++)
        total += sum[j];
    return total;
}

static void adamw(const kh_adamw_f32 *s, float *w, const float *g, float *m, float *v, size_t n) {
    kh_adamw_f32 step = *s;
    for (size_t i = 0; i < n; i++) {
        float d = g[i] * step.scale;
        m[i] = step.beta1 * m[i] + (1 - step.beta1) * d;
        v[i] = step.beta2 * v[i] + (1 - step.beta2) * d * d;
        w[i] = step.keep * w[i] - step.rate * m[i] / (sqrtf(v[i]) * step.correction + step.eps);
    }
}

static const kh_ops_f32 train_ops = { fill, norm, norm_back, bend_rows, softmax_rows, softmax_back,
    cross_entropy, column_sums, multiply, add, square_sum, adamw, product_bf16 };
