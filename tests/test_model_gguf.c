/* test_model_gguf.c - models in GGUF files: the same numbers in the same places as in the folders
 * that they were made from (tools/make_gguf_models.py), and what is wrong with others. */
#include "gguf_file.h"
#include "same_weights.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/gguf.h"
#include "data/chat.h"
#include "model/gguf_model.h"

#include <math.h>

#define FILES "tests/vectors/gguf/"

static void check_pair(const char *folder, const char *file, double tolerance) {
    kh_model *a = open_model(folder), *b = open_model(file);
    same_config(&a->config, &b->config);
    same_weights(a, b, tolerance);
    kh_model_close(a);
    kh_model_close(b);
}

static void decoders(void **state) {
    (void)state;
    static const char *const names[] = { "llama", "qwen2", "qwen3", "gpt2" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char folder[128], file[128];
        snprintf(folder, sizeof folder, "tests/vectors/decoders/%s", names[i]);
        snprintf(file, sizeof file, FILES "%s.gguf", names[i]);
        check_pair(folder, file, 0);
    }
    /* 1 was added to the norms and taken away again. */
    check_pair("tests/vectors/decoders/gemma3", FILES "gemma3.gguf", 1e-7);
}

static void split_files(void **state) {
    (void)state;
    check_pair("tests/vectors/decoders/llama", FILES "llama-split-00001-of-00002.gguf", 0);
    kh_model *m;
    kh_err err;
    assert_int_equal(
        kh_model_open(&m, FILES "llama-split-00002-of-00002.gguf", NULL, &err), KH_EARG);
    assert_says(&err, "is part 2 of 2 of a model; give the first part");
    kh_buf bytes;
    assert_int_equal(
        kh_file_read(FILES "llama-split-00001-of-00002.gguf", 1 << 20, &bytes, &err), 0);
    const char *path = test_file("x-00001-of-00002.gguf", bytes.data, bytes.len);
    assert_int_equal(kh_model_open(&m, path, NULL, &err), KH_EMISSING);
    assert_says(&err, "x-00002-of-00002.gguf");
    unlink(path);
    path = test_file("other.gguf", bytes.data, bytes.len);
    assert_int_equal(kh_model_open(&m, path, NULL, &err), KH_EARG);
    unlink(path);
    kh_buf_free(&bytes);
}

/* llama.cpp's bert has no head: features only, and the sentence says why. */
static void an_encoder(void **state) {
    (void)state;
    kh_model *a = open_model("tests/vectors/models/bert"), *b = open_model(FILES "bert.gguf"), *m;
    kh_err err;
    assert_false(b->head);
    same_config(&a->config, &b->config);
    same_weights(a, b, 0);
    kh_model_close(a);
    kh_model_close(b);
    assert_int_equal(
        kh_model_open(&m, FILES "bert.gguf", &(kh_model_opts){ .need_head = "fill-mask" }, &err),
        KH_EUNSUPPORTED);
    assert_says(&err, "llama.cpp's converter leaves it out");
}

static void refuse(gguf_file *g, int code, const char *sentence) {
    const char *path = test_file("bad.gguf", g->byte, g->n);
    kh_model *m;
    kh_err err = { 0 };
    int rc = kh_model_open(&m, path, NULL, &err);
    if (rc != code)
        fail_msg("expected \"%s\", got %d \"%s\"", sentence, rc, err.msg);
    assert_says(&err, sentence);
    unlink(path);
}

static void broken_models(void **state) {
    (void)state;
    gguf_file g;
    gguf_start(&g, 3, 0, 0);
    gguf_align(&g, 32);
    refuse(&g, KH_EFORMAT, "the key \"general.architecture\" is missing");
    gguf_start(&g, 3, 0, 1);
    gguf_string_key(&g, "general.architecture", "mamba");
    gguf_align(&g, 32);
    refuse(
        &g, KH_EUNSUPPORTED, "is \"mamba\"; llama, qwen2, qwen3, gemma3, gpt2 and bert are read");
    gguf_start(&g, 3, 0, 1);
    gguf_string_key(&g, "general.architecture", "llama");
    gguf_align(&g, 32);
    refuse(&g, KH_EFORMAT, "no tensor \"token_embd.weight\"");
    /* Sizes that do not belong to the tensors; one type that is known and not read. */
    for (int i = 0; i < 3; i++) {
        gguf_start(&g, 3, 1, 7);
        gguf_string_key(&g, "general.architecture", "llama");
        static const char *const sizes[] = { "llama.block_count", "llama.embedding_length",
            "llama.attention.head_count", "llama.feed_forward_length", "llama.context_length" };
        for (int k = 0; k < 5; k++) {
            gguf_key(&g, sizes[k], 4);
            gguf_int(&g, k == 0 ? 1 : k == 2 ? 4 : k == 1 && i == 0 ? 128 : 256, 4);
        }
        gguf_key(&g, "llama.attention.layer_norm_rms_epsilon", 6);
        gguf_int(&g, i == 2 ? 0x7FC00000 : 0x3727C5AC, 4);
        gguf_tensor(&g, "token_embd.weight", 256, 1, 21, 0);
        gguf_align(&g, 32);
        g.n += 110;
        if (i == 0)
            refuse(&g, KH_EMISMATCH, "has shape [1, 256], but config.json says");
        else if (i == 1)
            refuse(
                &g, KH_EUNSUPPORTED, "is of type IQ3_S; weights must be F32, F16 or BF16, or Q8_0");
        else
            refuse(&g, KH_EFORMAT, "layer_norm_rms_epsilon\" is not a finite number");
    }
}

/* ------------------------------------------------------------------ what a header says of a model
 */

static void int_key(gguf_file *g, const char *key, uint64_t x) {
    gguf_key(g, key, 4);
    gguf_int(g, x, 4);
}

static void number_key(gguf_file *g, const char *key, float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    gguf_key(g, key, 6);
    gguf_int(g, bits, 4);
}

/* Begins a decoder of two heads with so many keys more, which come behind this. */
static void start_decoder(gguf_file *g, const char *arch, int layers, int tensors, int more) {
    static const char *const KEYS[] = { "block_count", "embedding_length", "attention.head_count",
        "feed_forward_length", "context_length" };
    const int values[] = { layers, 128, 2, 16, 64 };
    char key[80];
    gguf_start(g, 3, (uint64_t)tensors, (uint64_t)(7 + more));
    gguf_string_key(g, "general.architecture", arch);
    for (int i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "%s.%s", arch, KEYS[i]);
        int_key(g, key, (uint64_t)values[i]);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    number_key(g, key, 1e-5f);
}

/* The config.json that a file's header stands for, in *out; free it. */
static int config_of(const gguf_file *g, kh_buf *out, kh_err *err) {
    kh_gguf *f;
    *out = kh_buf_init(1 << 16);
    if (kh_gguf_parse(&f, g->byte, g->n, "x.gguf", err) != 0)
        fail_msg("%s", err->msg);
    int rc = kh_gguf_config(f, out, err);
    kh_gguf_close(f);
    return rc;
}

enum { FREQUENCIES = 32 };

/* As Llama 3.1 is published: frequencies whose waves are longer than what the model was taught on
 * are divided by the factor, short ones stay, and those between them are interpolated. */
static void llama3_factors(float *x, double theta, double factor) {
    const double old = 8192, low = 1, high = 4;
    for (int i = 0; i < FREQUENCIES; i++) {
        double wave = 2 * 3.14159265358979323846 * pow(theta, (double)i / FREQUENCIES);
        double smooth = (old / wave - low) / (high - low);
        x[i] = 1;
        if (wave > old / low)
            x[i] = (float)factor;
        else if (wave >= old / high)
            x[i] = (float)(1 / ((1 - smooth) / factor + smooth));
    }
}

/* A Llama whose rotary positions are scaled by these factors, which are numbers of a type. */
static int scaled_llama(const float *x, uint32_t type, kh_buf *out, kh_err *err) {
    gguf_file g;
    start_decoder(&g, "llama", 1, 2, 1);
    number_key(&g, "llama.rope.freq_base", 500000);
    gguf_tensor(&g, "token_embd.weight", 8, 1, 0, 0);
    gguf_tensor(&g, "rope_freqs.weight", FREQUENCIES, 0, type, 32);
    gguf_align(&g, 32);
    g.n += 32;
    memcpy(g.byte + g.n, x, FREQUENCIES * sizeof *x);
    g.n += FREQUENCIES * (size_t)(type == 0 ? 4 : 2);
    gguf_align(&g, 32);
    return config_of(&g, out, err);
}

static void scaled_rotary_positions(void **state) {
    (void)state;
    float x[FREQUENCIES];
    kh_buf b;
    kh_err err;
    llama3_factors(x, 500000, 8);
    assert_true(x[0] == 1 && x[FREQUENCIES - 1] == 8);
    assert_int_equal(scaled_llama(x, 0, &b, &err), 0);
    assert_non_null(strstr(b.data,
        "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,"
        "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192.0}"));
    kh_buf_free(&b);
    assert_int_equal(scaled_llama(x, 1, &b, &err), KH_EUNSUPPORTED); /* F16 */
    assert_says(&err, "\"rope_freqs.weight\" is not a list of at most 512 F32 numbers");
    kh_buf_free(&b);
    for (int i = 0; i < FREQUENCIES; i++)
        x[i] = 1;
    assert_int_equal(scaled_llama(x, 0, &b, &err), 0); /* factors that change nothing */
    assert_null(strstr(b.data, "rope_scaling"));
    kh_buf_free(&b);
    llama3_factors(x, 500000, 8);
    x[5] = 1.5f;
    assert_int_equal(scaled_llama(x, 0, &b, &err), KH_EUNSUPPORTED);
    assert_says(&err, "scales rotary positions in a way that is not known");
    kh_buf_free(&b);
}

static void rotary_positions_may_be_stretched(void **state) {
    (void)state;
    gguf_file g;
    kh_buf b;
    kh_err err;
    start_decoder(&g, "llama", 1, 1, 2);
    gguf_string_key(&g, "llama.rope.scaling.type", "linear");
    number_key(&g, "llama.rope.scaling.factor", 4);
    gguf_tensor(&g, "token_embd.weight", 8, 1, 0, 0);
    gguf_align(&g, 32);
    g.n += 32;
    assert_int_equal(config_of(&g, &b, &err), 0);
    assert_non_null(strstr(b.data, "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4.0}"));
    assert_non_null(strstr(b.data, "\"tie_word_embeddings\":true"));
    kh_buf_free(&b);
}

/* Gemma's scale of queries is that of a head, but in the largest of them; without a window there is
 * none, which its config.json must say. */
static void scales_of_gemma(void **state) {
    (void)state;
    static const struct {
        int layers, width;
        const char *says;
    } cases[] = { { 2, 32, "\"query_pre_attn_scalar\":32" },
        { 2, 0, "\"query_pre_attn_scalar\":256" }, { 62, 32, "\"query_pre_attn_scalar\":64" } };
    for (int i = 0; i < 3; i++) {
        gguf_file g;
        kh_buf b;
        kh_err err;
        start_decoder(&g, "gemma3", cases[i].layers, 1, 1);
        int_key(&g, "gemma3.attention.key_length", (uint64_t)cases[i].width);
        gguf_tensor(&g, "token_embd.weight", 8, 1, 0, 0);
        gguf_align(&g, 32);
        g.n += 32;
        assert_int_equal(config_of(&g, &b, &err), 0);
        assert_non_null(strstr(b.data, cases[i].says));
        assert_non_null(strstr(b.data, "\"sliding_window\":null"));
        kh_buf_free(&b);
    }
}

static void an_encoder_needs_its_positions(void **state) {
    (void)state;
    gguf_file g;
    kh_buf b;
    kh_err err;
    static const char *const KEYS[] = { "bert.block_count", "bert.embedding_length",
        "bert.attention.head_count", "bert.feed_forward_length" };
    for (int types = 0; types < 2; types++) {
        gguf_start(&g, 3, (uint64_t)(1 + types), 6);
        gguf_string_key(&g, "general.architecture", "bert");
        for (int i = 0; i < 4; i++)
            int_key(&g, KEYS[i], 8);
        number_key(&g, "bert.attention.layer_norm_epsilon", 1e-5f);
        gguf_tensor(&g, "token_embd.weight", 8, 1, 0, 0);
        if (types)
            gguf_tensor(&g, "position_embd.weight", 8, 1, 0, 32);
        gguf_align(&g, 32);
        g.n += types ? 64 : 32;
        assert_int_equal(config_of(&g, &b, &err), KH_EUNSUPPORTED);
        assert_says(
            &err, "a bert model without \"position_embd.weight\" or \"token_types.weight\"");
        kh_buf_free(&b);
    }
}

/* keyhole's own files have their config.json and the names of folders. */
static void a_file_may_bring_its_config(void **state) {
    (void)state;
    gguf_file g;
    kh_buf b;
    kh_err err;
    char name[80];
    memset(name, 'n', sizeof name);
    name[63] = '\0'; /* as long as GGUF's names may be */
    gguf_start(&g, 3, 1, 1);
    gguf_string_key(&g, KH_GGUF_CONFIG, "{\"x\":1}");
    gguf_tensor(&g, name, 8, 1, 0, 0);
    gguf_align(&g, 32);
    g.n += 32;
    assert_int_equal(config_of(&g, &b, &err), 0);
    assert_string_equal(b.data, "{\"x\":1}");
    kh_buf_free(&b);
    kh_gguf *f;
    kh_gguf_layout out;
    int n;
    assert_int_equal(kh_gguf_parse(&f, g.byte, g.n, "x.gguf", NULL), 0);
    assert_true(kh_gguf_find_layout(f, kh_gguf_tensors(f, &n), &out));
    assert_string_equal(out.name, name);
    kh_gguf_close(f);
}

/* Names of layers are a number and nothing else. */
static void names_that_are_no_weights(void **state) {
    (void)state;
    static const char *const NAMES[] = { "blk.x.attn_q.weight", "blk.0.attn_q.weights",
        "blk.99999999.attn_q.weight", "other", "token_embd.weight.x" };
    for (int i = 0; i < 5; i++) {
        gguf_file g;
        kh_gguf *f;
        kh_gguf_layout out;
        int n;
        start_decoder(&g, "llama", 1, 1, 0);
        gguf_tensor(&g, NAMES[i], 8, 1, 0, 0);
        gguf_align(&g, 32);
        g.n += 32;
        assert_int_equal(kh_gguf_parse(&f, g.byte, g.n, "x.gguf", NULL), 0);
        assert_false(kh_gguf_find_layout(f, kh_gguf_tensors(f, &n), &out));
        kh_gguf_close(f);
    }
}

static void chat_formats(void **state) {
    (void)state;
    static const struct {
        const char *key, *value, *name;
    } cases[] = { { "tokenizer.chat_template", "{{ '<|user|>' }}", "zephyr" },
        { "keyhole.file.tokenizer_config.json", "{\"chat_template\":\"<|im_start|>\"}", "chatml" },
        { "other", "x", NULL }, { "tokenizer.chat_template", "?", NULL } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_file g;
        gguf_start(&g, 3, 0, 1);
        gguf_string_key(&g, cases[i].key, cases[i].value);
        gguf_align(&g, 32);
        const char *path = test_file("chat.gguf", g.byte, g.n);
        const kh_chat *chat;
        kh_err err;
        char *system;
        int rc = kh_chat_find(&chat, &system, path, &err);
        kh_free(system);
        assert_int_equal(rc == 0, cases[i].name != NULL);
        if (rc == 0)
            assert_string_equal(chat->name, cases[i].name);
        else
            assert_says(&err, "chat_template");
        unlink(path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoders),
        cmocka_unit_test(split_files),
        cmocka_unit_test(an_encoder),
        cmocka_unit_test(broken_models),
        cmocka_unit_test(scaled_rotary_positions),
        cmocka_unit_test(rotary_positions_may_be_stretched),
        cmocka_unit_test(scales_of_gemma),
        cmocka_unit_test(an_encoder_needs_its_positions),
        cmocka_unit_test(a_file_may_bring_its_config),
        cmocka_unit_test(names_that_are_no_weights),
        cmocka_unit_test(chat_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
