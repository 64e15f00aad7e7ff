/* checkpoint.h - all tensors of a model by name, whether they lie in one file, in the shards of an
 * index, or in one or several GGUF files, which then have the names of a folder. */
#ifndef KH_MODEL_CHECKPOINT_H
#define KH_MODEL_CHECKPOINT_H

#include "base/arena.h"
#include "base/gguf.h"
#include "base/map.h"
#include "model/safetensors.h"

typedef struct kh_stored {
    kh_safetensors *file; /* or */
    kh_gguf *gguf;
    const kh_array *array;
    bool known; /* for the binder: this name was expected */
    /* What a GGUF file has changed; see kh_gguf_layout. */
    const kh_gguf_tensor *tensor;
    int heads;
    bool straight;
    float plus;
} kh_stored;

typedef struct kh_checkpoint {
    kh_safetensors **file;
    int n_file;
    kh_gguf **gguf; /* instead of file */
    int n_gguf;
    kh_arena arena;  /* arrays of GGUF files */
    kh_stored *item; /* in the order of files and of bytes within them */
    int n;
    kh_map by_name;
} kh_checkpoint; /* start as {0} */

/* Opens model.safetensors, or model.safetensors.index.json and the shards it names; or, if the path
 * ends in .gguf, that file and those that it was split into. Close also after failure. */
int kh_checkpoint_open(kh_checkpoint *, const char *dir, kh_err *err);
void kh_checkpoint_close(kh_checkpoint *);
kh_stored *kh_checkpoint_find(kh_checkpoint *, const char *name); /* or NULL */
const char *kh_stored_path(const kh_stored *);
/* n bytes of the array from byte `from` on. */
int kh_stored_read(const kh_stored *, size_t from, size_t n, void *out, kh_err *err);
/* Fails if a file has changed since it was opened. */
int kh_checkpoint_unchanged(const kh_checkpoint *, kh_err *err);

/* Whether a model's path is that of a GGUF file. */
bool kh_is_gguf(const char *path);

#endif
