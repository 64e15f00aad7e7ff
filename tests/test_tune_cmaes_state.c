/* test_tune_cmaes_state.c - the state of CMA-ES as bytes: the same run after a restart, and bytes
 * that are wrong. */
#include "functions.h"

#include "base/map.h"

#include <endian.h>

static kh_buf state_of(const kh_cmaes *c) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    assert_int_equal(kh_cmaes_save(c, &b, NULL), 0);
    return b;
}

static kh_cmaes *restored(const kh_cmaes *c) {
    kh_buf b = state_of(c);
    kh_err err = { 0 };
    kh_cmaes *again;
    if (kh_cmaes_load(&again, b.data, b.len, "state", &err))
        fail_msg("%s", err.msg);
    kh_buf_free(&b);
    return again;
}

static void assert_same_state(const kh_cmaes *a, const kh_cmaes *b) {
    kh_buf p = state_of(a), q = state_of(b);
    assert_true(p.len == q.len && memcmp(p.data, q.data, p.len) == 0);
    assert_true(kh_cmaes_stop(a) == kh_cmaes_stop(b) && kh_cmaes_evals(a) == kh_cmaes_evals(b));
    kh_buf_free(&p);
    kh_buf_free(&q);
}

/* ----------------------------------------------------------------------------------- same bits */

static void a_restored_run_gives_the_same_bits(void **state) {
    (void)state;
    for (int kind = 0; kind < 8; kind++) {
        kh_cmaes_opts o = kh_cmaes_defaults();
        o.variant = kind & 1, o.bound = kind & 2 ? 4 : 0, o.active = !(kind & 4), o.seed = 1000;
        kh_cmaes *whole = new_cmaes(9, 2.5, 1, &o), *half = new_cmaes(9, 2.5, 1, &o);
        minimise(whole, rosenbrock, 160);
        minimise(half, rosenbrock, 80);
        kh_cmaes *other = restored(half);
        kh_cmaes_free(half);
        minimise(other, rosenbrock, 80);
        assert_same_state(whole, other);
        kh_cmaes_free(whole);
        kh_cmaes_free(other);
    }
}

/* Between two decompositions B and D lag behind C; here one takes place every fifth generation or
 * so. */
static void a_restart_between_two_decompositions(void **state) {
    (void)state;
    kh_cmaes_opts o = kh_cmaes_defaults();
    o.pop = 6;
    kh_cmaes *whole = new_cmaes(120, 1, 1, &o);
    int changes = 0;
    for (int g = 0; g < 12; g++) {
        double before = kh_cmaes_condition(whole);
        kh_cmaes *other = restored(whole);
        minimise(whole, sphere, 1);
        minimise(other, sphere, 1);
        assert_same_state(whole, other);
        kh_cmaes_free(other);
        changes += kh_cmaes_condition(whole) != before;
    }
    assert_true(changes >= 1 && changes <= 6);
    kh_cmaes_free(whole);
}

/* Saved after ask, before tell: the restored one knows what was asked. */
static void a_restart_within_a_generation(void **state) {
    (void)state;
    kh_cmaes *a = new_cmaes(5, 1, 1, NULL);
    minimise(a, cigar, 7);
    double x[8 * 5], y[8 * 5], f[8] = { 5, 3, 8, 1, 2, 9, 4, 7 };
    kh_cmaes_ask(a, x);
    kh_cmaes *b = restored(a);
    kh_cmaes_tell(a, f);
    kh_cmaes_tell(b, f);
    assert_same_state(a, b);
    kh_cmaes_ask(a, x);
    kh_cmaes_ask(b, y);
    assert_memory_equal(x, y, sizeof x);
    kh_cmaes_free(a);
    kh_cmaes_free(b);
}

/* The ring of past values holds 20,000 generations. */
static void a_restart_after_the_history_is_full(void **state) {
    (void)state;
    kh_cmaes_opts o = kh_cmaes_defaults();
    o.pop = 4, o.variant = KH_CMAES_SEPARABLE;
    kh_cmaes *a = new_cmaes(1, 1, 1, &o);
    double f[4] = { 0 };
    for (int g = 0; g < 20777; g++) {
        for (int k = 0; k < 4; k++)
            f[k] = (g * 7 + k * 13) % 101;
        kh_cmaes_tell(a, f);
    }
    kh_cmaes *b = restored(a);
    assert_same_state(a, b);
    kh_cmaes_tell(a, f);
    kh_cmaes_tell(b, f);
    assert_same_state(a, b);
    kh_cmaes_free(a);
    kh_cmaes_free(b);
}

static void a_copy_goes_its_own_way(void **state) {
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        kh_cmaes_opts o = kh_cmaes_defaults();
        o.variant = variant, o.bound = 10;
        kh_cmaes *a = new_cmaes(6, 2, 1, &o), *b, *c;
        double x[9 * 6];
        minimise(a, ellipsoid, 30);
        kh_cmaes_ask(a, x);
        assert_int_equal(kh_cmaes_copy(&b, a, NULL), 0);
        assert_int_equal(kh_cmaes_copy(&c, a, NULL), 0);
        minimise(b, rosenbrock, 30);
        assert_same_state(a, c); /* untouched by b */
        minimise(a, ellipsoid, 30);
        minimise(c, ellipsoid, 30);
        assert_same_state(a, c);
        kh_cmaes_free(a);
        minimise(b, rosenbrock, 1); /* b owns its memory */
        kh_cmaes_free(b);
        kh_cmaes_free(c);
    }
}

static void saving_appends(void **state) {
    (void)state;
    kh_cmaes *a = new_cmaes(3, 1, 1, NULL), *b;
    kh_buf out = kh_buf_init(KH_BUF_MAX);
    kh_buf_text(&out, "head");
    assert_int_equal(kh_cmaes_save(a, &out, NULL), 0);
    assert_int_equal(kh_cmaes_load(&b, out.data + 4, out.len - 4, "state", NULL), 0);
    assert_same_state(a, b);
    kh_buf_free(&out);
    kh_cmaes_free(a);
    kh_cmaes_free(b);
}

/* --------------------------------------------------------------------------------- wrong bytes */

static void refused(const void *bytes, size_t n, int code, const char *says) {
    kh_err err = { 0 };
    kh_cmaes *c;
    assert_int_equal(kh_cmaes_load(&c, bytes, n, "run/state.bin", &err), code);
    assert_null(c);
    assert_says(&err, says);
}

static kh_buf small_state(void) {
    kh_cmaes_opts o = kh_cmaes_defaults();
    o.bound = 5;
    kh_cmaes *c = new_cmaes(3, 1, 1, &o);
    minimise(c, cigar, 6);
    kh_buf b = state_of(c);
    kh_cmaes_free(c);
    return b;
}

static void damaged_bytes_are_refused(void **state) {
    (void)state;
    kh_buf b = small_state();
    for (size_t n = 0; n < b.len; n++)
        refused(b.data, n, KH_EFORMAT,
            n < 64 ? "run/state.bin: not a CMA-ES state"
                   : "run/state.bin: the CMA-ES state is damaged: its checksum is wrong");
    for (size_t i = 0; i < b.len * 8; i++) {
        b.data[i / 8] = (char)(b.data[i / 8] ^ 1 << i % 8);
        kh_cmaes *c;
        assert_true(kh_cmaes_load(&c, b.data, b.len, "state", NULL) < 0);
        b.data[i / 8] = (char)(b.data[i / 8] ^ 1 << i % 8);
    }
    refused(
        "GIF89a..", 8, KH_EFORMAT, "not a CMA-ES state: it does not start as one, or is too short");
    kh_buf_free(&b);
}

/* Puts a number of eight bytes in place `word` and makes the checksum right again. */
static void forge(kh_buf *b, size_t word, uint64_t bits) {
    bits = htole64(bits);
    memcpy(b->data + 8 * word, &bits, 8);
    uint64_t sum = htole64(kh_hash64(b->data, b->len - 8));
    memcpy(b->data + b->len - 8, &sum, 8);
}

static uint64_t real(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Words of the head: 1 version, 2 n, 3 pop, 4 variant, 5 bounded, 6 generation, 7 options, then the
 * options in turn. */
static void forged_heads_are_refused(void **state) {
    (void)state;
    static const struct {
        size_t word;
        uint64_t bits;
        int code;
        const char *says;
    } cases[] = {
        { 1, 2, KH_EUNSUPPORTED,
            "run/state.bin: a CMA-ES state of version 2; this program reads version 1" },
        { 2, 0, KH_EFORMAT, "the CMA-ES state has impossible sizes: 1 dimensions" },
        { 2, 1 << 20, KH_EFORMAT,
            "impossible sizes: 1048576 dimensions, population 7" }, /* too many for the full variant
                                                                     */
        { 2, UINT64_MAX, KH_EFORMAT, "impossible sizes" },
        { 2, 4, KH_EFORMAT, "bytes; 4 dimensions and 6 generations make" },
        { 3, 1, KH_EFORMAT, "impossible sizes: 3 dimensions, population 2" },
        { 3, 1u << 31, KH_EFORMAT, "impossible sizes" },
        { 3, 8, KH_EFORMAT,
            "holds numbers that no run produces" }, /* not the options' population */
        { 4, 1, KH_EFORMAT, "bytes; 3 dimensions" },
        { 4, 2, KH_EFORMAT, "impossible sizes" },
        { 5, 0, KH_EFORMAT, "bytes; 3 dimensions" },
        { 6, 1000000, KH_EFORMAT, "1000000 generations make" },
        { 6, (uint64_t)1 << 60, KH_EFORMAT, "impossible sizes" },
        { 7, 3, KH_EFORMAT, "run/state.bin: the CMA-ES state has other options than this program" },
        { 17, 0xBFF0000000000000u, KH_EARG,
            "run/state.bin: CMA-ES: tolx is -1; from 0 to 1e+300 is allowed" },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        kh_buf b = small_state();
        forge(&b, cases[k].word, cases[k].bits);
        refused(b.data, b.len, cases[k].code, cases[k].says);
        kh_buf_free(&b);
    }
}

/* Every word replaced by numbers that do not belong there: refused, or harmless. */
static void forged_numbers_are_refused_or_harmless(void **state) {
    (void)state;
    const uint64_t values[] = { real(NAN), real(INFINITY), real(-INFINITY), real(-1), real(0),
        real(1e308), real(-1e-308), real(1), UINT64_MAX, 1, 1u << 30 };
    kh_buf b = small_state();
    int taken = 0, total = 0;
    for (size_t word = 1; word + 1 < b.len / 8; word++)
        for (size_t k = 0; k < sizeof values / sizeof *values; k++, total++) {
            char old[8];
            memcpy(old, b.data + 8 * word, 8);
            forge(&b, word, values[k]);
            kh_cmaes *c;
            if (kh_cmaes_load(&c, b.data, b.len, "state", NULL) == 0) {
                taken++;
                minimise(c, sphere, 3);
                double x[3];
                kh_cmaes_mean(c, x);
                for (int i = 0; i < 3; i++)
                    assert_true(x[i] >= -5 && x[i] <= 5); /* never NaN, never outside the bounds */
                kh_cmaes_free(c);
            }
            memcpy(b.data + 8 * word, old, 8);
        }
    assert_true(taken > 0 && taken < total);
    kh_buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restored_run_gives_the_same_bits),
        cmocka_unit_test(a_restart_between_two_decompositions),
        cmocka_unit_test(a_restart_within_a_generation),
        cmocka_unit_test(a_restart_after_the_history_is_full),
        cmocka_unit_test(a_copy_goes_its_own_way),
        cmocka_unit_test(saving_appends),
        cmocka_unit_test(damaged_bytes_are_refused),
        cmocka_unit_test(forged_heads_are_refused),
        cmocka_unit_test(forged_numbers_are_refused_or_harmless),
    };
    return cmocka_run_group_tests_name("tune_cmaes_state", tests, NULL, NULL);
}
