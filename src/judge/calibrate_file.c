/* calibrate_file.c - a calibrator as a small JSON file: {"format": "keyhole calibrator", "method":
 * "temperature", ...}. What is read is checked as strictly as what was fitted: bounds, shapes, no
 * unknown method. */
#include "judge/calibrate.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_out.h"

#include <math.h>
#include <string.h>

static const char *const FORMAT = "keyhole calibrator";
static const char *const names[] = { "temperature", "vector", "votes", "affine" };
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
    if (c->method == KH_CALIBRATE_VOTES)
        put_one(&j, "alpha", c->alpha);
    if (c->method == KH_CALIBRATE_AFFINE)
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

static int read_bounded(const json_t *root, const char *key, double low, double high, double *out,
    const char *name, kh_err *err) {
    int rc = kh_json_number(root, key, out, name, err);
    if (rc == 0 && (*out < low || *out > high))
        rc = kh_fail(
            err, KH_EFORMAT, "%s: \"%s\" is %g, expected %g to %g", name, key, *out, low, high);
    return rc;
}

static int read_list(
    const json_t *root, const char *key, double **out, int n, const char *name, kh_err *err) {
    const json_t *list = json_object_get(root, key);
    if (!json_is_array(list) || json_array_size(list) != (size_t)n)
        return kh_fail(err, KH_EFORMAT, "%s: \"%s\" must be a list of %d numbers", name, key, n);
    *out = kh_malloc((size_t)n * sizeof **out);
    if (!*out)
        return kh_fail_memory(err);
    for (int k = 0; k < n; k++) {
        const json_t *v = json_array_get(list, (size_t)k);
        double x = json_number_value(v);
        if (!json_is_number(v) || !(fabs(x) <= KH_WEIGHT_MAX))
            return kh_fail(err, KH_EFORMAT, "%s: \"%s\" must hold numbers from %g to %g", name, key,
                -KH_WEIGHT_MAX, KH_WEIGHT_MAX);
        (*out)[k] = x;
    }
    return 0;
}

static int read_method(const json_t *root, kh_calibration *out, const char *name, kh_err *err) {
    const char *format = NULL, *method;
    int version,
        rc = json_is_object(root) ? kh_json_string_opt(root, "format", &format, name, err) : 0;
    if (rc == 0 && (!format || strcmp(format, FORMAT) != 0))
        rc = kh_fail(err, KH_EFORMAT,
            "%s: not a file of \"keyhole calibrate --out\": \"format\" must be \"%s\"", name,
            FORMAT);
    if (rc == 0)
        rc = kh_json_int(root, "version", 1, 1, &version, name, err);
    if (rc == 0)
        rc = kh_json_string(root, "method", &method, name, err);
    if (rc != 0)
        return rc;
    for (int i = 0; i < N_NAMES; i++)
        if (strcmp(method, names[i]) == 0) {
            *out = (kh_calibration)i;
            return 0;
        }
    return kh_fail(err, KH_EFORMAT,
        "%s: method \"%s\", expected temperature, vector, votes or affine", name, method);
}

static int read_calibrator(kh_calibrator *c, const json_t *root, const char *name, kh_err *err) {
    int rc = read_method(root, &c->method, name, err);
    if (rc == 0)
        rc = kh_json_int(root, "n_label", 2, 65536, &c->n_label, name, err);
    if (rc == 0)
        rc = kh_json_int(root, "rows", 1, INT32_MAX, &c->n, name, err);
    if (rc == 0 && !kh_calibration_per_class(c->method))
        rc = read_bounded(root, "temperature", KH_T_MIN, KH_T_MAX, &c->temperature, name, err);
    if (rc == 0 && c->method == KH_CALIBRATE_VOTES)
        rc = read_bounded(root, "alpha", 1e-300, 1e300, &c->alpha, name, err);
    if (rc == 0 && c->method == KH_CALIBRATE_AFFINE)
        rc = read_bounded(root, "strength", 0, 1e6, &c->strength, name, err);
    if (rc == 0 && kh_calibration_per_class(c->method))
        rc = read_list(root, "weight", &c->weight, c->n_label, name, err);
    if (rc == 0 && kh_calibration_per_class(c->method))
        rc = read_list(root, "bias", &c->bias, c->n_label, name, err);
    if (rc != 0)
        kh_calibrator_free(c);
    return rc;
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
