/* adapter.h - what tuning with the box open can put on a frozen model: a small classifier on its
 * hidden states, or keys and values in front of those of every layer. An adapter is a kind, some
 * sizes and one vector of numbers; the table of its parts says what lies where, and is the layout
 * of the file that keeps it.
 *
 *     kh_adapter g = { .kind = KH_ADAPTER_MLP, .pool = KH_POOL_MASK,
 *         .hidden = 384, .inner = 256, .labels = 2 };
 *     kh_adapter_part part[KH_ADAPTER_PARTS];
 *     int n = kh_adapter_parts(&g, part);
 */
#ifndef KH_MODEL_ADAPTER_H
#define KH_MODEL_ADAPTER_H

#include "keyhole.h"

typedef enum kh_adapter_kind {
    KH_ADAPTER_NONE,
    KH_ADAPTER_MLP,
    KH_ADAPTER_BILSTM,
    KH_ADAPTER_PREFIX,
    KH_ADAPTER_LINEAR,
    KH_ADAPTER_COUNT
} kh_adapter_kind;

/* Which states of the last layer a head reads: that at the mask, the mean of all, the first, or all
 * of them in order. */
typedef enum kh_pool {
    KH_POOL_MASK,
    KH_POOL_MEAN,
    KH_POOL_FIRST,
    KH_POOL_ALL,
    KH_POOL_COUNT
} kh_pool;

enum { KH_ADAPTER_PARTS = 8, KH_ADAPTER_RANK = 4 };

typedef struct kh_adapter {
    kh_adapter_kind kind;
    kh_pool pool;      /* heads; KH_POOL_ALL for a BiLSTM and for no other */
    int hidden;        /* H */
    int inner, labels; /* heads: N units (of each direction; none if linear), K */
    int layers, slots; /* prefixes: L, M */
    float *x;          /* [kh_adapter_size] */
} kh_adapter;

typedef struct kh_adapter_part {
    const char *name;
    int rank;
    size_t shape[KH_ADAPTER_RANK];
    size_t at, n; /* numbers at .. at + n - 1 of x */
} kh_adapter_part;

/* Fills in the parts in the order of x; returns how many. */
int kh_adapter_parts(const kh_adapter *, kh_adapter_part out[KH_ADAPTER_PARTS]);
size_t kh_adapter_size(const kh_adapter *);

const char *kh_adapter_name(kh_adapter_kind); /* "mlp", "bilstm", "prefix", "linear" */
const char *kh_pool_name(kh_pool);            /* "mask", "mean", "first", "all" */
int kh_adapter_find(kh_adapter_kind *out, const char *name, kh_err *err);
int kh_pool_find(kh_pool *out, const char *name, kh_err *err);

#endif
