/* test_plm_http.c - the client against a service that misbehaves: a small server on raw sockets
 * that follows a script. What passes is tried again and ends in the same answer; what does not ends
 * in one sentence; nothing hangs and no key is told. */
#include "evil.h"

#include "base/clock.h"
#include "run/run.h"

#include <math.h>
#include <sqlite3.h>

#ifdef KH_WITH_CURL

/* ----------------------------------------------------------------------------------- asking it */

static char log_lines[4096];
static void keep_log(void *user, kh_level level, const char *line) {
    (void)user, (void)level;
    strncat(log_lines, line, sizeof log_lines - strlen(log_lines) - 2);
    strcat(log_lines, "\n");
}
static double stop_at; /* 0: never */
static int must_stop(void *user) {
    (void)user;
    return stop_at > 0 && kh_clock() > stop_at;
}
static const kh_hooks hooks = { .log = keep_log, .stop = must_stop };

static kh_plm *box_open(const evil *e, int retries, double timeout, const char *key_file) {
    char url[64];
    kh_plm *p;
    kh_err err;
    kh_http_opts o = kh_http_defaults();
    o.retries = retries;
    o.timeout = timeout;
    o.in_flight = 2;
    o.key_file = key_file;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", e->port);
    log_lines[0] = '\0';
    if (kh_plm_open(&p, url,
            &(kh_plm_opts){ .access = KH_ACCESS_LOGPROBS, .http = &o, .hooks = &hooks }, &err) != 0)
        fail_msg("%s", err.msg);
    return p;
}

/* One row without a soft prompt, two labels; *rc and *err say how it ended, p gets the
 * log-probabilities. energy may be NULL. */
static int ask_all(kh_plm *box, bool labels, float *p, float *energy, int *label, kh_err *err) {
    const kh_task *task = tiny_task();
    kh_words *words;
    kh_batch *batch;
    kh_row row = { .a = "the boats", .n_a = 9, .label = 0 };
    assert_int_equal(kh_words_new(&words, task, kh_plm_tokenizer(box), false, NULL), 0);
    assert_int_equal(kh_batch_encode(&batch, kh_plm_tokenizer(box), task, words, &row, 1,
                         &(kh_batch_opts){ .max_len = 64 }, NULL),
        0);
    kh_question q = { batch, words, KH_INJECT_NONE, NULL, 1 };
    int rc = labels ? kh_plm_answer(kh_plm_labeler(box, NULL), &q, label, err)
        : energy    ? kh_plm_score_energy(kh_plm_scorer(box, NULL), &q, p, energy, err)
                    : kh_plm_score(kh_plm_scorer(box, NULL), &q, p, err);
    kh_batch_free(batch);
    kh_words_free(words);
    kh_task_close(task);
    return rc;
}

static int ask(kh_plm *box, bool labels, float *p, int *label, kh_err *err) {
    return ask_all(box, labels, p, NULL, label, err);
}

/* -0.5 and log(1 - exp(-0.5)) as floats: 00 00 00 BF, D8 C8 6E BF */
#define GOOD "{\"shape\":[1,1,2],\"dtype\":\"f32\",\"data\":\"AAAAv9jIbr8=\"}"

static void expect_answer(script_fn *script, int tries) {
    evil *e = evil_new(script, NULL);
    kh_plm *box = box_open(e, 6, 5, NULL);
    float p[2];
    kh_err err;
    if (ask(box, false, p, NULL, &err) != 0)
        fail_msg("%s", err.msg);
    assert_true(p[0] == -0.5f && p[1] == -0.93275213f);
    assert_int_equal(atomic_load(&e->scores), tries);
    assert_int_equal(kh_plm_meter(box).queries, 1); /* paid once */
    kh_plm_close(box);
    evil_free(e);
}

static void expect_refusal(script_fn *script, int tries, int code, const char *says) {
    evil *e = evil_new(script, NULL);
    kh_plm *box = box_open(e, 2, 0.5, NULL);
    float p[2];
    kh_err err;
    assert_int_equal(ask(box, false, p, NULL, &err), code);
    assert_says(&err, says);
    assert_int_equal(atomic_load(&e->scores), tries);
    assert_int_equal(kh_plm_meter(box).queries, 0);
    kh_plm_close(box);
    evil_free(e);
}

/* ------------------------------------------------------------------------------------- scripts */

static const char *at_once(int n) { return n >= 0 ? wrap(GOOD) : NULL; }
static const char *drops_first(int n) { return n == 0 ? NULL : wrap(GOOD); }
static const char *drops_in_the_middle(int n) {
    return n < 2 ? HEAD("200 OK") "Content-Length: 5000\r\n\r\n{\"shape\":[1," : wrap(GOOD);
}
static const char *busy(int n) {
    return n < 2 ? HEAD("503 Busy") "Content-Length: 0\r\n\r\n" : wrap(GOOD);
}
static const char *storm(int n) {
    return n < 3 ? HEAD("429 Too Many") "Retry-After: 0\r\nContent-Length: "
                                        "28\r\n\r\n{\"error\":{\"message\":\"slow\"}}"
                 : wrap(GOOD);
}
static const char *waits_a_second(int n) {
    return n == 0 ? HEAD("429 Too Many") "Retry-After: 1\r\nContent-Length: 0\r\n\r\n" : wrap(GOOD);
}
static const char *always_busy(int n) {
    return n >= 0
        ? HEAD("429 Too Many") "Content-Length: 34\r\n\r\n{\"error\":{\"message\":\"come later\"}}"
        : NULL;
}
static const char *always_drops(int n) { return n < 0 ? "" : NULL; }
static const char *refuses(int n) {
    return n >= 0 ? HEAD("400 Bad") "Content-Length: 44\r\n\r\n{\"error\":{\"message\":\"no such "
                                    "\\u0007prompt\"}}"
                  : NULL;
}
static const char *redirects(int n) {
    return n >= 0 ? HEAD("302 Found") "Location: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
                  : NULL;
}
static const char *speaks_html(int n) { return n >= 0 ? wrap("<html>hello</html>") : NULL; }
static const char *wrong_shape(int n) {
    return n >= 0 ? wrap("{\"shape\":[1,2,1],\"data\":\"AAAAvwAAAMA=\"}") : NULL;
}
static const char *wrong_rank(int n) {
    return n >= 0 ? wrap("{\"shape\":[2],\"data\":\"AAAAvwAAAMA=\"}") : NULL;
}
static const char *too_much(int n) {
    return n >= 0 ? wrap("{\"shape\":[1,1,3],\"data\":\"AAAAvwAAAMAAAAC/\"}") : NULL;
}
static const char *cut_base64(int n) {
    return n >= 0 ? wrap("{\"shape\":[1,1,2],\"data\":\"AAAAvwAAA\"}") : NULL;
}
static const char *bad_base64(int n) {
    return n >= 0 ? wrap("{\"shape\":[1,1,2],\"data\":\"AAAAvw=AAMA=\"}") : NULL;
}
static const char *nan_answer(int n) {
    return n >= 0 ? wrap("{\"shape\":[1,1,2],\"data\":\"AADAfwAAAMA=\"}") : NULL;
}
static const char *positive(int n) {
    return n >= 0 ? wrap("{\"shape\":[1,1,2],\"data\":\"AAAAPwAAAMA=\"}") : NULL;
}
static const char *twice(int n) {
    return n >= 0 ? wrap("{\"shape\":[1,1,2],\"data\":\"AAAAvwAAAMA=\",\"data\":\"AAAAvwAAAMA=\"}")
                  : NULL;
}
static const char *huge(int n) {
    static char out[200000];
    memset(out, ' ', sizeof out - 1);
    int k = n >= 0 ? snprintf(out, sizeof out, HEAD("200 OK") "Content-Length: 190000\r\n\r\n") : 0;
    out[k] = '{';
    return out;
}
static const char *sleeps(int n) {
    if (n < 1)
        usleep(800000);
    return wrap(GOOD);
}
static const char *always_sleeps(int n) {
    if (n >= 0)
        usleep(800000);
    return NULL;
}

static void what_passes_is_tried_again(void **state) {
    (void)state;
    expect_answer(at_once, 1);
    expect_answer(drops_first, 2);
    expect_answer(drops_in_the_middle, 3);
    expect_answer(busy, 3);
    expect_answer(storm, 4);
}

/* Its /v1/model says nothing of energies: they are not asked for, and not known. */
static void a_service_without_energies_has_none(void **state) {
    (void)state;
    evil *e = evil_new(at_once, NULL);
    kh_plm *box = box_open(e, 0, 5, NULL);
    float p[2], energy = 0;
    kh_err err;
    assert_false(kh_plm_describe(box).energy);
    if (ask_all(box, false, p, &energy, NULL, &err) != 0)
        fail_msg("%s", err.msg);
    assert_true(p[0] == -0.5f && p[1] == -0.93275213f && isnan(energy));
    kh_plm_close(box);
    evil_free(e);
}

static void retry_after_is_honoured(void **state) {
    (void)state;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    expect_answer(waits_a_second, 2);
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true((double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec) >= 1);
}

static void a_slow_answer_is_tried_again(void **state) {
    (void)state;
    evil *e = evil_new(sleeps, NULL);
    kh_plm *box = box_open(e, 4, 0.5, NULL);
    float p[2];
    kh_err err;
    if (ask(box, false, p, NULL, &err) != 0)
        fail_msg("%s", err.msg);
    assert_true(p[0] == -0.5f);
    kh_plm_close(box);
    evil_free(e);
}

static void what_does_not_pass_ends_in_a_sentence(void **state) {
    (void)state;
    expect_refusal(always_busy, 3, KH_EIO, "still answers HTTP 429 after 3 tries: come later");
    expect_refusal(always_drops, 3, KH_EIO, "and the tries are used up");
    expect_refusal(always_sleeps, 3, KH_EIO, "imed out");
    expect_refusal(refuses, 1, KH_EARG, "answered HTTP 400: no such  prompt");
    expect_refusal(redirects, 1, KH_EIO, "redirects are not followed");
}

static void answers_that_make_no_sense_are_named(void **state) {
    (void)state;
    expect_refusal(speaks_html, 1, KH_EFORMAT, "http://127.0.0.1:");
    expect_refusal(wrong_shape, 1, KH_EFORMAT, "answered with shape [1, 2, 1], expected [1, 1, 2]");
    expect_refusal(wrong_rank, 1, KH_EFORMAT, "an array of 3 whole numbers");
    expect_refusal(too_much, 1, KH_ELIMIT, "more than 2 numbers");
    expect_refusal(cut_base64, 1, KH_EFORMAT, "must be base64 of 8 bytes");
    expect_refusal(bad_base64, 1, KH_EFORMAT, "is not base64");
    expect_refusal(nan_answer, 1, KH_EFORMAT,
        "answered prompt 0, row 0 with nan, which is no log-probability");
    expect_refusal(positive, 1, KH_EFORMAT, "with 0.5, which is no log-probability");
    expect_refusal(twice, 1, KH_EFORMAT, "uplicate");
    expect_refusal(huge, 1, KH_ELIMIT, "which no answer to this question has");
}

static const char *label_seven(int n) {
    return n >= 0 ? wrap("{\"shape\":[1,1],\"labels\":[7]}") : NULL;
}
static const char *two_labels(int n) {
    return n >= 0 ? wrap("{\"shape\":[1,1],\"labels\":[0,1]}") : NULL;
}

static void labels_must_be_labels(void **state) {
    (void)state;
    static const struct {
        script_fn *script;
        const char *says;
    } CASES[] = { { label_seven, "with a label outside 0..1" },
        { two_labels, "answered with 2 labels to 1 prompts x 1 rows" } };
    for (int i = 0; i < 2; i++) {
        evil *e = evil_new(CASES[i].script, NULL);
        kh_plm *box = box_open(e, 0, 5, NULL);
        int label;
        kh_err err;
        assert_int_equal(ask(box, true, NULL, &label, &err), KH_EFORMAT);
        assert_says(&err, CASES[i].says);
        kh_plm_close(box);
        evil_free(e);
    }
}

static void keys_are_sent_and_not_told(void **state) {
    (void)state;
    const char *path = test_file("key", "the-key\n", 8);
    evil *e = evil_new(always_busy, NULL);
    kh_plm *box = box_open(e, 4, 1, path);
    float p[2];
    kh_err err;
    assert_int_equal(ask(box, false, p, NULL, &err), KH_EIO);
    assert_int_equal(atomic_load(&e->saw_key), 1);
    assert_null(strstr(err.msg, "the-key"));
    assert_non_null(strstr(log_lines, "trying again in"));
    assert_null(strstr(log_lines, "the-key"));
    kh_plm_close(box);
    evil_free(e);
    unlink(path);
}

static const char *echoes_the_key(int n) {
    static const char BODY[] = "{\"error\":{\"message\":\"bad key sk-0123456789abcdef, or was it "
                               "sk-01234567...? \\u202Egnp.exe\"}}";
    static char out[512];
    snprintf(out, sizeof out, HEAD("400 Bad Request") "Content-Length: %zu\r\n\r\n%s",
        sizeof BODY - 1, BODY);
    return n >= 0 ? out : NULL;
}

static void an_echoed_key_is_hidden(void **state) {
    (void)state;
    const char *path = test_file("key", "sk-0123456789abcdef\n", 20);
    evil *e = evil_new(echoes_the_key, NULL);
    kh_plm *box = box_open(e, 0, 5, path);
    float p[2];
    kh_err err;
    assert_int_equal(ask(box, false, p, NULL, &err), KH_EARG);
    assert_says(&err, "bad key *******************, or was it ***********...? ???gnp.exe");
    assert_null(strstr(err.msg, "01234567"));
    kh_plm_close(box);
    evil_free(e);
    unlink(path);
}

static const char *wants_five_minutes(int n) {
    return n >= 0 ? HEAD("429 Too Many Requests") "Retry-After: 300\r\nContent-Length: 0\r\n\r\n"
                  : NULL;
}

/* Ctrl-C while a service wants a pause of five minutes. */
static void waiting_can_be_stopped(void **state) {
    (void)state;
    evil *e = evil_new(wants_five_minutes, NULL);
    kh_plm *box = box_open(e, 4, 5, NULL);
    float p[2];
    kh_err err;
    double start = kh_clock();
    stop_at = start + 0.5;
    int rc = ask(box, false, p, NULL, &err);
    stop_at = 0;
    double took = kh_clock() - start;
    assert_int_equal(rc, KH_STOPPED);
    assert_true(took > 0.4 && took < 3);
    kh_plm_close(box);
    evil_free(e);
}

static const char *half_sure_of_nothing(int n) {
    return n >= 0 ? wrap("{\"shape\":[1,1,2],\"data\":\"zczMvc3MzL0=\"}") : NULL;
}

static void probabilities_must_add_up(void **state) {
    (void)state;
    evil *e = evil_new(half_sure_of_nothing, NULL);
    kh_plm *box = box_open(e, 0, 5, NULL);
    float p[2];
    kh_err err;
    assert_int_equal(ask(box, false, p, NULL, &err), KH_EFORMAT);
    assert_says(&err, "with probabilities that add up to 1.80967 and not to 1");
    kh_plm_close(box);
    evil_free(e);
}

/* A name that begins like an address of this machine is another machine's. */
static void loopback_is_an_address(void **state) {
    (void)state;
    static const struct {
        const char *url;
        bool warned;
    } CASES[] = { { "http://127.evil.invalid:1", true }, { "http://127.0.0.1:1", false },
        { "http://127.1.2.3:1", false }, { "http://localhost:1", false },
        { "http://localhost.invalid:1", true }, { "http://[::1]:1", false } };
    kh_http_opts o = kh_http_defaults();
    const char *path = test_file("key", "the-key\n", 8);
    o.key_file = path;
    o.retries = 0;
    o.timeout = 1;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        kh_plm *p;
        log_lines[0] = '\0';
        assert_true(
            kh_plm_open(&p, CASES[i].url, &(kh_plm_opts){ .http = &o, .hooks = &hooks }, NULL) < 0);
        bool warned = strstr(log_lines, "travels unencrypted") != NULL;
        if (warned != CASES[i].warned)
            fail_msg("%s: %s", CASES[i].url, log_lines);
    }
    unlink(path);
}

/* ------------------------------------------------------------------------ what has been paid for
 */

enum { PAID_ROWS = 6 };
static int paid_base;                    /* tokens before those of the text */
static int paid[PAID_ROWS], refused_row; /* answers of each row; the row that is refused, or -1 */

/* A row is known by its length. */
static const char *row_by_row(int n) {
    static const char REFUSAL[] = HEAD("400 Bad Request") "Content-Length: 2\r\n\r\n{}";
    const char *ids = strstr(evil_request, "\"ids\":[["), *end = ids ? strstr(ids, "]]") : NULL;
    int commas = 0;
    for (const char *c = ids; c && c < end; c++)
        commas += *c == ',';
    int row = commas - paid_base;
    if (n < 0 || row < 0 || row >= PAID_ROWS)
        return NULL;
    usleep(50000); /* so that two are under way */
    if (row == refused_row)
        return REFUSAL;
    paid[row]++;
    return wrap(GOOD);
}

static int ask_rows(kh_plm *box, int n, float *p, kh_err *err) {
    static const char *const TEXT[] = { "a", "a a", "a a a", "a a a a", "a a a a a",
        "a a a a a a" };
    const kh_task *task = tiny_task();
    kh_words *words;
    kh_batch *batch;
    kh_row row[PAID_ROWS];
    for (int i = 0; i < n; i++)
        row[i] = (kh_row){ .a = TEXT[i], .n_a = strlen(TEXT[i]), .label = 0 };
    assert_int_equal(kh_words_new(&words, task, kh_plm_tokenizer(box), false, NULL), 0);
    assert_int_equal(kh_batch_encode(&batch, kh_plm_tokenizer(box), task, words, row, n,
                         &(kh_batch_opts){ .max_len = 64 }, NULL),
        0);
    assert_int_equal(batch->n_row, n);
    paid_base = (int)(batch->start[1] - batch->start[0]) - 1;
    for (int i = 0; i < n; i++) /* one token more each */
        assert_int_equal(batch->start[i + 1] - batch->start[i], paid_base + 1 + i);
    kh_question q = { batch, words, KH_INJECT_NONE, NULL, 1 };
    int rc = kh_plm_score(kh_plm_scorer(box, NULL), &q, p, err);
    kh_batch_free(batch);
    kh_words_free(words);
    kh_task_close(task);
    return rc;
}

/* Of six requests the fourth fails. The others have been answered, or will be; when the run is
 * resumed, only the fourth is asked again. */
static void nothing_is_paid_for_twice(void **state) {
    (void)state;
    static const char ONE_ROW[] =
        "{\"name\":\"m\",\"backend\":\"native\",\"precision\":\"f32\",\"kernels\":\"generic\","
        "\"access\":\"logprobs\",\"hidden\":4,\"max_len\":64,\"fingerprint\":"
        "\"0123456789abcdef\",\"embeddings\":{\"mean\":0,\"std\":1},\"limits\":{\"body\":"
        "1000000,\"prompts\":64,\"rows\":1,\"tokens\":100000}}";
    char dir[] = "/tmp/keyhole-test-paid-XXXXXX";
    assert_non_null(mkdtemp(dir));
    evil *e = evil_new(row_by_row, ONE_ROW);
    static const kh_run_card CARD = { "m", "t", "x", "d", "logprobs", "accuracy", 1 };
    float p[2 * PAID_ROWS];
    kh_err err = { 0 };
    int answered = 0;
    for (int session = 0; session < 3; session++) {
        kh_run *run;
        kh_plm *box = box_open(e, 0, 5, NULL);
        refused_row = session == 0 ? 3 : -1;
        kh_run_opts o = { .resume = session > 0 };
        if (kh_run_open(&run, dir, &o, &err) != 0 || kh_run_begin(run, &CARD, NULL, 0, &err) != 0)
            fail_msg("%s", err.msg);
        kh_plm_set_cache(box, kh_run_cache(run));
        int rc = ask_rows(box, PAID_ROWS, p, &err);
        assert_int_equal(rc, session == 0 ? KH_EARG : 0);
        answered = 0;
        for (int i = 0; i < PAID_ROWS; i++)
            answered += paid[i];
        printf("# session %d: %d answers given so far\n", session, answered);
        kh_plm_set_cache(box, NULL);
        kh_run_close(run);
        kh_plm_close(box);
    }
    for (int i = 0; i < PAID_ROWS; i++) {
        assert_int_equal(paid[i], 1);
        assert_true(p[2 * i] == -0.5f);
    }
    evil_free(e);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

static void a_flipped_bit_in_an_answer_is_noticed(void **state) {
    (void)state;
    char dir[] = "/tmp/keyhole-test-flip-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    evil *e = evil_new(at_once, NULL);
    static const kh_run_card CARD = { "m", "t", "x", "d", "logprobs", "accuracy", 1 };
    float p[2];
    kh_err err = { 0 };
    for (int session = 0; session < 2; session++) {
        kh_run *run;
        kh_plm *box = box_open(e, 0, 5, NULL);
        if (kh_run_open(&run, dir, &(kh_run_opts){ .resume = session > 0 }, &err) != 0 ||
            kh_run_begin(run, &CARD, NULL, 0, &err) != 0)
            fail_msg("%s", err.msg);
        kh_plm_set_cache(box, kh_run_cache(run));
        int rc = ask(box, false, p, NULL, &err);
        assert_int_equal(rc, session == 0 ? 0 : KH_EFORMAT);
        kh_plm_set_cache(box, NULL);
        kh_run_close(run);
        kh_plm_close(box);
        sqlite3 *db;
        snprintf(path, sizeof path, "%s/run.sqlite", dir);
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        assert_int_equal(
            sqlite3_exec(db, "UPDATE answers SET answer = x'010000BFD8C86EBF'", NULL, NULL, NULL),
            SQLITE_OK);
        sqlite3_close(db);
    }
    assert_says(&err, "is damaged; --force starts the run again");
    evil_free(e);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

/* Descriptions of models that cannot be, found before the first query. */
static void services_that_are_none_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *model, *says;
    } CASES[] = {
        { "{}", "\"name\"" },
        { "[]", "is not an object" },
        { "{\"name\":\"m\",\"backend\":\"b\",\"precision\":\"p\",\"kernels\":\"k\",\"access\":"
          "\"labels\",\"hidden\":-1}",
            "hidden" },
        { "{\"name\":\"m\",\"backend\":\"b\",\"precision\":\"p\",\"kernels\":\"k\",\"access\":"
          "\"labels\",\"hidden\":4,\"max_len\":"
          "9,\"fingerprint\":\"xyz\"}",
            "16 hexadecimal digits" },
        { "{\"name\":\"m\",\"backend\":\"b\",\"precision\":\"p\",\"kernels\":\"k\",\"access\":"
          "\"labels\",\"hidden\":4,\"max_len\":"
          "9,\"fingerprint\":"
          "\"0123456789abcdef\"}",
            "is it a keyhole service?" },
        { "{\"name\":\"m\",\"backend\":\"b\",\"precision\":\"p\",\"kernels\":\"k\",\"access\":"
          "\"labels\",\"hidden\":4,\"max_len\":"
          "9,\"fingerprint\":"
          "\"0123456789abcdef\",\"embeddings\":{\"mean\":0,\"std\":1},\"limits\":{\"body\":-5,"
          "\"prompts\":1,\"rows\":1,\"tokens\":"
          "1}}",
            "which cannot be" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        evil *e = evil_new(at_once, CASES[i].model);
        char url[64];
        kh_plm *p;
        kh_err err;
        snprintf(url, sizeof url, "http://127.0.0.1:%d", e->port);
        assert_true(kh_plm_open(&p, url, &(kh_plm_opts){ 0 }, &err) < 0);
        assert_null(p);
        assert_says(&err, CASES[i].says);
        evil_free(e);
    }
}

/* What a service says of its tokenizer. */
static void tokenizers_that_are_none_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *tokenizer, *says;
    } CASES[] = {
        { "[]", "\"main\"" },
        { "{\"main\":\"tokenizer.json\",\"files\":{}}", "gives no tokenizer" },
        { "{\"main\":\"tokenizer.json\",\"files\":{\"tokenizer.json\":3}}",
            "the tokenizer's \"tokenizer.json\" is not base64" },
        { "{\"main\":\"tokenizer.json\",\"files\":{\"tokenizer.json\":\"e30\"}}",
            "the tokenizer's \"tokenizer.json\" is not base64" },
        { "{\"main\":\"tokenizer.json\",\"files\":{\"tokenizer.json\":\"****\"}}",
            "the tokenizer's \"tokenizer.json\" is not base64" },
        { "{\"main\":\"tokenizer.json\",\"files\":{\"tokenizer.json\":\"e30=\"}}", "http://127." },
        { "{\"main\":\"vocab.json\",\"files\":{\"vocab.json\":\"e30=\",\"merges.txt\":7}}",
            "the tokenizer's \"merges.txt\" is not base64" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        evil *e = evil_new(at_once, NULL);
        char url[64];
        kh_plm *p;
        kh_err err;
        kh_buf_free(&e->tokenizer);
        http_wrap(&e->tokenizer, CASES[i].tokenizer);
        snprintf(url, sizeof url, "http://127.0.0.1:%d", e->port);
        assert_true(kh_plm_open(&p, url, &(kh_plm_opts){ 0 }, &err) < 0);
        assert_null(p);
        assert_says(&err, CASES[i].says);
        evil_free(e);
    }
}

static void a_model_of_another_name_is_refused(void **state) {
    (void)state;
    evil *e = evil_new(at_once, NULL);
    char url[64];
    kh_plm *p;
    kh_err err;
    kh_http_opts o = kh_http_defaults();
    snprintf(url, sizeof url, "http://127.0.0.1:%d", e->port);
    o.model = "other";
    assert_int_equal(kh_plm_open(&p, url, &(kh_plm_opts){ .http = &o }, &err), KH_EMISMATCH);
    assert_says(&err, "serves \"m\", not \"other\"");
    o.model = "m";
    assert_int_equal(kh_plm_open(&p, url, &(kh_plm_opts){ .http = &o }, &err), 0);
    kh_plm_close(p);
    evil_free(e);
}

/* Four numbers for the first word, three for the second, two rows for the third. */
static const char *embeddings(int n) {
    static const char *const BODY[] = {
        "{\"shape\":[1,4],\"dtype\":\"f32\",\"data\":\"AAAAvwAAAL8AAAC/AAAAvw==\"}",
        "{\"shape\":[1,3],\"dtype\":\"f32\",\"data\":\"AAAAvwAAAL8AAAC/\"}",
        "{\"shape\":[2,1],\"dtype\":\"f32\",\"data\":\"AAAAvwAAAL8=\"}"
    };
    return wrap(BODY[n % 3]);
}

static void embeddings_have_the_size_of_the_model(void **state) {
    (void)state;
    evil *e = evil_new(embeddings, NULL);
    kh_plm *box = box_open(e, 0, 5, NULL);
    float row[4] = { 0 };
    kh_err err;
    assert_int_equal(kh_plm_embedding_row(box, 7, row, &err), 0);
    assert_true(row[0] == -0.5f && row[3] == -0.5f);
    assert_non_null(strstr(evil_request, "GET /v1/embedding?id=7 "));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kh_plm_embedding_row(box, 8, row, &err), KH_EFORMAT);
        assert_says(
            &err, i ? "a word embedding of 1 numbers, expected 4" : "of 3 numbers, expected 4");
    }
    kh_plm_close(box);
    evil_free(e);
}

static void keys_on_open_lines_are_warned_of(void **state) {
    (void)state;
    kh_http_opts o = kh_http_defaults();
    kh_plm *p;
    kh_err err;
    kh_plm_opts opts = { .http = &o, .hooks = &hooks };
    o.key_file = test_file("key", "the-key\n", 8);
    static const char *const URL[] = { "http://nobody.invalid:1", "https://nobody.invalid:1",
        "http://127.0.0.1:1" };
    for (int i = 0; i < 3; i++) {
        log_lines[0] = '\0';
        assert_int_equal(kh_plm_open(&p, URL[i], &opts, &err), KH_EIO);
        assert_int_equal(strstr(log_lines, "the key travels unencrypted") != NULL, i == 0);
        assert_null(strstr(log_lines, "the-key"));
    }
    unlink(o.key_file);
}

static void urls_and_keys_are_looked_at(void **state) {
    (void)state;
    static const struct {
        const char *url, *says;
    } CASES[] = { { "http://", "a service is named as" },
        { "http://me:secret@host/", "do not go into the URL" },
        { "http://host/?key=1", "and nothing else" }, { "http://127.0.0.1:1", "127.0.0.1" } };
    kh_http_opts o = kh_http_defaults();
    kh_plm *p;
    kh_err err;
    o.retries = 0;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        assert_true(kh_plm_open(&p, CASES[i].url, &(kh_plm_opts){ .http = &o }, &err) < 0);
        assert_says(&err, CASES[i].says);
        assert_null(strstr(err.msg, "secret"));
    }
    assert_null(strstr(err.msg, "--retries")); /* as told */
    time_t before = time(NULL);
    o.retries = -1; /* a wrong port is told at once */
    assert_int_equal(
        kh_plm_open(&p, "http://127.0.0.1:1", &(kh_plm_opts){ .http = &o }, &err), KH_EIO);
    assert_says(&err, "http://127.0.0.1:1: ");
    assert_says(
        &err, "; is the service running, and is this where it listens? --retries N waits for it");
    assert_int_equal(
        kh_plm_open(&p, "http://nobody.invalid:1", &(kh_plm_opts){ .http = &o }, &err), KH_EIO);
    assert_says(&err, "is the service running");
    assert_true(time(NULL) - before < 30);
    o.retries = 2; /* unless it is to be waited for */
    assert_int_equal(
        kh_plm_open(&p, "http://127.0.0.1:1", &(kh_plm_opts){ .http = &o }, &err), KH_EIO);
    assert_says(&err, ", and the tries are used up");
    o.retries = 0;
    o.key_file = test_file("two", "one two", 7);
    assert_int_equal(
        kh_plm_open(&p, "http://127.0.0.1:1", &(kh_plm_opts){ .http = &o }, &err), KH_EFORMAT);
    assert_says(&err, "must hold one key");
    unlink(o.key_file);
    o.key_file = NULL;
    o.backend = "gopher";
    assert_int_equal(
        kh_plm_open(&p, "http://127.0.0.1:1", &(kh_plm_opts){ .http = &o }, &err), KH_EARG);
    assert_says(&err, "unknown backend \"gopher\"");
}

static void memory_may_run_out_anywhere(void **state) {
    (void)state;
    evil *e = evil_new(at_once, NULL);
    kh_plm *box = box_open(e, 0, 5, NULL);
    for (long n = 1;; n++) {
        kh_err err = { 0 };
        float p[2];
        const kh_task *task = tiny_task();
        kh_words *words;
        kh_batch *batch;
        kh_row row = { .a = "the boats", .n_a = 9, .label = 0 };
        assert_int_equal(kh_words_new(&words, task, kh_plm_tokenizer(box), false, NULL), 0);
        assert_int_equal(kh_batch_encode(&batch, kh_plm_tokenizer(box), task, words, &row, 1,
                             &(kh_batch_opts){ .max_len = 64 }, NULL),
            0);
        kh_question q = { batch, words, KH_INJECT_NONE, NULL, 1 };
        kh_alloc_fail_at(n, false);
        int rc = kh_plm_score(kh_plm_scorer(box, NULL), &q, p, &err);
        bool done = kh_alloc_count() < n;
        kh_alloc_fail_at(0, false);
        assert_true(rc == (done ? 0 : KH_ENOMEM) || rc == KH_ELIMIT);
        kh_batch_free(batch);
        kh_words_free(words);
        kh_task_close(task);
        if (done)
            break;
    }
    kh_plm_close(box);
    evil_free(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_passes_is_tried_again),
        cmocka_unit_test(a_service_without_energies_has_none),
        cmocka_unit_test(retry_after_is_honoured),
        cmocka_unit_test(a_slow_answer_is_tried_again),
        cmocka_unit_test(what_does_not_pass_ends_in_a_sentence),
        cmocka_unit_test(answers_that_make_no_sense_are_named),
        cmocka_unit_test(labels_must_be_labels),
        cmocka_unit_test(keys_are_sent_and_not_told),
        cmocka_unit_test(an_echoed_key_is_hidden),
        cmocka_unit_test(waiting_can_be_stopped),
        cmocka_unit_test(probabilities_must_add_up),
        cmocka_unit_test(loopback_is_an_address),
        cmocka_unit_test(nothing_is_paid_for_twice),
        cmocka_unit_test(a_flipped_bit_in_an_answer_is_noticed),
        cmocka_unit_test(services_that_are_none_are_refused),
        cmocka_unit_test(tokenizers_that_are_none_are_refused),
        cmocka_unit_test(a_model_of_another_name_is_refused),
        cmocka_unit_test(embeddings_have_the_size_of_the_model),
        cmocka_unit_test(keys_on_open_lines_are_warned_of),
        cmocka_unit_test(urls_and_keys_are_looked_at),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests_name("plm over HTTP", tests, NULL, NULL);
}

#else
int main(void) {
    printf("# skipped: http: built without libcurl\nok 1 - http # SKIP built without libcurl\n");
    return 0;
}
#endif
