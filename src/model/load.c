/* load.c - kh_model_open: a folder of files becomes bound, checked weights.
 *
 * config.json says which tensors there must be and how large; the table in weights.c says what they
 * are called; this file walks it. Each tensor is read once, in pieces, with pread into memory of
 * our own: nothing is mapped, so whatever happens to the file later, the weights stay what they
 * were, and a file cut short is a sentence and not a signal. On the way every piece is hashed into
 * the fingerprint, searched for NaN and infinities, and converted if another format was asked for.
 */
#include "model/blocks.h"
#include "model/checkpoint.h"
#include "model/gguf_model.h"
#include "model/weights.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hooks.h"
#include "base/place.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { PIECE = 1 << 20, NAME_MAX_BYTES = 256, FINGERPRINT_VERSION = 1 };

typedef struct loader {
    kh_model *m;
    kh_model_opts opts;
    kh_checkpoint files;
    bool prefixed; /* encoder tensors are called "bert.encoder..." and not "encoder..." */
    char *piece;   /* [PIECE] */
    XXH3_state_t hash;
} loader;

/* ---------------------------------------------------------------------------------- one tensor */

static int check_shape(const loader *l, const kh_weight *row, const kh_stored *s, kh_err *err) {
    const kh_config *c = &l->m->config;
    const kh_array *a = s->array;
    const char *path = kh_stored_path(s);
    size_t want[2];
    int rank = kh_weight_stored_shape(row, c, want);
    if (s->straight && kh_weight_spelling(row, c)->turned && rank == 2) {
        size_t rows = want[1];
        want[1] = want[0];
        want[0] = rows;
    }
    if (a->rank != rank || memcmp(a->shape, want, (size_t)rank * sizeof *want) != 0) {
        char have_text[256], want_text[64];
        kh_shape_text(a->shape, a->rank, have_text, sizeof have_text);
        kh_shape_text(want, rank, want_text, sizeof want_text);
        return kh_fail(err, KH_EMISMATCH,
            "%s: tensor \"%s\" has shape %s, but config.json says [%s%s%s] = %s", path, a->name,
            have_text, row->rows ? kh_weight_key(c, row->rows) : "", row->rows ? ", " : "",
            kh_weight_key(c, row->cols), want_text);
    }
    if (a->dtype == KH_DTYPE_ANY)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: tensor \"%s\" is of type %s; weights must be F32, F16 or BF16%s", path, a->name,
            a->type,
            s->gguf ? ", or Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ2_XXS, IQ4_NL, IQ4_XS or "
                      "MXFP4"
                    : "");
    if (kh_is_blocks(a->dtype) && kh_weight_spelling(row, c)->turned && !s->straight)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: tensor \"%s\" is stored as [in, out] in blocks (%s), which is not read", path,
            a->name, a->type);
    if (s->heads > 0 && want[0] % (2 * (size_t)s->heads) != 0)
        return kh_fail(err, KH_EFORMAT, "%s: tensor \"%s\": %zu rows are no pairs in %d heads",
            path, a->name, want[0], s->heads);
    return 0;
}

static int fail_nonfinite(const kh_stored *s, const kh_tensor *t, size_t at, kh_err *err) {
    size_t cols = (size_t)t->cols;
    if (t->rows > 1)
        return kh_fail(err, KH_EFORMAT,
            "%s: tensor \"%s\" holds NaN or infinity at [%zu, %zu]; the file is damaged or its "
            "training failed",
            kh_stored_path(s), s->array->name, at / cols, at % cols);
    return kh_fail(err, KH_EFORMAT,
        "%s: tensor \"%s\" holds NaN or infinity at [%zu]; the file is damaged or its training "
        "failed",
        kh_stored_path(s), s->array->name, at);
}

/* n numbers into the format that was asked for, which may be too narrow for them. */
static int convert(const loader *l, const kh_stored *s, const void *in, void *to, kh_dtype dtype,
    size_t n, kh_err *err) {
    kh_numbers_convert(in, s->array->dtype, to, dtype, n);
    if (l->opts.allow_nonfinite || kh_numbers_nonfinite(to, dtype, n) == n)
        return 0;
    return kh_fail(err, KH_ELIMIT,
        "%s: tensor \"%s\" holds a number too large for %s; keep it as BF16 or F32",
        kh_stored_path(s), s->array->name, kh_dtype_name(dtype));
}

/* n numbers of the array from number `at` on, hashed and checked, to `to` in t's format; `first` is
 * where they belong in t, for messages. */
static int read_piece(loader *l, const kh_stored *s, const kh_tensor *t, size_t at, size_t n,
    void *to, size_t first, kh_err *err) {
    kh_dtype from = s->array->dtype;
    size_t bytes = kh_numbers_bytes(from, n);
    char *in = from == t->dtype ? to : l->piece;
    int rc = kh_stored_read(s, kh_numbers_bytes(from, at), bytes, in, err);
    if (rc != 0)
        return rc;
    XXH3_64bits_update(&l->hash, in, bytes);
    size_t bad = l->opts.allow_nonfinite ? n : kh_numbers_nonfinite(in, from, n);
    if (bad < n)
        return fail_nonfinite(s, t, first + bad, err);
    return in != to ? convert(l, s, in, to, t->dtype, n, err) : 0;
}

/* A matrix that is stored as [in, out], from output `at` of `all` on: row after row of the file
 * becomes a column. */
static int read_turned(
    loader *l, const kh_stored *s, kh_tensor *t, size_t at, size_t all, kh_err *err) {
    size_t rows = (size_t)t->rows, cols = (size_t)t->cols, bytes = kh_dtype_bytes(t->dtype);
    size_t most = PIECE / kh_dtype_bytes(s->array->dtype);
    char *column = kh_aligned(rows * bytes);
    int rc = column ? 0 : kh_fail_memory(err);
    for (size_t c = 0; c < cols && rc == 0; c++) {
        for (size_t r = 0, n; r < rows && rc == 0; r += n) {
            n = rows - r < most ? rows - r : most;
            rc = read_piece(l, s, t, c * all + at + r, n, column + r * bytes, c * rows + r, err);
        }
        for (size_t r = 0; r < rows && rc == 0; r++)
            memcpy((char *)t->data + (r * cols + c) * bytes, column + r * bytes, bytes);
    }
    kh_free(column);
    return rc;
}

/* Rows of heads whose rotary pairs stand side by side, as GGUF files of Llama have them, put back
 * so that all first numbers of the pairs come before all second ones. */
static int part_pairs(kh_tensor *t, int heads, kh_err *err) {
    size_t row = kh_numbers_bytes(t->dtype, (size_t)t->cols), all = (size_t)t->rows;
    if (t->rows == 1) { /* a bias */
        row = kh_numbers_bytes(t->dtype, 1);
        all = (size_t)t->cols;
    }
    size_t half = all / (size_t)heads / 2;
    char *head = kh_malloc(2 * half * row);
    if (!head)
        return kh_fail_memory(err);
    for (size_t h = 0; h < (size_t)heads; h++) {
        char *data = (char *)t->data + h * 2 * half * row;
        for (size_t i = 0; i < half; i++) {
            memcpy(head + i * row, data + 2 * i * row, row);
            memcpy(head + (half + i) * row, data + (2 * i + 1) * row, row);
        }
        memcpy(data, head, 2 * half * row);
    }
    kh_free(head);
    return 0;
}

/* Reads the array, or one part of it, into t, which has its shape and format but no memory yet. */
static int read_tensor(
    loader *l, const kh_spelling *how, const kh_stored *s, kh_tensor *t, kh_err *err) {
    kh_dtype from = s->array->dtype;
    size_t most = PIECE / (size_t)kh_block_bytes(from) / KH_BLOCK_MAX * KH_BLOCK_MAX;
    size_t n = (size_t)t->rows * (size_t)t->cols, parts = how->parts > 1 ? (size_t)how->parts : 1;
    t->data = kh_aligned(kh_numbers_bytes(t->dtype, n));
    if (!t->data)
        return kh_fail_memory(err);
    if (how->turned && !s->straight)
        return read_turned(
            l, s, t, (size_t)how->part * (size_t)t->rows, parts * (size_t)t->rows, err);
    int rc = 0;
    for (size_t at = 0, many; at < n && rc == 0; at += many) {
        many = n - at < most ? n - at : most;
        rc = read_piece(l, s, t, (size_t)how->part * n + at, many,
            (char *)t->data + kh_numbers_bytes(t->dtype, at), at, err);
    }
    if (rc == 0 && s->heads > 0)
        rc = part_pairs(t, s->heads, err);
    for (size_t i = 0; i < n && rc == 0 && s->plus != 0 && t->dtype == KH_DTYPE_F32; i++)
        ((float *)t->data)[i] -= s->plus;
    return rc;
}

/* The first spelling that is there; all spellings become known, so that none is reported as unused.
 */
static kh_stored *find_weight(loader *l, const kh_weight *row, int layer) {
    kh_stored *first = NULL;
    char name[NAME_MAX_BYTES];
    for (int n = 0; kh_weight_name(row, &l->m->config, l->prefixed, layer, n, name, sizeof name);
         n++) {
        kh_stored *s = kh_checkpoint_find(&l->files, name);
        if (s)
            s->known = true;
        if (s && !first)
            first = s;
    }
    return first;
}

static int fail_missing(const loader *l, const kh_weight *row, int layer, kh_err *err) {
    const kh_config *c = &l->m->config;
    char name[NAME_MAX_BYTES];
    kh_weight_name(row, c, l->prefixed, layer, 0, name, sizeof name);
    const char *why = c->arch->causal ? "the decoder" : "the encoder";
    if (row->need == KH_NEED_DECODER)
        why = "\"tie_word_embeddings\" is false, so the head";
    if (row->need == KH_NEED_HEAD || row->need == KH_NEED_HEAD_BIAS)
        why = "the masked-language-model head";
    return kh_fail(err, KH_EMISSING,
        "%s: no tensor \"%s\"; %s of a %s model with %d layers needs it", l->m->dir, name, why,
        c->arch->type, c->layers);
}

static int load_weight(loader *l, const kh_weight *row, int layer, kh_tensor *t, kh_err *err) {
    const kh_stored *s = find_weight(l, row, layer);
    if (!s)
        return fail_missing(l, row, layer, err);
    int rc = check_shape(l, row, s, err);
    if (rc != 0)
        return rc;
    /* What identifies the tensor, before its bytes: its row in the table, layer, format and shape.
     */
    uint32_t head[5] = { (uint32_t)(row - kh_weight_table), (uint32_t)layer,
        (uint32_t)s->array->dtype };
    t->rows = row->rows ? kh_weight_size(&l->m->config, row->rows) : 1;
    t->cols = kh_weight_size(&l->m->config, row->cols);
    head[3] = (uint32_t)t->rows;
    head[4] = (uint32_t)t->cols;
    XXH3_64bits_update(&l->hash, head, sizeof head);
    t->dtype = s->array->dtype;
    if (!row->rows)
        t->dtype = KH_DTYPE_F32;
    else if (l->opts.store == KH_DTYPE_F32 ||
        (l->opts.store != KH_DTYPE_ANY && !kh_is_blocks(t->dtype)))
        t->dtype = l->opts.store; /* blocks are smaller than any format asked for but F32 */
    return read_tensor(l, kh_weight_spelling(row, &l->m->config), s, t, err);
}

/* --------------------------------------------------------------------------------- all of them */

/* A tied decoder needs no tensor; if there is one all the same, it has to agree, or the config is
 * wrong about it. */
static int check_tied_decoder(loader *l, const kh_weight *row, kh_err *err) {
    kh_stored *s = find_weight(l, row, 0);
    if (!s)
        return 0;
    int rc = check_shape(l, row, s, err);
    if (rc != 0)
        return rc;
    const kh_tensor *word = &l->m->w.word;
    loader quiet = { .m = l->m, .opts = { .allow_nonfinite = true }, .piece = l->piece };
    XXH3_64bits_reset(&quiet.hash);
    kh_tensor t = { .dtype = word->dtype, .rows = word->rows, .cols = word->cols };
    rc = read_tensor(&quiet, kh_weight_spelling(row, &l->m->config), s, &t, err);
    if (rc == 0 && memcmp(t.data, word->data, kh_tensor_bytes(word)) != 0)
        rc = kh_fail(err, KH_EMISMATCH,
            "%s: tensor \"%s\" differs from the word embeddings, but \"tie_word_embeddings\" in "
            "config.json says they are one",
            kh_stored_path(s), s->array->name);
    kh_free(t.data);
    return rc;
}

static int load_weights(loader *l, kh_err *err) {
    kh_model *m = l->m;
    for (const kh_weight *row = kh_weight_table; row->cols; row++) {
        if (!kh_weight_wanted(row, &m->config, m->head))
            continue;
        for (int layer = 0; layer < (row->layered ? m->config.layers : 1); layer++) {
            kh_tensor *t = kh_weight_tensor(row, &m->w, layer);
            if (kh_weight_left_out(row, &m->config, layer))
                continue;
            int rc = load_weight(l, row, layer, t, err);
            if (rc != 0)
                return rc;
            if (layer == 0 || !kh_weight_shared(row, &m->config))
                m->params += (size_t)t->rows * (size_t)t->cols;
        }
    }
    for (const kh_weight *row = kh_weight_table; row->cols && m->config.tied; row++) {
        int rc = row->need == KH_NEED_DECODER ? check_tied_decoder(l, row, err) : 0;
        if (rc != 0)
            return rc;
    }
    if (m->head && m->config.tied)
        m->w.decoder_w = m->w.word;
    return 0;
}

/* Which of two layouts the folder has: names with or without prefix, with or without head. */
static void find_layout(loader *l) {
    char name[NAME_MAX_BYTES];
    bool causal = l->m->config.arch->causal;
    kh_weight_name(&kh_weight_table[0], &l->m->config, false, 0, 0, name, sizeof name);
    l->prefixed = kh_checkpoint_find(&l->files, name) == NULL;
    for (const kh_weight *row = kh_weight_table; row->cols; row++)
        if (row->need == (causal ? KH_NEED_DECODER : KH_NEED_HEAD) && find_weight(l, row, 0))
            l->m->head = true;
    if (causal && l->m->config.tied)
        l->m->head = true; /* it needs no tensor of its own */
}

/* --------------------------------------------------------------------------- what is left over */

/* Tensors that models carry around and no forward pass needs: by how their names begin or end. */
static bool is_harmless(const char *name) {
    static const char *const start[] = { "embeddings.position_ids", "embeddings.token_type_ids",
        "pooler.", "cls.seq_relationship." };
    static const char *const end[] = { ".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq",
        "rope_freqs.weight" };
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof start / sizeof *start; i++)
        if (strncmp(name, start[i], strlen(start[i])) == 0)
            return true;
    for (size_t i = 0; i < sizeof end / sizeof *end; i++)
        if (n >= strlen(end[i]) && strcmp(name + n - strlen(end[i]), end[i]) == 0)
            return true;
    return false;
}

/* The layer that a tensor of this name belongs to, or -1. */
static long layer_of(const char *name) {
    static const char *const start[] = { "encoder.layer.", "transformer.layer.", "h.", "layers." };
    for (size_t i = 0; i < sizeof start / sizeof *start; i++) {
        size_t n = strlen(start[i]);
        char *end;
        if (strncmp(name, start[i], n) != 0)
            continue;
        long layer = strtol(name + n, &end, 10);
        return *end == '.' && end > name + n ? layer : -1;
    }
    return -1;
}

static int sort_left_over(loader *l, kh_err *err) {
    kh_model *m = l->m;
    const char *prefix = kh_family_prefix(m->config.arch->family);
    m->extra = kh_arena_array(&m->arena, (size_t)l->files.n + 1, sizeof *m->extra);
    if (!m->extra)
        return kh_fail_memory(err);
    for (int i = 0; i < l->files.n; i++) {
        const kh_stored *s = &l->files.item[i];
        const char *name = s->array->name, *bare = name;
        if (strncmp(bare, prefix, strlen(prefix)) == 0)
            bare += strlen(prefix);
        if (s->known || is_harmless(bare))
            continue;
        if (layer_of(bare) >= m->config.layers)
            return kh_fail(err, KH_EMISMATCH,
                "%s: tensor \"%s\" belongs to layer %ld, but config.json says there are %d layers",
                kh_stored_path(s), name, layer_of(bare), m->config.layers);
        if (!(m->extra[m->n_extra++] = kh_arena_strndup(&m->arena, name, strlen(name))))
            return kh_fail_memory(err);
    }
    if (m->n_extra > 0)
        kh_log(l->opts.hooks, KH_WARN,
            "%s: %d tensor%s that a %s model does not have, among them \"%s\": not used", m->dir,
            m->n_extra, m->n_extra > 1 ? "s" : "", m->config.arch->type, m->extra[0]);
    return 0;
}

/* ----------------------------------------------------------------------------------- the model */

/* The config.json of a folder, or the one that a GGUF file amounts to. */
static int read_config(loader *l, kh_err *err) {
    kh_model *m = l->m;
    int rc;
    if (l->files.n_gguf > 0) {
        kh_buf text = kh_buf_init(1 << 20);
        rc = kh_gguf_config(l->files.gguf[0], &text, err);
        if (rc == 0)
            rc = kh_config_parse(&m->config, text.data, text.len, m->dir, err);
        kh_buf_free(&text);
    } else {
        char *path = kh_path_join(m->dir, "config.json");
        rc = path ? kh_config_read(&m->config, path, err) : kh_fail_memory(err);
        kh_free(path);
    }
    if (rc != 0)
        return rc;
    m->w.layer = kh_arena_array(&m->arena, (size_t)m->config.layers, sizeof *m->w.layer);
    return m->w.layer ? 0 : kh_fail_memory(err);
}

/* The sizes and settings that change results, in a fixed order. */
static void hash_config(loader *l) {
    const kh_config *c = &l->m->config;
    const int32_t sizes[] = { FINGERPRINT_VERSION, (int)c->arch->family, c->layers, c->hidden,
        c->heads, c->inner, c->vocab, c->positions, c->types, c->pad, (int)c->act, (int)c->head_act,
        c->tied, l->m->head };
    XXH3_64bits_reset(&l->hash);
    XXH3_64bits_update(&l->hash, sizes, sizeof sizes);
    XXH3_64bits_update(&l->hash, &c->eps, sizeof c->eps);
    if (c->embed > 0)
        XXH3_64bits_update(&l->hash, &c->embed, sizeof c->embed);
    /* Fingerprints of encoders with tables of positions are as they were before there were others.
     */
    if (!c->arch->causal && c->arch->position == KH_POSITION_TABLE)
        return;
    const int32_t more[] = { (int)(c->arch - kh_architecture_table), kh_config_kv_heads(c),
        kh_config_head_width(c), (int)c->bias, (int)c->rope.kind, c->window, c->window_first,
        c->window_every };
    const double numbers[] = { c->rope.theta, c->rope.local_theta, c->rope.factor, c->rope.low,
        c->rope.high, c->rope.original, c->query_scale };
    XXH3_64bits_update(&l->hash, more, sizeof more);
    XXH3_64bits_update(&l->hash, numbers, sizeof numbers);
}

static int load(loader *l, kh_err *err) {
    kh_model *m = l->m;
    bool gguf = kh_is_gguf(m->dir);
    if (!gguf && kh_file_exists(m->dir))
        return kh_fail(err, KH_EFORMAT,
            "%s: is a file; a model is the folder that holds it, with config.json, "
            "model.safetensors and tokenizer.json (a pytorch_model.bin must be converted to "
            "safetensors), or a GGUF file",
            m->dir);
    if (!gguf && !kh_dir_exists(m->dir))
        return kh_fail(err, KH_EMISSING,
            "%s: there is no such folder; a model is a folder with config.json and "
            "model.safetensors, or a GGUF file; builtin is the one that comes with keyhole, and "
            "\"keyhole pull NAME\" fetches others",
            m->dir);
    int rc = gguf ? kh_checkpoint_open(&l->files, m->dir, err) : read_config(l, err);
    if (rc == 0)
        rc = gguf ? read_config(l, err) : kh_checkpoint_open(&l->files, m->dir, err);
    if (rc != 0)
        return rc;
    find_layout(l);
    if (l->opts.need_head && (rc = kh_model_needs_head(m, l->opts.need_head, err)) != 0)
        return rc;
    hash_config(l);
    if ((rc = load_weights(l, err)) != 0 || (rc = sort_left_over(l, err)) != 0 ||
        (rc = kh_checkpoint_unchanged(&l->files, err)) != 0)
        return rc;
    m->fingerprint = XXH3_64bits_digest(&l->hash);
    m->file_dtype = find_weight(l, &kh_weight_table[0], 0)->array->dtype;
    return 0;
}

int kh_model_open(kh_model **out, const char *dir, const kh_model_opts *opts, kh_err *err) {
    *out = NULL;
    loader l = { .opts = opts ? *opts : (kh_model_opts){ 0 },
        .m = kh_calloc(1, sizeof(kh_model)),
        .piece = kh_aligned(PIECE) };
    int rc = l.m && l.piece ? kh_place_model(&l.m->dir, dir, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = load(&l, err);
    kh_checkpoint_close(&l.files);
    kh_free(l.piece);
    if (rc == 0)
        *out = l.m;
    else
        kh_model_close(l.m);
    return rc;
}

void kh_model_drop(kh_model *m, kh_tensor *t) {
    const kh_tensor *twin = t == &m->w.word
        ? &m->w.decoder_w
        : &m->w.word; /* a tied decoder shares the memory of the words */
    if (twin->data != t->data)
        kh_free(t->data);
    *t = (kh_tensor){ 0 };
}

void kh_model_close(kh_model *m) {
    if (!m)
        return;
    int layers = m->w.layer ? m->config.layers : 0; /* none yet, if opening failed early */
    for (const kh_weight *row = kh_weight_table; row->cols; row++)
        for (int layer = 0; layer < (row->layered ? layers : 1); layer++)
            kh_model_drop(m, kh_weight_tensor(row, &m->w, layer));
    kh_arena_free(&m->arena);
    kh_free(m->dir);
    kh_free(m);
}

int kh_model_needs_head(const kh_model *m, const char *what, kh_err *err) {
    if (m->head)
        return 0;
    const char *why = kh_is_gguf(m->dir) && !m->config.arch->causal
        ? " (llama.cpp's converter leaves it out: give the folder, or a file of \"keyhole model "
          "convert\")"
        : "";
    return kh_fail(err, KH_EUNSUPPORTED,
        "%s: the model has no %s head%s, which %s needs; only its features can be used", m->dir,
        m->config.arch->causal ? "language-model" : "masked-language-model", why, what);
}

static size_t model_bytes(const kh_model *m) {
    size_t total = 0;
    kh_weights w = m->w;
    for (const kh_weight *row = kh_weight_table; row->cols; row++)
        for (int layer = 0; layer < (row->layered ? m->config.layers : 1); layer++) {
            const kh_tensor *t = kh_weight_tensor(row, &w, layer);
            total += row->need == KH_NEED_DECODER && m->config.tied ? 0 : kh_tensor_bytes(t);
        }
    return total;
}

kh_model_info kh_model_describe(const kh_model *m) {
    const kh_config *c = &m->config;
    return (kh_model_info){
        .type = c->arch->type,
        .layers = c->layers,
        .hidden = c->hidden,
        .heads = c->heads,
        .inner = c->inner,
        .vocab = c->vocab,
        .max_tokens = kh_config_max_tokens(c),
        .head = m->head,
        .tied = m->head && c->tied,
        .dtype = m->file_dtype,
        .params = m->params,
        .bytes = model_bytes(m),
        .fingerprint = m->fingerprint,
        .seen_tasks = c->seen_tasks,
    };
}
