/* test_server_asking.c - decision services as boxes: through keyhole's own server they answer with
 * the bits of the model beside it; strangers are not believed; what was answered once is not asked
 * for again. */
#include "evil.h"
#include "site.h"

#include "base/json.h"

#include <math.h>

#if defined(KH_WITH_MHD) && defined(KH_WITH_CURL)

static kh_plm *open_at(
    const char *url, const char *backend, kh_access access, int retries, kh_err *err) {
    kh_http_opts h = kh_http_defaults();
    kh_plm *box = NULL;
    h.backend = backend;
    h.model = "m";
    h.in_flight = 1;
    h.retries = retries;
    h.timeout = 5;
    kh_plm_open(&box, url, &(kh_plm_opts){ .access = access, .http = &h }, err);
    return box;
}

/* What a box says of rows in the tiny task, or its pair form. */
static int ask_rows(kh_plm *box, const kh_task *task, const kh_row *rows, int n, float *logprob,
    int *label, kh_err *err) {
    kh_words *words;
    kh_batch *batch;
    const kh_tokenizer *tok = kh_plm_tokenizer(box);
    kh_batch_opts o = { .max_len = kh_plm_describe(box).max_len };
    assert_int_equal(kh_words_new(&words, task, tok, false, NULL), 0);
    assert_int_equal(kh_batch_encode(&batch, tok, task, words, rows, n, &o, NULL), 0);
    kh_question q = { batch, words, KH_INJECT_NONE, NULL, 1 };
    int rc = logprob ? kh_plm_score(kh_plm_scorer(box, NULL), &q, logprob, err)
                     : kh_plm_answer(kh_plm_labeler(box, NULL), &q, label, err);
    kh_batch_free(batch);
    kh_words_free(words);
    return rc;
}

static const char *const BACKENDS[] = { "decisions", "systemone" };

static void the_wire_keeps_the_bits(void **state) {
    (void)state;
    static const char PAIR[] =
        "{\"name\":\"pair\",\"template\":\"{text_a} ? {mask} , "
        "{text_b}\",\"labels\":[{\"name\":\"no\","
        "\"words\":[\"lower\"]},{\"name\":\"yes\",\"words\":[\"better\",\"more\"]}]}";
    const kh_task *task[2] = { tiny_task() };
    assert_int_equal(kh_task_parse(&task[1], PAIR, sizeof PAIR - 1, "pair.json", NULL), 0);
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    kh_dataset *data = tiny_rows(12, 5, -1);
    kh_row rows[14],
        odd[2] = { { .a = "\"{text}\" \\ \n <mask> {mask}", .n_a = 25 },
            { .a = "\xF0\x9F\x98\x80 \xC3\xA9t\xC3\xA9", .n_a = 11 } };
    memcpy(rows, kh_dataset_rows(data), 12 * sizeof *rows);
    memcpy(rows + 12, odd, sizeof odd);
    for (int t = 0; t < 2; t++) {
        float here[28], there[28];
        int chosen[14];
        kh_err err;
        for (int i = 0; i < 14; i++)
            rows[i].b = t ? "the boats" : NULL, rows[i].n_b = t ? 9 : 0;
        assert_int_equal(ask_rows(s.plm, task[t], rows, 14, here, NULL, NULL), 0);
        for (int b = 0; b < 2; b++) {
            kh_plm *box = open_at(s.url, BACKENDS[b], KH_ACCESS_LOGPROBS, 0, &err);
            if (!box || ask_rows(box, task[t], rows, 14, there, NULL, &err) != 0 ||
                ask_rows(box, task[t], rows, 14, NULL, chosen, &err) != 0)
                fail_msg("%s", err.msg);
            for (int i = 0; i < 28; i++)
                if (t == 0 ? here[i] != there[i] : fabsf(here[i] - there[i]) > 2e-6f)
                    fail_msg("%s, row %d: %.9g, expected %.9g", BACKENDS[b], i / 2,
                        (double)there[i], (double)here[i]);
            for (int i = 0; i < 14; i++)
                assert_true(t == 1 || chosen[i] == (here[2 * i + 1] > here[2 * i]));
            assert_int_equal(kh_plm_meter(box).queries, 28);
            kh_plm_close(box);
        }
        kh_task_close(task[t]);
    }
    kh_dataset_close(data);
    site_close(&s);
}

/* ------------------------------------------------------------------------------------ strangers */

static const char *said; /* the body of every answer */
static const char *say(int n) { return n >= 0 ? wrap(said) : NULL; }

static void ask_stranger(script_fn *script, const char *backend, kh_access access, int retries,
    int code, const char *says, int tries) {
    evil *e = evil_new(script, NULL);
    char url[64];
    const kh_task *task = tiny_task();
    kh_row row = { .a = "the boats", .n_a = 9, .line = 7 };
    float p[2] = { 0, 0 };
    int label = -1;
    kh_err err = { 0 };
    snprintf(url, sizeof url, "http://127.0.0.1:%d", e->port);
    kh_plm *box = open_at(url, backend, access, retries, &err);
    assert_non_null(box);
    bool labels = access == KH_ACCESS_LABELS;
    int rc = ask_rows(box, task, &row, 1, labels ? NULL : p, &label, &err);
    if (rc != code || (says && !strstr(err.msg, says)))
        fail_msg("%s: %d, \"%s\", expected %d, \"%s\"", said, rc, err.msg, code, says ? says : "");
    if (rc == 0 && !labels)
        assert_true(fabs(exp((double)p[0]) + exp((double)p[1]) - 1) < 1e-6);
    if (rc == 0 && labels)
        assert_int_equal(label, 1);
    assert_int_equal(atomic_load(&e->scores), tries);
    kh_plm_close(box);
    kh_task_close(task);
    evil_free(e);
}

#define ANSWER(inside) "{\"model\":\"m\",\"answers\":[" inside "]}"
#define CHOICE(list) \
    ANSWER( \
        "{\"type\":\"choice\",\"name\":\"q\",\"choice\":\"better\",\"probabilities\":[" list "]}")
#define P(value, p) "{\"value\":\"" value "\",\"probability\":" p "}"

static void strangers_are_not_believed(void **state) {
    (void)state;
    static const struct {
        const char *body, *says;
    } DECISIONS[] = {
        { CHOICE(P("lower", "0.25") "," P("better", "0.75")), NULL },
        { CHOICE(P("better", "0.667") "," P("lower", "0.333")), NULL },
        { CHOICE(P("lower", "0") "," P("better", "1")), NULL },
        { "garbage", "not valid JSON" },
        { "", "not valid JSON" },
        { "{}", "sent no \"answers\" about the row at line 7 (\"the boats\")" },
        { ANSWER(""), "another number of answers than there were questions" },
        { ANSWER("{\"type\":\"refusal\",\"name\":null},{}"), "another number of answers" },
        { CHOICE(P("lower", "NaN") "," P("better", "0.5")), "not valid JSON" },
        { CHOICE(P("lower", "null") "," P("better", "0.5")), "not between 0 and 1" },
        { CHOICE(P("lower", "-0.5") "," P("better", "1.5")), "not between 0 and 1" },
        { CHOICE(P("lower", "0.5") "," P("better", "0.9")), "do not add up to 1" },
        { CHOICE(P("lower", "0.1") "," P("better", "0.1")), "do not add up to 1" },
        { CHOICE(P("lower", "0.5") "," P("lower", "0.5")), "gave an option two probabilities" },
        { CHOICE(P("lower", "0.5") "," P("worse", "0.5")),
            "named an option that was not asked for" },
        { CHOICE(P("lower", "1")), "left an option without a probability" },
        { CHOICE(""), "--access labels does without" },
        { ANSWER("{\"type\":\"choice\",\"name\":\"other\"}"), "under another question's name" },
        { ANSWER("{\"type\":\"predicate\",\"name\":\"q\",\"probability\":1}"), "is no choice" },
        { ANSWER("{\"type\":\"choice\",\"type\":\"choice\"}"), "duplicate" },
        { ANSWER("7"), "under another question's name" },
    };
    for (size_t i = 0; i < sizeof DECISIONS / sizeof DECISIONS[0]; i++) {
        said = DECISIONS[i].body;
        ask_stranger(say, "decisions", KH_ACCESS_LOGPROBS, 0, DECISIONS[i].says ? KH_EFORMAT : 0,
            DECISIONS[i].says, 1);
    }
    said = "{\"answers\":{\"q\":{\"type\":\"choice\",\"choice\":\"better\",\"probabilities\":{"
           "\"better\":0.9,\"lower\":0.1}}}}";
    ask_stranger(say, "systemone", KH_ACCESS_LOGPROBS, 0, 0, NULL, 1);
    ask_stranger(say, "systemone", KH_ACCESS_LABELS, 0, 0, NULL, 1);
    said = "{\"answers\":{\"x\":{\"type\":\"choice\"}}}";
    ask_stranger(say, "systemone", KH_ACCESS_LOGPROBS, 0, KH_EFORMAT, "another question's name", 1);
    said = "{\"answers\":[]}";
    ask_stranger(say, "systemone", KH_ACCESS_LOGPROBS, 0, KH_EFORMAT, "sent no \"answers\"", 1);
    said = ANSWER("{\"type\":\"choice\",\"choice\":\"better\",\"confidence\":null}");
    ask_stranger(say, "decisions", KH_ACCESS_LABELS, 0, 0, NULL, 1);
    said = ANSWER("{\"type\":\"choice\",\"choice\":true}");
    ask_stranger(
        say, "decisions", KH_ACCESS_LABELS, 0, KH_EFORMAT, "chose an option that was not", 1);
}

static const char *refuses_once(int n) {
    return wrap(n == 0 ? ANSWER("{\"type\":\"refusal\",\"name\":\"q\"}")
                       : CHOICE(P("lower", "0.25") "," P("better", "0.75")));
}
static const char *busy_once(int n) {
    return n == 0 ? HEAD("429 Too Many") "Retry-After: 0\r\nContent-Length: 0\r\n\r\n"
                  : wrap(CHOICE(P("lower", "0.25") "," P("better", "0.75")));
}

static void refusals_are_missing_answers(void **state) {
    (void)state;
    said = "(scripts)";
    ask_stranger(refuses_once, "decisions", KH_ACCESS_LOGPROBS, 5, 0, NULL, 2);
    ask_stranger(busy_once, "decisions", KH_ACCESS_LOGPROBS, 5, 0, NULL, 2);
    said = ANSWER("{\"type\":\"refusal\",\"name\":\"q\"}");
    ask_stranger(say, "decisions", KH_ACCESS_LOGPROBS, 9, KH_EIO,
        "refused to answer about the row at line 7 (\"the boats\"), in 3 tries", 3);
}

/* ------------------------------------------------------------------------------------- the journal
 */

static atomic_int ends_after; /* answers, and then nothing but closed connections */
static char *seen[400];
static int n_seen;

static const char *answers_some(int n) {
    (void)n;
    if (atomic_fetch_sub(&ends_after, 1) <= 0)
        return NULL;
    const char *body = strstr(evil_request, "\r\n\r\n");
    seen[n_seen++] = strdup(body ? body : "");
    return wrap(CHOICE(P("lower", "0.25") "," P("better", "0.75")));
}

static void nothing_is_paid_for_twice(void **state) {
    (void)state;
    evil *e = evil_new(answers_some, NULL);
    char url[64], dir[80];
    const kh_task *task = tiny_task();
    kh_dataset *train = tiny_rows(8, 1, -1), *dev = tiny_rows(40, 2, -1);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", e->port);
    snprintf(dir, sizeof dir, "/tmp/keyhole-test-asking-%ld", (long)getpid());
    kh_posterior *p = NULL;
    static const int LASTS[] = { 13, 9, 100 };
    for (int turn = 0, rc; turn < 3; turn++) {
        kh_err err = { 0 };
        kh_run *run;
        kh_tune_opts o = kh_tune_defaults();
        kh_plm *box = open_at(url, "decisions", KH_ACCESS_LOGPROBS, 0, &err);
        atomic_store(&ends_after, LASTS[turn]);
        assert_int_equal(kh_run_open(&run, dir, &(kh_run_opts){ .resume = turn > 0 }, &err), 0);
        o.run = run;
        rc = kh_tune(&p, "manual", NULL, box, task, train, dev, &o, &err);
        if ((rc == 0) != (turn == 2))
            fail_msg("turn %d: %d, %s", turn, rc, err.msg);
        kh_run_close(run);
        kh_plm_close(box);
    }
    assert_int_equal(n_seen, 40);
    for (int i = 0; i < n_seen; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(seen[i], seen[k]);
    for (int i = 0; i < n_seen; i++)
        free(seen[i]);
    kh_posterior_free(p);
    kh_dataset_close(train);
    kh_dataset_close(dev);
    kh_task_close(task);
    evil_free(e);
    tiny_remove(dir,
        (const char *const[]){
            "run.sqlite", "run.sqlite-wal", "run.sqlite-shm", "lock", "run.lock", NULL });
}

static void soft_prompts_are_refused(void **state) {
    (void)state;
    evil *e = evil_new(say, NULL);
    char url[64];
    kh_err err = { 0 };
    double mean, std;
    snprintf(url, sizeof url, "http://127.0.0.1:%d", e->port);
    kh_plm *box = open_at(url, "decisions", KH_ACCESS_LOGPROBS, 0, &err);
    assert_int_equal(kh_plm_embedding_stats(box, &mean, &std, &err), KH_EUNSUPPORTED);
    assert_says(&err, "takes texts and no soft prompts; methods manual and icl do without");
    kh_plm_close(box);
    evil_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_wire_keeps_the_bits),
        cmocka_unit_test(strangers_are_not_believed),
        cmocka_unit_test(refusals_are_missing_answers),
        cmocka_unit_test(nothing_is_paid_for_twice),
        cmocka_unit_test(soft_prompts_are_refused),
    };
    return cmocka_run_group_tests_name(
        "asking decision services", tests, tiny_setup, tiny_teardown);
}

#else
int main(void) {
    printf("# skipped: asking: built without libmicrohttpd or libcurl\nok 1 - asking # SKIP built "
           "without libmicrohttpd or libcurl\n");
    return 0;
}
#endif
