/* pretrain.h - masked-language-model training, from nothing or from a model that is there.
 *
 * The folder `out` is a model that everything else opens (config.json, model.safetensors, the
 * tokenizer's files), with log.tsv                     one row for each look at held-out text:
 * step, tokens, seconds, losses, rate, probes training.json               where training stands,
 * and the recipe training-STEP.safetensors   weights and moments of the optimiser, all in F32 A run
 * that was stopped or killed goes on from the last checkpoint to the very weights that it would
 * have reached. */
#ifndef KH_TRAIN_PRETRAIN_H
#define KH_TRAIN_PRETRAIN_H

#include "train/adamw.h"
#include "train/labelled.h"

enum { KH_PHASES = 16 };

/* A part of training with sequences of one length. */
typedef struct kh_phase {
    int length;   /* tokens of a sequence, BOS and EOS among them */
    double share; /* of all steps */
} kh_phase;

typedef struct kh_pretrain_opts {
    kh_corpus_opts corpus;
    kh_labelled_opts rows; /* none: text only */
    double rows_share;     /* of a step's tokens and of its loss that are rows */
    const char *tokenizer; /* file or folder */
    kh_config config;      /* of a fresh model */
    const char *init;      /* start from this model; NULL: fresh weights */
    const char *out;
    kh_dtype dtype; /* of model.safetensors */
    long steps;
    int batch_tokens; /* a step has at least so many */
    kh_phase phase[KH_PHASES];
    int n_phase;
    bool joined; /* sequences run on over the ends of lines */
    kh_adamw_opts adamw;
    double mask_rate;
    bool whole_word;
    double dropout;
    bool bf16;      /* large products round their numbers to bf16 */
    bool recompute; /* layers on the way back, to save memory */
    uint64_t seed;
    int shards;
    bool resume;
    double checkpoint_every; /* seconds */
    long eval_every;         /* steps */
    int eval_tokens;         /* of held-out text */
    double budget;           /* stop after so many seconds of training; 0: no limit */
    const kh_hooks
        *hooks; /* progress that returns non-zero ends the run after the step, with a checkpoint */

    /* What is measured beside the held-out loss, on the model as it stands in `dir`. */
    const char *const *probe_name; /* [n_probe] */
    int n_probe;
    int (*probe)(void *user, const char *dir, int i, double *value, kh_err *err);
    void *user;
} kh_pretrain_opts;

typedef struct kh_pretrained {
    long step;
    long long tokens; /* trained on, in all */
    double seconds;
    double loss, held_out; /* smoothed, and of the last look; NaN: none */
    const char *stopped;   /* why: "steps", "budget", "request" */
} kh_pretrained;

int kh_pretrain(kh_pretrained *out, const kh_pretrain_opts *, kh_err *err);

#endif
