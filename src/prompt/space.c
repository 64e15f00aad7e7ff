/* space.c - what a subspace is made of: sizes, the distribution of A, and the ids of P0.
 *
 * P = reshape(A z) + P0 (doc/methods.md, T3): here stands what is decided once for a run, in which
 * distribution the entries of A are (T4, T5) and which word embeddings P0 is made of; subspace.c
 * draws A and computes P. A space is small and is saved with the posterior; A is not saved, it is
 * drawn again from its seed. */
#include "prompt/subspace.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

static const char *const projection_names[] = {
#define KH_PROJECTION_NAME(name, text) text,
    KH_PROJECTIONS(KH_PROJECTION_NAME)
#undef KH_PROJECTION_NAME
};

enum { N_PROJECTION = sizeof projection_names / sizeof projection_names[0] };
/* The defaults of the library; efforts choose smaller ones. */
enum { PAPER_DIM = 500, PAPER_SLOTS = 50 };
enum { FIRST_ID = 1000 }; /* the published code's slots hold vocabulary ids 1000, 1001, ... */

const char *kh_projection_name(kh_projection p) { return projection_names[p]; }

int kh_projection_find(kh_projection *out, const char *name, kh_err *err) {
    for (int i = 0; i < N_PROJECTION; i++)
        if (strcmp(name, projection_names[i]) == 0) {
            *out = (kh_projection)i;
            return 0;
        }
    return kh_fail(err, KH_EFORMAT, "unknown projection \"%s\"", name);
}

typedef struct alone {
    kh_space_opts o;
} alone;

static const kh_opt space_table[] = { KH_SPACE_ROWS(alone, o), { 0 } };

kh_space_opts kh_space_defaults(void) {
    kh_space_opts o = { 0 };
    kh_opts_init(space_table, &o);
    o.dim = PAPER_DIM;
    o.slots = PAPER_SLOTS;
    return o;
}

/* ------------------------------------------------------------------------------------------ P0 */

static int ids_in_order(kh_space *s, int size, kh_err *err) {
    if (size < FIRST_ID + s->slots)
        return kh_fail(err, KH_EARG,
            "P0 takes the vocabulary ids %d to %d, but the vocabulary has %d tokens; take P0 from "
            "a text or at random",
            FIRST_ID, FIRST_ID + s->slots - 1, size);
    for (int i = 0; i < s->slots; i++)
        s->slot_id[i] = FIRST_ID + i;
    return 0;
}

/* A mask or a padding token in the prompt would be read as one. */
static bool is_special(const kh_tokenizer *t, int32_t id) {
    static const kh_special ALL[] = { KH_TOKEN_MASK, KH_TOKEN_UNK, KH_TOKEN_PAD, KH_TOKEN_BOS,
        KH_TOKEN_EOS };
    for (size_t i = 0; i < sizeof ALL / sizeof ALL[0]; i++)
        if (kh_tokenizer_special(t, ALL[i]) == id)
            return true;
    return false;
}

static int ids_at_random(kh_space *s, const kh_tokenizer *t, int size, uint64_t seed, kh_err *err) {
    /* More than tokenizers have: with a vocabulary of nothing else the loop below would not end. */
    enum { SPECIALS = 8 };
    if (size <= SPECIALS)
        return kh_fail(
            err, KH_EARG, "P0 at random needs a vocabulary; this one has %d tokens", size);
    kh_rng r = kh_rng_stream(seed, KH_RNG_PROMPT, 0, 0);
    for (int i = 0; i < s->slots; i++)
        do
            s->slot_id[i] = (int32_t)kh_rng_below(&r, (uint32_t)size);
        while (is_special(t, s->slot_id[i]));
    return 0;
}

/* The text's tokens, again and again until the slots are full. */
static int ids_of_text(kh_space *s, const kh_tokenizer *t, const char *text, kh_err *err) {
    kh_ids ids = { 0 };
    int rc = kh_tokenizer_encode(t, text, strlen(text), KH_ENCODE_PLAIN, &ids, err);
    if (rc == 0 && ids.n == 0)
        rc = kh_fail(err, KH_EARG, "P0 is to come from a text, but the text has no tokens");
    for (int i = 0; i < s->slots && rc == 0; i++)
        s->slot_id[i] = ids.id[i % ids.n];
    kh_ids_free(&ids);
    return rc;
}

static int choose_ids(
    kh_space *s, const kh_space_opts *o, kh_plm *plm, uint64_t seed, kh_err *err) {
    const kh_tokenizer *t = kh_plm_tokenizer(plm);
    int size = kh_tokenizer_size(t);
    s->slot_id = kh_calloc((size_t)s->slots, sizeof *s->slot_id);
    if (!s->slot_id)
        return kh_fail_memory(err);
    switch ((kh_p0)o->p0) {
    case KH_P0_IDS: return ids_in_order(s, size, err);
    case KH_P0_RANDOM: return ids_at_random(s, t, size, seed, err);
    case KH_P0_TEXT: return ids_of_text(s, t, o->p0_text ? o->p0_text : "", err);
    }
    return kh_fail(err, KH_EARG, "P0 of an unknown kind, %d", o->p0);
}

/* --------------------------------------------------------------------------------- the numbers */

/* doc/methods.md, T4 and T5. Entries scaled by the word embeddings' own mean and deviation keep P
 * at the scale of real tokens whatever d is; sigma² is subtracted from d as in the published code.
 */
static int scale_projection(kh_space *s, kh_plm *plm, kh_err *err) {
    double mean, std;
    if (s->projection == KH_PROJECTION_IDENTITY) {
        s->std = 1;
        return 0;
    }
    if (s->projection == KH_PROJECTION_UNIFORM) {
        s->std = 1 / sqrt((double)s->dim);
        return 0;
    }
    int rc = kh_plm_embedding_stats(plm, &mean, &std, err);
    if (rc != 0)
        return rc;
    double rest = (double)s->dim - std * std;
    if (!(rest > 0))
        return kh_fail(err, KH_EARG,
            "the word embeddings have a standard deviation of %g, too large to scale a projection "
            "of %d dimensions from it; take a "
            "uniform one",
            std, s->dim);
    s->mean = mean / rest;
    s->std = std / sqrt(rest);
    return 0;
}

/* Everything that can be wrong about a soft prompt is said here, before the first question. */
int kh_space_init(kh_space *s, const kh_space_opts *o, kh_plm *plm, uint64_t seed, kh_err *err) {
    kh_plm_info info = kh_plm_describe(plm);
    bool no_norm = info.next && o->inject == KH_INJECT_POST_LN_ADD; /* nothing to add after */
    kh_inject inject = no_norm ? KH_INJECT_EMBED_INPLACE : (kh_inject)o->inject;
    kh_placement placement = o->placement ? KH_SLOTS_AFTER : KH_SLOTS_TEMPLATE;
    if (inject == KH_INJECT_EMBED_PREFIX && o->placement)
        return kh_fail(err, KH_EARG,
            "embed-prefix puts the soft prompt before everything; after-text goes with "
            "embed-inplace");
    if (inject == KH_INJECT_EMBED_PREFIX)
        placement = KH_SLOTS_PREFIX;
    *s = (kh_space){ .dim = o->dim,
        .slots = o->slots,
        .hidden = info.hidden,
        .inject = inject,
        .placement = placement,
        .projection = (kh_projection)o->projection };
    if (s->projection == KH_PROJECTION_IDENTITY)
        s->dim = s->slots * s->hidden;
    if (info.hidden == 0)
        return kh_fail(err, KH_EUNSUPPORTED,
            "the box takes no soft prompts (hidden is 0); auto, manual, icl and the methods for "
            "text prompts need none");
    if (o->inject == KH_INJECT_NONE)
        return kh_fail(err, KH_EARG, "a soft prompt needs an injection mode");
    if (o->slots < 1 || o->slots >= info.max_len)
        return kh_fail(err, KH_EARG,
            "a soft prompt of %d slots does not fit the model's sequences of %d tokens", o->slots,
            info.max_len);
    if (s->dim < 1 || (long long)s->dim > (long long)o->slots * info.hidden)
        return kh_fail(err, KH_EARG,
            "dimension %d is larger than the prompt itself: %d slots of %d numbers are %lld; take "
            "fewer dimensions or more slots",
            o->dim, o->slots, info.hidden, (long long)o->slots * info.hidden);
    int rc = choose_ids(s, o, plm, seed, err);
    return rc == 0 ? scale_projection(s, plm, err) : rc;
}

int kh_space_copy(kh_space *out, const kh_space *from, kh_err *err) {
    *out = *from;
    size_t bytes = (size_t)from->slots * sizeof *from->slot_id;
    out->slot_id = kh_malloc(bytes);
    if (!out->slot_id)
        return kh_fail_memory(err);
    memcpy(out->slot_id, from->slot_id, bytes);
    return 0;
}

void kh_space_free(kh_space *s) {
    kh_free(s->slot_id);
    s->slot_id = NULL;
}

kh_batch_opts kh_space_batch(const kh_space *s, const kh_plm *plm, bool paper_exact) {
    return (kh_batch_opts){ .max_len = kh_plm_describe(plm).max_len,
        .n_slot = s->slots,
        .slot_id = s->slot_id,
        .placement = s->placement,
        .paper_exact = paper_exact,
        .next = kh_plm_describe(plm).next };
}
