/* text_space.c - see text_space.h. The letters and the proof that the steps are reversible are in
 * doc/methods.md, X1 to X4. */
#include "prompt/text_space.h"

#include "base/alloc.h"
#include "base/err.h"

#include <math.h>
#include <string.h>

static const double OWN = 0.5; /* what the task says itself has half of the prior, of each part */

enum { TEMPLATE = KH_TEXT_TEMPLATE, WORDS, INSTRUCTION, EDIT, DEMOS, FIRST = KH_TEXT_FIRST_DEMO };

/* -------------------------------------------------------------------------------------- making */

static int add_edits(kh_text_space *s, const kh_text_space_opts *o, kh_plm *plm, kh_err *err) {
    kh_synonyms y = { 0 };
    int rc = 0;
    const char *from = o->synonyms ? o->synonyms : "builtin";
    if (strcmp(from, "builtin") == 0)
        rc = kh_synonyms_builtin(&y, &s->arena, err);
    else if (strcmp(from, "model") == 0)
        rc = kh_synonyms_model(&y, &s->material, plm, err);
    else if (strcmp(from, "none") != 0)
        rc = kh_synonyms_file(&y, &s->arena, from, err);
    if (rc == 0 && o->edits > 0)
        rc = kh_material_edit(&s->material, &y, err);
    kh_synonyms_free(&y);
    return rc;
}

/* Services that continue texts by one token. */
static bool answers_one_token(const kh_plm *plm) {
    static const char *const NAMES[] = { "openai", "vllm-chat", "vllm-completions", "sglang" };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(kh_plm_describe(plm).backend, NAMES[i]) == 0)
            return true;
    return false;
}

static bool are_single(const kh_words *w) {
    for (int i = 0; i < w->n_word; i++)
        if (w->word[i].n_id != 1)
            return false;
    return true;
}

/* Words that the box cannot be asked with are left out; the task's own must do. */
static int check_words(kh_text_space *s, kh_plm *plm, kh_err *err) {
    bool next = kh_plm_describe(plm).next, one_token = answers_one_token(plm);
    int rc = 0;
    for (int t = 0; t < s->material.n_wording && rc == 0; t++) {
        kh_wording *w = &s->material.wording[t];
        int kept = 0;
        for (int i = 0; i < w->n_words && rc == 0; i++) {
            kh_task task = *s->task;
            kh_words *words = NULL;
            task.label = w->words[i];
            bool own = t == 0 && i == 0;
            rc = kh_words_new(&words, &task, kh_plm_tokenizer(plm), false, err);
            if (rc == 0 && next)
                kh_words_continue(words);
            int bad = rc == 0 ? kh_words_check(words, &task, own ? err : NULL) : 0;
            bool several = rc == 0 && !own && one_token && !are_single(words);
            if (own && bad != 0)
                rc = bad;
            else if (rc == 0 && bad == 0 && !several)
                w->words[kept++] = w->words[i];
            kh_words_free(words);
        }
        w->n_words = kept;
    }
    return rc;
}

/* Templates that no words are left for. */
static void drop_empty(kh_material *m) {
    int kept = 0;
    for (int t = 0; t < m->n_wording; t++)
        if (m->wording[t].n_words > 0)
            m->wording[kept++] = m->wording[t];
    m->n_wording = kept;
}

int kh_text_space_new(kh_text_space **out, const kh_text_space_opts *o, const kh_task *task,
    kh_plm *plm, const kh_row *rows, int n, kh_err *err) {
    *out = NULL;
    kh_text_space *s = kh_calloc(1, sizeof *s);
    if (!s)
        return kh_fail_memory(err);
    s->task = task;
    s->edits = o->edits;
    s->demos = o->demos < n ? o->demos : n;
    s->n_row = n;
    s->dim = FIRST + s->demos;
    int rc = kh_text_rows_copy(&s->row, &s->arena, rows, n, (size_t)o->demo_length, err);
    if (rc == 0)
        rc = kh_material_start(&s->material, &s->arena, task, kh_plm_describe(plm).next, err);
    if (rc == 0)
        rc = o->instructions && *o->instructions
            ? kh_material_file(&s->material, o->instructions, err)
            : kh_material_builtin(&s->material, err);
    if (rc == 0)
        rc = add_edits(s, o, plm, err);
    if (rc == 0)
        rc = check_words(s, plm, err);
    if (rc != 0)
        kh_text_space_free(s);
    else {
        drop_empty(&s->material);
        *out = s;
    }
    return rc;
}

void kh_text_space_free(kh_text_space *s) {
    if (!s)
        return;
    kh_material_free(&s->material);
    kh_arena_free(&s->arena);
    kh_free(s);
}

/* --------------------------------------------------------------------------------------- prior */

/* The first of n has probability `own` (all of it if there is no other), the others share the rest.
 */
static int draw_of(kh_rng *r, int n, double own) {
    return n < 2 || kh_rng_uniform(r) < own ? 0 : 1 + (int)kh_rng_below(r, (uint32_t)n - 1);
}

static double log_p(int i, int n, double own) {
    if (n < 2)
        return 0;
    return log(i == 0 ? own : (1 - own) / (n - 1));
}

static int n_words(const kh_text_space *s, const float *x) {
    return s->material.wording[(int)x[TEMPLATE]].n_words;
}

static int n_edits(const kh_text_space *s, const float *x) {
    return s->material.instruction[(int)x[INSTRUCTION]].n;
}

static void draw_words(const kh_text_space *s, kh_rng *r, float *x) {
    x[WORDS] = (float)draw_of(r, n_words(s, x), OWN);
}

static void draw_template(const kh_text_space *s, kh_rng *r, float *x) {
    x[TEMPLATE] = (float)draw_of(r, s->material.n_wording, OWN);
    draw_words(s, r, x);
}

static void draw_edit(const kh_text_space *s, kh_rng *r, float *x) {
    x[EDIT] = (float)draw_of(r, n_edits(s, x), 1 - s->edits);
}

static void draw_instruction(const kh_text_space *s, kh_rng *r, float *x) {
    x[INSTRUCTION] = (float)draw_of(r, s->material.n_instruction, OWN);
    draw_edit(s, r, x);
}

static bool is_shown(const float *x, int row) {
    for (int i = 0; i < (int)x[DEMOS]; i++)
        if ((int)x[FIRST + i] == row)
            return true;
    return false;
}

/* A row that is not shown yet, all equally probable. */
static int fresh_row(const kh_text_space *s, kh_rng *r, const float *x) {
    int row;
    do
        row = (int)kh_rng_below(r, (uint32_t)s->n_row);
    while (is_shown(x, row));
    return row;
}

static void draw_demos(const kh_text_space *s, kh_rng *r, float *x) {
    int n = draw_of(r, s->demos + 1, OWN);
    for (int i = 0; i < s->demos; i++)
        x[FIRST + i] = -1;
    x[DEMOS] = 0;
    for (int i = 0; i < n; i++) {
        x[FIRST + i] = (float)fresh_row(s, r, x);
        x[DEMOS] = (float)(i + 1);
    }
}

void kh_text_space_own(const kh_text_space *s, float *x) {
    for (int i = 0; i < s->dim; i++)
        x[i] = i < FIRST ? 0 : -1;
}

void kh_text_space_draw(const kh_text_space *s, kh_rng *r, float *x) {
    draw_template(s, r, x);
    draw_instruction(s, r, x);
    draw_demos(s, r, x);
}

double kh_text_space_log_prior(const kh_text_space *s, const float *x) {
    int n = (int)x[DEMOS];
    double sum = log_p((int)x[TEMPLATE], s->material.n_wording, OWN) +
        log_p((int)x[WORDS], n_words(s, x), OWN) +
        log_p((int)x[INSTRUCTION], s->material.n_instruction, OWN) +
        log_p((int)x[EDIT], n_edits(s, x), 1 - s->edits) + log_p(n, s->demos + 1, OWN);
    for (int i = 0; i < n; i++) /* any order of any rows is as probable as any other */
        sum -= log((double)(s->n_row - i));
    return sum;
}

/* --------------------------------------------------------------------------------------- moves */

static void replace_demo(const kh_text_space *s, kh_rng *r, float *x) {
    int n = (int)x[DEMOS], at = (int)kh_rng_below(r, (uint32_t)n);
    x[FIRST + at] = (float)fresh_row(s, r, x);
}

static void swap_demos(kh_rng *r, float *x) {
    int n = (int)x[DEMOS], a = (int)kh_rng_below(r, (uint32_t)n),
        b = (int)kh_rng_below(r, (uint32_t)n - 1);
    b += b >= a;
    float was = x[FIRST + a];
    x[FIRST + a] = x[FIRST + b];
    x[FIRST + b] = was;
}

/* One of six, whatever the prompt is. Where it cannot be made, the template is drawn anew instead:
 * that changes nothing of what decides whether it can be made, so the way back is as probable. */
static void small_move(const kh_text_space *s, kh_rng *r, float *x) {
    int n = (int)x[DEMOS];
    switch (kh_rng_below(r, 6)) {
    case 0: draw_words(s, r, x); return;
    case 1: draw_instruction(s, r, x); return;
    case 2:
        if (n_edits(s, x) > 1) {
            draw_edit(s, r, x);
            return;
        }
        break;
    case 3:
        if (n > 0 && n < s->n_row) {
            replace_demo(s, r, x);
            return;
        }
        break;
    case 4:
        if (n > 1) {
            swap_demos(r, x);
            return;
        }
        break;
    default: break;
    }
    draw_template(s, r, x);
}

/* Parts that are drawn anew are independent of each other, so the order in which that is done does
 * not matter; a small move behind them would make it matter, as what it does depends on them. */
void kh_text_space_move(const kh_text_space *s, kh_rng *r, double b, const float *from, float *x) {
    memcpy(x, from, (size_t)s->dim * sizeof *x);
    if (kh_rng_uniform(r) >= b * b) {
        small_move(s, r, x);
        return;
    }
    if (kh_rng_below(r, 2))
        draw_template(s, r, x);
    if (kh_rng_below(r, 2))
        draw_instruction(s, r, x);
    if (kh_rng_below(r, 2))
        draw_demos(s, r, x);
}

/* ------------------------------------------------------------------------------------- prompts */

const kh_label *kh_text_space_words(const kh_text_space *s, const float *x) {
    return s->material.wording[(int)x[TEMPLATE]].words[(int)x[WORDS]];
}

kh_text_prompt kh_text_space_prompt(const kh_text_space *s, const float *x, int *demo) {
    const kh_wording *w = &s->material.wording[(int)x[TEMPLATE]];
    for (int i = 0; i < (int)x[DEMOS]; i++)
        demo[i] = (int)x[FIRST + i];
    return (kh_text_prompt){
        .instruction = s->material.instruction[(int)x[INSTRUCTION]].text[(int)x[EDIT]],
        .template = w->template,
        .label = w->words[(int)x[WORDS]],
        .demo = demo,
        .n_demo = (int)x[DEMOS],
    };
}
