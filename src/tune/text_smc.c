/* text_smc.c - a distribution over text prompts from labels alone: sequential Monte Carlo (smc.c)
 * on the points of a text space, whose prior and steps are its own (text_space.c).
 *
 * Points are discrete and are met again and again, so what they answered is remembered and asked
 * once, as far as it was asked. */
#include "tune/smc.h"
#include "tune/text_box.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/map.h"

#include <string.h>

typedef struct text_smc_opts {
    kh_smc_opts smc; /* first: likelihood_free.c looks for it there */
    kh_text_space_opts text;
} text_smc_opts;

static const kh_opt text_smc_table[] = {
    { "dev-every", KH_OPT_INT, offsetof(text_smc_opts, smc.labels.dev_every), "0", .min = 0,
        .max = 1 << 30, .arg = "N",
        .help = "levels between two looks at the dev rows; 0: the last one only" },
    KH_SMC_ROWS(text_smc_opts, smc, "6", "0.3"),
    KH_TEXT_ROWS(text_smc_opts, text),
    { 0 },
};

typedef struct text_source {
    kh_text_box box;
    kh_map seen;   /* points -> number, */
    kh_arena keys; /* whose copies are here */
    int n;
    int *said; /* [n, n_train] what each answered, -1: not asked */
    size_t cap;
    int *index, *label; /* [n_train or n_dev] scratch */
} text_source;

static int text_source_new(text_source *s, kh_tuning *t, const kh_text_space_opts *o, kh_err *err) {
    size_t rows = (size_t)(t->n_train > t->n_dev ? t->n_train : t->n_dev);
    *s = (text_source){ 0 };
    int rc = kh_text_box_open(&s->box, t, o, false, err);
    s->index = kh_calloc(rows, sizeof *s->index);
    s->label = kh_calloc(rows, sizeof *s->label);
    return rc == 0 && (!s->index || !s->label) ? kh_fail_memory(err) : rc;
}

static void text_source_free(text_source *s) {
    kh_text_box_close(&s->box);
    kh_map_free(&s->seen);
    kh_arena_free(&s->keys);
    kh_free(s->said);
    kh_free(s->index);
    kh_free(s->label);
}

/* What a point has answered so far, to be added to; NULL: out of memory. */
static int *memory_of(text_source *s, const float *point) {
    size_t rows = (size_t)s->box.t->n_train, bytes = (size_t)s->box.space->dim * sizeof *point;
    int32_t at;
    if (!kh_map_get(&s->seen, (const char *)point, bytes, &at)) {
        char *key = kh_arena_alloc(&s->keys, bytes);
        if (!key || !kh_grow(&s->said, &s->cap, ((size_t)s->n + 1) * rows, sizeof *s->said))
            return NULL;
        memcpy(key, point, bytes);
        if (kh_map_add(&s->seen, key, bytes, s->n, NULL) < 0)
            return NULL;
        at = s->n++;
        for (size_t i = 0; i < rows; i++)
            s->said[(size_t)at * rows + i] = -1;
    }
    return s->said + (size_t)at * rows;
}

/* Asks a point about rows in the order of patience, until its errors exceed the allowance. */
static int ask_point(text_source *s, const float *point, const kh_patience *patience, int allowance,
    int *errors, int *label, kh_err *err) {
    const kh_tuning *t = s->box.t;
    int *said = memory_of(s, point), rc = said ? 0 : kh_fail_memory(err), first = 0;
    *errors = 0;
    for (int i = 0; i < t->n_train && rc == 0; i++)
        *errors += said[i] >= 0 && said[i] != t->train_row[i].label;
    while (rc == 0 && first < t->n_train && *errors <= allowance) {
        int n = 0, chunk = patience->chunk;
        if (chunk < 0) /* as many as could end it */
            chunk = allowance - *errors < -chunk ? -chunk : allowance - *errors + 1;
        for (; first < t->n_train && n < chunk; first++)
            if (said[patience->order[first]] < 0)
                s->index[n++] = patience->order[first];
        if (n > 0)
            rc = kh_text_box_ask(&s->box, point, &(kh_text_rows){ t->train_row, true }, s->index, n,
                NULL, s->label, err);
        for (int i = 0; i < n && rc == 0; i++) {
            said[s->index[i]] = s->label[i];
            *errors += s->label[i] != t->train_row[s->index[i]].label;
        }
    }
    if (rc == 0)
        memcpy(label, said, (size_t)t->n_train * sizeof *label);
    return rc;
}

static int within(void *self, const float *z, int n, const kh_patience *patience, int *errors,
    int *label, kh_err *err) {
    text_source *s = self;
    int rc = 0, rows = s->box.t->n_train;
    for (int i = 0; i < n && rc == 0; i++) {
        const float *point = z + (size_t)i * (size_t)s->box.space->dim;
        kh_err why = { 0 };
        rc = ask_point(s, point, patience, patience->allowance[i], &errors[i],
            label + (size_t)i * (size_t)rows, &why);
        if (rc != 0 && kh_text_box_useless(&s->box, point, rc, &why)) {
            errors[i] = rows + 1; /* more than anybody allows */
            memset(label + (size_t)i * (size_t)rows, -1, (size_t)rows * sizeof *label);
            rc = 0;
        } else if (rc != 0)
            return kh_fail(err, rc, "%s", why.msg);
    }
    return rc;
}

static int ask_dev(void *self, const float *z, int n, int *label, kh_err *err) {
    text_source *s = self;
    const kh_tuning *t = s->box.t;
    int rc = 0;
    for (int i = 0; i < t->n_dev; i++)
        s->index[i] = i;
    for (int i = 0; i < n && rc == 0; i++)
        rc = kh_text_box_ask(&s->box, z + (size_t)i * (size_t)s->box.space->dim,
            &(kh_text_rows){ t->dev_row, false }, s->index, t->n_dev, NULL,
            label + (size_t)i * (size_t)t->n_dev, err);
    return rc;
}

static const kh_text_space *space_of(const kh_simulator *sim) {
    return ((const text_source *)kh_label_source_of(sim)->self)->box.space;
}

static void draw(const kh_simulator *sim, kh_rng *r, float *z) {
    kh_text_space_draw(space_of(sim), r, z);
}

static void move(const kh_simulator *sim, kh_rng *r, double b, const float *from, float *z) {
    kh_text_space_move(space_of(sim), r, b, from, z);
}

static int fill(void *self, const kh_population *from, kh_posterior *p, kh_err *err) {
    return kh_text_box_fill(&((text_source *)self)->box, from->z, from->weight, from->n, p, err);
}

static int run_text_smc(kh_tuning *t, const void *opts, kh_posterior *p, kh_err *err) {
    const text_smc_opts *o = opts;
    text_source s;
    int rc = text_source_new(&s, t, &o->text, err);
    if (rc == 0) {
        kh_label_source from = { .dim = s.box.space->dim,
            .within = within,
            .dev = ask_dev,
            .draw = draw,
            .move = move,
            .fill = fill,
            .self = &s };
        rc = kh_labels_run_from(t, &from, &kh_sampler_smc, o, p, err);
    }
    text_source_free(&s);
    return rc;
}

static int samples_of(const void *opts) {
    return kh_smc_members(&((const text_smc_opts *)opts)->smc, 0, 1);
}

const kh_method kh_method_text_smc = {
    .name = "text-smc",
    .summary = "labels only: a distribution over text prompts by sequential Monte Carlo",
    .access = KH_ACCESS_LABELS,
    .text = true,
    .votes = true,
    .holds = true,
    .opts = text_smc_table,
    .opts_size = sizeof(text_smc_opts),
    .samples = samples_of,
    .least = kh_smc_least,
    .most = kh_smc_most,
    .run = run_text_smc,
};
