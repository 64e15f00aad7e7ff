/* test_base_json.c - the writer and the sticky reader of JSON. What the writer writes is read back
 * by jansson, which is not ours; random calls, sensible or not, must give JSON or a failure. */
#include "test.h"

#include "base/alloc.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "base/rng.h"

#include <locale.h>
#include <math.h>

static kh_buf b;

static int fresh(void **state) {
    (void)state;
    b = kh_buf_init(KH_BUF_MAX);
    return 0;
}

static int clear(void **state) {
    (void)state;
    kh_buf_free(&b);
    return 0;
}

/* -------------------------------------------------------------------------------------- writer */

static void document(kh_json_style style) {
    kh_json_out j = kh_json_out_init(&b, style);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "path", "a \"b\"\n\xFF");
    kh_json_put_string(&j, "none", NULL);
    kh_json_put_number(&j, "dev", 0.1, 12);
    kh_json_put_number(&j, "nan", NAN, 9);
    kh_json_put_number(&j, "inf", -INFINITY, 9);
    kh_json_put_fixed(&j, "seconds", 2.0 / 3, 3);
    kh_json_put_bool(&j, "yes", true);
    kh_json_put_int(&j, "n", -7);
    kh_json_put_u64(&j, "seed", UINT64_MAX);
    kh_json_put_hex(&j, "hash", 0xabc);
    kh_json_put_base64(&j, "bytes", "\0\1\2", 3);
    kh_json_gap(&j, "\n  ");
    kh_json_open_array(&j, "list");
    kh_json_tight(&j);
    kh_json_put_int(&j, NULL, 1);
    kh_json_put_int(&j, NULL, 2);
    kh_json_close(&j);
    kh_json_open_array(&j, "empty");
    kh_json_close(&j);
    kh_json_put_json(&j, "options", "{\"a\":1}", 7);
    kh_json_gap(&j, "\n");
    kh_json_close(&j);
    assert_true(kh_json_out_done(&j));
}

static void documents_are_laid_out_as_told(void **state) {
    (void)state;
    document(KH_JSON_SPACED);
    assert_string_equal(b.data,
        "{\"path\": \"a \\\"b\\\"\\n\uFFFD\", \"none\": null, \"dev\": 0.1, \"nan\": null, "
        "\"inf\": null, \"seconds\": 0.667, \"yes\": true, \"n\": -7, "
        "\"seed\": \"18446744073709551615\", \"hash\": \"0000000000000abc\", \"bytes\": \"AAEC\",\n"
        "  \"list\": [1,2], \"empty\": [], \"options\": {\"a\":1}\n}");
    kh_buf_reset(&b);
    document(KH_JSON_COMPACT);
    assert_string_equal(b.data,
        "{\"path\":\"a \\\"b\\\"\\n\uFFFD\",\"none\":null,\"dev\":0.1,\"nan\":null,"
        "\"inf\":null,\"seconds\":0.667,\"yes\":true,\"n\":-7,"
        "\"seed\":\"18446744073709551615\",\"hash\":\"0000000000000abc\",\"bytes\":\"AAEC\",\n"
        "  \"list\":[1,2],\"empty\":[],\"options\":{\"a\":1}\n}");
}

static void what_does_not_fit_is_a_failure(void **state) {
    (void)state;
#define REFUSED(...) \
    do { \
        kh_buf_reset(&b); \
        kh_json_out j = kh_json_out_init(&b, KH_JSON_SPACED); \
        __VA_ARGS__; \
        assert_false(kh_json_out_done(&j)); \
    } while (0)
    REFUSED((void)0); /* nothing is no document */
    REFUSED(kh_json_put_int(&j, "key", 1));
    REFUSED(kh_json_put_int(&j, NULL, 1), kh_json_put_int(&j, NULL, 2));
    REFUSED(kh_json_open_object(&j, NULL));
    REFUSED(kh_json_open_object(&j, NULL), kh_json_put_null(&j, NULL), kh_json_close(&j));
    REFUSED(kh_json_open_array(&j, NULL), kh_json_put_null(&j, "key"), kh_json_close(&j));
    REFUSED(kh_json_open_array(&j, NULL), kh_json_close(&j), kh_json_close(&j));
    REFUSED(kh_json_gap(&j, "x"), kh_json_put_null(&j, NULL));
    REFUSED(kh_json_put_json(&j, NULL, "{", 1));
    REFUSED(kh_json_put_json(&j, NULL, "1,2", 3));
    REFUSED(kh_json_put_number(&j, NULL, 1, 100));
    REFUSED(for (int i = 0; i < 70; i++) kh_json_open_array(&j, NULL);
            for (int i = 0; i < 70; i++) kh_json_close(&j));
#undef REFUSED
}

static void numbers_have_a_point_in_every_locale(void **state) {
    (void)state;
    static const char *const names[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ps_AF.UTF-8",
        "nl_NL.UTF-8" };
    bool set = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !set; i++)
        set = setlocale(LC_NUMERIC, names[i]) != NULL;
    if (!set)
        test_skip("no locale with a decimal comma is installed");
    document(KH_JSON_SPACED);
    setlocale(LC_NUMERIC, "C");
    assert_non_null(strstr(b.data, "\"dev\": 0.1, "));
    assert_non_null(strstr(b.data, "\"seconds\": 0.667,"));
}

static void one_call(kh_json_out *j, kh_rng *r) {
    char s[8];
    for (size_t i = 0; i < sizeof s; i++)
        s[i] = (char)kh_rng_below(r, 256);
    const char *key = j->depth && j->object & 1 ? "k" : NULL;
    if (kh_rng_below(r, 64) == 0)
        key = key ? NULL : "k";
    switch (kh_rng_below(r, 10)) {
    case 0: kh_json_open_object(j, key); break;
    case 1: kh_json_open_array(j, key); break;
    case 2:
    case 3: kh_json_close(j); break;
    case 4: kh_json_put_text(j, key, s, kh_rng_below(r, 9)); break;
    case 5: kh_json_put_number(j, key, kh_rng_normal(r), 9); break;
    case 6: kh_json_put_json(j, key, s, kh_rng_below(r, 3)); break;
    case 7: kh_json_gap(j, kh_rng_below(r, 2) ? "\n " : ""); break;
    case 8: kh_json_tight(j); break;
    default: kh_json_put_bool(j, key, true);
    }
}

static void random_calls_give_json_or_fail(void **state) {
    (void)state;
    int whole = 0;
    for (uint32_t k = 0; k < 20000; k++) {
        kh_rng r = kh_rng_stream(1, KH_RNG_TEST, k, 0);
        kh_buf_reset(&b);
        kh_json_out j = kh_json_out_init(&b, k & 1 ? KH_JSON_COMPACT : KH_JSON_SPACED);
        int calls = 1 + (int)kh_rng_below(&r, 12);
        for (int i = 0; i < calls; i++)
            one_call(&j, &r);
        if (!kh_json_out_done(&j))
            continue;
        json_error_t why; /* "k" may stand in an object twice: that is not looked for */
        json_t *root = json_loadb(b.data, b.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
        if (!root)
            fail_msg("%s: %s", why.text, b.data);
        json_decref(root);
        whole++;
    }
    assert_true(whole > 1000);
}

static void a_full_buffer_is_a_failure(void **state) {
    (void)state;
    b = kh_buf_init(20);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
    kh_json_open_array(&j, NULL);
    for (int i = 0; i < 30; i++)
        kh_json_put_int(&j, NULL, i);
    kh_json_close(&j);
    assert_false(kh_json_out_done(&j));
    assert_true(b.failed);
}

/* -------------------------------------------------------------------------------------- reader */

static json_t *tree(const char *text) {
    json_t *root;
    assert_int_equal(kh_json_parse(text, strlen(text), "x.json", &root, NULL), 0);
    return root;
}

static void all_kinds_are_read(void **state) {
    (void)state;
    json_t *o = tree("{\"i\":3,\"n\":0.5,\"b\":true,\"s\":\"t\",\"o\":{\"i\":4},\"a\":[1,2.5,7],"
                     "\"u\":\"18446744073709551615\",\"h\":\"00ff\"}");
    kh_err err = { 0 };
    kh_json_in r = { "x.json", &err, 0 };
    assert_int_equal(kh_json_get_int(&r, o, "i", 0, 9), 3);
    assert_true(kh_json_get_number(&r, o, "n") == 0.5);
    assert_true(kh_json_get_bool(&r, o, "b"));
    assert_string_equal(kh_json_get_string(&r, o, "s"), "t");
    assert_int_equal(kh_json_get_int(&r, kh_json_get_object(&r, o, "o"), "i", 0, 9), 4);
    const json_t *a = kh_json_get_array(&r, o, "a", 3);
    assert_int_equal(kh_json_at_int(&r, a, 0, "a", 1, 1), 1);
    assert_true(kh_json_at_number(&r, a, 1, "a") == 2.5);
    assert_int_equal(kh_json_at_u64(&r, a, 2, "a"), 7);
    assert_true(kh_json_get_u64(&r, o, "u") == UINT64_MAX);
    assert_int_equal(kh_json_get_hex(&r, o, "h"), 255);
    assert_int_equal(kh_json_int_or(&r, o, "none", 0, 9, 5), 5);
    assert_int_equal(kh_json_int_or(&r, o, "i", 0, 9, 5), 3);
    assert_true(kh_json_number_or(&r, o, "none", 1.5) == 1.5);
    assert_true(kh_json_bool_or(&r, o, "none", true));
    assert_null(kh_json_string_or(&r, o, "none", NULL));
    assert_int_equal(r.rc, 0);
    json_decref(o);
}

static void the_first_failure_stays(void **state) {
    (void)state;
    json_t *o = tree("{\"i\":3,\"s\":\"t\",\"a\":[1]}");
    static const struct {
        int which;
        const char *says;
    } cases[] = { { 0, "x.json: \"i\" must be a whole number from 4 to 9" },
        { 1, "x.json: \"n\" is missing" }, { 2, "x.json: \"o\" must be an object" },
        { 3, "x.json: \"a\" must be an array of at most 0 elements" },
        { 4, "x.json: \"s\" must be a whole number from 0" },
        { 5, "x.json: \"s\" must be a string of at most 16 hexadecimal digits" },
        { 6, "x.json: element 0 of \"a\" must be a whole number from 2 to 3" },
        { 7, "x.json: element 1 of \"a\" must be a number" }, { 8, "x.json: 7 of 9" } };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        kh_err err = { 0 };
        kh_json_in r = { "x.json", &err, 0 };
        const json_t *a = json_object_get(o, "a");
        switch (cases[k].which) {
        case 0: kh_json_get_int(&r, o, "i", 4, 9); break;
        case 1: kh_json_get_number(&r, o, "n"); break;
        case 2: assert_null(kh_json_get_object(&r, o, "o")); break;
        case 3: assert_null(kh_json_get_array(&r, o, "a", 0)); break;
        case 4: kh_json_get_u64(&r, o, "s"); break;
        case 5: kh_json_get_hex(&r, o, "s"); break;
        case 6: kh_json_at_int(&r, a, 0, "a", 2, 3); break;
        case 7: kh_json_at_number(&r, a, 1, "a"); break;
        default: kh_json_refuse(&r, KH_EFORMAT, "%d of %d", 7, 9);
        }
        assert_int_equal(r.rc, KH_EFORMAT);
        /* whatever follows is harmless and says nothing */
        assert_int_equal(kh_json_get_int(&r, o, "i", 0, 9), 0);
        assert_string_equal(kh_json_get_string(&r, o, "s"), "");
        assert_false(kh_json_get_bool(&r, NULL, "b"));
        assert_int_equal(kh_json_at_int(&r, a, 0, "a", 0, 9), 0);
        assert_int_equal(kh_json_get_u64(&r, o, "i"), 0);
        assert_int_equal(kh_json_refuse(&r, KH_EIO, "later"), KH_EFORMAT);
        assert_says(&err, cases[k].says);
    }
    json_decref(o);
}

/* ---------------------------------------------------------------------------------- what it takes
 */

static size_t counted;
static void *count_malloc(size_t n) {
    size_t *p = malloc(n + 16);
    assert_non_null(p);
    *p = n;
    counted += n < 24 ? 32 : (n + 8 + 15) & ~(size_t)15; /* as glibc rounds */
    return (char *)p + 16;
}
static void count_free(void *p) {
    if (p)
        free((char *)p - 16);
}

/* The estimate must be above what jansson asks for, all in all, and not ten times as much. */
static void the_cost_of_a_tree_is_known_before(void **state) {
    (void)state;
    static const char *const unit[] = { "{}", "[]", "1", "\"\"", "\"0123456789012345678901234567\"",
        "{\"a\":1}", "[1]", "true", "-1.5e3", "{\"a\":{},\"b\":[]}" };
    for (size_t k = 0; k < sizeof unit / sizeof unit[0]; k++) {
        kh_buf_reset(&b);
        for (int i = 0; i < 10000; i++) {
            kh_buf_text(&b, i ? "," : "[");
            kh_buf_text(&b, unit[k]);
        }
        kh_buf_text(&b, "]");
        counted = 0;
        json_set_alloc_funcs(count_malloc, count_free);
        json_t *root = json_loadb(b.data, b.len, 0, NULL);
        json_decref(root);
        json_set_alloc_funcs(malloc, free);
        assert_non_null(root);
        size_t cost = kh_json_cost(b.data, b.len);
        if (cost + 65536 < counted || cost > 10 * counted + 65536)
            fail_msg("%s: jansson asked for %zu, %zu expected", unit[k], counted, cost);
    }
}

/* 16 MB of {} would be 1.3 GB. */
static void a_bomb_is_refused_before_it_is_built(void **state) {
    (void)state;
    kh_buf_text(&b, "[{}");
    for (int i = 0; i < 2000000; i++)
        kh_buf_text(&b, ",{}");
    kh_buf_text(&b, "]");
    json_t *root;
    kh_err err = { 0 };
    assert_int_equal(kh_json_parse(b.data, b.len, "bomb.json", &root, &err), KH_ELIMIT);
    assert_says(&err, "bomb.json: 6000004 bytes of JSON that would take ");
    assert_null(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(documents_are_laid_out_as_told, fresh, clear),
        cmocka_unit_test_setup_teardown(what_does_not_fit_is_a_failure, fresh, clear),
        cmocka_unit_test_setup_teardown(numbers_have_a_point_in_every_locale, fresh, clear),
        cmocka_unit_test_setup_teardown(random_calls_give_json_or_fail, fresh, clear),
        cmocka_unit_test_setup_teardown(a_full_buffer_is_a_failure, fresh, clear),
        cmocka_unit_test(all_kinds_are_read),
        cmocka_unit_test(the_first_failure_stays),
        cmocka_unit_test_setup_teardown(the_cost_of_a_tree_is_known_before, fresh, clear),
        cmocka_unit_test_setup_teardown(a_bomb_is_refused_before_it_is_built, fresh, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
