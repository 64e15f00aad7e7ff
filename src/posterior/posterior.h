/* posterior.h - the inside of a posterior, for the methods that make one and the code that uses
 * one.
 *
 * A method fills a posterior that kh_posterior_new has made: samples by kh_posterior_add, and what
 * it knows of itself. All strings and arrays live in its arena. */
#ifndef KH_POSTERIOR_POSTERIOR_H
#define KH_POSTERIOR_POSTERIOR_H

#include "base/arena.h"
#include "judge/label_prior.h"
#include "model/adapter.h"
#include "prompt/demos.h"
#include "prompt/subspace.h"
#include "prompt/text_prompt.h"

struct kh_posterior {
    const char *version;          /* of keyhole, that made it */
    const char *method, *options; /* its name, and what it was told: a JSON object */
    kh_access access;
    uint64_t seed;
    bool paper_exact; /* label words as the published code takes them */

    /* Samples. With a soft prompt each has z; with demonstrations each is an order of them; with
     * text prompts each is one; otherwise there is one. */
    int n;
    float *z;      /* [n, space.dim] */
    float *weight; /* [n], they add up to one */
    size_t cap_z, cap_weight, cap_seed;
    bool soft;
    kh_space space;        /* if soft */
    uint64_t *projection;  /* [n] the seed of each sample's A; NULL without soft prompt */
    kh_demos demos;        /* n_order is n, or 0: none */
    kh_text_prompts texts; /* n of them, or 0: none */
    size_t cap_text;
    kh_adapter adapter; /* what stands on the model; then access is weights, and there is one sample
                           without z */

    /* The plain template answers beside the samples: a product of powers where log-probabilities
     * are seen, a share of the votes where labels are (T22). 0: it does not. */
    double template_share;
    double *template_prior; /* [n_label] what it likes to say whatever the text is; NULL: none */

    bool calibrated; /* answers become probabilities that mean what they say by this: */
    kh_calibrator
        calibrator; /* VOTES where samples vote, else AFFINE, of the mixture's logarithms */
    double score;   /* cross-validated NLL of calibrated answers; NaN: not known, */
    int score_rows; /* and over how many rows that were not learned from */

    /* Calibrated answers to rows of tuning by fits that had not seen them, where the method has
     * them for all rows: what decisions are taken by (doc/judging.md, [33]). Saved beside the
     * posterior, and not read back with it. n 0: none. */
    struct kh_fresh {
        double *p;  /* [n, n_label] */
        int *label; /* [n] */
        long *line; /* [n] where the row stands in its file; 0: not known */
        int n;
    } fresh;
    bool opened; /* from a folder: it does not know whether there are such answers */

    /* What each sample likes to say whatever the text is, taken from its answers. */
    kh_label_prior label_prior;
    double *log_prior; /* [n, n_label], or NULL: none */
    int prior_rows;    /* that it was learned from */

    /* Shares of the classes among the rows of tuning (NULL: even), and among the texts to come
     * (NULL: the same); [n_label] each. */
    double *class_share, *class_prior;

    /* Features of the train rows: vectors of length one by a local encoder, and behind each how
     * finely the words are cut (distance.h). */
    float *features; /* [n_features, features_size], or NULL: none */
    int n_features, features_size;
    bool features_cuts;            /* false: features of before cuts were counted */
    const char *features_model;    /* the encoder, */
    uint64_t features_fingerprint; /* and which weights it had */

    /* What it belongs to. */
    const kh_task *task; /* owned */
    const char *model, *backend, *precision, *kernels;
    uint64_t fingerprint, tokenizer;

    /* What it cost and how it ended. */
    const char *data; /* the folder, or NULL */
    int shots, train_rows, dev_rows;
    long long train_queries, dev_queries;
    long long forward, backward; /* rows that passed the weights beside the box, and back */
    double dev;
    const char *stopped;
    const char *tried; /* of a run that compared methods: each with its score, as JSON; or NULL */

    kh_arena arena;
};

/* An empty posterior that belongs to the box and the task (copied). */
int kh_posterior_new(
    kh_posterior **out, const char *method, kh_plm *, const kh_task *, kh_err *err);
/* Takes a copy of the space, before samples of it are added. */
int kh_posterior_set_space(kh_posterior *, const kh_space *, kh_err *err);
/* Adds a sample: z [dim] (NULL without soft prompt) and the seed of its A. All weights become 1 /
 * n. */
int kh_posterior_add(kh_posterior *, const float *z, uint64_t projection, kh_err *err);
/* Adds a sample that is a text prompt (copied); its rows are those of p->texts.row. All weights
 * become 1 / n. */
int kh_posterior_add_text(kh_posterior *, const kh_text_prompt *, kh_err *err);
/* Takes a copy of an adapter, as the one sample. */
int kh_posterior_set_adapter(kh_posterior *, const kh_adapter *, kh_err *err);
/* A copy of a string in the posterior's memory, or NULL when out of memory. */
const char *kh_posterior_keep(kh_posterior *, const char *s);

/* Cross-fitted answers, as lines of predictions.h in a folder. */
#define KH_CROSSFIT_NAME "crossfit.jsonl"
/* Takes fresh answers; p [n, n_label] and label [n] are copied, line [n] too. Replaces what was
 * there. */
int kh_posterior_set_fresh(
    kh_posterior *, const double *p, const int *label, const long *line, int n, kh_err *err);

/* The text prompt that a sample of a text method is, as a person would paste it: fresh text
 * (kh_text_free). */
int kh_posterior_text(const kh_posterior *, int sample, char **text, kh_err *err);
/* All of them with their weights, as a file to read (report/export.c). */
int kh_posterior_export_text(const kh_posterior *, const char *path, kh_err *err);
/* The samples, heaviest first: order [n]. */
void kh_posterior_by_weight(const kh_posterior *, int *order);

/* A folder holds a posterior. */
bool kh_posterior_exists(const char *dir);
/* Changes whenever anything in the folder's posterior does: a hash of posterior.json, which holds
 * one of the samples. */
int kh_posterior_stamp(const char *dir, uint64_t *out, kh_err *err);

/* posterior.json itself (posterior_json.c). The samples are in the other file: `samples` is their
 * hash, which ties the two. */
void kh_posterior_json(const kh_posterior *, uint64_t samples, kh_buf *out);
int kh_posterior_parse(
    kh_posterior *, const char *text, size_t n, const char *name, uint64_t *samples, kh_err *err);

#endif
