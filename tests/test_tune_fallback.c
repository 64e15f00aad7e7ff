/* test_tune_fallback.c - the net under every search, with boxes that know the true labels: what a
 * search finds is returned if it is surely better than the template, and not otherwise. */
#include "tiny_tune.h"

#include "base/map.h"
#include "base/rng.h"
#include "judge/calibrate.h"
#include "posterior/posterior.h"
#include "posterior/predict.h"
#include "tune/fallback.h"

#include <math.h>

enum { TRAIN = 32, DEV = 32 };

static int open_all(void **state) {
    return tune_setup(state, "fallback", KH_ACCESS_WEIGHTS, TRAIN, DEV, 2);
}

/* ------------------------------------------------------------------------------------- the rule */

static void scores_are_compared_row_by_row(void **state) {
    (void)state;
    double a[] = { 5, 1, 2, 3, 4 }, b[] = { 0, 0, 0, 0, 9 }, mean;
    int rows_a[] = { 7, 0, 1, 2, 3 }, rows_b[] = { 3, 2, 1, 0, 8 };
    kh_row_scores x = { a, rows_a, 5, 0 }, y = { b, rows_b, 5, 0 };
    double apart = kh_scores_apart(&x, &y, &mean); /* the differences are 1, 2, 3, 4 */
    assert_true(fabs(mean - 2.5) < 1e-12);
    assert_true(fabs(apart - 2.5 / sqrt(5.0 / 3 / 4)) < 1e-12);
    assert_true(fabs(kh_scores_apart(&y, &x, &mean) + apart) < 1e-12);
    assert_true(kh_scores_apart(&x, &x, &mean) == 0 && mean == 0);
    double above[] = { 6, 2, 3, 4, 5 };
    kh_row_scores z = { above, rows_a, 5, 0 }; /* one more everywhere: no doubt */
    assert_true(isinf(kh_scores_apart(&z, &x, &mean)) && mean == 1);
    x.n = 1;
    assert_true(kh_scores_apart(&x, &y, &mean) == 0); /* no row in common */
}

static void looks_are_taken_off_the_lead(void **state) {
    (void)state;
    double a[] = { 5, 1, 2, 3, 4 }, b[5] = { 0 }, mean;
    int rows[] = { 0, 1, 2, 3, 4 };
    kh_row_scores x = { a, rows, 5, 0 }, y = { b, rows, 5, 12 };
    double se = sqrt(10.0 / 4 / 5);
    assert_true(fabs(kh_scores_apart(&x, &y, &mean) - (3 - log(12) / 5) / se) < 1e-12);
    assert_true(fabs(mean - (3 - log(12) / 5)) < 1e-12);
    x.looks = 12; /* both were chosen so */
    assert_true(fabs(kh_scores_apart(&x, &y, &mean) - 3 / se) < 1e-12);
    x.looks = 0, y.looks = 1; /* nothing to choose from */
    assert_true(fabs(kh_scores_apart(&x, &y, &mean) - 3 / se) < 1e-12);
}

/* (T27) Where the template is right (two classes, each true half of the time whatever the text),
 * the best of LOOKS others is ahead of it by ln LOOKS + c with a probability of exp(-c) at most. */
static void luck_is_bounded(void **state) {
    (void)state;
    enum { TRIALS = 4000, LOOKS = 20, N = 32 };
    static const double C[] = { 0, 1, 2 };
    int row[N], ahead[3] = { 0 };
    double plain[N], best[N], mean;
    for (int i = 0; i < N; i++)
        row[i] = i, plain[i] = log(2);
    for (int trial = 0; trial < TRIALS; trial++) {
        kh_rng rng = kh_rng_stream(1, KH_RNG_BOOTSTRAP, (uint32_t)trial, 0);
        double least = INFINITY;
        for (int l = 0; l < LOOKS; l++) {
            double nll[N], sum = 0;
            for (int i = 0; i < N; i++)
                sum += nll[i] = -log(0.5 + (kh_rng_below(&rng, 2) ? 0.12 : -0.12));
            if (sum < least)
                least = sum, memcpy(best, nll, sizeof best);
        }
        kh_scores_apart(
            &(kh_row_scores){ plain, row, N, 0 }, &(kh_row_scores){ best, row, N, LOOKS }, &mean);
        for (int i = 0; i < 3; i++)
            ahead[i] += mean * N > C[i];
    }
    for (int i = 0; i < 3; i++)
        assert_true(ahead[i] <= TRIALS * exp(-C[i]));
    assert_true(ahead[0] > 0 && ahead[0] < TRIALS / 2); /* the bound is no idle one */
}

/* ------------------------------------------------------------------------------------- the boxes
 */

typedef struct oracle {
    double plain,
        soft; /* how far the true label is ahead in the template, and with the best prompt */
    long scored, answered;
} oracle;

/* A number within -1 .. 1 that belongs to the row. */
static double noise_of(const kh_batch *b, int i) {
    size_t first = b->start[i], n = b->start[i + 1] - first;
    uint64_t h = kh_hash64(b->id + first, n * sizeof *b->id);
    return 2 * ((double)(h >> 11) * 0x1p-53) - 1;
}

enum { LONGEST = 36 }; /* tokens of a row without demonstrations */

/* Two labels. The first number of a prompt decides how much it helps; demonstrations do not. */
static double lead(const oracle *o, const kh_question *q, int prompt, int row) {
    const kh_batch *b = q->batch;
    double by = o->plain;
    if (b->n_slot > 0) {
        double x = (double)q->prompt[(size_t)prompt * (size_t)b->n_slot * 4];
        by = o->soft * (1 - exp(-x * x));
    }
    if (b->start[row + 1] - b->start[row] > LONGEST)
        by = 0;
    return 2 * noise_of(b, row) + (b->label[row] == 1 ? by : -by);
}

static int score(void *self, const kh_question *q, float *logits, kh_err *err) {
    oracle *o = self;
    (void)err;
    int n_prompt = q->batch->n_slot > 0 ? q->n_prompt : 1, n = q->batch->n_row;
    for (int i = 0; i < n_prompt * n; i++) {
        logits[2 * i] = 0;
        logits[2 * i + 1] = (float)lead(o, q, i / n, i % n);
    }
    o->scored += n_prompt * n;
    return 0;
}

static int answer(void *self, const kh_question *q, int *label, kh_err *err) {
    oracle *o = self;
    (void)err;
    int n_prompt = q->batch->n_slot > 0 ? q->n_prompt : 1, n = q->batch->n_row;
    for (int i = 0; i < n_prompt * n; i++)
        label[i] = lead(o, q, i / n, i % n) > 0;
    o->answered += n_prompt * n;
    return 0;
}

static kh_plm *box_of(oracle *o, kh_access access) {
    kh_box box = { .name = "oracle",
        .access = access,
        .tokenizer = TINY_TOKENIZER,
        .hidden = 4,
        .max_len = 64,
        .fingerprint = 7,
        .score = access == KH_ACCESS_LOGPROBS ? score : NULL,
        .answer = answer };
    kh_plm *out;
    kh_err err;
    if (kh_plm_new(&out, &box, o, &err) != 0)
        fail_msg("%s", err.msg);
    return out;
}

static kh_posterior *found(
    const char *method, oracle *o, kh_access access, kh_fallback fallback, kh_effort effort) {
    kh_plm *box = box_of(o, access);
    kh_tune_opts t = kh_tune_defaults();
    kh_posterior *p;
    kh_err err;
    t.effort = effort;
    t.space.p0 = KH_P0_RANDOM;
    t.space.dim = 8;
    t.space.slots = 2;
    t.max_queries = 3000;
    t.fallback = fallback;
    if (kh_tune(&p, method, NULL, box, task, train, dev, &t, &err) != 0)
        fail_msg("%s: %s", method, err.msg);
    assert_true(p->train_queries + p->dev_queries <= 3000);
    assert_int_equal(o->scored + o->answered, p->train_queries + p->dev_queries);
    kh_plm_close(box);
    return p;
}

static const struct {
    const char *name;
    kh_access access;
} METHODS[] = { { "bbt", KH_ACCESS_LOGPROBS }, { "ensemble", KH_ACCESS_LOGPROBS },
    { "elbo", KH_ACCESS_LOGPROBS }, { "smc", KH_ACCESS_LABELS }, { "abc-smc", KH_ACCESS_LABELS },
    { "smc", KH_ACCESS_LOGPROBS } };
enum { N_METHOD = sizeof METHODS / sizeof METHODS[0] };

/* Prompts that say nothing, and a template that knows. */
static void nothing_found_is_the_template(void **state) {
    (void)state;
    for (int i = 0; i < N_METHOD; i++) {
        oracle o = { .plain = 2, .soft = 0 };
        kh_posterior *p =
            found(METHODS[i].name, &o, METHODS[i].access, KH_FALLBACK_AUTO, KH_EFFORT_QUICK);
        assert_string_equal(p->method, "manual");
        assert_true(p->n == 1 && !p->soft && p->calibrated);
        assert_true(p->dev > 0.7 && p->score_rows == TRAIN + DEV);
        assert_non_null(strstr(p->stopped, "found nothing that is surely better"));
        assert_non_null(strstr(p->tried, METHODS[i].name));
        /* Labels only means that nothing else is asked, of the template either. */
        if (strcmp(METHODS[i].name, "smc") == 0 || METHODS[i].access == KH_ACCESS_LABELS) {
            assert_int_equal(o.scored, 0);
            assert_int_equal(p->access, KH_ACCESS_LABELS);
        }
        kh_posterior_free(p);
    }
}

/* The other way round: what was found stays, and says by how much it won. */
static void what_is_surely_better_stays(void **state) {
    (void)state;
    for (int i = 0; i < N_METHOD; i++) {
        oracle o = { .plain = 0, .soft = 6 };
        kh_posterior *p =
            found(METHODS[i].name, &o, METHODS[i].access, KH_FALLBACK_AUTO, KH_EFFORT_QUICK);
        if (strcmp(p->method, METHODS[i].name) != 0)
            fail_msg("%s: %s", METHODS[i].name, p->stopped);
        assert_true(p->dev > 0.9 && p->soft);
        assert_non_null(strstr(p->tried, "manual"));
        kh_posterior_free(p);
    }
}

/* A search that is a little better on dev, as one of many looks always is, is not surely better:
 * the template answers beside it. */
static void a_little_better_is_mixed(void **state) {
    (void)state;
    static const kh_access LEVEL[] = { KH_ACCESS_LOGPROBS, KH_ACCESS_LABELS };
    for (int i = 0; i < 2; i++) {
        oracle o = { .plain = 1, .soft = 1.75 }; /* bbt: ahead by 1.2 standard errors */
        const char *method = i == 0 ? "bbt" : "smc";
        kh_posterior *p = found(method, &o, LEVEL[i], KH_FALLBACK_AUTO, KH_EFFORT_QUICK);
        if (strcmp(p->method, method) != 0)
            fail_msg("%s: %s", method, p->stopped);
        assert_true(p->soft && p->calibrated);
        assert_true(p->template_share > 0.05 && p->template_share < 0.95);
        assert_non_null(strstr(p->stopped, "is not surely better than the template"));
        assert_non_null(strstr(p->stopped, "answers beside it"));
        kh_posterior_free(p);
    }
}

/* auto does not give away what the search alone would have returned. */
static void auto_mixes_as_the_net_does(void **state) {
    (void)state;
    oracle o = { .plain = 1, .soft = 1.5 };
    kh_posterior *p = found("auto", &o, KH_ACCESS_LOGPROBS, KH_FALLBACK_AUTO, KH_EFFORT_QUICK);
    if (strcmp(p->method, "bbt") != 0 || !(p->template_share > 0.05 && p->template_share < 0.95))
        fail_msg("%s, %s", p->stopped, p->tried);
    kh_posterior_free(p);
    o = (oracle){ .plain = 2, .soft = 0 };
    p = found("auto", &o, KH_ACCESS_LOGPROBS, KH_FALLBACK_AUTO, KH_EFFORT_QUICK);
    assert_string_equal(p->method, "manual");
    kh_posterior_free(p);
}

/* What answers with the template must be ahead by one standard error, or by half of one where the
 * lead has paid for its looks, and its map may not turn answers round. */
static void pools_stay_by_half_a_standard_error(void **state) {
    (void)state;
    double weight[] = { 1, 1 }, bias[] = { 0, 0 };
    kh_posterior p = { .template_share = 0.5,
        .calibrator = {
            .method = KH_CALIBRATE_AFFINE, .n_label = 2, .weight = weight, .bias = bias } };
    assert_true(kh_pool_stays(&p, 0.5, true) && kh_pool_stays(&p, 1, false));
    assert_false(kh_pool_stays(&p, 0.49, true) || kh_pool_stays(&p, 0.99, false));
    weight[1] = -0.1;
    assert_false(kh_pool_stays(&p, 5, true));
    weight[1] = 1, p.template_share = 0;
    assert_false(kh_pool_stays(&p, 5, true));
}

/* By hand: the template's answers and the prompts', pooled and calibrated. */
static void mixed_answers_are_the_pool(void **state) {
    (void)state;
    oracle o = { .plain = 1, .soft = 1.75 };
    kh_posterior *p = found("bbt", &o, KH_ACCESS_LOGPROBS, KH_FALLBACK_AUTO, KH_EFFORT_QUICK);
    kh_plm *box = box_of(&o, KH_ACCESS_LOGPROBS);
    kh_posterior alone = *p, plain = *p;
    alone.template_share = plain.template_share = 0;
    alone.calibrated = plain.calibrated = plain.soft = false;
    const kh_posterior *three[] = { p, &alone, &plain };
    double answer[3][2 * DEV];
    for (int i = 0; i < 3; i++) {
        kh_predictor *predictor;
        assert_int_equal(kh_predictor_new(&predictor, three[i], box, NULL, NULL), 0);
        assert_int_equal(
            kh_predictor_run(predictor, kh_dataset_rows(dev), DEV, answer[i], NULL), 0);
        kh_predictor_free(predictor);
    }
    double s = p->template_share;
    for (int i = 0; i < DEV; i++) {
        double log_odds = (1 - s) * log(answer[1][2 * i + 1] / answer[1][2 * i]) +
            s * log(answer[2][2 * i + 1] / answer[2][2 * i]);
        double x[] = { -log1p(exp(log_odds)), -log1p(exp(-log_odds)) }, y[2];
        kh_calibrator_apply(&p->calibrator, x, 1, y);
        assert_true(fabs(y[1] - answer[0][2 * i + 1]) < 1e-9);
    }
    kh_plm_close(box);
    kh_posterior_free(p);
}

/* (T23), and a row that a service refused to one of the two. */
static void pools_by_hand(void **state) {
    (void)state;
    double p[] = { 0.9, 0.1, NAN, NAN, 0.3, 0.7 }, q[] = { 0.5, 0.5, 0.2, 0.8, NAN, NAN };
    double votes[] = { 0.75, 0.25 }, one[] = { 0, 1 };
    kh_mixture_pool(p, q, 0.5, false, 3, 2);
    assert_true(fabs(p[0] - 0.75) < 1e-12); /* sqrt(0.9 * 0.5) : sqrt(0.1 * 0.5) is 3 : 1 */
    assert_true(p[2] == 0.2 && p[3] == 0.8 && p[4] == 0.3 && p[5] == 0.7);
    kh_mixture_pool(votes, one, 0.2, true, 1, 2);
    assert_true(fabs(votes[0] - 0.6) < 1e-12 && fabs(votes[1] - 0.4) < 1e-12);
}

static void the_paper_has_no_net(void **state) {
    (void)state;
    static const struct {
        kh_fallback fallback;
        kh_effort effort;
        const char *method;
    } CASES[] = { { KH_FALLBACK_AUTO, KH_EFFORT_PAPER, "bbt" },
        { KH_FALLBACK_TEMPLATE, KH_EFFORT_PAPER, "manual" },
        { KH_FALLBACK_NONE, KH_EFFORT_QUICK, "bbt" } };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        oracle o = { .plain = 2, .soft = 0 };
        kh_posterior *p = found("bbt", &o, KH_ACCESS_LOGPROBS, CASES[i].fallback, CASES[i].effort);
        assert_string_equal(p->method, CASES[i].method);
        assert_int_equal(p->tried != NULL, strcmp(CASES[i].method, "manual") == 0);
        kh_posterior_free(p);
    }
}

/* What comes of it is a posterior like any other. */
static void save_and_use(double plain, double soft) {
    oracle o = { .plain = plain, .soft = soft };
    kh_posterior *p = found("bbt", &o, KH_ACCESS_LOGPROBS, KH_FALLBACK_AUTO, KH_EFFORT_QUICK),
                 *again;
    kh_plm *box = box_of(&o, KH_ACCESS_LOGPROBS);
    kh_predictor *predictor;
    double a[2 * DEV], b[2 * DEV];
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    assert_int_equal(kh_posterior_open(&again, run_dir, NULL), 0);
    kh_posterior *both[] = { p, again };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kh_predictor_new(&predictor, both[i], box, NULL, NULL), 0);
        assert_int_equal(
            kh_predictor_run(predictor, kh_dataset_rows(dev), DEV, i ? b : a, NULL), 0);
        kh_predictor_free(predictor);
    }
    assert_memory_equal(a, b, sizeof a);
    assert_true(p->template_share == again->template_share);
    kh_plm_close(box);
    kh_posterior_free(p);
    kh_posterior_free(again);
}

static void it_is_saved_and_used(void **state) {
    (void)state;
    save_and_use(2, 0);
    save_and_use(1, 1.75); /* mixed */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_compared_row_by_row),
        cmocka_unit_test(looks_are_taken_off_the_lead),
        cmocka_unit_test(luck_is_bounded),
        cmocka_unit_test(nothing_found_is_the_template),
        cmocka_unit_test(what_is_surely_better_stays),
        cmocka_unit_test(a_little_better_is_mixed),
        cmocka_unit_test(mixed_answers_are_the_pool),
        cmocka_unit_test(auto_mixes_as_the_net_does),
        cmocka_unit_test(pools_stay_by_half_a_standard_error),
        cmocka_unit_test(pools_by_hand),
        cmocka_unit_test(the_paper_has_no_net),
        cmocka_unit_test(it_is_saved_and_used),
    };
    return cmocka_run_group_tests_name("fallback", tests, open_all, tune_teardown);
}
