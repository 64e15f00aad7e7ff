/* test_base_gguf.c - the container of GGUF: a round trip, every field of the header wrong in turn,
 * and the kinds of damage that other readers were broken by. */
#include "gguf_file.h"

#include "base/alloc.h"
#include "base/gguf.h"

#include <math.h>
#include <sys/stat.h>

static void refuse(const gguf_file *g, int code, const char *sentence) {
    kh_gguf *f;
    kh_err err = { 0 };
    if (kh_gguf_parse(&f, g->byte, g->n, "x.gguf", &err) != code)
        fail_msg("expected %d \"%s\", got %d \"%s\"", code, sentence, err.code, err.msg);
    assert_null(f);
    assert_says(&err, sentence);
    assert_says(&err, "x.gguf: ");
}

/* Where the fields of the sound file below stand. */
enum {
    AT_VERSION = 4,
    AT_TENSORS = 8,
    AT_KEYS = 16,
    AT_KEY_LEN = 24,
    AT_KIND = AT_KEY_LEN + 8 + 1, /* after "a" */
    AT_TEXT_LEN = AT_KIND + 4,
    AT_LIST_LEN = AT_TEXT_LEN + 8 + 2 /* "hi" */,
    AT_LIST_KIND = AT_LIST_LEN + 8 + 1,
    AT_ELEMENT = AT_LIST_KIND + 4,
    AT_COUNT = AT_ELEMENT + 4,
    AT_FIRST = AT_COUNT + 8,
    AT_NAME_LEN = AT_FIRST + 8 + 1 + 8 + 2,
    AT_RANK = AT_NAME_LEN + 8 + 1,
    AT_COLS = AT_RANK + 4,
    AT_ROWS = AT_COLS + 8,
    AT_TYPE = AT_ROWS + 8,
    AT_BEGIN = AT_TYPE + 4,
};

/* Two keys (a text, a list of two texts) and a Q8_0 matrix of 2 rows of 32. */
static void make_sound(gguf_file *g) {
    gguf_start(g, 3, 1, 2);
    gguf_string_key(g, "a", "hi");
    gguf_key(g, "b", 9);
    gguf_int(g, 8, 4);
    gguf_int(g, 2, 8);
    gguf_text(g, "x");
    gguf_text(g, "yz");
    gguf_tensor(g, "t", 32, 2, 8, 0);
    assert_int_equal(g->n, AT_BEGIN + 8);
    gguf_align(g, 32);
    for (int i = 0; i < 68; i++)
        gguf_int(g, (uint64_t)i, 1);
    gguf_align(g, 32);
}

/* The sound file with `bytes` bytes at a place replaced. */
static void refuse_field(size_t at, uint64_t value, int bytes, int code, const char *sentence) {
    gguf_file g;
    make_sound(&g);
    size_t n = g.n;
    g.n = at;
    gguf_int(&g, value, bytes);
    g.n = n;
    refuse(&g, code, sentence);
}

static void a_sound_file(void **state) {
    (void)state;
    gguf_file g;
    make_sound(&g);
    kh_gguf *f;
    kh_err err;
    for (int from_disk = 0; from_disk < 2; from_disk++) {
        const char *path = test_file("sound.gguf", g.byte, g.n);
        int rc = from_disk ? kh_gguf_open(&f, path, &err)
                           : kh_gguf_parse(&f, g.byte, g.n, "x.gguf", &err);
        assert_int_equal(rc, 0);
        const char *text;
        assert_int_equal(kh_gguf_text(f, "a", &text, &err), 0);
        assert_string_equal(text, "hi");
        kh_gguf_list list;
        size_t n;
        assert_int_equal(kh_gguf_texts(f, "b", &list, &err), 0);
        assert_int_equal(list.n, 2);
        assert_true(kh_gguf_next_text(&list, &text, &n) && n == 1 && *text == 'x');
        assert_true(kh_gguf_next_text(&list, &text, &n) && n == 2 && memcmp(text, "yz", 2) == 0);
        assert_false(kh_gguf_next_text(&list, &text, &n));
        int count;
        const kh_gguf_tensor *t = kh_gguf_tensors(f, &count);
        assert_int_equal(count, 1);
        assert_true(t->rank == 2 && t->shape[0] == 2 && t->shape[1] == 32);
        assert_true(t->type->dtype == KH_DTYPE_Q8_0 && t->bytes == 68);
        unsigned char bytes[68];
        assert_int_equal(kh_gguf_read(f, t, 0, 68, bytes, &err), 0);
        for (int i = 0; i < 68; i++)
            assert_int_equal(bytes[i], i);
        assert_int_equal(kh_gguf_read(f, t, 1, 68, bytes, &err), KH_EARG);
        assert_int_equal(kh_gguf_unchanged(f, &err), 0);
        if (from_disk) {
            assert_int_equal(truncate(path, 10), 0);
            assert_int_equal(kh_gguf_unchanged(f, &err), KH_EIO);
            assert_int_equal(kh_gguf_read(f, t, 0, 68, bytes, &err), KH_EIO);
        }
        kh_gguf_close(f);
        unlink(path);
    }
    g.byte[AT_VERSION] = 2;
    assert_int_equal(kh_gguf_parse(&f, g.byte, g.n, "x.gguf", &err), 0);
    kh_gguf_close(f);
}

static void every_field_wrong(void **state) {
    (void)state;
    refuse_field(0, 'X', 1, KH_EFORMAT, "does not begin with \"GGUF\"");
    refuse_field(AT_VERSION, 1, 4, KH_EUNSUPPORTED, "version 1");
    refuse_field(AT_VERSION, 4, 4, KH_EUNSUPPORTED, "version 4; 2 and 3 are read");
    refuse_field(AT_VERSION, 3u << 24, 4, KH_EUNSUPPORTED, "big-endian");
    refuse_field(AT_TENSORS, UINT64_MAX, 8, KH_EFORMAT, "reaches past the end");
    refuse_field(AT_TENSORS, 0, 8, KH_EFORMAT, "belong to nothing");
    refuse_field(AT_KEYS, UINT64_MAX / 2, 8, KH_EFORMAT, "reaches past the end");
    refuse_field(AT_KEYS, 3, 8, KH_EFORMAT, "");
    refuse_field(AT_KEY_LEN, 0, 8, KH_ELIMIT, "a key at byte 24 has a name of 0 bytes");
    refuse_field(AT_KEY_LEN, UINT64_MAX, 8, KH_EFORMAT, "a key at byte 32 reaches past the end");
    refuse_field(AT_KEY_LEN + 8, '\n', 1, KH_EFORMAT, "a control character in its name");
    refuse_field(AT_KIND, 13, 4, KH_EFORMAT, "the value of \"a\" is of unknown kind 13");
    refuse_field(AT_KIND, UINT32_MAX, 4, KH_EFORMAT, "unknown kind 4294967295");
    refuse_field(AT_TEXT_LEN, 1ull << 62, 8, KH_EFORMAT, "reaches past the end");
    refuse_field(AT_LIST_LEN + 8, 'a', 1, KH_EFORMAT, "the key \"a\" stands there twice");
    refuse_field(AT_ELEMENT, 9, 4, KH_EUNSUPPORTED, "\"b\" is an array of arrays");
    refuse_field(AT_ELEMENT, 14, 4, KH_EFORMAT, "the elements of \"b\" are of unknown kind 14");
    refuse_field(AT_COUNT, 1ull << 61, 8, KH_EFORMAT, "reaches past the end");
    refuse_field(AT_COUNT, UINT64_MAX, 8, KH_EFORMAT, "reaches past the end");
    refuse_field(AT_FIRST, UINT64_MAX - 7, 8, KH_EFORMAT, "reaches past the end");
    refuse_field(AT_NAME_LEN, UINT64_MAX, 8, KH_EFORMAT, "a tensor at byte");
    refuse_field(AT_NAME_LEN, 0, 8, KH_ELIMIT, "has a name of 0 bytes");
    refuse_field(AT_RANK, 0, 4, KH_EFORMAT, "has 0 dimensions, expected 1 to 4");
    refuse_field(AT_RANK, 5, 4, KH_EFORMAT, "has 5 dimensions");
    refuse_field(AT_RANK, UINT32_MAX, 4, KH_EFORMAT, "has 4294967295 dimensions");
    refuse_field(AT_COLS, 0, 8, KH_EFORMAT, "a dimension is 0");
    refuse_field(AT_COLS, UINT64_MAX, 8, KH_EFORMAT, "a dimension is 18446744073709551615");
    refuse_field(AT_COLS, 33, 8, KH_EFORMAT, "rows of 33 numbers cannot be blocks of 32");
    refuse_field(AT_COLS, 64, 8, KH_EFORMAT, "cut short: tensor \"t\" needs 136 bytes");
    refuse_field(AT_ROWS, 1ull << 60, 8, KH_EFORMAT, "the product of its dimensions is too large");
    refuse_field(AT_ROWS, 1ull << 55, 8, KH_EFORMAT, "cut short");
    refuse_field(AT_ROWS, 1, 8, KH_EFORMAT, "32 bytes after the last tensor belong to nothing");
    refuse_field(AT_TYPE, 99, 4, KH_EUNSUPPORTED, "type number 99, which is not known");
    refuse_field(AT_TYPE, 4, 4, KH_EUNSUPPORTED, "type number 4");
    refuse_field(AT_TYPE, UINT32_MAX, 4, KH_EUNSUPPORTED, "type number 4294967295");
    refuse_field(AT_TYPE, 0, 4, KH_EFORMAT, "cut short: tensor \"t\" needs 256 bytes");
    refuse_field(AT_BEGIN, 32, 8, KH_EFORMAT, "starts at byte 32 after the header, expected 0");
    refuse_field(AT_BEGIN, UINT64_MAX - 31, 8, KH_EFORMAT, "expected 0");
}

/* A file cut at any byte is refused, and reading stays inside (make asan). */
static void cut_anywhere(void **state) {
    (void)state;
    gguf_file g;
    make_sound(&g);
    size_t n = g.n, needed = AT_BEGIN + 8;
    needed += (0 - needed) % 32 + 68;
    for (size_t cut = 0; cut < needed; cut++) {
        unsigned char *exact = kh_malloc(cut); /* so that one byte further is caught */
        memcpy(exact, g.byte, cut);
        kh_gguf *f;
        kh_err err;
        assert_int_equal(kh_gguf_parse(&f, exact, cut, "x.gguf", &err), KH_EFORMAT);
        kh_free(exact);
    }
    g.n = needed; /* the padding after the last tensor may be missing */
    kh_gguf *f;
    assert_int_equal(kh_gguf_parse(&f, g.byte, g.n, "x.gguf", NULL), 0);
    kh_gguf_close(f);
    memset(g.byte + n, 0, 32);
    g.n = n + 1;
    refuse(&g, KH_EFORMAT, "belong to nothing");
}

static void alignment(void **state) {
    (void)state;
    static const struct {
        uint32_t kind, value;
        const char *sentence; /* NULL: fine */
    } cases[] = { { 4, 64, NULL }, { 4, 1, NULL }, { 4, 0, "expected a whole number from 1" },
        { 4, 48, "expected a power of two" }, { 4, UINT32_MAX, "expected a whole number from 1" },
        { 6, 32, "expected a whole number" }, { 5, 0xFFFFFFE0, "is -32" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gguf_file g;
        gguf_start(&g, 3, 1, 1);
        gguf_key(&g, "general.alignment", cases[i].kind);
        gguf_int(&g, cases[i].value, 4);
        gguf_tensor(&g, "t", 3, 0, 0, 0);
        gguf_align(&g, 64);
        gguf_int(&g, 0, 8);
        gguf_int(&g, 0, 4);
        if (cases[i].value == 1)
            g.n = 24 + 8 + 17 + 4 + 4 + 8 + 1 + 4 + 8 + 4 + 8 + 12;
        kh_gguf *f = NULL;
        kh_err err;
        if (cases[i].sentence)
            refuse(&g, KH_EFORMAT, cases[i].sentence);
        else if (kh_gguf_parse(&f, g.byte, g.n, "x.gguf", &err) != 0)
            fail_msg("%s", err.msg);
        kh_gguf_close(f);
    }
}

/* Tensors that overlap, leave a hole, or have one name. */
static void two_tensors(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        static const uint64_t begin[] = { 32, 0, 64, 16 };
        gguf_file g;
        gguf_start(&g, 3, 2, 0);
        gguf_tensor(&g, "t", 8, 0, 0, 0);
        gguf_tensor(&g, "u", 8, 0, 0, begin[i]);
        gguf_align(&g, 32);
        memset(g.byte + g.n, 0, 96);
        g.n += i == 2 ? 96 : 64;
        kh_gguf *f;
        if (i == 0) {
            assert_int_equal(kh_gguf_parse(&f, g.byte, g.n, "x.gguf", NULL), 0);
            kh_gguf_close(f);
        } else
            refuse(&g, KH_EFORMAT, "expected 32, where the one before it ends");
    }
    gguf_file g;
    gguf_start(&g, 3, 2, 0);
    gguf_tensor(&g, "t", 8, 0, 0, 0);
    gguf_tensor(&g, "t", 8, 0, 0, 32);
    gguf_align(&g, 32);
    g.n += 64;
    refuse(&g, KH_EFORMAT, "there are two tensors \"t\"");
}

/* Values asked for as something that they are not; ranges; what is missing. */
static void values(void **state) {
    (void)state;
    gguf_file g;
    gguf_start(&g, 3, 0, 9);
    gguf_key(&g, "u64", 10), gguf_int(&g, UINT64_MAX, 8);
    gguf_key(&g, "i8", 1), gguf_int(&g, 0xFF, 1);
    gguf_key(&g, "f32", 6), gguf_int(&g, 0x3FC00000, 4);
    gguf_key(&g, "nan", 6), gguf_int(&g, 0x7FC00000, 4);
    gguf_key(&g, "f64", 12), gguf_int(&g, 0x3FF8000000000000, 8);
    gguf_key(&g, "bool", 7), gguf_int(&g, 1, 1);
    gguf_key(&g, "nul", 8), gguf_int(&g, 3, 8), gguf_int(&g, 0x610061, 3);
    gguf_key(&g, "ints", 9), gguf_int(&g, 3, 4), gguf_int(&g, 2, 8), gguf_int(&g, 0xFFFE0001, 4);
    gguf_key(&g, "bools", 9), gguf_int(&g, 7, 4), gguf_int(&g, 1, 8), gguf_int(&g, 1, 1);
    gguf_align(&g, 32);
    kh_gguf *f;
    kh_err err;
    assert_int_equal(kh_gguf_parse(&f, g.byte, g.n, "x.gguf", &err), 0);
    int i = 7;
    double d = 0;
    bool b = false;
    const char *s = NULL;
    kh_gguf_list list;
    long long element;
    assert_int_equal(kh_gguf_int(f, "u64", 0, 100, &i, &err), KH_EFORMAT);
    assert_says(&err, "\"u64\" is 9223372036854775807, expected a whole number from 0 to 100");
    assert_int_equal(kh_gguf_int(f, "i8", -1, 0, &i, &err), 0);
    assert_int_equal(i, -1);
    assert_int_equal(kh_gguf_int_opt(f, "none", 0, 1, &i, &err), 0);
    assert_int_equal(i, -1);
    assert_int_equal(kh_gguf_int(f, "none", 0, 1, &i, &err), KH_EFORMAT);
    assert_says(&err, "the key \"none\" is missing");
    assert_int_equal(kh_gguf_number(f, "f32", &d, &err), 0);
    assert_true(d == 1.5);
    assert_int_equal(kh_gguf_number(f, "f64", &d, &err), 0);
    assert_true(d == 1.5);
    assert_int_equal(kh_gguf_number(f, "nan", &d, &err), KH_EFORMAT);
    assert_says(&err, "not a finite number");
    assert_int_equal(kh_gguf_number(f, "i8", &d, &err), KH_EFORMAT);
    assert_int_equal(kh_gguf_bool(f, "bool", &b, &err), 0);
    assert_true(b);
    assert_int_equal(kh_gguf_bool(f, "i8", &b, &err), KH_EFORMAT);
    assert_int_equal(kh_gguf_text(f, "nul", &s, &err), KH_EFORMAT);
    assert_says(&err, "\"nul\" holds a NUL byte");
    assert_int_equal(kh_gguf_text(f, "ints", &s, &err), KH_EFORMAT);
    assert_says(&err, "\"ints\" is of kind array of i16, expected string");
    assert_int_equal(kh_gguf_ints(f, "ints", &list, &err), 0);
    assert_true(kh_gguf_next_int(&list, &element) && element == 1);
    assert_true(kh_gguf_next_int(&list, &element) && element == -2);
    assert_false(kh_gguf_next_int(&list, &element));
    /* An element type that is not the one assumed: read as texts this would leave the file. */
    assert_int_equal(kh_gguf_texts(f, "ints", &list, &err), KH_EFORMAT);
    assert_int_equal(kh_gguf_ints(f, "bools", &list, &err), KH_EFORMAT);
    assert_int_equal(kh_gguf_numbers(f, "ints", &list, &err), KH_EFORMAT);
    assert_int_equal(kh_gguf_texts(f, "none", &list, &err), 0);
    assert_int_equal(list.n, 0);
    kh_gguf_close(f);
    gguf_start(&g, 3, 0, 1);
    gguf_key(&g, "bool", 7), gguf_int(&g, 2, 1);
    refuse(&g, KH_EFORMAT, "the value of \"bool\" is 2, expected 0 or 1");
}

/* A header that is longer than the piece that is read first. */
static void long_header(void **state) {
    (void)state;
    enum { N = 3 << 20 };
    kh_gguf_keys keys = kh_gguf_keys_init();
    char *long_text = calloc(1, N);
    memset(long_text, 'x', N - 1);
    kh_gguf_put_text(&keys, "long", long_text, N - 1);
    kh_gguf_put_u32(&keys, "u", 7);
    kh_gguf_put_f32(&keys, "f", 0.5f);
    kh_gguf_put_bool(&keys, "b", true);
    kh_gguf_tensor plan[] = {
        { .name = "t", .type = kh_gguf_type_of(KH_DTYPE_F16), .rank = 2, .shape = { 3, 5 } },
        { .name = "u", .type = kh_gguf_type_of(KH_DTYPE_F32), .rank = 1, .shape = { 3 } }
    };
    kh_gguf_writer *w;
    kh_err err;
    const char *path = test_file("long.gguf", "", 0);
    assert_int_equal(kh_gguf_create(&w, path, &keys, plan, 2, &err), 0);
    unsigned char bytes[42];
    for (int i = 0; i < 42; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(kh_gguf_put(w, bytes, 10, &err), 0);
    assert_int_equal(kh_gguf_put(w, bytes, 21, &err), KH_EARG);
    assert_int_equal(kh_gguf_put(w, bytes + 10, 20, &err), 0);
    assert_int_equal(kh_gguf_put(w, bytes + 30, 12, &err), 0);
    assert_int_equal(kh_gguf_finish(w, true, &err), 0);
    kh_gguf *f;
    assert_int_equal(kh_gguf_open(&f, path, &err), 0);
    const char *text;
    int u, n;
    assert_int_equal(kh_gguf_text(f, "long", &text, &err), 0);
    assert_string_equal(text, long_text);
    assert_int_equal(kh_gguf_int(f, "u", 0, 9, &u, &err), 0);
    assert_int_equal(u, 7);
    const kh_gguf_tensor *t = kh_gguf_tensors(f, &n);
    assert_int_equal(n, 2);
    assert_true(t[0].shape[0] == 3 && t[0].shape[1] == 5 && t[1].begin == 32);
    unsigned char back[12];
    assert_int_equal(kh_gguf_read(f, &t[1], 0, 12, back, &err), 0);
    assert_memory_equal(back, bytes + 30, 12);
    /* Keys copied into another file are the same keys. */
    kh_gguf_keys some = kh_gguf_keys_init();
    kh_gguf_put_copy(&some, f, "u");
    kh_gguf_put_copy(&some, f, "none");
    kh_buf file = kh_buf_init(1 << 20);
    kh_gguf_put_file(&file, &some);
    kh_gguf *copy;
    assert_int_equal(kh_gguf_parse(&copy, file.data, file.len, "copy", &err), 0);
    assert_int_equal(kh_gguf_int(copy, "u", 0, 9, &u, &err), 0);
    assert_string_equal(kh_gguf_key(copy, 0), "u");
    assert_null(kh_gguf_key(copy, 1));
    kh_gguf_close(copy);
    kh_gguf_close(f);
    kh_buf_free(&file);
    kh_gguf_keys_free(&some);
    /* A file that misses bytes does not appear. */
    unlink(path);
    assert_int_equal(kh_gguf_create(&w, path, &keys, plan, 2, &err), 0);
    assert_int_equal(kh_gguf_finish(w, true, &err), KH_EARG);
    assert_int_equal(access(path, F_OK), -1);
    plan[0].type = kh_gguf_type_of(KH_DTYPE_Q8_0);
    assert_int_equal(kh_gguf_create(&w, path, &keys, plan, 2, &err), KH_ELIMIT);
    assert_says(&err, "rows of 5 numbers cannot be written as Q8_0");
    kh_gguf_keys_free(&keys);
    free(long_text);
}

static void not_a_file(void **state) {
    (void)state;
    kh_gguf *f;
    kh_err err;
    assert_int_equal(kh_gguf_open(&f, "/nowhere.gguf", &err), KH_EMISSING);
    assert_int_equal(kh_gguf_open(&f, "/tmp", &err), KH_EARG);
    assert_says(&err, "is not a regular file");
}

static void out_of_memory(void **state) {
    (void)state;
    gguf_file g;
    make_sound(&g);
    const char *path = test_file("oom.gguf", g.byte, g.n);
    for (long n = 1;; n++) {
        kh_gguf *f;
        kh_err err;
        kh_alloc_fail_at(n, false);
        int rc = kh_gguf_open(&f, path, &err);
        bool reached = kh_alloc_count() >= n;
        kh_alloc_fail_at(0, false);
        kh_gguf_close(f);
        if (!reached)
            break;
        assert_int_equal(rc, KH_ENOMEM);
    }
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_file),
        cmocka_unit_test(every_field_wrong),
        cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(alignment),
        cmocka_unit_test(two_tensors),
        cmocka_unit_test(values),
        cmocka_unit_test(long_header),
        cmocka_unit_test(not_a_file),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
