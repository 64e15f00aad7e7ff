/* gradient.c - see gradient.h. */
#include "train/gradient.h"

#include "base/alloc.h"
#include "base/blas.h"
#include "base/err.h"
#include "base/size.h"
#include "model/ops.h"

#include <omp.h>
#include <string.h>

enum { PIECE = 1 << 16 }; /* numbers that a thread adds at a time */

/* The gradients of a shard lie in one vector: weights, prompt, prefix. */
typedef struct shard {
    kh_packed text;
    kh_pass_f32 pass;
    kh_lm_loss loss;
    float *d; /* [size] */
    double value;
    int rc;
    kh_err err;
} shard;

struct kh_gradient {
    const kh_params *params;
    unsigned wrt;
    size_t n_weight, n_prompt, n_prefix, size; /* numbers */
    int n_shard;
    shard *shard;
    kh_tape_f32 *tape; /* [n_shard], one for each thread that can be busy */
    int *number;       /* starts and places of all shards */
    size_t cap;
};

int kh_gradient_check(const kh_config *c, unsigned wrt, kh_err *err) {
    if (c->arch->causal && wrt != KH_WRT_PROMPT)
        return kh_fail(err, KH_EUNSUPPORTED,
            "a %s model is a decoder; of those, gradients are computed for soft prompts only",
            c->arch->type);
    if (c->embed > 0 || c->arch->lean)
        return kh_fail(
            err, KH_EUNSUPPORTED, "gradients of %s models are not computed", c->arch->type);
    return 0;
}

int kh_gradient_new(kh_gradient **out, const kh_params *p, int shards, unsigned wrt, int n_prompt,
    int n_prefix, kh_err *err) {
    *out = NULL;
    int rc = kh_gradient_check(&p->config, wrt, err);
    if (rc != 0)
        return rc;
    kh_gradient *g = kh_calloc(1, sizeof *g);
    if (!g)
        return kh_fail_memory(err);
    size_t h = (size_t)p->config.hidden;
    *g = (kh_gradient){ .params = p,
        .wrt = wrt,
        .n_shard = shards,
        .n_weight = wrt & KH_WRT_WEIGHTS ? p->size : 0,
        .n_prompt = wrt & KH_WRT_PROMPT ? (size_t)n_prompt * h : 0,
        .n_prefix = wrt & KH_WRT_PREFIX ? 2 * (size_t)p->config.layers * (size_t)n_prefix * h : 0,
        .shard = kh_calloc((size_t)shards, sizeof *g->shard),
        .tape = kh_calloc((size_t)shards, sizeof *g->tape) };
    g->size = g->n_weight + g->n_prompt + g->n_prefix;
    rc = g->shard && g->tape ? 0 : kh_fail_memory(err);
    for (int s = 0; s < shards && rc == 0; s++) {
        size_t bytes;
        g->shard[s].d = kh_mul(g->size + 1, sizeof(float), &bytes) ? kh_aligned(bytes) : NULL;
        if (!g->shard[s].d)
            rc = kh_fail_memory(err);
    }
    if (rc == 0)
        *out = g;
    else
        kh_gradient_free(g);
    return rc;
}

void kh_gradient_free(kh_gradient *g) {
    if (!g)
        return;
    for (int s = 0; s < g->n_shard; s++) {
        if (g->shard)
            kh_free(g->shard[s].d);
        if (g->tape)
            kh_tape_f32_free(&g->tape[s]);
    }
    kh_free(g->shard);
    kh_free(g->tape);
    kh_free(g->number);
    kh_free(g);
}

float *kh_gradient_weights(kh_gradient *g) { return g->n_weight ? g->shard[0].d : NULL; }
float *kh_gradient_prompt(kh_gradient *g) {
    return g->n_prompt ? g->shard[0].d + g->n_weight : NULL;
}
float *kh_gradient_prefix(kh_gradient *g) {
    return g->n_prefix ? g->shard[0].d + g->n_weight + g->n_prompt : NULL;
}

/* -------------------------------------------------------------------------------------- shards */

/* Sequences first .. last - 1 become a shard; its numbers are written from *at on. */
static void cut_shard(
    const kh_gradient *g, shard *s, const kh_pass_f32 *in, int first, int last, int **at) {
    const kh_packed *text = in->text;
    int n = last - first, token = text->start[first], place = text->first_at[first],
        n_at = text->first_at[last] - place;
    int *start = *at, *first_at = start + n + 1, *where = first_at + n + 1;
    *at = where + n_at;
    for (int i = 0; i <= n; i++) {
        start[i] = text->start[first + i] - token;
        first_at[i] = text->first_at[first + i] - place;
    }
    for (int i = 0; i < n_at; i++)
        where[i] = text->at[place + i] - token;
    s->text = (kh_packed){ n, start, text->slot + token, where, first_at };
    s->loss = *in->loss;
    s->loss.target += place;
    s->loss.weight = in->loss->weight ? in->loss->weight + place : NULL;
    s->pass = *in;
    s->pass.text = &s->text;
    s->pass.loss = &s->loss;
    s->pass.first_token = in->first_token + token;
    s->pass.logprob = in->logprob ? in->logprob + (size_t)place * (size_t)in->loss->n_label : NULL;
    s->pass.dw = g->n_weight ? s->d : NULL;
    s->pass.d_prompt = g->n_prompt ? s->d + g->n_weight : NULL;
    s->pass.d_prefix = g->n_prefix ? s->d + g->n_weight + g->n_prompt : NULL;
}

/* Shard i ends with the sequence that reaches its share of all tokens. */
static int cut_batch(kh_gradient *g, const kh_pass_f32 *in, kh_err *err) {
    const kh_packed *text = in->text;
    size_t need = 2 * (size_t)(text->n_seq + g->n_shard) + (size_t)text->first_at[text->n_seq];
    if (!kh_grow(&g->number, &g->cap, need, sizeof *g->number))
        return kh_fail_memory(err);
    int *at = g->number, first = 0;
    long long total = text->start[text->n_seq];
    for (int i = 0; i < g->n_shard; i++) {
        int last = first;
        while (last < text->n_seq && (long long)text->start[last] * g->n_shard < total * (i + 1))
            last++;
        if (i == g->n_shard - 1)
            last = text->n_seq;
        cut_shard(g, &g->shard[i], in, first, last, &at);
        first = last;
    }
    return 0;
}

/* All shards' gradients into the first one's. */
static void add_up(kh_gradient *g, int threads) {
    const kh_ops_f32 *ops = kh_ops_pick();
    long pieces = (long)((g->size + PIECE - 1) / PIECE);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long i = 0; i < pieces; i++) {
        size_t from = (size_t)i * PIECE, n = g->size - from < PIECE ? g->size - from : PIECE;
        for (int s = 1; s < g->n_shard; s++)
            ops->add(g->shard[0].d + from, g->shard[s].d + from, n);
    }
}

int kh_gradient_run(
    kh_gradient *g, const kh_pass_f32 *in, bool gradients, double *loss, kh_err *err) {
    int rc = cut_batch(g, in, err), threads = kh_threads(),
        busy = threads < g->n_shard ? threads : g->n_shard;
    *loss = 0;
    if (rc != 0)
        return rc;
    kh_blas_hold(); /* the threads are ours */
#pragma omp parallel for num_threads(busy) schedule(dynamic, 1)
    for (int i = 0; i < g->n_shard; i++) {
        shard *s = &g->shard[i];
        if (gradients)
            memset(s->d, 0, g->size * sizeof *s->d);
        else {
            s->pass.dw = s->pass.d_prompt = s->pass.d_prefix = NULL;
            s->pass.dropout = NULL;
        }
        s->rc = kh_backward_f32(
            &g->tape[omp_get_thread_num()], g->params, &s->pass, &s->value, &s->err);
    }
    kh_blas_release();
    for (int i = 0; i < g->n_shard; i++) {
        *loss += g->shard[i].value;
        if (g->shard[i].rc != 0 && rc == 0) {
            rc = g->shard[i].rc;
            if (err)
                *err = g->shard[i].err;
        }
    }
    if (rc == 0 && gradients)
        add_up(g, threads);
    return rc;
}
