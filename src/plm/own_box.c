/* own_box.c - a box that the caller brings: a kh_box as a backend of kh_plm.
 *
 * The caller's functions come from outside the library, so what they return is checked here like
 * the answer of a service: labels must be labels (plm.c checks that logits are numbers), and a
 * failure without a sentence gets one. */
#include "plm/backend.h"

#include "base/alloc.h"
#include "base/err.h"
#include "model/question.h"

#include <math.h>
#include <string.h>

typedef struct own {
    kh_box box;
    char *name;
    void *self;
} own;

/* A callback that failed is believed, with its sentence if it has one. Codes of the library pass;
 * anything positive that is none of them would mean "more to come" to a caller, and becomes an
 * error. */
static int explain(const own *o, const char *what, int rc, const kh_err *why, kh_err *err) {
    if (rc == 0)
        return 0;
    int code = rc == KH_STOPPED || rc == KH_RETRY || rc < 0 ? rc : KH_EIO;
    return why->msg[0] ? kh_fail(err, code, "%s: %s", o->name, why->msg)
                       : kh_fail(err, code, "%s: %s failed and gave no reason", o->name, what);
}

static int score(void *self, const kh_question *q, float *logits, float *energy, kh_err *err) {
    own *o = self;
    kh_err why = { 0 };
    (void)energy;
    return explain(o, "score", o->box.score(o->self, q, logits, &why), &why, err);
}

static int answer(void *self, const kh_question *q, int *label, kh_err *err) {
    own *o = self;
    kh_err why = { 0 };
    int rc = explain(o, "answer", o->box.answer(o->self, q, label, &why), &why, err);
    for (size_t i = 0; rc == 0 && i < kh_question_pairs(q); i++)
        if (label[i] < 0 || label[i] >= q->words->n_label)
            rc = kh_fail(err, KH_EFORMAT,
                "%s: answered prompt %zu, row %zu with label %d, which is outside 0..%d", o->name,
                i / (size_t)q->batch->n_row, i % (size_t)q->batch->n_row, label[i],
                q->words->n_label - 1);
    return rc;
}

/* "own" stands where others have a precision and kernels: the library cannot know, and a run is
 * resumed with the same box. */
static void describe(const void *self, kh_plm_info *info) {
    const own *o = self;
    info->hidden = o->box.hidden;
    info->max_len = o->box.max_len;
    info->fingerprint = o->box.fingerprint;
    info->precision = info->kernels = "own";
    info->model = NULL;
    info->next = o->box.next;
    info->energy = o->box.energy;
}

/* A box without embeddings has a unit of its own: 0 and 1 leave the projection as it is. */
static int embedding_stats(void *self, double *mean, double *std, kh_err *err) {
    const own *o = self;
    (void)err;
    *mean = o->box.embedding_mean;
    *std = o->box.embedding_std > 0 ? o->box.embedding_std : 1;
    return 0;
}

static int embedding_row(void *self, int32_t id, float *row, kh_err *err) {
    const own *o = self;
    kh_err why = { 0 };
    if (!o->box.embedding_row)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: has no function for word embeddings, which this injection mode starts from; use "
            "post-ln-add",
            o->name);
    return explain(o, "embedding_row", o->box.embedding_row(o->self, id, row, &why), &why, err);
}

static void close_own(void *self) {
    own *o = self;
    if (o && o->box.close)
        o->box.close(o->self);
    if (o)
        kh_free(o->name);
    kh_free(o);
}

/* Two tables, as a backend without `answer` has labels from its scores. */
static const kh_backend SCORES = { .name = "own",
    .score = score,
    .describe = describe,
    .embedding_stats = embedding_stats,
    .embedding_row = embedding_row,
    .close = close_own };
static const kh_backend ANSWERS = { .name = "own",
    .score = score,
    .answer = answer,
    .describe = describe,
    .embedding_stats = embedding_stats,
    .embedding_row = embedding_row,
    .close = close_own };

static int check(const kh_box *b, const char *name, kh_err *err) {
    if (!b->tokenizer)
        return kh_fail(err, KH_EARG, "%s: a box needs a tokenizer, which cuts its texts", name);
    if (b->access == KH_ACCESS_WEIGHTS)
        return kh_fail(err, KH_EUNSUPPORTED,
            "%s: a box of one's own gives labels or log-probabilities; gradients need a model "
            "folder",
            name);
    if (!b->score && (b->access == KH_ACCESS_LOGPROBS || !b->answer))
        return kh_fail(err, KH_EARG, "%s: a box at access level %s needs the function \"%s\"", name,
            kh_access_name(b->access), b->access == KH_ACCESS_LABELS ? "answer" : "score");
    if (b->hidden < 0 || b->max_len < 1)
        return kh_fail(err, KH_EARG,
            "%s: hidden is %d and max_len is %d; prompts have rows of 0 or more numbers, sequences "
            "at least one token",
            name, b->hidden, b->max_len);
    return 0;
}

int kh_own_open(const kh_backend **out, void **self, const kh_box *box, void *theirs, kh_err *err) {
    const char *name = box->name ? box->name : "own box";
    int rc = check(box, name, err);
    if (rc != 0)
        return rc;
    own *o = kh_calloc(1, sizeof *o);
    char *copy = kh_strdup(name);
    if (!o || !copy) {
        kh_free(o);
        kh_free(copy);
        return kh_fail_memory(err);
    }
    *o = (own){ .box = *box, .name = copy, .self = theirs };
    *out = box->answer ? &ANSWERS : &SCORES;
    *self = o;
    return 0;
}
