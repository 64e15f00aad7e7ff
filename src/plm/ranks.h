/* ranks.h - one box spread over the processes of an MPI job.
 *
 * Rank 0 runs everything; the others do nothing but answer. Three parts know of each other through
 * this header only: src/mpi/port.c     the plugin keyhole-mpi.so: moves messages by MPI, knows
 * nothing of models; loaded when used src/plm/mpi.c      rank 0: cuts a question into pieces, hands
 * them out, puts the answers where they belong src/plm/mpi_serve.c  the other ranks: hold the model
 * and answer pieces until told to stop
 *
 * Messages are a kh_mpi_head and bytes after it, in the machine's own layout: all ranks must use
 * the same kernels, or their answers would differ, so they are machines of one kind anyway. */
#ifndef KH_PLM_RANKS_H
#define KH_PLM_RANKS_H

#include "plm/backend.h"

/* -------------------------------------------------------------- the plugin, as keyhole sees it */

enum { KH_PORT_VERSION = 1 };
#define KH_PORT_SYMBOL "kh_port_open"

typedef struct kh_port {
    int rank, size;
    int local; /* how many of the ranks are on this machine */
    /* Returns at once; the bytes are copied. < 0: out of memory, or the other side is gone. */
    int (*send)(
        struct kh_port *, int to, const void *head, size_t n_head, const void *body, size_t n_body);
    /* 1: the next message, its memory valid until the next call; 0: none yet; < 0: failed. Messages
     * of one rank keep their order. */
    int (*poll)(struct kh_port *, int *from, const void **bytes, size_t *n);
    /* together: all ranks are closing, and every message has arrived; otherwise ends the whole job.
     */
    void (*close)(struct kh_port *, bool together);
} kh_port;

/* NULL, with the reason in why, if MPI cannot be started or speaks another version of this header.
 */
typedef kh_port *kh_port_open_fn(int version, char *why, size_t cap);

/* ------------------------------------------------------------------------------------ messages */

enum kh_mpi_kind {
    KH_MPI_OPEN,    /* to all: open this model; body: a kh_mpi_model and its folder */
    KH_MPI_OPENED,  /* from each: a kh_mpi_opened */
    KH_MPI_FAILED,  /* from one: a sentence */
    KH_MPI_CONTEXT, /* along a tree: rows and label words (kh_mpi_context_put), which stay for many
                       questions */
    KH_MPI_PIECE,   /* to one: prompts */
    KH_MPI_DROP, /* to one: another rank does this piece; answer it with nothing if it was not begun
                  */
    KH_MPI_RESULT, /* from one: logits; every piece gets exactly one */
    KH_MPI_STOP,   /* to all */
    KH_MPI_BYE,    /* from each: the last message */
};

typedef struct kh_mpi_head {
    int32_t kind, piece;
    uint64_t question, context; /* numbers that only grow */
    int32_t n_prompt, r0, r1;   /* of a piece: prompts, and rows [r0, r1) */
    int32_t zero;
    double seconds; /* of a result: what it took */
} kh_mpi_head;

typedef struct kh_mpi_model {
    char version[32];
    int32_t precision, threads; /* threads 0: the rank decides */
} kh_mpi_model;

typedef struct kh_mpi_opened {
    uint64_t fingerprint;
    char precision[16], kernels[16], host[64];
} kh_mpi_opened;

enum {
    KH_MPI_CONTEXTS = 64
}; /* the last so many are kept by all ranks: number n in place n % 64 */

struct kh_buf;
/* Everything of a question but its prompts, and back: *batch and *words point into *memory (kh_free
 * it) and are not valid after. batch->label and batch->row are zero. */
void kh_mpi_context_put(struct kh_buf *out, const kh_question *);
int kh_mpi_context_get(const void *bytes, size_t n, kh_batch *batch, kh_words *words,
    kh_inject *inject, void **memory, kh_err *err);

/* --------------------------------------------------------------------------------------- ranks */

struct kh_ranks {
    kh_port *port;
    void *library; /* of dlopen; NULL: the port is a test's */
    kh_ranks_opts opts;
    bool taken; /* a box is spread over them; a second one is not */
    bool told;  /* they have been of use, or someone has been told why not */
    uint64_t question, context;
    struct {
        uint64_t lo, hi;
    } known[KH_MPI_CONTEXTS]; /* hashes of the contexts that all ranks have */
    double *speed;            /* [size] tokens a second, 0: not known */
    int *queued;              /* [size] pieces sent and not answered */
};

/* Ranks over a port that is open already; takes it over, also when it fails. */
int kh_ranks_new(kh_ranks **out, kh_port *, const kh_ranks_opts *, kh_err *err);

/* Sends a context on to this rank's children in a binomial tree with rank 0 at its root. */
int kh_mpi_forward(kh_port *, const void *head, size_t n_head, const void *body, size_t n_body);

/* A pause while nothing comes, which grows from nothing to a millisecond; start as {0}, and again
 * when something came. */
typedef struct kh_mpi_wait {
    int turns;
} kh_mpi_wait;
void kh_mpi_pause(kh_mpi_wait *);

/* The box on rank 0: opens the model here and on all ranks. */
int kh_mpi_open(
    const kh_backend **out, void **self, const char *dir, const kh_plm_opts *, kh_err *err);

#endif
