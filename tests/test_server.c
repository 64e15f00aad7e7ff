/* test_server.c - the server and keyhole's own client over loopback: the same bits as without a
 * wire, the access level kept, and requests that mean no good survived. */
#include "site.h"

#include "posterior/posterior.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

#ifdef KH_WITH_MHD

enum { SLOTS = 4, PROMPTS = 9, ROWS = 7 };

/* ------------------------------------------------------------------------------------ fixtures */

static kh_plm *client_open(const site *s, kh_access access) {
    kh_plm *p;
    kh_err err;
    if (kh_plm_open(&p, s->url, &(kh_plm_opts){ .access = access }, &err) != 0)
        fail_msg("%s", err.msg);
    return p;
}

/* A question about rows for a box; with labels of one word, of several, or of several tokens. */
typedef struct asked {
    const kh_task *task;
    kh_words *words;
    kh_batch *batch;
    float *prompt;
    kh_question q;
} asked;

static const char *const TASKS[] = {
    TINY_TASK,
    "{\"name\":\"many\",\"template\":\"{text} It was {mask} "
    ".\",\"labels\":[{\"name\":\"bad\",\"words\":[\"lower\",\"e\"]},"
    "{\"name\":\"good\",\"words\":[\"better\",\"t\"]},{\"name\":\"odd\",\"words\":[\"a\"]}]}",
    "{\"name\":\"long\",\"template\":\"{text} It was {mask} "
    ".\",\"labels\":[{\"name\":\"bad\",\"words\":[\"slower than\"]},"
    "{\"name\":\"good\",\"words\":[\"better\"]}]}",
};

static asked asked_new(kh_plm *box, const char *json, kh_inject inject) {
    asked a = { 0 };
    kh_err err = { 0 };
    static int32_t slot_id[SLOTS] = { 20, 21, 22, 23 };
    kh_row row[ROWS];
    char text[ROWS][64];
    kh_rng r = kh_rng_stream(4, KH_RNG_TEST, 0, 0);
    for (int i = 0; i < ROWS; i++) {
        int n = snprintf(text[i], sizeof text[i], "row %d of %u%s", i, kh_rng_below(&r, 100000),
            i % 2 ? " and more of it" : "");
        row[i] = (kh_row){ .a = text[i], .n_a = (size_t)n, .label = 0 };
    }
    kh_batch_opts o = { .max_len = kh_plm_describe(box).max_len,
        .n_slot = inject == KH_INJECT_NONE ? 0 : SLOTS,
        .slot_id = slot_id,
        .placement = inject == KH_INJECT_EMBED_PREFIX ? KH_SLOTS_PREFIX : KH_SLOTS_TEMPLATE };
    if (kh_task_parse(&a.task, json, strlen(json), "task", &err) != 0 ||
        kh_words_new(&a.words, a.task, kh_plm_tokenizer(box), false, &err) != 0 ||
        kh_batch_encode(&a.batch, kh_plm_tokenizer(box), a.task, a.words, row, ROWS, &o, &err) != 0)
        fail_msg("%s", err.msg);
    size_t n = (size_t)PROMPTS * SLOTS * (size_t)kh_plm_describe(box).hidden;
    a.prompt = malloc(n * sizeof *a.prompt);
    for (size_t i = 0; i < n; i++)
        a.prompt[i] = (float)kh_rng_normal(&r);
    a.q = (kh_question){ a.batch, a.words, inject, inject == KH_INJECT_NONE ? NULL : a.prompt,
        PROMPTS };
    return a;
}

static void asked_free(asked *a) {
    free(a->prompt);
    kh_batch_free(a->batch);
    kh_words_free(a->words);
    kh_task_close(a->task);
}

/* ------------------------------------------------------------------------------- the same bits */

static void log_probabilities_have_the_bits_of_the_native_box(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    kh_plm *native = tiny_open(KH_ACCESS_LOGPROBS), *http = client_open(&s, KH_ACCESS_LOGPROBS);
    for (int t = 0; t < 3; t++)
        for (int inject = KH_INJECT_NONE; inject <= KH_INJECT_EMBED_INPLACE; inject++) {
            asked a = asked_new(native, TASKS[t], (kh_inject)inject),
                  b = asked_new(http, TASKS[t], (kh_inject)inject);
            float one[PROMPTS * ROWS * 3] = { 0 }, two[PROMPTS * ROWS * 3] = { 0 };
            int label[PROMPTS * ROWS] = { 0 }, same[PROMPTS * ROWS] = { 0 };
            kh_err err;
            assert_int_equal(kh_plm_score(kh_plm_scorer(native, NULL), &a.q, one, &err), 0);
            if (kh_plm_score(kh_plm_scorer(http, NULL), &b.q, two, &err) != 0)
                fail_msg("%s", err.msg);
            assert_memory_equal(one, two, sizeof one);
            float energy[PROMPTS * ROWS] = { 0 }, twin[PROMPTS * ROWS] = { 0 };
            assert_int_equal(
                kh_plm_score_energy(kh_plm_scorer(native, NULL), &a.q, one, energy, &err), 0);
            if (kh_plm_score_energy(kh_plm_scorer(http, NULL), &b.q, two, twin, &err) != 0)
                fail_msg("%s", err.msg);
            assert_memory_equal(one, two, sizeof one);
            assert_memory_equal(energy, twin, sizeof energy);
            assert_true(energy[0] != energy[1]);
            assert_int_equal(kh_plm_answer(kh_plm_labeler(native, NULL), &a.q, label, &err), 0);
            assert_int_equal(kh_plm_answer(kh_plm_labeler(http, NULL), &b.q, same, &err), 0);
            assert_memory_equal(label, same, sizeof label);
            asked_free(&a);
            asked_free(&b);
        }
    assert_int_equal(kh_plm_meter(native).queries, kh_plm_meter(http).queries);
    kh_plm_close(native);
    kh_plm_close(http);
    site_close(&s);
}

static void a_service_describes_the_model_behind_it(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    kh_plm *native = tiny_open(KH_ACCESS_LOGPROBS), *http = client_open(&s, KH_ACCESS_WEIGHTS);
    kh_plm_info a = kh_plm_describe(native), b = kh_plm_describe(http);
    assert_int_equal(a.fingerprint, b.fingerprint);
    assert_int_equal(a.hidden, b.hidden);
    assert_int_equal(a.max_len, b.max_len);
    assert_string_equal(a.backend, b.backend);
    assert_string_equal(a.kernels, b.kernels);
    assert_string_equal(b.model, "tiny");
    assert_int_equal(b.access, KH_ACCESS_LOGPROBS); /* no more than the service has */
    double m[2], d[2];
    float x[32], y[32];
    assert_int_equal(kh_plm_embedding_stats(native, &m[0], &d[0], NULL), 0);
    assert_int_equal(kh_plm_embedding_stats(http, &m[1], &d[1], NULL), 0);
    assert_true(m[0] == m[1] && d[0] == d[1]);
    assert_int_equal(kh_plm_embedding_row(native, 33, x, NULL), 0);
    assert_int_equal(kh_plm_embedding_row(http, 33, y, NULL), 0);
    assert_memory_equal(x, y, sizeof x);
    kh_err err;
    assert_int_equal(kh_plm_embedding_row(http, 1 << 20, y, &err), KH_EARG);
    assert_says(&err, "outside the model's vocabulary");
    kh_plm_close(native);
    kh_plm_close(http);
    site_close(&s);
}

/* Both files of a posterior tuned by a box, one after the other. */
static kh_buf tune(kh_plm *box, const char *method, const char *model) {
    static const char *const SET[] = { "budget-generations=5", "pop=6", "dev-every=2", NULL };
    kh_tune_opts o = kh_tune_defaults();
    const kh_task *task = tiny_task();
    kh_dataset *train = tiny_rows(8, 1, -1), *dev = tiny_rows(8, 2, -1);
    kh_posterior *p;
    kh_err err;
    char dir[80], path[128];
    snprintf(dir, sizeof dir, "/tmp/keyhole-test-wire-%ld", (long)getpid());
    o.space = tiny_space();
    o.seed = 7;
    o.model = model;
    if (kh_tune(&p, method, strcmp(method, "bbt") == 0 ? SET : NULL, box, task, train, dev, &o,
            &err) != 0 ||
        kh_posterior_save(p, dir, &err) != 0)
        fail_msg("%s", err.msg);
    static const char *const FILES[] = { "posterior.json", "posterior.safetensors" };
    kh_buf all = kh_buf_init(KH_BUF_MAX), one;
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, FILES[i]);
        assert_int_equal(kh_file_read(path, 1 << 20, &one, NULL), 0);
        kh_buf_bytes(&all, one.data, one.len);
        kh_buf_free(&one);
        unlink(path);
    }
    rmdir(dir);
    kh_posterior_free(p);
    kh_dataset_close(train);
    kh_dataset_close(dev);
    kh_task_close(task);
    return all;
}

static void tuning_through_the_server_gives_the_same_files(void **state) {
    (void)state;
    static const struct {
        const char *method;
        kh_access access;
    } CASES[] = { { "bbt", KH_ACCESS_LOGPROBS }, { "manual", KH_ACCESS_LABELS },
        { "icl", KH_ACCESS_LABELS } };
    for (int i = 0; i < 3; i++) {
        site s = site_open(CASES[i].access, NULL);
        kh_plm *native = tiny_open(CASES[i].access), *http = client_open(&s, CASES[i].access);
        kh_buf a = tune(native, CASES[i].method, "tiny"), b = tune(http, CASES[i].method, s.url);
        assert_int_equal(a.len, b.len);
        assert_string_equal(a.data, b.data);
        assert_memory_equal(a.data, b.data, a.len);
        assert_null(strstr(b.data, "127.0.0.1"));
        kh_buf_free(&a);
        kh_buf_free(&b);
        kh_plm_close(native);
        kh_plm_close(http);
        site_close(&s);
    }
}

/* Many clients at once, each with prompts of its own about the same rows: joined, and still each
 * its own answer. */
typedef struct one_client {
    pthread_t thread;
    const site *s;
    float *got;
    int shift, failed;
} one_client;

static void *run_client(void *self) {
    one_client *c = self;
    kh_plm *http = client_open(c->s, KH_ACCESS_LOGPROBS);
    asked a = asked_new(http, TINY_TASK, KH_INJECT_POST_LN_ADD);
    for (int i = 0; i < PROMPTS * SLOTS * 32; i++)
        a.prompt[i] += (float)c->shift;
    for (int k = 0; k < 5; k++)
        c->failed |= kh_plm_score(kh_plm_scorer(http, NULL), &a.q, c->got, NULL);
    asked_free(&a);
    kh_plm_close(http);
    return NULL;
}

static void clients_do_not_get_each_others_answers(void **state) {
    (void)state;
    enum { CLIENTS = 8 };
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    kh_plm *native = tiny_open(KH_ACCESS_LOGPROBS);
    one_client c[CLIENTS];
    static float got[CLIENTS][PROMPTS * ROWS * 2], want[PROMPTS * ROWS * 2];
    for (int i = 0; i < CLIENTS; i++) {
        c[i] = (one_client){ .s = &s, .got = got[i], .shift = i };
        pthread_create(&c[i].thread, NULL, run_client, &c[i]);
    }
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(c[i].thread, NULL);
    for (int i = 0; i < CLIENTS; i++) {
        asked a = asked_new(native, TINY_TASK, KH_INJECT_POST_LN_ADD);
        for (int k = 0; k < PROMPTS * SLOTS * 32; k++)
            a.prompt[k] += (float)i;
        assert_int_equal(c[i].failed, 0);
        assert_int_equal(kh_plm_score(kh_plm_scorer(native, NULL), &a.q, want, NULL), 0);
        assert_memory_equal(want, got[i], sizeof want);
        asked_free(&a);
    }
    kh_plm_close(native);
    site_close(&s);
}

/* Limits so low that a question must be cut into many requests, by prompts and by rows. */
static void questions_are_cut_to_the_limits_of_the_service(void **state) {
    (void)state;
    kh_server_opts o = kh_server_defaults();
    o.prompts = 2;
    o.rows = 3;
    o.tokens = 140;
    site s = site_open(KH_ACCESS_LOGPROBS, &o);
    kh_plm *native = tiny_open(KH_ACCESS_LOGPROBS), *http = client_open(&s, KH_ACCESS_LOGPROBS);
    asked a = asked_new(native, TASKS[2], KH_INJECT_EMBED_PREFIX);
    float one[PROMPTS * ROWS * 2], two[PROMPTS * ROWS * 2];
    kh_err err;
    assert_int_equal(kh_plm_score(kh_plm_scorer(native, NULL), &a.q, one, NULL), 0);
    if (kh_plm_score(kh_plm_scorer(http, NULL), &a.q, two, &err) != 0)
        fail_msg("%s", err.msg);
    assert_memory_equal(one, two, sizeof one);
    asked_free(&a);
    kh_plm_close(native);
    kh_plm_close(http);
    site_close(&s);
}

/* -------------------------------------------------------------------------------------- access */

#define TOY_BY_TEXT \
    "\"task\":{\"name\":\"toy\",\"template\":\"{text} It was {mask} " \
    ".\",\"labels\":[{\"name\":\"bad\",\"words\":[\"lower\"]}," \
    "{\"name\":\"good\",\"words\":[\"better\"]}]},\"texts\":[\"the boats\",\"were green\"]"

static void texts_are_answered_too(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    assert_int_equal(
        ask(&s, "POST", "/v1/score", "", "{" TOY_BY_TEXT "}", answer, sizeof answer), 200);
    assert_non_null(strstr(answer, "\"want\":\"logprobs\",\"shape\":[1,2,2],\"logprobs\":[[[-"));
    assert_null(strstr(answer, "energy"));
    assert_int_equal(ask(&s, "POST", "/v1/score", "", "{\"want\":\"energies\"," TOY_BY_TEXT "}",
                         answer, sizeof answer),
        200);
    assert_non_null(strstr(answer, "\"want\":\"energies\",\"shape\":[1,2,2],\"logprobs\":[[[-"));
    const char *energy = strstr(answer, "]],\"energy\":[[");
    double x[2];
    assert_non_null(energy);
    assert_int_equal(sscanf(energy, "]],\"energy\":[[%lf,%lf]]}", &x[0], &x[1]), 2);
    assert_int_equal(ask(&s, "POST", "/v1/score", "", "{\"want\":\"labels\"," TOY_BY_TEXT "}",
                         answer, sizeof answer),
        200);
    assert_non_null(strstr(answer, "\"shape\":[1,2],\"labels\":["));
    site_close(&s);
}

static void labels_only_means_labels_only(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LABELS, NULL);
    assert_int_equal(ask(&s, "POST", "/v1/score", "", "{\"want\":\"logprobs\"," TOY_BY_TEXT "}",
                         answer, sizeof answer),
        403);
    assert_non_null(strstr(answer, "--access labels and lets no probability out"));
    assert_int_equal(ask(&s, "POST", "/v1/score", "", "{\"want\":\"energies\"," TOY_BY_TEXT "}",
                         answer, sizeof answer),
        403);
    assert_int_equal(ask(&s, "GET", "/v1/model", "", "", answer, sizeof answer), 200);
    assert_non_null(strstr(answer, "\"energy\":false"));
    assert_int_equal(ask(&s, "POST", "/v1/score", "", "{\"encoding\":\"base64\"," TOY_BY_TEXT "}",
                         answer, sizeof answer),
        200);
    assert_null(strstr(answer, "logprob"));
    assert_null(strstr(answer, "\"data\""));
    kh_plm *http = client_open(&s, KH_ACCESS_LOGPROBS);
    kh_err err;
    assert_null(kh_plm_scorer(http, &err)); /* found out before the first query */
    assert_says(&err, "access level labels");
    kh_plm_close(http);
    site_close(&s);
}

static void hidden_states_go_out_at_their_own_level(void **state) {
    (void)state;
    static const char BODY[] = "{\"input\":[\"the boats\",\"were green <mask>\"]}";
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    assert_int_equal(ask(&s, "POST", "/v1/embeddings", "", BODY, answer, sizeof answer), 403);
    assert_non_null(strstr(answer, "hidden states go out at --access embeddings only"));
    kh_server *open;
    kh_server_opts o = kh_server_defaults();
    o.port = 0;
    assert_int_equal(
        kh_server_start(&open,
            &(kh_served){ .plm = s.plm, .name = "tiny", .dir = tiny_dir, .embeddings = true }, &o,
            NULL),
        0);
    kh_server_stop(s.server);
    s.server = open;
    assert_int_equal(ask(&s, "POST", "/v1/embeddings", "", BODY, answer, sizeof answer), 200);
    assert_non_null(strstr(answer, "\"index\":1,\"embedding\":["));
    assert_int_equal(
        ask(&s, "POST", "/v1/embeddings", "", "{\"input\":[1]}", answer, sizeof answer), 400);
    assert_int_equal(
        ask(&s, "POST", "/v1/embeddings", "", "{\"input\":[]}", answer, sizeof answer), 400);
    site_close(&s);
}

/* Slots from the first place to the last: the text is empty, and that is an answer, too. */
static void a_prompt_may_be_all_there_is(void **state) {
    (void)state;
    char body[2048], data[512];
    memset(data, 'A', sizeof data);
    data[(2 * 32 * 2 + 2) / 3 * 4 - 1] = '=';
    data[(2 * 32 * 2 + 2) / 3 * 4] = '\0';
    snprintf(body, sizeof body,
        "{\"inject\":\"embed-prefix\",\"prompts\":{\"dtype\":\"bf16\",\"shape\":[1,2,32],\"data\":"
        "\"%s\"},\"ids\":[[5,6]],\"mask\":"
        "[1],\"slot\":[0],"
        "\"labels\":[[[7]],[[8]]]}",
        data);
    site s = site_open(KH_ACCESS_LABELS, NULL);
    int status = ask(&s, "POST", "/v1/score", "", body, answer, sizeof answer);
    if (status != 200)
        fail_msg("%s", answer);
    site_close(&s);
}

static void a_token_is_asked_for(void **state) {
    (void)state;
    kh_server_opts o = kh_server_defaults();
    o.token_file = test_file("token", "tiny-secret\n", 12);
    site s = site_open(KH_ACCESS_LABELS, &o);
    static const char *const WRONG[] = { "", "Authorization: Bearer \r\n",
        "Authorization: Bearer tiny-secre\r\n", "Authorization: Bearer tiny-secret2\r\n",
        "Authorization: Basic tiny-secret\r\n",
        "Authorization: Bearer tiny-secrettiny-secret\r\n" };
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++)
        assert_int_equal(ask(&s, "GET", "/v1/model", WRONG[i], "", answer, sizeof answer), 401);
    assert_int_equal(ask(&s, "POST", "/v1/score", "", "{}", answer, sizeof answer), 401);
    assert_int_equal(ask(&s, "GET", "/metrics", "", "", answer, sizeof answer), 401);
    assert_int_equal(ask(&s, "GET", "/health", "", "", answer, sizeof answer), 200);
    assert_int_equal(ask(&s, "GET", "/v1/model", "Authorization: Bearer tiny-secret\r\n", "",
                         answer, sizeof answer),
        200);
    kh_plm *http;
    kh_err err;
    assert_int_equal(kh_plm_open(&http, s.url, &(kh_plm_opts){ 0 }, &err), KH_EUNSUPPORTED);
    assert_says(&err,
        "answered HTTP 401: this server wants a bearer token; --key-file or KEYHOLE_API_KEY gives "
        "the key");
    kh_http_opts h = kh_http_defaults();
    h.key_file = test_file("wrong", "wrong-key", 9);
    assert_int_equal(
        kh_plm_open(&http, s.url, &(kh_plm_opts){ .http = &h }, &err), KH_EUNSUPPORTED);
    assert_null(strstr(err.msg, "wrong-key"));
    unlink(h.key_file);
    h.key_file = o.token_file;
    assert_int_equal(kh_plm_open(&http, s.url, &(kh_plm_opts){ .http = &h }, &err), 0);
    kh_plm_close(http);
    unlink(o.token_file);
    site_close(&s);
}

/* ------------------------------------------------------------------------------- no good meant */

static void malformed_questions_are_refused_with_a_reason(void **state) {
    (void)state;
    static const struct {
        const char *body, *says;
        int status;
    } CASES[] = {
        { "", "request", 400 },
        { "[]", "must be an object", 400 },
        { "{}", "must hold either", 400 },
        { "{\"ids\":[[1]],\"ids\":[[1]]}", "request", 400 },
        { "{\"want\":\"weights\",\"ids\":[]}", "must be labels, logprobs or energies", 400 },
        { "{\"encoding\":\"xml\",\"ids\":[]}", "must be json or base64", 400 },
        { "{\"ids\":[[0,5,2]],\"mask\":[1],\"labels\":[[[7]]]}", "2 to 4096 arrays", 400 },
        { "{\"ids\":[[0,5,2]],\"mask\":[1],\"labels\":[[[7]],[]]}", "label 1 has no words", 400 },
        { "{\"ids\":[[0,5,2]],\"mask\":[1],\"labels\":[[[7]],[[]]]}", "has no tokens", 400 },
        { "{\"ids\":[[0,5,2]],\"mask\":[1],\"labels\":[[[7]],[[8,9]]]}", "must name the lengths",
            400 },
        { "{\"ids\":[[0,5,2]],\"mask\":[1],\"labels\":[[[7]],[[99999]]]}",
            "\\\"labels\\\" must be a whole number from 0 to 660", 400 },
        { "{\"ids\":[[0,5,99999]],\"mask\":[1],\"labels\":[[[7]],[[8]]]}",
            "number 2 of \\\"ids\\\"", 400 },
        { "{\"ids\":[[0,5.5,2]],\"mask\":[1],\"labels\":[[[7]],[[8]]]}", "number 1 of \\\"ids\\\"",
            400 },
        { "{\"ids\":[[]],\"mask\":[0],\"labels\":[[[7]],[[8]]]}", "sequence 0 has no tokens", 400 },
        { "{\"ids\":[[0,5,2]],\"mask\":[3],\"labels\":[[[7]],[[8]]]}", "has its masks at 3", 400 },
        { "{\"ids\":[[0,5,2]],\"mask\":[1,1],\"labels\":[[[7]],[[8]]]}", "at most 1 whole numbers",
            400 },
        { "{\"ids\":[[0,5,2]],\"mask\":[],\"labels\":[[[7]],[[8]]]}",
            "a number for each of 1 sequences", 400 },
        { "{\"ids\":[],\"mask\":[],\"labels\":[[[7]],[[8]]]}", "must hold 1 to 4096 rows", 400 },
        { "{\"prompts\":{\"shape\":[1,1,32],\"data\":\"AAAA\"},\"ids\":[[0,5,2]],\"mask\":[1],"
          "\"labels\":[[[7]],[[8]]]}",
            "must be base64 of 128 bytes", 400 },
        { "{\"prompts\":{\"shape\":[1,1,2],\"data\":\"AAAAAAAAAAA=\"},\"ids\":[[0,5,2]],\"mask\":["
          "1],\"labels\":[[[7]],[[8]]]}",
            "at most 128 rows of 32", 400 },
        { "{\"prompts\":{\"shape\":[1,1,2],\"data\":\"AAAAAAA "
          "AAA=\"},\"ids\":[[0,5,2]],\"mask\":[1],\"labels\":[[[7]],[[8]]]}",
            "not base64", 400 },
        { "{\"prompts\":{\"shape\":[1,1,2147483648],\"data\":\"\"},\"ids\":[[0]]}",
            "a whole number from 1", 400 },
        { "{\"prompts\":{\"shape\":[2147483647,2147483647,2147483647],\"data\":\"\"},\"ids\":[[0]]"
          "}",
            "holds more than", 413 },
        { "{\"prompts\":{\"dtype\":\"f64\",\"shape\":[1,1,1],\"data\":\"\"},\"ids\":[[0]]}",
            "must be f32, f16 or bf16", 400 },
        { "{\"prompts\":7,\"ids\":[[0]]}", "must be an object with", 400 },
        { "{\"inject\":\"none\",\"prompts\":{\"shape\":[1,1,1],\"data\":\"\"},\"ids\":[[0]]}",
            "\\\"inject\\\" must be", 400 },
        { "{\"task\":\"/etc/passwd\",\"texts\":[\"a\"]}", "the name of a built-in task", 400 },
        { "{\"task\":\"sst2\",\"texts\":[[\"a\",\"b\"]]}", "must be a string", 400 },
        { "{\"task\":\"rte\",\"texts\":[\"a\"]}", "an array of two strings", 400 },
        { "{\"task\":\"sst2\",\"texts\":[]}", "must hold 1 to 4096 texts", 400 },
    };
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        int status = ask(&s, "POST", "/v1/score", "", CASES[i].body, answer, sizeof answer);
        if (status != CASES[i].status || !strstr(answer, CASES[i].says))
            fail_msg("%s: HTTP %d: %s", CASES[i].body, status, answer);
    }
    assert_int_equal(ask(&s, "GET", "/v1/embedding?id=x", "", "", answer, sizeof answer), 400);
    assert_int_equal(ask(&s, "GET", "/v1/embedding", "", "", answer, sizeof answer), 400);
    site_close(&s);
}

/* NaN in f32, f16 and bf16. */
static void prompts_that_are_no_numbers_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *type;
        unsigned char bytes[4];
        int size;
    } CASES[] = { { "f32", { 0, 0, 0xC0, 0x7F }, 4 }, { "f16", { 0, 0x7E }, 2 },
        { "bf16", { 0xC0, 0x7F }, 2 }, { "f32", { 0, 0, 0x80, 0x7F }, 4 } };
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char body[1024], data[256] = "";
        static const char L[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        unsigned char raw[128 + 2] = { 0 };
        for (int k = 0; k < 32; k++)
            memcpy(raw + k * CASES[i].size, CASES[i].bytes, (size_t)CASES[i].size);
        int n = 32 * CASES[i].size, at = 0;
        for (int k = 0; k < n; k += 3, at += 4) {
            unsigned v = (unsigned)raw[k] << 16 | (unsigned)raw[k + 1] << 8 | raw[k + 2];
            data[at] = L[v >> 18], data[at + 1] = L[v >> 12 & 63];
            data[at + 2] = k + 1 < n ? L[v >> 6 & 63] : '=';
            data[at + 3] = k + 2 < n ? L[v & 63] : '=';
        }
        data[at] = '\0';
        snprintf(body, sizeof body,
            "{\"prompts\":{\"dtype\":\"%s\",\"shape\":[1,1,32],\"data\":\"%s\"},\"ids\":[[0,5,2]],"
            "\"mask\":[2],\"slot\":[1],"
            "\"labels\":[[[7]],[[8]]]}",
            CASES[i].type, data);
        assert_int_equal(ask(&s, "POST", "/v1/score", "", body, answer, sizeof answer), 400);
        assert_non_null(strstr(answer, "prompt 0 holds NaN or infinity"));
    }
    site_close(&s);
}

static void paths_lead_nowhere_else(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LABELS, NULL);
    static const char *const PATHS[] = { "/../../../../etc/passwd", "/v1/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/v1/tokenizer/../config.json",
        "/model.safetensors", "/v1/score/", "/V1/MODEL", "/." };
    for (size_t i = 0; i < sizeof PATHS / sizeof PATHS[0]; i++) {
        int status = ask(&s, "GET", PATHS[i], "", "", answer, sizeof answer);
        if (status != 404 || strstr(answer, "root:"))
            fail_msg("%s: HTTP %d: %s", PATHS[i], status, answer);
    }
    assert_int_equal(ask(&s, "DELETE", "/v1/model", "", "", answer, sizeof answer), 405);
    assert_int_equal(ask(&s, "GET", "/v1/score", "", "", answer, sizeof answer), 405);
    site_close(&s);
}

static bool is_alive(const site *s) {
    return ask(s, "GET", "/health", "", "", answer, sizeof answer) == 200;
}

static void heads_and_bodies_have_limits(void **state) {
    (void)state;
    kh_server_opts o = kh_server_defaults();
    o.body_mb = 1;
    site s = site_open(KH_ACCESS_LABELS, &o);
    int port = kh_server_port(s.server);
    size_t n = 300000;
    char *big = malloc(3 << 20);
    int k = snprintf(big, n, "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: ");
    memset(big + k, 'a', n - (size_t)k);
    memcpy(big + n - 4, "\r\n\r\n", 4);
    talk(port, big, n, answer, sizeof answer, 20);
    assert_true(answer[0] == '\0' || strstr(answer, " 431 ") || strstr(answer, " 413 ") ||
        strstr(answer, " 414 "));
    assert_true(is_alive(&s));
    /* said to be too large */
    k = snprintf(big, n,
        "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\nContent-Length: 99999999999\r\n\r\n");
    talk(port, big, (size_t)k, answer, sizeof answer, 20);
    assert_non_null(strstr(answer, " 413 "));
    assert_non_null(strstr(answer, "at most 1048576 are taken"));
    /* in chunks, without saying so */
    k = snprintf(big, n,
        "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\nTransfer-Encoding: chunked\r\n\r\n180000\r\n");
    memset(big + k, 'a', 0x180000);
    memcpy(big + k + 0x180000, "\r\n0\r\n\r\n", 7);
    talk(port, big, (size_t)k + 0x180000 + 7, answer, sizeof answer, 20);
    assert_true(answer[0] == '\0' || strstr(answer, " 413 "));
    assert_true(is_alive(&s));
    /* no HTTP at all */
    talk(port, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11, answer, sizeof answer, 1);
    talk(port, "GET\r\n\r\n\r\n", 9, answer, sizeof answer, 1);
    assert_true(is_alive(&s));
    free(big);
    site_close(&s);
}

/* Connections that send a byte now and then, in the head or in the body, are ended on time. */
static void slow_connections_are_ended(void **state) {
    (void)state;
    kh_server_opts o = kh_server_defaults();
    o.header_time = 0.6;
    o.body_time = 0.6;
    o.idle_time = 0.6;
    site s = site_open(KH_ACCESS_LABELS, &o);
    static const char *const STARTS[] = { "GET /health HTTP/1.1\r\nX: ",
        "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\nContent-Length: 1000\r\n\r\n",
        "" };
    int fd[3];
    struct sockaddr_in a = { .sin_family = AF_INET,
        .sin_port = htons((uint16_t)kh_server_port(s.server)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    for (int i = 0; i < 3; i++) {
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(fd[i], (struct sockaddr *)&a, sizeof a), 0);
        assert_true(send(fd[i], STARTS[i], strlen(STARTS[i]), MSG_NOSIGNAL) >= 0);
    }
    for (int i = 0; i < 3; i++) {
        bool ended = false;
        for (int k = 0; k < 100 && !ended; k++) {
            char c;
            if (STARTS[i][0])
                send(fd[i], "a", 1, MSG_NOSIGNAL);
            nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
            ended = recv(fd[i], &c, 1, MSG_DONTWAIT) == 0 || send(fd[i], "", 0, MSG_NOSIGNAL) < 0;
        }
        assert_true(ended);
        close(fd[i]);
    }
    assert_true(is_alive(&s));
    site_close(&s);
}

/* With one place in the queue and many at the door, some are told to come again; the client does,
 * and gets its answers. */
static void a_full_queue_says_429_and_clients_come_again(void **state) {
    (void)state;
    kh_server_opts o = kh_server_defaults();
    o.queue = 1;
    o.tokens = 400;
    site s = site_open(KH_ACCESS_LOGPROBS, &o);
    kh_plm *native = tiny_open(KH_ACCESS_LOGPROBS);
    kh_http_opts h = kh_http_defaults();
    h.in_flight = 16;
    h.retries = 100;
    kh_plm *http;
    assert_int_equal(
        kh_plm_open(&http, s.url, &(kh_plm_opts){ .access = KH_ACCESS_LOGPROBS, .http = &h }, NULL),
        0);
    asked a = asked_new(native, TASKS[0], KH_INJECT_POST_LN_ADD);
    float one[PROMPTS * ROWS * 2], two[PROMPTS * ROWS * 2];
    kh_err err;
    assert_int_equal(kh_plm_score(kh_plm_scorer(native, NULL), &a.q, one, NULL), 0);
    if (kh_plm_score(kh_plm_scorer(http, NULL), &a.q, two, &err) != 0)
        fail_msg("%s", err.msg);
    assert_memory_equal(one, two, sizeof one);
    assert_int_equal(kh_plm_meter(http).queries,
        PROMPTS * ROWS); /* each counted once, however often it was tried */
    asked_free(&a);
    kh_plm_close(native);
    kh_plm_close(http);
    site_close(&s);
}

static void metrics_count(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LABELS, NULL);
    assert_int_equal(
        ask(&s, "POST", "/v1/score", "", "{" TOY_BY_TEXT "}", answer, sizeof answer), 200);
    assert_int_equal(ask(&s, "GET", "/nothing", "", "", answer, sizeof answer), 404);
    assert_int_equal(ask(&s, "GET", "/metrics", "", "", answer, sizeof answer), 200);
    assert_non_null(strstr(answer, "\nkeyhole_queries_total 2\n"));
    assert_non_null(strstr(answer, "\nkeyhole_requests_total{status=\"4xx\"} 1\n"));
    assert_non_null(strstr(answer, "text/plain; version=0.0.4"));
    site_close(&s);
}

static void what_cannot_be_started_says_why(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LABELS, NULL);
    kh_server *other;
    kh_err err;
    kh_served what = { .plm = s.plm, .name = "tiny", .dir = tiny_dir };
    kh_server_opts o = kh_server_defaults();
    o.port = 0;
    o.host = "nowhere";
    assert_int_equal(kh_server_start(&other, &what, &o, &err), KH_EARG);
    assert_says(&err, "\"nowhere\" is no address to listen on");
    o.host = "203.0.113.7";
    assert_int_equal(kh_server_start(&other, &what, &o, &err), KH_EIO);
    assert_says(&err, "cannot listen on 203.0.113.7");
    o = kh_server_defaults();
    o.tls_cert = "x.pem";
    assert_int_equal(kh_server_start(&other, &what, &o, &err), KH_EARG);
    assert_says(&err, "HTTPS needs both");
    o.tls_cert = NULL;
    o.token_file = test_file("empty", "\n", 1);
    assert_int_equal(kh_server_start(&other, &what, &o, &err), KH_EFORMAT);
    assert_says(&err, "must hold one token");
    unlink(o.token_file);
    site_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_probabilities_have_the_bits_of_the_native_box),
        cmocka_unit_test(a_service_describes_the_model_behind_it),
        cmocka_unit_test(tuning_through_the_server_gives_the_same_files),
        cmocka_unit_test(clients_do_not_get_each_others_answers),
        cmocka_unit_test(questions_are_cut_to_the_limits_of_the_service),
        cmocka_unit_test(texts_are_answered_too),
        cmocka_unit_test(labels_only_means_labels_only),
        cmocka_unit_test(hidden_states_go_out_at_their_own_level),
        cmocka_unit_test(a_prompt_may_be_all_there_is),
        cmocka_unit_test(a_token_is_asked_for),
        cmocka_unit_test(malformed_questions_are_refused_with_a_reason),
        cmocka_unit_test(prompts_that_are_no_numbers_are_refused),
        cmocka_unit_test(paths_lead_nowhere_else),
        cmocka_unit_test(heads_and_bodies_have_limits),
        cmocka_unit_test(slow_connections_are_ended),
        cmocka_unit_test(a_full_queue_says_429_and_clients_come_again),
        cmocka_unit_test(metrics_count),
        cmocka_unit_test(what_cannot_be_started_says_why),
    };
    return cmocka_run_group_tests_name("server", tests, tiny_setup, tiny_teardown);
}

#else
int main(void) {
    printf("# skipped: server: built without libmicrohttpd\nok 1 - server # SKIP built without "
           "libmicrohttpd\n");
    return 0;
}
#endif
