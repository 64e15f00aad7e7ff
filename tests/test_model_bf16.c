/* test_model_bf16.c - products that round to bf16 on the way: against sums in double of numbers
 * rounded beforehand, in every row of the kernels' table, as matrices lie and turned. */
#include "test.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "model/kernels.h"
#include "model/ops.h"
#include "model/tensor.h"

#include <math.h>

typedef struct matrix {
    float *x;
    size_t ld;
} matrix;

/* rows x cols numbers, each row a little longer than it need be, and then NaN. */
static matrix draw(int rows, int cols, uint32_t stream) {
    matrix m = { .ld = (size_t)cols + 3 };
    kh_rng r = kh_rng_stream(3, KH_RNG_TEST, stream, 0);
    m.x = kh_calloc((size_t)rows * m.ld, sizeof *m.x);
    for (size_t i = 0; i < (size_t)rows * m.ld; i++)
        m.x[i] = i % m.ld < (size_t)cols ? (float)kh_rng_normal(&r) : NAN;
    return m;
}

static double number(matrix m, bool turned, int row, int col) {
    size_t i = turned ? (size_t)col * m.ld + (size_t)row : (size_t)row * m.ld + (size_t)col;
    return (double)kh_f32_of_bf16(kh_bf16_of_f32(m.x[i]));
}

static void check(const kh_kernels *k, int m, int n, int depth, bool a_turned, bool b_turned) {
    matrix a = a_turned ? draw(depth, m, 1) : draw(m, depth, 1);
    matrix b = b_turned ? draw(n, depth, 2) : draw(depth, n, 2);
    matrix c = draw(m, n, 3), before = draw(m, n, 3);
    void *scratch = kh_aligned(KH_BF16_SCRATCH * sizeof(float));
    for (int add = 0; add < 2; add++) {
        kh_bf16_product p = { .m = m,
            .n = n,
            .k = depth,
            .a = a.x,
            .lda = a.ld,
            .b = b.x,
            .ldb = b.ld,
            .c = c.x,
            .ldc = c.ld,
            .a_turned = a_turned,
            .b_turned = b_turned,
            .add = add == 1 };
        memcpy(c.x, before.x, (size_t)m * c.ld * sizeof *c.x);
        k->train->product_bf16(&p, scratch);
        for (int i = 0; i < m; i++)
            for (int j = 0; j<n; j += m> 100 ? 7 : 1) {
                size_t at = (size_t)i * c.ld + (size_t)j;
                double want = add ? (double)before.x[at] : 0;
                for (int l = 0; l < depth; l++)
                    want += number(a, a_turned, i, l) * number(b, b_turned, l, j);
                if (!(fabs((double)c.x[at] - want) < 2e-5 * (sqrt(depth) + fabs(want))))
                    fail_msg("%s, %d x %d x %d, turned %d %d: [%d, %d] is %g, expected %g", k->name,
                        m, n, depth, a_turned, b_turned, i, j, (double)c.x[at], want);
            }
        for (int i = 0; i < m; i++) /* nothing is written beside the matrix */
            assert_true(isnan(c.x[(size_t)i * c.ld + (size_t)n]));
    }
    kh_free(scratch);
    kh_free(a.x), kh_free(b.x), kh_free(c.x), kh_free(before.x);
}

static void every_row_and_layout(void **state) {
    (void)state;
    static const int SIZE[][3] = { { 1, 1, 1 }, { 12, 32, 2 }, { 13, 33, 3 }, { 29, 45, 401 },
        { 7, 70, 385 } };
    const kh_kernels *k;
    for (int i = 0; (k = kh_kernels_at(i)) != NULL; i++)
        for (size_t s = 0; s < sizeof SIZE / sizeof SIZE[0]; s++)
            for (int how = 0; how < 4; how++)
                check(k, SIZE[s][0], SIZE[s][1], SIZE[s][2], how & 1, how & 2);
}

static void more_rows_than_a_block(void **state) {
    (void)state;
    check(kh_kernels_pick(), KH_BF16_ROWS + 5, 40, 70, false, true);
    check(kh_kernels_pick(), KH_BF16_ROWS + 5, 40, 70, true, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_and_layout),
        cmocka_unit_test(more_rows_than_a_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
