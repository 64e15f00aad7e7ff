/* server.c - connections, limits, the token, the routes.
 *
 * libmicrohttpd reads requests in a few threads with epoll. A request that needs the box is
 * suspended and waits in the queue without holding a thread; when its reply is there it is resumed.
 * Limits, in the order in which a request meets them: connections; bytes of its head; time for its
 * head; host, origin, type; token; route; bytes of its body; bytes of all requests; time for its
 * body; places in the queues; the key's budget; time to fetch the answer. libmicrohttpd's own
 * timeout begins anew with every byte, so a watch of our own looks at deadlines once a second and
 * shuts the sockets that have passed theirs.
 */
#include "server/server_parts.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json_out.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct alone {
    kh_server_opts o;
} alone;
static const kh_opt server_table[] = { KH_SERVER_ROWS(alone, o), { 0 } };

kh_server_opts kh_server_defaults(void) {
    alone a = { 0 };
    kh_opts_init(server_table, &a);
    return a.o;
}

#ifdef KH_WITH_MHD

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum {
    HEAD_BYTES =
        32 << 10,     /* of a request's head; what libmicrohttpd reads into for each connection */
    READ_THREADS = 2, /* reading and parsing; the engine has its own */
};

/* ------------------------------------------------------------------------------------- replies */

void kh_reply_text(kh_call *c, int status, const char *type, const char *text) {
    c->reply.status = status;
    c->reply.type = type;
    c->reply.fixed = NULL;
    kh_buf_free(&c->reply.body);
    c->reply.body = kh_buf_init(KH_BUF_MAX);
    kh_buf_text(&c->reply.body, text);
}

void kh_reply_fixed(kh_call *c, const char *type, const char *text) {
    c->reply.status = 200;
    c->reply.type = type;
    c->reply.fixed = text;
}

void kh_reply_fail(kh_call *c, int status, const char *fmt, ...) {
    char text[1200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *type = status >= 500 ? "server_error" : "invalid_request_error";
    if (status == 429 || status == 503)
        type = "overloaded_error";
    kh_reply_text(c, status, NULL, "");
    kh_json_out j = kh_json_out_init(&c->reply.body, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_open_object(&j, "error");
    kh_json_put_string(&j, "message", text);
    kh_json_put_string(&j, "type", type);
    kh_json_put_null(&j, "param");
    kh_json_put_int(&j, "code", status);
    kh_json_close(&j);
    kh_json_close(&j);
    kh_buf_char(&c->reply.body, '\n');
    c->reply.retry = status == 429 || status == 503;
}

/* What a client reads from the status alone: 4xx, change the request; 503, try again later; 500,
 * the fault is here. */
static int status_of(int code) {
    switch (code) {
    case KH_EARG:
    case KH_EFORMAT:
    case KH_EMISMATCH: return 400;
    case KH_EUNSUPPORTED: return 403;
    case KH_ELIMIT: return 413;
    case KH_ENOMEM:
    case KH_STOPPED: return 503;
    default: return 500;
    }
}

void kh_reply_err(kh_call *c, const kh_err *err) {
    kh_reply_fail(c, status_of(err->code), "%s",
        err->code == KH_STOPPED ? "the server is shutting down" : err->msg);
}

const char *kh_call_query(const kh_call *c, const char *key) {
    return MHD_lookup_connection_value(c->connection, MHD_GET_ARGUMENT_KIND, key);
}

void kh_call_resume(kh_call *c) {
    atomic_store(&c->waiting, false);
    MHD_resume_connection(c->connection);
}

/* Browsers are told to run nothing that the page does not bring itself. */
static const char *const HEADERS[][2] = {
    { "Cache-Control", "no-store" },
    { "X-Content-Type-Options", "nosniff" },
    { "X-Frame-Options", "DENY" },
    { "Referrer-Policy", "no-referrer" },
    { "Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src "
        "'self'; img-src data:; base-uri "
        "'none'; "
        "form-action 'none'; frame-ancestors 'none'" },
};

static enum MHD_Result send_reply(kh_server *s, kh_call *c) {
    static const char SORRY[] =
        "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\",\"code\":503}}\n";
    size_t n = 0;
    char *bytes = c->reply.fixed ? NULL : kh_buf_take(&c->reply.body, &n);
    bool failed = !bytes && !c->reply.fixed;
    int status = failed ? 503 : c->reply.status;
    const char *lasting = failed ? SORRY : c->reply.fixed;
    struct MHD_Response *r = bytes
        ? MHD_create_response_from_buffer_with_free_callback(n, bytes, kh_free)
        : MHD_create_response_from_buffer(
              strlen(lasting), (void *)(uintptr_t)lasting, MHD_RESPMEM_PERSISTENT);
    if (!r) {
        kh_free(bytes);
        return MHD_NO;
    }
    MHD_add_response_header(
        r, "Content-Type", c->reply.type && !failed ? c->reply.type : "application/json");
    for (size_t i = 0; i < sizeof HEADERS / sizeof HEADERS[0]; i++)
        MHD_add_response_header(r, HEADERS[i][0], HEADERS[i][1]);
    if (c->reply.retry || failed)
        MHD_add_response_header(r, "Retry-After", "1");
    char id[32]; /* what a client quotes when it asks about an answer, under both formats' names */
    snprintf(id, sizeof id, "req-%lld", atomic_fetch_add(&s->count.replies, 1) + 1);
    MHD_add_response_header(r, "x-request-id", id);
    MHD_add_response_header(r, "x-typesafe-request-id", id);
    if (status == 401)
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (atomic_load(&s->draining) || c->refused)
        MHD_add_response_header(r, "Connection", "close");
    enum MHD_Result ok = MHD_queue_response(c->connection, (unsigned)status, r);
    MHD_destroy_response(r);
    c->answered = true;
    if (status == 429)
        atomic_fetch_add(&s->count.refused, 1);
    kh_metrics_observe(s, status, kh_clock() - c->started);
    return ok;
}

/* -------------------------------------------------------------------------------------- routes */

static const kh_route MODEL_ROUTES[] = {
    { "GET", "/health", true, kh_get_health },
    { "GET", "/metrics", false, kh_get_metrics },
    { "GET", "/v1/models", false, kh_get_models },
    { "GET", "/v1/model", false, kh_get_model },
    { "GET", "/v1/tokenizer", false, kh_get_tokenizer },
    { "GET", "/v1/embedding", false, kh_get_embedding },
    { "POST", "/v1/score", false, kh_post_score },
    { "POST", "/v1/completions", false, kh_post_completions },
    { "POST", "/v1/embeddings", false, kh_post_embeddings },
    { "POST", "/v1/decisions", false, kh_post_decisions },
    { "POST", "/v1/systemone", false, kh_post_systemone },
    { 0 },
};

static const kh_route RUN_ROUTES[] = {
    { "GET", "/", true, kh_get_page },
    { "GET", "/health", true, kh_get_health },
    { "GET", "/metrics", false, kh_get_metrics },
    { "GET", "/report", false, kh_get_report },
    { "GET", "/v1/models", false, kh_get_models },
    { "GET", "/v1/run", false, kh_get_run },
    { "POST", "/v1/classify", false, kh_post_classify },
    { "POST", "/v1/decisions", false, kh_post_decisions },
    { "POST", "/v1/systemone", false, kh_post_systemone },
    { 0 },
};

static const kh_route *find_route(
    kh_call *c, const kh_route *table, const char *method, const char *path) {
    bool other = false;
    for (; table->path; table++) {
        bool here = strcmp(table->path, path) == 0;
        if (here &&
            (strcmp(table->method, method) == 0 ||
                (strcmp(table->method, "GET") == 0 && strcmp(method, "HEAD") == 0)))
            return table;
        other |= here;
    }
    kh_reply_fail(c, other ? 405 : 404,
        other ? "this path does not take %.10s"
              : "there is nothing here%.0s; /v1/models lists what is served",
        method);
    return NULL;
}

/* -------------------------------------------------------------------------- one request's life */

static void set_deadline(kh_server *s, struct MHD_Connection *connection, double seconds) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    kh_socket *socket = info ? info->socket_context : NULL;
    pthread_mutex_lock(&s->sockets_lock);
    if (socket)
        socket->deadline = seconds > 0 ? kh_clock() + seconds : 0;
    pthread_mutex_unlock(&s->sockets_lock);
}

/* The head is there: everything that can be refused by it is refused now. */
static enum MHD_Result begin(kh_server *s, struct MHD_Connection *connection, const char *url,
    const char *method, const char *version, void **state) {
    kh_call *c = kh_calloc(1, sizeof *c);
    if (!c)
        return MHD_NO;
    *state = c;
    *c = (kh_call){ .connection = connection,
        .started = kh_clock(),
        .body = kh_buf_init((size_t)s->o.body_mb << 20) };
    atomic_fetch_add(&s->count.active, 1);
    set_deadline(s, connection, s->o.body_time);
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    bool known = kh_guard_token(s, c);
    if (kh_guard_head(s, c, method, version))
        c->route = find_route(c, s->n_tuned > 0 ? RUN_ROUTES : MODEL_ROUTES, method, url);
    if (c->route && !c->route->open && !known) {
        kh_reply_fail(c, 401, "this server wants a bearer token");
        c->route = NULL;
    } else if (c->route && length && strtoull(length, NULL, 10) > c->body.max) {
        kh_reply_fail(c, 413, "a body of %.20s bytes; at most %zu are taken", length, c->body.max);
        c->route = NULL;
    }
    if (c->route)
        return MHD_YES;
    c->refused = true;
    return send_reply(s, c);
}

/* Bytes of the body. Once it is too large the rest is thrown away, and far beyond that the
 * connection is. */
static enum MHD_Result receive(kh_server *s, kh_call *c, const char *bytes, size_t *n) {
    atomic_fetch_add(&s->count.received, (long long)*n);
    /* A buffer that grows holds its bytes twice for a moment, and up to half of them are room. */
    if (c->reply.status == 0 && kh_guard_charge(s, c, *n + *n / 2))
        kh_buf_bytes(&c->body, bytes, *n);
    if (c->reply.status == 0 && kh_buf_failed(&c->body) && *n > c->body.max - c->body.len)
        kh_reply_fail(c, 413, "a body of more than %zu bytes", c->body.max);
    if (c->reply.status == 0 && kh_buf_failed(&c->body))
        kh_reply_fail(c, 503, "out of memory");
    if (c->reply.status != 0) {
        c->refused = true;
        if ((c->thrown += *n) > c->body.max)
            return MHD_NO;
    }
    *n = 0;
    return MHD_YES;
}

/* All of the request is there. */
static enum MHD_Result complete(kh_server *s, kh_call *c) {
    if (strcmp(c->route->method, "GET") == 0) {
        c->route->prepare(s, c);
        return send_reply(s, c);
    }
    set_deadline(s, c->connection, 0); /* how long an answer takes is our own affair */
    atomic_store(&c->waiting, true);
    MHD_suspend_connection(c->connection);
    if (!kh_queue_add(&s->reading, c)) {
        kh_reply_fail(c, 429, "%d requests are waiting already", s->o.queue);
        kh_call_resume(c);
    }
    return MHD_YES;
}

static enum MHD_Result on_request(void *self, struct MHD_Connection *connection, const char *url,
    const char *method, const char *version, const char *bytes, size_t *n, void **state) {
    kh_server *s = self;
    kh_call *c = *state;
    if (!c)
        return begin(s, connection, url, method, version, state);
    if (*n > 0)
        return receive(s, c, bytes, n);
    if (atomic_load(&c->waiting) || c->answered)
        return MHD_YES;
    set_deadline(s, connection, s->o.body_time);
    return c->reply.status != 0 ? send_reply(s, c) : complete(s, c);
}

static void on_completed(void *self, struct MHD_Connection *connection, void **state,
    enum MHD_RequestTerminationCode why) {
    kh_server *s = self;
    kh_call *c = *state;
    (void)why;
    if (!c || atomic_load(&c->waiting)) /* never with one that waits: libmicrohttpd keeps a
                                           suspended connection */
        return;
    atomic_fetch_sub(&s->count.active, 1);
    if (c->way)
        c->way->free(c->parsed);
    kh_buf_free(&c->body);
    kh_buf_free(&c->reply.body);
    kh_guard_release(s, c, c->charged); /* the answer has been fetched, or nobody is there */
    kh_free(c);
    *state = NULL;
    set_deadline(s, connection, s->o.idle_time);
}

/* --------------------------------------------------------------------------------- connections */

static void on_connection(void *self, struct MHD_Connection *connection, void **state,
    enum MHD_ConnectionNotificationCode what) {
    kh_server *s = self;
    kh_socket *k = *state;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        atomic_fetch_add(&s->count.connections, 1);
        if (!info || !(k = kh_calloc(1, sizeof *k)))
            return;
        *k = (kh_socket){ .fd = info->connect_fd, .deadline = kh_clock() + s->o.header_time };
        pthread_mutex_lock(&s->sockets_lock);
        k->after = s->sockets;
        if (k->after)
            k->after->before = k;
        s->sockets = k;
        pthread_mutex_unlock(&s->sockets_lock);
        *state = k;
        return;
    }
    atomic_fetch_sub(&s->count.connections, 1);
    if (!k)
        return;
    pthread_mutex_lock(
        &s->sockets_lock); /* the descriptor is still open: the watch cannot meet another's */
    if (k->before)
        k->before->after = k->after;
    else
        s->sockets = k->after;
    if (k->after)
        k->after->before = k->before;
    pthread_mutex_unlock(&s->sockets_lock);
    kh_free(k);
    *state = NULL;
}

static void *watch(void *self) {
    kh_server *s = self;
    pthread_mutex_lock(&s->sockets_lock);
    while (!s->watch_ends) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_nsec += 200000000;
        t.tv_sec += t.tv_nsec / 1000000000, t.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&s->watch_wake, &s->sockets_lock, &t);
        double now = kh_clock();
        for (kh_socket *k = s->sockets; k; k = k->after)
            if (k->deadline > 0 && now > k->deadline) {
                shutdown(k->fd, SHUT_RDWR);
                k->deadline = 0;
                atomic_fetch_add(&s->count.timeouts, 1);
            }
    }
    pthread_mutex_unlock(&s->sockets_lock);
    return NULL;
}

static int start_watch(kh_server *s, kh_err *err) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->sockets_lock, NULL);
    pthread_cond_init(&s->watch_wake, &attr);
    pthread_condattr_destroy(&attr);
    s->watching = pthread_create(&s->watch, NULL, watch, s) == 0;
    return s->watching ? 0 : kh_fail(err, KH_EIO, "cannot start a thread to watch connections");
}

/* ------------------------------------------------------------------------------------ starting */

static int address_of(
    const kh_server_opts *o, struct sockaddr_storage *out, bool *six, kh_err *err) {
    struct sockaddr_in *a = (struct sockaddr_in *)out;
    struct sockaddr_in6 *b = (struct sockaddr_in6 *)out;
    const char *host = strcmp(o->host, "localhost") == 0 ? "127.0.0.1" : o->host;
    *out = (struct sockaddr_storage){ 0 };
    *six = strchr(host, ':') != NULL;
    if (*six)
        b->sin6_family = AF_INET6, b->sin6_port = htons((uint16_t)o->port);
    else
        a->sin_family = AF_INET, a->sin_port = htons((uint16_t)o->port);
    return inet_pton(*six ? AF_INET6 : AF_INET, host,
               *six ? (void *)&b->sin6_addr : (void *)&a->sin_addr) == 1
        ? 0
        : kh_fail(err, KH_EARG,
              "\"%.60s\" is no address to listen on; 127.0.0.1 is this machine alone, 0.0.0.0 "
              "everybody",
              o->host);
}

static void no_log(void *self, const char *fmt, va_list args) { (void)self, (void)fmt, (void)args; }

static int listen_at(kh_server *s, const char *cert, const char *key, kh_err *err) {
    struct sockaddr_storage address;
    bool six;
    int rc = address_of(&s->o, &address, &six, err);
    if (rc != 0)
        return rc;
    int per_address = s->o.per_address ? s->o.per_address : (s->o.connections + 1) / 2;
    struct MHD_OptionItem options[16] = { { MHD_OPTION_EXTERNAL_LOGGER, (intptr_t)no_log, NULL },
        { MHD_OPTION_SOCK_ADDR, 0, &address },
        { MHD_OPTION_CONNECTION_LIMIT,
            s->o.connections > READ_THREADS ? s->o.connections : READ_THREADS, NULL },
        { MHD_OPTION_PER_IP_CONNECTION_LIMIT, per_address, NULL },
        { MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEAD_BYTES, NULL },
        { MHD_OPTION_CONNECTION_TIMEOUT,
            (intptr_t)(s->o.idle_time > s->o.body_time ? s->o.idle_time : s->o.body_time) + 5,
            NULL },
        { MHD_OPTION_THREAD_POOL_SIZE, READ_THREADS, NULL },
        { MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_completed, s },
        { MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, s } };
    /* Without MHD_OPTION_LISTENING_ADDRESS_REUSE a port that has just been left can be taken
     * (SO_REUSEADDR); with it, two servers would share one port and its requests (SO_REUSEPORT). */
    int n = 9;
    if (cert) {
        options[n++] =
            (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)cert };
        options[n++] =
            (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)key };
    }
    options[n] = (struct MHD_OptionItem){ MHD_OPTION_END, 0, NULL };
    /* Older libmicrohttpd declares the flags as an enum whose constants are signed. */
    unsigned flags = (unsigned)MHD_USE_EPOLL_INTERNAL_THREAD | (unsigned)MHD_ALLOW_SUSPEND_RESUME |
        (unsigned)MHD_USE_ITC | (unsigned)(six ? MHD_USE_IPv6 : 0) |
        (unsigned)(cert ? MHD_USE_TLS : 0);
    s->daemon = MHD_start_daemon(flags, (uint16_t)s->o.port, NULL, NULL, on_request, s,
        MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    if (!s->daemon)
        return kh_fail(err, KH_EIO, "cannot listen on %s port %d: is it taken%s?", s->o.host,
            s->o.port, cert ? ", and are certificate and key good" : ", or not ours to take");
    s->port = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
    return 0;
}

static int start_listening(kh_server *s, kh_err *err) {
    kh_buf cert = kh_buf_init(0), key = kh_buf_init(0);
    bool tls = s->o.tls_cert || s->o.tls_key;
    int rc = tls && !(s->o.tls_cert && s->o.tls_key)
        ? kh_fail(err, KH_EARG, "HTTPS needs both, a certificate and its key")
        : 0;
    if (rc == 0 && tls && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        rc = kh_fail(
            err, KH_EUNSUPPORTED, "the libmicrohttpd of this machine was built without TLS");
    if (rc == 0 && tls)
        rc = kh_file_read(s->o.tls_cert, 1 << 20, &cert, err);
    if (rc == 0 && tls)
        rc = kh_file_read(s->o.tls_key, 1 << 20, &key, err);
    if (rc == 0)
        rc = listen_at(s, tls ? cert.data : NULL, tls ? key.data : NULL, err);
    if (key.data)
        explicit_bzero(key.data, key.len);
    kh_buf_free(&cert);
    kh_buf_free(&key);
    return rc;
}

/* The box answers in pieces, and before each asks whether it shall go on; nothing is remembered. */
static bool is_abandoned(void *self) { return atomic_load(&((kh_server *)self)->abandoned); }
static bool know_nothing(void *self, const kh_answer_key *key) {
    (void)self, (void)key;
    return false;
}
static int recall_nothing(
    void *self, const kh_answer_key *key, void *bytes, size_t n, double *seconds, kh_err *err) {
    (void)self, (void)key, (void)bytes, (void)n, (void)seconds, (void)err;
    return 0;
}
static int record_nothing(void *self, const kh_answer_unit *u, int n, kh_err *err) {
    (void)self, (void)u, (void)n, (void)err;
    return 0;
}

static void set_pieces(kh_server *s, const kh_answer_cache *pieces) {
    kh_plm_set_cache(s->what.plm, pieces);
    for (int i = 0; i < s->what.n_other; i++)
        kh_plm_set_cache(s->what.others[i].plm, pieces);
}

int kh_server_start(kh_server **out, const kh_served *what, const kh_server_opts *o, kh_err *err) {
    *out = NULL;
    kh_server *s = kh_calloc(1, sizeof *s);
    if (!s)
        return kh_fail_memory(err);
    s->what = *what;
    s->o = *o;
    s->started = kh_clock();
    s->since = (long long)time(NULL);
    s->pieces = (kh_answer_cache){ .stop = is_abandoned,
        .known = know_nothing,
        .recall = recall_nothing,
        .record = record_nothing,
        .self = s };
    set_pieces(s, &s->pieces);
    s->access = kh_plm_describe(what->plm).access;
    s->labeler = kh_plm_labeler(what->plm, NULL);
    s->scorer = s->access >= KH_ACCESS_LOGPROBS ? kh_plm_scorer(what->plm, NULL) : NULL;
    int rc = kh_guard_init(s, err);
    if (rc == 0 && what->task)
        rc = kh_guard_task(s, what->task, err);
    if (rc == 0)
        rc = what->posterior ? kh_classify_init(s, err) : kh_describe_init(s, err);
    if (rc == 0)
        rc = kh_queues_start(s, err);
    if (rc == 0)
        rc = start_watch(s, err);
    if (rc == 0)
        rc = start_listening(s, err);
    if (rc != 0)
        kh_server_stop(s);
    else
        *out = s;
    return rc;
}

int kh_server_port(const kh_server *s) { return s->port; }

/* ------------------------------------------------------------------------------------ stopping */

/* Requests under way are answered, and their connections then closed; no new ones are taken. */
static void drain(kh_server *s) {
    double end = kh_clock() + s->o.drain_time;
    atomic_store(&s->draining, true);
    MHD_socket listening = MHD_quiesce_daemon(s->daemon);
    while (atomic_load(&s->count.active) > 0 && kh_clock() < end)
        nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    kh_queues_stop(s, atomic_load(&s->count.active) > 0);
    MHD_stop_daemon(s->daemon);
    if (listening != MHD_INVALID_SOCKET)
        close(listening);
}

void kh_server_stop(kh_server *s) {
    if (!s)
        return;
    if (s->daemon)
        drain(s);
    kh_queues_stop(s, true);
    if (s->watching) {
        pthread_mutex_lock(&s->sockets_lock);
        s->watch_ends = true;
        pthread_cond_signal(&s->watch_wake);
        pthread_mutex_unlock(&s->sockets_lock);
        pthread_join(s->watch, NULL);
        pthread_mutex_destroy(&s->sockets_lock);
        pthread_cond_destroy(&s->watch_wake);
    }
    set_pieces(s, NULL);
    kh_guard_free(s);
    kh_free(s->model_json);
    kh_free(s->tokenizer_json);
    kh_classify_free(s);
    kh_free(s);
}

#else

int kh_server_start(kh_server **out, const kh_served *what, const kh_server_opts *o, kh_err *err) {
    (void)what, (void)o;
    *out = NULL;
    return kh_fail(err, KH_EUNSUPPORTED,
        "this keyhole was built without libmicrohttpd, so it cannot serve; install "
        "libmicrohttpd-dev and build it again");
}
int kh_server_port(const kh_server *s) { return s ? s->port : 0; }
void kh_server_stop(kh_server *s) { (void)s; }
void kh_reply_text(kh_call *c, int status, const char *type, const char *text) {
    (void)c, (void)status, (void)type, (void)text;
}
void kh_reply_fail(kh_call *c, int status, const char *fmt, ...) {
    (void)c, (void)status, (void)fmt;
}
void kh_reply_err(kh_call *c, const kh_err *err) { (void)c, (void)err; }
void kh_reply_fixed(kh_call *c, const char *type, const char *text) {
    (void)c, (void)type, (void)text;
}
const char *kh_call_query(const kh_call *c, const char *key) { return c ? NULL : key; }
void kh_call_resume(kh_call *c) { (void)c; }

#endif
