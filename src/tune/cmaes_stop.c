/* cmaes_stop.c - when a run should end, and why (doc/methods.md, "When CMA-ES stops").
 *
 * The conditions are those of the tutorial, section B.3, with the tolerances of pycma. They are
 * tried in the order of the list in cmaes.h, and the first that holds is the reason. */
#include "tune/cmaes_impl.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *name, *text;
} STOPS[] = {
#define KH_CMAES_STOP_ROW(id, name, sentence) { name, sentence },
    KH_CMAES_STOPS(KH_CMAES_STOP_ROW)
#undef KH_CMAES_STOP_ROW
};

const char *kh_cmaes_stop_name(kh_cmaes_reason r) { return STOPS[r].name; }
const char *kh_cmaes_stop_text(kh_cmaes_reason r) { return STOPS[r].text; }

/* Highest minus lowest best value of the last 10 + 30 n / pop generations; infinite before there
 * are so many. */
static double recent_range(const kh_cmaes *c) {
    double window = fmin(CMAES_HISTORY, 10 + ceil(30.0 * c->n / c->pop)), least = INFINITY,
           most = -INFINITY;
    if ((double)c->generation < window)
        return INFINITY;
    for (long long g = c->generation - (long long)window; g < c->generation; g++) {
        least = fmin(least, c->hist[g % CMAES_HISTORY]);
        most = fmax(most, c->hist[g % CMAES_HISTORY]);
    }
    return most - least;
}

static bool steps_below(const kh_cmaes *c, double limit) {
    bool below = true;
    for (int i = 0; below && i < c->n; i++)
        below = c->sigma * sqrt(cmaes_variance(c, i)) < limit && c->sigma * fabs(c->pc[i]) < limit;
    return below;
}

static double longest_step(const kh_cmaes *c) {
    double most = 0;
    for (int i = 0; i < c->n; i++)
        most = fmax(most, c->sigma * sqrt(cmaes_variance(c, i)));
    return most;
}

static double longest_axis(const kh_cmaes *c) {
    double most = 0;
    for (int i = 0; i < c->n; i++)
        most = fmax(most, c->D[i]);
    return most;
}

/* One axis a generation, in turn. The axes of the separable variant are the coordinates, which have
 * their own condition. */
static bool axis_without_effect(const kh_cmaes *c) {
    if (!c->full)
        return false;
    int axis = (int)(c->generation % c->n);
    double step = 0.1 * c->sigma * c->D[axis];
    const double *b = c->B + (size_t)axis * (size_t)c->n;
    for (int i = 0; i < c->n; i++)
        if (c->m[i] != c->m[i] + step * b[i])
            return false;
    return true;
}

static bool coordinate_without_effect(const kh_cmaes *c) {
    for (int i = 0; i < c->n; i++)
        if (c->m[i] == c->m[i] + 0.2 * c->sigma * sqrt(cmaes_variance(c, i)))
            return true;
    return false;
}

/* The median (the upper one of an even number) by Hoare's selection. */
static double median(double *v, int n) {
    int from = 0, to = n - 1, at = n / 2;
    while (from < to) {
        double pivot = v[from + (to - from) / 2];
        int i = from, j = to;
        while (i <= j) {
            while (v[i] < pivot)
                i++;
            while (v[j] > pivot)
                j--;
            if (i <= j) {
                double t = v[i];
                v[i++] = v[j];
                v[j--] = t;
            }
        }
        if (at <= j)
            to = j;
        else if (at >= i)
            from = i;
        else
            break;
    }
    return v[at];
}

/* The median of n generations from g on. */
static double history_median(kh_cmaes *c, const double *hist, long long g, int n) {
    for (int i = 0; i < n; i++)
        c->window[i] = hist[(g + i) % CMAES_HISTORY];
    return median(c->window, n);
}

/* Over the last fifth of the run, but at least 100 + 100 n^1.5 / pop generations, neither the best
 * nor the median values of the last 30 % are better than those of the first 30 %. The tutorial's
 * shorter least window, 120 + 30 n / pop, was seen to end runs that were still learning C (discus,
 * n = 40); this one is pycma's. */
static bool stagnates(kh_cmaes *c) {
    double window =
        fmin(CMAES_HISTORY, fmax(0.2 * (double)c->generation, 100 + 100 * pow(c->n, 1.5) / c->pop));
    if ((double)c->generation < window)
        return false;
    int part = (int)(0.3 * window);
    long long first = c->generation - (long long)window, last = c->generation - part;
    return history_median(c, c->hist, last, part) >= history_median(c, c->hist, first, part) &&
        history_median(c, c->hist_median, last, part) >=
        history_median(c, c->hist_median, first, part);
}

kh_cmaes_reason cmaes_judge(kh_cmaes *c) {
    const kh_cmaes_opts *o = &c->o;
    if (c->best_f <= o->target)
        return KH_CMAES_TARGET;
    if (c->evals >= c->max_evals)
        return KH_CMAES_MAX_EVALS;
    if (isnan(c->rank[0].f))
        return KH_CMAES_ALL_NAN;
    if (o->tolflat > 0 && c->flat >= o->tolflat)
        return KH_CMAES_FLAT;
    double range = recent_range(c);
    if (range < o->tolfun && c->rank[c->pop - 1].f - c->rank[0].f < o->tolfun)
        return KH_CMAES_TOLFUN;
    if (range < o->tolfunhist)
        return KH_CMAES_TOLFUNHIST;
    if (steps_below(c, o->tolx))
        return KH_CMAES_TOLX;
    if (o->tolfacupx > 0 && longest_step(c) > c->sigma0 * o->tolfacupx)
        return KH_CMAES_TOLFACUPX;
    if (o->tolupsigma > 0 && c->sigma / c->sigma0 > o->tolupsigma * longest_axis(c))
        return KH_CMAES_TOLUPSIGMA;
    if ((o->tolcondition > 0 && c->condition > o->tolcondition) || !cmaes_in_range(c))
        return KH_CMAES_CONDITION;
    if (axis_without_effect(c))
        return KH_CMAES_NO_EFFECT_AXIS;
    if (coordinate_without_effect(c))
        return KH_CMAES_NO_EFFECT_COORD;
    return o->stagnation && stagnates(c) ? KH_CMAES_STAGNATION : KH_CMAES_GOING;
}
