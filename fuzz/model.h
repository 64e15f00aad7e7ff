/* model.h - a tiny random model in a folder of its own, for targets that need a box to ask; removed
 * at the end. */
#ifndef KH_FUZZ_MODEL_H
#define KH_FUZZ_MODEL_H

#include "base/file.h"
#include "model/random_model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char fuzz_folder[64];

/* A folder in memory, if the machine has such a place. */
static inline void fuzz_folder_make(const char *name) {
    snprintf(fuzz_folder, sizeof fuzz_folder, "%s/keyhole-fuzz-%s-%ld",
        access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", name, (long)getpid());
    assert(kh_dir_make(fuzz_folder, NULL) == 0);
}

static inline void fuzz_put(const char *name, const void *bytes, size_t n) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder, name);
    FILE *f = fopen(path, "wb");
    assert(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
}

static inline void fuzz_drop(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder, name);
    unlink(path);
}

static inline void fuzz_model_remove(void) {
    fuzz_drop("config.json");
    fuzz_drop("model.safetensors");
    fuzz_drop("tokenizer.json");
    rmdir(fuzz_folder);
}

static inline void fuzz_model_make(void) {
    static const char TOKENIZER[] =
        "tests/vectors/tokenizers/tiny-bpe.json"; /* targets run from the top of the tree */
    kh_random_opts r = {
        .config = *kh_arch_find("roberta-tiny"), .dtype = KH_DTYPE_F32, .std = 0.3, .seed = 5
    };
    kh_tokenizer *t;
    kh_buf bytes;
    fuzz_folder_make("model");
    assert(kh_tokenizer_open(&t, TOKENIZER, NULL) == 0 &&
        kh_file_read(TOKENIZER, 1 << 20, &bytes, NULL) == 0);
    r.config.vocab = kh_tokenizer_size(t);
    r.config.hidden = 32;
    kh_tokenizer_close(t);
    assert(kh_random_model_write(fuzz_folder, &r, NULL) == 0);
    fuzz_put("tokenizer.json", bytes.data, bytes.len);
    kh_buf_free(&bytes);
    atexit(fuzz_model_remove);
}

#endif
