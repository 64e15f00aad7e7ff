/* plot.h - plots by gnuplot, as SVG that can stand inside a page.
 *
 *     kh_plotter g = { .program = "gnuplot" };
 *     if (kh_plot_svg(&g, script, "Reliability", "Accuracy against confidence", &page, err) > 0)
 *         ...                                                                     g.why says what
 * is missing
 *
 * A script holds numbers and words of our own only, never text from data. Colours by these names
 * become those of the page, light or dark; black is the colour of its text. */
#ifndef KH_REPORT_PLOT_H
#define KH_REPORT_PLOT_H

#include "base/buf.h"
#include "keyhole.h"

#define KH_PLOT_FIRST "rgb '#0000f1'"
#define KH_PLOT_SECOND "rgb '#0000f2'"
#define KH_PLOT_GRID "rgb '#0000f3'"
#define KH_PLOT_MUTED "rgb '#0000f4'"

typedef struct kh_plotter {
    const char *program;
    bool missing;  /* it could not be started: no further tries */
    char why[256]; /* why the last plot is not there */
    int n;         /* plots so far: makes their ids differ */
} kh_plotter;

/* Appends <svg>...</svg>. Returns 0; > 0 if there is no plot, with why; < 0 out of memory. The
 * script is put after a preamble that sets terminal and style. */
int kh_plot_svg(kh_plotter *, const kh_buf *script, const char *title, const char *desc,
    kh_buf *out, kh_err *err);

/* What kh_plot_svg does to gnuplot's own file: plot number `n` of a page. False if it is not what
 * gnuplot writes. */
bool kh_plot_inline(
    const char *svg, size_t len, int n, const char *title, const char *desc, kh_buf *out);

#endif
