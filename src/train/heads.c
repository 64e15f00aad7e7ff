/* heads.c - see heads.h. H numbers of a state, T states, N units, K labels; gates in the order
 * input, forget, cell, output, as PyTorch has them. */
#include "train/heads.h"

#include "base/alloc.h"
#include "base/blas.h"
#include "base/err.h"
#include "base/logsum.h"
#include "base/rng.h"

#include <cblas.h>
#include <math.h>
#include <omp.h>
#include <string.h>

/* What a shard computes with. */
typedef struct shard {
    double *d; /* [size] its gradient */
    double *memory;
    size_t cap;
    double loss;
    bool failed; /* out of memory */
} shard;

struct kh_head {
    kh_adapter g; /* sizes */
    kh_adapter_part part[KH_ADAPTER_PARTS];
    size_t size;
    double *w; /* [size] the numbers of this run */
    float *gradient;
    int n_shard;
    shard *shard;
};

int kh_head_new(kh_head **out, const kh_adapter *g, int shards, kh_err *err) {
    kh_head *h = kh_calloc(1, sizeof *h);
    *out = NULL;
    if (!h)
        return kh_fail_memory(err);
    h->g = *g;
    h->g.x = NULL;
    kh_adapter_parts(g, h->part);
    h->size = kh_adapter_size(g);
    h->w = kh_calloc(h->size, sizeof *h->w);
    h->gradient = kh_calloc(h->size, sizeof *h->gradient);
    h->n_shard = shards;
    h->shard = kh_calloc((size_t)shards, sizeof *h->shard);
    bool ok = h->w && h->gradient && h->shard;
    for (int s = 0; s < shards && ok; s++)
        ok = (h->shard[s].d = kh_calloc(h->size, sizeof *h->shard[s].d)) != NULL;
    if (!ok) {
        kh_head_free(h);
        return kh_fail_memory(err);
    }
    *out = h;
    return 0;
}

void kh_head_free(kh_head *h) {
    if (!h)
        return;
    for (int s = 0; h->shard && s < h->n_shard; s++) {
        kh_free(h->shard[s].d);
        kh_free(h->shard[s].memory);
    }
    kh_free(h->shard);
    kh_free(h->w);
    kh_free(h->gradient);
    kh_free(h);
}

float *kh_head_gradient(kh_head *h) { return h->gradient; }

void kh_head_start(const kh_adapter *g, uint64_t seed, float *x) {
    kh_adapter_part part[KH_ADAPTER_PARTS];
    int n = kh_adapter_parts(g, part);
    size_t units = (size_t)g->inner;
    for (int i = 0; i < n; i++) {
        const kh_adapter_part *p = &part[i],
                              *matrix = p->rank == 2 ? p : p - 1; /* a bias follows its matrix */
        bool gates = g->kind == KH_ADAPTER_BILSTM && i < n - 2;
        double within = 1 / sqrt((double)(gates ? units : matrix->shape[1]));
        kh_rng r = kh_rng_stream(seed, KH_RNG_HEADS, 1, (uint32_t)i);
        for (size_t j = 0; j < p->n; j++)
            x[p->at + j] = (float)(within * (2 * kh_rng_uniform(&r) - 1) +
                (gates && p->rank == 1 && j / units == 1));
    }
}

/* ------------------------------------------------------------------------------ the last layer */

/* y [n] = w [n, k] x [k] + b [n] */
static void affine(
    const double *w, const double *b, const double *x, size_t n, size_t k, double *y) {
    memcpy(y, b, n * sizeof *y);
    cblas_dgemv(CblasRowMajor, CblasNoTrans, (int)n, (int)k, 1, w, (int)k, x, 1, 1, y, 1);
}

/* Adds to the gradients of w and b; dx [k] becomes that of x. */
static void affine_back(const double *w, const double *x, const double *dy, size_t n, size_t k,
    double *dw, double *db, double *dx) {
    cblas_dger(CblasRowMajor, (int)n, (int)k, 1, dy, 1, x, 1, dw, (int)k);
    for (size_t i = 0; i < n; i++)
        db[i] += dy[i];
    if (dx)
        cblas_dgemv(CblasRowMajor, CblasTrans, (int)n, (int)k, 1, w, (int)k, dy, 1, 0, dx, 1);
}

/* logits [K] become the gradient of the loss, scale times; returns the loss. */
static double loss_of(double *logit, int n_label, int label, double scale, float *logprob) {
    double all = kh_log_sum_exp(logit, n_label),
           loss = label >= 0 ? scale * (all - logit[label]) : 0;
    for (int k = 0; k < n_label; k++) {
        if (logprob)
            logprob[k] = (float)(logit[k] - all);
        logit[k] = label >= 0 ? scale * (exp(logit[k] - all) - (k == label)) : 0;
    }
    return loss;
}

/* One row of one shard. */
typedef struct task {
    const kh_head *h;
    shard *s;
    const kh_head_row *row;
    double scale;
    bool gradients;
    float *logprob;
} task;

static const double *weights(const task *t, int part) { return t->h->w + t->h->part[part].at; }
static double *slopes(const task *t, int part) { return t->s->d + t->h->part[part].at; }

static void widen(const float *x, size_t n, double *y) {
    for (size_t i = 0; i < n; i++)
        y[i] = (double)x[i];
}

/* ----------------------------------------------------------------------------------------- MLP */

static size_t mlp_room(const kh_adapter *g) {
    return (size_t)g->hidden + 2 * (size_t)g->inner + (size_t)g->labels;
}

static void mlp(const task *t) {
    const kh_adapter *g = &t->h->g;
    size_t hidden = (size_t)g->hidden, units = (size_t)g->inner, labels = (size_t)g->labels;
    double *x = t->s->memory, *a = x + hidden, *da = a + units, *logit = da + units;
    widen(t->row->state, hidden, x);
    affine(weights(t, 0), weights(t, 1), x, units, hidden, a);
    for (size_t i = 0; i < units; i++)
        a[i] = tanh(a[i]);
    affine(weights(t, 2), weights(t, 3), a, labels, units, logit);
    t->s->loss += loss_of(logit, g->labels, t->row->label, t->scale, t->logprob);
    if (!t->gradients)
        return;
    affine_back(weights(t, 2), a, logit, labels, units, slopes(t, 2), slopes(t, 3), da);
    for (size_t i = 0; i < units; i++)
        da[i] *= 1 - a[i] * a[i];
    affine_back(weights(t, 0), x, da, units, hidden, slopes(t, 0), slopes(t, 1), NULL);
}

/* -------------------------------------------------------------------------------------- linear */

static size_t linear_room(const kh_adapter *g) { return (size_t)g->hidden + (size_t)g->labels; }

static void linear(const task *t) {
    const kh_adapter *g = &t->h->g;
    size_t hidden = (size_t)g->hidden, labels = (size_t)g->labels;
    double *x = t->s->memory, *logit = x + hidden;
    widen(t->row->state, hidden, x);
    affine(weights(t, 0), weights(t, 1), x, labels, hidden, logit);
    t->s->loss += loss_of(logit, g->labels, t->row->label, t->scale, t->logprob);
    if (t->gradients)
        affine_back(weights(t, 0), x, logit, labels, hidden, slopes(t, 0), slopes(t, 1), NULL);
}

/* -------------------------------------------------------------------------------------- BiLSTM */

/* One direction of one row, in the order in which it reads. */
typedef struct direction {
    double *x;     /* [T, H] */
    double *gate;  /* [T, 4N] after their activations; on the way back the gradients before them */
    double *c, *h; /* [T + 1, N]; row 0 is zero */
    double *dh, *dc; /* [N] */
} direction;

static size_t direction_room(const kh_adapter *g, size_t n) {
    size_t units = (size_t)g->inner;
    return n * ((size_t)g->hidden + 4 * units) + 2 * (n + 1) * units + 2 * units;
}

static size_t bilstm_room(const kh_adapter *g, int n) {
    return 2 * direction_room(g, (size_t)n) + 4 * (size_t)g->inner + (size_t)g->labels;
}

static direction cut(double *memory, const kh_adapter *g, size_t n) {
    size_t units = (size_t)g->inner;
    direction d = { .x = memory };
    d.gate = d.x + n * (size_t)g->hidden;
    d.c = d.gate + n * 4 * units;
    d.h = d.c + (n + 1) * units;
    d.dh = d.h + (n + 1) * units;
    d.dc = d.dh + units;
    return d;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* (G9); parts first .. first + 2 are those of the direction. */
static void read_states(const task *t, int first, direction *d) {
    size_t units = (size_t)t->h->g.inner, wide = 4 * units;
    int n = t->row->n, hidden = t->h->g.hidden;
    const double *w_hh = weights(t, first + 1), *bias = weights(t, first + 2);
    memset(d->c, 0, units * sizeof *d->c);
    memset(d->h, 0, units * sizeof *d->h);
    for (size_t i = 0; i < (size_t)n; i++)
        memcpy(d->gate + i * wide, bias, wide * sizeof *bias);
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, (int)wide, hidden, 1, d->x, hidden,
        weights(t, first), hidden, 1, d->gate, (int)wide);
    for (size_t i = 0; i < (size_t)n; i++) {
        double *gate = d->gate + i * wide, *c = d->c + i * units, *h = d->h + i * units;
        cblas_dgemv(CblasRowMajor, CblasNoTrans, (int)wide, (int)units, 1, w_hh, (int)units, h, 1,
            1, gate, 1);
        for (size_t j = 0; j < wide; j++)
            gate[j] = j / units == 2 ? tanh(gate[j]) : sigmoid(gate[j]);
        for (size_t j = 0; j < units; j++) {
            c[units + j] = gate[units + j] * c[j] + gate[j] * gate[2 * units + j];
            h[units + j] = gate[3 * units + j] * tanh(c[units + j]);
        }
    }
}

/* (G10); every state gets the gradient `each` [N], besides what the next one hands back. */
static void read_back(const task *t, int first, const double *each, direction *d) {
    size_t units = (size_t)t->h->g.inner, wide = 4 * units;
    int n = t->row->n, hidden = t->h->g.hidden;
    const double *w_hh = weights(t, first + 1);
    double *bias = slopes(t, first + 2);
    memset(d->dh, 0, units * sizeof *d->dh);
    memset(d->dc, 0, units * sizeof *d->dc);
    for (size_t i = (size_t)n; i-- > 0;) {
        double *gate = d->gate + i * wide, *c = d->c + i * units;
        for (size_t j = 0; j < units; j++) {
            double in = gate[j], forget = gate[units + j], cell = gate[2 * units + j],
                   out = gate[3 * units + j];
            double bent = tanh(c[units + j]), dh = d->dh[j] + each[j],
                   dc = d->dc[j] + dh * out * (1 - bent * bent);
            gate[j] = dc * cell * in * (1 - in);
            gate[units + j] = dc * c[j] * forget * (1 - forget);
            gate[2 * units + j] = dc * in * (1 - cell * cell);
            gate[3 * units + j] = dh * bent * out * (1 - out);
            d->dc[j] = dc * forget;
        }
        cblas_dgemv(CblasRowMajor, CblasTrans, (int)wide, (int)units, 1, w_hh, (int)units, gate, 1,
            0, d->dh, 1);
        for (size_t j = 0; j < wide; j++)
            bias[j] += gate[j];
    }
    cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)wide, hidden, n, 1, d->gate,
        (int)wide, d->x, hidden, 1, slopes(t, first), hidden);
    cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)wide, (int)units, n, 1, d->gate,
        (int)wide, d->h, (int)units, 1, slopes(t, first + 1), (int)units);
}

/* The mean of both directions' states, joined, then the last layer. */
static void bilstm(const task *t) {
    const kh_adapter *g = &t->h->g;
    size_t hidden = (size_t)g->hidden, units = (size_t)g->inner, labels = (size_t)g->labels,
           n = (size_t)t->row->n;
    double *mean = t->s->memory, *d_mean = mean + 2 * units, *logit = d_mean + 2 * units;
    direction d[2] = { cut(logit + labels, g, n),
        cut(logit + labels + direction_room(g, n), g, n) };
    widen(t->row->state, n * hidden, d[0].x);
    for (size_t i = 0; i < n; i++)
        memcpy(d[1].x + i * hidden, d[0].x + (n - 1 - i) * hidden, hidden * sizeof *d[1].x);
    memset(mean, 0, 2 * units * sizeof *mean);
    for (size_t k = 0; k < 2; k++) {
        read_states(t, 3 * (int)k, &d[k]);
        for (size_t i = 1; i <= n; i++)
            for (size_t j = 0; j < units; j++)
                mean[k * units + j] += d[k].h[i * units + j] / (double)n;
    }
    affine(weights(t, 6), weights(t, 7), mean, labels, 2 * units, logit);
    t->s->loss += loss_of(logit, g->labels, t->row->label, t->scale, t->logprob);
    if (!t->gradients)
        return;
    affine_back(weights(t, 6), mean, logit, labels, 2 * units, slopes(t, 6), slopes(t, 7), d_mean);
    for (size_t j = 0; j < 2 * units; j++)
        d_mean[j] /= (double)n;
    for (size_t k = 0; k < 2; k++)
        read_back(t, 3 * (int)k, d_mean + k * units, &d[k]);
}

/* ---------------------------------------------------------------------------------------- rows */

static void (*const HEADS[KH_ADAPTER_COUNT])(const task *) = {
    [KH_ADAPTER_MLP] = mlp, [KH_ADAPTER_BILSTM] = bilstm, [KH_ADAPTER_LINEAR] = linear
};

static size_t room_of(const kh_adapter *g, int n) {
    if (g->kind == KH_ADAPTER_BILSTM)
        return bilstm_room(g, n);
    return g->kind == KH_ADAPTER_MLP ? mlp_room(g) : linear_room(g);
}

static void run_shard(const kh_head *h, shard *s, const kh_head_row *row, int n, double scale,
    bool gradients, float *logprob) {
    s->loss = 0;
    s->failed = false;
    if (gradients)
        memset(s->d, 0, h->size * sizeof *s->d);
    for (int i = 0; i < n && !s->failed; i++) {
        size_t room = room_of(&h->g, row[i].n);
        task t = { h, s, &row[i], scale, gradients,
            logprob ? logprob + (size_t)i * (size_t)h->g.labels : NULL };
        s->failed = !kh_grow(&s->memory, &s->cap, room, sizeof *s->memory);
        if (!s->failed)
            HEADS[h->g.kind](&t);
    }
}

int kh_head_run(kh_head *h, const float *x, const kh_head_row *row, int n, bool gradients,
    float *logprob, double *loss, kh_err *err) {
    int threads = kh_threads(), busy = threads < h->n_shard ? threads : h->n_shard;
    bool failed = false;
    widen(x, h->size, h->w);
    kh_blas_hold(); /* the threads are ours */
#pragma omp parallel for num_threads(busy) schedule(dynamic, 1)
    for (int i = 0; i < h->n_shard; i++) {
        int from = (int)((long long)n * i / h->n_shard),
            to = (int)((long long)n * (i + 1) / h->n_shard);
        run_shard(h, &h->shard[i], row + from, to - from, 1.0 / n, gradients,
            logprob ? logprob + (size_t)from * (size_t)h->g.labels : NULL);
    }
    kh_blas_release();
    *loss = 0;
    for (int i = 0; i < h->n_shard; i++) {
        *loss += h->shard[i].loss;
        failed |= h->shard[i].failed;
    }
    for (size_t j = 0; gradients && j < h->size; j++) {
        double sum = 0;
        for (int i = 0; i < h->n_shard; i++)
            sum += h->shard[i].d[j];
        h->gradient[j] = (float)sum;
    }
    return failed ? kh_fail_memory(err) : 0;
}
