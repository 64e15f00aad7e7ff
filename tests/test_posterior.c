/* test_posterior.c - posteriors in folders, what they refuse to be used with, and the
 * predictions made of them. */
#include "tiny.h"

#include "base/json.h"
#include "posterior/posterior.h"
#include "posterior/predict.h"
#include "prompt/target.h"

#include <math.h>

enum { H = 32, M = 5, D = 12, ROWS = 7 };

static kh_plm *plm;
static const kh_task *task;
static kh_dataset *data;
static char run_dir[80];

static int open_all(void **state) {
    tiny_setup(state);
    plm = tiny_open(KH_ACCESS_LOGPROBS);
    task = tiny_task();
    data = tiny_rows(ROWS, 1, -1);
    snprintf(run_dir, sizeof run_dir, "/tmp/keyhole-test-run-%ld", (long)getpid());
    return 0;
}

static int close_all(void **state) {
    static const char *const FILES[] = { "posterior.json", "posterior.safetensors", NULL };
    tiny_remove(run_dir, FILES);
    kh_dataset_close(data);
    kh_task_close(task);
    kh_plm_close(plm);
    return tiny_teardown(state);
}

/* n samples, each with a projection of its own if `apart`. */
static kh_posterior *soft_posterior(int n, bool apart) {
    kh_posterior *p;
    kh_space space;
    kh_space_opts o = tiny_space();
    kh_err err;
    float z[D];
    kh_rng r = kh_rng_stream(11, KH_RNG_TEST, 0, 0);
    if (kh_posterior_new(&p, "test", plm, task, &err) != 0 ||
        kh_space_init(&space, &o, plm, 1, &err) != 0 ||
        kh_posterior_set_space(p, &space, &err) != 0)
        fail_msg("%s", err.msg);
    kh_space_free(&space);
    for (int s = 0; s < n; s++) {
        for (int i = 0; i < D; i++)
            z[i] = (float)(4 * kh_rng_normal(&r));
        assert_int_equal(
            kh_posterior_add(p, z, apart && s ? UINT64_MAX - (uint64_t)s : 5, &err), 0);
    }
    p->model = kh_posterior_keep(p, "some/model");
    p->options = kh_posterior_keep(p, "{\"pop\":20,\"sigma\":0.10000000000000001}");
    p->stopped = kh_posterior_keep(p, "all done");
    p->seed = UINT64_MAX;
    p->train_queries = 192000;
    p->dev_queries = 480;
    p->dev = 0.8125;
    return p;
}

static kh_posterior *demo_posterior(int n_order, int n_demo) {
    kh_posterior *p;
    kh_dataset *rows = tiny_rows(n_demo, 4, -1);
    assert_int_equal(kh_posterior_new(&p, "icl", plm, task, NULL), 0);
    assert_int_equal(kh_demos_draw(&p->demos, &p->arena, kh_dataset_rows(rows), n_demo, n_demo,
                         n_order, true, 3, NULL),
        0);
    for (int i = 0; i < n_order; i++)
        assert_int_equal(kh_posterior_add(p, NULL, 0, NULL), 0);
    kh_dataset_close(rows);
    return p;
}

static void read_both(kh_buf out[2]) {
    static const char *const FILES[] = { "posterior.json", "posterior.safetensors" };
    for (int i = 0; i < 2; i++) {
        char *path = kh_path_join(run_dir, FILES[i]);
        assert_int_equal(kh_file_read(path, 1 << 20, &out[i], NULL), 0);
        kh_free(path);
    }
}

static void save(const kh_posterior *p) {
    kh_err err;
    if (kh_posterior_save(p, run_dir, &err) != 0)
        fail_msg("%s", err.msg);
}

static kh_posterior *reopen(void) {
    kh_posterior *p;
    kh_err err;
    if (kh_posterior_open(&p, run_dir, &err) != 0)
        fail_msg("%s", err.msg);
    return p;
}

/* --------------------------------------------------------------------------------------- files */

static void check_round_trip(kh_posterior *p) {
    kh_buf first[2], second[2];
    save(p);
    read_both(first);
    kh_posterior *q = reopen();
    assert_int_equal(q->n, p->n);
    assert_memory_equal(q->z, p->z, (size_t)p->n * (size_t)(p->soft ? D : 0) * sizeof *p->z);
    assert_memory_equal(q->weight, p->weight, (size_t)p->n * sizeof *p->weight);
    for (int i = 0; i < p->n && p->soft; i++)
        assert_true(q->projection[i] == p->projection[i]);
    assert_true(
        q->seed == p->seed && q->space.mean == p->space.mean && q->space.std == p->space.std);
    save(q);
    read_both(second);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(first[i].len, second[i].len);
        assert_memory_equal(first[i].data, second[i].data, first[i].len);
        kh_buf_free(&first[i]);
        kh_buf_free(&second[i]);
    }
    kh_posterior_free(q);
    kh_posterior_free(p);
}

static void one_sample_comes_back(void **state) {
    (void)state;
    check_round_trip(soft_posterior(1, false));
}
static void samples_of_one_projection_come_back(void **state) {
    (void)state;
    check_round_trip(soft_posterior(9, false));
}
static void samples_of_own_projections_come_back(void **state) {
    (void)state;
    check_round_trip(soft_posterior(9, true));
}
static void demonstrations_come_back(void **state) {
    (void)state;
    check_round_trip(demo_posterior(3, 6));
}

static void info_says_what_was_saved(void **state) {
    (void)state;
    kh_posterior *p = soft_posterior(3, false);
    save(p);
    kh_posterior *q = reopen();
    kh_posterior_info i = kh_posterior_describe(q);
    assert_string_equal(i.method, "test");
    assert_int_equal(i.access, KH_ACCESS_LOGPROBS);
    assert_int_equal(i.samples, 3);
    assert_int_equal(i.dim, D);
    assert_string_equal(i.task->name, "toy");
    assert_string_equal(i.model, "some/model");
    assert_true(i.seed == UINT64_MAX && i.fingerprint == kh_plm_describe(plm).fingerprint);
    assert_int_equal(i.train_queries, 192000);
    assert_int_equal(i.dev_queries, 480);
    assert_true(i.dev == 0.8125);
    assert_string_equal(i.stopped, "all done");
    assert_true(kh_posterior_exists(run_dir) && !kh_posterior_exists(tiny_dir));
    kh_posterior_free(p);
    kh_posterior_free(q);
}

static void a_folder_without_posterior_is_refused(void **state) {
    (void)state;
    kh_posterior *p;
    kh_err err;
    assert_int_equal(kh_posterior_open(&p, tiny_dir, &err), KH_EMISSING);
    assert_says(&err, "no posterior.json in it; \"keyhole tune --out");
    assert_null(p);
}

static void halves_of_two_posteriors_are_noticed(void **state) {
    (void)state;
    kh_posterior *p = soft_posterior(4, false);
    kh_buf files[2];
    kh_err err;
    save(p);
    read_both(files);
    p->z[3] += 1;
    save(p);
    char *path = kh_path_join(run_dir, "posterior.json");
    assert_int_equal(kh_file_write(path, files[0].data, files[0].len, NULL), 0);
    kh_posterior_free(p);
    assert_int_equal(kh_posterior_open(&p, run_dir, &err), KH_EMISMATCH);
    assert_says(&err, "does not belong to the posterior.json beside it");
    kh_buf_free(&files[0]);
    kh_buf_free(&files[1]);
    kh_free(path);
}

static void broken_samples_are_refused(void **state) {
    (void)state;
    static const struct {
        float z, weight;
        const char *says;
    } all[] = { { NAN, 0.25f, "is not finite" }, { 0, -1, "the weight of sample 2 is -1" },
        { 0, 0.5f, "the weights add up to 1.25, expected 1" } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        kh_posterior *p = soft_posterior(4, false), *q;
        kh_err err;
        p->z[5] = all[i].z;
        p->weight[2] = all[i].weight;
        save(p);
        kh_posterior_free(p);
        assert_int_equal(kh_posterior_open(&q, run_dir, &err), KH_EFORMAT);
        assert_says(&err, all[i].says);
    }
}

/* Files of the right form with one word changed; frees the posterior. */
typedef struct change {
    const char *find, *put, *says;
} change;

static void changes_are_refused(kh_posterior *p, const change *all, size_t n) {
    kh_posterior *q;
    kh_buf files[2];
    kh_err err;
    save(p);
    read_both(files);
    char *path = kh_path_join(run_dir, "posterior.json");
    for (size_t i = 0; i < n; i++) {
        const char *at = strstr(files[0].data, all[i].find);
        if (!at)
            fail_msg("the file does not hold %s", all[i].find);
        kh_buf b = kh_buf_init(KH_BUF_MAX);
        kh_buf_bytes(&b, files[0].data, (size_t)(at - files[0].data));
        kh_buf_text(&b, all[i].put);
        kh_buf_text(&b, at + strlen(all[i].find));
        assert_int_equal(kh_file_write(path, b.data, b.len, NULL), 0);
        assert_true(kh_posterior_open(&q, run_dir, &err) < 0);
        assert_null(q);
        assert_says(&err, all[i].says);
        kh_buf_free(&b);
    }
    kh_buf_free(&files[0]);
    kh_buf_free(&files[1]);
    kh_free(path);
    kh_posterior_free(p);
}

static void hostile_json_is_refused(void **state) {
    (void)state;
    static const change all[] = {
        { "\"format\": 1", "\"format\": 5", "written in format 5 by a later keyhole" },
        { "\"samples\": 4", "\"template\": {\"share\": 1.5}, \"samples\": 4",
            "\"share\" of \"template\" is 1.5, expected more than 0 and less than 1" },
        { "\"samples\": 4", "\"template\": {}, \"samples\": 4", "\"share\" is missing" },
        { "\"samples\": 4", "\"template\": {\"share\": 0.5, \"log_prior\": [0]}, \"samples\": 4",
            "of the template must be 2 logarithms of probabilities that add up to one" },
        { "\"samples\": 4", "\"classes\": {\"share\": [0.5]}, \"samples\": 4",
            "\"share\" of \"classes\" must be 2 positive numbers that add up to one" },
        { "\"samples\": 4", "\"classes\": {\"prior\": [1, 0]}, \"samples\": 4",
            "\"prior\" of \"classes\" must be 2 positive numbers that add up to one" },
        { "\"samples\": 4", "\"classes\": {\"prior\": [0.5, 0.6]}, \"samples\": 4",
            "\"prior\" of \"classes\" must be 2 positive numbers that add up to one" },
        { "\"samples\": 4",
            "\"features\": {\"model\": \"x\", \"fingerprint\": \"1\", \"rows\": 3, \"size\": "
            "9}, "
            "\"samples\": 4",
            "no array \"features\"" },
        { "\"inject\": \"post-ln-add\"", "\"inject\": \"post-ln-add\", \"placement\": \"above\"",
            "\"above\" is no place for the slots of a prompt" },
        { "\"method\": \"test\"", "\"method\": null", "\"method\" is missing" },
        { "\"access\": \"logprobs\"", "\"access\": \"weight\"",
            "\"access\" must be labels, logprobs or weights" },
        { "\"access\": \"logprobs\"", "\"access\": \"weights\"",
            "must be weights if there is a \"graft\", and only then" },
        { "\"samples\": 4", "\"samples\": 0", "samples" },
        { "\"samples\": 4", "\"samples\": 5",
            "\"weights\" is F32 of shape [4], expected F32 of shape [5]" },
        { "\"dim\": 12", "\"dim\": 13",
            "\"z\" is F32 of shape [4, 12], expected F32 of shape [4, 13]" },
        { "\"dim\": 12", "\"dim\": 161", "dimension 161 is larger than the prompt of 5 x 32" },
        { "\"dim\": 12", "\"dim\": 1e99", "dim" },
        { "\"slots\": 5", "\"slots\": 6", "\"p0\" has 5 ids for 6 slots" },
        { "\"slots\": 5", "\"slots\": -5", "slots" },
        { "\"p0\": [", "\"p0\": [-", "must be a whole number from 0" },
        { "\"inject\": \"post-ln-add\"", "\"inject\": \"none\"",
            "is no way for a soft prompt to enter a model" },
        { "\"inject\": \"post-ln-add\"", "\"inject\": \"sideways\"",
            "is no way for a soft prompt to enter a model" },
        { "\"entries\": \"normal\"", "\"entries\": \"cubic\"", "unknown projection \"cubic\"" },
        { "philox4x32-10/row-streams", "dice", "the projection was drawn by \"dice\"" },
        { "\"seeds\": [5]", "\"seeds\": [5,6]", "2 seeds of projections for 4 samples" },
        { "\"seeds\": [5]", "\"seeds\": 5", "\"seeds\" must be an array" },
        { "\"seeds\": [5]", "\"seeds\": [-5]", "\"seeds\" must be a whole number from 0" },
        { "\"samples_hash\": \"", "\"samples_hash\": \"xy", "hexadecimal" },
        { "\"fingerprint\": \"", "\"fingerprint\": \"123456789", "hexadecimal" },
        { "\"options\": {", "\"options\": [{", "not valid JSON" },
        { "\"seed\": \"18446744073709551615\"", "\"seed\": \"18446744073709551616\"",
            "\"seed\" must be a whole number" },
        { "\"model\": {", "\"motel\": {", "\"model\" must be an object" },
        { "\"queries\": {\"train\": 192000", "\"queries\": {\"train\": -1",
            "\"train\" must be a whole number" },
        { "\"words\": [\"lower\"]", "\"words\": []", "posterior.json" },
        { "{\n  \"format\"", "[{\n  \"format\"", "not valid JSON" },
    };
    changes_are_refused(soft_posterior(4, false), all, sizeof all / sizeof all[0]);
}

static void hostile_demonstrations_are_refused(void **state) {
    (void)state;
    static const change all[] = {
        { "\"demonstrations\": {", "\"demonstrations\": [], \"x\": {",
            "\"demonstrations\" must be an object" },
        { "\"orders\": [", "\"orders\": [[0], ", "\"orders\" must be an array of at most 2" },
        { "\"orders\": [", "\"orders\": [], \"x\": [",
            "\"orders\" must hold an array for each of 2 samples" },
        { "\"orders\": [", "\"orders\": [1, 2], \"x\": [",
            "\"orders\" must hold an array for each of 2 samples" },
        { "\"orders\": [", "\"orders\": [[0, 1], [0]], \"x\": [",
            "order 1 of the demonstrations must be an array of 2 rows, as the first is" },
        { "\"orders\": [", "\"orders\": [[0], 0], \"x\": [",
            "order 1 of the demonstrations must be an array of 1 rows, as the first is" },
        { "\"orders\": [", "\"orders\": [[0], [3]], \"x\": [", "\"orders\"" },
        { "\"rows\": [", "\"rows\": [3, ", "a demonstration must be an object" },
        { "\"label\": ", "\"label\": 9", "\"label\"" },
        { "\"text\": ", "\"words\": ", "a demonstration must have \"text\" and no \"text_b\"" },
        { "\"text\": ", "\"text_b\": \"x\", \"text\": ",
            "a demonstration must have \"text\" and no \"text_b\"" },
        { "\"samples\": 2", "\"texts\": {}, \"samples\": 2",
            "\"texts\" cannot stand beside \"prompt\" or \"demonstrations\"" },
    };
    changes_are_refused(demo_posterior(2, 3), all, sizeof all / sizeof all[0]);
}

/* -------------------------------------------------------------------------------- text prompts */

static const char PAIR_TASK[] =
    "{\"name\":\"same\",\"template\":\"{text_a} {text_b} ? {mask} .\",\"labels\":[{\"name\":"
    "\"no\",\"words\":[\"lower\"]},{\"name\":\"yes\",\"words\":[\"better\"]}]}";

/* Two prompts; the second shows both rows. */
static kh_posterior *text_posterior(const kh_task *t) {
    kh_posterior *p;
    static const char *const BAD[] = { "lower", "small" }, *const GOOD[] = { "green" };
    const kh_label own[] = { { t->label[0].name, BAD, 2 }, { t->label[1].name, GOOD, 1 } };
    kh_row row[] = { { .a = "one", .n_a = 3, .label = 0 }, { .a = "two", .n_a = 3, .label = 1 } };
    for (int i = 0; i < 2 && t->pair; i++) {
        row[i].b = "second";
        row[i].n_b = 6;
    }
    const char *template = t->pair ? "{text_a} {text_b} Is {mask} ." : "{text} Is {mask} .";
    assert_int_equal(kh_posterior_new(&p, "text-search", plm, t, NULL), 0);
    assert_int_equal(kh_text_rows_copy(&p->texts.row, &p->arena, row, 2, 0, NULL), 0);
    p->texts.n_row = 2;
    for (int i = 0; i < 2; i++) {
        kh_text_prompt x = { .instruction = i ? "Say it." : "",
            .template = template,
            .label = i ? own : t->label,
            .demo = (const int[]){ 1, 0 },
            .n_demo = 2 * i };
        assert_int_equal(kh_posterior_add_text(p, &x, NULL), 0);
    }
    return p;
}

static void text_prompts_come_back(void **state) {
    (void)state;
    const kh_task *pair;
    assert_int_equal(kh_task_parse(&pair, PAIR_TASK, sizeof PAIR_TASK - 1, "pair.json", NULL), 0);
    for (int i = 0; i < 2; i++) {
        kh_posterior *p = text_posterior(i ? pair : task), *q;
        save(p);
        q = reopen();
        const kh_text_prompt *x = &q->texts.prompt[1];
        assert_int_equal(q->texts.n, 2);
        assert_string_equal(q->texts.prompt[0].instruction, "");
        assert_string_equal(x->instruction, "Say it.");
        assert_string_equal(x->template, p->texts.prompt[1].template);
        assert_int_equal(x->label[0].n_word, 2);
        assert_string_equal(x->label[0].word[1], "small");
        assert_true(x->n_demo == 2 && x->demo[0] == 1 && x->demo[1] == 0);
        assert_true(q->texts.n_row == 2 && q->texts.row[1].label == 1);
        assert_int_equal(q->texts.row[0].n_b, i ? 6 : 0);
        kh_posterior_free(q);
        check_round_trip(p);
    }
    kh_task_close(pair);
}

/* For people: several words of a label stand beside each other, and second texts have a place. */
static void text_prompts_are_shown_to_people(void **state) {
    (void)state;
    const kh_task *pair;
    char *text;
    assert_int_equal(kh_task_parse(&pair, PAIR_TASK, sizeof PAIR_TASK - 1, "pair.json", NULL), 0);
    kh_posterior *p = text_posterior(pair);
    assert_int_equal(kh_posterior_text(p, 1, &text, NULL), 0);
    assert_string_equal(text,
        "Say it.\ntwo second Is green .\none second Is lower .\n[TEXT] [SECOND TEXT] Is [ANSWER] "
        ".\n"
        "[ANSWER] is one of \"lower\" / \"small\" (no), or \"green\" (yes)\n");
    kh_text_free(text);
    kh_posterior_free(p);
    kh_task_close(pair);
}

static void hostile_text_prompts_are_refused(void **state) {
    (void)state;
    static const change all[] = {
        { "\"texts\": {", "\"texts\": [], \"x\": {", "\"texts\" must be an object" },
        { "\"rows\": [", "\"rows\": 1, \"x\": [", "\"rows\" must be an array" },
        { "\"prompts\": [", "\"prompts\": [], \"x\": [",
            "\"prompts\" has 0 text prompts for 2 samples" },
        { "\"prompts\": [", "\"prompts\": [{}, ", "\"prompts\" must be an array of at most 2" },
        { "\"label\": ", "\"label\": 9", "\"label\"" },
        { "\"text\": ", "\"text_b\": \"x\", \"text\": ",
            "a row that is shown must have \"text\" and no \"text_b\"" },
        { "\"instruction\": ", "\"instructions\": ", "\"instruction\"" },
        { "\"words\": [", "\"words\": [[\"a\"], ", "\"words\" must be an array of at most 2" },
        { "\"words\": [", "\"words\": [[\"a\"]], \"x\": [",
            "\"words\" of a prompt must be lists of words, one a label" },
        { "\"words\": [", "\"words\": [[], [\"a\"]], \"x\": [",
            "\"words\" of a prompt must be lists of words, one a label" },
        { "\"words\": [", "\"words\": [\"a\", [\"a\"]], \"x\": [",
            "\"words\" of a prompt must be lists of words, one a label" },
        { "\"words\": [", "\"words\": [[\"\"], [\"a\"]], \"x\": [",
            "a label word of a prompt is empty or no string" },
        { "\"words\": [", "\"words\": [[\"a\"], [3]], \"x\": [",
            "a label word of a prompt is empty or no string" },
        { "{text} Is {mask} .", "{text} Is .", "holds no {mask}" },
        { "{text} Is {mask} .", "{text_a} {text_b} {mask}", "must hold {text} and no {prompt}" },
        { "{text} Is {mask} .", "{prompt} {text} {mask}", "must hold {text} and no {prompt}" },
        { "\"demonstrations\": [", "\"demonstrations\": [2", "\"demonstrations\"" },
        { "\"demonstrations\": [", "\"demonstrations\": 0, \"x\": [", "\"demonstrations\"" },
    };
    changes_are_refused(text_posterior(task), all, sizeof all / sizeof all[0]);
    const kh_task *pair;
    assert_int_equal(kh_task_parse(&pair, PAIR_TASK, sizeof PAIR_TASK - 1, "pair.json", NULL), 0);
    static const change of_pairs[] = {
        { "\"text_b\": ", "\"other\": ", "must have \"text\" and \"text_b\"" },
        { "{text_a} {text_b} Is", "{text} Is", "must hold {text_a} and {text_b} and no {prompt}" },
    };
    changes_are_refused(text_posterior(pair), of_pairs, 2);
    kh_task_close(pair);
}

/* ------------------------------------------------------------------------- other model or task */

static void expect_mismatch(
    const kh_posterior *p, kh_plm *box, const kh_task *t, const char *says) {
    kh_predictor *predictor;
    kh_err err;
    assert_int_equal(kh_predictor_new(&predictor, p, box, t, &err), KH_EMISMATCH);
    assert_null(predictor);
    assert_says(&err, says);
}

static void another_model_is_refused(void **state) {
    (void)state;
    kh_posterior *p = soft_posterior(1, false);
    kh_plm *box;
    assert_int_equal(
        kh_plm_open(&box, tiny_other, &(kh_plm_opts){ .access = KH_ACCESS_LOGPROBS }, NULL), 0);
    expect_mismatch(
        p, box, NULL, "the posterior was made with other weights (some/model): fingerprint ");
    kh_plm_close(box);
    p->tokenizer ^= 1;
    expect_mismatch(p, plm, NULL, "the posterior was made with another tokenizer");
    p->space.hidden = 64;
    expect_mismatch(p, plm, NULL, "its prompts have 64 numbers a slot, this model has 32");
    kh_posterior_free(p);
}

static void another_task_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *json, *says;
    } all[] = {
        { "{\"name\":\"x\",\"template\":\"{text} It is {mask} "
          ".\",\"labels\":[{\"name\":\"bad\",\"words\":[\"lower\"]},{\"name\":\"good\",\"words\":["
          "\"better\"]}]}",
            "with the template \"{prompt} . {text} It was {mask} .\"; that of task \"x\" is "
            "\"{prompt} . {text} It is {mask} .\"" },
        { "{\"name\":\"x\",\"template\":\"{text} It was {mask} "
          ".\",\"labels\":[{\"name\":\"bad\",\"words\":[\"lower\"]},{\"name\":\"fine\",\"words\":["
          "\"better\"]}]}",
            "whose label 1 is \"good\"; in task \"x\" it is \"fine\"" },
        { "{\"name\":\"x\",\"template\":\"{text} It was {mask} "
          ".\",\"labels\":[{\"name\":\"bad\",\"words\":[\"small\"]},{\"name\":\"good\",\"words\":["
          "\"better\"]}]}",
            "whose label \"bad\" has the words \"lower\"; in task \"x\" they are \"small\"" },
        { "{\"name\":\"x\",\"template\":\"{text} It was {mask} "
          ".\",\"labels\":[{\"name\":\"bad\",\"words\":[\"lower\"]},{\"name\":\"good\",\"words\":["
          "\"better\"]},{\"name\":\"odd\","
          "\"words\":[\"small\"]}]}",
            "task \"toy\" with 2 labels; task \"x\" has 3" },
    };
    kh_posterior *p = soft_posterior(1, false);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const kh_task *t;
        assert_int_equal(kh_task_parse(&t, all[i].json, strlen(all[i].json), "x.json", NULL), 0);
        expect_mismatch(p, plm, t, all[i].says);
        kh_task_close(t);
    }
    kh_posterior_free(p);
}

static void probabilities_need_a_box_that_gives_them(void **state) {
    (void)state;
    kh_posterior *p = soft_posterior(1, false);
    kh_plm *box = tiny_open(KH_ACCESS_LABELS);
    kh_predictor *predictor;
    kh_err err;
    assert_int_equal(kh_predictor_new(&predictor, p, box, NULL, &err), KH_EUNSUPPORTED);
    assert_says(&err, "this needs logprobs");
    kh_plm_close(box);
    kh_posterior_free(p);
}

/* --------------------------------------------------------------------------------- predictions */

static void predict(const kh_posterior *p, kh_plm *box, const kh_row *rows, int n, double *out) {
    kh_predictor *predictor;
    kh_err err;
    if (kh_predictor_new(&predictor, p, box, NULL, &err) != 0 ||
        kh_predictor_run(predictor, rows, n, out, &err) != 0)
        fail_msg("%s", err.msg);
    kh_predictor_free(predictor);
}

/* Log-probabilities of sample s, straight from the box. */
static void ask(const kh_posterior *p, int s, float *logprob) {
    kh_subspace *space;
    kh_words *words;
    kh_batch *batch;
    assert_int_equal(kh_subspace_new(&space, &p->space, plm, p->projection[s], NULL), 0);
    assert_int_equal(kh_words_new(&words, task, kh_plm_tokenizer(plm), false, NULL), 0);
    kh_batch_opts o = kh_space_batch(&p->space, plm, false);
    assert_int_equal(kh_batch_encode(&batch, kh_plm_tokenizer(plm), task, words,
                         kh_dataset_rows(data), ROWS, &o, NULL),
        0);
    kh_target t = { kh_plm_scorer(plm, NULL), NULL, space, batch, words };
    assert_int_equal(kh_target_score(&t, p->z + (size_t)s * D, 1, logprob, NULL), 0);
    kh_batch_free(batch);
    kh_words_free(words);
    kh_subspace_free(space);
}

static void one_sample_predicts_its_softmax(void **state) {
    (void)state;
    kh_posterior *p = soft_posterior(1, false);
    double out[ROWS * 2];
    float logprob[ROWS * 2];
    predict(p, plm, kh_dataset_rows(data), ROWS, out);
    ask(p, 0, logprob);
    for (int i = 0; i < ROWS * 2;
         i++) /* the box rounds log-probabilities to f32; the predictor makes them add up to one */
        assert_true(fabs(out[i] - exp(logprob[i])) < 2e-7);
    kh_posterior_free(p);
}

static void samples_are_averaged_by_weight(void **state) {
    (void)state;
    enum { N = 40 }; /* more than are asked at once */
    kh_posterior *p = soft_posterior(N, true);
    double out[ROWS * 2], want[ROWS * 2] = { 0 };
    float logprob[ROWS * 2];
    for (int s = 0; s < N; s++)
        p->weight[s] = (float)(2.0 * (s + 1) / (N * (N + 1)));
    predict(p, plm, kh_dataset_rows(data), ROWS, out);
    for (int s = 0; s < N; s++) {
        ask(p, s, logprob);
        for (int i = 0; i < ROWS * 2; i++)
            want[i] += p->weight[s] * exp(logprob[i]);
    }
    for (int i = 0; i < ROWS * 2; i++)
        assert_true(fabs(out[i] - want[i]) < 1e-6);
    kh_posterior_free(p);
}

static void explain(const kh_posterior *p, kh_plm *box, const kh_row *rows, int n, double *energy) {
    kh_predictor *predictor;
    kh_err err;
    double *q = malloc((size_t)n * 2 * sizeof *q), *same = malloc((size_t)n * 2 * sizeof *same);
    if (kh_predictor_new(&predictor, p, box, NULL, &err) != 0 ||
        kh_predictor_explain(
            predictor, rows, n, &(kh_explained){ .p = q, .energy = energy }, &err) != 0 ||
        kh_predictor_run(predictor, rows, n, same, &err) != 0)
        fail_msg("%s", err.msg);
    assert_memory_equal(q, same, (size_t)n * 2 * sizeof *q); /* probabilities do not change by it */
    for (int i = 0; i < n; i++)
        assert_true(isnan(energy[i]) != kh_predictor_energy(predictor));
    kh_predictor_free(predictor);
    free(same);
    free(q);
}

static void energies_are_averaged_by_weight(void **state) {
    (void)state;
    enum { N = 40 }; /* more than are asked at once */
    kh_posterior *p = soft_posterior(N, false);
    double out[ROWS], want[ROWS] = { 0 };
    float logprob[ROWS * 2], energy[ROWS],
        *prompt = malloc((size_t)p->space.slots * (size_t)p->space.hidden * sizeof *prompt);
    kh_subspace *space;
    kh_words *words;
    kh_batch *batch;
    kh_batch_opts o = kh_space_batch(&p->space, plm, false);
    for (int s = 0; s < N; s++)
        p->weight[s] = (float)(2.0 * (s + 1) / (N * (N + 1)));
    assert_int_equal(kh_subspace_new(&space, &p->space, plm, p->projection[0], NULL), 0);
    assert_int_equal(kh_words_new(&words, task, kh_plm_tokenizer(plm), false, NULL), 0);
    assert_int_equal(kh_batch_encode(&batch, kh_plm_tokenizer(plm), task, words,
                         kh_dataset_rows(data), ROWS, &o, NULL),
        0);
    for (int s = 0; s < N; s++) {
        kh_question q = { batch, words, p->space.inject, prompt, 1 };
        assert_int_equal(kh_subspace_prompts(space, p->z + (size_t)s * D, 1, prompt, NULL), 0);
        assert_int_equal(
            kh_plm_score_energy(kh_plm_scorer(plm, NULL), &q, logprob, energy, NULL), 0);
        for (int i = 0; i < ROWS; i++)
            want[i] += (double)p->weight[s] * (double)energy[i];
    }
    explain(p, plm, kh_dataset_rows(data), ROWS, out);
    for (int i = 0; i < ROWS; i++)
        assert_true(fabs(out[i] - want[i]) < 1e-9);
    kh_batch_free(batch);
    kh_words_free(words);
    kh_subspace_free(space);
    free(prompt);
    kh_posterior_free(p);
}

static void energies_do_not_depend_on_neighbours_and_votes_have_none(void **state) {
    (void)state;
    enum { N = 150 };
    kh_dataset *many = tiny_rows(N, 5, -1);
    const kh_row *rows = kh_dataset_rows(many);
    for (int kind = 0; kind < 2; kind++) {
        kh_posterior *p = kind ? demo_posterior(2, 6) : soft_posterior(3, false);
        double all[N], one;
        explain(p, plm, rows, N, all);
        for (int i = 0; i < N; i += 29) {
            explain(p, plm, rows + i, 1, &one);
            assert_memory_equal(&one, all + i, sizeof one);
        }
        assert_true(all[0] != all[1] && isfinite(all[0]));
        p->access = KH_ACCESS_LABELS;
        explain(p, plm, rows, N, all);
        assert_true(isnan(all[0]) && isnan(all[N - 1]));
        kh_posterior_free(p);
    }
    kh_dataset_close(many);
}

static void labels_are_votes(void **state) {
    (void)state;
    enum { N = 8 };
    kh_posterior *p = soft_posterior(N, false);
    kh_plm *box = tiny_open(KH_ACCESS_LABELS);
    double out[ROWS * 2], want[ROWS * 2] = { 0 };
    float logprob[ROWS * 2];
    p->access = KH_ACCESS_LABELS;
    predict(p, box, kh_dataset_rows(data), ROWS, out);
    bool divided = false;
    for (int s = 0; s < N; s++) {
        ask(p, s, logprob);
        for (int i = 0; i < ROWS; i++)
            want[2 * i + (logprob[2 * i + 1] > logprob[2 * i])] += 1.0 / N;
    }
    for (int i = 0; i < ROWS * 2; i++) {
        assert_true(out[i] == want[i]);
        divided |= out[i] > 0 && out[i] < 1;
    }
    assert_true(divided);
    kh_plm_close(box);
    kh_posterior_free(p);
}

static void rows_do_not_depend_on_their_neighbours(void **state) {
    (void)state;
    enum { N = 150 }; /* more than are asked at once */
    kh_dataset *many = tiny_rows(N, 5, -1);
    for (int kind = 0; kind < 2; kind++) {
        kh_posterior *p = kind ? demo_posterior(2, 6) : soft_posterior(3, false);
        double all[N * 2], one[2];
        predict(p, plm, kh_dataset_rows(many), N, all);
        for (int i = 0; i < N; i += 29) {
            predict(p, plm, kh_dataset_rows(many) + i, 1, one);
            assert_memory_equal(one, all + 2 * i, sizeof one);
        }
        kh_posterior_free(p);
    }
    kh_dataset_close(many);
}

/* The template alone: a posterior without z and demonstrations. */
static void a_manual_prompt_predicts_the_template(void **state) {
    (void)state;
    kh_posterior *p;
    kh_words *words;
    kh_batch *batch;
    double out[ROWS * 2];
    float logprob[ROWS * 2];
    assert_int_equal(kh_posterior_new(&p, "manual", plm, task, NULL), 0);
    assert_int_equal(kh_posterior_add(p, NULL, 0, NULL), 0);
    predict(p, plm, kh_dataset_rows(data), ROWS, out);
    assert_int_equal(kh_words_new(&words, task, kh_plm_tokenizer(plm), false, NULL), 0);
    assert_int_equal(kh_batch_encode(&batch, kh_plm_tokenizer(plm), task, words,
                         kh_dataset_rows(data), ROWS, &(kh_batch_opts){ .max_len = 128 }, NULL),
        0);
    assert_int_equal(kh_plm_score(kh_plm_scorer(plm, NULL),
                         &(kh_question){ batch, words, KH_INJECT_NONE, NULL, 1 }, logprob, NULL),
        0);
    for (int i = 0; i < ROWS * 2; i++)
        assert_true(fabs(out[i] - exp(logprob[i])) < 2e-7);
    kh_batch_free(batch);
    kh_words_free(words);
    kh_posterior_free(p);
}

/* Each row has as many demonstrations before it as fit into the model's 128 tokens, and not one
 * more. */
static void as_many_demonstrations_as_fit(void **state) {
    (void)state;
    kh_posterior *p = demo_posterior(1, 30);
    static const char LONG[] =
        "the boats were green and the wall was small because they wrote about the harbour light "
        "every evening when the "
        "daughter of the engineer would come from the north with some news about the machine";
    enum { N = 14 };
    kh_row rows[N] = { kh_dataset_rows(data)[0], { LONG, NULL, sizeof LONG - 1, 0, -1, 0 },
        { LONG, NULL, 60, 0, -1, 0 } };
    for (int i = 3; i < N;
         i++) /* rows of many lengths, whose first word is cut otherwise at the start of a text */
        rows[i] = (kh_row){ LONG + 4, NULL, (size_t)(5 * i), 0, -1, 0 };
    double out[N * 2];
    predict(p, plm, rows, N, out);
    kh_words *words;
    assert_int_equal(kh_words_new(&words, task, kh_plm_tokenizer(plm), false, NULL), 0);
    int used[N];
    for (int i = 0; i < N; i++) {
        float logprob[2] = { 0 };
        for (used[i] = 30; used[i] >= 0;
             used[i]--) { /* the plain way: take demonstrations away until it fits */
            kh_buf text = kh_buf_init(KH_BUF_MAX);
            kh_task shown = *task;
            kh_batch *batch;
            kh_demos_template(&p->demos, task, false, 0, used[i], task->plain, &text);
            shown.plain = text.data;
            int rc = kh_batch_encode(&batch, kh_plm_tokenizer(plm), &shown, words, &rows[i], 1,
                &(kh_batch_opts){ .max_len = 128, .paper_exact = true }, NULL);
            assert_true(rc == 0 || rc == KH_ELIMIT); /* the latter if not even an empty text fits */
            bool fits = rc == 0 && batch->n_row == 1;
            if (fits)
                assert_int_equal(
                    kh_plm_score(kh_plm_scorer(plm, NULL),
                        &(kh_question){ batch, words, KH_INJECT_NONE, NULL, 1 }, logprob, NULL),
                    0);
            kh_batch_free(batch);
            kh_buf_free(&text);
            if (fits)
                break;
        }
        assert_true(fabs(out[2 * i] - exp(logprob[0])) < 2e-7);
    }
    if (!(used[0] >= used[2] && used[2] > used[1] && used[1] > 0 && used[0] < 30))
        fail_msg("demonstrations used: %d, %d, %d", used[0], used[1], used[2]);
    kh_words_free(words);
    kh_posterior_free(p);
}

static void texts_longer_than_the_model_are_cut(void **state) {
    (void)state;
    char text[4000];
    memset(text, 0, sizeof text);
    for (int i = 0; i < 600; i++)
        strcat(text, "green ");
    kh_row row = { text, NULL, strlen(text), 0, -1, 0 };
    for (int kind = 0; kind < 2; kind++) {
        kh_posterior *p = kind ? demo_posterior(1, 6) : soft_posterior(1, false);
        double out[2];
        predict(p, plm, &row, 1, out);
        assert_true(fabs(out[0] + out[1] - 1) < 1e-12);
        kh_posterior_free(p);
    }
}

static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    kh_threads_set(1);
    for (int kind = 0; kind < 2; kind++) {
        kh_posterior *made = kind ? demo_posterior(2, 4) : soft_posterior(3, true);
        save(made);
        long n = 1;
        for (bool done = false; !done; n++) {
            kh_posterior *p = NULL;
            kh_predictor *predictor = NULL;
            kh_err err = { 0 };
            double out[4];
            kh_alloc_fail_at(n, false);
            int rc = kh_posterior_open(&p, run_dir, &err);
            if (rc == 0)
                rc = kh_predictor_new(&predictor, p, plm, NULL, &err);
            if (rc == 0)
                rc = kh_predictor_run(predictor, kh_dataset_rows(data), 2, out, &err);
            if (rc == 0)
                rc = kh_posterior_save(p, run_dir, &err);
            done = kh_alloc_count() < n;
            kh_alloc_fail_at(0, false);
            if (rc != (done ? 0 : KH_ENOMEM))
                fail_msg("allocation %ld: %d, %s", n, rc, err.msg);
            kh_predictor_free(predictor);
            kh_posterior_free(p);
        }
        assert_true(n > 50);
        kh_posterior_free(made);
    }
    kh_threads_set(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_sample_comes_back),
        cmocka_unit_test(samples_of_one_projection_come_back),
        cmocka_unit_test(samples_of_own_projections_come_back),
        cmocka_unit_test(demonstrations_come_back),
        cmocka_unit_test(info_says_what_was_saved),
        cmocka_unit_test(a_folder_without_posterior_is_refused),
        cmocka_unit_test(halves_of_two_posteriors_are_noticed),
        cmocka_unit_test(broken_samples_are_refused),
        cmocka_unit_test(hostile_json_is_refused),
        cmocka_unit_test(hostile_demonstrations_are_refused),
        cmocka_unit_test(text_prompts_come_back),
        cmocka_unit_test(text_prompts_are_shown_to_people),
        cmocka_unit_test(hostile_text_prompts_are_refused),
        cmocka_unit_test(another_model_is_refused),
        cmocka_unit_test(another_task_is_refused),
        cmocka_unit_test(probabilities_need_a_box_that_gives_them),
        cmocka_unit_test(one_sample_predicts_its_softmax),
        cmocka_unit_test(samples_are_averaged_by_weight),
        cmocka_unit_test(energies_are_averaged_by_weight),
        cmocka_unit_test(energies_do_not_depend_on_neighbours_and_votes_have_none),
        cmocka_unit_test(labels_are_votes),
        cmocka_unit_test(rows_do_not_depend_on_their_neighbours),
        cmocka_unit_test(a_manual_prompt_predicts_the_template),
        cmocka_unit_test(as_many_demonstrations_as_fit),
        cmocka_unit_test(texts_longer_than_the_model_are_cut),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests_name("posterior", tests, open_all, close_all);
}
