/* classifier.c - a run folder as one thing that answers: posterior, box, predictor and decisions.
 *
 * What is opened here closes together. A folder cannot make the program contact an address: a run
 * whose model is a service needs a box that the caller has opened. */
#include "posterior/posterior.h"

#include "base/alloc.h"
#include "base/err.h"
#include "judge/decisions.h"
#include "plm/http.h"

#include <math.h>
#include <string.h>

struct kh_classifier {
    kh_posterior *posterior;
    kh_plm *own; /* opened here; NULL: the caller's */
    kh_plm *plm;
    kh_predictor *predictor;
    kh_decisions decisions;
    bool decides;
};

/* What the run was tuned with; a name of a later version falls back to f32, and the fingerprint
 * decides whether the model is the same. */
static kh_precision precision_named(const char *name) {
    static const char *const NAMES[] = { "f32", "bf16", "int8" };
    for (int i = 0; name && i < 3; i++)
        if (strcmp(name, NAMES[i]) == 0)
            return (kh_precision)i;
    return KH_F32;
}

/* The model that the run was tuned on, where and as it was then. */
static int open_model(kh_classifier *c, const char *run, kh_err *err) {
    kh_posterior_info i = kh_posterior_describe(c->posterior);
    if (!i.model || kh_is_url(i.model))
        return kh_fail(
            err, KH_EARG, "%s: was not tuned on a model folder; open the box and pass it", run);
    kh_plm_opts o = { .access = i.access, .precision = precision_named(i.precision) };
    int rc = kh_plm_open(&c->own, i.model, &o, err);
    if (rc == KH_EMISSING)
        rc = kh_err_prefix(err, "the model that %s was tuned on is not there; pass a box", run);
    c->plm = c->own;
    return rc;
}

/* Without decisions.json it classifies and never abstains. */
static int open_decisions(kh_classifier *c, const char *run, kh_err *err) {
    kh_err why = { 0 };
    int rc = kh_decisions_open(&c->decisions, run, &why);
    c->decides = rc == 0;
    if (rc == KH_EMISSING)
        return 0;
    if (rc == 0 && c->decisions.n_label != c->posterior->task->n_label)
        rc = kh_fail(&why, KH_EMISMATCH,
            "%s: its decisions are about %d classes, its task has %d; evaluate it again", run,
            c->decisions.n_label, c->posterior->task->n_label);
    if (rc == 0)
        rc = kh_decisions_check(&c->decisions, c->predictor, run, &why);
    return rc == 0 ? 0 : kh_fail(err, rc, "%s", why.msg);
}

int kh_classifier_open(kh_classifier **out, const char *run, kh_plm *box, kh_err *err) {
    *out = NULL;
    kh_classifier *c = kh_calloc(1, sizeof *c);
    if (!c)
        return kh_fail_memory(err);
    c->plm = box;
    int rc = kh_posterior_open(&c->posterior, run, err);
    if (rc == 0 && !box)
        rc = open_model(c, run, err);
    if (rc == 0 && (rc = kh_predictor_new(&c->predictor, c->posterior, c->plm, NULL, err)) != 0)
        rc = kh_err_prefix(err, "%s", run);
    if (rc == 0)
        rc = open_decisions(c, run, err);
    if (rc != 0) {
        kh_classifier_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void kh_classifier_close(kh_classifier *c) {
    if (!c)
        return;
    kh_decisions_free(&c->decisions);
    kh_predictor_free(c->predictor);
    kh_plm_close(c->own);
    kh_posterior_free(c->posterior);
    kh_free(c);
}

const kh_posterior *kh_classifier_posterior(const kh_classifier *c) { return c->posterior; }
kh_plm *kh_classifier_box(kh_classifier *c) { return c->plm; }
bool kh_classifier_decides(const kh_classifier *c) { return c->decides; }

/* One row, of which p and energy are known. Without decisions.json the set is the label alone, and
 * nothing is ever abstained from. */
static kh_classified classified_as(
    const kh_classifier *c, const kh_row *row, const double *p, double outside, bool *set) {
    int n_label = c->posterior->task->n_label, best = kh_predicted(p, n_label);
    if (isnan(p[0])) { /* a service refused: any class may be the true one */
        for (int k = 0; set && k < n_label; k++)
            set[k] = true;
        return (kh_classified){ .label = -1, .confidence = NAN, .set_size = -1, .abstain = true };
    }
    kh_classified o = { .label = best, .confidence = p[best], .set_size = -1 };
    if (!c->decides) {
        for (int k = 0; set && k < n_label; k++)
            set[k] = k == best;
        return o;
    }
    kh_decision d = kh_decide(&c->decisions, row, p, outside, set);
    o.abstain = d.abstain;
    o.out_of_distribution = d.foreign;
    o.set_size = d.set_size;
    return o;
}

/* Only what the decisions tell out-of-distribution rows by is measured. */
int kh_classifier_run(kh_classifier *c, const kh_row *rows, int n, kh_classified *out, double *p,
    bool *set, kh_err *err) {
    size_t n_label = (size_t)c->posterior->task->n_label, size = (size_t)n * n_label;
    double *own = p ? NULL : kh_malloc((size + 1) * sizeof *own), *outside = NULL;
    kh_score by = c->decides ? c->decisions.opts.foreign : KH_SCORE_MAXP;
    if (!p && !own)
        return kh_fail_memory(err);
    kh_explained said = { .p = p ? p : own };
    int rc = 0;
    if (by > KH_SCORE_ENTROPY) {
        outside = kh_malloc((2 * (size_t)n + 1) * sizeof *outside);
        rc = outside ? 0 : kh_fail_memory(err);
        said.energy = by != KH_SCORE_DISTANCE ? outside : NULL;
        said.distance = outside && by != KH_SCORE_ENERGY ? outside + n : NULL;
    }
    if (rc == 0)
        rc = kh_predictor_explain(c->predictor, rows, n, &said, err);
    for (size_t i = 0; rc == 0 && i < (size_t)n; i++)
        out[i] = classified_as(c, &rows[i], said.p + i * n_label,
            kh_outside(&c->decisions, said.energy ? said.energy[i] : NAN,
                said.distance ? said.distance[i] : NAN),
            set ? set + i * n_label : NULL);
    kh_free(own);
    kh_free(outside);
    return rc;
}
