/* test_tune_api.c - what only a program sees: options listed, a box and a simulator of the caller's
 * own, posteriors read, runs opened as classifiers, evaluations of rows in memory. */
#include "posterior/posterior.h"
#include "tiny_tune.h"

#include <math.h>

static int open_all(void **state) {
    return tune_setup(state, "api", KH_ACCESS_LOGPROBS, 16, 16, 2);
}

/* ------------------------------------------------------------------------------------- options */

static void options_are_listed(void **state) {
    (void)state;
    kh_method_info m;
    kh_option o;
    int methods = 0, options = 0, choices = 0;
    for (; kh_method_describe(methods, &m); methods++) {
        assert_string_equal(m.name, kh_method_name(methods));
        assert_true(m.summary[0] != '\0');
        for (int i = 0; kh_method_option(m.name, i, &o); i++, options++) {
            assert_true(o.name[0] && o.help[0] && o.value);
            choices += o.type == KH_OPTION_CHOICE;
            assert_true((o.type == KH_OPTION_CHOICE) == (o.choices != NULL));
        }
    }
    assert_null(kh_method_name(methods));
    assert_true(methods >= 14 && options > 50 && choices > 5);
    assert_false(kh_method_option("nonsense", 0, &o));
    assert_false(kh_method_option("smc", -1, &o));
    assert_false(kh_sampler_option("nonsense", 0, &o));
    int samplers = 0;
    for (; kh_sampler_name(samplers); samplers++)
        assert_true(kh_sampler_option(kh_sampler_name(samplers), 0, &o));
    assert_int_equal(samplers, 4);
}

/* -------------------------------------------------------------------------------- reading back */

static void a_posterior_is_read(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    kh_posterior *p = tune_with("smc", SET("samples=8"), &o);
    kh_posterior_info i = kh_posterior_describe(p);
    const float *w = kh_posterior_weights(p), *z = kh_posterior_z(p);
    assert_true(i.samples > 0 && i.dim == o.space.dim && i.slots == o.space.slots);
    double sum = 0;
    for (int s = 0; s < i.samples; s++)
        sum += (double)w[s];
    assert_true(fabs(sum - 1) < 1e-5);
    for (int k = 0; k < i.samples * i.dim; k++)
        assert_true(isfinite(z[k]));
    kh_err err;
    assert_int_equal(kh_posterior_export(p, plm, KH_EXPORT_JSONL, run_dir, NULL, &err), 0);
    assert_int_equal(unlink(run_dir), 0);
    assert_int_equal(
        kh_posterior_export(p, plm, KH_EXPORT_PEFT, run_dir, NULL, &err), KH_EUNSUPPORTED);
    float *prompt = kh_malloc((size_t)i.slots * (size_t)i.hidden * sizeof *prompt);
    assert_int_equal(kh_posterior_prompt(p, plm, i.samples - 1, prompt, NULL), 0);
    assert_int_equal(kh_posterior_prompt(p, plm, i.samples, prompt, &err), KH_EARG);
    assert_says(&err, "the posterior has samples 0 to");
    kh_free(prompt);
    kh_posterior_free(p);
    p = tune_with("manual", NULL, &o);
    assert_null(kh_posterior_z(p));
    assert_int_equal(kh_posterior_prompt(p, plm, 0, NULL, &err), KH_EUNSUPPORTED);
    assert_says(&err, "has no soft prompts");
    kh_posterior_free(p);
}

/* ---------------------------------------------------------------------------- a box of one's own
 */

typedef struct toy {
    int asked, closed, wrong; /* wrong: a label that is none; -1: fails */
} toy;

static int toy_answer(void *self, const kh_question *q, int *label, kh_err *err) {
    toy *t = self;
    int n = (q->batch->n_slot > 0 ? q->n_prompt : 1) * q->batch->n_row;
    t->asked += n;
    if (t->wrong < 0)
        return t->wrong == -1 ? kh_err_set(err, KH_EIO, "the line is dead") : KH_EIO;
    for (int i = 0; i < n; i++)
        label[i] = t->wrong ? t->wrong : i % q->words->n_label;
    return 0;
}

static void toy_close(void *self) { ((toy *)self)->closed++; }

static const kh_box TOY = { .name = "toy",
    .access = KH_ACCESS_LABELS,
    .tokenizer = TINY_TOKENIZER,
    .hidden = 4,
    .max_len = 64,
    .fingerprint = 7,
    .answer = toy_answer,
    .close = toy_close };

static void tune_fails(kh_plm *box, int code, const char *says) {
    kh_posterior *p;
    kh_err err;
    kh_tune_opts o = tune_options();
    o.space.slots = 2, o.space.dim = 4;
    assert_int_equal(kh_tune(&p, "smc", SET("samples=8"), box, task, train, dev, &o, &err), code);
    assert_says(&err, says);
}

static void a_box_of_ones_own(void **state) {
    (void)state;
    toy t = { 0 };
    kh_plm *box;
    kh_posterior *p;
    kh_tune_opts o = tune_options();
    o.space.slots = 2, o.space.dim = 4, o.max_queries = 2000;
    assert_int_equal(kh_plm_new(&box, &TOY, &t, NULL), 0);
    assert_int_equal(kh_tune(&p, "smc", SET("samples=8"), box, task, train, dev, &o, NULL), 0);
    assert_int_equal(kh_plm_meter(box).queries, t.asked);
    assert_string_equal(kh_posterior_describe(p).model, "toy");
    kh_posterior_free(p);
    assert_null(kh_plm_scorer(box, NULL)); /* labels, and nothing else */
    t.wrong = 9;
    tune_fails(box, KH_EFORMAT, "with label 9, which is outside 0..");
    t.wrong = -1;
    tune_fails(box, KH_EIO, "toy: the line is dead");
    t.wrong = -2;
    tune_fails(box, KH_EIO, "toy: answer failed and gave no reason");
    kh_plm_close(box);
    assert_int_equal(t.closed, 1);
}

static void refuse_box(kh_box box, int code, const char *says) {
    toy t = { 0 };
    kh_plm *plm_of;
    kh_err err;
    assert_int_equal(kh_plm_new(&plm_of, &box, &t, &err), code);
    assert_says(&err, says);
    assert_null(plm_of);
    assert_int_equal(t.closed, 0);
}

static void boxes_are_checked(void **state) {
    (void)state;
    kh_box b = TOY;
    b.tokenizer = NULL;
    refuse_box(b, KH_EARG, "a box needs a tokenizer");
    b = TOY, b.access = KH_ACCESS_WEIGHTS;
    refuse_box(b, KH_EUNSUPPORTED, "gradients need a model folder");
    b = TOY, b.access = KH_ACCESS_LOGPROBS;
    refuse_box(b, KH_EARG, "needs the function \"score\"");
    b = TOY, b.answer = NULL;
    refuse_box(b, KH_EARG, "needs the function \"answer\"");
    b = TOY, b.max_len = 0;
    refuse_box(b, KH_EARG, "max_len is 0");
    b = TOY, b.tokenizer = "/nowhere/tokenizer.json";
    refuse_box(b, KH_EMISSING, "/nowhere/tokenizer.json");
    toy t = { 0 };
    kh_plm *box;
    b = TOY, b.hidden = 0; /* takes no soft prompts */
    assert_int_equal(kh_plm_new(&box, &b, &t, NULL), 0);
    tune_fails(box, KH_EUNSUPPORTED, "takes no soft prompts");
    kh_plm_close(box);
    kh_err err;
    float row[4];
    double mean, std;
    assert_int_equal(kh_plm_new(&box, &TOY, &t, NULL), 0);
    assert_int_equal(kh_plm_embedding_row(box, 0, row, &err), KH_EUNSUPPORTED);
    assert_says(&err, "toy: has no function for word embeddings");
    assert_int_equal(kh_plm_embedding_stats(box, &mean, &std, &err), 0);
    assert_true(mean == 0 && std == 1); /* a unit of its own */
    kh_plm_close(box);
}

/* Embeddings of words 0 and 1; others it does not have. */
static int toy_embedding(void *self, int32_t id, float *row, kh_err *err) {
    (void)self;
    for (int i = 0; i < 4; i++)
        row[i] = (float)id + 0.5f;
    return id < 2 ? 0 : kh_err_set(err, 7, "no such word");
}

static void a_box_may_have_embeddings(void **state) {
    (void)state;
    toy t = { 0 };
    kh_plm *box;
    kh_box b = TOY;
    kh_err err;
    float row[4];
    double mean, std;
    b.name = NULL, b.embedding_row = toy_embedding, b.embedding_mean = 0.25, b.embedding_std = 2;
    assert_int_equal(kh_plm_new(&box, &b, &t, NULL), 0);
    assert_int_equal(kh_plm_embedding_row(box, 1, row, &err), 0);
    assert_true(row[0] == 1.5f && row[3] == 1.5f);
    assert_int_equal(kh_plm_embedding_row(box, 3, row, &err), KH_EIO); /* 7 is no code of ours */
    assert_string_equal(err.msg, "own box: no such word");
    assert_int_equal(kh_plm_embedding_stats(box, &mean, &std, &err), 0);
    assert_true(mean == 0.25 && std == 2);
    kh_plm_close(box);
}

/* A box that takes nothing but text is searched all the same, unless it reads no more than a row;
 * one that takes vectors is asked about no text prompts. */
static void auto_searches_text_where_there_is_nothing_else(void **state) {
    (void)state;
    toy t = { 0 };
    kh_plm *box;
    kh_posterior *p;
    kh_err err;
    static const struct { int hidden, max_len; } BOX[] = { { 0, 512 }, { 0, 64 }, { 4, 512 } };
    for (int i = 0; i < 3; i++) {
        kh_box b = TOY;
        kh_tune_opts o = tune_options();
        b.hidden = BOX[i].hidden, b.max_len = BOX[i].max_len;
        o.max_queries = 6000, o.effort = KH_EFFORT_NORMAL;
        assert_int_equal(kh_plm_new(&box, &b, &t, NULL), 0);
        if (kh_tune(&p, "auto", NULL, box, task, train, dev, &o, &err) != 0)
            fail_msg("%s", err.msg);
        assert_true((strstr(p->tried, "\"text-smc\"") != NULL) == (i == 0));
        assert_true((strstr(p->tried, "\"smc\"") != NULL) == (i == 2));
        kh_posterior_free(p);
        kh_plm_close(box);
    }
}

/* ------------------------------------------------------------- runs as classifiers, evaluations */

static void a_run_is_a_classifier(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    kh_posterior *p = tune_with("bbt", SET("budget-generations=3"), &o);
    kh_eval *e;
    kh_eval_opts judge = kh_eval_defaults();
    kh_err err;
    judge.test = train, judge.dev = dev, judge.bootstrap.n_resample = 20;
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    assert_int_equal(kh_eval_new(&e, p, plm, &judge, &err), 0);
    kh_eval_info i = kh_eval_describe(e);
    assert_int_equal(i.rows, kh_dataset_size(train));
    assert_int_equal(i.dev_rows, kh_dataset_size(dev));
    assert_true(i.decided && i.n_ood == 0 && kh_eval_decisions(e));
    assert_true(i.value.accuracy >= i.low.accuracy && i.value.accuracy <= i.high.accuracy);
    assert_int_equal(kh_eval_answers(e).n, i.rows);
    char *text;
    assert_int_equal(kh_eval_json(e, run_dir, &text, NULL), 0);
    assert_non_null(strstr(text, "\"accuracy\""));
    kh_text_free(text);
    assert_int_equal(kh_eval_save(e, run_dir, NULL, &err), 0);
    kh_eval_free(e);

    kh_classifier *c;
    kh_classified said[4];
    bool set[4 * 8];
    double q[4 * 8];
    if (kh_classifier_open(&c, run_dir, NULL, &err) != 0) /* the folder knows its model */
        fail_msg("%s", err.msg);
    assert_true(kh_classifier_decides(c));
    assert_int_equal(kh_classifier_run(c, kh_dataset_rows(dev), 4, said, q, set, NULL), 0);
    for (int k = 0; k < 4; k++) {
        assert_true(said[k].label >= 0 && said[k].label < task->n_label);
        assert_true(said[k].confidence == q[k * task->n_label + said[k].label]);
        int size = 0;
        for (int j = 0; j < task->n_label; j++)
            size += set[k * task->n_label + j];
        assert_int_equal(size, said[k].set_size);
    }
    kh_classifier_close(c);
    static const char *const FILES[] = { "decisions.json", "results.json", "report.html", NULL };
    for (int k = 0; FILES[k]; k++) {
        char *path = kh_path_join(run_dir, FILES[k]);
        assert_int_equal(unlink(path), 0);
        kh_free(path);
    }
    assert_int_equal(kh_classifier_open(&c, run_dir, plm, NULL), 0);
    assert_false(kh_classifier_decides(c));
    assert_int_equal(kh_classifier_run(c, kh_dataset_rows(dev), 4, said, NULL, NULL, NULL), 0);
    assert_true(!said[0].abstain && said[0].set_size == -1);
    kh_classifier_close(c);
    p->model = "http://127.0.0.1:9";
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    assert_int_equal(kh_classifier_open(&c, run_dir, NULL, &err), KH_EARG);
    assert_says(&err, "open the box and pass it");
    kh_posterior_free(p);
    judge.test = judge.dev = NULL;
    p = tune_with("manual", NULL, &o);
    assert_int_equal(kh_eval_new(&e, p, plm, &judge, &err), KH_EARG);
    assert_null(e);
    kh_posterior_free(p);
}

/* As the public functions give it, without a look inside. */
static void an_evaluation_is_read_by_functions(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    kh_posterior *p = tune_with("manual", NULL, &o);
    const char *lines = test_file("strangers.txt", "What is it?\n \t\n\nNobody <knows>", 30);
    kh_eval_opts judge = { .decide = kh_decision_defaults(), .ood = { &lines, 1, 1 } };
    kh_eval *e;
    kh_err err;
    char *html, other[100];
    judge.test = train, judge.dev = dev;
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    if (kh_eval_new(&e, p, plm, &judge, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(kh_eval_describe(e).n_ood, 1);
    kh_eval_ood_info far = kh_eval_ood(e, 0);
    assert_int_equal(far.rows, 2); /* lines of white space are none */
    assert_true(far.n_score >= 2 && far.value[KH_SCORE_MAXP].auroc >= 0);
    assert_string_equal(far.name, strrchr(lines, '/') + 1);
    assert_int_equal(kh_eval_html(e, run_dir, &html, NULL), 0);
    assert_non_null(strstr(html, "<!DOCTYPE html>"));
    kh_text_free(html);
    snprintf(other, sizeof other, "%s-judged", run_dir);
    assert_int_equal(kh_eval_save(e, run_dir, other, &err), 0);
    static const char *const MADE[] = { "results.json", "report.html", NULL };
    for (int i = 0; MADE[i]; i++) {
        char *path = kh_path_join(other, MADE[i]);
        assert_true(kh_file_exists(path));
        kh_free(path);
    }
    tiny_remove(other, MADE);
    kh_eval_free(e);
    kh_eval_free(NULL);
    judge.dev = NULL, judge.ood.n = 0; /* nothing to decide on */
    assert_int_equal(kh_eval_new(&e, p, plm, &judge, &err), 0);
    assert_false(kh_eval_describe(e).decided);
    assert_null(kh_eval_decisions(e));
    kh_eval_free(e);
    unlink(lines);
    char *decisions = kh_path_join(run_dir, "decisions.json");
    unlink(decisions);
    kh_free(decisions);
    kh_posterior_free(p);
}

/* By energy and distance where both are known, in the classifier of a folder as in its evaluation.
 */
static void a_classifier_knows_its_kind_of_text(void **state) {
    (void)state;
    kh_tune_opts o = tune_options();
    o.features_model = tiny_dir;
    kh_posterior *p = tune_with("manual", NULL, &o);
    kh_eval *e;
    kh_eval_opts judge = kh_eval_defaults();
    kh_err err;
    int n = kh_dataset_size(dev), away = 0;
    judge.test = judge.dev = dev, judge.bootstrap.n_resample = 0, judge.decide.keep = 0.5;
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    assert_int_equal(kh_eval_new(&e, p, plm, &judge, &err), 0);
    const kh_decisions *d = kh_eval_decisions(e);
    assert_true(d->opts.foreign == KH_SCORE_BOTH && isfinite(d->ood));
    assert_int_equal(kh_decisions_save(d, run_dir, NULL), 0);
    kh_predictor *predictor;
    kh_classifier *c;
    double *q = kh_malloc((size_t)(n * (task->n_label + 2)) * sizeof *q),
           *energy = q + n * task->n_label, *distance = energy + n;
    kh_classified *said = kh_malloc((size_t)n * sizeof *said);
    assert_int_equal(kh_predictor_new(&predictor, p, plm, NULL, NULL), 0);
    assert_int_equal(kh_predictor_explain(predictor, kh_dataset_rows(dev), n,
                         &(kh_explained){ .p = q, .energy = energy, .distance = distance }, NULL),
        0);
    assert_int_equal(kh_classifier_open(&c, run_dir, plm, NULL), 0);
    assert_int_equal(kh_classifier_run(c, kh_dataset_rows(dev), n, said, NULL, NULL, NULL), 0);
    for (int i = 0; i < n; i++) {
        bool foreign = kh_both_score(&d->opts.both, energy[i], distance[i]) > d->ood;
        assert_true(said[i].out_of_distribution == foreign);
        away += foreign;
    }
    assert_true(away > 0 && away < n);
    kh_classifier_close(c);
    kh_predictor_free(predictor);
    char *path = kh_path_join(run_dir, "decisions.json");
    assert_int_equal(unlink(path), 0);
    kh_free(path);
    kh_free(said);
    kh_free(q);
    kh_eval_free(e);
    kh_posterior_free(p);
}

/* ------------------------------------------------------------------------ simulators, optimiser */

static int noisy(void *user, const float *z, const double *noise, float *x, kh_err *err) {
    (void)user, (void)err;
    for (int k = 0; k < 2; k++)
        x[k] = z[k] + 0.5f * (float)noise[k];
    return 0;
}

static int signs(void *user, const float *z, int *label, kh_err *err) {
    (void)user, (void)err;
    for (int k = 0; k < 6; k++)
        label[k] = z[k] > 0;
    return 0;
}

static int broken(void *user, const float *z, const double *noise, float *x, kh_err *err) {
    (void)user, (void)z, (void)noise;
    x[0] = NAN, x[1] = 0;
    return user ? kh_err_set(err, KH_EIO, "no more") : 0;
}

/* x = z + N(0, 1/4), z ~ N(0, 1): given x the posterior mean is 0.8 x, the variance 0.2. */
static void samplers_find_a_gaussian(void **state) {
    (void)state;
    float observed[2] = { 1, -0.5f };
    kh_problem p = { .dim = 2, .simulate = noisy, .n_obs = 2, .n_noise = 2, .observed = observed };
    static const char *const NAMES[] = { "abc-rejection", "abc-smc", "smc" };
    static const char *const SAMPLES[] = { "samples=400", NULL };
    for (int s = 0; s < 3; s++) {
        kh_samples a, b;
        kh_err err;
        kh_sample_opts o = { .max_simulations = 400000 };
        if (kh_sample(&a, NAMES[s], SAMPLES, &p, 3, &o, &err) != 0)
            fail_msg("%s: %s", NAMES[s], err.msg);
        assert_int_equal(kh_sample(&b, NAMES[s], SAMPLES, &p, 3, &o, NULL), 0);
        assert_true(a.n == b.n && a.dim == 2 && a.simulations <= o.max_simulations);
        assert_memory_equal(a.z, b.z, (size_t)a.n * 2 * sizeof *a.z);
        double mean[2] = { 0 }, sum = 0;
        for (int i = 0; i < a.n; i++) {
            mean[0] += a.weight[i] * (double)a.z[2 * i];
            mean[1] += a.weight[i] * (double)a.z[2 * i + 1];
            sum += a.weight[i];
        }
        assert_true(fabs(sum - 1) < 1e-6 && a.stopped[0]);
        /* rejection keeps what is within its first tolerance, which pulls towards the prior */
        double slack = s == 0 ? 0.45 : 0.2;
        assert_true(fabs(mean[0] - 0.8) < slack && fabs(mean[1] + 0.4) < slack);
        kh_samples_free(&a);
        kh_samples_free(&b);
    }
}

static void samplers_take_labels(void **state) {
    (void)state;
    static const int TRUTH[] = { 1, 0, 1, 1, 0, 0 };
    kh_problem p = { .dim = 6, .answer = signs, .n_row = 6, .n_class = 2, .truth = TRUTH };
    kh_samples s;
    assert_int_equal(kh_sample(&s, "smc", SET("samples=50", "accept=hard"), &p, 1, NULL, NULL), 0);
    assert_true(s.n == 50 && s.distance <= 1);
    kh_samples_free(&s);
}

static void problems_are_checked(void **state) {
    (void)state;
    float observed[2] = { 0 };
    int user = 1;
    kh_samples s;
    kh_err err;
    kh_problem p = { .dim = 2, .simulate = broken, .n_obs = 2, .observed = observed };
    assert_int_equal(kh_sample(&s, "nonsense", NULL, &p, 1, NULL, &err), KH_EARG);
    assert_says(&err, "there are abc-rejection, abc-smc, smc and snpe");
    assert_int_equal(kh_sample(&s, "smc", SET("pop=3"), &p, 1, NULL, &err), KH_EARG);
    assert_says(&err, "has no option \"pop=3\"");
    assert_int_equal(kh_sample(&s, "smc", NULL, &p, 1, NULL, &err), KH_EFORMAT);
    assert_says(&err, "is not finite");
    p.user = &user;
    assert_int_equal(kh_sample(&s, "smc", NULL, &p, 1, NULL, &err), KH_EIO);
    assert_says(&err, "no more");
    p.observed = NULL;
    assert_int_equal(kh_sample(&s, "smc", NULL, &p, 1, NULL, &err), KH_EARG);
    p.simulate = NULL;
    assert_int_equal(kh_sample(&s, "smc", NULL, &p, 1, NULL, &err), KH_EARG);
    assert_says(&err, "either a function `simulate` or a function `answer`");
    assert_null(s.z);
}

static void a_vocabulary_is_learned(void **state) {
    (void)state;
    char out[120];
    static const char *const FILES[] = { "README.md" };
    kh_tokenizer_train_opts o = kh_tokenizer_train_defaults();
    kh_tokenizer *t;
    kh_err err;
    snprintf(out, sizeof out, "%s.json", run_dir);
    assert_int_equal(kh_tokenizer_train(&o, out, &err), KH_EARG);
    assert_says(&err, "from at least one file");
    o.file = FILES, o.n_file = 1, o.vocab = 400;
    assert_int_equal(kh_tokenizer_train(&o, out, &err), 0);
    assert_int_equal(kh_tokenizer_open(&t, out, &err), 0);
    assert_int_equal(kh_tokenizer_size(t), 400);
    kh_tokenizer_close(t);
    unlink(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_listed),
        cmocka_unit_test(a_posterior_is_read),
        cmocka_unit_test(a_box_of_ones_own),
        cmocka_unit_test(boxes_are_checked),
        cmocka_unit_test(a_box_may_have_embeddings),
        cmocka_unit_test(auto_searches_text_where_there_is_nothing_else),
        cmocka_unit_test(a_run_is_a_classifier),
        cmocka_unit_test(an_evaluation_is_read_by_functions),
        cmocka_unit_test(a_classifier_knows_its_kind_of_text),
        cmocka_unit_test(samplers_find_a_gaussian),
        cmocka_unit_test(samplers_take_labels),
        cmocka_unit_test(problems_are_checked),
        cmocka_unit_test(a_vocabulary_is_learned),
    };
    return cmocka_run_group_tests(tests, open_all, tune_teardown);
}
