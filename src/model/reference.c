/* reference.c - one sequence through the encoder and the head, straight down the page; formulas in
 * doc/model.md.
 *
 * States are f32, every sum is taken in double and rounded once, weights are converted a row at a
 * time. So it is a little more exact than PyTorch in f32, and needs no memory beyond the states. No
 * threads and no blocking: whoever wants speed reads the fast path, whoever wants to know what is
 * right reads this.
 *
 * T tokens, H hidden, A heads of D = H / A, I inner, V vocabulary. */
#include "model/reference.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

/* Everything that is written during a run. */
typedef struct run_state {
    kh_slot *slot;          /* [T] */
    float *x;               /* [T, H] the states between the layers */
    float *q, *k, *v, *mix; /* [T, H] */
    float *up;              /* [T, I] */
    float *score;           /* [T] attention of one token in one head */
    float *row;             /* [max(H, I)] a row of weights */
} run_state;

/* Four running sums, because one would make the additions wait for each other. */
static double dot(const float *a, const float *b, int n) {
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        s0 += (double)a[i] * (double)b[i];
        s1 += (double)a[i + 1] * (double)b[i + 1];
        s2 += (double)a[i + 2] * (double)b[i + 2];
        s3 += (double)a[i + 3] * (double)b[i + 3];
    }
    for (; i < n; i++)
        s0 += (double)a[i] * (double)b[i];
    return (s0 + s1) + (s2 + s3);
}

/* x [T, C], w [D, C], b [D] -> y [T, D] = x w^T + b */
static void linear(
    const float *x, int n_token, const kh_tensor *w, const kh_tensor *b, float *row, float *y) {
    size_t in = (size_t)w->cols, out = (size_t)w->rows;
    const float *bias = b->data;
    for (int d = 0; d < w->rows; d++) {
        kh_tensor_row(w, d, row);
        for (size_t t = 0; t < (size_t)n_token; t++)
            y[t * out + (size_t)d] = (float)(dot(x + t * in, row, w->cols) + (double)bias[d]);
    }
}

/* Each row of x [T, H] to mean 0 and variance 1 (divided by H, not H - 1), then scaled by g and
 * moved by b. */
static void layer_norm(float *x, int n_token, const kh_tensor *g, const kh_tensor *b, double eps) {
    int n = g->cols;
    const float *scale = g->data, *shift = b->data;
    for (int t = 0; t < n_token; t++, x += n) {
        double mean = 0, variance = 0;
        for (int i = 0; i < n; i++)
            mean += (double)x[i];
        mean /= n;
        for (int i = 0; i < n; i++)
            variance += ((double)x[i] - mean) * ((double)x[i] - mean);
        double inverse = 1 / sqrt(variance / n + eps);
        for (int i = 0; i < n; i++)
            x[i] = (float)(((double)x[i] - mean) * inverse * (double)scale[i] + (double)shift[i]);
    }
}

static double activate(kh_act act, double x) {
    switch (act) {
    case KH_ACT_GELU: return 0.5 * x * (1 + erf(x * 0.70710678118654752440)); /* x / sqrt 2 */
    case KH_ACT_GELU_TANH:
        return 0.5 * x *
            (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))); /* sqrt(2 / pi) */
    case KH_ACT_RELU: return x > 0 ? x : 0;
    }
    return x;
}

static void activate_all(kh_act act, float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = (float)activate(act, (double)x[i]);
}

static void softmax(float *x, int n) {
    float max = x[0];
    double sum = 0;
    for (int i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int i = 0; i < n; i++)
        sum += exp((double)(x[i] - max));
    for (int i = 0; i < n; i++)
        x[i] = (float)(exp((double)(x[i] - max)) / sum);
}

/* word + position + type -> LayerNorm -> + prompt where it is added */
static void embed(const kh_model *m, const kh_input *in, int n_token, run_state *s) {
    const kh_weights *w = &m->w;
    size_t hidden = (size_t)m->config.hidden;
    kh_input_slots(m, in, s->slot);
    for (size_t t = 0; t < (size_t)n_token; t++) {
        float *x = s->x + t * hidden;
        if (s->slot[t].embedded >= 0)
            memcpy(x, in->prompt + (size_t)s->slot[t].embedded * hidden, hidden * sizeof *x);
        else
            kh_tensor_row(&w->word, s->slot[t].id, x);
        if (w->type.data) {
            kh_tensor_row(&w->type, 0, s->row);
            for (size_t i = 0; i < hidden; i++)
                x[i] += s->row[i];
        }
        kh_tensor_row(&w->position, s->slot[t].position, s->row);
        for (size_t i = 0; i < hidden; i++)
            x[i] += s->row[i];
    }
    layer_norm(s->x, n_token, &w->ln_g, &w->ln_b, m->config.eps);
    for (size_t t = 0; t < (size_t)n_token; t++)
        for (size_t i = 0; i < hidden && s->slot[t].added >= 0; i++)
            s->x[t * hidden + i] += in->prompt[(size_t)s->slot[t].added * hidden + i];
}

/* q, k, v [T, H] -> mix [T, H]: in each head, softmax(q k^T / sqrt D) v. Every token sees every
 * token. */
static void attend(const kh_config *c, int n_token, run_state *s) {
    size_t hidden = (size_t)c->hidden, tokens = (size_t)n_token;
    int width = c->hidden / c->heads;
    double scale = 1 / sqrt(width);
    for (size_t h = 0; h < hidden; h += (size_t)width)
        for (size_t t = 0; t < tokens; t++) {
            for (size_t u = 0; u < tokens; u++)
                s->score[u] =
                    (float)(dot(s->q + t * hidden + h, s->k + u * hidden + h, width) * scale);
            softmax(s->score, n_token);
            for (size_t i = h; i < h + (size_t)width; i++) {
                double sum = 0;
                for (size_t u = 0; u < tokens; u++)
                    sum += (double)s->score[u] * (double)s->v[u * hidden + i];
                s->mix[t * hidden + i] = (float)sum;
            }
        }
}

/* One layer: attention and feed-forward, each added to its input and normalised after that. */
static void run_layer(const kh_config *c, const kh_layer *w, int n_token, run_state *s) {
    size_t states = (size_t)n_token * (size_t)c->hidden;
    linear(s->x, n_token, &w->q_w, &w->q_b, s->row, s->q);
    linear(s->x, n_token, &w->k_w, &w->k_b, s->row, s->k);
    linear(s->x, n_token, &w->v_w, &w->v_b, s->row, s->v);
    attend(c, n_token, s);
    linear(s->mix, n_token, &w->o_w, &w->o_b, s->row, s->q);
    for (size_t i = 0; i < states; i++)
        s->x[i] += s->q[i];
    layer_norm(s->x, n_token, &w->ln1_g, &w->ln1_b, c->eps);
    linear(s->x, n_token, &w->up_w, &w->up_b, s->row, s->up);
    activate_all(c->act, s->up, (size_t)n_token * (size_t)c->inner);
    linear(s->up, n_token, &w->down_w, &w->down_b, s->row, s->q);
    for (size_t i = 0; i < states; i++)
        s->x[i] += s->q[i];
    layer_norm(s->x, n_token, &w->ln2_g, &w->ln2_b, c->eps);
}

/* The head at some places: dense, activation, LayerNorm, then a product with the decoder's row of
 * each wanted token. */
static void run_head(const kh_model *m, const kh_output *out, run_state *s) {
    const kh_weights *w = &m->w;
    size_t hidden = (size_t)m->config.hidden;
    int n_token = out->token ? out->n_token : m->config.vocab;
    const float *bias = w->decoder_b.data;
    for (size_t a = 0; a < (size_t)out->n_at; a++) {
        linear(s->x + (size_t)out->at[a] * hidden, 1, &w->head_w, &w->head_b, s->row, s->q);
        activate_all(m->config.head_act, s->q, hidden);
        layer_norm(s->q, 1, &w->head_ln_g, &w->head_ln_b, m->config.eps);
        for (int j = 0; j < n_token; j++) {
            int token = out->token ? out->token[j] : j;
            kh_tensor_row(&w->decoder_w, token, s->row);
            out->logits[a * (size_t)n_token + (size_t)j] =
                (float)(dot(s->q, s->row, m->config.hidden) + (double)bias[token]);
        }
    }
}

/* ------------------------------------------------------------------------------------ the call */

static int check_output(const kh_model *m, int n_token, const kh_output *out, kh_err *err) {
    int rc = out->n_at > 0 ? kh_model_needs_head(m, "a logit", err) : 0;
    for (int i = 0; i < out->n_at && rc == 0; i++)
        if (out->at[i] < 0 || out->at[i] >= n_token)
            rc = kh_fail(err, KH_EARG, "logits are wanted at place %d of a sequence of %d",
                out->at[i], n_token);
    for (int i = 0; out->n_at > 0 && out->token && i < out->n_token && rc == 0; i++)
        if (out->token[i] < 0 || out->token[i] >= m->config.vocab)
            rc = kh_fail(err, KH_EARG, "the logit of token %d is wanted, the vocabulary has %d",
                out->token[i], m->config.vocab);
    return rc;
}

static float *floats(size_t a, size_t b) {
    size_t bytes;
    return kh_mul(a, b, &bytes) && kh_mul(bytes, sizeof(float), &bytes) ? kh_aligned(bytes) : NULL;
}

static bool state_new(run_state *s, const kh_config *c, int n_token) {
    size_t tokens = (size_t)n_token, hidden = (size_t)c->hidden, inner = (size_t)c->inner;
    *s = (run_state){
        .slot = kh_calloc(tokens, sizeof *s->slot),
        .x = floats(tokens, hidden),
        .q = floats(tokens, hidden),
        .k = floats(tokens, hidden),
        .v = floats(tokens, hidden),
        .mix = floats(tokens, hidden),
        .up = floats(tokens, inner),
        .score = floats(tokens, 1),
        .row = floats(hidden > inner ? hidden : inner, 1),
    };
    return s->slot && s->x && s->q && s->k && s->v && s->mix && s->up && s->score && s->row;
}

static void state_free(run_state *s) {
    kh_free(s->slot);
    kh_free(s->x);
    kh_free(s->q);
    kh_free(s->k);
    kh_free(s->v);
    kh_free(s->mix);
    kh_free(s->up);
    kh_free(s->score);
    kh_free(s->row);
}

int kh_reference_run(const kh_model *m, const kh_input *in, const kh_output *out, kh_err *err) {
    int rc = kh_input_check(m, in, err);
    if (rc != 0)
        return rc;
    int n_token = kh_input_length(in);
    if ((rc = check_output(m, n_token, out, err)) != 0)
        return rc;
    run_state s;
    size_t states = (size_t)n_token * (size_t)m->config.hidden;
    if (!state_new(&s, &m->config, n_token)) {
        rc = kh_fail_memory(err);
        goto done;
    }
    embed(m, in, n_token, &s);
    for (int layer = 0; layer <= m->config.layers; layer++) {
        if (layer > 0)
            run_layer(&m->config, &m->w.layer[layer - 1], n_token, &s);
        if (out->hidden)
            memcpy(out->hidden + (size_t)layer * states, s.x, states * sizeof *s.x);
    }
    run_head(m, out, &s);
done:
    state_free(&s);
    return rc;
}
