/* cmd_predict.c - keyhole predict: texts in, labels with their distributions out. */
#include "rows.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "plm/http.h"

#include <string.h>

enum { OUT_JSONL, OUT_TSV, OUT_PROBS };

typedef struct predict_opts {
    const char *model, *task;
    int format, output, precision;
    bool text;
    kh_http_opts http;
} predict_opts;

static const kh_opt predict_table[] = {
    { "model", KH_OPT_TEXT, offsetof(predict_opts, model), .arg = "DIR|URL",
        .help = "where the model is now; without it, where it was when tuning" },
    { "task", KH_OPT_TEXT, offsetof(predict_opts, task), .arg = "NAME|FILE", .help = "checked against the one that was tuned for" },
    { "format", KH_OPT_CHOICE, offsetof(predict_opts, format), "auto", .arg = CLI_ROWS_FORMATS,
        .help = "of the input; auto: by the file's name" },
    { "output", KH_OPT_CHOICE, offsetof(predict_opts, output), "jsonl", .arg = "jsonl|tsv|probs",
        .help = "one JSON object a row; a table; or what \"keyhole metrics\" reads" },
    { "text", KH_OPT_FLAG, offsetof(predict_opts, text), .help = "repeat the text in the output" },
    { "precision", KH_OPT_CHOICE, offsetof(predict_opts, precision), "as-tuned", .arg = "as-tuned|f32|bf16|int8|auto",
        .help = "of the model" },
    KH_HTTP_ROWS(predict_opts, http),
    { 0 },
};

typedef struct predict {
    const predict_opts *o;
    kh_posterior *posterior;
    const kh_task *given, *task;
    kh_plm *plm;
    kh_predictor *predictor;
    double *p;
    size_t cap;
    kh_buf out;
} predict;

static void put_json(predict *u, const kh_row *row, const double *p) {
    kh_buf *b = &u->out;
    const kh_label *label = u->task->label;
    int n = u->task->n_label, best = kh_predicted(p, n);
    kh_buf_printf(b, "{\"line\":%ld,\"label\":", row->line);
    kh_json_quote(b, label[best].name, strlen(label[best].name));
    kh_buf_printf(b, ",\"confidence\":%.9g,\"entropy\":%.9g,\"distribution\":{", p[best], kh_uncertainty(KH_SCORE_ENTROPY, p, n));
    for (int k = 0; k < n; k++) {
        kh_buf_text(b, k ? "," : "");
        kh_json_quote(b, label[k].name, strlen(label[k].name));
        kh_buf_printf(b, ":%.9g", p[k]);
    }
    kh_buf_char(b, '}');
    if (u->o->text) {
        kh_buf_text(b, row->b ? ",\"text_a\":" : ",\"text\":");
        kh_json_quote(b, row->a, row->n_a);
    }
    if (u->o->text && row->b) {
        kh_buf_text(b, ",\"text_b\":");
        kh_json_quote(b, row->b, row->n_b);
    }
    kh_buf_text(b, "}\n");
}

/* What "keyhole metrics" reads: the label is the true one, if the input has it. */
static void put_probs(predict *u, const kh_row *row, const double *p) {
    for (int k = 0; k < u->task->n_label; k++)
        kh_buf_printf(&u->out, "%s%.9g", k ? "," : "{\"probs\":[", p[k]);
    if (row->label >= 0)
        kh_buf_printf(&u->out, "],\"label\":%d}\n", row->label);
    else
        kh_buf_text(&u->out, "]}\n");
}

/* Tabs and line breaks would break the table. */
static void put_field(kh_buf *b, const char *s, size_t n) {
    kh_buf_char(b, '\t');
    for (size_t i = 0; i < n; i++)
        kh_buf_char(b, strchr("\t\n\r", s[i]) ? ' ' : s[i]);
}

static void put_tsv_header(predict *u) {
    kh_buf_text(&u->out, "line\tlabel\tconfidence\tentropy");
    for (int k = 0; k < u->task->n_label; k++) {
        kh_buf_text(&u->out, "\tp_");
        kh_buf_text(&u->out, u->task->label[k].name);
    }
    kh_buf_text(&u->out, !u->o->text ? "\n" : u->task->pair ? "\ttext_a\ttext_b\n" : "\ttext\n");
}

static void put_tsv(predict *u, const kh_row *row, const double *p) {
    int n = u->task->n_label, best = kh_predicted(p, n);
    kh_buf_printf(
        &u->out, "%ld\t%s\t%.9g\t%.9g", row->line, u->task->label[best].name, p[best], kh_uncertainty(KH_SCORE_ENTROPY, p, n));
    for (int k = 0; k < n; k++)
        kh_buf_printf(&u->out, "\t%.9g", p[k]);
    if (u->o->text)
        put_field(&u->out, row->a, row->n_a);
    if (u->o->text && row->b)
        put_field(&u->out, row->b, row->n_b);
    kh_buf_char(&u->out, '\n');
}

static int flush_out(predict *u, kh_err *err) {
    if (kh_buf_failed(&u->out))
        return kh_fail_memory(err);
    if (u->out.len > 0)
        fwrite(u->out.data, 1, u->out.len, stdout);
    kh_buf_reset(&u->out);
    return fflush(stdout) == 0 ? 0 : kh_fail_errno(err, "standard output", "cannot write");
}

static int predict_rows(predict *u, const kh_row *rows, int n, kh_err *err) {
    size_t n_label = (size_t)u->task->n_label;
    if (!kh_grow(&u->p, &u->cap, (size_t)n * n_label, sizeof *u->p))
        return kh_fail_memory(err);
    int rc = kh_predictor_run(u->predictor, rows, n, u->p, err);
    static void (*const PUT[])(predict *, const kh_row *, const double *) = { put_json, put_tsv, put_probs };
    for (int i = 0; i < n && rc == 0; i++)
        PUT[u->o->output](u, &rows[i], u->p + (size_t)i * n_label);
    return rc == 0 ? flush_out(u, err) : rc;
}

/* ---------------------------------------------------------------------------------------------------- the command */

static kh_precision precision_of(const predict_opts *o, const char *tuned) {
    static const char *const NAMES[] = { "f32", "bf16", "int8" };
    if (o->precision > 0)
        return (kh_precision)(o->precision - 1);
    for (int i = 0; tuned && i < 3; i++)
        if (strcmp(tuned, NAMES[i]) == 0)
            return (kh_precision)i;
    return KH_F32;
}

static int open_all(predict *u, const char *run, kh_err *err) {
    int rc = kh_posterior_open(&u->posterior, run, err);
    if (rc != 0)
        return rc;
    kh_posterior_info info = kh_posterior_describe(u->posterior);
    const char *model = u->o->model ? u->o->model : info.model;
    if (!model)
        return kh_fail(err, CLI_USAGE, "%s: does not say where its model is; give --model", run);
    if (u->o->task && (rc = kh_task_open(&u->given, u->o->task, err)) != 0)
        return rc;
    u->task = u->given ? u->given : info.task;
    rc = kh_plm_open(&u->plm, model,
        &(kh_plm_opts){ .access = info.access, .precision = precision_of(u->o, info.precision), .hooks = &cli_hooks, .http = &u->o->http }, err);
    if (rc == KH_EMISSING && !u->o->model)
        return kh_err_prefix(err, "the model that %s was tuned on is gone; --model says where it is now", run);
    if (rc == 0 && (rc = kh_predictor_new(&u->predictor, u->posterior, u->plm, u->given, err)) != 0)
        rc = kh_err_prefix(err, "%s", run);
    return rc;
}

static int run_predict(void *opts, int n_args, char **args, kh_err *err) {
    predict u = { .o = opts, .out = kh_buf_init(KH_BUF_MAX) };
    const kh_row *rows;
    int n, rc = open_all(&u, args[0], err);
    cli_rows in = { .path = n_args > 1 && strcmp(args[1], "-") != 0 ? args[1] : NULL,
        .format = u.o->format,
        .task = u.task,
        .labels = u.o->output == OUT_PROBS };
    if (rc == 0 && u.o->output == OUT_TSV)
        put_tsv_header(&u);
    while (rc == 0 && (rc = cli_rows_next(&in, &rows, &n, err)) > 0)
        rc = predict_rows(&u, rows, n, err);
    if (rc == 0)
        rc = flush_out(&u, err);
    cli_rows_free(&in);
    kh_predictor_free(u.predictor);
    kh_plm_close(u.plm);
    kh_task_close(u.given);
    kh_posterior_free(u.posterior);
    kh_free(u.p);
    kh_buf_free(&u.out);
    return rc;
}

const cli_command cmd_predict = {
    .name = "predict",
    .args = "RUN [FILE]",
    .min_args = 1,
    .max_args = 2,
    .summary = "Classify texts with a tuned posterior",
    .text = "RUN is what \"keyhole tune\" made. Texts are the lines of standard input, for tasks\n"
            "with two texts a row separated by a tab; or the rows of FILE (TSV, CSV, JSONL, or\n"
            "plain lines). Labels in FILE are not used. Each row becomes one JSON object:\n"
            "label, confidence (the largest probability), entropy in nats, and the whole\n"
            "distribution. Input of any length passes through in small parts. A model or task\n"
            "that RUN was not tuned with is refused.\n\n"
            "  echo \"a gorgeous film\" | keyhole predict run\n"
            "  keyhole predict run test.tsv --output tsv > answers.tsv\n"
            "  keyhole predict run reviews.jsonl --model /models/roberta-large --text\n"
            "  keyhole predict run test.tsv --output probs | keyhole metrics -",
    .opts = predict_table,
    .opts_size = sizeof(predict_opts),
    .run = run_predict,
};
