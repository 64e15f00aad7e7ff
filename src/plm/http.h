/* http.h - many requests to one service: some in flight at a time, timeouts, caps, and patience
 * with what passes.
 *
 *     kh_http *h;
 *     if (kh_http_open(&h, "http://127.0.0.1:8080", &opts, hooks, err)) ...
 *     kh_http_jobs jobs = { .n = 12, .make = make, .take = take, .user = &mine,
 *         .max_answer = 1 << 20 };
 *     kh_http_run(h, &jobs, err);
 *
 * Requests are made when their turn comes and answers are handed over by their number, in whatever
 * order they come. A lost connection, a timeout and the statuses 408, 429, 500, 502, 503 and 504
 * are tried again after a pause that doubles, with jitter, or after what Retry-After says. But
 * where nobody listens at the first request there is nothing to wait for, unless a number of
 * retries is given: a wrong port is told at once. Redirects are not followed: a key goes to the
 * host that it was meant for. The key is in no message. */
#ifndef KH_PLM_HTTP_H
#define KH_PLM_HTTP_H

#include "base/buf.h"
#include "base/opts.h"
#include "keyhole.h"

/* The rows of a kh_http_opts called m in a struct S, for a table of options. */
#define KH_HTTP_ROWS(S, m) \
    { "backend", KH_OPT_TEXT, offsetof(S, m.backend), .arg = "NAME", \
        .help = \
            "what a URL speaks: keyhole (default), vllm-completions, vllm-chat, sglang, openai, " \
            "decisions, systemone" }, \
        { "model-name", KH_OPT_TEXT, offsetof(S, m.model), .arg = "NAME", \
            .help = "the service's name for the model; default: the first it lists" }, \
        { "key-file", KH_OPT_TEXT, offsetof(S, m.key_file), .arg = "FILE", \
            .help = "holds the service's key; default: the environment's KEYHOLE_API_KEY" }, \
        { "ca-file", KH_OPT_TEXT, offsetof(S, m.ca_file), .arg = "FILE", \
            .help = "certificates to trust instead of the system's" }, \
        { "tokenizer", KH_OPT_TEXT, offsetof(S, m.tokenizer), .arg = "DIR|FILE", \
            .help = "of the service's model; keyhole's own services give it themselves" }, \
        { "embeddings", KH_OPT_TEXT, offsetof(S, m.embeddings), .arg = "FILE", \
            .help = "a safetensors file with the model's word embeddings, where a service wants " \
                    "them" }, \
        { "in-flight", KH_OPT_INT, offsetof(S, m.in_flight), "8", .min = 1, .max = 256, \
            .arg = "N", .help = "requests at a time to a service" }, \
        { "timeout", KH_OPT_NUMBER, offsetof(S, m.timeout), "120", .min = 0.1, .max = 86400, \
            .arg = "S", .help = "seconds for one request" }, \
    { \
        "retries", KH_OPT_INT, offsetof(S, m.retries), "-1", \
            .min = -1, .max = 1000, .arg = "N", \
            .help = "how often a request is tried again; -1: 8 times, once the service has been " \
                    "reached" \
    }

typedef struct kh_http kh_http;

/* Whether a box calls itself by this name because that is what its URL speaks; keyhole's own
 * services call themselves by the engine behind them. */
bool kh_speaks(const char *backend);
bool kh_is_url(const char *model); /* "http://..." or "https://..." */
/* Whether a URL leads to this machine, by address or as "localhost". */
bool kh_is_loopback(const char *url);

/* Asks nothing yet. opts NULL: the defaults. */
int kh_http_open(
    kh_http **out, const char *url, const kh_http_opts *, const kh_hooks *, kh_err *err);
void kh_http_close(kh_http *);
const char *kh_http_url(const kh_http *); /* for messages; without a slash at its end */
int kh_http_in_flight(const kh_http *);
const kh_hooks *kh_http_hooks(const kh_http *);

typedef struct kh_http_jobs {
    int n;
    /* Request i: *path (borrowed, starts with '/') and the body, which is empty for a GET. */
    int (*make)(void *user, int i, const char **path, kh_buf *body, kh_err *err);
    /* The body of a 2xx answer to request i, NUL-terminated. KH_RETRY, with a sentence: something
     * is missing in it; the request is made anew (`make`) and sent again, but not often. */
    int (*take)(void *user, int i, const char *body, size_t n, kh_err *err);
    void *user;
    size_t max_answer; /* bytes */
    /* Request i has been sent `tries` times, and something is still missing, as `why` says: 0 goes
     * on without. NULL: that is a failure. */
    int (*give_up)(void *user, int i, int tries, const kh_err *why, kh_err *err);
} kh_http_jobs;

/* Ends at the first failure: of make, of take, or of a request that is refused or has been tried
 * often enough; what is under way then is waited for and taken (take with err NULL). A refusal is
 * KH_EARG (400, 413, 422), KH_EMISSING (404), KH_EUNSUPPORTED (401, 403, 405, 501) or KH_EIO, with
 * what the service said. */
int kh_http_run(kh_http *, const kh_http_jobs *, kh_err *err);

/* One request; body NULL: a GET. *answer is initialised here; free it also on failure. */
int kh_http_ask(kh_http *, const char *path, const kh_buf *body, size_t max_answer, kh_buf *answer,
    kh_err *err);

#endif
