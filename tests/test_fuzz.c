/* test_fuzz.c - the fuzz targets without a fuzzer: every input in fuzz/corpus, and inputs made of
 * it by damage that is the same every time: some at random; in JSON every value in turn is left out
 * or becomes another; in small files of other kinds every byte does. Whatever a fuzzer has ever
 * found is kept in the corpus, so that it stays found. */
#include "test.h"

#include "base/file.h"
#include "base/gguf.h"
#include "base/rng.h"
#include "fuzz/mutators.h"

#include <dirent.h>
#include <jansson.h>

/* Compiled with LLVMFuzzerTestOneInput by the name of its file; and of how many inputs with one
 * value wrong one is tried. */
#define TARGETS(X) \
    X(fuzz_cmaes, 1) \
    X(fuzz_config, 1) \
    X(fuzz_dataset, 1) \
    X(fuzz_decisions, 1) \
    X(fuzz_encode, 9) \
    X(fuzz_gguf, 1) \
    X(fuzz_journal, 9) \
    X(fuzz_posterior, 1) \
    X(fuzz_predictions, 1) \
    X(fuzz_prompts, 1) \
    X(fuzz_request_answer, 1) \
    X(fuzz_request_embeds, 1) \
    X(fuzz_request_questions, 1) \
    X(fuzz_request_score, 1) \
    X(fuzz_request_server, 5) \
    X(fuzz_response, 11) \
    X(fuzz_safetensors, 1) \
    X(fuzz_task, 1) \
    X(fuzz_tokenizer_json, 1) \
    X(fuzz_vocab, 1)

typedef int target(const uint8_t *data, size_t n);
#define DECLARE(name, slow) target name;
TARGETS(DECLARE)
#undef DECLARE

enum { MUTANTS = 8 };

/* A copy with a byte changed, a piece cut out, or the rest cut off. */
static size_t damage(kh_rng *r, const char *from, size_t n, char *to) {
    memcpy(to, from, n);
    if (n == 0)
        return 0;
    size_t at = kh_rng_below(r, (uint32_t)n), size = kh_rng_below(r, 16);
    switch (kh_rng_below(r, 3)) {
    case 0: to[at] = (char)(to[at] ^ (1 << kh_rng_below(r, 8))); return n;
    case 1:
        size = size < n - at ? size : n - at;
        memmove(to + at, to + at + size, n - at - size);
        return n - size;
    default: return at;
    }
}

static long given; /* inputs */

static void give(target *one, const char *bytes, size_t n) {
    char *exact = malloc(n ? n : 1); /* of the very size, for AddressSanitizer */
    if (n)
        memcpy(exact, bytes, n);
    one((const uint8_t *)exact, n);
    free(exact);
    given++;
}

/* -------------------------------------------------------------------------- one value is wrong */

enum {
    CHILDREN = 4,
    SMALL = 2048
}; /* of a long array or object, the first ones and the last; the largest file for every byte */

typedef struct spoiler {
    target *one;
    json_t *root;
    const char *before, *after; /* what stands around the JSON in the input */
    size_t n_before, n_after;
    int slow, count; /* every so many is tried, where trying takes long */
} spoiler;

static void give_root(spoiler *s) {
    if (s->count++ % s->slow != 0)
        return;
    char *text = json_dumps(s->root, JSON_COMPACT | JSON_ENCODE_ANY);
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_buf_bytes(&b, s->before, s->n_before);
    kh_buf_text(&b, text);
    kh_buf_bytes(&b, s->after, s->n_after);
    give(s->one, b.data, b.len);
    kh_buf_free(&b);
    free(text);
}

/* Something else in place of a value: of another kind, out of range, or nearly the same. NULL:
 * there is no more. */
static json_t *other_value(const json_t *v, int k) {
    switch (k) {
    case 0: return json_null();
    case 1: return json_true();
    case 2: return json_integer(0);
    case 3: return json_integer(-1);
    case 4: return json_integer(3000000000);
    case 5: return json_real(0.5);
    case 6: return json_string("");
    case 7: return json_array();
    case 8: return json_object();
    case 9: return json_pack("[O]", v);
    case 10: break;
    default: return NULL;
    }
    json_t *near = json_deep_copy(v);
    if (json_is_integer(v))
        json_integer_set(near, json_integer_value(v) + 1);
    else if (json_is_real(v))
        json_real_set(near, -json_real_value(v) * 1e9);
    else if (json_is_string(v))
        json_string_setn(near, json_string_value(v), json_string_length(v) / 2);
    else if (json_is_array(v) && json_array_size(v) > 0)
        json_array_append(near, json_array_get(v, 0));
    return near;
}

static void put(json_t *parent, const char *key, size_t at, json_t *value) {
    if (key)
        json_object_set(parent, key, value);
    else
        json_array_set(parent, at, value);
}

static void spoil_inside(spoiler *s, json_t *parent);

static void spoil_child(spoiler *s, json_t *parent, const char *key, size_t at, json_t *v) {
    json_incref(v);
    json_t *other;
    for (int k = 0; (other = other_value(v, k)) != NULL; k++) {
        put(parent, key, at, other);
        json_decref(other);
        give_root(s);
    }
    if (key)
        json_object_del(parent, key);
    else
        json_array_remove(parent, at);
    give_root(s);
    if (key)
        json_object_set(parent, key, v);
    else
        json_array_insert(parent, at, v);
    json_decref(v);
    spoil_inside(s, v);
}

static void spoil_inside(spoiler *s, json_t *parent) {
    if (json_is_array(parent))
        for (size_t i = 0, n = json_array_size(parent); i < n; i++)
            if (i < CHILDREN || i + 1 == n)
                spoil_child(s, parent, NULL, i, json_array_get(parent, i));
    const char *key[256]; /* members change their order while they are gone through */
    size_t n = 0;
    for (void *i = json_object_iter(parent); i && n < 256; i = json_object_iter_next(parent, i))
        key[n++] = json_object_iter_key(i);
    for (size_t i = 0; i < n; i++)
        if (n < 32 || i < CHILDREN || i + 1 == n) {
            char copy[256];
            snprintf(copy, sizeof copy, "%s", key[i]);
            if (json_object_get(parent, copy))
                spoil_child(s, parent, copy, 0, json_object_get(parent, copy));
        }
}

/* Whether bytes[from .. to) are JSON; then every value of it is spoilt. */
static bool spoil_json(target *one, const char *bytes, size_t n, size_t from, size_t to, int slow) {
    spoiler s = { one, NULL, bytes, bytes + to, from, n - to, slow, 0 };
    s.root = json_loadb(bytes + from, to - from, 0, NULL);
    if (!s.root)
        return false;
    spoil_inside(&s, s.root);
    json_decref(s.root);
    return true;
}

/* Parts of an input are parted by lines of "%%", and one letter may stand first. */
static void spoil(target *one, const char *bytes, size_t n, int slow) {
    bool json = false;
    for (size_t from = 0, to; from < n; from = to + 4) {
        const char *end = memmem(bytes + from, n - from, "\n%%\n", 4);
        to = end ? (size_t)(end - bytes) : n;
        bool here = spoil_json(one, bytes, n, from, to, slow) ||
            (from == 0 && spoil_json(one, bytes, n, 1, to, slow));
        for (size_t line = from, stop; !here && line < to; line = stop + 1) { /* JSON lines */
            const char *feed = memchr(bytes + line, '\n', to - line);
            stop = feed ? (size_t)(feed - bytes) : to;
            json |= spoil_json(one, bytes, n, line, stop, slow);
        }
        json |= here;
    }
    if (json || n > SMALL || slow > 1)
        return;
    char *copy = malloc(n + 1);
    for (size_t at = 0; at < n; at++) {
        static const unsigned char BITS[] = { 1, 0x80, 0x20, 0xff };
        memcpy(copy, bytes, n);
        for (int k = 0; k < 4; k++) {
            copy[at] = (char)((unsigned char)bytes[at] ^ BITS[k]);
            give(one, copy, n);
        }
        give(one, bytes, at);
    }
    free(copy);
}

/* ---------------------------------------------------------------------------------- the corpus */

static void replay(const char *name, target *one, int slow) {
    char folder[128];
    int n = 0;
    snprintf(folder, sizeof folder, "fuzz/corpus/%s", name);
    DIR *d = opendir(folder);
    if (!d)
        fail_msg("%s is not there", folder);
    give(one, "", 0);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[512];
        kh_buf bytes;
        kh_err err;
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (kh_file_read(path, 1 << 24, &bytes, &err) != 0)
            fail_msg("%s", err.msg);
        printf("# %s\n", path);
        fflush(stdout); /* if this is the last line, it was this one */
        give(one, bytes.data, bytes.len);
        kh_rng r = kh_rng_stream(bytes.len, KH_RNG_TEST, 0, 0);
        char *mutant = malloc(bytes.len + 1);
        for (int i = 0; i < MUTANTS; i++)
            give(one, mutant, damage(&r, bytes.data, bytes.len, mutant));
        free(mutant);
        spoil(one, bytes.data, bytes.len, slow);
        kh_buf_free(&bytes);
        n++;
    }
    closedir(d);
    assert_true(n > 0);
    printf("# %s: %ld inputs\n", name, given);
    given = 0;
}

#define TEST(name, slow) \
    static void test_##name(void **state) { \
        (void)state; \
        replay(#name, name, slow); \
    }
TARGETS(TEST)

/* A target that is not in the list above would be forgotten here. */
static void every_target_is_replayed(void **state) {
    (void)state;
#define NAME(name, slow) " " #name " "
    static const char ALL[] = TARGETS(NAME);
    DIR *d = opendir("fuzz");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char name[300];
        size_t n = strlen(e->d_name);
        if (strncmp(e->d_name, "fuzz_", 5) != 0 || n < 2 || strcmp(e->d_name + n - 2, ".c") != 0)
            continue;
        snprintf(name, sizeof name, " %.*s ", (int)n - 2, e->d_name);
        if (!strstr(ALL, name))
            fail_msg("%s is not in the list of tests/test_fuzz.c", e->d_name);
    }
    closedir(d);
}

/* ---------------------------------------------------------------------------- the mutators */

enum { TRIES = 400, ROOM = 64 };

typedef size_t mutator(uint8_t *bytes, size_t n, size_t max, unsigned seed);

/* Mutants of a seed, in a buffer of the very size: how many differ, and how many of those are
 * still what they were. */
static void mutate(const char *path, mutator *change, bool (*good)(const uint8_t *, size_t),
    target *one, int *differ, int *accepted) {
    kh_buf bytes;
    kh_err err;
    if (kh_file_read(path, 1 << 24, &bytes, &err) != 0)
        fail_msg("%s", err.msg);
    size_t max = bytes.len + ROOM;
    *differ = *accepted = 0;
    for (unsigned i = 0; i < TRIES; i++) {
        uint8_t *copy = malloc(max), *again = malloc(max);
        memcpy(copy, bytes.data, bytes.len);
        memcpy(again, bytes.data, bytes.len);
        size_t n = change(copy, bytes.len, max, i);
        assert_true(n > 0 && n <= max);
        assert_true(n == change(again, bytes.len, max, i) && memcmp(copy, again, n) == 0);
        bool other = n != bytes.len || memcmp(copy, bytes.data, n) != 0;
        *differ += other;
        *accepted += other && good(copy, n);
        give(one, (const char *)copy, n);
        free(copy);
        free(again);
    }
    kh_buf_free(&bytes);
}

static bool is_gguf(const uint8_t *bytes, size_t n) {
    kh_gguf *f;
    bool good = kh_gguf_parse(&f, bytes, n, "mutant", NULL) == 0;
    if (good)
        kh_gguf_close(f);
    return good;
}

static bool is_json(const uint8_t *bytes, size_t n) {
    json_t *root = json_loadb((const char *)bytes, n, 0, NULL);
    json_decref(root);
    return root;
}

/* Most mutants of plain damage end at the first check; of these, many get behind it. */
static void mutants_are_often_well_formed(void **state) {
    (void)state;
    int differ, accepted;
    mutate("fuzz/corpus/fuzz_gguf/llama", kh_mutate_gguf, is_gguf, fuzz_gguf, &differ, &accepted);
    printf("# GGUF: %d of %d mutants differ, %d are read\n", differ, TRIES, accepted);
    assert_true(differ > TRIES * 8 / 10 && accepted > differ / 5);
    mutate("fuzz/corpus/fuzz_config/llama3.json", kh_mutate_json, is_json, fuzz_config, &differ,
        &accepted);
    printf("# JSON: %d of %d mutants differ, %d are read\n", differ, TRIES, accepted);
    assert_true(differ > TRIES * 8 / 10 && accepted > differ / 3);
    assert_true(kh_mutate_gguf((uint8_t[]){ 1, 2 }, 2, 2, 7) == 0);
    assert_true(kh_mutate_json((uint8_t[]){ ' ', ',' }, 2, 2, 7) == 0);
}

/* A backslash as the last byte escapes nothing that is there. */
static void mutants_stay_within_their_text(void **state) {
    (void)state;
    static const char *const CUT[] = { "a\"\\", "[a\"\\", "\"\\", "{\"k\":1\"\\" };
    for (int i = 0; i < 4; i++)
        for (unsigned seed = 0; seed < 200; seed++) {
            uint8_t bytes[32] = { 0 };
            size_t n = strlen(CUT[i]);
            memcpy(bytes, CUT[i], n);
            assert_true(kh_mutate_json(bytes, n, 16, seed) <= 16);
            assert_int_equal(bytes[16], 0);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_target_is_replayed),
#define ROW(name, slow) cmocka_unit_test(test_##name),
        TARGETS(ROW) cmocka_unit_test(mutants_are_often_well_formed),
        cmocka_unit_test(mutants_stay_within_their_text) };
    return cmocka_run_group_tests_name("fuzz", tests, NULL, NULL);
}
