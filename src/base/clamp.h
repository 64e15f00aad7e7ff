/* clamp.h - a value held within bounds: what a nested conditional would say, under its name.
 * Bounds that cross (low > high) give `low`, so that "at least one" wins over "no more than there
 * are" where there are none. NaN stays NaN. */
#ifndef KH_BASE_CLAMP_H
#define KH_BASE_CLAMP_H

static inline int kh_clamp_int(int x, int low, int high) {
    if (x > high)
        x = high;
    return x < low ? low : x;
}

static inline double kh_clamp(double x, double low, double high) {
    if (x > high)
        x = high;
    return x < low ? low : x;
}

#endif
