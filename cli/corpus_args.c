/* corpus_args.c - see corpus_args.h. */
#include "corpus_args.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

/* "FILE:3" is FILE with weight 3; a colon without a number behind it belongs to the name. */
static int split_weight(
    const char *option, const char *spec, char **path, double *weight, kh_err *err) {
    const char *colon = strrchr(spec, ':');
    char *end = NULL;
    *weight = 1;
    size_t n = strlen(spec);
    if (colon && colon[1]) {
        double x = strtod(colon + 1, &end);
        if (!*end) {
            if (!(x > 0 && x < 1e6))
                return kh_fail(
                    err, CLI_USAGE, "%s %s: a weight must be above 0 and below 1e6", option, spec);
            *weight = x;
            n = (size_t)(colon - spec);
        }
    }
    *path = kh_strndup(spec, n);
    return *path ? 0 : kh_fail_memory(err);
}

/* "TASK=DIR:3" */
static int split_rows(const char *spec, char **task, char **dir, double *weight, kh_err *err) {
    const char *sign = strchr(spec, '='), *colon = strrchr(spec, ':');
    char *end = NULL;
    if (!sign || sign == spec || !sign[1])
        return kh_fail(err, CLI_USAGE,
            "--rows %s: must be TASK=DIR or TASK=DIR:WEIGHT, e.g. sst2=data/sst2:2", spec);
    if (colon > sign && !strchr(colon, '/') && (strtod(colon + 1, &end), *end || end == colon + 1))
        return kh_fail(
            err, CLI_USAGE, "--rows %s: the weight \"%s\" is not a number", spec, colon + 1);
    *task = kh_strndup(spec, (size_t)(sign - spec));
    return *task ? split_weight("--rows", sign + 1, dir, weight, err) : kh_fail_memory(err);
}

static int parse(cli_corpus *c, const kh_strings *spec, bool rows, kh_err *err) {
    size_t n = (size_t)spec->n;
    *c = (cli_corpus){ .task = kh_calloc(n + 1, sizeof *c->task),
        .path = kh_calloc(n + 1, sizeof *c->path),
        .weight = kh_calloc(n + 1, sizeof *c->weight) };
    int rc = c->task && c->path && c->weight ? 0 : kh_fail_memory(err);
    for (int i = 0; i < spec->n && rc == 0; i++) {
        c->n++;
        rc = rows ? split_rows(spec->item[i], &c->task[i], &c->path[i], &c->weight[i], err)
                  : split_weight("--corpus", spec->item[i], &c->path[i], &c->weight[i], err);
    }
    return rc;
}

int cli_corpus_parse(cli_corpus *c, const kh_strings *spec, kh_err *err) {
    return parse(c, spec, false, err);
}

int cli_rows_parse(cli_corpus *c, const kh_strings *spec, kh_err *err) {
    return parse(c, spec, true, err);
}

void cli_corpus_free(cli_corpus *c) {
    for (int i = 0; i < c->n; i++) {
        kh_free(c->task[i]);
        kh_free(c->path[i]);
    }
    kh_free(c->task);
    kh_free(c->path);
    kh_free(c->weight);
    *c = (cli_corpus){ 0 };
}
