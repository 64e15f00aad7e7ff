/* kernels_avx512_vnni.c - the kernels for CPUs with AVX-512 and its byte products (VNNI) but no
 * bf16 products: Cascade Lake, Ice Lake, Rocket Lake. f32 and int8 have the bits of the avx512 row;
 * bf16 weights are widened in registers, so that they are no faster than f32. */
#if defined(__x86_64__)
#include "model/kernels_avx512_vectors.h"

#include "model/kernels_body.h"
#include "model/ops_body.h"

const kh_kernels kh_kernels_avx512_vnni = { "avx512-vnni", "avx512-vnni", COLUMNS, has_avx512_vnni,
    pack, product, attention, layer_norm, gelu, rms_norm, causal, spin, &train_ops };
#endif
