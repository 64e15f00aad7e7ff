/* text_json.c - the part of posterior.json that holds text prompts: what stands in it is what is
 * asked with, and what a person reads.
 *
 *     "texts": {"rows": [{"text": ..., "label": 0}, ...],
 *       "prompts": [{"instruction": ..., "template": ..., "words": [["bad"], ["great"]],
 *                    "demonstrations": [0, 3]}, ...]}
 *
 * Weights are in the other file, in the same order. */
#include "posterior/text_json.h"

#include "base/err.h"
#include "base/json_in.h"
#include "base/json_out.h"
#include "data/template.h"

#include <string.h>

enum { ROWS_MOST = 1 << 20, DEMOS_MOST = 1 << 10, WORDS_MOST = 1 << 10 };

/* ------------------------------------------------------------------------------------- writing */

void kh_rows_json(const kh_row *row, int n, kh_json_out *j) {
    kh_json_open_array(j, "rows");
    for (int i = 0; i < n; i++) {
        kh_json_gap(j, "\n    ");
        kh_json_open_object(j, NULL);
        kh_json_put_text(j, "text", row[i].a, row[i].n_a);
        if (row[i].b)
            kh_json_put_text(j, "text_b", row[i].b, row[i].n_b);
        kh_json_put_int(j, "label", row[i].label);
        kh_json_close(j);
    }
    kh_json_close(j);
}

static void put_prompt(kh_json_out *j, const kh_text_prompt *p, int n_label) {
    kh_json_gap(j, "\n    ");
    kh_json_open_object(j, NULL);
    kh_json_put_string(j, "instruction", p->instruction);
    kh_json_put_string(j, "template", p->template);
    kh_json_open_array(j, "words");
    for (int k = 0; k < n_label; k++) {
        kh_json_open_array(j, NULL);
        for (int w = 0; w < p->label[k].n_word; w++)
            kh_json_put_string(j, NULL, p->label[k].word[w]);
        kh_json_close(j);
    }
    kh_json_close(j);
    kh_json_open_array(j, "demonstrations");
    for (int i = 0; i < p->n_demo; i++)
        kh_json_put_int(j, NULL, p->demo[i]);
    kh_json_close(j);
    kh_json_close(j);
}

void kh_texts_json(const kh_posterior *p, kh_json_out *j) {
    kh_json_gap(j, "\n  ");
    kh_json_open_object(j, "texts");
    kh_rows_json(p->texts.row, p->texts.n_row, j);
    kh_json_gap(j, "\n   ");
    kh_json_open_array(j, "prompts");
    for (int i = 0; i < p->texts.n; i++)
        put_prompt(j, &p->texts.prompt[i], p->task->n_label);
    kh_json_close(j);
    kh_json_close(j);
}

/* ------------------------------------------------------------------------------------- reading */

static void read_row(kh_json_in *r, kh_posterior *p, const json_t *o, kh_row *row) {
    const char *a = kh_json_get_string(r, o, "text"), *b = kh_json_string_or(r, o, "text_b", NULL);
    *row = (kh_row){ .label = kh_json_get_int(r, o, "label", 0, p->task->n_label - 1) };
    if (r->rc == 0 && (b != NULL) != p->task->pair)
        kh_json_refuse(r, KH_EFORMAT, "a row that is shown must have %s",
            p->task->pair ? "\"text\" and \"text_b\"" : "\"text\" and no \"text_b\"");
    row->a = kh_posterior_keep(p, a);
    row->b = b ? kh_posterior_keep(p, b) : NULL;
    if (r->rc == 0 && (!row->a || (b && !row->b)))
        r->rc = kh_fail_memory(r->err);
    row->n_a = row->a ? strlen(row->a) : 0;
    row->n_b = row->b ? strlen(row->b) : 0;
}

/* The words of a label: at least one, and no empty one. Borrowed. */
static void read_words(kh_json_in *r, const json_t *list, kh_label *label, kh_arena *scratch) {
    size_t n = json_array_size(list);
    const char **word = NULL;
    if (!json_is_array(list) || n < 1 || n > WORDS_MOST)
        kh_json_refuse(r, KH_EFORMAT, "\"words\" of a prompt must be lists of words, one a label");
    else if (!(word = kh_arena_array(scratch, n, sizeof *word)))
        r->rc = kh_fail_memory(r->err);
    for (size_t i = 0; r->rc == 0 && i < n; i++) {
        word[i] = json_string_value(json_array_get(list, i));
        if (!word[i] || !*word[i])
            kh_json_refuse(r, KH_EFORMAT, "a label word of a prompt is empty or no string");
    }
    label->word = word;
    label->n_word = r->rc == 0 ? (int)n : 0;
}

static void read_prompt(kh_json_in *r, kh_posterior *p, const json_t *o) {
    int n_label = p->task->n_label;
    kh_arena scratch = { 0 };
    kh_template parsed;
    kh_text_prompt t = { .instruction = kh_json_get_string(r, o, "instruction"),
        .template = kh_json_get_string(r, o, "template") };
    const json_t *words = kh_json_get_array(r, o, "words", (size_t)n_label),
                 *demos = kh_json_get_array(r, o, "demonstrations", DEMOS_MOST);
    kh_label *label = kh_arena_array(&scratch, (size_t)n_label, sizeof *label);
    t.n_demo = r->rc == 0 ? (int)json_array_size(demos) : 0;
    int *demo = kh_arena_array(&scratch, (size_t)t.n_demo + 1, sizeof *demo);
    if (r->rc == 0 && (!label || !demo))
        r->rc = kh_fail_memory(r->err);
    if (r->rc == 0 && json_array_size(words) != (size_t)n_label)
        kh_json_refuse(r, KH_EFORMAT, "\"words\" of a prompt must be lists of words, one a label");
    for (int k = 0; k < n_label && r->rc == 0; k++) {
        label[k].name = p->task->label[k].name;
        read_words(r, json_array_get(words, (size_t)k), &label[k], &scratch);
    }
    for (int i = 0; i < t.n_demo && r->rc == 0; i++)
        demo[i] = kh_json_at_int(r, demos, (size_t)i, "demonstrations", 0, p->texts.n_row - 1);
    if (r->rc == 0)
        r->rc = kh_template_parse(&parsed, t.template, r->name, r->err);
    if (r->rc == 0 && (parsed.prompt || parsed.pair != p->task->pair))
        kh_json_refuse(r, KH_EFORMAT, "the template \"%.80s\" must hold %s and no {prompt}",
            t.template, p->task->pair ? "{text_a} and {text_b}" : "{text}");
    t.label = label;
    t.demo = demo;
    if (r->rc == 0)
        r->rc = kh_text_prompts_add(&p->texts, &p->arena, &t, n_label, &p->cap_text, r->err);
    kh_arena_free(&scratch);
}

int kh_texts_parse(kh_posterior *p, const json_t *texts, const char *name, kh_err *err) {
    kh_json_in r = { name, err, 0 };
    const json_t *rows = kh_json_get_array(&r, texts, "rows", ROWS_MOST),
                 *prompts = kh_json_get_array(&r, texts, "prompts", (size_t)p->n);
    int n_row = r.rc == 0 ? (int)json_array_size(rows) : 0;
    if (r.rc == 0 && json_array_size(prompts) != (size_t)p->n)
        kh_json_refuse(&r, KH_EFORMAT, "\"prompts\" has %zu text prompts for %d samples",
            json_array_size(prompts), p->n);
    p->texts.row = kh_arena_array(&p->arena, (size_t)n_row + 1, sizeof *p->texts.row);
    if (r.rc == 0 && !p->texts.row)
        r.rc = kh_fail_memory(err);
    for (int i = 0; i < n_row && r.rc == 0; i++)
        read_row(&r, p, json_array_get(rows, (size_t)i), &p->texts.row[i]);
    p->texts.n_row = n_row;
    for (int i = 0; i < p->n && r.rc == 0; i++)
        read_prompt(&r, p, json_array_get(prompts, (size_t)i));
    return r.rc;
}
