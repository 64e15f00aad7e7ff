/* queue.c - requests that wait for the box, and the one thread that asks it; before that, those
 * that wait for the one thread that reads bodies.
 *
 * The thread that asks takes the oldest request and with it all others in the queue that can be
 * asked in the same call: what came in while the engine was busy is answered together. Nobody waits
 * for company.
 */
#include "server/server_parts.h"

#include "base/err.h"

enum { MOST_TOGETHER = 256 };

/* Takes the first call and those that join it out of the queue; how many there are. */
static int take(kh_queue *q, kh_call **out) {
    kh_call *head = q->first, **link = &q->first, *last = NULL;
    long long cost = 0;
    int n = 0;
    for (kh_call *c = head; c; c = *link) {
        bool mine = c == head ||
            (q->together && n < MOST_TOGETHER && c->way == head->way && c->way->joins &&
                cost + c->cost <= q->most && c->way->joins(head, c));
        if (mine) {
            out[n++] = c;
            cost += c->cost;
            *link = c->next;
            c->next = NULL;
        } else {
            last = c;
            link = &c->next;
        }
    }
    q->last = last;
    q->n -= n;
    return n;
}

static void *serve(void *self) {
    kh_queue *q = self;
    kh_call *calls[MOST_TOGETHER];
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!q->first && !q->closed)
            pthread_cond_wait(&q->wake, &q->lock);
        if (!q->first)
            break;
        int n = take(q, calls);
        pthread_mutex_unlock(&q->lock);
        q->work(q->server, calls, n);
        pthread_mutex_lock(&q->lock);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static void ask(kh_server *s, kh_call **calls, int n) {
    calls[0]->way->run(s, calls, n);
    atomic_fetch_add(&s->count.batches, 1);
    atomic_fetch_add(&s->count.batched, n);
    for (int i = 0; i < n; i++)
        kh_call_resume(calls[i]);
}

/* Whether the body has been read, paid for, and waits for the box now. */
static bool read_body(kh_server *s, kh_call *c) {
    /* The tree, and what is copied out of it, which is no longer than twice the text. */
    size_t tree = kh_json_cost(c->body.data ? c->body.data : "", c->body.len);
    if (!kh_guard_charge(s, c, tree + 2 * c->body.len))
        return false;
    c->route->prepare(s, c);
    if (c->way && !c->way->holds_tree)
        kh_guard_release(s, c, tree);
    if (c->reply.status != 0 || !c->way || !kh_guard_charge(s, c, c->bound) ||
        !kh_guard_spend(s, c))
        return false;
    if (kh_queue_add(&s->asking, c))
        return true;
    kh_reply_fail(c, 429, "%d requests are waiting already", s->o.queue);
    return false;
}

static void read_bodies(kh_server *s, kh_call **calls, int n) {
    for (int i = 0; i < n; i++)
        if (!read_body(s, calls[i]))
            kh_call_resume(calls[i]);
}

static int start(
    kh_server *s, kh_queue *q, void (*work)(kh_server *, kh_call **, int), kh_err *err) {
    q->server = s;
    q->work = work;
    q->max = s->o.queue;
    q->most = s->limits.tokens;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->wake, NULL);
    q->running = pthread_create(&q->thread, NULL, serve, q) == 0;
    return q->running ? 0 : kh_fail(err, KH_EIO, "cannot start a thread to ask the model");
}

int kh_queues_start(kh_server *s, kh_err *err) {
    s->asking.together = true;
    int rc = start(s, &s->asking, ask, err);
    return rc == 0 ? start(s, &s->reading, read_bodies, err) : rc;
}

bool kh_queue_add(kh_queue *q, kh_call *c) {
    pthread_mutex_lock(&q->lock);
    bool room = q->n < q->max && !q->closed;
    if (room) {
        c->next = NULL;
        if (q->last)
            q->last->next = c;
        else
            q->first = c;
        q->last = c;
        q->n++;
        pthread_cond_signal(&q->wake);
    }
    pthread_mutex_unlock(&q->lock);
    return room;
}

int kh_queue_length(kh_queue *q) {
    pthread_mutex_lock(&q->lock);
    int n = q->n;
    pthread_mutex_unlock(&q->lock);
    return n;
}

static void stop(kh_queue *q, bool now) {
    if (!q->running)
        return;
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    kh_call *left = now ? q->first : NULL;
    if (now)
        q->first = q->last = NULL, q->n = 0;
    pthread_cond_signal(&q->wake);
    pthread_mutex_unlock(&q->lock);
    for (kh_call *next; left; left = next) {
        next = left->next;
        kh_reply_fail(left, 503, "the server is shutting down");
        kh_call_resume(left);
    }
    pthread_join(q->thread, NULL);
    q->running = false;
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->wake);
}

void kh_queues_stop(kh_server *s, bool now) {
    if (now)
        atomic_store(&s->abandoned, true);
    stop(&s->reading, now); /* first: it feeds the other */
    stop(&s->asking, now);
}
