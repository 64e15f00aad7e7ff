/* test_text_unicode.c - classes of characters, GPT-2's pieces and bytes, against PCRE2 and
 * utf8proc, which know an older Unicode: what they call unassigned is not compared. */
#include "test.h"

#include "base/rng.h"
#include "base/utf8.h"
#include "text/bytelevel.h"
#include "text/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

typedef struct regex {
    pcre2_code *code;
    pcre2_match_data *match;
} regex;

static regex compile(const char *pattern) {
    int why;
    size_t where;
    regex r;
    r.code = pcre2_compile((const unsigned char *)pattern, PCRE2_ZERO_TERMINATED,
        PCRE2_UTF | PCRE2_UCP, &why, &where, NULL);
    assert_non_null(r.code);
    pcre2_jit_compile(r.code, PCRE2_JIT_COMPLETE);
    r.match = pcre2_match_data_create_from_pattern(r.code, NULL);
    assert_non_null(r.match);
    return r;
}

static void drop(regex *r) {
    pcre2_match_data_free(r->match);
    pcre2_code_free(r->code);
}

/* The end of the match that starts at `at`, or 0. */
static size_t match_end(const regex *r, const char *s, size_t n, size_t at) {
    int rc = pcre2_match(r->code, (const unsigned char *)s, n, at,
        PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK, r->match, NULL);
    return rc > 0 ? pcre2_get_ovector_pointer(r->match)[1] : 0;
}

static bool is_scalar(uint32_t c) { return c < 0xD800 || (c > 0xDFFF && c <= 0x10FFFF); }

/* U+180E was white space once and is still \s for PCRE2. */
static bool is_settled(const regex *unassigned, uint32_t c) {
    char s[4];
    return is_scalar(c) && c != 0x180E &&
        match_end(unassigned, s, (size_t)kh_utf8_put(c, s), 0) == 0;
}

static void regex_classes_are_those_of_pcre2(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        unsigned class;
    } cases[] = { { "\\p{L}", KH_CHAR_LETTER }, { "\\p{N}", KH_CHAR_NUMBER },
        { "\\s", KH_CHAR_SPACE }, { "\\p{P}", KH_CHAR_PUNCT },
        { "[\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200C}\\x{200D}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{"
          "1F149}"
          "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}]",
            KH_CHAR_WORD } };
    regex unassigned = compile("\\p{Cn}");
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        regex r = compile(cases[k].pattern);
        for (uint32_t c = 0; c < 0x110000; c++) {
            char s[4];
            if (!is_settled(&unassigned, c))
                continue;
            bool theirs = match_end(&r, s, (size_t)kh_utf8_put(c, s), 0) > 0,
                 ours = kh_char_class(c) & cases[k].class;
            if (theirs != ours)
                fail_msg(
                    "U+%04X: %s is %d for PCRE2 and %d for us", c, cases[k].pattern, theirs, ours);
        }
        drop(&r);
    }
    drop(&unassigned);
}

static void wide_table_agrees_with_ascii_table(void **state) {
    (void)state;
    for (uint32_t c = 0; c < 128; c++)
        assert_int_equal(kh_char_ascii[c], kh_char_class_wide(c));
}

static void what_is_no_character_has_no_class(void **state) {
    (void)state;
    for (uint32_t c = 0xD800; c < 0xE000; c++)
        assert_int_equal(kh_char_class(c), 0);
    assert_int_equal(kh_char_class(0x110000), 0);
    assert_int_equal(kh_char_class(UINT32_MAX), 0);
}

static void known_characters_have_their_classes(void **state) {
    (void)state;
    static const struct {
        uint32_t c;
        unsigned class;
    } cases[] = {
        { 'a', KH_CHAR_LETTER | KH_CHAR_WORD },
        { '_', KH_CHAR_PUNCT | KH_CHAR_WORD | KH_CHAR_BERT_PUNCT },
        { '$', KH_CHAR_BERT_PUNCT },
        { '\n', KH_CHAR_SPACE },
        { 0x0B, KH_CHAR_SPACE | KH_CHAR_BERT_DROP },
        { 0x85, KH_CHAR_SPACE | KH_CHAR_BERT_DROP },
        { 0xA0, KH_CHAR_SPACE },
        { 0xAD, KH_CHAR_BERT_DROP },
        { 0xB2, KH_CHAR_NUMBER | KH_CHAR_NUMERIC },
        { 0x300, KH_CHAR_WORD | KH_CHAR_MARK | KH_CHAR_BERT_MN },
        { 0x378, 0 }, /* unassigned: BERT keeps it */
        { 0x8E2, 0 }, /* a format character since Unicode 9: BERT keeps it */
        { 0x903, KH_CHAR_WORD | KH_CHAR_MARK },
        { 0x200B, KH_CHAR_BERT_DROP },
        { 0x200D, KH_CHAR_WORD | KH_CHAR_BERT_DROP },
        { 0x2E52, KH_CHAR_PUNCT }, /* Unicode 14: no punctuation for BERT */
        { 0x3000, KH_CHAR_SPACE },
        { 0x4E2D, KH_CHAR_LETTER | KH_CHAR_WORD | KH_CHAR_BERT_CJK },
        { 0xE000, KH_CHAR_BERT_DROP },
        { 0xFFFD, KH_CHAR_BERT_DROP },
        { 0x105C0, KH_CHAR_LETTER | KH_CHAR_WORD }, /* Unicode 16 */
        { 0x11DE0,
            KH_CHAR_NUMERIC }, /* Unicode 17: known to Rust, not to its regular expressions */
        { 0x1F600, 0 },
        { 0x2B81D, KH_CHAR_LETTER | KH_CHAR_WORD | KH_CHAR_BERT_CJK },
        { 0x2B820,
            KH_CHAR_LETTER | KH_CHAR_WORD }, /* the Rust code has 2B920 where BERT's has 2B820 */
        { 0x2B920, KH_CHAR_LETTER | KH_CHAR_WORD | KH_CHAR_BERT_CJK },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        if (kh_char_class(cases[k].c) != cases[k].class)
            fail_msg("U+%04X has classes %x, expected %x", cases[k].c, kh_char_class(cases[k].c),
                cases[k].class);
}

/* BERT's tables are Unicode 8: a character may have been unassigned or of another category then, so
 * these are one-sided. */
static void bert_classes_fit_the_categories(void **state) {
    (void)state;
    int odd = 0;
    for (uint32_t c = 128; c < 0x110000; c++) {
        unsigned k = kh_char_class(c);
        utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t)c);
        bool dropped = cat == UTF8PROC_CATEGORY_CC || cat == UTF8PROC_CATEGORY_CF ||
            cat == UTF8PROC_CATEGORY_CO || c == 0xFFFD;
        if (k & KH_CHAR_BERT_DROP)
            assert_true(dropped);
        if ((k & KH_CHAR_BERT_PUNCT) && !(k & KH_CHAR_PUNCT))
            odd++; /* U+166D and U+111C9 were punctuation in Unicode 8 */
        if ((k & KH_CHAR_BERT_MN) && cat != UTF8PROC_CATEGORY_MN)
            odd++; /* U+1734 was Mn */
    }
    assert_int_equal(odd, 3);
}

/* -------------------------------------------------------------------------------------- pieces */

static void check_pieces(const regex *r, const char *s, size_t n) {
    for (size_t at = 0; at < n;) {
        size_t ours = kh_gpt2_split(s, n, at), theirs = match_end(r, s, n, at);
        if (ours != theirs) {
            print_message("text:");
            for (size_t i = 0; i < n; i++)
                print_message(" %02x", (unsigned char)s[i]);
            fail_msg("the piece at %zu ends at %zu, PCRE2 says %zu", at, ours, theirs);
        }
        at = ours;
    }
}

static void hand_made_texts_split_like_pcre2(void **state) {
    (void)state;
    static const char *texts[] = { "a", " ", "  ", "   ", "\n", " \n", "\n ", "Hello world",
        "Hello  world", "Hello   world ", " a", "  a", "\ta", " \ta", "\t a", "a\n\nb", "a \n b",
        "don't", "DON'T", "we'll've", "'s", "''s", " 's", "'", "' s", "'re", "'r", "'ra", "'ve",
        "'v", "'ll", "'l", "'lL", "'d'm't", "it's 5'o", "abc123def", " 123 456", "1st", "$5.00!",
        "...", " ...", "a.b", "x_y", "\xC3\xA9t\xC3\xA9", " \xE4\xB8\xAD\xE6\x96\x87",
        "\xC2\xA0\xC2\xA0x", " \xC2\xA0x", "\xC2\xA0 x", "\xE3\x80\x80\xE3\x80\x80",
        "a\xE2\x80\xA8 b", "\xC2\x85\xC2\x85z", "\xF0\x9F\x98\x80 \xF0\x9F\x98\x80",
        "e\xCC\x81 e\xCC\x81", "\xD9\xA3\xD9\xA4 \xE2\x85\xA3", "\xE2\x80\x8B\xE2\x80\x8B",
        "\x1C\x1D", "a\x0B\x0C z", "\xE2\x80\x99s", " \r\n\r\n x" };
    regex r = compile(GPT2);
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        check_pieces(&r, texts[k], strlen(texts[k]));
    check_pieces(&r, "a\0b \0\0 c", 8);
    drop(&r);
}

static size_t put(char *s, size_t n, uint32_t c) { return n + (size_t)kh_utf8_put(c, s + n); }

/* Short alphabets of troublemakers, drawn so that every neighbourhood comes up. */
static void random_texts_split_like_pcre2(void **state) {
    (void)state;
    static const uint32_t few[] = { ' ', ' ', ' ', '\'', '\'', 's', 't', 'r', 'e', 'v', 'm', 'l',
        'd', 'S', 'x', '1', '9', '.', '!', '\n', '\t', '\r', 0, 0x1C, 0x85, 0xA0, 0xAD, 0xE9, 0x301,
        0x660, 0x2028, 0x200B, 0x2163, 0x3000, 0x4E2D, 0xFFFD, 0x1F600, 0x20000, 0x10FFFF };
    regex r = compile(GPT2), unassigned = compile("\\p{Cn}");
    kh_rng rng = kh_rng_stream(1, KH_RNG_TEST, 1, 0);
    for (int round = 0; round < 60000; round++) {
        char s[256];
        size_t n = 0;
        int len = 1 + (int)kh_rng_below(&rng, 40);
        uint32_t width = round % 3 == 0 ? 0x110000 : round % 3 == 1 ? 0x3100 : 0x80;
        for (int k = 0; k < len; k++) {
            uint32_t c = kh_rng_below(&rng, width);
            bool odd = kh_rng_below(&rng, 2) == 0 || !is_settled(&unassigned, c);
            n = put(s, n, odd ? few[kh_rng_below(&rng, sizeof few / sizeof *few)] : c);
        }
        check_pieces(&r, s, n);
    }
    drop(&r);
    drop(&unassigned);
}

/* Every character beside a letter, a digit, a mark, a space and an apostrophe. */
static void every_character_splits_like_pcre2(void **state) {
    (void)state;
    regex r = compile(GPT2), unassigned = compile("\\p{Cn}");
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (!is_settled(&unassigned, c))
            continue;
        char s[64];
        size_t n = 0;
        const uint32_t text[] = { 'a', c, ' ', c, c, '1', c, '.', ' ', ' ', c, '\'', c, '\n', c };
        for (size_t k = 0; k < sizeof text / sizeof *text; k++)
            n = put(s, n, text[k]);
        check_pieces(&r, s, n);
    }
    drop(&r);
    drop(&unassigned);
}

/* No promise about where, but each piece is not empty and ends within the text, whatever the bytes.
 */
static void broken_utf8_always_moves_on(void **state) {
    (void)state;
    kh_rng rng = kh_rng_stream(1, KH_RNG_TEST, 2, 0);
    for (int round = 0; round < 20000; round++) {
        int n = 1 + (int)kh_rng_below(&rng, 24);
        char *s = malloc((size_t)n); /* of exact size, for the address sanitizer */
        for (int k = 0; k < n; k++)
            s[k] = (char)kh_rng_below(&rng, 256);
        for (size_t at = 0; at < (size_t)n;) {
            size_t end = kh_gpt2_split(s, (size_t)n, at);
            assert_true(end > at && end <= (size_t)n);
            at = end;
        }
        free(s);
    }
    assert_int_equal(kh_gpt2_split("a\xFF"
                                   "b",
                         3, 1),
        2); /* U+FFFD is neither letter, number nor space */
}

/* --------------------------------------------------------------------------------------- bytes */

/* OpenAI's bytes_to_unicode(), as published: printable Latin-1 keeps its place, the others follow
 * from U+0100 in order. */
static void bytes_map_to_the_published_characters(void **state) {
    (void)state;
    uint32_t next = 0x100;
    for (int b = 0; b < 256; b++) {
        bool printable =
            (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
        assert_int_equal(kh_byte_char((uint8_t)b), printable ? (uint32_t)b : next++);
    }
    assert_int_equal(next, 0x144);
    assert_int_equal(kh_byte_char(' '), 0x120);  /* the famous G with a dot */
    assert_int_equal(kh_byte_char('\n'), 0x10A); /* and C with a dot */
}

static void characters_map_back_to_bytes(void **state) {
    (void)state;
    int found = 0;
    for (uint32_t c = 0; c < 0x110000; c++) {
        int b = kh_char_byte(c);
        if (b < 0)
            continue;
        found++;
        assert_in_range(b, 0, 255);
        assert_int_equal(kh_byte_char((uint8_t)b), c);
    }
    assert_int_equal(found, 256);
    assert_int_equal(kh_char_byte(UINT32_MAX), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regex_classes_are_those_of_pcre2),
        cmocka_unit_test(wide_table_agrees_with_ascii_table),
        cmocka_unit_test(what_is_no_character_has_no_class),
        cmocka_unit_test(known_characters_have_their_classes),
        cmocka_unit_test(bert_classes_fit_the_categories),
        cmocka_unit_test(hand_made_texts_split_like_pcre2),
        cmocka_unit_test(random_texts_split_like_pcre2),
        cmocka_unit_test(every_character_splits_like_pcre2),
        cmocka_unit_test(broken_utf8_always_moves_on),
        cmocka_unit_test(bytes_map_to_the_published_characters),
        cmocka_unit_test(characters_map_back_to_bytes),
    };
    return cmocka_run_group_tests_name("text_unicode", tests, NULL, NULL);
}
