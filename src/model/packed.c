/* packed.c - see packed.h: opening and closing of engines, and what both kinds of pass share.
 *
 * An engine keeps its weights as the kernels want them (packed panels of the chosen precision), and
 * gives the model's own copy back layer by layer while it packs: memory holds a large model once,
 * not twice. Vectors stay f32 in every precision; so do the head and the rows of the label words,
 * which are few and decide the answer. */
#include "model/packed.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/logsum.h"
#include "base/portable.h"

#include <math.h>
#include <string.h>

enum { PACK_FLOATS = 1 << 20 }; /* 4 MB of floats: enough for one call of pack to be worth it */

/* bf16 only where it is an instruction: converted on the fly it would be slower than f32 and less
 * exact. */
static kh_precision resolve(kh_precision p, const kh_kernels *k) {
    if (p != KH_PRECISION_AUTO)
        return p;
    return strcmp(k->bits, "avx512") == 0 ? KH_BF16 : KH_F32; /* those rows multiply bf16 */
}

const char *kh_precision_name(kh_precision p) {
    static const char *const NAMES[] = {
        [KH_F32] = "f32", [KH_BF16] = "bf16", [KH_INT8] = "int8", [KH_PRECISION_AUTO] = "auto"
    };
    return NAMES[p];
}

float *kh_tensor_floats(const kh_tensor *t) {
    float *out = kh_aligned((size_t)t->rows * (size_t)t->cols * sizeof *out);
    for (int r = 0; out && r < t->rows; r++)
        kh_tensor_row(t, r, out + (size_t)r * (size_t)t->cols);
    return out;
}

void kh_dense_free(kh_dense *d) {
    kh_free(d->w);
    kh_free(d->bias);
    *d = (kh_dense){ 0 };
}

/* Rows of a matrix that are expanded at a time, in whole panels: a whole one would be many times
 * what it is packed into (262 MB for the vocabulary of a small Llama). */
static int rows_at_once(const kh_engine *e, int k, int n) {
    int columns = e->kernels->columns, panels = PACK_FLOATS / columns / k;
    int rows = panels > 0 ? panels * columns : columns;
    return rows < n ? rows : n;
}

/* Two matrices of one shape may become one (keys and values): one product over twice the columns.
 */
bool kh_dense_pack(kh_engine *e, kh_precision precision, kh_dense *d, const kh_tensor *w[2],
    const kh_tensor *b[2]) {
    int parts = w[1] ? 2 : 1, rows = w[0]->rows, step = rows_at_once(e, w[0]->cols, rows * parts);
    bool biased = b[0] && b[0]->data;
    d->k = w[0]->cols;
    d->n = rows * parts;
    d->precision = precision;
    d->w = kh_aligned(kh_packed_bytes(e->kernels, precision, d->k, d->n));
    d->bias = biased ? kh_aligned((size_t)d->n * sizeof *d->bias) : NULL;
    float *piece = kh_aligned((size_t)step * (size_t)d->k * sizeof *piece);
    bool ok = d->w && (d->bias || !biased) && piece;
    for (int p = 0; ok && biased && p < parts; p++)
        kh_tensor_row(b[p], 0, d->bias + p * rows);
    for (int at = 0; ok && at < d->n; at += step) {
        int many = d->n - at < step ? d->n - at : step;
        for (int r = 0; r < many; r++)
            kh_tensor_row(w[(at + r) / rows], (at + r) % rows, piece + (size_t)r * (size_t)d->k);
        e->kernels->pack(precision, piece, d->k, many,
            (char *)d->w + kh_packed_bytes(e->kernels, precision, d->k, at));
    }
    kh_free(piece);
    return ok;
}

static bool pack_one(kh_engine *e, kh_dense *d, const kh_tensor *w, const kh_tensor *b) {
    return kh_dense_pack(
        e, e->precision, d, (const kh_tensor *[2]){ w }, (const kh_tensor *[2]){ b });
}

/* A vector, if the model has it; gains that are counted from 1 become plain ones. Where norms have
 * no bias, it is zero. */
static bool pack_vector(const kh_engine *e, float **out, const kh_tensor *t, bool gain) {
    if (!t->data && !gain && e->model->config.arch->lean)
        return (*out = kh_calloc((size_t)e->model->config.hidden, sizeof **out)) != NULL;
    *out = t->data ? kh_tensor_floats(t) : NULL;
    if (*out && gain && e->model->config.arch->norm == KH_NORM_RMS_PLUS)
        for (int i = 0; i < t->cols; i++)
            (*out)[i] += 1;
    return *out || !t->data;
}

/* All vectors of a layer in one table: a norm that an architecture lacks has no data, and stays
 * NULL. */
static bool layer_pack(kh_engine *e, int index) {
    kh_packed_layer *p = &e->layer[index];
    const kh_layer *l = &e->model->w.layer[index];
    const struct {
        float **out;
        const kh_tensor *t;
        bool gain;
    } vector[] = { { &p->ln1_g, &l->ln1_g, true }, { &p->ln1_b, &l->ln1_b, false },
        { &p->ln2_g, &l->ln2_g, true }, { &p->ln2_b, &l->ln2_b, false },
        { &p->qn_g, &l->qn_g, true }, { &p->kn_g, &l->kn_g, true },
        { &p->post1_g, &l->post1_g, true }, { &p->post2_g, &l->post2_g, true } };
    bool ok = pack_one(e, &p->q, &l->q_w, &l->q_b) &&
        kh_dense_pack(e, e->precision, &p->kv, (const kh_tensor *[2]){ &l->k_w, &l->v_w },
            (const kh_tensor *[2]){ &l->k_b, &l->v_b }) &&
        pack_one(e, &p->o, &l->o_w, &l->o_b) && pack_one(e, &p->up, &l->up_w, &l->up_b) &&
        pack_one(e, &p->down, &l->down_w, &l->down_b) &&
        (!l->gate_w.data || pack_one(e, &p->gate, &l->gate_w, &l->gate_b));
    for (size_t i = 0; i < sizeof vector / sizeof vector[0] && ok; i++)
        ok = pack_vector(e, vector[i].out, vector[i].t, vector[i].gain);
    return ok;
}

/* The matrices of a layer that now exist twice. */
static void layer_drop(kh_model *m, int index) {
    kh_layer *l = &m->w.layer[index];
    kh_tensor *all[] = { &l->q_w, &l->k_w, &l->v_w, &l->o_w, &l->up_w, &l->gate_w, &l->down_w };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        kh_model_drop(m, all[i]);
}

/* What stands outside the layers. */
static bool head_pack(kh_engine *e) {
    const kh_weights *w = &e->model->w;
    bool ok = pack_vector(e, &e->ln_g, &w->ln_g, true) &&
        pack_vector(e, &e->ln_b, &w->ln_b, false) &&
        pack_vector(e, &e->final_g, &w->final_g, true) &&
        pack_vector(e, &e->final_b, &w->final_b, false);
    if (ok && w->project_w.data)
        ok = kh_dense_pack(e, KH_F32, &e->project, (const kh_tensor *[2]){ &w->project_w },
            (const kh_tensor *[2]){ &w->project_b });
    if (!ok || !w->head_w.data)
        return ok;
    return kh_dense_pack(e, KH_F32, &e->head, (const kh_tensor *[2]){ &w->head_w },
               (const kh_tensor *[2]){ &w->head_b }) &&
        pack_vector(e, &e->head_ln_g, &w->head_ln_g, true) &&
        pack_vector(e, &e->head_ln_b, &w->head_ln_b, false);
}

/* Layers are packed in parallel; each drops its originals as soon as it is done, and what they took
 * goes back to the system, or a large model would leave a seventh of itself as holes. */
int kh_engine_new(kh_engine **out, kh_model *m, kh_precision precision, kh_err *err) {
    *out = NULL;
    kh_engine *e = kh_calloc(1, sizeof *e);
    if (!e) {
        kh_model_close(m);
        return kh_fail_memory(err);
    }
    e->model = m;
    e->kernels = kh_kernels_pick();
    e->precision = resolve(precision, e->kernels);
    bool ok = (e->layer = kh_calloc((size_t)m->config.layers, sizeof *e->layer)) && head_pack(e);
    int packed = 0;
#pragma omp parallel for schedule(dynamic) num_threads(kh_threads()) reduction(+ : packed) if (ok)
    for (int l = 0; l < m->config.layers; l++)
        if (ok && layer_pack(e, l)) {
            layer_drop(m, l);
            kh_give_back();
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
        kh_packed_layer *p = &e->layer[l];
        kh_dense *all[] = { &p->q, &p->kv, &p->o, &p->up, &p->gate, &p->down };
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
            kh_dense_free(all[i]);
        float *vectors[] = { p->ln1_g, p->ln1_b, p->ln2_g, p->ln2_b, p->qn_g, p->kn_g, p->post1_g,
            p->post2_g };
        for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
            kh_free(vectors[i]);
    }
    float *vectors[] = { e->ln_g, e->ln_b, e->head_ln_g, e->head_ln_b, e->final_g, e->final_b,
        e->turns[0].table, e->turns[1].table };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        kh_free(vectors[i]);
    kh_dense_free(&e->project);
    kh_dense_free(&e->head);
    kh_dense_free(&e->decoder);
    kh_causal_free(e);
    kh_free(e->layer);
    kh_model_close(e->model);
    kh_free(e);
}

const kh_model *kh_engine_model(const kh_engine *e) { return e->model; }
const kh_kernels *kh_engine_kernels(const kh_engine *e) { return e->kernels; }
kh_precision kh_engine_precision(const kh_engine *e) { return e->precision; }

/* y = epilogue(x W + bias) + residual, with the packed W of d. */
void kh_dense_apply(const kh_engine *e, const kh_dense *d, const float *x, int rows,
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

kh_epilogue kh_epilogue_of(kh_act act) {
    static const kh_epilogue OF[] = { [KH_ACT_GELU] = KH_GELU,
        [KH_ACT_GELU_TANH] = KH_GELU_TANH,
        [KH_ACT_RELU] = KH_RELU,
        [KH_ACT_SILU] = KH_SILU };
    return OF[act];
}

/* ------------------------------------------------------------------------ rotary positions */

/* Tables of cosine and sine for the places of a sequence, one for layers that see everything and
 * one for those with a window, whose base frequency may differ (Gemma 3, ModernBERT). They grow
 * with the longest sequence seen. */
bool kh_turns_make(kh_engine *e, int places) {
    const kh_config *c = &e->model->config;
    size_t width = (size_t)kh_config_head_width(c);
    if (c->arch->position != KH_POSITION_ROTARY)
        return true;
    double *turn = kh_malloc(width * sizeof *turn);
    bool ok = turn;
    for (int kind = 0; kind < 2 && ok; kind++) {
        kh_turns *t = &e->turns[kind];
        int layer = 0;
        while (layer < c->layers && (kh_config_window(c, layer) > 0) != kind)
            layer++;
        if (layer == c->layers || t->places >= places)
            continue;
        kh_free(t->table);
        t->table = kh_aligned((size_t)places * width * sizeof *t->table);
        ok = t->table;
        t->places = ok ? places : 0;
        kh_config_frequencies(c, layer, turn);
        for (int p = 0; p < t->places; p++)
            for (size_t i = 0; i < width / 2; i++) {
                t->table[(size_t)p * width + i] = (float)cos(p * turn[i]);
                t->table[(size_t)p * width + width / 2 + i] = (float)sin(p * turn[i]);
            }
    }
    kh_free(turn);
    return ok;
}

/* RoPE, in the order of Hugging Face: element i is turned with element i + half. */
void kh_turn(const kh_engine *e, int layer, int place, float *x, int heads) {
    const kh_config *c = &e->model->config;
    size_t width = (size_t)kh_config_head_width(c), half = width / 2;
    const float *turn = e->turns[kh_config_window(c, layer) > 0].table + (size_t)place * width;
    for (int h = 0; h < heads; h++, x += width)
        for (size_t i = 0; i < half; i++) {
            float a = x[i], b = x[i + half];
            x[i] = a * turn[i] - b * turn[half + i];
            x[i + half] = b * turn[i] + a * turn[half + i];
        }
}

/* ------------------------------------------------------------------------------ vocabulary */

/* The whole vocabulary is packed only when it is asked for: most questions need a few label words.
 */
int kh_decoder_pack(kh_engine *e, kh_err *err) {
    const kh_weights *w = &e->model->w;
    if (e->decoder.w ||
        kh_dense_pack(e, e->precision == KH_F32 ? KH_F32 : KH_BF16, &e->decoder,
            (const kh_tensor *[2]){ &w->decoder_w }, (const kh_tensor *[2]){ &w->decoder_b }))
        return 0;
    kh_dense_free(&e->decoder);
    return kh_fail_memory(err);
}

/* The decoder's rows of the label words as a small matrix, in f32 whatever the precision. */
int kh_labels_pack(kh_engine *e, const kh_words *words, kh_dense *d, kh_err *err) {
    const kh_weights *w = &e->model->w;
    int H = w->decoder_w.cols;
    bool biased = w->decoder_b.data;
    float *row = kh_aligned((size_t)words->n_word * (size_t)H * sizeof *row);
    float *bias = biased ? kh_tensor_floats(&w->decoder_b) : NULL;
    *d = (kh_dense){ .k = H,
        .n = words->n_word,
        .w = kh_aligned(kh_packed_bytes(e->kernels, KH_F32, H, words->n_word)),
        .bias = biased ? kh_aligned((size_t)words->n_word * sizeof *bias) : NULL };
    bool ok = row && d->w && (!biased || (bias && d->bias));
    for (int k = 0; ok && k < words->n_word; k++) {
        kh_tensor_row(&w->decoder_w, words->word[k].id[0], row + (size_t)k * (size_t)H);
        if (biased)
            d->bias[k] = bias[words->word[k].id[0]];
    }
    if (ok)
        e->kernels->pack(KH_F32, row, H, words->n_word, d->w);
    kh_free(row);
    kh_free(bias);
    return ok ? 0 : kh_fail_memory(err);
}

void kh_log_softmax(float *x, int n) {
    float total = (float)kh_log_sum_exp_floats(x, n);
    for (int v = 0; v < n; v++)
        x[v] -= total;
}

/* The logit of a label is the log of the sum over its words (they stand label after label); a
 * single word passes through untouched, bit for bit. */
void kh_words_reduce(const kh_words *words, const float *score, size_t n, float *logits) {
    for (size_t i = 0; i < n; i++, score += words->n_word, logits += words->n_label)
        for (int k = 0, first = 0, end; k < words->n_label; k++, first = end) {
            for (end = first; end < words->n_word && words->word[end].label == k; end++)
                ;
            logits[k] = end == first + 1 ? score[first]
                                         : (float)kh_log_sum_exp_floats(score + first, end - first);
        }
}
