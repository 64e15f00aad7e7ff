/* test_fuzz.c - the fuzz targets without a fuzzer: every input in fuzz/corpus, and some inputs made of it by damage that is the
 * same every time. Whatever a fuzzer has ever found is kept there, so that it stays found. */
#include "test.h"

#include "base/file.h"
#include "base/rng.h"

#include <dirent.h>

/* Compiled with LLVMFuzzerTestOneInput by the name of its file. */
#define TARGETS(X)                                                                                                                 \
    X(fuzz_cmaes)                                                                                                                  \
    X(fuzz_config)                                                                                                                 \
    X(fuzz_dataset)                                                                                                                \
    X(fuzz_decisions)                                                                                                              \
    X(fuzz_encode)                                                                                                                 \
    X(fuzz_journal)                                                                                                                \
    X(fuzz_posterior)                                                                                                              \
    X(fuzz_predictions)                                                                                                            \
    X(fuzz_request_answer)                                                                                                         \
    X(fuzz_request_embeds)                                                                                                         \
    X(fuzz_request_score)                                                                                                          \
    X(fuzz_request_server)                                                                                                         \
    X(fuzz_response)                                                                                                               \
    X(fuzz_safetensors)                                                                                                            \
    X(fuzz_task)                                                                                                                   \
    X(fuzz_tokenizer_json)                                                                                                         \
    X(fuzz_vocab)

typedef int target(const uint8_t *data, size_t n);
#define DECLARE(name) target name;
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

static void give(target *one, const char *bytes, size_t n) {
    char *exact = malloc(n ? n : 1); /* of the very size, for AddressSanitizer */
    if (n)
        memcpy(exact, bytes, n);
    one((const uint8_t *)exact, n);
    free(exact);
}

static void replay(const char *name, target *one) {
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
        kh_buf_free(&bytes);
        n++;
    }
    closedir(d);
    assert_true(n > 0);
}

#define TEST(name)                                                                                                                 \
    static void test_##name(void **state) {                                                                                        \
        (void)state;                                                                                                               \
        replay(#name, name);                                                                                                       \
    }
TARGETS(TEST)

/* A target that is not in the list above would be forgotten here. */
static void every_target_is_replayed(void **state) {
    (void)state;
#define NAME(name) " " #name " "
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

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_target_is_replayed),
#define ROW(name) cmocka_unit_test(test_##name),
        TARGETS(ROW) };
    return cmocka_run_group_tests_name("fuzz", tests, NULL, NULL);
}
