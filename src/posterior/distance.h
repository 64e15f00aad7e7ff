/* distance.h - how far a text is from the texts of tuning, by the features of a local encoder.
 *
 *     kh_encoder *e;
 *     kh_encoder_open(&e, "builtin", err);
 *     kh_encoder_features(e, rows, n, true, features, err);     [n, size], kh_encoder_size(e) + 1
 *     double d = kh_nearest_distance(reference, m, features, size, true, KH_NEIGHBOURS, -1);
 *
 * The box is not asked: it may be far away, and show labels only. Rows never leave the machine for
 * it. */
#ifndef KH_POSTERIOR_DISTANCE_H
#define KH_POSTERIOR_DISTANCE_H

#include "keyhole.h"

enum { KH_NEIGHBOURS = 3 };

typedef struct kh_encoder kh_encoder;

/* A model folder, or "builtin". */
int kh_encoder_open(kh_encoder **out, const char *model, kh_err *err);
void kh_encoder_close(kh_encoder *);
int kh_encoder_size(const kh_encoder *);             /* numbers of a text, without its cuts */
uint64_t kh_encoder_fingerprint(const kh_encoder *); /* of its weights and tokenizer */

/* The mean of the hidden states of each text, as a vector of length one: out [n, size]. A pair is
 * one text after the other. With cuts, how finely its words are cut (text/cuts.h) stands behind:
 * out [n, size + 1]. */
int kh_encoder_features(
    kh_encoder *, const kh_row *rows, int n, bool cuts, float *out, kh_err *err);

/* The mean distance to the k nearest of the references [n, size]: 1 - cosine, and with cuts, which
 * are the last number, half the square of their difference; doc/judging.md, [31]. leave: the
 * reference that does not count, or -1. */
double kh_nearest_distance(
    const float *reference, int n, const float *x, int size, bool cuts, int k, int leave);

#endif
