/* server.h - a model, or a tuned classifier, behind HTTP.
 *
 *     kh_server *s;
 *     if (kh_server_start(&s, &(kh_served){ .plm = plm, .name = "M", .dir = dir }, &opts, err)) ...
 *     printf("port %d\n", kh_server_port(s));
 *     kh_server_stop(s);                                      answers what it has, then ends
 *
 * The server runs in threads of its own: libmicrohttpd's read requests, one asks the box.
 * doc/serving.md has the API. */
#ifndef KH_SERVER_SERVER_H
#define KH_SERVER_SERVER_H

#include "base/opts.h"
#include "keyhole.h"

/* What is served; all of it is borrowed and must outlive the server. The server is the only one to
 * ask the box. */
typedef struct kh_served {
    kh_plm *plm;
    const char *name; /* the model's name on the wire */
    const char *dir;  /* where its tokenizer is; NULL: not given out */
    bool embeddings; /* log-probabilities of the whole vocabulary, and hidden states, may go out too
                      */
    const kh_task *task; /* at access level labels: whose words may be asked about; NULL: those of
                            the first question */
    bool any_words;      /* or any */
    const kh_posterior *posterior;  /* a classifier instead of a model; NULL: a model */
    const char *run;                /* its folder */
    const struct kh_served *others; /* more classifiers, each with its own name and box; a request
                                       names one as its model */
    int n_other;
} kh_served;

typedef struct kh_server_opts {
    const char *host;
    int port;               /* 0: any */
    const char *token_file; /* bearer tokens, one a line, of which every request must bring one;
                               NULL: the environment's KEYHOLE_SERVE_TOKEN */
    kh_strings allow_host, allow_origin;
    const char *tls_cert, *tls_key;
    int connections, per_address, queue, body_mb, memory_mb, prompts, rows, tokens;
    int budget;                                           /* queries of one key; 0: no limit */
    double header_time, body_time, idle_time, drain_time; /* seconds */
} kh_server_opts;

/* The rows of a kh_server_opts called m in a struct S, for a table of options. */
#define KH_SERVER_ROWS(S, m) \
    { "host", KH_OPT_TEXT, offsetof(S, m.host), "127.0.0.1", .arg = "ADDRESS", \
        .help = "to listen on; 0.0.0.0 is everybody" }, \
        { "port", KH_OPT_INT, offsetof(S, m.port), "8080", .min = 0, .max = 65535, .arg = "P", \
            .help = "to listen on; 0: any free one, which is printed" }, \
        { "token-file", KH_OPT_TEXT, offsetof(S, m.token_file), .arg = "FILE", \
            .help = "bearer tokens, one a line, that requests must bring; default: " \
                    "KEYHOLE_SERVE_TOKEN" }, \
        { "allow-host", KH_OPT_LIST, offsetof(S, m.allow_host), .arg = "NAME", \
            .help = "a name under which clients may reach this server, beside addresses, " \
                    "localhost and the machine's own" }, \
        { "allow-origin", KH_OPT_LIST, offsetof(S, m.allow_origin), .arg = "URL", \
            .help = "a site, such as https://example.org, whose pages may send requests" }, \
        { "query-budget", KH_OPT_INT, offsetof(S, m.budget), "0", .min = 0, .max = 2000000000, \
            .arg = "N", \
            .help = "queries that one key, or all without one, may ask; 0: no limit" }, \
        { "tls-cert", KH_OPT_TEXT, offsetof(S, m.tls_cert), .arg = "FILE", \
            .help = "serve HTTPS with this certificate (PEM)" }, \
        { "tls-key", KH_OPT_TEXT, offsetof(S, m.tls_key), .arg = "FILE", \
            .help = "and this private key (PEM)" }, \
        { "connections", KH_OPT_INT, offsetof(S, m.connections), "512", .min = 1, .max = 60000, \
            .arg = "N", .help = "at a time" }, \
        { "per-address", KH_OPT_INT, offsetof(S, m.per_address), "0", .min = 0, .max = 60000, \
            .arg = "N", .help = "of them from one address; 0: half of them" }, \
        { "queue", KH_OPT_INT, offsetof(S, m.queue), "256", .min = 1, .max = 1000000, .arg = "N", \
            .help = "requests that may wait; more are answered 429" }, \
        { "max-body", KH_OPT_INT, offsetof(S, m.body_mb), "64", .min = 1, .max = 4096, \
            .arg = "MB", .help = "of one request" }, \
        { "max-memory", KH_OPT_INT, offsetof(S, m.memory_mb), "1024", .min = 1, .max = 1000000, \
            .arg = "MB", .help = "that all requests under way may take; more are answered 503" }, \
        { "max-prompts", KH_OPT_INT, offsetof(S, m.prompts), "1024", .min = 1, .max = 1000000, \
            .arg = "N", .help = "of one request" }, \
        { "max-rows", KH_OPT_INT, offsetof(S, m.rows), "4096", .min = 1, .max = 1000000, \
            .arg = "N", .help = "of one request" }, \
        { "max-tokens", KH_OPT_INT, offsetof(S, m.tokens), "4000000", .min = 1, .max = 2000000000, \
            .arg = "N", .help = "of one request: prompts times the tokens of its rows" }, \
        { "header-time", KH_OPT_NUMBER, offsetof(S, m.header_time), "10", .min = 0.1, \
            .max = 86400, .arg = "S", \
            .help = "seconds in which the head of a request must arrive" }, \
        { "body-time", KH_OPT_NUMBER, offsetof(S, m.body_time), "60", .min = 0.1, .max = 86400, \
            .arg = "S", \
            .help = \
                "seconds in which its body must arrive, and in which an answer must be fetched" }, \
        { "idle-time", KH_OPT_NUMBER, offsetof(S, m.idle_time), "60", .min = 0.1, .max = 86400, \
            .arg = "S", .help = "seconds that a connection may stay without a request" }, \
    { \
        "drain-time", KH_OPT_NUMBER, offsetof(S, m.drain_time), "30", \
            .min = 0, .max = 86400, .arg = "S", \
            .help = "seconds to answer what is waiting after SIGTERM" \
    }

kh_server_opts kh_server_defaults(void);

typedef struct kh_server kh_server;
int kh_server_start(kh_server **out, const kh_served *, const kh_server_opts *, kh_err *err);
int kh_server_port(const kh_server *);
/* Takes no new connections, answers what is waiting as long as drain_time allows, and frees all.
 * NULL is fine. */
void kh_server_stop(kh_server *);

#endif
