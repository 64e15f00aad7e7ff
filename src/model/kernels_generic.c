/* kernels_generic.c - the kernels for any CPU: vectors of four, as every 64-bit machine has them.
 * The specification. */
enum { WIDTH = 4, TILE = 4, INT8_ROWS = 4, TOP_SUM = 4 * 127 };
typedef float v_f32 __attribute__((vector_size(16)));
typedef int v_int __attribute__((vector_size(16)));

#include "model/kernels_body.h"
#include "model/ops_body.h"

static bool usable(void) { return true; }

const kh_kernels kh_kernels_generic = { "generic", "generic", COLUMNS, usable, pack, product,
    attention, layer_norm, gelu, rms_norm, causal, spin, &train_ops };
