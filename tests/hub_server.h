/* hub_server.h - a stand-in for a hub in Hugging Face's layout, and for the storage that it
 * redirects to, on two ports of this machine; with faults. */
#ifndef KH_TESTS_HUB_SERVER_H
#define KH_TESTS_HUB_SERVER_H

#include "test.h"

#include "base/buf.h"
#include "base/sha256.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>

typedef enum hub_fault {
    HUB_FINE,
    HUB_CUT,        /* the first answer with the weights ends half-way */
    HUB_NO_RANGE,   /* the same, and later answers are the whole file, whatever is asked for */
    HUB_STATUS,     /* every request is answered with `status` */
    HUB_BUSY,       /* the first two requests are answered with `status` */
    HUB_WRONG,      /* a byte of the weights is wrong */
    HUB_LONG,       /* the weights have more bytes than listed */
    HUB_LOOP,       /* redirects that never end */
    HUB_GARBAGE,    /* the listing is no JSON */
    HUB_EVIL_NAMES, /* the listing has names that lead elsewhere */
    HUB_DOWNGRADE,  /* redirects to a scheme that is none */
    HUB_ELSEWHERE,  /* as HUB_CUT, and later answers begin behind what was asked for */
    HUB_NOWHERE,    /* as HUB_CUT, and later answers do not say where they begin */
    HUB_NO_REST,    /* as HUB_CUT, and there is nothing behind it, the hub says (416) */
} hub_fault;

typedef struct hub_server {
    int fd[2], port[2]; /* the hub, and the storage */
    pthread_t thread[2];
    hub_fault fault;
    int status;
    const char *reason;  /* X-Error-Code */
    const char *says;    /* the body of such an answer */
    const char *listing; /* NULL: that of a whole model */
    bool redirect;       /* weights come from the storage */
    int requests, ranges;
    int token_at_hub, token_at_storage; /* requests that carried one */
    size_t served;                      /* bytes of weights */
    pthread_mutex_t lock;
} hub_server;

enum { HUB_WEIGHTS = 200000 };
static const char HUB_CONFIG[] = "{\"model_type\":\"bert\"}";
static const char HUB_COMMIT[] = "0123456789abcdef0123456789abcdef01234567";

static inline const char *hub_weights(void) {
    static char bytes[HUB_WEIGHTS];
    for (int i = 0; i < HUB_WEIGHTS; i++)
        bytes[i] = (char)(i * 7 + i / 251);
    return bytes;
}

static inline void hub_hash(char hex[65]) {
    kh_sha256 s;
    kh_sha256_start(&s);
    kh_sha256_more(&s, hub_weights(), HUB_WEIGHTS);
    kh_sha256_end(&s, hex);
}

static inline void hub_send(int fd, const void *bytes, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t k = send(fd, (const char *)bytes + at, n - at, MSG_NOSIGNAL);
        if (k <= 0)
            return;
        at += (size_t)k;
    }
}

static inline void hub_answer(int fd, const char *status, const char *headers, const void *body,
    size_t announced, size_t sent) {
    char head[1024];
    int n = snprintf(head, sizeof head,
        "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n", status, announced,
        headers);
    hub_send(fd, head, (size_t)n);
    hub_send(fd, body, sent);
}

static inline void hub_listing(hub_server *s, int fd) {
    char hex[65];
    hub_hash(hex);
    kh_buf b = kh_buf_init(1 << 16);
    kh_buf_printf(
        &b, "{\"id\":\"org/model\",\"sha\":\"%s\",\"gated\":false,\"siblings\":[", HUB_COMMIT);
    if (s->fault == HUB_EVIL_NAMES)
        kh_buf_text(&b,
            "{\"rfilename\":\"../../evil.safetensors\",\"size\":5},"
            "{\"rfilename\":\"/etc/passwd\",\"size\":5},");
    kh_buf_printf(&b,
        "{\"rfilename\":\"config.json\",\"size\":%zu,\"blobId\":\"aa\"},"
        "{\"rfilename\":\"README.md\",\"size\":999},{\"rfilename\":\"pytorch_model.bin\",\"size\":"
        "9},"
        "{\"rfilename\":\"vocab.txt\",\"size\":6},{\"rfilename\":\"big.gguf\",\"size\":6},"
        "{\"rfilename\":\"sub/q4.gguf\",\"size\":6},"
        "{\"rfilename\":\"model.safetensors\",\"size\":%d,\"lfs\":{\"sha256\":\"%s\",\"size\":%d}}]"
        "}",
        sizeof HUB_CONFIG - 1, HUB_WEIGHTS, hex, HUB_WEIGHTS);
    if (s->fault == HUB_GARBAGE)
        hub_answer(fd, "200 OK", "", "<html>", 6, 6);
    else if (s->listing)
        hub_answer(fd, "200 OK", "", s->listing, strlen(s->listing), strlen(s->listing));
    else
        hub_answer(fd, "200 OK", "Content-Type: application/json\r\n", b.data, b.len, b.len);
    kh_buf_free(&b);
}

static inline void hub_send_weights(hub_server *s, int fd, const char *request) {
    static char wrong[HUB_WEIGHTS + 1];
    const char *range = strstr(request, "Range: bytes=");
    size_t from = range && s->fault != HUB_NO_RANGE ? (size_t)atol(range + 13) : 0;
    char extra[128] = "";
    pthread_mutex_lock(&s->lock);
    s->ranges += range != NULL;
    bool cuts = s->fault == HUB_CUT || s->fault == HUB_NO_RANGE || s->fault >= HUB_ELSEWHERE;
    bool cut = cuts && s->served == 0;
    memcpy(wrong, hub_weights(), HUB_WEIGHTS);
    wrong[1234] = (char)(wrong[1234] ^ (s->fault == HUB_WRONG));
    size_t n = HUB_WEIGHTS - from + (s->fault == HUB_LONG), sent = cut ? n / 2 : n;
    s->served += sent;
    pthread_mutex_unlock(&s->lock);
    if (from > 0 && s->fault == HUB_NO_REST) {
        hub_answer(fd, "416 Range Not Satisfiable", "", "", 0, 0);
        return;
    }
    if (from > 0 && s->fault != HUB_NOWHERE)
        snprintf(extra, sizeof extra, "Content-Range: bytes %zu-%d/%d\r\n",
            from + (s->fault == HUB_ELSEWHERE), HUB_WEIGHTS - 1, HUB_WEIGHTS);
    hub_answer(fd, from > 0 ? "206 Partial Content" : "200 OK", extra, wrong + from, n, sent);
}

static inline void hub_reply(hub_server *s, int fd, bool storage, const char *request) {
    char line[256];
    pthread_mutex_lock(&s->lock);
    int count = s->requests++;
    bool token = strstr(request, "Authorization: Bearer secret") != NULL;
    s->token_at_hub += token && !storage;
    s->token_at_storage += token && storage;
    pthread_mutex_unlock(&s->lock);
    if (s->fault == HUB_STATUS || (s->fault == HUB_BUSY && count < 2)) {
        char status[32], headers[128];
        snprintf(status, sizeof status, "%d No", s->status);
        snprintf(headers, sizeof headers, "X-Error-Code: %s\r\nRetry-After: 0.01\r\n",
            s->reason ? s->reason : "None");
        const char *says = s->says ? s->says : "{\"error\":\"no\"}";
        hub_answer(fd, status, headers, says, strlen(says), strlen(says));
    } else if (strncmp(request, "GET /api/models/org/model/revision/", 35) == 0)
        hub_listing(s, fd);
    else if (s->fault == HUB_LOOP || s->fault == HUB_DOWNGRADE) {
        snprintf(line, sizeof line, "Location: %s\r\n",
            s->fault == HUB_LOOP ? "/again" : "file:///etc/passwd");
        hub_answer(fd, "302 Found", line, "", 0, 0);
    } else if (strstr(request, "/model.safetensors HTTP") && s->redirect && !storage) {
        snprintf(line, sizeof line,
            "Location: http://127.0.0.1:%d/store/model.safetensors?sig=1\r\n", s->port[1]);
        hub_answer(fd, "302 Found", line, "", 0, 0);
    } else if (strstr(request, "model.safetensors"))
        hub_send_weights(s, fd, request);
    else if (strstr(request, "/config.json "))
        hub_answer(fd, "200 OK", "", HUB_CONFIG, sizeof HUB_CONFIG - 1, sizeof HUB_CONFIG - 1);
    else if (strstr(request, "/vocab.txt ") || strstr(request, ".gguf ") ||
        strstr(request, "/model-0"))
        hub_answer(fd, "200 OK", "", "[UNK]\n", 6, 6);
    else
        hub_answer(fd, "404 Not Found", "X-Error-Code: EntryNotFound\r\n", "", 0, 0);
}

typedef struct hub_door {
    hub_server *s;
    int which;
} hub_door;

static inline void *hub_serve(void *self) {
    hub_door d = *(hub_door *)self;
    free(self);
    for (int fd; (fd = accept(d.s->fd[d.which], NULL, NULL)) >= 0; close(fd)) {
        char request[8192];
        size_t got = 0;
        for (ssize_t k; got + 1 < sizeof request &&
             (k = recv(fd, request + got, sizeof request - 1 - got, 0)) > 0;) {
            got += (size_t)k;
            request[got] = '\0';
            if (strstr(request, "\r\n\r\n"))
                break;
        }
        request[got] = '\0';
        hub_reply(d.s, fd, d.which == 1, request);
        shutdown(fd, SHUT_RDWR);
    }
    return NULL;
}

static inline void hub_start(hub_server *s) {
    pthread_mutex_init(&s->lock, NULL);
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t n = sizeof a;
        s->fd[i] = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(s->fd[i], (struct sockaddr *)&a, sizeof a), 0);
        assert_int_equal(listen(s->fd[i], 16), 0);
        assert_int_equal(getsockname(s->fd[i], (struct sockaddr *)&a, &n), 0);
        s->port[i] = ntohs(a.sin_port);
        hub_door *d = malloc(sizeof *d);
        *d = (hub_door){ s, i };
        pthread_create(&s->thread[i], NULL, hub_serve, d);
    }
}

static inline void hub_stop(hub_server *s) {
    for (int i = 0; i < 2; i++) {
        shutdown(s->fd[i], SHUT_RDWR);
        pthread_join(s->thread[i], NULL);
        close(s->fd[i]);
    }
}

#endif
