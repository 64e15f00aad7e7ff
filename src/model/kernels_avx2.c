/* kernels_avx2.c - the kernels for CPUs with AVX2 and FMA. Without bf16 and VNNI instructions bf16 weights are widened in
 * registers, and bytes are multiplied by VPMADDUBSW, whose 16-bit sums would saturate with weights beyond +-63. */
#if defined(__x86_64__)
#include <immintrin.h>

enum { WIDTH = 8, TILE = 6, TOP_WEIGHT = 63 };
typedef float v_f32 __attribute__((vector_size(32)));
typedef int v_int __attribute__((vector_size(32)));

#define HAVE_DOT4
static inline v_int dot4(v_int sum, v_int a, v_int w) {
    __m256i pairs = _mm256_maddubs_epi16((__m256i)a, (__m256i)w);
    return sum + (v_int)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

#include "model/kernels_body.h"
#include "model/ops_body.h"

static bool usable(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

const kh_kernels kh_kernels_avx2 = { "avx2", COLUMNS, usable, pack, product, attention, layer_norm, gelu, &train_ops };
#endif
