/* test_tune_likelihood_free.c - methods for boxes that give labels only, on a tiny random model:
 * what they cost, that nothing but the seed matters, what early rejection saves, calibrated votes
 * in file and prediction. */
#include "tiny_tune.h"

#include "posterior/posterior.h"
#include "tune/likelihood_free.h"
#include "tune/method.h"

#include <math.h>

enum { TRAIN = 16, DEV = 10 };

static int open_all(void **state) {
    return tune_setup(state, "labels", KH_ACCESS_LABELS, TRAIN, DEV, 2);
}

static const struct {
    const char *name;
    const char *const *set;
} METHODS[] = {
    { "abc-rejection", SET("samples=12") },
    { "abc-smc", SET("samples=12", "tolerance=5", "max-misses=5") },
    { "abc-smc", SET("samples=12", "tolerance=5", "max-misses=5", "weights=importance") },
    { "smc", SET("samples=12", "budget-levels=3") },
    { "smc", SET("samples=12", "budget-levels=3", "accept=soft", "dev-every=1") },
    { "smc", SET("samples=12", "budget-levels=3", "learn-moves=true", "early-rejection=tight") },
};

enum { N_METHOD = sizeof METHODS / sizeof METHODS[0] };

/* ---------------------------------------------------------------------------------- what it is */

typedef struct lines {
    char last[512];
    int n;
} lines;

static void record(void *user, const char *line) {
    lines *l = user;
    static const char *const KEYS[] = { "gen=", " queries=", " accepted=", " tried=", " rate=",
        " ess=", " ancestors=", " errors=", " saved=", " dev=" };
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++)
        if (!strstr(line, KEYS[i]))
            fail_msg("no \"%s\" in \"%s\"", KEYS[i], line);
    l->n++;
    snprintf(l->last, sizeof l->last, "%s", line);
}

/* Members that are not copies of an earlier one: dev is asked about each of these. */
static int distinct(const kh_posterior *p) {
    size_t size = (size_t)p->space.dim * sizeof *p->z;
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        bool copy = false;
        for (int j = 0; j < i && !copy; j++)
            copy = memcmp(p->z + (size_t)i * (size_t)p->space.dim,
                       p->z + (size_t)j * (size_t)p->space.dim, size) == 0;
        n += !copy;
    }
    return n;
}

static void every_method_makes_a_posterior_that_votes(void **state) {
    (void)state;
    for (int m = 0; m < N_METHOD; m++) {
        lines l = { 0 };
        kh_tune_opts o = tune_options();
        o.uncalibrated = false;
        o.record = record;
        o.user = &l;
        long long before = kh_plm_meter(plm).queries;
        kh_posterior *p = tune_with(METHODS[m].name, METHODS[m].set, &o);
        assert_int_equal(kh_plm_meter(plm).queries - before, p->train_queries + p->dev_queries);
        assert_true(p->train_queries > 0 && p->dev_queries >= distinct(p) * DEV &&
            p->dev_queries % DEV == 0);
        assert_int_equal(p->access, KH_ACCESS_LABELS);
        assert_int_equal(p->n, 12);
        assert_true(p->calibrated && p->calibrator.n >= DEV && p->calibrator.n <= DEV + TRAIN);
        assert_true(l.n > 0 && p->stopped[0]);
        kh_posterior_free(p);
    }
}

/* The metric on dev that the posterior reports is that of its votes there; calibrated, they may
 * choose otherwise. */
static void dev_metric_is_that_of_the_result(void **state) {
    (void)state;
    for (int m = 0; m < N_METHOD; m++) {
        kh_tune_opts o = tune_options();
        o.uncalibrated = false;
        kh_posterior *p = tune_with(METHODS[m].name, METHODS[m].set, &o);
        kh_predictor *predictor;
        double answer[DEV * 2];
        int right = 0;
        assert_int_equal(kh_predictor_new(&predictor, p, plm, NULL, NULL), 0);
        assert_int_equal(kh_predictor_run(predictor, kh_dataset_rows(dev), DEV, answer, NULL), 0);
        for (int i = 0; i < DEV; i++) {
            assert_true(answer[2 * i] > 0 && answer[2 * i + 1] > 0); /* no vote is certainty */
            assert_true(fabs(answer[2 * i] + answer[2 * i + 1] - 1) < 1e-12);
        }
        kh_predictor_free(predictor);
        p->calibrated = false;
        assert_int_equal(kh_predictor_new(&predictor, p, plm, NULL, NULL), 0);
        assert_int_equal(kh_predictor_run(predictor, kh_dataset_rows(dev), DEV, answer, NULL), 0);
        for (int i = 0; i < DEV; i++)
            right += (answer[2 * i + 1] > answer[2 * i]) == kh_dataset_rows(dev)[i].label;
        assert_true(p->dev == (double)right / DEV);
        p->calibrated = true;
        kh_predictor_free(predictor);
        kh_posterior_free(p);
    }
}

/* Whether a train row counts must not depend on what was said to it: members at the last allowance
 * may vote on the rows that they had wrong, and on no other, so that rows taken one by one would be
 * the hard ones. All count, or none. */
static void train_rows_count_all_or_none(void **state) {
    (void)state;
    int all = 0, none = 0;
    for (int m = 3; m <= 4; m++)
        for (uint64_t seed = 1; seed <= 12; seed++) {
            kh_tune_opts o = tune_options();
            o.uncalibrated = false;
            o.seed = seed;
            kh_posterior *p = tune_with(METHODS[m].name, METHODS[m].set, &o);
            all += p->calibrator.n == DEV + TRAIN;
            none += p->calibrator.n == DEV;
            kh_posterior_free(p);
        }
    assert_int_equal(all + none, 24);
    assert_true(all > 0 && none > 0);
}

/* Ten members; the first `silent` make as many errors as are allowed and have row 0 right, so that
 * one more would have kept them out. */
static bool may_vote(int silent, int said, double *votes) {
    kh_simulator s = { .dim = 1, .n_answer = 1 };
    kh_population p;
    const int truth = 1;
    assert_int_equal(kh_population_new(&p, 10, &s, NULL), 0);
    p.tolerance = 5;
    for (int i = 0; i < 10; i++) {
        p.errors[i] = i < silent ? 5 : 4;
        p.answer[i] = i < silent ? said : 0;
    }
    bool enough = kh_votes_without(&p, &truth, 0, 2, votes);
    kh_population_free(&p);
    return enough;
}

static void rows_count_where_four_of_five_may_vote(void **state) {
    (void)state;
    double votes[2];
    assert_true(may_vote(2, 1, votes));
    assert_true(fabs(votes[0] - 10) < 1e-9 && votes[1] == 0);
    assert_false(may_vote(3, 1, votes));
    assert_false(may_vote(8, 1, votes));
    assert_true(may_vote(3, 0, votes)); /* who is wrong on it would be here if right */
}

static void votes_are_plain_without_calibration(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    o.uncalibrated = true;
    kh_posterior *p = tune_with("smc", SET("samples=12", "budget-levels=1"), &o);
    kh_predictor *predictor;
    double answer[DEV * 2];
    assert_false(p->calibrated);
    assert_int_equal(kh_predictor_new(&predictor, p, plm, NULL, NULL), 0);
    assert_int_equal(kh_predictor_run(predictor, kh_dataset_rows(dev), DEV, answer, NULL), 0);
    for (int i = 0; i < 2 * DEV; i++)
        assert_true(fabs(answer[i] * 12 - round(answer[i] * 12)) < 1e-5);
    kh_predictor_free(predictor);
    kh_posterior_free(p);
}

static void paper_exact_is_the_published_code(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    o.paper_exact = true;
    kh_posterior *p = tune_with("abc-smc", SET("samples=12", "budget-generations=1"), &o);
    assert_non_null(strstr(p->options, "\"first-draws\":20"));
    assert_non_null(strstr(p->options, "\"kernel-mean\":10"));
    assert_non_null(strstr(p->options, "\"early-rejection\":\"off\""));
    assert_non_null(strstr(p->options, "\"prior-variance\":50"));
    assert_false(p->calibrated);
    assert_int_equal(p->train_queries % TRAIN, 0); /* every row, every time */
    kh_posterior_free(p);
    p = tune_with("smc", SET("samples=12", "budget-levels=1"), &o);
    assert_non_null(strstr(p->options, "\"prior-spread\":0,"));
    assert_false(p->calibrated);
    kh_posterior_free(p);
}

/* ------------------------------------------------------------------------ what does not matter */

static void read_samples(kh_buf *out) {
    char *path = kh_path_join(run_dir, "posterior.safetensors");
    assert_int_equal(kh_file_read(path, 1 << 20, out, NULL), 0);
    kh_free(path);
}

static void read_json(kh_buf *out) {
    char *path = kh_path_join(run_dir, "posterior.json");
    assert_int_equal(kh_file_read(path, 1 << 20, out, NULL), 0);
    kh_free(path);
}

static void same_bytes(const kh_buf *a, const kh_buf *b) {
    assert_int_equal(a->len, b->len);
    assert_memory_equal(a->data, b->data, a->len);
}

static void same_seed_same_files_with_any_threads(void **state) {
    (void)state;
    for (int m = 0; m < N_METHOD; m++) {
        kh_buf samples[3], json[3];
        for (int i = 0; i < 3; i++) {
            kh_tune_opts o = tune_options();
            o.seed = i < 2 ? 13 : 14;
            kh_threads_set(i + 1);
            kh_posterior *p = tune_with(METHODS[m].name, METHODS[m].set, &o);
            assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
            read_samples(&samples[i]);
            read_json(&json[i]);
            kh_posterior_free(p);
        }
        same_bytes(&samples[0], &samples[1]);
        same_bytes(&json[0], &json[1]);
        assert_true(samples[0].len != samples[2].len ||
            memcmp(samples[0].data, samples[2].data, samples[0].len) != 0);
        for (int i = 0; i < 3; i++) {
            kh_buf_free(&samples[i]);
            kh_buf_free(&json[i]);
        }
    }
    kh_threads_set(0);
}

/* Samples, weights, dev metric and calibration are the same; only the options and the bill differ.
 */
static void early_rejection_changes_only_the_bill(void **state) {
    (void)state;
    long long saved = 0;
    for (int m = 0; m < N_METHOD; m++) {
        kh_buf samples[2];
        kh_posterior *p[2];
        for (int i = 0; i < 2; i++) {
            kh_tune_opts o = tune_options();
            const char *set[8];
            int n = 0;
            for (; METHODS[m].set[n]; n++)
                set[n] = METHODS[m].set[n];
            set[n] = i ? "early-rejection=off" : "early-rejection=on";
            set[n + 1] = NULL;
            p[i] = tune_with(METHODS[m].name, set, &o);
            assert_int_equal(kh_posterior_save(p[i], run_dir, NULL), 0);
            read_samples(&samples[i]);
        }
        same_bytes(&samples[0], &samples[1]);
        assert_true(p[0]->dev == p[1]->dev);
        assert_true(p[0]->calibrator.alpha == p[1]->calibrator.alpha);
        assert_true(p[0]->calibrator.temperature == p[1]->calibrator.temperature);
        assert_int_equal(p[0]->dev_queries, p[1]->dev_queries);
        assert_string_equal(p[0]->stopped, p[1]->stopped);
        assert_true(p[0]->train_queries <= p[1]->train_queries);
        saved += p[1]->train_queries - p[0]->train_queries;
        for (int i = 0; i < 2; i++) {
            kh_buf_free(&samples[i]);
            kh_posterior_free(p[i]);
        }
    }
    assert_true(saved > 0);
}

/* Looks that the allowance times: the same samples for fewer questions still. */
static void tight_early_rejection_asks_less(void **state) {
    (void)state;
    kh_buf samples[2];
    long long asked[2];
    for (int i = 0; i < 2; i++) {
        kh_tune_opts o = tune_options();
        kh_posterior *p = tune_with("smc",
            SET("samples=12", "budget-levels=3",
                i ? "early-rejection=tight" : "early-rejection=on"),
            &o);
        assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
        read_samples(&samples[i]);
        asked[i] = p->train_queries;
        kh_posterior_free(p);
    }
    same_bytes(&samples[0], &samples[1]);
    assert_true(asked[1] < asked[0]);
    kh_buf_free(&samples[0]);
    kh_buf_free(&samples[1]);
}

static void a_posterior_keeps_its_calibration(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    o.uncalibrated = false;
    kh_posterior *p = tune_with("smc", SET("samples=12", "budget-levels=1"), &o), *again;
    kh_buf json;
    kh_err err;
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    assert_int_equal(kh_posterior_open(&again, run_dir, NULL), 0);
    assert_true(again->calibrated && again->calibrator.alpha == p->calibrator.alpha &&
        again->calibrator.weight[0] == p->calibrator.weight[0] &&
        again->calibrator.bias[1] == p->calibrator.bias[1] &&
        again->calibrator.n == p->calibrator.n && again->calibrator.n_label == 2);
    kh_posterior_free(again);
    static const struct {
        const char *from, *to, *says;
    } bad[] = {
        { "\"method\": \"votes-affine\"", "\"method\": \"voter\"",
            "\"calibration\" must be by votes" },
        { "\"access\": \"labels\"", "\"access\": \"logprobs\"",
            "\"calibration\" must be by votes if" },
        { "\"strength\": ", "\"strength\": -1", "\"calibration\" has strength -1" },
        { "\"alpha\": ", "\"alpha\": -1", "\"calibration\" has alpha -1" },
        { "\"calibration\": {", "\"calibration\": 1, \"x\": {",
            "\"calibration\" must be an object" },
    };
    char *path = kh_path_join(run_dir, "posterior.json");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
        read_json(&json);
        kh_buf out = kh_buf_init(KH_BUF_MAX);
        char *at = strstr(json.data, bad[i].from);
        assert_non_null(at);
        kh_buf_bytes(&out, json.data, (size_t)(at - json.data));
        kh_buf_text(&out, bad[i].to);
        kh_buf_text(&out,
            at + strlen(bad[i].from) +
                (i == 2 || i == 3 ? strspn(at + strlen(bad[i].from), "0123456789.e+-") : 0));
        assert_int_equal(kh_file_write(path, out.data, out.len, NULL), 0);
        assert_int_equal(kh_posterior_open(&again, run_dir, &err), KH_EFORMAT);
        assert_says(&err, bad[i].says);
        kh_buf_free(&out);
        kh_buf_free(&json);
    }
    kh_free(path);
    kh_posterior_free(p);
}

/* The run's folder, with this for its calibration. */
static void write_calibration(const kh_posterior *p, const char *calibration) {
    kh_buf json, out = kh_buf_init(KH_BUF_MAX);
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    read_json(&json);
    char *at = strstr(json.data, "\"calibration\": {");
    assert_non_null(at);
    kh_buf_bytes(&out, json.data, (size_t)(at - json.data));
    kh_buf_text(&out, calibration);
    kh_buf_text(&out, strchr(at, '}') + 1);
    char *path = kh_path_join(run_dir, "posterior.json");
    assert_int_equal(kh_file_write(path, out.data, out.len, NULL), 0);
    kh_free(path);
    kh_buf_free(&out);
    kh_buf_free(&json);
}

static void votes_without_biases_are_read(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    o.uncalibrated = false;
    kh_posterior *p = tune_with("smc", SET("samples=12", "budget-levels=1"), &o), *again;
    kh_err err;
    write_calibration(p,
        "\"calibration\": { \"method\": \"votes\", \"alpha\": 0.5, \"temperature\": 2, \"rows\": 9 "
        "}");
    assert_int_equal(kh_posterior_open(&again, run_dir, NULL), 0);
    assert_true(again->calibrated && again->calibrator.method == KH_CALIBRATE_VOTES &&
        again->calibrator.alpha == 0.5 && again->calibrator.temperature == 2);
    kh_posterior_free(again);
    write_calibration(p,
        "\"calibration\": { \"method\": \"votes\", \"alpha\": 0.5, \"temperature\": 99, \"rows\": "
        "9 }");
    assert_int_equal(kh_posterior_open(&again, run_dir, &err), KH_EFORMAT);
    assert_says(&err, "has temperature 99, expected 0.05 to 20");
    kh_posterior_free(p);
}

/* ------------------------------------------------------------------------------------- budgets */

static void a_query_budget_is_never_exceeded(void **state) {
    (void)state;
    for (int m = 0; m < N_METHOD; m++)
        for (long long budget = 20 * TRAIN + 12 * DEV; budget < 3000; budget += 1100) {
            kh_tune_opts o = tune_options();
            o.max_queries = budget;
            kh_posterior *p = tune_with(METHODS[m].name, METHODS[m].set, &o);
            assert_true(p->train_queries + p->dev_queries <= budget);
            assert_true(p->n >= 1 && p->n <= 12);
            kh_posterior_free(p);
        }
}

static void too_small_a_budget_is_refused(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    kh_posterior *p;
    kh_err err;
    o.max_queries = 20 * TRAIN + 12 * DEV - 1;
    long long before = kh_plm_meter(plm).queries;
    assert_int_equal(
        kh_tune(&p, "smc", SET("samples=12"), plm, task, train, dev, &o, &err), KH_EARG);
    assert_says(&err, "one generation of smc and its check on dev take 440");
    assert_int_equal(kh_plm_meter(plm).queries, before);
}

static void a_small_budget_makes_a_small_population(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    o.max_queries = 12 * TRAIN * 25;
    kh_posterior *p = tune_with("smc", NULL, &o);
    assert_int_equal(p->n, 25);
    kh_posterior_free(p);
    o.max_queries = 12 * TRAIN * 10;
    p = tune_with("smc", NULL, &o);
    assert_true(p->n > 0 && p->n <= 20); /* and what there is of it when the budget ends */
    kh_posterior_free(p);
}

/* Draws go on while they and a look at one member more can be paid for, though not all of them
 * could be looked at if all were accepted; what is left in the end is less than that. */
static void few_accepted_draws_use_the_budget(void **state) {
    (void)state;
    int small = 0;
    for (long long budget = 20 * TRAIN + 20 * DEV; budget < 1200; budget += 40) {
        kh_tune_opts o = tune_options();
        o.max_queries = budget;
        kh_posterior *p =
            tune_with("smc", SET("samples=20", "first-draws=8", "reuse-draws=true"), &o);
        long long asked = p->train_queries + p->dev_queries;
        assert_true(asked <= budget);
        small += p->n < 20;
        if (p->n < 20)
            assert_true(budget - asked < 20 * TRAIN + DEV);
        kh_posterior_free(p);
    }
    assert_true(small > 3);
}

static int stop_at_once(void *user, const kh_progress *p) {
    (void)user;
    assert_string_equal(p->phase, "smc");
    assert_non_null(strstr(p->note, "queries="));
    return 1;
}

static void a_caller_may_stop_it(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    kh_hooks hooks = { .progress = stop_at_once };
    o.hooks = &hooks;
    kh_posterior *p = tune_with("smc", SET("samples=12"), &o);
    assert_string_equal(p->stopped, "stopped on request");
    assert_int_equal(p->n, 12);
    kh_posterior_free(p);
}

static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    for (int m = 0; m < N_METHOD; m += 3)
        for (long n = 1, step = 1;; n += step) {
            kh_err err = { 0 };
            kh_posterior *p;
            kh_tune_opts o = tune_options();
            o.max_queries = 20 * TRAIN * 2 + 12 * DEV;
            kh_alloc_fail_at(n, false);
            int rc = kh_tune(&p, METHODS[m].name, METHODS[m].set, plm, task, train, dev, &o, &err);
            bool all = kh_alloc_count() < n;
            kh_alloc_fail_at(0, false);
            assert_int_equal(rc, all ? 0 : KH_ENOMEM);
            kh_posterior_free(p);
            if (all)
                break;
            step = n < 120 ? 1 : 13; /* the later ones repeat, batch after batch */
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method_makes_a_posterior_that_votes),
        cmocka_unit_test(dev_metric_is_that_of_the_result),
        cmocka_unit_test(train_rows_count_all_or_none),
        cmocka_unit_test(rows_count_where_four_of_five_may_vote),
        cmocka_unit_test(votes_are_plain_without_calibration),
        cmocka_unit_test(paper_exact_is_the_published_code),
        cmocka_unit_test(same_seed_same_files_with_any_threads),
        cmocka_unit_test(early_rejection_changes_only_the_bill),
        cmocka_unit_test(tight_early_rejection_asks_less),
        cmocka_unit_test(a_posterior_keeps_its_calibration),
        cmocka_unit_test(votes_without_biases_are_read),
        cmocka_unit_test(a_query_budget_is_never_exceeded),
        cmocka_unit_test(too_small_a_budget_is_refused),
        cmocka_unit_test(a_small_budget_makes_a_small_population),
        cmocka_unit_test(few_accepted_draws_use_the_budget),
        cmocka_unit_test(a_caller_may_stop_it),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests_name("labels", tests, open_all, tune_teardown);
}
