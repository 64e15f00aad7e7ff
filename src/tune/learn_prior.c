/* learn_prior.c - the last step of a run, if it is wanted: what each sample likes to say whatever
 * the text is.
 *
 * Each sample gets a prior of its own: prompts lean to different sides, and a mean of answers that
 * lean cannot be put upright by one correction of the mean. It is learned once, when the samples
 * are known; the search itself minimises what the model says. No label is looked at, but few-shot
 * rows are as many of each class, which is what "batch" takes for granted. */
#include "tune/tuning.h"

#include "base/alloc.h"
#include "base/err.h"
#include "plm/together.h"
#include "posterior/predict.h"

#include <string.h>

enum { TRAIN_ROWS = 256 }; /* at most; more would cost much and tell little */

/* Texts that say nothing (Zhao et al. 2021). */
static const char *const EMPTY[] = { "N/A", "[MASK]", "" };
enum { N_EMPTY = sizeof EMPTY / sizeof *EMPTY };

static bool in_batch(const kh_tuning *t) { return t->o->label_prior == KH_LABEL_PRIOR_BATCH; }

/* Rows to ask about, apart from dev. */
static int n_asked(const kh_tuning *t) {
    if (!in_batch(t))
        return N_EMPTY;
    return t->n_train < TRAIN_ROWS ? t->n_train : TRAIN_ROWS;
}

long long kh_tuning_prior_cost(const kh_tuning *t, int samples) {
    return t->o->label_prior ? (long long)samples * (n_asked(t) + t->n_dev) : 0;
}

/* The i-th of them: train rows at equal distances, or a text that says nothing. */
static kh_row row_at(const kh_tuning *t, int i) {
    if (in_batch(t))
        return t->train_row[(long long)i * t->n_train / n_asked(t)];
    size_t n = strlen(EMPTY[i]);
    return (kh_row){ .a = EMPTY[i],
        .n_a = n,
        .b = t->task->pair ? EMPTY[i] : NULL,
        .n_b = t->task->pair ? n : 0,
        .label = -1 };
}

/* Answers of all samples to rows: those asked about first, then dev. */
typedef struct answers {
    kh_row *row; /* [n_asked] */
    int n_asked, n_row;
    float *asked;  /* [samples, n_asked, n_label] */
    float *dev;    /* [samples, n_dev, n_label] */
    float *one;    /* [n_row, n_label] of one sample */
    double *p;     /* [n_row, n_label] what comes out: dev, then those asked about */
    int *label;    /* [n_row] */
    double *share; /* [n_label] of the classes among all these rows; NULL: they count as even */
} answers;

/* Where the caller says how frequent classes are, "even" would be the wrong aim: the shares among
 * these very rows are known. */
static int count_classes(answers *a, const kh_tuning *t, kh_err *err) {
    a->share = kh_calloc((size_t)t->task->n_label, sizeof *a->share);
    if (!a->share)
        return kh_fail_memory(err);
    for (int i = 0; i < a->n_asked; i++)
        a->share[a->row[i].label] += 1.0 / a->n_row;
    for (int i = 0; i < t->n_dev; i++)
        a->share[t->dev_row[i].label] += 1.0 / a->n_row;
    return 0;
}

static int answers_new(answers *a, const kh_tuning *t, int samples, kh_err *err) {
    size_t n_label = (size_t)t->task->n_label, n = (size_t)samples * n_label;
    a->n_asked = n_asked(t);
    a->n_row = a->n_asked + t->n_dev;
    a->row = kh_calloc((size_t)a->n_asked, sizeof *a->row);
    a->asked = kh_calloc(n * (size_t)a->n_asked, sizeof *a->asked);
    a->dev = kh_calloc(n * (size_t)t->n_dev, sizeof *a->dev);
    a->one = kh_calloc(n_label * (size_t)a->n_row, sizeof *a->one);
    a->p = kh_calloc(n_label * (size_t)a->n_row, sizeof *a->p);
    a->label = kh_calloc((size_t)a->n_row, sizeof *a->label);
    if (!a->row || !a->asked || !a->dev || !a->one || !a->p || !a->label)
        return kh_fail_memory(err);
    for (int i = 0; i < a->n_asked; i++)
        a->row[i] = row_at(t, i);
    for (int i = 0; i < a->n_row; i++)
        a->label[i] = i < t->n_dev ? t->dev_row[i].label : a->row[i - t->n_dev].label;
    return in_batch(t) && (t->o->class_prior || t->o->prior_inside) ? count_classes(a, t, err) : 0;
}

static void answers_free(answers *a) {
    kh_free(a->row);
    kh_free(a->asked);
    kh_free(a->dev);
    kh_free(a->one);
    kh_free(a->p);
    kh_free(a->label);
    kh_free(a->share);
}

/* Through the predictor, sample by sample: what is corrected is what will be answered. */
static int ask(answers *a, kh_tuning *t, const kh_posterior *post, kh_err *err) {
    kh_predictor *p;
    int rc = kh_predictor_new(&p, post, t->plm, t->task, err);
    if (rc == 0)
        rc = kh_predictor_each(p, a->row, a->n_asked, a->asked, err);
    long long before = kh_tuning_queries(t);
    if (rc == 0)
        rc = kh_predictor_each(p, t->dev_row, t->n_dev, a->dev, err);
    t->dev_queries += kh_tuning_queries(t) - before;
    kh_predictor_free(p);
    return rc;
}

/* Moves the rows that were answered to the front; a service may have refused some. */
static int answered(float *x, int n, int n_label) {
    int kept = 0;
    for (int i = 0; i < n; i++) {
        const float *row = x + (size_t)i * (size_t)n_label;
        if (!kh_is_missing(row))
            memmove(x + (size_t)kept++ * (size_t)n_label, row, (size_t)n_label * sizeof *x);
    }
    return kept;
}

/* The prior of a sample, and what it then says. */
static int learn_one(
    answers *a, const kh_tuning *t, const kh_posterior *post, int sample, kh_err *err) {
    int n_label = t->task->n_label;
    size_t asked = (size_t)a->n_asked * (size_t)n_label, dev = (size_t)t->n_dev * (size_t)n_label;
    float *own = a->dev + (size_t)sample * dev, *rest = a->asked + (size_t)sample * asked;
    double *prior = post->log_prior + (size_t)sample * (size_t)n_label;
    memcpy(a->one, rest, asked * sizeof *a->one);
    memcpy(a->one + asked, own, dev * sizeof *a->one);
    int n = answered(a->one, post->prior_rows, n_label);
    int rc = kh_label_prior_fit(t->o->label_prior, a->one, n, n_label, a->share, prior, err);
    if (rc == 0) {
        kh_label_prior_correct(prior, own, t->n_dev, n_label);
        kh_mixture_add(a->p, own, &post->weight[sample], 1, t->n_dev, n_label);
        kh_label_prior_correct(prior, rest, a->n_asked, n_label);
        kh_mixture_add(a->p + dev, rest, &post->weight[sample], 1, a->n_asked, n_label);
    }
    return rc;
}

/* Rows that were only asked about to learn the prior are held as well if nothing was learned from
 * them: they cost the same and tell as much as dev rows. */
int kh_tuning_learn_prior(kh_tuning *t, kh_posterior *post, kh_err *err) {
    answers a = { 0 };
    size_t n = (size_t)post->n * (size_t)t->task->n_label;
    int rc = answers_new(&a, t, post->n, err);
    if (rc == 0)
        rc = ask(&a, t, post, err);
    if (rc == 0 && !(post->log_prior = kh_arena_array(&post->arena, n, sizeof *post->log_prior)))
        rc = kh_fail_memory(err);
    post->label_prior = t->o->label_prior;
    post->prior_rows = in_batch(t) ? a.n_row : a.n_asked;
    for (int s = 0; s < post->n && rc == 0; s++)
        rc = learn_one(&a, t, post, s, err);
    if (rc == 0) {
        kh_mixture_finish(a.p, a.n_row, t->task->n_label);
        bool all = t->unlearned && in_batch(t) && a.n_asked == t->n_train;
        rc = kh_tuning_hold(t, a.p, a.label, NULL, all ? a.n_row : t->n_dev, err);
    }
    if (rc == 0)
        post->dev = kh_tuning_held_metric(t);
    answers_free(&a);
    return rc;
}
