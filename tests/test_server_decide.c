/* test_server_decide.c - closed questions by two formats: a tuned classifier answers what its
 * labels answer with the predictor's own numbers, and refuses the rest; an untuned model scores
 * options as words; what a server does not let out it does not make up. */
#include "desk.h"

#include <math.h>

#ifdef KH_WITH_MHD

static json_t *post(const site *s, const char *path, const char *body, int status) {
    int got = ask(s, "POST", path, "", body, answer, sizeof answer);
    if (got != status)
        fail_msg("%s: HTTP %d, expected %d: %s", body, got, status, answer);
    return body_of(answer);
}

static double number_at(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    if (!json_is_number(v))
        fail_msg("\"%s\" is not a number in %s", key, answer);
    return json_number_value(v);
}

static const char *string_at(const json_t *object, const char *key) {
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "(none)";
}

#define TEXT "the boats were green"

static void distribution(desk *d, double p[2]) {
    kh_row row = { .a = TEXT, .n_a = strlen(TEXT), .label = -1 };
    kh_predictor *predictor;
    assert_int_equal(kh_predictor_new(&predictor, d->posterior, d->plm, NULL, NULL), 0);
    assert_int_equal(kh_predictor_run(predictor, &row, 1, p, NULL), 0);
    kh_predictor_free(predictor);
}

static void a_classifier_answers_decisions(void **state) {
    (void)state;
    desk d = desk_open(NULL, true);
    double p[2];
    distribution(&d, p);
    json_t *root = post(&d.s, "/v1/decisions",
        "{\"model\":\"desk\",\"input\":[{\"role\":\"developer\",\"content\":\"be brief\"},"
        "{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"" TEXT "\"}]}],"
        "\"questions\":["
        "{\"type\":\"choice\",\"name\":\"c\",\"instructions\":\"?\",\"choices\":[{\"value\":"
        "\"good\"},"
        "{\"value\":\"bad\",\"description\":\"not good\"}]},"
        "{\"type\":\"choice\",\"instructions\":\"?\"},"
        "{\"type\":\"predicate\",\"name\":\"p\",\"instructions\":\"Is it Good?\"},"
        "{\"type\":\"score\",\"name\":\"s\",\"instructions\":\"?\",\"levels\":[{\"label\":\"bad\"},"
        "{\"label\":\"good\"}]},"
        "{\"type\":\"choice\",\"name\":\"r\",\"instructions\":\"?\",\"choices\":[{\"value\":true},"
        "{\"value\":\"true\"}]},"
        "{\"type\":\"predicate\",\"name\":\"x\",\"instructions\":\"good or bad?\"}]}",
        200);
    const json_t *answers = json_object_get(root, "answers"), *a = json_array_get(answers, 0),
                 *list = json_object_get(a, "probabilities");
    assert_string_equal(string_at(root, "model"), "desk");
    assert_int_equal(json_array_size(answers), 6);
    assert_string_equal(string_at(a, "choice"), p[1] > p[0] ? "good" : "bad");
    assert_string_equal(string_at(json_array_get(list, 0), "value"), "good");
    assert_true(number_at(json_array_get(list, 0), "probability") == p[1]);
    assert_true(number_at(json_array_get(list, 1), "probability") == p[0]);
    assert_true(fabs(number_at(a, "confidence") - fabs(p[1] - p[0])) < 1e-12);
    a = json_array_get(answers, 1); /* unnamed, and its options are left to us */
    assert_true(json_is_null(json_object_get(a, "name")));
    assert_int_equal(json_array_size(json_object_get(a, "probabilities")), 2);
    assert_true(number_at(json_array_get(answers, 2), "probability") == p[1]);
    a = json_array_get(answers, 3);
    assert_true(fabs(number_at(a, "score") - p[1]) < 1e-12);
    list = json_object_get(a, "probabilities");
    assert_true(number_at(json_array_get(list, 1), "value") == 1);
    assert_string_equal(string_at(json_array_get(list, 1), "label"), "good");
    for (size_t i = 4; i < 6; i++) { /* what it does not know */
        a = json_array_get(answers, i);
        assert_string_equal(string_at(a, "type"), "refusal");
        assert_non_null(
            strstr(string_at(json_object_get(a, "keyhole"), "reason"), "\"bad\", \"good\""));
    }
    const json_t *ours = json_object_get(root, "keyhole");
    assert_true(json_is_array(json_object_get(ours, "set")));
    assert_true(json_is_boolean(json_object_get(ours, "abstain")));
    assert_true(number_at(json_object_get(root, "usage"), "total_tokens") > 0);
    json_decref(root);
    desk_close(&d);
}

static void a_classifier_answers_systemone(void **state) {
    (void)state;
    desk d = desk_open(NULL, false);
    double p[2];
    distribution(&d, p);
    json_t *root = post(&d.s, "/v1/systemone",
        "{\"model\":\"jev-latest\",\"state\":\"" TEXT "\",\"questions\":{"
        "\"c\":{\"type\":\"choice\",\"criteria\":{\"bad\":null,\"good\":{\"mood\":\"high\"}}},"
        "\"good\":{\"type\":\"noul\"},"
        "\"n\":{\"type\":\"noul\",\"instructions\":[1],\"criteria\":{\"true\":\"bad\"}},"
        "\"s\":{\"type\":\"score\",\"instructions\":null,\"criteria\":[\"good\",\"bad\"]}}}",
        200);
    const json_t *answers = json_object_get(root, "answers"), *a = json_object_get(answers, "c");
    assert_true(number_at(json_object_get(a, "probabilities"), "bad") == p[0]);
    assert_true(number_at(json_object_get(answers, "good"), "noul") == p[1]);
    assert_true(number_at(json_object_get(answers, "n"), "noul") == p[0]);
    a = json_object_get(answers, "s");
    assert_true(fabs(number_at(a, "score") - p[0]) < 1e-12);
    assert_true(number_at(json_object_get(a, "probabilities"), "1") == p[0]);
    assert_string_equal(string_at(json_object_get(a, "legend"), "1"), "bad");
    assert_non_null(strstr(answer, "x-typesafe-request-id: req-"));
    json_decref(root);
    root = post(&d.s, "/v1/systemone",
        "{\"state\":\"x\",\"questions\":{\"q\":{\"type\":\"choice\",\"criteria\":{\"a\":1,\"b\":2}}"
        "}}",
        422);
    assert_non_null(strstr(answer, "question \\\"q\\\": the options must be the classes"));
    json_decref(root);
    root = post(&d.s, "/v1/systemone",
        "{\"state\":{\"text_a\":\"x\",\"text_b\":\"y\"},\"questions\":{\"good\":{\"type\":\"noul\"}"
        "}}",
        422);
    assert_non_null(strstr(answer, "takes one text, not a pair"));
    json_decref(root);
    desk_close(&d);
}

static void several_are_chosen_by_name(void **state) {
    (void)state;
    desk d = desk_open(NULL, false);
    kh_server *two;
    kh_err err;
    kh_server_opts o = kh_server_defaults();
    o.port = 0;
    kh_served other = { .plm = d.plm, .name = "b", .posterior = d.posterior, .run = d.run },
              first = { .plm = d.plm,
                  .name = "a",
                  .posterior = d.posterior,
                  .run = d.run,
                  .others = &other,
                  .n_other = 1 };
    kh_server_stop(d.s.server);
    if (kh_server_start(&two, &first, &o, &err) != 0)
        fail_msg("%s", err.msg);
    d.s.server = two;
    static const struct {
        const char *model, *by;
        int status;
    } CASES[] = { { "\"model\":\"a\",", "a", 200 }, { "\"model\":\"b\",", "b", 200 },
        { "", "a", 200 }, { "\"model\":\"c\",", NULL, 404 } };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char body[200];
        snprintf(body, sizeof body,
            "{%s\"input\":\"x\",\"questions\":[{\"type\":\"choice\",\"instructions\":\"\"}]}",
            CASES[i].model);
        json_t *root = post(&d.s, "/v1/decisions", body, CASES[i].status);
        if (CASES[i].by)
            assert_string_equal(string_at(root, "model"), CASES[i].by);
        else
            assert_non_null(strstr(answer, "there is \\\"a\\\", \\\"b\\\""));
        json_decref(root);
    }
    assert_int_equal(ask(&d.s, "GET", "/v1/models", "", "", answer, sizeof answer), 200);
    json_t *root = body_of(answer);
    const json_t *data = json_object_get(root, "data"), *cards = json_object_get(root, "models");
    assert_string_equal(string_at(json_array_get(data, 1), "id"), "b");
    assert_string_equal(string_at(json_array_get(cards, 1), "name"), "b");
    assert_int_equal(strlen(string_at(json_array_get(cards, 0), "release_date")), 10);
    json_decref(root);
    other.name = "a";
    kh_server *none;
    assert_int_equal(kh_server_start(&none, &first, &o, &err), KH_EARG);
    assert_says(&err, "two runs are called \"a\"");
    desk_close(&d);
}

/* The words of the tiny task, asked as options in its own template, have the model's own answer. */
static void a_model_answers_anything(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    const kh_task *task = tiny_task();
    kh_words *words;
    kh_batch *batch;
    float logprob[2];
    kh_row row = { .a = TEXT, .n_a = strlen(TEXT), .label = -1 };
    kh_batch_opts o = { .max_len = kh_plm_describe(s.plm).max_len };
    const kh_tokenizer *tok = kh_plm_tokenizer(s.plm);
    assert_int_equal(kh_words_new(&words, task, tok, false, NULL), 0);
    assert_int_equal(kh_batch_encode(&batch, tok, task, words, &row, 1, &o, NULL), 0);
    assert_int_equal(kh_plm_score(kh_plm_scorer(s.plm, NULL),
                         &(kh_question){ batch, words, KH_INJECT_NONE, NULL, 1 }, logprob, NULL),
        0);
    char body[1200];
    snprintf(body, sizeof body,
        "{\"input\":\"" TEXT "\",\"questions\":["
        "{\"type\":\"choice\",\"instructions\":\"Fill in "
        "{mask}.\\n%s\",\"choices\":[{\"value\":\"%s\"},"
        "{\"value\":\"%s\"}]},"
        "{\"type\":\"predicate\",\"instructions\":\"Is it {green}?\"},"
        "{\"type\":\"score\",\"instructions\":\"How?\",\"levels\":[{\"label\":\"low\"},{\"label\":"
        "\"high\"},{\"label\":\"higher\"}]},"
        "{\"type\":\"choice\",\"instructions\":\"\"},"
        "{\"type\":\"choice\",\"instructions\":\"a {mask} of {text} and "
        "{mask}\",\"choices\":[{\"value\":"
        "\"a\"},{\"value\":\"b\"}]}]}",
        task->plain, task->label[0].word[0], task->label[1].word[0]);
    json_t *root = post(&s, "/v1/decisions", body, 200);
    const json_t *answers = json_object_get(root, "answers"),
                 *list = json_object_get(json_array_get(answers, 0), "probabilities");
    for (size_t k = 0; k < 2; k++) /* the logarithm of what came is the very float */
        assert_true((float)log(number_at(json_array_get(list, k), "probability")) == logprob[k]);
    double sum = 0;
    list = json_object_get(json_array_get(answers, 2), "probabilities");
    for (size_t k = 0; k < 3; k++)
        sum += number_at(json_array_get(list, k), "probability");
    assert_true(fabs(sum - 1) < 1e-5);
    double yes = number_at(json_array_get(answers, 1), "probability");
    assert_true(yes > 0 && yes < 1);
    assert_string_equal(string_at(json_array_get(answers, 3), "type"), "refusal");
    assert_string_equal(string_at(json_array_get(answers, 4), "type"), "refusal");
    assert_null(json_object_get(root, "keyhole"));
    json_decref(root);
    kh_batch_free(batch);
    kh_words_free(words);
    kh_task_close(task);
    site_close(&s);
}

static void labels_are_labels(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LABELS, NULL);
    json_t *root = post(&s, "/v1/decisions",
        "{\"input\":\"x\",\"questions\":["
        "{\"type\":\"choice\",\"instructions\":\"?\",\"choices\":[{\"value\":\"low\"},{\"value\":"
        "true}]},"
        "{\"type\":\"predicate\",\"instructions\":\"?\"}]}",
        200);
    const json_t *a = json_array_get(json_object_get(root, "answers"), 0);
    assert_non_null(json_object_get(a, "choice"));
    assert_true(json_is_null(json_object_get(a, "confidence")));
    assert_int_equal(json_array_size(json_object_get(a, "probabilities")), 0);
    a = json_array_get(json_object_get(root, "answers"), 1);
    assert_string_equal(string_at(a, "type"), "refusal");
    assert_non_null(strstr(answer, "no probabilities"));
    json_decref(root);
    root = post(
        &s, "/v1/systemone", "{\"state\":\"x\",\"questions\":{\"q\":{\"type\":\"noul\"}}}", 422);
    json_decref(root);
    site_close(&s);
}

static void what_is_wrong_is_said(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    static const struct {
        const char *path, *body, *says;
    } WRONG[] = { { "decisions", "", "request" }, { "decisions", "[]", "must be a JSON object" },
        { "decisions", "{}", "\\\"input\\\" must be" }, { "systemone", "{}", "no \\\"state\\\"" },
        { "decisions", "{\"input\":\"x\"}", "\\\"questions\\\" must be an array of 1 to 400" },
        { "decisions", "{\"input\":\"x\",\"questions\":[]}", "must be an array of 1 to 400" },
        { "systemone", "{\"state\":null,\"questions\":[]}", "must be an object of 1 to 400" },
        { "decisions", "{\"input\":\"x\",\"questions\":[{}]}", "is of type \\\"?\\\"" },
        { "decisions", "{\"input\":\"x\",\"questions\":[{\"type\":\"noul\"}]}",
            "expected predicate" },
        { "systemone", "{\"state\":1,\"questions\":{\"a\":{\"type\":\"predicate\"}}}",
            "expected noul" },
        { "decisions",
            "{\"input\":\"x\",\"questions\":[{\"type\":\"choice\",\"choices\":[{\"value\":\"a\"}]}]"
            "}",
            "1 options; a question has 2 to 255" },
        { "decisions",
            "{\"input\":\"x\",\"questions\":[{\"type\":\"choice\",\"choices\":[{\"value\":\"a\"},"
            "{\"value\":\"a\"}]}]}",
            "is there twice" },
        { "decisions",
            "{\"input\":\"x\",\"questions\":[{\"type\":\"choice\",\"choices\":[{\"value\":1},{}]}]"
            "}",
            "must be a string, true or false" },
        { "decisions", "{\"input\":\"x\",\"questions\":[{\"type\":\"predicate\",\"name\":7}]}",
            "the name of a question must be a string" },
        { "decisions",
            "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}],"
            "\"questions\":[]}",
            "type \\\"input_image\\\" cannot be read" },
        { "decisions", "{\"input\":[{\"role\":\"user\"}],\"questions\":[]}",
            "must have \\\"role\\\"" },
        { "decisions", "{\"input\":[],\"questions\":[]}", "has no messages" },
        { "decisions", "{\"input\":[{\"role\":\"user\",\"content\":1}],\"questions\":[]}",
            "must be a string or an array of parts" },
        { "systemone",
            "{\"state\":\"x\",\"questions\":{\"a\":{\"type\":\"choice\",\"criteria\":[1,2]}}}",
            "must be an object of descriptions" },
        { "systemone",
            "{\"state\":\"x\",\"questions\":{\"a\":{\"type\":\"score\",\"criteria\":{}}}}",
            "must be an array" } };
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        char path[40];
        snprintf(path, sizeof path, "/v1/%s", WRONG[i].path);
        int status = ask(&s, "POST", path, "", WRONG[i].body, answer, sizeof answer),
            want = WRONG[i].path[0] == 's' ? 422 : 400;
        if (status != want || !strstr(answer, WRONG[i].says))
            fail_msg("%s: HTTP %d: %s", WRONG[i].body, status, answer);
    }
    site_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_classifier_answers_decisions),
        cmocka_unit_test(a_classifier_answers_systemone),
        cmocka_unit_test(several_are_chosen_by_name),
        cmocka_unit_test(a_model_answers_anything),
        cmocka_unit_test(labels_are_labels),
        cmocka_unit_test(what_is_wrong_is_said),
    };
    return cmocka_run_group_tests_name("closed questions", tests, tiny_setup, tiny_teardown);
}

#else
int main(void) {
    printf("# skipped: server: built without libmicrohttpd\nok 1 - server # SKIP built without "
           "libmicrohttpd\n");
    return 0;
}
#endif
