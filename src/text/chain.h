/* chain.h - the components of a tokenizer: normalizers, pre-tokenizers, post-processors and
 * decoders.
 *
 * Each family is one table of kinds (normalize.c, pretokenize.c, postprocess.c, decode.c) and each
 * part of a tokenizer.json one chain of steps: {"type": "Sequence", ...} is flattened on loading,
 * because a sequence inside a sequence does what its parts do. A type that no row names is refused.
 */
#ifndef KH_TEXT_CHAIN_H
#define KH_TEXT_CHAIN_H

#include "base/arena.h"
#include "base/json.h"
#include "keyhole.h"

/* Where a step is read from and what its loader may use. */
typedef struct kh_source {
    const char *place; /* "tokenizer.json: normalizer", for sentences */
    kh_arena *arena;   /* lives as long as the tokenizer */
} kh_source;

typedef struct kh_kind {
    const char *name; /* the "type" in tokenizer.json; NULL ends a table */
    size_t size;      /* of the step's own data */
    int (*load)(
        void *self, const json_t *obj, const kh_source *, kh_err *err); /* NULL: nothing to read */
    /* Works on `state`, whose type the family's header gives. */
    int (*run)(const void *self, void *state, kh_err *err);
    void (*drop)(void *self); /* NULL: nothing to free but arena memory; must accept zeroed data */
} kh_kind;

typedef struct kh_chain_step {
    const kh_kind *kind;
    void *self; /* in the arena */
} kh_chain_step;

typedef struct kh_chain {
    kh_chain_step *step;
    int n;
    size_t cap;
} kh_chain; /* start as {0} */

/* Appends the steps of a JSON object (null or NULL: none). list_key: where a Sequence keeps its
 * parts. */
int kh_chain_load(kh_chain *, const kh_kind *kinds, const char *list_key, const json_t *obj,
    const kh_source *, kh_err *err);
/* Appends one step with zeroed data, which is returned, or NULL when out of memory. */
void *kh_chain_add(kh_chain *, const kh_kind *kinds, const char *name, kh_arena *);
int kh_chain_run(const kh_chain *, void *state, kh_err *err);
void kh_chain_free(kh_chain *);

#endif
