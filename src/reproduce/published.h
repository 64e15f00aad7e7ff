/* published.h - the paper's tables: all that it reports, built in (paper_tables.json), each number
 * with its source. A file can add others:
 *
 *     { "source": "who, where",
 *       "values": [ { "table": "1", "model": "roberta-large", "method": "bbt", "task": "sst2",
 *                     "value": 89.6, "sd": 0.3 },
 *                   { "table": "4", "method": "elbo", "task": "sst2", "ood": "rte",
 *                     "score": "entropy", "value": 0.2 } ] }
 *
 * table: 1 to 4; 1 counts in per cent. model: the backbone; "roberta-large" unless it is said.
 * method: a name of --methods, or "lower-bound", what an oracle would reach. task: its name, or
 * "average", of table 4 with ood "far" or "near". */
#ifndef KH_REPRODUCE_PUBLISHED_H
#define KH_REPRODUCE_PUBLISHED_H

#include "base/arena.h"
#include "keyhole.h"

typedef struct kh_published_value {
    const char *table, *model, *method, *task;
    const char *ood, *score;   /* of tables 3 (score) and 4, else NULL */
    double value, sd;          /* sd NaN: not given */
    const char *source, *note; /* note NULL: none */
} kh_published_value;

typedef struct kh_published {
    kh_published_value *value; /* later ones count */
    int n;
    size_t cap;
    kh_arena arena;
} kh_published;

#define KH_PAPER_MODEL "roberta-large" /* the backbone of the paper's text */
#define KH_PAPER_MODEL_2 "bert-large"  /* and that of its appendix */

/* What is built in. Free it, failed ones too. */
int kh_published_init(kh_published *out, kh_err *err);
/* Adds those of a file. */
int kh_published_read(kh_published *, const char *path, kh_err *err);
void kh_published_free(kh_published *);

/* NULL: not known. ood and score may be NULL. */
const kh_published_value *kh_published_find(const kh_published *, const char *model,
    const char *table, const char *method, const char *task, const char *ood, const char *score);

#endif
