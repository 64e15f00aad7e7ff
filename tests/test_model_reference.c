/* test_model_reference.c - the plain forward pass against PyTorch's numbers
 * (tools/make_model_vectors.py). */
#include "model_vectors.h"

#include "model/reference.h"

#define VECTORS "tests/vectors/models/"
#define DECODERS "tests/vectors/decoders/"

/* One case: all recorded layers and logits within `limit`. */
static void check_case(const kh_model *m, const vector_case *c, double limit) {
    kh_err err;
    kh_input in = { c->id, c->n_id, c->inject, c->prompt, c->n_prompt };
    size_t states = (size_t)kh_input_length(&in) * (size_t)m->config.hidden,
           layers = (size_t)m->config.layers + 1;
    float *hidden = malloc(layers * states * sizeof *hidden),
          *logits = malloc((size_t)(c->n_at * m->config.vocab + 1) * sizeof *logits);
    kh_output out = { .hidden = hidden, .at = c->at, .n_at = c->n_at, .logits = logits };
    if (kh_reference_run(m, &in, &out, &err) != 0)
        fail_msg("%s: %s", c->name, err.msg);
    if (c->hidden) {
        assert_int_equal(c->layers, m->config.layers + 1);
        assert_int_equal(c->tokens, kh_input_length(&in));
        for (size_t l = 0; l < layers; l++)
            if (vector_error(hidden + l * states, c->hidden + l * states, states) > limit)
                fail_msg("%s: layer %zu is off by %g", c->name, l,
                    vector_error(hidden + l * states, c->hidden + l * states, states));
    }
    for (int i = 0; i < c->n_at; i++) {
        assert_int_equal(c->n_vocab, m->config.vocab);
        double e = vector_error(logits + i * m->config.vocab, c->logits[i], (size_t)c->n_vocab);
        if (e > limit)
            fail_msg("%s: logits at %d are off by %g", c->name, c->at[i], e);
    }
    free(hidden);
    free(logits);
}

/* The largest difference from the numbers of all layers and logits, absolute. */
static double worst_of_case(const kh_model *m, const vector_case *c) {
    kh_input in = { c->id, c->n_id, c->inject, c->prompt, c->n_prompt };
    size_t states = (size_t)kh_input_length(&in) * (size_t)m->config.hidden,
           layers = (size_t)m->config.layers + 1, vocab = (size_t)m->config.vocab;
    float *hidden = malloc(layers * states * sizeof *hidden),
          *logits = malloc(((size_t)c->n_at * vocab + 1) * sizeof *logits);
    kh_output out = { .hidden = hidden, .at = c->at, .n_at = c->n_at, .logits = logits };
    kh_err err;
    if (kh_reference_run(m, &in, &out, &err) != 0)
        fail_msg("%s: %s", c->name, err.msg);
    assert_int_equal(c->layers, layers);
    double worst = vector_difference(hidden, c->hidden, layers * states);
    for (size_t i = 0; i < (size_t)c->n_at; i++)
        worst = fmax(worst, vector_difference(logits + i * vocab, c->logits[i], vocab));
    free(hidden);
    free(logits);
    return worst;
}

/* Every architecture of decoder, three cases each: hidden states of all layers, and logits. */
static void decoders(void **state) {
    (void)state;
    static const char *const NAMES[] = { "gpt2", "gpt2-no-prefix", "llama", "llama-linear",
        "llama3", "mistral", "qwen2", "qwen3", "gemma3" };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        char path[256];
        vector_case c;
        int n = 0;
        snprintf(path, sizeof path, DECODERS "%s", NAMES[i]);
        kh_model *m = open_model(path);
        assert_int_equal(m->n_extra, 0);
        snprintf(path, sizeof path, DECODERS "%s/expected.txt", NAMES[i]);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        for (; vector_next(f, &c); n++) {
            double worst = worst_of_case(m, &c);
            if (!(worst < 2e-5))
                fail_msg("%s: %s is off by %g", NAMES[i], c.name, worst);
            if (getenv("KEYHOLE_SHOW"))
                printf("%s %s: %.2g\n", NAMES[i], c.name, worst);
            vector_free(&c);
        }
        vector_free(&c);
        fclose(f);
        assert_int_equal(n, 3);
        kh_model_close(m);
    }
}

/* All cases of a model; there must be as many as said, so that an empty file is no success. */
static void check_model(const char *name, int n_cases) {
    char path[256];
    snprintf(path, sizeof path, VECTORS "%s", name);
    kh_model *m = open_model(path);
    snprintf(path, sizeof path, VECTORS "%s/expected.txt", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    vector_case c;
    int n = 0;
    for (; vector_next(f, &c); n++) {
        check_case(m, &c, 2e-6);
        vector_free(&c);
    }
    vector_free(&c);
    fclose(f);
    assert_int_equal(n, n_cases);
    kh_model_close(m);
}

static void bert(void **state) {
    (void)state;
    check_model("bert", 7);
}
static void bert_with_old_names_and_own_decoder(void **state) {
    (void)state;
    check_model("bert-old-names", 1);
}
static void bert_without_head_or_prefix(void **state) {
    (void)state;
    check_model("bert-no-head", 1);
}
static void roberta(void **state) {
    (void)state;
    check_model("roberta", 7);
}
static void roberta_f16(void **state) {
    (void)state;
    check_model("roberta-f16", 1);
}
static void roberta_bf16(void **state) {
    (void)state;
    check_model("roberta-bf16", 1);
}
static void roberta_in_shards(void **state) {
    (void)state;
    check_model("roberta-shards", 1);
}
static void electra(void **state) {
    (void)state;
    check_model("electra", 4);
}
static void albert(void **state) {
    (void)state;
    check_model("albert", 4);
}
static void modernbert(void **state) {
    (void)state;
    check_model("modernbert", 7);
}
static void distilbert(void **state) {
    (void)state;
    check_model("distilbert", 1);
}

static void logits_of_chosen_tokens_are_those_of_all(void **state) {
    (void)state;
    kh_model *m = open_model(VECTORS "roberta");
    const int32_t id[] = { 2, 50, 60, 4, 9, 2 }, token[] = { 119, 0, 7, 7 };
    const int at[] = { 3, 0 };
    float all[2 * 120], some[2 * 4];
    kh_input in = { .id = id, .n_id = 6 };
    assert_int_equal(
        kh_reference_run(m, &in, &(kh_output){ .at = at, .n_at = 2, .logits = all }, NULL), 0);
    assert_int_equal(
        kh_reference_run(m, &in,
            &(kh_output){ .at = at, .n_at = 2, .token = token, .n_token = 4, .logits = some },
            NULL),
        0);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            assert_true(some[i * 4 + j] == all[i * 120 + token[j]]);
    kh_model_close(m);
}

/* A prompt of zeros added after LayerNorm changes nothing; embedded rows that are a token's own
 * word embedding are that token. */
static void prompts_that_change_nothing(void **state) {
    (void)state;
    kh_model *m = open_model(VECTORS "bert");
    const int32_t id[] = { 2, 50, 60, 4, 9, 3 }, fewer[] = { 2, 4, 9, 3 };
    float plain[3 * 6 * 32], other[3 * 6 * 32], prompt[2 * 32] = { 0 };
    assert_int_equal(kh_reference_run(m, &(kh_input){ .id = id, .n_id = 6 },
                         &(kh_output){ .hidden = plain }, NULL),
        0);
    kh_input in = { id, 6, KH_INJECT_POST_LN_ADD, prompt, 2 };
    assert_int_equal(kh_reference_run(m, &in, &(kh_output){ .hidden = other }, NULL), 0);
    assert_memory_equal(plain, other, sizeof plain);
    kh_tensor_row(&m->w.word, 50, prompt);
    kh_tensor_row(&m->w.word, 60, prompt + 32);
    in = (kh_input){ fewer, 4, KH_INJECT_EMBED_INPLACE, prompt, 2 };
    assert_int_equal(kh_reference_run(m, &in, &(kh_output){ .hidden = other }, NULL), 0);
    assert_memory_equal(plain, other, sizeof plain);
    kh_model_close(m);
}

static void places_of_ids(void **state) {
    (void)state;
    kh_input in = { .n_id = 5, .n_prompt = 3 };
    assert_int_equal(kh_input_place(&in, 4), 4);
    in.inject = KH_INJECT_POST_LN_ADD;
    assert_int_equal(kh_input_length(&in), 5);
    assert_int_equal(kh_input_place(&in, 4), 4);
    in.inject = KH_INJECT_EMBED_PREFIX;
    assert_int_equal(kh_input_length(&in), 8);
    assert_int_equal(kh_input_place(&in, 0), 3);
    in.inject = KH_INJECT_EMBED_INPLACE;
    assert_int_equal(kh_input_length(&in), 8);
    assert_int_equal(kh_input_place(&in, 0), 0);
    assert_int_equal(kh_input_place(&in, 1), 4);
}

static void stored_as_bf16(void **state) {
    (void)state;
    kh_err err;
    kh_model *f32 = open_model(VECTORS "roberta"), *stored,
             *file = open_model(VECTORS "roberta-bf16");
    assert_int_equal(
        kh_model_open(&stored, VECTORS "roberta", &(kh_model_opts){ .store = KH_DTYPE_BF16 }, &err),
        0);
    const kh_tensor *a = &stored->w.layer[1].down_w, *b = &file->w.layer[1].down_w;
    assert_int_equal(a->dtype, KH_DTYPE_BF16);
    assert_memory_equal(a->data, b->data, kh_tensor_bytes(b)); /* our rounding is PyTorch's */
    assert_int_equal(stored->w.ln_g.dtype, KH_DTYPE_F32);
    assert_true(kh_model_describe(stored).bytes < kh_model_describe(f32).bytes * 6 / 10);
    assert_true(kh_model_describe(stored).fingerprint ==
        kh_model_describe(f32).fingerprint); /* what was read, not how it is kept */
    assert_true(kh_model_describe(file).fingerprint != kh_model_describe(f32).fingerprint);
    kh_model_close(stored);
    kh_model_close(file);
    kh_model_close(f32);
}

/* ---------------------------------------------------------------------------------- complaints */

static void refuse(const kh_model *m, kh_input in, kh_output out, const char *sentence) {
    kh_err err = { 0 };
    assert_true(kh_reference_run(m, &in, &out, &err) < 0);
    assert_says(&err, sentence);
}

static void wrong_inputs_are_refused(void **state) {
    (void)state;
    kh_model *m = open_model(VECTORS "roberta");
    int32_t id[64] = { 2, 5, 6 };
    float prompt[64 * 32] = { 0 };
    int at = 3;
    kh_output none = { 0 };
    refuse(m, (kh_input){ .id = id }, none, "a sequence without tokens has no hidden states");
    refuse(m, (kh_input){ .id = id, .n_id = 39 }, none,
        "a sequence of 39 tokens is longer than the 38 that the model can take");
    refuse(m, (kh_input){ id, 36, KH_INJECT_EMBED_PREFIX, prompt, 3 }, none,
        "a sequence of 39 tokens is longer than the 38");
    refuse(m, (kh_input){ .id = (int32_t[]){ 120 }, .n_id = 1 }, none,
        "token id 120 is outside the model's vocabulary of 120");
    refuse(m, (kh_input){ .id = (int32_t[]){ -1 }, .n_id = 1 }, none, "token id -1 is outside");
    refuse(m, (kh_input){ id, 3, KH_INJECT_NONE, prompt, 3 }, none,
        "a soft prompt of 3 rows needs an injection mode");
    refuse(m, (kh_input){ id, 3, KH_INJECT_EMBED_PREFIX, NULL, 3 }, none,
        "a soft prompt of 3 rows has no numbers");
    refuse(m, (kh_input){ id, 3, KH_INJECT_POST_LN_ADD, prompt, 3 }, none,
        "added to the ids after the first, of which there are only 2");
    refuse(m, (kh_input){ .id = id, .n_id = 3 }, (kh_output){ .at = &at, .n_at = 1 },
        "logits are wanted at place 3 of a sequence of 3");
    at = 1;
    refuse(m, (kh_input){ .id = id, .n_id = 3 },
        (kh_output){ .at = &at, .n_at = 1, .token = (int32_t[]){ 120 }, .n_token = 1 },
        "the logit of token 120 is wanted, the vocabulary has 120");
    prompt[33] = NAN;
    refuse(m, (kh_input){ id, 3, KH_INJECT_EMBED_PREFIX, prompt, 3 }, none,
        "the soft prompt holds NaN or infinity in row 1");
    kh_model_close(m);
    m = open_model(VECTORS "bert-no-head");
    refuse(m, (kh_input){ .id = id, .n_id = 3 }, (kh_output){ .at = &at, .n_at = 1 },
        "the model has no masked-language-model head, which a logit needs");
    kh_model_close(m);
    kh_inject inject;
    kh_err err;
    assert_int_equal(kh_inject_find(&inject, "prefix", &err), KH_EARG);
    assert_says(&err, "\"prefix\" is no injection mode; there are post-ln-add");
    assert_string_equal(kh_inject_name(KH_INJECT_EMBED_INPLACE), "embed-inplace");
}

/* -------------------------------------------------------------------------------- a real model */

static void minilm_fills_masks_as_pytorch_does(void **state) {
    (void)state;
    test_needs_shared("models/minilm-mlm/model.safetensors");
    kh_model *m = open_model("../shared/models/minilm-mlm");
    FILE *f = fopen("tests/vectors/minilm/expected.txt", "r");
    assert_non_null(f);
    vector_case c;
    int n = 0;
    for (; vector_next(f, &c); n++) {
        kh_input in = { .id = c.id, .n_id = c.n_id };
        float *logits = malloc((size_t)m->config.vocab * sizeof *logits);
        assert_int_equal(kh_reference_run(m, &in,
                             &(kh_output){ .at = &c.top_at, .n_at = 1, .logits = logits }, NULL),
            0);
        for (int i = 0; i < c.n_top; i++)
            assert_true(
                fabs((double)logits[c.top_id[i]] - c.top_logit[i]) < 1e-5 * fabs(c.top_logit[0]));
        int above = 0;
        for (int i = 0; i < m->config.vocab; i++)
            above += (double)logits[i] > c.top_logit[c.n_top - 1] + 1e-4;
        assert_int_equal(above, c.n_top - 1);
        free(logits);
        vector_free(&c);
    }
    vector_free(&c);
    fclose(f);
    assert_int_equal(n, 3);
    kh_model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoders),
        cmocka_unit_test(bert),
        cmocka_unit_test(bert_with_old_names_and_own_decoder),
        cmocka_unit_test(bert_without_head_or_prefix),
        cmocka_unit_test(roberta),
        cmocka_unit_test(roberta_f16),
        cmocka_unit_test(roberta_bf16),
        cmocka_unit_test(roberta_in_shards),
        cmocka_unit_test(distilbert),
        cmocka_unit_test(electra),
        cmocka_unit_test(modernbert),
        cmocka_unit_test(albert),
        cmocka_unit_test(logits_of_chosen_tokens_are_those_of_all),
        cmocka_unit_test(prompts_that_change_nothing),
        cmocka_unit_test(places_of_ids),
        cmocka_unit_test(stored_as_bf16),
        cmocka_unit_test(wrong_inputs_are_refused),
        cmocka_unit_test(minilm_fills_masks_as_pytorch_does),
    };
    return cmocka_run_group_tests_name("model_reference", tests, NULL, NULL);
}
