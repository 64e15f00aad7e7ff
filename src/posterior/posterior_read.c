/* posterior_read.c - what a program may read of a posterior: its samples, and the soft prompts that
 * they stand for. */
#include "posterior/posterior.h"

#include "base/err.h"

const float *kh_posterior_z(const kh_posterior *p) { return p->soft ? p->z : NULL; }
const float *kh_posterior_weights(const kh_posterior *p) { return p->weight; }

int kh_posterior_prompt(
    const kh_posterior *p, kh_plm *plm, int sample, float *prompt, kh_err *err) {
    kh_plm_info box = kh_plm_describe(plm);
    if (!p->soft)
        return kh_fail(err, KH_EUNSUPPORTED, "a posterior of method %s has no soft prompts",
            p->method ? p->method : "unknown");
    if (sample < 0 || sample >= p->n)
        return kh_fail(
            err, KH_EARG, "sample %d: the posterior has samples 0 to %d", sample, p->n - 1);
    if (box.hidden != p->space.hidden)
        return kh_fail(err, KH_EMISMATCH,
            "the posterior's prompts have %d numbers a slot, this model has %d", p->space.hidden,
            box.hidden);
    kh_subspace *space;
    int rc = kh_subspace_new(&space, &p->space, plm, p->projection[sample], err);
    if (rc == 0)
        rc = kh_subspace_prompts(
            space, p->z + (size_t)sample * (size_t)p->space.dim, 1, prompt, err);
    kh_subspace_free(space);
    return rc;
}
