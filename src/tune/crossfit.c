/* crossfit.c - cross-fitting: every labelled row is answered by a classifier that has not learned
 * from it, so that all of them, not the dev rows alone, can say when to abstain.
 *
 * The rows of train and dev are dealt to folds, class by class, in an order that the seed decides.
 * For each fold the method runs on the others, of which every fourth row of a class is dev. The
 * classifier that is kept has learned from more rows than these; what is chosen by their answers
 * errs on the safe side as long as more rows do no harm (doc/judging.md, [20c], with simulations).
 */
#include "tune/crossfit.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hooks.h"
#include "base/rng.h"
#include "data/dataset.h"
#include "judge/predictions.h"
#include "plm/http.h"
#include "posterior/posterior.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEAST_OF_CLASS = 6, DEV_EVERY = 4 };

typedef struct crossfit {
    kh_dataset *all;
    int *fold; /* [all->n_row] */
    int *list; /* [all->n_row] rows of one part */
    int *seen; /* [n_label] */
} crossfit;

static void crossfit_free(crossfit *c) {
    kh_dataset_close(c->all);
    kh_free(c->fold);
    kh_free(c->list);
    kh_free(c->seen);
}

/* Returns 1, or 0 if a class has too few rows. */
static int deal(
    crossfit *c, const kh_dataset *train, const kh_dataset *dev, uint64_t seed, kh_err *err) {
    int rc = kh_dataset_join(&c->all, train, dev, err);
    if (rc != 0)
        return rc;
    int n = c->all->n_row;
    c->fold = kh_malloc((size_t)n * sizeof *c->fold);
    c->list = kh_malloc((size_t)n * sizeof *c->list);
    c->seen = kh_calloc((size_t)c->all->n_label, sizeof *c->seen);
    if (!c->fold || !c->list || !c->seen)
        return kh_fail_memory(err);
    kh_rng r = kh_rng_stream(seed, KH_RNG_EVAL, 1, 0);
    kh_rng_permutation(&r, c->list, n);
    for (int i = 0; i < n; i++) {
        int label = c->all->row[c->list[i]].label;
        c->fold[c->list[i]] = label < 0 ? -1 : c->seen[label]++ % KH_CROSSFIT_FOLDS;
    }
    for (int k = 0; k < c->all->n_label; k++)
        if (c->seen[k] < LEAST_OF_CLASS)
            return 0;
    return 1;
}

typedef enum part { HELD_OUT, TRAIN, DEV } part;

static int select_part(crossfit *c, int fold, part which, kh_dataset **out, kh_err *err) {
    int n = 0;
    memset(c->seen, 0, (size_t)c->all->n_label * sizeof *c->seen);
    for (int i = 0; i < c->all->n_row; i++) {
        if (c->fold[i] < 0)
            continue;
        part is = HELD_OUT;
        if (c->fold[i] != fold)
            is = c->seen[c->all->row[i].label]++ % DEV_EVERY == 0 ? DEV : TRAIN;
        if (is == which)
            c->list[n++] = i;
    }
    return kh_dataset_select(out, c->all, c->list, n, err);
}

static int put_answers(kh_buf *out, const kh_posterior *post, kh_plm *plm, const kh_dataset *rows,
    int n_label, kh_err *err) {
    kh_predictor *predictor = NULL;
    int n = kh_dataset_size(rows);
    double *p = kh_malloc((size_t)n * (size_t)n_label * sizeof *p);
    int rc = p ? kh_predictor_new(&predictor, post, plm, NULL, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = kh_predictor_run(predictor, kh_dataset_rows(rows), n, p, err);
    for (int i = 0; i < n && rc == 0; i++)
        if (!isnan(p[(size_t)i * (size_t)n_label])) /* else a service refused it */
            kh_predictions_put(out, p + (size_t)i * (size_t)n_label, n_label,
                kh_dataset_rows(rows)[i].label, kh_dataset_rows(rows)[i].line);
    kh_predictor_free(predictor);
    kh_free(p);
    return rc == 0 && kh_buf_failed(out) ? kh_fail_memory(err) : rc;
}

int kh_crossfit(kh_buf *out, const kh_method *m, const void *opts, kh_plm *plm, const kh_task *task,
    const kh_dataset *train, const kh_dataset *dev, const kh_tune_opts *o, const kh_hooks *hooks,
    kh_err *err) {
    crossfit c = { 0 };
    kh_tune_opts quiet = *o;
    quiet.run = NULL;
    quiet.fallback = KH_FALLBACK_NONE; /* the answers of the method itself are wanted */
    quiet.folder = NULL;
    quiet.hooks = NULL;
    quiet.record = NULL;
    quiet.forecast = NULL;
    int rc = deal(&c, train, dev, o->seed, err), enough = rc;
    rc = rc > 0 ? 0 : rc;
    for (int f = 0; f < KH_CROSSFIT_FOLDS && enough > 0 && rc == 0; f++) {
        kh_dataset *rows[3] = { NULL, NULL, NULL };
        kh_posterior *post = NULL;
        for (int i = 0; i < 3 && rc == 0; i++)
            rc = select_part(&c, f, (part)i, &rows[i], err);
        if (rc == 0)
            rc = kh_method_run(&post, m, opts, plm, task, rows[TRAIN], rows[DEV], &quiet, err);
        if (rc == 0)
            rc = put_answers(out, post, plm, rows[HELD_OUT], task->n_label, err);
        kh_posterior_free(post);
        for (int i = 0; i < 3; i++)
            kh_dataset_close(rows[i]);
        if (rc == 0 && kh_report_progress(hooks, "cross-fit", f + 1, KH_CROSSFIT_FOLDS, NULL) != 0)
            rc = kh_fail(err, KH_STOPPED, "stopped on request");
    }
    crossfit_free(&c);
    return rc;
}

/* --------------------------------------------------------------------------------- in a folder */

/* One option of the method's struct, from its value in the posterior's record. */
static int read_option(const kh_opt *row, void *opts, const json_t *value, kh_err *err) {
    bool text = json_is_string(value);
    char *made = text ? NULL : json_dumps(value, JSON_ENCODE_ANY);
    const char *s = text ? json_string_value(value) : made;
    int rc = s ? kh_opts_set(row, opts, s, err) : kh_fail_memory(err);
    free(made);
    return rc;
}

/* The options that a posterior was made with, from its JSON object, for the method's own struct. */
static int read_options(const kh_method *m, void *opts, const char *json, kh_err *err) {
    const char *key;
    json_t *value, *root = json ? json_loads(json, 0, NULL) : NULL;
    int rc = 0;
    json_object_foreach(root, key, value) {
        const kh_opt *row = kh_opts_find(m->opts, key, strlen(key));
        if (row && row->type != KH_OPT_LIST && !json_is_null(value) && rc == 0)
            rc = read_option(row, opts, value, err);
    }
    json_decref(root);
    return rc;
}

/* As many runs as there are folds: for the methods without a search, on a model in this process.
 * The template learns from no row: all of them judge it as they are. */
static bool affordable(const kh_method *m, const kh_plm *plm) {
    kh_plm_info box = kh_plm_describe(plm);
    bool own = strcmp(box.backend, "own") == 0;
    return m != &kh_method_manual && !m->soft && !m->text && m != &kh_method_model_tuning && !own &&
        !kh_is_url(box.opened);
}

int kh_crossfit_save(const kh_posterior *post, kh_plm *plm, const kh_dataset *train,
    const kh_dataset *dev, const kh_tune_opts *o, const kh_hooks *hooks, const char *run,
    kh_err *err) {
    const kh_method *m = NULL;
    if (post->fresh.n > 0) /* its own run has left them */
        return 0;
    kh_buf lines = kh_buf_init(1 << 28);
    char *path = kh_path_join(run, KH_CROSSFIT_NAME);
    int rc = path ? kh_method_find(&m, post->method, err) : kh_fail_memory(err);
    void *opts = rc == 0 ? kh_calloc(1, m->opts_size + 1) : NULL;
    if (rc == 0 && !opts)
        rc = kh_fail_memory(err);
    if (rc == 0) {
        kh_opts_init(m->opts, opts);
        rc = read_options(m, opts, post->options, err);
    }
    if (rc == 0 && affordable(m, plm))
        rc = kh_crossfit(&lines, m, opts, plm, post->task, train, dev, o, hooks, err);
    if (rc == 0 && lines.len > 0)
        rc = kh_file_write(path, lines.data, lines.len, err);
    if (opts)
        kh_opts_free(m->opts, opts);
    kh_free(opts);
    kh_buf_free(&lines);
    kh_free(path);
    return rc;
}
