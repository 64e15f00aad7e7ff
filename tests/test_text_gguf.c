/* test_text_gguf.c - the tokenizers of GGUF files: llama.cpp's own test texts and ids, if they are
 * there, and small vocabularies made here. */
#include "gguf_file.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/gguf.h"
#include "text/tokenizer.h"

#include <sys/stat.h>

#define VOCABS "../shared/vectors/ggml-vocab/"

/* One vocabulary: texts are separated by a line, ids stand one line a text. */
static void check_vocabulary(const char *name) {
    char path[256];
    kh_buf texts, ids;
    kh_err err;
    kh_tokenizer *t;
    snprintf(path, sizeof path, VOCABS "%s.gguf", name);
    if (kh_tokenizer_open(&t, path, &err) != 0)
        fail_msg("%s", err.msg);
    snprintf(path, sizeof path, VOCABS "%s.gguf.inp", name);
    assert_int_equal(kh_file_read(path, 1 << 20, &texts, &err), 0);
    snprintf(path, sizeof path, VOCABS "%s.gguf.out", name);
    assert_int_equal(kh_file_read(path, 1 << 20, &ids, &err), 0);
    static const char line[] = "\n__ggml_vocab_test__\n";
    int count = 0, wrong = 0;
    const char *want = ids.data;
    for (const char *s = texts.data, *end; *want; s = end + strlen(line), count++) {
        end = strstr(s, line);
        if (!end)
            end = texts.data + texts.len;
        kh_ids got = { 0 };
        if (kh_tokenizer_encode(t, s, (size_t)(end - s), KH_ENCODE_PLAIN, &got, &err) != 0)
            fail_msg("%s", err.msg);
        kh_buf have = kh_buf_init(1 << 20);
        kh_buf_text(&have, "");
        for (int i = 0; i < got.n; i++)
            kh_buf_printf(&have, " %d", got.id[i]);
        size_t n = strcspn(want, "\n");
        if (have.len != n || memcmp(have.data, want, n) != 0) {
            wrong++;
            print_message("# %s, text %d \"%.*s\":\n#   want%.*s\n#   have%s\n", name, count,
                (int)(end - s), s, (int)n, want, have.len ? have.data : "");
        }
        kh_buf_free(&have);
        kh_ids_free(&got);
        want += n + (want[n] == '\n');
        if (end >= texts.data + texts.len)
            break;
    }
    print_message("# %s: %d texts, %d wrong\n", name, count, wrong);
    assert_true(count > 30);
    assert_int_equal(wrong, 0);
    kh_buf_free(&texts);
    kh_buf_free(&ids);
    kh_tokenizer_close(t);
}

static void llama_spm(void **state) {
    (void)state;
    test_needs_shared("vectors/ggml-vocab/llama-spm.gguf");
    check_vocabulary("llama-spm");
}

static void gpt_2(void **state) {
    (void)state;
    test_needs_shared("vectors/ggml-vocab/gpt-2.gguf");
    check_vocabulary("gpt-2");
}

static void bert_bge(void **state) {
    (void)state;
    test_needs_shared("vectors/ggml-vocab/bert-bge.gguf");
    check_vocabulary("bert-bge");
}

static void deepseek_llm(void **state) {
    (void)state;
    test_needs_shared("vectors/ggml-vocab/deepseek-llm.gguf");
    check_vocabulary("deepseek-llm");
}

static void mpt(void **state) {
    (void)state;
    test_needs_shared("vectors/ggml-vocab/mpt.gguf");
    check_vocabulary("mpt");
}

static void refact(void **state) {
    (void)state;
    test_needs_shared("vectors/ggml-vocab/refact.gguf");
    check_vocabulary("refact");
}

/* ------------------------------------------------------------------------- small vocabularies */

#define MARK "\xE2\x96\x81"

typedef struct token {
    const char *text;
    float score;
    int kind;
} token;

static void put_texts(gguf_file *g, const char *key, const token *list, int n) {
    gguf_key(g, key, 9);
    gguf_int(g, 8, 4);
    gguf_int(g, (uint64_t)n, 8);
    for (int i = 0; i < n; i++)
        gguf_text(g, list[i].text);
}

static const token llama[] = { { "<unk>", 0, 2 }, { "<s>", 0, 3 }, { "</s>", 0, 3 },
    { "<0x41>", 0, 6 }, { "<0xC3>", 0, 6 }, { "<0xA4>", 0, 6 }, { MARK, -10, 1 }, { "a", -11, 1 },
    { "b", -12, 1 }, { "ab", -1, 1 }, { "ba", -1, 1 }, { MARK "a", -3, 1 }, { "aba", -2, 1 },
    { "<user>", 0, 4 }, { "<s", -1, 1 }, { "<", -1, 1 }, { "s", -1, 1 }, { ">", -1, 1 } };
enum { N_LLAMA = sizeof llama / sizeof *llama };

/* keys: how many will be added; scores and kinds: how many there are of them. */
static void make_vocabulary(
    gguf_file *g, const token *list, int n, int keys, int scores, int kinds) {
    gguf_start(g, 3, 0, 5 + (uint64_t)keys);
    gguf_string_key(g, "tokenizer.ggml.model", "llama");
    put_texts(g, "tokenizer.ggml.tokens", list, n);
    gguf_key(g, "tokenizer.ggml.scores", 9);
    gguf_int(g, 6, 4);
    gguf_int(g, (uint64_t)scores, 8);
    for (int i = 0; i < scores; i++) {
        uint32_t bits;
        memcpy(&bits, &list[i].score, 4);
        gguf_int(g, bits, 4);
    }
    gguf_key(g, "tokenizer.ggml.token_type", 9);
    gguf_int(g, 5, 4);
    gguf_int(g, (uint64_t)kinds, 8);
    for (int i = 0; i < kinds; i++)
        gguf_int(g, (uint64_t)list[i].kind, 4);
    gguf_key(g, "tokenizer.ggml.bos_token_id", 4);
    gguf_int(g, 1, 4);
}

static void make_llama(gguf_file *g, int keys, int scores, int kinds) {
    make_vocabulary(g, llama, N_LLAMA, keys, scores, kinds);
}

static int open_made(kh_tokenizer **t, gguf_file *g, kh_err *err) {
    gguf_align(g, 32);
    const char *path = test_file("vocab.gguf", g->byte, g->n);
    int rc = kh_tokenizer_open(t, path, err);
    unlink(path);
    return rc;
}

static void expect(const kh_tokenizer *t, const char *text, unsigned flags, const char *want) {
    kh_ids got = { 0 };
    kh_err err;
    if (kh_tokenizer_encode(t, text, strlen(text), flags, &got, &err) != 0)
        fail_msg("%s", err.msg);
    kh_buf have = kh_buf_init(1 << 20);
    kh_buf_text(&have, "");
    for (int i = 0; i < got.n; i++)
        kh_buf_printf(&have, i ? " %d" : "%d", got.id[i]);
    if (strcmp(have.len ? have.data : "", want) != 0)
        fail_msg("\"%s\" gives %s, expected %s", text, have.data, want);
    kh_buf_free(&have);
    kh_ids_free(&got);
}

static void a_llama_vocabulary(void **state) {
    (void)state;
    gguf_file g;
    kh_tokenizer *t;
    kh_err err;
    make_llama(&g, 0, N_LLAMA, N_LLAMA);
    if (open_made(&t, &g, &err) != 0)
        fail_msg("%s", err.msg);
    expect(t, "a", KH_ENCODE_PLAIN, "11");
    expect(t, "a", KH_ENCODE_FRAME, "1 11");
    /* Equal scores: the leftmost join first; then ab, a -> aba is better than the mark. */
    expect(t, "aba", KH_ENCODE_PLAIN, "6 12");
    expect(t, "A\xC3\xA4", KH_ENCODE_PLAIN, "6 3 4 5");
    expect(t, "Z", KH_ENCODE_PLAIN, "6 0");
    expect(t, "a<user>a", KH_ENCODE_PLAIN, "11 13 11");
    expect(t, "<s>", KH_ENCODE_PLAIN, "6 14 17"); /* spelled, never the control token */
    expect(t, "<s>a", 0, "1 11");
    expect(t, "", KH_ENCODE_FRAME, "1");
    assert_int_equal(kh_tokenizer_special(t, KH_TOKEN_BOS), 1);
    char *text;
    size_t n;
    assert_int_equal(
        kh_tokenizer_decode(t, (int32_t[]){ 1, 11, 4, 5, 6, 8 }, 6, true, &text, &n, &err), 0);
    assert_string_equal(text, "a\xC3\xA4 b");
    kh_text_free(text);
    kh_tokenizer_close(t);

    make_llama(&g, 2, N_LLAMA, N_LLAMA);
    gguf_key(&g, "tokenizer.ggml.add_space_prefix", 7), gguf_int(&g, 0, 1);
    gguf_key(&g, "tokenizer.ggml.add_bos_token", 7), gguf_int(&g, 0, 1);
    assert_int_equal(open_made(&t, &g, &err), 0);
    expect(t, "a a", KH_ENCODE_FRAME, "7 11");
    kh_tokenizer_close(t);
}

static void refuse(gguf_file *g, int code, const char *sentence) {
    kh_tokenizer *t;
    kh_err err = { 0 };
    int rc = open_made(&t, g, &err);
    if (rc != code)
        fail_msg("expected \"%s\", got %d \"%s\"", sentence, rc, err.msg);
    assert_says(&err, sentence);
}

static void broken_vocabularies(void **state) {
    (void)state;
    gguf_file g;
    gguf_start(&g, 3, 0, 0);
    refuse(&g, KH_EFORMAT, "the key \"tokenizer.ggml.model\" is missing");
    gguf_start(&g, 3, 0, 1);
    gguf_string_key(&g, "tokenizer.ggml.model", "rwkv");
    refuse(&g, KH_EUNSUPPORTED, "is \"rwkv\"; llama, gpt2 and bert are read");
    gguf_start(&g, 3, 0, 1);
    gguf_string_key(&g, "tokenizer.ggml.model", "llama");
    refuse(&g, KH_EFORMAT, "holds 0 tokens");
    make_llama(&g, 0, N_LLAMA - 1, N_LLAMA);
    refuse(&g, KH_EFORMAT, "17 scores (\"tokenizer.ggml.scores\") for 18 tokens");
    make_llama(&g, 0, N_LLAMA, 3);
    refuse(&g, KH_EFORMAT, "3 kinds of tokens (\"tokenizer.ggml.token_type\") for 18 tokens");
    make_llama(&g, 1, N_LLAMA, N_LLAMA);
    gguf_key(&g, "tokenizer.ggml.eos_token_id", 4), gguf_int(&g, 18, 4);
    refuse(&g, KH_EFORMAT, "\"tokenizer.ggml.eos_token_id\" is 18, but there are only 18 tokens");
    make_llama(&g, 1, N_LLAMA, N_LLAMA);
    gguf_key(&g, "tokenizer.ggml.add_bos_token", 4), gguf_int(&g, 1, 4);
    refuse(&g, KH_EFORMAT, "is of kind u32, expected bool");
    gguf_start(&g, 3, 0, 3);
    gguf_string_key(&g, "tokenizer.ggml.model", "gpt2");
    put_texts(&g, "tokenizer.ggml.tokens", llama, N_LLAMA);
    gguf_string_key(&g, "tokenizer.ggml.pre", "wholly-new");
    refuse(&g, KH_EUNSUPPORTED, "\"tokenizer.ggml.pre\" is \"wholly-new\"");
    gguf_start(&g, 3, 0, 3);
    gguf_string_key(&g, "tokenizer.ggml.model", "gpt2");
    put_texts(&g, "tokenizer.ggml.tokens", llama, N_LLAMA);
    put_texts(&g, "tokenizer.ggml.merges", (token[]){ { "a b", 0, 0 }, { "ab", 0, 0 } }, 2);
    refuse(&g, KH_EFORMAT, "merge 1: \"ab\" is not two tokens");
}

/* Tokens that are said to be bytes and are none: a reader that takes the number in their name for
 * a place in a table writes outside of it. They are their texts, and no byte. */
static void bytes_that_are_none(void **state) {
    (void)state;
    static const token list[] = { { "<unk>", 0, 2 }, { "<s>", 0, 3 }, { "</s>", 0, 3 },
        { "<0x-1>", 0, 6 }, { "<0x100>", 0, 6 }, { "<0x>", 0, 6 }, { "", 0, 6 }, { "<0xGG>", 0, 6 },
        { "<0x41>", 0, 6 }, { MARK, -10, 1 } };
    enum { N = sizeof list / sizeof *list };
    gguf_file g;
    kh_tokenizer *t;
    kh_err err;
    char *text;
    size_t n;
    make_vocabulary(&g, list, N, 0, N, N);
    if (open_made(&t, &g, &err) != 0)
        fail_msg("%s", err.msg);
    expect(t, "A", KH_ENCODE_PLAIN, "9 8");
    expect(t, "\xFF", KH_ENCODE_PLAIN, "9 0");
    assert_int_equal(
        kh_tokenizer_decode(t, (int32_t[]){ 8, 3, 4, 5, 6, 7 }, 6, true, &text, &n, &err), 0);
    assert_string_equal(text, "A<0x-1><0x100><0x><0xGG>");
    kh_text_free(text);
    kh_tokenizer_close(t);
}

/* Every way of cutting words that has a name opens and keeps every byte of a text. */
static void every_pre(void **state) {
    (void)state;
    static const char *const names[] = { "gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2", "qwen35",
        "gpt-4o", "tekken", "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon", "default" };
    static char letters[256][4];
    token list[256];
    for (int b = 0; b < 256; b++) {
        uint32_t c = b <= 0x20       ? 0x100u + (unsigned)b
            : b >= 0x7F && b <= 0xA0 ? 0x121u + (unsigned)(b - 0x7F)
            : b == 0xAD              ? 0x143u
                                     : (unsigned)b;
        memset(letters[b], 0, 4);
        if (c < 0x80)
            letters[b][0] = (char)c;
        else {
            letters[b][0] = (char)(0xC0 | c >> 6);
            letters[b][1] = (char)(0x80 | (c & 63));
        }
        list[b] = (token){ letters[b], 0, 1 };
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        gguf_file g;
        gguf_start(&g, 3, 0, 3);
        gguf_string_key(&g, "tokenizer.ggml.model", "gpt2");
        put_texts(&g, "tokenizer.ggml.tokens", list, 256);
        gguf_string_key(&g, "tokenizer.ggml.pre", names[i]);
        kh_tokenizer *t;
        kh_err err;
        if (open_made(&t, &g, &err) != 0)
            fail_msg("%s: %s", names[i], err.msg);
        static const char text[] = "It's 12345 \xE4\xBD\xA0\xE5\xA5\xBD!\r\n\n  caf\xC3\xA9 x^2 ";
        kh_ids got = { 0 };
        assert_int_equal(
            kh_tokenizer_encode(t, text, sizeof text - 1, KH_ENCODE_PLAIN, &got, &err), 0);
        assert_int_equal(got.n, sizeof text - 1);
        for (int k = 0; k < got.n; k++)
            assert_int_equal(got.id[k], (unsigned char)text[k]);
        kh_ids_free(&got);
        kh_tokenizer_close(t);
    }
}

/* The vocabulary copied into a folder, as runs keep it, is the same tokenizer. */
static void copied(void **state) {
    (void)state;
    gguf_file g;
    make_llama(&g, 0, N_LLAMA, N_LLAMA);
    gguf_align(&g, 32);
    const char *path = test_file("whole.gguf", g.byte, g.n);
    char folder[] = "/tmp/keyhole-test-gguf-XXXXXX", copy[128];
    assert_non_null(mkdtemp(folder));
    kh_err err;
    kh_tokenizer *a, *b;
    assert_int_equal(kh_tokenizer_copy(path, folder, &err), 0);
    assert_int_equal(kh_tokenizer_open(&a, path, &err), 0);
    assert_int_equal(kh_tokenizer_open(&b, folder, &err), 0);
    assert_true(kh_tokenizer_fingerprint(a) == kh_tokenizer_fingerprint(b));
    expect(b, "aba", KH_ENCODE_FRAME, "1 6 12");
    kh_tokenizer_close(a);
    kh_tokenizer_close(b);
    snprintf(copy, sizeof copy, "%s/tokenizer.gguf", folder);
    assert_int_equal(unlink(copy), 0);
    assert_int_equal(rmdir(folder), 0);
    unlink(path);
}

/* Every allocation fails in turn: a sentence, and nothing lost (make asan). */
static void out_of_memory(void **state) {
    (void)state;
    gguf_file g;
    make_llama(&g, 0, N_LLAMA, N_LLAMA);
    gguf_align(&g, 32);
    const char *path = test_file("oom.gguf", g.byte, g.n);
    for (long n = 1;; n++) {
        kh_tokenizer *t = NULL;
        kh_ids ids = { 0 };
        kh_err err;
        kh_alloc_fail_at(n, false);
        int rc = kh_tokenizer_open(&t, path, &err);
        if (rc == 0)
            rc = kh_tokenizer_encode(t, "aba <s>\xC3\xA4", 9, KH_ENCODE_FRAME, &ids, &err);
        bool reached = kh_alloc_count() >= n;
        kh_alloc_fail_at(0, false);
        kh_ids_free(&ids);
        kh_tokenizer_close(t);
        if (!reached)
            break;
        assert_int_equal(rc, KH_ENOMEM);
    }
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_spm),
        cmocka_unit_test(gpt_2),
        cmocka_unit_test(bert_bge),
        cmocka_unit_test(deepseek_llm),
        cmocka_unit_test(mpt),
        cmocka_unit_test(refact),
        cmocka_unit_test(a_llama_vocabulary),
        cmocka_unit_test(broken_vocabularies),
        cmocka_unit_test(bytes_that_are_none),
        cmocka_unit_test(every_pre),
        cmocka_unit_test(copied),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
