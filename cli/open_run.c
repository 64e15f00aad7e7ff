/* open_run.c - see open_run.h. */
#include "open_run.h"

#include "launcher.h"

#include "base/err.h"
#include "base/file.h"
#include "plm/http.h"

#include <string.h>
#include <unistd.h>

static kh_precision precision_of(int chosen, const char *tuned) {
    static const char *const NAMES[] = { "f32", "bf16", "int8" };
    if (chosen > 0)
        return (kh_precision)(chosen - 1);
    for (int i = 0; tuned && i < 3; i++)
        if (strcmp(tuned, NAMES[i]) == 0)
            return (kh_precision)i;
    return KH_F32;
}

int cli_run_read(cli_run *r, const char *dir, kh_err *err) {
    r->dir = dir;
    int rc = kh_posterior_open(&r->posterior, dir, err);
    if (rc == 0)
        r->info = kh_posterior_describe(r->posterior);
    return rc;
}

int cli_run_box(cli_run *r, const char *model, int precision, kh_err *err) {
    const char *dir = r->dir;
    if (r->shared) {
        r->plm = r->shared;
        return 0;
    }
    const char *path = model ? model : r->info.model;
    if (!path)
        return kh_fail(err, CLI_USAGE, "%s: does not say where its model is; give --model", dir);
    if (!model && kh_is_url(path)) /* whoever made the folder chose it, and would be sent the key */
        return kh_fail(err, CLI_USAGE,
            "%s: was tuned through a service; an address that stands in a folder is not contacted "
            "unless you name it yourself: --model %s",
            dir, path);
    kh_http_opts http = r->http ? *r->http : kh_http_defaults();
    if (kh_is_url(path) && !http.backend && kh_speaks(r->info.backend))
        http.backend = r->info.backend; /* what it spoke when tuning */
    kh_plm_opts box = { .access = r->info.access,
        .precision = precision_of(precision, r->info.precision),
        .hooks = &cli_hooks,
        .http = &http,
        .ranks = cli_ranks };
    int rc = kh_plm_open(&r->plm, path, &box, err);
    if (rc == KH_EMISSING && !model)
        return kh_err_prefix(
            err, "the model that %s was tuned on is gone; --model says where it is now", dir);
    return rc;
}

int cli_run_open(cli_run *r, const char *dir, const char *model, int precision, kh_err *err) {
    int rc = cli_run_read(r, dir, err);
    return rc == 0 ? cli_run_box(r, model, precision, err) : rc;
}

void cli_run_free(cli_run *r) {
    if (!r->shared)
        kh_plm_close(r->plm);
    kh_posterior_free(r->posterior);
}
