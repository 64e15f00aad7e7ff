/* test_train_convert.c - models in other containers and formats: there and back, and refusals. */
#include "same_weights.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/gguf.h"
#include "text/tokenizer.h"
#include "train/convert.h"

static char work[64];

static char *at(const char *name) {
    static char path[4][160];
    static int turn;
    char *p = path[turn = (turn + 1) % 4];
    snprintf(p, sizeof path[0], "%s/%s", work, name);
    return p;
}

static kh_converted convert(const char *from, const char *to, bool gguf, kh_dtype dtype) {
    kh_converted c;
    kh_err err;
    if (kh_model_convert(&c,
            &(kh_convert_opts){ .model = from, .out = to, .gguf = gguf, .dtype = dtype },
            &err) != 0)
        fail_msg("%s: %s", from, err.msg);
    return c;
}

static void expect_same(const char *a_path, const char *b_path, double tolerance) {
    kh_model *a = open_model(a_path), *b = open_model(b_path);
    assert_int_equal(a->head, b->head);
    same_config(&a->config, &b->config);
    same_weights(a, b, tolerance);
    kh_model_close(a);
    kh_model_close(b);
}

static void there_and_back(void **state) {
    (void)state;
    static const char *const folders[] = { "models/bert", "models/roberta", "models/distilbert",
        "models/bert-no-head", "models/roberta-shards", "models/roberta-bf16", "decoders/gpt2",
        "decoders/llama", "decoders/qwen3", "decoders/gemma3" };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char folder[128];
        snprintf(folder, sizeof folder, "tests/vectors/%s", folders[i]);
        convert(folder, at("x.gguf"), true, KH_DTYPE_F32);
        expect_same(folder, at("x.gguf"), 0);
        convert(at("x.gguf"), at("folder"), false, KH_DTYPE_F32);
        expect_same(folder, at("folder"), 0);
    }
}

/* Files of llama.cpp's layout become folders. */
static void from_llama_cpp(void **state) {
    (void)state;
    convert("tests/vectors/gguf/llama.gguf", at("llama"), false, KH_DTYPE_F32);
    expect_same("tests/vectors/decoders/llama", at("llama"), 0);
    convert("tests/vectors/gguf/llama-split-00001-of-00002.gguf", at("l.gguf"), true, KH_DTYPE_F32);
    expect_same("tests/vectors/decoders/llama", at("l.gguf"), 0);
    convert("tests/vectors/gguf/gemma3.gguf", at("gemma"), false, KH_DTYPE_F32);
    expect_same("tests/vectors/decoders/gemma3", at("gemma"), 1e-7);
}

/* They stay files of llama.cpp where a GGUF file is asked for: names, keys and the order of rows.
 */
static void as_llama_cpp_has_them(void **state) {
    (void)state;
    static const struct {
        const char *file, *folder, *arch;
        double tolerance;
    } cases[] = { { "llama", "llama", "llama", 0 },
        { "llama-split-00001-of-00002", "llama", "llama", 0 }, { "gpt2", "gpt2", "gpt2", 0 },
        { "gemma3", "gemma3", "gemma3", 1e-7 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char from[128], folder[128];
        snprintf(from, sizeof from, "tests/vectors/gguf/%s.gguf", cases[i].file);
        snprintf(folder, sizeof folder, "tests/vectors/decoders/%s", cases[i].folder);
        convert(from, at("same.gguf"), true, KH_DTYPE_F32);
        expect_same(folder, at("same.gguf"), cases[i].tolerance);
        kh_gguf *f;
        const char *arch;
        int n, found = 0;
        assert_int_equal(kh_gguf_open(&f, at("same.gguf"), NULL), 0);
        assert_int_equal(kh_gguf_text(f, "general.architecture", &arch, NULL), 0);
        assert_string_equal(arch, cases[i].arch);
        assert_false(kh_gguf_has(f, "split.count"));
        const kh_gguf_tensor *t = kh_gguf_tensors(f, &n);
        for (int k = 0; k < n; k++)
            found += strcmp(t[k].name, "blk.0.attn_output.weight") == 0;
        assert_int_equal(found, 1);
        kh_gguf_close(f);
        convert(from, at("small.gguf"), true, KH_DTYPE_Q8_0);
        expect_same(folder, at("small.gguf"), 0.05);
    }
}

static void narrower(void **state) {
    (void)state;
    static const struct {
        kh_dtype dtype;
        double tolerance; /* the largest weight is about 1 */
    } cases[] = { { KH_DTYPE_BF16, 0.01 }, { KH_DTYPE_F16, 0.002 }, { KH_DTYPE_Q8_0, 0.02 },
        { KH_DTYPE_Q4_0, 0.3 } };
    size_t before = SIZE_MAX;
    for (int i = 0; i < 4; i++) {
        kh_converted c =
            convert("tests/vectors/models/roberta", at("n.gguf"), true, cases[i].dtype);
        assert_true(c.after <= before && c.tensors > 10);
        before = c.after;
        expect_same("tests/vectors/models/roberta", at("n.gguf"), cases[i].tolerance);
    }
    convert("tests/vectors/decoders/gpt2", at("g.gguf"), true, KH_DTYPE_Q8_0);
    expect_same("tests/vectors/decoders/gpt2", at("g.gguf"), 0.05);
}

/* The tokenizer is in the file, and the same. */
static void with_tokenizer(void **state) {
    (void)state;
    kh_err err;
    kh_tokenizer *a, *b;
    char *folder = at("with");
    assert_int_equal(kh_dir_make(folder, &err), 0);
    static const char *const from[] = { "tests/vectors/models/bert/config.json",
        "tests/vectors/models/bert/model.safetensors",
        "tests/vectors/tokenizers/tiny-wordpiece/vocab.txt" };
    for (int i = 0; i < 3; i++) {
        kh_buf bytes;
        assert_int_equal(kh_file_read(from[i], 1 << 24, &bytes, &err), 0);
        char to[256];
        snprintf(to, sizeof to, "%s/%s", folder, kh_path_base(from[i]));
        assert_int_equal(kh_file_write(to, bytes.data, bytes.len, &err), 0);
        kh_buf_free(&bytes);
    }
    convert(folder, at("with.gguf"), true, KH_DTYPE_BF16);
    convert(at("with.gguf"), at("without"), false, KH_DTYPE_BF16);
    assert_int_equal(kh_tokenizer_open(&a, folder, &err), 0);
    static const char *const copies[] = { "with.gguf", "without" };
    for (int i = 0; i < 2; i++) {
        if (kh_tokenizer_open(&b, at(copies[i]), &err) != 0)
            fail_msg("%s", err.msg);
        assert_true(kh_tokenizer_fingerprint(a) == kh_tokenizer_fingerprint(b));
        kh_tokenizer_close(b);
    }
    kh_tokenizer_close(a);
}

static void refused(void **state) {
    (void)state;
    static const struct {
        const char *model, *out;
        bool gguf;
        kh_dtype dtype;
        int code;
        const char *sentence;
    } cases[] = {
        { "tests/vectors/models/bert", "x", false, KH_DTYPE_Q8_0, KH_EARG, "use --format gguf" },
        { "tests/vectors/models/bert", "x", true, KH_DTYPE_F32, KH_EARG, "ends in .gguf" },
        { "tests/vectors/models/bert", "x.gguf", false, KH_DTYPE_F32, KH_EARG, "to a folder" },
        { "tests/vectors/models/bert", "x.gguf", true, KH_DTYPE_Q4_K, KH_EARG,
            "cannot be written" },
        { "tests/vectors/gguf/gpt2.gguf", "x", false, KH_DTYPE_F32, KH_EUNSUPPORTED,
            "give the folder" },
        { "/nowhere", "x.gguf", true, KH_DTYPE_F32, KH_EMISSING, "there is no such folder" },
        { "tests/vectors/models/bert", "no/such/x.gguf", true, KH_DTYPE_F32, KH_EMISSING,
            "cannot create" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kh_converted c;
        kh_err err = { 0 };
        char out[256];
        snprintf(out, sizeof out, "%s/r/%s", work, cases[i].out);
        kh_convert_opts o = {
            .model = cases[i].model, .out = out, .gguf = cases[i].gguf, .dtype = cases[i].dtype
        };
        int rc = kh_model_convert(&c, &o, &err);
        if (rc != cases[i].code)
            fail_msg("%s: %d \"%s\"", cases[i].sentence, rc, err.msg);
        assert_says(&err, cases[i].sentence);
        assert_int_equal(access(out, F_OK), -1);
    }
}

/* Every allocation fails in turn: a sentence, and no file. */
static void out_of_memory(void **state) {
    (void)state;
    for (long n = 1;; n++) {
        kh_converted c;
        kh_err err;
        kh_convert_opts o = { .model = "tests/vectors/gguf/llama.gguf",
            .out = at("oom.gguf"),
            .gguf = true,
            .dtype = KH_DTYPE_BF16 };
        kh_alloc_fail_at(n, false);
        int rc = kh_model_convert(&c, &o, &err);
        bool reached = kh_alloc_count() >= n;
        kh_alloc_fail_at(0, false);
        if (!reached)
            break;
        if (rc == 0) { /* only the tokenizer, which the model does without */
            unlink(o.out);
            continue;
        }
        assert_int_equal(rc, KH_ENOMEM);
        assert_int_equal(access(o.out, F_OK), -1);
    }
}

int main(void) {
    snprintf(work, sizeof work, "/tmp/keyhole-test-convert-XXXXXX");
    if (!mkdtemp(work))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(from_llama_cpp),
        cmocka_unit_test(as_llama_cpp_has_them),
        cmocka_unit_test(narrower),
        cmocka_unit_test(with_tokenizer),
        cmocka_unit_test(refused),
        cmocka_unit_test(out_of_memory),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", work);
    return system(command) != 0 || failed;
}
