/* cmd_compare.c - keyhole compare: judged runs side by side. */
#include "cli.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "report/compare.h"

#include <string.h>
#include <unistd.h>

typedef struct compare_opts {
    const char *metrics;
    int format;
    bool json;
} compare_opts;

static const char USUAL[] = "accuracy,nll,ece,aurrrc,auroc_error,ood";

static const kh_opt compare_table[] = {
    { "metrics", KH_OPT_TEXT, offsetof(compare_opts, metrics), .arg = "LIST",
        .help = "names of results.json and commas, e.g. ece,ood.rte.entropy.auroc; also \"ood\" or "
                "\"all\"" },
    { "format", KH_OPT_CHOICE, offsetof(compare_opts, format), "table", .arg = KH_GRID_FORMATS,
        .help = "of the output" },
    CLI_JSON_OPTION(compare_opts),
    { 0 },
};

/* The metrics to show: borrowed from the words and from the runs. */
typedef struct wanted {
    const char **name;
    int n;
    size_t cap;
    char *words; /* a copy, cut at its commas */
} wanted;

static int want(wanted *w, const char *name, kh_err *err) {
    for (int i = 0; i < w->n; i++)
        if (strcmp(w->name[i], name) == 0)
            return 0;
    if (!kh_grow(&w->name, &w->cap, (size_t)w->n + 1, sizeof *w->name))
        return kh_fail_memory(err);
    w->name[w->n++] = name;
    return 0;
}

/* "all": every metric of the runs; "ood": what matters of each out-of-distribution set. */
static int want_many(wanted *w, const char *word, const kh_result *runs, int n, kh_err *err) {
    static const char *const OOD[] = { ".entropy.auroc", ".energy.auroc", ".entropy.aurrrc" };
    bool all = strcmp(word, "all") == 0;
    int rc = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < runs[i].n && rc == 0; k++) {
            const char *name = runs[i].metric[k].name;
            bool take = all;
            for (size_t o = 0; o < sizeof OOD / sizeof OOD[0] && !all; o++) {
                size_t len = strlen(name), tail = strlen(OOD[o]);
                take |= strncmp(name, "ood.", 4) == 0 && len > tail &&
                    strcmp(name + len - tail, OOD[o]) == 0;
            }
            if (take)
                rc = want(w, name, err);
        }
    return rc;
}

static int want_list(wanted *w, const char *list, const kh_result *runs, int n, kh_err *err) {
    w->words = kh_strdup(list);
    if (!w->words)
        return kh_fail_memory(err);
    int rc = 0;
    char *rest = w->words, *word;
    while (rc == 0 && (word = strsep(&rest, ",")) != NULL)
        if (strcmp(word, "all") == 0 || strcmp(word, "ood") == 0)
            rc = want_many(w, word, runs, n, err);
        else if (*word)
            rc = want(w, word, err);
    if (rc == 0 && w->n == 0)
        rc = kh_fail(err, CLI_USAGE, "--metrics names none");
    return rc;
}

/* "keyhole compare runs/x" means the runs among what is there. */
static bool is_judged(const char *dir) {
    char *path = kh_path_join(dir, "results.json");
    bool there = path && kh_file_exists(path);
    kh_free(path);
    return there;
}

static int run_compare(void *opts, int n_args, char **args, kh_err *err) {
    const compare_opts *o = opts;
    kh_result *runs = kh_calloc((size_t)n_args, sizeof *runs);
    wanted w = { 0 };
    kh_comparison c = { 0 };
    kh_buf out = kh_buf_init(KH_BUF_MAX);
    int rc = runs ? 0 : kh_fail_memory(err), opened = 0;
    for (int i = 0; i < n_args && rc == 0; i++)
        if (n_args > 1 && !is_judged(args[i]))
            cli_say(stderr, 2, "keyhole: %s: not a judged run, passed over", args[i]);
        else
            rc = kh_result_open(&runs[opened++], args[i], err);
    if (rc == 0 && opened == 0)
        rc = kh_fail(err, KH_EMISSING,
            "none of the %d arguments is a judged run; \"keyhole eval RUN\" judges one", n_args);
    if (rc == 0)
        rc = want_list(&w, o->metrics ? o->metrics : USUAL, runs, opened, err);
    if (rc == 0)
        rc = kh_comparison_make(&c, runs, opened, w.name, w.n, err);
    if (rc == 0 && o->json)
        kh_comparison_json(&c, &out);
    else if (rc == 0)
        kh_comparison_put(&c, (kh_grid_format)o->format, isatty(STDOUT_FILENO), &out);
    if (rc == 0)
        rc = kh_buf_failed(&out) ? kh_fail_memory(err) : 0;
    if (rc == 0)
        fwrite(out.data, 1, out.len, stdout);
    kh_comparison_free(&c);
    for (int i = 0; i < opened; i++)
        kh_result_free(&runs[i]);
    kh_free(runs);
    kh_free(w.name);
    kh_free(w.words);
    kh_buf_free(&out);
    return rc;
}

const cli_command cmd_compare = {
    .name = "compare",
    .args = "RUN...",
    .min_args = 1,
    .max_args = -1,
    .summary = "Judged runs side by side: methods x metrics, mean and deviation over seeds",
    .text =
        "Each RUN is a folder that \"keyhole eval\" has judged. Runs that differ by their seed\n"
        "alone share a line: the mean over seeds and the standard deviation (n - 1). The\n"
        "best of its model and task is bold; on a plain terminal it bears a star.\n\n"
        "  keyhole compare runs/bbt-13 runs/bbt-21 runs/elbo-13 runs/elbo-21\n"
        "  keyhole compare runs/* --metrics accuracy,ece,ood --format markdown\n"
        "  keyhole compare runs/* --metrics all --format csv > numbers.csv",
    .opts = compare_table,
    .opts_size = sizeof(compare_opts),
    .run = run_compare,
};
