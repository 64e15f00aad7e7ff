/* prompt_tuning.c - prompt tuning (Lester et al. 2021): the vectors of a soft prompt, learned by
 * gradients through the frozen model. The result is a posterior of one sample whose z is the prompt
 * itself: its projection is the identity. */
#include "tune/descent.h"

#include "base/alloc.h"
#include "base/err.h"

typedef struct prompt_opts {
    kh_descent_opts descent;
} prompt_opts;

static const kh_opt prompt_table[] = {
    KH_DESCENT_ROWS(prompt_opts, descent, "5e-3", "200", "0"),
    KH_GRADIENT_PASS_ROWS(prompt_opts, descent, "0"),
    { 0 },
};

/* z and the prompt that it makes: P0 + z where P0 is not held by ids in the slots. */
typedef struct learned {
    kh_tuning *t;
    kh_subspace *space;
    float *z, *prompt;
} learned;

/* The prompt is made anew for each step, as the box would make it: P0 + z. */
static int prompt_pass(void *self, kh_pass_f32 *out, kh_err *err) {
    learned *l = self;
    out->prompt = l->prompt;
    out->n_prompt = l->t->space.slots;
    return kh_subspace_prompts(l->space, l->z, 1, l->prompt, err);
}

static int run_prompt_tuning(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    const prompt_opts *o = opts;
    size_t n = (size_t)t->space.slots * (size_t)t->space.hidden;
    kh_trainable box = { 0 };
    learned l = {
        .t = t, .z = kh_calloc(n, sizeof *l.z), .prompt = kh_calloc(n, sizeof *l.prompt)
    };
    int rc = l.z && l.prompt ? kh_trainable_init(&box, t, KH_WRT_PROMPT, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = kh_subspace_new(&l.space, &t->space, t->plm, 0, err);
    kh_gradient_pass through = {
        .t = t, .o = &o->descent, .box = &box, .pass = prompt_pass, .self = &l
    };
    if (rc == 0)
        rc = kh_gradient_pass_learn(
            &through, KH_WRT_PROMPT, t->space.slots, "prompt-tuning", l.z, n, err);
    if (rc == 0)
        rc = kh_posterior_add(p, l.z, 0, err);
    if (rc == 0)
        rc = kh_tuning_judge(t, p, t->plm, err); /* by the engine, which will answer from now on */
    kh_subspace_free(l.space);
    kh_trainable_free(&box);
    kh_free(l.z);
    kh_free(l.prompt);
    return rc;
}

const kh_method kh_method_prompt_tuning = {
    .name = "prompt-tuning",
    .summary = "the vectors of a soft prompt, learned by gradients",
    .access = KH_ACCESS_WEIGHTS,
    .holds = true,
    .soft = true,
    .whole = true,
    .opts = prompt_table,
    .opts_size = sizeof(prompt_opts),
    .least = kh_descent_least,
    .run = run_prompt_tuning,
};
