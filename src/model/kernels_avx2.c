/* kernels_avx2.c - the kernels for CPUs with AVX2 and FMA. Without bf16 and VNNI instructions bf16
 * weights are widened in registers. Bytes are multiplied by VPMADDUBSW; two of its results are
 * added in 16 bits before VPMADDWD widens them, three multiplications for what takes four
 * otherwise. No sum overflows, because pack chooses steps that keep the four weights of a sum,
 * those of one sign, within 128: 255 * 128 < 2^15. */
#if defined(__x86_64__)
#include <immintrin.h>

enum { WIDTH = 8, TILE = 6, INT8_ROWS = 3, TOP_SUM = 128 };
typedef float v_f32 __attribute__((vector_size(32)));
typedef int v_int __attribute__((vector_size(32)));

#define HAVE_DOT8
static inline v_int dot8(v_int sum, v_int a0, v_int w0, v_int a1, v_int w1) {
    __m256i pairs = _mm256_maddubs_epi16((__m256i)a0, (__m256i)w0),
            more = _mm256_maddubs_epi16((__m256i)a1, (__m256i)w1);
    return sum + (v_int)_mm256_madd_epi16(_mm256_add_epi16(pairs, more), _mm256_set1_epi16(1));
}

#define HAVE_CHOOSE
static inline v_f32 choose(v_int mask, v_f32 yes, v_f32 no) {
    return (v_f32)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)mask);
}
static inline v_f32 larger(v_f32 a, v_f32 b) { return (v_f32)_mm256_max_ps((__m256)a, (__m256)b); }
static inline v_f32 smaller(v_f32 a, v_f32 b) { return (v_f32)_mm256_min_ps((__m256)a, (__m256)b); }

#include "model/kernels_body.h"
#include "model/ops_body.h"

static bool usable(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

const kh_kernels kh_kernels_avx2 = { "avx2", "avx2", COLUMNS, usable, pack, product, attention,
    layer_norm, gelu, rms_norm, causal, spin, &train_ops };
#endif
