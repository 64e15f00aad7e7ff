/* text_plot.c - see text_plot.h. A grid of letters, filled column by column. */
#include "report/text_plot.h"

#include <math.h>
#include <string.h>

/* With its axis and numbers it fits 80 columns and leaves room for what stands above it. */
enum { PLOT_WIDTH = 60, PLOT_HEIGHT = 10 };

/* What the curve says of a share of rows: the risk at the first point that covers it. */
static double risk_at(const kh_text_curve *c, double coverage) {
    for (int i = 0; i < c->n; i++)
        if (c->point[i].coverage >= coverage - 1e-9)
            return c->point[i].risk;
    return NAN;
}

/* The largest risk of any curve, up to the next tenth, so that plots of several runs compare. */
static double top_of(const kh_text_curve *curve, int n) {
    double top = 0;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < curve[k].n; i++)
            top = fmax(top, curve[k].point[i].risk);
    return fmax(0.1, ceil(10 * top - 1e-9) / 10);
}

static void draw(char grid[PLOT_HEIGHT][PLOT_WIDTH + 1], const kh_text_curve *c, double top) {
    for (int x = 0; x < PLOT_WIDTH; x++) {
        double risk = risk_at(c, (x + 1) / (double)PLOT_WIDTH);
        if (isnan(risk))
            continue;
        int y = (int)lround(risk / top * (PLOT_HEIGHT - 1));
        grid[PLOT_HEIGHT - 1 - y][x] = c->mark;
    }
}

void kh_text_plot(
    const kh_text_curve *curve, int n, const char *y_name, const char *x_name, kh_buf *out) {
    char grid[PLOT_HEIGHT][PLOT_WIDTH + 1];
    int n_point = 0;
    for (int k = 0; k < n; k++)
        n_point += curve[k].n;
    if (n_point == 0)
        return;
    for (int y = 0; y < PLOT_HEIGHT; y++) {
        memset(grid[y], ' ', PLOT_WIDTH);
        grid[y][PLOT_WIDTH] = 0;
    }
    double top = top_of(curve, n);
    for (int k = n - 1; k >= 0; k--)
        draw(grid, &curve[k], top);
    kh_buf_printf(out, "  %s\n", y_name);
    for (int y = 0; y < PLOT_HEIGHT; y++) {
        bool named = y == 0 || y == PLOT_HEIGHT - 1;
        if (named)
            kh_buf_printf(
                out, "  %4.2f |%s\n", top * (PLOT_HEIGHT - 1 - y) / (PLOT_HEIGHT - 1), grid[y]);
        else
            kh_buf_printf(out, "       |%s\n", grid[y]);
    }
    kh_buf_text(out, "       +");
    for (int x = 0; x < PLOT_WIDTH; x++)
        kh_buf_char(out, (x + 1) % (PLOT_WIDTH / 4) == 0 ? '+' : '-');
    kh_buf_printf(out, "\n        0 %%%*s%*s%*s%*s  %s\n", PLOT_WIDTH / 4 - 2, "25 %",
        PLOT_WIDTH / 4, "50 %", PLOT_WIDTH / 4, "75 %", PLOT_WIDTH / 4, "100 %", x_name);
    kh_buf_text(out, "       ");
    for (int k = 0; k < n; k++)
        kh_buf_printf(out, " %c %s%s", curve[k].mark, curve[k].name, k + 1 < n ? "," : "\n");
}
