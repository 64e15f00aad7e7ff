/* test_plm_ranks.c - a box spread over ranks, with threads for ranks and lists for wires: the same
 * bits as alone, whatever the number of ranks, and also when one is slow, gives up, or answers
 * nonsense. No MPI is needed here; tests/mpi_ranks.sh has it. */
#include "tiny.h"

#include "base/err.h"
#include "plm/ranks.h"

#include <pthread.h>
#include <time.h>

enum { MOST = 9, SLOTS = 4, PROMPTS = 12, ROWS = 30 };

/* --------------------------------------------------------------------------- threads for ranks */

typedef struct letter {
    struct letter *next;
    int from;
    size_t n;
    char bytes[];
} letter;

typedef struct post {
    kh_port port;
    struct office *office;
    letter *first, **end, *shown;
    pthread_t thread;
    kh_ranks *ranks;
} post;

typedef struct office {
    pthread_mutex_t lock;
    post post[MOST];
    int sent[16]; /* messages of each kind */
    int (*bend)(
        kh_mpi_head *, int from, size_t *n); /* changes a message on its way; non-zero loses it */
} office;

static int send_letter(
    kh_port *port, int to, const void *head, size_t n_head, const void *body, size_t n_body) {
    office *o = ((post *)port)->office;
    letter *l = malloc(sizeof *l + n_head + n_body);
    *l = (letter){ .from = port->rank, .n = n_head + n_body };
    memcpy(l->bytes, head, n_head);
    if (n_body > 0)
        memcpy(l->bytes + n_head, body, n_body);
    if (o->bend && o->bend((kh_mpi_head *)(void *)l->bytes, l->from, &l->n)) {
        free(l);
        return 0;
    }
    pthread_mutex_lock(&o->lock);
    o->sent[((kh_mpi_head *)(void *)l->bytes)->kind]++;
    *o->post[to].end = l;
    o->post[to].end = &l->next;
    pthread_mutex_unlock(&o->lock);
    return 0;
}

static int poll_letter(kh_port *port, int *from, const void **bytes, size_t *n) {
    post *p = (post *)port;
    free(p->shown);
    pthread_mutex_lock(&p->office->lock);
    letter *l = p->shown = p->first;
    if (l && !(p->first = l->next))
        p->end = &p->first;
    pthread_mutex_unlock(&p->office->lock);
    if (!l)
        return 0;
    *from = l->from;
    *bytes = l->bytes;
    *n = l->n;
    return 1;
}

static void close_port(kh_port *port, bool together) { (void)port, (void)together; }

static void *serve(void *ranks) {
    kh_ranks_serve(ranks, NULL);
    return NULL;
}

/* Rank 0 of `size`; the others are at work. */
static kh_ranks *ranks_start(office *o, int size, const kh_ranks_opts *opts) {
    *o = (office){ .bend = o->bend };
    pthread_mutex_init(&o->lock, NULL);
    for (int i = 0; i < size; i++) {
        post *p = &o->post[i];
        *p = (post){ .port = { i, size, size, send_letter, poll_letter, close_port },
            .office = o,
            .end = &p->first };
        assert_int_equal(kh_ranks_new(&p->ranks, &p->port, i == 0 ? opts : NULL, NULL), 0);
    }
    for (int i = 1; i < size; i++)
        assert_int_equal(pthread_create(&o->post[i].thread, NULL, serve, o->post[i].ranks), 0);
    return o->post[0].ranks;
}

static void ranks_end(office *o, int size) {
    kh_ranks_close(o->post[0].ranks, 10);
    for (int i = 1; i < size; i++) {
        pthread_join(o->post[i].thread, NULL);
        kh_ranks_close(o->post[i].ranks, 0);
    }
    for (int i = 0; i < size; i++) {
        free(o->post[i].shown);
        for (letter *l = o->post[i].first, *next; l; l = next) {
            next = l->next;
            free(l);
        }
    }
    pthread_mutex_destroy(&o->lock);
    kh_threads_set(0);
}

/* ----------------------------------------------------------------------------------- questions */

typedef struct asked {
    const kh_task *task;
    kh_dataset *rows;
    kh_words *words;
    kh_batch *batch;
    float prompt[PROMPTS * SLOTS * 32];
} asked;

static void asked_new(asked *a, const kh_plm *box, int n_slot) {
    static int32_t slot_id[SLOTS] = { 20, 21, 22, 23 };
    kh_rng r = kh_rng_stream(3, KH_RNG_TEST, 0, 0);
    a->task = tiny_task();
    a->rows = tiny_rows(ROWS, 1, -1);
    kh_batch_opts o = {
        .n_slot = n_slot, .slot_id = slot_id, .max_len = kh_plm_describe(box).max_len
    };
    assert_int_equal(kh_words_new(&a->words, a->task, kh_plm_tokenizer(box), false, NULL), 0);
    int rc = kh_batch_encode(&a->batch, kh_plm_tokenizer(box), a->task, a->words,
        kh_dataset_rows(a->rows), ROWS, &o, NULL);
    assert_int_equal(rc, 0);
    for (int i = 0; i < PROMPTS * SLOTS * 32; i++)
        a->prompt[i] = (float)kh_rng_normal(&r);
}

static void asked_free(asked *a) {
    kh_batch_free(a->batch);
    kh_words_free(a->words);
    kh_dataset_close(a->rows);
    kh_task_close(a->task);
}

static int ask(
    kh_plm *box, const asked *a, int first, int n, int n_prompt, float *out, kh_err *err) {
    kh_batch part = kh_batch_part(a->batch, first, n);
    kh_inject inject = part.n_slot > 0 ? KH_INJECT_POST_LN_ADD : KH_INJECT_NONE;
    kh_question q = { &part, a->words, inject, part.n_slot > 0 ? a->prompt : NULL, n_prompt };
    return kh_plm_score(kh_plm_scorer(box, NULL), &q, out, err);
}

static int spread_open(kh_plm **out, kh_ranks *r, const char *dir, kh_err *err) {
    return kh_plm_open(out, dir, &(kh_plm_opts){ .access = KH_ACCESS_LOGPROBS, .ranks = r }, err);
}

/* Many shapes of questions, asked alone and of `size` ranks. */
static void compare(office *o, int size, int n_slot) {
    static const int SHAPES[][3] = { { 0, ROWS, PROMPTS }, { 0, ROWS, 1 }, { 3, 8, PROMPTS },
        { 0, ROWS, PROMPTS }, { 7, 1, 1 }, { 5, 2, 3 } };
    kh_err err = { 0 };
    kh_plm *alone = tiny_open(KH_ACCESS_LOGPROBS), *spread;
    asked a;
    static float x[PROMPTS * ROWS * 2], y[PROMPTS * ROWS * 2];
    asked_new(&a, alone, n_slot);
    kh_ranks *r = ranks_start(o, size, NULL);
    if (spread_open(&spread, r, tiny_dir, &err) != 0)
        fail_msg("%s", err.msg);
    assert_string_equal(kh_plm_describe(spread).backend, "native");
    assert_true(kh_plm_describe(spread).fingerprint == kh_plm_describe(alone).fingerprint);
    assert_non_null(kh_plm_engine(spread));
    for (int turn = 0; turn < 20; turn++)
        for (size_t i = 0; i < sizeof SHAPES / sizeof SHAPES[0]; i++) {
            const int *s = SHAPES[i];
            int prompts = n_slot > 0 ? s[2] : 1;
            memset(y, 0, sizeof y);
            assert_int_equal(ask(alone, &a, s[0], s[1], prompts, x, NULL), 0);
            if (ask(spread, &a, s[0], s[1], prompts, y, &err) != 0)
                fail_msg("%s", err.msg);
            assert_memory_equal(x, y, (size_t)s[1] * (size_t)prompts * 2 * sizeof *x);
        }
    static float e[2][PROMPTS * ROWS];
    bool soft = n_slot > 0;
    kh_question q = { a.batch, a.words, soft ? KH_INJECT_POST_LN_ADD : KH_INJECT_NONE,
        soft ? a.prompt : NULL, PROMPTS };
    assert_true(kh_plm_describe(spread).energy);
    assert_int_equal(kh_plm_score_energy(kh_plm_scorer(alone, NULL), &q, x, e[0], NULL), 0);
    assert_int_equal(kh_plm_score_energy(kh_plm_scorer(spread, NULL), &q, y, e[1], NULL), 0);
    assert_memory_equal(e[0], e[1], sizeof e[0]);
    assert_memory_equal(x, y, (size_t)(soft ? PROMPTS : 1) * ROWS * 2 * sizeof *x);
    kh_plm_close(spread);
    kh_plm_close(alone);
    ranks_end(o, size);
    asked_free(&a);
}

static void same_bits_for_any_number_of_ranks(void **state) {
    (void)state;
    for (int size = 1; size <= MOST; size += 2) {
        office o = { 0 };
        compare(&o, size, SLOTS);
        assert_true(size == 1 || o.sent[KH_MPI_RESULT] > 100); /* others have answered */
        assert_int_equal(o.sent[KH_MPI_CONTEXT],
            4 * (size - 1)); /* and got each of the four different parts once */
    }
}

static void same_bits_without_prompts(void **state) {
    (void)state;
    compare(&(office){ 0 }, 3, 0);
}

static int slow_down(kh_mpi_head *h, int from, size_t *n) {
    (void)n;
    if (from == 1 && h->kind == KH_MPI_RESULT)
        nanosleep(&(struct timespec){ .tv_nsec = 3000000 }, NULL);
    return 0;
}

static void a_slow_rank_is_relieved(void **state) {
    (void)state;
    office o = { .bend = slow_down };
    compare(&o, 3, SLOTS);
    assert_true(o.sent[KH_MPI_DROP] > 0);
}

/* One question to three ranks that goes wrong: the sentence is in *err. */
/* A question is under way. How long opening waits for other ranks is the machine's affair. */
static bool opened;

static int fails(office *o, const kh_ranks_opts *opts, kh_err *err) {
    kh_plm *alone = tiny_open(KH_ACCESS_LOGPROBS), *spread = NULL;
    static float y[PROMPTS * ROWS * 2];
    asked a;
    asked_new(&a, alone, SLOTS);
    opened = false;
    int rc = spread_open(&spread, ranks_start(o, 3, opts), tiny_dir, err);
    opened = true;
    for (int i = 0; i < 50 && rc == 0; i++)
        rc = ask(spread, &a, 0, ROWS, PROMPTS, y, err);
    kh_plm_close(spread);
    kh_plm_close(alone);
    ranks_end(o, 3);
    asked_free(&a);
    return rc;
}

static int cut_prompts(kh_mpi_head *h, int from, size_t *n) {
    (void)from;
    *n -= h->kind == KH_MPI_PIECE ? 4 : 0;
    return 0;
}
static int cut_answers(kh_mpi_head *h, int from, size_t *n) {
    (void)from;
    *n -= h->kind == KH_MPI_RESULT && *n > sizeof *h ? 4 : 0;
    return 0;
}
static int mix_up(kh_mpi_head *h, int from, size_t *n) {
    (void)from, (void)n;
    h->piece += h->kind == KH_MPI_RESULT ? 1000000 : 0;
    return 0;
}
static int cut_context(kh_mpi_head *h, int from, size_t *n) {
    (void)from;
    *n -= h->kind == KH_MPI_CONTEXT ? 4 : 0;
    return 0;
}
static int another_version(kh_mpi_head *h, int from, size_t *n) {
    (void)from, (void)n;
    if (h->kind == KH_MPI_OPEN)
        memcpy(h + 1, "9.9", 4);
    return 0;
}
static int another_model(kh_mpi_head *h, int from, size_t *n) {
    (void)n;
    if (h->kind == KH_MPI_OPENED && from == 2)
        ((kh_mpi_opened *)(h + 1))->fingerprint++;
    return 0;
}
static int other_kernels(kh_mpi_head *h, int from, size_t *n) {
    (void)n;
    if (h->kind == KH_MPI_OPENED && from == 1)
        memcpy(((kh_mpi_opened *)(h + 1))->kernels, "abacus", 7);
    return 0;
}
static int lose_answers(kh_mpi_head *h, int from, size_t *n) {
    (void)n;
    return h->kind == KH_MPI_RESULT && from == 2 && h->question > 20;
}

static int alarm_now(void *user) {
    (void)user;
    return -1;
}
static int stop_now(void *user) { return opened && ++*(int *)user > 2; }

static void what_goes_wrong_is_said(void **state) {
    (void)state;
    static const struct {
        int (*bend)(kh_mpi_head *, int, size_t *);
        const char *says;
    } CASES[] = {
        { cut_prompts, "a piece from rank 0 does not fit the model" },
        { cut_answers, "bytes to a piece of" },
        { mix_up, "answered a piece that it was not given" },
        { cut_context, "a message from rank 0 has the wrong length" },
        { another_version, "this rank runs keyhole " KH_VERSION " and rank 0 runs 9.9" },
        { another_model, "rank 2 on " },
        { other_kernels, "computes with the kernels abacus in f32 and rank 0 with" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        office o = { .bend = CASES[i].bend };
        kh_err err = { 0 };
        assert_true(fails(&o, NULL, &err) < 0);
        assert_says(&err, CASES[i].says);
    }
}

static void a_lost_rank_is_named(void **state) {
    (void)state;
    office o = { .bend = lose_answers };
    kh_err err = { 0 };
    assert_int_equal(fails(&o, &(kh_ranks_opts){ .stop = alarm_now }, &err), KH_EIO);
    assert_says(&err,
        "rank 2 does not answer any more; every answer so far is kept: the same command with "
        "--resume goes on");
}

static void a_question_can_be_stopped(void **state) {
    (void)state;
    int turns = 0;
    kh_err err = { 0 };
    assert_int_equal(
        fails(&(office){ 0 }, &(kh_ranks_opts){ .stop = stop_now, .user = &turns }, &err),
        KH_STOPPED);
}

static void no_plugin(void **state) {
    (void)state;
    kh_ranks *r;
    kh_err err = { 0 };
    assert_int_equal(kh_ranks_open(&r, "/nowhere/keyhole-mpi.so", NULL, &err), KH_EMISSING);
    assert_says(&err, "/nowhere/keyhole-mpi.so: MPI's part of keyhole cannot be loaded: ");
    assert_int_equal(kh_ranks_open(&r, "libm.so.6", NULL, &err), KH_EUNSUPPORTED);
    assert_says(&err, "it is not a part of keyhole");
}

static void memory_runs_out(void **state) {
    (void)state;
    int failed = 0;
    for (int n = 1; n < 60; n++) {
        office o = { 0 };
        kh_err err = { 0 };
        kh_plm *spread = NULL, *alone = tiny_open(KH_ACCESS_LOGPROBS);
        static float y[PROMPTS * ROWS * 2];
        asked a;
        asked_new(&a, alone, SLOTS);
        kh_ranks *r = ranks_start(&o, 2, NULL);
        int rc = spread_open(&spread, r, tiny_dir, &err);
        assert_int_equal(rc, 0);
        kh_alloc_fail_at(n, false);
        rc = ask(spread, &a, 0, ROWS, PROMPTS, y, &err);
        kh_alloc_fail_at(0, false);
        assert_true(rc == 0 || strstr(err.msg, "out of memory"));
        failed += rc != 0;
        kh_plm_close(spread);
        kh_plm_close(alone);
        ranks_end(&o, 2);
        asked_free(&a);
    }
    assert_true(failed > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_for_any_number_of_ranks),
        cmocka_unit_test(same_bits_without_prompts),
        cmocka_unit_test(a_slow_rank_is_relieved),
        cmocka_unit_test(what_goes_wrong_is_said),
        cmocka_unit_test(a_lost_rank_is_named),
        cmocka_unit_test(a_question_can_be_stopped),
        cmocka_unit_test(no_plugin),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests_name("plm_ranks", tests, tiny_setup, tiny_teardown);
}
