/* adapter.c - see adapter.h.
 *
 * One table of parts for each kind is all that there is to know of a layout: sizes, the order in x,
 * the names in posterior.safetensors and the error sentences of a file that does not fit follow
 * from it. Names and shapes are PyTorch's (nn.Linear [out, in], nn.LSTM with its four gates
 * stacked), so that the weights can be taken there and back. */
#include "model/adapter.h"

#include "base/err.h"

#include <string.h>

/* How long a side of a part is. */
typedef enum side { END, HIDDEN, INNER, INNER2, INNER4, LABELS, LAYERS, TWO, SLOTS } side;

typedef struct row {
    const char *name;
    side shape[KH_ADAPTER_RANK];
} row;

static const row PARTS[KH_ADAPTER_COUNT][KH_ADAPTER_PARTS + 1] = {
    [KH_ADAPTER_MLP] = { { "hidden.weight", { INNER, HIDDEN } }, { "hidden.bias", { INNER } },
        { "out.weight", { LABELS, INNER } }, { "out.bias", { LABELS } } },
    [KH_ADAPTER_BILSTM] = { { "forward.weight_ih", { INNER4, HIDDEN } },
        { "forward.weight_hh", { INNER4, INNER } }, { "forward.bias", { INNER4 } },
        { "backward.weight_ih", { INNER4, HIDDEN } }, { "backward.weight_hh", { INNER4, INNER } },
        { "backward.bias", { INNER4 } }, { "out.weight", { LABELS, INNER2 } },
        { "out.bias", { LABELS } } },
    [KH_ADAPTER_LINEAR] = { { "out.weight", { LABELS, HIDDEN } }, { "out.bias", { LABELS } } },
    [KH_ADAPTER_PREFIX] = { { "prefix", { LAYERS, TWO, SLOTS, HIDDEN } } },
};

/* LSTM gates are stacked in one matrix (INNER4); its two directions are concatenated for the last
 * layer (INNER2); TWO are a prefix's keys and values. */
static size_t length(const kh_adapter *g, side s) {
    size_t inner = (size_t)g->inner;
    const size_t all[] = { [HIDDEN] = (size_t)g->hidden,
        [INNER] = inner,
        [INNER2] = 2 * inner,
        [INNER4] = 4 * inner,
        [LABELS] = (size_t)g->labels,
        [LAYERS] = (size_t)g->layers,
        [TWO] = 2,
        [SLOTS] = (size_t)g->slots };
    return all[s];
}

int kh_adapter_parts(const kh_adapter *g, kh_adapter_part out[KH_ADAPTER_PARTS]) {
    const row *rows = PARTS[g->kind];
    size_t at = 0;
    int n = 0;
    for (; n < KH_ADAPTER_PARTS && rows[n].name; n++) {
        kh_adapter_part *p = &out[n];
        *p = (kh_adapter_part){ .name = rows[n].name, .at = at, .n = 1 };
        for (; p->rank < KH_ADAPTER_RANK && rows[n].shape[p->rank] != END; p->rank++)
            p->n *= p->shape[p->rank] = length(g, rows[n].shape[p->rank]);
        at += p->n;
    }
    return n;
}

size_t kh_adapter_size(const kh_adapter *g) {
    kh_adapter_part part[KH_ADAPTER_PARTS];
    int n = kh_adapter_parts(g, part);
    return n > 0 ? part[n - 1].at + part[n - 1].n : 0;
}

static const char *const KINDS[KH_ADAPTER_COUNT] = { "none", "mlp", "bilstm", "prefix", "linear" };
static const char *const POOLS[KH_POOL_COUNT] = { "mask", "mean", "first", "all" };

const char *kh_adapter_name(kh_adapter_kind k) { return KINDS[k]; }
const char *kh_pool_name(kh_pool p) { return POOLS[p]; }

int kh_adapter_find(kh_adapter_kind *out, const char *name, kh_err *err) {
    for (int k = KH_ADAPTER_MLP; k < KH_ADAPTER_COUNT; k++)
        if (strcmp(KINDS[k], name) == 0) {
            *out = (kh_adapter_kind)k;
            return 0;
        }
    return kh_fail(err, KH_EFORMAT,
        "\"%.60s\" is nothing that can be put on a model; there are mlp, bilstm, prefix and linear",
        name);
}

int kh_pool_find(kh_pool *out, const char *name, kh_err *err) {
    for (int p = 0; p < KH_POOL_COUNT; p++)
        if (strcmp(POOLS[p], name) == 0) {
            *out = (kh_pool)p;
            return 0;
        }
    return kh_fail(err, KH_EFORMAT,
        "\"%.60s\" is no way to read hidden states; there are mask, mean, first and all", name);
}
