/* fuzz_response.c - any bytes as what a service answers, over a real connection: the first byte
 * chooses what the client takes it for (of those above 127, decision services and a hub's listing)
 * and whether the parts (between lines of "%%") are bodies, which get a head that fits, or raw
 * bytes on the wire. Parts are given in turn, the last again and again. The client must end, in an
 * error or with answers in range. */
#include "fuzz/model.h"
#include "plm/http.h"
#include "plm/hub.h"
#include "plm/together.h"

#include "base/alloc.h"

#include <assert.h>
#include <ftw.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#ifdef KH_WITH_CURL

static struct {
    const char *text; /* what is left of the input */
    size_t n;
    bool raw;
} script;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int listener;
static char url[64];

static void send_all(int fd, const char *bytes, size_t n) {
    for (ssize_t k; n > 0 && (k = send(fd, bytes, n, MSG_NOSIGNAL)) > 0; bytes += k, n -= (size_t)k)
        continue;
}

/* The next part, as an answer. */
static void give(int fd) {
    static const char SEPARATOR[] = "\n%%\n";
    char head[128];
    pthread_mutex_lock(&turn);
    const char *end =
        script.n > 0 ? memmem(script.text, script.n, SEPARATOR, sizeof SEPARATOR - 1) : NULL;
    size_t size = end ? (size_t)(end - script.text) : script.n;
    int k = snprintf(head, sizeof head,
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n", size);
    if (!script.raw)
        send_all(fd, head, (size_t)k);
    send_all(fd, script.text, size);
    if (end) {
        script.text += size + sizeof SEPARATOR - 1;
        script.n -= size + sizeof SEPARATOR - 1;
    }
    pthread_mutex_unlock(&turn);
}

/* One request a connection: its head, and as much body as there is at once, are read and not looked
 * at. */
static void *serve(void *self) {
    static char request[1 << 20];
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            return self;
        size_t n = 0, body = 0;
        char *end = NULL;
        for (ssize_t k; n + 1 < sizeof request &&
             (k = recv(fd, request + n, sizeof request - 1 - n, 0)) > 0;) {
            n += (size_t)k;
            request[n] = '\0';
            if (!end && (end = strstr(request, "\r\n\r\n")) != NULL) {
                const char *length = strstr(request, "Content-Length: ");
                body = (size_t)(end + 4 - request) +
                    (length && length < end ? strtoul(length + 16, NULL, 10) : 0);
            }
            if (end && n >= body)
                break;
        }
        give(fd);
        shutdown(fd, SHUT_WR);
        close(fd);
    }
}

static void listen_here(void) {
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof a;
    pthread_t thread;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    assert(listener >= 0 && bind(listener, (struct sockaddr *)&a, sizeof a) == 0 &&
        listen(listener, 64) == 0);
    assert(getsockname(listener, (struct sockaddr *)&a, &size) == 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(a.sin_port));
    assert(pthread_create(&thread, NULL, serve, NULL) == 0 && pthread_detach(thread) == 0);
}

/* A question about one row, asked if the box can be opened and its tokenizer knows the words. */
static void ask(kh_plm *box) {
    static const char JSON[] = "{\"name\":\"toy\",\"template\":\"{text} It was {mask} "
                               ".\",\"labels\":[{\"name\":\"bad\",\"words\":[\"lower\"]},"
                               "{\"name\":\"good\",\"words\":[\"better\"]}]}";
    const kh_task *task;
    kh_words *words = NULL;
    kh_batch *batch = NULL;
    kh_err err = { 0 };
    float logprob[2] = { 0 };
    int label = 0;
    kh_plm_info info = kh_plm_describe(box);
    assert(kh_task_parse(&task, JSON, sizeof JSON - 1, "toy", NULL) == 0);
    kh_row row = { .a = "the boats", .n_a = 9, .label = -1 };
    int rc = kh_words_new(&words, task, kh_plm_tokenizer(box), false, &err);
    if (rc == 0)
        rc = kh_batch_encode(&batch, kh_plm_tokenizer(box), task, words, &row, 1,
            &(kh_batch_opts){ .max_len = info.max_len, .next = info.next }, &err);
    if (rc == 0 && batch->n_row == 1) {
        kh_question q = { .batch = batch, .words = words, .n_prompt = 1 };
        if (info.access >= KH_ACCESS_LOGPROBS &&
            kh_plm_score(kh_plm_scorer(box, NULL), &q, logprob, NULL) == 0)
            assert(!isnan(logprob[0]) && !isnan(logprob[1]));
        if (kh_plm_answer(kh_plm_labeler(box, NULL), &q, &label, NULL) == 0)
            assert(label == 0 || label == 1 || (label == -1 && kh_plm_shares(box)));
        kh_question two[2] = { q, q };
        float both[4] = { 0 };
        if (kh_plm_shares(box) &&
            kh_plm_score_together(kh_plm_scorer(box, NULL), two, 2, both, NULL) == 0)
            for (int i = 0; i < 4; i++) /* or it was refused, which is NaN for both labels */
                assert(isnan(both[i]) ? isnan(both[i ^ 1]) : both[i] <= 0);
    }
    kh_batch_free(batch);
    kh_words_free(words);
    kh_task_close(task);
}

static void give_script(const uint8_t *data, size_t n, bool raw) {
    pthread_mutex_lock(&turn);
    script.text = (const char *)data;
    script.n = n;
    script.raw = raw;
    pthread_mutex_unlock(&turn);
}

static int remove_one(const char *path, const struct stat *s, int type, struct FTW *at) {
    (void)s, (void)type, (void)at;
    return remove(path);
}

/* What a hub lists, and its files. */
static void pull(void) {
    char dir[] = "/tmp/keyhole-fuzz-pull-XXXXXX", out[64], *path = NULL;
    kh_err err = { 0 };
    if (!mkdtemp(dir))
        return;
    snprintf(out, sizeof out, "%s/m", dir);
    kh_hub_opts o = { .endpoint = url, .out = out, .parallel = 1, .retries = 1, .pause = 1e-3 };
    if (kh_hub_pull(&path, "org/model", &o, &err) != 0)
        assert(err.code != 0 && err.msg[0]);
    kh_free(path);
    assert(nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char *const BACKENDS[] = { "keyhole", "vllm-completions", "vllm-chat", "sglang",
        "openai", "decisions", "systemone" };
    if (n == 0)
        return 0;
    int kind = data[0] < 128 ? data[0] % 5 : 5 + data[0] % 3;
    if (!url[0])
        listen_here();
    kh_http_opts o = kh_http_defaults();
    kh_plm *box;
    kh_err err = { 0 };
    give_script(data + 1, n - 1, data[0] & 64);
    if (kind == 7) {
        pull();
        give_script((const uint8_t *)"", 0, false);
        return 0;
    }
    o.backend = BACKENDS[kind];
    o.tokenizer = kind == 0 || kind > 4 ? NULL : "tests/vectors/tokenizers/tiny-bpe.json";
    o.retries = 0;
    o.timeout = 5;
    o.in_flight = 1;
    if (kh_plm_open(&box, url, &(kh_plm_opts){ .access = KH_ACCESS_LOGPROBS, .http = &o }, &err) !=
        0)
        assert(err.code != 0 && err.msg[0]);
    else
        ask(box);
    kh_plm_close(box);
    give_script((const uint8_t *)"", 0, false); /* the input is not ours for longer */
    return 0;
}

#else

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) { return data == NULL && n > 0; }

#endif
