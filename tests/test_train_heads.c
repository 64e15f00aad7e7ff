/* test_train_heads.c - heads on hidden states: gradients against differences of losses, a BiLSTM
 * against one written the long way, shards and threads. */
#include "test.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "train/heads.h"

#include <math.h>
#include <string.h>

enum { H = 6, N = 3, K = 3, ROWS = 5, LONGEST = 4 };

static float state[ROWS][LONGEST * H];
static kh_head_row row[ROWS];

static kh_adapter adapter_of(kh_adapter_kind kind) {
    kh_adapter g = { .kind = kind,
        .pool = kind == KH_ADAPTER_MLP ? KH_POOL_MASK : KH_POOL_ALL,
        .hidden = H,
        .inner = N,
        .labels = K };
    g.x = kh_calloc(kh_adapter_size(&g), sizeof *g.x);
    kh_head_start(&g, 7, g.x);
    kh_rng r = kh_rng_stream(3, KH_RNG_TEST, 0, 0);
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < LONGEST * H; j++)
            state[i][j] = (float)kh_rng_normal(&r);
        row[i] = (kh_head_row){ state[i], kind == KH_ADAPTER_MLP ? 1 : 1 + i % LONGEST, i % K };
    }
    return g;
}

static double loss_at(kh_head *h, const float *x) {
    double loss;
    assert_int_equal(kh_head_run(h, x, row, ROWS, false, NULL, &loss, NULL), 0);
    return loss;
}

static void check_gradient(kh_adapter_kind kind) {
    kh_adapter g = adapter_of(kind);
    kh_head *h;
    double loss;
    size_t n = kh_adapter_size(&g);
    float *exact = kh_malloc(n * sizeof *exact);
    assert_int_equal(kh_head_new(&h, &g, 2, NULL), 0);
    assert_int_equal(kh_head_run(h, g.x, row, ROWS, true, NULL, &loss, NULL), 0);
    assert_true(fabs(loss - loss_at(h, g.x)) < 1e-14);
    memcpy(exact, kh_head_gradient(h), n * sizeof *exact);
    double norm = 0, worst = 0;
    for (size_t i = 0; i < n; i++)
        norm = fmax(norm, fabs((double)exact[i]));
    assert_true(norm > 1e-3);
    for (size_t i = 0; i < n; i++) { /* steps as floats can take them, differences in double */
        float was = g.x[i], up = was + 0x1p-10f, down = was - 0x1p-10f;
        g.x[i] = up;
        double more = loss_at(h, g.x);
        g.x[i] = down;
        double less = loss_at(h, g.x);
        g.x[i] = was;
        worst = fmax(
            worst, fabs((more - less) / ((double)up - (double)down) - (double)exact[i]) / norm);
    }
    if (!(worst < 1e-5))
        fail_msg("%s: differs by %g of the largest", kh_adapter_name(kind), worst);
    kh_head_free(h);
    kh_free(exact);
    kh_free(g.x);
}

static void gradient_of_the_mlp(void **unused) {
    (void)unused;
    check_gradient(KH_ADAPTER_MLP);
}

static void gradient_of_the_bilstm(void **unused) {
    (void)unused;
    check_gradient(KH_ADAPTER_BILSTM);
}

/* One direction by the book, a number at a time; h of every step is added to mean. */
static void slow_direction(const float *w_ih, const float *w_hh, const float *bias,
    const kh_head_row *r, bool back, double *mean) {
    double h[N] = { 0 }, c[N] = { 0 };
    for (int t = 0; t < r->n; t++) {
        const float *x = r->state + (back ? r->n - 1 - t : t) * H;
        double gate[4 * N];
        for (int j = 0; j < 4 * N; j++) {
            gate[j] = (double)bias[j];
            for (int i = 0; i < H; i++)
                gate[j] += (double)w_ih[j * H + i] * (double)x[i];
            for (int i = 0; i < N; i++)
                gate[j] += (double)w_hh[j * N + i] * h[i];
        }
        for (int j = 0; j < N; j++) {
            double in = 1 / (1 + exp(-gate[j])), forget = 1 / (1 + exp(-gate[N + j])),
                   out = 1 / (1 + exp(-gate[3 * N + j]));
            c[j] = forget * c[j] + in * tanh(gate[2 * N + j]);
            h[j] = out * tanh(c[j]);
            mean[j] += h[j] / r->n;
        }
    }
}

static void bilstm_by_the_book(void **unused) {
    (void)unused;
    kh_adapter g = adapter_of(KH_ADAPTER_BILSTM);
    kh_adapter_part p[KH_ADAPTER_PARTS];
    assert_int_equal(kh_adapter_parts(&g, p), 8);
    kh_head *h;
    float logprob[ROWS * K];
    double loss;
    assert_int_equal(kh_head_new(&h, &g, 1, NULL), 0);
    assert_int_equal(kh_head_run(h, g.x, row, ROWS, false, logprob, &loss, NULL), 0);
    for (int i = 0; i < ROWS; i++) {
        double mean[2 * N] = { 0 }, logit[K], sum = 0;
        slow_direction(g.x + p[0].at, g.x + p[1].at, g.x + p[2].at, &row[i], false, mean);
        slow_direction(g.x + p[3].at, g.x + p[4].at, g.x + p[5].at, &row[i], true, mean + N);
        for (int k = 0; k < K; k++) {
            logit[k] = (double)g.x[p[7].at + (size_t)k];
            for (int j = 0; j < 2 * N; j++)
                logit[k] += (double)g.x[p[6].at + (size_t)(k * 2 * N + j)] * mean[j];
            sum += exp(logit[k]);
        }
        for (int k = 0; k < K; k++)
            assert_true(fabs((double)logprob[i * K + k] - (logit[k] - log(sum))) < 1e-6);
    }
    kh_head_free(h);
    kh_free(g.x);
}

static void threads_do_not_matter(void **unused) {
    (void)unused;
    for (kh_adapter_kind kind = KH_ADAPTER_MLP; kind <= KH_ADAPTER_BILSTM; kind++) {
        kh_adapter g = adapter_of(kind);
        size_t bytes = kh_adapter_size(&g) * sizeof *g.x;
        float *first = kh_malloc(bytes), logprob[2][ROWS * K];
        for (int t = 1; t <= 3; t++) {
            kh_head *h;
            double loss;
            kh_threads_set(t);
            assert_int_equal(kh_head_new(&h, &g, 4, NULL), 0);
            assert_int_equal(kh_head_run(h, g.x, row, ROWS, true, logprob[t > 1], &loss, NULL), 0);
            if (t == 1)
                memcpy(first, kh_head_gradient(h), bytes);
            assert_memory_equal(first, kh_head_gradient(h), bytes);
            assert_memory_equal(logprob[0], logprob[t > 1], sizeof logprob[0]);
            kh_head_free(h);
        }
        kh_threads_set(0);
        kh_free(first);
        kh_free(g.x);
    }
}

static void parts_fill_the_vector(void **unused) {
    (void)unused;
    for (kh_adapter_kind kind = KH_ADAPTER_MLP; kind < KH_ADAPTER_COUNT; kind++) {
        kh_adapter g = {
            .kind = kind, .hidden = 5, .inner = 4, .labels = 3, .layers = 2, .slots = 7
        };
        kh_adapter_part p[KH_ADAPTER_PARTS];
        int n = kh_adapter_parts(&g, p);
        size_t at = 0;
        for (int i = 0; i < n; i++) {
            assert_int_equal(p[i].at, at);
            at += p[i].n;
        }
        assert_int_equal(at, kh_adapter_size(&g));
        kh_adapter_kind back;
        assert_int_equal(kh_adapter_find(&back, kh_adapter_name(kind), NULL), 0);
        assert_int_equal(back, kind);
    }
    kh_adapter none = { 0 };
    assert_int_equal(kh_adapter_size(&none), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradient_of_the_mlp),
        cmocka_unit_test(gradient_of_the_bilstm),
        cmocka_unit_test(bilstm_by_the_book),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(parts_fill_the_vector),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
