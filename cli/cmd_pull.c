/* cmd_pull.c - keyhole pull: a model by its name on a hub. */
#include "cli.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "plm/hub.h"

#include <string.h>

typedef struct pull_opts {
    const char *out, *file, *endpoint;
    int parallel;
    bool json;
} pull_opts;

static const kh_opt pull_table[] = {
    { "out", KH_OPT_TEXT, offsetof(pull_opts, out), .arg = "DIR",
        .help = "the folder to make; default: the cache, where --model hf:NAME finds it" },
    { "file", KH_OPT_TEXT, offsetof(pull_opts, file), .arg = "PATTERN",
        .help = "the file wanted, e.g. '*Q4_0.gguf'; default: what a model needs" },
    { "endpoint", KH_OPT_TEXT, offsetof(pull_opts, endpoint), .arg = "URL",
        .help = "the hub; default: HF_ENDPOINT, or https://huggingface.co" },
    { "parallel", KH_OPT_INT, offsetof(pull_opts, parallel), "4", .min = 1, .max = 16, .arg = "N",
        .help = "files at a time" },
    CLI_JSON_OPTION(pull_opts),
    { 0 },
};

static int run_pull(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args;
    const pull_opts *o = opts;
    const char *name = args[0];
    if (strncmp(name, "hf:", 3) == 0)
        name += 3;
    char *path;
    int rc = kh_hub_pull(&path, name,
        &(kh_hub_opts){ .endpoint = o->endpoint,
            .pattern = o->file,
            .out = o->out,
            .parallel = o->parallel,
            .hooks = &cli_hooks },
        err);
    if (rc != 0)
        return rc;
    if (o->json) {
        kh_buf line = kh_buf_init(1 << 16);
        kh_json_out j = kh_json_out_init(&line, KH_JSON_COMPACT);
        kh_json_open_object(&j, NULL);
        kh_json_put_string(&j, "path", path);
        kh_json_close(&j);
        rc = cli_print_json(&j, stdout, err);
    } else
        puts(path);
    kh_free(path);
    return rc;
}

const cli_command cmd_pull = {
    .name = "pull",
    .args = "NAME[@REVISION]",
    .min_args = 1,
    .max_args = 1,
    .summary = "Fetch a model by its name on a hub",
    .text = "Fetches what a model needs (config.json, model.safetensors or its shards, the\n"
            "tokenizer), or one GGUF file, and prints where it is. A hub is anything that\n"
            "speaks Hugging Face's layout. Files come several at a time; what was cut goes on\n"
            "where it stopped; sizes and hashes are checked against the hub's listing; the\n"
            "folder appears when it is complete.\n"
            "\n"
            "HF_ENDPOINT names another hub, HF_TOKEN a token for models that need one, HF_HOME\n"
            "or HF_HUB_CACHE the cache, which other programs share. The token goes to the hub\n"
            "alone and never to where it redirects.\n"
            "\n"
            "Examples\n"
            "  keyhole pull roberta-base\n"
            "  keyhole pull org/model@v2 --out model\n"
            "  keyhole pull org/model-GGUF --file '*Q4_0.gguf'\n"
            "  keyhole tune rows.csv --model hf:roberta-base     # pulls it on first use",
    .opts = pull_table,
    .opts_size = sizeof(pull_opts),
    .run = run_pull,
};
