/* posterior_json.c - posterior.json, written and read.
 *
 * Everything but the samples stands in it, for people as much as for programs; nothing in it
 * depends on the clock, so the same run gives the same bytes. 64-bit hashes are hexadecimal
 * strings; seeds above 2^53 are strings of digits. */
#include "posterior/posterior.h"

#include "base/alloc.h"
#include "base/controls.h"
#include "base/err.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "data/task.h"
#include "judge/calibrate.h"
#include "posterior/text_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Folders with a prior of labels or an affine calibration are of format 2, those with text prompts
 * of format 3, those that the template answers beside of format 4, so that no earlier keyhole
 * answers without them. */
enum {
    FORMAT = 4,
    TEMPLATE_FORMAT = 4,
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
    kh_rows_json(d->row, d->n, j);
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
    if (p->template_share > 0)
        return TEMPLATE_FORMAT;
    if (p->texts.n > 0)
        return TEXTS_FORMAT;
    bool later = p->log_prior || p->class_prior ||
        (p->calibrated && kh_calibration_affine(p->calibrator.method));
    return later ? LATER_FORMAT : PLAIN_FORMAT;
}

static void put_calibration(kh_json_out *j, const kh_calibrator *c) {
    kh_json_gap(j, LINE);
    kh_json_open_object(j, "calibration");
    kh_json_put_string(j, "method", kh_calibration_name(c->method));
    if (kh_calibration_votes(c->method))
        kh_json_put_number(j, "alpha", c->alpha, DIGITS);
    if (kh_calibration_affine(c->method))
        kh_json_put_number(j, "strength", c->strength, DIGITS);
    else
        kh_json_put_number(j, "temperature", c->temperature, DIGITS);
    kh_json_put_int(j, "rows", c->n);
    if (kh_calibration_affine(c->method)) {
        kh_json_gap(j, WITHIN);
        kh_json_put_numbers(j, "weight", c->weight, (size_t)c->n_label, DIGITS);
        kh_json_gap(j, WITHIN);
        kh_json_put_numbers(j, "bias", c->bias, (size_t)c->n_label, DIGITS);
    }
    kh_json_close(j);
}

/* The template that answers beside the samples. */
static void put_template(kh_json_out *j, const kh_posterior *p) {
    kh_json_gap(j, LINE);
    kh_json_open_object(j, "template");
    kh_json_put_number(j, "share", p->template_share, DIGITS);
    if (p->template_prior) {
        kh_json_gap(j, WITHIN);
        kh_json_put_numbers(j, "log_prior", p->template_prior, (size_t)p->task->n_label, DIGITS);
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
    if (p->features_cuts)
        kh_json_put_bool(j, "cuts", true);
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
    if (p->template_share > 0)
        put_template(&j, p);
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

/* ------------------------------------------------------------------------------------- reading
 *
 * By the sticky reader of base/json_in.h: parts ask for what they need, and what was refused first
 * stays. A part is not begun after a failure (kh_posterior_parse), so that p->task, which comes
 * early, is there for all that follow. Bounds are those of writing and of memory: a file from
 * elsewhere must not make anything large. */

typedef struct reader {
    kh_json_in in;
    kh_posterior *p;
} reader;

static void no_memory(reader *r) {
    if (r->in.rc == 0)
        r->in.rc = kh_fail_memory(r->in.err);
}

/* The result of looking a name up in a table, whose sentence gets the name of the file. */
static void found(reader *r, int rc) {
    if (rc != 0)
        r->in.rc = kh_err_prefix(r->in.err, "%s", r->in.name);
}

/* A string that lives as long as the posterior; NULL if it is absent or null. All of them are
 * names that are shown to people: what could command a terminal is gone before anybody prints. */
static const char *keep_string(reader *r, const json_t *obj, const char *key) {
    const char *s = kh_json_string_or(&r->in, obj, key, NULL);
    char *kept = s ? kh_arena_strndup(&r->p->arena, s, strlen(s)) : NULL;
    if (s && !kept)
        no_memory(r);
    if (kept)
        kh_hide_controls(kept);
    return kept;
}

static void read_projection(reader *r, const json_t *o) {
    kh_json_in *in = &r->in;
    kh_posterior *p = r->p;
    const char *entries = kh_json_get_string(in, o, "entries");
    if (in->rc == 0)
        found(r, kh_projection_find(&p->space.projection, entries, in->err));
    p->space.mean = kh_json_get_number(in, o, "mean");
    p->space.std = kh_json_get_number(in, o, "std");
    const char *generator = kh_json_get_string(in, o, "generator");
    if (strcmp(generator, KH_PROJECTION_GENERATOR) != 0)
        kh_json_refuse(in, KH_EUNSUPPORTED,
            "the projection was drawn by \"%s\", but this version draws by "
            "\"" KH_PROJECTION_GENERATOR "\"",
            generator);
    const json_t *seeds = kh_json_get_array(in, o, "seeds", (size_t)p->n);
    size_t n = json_array_size(seeds);
    if (n != 1 && n != (size_t)p->n)
        kh_json_refuse(in, KH_EFORMAT,
            "%zu seeds of projections for %d samples; there must be one, or as many as samples", n,
            p->n);
    if (in->rc == 0 && !kh_grow(&p->projection, &p->cap_seed, (size_t)p->n, sizeof *p->projection))
        no_memory(r);
    for (size_t i = 0; in->rc == 0 && i < (size_t)p->n; i++)
        p->projection[i] = kh_json_at_u64(in, seeds, n == 1 ? 0 : i, "seeds");
}

/* Where the slots stand; a file that does not say means the soft template, or the front. */
static void read_placement(reader *r, const json_t *o) {
    kh_space *s = &r->p->space;
    const char *placement = kh_json_string_or(&r->in, o, "placement", "template");
    bool after = strcmp(placement, "after-text") == 0;
    if (!after && strcmp(placement, "template") != 0)
        kh_json_refuse(
            &r->in, KH_EFORMAT, "\"%.40s\" is no place for the slots of a prompt", placement);
    s->placement = s->inject == KH_INJECT_EMBED_PREFIX ? KH_SLOTS_PREFIX : KH_SLOTS_TEMPLATE;
    if (after)
        s->placement = KH_SLOTS_AFTER;
}

/* The tokens whose embeddings the prompt starts from, one a slot. */
static void read_p0(reader *r, const json_t *o) {
    kh_space *s = &r->p->space;
    const json_t *p0 = kh_json_get_array(&r->in, o, "p0", MAX_SLOTS);
    if (json_array_size(p0) != (size_t)s->slots)
        kh_json_refuse(
            &r->in, KH_EFORMAT, "\"p0\" has %zu ids for %d slots", json_array_size(p0), s->slots);
    if (r->in.rc == 0 && !(s->slot_id = kh_calloc((size_t)s->slots, sizeof *s->slot_id)))
        no_memory(r);
    for (size_t i = 0; r->in.rc == 0 && i < (size_t)s->slots; i++)
        s->slot_id[i] = kh_json_at_int(&r->in, p0, i, "p0", 0, INT32_MAX);
}

static void read_space(reader *r, const json_t *root) {
    kh_json_in *in = &r->in;
    kh_space *s = &r->p->space;
    if (!json_object_get(root, "prompt"))
        return;
    r->p->soft = true;
    const json_t *o = kh_json_get_object(in, root, "prompt");
    const char *inject = kh_json_get_string(in, o, "inject");
    if (kh_inject_find(&s->inject, inject, NULL) != 0 || s->inject == KH_INJECT_NONE)
        kh_json_refuse(
            in, KH_EFORMAT, "\"%s\" is no way for a soft prompt to enter a model", inject);
    read_placement(r, o);
    s->slots = kh_json_get_int(in, o, "slots", 1, MAX_SLOTS);
    s->hidden = kh_json_get_int(in, o, "hidden", 1, MAX_HIDDEN);
    s->dim = kh_json_get_int(in, o, "dim", 1, MAX_DIM);
    long long whole = (long long)s->slots * s->hidden;
    if (s->dim > whole)
        kh_json_refuse(in, KH_EFORMAT, "dimension %d is larger than the prompt of %d x %d", s->dim,
            s->slots, s->hidden);
    read_p0(r, o);
    read_projection(r, kh_json_get_object(in, o, "projection"));
    if (s->projection == KH_PROJECTION_IDENTITY && s->dim != whole)
        kh_json_refuse(in, KH_EFORMAT,
            "dimension %d is not the %d x %d of the prompt, though no projection lies between",
            s->dim, s->slots, s->hidden);
}

static void read_demo_row(reader *r, const json_t *o, kh_row *row) {
    const kh_task *task = r->p->task;
    if (!json_is_object(o))
        kh_json_refuse(&r->in, KH_EFORMAT, "a demonstration must be an object");
    row->a = keep_string(r, o, "text");
    row->b = keep_string(r, o, "text_b");
    row->label = kh_json_get_int(&r->in, o, "label", 0, task->n_label - 1);
    if (!row->a || (row->b != NULL) != task->pair)
        kh_json_refuse(&r->in, KH_EFORMAT, "a demonstration must have %s",
            task->pair ? "\"text\" and \"text_b\"" : "\"text\" and no \"text_b\"");
    row->n_a = row->a ? strlen(row->a) : 0;
    row->n_b = row->b ? strlen(row->b) : 0;
}

static void read_order(reader *r, const json_t *order, int index) {
    kh_demos *d = &r->p->demos;
    int *to = d->order + (size_t)index * (size_t)d->n_shown;
    if (!json_is_array(order) || json_array_size(order) != (size_t)d->n_shown)
        kh_json_refuse(&r->in, KH_EFORMAT,
            "order %d of the demonstrations must be an array of %d rows, as the first is", index,
            d->n_shown);
    for (int i = 0; i < d->n_shown && r->in.rc == 0; i++)
        to[i] = kh_json_at_int(&r->in, order, (size_t)i, "orders", 0, d->n - 1);
}

static void read_demos(reader *r, const json_t *root) {
    kh_json_in *in = &r->in;
    kh_posterior *p = r->p;
    kh_demos *d = &p->demos;
    if (!json_object_get(root, "demonstrations"))
        return;
    const json_t *o = kh_json_get_object(in, root, "demonstrations");
    const json_t *rows = kh_json_get_array(in, o, "rows", MAX_ROWS);
    const json_t *orders = kh_json_get_array(in, o, "orders", (size_t)p->n);
    const json_t *first = json_array_get(orders, 0);
    if (json_array_size(orders) != (size_t)p->n || !json_is_array(first) ||
        json_array_size(first) > MAX_ROWS)
        kh_json_refuse(
            in, KH_EFORMAT, "\"orders\" must hold an array for each of %d samples", p->n);
    if (in->rc != 0)
        return;
    *d = (kh_demos){
        .n = (int)json_array_size(rows), .n_order = p->n, .n_shown = (int)json_array_size(first)
    };
    d->row = kh_arena_array(&p->arena, (size_t)d->n, sizeof *d->row);
    d->order = kh_arena_array(&p->arena, (size_t)d->n_order * (size_t)d->n_shown, sizeof *d->order);
    if (!d->row || !d->order)
        no_memory(r);
    for (int i = 0; i < d->n && in->rc == 0; i++)
        read_demo_row(r, json_array_get(rows, (size_t)i), &d->row[i]);
    for (int i = 0; i < d->n_order && in->rc == 0; i++)
        read_order(r, json_array_get(orders, (size_t)i), i);
}

/* What kind a sample is of is said by one part alone. */
static void read_texts(reader *r, const json_t *root) {
    if (!json_object_get(root, "texts"))
        return;
    if (r->p->soft || r->p->demos.n_order > 0)
        kh_json_refuse(
            &r->in, KH_EFORMAT, "\"texts\" cannot stand beside \"prompt\" or \"demonstrations\"");
    const json_t *o = kh_json_get_object(&r->in, root, "texts");
    if (r->in.rc == 0)
        r->in.rc = kh_texts_parse(r->p, o, r->in.name, r->in.err);
}

/* An adapter of the kinds that are heads on the model's states. */
static void read_adapter_head(reader *r, const json_t *o, const char *kind) {
    kh_adapter *g = &r->p->adapter;
    int n_label = r->p->task->n_label;
    const char *pool = kh_json_get_string(&r->in, o, "states");
    if (r->in.rc == 0)
        found(r, kh_pool_find(&g->pool, pool, r->in.err));
    if (g->kind != KH_ADAPTER_LINEAR)
        g->inner = kh_json_get_int(&r->in, o, "inner", 1, MAX_HIDDEN);
    g->labels = kh_json_get_int(&r->in, o, "labels", n_label, n_label);
    if ((g->pool == KH_POOL_ALL) != (g->kind == KH_ADAPTER_BILSTM))
        kh_json_refuse(
            &r->in, KH_EFORMAT, "a head of kind %s cannot read the states \"%s\"", kind, pool);
}

/* An adapter brings its own access level, and no level comes without it. ("graft" is what version
 * 0.1 called it.) */
static void read_adapter(reader *r, const json_t *root) {
    kh_json_in *in = &r->in;
    const kh_posterior *p = r->p;
    kh_adapter *g = &r->p->adapter;
    bool there = json_object_get(root, "graft"), open = p->access == KH_ACCESS_WEIGHTS;
    if (there != open ||
        (there && (p->n != 1 || p->soft || p->demos.n_order > 0 || p->texts.n > 0)))
        kh_json_refuse(in, KH_EFORMAT,
            "\"access\" must be weights if there is a \"graft\", and only then; it is one sample");
    if (!there || in->rc != 0)
        return;
    const json_t *o = kh_json_get_object(in, root, "graft");
    const char *kind = kh_json_get_string(in, o, "kind");
    if (in->rc == 0)
        found(r, kh_adapter_find(&g->kind, kind, in->err));
    g->hidden = kh_json_get_int(in, o, "hidden", 1, MAX_HIDDEN);
    if (g->kind == KH_ADAPTER_PREFIX) {
        g->layers = kh_json_get_int(in, o, "layers", 1, MAX_LAYERS);
        g->slots = kh_json_get_int(in, o, "slots", 1, MAX_SLOTS);
    } else
        read_adapter_head(r, o, kind);
}

/* A part of the file as text again, for those who read JSON themselves; free() it. NULL: failed. */
static char *dump(reader *r, const json_t *root, const char *key) {
    const json_t *o = kh_json_get_object(&r->in, root, key);
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (o && !text)
        no_memory(r);
    return text;
}

static void read_task(reader *r, const json_t *root) {
    char *text = dump(r, root, "task");
    if (text)
        r->in.rc = kh_task_parse(&r->p->task, text, strlen(text), r->in.name, r->in.err);
    free(text);
}

static void read_options(reader *r, const json_t *root) {
    char *text = dump(r, root, "options");
    if (text && !(r->p->options = kh_posterior_keep(r->p, text)))
        no_memory(r);
    free(text);
}

/* The weights or biases of an affine calibration, within the bounds of fitting. */
static double *read_list(reader *r, const json_t *o, const char *key, int n) {
    const json_t *list = json_object_get(o, key);
    double *x = r->in.rc == 0 ? kh_malloc((size_t)n * sizeof *x) : NULL;
    bool good = json_is_array(list) && json_array_size(list) == (size_t)n;
    if (!x)
        no_memory(r);
    for (int k = 0; k < n && good && x; k++) {
        const json_t *v = json_array_get(list, (size_t)k);
        x[k] = json_number_value(v);
        good = json_is_number(v) && fabs(x[k]) <= KH_WEIGHT_MAX;
    }
    if (!good)
        kh_json_refuse(&r->in, KH_EFORMAT,
            "\"%s\" of \"calibration\" must be %d numbers from %g to %g", key, n, -KH_WEIGHT_MAX,
            KH_WEIGHT_MAX);
    return x;
}

static void read_affine(reader *r, const json_t *o) {
    kh_calibrator *c = &r->p->calibrator;
    c->strength = kh_json_get_number(&r->in, o, "strength");
    if (!(c->strength >= 0 && c->strength <= 1e6))
        kh_json_refuse(
            &r->in, KH_EFORMAT, "\"calibration\" has strength %g, expected 0 to 1e6", c->strength);
    c->weight = read_list(r, o, "weight", c->n_label);
    c->bias = read_list(r, o, "bias", c->n_label);
}

static void read_votes(reader *r, const json_t *o) {
    kh_calibrator *c = &r->p->calibrator;
    c->alpha = kh_json_get_number(&r->in, o, "alpha");
    if (!(c->alpha >= 1e-300 && c->alpha <= 1e300))
        kh_json_refuse(
            &r->in, KH_EFORMAT, "\"calibration\" has alpha %g, expected more than 0", c->alpha);
}

static void read_temperature(reader *r, const json_t *o) {
    kh_calibrator *c = &r->p->calibrator;
    c->temperature = kh_json_get_number(&r->in, o, "temperature");
    if (!(c->temperature >= KH_T_MIN && c->temperature <= KH_T_MAX))
        kh_json_refuse(&r->in, KH_EFORMAT, "\"calibration\" has temperature %g, expected %g to %g",
            c->temperature, KH_T_MIN, KH_T_MAX);
}

/* Checked as strictly as what was fitted. Samples that vote have votes calibrated, and no others.
 */
static void read_calibration(reader *r, const json_t *root) {
    kh_calibrator *c = &r->p->calibrator;
    if (!json_object_get(root, "calibration"))
        return;
    bool votes = r->p->access == KH_ACCESS_LABELS;
    *c = (kh_calibrator){
        .method = kh_calibration_of(votes), .n_label = r->p->task->n_label, .temperature = 1
    };
    const json_t *o = kh_json_get_object(&r->in, root, "calibration");
    const char *method = kh_json_get_string(&r->in, o, "method");
    if (votes && strcmp(method, kh_calibration_name(KH_CALIBRATE_VOTES)) == 0)
        c->method = KH_CALIBRATE_VOTES; /* as before 0.2.0 */
    if (strcmp(method, kh_calibration_name(c->method)) != 0)
        kh_json_refuse(&r->in, KH_EFORMAT,
            "\"calibration\" must be by votes if \"access\" is labels, and affine if not");
    c->n = kh_json_get_int(&r->in, o, "rows", 1, INT32_MAX);
    if (votes)
        read_votes(r, o);
    if (kh_calibration_affine(c->method))
        read_affine(r, o);
    else
        read_temperature(r, o);
    r->p->calibrated = r->in.rc == 0;
}

/* What else a search had tried is kept as it stands, without its brackets: people read it. */
static void read_tried(reader *r, const json_t *root) {
    if (!json_object_get(root, "tried"))
        return;
    const json_t *list = kh_json_get_array(&r->in, root, "tried", MAX_ROWS);
    char *text = list ? json_dumps(list, JSON_REAL_PRECISION(17)) : NULL;
    size_t n = text ? strlen(text) : 0;
    if (n >= 2) {
        text[n - 1] = '\0';
        r->p->tried = kh_posterior_keep(r->p, text + 1);
    }
    if (!r->p->tried)
        no_memory(r);
    free(text);
}

/* A prior over labels: logarithms of numbers that add up to one. */
static void read_log_prior(reader *r, const json_t *row, const char *whose, double *to) {
    int n_label = r->p->task->n_label;
    double total = 0;
    bool good = json_is_array(row) && json_array_size(row) == (size_t)n_label;
    for (int k = 0; k < n_label && good; k++) {
        const json_t *v = json_array_get(row, (size_t)k);
        to[k] = json_is_number(v) ? json_number_value(v) : NAN;
        total += exp(to[k]);
        good = isfinite(to[k]);
    }
    if (!good || !(fabs(total - 1) < 1e-6)) /* 17 digits keep far more */
        kh_json_refuse(&r->in, KH_EFORMAT,
            "the %s must be %d logarithms of probabilities that add up to one", whose, n_label);
}

static void read_label_prior(reader *r, const json_t *root) {
    kh_json_in *in = &r->in;
    kh_posterior *p = r->p;
    if (!json_object_get(root, "label_prior"))
        return;
    const json_t *o = kh_json_get_object(in, root, "label_prior");
    const char *method = kh_json_get_string(in, o, "method");
    for (int i = KH_LABEL_PRIOR_BATCH; i <= KH_LABEL_PRIOR_CONTEXTUAL; i++)
        if (strcmp(method, kh_label_prior_name((kh_label_prior)i)) == 0)
            p->label_prior = (kh_label_prior)i;
    if (p->label_prior == KH_LABEL_PRIOR_NONE || p->access != KH_ACCESS_LOGPROBS)
        kh_json_refuse(in, KH_EFORMAT,
            "\"label_prior\" must be batch or contextual, of a posterior whose access is logprobs");
    p->prior_rows = kh_json_get_int(in, o, "rows", 1, INT32_MAX);
    const json_t *rows = kh_json_get_array(in, o, "log", (size_t)p->n);
    if (json_array_size(rows) != (size_t)p->n)
        kh_json_refuse(in, KH_EFORMAT, "\"label_prior\" has %zu samples, the posterior %d",
            json_array_size(rows), p->n);
    if (in->rc == 0 &&
        !(p->log_prior = kh_arena_array(
              &p->arena, (size_t)p->n * (size_t)p->task->n_label, sizeof *p->log_prior)))
        no_memory(r);
    for (int s = 0; s < p->n && in->rc == 0; s++) {
        char whose[48];
        snprintf(whose, sizeof whose, "\"label_prior\" of sample %d", s);
        read_log_prior(r, json_array_get(rows, (size_t)s), whose,
            p->log_prior + (size_t)s * (size_t)p->task->n_label);
    }
}

/* It may have a prior over labels of its own, and samples that answer with words theirs: text
 * prompts are corrected also where the template was asked as it is. */
static void read_template(reader *r, const json_t *root) {
    kh_posterior *p = r->p;
    if (!json_object_get(root, "template"))
        return;
    const json_t *o = kh_json_get_object(&r->in, root, "template"),
                 *prior = json_object_get(o, "log_prior");
    p->template_share = kh_json_get_number(&r->in, o, "share");
    if (!(p->template_share > 0 && p->template_share < 1))
        kh_json_refuse(&r->in, KH_EFORMAT,
            "\"share\" of \"template\" is %g, expected more than 0 and less than 1",
            p->template_share);
    if (!prior || r->in.rc != 0)
        return;
    p->template_prior =
        kh_arena_array(&p->arena, (size_t)p->task->n_label, sizeof *p->template_prior);
    if (!p->template_prior)
        no_memory(r);
    else
        read_log_prior(r, prior, "\"log_prior\" of the template", p->template_prior);
}

/* Positive numbers that add up to one; NULL if they are not there. */
static double *read_shares(reader *r, const json_t *o, const char *key) {
    int n = r->p->task->n_label;
    const json_t *list = json_object_get(o, key);
    double sum = 0, *share = list ? kh_arena_array(&r->p->arena, (size_t)n, sizeof *share) : NULL;
    if (list && !share)
        no_memory(r);
    if (!share)
        return NULL;
    bool good = json_is_array(list) && json_array_size(list) == (size_t)n;
    for (int k = 0; k < n && good; k++) {
        share[k] = json_number_value(json_array_get(list, (size_t)k));
        good = share[k] > 0;
        sum += share[k];
    }
    if (!good || !(fabs(sum - 1) < 1e-6))
        kh_json_refuse(&r->in, KH_EFORMAT,
            "\"%s\" of \"classes\" must be %d positive numbers that add up to one", key, n);
    return share;
}

static void read_classes(reader *r, const json_t *root) {
    if (!json_object_get(root, "classes"))
        return;
    const json_t *o = kh_json_get_object(&r->in, root, "classes");
    r->p->class_share = read_shares(r, o, "share");
    r->p->class_prior = read_shares(r, o, "prior");
}

static void read_features(reader *r, const json_t *root) {
    kh_posterior *p = r->p;
    if (!json_object_get(root, "features"))
        return;
    const json_t *o = kh_json_get_object(&r->in, root, "features");
    p->features_model = keep_string(r, o, "model");
    p->features_fingerprint = kh_json_get_hex(&r->in, o, "fingerprint");
    p->n_features = kh_json_get_int(&r->in, o, "rows", 1, MAX_ROWS);
    p->features_size = kh_json_get_int(&r->in, o, "size", 1, MAX_HIDDEN + 1);
    p->features_cuts = json_is_true(json_object_get(o, "cuts"));
}

static void read_model(reader *r, const json_t *root) {
    kh_posterior *p = r->p;
    const json_t *o = kh_json_get_object(&r->in, root, "model");
    p->model = keep_string(r, o, "path");
    p->backend = keep_string(r, o, "backend");
    p->precision = keep_string(r, o, "precision");
    p->kernels = keep_string(r, o, "kernels");
    p->fingerprint = kh_json_get_hex(&r->in, o, "fingerprint");
    p->tokenizer = kh_json_get_hex(&r->in, o, "tokenizer");
}

static void read_passes(reader *r, const json_t *root) {
    if (!json_object_get(root, "passes"))
        return;
    const json_t *o = kh_json_get_object(&r->in, root, "passes");
    r->p->forward = (long long)kh_json_get_u64(&r->in, o, "forward");
    r->p->backward = (long long)kh_json_get_u64(&r->in, o, "backward");
}

static void read_score(reader *r, const json_t *root) {
    r->p->score = NAN;
    if (!json_object_get(root, "score"))
        return;
    const json_t *o = kh_json_get_object(&r->in, root, "score");
    r->p->score = kh_json_get_number(&r->in, o, "nll");
    r->p->score_rows = kh_json_get_int(&r->in, o, "rows", 1, INT32_MAX);
}

static void read_costs(reader *r, const json_t *root) {
    kh_posterior *p = r->p;
    const json_t *data = kh_json_get_object(&r->in, root, "data");
    p->data = keep_string(r, data, "path");
    p->shots = kh_json_get_int(&r->in, data, "shots", 0, INT32_MAX);
    p->train_rows = kh_json_get_int(&r->in, data, "train_rows", 0, INT32_MAX);
    p->dev_rows = kh_json_get_int(&r->in, data, "dev_rows", 0, INT32_MAX);
    const json_t *queries = kh_json_get_object(&r->in, root, "queries");
    p->train_queries = (long long)kh_json_get_u64(&r->in, queries, "train");
    p->dev_queries = (long long)kh_json_get_u64(&r->in, queries, "dev");
    read_passes(r, root);
    p->dev = kh_json_get_number(&r->in, root, "dev");
    read_score(r, root);
    p->stopped = keep_string(r, root, "stopped");
}

static void read_access(reader *r, const json_t *root) {
    const char *access = kh_json_get_string(&r->in, root, "access");
    int level = KH_ACCESS_LABELS;
    while (level <= KH_ACCESS_WEIGHTS && strcmp(access, kh_access_name((kh_access)level)) != 0)
        level++;
    if (level > KH_ACCESS_WEIGHTS)
        kh_json_refuse(&r->in, KH_EFORMAT,
            "\"access\" must be labels, logprobs or weights, not \"%s\"", access);
    else
        r->p->access = (kh_access)level;
}

static void read_head(reader *r, const json_t *root, uint64_t *samples) {
    kh_json_in *in = &r->in;
    kh_posterior *p = r->p;
    int format = kh_json_get_int(in, root, "format", 1, INT32_MAX);
    if (format > FORMAT)
        kh_json_refuse(in, KH_EUNSUPPORTED,
            "written in format %d by a later keyhole; this one reads up to %d", format, FORMAT);
    p->version = keep_string(r, root, "keyhole");
    p->method = keep_string(r, root, "method");
    if (!p->method)
        kh_json_refuse(in, KH_EFORMAT, "\"method\" is missing");
    read_access(r, root);
    p->seed = kh_json_get_u64(in, root, "seed");
    p->paper_exact = kh_json_get_bool(in, root, "paper_exact");
    p->n = kh_json_get_int(in, root, "samples", 1, MAX_SAMPLES);
    *samples = kh_json_get_hex(in, root, "samples_hash");
}

int kh_posterior_parse(
    kh_posterior *p, const char *text, size_t n, const char *name, uint64_t *samples, kh_err *err) {
    json_t *root;
    kh_err own;
    reader r = { .in = { .name = name, .err = err ? err : &own }, .p = p };
    r.in.rc = kh_json_parse(text, n, name, &root, r.in.err);
    if (!json_is_object(root))
        kh_json_refuse(&r.in, KH_EFORMAT, "must hold a JSON object");
    read_head(&r, root, samples);
    void (*const parts[])(reader *, const json_t *) = { read_options, read_task, read_space,
        read_demos, read_texts, read_adapter, read_calibration, read_label_prior, read_template,
        read_classes, read_features, read_model, read_costs, read_tried };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && r.in.rc == 0; i++)
        parts[i](&r, root);
    json_decref(root);
    return r.in.rc;
}
