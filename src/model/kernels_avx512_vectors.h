/* kernels_avx512_vectors.h - what kernels_body.h wants to know of CPUs with AVX-512, its byte
 * products (VNNI) and, where the file is compiled for them, its bf16 products. */
#include <immintrin.h>
#include <stdbool.h>

enum { WIDTH = 16, TILE = 12, INT8_ROWS = 12, TOP_SUM = 4 * 127 };
typedef float v_f32 __attribute__((vector_size(64)));
typedef int v_int __attribute__((vector_size(64)));

#define HAVE_CHOOSE
static inline v_f32 choose(v_int mask, v_f32 yes, v_f32 no) {
    return (v_f32)_mm512_mask_blend_ps(
        _mm512_movepi32_mask((__m512i)mask), (__m512)no, (__m512)yes);
}
static inline v_f32 larger(v_f32 a, v_f32 b) { return (v_f32)_mm512_max_ps((__m512)a, (__m512)b); }
static inline v_f32 smaller(v_f32 a, v_f32 b) { return (v_f32)_mm512_min_ps((__m512)a, (__m512)b); }

#define HAVE_IF_LESS
static inline v_f32 if_less(v_f32 a, v_f32 b, v_f32 yes, v_f32 no) {
    __mmask16 less = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ);
    return (v_f32)_mm512_mask_blend_ps(less, (__m512)no, (__m512)yes);
}
static inline v_f32 if_nan(v_f32 x, v_f32 yes, v_f32 no) {
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
    return (v_f32)_mm512_mask_blend_ps(nan, (__m512)no, (__m512)yes);
}

#define HAVE_REDUCE
static inline float max_lanes(v_f32 v) { return _mm512_reduce_max_ps((__m512)v); }

#define HAVE_DOT4
static inline v_int dot4(v_int sum, v_int a, v_int w) {
    return (v_int)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)w);
}
#ifdef __AVX512BF16__
#define HAVE_DOT2
static inline v_f32 dot2(v_f32 sum, v_int a, v_int w) {
    return (v_f32)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)w);
}
#endif

static inline bool has_avx512_vnni(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni");
}

static inline bool has_avx512(void) {
    return has_avx512_vnni() && __builtin_cpu_supports("avx512bf16");
}
