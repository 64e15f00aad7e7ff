/* backward_f32.c - gradients in f32, for use. */
typedef float real;
#define SUFFIX(name) name##_f32
#define SUFFIX2(name, end) name##_f32##end
#define gemm cblas_sgemm
#define HAVE_BF16
#define PICK_OPS() kh_ops_pick()

#include "model/ops.h"

#include "train/backward_body.h"
