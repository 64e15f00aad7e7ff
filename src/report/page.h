/* page.h - report.html: an evaluation as one self-contained page, for people. */
#ifndef KH_REPORT_PAGE_H
#define KH_REPORT_PAGE_H

#include "posterior/eval.h"
#include "report/plot.h"
#include "report/runlog.h"

#define KH_PAGE_NAME "report.html"

typedef struct kh_page {
    const kh_eval *eval;
    const kh_runlog *log;
    const char *run;     /* the folder */
    const char *options; /* what eval was told, as a JSON object */
    kh_plotter plotter;  /* afterwards plotter.why says what is missing, if anything is */
} kh_page;

int kh_page_write(kh_page *, kh_buf *out, kh_err *err);

/* figures.c: each appends a <figure>, or nothing if there is nothing to show; without gnuplot, a
 * line that says so. */
int kh_figure_reliability(kh_page *, kh_buf *out, kh_err *err);
int kh_figure_risk(kh_page *, kh_buf *out, kh_err *err);
int kh_figure_outside(kh_page *, const kh_ood_rows *, kh_buf *out, kh_err *err);
int kh_figure_log(kh_page *, kh_buf *out, kh_err *err); /* one for each kind of number in the log */
int kh_figure_plane(kh_page *, kh_buf *out, kh_err *err);

#endif
