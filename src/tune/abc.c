/* abc.c - approximate Bayesian computation by rejection. doc/methods.md, L1 and L2. */
#include "tune/simulator.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

typedef struct abc_opts {
    int samples;
} abc_opts;

static const kh_opt rejection_table[] = {
    { "samples", KH_OPT_INT, offsetof(abc_opts, samples), "100", .min = 1, .max = 1 << 20, .arg = "N", .help = "draws of z returned" },
    { 0 },
};

static int run_rejection(kh_population *out, kh_simulator *s, const void *opts, uint64_t seed, kh_watch *w, kh_err *err) {
    const abc_opts *o = opts;
    int rc = kh_population_new(out, o->samples, s, err);
    for (int i = 0; rc == 0 && i < o->samples; i++) {
        kh_rng r = kh_rng_stream(seed, KH_RNG_ABC, 1, (uint32_t)i);
        for (int j = 0; j < s->dim; j++)
            out->z[(size_t)i * (size_t)s->dim + (size_t)j] = (float)(sqrt(s->prior_var) * kh_rng_normal(&r));
    }
    if (rc == 0)
        rc = s->errors(s, &(kh_candidates){ out->z, o->samples, 1, 0 }, s->n_error, out->errors, out->answer, err);
    kh_watch_stop(w, "all samples are there");
    return rc;
}

const kh_sampler kh_sampler_abc_rejection = {
    .name = "abc-rejection",
    .summary = "prior draws with few enough errors",
    .opts = rejection_table,
    .opts_size = sizeof(abc_opts),
    .run = run_rejection,
};
