/* gguf.c - reading the container; see gguf.h. The writer is gguf_write.c.
 *
 *     magic "GGUF" | u32 version | u64 arrays | u64 keys
 *     key:    text name | u32 kind | value
 *     array:  text name | u32 rank | u64 dimension * rank | u32 type | u64 offset
 *     padding to the alignment | the bytes of the arrays, each padded to the alignment
 *
 * A text is a u64 length and its bytes; an array value is u32 kind | u64 count | the elements.
 * Everything is little-endian.
 *
 * The length of the header is written nowhere. A piece of the file is read and parsed; if the
 * header turns out to be longer, four times as much is read and parsed again. One cursor takes all
 * bytes: it compares every length with what the file has left before anything is done with it, so
 * that a number in the header can neither make us read outside nor allocate more than the file
 * holds.
 *
 * Stricter than the format: limits on counts, names and header, no arrays of arrays, offsets
 * exactly where the arrays end up when they follow each other, and no tail. */
#include "base/gguf.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/file.h"
#include "base/map.h"
#include "base/size.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The numbers that the format has for the kinds of values. */
enum kind { U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64, N_KIND };

static const struct {
    const char *name;
    int bytes; /* of one; 0: it has a length of its own */
} kinds[N_KIND] = { [U8] = { "u8", 1 },
    [I8] = { "i8", 1 },
    [U16] = { "u16", 2 },
    [I16] = { "i16", 2 },
    [U32] = { "u32", 4 },
    [I32] = { "i32", 4 },
    [F32] = { "f32", 4 },
    [BOOL] = { "bool", 1 },
    [TEXT] = { "string", 0 },
    [ARRAY] = { "array", 0 },
    [U64] = { "u64", 8 },
    [I64] = { "i64", 8 },
    [F64] = { "f64", 8 } };

/* Types without a kh_dtype have a size, so that a file with them can be listed; they are refused as
 * weights, by name. */
static const kh_gguf_type types[] = {
    { 0, "F32", 1, 4, KH_DTYPE_F32 },
    { 1, "F16", 1, 2, KH_DTYPE_F16 },
    { 30, "BF16", 1, 2, KH_DTYPE_BF16 },
    { 8, "Q8_0", 32, 34, KH_DTYPE_Q8_0 },
    { 2, "Q4_0", 32, 18, KH_DTYPE_Q4_0 },
    { 3, "Q4_1", 32, 20, KH_DTYPE_Q4_1 },
    { 6, "Q5_0", 32, 22, KH_DTYPE_Q5_0 },
    { 7, "Q5_1", 32, 24, KH_DTYPE_Q5_1 },
    { 10, "Q2_K", 256, 84, KH_DTYPE_Q2_K },
    { 11, "Q3_K", 256, 110, KH_DTYPE_Q3_K },
    { 12, "Q4_K", 256, 144, KH_DTYPE_Q4_K },
    { 13, "Q5_K", 256, 176, KH_DTYPE_Q5_K },
    { 14, "Q6_K", 256, 210, KH_DTYPE_Q6_K },
    { 16, "IQ2_XXS", 256, 66, KH_DTYPE_IQ2_XXS },
    { 20, "IQ4_NL", 32, 18, KH_DTYPE_IQ4_NL },
    { 23, "IQ4_XS", 256, 136, KH_DTYPE_IQ4_XS },
    { 39, "MXFP4", 32, 17, KH_DTYPE_MXFP4 },
    { 9, "Q8_1", 32, 36, KH_DTYPE_ANY },
    { 15, "Q8_K", 256, 292, KH_DTYPE_ANY },
    { 17, "IQ2_XS", 256, 74, KH_DTYPE_ANY },
    { 18, "IQ3_XXS", 256, 98, KH_DTYPE_ANY },
    { 19, "IQ1_S", 256, 50, KH_DTYPE_ANY },
    { 21, "IQ3_S", 256, 110, KH_DTYPE_ANY },
    { 22, "IQ2_S", 256, 82, KH_DTYPE_ANY },
    { 24, "I8", 1, 1, KH_DTYPE_ANY },
    { 25, "I16", 1, 2, KH_DTYPE_ANY },
    { 26, "I32", 1, 4, KH_DTYPE_ANY },
    { 27, "I64", 1, 8, KH_DTYPE_ANY },
    { 28, "F64", 1, 8, KH_DTYPE_ANY },
    { 29, "IQ1_M", 256, 56, KH_DTYPE_ANY },
    { 34, "TQ1_0", 256, 54, KH_DTYPE_ANY },
    { 35, "TQ2_0", 256, 66, KH_DTYPE_ANY },
    { 40, "NVFP4", 64, 36, KH_DTYPE_ANY },
};
enum { N_TYPE = sizeof types / sizeof *types };

const kh_gguf_type *kh_gguf_type_of(kh_dtype dtype) {
    for (int i = 0; i < N_TYPE && dtype != KH_DTYPE_ANY; i++)
        if (types[i].dtype == dtype)
            return &types[i];
    return NULL;
}

typedef struct value {
    const char *key;
    enum kind kind, element; /* element: of an array */
    const unsigned char *at; /* a number, a text's bytes, or an array's first element */
    size_t n;                /* bytes of a text, elements of an array */
    const char *text;        /* a text once more, ended by a NUL */
    size_t begin, end;       /* kind and value in the header, for copies */
} value;

struct kh_gguf {
    char *path;
    int fd; /* -1: in memory */
    struct stat at_open;
    unsigned char *head; /* [n_head] the start of the file, or all of it */
    size_t n_head, n_file;
    size_t data; /* where the arrays start */
    value *key;
    int n_key;
    kh_gguf_tensor *tensor;
    int n_tensor;
    kh_map keys, names;
    kh_arena arena;
};

/* -------------------------------------------------------------------------------------- cursor */

enum { MORE = 100 }; /* the header goes on after what was read of the file */

typedef struct cursor {
    const kh_gguf *f;
    size_t at;
    const char *place; /* what is being read, for sentences */
} cursor;

static int fail_short(const cursor *c, kh_err *err) {
    return kh_fail(err, KH_EFORMAT,
        "%s: cut short, or its header is damaged: %s at byte %zu "
        "reaches past the end of the file, which has %zu bytes",
        c->f->path, c->place, c->at, c->f->n_file);
}

/* n bytes, in *bytes. */
static int take(cursor *c, size_t n, const unsigned char **bytes, kh_err *err) {
    if (n > c->f->n_file - c->at)
        return fail_short(c, err);
    if (n > c->f->n_head - c->at)
        return MORE;
    *bytes = c->f->head + c->at;
    c->at += n;
    return 0;
}

static uint64_t little(const unsigned char *b, int n) {
    uint64_t x = 0;
    for (int i = n - 1; i >= 0; i--)
        x = x << 8 | b[i];
    return x;
}

static int take_int(cursor *c, int bytes, uint64_t *out, kh_err *err) {
    const unsigned char *b;
    int rc = take(c, (size_t)bytes, &b, err);
    if (rc == 0)
        *out = little(b, bytes);
    return rc;
}

/* A count of things that take at least `least` bytes each. */
static int take_count(cursor *c, size_t least, uint64_t *out, kh_err *err) {
    int rc = take_int(c, 8, out, err);
    if (rc == 0 && *out > (c->f->n_file - c->at) / least)
        return fail_short(c, err);
    return rc;
}

static int take_text(cursor *c, const unsigned char **s, size_t *n, kh_err *err) {
    uint64_t len;
    int rc = take_count(c, 1, &len, err);
    if (rc == 0)
        rc = take(c, (size_t)len, s, err);
    *n = rc == 0 ? (size_t)len : 0;
    return rc;
}

/* A name that may stand in messages: not empty, not too long, no control characters. In fresh
 * arena memory. */
static int take_name(cursor *c, kh_gguf *f, const char **out, kh_err *err) {
    const unsigned char *s;
    size_t n, from = c->at;
    int rc = take_text(c, &s, &n, err);
    if (rc != 0)
        return rc;
    if (n == 0 || n > KH_GGUF_NAME)
        return kh_fail(err, KH_ELIMIT,
            "%s: %s at byte %zu has a name of %zu bytes, expected 1 to %d", f->path, c->place, from,
            n, (int)KH_GGUF_NAME);
    for (size_t i = 0; i < n; i++)
        if (s[i] < 0x20 || s[i] == 0x7F)
            return kh_fail(err, KH_EFORMAT,
                "%s: %s at byte %zu has a control character in its name", f->path, c->place, from);
    *out = kh_arena_strndup(&f->arena, (const char *)s, n);
    return *out ? 0 : kh_fail_memory(err);
}

/* ---------------------------------------------------------------------------------------- keys */

static int take_array(cursor *c, value *v, kh_err *err) {
    uint64_t kind, n;
    int rc = take_int(c, 4, &kind, err);
    if (rc != 0)
        return rc;
    if (kind >= N_KIND)
        return kh_fail(err, KH_EFORMAT, "%s: the elements of \"%s\" are of unknown kind %llu",
            c->f->path, v->key, (unsigned long long)kind);
    if (kind == ARRAY)
        return kh_fail(err, KH_EUNSUPPORTED, "%s: \"%s\" is an array of arrays, which is not read",
            c->f->path, v->key);
    v->element = (enum kind)kind;
    size_t each = kinds[kind].bytes ? (size_t)kinds[kind].bytes : 8; /* a text has its length */
    if ((rc = take_count(c, each, &n, err)) != 0)
        return rc;
    v->n = (size_t)n;
    if (kinds[kind].bytes)
        return take(c, v->n * each, &v->at, err); /* cannot wrap: it fits in the file */
    v->at = c->f->head + c->at;
    for (size_t i = 0; i < v->n && rc == 0; i++) {
        const unsigned char *s;
        size_t len;
        rc = take_text(c, &s, &len, err);
    }
    return rc;
}

static int take_value(cursor *c, kh_gguf *f, value *v, kh_err *err) {
    uint64_t kind;
    v->begin = c->at;
    int rc = take_int(c, 4, &kind, err);
    if (rc != 0)
        return rc;
    if (kind >= N_KIND)
        return kh_fail(err, KH_EFORMAT, "%s: the value of \"%s\" is of unknown kind %llu", f->path,
            v->key, (unsigned long long)kind);
    v->kind = (enum kind)kind;
    if (v->kind == TEXT) {
        rc = take_text(c, &v->at, &v->n, err);
        if (rc == 0 && !memchr(v->at, 0, v->n) &&
            !(v->text = kh_arena_strndup(&f->arena, (const char *)v->at, v->n)))
            rc = kh_fail_memory(err);
    } else if (v->kind == ARRAY)
        rc = take_array(c, v, err);
    else
        rc = take(c, (size_t)kinds[kind].bytes, &v->at, err);
    if (rc == 0 && v->kind == BOOL && *v->at > 1)
        rc = kh_fail(err, KH_EFORMAT, "%s: the value of \"%s\" is %d, expected 0 or 1: a bool",
            f->path, v->key, *v->at);
    v->end = c->at;
    return rc;
}

static int take_keys(cursor *c, kh_gguf *f, uint64_t n, kh_err *err) {
    if (n > KH_GGUF_COUNT)
        return kh_fail(err, KH_ELIMIT, "%s: %llu keys, at most %d are read", f->path,
            (unsigned long long)n, (int)KH_GGUF_COUNT);
    f->key = kh_calloc((size_t)n + 1, sizeof *f->key);
    if (!f->key)
        return kh_fail_memory(err);
    c->place = "a key";
    while (f->n_key < (int)n) {
        value *v = &f->key[f->n_key];
        int rc = take_name(c, f, &v->key, err);
        if (rc == 0)
            rc = take_value(c, f, v, err);
        if (rc != 0)
            return rc;
        int added = kh_map_add(&f->keys, v->key, strlen(v->key), f->n_key, NULL);
        if (added < 0)
            return kh_fail_memory(err);
        if (added == 0)
            return kh_fail(
                err, KH_EFORMAT, "%s: the key \"%s\" stands there twice", f->path, v->key);
        f->n_key++;
    }
    return 0;
}

/* ------------------------------------------------------------------------------------- arrays */

static int find_type(kh_gguf_tensor *t, uint64_t id, const char *path, kh_err *err) {
    for (int i = 0; i < N_TYPE && !t->type; i++)
        if ((uint64_t)types[i].id == id)
            t->type = &types[i];
    return t->type ? 0
                   : kh_fail(err, KH_EUNSUPPORTED,
                         "%s: tensor \"%s\" is of type number %llu, which is not known", path,
                         t->name, (unsigned long long)id);
}

/* Shape, type and the bytes that follow from them; all products are checked. */
static int measure(kh_gguf_tensor *t, const char *path, kh_err *err) {
    size_t columns = t->shape[t->rank - 1], total = 1;
    bool fits = true;
    for (int i = 0; i < t->rank; i++)
        fits = fits && kh_mul(total, t->shape[i], &total);
    if (!fits || !kh_mul(total / (size_t)t->type->count, (size_t)t->type->bytes, &t->bytes))
        return kh_fail(err, KH_EFORMAT,
            "%s: tensor \"%s\": the product of its dimensions is too large", path, t->name);
    if (columns % (size_t)t->type->count != 0)
        return kh_fail(err, KH_EFORMAT,
            "%s: tensor \"%s\": rows of %zu numbers cannot be blocks of %d, as its type %s has",
            path, t->name, columns, t->type->count, t->type->name);
    return 0;
}

static int take_tensor(cursor *c, kh_gguf *f, kh_gguf_tensor *t, kh_err *err) {
    uint64_t rank, size[KH_GGUF_RANK], type, begin;
    int rc = take_name(c, f, &t->name, err);
    if (rc == 0)
        rc = take_int(c, 4, &rank, err);
    if (rc != 0)
        return rc;
    if (rank < 1 || rank > KH_GGUF_RANK)
        return kh_fail(err, KH_EFORMAT, "%s: tensor \"%s\" has %llu dimensions, expected 1 to %d",
            f->path, t->name, (unsigned long long)rank, (int)KH_GGUF_RANK);
    t->rank = (int)rank;
    for (int i = 0; i < t->rank; i++) {
        if ((rc = take_int(c, 8, &size[i], err)) != 0)
            return rc;
        if (size[i] < 1 || size[i] > SIZE_MAX / 2)
            return kh_fail(err, KH_EFORMAT,
                "%s: tensor \"%s\": a dimension is %llu, expected a whole number from 1 on",
                f->path, t->name, (unsigned long long)size[i]);
        t->shape[t->rank - 1 - i] = (size_t)size[i];
    }
    if ((rc = take_int(c, 4, &type, err)) != 0 || (rc = take_int(c, 8, &begin, err)) != 0 ||
        (rc = find_type(t, type, f->path, err)) != 0)
        return rc;
    t->begin = (size_t)begin;
    return measure(t, f->path, err);
}

static int take_tensors(cursor *c, kh_gguf *f, uint64_t n, kh_err *err) {
    if (n > KH_GGUF_COUNT)
        return kh_fail(err, KH_ELIMIT, "%s: %llu tensors, at most %d are read", f->path,
            (unsigned long long)n, (int)KH_GGUF_COUNT);
    f->tensor = kh_calloc((size_t)n + 1, sizeof *f->tensor);
    if (!f->tensor)
        return kh_fail_memory(err);
    c->place = "a tensor";
    while (f->n_tensor < (int)n) {
        kh_gguf_tensor *t = &f->tensor[f->n_tensor];
        int rc = take_tensor(c, f, t, err);
        if (rc != 0)
            return rc;
        int added = kh_map_add(&f->names, t->name, strlen(t->name), f->n_tensor, NULL);
        if (added < 0)
            return kh_fail_memory(err);
        if (added == 0)
            return kh_fail(err, KH_EFORMAT, "%s: there are two tensors \"%s\"", f->path, t->name);
        f->n_tensor++;
    }
    return 0;
}

/* x up to the next multiple of a power of two; false if that is no size_t. */
static bool pad(size_t *x, size_t alignment) {
    return kh_add(*x, (alignment - *x % alignment) % alignment, x);
}

/* The arrays must follow each other from the header to the end of the file. */
static int check_layout(kh_gguf *f, size_t end_of_header, kh_err *err) {
    int alignment = 32;
    int rc = kh_gguf_int_opt(f, "general.alignment", 1, KH_GGUF_ALIGNMENT, &alignment, err);
    if (rc != 0)
        return rc;
    if ((alignment & (alignment - 1)) != 0)
        return kh_fail(err, KH_EFORMAT, "%s: \"general.alignment\" is %d, expected a power of two",
            f->path, alignment);
    size_t end = 0, unit = (size_t)alignment;
    f->data = end_of_header;
    if (!pad(&f->data, unit))
        return kh_fail(err, KH_EFORMAT, "%s: the header is too large", f->path);
    size_t room = f->n_file > f->data ? f->n_file - f->data : 0, last = 0;
    for (int i = 0; i < f->n_tensor; i++) {
        const kh_gguf_tensor *t = &f->tensor[i];
        if (t->begin != end)
            return kh_fail(err, KH_EFORMAT,
                "%s: tensor \"%s\" starts at byte %zu after the header, expected %zu, where the "
                "one before it ends",
                f->path, t->name, t->begin, end);
        if (t->bytes > room - last || end > room - t->bytes)
            return kh_fail(err, KH_EFORMAT,
                "%s: cut short: tensor \"%s\" needs %zu bytes from byte %zu after the header on, "
                "the file has only %zu there",
                f->path, t->name, t->bytes, end, room);
        last = end + t->bytes;
        end = last;
        if (!pad(&end, unit))
            return kh_fail(err, KH_EFORMAT, "%s: tensor \"%s\" is too large", f->path, t->name);
    }
    if (room > end)
        return kh_fail(err, KH_EFORMAT, "%s: %zu bytes after the last tensor belong to nothing",
            f->path, room - end);
    return 0;
}

/* --------------------------------------------------------------------------------------- file */

static int read_at(const kh_gguf *f, size_t from, void *out, size_t n, kh_err *err) {
    return kh_file_read_at(f->fd, f->path, from, out, n, err);
}

static int check_version(const kh_gguf *f, uint64_t version, kh_err *err) {
    if (version == 2 || version == 3)
        return 0;
    if (version == 1)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: GGUF version 1, which no program writes any more; convert the model again",
            f->path);
    if ((version & 0xFFFF) == 0 && version != 0)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: a big-endian GGUF file; convert the model again without --bigendian", f->path);
    return kh_fail(err, KH_EUNSUPPORTED, "%s: GGUF version %llu; 2 and 3 are read", f->path,
        (unsigned long long)version);
}

/* Parses what is in memory of the file; MORE if the header goes on after it. */
static int parse(kh_gguf *f, kh_err *err) {
    cursor c = { f, 0, "the header" };
    const unsigned char *magic;
    uint64_t version, n_tensor, n_key;
    int rc = take(&c, 4, &magic, err);
    if (rc == 0 && memcmp(magic, "GGUF", 4) != 0)
        return kh_fail(
            err, KH_EFORMAT, "%s: does not begin with \"GGUF\": not a GGUF file", f->path);
    if (rc == 0 && (rc = take_int(&c, 4, &version, err)) == 0)
        rc = check_version(f, version, err);
    /* The least that a key takes: its length, a letter, a kind, a byte; an array likewise. */
    if (rc == 0 && (rc = take_count(&c, 8 + 1 + 4 + 8 + 4 + 8, &n_tensor, err)) == 0)
        rc = take_count(&c, 8 + 1 + 4 + 1, &n_key, err);
    if (rc == 0 && (rc = take_keys(&c, f, n_key, err)) == 0)
        rc = take_tensors(&c, f, n_tensor, err);
    return rc == 0 ? check_layout(f, c.at, err) : rc;
}

static void forget(kh_gguf *f) {
    kh_map_free(&f->keys);
    kh_map_free(&f->names);
    kh_arena_free(&f->arena);
    kh_free(f->key);
    kh_free(f->tensor);
    f->key = NULL;
    f->tensor = NULL;
    f->n_key = f->n_tensor = 0;
}

static int open_file(kh_gguf *f, kh_err *err) {
    int rc = kh_file_open_data(f->path, &f->fd, &f->at_open, err);
    f->n_file = rc == 0 ? (size_t)f->at_open.st_size : 0;
    return rc;
}

/* Reads more and more of the file until its header is there. */
static int read_header(kh_gguf *f, kh_err *err) {
    int rc = MORE;
    for (size_t n = 1 << 20; rc == MORE; n *= 4) {
        size_t want = n < f->n_file ? n : f->n_file;
        if (f->n_head >= KH_GGUF_HEADER)
            return kh_fail(err, KH_ELIMIT, "%s: the header has more than %d bytes", f->path,
                (int)KH_GGUF_HEADER);
        unsigned char *more = kh_realloc(f->head, want + 1);
        if (!more)
            return kh_fail_memory(err);
        f->head = more;
        rc = read_at(f, f->n_head, f->head + f->n_head, want - f->n_head, err);
        f->n_head = want;
        forget(f);
        if (rc == 0)
            rc = parse(f, err);
    }
    return rc;
}

static kh_gguf *new_file(const char *path) {
    kh_gguf *f = kh_calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->fd = -1;
    f->path = kh_strdup(path);
    if (f->path)
        return f;
    kh_gguf_close(f);
    return NULL;
}

int kh_gguf_open(kh_gguf **out, const char *path, kh_err *err) {
    *out = NULL;
    kh_gguf *f = new_file(path);
    int rc = f ? open_file(f, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = read_header(f, err);
    if (rc == 0)
        *out = f;
    else
        kh_gguf_close(f);
    return rc;
}

int kh_gguf_parse(kh_gguf **out, const void *bytes, size_t n, const char *name, kh_err *err) {
    *out = NULL;
    kh_gguf *f = new_file(name);
    if (f)
        f->head = kh_malloc(n + 1);
    int rc = f && f->head ? 0 : kh_fail_memory(err);
    if (rc == 0) {
        memcpy(f->head, bytes, n);
        f->n_head = f->n_file = n;
        rc = parse(f, err);
    }
    if (rc == 0)
        *out = f;
    else
        kh_gguf_close(f);
    return rc;
}

void kh_gguf_close(kh_gguf *f) {
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    forget(f);
    kh_free(f->head);
    kh_free(f->path);
    kh_free(f);
}

const char *kh_gguf_path(const kh_gguf *f) { return f->path; }

const kh_gguf_tensor *kh_gguf_tensors(const kh_gguf *f, int *n) {
    *n = f->n_tensor;
    return f->tensor;
}

int kh_gguf_read(
    const kh_gguf *f, const kh_gguf_tensor *t, size_t from, size_t n, void *out, kh_err *err) {
    if (from > t->bytes || n > t->bytes - from)
        return kh_fail(err, KH_EARG, "%s: bytes %zu to %zu of tensor \"%s\", which has %zu",
            f->path, from, from + n, t->name, t->bytes);
    if (f->fd >= 0)
        return read_at(f, f->data + t->begin + from, out, n, err);
    memcpy(out, f->head + f->data + t->begin + from, n);
    return 0;
}

int kh_gguf_unchanged(const kh_gguf *f, kh_err *err) {
    return f->fd < 0 ? 0 : kh_file_unchanged(f->path, f->fd, &f->at_open, err);
}

/* ------------------------------------------------------------------------------------- values */

static const value *find(const kh_gguf *f, const char *key) {
    int32_t i;
    return kh_map_get(&f->keys, key, strlen(key), &i) ? &f->key[i] : NULL;
}

bool kh_gguf_has(const kh_gguf *f, const char *key) { return find(f, key) != NULL; }

static int fail_missing(const kh_gguf *f, const char *key, kh_err *err) {
    return kh_fail(err, KH_EFORMAT, "%s: the key \"%s\" is missing", f->path, key);
}

static int fail_kind(const kh_gguf *f, const value *v, const char *want, kh_err *err) {
    return kh_fail(err, KH_EFORMAT, "%s: \"%s\" is of kind %s%s%s, expected %s", f->path, v->key,
        kinds[v->kind].name, v->kind == ARRAY ? " of " : "",
        v->kind == ARRAY ? kinds[v->element].name : "", want);
}

static bool is_int(enum kind k) { return k <= I32 || k == U64 || k == I64; }

/* A whole number of any width; what is above 2^63 becomes its largest number, out of all ranges. */
static long long int_at(const unsigned char *at, enum kind k) {
    uint64_t u = little(at, kinds[k].bytes);
    switch (k) {
    case I8: return (int8_t)u;
    case I16: return (int16_t)u;
    case I32: return (int32_t)u;
    case I64: return (int64_t)u;
    default: return u > INT64_MAX ? INT64_MAX : (long long)u;
    }
}

static double number_at(const unsigned char *at, enum kind k) {
    uint64_t u = little(at, kinds[k].bytes);
    uint32_t low = (uint32_t)u;
    float f;
    double d;
    memcpy(&f, &low, sizeof f);
    memcpy(&d, &u, sizeof d);
    return k == F32 ? (double)f : d;
}

int kh_gguf_int_opt(const kh_gguf *f, const char *key, long min, long max, int *out, kh_err *err) {
    const value *v = find(f, key);
    if (!v)
        return 0;
    if (!is_int(v->kind))
        return fail_kind(f, v, "a whole number", err);
    long long x = int_at(v->at, v->kind);
    if (x < min || x > max)
        return kh_fail(err, KH_EFORMAT,
            "%s: \"%s\" is %lld, expected a whole number from %ld to %ld", f->path, key, x, min,
            max);
    *out = (int)x;
    return 0;
}

int kh_gguf_number_opt(const kh_gguf *f, const char *key, double *out, kh_err *err) {
    const value *v = find(f, key);
    if (!v)
        return 0;
    if (v->kind != F32 && v->kind != F64)
        return fail_kind(f, v, "a number: f32 or f64", err);
    double x = number_at(v->at, v->kind);
    if (!isfinite(x))
        return kh_fail(err, KH_EFORMAT, "%s: \"%s\" is not a finite number", f->path, key);
    *out = x;
    return 0;
}

int kh_gguf_bool_opt(const kh_gguf *f, const char *key, bool *out, kh_err *err) {
    const value *v = find(f, key);
    if (!v)
        return 0;
    if (v->kind != BOOL)
        return fail_kind(f, v, "bool", err);
    *out = *v->at != 0;
    return 0;
}

int kh_gguf_text_opt(const kh_gguf *f, const char *key, const char **out, kh_err *err) {
    const value *v = find(f, key);
    if (!v)
        return 0;
    if (v->kind != TEXT)
        return fail_kind(f, v, "string", err);
    if (!v->text)
        return kh_fail(err, KH_EFORMAT, "%s: \"%s\" holds a NUL byte", f->path, key);
    *out = v->text;
    return 0;
}

int kh_gguf_int(const kh_gguf *f, const char *key, long min, long max, int *out, kh_err *err) {
    return find(f, key) ? kh_gguf_int_opt(f, key, min, max, out, err) : fail_missing(f, key, err);
}

int kh_gguf_number(const kh_gguf *f, const char *key, double *out, kh_err *err) {
    return find(f, key) ? kh_gguf_number_opt(f, key, out, err) : fail_missing(f, key, err);
}

int kh_gguf_bool(const kh_gguf *f, const char *key, bool *out, kh_err *err) {
    return find(f, key) ? kh_gguf_bool_opt(f, key, out, err) : fail_missing(f, key, err);
}

int kh_gguf_text(const kh_gguf *f, const char *key, const char **out, kh_err *err) {
    return find(f, key) ? kh_gguf_text_opt(f, key, out, err) : fail_missing(f, key, err);
}

/* The list behind a key whose elements must be of one of two kinds, or whole numbers (`ints`). */
static int open_list(const kh_gguf *f, const char *key, bool ints, enum kind a, enum kind b,
    const char *want, kh_gguf_list *out, kh_err *err) {
    *out = (kh_gguf_list){ 0 };
    const value *v = find(f, key);
    if (!v)
        return 0;
    bool fits =
        v->kind == ARRAY && (ints ? is_int(v->element) : v->element == a || v->element == b);
    if (!fits)
        return fail_kind(f, v, want, err);
    *out = (kh_gguf_list){ v->n, (int)v->element, v->at };
    return 0;
}

int kh_gguf_texts(const kh_gguf *f, const char *key, kh_gguf_list *out, kh_err *err) {
    return open_list(f, key, false, TEXT, TEXT, "an array of strings", out, err);
}

int kh_gguf_ints(const kh_gguf *f, const char *key, kh_gguf_list *out, kh_err *err) {
    return open_list(f, key, true, I32, I32, "an array of whole numbers", out, err);
}

int kh_gguf_numbers(const kh_gguf *f, const char *key, kh_gguf_list *out, kh_err *err) {
    return open_list(f, key, false, F32, F64, "an array of f32 or f64", out, err);
}

bool kh_gguf_next_text(kh_gguf_list *l, const char **s, size_t *n) {
    if (l->n == 0)
        return false;
    l->n--;
    *n = (size_t)little(l->at, 8); /* checked at open */
    *s = (const char *)l->at + 8;
    l->at += 8 + *n;
    return true;
}

bool kh_gguf_next_int(kh_gguf_list *l, long long *out) {
    if (l->n == 0)
        return false;
    l->n--;
    *out = int_at(l->at, (enum kind)l->kind);
    l->at += kinds[l->kind].bytes;
    return true;
}

bool kh_gguf_next_number(kh_gguf_list *l, double *out) {
    if (l->n == 0)
        return false;
    l->n--;
    *out = number_at(l->at, (enum kind)l->kind);
    l->at += kinds[l->kind].bytes;
    return true;
}

const char *kh_gguf_key(const kh_gguf *f, int n) { return n < f->n_key ? f->key[n].key : NULL; }

void kh_gguf_put_copy(kh_gguf_keys *k, const kh_gguf *f, const char *key) {
    const value *v = find(f, key);
    if (!v)
        return;
    size_t n = strlen(key);
    for (int i = 0; i < 8; i++)
        kh_buf_char(&k->bytes, (char)(n >> (8 * i)));
    kh_buf_bytes(&k->bytes, key, n);
    kh_buf_bytes(&k->bytes, f->head + v->begin, v->end - v->begin);
    k->n++;
}
