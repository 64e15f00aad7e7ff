/* test_tune_race.c - candidates that are asked about a part of the rows: the rule keeps its
 * probability, the better half is what it would be, and runs do not depend on threads. */
#include "tiny_tune.h"

#include "posterior/posterior.h"
#include "tune/race.h"

#include <math.h>

enum { TRAIN = 32, DEV = 8, N = 12, D = 12 };

/* ------------------------------------------------------------------------------------ the rule */

/* Two candidates whose losses on all rows are equal, in random orders of the rows: how often the
 * second is left behind after the first ones. By the closed form (a mean of a sample without
 * replacement is nearly normal) that is `wrong`. */
static double left_behind(int n_row, int asked, double wrong, uint64_t seed) {
    enum { TIMES = 4000 };
    double loss[2 * 400], sum = 0;
    int gone = 0;
    kh_rng r = kh_rng_stream(seed, KH_RNG_TEST, 1, 0);
    for (int i = 0; i < n_row; i++) {
        loss[i] = 0;
        sum += loss[n_row + i] = kh_rng_normal(&r);
    }
    for (int i = 0; i < n_row; i++)
        loss[n_row + i] -= sum / n_row;
    for (int t = 0; t < TIMES; t++) {
        for (int i = n_row - 1; i > 0; i--) {
            int j = (int)kh_rng_below(&r, (uint32_t)i + 1);
            double was = loss[n_row + i];
            loss[n_row + i] = loss[n_row + j];
            loss[n_row + j] = was;
        }
        bool running[2] = { true, true };
        kh_race_drop(loss, 2, n_row, asked, wrong, running);
        assert_true(running[0] || running[1]);
        gone += !running[1];
    }
    return (double)gone / TIMES;
}

/* Over several sets of rows: of few of them each has a shape of its own. */
static double mean_left_behind(int n_row, int asked, double wrong) {
    enum { SETS = 16 };
    double sum = 0;
    for (uint64_t seed = 0; seed < SETS; seed++)
        sum += left_behind(n_row, asked, wrong, seed);
    print_message("# %d of %d rows, %g: %.4f\n", asked, n_row, wrong, sum / SETS);
    return sum / SETS;
}

static void a_wrong_rank_is_as_probable_as_stated(void **state) {
    (void)state;
    assert_true(fabs(mean_left_behind(400, 100, 0.1) - 0.1) < 0.01);
    assert_true(fabs(mean_left_behind(400, 300, 0.05) - 0.05) < 0.01);
    assert_true(fabs(mean_left_behind(32, 16, 0.1) - 0.1) < 0.02);
    assert_true(mean_left_behind(32, 8, 0.1) < 0.14); /* of eight rows the deviation is a guess */
}

static void the_better_half_always_stays(void **state) {
    (void)state;
    double loss[5 * 8];
    bool running[5] = { true, true, true, true, true };
    for (int k = 0; k < 5; k++)
        for (int i = 0; i < 8; i++)
            loss[k * 8 + i] = 4 - k + 0.01 * (i % 2);
    kh_race_drop(loss, 5, 8, 4, 0.1, running);
    for (int k = 0; k < 5; k++)
        assert_int_equal(running[k], k >= 3); /* two of five; the others are surely behind */
    kh_race_drop(loss, 5, 8, 6, 0.5, running);
    assert_true(running[3] && running[4]);
    bool all[5] = { true, true, true, true, true };
    for (int k = 0; k < 40; k++)
        loss[k] = 1;
    kh_race_drop(loss, 5, 8, 4, 0.5, all); /* equals are no worse */
    for (int k = 0; k < 5; k++)
        assert_true(all[k]);
}

/* ------------------------------------------------------------------------------------- the box */

static int open_all(void **state) {
    return tune_setup(state, "race", KH_ACCESS_LOGPROBS, TRAIN, DEV, 2);
}

typedef struct scene {
    kh_words *words;
    kh_space space;
    kh_subspace *subspace;
    kh_batch *batch;
    kh_train_loss loss;
    float z[N * D];
} scene;

/* Rows stand class after class, as in many files. */
static void scene_new(scene *s) {
    kh_space_opts o = tiny_space();
    kh_row rows[TRAIN];
    kh_rng r = kh_rng_stream(4, KH_RNG_TEST, 2, 0);
    for (int i = 0; i < TRAIN; i++)
        rows[i] = kh_dataset_rows(train)[i < TRAIN / 2 ? 2 * i : 2 * (i - TRAIN / 2) + 1];
    assert_int_equal(kh_words_new(&s->words, task, kh_plm_tokenizer(plm), false, NULL), 0);
    assert_int_equal(kh_space_init(&s->space, &o, plm, 3, NULL), 0);
    assert_int_equal(kh_subspace_new(&s->subspace, &s->space, plm, 3, NULL), 0);
    kh_batch_opts b = kh_space_batch(&s->space, plm, false);
    assert_int_equal(
        kh_batch_encode(&s->batch, kh_plm_tokenizer(plm), task, s->words, rows, TRAIN, &b, NULL),
        0);
    s->loss = (kh_train_loss){ { kh_plm_scorer(plm, NULL), NULL, s->subspace, s->batch, s->words },
        KH_LOSS_CE, KH_METRIC_ACCURACY, 1, NULL };
    for (int i = 0; i < N * D; i++)
        s->z[i] = (float)(8 * kh_rng_normal(&r));
}

static void scene_free(scene *s) {
    kh_batch_free(s->batch);
    kh_subspace_free(s->subspace);
    kh_space_free(&s->space);
    kh_words_free(s->words);
}

static void classes_take_turns(void **state) {
    (void)state;
    scene s;
    kh_race race;
    scene_new(&s);
    assert_int_equal(kh_race_new(&race, s.batch, 2, 0.1, NULL), 0);
    assert_int_equal(race.rows.n_row, TRAIN);
    for (int i = 0; i < TRAIN; i++) {
        assert_int_equal(race.label[i], i % 2);
        assert_int_equal(race.rows.label[i], s.batch->label[race.rows.row[i]]);
    }
    kh_race_free(&race);
    scene_free(&s);
}

static int better_than(const double *f, int k) {
    int n = 0;
    for (int i = 0; i < N; i++)
        n += f[i] < f[k];
    return n;
}

/* With a probability of nothing, all rows are asked, and losses are what they always are. Otherwise
 * the better half still have theirs, and nobody else is among them. */
static void finishers_have_their_own_losses(void **state) {
    (void)state;
    scene s;
    scene_new(&s);
    double full[N], f[N], *out = full;
    const float *z = s.z;
    long long asked = 0, before;
    int left = 0;
    kh_race race;
    assert_int_equal(kh_train_losses(&s.loss, 1, &z, N, &out, NULL), 0);
    assert_int_equal(kh_race_new(&race, s.batch, 2, 1e-300, NULL), 0);
    assert_int_equal(kh_race_losses(&race, &s.loss, s.z, N, f, &asked, NULL), 0);
    assert_int_equal(asked, N * TRAIN);
    for (int k = 0; k < N; k++)
        assert_true(fabs(f[k] - full[k]) < 1e-12 * full[k]);
    race.wrong = 0.1;
    asked = 0, before = kh_plm_meter(plm).queries;
    assert_int_equal(kh_race_losses(&race, &s.loss, s.z, N, f, &asked, NULL), 0);
    assert_int_equal(asked, kh_plm_meter(plm).queries - before);
    assert_true(asked < N * TRAIN && asked >= N * TRAIN / 4 + N / 2 * (TRAIN - TRAIN / 4));
    for (int k = 0; k < N; k++) {
        bool same = fabs(f[k] - full[k]) < 1e-12 * full[k];
        left += !same;
        assert_true(same || better_than(f, k) >= N / 2);
    }
    assert_true(left > 0);
    kh_race_free(&race);
    scene_free(&s);
}

static void what_needs_all_rows_is_not_raced(void **state) {
    (void)state;
    double share[2] = { 0.5, 0.5 };
    assert_true(kh_race_suits(&(kh_train_loss){ .loss = KH_LOSS_BRIER }));
    assert_false(kh_race_suits(&(kh_train_loss){ .loss = KH_LOSS_METRIC }));
    assert_false(kh_race_suits(&(kh_train_loss){ .loss = KH_LOSS_CE, .share = share }));
}

/* -------------------------------------------------------------------------------------- a run */

static kh_posterior *raced(const char *method, const char *race, int groups) {
    kh_tune_opts o = tune_options();
    o.groups = groups;
    return tune_with(method,
        SET("pop=8", "budget-generations=6", "dev-every=3", "sigma=6", race,
            strcmp(method, "ensemble") == 0 ? "members=2" : "sigma=6"),
        &o);
}

static void a_raced_search_asks_less(void **state) {
    (void)state;
    kh_posterior *all = raced("bbt", "race=0", 1), *less = raced("bbt", "race=0.1", 1),
                 *same = raced("bbt", "race=0.1", 1);
    assert_true(less->train_queries < all->train_queries);
    assert_int_equal(all->train_queries, 6 * 8 * TRAIN);
    assert_memory_equal(less->z, same->z, D * sizeof *less->z);
    kh_posterior_free(all);
    kh_posterior_free(less);
    kh_posterior_free(same);
}

static void members_in_step_race_alike(void **state) {
    (void)state;
    kh_posterior *a = raced("ensemble", "race=0.1", 1), *b = raced("ensemble", "race=0.1", 2);
    assert_int_equal(a->train_queries, b->train_queries);
    assert_memory_equal(a->z, b->z, 2 * D * sizeof *a->z);
    kh_posterior_free(a);
    kh_posterior_free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_rank_is_as_probable_as_stated),
        cmocka_unit_test(the_better_half_always_stays),
        cmocka_unit_test(classes_take_turns),
        cmocka_unit_test(finishers_have_their_own_losses),
        cmocka_unit_test(what_needs_all_rows_is_not_raced),
        cmocka_unit_test(a_raced_search_asks_less),
        cmocka_unit_test(members_in_step_race_alike),
    };
    return cmocka_run_group_tests(tests, open_all, tune_teardown);
}
