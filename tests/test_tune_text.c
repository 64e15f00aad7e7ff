/* test_tune_text.c - methods that search text prompts, on a tiny random model: text-smc against
 * exact weights on a space that can be enumerated, the weights of text-ensemble, rows that are
 * never shown to themselves, files, seeds, budgets. */
#include "tiny_tune.h"

#include "posterior/posterior.h"
#include "posterior/predict.h"
#include "tune/mixture_weights.h"
#include "tune/text_box.h"

#include <math.h>

enum { TRAIN = 12, DEV = 8 };

static char file_path[80];

static int open_all(void **state) {
    int rc = tune_setup(state, "texts", KH_ACCESS_LOGPROBS, TRAIN, DEV, 2);
    snprintf(file_path, sizeof file_path, "/tmp/keyhole-test-prompts-%ld", (long)getpid());
    static const char LINES[] = "Say how the boats were.\nAre they green or small?\n"
                                "{text} were {mask} !\n{text} : {mask} .\n";
    return rc ? rc : kh_file_write(file_path, LINES, sizeof LINES - 1, NULL);
}

static int close_all(void **state) {
    unlink(file_path);
    return tune_teardown(state);
}

#define FROM_FILE(buffer) \
    char buffer[120]; \
    snprintf(buffer, sizeof buffer, "instructions=%s", file_path)

/* ------------------------------------------------------------------------------ exact on a toy */

enum { MOST = 2000, DIM = KH_TEXT_FIRST_DEMO + 1 };

/* All points of the space, with the errors that each makes on the train rows. */
typedef struct enumerated {
    float x[MOST][DIM];
    double prior[MOST], exact[MOST], found[MOST];
    int errors[MOST], n;
} enumerated;

static void enumerate(enumerated *e, kh_text_box *b) {
    const kh_material *m = &b->space->material;
    int index[TRAIN], label[TRAIN];
    e->n = 0;
    for (int i = 0; i < TRAIN; i++)
        index[i] = i;
    for (int t = 0; t < m->n_wording; t++)
        for (int w = 0; w < m->wording[t].n_words; w++)
            for (int i = 0; i < m->n_instruction; i++)
                for (int k = 0; k < m->instruction[i].n; k++)
                    for (int d = -1; d < (b->space->demos > 0 ? 3 : 0); d++) {
                        float x[DIM] = { (float)t, (float)w, (float)i, (float)k, d >= 0, (float)d };
                        assert_true(e->n < MOST);
                        memcpy(e->x[e->n], x, sizeof x);
                        e->prior[e->n] = exp(kh_text_space_log_prior(b->space, x));
                        assert_int_equal(
                            kh_text_box_ask(b, x, &(kh_text_rows){ kh_dataset_rows(train), true },
                                index, TRAIN, NULL, label, NULL),
                            0);
                        e->errors[e->n] = 0;
                        for (int r = 0; r < TRAIN; r++)
                            e->errors[e->n] += label[r] != kh_dataset_rows(train)[r].label;
                        e->n++;
                    }
}

/* A prompt of a posterior is the point whose parts read the same. */
static int point_of(const enumerated *e, const kh_text_box *b, const kh_text_prompt *p) {
    int demo[1];
    for (int i = 0; i < e->n; i++) {
        kh_text_prompt q = kh_text_space_prompt(b->space, e->x[i], demo);
        if (strcmp(p->instruction, q.instruction) == 0 && strcmp(p->template, q.template) == 0 &&
            strcmp(p->label[0].word[0], q.label[0].word[0]) == 0)
            return i;
    }
    fail_msg("\"%s\" is not in the space", p->instruction);
    return -1;
}

/* rate < 0: given at most `tolerance` errors; else by the prior times exp(-rate errors). */
static double total_variation(const char *const *set, int tolerance, double rate) {
    static enumerated e;
    kh_text_box b;
    kh_tune_opts o = tune_options();
    kh_tuning t = { .plm = plm,
        .task = task,
        .train_row = kh_dataset_rows(train),
        .n_train = TRAIN,
        .labeler = kh_plm_labeler(plm, NULL),
        .o = &o };
    kh_text_space_opts text = {
        .instructions = file_path, .synonyms = "none", .demos = 0, .demo_length = 160, .edits = 0.5
    };
    assert_int_equal(kh_text_box_open(&b, &t, &text, false, NULL), 0);
    enumerate(&e, &b);
    double sum = 0, off = 0;
    for (int i = 0; i < e.n; i++) {
        e.found[i] = 0;
        e.exact[i] = rate < 0 ? e.prior[i] * (e.errors[i] <= tolerance)
                              : e.prior[i] * exp(-rate * e.errors[i]);
        sum += e.exact[i];
    }
    assert_true(sum > 0);
    kh_posterior *p = tune_with("text-smc", set, &o);
    for (int i = 0; i < p->n; i++)
        e.found[point_of(&e, &b, &p->texts.prompt[i])] += (double)p->weight[i];
    for (int i = 0; i < e.n; i++)
        off += fabs(e.found[i] - e.exact[i] / sum) / 2;
    print_message("%d prompts, %d in the posterior, total variation %.4f\n", e.n, p->n, off);
    kh_posterior_free(p);
    kh_text_box_close(&b);
    return off;
}

static void smc_is_exact_with_a_likelihood(void **state) {
    (void)state;
    FROM_FILE(from);
    double off = total_variation(SET("accept=soft", "label-noise=0.3", "samples=6000",
                                     "max-moves=30", "unmoved=0", "demos=0", "synonyms=none", from),
        0, log(0.7 / 0.3));
    assert_true(off < 0.05);
}

static void smc_is_exact_with_a_tolerance(void **state) {
    (void)state;
    FROM_FILE(from);
    double off = total_variation(SET("tolerance=5", "samples=6000", "max-moves=30", "unmoved=0",
                                     "demos=0", "synonyms=none", from),
        5, -1);
    assert_true(off < 0.05);
}

/* ------------------------------------------------------------------------------- text-ensemble */

/* The weights in the file are those of the answers, asked for again one by one. */
static void ensemble_weighs_by_the_labels(void **state) {
    enum { N = 5 };
    (void)state;
    FROM_FILE(from);
    kh_tune_opts o = tune_options();
    kh_posterior *p =
        tune_with("text-ensemble", SET("prompts=5", "debias=false", "demos=0", from), &o);
    int rejected = (int)(p->train_queries - N * TRAIN) / (TRAIN / 2);
    assert_int_equal(p->n, N);
    assert_string_equal(p->texts.prompt[0].template, task->plain);
    assert_string_equal(p->texts.prompt[0].instruction, "");
    assert_true(rejected >= 0 && rejected <= 2 * N);
    assert_int_equal(p->train_queries, N * TRAIN + rejected * TRAIN / 2); /* half of the rows */
    assert_int_equal(p->dev_queries, N * DEV);
    double like[TRAIN * N], weight[N], alpha[N] = { 4. / 3, 1, 1, 1, 1 }; /* its own: a quarter */
    kh_predictor *predictor;
    float each[N * TRAIN * 2];
    assert_int_equal(kh_predictor_new(&predictor, p, plm, NULL, NULL), 0);
    assert_int_equal(kh_predictor_each(predictor, kh_dataset_rows(train), TRAIN, each, NULL), 0);
    for (int m = 0; m < N; m++) {
        for (int i = 0; i < TRAIN; i++)
            like[i * N + m] =
                exp((double)each[(m * TRAIN + i) * 2 + kh_dataset_rows(train)[i].label]);
    }
    assert_int_equal(
        kh_mixture_exact(&(kh_mixture){ like, TRAIN, N, alpha }, weight, NULL, NULL), 0);
    for (int m = 0; m < N; m++)
        assert_true(fabs(weight[m] - (double)p->weight[m]) < 1e-6);
    kh_predictor_free(predictor);
    kh_posterior_free(p);
}

/* A set of one prompt has no weights to learn: it is the template, calibrated by as many rows. */
static void a_set_of_one_is_the_template(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    o.effort = KH_EFFORT_QUICK;
    o.uncalibrated = false;
    o.fallback = KH_FALLBACK_NONE;
    kh_posterior *one = tune_with("text-ensemble", SET("prompts=1", "debias=false"), &o),
                 *plain = tune_with("manual", NULL, &o),
                 *set = tune_with("text-ensemble", SET("prompts=3", "demos=0"), &o);
    assert_int_equal(plain->calibrator.n, TRAIN + DEV);
    assert_int_equal(one->calibrator.n, TRAIN + DEV);
    assert_int_equal(set->calibrator.n, TRAIN + DEV);
    assert_true(plain->calibrator.strength == one->calibrator.strength);
    for (int k = 0; k < 2; k++) {
        assert_true(fabs(plain->calibrator.weight[k] - one->calibrator.weight[k]) < 1e-5);
        assert_true(fabs(plain->calibrator.bias[k] - one->calibrator.bias[k]) < 1e-5);
    }
    kh_posterior_free(one);
    kh_posterior_free(plain);
    kh_posterior_free(set);
}

/* A row that is shown is asked without itself. */
static void no_row_sees_its_own_label(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    kh_text_box b;
    kh_tuning t = { .plm = plm,
        .task = task,
        .train_row = kh_dataset_rows(train),
        .n_train = TRAIN,
        .labeler = kh_plm_labeler(plm, NULL),
        .o = &o };
    kh_text_space_opts text = { .synonyms = "none", .demos = 2, .demo_length = 160 };
    assert_int_equal(kh_text_box_open(&b, &t, &text, true, NULL), 0);
    float with[KH_TEXT_FIRST_DEMO + 2] = { 0, 0, 0, 0, 2, 3, 5 },
                                    without[KH_TEXT_FIRST_DEMO + 2] = { 0, 0, 0, 0, 1, 5, -1 },
                                    a[4], c[4];
    int index[2] = { 3, 4 };
    kh_text_rows rows = { kh_dataset_rows(train), true }, other = { kh_dataset_rows(train), false };
    assert_int_equal(kh_text_box_ask(&b, with, &rows, index, 2, a, NULL, NULL), 0);
    assert_int_equal(kh_text_box_ask(&b, without, &rows, index, 2, c, NULL, NULL), 0);
    assert_memory_equal(a, c, 2 * sizeof *a);             /* row 3: the same question, */
    assert_memory_not_equal(a + 2, c + 2, 2 * sizeof *a); /* row 4: another */
    assert_int_equal(kh_text_box_ask(&b, with, &other, index, 2, c, NULL, NULL), 0);
    assert_memory_not_equal(a, c, 2 * sizeof *a); /* dev rows are asked with all */
    assert_memory_equal(a + 2, c + 2, 2 * sizeof *a);
    kh_text_box_close(&b);
}

/* ------------------------------------------------------------------------------- all of them */

static const struct {
    const char *name;
    const char *const *set;
} METHODS[] = {
    { "text-search", SET("candidates=10", "demos=2") },
    { "text-ensemble", SET("prompts=4", "demos=2") },
    { "text-smc", SET("samples=12", "budget-levels=2", "demos=2") },
};
enum { N_METHOD = sizeof METHODS / sizeof *METHODS };

static void same_bytes(const char *name, kh_buf *before) {
    char *path = kh_path_join(run_dir, name);
    kh_buf now;
    assert_int_equal(kh_file_read(path, 1 << 20, &now, NULL), 0);
    if (before->len > 0) {
        assert_int_equal(before->len, now.len);
        assert_memory_equal(before->data, now.data, now.len);
        kh_buf_free(&now);
    } else
        *before = now;
    kh_free(path);
}

/* Saved, opened and saved again: the same bytes and the same answers; and so with the same seed. */
static void files_and_seeds_give_the_same_bytes(void **state) {
    (void)state;
    for (int m = 0; m < N_METHOD; m++) {
        kh_tune_opts o = tune_options();
        kh_buf json = { 0 }, samples = { 0 };
        double answer[2][DEV * 2];
        o.uncalibrated = false;
        o.fallback = KH_FALLBACK_NONE;
        for (int round = 0; round < 3; round++) {
            kh_posterior *p = NULL;
            if (round == 2)
                assert_int_equal(kh_posterior_open(&p, run_dir, NULL), 0);
            else
                p = tune_with(METHODS[m].name, METHODS[m].set, &o);
            assert_true(p->texts.n == p->n && p->calibrated && p->train_queries > 0);
            assert_int_equal(p->access, m == 2 ? KH_ACCESS_LABELS : KH_ACCESS_LOGPROBS);
            assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
            same_bytes("posterior.json", &json);
            same_bytes("posterior.safetensors", &samples);
            kh_predictor *predictor;
            assert_int_equal(kh_predictor_new(&predictor, p, plm, NULL, NULL), 0);
            assert_int_equal(
                kh_predictor_run(predictor, kh_dataset_rows(dev), DEV, answer[round > 0], NULL), 0);
            kh_predictor_free(predictor);
            kh_posterior_free(p);
            if (round > 0)
                assert_memory_equal(answer[0], answer[1], sizeof answer[0]);
        }
        kh_buf_free(&json);
        kh_buf_free(&samples);
    }
}

static void budgets_are_kept(void **state) {
    (void)state;
    static const long long BUDGET[] = { 3 * TRAIN + DEV, 2 * (TRAIN + DEV) + 5,
        20 * TRAIN + 12 * DEV };
    for (int m = 0; m < N_METHOD; m++) {
        kh_tune_opts o = tune_options();
        kh_posterior *p;
        kh_err err;
        o.max_queries = BUDGET[m];
        p = tune_with(METHODS[m].name, METHODS[m].set, &o);
        assert_true(p->train_queries + p->dev_queries <= BUDGET[m]);
        assert_non_null(strstr(p->stopped, "budget"));
        kh_posterior_free(p);
        o.max_queries = 5;
        assert_int_equal(
            kh_tune(&p, METHODS[m].name, METHODS[m].set, plm, task, train, dev, &o, &err), KH_EARG);
        assert_non_null(strstr(err.msg, "too small"));
    }
}

/* With labels only: search counts errors and stops asking early; ensembles need more. */
static void labels_are_enough_for_two_of_them(void **state) {
    (void)state;
    kh_plm *box = tiny_open(KH_ACCESS_LABELS), *was = plm;
    kh_tune_opts o = tune_options();
    kh_posterior *p;
    kh_err err;
    plm = box;
    p = tune_with("text-search", SET("candidates=20", "demos=0"), &o);
    assert_int_equal(p->access, KH_ACCESS_LABELS);
    assert_true(p->train_queries < 20 * TRAIN);
    kh_posterior_free(p);
    p = tune_with("text-smc", METHODS[2].set, &o);
    kh_posterior_free(p);
    assert_int_equal(
        kh_tune(&p, "text-ensemble", NULL, box, task, train, dev, &o, &err), KH_EUNSUPPORTED);
    plm = was;
    kh_plm_close(box);
}

/* Rows of another task are asked below the prompt, by that task's template. */
static void foreign_rows_can_be_asked(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    kh_posterior *p = tune_with("text-ensemble", METHODS[1].set, &o);
    kh_predictor *predictor;
    const kh_task *pairs;
    double answer[2];
    kh_row row = { .a = "one", .n_a = 3, .b = "two", .n_b = 3, .label = -1 };
    assert_int_equal(kh_task_open(&pairs, "rte", NULL), 0);
    assert_int_equal(kh_predictor_foreign(&predictor, p, plm, pairs, NULL), 0);
    assert_int_equal(kh_predictor_run(predictor, &row, 1, answer, NULL), 0);
    assert_true(fabs(answer[0] + answer[1] - 1) < 1e-9);
    kh_predictor_free(predictor);
    kh_posterior_free(p);
}

static void prompts_that_do_not_fit_are_refused(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    kh_posterior *p;
    kh_err err;
    int rc = kh_tune(&p, "text-ensemble", SET("prompts=30", "demos=12", "demo-length=10000"), plm,
        task, train, dev, &o, &err);
    if (rc == 0) /* the tiny model reads long texts after all */
        kh_posterior_free(p);
    else {
        assert_int_equal(rc, KH_ELIMIT);
        assert_non_null(strstr(err.msg, "a smaller --demos or --demo-length"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smc_is_exact_with_a_likelihood),
        cmocka_unit_test(smc_is_exact_with_a_tolerance),
        cmocka_unit_test(ensemble_weighs_by_the_labels),
        cmocka_unit_test(a_set_of_one_is_the_template),
        cmocka_unit_test(no_row_sees_its_own_label),
        cmocka_unit_test(files_and_seeds_give_the_same_bytes),
        cmocka_unit_test(budgets_are_kept),
        cmocka_unit_test(labels_are_enough_for_two_of_them),
        cmocka_unit_test(foreign_rows_can_be_asked),
        cmocka_unit_test(prompts_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
