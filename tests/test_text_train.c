/* test_text_train.c - counting words and learning merges, against Hugging Face's trainer
 * (tests/vectors/bpe-train) and by hand. */
#include "test.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "text/bpe_train.h"

#include <fcntl.h>

#define VECTORS "tests/vectors/bpe-train/"

static kh_bpe_opts options(const char *const *path, int n) {
    return (kh_bpe_opts){ .words = { .path = path, .n_path = n },
        .vocab = 30000,
        .min_frequency = 1,
        .style = KH_BPE_ROBERTA };
}

/* The tokenizer learned with these options, parsed; *stats may be NULL. */
static json_t *train(const kh_bpe_opts *o, kh_bpe_stats *stats) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_err err = { 0 };
    if (kh_bpe_train(o, NULL, &b, stats, &err) != 0)
        fail_msg("%s", err.msg);
    json_t *root;
    if (kh_json_parse(b.data, b.len, "tokenizer", &root, &err) != 0)
        fail_msg("%s", err.msg);
    kh_buf_free(&b);
    return root;
}

static json_t *train_text(const char *text, size_t n, int min_frequency, kh_bpe_stats *stats) {
    const char *path = test_file("corpus", text, n);
    kh_bpe_opts o = options(&path, 1);
    o.min_frequency = min_frequency;
    json_t *root = train(&o, stats);
    unlink(path);
    return root;
}

static const json_t *merges_of(const json_t *root) {
    return json_object_get(json_object_get(root, "model"), "merges");
}

static int id_of(const json_t *root, const char *token) {
    const json_t *id =
        json_object_get(json_object_get(json_object_get(root, "model"), "vocab"), token);
    return id ? (int)json_integer_value(id) : -1;
}

/* The merges must be these, "a b" each, ended by NULL. */
static void assert_merges(const json_t *root, const char *const *expected) {
    const json_t *merges = merges_of(root);
    size_t n = 0;
    for (; expected[n]; n++) {
        const char *ours = json_string_value(json_array_get(merges, n));
        if (!ours || strcmp(ours, expected[n]) != 0)
            fail_msg(
                "merge %zu is \"%s\", expected \"%s\"", n, ours ? ours : "(none)", expected[n]);
    }
    assert_int_equal(json_array_size(merges), n);
}

/* -------------------------------------------------------------------- against the Rust trainer */

static void check_vector(const char *name, bool prefix_space) {
    const char *path = VECTORS "corpus.txt";
    kh_bpe_opts o = options(&path, 1);
    o.words.prefix_space = prefix_space;
    json_t *root = train(&o, NULL);
    FILE *f = fopen(name, "r");
    assert_non_null(f);
    char line[256];
    size_t n = 0;
    for (; fgets(line, sizeof line, f); n++) {
        line[strcspn(line, "\n")] = '\0';
        const char *ours = json_string_value(json_array_get(merges_of(root), n));
        if (!ours || strcmp(ours, line) != 0)
            fail_msg(
                "%s:%zu: \"%s\" expected, got \"%s\"", name, n + 1, line, ours ? ours : "(none)");
    }
    assert_true(n > 500);
    assert_int_equal(json_array_size(merges_of(root)), n);
    fclose(f);
    json_decref(root);
}

static void merges_are_those_of_the_rust_trainer(void **state) {
    (void)state;
    check_vector(VECTORS "plain.merges", false);
}

static void merges_with_prefix_space_are_those_of_the_rust_trainer(void **state) {
    (void)state;
    check_vector(VECTORS "prefix.merges", true);
}

/* Capital letters, those of two bytes and the final sigma too, are what the normalizer in the
 * written file makes of them. */
static void small_letters_train_as_the_small_text_does(void **state) {
    (void)state;
    static const char
        mixed[] = "The THE the \u00c4RGER \u00e4rger \u0130stanbul\nTHE Other oTHER \u039f\u03a3\n",
        small[] =
            "the the the \u00e4rger \u00e4rger i\u0307stanbul\nthe other other \u03bf\u03c3\n";
    const char *mixed_path = test_file("mixed", mixed, sizeof mixed - 1),
               *small_path = test_file("small", small, sizeof small - 1);
    kh_bpe_opts o = options(&small_path, 1);
    json_t *expected = train(&o, NULL);
    o = options(&mixed_path, 1);
    o.words.lowercase = true;
    json_t *got = train(&o, NULL);
    assert_true(json_array_size(merges_of(got)) > 10);
    assert_true(json_equal(merges_of(got), merges_of(expected)));
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(got, "normalizer"), "type")),
        "Lowercase");
    assert_true(json_is_null(json_object_get(expected, "normalizer")));
    json_decref(expected);
    json_decref(got);
    unlink(mixed_path);
    unlink(small_path);
}

/* A higher minimum frequency or a smaller vocabulary only ends the list earlier. */
static void minimum_frequency_and_vocabulary_cut_the_list(void **state) {
    (void)state;
    const char *path = VECTORS "corpus.txt";
    kh_bpe_opts o = options(&path, 1);
    json_t *all = train(&o, NULL);
    size_t before = json_array_size(merges_of(all));
    for (int min = 2; min <= 10; min++) {
        o.min_frequency = min;
        json_t *some = train(&o, NULL);
        size_t n = json_array_size(merges_of(some));
        assert_in_range(n, 1, before - 1);
        for (size_t k = 0; k < n; k++)
            assert_true(
                json_equal(json_array_get(merges_of(all), k), json_array_get(merges_of(some), k)));
        before = n;
        json_decref(some);
    }
    o.min_frequency = 1;
    for (int vocab = 261; vocab < 300; vocab += 13) {
        o.vocab = vocab;
        kh_bpe_stats s;
        json_t *some = train(&o, &s);
        assert_int_equal(s.tokens, vocab);
        assert_int_equal(s.merges, vocab - 261);
        assert_int_equal(json_array_size(merges_of(some)), vocab - 261);
        for (size_t k = 0; k < json_array_size(merges_of(some)); k++)
            assert_true(
                json_equal(json_array_get(merges_of(all), k), json_array_get(merges_of(some), k)));
        json_decref(some);
    }
    json_decref(all);
}

/* ------------------------------------------------------------------------------------- by hand */

static void equal_counts_take_the_smaller_ids(void **state) {
    (void)state;
    /* zy, by and ba occur twice each. */
    json_t *root = train_text("zy\nzy\nby\nby\nba\nba", 17, 2, NULL);
    assert_merges(root, (const char *const[]){ "b a", "b y", "z y", NULL });
    json_decref(root);
}

static void runs_merge_from_the_left(void **state) {
    (void)state;
    /* aaaaa becomes A A a, not a A A; then (A, a) and (A, A) are equals, and a is the smaller id.
     */
    json_t *root = train_text("aaaaa\naaaaa\naaaaa\n", 18, 1, NULL);
    assert_merges(root, (const char *const[]){ "a a", "aa a", "aa aaa", NULL });
    json_decref(root);
}

static void overlapping_pairs_keep_exact_counts(void **state) {
    (void)state;
    /* (ab, a) is gained at the first ab and lost at the second: it must not be left with a count.
     */
    json_t *root = train_text("abab", 4, 1, NULL);
    assert_merges(root, (const char *const[]){ "a b", "ab ab", NULL });
    json_decref(root);
}

/* A million letters without a space: 2,000 merges must not cost 2,000 walks through it. */
static void long_word_is_no_trouble(void **state) {
    (void)state;
    enum { N = 1000000 };
    char *text = malloc(N);
    kh_rng r = kh_rng_stream(3, KH_RNG_TEST, 0, 0);
    for (int k = 0; k < N; k++)
        text[k] = "acgt"[kh_rng_below(&r, 4)];
    const char *path = test_file("corpus", text, N);
    kh_bpe_opts o = options(&path, 1);
    o.vocab = 261 + 2000;
    kh_bpe_stats s;
    json_t *root = train(&o, &s);
    assert_int_equal(s.merges, 2000);
    assert_int_equal(s.distinct, 1);
    json_decref(root);
    unlink(path);
    free(text);
}

static void words_weigh_as_often_as_they_are_seen(void **state) {
    (void)state;
    kh_bpe_stats s;
    json_t *root = train_text("xy\nxy\nxy\npq\npq\nxz\n", 18, 2, &s);
    assert_merges(root, (const char *const[]){ "x y", "p q", NULL });
    assert_int_equal(s.bytes, 18);
    assert_int_equal(s.lines, 6);
    assert_int_equal(s.words, 12); /* six words, six newlines */
    assert_int_equal(s.distinct, 4);
    assert_int_equal(s.tokens, 263);
    json_decref(root);
}

static void newline_belongs_to_its_text(void **state) {
    (void)state;
    /* "a \n": the white space at the end of a text is one piece; as in Hugging Face's line iterator
     */
    json_t *root = train_text("a \na \nb\r\nb\r\n", 12, 2, NULL);
    assert_merges(root, (const char *const[]){ "\u010D \u010A", "\u0120 \u010A", NULL });
    json_decref(root);
}

static void ids_stand_in_the_published_order(void **state) {
    (void)state;
    json_t *root = train_text("ab ab", 5, 1, NULL);
    static const char *const special[] = { "<s>", "<pad>", "</s>", "<unk>", "<mask>" };
    for (int k = 0; k < 5; k++)
        assert_int_equal(id_of(root, special[k]), k);
    assert_int_equal(id_of(root, "!"), 5);
    assert_int_equal(id_of(root, "~"), 5 + 93);
    assert_int_equal(id_of(root, "\u00A1"), 5 + 94);
    assert_int_equal(id_of(root, "\u0100"), 5 + 188); /* byte 0 follows the printable characters */
    assert_int_equal(id_of(root, "\u0120"), 5 + 188 + 32);
    assert_int_equal(id_of(root, "\u0143"), 260);
    assert_int_equal(id_of(root, "ab"), 261);
    assert_int_equal(id_of(root, "\u0120ab"), 262);
    assert_int_equal(
        json_object_size(json_object_get(json_object_get(root, "model"), "vocab")), 263);
    json_decref(root);
}

static void merge_that_spells_a_special_token_gets_its_id(void **state) {
    (void)state;
    const char *path = test_file("corpus", "abc abc", 7);
    kh_bpe_opts o = options(&path, 1);
    o.style = KH_BPE_GPT2;
    o.special = (const char *const[]){ "ab", "x" };
    o.n_special = 2;
    kh_bpe_stats s;
    json_t *root = train(&o, &s);
    assert_merges(root, (const char *const[]){ "a b", "ab c", "\u0120 abc", NULL });
    assert_int_equal(id_of(root, "ab"), 0);
    assert_int_equal(id_of(root, "x"), 1); /* a special token that is a byte is that byte's token */
    assert_int_equal(id_of(root, "abc"), 2 + 255);
    assert_int_equal(s.tokens, 2 + 255 + 2);
    assert_int_equal(s.merges, 3);
    json_decref(root);
    unlink(path);
}

static void gpt2_style_frames_nothing(void **state) {
    (void)state;
    const char *path = test_file("corpus", "ab", 2);
    kh_bpe_opts o = options(&path, 1);
    o.style = KH_BPE_GPT2;
    json_t *root = train(&o, NULL);
    assert_int_equal(id_of(root, "<|endoftext|>"), 0);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(root, "post_processor"), "type")),
        "ByteLevel");
    assert_int_equal(json_array_size(json_object_get(root, "added_tokens")), 1);
    json_decref(root);
    unlink(path);
}

static void roberta_style_frames_and_strips_before_the_mask(void **state) {
    (void)state;
    json_t *root = train_text("ab", 2, 1, NULL);
    const json_t *post = json_object_get(root, "post_processor"),
                 *added = json_object_get(root, "added_tokens");
    assert_string_equal(json_string_value(json_object_get(post, "type")), "RobertaProcessing");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(post, "cls"), 1)), 0);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(post, "sep"), 1)), 2);
    for (size_t k = 0; k < 5; k++) {
        const json_t *token = json_array_get(added, k);
        assert_int_equal(json_integer_value(json_object_get(token, "id")), k);
        assert_int_equal(json_is_true(json_object_get(token, "lstrip")), k == 4);
        assert_true(json_is_true(json_object_get(token, "special")));
    }
    json_decref(root);
}

/* What was learned is a tokenizer: every line of the corpus comes back, in fewer tokens than bytes.
 */
static void our_own_tokenizer_reads_the_file(void **state) {
    (void)state;
    const char *path = VECTORS "corpus.txt";
    kh_bpe_opts o = options(&path, 1);
    kh_buf b = kh_buf_init(KH_BUF_MAX), text;
    kh_err err = { 0 };
    assert_int_equal(kh_bpe_train(&o, NULL, &b, NULL, &err), 0);
    path = test_file("tokenizer.json", b.data, b.len);
    kh_tokenizer *t;
    if (kh_tokenizer_open(&t, path, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(kh_file_read(VECTORS "corpus.txt", 1 << 20, &text, &err), 0);
    kh_ids ids = { 0 };
    assert_int_equal(kh_tokenizer_encode(t, text.data, text.len, KH_ENCODE_FRAME, &ids, &err), 0);
    assert_in_range(ids.n, 100, (int)text.len / 3);
    assert_int_equal(ids.id[0], kh_tokenizer_special(t, KH_TOKEN_BOS));
    assert_int_equal(ids.id[ids.n - 1], kh_tokenizer_special(t, KH_TOKEN_EOS));
    char *back;
    size_t n;
    assert_int_equal(kh_tokenizer_decode(t, ids.id, ids.n, true, &back, &n, &err), 0);
    assert_int_equal(n, text.len);
    assert_memory_equal(back, text.data, n);
    assert_int_equal(kh_tokenizer_special(t, KH_TOKEN_MASK), 4);
    assert_true(kh_tokenizer_strips(t, 4, true));
    kh_text_free(back);
    kh_ids_free(&ids);
    kh_tokenizer_close(t);
    kh_buf_free(&text);
    kh_buf_free(&b);
    unlink(path);
}

/* -------------------------------------------------------------------------- reading the corpus */

static void broken_bytes_become_replacement_characters(void **state) {
    (void)state;
    static const char broken[] = "a\xFF"
                                 "b \xE2\x82\nx\xC0\xAFy\xED\xA0\x80\n\xF0\x9F\x98";
    static const char mended[] = "a\uFFFDb \uFFFD\nx\uFFFD\uFFFDy\uFFFD\uFFFD\uFFFD\n\uFFFD";
    json_t *a = train_text(broken, sizeof broken - 1, 1, NULL),
           *b = train_text(mended, sizeof mended - 1, 1, NULL);
    assert_true(json_equal(a, b));
    assert_true(json_array_size(merges_of(a)) > 3);
    json_decref(a);
    json_decref(b);
}

static void read_words(kh_counts *w, const char *const *path, int n, uint64_t limit) {
    kh_err err = { 0 };
    *w = (kh_counts){ 0 };
    if (kh_counts_read(w, &(kh_counts_opts){ .path = path, .n_path = n, .limit_bytes = limit },
            NULL, &err) != 0)
        fail_msg("%s", err.msg);
}

static void limit_ends_with_the_line_that_reaches_it(void **state) {
    (void)state;
    static const struct {
        uint64_t limit, bytes;
    } cases[] = { { 1, 4 }, { 4, 4 }, { 5, 8 }, { 8, 8 }, { 9, 10 }, { 10, 10 }, { 11, 10 },
        { 0, 10 } };
    const char *path = test_file("corpus", "one\ntwo\nx!", 10);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        kh_counts w;
        read_words(&w, &path, 1, cases[k].limit);
        assert_int_equal(w.bytes, cases[k].bytes);
        kh_counts_free(&w);
    }
    unlink(path);
}

static void limit_counts_over_all_files(void **state) {
    (void)state;
    const char *path[3] = { test_file("one", "one\n", 4), test_file("two", "two\ntoo\n", 8),
        "/nonexistent/never opened" };
    kh_counts w;
    read_words(&w, path, 3, 6); /* ends within the second file */
    assert_int_equal(w.bytes, 8);
    assert_int_equal(w.n, 3);
    kh_counts_free(&w);
    unlink(path[0]);
    unlink(path[1]);
}

static void each_file_ends_its_last_line(void **state) {
    (void)state;
    const char *path[2] = { test_file("one", "key", 3), test_file("two", "hole", 4) };
    kh_counts w;
    read_words(&w, path, 2, 0);
    assert_int_equal(w.n, 2);
    assert_int_equal(w.lines, 2);
    assert_memory_equal(w.word[0].text, "key", 3);
    assert_memory_equal(w.word[1].text, "hole", 4);
    kh_counts_free(&w);
    unlink(path[0]);
    unlink(path[1]);
}

static void nul_bytes_are_text(void **state) {
    (void)state;
    json_t *root = train_text("\0\0\0\0\n", 5, 1, NULL);
    assert_merges(
        root, (const char *const[]){ "\u0100 \u0100", "\u0100\u0100 \u0100\u0100", NULL });
    json_decref(root);
}

/* About 11 MB, so that there are several chunks and lines across their borders; one line is longer
 * than a chunk. */
static const char *big_corpus(void) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_rng r = kh_rng_stream(7, KH_RNG_TEST, 0, 0);
    bool long_line = false;
    while (b.len < 11u << 20) {
        int words = 1 + (int)kh_rng_below(&r, 30);
        if (b.len > 5u << 20 && !long_line) {
            words = 1500000;
            long_line = true;
        }
        for (int k = 0; k < words; k++) {
            char word[16];
            double u = kh_rng_uniform(&r);
            int n = snprintf(word, sizeof word, "%x",
                (unsigned)(1 / (u + 1e-7))); /* few words often, many seldom */
            for (int i = 0; i < n; i++)
                if (word[i] >= '0' && word[i] <= '9')
                    word[i] = (char)(word[i] - '0' + 'k');
            kh_buf_bytes(&b, word, (size_t)n);
            kh_buf_text(&b, kh_rng_below(&r, 50) ? " " : "\u00E9 \xFF");
        }
        kh_buf_char(&b, '\n');
    }
    assert_false(kh_buf_failed(&b));
    const char *path = test_file("big", b.data, b.len);
    kh_buf_free(&b);
    return path;
}

static void any_number_of_threads_gives_the_same_bytes(void **state) {
    (void)state;
    const char *path = big_corpus();
    kh_bpe_opts o = options(&path, 1);
    o.vocab = 2000;
    kh_buf first = kh_buf_init(KH_BUF_MAX);
    static const int threads[] = { 1, 2, 5 };
    for (int k = 0; k < 3; k++) {
        kh_threads_set(threads[k]);
        kh_buf b = kh_buf_init(KH_BUF_MAX);
        kh_err err = { 0 };
        assert_int_equal(kh_bpe_train(&o, NULL, &b, NULL, &err), 0);
        if (k == 0) {
            first = b;
            continue;
        }
        assert_int_equal(b.len, first.len);
        assert_memory_equal(b.data, first.data, b.len);
        kh_buf_free(&b);
    }
    kh_threads_set(0);
    kh_buf_free(&first);
    unlink(path);
}

static void words_stand_in_order_of_appearance_for_any_number_of_threads(void **state) {
    (void)state;
    const char *path = big_corpus();
    kh_counts one, two;
    kh_threads_set(1);
    read_words(&one, &path, 1, 0);
    kh_threads_set(2);
    read_words(&two, &path, 1, 0);
    kh_threads_set(0);
    assert_int_equal(one.n, two.n);
    assert_int_equal(one.lines, two.lines);
    assert_int_equal(one.total, two.total);
    assert_int_equal(one.bytes, two.bytes);
    for (int k = 0; k < one.n; k++) {
        assert_int_equal(one.word[k].len, two.word[k].len);
        assert_int_equal(one.word[k].count, two.word[k].count);
        assert_memory_equal(one.word[k].text, two.word[k].text, one.word[k].len);
    }
    kh_counts_free(&one);
    kh_counts_free(&two);
    unlink(path);
}

/* ---------------------------------------------------------------------------------- complaints */

static void refuse(const kh_bpe_opts *o, int code, const char *sentence) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_err err = { 0 };
    assert_int_equal(kh_bpe_train(o, NULL, &b, NULL, &err), code);
    assert_int_equal(err.code, code);
    assert_says(&err, sentence);
    assert_int_equal(kh_bpe_train(o, NULL, &b, NULL, NULL), code); /* err may be NULL */
    assert_int_equal(b.len, 0);
    kh_buf_free(&b);
}

static void no_corpus_is_refused(void **state) {
    (void)state;
    kh_bpe_opts o = options(NULL, 0);
    refuse(&o, KH_EARG, "no corpus: at least one file of text is needed");
}

static void missing_file_is_refused(void **state) {
    (void)state;
    kh_bpe_opts o = options((const char *const[]){ "/nonexistent/corpus.txt" }, 1);
    refuse(&o, KH_EMISSING, "/nonexistent/corpus.txt: cannot open: No such file");
}

static void folder_is_refused(void **state) {
    (void)state;
    kh_bpe_opts o = options((const char *const[]){ "tests" }, 1);
    refuse(&o, KH_EIO, "tests: cannot read: Is a directory");
}

static void empty_corpus_is_refused(void **state) {
    (void)state;
    const char *path = test_file("empty", "", 0);
    kh_bpe_opts o = options(&path, 1);
    refuse(&o, KH_EFORMAT, "the corpus is empty");
    unlink(path);
}

static void compressed_corpus_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *tool;
    } cases[] = { { "\x1F\x8B\x08....", "gzip -dc" }, { "\xFD\x37zXZ\0...", "xz -dc" },
        { "\x28\xB5\x2F\xFD...", "zstd -dc" }, { "BZh91AY", "bzip2 -dc" } };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const char *path = test_file("packed", cases[k].bytes, 7);
        kh_bpe_opts o = options(&path, 1);
        refuse(&o, KH_EUNSUPPORTED, "is compressed, expected plain text");
        refuse(&o, KH_EUNSUPPORTED, cases[k].tool);
        unlink(path);
    }
}

static void endless_line_is_refused(void **state) {
    (void)state;
    const char *path = test_file("long", "", 0);
    assert_int_equal(truncate(path, (64 << 20) + 1), 0);
    kh_bpe_opts o = options(&path, 1);
    refuse(&o, KH_ELIMIT, "a line of more than 64 MB; a corpus holds one text per line");
    unlink(path);
}

static void small_vocabulary_is_refused(void **state) {
    (void)state;
    kh_bpe_opts o = options((const char *const[]){ VECTORS "corpus.txt" }, 1);
    o.vocab = 260;
    refuse(&o, KH_EARG,
        "a vocabulary of 260 tokens is too small: 5 special tokens and 256 bytes need 261");
}

static void wrong_special_tokens_are_refused(void **state) {
    (void)state;
    kh_bpe_opts o = options((const char *const[]){ VECTORS "corpus.txt" }, 1);
    o.n_special = 3;
    o.special = (const char *const[]){ "<s>", "</s>", "<s>" };
    refuse(&o, KH_EARG, "special token \"<s>\" is given twice, as number 0 and 2");
    o.special = (const char *const[]){ "<s>", "</s>", "" };
    refuse(&o, KH_EARG, "special token 2 is empty");
    o.special = (const char *const[]){ "<s>", "</s>", "\xC3" };
    refuse(&o, KH_EARG, "special token 2 is not valid UTF-8");
    o.special = (const char *const[]){ "<s>", "<pad>", "<mask>" };
    refuse(&o, KH_EARG, "the style roberta needs the special tokens <s> and </s>");
}

/* ----------------------------------------------------------------------- progress, memory, log */

typedef struct watch {
    const char *stop_phase;
    int calls;
    long last_done;
    char warning[256];
} watch;

static int on_progress(void *user, const kh_progress *p) {
    watch *w = user;
    w->calls++;
    w->last_done = p->done;
    assert_true(p->total == 0 || p->done <= p->total);
    return w->stop_phase && strcmp(p->phase, w->stop_phase) == 0;
}

static void on_log(void *user, kh_level level, const char *line) {
    watch *w = user;
    assert_int_equal(level, KH_WARN);
    snprintf(w->warning, sizeof w->warning, "%s", line);
}

static void progress_can_stop_the_work(void **state) {
    (void)state;
    static const char *const phases[] = { "count words", "merge pairs" };
    for (int k = 0; k < 2; k++) {
        watch w = { .stop_phase = phases[k] };
        kh_hooks hooks = { .progress = on_progress, .log = on_log, .user = &w };
        kh_bpe_opts o = options((const char *const[]){ VECTORS "corpus.txt" }, 1);
        o.vocab = 400;
        kh_buf b = kh_buf_init(KH_BUF_MAX);
        assert_int_equal(kh_bpe_train(&o, &hooks, &b, NULL, NULL), KH_STOPPED);
        assert_int_equal(w.calls, k + 1);
        assert_int_equal(b.len, 0);
        kh_buf_free(&b);
    }
}

static void corpus_too_small_for_the_vocabulary_is_a_warning(void **state) {
    (void)state;
    watch w = { 0 };
    kh_hooks hooks = { .progress = on_progress, .log = on_log, .user = &w };
    const char *path = test_file("corpus", "ab ab", 5);
    kh_bpe_opts o = options(&path, 1);
    o.vocab = 300;
    o.min_frequency = 2;
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    assert_int_equal(kh_bpe_train(&o, &hooks, &b, NULL, NULL), 0);
    assert_string_equal(
        w.warning, "the corpus gives only 262 of 300 tokens: no other pair occurs 2 times");
    kh_buf_free(&b);
    unlink(path);
}

static void every_failing_allocation_is_survived(void **state) {
    (void)state;
    static const char text[] = "the cat and the hat\n\xFF the bat\n";
    const char *path = test_file("corpus", text, sizeof text - 1);
    kh_bpe_opts o = options(&path, 1);
    o.vocab = 270;
    o.words.prefix_space = o.words.lowercase = true;
    for (int threads = 1; threads <= 2; threads++)
        for (int forever = 0; forever < 2; forever++)
            for (long n = 1;; n++) {
                kh_buf b = kh_buf_init(KH_BUF_MAX);
                kh_err err = { 0 };
                kh_threads_set(threads);
                kh_alloc_fail_at(n, forever);
                int rc = kh_bpe_train(&o, NULL, &b, NULL, &err);
                bool reached = kh_alloc_count() >= n;
                kh_alloc_fail_at(0, false);
                kh_buf_free(&b);
                if (!reached) {
                    assert_int_equal(rc, 0);
                    assert_true(n > 20);
                    break;
                }
                assert_int_equal(rc, KH_ENOMEM);
                assert_says(&err, "out of memory");
            }
    kh_threads_set(0);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_are_those_of_the_rust_trainer),
        cmocka_unit_test(merges_with_prefix_space_are_those_of_the_rust_trainer),
        cmocka_unit_test(small_letters_train_as_the_small_text_does),
        cmocka_unit_test(minimum_frequency_and_vocabulary_cut_the_list),
        cmocka_unit_test(equal_counts_take_the_smaller_ids),
        cmocka_unit_test(runs_merge_from_the_left),
        cmocka_unit_test(overlapping_pairs_keep_exact_counts),
        cmocka_unit_test(long_word_is_no_trouble),
        cmocka_unit_test(words_weigh_as_often_as_they_are_seen),
        cmocka_unit_test(newline_belongs_to_its_text),
        cmocka_unit_test(ids_stand_in_the_published_order),
        cmocka_unit_test(merge_that_spells_a_special_token_gets_its_id),
        cmocka_unit_test(gpt2_style_frames_nothing),
        cmocka_unit_test(roberta_style_frames_and_strips_before_the_mask),
        cmocka_unit_test(our_own_tokenizer_reads_the_file),
        cmocka_unit_test(broken_bytes_become_replacement_characters),
        cmocka_unit_test(limit_ends_with_the_line_that_reaches_it),
        cmocka_unit_test(limit_counts_over_all_files),
        cmocka_unit_test(each_file_ends_its_last_line),
        cmocka_unit_test(nul_bytes_are_text),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bytes),
        cmocka_unit_test(words_stand_in_order_of_appearance_for_any_number_of_threads),
        cmocka_unit_test(no_corpus_is_refused),
        cmocka_unit_test(missing_file_is_refused),
        cmocka_unit_test(folder_is_refused),
        cmocka_unit_test(empty_corpus_is_refused),
        cmocka_unit_test(compressed_corpus_is_refused),
        cmocka_unit_test(endless_line_is_refused),
        cmocka_unit_test(small_vocabulary_is_refused),
        cmocka_unit_test(wrong_special_tokens_are_refused),
        cmocka_unit_test(progress_can_stop_the_work),
        cmocka_unit_test(corpus_too_small_for_the_vocabulary_is_a_warning),
        cmocka_unit_test(every_failing_allocation_is_survived),
    };
    return cmocka_run_group_tests_name("text_train", tests, NULL, NULL);
}
