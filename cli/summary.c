/* summary.c - what a person reads at the end of "keyhole tune FILE": how good it is, what it
 * promises, a few answers, what to do next. */
#include "judged.h"

#include "base/controls.h"
#include "base/utf8.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 76, TEXT_WIDTH = 38, EXAMPLES = 3 };

/* Words in lines of at most WIDTH characters, each after an indent. */
static void put_wrapped(kh_buf *out, const char *indent, const char *s) {
    size_t column = 0;
    while (*s) {
        size_t n = strcspn(s, " ");
        if (column > 0 && column + 1 + n > WIDTH - strlen(indent)) {
            kh_buf_char(out, '\n');
            column = 0;
        }
        if (column == 0)
            kh_buf_text(out, indent);
        else
            kh_buf_char(out, ' ');
        kh_buf_bytes(out, s, n);
        column += n + (column > 0);
        s += n + (s[n] == ' ');
    }
    kh_buf_char(out, '\n');
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
    if (t->rows > s->n)
        kh_buf_printf(out,
            " To promise %g %%: about %d labelled rows instead of %d, if it errs as now.",
            100 * t->risk, t->rows, s->n);
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

/* The start of a text, in at most TEXT_WIDTH characters, padded to that. */
static void put_text(kh_buf *out, const char *s, size_t n) {
    int width = 0;
    size_t i = 0;
    for (; i < n && width < TEXT_WIDTH - 3; width++) {
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
    if (i < n) {
        kh_buf_text(out, "...");
        width += 3;
    }
    kh_buf_printf(out, "%*s", TEXT_WIDTH - width, "");
}

/* Held-out rows, with what is said of them. */
static void put_examples(const kh_eval *e, kh_buf *out) {
    const kh_label *label = kh_posterior_describe(e->post).task->label;
    int shown[EXAMPLES], n = kh_eval_examples(e, shown, EXAMPLES);
    for (int k = 0; k < n; k++) {
        int i = shown[k];
        const double *p = e->rows.p + (size_t)i * (size_t)e->n_label;
        int said = kh_predicted(p, e->n_label);
        kh_decision d = { 0 };
        if (e->decided)
            d = kh_decide(&e->decisions, &e->rows.row[i], p, NAN, NULL);
        kh_buf_text(out, "  ");
        put_text(out, e->rows.row[i].a, e->rows.row[i].n_a);
        kh_buf_printf(out, " %s, %.0f %%%s%s\n", label[said].name, 100 * p[said],
            d.abstain ? ", would abstain" : "", e->label[i] == said ? "" : " (wrong)");
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

void cli_put_summary(const kh_eval *e, const char *run, kh_buf *out) {
    kh_buf promise = kh_buf_init(1 << 16);
    kh_buf_char(out, '\n');
    put_accuracy(e, out);
    if (e->warning[0]) {
        kh_buf_printf(&promise, "warning: %s.", e->warning);
        put_wrapped(out, "  ", promise.data);
        kh_buf_reset(&promise);
    }
    cli_put_promise(e, &promise);
    if (promise.len > 0) {
        kh_buf_text(out, "promise\n");
        put_wrapped(out, "  ", promise.data);
    }
    kh_buf_text(out, "examples\n");
    put_examples(e, out);
    kh_buf_printf(out,
        "next\n"
        "  keyhole predict %s \"your text\"\n"
        "  keyhole serve --run %s          a page to try it, and an API\n"
        "  keyhole eval %s --ood FILE      what it makes of other texts\n"
        "  %s/report.html                  all figures, and the rows it gets wrong\n"
        "  %s/task.json                    template and label words, to edit: --task\n",
        run, run, run, run, run);
    kh_buf_free(&promise);
}
