/* plot.c - see plot.h.
 *
 * gnuplot is started without a shell. Its script is a nameless temporary file on its standard
 * input, so that nobody waits for anybody: it reads what is there, writes, and ends. Of its SVG the
 * canvas is kept and rewritten for the page: ids made unique, colours by the page's variables, the
 * prologue, empty groups and tooltips left out. */
#include "report/plot.h"

#include "base/err.h"
#include "base/portable.h"
#include "report/html.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { WIDTH = 470, HEIGHT = 310 };
static const size_t SVG_MAX = (size_t)32 << 20;

static const char PREAMBLE[] = "set encoding utf8\n"
                               "set border 3 lc " KH_PLOT_MUTED "\n"
                               "set tics nomirror out scale 0.6\n"
                               "set grid lt 1 lw 0.8 lc " KH_PLOT_GRID "\n"
                               "set key above left Left reverse horizontal maxcols 2 samplen 1.6 "
                               "width -3 textcolor rgb 'black'\n"
                               "set xlabel textcolor rgb 'black'\n"
                               "set ylabel textcolor rgb 'black'\n"
                               "set bmargin 3.6\nset rmargin 2\n";

/* ------------------------------------------------------------------------------------- running */

static FILE *script_file(const kh_buf *script) {
    FILE *f = tmpfile();
    if (!f)
        return NULL;
    fprintf(f, "set terminal svg size %d,%d dynamic noenhanced font 'sans-serif,13'\n%s", WIDTH,
        HEIGHT, PREAMBLE);
    fwrite(script->data, 1, script->len, f);
    if (fflush(f) != 0 || ferror(f) || lseek(fileno(f), 0, SEEK_SET) != 0) {
        fclose(f);
        return NULL;
    }
    return f;
}

/* The program's standard output to the end. */
static bool read_all(int fd, kh_buf *out) {
    char block[16384];
    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0;
        kh_buf_bytes(out, block, (size_t)n);
    }
}

/* Starts the program with the file as input, its messages in `errors`; its output is read from the
 * pipe. */
static int start(kh_plotter *g, FILE *in, FILE *errors, int pipe_fd[2], pid_t *pid) {
    char *const argv[] = { (char *)(uintptr_t)g->program, (char[]){ "-d" }, (char[]){ "-" }, NULL };
    posix_spawn_file_actions_t plan;
    if (kh_pipe(pipe_fd) != 0 || posix_spawn_file_actions_init(&plan) != 0)
        return errno;
    int rc = posix_spawn_file_actions_adddup2(&plan, fileno(in), STDIN_FILENO);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&plan, pipe_fd[1], STDOUT_FILENO);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&plan, fileno(errors), STDERR_FILENO);
    rc = rc ? rc : posix_spawnp(pid, g->program, &plan, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&plan);
    return rc;
}

static void say_missing(kh_plotter *g, int code) {
    snprintf(g->why, sizeof g->why, "%s cannot be started: %s", g->program, strerror(code));
}

static void say_why(kh_plotter *g, FILE *errors) {
    char line[160] = "";
    rewind(errors);
    while (fgets(line, sizeof line, errors) && strspn(line, " \t\r\n^") == strlen(line))
        continue;
    line[strcspn(line, "\r\n")] = '\0';
    snprintf(
        g->why, sizeof g->why, "%s could not draw it%s%s", g->program, *line ? ": " : "", line);
}

/* Returns 0 with the SVG in *svg, or 1 with g->why. */
static int run(kh_plotter *g, const kh_buf *script, kh_buf *svg) {
    FILE *in = script_file(script), *errors = tmpfile();
    int pipe_fd[2] = { -1, -1 }, status = 0, rc = in && errors ? 0 : errno;
    pid_t pid = -1;
    if (rc == 0)
        rc = start(g, in, errors, pipe_fd, &pid);
    if (pipe_fd[1] >= 0)
        close(pipe_fd[1]);
    if (rc != 0) {
        g->missing = true;
        say_missing(g, rc);
    } else {
        bool all = read_all(pipe_fd[0], svg);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            continue;
        if (!all || status != 0 || svg->len == 0) {
            /* Where posix_spawn cannot tell, as under emulators, the child ends in 127. */
            g->missing = WIFEXITED(status) && WEXITSTATUS(status) == 127;
            if (g->missing)
                say_missing(g, ENOENT);
            else
                say_why(g, errors);
            rc = 1;
        }
    }
    if (pipe_fd[0] >= 0)
        close(pipe_fd[0]);
    if (in)
        fclose(in);
    if (errors)
        fclose(errors);
    return rc ? 1 : 0;
}

int kh_plot_svg(kh_plotter *g, const kh_buf *script, const char *title, const char *desc,
    kh_buf *out, kh_err *err) {
    if (kh_buf_failed(script))
        return kh_fail_memory(err);
    if (g->missing)
        return 1;
    kh_buf svg = kh_buf_init(SVG_MAX);
    int rc = run(g, script, &svg);
    if (rc == 0 &&
        (kh_buf_failed(&svg) || !kh_plot_inline(svg.data, svg.len, ++g->n, title, desc, out))) {
        snprintf(g->why, sizeof g->why, "%s wrote something that is no SVG plot", g->program);
        rc = 1;
    }
    kh_buf_free(&svg);
    return rc;
}

/* ------------------------------------------------------------------------------------ inlining */

/* "rgb( 0, 0, 241)" at s: its length, and the page's name for it in *name (NULL: none). */
static size_t colour_at(const char *s, const char *end, const char **name) {
    static const char *const NAMES[] = { "var(--first)", "var(--second)", "var(--grid)",
        "var(--muted)" };
    int rgb[3];
    const char *at = s + 4;
    *name = NULL;
    for (int i = 0; i < 3; i++) {
        char *stop;
        rgb[i] = (int)strtol(at, &stop, 10);
        if (stop == at || stop >= end || *stop != (i < 2 ? ',' : ')'))
            return 0;
        at = stop + 1;
    }
    if (rgb[0] == 0 && rgb[1] == 0 && rgb[2] == 0)
        *name = "currentColor";
    if (rgb[0] == 0 && rgb[1] == 0 && rgb[2] >= 0xf1 && rgb[2] <= 0xf4)
        *name = NAMES[rgb[2] - 0xf1];
    return (size_t)(at - s);
}

static bool starts(const char *s, const char *end, const char *with) {
    size_t n = strlen(with);
    return (size_t)(end - s) >= n && memcmp(s, with, n) == 0;
}

/* The canvas, rewritten bit by bit. Nothing is parsed but what gnuplot is known to write; all else
 * is copied. */
static void put_canvas(kh_buf *out, const char *s, const char *end, int n) {
    static const struct {
        const char *from, *to;
    } words[] = { { " color=\"black\"", "" }, { " color=\"white\"", "" },
        { "\"black\"", "\"currentColor\"" }, { "'black'", "'currentColor'" },
        { " class=\"gridline\"", "" }, { " font-family=\"sans-serif\"", "" } };
    while (s < end) {
        const char *name, *stop;
        size_t used = 0;
        if (starts(s, end, "<title>") &&
            (stop = memmem(s, (size_t)(end - s), "</title>", 8)) != NULL)
            used = (size_t)(stop - s) + 8;
        else if (starts(s, end, "<filter") &&
            (stop = memmem(s, (size_t)(end - s), "</filter>", 9)) != NULL)
            used = (size_t)(stop - s) + 9;
        else if (starts(s, end, "<g fill=\"none\"") &&
            (stop = memchr(s, '>', (size_t)(end - s))) != NULL && starts(stop, end, ">\n</g>"))
            used = (size_t)(stop - s) + 6;
        else if (starts(s, end, "rgb(") && (used = colour_at(s, end, &name)) > 0 && name)
            kh_buf_text(out, name);
        else if (starts(s, end, "rgb("))
            used = 0;
        else if (starts(s, end, " id=") || starts(s, end, "href=")) {
            size_t lead = starts(s, end, " id=") ? 5 : 7; /* up to and with the quote, and the # */
            kh_buf_bytes(out, s, lead);
            kh_buf_printf(out, "plot%d-", n);
            used = lead;
        }
        for (size_t i = 0; used == 0 && i < sizeof words / sizeof words[0]; i++)
            if (starts(s, end, words[i].from)) {
                kh_buf_text(out, words[i].to);
                used = strlen(words[i].from);
            }
        if (used == 0) {
            kh_buf_char(out, *s);
            used = 1;
        }
        s += used < (size_t)(end - s) ? used : (size_t)(end - s);
    }
}

bool kh_plot_inline(
    const char *svg, size_t len, int n, const char *title, const char *desc, kh_buf *out) {
    static const char CANVAS[] = "<g id=\"gnuplot_canvas\">", END[] = "</svg>";
    const char *canvas = memmem(svg, len, CANVAS, sizeof CANVAS - 1), *end = svg + len;
    while (end > svg && (end[-1] == '\n' || end[-1] == ' ' || end[-1] == '\r'))
        end--;
    if (!canvas || (size_t)(end - canvas) < sizeof END - 1 ||
        memcmp(end - (sizeof END - 1), END, sizeof END - 1) != 0)
        return false;
    kh_buf_printf(out,
        "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"plot%d-title "
        "plot%d-desc\">\n<title id=\"plot%d-title\">",
        WIDTH, HEIGHT, n, n, n);
    kh_html_text(out, title, strlen(title));
    kh_buf_printf(out, "</title>\n<desc id=\"plot%d-desc\">", n);
    kh_html_text(out, desc, strlen(desc));
    kh_buf_text(out, "</desc>\n");
    put_canvas(out, canvas, end, n);
    kh_buf_char(out, '\n');
    return true;
}
