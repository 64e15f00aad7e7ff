/* test_posterior_distance.c - distances to the texts of tuning: the number itself, its encoder, the
 * posterior that keeps the features, and decisions that go by it. */
#include "tiny_tune.h"

#include "base/alloc.h"
#include "base/file.h"
#include "posterior/distance.h"
#include "posterior/posterior.h"
#include "text/cuts.h"

#include <math.h>

enum { TRAIN = 8, DEV = 12 };

static char model_dir[120];

static int open_all(void **state) {
    int rc = tune_setup(state, "distance", KH_ACCESS_LABELS, TRAIN, DEV, 2);
    snprintf(model_dir, sizeof model_dir, "%s", tiny_dir);
    return rc;
}

/* Against a plain sort. */
static void it_is_the_mean_of_the_nearest(void **state) {
    (void)state;
    const float ref[] = { 1, 0, 0, 1, 0.6f, 0.8f, -1, 0, 0.8f, 0.6f }, x[] = { 1, 0 };
    assert_true(fabs(kh_nearest_distance(ref, 5, x, 2, false, 3, -1) - (0 + 0.2 + 0.4) / 3) < 1e-7);
    assert_true(fabs(kh_nearest_distance(ref, 5, x, 2, false, 3, 0) - (0.2 + 0.4 + 1) / 3) < 1e-7);
    assert_true(fabs(kh_nearest_distance(ref, 5, x, 2, false, 1, -1)) < 1e-7);
    assert_true(fabs(kh_nearest_distance(ref, 2, x, 2, false, 3, -1) - 0.5) <
        1e-7); /* as many as there are */
    assert_true(isnan(kh_nearest_distance(ref, 1, x, 2, false, 3, 0)));
}

/* Half the squared Euclidean distance, of which 1 - cosine is the part of the unit vectors. */
static void it_counts_how_finely_words_are_cut(void **state) {
    (void)state;
    const float ref[] = { 1, 0, 0.1f, 0, 1, 0.5f, 0.6f, 0.8f, 0.3f }, x[] = { 1, 0, 0.7f };
    const double want[] = { 0 + 0.36 / 2, 1 + 0.04 / 2, 0.4 + 0.16 / 2 };
    assert_true(fabs(kh_nearest_distance(ref, 3, x, 3, true, 1, -1) - want[0]) < 1e-7);
    assert_true(
        fabs(kh_nearest_distance(ref, 3, x, 3, true, 2, -1) - (want[0] + want[2]) / 2) < 1e-7);
    assert_true(
        fabs(kh_nearest_distance(ref, 3, x, 3, true, 3, 0) - (want[1] + want[2]) / 2) < 1e-7);
}

/* ids of a word by itself, after a space: what is cut more than once has more ids than one. */
static void words_are_counted_and_nothing_else(void **state) {
    (void)state;
    kh_tokenizer *t;
    kh_cuts none = { 0 }, one = { 0 }, two = { 0 };
    assert_int_equal(kh_tokenizer_open(&t, TINY_TOKENIZER, NULL), 0);
    assert_int_equal(kh_cuts_count(&none, t, "12 ... ?! 3,5 ", 14, NULL), 0);
    assert_true(none.cuts == 0 && none.places == 0 && kh_cuts_rate(&none) == 0);
    kh_ids ids = { 0 };
    assert_int_equal(kh_tokenizer_encode(t, " zxqv", 5, KH_ENCODE_PLAIN, &ids, NULL), 0);
    assert_int_equal(kh_cuts_count(&one, t, "zxqv", 4, NULL), 0);
    assert_true(one.cuts == (ids.n < 4 ? ids.n - 1 : 3) && one.places == 3);
    assert_int_equal(kh_cuts_count(&two, t, "12zxqv...(zxqv)7", 16, NULL), 0);
    assert_true(two.cuts == 2 * one.cuts && two.places == 6);
    assert_true(fabs(kh_cuts_rate(&two) - 2.0 * (double)one.cuts / 7) < 1e-12);
    kh_cuts accent = { 0 }; /* letters, not bytes; a mark belongs to its letter's word */
    assert_int_equal(kh_cuts_count(&accent, t, "\xc3\xa9t\xc3\xa9 e\xcc\x81", 9, NULL), 0);
    assert_int_equal(accent.places, 3);
    kh_ids_free(&ids);
    kh_tokenizer_close(t);
}

static void features_have_length_one_and_know_no_batch(void **state) {
    (void)state;
    kh_encoder *e;
    kh_err err;
    assert_int_equal(kh_encoder_open(&e, model_dir, &err), 0);
    int size = kh_encoder_size(e);
    float *all = kh_malloc((size_t)(TRAIN * size) * sizeof *all),
          *one = kh_malloc((size_t)(size + 1) * sizeof *one);
    const kh_row *rows = kh_dataset_rows(train);
    assert_int_equal(kh_encoder_features(e, rows, TRAIN, false, all, &err), 0);
    for (int i = 0; i < TRAIN; i++) {
        double sum = 0;
        for (int k = 0; k < size; k++)
            sum += (double)all[i * size + k] * (double)all[i * size + k];
        assert_true(fabs(sum - 1) < 1e-5);
        assert_int_equal(kh_encoder_features(e, rows + i, 1, true, one, &err), 0);
        assert_memory_equal(one, all + i * size, (size_t)size * sizeof *one);
        assert_true(one[size] >= 0 && one[size] <= 1);
    }
    kh_free(all);
    kh_free(one);
    kh_encoder_close(e);
}

/* As posteriors were before cuts were counted. */
static void leave_cuts_out(kh_posterior *p) {
    size_t size = (size_t)--p->features_size;
    p->features_cuts = false;
    for (size_t i = 1; i < (size_t)p->n_features; i++)
        memmove(p->features + i * size, p->features + i * (size + 1), size * sizeof *p->features);
}

/* The box shows labels only, and the distances are known all the same. */
static void a_posterior_keeps_features_and_measures_by_them(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    o.features_model = model_dir;
    kh_posterior *p = tune_with("manual", NULL, &o), *again;
    assert_int_equal(p->n_features, TRAIN);
    assert_true(p->features_cuts);
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    assert_int_equal(kh_posterior_open(&again, run_dir, NULL), 0);
    assert_true(again->features_cuts && again->features_size == p->features_size);
    assert_memory_equal(
        p->features, again->features, (size_t)(TRAIN * p->features_size) * sizeof *p->features);
    kh_predictor *predictor;
    assert_int_equal(kh_predictor_new(&predictor, again, plm, NULL, NULL), 0);
    assert_true(kh_predictor_distance(predictor) && !kh_predictor_energy(predictor));
    double answer[2 * TRAIN], d[TRAIN];
    assert_int_equal(kh_predictor_explain(predictor, kh_dataset_rows(train), TRAIN,
                         &(kh_explained){ .p = answer, .distance = d }, NULL),
        0);
    for (int i = 0; i < TRAIN; i++) { /* a train row is its own nearest */
        double want = kh_nearest_distance(p->features, TRAIN, p->features + i * p->features_size,
            p->features_size, true, KH_NEIGHBOURS, -1);
        assert_true(fabs(d[i] - want) < 1e-6 && d[i] < 1);
    }
    kh_predictor_free(predictor);
    leave_cuts_out(again);
    assert_int_equal(kh_predictor_new(&predictor, again, plm, NULL, NULL), 0);
    assert_int_equal(kh_predictor_explain(predictor, kh_dataset_rows(train), TRAIN,
                         &(kh_explained){ .p = answer, .distance = d }, NULL),
        0);
    for (int i = 0; i < TRAIN; i++) {
        double want =
            kh_nearest_distance(again->features, TRAIN, again->features + i * again->features_size,
                again->features_size, false, KH_NEIGHBOURS, -1);
        assert_true(fabs(d[i] - want) < 1e-6);
    }
    kh_predictor_free(predictor);
    again->features_fingerprint ^= 1; /* another encoder */
    assert_int_equal(kh_predictor_new(&predictor, again, plm, NULL, NULL), 0);
    assert_false(kh_predictor_distance(predictor));
    assert_int_equal(kh_predictor_explain(predictor, kh_dataset_rows(train), TRAIN,
                         &(kh_explained){ .p = answer, .distance = d }, NULL),
        0);
    assert_true(isnan(d[0]));
    kh_predictor_free(predictor);
    kh_posterior_free(again);
    kh_posterior_free(p);
}

static void a_service_is_no_encoder(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    kh_posterior *p;
    kh_err err;
    o.features_model = "http://127.0.0.1:9";
    assert_int_equal(kh_tune(&p, "manual", NULL, plm, task, train, dev, &o, &err), KH_EUNSUPPORTED);
    assert_says(&err, "features need a model on this machine");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_mean_of_the_nearest),
        cmocka_unit_test(it_counts_how_finely_words_are_cut),
        cmocka_unit_test(words_are_counted_and_nothing_else),
        cmocka_unit_test(features_have_length_one_and_know_no_batch),
        cmocka_unit_test(a_posterior_keeps_features_and_measures_by_them),
        cmocka_unit_test(a_service_is_no_encoder),
    };
    return cmocka_run_group_tests_name("distance", tests, open_all, tune_teardown);
}
