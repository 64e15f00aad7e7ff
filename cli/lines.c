/* lines.c - see lines.h. */
#include "lines.h"

#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { UNKNOWN_WIDTH = 80, KEPT_WIDTH = 80, READABLE_WIDTH = 100 };

int cli_width(FILE *out) {
    struct winsize w;
    if (!isatty(fileno(out)))
        return 0;
    return ioctl(fileno(out), TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : UNKNOWN_WIDTH;
}

int cli_paragraph_width(FILE *out) {
    int width = cli_width(out);
    if (width == 0)
        return KEPT_WIDTH;
    return width < READABLE_WIDTH ? width : READABLE_WIDTH;
}

int cli_columns(const char *text, size_t n) {
    int columns = 0;
    for (size_t i = 0; i < n; i++)
        columns += ((unsigned char)text[i] & 0xC0) != 0x80;
    return columns;
}

/* Bytes up to the next place where a line may end: a sign of percent stays with its number, quotes
 * are kept whole in at most `most` columns. */
static size_t word_end(const char *s, int most) {
    size_t n = strcspn(s, " \n");
    if (n > 0 && strncmp(s + n, " %", 2) == 0)
        n += 1 + strcspn(s + n + 1, " \n");
    const char *open = memchr(s, '"', n);
    if (!open || memchr(open + 1, '"', n - (size_t)(open + 1 - s)))
        return n;
    const char *close = strchr(open + 1, '"');
    if (!close || memchr(s, '\n', (size_t)(close - s)))
        return n;
    size_t whole = (size_t)(close - s) + strcspn(close, " \n");
    return cli_columns(s, whole) <= most ? whole : n;
}

void cli_wrap(kh_buf *out, int width, int hang, const char *text) {
    int column = 0;
    if (width == 0) {
        kh_buf_printf(out, "%s\n", text);
        return;
    }
    for (const char *s = text; *s;) {
        size_t n = word_end(s, width - 1 - hang);
        int wide = cli_columns(s, n);
        if (column > hang && column + 1 + wide >= width) {
            kh_buf_printf(out, "\n%*s", hang, "");
            column = hang;
        } else if (s > text && s[-1] == ' ') {
            kh_buf_char(out, ' ');
            column++;
        }
        kh_buf_bytes(out, s, n);
        column += wide;
        s += n;
        if (*s == '\n') {
            kh_buf_printf(out, "\n%*s", s[1] ? hang : 0, "");
            column = hang;
        }
        s += *s != '\0';
    }
    kh_buf_char(out, '\n');
}

void cli_say(FILE *out, int hang, const char *format, ...) {
    char text[4096]; /* more than any sentence has */
    kh_buf lines = kh_buf_init(2 * sizeof text);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cli_wrap(&lines, cli_width(out), hang, text);
    if (!kh_buf_failed(&lines))
        fputs(lines.data, out);
    kh_buf_free(&lines);
}

/* Where the lines after the first begin: below what follows the first wide gap, if that leaves half
 * of the width, or a little to the right of the line's own start. */
static int hang_of(const char *line, size_t n, int width) {
    size_t indent = strspn(line, " ");
    for (size_t i = indent; i + 2 < n; i++)
        if (line[i] == ' ' && line[i + 1] == ' ') {
            size_t at = i + strspn(line + i, " ");
            return (int)at <= width / 2 ? (int)at : (int)indent + 4;
        }
    return (int)indent + 2;
}

void cli_print(FILE *out, const char *text) {
    int width = cli_width(out);
    kh_buf line = kh_buf_init(KH_BUF_MAX), lines = kh_buf_init(KH_BUF_MAX);
    for (const char *s = text; width > 0 && *s;) {
        size_t n = strcspn(s, "\n");
        kh_buf_reset(&line);
        kh_buf_bytes(&line, s, n);
        kh_buf_char(&line, '\0');
        if (!kh_buf_failed(&line))
            cli_wrap(&lines, width, hang_of(s, n, width), line.data);
        s += n + (s[n] == '\n');
    }
    fputs(width > 0 && lines.len > 0 && !kh_buf_failed(&lines) ? lines.data : text, out);
    kh_buf_free(&line);
    kh_buf_free(&lines);
}

size_t cli_fitting(const char *list, int columns) {
    size_t fits = 0;
    for (size_t n = 0; list[n];) {
        n += strcspn(list + n, ",");
        while (list[n] && list[n + 1] != ' ') /* a comma inside a number */
            n += 1 + strcspn(list + n + 1, ",");
        if (cli_columns(list, n) > columns)
            break;
        fits = n;
        n += list[n] == ',';
    }
    return fits;
}
