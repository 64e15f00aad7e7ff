/* test_text_real.c - four real tokenizers, on all texts of the golden vectors and on every test row
 * of nine data sets. The tokenizers and the data are not ours to redistribute: without ../shared
 * these tests are skipped. */
#include "golden.h"

#include "base/map.h"

static void test_real(void **state) {
    const char *name = *state;
    char path[256];
    snprintf(path, sizeof path, "../shared/tokenizers/%s/tokenizer.json", name);
    if (access(path, R_OK) != 0)
        test_skip("%s is not there", path);
    golden_file(name, "../shared/tokenizers/%s", "tests/vectors/tokenizers/real-%s.jsonl");
}

static void test_roberta_from_vocab_and_merges(void **state) {
    (void)state;
    test_needs_shared("tokenizers/roberta-base/vocab.json");
    golden_file("roberta-base", "../shared/tokenizers/%s/vocab.json",
        "tests/vectors/tokenizers/real-%s.jsonl");
}

static void test_bert_from_vocab_txt(void **state) {
    (void)state;
    test_needs_shared("tokenizers/bert-base-uncased/vocab.txt");
    golden_file("bert-base-uncased", "../shared/tokenizers/%s/vocab.txt",
        "tests/vectors/tokenizers/real-%s.jsonl");
}

/* ------------------------------------------------------------------------------------ all rows */

/* Adds the ids of the fields after the label to the hash. */
static uint64_t hash_row(const kh_tokenizer *t, const char *row, size_t n, uint64_t hash) {
    kh_ids ids = { 0 };
    kh_err err;
    const char *field = memchr(row, '\t', n), *end = row + n;
    while (field) {
        const char *start = field + 1;
        field = memchr(start, '\t', (size_t)(end - start));
        ids.n = 0;
        assert_int_equal(kh_tokenizer_encode(t, start, (size_t)((field ? field : end) - start),
                             KH_ENCODE_FRAME, &ids, &err),
            0);
        for (int i = 0; i < ids.n; i++)
            hash = kh_hash64_more(hash,
                (unsigned char[]){ (unsigned char)ids.id[i], (unsigned char)(ids.id[i] >> 8),
                    (unsigned char)(ids.id[i] >> 16), (unsigned char)(ids.id[i] >> 24) },
                4);
        hash = kh_hash64_more(hash, "\xff\xff\xff\xff", 4);
    }
    kh_ids_free(&ids);
    return hash;
}

typedef struct rows {
    kh_buf text;
    char task[32];
    const char *at;
} rows;

static void open_rows(rows *r, const char *task) {
    char path[256];
    kh_err err;
    kh_buf_free(&r->text);
    snprintf(path, sizeof path, "../shared/data/%s/test.tsv", task);
    if (kh_file_read(path, 256 << 20, &r->text, &err) != 0)
        fail_msg("%s", err.msg);
    snprintf(r->task, sizeof r->task, "%s", task);
    r->at = strchr(r->text.data, '\n') + 1;
}

static void test_rows(void **state) {
    const char *name = *state;
    char path[256], line[256], task[32];
    kh_tokenizer *t;
    kh_err err;
    rows r = { 0 };
    int first, count, blocks = 0, wrong = 0;
    unsigned long long expected;
    test_needs_shared("data/README.md");
    snprintf(path, sizeof path, "../shared/tokenizers/%s", name);
    if (access(path, R_OK) != 0)
        test_skip("%s is not there", path);
    assert_int_equal(kh_tokenizer_open(&t, path, &err), 0);
    snprintf(path, sizeof path, "tests/vectors/tokenizers/rows-%s.txt", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        assert_int_equal(sscanf(line, "%31s %d %d %llx", task, &first, &count, &expected), 4);
        if (strcmp(task, r.task) != 0)
            open_rows(&r, task);
        uint64_t hash = KH_HASH64_START;
        for (int i = 0; i < count; i++) {
            const char *end = strchr(r.at, '\n');
            size_t n = end ? (size_t)(end - r.at) : strlen(r.at);
            hash = hash_row(t, r.at, n, hash);
            r.at += n + (end != NULL);
        }
        blocks++;
        if (hash != expected && ++wrong <= 5)
            printf("# %s %s: rows %d to %d differ\n", name, task, first, first + count - 1);
    }
    fclose(f);
    kh_buf_free(&r.text);
    kh_tokenizer_close(t);
    assert_true(blocks > 1000);
    assert_int_equal(wrong, 0);
}

/* --------------------------------------------------------------------------------------- parts */

static void test_parts(void **state) {
    static const struct {
        const char *name;
        int32_t mask, unk, pad, bos, eos;
        bool strips;
        int size;
    } expected[] = {
        { "roberta-base", 50264, 3, 1, 0, 2, true, 50265 },
        { "bert-base-uncased", 103, 100, 0, 101, 102, false, 30522 },
        { "gpt2", -1, 50256, -1, 50256, 50256, false, 50257 },
        { "babyberta", 0, 2, 1, 3, 4, true, 8192 },
    };
    (void)state;
    test_needs_shared("tokenizers/gpt2/tokenizer.json");
    for (size_t i = 0; i < 4; i++) {
        char path[256];
        kh_tokenizer *t;
        kh_err err;
        snprintf(path, sizeof path, "../shared/tokenizers/%s", expected[i].name);
        assert_int_equal(kh_tokenizer_open(&t, path, &err), 0);
        assert_int_equal(kh_tokenizer_size(t), expected[i].size);
        assert_int_equal(kh_tokenizer_special(t, KH_TOKEN_MASK), expected[i].mask);
        assert_int_equal(kh_tokenizer_special(t, KH_TOKEN_UNK), expected[i].unk);
        assert_int_equal(kh_tokenizer_special(t, KH_TOKEN_PAD), expected[i].pad);
        assert_int_equal(kh_tokenizer_special(t, KH_TOKEN_BOS), expected[i].bos);
        assert_int_equal(kh_tokenizer_special(t, KH_TOKEN_EOS), expected[i].eos);
        assert_int_equal(kh_tokenizer_strips(t, expected[i].mask, true), expected[i].strips);
        assert_false(kh_tokenizer_strips(t, expected[i].mask, false));
        kh_tokenizer_close(t);
    }
}

int main(void) {
    static char roberta[] = "roberta-base", gpt2[] = "gpt2", bert[] = "bert-base-uncased",
                baby[] = "babyberta";
    const struct CMUnitTest tests[] = {
        { "test_texts_roberta_base", test_real, NULL, NULL, roberta },
        { "test_texts_gpt2", test_real, NULL, NULL, gpt2 },
        { "test_texts_bert_base_uncased", test_real, NULL, NULL, bert },
        { "test_texts_babyberta", test_real, NULL, NULL, baby },
        cmocka_unit_test(test_roberta_from_vocab_and_merges),
        cmocka_unit_test(test_bert_from_vocab_txt),
        { "test_rows_roberta_base", test_rows, NULL, NULL, roberta },
        { "test_rows_gpt2", test_rows, NULL, NULL, gpt2 },
        { "test_rows_bert_base_uncased", test_rows, NULL, NULL, bert },
        { "test_rows_babyberta", test_rows, NULL, NULL, baby },
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests_name("real tokenizers", tests, NULL, NULL);
}
