/* cmaes_opts.c - the options of CMA-ES: their table, and what is refused. */
#include "tune/cmaes_impl.h"

#include "base/err.h"

#include <limits.h>
#include <math.h>

typedef struct alone {
    kh_cmaes_opts o;
} alone;

const kh_opt kh_cmaes_table[] = { KH_CMAES_ROWS(alone, o), { 0 } };

kh_cmaes_opts kh_cmaes_defaults(void) {
    kh_cmaes_opts o = { 0 };
    kh_opts_init(kh_cmaes_table, &o);
    return o;
}

/* The limits are those of the table; a row without any takes every number, and whole numbers from
 * 0. */
static int check_row(const kh_opt *row, const void *field, kh_err *err) {
    bool any = row->min == 0 && row->max == 0;
    double value = 0, max = row->max;
    if (row->type == KH_OPT_NUMBER)
        value = *(const double *)field;
    else if (row->type == KH_OPT_INT) {
        value = *(const int *)field;
        max = any ? INT_MAX : max;
        any = false;
    } else if (row->type == KH_OPT_CHOICE) {
        value = *(const int *)field;
        max = KH_CMAES_SEPARABLE;
        any = false;
    }
    if (isnan(value) || (!any && (value < row->min || value > max)))
        return kh_fail(err, KH_EARG, "CMA-ES: %s is %g; from %g to %g is allowed", row->name, value,
            any ? -INFINITY : row->min, any ? INFINITY : max);
    return 0;
}

int cmaes_check(const kh_cmaes_opts *o, int n, double sigma, kh_err *err) {
    for (const kh_opt *row = kh_cmaes_table; row->name; row++)
        if (check_row(row, (const char *)o + row->offset, err))
            return KH_EARG;
    int most = o->variant == KH_CMAES_FULL ? KH_CMAES_MAX_FULL : KH_CMAES_MAX_SEPARABLE;
    if (n < 1 || n > most)
        return kh_fail(err, KH_EARG, "CMA-ES: %d dimensions; the %s variant takes 1 to %d%s", n,
            o->variant == KH_CMAES_FULL ? "full" : "separable", most,
            n > most && o->variant == KH_CMAES_FULL ? ", the separable one more" : "");
    if (o->pop == 1)
        return kh_fail(
            err, KH_EARG, "CMA-ES: a population of 1; at least 2 candidates are needed to compare");
    if (!(sigma >= 1e-100 && sigma <= 1e100))
        return kh_fail(err, KH_EARG,
            "CMA-ES: the step size sigma is %g; from 1e-100 to 1e+100 is allowed", sigma);
    return 0;
}
