/* grid.c - see grid.h. Cells may hold anything: every format escapes what it would take for its own
 * marks. */
#include "report/grid.h"

#include "base/alloc.h"
#include "base/controls.h"
#include "base/utf8.h"
#include "report/html.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

/* A cell is a few words: what is longer than the buffer is cut between characters, never within
 * one. */
static const char *print(kh_grid *t, const char *fmt, va_list args) {
    char text[512];
    int n = vsnprintf(text, sizeof text, fmt, args);
    size_t len = n < 0 ? 0 : (size_t)n;
    if (len >= sizeof text)
        len = kh_utf8_prefix(text, sizeof text - 1);
    const char *copy = kh_arena_strndup(&t->arena, text, len);
    t->failed |= !copy;
    return copy;
}

void kh_grid_add(kh_grid *t, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const char *text = print(t, fmt, args);
    va_end(args);
    t->failed |= !kh_grow(&t->cell, &t->cap, (size_t)t->n + 1, sizeof *t->cell);
    if (!t->failed)
        t->cell[t->n++] = (kh_cell){ .text = text, .main = text };
}

/* A cell is kept in two forms: on one line for terminals, CSV and Markdown, "main (first; second)",
 * and in lines for pages, which show notes smaller below it. */
void kh_grid_note(kh_grid *t, int tone, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const char *note = print(t, fmt, args);
    va_end(args);
    if (t->failed || t->n == 0)
        return;
    kh_cell *c = &t->cell[t->n - 1];
    const char *before = c->note ? c->note : "";
    size_t n = strlen(c->text) + strlen(before) + strlen(note) + 5, text = strlen(c->text);
    char *both = kh_arena_alloc(&t->arena, n), *lines = kh_arena_alloc(&t->arena, n);
    t->failed = !both || !lines;
    if (t->failed)
        return;
    if (c->note) /* "main (first" and what closes it */
        snprintf(both, n, "%.*s; %s)", (int)text - 1, c->text, note);
    else
        snprintf(both, n, "%s (%s)", c->text, note);
    snprintf(lines, n, "%s%s%s", before, c->note ? "\n" : "", note);
    *c = (kh_cell){ both, c->main, lines, c->strong, tone };
}

void kh_grid_tone(kh_grid *t, int tone) {
    if (t->n > 0)
        t->cell[t->n - 1].tone = tone;
}

void kh_grid_strong(kh_grid *t) {
    if (t->n > 0)
        t->cell[t->n - 1].strong = true;
}

void kh_grid_free(kh_grid *t) {
    kh_free(t->cell);
    kh_arena_free(&t->arena);
    *t = (kh_grid){ 0 };
}

/* ------------------------------------------------------------------------------- for terminals */

/* Columns on a terminal. By Unicode's East Asian width and combining marks, not by bytes: columns
 * of names in any language stay straight. */
static int width_of(const char *s) {
    size_t n = strlen(s);
    int width = 0;
    for (int len; n > 0; s += len, n -= (size_t)len) {
        uint32_t c = kh_utf8_next(s, n, &len, NULL);
        width += kh_is_control(c) ? 1 : utf8proc_charwidth((utf8proc_int32_t)c);
    }
    return width;
}

/* Control characters, which could command a terminal, become spaces. */
static void put_plain(kh_buf *out, const char *s) {
    size_t n = strlen(s);
    for (int len; n > 0; s += len, n -= (size_t)len) {
        uint32_t c = kh_utf8_next(s, n, &len, NULL);
        if (kh_is_control(c))
            kh_buf_char(out, ' ');
        else
            kh_buf_bytes(out, s, (size_t)len);
    }
}

static void put_spaces(kh_buf *out, int n) {
    for (int i = 0; i < n; i++)
        kh_buf_char(out, ' ');
}

/* Looked up again for each cell: tables have hundreds of cells, and nobody waits for them. */
static int column_width(const kh_grid *t, int col) {
    int width = 0;
    for (int i = col; i < t->n; i += t->n_col) {
        int w = width_of(t->cell[i].text) + (t->cell[i].strong && !t->colour);
        width = w > width ? w : width;
    }
    return width;
}

static void put_text(const kh_grid *t, kh_buf *out) {
    if (t->caption)
        kh_buf_printf(out, "%s\n", t->caption);
    for (int i = 0; i < t->n; i++) {
        int col = i % t->n_col;
        const kh_cell *c = &t->cell[i];
        int pad = column_width(t, col) - width_of(c->text) - (c->strong && !t->colour);
        bool left = col < t->n_left, last = col + 1 == t->n_col;
        put_spaces(out, 2);
        put_spaces(out, left ? 0 : pad);
        if (c->strong)
            kh_buf_text(out, t->colour ? "\033[1m" : "*");
        put_plain(out, c->text);
        kh_buf_text(out, c->strong && t->colour ? "\033[0m" : "");
        put_spaces(out, left && !last ? pad : 0);
        kh_buf_text(out, last ? "\n" : "");
    }
}

/* ------------------------------------------------------------------------------- for documents */

/* Each byte of s, or what stands for it. */
static void put_escaped(
    kh_buf *out, const char *s, const char *special, const char *const *instead) {
    for (; *s; s++) {
        const char *at = strchr(special, *s);
        if (at)
            kh_buf_text(out, instead[at - special]);
        else
            kh_buf_char(out, *s);
    }
}

static void put_markdown(const kh_grid *t, kh_buf *out) {
    static const char *const instead[] = { "\\|", "\\*", "\\_", "\\`", "&lt;", "&amp;", "\\\\",
        "\\[", " ", " " };
    if (t->caption)
        kh_buf_printf(out, "%s\n\n", t->caption);
    for (int i = 0; i < t->n; i++) {
        const kh_cell *c = &t->cell[i];
        bool last = i % t->n_col + 1 == t->n_col;
        kh_buf_text(out, i % t->n_col ? " | " : "| ");
        kh_buf_text(out, c->strong ? "**" : "");
        put_escaped(out, c->text, "|*_`<&\\[\n\r", instead);
        kh_buf_text(out, c->strong ? "**" : "");
        kh_buf_text(out, last ? " |\n" : "");
        if (i + 1 == t->n_col) { /* the header is done */
            for (int k = 0; k < t->n_col; k++)
                kh_buf_text(out, k < t->n_left ? "|---" : "|---:");
            kh_buf_text(out, "|\n");
        }
    }
}

/* RFC 4180; a cell that a spreadsheet would take for a formula starts with an apostrophe. */
static void put_csv(const kh_grid *t, kh_buf *out) {
    for (int i = 0; i < t->n; i++) {
        const char *s = t->cell[i].text;
        bool formula = i % t->n_col < t->n_left && *s && strchr("=+-@\t\r", *s),
             quote = formula || strpbrk(s, ",\"\r\n");
        kh_buf_text(out, i % t->n_col ? "," : "");
        kh_buf_text(out, quote ? "\"" : "");
        kh_buf_text(out, formula ? "'" : "");
        for (; *s; s++) {
            kh_buf_text(out, *s == '"' ? "\"" : "");
            kh_buf_char(out, *s);
        }
        kh_buf_text(out, quote ? "\"" : "");
        kh_buf_text(out, i % t->n_col + 1 == t->n_col ? "\n" : "");
    }
}

static void put_latex_text(kh_buf *out, const char *s) {
    static const char *const instead[] = { "\\textbackslash{}", "\\{", "\\}", "\\$", "\\&", "\\#",
        "\\textasciicircum{}", "\\_", "\\textasciitilde{}", "\\%", "\\textless{}",
        "\\textgreater{}", " ", " " };
    const char *pm = strstr(s, "±");
    if (!pm) {
        put_escaped(out, s, "\\{}$&#^_~%<>\n\r", instead);
        return;
    }
    kh_buf_bytes(out, s, (size_t)(pm - s)); /* only numbers have one */
    kh_buf_text(out, "$\\pm$");
    kh_buf_text(out, pm + strlen("±"));
}

static void put_latex(const kh_grid *t, kh_buf *out) {
    kh_buf_text(out, "\\begin{tabular}{");
    for (int k = 0; k < t->n_col; k++)
        kh_buf_char(out, k < t->n_left ? 'l' : 'r');
    kh_buf_text(out, "}\n\\hline\n");
    for (int i = 0; i < t->n; i++) {
        const kh_cell *c = &t->cell[i];
        kh_buf_text(out, i % t->n_col ? " & " : "");
        kh_buf_text(out, c->strong ? "\\textbf{" : "");
        put_latex_text(out, c->text);
        kh_buf_text(out, c->strong ? "}" : "");
        kh_buf_text(out, i % t->n_col + 1 == t->n_col ? " \\\\\n" : "");
        kh_buf_text(out, i + 1 == t->n_col ? "\\hline\n" : "");
    }
    kh_buf_text(out, "\\hline\n\\end{tabular}\n");
}

static void put_html(const kh_grid *t, kh_buf *out) {
    static const char *const CLASS[] = { " class=\"n no\"", " class=\"n\"", " class=\"n yes\"" };
    kh_buf_text(out, "<table>\n");
    if (t->caption) {
        kh_buf_text(out, "<caption>");
        kh_html_text(out, t->caption, strlen(t->caption));
        kh_buf_text(out, "</caption>\n");
    }
    for (int i = 0; i < t->n; i++) {
        const kh_cell *c = &t->cell[i];
        int col = i % t->n_col;
        bool head = i < t->n_col;
        const char *tag = head || col == 0 ? "th" : "td";
        const char *scope = col == 0 ? " scope=\"row\"" : "";
        if (i == 0)
            kh_buf_text(out, "<thead>\n");
        else if (i == t->n_col)
            kh_buf_text(out, "<tbody>\n");
        kh_buf_text(out, col == 0 ? "<tr>" : "");
        kh_buf_printf(out, "<%s%s%s>", tag, head ? " scope=\"col\"" : scope,
            col < t->n_left ? "" : CLASS[c->tone + 1]);
        kh_buf_text(out, c->strong ? "<strong>" : "");
        kh_html_text(out, c->main, strlen(c->main));
        kh_buf_text(out, c->strong ? "</strong>" : "");
        for (const char *line = c->note; line; line = strchr(line, '\n')) {
            line += *line == '\n';
            kh_buf_text(out, "<small>");
            kh_html_text(out, line, strcspn(line, "\n"));
            kh_buf_text(out, "</small>");
        }
        kh_buf_printf(out, "</%s>%s", tag, col + 1 == t->n_col ? "</tr>\n" : "");
        kh_buf_text(out, i + 1 == t->n_col ? "</thead>\n" : "");
    }
    kh_buf_text(out, t->n > t->n_col ? "</tbody>\n</table>\n" : "</table>\n");
}

void kh_grid_put(const kh_grid *t, kh_grid_format format, kh_buf *out) {
    static void (*const PUT[])(
        const kh_grid *, kh_buf *) = { put_text, put_markdown, put_csv, put_latex, put_html };
    out->failed |= t->failed;
    if (!t->failed)
        PUT[format](t, out);
}
