/* test_tune_label_prior.c - what a model likes to say whatever the text is: the closed forms,
 * learned by every method that sees log-probabilities, kept in the folder, used by predictions, and
 * refused where there is nothing to correct. */
#include "tiny_tune.h"

#include "base/json.h"
#include "judge/class_prior.h"
#include "judge/label_prior.h"
#include "posterior/posterior.h"
#include "posterior/predict.h"
#include "tune/method.h"

#include <math.h>
#include <stdlib.h>

enum { TRAIN = 8, DEV = 6, K = 2, CONTENT_FREE = 3 };

static int open_all(void **state) {
    return tune_setup(state, "prior", KH_ACCESS_LOGPROBS, TRAIN, DEV, 2);
}

static kh_tune_opts options(kh_label_prior prior) {
    kh_tune_opts o = tune_options();
    o.label_prior = prior;
    return o;
}

static const struct {
    const char *name, *const *set;
    int samples;
    long long train, dev; /* queries without a prior */
} METHODS[] = {
    { "manual", NULL, 1, 0, 0 },
    { "icl", (const char *const[]){ "orders=3", NULL }, 3, 0, 0 },
    { "bbt", (const char *const[]){ "budget-generations=4", "pop=5", "dev-every=4", NULL }, 1,
        4 * 5 * TRAIN, DEV },
    { "ensemble",
        (const char *const[]){ "members=2", "budget-generations=4", "pop=5", "dev-every=4", NULL },
        2, 2 * 4 * 5 * TRAIN, 2 * DEV },
    { "elbo",
        (const char *const[]){
            "budget-generations=2", "pop=5", "draws=2", "samples=4", "dev-every=2", NULL },
        4, 2 * 5 * 2 * TRAIN, 4 * DEV },
};
enum { N_METHOD = sizeof METHODS / sizeof *METHODS };

static kh_posterior *tune(int method, kh_label_prior prior) {
    kh_posterior *p;
    kh_err err;
    kh_tune_opts o = options(prior);
    if (kh_tune(&p, METHODS[method].name, METHODS[method].set, plm, task, train, dev, &o, &err) !=
        0)
        fail_msg("%s: %s", METHODS[method].name, err.msg);
    return p;
}

static void predict(const kh_posterior *post, const kh_dataset *rows, double *out) {
    kh_predictor *p;
    assert_int_equal(kh_predictor_new(&p, post, plm, NULL, NULL), 0);
    assert_int_equal(
        kh_predictor_run(p, kh_dataset_rows(rows), kh_dataset_size(rows), out, NULL), 0);
    kh_predictor_free(p);
}

/* What every sample says to some rows: [samples, n, K]. */
static void ask_each(const kh_posterior *post, const kh_row *rows, int n, float *out) {
    kh_predictor *p;
    assert_int_equal(kh_predictor_new(&p, post, plm, NULL, NULL), 0);
    assert_int_equal(kh_predictor_each(p, rows, n, out, NULL), 0);
    kh_predictor_free(p);
}

/* -------------------------------------------------------------------------------- closed forms */

static void a_prior_by_texts_that_say_nothing_is_their_mean(void **state) {
    (void)state;
    static const double P[3][3] = { { 0.7, 0.2, 0.1 }, { 0.5, 0.4, 0.1 }, { 0.6, 0.3, 0.1 } };
    float logprob[9];
    double prior[3];
    for (int i = 0; i < 9; i++)
        logprob[i] = (float)log(P[i / 3][i % 3]);
    assert_int_equal(
        kh_label_prior_fit(KH_LABEL_PRIOR_CONTEXTUAL, logprob, 3, 3, NULL, prior, NULL), 0);
    assert_true(fabs(exp(prior[0]) - 0.6) < 1e-6 && fabs(exp(prior[1]) - 0.3) < 1e-6 &&
        fabs(exp(prior[2]) - 0.1) < 1e-6);
    kh_label_prior_correct(prior, logprob, 1, 3); /* 0.7 / 0.6 : 0.2 / 0.3 : 0.1 / 0.1 */
    double total = 7.0 / 6 + 2.0 / 3 + 1;
    assert_true(fabs(exp(logprob[0]) - 7.0 / 6 / total) < 1e-6 &&
        fabs(exp(logprob[1]) - 2.0 / 3 / total) < 1e-6);
}

/* Two rows and labels: even means that the corrected odds are each other's inverse, so the prior's
 * odds are the geometric mean. */
static void a_prior_by_a_batch_makes_the_mean_even(void **state) {
    (void)state;
    double odds[2] = { 9, 400 }, prior[2];
    float logprob[4], rows[40 * 3];
    for (int i = 0; i < 4; i++)
        logprob[i] =
            (float)log(i % 2 == 0 ? odds[i / 2] / (1 + odds[i / 2]) : 1 / (1 + odds[i / 2]));
    assert_int_equal(kh_label_prior_fit(KH_LABEL_PRIOR_BATCH, logprob, 2, 2, NULL, prior, NULL), 0);
    assert_true(fabs(prior[0] - prior[1] - 0.5 * log(9 * 400)) < 1e-3);
    kh_label_prior_correct(prior, logprob, 2, 2);
    assert_true(logprob[0] < logprob[1] &&
        logprob[2] > logprob[3]); /* the less sure one is the other class now */
    kh_rng r = kh_rng_stream(7, KH_RNG_TEST, 0, 0);
    double three[3], mean[3] = { 0 };
    for (int i = 0; i < 40; i++)
        for (int k = 0; k < 3; k++)
            rows[3 * i + k] = (float)(4 * kh_rng_normal(&r) - 6 * k);
    assert_int_equal(kh_label_prior_fit(KH_LABEL_PRIOR_BATCH, rows, 40, 3, NULL, three, NULL), 0);
    kh_label_prior_correct(three, rows, 40, 3);
    for (int i = 0; i < 120; i++)
        mean[i % 3] += exp(rows[i]) / 40;
    for (int k = 0; k < 3; k++)
        assert_true(fabs(mean[k] - 1.0 / 3) < 1e-5);
}

/* Answers that never say a label, or are never unsure, still have a prior of finite numbers. */
static void a_prior_is_finite_whatever_the_answers(void **state) {
    (void)state;
    float sure[] = { 0, -INFINITY, 0, -INFINITY, -INFINITY, 0 },
          same[] = { 0, -90, 0, -90, 0, -90 };
    for (int kind = KH_LABEL_PRIOR_BATCH; kind <= KH_LABEL_PRIOR_CONTEXTUAL; kind++)
        for (int i = 0; i < 2; i++) {
            double prior[2];
            assert_int_equal(
                kh_label_prior_fit((kh_label_prior)kind, i ? same : sure, 3, 2, NULL, prior, NULL),
                0);
            assert_true(isfinite(prior[0]) && isfinite(prior[1]) &&
                fabs(exp(prior[0]) + exp(prior[1]) - 1) < 1e-9);
        }
}

/* -------------------------------------------------------------------------- learned by methods */

static void every_method_that_sees_probabilities_learns_it(void **state) {
    (void)state;
    for (int kind = KH_LABEL_PRIOR_BATCH; kind <= KH_LABEL_PRIOR_CONTEXTUAL; kind++)
        for (int m = 0; m < N_METHOD; m++) {
            int rows = kind == KH_LABEL_PRIOR_BATCH ? TRAIN : CONTENT_FREE,
                samples = METHODS[m].samples;
            long long before = kh_plm_meter(plm).queries;
            kh_posterior *p = tune(m, (kh_label_prior)kind);
            assert_int_equal(p->train_queries, METHODS[m].train + samples * rows);
            assert_int_equal(p->dev_queries, METHODS[m].dev + samples * DEV);
            assert_int_equal(kh_plm_meter(plm).queries - before, p->train_queries + p->dev_queries);
            assert_int_equal(
                p->prior_rows, kind == KH_LABEL_PRIOR_BATCH ? TRAIN + DEV : CONTENT_FREE);
            double out[DEV * K], hits = 0;
            predict(p, dev, out);
            for (int i = 0; i < DEV; i++)
                hits += kh_dataset_rows(dev)[i].label == (out[2 * i + 1] > out[2 * i]);
            assert_true(fabs(p->dev - hits / DEV) < 1e-12);
            kh_posterior_free(p);
        }
}

static void samples_and_search_are_those_without_it(void **state) {
    (void)state;
    for (int m = 2; m < N_METHOD; m++) {
        kh_posterior *p = tune(m, KH_LABEL_PRIOR_NONE), *q = tune(m, KH_LABEL_PRIOR_BATCH);
        assert_null(p->log_prior);
        assert_memory_equal(p->z, q->z, (size_t)p->n * (size_t)p->space.dim * sizeof *p->z);
        kh_posterior_free(p);
        kh_posterior_free(q);
    }
}

/* The mean over samples of what each says once its own prior is taken from it. */
static void each_sample_is_corrected_by_its_own(void **state) {
    (void)state;
    enum { N = 4 };
    kh_posterior *p = tune(N_METHOD - 1, KH_LABEL_PRIOR_BATCH);
    float each[N * DEV * K];
    double out[DEV * K], want[DEV * K] = { 0 };
    assert_int_equal(p->n, N);
    assert_true(p->log_prior[0] != p->log_prior[2]);
    predict(p, dev, out);
    ask_each(p, kh_dataset_rows(dev), DEV, each);
    for (int s = 0; s < N; s++)
        for (int i = 0; i < DEV; i++) {
            double v[K], total = 0;
            for (int k = 0; k < K; k++)
                total += v[k] = exp((double)each[(s * DEV + i) * K + k] - p->log_prior[s * K + k]);
            for (int k = 0; k < K; k++)
                want[i * K + k] += v[k] / total / N;
        }
    for (int i = 0; i < DEV * K; i++)
        assert_true(fabs(out[i] - want[i]) < 1e-6);
    kh_posterior_free(p);
}

static void a_batch_is_the_train_and_dev_rows(void **state) {
    (void)state;
    kh_posterior *p = tune(0, KH_LABEL_PRIOR_BATCH);
    double out[(TRAIN + DEV) * K], mean[K] = { 0 };
    predict(p, train, out);
    predict(p, dev, out + TRAIN * K);
    for (int i = 0; i < (TRAIN + DEV) * K; i++)
        mean[i % K] += out[i] / (TRAIN + DEV);
    assert_true(fabs(mean[0] - 0.5) < 1e-5);
    kh_posterior_free(p);
}

static void contextual_is_by_texts_that_say_nothing(void **state) {
    (void)state;
    kh_posterior *p = tune(0, KH_LABEL_PRIOR_CONTEXTUAL);
    kh_row rows[CONTENT_FREE] = { { .a = "N/A", .n_a = 3 }, { .a = "[MASK]", .n_a = 6 },
        { .a = "" } };
    float each[CONTENT_FREE * K];
    ask_each(p, rows, CONTENT_FREE, each);
    double mean = (exp((double)each[0]) + exp((double)each[2]) + exp((double)each[4])) / 3;
    assert_true(fabs(exp(p->log_prior[0]) - mean) < 1e-6);
    kh_posterior_free(p);
}

/* ------------------------------------------------------------------------------------- folders */

static void read_json(kh_buf *out) {
    char *path = kh_path_join(run_dir, "posterior.json");
    assert_int_equal(kh_file_read(path, 1 << 20, out, NULL), 0);
    kh_free(path);
}

static void a_folder_brings_it_back(void **state) {
    (void)state;
    for (int m = 0; m < N_METHOD; m++) {
        kh_posterior *p = tune(m, KH_LABEL_PRIOR_BATCH), *q;
        double a[DEV * K], b[DEV * K];
        assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
        assert_int_equal(kh_posterior_open(&q, run_dir, NULL), 0);
        assert_int_equal(q->label_prior, KH_LABEL_PRIOR_BATCH);
        assert_int_equal(q->prior_rows, p->prior_rows);
        assert_memory_equal(q->log_prior, p->log_prior, (size_t)p->n * K * sizeof *p->log_prior);
        predict(p, dev, a);
        predict(q, dev, b);
        assert_memory_equal(a, b, sizeof a);
        kh_posterior_free(p);
        kh_posterior_free(q);
    }
}

/* Earlier versions must not answer without it; without it they may. */
static void only_folders_with_it_are_of_the_new_format(void **state) {
    (void)state;
    for (int kind = KH_LABEL_PRIOR_NONE; kind <= KH_LABEL_PRIOR_BATCH; kind++) {
        kh_posterior *p = tune(0, (kh_label_prior)kind);
        kh_buf json;
        assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
        read_json(&json);
        assert_non_null(strstr(json.data, kind ? "\"format\": 2" : "\"format\": 1"));
        assert_int_equal(strstr(json.data, "label_prior") != NULL, kind);
        kh_buf_free(&json);
        kh_posterior_free(p);
    }
}

static void hostile_priors_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *find, *put, *says;
    } all[] = {
        { "\"label_prior\": {\"method\": \"batch\"", "\"label_prior\": {\"method\": \"none\"",
            "must be batch or contextual" },
        { "\"access\": \"logprobs\"", "\"access\": \"labels\"",
            "of a posterior whose access is logprobs" },
        { "\"label_prior\": {", "\"label_prior\": 5, \"x\": {",
            "\"label_prior\" must be an object" },
        { "\"rows\": 14", "\"rows\": 0", "rows" },
        { "\"log\": [", "\"log\": [[0, 0], ", "\"log\" must be an array of at most 2 elements" },
        { "\"log\": [\n    [", "\"log\": [\n    [1, ",
            "must be 2 logarithms of probabilities that add up to one" },
        { "\"log\": [\n    [-0", "\"log\": [\n    [-9",
            "the \"label_prior\" of sample 0 must be 2 logarithms" },
        { "\"log\": [\n    [", "\"log\": [\n    [\"a\"], [",
            "\"log\" must be an array of at most 2 elements" },
        { "\"log\": [", "\"log\": [], \"x\": [", "\"label_prior\" has 0 samples, the posterior 2" },
    };
    kh_posterior *p = tune(3, KH_LABEL_PRIOR_BATCH), *q;
    kh_buf json;
    kh_err err;
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    kh_posterior_free(p);
    read_json(&json);
    char *path = kh_path_join(run_dir, "posterior.json");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const char *at = strstr(json.data, all[i].find);
        if (!at)
            fail_msg("the file does not hold %s", all[i].find);
        kh_buf b = kh_buf_init(KH_BUF_MAX);
        kh_buf_bytes(&b, json.data, (size_t)(at - json.data));
        kh_buf_text(&b, all[i].put);
        kh_buf_text(&b, at + strlen(all[i].find));
        assert_int_equal(kh_file_write(path, b.data, b.len, NULL), 0);
        assert_true(kh_posterior_open(&q, run_dir, &err) < 0);
        assert_says(&err, all[i].says);
        kh_buf_free(&b);
    }
    kh_buf_free(&json);
    kh_free(path);
}

/* -------------------------------------------------------------------------------------- limits */

static void threads_do_not_show(void **state) {
    (void)state;
    for (int m = 0; m < N_METHOD; m++) {
        kh_buf json[2];
        for (int i = 0; i < 2; i++) {
            kh_threads_set(i ? 3 : 1);
            kh_posterior *p = tune(m, KH_LABEL_PRIOR_BATCH);
            assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
            read_json(&json[i]);
            kh_posterior_free(p);
        }
        assert_int_equal(json[0].len, json[1].len);
        assert_memory_equal(json[0].data, json[1].data, json[0].len);
        kh_buf_free(&json[0]);
        kh_buf_free(&json[1]);
    }
    kh_threads_set(0);
}

static void a_budget_keeps_room_for_it(void **state) {
    (void)state;
    kh_posterior *p;
    kh_err err;
    kh_tune_opts o = options(KH_LABEL_PRIOR_BATCH);
    o.max_queries =
        5 * TRAIN * 3 + 2 * DEV + TRAIN; /* three generations, a look at dev, the prior */
    const char *const set[] = { "pop=5", NULL };
    assert_int_equal(kh_tune(&p, "bbt", set, plm, task, train, dev, &o, &err), 0);
    assert_int_equal(p->train_queries, 5 * TRAIN * 3 + TRAIN);
    assert_int_equal(p->dev_queries, 2 * DEV);
    kh_posterior_free(p);
    o.max_queries = 5 * TRAIN + 2 * DEV + TRAIN - 1;
    assert_int_equal(kh_tune(&p, "bbt", set, plm, task, train, dev, &o, &err), KH_EARG);
    assert_says(&err,
        "a budget of 59 queries is too small: one generation of bbt and its check on dev take 60");
    o.max_queries = DEV + TRAIN;
    assert_int_equal(kh_tune(&p, "manual", NULL, plm, task, train, dev, &o, &err), 0);
    kh_posterior_free(p);
}

static void refuse(const char *method, kh_plm *box, const char *says) {
    kh_posterior *p;
    kh_err err;
    kh_tune_opts o = options(KH_LABEL_PRIOR_BATCH);
    long long before = kh_plm_meter(box).queries;
    assert_int_equal(kh_tune(&p, method, NULL, box, task, train, dev, &o, &err), KH_EUNSUPPORTED);
    assert_null(p);
    assert_says(&err, says);
    assert_int_equal(kh_plm_meter(box).queries, before);
}

static void labels_and_gradients_have_nothing_to_correct(void **state) {
    (void)state;
    kh_plm *labels = tiny_open(KH_ACCESS_LABELS), *weights = tiny_open(KH_ACCESS_WEIGHTS);
    refuse("manual", labels,
        "label-prior batch needs log-probabilities of the label words; method manual sees labels "
        "only here");
    refuse("smc", labels, "method smc sees labels only here");
    refuse("smc", plm, "method smc sees labels only here");
    refuse("prompt-tuning", weights, "method prompt-tuning learns by gradients, that prior too");
    kh_plm_close(labels);
    kh_plm_close(weights);
}

static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    kh_threads_set(1);
    const char *const set[] = { "budget-generations=1", "pop=2", "members=2", NULL };
    long n = 1;
    for (bool done = false; !done; n++) {
        kh_posterior *p, *q = NULL;
        kh_err err = { 0 };
        kh_tune_opts o = options(KH_LABEL_PRIOR_BATCH);
        kh_alloc_fail_at(n, false);
        int rc = kh_tune(&p, "ensemble", set, plm, task, train, dev, &o, &err);
        if (rc == 0)
            rc = kh_posterior_save(p, run_dir, &err);
        if (rc == 0)
            rc = kh_posterior_open(&q, run_dir, &err);
        done = kh_alloc_count() < n;
        kh_alloc_fail_at(0, false);
        if (rc != (done ? 0 : KH_ENOMEM))
            fail_msg("allocation %ld: %d, %s", n, rc, err.msg);
        kh_posterior_free(p);
        kh_posterior_free(q);
    }
    assert_true(n > 50);
    kh_threads_set(0);
}

/* --------------------------------------------------------------- shares of classes, and inside */

/* T16 with shares: the corrected answers have them as their mean. */
static void batch_aims_at_the_shares(void **state) {
    (void)state;
    enum { N = 12 };
    float logprob[3 * N];
    double share[3] = { 0.5, 0.3, 0.2 }, prior[3], mean[3] = { 0 };
    kh_rng r = kh_rng_stream(3, KH_RNG_TEST, 4, 0);
    for (int i = 0; i < 3 * N; i++)
        logprob[i] = (float)(2 * kh_rng_normal(&r));
    assert_int_equal(
        kh_label_prior_fit(KH_LABEL_PRIOR_BATCH, logprob, N, 3, share, prior, NULL), 0);
    kh_label_prior_correct(prior, logprob, N, 3);
    for (int i = 0; i < 3 * N; i++)
        mean[i % 3] += exp((double)logprob[i]) / N;
    for (int k = 0; k < 3; k++)
        assert_true(fabs(mean[k] - share[k]) < 1e-5);
}

/* T21 in closed form. */
static void a_class_prior_is_a_factor(void **state) {
    (void)state;
    double p[4] = { 0.5, 0.5, 0.6, 0.4 }, prior[2], share[2] = { 0.75, 0.25 };
    assert_int_equal(kh_class_prior_parse(prior, "9,1", 2, NULL), 0);
    assert_true(fabs(prior[0] - 0.9) < 1e-12 && fabs(prior[1] - 0.1) < 1e-12);
    kh_class_prior_apply(prior, NULL, p, 1, 2);
    assert_true(fabs(p[0] - 0.9) < 1e-12);
    kh_class_prior_apply(prior, share, p + 2, 1, 2); /* 0.6 0.9 / 0.75 to 0.4 0.1 / 0.25 */
    assert_true(fabs(p[2] - 0.72 / 0.88) < 1e-12 && fabs(p[2] + p[3] - 1) < 1e-12);
    kh_class_prior_apply(share, share, p + 2, 1, 2); /* the same shares change nothing */
    assert_true(fabs(p[2] - 0.72 / 0.88) < 1e-12);
}

/* A box that leans to label 1 by 10, whatever is asked, and is right by 1 besides. */
static int leaning(void *self, const kh_question *q, float *logits, kh_err *err) {
    (void)self, (void)err;
    int n = q->batch->n_row, prompts = q->batch->n_slot > 0 ? q->n_prompt : 1;
    for (int i = 0; i < prompts * n; i++) {
        logits[2 * i] = 0;
        logits[2 * i + 1] = 10 + (q->batch->label[i % n] ? 0.5f : -0.5f);
    }
    return 0;
}

static double first_loss;
static void take_loss(void *user, const char *line) {
    (void)user;
    const char *at = strstr(line, "loss=");
    if (at && isnan(first_loss))
        first_loss = atof(at + strlen("loss="));
}

/* T20: the search sees what is left when the leaning is gone, ln(1 + e^-0.5). */
static void a_search_does_not_see_the_leaning(void **state) {
    (void)state;
    kh_box box = { .name = "leaning",
        .access = KH_ACCESS_LOGPROBS,
        .tokenizer = TINY_TOKENIZER,
        .hidden = 4,
        .max_len = 64,
        .fingerprint = 7,
        .score = leaning };
    kh_plm *one;
    assert_int_equal(kh_plm_new(&one, &box, NULL, NULL), 0);
    for (int inside = 0; inside < 2; inside++) {
        kh_tune_opts o = options(KH_LABEL_PRIOR_NONE);
        kh_posterior *p;
        kh_err err;
        o.space.dim = 4, o.space.slots = 2;
        o.prior_inside = inside;
        o.record = take_loss;
        first_loss = NAN;
        if (kh_tune(&p, "bbt", SET("budget-generations=1", "pop=4"), one, task, train, dev, &o,
                &err) != 0)
            fail_msg("%s", err.msg);
        double want = inside ? log(1 + exp(-0.5)) : (log(1 + exp(9.5)) + log(1 + exp(-10.5))) / 2;
        assert_true(fabs(first_loss - want) < 1e-5);
        assert_int_equal(p->label_prior, inside ? KH_LABEL_PRIOR_BATCH : KH_LABEL_PRIOR_NONE);
        assert_true(inside ? p->dev == 1 : p->dev == 0.5);
        kh_posterior_free(p);
    }
    kh_plm_close(one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prior_by_texts_that_say_nothing_is_their_mean),
        cmocka_unit_test(a_prior_by_a_batch_makes_the_mean_even),
        cmocka_unit_test(a_prior_is_finite_whatever_the_answers),
        cmocka_unit_test(every_method_that_sees_probabilities_learns_it),
        cmocka_unit_test(samples_and_search_are_those_without_it),
        cmocka_unit_test(each_sample_is_corrected_by_its_own),
        cmocka_unit_test(a_batch_is_the_train_and_dev_rows),
        cmocka_unit_test(contextual_is_by_texts_that_say_nothing),
        cmocka_unit_test(a_folder_brings_it_back),
        cmocka_unit_test(only_folders_with_it_are_of_the_new_format),
        cmocka_unit_test(hostile_priors_are_refused),
        cmocka_unit_test(threads_do_not_show),
        cmocka_unit_test(a_budget_keeps_room_for_it),
        cmocka_unit_test(labels_and_gradients_have_nothing_to_correct),
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(batch_aims_at_the_shares),
        cmocka_unit_test(a_class_prior_is_a_factor),
        cmocka_unit_test(a_search_does_not_see_the_leaning),
    };
    return cmocka_run_group_tests_name("label prior", tests, open_all, tune_teardown);
}
