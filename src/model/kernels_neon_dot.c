/* kernels_neon_dot.c - the kernels for ARM CPUs with products of bytes (Armv8.2 with DotProd, from
 * the Cortex-A55 and A76 on). SDOT takes signed bytes on both sides, and tokens are unsigned: with
 * 128 taken off them by flipping a bit, what is missing is 128 times the sum of the weights, two
 * more products with 64. */
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
    const int8x16_t half = vdupq_n_s8(64);
    int8x16_t weights = (int8x16_t)w, shifted = (int8x16_t)veorq_u8((uint8x16_t)a, vdupq_n_u8(128));
    int32x4_t missing = vdotq_s32(vdotq_s32((int32x4_t)sum, half, weights), half, weights);
    return (v_int)vdotq_s32(missing, shifted, weights);
}

#include "model/kernels_body.h"
#include "model/ops_body.h"

/* Elsewhere than on Linux nobody is asked, and the plain NEON row is used. */
static bool usable(void) {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
    return false;
#endif
}

const kh_kernels kh_kernels_neon_dot = { "neon-dot", "neon-dot", COLUMNS, usable, pack, product,
    attention, layer_norm, gelu, rms_norm, causal, spin, &train_ops };
#endif
