/* reproduction.h - the paper's tables, from the runs of an plan: reproduction.md and
 * reproduction.html.
 *
 *     kh_reproduction r;
 *     kh_reproduction_open(&r, &plan, &published, "out/runs", err);     reads what is done
 *     kh_reproduction_put(&r, KH_GRID_MARKDOWN, &text, err);
 *     kh_reproduction_free(&r);
 *
 * A run is done when its folder has a manifest with its terms; the manifest is written last. */
#ifndef KH_REPRODUCE_REPRODUCTION_H
#define KH_REPRODUCE_REPRODUCTION_H

#include "reproduce/plan.h"
#include "report/grid.h"
#include "reproduce/published.h"
#include "report/results.h"

#define KH_MANIFEST_NAME "receipt.json" /* the name that 0.1 gave it */
#define KH_ANSWERS_NAME \
    "answers.jsonl" /* probabilities and labels of the rows judged, as "keyhole metrics" reads \
                       them */

typedef struct kh_manifest {
    char *terms; /* all that decides the result, in words */
    long long queries, tokens, eval_queries;
    double seconds, eval_seconds;
} kh_manifest;

/* KH_EMISSING: there is none. Free it, failed ones too. */
int kh_manifest_read(kh_manifest *out, const char *dir, kh_err *err);
int kh_manifest_write(const kh_manifest *, const char *dir, kh_err *err);
void kh_manifest_free(kh_manifest *);

/* The terms of a run: its own, after `common`, those of all runs. */
void kh_planned_terms(const kh_planned *, kh_preset, const char *common, kh_buf *out);
/* How far the run in runs/NAME has come under these terms. Its manifest goes to *found: free it,
 * whatever the state. */
typedef enum kh_state {
    KH_STATE_OPEN,  /* not tuned, or under other terms */
    KH_STATE_TUNED, /* but not judged as it is to be */
    KH_STATE_DONE,
} kh_state;
kh_state kh_planned_state(
    const kh_planned *, kh_preset, const char *common, const char *runs, kh_manifest *found);

typedef struct kh_outcome {
    bool done;
    kh_result result;
    kh_manifest manifest;
    const char *why; /* of a run that failed, borrowed; NULL: it has not been tried */
} kh_outcome;

/* What the grid in OUT was made with, for pages that show it beside others: OUT/grid.json. */
#define KH_BACKBONE_NAME "grid.json"
typedef struct kh_backbone {
    char *model, *common; /* common: as for kh_planned_state */
} kh_backbone;

/* Free it, failed ones too. */
int kh_backbone_read(kh_backbone *out, const char *dir, kh_err *err);
int kh_backbone_write(const char *dir, const char *model, const char *common, kh_err *err);
void kh_backbone_free(kh_backbone *);

typedef struct kh_reproduction {
    const kh_repro_plan *a;
    const kh_published *published;
    const char *runs, *model;
    int n_resample;                              /* of the paired bootstrap */
    kh_outcome *outcome;                         /* [a->n] */
    const struct kh_reproduction *const *beside; /* [n_beside] other models, same plan; borrowed */
    int n_beside;
} kh_reproduction;

/* common: as for kh_planned_state. Free it, failed ones too. */
int kh_reproduction_open(kh_reproduction *out, const kh_repro_plan *, const kh_published *,
    const char *runs, const char *model, const char *common, kh_err *err);
void kh_reproduction_free(kh_reproduction *);

/* Mean and standard deviation over seeds of a metric of results.json, "score" for the task's own;
 * returns how many seeds. */
int kh_reproduction_mean(const kh_reproduction *, const kh_variant *, const kh_experiment *,
    const char *metric, double *mean, double *sd);

/* format: Markdown or HTML. */
int kh_reproduction_put(const kh_reproduction *, kh_grid_format, kh_buf *out, kh_err *err);

#endif
