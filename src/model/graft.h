/* graft.h - what tuning with the box open can put on a frozen model: a small classifier on its hidden states, or keys and
 * values in front of those of every layer. A graft is a kind, some sizes and one vector of numbers; the table of its parts
 * says what lies where, and is the layout of the file that keeps it.
 *
 *     kh_graft g = { .kind = KH_GRAFT_MLP, .pool = KH_POOL_MASK, .hidden = 384, .inner = 256, .labels = 2 };
 *     kh_graft_part part[KH_GRAFT_PARTS];
 *     int n = kh_graft_parts(&g, part);
 */
#ifndef KH_MODEL_GRAFT_H
#define KH_MODEL_GRAFT_H

#include "keyhole.h"

typedef enum kh_graft_kind { KH_GRAFT_NONE, KH_GRAFT_MLP, KH_GRAFT_BILSTM, KH_GRAFT_PREFIX, KH_GRAFT_COUNT } kh_graft_kind;

/* Which states of the last layer a head reads: that at the mask, the mean of all, the first, or all of them in order. */
typedef enum kh_pool { KH_POOL_MASK, KH_POOL_MEAN, KH_POOL_FIRST, KH_POOL_ALL, KH_POOL_COUNT } kh_pool;

enum { KH_GRAFT_PARTS = 8, KH_GRAFT_RANK = 4 };

typedef struct kh_graft {
    kh_graft_kind kind;
    kh_pool pool;           /* heads; KH_POOL_ALL for a BiLSTM and for no other */
    int hidden;             /* H */
    int inner, labels;      /* heads: N units (of each direction), K */
    int layers, slots;      /* prefixes: L, M */
    float *x;               /* [kh_graft_size] */
} kh_graft;

typedef struct kh_graft_part {
    const char *name;
    int rank;
    size_t shape[KH_GRAFT_RANK];
    size_t at, n; /* numbers at .. at + n - 1 of x */
} kh_graft_part;

/* Fills in the parts in the order of x; returns how many. */
int kh_graft_parts(const kh_graft *, kh_graft_part out[KH_GRAFT_PARTS]);
size_t kh_graft_size(const kh_graft *);

const char *kh_graft_name(kh_graft_kind); /* "mlp", "bilstm", "prefix" */
const char *kh_pool_name(kh_pool);        /* "mask", "mean", "first", "all" */
int kh_graft_find(kh_graft_kind *out, const char *name, kh_err *err);
int kh_pool_find(kh_pool *out, const char *name, kh_err *err);

#endif
