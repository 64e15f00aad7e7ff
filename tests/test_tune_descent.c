/* test_tune_descent.c - the methods with gradients on a tiny random model: they learn what they are
 * shown, the same seed gives the same bits, what they leave behind answers as they did, and what is
 * refused. */
#include "tiny_tune.h"

#include "posterior/posterior.h"
#include "plm/trainable.h"
#include "tune/descent.h"

#include <math.h>
#include <sys/stat.h>

enum { TRAIN = 8, DEV = 6 };

static char model_dir[100];

static int open_all(void **state) {
    tune_setup(state, "descent", KH_ACCESS_WEIGHTS, TRAIN, DEV,
        1); /* whoever learns, learns the dev rows */
    snprintf(model_dir, sizeof model_dir, "%s/model", run_dir);
    assert_int_equal(mkdir(run_dir, 0777), 0);
    return 0;
}

static int close_all(void **state) {
    static const char *const MODEL[] = { "config.json", "model.safetensors", "tokenizer.json",
        NULL };
    tiny_remove(model_dir, MODEL);
    return tune_teardown(state);
}

static kh_tune_opts options(void) {
    kh_tune_opts o = tune_options();
    o.space.dim = 500; /* of no consequence: the prompt is searched whole */
    o.model = tiny_dir;
    o.folder = run_dir;
    return o;
}

static double dev_by_predictor(const kh_posterior *p, kh_plm *box) {
    kh_predictor *predictor;
    double answer[DEV * 2];
    int label[DEV];
    kh_err err;
    if (kh_predictor_new(&predictor, p, box, NULL, &err) != 0 ||
        kh_predictor_run(predictor, kh_dataset_rows(dev), DEV, answer, &err) != 0)
        fail_msg("%s", err.msg);
    kh_predictor_free(predictor);
    for (int i = 0; i < DEV; i++)
        label[i] = kh_dataset_rows(dev)[i].label;
    return kh_metric_of_p(task->metric, answer, label, DEV, 2);
}

static void a_prompt_learns(void **state) {
    (void)state;
    static const kh_inject ALL[] = { KH_INJECT_POST_LN_ADD, KH_INJECT_EMBED_PREFIX,
        KH_INJECT_EMBED_INPLACE };
    for (int i = 0; i < 3; i++) {
        kh_tune_opts o = options();
        o.space.inject = ALL[i];
        kh_posterior *p =
            tune_with("prompt-tuning", SET("epochs=60", "lr=3e-2", "patience=60"), &o);
        assert_int_equal(p->n, 1);
        assert_int_equal(p->space.dim, 5 * 32);
        assert_int_equal(p->space.projection, KH_PROJECTION_IDENTITY);
        if (!(p->dev > 0.9))
            fail_msg("%s: dev is only %g", kh_inject_name(ALL[i]), p->dev);
        assert_true(p->dev == dev_by_predictor(p, plm));
        kh_posterior_free(p);
    }
}

static void same_seed_same_prompt(void **state) {
    (void)state;
    kh_tune_opts o = options();
    const char *const *set = SET("epochs=5", "batch=3");
    kh_threads_set(1);
    kh_posterior *a = tune_with("prompt-tuning", set, &o);
    kh_threads_set(3);
    kh_posterior *b = tune_with("prompt-tuning", set, &o);
    kh_threads_set(0);
    assert_memory_equal(a->z, b->z, 160 * sizeof *a->z);
    kh_posterior *c;
    assert_int_equal(kh_posterior_save(a, run_dir, NULL), 0);
    assert_int_equal(kh_posterior_open(&c, run_dir, NULL), 0);
    assert_memory_equal(a->z, c->z, 160 * sizeof *a->z);
    assert_int_equal(c->space.projection, KH_PROJECTION_IDENTITY);
    assert_true(a->dev == dev_by_predictor(c, plm));
    kh_posterior_free(a);
    kh_posterior_free(b);
    kh_posterior_free(c);
}

static void a_model_learns(void **state) {
    (void)state;
    kh_tune_opts o = options();
    kh_posterior *p = tune_with("model-tuning", SET("epochs=40", "lr=1e-2", "patience=40"), &o);
    assert_true(p->dev > 0.9);
    assert_string_equal(p->model, model_dir);
    kh_plm *tuned;
    assert_int_equal(
        kh_plm_open(&tuned, model_dir, &(kh_plm_opts){ .access = KH_ACCESS_LOGPROBS }, NULL), 0);
    assert_true(kh_plm_describe(tuned).fingerprint == p->fingerprint);
    assert_true(p->dev == dev_by_predictor(p, tuned));
    kh_predictor *wrong;
    kh_err err;
    assert_int_equal(kh_predictor_new(&wrong, p, plm, NULL, &err),
        KH_EMISMATCH); /* the model it came from is another */
    kh_plm_close(tuned);
    kh_posterior_free(p);
}

/* All that a head or a prefix has is in the run's folder, and answers from there as it did; threads
 * change nothing. */
static void check_adapter(
    const char *method, const char *const *set, kh_adapter_kind kind, double least) {
    kh_tune_opts o = options();
    kh_threads_set(1);
    kh_posterior *a = tune_with(method, set, &o), *c;
    kh_threads_set(2);
    kh_posterior *b = tune_with(method, set, &o);
    assert_int_equal(a->adapter.kind, kind);
    assert_int_equal(a->access, KH_ACCESS_WEIGHTS);
    if (!(a->dev >= least))
        fail_msg("%s: dev is only %g", method, a->dev);
    size_t bytes = kh_adapter_size(&a->adapter) * sizeof *a->adapter.x;
    assert_memory_equal(a->adapter.x, b->adapter.x, bytes);
    assert_true(a->dev == b->dev);
    assert_true(a->dev == dev_by_predictor(a, plm));
    assert_int_equal(kh_posterior_save(a, run_dir, NULL), 0);
    kh_err err;
    if (kh_posterior_open(&c, run_dir, &err) != 0)
        fail_msg("%s: %s", method, err.msg);
    assert_memory_equal(a->adapter.x, c->adapter.x, bytes);
    assert_int_equal(c->access, KH_ACCESS_WEIGHTS);
    assert_int_equal(c->forward, a->forward);
    assert_int_equal(c->backward, a->backward);
    assert_true(a->dev == dev_by_predictor(c, plm));
    kh_threads_set(0);
    kh_posterior_free(a);
    kh_posterior_free(b);
    kh_posterior_free(c);
}

static void a_network_on_states_learns(void **state) {
    (void)state;
    static const char *const STATES[] = { "states=mask", "states=mean", "states=first" };
    for (int i = 0; i < 3; i++)
        check_adapter("feature-mlp",
            SET("epochs=60", "lr=2e-2", "inner=8", "batch=3", "patience=60", STATES[i]),
            KH_ADAPTER_MLP, 0.9);
}

static void a_bilstm_on_states_learns(void **state) {
    (void)state;
    check_adapter("feature-bilstm", SET("epochs=30", "lr=1e-2", "inner=4", "batch=3"),
        KH_ADAPTER_BILSTM, 0.9);
}

static void prefixes_learn(void **state) {
    (void)state;
    check_adapter("p-tuning-v2", SET("epochs=40", "lr=3e-2", "patience=40", "batch=3"),
        KH_ADAPTER_PREFIX, 0.9);
}

/* The largest difference between what two posteriors say about dev. */
static double difference(const kh_posterior *a, const kh_posterior *b) {
    double answer[2][DEV * 2], most = 0;
    const kh_posterior *both[2] = { a, b };
    for (int i = 0; i < 2; i++) {
        kh_predictor *predictor;
        assert_int_equal(kh_predictor_new(&predictor, both[i], plm, NULL, NULL), 0);
        assert_int_equal(
            kh_predictor_run(predictor, kh_dataset_rows(dev), DEV, answer[i], NULL), 0);
        kh_predictor_free(predictor);
    }
    for (int i = 0; i < DEV * 2; i++)
        most = fmax(most, fabs(answer[0][i] - answer[1][i]));
    return most;
}

/* Prefixes that have learned nothing change little, even fifty before texts of a dozen tokens. As
 * keys of words they would by 0.09 and 0.34. */
static void prefixes_start_as_next_to_nothing(void **state) {
    (void)state;
    kh_tune_opts o = options();
    kh_posterior *plain = tune_with("manual", NULL, &o);
    static const struct {
        int slots;
        double most;
    } CASE[] = { { 5, 0.06 }, { 50, 0.28 } };
    for (int i = 0; i < 2; i++) {
        o.space.slots = CASE[i].slots;
        kh_posterior *p = tune_with("p-tuning-v2", SET("epochs=1", "lr=1e-12"), &o);
        double by = difference(plain, p);
        if (!(by < CASE[i].most))
            fail_msg("%d prefixes change an answer by %g", CASE[i].slots, by);
        kh_posterior_free(p);
    }
    kh_posterior_free(plain);
}

static int give_prefix(void *self, kh_pass_f32 *out, kh_err *err) {
    const kh_adapter *g = self;
    (void)err;
    out->prefix = g->x;
    out->n_prefix = g->slots;
    return 0;
}

/* The engine and the training forward see prefixes alike. */
static void prefixes_in_the_engine(void **state) {
    (void)state;
    kh_tune_opts o = options();
    kh_plm *exact;
    kh_err err;
    assert_int_equal(kh_plm_open(&exact, tiny_dir,
                         &(kh_plm_opts){ .access = KH_ACCESS_WEIGHTS, .precision = KH_F32 }, NULL),
        0);
    kh_tuning t = { .plm = exact,
        .task = task,
        .train_row = kh_dataset_rows(train),
        .n_train = TRAIN,
        .dev_row = kh_dataset_rows(dev),
        .n_dev = DEV,
        .o = &o };
    assert_int_equal(kh_words_new(&t.words, task, kh_plm_tokenizer(exact), false, NULL), 0);
    kh_trainable box;
    assert_int_equal(kh_trainable_init(&box, &t, KH_WRT_PREFIX, NULL), 0);
    kh_adapter g = {
        .kind = KH_ADAPTER_PREFIX, .hidden = 32, .layers = box.params.config.layers, .slots = 5
    };
    size_t n = kh_adapter_size(&g);
    g.x = kh_calloc(n, sizeof *g.x);
    kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 0, 0);
    for (size_t i = 0; i < n; i++)
        g.x[i] = (float)kh_rng_normal(&r);
    kh_descent_opts plain = { 0 };
    kh_gradient_pass through = { .t = &t,
        .o = &plain,
        .box = &box,
        .pass = give_prefix,
        .slope = kh_gradient_prefix,
        .self = &g };
    assert_int_equal(
        kh_gradient_new(&through.gradient, &box.params, 2, KH_WRT_PREFIX, 0, g.slots, NULL), 0);
    kh_descent d = { .t = &t };
    kh_descent_through(&d, &through);
    float want[DEV * 2], have[DEV * 2], without[DEV * 2], *slope;
    int which[DEV];
    double loss, apart = 0, moved = 0;
    for (int i = 0; i < DEV; i++)
        which[i] = i;
    assert_int_equal(
        d.run(d.self, &(kh_row_subset){ true, which, DEV, 0 }, false, want, &loss, &slope, NULL),
        0);
    kh_question q = { .batch = box.dev, .words = t.words, .inject = KH_INJECT_NONE };
    assert_int_equal(kh_plm_score_prefixed(exact, &q, &g, have, NULL, NULL), 0);
    assert_int_equal(kh_plm_score(kh_plm_scorer(exact, NULL), &q, without, NULL), 0);
    for (int i = 0; i < DEV * 2; i++) {
        apart = fmax(apart, fabs((double)want[i] - (double)have[i]));
        moved = fmax(moved, fabs((double)without[i] - (double)have[i]));
    }
    assert_true(apart < 1e-4);
    assert_true(moved > 1e-2);
    g.layers--;
    assert_int_equal(kh_plm_score_prefixed(exact, &q, &g, have, NULL, &err), KH_EMISMATCH);
    assert_says(&err, "does not fit a model of 2 layers with 32");
    kh_gradient_free(through.gradient);
    kh_trainable_free(&box);
    kh_words_free(t.words);
    kh_free(g.x);
    kh_plm_close(exact);
}

/* Dropout changes what is learned, and not with the threads; layers that are computed twice change
 * nothing. */
static void dropout_and_recomputed_layers(void **state) {
    (void)state;
    kh_tune_opts o = options();
    kh_threads_set(1);
    kh_posterior *plain = tune_with("prompt-tuning", SET("epochs=2", "batch=3", "patience=9"), &o);
    kh_posterior *twice =
        tune_with("prompt-tuning", SET("epochs=2", "batch=3", "patience=9", "recompute=true"), &o);
    kh_posterior *one =
        tune_with("prompt-tuning", SET("epochs=2", "batch=3", "patience=9", "dropout=0.2"), &o);
    kh_threads_set(3);
    kh_posterior *three =
        tune_with("prompt-tuning", SET("epochs=2", "batch=3", "patience=9", "dropout=0.2"), &o);
    kh_threads_set(0);
    assert_memory_equal(plain->z, twice->z, 160 * sizeof *plain->z);
    assert_memory_equal(one->z, three->z, 160 * sizeof *one->z);
    kh_posterior_free(plain);
    kh_posterior_free(twice);
    kh_posterior_free(one);
    kh_posterior_free(three);
}

/* What was asked and what passed the weights are counted apart. */
static void costs_are_told(void **state) {
    (void)state;
    kh_tune_opts o = options();
    kh_posterior *p = tune_with("p-tuning-v2", SET("epochs=2", "patience=9"), &o);
    assert_int_equal(p->backward, 2 * TRAIN);
    assert_int_equal(p->forward, 2 * TRAIN + 3 * DEV);
    assert_int_equal(p->train_queries, 0);
    assert_int_equal(p->dev_queries, DEV); /* by the engine, at the end */
    kh_posterior_free(p);
    p = tune_with("feature-mlp", SET("epochs=2"), &o);
    assert_int_equal(p->forward, 0);
    assert_int_equal(p->train_queries, TRAIN);
    assert_int_equal(p->dev_queries, DEV);
    kh_posterior_free(p);
    double before = kh_plm_meter(plm).seconds;
    p = tune_with("model-tuning", SET("epochs=1"), &o);
    assert_int_equal(p->backward, TRAIN);
    assert_int_equal(p->forward, TRAIN + 3 * DEV);
    assert_true(kh_plm_meter(plm).seconds > before);
    kh_posterior_free(p);
}

/* The file is written again with one thing changed; opening it, or using it with the model, must
 * say what is wrong. */
static void broken_adapters(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } BREAK[] = {
        { "\"access\": \"weights\"", "\"access\": \"logprobs\"",
            "must be weights if there is a \"graft\", and only then" },
        { "\"kind\": \"mlp\"", "\"kind\": \"mlx\"",
            "\"mlx\" is nothing that can be put on a model" },
        { "\"states\": \"mask\"", "\"states\": \"task\"",
            "\"task\" is no way to read hidden states" },
        { "\"states\": \"mask\"", "\"states\": \"all\"",
            "a head of kind mlp cannot read the states \"all\"" },
        { "\"inner\": 8", "\"inner\": 9",
            "\"hidden.weight\" is F32 of shape [8, 32], expected F32 of shape [9, 32]" },
        { "\"inner\": 8", "\"inner\": 0", "\"inner\"" },
        { "\"hidden\": 32, \"st", "\"hidden\": 31, \"st", "expected F32 of shape [8, 31]" },
        { "\"labels\": 2", "\"labels\": 3", "\"labels\"" },
        { "\"kind\": \"mlp\", \"hidden\": 32",
            "\"kind\": \"prefix\", \"hidden\": 32, \"layers\": 2, \"slots\": 5",
            "no array \"prefix\"" },
    };
    kh_tune_opts o = options();
    kh_posterior *p = tune_with("feature-mlp", SET("epochs=1", "inner=8"), &o), *broken;
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    char path[120];
    snprintf(path, sizeof path, "%s/posterior.json", run_dir);
    kh_buf text = kh_buf_init(0);
    assert_int_equal(kh_file_read(path, 1 << 20, &text, NULL), 0);
    for (size_t i = 0; i < sizeof BREAK / sizeof *BREAK; i++) {
        const char *at = strstr(text.data, BREAK[i].from);
        assert_non_null(at);
        kh_buf changed = kh_buf_init(KH_BUF_MAX);
        kh_buf_printf(&changed, "%.*s%s%s", (int)(at - text.data), text.data, BREAK[i].to,
            at + strlen(BREAK[i].from));
        assert_int_equal(kh_file_write(path, changed.data, changed.len, NULL), 0);
        kh_buf_free(&changed);
        kh_err err;
        assert_int_not_equal(kh_posterior_open(&broken, run_dir, &err), 0);
        assert_says(&err, BREAK[i].says);
    }
    kh_buf_free(&text);
    kh_predictor *predictor;
    kh_err err;
    kh_plm *closed = tiny_open(KH_ACCESS_LOGPROBS);
    assert_int_equal(kh_predictor_new(&predictor, p, closed, NULL, &err), KH_EUNSUPPORTED);
    assert_says(&err, "this needs access level weights; the box was opened at logprobs");
    kh_plm_close(closed);
    p->adapter.hidden = 31;
    assert_int_equal(kh_predictor_new(&predictor, p, plm, NULL, &err), KH_EMISMATCH);
    assert_says(&err, "is for states of 31 numbers; those of this model have 32");
    p->adapter.hidden = 32;
    p->adapter.x[3] = NAN;
    assert_int_equal(kh_posterior_save(p, run_dir, NULL), 0);
    assert_int_equal(kh_posterior_open(&broken, run_dir, &err), KH_EFORMAT);
    assert_says(&err, "number 3 of the mlp is not finite");
    kh_posterior_free(p);
}

static void patience_ends_it(void **state) {
    (void)state;
    kh_tune_opts o = options();
    kh_posterior *p = tune_with("prompt-tuning", SET("epochs=1000", "lr=1e-12", "patience=2"), &o);
    assert_non_null(strstr(p->stopped, "dev was not better for 2 looks"));
    kh_posterior_free(p);
    p = tune_with("prompt-tuning", SET("epochs=1", "patience=9"), &o);
    assert_string_equal(p->stopped, "all 1 epochs are done");
    kh_posterior_free(p);
}

static void assert_refused(const char *method, kh_plm *box, const kh_task *which,
    const kh_tune_opts *o, int code, const char *says) {
    kh_posterior *p;
    kh_err err;
    assert_int_equal(kh_tune(&p, method, SET("epochs=1"), box, which, train, dev, o, &err), code);
    assert_null(p);
    assert_says(&err, says);
}

static void swap_folders(void) {
    char aside[100];
    snprintf(aside, sizeof aside, "%s-aside", tiny_dir);
    assert_int_equal(rename(tiny_dir, aside), 0);
    assert_int_equal(rename(tiny_other, tiny_dir), 0);
    assert_int_equal(rename(aside, tiny_other), 0);
}

/* The box knows where its weights are; kh_tune_opts.model is a word for the record. */
static void the_model_is_a_word_for_the_record(void **state) {
    (void)state;
    kh_tune_opts o = options();
    o.model = NULL;
    kh_posterior *p = tune_with("prompt-tuning", SET("epochs=1"), &o);
    assert_string_equal(p->model, tiny_dir);
    kh_posterior_free(p);
    o.model = "a name";
    p = tune_with("prompt-tuning", SET("epochs=1"), &o);
    assert_string_equal(p->model, "a name");
    kh_posterior_free(p);
}

static void refusals(void **state) {
    (void)state;
    kh_tune_opts o = options();
    kh_plm *closed = tiny_open(KH_ACCESS_LOGPROBS);
    assert_refused(
        "prompt-tuning", closed, task, &o, KH_EUNSUPPORTED, "needs a box that lets out weights");
    kh_plm_close(closed);
    swap_folders(); /* what the box was opened from has changed since */
    assert_refused("prompt-tuning", plm, task, &o, KH_EMISMATCH, "is not the model that answers");
    swap_folders();
    o.folder = NULL;
    assert_refused("model-tuning", plm, task, &o, KH_EARG, "must be told a folder for it");
    static const char LONG[] = "{\"name\":\"long\",\"template\":\"{text} It was {mask} "
                               ".\",\"labels\":[{\"name\":\"a\",\"words\":[\"lower\"]},"
                               "{\"name\":\"b\",\"words\":[\"unbelievably xyzzy\"]}]}";
    const kh_task *several;
    assert_int_equal(kh_task_parse(&several, LONG, sizeof LONG - 1, "long.json", NULL), 0);
    o = options();
    assert_refused("prompt-tuning", plm, several, &o, KH_EUNSUPPORTED,
        "has several tokens, which methods with gradients do not take");
    kh_task_close(several);
}

extern int openblas_get_num_threads(void);
extern void openblas_set_num_threads(int);

/* The number of OpenBLAS's threads belongs to the host process: methods may hold it, and put it
 * back. */
static void blas_threads_are_put_back(void **state) {
    (void)state;
    static const char *const METHODS[] = { "prompt-tuning", "p-tuning-v2", "feature-mlp",
        "feature-bilstm" };
    int before = openblas_get_num_threads();
    kh_tune_opts o = options();
    for (size_t i = 0; i < sizeof METHODS / sizeof *METHODS; i++) {
        openblas_set_num_threads(2);
        kh_posterior_free(tune_with(METHODS[i], SET("epochs=1"), &o));
        if (openblas_get_num_threads() != 2)
            fail_msg("%s leaves %d threads", METHODS[i], openblas_get_num_threads());
    }
    openblas_set_num_threads(before);
}

static void out_of_memory(void **state) {
    (void)state;
    static const char *const METHODS[] = { "prompt-tuning", "p-tuning-v2", "model-tuning",
        "feature-mlp", "feature-bilstm" };
    kh_tune_opts o = options();
    kh_err err;
    kh_threads_set(1);
    for (int m = 0; m < 5; m++) {
        int rc = KH_ENOMEM;
        for (long n = 1; rc != 0; n += 1 + n / 40) { /* every one at first, then here and there */
            kh_posterior *p;
            kh_alloc_fail_at(n, false);
            rc = kh_tune(&p, METHODS[m], SET("epochs=1"), plm, task, train, dev, &o, &err);
            kh_alloc_fail_at(0, false);
            kh_posterior_free(p);
            assert_true(rc == 0 || rc == KH_ENOMEM);
            assert_true(n < 1000000);
        }
    }
    kh_threads_set(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_learns),
        cmocka_unit_test(same_seed_same_prompt),
        cmocka_unit_test(a_model_learns),
        cmocka_unit_test(a_network_on_states_learns),
        cmocka_unit_test(a_bilstm_on_states_learns),
        cmocka_unit_test(prefixes_learn),
        cmocka_unit_test(prefixes_start_as_next_to_nothing),
        cmocka_unit_test(prefixes_in_the_engine),
        cmocka_unit_test(dropout_and_recomputed_layers),
        cmocka_unit_test(costs_are_told),
        cmocka_unit_test(broken_adapters),
        cmocka_unit_test(patience_ends_it),
        cmocka_unit_test(the_model_is_a_word_for_the_record),
        cmocka_unit_test(refusals),
        cmocka_unit_test(blas_threads_are_put_back),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
