/* native.c - the box whose model runs in this process. */
#include "plm/backend.h"

#include "base/alloc.h"
#include "base/err.h"
#include "model/engine.h"

typedef struct native {
    kh_engine *engine;
} native;

static int score(void *self, const kh_question *q, float *logits, kh_err *err) {
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
}

static void close_native(void *self) {
    if (self)
        kh_engine_free(((native *)self)->engine);
    kh_free(self);
}

static const kh_backend NATIVE = { "native", score, describe, close_native };

int kh_native_open(const kh_backend **out, void **self, const char *dir, const kh_plm_opts *opts, kh_err *err) {
    /* What will be packed as bf16 or less is read as bf16: a large model is never in memory as f32. */
    bool narrow = opts->precision == KH_BF16;
    kh_model *model;
    native *n = kh_calloc(1, sizeof *n);
    if (!n)
        return kh_fail_memory(err);
    int rc = kh_model_open(&model, dir,
        &(kh_model_opts){
            .store = narrow ? KH_DTYPE_BF16 : KH_DTYPE_ANY, .need_head = "answering questions", .hooks = opts->hooks },
        err);
    if (rc == 0)
        rc = kh_engine_new(&n->engine, model, opts->precision, err);
    if (rc != 0) {
        close_native(n);
        return rc;
    }
    *out = &NATIVE;
    *self = n;
    return 0;
}
