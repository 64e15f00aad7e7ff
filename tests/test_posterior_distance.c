/* test_posterior_distance.c - distances to the texts of tuning: the number itself, its encoder, the
 * posterior that keeps the features, and decisions that go by it. */
#include "tiny_tune.h"

#include "base/alloc.h"
#include "base/file.h"
#include "posterior/distance.h"
#include "posterior/posterior.h"

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
    assert_true(fabs(kh_nearest_distance(ref, 5, x, 2, 3, -1) - (0 + 0.2 + 0.4) / 3) < 1e-7);
    assert_true(fabs(kh_nearest_distance(ref, 5, x, 2, 3, 0) - (0.2 + 0.4 + 1) / 3) < 1e-7);
    assert_true(fabs(kh_nearest_distance(ref, 5, x, 2, 1, -1)) < 1e-7);
    assert_true(
        fabs(kh_nearest_distance(ref, 2, x, 2, 3, -1) - 0.5) < 1e-7); /* as many as there are */
    assert_true(isnan(kh_nearest_distance(ref, 1, x, 2, 3, 0)));
}

static void features_have_length_one_and_know_no_batch(void **state) {
    (void)state;
    kh_encoder *e;
    kh_err err;
    assert_int_equal(kh_encoder_open(&e, model_dir, &err), 0);
    int size = kh_encoder_size(e);
    float *all = kh_malloc((size_t)(TRAIN * size) * sizeof *all),
          *one = kh_malloc((size_t)size * sizeof *one);
    const kh_row *rows = kh_dataset_rows(train);
    assert_int_equal(kh_encoder_features(e, rows, TRAIN, all, &err), 0);
    for (int i = 0; i < TRAIN; i++) {
        double sum = 0;
        for (int k = 0; k < size; k++)
            sum += (double)all[i * size + k] * (double)all[i * size + k];
        assert_true(fabs(sum - 1) < 1e-5);
        assert_int_equal(kh_encoder_features(e, rows + i, 1, one, &err), 0);
        assert_memory_equal(one, all + i * size, (size_t)size * sizeof *one);
    }
    kh_free(all);
    kh_free(one);
    kh_encoder_close(e);
}

/* The box shows labels only, and the distances are known all the same. */
static void a_posterior_keeps_features_and_measures_by_them(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    o.features_model = model_dir;
    kh_posterior *p = tune_with("manual", NULL, &o), *again;
    assert_int_equal(p->n_features, TRAIN);
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    assert_int_equal(kh_posterior_open(&again, run_dir, NULL), 0);
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
            p->features_size, KH_NEIGHBOURS, -1);
        assert_true(fabs(d[i] - want) < 1e-6 && d[i] < 1);
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
        cmocka_unit_test(features_have_length_one_and_know_no_batch),
        cmocka_unit_test(a_posterior_keeps_features_and_measures_by_them),
        cmocka_unit_test(a_service_is_no_encoder),
    };
    return cmocka_run_group_tests_name("distance", tests, open_all, tune_teardown);
}
