/* prediction.c - see prediction.h. One place decides what a record holds and in which order, so
 * that a row is told in the same words by "keyhole predict", by "keyhole eval --rows-out" and by
 * the server, and a reader of one is a reader of all. */
#include "posterior/prediction.h"

#include <math.h>
#include <string.h>

enum { DIGITS = 9 }; /* of numbers: what a float needs to be read back as it was */

/* What is not known is NaN or NULL, never 0: readers of JSON get null. A row that a service refused
 * has no label and no distribution. */
kh_prediction kh_prediction_of(const kh_task *task, const kh_row *row, const kh_explained *said,
    int i, const kh_decisions *decisions, bool *in) {
    size_t n = (size_t)task->n_label;
    kh_decomposition parts = kh_explained_parts(said, i, task->n_label);
    kh_prediction a = { .task = task,
        .row = row,
        .p = said->p + (size_t)i * n,
        .votes = said->votes ? said->votes + (size_t)i * n : NULL,
        .entropy = parts.total,
        .ambiguity = parts.ambiguity,
        .disagreement = parts.disagreement,
        .energy = said->energy ? said->energy[i] : NAN,
        .distance = said->distance ? said->distance[i] : NAN,
        .in = in };
    bool refused = isnan(a.p[0]);
    a.best = refused ? -1 : kh_predicted(a.p, task->n_label);
    a.confidence = refused ? NAN : a.p[a.best];
    /* Without decisions there is still a score to sort by. */
    double outside = isnan(a.distance) ? a.energy : a.distance;
    a.d = (kh_decision){ .ood_score = isnan(outside) ? 1 - a.confidence : outside, .set_size = -1 };
    if (refused)
        a.votes = NULL;
    if (decisions && !refused) {
        a.d = kh_decide(decisions, row, a.p, kh_outside(decisions, a.energy, a.distance), in);
        a.knows_abstain = decisions->opts.max_risk > 0 || a.d.foreign;
        a.knows_set = a.d.set_size >= 0;
        a.knows_ood = isfinite(decisions->ood);
    }
    return a;
}

static const char *label_name(const kh_prediction *a, int k) {
    return k >= 0 && k < a->task->n_label ? a->task->label[k].name : NULL;
}

/* ---------------------------------------------------------------------------------------- JSON */

static void put_number(kh_json_out *j, const char *key, double x) {
    if (isfinite(x))
        kh_json_put_number(j, key, x, DIGITS);
    else
        kh_json_put_null(j, key);
}

static void put_flag(kh_json_out *j, const char *key, bool known, bool x) {
    if (known)
        kh_json_put_bool(j, key, x);
    else
        kh_json_put_null(j, key);
}

static void put_set(kh_json_out *j, const kh_prediction *a) {
    if (!a->knows_set) {
        kh_json_put_null(j, "set");
        return;
    }
    kh_json_open_array(j, "set");
    for (int k = 0; k < a->task->n_label; k++)
        if (a->in[k])
            kh_json_put_string(j, NULL, a->task->label[k].name);
    kh_json_close(j);
}

static void put_classes(kh_json_out *j, const char *key, const kh_prediction *a, const double *x) {
    if (!x) {
        kh_json_put_null(j, key);
        return;
    }
    kh_json_open_object(j, key);
    for (int k = 0; k < a->task->n_label; k++)
        put_number(j, a->task->label[k].name, x[k]);
    kh_json_close(j);
}

void kh_prediction_members(const kh_prediction *a, const kh_prediction_view *v, kh_json_out *j) {
    if (v->rows)
        kh_json_put_string(j, "rows", v->rows);
    if (v->line)
        kh_json_put_int(j, "line", a->row->line);
    if (v->truth)
        kh_json_put_string(j, "true", label_name(a, a->row->label));
    kh_json_put_string(j, "label", label_name(a, a->best));
    put_number(j, "confidence", a->confidence);
    put_number(j, "entropy", a->entropy);
    put_number(j, "ambiguity", a->ambiguity);
    put_number(j, "disagreement", a->disagreement);
    put_number(j, "energy", a->energy);
    put_flag(j, "abstain", a->knows_abstain, a->d.abstain);
    put_set(j, a);
    put_number(j, "ood_score", a->d.ood_score);
    put_flag(j, "ood", a->knows_ood, a->d.foreign);
    put_classes(j, "distribution", a, a->best < 0 ? NULL : a->p);
    put_classes(j, "votes", a, a->votes);
    if (v->text)
        kh_json_put_text(j, a->row->b ? "text_a" : "text", a->row->a, a->row->n_a);
    if (v->text && a->row->b)
        kh_json_put_text(j, "text_b", a->row->b, a->row->n_b);
}

void kh_prediction_json(
    const kh_prediction *a, const kh_prediction_view *v, kh_json_out *j, const char *key) {
    kh_json_open_object(j, key);
    kh_prediction_members(a, v, j);
    kh_json_close(j);
}

/* --------------------------------------------------------------------------------------- table */

/* Tabs and line breaks would break the table. A table has no quoting. */
static void put_field(kh_buf *b, const char *s, size_t n) {
    kh_buf_char(b, '\t');
    for (size_t i = 0; i < n; i++)
        kh_buf_char(b, strchr("\t\n\r", s[i]) ? ' ' : s[i]);
}

static void put_cell(kh_buf *b, double x) {
    kh_buf_char(b, '\t');
    if (isfinite(x))
        kh_buf_printf(b, "%.*g", DIGITS, x);
}

static void put_yes(kh_buf *b, bool known, bool x) {
    const char *word = x ? "\tyes" : "\tno";
    kh_buf_text(b, known ? word : "\t");
}

void kh_prediction_tsv_head(const kh_task *task, const kh_prediction_view *v, kh_buf *b) {
    kh_buf_text(b,
        "line\tlabel\tconfidence\tentropy\tambiguity\tdisagreement\tabstain\tset\tenergy\tood_"
        "score\tood");
    for (int k = 0; k < task->n_label; k++) {
        kh_buf_text(b, "\tp_");
        kh_buf_text(b, task->label[k].name);
    }
    if (v->text)
        kh_buf_text(b, task->pair ? "\ttext_a\ttext_b" : "\ttext");
    kh_buf_char(b, '\n');
}

void kh_prediction_tsv(const kh_prediction *a, const kh_prediction_view *v, kh_buf *b) {
    const double before[] = { a->confidence, a->entropy, a->ambiguity, a->disagreement };
    kh_buf_printf(b, "%ld\t%s", a->row->line, a->best < 0 ? "" : label_name(a, a->best));
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++)
        put_cell(b, before[i]);
    put_yes(b, a->knows_abstain, a->d.abstain);
    kh_buf_char(b, '\t');
    for (int k = 0, n = 0; a->knows_set && k < a->task->n_label; k++)
        if (a->in[k])
            kh_buf_printf(b, "%s%s", n++ ? "|" : "", a->task->label[k].name);
    put_cell(b, a->energy);
    put_cell(b, a->d.ood_score);
    put_yes(b, a->knows_ood, a->d.foreign);
    for (int k = 0; k < a->task->n_label; k++)
        put_cell(b, a->p[k]);
    if (v->text)
        put_field(b, a->row->a, a->row->n_a);
    if (v->text && a->row->b)
        put_field(b, a->row->b, a->row->n_b);
    kh_buf_char(b, '\n');
}
