/* test_base_rng.c - the random streams: known answers, independence of names, and distributions
 * with fixed seeds. */
#include "test.h"

#include "base/rng.h"

#include <math.h>

/* ----------------------------------------------------------------------------- Philox, streams */

/* The known-answer vectors that Random123 publishes for philox4x32-10. */
static void philox_gives_the_published_answers(void **state) {
    (void)state;
    static const struct {
        uint32_t in[4], key[2], out[4];
    } cases[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { ~0u, ~0u, ~0u, ~0u }, { ~0u, ~0u },
            { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, { 0xa4093822, 0x299f31d0 },
            { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        uint32_t out[4];
        kh_philox(cases[k].in, cases[k].key, out);
        assert_memory_equal(out, cases[k].out, sizeof out);
    }
}

static void stream_is_philox_of_its_name(void **state) {
    (void)state;
    kh_rng r = kh_rng_stream(0x0123456789ABCDEFu, KH_RNG_CMAES, 7, 9);
    for (uint32_t block = 0; block < 3; block++) {
        uint32_t expected[4];
        kh_philox((const uint32_t[]){ block, 9, 7, KH_RNG_CMAES },
            (const uint32_t[]){ 0x89ABCDEF, 0x01234567 }, expected);
        for (int k = 0; k < 4; k++)
            assert_int_equal(kh_rng_u32(&r), expected[k]);
    }
}

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* 64 streams that differ in one part of the name each, 256 numbers of 64 bits: a repetition has a
 * chance of 1e-11. */
static void differently_named_streams_share_nothing(void **state) {
    (void)state;
    enum { STREAMS = 64, EACH = 256 };
    static uint64_t all[STREAMS * EACH];
    for (uint32_t s = 0; s < STREAMS; s++) {
        uint32_t v = s / 4 + 1;
        kh_rng r = s % 4 == 0 ? kh_rng_stream(v, KH_RNG_TEST, 0, 0)
            : s % 4 == 1      ? kh_rng_stream((uint64_t)v << 32, KH_RNG_TEST, 0, 0)
            : s % 4 == 2      ? kh_rng_stream(0, KH_RNG_TEST, v, 0)
                              : kh_rng_stream(0, KH_RNG_TEST, 0, v);
        for (int k = 0; k < EACH; k++)
            all[s * EACH + (uint32_t)k] = kh_rng_u64(&r);
    }
    qsort(all, STREAMS * EACH, sizeof *all, compare_u64);
    for (int k = 1; k < STREAMS * EACH; k++)
        assert_true(all[k] != all[k - 1]);
}

static void purposes_are_different_streams(void **state) {
    (void)state;
    uint64_t first[6];
    for (int p = 0; p < 6; p++) {
        kh_rng r = kh_rng_stream(1, (kh_purpose)p, 2, 3);
        first[p] = kh_rng_u64(&r);
        for (int q = 0; q < p; q++)
            assert_true(first[p] != first[q]);
    }
}

static void copied_state_goes_on_alike(void **state) {
    (void)state;
    for (int used = 0; used < 9; used++) { /* in every place of a block */
        kh_rng r = kh_rng_stream(3, KH_RNG_TEST, 0, 0);
        for (int k = 0; k < used; k++)
            kh_rng_u32(&r);
        kh_rng copy;
        memcpy(&copy, &r, sizeof copy);
        for (int k = 0; k < 20; k++)
            assert_int_equal(kh_rng_u32(&r), kh_rng_u32(&copy));
    }
}

/* ------------------------------------------------------------------------------------ uniforms */

static void uniform_never_reaches_its_ends(void **state) {
    (void)state;
    kh_rng highest = { .word = { ~0u, ~0u, ~0u, ~0u }, .left = 4 }, lowest = { .left = 4 };
    double high = kh_rng_uniform(&highest), low = kh_rng_uniform(&lowest);
    assert_true(high < 1);
    assert_true(low > 0);
    assert_true(low == 1 - high);
    assert_true(isfinite(kh_normal_quantile(high)));
    assert_true(kh_normal_quantile(high) == -kh_normal_quantile(low));
}

static double chi_square(const long *seen, int n, double expected) {
    double sum = 0;
    for (int k = 0; k < n; k++)
        sum += ((double)seen[k] - expected) * ((double)seen[k] - expected) / expected;
    return sum;
}

static void uniform_fills_its_bins_evenly(void **state) {
    (void)state;
    long seen[100] = { 0 };
    kh_rng r = kh_rng_stream(5, KH_RNG_TEST, 0, 0);
    for (int k = 0; k < 1000000; k++)
        seen[(int)(kh_rng_uniform(&r) * 100)]++;
    assert_true(chi_square(seen, 100, 10000) < 148.2); /* 99 degrees of freedom, p = 0.001 */
}

static void below_is_unbiased(void **state) {
    (void)state;
    kh_rng r = kh_rng_stream(6, KH_RNG_TEST, 0, 0);
    long seen[7] = { 0 };
    for (int k = 0; k < 700000; k++)
        seen[kh_rng_below(&r, 7)]++;
    assert_true(chi_square(seen, 7, 100000) < 22.5); /* 6 degrees, p = 0.001 */
    /* 3 * 2^30 is where a plain modulus fails: the first third would come twice as often. */
    long third[3] = { 0 };
    for (int k = 0; k < 300000; k++)
        third[kh_rng_below(&r, 3u << 30) >> 30]++;
    assert_true(chi_square(third, 3, 100000) < 13.8); /* 2 degrees */
}

static void below_stays_below(void **state) {
    (void)state;
    kh_rng r = kh_rng_stream(7, KH_RNG_TEST, 0, 0);
    static const uint32_t limits[] = { 1, 2, 3, 10, 1u << 31, (1u << 31) + 1, UINT32_MAX };
    for (size_t k = 0; k < sizeof limits / sizeof *limits; k++)
        for (int i = 0; i < 1000; i++)
            assert_true(kh_rng_below(&r, limits[k]) < limits[k]);
}

static void permutation_is_one(void **state) {
    (void)state;
    kh_rng r = kh_rng_stream(8, KH_RNG_TEST, 0, 0);
    static const int sizes[] = { 0, 1, 2, 3, 100, 5000 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int n = sizes[s], *p = malloc((size_t)n * sizeof *p + 1);
        char *seen = calloc((size_t)n + 1, 1);
        kh_rng_permutation(&r, p, n);
        for (int k = 0; k < n; k++) {
            assert_in_range(p[k], 0, n - 1);
            assert_int_equal(seen[p[k]]++, 0);
        }
        free(p);
        free(seen);
    }
}

static void permutations_of_four_come_equally_often(void **state) {
    (void)state;
    kh_rng r = kh_rng_stream(9, KH_RNG_TEST, 0, 0);
    long seen[256] = { 0 }, found[24];
    for (int k = 0; k < 240000; k++) {
        int p[4];
        kh_rng_permutation(&r, p, 4);
        seen[p[0] << 6 | p[1] << 4 | p[2] << 2 | p[3]]++;
    }
    int n = 0;
    for (int k = 0; k < 256; k++)
        if (seen[k] > 0) {
            assert_true(n < 24);
            found[n++] = seen[k];
        }
    assert_int_equal(n, 24);
    assert_true(chi_square(found, 24, 10000) < 49.7); /* 23 degrees, p = 0.001 */
}

static void categorical_follows_its_weights(void **state) {
    (void)state;
    kh_rng r = kh_rng_stream(10, KH_RNG_TEST, 0, 0);
    static const double weight[6] = { 0, 3, 0, 5, 2,
        0 }; /* not normalised, zeros at the ends and between */
    long seen[6] = { 0 };
    for (int k = 0; k < 100000; k++)
        seen[kh_rng_categorical(&r, weight, 6)]++;
    assert_int_equal(seen[0] + seen[2] + seen[5], 0);
    double sum = 0;
    for (int k = 0; k < 6; k++)
        if (weight[k] > 0)
            sum += pow((double)seen[k] - weight[k] * 10000, 2) / (weight[k] * 10000);
    assert_true(sum < 13.8); /* 2 degrees, p = 0.001 */
}

static void categorical_with_one_weight_always_takes_it(void **state) {
    (void)state;
    for (int at = 0; at < 4; at++) {
        double weight[4] = { 0 };
        weight[at] = 1e-300;
        kh_rng highest = { .word = { ~0u, ~0u, ~0u, ~0u }, .left = 4 }, lowest = { .left = 4 };
        assert_int_equal(kh_rng_categorical(&highest, weight, 4), at);
        assert_int_equal(kh_rng_categorical(&lowest, weight, 4), at);
    }
}

/* ------------------------------------------------------------------------------------- normals */

static long double phi(double x) { return 0.5L * erfcl(-(long double)x / sqrtl(2.0L)); }

/* Phi(q(p)) must be p. The condition number of Phi is about 1 + x^2 in the tails: the rounding of x
 * alone costs that much in p. Asked for is 1e-14 where x^2 < 9, and a relative error of x below
 * 1e-15 beyond. */
static void check_quantile(double p) {
    double x = kh_normal_quantile(p);
    double error = (double)fabsl((phi(x) - (long double)p) / (long double)p),
           bound = fmax(1e-14, 1e-15 * (1 + x * x));
    if (!(error < bound))
        fail_msg("q(%.17g) = %.17g: Phi of it is off by %g, allowed are %g", p, x, error, bound);
}

static void quantile_inverts_the_distribution(void **state) {
    (void)state;
    for (int k = 1; k < 20000; k++)
        check_quantile(k / 20000.0);
    for (double p = 0.4; p > 1e-300; p *= 0.7)
        check_quantile(p);
    for (int k = -30; k <= 30; k++) { /* around the seams of the three approximations */
        check_quantile(0.075 + k * 1e-12);
        check_quantile(exp(-25) * (1 + k * 1e-12));
    }
    check_quantile(0x1p-54);
    check_quantile(0x1p-1022);
}

static void quantile_is_symmetric(void **state) {
    (void)state;
    for (int k = 1; k < 4096; k++) {
        double p = k / 8192.0; /* 1 - p is exact */
        assert_true(kh_normal_quantile(1 - p) == -kh_normal_quantile(p));
    }
    assert_true(kh_normal_quantile(0.5) == 0);
}

/* From published tables, to the digits given there. */
static void quantile_gives_published_values(void **state) {
    (void)state;
    static const struct {
        double p, x;
    } cases[] = { { 0.75, 0.6744897501960817 }, { 0.9, 1.2815515655446004 },
        { 0.95, 1.6448536269514722 }, { 0.975, 1.959963984540054 }, { 0.99, 2.3263478740408408 },
        { 0.995, 2.5758293035489004 }, { 0.999, 3.090232306167813 }, { 0.0013498980316300933, -3 },
        { 9.865876450376946e-10, -6 }, { 1e-20, -9.262340089798408 } };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        assert_true(fabs(kh_normal_quantile(cases[k].p) - cases[k].x) <= 2e-15 * fabs(cases[k].x));
}

static void quantile_rises(void **state) {
    (void)state;
    double before = kh_normal_quantile(1e-12);
    for (int k = 1; k < 100000; k++) {
        double x = kh_normal_quantile(k * 1e-5);
        assert_true(x > before);
        before = x;
    }
}

static void normals_have_the_moments(void **state) {
    (void)state;
    enum { N = 1000000 };
    kh_rng r = kh_rng_stream(11, KH_RNG_TEST, 0, 0);
    double m[5] = { 0 };
    for (int k = 0; k < N; k++) {
        double x = kh_rng_normal(&r), power = 1;
        for (int i = 1; i <= 4; i++)
            m[i] += power *= x;
    }
    /* Four standard errors each: variances of x, x^2, x^3, x^4 are 1, 2, 15, 96. */
    assert_true(fabs(m[1] / N) < 4 * sqrt(1.0 / N));
    assert_true(fabs(m[2] / N - 1) < 4 * sqrt(2.0 / N));
    assert_true(fabs(m[3] / N) < 4 * sqrt(15.0 / N));
    assert_true(fabs(m[4] / N - 3) < 4 * sqrt(96.0 / N));
}

static void normal_takes_one_uniform(void **state) {
    (void)state;
    kh_rng a = kh_rng_stream(12, KH_RNG_TEST, 0, 0), b = a;
    for (int k = 0; k < 100; k++)
        assert_true(kh_rng_normal(&a) == kh_normal_quantile(kh_rng_uniform(&b)));
    assert_memory_equal(&a, &b, sizeof a);
}

/* Results are promised bit for bit: these were computed once and must never change, on any machine.
 */
static void bits_never_change(void **state) {
    (void)state;
    kh_rng r = kh_rng_stream(42, KH_RNG_TEST, 1, 2);
    static const double normal[] = { -0x1.568a65930b383p-4, -0x1.370bd0df8e374p-1,
        -0x1.0d8fb021dc2dcp+0, -0x1.640cf4e15937fp-1 };
    for (size_t k = 0; k < sizeof normal / sizeof *normal; k++) {
        double x = kh_rng_normal(&r);
        if (x != normal[k])
            fail_msg("normal %zu is %a, expected %a", k, x, normal[k]);
    }
    assert_true(kh_normal_quantile(0.3) ==
        -0x1.0c7e39582c5fap-1); /* one in each of the three approximations */
    assert_true(kh_normal_quantile(0.01) == -0x1.29c5c4630ff0ep+1);
    assert_true(kh_normal_quantile(1e-30) == -0x1.6ed94a4dacdc9p+3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_answers),
        cmocka_unit_test(stream_is_philox_of_its_name),
        cmocka_unit_test(differently_named_streams_share_nothing),
        cmocka_unit_test(purposes_are_different_streams),
        cmocka_unit_test(copied_state_goes_on_alike),
        cmocka_unit_test(uniform_never_reaches_its_ends),
        cmocka_unit_test(uniform_fills_its_bins_evenly),
        cmocka_unit_test(below_is_unbiased),
        cmocka_unit_test(below_stays_below),
        cmocka_unit_test(permutation_is_one),
        cmocka_unit_test(permutations_of_four_come_equally_often),
        cmocka_unit_test(categorical_follows_its_weights),
        cmocka_unit_test(categorical_with_one_weight_always_takes_it),
        cmocka_unit_test(quantile_inverts_the_distribution),
        cmocka_unit_test(quantile_is_symmetric),
        cmocka_unit_test(quantile_gives_published_values),
        cmocka_unit_test(quantile_rises),
        cmocka_unit_test(normals_have_the_moments),
        cmocka_unit_test(normal_takes_one_uniform),
        cmocka_unit_test(bits_never_change),
    };
    return cmocka_run_group_tests_name("base_rng", tests, NULL, NULL);
}
