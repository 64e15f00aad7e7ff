/* inside.h - the parts of the server to each other.
 *
 *     server.c     connections, limits, token, routes            describe.c   what the model is
 *     queue.c      requests that need the box, joined            score.c      POST /v1/score
 *     metrics.c    what /metrics counts                          classify.c   POST /v1/classify
 *     embeddings.c POST /v1/embeddings                           completions.c  POST
 * /v1/completions, as vLLM has it
 *
 * A request becomes a kh_call. Its route's `prepare` runs on a thread of libmicrohttpd: it either
 * fills the reply, or reads the body into `parsed` and says how the box is to be asked (`way`);
 * then the call waits in the queue. */
#ifndef KH_SERVER_SERVER_PARTS_H
#define KH_SERVER_SERVER_PARTS_H

#include "base/buf.h"
#include "plm/wire.h"
#include "server/server.h"

#include <pthread.h>
#include <stdatomic.h>

struct MHD_Connection;
struct MHD_Daemon;
typedef struct kh_call kh_call;

typedef struct kh_reply {
    int status;
    const char *type; /* of the body; NULL: JSON */
    kh_buf body;
    bool retry; /* with Retry-After */
} kh_reply;

/* A way to ask the box. */
typedef struct kh_way {
    /* Whether b may be answered together with a; NULL: never. */
    bool (*joins)(const kh_call *a, const kh_call *b);
    /* Fills the replies of n calls that join. Runs on the one thread that may ask the box. */
    void (*run)(kh_server *, kh_call **calls, int n);
    void (*free)(void *parsed);
} kh_way;

typedef struct kh_route {
    const char *method, *path;
    bool open; /* needs no token */
    void (*prepare)(kh_server *, kh_call *);
} kh_route;

struct kh_call {
    const kh_route *route;
    struct MHD_Connection *connection;
    kh_buf body;
    bool refused;  /* the reply is there before the body is */
    size_t thrown; /* bytes of a body that is refused */
    bool answered;
    atomic_bool waiting; /* in the queue, or with the box; who sees it false sees the reply, too */
    double started;
    kh_reply reply;
    const kh_way *way; /* NULL: the reply is ready */
    void *parsed;
    long long cost; /* tokens */
    kh_call *next;  /* in the queue */
};

/* -- queue.c -- */

typedef struct kh_queue {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    kh_call *first, *last;
    int n, max;
    long long most; /* tokens of calls answered together */
    bool running, closed;
} kh_queue;
int kh_queue_start(kh_server *, kh_err *err);
/* False if too many wait, or the queue is closed. */
bool kh_queue_add(kh_server *, kh_call *);
int kh_queue_length(kh_server *);
/* Answers what waits, or refuses it if `now`, and ends the thread. */
void kh_queue_stop(kh_server *, bool now);

/* -- metrics.c -- */

typedef struct kh_counters {
    atomic_llong requests[6]; /* by the first digit of the status */
    atomic_llong queries, prompts, batches, batched, received, refused, timeouts;
    atomic_llong seconds_bucket[12], seconds_count, microseconds;
    atomic_int connections, active;
} kh_counters;
void kh_metrics_observe(kh_server *, int status, double seconds);
void kh_metrics_put(kh_server *, kh_buf *out);

/* -- server.c -- */

typedef struct kh_socket { /* a connection, for the watch that ends those that take too long */
    int fd;
    double deadline;
    struct kh_socket *before, *after;
} kh_socket;

struct kh_server {
    kh_served what;
    kh_server_opts o;
    kh_access access;
    kh_scorer *scorer; /* NULL at access level labels */
    kh_labeler *labeler;
    kh_wire_limits limits;
    char *token;                       /* NULL: none is asked for */
    char *model_json, *tokenizer_json; /* what GET /v1/model and /v1/tokenizer answer */
    /* A classifier. */
    kh_predictor *predictor;
    kh_decisions decisions;
    bool decides;
    char *report;
    kh_counters count;
    atomic_size_t bytes; /* of bodies in memory */
    atomic_bool draining;
    double started;
    kh_queue queue;
    struct MHD_Daemon *daemon;
    int port;
    pthread_mutex_t sockets_lock;
    pthread_cond_t watch_wake;
    pthread_t watch;
    bool watching, watch_ends;
    kh_socket *sockets;
};

void kh_reply_text(kh_call *, int status, const char *type, const char *text);
/* {"error":{"message":...,"type":...,"code":status}} */
void kh_reply_fail(kh_call *, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same from an error of the library: whose fault it is decides the status. */
void kh_reply_err(kh_call *, const kh_err *);
/* The value of a query parameter, or NULL. */
const char *kh_call_query(const kh_call *, const char *key);
void kh_call_resume(kh_call *);

/* -- the routes -- */
int kh_describe_init(kh_server *, kh_err *err);
void kh_get_health(kh_server *, kh_call *);
void kh_get_metrics(kh_server *, kh_call *);
void kh_get_models(kh_server *, kh_call *);
void kh_get_model(kh_server *, kh_call *);
void kh_get_tokenizer(kh_server *, kh_call *);
void kh_get_embedding(kh_server *, kh_call *);
void kh_post_score(kh_server *, kh_call *);
void kh_post_completions(kh_server *, kh_call *);
void kh_post_embeddings(kh_server *, kh_call *);
int kh_classify_init(kh_server *, kh_err *err);
int kh_report_init(kh_server *, kh_err *err);
void kh_post_classify(kh_server *, kh_call *);
void kh_get_page(kh_server *, kh_call *);
void kh_get_report(kh_server *, kh_call *);

#endif
