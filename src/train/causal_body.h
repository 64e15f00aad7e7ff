/* causal_body.h - a decoder forward, then backward to the soft prompt: included by backward_body.h,
 * whose types and products it uses. Weights stay as they are; formulas are those of doc/model.md,
 * and their derivatives.
 *
 * One sequence at a time: T tokens, H hidden, Q all heads of queries, K of keys or values, I inner.
 * What is cheap is computed again on the way back rather than kept: norms from their inputs. */

/* What a layer leaves for the way back. */
typedef struct causal_tape {
    real *x, *mid;          /* [T, H] its input, and what attention made of it */
    real *q, *k, *v;        /* [T, Q], [T, K], [T, K] as attention saw them */
    real *q0, *k0;          /* before their norms, if there are any */
    real *p;                /* [A, T, T] attention */
    real *ctx, *inner;      /* [T, Q], [T, I] */
    real *up, *act, *slope; /* [T, I] with a gate: up, act(gate) and its slope; else slope alone */
    real *o, *down;         /* [T, H] what is added, before its norm, if it has one */
} causal_tape;

typedef struct causal_pass {
    const kh_config *c;
    const SUFFIX(kh_ops) * ops;
    const SUFFIX(kh_pass) * in;
    kh_weights w;
    causal_tape *layer;
    size_t t, h, q, k, inner, d; /* T, H, Q, K, I, D */
    int start;                   /* of the sequence in the text */
    real *y, *z, *dx, *dy, *dq, *dk, *dv, *d_inner, *d_gate, *dp;
    double *turn;
} causal_pass;

static real gain_of(const causal_pass *p, const kh_tensor *g, size_t i) {
    return ((const real *)g->data)[i] + (p->c->arch->norm == KH_NORM_RMS_PLUS ? 1 : 0);
}

/* Mean and 1 / sqrt(variance + eps) of a row; for RMS norms the mean is 0. */
static void row_moments(const causal_pass *p, const real *x, size_t n, real *mean, real *share) {
    real sum = 0, squares = 0;
    for (size_t i = 0; i < n && p->c->arch->norm == KH_NORM_LAYER; i++)
        sum += x[i];
    *mean = sum / (real)n;
    for (size_t i = 0; i < n; i++)
        squares += (x[i] - *mean) * (x[i] - *mean);
    *share = 1 / (real)sqrt((double)(squares / (real)n) + p->c->eps);
}

static void causal_norm(const causal_pass *p, const real *x, size_t rows, const kh_tensor *g,
    const kh_tensor *b, real *y) {
    size_t n = (size_t)g->cols;
    const real *bias = b ? b->data : NULL;
    for (size_t r = 0; r < rows; r++, x += n, y += n) {
        real mean, share;
        row_moments(p, x, n, &mean, &share);
        for (size_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * share * gain_of(p, g, i) + (bias ? bias[i] : 0);
    }
}

/* dx (+)= the gradient of x, from d, that of the norm of x; dx may be d unless it is added to. */
static void causal_norm_back(const causal_pass *p, const real *x, size_t rows, const kh_tensor *g,
    const real *d, bool more, real *dx) {
    size_t n = (size_t)g->cols;
    bool layer = p->c->arch->norm == KH_NORM_LAYER;
    for (size_t r = 0; r < rows; r++, x += n, d += n, dx += n) {
        real mean, share, sum = 0, sum_hat = 0;
        row_moments(p, x, n, &mean, &share);
        for (size_t i = 0; i < n; i++) {
            real e = d[i] * gain_of(p, g, i);
            sum += layer ? e : 0;
            sum_hat += e * (x[i] - mean) * share;
        }
        for (size_t i = 0; i < n; i++) {
            real e = d[i] * gain_of(p, g, i), hat = (x[i] - mean) * share;
            real slope = share * (e - sum / (real)n - hat * sum_hat / (real)n);
            dx[i] = slope + (more ? dx[i] : 0);
        }
    }
}

/* Turns heads by their places, or back. */
static void causal_rotate(const causal_pass *p, real *x, size_t width, bool back) {
    size_t half = p->d / 2;
    for (size_t t = 0; t < p->t; t++)
        for (size_t h = 0; h < width; h += p->d)
            for (size_t i = 0; i < half; i++) {
                real *a = x + t * width + h + i, *b = a + half, old = *a;
                double angle = (double)t * p->turn[i];
                real cosine = (real)cos(angle), sine = (real)(back ? -sin(angle) : sin(angle));
                *a = old * cosine - *b * sine;
                *b = *b * cosine + old * sine;
            }
}

/* y [T, n] = x [T, k] w^T + b */
static void causal_linear(
    const causal_pass *p, const real *x, const kh_tensor *w, const kh_tensor *b, real *y) {
    p->ops->fill(y, (size_t)w->rows, (int)p->t, w->rows, b->data, NULL, 0);
    product(false, true, (int)p->t, w->rows, w->cols, x, (size_t)w->cols, w->data, (size_t)w->cols,
        1, y, (size_t)w->rows);
}

/* dx [T, k] (+)= dy [T, n] w */
static void causal_linear_back(
    const causal_pass *p, const real *dy, const kh_tensor *w, bool more, real *dx) {
    product(false, false, (int)p->t, w->cols, w->rows, dy, (size_t)w->rows, w->data,
        (size_t)w->cols, more ? 1 : 0, dx, (size_t)w->cols);
}

/* Attention of one layer; t->p and t->ctx are filled. */
static void causal_attend(const causal_pass *p, int l, causal_tape *t) {
    int heads = p->c->heads, group = heads / kh_config_kv_heads(p->c), T = (int)p->t;
    size_t window = (size_t)kh_config_window(p->c, l);
    real scale = (real)kh_config_attention_scale(p->c);
    for (int h = 0; h < heads; h++) {
        const real *q = t->q + (size_t)h * p->d, *k = t->k + (size_t)(h / group) * p->d;
        real *a = t->p + (size_t)h * p->t * p->t;
        product(false, true, T, T, (int)p->d, q, p->q, k, p->k, 0, a, p->t);
        for (size_t i = 0; i < p->t; i++, a += p->t) {
            size_t first = window > 0 && i + 1 > window ? i + 1 - window : 0;
            real top = a[first], sum = 0;
            for (size_t j = first; j <= i; j++)
                top = a[j] > top ? a[j] : top;
            for (size_t j = 0; j < p->t; j++)
                a[j] = j < first || j > i ? 0 : (real)exp((double)(scale * (a[j] - top)));
            for (size_t j = first; j <= i; j++)
                sum += a[j];
            for (size_t j = first; j <= i; j++)
                a[j] /= sum;
        }
        product(false, false, T, (int)p->d, T, t->p + (size_t)h * p->t * p->t, p->t,
            t->v + (size_t)(h / group) * p->d, p->k, 0, t->ctx + (size_t)h * p->d, p->q);
    }
}

/* d_ctx [T, Q] in p->dy -> dq, dk, dv. */
static void causal_attend_back(const causal_pass *p, const causal_tape *t, const real *d_ctx) {
    int heads = p->c->heads, group = heads / kh_config_kv_heads(p->c), T = (int)p->t, d = (int)p->d;
    real scale = (real)kh_config_attention_scale(p->c);
    memset(p->dk, 0, p->t * p->k * sizeof *p->dk);
    memset(p->dv, 0, p->t * p->k * sizeof *p->dv);
    for (int h = 0; h < heads; h++) {
        size_t at = (size_t)h * p->d, kv = (size_t)(h / group) * p->d;
        const real *a = t->p + (size_t)h * p->t * p->t;
        product(false, true, T, T, d, d_ctx + at, p->q, t->v + kv, p->k, 0, p->dp, p->t);
        product(true, false, T, d, T, a, p->t, d_ctx + at, p->q, 1, p->dv + kv, p->k);
        p->ops->softmax_back(p->dp, a, p->t, T, T, scale);
        product(false, false, T, d, T, p->dp, p->t, t->k + kv, p->k, 0, p->dq + at, p->q);
        product(true, false, T, d, T, p->dp, p->t, t->q + at, p->q, 1, p->dk + kv, p->k);
    }
}

/* What a part of a layer adds: x += y, or x += norm(y), with y kept. */
static void causal_add(
    const causal_pass *p, const real *x, real *y, real *kept, const kh_tensor *post, real *out) {
    size_t n = p->t * p->h;
    if (post->data) {
        memcpy(kept, y, n * sizeof *y);
        causal_norm(p, kept, p->t, post, NULL, y);
    }
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] + y[i];
}

static void causal_forward_layer(const causal_pass *p, int l, real *out) {
    const kh_layer *w = &p->w.layer[l];
    causal_tape *t = &p->layer[l];
    bool norms = w->qn_g.data;
    causal_norm(p, t->x, p->t, &w->ln1_g, w->ln1_b.data ? &w->ln1_b : NULL, p->y);
    causal_linear(p, p->y, &w->q_w, &w->q_b, norms ? t->q0 : t->q);
    causal_linear(p, p->y, &w->k_w, &w->k_b, norms ? t->k0 : t->k);
    causal_linear(p, p->y, &w->v_w, &w->v_b, t->v);
    if (norms) {
        causal_norm(p, t->q0, p->t * p->q / p->d, &w->qn_g, NULL, t->q);
        causal_norm(p, t->k0, p->t * p->k / p->d, &w->kn_g, NULL, t->k);
    }
    if (p->c->arch->position == KH_POSITION_ROTARY) {
        kh_config_frequencies(p->c, l, p->turn);
        causal_rotate(p, t->q, p->q, false);
        causal_rotate(p, t->k, p->k, false);
    }
    causal_attend(p, l, t);
    causal_linear(p, t->ctx, &w->o_w, &w->o_b, p->y);
    causal_add(p, t->x, p->y, t->o, &w->post1_g, t->mid);
    causal_norm(p, t->mid, p->t, &w->ln2_g, w->ln2_b.data ? &w->ln2_b : NULL, p->y);
    causal_linear(p, p->y, &w->up_w, &w->up_b, t->up);
    if (w->gate_w.data) {
        causal_linear(p, p->y, &w->gate_w, &w->gate_b, t->slope);
        p->ops->bend(p->c->act, t->slope, p->t * p->inner, t->act);
        memcpy(t->inner, t->up, p->t * p->inner * sizeof *t->inner);
        p->ops->multiply(t->inner, t->act, p->t * p->inner);
    } else {
        memcpy(t->slope, t->up, p->t * p->inner * sizeof *t->slope);
        p->ops->bend(p->c->act, t->slope, p->t * p->inner, t->inner);
    }
    causal_linear(p, t->inner, &w->down_w, &w->down_b, p->y);
    causal_add(p, t->mid, p->y, t->down, &w->post2_g, out);
}

/* p->dx, the gradient of the layer's output, becomes that of its input. */
static void causal_backward_layer(const causal_pass *p, int l) {
    const kh_layer *w = &p->w.layer[l];
    const causal_tape *t = &p->layer[l];
    size_t n = p->t * p->inner;
    const real *d = p->dx;
    if (w->post2_g.data) {
        causal_norm_back(p, t->down, p->t, &w->post2_g, p->dx, false, p->dy);
        d = p->dy;
    }
    causal_linear_back(p, d, &w->down_w, false, p->d_inner);
    if (w->gate_w.data) {
        memcpy(p->d_gate, p->d_inner, n * sizeof *p->d_gate);
        p->ops->multiply(p->d_gate, t->up, n);
        p->ops->multiply(p->d_gate, t->slope, n);
        p->ops->multiply(p->d_inner, t->act, n);
    } else
        p->ops->multiply(p->d_inner, t->slope, n);
    causal_linear_back(p, p->d_inner, &w->up_w, false, p->z);
    if (w->gate_w.data)
        causal_linear_back(p, p->d_gate, &w->gate_w, true, p->z);
    causal_norm_back(p, t->mid, p->t, &w->ln2_g, p->z, true, p->dx);

    d = p->dx;
    if (w->post1_g.data) {
        causal_norm_back(p, t->o, p->t, &w->post1_g, p->dx, false, p->dy);
        d = p->dy;
    }
    causal_linear_back(p, d, &w->o_w, false, p->y); /* [T, Q] */
    causal_attend_back(p, t, p->y);
    if (p->c->arch->position == KH_POSITION_ROTARY) {
        kh_config_frequencies(p->c, l, p->turn);
        causal_rotate(p, p->dq, p->q, true);
        causal_rotate(p, p->dk, p->k, true);
    }
    if (w->qn_g.data) {
        causal_norm_back(p, t->q0, p->t * p->q / p->d, &w->qn_g, p->dq, false, p->dq);
        causal_norm_back(p, t->k0, p->t * p->k / p->d, &w->kn_g, p->dk, false, p->dk);
    }
    causal_linear_back(p, p->dq, &w->q_w, false, p->z);
    causal_linear_back(p, p->dk, &w->k_w, true, p->z);
    causal_linear_back(p, p->dv, &w->v_w, true, p->z);
    causal_norm_back(p, t->x, p->t, &w->ln1_g, p->z, true, p->dx);
}

static void causal_embed(const causal_pass *p, real *x) {
    const real *word = p->w.word.data, *position = p->w.position.data;
    real scale = (real)kh_config_word_scale(p->c);
    const kh_slot *slot = p->in->text->slot + p->start;
    for (size_t t = 0; t < p->t; t++)
        for (size_t i = 0; i < p->h; i++) {
            real e = slot[t].embedded >= 0 ? p->in->prompt[(size_t)slot[t].embedded * p->h + i]
                                           : word[(size_t)slot[t].id * p->h + i] * scale;
            x[t * p->h + i] = e + (position ? position[(size_t)slot[t].position * p->h + i] : 0);
        }
}

/* The loss at the places of sequence s, whose last layer's output is x; p->dx becomes its gradient.
 */
static double causal_loss(const causal_pass *p, int s, const real *x, real *logit) {
    const kh_packed *text = p->in->text;
    const kh_lm_loss *loss = p->in->loss;
    const real *decoder = p->w.decoder_w.data;
    double sum = 0;
    memset(p->dx, 0, p->t * p->h * sizeof *p->dx);
    for (int a = text->first_at[s]; a < text->first_at[s + 1]; a++) {
        size_t row = (size_t)(text->at[a] - p->start) * p->h;
        causal_norm(p, x + row, 1, &p->w.final_g, p->w.final_b.data ? &p->w.final_b : NULL, p->y);
        for (int j = 0; j < loss->n_token; j++) {
            const real *w = decoder + (size_t)loss->token[j] * p->h;
            logit[j] = 0;
            for (size_t i = 0; i < p->h; i++)
                logit[j] += p->y[i] * w[i];
        }
        sum += label_loss(loss, loss->target[a], logit,
            p->in->logprob ? p->in->logprob + (size_t)a * (size_t)loss->n_label : NULL);
        memset(p->z, 0, p->h * sizeof *p->z);
        for (int j = 0; j < loss->n_token; j++)
            for (size_t i = 0; i < p->h; i++)
                p->z[i] += logit[j] * decoder[(size_t)loss->token[j] * p->h + i];
        causal_norm_back(p, x + row, 1, &p->w.final_g, p->z, true, p->dx + row);
    }
    return sum;
}

/* Hands out the memory of a sequence of p->t tokens; without memory it only counts. */
static size_t causal_cut(causal_pass *p, real *memory, real **x_end, real **logit) {
    cutter c = { memory, 0 };
    size_t t = p->t, wide = p->q > p->h ? p->q : p->h;
    for (int l = 0; l < p->c->layers; l++) {
        causal_tape *y = &p->layer[l];
        bool norms = p->c->arch->qk_norm, post = p->c->arch->place == KH_NORM_AROUND;
        y->x = cut(&c, t, p->h), y->mid = cut(&c, t, p->h);
        y->q = cut(&c, t, p->q), y->k = cut(&c, t, p->k), y->v = cut(&c, t, p->k);
        y->q0 = cut(&c, norms ? t : 0, p->q), y->k0 = cut(&c, norms ? t : 0, p->k);
        y->p = cut(&c, (size_t)p->c->heads * t, t);
        y->ctx = cut(&c, t, p->q), y->inner = cut(&c, t, p->inner);
        y->up = cut(&c, t, p->inner), y->slope = cut(&c, t, p->inner);
        y->act = cut(&c, p->c->arch->gated ? t : 0, p->inner);
        y->o = cut(&c, post ? t : 0, p->h), y->down = cut(&c, post ? t : 0, p->h);
    }
    *x_end = cut(&c, t, p->h);
    *logit = cut(&c, (size_t)p->in->loss->n_token, 1);
    p->y = cut(&c, t, wide), p->z = cut(&c, t, p->h), p->dx = cut(&c, t, p->h);
    p->dy = cut(&c, t, p->h), p->dq = cut(&c, t, p->q), p->dk = cut(&c, t, p->k);
    p->dv = cut(&c, t, p->k), p->dp = cut(&c, t, t);
    p->d_inner = cut(&c, t, p->inner), p->d_gate = cut(&c, t, p->inner);
    return c.used;
}

static double causal_sequence(causal_pass *p, int s, real *memory) {
    const kh_slot *slot = p->in->text->slot + p->start;
    real *x, *logit;
    causal_cut(p, memory, &x, &logit);
    causal_embed(p, p->layer[0].x);
    for (int l = 0; l < p->c->layers; l++)
        causal_forward_layer(p, l, l + 1 < p->c->layers ? p->layer[l + 1].x : x);
    double loss = causal_loss(p, s, x, logit);
    if (!p->in->d_prompt)
        return loss;
    for (int l = p->c->layers - 1; l >= 0; l--)
        causal_backward_layer(p, l);
    for (size_t t = 0; t < p->t; t++)
        if (slot[t].embedded >= 0)
            p->ops->add(p->in->d_prompt + (size_t)slot[t].embedded * p->h, p->dx + t * p->h, p->h);
    return loss;
}

static int causal_backward(
    const kh_params *params, const SUFFIX(kh_pass) * in, double *loss, kh_err *err) {
    const kh_config *c = &params->config;
    const kh_packed *text = in->text;
    if (in->dw || in->prefix || !in->loss->token)
        return kh_fail(err, KH_EUNSUPPORTED,
            "a %s model is a decoder; of those, gradients are computed for soft prompts only",
            c->arch->type);
    causal_pass p = { .c = c,
        .ops = PICK_OPS(),
        .in = in,
        .h = (size_t)c->hidden,
        .q = (size_t)kh_config_q_width(c),
        .k = (size_t)kh_config_kv_width(c),
        .inner = (size_t)c->inner,
        .d = (size_t)kh_config_head_width(c) };
    size_t layers = (size_t)c->layers, most = 0, bytes;
    for (int s = 0; s < text->n_seq; s++) {
        size_t t = (size_t)(text->start[s + 1] - text->start[s]);
        most = t > most ? t : most;
    }
    p.t = most;
    p.w.layer = kh_calloc(layers, sizeof *p.w.layer);
    p.layer = kh_calloc(layers, sizeof *p.layer);
    p.turn = kh_calloc(p.d, sizeof *p.turn);
    real *memory = NULL, *x, *logit;
    bool ok = p.w.layer && p.layer && p.turn &&
        kh_mul(causal_cut(&p, NULL, &x, &logit), sizeof *memory, &bytes) &&
        (memory = kh_aligned(bytes));
    if (ok)
        kh_params_view(params, (void *)in->w, sizeof(real), &p.w);
    *loss = 0;
    for (int s = 0; s < text->n_seq && ok; s++) {
        p.start = text->start[s];
        p.t = (size_t)(text->start[s + 1] - text->start[s]);
        *loss += causal_sequence(&p, s, memory);
    }
    kh_free(memory);
    kh_free(p.w.layer);
    kh_free(p.layer);
    kh_free(p.turn);
    return ok ? 0 : kh_fail_memory(err);
}
