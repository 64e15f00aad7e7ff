/* model_tuning.c - all weights, learned by gradients through template and label words. The result
 * is a model of its own, in Hugging Face layout under "model" in the run's folder, and a posterior
 * that is the plain template with that model. */
#include "tune/descent.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "plm/trainable.h"
#include "text/tokenizer.h"

typedef struct model_opts {
    kh_descent_opts descent;
} model_opts;

static const kh_opt model_table[] = {
    KH_DESCENT_ROWS(model_opts, descent, "3e-5", "30", "0.01"),
    KH_GRADIENT_PASS_ROWS(model_opts, descent, "0"),
    { 0 },
};

/* Biases and gains of norms do not decay. */
static int make_segments(const kh_params *p, kh_param_group **out, int *n, kh_err *err) {
    kh_param_group *s = *out = kh_calloc((size_t)p->n, sizeof *s);
    *n = 0;
    for (int i = 0; s && i < p->n; i++)
        s[(*n)++] = (kh_param_group){ (size_t)p->item[i].rows * (size_t)p->item[i].cols,
            kh_param_decays(&p->item[i]) };
    return s ? 0 : kh_fail_memory(err);
}

/* Writes the model, opens it as everybody will, and lets it answer the dev rows. */
static int publish(
    kh_tuning *t, const kh_trainable *box, const char *dir, kh_posterior *p, kh_err *err) {
    kh_plm *plm = NULL;
    int rc = kh_dir_make_own(dir, err);
    if (rc == 0 && (rc = kh_params_save(&box->params, box->w, dir, KH_DTYPE_F32, err)) == 0)
        rc = kh_tokenizer_copy(box->dir, dir, err);
    if (rc == 0)
        rc = kh_plm_open(&plm, dir, &(kh_plm_opts){ .access = KH_ACCESS_LOGPROBS }, err);
    if (rc == 0) {
        p->fingerprint = kh_plm_describe(plm).fingerprint;
        p->tokenizer = kh_tokenizer_fingerprint(kh_plm_tokenizer(plm));
        p->model = kh_posterior_keep(p, dir);
        p->precision = kh_posterior_keep(p, kh_plm_describe(plm).precision);
        rc = p->model && p->precision ? kh_posterior_add(p, NULL, 0, err) : kh_fail_memory(err);
    }
    if (rc == 0)
        rc = kh_tuning_judge(t, p, plm, err);
    if (rc == 0) {
        kh_meter m = kh_plm_meter(plm); /* of another box than the one in the books */
        kh_plm_count_passes(t->plm, (int)m.queries, m.tokens, false, m.seconds);
    }
    kh_plm_close(plm);
    return rc;
}

/* Access level weights, but the result is asked at log-probabilities like any other model: the
 * folder is all that is left of the training. */
static int run_model_tuning(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    const model_opts *o = opts;
    kh_trainable box = { 0 };
    kh_gradient *g = NULL;
    kh_param_group *segment = NULL;
    int n_segment = 0;
    if (!t->o->folder)
        return kh_fail(err, KH_EARG, "model-tuning makes a model and must be told a folder for it");
    char *dir = kh_path_join(t->o->folder, "model");
    int rc = dir ? kh_trainable_init(&box, t, KH_WRT_WEIGHTS, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = make_segments(&box.params, &segment, &n_segment, err);
    if (rc == 0)
        rc = kh_gradient_new(&g, &box.params, o->descent.shards, KH_WRT_WEIGHTS, 0, 0, err);
    kh_gradient_pass through = {
        .t = t, .o = &o->descent, .box = &box, .gradient = g, .slope = kh_gradient_weights
    };
    kh_descent d = { .t = t,
        .o = &o->descent,
        .phase = "model-tuning",
        .x = box.w,
        .n = box.params.size,
        .segment = segment,
        .n_segment = n_segment };
    kh_descent_through(&d, &through);
    if (rc == 0)
        rc = kh_descent_run(&d, err);
    if (rc == 0)
        rc = publish(t, &box, dir, p, err);
    kh_gradient_free(g);
    kh_trainable_free(&box);
    kh_free(segment);
    kh_free(dir);
    return rc;
}

const kh_method kh_method_model_tuning = {
    .name = "model-tuning",
    .summary = "all weights, learned by gradients: a model of its own",
    .access = KH_ACCESS_WEIGHTS,
    .holds = true,
    .opts = model_table,
    .opts_size = sizeof(model_opts),
    .run = run_model_tuning,
};
