/* blocks.h - numbers in blocks, as GGUF files hold them: a few bits each, and scales that a block
 * shares. kh_numbers_convert (tensor.h) is how others use them. */
#ifndef KH_MODEL_BLOCKS_H
#define KH_MODEL_BLOCKS_H

#include "keyhole.h"

enum { KH_BLOCK_MAX = 256 }; /* numbers in a block at most */

/* How many numbers a block has, and its bytes; 1 number for formats without blocks. */
int kh_block_count(kh_dtype);
int kh_block_bytes(kh_dtype);
bool kh_is_blocks(kh_dtype);

/* n blocks into floats. The result is a pure function of the bytes: products and sums in the order
 * of the formulas in blocks.c, each rounded to f32. */
void kh_blocks_expand(kh_dtype, const void *blocks, size_t n, float *out);

/* n blocks out of floats: Q8_0 and Q4_0 are written, kh_blocks_shrinks says which. */
bool kh_blocks_shrinks(kh_dtype);
void kh_blocks_shrink(kh_dtype, const float *x, size_t n, void *blocks);

#endif
