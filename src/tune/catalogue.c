/* catalogue.c - methods, samplers and their options as a program sees them: names, types, defaults
 * and limits, read from the same rows that parse them. */
#include "tune/method.h"
#include "tune/simulator.h"

#include "base/err.h"

#include <string.h>

/* Rows of base/opts.h in public words. A seed is a whole number that may be larger than an int. */
static kh_option_type type_of(kh_opt_type type) {
    static const kh_option_type TYPE[] = { [KH_OPT_FLAG] = KH_OPTION_FLAG,
        [KH_OPT_INT] = KH_OPTION_INT,
        [KH_OPT_SEED] = KH_OPTION_INT,
        [KH_OPT_NUMBER] = KH_OPTION_NUMBER,
        [KH_OPT_TEXT] = KH_OPTION_TEXT,
        [KH_OPT_CHOICE] = KH_OPTION_CHOICE,
        [KH_OPT_LIST] = KH_OPTION_TEXT };
    return TYPE[type];
}

/* Linear, as tables have a dozen rows and a catalogue is read once. */
static bool option_at(const kh_opt *table, int i, kh_option *out) {
    for (const kh_opt *row = table; row && row->name; row++)
        if (i-- == 0) {
            *out = (kh_option){ .name = row->name,
                .help = row->help,
                .value = row->value ? row->value : "",
                .type = type_of(row->type),
                .choices = row->type == KH_OPT_CHOICE ? row->arg : NULL,
                .min = row->min,
                .max = row->max };
            return true;
        }
    return false;
}

bool kh_method_describe(int i, kh_method_info *out) {
    const kh_method *m = kh_method_at(i);
    if (m)
        *out = (kh_method_info){ m->name, m->summary, m->access, m->soft };
    return m != NULL;
}

bool kh_method_option(const char *method, int i, kh_option *out) {
    const kh_method *m;
    return kh_method_find(&m, method, NULL) == 0 && i >= 0 && option_at(m->opts, i, out);
}

static const kh_sampler *const SAMPLERS[] = { &kh_sampler_abc_rejection, &kh_sampler_abc_smc,
    &kh_sampler_smc, &kh_sampler_snpe };
enum { N_SAMPLER = sizeof SAMPLERS / sizeof *SAMPLERS };

const kh_sampler *kh_sampler_find(const char *name) {
    for (int i = 0; i < N_SAMPLER; i++)
        if (strcmp(SAMPLERS[i]->name, name) == 0)
            return SAMPLERS[i];
    return NULL;
}

const char *kh_sampler_name(int i) { return i >= 0 && i < N_SAMPLER ? SAMPLERS[i]->name : NULL; }

bool kh_sampler_option(const char *sampler, int i, kh_option *out) {
    const kh_sampler *s = kh_sampler_find(sampler);
    return s && i >= 0 && option_at(s->opts, i, out);
}
