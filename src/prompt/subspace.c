/* subspace.c - A in memory, and the product that makes prompts of a whole population.
 *
 * A is [m h, d], in blocks of rows, each packed for the engine's own product kernel, which adds up
 * every element in one fixed order whatever it is batched with. A prompt therefore has the same
 * bits in a population of any size and with any number of threads; kernels of different instruction
 * sets differ in the last bits, as they do in the model. The identity is not stored: a prompt is P0
 * + z. */
#include "prompt/subspace.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/rng.h"
#include "model/kernels.h"

#include <omp.h>

enum {
    BLOCK = 1024
}; /* rows of A that one thread draws, packs and multiplies at a time; a multiple of every panel
      width */

struct kh_subspace {
    kh_space space;
    const kh_kernels *kernels;
    int rows, n_block; /* m h, and blocks of it */
    void **block;      /* [n_block] packed [d, BLOCK] */
    float *p0;         /* [m h] the vectors of P0; NULL where the slots' ids hold them */
};

static int block_rows(const kh_subspace *s, int b) {
    return s->rows - b * BLOCK < BLOCK ? s->rows - b * BLOCK : BLOCK;
}

/* Row `row` of A has the stream (seed, projection, row, 0). */
static void draw_row(const kh_space *s, uint64_t seed, int row, float *out) {
    kh_rng r = kh_rng_stream(seed, KH_RNG_PROJECTION, (uint32_t)row, 0);
    for (int k = 0; k < s->dim; k++)
        out[k] =
            (float)(s->projection == KH_PROJECTION_NORMAL ? s->mean + s->std * kh_rng_normal(&r)
                                                          : s->std * (2 * kh_rng_uniform(&r) - 1));
}

static bool fill_block(kh_subspace *s, int b, uint64_t seed) {
    int n = block_rows(s, b), d = s->space.dim;
    float *a = kh_malloc((size_t)n * (size_t)d * sizeof *a);
    s->block[b] = kh_aligned(kh_packed_bytes(s->kernels, KH_F32, d, n));
    bool ok = a && s->block[b];
    for (int i = 0; ok && i < n; i++)
        draw_row(&s->space, seed, b * BLOCK + i, a + (size_t)i * (size_t)d);
    if (ok)
        s->kernels->pack(KH_F32, a, d, n, s->block[b]);
    kh_free(a);
    return ok;
}

static int read_p0(kh_subspace *s, kh_plm *plm, kh_err *err) {
    int h = s->space.hidden, rc = 0;
    if (s->space.inject == KH_INJECT_POST_LN_ADD)
        return 0;
    s->p0 = kh_malloc((size_t)s->rows * sizeof *s->p0);
    if (!s->p0)
        return kh_fail_memory(err);
    for (int i = 0; i < s->space.slots && rc == 0; i++)
        rc = kh_plm_embedding_row(plm, s->space.slot_id[i], s->p0 + (size_t)i * (size_t)h, err);
    return rc;
}

int kh_subspace_new(
    kh_subspace **out, const kh_space *space, kh_plm *plm, uint64_t seed, kh_err *err) {
    *out = NULL;
    kh_subspace *s = kh_calloc(1, sizeof *s);
    if (!s)
        return kh_fail_memory(err);
    s->kernels = kh_kernels_pick();
    s->rows = space->slots * space->hidden;
    s->n_block = space->projection == KH_PROJECTION_IDENTITY ? 0 : (s->rows + BLOCK - 1) / BLOCK;
    s->block = kh_calloc((size_t)s->n_block + 1, sizeof *s->block);
    int rc = s->block ? kh_space_copy(&s->space, space, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = read_p0(s, plm, err);
    int filled = 0;
#pragma omp parallel for schedule(dynamic) num_threads(kh_threads()) reduction(+ : filled) \
    if (rc == 0)
    for (int b = 0; b < s->n_block; b++)
        if (rc == 0)
            filled += fill_block(s, b, seed);
    if (rc == 0 && filled < s->n_block)
        rc = kh_fail_memory(err);
    if (rc != 0)
        kh_subspace_free(s);
    else
        *out = s;
    return rc;
}

void kh_subspace_free(kh_subspace *s) {
    if (!s)
        return;
    for (int b = 0; s->block && b < s->n_block; b++)
        kh_free(s->block[b]);
    kh_free(s->block);
    kh_free(s->p0);
    kh_space_free(&s->space);
    kh_free(s);
}

const kh_space *kh_subspace_space(const kh_subspace *s) { return &s->space; }

/* P0 + z. */
static void add_p0(const kh_subspace *s, const float *z, int n, float *prompts) {
    for (size_t i = 0, size = (size_t)s->rows; i < (size_t)n * size; i++)
        prompts[i] = z[i] + (s->p0 ? s->p0[i % size] : 0);
}

int kh_subspace_prompts(const kh_subspace *s, const float *z, int n, float *prompts, kh_err *err) {
    if (s->space.projection == KH_PROJECTION_IDENTITY) {
        add_p0(s, z, n, prompts);
        return 0;
    }
    int threads = kh_threads() < s->n_block ? kh_threads() : s->n_block, d = s->space.dim;
    size_t scratch_bytes = kh_kernels_scratch(n, 1);
    char *scratch = kh_aligned((size_t)threads * scratch_bytes);
    if (!scratch)
        return kh_fail_memory(err);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int b = 0; b < s->n_block; b++)
        s->kernels->product(&(kh_product){ .precision = KH_F32,
                                .a = z,
                                .lda = (size_t)d,
                                .rows = n,
                                .k = d,
                                .n = block_rows(s, b),
                                .w = s->block[b],
                                .bias = s->p0 ? s->p0 + (size_t)b * BLOCK : NULL,
                                .c = prompts + (size_t)b * BLOCK,
                                .ldc = (size_t)s->rows },
            scratch + (size_t)omp_get_thread_num() * scratch_bytes);
    kh_free(scratch);
    return 0;
}
