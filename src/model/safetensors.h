/* safetensors.h - the file format of weights: named arrays, read one at a time and written one
 * after another.
 *
 * A file is a u64 header length, a JSON header ({"name":{"dtype","shape","data_offsets"},...}) and
 * the bytes of the arrays. Every rule of the format is checked at open, so that afterwards a read
 * can only fail because the disk does. Arrays are read with pread into the caller's memory; nothing
 * is mapped, so a file that is cut or rewritten meanwhile is an error and never a signal.
 *
 *     kh_safetensors *f;
 *     if (kh_safetensors_open(&f, path, err)) ...
 *     const kh_array *a = kh_safetensors_find(f, "lm_head.bias");
 *     kh_safetensors_read(f, a, 0, a->bytes, buffer, err);
 */
#ifndef KH_MODEL_SAFETENSORS_H
#define KH_MODEL_SAFETENSORS_H

#include "base/buf.h"
#include "keyhole.h"

enum {
    KH_ARRAY_RANK = 8,                /* dimensions at most */
    KH_ARRAY_COUNT = 1 << 16,         /* arrays in a file at most */
    KH_SAFETENSORS_HEADER = 16 << 20, /* bytes of header at most; the format allows 100,000,000, no
                                         encoder needs 1 % of it */
};

/* The key of the metadata that says what arrays of bytes are, if they are blocks of numbers. */
#define KH_BLOCKS_KEY "keyhole_blocks"

typedef struct kh_array {
    const char *name;
    const char *type; /* one of the format's types, "F32", "I64", ... */
    kh_dtype dtype;   /* KH_DTYPE_ANY for types that are not weights here */
    int rank;
    size_t shape[KH_ARRAY_RANK];
    size_t begin, bytes; /* within the part after the header */
} kh_array;

typedef struct kh_safetensors kh_safetensors;

int kh_safetensors_open(kh_safetensors **out, const char *path, kh_err *err);
void kh_safetensors_close(kh_safetensors *);
const char *kh_safetensors_path(const kh_safetensors *);
/* All arrays, in the order of their bytes; they live until close. */
const kh_array *kh_safetensors_arrays(const kh_safetensors *, int *n);
const kh_array *kh_safetensors_find(const kh_safetensors *, const char *name); /* or NULL */
/* n bytes of the array from byte `from` on. */
int kh_safetensors_read(
    const kh_safetensors *, const kh_array *, size_t from, size_t n, void *out, kh_err *err);
/* Fails if the file has changed since it was opened. */
int kh_safetensors_unchanged(const kh_safetensors *, kh_err *err);

/* "[768, 3072]"; a scalar is "[]". */
void kh_shape_text(const size_t *shape, int rank, char *out, size_t cap);

/* Writing: the header comes from the plan (names, dtype, rank, shape; begin and bytes are filled
 * in), then the bytes of the arrays follow in the order of the plan, in pieces of any size. The
 * file appears under its name only when kh_safetensors_finish was told to keep it, and then it is
 * complete. Blocks (blocks.h) are written as bytes, U8, and the metadata says what they are. */
typedef struct kh_safetensors_writer kh_safetensors_writer;
int kh_safetensors_create(
    kh_safetensors_writer **out, const char *path, kh_array *plan, int n, kh_err *err);
int kh_safetensors_put(kh_safetensors_writer *, const void *bytes, size_t n, kh_err *err);
int kh_safetensors_finish(
    kh_safetensors_writer *, bool keep, kh_err *err); /* frees the writer; NULL is fine */

#endif
