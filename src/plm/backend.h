/* backend.h - what stands behind a kh_plm: a table of functions and their private state.
 *
 * A backend answers one batched question with label logits and knows no algorithm. plm.c checks
 * arguments, counts queries and enforces the access level, once for all backends. */
#ifndef KH_PLM_BACKEND_H
#define KH_PLM_BACKEND_H

#include "plm/answer_kind.h"

struct kh_engine;

/* So many questions about a row share one request, at most. */
enum { KH_SHARED_MOST = 64 };

/* Told of a row as soon as its answer to a question, final to the last bit, is in its place; a
 * failure ends the question. NULL: nobody is told. */
typedef struct kh_row_watch {
    int (*done)(void *user, int question, int row, kh_err *err);
    void *user;
} kh_row_watch;

/* Several questions without slots about the same rows, whose answers may come together. */
typedef struct kh_shared {
    const kh_question *q; /* [n] of as many labels each */
    int n;
    kh_cells out;      /* of [n, n_row] pairs */
    int first, end;    /* rows first .. end - 1 are asked about, */
    const bool *known; /* [n, n_row] but not where the answer is there already; NULL: nowhere */
    kh_row_watch watch;
} kh_shared;

typedef struct kh_backend {
    const char *name;
    /* logits [n_prompt, n_row, n_label]: absolute if describe sets info->energy, so that plm.c can
     * take energies of them; else up to a constant for each row. Or, if `normalised`,
     * log-probabilities that add up to one and are handed on with their bits; such a backend fills
     * energy [n_prompt, n_row] itself. energy is NULL for all others, and where it is not wanted.
     */
    int (*score)(void *self, const kh_question *, float *logits, float *energy, kh_err *err);
    bool normalised;
    /* label [n_prompt, n_row]: for services that give no more than labels, or give them for less;
     * NULL: the best of score. */
    int (*answer)(void *self, const kh_question *, int *label, kh_err *err);
    /* For services without soft prompts that are paid for by the row: questions of several prompts
     * go out together, and each answer is told of as it comes. A row that the service refuses has
     * NaN for log-probabilities, or -1 for a label. A backend without this answers one question at
     * a time, all rows of it. */
    int (*share)(void *self, const kh_shared *, kh_err *err);
    /* After score or answer has failed: which of the pairs [n_prompt, n_row] were answered; NULL: a
     * backend that answers all or nothing. */
    const unsigned char *(*answered)(const void *self);
    /* Services that read text have a tokenizer of bytes here: so many count as one of their tokens;
     * 0: tokens are tokens. */
    int bytes_a_token;
    /* Fills in what only the backend knows; access and backend are the caller's. */
    void (*describe)(const void *self, kh_plm_info *);
    /* The word-embedding matrix: mean and standard deviation of all its numbers; one row, [hidden].
     */
    int (*embedding_stats)(void *self, double *mean, double *std, kh_err *err);
    int (*embedding_row)(void *self, int32_t id, float *row, kh_err *err);
    /* The engine, if it is in this process; NULL: it is not. */
    struct kh_engine *(*engine)(void *self);
    void (*close)(void *self);
} kh_backend;

/* The tokens of a batch as the box's owner would count them. */
long long kh_plm_tokens(const kh_plm *, const kh_batch *);

/* Rows [first, first + n) of a batch, borrowed. */
kh_batch kh_batch_part(const kh_batch *, int first, int n);
/* The rows of a batch in another order, in memory of its own (out->memory: kh_free it). label is
 * not set. */
int kh_batch_reorder(kh_batch *out, const kh_batch *, const int *order, kh_err *err);

/* The engine of a box that runs in this process, or NULL: for the server, which answers more than a
 * box does. */
struct kh_engine *kh_plm_engine(kh_plm *);

/* A box of the caller's own (own_box.c). On failure the caller's state is not closed. */
int kh_own_open(const kh_backend **out, void **self, const kh_box *, void *theirs, kh_err *err);

/* The engine in this process. */
int kh_native_open(
    const kh_backend **out, void **self, const char *dir, const kh_plm_opts *, kh_err *err);

#endif
