/* test_base_text.c - UTF-8 and JSON: what comes from outside, taken strictly or mended as
 * documented. */
#include "test.h"

#include "base/alloc.h"
#include "base/controls.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/utf8.h"

/* ---------------------------------------------------------------------------------------- utf8 */

static void every_character_survives_utf8(void **state) {
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000)
            continue;
        char s[4];
        int len, ok = 1, n = kh_utf8_put(c, s);
        assert_int_equal(n, c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4);
        assert_int_equal(kh_utf8_next(s, (size_t)n, &len, &ok), c);
        assert_int_equal(len, n);
        assert_int_equal(ok, 1);
        assert_true(kh_utf8_valid(s, (size_t)n));
    }
}

/* Decodes all of s; returns the number of characters put into out. */
static int decode(const char *s, size_t n, uint32_t *out, int *ok) {
    int count = 0, len;
    *ok = 1;
    for (size_t at = 0; at < n; at += (size_t)len) {
        out[count++] = kh_utf8_next(s + at, n - at, &len, ok);
        assert_in_range(len, 1, 4);
        assert_true(at + (size_t)len <= n);
    }
    return count;
}

/* The example of the Unicode standard, table 3-8, and the three tables before it (3-9 to 3-11 in
 * newer editions). */
static void broken_sequences_follow_the_standards_examples(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        int n;
        uint32_t expected[16];
        int count;
    } cases[] = {
        { "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", 13,
            { 0x61, 0xFFFD, 0xFFFD, 0xFFFD, 0x62, 0xFFFD, 0x63, 0xFFFD, 0xFFFD, 0x64 }, 10 },
        { "\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", 9,
            { 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0x41 }, 9 },
        { "\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", 9,
            { 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0x41 }, 9 },
        { "\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", 9,
            { 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0x41, 0xFFFD, 0xFFFD, 0x42 }, 9 },
        { "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", 9, { 0xFFFD, 0xFFFD, 0xFFFD, 0xFFFD, 0x41 }, 5 },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        uint32_t got[16];
        int ok, count = decode(cases[k].bytes, (size_t)cases[k].n, got, &ok);
        assert_int_equal(count, cases[k].count);
        assert_memory_equal(got, cases[k].expected, (size_t)count * sizeof *got);
        assert_int_equal(ok, 0);
        assert_false(kh_utf8_valid(cases[k].bytes, (size_t)cases[k].n));
    }
}

static int hex(const char *s) {
    unsigned v;
    return sscanf(s, "%2x", &v) == 1 ? (int)v : -1;
}

static void broken_sequences_decode_as_in_python(void **state) {
    (void)state;
    FILE *f = fopen("tests/vectors/utf8/broken.txt", "r");
    assert_non_null(f);
    char line[256];
    int cases = 0, broken = 0;
    for (; fgets(line, sizeof line, f); cases++) {
        char *space = strchr(line, ' '),
             *exact =
                 malloc((size_t)(space - line) / 2); /* of exact size, for the address sanitizer */
        size_t n = 0;
        for (char *p = line; p < space; p += 2)
            exact[n++] = (char)hex(p);
        uint32_t got[16];
        int ok, count = decode(exact, n, got, &ok), k = 0;
        bool has_replacement = false;
        for (char *p = space; *p == ' ' || *p == ','; k++) {
            uint32_t expected = (uint32_t)strtoul(p + 1, &p, 16);
            if (k >= count || got[k] != expected)
                fail_msg("line %d: character %d is %X, Python says %X", cases + 1, k,
                    k < count ? got[k] : 0, expected);
            has_replacement |= expected == 0xFFFD;
        }
        assert_int_equal(k, count);
        assert_int_equal(ok, !has_replacement);
        assert_int_equal(kh_utf8_valid(exact, n), !has_replacement);
        broken += has_replacement;
        free(exact);
    }
    fclose(f);
    assert_true(cases > 1000 && broken > 500);
}

static void validity_is_seen_at_every_offset(void **state) {
    (void)state;
    char s[64];
    for (size_t n = 1; n < sizeof s; n++)
        for (size_t at = 0; at < n; at++) {
            memset(s, 'x', n);
            assert_true(kh_utf8_valid(s, n));
            s[at] = (char)0x80;
            assert_false(kh_utf8_valid(s, n));
        }
    assert_true(kh_utf8_valid("", 0));
    assert_true(kh_utf8_valid("1234567\xC3\xA9", 9));
    assert_false(kh_utf8_valid("12345678\xC3", 9));
}

/* ---------------------------------------------------------------------------------------- json */

static json_t *parse(const char *text) {
    json_t *root;
    kh_err err = { 0 };
    if (kh_json_parse(text, strlen(text), "here", &root, &err) != 0)
        fail_msg("%s", err.msg);
    return root;
}

static void refuse(const char *text, size_t n, int code, long line, const char *sentence) {
    json_t *root = (json_t *)&n;
    kh_err err = { 0 };
    assert_int_equal(kh_json_parse(text, n, "here", &root, &err), code);
    assert_null(root);
    assert_int_equal(err.line, line);
    assert_says(&err, sentence);
}

static void any_value_is_a_text(void **state) {
    (void)state;
    static const char *const texts[] = { "1", "\"x\"", "null", "[]", " {} ",
        "{\"a\":[1,2.5,true,null,\"\\u00e9\\u0000\"]}" };
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
        json_decref(parse(texts[k]));
}

static void nested(int depth, char *out) {
    memset(out, '[', (size_t)depth);
    memset(out + depth, ']', (size_t)depth);
    out[2 * depth] = '\0';
}

static void depth_of_64_is_the_last(void **state) {
    (void)state;
    char text[300];
    nested(64, text);
    json_decref(parse(text));
    nested(65, text);
    refuse(text, strlen(text), KH_ELIMIT, 1, "here:1: JSON is nested deeper than 64 levels");
    text[10] = '\n', text[11] = '[';
    nested(70, text + 12);
    memset(text, '[', 10);
    refuse(text, strlen(text), KH_ELIMIT, 2, "here:2: JSON is nested deeper than 64 levels");
}

static void brackets_in_strings_do_not_nest(void **state) {
    (void)state;
    char text[200] = "\"\\\"";
    memset(text + 3, '[', 100);
    strcpy(text + 103, "\\\\\"");
    json_decref(parse(text));
}

static void a_million_brackets_are_refused_quickly(void **state) {
    (void)state;
    enum { N = 1000000 };
    char *text = malloc(N);
    memset(text, '[', N);
    refuse(text, N, KH_ELIMIT, 1, "nested deeper than 64");
    for (int k = 0; k < N; k++) /* a scanner fooled by closing brackets would let these through */
        text[k] = k < N / 2 ? ']' : '[';
    refuse(text, N, KH_EFORMAT, 1, "not valid JSON");
    free(text);
}

static void malformed_texts_are_refused_with_their_line(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        long line;
        const char *sentence;
    } cases[] = {
        { "{\"a\":1,\n\"a\":2}", 14, 2, "here:2: not valid JSON: duplicate object key" },
        { "[1,\n2\n3]", 8, 3, "not valid JSON: ']' expected" },
        { "", 0, 1, "not valid JSON" },
        { "{\"a\":1} x", 9, 1, "not valid JSON: end of file expected" },
        { "[\"\xC3\x28\"]", 6, 1, "not valid JSON: unable to decode byte 0xc3" },
        { "[\"\xED\xA0\x80\"]", 7, 1, "not valid JSON" },
        { "[\"\xFF\"]", 5, 1, "not valid JSON" },
        { "[\"\\ud800\"]", 10, 1, "not valid JSON" },
        { "[1e999]", 7, 1, "not valid JSON: real number overflow" },
        { "[99999999999999999999]", 22, 1, "not valid JSON: too big integer" },
        { "[01]", 4, 1, "not valid JSON" },
        { "[NaN]", 5, 1, "not valid JSON" },
        { "['a']", 5, 1, "not valid JSON" },
        { "[1,]", 4, 1, "not valid JSON" },
        { "[\"a\nb\"]", 7, 1, "not valid JSON: unexpected newline" },
        { "[1]\0", 4, 1, "not valid JSON" },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        refuse(cases[k].text, cases[k].n, KH_EFORMAT, cases[k].line, cases[k].sentence);
}

static void files_are_read_and_named(void **state) {
    (void)state;
    json_t *root;
    kh_err err = { 0 };
    const char *path = test_file("x.json", "{\"a\": 1}\n", 9);
    assert_int_equal(kh_json_read(path, 9, &root, &err), 0);
    assert_int_equal(json_integer_value(json_object_get(root, "a")), 1);
    json_decref(root);
    assert_int_equal(kh_json_read(path, 8, &root, &err), KH_ELIMIT);
    assert_null(root);
    unlink(path);
    assert_int_equal(kh_json_read(path, 100, &root, &err), KH_EMISSING);
    assert_says(&err, path);
    path = test_file("x.json", "{\"a\":\n}", 7);
    assert_int_equal(kh_json_read(path, 100, &root, &err), KH_EFORMAT);
    assert_says(&err, "x.json:2: not valid JSON");
    unlink(path);
}

static void getters_read_their_types(void **state) {
    (void)state;
    json_t *o = parse("{\"i\":-3,\"n\":2.5,\"b\":true,\"s\":\"text\",\"z\":null}");
    int i;
    double n;
    bool b;
    const char *s;
    assert_int_equal(kh_json_int(o, "i", -3, 5, &i, "f", NULL), 0);
    assert_int_equal(i, -3);
    assert_int_equal(kh_json_number(o, "n", &n, "f", NULL), 0);
    assert_true(n == 2.5);
    assert_int_equal(kh_json_number(o, "i", &n, "f", NULL), 0); /* a whole number is a number */
    assert_true(n == -3);
    assert_int_equal(kh_json_bool(o, "b", &b, "f", NULL), 0);
    assert_true(b);
    assert_int_equal(kh_json_string(o, "s", &s, "f", NULL), 0);
    assert_string_equal(s, "text");
    json_decref(o);
}

static void getters_say_what_is_wrong(void **state) {
    (void)state;
    json_t *o = parse("{\"i\":7,\"r\":7.0,\"s\":\"x\",\"nul\":\"a\\u0000b\",\"b\":true,\"z\":null,"
                      "\"big\":3000000000}");
    kh_err err = { 0 };
    int i = 1;
    double n = 1;
    bool b = true;
    const char *s = "kept";
#define SAYS(call, sentence) \
    do { \
        assert_int_equal(call, KH_EFORMAT); \
        assert_string_equal(err.msg, sentence); \
    } while (0)
    SAYS(kh_json_int(o, "none", 0, 9, &i, "c.json", &err), "c.json: \"none\" is missing");
    SAYS(kh_json_int(o, "z", 0, 9, &i, "c.json", &err), "c.json: \"z\" is missing");
    SAYS(kh_json_int(o, "i", 8, 9, &i, "c.json", &err),
        "c.json: \"i\" must be a whole number from 8 to 9");
    SAYS(kh_json_int(o, "i", 0, 6, &i, "c.json", &err),
        "c.json: \"i\" must be a whole number from 0 to 6");
    SAYS(kh_json_int(o, "r", 0, 9, &i, "c.json", &err),
        "c.json: \"r\" must be a whole number from 0 to 9");
    SAYS(kh_json_int(o, "s", 0, 9, &i, "c.json", &err),
        "c.json: \"s\" must be a whole number from 0 to 9");
    SAYS(kh_json_int(o, "big", 0, 9000000000, &i, "c.json", &err),
        "c.json: \"big\" must be a whole number from 0 to 2147483647");
    SAYS(kh_json_number(o, "none", &n, "c.json", &err), "c.json: \"none\" is missing");
    SAYS(kh_json_number(o, "b", &n, "c.json", &err), "c.json: \"b\" must be a number");
    SAYS(kh_json_bool(o, "none", &b, "c.json", &err), "c.json: \"none\" is missing");
    SAYS(kh_json_bool(o, "i", &b, "c.json", &err), "c.json: \"i\" must be true or false");
    SAYS(kh_json_string(o, "none", &s, "c.json", &err), "c.json: \"none\" is missing");
    SAYS(kh_json_string(o, "i", &s, "c.json", &err), "c.json: \"i\" must be a string");
    SAYS(kh_json_string(o, "nul", &s, "c.json", &err), "c.json: \"nul\" must be a string");
    SAYS(kh_json_string_opt(o, "i", &s, "c.json", &err), "c.json: \"i\" must be a string");
#undef SAYS
    assert_true(i == 1 && n == 1 && b);
    assert_string_equal(s, "kept");
    json_decref(o);
}

static void optional_keys_leave_the_default(void **state) {
    (void)state;
    json_t *o = parse("{\"z\":null}");
    static const char *const keys[] = { "z", "none" };
    for (int k = 0; k < 2; k++) {
        int i = 4;
        double n = 5;
        bool b = true;
        const char *s = "kept";
        assert_int_equal(kh_json_int_opt(o, keys[k], 0, 1, &i, "f", NULL), 0);
        assert_int_equal(kh_json_number_opt(o, keys[k], &n, "f", NULL), 0);
        assert_int_equal(kh_json_bool_opt(o, keys[k], &b, "f", NULL), 0);
        assert_int_equal(kh_json_string_opt(o, keys[k], &s, "f", NULL), 0);
        assert_true(i == 4 && n == 5 && b && strcmp(s, "kept") == 0);
    }
    json_decref(o);
}

/* Quoted text, read back by jansson, must be the text with broken bytes as U+FFFD. */
static void check_quote(const char *s, size_t n) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_json_quote(&b, s, n);
    json_t *root;
    kh_err err = { 0 };
    if (kh_json_parse(b.data, b.len, "quoted", &root, &err) != 0)
        fail_msg("%s: %s", err.msg, b.data);
    kh_buf expected = kh_buf_init(KH_BUF_MAX);
    int len;
    for (size_t at = 0; at < n; at += (size_t)len) {
        char utf8[4];
        kh_buf_bytes(
            &expected, utf8, (size_t)kh_utf8_put(kh_utf8_next(s + at, n - at, &len, NULL), utf8));
    }
    assert_int_equal(json_string_length(root), expected.len);
    if (expected.len)
        assert_memory_equal(json_string_value(root), expected.data, expected.len);
    json_decref(root);
    kh_buf_free(&b);
    kh_buf_free(&expected);
}

static void quoted_texts_read_back(void **state) {
    (void)state;
    check_quote("", 0);
    check_quote("plain \"quoted\" \\ back", 21);
    char s[300];
    for (int c = 0; c < 256; c++)
        s[c] = (char)c;
    check_quote(s, 256); /* all controls, and all bytes that are no UTF-8 */
    check_quote("\u2028\u2029\u00E9\u4E2D\U0001F511\x7F", 16);
    kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 0, 0);
    for (int round = 0; round < 20000; round++) {
        size_t n = kh_rng_below(&r, 30);
        for (size_t k = 0; k < n; k++)
            s[k] = (char)kh_rng_below(&r, round % 2 ? 256 : 96);
        check_quote(s, n);
    }
}

static void quotes_hold_no_raw_controls(void **state) {
    (void)state;
    kh_buf b = kh_buf_init(100);
    kh_json_quote(&b, "a\n\t\r\0\x1F\x7F\u2028\"\\", 12);
    assert_string_equal(b.data, "\"a\\n\\t\\u000d\\u0000\\u001f\\u007f\\u2028\\\"\\\\\"");
    kh_buf_reset(&b);
    kh_json_quote(&b, "\xC2\x9B\u061C\u202E\u2069\u00A0", 12);
    assert_string_equal(b.data, "\"\\u009b\\u061c\\u202e\\u2069\u00A0\"");
    kh_buf_free(&b);
}

/* Two ways to say what must not be sent to a terminal, by characters and by bytes. */
static void hiding_hides_what_is_a_control(void **state) {
    (void)state;
    for (uint32_t c = 1; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000)
            continue;
        char s[6] = "", before[6];
        s[kh_utf8_put(c, s)] = 'x';
        memcpy(before, s, sizeof s);
        kh_hide_controls(s);
        if ((strcmp(s, before) != 0) != kh_is_control(c) || strlen(s) != strlen(before))
            fail_msg("U+%04X", (unsigned)c);
    }
}

/* jansson would lose characters of it, or worse. */
static void a_long_string_needs_its_memory_first(void **state) {
    (void)state;
    static const char *const ENDS[] = { "\"]", "" }; /* also one that never ends */
    for (int i = 0; i < 2; i++) {
        kh_buf b = kh_buf_init(1 << 16);
        json_t *root;
        kh_err err = { 0 };
        kh_buf_text(&b, "[\"");
        for (int k = 0; k < 5000; k++)
            kh_buf_char(&b, 'x');
        kh_buf_text(&b, ENDS[i]);
        kh_alloc_fail_at(1, true);
        int rc = kh_json_parse(b.data, b.len, "long", &root, &err);
        kh_alloc_fail_at(0, false);
        assert_int_equal(rc, KH_ENOMEM);
        assert_null(root);
        assert_int_equal(
            kh_json_parse(b.data, b.len, "long", &root, &err), i == 0 ? 0 : KH_EFORMAT);
        assert_int_equal(json_string_length(json_array_get(root, 0)), i == 0 ? 5000 : 0);
        json_decref(root);
        kh_buf_free(&b);
    }
}

static void parsing_survives_failing_allocations(void **state) {
    (void)state;
    const char *path = test_file("x.json", "{\"a\": 1}\n", 9);
    for (long n = 1;; n++) {
        json_t *root;
        kh_err err = { 0 };
        kh_alloc_fail_at(n, true);
        int rc = kh_json_read(path, 100, &root, &err);
        bool reached = kh_alloc_count() >= n;
        kh_alloc_fail_at(0, false);
        json_decref(root);
        if (!reached) {
            assert_int_equal(rc, 0);
            break;
        }
        assert_int_equal(rc, KH_ENOMEM);
    }
    unlink(path);
}

static void the_first_broken_byte_is_found(void **state) {
    (void)state;
    assert_int_equal(kh_utf8_prefix("", 0), 0);
    assert_int_equal(kh_utf8_prefix("plain ascii, long enough", 24), 24);
    assert_int_equal(kh_utf8_prefix("na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x98\x80", 15), 15);
    assert_int_equal(kh_utf8_prefix("twelve bytes\xC3(", 14), 12);
    assert_int_equal(kh_utf8_prefix("cut \xE2\x82", 6), 4);
    assert_int_equal(kh_utf8_prefix("\xED\xA0\x80", 3), 0);
}

static void json_of_a_line_names_that_line(void **state) {
    (void)state;
    kh_err err;
    json_t *root;
    assert_int_equal(kh_json_parse_line("{\"a\":}", 6, "rows.jsonl", 41, &root, &err), KH_EFORMAT);
    assert_null(root);
    assert_says(&err, "rows.jsonl:41: not valid JSON");
    assert_int_equal(err.line, 41);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character_survives_utf8),
        cmocka_unit_test(broken_sequences_follow_the_standards_examples),
        cmocka_unit_test(broken_sequences_decode_as_in_python),
        cmocka_unit_test(validity_is_seen_at_every_offset),
        cmocka_unit_test(the_first_broken_byte_is_found),
        cmocka_unit_test(json_of_a_line_names_that_line),
        cmocka_unit_test(any_value_is_a_text),
        cmocka_unit_test(depth_of_64_is_the_last),
        cmocka_unit_test(brackets_in_strings_do_not_nest),
        cmocka_unit_test(a_million_brackets_are_refused_quickly),
        cmocka_unit_test(malformed_texts_are_refused_with_their_line),
        cmocka_unit_test(files_are_read_and_named),
        cmocka_unit_test(getters_read_their_types),
        cmocka_unit_test(getters_say_what_is_wrong),
        cmocka_unit_test(optional_keys_leave_the_default),
        cmocka_unit_test(quoted_texts_read_back),
        cmocka_unit_test(quotes_hold_no_raw_controls),
        cmocka_unit_test(hiding_hides_what_is_a_control),
        cmocka_unit_test(a_long_string_needs_its_memory_first),
        cmocka_unit_test(parsing_survives_failing_allocations),
    };
    return cmocka_run_group_tests_name("base_text", tests, NULL, NULL);
}
