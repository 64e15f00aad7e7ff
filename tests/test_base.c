/* test_base.c - memory and errors: what every other room stands on. The rest of the base room:
 * test_base_rng.c, test_base_text.c (UTF-8, JSON) and test_base_file.c (files, options). */
#include "test.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/hooks.h"
#include "base/map.h"
#include "base/size.h"

#include <errno.h>
#include <omp.h>

/* --------------------------------------------------------------------------------------- sizes */

static void sizes_do_not_wrap_unseen(void **state) {
    (void)state;
    size_t out = 7;
    assert_true(kh_add(SIZE_MAX - 1, 1, &out));
    assert_true(out == SIZE_MAX);
    assert_false(kh_add(SIZE_MAX, 1, &out));
    assert_true(kh_mul(SIZE_MAX / 2, 2, &out));
    assert_true(out == SIZE_MAX - 1);
    assert_false(kh_mul(SIZE_MAX / 2 + 1, 2, &out));
    assert_true(kh_mul(0, SIZE_MAX, &out));
    assert_true(out == 0);
}

/* --------------------------------------------------------------------------------------- alloc */

static void nth_allocation_fails_once_or_from_then_on(void **state) {
    (void)state;
    for (int forever = 0; forever < 2; forever++) {
        kh_alloc_fail_at(3, forever);
        for (int k = 1; k <= 5; k++) {
            void *p = kh_malloc(1);
            assert_true((p == NULL) == (k == 3 || (forever && k > 3)));
            kh_free(p);
        }
        assert_int_equal(kh_alloc_count(), 5);
    }
    kh_alloc_fail_at(0, true);
    void *p = kh_malloc(1);
    assert_non_null(p);
    kh_free(p);
}

static void every_kind_of_allocation_can_fail(void **state) {
    (void)state;
    void *old = kh_malloc(4);
    memcpy(old, "abc", 4);
    kh_alloc_fail_at(1, true);
    assert_null(kh_malloc(1));
    assert_null(kh_calloc(1, 1));
    assert_null(kh_realloc(old, 8));
    assert_null(kh_aligned(1));
    assert_null(kh_strdup("x"));
    assert_null(kh_strndup("x", 1));
    kh_alloc_fail_at(0, false);
    assert_string_equal(old, "abc"); /* a failed realloc leaves the block */
    kh_free(old);
}

static void allocations_of_nothing_are_unique(void **state) {
    (void)state;
    void *a = kh_malloc(0), *b = kh_calloc(0, 8), *c = kh_aligned(0), *d = kh_realloc(NULL, 0);
    assert_true(a && b && c && d && a != b && b != c && a != c && c != d);
    kh_free(a);
    kh_free(b);
    kh_free(c);
    kh_free(d);
    kh_free(NULL);
}

static void overflowing_sizes_are_refused(void **state) {
    (void)state;
    assert_null(kh_calloc(SIZE_MAX / 2, 3));
    assert_null(kh_aligned(SIZE_MAX - 5));
}

static void calloc_zeroes_and_aligned_aligns(void **state) {
    (void)state;
    unsigned char *z = kh_calloc(33, 3);
    for (int k = 0; k < 99; k++)
        assert_int_equal(z[k], 0);
    kh_free(z);
    for (size_t n = 1; n < 300; n += 7) {
        char *p = kh_aligned(n);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 1, n);
        kh_free(p);
    }
}

static void strings_are_copied_to_their_length(void **state) {
    (void)state;
    char *s = kh_strndup("a\0bc", 3), *t = kh_strdup("key");
    assert_memory_equal(s, "a\0b", 4);
    assert_string_equal(t, "key");
    kh_free(s);
    kh_free(t);
    s = kh_strndup("", 0);
    assert_string_equal(s, "");
    kh_free(s);
}

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
    assert_int_equal(cap, before);
    kh_alloc_fail_at(0, false);
    for (size_t n = 1; n <= 100000; n++) {
        assert_true(kh_grow(&p, &cap, n, sizeof *p));
        p[n - 1] = (int)n;
    }
    assert_true(kh_alloc_count() < 40);
    for (int n = 1; n <= 100000; n++)
        assert_int_equal(p[n - 1], n);
    kh_free(p);
}

/* --------------------------------------------------------------------------------------- arena */

static void arena_memory_is_aligned_zeroed_and_apart(void **state) {
    (void)state;
    kh_arena a = { 0 };
    unsigned char *all[2000];
    for (int round = 0; round < 2; round++) { /* after a free it is empty and usable again */
        for (int k = 0; k < 2000; k++) {
            size_t n = (size_t)(k % 100);
            all[k] = kh_arena_alloc(&a, n);
            assert_non_null(all[k]);
            assert_int_equal((uintptr_t)all[k] % 16, 0);
            for (size_t i = 0; i < n; i++)
                assert_int_equal(all[k][i], 0);
            memset(all[k], k & 0xFF, n);
        }
        for (int k = 0; k < 2000; k++)
            for (int i = 0; i < k % 100; i++)
                assert_int_equal(all[k][i], k & 0xFF);
        kh_arena_free(&a);
        assert_null(a.blocks);
    }
}

static void arena_takes_blocks_of_any_size(void **state) {
    (void)state;
    kh_arena a = { 0 };
    static const size_t sizes[] = { 1, 65535, 65536, 65537, 1000000, 16, 10000000, 3 };
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        char *p = kh_arena_alloc(&a, sizes[k]);
        assert_non_null(p);
        memset(p, 1, sizes[k]);
    }
    kh_arena_free(&a);
}

static void arena_failure_leaves_it_usable(void **state) {
    (void)state;
    kh_arena a = { 0 };
    char *s = kh_arena_strndup(&a, "kept", 4);
    kh_alloc_fail_at(1, true);
    assert_null(kh_arena_alloc(&a, 100000));
    assert_null(kh_arena_array(&a, 1000, 1000));
    assert_null(kh_arena_strndup(&a, s, 0x20000)); /* fails before it reads */
    kh_alloc_fail_at(0, false);
    assert_null(kh_arena_array(&a, SIZE_MAX / 2, 3));
    assert_null(kh_arena_alloc(&a, SIZE_MAX));
    assert_null(kh_arena_alloc(&a, SIZE_MAX - 40));
    assert_null(kh_arena_strndup(&a, s, SIZE_MAX));
    assert_non_null(kh_arena_array(&a, 10, 10));
    assert_string_equal(s, "kept");
    kh_arena_free(&a);
}

/* ----------------------------------------------------------------------------------------- buf */

static void buffer_appends_and_ends_in_nul(void **state) {
    (void)state;
    kh_buf b = kh_buf_init(100);
    assert_null(b.data);
    kh_buf_text(&b, "ids:");
    kh_buf_char(&b, ' ');
    kh_buf_printf(&b, "%d,%s", 42, "x");
    kh_buf_bytes(&b, "\0y", 2);
    assert_false(kh_buf_failed(&b));
    assert_int_equal(b.len, 11);
    assert_memory_equal(b.data, "ids: 42,x\0y", 12);
    kh_buf_reset(&b);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
    kh_buf_free(&b);
    assert_null(b.data);
    kh_buf_free(&b);
}

static void buffer_cap_is_exact_and_failure_sticks(void **state) {
    (void)state;
    kh_buf b = kh_buf_init(5);
    kh_buf_text(&b, "12345");
    assert_false(kh_buf_failed(&b));
    kh_buf_char(&b, '6');
    assert_true(kh_buf_failed(&b));
    kh_buf_bytes(&b, "", 0);
    assert_true(kh_buf_failed(&b));
    assert_false(kh_buf_reserve(&b, 0));
    assert_string_equal(b.data, "12345"); /* what was there is kept */
    kh_buf_reset(&b);
    assert_false(kh_buf_failed(&b));
    kh_buf_printf(&b, "%s", "12345");
    assert_false(kh_buf_failed(&b));
    kh_buf_printf(&b, "%d", 6);
    assert_true(kh_buf_failed(&b));
    assert_int_equal(b.len, 5);
    kh_buf_free(&b);
    assert_false(kh_buf_failed(&b));
}

static void buffer_survives_any_size_and_failure(void **state) {
    (void)state;
    kh_buf b = kh_buf_init(SIZE_MAX);
    assert_false(kh_buf_reserve(&b, SIZE_MAX)); /* one more for the NUL would wrap */
    kh_buf_reset(&b);
    kh_buf_char(&b, 'x');
    assert_false(kh_buf_reserve(&b, SIZE_MAX - 1));
    kh_buf_reset(&b);
    kh_alloc_fail_at(1, false);
    kh_buf_printf(&b, "%1000d", 1);
    kh_alloc_fail_at(0, false);
    assert_true(kh_buf_failed(&b));
    kh_buf_free(&b);
}

static void take_hands_the_memory_over(void **state) {
    (void)state;
    kh_buf b = kh_buf_init(10);
    size_t n = 99;
    kh_buf_text(&b, "abc");
    char *s = kh_buf_take(&b, &n);
    assert_string_equal(s, "abc");
    assert_int_equal(n, 3);
    assert_null(b.data);
    kh_free(s);
    s = kh_buf_take(&b, &n); /* an empty buffer gives an empty string */
    assert_string_equal(s, "");
    assert_int_equal(n, 0);
    kh_free(s);
    kh_buf_text(&b, "too long for ten");
    assert_null(kh_buf_take(&b, NULL));
    assert_false(kh_buf_failed(&b)); /* and starts afresh, with the same cap */
    assert_int_equal(b.max, 10);
    kh_buf_free(&b);
}

/* ----------------------------------------------------------------------------------------- map */

static void map_finds_what_was_added(void **state) {
    (void)state;
    enum { N = 20000 };
    kh_map m = { 0 };
    kh_arena keys = { 0 };
    int32_t value = -1;
    assert_false(kh_map_get(&m, "x", 1, &value));
    for (int k = 0; k < N; k++) {
        char key[16];
        size_t n = (size_t)snprintf(key, sizeof key, "key %d", k);
        assert_int_equal(kh_map_add(&m, kh_arena_strndup(&keys, key, n), n, k * 3, NULL), 1);
    }
    assert_int_equal(m.n, N);
    for (int k = 0; k < N; k++) {
        char key[16];
        size_t n = (size_t)snprintf(key, sizeof key, "key %d", k);
        assert_true(kh_map_get(&m, key, n, &value));
        assert_int_equal(value, k * 3);
        assert_false(
            kh_map_get(&m, key, n - 1, &value) && value == k * 3); /* a prefix is another key */
    }
    assert_false(kh_map_get(&m, "key 20000", 9, &value));
    kh_map_free(&m);
    assert_false(kh_map_get(&m, "key 1", 5, &value));
    kh_arena_free(&keys);
}

/* Keys that a stranger chose for the hash that this map once had (FNV-1a, folded, no seed): all
 * would lie in one run of slots, and a look would pass half of them. */
static void map_cannot_be_flooded(void **state) {
    (void)state;
    enum { N = 1 << 13, CAP = 2 * N, RANGE = 64 };
    kh_map m = { 0 };
    kh_arena keys = { 0 };
    for (unsigned k = 0; m.n < N; k++) {
        char key[16];
        size_t n = (size_t)snprintf(key, sizeof key, "%x", k);
        uint64_t h = kh_hash64(key, n);
        if (((uint32_t)(h ^ h >> 32) & (CAP - 1)) < RANGE)
            assert_int_equal(kh_map_add(&m, kh_arena_strndup(&keys, key, n), n, 0, NULL), 1);
    }
    size_t passed = 0;
    for (size_t i = 0; i < m.cap; i++)
        if (m.slots[i].key)
            passed += (i - m.slots[i].hash) & (m.cap - 1);
    assert_true(passed / N < 8);
    kh_map_free(&m);
    kh_arena_free(&keys);
}

static void map_keeps_the_first_of_equal_keys(void **state) {
    (void)state;
    kh_map m = { 0 };
    int32_t old = -1, value = -1;
    assert_int_equal(kh_map_add(&m, "a", 1, 1, &old), 1);
    assert_int_equal(old, -1);
    assert_int_equal(kh_map_add(&m, "a", 1, 2, &old), 0);
    assert_int_equal(old, 1);
    assert_int_equal(kh_map_add(&m, "a", 1, 3, NULL), 0);
    assert_true(kh_map_get(&m, "a", 1, &value));
    assert_int_equal(value, 1);
    assert_int_equal(m.n, 1);
    kh_map_free(&m);
}

static void map_takes_empty_and_binary_keys(void **state) {
    (void)state;
    kh_map m = { 0 };
    static const struct {
        const char *s;
        size_t n;
    } keys[] = { { "", 0 }, { "\0", 1 }, { "\0\0", 2 }, { "a\0b", 3 }, { "a\0c", 3 }, { "a", 1 } };
    for (int k = 0; k < 6; k++)
        assert_int_equal(kh_map_add(&m, keys[k].s, keys[k].n, k, NULL), 1);
    for (int k = 0; k < 6; k++) {
        int32_t value;
        assert_true(kh_map_get(&m, keys[k].s, keys[k].n, &value));
        assert_int_equal(value, k);
    }
    kh_map_free(&m);
}

static void map_survives_failing_allocations(void **state) {
    (void)state;
    char keys[200][12];
    for (long fail = 1; fail <= 6; fail++) {
        kh_map m = { 0 };
        int added = 0;
        kh_alloc_fail_at(fail, true);
        for (; added < 200; added++) {
            snprintf(keys[added], sizeof keys[0], "%d", added);
            if (kh_map_add(&m, keys[added], strlen(keys[added]), added, NULL) < 0)
                break;
        }
        kh_alloc_fail_at(0, false);
        assert_int_equal(m.n, added);
        for (int k = 0; k < added; k++) {
            int32_t value;
            assert_true(kh_map_get(&m, keys[k], strlen(keys[k]), &value));
            assert_int_equal(value, k);
        }
        kh_map_free(&m);
    }
}

static void map_reserve_makes_room_at_once(void **state) {
    (void)state;
    kh_map m = { 0 };
    assert_true(kh_map_reserve(&m, 1000));
    kh_alloc_fail_at(1, true);
    static char keys[1000][12];
    for (int k = 0; k < 1000; k++) {
        snprintf(keys[k], sizeof keys[0], "%d", k);
        assert_int_equal(kh_map_add(&m, keys[k], strlen(keys[k]), k, NULL), 1);
    }
    kh_alloc_fail_at(0, false);
    assert_false(kh_map_reserve(&m, SIZE_MAX / 2));
    kh_map_free(&m);
}

/* The published values of FNV-1a. */
static void hash_is_fnv_1a(void **state) {
    (void)state;
    assert_true(kh_hash64("", 0) == 0xcbf29ce484222325u);
    assert_true(kh_hash64("a", 1) == 0xaf63dc4c8601ec8cu);
    assert_true(kh_hash64("foobar", 6) == 0x85944171f73967e8u);
    assert_true(kh_hash64_more(kh_hash64("foo", 3), "bar", 3) == kh_hash64("foobar", 6));
    assert_true(KH_HASH64_START == kh_hash64(NULL, 0));
}

/* -------------------------------------------------------------------------------------- errors */

static void fail_fills_the_sentence_and_returns_the_code(void **state) {
    (void)state;
    kh_err err = { .line = 5 };
    assert_int_equal(
        kh_fail(&err, KH_ELIMIT, "%s: %d tensors, at most %d are allowed", "model", 9, 8),
        KH_ELIMIT);
    assert_int_equal(err.code, KH_ELIMIT);
    assert_int_equal(err.line, 0);
    assert_string_equal(err.msg, "model: 9 tensors, at most 8 are allowed");
    assert_int_equal(kh_fail(NULL, KH_EIO, "nobody listens"), KH_EIO);
    assert_int_equal(kh_fail_memory(&err), KH_ENOMEM);
    assert_string_equal(err.msg, "out of memory");
}

static void control_characters_stay_out_of_sentences(void **state) {
    (void)state;
    kh_err err;
    kh_fail(&err, KH_EFORMAT, "tensor \"%s\"", "a\x1b[2J\n\x7f\xc3\xa9");
    assert_string_equal(err.msg, "tensor \"a?[2J??\xc3\xa9\"");
    /* C1 too, but neither a space that does not break nor half a character. */
    kh_fail(&err, KH_EFORMAT, "%s", "\xc2\x9b\x32J \xc2\xa0 \xc2");
    assert_string_equal(err.msg, "??2J \xc2\xa0 \xc2");
}

static void place_stands_before_the_sentence(void **state) {
    (void)state;
    kh_err err = { 0 };
    assert_int_equal(
        kh_fail_at(&err, KH_EFORMAT, "train.tsv", 12, "no label \"%s\"", "x"), KH_EFORMAT);
    assert_string_equal(err.msg, "train.tsv:12: no label \"x\"");
    assert_int_equal(err.line, 12);
    kh_fail_at(&err, KH_EFORMAT, "train.tsv", 0, "no rows");
    assert_string_equal(err.msg, "train.tsv: no rows");
    assert_int_equal(err.line, 0);
    assert_int_equal(kh_fail_at(NULL, KH_EFORMAT, "f", 1, "x"), KH_EFORMAT);
}

static void prefix_keeps_code_and_line(void **state) {
    (void)state;
    kh_err err = { 0 };
    kh_fail_at(&err, KH_EMISMATCH, "task.json", 3, "two masks");
    assert_int_equal(kh_err_prefix(&err, "run %d", 7), KH_EMISMATCH);
    assert_string_equal(err.msg, "run 7: task.json:3: two masks");
    assert_int_equal(err.line, 3);
    assert_int_equal(err.code, KH_EMISMATCH);
    assert_true(kh_err_prefix(NULL, "x") < 0);
}

static void errno_tells_missing_from_broken(void **state) {
    (void)state;
    kh_err err = { 0 };
    errno = ENOENT;
    assert_int_equal(kh_fail_errno(&err, "a/b", "cannot open"), KH_EMISSING);
    assert_string_equal(err.msg, "a/b: cannot open: No such file or directory");
    errno = ENOTDIR;
    assert_int_equal(kh_fail_errno(&err, "a/b", "cannot open"), KH_EMISSING);
    errno = EACCES;
    assert_int_equal(kh_fail_errno(&err, "a/b", "cannot open"), KH_EIO);
    assert_string_equal(err.msg, "a/b: cannot open: Permission denied");
}

/* A sentence that does not fit ends in "..." after a whole character, wherever the cut falls. */
static void long_sentences_are_cut_between_characters(void **state) {
    (void)state;
    static const char *const letters[] = { "x", "\u00E9", "\u4E2D", "\U0001F511" };
    for (int shift = 0; shift < 4; shift++)
        for (int l = 0; l < 4; l++) {
            char text[4096];
            size_t n = (size_t)shift;
            memset(text, '.', n);
            text[0] = shift ? '.' : text[0];
            while (n < 3000)
                n += (size_t)snprintf(text + n, 8, "%s", letters[l]);
            kh_err err = { 0 };
            kh_fail(&err, KH_EFORMAT, "%s", text);
            size_t len = strlen(err.msg), size = strlen(letters[l]);
            assert_true(len < sizeof err.msg);
            assert_in_range(len, sizeof err.msg - 1 - 3, sizeof err.msg - 1);
            assert_string_equal(err.msg + len - 3, "...");
            assert_int_equal((len - 3 - (size_t)shift) % size, 0);
            assert_memory_equal(err.msg, text, len - 3);
            kh_err_prefix(&err, "%s", text); /* a prefix that does not fit either */
            assert_true(strlen(err.msg) < sizeof err.msg);
            kh_fail_at(&err, KH_EFORMAT, text, 1, "%s", text);
            assert_string_equal(err.msg + strlen(err.msg) - 3, "...");
        }
}

static void sentence_that_just_fits_is_whole(void **state) {
    (void)state;
    kh_err err = { 0 };
    char text[sizeof err.msg];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    kh_fail(&err, KH_EIO, "%s", text);
    assert_string_equal(err.msg, text);
    kh_fail(&err, KH_EIO, "%sx", text);
    assert_string_equal(err.msg + sizeof text - 4, "...");
}

static void every_code_has_a_meaning(void **state) {
    (void)state;
    assert_string_equal(kh_code_text(KH_OK), "done");
    assert_string_equal(kh_code_text(KH_ENOMEM), "out of memory");
    for (int code = KH_EMISMATCH; code <= KH_STOPPED; code++)
        assert_string_not_equal(kh_code_text(code), "unknown code");
    assert_string_equal(kh_code_text(12345), "unknown code");
}

/* ------------------------------------------------------------------------------ threads, hooks */

static void threads_are_what_was_asked_for(void **state) {
    (void)state;
    assert_int_equal(kh_threads(), omp_get_num_procs());
    kh_threads_set(3);
    assert_int_equal(kh_threads(), 3);
    kh_threads_set(-1);
    assert_int_equal(kh_threads(), omp_get_num_procs());
    kh_threads_set(0);
    assert_true(kh_threads() >= 1);
}

static int count_progress(void *user, const kh_progress *p) {
    assert_string_equal(p->phase, "phase");
    assert_int_equal(p->done, 3);
    assert_int_equal(p->total, 4);
    return ++*(int *)user == 2; /* stop at the second call */
}

static void keep_line(void *user, kh_level level, const char *line) {
    assert_int_equal(level, KH_WARN);
    snprintf(user, 2048, "%s", line);
}

static void progress_stops_on_request(void **state) {
    (void)state;
    int calls = 0;
    kh_hooks h = { .progress = count_progress, .user = &calls };
    assert_int_equal(kh_report_progress(&h, "phase", 3, 4, NULL), 0);
    assert_int_equal(kh_report_progress(&h, "phase", 3, 4, NULL), KH_STOPPED);
    assert_int_equal(kh_report_progress(NULL, "phase", 3, 4, NULL), 0);
    assert_int_equal(kh_report_progress(&(kh_hooks){ 0 }, "phase", 3, 4, NULL), 0);
}

static void log_reaches_the_caller(void **state) {
    (void)state;
    char line[2048] = "";
    kh_hooks h = { .log = keep_line, .user = line };
    kh_log(&h, KH_WARN, "%d of %s", 2, "these");
    assert_string_equal(line, "2 of these");
    kh_log(&h, KH_WARN, "the service says %s", "\x1b[2Jno\r\n");
    assert_string_equal(line, "the service says ?[2Jno??");
    kh_log(&h, KH_WARN, "%2000d", 1); /* longer than its buffer: cut, not overrun */
    assert_int_equal(strlen(line), 1023);
    kh_log(NULL, KH_WARN, "nobody");
    kh_log(&(kh_hooks){ 0 }, KH_WARN, "nobody");
}

static void version_is_that_of_the_header(void **state) {
    (void)state;
    assert_string_equal(kh_version(), KH_VERSION);
}

static void durations_read_well(void **state) {
    (void)state;
    static const struct {
        double seconds;
        const char *text;
    } CASES[] = { { 0, "0.0s" }, { 0.44, "0.4s" }, { 12.3, "12s" }, { 59.6, "1m00s" },
        { 192, "3m12s" }, { 7500, "2h05m" }, { 97200, "1d03h" }, { -5, "0.0s" }, { 1e12, "0.0s" } };
    char out[KH_DURATION];
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        assert_string_equal(kh_duration(CASES[i].seconds, out, sizeof out), CASES[i].text);
    double before = kh_clock();
    assert_true(kh_clock() >= before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_do_not_wrap_unseen),
        cmocka_unit_test(nth_allocation_fails_once_or_from_then_on),
        cmocka_unit_test(every_kind_of_allocation_can_fail),
        cmocka_unit_test(allocations_of_nothing_are_unique),
        cmocka_unit_test(overflowing_sizes_are_refused),
        cmocka_unit_test(calloc_zeroes_and_aligned_aligns),
        cmocka_unit_test(strings_are_copied_to_their_length),
        cmocka_unit_test(grow_is_geometric_and_survives_failure),
        cmocka_unit_test(arena_memory_is_aligned_zeroed_and_apart),
        cmocka_unit_test(arena_takes_blocks_of_any_size),
        cmocka_unit_test(arena_failure_leaves_it_usable),
        cmocka_unit_test(buffer_appends_and_ends_in_nul),
        cmocka_unit_test(buffer_cap_is_exact_and_failure_sticks),
        cmocka_unit_test(buffer_survives_any_size_and_failure),
        cmocka_unit_test(take_hands_the_memory_over),
        cmocka_unit_test(map_finds_what_was_added),
        cmocka_unit_test(map_cannot_be_flooded),
        cmocka_unit_test(map_keeps_the_first_of_equal_keys),
        cmocka_unit_test(map_takes_empty_and_binary_keys),
        cmocka_unit_test(map_survives_failing_allocations),
        cmocka_unit_test(map_reserve_makes_room_at_once),
        cmocka_unit_test(hash_is_fnv_1a),
        cmocka_unit_test(fail_fills_the_sentence_and_returns_the_code),
        cmocka_unit_test(control_characters_stay_out_of_sentences),
        cmocka_unit_test(place_stands_before_the_sentence),
        cmocka_unit_test(prefix_keeps_code_and_line),
        cmocka_unit_test(errno_tells_missing_from_broken),
        cmocka_unit_test(long_sentences_are_cut_between_characters),
        cmocka_unit_test(sentence_that_just_fits_is_whole),
        cmocka_unit_test(every_code_has_a_meaning),
        cmocka_unit_test(threads_are_what_was_asked_for),
        cmocka_unit_test(progress_stops_on_request),
        cmocka_unit_test(log_reaches_the_caller),
        cmocka_unit_test(version_is_that_of_the_header),
        cmocka_unit_test(durations_read_well),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
