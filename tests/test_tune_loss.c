/* test_tune_loss.c - losses and metrics against numbers worked out by hand. */
#include "test.h"

#include "tune/loss.h"

#include <math.h>

/* Three rows, three labels; the second row is off by a constant, as logits may be. */
static const float LOGPROB[] = { -0.5f, -1.5f, -2.5f, 7, 8, 6, -1, -1, -1 };
static const int LABEL[] = { 0, 0, 2 };

static double soft(int row, int k) {
    double sum = 0;
    for (int j = 0; j < 3; j++)
        sum += exp(LOGPROB[3 * row + j]);
    return exp(LOGPROB[3 * row + k]) / sum;
}

static double loss(kh_loss l) { return kh_loss_value(l, KH_METRIC_ACCURACY, LOGPROB, LABEL, 3, 3); }

static void cross_entropy_is_the_mean_of_minus_log_p(void **state) {
    (void)state;
    assert_true(
        fabs(loss(KH_LOSS_CE) + (log(soft(0, 0)) + log(soft(1, 0)) + log(soft(2, 2))) / 3) < 1e-12);
}

static void hinge_wants_a_margin_of_two(void **state) {
    (void)state;
    /* row 0: 2-1 + 2-2; row 1: 2+1 + 2-1; row 2: 2 + 2 */
    assert_true(fabs(loss(KH_LOSS_HINGE) - (1 + 0 + 3 + 1 + 4) / 3.0) < 1e-6);
}

static void brier_is_the_squared_distance(void **state) {
    (void)state;
    double want = 0;
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            want += (soft(i, k) - (LABEL[i] == k)) * (soft(i, k) - (LABEL[i] == k));
    assert_true(fabs(loss(KH_LOSS_BRIER) - want / 3) < 1e-12);
}

static void metric_loss_is_minus_the_metric(void **state) {
    (void)state;
    assert_true(loss(KH_LOSS_METRIC) ==
        -1.0 / 3); /* of equals the first label counts, so the last row is wrong */
    static const float two[] = { 0, 1, 0, 1, 1, 0, 0, 1 };
    static const int label[] = { 1, 0, 1, 1 };
    assert_true(
        kh_loss_value(KH_LOSS_METRIC, KH_METRIC_F1, two, label, 4, 2) == -2.0 * 2 / (3 + 3));
}

static void f1_of_a_class_never_seen_is_zero(void **state) {
    (void)state;
    static const float x[] = { 1, 0, 1, 0 };
    static const int label[] = { 0, 0 };
    assert_true(kh_metric_of(KH_METRIC_F1, x, label, 2, 2) == 0);
    assert_true(kh_metric_of(KH_METRIC_ACCURACY, x, label, 2, 2) == 1);
}

static void metrics_of_distributions(void **state) {
    (void)state;
    static const double p[] = { 0.9, 0.1, 0.2, 0.8, 0.4, 0.6 };
    static const int label[] = { 0, 1, 0 };
    assert_true(fabs(kh_metric_of_p(KH_METRIC_ACCURACY, p, label, 3, 2) - 2.0 / 3) < 1e-15);
    assert_true(fabs(kh_metric_of_p(KH_METRIC_F1, p, label, 3, 2) - 2.0 / 3) < 1e-15);
}

static void large_logits_do_not_overflow(void **state) {
    (void)state;
    static const float x[] = { 1e30f, 0, -1e30f };
    static const int label[] = { 0 };
    assert_true(kh_loss_value(KH_LOSS_CE, KH_METRIC_ACCURACY, x, label, 1, 3) == 0);
    assert_true(kh_loss_value(KH_LOSS_BRIER, KH_METRIC_ACCURACY, x, label, 1, 3) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy_is_the_mean_of_minus_log_p),
        cmocka_unit_test(hinge_wants_a_margin_of_two),
        cmocka_unit_test(brier_is_the_squared_distance),
        cmocka_unit_test(metric_loss_is_minus_the_metric),
        cmocka_unit_test(f1_of_a_class_never_seen_is_zero),
        cmocka_unit_test(metrics_of_distributions),
        cmocka_unit_test(large_logits_do_not_overflow),
    };
    return cmocka_run_group_tests_name("loss", tests, NULL, NULL);
}
