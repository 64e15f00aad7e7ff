/* published.h - what the paper reports, as far as it is known here, with its source. A file can add
 * the rest:
 *
 *     { "source": "Shen et al. 2023, Table 1",
 *       "values": [ { "table": "1", "method": "bbt", "task": "sst2", "value": 89.6, "sd": 0.3 },
 *                   { "table": "4", "method": "elbo", "task": "sst2", "ood": "rte", "score":
 * "entropy", "value": 0.2 } ] }
 *
 * table: 1 to 4; 1 counts in per cent. method: a name of --methods, or "logits" and "labels" for
 * what is said of all methods that see logits, or labels only. task: its name, or "average". */
#ifndef KH_REPRODUCE_PUBLISHED_H
#define KH_REPRODUCE_PUBLISHED_H

#include "base/arena.h"
#include "keyhole.h"

typedef struct kh_published_value {
    const char *table, *method, *task;
    const char *ood, *score;   /* of table 4, else NULL */
    double value, sd;          /* sd NaN: not given */
    const char *source, *note; /* note NULL: none */
} kh_published_value;

typedef struct kh_published {
    kh_published_value *value; /* later ones count */
    int n;
    size_t cap;
    kh_arena arena;
} kh_published;

/* What is built in. Free it, failed ones too. */
int kh_published_init(kh_published *out, kh_err *err);
/* Adds those of a file. */
int kh_published_read(kh_published *, const char *path, kh_err *err);
void kh_published_free(kh_published *);

/* NULL: not known. ood and score may be NULL. */
const kh_published_value *kh_published_find(const kh_published *, const char *table,
    const char *method, const char *task, const char *ood, const char *score);

#endif
