/* kernels.c - the choice of a row, once, and the sizes that all rows share. */
#include "model/kernels.h"
#include "model/ops.h"

#include <stdlib.h>
#include <string.h>

static const kh_kernels *const ROWS[] = {
    &kh_kernels_generic,
#if defined(__x86_64__)
    &kh_kernels_avx2,
    &kh_kernels_avx512_vnni,
    &kh_kernels_avx512,
#ifdef KH_WITH_AMX
    &kh_kernels_amx,
#endif
#elif defined(__aarch64__)
    &kh_kernels_neon,
    &kh_kernels_neon_dot,
    &kh_kernels_neon_i8mm,
#endif
};
enum { N_ROW = sizeof ROWS / sizeof ROWS[0] };

const kh_kernels *kh_kernels_at(int index) {
    for (int i = 0; i < N_ROW; i++)
        if (ROWS[i]->usable() && index-- == 0)
            return ROWS[i];
    return NULL;
}

const kh_kernels *kh_kernels_pick(void) {
    const char *wanted = getenv("KEYHOLE_KERNELS");
    const kh_kernels *best = NULL, *row;
    for (int i = 0; (row = kh_kernels_at(i)) != NULL; i++) {
        if (wanted && strcmp(wanted, row->name) == 0)
            return row;
        best = row;
    }
    return best;
}

const kh_ops_f32 *kh_ops_pick(void) { return kh_kernels_pick()->train; }

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

size_t kh_packed_bytes(const kh_kernels *k, kh_precision precision, int n_in, int n_out) {
    size_t inputs = (size_t)n_in, columns = round_up((size_t)n_out, (size_t)k->columns);
    switch (precision) {
    case KH_BF16: return columns * ((inputs + 1) / 2) * 4;
    case KH_INT8:
        return columns * ((inputs + KH_INT8_GROUP - 1) / KH_INT8_GROUP) *
            (KH_INT8_GROUP + 8); /* and a step and a sum each */
    default: return columns * inputs * 4;
    }
}

size_t kh_kernels_scratch(int rows, int d) {
    size_t n = round_up((size_t)rows, 48),
           wide = round_up((size_t)d, 32); /* 48: whole tiles of every row of the table */
    size_t groups = KH_BLOCK_WORDS * 4 / KH_INT8_GROUP;
    size_t product =
        KH_BLOCK_WORDS * 4 * (32 + n) + n * groups * 16; /* a block of W, a block of A, roundings */
    size_t attention =
        (n + 32) * wide * 4 + n * (n + 32) * 4; /* keys or values packed, and the weights */
    return round_up(product + attention, 64);
}

/* Keys and values packed, a part at a time, then weights, then a product. */
size_t kh_causal_scratch(int rows, int keys, int parts, int longest, int d) {
    size_t wide = round_up((size_t)d, 32), all = (size_t)keys + 32 * (size_t)parts;
    size_t weights = round_up((size_t)rows, 48) * round_up((size_t)longest + 1, 32);
    return round_up((2 * all * wide + weights) * 4, 64) + kh_kernels_scratch(rows, 1);
}
