/* p_tuning.c - P-tuning v2 (Liu et al. 2022): keys and values in front of those of every layer, learned by gradients through
 * the frozen model, without a network that makes them. They start as the keys and values that the model itself computes for
 * the words of P0 (Li and Liang 2021 found real words the best start with few examples). The text has no slots, and prefixes
 * take no positions. */
#include "tune/descent.h"

#include "base/alloc.h"
#include "base/err.h"
#include "model/engine.h"
#include "plm/inside.h"

#include <cblas.h>
#include <string.h>

typedef struct prefix_opts {
    kh_descent_opts descent;
} prefix_opts;

static const kh_opt prefix_table[] = {
    KH_DESCENT_ROWS(prefix_opts, descent, "5e-3", "100", "0"),
    KH_PASSAGE_ROWS(prefix_opts, descent, "0"),
    { 0 },
};

static int prefix_pass(void *self, kh_pass_f32 *out, kh_err *err) {
    const kh_graft *g = self;
    (void)err;
    out->prefix = g->x;
    out->n_prefix = g->slots;
    return 0;
}

/* y [n, H] = x [n, H] w [H, H]^T + b [H] */
static void project(const float *x, const kh_tensor *w, const kh_tensor *b, int n, int hidden, float *y) {
    for (int i = 0; i < n; i++)
        memcpy(y + (size_t)i * (size_t)hidden, b->data, (size_t)hidden * sizeof *y);
    cblas_sgemm(
        CblasRowMajor, CblasNoTrans, CblasTrans, n, hidden, hidden, 1, x, hidden, w->data, hidden, 1, y, hidden);
}

/* The words of P0 pass the model as a text of their own; each layer's input makes that layer's keys and values. */
static int start(kh_graft *g, kh_open_box *box, const int32_t *word, kh_engine *e, kh_err *err) {
    size_t size = (size_t)g->slots * (size_t)g->hidden;
    kh_weights view = { .layer = kh_calloc((size_t)g->layers, sizeof *view.layer) };
    float *state = kh_calloc(size, sizeof *state);
    kh_single text;
    kh_single_init(&text, word, g->slots);
    int rc = view.layer && state ? 0 : kh_fail_memory(err);
    if (rc == 0)
        kh_params_view(&box->params, box->w, sizeof *box->w, &view);
    openblas_set_num_threads(1); /* the same bits for any number of threads */
    for (int l = 0; l < g->layers && rc == 0; l++) {
        const kh_layer *w = &view.layer[l];
        float *key = g->x + 2 * (size_t)l * size;
        rc = kh_engine_hidden(e, &(kh_question){ .batch = &text.batch, .inject = KH_INJECT_NONE }, l, state, err);
        if (rc == 0) {
            project(state, &w->k_w, &w->k_b, g->slots, g->hidden, key);
            project(state, &w->v_w, &w->v_b, g->slots, g->hidden, key + size);
        }
    }
    kh_free(view.layer);
    kh_free(state);
    return rc;
}

/* Room for the prefixes, and what they start as. */
static int make_prefix(kh_graft *g, kh_open_box *box, const kh_tuning *t, kh_err *err) {
    kh_space words = { 0 };
    kh_space_opts o = t->o->space;
    kh_engine *e;
    o.projection = KH_PROJECTION_IDENTITY; /* only P0's words are wanted */
    int rc = kh_plm_inside(t->plm, &e, err);
    if (rc == 0)
        rc = kh_space_init(&words, &o, t->plm, t->o->seed, err);
    *g = (kh_graft){ .kind = KH_GRAFT_PREFIX,
        .hidden = box->params.config.hidden,
        .layers = box->params.config.layers,
        .slots = words.slots };
    if (rc == 0 && !(g->x = kh_calloc(kh_graft_size(g), sizeof *g->x)))
        rc = kh_fail_memory(err);
    if (rc == 0)
        rc = start(g, box, words.slot_id, e, err);
    kh_space_free(&words);
    return rc;
}

static int run_p_tuning(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    const prefix_opts *o = opts;
    kh_open_box box = { 0 };
    kh_graft graft = { 0 };
    kh_gradient *g = NULL;
    int rc = kh_open_box_init(&box, t, false, err);
    if (rc == 0)
        rc = make_prefix(&graft, &box, t, err);
    size_t n = kh_graft_size(&graft);
    if (rc == 0)
        rc = kh_gradient_new(&g, &box.params, o->descent.shards, KH_WRT_PREFIX, 0, graft.slots, err);
    kh_passage through = {
        .t = t, .o = &o->descent, .box = &box, .gradient = g, .pass = prefix_pass, .slope = kh_gradient_prefix, .self = &graft
    };
    kh_descent d = { .t = t,
        .o = &o->descent,
        .phase = "p-tuning-v2",
        .x = graft.x,
        .n = n,
        .segment = &(kh_segment){ n, true },
        .n_segment = 1 };
    kh_descent_through(&d, &through);
    if (rc == 0)
        rc = kh_descent_run(&d, err);
    if (rc == 0)
        rc = kh_posterior_set_graft(p, &graft, err);
    if (rc == 0)
        rc = kh_tuning_judge(t, p, t->plm, err); /* by the engine, which will answer from now on */
    kh_gradient_free(g);
    kh_open_box_free(&box);
    kh_free(graft.x);
    return rc;
}

static long long dev_once(const kh_tuning *t, const void *opts) {
    (void)opts;
    return t->n_dev;
}

const kh_method kh_method_p_tuning_v2 = {
    .name = "p-tuning-v2",
    .summary = "keys and values in front of every layer's, learned by gradients",
    .access = KH_ACCESS_WEIGHTS,
    .opts = prefix_table,
    .opts_size = sizeof(prefix_opts),
    .least = dev_once,
    .run = run_p_tuning,
};
