/* prediction.h - one record of a prediction, for every command and every endpoint that gives one.
 *
 *     kh_prediction a = kh_prediction_of(task, row, &said, i, decisions, set);
 *     kh_prediction_json(&a, &(kh_prediction_view){ .line = true }, &writer, NULL);
 *
 * doc/prediction-schema.md is the schema. All keys are always there; what is not known is null. */
#ifndef KH_POSTERIOR_PREDICTION_H
#define KH_POSTERIOR_PREDICTION_H

#include "base/json_out.h"
#include "keyhole.h"

typedef struct kh_prediction {
    const kh_task *task; /* whose labels they are */
    const kh_row *row;
    const double *p, *votes; /* [n_label]; votes NULL: not known */
    int best;                /* the predicted label; -1: a service refused, nothing is known */
    double confidence, entropy;
    double ambiguity, disagreement, energy, distance; /* NaN: not known */
    bool knows_abstain, knows_set, knows_ood;         /* the decisions say so; false: null */
    kh_decision d;
    const bool *in; /* [n_label] the conformal set, if knows_set */
} kh_prediction;    /* borrows everything */

/* Row i of what a predictor said. decisions NULL: there are none. in [n_label] is filled in and
 * must live as long as the record. */
kh_prediction kh_prediction_of(const kh_task *, const kh_row *, const kh_explained *said, int i,
    const kh_decisions *decisions, bool *in);

/* What stands around the answer itself. */
typedef struct kh_prediction_view {
    const char *rows; /* the set of rows it is from, such as "test"; NULL: no such key */
    bool line, truth, text;
} kh_prediction_view;

/* Writes the record as an object under the key (NULL in an array or a document). */
void kh_prediction_json(
    const kh_prediction *, const kh_prediction_view *, kh_json_out *, const char *key);
/* The members alone, into an object that is open: for records that are a part of another. */
void kh_prediction_members(const kh_prediction *, const kh_prediction_view *, kh_json_out *);
/* The same in a table: one line a record, tabs between, empty where JSON has null, classes of a set
 * joined by "|". */
void kh_prediction_tsv_head(const kh_task *, const kh_prediction_view *, kh_buf *out);
void kh_prediction_tsv(const kh_prediction *, const kh_prediction_view *, kh_buf *out);

#endif
