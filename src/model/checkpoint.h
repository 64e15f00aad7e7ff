/* checkpoint.h - all tensors of a model folder by name, whether they lie in one file or in the
 * shards of an index. */
#ifndef KH_MODEL_CHECKPOINT_H
#define KH_MODEL_CHECKPOINT_H

#include "base/map.h"
#include "model/safetensors.h"

typedef struct kh_stored {
    kh_safetensors *file;
    const kh_array *array;
    bool known; /* for the binder: this name was expected */
} kh_stored;

typedef struct kh_checkpoint {
    kh_safetensors **file;
    int n_file;
    kh_stored *item; /* in the order of files and of bytes within them */
    int n;
    kh_map by_name;
} kh_checkpoint; /* start as {0} */

/* Opens model.safetensors, or model.safetensors.index.json and the shards it names. Close also
 * after failure. */
int kh_checkpoint_open(kh_checkpoint *, const char *dir, kh_err *err);
void kh_checkpoint_close(kh_checkpoint *);
kh_stored *kh_checkpoint_find(kh_checkpoint *, const char *name); /* or NULL */
/* Fails if a file has changed since it was opened. */
int kh_checkpoint_unchanged(const kh_checkpoint *, kh_err *err);

#endif
