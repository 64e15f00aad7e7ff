/* posterior_json.c - posterior.json, written and read.
 *
 * Everything but the samples stands in it, for people as much as for programs; nothing in it
 * depends on the clock, so the same run gives the same bytes. 64-bit hashes are hexadecimal
 * strings; seeds above 2^53 are strings of digits. */
#include "posterior/posterior.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_out.h"
#include "data/task.h"
#include "judge/calibrate.h"
#include "posterior/text_json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Folders with a prior of labels or an affine calibration are of format 2, those with text prompts
 * of format 3, so that no earlier keyhole answers without them. */
enum {
    FORMAT = 3,
    TEXTS_FORMAT = 3,
    LATER_FORMAT = 2,
    PLAIN_FORMAT = 1,
    MAX_SAMPLES = 1 << 20,
    MAX_DIM = 1 << 20,
    MAX_SLOTS = 1 << 16,
    MAX_HIDDEN = 1 << 16,
    MAX_ROWS = 1 << 20,
    MAX_LAYERS = 1 << 10
};

/* ------------------------------------------------------------------------------------- writing */

static const char LINE[] = "\n  ", WITHIN[] = "\n    "; /* white space before parts, and in them */
enum { DIGITS = 17 };                                   /* a double comes back as it was */

static bool one_projection(const kh_posterior *p) {
    for (int i = 1; i < p->n; i++)
        if (p->projection[i] != p->projection[0])
            return false;
    return p->n > 0;
}

static void put_projection(kh_json_out *j, const kh_posterior *p) {
    const kh_space *s = &p->space;
    kh_json_gap(j, WITHIN);
    kh_json_open_object(j, "projection");
    kh_json_put_string(j, "entries", kh_projection_name(s->projection));
    kh_json_put_number(j, "mean", s->mean, DIGITS);
    kh_json_put_number(j, "std", s->std, DIGITS);
    kh_json_put_string(j, "generator", KH_PROJECTION_GENERATOR);
    kh_json_open_array(j, "seeds"); /* one for all samples, or one for each */
    kh_json_tight(j);
    for (int i = 0; i < (one_projection(p) ? 1 : p->n); i++)
        kh_json_put_u64(j, NULL, p->projection[i]);
    kh_json_close(j);
    kh_json_close(j);
}

static void put_space(kh_json_out *j, const kh_posterior *p) {
    const kh_space *s = &p->space;
    kh_json_gap(j, LINE);
    kh_json_open_object(j, "prompt");
    kh_json_put_string(j, "inject", kh_inject_name(s->inject));
    if (s->placement == KH_SLOTS_AFTER)
        kh_json_put_string(j, "placement", "after-text");
    kh_json_put_int(j, "slots", s->slots);
    kh_json_put_int(j, "hidden", s->hidden);
    kh_json_put_int(j, "dim", s->dim);
    kh_json_gap(j, WITHIN);
    kh_json_open_array(j, "p0");
    kh_json_tight(j);
    for (int i = 0; i < s->slots; i++)
        kh_json_put_int(j, NULL, s->slot_id[i]);
    kh_json_close(j);
    put_projection(j, p);
    kh_json_close(j);
}

static void put_orders(kh_json_out *j, const kh_demos *d) {
    kh_json_gap(j, WITHIN);
    kh_json_open_array(j, "orders");
    for (int o = 0; o < d->n_order; o++) {
        kh_json_gap(j, "\n      ");
        kh_json_open_array(j, NULL);
        kh_json_tight(j);
        for (int i = 0; i < d->n_shown; i++)
            kh_json_put_int(j, NULL, d->order[(size_t)o * (size_t)d->n_shown + (size_t)i]);
        kh_json_close(j);
    }
    kh_json_close(j);
}

static void put_demos(kh_json_out *j, const kh_demos *d) {
    kh_json_gap(j, LINE);
    kh_json_open_object(j, "demonstrations");
    kh_json_open_array(j, "rows");
    for (int i = 0; i < d->n; i++) {
        kh_json_gap(j, WITHIN);
        kh_json_open_object(j, NULL);
        kh_json_put_text(j, "text", d->row[i].a, d->row[i].n_a);
        if (d->row[i].b)
            kh_json_put_text(j, "text_b", d->row[i].b, d->row[i].n_b);
        kh_json_put_int(j, "label", d->row[i].label);
        kh_json_close(j);
    }
    kh_json_close(j);
    put_orders(j, d);
    kh_json_close(j);
}

/* The key is the word of version 0.1 for an adapter. */
static void put_adapter(kh_json_out *j, const kh_adapter *g) {
    kh_json_gap(j, LINE);
    kh_json_open_object(j, "graft");
    kh_json_put_string(j, "kind", kh_adapter_name(g->kind));
    kh_json_put_int(j, "hidden", g->hidden);
    if (g->kind == KH_ADAPTER_PREFIX) {
        kh_json_put_int(j, "layers", g->layers);
        kh_json_put_int(j, "slots", g->slots);
    } else {
        kh_json_put_string(j, "states", kh_pool_name(g->pool));
        if (g->kind != KH_ADAPTER_LINEAR)
            kh_json_put_int(j, "inner", g->inner);
        kh_json_put_int(j, "labels", g->labels);
    }
    kh_json_close(j);
}

static void put_label_prior(kh_json_out *j, const kh_posterior *p) {
    size_t n_label = (size_t)p->task->n_label;
    kh_json_gap(j, LINE);
    kh_json_open_object(j, "label_prior");
    kh_json_put_string(j, "method", kh_label_prior_name(p->label_prior));
    kh_json_put_int(j, "rows", p->prior_rows);
    kh_json_open_array(j, "log");
    for (int s = 0; s < p->n; s++) {
        kh_json_gap(j, WITHIN);
        kh_json_put_numbers(j, NULL, p->log_prior + (size_t)s * n_label, n_label, DIGITS);
    }
    kh_json_close(j);
    kh_json_close(j);
}

/* The first format that knows all parts. */
static int format_of(const kh_posterior *p) {
    if (p->texts.n > 0)
        return TEXTS_FORMAT;
    bool later = p->log_prior || p->class_prior ||
        (p->calibrated && p->calibrator.method == KH_CALIBRATE_AFFINE);
    return later ? LATER_FORMAT : PLAIN_FORMAT;
}

static void put_calibration(kh_json_out *j, const kh_calibrator *c) {
    kh_json_gap(j, LINE);
    kh_json_open_object(j, "calibration");
    kh_json_put_string(j, "method", kh_calibration_name(c->method));
    if (c->method == KH_CALIBRATE_VOTES) {
        kh_json_put_number(j, "alpha", c->alpha, DIGITS);
        kh_json_put_number(j, "temperature", c->temperature, DIGITS);
    } else
        kh_json_put_number(j, "strength", c->strength, DIGITS);
    kh_json_put_int(j, "rows", c->n);
    if (c->method == KH_CALIBRATE_AFFINE) {
        kh_json_gap(j, WITHIN);
        kh_json_put_numbers(j, "weight", c->weight, (size_t)c->n_label, DIGITS);
        kh_json_gap(j, WITHIN);
        kh_json_put_numbers(j, "bias", c->bias, (size_t)c->n_label, DIGITS);
    }
    kh_json_close(j);
}

/* How often each class was seen in tuning, and how often it will be. */
static void put_classes(kh_json_out *j, const kh_posterior *p) {
    size_t n = (size_t)p->task->n_label;
    kh_json_gap(j, LINE);
    kh_json_open_object(j, "classes");
    kh_json_put_int(j, "labels", p->task->n_label);
    kh_json_gap(j, WITHIN);
    if (p->class_share)
        kh_json_put_numbers(j, "share", p->class_share, n, DIGITS);
    kh_json_gap(j, p->class_prior ? WITHIN : "");
    if (p->class_prior)
        kh_json_put_numbers(j, "prior", p->class_prior, n, DIGITS);
    kh_json_close(j);
}

/* What later texts are compared with. */
static void put_features(kh_json_out *j, const kh_posterior *p) {
    kh_json_gap(j, LINE);
    kh_json_open_object(j, "features");
    kh_json_put_string(j, "model", p->features_model);
    kh_json_put_hex(j, "fingerprint", p->features_fingerprint);
    kh_json_put_int(j, "rows", p->n_features);
    kh_json_put_int(j, "size", p->features_size);
    kh_json_close(j);
}

/* The model and the rows that it belongs to. */
static void put_origin(kh_json_out *j, const kh_posterior *p) {
    kh_json_gap(j, LINE);
    kh_json_open_object(j, "model");
    kh_json_put_string(j, "path", p->model);
    kh_json_put_hex(j, "fingerprint", p->fingerprint);
    kh_json_put_hex(j, "tokenizer", p->tokenizer);
    kh_json_put_string(j, "backend", p->backend);
    kh_json_put_string(j, "precision", p->precision);
    kh_json_put_string(j, "kernels", p->kernels);
    kh_json_close(j);
    kh_json_gap(j, LINE);
    kh_json_open_object(j, "data");
    kh_json_put_string(j, "path", p->data);
    kh_json_put_int(j, "shots", p->shots);
    kh_json_put_int(j, "train_rows", p->train_rows);
    kh_json_put_int(j, "dev_rows", p->dev_rows);
    kh_json_close(j);
}

/* What it cost and what it is worth. */
static void put_books(kh_json_out *j, const kh_posterior *p) {
    kh_json_gap(j, LINE);
    kh_json_open_object(j, "queries");
    kh_json_put_int(j, "train", p->train_queries);
    kh_json_put_int(j, "dev", p->dev_queries);
    kh_json_close(j);
    if (p->forward > 0) {
        kh_json_open_object(j, "passes");
        kh_json_put_int(j, "forward", p->forward);
        kh_json_put_int(j, "backward", p->backward);
        kh_json_close(j);
    }
    kh_json_put_number(j, "dev", p->dev, DIGITS);
    if (isfinite(p->score)) {
        kh_json_open_object(j, "score");
        kh_json_put_number(j, "nll", p->score, DIGITS);
        kh_json_put_int(j, "rows", p->score_rows);
        kh_json_close(j);
    }
    kh_json_put_string(j, "stopped", p->stopped);
}

/* Texts that are JSON already: what a method has tried, and the task. */
static void put_texts(kh_json_out *j, const kh_posterior *p) {
    kh_buf text = kh_buf_init(1 << 24);
    if (p->tried) {
        kh_buf_printf(&text, "[%s]", p->tried);
        kh_json_gap(j, LINE);
        kh_json_put_json(j, "tried", text.data ? text.data : "", text.len);
        kh_buf_reset(&text);
    }
    kh_task_json(p->task, &text);
    kh_json_gap(j, LINE);
    kh_json_put_json(j, "task", text.data ? text.data : "", text.len);
    j->out->failed |= kh_buf_failed(&text);
    kh_buf_free(&text);
}

void kh_posterior_json(const kh_posterior *p, uint64_t samples, kh_buf *out) {
    kh_json_out j = kh_json_out_init(out, KH_JSON_SPACED);
    const char *options = p->options ? p->options : "{}";
    kh_json_open_object(&j, NULL);
    kh_json_gap(&j, LINE);
    kh_json_put_int(&j, "format", format_of(p));
    kh_json_put_string(&j, "keyhole", p->version);
    kh_json_gap(&j, LINE);
    kh_json_put_string(&j, "method", p->method);
    kh_json_put_string(&j, "access", kh_access_name(p->access));
    kh_json_put_u64(&j, "seed", p->seed);
    kh_json_put_bool(&j, "paper_exact", p->paper_exact);
    kh_json_gap(&j, LINE);
    kh_json_put_json(&j, "options", options, strlen(options));
    kh_json_gap(&j, LINE);
    kh_json_put_int(&j, "samples", p->n);
    kh_json_put_hex(&j, "samples_hash", samples);
    if (p->soft)
        put_space(&j, p);
    if (p->demos.n_order > 0)
        put_demos(&j, &p->demos);
    if (p->texts.n > 0)
        kh_texts_json(p, &j);
    if (p->adapter.kind != KH_ADAPTER_NONE)
        put_adapter(&j, &p->adapter);
    if (p->calibrated)
        put_calibration(&j, &p->calibrator);
    if (p->log_prior)
        put_label_prior(&j, p);
    if (p->class_share || p->class_prior)
        put_classes(&j, p);
    if (p->features)
        put_features(&j, p);
    put_origin(&j, p);
    put_books(&j, p);
    put_texts(&j, p);
    kh_json_close(&j);
    kh_buf_char(out, '\n');
}

/* ------------------------------------------------------------------------------------- reading */

typedef struct reader {
    kh_posterior *p;
    const char *name; /* of the file */
    kh_err *err;
} reader;

/* A string that lives as long as the posterior; null is NULL. */
static int keep_string(reader *r, const json_t *obj, const char *key, const char **out) {
    const char *s = NULL;
    int rc = kh_json_string_opt(obj, key, &s, r->name, r->err);
    *out = rc == 0 ? kh_posterior_keep(r->p, s) : NULL;
    return rc == 0 && s && !*out ? kh_fail_memory(r->err) : rc;
}

static int get_object(reader *r, const json_t *obj, const char *key, const json_t **out) {
    *out = json_object_get(obj, key);
    return json_is_object(*out)
        ? 0
        : kh_fail(r->err, KH_EFORMAT, "%s: \"%s\" must be an object", r->name, key);
}

static int get_array(
    reader *r, const json_t *obj, const char *key, size_t most, const json_t **out) {
    *out = json_object_get(obj, key);
    return json_is_array(*out) && json_array_size(*out) <= most
        ? 0
        : kh_fail(r->err, KH_EFORMAT, "%s: \"%s\" must be an array of at most %zu elements",
              r->name, key, most);
}

static int element_int(
    reader *r, const json_t *array, size_t i, int min, int max, const char *what, int *out) {
    const json_t *v = json_array_get(array, i);
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        return kh_fail(r->err, KH_EFORMAT,
            "%s: element %zu of \"%s\" must be a whole number from %d to %d", r->name, i, what, min,
            max);
    *out = (int)json_integer_value(v);
    return 0;
}

/* A whole number from 0, as a number or a string of digits; or of hexadecimal digits. */
static int read_u64(reader *r, const json_t *v, const char *what, int base, uint64_t *out) {
    if (base == 10 && json_is_integer(v) && json_integer_value(v) >= 0) {
        *out = (uint64_t)json_integer_value(v);
        return 0;
    }
    const char *s = json_is_string(v) ? json_string_value(v) : "";
    bool digits = *s && strspn(s, base == 16 ? "0123456789abcdef" : "0123456789") == strlen(s);
    errno = 0;
    *out = digits ? strtoull(s, NULL, base) : 0;
    if (digits && errno == 0)
        return 0;
    return kh_fail(r->err, KH_EFORMAT, "%s: \"%s\" must be %s", r->name, what,
        base == 16 ? "a string of at most 16 hexadecimal digits" : "a whole number from 0");
}

static int read_projection(reader *r, const json_t *o) {
    kh_posterior *p = r->p;
    const char *entries, *generator;
    const json_t *seeds;
    int rc = kh_json_string(o, "entries", &entries, r->name, r->err);
    if (rc == 0 && (rc = kh_projection_find(&p->space.projection, entries, r->err)) != 0)
        return r->err ? kh_err_prefix(r->err, "%s", r->name) : rc;
    if (rc == 0)
        rc = kh_json_number(o, "mean", &p->space.mean, r->name, r->err);
    if (rc == 0)
        rc = kh_json_number(o, "std", &p->space.std, r->name, r->err);
    if (rc == 0)
        rc = kh_json_string(o, "generator", &generator, r->name, r->err);
    if (rc == 0 && strcmp(generator, KH_PROJECTION_GENERATOR) != 0)
        rc = kh_fail(r->err, KH_EUNSUPPORTED,
            "%s: the projection was drawn by \"%s\", but this version draws by "
            "\"" KH_PROJECTION_GENERATOR "\"",
            r->name, generator);
    if (rc == 0)
        rc = get_array(r, o, "seeds", (size_t)p->n, &seeds);
    if (rc == 0 && json_array_size(seeds) != 1 && json_array_size(seeds) != (size_t)p->n)
        rc = kh_fail(r->err, KH_EFORMAT,
            "%s: %zu seeds of projections for %d samples; there must be one, or as many as samples",
            r->name, json_array_size(seeds), p->n);
    if (rc == 0 && !kh_grow(&p->projection, &p->cap_seed, (size_t)p->n, sizeof *p->projection))
        rc = kh_fail_memory(r->err);
    for (size_t i = 0; rc == 0 && i < (size_t)p->n; i++)
        rc = read_u64(r, json_array_get(seeds, json_array_size(seeds) == 1 ? 0 : i), "seeds", 10,
            &p->projection[i]);
    return rc;
}

/* Where the slots stand; a file that does not say means the soft template, or the front. */
static int read_placement(reader *r, const json_t *o) {
    kh_space *s = &r->p->space;
    const char *placement = "template";
    int rc = kh_json_string_opt(o, "placement", &placement, r->name, r->err);
    bool after = rc == 0 && strcmp(placement, "after-text") == 0;
    if (rc == 0 && !after && strcmp(placement, "template") != 0)
        rc = kh_fail(r->err, KH_EFORMAT, "%s: \"%.40s\" is no place for the slots of a prompt",
            r->name, placement);
    s->placement = s->inject == KH_INJECT_EMBED_PREFIX ? KH_SLOTS_PREFIX : KH_SLOTS_TEMPLATE;
    if (after)
        s->placement = KH_SLOTS_AFTER;
    return rc;
}

static int read_space(reader *r, const json_t *root) {
    kh_posterior *p = r->p;
    kh_space *s = &p->space;
    const json_t *o, *projection, *p0;
    const char *inject;
    if (!json_object_get(root, "prompt"))
        return 0;
    p->soft = true;
    int rc = get_object(r, root, "prompt", &o);
    if (rc == 0)
        rc = kh_json_string(o, "inject", &inject, r->name, r->err);
    if (rc == 0 &&
        ((rc = kh_inject_find(&s->inject, inject, r->err)) != 0 || s->inject == KH_INJECT_NONE))
        return kh_fail(r->err, KH_EFORMAT,
            "%s: \"%s\" is no way for a soft prompt to enter a model", r->name, inject);
    if (rc == 0)
        rc = read_placement(r, o);
    if (rc == 0)
        rc = kh_json_int(o, "slots", 1, MAX_SLOTS, &s->slots, r->name, r->err);
    if (rc == 0)
        rc = kh_json_int(o, "hidden", 1, MAX_HIDDEN, &s->hidden, r->name, r->err);
    if (rc == 0)
        rc = kh_json_int(o, "dim", 1, MAX_DIM, &s->dim, r->name, r->err);
    if (rc == 0 && (long long)s->dim > (long long)s->slots * s->hidden)
        rc = kh_fail(r->err, KH_EFORMAT, "%s: dimension %d is larger than the prompt of %d x %d",
            r->name, s->dim, s->slots, s->hidden);
    if (rc == 0)
        rc = get_array(r, o, "p0", MAX_SLOTS, &p0);
    if (rc == 0 && json_array_size(p0) != (size_t)s->slots)
        rc = kh_fail(r->err, KH_EFORMAT, "%s: \"p0\" has %zu ids for %d slots", r->name,
            json_array_size(p0), s->slots);
    if (rc == 0 && !(s->slot_id = kh_calloc((size_t)s->slots, sizeof *s->slot_id)))
        rc = kh_fail_memory(r->err);
    for (size_t i = 0; rc == 0 && i < (size_t)s->slots; i++)
        rc = element_int(r, p0, i, 0, INT32_MAX, "p0", &s->slot_id[i]);
    if (rc == 0)
        rc = get_object(r, o, "projection", &projection);
    if (rc == 0)
        rc = read_projection(r, projection);
    if (rc == 0 && s->projection == KH_PROJECTION_IDENTITY &&
        (long long)s->dim != (long long)s->slots * s->hidden)
        rc = kh_fail(r->err, KH_EFORMAT,
            "%s: dimension %d is not the %d x %d of the prompt, though no projection lies between",
            r->name, s->dim, s->slots, s->hidden);
    return rc;
}

static int read_demo_row(reader *r, const json_t *o, kh_row *row) {
    int rc = json_is_object(o)
        ? 0
        : kh_fail(r->err, KH_EFORMAT, "%s: a demonstration must be an object", r->name);
    if (rc == 0)
        rc = keep_string(r, o, "text", &row->a);
    if (rc == 0)
        rc = keep_string(r, o, "text_b", &row->b);
    if (rc == 0)
        rc = kh_json_int(o, "label", 0, r->p->task->n_label - 1, &row->label, r->name, r->err);
    if (rc == 0 && (!row->a || (row->b != NULL) != r->p->task->pair))
        rc = kh_fail(r->err, KH_EFORMAT, "%s: a demonstration must have %s", r->name,
            r->p->task->pair ? "\"text\" and \"text_b\"" : "\"text\" and no \"text_b\"");
    if (rc == 0) {
        row->n_a = strlen(row->a);
        row->n_b = row->b ? strlen(row->b) : 0;
    }
    return rc;
}

static int read_order(reader *r, const json_t *order, int index) {
    kh_demos *d = &r->p->demos;
    if (!json_is_array(order) || json_array_size(order) != (size_t)d->n_shown)
        return kh_fail(r->err, KH_EFORMAT,
            "%s: order %d of the demonstrations must be an array of %d rows, as the first is",
            r->name, index, d->n_shown);
    int rc = 0;
    for (int i = 0; i < d->n_shown && rc == 0; i++)
        rc = element_int(r, order, (size_t)i, 0, d->n - 1, "orders",
            &d->order[(size_t)index * (size_t)d->n_shown + (size_t)i]);
    return rc;
}

static int read_demos(reader *r, const json_t *root) {
    kh_posterior *p = r->p;
    kh_demos *d = &p->demos;
    const json_t *o, *rows, *orders;
    if (!json_object_get(root, "demonstrations"))
        return 0;
    int rc = get_object(r, root, "demonstrations", &o);
    if (rc == 0)
        rc = get_array(r, o, "rows", MAX_ROWS, &rows);
    if (rc == 0)
        rc = get_array(r, o, "orders", (size_t)p->n, &orders);
    if (rc == 0 &&
        (json_array_size(orders) != (size_t)p->n || !json_is_array(json_array_get(orders, 0)) ||
            json_array_size(json_array_get(orders, 0)) > MAX_ROWS))
        rc = kh_fail(r->err, KH_EFORMAT, "%s: \"orders\" must hold an array for each of %d samples",
            r->name, p->n);
    if (rc != 0)
        return rc;
    *d = (kh_demos){ .n = (int)json_array_size(rows),
        .n_order = p->n,
        .n_shown = (int)json_array_size(json_array_get(orders, 0)) };
    d->row = kh_arena_array(&p->arena, (size_t)d->n, sizeof *d->row);
    d->order = kh_arena_array(&p->arena, (size_t)d->n_order * (size_t)d->n_shown, sizeof *d->order);
    if (!d->row || !d->order)
        return kh_fail_memory(r->err);
    for (int i = 0; i < d->n && rc == 0; i++)
        rc = read_demo_row(r, json_array_get(rows, (size_t)i), &d->row[i]);
    for (int i = 0; i < d->n_order && rc == 0; i++)
        rc = read_order(r, json_array_get(orders, (size_t)i), i);
    return rc;
}

/* What kind a sample is of is said by one part alone. */
static int read_texts(reader *r, const json_t *root) {
    const json_t *o;
    if (!json_object_get(root, "texts"))
        return 0;
    if (r->p->soft || r->p->demos.n_order > 0)
        return kh_fail(r->err, KH_EFORMAT,
            "%s: \"texts\" cannot stand beside \"prompt\" or \"demonstrations\"", r->name);
    int rc = get_object(r, root, "texts", &o);
    return rc == 0 ? kh_texts_parse(r->p, o, r->name, r->err) : rc;
}

/* A adapter brings its own access level, and no level comes without it. */
static int read_graft(reader *r, const json_t *root) {
    kh_posterior *p = r->p;
    kh_adapter *g = &p->adapter;
    const json_t *o;
    const char *kind, *pool;
    bool there = json_object_get(root, "graft"), open = p->access == KH_ACCESS_WEIGHTS;
    if (there != open ||
        (there && (p->n != 1 || p->soft || p->demos.n_order > 0 || p->texts.n > 0)))
        return kh_fail(r->err, KH_EFORMAT,
            "%s: \"access\" must be weights if there is a \"graft\", and only then; it is one "
            "sample",
            r->name);
    if (!there)
        return 0;
    int rc = get_object(r, root, "graft", &o);
    if (rc == 0)
        rc = kh_json_string(o, "kind", &kind, r->name, r->err);
    if (rc == 0 && (rc = kh_adapter_find(&g->kind, kind, r->err)) != 0)
        return kh_err_prefix(r->err, "%s", r->name);
    if (rc == 0)
        rc = kh_json_int(o, "hidden", 1, MAX_HIDDEN, &g->hidden, r->name, r->err);
    if (rc == 0 && g->kind == KH_ADAPTER_PREFIX) {
        rc = kh_json_int(o, "layers", 1, MAX_LAYERS, &g->layers, r->name, r->err);
        return rc == 0 ? kh_json_int(o, "slots", 1, MAX_SLOTS, &g->slots, r->name, r->err) : rc;
    }
    if (rc == 0)
        rc = kh_json_string(o, "states", &pool, r->name, r->err);
    if (rc == 0 && (rc = kh_pool_find(&g->pool, pool, r->err)) != 0)
        return kh_err_prefix(r->err, "%s", r->name);
    if (rc == 0 && g->kind != KH_ADAPTER_LINEAR)
        rc = kh_json_int(o, "inner", 1, MAX_HIDDEN, &g->inner, r->name, r->err);
    if (rc == 0)
        rc = kh_json_int(
            o, "labels", p->task->n_label, p->task->n_label, &g->labels, r->name, r->err);
    if (rc == 0 && (g->pool == KH_POOL_ALL) != (g->kind == KH_ADAPTER_BILSTM))
        rc = kh_fail(r->err, KH_EFORMAT, "%s: a head of kind %s cannot read the states \"%s\"",
            r->name, kind, pool);
    return rc;
}

/* A part of the file as text again, for those who read JSON themselves. */
static int dump(reader *r, const json_t *root, const char *key, char **out) {
    const json_t *o;
    int rc = get_object(r, root, key, &o);
    *out = rc == 0 ? json_dumps(o, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    return rc == 0 && !*out ? kh_fail_memory(r->err) : rc;
}

static int read_task(reader *r, const json_t *root) {
    char *text;
    int rc = dump(r, root, "task", &text);
    if (rc == 0)
        rc = kh_task_parse(&r->p->task, text, strlen(text), r->name, r->err);
    free(text);
    return rc;
}

static int read_options(reader *r, const json_t *root) {
    char *text;
    int rc = dump(r, root, "options", &text);
    if (rc == 0 && !(r->p->options = kh_posterior_keep(r->p, text)))
        rc = kh_fail_memory(r->err);
    free(text);
    return rc;
}

/* The weights or biases of an affine calibration, within the bounds of fitting. */
static int read_list(reader *r, const json_t *o, const char *key, double **out, int n) {
    const json_t *list;
    int rc = get_array(r, o, key, (size_t)n, &list);
    bool good = rc == 0 && json_array_size(list) == (size_t)n;
    if (good && !(*out = kh_malloc((size_t)n * sizeof **out)))
        return kh_fail_memory(r->err);
    for (int k = 0; k < n && good; k++) {
        const json_t *v = json_array_get(list, (size_t)k);
        (*out)[k] = json_number_value(v);
        good = json_is_number(v) && fabs((*out)[k]) <= KH_WEIGHT_MAX;
    }
    return good ? 0
                : kh_fail(r->err, KH_EFORMAT,
                      "%s: \"%s\" of \"calibration\" must be %d numbers from %g to %g", r->name,
                      key, n, -KH_WEIGHT_MAX, KH_WEIGHT_MAX);
}

static int read_affine(reader *r, const json_t *o) {
    kh_calibrator *c = &r->p->calibrator;
    int rc = kh_json_number(o, "strength", &c->strength, r->name, r->err);
    if (rc == 0 && !(c->strength >= 0 && c->strength <= 1e6))
        rc = kh_fail(r->err, KH_EFORMAT, "%s: \"calibration\" has strength %g, expected 0 to 1e6",
            r->name, c->strength);
    if (rc == 0)
        rc = read_list(r, o, "weight", &c->weight, c->n_label);
    return rc == 0 ? read_list(r, o, "bias", &c->bias, c->n_label) : rc;
}

static int read_tried(reader *r, const json_t *root) {
    const json_t *list;
    if (!json_object_get(root, "tried"))
        return 0;
    int rc = get_array(r, root, "tried", MAX_ROWS, &list);
    char *text = rc == 0 ? json_dumps(list, JSON_REAL_PRECISION(17)) : NULL;
    size_t n = text ? strlen(text) : 0;
    if (rc == 0 && n >= 2) { /* without its brackets */
        text[n - 1] = '\0';
        r->p->tried = kh_posterior_keep(r->p, text + 1);
    }
    rc = rc == 0 && !r->p->tried ? kh_fail_memory(r->err) : rc;
    free(text);
    return rc;
}

/* Checked as strictly as what was fitted. Samples that vote have votes calibrated, and no others.
 */
static int read_calibration(reader *r, const json_t *root) {
    kh_calibrator *c = &r->p->calibrator;
    const json_t *o;
    const char *method;
    if (!json_object_get(root, "calibration"))
        return 0;
    bool votes = r->p->access == KH_ACCESS_LABELS;
    *c = (kh_calibrator){ .method = votes ? KH_CALIBRATE_VOTES : KH_CALIBRATE_AFFINE,
        .n_label = r->p->task->n_label,
        .temperature = 1 };
    int rc = get_object(r, root, "calibration", &o);
    if (rc == 0)
        rc = kh_json_string(o, "method", &method, r->name, r->err);
    if (rc == 0 && strcmp(method, kh_calibration_name(c->method)) != 0)
        rc = kh_fail(r->err, KH_EFORMAT,
            "%s: \"calibration\" must be by votes if \"access\" is labels, and affine if not",
            r->name);
    if (rc == 0)
        rc = kh_json_int(o, "rows", 1, INT32_MAX, &c->n, r->name, r->err);
    if (rc == 0 && !votes) {
        rc = read_affine(r, o);
        r->p->calibrated = rc == 0;
        return rc;
    }
    if (rc == 0)
        rc = kh_json_number(o, "alpha", &c->alpha, r->name, r->err);
    if (rc == 0)
        rc = kh_json_number(o, "temperature", &c->temperature, r->name, r->err);
    if (rc == 0 &&
        !(c->alpha >= 1e-300 && c->alpha <= 1e300 && c->temperature >= KH_T_MIN &&
            c->temperature <= KH_T_MAX))
        rc = kh_fail(r->err, KH_EFORMAT,
            "%s: \"calibration\" has alpha %g and temperature %g; expected more than 0, and %g to "
            "%g",
            r->name, c->alpha, c->temperature, KH_T_MIN, KH_T_MAX);
    r->p->calibrated = rc == 0;
    return rc;
}

/* A sample's prior: logarithms of numbers that add up to one. */
static int read_log_prior(reader *r, const json_t *row, int sample) {
    int n_label = r->p->task->n_label;
    double *to = r->p->log_prior + (size_t)sample * (size_t)n_label, total = 0;
    bool good = json_is_array(row) && json_array_size(row) == (size_t)n_label;
    for (int k = 0; k < n_label && good; k++) {
        const json_t *v = json_array_get(row, (size_t)k);
        to[k] = json_is_number(v) ? json_number_value(v) : NAN;
        total += exp(to[k]);
        good = isfinite(to[k]);
    }
    return good && fabs(total - 1) < 1e-6 ? 0
                                          : kh_fail(r->err, KH_EFORMAT,
                                                "%s: the \"label_prior\" of sample %d must be %d "
                                                "logarithms of probabilities that add up to one",
                                                r->name, sample, n_label);
}

static int read_label_prior(reader *r, const json_t *root) {
    kh_posterior *p = r->p;
    const json_t *o, *rows;
    const char *method;
    if (!json_object_get(root, "label_prior"))
        return 0;
    int rc = get_object(r, root, "label_prior", &o);
    if (rc == 0)
        rc = kh_json_string(o, "method", &method, r->name, r->err);
    for (int i = KH_LABEL_PRIOR_BATCH; i <= KH_LABEL_PRIOR_CONTEXTUAL && rc == 0; i++)
        if (strcmp(method, kh_label_prior_name((kh_label_prior)i)) == 0)
            p->label_prior = (kh_label_prior)i;
    if (rc == 0 && (p->label_prior == KH_LABEL_PRIOR_NONE || p->access != KH_ACCESS_LOGPROBS))
        rc = kh_fail(r->err, KH_EFORMAT,
            "%s: \"label_prior\" must be batch or contextual, of a posterior whose access is "
            "logprobs",
            r->name);
    if (rc == 0)
        rc = kh_json_int(o, "rows", 1, INT32_MAX, &p->prior_rows, r->name, r->err);
    if (rc == 0)
        rc = get_array(r, o, "log", (size_t)p->n, &rows);
    if (rc == 0 && json_array_size(rows) != (size_t)p->n)
        rc = kh_fail(r->err, KH_EFORMAT, "%s: \"label_prior\" has %zu samples, the posterior %d",
            r->name, json_array_size(rows), p->n);
    if (rc == 0 &&
        !(p->log_prior = kh_arena_array(
              &p->arena, (size_t)p->n * (size_t)p->task->n_label, sizeof *p->log_prior)))
        rc = kh_fail_memory(r->err);
    for (int s = 0; s < p->n && rc == 0; s++)
        rc = read_log_prior(r, json_array_get(rows, (size_t)s), s);
    return rc;
}

/* Positive numbers that add up to one; NULL if they are not there. */
static int read_shares(reader *r, const json_t *o, const char *key, double **out) {
    int n = r->p->task->n_label;
    const json_t *list = json_object_get(o, key);
    double sum = 0;
    if (!list)
        return 0;
    *out = kh_arena_array(&r->p->arena, (size_t)n, sizeof **out);
    if (!*out)
        return kh_fail_memory(r->err);
    bool good = json_is_array(list) && json_array_size(list) == (size_t)n;
    for (int k = 0; k < n && good; k++) {
        (*out)[k] = json_number_value(json_array_get(list, (size_t)k));
        good = (*out)[k] > 0;
        sum += (*out)[k];
    }
    return good && fabs(sum - 1) < 1e-6 ? 0
                                        : kh_fail(r->err, KH_EFORMAT,
                                              "%s: \"%s\" of \"classes\" must be %d positive "
                                              "numbers that add up to one",
                                              r->name, key, n);
}

static int read_classes(reader *r, const json_t *root) {
    const json_t *o;
    if (!json_object_get(root, "classes"))
        return 0;
    int rc = get_object(r, root, "classes", &o);
    if (rc == 0)
        rc = read_shares(r, o, "share", &r->p->class_share);
    return rc == 0 ? read_shares(r, o, "prior", &r->p->class_prior) : rc;
}

static int read_features(reader *r, const json_t *root) {
    kh_posterior *p = r->p;
    const json_t *o;
    if (!json_object_get(root, "features"))
        return 0;
    int rc = get_object(r, root, "features", &o);
    if (rc == 0)
        rc = keep_string(r, o, "model", &p->features_model);
    if (rc == 0)
        rc = read_u64(
            r, json_object_get(o, "fingerprint"), "fingerprint", 16, &p->features_fingerprint);
    if (rc == 0)
        rc = kh_json_int(o, "rows", 1, MAX_ROWS, &p->n_features, r->name, r->err);
    return rc == 0 ? kh_json_int(o, "size", 1, MAX_HIDDEN, &p->features_size, r->name, r->err) : rc;
}

static int read_model(reader *r, const json_t *root) {
    kh_posterior *p = r->p;
    const json_t *o;
    int rc = get_object(r, root, "model", &o);
    struct {
        const char *key, **out;
    } strings[] = { { "path", &p->model }, { "backend", &p->backend },
        { "precision", &p->precision }, { "kernels", &p->kernels } };
    for (size_t i = 0; i < sizeof strings / sizeof strings[0] && rc == 0; i++)
        rc = keep_string(r, o, strings[i].key, strings[i].out);
    if (rc == 0)
        rc = read_u64(r, json_object_get(o, "fingerprint"), "fingerprint", 16, &p->fingerprint);
    return rc == 0 ? read_u64(r, json_object_get(o, "tokenizer"), "tokenizer", 16, &p->tokenizer)
                   : rc;
}

static int read_passes(reader *r, const json_t *root) {
    const json_t *o;
    uint64_t forward, backward;
    if (!json_object_get(root, "passes"))
        return 0;
    int rc = get_object(r, root, "passes", &o);
    if (rc == 0)
        rc = read_u64(r, json_object_get(o, "forward"), "forward", 10, &forward);
    if (rc == 0)
        rc = read_u64(r, json_object_get(o, "backward"), "backward", 10, &backward);
    if (rc == 0)
        r->p->forward = (long long)forward, r->p->backward = (long long)backward;
    return rc;
}

static int read_score(reader *r, const json_t *root) {
    const json_t *o;
    r->p->score = NAN;
    if (!json_object_get(root, "score"))
        return 0;
    int rc = get_object(r, root, "score", &o);
    if (rc == 0)
        rc = kh_json_number(o, "nll", &r->p->score, r->name, r->err);
    return rc == 0 ? kh_json_int(o, "rows", 1, INT32_MAX, &r->p->score_rows, r->name, r->err) : rc;
}

static int read_costs(reader *r, const json_t *root) {
    kh_posterior *p = r->p;
    const json_t *data, *queries;
    uint64_t train, dev;
    int rc = get_object(r, root, "data", &data);
    if (rc == 0)
        rc = keep_string(r, data, "path", &p->data);
    struct {
        const char *key;
        int *out;
    } counts[] = { { "shots", &p->shots }, { "train_rows", &p->train_rows },
        { "dev_rows", &p->dev_rows } };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0] && rc == 0; i++)
        rc = kh_json_int(data, counts[i].key, 0, INT32_MAX, counts[i].out, r->name, r->err);
    if (rc == 0)
        rc = get_object(r, root, "queries", &queries);
    if (rc == 0)
        rc = read_u64(r, json_object_get(queries, "train"), "train", 10, &train);
    if (rc == 0)
        rc = read_u64(r, json_object_get(queries, "dev"), "dev", 10, &dev);
    if (rc == 0)
        p->train_queries = (long long)train, p->dev_queries = (long long)dev;
    if (rc == 0)
        rc = read_passes(r, root);
    if (rc == 0)
        rc = kh_json_number(root, "dev", &p->dev, r->name, r->err);
    if (rc == 0)
        rc = read_score(r, root);
    return rc == 0 ? keep_string(r, root, "stopped", &p->stopped) : rc;
}

static int read_head(reader *r, const json_t *root, uint64_t *samples) {
    kh_posterior *p = r->p;
    const char *access;
    int format, rc = kh_json_int(root, "format", 1, INT32_MAX, &format, r->name, r->err);
    if (rc == 0 && format > FORMAT)
        rc = kh_fail(r->err, KH_EUNSUPPORTED,
            "%s: written in format %d by a later keyhole; this one reads up to %d", r->name, format,
            FORMAT);
    if (rc == 0)
        rc = keep_string(r, root, "keyhole", &p->version);
    if (rc == 0)
        rc = keep_string(r, root, "method", &p->method);
    if (rc == 0 && !p->method)
        rc = kh_fail(r->err, KH_EFORMAT, "%s: \"method\" is missing", r->name);
    if (rc == 0)
        rc = kh_json_string(root, "access", &access, r->name, r->err);
    int level = KH_ACCESS_LABELS;
    while (rc == 0 && level <= KH_ACCESS_WEIGHTS &&
        strcmp(access, kh_access_name((kh_access)level)) != 0)
        level++;
    if (rc == 0 && level > KH_ACCESS_WEIGHTS)
        rc = kh_fail(r->err, KH_EFORMAT,
            "%s: \"access\" must be labels, logprobs or weights, not \"%s\"", r->name, access);
    if (rc == 0)
        p->access = (kh_access)level;
    if (rc == 0)
        rc = read_u64(r, json_object_get(root, "seed"), "seed", 10, &p->seed);
    if (rc == 0)
        rc = kh_json_bool(root, "paper_exact", &p->paper_exact, r->name, r->err);
    if (rc == 0)
        rc = kh_json_int(root, "samples", 1, MAX_SAMPLES, &p->n, r->name, r->err);
    return rc == 0 ? read_u64(r, json_object_get(root, "samples_hash"), "samples_hash", 16, samples)
                   : rc;
}

int kh_posterior_parse(
    kh_posterior *p, const char *text, size_t n, const char *name, uint64_t *samples, kh_err *err) {
    json_t *root;
    kh_err own;
    reader r = { p, name, err ? err : &own };
    int rc = kh_json_parse(text, n, name, &root, r.err);
    if (rc == 0 && !json_is_object(root))
        rc = kh_fail(r.err, KH_EFORMAT, "%s: must hold a JSON object", name);
    if (rc == 0)
        rc = read_head(&r, root, samples);
    int (*const parts[])(reader *, const json_t *) = { read_options, read_task, read_space,
        read_demos, read_texts, read_graft, read_calibration, read_label_prior, read_classes,
        read_features, read_model, read_costs, read_tried };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && rc == 0; i++)
        rc = parts[i](&r, root);
    json_decref(root);
    return rc;
}
