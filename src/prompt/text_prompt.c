/* text_prompt.c - see text_prompt.h.
 *
 * Instruction, demonstrations, row: the order in which people write prompts. What is written is a
 * template again, so that a text prompt goes through the same encoding, cutting and checking as a
 * task's own template does. */
#include "prompt/text_prompt.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/utf8.h"
#include "data/template.h"
#include "prompt/demos.h"

#include <string.h>

/* ------------------------------------------------------------------------------------- writing */

/* Braces of a person's sentence are doubled, or they would be read as places of the template. */
static void put_literal(kh_buf *out, const char *s) {
    for (; *s; s++) {
        if (*s == '{' || *s == '}')
            kh_buf_char(out, *s);
        kh_buf_char(out, *s);
    }
}

/* omit: a demonstration to leave out, -1 for none (see tune/text_box.c). then: another template for
 * the row in question, whose texts are of another task. */
void kh_text_prompt_write(const kh_text_prompt *p, const kh_task *task, const kh_row *rows,
    int omit, const char *then, kh_buf *out) {
    kh_template t;
    kh_task own = *task;
    own.label = p->label;
    if (kh_template_parse(&t, p->template, task->name, NULL) != 0) { /* was parsed before */
        out->failed = true;
        return;
    }
    if (*p->instruction) {
        put_literal(out, p->instruction);
        kh_buf_char(out, '\n');
    }
    for (int i = 0; i < p->n_demo; i++)
        if (p->demo[i] != omit) {
            kh_demo_write(out, &t, &own, &rows[p->demo[i]]);
            kh_buf_char(out, '\n');
        }
    kh_buf_text(out, then ? then : p->template);
}

int kh_text_prompt_task(const kh_text_prompt *p, const kh_task *task, const kh_row *rows, int omit,
    const char *then, kh_buf *text, kh_task *out, kh_err *err) {
    *text = kh_buf_init(KH_BUF_MAX);
    kh_text_prompt_write(p, task, rows, omit, then, text);
    *out = *task;
    out->label = p->label;
    out->plain = out->next_plain = text->data;
    return kh_buf_failed(text) ? kh_fail_memory(err) : 0;
}

/* What a person puts in place of the braces. */
static const char *const PLACE[] = { [KH_SEGMENT_A] = "[TEXT]",
    [KH_SEGMENT_B] = "[SECOND TEXT]",
    [KH_SEGMENT_MASK] = "[ANSWER]",
    [KH_SEGMENT_PROMPT] = "" };

/* For people: what they would paste into a chat, and which words count as which label. */
void kh_text_prompt_show(
    const kh_text_prompt *p, const kh_task *task, const kh_row *rows, kh_buf *out) {
    kh_buf whole = kh_buf_init(KH_BUF_MAX);
    kh_template t;
    kh_text_prompt_write(p, task, rows, -1, NULL, &whole);
    if (kh_buf_failed(&whole) || kh_template_parse(&t, whole.data, task->name, NULL) != 0)
        out->failed = true;
    else
        for (int i = 0; i < t.n; i++)
            if (t.part[i].kind == KH_SEGMENT_LITERAL)
                kh_template_literal(out, &t.part[i]);
            else
                kh_buf_text(out, PLACE[t.part[i].kind]);
    kh_buf_text(out, "\n[ANSWER] is");
    for (int k = 0; k < task->n_label; k++) {
        const kh_label *l = &p->label[k];
        kh_buf_text(out, k ? ", or" : " one of");
        for (int w = 0; w < l->n_word; w++)
            kh_buf_printf(out, "%s \"%s\"", w ? " /" : "", l->word[w]);
        if (l->n_word > 1 || strcmp(l->word[0], l->name) != 0)
            kh_buf_printf(out, " (%s)", l->name);
    }
    kh_buf_char(out, '\n');
    kh_buf_free(&whole);
}

/* ------------------------------------------------------------------------------------- copying */

static char *keep_text(kh_arena *a, const char *s) { return kh_arena_strndup(a, s, strlen(s)); }

static const kh_label *copy_labels(kh_arena *a, const kh_label *from, int n) {
    kh_label *to = kh_arena_array(a, (size_t)n, sizeof *to);
    for (int k = 0; to && k < n; k++) {
        const char **word = kh_arena_array(a, (size_t)from[k].n_word, sizeof *word);
        to[k] = (kh_label){
            .name = keep_text(a, from[k].name), .word = word, .n_word = from[k].n_word
        };
        for (int w = 0; word && w < from[k].n_word; w++)
            if (!(word[w] = keep_text(a, from[k].word[w])))
                return NULL;
        if (!word || !to[k].name)
            return NULL;
    }
    return to;
}

int kh_text_prompts_add(kh_text_prompts *to, kh_arena *a, const kh_text_prompt *p, int n_label,
    size_t *cap, kh_err *err) {
    int *demo = kh_arena_array(a, (size_t)p->n_demo + 1, sizeof *demo);
    if ((size_t)to->n == *cap) { /* an arena cannot grow: the old list stays in it */
        size_t more = *cap ? 2 * *cap : 16;
        kh_text_prompt *list = kh_arena_array(a, more, sizeof *list);
        if (!list)
            return kh_fail_memory(err);
        if (to->n > 0)
            memcpy(list, to->prompt, (size_t)to->n * sizeof *list);
        to->prompt = list;
        *cap = more;
    }
    kh_text_prompt copy = { .instruction = keep_text(a, p->instruction),
        .template = keep_text(a, p->template),
        .label = copy_labels(a, p->label, n_label),
        .demo = demo,
        .n_demo = p->n_demo };
    if (!demo || !copy.instruction || !copy.template || !copy.label)
        return kh_fail_memory(err);
    memcpy(demo, p->demo, (size_t)p->n_demo * sizeof *demo);
    to->prompt[to->n++] = copy;
    return 0;
}

/* The bytes of s that stay: whole words within `most` characters, or a part of one long word. */
static size_t cut(const char *s, size_t n, size_t most) {
    size_t at = 0, space = 0;
    for (size_t i = 0; at < n; i++) {
        int len;
        kh_utf8_next(s + at, n - at, &len, NULL);
        if (most > 0 && i == most)
            return space > 0 ? space : at;
        if (s[at] == ' ')
            space = at;
        at += (size_t)len;
    }
    return n;
}

int kh_text_rows_copy(
    kh_row **out, kh_arena *a, const kh_row *rows, int n, size_t most, kh_err *err) {
    *out = kh_arena_array(a, (size_t)n + 1, sizeof **out);
    if (!*out)
        return kh_fail_memory(err);
    for (int i = 0; i < n; i++) {
        kh_row *to = &(*out)[i];
        *to = rows[i];
        to->n_a = cut(rows[i].a, rows[i].n_a, most);
        to->a = kh_arena_strndup(a, rows[i].a, to->n_a);
        to->n_b = rows[i].b ? cut(rows[i].b, rows[i].n_b, most) : 0;
        to->b = rows[i].b ? kh_arena_strndup(a, rows[i].b, to->n_b) : NULL;
        if (!to->a || (rows[i].b && !to->b))
            return kh_fail_memory(err);
    }
    return 0;
}
