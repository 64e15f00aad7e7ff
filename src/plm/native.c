/* native.c - the box whose model runs in this process.
 *
 * The engine does the work; what is here is what a box must tell about itself, and word embeddings
 * as rows of soft prompts see them. A question is answered in one call: batching and threads are
 * the engine's business. */
#include "plm/backend.h"

#include "base/alloc.h"
#include "base/err.h"
#include "model/engine.h"

#include <math.h>

typedef struct native {
    kh_engine *engine;
} native;

static int score(void *self, const kh_question *q, float *logits, float *energy, kh_err *err) {
    (void)energy;
    return kh_engine_score(((native *)self)->engine, q, logits, err);
}

static void describe(const void *self, kh_plm_info *info) {
    const kh_engine *e = ((const native *)self)->engine;
    kh_model_info m = kh_model_describe(kh_engine_model(e));
    info->hidden = m.hidden;
    info->max_len = m.max_tokens;
    info->fingerprint = m.fingerprint;
    info->precision = kh_precision_name(kh_engine_precision(e));
    info->kernels = kh_engine_kernels(e)->bits;
    info->energy = true;
    info->next = kh_engine_model(e)->config.arch->causal;
    info->seen_tasks = m.seen_tasks;
}

/* What a row of a soft prompt stands for: a word embedding as the layers see it, so that rows have
 * the width of hidden states also where embeddings have one of their own. */
typedef struct word_rows {
    const kh_model *model;
    float *project; /* [H, E], or NULL */
    float *word;    /* [E] */
} word_rows;

/* The projection is expanded once for all words; a small matrix. */
static bool rows_open(word_rows *r, const kh_engine *e) {
    const kh_model *m = kh_engine_model(e);
    const kh_tensor *p = &m->w.project_w;
    *r = (word_rows){ .model = m,
        .word = kh_malloc((size_t)m->w.word.cols * sizeof(float)),
        .project = p->data ? kh_malloc((size_t)p->rows * (size_t)p->cols * sizeof(float)) : NULL };
    for (int h = 0; p->data && r->project && h < p->rows; h++)
        kh_tensor_row(p, h, r->project + (size_t)h * (size_t)p->cols);
    return r->word && (!p->data || r->project);
}

static void rows_close(word_rows *r) {
    kh_free(r->word);
    kh_free(r->project);
}

static void rows_get(const word_rows *r, int32_t id, float *out) {
    size_t E = (size_t)r->model->w.word.cols, H = (size_t)r->model->config.hidden;
    float scale = kh_config_word_scale(&r->model->config);
    kh_tensor_row(&r->model->w.word, id, r->project ? r->word : out);
    for (size_t h = 0; h < H && r->project; h++) {
        double sum = 0;
        for (size_t i = 0; i < E; i++)
            sum += (double)r->word[i] * (double)r->project[h * E + i];
        out[h] = (float)sum;
    }
    for (size_t h = 0; h < H; h++)
        out[h] *= scale;
}

/* Sums of rows first, then the sum of those: f32 numbers by the ten million lose nothing in double.
 * Asked once a run: a pass over the vocabulary. */
static int embedding_stats(void *self, double *mean, double *std, kh_err *err) {
    const kh_model *m = kh_engine_model(((native *)self)->engine);
    int H = m->config.hidden;
    double sum = 0, squares = 0, n = (double)m->config.vocab * (double)H;
    float *row = kh_malloc((size_t)H * sizeof *row);
    word_rows r;
    bool ok = rows_open(&r, ((native *)self)->engine) && row;
    for (int w = 0; w < m->config.vocab && ok; w++) {
        double row_sum = 0, row_squares = 0;
        rows_get(&r, w, row);
        for (int i = 0; i < H; i++) {
            row_sum += (double)row[i];
            row_squares += (double)row[i] * (double)row[i];
        }
        sum += row_sum;
        squares += row_squares;
    }
    kh_free(row);
    rows_close(&r);
    *mean = sum / n;
    *std = sqrt(squares / n - *mean * *mean);
    return ok ? 0 : kh_fail_memory(err);
}

static int embedding_row(void *self, int32_t id, float *row, kh_err *err) {
    const kh_model *m = kh_engine_model(((native *)self)->engine);
    word_rows r;
    if (id < 0 || id >= m->config.vocab)
        return kh_fail(err, KH_EARG, "token id %d is outside the model's vocabulary of %d", (int)id,
            m->config.vocab);
    bool ok = rows_open(&r, ((native *)self)->engine);
    if (ok)
        rows_get(&r, id, row);
    rows_close(&r);
    return ok ? 0 : kh_fail_memory(err);
}

static void close_native(void *self) {
    if (self)
        kh_engine_free(((native *)self)->engine);
    kh_free(self);
}

static kh_engine *engine(void *self) { return ((native *)self)->engine; }

static const kh_backend NATIVE = { .name = "native",
    .score = score,
    .describe = describe,
    .embedding_stats = embedding_stats,
    .embedding_row = embedding_row,
    .engine = engine,
    .close = close_native };

int kh_native_open(
    const kh_backend **out, void **self, const char *dir, const kh_plm_opts *opts, kh_err *err) {
    /* What will be packed as bf16 or less is read as bf16: a large model is never in memory as f32.
     */
    bool narrow = opts->precision == KH_BF16;
    kh_model *model;
    native *n = kh_calloc(1, sizeof *n);
    if (!n)
        return kh_fail_memory(err);
    int rc = kh_model_open(&model, dir,
        &(kh_model_opts){ .store = narrow ? KH_DTYPE_BF16 : KH_DTYPE_ANY,
            .need_head = "answering questions",
            .hooks = opts->hooks },
        err);
    if (rc == 0)
        rc = kh_engine_new(&n->engine, model, opts->precision, err);
    if (rc == 0)
        kh_engine_cache(n->engine, opts->cache);
    if (rc != 0) {
        close_native(n);
        return rc;
    }
    *out = &NATIVE;
    *self = n;
    return 0;
}
