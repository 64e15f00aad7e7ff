/* engine.c - the fast forward pass; see engine.h for what it promises.
 *
 * A call runs in rounds of some prompts and some sequences. A round has two parts, each spread over
 * the threads in groups of about GROUP_ROWS rows that one thread carries through all layers, so
 * that no thread waits inside a layer:
 *
 *   pieces   the rows of a sequence without its slots, and the slots of a prompt: embedding, and
 * the first layer's queries, keys and values. Each is needed by many pairs and computed once. pairs
 * (prompt, sequence): assembled from two pieces, then attention, the layers, and the head at the
 * masks.
 *
 * T rows (tokens), H hidden, I inner, V vocabulary. */
#include "model/engine.h"

#include "base/alloc.h"
#include "base/err.h"
#include "model/question.h"

#include <assert.h>
#include <math.h>
#include <omp.h>
#include <string.h>

enum {
    GROUP_ROWS = 192,  /* rows of a block of A times 1 KB stay in a second-level cache of 512 KB */
    ROUND_ROWS = 8192, /* rows of pieces that wait in memory: 4 H floats each */
};

/* A dense layer, packed. */
typedef struct dense {
    int k, n;
    kh_precision precision;
    void *w;
    float *bias; /* [n] or NULL */
} dense;

typedef struct packed_layer {
    dense q, kv, o, up, down;             /* kv: keys, then values */
    float *ln1_g, *ln1_b, *ln2_g, *ln2_b; /* [H] */
} packed_layer;

struct kh_engine {
    kh_model *model;
    const kh_kernels *kernels;
    kh_precision precision;
    packed_layer *layer; /* [L] */
    float *ln_g, *ln_b;  /* of the embeddings */
    dense head;          /* f32: it is one row per mask, and the logits hang on it */
    float *head_ln_g, *head_ln_b;
    dense decoder; /* the whole vocabulary; packed when first asked for */
};

/* ------------------------------------------------------------------------------------- packing */

static kh_precision resolve(kh_precision p, const kh_kernels *k) {
    return p != KH_PRECISION_AUTO        ? p
        : strcmp(k->name, "avx512") == 0 ? KH_BF16
                                         : KH_F32; /* that row multiplies bf16 */
}

const char *kh_precision_name(kh_precision p) {
    static const char *const NAMES[] = {
        [KH_F32] = "f32", [KH_BF16] = "bf16", [KH_INT8] = "int8", [KH_PRECISION_AUTO] = "auto"
    };
    return NAMES[p];
}

/* All of a tensor as floats in fresh memory; NULL when out of memory. */
static float *floats(const kh_tensor *t) {
    float *out = kh_aligned((size_t)t->rows * (size_t)t->cols * sizeof *out);
    for (int r = 0; out && r < t->rows; r++)
        kh_tensor_row(t, r, out + (size_t)r * (size_t)t->cols);
    return out;
}

static void dense_free(dense *d) {
    kh_free(d->w);
    kh_free(d->bias);
}

/* One dense layer from the rows of w[0], then of w[1] (NULL: only one); the tensors are dropped
 * from the model. */
static bool dense_pack(
    kh_engine *e, kh_precision precision, dense *d, kh_tensor *w[2], kh_tensor *b[2]) {
    int parts = w[1] ? 2 : 1;
    d->k = w[0]->cols;
    d->n = w[0]->rows * parts;
    d->precision = precision;
    d->w = kh_aligned(kh_packed_bytes(e->kernels, precision, d->k, d->n));
    d->bias = kh_aligned((size_t)d->n * sizeof *d->bias);
    float *all = kh_aligned((size_t)d->n * (size_t)d->k * sizeof *all);
    bool ok = d->w && d->bias && all;
    for (int p = 0; ok && p < parts; p++) {
        for (int r = 0; r < w[p]->rows; r++)
            kh_tensor_row(
                w[p], r, all + ((size_t)p * (size_t)w[p]->rows + (size_t)r) * (size_t)d->k);
        kh_tensor_row(b[p], 0, d->bias + p * w[p]->rows);
    }
    if (ok)
        e->kernels->pack(precision, all, d->k, d->n, d->w);
    kh_free(all);
    return ok;
}

static bool layer_pack(kh_engine *e, int index) {
    packed_layer *p = &e->layer[index];
    kh_layer *l = &e->model->w.layer[index];
    kh_precision precision = e->precision;
    return dense_pack(
               e, precision, &p->q, (kh_tensor *[2]){ &l->q_w }, (kh_tensor *[2]){ &l->q_b }) &&
        dense_pack(e, precision, &p->kv, (kh_tensor *[2]){ &l->k_w, &l->v_w },
            (kh_tensor *[2]){ &l->k_b, &l->v_b }) &&
        dense_pack(e, precision, &p->o, (kh_tensor *[2]){ &l->o_w }, (kh_tensor *[2]){ &l->o_b }) &&
        dense_pack(
            e, precision, &p->up, (kh_tensor *[2]){ &l->up_w }, (kh_tensor *[2]){ &l->up_b }) &&
        dense_pack(e, precision, &p->down, (kh_tensor *[2]){ &l->down_w },
            (kh_tensor *[2]){ &l->down_b }) &&
        (p->ln1_g = floats(&l->ln1_g)) && (p->ln1_b = floats(&l->ln1_b)) &&
        (p->ln2_g = floats(&l->ln2_g)) && (p->ln2_b = floats(&l->ln2_b));
}

/* The matrices of a layer that now exist twice. */
static void layer_drop(kh_model *m, int index) {
    kh_layer *l = &m->w.layer[index];
    kh_tensor *all[] = { &l->q_w, &l->k_w, &l->v_w, &l->o_w, &l->up_w, &l->down_w };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        kh_model_drop(m, all[i]);
}

static bool head_pack(kh_engine *e) {
    kh_weights *w = &e->model->w;
    return dense_pack(e, KH_F32, &e->head, (kh_tensor *[2]){ &w->head_w },
               (kh_tensor *[2]){ &w->head_b }) &&
        (e->head_ln_g = floats(&w->head_ln_g)) && (e->head_ln_b = floats(&w->head_ln_b));
}

int kh_engine_new(kh_engine **out, kh_model *m, kh_precision precision, kh_err *err) {
    *out = NULL;
    if (m->config.arch->causal) {
        kh_fail(err, KH_EUNSUPPORTED, "%s: a %s model is a decoder, which the engine does not run",
            m->dir, m->config.arch->type);
        kh_model_close(m);
        return KH_EUNSUPPORTED;
    }
    kh_engine *e = kh_calloc(1, sizeof *e);
    if (!e) {
        kh_model_close(m);
        return kh_fail_memory(err);
    }
    e->model = m;
    e->kernels = kh_kernels_pick();
    e->precision = resolve(precision, e->kernels);
    bool ok = (e->layer = kh_calloc((size_t)m->config.layers, sizeof *e->layer)) &&
        (e->ln_g = floats(&m->w.ln_g)) && (e->ln_b = floats(&m->w.ln_b)) &&
        (!m->head || head_pack(e));
    int packed = 0;
#pragma omp parallel for schedule(dynamic) num_threads(kh_threads()) reduction(+ : packed) if (ok)
    for (int l = 0; l < m->config.layers; l++)
        if (ok && layer_pack(e, l)) {
            layer_drop(m, l);
            packed++;
        }
    if (!ok || packed < m->config.layers) {
        kh_engine_free(e);
        return kh_fail_memory(err);
    }
    *out = e;
    return 0;
}

void kh_engine_free(kh_engine *e) {
    if (!e)
        return;
    for (int l = 0; e->layer && l < e->model->config.layers; l++) {
        packed_layer *p = &e->layer[l];
        dense *all[] = { &p->q, &p->kv, &p->o, &p->up, &p->down };
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            dense_free(all[i]);
        float *vectors[] = { p->ln1_g, p->ln1_b, p->ln2_g, p->ln2_b };
        for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
            kh_free(vectors[i]);
    }
    float *vectors[] = { e->ln_g, e->ln_b, e->head_ln_g, e->head_ln_b };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        kh_free(vectors[i]);
    dense_free(&e->head);
    dense_free(&e->decoder);
    kh_free(e->layer);
    kh_model_close(e->model);
    kh_free(e);
}

const kh_model *kh_engine_model(const kh_engine *e) { return e->model; }
const kh_kernels *kh_engine_kernels(const kh_engine *e) { return e->kernels; }
kh_precision kh_engine_precision(const kh_engine *e) { return e->precision; }

/* ----------------------------------------------------------------------------------- one group */

/* What a thread computes in. */
typedef struct work {
    float *x, *y, *q, *ctx; /* [rows, H] */
    float *kv;              /* [rows, 2 H] */
    float *inner;           /* [rows, I], or wider: see call.wide */
    float *joined; /* [prefix and a sequence, 2 H] keys and values of both, if there is a prefix */
    const kh_adapter *prefix; /* or NULL */
    void *scratch;            /* of the kernels */
} work;

static void apply(const kh_engine *e, const dense *d, const float *x, int rows,
    const float *residual, kh_epilogue epilogue, float *y, void *scratch) {
    e->kernels->product(&(kh_product){ .precision = d->precision,
                            .a = x,
                            .lda = (size_t)d->k,
                            .rows = rows,
                            .k = d->k,
                            .n = d->n,
                            .w = d->w,
                            .bias = d->bias,
                            .residual = residual,
                            .epilogue = epilogue,
                            .c = y,
                            .ldc = (size_t)d->n },
        scratch);
}

static kh_epilogue epilogue_of(kh_act act) {
    static const kh_epilogue OF[] = { [KH_ACT_GELU] = KH_GELU,
        [KH_ACT_GELU_TANH] = KH_GELU_TANH,
        [KH_ACT_RELU] = KH_RELU,
        [KH_ACT_SILU] = KH_SILU };
    return OF[act];
}

/* The rest of a layer after attention, for `rows` rows: w->ctx and the layer's input w->x -> the
 * layer's output in w->x. */
static void finish_layer(const kh_engine *e, const packed_layer *p, int rows, work *w) {
    int H = e->model->config.hidden;
    float eps = (float)e->model->config.eps;
    apply(e, &p->o, w->ctx, rows, w->x, KH_PLAIN, w->y, w->scratch);
    e->kernels->layer_norm(w->y, rows, H, eps, p->ln1_g, p->ln1_b, w->y);
    apply(e, &p->up, w->y, rows, NULL, epilogue_of(e->model->config.act), w->inner, w->scratch);
    apply(e, &p->down, w->inner, rows, w->y, KH_PLAIN, w->x, w->scratch);
    e->kernels->layer_norm(w->x, rows, H, eps, p->ln2_g, p->ln2_b, w->x);
}

/* A sequence of a group while it passes through the layers. */
typedef struct span {
    int rows;         /* T */
    int mask, n_mask; /* the rows that matter after the last layer */
} span;

/* The prefix's keys and values of a layer, which attention sees before those of a sequence. */
static void join_prefix(const kh_adapter *g, int layer, work *w) {
    size_t H = (size_t)g->hidden, slots = (size_t)g->slots;
    const float *key = g->x + 2 * (size_t)layer * slots * H, *value = key + slots * H;
    for (size_t i = 0; i < slots; i++) {
        memcpy(w->joined + i * 2 * H, key + i * H, H * sizeof *key);
        memcpy(w->joined + i * 2 * H + H, value + i * H, H * sizeof *value);
    }
}

/* Attention for each sequence; if `only_masks`, queries are the mask rows, which stand compactly in
 * w->q. */
static void attend(const kh_engine *e, int layer, const span *s, int n, bool only_masks, work *w) {
    size_t H = (size_t)e->model->config.hidden;
    int heads = e->model->config.heads, slots = w->prefix ? w->prefix->slots : 0;
    size_t row = 0, query = 0;
    if (slots > 0)
        join_prefix(w->prefix, layer, w);
    for (int i = 0; i < n; i++) {
        int n_query = only_masks ? s[i].n_mask : s[i].rows;
        const float *kv = w->kv + row * 2 * H;
        if (slots > 0) {
            memcpy(w->joined + (size_t)slots * 2 * H, kv, (size_t)s[i].rows * 2 * H * sizeof *kv);
            kv = w->joined;
        }
        e->kernels->attention(&(kh_attention){ .q = w->q + query * H,
                                  .ldq = H,
                                  .k = kv,
                                  .ldk = 2 * H,
                                  .v = kv + H,
                                  .ldv = 2 * H,
                                  .n_query = n_query,
                                  .n = slots + s[i].rows,
                                  .heads = heads,
                                  .d = (int)H / heads,
                                  .out = w->ctx + query * H,
                                  .ldo = H },
            w->scratch);
        row += (size_t)s[i].rows;
        query += (size_t)n_query;
    }
}

/* Moves the mask rows of [rows, H] to the front. */
static void keep_masks(const span *s, int n, size_t H, float *x) {
    size_t row = 0, kept = 0;
    for (int i = 0; i < n; i++) {
        memmove(
            x + kept * H, x + (row + (size_t)s[i].mask) * H, (size_t)s[i].n_mask * H * sizeof *x);
        row += (size_t)s[i].rows;
        kept += (size_t)s[i].n_mask;
    }
}

static int count_rows(const span *s, int n, bool masks) {
    int rows = 0;
    for (int i = 0; i < n; i++)
        rows += masks ? s[i].n_mask : s[i].rows;
    return rows;
}

/* Layers 0 .. layers-1 on w->x, with the first layer's w->q and w->kv already there. If `to_masks`,
 * the last layer is computed for the mask rows only, which then stand compactly in w->x. */
static void run_layers(
    const kh_engine *e, const span *s, int n, int layers, bool to_masks, work *w) {
    size_t H = (size_t)e->model->config.hidden;
    int rows = count_rows(s, n, false);
    for (int l = 0; l < layers; l++) {
        const packed_layer *p = &e->layer[l];
        bool last = to_masks && l == layers - 1;
        if (l > 0)
            apply(e, &p->kv, w->x, rows, NULL, KH_PLAIN, w->kv, w->scratch);
        if (last) {
            keep_masks(s, n, H, w->x);
            keep_masks(s, n, H, w->q);
            rows = count_rows(s, n, true);
        }
        if (l > 0)
            apply(e, &p->q, w->x, rows, NULL, KH_PLAIN, w->q, w->scratch);
        attend(e, l, s, n, last, w);
        finish_layer(e, p, rows, w);
    }
}

/* The head without its decoder: x [rows, H] -> w->y. */
static void run_head(const kh_engine *e, const float *x, int rows, work *w) {
    apply(e, &e->head, x, rows, NULL, epilogue_of(e->model->config.head_act), w->y, w->scratch);
    e->kernels->layer_norm(w->y, rows, e->model->config.hidden, (float)e->model->config.eps,
        e->head_ln_g, e->head_ln_b, w->y);
}

/* -------------------------------------------------------------------------------------- pieces */

/* Rows that many pairs share: embedding output, and the first layer's queries, keys and values. */
typedef struct piece {
    int prompt; /* the slots of this prompt, or -1: a sequence without its slots */
    int seq;    /* that sequence; for a prompt, one that has the slots at this place */
    int rows;
    float *x, *q; /* [rows, H] */
    float *kv;    /* [rows, 2 H] */
} piece;

/* Embedding of one row before LayerNorm: word (an id, or `row` in its place), position, type 0. */
static void embed_row(
    const kh_engine *e, int32_t id, const float *row, int position, float *out, float *other) {
    const kh_weights *w = &e->model->w;
    int H = e->model->config.hidden;
    if (row)
        memcpy(out, row, (size_t)H * sizeof *out);
    else
        kh_tensor_row(&w->word, id, out);
    kh_tensor_row(&w->position, position, other);
    for (int i = 0; i < H; i++)
        out[i] += other[i];
    if (w->type.data) {
        kh_tensor_row(&w->type, 0, other);
        for (int i = 0; i < H; i++)
            out[i] += other[i];
    }
}

/* Embedding output of a piece. Positions count the rows of the sequence; RoBERTa leaves padding out
 * of the count. */
static void embed_piece(const kh_engine *e, const kh_question *ask, const piece *p, float *other) {
    const kh_config *g = &e->model->config;
    const kh_batch *b = ask->batch;
    size_t H = (size_t)g->hidden;
    const int32_t *id = b->id + b->start[p->seq];
    const float *prompt =
        p->prompt >= 0 ? ask->prompt + (size_t)p->prompt * (size_t)b->n_slot * H : NULL;
    bool embedded = b->n_slot > 0 && ask->inject != KH_INJECT_POST_LN_ADD;
    int slot = b->slot[p->seq], next = g->first_position;
    for (int t = 0, r = 0; r < p->rows; t++) {
        bool in_slot = slot >= 0 && t >= slot && t < slot + b->n_slot;
        int position = kh_config_position(g, id[t], embedded, &next);
        if (in_slot != (prompt != NULL))
            continue;
        embed_row(e, id[t], prompt && embedded ? prompt + (size_t)r * H : NULL, position,
            p->x + (size_t)r * H, other);
        r++;
    }
    e->kernels->layer_norm(p->x, p->rows, (int)H, (float)g->eps, e->ln_g, e->ln_b, p->x);
    if (prompt && !embedded)
        for (size_t i = 0; i < (size_t)p->rows * H; i++)
            p->x[i] += prompt[i];
}

static void compute_piece(const kh_engine *e, const kh_question *ask, const piece *p, work *w) {
    if (p->rows == 0) /* slots from the first place to the last leave no text */
        return;
    embed_piece(e, ask, p, w->y);
    apply(e, &e->layer[0].q, p->x, p->rows, NULL, KH_PLAIN, p->q, w->scratch);
    apply(e, &e->layer[0].kv, p->x, p->rows, NULL, KH_PLAIN, p->kv, w->scratch);
}

/* Copies n rows of a piece, from row `from` on, to row `to` of the group. */
static void place(const piece *p, int from, int n, size_t to, size_t H, work *w) {
    size_t count = (size_t)n * H, start = (size_t)from * H;
    memcpy(w->x + to * H, p->x + start, count * sizeof *w->x);
    memcpy(w->q + to * H, p->q + start, count * sizeof *w->q);
    memcpy(w->kv + to * 2 * H, p->kv + 2 * start, 2 * count * sizeof *w->kv);
}

/* --------------------------------------------------------------------------------------- calls */

/* A prompt with a sequence. */
typedef struct pair {
    const piece *text, *prompt; /* prompt is NULL if the batch has no slots */
} pair;

typedef struct call call;

/* What a call makes of the final rows of a group, which stand compactly in `rows`: mask rows after
 * the head, or all rows. */
typedef void take_fn(call *, const pair *, const span *, int n, const float *rows, work *);

struct call {
    kh_engine *e;
    const kh_question *ask;
    int layers;    /* to run */
    bool to_masks; /* the last one for mask rows only, then the head */
    take_fn *take;
    float *out;
    const kh_adapter *prefix; /* or NULL */

    dense label;   /* kh_engine_score, words of one token: the decoder's rows of them */
    const int *at; /* kh_engine_vocabulary: places */
    int n_at;
    int wide; /* floats per row of the threads' buffer for outputs; 0: I */

    work *work; /* [threads] */
    int threads;
    piece *piece;
    float *piece_memory;
    pair *pair;
    span *span; /* [n_pair] */
    int *cut;   /* groups are pairs cut[g] .. cut[g + 1] - 1 */
    size_t piece_cap, memory_cap, pair_cap, span_cap, cut_cap;
};

static int pair_rows(const pair *p) { return p->text->rows + (p->prompt ? p->prompt->rows : 0); }

/* Groups of about equal rows, at most GROUP_ROWS and a sequence, as many as a multiple of the
 * threads: each cut is where the rows so far are nearest to an equal share. */
static int cut_groups(call *c, int n_pair) {
    long total = 0, rows = 0;
    for (int i = 0; i < n_pair; i++)
        total += pair_rows(&c->pair[i]);
    long groups =
        ((total + GROUP_ROWS - 1) / GROUP_ROWS + c->threads - 1) / c->threads * c->threads;
    int n = 0;
    c->cut[0] = 0;
    for (int i = 0; i < n_pair; i++) {
        long next = pair_rows(&c->pair[i]);
        if (i > c->cut[n] && (rows + next / 2) * groups > (n + 1) * total)
            c->cut[++n] = i;
        rows += next;
    }
    c->cut[++n] = n_pair;
    return n;
}

static void run_group(call *c, int first, int n, work *w) {
    kh_engine *e = c->e;
    const kh_batch *b = c->ask->batch;
    size_t H = (size_t)e->model->config.hidden, row = 0;
    span *s = c->span + first;
    for (int i = 0; i < n; i++) {
        const pair *p = &c->pair[first + i];
        int seq = p->text->seq, slot = p->prompt ? b->slot[seq] : p->text->rows;
        s[i] = (span){ pair_rows(p), b->mask[seq], b->n_mask[seq % b->n_variant] };
        place(p->text, 0, slot, row, H, w);
        if (p->prompt) {
            place(p->prompt, 0, b->n_slot, row + (size_t)slot, H, w);
            place(p->text, slot, p->text->rows - slot, row + (size_t)(slot + b->n_slot), H, w);
        }
        row += (size_t)s[i].rows;
    }
    run_layers(e, s, n, c->layers, c->to_masks, w);
    if (c->to_masks)
        run_head(e, w->x, count_rows(s, n, true), w);
    c->take(c, c->pair + first, s, n, c->to_masks ? w->y : w->x, w);
}

/* Prompts p0 .. p1-1 with sequences s0 .. s1-1: the part of a call whose pieces are in memory
 * together. */
typedef struct round {
    int p0, p1, s0, s1;
    int n_text, n_prompt; /* how many of each */
    int n_piece, n_pair;
} round_of;

/* The first of the prompts' pieces for the place where sequence s has its slots; n_piece if there
 * is none yet. */
static int prompt_pieces(const call *c, const round_of *r, int s) {
    const int *slot = c->ask->batch->slot;
    int at = r->n_text;
    while (at < r->n_piece && slot[c->piece[at].seq] != slot[s])
        at += r->n_prompt;
    return at;
}

/* The texts, then, for each place where slots stand, the prompts; and memory for all of them. */
static bool make_pieces(call *c, round_of *r) {
    const kh_batch *b = c->ask->batch;
    size_t H = (size_t)c->e->model->config.hidden, rows = 0;
    if (!kh_grow(&c->piece, &c->piece_cap, (size_t)r->n_text * (size_t)(1 + r->n_prompt),
            sizeof *c->piece))
        return false;
    for (int s = r->s0; s < r->s1; s++)
        c->piece[r->n_piece++] = (piece){
            .prompt = -1, .seq = s, .rows = (int)(b->start[s + 1] - b->start[s]) - b->n_slot
        };
    for (int s = r->s0; s < r->s1 && b->n_slot > 0; s++)
        if (prompt_pieces(c, r, s) == r->n_piece)
            for (int p = r->p0; p < r->p1; p++)
                c->piece[r->n_piece++] = (piece){ .prompt = p, .seq = s, .rows = b->n_slot };
    for (int i = 0; i < r->n_piece; i++)
        rows += (size_t)c->piece[i].rows;
    if (!kh_grow(&c->piece_memory, &c->memory_cap, rows * 4 * H, sizeof *c->piece_memory))
        return false;
    float *at = c->piece_memory;
    for (int i = 0; i < r->n_piece; i++) {
        piece *p = &c->piece[i];
        size_t n = (size_t)p->rows * H;
        p->x = at, p->q = at + n, p->kv = at + 2 * n;
        at += 4 * n;
    }
    return true;
}

/* Every prompt with every sequence, prompt after prompt. */
static bool make_pairs(call *c, round_of *r) {
    bool slots = c->ask->batch->n_slot > 0;
    size_t n = (size_t)r->n_text * (size_t)r->n_prompt;
    if (!kh_grow(&c->pair, &c->pair_cap, n, sizeof *c->pair) ||
        !kh_grow(&c->span, &c->span_cap, n, sizeof *c->span) ||
        !kh_grow(&c->cut, &c->cut_cap, n + 2, sizeof *c->cut))
        return false;
    for (int p = r->p0; p < r->p1; p++)
        for (int s = r->s0; s < r->s1; s++)
            c->pair[r->n_pair++] = (pair){ &c->piece[s - r->s0],
                slots ? &c->piece[prompt_pieces(c, r, s) + p - r->p0] : NULL };
    return true;
}

static int run_round(call *c, int p0, int p1, int s0, int s1, kh_err *err) {
    round_of r = { p0, p1, s0, s1, .n_text = s1 - s0, .n_prompt = p1 - p0 };
    if (!make_pieces(c, &r) || !make_pairs(c, &r))
        return kh_fail_memory(err);
#pragma omp parallel for schedule(dynamic) num_threads(c->threads)
    for (int i = 0; i < r.n_piece; i++)
        compute_piece(c->e, c->ask, &c->piece[i], &c->work[omp_get_thread_num()]);
    int groups = cut_groups(c, r.n_pair);
#pragma omp parallel for schedule(dynamic) num_threads(c->threads)
    for (int g = 0; g < groups; g++)
        run_group(c, c->cut[g], c->cut[g + 1] - c->cut[g], &c->work[omp_get_thread_num()]);
    return 0;
}

/* The end of the longest run of items from `from` on whose rows are at most ROUND_ROWS; at least
 * one item. */
static int round_end(int from, int n, const size_t *start, size_t each) {
    size_t rows = 0;
    int end = from;
    while (end < n && (end == from || rows <= ROUND_ROWS)) {
        rows += start ? start[end + 1] - start[end] : each;
        end++;
    }
    return end;
}

static bool work_new(const call *c, int rows, work *w) {
    const kh_config *g = &c->e->model->config;
    int slots = c->prefix ? c->prefix->slots : 0;
    size_t n = (size_t)rows, H = (size_t)g->hidden,
           I = (size_t)(c->wide > g->inner ? c->wide : g->inner);
    size_t joined = slots > 0 ? (size_t)(slots + c->ask->batch->max_len) * 2 * H : 0;
    float *block = kh_aligned((n * (6 * H + I) + joined) * sizeof *block);
    w->scratch = kh_aligned(kh_kernels_scratch(rows + slots, (int)H / g->heads));
    *w = (work){ block, block, block, block, block, block, block, c->prefix, w->scratch };
    if (!block || !w->scratch)
        return false;
    w->y += n * H, w->q += 2 * n * H, w->ctx += 3 * n * H, w->kv += 4 * n * H,
        w->inner += 6 * n * H;
    w->joined += n * (6 * H + I);
    return true;
}

static void call_free(call *c) {
    for (int t = 0; c->work && t < c->threads; t++) {
        kh_free(c->work[t].x);
        kh_free(c->work[t].scratch);
    }
    kh_free(c->work);
    kh_free(c->piece);
    kh_free(c->piece_memory);
    kh_free(c->pair);
    kh_free(c->span);
    kh_free(c->cut);
    dense_free(&c->label);
}

/* Threads cost more than they bring to a call of less than a millisecond or so. */
static int worthwhile_threads(const call *c) {
    const kh_config *g = &c->e->model->config;
    const kh_batch *b = c->ask->batch;
    double rows = (double)(b->start[b->n_seq] - b->start[0]) * kh_question_prompts(c->ask);
    double products = rows * g->layers * g->hidden * (4.0 * g->hidden + 2.0 * g->inner);
    return products > 5e7 ? kh_threads() : 1;
}

/* Every prompt with every sequence. Frees what the call holds, also on failure. */
static int call_run(call *c, kh_err *err) {
    const kh_batch *b = c->ask->batch;
    int rc = 0;
    c->threads = worthwhile_threads(c);
    c->work = kh_calloc((size_t)c->threads, sizeof *c->work);
    bool ok = c->work != NULL;
    for (int t = 0; ok && t < c->threads; t++)
        ok = work_new(c, GROUP_ROWS + b->max_len, &c->work[t]);
    if (!ok)
        rc = kh_fail_memory(err);
    int n_prompt = kh_question_prompts(c->ask);
    for (int p0 = 0, p1; rc == 0 && p0 < n_prompt; p0 = p1) {
        p1 = round_end(p0, n_prompt, NULL, (size_t)b->n_slot + 1);
        for (int s0 = 0, s1; rc == 0 && s0 < b->n_seq; s0 = s1) {
            s1 = round_end(s0, b->n_seq, b->start, 0);
            rc = run_round(c, p0, p1, s0, s1, err);
        }
    }
    call_free(c);
    return rc;
}

/* ----------------------------------------------------------------------------------- questions */

/* What only the caller's mistake can break is checked here, once for all questions. */
int kh_engine_check(const kh_engine *e, const kh_question *ask, kh_err *err) {
    const kh_config *g = &e->model->config;
    const kh_batch *b = ask->batch;
    for (int s = 0; s < b->n_seq; s++)
        if (b->start[s + 1] <= b->start[s])
            return kh_fail(err, KH_EARG, "a sequence without tokens has no hidden states");
    if (b->n_slot > 0 && (!ask->prompt || ask->n_prompt < 1))
        return kh_fail(err, KH_EARG,
            "the batch has %d slots for a soft prompt, but no prompt is given", b->n_slot);
    if (b->n_slot > 0 && ask->inject == KH_INJECT_NONE)
        return kh_fail(err, KH_EARG, "a soft prompt needs an injection mode");
    if (b->max_len > kh_config_max_tokens(g))
        return kh_fail(err, KH_ELIMIT,
            "a sequence of %d tokens is longer than the %d that the model can take", b->max_len,
            kh_config_max_tokens(g));
    for (size_t i = b->start[0]; i < b->start[b->n_seq]; i++)
        if (b->id[i] < 0 || b->id[i] >= g->vocab)
            return kh_fail(err, KH_EMISMATCH,
                "token id %d is outside the model's vocabulary of %d: does the tokenizer belong to "
                "the model?",
                (int)b->id[i], g->vocab);
    return 0;
}

/* log(sum of e^x), safe for large x. */
static float log_sum_exp(const float *x, int n) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - top);
    return (float)(top + log(sum));
}

static int pack_decoder(kh_engine *e, kh_err *err) {
    kh_weights *w = &e->model->w;
    if (e->decoder.w)
        return 0;
    if (dense_pack(e, e->precision == KH_F32 ? KH_F32 : KH_BF16, &e->decoder,
            (kh_tensor *[2]){ &w->decoder_w }, (kh_tensor *[2]){ &w->decoder_b }))
        return 0;
    dense_free(&e->decoder);
    e->decoder = (dense){ 0 };
    return kh_fail_memory(err);
}

/* The width that lets the buffer of a thread hold at least one row of the vocabulary. */
static int vocabulary_width(const kh_engine *e) { return e->model->config.vocab / GROUP_ROWS + 1; }

/* Logits of the whole vocabulary -> log-probabilities. */
static void log_softmax(float *x, int n) {
    float total = log_sum_exp(x, n);
    for (int v = 0; v < n; v++)
        x[v] -= total;
}

/* Word scores where every word is one token: [n_prompt, n_row, n_word]. */
static void take_single(call *c, const pair *p, const span *s, int n, const float *rows, work *w) {
    size_t n_word = (size_t)c->ask->words->n_word, n_row = (size_t)c->ask->batch->n_row;
    (void)s;
    apply(c->e, &c->label, rows, n, NULL, KH_PLAIN, w->inner, w->scratch);
    for (int i = 0; i < n; i++) {
        size_t prompt = p[i].prompt ? (size_t)p[i].prompt->prompt : 0;
        memcpy(c->out + (prompt * n_row + (size_t)p[i].text->seq) * n_word,
            w->inner + (size_t)i * n_word, n_word * sizeof *c->out);
    }
}

/* The same where words have several tokens: each is scored in the sequence that has as many masks.
 */
static void take_multiple(
    call *c, const pair *p, const span *s, int n, const float *rows, work *w) {
    const kh_words *words = c->ask->words;
    const kh_batch *b = c->ask->batch;
    size_t H = (size_t)c->e->model->config.hidden;
    for (int i = 0; i < n; i++) {
        size_t prompt = p[i].prompt ? (size_t)p[i].prompt->prompt : 0,
               row = (size_t)(p[i].text->seq / b->n_variant);
        float *score = c->out + (prompt * (size_t)b->n_row + row) * (size_t)words->n_word;
        for (int k = 0; k < words->n_word; k++)
            if (words->word[k].n_id == s[i].n_mask)
                score[k] = 0;
        for (int m = 0; m < s[i].n_mask; m++, rows += H) {
            apply(c->e, &c->e->decoder, rows, 1, NULL, KH_PLAIN, w->inner, w->scratch);
            log_softmax(w->inner, c->e->decoder.n);
            for (int k = 0; k < words->n_word; k++)
                if (words->word[k].n_id == s[i].n_mask)
                    score[k] += w->inner[words->word[k].id[m]] / (float)s[i].n_mask;
        }
    }
}

/* Scores of words -> logits of labels. */
static void reduce_words(const kh_words *words, const float *score, size_t n, float *logits) {
    for (size_t i = 0; i < n; i++, score += words->n_word, logits += words->n_label)
        for (int k = 0, first = 0, end; k < words->n_label; k++, first = end) {
            for (end = first; end < words->n_word && words->word[end].label == k; end++)
                ;
            logits[k] = end == first + 1 ? score[first] : log_sum_exp(score + first, end - first);
        }
}

/* The decoder's rows of the label words, as a dense layer of its own. */
static int pack_labels(kh_engine *e, const kh_words *words, dense *d, kh_err *err) {
    kh_weights *w = &e->model->w;
    int H = e->model->config.hidden;
    float *row = kh_aligned((size_t)words->n_word * (size_t)H * sizeof *row),
          *bias = floats(&w->decoder_b);
    *d = (dense){ .k = H,
        .n = words->n_word,
        .w = kh_aligned(kh_packed_bytes(e->kernels, KH_F32, H, words->n_word)),
        .bias = kh_aligned((size_t)words->n_word * sizeof *bias) };
    bool ok = row && bias && d->w && d->bias;
    for (int k = 0; ok && k < words->n_word; k++) {
        kh_tensor_row(&w->decoder_w, words->word[k].id[0], row + (size_t)k * (size_t)H);
        d->bias[k] = bias[words->word[k].id[0]];
    }
    if (ok)
        e->kernels->pack(KH_F32, row, H, words->n_word, d->w);
    kh_free(row);
    kh_free(bias);
    return ok ? 0 : kh_fail_memory(err);
}

static int score(
    kh_engine *e, const kh_question *ask, const kh_adapter *prefix, float *logits, kh_err *err) {
    const kh_words *words = ask->words;
    bool single = words->n_variant == 1 && words->n_mask[0] == 1;
    size_t n = kh_question_pairs(ask);
    call c = {
        .e = e,
        .ask = ask,
        .layers = e->model->config.layers,
        .to_masks = true,
        .take = single ? take_single : take_multiple,
        .prefix = prefix,
    };
    c.wide = single ? words->n_word : vocabulary_width(e);
    int rc = kh_model_needs_head(e->model, "scoring label words", err);
    if (rc == 0)
        rc = kh_engine_check(e, ask, err);
    if (rc == 0)
        rc = single ? pack_labels(e, words, &c.label, err) : pack_decoder(e, err);
    float *score = rc == 0 ? kh_calloc(n * (size_t)words->n_word, sizeof *score) : NULL;
    if (rc == 0 && !score)
        rc = kh_fail_memory(err);
    c.out = score;
    if (rc == 0)
        rc = call_run(&c, err);
    else
        call_free(&c);
    if (rc == 0)
        reduce_words(words, score, n, logits);
    kh_free(score);
    return rc;
}

int kh_engine_score(kh_engine *e, const kh_question *ask, float *logits, kh_err *err) {
    return score(e, ask, NULL, logits, err);
}

int kh_engine_score_prefixed(
    kh_engine *e, const kh_question *ask, const kh_adapter *prefix, float *logits, kh_err *err) {
    const kh_config *c = &e->model->config;
    return prefix->kind == KH_ADAPTER_PREFIX && prefix->layers == c->layers &&
            prefix->hidden == c->hidden
        ? score(e, ask, prefix, logits, err)
        : kh_fail(err, KH_EMISMATCH,
              "a prefix of %d layers with %d numbers a slot does not fit a model of %d layers with "
              "%d",
              prefix->layers, prefix->hidden, c->layers, c->hidden);
}

/* All rows of the last layer are here; the head and the decoder run for the places asked for.
 * Sequences of a group stand in the order of the batch, so the group's places are a run of `at`. */
static void take_vocabulary(
    call *c, const pair *p, const span *s, int n, const float *rows, work *w) {
    const size_t *start = c->ask->batch->start, H = (size_t)c->e->model->config.hidden,
                 V = (size_t)c->e->decoder.n;
    size_t begin = start[p[0].text->seq], end = start[p[n - 1].text->seq + 1];
    int first = 0, after;
    (void)s;
    while (first < c->n_at && (size_t)c->at[first] < begin)
        first++;
    for (after = first; after < c->n_at && (size_t)c->at[after] < end;
         after++) /* queries are no longer needed */
        memcpy(w->q + (size_t)(after - first) * H, rows + ((size_t)c->at[after] - begin) * H,
            H * sizeof *rows);
    if (after == first)
        return;
    run_head(c->e, w->q, after - first, w);
    apply(c->e, &c->e->decoder, w->y, after - first, NULL, KH_PLAIN, c->out + (size_t)first * V,
        w->scratch);
    for (int i = first; i < after; i++)
        log_softmax(c->out + (size_t)i * V, (int)V);
}

/* A question about sequences as they are. */
static int check_plain(const kh_engine *e, const kh_question *q, kh_err *err) {
    if (q->batch->n_slot > 0 && q->n_prompt != 1)
        return kh_fail(err, KH_EARG, "this question takes one prompt, not %d", q->n_prompt);
    return kh_engine_check(e, q, err);
}

static int check_places(const kh_batch *b, const int *at, int n_at, kh_err *err) {
    for (int i = 0; i < n_at; i++)
        if (at[i] < 0 || (size_t)at[i] >= b->start[b->n_seq] || (i > 0 && at[i] <= at[i - 1]))
            return kh_fail(err, KH_EARG,
                "place %d among %zu tokens: places must ascend and be inside", at[i],
                b->start[b->n_seq]);
    return 0;
}

int kh_engine_vocabulary(
    kh_engine *e, const kh_question *q, const int *at, int n_at, float *out, kh_err *err) {
    call c = { .e = e,
        .ask = q,
        .layers = e->model->config.layers,
        .take = take_vocabulary,
        .out = out,
        .at = at,
        .n_at = n_at };
    int rc = kh_model_needs_head(e->model, "asking for words at a mask", err);
    if (rc == 0)
        rc = check_plain(e, q, err);
    if (rc == 0)
        rc = check_places(q->batch, at, n_at, err);
    if (rc == 0)
        rc = pack_decoder(e, err);
    return rc == 0 ? call_run(&c, err) : rc;
}

static void take_hidden(call *c, const pair *p, const span *s, int n, const float *rows, work *w) {
    const size_t *start = c->ask->batch->start, H = (size_t)c->e->model->config.hidden;
    (void)s, (void)w;
    size_t begin = start[p[0].text->seq], end = start[p[n - 1].text->seq + 1];
    memcpy(c->out + begin * H, rows, (end - begin) * H * sizeof *rows);
}

int kh_engine_hidden(kh_engine *e, const kh_question *ask, int layers, float *out, kh_err *err) {
    call c = { .e = e, .ask = ask, .layers = layers, .take = take_hidden, .out = out };
    if (layers < 0 || layers > e->model->config.layers)
        return kh_fail(err, KH_EARG, "layer %d: the model has layers 0 (embeddings) to %d", layers,
            e->model->config.layers);
    int rc = check_plain(e, ask, err);
    return rc == 0 ? call_run(&c, err) : rc;
}

void kh_single_init(kh_single *s, const int32_t *id, int n) {
    *s = (kh_single){ .start = { 0, (size_t)n }, .slot = -1, .n_mask = 1 };
    s->batch = (kh_batch){ .n_row = 1,
        .n_variant = 1,
        .n_seq = 1,
        .max_len = n,
        .id = id,
        .start = s->start,
        .n_mask = &s->n_mask,
        .mask = &s->mask,
        .slot = &s->slot };
}
