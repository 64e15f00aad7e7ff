/* rng.c - Philox 4x32-10 and what is drawn from it.
 *
 * Normals come from the inverse distribution function, so each takes exactly one uniform and the
 * k-th normal of a stream can be found without the ones before it. The function is Wichura's AS 241
 * (PPND16): three rational approximations, the outer two in r = sqrt(-log p). The logarithm is our
 * own for the reason given in rng.h. */
#include "base/rng.h"

#include <assert.h>
#include <math.h>

static const uint32_t PHILOX_M0 = 0xD2511F53u, PHILOX_M1 = 0xCD9E8D57u; /* round multipliers */
static const uint32_t PHILOX_W0 = 0x9E3779B9u,
                      PHILOX_W1 = 0xBB67AE85u; /* key increments: golden ratio, sqrt(3) - 1 */

void kh_philox(const uint32_t in[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = in[0], c1 = in[1], c2 = in[2], c3 = in[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * c0, p1 = (uint64_t)PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

kh_rng kh_rng_stream(uint64_t seed, kh_purpose purpose, uint32_t i, uint32_t j) {
    return (kh_rng){
        .key = { (uint32_t)seed, (uint32_t)(seed >> 32) },
        .counter = { 0, j, i, (uint32_t)purpose },
    };
}

uint32_t kh_rng_u32(kh_rng *r) {
    if (r->left == 0) {
        kh_philox(r->counter, r->key, r->word);
        r->counter[0]++;
        r->left = 4;
    }
    return r->word[4 - r->left--];
}

uint64_t kh_rng_u64(kh_rng *r) {
    uint64_t low = kh_rng_u32(r);
    return (uint64_t)kh_rng_u32(r) << 32 | low;
}

/* 52 bits, not 53: with the half added the sum must still fit the 53 of a double, or the largest
 * would round to 1. */
double kh_rng_uniform(kh_rng *r) { return ((double)(kh_rng_u64(r) >> 12) + 0.5) * 0x1p-52; }

double kh_rng_normal(kh_rng *r) { return kh_normal_quantile(kh_rng_uniform(r)); }

/* Lemire's multiplication method: the high word of x * n is unbiased once the few low words below
 * 2^32 mod n are thrown away. */
uint32_t kh_rng_below(kh_rng *r, uint32_t n) {
    assert(n > 0);
    uint32_t reject = (0u - n) % n;
    uint64_t product;
    do
        product = (uint64_t)kh_rng_u32(r) * n;
    while ((uint32_t)product < reject);
    return (uint32_t)(product >> 32);
}

int kh_rng_categorical(kh_rng *r, const double *weight, int n) {
    double total = 0;
    for (int k = 0; k < n; k++)
        total += weight[k];
    assert(total > 0);
    double u = kh_rng_uniform(r) * total;
    int last = 0; /* the last class with weight: rounding in the sum may leave u beyond it */
    for (int k = 0; k < n; k++) {
        if (weight[k] <= 0)
            continue;
        last = k;
        u -= weight[k];
        if (u < 0)
            break;
    }
    return last;
}

void kh_rng_permutation(kh_rng *r, int *out, int n) {
    for (int k = 0; k < n; k++) {
        int at = (int)kh_rng_below(r, (uint32_t)k + 1);
        out[k] = out[at];
        out[at] = k;
    }
}

/* log x for normal x > 0: x = m 2^e with m in [sqrt(1/2), sqrt 2), log m = 2 atanh((m - 1) / (m +
 * 1)) by its series, whose terms end below 2^-54 after s^2 <= 0.0295 has been raised to the 11th
 * power. */
static double portable_log(double x) {
    int e;
    double m = frexp(x, &e); /* exact */
    if (m < 0.70710678118654752440) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1), s2 = s * s, sum = 0;
    for (int k = 21; k >= 1; k -= 2)
        sum = sum * s2 + 1.0 / k;
    const double ln2_high = 0x1.62e42fefa3800p-1,
                 ln2_low = 0x1.ef35793c76730p-45; /* ln 2 in two parts */
    return e * ln2_high + (2 * s * sum + e * ln2_low);
}

/* c[0] + c[1] x + ... + c[7] x^7 */
static double poly7(const double c[8], double x) {
    double sum = c[7];
    for (int k = 6; k >= 0; k--)
        sum = sum * x + c[k];
    return sum;
}

double kh_normal_quantile(double p) {
    /* Numerators and denominators of AS 241: |p - 1/2| <= 0.425, then r <= 5, then the far tails.
     */
    static const double near_num[8] = { 3.3871328727963666080, 1.3314166789178437745e2,
        1.9715909503065514427e3, 1.3731693765509461125e4, 4.5921953931549871457e4,
        6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3 };
    static const double near_den[8] = { 1.0, 4.2313330701600911252e1, 6.8718700749205790830e2,
        5.3941960214247511077e3, 2.1213794301586595867e4, 3.9307895800092710610e4,
        2.8729085735721942674e4, 5.2264952788528545610e3 };
    static const double mid_num[8] = { 1.42343711074968357734, 4.63033784615654529590,
        5.76949722146069140550, 3.64784832476320460504, 1.27045825245236838258,
        2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4 };
    static const double mid_den[8] = { 1.0, 2.05319162663775882187, 1.67638483018380384940,
        6.89767334985100004550e-1, 1.48103976427480074590e-1, 1.51986665636164571966e-2,
        5.47593808499534494600e-4, 1.05075007164441684324e-9 };
    static const double far_num[8] = { 6.65790464350110377720, 5.46378491116411436990,
        1.78482653991729133580, 2.96560571828504891230e-1, 2.65321895265761230930e-2,
        1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7 };
    static const double far_den[8] = { 1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1,
        1.48753612908506148525e-2, 7.86869131145613259100e-4, 1.84631831751005468180e-5,
        1.42151175831644588870e-7, 2.04426310338993978564e-15 };
    double q = p - 0.5;
    if (fabs(q) <= 0.425) {
        double r = 0.180625 - q * q;
        return q * poly7(near_num, r) / poly7(near_den, r);
    }
    double r = sqrt(-portable_log(q < 0 ? p : 1 - p));
    double z = r <= 5 ? poly7(mid_num, r - 1.6) / poly7(mid_den, r - 1.6)
                      : poly7(far_num, r - 5) / poly7(far_den, r - 5);
    return q < 0 ? -z : z;
}
