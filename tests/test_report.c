/* test_report.c - the pieces of a report: text in pages, tables in five formats, plots with and
 * without gnuplot, logs, principal components, results side by side; and an evaluation in which
 * every allocation fails once. */
#include "tiny.h"

#include "posterior/distance.h"
#include "posterior/posterior.h"
#include "prompt/subspace.h"
#include "report/compare.h"
#include "report/html.h"
#include "report/page.h"
#include "judge/pca.h"
#include "report/results.h"
#include "report/text_plot.h"

#include <math.h>
#include <sys/stat.h>

/* cmocka's own compares floats. */
#define assert_near(a, b, within) assert_true(fabs((double)(a) - (double)(b)) <= (within))

static void assert_text(kh_buf *b, const char *want) {
    assert_false(kh_buf_failed(b));
    assert_string_equal(b->data ? b->data : "", want);
    kh_buf_free(b);
}

/* ------------------------------------------------------------------------------- text in pages */

static void html_of(const char *s, size_t n, const char *want) {
    kh_buf b = kh_buf_init(1 << 16);
    kh_html_text(&b, s, n);
    assert_text(&b, want);
}

static void marks_are_escaped(void **state) {
    (void)state;
    html_of("<script>alert(\"x\" & 'y')</script>", 33,
        "&lt;script&gt;alert(&quot;x&quot; &amp; &#39;y&#39;)&lt;/script&gt;");
    html_of("a\tb\nc\rd", 7, "a b c d");
    html_of("ü€𝄞", 9, "ü€𝄞");
}

static void the_unseen_is_shown(void **state) {
    (void)state;
    html_of("a\0b\x01", 4, "a[U+0000]b[U+0001]");
    html_of("\xE2\x80\xAE"
            "evil",
        7, "[U+202E]evil");
    html_of("\xE2\x81\xA6", 3, "[U+2066]");
    html_of("\xC2\x85", 2, "[U+0085]");
    html_of("\xEF\xBB\xBF", 3, "[U+FEFF]");
    html_of("\xEF\xBF\xBE", 3, "[U+FFFE]");
    html_of("a\xFF"
            "b",
        3,
        "a\xEF\xBF\xBD"
        "b");
}

static void foreign_text_is_isolated_and_cut(void **state) {
    (void)state;
    kh_buf b = kh_buf_init(1 << 10);
    kh_html_foreign(&b, "שלום<b>", 11, 5);
    assert_text(&b, "<bdi>שלום&lt;…</bdi>");
    b = kh_buf_init(1 << 10);
    kh_html_foreign(&b, "ab", 2, 2);
    assert_text(&b, "<bdi>ab</bdi>");
}

/* -------------------------------------------------------------------------------------- tables */

/* Two curves that meet at their ends: the first is seen there; the scale is the next tenth. */
static void a_plot_in_letters(void **state) {
    (void)state;
    kh_curve_point rising[] = { { .coverage = 0.5, .risk = 0 }, { .coverage = 1, .risk = 0.35 } };
    kh_curve_point level[] = { { .coverage = 1, .risk = 0.35 } };
    kh_text_curve curve[] = { { 'a', "first", rising, 2 }, { 'b', "second", level, 1 } };
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_text_plot(curve, 2, "error", "answered", &b);
    const char *line = strstr(b.data, "       |bbb");
    assert_non_null(line);
    assert_int_equal(strspn(line + 8, "b"), 30); /* half of the width */
    assert_int_equal(strspn(line + 38, "a"), 30);
    assert_non_null(strstr(b.data, "  0.40 |"));
    line = strstr(b.data, "  0.00 |");
    assert_non_null(line);
    assert_int_equal(strspn(line + 8, "a"), 30);
    assert_non_null(strstr(b.data, "a first, b second\n"));
    for (const char *s = b.data; *s; s += strcspn(s, "\n") + 1)
        assert_true(strcspn(s, "\n") <= 80);
    kh_buf_reset(&b);
    kh_text_plot(&(kh_text_curve){ 'a', "none", NULL, 0 }, 1, "error", "answered", &b);
    assert_int_equal(b.len, 0);
    kh_buf_free(&b);
}

static kh_grid sample_grid(void) {
    kh_grid t = { .n_col = 2, .n_left = 1 };
    kh_grid_add(&t, "method");
    kh_grid_add(&t, "value");
    kh_grid_add(&t, "%s", "a|b_<\\&%,\"");
    kh_grid_add(&t, "%.2f ± %.2f", 0.5, 0.25);
    kh_grid_strong(&t);
    kh_grid_add(&t, "%s", "=cmd\x1b[0m");
    kh_grid_add(&t, "%d", 7);
    return t;
}

static void grid_is(kh_grid_format format, bool colour, const char *want) {
    kh_grid t = sample_grid();
    t.colour = colour;
    kh_buf b = kh_buf_init(1 << 16);
    kh_grid_put(&t, format, &b);
    assert_text(&b, want);
    kh_grid_free(&t);
}

static void tables_for_terminals(void **state) {
    (void)state;
    grid_is(KH_GRID_TEXT, false,
        "  method             value\n"
        "  a|b_<\\&%,\"  *0.50 ± 0.25\n"
        "  =cmd [0m               7\n");
    grid_is(KH_GRID_TEXT, true,
        "  method            value\n"
        "  a|b_<\\&%,\"  \033[1m0.50 ± 0.25\033[0m\n"
        "  =cmd [0m              7\n");
}

static void tables_for_documents(void **state) {
    (void)state;
    grid_is(KH_GRID_MARKDOWN, false,
        "| method | value |\n|---|---:|\n| a\\|b\\_&lt;\\\\&amp;%,\" | **0.50 ± 0.25** |\n| "
        "=cmd\x1b\\[0m | 7 |\n");
    grid_is(
        KH_GRID_CSV, false, "method,value\n\"a|b_<\\&%,\"\"\",0.50 ± 0.25\n\"'=cmd\x1b[0m\",7\n");
    grid_is(KH_GRID_LATEX, false,
        "\\begin{tabular}{lr}\n\\hline\nmethod & value \\\\\n\\hline\n"
        "a|b\\_\\textless{}\\textbackslash{}\\&\\%,\" & \\textbf{0.50 $\\pm$ 0.25} "
        "\\\\\n=cmd\x1b[0m & 7 "
        "\\\\\n\\hline\n\\end{tabular}\n");
    grid_is(KH_GRID_HTML, false,
        "<table>\n<thead>\n<tr><th scope=\"col\">method</th><th scope=\"col\" "
        "class=\"n\">value</th></tr>\n</thead>\n<tbody>\n"
        "<tr><th scope=\"row\">a|b_&lt;\\&amp;%,&quot;</th><td class=\"n\"><strong>0.50 ± "
        "0.25</strong></td></tr>\n"
        "<tr><th scope=\"row\">=cmd[U+001B][0m</th><td "
        "class=\"n\">7</td></tr>\n</tbody>\n</table>\n");
}

static void notes_stand_beside_or_below(void **state) {
    (void)state;
    kh_grid t = { .n_col = 2, .n_left = 1, .caption = "What & why" };
    kh_grid_note(&t, 0, "of nothing"); /* there is no cell yet */
    kh_grid_add(&t, "a");
    kh_grid_add(&t, "b");
    kh_grid_add(&t, "x");
    kh_grid_note(&t, 0, "first");
    kh_grid_note(&t, 0, "second");
    kh_grid_add(&t, "1");
    kh_buf b = kh_buf_init(1 << 16);
    kh_grid_put(&t, KH_GRID_CSV, &b);
    assert_text(&b, "a,b\nx (first; second),1\n");
    b = kh_buf_init(1 << 16);
    kh_grid_put(&t, KH_GRID_HTML, &b);
    assert_non_null(strstr(b.data, "What &amp; why"));
    assert_non_null(strstr(b.data, "first"));
    assert_null(strstr(b.data, "(first"));
    kh_buf_free(&b);
    kh_grid_free(&t);
}

static void long_cells_are_cut_between_characters(void **state) {
    (void)state;
    char text[601];
    for (int i = 0; i < 300; i++)
        memcpy(text + 2 * i, "ü", 3);
    kh_grid t = { .n_col = 1, .n_left = 1 };
    kh_grid_add(&t, "h");
    kh_grid_add(&t, "%s", text);
    kh_buf b = kh_buf_init(1 << 16);
    kh_grid_put(&t, KH_GRID_CSV, &b);
    assert_int_equal(b.len, 2 + 510 + 1); /* 255 of two bytes: half of one more would fit */
    kh_buf_free(&b);
    kh_grid_free(&t);
}

/* --------------------------------------------------------------------------------------- plots */

static const char SVG[] =
    "<?xml version=\"1.0\"?>\n<svg\n viewBox=\"0 0 470 310\"\n>\n<title>Gnuplot</title>\n<g "
    "id=\"gnuplot_canvas\">\n"
    "<defs><circle id='gpDot' stroke='currentColor'/><filter id='textbox'>x</filter></defs>\n"
    "<g fill=\"none\" color=\"black\" stroke=\"currentColor\">\n</g>\n"
    "<g fill=\"none\" color=\"black\" stroke=\"rgb(  0,   0, 241)\"><title>plot</title>"
    "<use xlink:href='#gpDot' color='rgb(  0,   0, 242)'/><text fill=\"black\">1</text><p "
    "fill='rgb(1,2,3)'/></g>\n</g>\n</svg>\n\n";

static void an_svg_is_made_fit_for_a_page(void **state) {
    (void)state;
    kh_buf b = kh_buf_init(1 << 16);
    assert_true(kh_plot_inline(SVG, sizeof SVG - 1, 4, "T<", "D", &b));
    assert_text(&b,
        "<svg viewBox=\"0 0 470 310\" role=\"img\" aria-labelledby=\"plot4-title "
        "plot4-desc\">\n<title "
        "id=\"plot4-title\">T&lt;</title>\n"
        "<desc id=\"plot4-desc\">D</desc>\n<g id=\"plot4-gnuplot_canvas\">\n<defs><circle "
        "id='plot4-gpDot' "
        "stroke='currentColor'/></defs>\n\n"
        "<g fill=\"none\" stroke=\"var(--first)\"><use xlink:href='#plot4-gpDot' "
        "color='var(--second)'/>"
        "<text fill=\"currentColor\">1</text><p fill='rgb(1,2,3)'/></g>\n</g>\n</svg>\n");
}

static void what_is_no_svg_is_refused(void **state) {
    (void)state;
    kh_buf b = kh_buf_init(1 << 16);
    assert_false(kh_plot_inline("nonsense", 8, 1, "", "", &b));
    assert_false(kh_plot_inline(SVG, sizeof SVG - 20, 1, "", "", &b)); /* cut off */
    for (size_t n = 0; n < sizeof SVG; n++) /* and nothing is read beyond its end */
        kh_plot_inline(SVG, n, 1, "", "", &b);
    kh_buf_free(&b);
}

static int plot(kh_plotter *g, const char *text, kh_buf *out) {
    kh_buf script = kh_buf_init(1 << 16);
    kh_buf_text(&script, text);
    int rc = kh_plot_svg(g, &script, "A plot", "of x", out, NULL);
    kh_buf_free(&script);
    return rc;
}

static void without_gnuplot_it_says_so_once(void **state) {
    (void)state;
    kh_plotter g = { .program = "gnuplot-that-is-not-there" };
    kh_buf b = kh_buf_init(1 << 20);
    assert_int_equal(plot(&g, "plot x\n", &b), 1);
    assert_true(g.missing && b.len == 0);
    assert_string_equal(
        g.why, "gnuplot-that-is-not-there cannot be started: No such file or directory");
    assert_int_equal(plot(&g, "plot x\n", &b), 1);
    kh_buf_free(&b);
}

static void a_program_that_draws_nothing(void **state) {
    (void)state;
    kh_plotter g = { .program = "true" }, h = { .program = "cat" };
    kh_buf b = kh_buf_init(1 << 20);
    assert_int_equal(plot(&g, "plot x\n", &b), 1);
    assert_non_null(strstr(g.why, "true could not draw it"));
    int rc = plot(&h, "plot x\n", &b); /* cat -d is wrong usage */
    assert_int_equal(rc, 1);
    assert_int_equal(b.len, 0);
    kh_buf_free(&b);
}

/* A program in gnuplot's place: it keeps what it is told in `drawn`, says `complaint`, writes `svg`
 * and ends with `status`. */
static char drawer[96], drawn[96];

static void make_drawer(const char *svg, const char *complaint, int status) {
    kh_buf b = kh_buf_init(1 << 16);
    snprintf(drawer, sizeof drawer, "/tmp/keyhole-test-drawer-%ld", (long)getpid());
    snprintf(drawn, sizeof drawn, "/tmp/keyhole-test-drawn-%ld", (long)getpid());
    kh_buf_printf(&b, "#!/bin/sh\ncat >> %s\ncat <<'END' >&2\n%s\nEND\n", drawn, complaint);
    kh_buf_printf(&b, "cat <<'END'\n%s\nEND\nexit %d\n", svg, status);
    assert_int_equal(kh_file_write(drawer, b.data, b.len, NULL), 0);
    assert_int_equal(chmod(drawer, 0700), 0);
    kh_buf_free(&b);
}

/* What the drawer was told, all scripts behind each other; free it. */
static char *what_was_drawn(void) {
    kh_buf b;
    assert_int_equal(kh_file_read(drawn, 1 << 24, &b, NULL), 0);
    unlink(drawn);
    unlink(drawer);
    return kh_buf_take(&b, NULL);
}

static void what_a_program_draws_is_taken(void **state) {
    (void)state;
    kh_plotter g = { .program = drawer };
    kh_buf b = kh_buf_init(1 << 20);
    make_drawer(SVG, "a warning", 0);
    assert_int_equal(plot(&g, "plot x\n", &b), 0);
    assert_int_equal(plot(&g, "plot y\n", &b), 0);
    assert_non_null(strstr(b.data, "plot1-gnuplot_canvas"));
    assert_non_null(strstr(b.data, "plot2-gnuplot_canvas"));
    char *told = what_was_drawn();
    assert_non_null(strstr(told, "set terminal svg"));
    assert_non_null(strstr(told, "\nplot y\n"));
    kh_free(told);
    kh_buf_free(&b);
}

static void a_program_that_fails_is_quoted(void **state) {
    (void)state;
    static const struct {
        const char *svg, *complaint;
        int status;
        bool missing;
        const char *says;
    } cases[] = {
        { "", "\n   ^\n\tline 3: bad\nmore", 1, false, "could not draw it: \tline 3: bad" },
        { "", "", 2, false, "could not draw it" },
        { "x", "", 127, true, "cannot be started: No such file or directory" },
        { "nonsense", "", 0, false, "wrote something that is no SVG plot" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kh_plotter g = { .program = drawer };
        kh_buf b = kh_buf_init(1 << 20);
        make_drawer(cases[i].svg, cases[i].complaint, cases[i].status);
        assert_int_equal(plot(&g, "plot x\n", &b), 1);
        assert_string_equal(g.why + strlen(drawer) + 1, cases[i].says);
        assert_int_equal(g.missing, cases[i].missing);
        assert_int_equal(b.len, 0);
        kh_free(what_was_drawn());
        kh_buf_free(&b);
    }
}

static bool have_gnuplot(void) { return system("command -v gnuplot >/dev/null 2>&1") == 0; }

static void gnuplot_draws(void **state) {
    (void)state;
    if (!have_gnuplot())
        test_skip("gnuplot is not there");
    kh_plotter g = { .program = "gnuplot" };
    kh_buf b = kh_buf_init(1 << 20);
    assert_int_equal(plot(&g, "plot x lc " KH_PLOT_FIRST " title 'x'\n", &b), 0);
    assert_non_null(strstr(b.data, "var(--first)"));
    assert_non_null(strstr(b.data, "plot1-gnuplot_canvas"));
    assert_null(strstr(b.data, "<?xml"));
    assert_null(strstr(b.data, "rgb(  0,   0, 24"));
    size_t before = b.len;
    assert_int_equal(plot(&g, "plot $nothing\n", &b), 1);
    assert_int_equal(b.len, before);
    assert_non_null(strstr(g.why, "gnuplot could not draw it: "));
    assert_false(g.missing);
    kh_buf_free(&b);
}

/* ---------------------------------------------------------------------------------------- logs */

static void a_log_is_read_by_its_keys(void **state) {
    (void)state;
    static const char text[] = "gen=1 queries=640 loss=0.52 dev=-\nnonsense\n\ngen=2 queries=1280 "
                               "loss=inf dev=0.5 eps=3\n=7 "
                               "toolongakeytobeakeyofalog=1\ngen=3";
    kh_runlog l;
    assert_int_equal(kh_runlog_parse(&l, text, sizeof text - 1, NULL), 0);
    assert_int_equal(l.n, 3);
    int loss = kh_runlog_find(&l, "loss"), dev = kh_runlog_find(&l, "dev"),
        gen = kh_runlog_find(&l, "gen");
    assert_int_equal(l.n_key, 5);
    assert_near(kh_runlog_at(&l, 0, loss), 0.52, 0);
    assert_true(isnan(kh_runlog_at(&l, 1, loss)) && isnan(kh_runlog_at(&l, 0, dev)) &&
        kh_runlog_at(&l, 1, dev) == 0.5);
    assert_near(kh_runlog_at(&l, 2, gen), 3, 0);
    assert_int_equal(kh_runlog_count(&l, dev), 1);
    assert_int_equal(kh_runlog_find(&l, "nothing"), -1);
    kh_runlog_free(&l);
}

static void a_log_of_many_keys_is_bounded(void **state) {
    (void)state;
    kh_buf b = kh_buf_init(1 << 16);
    for (int i = 0; i < 100; i++)
        kh_buf_printf(&b, "k%d=%d ", i, i);
    kh_runlog l;
    assert_int_equal(kh_runlog_parse(&l, b.data, b.len, NULL), 0);
    assert_int_equal(l.n_key, KH_RUNLOG_KEYS);
    assert_near(kh_runlog_at(&l, 0, 31), 31, 0);
    kh_runlog_free(&l);
    kh_buf_free(&b);
    assert_int_equal(kh_runlog_open(&l, "/nowhere", NULL), 0); /* no log is an empty one */
    assert_int_equal(l.n, 0);
    kh_runlog_free(&l);
}

/* ----------------------------------------------------------------------------------------- PCA */

static void principal_components_of_a_known_cloud(void **state) {
    (void)state;
    /* Four points: +-3 along (1,1,0)/sqrt 2, +-1 along (0,0,1). */
    float a = (float)(3 / sqrt(2.0));
    float x[] = { a + 5, a, 0, 5 - a, -a, 0, 5, 0, 1, 5, 0, -1 };
    double xy[8], share[2];
    assert_int_equal(kh_pca_plane(x, NULL, 4, 3, xy, share, NULL), 0);
    assert_near(share[0], 0.9, 1e-6);
    assert_near(share[1], 0.1, 1e-6);
    assert_near(fabs(xy[0]), 3, 1e-5);
    assert_near(xy[0], -xy[2], 1e-5);
    assert_near(fabs(xy[5]), 1, 1e-5);
    assert_near(xy[4], 0, 1e-5);
}

static void weights_and_degenerate_clouds(void **state) {
    (void)state;
    float x[] = { 0, 0, 4, 0, 2, 7 },
          weight[] = { 0.5f, 0.5f, 0 }; /* the third point has no weight, but a place */
    double xy[6], share[2];
    assert_int_equal(kh_pca_plane(x, weight, 3, 2, xy, share, NULL), 0);
    assert_near(share[0], 1, 1e-9);
    assert_near(fabs(xy[0]), 2, 1e-6);
    assert_near(xy[4], 0, 1e-6);
    assert_int_equal(kh_pca_plane(x, NULL, 1, 2, xy, share, NULL), 0); /* one point */
    assert_true(xy[0] == 0 && xy[1] == 0 && share[0] == 0);
    float same[] = { 1, 2, 1, 2 };
    assert_int_equal(kh_pca_plane(same, NULL, 2, 2, xy, share, NULL), 0);
    assert_true(share[0] == 0 && xy[0] == 0 && xy[3] == 0);
}

/* ---------------------------------------------------------------------------- results, compare */

static char *result_json(
    const char *method, const char *options, int seed, double accuracy, double ece) {
    kh_buf b = kh_buf_init(1 << 16);
    kh_buf_printf(&b,
        "{\"schema\":\"keyhole-results\",\"version\":1,\"run\":{\"method\":\"%s\",\"seed\":%d,"
        "\"options\":%s},\"model\":{\"path\":"
        "\"models/m\"},"
        "\"task\":{\"name\":\"sst2\"},\"eval\":{\"rows\":10},\"metrics\":{\"accuracy\":{\"value\":%"
        "g},\"ece\":{\"value\":%g},"
        "\"f1\":{\"value\":null},\"aurrrc_min\":{\"value\":0.1}},\"ood\":[{\"name\":\"rte\","
        "\"maxp\":{\"auroc\":{\"value\":0.7}},"
        "\"entropy\":{\"auroc\":{\"value\":0.8},\"fpr95\":{\"value\":%g}}}]}",
        method, seed, options, accuracy, ece, ece);
    return kh_buf_take(&b, NULL);
}

static kh_result result(
    const char *method, const char *options, int seed, double accuracy, double ece) {
    char *json = result_json(method, options, seed, accuracy, ece);
    kh_result r;
    kh_err err;
    if (kh_result_parse(&r, json, strlen(json), "results.json", &err) != 0)
        fail_msg("%s", err.msg);
    char name[64];
    snprintf(name, sizeof name, "%s-%d", method, seed);
    r.run = kh_strdup(name);
    kh_free(json);
    return r;
}

static void results_are_read_by_name(void **state) {
    (void)state;
    kh_result r = result("bbt", "{\"pop\":20}", 13, 0.9, 0.05);
    assert_near(kh_result_value(&r, "accuracy"), 0.9, 1e-12);
    assert_near(kh_result_value(&r, "ood.rte.entropy.auroc"), 0.8, 1e-12);
    assert_true(isnan(kh_result_value(&r, "f1")) && isnan(kh_result_value(&r, "nothing")));
    assert_int_equal(r.seed, 13);
    assert_int_equal(r.rows, 10);
    assert_int_equal(kh_result_better("accuracy"), 1);
    assert_int_equal(kh_result_better("ece"), -1);
    assert_int_equal(kh_result_better("ood.rte.entropy.auroc"), 1);
    assert_int_equal(kh_result_better("ood.rte.entropy.fpr95"), -1);
    assert_int_equal(kh_result_better("aurrrc_min"), 0);
    kh_result_free(&r);
}

static void malformed_results_have_their_sentences(void **state) {
    (void)state;
    static const struct {
        const char *json, *says;
    } cases[] = {
        { "3", "must hold a JSON object" },
        { "{}", "\"schema\"" },
        { "{\"schema\":\"other\"}", "\"schema\" is \"other\", expected \"keyhole-results\"" },
        { "{\"schema\":\"keyhole-results\",\"version\":2}",
            "written in version 2 by a later keyhole; this one reads up to 1" },
        { "{\"schema\":\"keyhole-results\",\"version\":1}", "\"run\" must be an object" },
        { "{\"schema\":\"keyhole-results\",\"version\":1,\"run\":{},\"model\":{},\"task\":{},"
          "\"eval\":{\"rows\":1}}",
            "\"metrics\" must be an object" },
        { "{\"schema\":\"keyhole-results\",\"version\":1,\"run\":{},\"model\":{},\"task\":{},"
          "\"eval\":{\"rows\":1},\"metrics\":{"
          "\"ece\":3}}",
            "\"ece\" must be an object with a \"value\"" },
        { "{\"schema\":\"keyhole-results\",\"version\":1,\"run\":{},\"model\":{},\"task\":{},"
          "\"eval\":{\"rows\":1},\"metrics\":{},"
          "\"ood\":[{\"name\":\"x\"}]}",
            "\"maxp\" must be an object" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kh_result r;
        kh_err err = { 0 };
        assert_true(kh_result_parse(&r, cases[i].json, strlen(cases[i].json), "r.json", &err) < 0);
        assert_says(&err, cases[i].says);
        kh_result_free(&r);
    }
    kh_result r;
    kh_err err;
    assert_int_equal(kh_result_open(&r, "/nowhere", &err), KH_EMISSING);
    assert_says(&err, "/nowhere: not the folder of a run");
    kh_result_free(&r);
}

static void seeds_share_a_line_and_the_best_is_marked(void **state) {
    (void)state;
    kh_result runs[] = { result("bbt", "{}", 1, 0.8, 0.1), result("bbt", "{}", 2, 0.9, 0.2),
        result("elbo", "{\"pop\":5}", 1, 0.85, 0.05), result("elbo", "{\"pop\":9}", 1, 0.7, 0.3) };
    static const char *const metrics[] = { "accuracy", "ece", "f1", "aurrrc_min" };
    kh_comparison c;
    kh_err err;
    if (kh_comparison_make(&c, runs, 4, metrics, 4, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(c.n, 3);
    assert_int_equal(c.group[0].n, 2);
    assert_near(c.group[0].mean[0], 0.85, 1e-12);
    assert_near(c.group[0].sd[0], sqrt(0.005), 1e-12);
    assert_true(
        c.group[0].best[0] && c.group[1].best[0] && !c.group[2].best[0]); /* a tie is shared */
    assert_true(!c.group[0].best[1] && c.group[1].best[1]);
    assert_false(
        c.group[0].best[3] || c.group[0].best[2]); /* nobody is best where nothing is better */
    kh_buf b = kh_buf_init(1 << 16);
    kh_comparison_put(&c, KH_GRID_MARKDOWN, false, &b);
    assert_non_null(strstr(b.data, "| bbt | 2 | **0.8500 ± 0.0707** | 0.1500 ± 0.0707 | - |"));
    kh_buf_free(&b);
    kh_comparison_free(&c);
    for (int i = 0; i < 4; i++)
        kh_result_free(&runs[i]);
}

static void comparison_formats(void **state) {
    (void)state;
    kh_result runs[] = { result("elbo", "{\"pop\":5,\"x\":1}", 1, 0.85, 0.05),
        result("elbo", "{\"pop\":9,\"x\":1}", 1, 0.7, 0.3) };
    static const char *const metrics[] = { "accuracy", "f1" };
    kh_comparison c;
    assert_int_equal(kh_comparison_make(&c, runs, 2, metrics, 2, NULL), 0);
    kh_buf b = kh_buf_init(1 << 16);
    kh_comparison_put(&c, KH_GRID_TEXT, false, &b);
    assert_text(&b,
        "  method      seeds  accuracy  f1\n  elbo pop=5      1   *0.8500   -\n  elbo pop=9      1 "
        "   0.7000   -\n");
    b = kh_buf_init(1 << 16);
    kh_comparison_put(&c, KH_GRID_CSV, false, &b);
    assert_text(&b,
        "model,task,method,seeds,accuracy,accuracy_sd,f1,f1_sd\nmodels/m,sst2,elbo "
        "pop=5,1,0.85,,,\nmodels/m,sst2,elbo "
        "pop=9,1,0.7,,,\n");
    b = kh_buf_init(1 << 16);
    kh_comparison_json(&c, &b);
    assert_non_null(strstr(b.data,
        "\"options\": {\"pop\":5,\"x\":1}, \"seeds\": 1, \"metrics\": {\n   \"accuracy\": "
        "{\"mean\": 0.85, \"sd\": null, "
        "\"best\": true}"));
    kh_buf_free(&b);
    kh_comparison_free(&c);
    kh_result_free(&runs[0]);
    kh_result_free(&runs[1]);
}

/* Runs on several tasks and models have columns for both; a model is named by the end of its path.
 */
static void models_and_tasks_are_told_apart(void **state) {
    (void)state;
    kh_result runs[] = { result("bbt", "{}", 1, 0.8, 0.1), result("bbt", "{}", 1, 0.9, 0.2),
        result("bbt", "{}", 2, 0.7, 0.2) };
    static const char *const metrics[] = { "accuracy" };
    kh_comparison c;
    kh_free(runs[1].model);
    runs[1].model = kh_strdup("http://host/");
    kh_free(runs[2].task);
    runs[2].task = kh_strdup("rte");
    assert_int_equal(kh_comparison_make(&c, runs, 3, metrics, 1, NULL), 0);
    assert_int_equal(c.n, 3);
    kh_buf b = kh_buf_init(1 << 16);
    kh_comparison_put(&c, KH_GRID_MARKDOWN, false, &b);
    assert_text(&b,
        "| model | task | method | seeds | accuracy |\n|---|---|---|---:|---:|\n"
        "| m | sst2 | bbt | 1 | 0.8000 |\n| http://host/ | sst2 | bbt | 1 | 0.9000 |\n"
        "| m | rte | bbt | 1 | 0.7000 |\n");
    kh_comparison_free(&c);
    for (int i = 0; i < 3; i++)
        kh_result_free(&runs[i]);
}

static void refusals_of_compare(void **state) {
    (void)state;
    kh_result runs[] = { result("bbt", "{}", 1, 0.8, 0.1), result("bbt", "{}", 1, 0.9, 0.2) };
    static const char *const metrics[] = { "speed" };
    kh_comparison c;
    kh_err err;
    assert_int_equal(kh_comparison_make(&c, runs, 2, metrics, 1, &err), KH_EARG);
    assert_says(&err, "bbt-1 and bbt-1 are the same method with the same seed; name one of them");
    kh_comparison_free(&c);
    assert_int_equal(kh_comparison_make(&c, runs, 1, metrics, 1, &err), KH_EARG);
    assert_says(&err, "no run has a metric \"speed\"");
    kh_comparison_free(&c);
    kh_result_free(&runs[0]);
    kh_result_free(&runs[1]);
}

static void compare_survives_every_allocation(void **state) {
    (void)state;
    char *json = result_json("bbt", "{\"pop\":5}", 1, 0.8, 0.1);
    for (long n = 1;; n++) {
        kh_result r;
        kh_comparison c = { 0 };
        kh_buf b = kh_buf_init(1 << 16);
        static const char *const metrics[] = { "accuracy" };
        kh_err err;
        kh_alloc_fail_at(n, true);
        int rc = kh_result_parse(&r, json, strlen(json), "r", &err);
        if (rc == 0)
            rc = kh_comparison_make(&c, &r, 1, metrics, 1, &err);
        if (rc == 0)
            kh_comparison_put(&c, KH_GRID_HTML, false, &b);
        bool done = kh_alloc_count() < n, failed = rc != 0 || kh_buf_failed(&b);
        kh_alloc_fail_at(0, false);
        kh_comparison_free(&c);
        kh_result_free(&r);
        kh_buf_free(&b);
        if (done) {
            assert_false(failed);
            break;
        }
        assert_true(failed);
    }
    kh_free(json);
}

/* ---------------------------------------------------------------------------------------- eval */

static kh_plm *plm;
static const kh_task *task;
static char folder[80], other_task[96];

static void write_text(const char *dir, const char *name, const char *text) {
    char *path = kh_path_join(dir, name);
    assert_int_equal(kh_file_write(path, text, strlen(text), NULL), 0);
    kh_free(path);
}

static void write_rows(const char *dir, const char *name, int n, const char *words) {
    kh_buf b = kh_buf_init(1 << 20);
    kh_buf_text(&b, "label\ttext\n");
    for (int i = 0; i < n; i++)
        kh_buf_printf(&b, "%d\t%s %d\n", i % 2, words, i);
    write_text(dir, name, b.data);
    kh_buf_free(&b);
}

static int open_all(void **state) {
    tiny_setup(state);
    plm = tiny_open(KH_ACCESS_LOGPROBS);
    task = tiny_task();
    snprintf(folder, sizeof folder, "/tmp/keyhole-test-data-%ld", (long)getpid());
    snprintf(other_task, sizeof other_task, "%s/other.json", folder);
    mkdir(folder, 0700);
    write_rows(folder, "train.tsv", 40, "the boats were green");
    write_rows(folder, "test.tsv", 30, "<script>small boats</script>");
    write_text(folder, "other.json",
        "{\"name\":\"o<b>\",\"template\":\"{mask} : "
        "{text}\",\"labels\":[{\"name\":\"x\",\"words\":[\"new\"]},"
        "{\"name\":\"y\",\"words\":[\"old\"]}]}");
    return 0;
}

static int close_all(void **state) {
    static const char *const FILES[] = { "train.tsv", "test.tsv", "other.json", NULL };
    tiny_remove(folder, FILES);
    kh_task_close(task);
    kh_plm_close(plm);
    return tiny_teardown(state);
}

/* Three prompts, two projections. */
static kh_posterior *posterior(void) {
    kh_posterior *p;
    kh_space space;
    kh_space_opts o = tiny_space();
    kh_rng r = kh_rng_stream(11, KH_RNG_TEST, 0, 0);
    assert_int_equal(kh_posterior_new(&p, "m<i>", plm, task, NULL), 0);
    assert_int_equal(kh_space_init(&space, &o, plm, 1, NULL), 0);
    assert_int_equal(kh_posterior_set_space(p, &space, NULL), 0);
    kh_space_free(&space);
    for (int s = 0; s < 3; s++) {
        float z[12];
        for (int i = 0; i < 12; i++)
            z[i] = (float)(4 * kh_rng_normal(&r));
        assert_int_equal(kh_posterior_add(p, z, (uint64_t)(s == 0), NULL), 0);
    }
    p->options = kh_posterior_keep(p, "{\"pop\":20,\"text\":\"<x>\"}");
    p->stopped = kh_posterior_keep(p, "all done");
    p->data = kh_posterior_keep(p, folder);
    p->shots = 8;
    p->seed = 13;
    return p;
}

static kh_eval_opts eval_opts(const char **ood) {
    static char pair[256];
    snprintf(pair, sizeof pair, "%s=%s", other_task, folder);
    *ood = pair;
    return (kh_eval_opts){
        .decide = kh_decision_defaults(), .bootstrap = { 20, 0.95, 0 }, .ood = { ood, 1, 1 }
    };
}

static void an_evaluation_adds_up(void **state) {
    (void)state;
    kh_posterior *p = posterior();
    const char *ood;
    kh_eval_opts o = eval_opts(&ood);
    kh_eval e;
    kh_err err;
    if (kh_eval_run(&e, p, plm, &o, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(e.rows.n, 30);
    assert_int_equal(e.dev.n, 16);
    assert_int_equal(e.n_outside, 1);
    assert_int_equal(e.queries, 3 * (30 + 16 + 30));
    kh_answers a = kh_eval_answers(&e);
    kh_metrics m;
    assert_int_equal(kh_metrics_compute(&m, &a, 0, NULL), 0);
    assert_true(m.nll == e.m.nll && m.aurrrc_entropy == e.m.aurrrc_entropy);
    assert_true(e.low.accuracy <= e.m.accuracy && e.m.accuracy <= e.high.accuracy);
    int total = 0, hits = 0;
    for (int i = 0; i < 4; i++) {
        total += e.confusion[i];
        hits += i % 3 == 0 ? e.confusion[i] : 0;
    }
    assert_int_equal(total, 30);
    assert_near(hits / 30.0, e.m.accuracy, 1e-12);
    assert_true(e.of_prompts && e.n_xy == 3);
    assert_near(e.share[0] + e.share[1], 1, 1e-9);
    for (int i = 0; i < e.rows.n; i++) {
        kh_decomposition d = kh_judged_parts(&e.rows, i, 2);
        assert_true(d.disagreement >= 0 && d.ambiguity <= d.total);
        assert_near(e.rows.votes[2 * i] + e.rows.votes[2 * i + 1], 1, 1e-6);
    }
    assert_near(e.ambiguity + e.disagreement, e.m.entropy, 1e-9);
    kh_eval_clear(&e);
    kh_posterior_free(p);
}

static void page_of(const kh_eval *e, const char *program, kh_buf *out);

static char *results_of(const kh_eval *e) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_results_json(e, "r", "{}", &b);
    return kh_buf_take(&b, NULL);
}

/* Told apart by three scores where energies are known; the same by hand. */
static void energies_are_a_third_score(void **state) {
    (void)state;
    kh_posterior *p = posterior();
    const char *ood;
    kh_eval_opts o = eval_opts(&ood);
    kh_eval e;
    kh_err err;
    o.decide.keep = 0.9; /* which sixteen dev rows can say */
    if (kh_eval_run(&e, p, plm, &o, &err) != 0)
        fail_msg("%s", err.msg);
    const kh_ood_rows *out = &e.outside[0];
    int pairs = 0, ahead = 0, tied = 0, above = 0;
    for (int i = 0; i < e.rows.n; i++)
        for (int k = 0; k < out->rows.n; k++, pairs++) {
            ahead += out->rows.energy[k] > e.rows.energy[i];
            tied += out->rows.energy[k] == e.rows.energy[i];
        }
    assert_int_equal(e.n_score, 3);
    assert_near(out->value[KH_SCORE_ENERGY].auroc, (ahead + 0.5 * tied) / pairs, 1e-12);
    assert_true(out->low[KH_SCORE_ENERGY].auroc <= out->value[KH_SCORE_ENERGY].auroc);
    assert_true(out->value[KH_SCORE_ENERGY].auroc != out->value[KH_SCORE_ENTROPY].auroc);
    assert_true(kh_eval_foreign(&e) == KH_SCORE_ENERGY &&
        e.decisions.opts.foreign == KH_SCORE_ENERGY && isfinite(e.decisions.ood));
    for (int k = 0; k < out->rows.n; k++)
        above += out->rows.energy[k] > e.decisions.ood;
    assert_near(out->flagged, (double)above / out->rows.n, 1e-12);
    kh_result r;
    char *json = results_of(&e);
    assert_non_null(strstr(json, "\"ood\": {\"score\": \"energy\""));
    assert_int_equal(kh_result_parse(&r, json, strlen(json), "r.json", NULL), 0);
    assert_near(
        kh_result_value(&r, "ood.o<b>.energy.auroc"), out->value[KH_SCORE_ENERGY].auroc, 1e-9);
    assert_int_equal(kh_result_better("ood.o<b>.energy.auroc"), 1);
    kh_result_free(&r);
    kh_free(json);
    kh_buf rows = kh_buf_init(KH_BUF_MAX), page;
    kh_eval_rows_json(&e, &rows);
    char line[64];
    snprintf(line, sizeof line, "\"energy\":%.9g,\"abstain\"", e.rows.energy[0]);
    assert_non_null(strstr(rows.data, line));
    snprintf(line, sizeof line, "\"ood_score\":%.9g", e.rows.energy[0]);
    assert_non_null(strstr(rows.data, line));
    page_of(&e, "no-gnuplot-here", &page);
    assert_non_null(strstr(
        page.data, "other texts called out-of-distribution</dt>")); /* what is caught, first */
    assert_non_null(strstr(page.data, "AUROC by energy 0."));
    assert_non_null(strstr(page.data, "Told apart by 1 − max p, entropy and energy"));
    assert_non_null(strstr(page.data, "The threshold on energy that lets"));
    kh_buf_free(&page);
    kh_buf_free(&rows);
    kh_eval_clear(&e);
    kh_posterior_free(p);
}

/* As tuning keeps them: features of the rows, by the tiny model itself. */
static void add_features(kh_posterior *p, const kh_row *rows, int n) {
    kh_encoder *e;
    assert_int_equal(kh_encoder_open(&e, tiny_dir, NULL), 0);
    p->features_model = kh_posterior_keep(p, tiny_dir);
    p->features_fingerprint = kh_encoder_fingerprint(e);
    p->features_size = kh_encoder_size(e) + 1;
    p->features_cuts = true;
    p->n_features = n;
    p->features = kh_malloc((size_t)(n * p->features_size) * sizeof *p->features);
    assert_int_equal(kh_encoder_features(e, rows, n, true, p->features, NULL), 0);
    kh_encoder_close(e);
}

/* Where energies and distances are known, they are one more score, which decides; with too few rows
 * for a threshold distance does, which has the train rows. */
static void both_are_a_fifth_score(void **state) {
    (void)state;
    kh_posterior *p = posterior();
    const char *ood;
    kh_eval_opts o = eval_opts(&ood);
    kh_eval e;
    kh_split split;
    kh_dataset_opts read = { .task = task };
    assert_int_equal(kh_split_open(&split, folder, p->shots, p->seed, &read, NULL), 0);
    int n = kh_dataset_size(split.train);
    add_features(p, kh_dataset_rows(split.train), n);
    kh_split_close(&split);
    o.decide.foreign = KH_SCORE_BOTH;
    assert_int_equal(kh_eval_run(&e, p, plm, &o, NULL), 0);
    assert_int_equal(e.n_score, 4); /* 16 dev rows cannot keep 95 %, 32 rows can */
    assert_true(e.decisions.opts.foreign == KH_SCORE_DISTANCE && e.n_ood == e.dev.n + n &&
        isfinite(e.decisions.ood));
    kh_eval_clear(&e);
    o.decide.keep = 0.9;
    assert_int_equal(kh_eval_run(&e, p, plm, &o, NULL), 0);
    const kh_ood_rows *out = &e.outside[0];
    double u[16], t;
    kh_both b;
    int above = 0;
    assert_int_equal(e.n_score, 5);
    assert_int_equal(kh_both_fit(&b, e.dev.energy, e.dev.distance, e.dev.n, u, NULL), 0);
    assert_int_equal(kh_ood_threshold(&t, u, e.dev.n, 0.9, NULL), 0);
    assert_true(e.decisions.opts.foreign == KH_SCORE_BOTH && e.decisions.ood == t &&
        e.n_ood == e.dev.n && isfinite(t));
    assert_memory_equal(&b, &e.decisions.opts.both, sizeof b);
    double in[30], far[30];
    for (int i = 0; i < 30; i++) {
        in[i] = kh_both_score(&b, e.rows.energy[i], e.rows.distance[i]);
        far[i] = kh_both_score(&b, out->rows.energy[i], out->rows.distance[i]);
        above += far[i] > t;
    }
    kh_ood want;
    assert_int_equal(kh_ood_compute(&want, in, 30, far, 30, NULL), 0);
    assert_true(out->value[KH_SCORE_BOTH].auroc == want.auroc);
    assert_near(out->flagged, above / 30.0, 1e-12);
    kh_result r;
    char *json = results_of(&e), line[64];
    assert_non_null(strstr(json, "\"ood\": {\"score\": \"both\""));
    assert_int_equal(kh_result_parse(&r, json, strlen(json), "r.json", NULL), 0);
    assert_near(kh_result_value(&r, "ood.o<b>.both.auroc"), want.auroc, 1e-9);
    kh_result_free(&r);
    kh_free(json);
    kh_buf rows = kh_buf_init(KH_BUF_MAX), page;
    kh_eval_rows_json(&e, &rows);
    snprintf(line, sizeof line, "\"ood_score\":%.9g", in[0]);
    assert_non_null(strstr(rows.data, line));
    page_of(&e, "no-gnuplot-here", &page);
    assert_non_null(strstr(page.data, "AUROC by energy and distance 0."));
    assert_non_null(strstr(page.data, "energy, distance, and both of these as one"));
    assert_non_null(strstr(page.data, "The threshold on energy and distance that lets"));
    kh_buf_free(&page);
    kh_buf_free(&rows);
    kh_eval_clear(&e);
    o.decide.foreign = KH_SCORE_DISTANCE; /* asked for, it decides alone */
    assert_int_equal(kh_eval_run(&e, p, plm, &o, NULL), 0);
    assert_true(e.decisions.opts.foreign == KH_SCORE_DISTANCE && e.n_score == 5);
    kh_eval_clear(&e);
    p->access = KH_ACCESS_LABELS;
    o.decide.foreign = KH_SCORE_BOTH;
    assert_int_equal(kh_eval_run(&e, p, plm, &o, NULL), 0);
    assert_true(e.decisions.opts.foreign == KH_SCORE_DISTANCE && e.n_score == 3);
    kh_eval_clear(&e);
    kh_posterior_free(p);
}

static void votes_have_two_scores(void **state) {
    (void)state;
    kh_posterior *p = posterior();
    const char *ood;
    kh_eval_opts o = eval_opts(&ood);
    kh_eval e;
    p->access = KH_ACCESS_LABELS;
    assert_int_equal(kh_eval_run(&e, p, plm, &o, NULL), 0);
    assert_int_equal(e.n_score, 2);
    assert_true(isnan(e.rows.energy[0]) && kh_eval_foreign(&e) == KH_SCORE_MAXP &&
        e.decisions.opts.foreign == KH_SCORE_MAXP);
    kh_result r;
    char *json = results_of(&e);
    assert_null(strstr(json, "energy"));
    assert_int_equal(kh_result_parse(&r, json, strlen(json), "r.json", NULL), 0);
    assert_true(isnan(kh_result_value(&r, "ood.o<b>.energy.auroc")) &&
        !isnan(kh_result_value(&r, "ood.o<b>.entropy.auroc")));
    kh_result_free(&r);
    kh_free(json);
    kh_buf page, rows = kh_buf_init(KH_BUF_MAX);
    kh_eval_rows_json(&e, &rows);
    assert_non_null(strstr(rows.data, "\"energy\":null,"));
    page_of(&e, "no-gnuplot-here", &page);
    assert_non_null(strstr(page.data, "told apart by entropy (AUROC)"));
    assert_null(strstr(page.data, "nergy"));
    kh_buf_free(&page);
    kh_buf_free(&rows);
    kh_eval_clear(&e);
    kh_posterior_free(p);
}

static void rows_are_drawn_by_the_seed(void **state) {
    (void)state;
    kh_posterior *p = posterior();
    kh_eval_opts o = { .decide = kh_decision_defaults(), .rows = 7, .seed = 5 };
    long line[7];
    for (int turn = 0; turn < 2; turn++) {
        kh_eval e;
        assert_int_equal(kh_eval_run(&e, p, plm, &o, NULL), 0);
        assert_int_equal(e.rows.n, 7);
        assert_int_equal(e.rows.of, 30);
        assert_true(isnan(e.low.accuracy)); /* no bootstrap, no interval */
        for (int i = 0; i < 7; i++) {
            assert_true(i == 0 || e.rows.row[i].line > e.rows.row[i - 1].line);
            assert_true(turn == 0 || line[i] == e.rows.row[i].line);
            line[i] = e.rows.row[i].line;
        }
        kh_eval_clear(&e);
    }
    kh_posterior_free(p);
}

static void refusals_of_eval(void **state) {
    (void)state;
    kh_posterior *p = posterior();
    kh_err err;
    kh_eval e;
    const char *bad[] = { "nothing" };
    kh_eval_opts o = { .decide = kh_decision_defaults(), .ood = { bad, 1, 1 } };
    assert_int_equal(kh_eval_run(&e, p, plm, &o, &err), KH_EARG);
    assert_says(&err,
        "--ood takes NAME=DIR, a task and the folder of its rows, e.g. rte=data/rte, or a folder "
        "alone, whose rows take the "
        "template of RUN; got \"nothing\"");
    kh_eval_clear(&e);
    p->data = NULL;
    assert_int_equal(kh_eval_run(&e, p, plm, &o, &err), KH_EARG);
    assert_says(&err, "does not say what data it was tuned on; give --data");
    kh_eval_clear(&e);
    kh_posterior_free(p);
}

static int stop_at_once(void *user, const kh_progress *progress) {
    (void)user, (void)progress;
    return 1;
}

static void it_can_be_stopped(void **state) {
    (void)state;
    kh_posterior *p = posterior();
    kh_hooks hooks = { .progress = stop_at_once };
    kh_eval_opts o = { .decide = kh_decision_defaults(), .hooks = &hooks };
    kh_eval e;
    kh_err err;
    assert_int_equal(kh_eval_run(&e, p, plm, &o, &err), KH_STOPPED);
    assert_says(&err, "stopped on request");
    kh_eval_clear(&e);
    kh_posterior_free(p);
}

static void page_with(const kh_eval *e, const char *program, const char *lines, kh_buf *out) {
    kh_runlog log;
    kh_err err;
    assert_int_equal(kh_runlog_parse(&log, lines, strlen(lines), NULL), 0);
    kh_page g = { .eval = e,
        .log = &log,
        .run = "a <run>",
        .options = "{\"rows\":0,\"data\":\"<d>\",\"out\":null}",
        .plotter = { .program = program } };
    *out = kh_buf_init(KH_BUF_MAX);
    if (kh_page_write(&g, out, &err) != 0)
        fail_msg("%s", err.msg);
    kh_runlog_free(&log);
}

static void page_of(const kh_eval *e, const char *program, kh_buf *out) {
    page_with(e, program,
        "gen=1 queries=100 eps=9 acceptance=0.5 ess=80\ngen=2 queries=200 eps=8 acceptance=0.4 "
        "ess=60\n",
        out);
}

static void a_page_without_gnuplot_has_its_tables(void **state) {
    (void)state;
    kh_posterior *p = posterior();
    const char *ood;
    kh_eval_opts o = eval_opts(&ood);
    kh_eval e;
    kh_buf page;
    assert_int_equal(kh_eval_run(&e, p, plm, &o, NULL), 0);
    page_of(&e, "no-gnuplot-here", &page);
    static const char *const wanted[] = { "<h1><bdi>toy</bdi> by <bdi>m&lt;i&gt;</bdi></h1>",
        "no-gnuplot-here cannot be started", "Confidence and accuracy, bin by bin",
        "&lt;script&gt;small boats&lt;/script&gt;", "a &lt;run&gt;", "<bdi>o&lt;b&gt;</bdi>",
        "aurrrc_entropy", "Votes of the prompts", "&lt;d&gt;", "Effective sample size", "all done",
        "fpr95" };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (!strstr(page.data, wanted[i]))
            fail_msg("not in the page: %s", wanted[i]);
    assert_null(strstr(page.data, "<svg"));
    assert_null(strstr(page.data, "<script"));
    kh_buf_free(&page);
    kh_buf again;
    page_of(&e, "no-gnuplot-here", &again);
    kh_buf_free(&again);
    kh_eval_clear(&e);
    kh_posterior_free(p);
}

static void page_says(const kh_eval *e, const char *wanted) {
    kh_buf page;
    page_with(e, "no-gnuplot-here", "", &page);
    if (!strstr(page.data, wanted))
        fail_msg("not in the page: %s", wanted);
    kh_buf_free(&page);
}

/* An evaluation of its own, to be changed at will. */
static kh_posterior *evaluated(kh_eval *e, kh_eval_opts *o) {
    static const char *ood;
    kh_posterior *p = posterior();
    kh_err err;
    *o = eval_opts(&ood);
    if (kh_eval_run(e, p, plm, o, &err) != 0)
        fail_msg("%s", err.msg);
    return p;
}

static void the_page_says_what_abstaining_promises(void **state) {
    (void)state;
    kh_eval e;
    kh_eval_opts o;
    kh_posterior *p = evaluated(&e, &o);
    kh_selector *s = &e.decisions.selector;
    *s = (kh_selector){ .max_risk = 0.1, .delta = 0.05, .n = 16, .n_needed = 29 };
    e.decisions.opts.max_risk = 0.1;
    page_says(&e, "Wanted: of the answers given, at most 10&nbsp;% wrong, with probability 95");
    page_says(&e, "The 16 rows cannot show it, so it would abstain always; it takes at least 29 ");
    s->n_accepted = 12;
    s->threshold = INFINITY;
    e.risk = NAN;
    page_says(&e, "Promised: of the answers given");
    page_says(&e, "Chosen on 16 dev rows: answer always (0 wrong of 12 there)");
    page_says(&e, "so no risk to speak of</strong>");
    s->threshold = 0.25;
    e.risk = 0.125;
    e.n_train = 8;
    page_says(&e, "Chosen on 16 train and dev rows: answer where 1 − max p is below 0.25 (");
    page_says(&e, "12.5&nbsp;% of the answers wrong</strong>");
    e.n_cross = 16;
    e.decisions.opts.score = KH_SCORE_ENTROPY;
    page_says(&e, "Chosen on 16 cross-fitted rows: answer where the entropy is below 0.25 (");
    s->estimate = true;
    e.chosen_on = false;
    page_says(&e, "<p>Nothing can be promised by 16 cross-fitted rows. <strong>Estimate, not a ");
    e.chosen_on = true;
    page_says(&e, "<p>The method has chosen on the 16 cross-fitted rows. <strong>Estimate, not a");
    page_says(&e, "about 10&nbsp;% of the answers wrong. ");
    kh_eval_clear(&e);
    kh_posterior_free(p);
}

static void the_page_says_what_sets_promise(void **state) {
    (void)state;
    kh_eval e;
    kh_eval_opts o;
    kh_posterior *p = evaluated(&e, &o);
    kh_conformal *c = &e.decisions.conformal;
    e.decisions.opts.alpha = c->alpha = 0.1;
    c->per_class = false;
    c->min_alpha = 0.05;
    page_says(&e, "hold the true class in 90&nbsp;%. The 16 dev rows can promise 95.0&nbsp;% at");
    c->min_alpha = 0.2;
    c->per_class = true;
    page_says(&e, "in 90&nbsp;% within every class. ");
    page_says(&e, "80.0&nbsp;% at best, too little for it: sets of all classes are given where ");
    int n_map = c->n_map;
    c->n_map = 16;
    page_says(&e, "none is lost to a split: certain is 80.0&nbsp;% (jackknife+)");
    c->n_map = n_map;
    e.chosen_on = true;
    page_says(&e, "so sets fitted on them are a little optimistic");
    kh_eval_clear(&e);
    kh_posterior_free(p);
}

static void the_page_says_what_is_missing(void **state) {
    (void)state;
    kh_eval e;
    kh_eval_opts o;
    kh_posterior *p = evaluated(&e, &o);
    snprintf(e.warning, sizeof e.warning, "no better than <chance>");
    page_says(&e, "<strong>Warning: <bdi>no better than &lt;chance&gt;</bdi>.</strong>");
    e.decided = false;
    snprintf(e.why, sizeof e.why, "<no> dev rows");
    page_says(&e, "made on dev rows, and there are none (<bdi>&lt;no&gt; dev rows</bdi>)");
    page_says(&e, "other texts told apart by ");
    p->stopped = p->backend = p->precision = p->kernels = p->data = p->version = NULL;
    p->options = "{}";
    p->shots = 0;
    page_says(&e, "It stopped because: <bdi>not known</bdi>.");
    page_says(&e, "<bdi>?, ?, ?</bdi>");
    page_says(&e, "data of tuning</th><td class=\"wide\"><bdi>not known</bdi>");
    page_says(&e, "The run left no log.");
    p->tried = "{\"method\":\"bbt\",\"score\":0.5,\"dev\":0.75,\"queries\":640},{\"score\":1}";
    page_says(&e,
        "<bdi>bbt</bdi></th><td class=\"n\">0.5000</td><td class=\"n\">0.7500</td><td "
        "class=\"n\">640</td>");
    page_says(&e, "<bdi>?</bdi></th><td class=\"n\">1.0000</td>");
    kh_eval_clear(&e);
    kh_posterior_free(p);
}

static void the_page_says_how_sure_it_is(void **state) {
    (void)state;
    kh_eval e;
    kh_eval_opts o;
    kh_posterior *p = evaluated(&e, &o);
    e.m.accuracy = 0.75;
    e.m.confidence = 0.755;
    page_says(&e, "it is as sure as it may be.");
    e.m.confidence = 0.9;
    page_says(&e, "it is too sure of itself by 15.0 points.");
    e.m.confidence = 0.7;
    page_says(&e, "it is less sure than it could be by 5.0 points.");
    e.m.auroc_error = e.low.auroc_error = NAN;
    page_says(&e, "errors found by uncertainty (AUROC)</dt><dd>–</dd>");
    kh_eval_clear(&e);
    kh_posterior_free(p);
}

/* Members stand apart, and so do searches one after the other; large numbers of questions are
 * counted in thousands; where nothing is asked while learning, the axis is that of epochs. */
static void logs_are_drawn_by_what_they_hold(void **state) {
    (void)state;
    kh_eval e;
    kh_eval_opts o;
    kh_posterior *p = evaluated(&e, &o);
    kh_buf page;
    make_drawer(SVG, "", 0);
    page_with(&e, drawer,
        "member=0 gen=1 queries=10000 loss=0.5 best=0.5\nmember=0 gen=2 queries=20000 loss=0.4\n"
        "member=1 gen=3 queries=30000 loss=0.3 best=0.3\nmethod=icl score=0.7 queries=31000\n"
        "gen=1 queries=32000 loss=0.2\n",
        &page);
    assert_non_null(strstr(page.data, "plot5-gnuplot_canvas"));
    kh_buf_free(&page);
    char *told = what_was_drawn();
    assert_non_null(strstr(told, "set xlabel 'queries, in thousands'"));
    assert_non_null(strstr(told, "$s0 << EOD\n10 0.5\n20 0.4\n\n30 0.3\n\n32 0.2\nEOD\n"));
    assert_non_null(strstr(told, "$s1 << EOD\n10 0.5\n\n30 0.3\nEOD\n"));
    kh_free(told);
    make_drawer(SVG, "", 0);
    page_with(&e, drawer,
        "gen=1 queries=0 loss=3\ngen=2 queries=0 loss=2\ngen=3 queries=9 loss=1\n"
        "gen=4 queries=9 loss=1\n",
        &page);
    kh_buf_free(&page);
    told = what_was_drawn();
    assert_non_null(strstr(told, "set xlabel 'epochs'"));
    assert_non_null(strstr(told, "$s0 << EOD\n1 3\n2 2\n3 1\n4 1\nEOD\n"));
    kh_free(told);
    kh_eval_clear(&e);
    kh_posterior_free(p);
}

static void long_logs_are_thinned(void **state) {
    (void)state;
    kh_eval e;
    kh_eval_opts o;
    kh_posterior *p = evaluated(&e, &o);
    kh_buf page, lines = kh_buf_init(1 << 20);
    for (int i = 1; i <= 2500; i++)
        kh_buf_printf(&lines, "gen=%d loss=%d\n", i, i);
    make_drawer(SVG, "", 0);
    page_with(&e, drawer, lines.data, &page);
    char *told = what_was_drawn();
    assert_non_null(strstr(told, "$s0 << EOD\n1 1\n4 4\n7 7\n"));
    assert_non_null(strstr(told, "\n2500 2500\nEOD\n")); /* the last is there, whatever the step */
    assert_non_null(strstr(page.data, "<td class=\"n\">1251</td>")); /* the middle of five lines */
    kh_free(told);
    kh_buf_free(&page);
    kh_buf_free(&lines);
    kh_eval_clear(&e);
    kh_posterior_free(p);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    kh_posterior *p = posterior();
    const char *ood;
    kh_eval_opts o = eval_opts(&ood);
    long step = 1;
    for (long n = 1;; n += step) { /* every one at first, then some */
        kh_eval e;
        kh_err err;
        kh_buf results = kh_buf_init(KH_BUF_MAX), rows = kh_buf_init(KH_BUF_MAX),
               page = kh_buf_init(KH_BUF_MAX);
        kh_runlog log = { 0 };
        kh_page g = { .eval = &e,
            .log = &log,
            .run = "r",
            .options = "{}",
            .plotter = { .program = "none", .missing = true } };
        kh_alloc_fail_at(n, true);
        int rc = kh_eval_run(&e, p, plm, &o, &err);
        if (rc == 0) {
            kh_results_json(&e, "r", "{}", &results);
            kh_eval_rows_json(&e, &rows);
            rc = kh_page_write(&g, &page, &err);
        }
        bool done = kh_alloc_count() < n,
             failed = rc != 0 || kh_buf_failed(&results) || kh_buf_failed(&rows);
        kh_alloc_fail_at(0, false);
        kh_eval_clear(&e);
        kh_buf_free(&results);
        kh_buf_free(&rows);
        kh_buf_free(&page);
        if (done) {
            assert_false(failed);
            break;
        }
        assert_true(failed);
        step = n < 300 ? 1 : 97;
    }
    kh_posterior_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plot_in_letters),
        cmocka_unit_test(marks_are_escaped),
        cmocka_unit_test(the_unseen_is_shown),
        cmocka_unit_test(foreign_text_is_isolated_and_cut),
        cmocka_unit_test(tables_for_terminals),
        cmocka_unit_test(tables_for_documents),
        cmocka_unit_test(notes_stand_beside_or_below),
        cmocka_unit_test(long_cells_are_cut_between_characters),
        cmocka_unit_test(an_svg_is_made_fit_for_a_page),
        cmocka_unit_test(what_is_no_svg_is_refused),
        cmocka_unit_test(without_gnuplot_it_says_so_once),
        cmocka_unit_test(a_program_that_draws_nothing),
        cmocka_unit_test(what_a_program_draws_is_taken),
        cmocka_unit_test(a_program_that_fails_is_quoted),
        cmocka_unit_test(gnuplot_draws),
        cmocka_unit_test(a_log_is_read_by_its_keys),
        cmocka_unit_test(a_log_of_many_keys_is_bounded),
        cmocka_unit_test(principal_components_of_a_known_cloud),
        cmocka_unit_test(weights_and_degenerate_clouds),
        cmocka_unit_test(results_are_read_by_name),
        cmocka_unit_test(malformed_results_have_their_sentences),
        cmocka_unit_test(seeds_share_a_line_and_the_best_is_marked),
        cmocka_unit_test(comparison_formats),
        cmocka_unit_test(models_and_tasks_are_told_apart),
        cmocka_unit_test(refusals_of_compare),
        cmocka_unit_test(compare_survives_every_allocation),
        cmocka_unit_test(an_evaluation_adds_up),
        cmocka_unit_test(energies_are_a_third_score),
        cmocka_unit_test(both_are_a_fifth_score),
        cmocka_unit_test(votes_have_two_scores),
        cmocka_unit_test(rows_are_drawn_by_the_seed),
        cmocka_unit_test(refusals_of_eval),
        cmocka_unit_test(it_can_be_stopped),
        cmocka_unit_test(a_page_without_gnuplot_has_its_tables),
        cmocka_unit_test(the_page_says_what_abstaining_promises),
        cmocka_unit_test(the_page_says_what_sets_promise),
        cmocka_unit_test(the_page_says_what_is_missing),
        cmocka_unit_test(the_page_says_how_sure_it_is),
        cmocka_unit_test(logs_are_drawn_by_what_they_hold),
        cmocka_unit_test(long_logs_are_thinned),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
