/* checkpoint.c - one file or many; see checkpoint.h. A shard is a plain file name in the model's
 * folder: an index from a stranger must not reach elsewhere. */
#include "model/checkpoint.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "model/gguf_model.h"

#include <stdio.h>
#include <string.h>

enum { SHARDS_MAX = 512 }; /* each is an open file */

/* Files stay open until the checkpoint is closed: what was checked is what is read. */
static int add_file(kh_checkpoint *c, const char *dir, const char *name, kh_err *err) {
    char *path = kh_path_join(dir, name);
    if (!path)
        return kh_fail_memory(err);
    int rc = kh_safetensors_open(&c->file[c->n_file], path, err);
    kh_free(path);
    if (rc == 0)
        c->n_file++;
    return rc;
}

/* All arrays of all files into one table; a name that two shards claim is refused. */
static int collect(kh_checkpoint *c, kh_err *err) {
    size_t total = 0;
    for (int f = 0; f < c->n_file; f++) {
        int n;
        kh_safetensors_arrays(c->file[f], &n);
        total += (size_t)n;
    }
    if (total > KH_ARRAY_COUNT)
        return kh_fail(err, KH_ELIMIT, "%s: %zu tensors in all shards, at most %d are read",
            kh_safetensors_path(c->file[0]), total, (int)KH_ARRAY_COUNT);
    c->item = kh_calloc(total + 1, sizeof *c->item);
    if (!c->item)
        return kh_fail_memory(err);
    for (int f = 0; f < c->n_file; f++) {
        int n;
        const kh_array *array = kh_safetensors_arrays(c->file[f], &n);
        for (int i = 0; i < n; i++) {
            int32_t old;
            int added = kh_map_add(&c->by_name, array[i].name, strlen(array[i].name), c->n, &old);
            if (added < 0)
                return kh_fail_memory(err);
            if (added == 0)
                return kh_fail(err, KH_EFORMAT, "%s: tensor \"%s\" is also in %s",
                    kh_safetensors_path(c->file[f]), array[i].name,
                    kh_path_base(kh_safetensors_path(c->item[old].file)));
            c->item[c->n++] = (kh_stored){ .file = c->file[f], .array = &array[i] };
        }
    }
    return 0;
}

/* Every name of the map must be in the shard that the map says. */
static int check_map(kh_checkpoint *c, const char *path, json_t *map, kh_err *err) {
    const char *name;
    json_t *shard;
    json_object_foreach(map, name, shard) {
        const kh_stored *s = kh_checkpoint_find(c, name);
        const char *file = json_string_value(shard);
        if (!s || strcmp(kh_path_base(kh_safetensors_path(s->file)), file) != 0)
            return kh_fail(err, KH_EFORMAT,
                "%s: tensor \"%s\" is not in %s, where the index says it is", path, name, file);
    }
    return 0;
}

static int open_shards(
    kh_checkpoint *c, const char *dir, const char *path, json_t *map, kh_err *err) {
    kh_map seen = { 0 };
    const char *name;
    json_t *shard;
    int rc = 0;
    json_object_foreach(map, name, shard) {
        const char *file = json_string_value(shard);
        if (!file || !*file || strchr(file, '/') || strstr(file, "..")) {
            rc = kh_fail(err, KH_EFORMAT,
                "%s: the shard of \"%.200s\" must be the name of a file in the same "
                "folder%s%.200s%s",
                path, name, file ? ", not \"" : "", file ? file : "", file ? "\"" : "");
            break;
        }
        int added = kh_map_add(&seen, file, strlen(file), 0, NULL);
        if (added < 0)
            rc = kh_fail_memory(err);
        else if (added > 0 && c->n_file == SHARDS_MAX)
            rc = kh_fail(err, KH_ELIMIT, "%s: more than %d shards", path, (int)SHARDS_MAX);
        else if (added > 0)
            rc = add_file(c, dir, file, err);
        if (rc != 0)
            break;
    }
    kh_map_free(&seen);
    return rc;
}

static int open_index(kh_checkpoint *c, const char *dir, const char *path, kh_err *err) {
    json_t *root;
    int rc = kh_json_read(path, KH_SAFETENSORS_HEADER, &root, err);
    if (rc != 0)
        return rc;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        rc = kh_fail(err, KH_EFORMAT,
            "%s: \"weight_map\" must be an object of tensor names and files", path);
    if (rc == 0 && (rc = open_shards(c, dir, path, map, err)) == 0 && (rc = collect(c, err)) == 0)
        rc = check_map(c, path, map, err);
    json_decref(root);
    return rc;
}

/* A pickle is the usual reason, and the sentence says what to do about it. */
static int fail_nothing(const char *dir, kh_err *err) {
    char *pickle = kh_path_join(dir, "pytorch_model.bin");
    if (!pickle)
        return kh_fail_memory(err);
    bool there = kh_file_exists(pickle);
    kh_free(pickle);
    if (there)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: holds pytorch_model.bin, which is not read because such a file can run code; save "
            "the model as model.safetensors",
            dir);
    return kh_fail(err, KH_EMISSING,
        "%s: holds neither model.safetensors nor model.safetensors.index.json", dir);
}

/* ----------------------------------------------------------------------------------- GGUF */

bool kh_is_gguf(const char *path) {
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".gguf") == 0;
}

static int open_gguf(kh_checkpoint *c, const char *path, kh_err *err) {
    int rc = kh_gguf_open(&c->gguf[c->n_gguf], path, err);
    c->n_gguf += rc == 0;
    return rc;
}

/* The other files of a model that was split: NAME-00001-of-00003.gguf and so on. Only the first
 * part may be named; the others follow from its name, never from what a file says. */
static int open_parts(kh_checkpoint *c, const char *path, kh_err *err) {
    int count = 1, number = 0;
    int rc = kh_gguf_int_opt(c->gguf[0], "split.count", 1, SHARDS_MAX, &count, err);
    if (rc == 0)
        rc = kh_gguf_int_opt(c->gguf[0], "split.no", 0, SHARDS_MAX, &number, err);
    if (rc != 0 || count == 1)
        return rc;
    char tail[64];
    snprintf(tail, sizeof tail, "-00001-of-%05d.gguf", count);
    size_t n = strlen(path), k = strlen(tail);
    if (number != 0 || n <= k || strcmp(path + n - k, tail) != 0)
        return kh_fail(err, KH_EARG,
            "%s: is part %d of %d of a model; give the first part, whose name ends in \"%s\"", path,
            number + 1, count, tail);
    for (int i = 2; i <= count && rc == 0; i++) {
        kh_buf part = kh_buf_init(1 << 16);
        kh_buf_printf(&part, "%.*s-%05d-of-%05d.gguf", (int)(n - k), path, i, count);
        rc = kh_buf_failed(&part) ? kh_fail_memory(err) : open_gguf(c, part.data, err);
        kh_buf_free(&part);
        number = -1;
        if (rc == 0)
            rc = kh_gguf_int(c->gguf[i - 1], "split.no", 0, SHARDS_MAX, &number, err);
        if (rc == 0 && number != i - 1)
            rc = kh_fail(err, KH_EFORMAT, "%s: \"split.no\" is %d, expected %d",
                kh_gguf_path(c->gguf[i - 1]), number, i - 1);
    }
    return rc;
}

/* One tensor of a file, under the name that a folder has for it. */
static int add_tensor(kh_checkpoint *c, kh_gguf *f, const kh_gguf_tensor *t, kh_err *err) {
    kh_gguf_layout layout;
    bool used = kh_gguf_find_layout(c->gguf[0], t, &layout);
    const char *name = used ? layout.name : t->name;
    kh_array *a = kh_arena_alloc(&c->arena, sizeof *a);
    if (a)
        a->name = kh_arena_strndup(&c->arena, name, strlen(name));
    if (!a || !a->name)
        return kh_fail_memory(err);
    a->type = t->type->name;
    a->dtype = t->type->dtype;
    a->rank = t->rank;
    memcpy(a->shape, t->shape, sizeof t->shape);
    a->begin = t->begin;
    a->bytes = t->bytes;
    int added = kh_map_add(&c->by_name, a->name, strlen(a->name), c->n, NULL);
    if (added < 0)
        return kh_fail_memory(err);
    if (added == 0)
        return kh_fail(
            err, KH_EFORMAT, "%s: tensor \"%s\" is also in another part", kh_gguf_path(f), t->name);
    c->item[c->n++] = (kh_stored){ .gguf = f,
        .array = a,
        .tensor = t,
        .heads = layout.heads,
        .straight = layout.straight,
        .plus = layout.plus };
    return 0;
}

static int open_whole_gguf(kh_checkpoint *c, const char *path, kh_err *err) {
    size_t total = 0;
    int n, rc = open_gguf(c, path, err);
    if (rc == 0)
        rc = open_parts(c, path, err);
    for (int f = 0; f < c->n_gguf; f++) {
        kh_gguf_tensors(c->gguf[f], &n);
        total += (size_t)n;
    }
    if (rc == 0 && total > KH_ARRAY_COUNT)
        return kh_fail(err, KH_ELIMIT, "%s: %zu tensors in all parts, at most %d are read", path,
            total, (int)KH_ARRAY_COUNT);
    if (rc == 0 && !(c->item = kh_calloc(total + 1, sizeof *c->item)))
        rc = kh_fail_memory(err);
    for (int f = 0; f < c->n_gguf && rc == 0; f++) {
        const kh_gguf_tensor *t = kh_gguf_tensors(c->gguf[f], &n);
        for (int i = 0; i < n && rc == 0; i++)
            rc = add_tensor(c, c->gguf[f], &t[i], err);
    }
    return rc;
}

/* From here on nobody asks which of the two formats a tensor came from. */
const char *kh_stored_path(const kh_stored *s) {
    return s->gguf ? kh_gguf_path(s->gguf) : kh_safetensors_path(s->file);
}

int kh_stored_read(const kh_stored *s, size_t from, size_t n, void *out, kh_err *err) {
    return s->gguf ? kh_gguf_read(s->gguf, s->tensor, from, n, out, err)
                   : kh_safetensors_read(s->file, s->array, from, n, out, err);
}

/* ------------------------------------------------------------------------------------ either */

int kh_checkpoint_open(kh_checkpoint *c, const char *dir, kh_err *err) {
    *c = (kh_checkpoint){ .file = kh_calloc(SHARDS_MAX, sizeof *c->file),
        .gguf = kh_calloc(SHARDS_MAX, sizeof *c->gguf) };
    if (!c->file || !c->gguf)
        return kh_fail_memory(err);
    if (kh_is_gguf(dir))
        return open_whole_gguf(c, dir, err);
    char *whole = kh_path_join(dir, "model.safetensors"),
         *index = kh_path_join(dir, "model.safetensors.index.json");
    int rc;
    if (!whole || !index)
        rc = kh_fail_memory(err);
    else if (kh_file_exists(whole)) {
        rc = add_file(c, dir, "model.safetensors", err);
        if (rc == 0)
            rc = collect(c, err);
    } else if (kh_file_exists(index))
        rc = open_index(c, dir, index, err);
    else
        rc = fail_nothing(dir, err);
    kh_free(whole);
    kh_free(index);
    return rc;
}

void kh_checkpoint_close(kh_checkpoint *c) {
    for (int i = 0; i < c->n_file; i++)
        kh_safetensors_close(c->file[i]);
    for (int i = 0; i < c->n_gguf; i++)
        kh_gguf_close(c->gguf[i]);
    kh_arena_free(&c->arena);
    kh_free(c->gguf);
    kh_map_free(&c->by_name);
    kh_free(c->item);
    kh_free(c->file);
    *c = (kh_checkpoint){ 0 };
}

kh_stored *kh_checkpoint_find(kh_checkpoint *c, const char *name) {
    int32_t i;
    return kh_map_get(&c->by_name, name, strlen(name), &i) ? &c->item[i] : NULL;
}

/* Size and time, after everything was read: somebody may have replaced a file meanwhile. */
int kh_checkpoint_unchanged(const kh_checkpoint *c, kh_err *err) {
    for (int i = 0; i < c->n_file; i++) {
        int rc = kh_safetensors_unchanged(c->file[i], err);
        if (rc != 0)
            return rc;
    }
    for (int i = 0; i < c->n_gguf; i++) {
        int rc = kh_gguf_unchanged(c->gguf[i], err);
        if (rc != 0)
            return rc;
    }
    return 0;
}
