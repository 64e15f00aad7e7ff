/* kernels_avx512.c - the kernels for CPUs with AVX-512, its byte products (VNNI) and its bf16
 * products. */
#if defined(__x86_64__)
#include "model/kernels_avx512_vectors.h"

#include "model/kernels_body.h"
#include "model/ops_body.h"

const kh_kernels kh_kernels_avx512 = { "avx512", "avx512", COLUMNS, has_avx512, pack, product,
    attention, layer_norm, gelu, rms_norm, causal, spin, &train_ops };
#endif
