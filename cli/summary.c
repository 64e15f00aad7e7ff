/* summary.c - what a person reads at the end of "keyhole tune FILE": how good it is, what it
 * promises, a few answers, what to do next. */
#include "judged.h"

#include "base/controls.h"
#include "base/utf8.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { TEXT_LEAST = 20, TEXT_MOST = 60, TAIL = 160, EXAMPLES = 3 };

/* A paragraph, indented by two. */
static void put_paragraph(kh_buf *out, int width, const char *s) {
    kh_buf text = kh_buf_init(1 << 16);
    kh_buf_printf(&text, "  %s", s);
    if (!kh_buf_failed(&text))
        cli_wrap(out, width, 2, text.data);
    kh_buf_free(&text);
}

/* ---------------------------------------------------------------------------------- promises */

/* A risk that answers clearly more than now, if there is one. */
static void put_looser(const kh_eval *e, kh_buf *out) {
    static const double CLEARLY = 0.1;
    const kh_selector *s = &e->decisions.selector;
    double now = s->estimate ? 1 : s->coverage;
    for (int i = 0; i < KH_LADDER_STEPS; i++)
        if (e->step[i].risk > s->max_risk + 1e-9 && e->step[i].coverage >= now + CLEARLY) {
            kh_buf_printf(out, " --max-risk %g: answers %.0f %%.", e->step[i].risk,
                100 * e->step[i].coverage);
            return;
        }
}

/* Rounded up: nobody knows better than that how many rows it takes. */
static int two_digits(int n) {
    int unit = 1;
    while (n / unit >= 100)
        unit *= 10;
    return n > INT_MAX - unit ? n : (n + unit - 1) / unit * unit;
}

/* What it would take to promise the next tighter risk, or any at all. */
static void put_tighter(const kh_eval *e, kh_buf *out) {
    const kh_selector *s = &e->decisions.selector;
    double below = s->estimate || s->n_accepted == 0 ? 1 : s->max_risk - 1e-9;
    int i = KH_LADDER_STEPS - 1;
    while (i >= 0 && !(e->step[i].risk < below))
        i--;
    if (i < 0 || e->chosen_on)
        return;
    const kh_ladder_step *t = &e->step[i];
    int rows = two_digits(t->rows);
    if (t->rows > s->n)
        kh_buf_printf(out,
            " To promise %g %%: about %d labelled rows instead of %d, if it errs as now.",
            100 * t->risk, rows, s->n);
    else if (t->rows == 0)
        kh_buf_printf(out,
            " To promise %g %%, it would have to err less: more rows to learn from, or a larger "
            "--model.",
            100 * t->risk);
}

static void put_estimate(const kh_eval *e, kh_buf *out) {
    const kh_selector *s = &e->decisions.selector;
    if (e->chosen_on)
        kh_buf_printf(
            out, "Estimate, not a promise, as the method has chosen on these %d rows: ", s->n);
    else
        kh_buf_printf(out, "Nothing can be promised by %d rows. Estimate, not a promise: ", s->n);
    kh_buf_printf(out, "about %.0f %% of its answers are wrong where it answers %.0f %% of rows.",
        100 * s->max_risk, 100 * s->coverage);
}

void cli_put_promise(const kh_eval *e, kh_buf *out) {
    const kh_selector *s = &e->decisions.selector;
    if (!e->decided || e->decisions.opts.max_risk <= 0)
        return;
    if (s->n_accepted == 0)
        kh_buf_printf(out,
            "abstain always: %d rows cannot show a risk of %g; it takes at least %d answers, all "
            "right, or a larger --max-risk.",
            s->n, s->max_risk, s->n_needed);
    else if (s->estimate)
        put_estimate(e, out);
    else
        kh_buf_printf(out,
            "Of the answers it gives, at most %g %% are wrong (confidence %g %%); it answers about "
            "%.0f %% of rows and abstains on the rest.",
            100 * s->max_risk, 100 * (1 - s->delta), 100 * s->coverage);
    put_tighter(e, out);
    put_looser(e, out);
}

/* ----------------------------------------------------------------------------------- examples */

/* The start of a text, in at most `most` characters, padded to that. */
static void put_text(kh_buf *out, const char *s, size_t n, int most) {
    int width = 0, whole = cli_columns(s, n);
    size_t i = 0;
    for (; i < n && width < (whole <= most ? most : most - 3); width++) {
        size_t next = i + 1;
        while (next < n && ((unsigned char)s[next] & 0xC0) == 0x80)
            next++;
        int len;
        if (kh_is_control(kh_utf8_next(s + i, next - i, &len, NULL)))
            kh_buf_char(out, ' ');
        else
            kh_buf_bytes(out, s + i, next - i);
        i = next;
    }
    kh_buf_text(out, i < n ? "..." : "");
    kh_buf_printf(out, "%*s", most - width - (i < n ? 3 : 0), "");
}

/* What is said of a held-out row. */
static void put_answer(const kh_eval *e, int i, char *out, size_t cap) {
    const kh_label *label = kh_posterior_describe(e->post).task->label;
    const double *p = e->rows.p + (size_t)i * (size_t)e->n_label;
    int said = kh_predicted(p, e->n_label);
    kh_decision d = { 0 };
    if (e->decided)
        d = kh_decide(&e->decisions, &e->rows.row[i], p, NAN, NULL);
    snprintf(out, cap, "%s, %.0f %%%s%s", label[said].name, 100 * p[said],
        d.abstain ? ", would abstain" : "", e->label[i] == said ? "" : " (wrong)");
}

/* Held-out rows, each with its answer beside it; the texts get what the answers leave. */
static void put_examples(const kh_eval *e, int width, kh_buf *out) {
    int shown[EXAMPLES], n = kh_eval_examples(e, shown, EXAMPLES), longest = 0, widest = 0;
    char answer[EXAMPLES][TAIL];
    for (int k = 0; k < n; k++) {
        const kh_row *row = &e->rows.row[shown[k]];
        put_answer(e, shown[k], answer[k], TAIL);
        int wide = cli_columns(answer[k], strlen(answer[k])), text = cli_columns(row->a, row->n_a);
        longest = wide > longest ? wide : longest;
        widest = text > widest ? text : widest;
    }
    int room = width - 1 - 2 - 2 - longest;
    room = room < TEXT_LEAST ? TEXT_LEAST : room;
    room = room > TEXT_MOST ? TEXT_MOST : room;
    room = room > widest ? widest : room;
    for (int k = 0; k < n; k++) {
        const kh_row *row = &e->rows.row[shown[k]];
        kh_buf_text(out, "  ");
        put_text(out, row->a, row->n_a, room);
        kh_buf_printf(out, "  %s\n", answer[k]);
    }
}

/* ------------------------------------------------------------------------------------ summary */

static void put_accuracy(const kh_eval *e, kh_buf *out) {
    kh_buf_printf(out, "accuracy  %.2f on %d held-out rows", e->m.accuracy, e->rows.n);
    if (!isnan(e->low.accuracy))
        kh_buf_printf(out, " (%g %% interval %.2f to %.2f)", 100 * e->o->bootstrap.level,
            e->low.accuracy, e->high.accuracy);
    if (!isnan(e->template_accuracy))
        kh_buf_printf(out, "; untuned %.2f", e->template_accuracy);
    kh_buf_char(out, '\n');
}

/* Commands, with what they are for beside or, where that is too wide, below them. */
static void put_next(const char *run, int width, kh_buf *out) {
    static const struct {
        const char *before, *after, *what;
    } NEXT[] = {
        { "keyhole predict ", " \"your text\"", "" },
        { "keyhole serve --run ", "", "a page to try it, and an API" },
        { "keyhole eval ", " --ood FILE", "what it makes of other texts" },
        { "", "/report.html", "all figures, and the rows it gets wrong" },
        { "", "/task.json", "template and label words, to edit (--task)" },
    };
    enum { N = sizeof NEXT / sizeof NEXT[0] };
    int command = 0, what = 0;
    for (int i = 0; i < N; i++) {
        int wide =
            (int)(strlen(NEXT[i].before) + strlen(NEXT[i].after)) + cli_columns(run, strlen(run));
        command = wide > command ? wide : command;
        what = (int)strlen(NEXT[i].what) > what ? (int)strlen(NEXT[i].what) : what;
    }
    bool beside = 2 + command + 2 + what < width;
    for (int i = 0; i < N; i++) {
        size_t start = out->len;
        kh_buf_printf(out, "  %s%s%s", NEXT[i].before, run, NEXT[i].after);
        int used = out->len > start ? cli_columns(out->data + start, out->len - start) : 0;
        if (NEXT[i].what[0] && beside)
            kh_buf_printf(out, "%*s%s", command + 4 - used, "", NEXT[i].what);
        else if (NEXT[i].what[0])
            kh_buf_printf(out, "\n      %s", NEXT[i].what);
        kh_buf_char(out, '\n');
    }
}

void cli_put_summary(const kh_eval *e, const char *run, kh_buf *out) {
    int width = cli_paragraph_width(stdout);
    kh_buf text = kh_buf_init(1 << 16);
    kh_buf_char(out, '\n');
    put_accuracy(e, out);
    if (e->warning[0]) {
        kh_buf_printf(&text, "warning: %s.", e->warning);
        put_paragraph(out, width, text.data);
        kh_buf_reset(&text);
    }
    cli_put_promise(e, &text);
    if (text.len > 0) {
        kh_buf_text(out, "promise\n");
        put_paragraph(out, width, text.data);
    }
    kh_buf_text(out, "examples\n");
    put_examples(e, width, out);
    kh_buf_text(out, "next\n");
    put_next(run, width, out);
    kh_buf_free(&text);
}
