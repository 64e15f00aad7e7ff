/* reference.c - one sequence through the layers and the head, straight down the page; formulas in
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
    kh_slot *slot;    /* [T] */
    float *x;         /* [T, H] the states between the layers */
    float *q, *mix;   /* [T, Q]; Q = A D, K = heads of keys and values times D */
    float *k, *v;     /* [T, K] */
    float *y;         /* [T, H] a normalised copy of x, or what is added to it */
    float *up, *gate; /* [T, I] */
    double *turn;     /* [D / 2] radians a position, of the layer */
    float *score;     /* [T] attention of one token in one head */
    float *row;       /* [max(H, I)] a row of weights */
    float *embedded;  /* [T, E] where E is not H */
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
            y[t * out + (size_t)d] =
                (float)(dot(x + t * in, row, w->cols) + (bias ? (double)bias[d] : 0));
    }
}

/* Each row of x [T, H] to mean 0 and variance 1 (divided by H, not H - 1), then scaled by g and
 * moved by b, if there is one. */
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
            x[i] = (float)(((double)x[i] - mean) * inverse * (double)scale[i] +
                (shift ? (double)shift[i] : 0));
    }
}

/* Each row to a mean square of 1, then scaled by g, or by 1 + g. */
static void rms_norm(float *x, int rows, const kh_tensor *g, double eps, double plus) {
    int n = g->cols;
    const float *scale = g->data;
    for (int t = 0; t < rows; t++, x += n) {
        double inverse = 1 / sqrt(dot(x, x, n) / n + eps);
        for (int i = 0; i < n; i++)
            x[i] = (float)((double)x[i] * inverse * ((double)scale[i] + plus));
    }
}

/* The norm of the architecture; b is absent where it has no bias. */
static void norm(const kh_config *c, float *x, int rows, const kh_tensor *g, const kh_tensor *b) {
    if (c->arch->norm == KH_NORM_LAYER)
        layer_norm(x, rows, g, b, c->eps);
    else
        rms_norm(x, rows, g, c->eps, c->arch->norm == KH_NORM_RMS_PLUS ? 1 : 0);
}

static double activate(kh_act act, double x) {
    switch (act) {
    case KH_ACT_GELU: return 0.5 * x * (1 + erf(x * 0.70710678118654752440)); /* x / sqrt 2 */
    case KH_ACT_GELU_TANH:
        return 0.5 * x *
            (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))); /* sqrt(2 / pi) */
    case KH_ACT_RELU: return x > 0 ? x : 0;
    case KH_ACT_SILU: return x / (1 + exp(-x));
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

static void add_to(float *x, const float *y, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

/* word + position + type -> LayerNorm -> + prompt where it is added; what is absent is left out */
static void embed(const kh_model *m, const kh_input *in, int n_token, run_state *s) {
    const kh_weights *w = &m->w;
    size_t hidden = (size_t)m->config.hidden, wide = (size_t)kh_config_embed(&m->config);
    float *e = w->project_w.data ? s->embedded : s->x; /* [T, E] */
    float scale = kh_config_word_scale(&m->config);
    kh_input_slots(m, in, s->slot);
    for (size_t t = 0; t < (size_t)n_token; t++) {
        float *x = e + t * wide;
        if (s->slot[t].embedded >= 0)
            memcpy(x, in->prompt + (size_t)s->slot[t].embedded * wide, wide * sizeof *x);
        else
            kh_tensor_row(&w->word, s->slot[t].id, x);
        for (size_t i = 0; i < wide && s->slot[t].embedded < 0; i++)
            x[i] *= scale;
        if (w->type.data) {
            kh_tensor_row(&w->type, 0, s->row);
            add_to(x, s->row, wide);
        }
        if (w->position.data) {
            kh_tensor_row(&w->position, s->slot[t].position, s->row);
            add_to(x, s->row, wide);
        }
    }
    if (m->config.arch->embed_norm)
        norm(&m->config, e, n_token, &w->ln_g, &w->ln_b);
    if (w->project_w.data)
        linear(e, n_token, &w->project_w, &w->project_b, s->row, s->x);
    for (size_t t = 0; t < (size_t)n_token; t++)
        if (s->slot[t].added >= 0)
            add_to(s->x + t * hidden, in->prompt + (size_t)s->slot[t].added * hidden, hidden);
}

/* Turns the heads of x [T, heads D] by their places: numbers i and i + D / 2 of a head are a point
 * in the plane. */
static void rotate(const kh_config *c, float *x, int n_token, int heads, const double *turn) {
    size_t width = (size_t)kh_config_head_width(c), half = width / 2;
    for (int t = 0; t < n_token; t++)
        for (int h = 0; h < heads; h++, x += width)
            for (size_t i = 0; i < half; i++) {
                double cosine = cos(t * turn[i]), sine = sin(t * turn[i]);
                double a = (double)x[i], b = (double)x[i + half];
                x[i] = (float)(a * cosine - b * sine);
                x[i + half] = (float)(b * cosine + a * sine);
            }
}

/* The places [first, *end) that place t of n sees. A decoder looks back, an encoder to both sides.
 */
static size_t places_seen(const kh_config *c, int window, size_t t, size_t n, size_t *end) {
    size_t half = (size_t)window / 2, back = c->arch->causal ? (size_t)window - 1 : half;
    *end = c->arch->causal ? t + 1 : n;
    if (window == 0)
        return 0;
    if (!c->arch->causal && t + half + 1 < n)
        *end = t + half + 1;
    return t > back ? t - back : 0;
}

/* q [T, Q], k, v [T, K] -> mix [T, Q]: in each head, softmax(q k^T scale) v over the places that a
 * token sees. Heads of queries share those of keys and values, neighbours together. */
static void attend(const kh_config *c, int layer, int n_token, run_state *s) {
    size_t width = (size_t)kh_config_head_width(c), tokens = (size_t)n_token;
    size_t q_width = (size_t)kh_config_q_width(c), kv_width = (size_t)kh_config_kv_width(c);
    int group = c->heads / kh_config_kv_heads(c), window = kh_config_window(c, layer);
    double scale = kh_config_attention_scale(c);
    for (int head = 0; head < c->heads; head++)
        for (size_t t = 0; t < tokens; t++) {
            size_t h = (size_t)head * width, g = (size_t)(head / group) * width;
            size_t end, first = places_seen(c, window, t, tokens, &end);
            for (size_t u = first; u < end; u++)
                s->score[u] =
                    (float)(dot(s->q + t * q_width + h, s->k + u * kv_width + g, (int)width) *
                        scale);
            softmax(s->score + first, (int)(end - first));
            for (size_t i = 0; i < width; i++) {
                double sum = 0;
                for (size_t u = first; u < end; u++)
                    sum += (double)s->score[u] * (double)s->v[u * kv_width + g + i];
                s->mix[t * q_width + h + i] = (float)sum;
            }
        }
}

/* What attention makes of x [T, H]: y [T, H], which may be x. */
static void run_attention(
    const kh_config *c, const kh_layer *w, int layer, int n_token, const float *x, run_state *s) {
    int kv_heads = kh_config_kv_heads(c);
    linear(x, n_token, &w->q_w, &w->q_b, s->row, s->q);
    linear(x, n_token, &w->k_w, &w->k_b, s->row, s->k);
    linear(x, n_token, &w->v_w, &w->v_b, s->row, s->v);
    if (c->arch->qk_norm) {
        norm(c, s->q, n_token * c->heads, &w->qn_g, NULL);
        norm(c, s->k, n_token * kv_heads, &w->kn_g, NULL);
    }
    if (c->arch->position == KH_POSITION_ROTARY) {
        kh_config_frequencies(c, layer, s->turn);
        rotate(c, s->q, n_token, c->heads, s->turn);
        rotate(c, s->k, n_token, kv_heads, s->turn);
    }
    attend(c, layer, n_token, s);
    linear(s->mix, n_token, &w->o_w, &w->o_b, s->row, s->y);
}

/* What the feed-forward part makes of x [T, H]: y [T, H]. */
static void run_feed_forward(
    const kh_config *c, const kh_layer *w, int n_token, const float *x, run_state *s) {
    size_t n = (size_t)n_token * (size_t)c->inner;
    linear(x, n_token, &w->up_w, &w->up_b, s->row, s->up);
    if (c->arch->gated) {
        linear(x, n_token, &w->gate_w, &w->gate_b, s->row, s->gate);
        activate_all(c->act, s->gate, n);
        for (size_t i = 0; i < n; i++)
            s->up[i] *= s->gate[i];
    } else
        activate_all(c->act, s->up, n);
    linear(s->up, n_token, &w->down_w, &w->down_b, s->row, s->y);
}

/* What a part of a layer reads: x itself, or x normalised in y. A layer may be without that norm.
 */
static const float *part_input(
    const kh_config *c, int n_token, const kh_tensor *g, const kh_tensor *b, run_state *s) {
    if (c->arch->place == KH_NORM_AFTER || !g->data)
        return s->x;
    memcpy(s->y, s->x, (size_t)n_token * (size_t)c->hidden * sizeof *s->y);
    norm(c, s->y, n_token, g, b);
    return s->y;
}

/* x becomes x + y, with the norm of the part where the architecture has it; post: its norm of y. */
static void part_output(const kh_config *c, int n_token, const kh_tensor *g, const kh_tensor *b,
    const kh_tensor *post, run_state *s) {
    if (c->arch->place == KH_NORM_AROUND)
        norm(c, s->y, n_token, post, NULL);
    add_to(s->x, s->y, (size_t)n_token * (size_t)c->hidden);
    if (c->arch->place == KH_NORM_AFTER)
        norm(c, s->x, n_token, g, b);
}

/* One layer: attention and feed-forward, each added to its input. */
static void run_layer(const kh_config *c, const kh_layer *w, int layer, int n_token, run_state *s) {
    run_attention(c, w, layer, n_token, part_input(c, n_token, &w->ln1_g, &w->ln1_b, s), s);
    part_output(c, n_token, &w->ln1_g, &w->ln1_b, &w->post1_g, s);
    run_feed_forward(c, w, n_token, part_input(c, n_token, &w->ln2_g, &w->ln2_b, s), s);
    part_output(c, n_token, &w->ln2_g, &w->ln2_b, &w->post2_g, s);
}

/* The head at some places, before its decoder, in y [H]: the norm after the last layer, if there is
 * one; then, in an encoder, dense, activation and LayerNorm. */
static void run_transform(const kh_model *m, const float *x, run_state *s) {
    const kh_weights *w = &m->w;
    if (w->final_g.data) {
        memcpy(s->mix, x, (size_t)m->config.hidden * sizeof *x);
        norm(&m->config, s->mix, 1, &w->final_g, &w->final_b);
        x = s->mix;
    }
    if (m->config.arch->causal) {
        memcpy(s->y, x, (size_t)m->config.hidden * sizeof *x);
        return;
    }
    linear(x, 1, &w->head_w, &w->head_b, s->row, s->y);
    activate_all(m->config.head_act, s->y, (size_t)w->head_w.rows);
    layer_norm(s->y, 1, &w->head_ln_g, &w->head_ln_b, m->config.eps);
}

/* The head at some places: its transform, then a product with the decoder's row of each wanted
 * token. */
static void run_head(const kh_model *m, const kh_output *out, run_state *s) {
    const kh_weights *w = &m->w;
    size_t hidden = (size_t)m->config.hidden;
    int n_token = out->token ? out->n_token : m->config.vocab;
    const float *bias = w->decoder_b.data;
    for (size_t a = 0; a < (size_t)out->n_at; a++) {
        run_transform(m, s->x + (size_t)out->at[a] * hidden, s);
        for (int j = 0; j < n_token; j++) {
            int token = out->token ? out->token[j] : j;
            kh_tensor_row(&w->decoder_w, token, s->row);
            out->logits[a * (size_t)n_token + (size_t)j] =
                (float)(dot(s->y, s->row, w->decoder_w.cols) + (bias ? (double)bias[token] : 0));
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
    size_t q = (size_t)kh_config_q_width(c), kv = (size_t)kh_config_kv_width(c);
    size_t widest = hidden > inner ? hidden : inner, wide = (size_t)kh_config_embed(c);
    widest = wide > widest ? wide : widest;
    *s = (run_state){
        .slot = kh_calloc(tokens, sizeof *s->slot),
        .x = floats(tokens, hidden),
        .q = floats(tokens, q),
        .k = floats(tokens, kv),
        .v = floats(tokens, kv),
        .mix = floats(tokens, q > hidden ? q : hidden),
        .y = floats(tokens, hidden > wide ? hidden : wide),
        .embedded = floats(c->embed > 0 ? tokens : 1, wide),
        .up = floats(tokens, inner),
        .gate = floats(c->arch->gated ? tokens : 1, inner),
        .score = floats(tokens, 1),
        .row = floats(widest > q ? widest : q, 1),
        .turn = kh_calloc((size_t)kh_config_head_width(c) / 2 + 1, sizeof *s->turn),
    };
    return s->slot && s->x && s->q && s->k && s->v && s->mix && s->y && s->up && s->gate &&
        s->score && s->row && s->turn && s->embedded;
}

static void state_free(run_state *s) {
    float *all[] = { s->x, s->q, s->k, s->v, s->mix, s->y, s->up, s->gate, s->score, s->row,
        s->embedded };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        kh_free(all[i]);
    kh_free(s->slot);
    kh_free(s->turn);
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
            run_layer(&m->config, &m->w.layer[layer - 1], layer - 1, n_token, &s);
        if (out->hidden)
            memcpy(out->hidden + (size_t)layer * states, s.x, states * sizeof *s.x);
    }
    run_head(m, out, &s);
done:
    state_free(&s);
    return rc;
}
