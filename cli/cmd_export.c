/* cmd_export.c - keyhole export: the prompts of a run for other tools. */
#include "open_run.h"

#include "base/err.h"
#include "base/hooks.h"
#include "plm/http.h"
#include "posterior/posterior.h"

enum { FORMAT_TEXT = KH_EXPORT_SAFETENSORS + 1 }; /* behind those of other tools */

typedef struct export_opts {
    const char *out, *model, *task_type;
    int format;
    kh_http_opts http;
} export_opts;

static const kh_opt export_table[] = {
    { "format", KH_OPT_CHOICE, offsetof(export_opts, format), "safetensors",
        .arg = "peft|npz|jsonl|safetensors|text",
        .help = "a PEFT folder for each sample; NumPy arrays; one JSON object a line; one file of "
                "tensors; text prompts to read and paste" },
    { "out", KH_OPT_TEXT, offsetof(export_opts, out), .arg = "PATH",
        .help = "the file, or for peft the folder, to write", .required = true },
    { "model", KH_OPT_TEXT, offsetof(export_opts, model), .arg = "DIR|URL|builtin",
        .help = "where the model is now; without it, where it was when tuning" },
    { "task-type", KH_OPT_TEXT, offsetof(export_opts, task_type), .arg = "TYPE",
        .help = "what PEFT is told; by default CAUSAL_LM for a decoder, else FEATURE_EXTRACTION" },
    KH_HTTP_ROWS(export_opts, http),
    { 0 },
};

/* --------------------------------------------------------------------------------- the command */

/* Known before the model is opened: whether there is anything to export. Texts need no model. */
static int export_texts(const export_opts *o, const char *run, bool *done, kh_err *err) {
    kh_posterior *p = NULL;
    int rc = kh_posterior_open(&p, run, err), n = rc == 0 ? kh_posterior_describe(p).samples : 0;
    bool soft = rc == 0 && kh_posterior_describe(p).dim > 0;
    *done = rc == 0 && (o->format == FORMAT_TEXT || !soft);
    if (*done) { /* or its sentence why not */
        rc = o->format == FORMAT_TEXT
            ? kh_posterior_export_text(p, o->out, err)
            : kh_posterior_export(p, NULL, (kh_export_format)o->format, o->out, NULL, err);
        if (rc != 0)
            rc = kh_err_prefix(err, "%s", run);
        else
            printf("%d prompt%s in %s\n", n, n == 1 ? "" : "s", o->out);
    }
    kh_posterior_free(p);
    return rc;
}

static int run_export(void *opts, int n_args, char **args, kh_err *err) {
    const export_opts *o = opts;
    cli_run run = { .http = &o->http };
    bool done;
    (void)n_args;
    int rc = export_texts(o, args[0], &done, err);
    if (rc != 0 || done)
        return rc;
    rc = cli_run_open(&run, args[0], o->model, 0, err);
    if (rc == 0)
        rc = kh_posterior_export(
            run.posterior, run.plm, (kh_export_format)o->format, o->out, o->task_type, err);
    if (rc == KH_EMISMATCH)
        rc = kh_err_prefix(err, "%s", args[0]);
    if (rc == 0)
        printf("%d prompt%s in %s\n", run.info.samples, run.info.samples == 1 ? "" : "s", o->out);
    double share = rc == 0 ? kh_posterior_describe(run.posterior).template_share : 0;
    if (share > 0)
        kh_log(&cli_hooks, KH_WARN,
            "in this run the plain template answers beside them, by a share of %.2f; no export "
            "format can say that",
            share);
    cli_run_free(&run);
    return rc;
}

const cli_command cmd_export = {
    .name = "export",
    .args = "RUN",
    .min_args = 1,
    .max_args = 1,
    .summary = "Prompts of a run for other tools, or to read",
    .text = "Writes the soft prompts that RUN holds as vectors, A z + P0, with their weights.\n"
            "safetensors and npz hold prompt [n, slots, hidden], weight [n] and z [n, dim];\n"
            "jsonl has one object a sample. peft makes a folder for each sample that\n"
            "PeftModel.from_pretrained loads; it can express prompts tuned with\n"
            "--inject embed-prefix only. text writes the text prompts of text-search,\n"
            "text-ensemble and text-smc as they are asked, the heaviest first.\n\n"
            "  keyhole export run --format npz --out prompts.npz\n"
            "  keyhole export run --format peft --out adapters     adapters/sample-000, ...\n"
            "  keyhole export run --format text --out prompts.txt",
    .opts = export_table,
    .opts_size = sizeof(export_opts),
    .run = run_export,
};
