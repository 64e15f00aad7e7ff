/* prompt_tuning.c - prompt tuning (Lester et al. 2021): the vectors of a soft prompt, learned by gradients through the frozen
 * model. The result is a posterior of one sample whose z is the prompt itself: its projection is the identity. */
#include "tune/descent.h"

#include "base/alloc.h"
#include "base/err.h"

typedef struct prompt_opts {
    kh_descent_opts descent;
} prompt_opts;

static const kh_opt prompt_table[] = {
    KH_DESCENT_ROWS(prompt_opts, descent, "5e-3", "200", "0"),
    KH_PASSAGE_ROWS(prompt_opts, descent, "0"),
    { 0 },
};

/* z and the prompt that it makes: P0 + z where P0 is not held by ids in the slots. */
typedef struct learned {
    kh_tuning *t;
    kh_subspace *space;
    float *z, *prompt;
} learned;

static int prompt_pass(void *self, kh_pass_f32 *out, kh_err *err) {
    learned *l = self;
    out->prompt = l->prompt;
    out->n_prompt = l->t->space.slots;
    return kh_subspace_prompts(l->space, l->z, 1, l->prompt, err);
}

static int run_prompt_tuning(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    const prompt_opts *o = opts;
    size_t n = (size_t)t->space.slots * (size_t)t->space.hidden;
    kh_open_box box = { 0 };
    learned l = { .t = t, .z = kh_calloc(n, sizeof *l.z), .prompt = kh_calloc(n, sizeof *l.prompt) };
    kh_gradient *g = NULL;
    int rc = l.z && l.prompt ? kh_open_box_init(&box, t, true, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = kh_subspace_new(&l.space, &t->space, t->plm, 0, err);
    if (rc == 0)
        rc = kh_gradient_new(&g, &box.params, o->descent.shards, KH_WRT_PROMPT, t->space.slots, 0, err);
    kh_passage through = {
        .t = t, .o = &o->descent, .box = &box, .gradient = g, .pass = prompt_pass, .slope = kh_gradient_prompt, .self = &l
    };
    kh_descent d = { .t = t,
        .o = &o->descent,
        .phase = "prompt-tuning",
        .x = l.z,
        .n = n,
        .segment = &(kh_segment){ n, true },
        .n_segment = 1 };
    kh_descent_through(&d, &through);
    if (rc == 0)
        rc = kh_descent_run(&d, err);
    if (rc == 0)
        rc = kh_posterior_add(p, l.z, 0, err);
    if (rc == 0)
        rc = kh_tuning_judge(t, p, t->plm, err); /* by the engine, which will answer from now on */
    kh_gradient_free(g);
    kh_subspace_free(l.space);
    kh_open_box_free(&box);
    kh_free(l.z);
    kh_free(l.prompt);
    return rc;
}

static long long dev_once(const kh_tuning *t, const void *opts) {
    (void)opts;
    return t->dev->n_row;
}

const kh_method kh_method_prompt_tuning = {
    .name = "prompt-tuning",
    .summary = "the vectors of a soft prompt, learned by gradients",
    .access = KH_ACCESS_WEIGHTS,
    .soft = true,
    .whole = true,
    .opts = prompt_table,
    .opts_size = sizeof(prompt_opts),
    .least = dev_once,
    .run = run_prompt_tuning,
};
