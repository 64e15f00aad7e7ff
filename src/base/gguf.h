/* gguf.h - the container of llama.cpp's models: keys with values, and named arrays of numbers, in
 * one file.
 *
 * A file is "GGUF", a version (2 or 3), counts, the keys, the descriptions of the arrays, and, from
 * the next multiple of the alignment on, their bytes. Every rule is checked at open, so that
 * afterwards a read can only fail because the disk does. The header is held in memory; arrays are
 * read with pread and nothing is mapped.
 *
 *     kh_gguf *f;
 *     if (kh_gguf_open(&f, path, err)) ...
 *     kh_gguf_text(f, "general.architecture", &arch, err);
 *     kh_gguf_texts(f, "tokenizer.ggml.tokens", &list, err);
 *     while (kh_gguf_next_text(&list, &s, &n)) ...
 *     kh_gguf_read(f, tensor, 0, tensor->bytes, buffer, err);
 */
#ifndef KH_BASE_GGUF_H
#define KH_BASE_GGUF_H

#include "base/buf.h"
#include "keyhole.h"

enum {
    KH_GGUF_RANK = 4,            /* dimensions at most: the format's limit */
    KH_GGUF_COUNT = 1 << 16,     /* keys, and arrays, in a file at most */
    KH_GGUF_NAME = 512,          /* bytes of a key or a name at most */
    KH_GGUF_HEADER = 256 << 20,  /* bytes of header at most; vocabularies take a few million */
    KH_GGUF_ALIGNMENT = 1 << 20, /* at most; 32 unless the file says otherwise */
};

/* How the numbers of an array are stored: blocks of `count` numbers in `bytes` bytes. */
typedef struct kh_gguf_type {
    int id; /* the format's number for it */
    const char *name;
    int count, bytes;
    kh_dtype dtype; /* KH_DTYPE_ANY: known, but not read as weights */
} kh_gguf_type;

const kh_gguf_type *kh_gguf_type_of(kh_dtype); /* never NULL, but for KH_DTYPE_ANY */

typedef struct kh_gguf_tensor {
    const char *name;
    const kh_gguf_type *type;
    int rank;
    size_t shape[KH_GGUF_RANK]; /* rows first, as everywhere here; the file has the columns first */
    size_t begin, bytes;        /* within the part after the header */
} kh_gguf_tensor;

typedef struct kh_gguf kh_gguf;

int kh_gguf_open(kh_gguf **out, const char *path, kh_err *err);
/* The same for a whole file in memory, which is copied; messages call it by `name`. */
int kh_gguf_parse(kh_gguf **out, const void *bytes, size_t n, const char *name, kh_err *err);
void kh_gguf_close(kh_gguf *);
const char *kh_gguf_path(const kh_gguf *);
/* All arrays, in the order of their bytes; they live until close. */
const kh_gguf_tensor *kh_gguf_tensors(const kh_gguf *, int *n);
/* n bytes of the array from byte `from` on. */
int kh_gguf_read(
    const kh_gguf *, const kh_gguf_tensor *, size_t from, size_t n, void *out, kh_err *err);
/* Fails if the file has changed since it was opened. */
int kh_gguf_unchanged(const kh_gguf *, kh_err *err);

/* -------------------------------------------------------------------------------------- values */

/* A missing key or a wrong type is KH_EFORMAT with a sentence that names file and key. Results live
 * until close; texts end with a NUL, and hold no other. */
int kh_gguf_int(const kh_gguf *, const char *key, long min, long max, int *out, kh_err *err);
int kh_gguf_number(const kh_gguf *, const char *key, double *out, kh_err *err);
int kh_gguf_bool(const kh_gguf *, const char *key, bool *out, kh_err *err);
int kh_gguf_text(const kh_gguf *, const char *key, const char **out, kh_err *err);
/* The same for optional keys: an absent one leaves *out as it is. */
int kh_gguf_int_opt(const kh_gguf *, const char *key, long min, long max, int *out, kh_err *err);
int kh_gguf_number_opt(const kh_gguf *, const char *key, double *out, kh_err *err);
int kh_gguf_bool_opt(const kh_gguf *, const char *key, bool *out, kh_err *err);
int kh_gguf_text_opt(const kh_gguf *, const char *key, const char **out, kh_err *err);
bool kh_gguf_has(const kh_gguf *, const char *key);

/* The elements of an array value; an absent key is an empty list. */
typedef struct kh_gguf_list {
    size_t n; /* left */
    int kind;
    const unsigned char *at;
} kh_gguf_list;
int kh_gguf_texts(const kh_gguf *, const char *key, kh_gguf_list *out, kh_err *err);
int kh_gguf_ints(const kh_gguf *, const char *key, kh_gguf_list *out, kh_err *err);
int kh_gguf_numbers(const kh_gguf *, const char *key, kh_gguf_list *out, kh_err *err);
/* The next element; false after the last. Texts may hold any bytes and end with no NUL. */
bool kh_gguf_next_text(kh_gguf_list *, const char **s, size_t *n);
bool kh_gguf_next_int(kh_gguf_list *, long long *out);
bool kh_gguf_next_number(kh_gguf_list *, double *out);

/* ------------------------------------------------------------------------------------- writing */

/* Keys are appended to a buffer, in any order; then the file is made of them and of a plan of
 * arrays (name, type, rank, shape; begin and bytes are filled in), whose bytes follow in the order
 * of the plan, in pieces of any size. The file has its name only when kh_gguf_finish was told to
 * keep it, and then it is complete. */
typedef struct kh_gguf_keys {
    kh_buf bytes;
    uint64_t n;
} kh_gguf_keys;
kh_gguf_keys kh_gguf_keys_init(void);
void kh_gguf_keys_free(kh_gguf_keys *);
void kh_gguf_put_text(kh_gguf_keys *, const char *key, const char *s, size_t n);
void kh_gguf_put_u32(kh_gguf_keys *, const char *key, uint32_t);
void kh_gguf_put_f32(kh_gguf_keys *, const char *key, float);
void kh_gguf_put_bool(kh_gguf_keys *, const char *key, bool);
/* Copies one key of another file, if it is there. */
void kh_gguf_put_copy(kh_gguf_keys *, const kh_gguf *, const char *key);
/* The n-th key of a file, or NULL after the last. */
const char *kh_gguf_key(const kh_gguf *, int n);
/* Appends a whole file of keys without arrays. */
void kh_gguf_put_file(kh_buf *out, const kh_gguf_keys *);

typedef struct kh_gguf_writer kh_gguf_writer;
int kh_gguf_create(kh_gguf_writer **out, const char *path, const kh_gguf_keys *,
    kh_gguf_tensor *plan, int n, kh_err *err);
int kh_gguf_put(kh_gguf_writer *, const void *bytes, size_t n, kh_err *err);
int kh_gguf_finish(kh_gguf_writer *, bool keep, kh_err *err); /* frees the writer; NULL is fine */

#endif
