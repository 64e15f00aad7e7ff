/* distance.c - see distance.h.
 *
 * A text goes to the encoder as it is, in a template that is the same for all texts, so that what
 * is compared is the text and not the template of a task. Deep nearest neighbours (Sun et al. 2022,
 * "Out-of-distribution detection with deep nearest neighbors") on unit vectors; no distribution of
 * the features is supposed, which 32 rows could not show.
 *
 * A mean over hidden states is not always far from that of real sentences where a few letters were
 * typed at random: the encoder has never learned to say that a text is none. How finely its words
 * are cut does say so. It is one more coordinate, so that neighbours, distances left out and
 * thresholds are what they were. */
#include "posterior/distance.h"

#include "base/alloc.h"
#include "base/err.h"
#include "posterior/features.h"
#include "text/cuts.h"

#include <math.h>
#include <string.h>

struct kh_encoder {
    kh_plm *plm;
    kh_words *words;
    kh_batch_opts batch;
    int size;
};

/* The label words stand for nothing: a batch must have some. */
static const char *const WORDS[] = { "a", "the" };
static const kh_label LABELS[] = { { "0", &WORDS[0], 1 }, { "1", &WORDS[1], 1 } };
static const kh_task ONE = { .name = "text",
    .plain = "{text} {mask}",
    .soft = "{prompt} {text} {mask}",
    .label = LABELS,
    .n_label = 2 };
static const kh_task PAIR = { .name = "pair",
    .plain = "{text_a} {text_b} {mask}",
    .soft = "{prompt} {text_a} {text_b} {mask}",
    .label = LABELS,
    .n_label = 2,
    .pair = true };

/* int8, for speed: distances are compared with distances of the same encoder only, so what it
 * rounds, it rounds alike. */
int kh_encoder_open(kh_encoder **out, const char *model, kh_err *err) {
    kh_encoder *e = *out = kh_calloc(1, sizeof *e);
    if (!e)
        return kh_fail_memory(err);
    int rc = kh_plm_open(
        &e->plm, model, &(kh_plm_opts){ .access = KH_ACCESS_WEIGHTS, .precision = KH_INT8 }, err);
    if (rc == 0) {
        kh_plm_info box = kh_plm_describe(e->plm);
        e->size = box.hidden;
        e->batch = (kh_batch_opts){ .max_len = box.max_len, .next = box.next };
        rc = kh_words_new(&e->words, &ONE, kh_plm_tokenizer(e->plm), false, err);
    }
    if (rc != 0) {
        kh_encoder_close(e);
        *out = NULL;
    }
    return rc;
}

void kh_encoder_close(kh_encoder *e) {
    if (!e)
        return;
    kh_words_free(e->words);
    kh_plm_close(e->plm);
    kh_free(e);
}

int kh_encoder_size(const kh_encoder *e) { return e->size; }

uint64_t kh_encoder_fingerprint(const kh_encoder *e) { return kh_plm_describe(e->plm).fingerprint; }

/* A vector of zeros stays one, and is at distance 1 from everything. */
static void unit(const float *x, int n, float *out) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (int i = 0; i < n; i++)
        out[i] = (float)((double)x[i] * scale);
}

static int cut_rate(const kh_tokenizer *t, const kh_row *row, float *out, kh_err *err) {
    kh_cuts c = { 0 };
    int rc = kh_cuts_count(&c, t, row->a, row->n_a, err);
    if (rc == 0 && row->b)
        rc = kh_cuts_count(&c, t, row->b, row->n_b, err);
    *out = (float)kh_cuts_rate(&c);
    return rc;
}

int kh_encoder_features(
    kh_encoder *e, const kh_row *rows, int n, bool cuts, float *out, kh_err *err) {
    size_t size = (size_t)e->size + cuts;
    kh_features f = { 0 };
    const kh_task *task = n > 0 && rows[0].b ? &PAIR : &ONE;
    kh_row *plain = kh_malloc((size_t)n * sizeof *plain + 1);
    int rc = plain ? 0 : kh_fail_memory(err);
    for (int i = 0; i < n && rc == 0; i++) {
        plain[i] = rows[i];
        plain[i].label = -1; /* of another task */
    }
    if (rc == 0 && n > 0)
        rc = kh_features_read(&f, e->plm, task, e->words, &e->batch, KH_POOL_MEAN, plain, n, err);
    for (int i = 0; i < n && rc == 0; i++) {
        float *to = out + (size_t)i * size;
        unit(f.row[i].state, e->size, to);
        if (cuts)
            rc = cut_rate(kh_plm_tokenizer(e->plm), &rows[i], to + e->size, err);
    }
    kh_features_free(&f);
    kh_free(plain);
    return rc;
}

/* The mean over k neighbours and not the nearest alone: a single odd row of tuning must not vouch
 * for its like. leave: a row of the reference itself, -1 for none. */
double kh_nearest_distance(
    const float *reference, int n, const float *x, int size, bool cuts, int k, int leave) {
    double nearest[KH_NEIGHBOURS], sum = 0;
    int found = 0, angles = size - cuts;
    for (int j = 0; j < n; j++) {
        const float *y = reference + (size_t)j * (size_t)size;
        double dot = 0, finer = cuts ? (double)x[angles] - (double)y[angles] : 0;
        for (int i = 0; i < angles; i++)
            dot += (double)y[i] * (double)x[i];
        double d = 1 - dot + finer * finer / 2;
        if (j == leave || (found == k && d >= nearest[k - 1]))
            continue;
        int at = found < k ? found++ : k - 1; /* insertion among the nearest so far */
        for (; at > 0 && nearest[at - 1] > d; at--)
            nearest[at] = nearest[at - 1];
        nearest[at] = d;
    }
    for (int i = 0; i < found; i++)
        sum += nearest[i];
    return found > 0 ? sum / found : NAN;
}
