/* test_train_corpus.c - text as training data: lines, windows, sampling without replacement, masks;
 * what is refused. */
#include "test.h"

#include "base/alloc.h"
#include "train/corpus.h"
#include "model/random_model.h"

#include <math.h>

static kh_tokenizer *tokenizer;
static kh_config config;

static int open_tokenizer(void **state) {
    (void)state;
    config = *kh_arch_find("roberta-tiny");
    assert_int_equal(
        kh_tokenizer_open(&tokenizer, "tests/vectors/tokenizers/tiny-bpe.json", NULL), 0);
    config.vocab = kh_tokenizer_size(tokenizer);
    return 0;
}

static int close_tokenizer(void **state) {
    (void)state;
    kh_tokenizer_close(tokenizer);
    return 0;
}

/* n lines, all different. */
static const char *write_lines(const char *name, int n) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    for (int i = 0; i < n; i++)
        kh_buf_printf(&b, "the boat number %d is lower than the newest of %d boats\n", i, 7 * i);
    const char *path = test_file(name, b.data, b.len);
    kh_buf_free(&b);
    return path;
}

static void read_corpus(kh_corpus *c, const char *path, double share) {
    kh_err err;
    const double one = 1;
    if (kh_corpus_read(c, tokenizer,
            &(kh_corpus_opts){ .file = &path, .weight = &one, .n_file = 1, .valid_share = share },
            &err) != 0)
        fail_msg("%s", err.msg);
}

static void lines_end_in_eos(void **state) {
    (void)state;
    kh_corpus c;
    const char *path = test_file("corpus.txt", "the boat\n\nnewest boats\nlast", 27);
    read_corpus(&c, path, 0);
    assert_int_equal(c.file[0].n_line, 3); /* the empty one is left out */
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(c.file[0].id[c.file[0].start[i + 1] - 1],
            kh_tokenizer_special(tokenizer, KH_TOKEN_EOS));
    assert_int_equal(c.held_out.n, 0);
    kh_corpus_free(&c);
    unlink(path);
}

static void held_out_lines_are_no_training_lines(void **state) {
    (void)state;
    kh_corpus c, twice;
    const char *path = write_lines("corpus.txt", 2000);
    read_corpus(&c, path, 0.1);
    assert_true(c.held_out.n_line > 120 && c.held_out.n_line < 280);
    assert_int_equal(c.held_out.n_line + c.file[0].n_line, 2000);
    kh_threads_set(1);
    read_corpus(&twice, path, 0.1); /* with another number of threads */
    kh_threads_set(0);
    assert_int_equal(twice.held_out.n, c.held_out.n);
    assert_memory_equal(twice.held_out.id, c.held_out.id, c.held_out.n * sizeof *c.held_out.id);
    kh_corpus_free(&c);
    kh_corpus_free(&twice);
    unlink(path);
}

/* Each window once in an epoch, whatever is drawn in between. */
static void an_epoch_holds_every_window_once(void **state) {
    (void)state;
    kh_corpus c;
    kh_window_sampler s;
    const char *path = write_lines("corpus.txt", 300);
    read_corpus(&c, path, 0);
    assert_int_equal(kh_window_sampler_init(&s, &c, 10, false, 3, 0, NULL), 0);
    size_t n = s.windows[0].n;
    int *seen = kh_calloc(n, sizeof *seen), file, different = 0;
    const kh_window *w;
    kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 0, 0);
    size_t *first = kh_calloc(n, sizeof *first);
    for (size_t i = 0; i < 2 * n; i++) {
        assert_int_equal(kh_window_sampler_next(&s, &r, &file, &w, NULL), 0);
        assert_true(w->n >= 4 && w->n <= 10);
        seen[w - s.windows[0].item]++;
        if (i < n)
            first[i] = w->at;
        else
            different += first[i - n] != w->at;
        for (size_t j = 0; i == n - 1 && j < n; j++)
            assert_int_equal(seen[j], 1);
    }
    assert_true(different > (int)n / 2); /* another order */
    kh_free(seen);
    kh_free(first);
    kh_window_sampler_free(&s);
    kh_corpus_free(&c);
    unlink(path);
}

static void windows_cover_their_lines(void **state) {
    (void)state;
    int32_t id[100] = { 0 };
    size_t start[] = { 0, 26, 29, 60 }; /* 25, 2 and 30 tokens and an EOS each */
    kh_lines l = { .id = id, .n = 60, .start = start, .n_line = 3 };
    kh_windows w = { 0 };
    assert_int_equal(kh_windows_make(&w, &l, 10, false, NULL), 0);
    assert_int_equal(w.n, 6); /* three pieces, none of the short line, three */
    assert_int_equal(w.item[0].n, 8);
    assert_int_equal(w.item[2].at + (size_t)w.item[2].n, 25);
    assert_int_equal(w.item[3].at, 29);
    assert_int_equal(w.item[3].n, 10);
    kh_free(w.item);
    w = (kh_windows){ 0 };
    assert_int_equal(kh_windows_make(&w, &l, 25, true, NULL), 0);
    assert_int_equal(w.n, 3);
    assert_int_equal(w.item[2].at, 50);
    assert_int_equal(w.item[2].n, 9); /* the last EOS is the sequence's own */
    kh_free(w.item);
}

/* --------------------------------------------------------------------------------------- masks */

static void masks_keep_their_shares(void **state) {
    (void)state;
    enum { SEQ = 2000, LEN = 20 };
    kh_masker m;
    kh_masked b = { 0 };
    int32_t id[LEN];
    assert_int_equal(kh_masker_init(&m, tokenizer, &config, 0.15, false, NULL), 0);
    for (int i = 0; i < LEN; i++)
        id[i] = 50 + i;
    for (int s = 0; s < SEQ; s++) {
        kh_rng r = kh_rng_stream(2, KH_RNG_MASK, 0, (uint32_t)s);
        assert_int_equal(kh_masked_add(&b, &m, id, LEN, &r, NULL), 0);
    }
    assert_int_equal(kh_masked_tokens(&b), SEQ * (LEN + 2));
    assert_int_equal(kh_masked_targets(&b), SEQ * 3);
    int masked = 0, same = 0, places[LEN] = { 0 };
    for (int i = 0; i < SEQ * 3; i++) {
        int at = b.at[i] % (LEN + 2);
        assert_int_equal(b.target[i], id[at - 1]);
        assert_true(i == 0 || b.at[i] > b.at[i - 1]);
        masked += b.slot[b.at[i]].id == m.mask;
        same += b.slot[b.at[i]].id == b.target[i];
        places[at - 1]++;
    }
    assert_true(abs(masked - 4800) < 150 && abs(same - 600) < 100);
    for (int i = 0; i < LEN; i++)
        assert_true(abs(places[i] - 300) < 80);
    for (int i = 0; i < LEN + 2; i++) {
        assert_int_equal(b.slot[i].position, config.first_position + i);
        assert_int_equal(b.slot[i].embedded, -1);
    }
    assert_int_equal(b.slot[0].id, m.bos);
    assert_int_equal(b.slot[LEN + 1].id, m.eos);
    kh_masked_free(&b);
    kh_masker_free(&m);
}

/* All tokens of a word or none, and never a special token. */
static void whole_words(void **state) {
    (void)state;
    kh_masker m;
    kh_masked b = { 0 };
    kh_ids ids = { 0 };
    const char text[] = "newest boats lower than the unbelievably numbered 12345 ones";
    assert_int_equal(kh_masker_init(&m, tokenizer, &config, 0.3, true, NULL), 0);
    assert_int_equal(kh_tokenizer_encode(tokenizer, text, strlen(text), 0, &ids, NULL), 0);
    assert_int_equal(kh_tokenizer_special(tokenizer, KH_TOKEN_EOS), m.eos);
    ids.id[ids.n / 2] = m.eos; /* as between joined lines */
    for (uint32_t s = 0; s < 200; s++) {
        kh_rng r = kh_rng_stream(2, KH_RNG_MASK, 0, s);
        bool chosen[200] = { false };
        kh_masked_clear(&b);
        assert_int_equal(kh_masked_add(&b, &m, ids.id, ids.n, &r, NULL), 0);
        assert_true(kh_masked_targets(&b) > 0);
        for (int i = 0; i < kh_masked_targets(&b); i++) {
            chosen[b.at[i] - 1] = true;
            assert_int_not_equal(b.target[i], m.eos);
        }
        for (int i = 1; i < ids.n; i++)
            if (!m.starts[ids.id[i]] && ids.id[i] != m.eos && ids.id[i - 1] != m.eos)
                assert_int_equal(chosen[i], chosen[i - 1]);
    }
    kh_ids_free(&ids);
    kh_masked_free(&b);
    kh_masker_free(&m);
}

/* ------------------------------------------------------------------------------------ refusals */

static void refusals(void **state) {
    (void)state;
    kh_err err;
    kh_corpus c;
    const double one = 1;
    const char *path = test_file("xz.txt", "\xFD\x37zXZ\0rest", 10);
    kh_corpus_opts o = { .file = &path, .weight = &one, .n_file = 1 };
    assert_int_equal(kh_corpus_read(&c, tokenizer, &o, &err), KH_EUNSUPPORTED);
    assert_says(&err, "is compressed, expected plain text");
    kh_corpus_free(&c);
    unlink(path);
    path = test_file("empty.txt", "\n\n", 2);
    assert_int_equal(kh_corpus_read(&c, tokenizer, &o, &err), KH_EFORMAT);
    assert_says(&err, "holds no text to train on");
    kh_corpus_free(&c);
    unlink(path);
    path = "/nonexistent.txt";
    assert_int_equal(kh_corpus_read(&c, tokenizer, &o, &err), KH_EMISSING);
    kh_corpus_free(&c);
    path = test_file("short.txt", "a\n", 2);
    assert_int_equal(kh_corpus_read(&c, tokenizer, &o, &err), 0);
    kh_window_sampler s;
    assert_int_equal(kh_window_sampler_init(&s, &c, 10, false, 0, 0, &err), KH_EARG);
    assert_says(&err, "holds no line of 4 tokens or more");
    kh_window_sampler_free(&s);
    kh_corpus_free(&c);
    unlink(path);
    kh_masker m;
    kh_config small = config;
    small.vocab = 10;
    assert_int_equal(kh_masker_init(&m, tokenizer, &small, 0.15, false, &err), KH_EMISMATCH);
    assert_says(&err, "but the model has room for 10");
    kh_masker_free(&m);
}

static int use_everything(const char *path, kh_err *err) {
    const double one = 1;
    kh_corpus c = { 0 };
    kh_window_sampler s = { 0 };
    kh_masker m = { 0 };
    kh_masked b = { 0 };
    const kh_window *w;
    int file,
        rc = kh_corpus_read(&c, tokenizer,
            &(kh_corpus_opts){ .file = &path, .weight = &one, .n_file = 1, .valid_share = 0.3 },
            err);
    kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 0, 0);
    if (rc == 0)
        rc = kh_window_sampler_init(&s, &c, 10, false, 1, 0, err);
    if (rc == 0)
        rc = kh_masker_init(&m, tokenizer, &config, 0.15, true, err);
    if (rc == 0)
        rc = kh_window_sampler_next(&s, &r, &file, &w, err);
    if (rc == 0)
        rc = kh_masked_add(&b, &m, c.file[0].id + w->at, w->n, &r, err);
    kh_masked_free(&b);
    kh_masker_free(&m);
    kh_window_sampler_free(&s);
    kh_corpus_free(&c);
    return rc;
}

static void out_of_memory(void **state) {
    (void)state;
    kh_err err;
    const char *path = write_lines("corpus.txt", 6);
    kh_threads_set(1);
    int rc = KH_ENOMEM;
    for (long n = 1; rc != 0; n++) {
        kh_alloc_fail_at(n, false);
        rc = use_everything(path, &err);
        kh_alloc_fail_at(0, false);
        assert_true(rc == 0 || rc == KH_ENOMEM);
        assert_true(n < 2000);
    }
    kh_threads_set(0);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_end_in_eos),
        cmocka_unit_test(held_out_lines_are_no_training_lines),
        cmocka_unit_test(an_epoch_holds_every_window_once),
        cmocka_unit_test(windows_cover_their_lines),
        cmocka_unit_test(masks_keep_their_shares),
        cmocka_unit_test(whole_words),
        cmocka_unit_test(refusals),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
