/* eval.c - see eval.h. Rows pass in small parts, so that progress is told; all numbers are those of
 * src/judge. */
#include "posterior/eval.h"

#include "posterior/prediction.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hooks.h"
#include "base/json.h"
#include "base/json_out.h"
#include "base/rng.h"
#include "posterior/distance.h"
#include "posterior/posterior.h"
#include "posterior/predict.h"
#include "data/dataset.h"
#include "judge/calibrate.h"
#include "judge/decisions.h"
#include "judge/pca.h"
#include "judge/predictions.h"
#include "judge/verdict.h"
#include "data/folder.h"
#include "plm/together.h"
#include "data/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { ROWS_AT_ONCE = 64 };

static const double SAME_DISTANCE = 1e-4; /* features are floats, and rows change their batch */

const char *kh_eval_split_name(int split) {
    static const char *const NAMES[] = { "test", "dev", "train" };
    return NAMES[split];
}

kh_answers kh_eval_answers(const kh_eval *e) {
    return (kh_answers){ e->rows.p, e->label, e->rows.n, e->n_label };
}

kh_decomposition kh_judged_parts(const kh_judged *j, int row, int n_label) {
    return kh_explained_parts(
        &(kh_explained){ j->p, j->votes, j->ambiguity, j->energy, j->distance }, row, n_label);
}

/* Scores that are not functions of p; NULL: those that are. */
static const double *outside_by(const kh_judged *j, kh_score score) {
    const double *const by[KH_N_SCORE] = {
        [KH_SCORE_ENERGY] = j->energy, [KH_SCORE_DISTANCE] = j->distance, [KH_SCORE_BOTH] = j->both
    };
    return by[score];
}

double kh_judged_score(const kh_judged *j, int row, kh_score score, int n_label) {
    if (score > KH_SCORE_ENTROPY)
        return outside_by(j, score)[row];
    return kh_uncertainty(score, j->p + (size_t)row * (size_t)n_label, n_label);
}

kh_score kh_eval_foreign(const kh_eval *e) {
    kh_score s = e->o->decide.foreign;
    if (s == KH_SCORE_BOTH && !e->known[s])
        s = KH_SCORE_DISTANCE;
    if (s == KH_SCORE_DISTANCE && !e->known[s])
        s = KH_SCORE_ENERGY;
    return e->known[s] ? s : e->o->decide.score;
}

/* By what decides what is foreign; NULL: by a function of p. */
static const double *outside_of(const kh_eval *e, const kh_judged *j) {
    return outside_by(j, kh_eval_foreign(e));
}

static kh_decision decide(const kh_eval *e, const kh_judged *j, int row, bool *in) {
    const double *outside = outside_of(e, j);
    return kh_decide(&e->decisions, &j->row[row], j->p + (size_t)row * (size_t)e->n_label,
        outside ? outside[row] : NAN, in);
}

enum { MOST_LEFT_OUT = 32 }; /* fits of the calibrator: one for each row, or for a share of them */

/* ------------------------------------------------------------------------------------ the rows */

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* At most `most` of the rows, drawn by the seed, in the order of the file: a record of rows
 * can be compared with the file line by line. */
static int draw_rows(kh_dataset **data, int most, uint64_t seed, kh_err *err) {
    int n = kh_dataset_size(*data);
    if (most == 0 || n <= most)
        return 0;
    int *index = kh_malloc((size_t)n * sizeof *index);
    if (!index)
        return kh_fail_memory(err);
    kh_rng r = kh_rng_stream(seed, KH_RNG_EVAL, 0, 0);
    kh_rng_permutation(&r, index, n);
    qsort(index, (size_t)most, sizeof *index, by_number);
    kh_dataset *some;
    int rc = kh_dataset_select(&some, *data, index, most, err);
    kh_free(index);
    if (rc == 0) {
        kh_dataset_close(*data);
        *data = some;
    }
    return rc;
}

/* `of` remembers how many rows there were before some were drawn: reports say so. */
static int judged_open(
    kh_judged *j, const char *name, kh_dataset *data, int most, uint64_t seed, kh_err *err) {
    j->data = data;
    j->of = kh_dataset_size(data);
    j->name = kh_strdup(name);
    int rc = j->name ? draw_rows(&j->data, most, seed, err) : kh_fail_memory(err);
    if (rc == 0 && kh_dataset_size(j->data) == 0)
        rc = kh_fail(err, KH_EFORMAT, "%s: no rows to judge on", kh_dataset_path(j->data));
    j->n = kh_dataset_size(j->data);
    j->row = kh_dataset_rows(j->data);
    return rc;
}

static void judged_free(kh_judged *j) {
    kh_dataset_close(j->data);
    kh_free(j->name);
    kh_free(j->p);
    kh_free(j->votes);
    kh_free(j->ambiguity);
    kh_free(j->energy);
    kh_free(j->distance);
    kh_free(j->both);
}

/* Rows that a service refused are left out, as if they had not been there. */
static int leave_refused(kh_judged *j, size_t k, const kh_hooks *hooks, kh_err *err) {
    int kept = 0;
    int *index = kh_malloc((size_t)j->n * sizeof *index);
    if (!index)
        return kh_fail_memory(err);
    for (int i = 0; i < j->n; i++) {
        if (isnan(j->p[(size_t)i * k]))
            continue;
        memmove(j->p + (size_t)kept * k, j->p + (size_t)i * k, k * sizeof *j->p);
        memmove(j->votes + (size_t)kept * k, j->votes + (size_t)i * k, k * sizeof *j->votes);
        j->ambiguity[kept] = j->ambiguity[i];
        j->energy[kept] = j->energy[i];
        j->distance[kept] = j->distance[i];
        index[kept++] = i;
    }
    int refused = j->n - kept, rc = 0;
    kh_dataset *some = NULL;
    if (kept == 0)
        rc = kh_fail(err, KH_EIO, "%s: the service answered none of the %d rows", j->name, j->n);
    if (refused > 0 && rc == 0)
        rc = kh_dataset_select(&some, j->data, index, kept, err);
    if (refused > 0 && rc == 0) {
        kh_log(hooks, KH_WARN, "%s: %d of %d rows were refused by the service and are left out",
            j->name, refused, j->n);
        kh_dataset_close(j->data);
        j->data = some;
        j->row = kh_dataset_rows(some);
        j->n = kept;
    }
    kh_free(index);
    return rc;
}

/* What is asked is asked once: all metrics, decisions and curves are functions of these
 * arrays. */
static int judged_ask(
    kh_judged *j, kh_predictor *predictor, int n_label, const kh_hooks *hooks, kh_err *err) {
    size_t k = (size_t)n_label;
    char phase[96];
    snprintf(phase, sizeof phase, "eval %s", j->name);
    j->p = kh_malloc((size_t)j->n * k * sizeof *j->p);
    j->votes = kh_malloc((size_t)j->n * k * sizeof *j->votes);
    j->ambiguity = kh_malloc((size_t)j->n * sizeof *j->ambiguity);
    j->energy = kh_malloc((size_t)j->n * sizeof *j->energy);
    j->distance = kh_malloc((size_t)j->n * sizeof *j->distance);
    j->both = kh_malloc((size_t)j->n * sizeof *j->both);
    int rc = j->p && j->votes && j->ambiguity && j->energy && j->distance && j->both
        ? 0
        : kh_fail_memory(err);
    for (int i = 0, n; i < j->n && rc == 0; i += n) {
        n = j->n - i < ROWS_AT_ONCE ? j->n - i : ROWS_AT_ONCE;
        kh_explained part = { j->p + (size_t)i * k, j->votes + (size_t)i * k, j->ambiguity + i,
            j->energy + i, j->distance + i };
        rc = kh_predictor_explain(predictor, j->row + i, n, &part, err);
        if (rc == 0 && kh_report_progress(hooks, phase, i + n, j->n, NULL) != 0)
            rc = kh_fail(err, KH_STOPPED, "stopped on request");
    }
    return rc == 0 ? leave_refused(j, k, hooks, err) : rc;
}

static void read_labels(const kh_judged *j, int *label) {
    for (int i = 0; i < j->n; i++)
        label[i] = j->row[i].label;
}

static int labels_of(const kh_judged *j, int **out, kh_err *err) {
    *out = kh_malloc((size_t)j->n * sizeof **out);
    if (!*out)
        return kh_fail_memory(err);
    read_labels(j, *out);
    return 0;
}

/* ---------------------------------------------------------------------------- what to judge on */

/* A file that is not the one of tuning: all of its rows are to judge on. By device and inode, not
 * by name: links and relative paths lead to the same rows. */
static bool is_other_file(const kh_eval *e) {
    struct stat a, b;
    if (!e->o->data || !kh_file_exists(e->o->data))
        return false;
    bool same = e->post->data && stat(e->post->data, &a) == 0 && stat(e->o->data, &b) == 0 &&
        a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    return !same;
}

/* Where the rows of tuning are. */
static const char *tuning_data(const kh_eval *e) {
    return is_other_file(e) && !e->o->test ? e->post->data : e->data;
}

/* The caller's rows, as a data set of our own. */
static int take_all(kh_dataset **out, const kh_dataset *theirs, kh_err *err) {
    int n = kh_dataset_size(theirs);
    int *index = kh_malloc(((size_t)n + 1) * sizeof *index);
    if (!index)
        return kh_fail_memory(err);
    for (int i = 0; i < n; i++)
        index[i] = i;
    int rc = kh_dataset_select(out, theirs, index, n, err);
    kh_free(index);
    return rc;
}

static int open_rows(kh_eval *e, kh_err *err) {
    const kh_eval_opts *o = e->o;
    const kh_posterior *post = e->post;
    kh_dataset_opts read = { .task = post->task, .hooks = o->hooks };
    kh_dataset *data = NULL;
    kh_split split = { 0 };
    int rc;
    if (o->test)
        rc = take_all(&data, o->test, err);
    else if (is_other_file(e))
        rc = kh_dataset_open(&data, e->data, &read, err);
    else if (o->split == KH_EVAL_TEST)
        rc = kh_test_open(&data, e->data, post->shots, post->seed, &read, err);
    else
        rc = kh_split_open(&split, e->data, post->shots, post->seed, &read, err);
    if (rc == 0 && !data) {
        kh_dataset **from = o->split == KH_EVAL_DEV ? &split.dev : &split.train;
        data = *from;
        *from = NULL;
    }
    if (rc == 0)
        rc = judged_open(&e->rows, kh_eval_split_name(o->split), data, o->rows, o->seed, err);
    kh_split_close(&split);
    return rc == 0 ? labels_of(&e->rows, &e->label, err) : rc;
}

/* The template alone has learned from no row, and all of them have taught its calibrator: decisions
 * go by all of them, train rows first. */
static int add_train(kh_eval *e, kh_split *split, kh_err *err) {
    const kh_posterior *p = e->post;
    kh_dataset *both;
    if (strcmp(p->method, "manual") != 0 || !p->calibrated || !split->train ||
        p->calibrator.n <= kh_dataset_size(split->dev))
        return 0;
    int rc = kh_dataset_join(&both, split->train, split->dev, err);
    if (rc == 0) {
        e->n_train = kh_dataset_size(split->train);
        kh_dataset_close(split->dev);
        split->dev = both;
    }
    return rc;
}

/* The dev rows of tuning. A folder that has none is no failure: there are no decisions then. */
static int open_dev(kh_eval *e, kh_err *err) {
    kh_dataset_opts read = { .task = e->post->task, .hooks = e->o->hooks };
    kh_split split = { 0 };
    kh_err own = { 0 };
    const char *where = tuning_data(e);
    int rc;
    if (e->o->dev)
        rc = take_all(&split.dev, e->o->dev, &own);
    else if (where)
        rc = kh_split_open(&split, where, e->post->shots, e->post->seed, &read, &own);
    else
        rc = kh_fail(&own, KH_EMISSING, "no dev rows were given");
    if (rc == KH_EMISSING) {
        memcpy(e->why, own.msg, sizeof e->why);
        return 0;
    }
    if (rc != 0) {
        if (err)
            *err = own;
        return rc;
    }
    e->decided = true;
    if (e->o->split != KH_EVAL_TRAIN && e->o->split != KH_EVAL_DEV)
        rc = split.train ? kh_dataset_overlap(split.train, e->rows.data, &e->n_known, err) : 0;
    if (rc == 0)
        rc = add_train(e, &split, err);
    if (rc != 0) {
        kh_split_close(&split);
        return rc;
    }
    rc = judged_open(&e->dev, "dev", split.dev, 0, 0, err);
    split.dev = NULL;
    kh_split_close(&split);
    return rc == 0 ? labels_of(&e->dev, &e->dev_label, err) : rc;
}

/* The published code keeps labels 0 and 1 of MNLI when it stands for texts from elsewhere. */
static int drop_last_class(kh_dataset **data, kh_err *err) {
    int n = kh_dataset_size(*data), kept = 0;
    int *index = kh_malloc((size_t)n * sizeof *index);
    if (!index)
        return kh_fail_memory(err);
    for (int i = 0; i < n; i++)
        if (kh_dataset_rows(*data)[i].label < 2)
            index[kept++] = i;
    kh_dataset *some;
    int rc = kh_dataset_select(&some, *data, index, kept, err);
    kh_free(index);
    if (rc == 0) {
        kh_dataset_close(*data);
        *data = some;
    }
    return rc;
}

/* The lines of a text file as rows. */
static int open_lines(kh_dataset **out, const char *path, kh_dataset_opts *read, kh_err *err) {
    kh_buf bytes, rows = kh_buf_init(KH_BUF_MAX);
    int rc = kh_file_read(path, (size_t)1 << 30, &bytes, err);
    for (size_t at = 0; rc == 0 && at < bytes.len;) {
        const char *s = bytes.data + at, *stop = memchr(s, '\n', bytes.len - at);
        size_t n = stop ? (size_t)(stop - s) : bytes.len - at;
        at += n + 1;
        if (n > 0 && strspn(s, " \t\r") < n) {
            kh_json_out j = kh_json_out_init(&rows, KH_JSON_COMPACT);
            kh_json_open_object(&j, NULL);
            kh_json_put_text(&j, "text", s, n);
            kh_json_close(&j);
            kh_buf_char(&rows, '\n');
        }
    }
    read->format = KH_FORMAT_JSONL;
    if (rc == 0)
        rc = kh_buf_failed(&rows) ? kh_fail_memory(err)
                                  : kh_dataset_parse(out, rows.data, rows.len, path, read, err);
    kh_buf_free(&bytes);
    kh_buf_free(&rows);
    return rc;
}

/* All rows of a file; of a folder those of test, or else of train or dev. */
static int open_any(kh_dataset **out, const char *path, kh_dataset_opts *read, kh_err *err) {
    kh_folder parts = { 0 };
    size_t n = strlen(path);
    if (kh_file_exists(path))
        return n > 4 && strcmp(path + n - 4, ".txt") == 0 ? open_lines(out, path, read, err)
                                                          : kh_dataset_open(out, path, read, err);
    int rc = kh_folder_find(path, &parts, err);
    const char *file = parts.test ? parts.test : parts.train;
    if (!file)
        file = parts.dev;
    if (rc == 0)
        rc = file ? kh_dataset_open(out, file, read, err)
                  : kh_fail(err, KH_EMISSING,
                        "%s: no test, train or dev (.tsv, .csv or .jsonl) in it; a file can be "
                        "named itself",
                        path);
    kh_folder_free(&parts);
    return rc;
}

/* A folder or a file alone: its rows take the template of the classifier, as they would if someone
 * sent them there. */
static int open_strangers(const kh_eval *e, kh_ood_rows *out, const char *dir, kh_err *err) {
    kh_dataset_opts read = {
        .task = e->post->task, .unlabelled = true, .ignore_labels = true, .hooks = e->o->hooks
    };
    kh_dataset *data = NULL;
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    char *name = kh_strndup(dir, n);
    int rc = name ? open_any(&data, dir, &read, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = judged_open(&out->rows, kh_path_base(name), data, e->o->rows, e->o->seed, err);
    kh_free(name);
    return rc;
}

/* "NAME=DIR": the task NAME, whose template the rows in DIR take; or a folder. */
static int open_outside(const kh_eval *e, kh_ood_rows *out, const char *pair, kh_err *err) {
    if (kh_dir_exists(pair) || kh_file_exists(pair))
        return open_strangers(e, out, pair, err);
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair || !equals[1])
        return kh_fail(err, KH_EARG,
            "--ood takes NAME=DIR, a task and the folder of its rows, e.g. rte=data/rte, or a "
            "folder alone, whose rows take the "
            "template of RUN; got \"%s\"",
            pair);
    char *name = kh_strndup(pair, (size_t)(equals - pair));
    kh_dataset *data = NULL;
    int rc = name ? kh_task_open(&out->task, name, err) : kh_fail_memory(err);
    bool exact = rc == 0 && e->post->paper_exact && strcmp(out->task->name, "mnli") == 0;
    kh_dataset_opts read = {
        .task = out->task, .unlabelled = true, .ignore_labels = !exact, .hooks = e->o->hooks
    };
    if (rc == 0)
        rc = kh_file_exists(equals + 1)
            ? kh_dataset_open(&data, equals + 1, &read, err)
            : kh_test_open(&data, equals + 1, e->post->shots, e->post->seed, &read, err);
    if (rc == 0 && exact)
        rc = drop_last_class(&data, err);
    if (rc == 0)
        rc = judged_open(&out->rows, out->task->name, data, e->o->rows, e->o->seed, err);
    else
        kh_dataset_close(data);
    kh_free(name);
    return rc;
}

static int ask_outside(const kh_eval *e, kh_ood_rows *out, kh_plm *plm, kh_err *err) {
    kh_predictor *predictor;
    int rc =
        kh_predictor_foreign(&predictor, e->post, plm, out->task ? out->task : e->post->task, err);
    if (rc == 0)
        rc = judged_ask(&out->rows, predictor, e->n_label, e->o->hooks, err);
    kh_predictor_free(predictor);
    return rc;
}

/* Everything is opened before the first question. */
static int open_all(kh_eval *e, kh_err *err) {
    int rc = open_rows(e, err);
    if (rc == 0)
        rc = open_dev(e, err);
    if (rc == 0 && !(e->outside = kh_calloc((size_t)e->o->ood.n, sizeof *e->outside)))
        rc = kh_fail_memory(err);
    for (; rc == 0 && e->n_outside < e->o->ood.n; e->n_outside++)
        rc = open_outside(e, &e->outside[e->n_outside], e->o->ood.item[e->n_outside], err);
    return rc;
}

/* Samples with a projection in common differ by z alone; otherwise only their prompts can be
 * compared. */
static int make_plane(kh_eval *e, const kh_predictor *predictor, kh_err *err) {
    const kh_posterior *p = e->post;
    if (!p->soft || p->n < 2)
        return 0;
    e->n_xy = p->n < KH_EVAL_PLANE ? p->n : KH_EVAL_PLANE;
    for (int i = 1; i < e->n_xy; i++)
        e->of_prompts |= p->projection[i] != p->projection[0];
    e->xy = kh_malloc(2 * (size_t)e->n_xy * sizeof *e->xy);
    if (!e->xy)
        return kh_fail_memory(err);
    size_t size =
        e->of_prompts ? (size_t)p->space.slots * (size_t)p->space.hidden : (size_t)p->space.dim;
    return kh_pca_plane(e->of_prompts ? kh_predictor_prompts(predictor) : p->z, p->weight, e->n_xy,
        size, e->xy, e->share, err);
}

/* The accuracy of the template alone on the rows. */
static int ask_template(kh_eval *e, kh_plm *plm, kh_err *err) {
    kh_posterior *plain = NULL;
    kh_predictor *predictor = NULL;
    double *p = kh_malloc((size_t)e->rows.n * (size_t)e->n_label * sizeof *p);
    int right = 0;
    int rc = p ? kh_posterior_new(&plain, "manual", plm, e->post->task, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = kh_posterior_add(plain, NULL, 0, err);
    if (rc == 0)
        rc = kh_predictor_new(&predictor, plain, plm, NULL, err);
    if (rc == 0)
        rc = kh_predictor_run(predictor, e->rows.row, e->rows.n, p, err);
    for (int i = 0; i < e->rows.n && rc == 0; i++)
        right += kh_predicted(p + (size_t)i * (size_t)e->n_label, e->n_label) == e->label[i];
    if (rc == 0)
        e->template_accuracy = (double)right / e->rows.n;
    kh_predictor_free(predictor);
    kh_posterior_free(plain);
    kh_free(p);
    return rc;
}

/* Methods that learn nothing from dev rows and calibrate on train rows, too. */
static bool calibrates_on_all(const kh_posterior *p) {
    return strcmp(p->method, "manual") == 0 || strcmp(p->method, "text-ensemble") == 0;
}

/* Whether the rows that decisions are fitted on have taught the calibrator, too. A service may have
 * refused some of them. Where it has learned from others besides, those are not there to fit again:
 * the maps that are left out go by fewer rows then, which makes sets larger and breaks nothing. */
static bool taught(const kh_eval *e, const kh_plm *plm) {
    int n = e->post->calibrator.n;
    bool all = n == e->dev.n || (n < e->dev.n && kh_plm_shares(plm)) ||
        (n > e->dev.n && calibrates_on_all(e->post));
    return e->post->calibrated && all && e->dev.n > 1;
}

/* Factors that the classifier takes calibrated probabilities times; NULL: none, or out of memory,
 * which rc says. */
static double *prior_factors(const kh_posterior *p, int *rc, kh_err *err) {
    int n = p->task->n_label;
    double *out = p->class_prior ? kh_malloc((size_t)n * sizeof *out) : NULL;
    if (p->class_prior && !out)
        *rc = kh_fail_memory(err);
    for (int k = 0; k < n && out; k++)
        out[k] = p->class_prior[k] / (p->class_share ? p->class_share[k] : 1.0 / n);
    return out;
}

/* Every dev row calibrated by a fit to the others, and these fits. */
static int leave_out(kh_eval *e, kh_err *err) {
    const kh_posterior *post = e->post;
    kh_calibration method = post->calibrator.method;
    size_t size = (size_t)e->dev.n * (size_t)e->n_label;
    int folds = e->dev.n < MOST_LEFT_OUT ? e->dev.n : MOST_LEFT_OUT, rc = 0;
    double *x = kh_malloc(size * sizeof *x), *prior = prior_factors(post, &rc, err);
    if (!x)
        rc = kh_fail_memory(err);
    if (rc == 0) {
        memcpy(x, e->dev.p, size * sizeof *x);
        kh_calibration_input(kh_calibration_votes(method), post->n, x, size);
        rc = kh_left_out_fit(&e->left_out, &post->calibrator, x, e->dev_label, e->dev.n, e->n_label,
            folds, prior, e->dev.p, err);
    }
    kh_free(x);
    kh_free(prior);
    return rc;
}

/* The dev rows for the decisions. Rows that the calibrator was fitted on look better calibrated
 * than new ones are, and thresholds taken from them would not hold; so each of them is calibrated
 * by a fit to the others (doc/judging.md, [33]). No row is lost to a split, and none is asked
 * twice. */
static int ask_dev(kh_eval *e, kh_plm *plm, kh_predictor *predictor, kh_err *err) {
    if (!taught(e, plm))
        return judged_ask(&e->dev, predictor, e->n_label, e->o->hooks, err);
    kh_posterior plain = *e->post;
    kh_predictor *raw = NULL;
    plain.calibrated = false;
    plain.class_prior = NULL; /* it comes after calibration */
    int rc = kh_predictor_new(&raw, &plain, plm, NULL, err);
    if (rc == 0)
        rc = judged_ask(&e->dev, raw, e->n_label, e->o->hooks, err);
    kh_predictor_free(raw);
    read_labels(&e->dev, e->dev_label);
    return rc == 0 ? leave_out(e, err) : rc;
}

static double distance_from_others(const kh_posterior *p, int i) {
    return kh_nearest_distance(p->features, p->n_features,
        p->features + (size_t)i * (size_t)p->features_size, p->features_size, p->features_cuts,
        KH_NEIGHBOURS, i);
}

/* Whether the first of the dev rows are the rows of the features, one by one: then each of them is
 * as far from the features as its own feature is. */
static bool knows_train_rows(const kh_eval *e) {
    const kh_posterior *p = e->post;
    bool same = e->n_train > 0 && e->n_train == p->n_features && e->dev.n == e->dev.of;
    for (int i = 0; same && i < e->n_train; i++) {
        double d = kh_nearest_distance(p->features, p->n_features,
            p->features + (size_t)i * (size_t)p->features_size, p->features_size, p->features_cuts,
            KH_NEIGHBOURS, -1);
        same = fabs(d - e->dev.distance[i]) < SAME_DISTANCE;
    }
    return same;
}

static void score_both(const kh_eval *e, kh_judged *j) {
    for (int i = 0; i < j->n; i++)
        j->both[i] = kh_both_score(&e->both, j->energy[i], j->distance[i]);
}

/* Energy and distance as one score, by the energies and distances of its own rows: of dev rows, and
 * of train rows only where it has learned from none, as the energies of others are not those of new
 * rows. Their distances are those from the others. With fewer rows than a threshold takes, energy
 * and distance stay apart: distances have the train rows to go by (doc/judging.md, [21]). */
static int join_scores(kh_eval *e, kh_err *err) {
    if (!e->decided || !e->known[KH_SCORE_ENERGY] || !e->known[KH_SCORE_DISTANCE])
        return 0;
    int first = knows_train_rows(e) ? 0 : e->n_train, n = e->dev.n - first;
    if (n < 3 || !kh_ood_enough(n, e->o->decide.keep))
        return 0;
    double *distance = kh_malloc((size_t)n * sizeof *distance);
    e->own_both = kh_malloc((size_t)n * sizeof *e->own_both);
    int rc = distance && e->own_both ? 0 : kh_fail_memory(err);
    for (int i = 0; i < n && rc == 0; i++)
        distance[i] =
            first + i < e->n_train ? distance_from_others(e->post, i) : e->dev.distance[first + i];
    if (rc == 0)
        rc = kh_both_fit(&e->both, e->dev.energy + first, distance, n, e->own_both, err);
    kh_free(distance);
    if (rc != 0 || !kh_both_known(&e->both))
        return rc;
    e->known[KH_SCORE_BOTH] = true;
    e->n_own_both = n;
    score_both(e, &e->rows);
    score_both(e, &e->dev);
    for (int i = 0; i < e->n_outside; i++)
        score_both(e, &e->outside[i].rows);
    return 0;
}

static int ask_all(kh_eval *e, kh_plm *plm, kh_err *err) {
    long long before = kh_plm_meter(plm).queries;
    kh_predictor *predictor;
    int rc = kh_predictor_new(&predictor, e->post, plm, NULL, err);
    e->known[KH_SCORE_MAXP] = e->known[KH_SCORE_ENTROPY] = true;
    e->known[KH_SCORE_ENERGY] = rc == 0 && kh_predictor_energy(predictor);
    e->known[KH_SCORE_DISTANCE] = rc == 0 && kh_predictor_distance(predictor);
    if (rc == 0)
        rc = judged_ask(&e->rows, predictor, e->n_label, e->o->hooks, err);
    if (rc == 0)
        read_labels(&e->rows, e->label);
    if (rc == 0 && e->decided)
        rc = ask_dev(e, plm, predictor, err);
    if (rc == 0 && e->decided)
        read_labels(&e->dev, e->dev_label);
    if (rc == 0)
        rc = make_plane(e, predictor, err);
    if (rc == 0 && e->o->compare)
        rc = ask_template(e, plm, err);
    kh_predictor_free(predictor);
    for (int i = 0; i < e->n_outside && rc == 0; i++)
        rc = ask_outside(e, &e->outside[i], plm, err);
    if (rc == 0)
        rc = join_scores(e, err);
    for (int s = 0; s < KH_N_SCORE; s++)
        e->n_score += e->known[s];
    e->queries = kh_plm_meter(plm).queries - before;
    e->box = kh_plm_describe(plm);
    e->seen = kh_plm_has_seen(plm, e->post->task, NULL);
    return rc;
}

/* --------------------------------------------------------------------------------- the numbers */

static double *scores_of(const kh_judged *j, kh_score score, int n_label) {
    double *u = kh_malloc((size_t)j->n * sizeof *u);
    for (int i = 0; u && i < j->n; i++)
        u[i] = kh_judged_score(j, i, score, n_label);
    return u;
}

static void unknown(kh_metrics *m) {
    double *x = (double *)m;
    for (size_t i = 0; i < sizeof *m / sizeof *x; i++)
        x[i] = NAN;
}

static const char *class_name(const void *task, int k) {
    return ((const kh_task *)task)->label[k].name;
}

static int compute_inside(kh_eval *e, kh_err *err) {
    kh_answers a = kh_eval_answers(e);
    size_t k = (size_t)e->n_label;
    bool *good = kh_malloc((size_t)a.n * sizeof *good);
    e->confusion = kh_calloc(k * k, sizeof *e->confusion);
    unknown(&e->low);
    unknown(&e->high);
    int rc =
        good && e->confusion ? kh_metrics_compute(&e->m, &a, KH_BINS, err) : kh_fail_memory(err);
    if (rc == 0 && e->o->bootstrap.n_resample > 0)
        rc = kh_metrics_bootstrap(&e->low, &e->high, &a, KH_BINS, &e->o->bootstrap, err);
    if (rc == 0)
        rc = kh_reliability(&a, KH_BINS_UQ360, KH_BINS, e->bin, NULL, err);
    for (int i = 0; i < a.n && rc == 0; i++) {
        int said = kh_predicted(a.p + (size_t)i * k, e->n_label);
        good[i] = said == a.label[i];
        e->confusion[(size_t)a.label[i] * k + (size_t)said]++;
        kh_decomposition parts = kh_judged_parts(&e->rows, i, e->n_label);
        e->ambiguity += parts.ambiguity / a.n;
        e->disagreement += parts.disagreement / a.n;
    }
    if (rc == 0)
        kh_verdict(
            &a, e->template_accuracy, class_name, e->post->task, e->warning, sizeof e->warning);
    for (int s = 0; s < 2 && rc == 0; s++) {
        double *u = scores_of(&e->rows, (kh_score)s, e->n_label);
        e->point[s] = kh_malloc((size_t)a.n * sizeof *e->point[s]);
        rc = u && e->point[s] ? kh_risk_coverage(u, good, a.n, e->point[s], &e->n_point[s], err)
                              : kh_fail_memory(err);
        kh_free(u);
    }
    kh_free(good);
    return rc;
}

static int compute_outside(const kh_eval *e, kh_ood_rows *out, kh_err *err) {
    int rc = 0, foreign = 0;
    for (int s = 0; s < KH_N_SCORE && rc == 0; s++) {
        if (!e->known[s])
            continue;
        double *in = scores_of(&e->rows, (kh_score)s, e->n_label),
               *u = scores_of(&out->rows, (kh_score)s, e->n_label);
        rc = in && u ? kh_ood_compute(&out->value[s], in, e->rows.n, u, out->rows.n, err)
                     : kh_fail_memory(err);
        if (rc == 0 && e->o->bootstrap.n_resample > 0)
            rc = kh_ood_bootstrap(
                &out->low[s], &out->high[s], in, e->rows.n, u, out->rows.n, &e->o->bootstrap, err);
        kh_free(in);
        kh_free(u);
    }
    for (int i = 0; i < out->rows.n && rc == 0 && e->decided; i++)
        foreign += decide(e, &out->rows, i, NULL).foreign;
    out->flagged = e->decided ? (double)foreign / out->rows.n : NAN;
    return rc;
}

/* When to abstain, and the sets, are fitted again on cross-fitted answers, if there are any: there
 * are more, and a classifier that has learned from dev rows is too sure of them. */
static int select_by(kh_eval *e, const kh_answers *a, kh_err *err) {
    int rc = kh_decisions_select(&e->decisions, a, err);
    if (rc == 0)
        rc = kh_decisions_steps(&e->decisions, a, e->step, err);
    e->n_cross = rc == 0 ? a->n : 0;
    return rc;
}

/* The posterior knows them when it has just been made, the folder of its run afterwards. */
static int select_by_crossfit(kh_eval *e, kh_err *err) {
    static const kh_evidence PROBS[] = { KH_PROBS };
    const struct kh_fresh *own = &e->post->fresh;
    if (own->n > 0)
        return select_by(e, &(kh_answers){ own->p, own->label, own->n, e->n_label }, err);
    char *path = e->o->run ? kh_path_join(e->o->run, KH_CROSSFIT_NAME) : NULL;
    kh_buf bytes = kh_buf_init(0);
    kh_predictions rows = { 0 };
    int rc = 0;
    if (!path || !kh_file_exists(path))
        goto done;
    rc = kh_file_read(path, (size_t)1 << 28, &bytes, err);
    if (rc == 0)
        rc = kh_predictions_parse(&rows, bytes.data, bytes.len, path, PROBS, 1, err);
    if (rc == 0 && (rows.n_label != e->n_label || rows.n_known != rows.n))
        rc = kh_fail(err, KH_EMISMATCH,
            "%s: %d classes and %d of %d rows with a label; tune again to write it anew", path,
            rows.n_label, rows.n_known, rows.n);
    if (rc == 0)
        rc = select_by(e, &(kh_answers){ rows.x, rows.label, rows.n, rows.n_label }, err);
done:
    kh_predictions_free(&rows);
    kh_buf_free(&bytes);
    kh_free(path);
    return rc;
}

/* Whether the dev rows had a part in what the classifier is: they chose among candidates or
 * methods, or ended the training. Calibration is no such part, as each row is calibrated by the
 * others. */
static bool chosen_on_dev(const kh_posterior *p) {
    return p->tried || (strcmp(p->method, "manual") != 0 && strcmp(p->method, "icl") != 0);
}

/* What is far: decided by the distances of the dev rows and of the train rows, each of the latter
 * from the others. A dozen dev rows alone could not say (doc/judging.md, [21]). */
static int fit_distance(kh_eval *e, kh_err *err) {
    const kh_posterior *p = e->post;
    int n_dev = e->dev.n - e->n_train, n = n_dev + p->n_features;
    if (e->decisions.opts.foreign != KH_SCORE_DISTANCE || p->n_features <= KH_NEIGHBOURS)
        return 0;
    double *u = kh_malloc((size_t)n * sizeof *u);
    if (!u)
        return kh_fail_memory(err);
    memcpy(u, e->dev.distance + e->n_train, (size_t)n_dev * sizeof *u);
    for (int i = 0; i < p->n_features; i++)
        u[n_dev + i] = distance_from_others(p, i);
    int rc = kh_decisions_outside(&e->decisions, u, n, err);
    e->n_ood = n;
    kh_free(u);
    return rc;
}

/* The same for both in one: a row's own part in middle and spread is left out. */
static int fit_both(kh_eval *e, kh_err *err) {
    if (e->decisions.opts.foreign != KH_SCORE_BOTH)
        return 0;
    e->n_ood = e->n_own_both;
    return kh_decisions_outside(&e->decisions, e->own_both, e->n_own_both, err);
}

static int fit_decisions(kh_eval *e, kh_err *err) {
    kh_answers dev = { e->dev.p, e->dev_label, e->dev.n, e->n_label };
    kh_decision_opts how = e->o->decide;
    how.foreign = kh_eval_foreign(e);
    how.both = e->both;
    int rc = kh_decisions_fit(&e->decisions, &dev, outside_of(e, &e->dev), &how, err);
    if (rc == 0)
        rc = kh_decisions_steps(&e->decisions, &dev, e->step, err);
    e->n_ood = dev.n;
    if (rc == 0 && e->decisions.opts.alpha > 0)
        rc = kh_conformal_plus(&e->decisions.conformal, &e->left_out, &dev, err);
    if (rc == 0)
        rc = select_by_crossfit(e, err); /* which replaces the sets, where there are such answers */
    e->chosen_on = e->n_cross == 0 && e->n_train == 0 && chosen_on_dev(e->post);
    if (rc == 0 && e->chosen_on)
        kh_decisions_chosen_on(&e->decisions);
    if (rc == 0)
        rc = fit_distance(e, err);
    if (rc == 0)
        rc = fit_both(e, err);
    snprintf(e->decisions.warning, sizeof e->decisions.warning, "%s", e->warning);
    return rc;
}

/* Fits on dev, tries on the rows. */
static int compute_decisions(kh_eval *e, kh_err *err) {
    e->coverage = e->risk = e->covered = e->set_size = e->empty = e->flagged = NAN;
    if (!e->decided)
        return 0;
    kh_answers a = kh_eval_answers(e);
    bool *in = kh_calloc((size_t)e->n_label, sizeof *in);
    int rc = in ? fit_decisions(e, err) : kh_fail_memory(err);
    int given = 0, wrong = 0, covered = 0, empty = 0, foreign = 0;
    long long size = 0;
    for (int i = 0; i < a.n && rc == 0; i++) {
        const double *p = a.p + (size_t)i * (size_t)e->n_label;
        kh_decision d = decide(e, &e->rows, i, in);
        given += !d.abstain;
        wrong += !d.abstain && kh_predicted(p, e->n_label) != a.label[i];
        foreign += d.foreign;
        size += d.set_size;
        empty += d.set_size == 0;
        covered += in[a.label[i]];
    }
    kh_free(in);
    if (rc != 0)
        return rc;
    e->flagged = (double)foreign / a.n;
    if (e->decisions.opts.max_risk > 0) {
        e->coverage = (double)given / a.n;
        e->risk = given ? (double)wrong / given : NAN;
    }
    if (e->o->decide.alpha > 0) {
        e->covered = (double)covered / a.n;
        e->set_size = (double)size / a.n;
        e->empty = (double)empty / a.n;
    }
    return 0;
}

int kh_eval_run(
    kh_eval *out, const kh_posterior *post, kh_plm *plm, const kh_eval_opts *o, kh_err *err) {
    *out = (kh_eval){ .post = post,
        .o = o,
        .data = o->data ? o->data : post->data,
        .n_label = post->task->n_label,
        .template_accuracy = NAN };
    if (o->test && !o->data)
        out->data = NULL; /* nothing is read from a folder that was not named */
    if (!out->data && !o->test)
        return kh_fail(
            err, KH_EARG, "the posterior does not say what data it was tuned on; give --data");
    if (!o->data && !o->test && !kh_file_exists(out->data) && !kh_dir_exists(out->data))
        return kh_fail(err, KH_EMISSING,
            "%s: there is no such file or folder: the rows of tuning are gone; --data says where "
            "they are now",
            out->data);
    int rc = open_all(out, err);
    if (rc == 0)
        rc = ask_all(out, plm, err);
    if (rc == 0)
        rc = compute_inside(out, err);
    if (rc == 0)
        rc = compute_decisions(out, err);
    for (int i = 0; i < out->n_outside && rc == 0; i++)
        rc = compute_outside(out, &out->outside[i], err);
    return rc;
}

void kh_eval_clear(kh_eval *e) {
    judged_free(&e->rows);
    judged_free(&e->dev);
    for (int i = 0; e->outside && i < e->o->ood.n; i++) {
        kh_task_close(e->outside[i].task);
        judged_free(&e->outside[i].rows);
    }
    kh_free(e->outside);
    kh_free(e->label);
    kh_free(e->dev_label);
    kh_free(e->point[0]);
    kh_free(e->point[1]);
    kh_free(e->confusion);
    kh_free(e->xy);
    kh_free(e->own_both);
    kh_left_out_free(&e->left_out);
    kh_decisions_free(&e->decisions);
}

/* ---------------------------------------------------------------------------------- row by row */

int kh_eval_examples(const kh_eval *e, int *out, int most) {
    int n = 0;
    for (int k = 0; k < e->n_label && n < most; k++) {
        int i = 0;
        while (i < e->rows.n &&
            kh_predicted(e->rows.p + (size_t)i * (size_t)e->n_label, e->n_label) != k)
            i++;
        if (i < e->rows.n)
            out[n++] = i;
    }
    return n;
}

static void put_rows(const kh_eval *e, const kh_judged *j, bool labelled, bool *in, kh_buf *b) {
    kh_explained said = { j->p, j->votes, j->ambiguity, j->energy, j->distance };
    for (int i = 0; i < j->n; i++) {
        kh_json_out line = kh_json_out_init(b, KH_JSON_COMPACT);
        kh_prediction a = kh_prediction_of(
            e->post->task, &j->row[i], &said, i, e->decided ? &e->decisions : NULL, in);
        kh_prediction_json(&a,
            &(kh_prediction_view){ .rows = j->name, .line = true, .truth = labelled, .text = true },
            &line, NULL);
        kh_buf_char(b, '\n');
    }
}

void kh_eval_rows_json(const kh_eval *e, kh_buf *out) {
    bool *in = kh_calloc((size_t)e->n_label, sizeof *in);
    out->failed |= !in;
    if (in)
        put_rows(e, &e->rows, true, in, out);
    for (int s = 0; in && s < e->n_outside; s++)
        put_rows(e, &e->outside[s].rows, false, in, out);
    kh_free(in);
}
