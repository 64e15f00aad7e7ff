/* gguf_file.h - GGUF files made byte by byte, so that any field can be wrong. */
#ifndef KH_TESTS_GGUF_FILE_H
#define KH_TESTS_GGUF_FILE_H

#include "test.h"

typedef struct gguf_file {
    unsigned char byte[1 << 16];
    size_t n;
} gguf_file;

static inline void gguf_int(gguf_file *f, uint64_t x, int bytes) {
    for (int i = 0; i < bytes; i++)
        f->byte[f->n++] = (unsigned char)(x >> (8 * i));
}

static inline void gguf_text(gguf_file *f, const char *s) {
    gguf_int(f, strlen(s), 8);
    memcpy(f->byte + f->n, s, strlen(s));
    f->n += strlen(s);
}

static inline void gguf_start(gguf_file *f, uint32_t version, uint64_t tensors, uint64_t keys) {
    f->n = 0;
    memcpy(f->byte, "GGUF", 4);
    f->n = 4;
    gguf_int(f, version, 4);
    gguf_int(f, tensors, 8);
    gguf_int(f, keys, 8);
}

static inline void gguf_key(gguf_file *f, const char *key, uint32_t kind) {
    gguf_text(f, key);
    gguf_int(f, kind, 4);
}

static inline void gguf_string_key(gguf_file *f, const char *key, const char *value) {
    gguf_key(f, key, 8);
    gguf_text(f, value);
}

/* One or two dimensions (rows 0: one), as the file has them: columns first. */
static inline void gguf_tensor(
    gguf_file *f, const char *name, uint64_t cols, uint64_t rows, uint32_t type, uint64_t at) {
    gguf_text(f, name);
    gguf_int(f, rows ? 2 : 1, 4);
    gguf_int(f, cols, 8);
    if (rows)
        gguf_int(f, rows, 8);
    gguf_int(f, type, 4);
    gguf_int(f, at, 8);
}

static inline void gguf_align(gguf_file *f, size_t to) {
    while (f->n % to != 0)
        f->byte[f->n++] = 0;
}

#endif
