/* cmd_bench.c - keyhole bench: how fast the parts are on this machine. */
#include "cli.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"

#include <string.h>

/* ------------------------------------------------------------------------------ bench tokenize */

typedef struct tokenize_opts {
    const char *model, *file;
    double seconds;
    bool json;
} tokenize_opts;

static const kh_opt tokenize_table[] = {
    { "model", KH_OPT_TEXT, offsetof(tokenize_opts, model), .arg = "DIR|FILE|builtin",
        .required = true, .help = "the tokenizer, as for \"keyhole tokenize\"" },
    { "file", KH_OPT_TEXT, offsetof(tokenize_opts, file), .arg = "FILE", .required = true,
        .help = "the text, one document a line" },
    { "seconds", KH_OPT_NUMBER, offsetof(tokenize_opts, seconds), "2", .min = 0.01, .max = 3600,
        .arg = "S", .help = "repeat for at least so long" },
    CLI_JSON_OPTION(tokenize_opts),
    { 0 },
};

/* One pass over all lines. */
static int tokenize_all(
    const kh_tokenizer *t, const kh_buf *text, kh_ids *ids, long *tokens, kh_err *err) {
    int rc = 0;
    *tokens = 0;
    for (size_t at = 0; at < text->len && rc == 0;) {
        const char *end = memchr(text->data + at, '\n', text->len - at);
        size_t n = end ? (size_t)(end - text->data) - at : text->len - at;
        ids->n = 0;
        rc = kh_tokenizer_encode(t, text->data + at, n, KH_ENCODE_FRAME, ids, err);
        *tokens += ids->n;
        at += n + 1;
    }
    return rc;
}

static int run_tokenize(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args, (void)args;
    const tokenize_opts *o = opts;
    kh_tokenizer *t = NULL;
    kh_buf text = { 0 };
    kh_ids ids = { 0 };
    double start = kh_clock_thread(), best = 0;
    int passes = 0, rc = kh_tokenizer_open(&t, o->model, err);
    double opened = kh_clock_thread() - start;
    long tokens = 0;
    if (rc == 0)
        rc = kh_file_read(o->file, (size_t)1 << 32, &text, err);
    for (start = kh_clock(); rc == 0 && (passes == 0 || kh_clock() - start < o->seconds);
         passes++) {
        double began = kh_clock_thread();
        rc = tokenize_all(t, &text, &ids, &tokens, err);
        double took = kh_clock_thread() - began;
        best = passes == 0 || took < best ? took : best;
    }
    if (rc == 0) {
        double mb = (double)text.len / 1e6;
        kh_buf out = kh_buf_init(1 << 12);
        kh_json_out j = kh_json_out_init(&out, KH_JSON_COMPACT);
        kh_json_open_object(&j, NULL);
        kh_json_put_fixed(&j, "megabytes", mb, 3);
        kh_json_put_int(&j, "tokens", tokens);
        kh_json_put_int(&j, "passes", passes);
        kh_json_put_fixed(&j, "open_seconds", opened, 4);
        kh_json_put_fixed(&j, "best_seconds", best, 6);
        kh_json_put_fixed(&j, "megabytes_per_second", mb / best, 2);
        kh_json_put_fixed(&j, "tokens_per_second", (double)tokens / best, 0);
        kh_json_close(&j);
        if (o->json)
            rc = cli_print_json(&j, stdout, err);
        else
            printf(
                "%.3f MB, %ld tokens, %d passes on one core; opened in %.4f s\nbest pass %.6f s: "
                "%.2f MB/s, %.0f tokens/s\n",
                mb, tokens, passes, opened, best, mb / best, (double)tokens / best);
        kh_buf_free(&out);
    }
    kh_ids_free(&ids);
    kh_buf_free(&text);
    kh_tokenizer_close(t);
    return rc;
}

const cli_command cmd_bench_tokenize = {
    .name = "bench tokenize",
    .args = "",
    .summary = "Measure how fast a text is tokenized",
    .text = "Tokenizes every line of a file again and again, on one core, and prints the\n"
            "speed of the fastest pass, by the processor time that it used.\n"
            "\n"
            "Example\n"
            "  keyhole bench tokenize --model roberta-base --file news.txt --seconds 5",
    .opts = tokenize_table,
    .opts_size = sizeof(tokenize_opts),
    .run = run_tokenize,
};
