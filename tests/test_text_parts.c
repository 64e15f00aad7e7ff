/* test_text_parts.c - the parts of the tokenizers against plain statements of what they must do, on
 * random input: the finder of added tokens, the joins of BPE, the longest match of WordPiece, the
 * order of marks; and how regular expressions are read. */
#include "test.h"

#include "base/arena.h"
#include "base/rng.h"
#include "text/bpe.h"
#include "text/charsmap.h"
#include "text/forms.h"
#include "text/pieces.h"
#include "text/pretokenize.h"
#include "text/regex.h"
#include "text/trie.h"
#include "text/wordpiece.h"

/* A random text over the first k letters. */
static size_t random_text(kh_rng *r, char *s, size_t max, uint32_t k) {
    size_t n = kh_rng_below(r, (uint32_t)max + 1);
    for (size_t i = 0; i < n; i++)
        s[i] = (char)('a' + kh_rng_below(r, k));
    return n;
}

/* ---------------------------------------------------------------------------------------- trie */

typedef struct member {
    char s[8];
    size_t n;
} member;

/* Leftmost, then longest, by trying everything. */
static bool find_plainly(
    const member *m, int n_member, const char *text, size_t n, size_t at, kh_trie_match *found) {
    for (size_t start = at; start < n; start++) {
        size_t longest = 0;
        for (int i = 0; i < n_member; i++)
            if (m[i].n > longest && m[i].n <= n - start &&
                memcmp(m[i].s, text + start, m[i].n) == 0) {
                longest = m[i].n;
                *found = (kh_trie_match){ start, start + m[i].n, 0 };
            }
        if (longest)
            return true;
    }
    return false;
}

static void test_trie_finds_leftmost_longest(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 3000; round++) {
        kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 1, round);
        member m[8];
        kh_trie t = { 0 };
        int n_member = 1 + (int)kh_rng_below(&r, 8);
        char text[64];
        for (int i = 0; i < n_member; i++) {
            m[i].n = random_text(&r, m[i].s, 6, 2 + round % 2);
            assert_true(kh_trie_add(&t, m[i].s, m[i].n, i));
        }
        assert_true(kh_trie_link(&t));
        size_t n = random_text(&r, text, sizeof text, 2 + round % 2);
        kh_trie_match a, b;
        for (size_t at = 0; at <= n;) {
            bool found = kh_trie_find(&t, text, n, at, &a);
            assert_int_equal(found, find_plainly(m, n_member, text, n, at, &b));
            if (!found)
                break;
            assert_int_equal(a.start, b.start);
            assert_int_equal(a.end, b.end);
            assert_int_equal(m[a.value].n, a.end - a.start);
            assert_memory_equal(m[a.value].s, text + a.start, m[a.value].n);
            at = a.end;
        }
        kh_trie_free(&t);
    }
}

static void test_trie_is_empty(void **state) {
    (void)state;
    kh_trie t = { 0 };
    kh_trie_match m;
    size_t len;
    assert_true(kh_trie_add(&t, "", 0, 1));
    assert_true(kh_trie_link(&t));
    assert_false(kh_trie_find(&t, "abc", 3, 0, &m));
    assert_int_equal(kh_trie_longest(&t, 0, "abc", 3, &len), -1);
    assert_int_equal(kh_trie_walk(&t, 0, "a", 1), -1);
    assert_int_equal(kh_trie_walk(&t, 0, "", 0), 0);
    kh_trie_free(&t);
}

static void test_trie_keeps_the_first_value(void **state) {
    (void)state;
    kh_trie t = { 0 };
    size_t len;
    assert_true(
        kh_trie_add(&t, "ab", 2, 7) && kh_trie_add(&t, "ab", 2, 8) && kh_trie_add(&t, "a", 1, 9));
    assert_int_equal(kh_trie_longest(&t, 0, "abc", 3, &len), 7);
    assert_int_equal(len, 2);
    assert_int_equal(kh_trie_longest(&t, 0, "ac", 2, &len), 9);
    assert_int_equal(len, 1);
    kh_trie_free(&t);
}

/* ----------------------------------------------------------------------------------------- BPE */

typedef struct plain_bpe {
    int32_t left[256], right[256], joined[256];
    int n;
} plain_bpe;

/* The pair of the lowest rank, the leftmost of those, joined until there is none. */
static int join_plainly(const plain_bpe *m, int32_t *s, int n) {
    for (;;) {
        int best = -1, best_rank = m->n;
        for (int i = 0; i + 1 < n; i++)
            for (int rank = 0; rank < best_rank; rank++)
                if (m->left[rank] == s[i] && m->right[rank] == s[i + 1]) {
                    best = i;
                    best_rank = rank;
                    break;
                }
        if (best < 0)
            return n;
        s[best] = m->joined[best_rank];
        memmove(s + best + 1, s + best + 2, (size_t)(n - best - 2) * sizeof *s);
        n--;
    }
}

/* A random model over a few letters: every merge joins two tokens that are there. Tokens are the
 * letters and all joins. */
static void random_bpe(
    kh_rng *r, kh_vocab *v, kh_bpe *m, plain_bpe *plain, int n_letters, int n_merges) {
    kh_err err;
    *v = (kh_vocab){ 0 };
    *m = (kh_bpe){ .vocab = v, .prefix = "", .suffix = "" };
    plain->n = 0;
    for (int i = 0; i < n_letters; i++)
        assert_int_equal(kh_vocab_add(v, (char[]){ (char)('a' + i) }, 1, i, "test", &err), 0);
    while (plain->n < n_merges) {
        char joined[64];
        int32_t a = (int32_t)kh_rng_below(r, (uint32_t)v->size),
                b = (int32_t)kh_rng_below(r, (uint32_t)v->size);
        size_t n = v->len[a] + v->len[b];
        bool known = n > 12;
        for (int k = 0; k < plain->n; k++)
            known |= plain->left[k] == a && plain->right[k] == b;
        if (known)
            continue;
        memcpy(joined, v->token[a], v->len[a]);
        memcpy(joined + v->len[a], v->token[b], v->len[b]);
        if (kh_vocab_id(v, joined, n) < 0)
            assert_int_equal(kh_vocab_add(v, joined, n, v->size, "test", &err), 0);
        assert_int_equal(
            kh_bpe_merge(m, plain->n, v->token[a], v->len[a], v->token[b], v->len[b], "test", &err),
            0);
        plain->left[plain->n] = a;
        plain->right[plain->n] = b;
        plain->joined[plain->n++] = kh_vocab_id(v, joined, n);
    }
    assert_int_equal(kh_bpe_ready(m, &err), 0);
}

/* Short words, long words (which take another way), words as bytes and as characters. */
static void test_bpe_joins_in_order(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 300; round++) {
        kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 2, round);
        int letters = 1 + (int)(round % 4);
        kh_vocab v;
        kh_bpe m;
        plain_bpe plain;
        kh_bpe_scratch w = kh_bpe_scratch_init();
        kh_ids ids = { 0 };
        random_bpe(&r, &v, &m, &plain, letters, letters == 1 ? 3 : 20);
        assert_true(m.reads_bytes);
        for (int k = 0; k < 40; k++) {
            char word[160];
            int32_t expected[160];
            size_t n = random_text(&r, word, k < 30 ? 60 : 160, (uint32_t)letters);
            if (n == 0)
                continue;
            for (size_t i = 0; i < n; i++)
                expected[i] = word[i] - 'a';
            int left = join_plainly(&plain, expected, (int)n);
            for (int bytes = 0; bytes < 2; bytes++) {
                ids.n = 0;
                assert_int_equal(kh_bpe_encode(&m, word, n, bytes, &w, &ids, NULL), 0);
                assert_int_equal(ids.n, left);
                assert_memory_equal(ids.id, expected, (size_t)left * sizeof *expected);
            }
        }
        kh_ids_free(&ids);
        kh_bpe_scratch_free(&w);
        kh_bpe_free(&m);
        kh_vocab_free(&v);
    }
}

/* ----------------------------------------------------------------------------------- WordPiece */

static void test_wordpiece_takes_the_longest(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 1000; round++) {
        kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 3, round);
        kh_vocab v = { 0 };
        kh_err err;
        assert_int_equal(kh_vocab_add(&v, "?", 1, 0, "test", &err), 0);
        for (int i = 0; i < 12; i++) {
            char token[8] = "##";
            size_t from = kh_rng_below(&r, 2) * 2, n = random_text(&r, token + 2, 4, 3);
            if (n > 0 && kh_vocab_id(&v, token + from, n + 2 - from) < 0)
                assert_int_equal(
                    kh_vocab_add(&v, token + from, n + 2 - from, v.size, "test", &err), 0);
        }
        kh_wordpiece m = { .vocab = &v, .unk_token = "?", .prefix = "##", .max_chars = 20 };
        assert_int_equal(kh_wordpiece_ready(&m, &err), 0);
        for (int k = 0; k < 20; k++) {
            char word[24];
            kh_ids ids = { 0 };
            int32_t expected[24];
            int count = 0;
            size_t n = 1 + random_text(&r, word + 1, 22, 3);
            word[0] = 'a';
            for (size_t at = 0, end; at < n && n <= 20; at = end) {
                char piece[32] = "##";
                int32_t id = -1;
                memcpy(piece + 2, word + at, n - at);
                for (end = n; end > at && id < 0; end--)
                    id = kh_vocab_id(&v, at ? piece : piece + 2, end - at + (at ? 2 : 0));
                end++;
                expected[count++] = id;
                if (id < 0)
                    break;
            }
            if (n > 20 || expected[count - 1] < 0) {
                expected[0] = 0;
                count = 1;
            }
            assert_int_equal(kh_wordpiece_encode(&m, word, n, &ids, NULL), 0);
            assert_int_equal(ids.n, count);
            assert_memory_equal(ids.id, expected, (size_t)count * sizeof *expected);
            kh_ids_free(&ids);
        }
        kh_wordpiece_free(&m);
        kh_vocab_free(&v);
    }
}

/* -------------------------------------------------------------------------------- normal forms */

static void expect_form(enum kh_form form, const char *text, const char *expected) {
    kh_buf out = kh_buf_init(KH_BUF_MAX);
    size_t first = 0;
    assert_true(kh_form_text(form, text, strlen(text), &out, &first));
    assert_int_equal(out.len, strlen(expected));
    assert_memory_equal(out.data, expected, out.len);
    kh_buf_free(&out);
}

static void test_many_marks_are_ordered_like_few(void **state) {
    (void)state;
    char text[1 + 40 * 4 + 1] = "e", expected[sizeof text] = "e";
    for (int i = 0; i < 40; i++) {
        memcpy(text + 1 + 4 * i, "\xCC\x80\xCC\xA7", 5); /* U+0300, class 230; U+0327, class 202 */
        memcpy(expected + 1 + 2 * i, "\xCC\xA7", 2);
        memcpy(expected + 1 + 80 + 2 * i, "\xCC\x80", 2);
    }
    expect_form(KH_NFD, text, expected);
    expect_form(KH_NFD, "e\xCC\x80\xCC\xA7", "e\xCC\xA7\xCC\x80");
}

static void test_composition(void **state) {
    (void)state;
    expect_form(KH_NFC, "e\xCC\x81", "\xC3\xA9");
    expect_form(KH_NFC, "\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB",
        "\xED\x95\x9C"); /* three jamo, one syllable */
    expect_form(KH_NFC, "\xE1\x84\x92x\xE1\x85\xA1", "\xE1\x84\x92x\xE1\x85\xA1");
    expect_form(KH_NFKC, "\xEF\xAC\x81", "fi");
    expect_form(KH_NFC, "", "");
    /* U+0897 came with Unicode 16: to the library that we follow it is a starter, so the accent
     * does not reach the letter. */
    expect_form(KH_NFC, "e\xE0\xA2\x97\xCC\x81", "e\xE0\xA2\x97\xCC\x81");
}

/* ------------------------------------------------------------------------- regular expressions */

/* How many matches a pattern has in a text, and where the first is. */
static int count_matches(const char *source, const char *text, size_t *start, size_t *end) {
    kh_pattern p = { 0 };
    kh_scan scan;
    kh_err err = { 0 };
    size_t a, b;
    int n = 0, rc;
    if (kh_pattern_regex(&p, source, strlen(source), "test", &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(kh_scan_start(&scan, &p, &err), 0);
    kh_scan_text(&scan, text, strlen(text));
    while ((rc = kh_scan_next(&scan, &a, &b, &err)) > 0)
        if (n++ == 0) {
            *start = a;
            *end = b;
        }
    assert_int_equal(rc, 0);
    kh_scan_end(&scan);
    kh_pattern_free(&p);
    return n;
}

static void expect_matches(const char *source, const char *text, int n, size_t start, size_t end) {
    size_t a = 0, b = 0;
    int found = count_matches(source, text, &a, &b);
    if (found != n || (n > 0 && (a != start || b != end)))
        fail_msg("/%s/ on \"%s\": %d matches, the first %zu..%zu; expected %d, %zu..%zu", source,
            text, found, a, b, n, start, end);
}

static void test_ruby_reading(void **state) {
    (void)state;
    expect_matches("\\h+", "xyz12afG", 1, 3, 7); /* hexadecimal digits, not spaces */
    expect_matches("[\\h]+", " 1f ", 1, 1, 3);
    expect_matches("\\H+", "12 xy", 1, 2, 5);
    expect_matches("a.b", "a\nb", 0, 0, 0);
    expect_matches("(?m)a.b", "a\nb", 1, 0, 3); /* Ruby's m lets the dot match a newline */
    expect_matches("(?m:a.b)", "a\nb", 1, 0, 3);
    expect_matches("(?i-m:A.B)", "a\nb axb", 1, 4, 7);
    expect_matches("^b$", "a\nb\nc", 1, 2, 3); /* lines, always */
    expect_matches("\\u0061+", "xaa", 1, 1, 3);
    expect_matches("[\\u0061-\\u0063]+", "xabcd", 1, 1, 4);
    expect_matches("\\bfoo\\b", "foo_bar foo", 1, 8, 11);
    expect_matches("\\Boo", "foo oo", 1, 1, 3);
    expect_matches("\\b.", "e\xCC\x81x y", 3, 0, 1); /* e, the space, y: a mark is part of a word */
    expect_matches("\\s", "\xE1\xA0\x8E", 0, 0, 0);  /* U+180E is no white space */
    expect_matches("[^\\s]", " \xC2\x85\xE1\xA0\x8E", 1, 3, 6);
    expect_matches("\\S", " \xC2\x85x", 1, 3, 4);
    expect_matches("\\W",
        "a_\xC2\xBD"
        "-",
        1, 4, 5);
    expect_matches("\\D", "1x", 1, 1, 2);
    expect_matches("\\P{L}+", "ab1c", 1, 2, 3);
    expect_matches("\\p{^L}+", "ab1c", 1, 2, 3);
    expect_matches("[\\P{L}x]+", "abx1c", 1, 2, 4);
    expect_matches("[[:alpha:]]+", "12ab", 1, 2, 4);
    expect_matches("[]x]+", "a]x", 1, 1, 3); /* a bracket that comes first is one of the class */
    expect_matches("[^]x]+", "a]x", 1, 0, 1);
    expect_matches("\\[a\\]", "[a]", 1, 0, 3);
    expect_matches("a{2}", "aaa", 1, 0, 2);
    expect_matches("\\p{Han}", "\xE3\x80\x81\xE4\xB8\xAD", 1, 3,
        6); /* not the comma that Chinese shares with Japanese */
}

static void test_empty_matches(void **state) {
    (void)state;
    expect_matches("x*", "axb", 3, 0, 0); /* before a, the x, at the end: none right behind the x */
    expect_matches("", "ab", 3, 0, 0);
    expect_matches("(?=b)", "abb", 2, 1, 1);
}

static void test_literal_patterns(void **state) {
    (void)state;
    kh_pattern p = { .literal = "aa", .literal_len = 2 };
    kh_scan scan;
    size_t start, end;
    assert_int_equal(kh_scan_start(&scan, &p, NULL), 0);
    kh_scan_text(&scan, "aaaab", 5);
    assert_int_equal(kh_scan_next(&scan, &start, &end, NULL), 1);
    assert_int_equal(start, 0);
    assert_int_equal(kh_scan_next(&scan, &start, &end, NULL), 1);
    assert_int_equal(end, 4);
    assert_int_equal(kh_scan_next(&scan, &start, &end, NULL), 0);
    kh_scan_end(&scan);
}

/* ------------------------------------------------------------------------------ small readings */

static void test_spaces(void **state) {
    (void)state;
    assert_int_equal(kh_spaces_at_start(" \t\xE3\x80\x80x ", 7), 5);
    assert_int_equal(kh_spaces_at_end("x \t\xE3\x80\x80", 6), 5);
    assert_int_equal(kh_spaces_at_end("  ", 2), 2);
    assert_int_equal(kh_spaces_at_end("\xE4\xB8\xAD", 3), 0);
    assert_int_equal(kh_spaces_at_start("", 0), 0);
    assert_int_equal(kh_ascii_prefix("abcdefgh\xC3\xA9", 10), 8);
    assert_int_equal(kh_ascii_prefix("abcdefghi", 9), 9);
    assert_int_equal(kh_char_before("a\xE4\xB8\xAD", 4), 1);
}

/* -------------------------------------------------------------------------- SentencePiece's table
 */

/* A table comes with a model, from anybody: lengths that lie, texts that are none, tries that lead
 * anywhere. */
static void test_charsmap_damage(void **state) {
    (void)state;
    kh_arena arena = { 0 };
    kh_source from = { .place = "x", .arena = &arena };
    kh_charsmap m;
    kh_err err;
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } all[] = { { "\4\0\0", 3, "a trie of 0 bytes in 3" }, { "\0\0\0\0a", 5, "a trie of 0 bytes" },
        { "\3\0\0\0abc", 7, "a trie of 3 bytes" }, { "\10\0\0\0abcd", 8, "a trie of 8 bytes in 8" },
        { "\xff\xff\xff\xff"
          "abcd",
            8, "a trie of 4294967295 bytes" },
        { "\4\0\0\0abcd\xff", 9, "its texts are not UTF-8" } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_int_equal(kh_charsmap_parse(&m, all[i].bytes, all[i].n, &from, &err), KH_EFORMAT);
        assert_says(&err, all[i].says);
    }
    json_t *no = json_pack("{s:s}", "precompiled_charsmap", "?*");
    assert_int_equal(kh_charsmap_load(&m, no, &from, &err), KH_EFORMAT);
    assert_says(&err, "is not base64");
    json_decref(no);
    kh_arena_free(&arena);
}

static void test_charsmap_stays_within(void **state) {
    (void)state;
    for (uint32_t round = 0; round < 20000; round++) {
        kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 9, round);
        uint32_t unit[64];
        char text[8] = "ab\0\xC3\xA9\0c", s[8]; /* no NUL after the last text */
        kh_charsmap m = { unit, 1 + kh_rng_below(&r, 64), text, 1 + kh_rng_below(&r, 7) };
        for (size_t i = 0; i < m.n_unit;
             i++) /* small offsets, and letters that will be asked for */
            unit[i] = kh_rng_below(&r, 8) == 0
                ? kh_rng_below(&r, UINT32_MAX)
                : kh_rng_below(&r, 256) << 10 | kh_rng_below(&r, 2) << 8 | kh_rng_below(&r, 128);
        size_t n = random_text(&r, s, 7, 26), len = 0;
        const char *got = kh_charsmap_find(&m, s, n, &len);
        if (got && (got < text || got + len > text + m.n_text))
            fail_msg("round %u: outside of the texts", round);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trie_finds_leftmost_longest),
        cmocka_unit_test(test_trie_is_empty),
        cmocka_unit_test(test_trie_keeps_the_first_value),
        cmocka_unit_test(test_bpe_joins_in_order),
        cmocka_unit_test(test_wordpiece_takes_the_longest),
        cmocka_unit_test(test_many_marks_are_ordered_like_few),
        cmocka_unit_test(test_composition),
        cmocka_unit_test(test_ruby_reading),
        cmocka_unit_test(test_empty_matches),
        cmocka_unit_test(test_literal_patterns),
        cmocka_unit_test(test_spaces),
        cmocka_unit_test(test_charsmap_damage),
        cmocka_unit_test(test_charsmap_stays_within),
    };
    return cmocka_run_group_tests_name("parts of the tokenizers", tests, NULL, NULL);
}
