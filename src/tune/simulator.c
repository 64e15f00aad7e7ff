/* simulator.c - see simulator.h.
 *
 * Populations are plain arrays and own their memory, because samplers keep several of them at once
 * (the one that moves, the last whole one, the best so far). The calls of a monitor are wrapped
 * here so that no sampler tests a pointer: a sampler runs the same with nobody looking on, as the
 * toys of "bench sbi" do. */
#include "tune/simulator.h"

#include "base/alloc.h"
#include "base/err.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One more answer than there are: simulators without answers have n_answer = 0, and an array of
 * nothing must still be told from memory that is not there. */
int kh_population_new(kh_population *p, int n, const kh_simulator *s, kh_err *err) {
    size_t size = (size_t)n;
    *p = (kh_population){ .n = n,
        .dim = s->dim,
        .n_answer = s->n_answer,
        .z = kh_calloc(size * (size_t)s->dim, sizeof *p->z),
        .weight = kh_calloc(size, sizeof *p->weight),
        .errors = kh_calloc(size, sizeof *p->errors),
        .answer = kh_calloc(size * (size_t)s->n_answer + 1, sizeof *p->answer),
        .ancestor = kh_calloc(size, sizeof *p->ancestor),
        .moves = kh_calloc(size, sizeof *p->moves),
        .width = kh_calloc(size, sizeof *p->width) };
    if (!p->z || !p->weight || !p->errors || !p->answer || !p->ancestor || !p->moves || !p->width)
        return kh_fail_memory(err);
    for (int i = 0; i < n; i++)
        p->weight[i] = 1.0 / n;
    return 0;
}

void kh_population_free(kh_population *p) {
    kh_free(p->z);
    kh_free(p->weight);
    kh_free(p->errors);
    kh_free(p->answer);
    kh_free(p->ancestor);
    kh_free(p->moves);
    kh_free(p->width);
    *p = (kh_population){ 0 };
}

/* memmove: members are put in place within one population, too. */
void kh_population_put(kh_population *p, int to, const kh_population *other, int from) {
    size_t dim = (size_t)p->dim, n_answer = (size_t)p->n_answer, a = (size_t)to, b = (size_t)from;
    memmove(p->z + a * dim, other->z + b * dim, dim * sizeof *p->z);
    memmove(p->answer + a * n_answer, other->answer + b * n_answer, n_answer * sizeof *p->answer);
    p->errors[to] = other->errors[from];
    p->ancestor[to] = other->ancestor[from];
    p->moves[to] = other->moves[from];
    p->width[to] = other->width[from];
}

void kh_population_copy(kh_population *p, const kh_population *from) {
    p->n = from->n;
    p->tolerance = from->tolerance;
    p->rate = from->rate;
    for (int i = 0; i < from->n; i++) {
        kh_population_put(p, i, from, i);
        p->weight[i] = from->weight[i];
    }
}

/* Effective sample size of importance weights (Kong, Liu and Wong 1994), for weights that need not
 * add up to one: n if all are equal, 1 if one has everything. */
double kh_population_ess(const kh_population *p) {
    double sum = 0, squares = 0;
    for (int i = 0; i < p->n; i++) {
        sum += p->weight[i];
        squares += p->weight[i] * p->weight[i];
    }
    return sum * sum / squares;
}

/* How many members of the first population have descendants here: what is left of the diversity
 * after resampling again and again. Quadratic, for some hundreds of members. */
int kh_population_ancestors(const kh_population *p) {
    int different = 0;
    for (int i = 0; i < p->n; i++) {
        bool seen = false;
        for (int j = 0; j < i && !seen; j++)
            seen = p->ancestor[j] == p->ancestor[i];
        different += !seen;
    }
    return different;
}

/* The width's normal is drawn only if the width is unknown, so that a simulator with a fixed prior
 * draws the same z as before there was a choice. */
double kh_prior_draw(const kh_simulator *s, kh_rng *r, float *z) {
    if (s->draw) {
        s->draw(s, r, z);
        return 0;
    }
    double u = s->prior_spread > 0 ? kh_rng_normal(r) : 0,
           sd = sqrt(s->prior_var) * exp(s->prior_spread * u);
    for (int j = 0; j < s->dim; j++)
        z[j] = (float)(sd * kh_rng_normal(r));
    return u;
}

/* Asked twice: the first reason to stop may come from elsewhere (an interrupt), and the callback
 * itself may give one while it says yes. */
bool kh_monitor_may(kh_monitor *w, long long queries, int members, bool have) {
    return !w->stopped[0] && (!w->may || w->may(w, queries, members, have)) && !w->stopped[0];
}

int kh_monitor_room(const kh_monitor *w, long long queries, int most) {
    return w->room ? w->room(w, queries, most) : most;
}

int kh_monitor_done(
    kh_monitor *w, const kh_population *p, const kh_level_done *step, bool last, kh_err *err) {
    return w->done ? w->done(w, p, step, last, err) : 0;
}

int kh_monitor_tick(kh_monitor *w, const char *what, bool have, kh_err *err) {
    return w->tick ? w->tick(w, what, have, err) : 0;
}

int kh_monitor_keep(kh_monitor *w, int number, const void *bytes, size_t n, kh_err *err) {
    return w->keep ? w->keep(w, number, bytes, n, err) : 0;
}

int kh_monitor_recall(kh_monitor *w, int number, kh_buf *bytes, kh_err *err) {
    return w->recall ? w->recall(w, number, bytes, err) : 0;
}

void kh_monitor_stop(kh_monitor *w, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    if (!w->stopped[0])
        vsnprintf(w->stopped, sizeof w->stopped, fmt, args);
    va_end(args);
}
