/* test_plm_wire.c - what travels: base64, zip archives, files of torch.save, questions and answers;
 * round trips, and bytes that are none of these. */
#include "test.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/rng.h"
#include "base/zip.h"
#include "plm/torch_file.h"
#include "plm/wire.h"

#include <math.h>

/* -------------------------------------------------------------------------------------- base64 */

static void base64_of_known_texts(void **state) {
    (void)state;
    static const char *const PAIRS[][2] = { { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" },
        { "foo", "Zm9v" }, { "foob", "Zm9vYg==" }, { "fooba", "Zm9vYmE=" },
        { "foobar", "Zm9vYmFy" }, { "\xff\xfe\xfd", "//79" }, { "\xfb\xef\xbe", "++++" } };
    for (size_t i = 0; i < sizeof PAIRS / sizeof PAIRS[0]; i++) {
        kh_buf b = kh_buf_init(100);
        char back[16];
        size_t n = strlen(PAIRS[i][0]);
        kh_buf_text(&b, "");
        kh_base64_put(&b, PAIRS[i][0], n);
        assert_string_equal(b.data, PAIRS[i][1]);
        assert_int_equal(kh_base64_size(b.data, b.len), n);
        assert_true(kh_base64_get(b.data, b.len, back));
        assert_memory_equal(back, PAIRS[i][0], n);
        kh_buf_free(&b);
    }
}

static void base64_is_strict(void **state) {
    (void)state;
    static const char *const WRONG[] = { "A", "AA", "AAA", "Zg=", "Zg",
        "Z===", "====", "Zh==", "Zm9=", "Zm 9", "Zm9\n",
        "Zg==Zg==", "=Zg=", "Z-8=", "Zm9v\377AAA" };
    char out[16];
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        size_t n = strlen(WRONG[i]);
        if (kh_base64_size(WRONG[i], n) != SIZE_MAX && kh_base64_get(WRONG[i], n, out))
            fail_msg("\"%s\" was taken", WRONG[i]);
    }
}

/* ----------------------------------------------------------------------------------------- zip */

static kh_buf archive(void) {
    kh_buf b = kh_buf_init(1 << 20);
    kh_zip z = kh_zip_start(&b);
    kh_zip_add(&z, "a/one", "hello", 5);
    kh_zip_add(&z, "a/two", "", 0);
    kh_zip_finish(&z);
    assert_false(kh_buf_failed(&b));
    return b;
}

static void archives_come_back(void **state) {
    (void)state;
    kh_buf b = archive();
    kh_zip_list list;
    assert_int_equal(kh_zip_read(&list, b.data, b.len, "z", NULL), 0);
    assert_int_equal(list.n, 2);
    assert_memory_equal(list.entry[0].name, "a/one", 5);
    assert_int_equal(list.entry[0].n, 5);
    assert_memory_equal(list.entry[0].bytes, "hello", 5);
    assert_int_equal(list.entry[1].n, 0);
    kh_buf_free(&b);
}

/* Any cut and any single changed byte: an error or the same content, never more. */
static void damaged_archives_are_refused(void **state) {
    (void)state;
    kh_buf b = archive();
    kh_err err;
    kh_zip_list list;
    for (size_t n = 0; n < b.len; n++)
        assert_int_equal(kh_zip_read(&list, b.data, n, "z", &err), KH_EFORMAT);
    int refused = 0;
    for (size_t i = 0; i < b.len; i++)
        for (int bit = 0; bit < 8; bit++) {
            b.data[i] = (char)(b.data[i] ^ (1 << bit));
            if (kh_zip_read(&list, b.data, b.len, "z", &err) != 0)
                refused++;
            else if (list.n > 0 && list.entry[0].n == 5)
                assert_memory_equal(list.entry[0].bytes, "hello", 5);
            b.data[i] = (char)(b.data[i] ^ (1 << bit));
        }
    assert_true(refused > (int)b.len * 4);
    b.data[8] = 8; /* deflated, says the local header */
    assert_int_equal(kh_zip_read(&list, b.data, b.len, "z", &err), KH_EFORMAT);
    assert_says(&err, "two headers differ");
    kh_buf_char(&b, 'x');
    assert_int_equal(kh_zip_read(&list, b.data, b.len, "z", &err), KH_EFORMAT);
    assert_says(&err, "something behind its end");
    kh_buf_free(&b);
}

/* --------------------------------------------------------------------------------------- torch */

static void tensors_come_back_with_their_bits(void **state) {
    (void)state;
    float x[6] = { 1, -2.5f, 1e-30f, 3e38f, 0, -0.0f }, *y;
    int rows, cols;
    kh_buf b = kh_buf_init(1 << 16);
    kh_torch_put(&b, x, 2, 3);
    assert_int_equal(kh_torch_get(b.data, b.len, 2, 3, &y, &rows, &cols, NULL), 0);
    assert_int_equal(rows, 2);
    assert_int_equal(cols, 3);
    assert_memory_equal(x, y, sizeof x);
    kh_free(y);
    kh_err err;
    assert_int_equal(kh_torch_get(b.data, b.len, 1, 3, &y, &rows, &cols, &err), KH_ELIMIT);
    assert_says(&err, "at most 1 rows of 3");
    kh_buf_free(&b);
}

/* A file with this pickle and this storage. */
static kh_buf torch_of(const char *pickle, size_t n, const void *bytes, size_t n_bytes) {
    kh_buf b = kh_buf_init(1 << 16);
    kh_zip z = kh_zip_start(&b);
    kh_zip_add(&z, "x/data.pkl", pickle, n);
    kh_zip_add(&z, "x/data/0", bytes, n_bytes);
    kh_zip_add(&z, "x/version", "3\n", 2);
    kh_zip_finish(&z);
    return b;
}

#define PICKLE(storage, count, shape, strides) \
    "\x80\x02" \
    "ctorch._utils\n_rebuild_tensor_v2\nq\x00((X\x07\x00\x00\x00storageq\x01" \
    "ctorch\n" storage "\nq\x02X\x01\x00\x00\x00" \
    "0q\x03X\x03\x00\x00\x00" \
    "cpuq\x04K" count "tq\x05QK\x00" shape "q\x06" strides "q\x07\x89" \
    "ccollections\nOrderedDict\nq\x08)Rq\x09tq\x0aRq\x0b."

/* As PyTorch itself writes it: with a memo of everything. */
static void tensors_as_pytorch_writes_them(void **state) {
    (void)state;
    static const char F32[] = PICKLE("FloatStorage", "\x02", "K\x01K\x02\x86", "K\x02K\x01\x86"),
                      F16[] = PICKLE("HalfStorage", "\x02", "K\x01K\x02\x86", "K\x02K\x01\x86"),
                      BF16[] =
                          PICKLE("BFloat16Storage", "\x02", "K\x01K\x02\x86", "K\x02K\x01\x86"),
                      CUBE[] = PICKLE(
                          "FloatStorage", "\x02", "K\x01K\x01K\x02\x87", "K\x02K\x02K\x01\x87");
    static const float ONE[2] = { 1, -2 };
    static const unsigned char HALVES[4] = { 0, 0x3C, 0, 0xC0 },
                               BRAINS[4] = { 0x80, 0x3F, 0, 0xC0 };
    const struct {
        const char *pickle;
        size_t n;
        const void *bytes;
        size_t n_bytes;
    } CASES[] = { { F32, sizeof F32 - 1, ONE, 8 }, { F16, sizeof F16 - 1, HALVES, 4 },
        { BF16, sizeof BF16 - 1, BRAINS, 4 }, { CUBE, sizeof CUBE - 1, ONE, 8 } };
    for (int i = 0; i < 4; i++) {
        kh_buf b = torch_of(CASES[i].pickle, CASES[i].n, CASES[i].bytes, CASES[i].n_bytes);
        float *x;
        int rows, cols;
        kh_err err;
        if (kh_torch_get(b.data, b.len, 8, 8, &x, &rows, &cols, &err) != 0)
            fail_msg("%s", err.msg);
        assert_true(rows == 1 && cols == 2 && x[0] == 1 && x[1] == -2);
        kh_free(x);
        kh_buf_free(&b);
    }
}

/* Numbers of two bytes, and a memo with places of four. */
static const char WIDE[] =
    PICKLE("FloatStorage", "\x02", "M\x01\x00K\x01\x86r\x0c\x00\x00\x00", "j\x0c\x00\x00\x00");

static void tensors_with_wide_instructions(void **state) {
    (void)state;
    static const float ONE[2] = { 1, -2 };
    kh_buf b = torch_of(WIDE, sizeof WIDE - 1, ONE, sizeof ONE);
    float *x;
    int rows, cols;
    kh_err err;
    if (kh_torch_get(b.data, b.len, 8, 8, &x, &rows, &cols, &err) != 0)
        fail_msg("%s", err.msg);
    assert_true(rows == 1 && cols == 1 && x[0] == 1);
    kh_free(x);
    kh_buf_free(&b);
}

static void read_torch(const char *pickle, size_t n) {
    static const float ONE[2] = { 1, -2 };
    kh_buf b = torch_of(pickle, n, ONE, sizeof ONE);
    float *x;
    int rows, cols;
    kh_err err = { 0 };
    if (kh_torch_get(b.data, b.len, 8, 8, &x, &rows, &cols, &err) != 0)
        assert_true(err.code < 0 && err.msg[0] && !x);
    else
        assert_true(rows >= 1 && cols >= 1 && rows * cols <= 2 && x[0] * x[0] <= 4);
    kh_free(x);
    kh_buf_free(&b);
}

/* The archive's checksums would hide what the reader of pickles does with damage: here they are
 * right. */
static void every_byte_of_a_pickle_may_be_any_other(void **state) {
    (void)state;
    static const char USUAL[] = PICKLE("FloatStorage", "\x02", "K\x01K\x02\x86", "K\x02K\x01\x86");
    static const struct {
        const char *pickle;
        size_t n;
    } ALL[] = { { USUAL, sizeof USUAL - 1 }, { WIDE, sizeof WIDE - 1 } };
    for (int k = 0; k < 2; k++)
        for (size_t at = 0; at < ALL[k].n; at++) {
            char copy[256];
            assert_true(ALL[k].n < sizeof copy);
            memcpy(copy, ALL[k].pickle, ALL[k].n);
            for (int change = 1; change < 256; change++) {
                copy[at] = (char)(ALL[k].pickle[at] ^ change);
                read_torch(copy, ALL[k].n);
            }
            read_torch(ALL[k].pickle, at);
            memcpy(copy, ALL[k].pickle, at); /* without it */
            memcpy(copy + at, ALL[k].pickle + at + 1, ALL[k].n - at - 1);
            read_torch(copy, ALL[k].n - 1);
        }
}

static void pickles_that_want_more_are_refused(void **state) {
    (void)state;
    static const char
        RUNS[] = "\x80\x02"
                 "cposix\nsystem\nX\x02\x00\x00\x00ls\x85R.",
        BUILDS[] = "\x80\x02)b.",
        CALLS[] = "\x80\x02"
                  "ctorch\nFloatStorage\n)R.",
        DEEP[] = "\x80\x02((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((.",
        CUT[] = "\x80\x02X\xff", LONG[] = "\x80\x02X\xff\xff\xff\x7f", RECALLS[] = "\x80\x02h\x05.",
        NOTHING[] = "\x80\x02.", TWO[] = "\x80\x02K\x01K\x02.", OTHER[] = "\x80\x04K\x01.",
        MARKED[] = "\x80\x02t.", HELD[] = "\x80\x02(\x85.", FEW[] = "\x80\x02K\x01\x87.",
        EMPTY[] = "\x80\x02Q.", ALONE[] = "\x80\x02K\x01R.", STORED[] = "\x80\x02)Q.",
        LATE[] = "\x80\x02K\x01q\x40.", EARLY[] = "\x80\x02q\x01.", ENDLESS[] = "\x80\x02K\x01",
        TAIL[] = PICKLE("FloatStorage", "\x02", "K\x01K\x02\x86", "K\x02K\x01\x86") ".",
        SHAPE[] = PICKLE("FloatStorage", "\x02", "K\x01\x88\x86", "K\x02K\x01\x86"),
        CUBE[] = PICKLE("FloatStorage", "\x02", "K\x02K\x01K\x01\x87", "K\x01K\x01K\x01\x87"),
        NONE[] = PICKLE("FloatStorage", "\x02", "K\x00K\x02\x86", "K\x02K\x01\x86"),
        STRIDED[] = PICKLE("FloatStorage", "\x02", "K\x02K\x01\x86", "K\x01K\x02\x86"),
        MORE[] = PICKLE("FloatStorage", "\x09", "K\x01K\x09\x86", "K\x09K\x01\x86"),
        FLAT[] = PICKLE("FloatStorage", "\x02", "K\x02\x85", "K\x01\x85"),
        SPARSE[] = PICKLE("SparseStorage", "\x02", "K\x01K\x02\x86", "K\x02K\x01\x86");
    static const struct {
        const char *pickle;
        size_t n;
        const char *says;
    } CASES[] = { { RUNS, sizeof RUNS - 1, "names something" },
        { BUILDS, sizeof BUILDS - 1, "an instruction" },
        { CALLS, sizeof CALLS - 1, "not a dense tensor" },
        { DEEP, sizeof DEEP - 1, "nested too deeply" }, { CUT, sizeof CUT - 1, "cut short" },
        { LONG, sizeof LONG - 1, "too long" },
        { RECALLS, sizeof RECALLS - 1, "recalls what it never saw" },
        { NOTHING, sizeof NOTHING - 1, "something else than one tensor" },
        { TWO, sizeof TWO - 1, "something else than one tensor" },
        { OTHER, sizeof OTHER - 1, "not of protocol 2" },
        { MARKED, sizeof MARKED - 1, "has no start" },
        { HELD, sizeof HELD - 1, "a tuple holds a mark" },
        { FEW, sizeof FEW - 1, "a tuple has too many or too few values" },
        { EMPTY, sizeof EMPTY - 1, "it takes what is not there" },
        { ALONE, sizeof ALONE - 1, "it takes what is not there" },
        { STORED, sizeof STORED - 1, "its storage is not that of a plain tensor" },
        { LATE, sizeof LATE - 1, "it remembers too much" },
        { EARLY, sizeof EARLY - 1, "it remembers too much" },
        { ENDLESS, sizeof ENDLESS - 1, "it is cut short" },
        { TAIL, sizeof TAIL - 1, "something else than one tensor" },
        { SHAPE, sizeof SHAPE - 1, "its shape is not made of numbers" },
        { CUBE, sizeof CUBE - 1, "a tensor of three dimensions, the first of them 2" },
        { NONE, sizeof NONE - 1, "a tensor of 0 x 2" },
        { STRIDED, sizeof STRIDED - 1, "not contiguous" },
        { MORE, sizeof MORE - 1, "not as many as it says" },
        { FLAT, sizeof FLAT - 1, "two dimensions" },
        { SPARSE, sizeof SPARSE - 1, "names something" } };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        float x[2] = { 1, 2 }, *y;
        int rows, cols;
        kh_err err = { 0 };
        kh_buf b = torch_of(CASES[i].pickle, CASES[i].n, x, sizeof x);
        assert_true(kh_torch_get(b.data, b.len, 16, 16, &y, &rows, &cols, &err) < 0);
        assert_null(y);
        assert_says(&err, CASES[i].says);
        kh_buf_free(&b);
    }
    kh_buf b = kh_buf_init(1000);
    kh_zip z = kh_zip_start(&b);
    kh_zip_add(&z, "loose", "x", 1);
    kh_zip_finish(&z);
    float *y;
    int rows, cols;
    kh_err err;
    assert_int_equal(kh_torch_get(b.data, b.len, 2, 2, &y, &rows, &cols, &err), KH_EFORMAT);
    assert_says(&err, "not a file of torch.save");
    kh_buf_free(&b);
}

/* PyTorch says in which order bytes stand, and numbers that a big-endian machine wrote are others.
 */
static void numbers_of_another_byte_order_are_refused(void **state) {
    (void)state;
    static const char F32[] = PICKLE("FloatStorage", "\x02", "K\x01K\x02\x86", "K\x02K\x01\x86");
    static const char *const ORDER[] = { "little", "bigbig", "big" };
    static const float ONE[2] = { 1, -2 };
    for (int i = 0; i < 3; i++) {
        float *x;
        int rows, cols;
        kh_err err;
        kh_buf b = kh_buf_init(1 << 16);
        kh_zip z = kh_zip_start(&b);
        kh_zip_add(&z, "x/data.pkl", F32, sizeof F32 - 1);
        kh_zip_add(&z, "x/byteorder", ORDER[i], strlen(ORDER[i]));
        kh_zip_add(&z, "x/data/0", ONE, sizeof ONE);
        kh_zip_add(&z, "x/version", "3\n", 2);
        kh_zip_finish(&z);
        int rc = kh_torch_get(b.data, b.len, 8, 8, &x, &rows, &cols, &err);
        assert_int_equal(rc, i ? KH_EFORMAT : 0);
        if (i)
            assert_says(&err, "not a little-endian one");
        kh_free(x);
        kh_buf_free(&b);
    }
}

/* ----------------------------------------------------------------------------------- questions */

static const kh_wire_limits LIMITS = {
    .hidden = 4, .max_len = 16, .vocab = 100, .prompts = 8, .rows = 8, .tokens = 1000
};

static const int32_t ID[] = { 0, 10, 11, 5, 2, 0, 10, 11, 7, 5, 2 };
static const size_t START[] = { 0, 5, 11 };
static const int MASK[] = { 3, 4 }, SLOT[] = { 1, 1 }, ONE_MASK[] = { 1 }, NO_LABEL[] = { -1, -1 },
                 ROW[] = { 0, 1 };
static const int32_t YES[] = { 40 }, NO[] = { 41 }, NAY[] = { 42 };

static void questions_come_back(void **state) {
    (void)state;
    float prompt[2 * 2 * 4];
    for (int i = 0; i < 16; i++)
        prompt[i] = (float)i / 7;
    kh_word word[] = { { .label = 0, .id = NO, .n_id = 1, .n_token = 1 },
        { .label = 0, .id = NAY, .n_id = 1, .n_token = 1 },
        { .label = 1, .id = YES, .n_id = 1, .n_token = 1 } };
    kh_words words = {
        .word = word, .n_word = 3, .n_label = 2, .n_mask = ONE_MASK, .n_variant = 1
    };
    kh_batch batch = { .n_row = 2,
        .n_variant = 1,
        .n_seq = 2,
        .n_slot = 2,
        .max_len = 6,
        .id = ID,
        .start = START,
        .n_mask = ONE_MASK,
        .mask = MASK,
        .slot = SLOT,
        .label = NO_LABEL,
        .row = ROW };
    kh_buf b = kh_buf_init(1 << 16);
    kh_wire_question q;
    kh_err err;
    kh_wire_question_put(&b, &(kh_question){ &batch, &words, KH_INJECT_EMBED_INPLACE, prompt, 2 },
        4, KH_ANSWER_LABELS);
    if (kh_wire_question_parse(&q, b.data, b.len, &LIMITS, &err) != 0)
        fail_msg("%s", err.msg);
    assert_true(q.want == KH_ANSWER_LABELS && q.want_given && q.base64 &&
        q.inject == KH_INJECT_EMBED_INPLACE && q.n_prompt == 2 && q.n_slot == 2);
    assert_memory_equal(q.prompt, prompt, sizeof prompt);
    assert_true(q.batch.n_row == 2 && q.batch.max_len == 6 && q.words.n_label == 2 &&
        q.words.n_word == 3 && q.words.word[1].label == 0);
    assert_memory_equal(q.batch.id, ID, sizeof ID);
    assert_memory_equal(q.batch.mask, MASK, sizeof MASK);
    assert_memory_equal(q.batch.slot, SLOT, sizeof SLOT);
    kh_wire_question_free(&q);
    for (long n = 1;; n++) { /* memory may run out anywhere */
        kh_alloc_fail_at(n, false);
        int rc = kh_wire_question_parse(&q, b.data, b.len, &LIMITS, &err);
        bool done = kh_alloc_count() < n;
        kh_alloc_fail_at(0, false);
        assert_int_equal(rc, done ? 0 : KH_ENOMEM);
        kh_wire_question_free(&q);
        if (done)
            break;
    }
    kh_buf_free(&b);
}

static void limits_are_kept(void **state) {
    (void)state;
    static const struct {
        const char *body, *says;
        int code;
    } CASES[] = {
        { "{\"ids\":[[1],[1],[1],[1],[1],[1],[1],[1],[1]],\"labels\":[[[1]],[[2]]]}", "1 to 8 rows",
            KH_EFORMAT },
        { "{\"ids\":[[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]],\"mask\":[0],\"labels\":[[[1]],[[2]]]}",
            "at most 16 whole numbers", KH_EFORMAT },
        { "{\"prompts\":{\"shape\":[9,1,4],\"dtype\":\"bf16\",\"data\":"
          "\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
          "AAAAAAAAAA\"},"
          "\"ids\":[[1]]}",
            "9 prompts; at most 8", KH_ELIMIT },
        { "{\"prompts\":{\"shape\":[1,2,4],\"dtype\":\"bf16\",\"data\":\"AAAAAAAAAAAAAAAAAAAAAA=="
          "\"},\"ids\":[[1,1]],\"mask\":[0],"
          "\"slot\":[1],\"labels\":[[[1]],[[2]]]}",
            "has 2 slots at 1", KH_EFORMAT },
        { "{\"prompts\":{\"shape\":[1,1,4],\"dtype\":\"bf16\",\"data\":\"AAAAAAAAAAA=\"},\"ids\":[["
          "1,1],[1,2]],\"mask\":[0,0],"
          "\"slot\":[1,1],\"labels\":[[[1]],[[2]]]}",
            "hold other ids than those of sequence 0", KH_EFORMAT },
        { "{\"prompts\":{\"shape\":[1,1,4],\"dtype\":\"bf16\",\"data\":\"AAAAAAAAAAA=\"},\"task\":"
          "\"sst2\",\"texts\":[\"a\"],"
          "\"slot_ids\":[1,2]}",
            "2 \"slot_ids\" for prompts of 1 rows", KH_EFORMAT },
        { "{\"prompts\":{\"shape\":[1,1,4],\"dtype\":\"bf16\",\"data\":\"AAAAAAAAAAA=\"},"
          "\"inject\":\"none\",\"ids\":[[1]]}",
            "\"inject\" must be post-ln-add, embed-prefix or embed-inplace", KH_EFORMAT },
        { "{\"prompts\":{\"shape\":[1,1,4],\"dtype\":\"bf16\",\"data\":\"AAAAAAAAAAA=\"},"
          "\"inject\":\"sideways\",\"ids\":[[1]]}",
            "\"inject\" must be post-ln-add, embed-prefix or embed-inplace", KH_EFORMAT },
        { "{\"prompts\":{\"shape\":[1,1,4],\"dtype\":\"bf16\",\"data\":\"AAAAAAAAgH8=\"},"
          "\"ids\":[[1]]}",
            "prompt 0 holds NaN or infinity", KH_EFORMAT },
        { "{\"prompts\":{\"shape\":[1,2,2],\"dtype\":\"bf16\",\"data\":\"AAAAAAAAAAA=\"},"
          "\"ids\":[[1]]}",
            "prompts of 2 x 2 numbers; the model takes at most 16 rows of 4", KH_EFORMAT },
        { "{\"ids\":[[1]],\"mask\":[0],\"labels\":[[[1]],[]]}", "label 1 has no words",
            KH_EFORMAT },
        { "{\"ids\":[[1]],\"mask\":[0],\"labels\":[[[1]],3]}", "label 1 has no words", KH_EFORMAT },
        { "{\"ids\":[[1]],\"mask\":[0],\"labels\":[[[1]],[[]]]}", "a word of label 1 has no tokens",
            KH_EFORMAT },
        { "{\"ids\":[[1]],\"mask\":[0],\"labels\":[[[1]]]}", "\"labels\" must be 2 to",
            KH_EFORMAT },
        { "{\"ids\":[[1]],\"mask\":[0],\"masks\":[2,1],\"labels\":[[[1]],[[2]]]}",
            "\"masks\" must name the lengths of the label words", KH_EFORMAT },
        { "{\"ids\":[[1]],\"mask\":[0],\"masks\":[2],\"labels\":[[[1]],[[2]]]}",
            "\"masks\" must name the lengths of the label words", KH_EFORMAT },
        { "{\"ids\":[[1]],\"mask\":[0],\"masks\":[],\"labels\":[[[1]],[[2]]]}",
            "\"masks\" must name the lengths of the label words", KH_EFORMAT },
        { "{\"ids\":[[1]],\"mask\":[0],\"next\":true,\"labels\":[[[1]],[[2]]]}",
            "\"next\" is true, but the model fills masks", KH_EMISMATCH },
        { "{\"ids\":[[1]],\"mask\":[0],\"next\":1,\"labels\":[[[1]],[[2]]]}", "\"next\"",
            KH_EFORMAT },
        { "{\"ids\":[[1]],\"mask\":[0],\"mean\":1,\"labels\":[[[1]],[[2]]]}", "\"mean\"",
            KH_EFORMAT },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        kh_wire_question q;
        kh_err err = { 0 };
        int rc = kh_wire_question_parse(&q, CASES[i].body, strlen(CASES[i].body), &LIMITS, &err);
        if (rc != CASES[i].code)
            fail_msg("%s: %s", CASES[i].body, err.msg);
        assert_says(&err, CASES[i].says);
        kh_wire_question_free(&q);
    }
    kh_wire_limits few = LIMITS;
    few.tokens = 3;
    kh_wire_question q;
    kh_err err;
    static const char BODY[] = "{\"ids\":[[1,1,1,1]],\"mask\":[0],\"labels\":[[[1]],[[2]]]}";
    assert_int_equal(kh_wire_question_parse(&q, BODY, sizeof BODY - 1, &few, &err), KH_ELIMIT);
    assert_says(&err, "at most 3 tokens are taken at a time");
    kh_wire_question_free(&q);
}

/* ------------------------------------------------------------------------------------- answers */

static void answers_come_back_with_their_bits(void **state) {
    (void)state;
    float p[2 * 3 * 2], back[2 * 3 * 2];
    int label[6] = { 0, 1, 1, 0, 1, 0 }, same[6];
    kh_rng r = kh_rng_stream(3, KH_RNG_TEST, 0, 0);
    for (int i = 0; i < 12; i++)
        p[i] = -(float)(kh_rng_uniform(&r) * 40);
    p[3] = -INFINITY;
    kh_buf b = kh_buf_init(1 << 16);
    kh_wire_answer_put(&b, &(kh_wire_answer){ "m\"x", 2, 3, 2, NULL, p, NULL, true });
    assert_int_equal(kh_wire_answer_parse(
                         b.data, b.len, &(kh_wire_wanted){ 2, 3, 2, NULL, back, NULL }, "s", NULL),
        0);
    assert_memory_equal(p, back, sizeof p);
    kh_buf_reset(&b);
    kh_wire_answer_put(&b, &(kh_wire_answer){ "m", 2, 3, 2, NULL, p, NULL, false });
    assert_non_null(strstr(b.data, "-9999")); /* JSON has no infinity */
    kh_buf_reset(&b);
    kh_wire_answer_put(&b, &(kh_wire_answer){ "m", 2, 3, 2, label, NULL, NULL, false });
    assert_int_equal(kh_wire_answer_parse(
                         b.data, b.len, &(kh_wire_wanted){ 2, 3, 2, same, NULL, NULL }, "s", NULL),
        0);
    assert_memory_equal(label, same, sizeof label);
    kh_buf_free(&b);
}

static void energies_come_back_with_their_bits(void **state) {
    (void)state;
    float p[4] = { -1, -0.5f, -2, -0.25f }, e[2] = { -7.125f, 0.1f }, back[4], same[2];
    kh_wire_wanted w = { 1, 2, 2, NULL, back, same };
    kh_buf b = kh_buf_init(1 << 16);
    kh_wire_answer_put(&b, &(kh_wire_answer){ "m", 1, 2, 2, NULL, p, e, true });
    assert_int_equal(kh_wire_answer_parse(b.data, b.len, &w, "s", NULL), 0);
    assert_memory_equal(p, back, sizeof p);
    assert_memory_equal(e, same, sizeof e);
    kh_buf_reset(&b);
    kh_wire_answer_put(&b, &(kh_wire_answer){ "m", 2, 1, 2, NULL, p, e, false });
    assert_non_null(strstr(b.data, ",\"energy\":[[-7.125],[0.100000001]]}"));
    kh_buf_free(&b);
}

static void energies_that_make_no_sense_are_named(void **state) {
    (void)state;
    static const struct {
        const char *energy, *says;
    } CASES[] = {
        { "", "s: answered without \"energy\", which was asked for" },
        { ",\"energy\":[[1,2]]", "must be an object with \"dtype\"" },
        { ",\"energy\":{\"shape\":[2,1],\"data\":\"AAAAvwAAAMA=\"}",
            "answered with energies of shape [2, 1], expected [1, 2]" },
        { ",\"energy\":{\"shape\":[1,2],\"data\":\"AAAAvwAAwH8=\"}",
            "answered prompt 0, row 1 with an energy that is not a number" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        float p[4], e[2];
        kh_err err = { 0 };
        char body[256];
        int n = snprintf(body, sizeof body,
            "{\"shape\":[1,2,2],\"data\":\"AAAAvwAAAMAAAAC/AAAAwA==\"%s}", CASES[i].energy);
        assert_int_equal(kh_wire_answer_parse(
                             body, (size_t)n, &(kh_wire_wanted){ 1, 2, 2, NULL, p, e }, "s", &err),
            KH_EFORMAT);
        assert_says(&err, CASES[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(base64_of_known_texts),
        cmocka_unit_test(base64_is_strict),
        cmocka_unit_test(archives_come_back),
        cmocka_unit_test(damaged_archives_are_refused),
        cmocka_unit_test(tensors_come_back_with_their_bits),
        cmocka_unit_test(tensors_as_pytorch_writes_them),
        cmocka_unit_test(tensors_with_wide_instructions),
        cmocka_unit_test(every_byte_of_a_pickle_may_be_any_other),
        cmocka_unit_test(pickles_that_want_more_are_refused),
        cmocka_unit_test(numbers_of_another_byte_order_are_refused),
        cmocka_unit_test(questions_come_back),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(answers_come_back_with_their_bits),
        cmocka_unit_test(energies_come_back_with_their_bits),
        cmocka_unit_test(energies_that_make_no_sense_are_named),
    };
    return cmocka_run_group_tests_name("wire formats", tests, NULL, NULL);
}
