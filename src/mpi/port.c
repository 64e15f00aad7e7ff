/* port.c - keyhole-mpi.so: messages between ranks, by MPI. The only file that includes mpi.h.
 *
 * keyhole loads it when it was started as several ranks, so that a start alone does not pay for
 * libmpi, and so that on a cluster with an MPI of its own this file is all that must be compiled
 * there. It knows nothing of models and questions.
 *
 * Nothing here blocks: a message is copied and sent by MPI_Isend, and received by MPI_Imrecv as
 * soon as it is announced; poll drives both. A rank that computes therefore never holds up another
 * one that has something to say. */
#include "plm/ranks.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct letter {
    struct letter *next;
    MPI_Request request;
    int from, n;
    char bytes[];
} letter;

typedef struct mpi_port {
    kh_port port;
    MPI_Comm comm;
    letter *out;          /* on their way */
    letter *in, **in_end; /* being received, in the order in which they were announced */
    letter *shown;        /* handed over by the last poll */
} mpi_port;

enum { TAG = 7 };

/* Frees what has left. */
static int tidy(mpi_port *p) {
    for (letter **at = &p->out; *at;) {
        letter *l = *at;
        int gone = 0;
        if (MPI_Test(&l->request, &gone, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return -1;
        if (gone) {
            *at = l->next;
            free(l);
        } else
            at = &l->next;
    }
    return 0;
}

static int send_letter(
    kh_port *port, int to, const void *head, size_t n_head, const void *body, size_t n_body) {
    mpi_port *p = (mpi_port *)port;
    if (n_body > 0x7fffffff - n_head)
        return -1; /* MPI counts in int */
    letter *l = malloc(sizeof *l + n_head + n_body);
    if (!l)
        return -1;
    memcpy(l->bytes, head, n_head);
    if (n_body > 0)
        memcpy(l->bytes + n_head, body, n_body);
    if (MPI_Isend(l->bytes, (int)(n_head + n_body), MPI_BYTE, to, TAG, p->comm, &l->request) !=
        MPI_SUCCESS) {
        free(l);
        return -1;
    }
    l->next = p->out;
    p->out = l;
    return tidy(p);
}

/* Begins to receive what has been announced. */
static int receive(mpi_port *p) {
    for (;;) {
        int there = 0;
        MPI_Message message;
        MPI_Status status;
        if (MPI_Improbe(MPI_ANY_SOURCE, TAG, p->comm, &there, &message, &status) != MPI_SUCCESS)
            return -1;
        if (!there)
            return 0;
        int n = 0;
        MPI_Get_count(&status, MPI_BYTE, &n);
        letter *l = malloc(sizeof *l + (size_t)n);
        if (!l)
            return -1;
        *l = (letter){ .from = status.MPI_SOURCE, .n = n };
        if (MPI_Imrecv(l->bytes, n, MPI_BYTE, &message, &l->request) != MPI_SUCCESS) {
            free(l);
            return -1;
        }
        *p->in_end = l;
        p->in_end = &l->next;
    }
}

/* Whether an earlier letter of the same rank is still being received. */
static bool must_wait(const mpi_port *p, const letter *l) {
    for (const letter *before = p->in; before != l; before = before->next)
        if (before->from == l->from)
            return true;
    return false;
}

static int poll_letter(kh_port *port, int *from, const void **bytes, size_t *n) {
    mpi_port *p = (mpi_port *)port;
    free(p->shown);
    p->shown = NULL;
    if (tidy(p) != 0 || receive(p) != 0)
        return -1;
    for (letter **at = &p->in; *at; at = &(*at)->next) {
        letter *l = *at;
        int whole = 0;
        if (must_wait(p, l))
            continue;
        if (MPI_Test(&l->request, &whole, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return -1;
        if (!whole)
            continue;
        *at = l->next;
        if (p->in_end == &l->next)
            p->in_end = at;
        p->shown = l;
        *from = l->from;
        *bytes = l->bytes;
        *n = (size_t)l->n;
        return 1;
    }
    return 0;
}

static void close_port(kh_port *port, bool together) {
    mpi_port *p = (mpi_port *)port;
    if (!together) /* does not come back */
        MPI_Abort(MPI_COMM_WORLD, 1);
    while (p->out && tidy(p) == 0)
        ;
    MPI_Comm_free(&p->comm);
    MPI_Finalize();
    free(p->shown);
    free(p);
}

__attribute__((visibility("default"))) kh_port *kh_port_open(int version, char *why, size_t cap);

kh_port *kh_port_open(int version, char *why, size_t cap) {
    MPI_Comm node;
    int level, started = 0;
    mpi_port *p = calloc(1, sizeof *p);
    if (version != KH_PORT_VERSION || !p) {
        snprintf(why, cap, "%s", p ? "it belongs to another version of keyhole" : "out of memory");
        free(p);
        return NULL;
    }
    MPI_Initialized(&started);
    if (!started && MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) {
        snprintf(why, cap, "MPI_Init failed");
        free(p);
        return NULL;
    }
    MPI_Comm_dup(MPI_COMM_WORLD, &p->comm);
    MPI_Comm_set_errhandler(p->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(p->comm, &p->port.rank);
    MPI_Comm_size(p->comm, &p->port.size);
    MPI_Comm_split_type(p->comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &p->port.local);
    MPI_Comm_free(&node);
    p->in_end = &p->in;
    p->port.send = send_letter;
    p->port.poll = poll_letter;
    p->port.close = close_port;
    return &p->port;
}
