/* safetensors.c - reading and writing the format; see safetensors.h.
 *
 * The rules, each with its own sentence when broken: at least 8 bytes; a header that fits in the
 * file; a header that is one JSON object, starting with '{' and padded with spaces only; no
 * duplicate names; known types; whole non-negative dimensions; as many bytes as shape and type say;
 * and arrays that follow each other without overlap, hole or tail from the header to the end of the
 * file. Stricter than the format: limits on header, count and rank, and no control characters in
 * names (they end up in messages on terminals). */
#include "model/safetensors.h"

#include "model/blocks.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_out.h"
#include "base/map.h"
#include "base/size.h"
#include "model/tensor.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct kh_safetensors {
    char *path;
    int fd;
    struct stat at_open;
    size_t data; /* where the arrays start in the file */
    kh_array *array;
    int n;
    kh_map by_name;
    kh_arena names;
};

/* Types that are not computed with are still known by their size: a file may hold arrays that
 * nobody needs, such as position ids in I64. */
static const struct type_row {
    const char *name;
    int bits;
    kh_dtype dtype;
} type_table[] = {
    { "F32", 32, KH_DTYPE_F32 },
    { "F16", 16, KH_DTYPE_F16 },
    { "BF16", 16, KH_DTYPE_BF16 },
    { "BOOL", 8, KH_DTYPE_ANY },
    { "U8", 8, KH_DTYPE_ANY },
    { "I8", 8, KH_DTYPE_ANY },
    { "F4", 4, KH_DTYPE_ANY },
    { "F6_E2M3", 6, KH_DTYPE_ANY },
    { "F6_E3M2", 6, KH_DTYPE_ANY },
    { "F8_E5M2", 8, KH_DTYPE_ANY },
    { "F8_E4M3", 8, KH_DTYPE_ANY },
    { "F8_E8M0", 8, KH_DTYPE_ANY },
    { "I16", 16, KH_DTYPE_ANY },
    { "U16", 16, KH_DTYPE_ANY },
    { "I32", 32, KH_DTYPE_ANY },
    { "U32", 32, KH_DTYPE_ANY },
    { "I64", 64, KH_DTYPE_ANY },
    { "U64", 64, KH_DTYPE_ANY },
    { "F64", 64, KH_DTYPE_ANY },
    { "C64", 64, KH_DTYPE_ANY },
};

void kh_shape_text(const size_t *shape, int rank, char *out, size_t cap) {
    size_t used = 0;
    for (int i = 0; i < rank && used < cap; i++)
        used += (size_t)snprintf(out + used, cap - used, "%s%zu", i ? ", " : "[", shape[i]);
    if (used < cap)
        snprintf(out + used, cap - used, rank ? "]" : "[]");
}

/* -------------------------------------------------------------------------------------- header */

static int parse_shape(const json_t *spec, kh_array *a, const char *place, kh_err *err) {
    const json_t *shape = json_object_get(spec, "shape");
    if (!json_is_array(shape))
        return kh_fail(err, KH_EFORMAT, "%s: \"shape\" must be a list of whole numbers", place);
    if (json_array_size(shape) > KH_ARRAY_RANK)
        return kh_fail(err, KH_ELIMIT, "%s: %zu dimensions, at most %d are read", place,
            json_array_size(shape), (int)KH_ARRAY_RANK);
    a->rank = (int)json_array_size(shape);
    for (int i = 0; i < a->rank; i++) {
        const json_t *d = json_array_get(shape, (size_t)i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return kh_fail(err, KH_EFORMAT, "%s: \"shape\" must be a list of whole numbers", place);
        a->shape[i] = (size_t)json_integer_value(d);
    }
    return 0;
}

static int parse_offsets(const json_t *spec, kh_array *a, const char *place, kh_err *err) {
    const json_t *offsets = json_object_get(spec, "data_offsets");
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return kh_fail(err, KH_EFORMAT,
            "%s: \"data_offsets\" must be two whole numbers, begin and end", place);
    a->begin = (size_t)json_integer_value(begin);
    a->bytes = (size_t)json_integer_value(end) - a->begin;
    return 0;
}

/* Bits of the whole array against the bytes it was given; all products are checked. */
static int check_size(const kh_array *a, int bits, const char *place, kh_err *err) {
    size_t total = (size_t)bits;
    bool fits = true;
    for (int i = 0; i < a->rank; i++)
        fits = fits && kh_mul(total, a->shape[i], &total);
    if (!fits)
        return kh_fail(err, KH_EFORMAT, "%s: the product of its dimensions is too large", place);
    if (total % 8 != 0 || total / 8 != a->bytes)
        return kh_fail(err, KH_EFORMAT,
            "%s: shape and type need %zu bytes, \"data_offsets\" give it %zu", place,
            (total + 7) / 8, a->bytes);
    return 0;
}

static int parse_array(const json_t *spec, kh_array *a, const char *path, kh_err *err) {
    char place[1024];
    snprintf(place, sizeof place, "%s: tensor \"%s\"", path, a->name);
    if (!json_is_object(spec))
        return kh_fail(err, KH_EFORMAT,
            "%s: must be an object with \"dtype\", \"shape\" and \"data_offsets\"", place);
    const char *type;
    int rc = kh_json_string(spec, "dtype", &type, place, err);
    if (rc != 0)
        return rc;
    const struct type_row *row = NULL;
    for (size_t i = 0; i < sizeof type_table / sizeof *type_table; i++)
        if (strcmp(type_table[i].name, type) == 0)
            row = &type_table[i];
    if (!row)
        return kh_fail(err, KH_EFORMAT, "%s: unknown dtype \"%.40s\"", place, type);
    a->type = row->name;
    a->dtype = row->dtype;
    if ((rc = parse_shape(spec, a, place, err)) != 0 ||
        (rc = parse_offsets(spec, a, place, err)) != 0)
        return rc;
    return check_size(a, row->bits, place, err);
}

/* The format says strings only; what a writer of nested objects meant, nobody knows. */
static int check_metadata(const json_t *meta, const char *path, kh_err *err) {
    const char *key;
    json_t *value;
    if (!json_is_object(meta))
        return kh_fail(err, KH_EFORMAT, "%s: \"__metadata__\" must be an object of strings", path);
    json_object_foreach((json_t *)meta, key, value) {
        if (!json_is_string(value))
            return kh_fail(
                err, KH_EFORMAT, "%s: \"__metadata__\" must be an object of strings", path);
    }
    return 0;
}

/* Matrices of 8 bits: where the metadata names a format of blocks, arrays of bytes are such blocks,
 * and their shape counts numbers from here on. */
static int take_blocks(kh_safetensors *f, const json_t *root, kh_err *err) {
    const kh_dtype dtype = KH_DTYPE_Q8_0;
    const char *blocks =
        json_string_value(json_object_get(json_object_get(root, "__metadata__"), KH_BLOCKS_KEY));
    size_t bytes = (size_t)kh_block_bytes(dtype);
    if (!blocks)
        return 0;
    if (strcmp(blocks, kh_dtype_name(dtype)) != 0)
        return kh_fail(err, KH_EUNSUPPORTED, "%s: \"" KH_BLOCKS_KEY "\" is \"%.40s\"; %s is read",
            f->path, blocks, kh_dtype_name(dtype));
    for (int i = 0; i < f->n; i++) {
        kh_array *a = &f->array[i];
        if (a->rank != 2 || strcmp(a->type, "U8") != 0)
            continue;
        if (a->shape[1] % bytes != 0)
            return kh_fail(err, KH_EFORMAT,
                "%s: tensor \"%s\" has rows of %zu bytes, which are not whole blocks of %zu",
                f->path, a->name, a->shape[1], bytes);
        a->shape[1] = a->shape[1] / bytes * (size_t)kh_block_count(dtype);
        a->type = kh_dtype_name(dtype);
        a->dtype = dtype;
    }
    return 0;
}

/* Names go into error sentences and onto terminals. */
static int check_name(const char *name, const char *path, kh_err *err) {
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            return kh_fail(
                err, KH_EFORMAT, "%s: the name of a tensor holds a control character", path);
    if (strlen(name) > 512)
        return kh_fail(err, KH_ELIMIT,
            "%s: the name of a tensor has %zu bytes, at most 512 are allowed", path, strlen(name));
    return 0;
}

static int parse_arrays(kh_safetensors *f, const json_t *root, kh_err *err) {
    size_t count = json_object_size(root);
    if (count > KH_ARRAY_COUNT)
        return kh_fail(err, KH_ELIMIT, "%s: %zu tensors, at most %d are read", f->path, count,
            (int)KH_ARRAY_COUNT);
    f->array = kh_calloc(count + 1, sizeof *f->array);
    if (!f->array)
        return kh_fail_memory(err);
    const char *key;
    json_t *spec;
    json_object_foreach((json_t *)root, key, spec) {
        int rc;
        if (strcmp(key, "__metadata__") == 0) {
            if ((rc = check_metadata(spec, f->path, err)) != 0)
                return rc;
            continue;
        }
        if ((rc = check_name(key, f->path, err)) != 0)
            return rc;
        kh_array *a = &f->array[f->n++];
        a->name = kh_arena_strndup(&f->names, key, strlen(key));
        if (!a->name)
            return kh_fail_memory(err);
        if ((rc = parse_array(spec, a, f->path, err)) != 0)
            return rc;
    }
    return 0;
}

/* Empty arrays first among those that begin at one place: they may stand anywhere. */
static int by_place(const void *left, const void *right) {
    const kh_array *a = left, *b = right;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

/* Sorted by place, the arrays must tile the data part exactly. */
static int check_layout(kh_safetensors *f, size_t data_bytes, kh_err *err) {
    qsort(f->array, (size_t)f->n, sizeof *f->array, by_place);
    size_t end = 0;
    for (int i = 0; i < f->n; i++) {
        const kh_array *a = &f->array[i];
        if (a->begin < end)
            return kh_fail(err, KH_EFORMAT, "%s: tensor \"%s\" overlaps with \"%s\"", f->path,
                a->name, f->array[i - 1].name);
        if (a->begin > end)
            return kh_fail(err, KH_EFORMAT, "%s: a hole of %zu bytes before tensor \"%s\"", f->path,
                a->begin - end, a->name);
        end +=
            a->bytes; /* cannot wrap: both came from 63-bit numbers, and the sum is one of them */
        if (end > data_bytes)
            return kh_fail(err, KH_EFORMAT,
                "%s: cut short: tensor \"%s\" ends at byte %zu after the header, the file has only "
                "%zu there",
                f->path, a->name, end, data_bytes);
        if (kh_map_add(&f->by_name, a->name, strlen(a->name), i, NULL) < 0)
            return kh_fail_memory(err);
    }
    if (end < data_bytes)
        return kh_fail(err, KH_EFORMAT, "%s: %zu bytes after the last tensor belong to nothing",
            f->path, data_bytes - end);
    return 0;
}

/* --------------------------------------------------------------------------------------- files */

static int read_at(const kh_safetensors *f, size_t from, void *out, size_t n, kh_err *err) {
    return kh_file_read_at(f->fd, f->path, from, out, n, err);
}

/* What stands between the length and the arrays: checks that need no JSON, then the JSON. */
static int parse_header(kh_safetensors *f, const char *text, size_t n, kh_err *err) {
    if (n == 0 || text[0] != '{')
        return kh_fail(err, KH_EFORMAT,
            "%s: the header does not start with \"{\"; is this a safetensors file?", f->path);
    size_t used = n;
    while (text[used - 1] == ' ')
        used--;
    if (text[used - 1] != '}')
        return kh_fail(err, KH_EFORMAT,
            "%s: the header ends in byte 0x%02x; only spaces may follow its closing \"}\"", f->path,
            (unsigned)(unsigned char)text[used - 1]);
    json_t *root;
    int rc = kh_json_parse(text, used, f->path, &root, err);
    if (rc == 0)
        rc = parse_arrays(f, root, err);
    if (rc == 0)
        rc = take_blocks(f, root, err);
    json_decref(root);
    return rc;
}

/* The limit is checked before memory is taken, and the length against the file before anything is
 * read. */
static int read_header(kh_safetensors *f, kh_err *err) {
    size_t file_bytes = (size_t)f->at_open.st_size;
    unsigned char length[8];
    if (file_bytes < sizeof length)
        return kh_fail(err, KH_EFORMAT, "%s: %zu bytes are too few for a safetensors file", f->path,
            file_bytes);
    int rc = read_at(f, 0, length, sizeof length, err);
    if (rc != 0)
        return rc;
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | length[i];
    if (n > KH_SAFETENSORS_HEADER)
        return kh_fail(err, KH_ELIMIT,
            "%s: a header of %llu bytes, at most %d are read; is this a safetensors file?", f->path,
            (unsigned long long)n, (int)KH_SAFETENSORS_HEADER);
    if (n > file_bytes - sizeof length)
        return kh_fail(err, KH_EFORMAT, "%s: cut short: a header of %llu bytes in a file of %zu",
            f->path, (unsigned long long)n, file_bytes);
    char *text = kh_malloc((size_t)n);
    if (!text)
        return kh_fail_memory(err);
    f->data = sizeof length + (size_t)n;
    if ((rc = read_at(f, sizeof length, text, (size_t)n, err)) == 0 &&
        (rc = parse_header(f, text, (size_t)n, err)) == 0)
        rc = check_layout(f, file_bytes - f->data, err);
    kh_free(text);
    return rc;
}

int kh_safetensors_open(kh_safetensors **out, const char *path, kh_err *err) {
    *out = NULL;
    kh_safetensors *f = kh_calloc(1, sizeof *f);
    if (!f)
        return kh_fail_memory(err);
    f->fd = -1;
    f->path = kh_strdup(path);
    int rc = f->path ? kh_file_open_data(f->path, &f->fd, &f->at_open, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = read_header(f, err);
    if (rc != 0) {
        kh_safetensors_close(f);
        return rc;
    }
    *out = f;
    return 0;
}

void kh_safetensors_close(kh_safetensors *f) {
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    kh_map_free(&f->by_name);
    kh_arena_free(&f->names);
    kh_free(f->array);
    kh_free(f->path);
    kh_free(f);
}

const char *kh_safetensors_path(const kh_safetensors *f) { return f->path; }

const kh_array *kh_safetensors_arrays(const kh_safetensors *f, int *n) {
    *n = f->n;
    return f->array;
}

const kh_array *kh_safetensors_find(const kh_safetensors *f, const char *name) {
    int32_t i;
    return kh_map_get(&f->by_name, name, strlen(name), &i) ? &f->array[i] : NULL;
}

int kh_safetensors_read(
    const kh_safetensors *f, const kh_array *a, size_t from, size_t n, void *out, kh_err *err) {
    if (from > a->bytes || n > a->bytes - from)
        return kh_fail(err, KH_EARG, "%s: bytes %zu to %zu of tensor \"%s\", which has %zu",
            f->path, from, from + n, a->name, a->bytes);
    return read_at(f, f->data + a->begin + from, out, n, err);
}

int kh_safetensors_unchanged(const kh_safetensors *f, kh_err *err) {
    return kh_file_unchanged(f->path, f->fd, &f->at_open, err);
}

/* -------------------------------------------------------------------------------------- writer */

struct kh_safetensors_writer {
    kh_file_writer file;
    size_t left; /* bytes of arrays still to come */
};

/* Files keep the white space that version 0.1 gave them: the same weights, the same bytes. */
static void put_sizes(
    kh_json_out *j, const char *key, const size_t *x, int n, const char *between) {
    kh_json_open_array(j, key);
    for (int i = 0; i < n; i++) {
        kh_json_gap(j, i > 0 ? between : "");
        kh_json_put_int(j, NULL, (long long)x[i]);
    }
    kh_json_close(j);
}

static int plan_header(kh_array *plan, int n, kh_buf *header, size_t *total, kh_err *err) {
    kh_json_out j = kh_json_out_init(header, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_open_object(&j, "__metadata__");
    kh_json_put_string(&j, "format", "pt"); /* Hugging Face's loader insists on it */
    for (int i = 0; i < n; i++)
        if (kh_is_blocks(plan[i].dtype)) {
            kh_json_put_string(&j, KH_BLOCKS_KEY, kh_dtype_name(plan[i].dtype));
            break;
        }
    kh_json_close(&j);
    *total = 0;
    for (int i = 0; i < n; i++) {
        kh_array *a = &plan[i];
        size_t bytes = kh_is_blocks(a->dtype) ? 1 : kh_dtype_bytes(a->dtype);
        bool fits = true;
        size_t stored[KH_ARRAY_RANK];
        memcpy(stored, a->shape, sizeof stored);
        if (kh_is_blocks(a->dtype))
            stored[a->rank - 1] = kh_numbers_bytes(a->dtype, a->shape[a->rank - 1]);
        for (int d = 0; d < a->rank; d++)
            fits = fits && kh_mul(bytes, stored[d], &bytes);
        a->begin = *total;
        a->bytes = bytes;
        if (!fits || !kh_add(*total, bytes, total))
            return kh_fail(err, KH_ELIMIT, "tensor \"%s\": too large to write", a->name);
        kh_json_open_object(&j, a->name);
        kh_json_put_string(&j, "dtype", kh_is_blocks(a->dtype) ? "U8" : kh_dtype_name(a->dtype));
        put_sizes(&j, "shape", stored, a->rank, " ");
        put_sizes(&j, "data_offsets", (const size_t[]){ a->begin, *total }, 2, "");
        kh_json_close(&j);
    }
    kh_json_close(&j);
    while (header->len % 8 != 0 &&
        !kh_buf_failed(header)) /* so that arrays start aligned for those who map the file */
        kh_buf_char(header, ' ');
    return kh_buf_failed(header) ? kh_fail_memory(err) : 0;
}

/* The header is complete before the first array: sizes follow from the plan, and arrays are written
 * once, in order, without a copy in memory. */
int kh_safetensors_create(
    kh_safetensors_writer **out, const char *path, kh_array *plan, int n, kh_err *err) {
    kh_buf header = kh_buf_init(KH_BUF_MAX);
    kh_safetensors_writer *w = *out = kh_calloc(1, sizeof *w);
    if (!w)
        return kh_fail_memory(err);
    w->file.fd = -1;
    int rc = plan_header(plan, n, &header, &w->left, err);
    if (rc == 0)
        rc = kh_file_writer_open(&w->file, path, err);
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)header.len >> (8 * i));
    if (rc == 0 && (rc = kh_file_writer_put(&w->file, length, sizeof length, err)) == 0)
        rc = kh_file_writer_put(&w->file, header.data, header.len, err);
    kh_buf_free(&header);
    if (rc != 0) {
        kh_safetensors_finish(w, false, NULL);
        *out = NULL;
    }
    return rc;
}

int kh_safetensors_put(kh_safetensors_writer *w, const void *bytes, size_t n, kh_err *err) {
    if (n > w->left)
        return kh_fail(err, KH_EARG, "%s: %zu bytes more than its header announces", w->file.path,
            n - w->left);
    w->left -= n;
    return kh_file_writer_put(&w->file, bytes, n, err);
}

int kh_safetensors_finish(kh_safetensors_writer *w, bool keep, kh_err *err) {
    if (!w)
        return 0;
    int rc = 0;
    if (keep && w->left > 0)
        rc = kh_fail(
            err, KH_EARG, "%s: %zu bytes fewer than its header announces", w->file.path, w->left);
    int closed = kh_file_writer_close(&w->file, keep && rc == 0, rc == 0 ? err : NULL);
    kh_free(w);
    return rc ? rc : closed;
}
