/* server_parts.h - the parts of the server to each other.
 *
 *     server.c          connections, limits, token, routes
 *     guard.c           who may ask what: hosts, origins, keys, memory, words
 *     queue.c           requests that need the box, joined
 *     describe.c        what the model is
 *     server_metrics.c  what /metrics counts
 *     score.c           POST /v1/score
 *     classify.c        POST /v1/classify
 *     embeddings.c      POST /v1/embeddings
 *     completions.c     POST /v1/completions, as vLLM has it
 *     decide.c          POST /v1/decisions, POST /v1/systemone
 *     questions.c       what those two ask
 *
 * A request becomes a kh_call. Its route's `prepare` either fills the reply, or reads the body into
 * `parsed` and says how the box is to be asked (`way`); then the call waits in the queue. For a GET
 * it runs on a thread of libmicrohttpd; bodies are read by a thread of their own, so that whatever
 * a body takes to read, /health is answered meanwhile. */
#ifndef KH_SERVER_SERVER_PARTS_H
#define KH_SERVER_SERVER_PARTS_H

#include "base/buf.h"
#include "plm/answer_cache.h"
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
    const char *fixed; /* instead: a text that lives as long as the server, sent without a copy */
    bool retry;        /* with Retry-After */
} kh_reply;

/* A way to ask the box. */
typedef struct kh_way {
    /* Whether b may be answered together with a; NULL: never. */
    bool (*joins)(const kh_call *a, const kh_call *b);
    /* Fills the replies of n calls that join. Runs on the one thread that may ask the box. */
    void (*run)(kh_server *, kh_call **calls, int n);
    void (*free)(void *parsed);
    bool holds_tree; /* `parsed` keeps the JSON tree of the body */
} kh_way;

typedef struct kh_route {
    const char *method, *path;
    bool open; /* needs no token */
    void (*prepare)(kh_server *, kh_call *);
} kh_route;

/* A client that is known by its token. */
typedef struct kh_key {
    char *token; /* NULL: everybody */
    atomic_llong spent;
} kh_key;

struct kh_call {
    const kh_route *route;
    kh_key *key;
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
    long long cost, queries; /* tokens; pairs of prompt and row */
    size_t bound;            /* bytes that asking and the answer will take, at most */
    size_t charged;          /* bytes of all that are counted so far */
    kh_call *next;           /* in the queue */
};

/* -- queue.c -- */

typedef struct kh_queue {
    kh_server *server;
    void (*work)(kh_server *, kh_call **calls, int n); /* with calls that join, or one */
    bool together;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    kh_call *first, *last;
    int n, max;
    long long most; /* tokens of calls answered together */
    bool running, closed;
} kh_queue;
/* Both queues: of bodies to read, and of questions to the box. */
int kh_queues_start(kh_server *, kh_err *err);
/* False if too many wait, or the queue is closed. */
bool kh_queue_add(kh_queue *, kh_call *);
int kh_queue_length(kh_queue *);
/* Answers what waits, or refuses it if `now`, and ends the threads. */
void kh_queues_stop(kh_server *, bool now);

/* -- metrics.c -- */

typedef struct kh_counters {
    atomic_llong requests[6]; /* by the first digit of the status */
    atomic_llong replies, queries, prompts, batches, batched, received, refused, timeouts;
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

/* A classifier that is served. */
typedef struct kh_tuned {
    kh_served what;
    kh_predictor *predictor;
    kh_decisions decisions;
    bool decides;
    bool probabilities;  /* answers are more than votes that nothing has calibrated */
    char *report, *json; /* its report, or NULL; what GET /v1/run answers */
} kh_tuned;

struct kh_server {
    kh_served what;
    kh_server_opts o;
    kh_access access;
    kh_scorer *scorer; /* NULL at access level labels */
    kh_labeler *labeler;
    kh_wire_limits limits;
    kh_key *key; /* [n_key], or one without a token */
    int n_key;
    kh_buf words[2], allowed; /* what may be asked about at access level labels; empty: not yet */
    pthread_mutex_t words_lock;
    bool guarded;
    char *model_json, *tokenizer_json; /* what GET /v1/model and /v1/tokenizer answer */
    kh_tuned *tuned;                   /* [n_tuned] classifiers; none: a model */
    int n_tuned;
    kh_counters count;
    atomic_size_t bytes;             /* that all requests under way take */
    atomic_bool draining, abandoned; /* abandoned: whoever asks the box is to stop */
    double started;
    long long since;        /* the same, in seconds since 1970 */
    kh_answer_cache pieces; /* remembers nothing, but lets a long question be stopped */
    kh_queue reading, asking;
    struct MHD_Daemon *daemon;
    int port;
    pthread_mutex_t sockets_lock;
    pthread_cond_t watch_wake;
    pthread_t watch;
    bool watching, watch_ends;
    kh_socket *sockets;
};

void kh_reply_text(kh_call *, int status, const char *type, const char *text);
/* A text that lives as long as the server. */
void kh_reply_fixed(kh_call *, const char *type, const char *text);
/* {"error":{"message":...,"type":...,"code":status}} */
void kh_reply_fail(kh_call *, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same from an error of the library: whose fault it is decides the status. */
void kh_reply_err(kh_call *, const kh_err *);
/* The value of a query parameter, or NULL. */
const char *kh_call_query(const kh_call *, const char *key);
void kh_call_resume(kh_call *);

/* -- guard.c: false, or not 0, with a reply or a sentence that refuses -- */

int kh_guard_init(kh_server *, kh_err *err);
void kh_guard_free(kh_server *);
bool kh_guard_head(const kh_server *, kh_call *, const char *method, const char *version);
bool kh_guard_token(kh_server *, kh_call *); /* false without a reply */
/* Before the box is asked: the key's budget. */
bool kh_guard_spend(kh_server *, kh_call *);
/* Before n bytes are asked for; they are given back when the call ends. */
bool kh_guard_charge(kh_server *, kh_call *, size_t n);
void kh_guard_release(kh_server *, kh_call *, size_t n);
/* What turning a text of n bytes into tokens takes beside it, at most; the longest counts, as they
 * are encoded one after another. */
enum { KH_ENCODE_COST = 128 };
static inline size_t kh_encode_cost(size_t n) {
    return n > SIZE_MAX / KH_ENCODE_COST ? SIZE_MAX : n * KH_ENCODE_COST;
}
/* The longest string of a value that is one, or of an array of them. */
size_t kh_longest_text(const json_t *);
/* The label words, or the tokens among which one is chosen, of a request. */
int kh_guard_words(kh_server *, const kh_words *, kh_err *err);
int kh_guard_tokens(kh_server *, const int32_t *id, int n, kh_err *err);
int kh_guard_task(kh_server *, const kh_task *, kh_err *err); /* the server's own words */

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
void kh_classify_free(kh_server *);
/* The classifier that a request names: the only one, or by its name; the first if it names none.
 * NULL: the reply says which there are. */
kh_tuned *kh_tuned_find(kh_server *, kh_call *, const char *name);
void kh_get_run(kh_server *, kh_call *);
void kh_post_decisions(kh_server *, kh_call *);
void kh_post_systemone(kh_server *, kh_call *);
void kh_post_classify(kh_server *, kh_call *);
void kh_get_page(kh_server *, kh_call *);
void kh_get_report(kh_server *, kh_call *);

#endif
