/* test_server_asking.c - decision services as boxes: through keyhole's own server they answer with
 * the bits of the model beside it; strangers are not believed; what was answered once is not asked
 * for again. */
#include "evil.h"
#include "site.h"

#include "base/alloc.h"
#include "base/json.h"
#include "plm/backend.h"
#include "plm/together.h"
#include "posterior/posterior.h"

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
        "answered nothing, and refused even the row at line 7 (\"the boats\")", 3);
}

/* ------------------------------------------------------------------------------ several prompts */

enum { PROMPTS = 3, TEXTS = 9 };

/* The tiny task under other templates. */
static const char *const TEMPLATES[PROMPTS] = { "{text} , the {mask} .", "the {mask} : {text}",
    "{text} ? {mask}" };

typedef struct prompts {
    const kh_task *task;
    kh_task own[PROMPTS];
    kh_words *words;
    kh_batch *batch[PROMPTS];
    kh_question q[PROMPTS];
    kh_row row[TEXTS];
    kh_dataset *data;
} prompts;

static void prompts_open(prompts *x, kh_plm *box) {
    const kh_tokenizer *tok = kh_plm_tokenizer(box);
    kh_batch_opts o = { .max_len = kh_plm_describe(box).max_len };
    *x = (prompts){ .task = tiny_task(), .data = tiny_rows(TEXTS, 5, -1) };
    memcpy(x->row, kh_dataset_rows(x->data), sizeof x->row);
    assert_int_equal(kh_words_new(&x->words, x->task, tok, false, NULL), 0);
    for (int k = 0; k < PROMPTS; k++) {
        x->own[k] = *x->task;
        x->own[k].plain = TEMPLATES[k];
        assert_int_equal(
            kh_batch_encode(&x->batch[k], tok, &x->own[k], x->words, x->row, TEXTS, &o, NULL), 0);
        x->q[k] = (kh_question){ x->batch[k], x->words, KH_INJECT_NONE, NULL, 1 };
    }
}

static void prompts_close(prompts *x) {
    for (int k = 0; k < PROMPTS; k++)
        kh_batch_free(x->batch[k]);
    kh_words_free(x->words);
    kh_dataset_close(x->data);
    kh_task_close(x->task);
}

static void prompts_share_a_request_and_keep_the_bits(void **state) {
    (void)state;
    enum { CELLS = PROMPTS * TEXTS * 2 };
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    float here[CELLS], there[CELLS];
    int label[PROMPTS * TEXTS];
    prompts x;
    kh_err err = { 0 };
    prompts_open(&x, s.plm);
    assert_false(kh_plm_shares(s.plm));
    assert_int_equal(
        kh_plm_score_together(kh_plm_scorer(s.plm, NULL), x.q, PROMPTS, here, NULL), 0);
    prompts_close(&x);
    for (int b = 0; b < 2; b++) {
        kh_plm *box = open_at(s.url, BACKENDS[b], KH_ACCESS_LOGPROBS, 0, &err);
        assert_true(kh_plm_shares(box));
        prompts_open(&x, box);
        if (kh_plm_score_together(kh_plm_scorer(box, NULL), x.q, PROMPTS, there, &err) != 0 ||
            kh_plm_answer_together(kh_plm_labeler(box, NULL), x.q, PROMPTS, label, &err) != 0)
            fail_msg("%s: %s", BACKENDS[b], err.msg);
        assert_memory_equal(here, there, sizeof here);
        for (int i = 0; i < PROMPTS * TEXTS; i++)
            assert_int_equal(label[i], here[2 * i + 1] > here[2 * i]);
        assert_int_equal(kh_plm_meter(box).queries, 2 * PROMPTS * TEXTS);
        assert_int_equal(kh_plm_meter(box).calls, 2);
        kh_batch *first = x.batch[1]; /* other rows: not to be asked together */
        kh_batch part = kh_batch_part(first, 1, TEXTS - 1);
        x.q[1].batch = &part;
        assert_int_equal(
            kh_plm_score_together(kh_plm_scorer(box, NULL), x.q, PROMPTS, there, &err), KH_EARG);
        assert_says(&err, "must be about the same rows");
        prompts_close(&x);
        kh_plm_close(box);
    }
    site_close(&s);
}

/* How often a text stands in the body that came last. */
static int times(const char *what) {
    int n = 0;
    const char *at = strstr(evil_request, "\r\n\r\n");
    for (; at && (at = strstr(at, what)) != NULL; at += strlen(what))
        n++;
    return n;
}

/* A good answer to each question of the request, but a refusal to those that `refuses` says. */
static const char *answer_all(bool (*refuses)(int question)) {
    static char body[1 << 16];
    int n = times("\"type\":\"choice\"");
    size_t at = (size_t)snprintf(body, sizeof body, "{\"model\":\"m\",\"answers\":[");
    for (int k = 0; k < n; k++) {
        char name[16];
        snprintf(name, sizeof name, k > 0 ? "q%d" : "q", k + 1);
        if (refuses && refuses(k))
            at += (size_t)snprintf(body + at, sizeof body - at,
                "%s{\"type\":\"refusal\",\"name\":\"%s\"}", k ? "," : "", name);
        else
            at += (size_t)snprintf(body + at, sizeof body - at,
                "%s{\"type\":\"choice\",\"name\":\"%s\",\"choice\":\"better\","
                "\"probabilities\":[" P("lower", "0.25") "," P("better", "0.75") "]}",
                k ? "," : "", name);
    }
    snprintf(body + at, sizeof body - at, "]}");
    return wrap(body);
}

static int asked_of[32]; /* questions of each request */
static bool second(int k) { return k == 1; }
static bool every(int k) { return k >= 0; }

/* The first request has its second question refused; so is it alone, twice; row 3 is refused
 * altogether. */
static const char *refuses_some(int n) {
    asked_of[n < 32 ? n : 31] = times("\"type\":\"choice\"");
    if (n == 0)
        return answer_all(second);
    return answer_all(n < 3 || (n > 4 && n < 8) ? every : NULL);
}
static const char *refuses_all(int n) { return n >= 0 ? answer_all(every) : NULL; }

static void a_refused_row_is_left_out(void **state) {
    (void)state;
    evil *e = evil_new(refuses_some, NULL);
    char url[64];
    kh_err err = { 0 };
    float got[PROMPTS * TEXTS * 2];
    prompts x;
    snprintf(url, sizeof url, "http://127.0.0.1:%d", e->port);
    kh_plm *box = open_at(url, "decisions", KH_ACCESS_LOGPROBS, 5, &err);
    prompts_open(&x, box);
    if (kh_plm_score_together(kh_plm_scorer(box, NULL), x.q, PROMPTS, got, &err) != 0)
        fail_msg("%s", err.msg);
    /* row 0 in three requests, of 3, 1 and 1 questions; row 3 in three of 3; the others in one */
    assert_int_equal(atomic_load(&e->scores), 3 + 2 + 3 + (TEXTS - 4));
    assert_true(asked_of[0] == 3 && asked_of[1] == 1 && asked_of[2] == 1 && asked_of[3] == 3);
    for (int k = 0; k < PROMPTS; k++)
        for (int i = 0; i < TEXTS; i++) {
            const float *p = got + 2 * (k * TEXTS + i);
            bool none = i == 3 || (i == 0 && k == 1);
            if (none != kh_is_missing(p) || (!none && fabsf(expf(p[0]) - 0.25f) > 1e-6f))
                fail_msg("prompt %d, row %d: %g", k, i, (double)p[0]);
        }
    kh_plm_close(box);
    evil_free(e);
    e = evil_new(refuses_all, NULL);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", e->port);
    box = open_at(url, "decisions", KH_ACCESS_LOGPROBS, 0, &err);
    assert_int_equal(
        kh_plm_score_together(kh_plm_scorer(box, NULL), x.q, PROMPTS, got, &err), KH_EIO);
    assert_says(&err, "in 1 tries, like every other row so far");
    assert_int_equal(atomic_load(&e->scores), 8);
    prompts_close(&x);
    kh_plm_close(box);
    evil_free(e);
}

static const char *answers_every(int n) { return n >= 0 ? answer_all(NULL) : NULL; }

/* Whatever allocation fails while questions are shared: out of memory, said so, and nothing else.
 */
static void sharing_survives_every_failed_allocation(void **state) {
    (void)state;
    evil *e = evil_new(answers_every, NULL);
    char url[64];
    kh_err err = { 0 };
    float got[PROMPTS * TEXTS * 2];
    prompts x;
    snprintf(url, sizeof url, "http://127.0.0.1:%d", e->port);
    kh_plm *box = open_at(url, "decisions", KH_ACCESS_LOGPROBS, 0, &err);
    prompts_open(&x, box);
    kh_scorer *scorer = kh_plm_scorer(box, NULL);
    kh_alloc_fail_at(0, false);
    assert_int_equal(kh_plm_score_together(scorer, x.q, PROMPTS, got, &err), 0);
    long n = kh_alloc_count();
    assert_true(n > 20);
    for (long i = 1; i <= n; i++) {
        kh_alloc_fail_at(i, i % 2);
        int rc = kh_plm_score_together(scorer, x.q, PROMPTS, got, &err);
        long made = kh_alloc_count(); /* buffers that have grown need no more */
        kh_alloc_fail_at(0, false);
        if (rc != KH_ENOMEM && (rc != 0 || made >= i))
            fail_msg("allocation %ld of %ld: %d, %s", i, n, rc, err.msg);
    }
    assert_int_equal(kh_plm_score_together(scorer, x.q, PROMPTS, got, &err), 0);
    prompts_close(&x);
    kh_plm_close(box);
    evil_free(e);
}

/* ------------------------------------------------------------------------------------- the journal
 */

static atomic_int ends_after; /* answers, and then nothing but closed connections */
static char *seen[400];
static int n_seen;

static bool with_refusals;

static const char *answers_some(int n) {
    (void)n;
    if (atomic_fetch_sub(&ends_after, 1) <= 0)
        return NULL;
    const char *body = strstr(evil_request, "\r\n\r\n");
    seen[n_seen++] = strdup(body ? body : "");
    return answer_all(with_refusals && n_seen % 10 == 7 ? every : NULL);
}

/* A run that the service leaves twice, and that goes on each time; answers of one round. */
static kh_posterior *three_turns(const char *method, const char *dir) {
    evil *e = evil_new(answers_some, NULL);
    char url[64];
    const kh_task *task = tiny_task();
    kh_dataset *train = tiny_rows(8, 1, -1), *dev = tiny_rows(40, 2, -1);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", e->port);
    kh_posterior *p = NULL;
    static const int LASTS[] = { 13, 9, 100 };
    for (int turn = 0, rc; turn < 3; turn++) {
        kh_err err = { 0 };
        kh_run *run;
        kh_tune_opts o = kh_tune_defaults();
        o.effort = KH_EFFORT_PAPER; /* the dev rows alone */
        kh_plm *box = open_at(url, "decisions", KH_ACCESS_LOGPROBS, 0, &err);
        atomic_store(&ends_after, LASTS[turn]);
        assert_int_equal(kh_run_open(&run, dir, &(kh_run_opts){ .resume = turn > 0 }, &err), 0);
        o.run = run;
        rc = kh_tune(&p, method, NULL, box, task, train, dev, &o, &err);
        if ((rc == 0) != (turn == 2))
            fail_msg("turn %d: %d, %s", turn, rc, err.msg);
        kh_run_close(run);
        kh_plm_close(box);
    }
    kh_dataset_close(train);
    kh_dataset_close(dev);
    kh_task_close(task);
    evil_free(e);
    tiny_remove(dir,
        (const char *const[]){
            "run.sqlite", "run.sqlite-wal", "run.sqlite-shm", "lock", "run.lock", NULL });
    return p;
}

static void nothing_is_paid_for_twice(void **state) {
    (void)state;
    char dir[80];
    snprintf(dir, sizeof dir, "/tmp/keyhole-test-asking-%ld", (long)getpid());
    for (int way = 0; way < 2; way++) {
        with_refusals = way == 1;
        n_seen = 0;
        kh_posterior *p = three_turns("manual", dir);
        /* refused in turns 0, 1 and 2: rows 6 and 16 of what was seen, and two more; each left out
         */
        assert_int_equal(n_seen, 40);
        assert_int_equal(p->calibrator.n, way == 0 ? 40 : 36);
        for (int i = 0; i < n_seen; i++)
            for (int k = 0; k < i; k++)
                assert_string_not_equal(seen[i], seen[k]);
        for (int i = 0; i < n_seen; i++)
            free(seen[i]);
        kh_posterior_free(p);
    }
}

/* ----------------------------------------------------------- a classifier whose service refuses */

static const char *refuses_secrets(int n) {
    (void)n;
    return answer_all(strstr(evil_request, "secret") ? every : NULL);
}

static kh_dataset *some_rows(const char *text, const kh_task *task) {
    kh_dataset *out;
    kh_err err;
    kh_dataset_opts o = { .task = task, .format = KH_FORMAT_TSV };
    if (kh_dataset_parse(&out, text, strlen(text), "rows", &o, &err) != 0)
        fail_msg("%s", err.msg);
    return out;
}

/* No label, no confidence, and every class may be the true one; never the last class. */
static void check_refused(const char *dir, kh_plm *box) {
    kh_classifier *c;
    kh_classified out[3];
    bool set[6];
    double p[6];
    kh_err err;
    kh_row rows[3] = { { .a = "the boats", .n_a = 9, .label = -1 },
        { .a = "a secret", .n_a = 8, .label = -1 }, { .a = "green", .n_a = 5, .label = -1 } };
    if (kh_classifier_open(&c, dir, box, &err) != 0 ||
        kh_classifier_run(c, rows, 3, out, p, set, &err) != 0)
        fail_msg("%s", err.msg);
    assert_true(out[0].label >= 0 && out[2].label >= 0 && isfinite(out[2].confidence));
    assert_true(out[1].label == -1 && out[1].abstain && isnan(out[1].confidence));
    assert_true(isnan(p[2]) && isnan(p[3]) && set[2] && set[3]);
    kh_classifier_close(c);
}

static void refused_rows_have_no_class_and_are_not_judged(void **state) {
    (void)state;
    evil *e = evil_new(refuses_secrets, NULL);
    char url[64], dir[80];
    kh_err err = { 0 };
    const kh_task *task = tiny_task();
    kh_dataset *train = tiny_rows(8, 1, -1), *dev = tiny_rows(12, 2, -1);
    kh_dataset *test =
        some_rows("label\ttext\n0\tone boat\n1\ta secret\n1\ttwo boats\n0\tthree\n", task);
    kh_tune_opts o = kh_tune_defaults();
    kh_posterior *p;
    kh_eval *judged;
    snprintf(url, sizeof url, "http://127.0.0.1:%d", e->port);
    snprintf(dir, sizeof dir, "/tmp/keyhole-test-asking-%ld", (long)getpid());
    kh_plm *box = open_at(url, "decisions", KH_ACCESS_LOGPROBS, 0, &err);
    o.effort = KH_EFFORT_PAPER;
    if (kh_tune(&p, "manual", NULL, box, task, train, dev, &o, &err) != 0 ||
        kh_posterior_save(p, dir, &err) != 0)
        fail_msg("%s", err.msg);
    check_refused(dir, box);
    kh_eval_opts how = kh_eval_defaults();
    how.test = test, how.dev = dev, how.bootstrap.n_resample = 0;
    if (kh_eval_new(&judged, p, box, &how, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(kh_eval_describe(judged).rows, 3);
    kh_eval_free(judged);
    kh_dataset *none = some_rows("label\ttext\n0\ta secret\n1\tsecret too\n", task);
    how.test = none;
    assert_int_equal(kh_eval_new(&judged, p, box, &how, &err), KH_EIO);
    assert_says(&err, "the service answered none of the 2 rows");
    kh_dataset_close(none);
    kh_dataset_close(test);
    kh_dataset_close(train);
    kh_dataset_close(dev);
    kh_posterior_free(p);
    kh_task_close(task);
    kh_plm_close(box);
    evil_free(e);
    tiny_remove(dir, (const char *const[]){ "posterior.json", "posterior.safetensors", NULL });
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
        cmocka_unit_test(prompts_share_a_request_and_keep_the_bits),
        cmocka_unit_test(a_refused_row_is_left_out),
        cmocka_unit_test(sharing_survives_every_failed_allocation),
        cmocka_unit_test(nothing_is_paid_for_twice),
        cmocka_unit_test(refused_rows_have_no_class_and_are_not_judged),
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
