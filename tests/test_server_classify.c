/* test_server_classify.c - a tuned classifier as a service: it says what "keyhole predict" says. */
#include "desk.h"

#include <math.h>
#include <pthread.h>

#ifdef KH_WITH_MHD

static void it_says_what_the_predictor_says(void **state) {
    (void)state;
    desk d = desk_open(NULL, false);
    static const char *const TEXTS[] = { "the boats were green", "<script>alert(1)</script>", "",
        "\xF0\x9F\x98\x80 and <mask>" };
    kh_row row[4];
    double p[4 * 2];
    kh_predictor *predictor;
    for (int i = 0; i < 4; i++)
        row[i] = (kh_row){ .a = TEXTS[i], .n_a = strlen(TEXTS[i]), .label = -1 };
    assert_int_equal(kh_predictor_new(&predictor, d.posterior, d.plm, NULL, NULL), 0);
    assert_int_equal(kh_predictor_run(predictor, row, 4, p, NULL), 0);
    kh_predictor_free(predictor);
    for (int i = 0; i < 4; i++) {
        kh_buf b = kh_buf_init(1 << 16);
        kh_buf_text(&b, "{\"text\":");
        kh_json_quote(&b, TEXTS[i], strlen(TEXTS[i]));
        kh_buf_text(&b, "}");
        assert_int_equal(ask(&d.s, "POST", "/v1/classify", "", b.data, answer, sizeof answer), 200);
        json_t *root = body_of(answer), *q = json_object_get(root, "distribution"),
               *votes = json_object_get(root, "votes");
        assert_true(fabs(json_number_value(json_object_get(q, "bad")) - p[2 * i]) < 1e-8);
        assert_true(fabs(json_number_value(json_object_get(q, "good")) - p[2 * i + 1]) < 1e-8);
        assert_true(fabs(json_number_value(json_object_get(votes, "bad")) +
                        json_number_value(json_object_get(votes, "good")) - 1) < 1e-6);
        assert_string_equal(json_string_value(json_object_get(root, "label")),
            p[2 * i + 1] > p[2 * i] ? "good" : "bad");
        assert_true(
            json_is_null(json_object_get(root, "abstain"))); /* nothing was fitted to decide by */
        json_decref(root);
        kh_buf_free(&b);
    }
    desk_close(&d);
}

static void it_decides_where_decisions_are_kept(void **state) {
    (void)state;
    desk d = desk_open(NULL, true);
    kh_row row[2] = { { .a = "the boats", .n_a = 9 }, { .a = "were small", .n_a = 10 } };
    double p[4], energy[2];
    kh_predictor *predictor;
    kh_decisions decisions;
    assert_int_equal(kh_predictor_new(&predictor, d.posterior, d.plm, NULL, NULL), 0);
    assert_int_equal(
        kh_predictor_explain(predictor, row, 2, &(kh_explained){ .p = p, .energy = energy }, NULL),
        0);
    kh_predictor_free(predictor);
    assert_int_equal(kh_decisions_open(&decisions, d.run, NULL), 0);
    assert_int_equal(ask(&d.s, "POST", "/v1/classify", "",
                         "{\"texts\":[\"the boats\",\"were small\"]}", answer, sizeof answer),
        200);
    json_t *root = body_of(answer), *results = json_object_get(root, "results");
    assert_int_equal(json_array_size(results), 2);
    for (size_t i = 0; i < 2; i++) { /* as "keyhole predict" would */
        const json_t *one = json_array_get(results, i);
        kh_decision want = kh_decide(&decisions, &row[i], p + 2 * i, energy[i], NULL);
        assert_true(fabs(json_number_value(json_object_get(one, "energy")) - energy[i]) <
            1e-7 * fabs(energy[i]));
        assert_true(json_number_value(json_object_get(one, "ood_score")) ==
            json_number_value(json_object_get(one, "energy")));
        assert_true(json_is_true(json_object_get(one, "ood")) == want.foreign);
    }
    kh_decisions_free(&decisions);
    for (size_t i = 0; i < 2; i++) {
        const json_t *one = json_array_get(results, i);
        assert_true(json_is_boolean(json_object_get(one, "abstain")));
        assert_true(json_is_boolean(json_object_get(one, "ood")));
        assert_true(json_is_array(json_object_get(one, "set")));
    }
    json_decref(root);
    assert_int_equal(ask(&d.s, "GET", "/v1/run", "", "", answer, sizeof answer), 200);
    assert_non_null(strstr(answer, "\"decides\":true"));
    desk_close(&d);
}

static void it_serves_its_page_and_nothing_of_the_model(void **state) {
    (void)state;
    desk d = desk_open(NULL, false);
    assert_int_equal(ask(&d.s, "GET", "/", "", "", answer, sizeof answer), 200);
    assert_non_null(strstr(answer, "text/html"));
    assert_non_null(strstr(answer, "Content-Security-Policy: default-src 'none'"));
    assert_null(strstr(answer, "http://"));
    assert_null(strstr(answer, "https://"));
    assert_int_equal(ask(&d.s, "POST", "/v1/score", "", "{}", answer, sizeof answer), 404);
    assert_int_equal(ask(&d.s, "GET", "/v1/tokenizer", "", "", answer, sizeof answer), 404);
    assert_int_equal(ask(&d.s, "GET", "/report", "", "", answer, sizeof answer), 404);
    assert_non_null(strstr(answer, "this run has no report"));
    static const struct {
        const char *body, *says;
    } WRONG[] = { { "", "request" }, { "[]", "must be an object with" },
        { "{\"text\":1}", "a text is a string" },
        { "{\"text\":\"a\",\"texts\":[]}", "must be an object with" },
        { "{\"texts\":[]}", "0 texts" }, { "{\"texts\":[[\"a\",\"b\"]]}", "a text is a string" },
        { "{\"text\":\"\\ud800\"}", "request" } };
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        int status = ask(&d.s, "POST", "/v1/classify", "", WRONG[i].body, answer, sizeof answer);
        if ((status != 400 && status != 413) || !strstr(answer, WRONG[i].says))
            fail_msg("%s: HTTP %d: %s", WRONG[i].body, status, answer);
    }
    desk_close(&d);
}

static void the_report_is_shown(void **state) {
    (void)state;
    desk first = desk_open(NULL, false);
    kh_server_stop(first.s.server);
    char *path = kh_path_join(first.run, "report.html");
    kh_server_opts o = kh_server_defaults();
    o.port = 0;
    assert_int_equal(kh_file_write(path, "<p>the report", 13, NULL), 0);
    assert_int_equal(
        kh_server_start(&first.s.server,
            &(kh_served){
                .plm = first.plm, .name = "d", .posterior = first.posterior, .run = first.run },
            &o, NULL),
        0);
    assert_int_equal(ask(&first.s, "GET", "/report", "", "", answer, sizeof answer), 200);
    assert_non_null(strstr(answer, "<p>the report"));
    kh_free(path);
    desk_close(&first);
}

/* Several people at once: each gets the answer to their own text. */
typedef struct person {
    pthread_t thread;
    const desk *d;
    int number, wrong;
    char want[64];
} person;

static void one_answer(const desk *d, int number, char *out, size_t cap) {
    char body[128];
    char *text = malloc(1 << 16);
    snprintf(body, sizeof body, "{\"text\":\"the boats number %d\"}", number);
    assert_int_equal(ask(&d->s, "POST", "/v1/classify", "", body, text, 1 << 16), 200);
    snprintf(out, cap, "%.60s", strstr(text, "\"confidence\":"));
    free(text);
}

static void *visit(void *self) {
    person *p = self;
    char got[64];
    for (int i = 0; i < 10; i++) {
        one_answer(p->d, p->number, got, sizeof got);
        p->wrong += strcmp(got, p->want) != 0;
    }
    return NULL;
}

static void people_at_once_get_their_own_answers(void **state) {
    (void)state;
    enum { PEOPLE = 12 };
    desk d = desk_open(NULL, false);
    person p[PEOPLE];
    for (int i = 0; i < PEOPLE; i++) {
        p[i] = (person){ .d = &d, .number = i * 37 };
        one_answer(&d, p[i].number, p[i].want, sizeof p[i].want);
    }
    for (int i = 0; i < PEOPLE; i++)
        pthread_create(&p[i].thread, NULL, visit, &p[i]);
    for (int i = 0; i < PEOPLE; i++)
        pthread_join(p[i].thread, NULL);
    for (int i = 0; i < PEOPLE; i++)
        assert_int_equal(p[i].wrong, 0);
    desk_close(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_what_the_predictor_says),
        cmocka_unit_test(it_decides_where_decisions_are_kept),
        cmocka_unit_test(it_serves_its_page_and_nothing_of_the_model),
        cmocka_unit_test(the_report_is_shown),
        cmocka_unit_test(people_at_once_get_their_own_answers),
    };
    return cmocka_run_group_tests_name("classifier as a service", tests, tiny_setup, tiny_teardown);
}

#else
int main(void) {
    printf("# skipped: server: built without libmicrohttpd\nok 1 - server # SKIP built without "
           "libmicrohttpd\n");
    return 0;
}
#endif
