/* gguf_write.c - writing the container of gguf.h, version 3. */
#include "base/gguf.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/size.h"

#include <string.h>

enum { ALIGNMENT = 32, KIND_U32 = 4, KIND_F32 = 6, KIND_BOOL = 7, KIND_TEXT = 8, VERSION = 3 };

kh_gguf_keys kh_gguf_keys_init(void) { return (kh_gguf_keys){ kh_buf_init(KH_GGUF_HEADER), 0 }; }

void kh_gguf_keys_free(kh_gguf_keys *k) { kh_buf_free(&k->bytes); }

static void put_int(kh_buf *out, uint64_t x, int bytes) {
    for (int i = 0; i < bytes; i++)
        kh_buf_char(out, (char)(x >> (8 * i)));
}

static void put_text(kh_buf *out, const char *s, size_t n) {
    put_int(out, n, 8);
    kh_buf_bytes(out, s, n);
}

static kh_buf *begin_key(kh_gguf_keys *k, const char *key, int kind) {
    put_text(&k->bytes, key, strlen(key));
    put_int(&k->bytes, (uint64_t)kind, 4);
    k->n++;
    return &k->bytes;
}

void kh_gguf_put_text(kh_gguf_keys *k, const char *key, const char *s, size_t n) {
    put_text(begin_key(k, key, KIND_TEXT), s, n);
}

void kh_gguf_put_u32(kh_gguf_keys *k, const char *key, uint32_t x) {
    put_int(begin_key(k, key, KIND_U32), x, 4);
}

void kh_gguf_put_f32(kh_gguf_keys *k, const char *key, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_int(begin_key(k, key, KIND_F32), bits, 4);
}

void kh_gguf_put_bool(kh_gguf_keys *k, const char *key, bool x) {
    put_int(begin_key(k, key, KIND_BOOL), x, 1);
}

static void put_start(kh_buf *out, uint64_t n_tensor, const kh_gguf_keys *k) {
    kh_buf_bytes(out, "GGUF", 4);
    put_int(out, VERSION, 4);
    put_int(out, n_tensor, 8);
    put_int(out, k->n, 8);
    kh_buf_bytes(out, k->bytes.len ? k->bytes.data : "", k->bytes.len);
    out->failed |= kh_buf_failed(&k->bytes);
}

static void put_padding(kh_buf *out, size_t *at) {
    for (; *at % ALIGNMENT != 0; ++*at)
        kh_buf_char(out, 0);
}

void kh_gguf_put_file(kh_buf *out, const kh_gguf_keys *k) {
    size_t at = out->len;
    put_start(out, 0, k);
    at = out->len - at;
    put_padding(out, &at);
}

struct kh_gguf_writer {
    kh_file_writer file;
    const kh_gguf_tensor *plan; /* the caller's, until finish */
    int n, now;                 /* the array whose bytes come next */
    size_t left;                /* of it */
};

/* Fills in where the arrays go. */
static int lay_out(kh_gguf_tensor *plan, int n, kh_err *err) {
    size_t end = 0;
    for (int i = 0; i < n; i++) {
        kh_gguf_tensor *t = &plan[i];
        size_t total = 1;
        bool fits = true;
        for (int d = 0; d < t->rank; d++)
            fits = fits && kh_mul(total, t->shape[d], &total);
        if (!fits || !kh_mul(total / (size_t)t->type->count, (size_t)t->type->bytes, &t->bytes) ||
            t->shape[t->rank - 1] % (size_t)t->type->count != 0)
            return kh_fail(err, KH_ELIMIT,
                "tensor \"%s\": rows of %zu numbers cannot be written "
                "as %s",
                t->name, t->shape[t->rank - 1], t->type->name);
        t->begin = end;
        if (!kh_add(end, t->bytes, &end) || !kh_add(end, (0 - end) % ALIGNMENT, &end))
            return kh_fail(err, KH_ELIMIT, "tensor \"%s\": too large to write", t->name);
    }
    return 0;
}

static void put_tensor(kh_buf *out, const kh_gguf_tensor *t) {
    put_text(out, t->name, strlen(t->name));
    put_int(out, (uint64_t)t->rank, 4);
    for (int d = t->rank - 1; d >= 0; d--)
        put_int(out, t->shape[d], 8);
    put_int(out, (uint64_t)t->type->id, 4);
    put_int(out, t->begin, 8);
}

int kh_gguf_create(kh_gguf_writer **out, const char *path, const kh_gguf_keys *keys,
    kh_gguf_tensor *plan, int n, kh_err *err) {
    kh_buf header = kh_buf_init(KH_GGUF_HEADER);
    kh_gguf_writer *w = *out = kh_calloc(1, sizeof *w);
    if (!w)
        return kh_fail_memory(err);
    *w = (kh_gguf_writer){ .file.fd = -1, .plan = plan, .n = n };
    int rc = lay_out(plan, n, err);
    put_start(&header, (uint64_t)n, keys);
    for (int i = 0; i < n; i++)
        put_tensor(&header, &plan[i]);
    size_t at = header.len;
    put_padding(&header, &at);
    if (rc == 0 && kh_buf_failed(&header))
        rc = kh_fail_memory(err);
    if (rc == 0)
        rc = kh_file_writer_open(&w->file, path, err);
    if (rc == 0)
        rc = kh_file_writer_put(&w->file, header.data, header.len, err);
    kh_buf_free(&header);
    w->left = n > 0 ? plan[0].bytes : 0;
    if (rc != 0) {
        kh_gguf_finish(w, false, NULL);
        *out = NULL;
    }
    return rc;
}

/* The end of an array: padding, and the next one. */
static int next_array(kh_gguf_writer *w, kh_err *err) {
    static const char zeros[ALIGNMENT];
    int rc = kh_file_writer_put(&w->file, zeros, (0 - w->plan[w->now].bytes) % ALIGNMENT, err);
    w->now++;
    w->left = w->now < w->n ? w->plan[w->now].bytes : 0;
    return rc;
}

int kh_gguf_put(kh_gguf_writer *w, const void *bytes, size_t n, kh_err *err) {
    if (n > w->left)
        return kh_fail(err, KH_EARG, "%s: %zu bytes more than its header announces", w->file.path,
            n - w->left);
    int rc = kh_file_writer_put(&w->file, bytes, n, err);
    w->left -= n;
    return rc == 0 && w->left == 0 && w->now < w->n ? next_array(w, err) : rc;
}

int kh_gguf_finish(kh_gguf_writer *w, bool keep, kh_err *err) {
    if (!w)
        return 0;
    int rc = 0;
    if (keep && w->now < w->n)
        rc = kh_fail(err, KH_EARG, "%s: fewer bytes than its header announces", w->file.path);
    int closed = kh_file_writer_close(&w->file, keep && rc == 0, rc == 0 ? err : NULL);
    kh_free(w);
    return rc ? rc : closed;
}
