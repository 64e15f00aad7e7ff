/* test_train_prune.c - a model with a smaller vocabulary: what stays, that it computes the same,
 * what is refused. */
#include "tiny.h"

#include "train/prune_model.h"
#include "model/reference.h"
#include "text/prune_vocab.h"

#define WORDPIECE "tests/vectors/tokenizers/tiny-wordpiece.json"

static char from[80], to[80];
static const char *corpus_file;

static void put_file(const char *dir, const char *name, const char *bytes, size_t n) {
    char *path = kh_path_join(dir, name);
    assert_int_equal(kh_file_write(path, bytes, n, NULL), 0);
    kh_free(path);
}

/* A tiny BERT with 328 tokens, in the folder `from`. */
static int setup(void **state) {
    (void)state;
    snprintf(from, sizeof from, "/tmp/keyhole-test-prune-%ld", (long)getpid());
    snprintf(to, sizeof to, "/tmp/keyhole-test-pruned-%ld", (long)getpid());
    kh_random_opts r = {
        .config = *kh_arch_find("bert-tiny"), .dtype = KH_DTYPE_F16, .std = 0.3, .seed = 3
    };
    r.config.vocab = 330; /* two rows that no token uses */
    assert_int_equal(kh_random_model_write(from, &r, NULL), 0);
    kh_buf bytes;
    assert_int_equal(kh_file_read(WORDPIECE, 1 << 20, &bytes, NULL), 0);
    put_file(from, "tokenizer.json", bytes.data, bytes.len);
    kh_buf_free(&bytes);
    static const char CONFIG[] =
        "{\"mask_token\":\"[MASK]\",\"added_tokens_decoder\":{\"4\":{\"content\":\"[MASK]\"}}}";
    static const char MAP[] = "{\"mask_token\":\"[MASK]\"}";
    put_file(from, "tokenizer_config.json", CONFIG, sizeof CONFIG - 1);
    put_file(from, "special_tokens_map.json", MAP, sizeof MAP - 1);
    static const char TEXT[] = "the quick brown fox was over the lazy dog\nthe dog was quick\nthe "
                               "lighter dog\nhe was old\n";
    corpus_file = test_file("prune.txt", TEXT, sizeof TEXT - 1);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    static const char *const FILES[] = { "config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json", "special_tokens_map.json", NULL };
    tiny_remove(from, FILES);
    tiny_remove(to, FILES);
    unlink(corpus_file);
    return 0;
}

static const double ONE = 1;

static kh_prune_opts options(int vocab) {
    static const char *const WORD[] = { "world", "bicycles" };
    return (kh_prune_opts){ .model = from,
        .out = to,
        .corpus = { .file = &corpus_file, .weight = &ONE, .n_file = 1 },
        .word = WORD,
        .n_word = 2,
        .vocab = vocab };
}

static int prune(int vocab, kh_pruned *out, kh_err *err) {
    kh_prune_opts o = options(vocab);
    return kh_model_prune(out, &o, err);
}

/* How many tokens stay in any case: all but words of two letters or more, the specials and the
 * label words. */
static int must_stay(void) {
    kh_err err;
    kh_pruned r;
    int n = 0;
    assert_int_equal(prune(1, &r, &err), KH_EARG);
    assert_int_equal(sscanf(strstr(err.msg, ": ") + 2, "%d", &n), 1);
    return n;
}

static kh_tokenizer *open_tokenizer(const char *dir) {
    kh_tokenizer *t;
    kh_err err;
    if (kh_tokenizer_open(&t, dir, &err) != 0)
        fail_msg("%s", err.msg);
    return t;
}

static void the_most_frequent_stay(void **state) {
    (void)state;
    kh_err err;
    kh_pruned r;
    int must = must_stay();
    assert_int_equal(prune(must + 3, &r, &err), 0);
    assert_int_equal(r.before, 328);
    assert_int_equal(r.after, must + 3);
    kh_tokenizer *t = open_tokenizer(to);
    assert_int_equal(kh_tokenizer_size(t), must + 3);
    static const char *const STAY[] = { "the", "dog", "was", "world", "bicycle", "##s", "[MASK]",
        "a", "##a", "7" };
    static const char *const GO[] = { "fox", "lazy", "york", "##ing", "light" };
    for (size_t i = 0; i < sizeof STAY / sizeof *STAY; i++)
        assert_true(kh_tokenizer_id(t, STAY[i]) >= 0);
    for (size_t i = 0; i < sizeof GO / sizeof *GO; i++)
        assert_int_equal(kh_tokenizer_id(t, GO[i]), -1);
    assert_int_equal(kh_tokenizer_special(t, KH_TOKEN_MASK), 4);
    kh_tokenizer_close(t);
    /* the 4 times, was and dog 3 times, and 4 ends of lines, of 20 tokens, "light ##er" among them,
     * and these 4 ends */
    assert_true(r.covered > 14.0 / 24 - 1e-9 && r.covered < 14.0 / 24 + 1e-9);
}

static void what_the_corpus_does_not_use_goes(void **state) {
    (void)state;
    kh_err err;
    kh_pruned r;
    assert_int_equal(prune(328, &r, &err), 0);
    assert_true(r.after < 328);
    assert_true(r.covered == 1.0);
    kh_tokenizer *t = open_tokenizer(to);
    assert_true(kh_tokenizer_id(t, "lazy") >= 0);
    assert_int_equal(kh_tokenizer_id(t, "york"), -1);
    kh_tokenizer_close(t);
}

/* Hidden states of all layers and logits of a few tokens. */
static void run(
    const kh_model *m, const kh_tokenizer *t, const char *text, float *hidden, float *logits) {
    kh_ids ids = { 0 };
    static const char *const ASKED[3] = { "dog", "world", "a" };
    int32_t token[3];
    int at = 1;
    for (int i = 0; i < 3; i++)
        token[i] = kh_tokenizer_id(t, ASKED[i]);
    assert_int_equal(kh_tokenizer_encode(t, text, strlen(text), KH_ENCODE_FRAME, &ids, NULL), 0);
    assert_int_equal(ids.n, 8);
    kh_output out = {
        .hidden = hidden, .at = &at, .n_at = 1, .token = token, .n_token = 3, .logits = logits
    };
    assert_int_equal(
        kh_reference_run(m, &(kh_input){ .id = ids.id, .n_id = ids.n }, &out, NULL), 0);
    kh_ids_free(&ids);
}

static void kept_texts_are_computed_as_before(void **state) {
    (void)state;
    kh_err err;
    kh_pruned r;
    assert_int_equal(prune(must_stay() + 5, &r, &err), 0);
    static const char TEXT[] = "the dog was a [MASK] world";
    kh_model *old, *now;
    assert_int_equal(kh_model_open(&old, from, NULL, &err), 0);
    assert_int_equal(kh_model_open(&now, to, NULL, &err), 0);
    assert_int_equal(kh_model_describe(now).vocab, r.after);
    assert_int_equal(kh_model_describe(now).params, r.params);
    assert_int_equal(kh_model_describe(now).dtype, KH_DTYPE_F16);
    kh_tokenizer *old_t = open_tokenizer(from), *now_t = open_tokenizer(to);
    size_t n = (size_t)(old->config.layers + 1) * 8 * (size_t)old->config.hidden;
    float *a = kh_calloc(n, sizeof *a), *b = kh_calloc(n, sizeof *b), x[3], y[3];
    run(old, old_t, TEXT, a, x);
    run(now, now_t, TEXT, b, y);
    assert_memory_equal(a, b, n * sizeof *a);
    assert_memory_equal(x, y, sizeof x);
    kh_free(a);
    kh_free(b);
    kh_tokenizer_close(old_t);
    kh_tokenizer_close(now_t);
    kh_model_close(old);
    kh_model_close(now);
}

static void other_words_are_spelled(void **state) {
    (void)state;
    kh_err err;
    kh_pruned r;
    assert_int_equal(prune(must_stay(), &r, &err), 0);
    kh_tokenizer *t = open_tokenizer(to);
    kh_ids ids = { 0 };
    assert_int_equal(kh_tokenizer_encode(t, "fox", 3, 0, &ids, NULL), 0);
    assert_int_equal(ids.n, 3);
    assert_string_equal(kh_tokenizer_token(t, ids.id[1]), "##o");
    kh_ids_free(&ids);
    kh_tokenizer_close(t);
}

static void files_beside_are_renumbered(void **state) {
    (void)state;
    kh_pruned r;
    kh_buf text;
    bool *keep = kh_calloc(328, sizeof *keep);
    kh_tokenizer *t = open_tokenizer(from);
    assert_int_equal(kh_prune_mark(t, keep, from, NULL), 0);
    kh_tokenizer_close(t);
    keep[0] = false;
    kh_err err;
    assert_int_equal(prune(328, &r, &err), 0);
    assert_int_equal(
        kh_prune_write(from, keep, 328, to, &err), KH_EFORMAT); /* [PAD] is an added token */
    assert_says(&err, "the id of a token that must stay is not in the vocabulary");
    kh_free(keep);
    char *path = kh_path_join(to, "tokenizer_config.json");
    assert_int_equal(kh_file_read(path, 1 << 20, &text, NULL), 0);
    assert_non_null(strstr(text.data, "\"4\":{\"content\":\"[MASK]\"}"));
    kh_buf_free(&text);
    kh_free(path);
}

static void what_is_refused(void **state) {
    (void)state;
    kh_err err;
    kh_pruned r;
    assert_int_equal(prune(20, &r, &err), KH_EARG);
    assert_says(&err, "must stay; 20 are too few");
    kh_tokenizer *t = open_tokenizer(TINY_TOKENIZER);
    bool keep[1024] = { 0 };
    assert_int_equal(kh_prune_mark(t, keep, "tok.json", &err), KH_EUNSUPPORTED);
    assert_says(&err, "tok.json: only the vocabulary of a WordPiece tokenizer can be pruned");
    kh_tokenizer_close(t);
    assert_int_equal(kh_prune_write("tests/vectors/tokenizers/tiny-wordpiece", keep, 328, to, &err),
        KH_EUNSUPPORTED);
    assert_says(&err, "a vocabulary is pruned in a tokenizer.json");
}

static void memory_may_run_out(void **state) {
    (void)state;
    for (long n = 1;; n += n < 40 ? 1 : 7) {
        kh_err err = { 0 };
        kh_pruned r;
        kh_alloc_fail_at(n, n % 2 == 0);
        int rc = prune(328, &r, &err);
        long asked = kh_alloc_count();
        kh_alloc_fail_at(0, false);
        assert_true(asked < n ? rc == 0 : rc == KH_ENOMEM);
        if (asked < n)
            break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_frequent_stay),
        cmocka_unit_test(what_the_corpus_does_not_use_goes),
        cmocka_unit_test(kept_texts_are_computed_as_before),
        cmocka_unit_test(other_words_are_spelled),
        cmocka_unit_test(files_beside_are_renumbered),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
