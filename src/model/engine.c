/* engine.c - the fast forward pass of encoders, and the questions to all models; see engine.h for
 * what it promises. Decoders are run by causal.c.
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
#include "model/packed.h"

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

/* ----------------------------------------------------------------------------------- one group */

/* What a thread computes in. */
typedef struct work {
    float *x, *y, *q, *ctx; /* [rows, H] */
    float *kv;              /* [rows, 2 H] */
    float *inner;           /* [rows, I], or wider: see call.wide */
    float *gate;            /* [rows, I], if the feed-forward part has one */
    float *joined; /* [prefix and a sequence, 2 H] keys and values of both, if there is a prefix */
    const kh_adapter *prefix; /* or NULL */
    void *scratch;            /* of the kernels */
} work;

static void norm_rows(
    const kh_engine *e, const float *x, int rows, const float *g, const float *b, float *y) {
    const kh_config *c = &e->model->config;
    e->kernels->layer_norm(x, rows, c->hidden, (float)c->eps, g, b, y);
}

/* The feed-forward part before its last product: x [rows, H] -> w->inner [rows, I]. */
static void feed_forward(
    const kh_engine *e, const kh_packed_layer *p, const float *x, int rows, work *w) {
    const kh_config *c = &e->model->config;
    kh_epilogue act = kh_epilogue_of(c->act);
    kh_dense_apply(e, &p->up, x, rows, NULL, c->arch->gated ? KH_PLAIN : act, w->inner, w->scratch);
    if (!c->arch->gated)
        return;
    kh_dense_apply(e, &p->gate, x, rows, NULL, act, w->gate, w->scratch);
    for (size_t i = 0; i < (size_t)rows * (size_t)c->inner; i++)
        w->inner[i] *= w->gate[i];
}

/* The rest of a layer after attention, for `rows` rows: w->ctx and the layer's input w->x -> the
 * layer's output in w->x. */
static void finish_layer(const kh_engine *e, const kh_packed_layer *p, int rows, work *w) {
    bool after = e->model->config.arch->place == KH_NORM_AFTER;
    kh_dense_apply(e, &p->o, w->ctx, rows, w->x, KH_PLAIN, w->y, w->scratch);
    if (after)
        norm_rows(e, w->y, rows, p->ln1_g, p->ln1_b, w->y);
    else
        norm_rows(e, w->y, rows, p->ln2_g, p->ln2_b, w->x);
    feed_forward(e, p, after ? w->y : w->x, rows, w);
    kh_dense_apply(e, &p->down, w->inner, rows, w->y, KH_PLAIN, w->x, w->scratch);
    if (after)
        norm_rows(e, w->x, rows, p->ln2_g, p->ln2_b, w->x);
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

/* Attention with a window, query by query: each sees half of the window to either side. */
static void attend_near(const kh_engine *e, int window, kh_attention a, int first, work *w) {
    int half = window / 2, n = a.n, queries = a.n_query;
    const float *k = a.k, *v = a.v;
    a.n_query = 1;
    for (int i = 0; i < queries; i++, a.q += a.ldq, a.out += a.ldo) {
        int place = first + i, from = place > half ? place - half : 0;
        int to = n - place > half + 1 ? place + half + 1 : n;
        a.k = k + (size_t)from * a.ldk;
        a.v = v + (size_t)from * a.ldv;
        a.n = to - from;
        e->kernels->attention(&a, w->scratch);
    }
}

/* Attention for each sequence; if `only_masks`, queries are the mask rows, which stand compactly in
 * w->q. */
static void attend(const kh_engine *e, int layer, const span *s, int n, bool only_masks, work *w) {
    size_t H = (size_t)e->model->config.hidden;
    int heads = e->model->config.heads, slots = w->prefix ? w->prefix->slots : 0;
    int window = kh_config_window(&e->model->config, layer);
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
        kh_attention a = { .q = w->q + query * H,
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
            .ldo = H };
        if (window > 0)
            attend_near(e, window, a, only_masks ? s[i].mask : 0, w);
        else
            e->kernels->attention(&a, w->scratch);
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

/* Rotary positions of rows [rows, ld]: all of the sequences, or their masks. */
static void turn_rows(
    const kh_engine *e, int layer, const span *s, int n, bool masks, float *x, size_t ld) {
    const kh_config *c = &e->model->config;
    for (int i = 0; i < n && c->arch->position == KH_POSITION_ROTARY; i++) {
        int first = masks ? s[i].mask : 0, rows = masks ? s[i].n_mask : s[i].rows;
        for (int r = 0; r < rows; r++, x += ld)
            kh_turn(e, layer, first + r, x, c->heads);
    }
}

/* What attention reads: x, or x normalised in y. */
static const float *attention_input(
    const kh_engine *e, const kh_packed_layer *p, const float *x, int rows, float *y) {
    if (e->model->config.arch->place == KH_NORM_AFTER || !p->ln1_g)
        return x;
    norm_rows(e, x, rows, p->ln1_g, p->ln1_b, y);
    return y;
}

/* Layers 0 .. layers-1 on w->x, with the first layer's w->q and w->kv already there. If `to_masks`,
 * the last layer is computed for the mask rows only, which then stand compactly in w->x. */
static void run_layers(
    const kh_engine *e, const span *s, int n, int layers, bool to_masks, work *w) {
    size_t H = (size_t)e->model->config.hidden;
    int rows = count_rows(s, n, false);
    for (int l = 0; l < layers; l++) {
        const kh_packed_layer *p = &e->layer[l];
        bool last = to_masks && l == layers - 1;
        const float *in = l > 0 ? attention_input(e, p, w->x, rows, w->y) : w->x;
        if (l > 0) {
            kh_dense_apply(e, &p->kv, in, rows, NULL, KH_PLAIN, w->kv, w->scratch);
            turn_rows(e, l, s, n, false, w->kv, 2 * H);
        }
        if (last) {
            keep_masks(s, n, H, w->x);
            if (l == 0)
                keep_masks(s, n, H, w->q);
            else if (in == w->y)
                keep_masks(s, n, H, w->y);
            rows = count_rows(s, n, true);
        }
        if (l > 0) {
            kh_dense_apply(e, &p->q, in, rows, NULL, KH_PLAIN, w->q, w->scratch);
            turn_rows(e, l, s, n, last, w->q, H);
        }
        attend(e, l, s, n, last, w);
        finish_layer(e, p, rows, w);
    }
}

/* The head without its decoder: x [rows, H] -> w->y. */
static void run_head(const kh_engine *e, const float *x, int rows, work *w) {
    if (e->final_g) {
        norm_rows(e, x, rows, e->final_g, e->final_b, w->ctx);
        x = w->ctx;
    }
    kh_dense_apply(
        e, &e->head, x, rows, NULL, kh_epilogue_of(e->model->config.head_act), w->y, w->scratch);
    e->kernels->layer_norm(
        w->y, rows, e->head.n, (float)e->model->config.eps, e->head_ln_g, e->head_ln_b, w->y);
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
    int H = w->word.cols;
    if (row)
        memcpy(out, row, (size_t)H * sizeof *out);
    else
        kh_tensor_row(&w->word, id, out);
    if (w->position.data) {
        kh_tensor_row(&w->position, position, other);
        for (int i = 0; i < H; i++)
            out[i] += other[i];
    }
    if (w->type.data) {
        kh_tensor_row(&w->type, 0, other);
        for (int i = 0; i < H; i++)
            out[i] += other[i];
    }
}

/* Embedding output of a piece. Positions count the rows of the sequence; RoBERTa leaves padding out
 * of the count. */
static void embed_piece(const kh_engine *e, const kh_question *ask, const piece *p, work *k) {
    const kh_config *g = &e->model->config;
    const kh_batch *b = ask->batch;
    size_t H = (size_t)g->hidden, E = (size_t)kh_config_embed(g);
    float *x = e->project.w ? k->inner : p->x; /* [rows, E] */
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
            x + (size_t)r * E, k->y);
        r++;
    }
    e->kernels->layer_norm(x, p->rows, (int)E, (float)g->eps, e->ln_g, e->ln_b, x);
    if (e->project.w)
        kh_dense_apply(e, &e->project, x, p->rows, NULL, KH_PLAIN, p->x, k->scratch);
    if (prompt && !embedded)
        for (size_t i = 0; i < (size_t)p->rows * H; i++)
            p->x[i] += prompt[i];
}

/* The first layer's rotary positions: a row's place is the one in the whole sequence. */
static void turn_piece(const kh_engine *e, const kh_batch *b, const piece *p) {
    const kh_config *c = &e->model->config;
    size_t H = (size_t)c->hidden;
    int slot = b->slot[p->seq];
    for (int r = 0; r < p->rows && c->arch->position == KH_POSITION_ROTARY; r++) {
        int place = p->prompt >= 0 ? slot + r : r;
        if (p->prompt < 0 && slot >= 0 && r >= slot)
            place += b->n_slot;
        kh_turn(e, 0, place, p->q + (size_t)r * H, c->heads);
        kh_turn(e, 0, place, p->kv + (size_t)r * 2 * H, c->heads);
    }
}

static void compute_piece(const kh_engine *e, const kh_question *ask, const piece *p, work *w) {
    const kh_packed_layer *first = &e->layer[0];
    if (p->rows == 0) /* slots from the first place to the last leave no text */
        return;
    embed_piece(e, ask, p, w);
    const float *in = attention_input(e, first, p->x, p->rows, w->y);
    kh_dense_apply(e, &first->q, in, p->rows, NULL, KH_PLAIN, p->q, w->scratch);
    kh_dense_apply(e, &first->kv, in, p->rows, NULL, KH_PLAIN, p->kv, w->scratch);
    turn_piece(e, ask->batch, p);
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

    kh_dense label; /* kh_engine_score, words of one token: the decoder's rows of them */
    const int *at;  /* kh_engine_vocabulary: places */
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
    size_t n = (size_t)rows, E = (size_t)kh_config_embed(g), H = (size_t)g->hidden,
           I = (size_t)(c->wide > g->inner ? c->wide : g->inner);
    H = E > H ? E : H; /* rows of the head may be wider than the hidden states */
    I = E > I ? E : I;
    size_t joined = slots > 0 ? (size_t)(slots + c->ask->batch->max_len) * 2 * H : 0;
    size_t gate = g->arch->gated ? n * (size_t)g->inner : 0;
    float *block = kh_aligned((n * (6 * H + I) + joined + gate) * sizeof *block);
    w->scratch = kh_aligned(kh_kernels_scratch(rows + slots, g->hidden / g->heads));
    *w = (work){ block, block, block, block, block, block, block, block, c->prefix, w->scratch };
    if (!block || !w->scratch)
        return false;
    w->y += n * H, w->q += 2 * n * H, w->ctx += 3 * n * H, w->kv += 4 * n * H,
        w->inner += 6 * n * H;
    w->joined += n * (6 * H + I);
    w->gate += n * (6 * H + I) + joined;
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
    kh_dense_free(&c->label);
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
    bool ok = c->work && kh_turns_make(c->e, b->max_len);
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
    if (b->n_slot > 0 && ask->inject == KH_INJECT_POST_LN_ADD && !g->arch->embed_norm)
        return kh_fail(err, KH_EUNSUPPORTED,
            "a %s model does not normalise its embeddings, so post-ln-add has no place in it; take "
            "embed-inplace or embed-prefix",
            g->arch->type);
    if (b->n_slot > 0 && ask->inject != KH_INJECT_POST_LN_ADD && g->embed > 0)
        return kh_fail(err, KH_EUNSUPPORTED,
            "models of type %s have word embeddings of a width of their own; take post-ln-add",
            g->arch->type);
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

/* The width that lets the buffer of a thread hold at least one row of the vocabulary. */
static int vocabulary_width(const kh_engine *e) { return e->model->config.vocab / GROUP_ROWS + 1; }

/* Word scores where every word is one token: [n_prompt, n_row, n_word]. */
static void take_single(call *c, const pair *p, const span *s, int n, const float *rows, work *w) {
    size_t n_word = (size_t)c->ask->words->n_word, n_row = (size_t)c->ask->batch->n_row;
    (void)s;
    kh_dense_apply(c->e, &c->label, rows, n, NULL, KH_PLAIN, w->inner, w->scratch);
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
    size_t H = (size_t)c->e->decoder.k;
    for (int i = 0; i < n; i++) {
        size_t prompt = p[i].prompt ? (size_t)p[i].prompt->prompt : 0,
               row = (size_t)(p[i].text->seq / b->n_variant);
        float *score = c->out + (prompt * (size_t)b->n_row + row) * (size_t)words->n_word;
        for (int k = 0; k < words->n_word; k++)
            if (words->word[k].n_id == s[i].n_mask)
                score[k] = 0;
        for (int m = 0; m < s[i].n_mask; m++, rows += H) {
            kh_dense_apply(c->e, &c->e->decoder, rows, 1, NULL, KH_PLAIN, w->inner, w->scratch);
            kh_log_softmax(w->inner, c->e->decoder.n);
            for (int k = 0; k < words->n_word; k++)
                if (words->word[k].n_id == s[i].n_mask)
                    score[k] += w->inner[words->word[k].id[m]] / (float)s[i].n_mask;
        }
    }
}

/* A decoder's words stand behind the sequences. */
static int score_continuations(
    kh_engine *e, const kh_question *ask, const kh_adapter *prefix, float *logits, kh_err *err) {
    int rc = kh_model_needs_head(e->model, "scoring label words", err);
    if (rc == 0 && prefix)
        rc = kh_fail(err, KH_EUNSUPPORTED, "prefixes of keys and values are for encoders");
    if (rc == 0)
        rc = kh_engine_check(e, ask, err);
    return rc ? rc : kh_causal_score(e, ask, logits, err);
}

static int score(
    kh_engine *e, const kh_question *ask, const kh_adapter *prefix, float *logits, kh_err *err) {
    const kh_words *words = ask->words;
    if (e->model->config.arch->causal)
        return score_continuations(e, ask, prefix, logits, err);
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
        rc = single ? kh_labels_pack(e, words, &c.label, err) : kh_decoder_pack(e, err);
    float *score = rc == 0 ? kh_calloc(n * (size_t)words->n_word, sizeof *score) : NULL;
    if (rc == 0 && !score)
        rc = kh_fail_memory(err);
    c.out = score;
    if (rc == 0)
        rc = call_run(&c, err);
    else
        call_free(&c);
    if (rc == 0)
        kh_words_reduce(words, score, n, logits);
    kh_free(score);
    return rc;
}

int kh_engine_score(kh_engine *e, const kh_question *ask, float *logits, kh_err *err) {
    return score(e, ask, NULL, logits, err);
}

int kh_engine_score_prefixed(
    kh_engine *e, const kh_question *ask, const kh_adapter *prefix, float *logits, kh_err *err) {
    const kh_config *c = &e->model->config;
    if (c->arch->position == KH_POSITION_ROTARY)
        return kh_fail(err, KH_EUNSUPPORTED,
            "prefixes of keys and values are for models with a table of positions, not for %s",
            c->arch->type);
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
    kh_dense_apply(c->e, &c->e->decoder, w->y, after - first, NULL, KH_PLAIN,
        c->out + (size_t)first * V, w->scratch);
    for (int i = first; i < after; i++)
        kh_log_softmax(c->out + (size_t)i * V, (int)V);
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
    if (rc == 0 && e->model->config.arch->causal)
        return kh_causal_vocabulary(e, q, at, n_at, out, err);
    if (rc == 0)
        rc = kh_decoder_pack(e, err);
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
    if (rc == 0 && e->model->config.arch->causal)
        return kh_causal_hidden(e, ask, layers, out, err);
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
