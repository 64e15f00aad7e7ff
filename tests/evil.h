/* evil.h - a server on raw sockets that follows a script: for clients that must survive anything.
 */
#ifndef KH_TEST_EVIL_H
#define KH_TEST_EVIL_H

#include "tiny.h"

#include "base/base64.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

/* What the server does with the n-th request (from 0) that is not about what it is: the bytes to
 * send, or NULL to end the connection. evil_request holds the request. */
typedef const char *script_fn(int n);
static char evil_request[1 << 20];

typedef struct evil {
    int fd, port;
    pthread_t thread;
    script_fn *script;
    atomic_int scores; /* requests for /v1/score so far */
    atomic_int saw_key;
    kh_buf model, tokenizer;
} evil;

static inline void http_wrap(kh_buf *out, const char *body) {
    *out = kh_buf_init(KH_BUF_MAX);
    kh_buf_printf(out,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: "
        "close\r\n\r\n%s",
        strlen(body), body);
}

static inline size_t read_request(int fd, char *out, size_t cap) {
    size_t got = 0, want = SIZE_MAX;
    while (got + 1 < cap && got < want) {
        ssize_t k = recv(fd, out + got, cap - 1 - got, 0);
        if (k <= 0)
            break;
        got += (size_t)k;
        out[got] = '\0';
        char *end = strstr(out, "\r\n\r\n"), *length = strcasestr(out, "Content-Length: ");
        if (end)
            want =
                (size_t)(end + 4 - out) + (length && length < end ? (size_t)atoi(length + 16) : 0);
    }
    return got;
}

static inline void send_all(int fd, const char *s, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t k = send(fd, s + at, n - at, MSG_NOSIGNAL);
        if (k <= 0)
            return;
        at += (size_t)k;
    }
}

static inline void *evil_serve(void *self) {
    evil *e = self;
    for (;;) {
        int fd = accept(e->fd, NULL, NULL);
        if (fd < 0)
            return NULL;
        read_request(fd, evil_request, sizeof evil_request);
        if (strstr(evil_request, "Authorization: Bearer the-key"))
            atomic_store(&e->saw_key, 1);
        const kh_buf *fixed = strncmp(evil_request, "GET /v1/model ", 14) == 0 ? &e->model
            : strncmp(evil_request, "GET /v1/tokenizer ", 18) == 0             ? &e->tokenizer
                                                                               : NULL;
        if (fixed)
            send_all(fd, fixed->data, fixed->len);
        else {
            const char *bytes = e->script(atomic_fetch_add(&e->scores, 1));
            if (bytes)
                send_all(fd, bytes, strlen(bytes));
        }
        shutdown(fd, SHUT_RDWR);
        close(fd);
    }
}

static const char MODEL_JSON[] = "{\"name\":\"m\",\"backend\":\"native\",\"precision\":\"f32\","
                                 "\"kernels\":\"generic\",\"access\":"
                                 "\"logprobs\",\"hidden\":4,\"max_len\":64,"
                                 "\"fingerprint\":\"0123456789abcdef\",\"embeddings\":{\"mean\":0,"
                                 "\"std\":1},\"limits\":{\"body\":"
                                 "1000000,\"prompts\":64,\"rows\":64,\"tokens\":100000}}";

static inline evil *evil_new(script_fn *script, const char *model) {
    evil *e = calloc(1, sizeof *e);
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    kh_buf file, json = kh_buf_init(KH_BUF_MAX);
    e->script = script;
    e->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(e->fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(e->fd, 16), 0);
    assert_int_equal(getsockname(e->fd, (struct sockaddr *)&a, &n), 0);
    e->port = ntohs(a.sin_port);
    assert_int_equal(kh_file_read(TINY_TOKENIZER, 1 << 20, &file, NULL), 0);
    kh_buf_text(&json, "{\"main\":\"tokenizer.json\",\"files\":{\"tokenizer.json\":\"");
    kh_base64_put(&json, file.data, file.len);
    kh_buf_text(&json, "\"}}");
    http_wrap(&e->tokenizer, json.data);
    http_wrap(&e->model, model ? model : MODEL_JSON);
    kh_buf_free(&json);
    kh_buf_free(&file);
    pthread_create(&e->thread, NULL, evil_serve, e);
    return e;
}

static inline void evil_free(evil *e) {
    shutdown(e->fd, SHUT_RDWR);
    pthread_join(e->thread, NULL);
    close(e->fd);
    kh_buf_free(&e->model);
    kh_buf_free(&e->tokenizer);
    free(e);
}

#define HEAD(status) \
    "HTTP/1.1 " status "\r\nConnection: close\r\nContent-Type: application/json\r\n"

/* A good answer with this body. */
static inline const char *wrap(const char *body) {
    static char out[1 << 18];
    snprintf(out, sizeof out, HEAD("200 OK") "Content-Length: %zu\r\n\r\n%s", strlen(body), body);
    return out;
}

#endif
