/* convert.c - see convert.h.
 *
 * The model is opened first, which checks all of it. Then every tensor is read once more, row by
 * row, under the name that a folder has for it, put back into a folder's layout if a GGUF file had
 * changed it, and written in the format asked for: no more than a row is held as floats.
 *
 * A GGUF file made from a folder holds config.json and the tokenizer's files as they are, under
 * keys of our own, and tensors by the names of a folder, an encoder's masked-language-model head
 * among them. It is read by keyhole, not by llama.cpp. A file of llama.cpp stays one: its keys,
 * names and order of rows are kept, and only the numbers change their format. */
#include "train/convert.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/file.h"
#include "base/gguf.h"
#include "base/hooks.h"
#include "base/place.h"
#include "model/blocks.h"
#include "model/checkpoint.h"
#include "model/gguf_model.h"
#include "model/model.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

typedef struct item {
    const kh_stored *stored;
    const char *name; /* to write */
    kh_dtype dtype;
    size_t rows, cols;
    size_t heads; /* whose rows go back into a folder's order; 0: rows stay where they are */
    float plus;   /* to be taken off again */
} item;

typedef struct job {
    const kh_convert_opts *o;
    char *place; /* the model's path */
    kh_config config;
    kh_checkpoint files;
    bool as_is; /* from a file of llama.cpp to another one */
    item *item;
    int n;
    size_t longest; /* row, in numbers */
    kh_arena arena;
    kh_buf json; /* config.json */
    kh_safetensors_writer *tensors;
    kh_gguf_writer *gguf;
} job;

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* What the forward pass has no use for, and other programs keep in their files. */
static bool is_idle(const char *name) {
    static const char *const end[] = { ".position_ids", ".token_type_ids", ".attn.bias",
        ".attn.masked_bias", ".inv_freq", "rope_freqs.weight" };
    for (size_t i = 0; i < sizeof end / sizeof *end; i++)
        if (ends_with(name, end[i]))
            return true;
    return strstr(name, "pooler.") || strstr(name, "seq_relationship.");
}

static kh_dtype choose_dtype(const job *j, const kh_stored *s) {
    const kh_array *a = s->array;
    kh_dtype t = j->o->dtype;
    bool words = strstr(a->name, "embed") || strstr(a->name, "wte.") || strstr(a->name, "wpe.") ||
        strstr(a->name, "lm_head") || strstr(a->name, "decoder.");
    if (a->rank < 2)
        return j->o->gguf ? KH_DTYPE_F32 : t;
    if (!kh_is_blocks(t))
        return t;
    /* GPT-2's other matrices are [in, out] in folders, whose rows are read as columns. */
    bool turned = j->config.arch->family == KH_FAMILY_GPT2 && !words && !s->straight;
    if (turned || a->shape[1] % (size_t)kh_block_count(t) != 0)
        return KH_DTYPE_F16;
    return words ? KH_DTYPE_Q8_0 : t; /* they are looked at one by one, and make the logits */
}

static int plan_items(job *j, kh_converted *out, kh_err *err) {
    j->item = kh_arena_array(&j->arena, (size_t)j->files.n + 1, sizeof *j->item);
    if (!j->item)
        return kh_fail_memory(err);
    for (int i = 0; i < j->files.n; i++) {
        const kh_stored *s = &j->files.item[i];
        const kh_array *a = s->array;
        if (a->dtype == KH_DTYPE_ANY || a->rank < 1 || a->rank > 2 ||
            (is_idle(a->name) && !j->as_is))
            continue;
        if (s->straight && !j->as_is)
            return kh_fail(err, KH_EUNSUPPORTED,
                "%s: gpt2 models from GGUF files of llama.cpp become no folders; give the folder "
                "that the file was made from",
                j->place);
        item *it = &j->item[j->n++];
        *it = (item){ .stored = s,
            .name = j->as_is ? s->tensor->name : a->name,
            .dtype = choose_dtype(j, s),
            .rows = a->rank == 2 ? a->shape[0] : 1,
            .cols = a->shape[a->rank - 1],
            .heads = j->as_is ? 0 : (size_t)s->heads,
            .plus = j->as_is ? 0 : s->plus };
        j->longest = it->cols > j->longest ? it->cols : j->longest;
        out->before += a->bytes;
        out->after += kh_numbers_bytes(it->dtype, it->rows * it->cols);
    }
    out->tensors = j->n;
    return 0;
}

/* -------------------------------------------------------------------------------- containers */

/* The files that make the tokenizer, as keys. */
static int put_tokenizer(const job *j, kh_gguf_keys *keys, kh_err *err) {
    static const char *const names[] = { "tokenizer.json", "merges.txt", "tokenizer_config.json",
        "special_tokens_map.json", "added_tokens.json" };
    kh_tokenizer_files f;
    kh_err none;
    if (kh_tokenizer_files_read(&f, j->place, &none) != 0) {
        kh_log(j->o->hooks, KH_WARN, "%s: no tokenizer goes along: %s", j->place, none.msg);
        kh_tokenizer_files_free(&f);
        return 0;
    }
    const kh_tokenizer_file *main = &f.file[KH_FILE_MAIN];
    int rc = 0;
    if (ends_with(main->path, ".gguf")) {
        kh_gguf *from;
        const char *key;
        rc = kh_gguf_parse(&from, main->bytes.data, main->bytes.len, main->path, err);
        for (int i = 0; rc == 0 && (key = kh_gguf_key(from, i)) != NULL; i++)
            kh_gguf_put_copy(keys, from, key);
        kh_gguf_close(from);
    }
    for (int i = 0; i < KH_N_TOKENIZER_FILE && rc == 0; i++) {
        const kh_tokenizer_file *one = &f.file[i];
        if (!one->there || ends_with(one->path, ".gguf"))
            continue;
        char key[64];
        const char *name = names[i];
        if (i == KH_FILE_MAIN && f.file[KH_FILE_MERGES].there)
            name = "vocab.json";
        if (i == KH_FILE_MAIN && ends_with(one->path, ".txt"))
            name = "vocab.txt";
        bool json = strcmp(name, "tokenizer.json") == 0;
        snprintf(key, sizeof key, "keyhole.file.%s", name);
        kh_gguf_put_text(
            keys, json ? "tokenizer.huggingface.json" : key, one->bytes.data, one->bytes.len);
    }
    kh_tokenizer_files_free(&f);
    return rc;
}

/* Our own keys. */
static int put_keys(const job *j, kh_gguf_keys *keys, kh_err *err) {
    const char *name = kh_path_base(j->place);
    kh_gguf_put_text(keys, "general.architecture", "keyhole", 7);
    kh_gguf_put_text(keys, "general.name", name, strlen(name));
    kh_gguf_put_text(keys, KH_GGUF_CONFIG, j->json.data, j->json.len);
    return put_tokenizer(j, keys, err);
}

/* Those of a file of llama.cpp, but for what says how it was stored. */
static void copy_keys(const job *j, kh_gguf_keys *keys) {
    static const char *const not [] = { "general.alignment", "general.file_type",
        "general.quantization_version", "split.no", "split.count", "split.tensors.count" };
    static const struct {
        kh_dtype dtype;
        uint32_t number;
    } types[] = { { KH_DTYPE_F32, 0 }, { KH_DTYPE_F16, 1 }, { KH_DTYPE_Q4_0, 2 },
        { KH_DTYPE_Q8_0, 7 }, { KH_DTYPE_BF16, 32 } };
    const char *key;
    for (int i = 0; (key = kh_gguf_key(j->files.gguf[0], i)) != NULL; i++) {
        size_t k = 0;
        while (k < sizeof not / sizeof *not &&strcmp(key, not [k]) != 0)
            k++;
        if (k == sizeof not / sizeof *not )
            kh_gguf_put_copy(keys, j->files.gguf[0], key);
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype == j->o->dtype)
            kh_gguf_put_u32(keys, "general.file_type", types[i].number);
    kh_gguf_put_u32(keys, "general.quantization_version", 2); /* of the blocks' layout */
}

static int create_gguf(job *j, kh_err *err) {
    kh_gguf_keys keys = kh_gguf_keys_init();
    kh_gguf_tensor *plan = kh_arena_array(&j->arena, (size_t)j->n + 1, sizeof *plan);
    int rc = plan ? 0 : kh_fail_memory(err);
    if (rc == 0 && j->as_is)
        copy_keys(j, &keys);
    else if (rc == 0)
        rc = put_keys(j, &keys, err);
    for (int i = 0; i < j->n && rc == 0; i++) {
        const kh_array *a = j->item[i].stored->array;
        plan[i] = (kh_gguf_tensor){
            .name = j->item[i].name, .type = kh_gguf_type_of(j->item[i].dtype), .rank = a->rank
        };
        memcpy(plan[i].shape, a->shape, sizeof plan[i].shape);
    }
    if (rc == 0)
        rc = kh_gguf_create(&j->gguf, j->o->out, &keys, plan, j->n, err);
    kh_gguf_keys_free(&keys);
    return rc;
}

static int create_folder(job *j, kh_err *err) {
    const char *dir = j->o->out;
    kh_array *plan = kh_arena_array(&j->arena, (size_t)j->n + 1, sizeof *plan);
    char *weights = kh_path_join(dir, "model.safetensors");
    int rc = plan && weights ? kh_dir_make(dir, err) : kh_fail_memory(err);
    for (int i = 0; i < j->n && rc == 0; i++) {
        plan[i] = *j->item[i].stored->array;
        plan[i].dtype = j->item[i].dtype;
    }
    if (rc == 0)
        rc = kh_safetensors_create(&j->tensors, weights, plan, j->n, err);
    kh_free(weights);
    return rc;
}

/* What stands beside the weights; config.json last, as its presence makes the folder a model. */
static int finish_folder(job *j, kh_err *err) {
    kh_err none;
    char *config = kh_path_join(j->o->out, "config.json");
    if (kh_tokenizer_copy(j->place, j->o->out, &none) != 0)
        kh_log(j->o->hooks, KH_WARN, "%s: no tokenizer goes along: %s", j->place, none.msg);
    int rc = config ? kh_file_write(config, j->json.data, j->json.len, err) : kh_fail_memory(err);
    kh_free(config);
    return rc;
}

/* ----------------------------------------------------------------------------------- numbers */

/* Where row r of what is written stands in the file. */
static size_t row_in_file(const item *it, size_t r) {
    if (it->heads == 0)
        return r;
    size_t width = it->rows / it->heads, half = width / 2, in = r % width;
    return r - in + (in < half ? 2 * in : 2 * (in - half) + 1);
}

static int write_item(
    const job *j, const item *it, char *raw, float *x, char *narrow, kh_err *err) {
    const kh_stored *s = it->stored;
    kh_dtype from = s->array->dtype;
    size_t bytes = kh_numbers_bytes(from, it->cols), out = kh_numbers_bytes(it->dtype, it->cols);
    for (size_t r = 0; r < it->rows; r++) {
        int rc = kh_stored_read(s, row_in_file(it, r) * bytes, bytes, raw, err);
        if (rc != 0)
            return rc;
        kh_numbers_convert(raw, from, x, KH_DTYPE_F32, it->cols);
        for (size_t c = 0; c < it->cols && it->plus != 0; c++)
            x[c] -= it->plus;
        const void *put = raw;
        if (from != it->dtype || it->plus != 0) {
            kh_numbers_convert(x, KH_DTYPE_F32, narrow, it->dtype, it->cols);
            put = narrow;
            if (kh_numbers_nonfinite(narrow, it->dtype, it->cols) < it->cols)
                return kh_fail(err, KH_ELIMIT,
                    "%s: tensor \"%s\" holds a number too large for %s; choose bf16 or f32",
                    j->place, s->array->name, kh_dtype_name(it->dtype));
        }
        rc = j->gguf ? kh_gguf_put(j->gguf, put, out, err)
                     : kh_safetensors_put(j->tensors, put, out, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int write_all(job *j, kh_err *err) {
    char *raw = kh_aligned(j->longest * 4 + 64), *narrow = kh_aligned(j->longest * 4 + 64);
    float *x = kh_aligned(j->longest * sizeof *x + 64);
    int rc = raw && narrow && x ? 0 : kh_fail_memory(err);
    for (int i = 0; i < j->n && rc == 0; i++) {
        rc = write_item(j, &j->item[i], raw, x, narrow, err);
        if (rc == 0 &&
            kh_report_progress(j->o->hooks, "model convert", i + 1, j->n, "unit=tensors") != 0)
            rc = kh_fail(err, KH_STOPPED, "%s: stopped on request", j->o->out);
    }
    kh_free(raw);
    kh_free(narrow);
    kh_free(x);
    return rc;
}

/* ------------------------------------------------------------------------------------- whole */

static int check_opts(const kh_convert_opts *o, kh_err *err) {
    if (kh_is_blocks(o->dtype) && (!o->gguf || !kh_blocks_shrinks(o->dtype)))
        return kh_fail(err, KH_EARG, "%s can%s be written%s", kh_dtype_name(o->dtype),
            o->gguf ? "not" : "", o->gguf ? "" : " to a GGUF file only; use --format gguf");
    if (o->gguf && !kh_is_gguf(o->out))
        return kh_fail(err, KH_EARG, "%s: the name of a GGUF file ends in .gguf", o->out);
    if (!o->gguf && kh_is_gguf(o->out))
        return kh_fail(err, KH_EARG, "%s: safetensors are written to a folder", o->out);
    return 0;
}

static int open_all(job *j, kh_err *err) {
    kh_model *m;
    int rc = kh_model_open(&m, j->place, &(kh_model_opts){ .hooks = j->o->hooks }, err);
    if (rc != 0)
        return rc;
    j->config = m->config;
    kh_model_close(m);
    if ((rc = kh_checkpoint_open(&j->files, j->place, err)) != 0)
        return rc;
    j->as_is = j->o->gguf && j->files.n_gguf > 0 && !kh_gguf_has(j->files.gguf[0], KH_GGUF_CONFIG);
    if (j->files.n_gguf > 0)
        return kh_gguf_config(j->files.gguf[0], &j->json, err);
    char *path = kh_path_join(j->place, "config.json");
    rc = path ? kh_file_read(path, 1 << 20, &j->json, err) : kh_fail_memory(err);
    kh_free(path);
    return rc;
}

int kh_model_convert(kh_converted *out, const kh_convert_opts *o, kh_err *err) {
    *out = (kh_converted){ 0 };
    job j = { .o = o, .json = kh_buf_init(1 << 20) };
    int rc = check_opts(o, err);
    if (rc == 0)
        rc = kh_place_model(&j.place, o->model, err);
    if (rc == 0)
        rc = open_all(&j, err);
    if (rc == 0)
        rc = plan_items(&j, out, err);
    if (rc == 0)
        rc = o->gguf ? create_gguf(&j, err) : create_folder(&j, err);
    if (rc == 0)
        rc = write_all(&j, err);
    if (rc == 0)
        rc = kh_checkpoint_unchanged(&j.files, err);
    int closed = kh_gguf_finish(j.gguf, rc == 0, rc == 0 ? err : NULL);
    if (closed == 0)
        closed = kh_safetensors_finish(j.tensors, rc == 0, rc == 0 ? err : NULL);
    else
        kh_safetensors_finish(j.tensors, false, NULL);
    if (rc == 0)
        rc = closed;
    if (rc == 0 && !o->gguf)
        rc = finish_folder(&j, err);
    kh_checkpoint_close(&j.files);
    kh_buf_free(&j.json);
    kh_arena_free(&j.arena);
    kh_free(j.place);
    return rc;
}
