/* kernels_neon_i8mm.c - the kernels for ARM CPUs with products of unsigned and signed bytes and of
 * bf16 (Armv8.6: Neoverse V1 and N2, Apple M2, and later). */
#if defined(__aarch64__)
#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif

enum { WIDTH = 4, TILE = 8, INT8_ROWS = 8, TOP_SUM = 4 * 127 };
typedef float v_f32 __attribute__((vector_size(16)));
typedef int v_int __attribute__((vector_size(16)));

#define HAVE_DOT4
static inline v_int dot4(v_int sum, v_int a, v_int w) {
    return (v_int)vusdotq_s32((int32x4_t)sum, (uint8x16_t)a, (int8x16_t)w);
}
#define HAVE_DOT2
static inline v_f32 dot2(v_f32 sum, v_int a, v_int w) {
    return (v_f32)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)a, (bfloat16x8_t)w);
}

#include "model/kernels_body.h"
#include "model/ops_body.h"

/* As in kernels_neon_dot.c. */
static bool usable(void) {
#if defined(__linux__)
    unsigned long has = getauxval(AT_HWCAP2);
    return (has & HWCAP2_I8MM) != 0 && (has & HWCAP2_BF16) != 0;
#else
    return false;
#endif
}

const kh_kernels kh_kernels_neon_i8mm = { "neon-i8mm", "neon-i8mm", COLUMNS, usable, pack, product,
    attention, layer_norm, gelu, rms_norm, causal, spin, &train_ops };
#endif
