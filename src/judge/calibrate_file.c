/* calibrate_file.c - a calibrator as a small JSON file: {"format": "keyhole calibrator", "method":
 * "temperature", ...}. What is read is checked as strictly as what was fitted: bounds, shapes, no
 * unknown method. */
#include "judge/calibrate.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json_in.h"
#include "base/json_out.h"

#include <math.h>
#include <string.h>

static const char *const FORMAT = "keyhole calibrator";
static const char *const names[] = { "temperature", "vector", "votes", "affine", "votes-affine" };
enum { N_NAMES = sizeof names / sizeof names[0] };

const char *kh_calibration_name(kh_calibration method) { return names[method]; }

static void put_list(kh_json_out *j, const char *key, const double *x, int n) {
    kh_json_gap(j, "\n ");
    kh_json_open_array(j, key);
    for (int k = 0; k < n; k++)
        kh_json_put_number(j, NULL, x[k], 17);
    kh_json_close(j);
}

static void put_one(kh_json_out *j, const char *key, double x) {
    kh_json_gap(j, "\n ");
    kh_json_put_number(j, key, x, 17);
}

void kh_calibrator_json(const kh_calibrator *c, kh_buf *out) {
    kh_json_out j = kh_json_out_init(out, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "format", FORMAT);
    kh_json_put_int(&j, "version", 1);
    kh_json_put_string(&j, "method", names[c->method]);
    kh_json_gap(&j, "\n ");
    kh_json_put_int(&j, "n_label", c->n_label);
    kh_json_put_int(&j, "rows", c->n);
    if (!kh_calibration_per_class(c->method))
        put_one(&j, "temperature", c->temperature);
    if (kh_calibration_votes(c->method))
        put_one(&j, "alpha", c->alpha);
    if (kh_calibration_affine(c->method))
        put_one(&j, "strength", c->strength);
    if (kh_calibration_per_class(c->method)) {
        put_list(&j, "weight", c->weight, c->n_label);
        put_list(&j, "bias", c->bias, c->n_label);
    }
    kh_json_close(&j);
    kh_buf_char(out, '\n');
}

int kh_calibrator_save(const kh_calibrator *c, const char *path, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_calibrator_json(c, &b);
    int rc = kh_buf_failed(&b) ? kh_fail_memory(err) : kh_file_write(path, b.data, b.len, err);
    kh_buf_free(&b);
    return rc;
}

/* ------------------------------------------------------------------------------------- reading */

static double read_bounded(
    kh_json_in *in, const json_t *root, const char *key, double low, double high) {
    double x = kh_json_get_number(in, root, key);
    if (x < low || x > high)
        kh_json_refuse(in, KH_EFORMAT, "\"%s\" is %g, expected %g to %g", key, x, low, high);
    return x;
}

/* n numbers within the bounds of fitting; the calibrator owns them. */
static double *read_list(kh_json_in *in, const json_t *root, const char *key, int n) {
    const json_t *list = json_object_get(root, key);
    if (!json_is_array(list) || json_array_size(list) != (size_t)n)
        kh_json_refuse(in, KH_EFORMAT, "\"%s\" must be a list of %d numbers", key, n);
    double *x = in->rc == 0 ? kh_malloc((size_t)n * sizeof *x) : NULL;
    if (in->rc == 0 && !x)
        in->rc = kh_fail_memory(in->err);
    for (int k = 0; k < n && in->rc == 0; k++) {
        const json_t *v = json_array_get(list, (size_t)k);
        x[k] = json_number_value(v);
        if (!json_is_number(v) || !(fabs(x[k]) <= KH_WEIGHT_MAX))
            kh_json_refuse(in, KH_EFORMAT, "\"%s\" must hold numbers from %g to %g", key,
                -KH_WEIGHT_MAX, KH_WEIGHT_MAX);
    }
    return x;
}

static kh_calibration read_method(kh_json_in *in, const json_t *root) {
    const char *format = kh_json_string_or(in, root, "format", "");
    if (strcmp(format, FORMAT) != 0)
        kh_json_refuse(in, KH_EFORMAT,
            "not a file of \"keyhole calibrate --out\": \"format\" must be \"%s\"", FORMAT);
    kh_json_get_int(in, root, "version", 1, 1);
    const char *method = kh_json_get_string(in, root, "method");
    for (int i = 0; i < N_NAMES; i++)
        if (strcmp(method, names[i]) == 0)
            return (kh_calibration)i;
    kh_json_refuse(in, KH_EFORMAT,
        "method \"%s\", expected temperature, vector, votes, affine or votes-affine", method);
    return KH_CALIBRATE_TEMPERATURE;
}

static int read_calibrator(kh_calibrator *c, const json_t *root, const char *name, kh_err *err) {
    kh_json_in in = { .name = name, .err = err };
    c->method = read_method(&in, root);
    bool per_class = kh_calibration_per_class(c->method);
    c->n_label = kh_json_get_int(&in, root, "n_label", 2, 65536);
    c->n = kh_json_get_int(&in, root, "rows", 1, INT32_MAX);
    if (!per_class)
        c->temperature = read_bounded(&in, root, "temperature", KH_T_MIN, KH_T_MAX);
    if (kh_calibration_votes(c->method))
        c->alpha = read_bounded(&in, root, "alpha", 1e-300, 1e300);
    if (kh_calibration_affine(c->method))
        c->strength = read_bounded(&in, root, "strength", 0, 1e6);
    if (per_class) {
        c->weight = read_list(&in, root, "weight", c->n_label);
        c->bias = read_list(&in, root, "bias", c->n_label);
    }
    if (in.rc != 0)
        kh_calibrator_free(c);
    return in.rc;
}

int kh_calibrator_parse(
    kh_calibrator *out, const char *json, size_t n, const char *name, kh_err *err) {
    json_t *root;
    *out = (kh_calibrator){ .temperature = 1 };
    int rc = kh_json_parse(json, n, name, &root, err);
    if (rc == 0)
        rc = read_calibrator(out, root, name, err);
    json_decref(root);
    return rc;
}

int kh_calibrator_open(kh_calibrator *out, const char *path, kh_err *err) {
    kh_buf b;
    *out = (kh_calibrator){ .temperature = 1 };
    int rc = kh_file_read(path, (size_t)64 << 20, &b, err);
    if (rc == 0)
        rc = kh_calibrator_parse(out, b.data, b.len, path, err);
    kh_buf_free(&b);
    return rc;
}
