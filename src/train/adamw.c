/* adamw.c - see adamw.h. Sums of squares are taken piece by piece and added in the order of the
 * pieces. */
#include "train/adamw.h"

#include "base/alloc.h"
#include "base/err.h"
#include "model/ops.h"

#include <math.h>
#include <string.h>

enum { PIECE = 1 << 16 };

kh_adamw_opts kh_adamw_defaults(void) {
    return (kh_adamw_opts){
        .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01
    };
}

static size_t pieces_of(size_t n) { return (n + PIECE - 1) / PIECE; }

int kh_adamw_init(kh_adamw *a, const kh_param_group *segment, int n_segment, kh_err *err) {
    *a = (kh_adamw){ .n_segment = n_segment,
        .segment = kh_calloc((size_t)n_segment, sizeof *segment) };
    for (int i = 0; i < n_segment; i++)
        a->n += segment[i].n;
    a->m = kh_calloc(a->n, sizeof *a->m);
    a->v = kh_calloc(a->n, sizeof *a->v);
    a->partial = kh_calloc(pieces_of(a->n), sizeof *a->partial);
    if (!a->segment || !a->m || !a->v || !a->partial)
        return kh_fail_memory(err);
    memcpy(a->segment, segment, (size_t)n_segment * sizeof *segment);
    return 0;
}

void kh_adamw_free(kh_adamw *a) {
    kh_free(a->m);
    kh_free(a->v);
    kh_free(a->segment);
    kh_free(a->partial);
    *a = (kh_adamw){ 0 };
}

double kh_adamw_rate(const kh_adamw_opts *o, long step, long total) {
    double warmup = o->warmup < 1 ? o->warmup * (double)total : o->warmup, at = (double)step;
    if (at < warmup)
        return o->lr * (at + 1) / (warmup + 1);
    double rest = (double)total - warmup, way = rest > 0 ? (at - warmup) / rest : 1;
    way = way > 1 ? 1 : way;
    switch ((kh_decay)o->decay) {
    case KH_DECAY_CONSTANT: return o->lr;
    case KH_DECAY_LINEAR: return o->lr * (1 - (1 - o->floor) * way);
    case KH_DECAY_COSINE:
        return o->lr * (o->floor + (1 - o->floor) * 0.5 * (1 + cos(3.14159265358979323846 * way)));
    }
    return o->lr;
}

static double gradient_norm(kh_adamw *a, const kh_ops_f32 *ops, const float *g) {
    long n = (long)pieces_of(a->n);
#pragma omp parallel for num_threads(kh_threads()) schedule(static)
    for (long i = 0; i < n; i++) {
        size_t from = (size_t)i * PIECE;
        a->partial[i] = ops->square_sum(g + from, a->n - from < PIECE ? a->n - from : PIECE);
    }
    double sum = 0;
    for (long i = 0; i < n; i++)
        sum += a->partial[i];
    return sqrt(sum);
}

void kh_adamw_step(kh_adamw *a, const kh_adamw_opts *o, double rate, float *w,
    const float *gradient, double *norm) {
    const kh_ops_f32 *ops = kh_ops_pick();
    double length = o->clip > 0 || norm ? gradient_norm(a, ops, gradient) : 0;
    if (norm)
        *norm = length;
    a->step++;
    const kh_adamw_f32 step = {
        .scale = o->clip > 0 && length > o->clip ? (float)(o->clip / length) : 1,
        .beta1 = (float)o->beta1,
        .beta2 = (float)o->beta2,
        .rate = (float)(rate / (1 - pow(o->beta1, (double)a->step))),
        .correction = (float)(1 / sqrt(1 - pow(o->beta2, (double)a->step))),
        .eps = (float)o->eps,
    };
    size_t at = 0;
    for (int i = 0; i < a->n_segment; at += a->segment[i].n, i++) {
        kh_adamw_f32 s = step;
        s.keep = (float)(a->segment[i].decay ? 1 - rate * o->weight_decay : 1);
        size_t n = a->segment[i].n;
#pragma omp parallel for num_threads(kh_threads()) schedule(static) if (n > PIECE)
        for (long piece = 0; piece < (long)pieces_of(n); piece++) {
            size_t from = (size_t)piece * PIECE, k = at + from;
            ops->adamw(
                &s, w + k, gradient + k, a->m + k, a->v + k, n - from < PIECE ? n - from : PIECE);
        }
    }
}
