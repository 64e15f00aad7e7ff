/* checkpoint.c - one file or many; see checkpoint.h. A shard is a plain file name in the model's
 * folder: an index from a stranger must not reach elsewhere. */
#include "model/checkpoint.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"

#include <string.h>

enum { SHARDS_MAX = 512 }; /* each is an open file */

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
            c->item[c->n++] = (kh_stored){ c->file[f], &array[i], false };
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

int kh_checkpoint_open(kh_checkpoint *c, const char *dir, kh_err *err) {
    *c = (kh_checkpoint){ .file = kh_calloc(SHARDS_MAX, sizeof *c->file) };
    char *whole = kh_path_join(dir, "model.safetensors"),
         *index = kh_path_join(dir, "model.safetensors.index.json");
    int rc;
    if (!c->file || !whole || !index)
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
    kh_map_free(&c->by_name);
    kh_free(c->item);
    kh_free(c->file);
    *c = (kh_checkpoint){ 0 };
}

kh_stored *kh_checkpoint_find(kh_checkpoint *c, const char *name) {
    int32_t i;
    return kh_map_get(&c->by_name, name, strlen(name), &i) ? &c->item[i] : NULL;
}

int kh_checkpoint_unchanged(const kh_checkpoint *c, kh_err *err) {
    for (int i = 0; i < c->n_file; i++) {
        int rc = kh_safetensors_unchanged(c->file[i], err);
        if (rc != 0)
            return rc;
    }
    return 0;
}
