/* test_server_guard.c - what a client of the server may not do: be a page of another site, choose
 * words so that labels tell probabilities, take more memory than there is, ask more than its key
 * allows, hold the server up when it shall end, or take all connections. */
#include "site.h"

#include "base/clock.h"
#include "data/task.h"

#include <pthread.h>
#include <sys/resource.h>

static int score(const site *s, const char *labels) {
    char body[4096];
    snprintf(body, sizeof body, "{\"ids\":[[0,5,6,4,2]],\"mask\":[3],\"labels\":%s}", labels);
    return ask(s, "POST", "/v1/score", "", body, answer, sizeof answer);
}

/* --------------------------------------------------------------------------------------- words */

/* Words of a label are summed: k equal ones are a weight of log k on the scale, and bisection over
 * k measures the log-odds. */
static void words_are_no_dial(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LABELS, NULL);
    assert_int_equal(score(&s, "[[[7]],[[8]]]"), 200);
    assert_int_equal(score(&s, "[[[7]],[[8]]]"), 200);
    assert_int_equal(score(&s, "[[[7],[7]],[[8]]]"), 400);
    assert_non_null(strstr(answer, "a label word stands in \\\"labels\\\" twice"));
    assert_int_equal(score(&s, "[[[7],[9]],[[8]]]"), 403); /* nor may others be piled up */
    assert_non_null(strstr(answer, "can measure probabilities"));
    assert_int_equal(score(&s, "[[[8]],[[7]]]"), 403);
    static const char TEXTS[] =
        "{\"task\":{\"name\":\"t\",\"template\":\"{text} {mask}\",\"labels\":"
        "[{\"name\":\"a\",\"words\":[\"lower\"]},{\"name\":\"b\","
        "\"words\":[\"better\"]}]},\"texts\":[\"the boats\"]}";
    assert_int_equal(ask(&s, "POST", "/v1/score", "", TEXTS, answer, sizeof answer), 403);
    /* A ranking of the vocabulary, pair by pair, is more than labels, too. */
    static const char *const PICK[] = {
        "{\"prompt\":\"a <mask>\",\"max_tokens\":1,\"allowed_token_ids\":[7,8]}",
        "{\"prompt\":\"a <mask>\",\"max_tokens\":1,\"allowed_token_ids\":[7,9]}"
    };
    assert_int_equal(ask(&s, "POST", "/v1/completions", "", PICK[0], answer, sizeof answer), 200);
    assert_int_equal(ask(&s, "POST", "/v1/completions", "", PICK[1], answer, sizeof answer), 403);
    site_close(&s);
}

static int choose(const site *s, const char *path, const char *one, const char *other) {
    char body[512];
    snprintf(body, sizeof body,
        strstr(path, "systemone")
            ? "{\"state\":\"the boats\",\"questions\":{\"q\":{\"type\":\"choice\",\"instructions\":"
              "\"?\",\"criteria\":{\"%s\":null,\"%s\":null}}}}"
            : "{\"input\":\"the boats\",\"questions\":[{\"type\":\"choice\",\"instructions\":\"?\","
              "\"choices\":[{\"value\":\"%s\"},{\"value\":\"%s\"}]}]}",
        one, other);
    return ask(s, "POST", path, "", body, answer, sizeof answer);
}

/* Options of a question are label words: a client that chose them could rank the vocabulary. */
static void options_are_no_dial(void **state) {
    (void)state;
    static const char *const PATH[] = { "/v1/decisions", "/v1/systemone" };
    for (int i = 0; i < 2; i++) {
        site s = site_open(KH_ACCESS_LABELS, NULL);
        assert_int_equal(choose(&s, PATH[i], "lower", "better"), 200);
        assert_int_equal(choose(&s, PATH[i], "lower", "better"), 200);
        assert_int_equal(choose(&s, PATH[i], "lower", "low"), 403);
        assert_non_null(strstr(answer, "can measure probabilities"));
        assert_int_equal(choose(&s, PATH[1 - i], "lower", "low"), 403);
        assert_int_equal(score(&s, "[[[7]],[[8]]]"), 403);
        site_close(&s);
    }
}

static void duplicates_are_refused_at_every_level(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    assert_int_equal(score(&s, "[[[7]],[[8]]]"), 200);
    assert_int_equal(score(&s, "[[[7],[9]],[[8]]]"), 200);
    assert_int_equal(score(&s, "[[[7],[7]],[[8]]]"), 400);
    assert_int_equal(score(&s, "[[[7]],[[8],[7]]]"), 400);
    static const char TWICE[] =
        "{\"task\":{\"name\":\"t\",\"template\":\"{text} {mask}\",\"labels\":"
        "[{\"name\":\"a\",\"words\":[\"lower\",\"lower\"]},{\"name\":\"b\","
        "\"words\":[\"better\"]}]},\"texts\":[\"the boats\"]}";
    assert_int_equal(ask(&s, "POST", "/v1/score", "", TWICE, answer, sizeof answer), 400);
    site_close(&s);
}

static void the_servers_task_fixes_the_words(void **state) {
    (void)state;
    kh_plm *plm = tiny_open(KH_ACCESS_LABELS);
    const kh_task *task;
    kh_err err = { 0 };
    site s = { .plm = plm };
    kh_server_opts o = kh_server_defaults();
    o.port = 0;
    assert_int_equal(kh_task_parse(&task, TINY_TASK, strlen(TINY_TASK), "task", &err), 0);
    assert_int_equal(
        kh_server_start(&s.server,
            &(kh_served){ .plm = plm, .name = "tiny", .dir = tiny_dir, .task = task }, &o, &err),
        0);
    assert_int_equal(score(&s, "[[[7]],[[8]]]"), 403); /* even as the first question */
    kh_words *w;
    assert_int_equal(kh_words_new(&w, task, kh_plm_tokenizer(plm), false, &err), 0);
    char labels[512] = "[";
    for (int k = 0, n = 1; k < w->n_label; k++) {
        n += snprintf(labels + n, sizeof labels - (size_t)n, "%s[", k ? "," : "");
        for (int i = 0, some = 0; i < w->n_word; i++)
            if (w->word[i].label == k && w->word[i].n_id == 1)
                n += snprintf(labels + n, sizeof labels - (size_t)n, "%s[%d]", some++ ? "," : "",
                    (int)w->word[i].id[0]);
        snprintf(labels + n, sizeof labels - (size_t)n, "]");
        n++;
        if (k + 1 == w->n_label)
            snprintf(labels + n, sizeof labels - (size_t)n, "]");
    }
    bool single = w->n_variant == 1 && w->n_mask[0] == 1;
    kh_words_free(w);
    if (single)
        assert_int_equal(score(&s, labels), 200);
    kh_server_stop(s.server);
    kh_plm_close(plm);
    kh_task_close(task);
}

/* ------------------------------------------------------------------------------------- origins */

static void pages_of_other_sites_are_refused(void **state) {
    (void)state;
    static char rebound[1024];
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    int port = kh_server_port(s.server);
    static const struct {
        const char *header;
        int status;
    } CASES[] = { { "", 400 }, { "Origin: http://evil.example\r\n", 403 },
        { "Origin: null\r\n", 403 }, { "Origin: http://localhost\r\n", 400 },
        { "Origin: http://localhost.evil.example\r\n", 403 },
        { "Content-Type: text/plain\r\n", 415 },
        { "Content-Type: application/x-www-form-urlencoded\r\n", 415 },
        { "Content-Type: application/jsonp\r\n", 415 },
        { "Content-Type: application/json; charset=utf-8\r\n", 400 } };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        int status = ask(&s, "POST", "/v1/score", CASES[i].header, "{}", answer, sizeof answer);
        if (status != CASES[i].status)
            fail_msg("%s: %d, expected %d: %s", CASES[i].header, status, CASES[i].status, answer);
    }
    static const struct {
        const char *host;
        int status;
    } HOSTS[] = { { "localhost", 200 }, { "LOCALHOST:80", 200 }, { "127.0.0.1", 200 },
        { "[::1]:8080", 200 }, { "10.1.2.3:99", 200 }, { "evil.example", 421 },
        { "127.evil.example", 421 }, { "localhost.evil.example:80", 421 } };
    for (size_t i = 0; i < sizeof HOSTS / sizeof HOSTS[0]; i++) {
        int k = snprintf(rebound, sizeof rebound,
            "GET /v1/models HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", HOSTS[i].host);
        talk(port, rebound, (size_t)k, answer, sizeof answer, 20);
        if (atoi(answer + 9) != HOSTS[i].status)
            fail_msg("%s: %.40s", HOSTS[i].host, answer);
    }
    site_close(&s);
    /* Those that the owner has named are welcome. */
    kh_server_opts o = kh_server_defaults();
    const char *host = "gpu.example", *origin = "https://a.example";
    o.allow_host = (kh_strings){ .item = &host, .n = 1 };
    o.allow_origin = (kh_strings){ .item = &origin, .n = 1 };
    s = site_open(KH_ACCESS_LOGPROBS, &o);
    int k = snprintf(rebound, sizeof rebound,
        "GET /v1/models HTTP/1.1\r\nHost: gpu.example:1\r\nOrigin: https://a.example\r\n"
        "Connection: close\r\n\r\n");
    talk(kh_server_port(s.server), rebound, (size_t)k, answer, sizeof answer, 20);
    assert_int_equal(atoi(answer + 9), 200);
    site_close(&s);
}

/* -------------------------------------------------------------------------------------- memory */

static long high_water_kb(void) {
    char line[256];
    long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "VmHWM:", 6) == 0)
            kb = atol(line + 6);
    if (f)
        fclose(f);
    return kb;
}

static void json_is_paid_for_before_it_is_read(void **state) {
    (void)state;
    kh_server_opts o = kh_server_defaults();
    o.memory_mb = 32;
    o.body_mb = 16;
    site s = site_open(KH_ACCESS_LOGPROBS, &o);
    size_t n = (size_t)3 << 20;
    char *body = malloc(n + 1);
    FILE *reset = fopen("/proc/self/clear_refs", "w");
    if (reset) {
        fputs("5", reset);
        fclose(reset);
    }
    for (size_t i = 0; i < n; i++)
        body[i] = i == 0 ? '[' : "{},"[(i - 1) % 3];
    body[n - 1] = ']', body[n] = '\0';
    long before = high_water_kb();
    int status = ask(&s, "POST", "/v1/score", "", body, answer, sizeof answer);
    long after = high_water_kb();
    free(body);
    assert_int_equal(status, 413); /* 3 MB of {} are 250 MB as a tree */
    assert_non_null(strstr(answer, "MB that all may have"));
#ifdef __SANITIZE_ADDRESS__
    (void)before, (void)after; /* it keeps what was freed for a while */
#else
    assert_true(!reset || after - before < 64 << 10);
#endif
    site_close(&s);
}

/* A text becomes tokens, pieces and their places: some 30 times its size, unless it is refused. */
static void texts_are_paid_for_before_they_are_encoded(void **state) {
    (void)state;
    static const struct {
        const char *path, *before, *after;
    } CASES[] = { { "/v1/decisions", "{\"questions\":[{\"type\":\"choice\"}],\"input\":\"", "\"}" },
        { "/v1/systemone", "{\"questions\":{\"q\":{\"type\":\"choice\"}},\"state\":\"", "\"}" },
        { "/v1/completions", "{\"prompt\":[\"<mask>\",\"", "\"]}" },
        { "/v1/embeddings", "{\"input\":\"", "\"}" },
        { "/v1/score",
            "{\"task\":{\"name\":\"t\",\"template\":\"{text} {mask}\",\"labels\":"
            "[{\"name\":\"a\",\"words\":[\"lower\"]},{\"name\":\"b\",\"words\":[\"better\"]}]},"
            "\"texts\":[\"",
            "\"]}" } };
    kh_server_opts o = kh_server_defaults();
    site s = { .plm = tiny_open(KH_ACCESS_LOGPROBS) };
    o.memory_mb = 32;
    o.body_mb = 16;
    o.port = 0;
    kh_served what = { .plm = s.plm, .name = "tiny", .dir = tiny_dir, .embeddings = true };
    assert_int_equal(kh_server_start(&s.server, &what, &o, NULL), 0);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        kh_buf body = kh_buf_init(1 << 24);
        kh_buf_text(&body, CASES[i].before);
        for (int k = 0; k < 1 << 20; k++)
            kh_buf_text(&body, "a.");
        kh_buf_text(&body, CASES[i].after);
        int status = ask(&s, "POST", CASES[i].path, "", body.data, answer, sizeof answer);
        kh_buf_free(&body);
        if (status != 413 || !strstr(answer, "of the 32 MB that all may have"))
            fail_msg("%s: %d %.200s", CASES[i].path, status, answer);
    }
    site_close(&s);
}

/* Answers that nobody fetches count until somebody does. */
static void answers_that_wait_are_counted(void **state) {
    (void)state;
    enum { CLIENTS = 8, ROWS = 3000 };
    kh_server_opts o = kh_server_defaults();
    o.memory_mb = 3;
    o.body_mb = 2;
    site s = site_open(KH_ACCESS_LOGPROBS, &o);
    kh_buf body = kh_buf_init(KH_BUF_MAX), request = kh_buf_init(KH_BUF_MAX);
    kh_buf_text(&body, "{\"ids\":[[4]");
    for (int i = 1; i < ROWS; i++)
        kh_buf_text(&body, ",[4]");
    kh_buf_text(&body, "],\"mask\":[0");
    for (int i = 1; i < ROWS; i++)
        kh_buf_text(&body, ",0");
    kh_buf_text(&body, "],\"labels\":[[[5]],[[6]],[[7]],[[8]],[[9]],[[10]],[[11]],[[12]]]}");
    kh_buf_printf(&request,
        "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Content-Length: %zu\r\n\r\n%s",
        body.len, body.data);
    int fd[CLIENTS], refused = 0, served = 0;
    for (int i = 0; i < CLIENTS; i++) { /* they ask, and do not look at what comes */
        struct sockaddr_in a = { .sin_family = AF_INET,
            .sin_port = htons((uint16_t)kh_server_port(s.server)),
            .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int small = 2048;
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(fd[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        assert_int_equal(connect(fd[i], (struct sockaddr *)&a, sizeof a), 0);
        for (size_t at = 0; at < request.len;) {
            ssize_t k = send(fd[i], request.data + at, request.len - at, MSG_NOSIGNAL);
            if (k <= 0)
                break;
            at += (size_t)k;
        }
    }
    for (int i = 0; i < CLIENTS; i++) {
        char head[16] = { 0 };
        struct timeval t = { .tv_sec = 20 };
        setsockopt(fd[i], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
        ssize_t k = recv(fd[i], head, 12, 0);
        int status = k == 12 ? atoi(head + 9) : 0;
        served += status == 200;
        refused += status == 503;
    }
    assert_true(served >= 1 && refused >= 1);
    for (int i = 0; i < CLIENTS; i++)
        close(fd[i]);
    kh_buf_free(&body);
    kh_buf_free(&request);
    site_close(&s);
}

static void *post_much(void *user) {
    const site *s = user;
    kh_buf body = kh_buf_init(KH_BUF_MAX);
    static __thread char out[1024];
    kh_buf_text(&body, "{\"x\":[1");
    for (int i = 0; i < 3000000; i++)
        kh_buf_text(&body, ",1");
    kh_buf_text(&body, "]}");
    ask(s, "POST", "/v1/score", "", body.data, out, sizeof out);
    kh_buf_free(&body);
    return NULL;
}

/* Bodies are read by a thread of their own; whoever asks whether the server lives is told. */
static void health_is_told_while_bodies_are_read(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LOGPROBS, NULL);
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, post_much, &s), 0);
    double worst = 0;
    for (int i = 0; i < 20; i++) {
        double start = kh_clock();
        assert_int_equal(ask(&s, "GET", "/health", "", "", answer, sizeof answer), 200);
        double took = kh_clock() - start;
        worst = took > worst ? took : worst;
        usleep(20000);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    printf("# the slowest /health took %.3f s\n", worst);
    assert_true(worst < 5);
    site_close(&s);
}

/* ------------------------------------------------------------------------- keys and their share */

static void keys_have_a_budget(void **state) {
    (void)state;
    kh_server_opts o = kh_server_defaults();
    o.budget = 2;
    o.token_file = test_file("tokens", "first\nsecond\n", 13);
    site s = site_open(KH_ACCESS_LOGPROBS, &o);
    static const char BODY[] = "{\"ids\":[[0,5,6,4,2]],\"mask\":[3],\"labels\":[[[7]],[[8]]]}";
#define AS(key) \
    ask(&s, "POST", "/v1/score", "Authorization: Bearer " key "\r\n", BODY, answer, sizeof answer)
    assert_int_equal(AS("third"), 401);
    assert_int_equal(AS("first"), 200);
    assert_int_equal(AS("first"), 200);
    assert_int_equal(AS("first"), 403);
    assert_non_null(strstr(answer, "--query-budget"));
    assert_int_equal(AS("second"), 200);
#undef AS
    site_close(&s);
    unlink(o.token_file);
}

static void one_address_cannot_take_all_connections(void **state) {
    (void)state;
    kh_server_opts o = kh_server_defaults();
    o.connections = 40;
    o.per_address = 4;
    site s = site_open(KH_ACCESS_LOGPROBS, &o);
    int fd[12], alive = 0;
    struct sockaddr_in a = { .sin_family = AF_INET,
        .sin_port = htons((uint16_t)kh_server_port(s.server)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    for (int i = 0; i < 12; i++) {
        fd[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(connect(fd[i], (struct sockaddr *)&a, sizeof a), 0);
    }
    for (int i = 0; i < 12; i++) {
        static const char GET[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
        char head[16];
        struct timeval t = { .tv_sec = 5 };
        setsockopt(fd[i], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
        alive += send(fd[i], GET, sizeof GET - 1, MSG_NOSIGNAL) > 0 &&
            recv(fd[i], head, sizeof head, 0) > 0;
    }
    assert_int_equal(alive, 4);
    for (int i = 0; i < 12; i++)
        close(fd[i]);
    site_close(&s);
}

/* --------------------------------------------------------------------------------------- ending */

static void *post_long(void *user) {
    const site *s = user;
    static __thread char out[4096];
    kh_buf body = kh_buf_init(KH_BUF_MAX);
    int hidden = kh_plm_describe(s->plm).hidden;
    kh_buf_printf(&body,
        "{\"encoding\":\"base64\",\"inject\":\"embed-inplace\",\"prompts\":{\"dtype\":\"f32\","
        "\"shape\":[15,1,%d],\"data\":\"",
        hidden);
    for (int i = 0; i < 20 * hidden; i++) /* 60 * hidden bytes are whole groups */
        kh_buf_text(&body, "AAAA");
    kh_buf_text(&body, "\"},\"ids\":[");
    for (int i = 0; i < 4000; i++) {
        kh_buf_text(&body, i ? ",[" : "[");
        for (int k = 0; k < 60; k++)
            kh_buf_text(&body, k ? ",5" : "4");
        kh_buf_text(&body, "]");
    }
    kh_buf_text(&body, "],\"mask\":[0");
    for (int i = 1; i < 4000; i++)
        kh_buf_text(&body, ",0");
    kh_buf_text(&body, "],\"slot\":[1");
    for (int i = 1; i < 4000; i++)
        kh_buf_text(&body, ",1");
    kh_buf_text(&body, "],\"labels\":[[[7]],[[8]]]}");
    for (int i = 0; i < 40; i++) /* one after the other, until the server is gone */
        if (ask(s, "POST", "/v1/score", "", body.data, out, sizeof out) != 200) {
            printf("# %.300s\n", strstr(out, "\r\n\r\n") ? strstr(out, "\r\n\r\n") + 4 : out);
            break;
        }
    kh_buf_free(&body);
    return NULL;
}

/* A question is asked in pieces, and given up between two of them when the time is over. */
static void drain_time_is_kept(void **state) {
    (void)state;
    kh_server_opts o = kh_server_defaults();
    o.drain_time = 0.2;
    site s = site_open(KH_ACCESS_LOGPROBS, &o);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, post_long, &s), 0);
    usleep(700000);
    double start = kh_clock();
    kh_server_stop(s.server);
    double took = kh_clock() - start;
    pthread_join(thread, NULL);
    kh_plm_close(s.plm);
    printf("# it took %.2f s to end\n", took);
    assert_true(took < 6); /* it was 9 when a question was one piece */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_no_dial),
        cmocka_unit_test(options_are_no_dial),
        cmocka_unit_test(duplicates_are_refused_at_every_level),
        cmocka_unit_test(the_servers_task_fixes_the_words),
        cmocka_unit_test(pages_of_other_sites_are_refused),
        cmocka_unit_test(json_is_paid_for_before_it_is_read),
        cmocka_unit_test(texts_are_paid_for_before_they_are_encoded),
        cmocka_unit_test(answers_that_wait_are_counted),
        cmocka_unit_test(health_is_told_while_bodies_are_read),
        cmocka_unit_test(keys_have_a_budget),
        cmocka_unit_test(one_address_cannot_take_all_connections),
        cmocka_unit_test(drain_time_is_kept),
    };
    return cmocka_run_group_tests(tests, tiny_setup, tiny_teardown);
}
