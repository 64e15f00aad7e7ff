/* random_model.c - writes models of random weights, a block of rows at a time; see random_model.h.
 */
#include "model/random_model.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hooks.h"
#include "base/rng.h"
#include "model/safetensors.h"

#include <assert.h>
#include <string.h>

#define BERT \
    .arch = &kh_architecture_table[0], .types = 2, .pad = 0, .first_position = 0, .eps = 1e-12, \
    .tied = true
#define ROBERTA \
    .arch = &kh_architecture_table[1], .types = 1, .pad = 1, .first_position = 2, .eps = 1e-5, \
    .tied = true

/* Rows of kh_architecture_table. */
#define GPT2 \
    .arch = &kh_architecture_table[5], .pad = -1, .eps = 1e-5, .tied = true, .act = KH_ACT_GELU_TANH
#define MODERNBERT \
    .arch = &kh_architecture_table[13], .pad = 1, .eps = 1e-5, .tied = true, \
    .rope = { .theta = 160000, .local_theta = 10000 }, .window_every = 3
#define LLAMA \
    .arch = &kh_architecture_table[6], .pad = -1, .eps = 1e-5, .act = KH_ACT_SILU, \
    .rope = { .theta = 10000 }

static const struct arch_row {
    const char *name;
    kh_config config;
} arch_table[] = {
    { "roberta-large",
        { ROBERTA, .layers = 24, .hidden = 1024, .heads = 16, .inner = 4096, .vocab = 50265,
            .positions = 514 } },
    { "roberta-base",
        { ROBERTA, .layers = 12, .hidden = 768, .heads = 12, .inner = 3072, .vocab = 50265,
            .positions = 514 } },
    { "bert-large",
        { BERT, .layers = 24, .hidden = 1024, .heads = 16, .inner = 4096, .vocab = 30522,
            .positions = 512 } },
    { "bert-base",
        { BERT, .layers = 12, .hidden = 768, .heads = 12, .inner = 3072, .vocab = 30522,
            .positions = 512 } },
    { "roberta-tiny",
        { ROBERTA, .layers = 2, .hidden = 32, .heads = 4, .inner = 64, .vocab = 300,
            .positions = 130 } },
    { "bert-tiny",
        { BERT, .layers = 2, .hidden = 32, .heads = 4, .inner = 64, .vocab = 300,
            .positions = 128 } },
    { "gpt2",
        { GPT2, .layers = 12, .hidden = 768, .heads = 12, .inner = 3072, .vocab = 50257,
            .positions = 1024 } },
    { "tinyllama",
        { LLAMA, .layers = 22, .hidden = 2048, .heads = 32, .kv_heads = 4, .inner = 5632,
            .vocab = 32000, .positions = 2048 } },
    { "modernbert-base",
        { MODERNBERT, .layers = 22, .hidden = 768, .heads = 12, .inner = 1152, .vocab = 50368,
            .positions = 8192, .window = 129 } },
    { "modernbert-tiny",
        { MODERNBERT, .layers = 3, .hidden = 32, .heads = 4, .inner = 64, .vocab = 300,
            .positions = 128, .window = 9 } },
    { "gpt2-tiny",
        { GPT2, .layers = 2, .hidden = 32, .heads = 4, .inner = 64, .vocab = 300,
            .positions = 128 } },
    { "llama-tiny",
        { LLAMA, .layers = 2, .hidden = 32, .heads = 4, .kv_heads = 2, .inner = 64, .vocab = 300,
            .positions = 128 } },
};
enum { N_ARCHS = sizeof arch_table / sizeof *arch_table, BLOCK_BYTES = 1 << 22 };

const kh_config *kh_arch_find(const char *name) {
    for (int i = 0; i < N_ARCHS; i++)
        if (strcmp(arch_table[i].name, name) == 0)
            return &arch_table[i].config;
    return NULL;
}

/* One tensor to be written. */
typedef struct job {
    const kh_weight *row;
    int layer;
} job;

typedef struct plan {
    kh_array *array; /* [n] */
    job *job;        /* [n] */
    int n;
    kh_arena arena;
} plan;

/* All tensors of the config under their usual names, in the order of the table; a fused tensor
 * stands for its parts. */
static int make_plan(plan *p, const kh_random_opts *o, kh_err *err) {
    const kh_config *c = &o->config;
    size_t cap = 64 + 32 * (size_t)c->layers; /* more than the table's rows */
    p->array = kh_arena_array(&p->arena, cap, sizeof *p->array);
    p->job = kh_arena_array(&p->arena, cap, sizeof *p->job);
    if (!p->array || !p->job)
        return kh_fail_memory(err);
    for (const kh_weight *row = kh_weight_table; row->cols; row++)
        for (int layer = 0;
             kh_weight_wanted(row, c, true) && layer < (row->layered ? c->layers : 1); layer++) {
            if (kh_weight_spelling(row, c)->part > 0 || (layer > 0 && kh_weight_shared(row, c)) ||
                kh_weight_left_out(row, c, layer))
                continue;
            char name[256];
            kh_weight_name(row, c, true, layer, 0, name, sizeof name);
            kh_array *a = &p->array[p->n];
            a->name = kh_arena_strndup(&p->arena, name, strlen(name));
            if (!a->name)
                return kh_fail_memory(err);
            a->dtype = o->dtype;
            a->rank = kh_weight_stored_shape(row, c, a->shape);
            p->job[p->n] = (job){ row, layer };
            p->n++;
            assert((size_t)p->n < cap);
        }
    return 0;
}

/* The rows of the padding token are zero, as in Hugging Face's embeddings. Streams are numbered by
 * table row and layer, so that two models share a tensor's numbers whatever else they have. */
void kh_random_rows(const kh_random_opts *o, const kh_weight *w, int layer, size_t first, size_t n,
    size_t cols, float *out) {
    const kh_config *c = &o->config;
    uint32_t stream = (uint32_t)(w - kh_weight_table) << 16 | (uint32_t)layer;
    bool padded = w->rows == 'V' || (w->rows == 'P' && c->arch->family == KH_FAMILY_ROBERTA);
#pragma omp parallel for num_threads(kh_threads()) schedule(static)
    for (size_t r = 0; r < n; r++) {
        kh_rng rng = kh_rng_stream(o->seed, KH_RNG_WEIGHTS, stream, (uint32_t)(first + r));
        float *x = out + r * cols;
        bool normal = w->fill == KH_FILL_NORMAL && !(padded && first + r == (size_t)c->pad);
        float fixed = w->fill == KH_FILL_ONE && c->arch->norm != KH_NORM_RMS_PLUS ? 1.0f : 0.0f;
        for (size_t i = 0; i < cols; i++)
            x[i] = normal ? (float)(o->std * kh_rng_normal(&rng)) : fixed;
    }
}

static int write_tensor(kh_safetensors_writer *w, const kh_random_opts *o, const kh_array *a,
    const job *j, float *block, void *narrow, kh_err *err) {
    size_t rows = a->shape[0],
           cols = a->rank == 2 ? a->shape[1]
                               : 1; /* a vector may be longer than a block; a row is not */
    size_t at_once = BLOCK_BYTES / sizeof *block / cols;
    for (size_t first = 0, n; first < rows; first += n) {
        n = rows - first < at_once ? rows - first : at_once;
        kh_random_rows(o, j->row, j->layer, first, n, cols, block);
        kh_numbers_convert(block, KH_DTYPE_F32, narrow, o->dtype, n * cols);
        int rc = kh_safetensors_put(w, narrow, n * cols * kh_dtype_bytes(o->dtype), err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int write_weights(const char *path, const kh_random_opts *o, kh_err *err) {
    plan p = { 0 };
    kh_safetensors_writer *w = NULL;
    float *block = kh_aligned(BLOCK_BYTES);
    void *narrow = kh_aligned(BLOCK_BYTES);
    int rc = block && narrow ? make_plan(&p, o, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = kh_safetensors_create(&w, path, p.array, p.n, err);
    size_t end = p.n > 0 ? p.array[p.n - 1].begin + p.array[p.n - 1].bytes : 0;
    for (int i = 0; i < p.n && rc == 0; i++) {
        rc = write_tensor(w, o, &p.array[i], &p.job[i], block, narrow, err);
        size_t before = p.array[i].begin >> 20, done = (p.array[i].begin + p.array[i].bytes) >> 20,
               total = end >> 20;
        if (rc == 0 && before / 64 != done / 64 &&
            kh_report_progress(o->hooks, "model random", (long)done, (long)total, "unit=MB") != 0)
            rc = kh_fail(err, KH_STOPPED, "%s: stopped on request", path);
    }
    int closed = kh_safetensors_finish(w, rc == 0, rc == 0 ? err : NULL);
    kh_arena_free(&p.arena);
    kh_free(block);
    kh_free(narrow);
    return rc ? rc : closed;
}

int kh_random_model_write(const char *dir, const kh_random_opts *o, kh_err *err) {
    kh_buf config = kh_buf_init(1 << 16);
    char *config_path = kh_path_join(dir, "config.json"),
         *weights_path = kh_path_join(dir, "model.safetensors");
    kh_config_put(&o->config, o->dtype, &config);
    int rc;
    if (!config_path || !weights_path || kh_buf_failed(&config))
        rc = kh_fail_memory(err);
    else if ((rc = kh_config_check(&o->config, "the new model", err)) == 0 &&
        (rc = kh_dir_make(dir, err)) == 0 && (rc = write_weights(weights_path, o, err)) == 0)
        rc = kh_file_write(config_path, config.data, config.len, err);
    kh_buf_free(&config);
    kh_free(config_path);
    kh_free(weights_path);
    return rc;
}
