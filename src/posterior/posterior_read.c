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

int kh_posterior_text(const kh_posterior *p, int sample, char **text, kh_err *err) {
    *text = NULL;
    if (p->texts.n == 0)
        return kh_fail(err, KH_EUNSUPPORTED, "a posterior of method %s has no text prompts",
            p->method ? p->method : "unknown");
    if (sample < 0 || sample >= p->n)
        return kh_fail(
            err, KH_EARG, "sample %d: the posterior has samples 0 to %d", sample, p->n - 1);
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_text_prompt_show(&p->texts.prompt[sample], p->task, p->texts.row, &b);
    if (kh_buf_failed(&b)) {
        kh_buf_free(&b);
        return kh_fail_memory(err);
    }
    *text = b.data; /* the buffer's memory becomes the caller's */
    return 0;
}

void kh_posterior_by_weight(const kh_posterior *p, int *order) {
    for (int i = 0; i < p->n; i++) { /* by insertion: there are few, and equals keep their order */
        int j = i;
        for (; j > 0 && p->weight[order[j - 1]] < p->weight[i]; j--)
            order[j] = order[j - 1];
        order[j] = i;
    }
}
