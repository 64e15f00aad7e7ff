/* fuzz_predictions.c - any bytes as predictions and as a calibrator's file; what is accepted can be
 * judged and calibrated, and what comes out adds up to one. */
#include "base/alloc.h"
#include "judge/calibrate.h"
#include "judge/predictions.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Rows with a label come first, in x and label; returns how many. */
static int keep_known(const kh_predictions *r, double *x, int *label) {
    size_t k = (size_t)r->n_label;
    int m = 0;
    for (int i = 0; i < r->n; i++)
        if (r->label[i] >= 0) {
            memmove(x + (size_t)m * k, x + (size_t)i * k, k * sizeof *x);
            label[m++] = r->label[i];
        }
    return m;
}

static void calibrate(const kh_predictions *r, kh_calibration method) {
    kh_err err = { 0 };
    kh_calibrator c;
    double *x = kh_malloc((size_t)r->n * (size_t)r->n_label * sizeof *x);
    int *label = kh_malloc((size_t)r->n * sizeof *label);
    assert(x && label);
    if (kh_calibration_votes(method))
        memcpy(x, r->x, (size_t)r->n * (size_t)r->n_label * sizeof *x);
    else
        kh_predictions_scores(r, x);
    int n = keep_known(r, x, label),
        rc = kh_calibrator_fit(&c, method, x, label, n, r->n_label, &err);
    assert(rc == 0 || (err.code < 0 && err.msg[0]));
    if (rc == 0) {
        kh_metrics m;
        kh_calibrator_apply(&c, x, n, x);
        rc = kh_metrics_compute(&m, &(kh_answers){ x, label, n, r->n_label }, 0, &err);
        assert(rc == 0);
    }
    kh_calibrator_free(&c);
    kh_free(x);
    kh_free(label);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const kh_evidence any[] = { KH_PROBS, KH_LOGITS, KH_VOTES }, votes[] = { KH_VOTES };
    kh_err err = { 0 };
    kh_calibrator c;
    kh_predictions r;
    int rc = kh_calibrator_parse(&c, (const char *)data, n, "fuzz", &err);
    assert(rc == 0 || (err.code < 0 && err.msg[0]));
    kh_calibrator_free(&c);
    if (kh_predictions_parse(&r, (const char *)data, n, "fuzz", any, 3, &err) == 0 &&
        r.n_known > 0 && r.n_label < 100) {
        calibrate(&r, KH_CALIBRATE_TEMPERATURE);
        calibrate(&r, KH_CALIBRATE_VECTOR);
    }
    kh_predictions_free(&r);
    if (kh_predictions_parse(&r, (const char *)data, n, "fuzz", votes, 1, &err) == 0 &&
        r.n_known > 0 && r.n_label < 100) {
        calibrate(&r, KH_CALIBRATE_VOTES);
        if (r.n * r.n_label < 200) /* some hundred fits */
            calibrate(&r, KH_CALIBRATE_VOTES_AFFINE);
    }
    kh_predictions_free(&r);
    return 0;
}
