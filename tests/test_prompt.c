/* test_prompt.c - the subspace (A from its seed, P0, injection modes), questions with a hole for z,
 * and demonstrations. */
#include "tiny.h"

#include "base/arena.h"
#include "prompt/demos.h"
#include "prompt/target.h"

#include <math.h>

enum { H = 32, M = 5, D = 12 };

static kh_plm *plm;

static int open_box(void **state) {
    tiny_setup(state);
    plm = tiny_open(KH_ACCESS_LOGPROBS);
    return 0;
}

static int close_box(void **state) {
    kh_plm_close(plm);
    return tiny_teardown(state);
}

static kh_space space_of(const kh_space_opts *o, uint64_t seed) {
    kh_space s;
    kh_err err;
    if (kh_space_init(&s, o, plm, seed, &err) != 0)
        fail_msg("%s", err.msg);
    return s;
}

static kh_subspace *subspace_of(const kh_space_opts *o, uint64_t seed) {
    kh_space s = space_of(o, seed);
    kh_subspace *out;
    kh_err err;
    if (kh_subspace_new(&out, &s, plm, seed, &err) != 0)
        fail_msg("%s", err.msg);
    kh_space_free(&s);
    return out;
}

static void prompts_of(const kh_subspace *s, const float *z, int n, float *out) {
    kh_err err;
    if (kh_subspace_prompts(s, z, n, out, &err) != 0)
        fail_msg("%s", err.msg);
}

/* ---------------------------------------------------------------------------------- embeddings */

static void embedding_stats_are_those_of_the_rows(void **state) {
    (void)state;
    double mean, std, sum = 0, squares = 0;
    int vocab = kh_tokenizer_size(kh_plm_tokenizer(plm));
    float row[H];
    assert_int_equal(kh_plm_embedding_stats(plm, &mean, &std, NULL), 0);
    for (int i = 0; i < vocab; i++) {
        assert_int_equal(kh_plm_embedding_row(plm, i, row, NULL), 0);
        for (int k = 0; k < H; k++)
            sum += row[k];
    }
    for (int i = 0; i < vocab; i++) {
        kh_plm_embedding_row(plm, i, row, NULL);
        for (int k = 0; k < H; k++)
            squares += (row[k] - sum / (vocab * H)) * (row[k] - sum / (vocab * H));
    }
    assert_true(fabs(mean - sum / (vocab * H)) < 1e-12);
    assert_true(fabs(std - sqrt(squares / (vocab * H))) < 1e-12);
    kh_err err;
    assert_int_equal(kh_plm_embedding_row(plm, vocab, row, &err), KH_EARG);
    assert_says(&err, "is outside the model's vocabulary");
    assert_int_equal(kh_plm_embedding_row(plm, -1, row, &err), KH_EARG);
    assert_int_equal(kh_plm_meter(plm).queries, 0);
}

/* ------------------------------------------------------------------------------ the projection */

/* Column k of A is the prompt of the k-th unit vector. */
static void columns_of(const kh_subspace *s, float *a) {
    float z[D * D] = { 0 };
    for (int k = 0; k < D; k++)
        z[k * D + k] = 1;
    prompts_of(s, z, D, a);
}

static void a_is_drawn_row_by_row_from_the_seed(void **state) {
    (void)state;
    kh_space_opts o = tiny_space();
    float a[D * M * H];
    double mean, std;
    kh_plm_embedding_stats(plm, &mean, &std, NULL);
    double m = mean / (D - std * std), sd = std / sqrt(D - std * std);
    kh_subspace *s = subspace_of(&o, 77);
    columns_of(s, a);
    for (int row = 0; row < M * H; row += 37) {
        kh_rng r = kh_rng_stream(77, KH_RNG_PROJECTION, (uint32_t)row, 0);
        for (int k = 0; k < D; k++)
            assert_true(a[k * M * H + row] == (float)(m + sd * kh_rng_normal(&r)));
    }
    kh_subspace_free(s);
}

static void a_has_the_paper_s_mean_and_spread(void **state) {
    (void)state;
    kh_space_opts o = tiny_space();
    float a[D * M * H];
    kh_subspace *s = subspace_of(&o, 3);
    const kh_space *space = kh_subspace_space(s);
    columns_of(s, a);
    double sum = 0, squares = 0;
    int n = D * M * H;
    for (int i = 0; i < n; i++)
        sum += a[i];
    for (int i = 0; i < n; i++)
        squares += (a[i] - sum / n) * (a[i] - sum / n);
    assert_true(fabs(sum / n - space->mean) < 4 * space->std / sqrt(n));
    assert_true(fabs(sqrt(squares / n) / space->std - 1) < 4 / sqrt(2.0 * n));
    kh_subspace_free(s);
}

static void uniform_a_stays_within_its_bounds(void **state) {
    (void)state;
    kh_space_opts o = tiny_space();
    o.projection = KH_PROJECTION_UNIFORM;
    float a[D * M * H];
    kh_subspace *s = subspace_of(&o, 3);
    columns_of(s, a);
    double most = 0, sum = 0;
    for (int i = 0; i < D * M * H; i++) {
        most = fabs(a[i]) > most ? fabs(a[i]) : most;
        sum += a[i];
    }
    assert_true(most <= 1 / sqrt(D) && most > 0.99 / sqrt(D));
    assert_true(fabs(sum / (D * M * H)) < 0.03);
    kh_subspace_free(s);
}

static void prompts_are_the_product(void **state) {
    (void)state;
    enum { N = 23 };
    kh_space_opts o = tiny_space();
    float a[D * M * H], z[N * D], p[N * M * H];
    kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 0, 0);
    for (int i = 0; i < N * D; i++)
        z[i] = (float)(7 * kh_rng_normal(&r));
    kh_subspace *s = subspace_of(&o, 3);
    columns_of(s, a);
    prompts_of(s, z, N, p);
    for (int n = 0; n < N; n++)
        for (int i = 0; i < M * H; i++) {
            double sum = 0;
            for (int k = 0; k < D; k++)
                sum += (double)a[k * M * H + i] * z[n * D + k];
            assert_true(fabs(p[n * M * H + i] - sum) < 1e-5 * (1 + fabs(sum)));
        }
    kh_subspace_free(s);
}

static void bits_do_not_depend_on_threads_or_population(void **state) {
    (void)state;
    enum { N = 20, SLOTS = 100 }; /* several blocks of A */
    kh_space_opts o = tiny_space();
    o.slots = SLOTS;
    float z[N * D], *all = malloc(N * SLOTS * H * sizeof *all),
                    *again = malloc(N * SLOTS * H * sizeof *again);
    kh_rng r = kh_rng_stream(2, KH_RNG_TEST, 0, 0);
    for (int i = 0; i < N * D; i++)
        z[i] = (float)kh_rng_normal(&r);
    for (int threads = 1; threads <= 3; threads++) {
        kh_threads_set(threads);
        kh_subspace *s = subspace_of(&o, 3);
        prompts_of(s, z, N, threads == 1 ? all : again);
        if (threads > 1)
            assert_memory_equal(all, again, N * SLOTS * H * sizeof *all);
        for (int n = 0; n < N; n++) {
            prompts_of(s, z + n * D, 1, again);
            assert_memory_equal(all + n * SLOTS * H, again, SLOTS * H * sizeof *all);
        }
        kh_subspace_free(s);
    }
    kh_threads_set(0);
    free(all);
    free(again);
}

/* ------------------------------------------------------------------------------------------ P0 */

static void at_zero_the_prompt_is_p0(void **state) {
    (void)state;
    float z[D] = { 0 }, p[M * H], row[H];
    for (int inject = KH_INJECT_POST_LN_ADD; inject <= KH_INJECT_EMBED_INPLACE; inject++) {
        kh_space_opts o = tiny_space();
        o.inject = inject;
        kh_subspace *s = subspace_of(&o, 3);
        prompts_of(s, z, 1, p);
        for (int i = 0; i < M; i++) {
            kh_plm_embedding_row(plm, kh_subspace_space(s)->slot_id[i], row, NULL);
            for (int k = 0; k < H; k++)
                assert_true(p[i * H + k] == (inject == KH_INJECT_POST_LN_ADD ? 0 : row[k]));
        }
        kh_subspace_free(s);
    }
}

/* At z = 0 with the slots' ids in place, adding after LayerNorm and embedding in place are the same
 * model input. */
static void modes_agree_at_zero(void **state) {
    (void)state;
    const kh_task *task = tiny_task();
    kh_dataset *d = tiny_rows(6, 1, -1);
    kh_words *words;
    float z[D] = { 0 }, logprob[2][6 * 2];
    assert_int_equal(kh_words_new(&words, task, kh_plm_tokenizer(plm), false, NULL), 0);
    for (int i = 0; i < 2; i++) {
        kh_space_opts o = tiny_space();
        o.inject = i ? KH_INJECT_EMBED_INPLACE : KH_INJECT_POST_LN_ADD;
        kh_subspace *s = subspace_of(&o, 3);
        kh_batch_opts b = kh_space_batch(kh_subspace_space(s), plm, false);
        kh_batch *batch;
        assert_int_equal(kh_batch_encode(&batch, kh_plm_tokenizer(plm), task, words,
                             kh_dataset_rows(d), 6, &b, NULL),
            0);
        kh_target t = { kh_plm_scorer(plm, NULL), kh_plm_labeler(plm, NULL), s, batch, words };
        assert_int_equal(kh_target_score(&t, z, 1, logprob[i], NULL), 0);
        kh_batch_free(batch);
        kh_subspace_free(s);
    }
    for (int i = 0; i < 12; i++)
        assert_true(fabs(logprob[0][i] - logprob[1][i]) < 1e-5);
    kh_words_free(words);
    kh_dataset_close(d);
    kh_task_close(task);
}

static void random_p0_has_no_special_tokens(void **state) {
    (void)state;
    kh_space_opts o = tiny_space();
    o.slots = 100;
    kh_space a = space_of(&o, 3), b = space_of(&o, 3), c = space_of(&o, 4);
    assert_memory_equal(a.slot_id, b.slot_id, 100 * sizeof *a.slot_id);
    assert_memory_not_equal(a.slot_id, c.slot_id, 100 * sizeof *a.slot_id);
    const kh_tokenizer *t = kh_plm_tokenizer(plm);
    for (int i = 0; i < 100; i++)
        for (int s = KH_TOKEN_MASK; s <= KH_TOKEN_EOS; s++)
            assert_int_not_equal(a.slot_id[i], kh_tokenizer_special(t, (kh_special)s));
    kh_space_free(&a);
    kh_space_free(&b);
    kh_space_free(&c);
}

static void p0_of_a_text_repeats_its_tokens(void **state) {
    (void)state;
    kh_space_opts o = tiny_space();
    o.p0 = KH_P0_TEXT;
    o.p0_text = " better news";
    kh_space s = space_of(&o, 3);
    kh_ids ids = { 0 };
    assert_int_equal(
        kh_tokenizer_encode(kh_plm_tokenizer(plm), o.p0_text, strlen(o.p0_text), 0, &ids, NULL), 0);
    assert_true(ids.n < M);
    for (int i = 0; i < M; i++)
        assert_int_equal(s.slot_id[i], ids.id[i % ids.n]);
    kh_ids_free(&ids);
    kh_space_free(&s);
}

/* ---------------------------------------------------------------------------------- complaints */

static void refuse(const kh_space_opts *o, const char *says) {
    kh_space s;
    kh_err err;
    assert_int_equal(kh_space_init(&s, o, plm, 1, &err), KH_EARG);
    assert_says(&err, says);
    kh_space_free(&s);
}

static void wrong_spaces_are_refused(void **state) {
    (void)state;
    kh_space_opts o = tiny_space();
    o.dim = M * H + 1;
    refuse(&o,
        "dimension 161 is larger than the prompt itself: 5 slots of 32 numbers are 160; take fewer "
        "dimensions or more slots");
    o = tiny_space();
    o.p0 = KH_P0_IDS;
    refuse(&o, "P0 takes the vocabulary ids 1000 to 1004, but the vocabulary has");
    o.p0 = KH_P0_TEXT;
    refuse(&o, "the text has no tokens");
    o = tiny_space();
    o.slots = 128;
    refuse(&o, "a soft prompt of 128 slots does not fit the model's sequences of 128 tokens");
    o = tiny_space();
    o.inject = KH_INJECT_NONE;
    refuse(&o, "a soft prompt needs an injection mode");
    o = tiny_space();
    o.p0 = 7;
    refuse(&o, "unknown kind");
}

static void projections_have_names(void **state) {
    (void)state;
    kh_projection p;
    kh_err err;
    assert_int_equal(kh_projection_find(&p, "uniform", NULL), 0);
    assert_string_equal(kh_projection_name(p), "uniform");
    assert_int_equal(kh_projection_find(&p, "cubic", &err), KH_EFORMAT);
    assert_says(&err, "unknown projection \"cubic\"");
}

static void defaults_are_the_paper_s(void **state) {
    (void)state;
    kh_space_opts o = kh_space_defaults();
    assert_int_equal(o.dim, 500);
    assert_int_equal(o.slots, 50);
    assert_int_equal(o.inject, KH_INJECT_POST_LN_ADD);
    assert_int_equal(o.projection, KH_PROJECTION_NORMAL);
    assert_int_equal(o.p0, KH_P0_IDS);
}

/* ------------------------------------------------------------------------------------- targets */

static void targets_ask_what_questions_ask(void **state) {
    (void)state;
    enum { N = 70, ROWS = 3 }; /* more prompts than are made at once */
    const kh_task *task = tiny_task();
    kh_dataset *d = tiny_rows(ROWS, 1, -1);
    kh_space_opts o = tiny_space();
    kh_subspace *s = subspace_of(&o, 3);
    kh_words *words;
    kh_batch *batch;
    kh_batch_opts b = kh_space_batch(kh_subspace_space(s), plm, false);
    assert_int_equal(kh_words_new(&words, task, kh_plm_tokenizer(plm), false, NULL), 0);
    assert_int_equal(kh_batch_encode(&batch, kh_plm_tokenizer(plm), task, words, kh_dataset_rows(d),
                         ROWS, &b, NULL),
        0);
    float z[N * D], logprob[N * ROWS * 2], one[ROWS * 2], votes[ROWS * 2], prompt[M * H];
    int label[N * ROWS];
    kh_rng r = kh_rng_stream(4, KH_RNG_TEST, 0, 0);
    for (int i = 0; i < N * D; i++)
        z[i] = (float)(5 * kh_rng_normal(&r));
    kh_target t = { kh_plm_scorer(plm, NULL), kh_plm_labeler(plm, NULL), s, batch, words };
    long long before = kh_plm_meter(plm).queries;
    assert_int_equal(kh_target_score(&t, z, N, logprob, NULL), 0);
    assert_int_equal(kh_plm_meter(plm).queries - before, N * ROWS);
    assert_int_equal(kh_target_answer(&t, z, N, label, NULL), 0);
    for (int n = 0; n < N; n++) {
        prompts_of(s, z + n * D, 1, prompt);
        kh_question q = { batch, words, KH_INJECT_POST_LN_ADD, prompt, 1 };
        assert_int_equal(kh_plm_score(t.scorer, &q, one, NULL), 0);
        assert_memory_equal(one, logprob + n * ROWS * 2, sizeof one);
        for (int i = 0; i < ROWS; i++)
            assert_int_equal(label[n * ROWS + i], one[2 * i + 1] > one[2 * i]);
        assert_int_equal(kh_ask(NULL, t.labeler, &q, votes, NULL, NULL), 0);
        for (int i = 0; i < ROWS * 2; i++)
            assert_true(exp(votes[i]) == (label[n * ROWS + i / 2] == i % 2));
    }
    kh_batch_free(batch);
    kh_words_free(words);
    kh_subspace_free(s);
    kh_dataset_close(d);
    kh_task_close(task);
}

/* ------------------------------------------------------------------------------ demonstrations */

static const kh_row DEMO[] = { { "one {x}", NULL, 7, 0, 0, 0 }, { "two", NULL, 3, 0, 0, 0 },
    { "three", NULL, 5, 0, 1, 0 }, { "four\\n!", NULL, 7, 0, 0, 0 }, { "five", NULL, 4, 0, 1, 0 } };

static void demonstrations_stand_before_the_template(void **state) {
    (void)state;
    kh_task task = *kh_task_builtin(1); /* yelp: \n is a line break */
    int order[] = { 2, 0, 3 };
    kh_demos d = { .row = (kh_row *)DEMO, .n = 5, .order = order, .n_order = 1, .n_shown = 3 };
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_demos_template(&d, &task, false, 0, 3, task.plain, &b);
    assert_string_equal(b.data,
        "three . It was great . one {{x}} . It was bad . four ! . It was bad . {text} . It was "
        "{mask} .");
    kh_buf_reset(&b);
    kh_demos_template(&d, &task, false, 0, 0, task.plain, &b);
    assert_string_equal(b.data, task.plain);
    kh_buf_free(&b);
}

static void orders_are_shuffles_and_classes_take_turns(void **state) {
    (void)state;
    kh_demos d;
    kh_arena arena = { 0 };
    assert_int_equal(kh_demos_draw(&d, &arena, DEMO, 5, 32, 3, true, 8, NULL), 0);
    assert_int_equal(d.n_shown, 5);
    for (int o = 0; o < 3; o++) {
        const int *order = d.order + o * 5;
        int seen = 0;
        for (int i = 0; i < 5; i++)
            seen |= 1 << order[i];
        assert_int_equal(seen, 31);
        for (int i = 0; i < 4; i += 2) /* two rows of class 1 meet two of class 0 */
            assert_int_not_equal(DEMO[order[i]].label, DEMO[order[i + 1]].label);
        assert_int_equal(DEMO[order[4]].label, 0);
    }
    assert_memory_not_equal(d.order, d.order + 5, 5 * sizeof(int));
    kh_arena_free(&arena);
    assert_int_equal(kh_demos_draw(&d, &arena, DEMO, 5, 2, 1, false, 8, NULL), 0);
    assert_int_equal(d.n_shown, 2);
    assert_string_equal(d.row[4].a, "five");
    kh_arena_free(&arena);
}

static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    kh_threads_set(1);
    kh_space_opts o = tiny_space();
    o.inject = KH_INJECT_EMBED_PREFIX;
    float z[D] = { 0 }, p[M * H];
    long n = 1;
    for (bool done = false; !done; n++) {
        kh_space space = { 0 };
        kh_subspace *s = NULL;
        kh_demos d;
        kh_arena arena = { 0 };
        kh_err err;
        kh_alloc_fail_at(n, false);
        int rc = kh_space_init(&space, &o, plm, 1, &err);
        if (rc == 0)
            rc = kh_subspace_new(&s, &space, plm, 1, &err);
        if (rc == 0)
            rc = kh_subspace_prompts(s, z, 1, p, &err);
        if (rc == 0)
            rc = kh_demos_draw(&d, &arena, DEMO, 5, 32, 2, true, 8, &err);
        done = kh_alloc_count() < n;
        kh_alloc_fail_at(0, false);
        assert_int_equal(rc, done ? 0 : KH_ENOMEM);
        kh_space_free(&space);
        kh_subspace_free(s);
        kh_arena_free(&arena);
    }
    assert_true(n > 8);
    kh_threads_set(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_stats_are_those_of_the_rows),
        cmocka_unit_test(a_is_drawn_row_by_row_from_the_seed),
        cmocka_unit_test(a_has_the_paper_s_mean_and_spread),
        cmocka_unit_test(uniform_a_stays_within_its_bounds),
        cmocka_unit_test(prompts_are_the_product),
        cmocka_unit_test(bits_do_not_depend_on_threads_or_population),
        cmocka_unit_test(at_zero_the_prompt_is_p0),
        cmocka_unit_test(modes_agree_at_zero),
        cmocka_unit_test(random_p0_has_no_special_tokens),
        cmocka_unit_test(p0_of_a_text_repeats_its_tokens),
        cmocka_unit_test(wrong_spaces_are_refused),
        cmocka_unit_test(projections_have_names),
        cmocka_unit_test(defaults_are_the_paper_s),
        cmocka_unit_test(targets_ask_what_questions_ask),
        cmocka_unit_test(demonstrations_stand_before_the_template),
        cmocka_unit_test(orders_are_shuffles_and_classes_take_turns),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests_name("prompt", tests, open_box, close_box);
}
