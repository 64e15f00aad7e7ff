/* native.c - the box whose model runs in this process. */
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
    info->kernels = kh_engine_kernels(e)->name;
    info->energy = true;
    info->next = kh_engine_model(e)->config.arch->causal;
    info->seen_tasks = m.seen_tasks;
}

/* Sums of rows first, then the sum of those: f32 numbers by the ten million lose nothing in double.
 */
static int embedding_stats(void *self, double *mean, double *std, kh_err *err) {
    const kh_tensor *word = &kh_engine_model(((native *)self)->engine)->w.word;
    float *row = kh_malloc((size_t)word->cols * sizeof *row);
    float scale = kh_config_word_scale(&kh_engine_model(((native *)self)->engine)->config);
    double sum = 0, squares = 0, n = (double)word->rows * (double)word->cols;
    if (!row)
        return kh_fail_memory(err);
    for (int r = 0; r < word->rows; r++) {
        double row_sum = 0, row_squares = 0;
        kh_tensor_row(word, r, row);
        for (int i = 0; i < word->cols; i++) {
            row[i] *= scale;
            row_sum += (double)row[i];
            row_squares += (double)row[i] * (double)row[i];
        }
        sum += row_sum;
        squares += row_squares;
    }
    kh_free(row);
    *mean = sum / n;
    *std = sqrt(squares / n - *mean * *mean);
    return 0;
}

static int embedding_row(void *self, int32_t id, float *row, kh_err *err) {
    const kh_tensor *word = &kh_engine_model(((native *)self)->engine)->w.word;
    if (id < 0 || id >= word->rows)
        return kh_fail(err, KH_EARG, "token id %d is outside the model's vocabulary of %d", (int)id,
            word->rows);
    kh_tensor_row(word, id, row);
    float scale = kh_config_word_scale(&kh_engine_model(((native *)self)->engine)->config);
    for (int i = 0; i < word->cols; i++)
        row[i] *= scale; /* what a row of a soft prompt stands for */
    return 0;
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
