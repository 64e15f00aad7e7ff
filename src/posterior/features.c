/* features.c - see features.h. */
#include "posterior/features.h"

#include "base/alloc.h"
#include "base/err.h"

#include <string.h>

enum { AT_ONCE = 16 }; /* rows whose states are all in memory together */

void kh_features_free(kh_features *f) {
    kh_free(f->row);
    kh_free(f->state);
    *f = (kh_features){ 0 };
}

/* The states [n, hidden] of one row -> what the head reads of them. The mask of a row for a decoder
 * stands behind its last token, which alone has seen the whole row: it stands for both places. */
static void pool_states(
    kh_pool pool, const float *state, size_t n, size_t mask, size_t hidden, float *out) {
    size_t place = pool == KH_POOL_MASK ? mask : 0;
    if (mask >= n)
        place = n - 1;
    if (pool == KH_POOL_ALL)
        memcpy(out, state, n * hidden * sizeof *out);
    else if (pool != KH_POOL_MEAN)
        memcpy(out, state + place * hidden, hidden * sizeof *out);
    else
        for (size_t j = 0; j < hidden; j++) {
            double sum = 0;
            for (size_t i = 0; i < n; i++)
                sum += (double)state[i * hidden + j];
            out[j] = (float)(sum / (double)n);
        }
}

/* The rows of one batch, whose states are given. Where a row's states begin is known only when all
 * memory is there, so its place is written down as a number first. */
static int add_rows(kh_features *f, const kh_batch *b, kh_pool pool, const float *state,
    size_t hidden, size_t *at, kh_err *err) {
    for (int i = 0; i < b->n_row; i++) {
        size_t seq = (size_t)i * (size_t)b->n_variant, first = b->start[seq],
               n = b->start[seq + 1] - first;
        size_t kept = pool == KH_POOL_ALL ? n : 1;
        if (!kh_grow(&f->state, &f->cap, f->used + kept * hidden, sizeof *f->state))
            return kh_fail_memory(err);
        pool_states(
            pool, state + first * hidden, n, (size_t)b->mask[seq], hidden, f->state + f->used);
        at[f->n] = f->used;
        f->row[f->n++] = (kh_head_row){ .n = (int)kept, .label = b->label[i] };
        f->used += kept * hidden;
    }
    return 0;
}

/* Some rows at a time: states of all tokens are large, what a head keeps of them is small. */
int kh_features_read(kh_features *f, kh_plm *plm, const kh_task *task, const kh_words *words,
    const kh_batch_opts *o, kh_pool pool, const kh_row *rows, int n, kh_err *err) {
    size_t hidden = (size_t)kh_plm_describe(plm).hidden;
    size_t *at = kh_calloc((size_t)n, sizeof *at);
    *f = (kh_features){ .row = kh_calloc((size_t)n, sizeof *f->row) };
    int rc = at && f->row ? 0 : kh_fail_memory(err);
    for (int first = 0; first < n && rc == 0; first += AT_ONCE) {
        kh_batch *b = NULL;
        float *state = NULL;
        int some = n - first < AT_ONCE ? n - first : AT_ONCE;
        rc = kh_batch_encode(&b, kh_plm_tokenizer(plm), task, words, rows + first, some, o, err);
        if (rc == 0 && !(state = kh_malloc(b->start[b->n_seq] * hidden * sizeof *state)))
            rc = kh_fail_memory(err);
        if (rc == 0)
            rc = kh_plm_hidden(plm, b, state, err);
        if (rc == 0)
            rc = add_rows(f, b, pool, state, hidden, at, err);
        kh_batch_free(b);
        kh_free(state);
    }
    for (int i = 0; i < f->n && rc == 0; i++)
        f->row[i].state = f->state + at[i];
    kh_free(at);
    return rc;
}
