/* demos.c - see demos.h. */
#include "prompt/demos.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/rng.h"
#include "data/task.h"
#include "data/template.h"

#include <string.h>

/* A shuffle of 0 .. n-1; balanced, the shuffled rows of each class one in turn, the classes in the
 * order in which the shuffle first meets them. */
static int draw_order(int *out, const kh_row *rows, int n, bool balanced, kh_rng *r, kh_err *err) {
    int *shuffle = kh_malloc((size_t)n * sizeof *shuffle),
        *turn = kh_malloc((size_t)n * sizeof *turn), taken = 0;
    int rc = shuffle && turn ? 0 : kh_fail_memory(err);
    if (rc == 0)
        kh_rng_permutation(r, shuffle, n);
    for (int i = 0; i < n && rc == 0; i++) { /* turn[i]: how many of its class stand before it */
        turn[i] = 0;
        for (int j = 0; j < i && balanced; j++)
            turn[i] += rows[shuffle[j]].label == rows[shuffle[i]].label;
    }
    for (int t = 0; taken < n && rc == 0; t++)
        for (int i = 0; i < n; i++)
            if (turn[i] == t)
                out[taken++] = shuffle[i];
    kh_free(shuffle);
    kh_free(turn);
    return rc;
}

static bool copy_row(kh_row *out, kh_arena *arena, const kh_row *row) {
    *out = *row;
    out->a = kh_arena_strndup(arena, row->a, row->n_a);
    out->b = row->b ? kh_arena_strndup(arena, row->b, row->n_b) : NULL;
    return out->a && (out->b || !row->b);
}

int kh_demos_draw(kh_demos *out, kh_arena *arena, const kh_row *rows, int n, int most, int n_order,
    bool balanced, uint64_t seed, kh_err *err) {
    int kept = most < n ? most : n, rc = 0;
    *out = (kh_demos){ .n = n,
        .n_order = n_order,
        .row = kh_arena_array(arena, (size_t)n, sizeof *out->row),
        .order = kh_arena_array(arena, (size_t)n_order * (size_t)kept, sizeof *out->order) };
    int *order = kh_malloc((size_t)n * sizeof *order);
    if (!out->row || !out->order || !order)
        rc = kh_fail_memory(err);
    for (int i = 0; i < n && rc == 0; i++)
        if (!copy_row(&out->row[i], arena, &rows[i]))
            rc = kh_fail_memory(err);
    for (int o = 0; o < n_order && rc == 0; o++) {
        kh_rng r = kh_rng_stream(seed, KH_RNG_DEMOS, (uint32_t)o, 0);
        rc = draw_order(order, rows, n, balanced, &r, err);
        if (rc == 0)
            memcpy(out->order + (size_t)o * (size_t)kept, order, (size_t)kept * sizeof *order);
    }
    out->n_shown = kept;
    kh_free(order);
    return rc;
}

/* Text as a template writes it: braces doubled, and Yelp's line breaks as the batch encoder takes
 * them. */
static void put_text(kh_buf *out, const char *s, size_t n, bool newline_escape) {
    for (size_t i = 0; i < n; i++) {
        bool escape = newline_escape && s[i] == '\\' && i + 1 < n && s[i + 1] == 'n';
        if (s[i] == '{' || s[i] == '}')
            kh_buf_char(out, s[i]);
        kh_buf_char(out, escape ? ' ' : s[i]);
        i += escape;
    }
}

void kh_demo_write(kh_buf *out, const kh_template *t, const kh_task *task, const kh_row *row) {
    const char *word = task->label[row->label].word[0];
    for (int i = 0; i < t->n; i++) {
        const kh_template_part *part = &t->part[i];
        switch (part->kind) {
        case KH_SEGMENT_LITERAL: kh_buf_bytes(out, part->s, part->n); break;
        case KH_SEGMENT_A: put_text(out, row->a, row->n_a, task->newline_escape); break;
        case KH_SEGMENT_B: put_text(out, row->b, row->n_b, task->newline_escape); break;
        case KH_SEGMENT_MASK: put_text(out, word, strlen(word), false); break;
        case KH_SEGMENT_PROMPT: break; /* a plain template has none */
        }
    }
}

void kh_demos_template(const kh_demos *d, const kh_task *task, bool next, int order, int n,
    const char *then, kh_buf *out) {
    kh_template t;
    if (kh_template_parse(&t, kh_task_template(task, false, next), task->name, NULL) !=
        0) { /* a task's templates were parsed when it was opened */
        out->failed = true;
        return;
    }
    for (int i = 0; i < n; i++) {
        kh_demo_write(
            out, &t, task, &d->row[d->order[(size_t)order * (size_t)d->n_shown + (size_t)i]]);
        kh_buf_char(out, ' ');
    }
    kh_buf_text(out, then);
}
