/* predictions.h - any tool's answers, one JSON object a line:
 *
 *     {"probs": [0.1, 0.9], "label": 1}     probabilities
 *     {"logits": [-1.2, 3.4], "label": 0}   scores whose softmax they are
 *     {"votes": [13, 87]}                   members of an ensemble that said so, or their weights
 *
 * Keyhole's own records (doc/prediction-schema.md) are read as well: "distribution" is an object of
 * probabilities by class, and "true" the name of the true class.
 *
 * "energy" is higher for what is out-of-distribution. Rows may have it whatever else
 * they have. "label" is the true class, from 0; without it (or with null or -1) it is not known.
 * Other keys are left alone. Lines may hold several of the three; the caller says which it prefers.
 */
#ifndef KH_JUDGE_PREDICTIONS_H
#define KH_JUDGE_PREDICTIONS_H

#include "base/buf.h"
#include "keyhole.h"

typedef enum kh_evidence { KH_PROBS, KH_LOGITS, KH_VOTES } kh_evidence;

typedef struct kh_predictions {
    kh_evidence kind; /* of all lines */
    int n, n_label;
    int n_known;    /* rows with a label */
    double *x;      /* [n, n_label] as they stand; probabilities are made to add up to one */
    int *label;     /* [n], -1: not known */
    double *energy; /* [n], NaN: not known */
    int n_energy;   /* rows with one */
    long *line;     /* [n] where the row stands, from 1 */
} kh_predictions;

/* order: the kinds that will do, best first; the first one that the first row has must be in all
 * rows. `name` is what messages call the bytes. Blank lines are skipped. Free it, failed ones too.
 */
int kh_predictions_parse(kh_predictions *out, const char *bytes, size_t n, const char *name,
    const kh_evidence *order, int n_order, kh_err *err);
void kh_predictions_free(kh_predictions *);

/* p [n, n_label]: as probabilities: softmax of logits, shares of votes. */
void kh_predictions_probs(const kh_predictions *, double *p);
/* x [n, n_label]: as log-scores for temperature and vector scaling; probabilities below 1e-12 count
 * as that. */
void kh_predictions_scores(const kh_predictions *, double *x);

const char *kh_evidence_name(kh_evidence);

/* Appends one such line: p [n_label] probabilities, and where the row stood; 0: not said. */
void kh_predictions_put(kh_buf *out, const double *p, int n_label, int label, long line);

#endif
