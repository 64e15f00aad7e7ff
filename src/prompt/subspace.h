/* subspace.h - z -> soft prompt: P = A z + P0, with A a fixed random matrix and P0 the vectors of a
 * few vocabulary ids.
 *
 * A kh_space says what a subspace is made of, in numbers that a file can hold. A kh_subspace is
 * one, with A in memory; A comes from the space and a seed, row by row from random streams of their
 * own, so it is never stored and never lost.
 *
 *     kh_space space;
 *     if (kh_space_init(&space, &opts, plm, seed, err)) ...
 *     kh_subspace *s;
 *     if (kh_subspace_new(&s, &space, plm, seed, err)) ...
 *     kh_subspace_prompts(s, z, 20, prompts, err);            z [20, d] -> prompts [20, m, h]
 *
 * Letters: d dimension of z, m slots, h hidden size; doc/methods.md has the equations. */
#ifndef KH_PROMPT_SUBSPACE_H
#define KH_PROMPT_SUBSPACE_H

#include "base/opts.h"
#include "keyhole.h"

/* The rows of a kh_space_opts called m in a struct S, for a table of options: what decides its
 * size, and the rest. */
#define KH_SPACE_ROWS(S, m) \
    { "dim", KH_OPT_INT, offsetof(S, m.dim), "0", .min = 0, .max = 1 << 20, .arg = "N", \
        .help = "dimension of z; 0: as --effort says, 500 in the paper" }, \
        { "slots", KH_OPT_INT, offsetof(S, m.slots), "0", .min = 0, .max = 1 << 16, .arg = "N", \
            .help = "vectors of the soft prompt; 0: as --effort says, 50 in the paper" }, \
        KH_SPACE_KIND_ROWS(S, m)
#define KH_SPACE_KIND_ROWS(S, m) \
    { "inject", KH_OPT_CHOICE, offsetof(S, m.inject), "post-ln-add", \
        .arg = "none|post-ln-add|embed-prefix|embed-inplace", \
        .help = "where the soft prompt enters the model" }, \
        { "placement", KH_OPT_CHOICE, offsetof(S, m.placement), "template", \
            .arg = "template|after-text", \
            .help = \
                "slots stand as the soft template says, or after the text (decoders: one read)" }, \
        { "projection", KH_OPT_CHOICE, offsetof(S, m.projection), "normal", \
            .arg = "normal|uniform", .help = "entries of the matrix A" }, \
        { "p0", KH_OPT_CHOICE, offsetof(S, m.p0), "ids", .arg = "ids|random|text", \
            .help = "the prompt at z = 0: vocabulary ids 1000, 1001, ...; random ones; or " \
                    "--p0-text" }, \
    { \
        "p0-text", KH_OPT_TEXT, offsetof(S, m.p0_text), \
            .arg = "TEXT", .help = "its tokens, repeated, are the prompt at z = 0" \
    }

const char *kh_projection_name(kh_projection);
int kh_projection_find(kh_projection *out, const char *name, kh_err *err);

/* How A is drawn from its seed; recorded, so that a later way can tell its own files from these. */
#define KH_PROJECTION_GENERATOR "philox4x32-10/row-streams"

typedef struct kh_space {
    int dim, slots, hidden; /* d, m, h */
    kh_inject inject;
    kh_placement placement; /* KH_SLOTS_PREFIX if and only if inject is embed-prefix */
    kh_projection projection;
    double mean, std; /* of A's entries if normal; if uniform they are within -std .. std */
    int32_t *slot_id; /* [slots] P0: the ids whose place, or whose vectors, the prompt takes */
} kh_space;

/* Reads what it needs from the box; asks it nothing. Refuses a dimension larger than the prompt.
 * Free it also on failure. */
int kh_space_init(kh_space *, const kh_space_opts *, kh_plm *, uint64_t seed, kh_err *err);
int kh_space_copy(kh_space *out, const kh_space *from, kh_err *err);
void kh_space_free(kh_space *);
/* How batches must be encoded for prompts of this space. */
kh_batch_opts kh_space_batch(const kh_space *, const kh_plm *, bool paper_exact);

typedef struct kh_subspace kh_subspace;

/* Copies the space. The box is read for P0's vectors in the embed modes; it need not outlive the
 * call. */
int kh_subspace_new(kh_subspace **out, const kh_space *, kh_plm *, uint64_t seed, kh_err *err);
void kh_subspace_free(kh_subspace *);
const kh_space *kh_subspace_space(const kh_subspace *);

/* z [n, d] -> prompts [n, m, h], as a kh_question takes them. The bits of a prompt depend on its z
 * alone, not on n. */
int kh_subspace_prompts(const kh_subspace *, const float *z, int n, float *prompts, kh_err *err);

#endif
