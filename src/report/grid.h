/* grid.h - a table of short texts, and how it is written for terminals, documents and other
 * programs.
 *
 *     kh_grid t = { .n_col = 2 };
 *     kh_grid_add(&t, "metric");                the first n_col cells are the header
 *     kh_grid_add(&t, "value");
 *     kh_grid_add(&t, "accuracy");
 *     kh_grid_add(&t, "%.4f", x);
 *     kh_grid_put(&t, KH_GRID_TEXT, &out);
 *     kh_grid_free(&t);
 *
 * Failure sticks, as in a buffer: kh_grid_put then marks the buffer as failed. */
#ifndef KH_REPORT_GRID_H
#define KH_REPORT_GRID_H

#include "base/arena.h"
#include "base/buf.h"

#define KH_GRID_FORMATS "table|markdown|csv|latex|html"
typedef enum kh_grid_format {
    KH_GRID_TEXT,
    KH_GRID_MARKDOWN,
    KH_GRID_CSV,
    KH_GRID_LATEX,
    KH_GRID_HTML
} kh_grid_format;

typedef struct kh_cell {
    const char *text;        /* with its note in parentheses, if it has one */
    const char *main, *note; /* for pages: the text, and smaller lines below; NULL: none */
    bool strong;             /* the best of its column */
    int tone;                /* of the page: 1 agrees, -1 disagrees, 0 says neither */
} kh_cell;

typedef struct kh_grid {
    const char *caption; /* NULL: none */
    int n_col;
    int n_left; /* columns of words, from the left; the others are numbers and stand to the right */
    bool colour; /* text: strong cells by the terminal's bold; otherwise by a star */
    kh_cell *cell;
    int n;
    size_t cap;
    kh_arena arena;
    bool failed;
} kh_grid;

void kh_grid_add(kh_grid *, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Of the last cell. */
void kh_grid_strong(kh_grid *);
/* A line more below; where there are no lines, it follows in parentheses. The last tone counts. */
void kh_grid_note(kh_grid *, int tone, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void kh_grid_tone(kh_grid *, int tone);
void kh_grid_put(const kh_grid *, kh_grid_format, kh_buf *out);
void kh_grid_free(kh_grid *);

#endif
