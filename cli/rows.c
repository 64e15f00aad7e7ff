/* rows.c - see rows.h.
 *
 * Lines are collected until there are enough, then read as a small data set of their own, with the
 * header of the file in front. A line break inside quotes does not end a row of CSV. */
#include "rows.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/utf8.h"
#include "data/label_names.h"

#include <string.h>
#include <strings.h>

enum { LINES_AT_ONCE = 256, BYTES_AT_ONCE = 4 << 20 };

static int find_format(cli_rows *r, kh_err *err) {
    static const struct {
        const char *ext;
        int format;
    } known[] = { { ".txt", CLI_ROWS_TEXT }, { ".tsv", CLI_ROWS_TSV }, { ".csv", CLI_ROWS_CSV },
        { ".jsonl", CLI_ROWS_JSONL }, { ".json", CLI_ROWS_JSONL } };
    if (r->format == CLI_ROWS_AUTO && !r->path)
        r->format = CLI_ROWS_TEXT;
    const char *dot = r->path ? strrchr(kh_path_base(r->path), '.') : NULL;
    for (size_t i = 0; dot && r->format == CLI_ROWS_AUTO && i < sizeof known / sizeof known[0]; i++)
        if (strcasecmp(dot, known[i].ext) == 0)
            r->format = known[i].format;
    return r->format != CLI_ROWS_AUTO
        ? 0
        : kh_fail(err, CLI_USAGE, "%s: cannot tell its format by its name; give --format", r->path);
}

static int open_rows(cli_rows *r, kh_err *err) {
    r->name = r->path ? r->path : "standard input";
    r->text = kh_buf_init((size_t)1 << 31);
    r->header = kh_buf_init((size_t)64 << 20);
    int rc = find_format(r, err);
    if (rc != 0)
        return rc;
    r->in = r->path ? fopen(r->path, "rb") : stdin;
    return r->in ? 0 : kh_fail_errno(err, r->path, "cannot open");
}

static bool is_blank(const kh_buf *line) { return strspn(line->data, " \t\r\v\f") == line->len; }

static size_t count_quotes(const kh_buf *line) {
    size_t n = 0;
    for (size_t i = 0; i < line->len; i++)
        n += line->data[i] == '"';
    return n;
}

/* The next lines, in r->text; *n_line of them, *n_full not blank. */
static int collect(cli_rows *r, int *n_line, int *n_full, kh_err *err) {
    bool quotes = r->format == CLI_ROWS_CSV || r->format == CLI_ROWS_CSV_NOHEADER, inside = false;
    *n_line = *n_full = 0;
    kh_buf_reset(&r->text);
    while ((*n_line < LINES_AT_ONCE && r->text.len < BYTES_AT_ONCE) || inside) {
        int rc = cli_read_line(r->in, &r->one, err);
        if (rc <= 0)
            return rc;
        inside ^= quotes && count_quotes(&r->one) % 2 == 1;
        kh_buf_bytes(&r->text, r->one.data, r->one.len);
        kh_buf_char(&r->text, '\n');
        ++*n_line;
        *n_full += !is_blank(&r->one);
        if (kh_buf_failed(&r->text))
            return kh_fail(err, KH_ELIMIT,
                "%s:%ld: a row of more than 2 GB; is a quote not closed?", r->name, r->line + 1);
    }
    return 0;
}

/* ----------------------------------------------------------------------------- one text a line */

/* One row of a line. An empty text is a text like any other: each line in gives one line out. */
static int read_text(const cli_rows *r, const char *s, size_t n, kh_row *out, kh_err *err) {
    const char *tab = r->task->pair ? memchr(s, '\t', n) : NULL;
    if (memchr(s, '\0', n))
        return kh_fail_at(err, KH_EFORMAT, r->name, r->line, "a NUL byte; is this a text file?");
    if (!kh_utf8_valid(s, n))
        return kh_fail_at(err, KH_EFORMAT, r->name, r->line, "not valid UTF-8");
    if (r->task->pair && !tab)
        return kh_fail_at(err, KH_EFORMAT, r->name, r->line,
            "task \"%s\" takes two texts; a tab must stand between them", r->task->name);
    *out = (kh_row){ .a = s, .n_a = tab ? (size_t)(tab - s) : n, .label = -1, .line = r->line };
    kh_trim(&out->a, &out->n_a);
    if (tab) {
        out->b = tab + 1;
        out->n_b = (size_t)(s + n - out->b);
        kh_trim(&out->b, &out->n_b);
    }
    return 0;
}

static int take_texts(cli_rows *r, int n_line, const kh_row **rows, int *n, kh_err *err) {
    const char *at = r->text.data, *end = at + r->text.len;
    if (!kh_grow(&r->row, &r->cap, (size_t)n_line, sizeof *r->row))
        return kh_fail_memory(err);
    *rows = r->row;
    for (*n = 0; at < end; ++*n) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)); /* every line was given one */
        r->line++;
        int rc = read_text(r, at, (size_t)(stop - at), &r->row[*n], err);
        if (rc != 0)
            return rc;
        at = stop + 1;
    }
    return 1;
}

/* ---------------------------------------------------------------------------------- data files */

/* Keeps the first row of a table, which may have line breaks in quotes, and blank lines before it.
 */
static void keep_header(cli_rows *r) {
    bool inside = false, quotes = r->format == CLI_ROWS_CSV;
    size_t from = strspn(r->text.data, "\n"), to = from;
    for (; to < r->text.len && (inside || r->text.data[to] != '\n'); to++)
        inside ^= quotes && r->text.data[to] == '"';
    kh_buf_bytes(&r->header, r->text.data + from, to - from);
    kh_buf_char(&r->header, '\n');
}

static long header_lines(const cli_rows *r) {
    long n = 0;
    for (size_t i = 0; i < r->header.len; i++)
        n += r->header.data[i] == '\n';
    return n;
}

static int parse(cli_rows *r, const kh_buf *bytes, long before, kh_err *err) {
    static const kh_format FORMATS[] = { [CLI_ROWS_TSV] = KH_FORMAT_TSV,
        [CLI_ROWS_CSV] = KH_FORMAT_CSV,
        [CLI_ROWS_CSV_NOHEADER] = KH_FORMAT_CSV_NOHEADER,
        [CLI_ROWS_JSONL] = KH_FORMAT_JSONL };
    kh_dataset_opts o = { .format = FORMATS[r->format],
        .task = r->task,
        .unlabelled = true,
        .ignore_labels = !r->labels,
        .lines_before = before };
    return kh_dataset_parse(&r->data, bytes->data, bytes->len, r->name, &o, err);
}

static int take_data(cli_rows *r, int n_line, const kh_row **rows, int *n, kh_err *err) {
    bool table = r->format == CLI_ROWS_TSV || r->format == CLI_ROWS_CSV, later = r->header.len > 0;
    kh_buf whole = kh_buf_init((size_t)1 << 32);
    long before = r->line - header_lines(r);
    kh_buf_bytes(&whole, r->header.data, r->header.len);
    kh_buf_bytes(&whole, r->text.data, r->text.len);
    if (table && !later)
        keep_header(r);
    kh_dataset_close(r->data);
    r->data = NULL;
    int rc = kh_buf_failed(&whole) || kh_buf_failed(&r->header) ? kh_fail_memory(err)
                                                                : parse(r, &whole, before, err);
    kh_buf_free(&whole);
    if (rc != 0)
        return rc;
    r->line += n_line;
    *rows = kh_dataset_rows(r->data);
    *n = kh_dataset_size(r->data);
    return 1;
}

/* Texts of the command line are lines of text, whatever --format says; "line" counts them. */
static int take_arguments(cli_rows *r, const kh_row **rows, int *n, kh_err *err) {
    if (r->line == r->n_text)
        return 0;
    r->name = "command line";
    if (!kh_grow(&r->row, &r->cap, (size_t)r->n_text, sizeof *r->row))
        return kh_fail_memory(err);
    for (*n = 0; *n < r->n_text; ++*n) {
        r->line++;
        int rc = read_text(r, r->text_arg[*n], strlen(r->text_arg[*n]), &r->row[*n], err);
        if (rc != 0)
            return rc;
    }
    *rows = r->row;
    return 1;
}

int cli_rows_next(cli_rows *r, const kh_row **rows, int *n, kh_err *err) {
    if (r->n_text > 0)
        return take_arguments(r, rows, n, err);
    int n_line, n_full, rc = r->in ? 0 : open_rows(r, err);
    while (rc == 0) {
        rc = collect(r, &n_line, &n_full, err);
        if (rc != 0 || n_line == 0)
            return rc;
        if (r->format == CLI_ROWS_TEXT)
            return take_texts(r, n_line, rows, n, err);
        if (n_full > 0)
            return take_data(r, n_line, rows, n, err);
        r->line += n_line;
    }
    return rc;
}

void cli_rows_free(cli_rows *r) {
    if (r->in && r->path)
        fclose(r->in);
    kh_buf_free(&r->text);
    kh_buf_free(&r->header);
    kh_buf_free(&r->one);
    kh_dataset_close(r->data);
    kh_free(r->row);
}
