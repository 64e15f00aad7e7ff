/* descent.h - tuning with the box open: weights at hand, gradients, AdamW, and the best of what dev
 * has seen.
 *
 * A kh_descent learns some vector x by steps down the gradient of the train loss: a soft prompt,
 * prefixes, the weights themselves, a head. What the loss is and how its gradient comes about is
 * told by a function; for all that goes through the model itself it is that of a kh_gradient_pass,
 * on a kh_trainable: the model's weights as one vector. After every few epochs the dev rows are
 * asked; the best x there is kept (of equal metrics the one with less cross-entropy), and the
 * descent ends when none has been better for a while. */
#ifndef KH_TUNE_DESCENT_H
#define KH_TUNE_DESCENT_H

#include "train/adamw.h"
#include "train/gradient.h"
#include "tune/method.h"

typedef struct kh_trainable {
    const char *dir; /* the folder of the model, as long as the box is open */
    kh_params params;
    float *w;       /* [params.size] */
    int32_t *token; /* [n_token] the label words, one token each, */
    int *label;     /* [n_token] and whose they are */
    int n_token;
    kh_batch *train, *dev; /* the rows, encoded with or without slots */
    kh_inject inject;
} kh_trainable; /* start as {0} */

/* Reads the weights from the folder that the box was opened from, and checks that they are still
 * those that answer: an engine keeps only its own, packed and perhaps rounded copy. The rows are
 * encoded with slots if gradients are taken with respect to a soft prompt (wrt is one of KH_WRT_).
 * Free it, also after failure. */
int kh_trainable_init(kh_trainable *, const kh_tuning *, unsigned wrt, kh_err *err);
void kh_trainable_free(kh_trainable *);

typedef struct kh_descent_opts {
    int epochs, batch, dev_every, patience, shards;
    double lr, weight_decay, warmup, clip;
    double dropout; /* in the model that gradients pass through */
    bool recompute;
} kh_descent_opts;

/* Rows of a kh_descent_opts called m in a struct S, for a method's table. */
#define KH_DESCENT_ROWS(S, m, lr_default, epochs_default, decay_default) \
    { "epochs", KH_OPT_INT, offsetof(S, m.epochs), epochs_default, .min = 1, .max = 1 << 20, \
        .arg = "N", .help = "passes over the train rows, at most" }, \
        { "lr", KH_OPT_NUMBER, offsetof(S, m.lr), lr_default, .min = 1e-12, .max = 10, .arg = "X", \
            .help = "highest learning rate" }, \
        { "batch", KH_OPT_INT, offsetof(S, m.batch), "16", .min = 1, .max = 1 << 16, .arg = "N", \
            .help = "rows of a step" }, \
        { "warmup", KH_OPT_NUMBER, offsetof(S, m.warmup), "0.06", .min = 0, .max = 1e9, \
            .arg = "N", \
            .help = "steps to reach it; below 1, a share of all; then the rate falls to 0" }, \
        { "weight-decay", KH_OPT_NUMBER, offsetof(S, m.weight_decay), decay_default, .min = 0, \
            .max = 1, .arg = "X", .help = "AdamW's" }, \
        { "clip", KH_OPT_NUMBER, offsetof(S, m.clip), "1", .min = 0, .max = 1e9, .arg = "X", \
            .help = "largest norm of the gradient; 0: any" }, \
        { "dev-epochs", KH_OPT_INT, offsetof(S, m.dev_every), "1", .min = 1, .max = 1 << 20, \
            .arg = "N", .help = "epochs between two looks at the dev rows" }, \
        { "patience", KH_OPT_INT, offsetof(S, m.patience), "10", .min = 1, .max = 1 << 20, \
            .arg = "N", .help = "stop after so many looks without anything better" }, \
    { \
        "shards", KH_OPT_INT, offsetof(S, m.shards), "2", \
            .min = 1, .max = 1024, .arg = "N", \
            .help = "parts of a batch that threads share; another number gives other bits" \
    }

/* More of them, where gradients pass through the model. */
#define KH_GRADIENT_PASS_ROWS(S, m, dropout_default) \
    { "dropout", KH_OPT_NUMBER, offsetof(S, m.dropout), dropout_default, .min = 0, .max = 0.9, \
        .arg = "X", \
        .help = "share of the model's hidden numbers and attention that a step sets to 0" }, \
    { \
        "recompute", KH_OPT_FLAG, offsetof(S, m.recompute), \
            .help = "compute layers twice instead of keeping what they made: less memory, the " \
                    "same bits" \
    }

/* Some rows of the train or the dev part. */
typedef struct kh_row_subset {
    bool dev;
    const int *which; /* [n] */
    int n;
    long step; /* of the descent: names what dropout drops */
} kh_row_subset;

typedef struct kh_descent {
    kh_tuning *t;
    const kh_descent_opts *o;
    const char *phase; /* for progress */
    float *x;          /* [n] what is learned */
    size_t n;
    const kh_param_group *segment;
    int n_segment;
    int n_train, n_dev;   /* rows */
    const int *dev_label; /* [n_dev] */
    /* The mean loss of some rows by x as it is now; their log-probabilities [n, n_label] unless
     * NULL; the gradient if wanted, which *slope then shows. */
    int (*run)(void *self, const kh_row_subset *, bool gradients, float *logprob, double *loss,
        float **slope, kh_err *err);
    void *self;

    float *best;              /* [n] */
    double best_dev, best_ce; /* NaN: none yet */
} kh_descent;

/* Passes of rows through the model. */
typedef struct kh_gradient_pass {
    kh_tuning *t;
    const kh_descent_opts *o;
    kh_trainable *box;
    kh_gradient *gradient; /* with respect to x, made by the method */
    /* The pass for x as it is now: prompt, prefix, or nothing if x is the box's weights. NULL:
     * nothing. */
    int (*pass)(void *self, kh_pass_f32 *out, kh_err *err);
    float *(*slope)(kh_gradient *); /* the gradient of x */
    void *self;
} kh_gradient_pass;

/* Has a descent, whose x and options are set, go through the model. */
void kh_descent_through(kh_descent *, kh_gradient_pass *);
/* Learns what stands in `slots` places before the text, x [n]: a soft prompt (KH_WRT_PROMPT) or
 * prefixes (KH_WRT_PREFIX). The passage's gradient and slope are set here, and gone afterwards. */
int kh_gradient_pass_learn(kh_gradient_pass *, unsigned wrt, int slots, const char *phase, float *x,
    size_t n, kh_err *err);
/* For kh_method.least of these: a look at every dev row. */
long long kh_descent_least(const kh_tuning *, const void *opts);

/* Leaves the best x in x, and fills t->stopped. Starts with a look at dev, so that x never becomes
 * worse there. */
int kh_descent_run(kh_descent *, kh_err *err);

#endif
