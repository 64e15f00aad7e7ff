/* answer_cache.h - a journal at the box: answers that are written down before anyone uses them, and
 * are not asked for again.
 *
 * A question is cut into units, one prompt with some consecutive rows. The key of a unit is a hash
 * of all that its answer depends on, except the box: ids, positions, label words, injection mode,
 * the numbers of the prompt, and what is asked for. The cache knows answers by their keys, so an
 * answer can only ever serve the very question that it was given to. Units that the cache does not
 * know are asked in pieces of a few seconds' work each; a process that is killed loses one piece at
 * most. When a service fails in the middle of a piece, what it has answered is written down row by
 * row, as parts of units, and not asked (and paid) for again.
 *
 * plm.c uses it for every backend. Who keeps the answers, and where, is the cache's own affair
 * (src/run). */
#ifndef KH_PLM_ANSWER_CACHE_H
#define KH_PLM_ANSWER_CACHE_H

#include "plm/answer_kind.h"

typedef struct kh_answer_key {
    uint64_t lo, hi;
} kh_answer_key;

/* An answer as bytes, row after row: a label takes two; the log-probabilities of a row, and its
 * energy after them, the four of their floats. All little-endian. What was asked for decides what
 * is written: of a question for labels nothing but labels. */
typedef struct kh_answer_unit {
    kh_answer_key key;
    kh_answer_kind kind;
    int n_row;
    long long tokens;
    double seconds; /* its share of the time that the piece took */
    const void *bytes;
    size_t n;
    bool part; /* of a unit whose question failed: one row of it */
} kh_answer_unit;

typedef struct kh_answer_cache {
    /* Called before every piece; non-zero ends the question with KH_STOPPED. */
    bool (*stop)(void *self);
    bool (*known)(void *self, const kh_answer_key *);
    /* 1: the n bytes of the answer are in `bytes`, and in *seconds the time they once took; 0: not
     * known. */
    int (*recall)(
        void *self, const kh_answer_key *, void *bytes, size_t n, double *seconds, kh_err *err);
    /* All units of a piece, or none. Returns when they would survive the end of the process. */
    int (*record)(void *self, const kh_answer_unit *, int n_unit, kh_err *err);
    void *self;
    /* Whether any part is known; NULL: parts are not kept. */
    bool (*has_parts)(void *self);
} kh_answer_cache;

/* From now on the box's answers go through the cache, which must outlive this; NULL: none. */
void kh_plm_set_cache(kh_plm *, const kh_answer_cache *);
/* For a resumed run: what was asked and answered before, and is not looked up one by one. */
void kh_plm_count_replayed(kh_plm *, const kh_meter *before);

/* -- between plm.c and answer_cache.c -- */

/* Answers a question from the box itself. */
int kh_plm_ask_box(kh_plm *, const kh_question *, const kh_cells *out, kh_err *err);
/* The same, with what the cache knows from there. *rate: queries a second so far, 0 if not known.
 */
int kh_answer_cache_ask(const kh_answer_cache *, kh_plm *, const kh_question *, const kh_cells *out,
    double *rate, kh_err *err);
/* The same for questions that share their requests; kh_plm_shares says whether they can. */
struct kh_shared;
int kh_plm_share_box(kh_plm *, const struct kh_shared *, kh_err *err);
int kh_answer_cache_share(const kh_answer_cache *, kh_plm *, const kh_question *q, int n,
    const kh_cells *out, kh_err *err);
/* Counts one pair of them. */
void kh_plm_count_pair(
    kh_plm *, const kh_question *, int question, int row, double seconds, bool replayed);
/* After a question that failed: which of its pairs, [n_prompt, n_row], have their answers in the
 * cells all the same; NULL: none. */
const unsigned char *kh_plm_answered(const kh_plm *);
/* Counts a question that the cache has answered. */
void kh_plm_count(kh_plm *, const kh_question *, double seconds);

#endif
