/* p_tuning.c - P-tuning v2 (Liu et al. 2022): keys and values in front of those of every layer,
 * learned by gradients through the frozen model, without a network that makes them. They start as
 * keys and values of tokens of the train rows (Li and Liang 2021 found real words the best start
 * with few examples), but with keys that hardly anything attends to: a few dozen more tokens in
 * front would change what the model says before anything is learned. The text has no slots, and
 * prefixes take no positions. */
#include "tune/descent.h"

#include "base/alloc.h"
#include "base/blas.h"
#include "base/err.h"
#include "model/engine.h"
#include "plm/backend.h"
#include "plm/trainable.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

typedef struct prefix_opts {
    kh_descent_opts descent;
} prefix_opts;

static const kh_opt prefix_table[] = {
    KH_DESCENT_ROWS(prefix_opts, descent, "5e-3", "100", "0"),
    KH_GRADIENT_PASS_ROWS(prefix_opts, descent, "0"),
    { 0 },
};

static int prefix_pass(void *self, kh_pass_f32 *out, kh_err *err) {
    const kh_adapter *g = self;
    (void)err;
    out->prefix = g->x;
    out->n_prefix = g->slots;
    return 0;
}

/* y [n, H] = x [n, H] w [H, H]^T + b [H] */
static void project(
    const float *x, const kh_tensor *w, const kh_tensor *b, int n, int hidden, float *y) {
    for (int i = 0; i < n; i++)
        memcpy(y + (size_t)i * (size_t)hidden, b->data, (size_t)hidden * sizeof *y);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, hidden, hidden, 1, x, hidden, w->data,
        hidden, 1, y, hidden);
}

/* A key's score falls by log(slots) for the mean query, head by head: all prefixes together then
 * weigh about as much as one token. Shifting a key by -c q changes its score with query q by -c
 * |q|^2 / sqrt(width): c is chosen so that the mean query's score falls by log(slots). */
static void push_away(const kh_adapter *g, int heads, const float *query, float *key) {
    size_t h = (size_t)g->hidden, width = h / (size_t)heads;
    for (size_t head = 0; head < h; head += width) {
        double square = 0;
        for (size_t i = head; i < head + width; i++)
            square += (double)query[i] * (double)query[i];
        float by = square > 0 ? (float)(log(g->slots) * sqrt((double)width) / square) : 0;
        for (size_t slot = 0; slot < (size_t)g->slots; slot++)
            for (size_t i = head; i < head + width; i++)
                key[slot * h + i] -= by * query[i];
    }
}

/* The input of one layer for some rows, [tokens, H]: what its prefixes start from. pick [slots, H]
 * and mean [H] are scratch. */
static void start_layer(const kh_adapter *g, const kh_config *c, const kh_layer *w,
    const float *state, int tokens, float *pick, float *mean, float *key) {
    size_t h = (size_t)g->hidden, size = (size_t)g->slots * h;
    for (size_t i = 0; i < (size_t)g->slots; i++) /* spread over all rows */
        memcpy(pick + i * h, state + (i * (size_t)tokens / (size_t)g->slots) * h, h * sizeof *pick);
    for (size_t i = 0; i < h; i++) {
        double sum = 0;
        for (size_t t = 0; t < (size_t)tokens; t++)
            sum += (double)state[t * h + i];
        mean[i] = (float)(sum / tokens);
    }
    float *query = mean + h;
    project(pick, &w->k_w, &w->k_b, g->slots, g->hidden, key);
    project(pick, &w->v_w, &w->v_b, g->slots, g->hidden, key + size);
    project(mean, &w->q_w, &w->q_b, 1, g->hidden, query);
    push_away(g, c->heads, query, key);
}

static int start(kh_adapter *g, kh_trainable *box, kh_engine *e, kh_err *err) {
    /* Enough tokens to spread the slots over, whatever the data set. */
    enum { ROWS = 64 };
    const kh_batch rows =
        kh_batch_part(box->train, 0, box->train->n_row < ROWS ? box->train->n_row : ROWS);
    const kh_question ask = { .batch = &rows, .inject = KH_INJECT_NONE };
    int tokens = (int)(rows.start[rows.n_seq] - rows.start[0]), rc = 0;
    size_t h = (size_t)g->hidden;
    kh_weights view = { .layer = kh_calloc((size_t)g->layers, sizeof *view.layer) };
    float *state = kh_calloc((size_t)tokens * h, sizeof *state),
          *pick = kh_calloc((size_t)g->slots * h, sizeof *pick);
    float *mean = kh_calloc(2 * h, sizeof *mean);
    if (!view.layer || !state || !pick || !mean)
        rc = kh_fail_memory(err);
    if (rc == 0)
        kh_params_view(&box->params, box->w, sizeof *box->w, &view);
    kh_blas_hold(); /* the same bits for any number of threads */
    for (int l = 0; l < g->layers && rc == 0; l++)
        if ((rc = kh_engine_hidden(e, &ask, l, state, err)) == 0)
            start_layer(g, &box->params.config, &view.layer[l], state, tokens, pick, mean,
                g->x + 2 * (size_t)l * (size_t)g->slots * h);
    kh_blas_release();
    kh_free(view.layer);
    kh_free(state);
    kh_free(pick);
    kh_free(mean);
    return rc;
}

/* Room for the prefixes, and what they start as. */
static int make_prefix(kh_adapter *g, kh_trainable *box, const kh_tuning *t, kh_err *err) {
    kh_engine *e;
    int rc = kh_plm_trainable(t->plm, &e, err);
    *g = (kh_adapter){ .kind = KH_ADAPTER_PREFIX,
        .hidden = box->params.config.hidden,
        .layers = box->params.config.layers,
        .slots = t->o->space.slots };
    if (rc == 0 && !(g->x = kh_calloc(kh_adapter_size(g), sizeof *g->x)))
        rc = kh_fail_memory(err);
    return rc ? rc : start(g, box, e, err);
}

static int run_p_tuning(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    const prefix_opts *o = opts;
    kh_trainable box = { 0 };
    kh_adapter adapter = { 0 };
    int rc = kh_trainable_init(&box, t, KH_WRT_PREFIX, err);
    if (rc == 0)
        rc = make_prefix(&adapter, &box, t, err);
    kh_gradient_pass through = {
        .t = t, .o = &o->descent, .box = &box, .pass = prefix_pass, .self = &adapter
    };
    if (rc == 0)
        rc = kh_gradient_pass_learn(&through, KH_WRT_PREFIX, adapter.slots, "p-tuning-v2",
            adapter.x, kh_adapter_size(&adapter), err);
    if (rc == 0)
        rc = kh_posterior_set_adapter(p, &adapter, err);
    if (rc == 0)
        rc = kh_tuning_judge(t, p, t->plm, err); /* by the engine, which will answer from now on */
    kh_trainable_free(&box);
    kh_free(adapter.x);
    return rc;
}

const kh_method kh_method_p_tuning_v2 = {
    .name = "p-tuning-v2",
    .summary = "keys and values in front of every layer's, learned by gradients",
    .access = KH_ACCESS_WEIGHTS,
    .holds = true,
    .opts = prefix_table,
    .opts_size = sizeof(prefix_opts),
    .least = kh_descent_least,
    .run = run_p_tuning,
};
