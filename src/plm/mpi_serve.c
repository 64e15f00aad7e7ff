/* mpi_serve.c - ranks 1, 2, ...: they open the model that rank 0 names and answer pieces until it
 * says stop.
 *
 * A piece that cannot be answered is answered with the reason, and rank 0 says it: the other ranks
 * never speak to a user. Before a piece is begun all messages that have come are read, so a piece
 * that another rank took over is dropped in time. */
#include "plm/ranks.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct piece {
    struct piece *next;
    kh_mpi_head head;
    size_t n_prompt_byte;
    float prompt[];
} piece;

typedef struct context {
    uint64_t number;
    kh_batch batch;
    kh_words words;
    kh_inject inject;
    void *memory;
} context;

typedef struct server {
    kh_ranks *ranks;
    kh_port *port;
    const kh_backend *backend;
    void *box;
    piece *first, **end;
    context context[KH_MPI_CONTEXTS];
    int hidden;
    bool stop;
} server;

static int lost(kh_err *err) { return kh_fail(err, KH_EIO, "lost contact with rank 0"); }

static int reply(server *s, kh_mpi_head head, int kind, const void *body, size_t n, kh_err *err) {
    head.kind = kind;
    return s->port->send(s->port, 0, &head, sizeof head, body, n) == 0 ? 0 : lost(err);
}

/* The sentence, with the machine that it comes from. */
static int complain(server *s, kh_mpi_head head, const kh_err *why, kh_err *err) {
    char host[64] = "", text[sizeof why->msg + 80];
    gethostname(host, sizeof host - 1);
    int n = snprintf(text, sizeof text, "on %s: %s", host, why->msg);
    return reply(s, head, KH_MPI_FAILED, text, (size_t)n, err);
}

/* ------------------------------------------------------------------------------------ messages */

static int open_box(server *s, kh_mpi_head head, const char *body, size_t n, kh_err *err) {
    kh_mpi_model m;
    kh_err why = { 0 };
    if (n < sizeof m)
        return kh_fail(err, KH_EFORMAT, "a message from rank 0 has the wrong length");
    memcpy(&m, body, sizeof m);
    char *dir = kh_strndup(body + sizeof m, n - sizeof m);
    if (s->backend)
        s->backend->close(s->box);
    s->backend = NULL;
    kh_ranks_set_threads(s->ranks, m.threads);
    int rc = dir ? 0 : kh_fail_memory(&why);
    if (rc == 0 && strncmp(m.version, KH_VERSION, sizeof m.version) != 0)
        rc = kh_fail(&why, KH_EMISMATCH, "this rank runs keyhole %s and rank 0 runs %.31s",
            KH_VERSION, m.version);
    if (rc == 0)
        rc = kh_native_open(&s->backend, &s->box, dir,
            &(kh_plm_opts){ .precision = (kh_precision)m.precision }, &why);
    kh_free(dir);
    if (rc != 0)
        return complain(s, head, &why, err);
    kh_plm_info info = { 0 };
    s->backend->describe(s->box, &info);
    s->hidden = info.hidden;
    kh_mpi_opened o = { .fingerprint = info.fingerprint };
    snprintf(o.precision, sizeof o.precision, "%s", info.precision);
    snprintf(o.kernels, sizeof o.kernels, "%s", info.kernels);
    gethostname(o.host, sizeof o.host - 1);
    return reply(s, head, KH_MPI_OPENED, &o, sizeof o, err);
}

static int keep_context(server *s, kh_mpi_head head, const char *body, size_t n, kh_err *err) {
    context *c = &s->context[head.context % KH_MPI_CONTEXTS];
    if (kh_mpi_forward(s->port, &head, sizeof head, body, n) != 0)
        return kh_fail(err, KH_EIO, "lost contact with another rank");
    kh_free(c->memory);
    *c = (context){ .number = head.context };
    int rc = kh_mpi_context_get(body, n, &c->batch, &c->words, &c->inject, &c->memory, err);
    if (rc != 0)
        c->number = 0; /* its pieces wait for the end, which rank 0 will bring about */
    return rc;
}

static int keep_piece(server *s, kh_mpi_head head, const char *body, size_t n, kh_err *err) {
    piece *p = kh_malloc(sizeof *p + n);
    if (!p)
        return kh_fail_memory(err);
    *p = (piece){ .head = head, .n_prompt_byte = n };
    memcpy(p->prompt, body, n);
    *s->end = p;
    s->end = &p->next;
    return 0;
}

static int drop_piece(server *s, kh_mpi_head head, kh_err *err) {
    for (piece **at = &s->first; *at; at = &(*at)->next) {
        piece *p = *at;
        if (p->head.question != head.question || p->head.piece != head.piece)
            continue;
        *at = p->next;
        if (s->end == &p->next)
            s->end = at;
        kh_free(p);
        return reply(s, head, KH_MPI_RESULT, NULL, 0, err);
    }
    return 0; /* it is answered already */
}

/* Reads one message: 1, or 0 if there is none. */
static int read_message(server *s, kh_err *err) {
    const void *bytes;
    size_t n;
    int from, rc = s->port->poll(s->port, &from, &bytes, &n);
    if (rc <= 0)
        return rc == 0 ? 0 : lost(err);
    kh_mpi_head head;
    if (n < sizeof head)
        return kh_fail(err, KH_EFORMAT, "a message from rank %d is too short", from);
    memcpy(&head, bytes, sizeof head);
    const char *body = (const char *)bytes + sizeof head;
    n -= sizeof head;
    switch (head.kind) {
    case KH_MPI_OPEN: rc = open_box(s, head, body, n, err); break;
    case KH_MPI_CONTEXT: rc = keep_context(s, head, body, n, err); break;
    case KH_MPI_PIECE: rc = keep_piece(s, head, body, n, err); break;
    case KH_MPI_DROP: rc = drop_piece(s, head, err); break;
    default: s->stop = head.kind == KH_MPI_STOP; rc = 0;
    }
    return rc == 0 ? 1 : rc;
}

/* -------------------------------------------------------------------------------------- pieces */

static int score(server *s, const piece *p, const context *c, float *logits, kh_err *err) {
    kh_batch rows = kh_batch_part(&c->batch, p->head.r0, p->head.r1 - p->head.r0);
    size_t n = (size_t)p->head.n_prompt * (size_t)rows.n_slot * (size_t)s->hidden;
    if (!s->backend || (rows.n_slot > 0 && n * sizeof(float) != p->n_prompt_byte))
        return kh_fail(err, KH_EFORMAT, "a piece from rank 0 does not fit the model");
    kh_question q = { &rows, &c->words, c->inject, rows.n_slot > 0 ? p->prompt : NULL,
        p->head.n_prompt };
    return s->backend->score(s->box, &q, logits, NULL, err);
}

/* Answers the first piece: 1, or 0 if there is none, or if its context is still on the way. */
static int do_piece(server *s, kh_err *err) {
    piece *p = s->first;
    const context *c = p ? &s->context[p->head.context % KH_MPI_CONTEXTS] : NULL;
    if (!p || c->number < p->head.context)
        return 0;
    s->first = p->next;
    if (!s->first)
        s->end = &s->first;
    int rc;
    if (c->number > p->head.context) /* of a question that is long over */
        rc = reply(s, p->head, KH_MPI_RESULT, NULL, 0, err);
    else {
        kh_err why = { 0 };
        double start = kh_clock();
        size_t n =
            (size_t)p->head.n_prompt * (size_t)(p->head.r1 - p->head.r0) * (size_t)c->words.n_label;
        float *logits = kh_calloc(n, sizeof *logits);
        rc = logits ? score(s, p, c, logits, &why) : kh_fail_memory(&why);
        p->head.seconds = kh_clock() - start;
        rc = rc != 0 ? complain(s, p->head, &why, err)
                     : reply(s, p->head, KH_MPI_RESULT, logits, n * sizeof *logits, err);
        kh_free(logits);
    }
    kh_free(p);
    return rc == 0 ? 1 : rc;
}

int kh_ranks_serve(kh_ranks *ranks, kh_err *err) {
    server s = { .ranks = ranks, .port = ranks->port };
    kh_mpi_wait wait = { 0 };
    int rc = 0;
    s.end = &s.first;
    while (rc >= 0 && !s.stop) {
        kh_err why = { 0 };
        bool busy = false;
        while (!s.stop && (rc = read_message(&s, &why)) > 0)
            busy = true;
        if (rc == 0 && !s.stop && (rc = do_piece(&s, &why)) > 0)
            busy = true;
        if (rc < 0) /* rank 0 shall say it, and end the job */
            rc = complain(&s, (kh_mpi_head){ 0 }, &why, err);
        else if (busy)
            wait = (kh_mpi_wait){ 0 };
        else
            kh_mpi_pause(&wait);
    }
    if (rc >= 0)
        rc = reply(&s, (kh_mpi_head){ 0 }, KH_MPI_BYE, NULL, 0, err);
    for (piece *p = s.first, *next; p; p = next) {
        next = p->next;
        kh_free(p);
    }
    for (int i = 0; i < KH_MPI_CONTEXTS; i++)
        kh_free(s.context[i].memory);
    if (s.backend)
        s.backend->close(s.box);
    return rc;
}
