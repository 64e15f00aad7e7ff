/* kernels_avx512.c - the kernels for CPUs with AVX-512, its byte products (VNNI) and its bf16
 * products. */
#if defined(__x86_64__)
#include <immintrin.h>

enum { WIDTH = 16, TILE = 12, INT8_ROWS = 12, TOP_SUM = 4 * 127 };
typedef float v_f32 __attribute__((vector_size(64)));
typedef int v_int __attribute__((vector_size(64)));

#define HAVE_DOT4
static inline v_int dot4(v_int sum, v_int a, v_int w) {
    return (v_int)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)w);
}
#define HAVE_DOT2
static inline v_f32 dot2(v_f32 sum, v_int a, v_int w) {
    return (v_f32)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)w);
}

#include "model/kernels_body.h"
#include "model/ops_body.h"

static bool usable(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
}

const kh_kernels kh_kernels_avx512 = { "avx512", COLUMNS, usable, pack, product, attention,
    layer_norm, gelu, rms_norm, causal, spin, &train_ops };
#endif
