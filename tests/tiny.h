/* tiny.h - a tiny random model in a folder of its own, a task for it and rows: for tests that need
 * a box to ask. */
#ifndef KH_TEST_TINY_H
#define KH_TEST_TINY_H

#include "test.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "model/random_model.h"

#define TINY_TOKENIZER "tests/vectors/tokenizers/tiny-bpe.json"

static char tiny_dir[80], tiny_other[80];

/* Weights large enough to have opinions. */
static inline void tiny_write(
    char *dir, const char *name, const char *arch, uint64_t seed, int hidden) {
    snprintf(dir, sizeof tiny_dir, "/tmp/keyhole-test-%s-%ld", name, (long)getpid());
    kh_random_opts r = {
        .config = *kh_arch_find(arch), .dtype = KH_DTYPE_F32, .std = 0.3, .seed = seed
    };
    kh_tokenizer *t;
    assert_int_equal(kh_tokenizer_open(&t, TINY_TOKENIZER, NULL), 0);
    r.config.vocab = kh_tokenizer_size(t);
    r.config.hidden = hidden;
    kh_tokenizer_close(t);
    assert_int_equal(kh_random_model_write(dir, &r, NULL), 0);
    kh_buf bytes;
    char *to = kh_path_join(dir, "tokenizer.json");
    assert_int_equal(kh_file_read(TINY_TOKENIZER, 1 << 20, &bytes, NULL), 0);
    assert_int_equal(kh_file_write(to, bytes.data, bytes.len, NULL), 0);
    kh_buf_free(&bytes);
    kh_free(to);
}

static inline void tiny_remove(const char *dir, const char *const *files) {
    for (; *files; files++) {
        char *path = kh_path_join(dir, *files);
        unlink(path);
        kh_free(path);
    }
    rmdir(dir);
}

/* Group fixtures: tiny_dir holds a model, tiny_other one with other weights. */
static inline int tiny_setup(void **state) {
    (void)state;
    tiny_write(tiny_dir, "tiny", "roberta-tiny", 5, 32);
    tiny_write(tiny_other, "other", "roberta-tiny", 6, 32);
    return 0;
}

static inline int tiny_teardown(void **state) {
    (void)state;
    static const char *const FILES[] = { "config.json", "model.safetensors", "tokenizer.json",
        NULL };
    tiny_remove(tiny_dir, FILES);
    tiny_remove(tiny_other, FILES);
    return 0;
}

static inline kh_plm *tiny_open(kh_access access) {
    kh_plm *plm;
    kh_err err;
    if (kh_plm_open(&plm, tiny_dir, &(kh_plm_opts){ .access = access }, &err) != 0)
        fail_msg("%s", err.msg);
    return plm;
}

static const char TINY_TASK[] = "{\"name\":\"toy\",\"template\":\"{text} It was {mask} "
                                ".\",\"labels\":[{\"name\":\"bad\",\"words\":[\"lower\"]},"
                                "{\"name\":\"good\",\"words\":[\"better\"]}]}";

static inline const kh_task *tiny_task(void) {
    const kh_task *task;
    kh_err err;
    if (kh_task_parse(&task, TINY_TASK, sizeof TINY_TASK - 1, "toy.json", &err) != 0)
        fail_msg("%s", err.msg);
    return task;
}

/* n rows of two classes in turn, different for every seed; only_class >= 0: all rows of that class.
 */
static inline kh_dataset *tiny_rows(int n, uint64_t seed, int only_class) {
    kh_rng r = kh_rng_stream(seed, KH_RNG_TEST, 9, 0);
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_buf_text(&b, "label\ttext\n");
    for (int i = 0; i < n; i++)
        kh_buf_printf(&b, "%d\tthe boats number %u were %s\n", only_class >= 0 ? only_class : i % 2,
            kh_rng_below(&r, 10000), i % 2 ? "green" : "small");
    kh_dataset *d;
    kh_err err;
    if (kh_dataset_parse(&d, b.data, b.len, "rows.tsv", NULL, &err) != 0)
        fail_msg("%s", err.msg);
    kh_buf_free(&b);
    return d;
}

/* A small space that fits the model. */
static inline kh_space_opts tiny_space(void) {
    kh_space_opts o = kh_space_defaults();
    o.dim = 12;
    o.slots = 5;
    o.p0 = KH_P0_RANDOM;
    return o;
}

#endif
