/* text_plot.h - a small plot in letters, for terminals and logs: several curves in one frame, each
 * drawn with a letter of its own.
 *
 *     kh_text_curve c[] = { { 'r', "reviews", point, n_point } };
 *     kh_text_plot(c, 1, "error", "share of rows answered", &out);
 */
#ifndef KH_REPORT_TEXT_PLOT_H
#define KH_REPORT_TEXT_PLOT_H

#include "base/buf.h"
#include "keyhole.h"

typedef struct kh_text_curve {
    char mark;
    const char *name;
    const kh_curve_point *point; /* coverage rises; risk is drawn as a step to its right */
    int n;
} kh_text_curve;

/* Risk from 0 to the largest one, rounded up to a round number, against coverage from 0 to 1. Where
 * curves meet, the first of them is seen. Nothing is written if no curve has a point. */
void kh_text_plot(
    const kh_text_curve *curve, int n, const char *y_name, const char *x_name, kh_buf *out);

#endif
