/* corpus.c - see corpus.h. */
#include "corpus_args.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

/* "FILE:3" is FILE with weight 3; a colon without a number behind it belongs to the name. */
static int split_weight(const char *spec, char **path, double *weight, kh_err *err) {
    const char *colon = strrchr(spec, ':');
    char *end = NULL;
    *weight = 1;
    size_t n = strlen(spec);
    if (colon && colon[1]) {
        double x = strtod(colon + 1, &end);
        if (!*end) {
            if (!(x > 0 && x < 1e6))
                return kh_fail(
                    err, CLI_USAGE, "--corpus %s: a weight must be above 0 and below 1e6", spec);
            *weight = x;
            n = (size_t)(colon - spec);
        }
    }
    *path = kh_strndup(spec, n);
    return *path ? 0 : kh_fail_memory(err);
}

int cli_corpus_parse(cli_corpus *c, const kh_strings *spec, kh_err *err) {
    size_t n = (size_t)spec->n;
    *c = (cli_corpus){ .path = kh_calloc(n, sizeof *c->path),
        .weight = kh_calloc(n, sizeof *c->weight) };
    int rc = c->path && c->weight ? 0 : kh_fail_memory(err);
    for (int i = 0; i < spec->n && rc == 0; i++)
        if ((rc = split_weight(spec->item[i], &c->path[i], &c->weight[i], err)) == 0)
            c->n++;
    return rc;
}

void cli_corpus_free(cli_corpus *c) {
    for (int i = 0; i < c->n; i++)
        kh_free(c->path[i]);
    kh_free(c->path);
    kh_free(c->weight);
    *c = (cli_corpus){ 0 };
}
