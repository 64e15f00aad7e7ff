/* tensor.h - a matrix in memory, in the number format it was stored in.
 *
 * Weights stay in the format of their file (or the one asked for at load): code that needs floats
 * converts a row when it needs it. A vector is a tensor of one row.
 *
 *     float x[hidden];
 *     kh_tensor_row(&w->word, id, x);
 */
#ifndef KH_MODEL_TENSOR_H
#define KH_MODEL_TENSOR_H

#include "keyhole.h"

typedef struct kh_tensor {
    void *data; /* [rows, cols] row by row, 64-byte aligned; NULL: the model has no such tensor */
    kh_dtype dtype;
    int rows, cols; /* rows is 1 for a vector */
} kh_tensor;

size_t kh_dtype_bytes(kh_dtype);     /* of one element; 0 for blocks and KH_DTYPE_ANY */
const char *kh_dtype_name(kh_dtype); /* "F32", "BF16", "Q8_0": as the formats of files spell it */
/* Of n numbers, which are whole blocks if the format has blocks. */
size_t kh_numbers_bytes(kh_dtype, size_t n);
size_t kh_tensor_bytes(const kh_tensor *);

/* One row as floats: exact, as every f16 and bf16 is a float, and what blocks stand for too. A row
 * of blocks is whole blocks. */
void kh_tensor_row(const kh_tensor *, int row, float *out);

/* n numbers from one format to another; n is a multiple of the numbers in a block of either
 * (blocks.h). Narrowing rounds to nearest, ties to even; what is too large for f16 becomes
 * infinite, NaN stays NaN. Formats are little-endian in memory, as on every machine this runs on.
 */
void kh_numbers_convert(const void *from, kh_dtype from_type, void *to, kh_dtype to_type, size_t n);

/* The index of the first NaN or infinity among n numbers, or n. */
size_t kh_numbers_nonfinite(const void *numbers, kh_dtype, size_t n);

float kh_f32_of_f16(uint16_t);
float kh_f32_of_bf16(uint16_t);
uint16_t kh_f16_of_f32(float);
uint16_t kh_bf16_of_f32(float);

#endif
