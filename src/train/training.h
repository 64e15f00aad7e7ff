/* training.h - where pre-training stands, for the two files that know: pretrain.c runs it,
 * training.c saves and loads it. */
#ifndef KH_TRAIN_TRAINING_H
#define KH_TRAIN_TRAINING_H

#include "base/buf.h"
#include "train/gradient.h"
#include "train/labelled.h"
#include "train/pretrain.h"

typedef struct kh_training {
    const kh_pretrain_opts *o;
    kh_params params;
    float *w;
    kh_adamw adamw;
    kh_corpus corpus;
    kh_window_sampler sampler;
    uint64_t *drawn; /* [n_file] what the sampler of the phase starts with, after a resume */
    kh_labelled labelled;
    float *weight; /* of the targets of a batch, if there are labelled rows */
    size_t weight_cap;
    kh_masker masker;
    kh_masked batch;
    kh_masked *held_out; /* [n_held_out] batches */
    int n_held_out;
    size_t held_out_cap;
    kh_gradient *gradient;
    long step;
    int phase;
    long long tokens;
    double seconds;
    double loss_sum, loss_weight; /* the smoothed loss is their ratio */
    double held_out_loss;
    kh_buf log;      /* log.tsv */
    kh_buf recipe;   /* what must not change between stop and resume */
    kh_buf schedule; /* what may */
} kh_training;

/* Writes the model, then the state, then removes older states. */
int kh_training_save(kh_training *, kh_err *err);
/* Reads it back; *found is false, and nothing is changed, if there is none. */
int kh_training_load(kh_training *, bool *found, kh_err *err);
/* model.safetensors and config.json alone. */
int kh_training_save_model(kh_training *, kh_err *err);
int kh_training_save_log(kh_training *, kh_err *err);

#endif
