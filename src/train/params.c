/* params.c - see params.h. */
#include "train/params.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "model/blocks.h"
#include "model/random_model.h"
#include "model/safetensors.h"

#include <string.h>

enum { PIECE = 1 << 18 }; /* numbers converted at a time */

static void append(kh_params *p, const kh_weight *row, int layer) {
    const kh_config *c = &p->config;
    p->item[p->n++] = (kh_param){ .row = row,
        .layer = layer,
        .rows = row->rows ? kh_weight_size(c, row->rows) : 1,
        .cols = kh_weight_size(c, row->cols),
        .at = p->size };
    p->size += (size_t)p->item[p->n - 1].rows * (size_t)p->item[p->n - 1].cols;
}

int kh_params_init(kh_params *p, const kh_config *c, kh_err *err) {
    *p = (kh_params){ .config = *c };
    size_t rows = 0;
    for (const kh_weight *row = kh_weight_table; row->cols; row++)
        rows += row->layered ? (size_t)c->layers : 1;
    p->item = kh_arena_array(&p->arena, rows, sizeof *p->item);
    if (!p->item)
        return kh_fail_memory(err);
    for (const kh_weight *row = kh_weight_table; row->cols; row++)
        if (!row->layered && kh_weight_wanted(row, c, true))
            append(p, row, 0);
    for (int layer = 0; layer < c->layers; layer++)
        for (int matrices = 1; matrices >= 0; matrices--)
            for (const kh_weight *row = kh_weight_table; row->cols; row++)
                if (row->layered && (row->rows != 0) == matrices &&
                    kh_weight_wanted(row, c, true) && !kh_weight_left_out(row, c, layer))
                    append(p, row, layer);
    return 0;
}

void kh_params_free(kh_params *p) {
    kh_arena_free(&p->arena);
    *p = (kh_params){ 0 };
}

void kh_params_take(const kh_params *p, const kh_model *m, uint64_t seed, float *w) {
    kh_weights from = m->w;
    for (int i = 0; i < p->n; i++) {
        const kh_param *item = &p->item[i];
        const kh_tensor *t = kh_weight_tensor(item->row, &from, item->layer);
        if (!t->data)
            kh_random_rows(&(kh_random_opts){ .config = p->config, .std = 0.02, .seed = seed },
                item->row, item->layer, 0, (size_t)item->rows, (size_t)item->cols, w + item->at);
        for (int r = 0; t->data && r < t->rows; r++)
            kh_tensor_row(t, r, w + item->at + (size_t)r * (size_t)t->cols);
    }
}

void kh_params_view(const kh_params *p, void *vector, size_t bytes, kh_weights *out) {
    for (int i = 0; i < p->n; i++) {
        const kh_param *item = &p->item[i];
        *kh_weight_tensor(item->row, out, item->layer) = (kh_tensor){
            .data = (char *)vector + item->at * bytes, .rows = item->rows, .cols = item->cols
        };
    }
    if (p->config.tied)
        out->decoder_w = out->word;
}

/* -------------------------------------------------------------------------------------- saving */

/* The arrays of the file, in the order of the vector. */
static kh_array *make_plan(const kh_params *p, kh_dtype dtype, kh_arena *arena) {
    kh_array *plan = kh_arena_array(arena, (size_t)p->n, sizeof *plan);
    for (int i = 0; plan && i < p->n; i++) {
        char name[256];
        kh_weight_name(p->item[i].row, &p->config, true, p->item[i].layer, 0, name, sizeof name);
        plan[i].name = kh_arena_strndup(arena, name, strlen(name));
        if (!plan[i].name)
            return NULL;
        plan[i].rank = kh_weight_shape(p->item[i].row, &p->config, plan[i].shape);
        plan[i].dtype = kh_is_blocks(dtype) && plan[i].rank == 1 ? KH_DTYPE_F32 : dtype;
    }
    return plan;
}

static int save_param(const kh_param *p, const float *w, kh_dtype dtype, void *piece,
    kh_safetensors_writer *out, kh_err *err) {
    int rc = 0;
    size_t size = (size_t)p->rows * (size_t)p->cols;
    for (size_t at = 0, n; rc == 0 && at < size; at += n) {
        n = size - at < PIECE ? size - at : PIECE;
        kh_numbers_convert(w + p->at + at, KH_DTYPE_F32, piece, dtype, n);
        rc = kh_safetensors_put(out, piece, kh_numbers_bytes(dtype, n), err);
    }
    return rc;
}

static int save_weights(
    const kh_params *p, const float *w, const char *path, kh_dtype dtype, kh_err *err) {
    kh_arena arena = { 0 };
    kh_safetensors_writer *out = NULL;
    const kh_config *c = &p->config;
    if (kh_is_blocks(dtype) &&
        (c->hidden % kh_block_count(dtype) != 0 || c->inner % kh_block_count(dtype) != 0))
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: %s needs sizes that are multiples of %d; the hidden size is %d and the inner one "
            "%d",
            path, kh_dtype_name(dtype), kh_block_count(dtype), c->hidden, c->inner);
    kh_array *plan = make_plan(p, dtype, &arena);
    void *piece = kh_aligned(PIECE * sizeof *w);
    int rc =
        plan && piece ? kh_safetensors_create(&out, path, plan, p->n, err) : kh_fail_memory(err);
    for (int i = 0; i < p->n && rc == 0; i++)
        rc = save_param(&p->item[i], w, plan[i].dtype, piece, out, err);
    int closed = kh_safetensors_finish(out, rc == 0, rc == 0 ? err : NULL);
    kh_free(piece);
    kh_arena_free(&arena);
    return rc ? rc : closed;
}

int kh_params_save(
    const kh_params *p, const float *w, const char *dir, kh_dtype dtype, kh_err *err) {
    kh_buf config = kh_buf_init(1 << 16);
    char *config_path = kh_path_join(dir, "config.json"),
         *weights_path = kh_path_join(dir, "model.safetensors");
    kh_config_put(&p->config, dtype, &config);
    int rc;
    if (!config_path || !weights_path || kh_buf_failed(&config))
        rc = kh_fail_memory(err);
    else if ((rc = save_weights(p, w, weights_path, dtype, err)) == 0)
        rc = kh_file_write(config_path, config.data, config.len, err);
    kh_buf_free(&config);
    kh_free(config_path);
    kh_free(weights_path);
    return rc;
}
