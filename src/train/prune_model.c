/* prune_model.c - see prune_model.h: count, choose, copy. */
#include "train/prune_model.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/file.h"
#include "model/blocks.h"
#include "model/safetensors.h"
#include "model/weights.h"
#include "text/prune_vocab.h"

#include <stdlib.h>
#include <string.h>

typedef struct pruning {
    const kh_prune_opts *o;
    kh_model *model;
    kh_tokenizer *tokenizer;
    int n;         /* ids of the tokenizer */
    double *count; /* [n] */
    bool *keep;    /* [n] */
    int *old;      /* [kept] the old id of each new one */
    int kept;
} pruning;

/* ---------------------------------------------------------------------------------- which stay */

static int count_tokens(pruning *p, kh_err *err) {
    kh_corpus corpus = { 0 };
    kh_corpus_opts all = p->o->corpus;
    all.valid = NULL;
    all.valid_share = 0;
    int rc = kh_corpus_read(&corpus, p->tokenizer, &all, err);
    for (int f = 0; f < corpus.n_file && rc == 0; f++)
        for (size_t i = 0; i < corpus.file[f].n; i++) {
            int32_t id = corpus.file[f].id[i];
            if (id >= 0) /* a tokenizer without an end token ends its lines in -1 */
                p->count[id] += corpus.weight[f];
        }
    kh_corpus_free(&corpus);
    return rc;
}

static int keep_words(pruning *p, kh_err *err) {
    kh_ids ids = { 0 };
    int rc = 0;
    for (int i = 0; i < p->o->n_word && rc == 0; i++)
        rc = kh_tokenizer_encode(
            p->tokenizer, p->o->word[i], strlen(p->o->word[i]), KH_ENCODE_PLAIN, &ids, err);
    for (int i = 0; i < ids.n; i++)
        p->keep[ids.id[i]] = true;
    kh_ids_free(&ids);
    return rc;
}

typedef struct candidate {
    double count;
    int id;
} candidate;

static int by_count(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->id - y->id;
}

/* Fills what room is left with the most frequent tokens. */
static int keep_frequent(pruning *p, kh_err *err) {
    int must = 0, n = 0;
    candidate *rest = kh_calloc((size_t)p->n, sizeof *rest);
    if (!rest)
        return kh_fail_memory(err);
    for (int id = 0; id < p->n; id++) {
        must += p->keep[id];
        if (!p->keep[id] && p->count[id] > 0)
            rest[n++] = (candidate){ p->count[id], id };
    }
    qsort(rest, (size_t)n, sizeof *rest, by_count);
    int room = p->o->vocab - must;
    for (int i = 0; i < n && i < room; i++)
        p->keep[rest[i].id] = true;
    kh_free(rest);
    if (room < 0)
        return kh_fail(err, KH_EARG,
            "%s: %d tokens (special ones, single characters, label words) must stay; %d are too "
            "few",
            p->o->model, must, p->o->vocab);
    return 0;
}

static int choose(pruning *p, kh_pruned *out, kh_err *err) {
    double stayed = 0, total = 0;
    int rc = kh_prune_mark(p->tokenizer, p->keep, p->o->model, err);
    if (rc != 0 || (rc = keep_words(p, err)) != 0 || (rc = count_tokens(p, err)) != 0 ||
        (rc = keep_frequent(p, err)) != 0)
        return rc;
    for (int id = 0; id < p->n; id++) {
        if (p->keep[id])
            p->old[p->kept++] = id;
        stayed += p->keep[id] ? p->count[id] : 0;
        total += p->count[id];
    }
    *out = (kh_pruned){ .before = p->n, .after = p->kept, .covered = stayed / total };
    return 0;
}

/* ------------------------------------------------------------------------------------- copying */

static int new_config(const pruning *p, kh_config *c, kh_err *err) {
    *c = p->model->config;
    if (c->arch->causal)
        return kh_fail(err, KH_EUNSUPPORTED, "%s: a %s model is a decoder; encoders are pruned",
            p->o->model, c->arch->type);
    int pad = 0;
    while (pad < p->kept && p->old[pad] < c->pad)
        pad++;
    if (c->arch->family == KH_FAMILY_ROBERTA && pad != c->pad)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: the padding token would move from id %d to %d, and with it all positions of a %s "
            "model",
            p->o->model, c->pad, pad, c->arch->type);
    c->pad = pad;
    c->vocab = p->kept;
    return 0;
}

typedef struct copier {
    const pruning *p;
    kh_safetensors_writer *out;
    kh_dtype dtype;
    void *row; /* scratch, the longest row in floats */
} copier;

static int put(const copier *c, const char *numbers, kh_dtype from, size_t n, kh_err *err) {
    kh_numbers_convert(numbers, from, c->row, c->dtype, n);
    return kh_safetensors_put(c->out, c->row, n * kh_dtype_bytes(c->dtype), err);
}

/* Rows of the vocabulary are picked, elements of a vector over the vocabulary too. */
static int copy_tensor(const copier *c, const kh_weight *w, const kh_tensor *t, kh_err *err) {
    const char *data = t->data;
    size_t cols = (size_t)t->cols;
    bool words = w->rows == 'V', vector = w->rows == 0 && w->cols == 'V';
    int rows = words || vector ? c->p->kept : t->rows, rc = 0;
    for (int i = 0; i < rows && rc == 0; i++) {
        size_t from = (size_t)(words || vector ? c->p->old[i] : i);
        rc = put(c, data + kh_numbers_bytes(t->dtype, from * (vector ? 1 : cols)), t->dtype,
            vector ? 1 : cols, err);
    }
    return rc;
}

/* Every tensor of the model, in the order of the file. */
static int copy_tensors(const copier *c, kh_err *err) {
    kh_model *m = c->p->model;
    int rc = 0;
    for (const kh_weight *w = kh_weight_table; w->cols && rc == 0; w++)
        if (kh_weight_wanted(w, &m->config, m->head))
            for (int layer = 0; layer < (w->layered ? m->config.layers : 1) && rc == 0; layer++)
                rc = copy_tensor(c, w, kh_weight_tensor(w, &m->w, layer), err);
    return rc;
}

static kh_array *make_plan(const pruning *p, const kh_config *now, kh_dtype dtype, kh_arena *arena,
    int *n, size_t *params) {
    const kh_model *m = p->model;
    size_t rows = 0;
    for (const kh_weight *w = kh_weight_table; w->cols; w++)
        rows += w->layered ? (size_t)now->layers : 1;
    kh_array *plan = kh_arena_array(arena, rows, sizeof *plan);
    *n = 0;
    for (const kh_weight *w = kh_weight_table; plan && w->cols; w++)
        for (int layer = 0;
             kh_weight_wanted(w, now, m->head) && layer < (w->layered ? now->layers : 1); layer++) {
            if (kh_weight_left_out(w, now, layer))
                continue;
            char name[256];
            kh_array *a = &plan[(*n)++];
            kh_weight_name(w, now, m->head, layer, 0, name, sizeof name);
            *a = (kh_array){ .name = kh_arena_strndup(arena, name, strlen(name)), .dtype = dtype };
            a->rank = kh_weight_shape(w, now, a->shape);
            *params += a->shape[0] * (a->rank > 1 ? a->shape[1] : 1);
            if (!a->name)
                return NULL;
        }
    return plan;
}

static int write_weights(const pruning *p, const kh_config *now, kh_dtype dtype, const char *path,
    size_t *params, kh_err *err) {
    kh_arena arena = { 0 };
    int n, longest = now->inner > now->hidden ? now->inner : now->hidden;
    kh_array *plan = make_plan(p, now, dtype, &arena, &n, params);
    copier c = { .p = p, .dtype = dtype, .row = kh_aligned((size_t)longest * sizeof(float)) };
    int rc =
        plan && c.row ? kh_safetensors_create(&c.out, path, plan, n, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = copy_tensors(&c, err);
    int closed = kh_safetensors_finish(c.out, rc == 0, rc == 0 ? err : NULL);
    kh_free(c.row);
    kh_arena_free(&arena);
    return rc ? rc : closed;
}

static int write_model(const pruning *p, size_t *params, kh_err *err) {
    const char *dir = p->o->out;
    kh_dtype dtype = p->o->dtype != KH_DTYPE_ANY ? p->o->dtype : p->model->file_dtype;
    if (kh_is_blocks(dtype))
        dtype = KH_DTYPE_F32; /* rounding again would lose more */
    kh_config now;
    int rc = new_config(p, &now, err);
    if (rc != 0)
        return rc;
    kh_buf config = kh_buf_init(1 << 16);
    char *config_path = kh_path_join(dir, "config.json"),
         *weights_path = kh_path_join(dir, "model.safetensors");
    kh_config_put(&now, dtype, &config);
    if (!config_path || !weights_path || kh_buf_failed(&config))
        rc = kh_fail_memory(err);
    else if ((rc = kh_dir_make(dir, err)) == 0 &&
        (rc = write_weights(p, &now, dtype, weights_path, params, err)) == 0 &&
        (rc = kh_prune_write(p->o->model, p->keep, p->n, dir, err)) == 0)
        rc = kh_file_write(config_path, config.data, config.len, err);
    kh_buf_free(&config);
    kh_free(config_path);
    kh_free(weights_path);
    return rc;
}

int kh_model_prune(kh_pruned *out, const kh_prune_opts *o, kh_err *err) {
    pruning p = { .o = o };
    *out = (kh_pruned){ 0 };
    int rc = kh_tokenizer_open(&p.tokenizer, o->model, err);
    if (rc == 0)
        rc = kh_model_open(&p.model, o->model, &(kh_model_opts){ .hooks = o->corpus.hooks }, err);
    if (rc != 0)
        goto done;
    if (p.model->config.embed > 0) {
        rc = kh_fail(err, KH_EUNSUPPORTED, "%s: words of %s models are not taken away", o->model,
            p.model->config.arch->type);
        goto done;
    }
    p.n = kh_tokenizer_size(p.tokenizer);
    if (p.n > p.model->config.vocab) {
        rc = kh_fail(err, KH_EMISMATCH,
            "%s: the tokenizer has %d tokens, more than the %d of the model", o->model, p.n,
            p.model->config.vocab);
        goto done;
    }
    p.count = kh_calloc((size_t)p.n, sizeof *p.count);
    p.keep = kh_calloc((size_t)p.n, sizeof *p.keep);
    p.old = kh_calloc((size_t)p.n, sizeof *p.old);
    if (!p.count || !p.keep || !p.old)
        rc = kh_fail_memory(err);
    else if ((rc = choose(&p, out, err)) == 0)
        rc = write_model(&p, &out->params, err);
done:
    kh_free(p.count);
    kh_free(p.keep);
    kh_free(p.old);
    kh_model_close(p.model);
    kh_tokenizer_close(p.tokenizer);
    return rc;
}
