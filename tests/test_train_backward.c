/* test_train_backward.c - gradients against differences of losses in double, f32 against double,
 * and the loss against the reference forward pass; every kind of parameter, ragged lengths, all
 * injection modes, prefixes, both kinds of loss. */
#include "training_vectors.h"

#include "base/alloc.h"
#include "base/rng.h"
#include "train/gradient.h"
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
    const kh_dropout *dropout;
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
        kh_input in = { .id = f->id[s],
            .n_id = LENGTH[s],
            .inject = f->inject,
            .n_prompt = f->inject ? N_PROMPT : 0 };
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

static void setup_deep(
    fixture *f, const char *arch, int layers, kh_inject inject, bool prefix, bool labels) {
    *f = (fixture){ .inject = inject };
    kh_config c = *kh_arch_find(arch);
    c.layers = layers;
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
        f->loss = (kh_lm_loss){ f->target, NULL, WORDS, LABEL_OF, N_WORD, 2, 0.2 };
    make_text(f);
    f->n_prompt = inject ? (size_t)(N_PROMPT * c.hidden) : 0;
    f->n_prefix = prefix ? (size_t)(c.layers * 2 * N_PREFIX * c.hidden) : 0;
    f->prompt = random_doubles(f->n_prompt, 0.5, 2);
    f->prefix = random_doubles(f->n_prefix, 0.5, 3);
    f->d_prompt = kh_calloc(f->n_prompt + 1, sizeof(double));
    f->d_prefix = kh_calloc(f->n_prefix + 1, sizeof(double));
}

static void setup(fixture *f, const char *arch, kh_inject inject, bool prefix, bool labels) {
    setup_deep(f, arch, kh_arch_find(arch)->layers, inject, prefix, labels);
}

static void teardown(fixture *f) {
    kh_params_free(&f->params);
    double *all[] = { f->w, f->dw, f->prompt, f->prefix, f->d_prompt, f->d_prefix };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        kh_free(all[i]);
}

static kh_pass_f64 make_pass(fixture *f, bool gradients) {
    kh_pass_f64 p = { .w = f->w, .text = &f->text, .loss = &f->loss, .dropout = f->dropout };
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

/* Relative error of the gradients g of n numbers x, all of which are tried: differences of fourth
 * order, so that a step can be large enough for the digits of a double. */
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

static void check_all(const char *arch, kh_inject inject, bool prefix, bool labels,
    const kh_dropout *dropout, const float *weight) {
    fixture f;
    double loss;
    setup(&f, arch, inject, prefix, labels);
    f.dropout = dropout;
    f.loss.weight = weight;
    kh_tape_f64 tape = { 0 };
    kh_pass_f64 p = make_pass(&f, true);
    assert_int_equal(kh_backward_f64(&tape, &f.params, &p, &loss, NULL), 0);
    kh_tape_f64_free(&tape);
    assert_true(fabs(loss - loss_now(&f)) < 1e-14);
    for (int i = 0; i < f.params.n; i++) {
        const kh_param *item = &f.params.item[i];
        if (item->layer > 1)
            continue;
        double error = worst_error(
            &f, f.w + item->at, f.dw + item->at, (size_t)item->rows * (size_t)item->cols);
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

static void check_gradients(const char *arch, kh_inject inject, bool prefix, bool labels) {
    check_all(arch, inject, prefix, labels, NULL, NULL);
}

static void bert_all_weights(void **state) {
    (void)state, check_gradients("bert-tiny", KH_INJECT_NONE, false, false);
}
static void roberta_added_prompt(void **state) {
    (void)state, check_gradients("roberta-tiny", KH_INJECT_POST_LN_ADD, false, false);
}
static void roberta_prompt_in_front(void **state) {
    (void)state, check_gradients("roberta-tiny", KH_INJECT_EMBED_PREFIX, false, true);
}
static void bert_prompt_inside(void **state) {
    (void)state, check_gradients("bert-tiny", KH_INJECT_EMBED_INPLACE, false, true);
}
static void roberta_prefixes(void **state) {
    (void)state, check_gradients("roberta-tiny", KH_INJECT_NONE, true, true);
}
static void bert_prompt_and_prefixes(void **state) {
    (void)state, check_gradients("bert-tiny", KH_INJECT_POST_LN_ADD, true, false);
}

static const kh_dropout SOME = { 0.3, 5, 7 };

static void bert_with_dropout(void **state) {
    (void)state, check_all("bert-tiny", KH_INJECT_POST_LN_ADD, true, false, &SOME, NULL);
}
static void roberta_with_dropout(void **state) {
    (void)state, check_all("roberta-tiny", KH_INJECT_EMBED_PREFIX, false, true, &SOME, NULL);
}

static const float UNEQUAL[5] = { 0.5f, 2, 0, 1, 0.25f };

static void bert_with_weighted_places(void **state) {
    (void)state, check_all("bert-tiny", KH_INJECT_NONE, false, false, NULL, UNEQUAL);
}

/* A loss with weights is the sum of the losses of single places, times their weights; and so it is
 * when the batch is cut into shards. */
static void weights_add_up(void **state) {
    (void)state;
    fixture f;
    setup(&f, "bert-tiny", KH_INJECT_NONE, false, false);
    double sum = 0, sharded;
    for (int i = 0; i < 5; i++) {
        float only[5] = { 0 };
        only[i] = UNEQUAL[i];
        f.loss.weight = only;
        sum += loss_now(&f);
    }
    f.loss.weight = UNEQUAL;
    assert_true(fabs(loss_now(&f) - sum) < 1e-12);
    float *w = kh_calloc(f.params.size, sizeof *w);
    for (size_t i = 0; i < f.params.size; i++)
        w[i] = (float)f.w[i];
    kh_gradient *g;
    assert_int_equal(kh_gradient_new(&g, &f.params, 3, KH_WRT_WEIGHTS, 0, 0, NULL), 0);
    kh_pass_f32 pass = { .w = w, .text = &f.text, .loss = &f.loss };
    assert_int_equal(kh_gradient_run(g, &pass, true, &sharded, NULL), 0);
    assert_true(fabs(sharded - sum) < 1e-5 * (1 + fabs(sum)));
    kh_gradient_free(g);
    kh_free(w);
    teardown(&f);
}

/* Rounding to bf16 moves loss and gradients by some thousandths; more would be a mistake. */
static void bf16_is_near(void **state) {
    (void)state;
    fixture f;
    double loss[2], off = 0, size = 0;
    setup(&f, "bert-tiny", KH_INJECT_NONE, false, false);
    float *w = kh_calloc(f.params.size, sizeof *w), *dw[2];
    for (size_t i = 0; i < f.params.size; i++)
        w[i] = (float)f.w[i];
    for (int narrow = 0; narrow < 2; narrow++) {
        kh_tape_f32 tape = { 0 };
        dw[narrow] = kh_calloc(f.params.size, sizeof **dw);
        kh_pass_f32 pass = {
            .w = w, .text = &f.text, .loss = &f.loss, .dw = dw[narrow], .bf16 = narrow == 1
        };
        assert_int_equal(kh_backward_f32(&tape, &f.params, &pass, &loss[narrow], NULL), 0);
        kh_tape_f32_free(&tape);
    }
    for (size_t i = 0; i < f.params.size; i++) {
        double d = (double)(dw[1][i] - dw[0][i]);
        off += d * d;
        size += (double)dw[0][i] * (double)dw[0][i];
    }
    assert_true(loss[0] != loss[1]);
    assert_true(fabs(loss[0] - loss[1]) < 0.01 * fabs(loss[0]));
    if (!(sqrt(off / size) < 0.03))
        fail_msg("gradients in bf16 are off by %g", sqrt(off / size));
    kh_free(dw[0]);
    kh_free(dw[1]);
    kh_free(w);
    teardown(&f);
}

/* ----------------------------------------------------------------------------- against PyTorch */

enum { TV = 13, TH = 8, TP = 12, T_SLOTS = 2, T_PREFIX = 2 };

static double *wave(size_t n, double frequency, double shift) {
    double *x = kh_calloc(n, sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = 0.5 * sin(frequency * (double)i + 0.3 + shift);
    return x;
}

static void assert_close(const char *what, const double *have, const char *name, size_t n) {
    double *want = vector_read(name, n), off = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        off += (have[i] - want[i]) * (have[i] - want[i]);
        size += want[i] * want[i];
    }
    if (!(sqrt(off / size) < 1e-10))
        fail_msg("%s: relative distance from PyTorch %g", what, sqrt(off / size));
    free(want);
}

/* The model, text and loss of tools/make_training_vectors.py. */
static void check_torch(
    const char *name, const char *arch, kh_inject inject, bool with_prefix, bool labels) {
    static const int LENGTH[3] = { 6, 3, 5 }, AT[4] = { 1, 4, 0, 2 };
    static const int32_t WORD[3] = { 5, 9, 7 };
    static const int LABEL[3] = { 0, 0, 1 };
    kh_config c = *kh_arch_find(arch);
    c.hidden = TH, c.heads = 2, c.inner = 12, c.vocab = TV, c.positions = TP;
    kh_params params;
    assert_int_equal(kh_params_init(&params, &c, NULL), 0);
    double *w = wave(params.size, 1.7, 0), *dw = kh_calloc(params.size, sizeof *dw);
    for (int i = 0; i < params.n; i++)
        for (int j = 0; params.item[i].row->fill == KH_FILL_ONE && j < TH; j++)
            w[params.item[i].at + (size_t)j] += 1;
    size_t n_prompt = T_SLOTS * TH, n_prefix = 2 * 2 * T_PREFIX * TH;
    double *prompt = wave(n_prompt, 2.3, 1), *prefix = wave(n_prefix, 1.1, 2);
    double *d_prompt = kh_calloc(n_prompt, sizeof(double)),
           *d_prefix = kh_calloc(n_prefix, sizeof(double));
    kh_slot slot[MAX_T];
    int start[4] = { 0 }, first_at[4] = { 0, 2, 2, 4 }, at[4];
    int32_t target[4];
    kh_model m = { .config = c };
    for (int s = 0; s < 3; s++) {
        int32_t id[8];
        for (int i = 0; i < LENGTH[s]; i++)
            id[i] = 2 + (5 * s + 3 * i) % (TV - 2);
        kh_input in = {
            .id = id, .n_id = LENGTH[s], .inject = inject, .n_prompt = inject ? T_SLOTS : 0
        };
        kh_input_slots(&m, &in, slot + start[s]);
        start[s + 1] = start[s] + kh_input_length(&in);
    }
    for (int i = 0; i < 4; i++) {
        at[i] = start[i < 2 ? 0 : 2] + AT[i];
        target[i] = labels ? i % 2 : (3 + 4 * i) % TV;
    }
    kh_packed text = { 3, start, slot, at, first_at };
    kh_lm_loss loss = { .target = target, .scale = 0.25 };
    if (labels)
        loss = (kh_lm_loss){ target, NULL, WORD, LABEL, 3, 2, 0.25 };
    kh_pass_f64 pass = { .w = w, .text = &text, .loss = &loss, .dw = dw };
    if (inject)
        pass.prompt = prompt, pass.n_prompt = T_SLOTS, pass.d_prompt = d_prompt;
    if (with_prefix)
        pass.prefix = prefix, pass.n_prefix = T_PREFIX, pass.d_prefix = d_prefix;
    kh_tape_f64 tape = { 0 };
    double value;
    char key[64];
    assert_int_equal(kh_backward_f64(&tape, &params, &pass, &value, NULL), 0);
    kh_tape_f64_free(&tape);
    snprintf(key, sizeof key, "%s.loss", name);
    assert_close("loss", &value, key, 1);
    snprintf(key, sizeof key, "%s.weights", name);
    assert_close("weights", dw, key, params.size);
    snprintf(key, sizeof key, "%s.prompt", name);
    if (inject)
        assert_close("prompt", d_prompt, key, n_prompt);
    snprintf(key, sizeof key, "%s.prefix", name);
    if (with_prefix)
        assert_close("prefix", d_prefix, key, n_prefix);
    double *all[] = { w, dw, prompt, prefix, d_prompt, d_prefix };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        kh_free(all[i]);
    kh_params_free(&params);
}

static void pytorch_bert(void **state) {
    (void)state, check_torch("bert", "bert-tiny", KH_INJECT_NONE, false, false);
}
static void pytorch_added(void **state) {
    (void)state, check_torch("roberta-added", "roberta-tiny", KH_INJECT_POST_LN_ADD, false, true);
}
static void pytorch_front(void **state) {
    (void)state, check_torch("roberta-front", "roberta-tiny", KH_INJECT_EMBED_PREFIX, true, false);
}
static void pytorch_inside(void **state) {
    (void)state, check_torch("bert-inside", "bert-tiny", KH_INJECT_EMBED_INPLACE, true, true);
}

/* ----------------------------------------------------------------------------------------- f32 */

static float *floats_of(const double *x, size_t n) {
    float *y = kh_calloc(n + 1, sizeof *y);
    assert_non_null(y);
    for (size_t i = 0; i < n; i++)
        y[i] = (float)x[i];
    return y;
}

static double distance(const float *a, const double *b, size_t n) {
    double off = 0, size = 1e-30;
    for (size_t i = 0; i < n; i++) {
        off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(off / size);
}

/* Every row of kernels, several shards, one thread and three: near the double result, and among
 * themselves the same bits for any number of threads. */
static void f32_follows_double(void **state) {
    (void)state;
    fixture f;
    double exact, loss, again;
    setup(&f, "roberta-tiny", KH_INJECT_POST_LN_ADD, true, false);
    kh_tape_f64 tape = { 0 };
    kh_pass_f64 p = make_pass(&f, true);
    assert_int_equal(kh_backward_f64(&tape, &f.params, &p, &exact, NULL), 0);
    kh_tape_f64_free(&tape);
    float *w = floats_of(f.w, f.params.size), *prompt = floats_of(f.prompt, f.n_prompt),
          *prefix = floats_of(f.prefix, f.n_prefix);
    kh_pass_f32 pass = { .w = w,
        .text = &f.text,
        .loss = &f.loss,
        .prompt = prompt,
        .n_prompt = N_PROMPT,
        .prefix = prefix,
        .n_prefix = N_PREFIX };
    for (int shards = 1; shards <= 5; shards += 2) {
        kh_gradient *g, *h;
        unsigned all = KH_WRT_WEIGHTS | KH_WRT_PROMPT | KH_WRT_PREFIX;
        assert_int_equal(kh_gradient_new(&g, &f.params, shards, all, N_PROMPT, N_PREFIX, NULL), 0);
        assert_int_equal(kh_gradient_new(&h, &f.params, shards, all, N_PROMPT, N_PREFIX, NULL), 0);
        kh_threads_set(1);
        assert_int_equal(kh_gradient_run(g, &pass, true, &loss, NULL), 0);
        kh_threads_set(3);
        assert_int_equal(kh_gradient_run(h, &pass, true, &again, NULL), 0);
        kh_threads_set(0);
        assert_true(loss == again && fabs(loss - exact) < 1e-5);
        assert_memory_equal(
            kh_gradient_weights(g), kh_gradient_weights(h), f.params.size * sizeof(float));
        assert_true(distance(kh_gradient_weights(g), f.dw, f.params.size) < 1e-5);
        assert_true(distance(kh_gradient_prompt(g), f.d_prompt, f.n_prompt) < 1e-5);
        assert_true(distance(kh_gradient_prefix(g), f.d_prefix, f.n_prefix) < 1e-5);
        assert_int_equal(kh_gradient_run(g, &pass, false, &again, NULL), 0); /* the loss alone */
        assert_true(loss == again);
        kh_gradient_free(g);
        kh_gradient_free(h);
    }
    kh_free(w);
    kh_free(prompt);
    kh_free(prefix);
    teardown(&f);
}

/* What is dropped does not depend on how a batch is cut or who computes it, but on seed and step.
 */
static void dropout_is_named_by_place(void **state) {
    (void)state;
    fixture f;
    double exact, whole, loss, again;
    setup(&f, "roberta-tiny", KH_INJECT_NONE, false, false);
    whole = loss_now(&f);
    f.dropout = &(kh_dropout){ 1e-12, 5, 7 };
    assert_true(fabs(loss_now(&f) - whole) < 1e-9); /* next to nothing changes next to nothing */
    f.dropout = &SOME;
    exact = loss_now(&f);
    float *w = floats_of(f.w, f.params.size);
    kh_pass_f32 pass = { .w = w, .text = &f.text, .loss = &f.loss, .dropout = &SOME };
    for (int shards = 1; shards <= 3; shards++) {
        kh_gradient *g, *h;
        assert_int_equal(kh_gradient_new(&g, &f.params, shards, KH_WRT_WEIGHTS, 0, 0, NULL), 0);
        assert_int_equal(kh_gradient_new(&h, &f.params, shards, KH_WRT_WEIGHTS, 0, 0, NULL), 0);
        kh_threads_set(1);
        assert_int_equal(kh_gradient_run(g, &pass, true, &loss, NULL), 0);
        kh_threads_set(3);
        assert_int_equal(kh_gradient_run(h, &pass, true, &again, NULL), 0);
        kh_threads_set(0);
        assert_true(loss == again && fabs(loss - exact) < 1e-5);
        assert_memory_equal(
            kh_gradient_weights(g), kh_gradient_weights(h), f.params.size * sizeof(float));
        assert_int_equal(kh_gradient_run(g, &pass, false, &loss, NULL), 0);
        assert_true(fabs(loss - whole) < 1e-5); /* the loss alone is that of the whole model */
        kh_gradient_free(g);
        kh_gradient_free(h);
    }
    f.dropout = &(kh_dropout){ 0.3, 5, 8 };
    assert_true(fabs(loss_now(&f) - exact) > 1e-6);
    f.dropout = &(kh_dropout){ 0.3, 6, 7 };
    assert_true(fabs(loss_now(&f) - exact) > 1e-6);
    kh_free(w);
    teardown(&f);
}

/* Layers that are computed again give the same bits and need less memory. */
static void recomputed_layers_are_the_same(void **state) {
    (void)state;
    for (int layers = 1; layers <= 5; layers += 2)
        for (int dropout = 0; dropout < 2; dropout++) {
            fixture f;
            double loss[2];
            setup_deep(&f, "bert-tiny", layers, KH_INJECT_NONE, true, false);
            float *w = floats_of(f.w, f.params.size), *prefix = floats_of(f.prefix, f.n_prefix);
            float *dw[2], *d_prefix[2];
            kh_tape_f32 tape[2] = { { 0 } };
            for (int i = 0; i < 2; i++) {
                dw[i] = kh_calloc(f.params.size, sizeof **dw);
                d_prefix[i] = kh_calloc(f.n_prefix, sizeof **d_prefix);
                kh_pass_f32 pass = { .w = w,
                    .text = &f.text,
                    .loss = &f.loss,
                    .prefix = prefix,
                    .n_prefix = N_PREFIX,
                    .dw = dw[i],
                    .d_prefix = d_prefix[i],
                    .dropout = dropout ? &SOME : NULL,
                    .recompute = i == 1 };
                assert_int_equal(kh_backward_f32(&tape[i], &f.params, &pass, &loss[i], NULL), 0);
            }
            assert_true(loss[0] == loss[1]);
            assert_memory_equal(dw[0], dw[1], f.params.size * sizeof **dw);
            assert_memory_equal(d_prefix[0], d_prefix[1], f.n_prefix * sizeof **d_prefix);
            assert_true(
                layers == 5 ? tape[1].cap < tape[0].cap * 3 / 4 : tape[1].cap <= tape[0].cap);
            for (int i = 0; i < 2; i++) {
                kh_tape_f32_free(&tape[i]);
                kh_free(dw[i]);
                kh_free(d_prefix[i]);
            }
            kh_free(w);
            kh_free(prefix);
            teardown(&f);
        }
}

static void log_probabilities_of_labels(void **state) {
    (void)state;
    fixture f;
    double loss, sum = 0;
    setup(&f, "bert-tiny", KH_INJECT_NONE, false, true);
    double logprob[5][2];
    kh_tape_f64 tape = { 0 };
    kh_pass_f64 p = make_pass(&f, false);
    p.logprob = logprob[0];
    assert_int_equal(kh_backward_f64(&tape, &f.params, &p, &loss, NULL), 0);
    for (int i = 0; i < 5; i++) {
        assert_true(fabs(exp(logprob[i][0]) + exp(logprob[i][1]) - 1) < 1e-12);
        sum -= 0.2 * logprob[i][f.target[i]];
    }
    assert_true(fabs(sum - loss) < 1e-12);
    kh_tape_f64_free(&tape);
    teardown(&f);
}

/* Every allocation fails once: a sentence each time, nothing leaks (make asan), and the next run
 * works. */
static void out_of_memory(void **state) {
    (void)state;
    fixture f;
    double loss;
    kh_err err;
    setup(&f, "bert-tiny", KH_INJECT_NONE, false, false);
    float *w = floats_of(f.w, f.params.size);
    kh_pass_f32 pass = { .w = w, .text = &f.text, .loss = &f.loss };
    kh_threads_set(1);
    int rc = KH_ENOMEM;
    for (long n = 1; rc != 0; n++) {
        kh_params params = { 0 };
        kh_gradient *g = NULL;
        kh_alloc_fail_at(n, false);
        rc = kh_params_init(&params, &f.params.config, &err);
        if (rc == 0)
            rc = kh_gradient_new(&g, &params, 2, KH_WRT_WEIGHTS, 0, 0, &err);
        if (rc == 0)
            rc = kh_gradient_run(g, &pass, true, &loss, &err);
        kh_alloc_fail_at(0, false);
        kh_gradient_free(g);
        kh_params_free(&params);
        if (rc != 0)
            assert_int_equal(rc, KH_ENOMEM);
        assert_true(n < 100);
    }
    kh_threads_set(0);
    kh_free(w);
    teardown(&f);
}

/* The loss of one place is what the reference forward pass says. */
static void loss_of_the_reference(void **state) {
    (void)state;
    char dir[80];
    kh_random_opts o = {
        .config = *kh_arch_find("roberta-tiny"), .dtype = KH_DTYPE_F32, .std = 0.3, .seed = 3
    };
    snprintf(dir, sizeof dir, "/tmp/keyhole-test-backward-%ld", (long)getpid());
    assert_int_equal(kh_random_model_write(dir, &o, NULL), 0);
    kh_model *m;
    assert_int_equal(kh_model_open(&m, dir, NULL, NULL), 0);
    kh_params params;
    assert_int_equal(kh_params_init(&params, &m->config, NULL), 0);
    float *w = kh_calloc(params.size, sizeof *w), logits[300];
    kh_params_take(&params, m, 0, w);
    const int32_t id[] = { 0, 17, 4, 200, 9, 2 };
    int at = 2, start[2] = { 0, 6 }, first_at[2] = { 0, 1 };
    kh_input in = { .id = id, .n_id = 6 };
    kh_slot slot[6];
    kh_input_slots(m, &in, slot);
    assert_int_equal(
        kh_reference_run(m, &in, &(kh_output){ .at = &at, .n_at = 1, .logits = logits }, NULL), 0);
    double sum = 0, loss;
    for (int i = 0; i < 300; i++)
        sum += exp((double)logits[i]);
    kh_packed text = { 1, start, slot, &at, first_at };
    kh_lm_loss how = { .target = (int32_t[]){ 123 }, .scale = 1 };
    kh_tape_f32 tape = { 0 };
    assert_int_equal(kh_backward_f32(&tape, &params,
                         &(kh_pass_f32){ .w = w, .text = &text, .loss = &how }, &loss, NULL),
        0);
    assert_true(fabs(loss - (log(sum) - (double)logits[123])) < 1e-4);
    kh_tape_f32_free(&tape);

    /* What was taken from the model and saved again is the model. */
    uint64_t fingerprint = m->fingerprint;
    kh_model_close(m);
    assert_int_equal(kh_params_save(&params, w, dir, KH_DTYPE_F32, NULL), 0);
    assert_int_equal(kh_model_open(&m, dir, NULL, NULL), 0);
    assert_true(m->fingerprint == fingerprint);
    kh_model_close(m);
    kh_params_free(&params);
    kh_free(w);
    char path[120];
    static const char *const FILES[] = { "config.json", "model.safetensors" };
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, FILES[i]);
        unlink(path);
    }
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bert_all_weights),
        cmocka_unit_test(roberta_added_prompt),
        cmocka_unit_test(roberta_prompt_in_front),
        cmocka_unit_test(bert_prompt_inside),
        cmocka_unit_test(roberta_prefixes),
        cmocka_unit_test(bert_prompt_and_prefixes),
        cmocka_unit_test(bert_with_dropout),
        cmocka_unit_test(roberta_with_dropout),
        cmocka_unit_test(bert_with_weighted_places),
        cmocka_unit_test(weights_add_up),
        cmocka_unit_test(bf16_is_near),
        cmocka_unit_test(dropout_is_named_by_place),
        cmocka_unit_test(recomputed_layers_are_the_same),
        cmocka_unit_test(pytorch_bert),
        cmocka_unit_test(pytorch_added),
        cmocka_unit_test(pytorch_front),
        cmocka_unit_test(pytorch_inside),
        cmocka_unit_test(f32_follows_double),
        cmocka_unit_test(log_probabilities_of_labels),
        cmocka_unit_test(loss_of_the_reference),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
