/* test_tune_mixture.c - weights of a mixture against quadrature (tools/make_mixture_vectors.py):
 * the sum over counts, and sampling. */
#include "judge_vectors.h"

#include "tune/mixture_weights.h"

enum { MEMBERS = 16 };

static const double ONE[MEMBERS] = { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };

static double worst_exact, worst_sample, worst_evidence;

static void check_case(const json_t *row) {
    int rows, n, m;
    double *like = doubles_of(row, "like", &rows, &n), *mean = doubles_of(row, "mean", &m, NULL),
           weight[MEMBERS], alpha[MEMBERS], evidence;
    for (int k = 0; k < n; k++)
        alpha[k] = number_of(row, "alpha");
    kh_mixture x = { like, rows, n, alpha };
    assert_int_equal(n, m);
    assert_int_equal(kh_mixture_exact(&x, weight, &evidence, NULL), 0);
    for (int k = 0; k < n; k++)
        worst_exact = fmax(worst_exact, fabs(weight[k] - mean[k]));
    worst_evidence = fmax(worst_evidence, fabs(evidence - number_of(row, "log_evidence")));
    assert_int_equal(kh_mixture_sample(&x, 13, 200000, weight, NULL), 0);
    for (int k = 0; k < n; k++)
        worst_sample = fmax(worst_sample, fabs(weight[k] - mean[k]));
    free(like);
    free(mean);
}

/* The standard deviation of a weight is 0.1 to 0.2, and some 5,000 of the sweeps are independent:
 * 0.002. */
static void weights_are_those_of_quadrature(void **state) {
    (void)state;
    assert_int_equal(each_line("mixture_weights.jsonl", check_case), 10);
    print_message("from quadrature: exact %.2g, evidence %.2g, sampled %.2g\n", worst_exact,
        worst_evidence, worst_sample);
    assert_true(worst_exact < 1e-9 && worst_evidence < 1e-9);
    assert_true(worst_sample < 6e-3);
}

/* Sixteen members, as text-ensemble has them, too many to be exact: fifteen that are alike share
 * what the sixteenth leaves, which quadrature in one dimension gives. Two members, of prior 15
 * alpha and alpha: the coefficients of the exact way, with other gamma functions. */
static void many_members_are_sampled_well(void **state) {
    (void)state;
    enum { ROWS = 32, STEPS = 20000 };
    double like[ROWS * MEMBERS], weight[MEMBERS], total = 0, mean = 0;
    kh_mixture x = { like, ROWS, MEMBERS, ONE };
    for (int i = 0; i < ROWS; i++)
        for (int m = 0; m < MEMBERS; m++)
            like[i * MEMBERS + m] = m ? 0.5 : 0.2 + 0.75 * (i % 4 > 0);
    for (int s = 0; s < STEPS; s++) { /* w_0 ~ Beta(1, 15), by the midpoint rule */
        double w = (s + 0.5) / STEPS, p = pow(1 - w, 14);
        for (int i = 0; i < ROWS; i++)
            p *= w * like[i * MEMBERS] + (1 - w) * 0.5;
        total += p;
        mean += p * w;
    }
    mean /= total;
    assert_int_equal(kh_mixture_exact(&x, weight, NULL, NULL), KH_ELIMIT);
    assert_int_equal(kh_mixture_weights(&x, 13, weight, NULL), 0);
    print_message("one of sixteen: %.5f, quadrature %.5f\n", weight[0], mean);
    assert_true(fabs(weight[0] - mean) < 1e-3);
    for (int m = 1; m < MEMBERS; m++)
        assert_true(fabs(weight[m] - (1 - mean) / (MEMBERS - 1)) < 1e-3);
}

/* Rows that all members explain alike teach nothing; a member that explains nothing keeps what the
 * prior gives it: (1 + 0) / (3 + 20). */
static void what_nothing_tells_apart_weighs_the_same(void **state) {
    (void)state;
    double like[20 * 3], weight[3];
    kh_mixture x = { like, 20, 3, ONE };
    for (int i = 0; i < 20; i++)
        for (int m = 0; m < 3; m++)
            like[3 * i + m] = 0.1 + 0.04 * i;
    assert_int_equal(kh_mixture_weights(&x, 1, weight, NULL), 0);
    for (int m = 0; m < 3; m++)
        assert_true(fabs(weight[m] - 1.0 / 3) < 1e-9);
    for (int i = 0; i < 20; i++)
        like[3 * i + 2] = 1e-12;
    assert_int_equal(kh_mixture_weights(&x, 1, weight, NULL), 0);
    assert_true(fabs(weight[0] - weight[1]) < 1e-9 && fabs(weight[2] - 1.0 / 23) < 1e-6);
}

/* Two members that are alike are one with the sum of their alphas. */
static void alphas_of_twins_add_up(void **state) {
    (void)state;
    double like[12 * 3], two[12 * 2], alpha[] = { 1, 0.5, 2.5 }, sum[] = { 1, 3 }, a[3], b[2];
    for (int i = 0; i < 12; i++) {
        two[2 * i] = like[3 * i] = 0.3 + 0.05 * i;
        two[2 * i + 1] = like[3 * i + 1] = like[3 * i + 2] = 0.9 - 0.05 * i;
    }
    assert_int_equal(kh_mixture_exact(&(kh_mixture){ like, 12, 3, alpha }, a, NULL, NULL), 0);
    assert_int_equal(kh_mixture_exact(&(kh_mixture){ two, 12, 2, sum }, b, NULL, NULL), 0);
    assert_true(fabs(a[0] - b[0]) < 1e-12 && fabs(a[2] - 5 * a[1]) < 1e-12);
}

static void one_member_has_all_the_weight(void **state) {
    (void)state;
    double like[] = { 0.5, 0.1 }, weight;
    assert_int_equal(kh_mixture_weights(&(kh_mixture){ like, 2, 1, ONE }, 1, &weight, NULL), 0);
    assert_true(weight == 1);
}

static void the_same_seed_gives_the_same_bits(void **state) {
    (void)state;
    double like[] = { 0.9, 0.2, 0.6, 0.7, 0.3, 0.8 }, a[2], b[2];
    kh_mixture x = { like, 3, 2, ONE };
    assert_int_equal(kh_mixture_sample(&x, 5, 50, a, NULL), 0);
    assert_int_equal(kh_mixture_sample(&x, 5, 50, b, NULL), 0);
    assert_memory_equal(a, b, sizeof a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_those_of_quadrature),
        cmocka_unit_test(many_members_are_sampled_well),
        cmocka_unit_test(what_nothing_tells_apart_weighs_the_same),
        cmocka_unit_test(alphas_of_twins_add_up),
        cmocka_unit_test(one_member_has_all_the_weight),
        cmocka_unit_test(the_same_seed_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
