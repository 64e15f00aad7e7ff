/* test_model_gguf.c - models in GGUF files: the same numbers in the same places as in the folders
 * that they were made from (tools/make_gguf_models.py), and what is wrong with others. */
#include "gguf_file.h"
#include "same_weights.h"

#include "base/alloc.h"
#include "base/file.h"
#include "data/chat.h"

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
        cmocka_unit_test(chat_formats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
