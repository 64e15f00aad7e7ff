/* test_model_backward.c - gradients against differences of losses in double, f32 against double, and the loss against the
 * reference forward pass; every kind of parameter, ragged lengths, all injection modes, prefixes, both kinds of loss. */
#include "test.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "model/backward.h"
#include "model/random_model.h"
#include "model/reference.h"

#include <math.h>

enum { N_SEQ = 3, MAX_T = 64, N_PROMPT = 3, N_PREFIX = 2, N_WORD = 3 };

/* A tiny model, three sequences of 7, 4 and 10 ids, five places. */
typedef struct fixture {
    kh_params params;
    double *w, *dw;
    int start[N_SEQ + 1], first_at[N_SEQ + 1], at[5];
    int32_t id[N_SEQ][10], target[5];
    int n_id[N_SEQ];
    kh_slot slot[MAX_T];
    kh_packed text;
    kh_lm_loss loss;
    kh_inject inject;
    double *prompt, *prefix, *d_prompt, *d_prefix;
    size_t n_prompt, n_prefix; /* numbers */
} fixture;

static double *random_doubles(size_t n, double std, uint32_t stream) {
    kh_rng r = kh_rng_stream(11, KH_RNG_TEST, stream, 0);
    double *x = kh_calloc(n + 1, sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = std * kh_rng_normal(&r);
    return x;
}

static const int32_t WORDS[N_WORD] = { 9, 4, 17 };
static const int LABEL_OF[N_WORD] = { 0, 1, 1 };

static void make_text(fixture *f) {
    static const int LENGTH[N_SEQ] = { 7, 4, 10 };
    kh_rng r = kh_rng_stream(12, KH_RNG_TEST, 0, 0);
    kh_model m = { .config = f->params.config };
    for (int s = 0; s < N_SEQ; s++) {
        f->n_id[s] = LENGTH[s];
        for (int i = 0; i < LENGTH[s]; i++)
            f->id[s][i] = 2 + (int32_t)kh_rng_below(&r, (uint32_t)f->params.config.vocab - 2);
        kh_input in = { .id = f->id[s], .n_id = LENGTH[s], .inject = f->inject, .n_prompt = f->inject ? N_PROMPT : 0 };
        kh_input_slots(&m, &in, f->slot + f->start[s]);
        f->start[s + 1] = f->start[s] + kh_input_length(&in);
    }
    /* Two places in the first sequence, none in the second, three in the third. */
    static const int AT[5] = { 2, 6, 0, 3, 9 };
    for (int i = 0; i < 5; i++) {
        f->at[i] = f->start[i < 2 ? 0 : 2] + AT[i];
        f->target[i] = f->loss.token ? i % 2 : 3 + 2 * i;
    }
    f->first_at[1] = f->first_at[2] = 2;
    f->first_at[3] = 5;
    f->text = (kh_packed){ N_SEQ, f->start, f->slot, f->at, f->first_at };
}

static void setup(fixture *f, const char *arch, kh_inject inject, bool prefix, bool labels) {
    *f = (fixture){ .inject = inject };
    kh_config c = *kh_arch_find(arch);
    c.hidden = 12;
    c.heads = 3;
    c.inner = 20;
    c.vocab = 23;
    c.positions = 20;
    assert_int_equal(kh_params_init(&f->params, &c, NULL), 0);
    f->w = random_doubles(f->params.size, 0.4, 1);
    f->dw = kh_calloc(f->params.size, sizeof *f->dw);
    for (int i = 0; i < f->params.n; i++) { /* gains around 1, as they are */
        const kh_param *p = &f->params.item[i];
        for (size_t j = 0; p->row->fill == KH_FILL_ONE && j < (size_t)p->cols; j++)
            f->w[p->at + j] += 1;
    }
    f->loss = (kh_lm_loss){ .target = f->target, .scale = 0.2 };
    if (labels)
        f->loss = (kh_lm_loss){ f->target, WORDS, LABEL_OF, N_WORD, 2, 0.2 };
    make_text(f);
    f->n_prompt = inject ? (size_t)(N_PROMPT * c.hidden) : 0;
    f->n_prefix = prefix ? (size_t)(c.layers * 2 * N_PREFIX * c.hidden) : 0;
    f->prompt = random_doubles(f->n_prompt, 0.5, 2);
    f->prefix = random_doubles(f->n_prefix, 0.5, 3);
    f->d_prompt = kh_calloc(f->n_prompt + 1, sizeof(double));
    f->d_prefix = kh_calloc(f->n_prefix + 1, sizeof(double));
}

static void teardown(fixture *f) {
    kh_params_free(&f->params);
    double *all[] = { f->w, f->dw, f->prompt, f->prefix, f->d_prompt, f->d_prefix };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        kh_free(all[i]);
}

static kh_pass_f64 make_pass(fixture *f, bool gradients) {
    kh_pass_f64 p = { .w = f->w, .text = &f->text, .loss = &f->loss };
    if (f->n_prompt) {
        p.prompt = f->prompt;
        p.n_prompt = N_PROMPT;
        p.d_prompt = gradients ? f->d_prompt : NULL;
    }
    if (f->n_prefix) {
        p.prefix = f->prefix;
        p.n_prefix = N_PREFIX;
        p.d_prefix = gradients ? f->d_prefix : NULL;
    }
    p.dw = gradients ? f->dw : NULL;
    return p;
}

static double loss_now(fixture *f) {
    kh_tape_f64 tape = { 0 };
    double loss;
    kh_pass_f64 p = make_pass(f, false);
    assert_int_equal(kh_backward_f64(&tape, &f->params, &p, &loss, NULL), 0);
    kh_tape_f64_free(&tape);
    return loss;
}

/* Relative error of the gradients g of n numbers x, all of which are tried: differences of fourth order, so that a step can
 * be large enough for the digits of a double. */
static double worst_error(fixture *f, double *x, const double *g, size_t n) {
    const double step = 1e-3;
    double off = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double at = x[i], value[4];
        static const int BY[4] = { -2, -1, 1, 2 };
        for (int k = 0; k < 4; k++) {
            x[i] = at + BY[k] * step;
            value[k] = loss_now(f);
        }
        x[i] = at;
        double slope = (value[0] - 8 * value[1] + 8 * value[2] - value[3]) / (12 * step);
        off += (slope - g[i]) * (slope - g[i]);
        size += slope * slope;
    }
    return size > 1e-20 ? sqrt(off / size) : sqrt(off);
}

static void check_gradients(const char *arch, kh_inject inject, bool prefix, bool labels) {
    fixture f;
    double loss;
    setup(&f, arch, inject, prefix, labels);
    kh_tape_f64 tape = { 0 };
    kh_pass_f64 p = make_pass(&f, true);
    assert_int_equal(kh_backward_f64(&tape, &f.params, &p, &loss, NULL), 0);
    kh_tape_f64_free(&tape);
    assert_true(fabs(loss - loss_now(&f)) < 1e-14);
    for (int i = 0; i < f.params.n; i++) {
        const kh_param *item = &f.params.item[i];
        if (item->layer > 1)
            continue;
        double error = worst_error(&f, f.w + item->at, f.dw + item->at, (size_t)item->rows * (size_t)item->cols);
        if (!(error < 1e-5)) {
            char name[256];
            kh_weight_name(item->row, &f.params.config, true, item->layer, 0, name, sizeof name);
            fail_msg("%s: relative error %g", name, error);
        }
    }
    double error = worst_error(&f, f.prompt, f.d_prompt, f.n_prompt);
    if (!(error < 1e-5))
        fail_msg("prompt: relative error %g", error);
    error = worst_error(&f, f.prefix, f.d_prefix, f.n_prefix);
    if (!(error < 1e-5))
        fail_msg("prefix: relative error %g", error);
    teardown(&f);
}

static void bert_all_weights(void **state) { (void)state, check_gradients("bert-tiny", KH_INJECT_NONE, false, false); }
static void roberta_added_prompt(void **state) { (void)state, check_gradients("roberta-tiny", KH_INJECT_POST_LN_ADD, false, false); }
static void roberta_prompt_in_front(void **state) { (void)state, check_gradients("roberta-tiny", KH_INJECT_EMBED_PREFIX, false, true); }
static void bert_prompt_inside(void **state) { (void)state, check_gradients("bert-tiny", KH_INJECT_EMBED_INPLACE, false, true); }
static void roberta_prefixes(void **state) { (void)state, check_gradients("roberta-tiny", KH_INJECT_NONE, true, true); }
static void bert_prompt_and_prefixes(void **state) { (void)state, check_gradients("bert-tiny", KH_INJECT_POST_LN_ADD, true, false); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bert_all_weights),
        cmocka_unit_test(roberta_added_prompt),
        cmocka_unit_test(roberta_prompt_in_front),
        cmocka_unit_test(bert_prompt_inside),
        cmocka_unit_test(roberta_prefixes),
        cmocka_unit_test(bert_prompt_and_prefixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
