/* tape.h - a journal at the box: answers that are written down before anyone uses them, and are not asked for again.
 *
 * A question is cut into units, one prompt with some consecutive rows. The key of a unit is a hash of all that its answer
 * depends on, except the box: ids, positions, label words, injection mode, the numbers of the prompt, and what is asked for. The
 * tape knows answers by their keys, so an answer can only ever serve the very question that it was given to. Units that the
 * tape does not know are asked in pieces of a few seconds' work each; a process that is killed loses one piece at most.
 *
 * plm.c uses it for every backend. Who keeps the answers, and where, is the tape's own affair (src/run). */
#ifndef KH_PLM_TAPE_H
#define KH_PLM_TAPE_H

#include "keyhole.h"

typedef struct kh_tape_key {
    uint64_t lo, hi;
} kh_tape_key;

/* What was asked for decides what is written: of a question for labels nothing but labels. */
typedef enum kh_tape_kind {
    KH_TAPE_LABELS,
    KH_TAPE_LOGPROBS,
    KH_TAPE_ENERGIES, /* and log-probabilities: the energy of a row after them */
} kh_tape_kind;
const char *kh_tape_kind_name(kh_tape_kind);

/* An answer as bytes: a label takes two, a log-probability or energy the four of its float, both little-endian. */
typedef struct kh_tape_unit {
    kh_tape_key key;
    kh_tape_kind kind;
    int n_row;
    long long tokens;
    double seconds; /* its share of the time that the piece took */
    const void *bytes;
    size_t n;
} kh_tape_unit;

typedef struct kh_tape {
    /* Called before every piece; non-zero ends the question with KH_STOPPED. */
    bool (*stop)(void *self);
    bool (*known)(void *self, const kh_tape_key *);
    /* 1: the n bytes of the answer are in `bytes`, and in *seconds the time they once took; 0: not known. */
    int (*recall)(void *self, const kh_tape_key *, void *bytes, size_t n, double *seconds, kh_err *err);
    /* All units of a piece, or none. Returns when they would survive the end of the process. */
    int (*record)(void *self, const kh_tape_unit *, int n_unit, kh_err *err);
    void *self;
} kh_tape;

/* From now on the box's answers go through the tape, which must outlive this; NULL: none. */
void kh_plm_set_tape(kh_plm *, const kh_tape *);
/* For a resumed run: what was asked and answered before, and is not looked up one by one. */
void kh_plm_count_replayed(kh_plm *, const kh_meter *before);

/* -- between plm.c and tape.c -- */

/* Answers a question from the box: label, log-probability or energy cells, in the order of the question. */
typedef int kh_ask_fn(kh_plm *, const kh_question *, void *cells, kh_err *err);
/* out: int [n_prompt, n_row]; float [n_prompt, n_row, n_label], or with energies [n_prompt, n_row, n_label + 1]. *rate: queries a
 * second so far, 0 if not known. */
int kh_tape_ask(const kh_tape *, kh_plm *, const kh_question *, kh_tape_kind, kh_ask_fn *, double *rate, void *out, kh_err *err);
/* Counts a question that the tape has answered. */
void kh_plm_count(kh_plm *, const kh_question *, double seconds);

#endif
