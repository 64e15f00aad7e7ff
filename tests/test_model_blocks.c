/* test_model_blocks.c - numbers in blocks: the bits that an independent implementation has
 * (tools/make_gguf_vectors.py), and rounding to blocks. */
#include "test.h"

#include "model/blocks.h"
#include "model/tensor.h"

#include <math.h>

enum { LINE = 1 << 16 };

static size_t read_hex(const char *s, unsigned char *out) {
    size_t n = 0;
    for (unsigned x; sscanf(s + 2 * n, "%2x", &x) == 1; n++)
        out[n] = (unsigned char)x;
    return n;
}

static kh_dtype find_type(const char *name) {
    for (kh_dtype t = KH_DTYPE_F32; t <= KH_DTYPE_MXFP4; t++)
        if (strcmp(kh_dtype_name(t), name) == 0)
            return t;
    fail_msg("no type %s", name);
    return KH_DTYPE_ANY;
}

static void every_format(void **state) {
    (void)state;
    FILE *f = fopen("tests/vectors/gguf/blocks.txt", "r");
    assert_non_null(f);
    static char name[32], line[LINE];
    static unsigned char bytes[LINE];
    static float got[4096];
    int count, size, seen = 0;
    while (fscanf(f, "%31s %d %d\n", name, &count, &size) == 3) {
        kh_dtype t = find_type(name);
        assert_int_equal(kh_block_count(t), count);
        assert_int_equal(kh_block_bytes(t), size);
        assert_non_null(fgets(line, sizeof line, f));
        size_t n = read_hex(line, bytes) / (size_t)size * (size_t)count;
        assert_int_equal(kh_numbers_bytes(t, n), n / (size_t)count * (size_t)size);
        kh_numbers_convert(bytes, t, got, KH_DTYPE_F32, n);
        assert_int_equal(kh_numbers_nonfinite(bytes, t, n), n);
        for (size_t i = 0; i < n; i++) {
            unsigned want;
            uint32_t have;
            assert_int_equal(fscanf(f, "%x", &want), 1);
            memcpy(&have, &got[i], sizeof have);
            if (have != want)
                fail_msg("%s: number %zu is %08x, expected %08x", name, i, have, want);
        }
        /* A row of a matrix is the same numbers. */
        if (kh_is_blocks(t)) {
            float row[KH_BLOCK_MAX];
            kh_tensor m = { bytes, t, (int)n / count, count };
            kh_tensor_row(&m, 1, row);
            assert_memory_equal(row, got + count, (size_t)count * sizeof *row);
        }
        print_message("# %s: %zu numbers\n", name, n);
        seen++;
    }
    fclose(f);
    assert_int_equal(seen, KH_DTYPE_MXFP4 - KH_DTYPE_F32 + 1);
}

static void nonfinite(void **state) {
    (void)state;
    unsigned char q8[2 * 34] = { 0 }, mx[17] = { 255 };
    q8[34 + 1] = 0x7C; /* infinite scale of the second block; 0 times it is NaN */
    assert_int_equal(kh_numbers_nonfinite(q8, KH_DTYPE_Q8_0, 64), 32);
    assert_int_equal(kh_numbers_nonfinite(mx, KH_DTYPE_MXFP4, 32), 0);
}

/* Rounded numbers are within half a step, the farthest one exact but for the f16 of its scale. */
static void rounding(void **state) {
    (void)state;
    static const struct {
        kh_dtype type;
        float steps;
    } cases[] = { { KH_DTYPE_Q8_0, 127 }, { KH_DTYPE_Q4_0, 8 } };
    for (int c = 0; c < 2; c++) {
        float x[64], y[64], far = 0;
        unsigned char blocks[2 * 34];
        for (int i = 0; i < 64; i++)
            x[i] = i < 32 ? sinf((float)i * 0.7f) * 0.3f : 0;
        for (int i = 0; i < 32; i++)
            far = fabsf(x[i]) > far ? fabsf(x[i]) : far;
        assert_true(kh_blocks_shrinks(cases[c].type));
        kh_numbers_convert(x, KH_DTYPE_F32, blocks, cases[c].type, 64);
        kh_numbers_convert(blocks, cases[c].type, y, KH_DTYPE_F32, 64);
        float step = far / cases[c].steps, worst = c == 0 ? 0.51f * step : 1.01f * step;
        for (int i = 0; i < 64; i++)
            if (fabsf(x[i] - y[i]) > worst)
                fail_msg(
                    "%s: %g became %g", kh_dtype_name(cases[c].type), (double)x[i], (double)y[i]);
        for (int i = 32; i < 64; i++)
            assert_true(y[i] == 0);
        /* What was rounded once is not changed by rounding again. */
        unsigned char again[2 * 34];
        kh_numbers_convert(y, KH_DTYPE_F32, again, cases[c].type, 64);
        float z[64];
        kh_numbers_convert(again, cases[c].type, z, KH_DTYPE_F32, 64);
        for (int i = 0; i < 64; i++)
            assert_true(fabsf(z[i] - y[i]) <= 1e-3f * step);
    }
    assert_false(kh_blocks_shrinks(KH_DTYPE_Q4_K));
    assert_false(kh_is_blocks(KH_DTYPE_BF16));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format),
        cmocka_unit_test(nonfinite),
        cmocka_unit_test(rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
