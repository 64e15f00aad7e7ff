/* test_model_safetensors.c - the file format: every rule broken once, a round trip, numbers in half
 * precision. */
#include "test.h"

#include "base/alloc.h"
#include "model/safetensors.h"
#include "model/tensor.h"

#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>

/* A file of header and data; announced < 0: the header's true length. */
static const char *make_file(
    const char *header, size_t header_bytes, long long announced, size_t data_bytes) {
    size_t n = 8 + header_bytes + data_bytes;
    char *bytes = calloc(1, n);
    uint64_t length = announced < 0 ? header_bytes : (uint64_t)announced;
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[8 + header_bytes + i] = (char)i;
    const char *path = test_file("x.safetensors", bytes, n);
    free(bytes);
    return path;
}

static void refuse_bytes(const void *bytes, size_t n, int code, const char *sentence) {
    const char *path = test_file("x.safetensors", bytes, n);
    kh_safetensors *f;
    kh_err err = { 0 };
    assert_int_equal(kh_safetensors_open(&f, path, &err), code);
    assert_null(f);
    assert_says(&err, sentence);
    assert_says(&err, path);
    unlink(path);
}

static void refuse(const char *header, size_t data_bytes, int code, const char *sentence) {
    const char *path = make_file(header, strlen(header), -1, data_bytes);
    kh_safetensors *f;
    kh_err err = { 0 };
    if (kh_safetensors_open(&f, path, &err) != code)
        fail_msg("%s: got %d \"%s\"", header, err.code, err.msg);
    assert_null(f);
    assert_says(&err, sentence);
    unlink(path);
}

#define F32(name, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void broken_frames(void **state) {
    (void)state;
    refuse_bytes("", 0, KH_EFORMAT, "0 bytes are too few for a safetensors file");
    refuse_bytes("\0\0\0\0\0\0\0", 7, KH_EFORMAT, "7 bytes are too few");
    refuse_bytes("\0\0\0\0\0\0\0\0", 8, KH_EFORMAT, "the header does not start with \"{\"");
    refuse_bytes(
        "\x03\0\0\0\0\0\0\0{}", 10, KH_EFORMAT, "cut short: a header of 3 bytes in a file of 10");
    refuse_bytes("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, KH_ELIMIT,
        "a header of 18446744073709551615 bytes, at most 16777216 are read");
    refuse_bytes("\x01\0\0\x01\0\0\0\0{}", 10, KH_ELIMIT, "a header of 16777217 bytes");
    refuse_bytes("\x03\0\0\0\0\0\0\0{}\0", 11, KH_EFORMAT,
        "the header ends in byte 0x00; only spaces may follow its closing \"}\"");
    refuse_bytes("\x03\0\0\0\0\0\0\0{}\n", 11, KH_EFORMAT, "the header ends in byte 0x0a");
    refuse_bytes("\x03\0\0\0\0\0\0\0 {}", 11, KH_EFORMAT, "does not start with \"{\"");
    refuse_bytes(
        "\x02\0\0\0\0\0\0\0{}x", 11, KH_EFORMAT, "1 bytes after the last tensor belong to nothing");
    refuse_bytes("\x04\0\0\0\0\0\0\0{,,}", 12, KH_EFORMAT, "not valid JSON");
    refuse_bytes("\x0b\0\0\0\0\0\0\0{\"\xff\":\"aaa\"}", 19, KH_EFORMAT, "not valid JSON");
}

static void broken_entries(void **state) {
    (void)state;
    refuse("{\"a\":1}", 0, KH_EFORMAT,
        "tensor \"a\": must be an object with \"dtype\", \"shape\" and \"data_offsets\"");
    refuse("{\"a\":{}}", 0, KH_EFORMAT, "tensor \"a\": \"dtype\" is missing");
    refuse("{\"a\":{\"dtype\":\"F31\"}}", 0, KH_EFORMAT, "tensor \"a\": unknown dtype \"F31\"");
    refuse("{\"a\":{\"dtype\":7}}", 0, KH_EFORMAT, "\"dtype\" must be a string");
    refuse("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,0]}}", 0, KH_EFORMAT,
        "tensor \"a\": \"shape\" must be a list of whole numbers");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, KH_EFORMAT,
        "\"shape\" must be a list of whole numbers");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, KH_EFORMAT,
        "\"shape\" must be a list of whole numbers");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1e999],\"data_offsets\":[0,4]}}", 4, KH_EFORMAT,
        "not valid JSON");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,4]}}", 4,
        KH_EFORMAT, "not valid JSON");
    refuse("{" F32("a", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, KH_ELIMIT,
        "9 dimensions, at most 8 are read");
    refuse("{" F32("a", "[4294967296,4294967296,4]", 0, 4) "}", 4, KH_EFORMAT,
        "the product of its dimensions is too large");
    refuse("{" F32("a", "[2]", 0, 4) "}", 4, KH_EFORMAT,
        "tensor \"a\": shape and type need 8 bytes, \"data_offsets\" give it 4");
    refuse("{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, KH_EFORMAT,
        "shape and type need 2 bytes");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, KH_EFORMAT,
        "\"data_offsets\" must be two whole numbers, begin and end");
    refuse(
        "{" F32("a", "[1]", 4, 0) "}", 4, KH_EFORMAT, "\"data_offsets\" must be two whole numbers");
    refuse("{" F32("a", "[1]", -4, 0) "}", 4, KH_EFORMAT,
        "\"data_offsets\" must be two whole numbers");
    refuse("{" F32("a", "[1]", 0, 4.0) "}", 4, KH_EFORMAT,
        "\"data_offsets\" must be two whole numbers");
    refuse("{\"__metadata__\":[]}", 0, KH_EFORMAT, "\"__metadata__\" must be an object of strings");
    refuse("{\"__metadata__\":{\"a\":1}}", 0, KH_EFORMAT,
        "\"__metadata__\" must be an object of strings");
    refuse("{\"a\\u001b\":{}}", 0, KH_EFORMAT, "the name of a tensor holds a control character");
    char header[700] = "{\"";
    memset(header + 2, 'a', 513);
    strcpy(header + 515, "\":{}}");
    refuse(header, 0, KH_ELIMIT, "the name of a tensor has 513 bytes, at most 512 are allowed");
}

static void broken_layouts(void **state) {
    (void)state;
    refuse("{" F32("a", "[1]", 0, 4) "," F32("a", "[1]", 4, 8) "}", 8, KH_EFORMAT,
        "duplicate object key");
    refuse("{" F32("a", "[2]", 0, 8) "," F32("b", "[1]", 4, 8) "}", 8, KH_EFORMAT,
        "tensor \"b\" overlaps with \"a\"");
    refuse("{" F32("a", "[1]", 0, 4) "," F32("b", "[1]", 0, 4) "}", 4, KH_EFORMAT, "overlaps with");
    refuse("{" F32("a", "[1]", 0, 4) "," F32("b", "[1]", 8, 12) "}", 12, KH_EFORMAT,
        "a hole of 4 bytes before tensor \"b\"");
    refuse("{" F32("a", "[1]", 4, 8) "}", 8, KH_EFORMAT, "a hole of 4 bytes before tensor \"a\"");
    refuse("{" F32("a", "[2]", 0, 8) "}", 7, KH_EFORMAT,
        "cut short: tensor \"a\" ends at byte 8 after the header, the file has only 7 there");
    refuse("{" F32("a", "[1]", 0, 4) "}", 6, KH_EFORMAT,
        "2 bytes after the last tensor belong to nothing");
}

static void many_tensors_are_refused(void **state) {
    (void)state;
    size_t cap = (size_t)8 << 20, used = 1;
    char *header = malloc(cap);
    header[0] = '{';
    for (int i = 0; i <= KH_ARRAY_COUNT; i++)
        used += (size_t)snprintf(header + used, cap - used,
            "%s\"%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? "," : "", i);
    header[used++] = '}';
    header[used] = '\0';
    refuse(header, 0, KH_ELIMIT, "65537 tensors, at most 65536 are read");
    free(header);
}

static void files_that_are_none(void **state) {
    (void)state;
    kh_safetensors *f;
    kh_err err;
    assert_int_equal(kh_safetensors_open(&f, "/nonexistent/x", &err), KH_EMISSING);
    assert_says(&err, "/nonexistent/x: cannot open");
    assert_int_equal(kh_safetensors_open(&f, "tests", &err), KH_EARG);
    assert_says(&err, "tests: is not a regular file");
}

static void unusual_but_right(void **state) {
    (void)state;
    const char *header =
        "{\"b\":{\"dtype\":\"I64\",\"shape\":[2,1],\"data_offsets\":[4,20]},\"__metadata__\":{"
        "\"k\":\"v\"}," F32("s", "[]", 0, 4) "," F32("none", "[0,7]", 4, 4) "}    ";
    const char *path = make_file(header, strlen(header), -1, 20);
    kh_safetensors *f;
    kh_err err;
    assert_int_equal(kh_safetensors_open(&f, path, &err), 0);
    int n;
    const kh_array *a = kh_safetensors_arrays(f, &n);
    assert_int_equal(n, 3);
    assert_string_equal(a[0].name, "s");
    assert_string_equal(a[1].name, "none");
    assert_string_equal(a[2].name, "b");
    assert_int_equal(a[0].rank, 0);
    assert_int_equal(a[2].dtype, KH_DTYPE_ANY);
    unsigned char bytes[16];
    assert_int_equal(kh_safetensors_read(f, kh_safetensors_find(f, "b"), 3, 13, bytes, &err), 0);
    assert_int_equal(bytes[0], 7);
    assert_int_equal(bytes[12], 19);
    assert_int_equal(kh_safetensors_read(f, &a[2], 4, 13, bytes, &err), KH_EARG);
    assert_says(&err, "bytes 4 to 17 of tensor \"b\", which has 16");
    assert_null(kh_safetensors_find(f, "c"));
    /* Cut while open: a sentence, no signal. */
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(kh_safetensors_read(f, &a[2], 0, 16, bytes, &err), KH_EIO);
    assert_says(&err, "became shorter while it was read");
    assert_int_equal(kh_safetensors_unchanged(f, &err), KH_EIO);
    assert_says(&err, "changed while it was read");
    kh_safetensors_close(f);
    unlink(path);
}

static void written_and_read(void **state) {
    (void)state;
    char path[64];
    snprintf(path, sizeof path, "/tmp/keyhole-test-%ld-w.safetensors", (long)getpid());
    kh_array plan[] = { { .name = "a\"b", .dtype = KH_DTYPE_F32, .rank = 2, .shape = { 2, 3 } },
        { .name = "z", .dtype = KH_DTYPE_BF16, .rank = 1, .shape = { 5 } } };
    char bytes[34];
    for (int i = 0; i < 34; i++)
        bytes[i] = (char)i;
    kh_safetensors_writer *w;
    kh_err err;
    assert_int_equal(kh_safetensors_create(&w, path, plan, 2, &err), 0);
    assert_int_equal(access(path, F_OK), -1); /* nothing has the name yet */
    assert_int_equal(kh_safetensors_put(w, bytes, 7, &err), 0);
    assert_int_equal(kh_safetensors_put(w, bytes + 7, 27, &err), 0);
    assert_int_equal(kh_safetensors_put(w, bytes, 1, &err), KH_EARG);
    assert_says(&err, "1 bytes more than its header announces");
    assert_int_equal(kh_safetensors_finish(w, true, &err), 0);
    kh_safetensors *f;
    assert_int_equal(kh_safetensors_open(&f, path, &err), 0);
    char back[10];
    const kh_array *a = kh_safetensors_find(f, "z");
    assert_int_equal(a->dtype, KH_DTYPE_BF16);
    assert_int_equal(kh_safetensors_read(f, a, 0, 10, back, &err), 0);
    assert_memory_equal(back, bytes + 24, 10);
    a = kh_safetensors_find(f, "a\"b");
    assert_int_equal(a->rank, 2);
    assert_int_equal(a->shape[1], 3);
    kh_safetensors_close(f);
    /* A file that is not kept, or not finished, leaves the old one and nothing else. */
    assert_int_equal(kh_safetensors_create(&w, path, plan, 1, &err), 0);
    assert_int_equal(kh_safetensors_finish(w, true, &err), KH_EARG);
    assert_says(&err, "24 bytes fewer than its header announces");
    assert_int_equal(kh_safetensors_open(&f, path, &err), 0);
    assert_non_null(kh_safetensors_find(f, "z"));
    kh_safetensors_close(f);
    unlink(path);
    assert_int_equal(kh_safetensors_create(&w, "/nonexistent/x", plan, 1, &err), KH_EMISSING);
    assert_says(&err, "/nonexistent/x: cannot create");
    assert_null(w);
    plan[0].shape[0] = plan[0].shape[1] = SIZE_MAX / 2;
    assert_int_equal(kh_safetensors_create(&w, path, plan, 1, &err), KH_ELIMIT);
    assert_says(&err, "too large to write");
}

static void memory_may_run_out(void **state) {
    (void)state;
    const char *header = "{" F32("a", "[1]", 0, 4) "," F32("b", "[1]", 4, 8) "}",
               *path = make_file(header, strlen(header), -1, 8);
    for (long n = 1;; n++) {
        kh_safetensors *f;
        kh_err err;
        kh_alloc_fail_at(n, false);
        int rc = kh_safetensors_open(&f, path, &err);
        long asked = kh_alloc_count();
        kh_alloc_fail_at(0, false);
        kh_safetensors_close(f);
        assert_true(asked < n ? rc == 0 : rc == KH_ENOMEM);
        if (asked < n)
            break;
    }
    unlink(path);
}

/* ------------------------------------------------------------------------------------- numbers */

static void every_f16_survives_a_round_trip(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float x = kh_f32_of_f16((uint16_t)h);
        if (isnan(x))
            assert_true(isnan(kh_f32_of_f16(kh_f16_of_f32(x))));
        else
            assert_int_equal(kh_f16_of_f32(x), h);
        float y = kh_f32_of_bf16((uint16_t)h);
        if (isnan(y))
            assert_true(isnan(kh_f32_of_bf16(kh_bf16_of_f32(y))));
        else
            assert_int_equal(kh_bf16_of_f32(y), h);
    }
}

/* Nearest, ties to even: no half is nearer than the one chosen. */
static void rounding_is_to_nearest(void **state) {
    (void)state;
    uint32_t seed = 1;
    for (int i = 0; i < 200000; i++) {
        seed = seed * 1664525 + 1013904223;
        float x;
        uint32_t bits = (seed & 0x80000000) |
            (0x30000000 + (seed & 0x1FFFFFFF) % 0x18000000); /* 2^-31 .. 2^17 */
        memcpy(&x, &bits, 4);
        uint16_t h = kh_f16_of_f32(x);
        if ((h & 0x7FFF) >= 0x7BFF)
            continue;
        double error = fabs((double)kh_f32_of_f16(h) - (double)x);
        double up = fabs((double)kh_f32_of_f16((uint16_t)(h + 1)) - (double)x),
               down = (h & 0x7FFF) ? fabs((double)kh_f32_of_f16((uint16_t)(h - 1)) - (double)x)
                                   : INFINITY;
        assert_true(error < up || (error == up && h % 2 == 0));
        assert_true(error < down || (error == down && h % 2 == 0));
    }
    assert_int_equal(kh_f16_of_f32(65519.0f), 0x7BFF);
    assert_int_equal(kh_f16_of_f32(65520.0f), 0x7C00);
    assert_int_equal(kh_f16_of_f32(-INFINITY), 0xFC00);
    assert_int_equal(kh_f16_of_f32(0x1p-25f), 0);
    assert_int_equal(kh_f16_of_f32(0x1.000002p-25f), 1);
    assert_int_equal(kh_bf16_of_f32(0x1.01p0f), 0x3F80);
    assert_int_equal(kh_bf16_of_f32(0x1.03p0f), 0x3F82);
    float snan;
    memcpy(&snan, &(uint32_t){ 0x7F800001 }, 4);
    assert_int_equal(kh_bf16_of_f32(snan) & 0x7FFF, 0x7FC0);
}

static void nonfinite_numbers_are_found(void **state) {
    (void)state;
    float f[5] = { 1, 2, 3, INFINITY, 0 };
    uint16_t h[4] = { 0x7BFF, 0xFBFF, 0x7C01, 0 }, b[4] = { 0x7F7F, 0x7C00, 0xFF80, 0 };
    assert_int_equal(kh_numbers_nonfinite(f, KH_DTYPE_F32, 5), 3);
    assert_int_equal(kh_numbers_nonfinite(f, KH_DTYPE_F32, 3), 3);
    assert_int_equal(kh_numbers_nonfinite(h, KH_DTYPE_F16, 4), 2);
    assert_int_equal(kh_numbers_nonfinite(b, KH_DTYPE_BF16, 4), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_frames),
        cmocka_unit_test(broken_entries),
        cmocka_unit_test(broken_layouts),
        cmocka_unit_test(many_tensors_are_refused),
        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(unusual_but_right),
        cmocka_unit_test(written_and_read),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(every_f16_survives_a_round_trip),
        cmocka_unit_test(rounding_is_to_nearest),
        cmocka_unit_test(nonfinite_numbers_are_found),
    };
    return cmocka_run_group_tests_name("model_safetensors", tests, NULL, NULL);
}
