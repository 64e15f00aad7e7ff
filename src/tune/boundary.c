/* boundary.c - bounds by a smooth transformation; see boundary.h. */
#include "tune/boundary.h"

#include <math.h>

/* The half-width of the parabola at a bound: small beside the interval and beside the bound's own
 * size. */
static double margin(double bound, double width) { return fmin(width / 2, (1 + fabs(bound)) / 20); }

/* g mirrored at the ends of [a, b], as often as it takes. Values inside come back bit for bit. */
static double fold(double g, double a, double b) {
    if (g >= a && g <= b)
        return g;
    if (isinf(b))
        return 2 * a - g;
    if (isinf(a))
        return 2 * b - g;
    double width = b - a, t = fmod(fabs(g - a), 2 * width); /* mirroring at a: the absolute value */
    return a + (t > width ? 2 * width - t : t);
}

double kh_boundary_map(double g, double lo, double hi) {
    double width = hi - lo, al = isinf(lo) ? 0 : margin(lo, width),
           au = isinf(hi) ? 0 : margin(hi, width);
    double x = fold(g, lo - al, hi + au);
    if (x < lo + al)
        x = lo + (x - (lo - al)) * (x - (lo - al)) / (4 * al);
    else if (x > hi - au)
        x = hi - (x - (hi + au)) * (x - (hi + au)) / (4 * au);
    return fmin(fmax(x, lo), hi); /* rounding must not leave the interval */
}

double kh_boundary_inverse(double x, double lo, double hi) {
    double width = hi - lo, al = isinf(lo) ? 0 : margin(lo, width),
           au = isinf(hi) ? 0 : margin(hi, width);
    if (x < lo + al)
        return lo - al + 2 * sqrt(al * (x - lo));
    if (x > hi - au)
        return hi + au - 2 * sqrt(au * (hi - x));
    return x;
}
