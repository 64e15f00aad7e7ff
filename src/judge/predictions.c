/* predictions.c - see predictions.h. Every line is checked before it is believed: shape,
 * finiteness, sums, labels. */
#include "judge/predictions.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_out.h"
#include "base/size.h"
#include "judge/metrics.h"

#include <math.h>
#include <string.h>

enum { MAX_LABEL = 65536 };

static const char *const names[] = { "probs", "logits", "votes" };

const char *kh_evidence_name(kh_evidence kind) { return names[kind]; }

typedef struct reader {
    kh_predictions *out;
    const char *name;
    const kh_evidence *order;
    int n_order;
    long line;
    size_t cap_x, cap_label, cap_line, cap_energy;
    char **class; /* [n_label] the names, where rows are records; else NULL */
} reader;

/* The kinds that will do, for a sentence: "probs", "logits" or "votes". */
static void list_kinds(const reader *r, char *text, size_t n) {
    text[0] = '\0';
    for (int i = 0; i < r->n_order; i++) {
        size_t used = strlen(text);
        const char *between = i + 1 < r->n_order ? ", " : " or ";
        snprintf(text + used, n - used, "%s\"%s\"", i > 0 ? between : "", names[r->order[i]]);
    }
}

/* Keyhole's own records (doc/prediction-schema.md) name the classes: the distribution is an object
 * and so are the votes. Classes count in the order in which the first row names them. */
static const json_t *values_of(const json_t *row, kh_evidence kind) {
    const json_t *list = json_object_get(row, names[kind]);
    return !list && kind == KH_PROBS ? json_object_get(row, "distribution") : list;
}

static size_t n_values(const json_t *list) {
    return json_is_object(list) ? json_object_size(list) : json_array_size(list);
}

/* The first row decides what all rows are read as. */
static int choose_kind(reader *r, const json_t *row, kh_err *err) {
    for (int i = 0; i < r->n_order; i++) {
        const json_t *list = values_of(row, r->order[i]);
        if (!list || json_is_null(list))
            continue;
        size_t n = n_values(list);
        if (!(json_is_array(list) || json_is_object(list)) || n < 2 || n > MAX_LABEL)
            return kh_fail_at(err, KH_EFORMAT, r->name, r->line,
                "\"%s\" must be a list of 2 to %d numbers, one for each class", names[r->order[i]],
                MAX_LABEL);
        r->out->kind = r->order[i];
        r->out->n_label = (int)n;
        return 0;
    }
    char kinds[64];
    list_kinds(r, kinds, sizeof kinds);
    return kh_fail_at(err, KH_EFORMAT, r->name, r->line, "no %s in this line", kinds);
}

/* x is negative for what may not be, or adds up wrongly. Probabilities are scaled to add up to one
 * exactly. */
static int check_values(const reader *r, double *x, kh_err *err) {
    const kh_predictions *o = r->out;
    double sum = 0;
    for (int k = 0; k < o->n_label; k++) {
        if (x[k] < 0)
            return kh_fail_at(err, KH_EFORMAT, r->name, r->line,
                "\"%s\" of class %d is %g, expected 0 or more", names[o->kind], k, x[k]);
        sum += x[k];
    }
    if (o->kind == KH_VOTES && !(sum > 0 && sum < 1e300))
        return kh_fail_at(
            err, KH_EFORMAT, r->name, r->line, "\"votes\" add up to %g, expected more than 0", sum);
    if (o->kind == KH_PROBS && !(fabs(sum - 1) <= KH_SUM_TOLERANCE * (1 + 1e-9)))
        return kh_fail_at(
            err, KH_EFORMAT, r->name, r->line, "\"probs\" add up to %g, expected 1", sum);
    for (int k = 0; k < o->n_label && o->kind == KH_PROBS; k++)
        x[k] /= sum;
    return 0;
}

/* The names of the classes: of the first row that has some; later rows must have the same. */
static int keep_classes(reader *r, const json_t *object, kh_err *err) {
    const char *key;
    json_t *value;
    int n = 0;
    if (r->class) {
        for (int k = 0; k < r->out->n_label; k++)
            if (!json_object_get(object, r->class[k]))
                return kh_fail_at(err, KH_EFORMAT, r->name, r->line,
                    "no probability for \"%s\", a class of the lines before", r->class[k]);
        return 0;
    }
    r->class = kh_calloc((size_t)r->out->n_label, sizeof *r->class);
    if (!r->class)
        return kh_fail_memory(err);
    /* jansson walks an object in the order in which it was written */
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        (void)value;
        if (!(r->class[n++] = kh_strdup(key)))
            return kh_fail_memory(err);
    }
    return 0;
}

static int read_values(reader *r, const json_t *row, double *x, kh_err *err) {
    const kh_predictions *o = r->out;
    const json_t *list = values_of(row, o->kind);
    if (!json_is_array(list) && !json_is_object(list))
        return kh_fail_at(err, KH_EFORMAT, r->name, r->line,
            "no list \"%s\" in this line, but in the lines before", names[o->kind]);
    if (n_values(list) != (size_t)o->n_label)
        return kh_fail_at(err, KH_EFORMAT, r->name, r->line,
            "%zu \"%s\", but %d in the lines before", n_values(list), names[o->kind], o->n_label);
    int rc = json_is_object(list) ? keep_classes(r, list, err) : 0;
    if (rc != 0)
        return rc;
    for (int k = 0; k < o->n_label; k++) {
        const json_t *v = json_is_object(list) ? json_object_get(list, r->class[k])
                                               : json_array_get(list, (size_t)k);
        x[k] = json_number_value(v);
        if (!json_is_number(v) || !isfinite(x[k]))
            return kh_fail_at(err, KH_EFORMAT, r->name, r->line,
                "\"%s\" of class %d is not a number", names[o->kind], k);
    }
    return o->kind == KH_LOGITS ? 0 : check_values(r, x, err);
}

/* The true class of one of keyhole's records: "true", a name. There "label" is the predicted one.
 */
static int read_true(const reader *r, const json_t *row, int *label, kh_err *err) {
    const json_t *v = json_object_get(row, "true");
    const char *name = json_string_value(v);
    if (!v || json_is_null(v))
        return 0;
    for (int k = 0; name && k < r->out->n_label; k++)
        if (strcmp(name, r->class[k]) == 0) {
            *label = k;
            return 0;
        }
    return kh_fail_at(err, KH_EFORMAT, r->name, r->line,
        "\"true\" must be the name of a class in \"distribution\", or null");
}

static int read_label(const reader *r, const json_t *row, int *label, kh_err *err) {
    const json_t *v = json_object_get(row, "label");
    *label = -1;
    if (r->class)
        return read_true(r, row, label, err);
    if (!v || json_is_null(v))
        return 0;
    json_int_t n = json_integer_value(v);
    if (!json_is_integer(v) || n < -1 || n >= r->out->n_label)
        return kh_fail_at(err, KH_EFORMAT, r->name, r->line,
            "\"label\" must be a whole number from 0 to %d, the true class, or -1",
            r->out->n_label - 1);
    *label = (int)n;
    return 0;
}

static int read_energy(const reader *r, const json_t *row, double *energy, kh_err *err) {
    const json_t *v = json_object_get(row, "energy");
    *energy = json_is_number(v) ? json_number_value(v) : NAN;
    if (!v || json_is_null(v) || isfinite(*energy))
        return 0;
    return kh_fail_at(err, KH_EFORMAT, r->name, r->line, "\"energy\" is not a number");
}

static int add_row(reader *r, const json_t *row, kh_err *err) {
    kh_predictions *o = r->out;
    if (!json_is_object(row))
        return kh_fail_at(err, KH_EFORMAT, r->name, r->line,
            "must be a JSON object such as {\"probs\": [0.1, 0.9], \"label\": 1}");
    int rc = o->n_label == 0 ? choose_kind(r, row, err) : 0;
    if (rc != 0)
        return rc;
    size_t need;
    if (o->n == INT32_MAX || !kh_mul((size_t)o->n + 1, (size_t)o->n_label, &need))
        return kh_fail_at(err, KH_ELIMIT, r->name, r->line, "more rows than can be read");
    if (!kh_grow(&o->x, &r->cap_x, need, sizeof *o->x) ||
        !kh_grow(&o->label, &r->cap_label, (size_t)o->n + 1, sizeof *o->label) ||
        !kh_grow(&o->line, &r->cap_line, (size_t)o->n + 1, sizeof *o->line) ||
        !kh_grow(&o->energy, &r->cap_energy, (size_t)o->n + 1, sizeof *o->energy))
        return kh_fail_memory(err);
    rc = read_values(r, row, o->x + (size_t)o->n * (size_t)o->n_label, err);
    if (rc == 0)
        rc = read_label(r, row, &o->label[o->n], err);
    if (rc == 0)
        rc = read_energy(r, row, &o->energy[o->n], err);
    if (rc == 0) {
        o->n_energy += !isnan(o->energy[o->n]);
        o->n_known += o->label[o->n] >= 0;
        o->line[o->n++] = r->line;
    }
    return rc;
}

int kh_predictions_parse(kh_predictions *out, const char *bytes, size_t n, const char *name,
    const kh_evidence *order, int n_order, kh_err *err) {
    *out = (kh_predictions){ 0 };
    reader r = { .out = out, .name = name, .order = order, .n_order = n_order, .line = 1 };
    int rc = 0;
    size_t at = n >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    for (; at < n && rc == 0; r.line++) {
        const char *end = memchr(bytes + at, '\n', n - at);
        size_t len = end ? (size_t)(end - bytes) - at : n - at;
        size_t blank = 0;
        while (blank < len && strchr(" \t\r", bytes[at + blank]) && bytes[at + blank])
            blank++;
        json_t *row = NULL;
        if (blank < len && (rc = kh_json_parse_line(bytes + at, len, name, r.line, &row, err)) == 0)
            rc = add_row(&r, row, err);
        json_decref(row);
        at += len + 1;
    }
    for (int k = 0; r.class && k < out->n_label; k++)
        kh_free(r.class[k]);
    kh_free(r.class);
    if (rc == 0 && out->n == 0)
        rc = kh_fail(err, KH_EFORMAT,
            "%s: no lines; expected one JSON object a line, such as {\"probs\": [0.1, 0.9], "
            "\"label\": 1}",
            name);
    return rc;
}

void kh_predictions_free(kh_predictions *o) {
    kh_free(o->x);
    kh_free(o->label);
    kh_free(o->line);
    kh_free(o->energy);
    *o = (kh_predictions){ 0 };
}

/* --------------------------------------------------------------------------- as what is needed */

static void softmax(const double *x, int n, double *p) {
    double max = x[0], sum = 0;
    for (int k = 1; k < n; k++)
        max = x[k] > max ? x[k] : max;
    for (int k = 0; k < n; k++)
        sum += p[k] = exp(x[k] - max);
    for (int k = 0; k < n; k++)
        p[k] /= sum;
}

static void shares(const double *x, int n, double *p) {
    double sum = 0;
    for (int k = 0; k < n; k++)
        sum += x[k];
    for (int k = 0; k < n; k++)
        p[k] = x[k] / sum;
}

void kh_predictions_probs(const kh_predictions *o, double *p) {
    size_t k = (size_t)o->n_label;
    for (int i = 0; i < o->n; i++)
        if (o->kind == KH_LOGITS)
            softmax(o->x + (size_t)i * k, o->n_label, p + (size_t)i * k);
        else
            shares(o->x + (size_t)i * k, o->n_label, p + (size_t)i * k);
}

void kh_predictions_scores(const kh_predictions *o, double *x) {
    size_t size = (size_t)o->n * (size_t)o->n_label;
    if (o->kind == KH_LOGITS) {
        memcpy(x, o->x, size * sizeof *x);
        return;
    }
    kh_predictions_probs(o, x);
    for (size_t i = 0; i < size; i++)
        x[i] = log(x[i] > 1e-12 ? x[i] : 1e-12);
}

void kh_predictions_put(kh_buf *out, const double *p, int n_label, int label, long line) {
    kh_json_out j = kh_json_out_init(out, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    kh_json_put_numbers(&j, "probs", p, (size_t)n_label, 9); /* as exact as the model's floats */
    kh_json_put_int(&j, "label", label);
    if (line > 0)
        kh_json_put_int(&j, "line", line);
    kh_json_close(&j);
    kh_buf_char(out, '\n');
}
