/* kernels_neon.c - the kernels for every 64-bit ARM CPU: vectors of four and fused products, with
 * a larger tile than the generic row, as there are 32 registers. Bytes are multiplied as the body
 * does without instructions for it; kernels_neon_dot.c and kernels_neon_i8mm.c have them. */
#if defined(__aarch64__)
enum { WIDTH = 4, TILE = 8, INT8_ROWS = 4, TOP_SUM = 4 * 127 };
typedef float v_f32 __attribute__((vector_size(16)));
typedef int v_int __attribute__((vector_size(16)));

#include "model/kernels_body.h"
#include "model/ops_body.h"

static bool usable(void) { return true; }

const kh_kernels kh_kernels_neon = { "neon", "neon", COLUMNS, usable, pack, product, attention,
    layer_norm, gelu, rms_norm, causal, spin, &train_ops };
#endif
