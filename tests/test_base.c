/* test_base.c - the room that knows nothing of language. */
#include "test.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/utf8.h"

static void grow_is_geometric_and_survives_failure(void **state) {
    (void)state;
    int *p = NULL;
    size_t cap = 0;
    assert_true(kh_grow(&p, &cap, 1, sizeof *p));
    p[0] = 7;
    size_t before = cap;
    kh_alloc_fail_at(1, false);
    assert_false(kh_grow(&p, &cap, 1000, sizeof *p));
    kh_alloc_fail_at(0, false);
    assert_int_equal(cap, before);
    assert_int_equal(p[0], 7);
    assert_false(kh_grow(&p, &cap, SIZE_MAX / 2, sizeof *p));
    kh_free(p);
}

static void utf8_valid_finds_the_first_broken_byte(void **state) {
    (void)state;
    assert_int_equal(kh_utf8_valid("", 0), 0);
    assert_int_equal(kh_utf8_valid("plain ascii, long enough", 24), 24);
    assert_int_equal(kh_utf8_valid("na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x98\x80", 15), 15);
    assert_int_equal(kh_utf8_valid("twelve bytes\xC3(", 14), 12);
    assert_int_equal(kh_utf8_valid("cut \xE2\x82", 6), 4);
    assert_int_equal(kh_utf8_valid("\xED\xA0\x80", 3), 0);
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
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grow_is_geometric_and_survives_failure),
        cmocka_unit_test(utf8_valid_finds_the_first_broken_byte),
        cmocka_unit_test(json_of_a_line_names_that_line),
        cmocka_unit_test(every_character_survives_utf8),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
