/* backward_body.h - forward, then backward, through one batch of packed sequences; see backward.h.
 * The file that includes this defines:
 *
 *   real, SUFFIX(name)   the number type, and the name of a function or type for it:
 * SUFFIX(kh_pass) is kh_pass_f32 gemm                 cblas_sgemm or cblas_dgemm PICK_OPS() the
 * table of ops.h
 *
 * T tokens, R places where the head looks, H hidden, A heads of D = H / A, I inner, V vocabulary, M
 * = T, in the last layer R.
 *
 * Every product is one call of BLAS on the calling thread: y = x w^T for the values, dx = dy w and
 * dw += dy^T x for the gradients. Biases and residuals are put where the product will be added to
 * them. What dropout takes is not kept but drawn again on the way back. */

#include "train/backward.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/size.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

/* What a layer leaves for the way back. */
typedef struct kh_layer_tape {
    const real *x;   /* [T, H] its input */
    real *rows;      /* [M, H] its input where it has queries: x itself, or gathered */
    real *q, *k, *v; /* [M, H], [T, H], [T, H], lying ldq and ldk apart */
    size_t ldq, ldk;
    real *p;   /* attention: sequence after sequence, head after head, [queries, ld] */
    real *mix; /* [M, H] what the heads made */
    real *hat1, *share1, *y; /* [M, H], [M], [M, H] LayerNorm after attention */
    real *act, *slope;       /* [M, I] */
    real *hat2, *share2;     /* [M, H], [M] */
} layer_tape;

/* One pass: its input, its memory, its sizes. */
typedef struct pass {
    const kh_config *c;
    const SUFFIX(kh_ops) * ops;
    const SUFFIX(kh_pass) * in;
    kh_weights w, dw; /* views */
    layer_tape *layer;
    size_t h, inner; /* H, I */
    int t, r, head_size;
    int n_logit;                                         /* tokens that compete */
    real *hat0, *share0, *x0;                            /* [T, H], [T], [T, H] embeddings */
    real *out;                                           /* [R, H] of the last layer */
    real *head, *head_slope, *head_hat, *head_share, *z; /* [R, H], ... the head */
    real *decoder, *d_decoder; /* [n_token, H] rows of the decoder, if only some are wanted */
    real *logits;              /* [R, n_logit] */
    real *d, *d_rows, *d_qkv, *d_inner,
        *d_p;      /* on the way back: [T, H], [M, H], [T, 3H], [M, I], one head's attention */
    real *thinned; /* one head's attention after dropout */
    real *packed;  /* room to pack matrices in bf16 */
} pass;

/* ------------------------------------------------------------------------------------ products */

/* c [m, n] = a b + beta c; turned: a is [k, m], b is [n, k]. */
static void product(bool a_turned, bool b_turned, int m, int n, int k, const real *a, size_t lda,
    const real *b, size_t ldb, real beta, real *c, size_t ldc) {
    if (m > 0 && n > 0 && k > 0)
        gemm(CblasRowMajor, a_turned ? CblasTrans : CblasNoTrans,
            b_turned ? CblasTrans : CblasNoTrans, m, n, k, 1, a, (int)lda, b, (int)ldb, beta, c,
            (int)ldc);
}

/* The same with a weight or its gradient: these are large, and may be rounded to bf16. */
static void weight_product(const pass *p, bool a_turned, bool b_turned, int m, int n, int k,
    const real *a, size_t lda, const real *b, size_t ldb, real beta, real *c, size_t ldc) {
#ifdef HAVE_BF16
    if (p->in->bf16) {
        p->ops->product_bf16(
            &(kh_bf16_product){ m, n, k, a, b, lda, ldb, ldc, a_turned, b_turned, beta != 0, c },
            p->packed);
        return;
    }
#endif
    (void)p;
    product(a_turned, b_turned, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

/* y [m, n] = x [m, k] w [n, k]^T + bias + more */
static void linear(const pass *p, int m, int n, size_t k, const real *x, const real *w,
    const real *bias, const real *more, real *y, size_t ldy) {
    p->ops->fill(y, ldy, m, n, bias, more, (size_t)n);
    weight_product(p, false, true, m, n, (int)k, x, k, w, k, 1, y, ldy);
}

/* The gradients of w and b of such a layer: dw += dy^T x, db += column sums of dy. */
static void linear_back(const pass *p, int m, int n, size_t k, const real *x, const real *dy,
    size_t ldy, real *dw, real *db) {
    if (!dw)
        return;
    weight_product(p, true, false, n, (int)k, m, dy, ldy, x, k, 1, dw, k);
    p->ops->column_sums(dy, ldy, m, n, db);
}

/* ------------------------------------------------------------------------------------- dropout */

enum {
    DROP_EMBEDDINGS,
    DROP_ATTENTION,
    DROP_MIX,
    DROP_INNER,
    DROP_KINDS
}; /* part of every result */
enum { BLOCKS_OF_KEYS = 1 << 10 };

/* Four numbers share a block of random words; `block` is that of x[0]. */
static void drop(const pass *p, int l, int kind, uint32_t block, real *x, int n) {
    const kh_dropout *o = p->in->dropout;
    const uint32_t key[2] = { (uint32_t)o->seed, (uint32_t)(o->seed >> 32) },
                   limit = (uint32_t)(o->rate * 0x1p32);
    const real scale = (real)(1 / (1 - o->rate));
    uint32_t name[4] = { block, (uint32_t)(DROP_KINDS * l + kind), o->step, KH_RNG_DROPOUT },
             word[4];
    for (int i = 0; i < n; i++) {
        if (i % 4 == 0) {
            kh_philox(name, key, word);
            name[0]++;
        }
        x[i] = word[i % 4] < limit ? 0 : x[i] * scale;
    }
}

/* The place in the batch of row i of a layer's M. */
static uint32_t batch_place(const pass *p, int l, size_t i) {
    int place = l == p->c->layers - 1 ? p->in->text->at[i] : (int)i;
    return (uint32_t)(p->in->first_token + place);
}

/* x [rows, H], of the embeddings or of a layer. */
static void drop_rows(const pass *p, int l, int kind, real *x, int rows) {
    for (size_t i = 0; i < (size_t)rows; i++) {
        uint32_t place = kind == DROP_EMBEDDINGS ? (uint32_t)p->in->first_token + (uint32_t)i
                                                 : batch_place(p, l, i);
        drop(p, l, kind, place * (uint32_t)((p->h + 3) / 4), x + i * p->h, (int)p->h);
    }
}

/* a [rows, n], ld apart: what one head attends to from row `first` of the M on. */
static void drop_attention(
    const pass *p, int l, int head, size_t first, real *a, size_t ld, int rows, int n) {
    for (size_t i = 0; i < (size_t)rows; i++) {
        uint32_t row = batch_place(p, l, first + i) * (uint32_t)p->c->heads + (uint32_t)head;
        drop(p, l, DROP_ATTENTION, row * BLOCKS_OF_KEYS, a + i * ld, n);
    }
}

/* The attention that is used: a itself, or what dropout leaves of it. */
static const real *thin(
    const pass *p, int l, int head, size_t first, const real *a, size_t ld, int rows, int n) {
    if (!p->in->dropout)
        return a;
    memcpy(p->thinned, a, (size_t)rows * ld * sizeof *a);
    drop_attention(p, l, head, first, p->thinned, ld, rows, n);
    return p->thinned;
}

/* y [m, H] = dropout(x [m, k] w^T + bias) + more */
static void linear_onto(const pass *p, int l, int kind, int m, size_t k, const real *x,
    const real *w, const real *bias, const real *more, real *y) {
    if (!p->in->dropout) {
        linear(p, m, (int)p->h, k, x, w, bias, more, y, p->h);
        return;
    }
    linear(p, m, (int)p->h, k, x, w, bias, NULL, y, p->h);
    drop_rows(p, l, kind, y, m);
    p->ops->add(y, more, (size_t)m * p->h);
}

/* From d, the gradient of such a y, that of the product: d itself, or a copy, which lasts until
 * d_qkv is used. */
static const real *dropped(const pass *p, int l, int kind, const real *d, int m) {
    if (!p->in->dropout)
        return d;
    memcpy(p->d_qkv, d, (size_t)m * p->h * sizeof *d);
    drop_rows(p, l, kind, p->d_qkv, m);
    return p->d_qkv;
}

/* -------------------------------------------------------------------------------------- memory */

static size_t attention_ld(const pass *p, int n) {
    return ((size_t)(n + p->in->n_prefix) + 15) / 16 * 16;
}

/* Where the queries of sequence s are among the M rows of a layer. */
static const int *query_start(const pass *p, bool last) {
    return last ? p->in->text->first_at : p->in->text->start;
}

static size_t attention_size(const pass *p, bool last, size_t *largest) {
    const kh_packed *text = p->in->text;
    const int *query = query_start(p, last);
    size_t total = 0;
    for (int s = 0; s < text->n_seq; s++) {
        size_t one = (size_t)(query[s + 1] - query[s]) *
            attention_ld(p, text->start[s + 1] - text->start[s]);
        total += one * (size_t)p->c->heads;
        *largest = one > *largest ? one : *largest;
    }
    return total;
}

/* Hands out pieces of the tape; without memory it only counts. */
typedef struct cutter {
    real *memory;
    size_t used;
} cutter;

static real *cut(cutter *c, size_t rows, size_t cols) {
    real *piece = c->memory ? c->memory + c->used : NULL;
    c->used += (rows * cols + 15) / 16 * 16;
    return piece;
}

static void cut_layer(pass *p, cutter *c, int l, size_t *largest) {
    layer_tape *t = &p->layer[l];
    bool last = l == p->c->layers - 1;
    size_t h = p->h, tokens = (size_t)p->t, m = last ? (size_t)p->r : tokens;
    t->q = cut(c, m, last ? h : 3 * h);
    t->ldq = last ? h : 3 * h;
    t->k = t->q ? t->q + h : NULL; /* beside the queries, but in the last layer, which has few */
    if (last)
        t->k = cut(c, tokens, 2 * h);
    t->v = t->k ? t->k + h : NULL;
    t->ldk = last ? 2 * h : 3 * h;
    t->rows = last ? cut(c, m, h) : NULL;
    t->p = cut(c, attention_size(p, last, largest), 1);
    t->mix = cut(c, m, h);
    t->hat1 = cut(c, m, h);
    t->share1 = cut(c, m, 1);
    t->y = cut(c, m, h);
    t->act = cut(c, m, p->inner);
    t->slope = cut(c, m, p->inner);
    t->hat2 = cut(c, m, h);
    t->share2 = cut(c, m, 1);
}

static size_t cut_all(pass *p, real *memory) {
    cutter c = { memory, 0 };
    size_t tokens = (size_t)p->t, places = (size_t)p->r, h = p->h, largest = 0;
    bool some = p->in->loss->token;
    p->hat0 = cut(&c, tokens, h);
    p->share0 = cut(&c, tokens, 1);
    p->x0 = cut(&c, tokens, h);
    real *x = p->x0;
    size_t first_layer = c.used;
    for (int l = 0; l < p->c->layers; l++) {
        size_t here = c.used;
        bool shared =
            p->in->recompute && l > 0 && l < p->c->layers - 1; /* the last one has another shape */
        if (shared)
            c.used = first_layer;
        cut_layer(p, &c, l, &largest);
        if (shared)
            c.used = here;
        p->layer[l].x = x;
        if (l < p->c->layers - 1)
            p->layer[l].rows = x;
        x = cut(&c, l < p->c->layers - 1 ? tokens : places, h);
    }
    p->out = x;
    p->head = cut(&c, places, h);
    p->head_slope = cut(&c, places, h);
    p->head_hat = p->head;
    p->head_share = cut(&c, places, 1);
    p->z = cut(&c, places, h);
    p->decoder = some ? cut(&c, (size_t)p->n_logit, h) : NULL;
    p->d_decoder = some ? cut(&c, (size_t)p->n_logit, h) : NULL;
    p->logits = cut(&c, places, (size_t)p->n_logit);
    p->d = cut(&c, tokens, h);
    p->d_rows = cut(&c, tokens, h);
    p->d_qkv = cut(&c, tokens, 3 * h);
    p->d_inner = cut(&c, tokens, p->inner);
    p->d_p = cut(&c, largest, 1);
    p->thinned = p->in->dropout ? cut(&c, largest, 1) : NULL;
    p->packed = p->in->bf16 ? cut(&c, KH_BF16_SCRATCH, 1) : NULL;
    return c.used;
}

static int make_room(SUFFIX(kh_tape) * tape, pass *p, kh_err *err) {
    size_t layers = (size_t)p->c->layers;
    if (tape->n_layer < p->c->layers) {
        kh_free(tape->layers);
        kh_free(tape->layer);
        tape->layers = kh_calloc(2 * layers, sizeof *tape->layers);
        tape->layer = kh_calloc(layers, sizeof *tape->layer);
        tape->n_layer = tape->layers && tape->layer ? p->c->layers : 0;
        if (tape->n_layer == 0)
            return kh_fail_memory(err);
    }
    p->layer = tape->layer;
    size_t need = cut_all(p, NULL), bytes;
    if (need > tape->cap) {
        kh_free(tape->memory);
        tape->cap = 0;
        tape->memory = kh_mul(need, sizeof(real), &bytes) ? kh_aligned(bytes) : NULL;
        if (!tape->memory)
            return kh_fail_memory(err);
        tape->cap = need;
    }
    cut_all(p, tape->memory);
    return 0;
}

void SUFFIX2(kh_tape, _free)(SUFFIX(kh_tape) * tape) {
    kh_free(tape->memory);
    kh_free(tape->layers);
    kh_free(tape->layer);
    *tape = (SUFFIX(kh_tape)){ 0 };
}

/* ------------------------------------------------------------------------------------- forward */

/* word + position + type -> LayerNorm -> + prompt where it is added */
static void embed(pass *p) {
    const kh_slot *slot = p->in->text->slot;
    const real *word = p->w.word.data, *position = p->w.position.data, *type = p->w.type.data;
    size_t h = p->h;
    for (size_t t = 0; t < (size_t)p->t; t++) {
        const real *from = slot[t].embedded >= 0 ? p->in->prompt + (size_t)slot[t].embedded * h
                                                 : word + (size_t)slot[t].id * h;
        real *x = p->hat0 + t * h;
        p->ops->fill(x, h, 1, (int)h, from, position + (size_t)slot[t].position * h, h);
        if (type)
            p->ops->add(x, type, h);
    }
    p->ops->norm(
        p->hat0, p->t, (int)h, (real)p->c->eps, p->w.ln_g.data, p->w.ln_b.data, p->share0, p->x0);
    if (p->in->dropout)
        drop_rows(p, 0, DROP_EMBEDDINGS, p->x0, p->t);
    for (size_t t = 0; t < (size_t)p->t; t++)
        if (slot[t].added >= 0)
            p->ops->add(p->x0 + t * h, p->in->prompt + (size_t)slot[t].added * h, h);
}

/* Key prefix of layer l; its values follow. */
static const real *layer_prefix(const pass *p, const real *all, int l) {
    return all ? all + 2 * (size_t)l * (size_t)p->in->n_prefix * p->h : NULL;
}

static void attend(const pass *p, int l) {
    const kh_packed *text = p->in->text;
    layer_tape *t = &p->layer[l];
    const int *query = query_start(p, l == p->c->layers - 1);
    int d = (int)p->h / p->c->heads, np = p->in->n_prefix;
    const real *prefix_k = layer_prefix(p, p->in->prefix, l),
               *prefix_v = prefix_k ? prefix_k + (size_t)np * p->h : NULL;
    real *a = t->p, scale = 1 / (real)sqrt(d);
    for (int s = 0; s < text->n_seq; s++) {
        int n = text->start[s + 1] - text->start[s], m = query[s + 1] - query[s];
        size_t ld = attention_ld(p, n), from = (size_t)text->start[s] * t->ldk,
               to = (size_t)query[s];
        for (size_t head = 0; head < p->h; head += (size_t)d, a += (size_t)m * ld) {
            const real *q = t->q + to * t->ldq + head, *k = t->k + from + head,
                       *v = t->v + from + head;
            real *mix = t->mix + to * p->h + head;
            if (np > 0)
                product(false, true, m, np, d, q, t->ldq, prefix_k + head, p->h, 0, a, ld);
            product(false, true, m, n, d, q, t->ldq, k, t->ldk, 0, a + np, ld);
            p->ops->softmax(a, ld, m, np + n, scale);
            const real *used = thin(p, l, (int)head / d, to, a, ld, m, np + n);
            if (np > 0)
                product(false, false, m, d, np, used, ld, prefix_v + head, p->h, 0, mix, p->h);
            product(false, false, m, d, n, used + np, ld, v, t->ldk, np > 0 ? 1 : 0, mix, p->h);
        }
    }
}

static void gather_rows(const real *from, const int *at, int n, size_t h, real *to) {
    for (int i = 0; i < n; i++)
        memcpy(to + (size_t)i * h, from + (size_t)at[i] * h, h * sizeof *to);
}

static void forward_layer(const pass *p, int l, real *out) {
    const kh_layer *w = &p->w.layer[l];
    layer_tape *t = &p->layer[l];
    bool last = l == p->c->layers - 1;
    size_t h = p->h;
    int n = (int)h, m = last ? p->r : p->t;
    real eps = (real)p->c->eps;
    if (last) {
        gather_rows(t->x, p->in->text->at, m, h, t->rows);
        linear(p, m, n, h, t->rows, w->q_w.data, w->q_b.data, NULL, t->q, t->ldq);
        linear(p, p->t, 2 * n, h, t->x, w->k_w.data, w->k_b.data, NULL, t->k, t->ldk);
    } else
        linear(p, m, 3 * n, h, t->x, w->q_w.data, w->q_b.data, NULL, t->q, t->ldq);
    attend(p, l);
    linear_onto(p, l, DROP_MIX, m, h, t->mix, w->o_w.data, w->o_b.data, t->rows, t->hat1);
    p->ops->norm(t->hat1, m, n, eps, w->ln1_g.data, w->ln1_b.data, t->share1, t->y);
    linear(p, m, (int)p->inner, h, t->y, w->up_w.data, w->up_b.data, NULL, t->slope, p->inner);
    p->ops->bend(p->c->act, t->slope, (size_t)m * p->inner, t->act);
    linear_onto(
        p, l, DROP_INNER, m, p->inner, t->act, w->down_w.data, w->down_b.data, t->y, t->hat2);
    p->ops->norm(t->hat2, m, n, eps, w->ln2_g.data, w->ln2_b.data, t->share2, out);
}

static void forward_head(pass *p) {
    const kh_lm_loss *loss = p->in->loss;
    const real *bias = p->w.decoder_b.data;
    size_t h = p->h, n = (size_t)p->n_logit;
    linear(p, p->r, (int)h, h, p->out, p->w.head_w.data, p->w.head_b.data, NULL, p->head_slope, h);
    p->ops->bend(p->c->head_act, p->head_slope, (size_t)p->r * h, p->head);
    p->ops->norm(p->head, p->r, (int)h, (real)p->c->eps, p->w.head_ln_g.data, p->w.head_ln_b.data,
        p->head_share, p->z);
    if (!loss->token) {
        linear(p, p->r, p->n_logit, h, p->z, p->w.decoder_w.data, bias, NULL, p->logits, n);
        return;
    }
    gather_rows(p->w.decoder_w.data, loss->token, p->n_logit, h, p->decoder);
    weight_product(
        p, false, true, p->r, p->n_logit, (int)h, p->z, h, p->decoder, h, 0, p->logits, n);
    for (size_t i = 0; i < (size_t)p->r * n; i++)
        p->logits[i] += bias[loss->token[i % n]];
}

/* ---------------------------------------------------------------------------------------- loss */

/* One place with labels: log p(label) = lse of the label's logits - lse of all. x becomes the
 * gradient. */
static double label_loss(const kh_lm_loss *loss, int32_t target, real *x, real *logprob) {
    double max = -INFINITY, all = 0, own = 0;
    for (int j = 0; j < loss->n_token; j++)
        max = (double)x[j] > max ? (double)x[j] : max;
    for (int j = 0; j < loss->n_token; j++) {
        double e = exp((double)x[j] - max);
        all += e;
        own += loss->label[j] == target ? e : 0;
    }
    for (int k = 0; logprob && k < loss->n_label; k++) {
        double sum = 0;
        for (int j = 0; j < loss->n_token; j++)
            sum += loss->label[j] == k ? exp((double)x[j] - max) : 0;
        logprob[k] = (real)(log(sum) - log(all));
    }
    for (int j = 0; j < loss->n_token; j++) {
        double e = exp((double)x[j] - max);
        x[j] = (real)(loss->scale * (e / all - (loss->label[j] == target ? e / own : 0)));
    }
    return loss->scale * (log(all) - log(own));
}

static double loss_of_logits(const pass *p) {
    const kh_lm_loss *loss = p->in->loss;
    double sum = 0;
    for (size_t i = 0; i < (size_t)p->r; i++) {
        real *x = p->logits + i * (size_t)p->n_logit;
        if (loss->token)
            sum += label_loss(loss, loss->target[i], x,
                p->in->logprob ? p->in->logprob + i * (size_t)loss->n_label : NULL);
        else
            sum += p->ops->cross_entropy(x, p->n_logit, loss->target[i],
                (real)(loss->scale * (loss->weight ? (double)loss->weight[i] : 1)));
    }
    return sum;
}

/* ------------------------------------------------------------------------------------ backward */

/* logits hold their gradient; d_rows becomes that of the last layer's output. */
static void backward_head(pass *p) {
    const kh_lm_loss *loss = p->in->loss;
    size_t h = p->h, n = (size_t)p->n_logit;
    bool some = loss->token, weights = p->in->dw;
    real *d = p->d_rows, *db = p->dw.decoder_b.data;
    weight_product(p, false, false, p->r, (int)h, p->n_logit, p->logits, n,
        some ? p->decoder : p->w.decoder_w.data, h, 0, d, h);
    if (weights && !some)
        linear_back(p, p->r, p->n_logit, h, p->z, p->logits, n, p->dw.decoder_w.data, db);
    if (weights && some) {
        weight_product(
            p, true, false, p->n_logit, (int)h, p->r, p->logits, n, p->z, h, 0, p->d_decoder, h);
        for (size_t j = 0; j < n; j++) {
            p->ops->add(
                (real *)p->dw.decoder_w.data + (size_t)loss->token[j] * h, p->d_decoder + j * h, h);
            for (size_t i = 0; i < (size_t)p->r; i++)
                db[loss->token[j]] += p->logits[i * n + j];
        }
    }
    p->ops->norm_back(d, p->r, (int)h, p->head_hat, p->head_share, p->w.head_ln_g.data,
        p->dw.head_ln_g.data, p->dw.head_ln_b.data);
    p->ops->multiply(d, p->head_slope, (size_t)p->r * h);
    linear_back(p, p->r, (int)h, h, p->out, d, h, p->dw.head_w.data, p->dw.head_b.data);
    memcpy(p->d, d, (size_t)p->r * h * sizeof *d);
    weight_product(p, false, false, p->r, (int)h, (int)h, p->d, h, p->w.head_w.data, h, 0, d, h);
}

/* d_mix [M, H] -> the gradients of q, k, v and of the prefix. dq lies ldq apart, dk and dv ldk. */
static void attend_back(const pass *p, int l, const real *d_mix, real *dq, real *dk, real *dv) {
    const kh_packed *text = p->in->text;
    const layer_tape *t = &p->layer[l];
    const int *query = query_start(p, l == p->c->layers - 1);
    int width = (int)p->h / p->c->heads, np = p->in->n_prefix;
    size_t h = p->h, rows = (size_t)np * h;
    const real *prefix_k = layer_prefix(p, p->in->prefix, l);
    real *d_prefix = p->in->d_prefix ? p->in->d_prefix + 2 * (size_t)l * rows : NULL;
    const real *a = t->p;
    real *da = p->d_p, scale = 1 / (real)sqrt(width);
    for (int s = 0; s < text->n_seq; s++) {
        int n = text->start[s + 1] - text->start[s], m = query[s + 1] - query[s];
        size_t ld = attention_ld(p, n), from = (size_t)text->start[s] * t->ldk,
               to = (size_t)query[s];
        for (size_t head = 0; head < h; head += (size_t)width, a += (size_t)m * ld) {
            const real *q = t->q + to * t->ldq + head, *dm = d_mix + to * h + head;
            const real *used = thin(p, l, (int)head / width, to, a, ld, m, np + n);
            product(false, true, m, n, width, dm, h, t->v + from + head, t->ldk, 0, da + np, ld);
            product(true, false, n, width, m, used + np, ld, dm, h, 0, dv + from + head, t->ldk);
            if (np > 0)
                product(false, true, m, np, width, dm, h, prefix_k + rows + head, h, 0, da, ld);
            if (np > 0 && d_prefix)
                product(true, false, np, width, m, used, ld, dm, h, 1, d_prefix + rows + head, h);
            if (p->in->dropout)
                drop_attention(p, l, (int)head / width, to, da, ld, m, np + n);
            p->ops->softmax_back(da, a, ld, m, np + n, scale);
            product(false, false, m, width, n, da + np, ld, t->k + from + head, t->ldk, 0,
                dq + to * t->ldq + head, t->ldq);
            product(true, false, n, width, m, da + np, ld, q, t->ldq, 0, dk + from + head, t->ldk);
            if (np > 0)
                product(false, false, m, width, np, da, ld, prefix_k + head, h, 1,
                    dq + to * t->ldq + head, t->ldq);
            if (np > 0 && d_prefix)
                product(true, false, np, width, m, da, ld, q, t->ldq, 1, d_prefix + head, h);
        }
        if (m == 0)
            for (int i = 0; i < n; i++) { /* nobody looked at this sequence */
                memset(dk + from + (size_t)i * t->ldk, 0, h * sizeof *dk);
                memset(dv + from + (size_t)i * t->ldk, 0, h * sizeof *dv);
            }
    }
}

/* d_rows [M, H], the gradient of the layer's output, becomes that of its input, [T, H]. */
static void backward_layer(const pass *p, int l) {
    const kh_layer *w = &p->w.layer[l], *g = &p->dw.layer[l];
    const layer_tape *t = &p->layer[l];
    bool last = l == p->c->layers - 1;
    size_t h = p->h, inner = p->inner;
    int n = (int)h, m = last ? p->r : p->t;
    real *d = p->d_rows, *dq = p->d_qkv, *dk = last ? p->d_qkv + (size_t)m * h : p->d_qkv + h;
    const real *dy;

    p->ops->norm_back(d, m, n, t->hat2, t->share2, w->ln2_g.data, g->ln2_g.data, g->ln2_b.data);
    dy = dropped(p, l, DROP_INNER, d, m);
    linear_back(p, m, n, inner, t->act, dy, h, g->down_w.data, g->down_b.data);
    weight_product(
        p, false, false, m, (int)inner, n, dy, h, w->down_w.data, inner, 0, p->d_inner, inner);
    p->ops->multiply(p->d_inner, t->slope, (size_t)m * inner);
    linear_back(p, m, (int)inner, h, t->y, p->d_inner, inner, g->up_w.data, g->up_b.data);
    weight_product(p, false, false, m, n, (int)inner, p->d_inner, inner, w->up_w.data, h, 1, d, h);

    p->ops->norm_back(d, m, n, t->hat1, t->share1, w->ln1_g.data, g->ln1_g.data, g->ln1_b.data);
    dy = dropped(p, l, DROP_MIX, d, m);
    linear_back(p, m, n, h, t->mix, dy, h, g->o_w.data, g->o_b.data);
    weight_product(p, false, false, m, n, n, dy, h, w->o_w.data, h, 0, p->d, h);
    attend_back(p, l, p->d, dq, dk, dk + h);
    if (!last) {
        linear_back(p, m, 3 * n, h, t->x, dq, 3 * h, g->q_w.data, g->q_b.data);
        weight_product(p, false, false, m, n, 3 * n, dq, 3 * h, w->q_w.data, h, 1, d, h);
        return;
    }
    linear_back(p, m, n, h, t->rows, dq, h, g->q_w.data, g->q_b.data);
    linear_back(p, p->t, 2 * n, h, t->x, dk, 2 * h, g->k_w.data, g->k_b.data);
    weight_product(p, false, false, m, n, n, dq, h, w->q_w.data, h, 1, d, h);
    weight_product(p, false, false, p->t, n, 2 * n, dk, 2 * h, w->k_w.data, h, 0, p->d, h);
    for (size_t i = 0; i < (size_t)m; i++)
        p->ops->add(p->d + (size_t)p->in->text->at[i] * h, d + i * h, h);
    memcpy(d, p->d, (size_t)p->t * h * sizeof *d);
}

static void backward_embeddings(const pass *p) {
    const kh_slot *slot = p->in->text->slot;
    real *d = p->d_rows, *word = p->dw.word.data, *position = p->dw.position.data;
    size_t h = p->h;
    for (size_t t = 0; t < (size_t)p->t && p->in->d_prompt; t++)
        if (slot[t].added >= 0)
            p->ops->add(p->in->d_prompt + (size_t)slot[t].added * h, d + t * h, h);
    if (p->in->dropout)
        drop_rows(p, 0, DROP_EMBEDDINGS, d, p->t);
    p->ops->norm_back(
        d, p->t, (int)h, p->hat0, p->share0, p->w.ln_g.data, p->dw.ln_g.data, p->dw.ln_b.data);
    for (size_t t = 0; t < (size_t)p->t; t++) {
        if (slot[t].embedded >= 0 && p->in->d_prompt)
            p->ops->add(p->in->d_prompt + (size_t)slot[t].embedded * h, d + t * h, h);
        if (!p->in->dw)
            continue;
        if (slot[t].embedded < 0)
            p->ops->add(word + (size_t)slot[t].id * h, d + t * h, h);
        p->ops->add(position + (size_t)slot[t].position * h, d + t * h, h);
    }
    if (p->in->dw && p->dw.type.data)
        p->ops->column_sums(d, h, p->t, (int)h, p->dw.type.data);
}

#include "train/causal_body.h"

int SUFFIX(kh_backward)(SUFFIX(kh_tape) * tape, const kh_params *params, const SUFFIX(kh_pass) * in,
    double *loss, kh_err *err) {
    const kh_config *c = &params->config;
    const kh_packed *text = in->text;
    pass p = { .c = c,
        .ops = PICK_OPS(),
        .in = in,
        .h = (size_t)c->hidden,
        .inner = (size_t)c->inner,
        .t = text->start[text->n_seq],
        .r = text->first_at[text->n_seq],
        .n_logit = in->loss->token ? in->loss->n_token : c->vocab };
    if (c->arch->causal)
        return causal_backward(params, in, loss, err);
    *loss = 0;
    if (p.r == 0)
        return 0;
    int rc = make_room(tape, &p, err);
    if (rc != 0)
        return rc;
    p.w.layer = tape->layers;
    p.dw.layer = tape->layers + c->layers;
    memset(p.dw.layer, 0, (size_t)c->layers * sizeof *p.dw.layer);
    kh_params_view(params, (void *)in->w, sizeof(real), &p.w);
    if (in->dw)
        kh_params_view(params, in->dw, sizeof(real), &p.dw);
    embed(&p);
    for (int l = 0; l < c->layers; l++)
        forward_layer(&p, l, l < c->layers - 1 ? (real *)p.layer[l + 1].x : p.out);
    forward_head(&p);
    *loss = loss_of_logits(&p);
    if (!in->dw && !in->d_prompt && !in->d_prefix)
        return 0;
    backward_head(&p);
    for (int l = c->layers - 1; l >= 0; l--) {
        if (in->recompute &&
            l < c->layers - 2) /* the last of those that share their memory is still in it */
            forward_layer(&p, l, (real *)p.layer[l + 1].x);
        backward_layer(&p, l);
    }
    backward_embeddings(&p);
    return 0;
}
