/* cmd_export.c - keyhole export: the prompts of a run for other tools. */
#include "open_run.h"

#include "base/err.h"
#include "plm/http.h"

typedef struct export_opts {
    const char *out, *model, *task_type;
    int format;
    kh_http_opts http;
} export_opts;

static const kh_opt export_table[] = {
    { "format", KH_OPT_CHOICE, offsetof(export_opts, format), "safetensors",
        .arg = "peft|npz|jsonl|safetensors",
        .help = "a PEFT folder for each sample; NumPy arrays; one JSON object a line; one file of "
                "tensors" },
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

static int run_export(void *opts, int n_args, char **args, kh_err *err) {
    const export_opts *o = opts;
    cli_run run = { .http = &o->http };
    (void)n_args;
    int rc = kh_posterior_open(&run.posterior, args[0], err);
    bool soft = rc == 0 && kh_posterior_describe(run.posterior).dim > 0;
    kh_posterior_free(run.posterior);
    run.posterior = NULL;
    if (rc == 0 && !soft) /* known before the model is opened */
        rc = kh_fail(err, KH_EUNSUPPORTED,
            "%s: was made without a soft prompt, so there is nothing to export", args[0]);
    if (rc == 0)
        rc = cli_run_open(&run, args[0], o->model, 0, err);
    if (rc == 0)
        rc = kh_posterior_export(
            run.posterior, run.plm, (kh_export_format)o->format, o->out, o->task_type, err);
    if (rc == KH_EMISMATCH)
        rc = kh_err_prefix(err, "%s", args[0]);
    if (rc == 0)
        printf("%d prompt%s in %s\n", run.info.samples, run.info.samples == 1 ? "" : "s", o->out);
    cli_run_free(&run);
    return rc;
}

const cli_command cmd_export = {
    .name = "export",
    .args = "RUN",
    .min_args = 1,
    .max_args = 1,
    .summary = "Soft prompts of a run for other tools",
    .text = "Writes the soft prompts that RUN holds as vectors, A z + P0, with their weights.\n"
            "safetensors and npz hold prompt [n, slots, hidden], weight [n] and z [n, dim];\n"
            "jsonl has one object a sample. peft makes a folder for each sample that\n"
            "PeftModel.from_pretrained loads; it can express prompts tuned with\n"
            "--inject embed-prefix only.\n\n"
            "  keyhole export run --format npz --out prompts.npz\n"
            "  keyhole export run --format peft --out adapters     adapters/sample-000, ...",
    .opts = export_table,
    .opts_size = sizeof(export_opts),
    .run = run_export,
};
