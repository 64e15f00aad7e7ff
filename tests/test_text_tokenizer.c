/* test_text_tokenizer.c - the golden vectors of tests/vectors/tokenizers: every small tokenizer and
 * every line of its answers, made by Hugging Face's own library. One line that differs fails the
 * test of its file and is printed. */
#include "golden.h"

#include "base/err.h"
#include "text/tokenizer.h"

#include <glob.h>

/* -------------------------------------------------------------------------------- golden files */

static void test_golden(void **state) {
    golden_file(*state, "tests/vectors/tokenizers/%s.json", "tests/vectors/tokenizers/%s.jsonl");
}

/* The same answers from the older files. */
static void test_tiny_bpe_from_vocab_and_merges(void **state) {
    (void)state;
    golden_file("tiny-bpe", "tests/vectors/tokenizers/%s", "tests/vectors/tokenizers/%s.jsonl");
    golden_file(
        "tiny-bpe", "tests/vectors/tokenizers/%s/vocab.json", "tests/vectors/tokenizers/%s.jsonl");
    golden_file(
        "tiny-bpe", "tests/vectors/tokenizers/%s/merges.txt", "tests/vectors/tokenizers/%s.jsonl");
}

static void test_tiny_wordpiece_from_vocab_txt(void **state) {
    (void)state;
    golden_file(
        "tiny-wordpiece", "tests/vectors/tokenizers/%s", "tests/vectors/tokenizers/%s.jsonl");
    golden_file("tiny-wordpiece", "tests/vectors/tokenizers/%s/vocab.txt",
        "tests/vectors/tokenizers/%s.jsonl");
}

/* ---------------------------------------------------------------------------------------- main */

int main(void) {
    glob_t found;
    if (glob("tests/vectors/tokenizers/*.json", 0, NULL, &found) != 0)
        return 1;
    struct CMUnitTest *tests = calloc(found.gl_pathc + 8, sizeof *tests);
    size_t n = 0;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *name = strrchr(found.gl_pathv[i], '/') + 1;
        if (strcmp(name, "texts.json") == 0)
            continue;
        char *stem = strndup(name, strlen(name) - strlen(".json"));
        tests[n++] = (struct CMUnitTest){ stem, test_golden, NULL, NULL, stem };
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_tiny_bpe_from_vocab_and_merges);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_tiny_wordpiece_from_vocab_txt);
    int failed = _cmocka_run_group_tests("tokenizer golden vectors", tests, n, NULL, NULL);
    for (size_t i = 0; i < n; i++)
        free(tests[i].initial_state);
    free(tests);
    globfree(&found);
    return failed;
}
