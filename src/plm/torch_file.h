/* torch_file.h - one matrix as torch.save writes it: a zip archive with a pickle and the numbers.
 * vLLM takes soft prompts so.
 *
 * The pickle is read by a parser that knows the few instructions that a plain tensor takes, and
 * executes nothing: names are compared with the two or three that may stand there, and everything
 * else is refused. */
#ifndef KH_PLM_TORCH_FILE_H
#define KH_PLM_TORCH_FILE_H

#include "base/buf.h"
#include "keyhole.h"

/* Appends x [rows, cols] in f32. The same numbers give the same bytes. */
void kh_torch_put(kh_buf *out, const float *x, int rows, int cols);

/* Fresh floats (kh_free) of a dense tensor [rows, cols] or [1, rows, cols] in f32, f16 or bf16,
 * with at most max_rows rows. */
int kh_torch_get(const void *bytes, size_t n, int max_rows, int max_cols, float **x, int *rows,
    int *cols, kh_err *err);

#endif
