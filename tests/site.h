/* site.h - a server over the tiny model in this process, and requests to it on raw sockets. */
#ifndef KH_TEST_SITE_H
#define KH_TEST_SITE_H

#include "tiny.h"

#include "server/server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>

typedef struct site {
    kh_plm *plm;
    kh_server *server;
    char url[64];
} site;

/* The tiny model behind HTTP. */
static inline site site_open(kh_access access, const kh_server_opts *given) {
    site s = { .plm = tiny_open(access) };
    kh_server_opts o = given ? *given : kh_server_defaults();
    kh_err err;
    o.port = 0;
    if (kh_server_start(&s.server, &(kh_served){ .plm = s.plm, .name = "tiny", .dir = tiny_dir },
            &o, &err) != 0)
        fail_msg("%s", err.msg);
    snprintf(s.url, sizeof s.url, "http://127.0.0.1:%d", kh_server_port(s.server));
    return s;
}

static inline void site_close(site *s) {
    kh_server_stop(s->server);
    kh_plm_close(s->plm);
}

/* Sends bytes and reads until the other side closes or `seconds` pass. */
static inline size_t talk(
    int port, const char *bytes, size_t n, char *out, size_t cap, double seconds) {
    struct sockaddr_in a = { .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    size_t got = 0;
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    struct timeval t = { .tv_sec = (long)seconds,
        .tv_usec = (long)((seconds - (double)(long)seconds) * 1e6) };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    for (size_t at = 0; at < n;) {
        ssize_t k = send(fd, bytes + at, n - at, MSG_NOSIGNAL);
        if (k <= 0)
            break;
        at += (size_t)k;
    }
    for (ssize_t k; got + 1 < cap && (k = recv(fd, out + got, cap - 1 - got, 0)) > 0;)
        got += (size_t)k;
    out[got] = '\0';
    close(fd);
    return got;
}

/* One request on a connection of its own; the status, and the whole answer in *out. */
static inline int ask(const site *s, const char *method, const char *path, const char *header,
    const char *body, char *out, size_t cap) {
    size_t n = strlen(body) + strlen(path) + strlen(header) + 384;
    char *request = malloc(n);
    int k = snprintf(request, n,
        "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s%sContent-Length: "
        "%zu\r\n\r\n%s",
        method, path, header,
        strcasestr(header, "Content-Type") ? "" : "Content-Type: application/json\r\n",
        strlen(body), body);
    talk(kh_server_port(s->server), request, (size_t)k, out, cap, 20);
    free(request);
    return strncmp(out, "HTTP/1.1 ", 9) == 0 ? atoi(out + 9) : 0;
}

__attribute__((unused)) static char answer[1 << 16];

#endif
