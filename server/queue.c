/* queue.c - requests that wait for the box, and the one thread that asks it.
 *
 * The thread takes the oldest request and with it all others in the queue that can be asked in the
 * same call: what came in while the engine was busy is answered together. Nobody waits for company.
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
            (n < MOST_TOGETHER && c->way == head->way && c->way->joins &&
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
    kh_server *s = self;
    kh_queue *q = &s->queue;
    kh_call *calls[MOST_TOGETHER];
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!q->first && !q->closed)
            pthread_cond_wait(&q->wake, &q->lock);
        if (!q->first)
            break;
        int n = take(q, calls);
        pthread_mutex_unlock(&q->lock);
        calls[0]->way->run(s, calls, n);
        atomic_fetch_add(&s->count.batches, 1);
        atomic_fetch_add(&s->count.batched, n);
        for (int i = 0; i < n; i++)
            kh_call_resume(calls[i]);
        pthread_mutex_lock(&q->lock);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

int kh_queue_start(kh_server *s, kh_err *err) {
    kh_queue *q = &s->queue;
    q->max = s->o.queue;
    q->most = s->limits.tokens;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->wake, NULL);
    q->running = pthread_create(&q->thread, NULL, serve, s) == 0;
    return q->running ? 0 : kh_fail(err, KH_EIO, "cannot start a thread to ask the model");
}

bool kh_queue_add(kh_server *s, kh_call *c) {
    kh_queue *q = &s->queue;
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

int kh_queue_length(kh_server *s) {
    pthread_mutex_lock(&s->queue.lock);
    int n = s->queue.n;
    pthread_mutex_unlock(&s->queue.lock);
    return n;
}

void kh_queue_stop(kh_server *s, bool now) {
    kh_queue *q = &s->queue;
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
