/* test_plm.c - the black box: what each access level lets out, what the meter counts, and that
 * early rejection changes nothing but the bill. */
#include "test.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "model/engine.h"
#include "model/random_model.h"
#include "plm/backend.h"
#include "plm/answer_cache.h"

#include <math.h>
#include <sys/stat.h>

enum { SLOTS = 4, PROMPTS = 12, ROWS = 30 };
static char dir[64];

/* A tiny random model with weights large enough to have opinions, and a tokenizer beside it. */
static int make_model(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/keyhole-test-plm-%ld", (long)getpid());
    kh_random_opts r = {
        .config = *kh_arch_find("roberta-tiny"), .dtype = KH_DTYPE_F32, .std = 0.3, .seed = 5
    };
    kh_tokenizer *t;
    assert_int_equal(kh_tokenizer_open(&t, "tests/vectors/tokenizers/tiny-bpe.json", NULL), 0);
    r.config.vocab = kh_tokenizer_size(t);
    kh_tokenizer_close(t);
    assert_int_equal(kh_random_model_write(dir, &r, NULL), 0);
    kh_buf bytes;
    char *to = kh_path_join(dir, "tokenizer.json");
    assert_int_equal(
        kh_file_read("tests/vectors/tokenizers/tiny-bpe.json", 1 << 20, &bytes, NULL), 0);
    assert_int_equal(kh_file_write(to, bytes.data, bytes.len, NULL), 0);
    kh_buf_free(&bytes);
    kh_free(to);
    return 0;
}

static int drop_model(void **state) {
    (void)state;
    static const char *const FILES[] = { "config.json", "model.safetensors", "tokenizer.json" };
    for (int i = 0; i < 3; i++) {
        char *path = kh_path_join(dir, FILES[i]);
        unlink(path);
        kh_free(path);
    }
    return rmdir(dir);
}

/* Everything that a question needs. */
typedef struct setup {
    kh_plm *box;
    const kh_task *task;
    kh_words *words;
    kh_batch *batch;
    float *prompt;
    kh_question q;
} setup;

static const char TASK[] =
    "{\"name\":\"toy\",\"template\":\"{text} It was {mask} "
    ".\",\"labels\":[{\"name\":\"bad\",\"words\":[\"a\"]},"
    "{\"name\":\"good\",\"words\":[\"e\"]},{\"name\":\"odd\",\"words\":[\"t\"]}]}";

static setup setup_new(kh_access access, kh_precision precision) {
    setup s = { 0 };
    kh_err err = { 0 };
    char text[ROWS][64];
    kh_row row[ROWS];
    kh_rng r = kh_rng_stream(2, KH_RNG_TEST, 0, 0);
    for (int i = 0; i < ROWS; i++) {
        int n = snprintf(text[i], sizeof text[i], "row %d of %u", i, kh_rng_below(&r, 100000));
        row[i] = (kh_row){ .a = text[i], .n_a = (size_t)n, .label = i % 3 };
    }
    static int32_t slot_id[SLOTS] = { 20, 21, 22, 23 };
    kh_batch_opts o = { .n_slot = SLOTS, .slot_id = slot_id };
    if (kh_plm_open(
            &s.box, dir, &(kh_plm_opts){ .access = access, .precision = precision }, &err) != 0 ||
        kh_task_parse(&s.task, TASK, sizeof TASK - 1, "toy.json", &err) != 0 ||
        kh_words_new(&s.words, s.task, kh_plm_tokenizer(s.box), true, &err) != 0)
        fail_msg("%s", err.msg);
    kh_plm_info info = kh_plm_describe(s.box);
    o.max_len = info.max_len;
    if (kh_batch_encode(&s.batch, kh_plm_tokenizer(s.box), s.task, s.words, row, ROWS, &o, &err) !=
        0)
        fail_msg("%s", err.msg);
    size_t n = (size_t)PROMPTS * SLOTS * (size_t)info.hidden;
    s.prompt = malloc(n * sizeof *s.prompt);
    for (size_t i = 0; i < n; i++)
        s.prompt[i] = 3 * (float)kh_rng_normal(&r);
    s.q = (kh_question){ s.batch, s.words, KH_INJECT_POST_LN_ADD, s.prompt, PROMPTS };
    return s;
}

static void setup_free(setup *s) {
    free(s->prompt);
    kh_batch_free(s->batch);
    kh_words_free(s->words);
    kh_task_close(s->task);
    kh_plm_close(s->box);
}

static void a_box_of_labels_has_no_scorer(void **state) {
    (void)state;
    kh_err err = { 0 };
    setup s = setup_new(KH_ACCESS_LABELS, KH_F32);
    assert_null(kh_plm_scorer(s.box, &err));
    assert_int_equal(err.code, KH_EUNSUPPORTED);
    assert_says(&err,
        "the box was opened at access level labels, which does not let probabilities out; this "
        "needs logprobs");
    assert_non_null(kh_plm_labeler(s.box, &err));
    assert_false(kh_plm_describe(s.box).energy);
    setup_free(&s);
}

static void scores_are_log_probabilities_and_answers_their_best(void **state) {
    (void)state;
    setup s = setup_new(KH_ACCESS_LOGPROBS, KH_F32);
    float logprob[PROMPTS * ROWS * 3];
    int label[PROMPTS * ROWS], seen[3] = { 0 };
    assert_int_equal(kh_plm_score(kh_plm_scorer(s.box, NULL), &s.q, logprob, NULL), 0);
    assert_int_equal(kh_plm_answer(kh_plm_labeler(s.box, NULL), &s.q, label, NULL), 0);
    for (int i = 0; i < PROMPTS * ROWS; i++) {
        const float *p = logprob + 3 * i;
        assert_true(fabs(exp(p[0]) + exp(p[1]) + exp(p[2]) - 1) < 1e-6);
        for (int k = 0; k < 3; k++)
            assert_true(p[label[i]] >= p[k]);
        seen[label[i]]++;
    }
    assert_true(seen[0] && seen[1] && seen[2]); /* the model does have opinions */
    setup_free(&s);
}

static void the_meter_counts_what_was_asked(void **state) {
    (void)state;
    setup s = setup_new(KH_ACCESS_LABELS, KH_F32);
    int label[PROMPTS * ROWS];
    assert_int_equal(kh_plm_meter(s.box).queries, 0);
    assert_int_equal(kh_plm_answer(kh_plm_labeler(s.box, NULL), &s.q, label, NULL), 0);
    kh_meter m = kh_plm_meter(s.box);
    assert_int_equal(m.calls, 1);
    assert_int_equal(m.prompts, PROMPTS);
    assert_int_equal(m.queries, PROMPTS * ROWS);
    assert_int_equal(m.tokens, PROMPTS * (long long)s.batch->start[s.batch->n_seq]);
    assert_true(m.seconds > 0);
    setup_free(&s);
}

/* For many allowances, chunks and orders: prompts within theirs have all their answers and exact
 * errors; others have the answers of the chunks up to the one that broke it, and the bill is what
 * that makes. */
static void early_rejection_changes_only_the_bill(void **state) {
    (void)state;
    setup s = setup_new(KH_ACCESS_LABELS, KH_F32);
    kh_labeler *l = kh_plm_labeler(s.box, NULL);
    int all[PROMPTS * ROWS], some[PROMPTS * ROWS], errors[PROMPTS], allowance[PROMPTS], order[ROWS],
        plain[ROWS];
    assert_int_equal(kh_plm_answer(l, &s.q, all, NULL), 0);
    kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 0, 0);
    kh_rng_permutation(&r, order, ROWS);
    for (int i = 0; i < ROWS; i++)
        plain[i] = i;
    for (int least = 0; least <= ROWS; least += 3)
        for (int chunk = 1; chunk <= ROWS + 5; chunk += 7) {
            bool shuffled = chunk % 2;
            const int *by = shuffled ? order : plain;
            long long before = kh_plm_meter(s.box).queries, bill = 0;
            for (int p = 0; p < PROMPTS; p++)
                allowance[p] = least + p % 2;
            kh_patience patience = { allowance, shuffled ? order : NULL, chunk };
            assert_int_equal(kh_plm_answer_within(l, &s.q, &patience, errors, some, NULL), 0);
            for (int p = 0; p < PROMPTS; p++) {
                int wrong = 0, asked = 0;
                for (int first = 0; first < ROWS && wrong <= allowance[p]; first += chunk)
                    for (int i = first; i < first + chunk && i < ROWS; i++, asked++)
                        wrong += all[p * ROWS + by[i]] != s.batch->label[by[i]];
                assert_int_equal(errors[p], wrong);
                for (int i = 0; i < ROWS; i++)
                    assert_int_equal(
                        some[p * ROWS + by[i]], i < asked ? all[p * ROWS + by[i]] : -1);
                bill += asked;
            }
            assert_int_equal(kh_plm_meter(s.box).queries - before, bill);
        }
    kh_patience patience = { allowance, NULL, 0 }; /* the default chunk, no labels wanted */
    assert_int_equal(kh_plm_answer_within(l, &s.q, &patience, errors, NULL, NULL), 0);
    setup_free(&s);
}

/* How many rows a prompt is asked about if it is asked no further than the one that breaks its
 * allowance, in the order in which they stand. */
static int rows_until_out(const int *answer, const int *label, int allowance) {
    int wrong = 0, asked = 0;
    for (; asked < ROWS && wrong <= allowance; asked++)
        wrong += answer[asked] != label[asked];
    return asked;
}

/* Looks that the allowances time: nobody can be out before them, and nobody who is out is asked
 * again, or with -2 about one row at most; in fewer calls than with a look after every row. */
static void looks_may_be_timed_by_the_allowance(void **state) {
    (void)state;
    setup s = setup_new(KH_ACCESS_LABELS, KH_F32);
    kh_labeler *l = kh_plm_labeler(s.box, NULL);
    int all[PROMPTS * ROWS], some[PROMPTS * ROWS], errors[PROMPTS], allowance[PROMPTS];
    long long calls[2] = { 0, 0 };
    assert_int_equal(kh_plm_answer(l, &s.q, all, NULL), 0);
    for (int least = 0; least <= ROWS; least++)
        for (int chunk = -2; chunk <= 1; chunk += chunk == -1 ? 2 : 1) {
            kh_meter before = kh_plm_meter(s.box);
            long long bill = 0;
            for (int p = 0; p < PROMPTS; p++)
                allowance[p] = least + p % 2;
            kh_patience patience = { allowance, NULL, chunk };
            assert_int_equal(kh_plm_answer_within(l, &s.q, &patience, errors, some, NULL), 0);
            for (int p = 0; p < PROMPTS; p++) {
                int asked = 0, wrong = 0,
                    need = rows_until_out(all + p * ROWS, s.batch->label, allowance[p]);
                for (; asked < ROWS && some[p * ROWS + asked] >= 0; asked++) {
                    assert_int_equal(some[p * ROWS + asked], all[p * ROWS + asked]);
                    wrong += all[p * ROWS + asked] != s.batch->label[asked];
                }
                assert_int_equal(errors[p], wrong);
                assert_true(asked >= need && asked <= need + (chunk == -2));
                bill += asked;
            }
            assert_int_equal(kh_plm_meter(s.box).queries - before.queries, bill);
            if (chunk != -2)
                calls[chunk == 1] += kh_plm_meter(s.box).calls - before.calls;
        }
    assert_true(calls[0] < calls[1]);
    setup_free(&s);
}

static void answers_do_not_depend_on_threads_or_precision_name(void **state) {
    (void)state;
    for (int precision = KH_F32; precision <= KH_PRECISION_AUTO; precision++) {
        setup s = setup_new(KH_ACCESS_LOGPROBS, (kh_precision)precision);
        static float one[PROMPTS * ROWS * 3], two[PROMPTS * ROWS * 3];
        kh_threads_set(1);
        assert_int_equal(kh_plm_score(kh_plm_scorer(s.box, NULL), &s.q, one, NULL), 0);
        kh_threads_set(2);
        assert_int_equal(kh_plm_score(kh_plm_scorer(s.box, NULL), &s.q, two, NULL), 0);
        kh_threads_set(0);
        assert_memory_equal(one, two, sizeof one);
        assert_string_not_equal(kh_plm_describe(s.box).precision, "auto");
        assert_string_equal(kh_plm_describe(s.box).backend, "native");
        setup_free(&s);
    }
}

static float scores[2][PROMPTS * ROWS * 3], energies[2][PROMPTS * ROWS];

/* By hand: -log of the sum of exp over the raw logits of the engine. */
static void energies_are_those_of_the_raw_logits(void **state) {
    (void)state;
    setup s = setup_new(KH_ACCESS_LOGPROBS, KH_F32);
    static float raw[PROMPTS * ROWS * 3];
    assert_true(kh_plm_describe(s.box).energy);
    assert_int_equal(kh_engine_score(kh_plm_engine(s.box), &s.q, raw, NULL), 0);
    assert_int_equal(kh_plm_score(kh_plm_scorer(s.box, NULL), &s.q, scores[0], NULL), 0);
    assert_int_equal(
        kh_plm_score_energy(kh_plm_scorer(s.box, NULL), &s.q, scores[1], energies[0], NULL), 0);
    assert_memory_equal(
        scores[0], scores[1], sizeof scores[0]); /* not a bit of the log-probabilities */
    double least = INFINITY, most = -INFINITY;
    for (int i = 0; i < PROMPTS * ROWS; i++) {
        const float *x = raw + 3 * i;
        double want = -log(exp((double)x[0]) + exp((double)x[1]) + exp((double)x[2]));
        assert_true(fabs((double)energies[0][i] - want) < 1e-6 * (1 + fabs(want)));
        least = fmin(least, want), most = fmax(most, want);
    }
    assert_true(most - least > 0.1); /* rows and prompts do differ */
    setup_free(&s);
}

static void energies_depend_on_neither_threads_nor_neighbours(void **state) {
    (void)state;
    setup s = setup_new(KH_ACCESS_LOGPROBS, KH_F32);
    kh_scorer *scorer = kh_plm_scorer(s.box, NULL);
    kh_threads_set(1);
    assert_int_equal(kh_plm_score_energy(scorer, &s.q, scores[0], energies[0], NULL), 0);
    kh_threads_set(2);
    assert_int_equal(kh_plm_score_energy(scorer, &s.q, scores[1], energies[1], NULL), 0);
    kh_threads_set(0);
    assert_memory_equal(energies[0], energies[1], sizeof energies[0]);
    for (int first = 0; first < ROWS; first += 7) {
        kh_batch some = kh_batch_part(s.batch, first, ROWS - first < 7 ? ROWS - first : 7);
        kh_question q = { &some, s.words, s.q.inject, s.prompt, PROMPTS };
        assert_int_equal(kh_plm_score_energy(scorer, &q, scores[1], energies[1], NULL), 0);
        for (int p = 0; p < PROMPTS; p++)
            assert_memory_equal(energies[1] + p * some.n_row, energies[0] + p * ROWS + first,
                (size_t)some.n_row * sizeof(float));
    }
    setup_free(&s);
}

/* A journal in memory. */
typedef struct memory_tape {
    kh_answer_key key[256];
    unsigned char bytes[256][64 * 4 * 4];
    kh_answer_kind kind[256];
    int n;
} memory_tape;

static bool never(void *self) { return !self; }
static int find(const memory_tape *t, const kh_answer_key *key) {
    int i = 0;
    while (i < t->n && (t->key[i].lo != key->lo || t->key[i].hi != key->hi))
        i++;
    return i < t->n ? i : -1;
}
static bool known(void *self, const kh_answer_key *key) { return find(self, key) >= 0; }
static int recall(
    void *self, const kh_answer_key *key, void *bytes, size_t n, double *seconds, kh_err *err) {
    memory_tape *t = self;
    int i = find(t, key);
    (void)err;
    *seconds = 0;
    if (i >= 0)
        memcpy(bytes, t->bytes[i], n);
    return i >= 0;
}
static int record(void *self, const kh_answer_unit *u, int n, kh_err *err) {
    memory_tape *t = self;
    (void)err;
    for (int i = 0; i < n; i++, t->n++) {
        assert_true(t->n < 256 && u[i].n <= sizeof t->bytes[0]);
        t->key[t->n] = u[i].key;
        t->kind[t->n] = u[i].kind;
        memcpy(t->bytes[t->n], u[i].bytes, u[i].n);
    }
    return 0;
}

static void energies_are_kept_on_a_tape(void **state) {
    (void)state;
    setup s = setup_new(KH_ACCESS_LOGPROBS, KH_F32);
    kh_scorer *scorer = kh_plm_scorer(s.box, NULL);
    memory_tape *memory = calloc(1, sizeof *memory);
    kh_answer_cache cache = { never, known, recall, record, memory, NULL };
    assert_int_equal(kh_plm_score_energy(scorer, &s.q, scores[0], energies[0], NULL), 0);
    kh_plm_set_cache(s.box, &cache);
    for (int turn = 0; turn < 2; turn++) {
        long long calls = kh_plm_meter(s.box).calls;
        memset(scores[1], 0, sizeof scores[1]);
        memset(energies[1], 0, sizeof energies[1]);
        assert_int_equal(kh_plm_score_energy(scorer, &s.q, scores[1], energies[1], NULL), 0);
        assert_memory_equal(scores[0], scores[1], sizeof scores[0]);
        assert_memory_equal(energies[0], energies[1], sizeof energies[0]);
        assert_true((kh_plm_meter(s.box).calls > calls) ==
            (turn == 0)); /* the second time nobody is asked */
    }
    assert_int_equal(memory->n, PROMPTS);
    assert_string_equal(kh_answer_kind_name(memory->kind[0]), "energies");
    assert_int_equal(kh_plm_score(scorer, &s.q, scores[1], NULL),
        0); /* another question, with an entry of its own */
    assert_int_equal(memory->n, 2 * PROMPTS);
    assert_string_equal(kh_answer_kind_name(memory->kind[PROMPTS]), "logprobs");
    kh_plm_set_cache(s.box, NULL);
    free(memory);
    setup_free(&s);
}

static void prompts_that_break_the_model_are_told(void **state) {
    (void)state;
    kh_err err = { 0 };
    setup s = setup_new(KH_ACCESS_LABELS, KH_F32);
    int label[PROMPTS * ROWS];
    for (int i = 0; i < SLOTS * 32; i++)
        s.prompt[3 * SLOTS * 32 + i] = NAN;
    assert_int_equal(kh_plm_answer(kh_plm_labeler(s.box, NULL), &s.q, label, &err), KH_EFORMAT);
    assert_says(&err, "the model's answer to prompt 3, row 0 is not a number");
    s.q.n_prompt = 0;
    assert_int_equal(kh_plm_answer(kh_plm_labeler(s.box, NULL), &s.q, label, &err), KH_EARG);
    assert_says(&err, "at least one prompt");
    setup_free(&s);
}

static void what_is_not_a_model_is_refused(void **state) {
    (void)state;
    kh_err err = { 0 };
    kh_plm *box;
    assert_true(kh_plm_open(&box, "/no/such/folder", &(kh_plm_opts){ 0 }, &err) < 0);
    assert_null(box);
    assert_says(&err, "/no/such/folder");
}

static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    setup s = setup_new(KH_ACCESS_LABELS, KH_INT8);
    int errors[PROMPTS], label[PROMPTS * ROWS], allowance[PROMPTS], order[ROWS];
    for (int i = 0; i < ROWS; i++)
        order[i] = ROWS - 1 - i;
    for (int p = 0; p < PROMPTS; p++)
        allowance[p] = 12;
    for (long n = 1;; n++) {
        kh_err err = { 0 };
        kh_alloc_fail_at(n, false);
        int rc = kh_plm_answer_within(kh_plm_labeler(s.box, NULL), &s.q,
            &(kh_patience){ allowance, order, 7 }, errors, label, &err);
        bool done = kh_alloc_count() < n;
        kh_alloc_fail_at(0, false);
        assert_int_equal(rc, done ? 0 : KH_ENOMEM);
        if (done)
            break;
    }
    setup_free(&s);
    s = setup_new(KH_ACCESS_LOGPROBS, KH_F32);
    memory_tape *memory = malloc(sizeof *memory);
    kh_answer_cache cache = { never, known, recall, record, memory, NULL };
    kh_plm_set_cache(s.box, &cache);
    for (long n = 1, done = 0; !done; n++) {
        memory->n = 0;
        kh_alloc_fail_at(n, false);
        int rc =
            kh_plm_score_energy(kh_plm_scorer(s.box, NULL), &s.q, scores[0], energies[0], NULL);
        done = kh_alloc_count() < n;
        kh_alloc_fail_at(0, false);
        assert_int_equal(rc, done ? 0 : KH_ENOMEM);
    }
    free(memory);
    setup_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_box_of_labels_has_no_scorer),
        cmocka_unit_test(scores_are_log_probabilities_and_answers_their_best),
        cmocka_unit_test(the_meter_counts_what_was_asked),
        cmocka_unit_test(early_rejection_changes_only_the_bill),
        cmocka_unit_test(looks_may_be_timed_by_the_allowance),
        cmocka_unit_test(answers_do_not_depend_on_threads_or_precision_name),
        cmocka_unit_test(energies_are_those_of_the_raw_logits),
        cmocka_unit_test(energies_depend_on_neither_threads_nor_neighbours),
        cmocka_unit_test(energies_are_kept_on_a_tape),
        cmocka_unit_test(prompts_that_break_the_model_are_told),
        cmocka_unit_test(what_is_not_a_model_is_refused),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests_name("plm", tests, make_model, drop_model);
}
