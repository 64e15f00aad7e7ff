/* cmd_predict.c - keyhole predict: texts in, labels with their distributions out. */
#include "rows.h"
#include "open_run.h"

#include "base/alloc.h"
#include "base/controls.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hooks.h"
#include "base/utf8.h"
#include "judge/decisions.h"
#include "plm/http.h"
#include "posterior/prediction.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { OUT_AUTO, OUT_JSONL, OUT_JSON, OUT_TSV, OUT_PROBS, OUT_TEXT };

typedef struct predict_opts {
    const char *model, *task, *class_prior;
    int format, output, precision;
    bool text, json, jsonl, tsv;
    kh_strings texts;
    kh_http_opts http;
} predict_opts;

static const kh_opt predict_table[] = {
    { "model", KH_OPT_TEXT, offsetof(predict_opts, model), .arg = "DIR|URL|builtin",
        .help = "where the model is now; without it, where it was when tuning" },
    { "task", KH_OPT_TEXT, offsetof(predict_opts, task), .arg = "NAME|FILE",
        .help = "checked against the one that was tuned for" },
    { "format", KH_OPT_CHOICE, offsetof(predict_opts, format), "auto", .arg = CLI_ROWS_FORMATS,
        .help = "of the input; auto: by the file's name" },
    { "output", KH_OPT_CHOICE, offsetof(predict_opts, output), "auto",
        .arg = "auto|jsonl|json|tsv|probs|text",
        .help = "one JSON object a row; one document; a table; probabilities and labels alone; "
                "sentences; auto: sentences for texts typed on a terminal, else jsonl" },
    { "jsonl", KH_OPT_FLAG, offsetof(predict_opts, jsonl), .help = "short for --output jsonl" },
    { "json", KH_OPT_FLAG, offsetof(predict_opts, json), .help = "short for --output json" },
    { "tsv", KH_OPT_FLAG, offsetof(predict_opts, tsv), .help = "short for --output tsv" },
    { "text", KH_OPT_LIST, offsetof(predict_opts, texts), .arg = "TEXT",
        .help = "texts to classify, as arguments after RUN are" },
    { "with-text", KH_OPT_FLAG, offsetof(predict_opts, text),
        .help = "repeat the text in the output" },
    CLI_CLASS_PRIOR_ROW(predict_opts),
    { "precision", KH_OPT_CHOICE, offsetof(predict_opts, precision), "as-tuned",
        .arg = CLI_RUN_PRECISIONS, .help = "of the model" },
    KH_HTTP_ROWS(predict_opts, http),
    { 0 },
};

typedef struct predict {
    const predict_opts *o;
    cli_run run;
    const kh_task *given, *task;
    kh_predictor *predictor;
    bool decides; /* there is a decisions.json */
    kh_decisions decisions;
    kh_explained said; /* of the rows at hand */
    size_t cap_p, cap_votes, cap_ambiguity, cap_energy, cap_distance;
    bool *in;   /* [n_label] a conformal set */
    int output; /* OUT_... */
    long n_row; /* written so far */
    kh_buf out;
} predict;

static kh_prediction_view view_of(const predict *u) {
    return (kh_prediction_view){ .line = true, .text = u->o->text };
}

/* One JSON object a line, or the elements of one document. */
static void put_json(predict *u, const kh_prediction *a) {
    kh_prediction_view v = view_of(u);
    kh_json_out line = kh_json_out_init(&u->out, KH_JSON_COMPACT);
    kh_buf_text(&u->out, u->output == OUT_JSON && u->n_row > 0 ? ",\n" : "");
    kh_prediction_json(a, &v, &line, NULL);
    kh_buf_text(&u->out, u->output == OUT_JSON ? "" : "\n");
    u->n_row++;
}

/* What "keyhole metrics" reads: the label is the true one, if the input has it. */
static void put_probs(predict *u, const kh_prediction *a) {
    kh_json_out j = kh_json_out_init(&u->out, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_open_array(&j, "probs");
    for (int k = 0; k < u->task->n_label; k++)
        kh_json_put_number(&j, NULL, a->p[k], 9);
    kh_json_close(&j);
    if (!isnan(a->energy))
        kh_json_put_number(&j, "energy", a->energy, 9);
    if (a->row->label >= 0)
        kh_json_put_int(&j, "label", a->row->label);
    kh_json_close(&j);
    kh_buf_char(&u->out, '\n');
}

/* ---- for people */

static void put_quoted(kh_buf *out, const kh_row *row) {
    enum { MOST = 200 }; /* bytes: two lines and a half */
    size_t n = row->n_a > MOST ? MOST : row->n_a;
    while (n < row->n_a && n > 0 && ((unsigned char)row->a[n] & 0xC0) == 0x80)
        n--; /* not in the middle of a character */
    kh_buf_char(out, '"');
    int len;
    for (size_t i = 0; i < n; i += (size_t)len)
        if (kh_is_control(kh_utf8_next(row->a + i, n - i, &len, NULL)))
            kh_buf_char(out, ' ');
        else
            kh_buf_bytes(out, row->a + i, (size_t)len);
    kh_buf_text(out, n < row->n_a ? "...\"\n" : "\"\n");
}

/* Why it abstains: the one reason that decided. */
static void put_abstention(const predict *u, const kh_prediction *a, kh_buf *out) {
    const kh_selector *s = &u->decisions.selector;
    if (s->n_accepted == 0)
        kh_buf_printf(out,
            "  it always abstains: %d rows could not show that at most %g %% are wrong\n", s->n,
            100 * s->max_risk);
    else if (u->decisions.opts.score == KH_SCORE_MAXP)
        kh_buf_printf(out, "  below %.0f %% its answers are too often wrong to %s %g %%\n",
            100 * (1 - s->threshold), s->estimate ? "expect at most" : "promise at most",
            100 * s->max_risk);
    else
        kh_buf_printf(out, "  entropy %.2f; from %.2f on its answers are too often wrong\n",
            a->d.score, s->threshold);
}

static void put_set(const kh_prediction *a, kh_buf *out) {
    if (!a->knows_set || a->d.set_size == 1)
        return;
    kh_buf_text(out, a->d.set_size == 0 ? "  no class fits well" : "  could be: ");
    for (int k = 0, n = 0; k < a->task->n_label; k++)
        if (a->in[k])
            kh_buf_printf(out, "%s%s", n++ ? ", " : "", a->task->label[k].name);
    kh_buf_char(out, '\n');
}

static void put_people(predict *u, const kh_prediction *a) {
    kh_buf *out = &u->out;
    bool abstains = a->knows_abstain && a->d.abstain;
    put_quoted(out, a->row);
    kh_buf_printf(out, abstains ? "  abstains; closest is %s, %.0f %%\n" : "  %s, %.0f %%\n",
        a->task->label[a->best].name, 100 * a->confidence);
    if (a->d.foreign)
        kh_buf_printf(out, "  out-of-distribution, not its kind of text (%s %.3g, limit %.3g)\n",
            kh_score_title(u->decisions.opts.foreign), a->d.ood_score, u->decisions.ood);
    if (a->d.unsure)
        put_abstention(u, a, out);
    put_set(a, out);
}

static void put_tsv(predict *u, const kh_prediction *a) {
    kh_prediction_view v = view_of(u);
    kh_prediction_tsv(a, &v, &u->out);
}

static void put_head(predict *u) {
    kh_prediction_view v = view_of(u);
    if (u->output == OUT_TSV)
        kh_prediction_tsv_head(u->task, &v, &u->out);
    if (u->output == OUT_JSON)
        kh_buf_text(&u->out, "{\"predictions\":[\n");
}

static int flush_out(predict *u, kh_err *err) {
    if (kh_buf_failed(&u->out))
        return kh_fail_memory(err);
    if (u->out.len > 0 && u->output == OUT_TEXT)
        cli_print(stdout, u->out.data);
    else if (u->out.len > 0)
        fwrite(u->out.data, 1, u->out.len, stdout);
    kh_buf_reset(&u->out);
    return fflush(stdout) == 0 ? 0 : kh_fail_errno(err, "standard output", "cannot write");
}

static int predict_rows(predict *u, const kh_row *rows, int n, kh_err *err) {
    size_t need = (size_t)n * (size_t)u->task->n_label;
    if (!kh_grow(&u->said.p, &u->cap_p, need, sizeof *u->said.p) ||
        !kh_grow(&u->said.votes, &u->cap_votes, need, sizeof *u->said.votes) ||
        !kh_grow(&u->said.ambiguity, &u->cap_ambiguity, (size_t)n, sizeof *u->said.ambiguity) ||
        !kh_grow(&u->said.energy, &u->cap_energy, (size_t)n, sizeof *u->said.energy) ||
        !kh_grow(&u->said.distance, &u->cap_distance, (size_t)n, sizeof *u->said.distance))
        return kh_fail_memory(err);
    int rc = kh_predictor_explain(u->predictor, rows, n, &u->said, err);
    static void (*const PUT[])(predict *, const kh_prediction *) = { put_json, put_json, put_json,
        put_tsv, put_probs, put_people };
    for (int i = 0; i < n && rc == 0; i++) {
        kh_prediction a = kh_prediction_of(
            u->task, &rows[i], &u->said, i, u->decides ? &u->decisions : NULL, u->in);
        PUT[u->output](u, &a);
    }
    return rc == 0 ? flush_out(u, err) : rc;
}

/* --------------------------------------------------------------------------------- the command */

/* Decisions are made if they were fitted; a posterior that was never evaluated can do without. */
static int open_decisions(predict *u, kh_err *err) {
    int rc = kh_decisions_open(&u->decisions, u->run.dir, err);
    u->decides = rc == 0;
    if (rc == KH_EMISSING && u->output != OUT_PROBS)
        cli_say(stderr, 2,
            "keyhole: abstain, set and ood are left out; \"keyhole eval %s --data DIR\" says when "
            "to abstain",
            u->run.dir);
    if (rc == 0 && u->decisions.warning[0] && u->output != OUT_PROBS)
        cli_say(stderr, 2, "keyhole: warning: when it was judged, %s", u->decisions.warning);
    if (rc == KH_EMISSING)
        return 0;
    if (rc == 0 && u->decisions.n_label != u->task->n_label)
        rc = kh_fail(err, KH_EMISMATCH,
            "%s: its decisions are about %d classes, its task has %d; run \"keyhole eval\" again",
            u->run.dir, u->decisions.n_label, u->task->n_label);
    return rc == 0 ? kh_decisions_check(&u->decisions, u->predictor, u->run.dir, err) : rc;
}

static int open_all(predict *u, const char *run, kh_err *err) {
    u->run.http = &u->o->http;
    int rc = cli_run_open(&u->run, run, u->o->model, u->o->precision, err);
    if (rc == 0 && u->o->class_prior)
        rc = kh_posterior_set_class_prior(u->run.posterior, u->o->class_prior, err);
    if (rc == 0 && u->o->task)
        rc = kh_task_open(&u->given, u->o->task, err);
    if (rc != 0)
        return rc;
    u->task = u->given ? u->given : u->run.info.task;
    if ((rc = kh_predictor_new(&u->predictor, u->run.posterior, u->run.plm, u->given, err)) != 0)
        return kh_err_prefix(err, "%s", run);
    u->in = kh_calloc((size_t)u->task->n_label, sizeof *u->in);
    return u->in ? open_decisions(u, err) : kh_fail_memory(err);
}

static int choose_output(predict *u, kh_err *err) {
    const predict_opts *o = u->o;
    int flags = o->jsonl + o->json + o->tsv;
    u->output = o->output;
    if (flags > 1 || (flags == 1 && o->output != OUT_AUTO))
        return kh_fail(err, CLI_USAGE, "give one of --jsonl, --json, --tsv and --output");
    if (o->jsonl)
        u->output = OUT_JSONL;
    if (o->json)
        u->output = OUT_JSON;
    if (o->tsv)
        u->output = OUT_TSV;
    return 0;
}

/* An argument that names a file, or would if it were there. */
static bool is_file_name(const char *s) {
    static const char *const ENDINGS[] = { ".csv", ".tsv", ".jsonl", ".json", ".txt" };
    size_t n = strlen(s);
    if (strcmp(s, "-") == 0 || kh_file_exists(s))
        return true;
    for (size_t i = 0; i < sizeof ENDINGS / sizeof *ENDINGS && !strchr(s, ' '); i++) {
        size_t m = strlen(ENDINGS[i]);
        if (n > m && strcmp(s + n - m, ENDINGS[i]) == 0)
            return true;
    }
    return false;
}

/* Where the rows come from: texts, a file, or standard input. */
static int choose_input(predict *u, cli_rows *in, int n_args, char **args, kh_err *err) {
    const kh_strings *texts = &u->o->texts;
    bool file = n_args == 2 && is_file_name(args[1]);
    if (texts->n > 0 && n_args > 1)
        return kh_fail(err, CLI_USAGE, "give texts after RUN or by --text, not both");
    if (file && strcmp(args[1], "-") != 0)
        in->path = args[1];
    if (!file && n_args > 1) {
        in->text_arg = args + 1;
        in->n_text = n_args - 1;
    }
    if (texts->n > 0) {
        in->text_arg = (char **)texts->item;
        in->n_text = texts->n;
    }
    if (u->output == OUT_AUTO)
        u->output = in->n_text > 0 && isatty(STDOUT_FILENO) ? OUT_TEXT : OUT_JSONL;
    if (!file && in->n_text == 0 && isatty(STDIN_FILENO))
        cli_say(stderr, 2,
            "keyhole: type a text and Enter, Ctrl-D ends; or keyhole predict %s \"text\"", args[0]);
    return 0;
}

/* Someone waits at the terminal, and the answers go elsewhere. */
static bool tells_progress(const cli_rows *in) {
    return in->n_text == 0 && isatty(STDERR_FILENO) && !isatty(STDOUT_FILENO);
}

static int run_predict(void *opts, int n_args, char **args, kh_err *err) {
    predict u = { .o = opts, .out = kh_buf_init(KH_BUF_MAX) };
    const kh_row *rows;
    int n, rc = choose_output(&u, err);
    if (rc == 0)
        rc = open_all(&u, args[0], err);
    cli_rows in = { .format = u.o->format, .task = u.task, .labels = u.output == OUT_PROBS };
    if (rc == 0)
        rc = choose_input(&u, &in, n_args, args, err);
    if (rc == 0)
        put_head(&u);
    bool tell = tells_progress(&in);
    long done = 0;
    if (rc == 0 && tell)
        kh_report_progress(&cli_hooks, "predict", 0, 0, "rows");
    while (rc == 0 && (rc = cli_rows_next(&in, &rows, &n, err)) > 0) {
        rc = predict_rows(&u, rows, n, err);
        done += n;
        if (rc == 0 && tell)
            kh_report_progress(&cli_hooks, "predict", done, 0, "rows");
    }
    if (rc == 0 && tell)
        kh_report_progress(&cli_hooks, "predict", done, done, "rows");
    if (rc == 0 && u.output == OUT_JSON)
        kh_buf_text(&u.out, "\n]}\n");
    if (rc == 0)
        rc = flush_out(&u, err);
    cli_rows_free(&in);
    kh_decisions_free(&u.decisions);
    kh_predictor_free(u.predictor);
    kh_task_close(u.given);
    cli_run_free(&u.run);
    kh_free(u.said.p);
    kh_free(u.said.votes);
    kh_free(u.said.ambiguity);
    kh_free(u.said.energy);
    kh_free(u.said.distance);
    kh_free(u.in);
    kh_buf_free(&u.out);
    return rc;
}

const cli_command cmd_predict = {
    .name = "predict",
    .args = "RUN [FILE|TEXT...]",
    .min_args = 1,
    .max_args = -1,
    .summary = "Classify texts with a tuned posterior",
    .text = "RUN is what \"keyhole tune\" made. Texts stand after it, or are the lines of standard "
            "input, for tasks\n"
            "with two texts a row separated by a tab; or the rows of FILE (TSV, CSV, JSONL, or\n"
            "plain lines). Labels in FILE are not used. Texts that are arguments are answered in\n"
            "sentences on a terminal; else, or with --jsonl, each row becomes one JSON object:\n"
            "label, confidence (the largest probability), entropy in nats and its parts\n"
            "(ambiguity: the prompts are unsure; disagreement: they contradict each other),\n"
            "energy (how little the text is of the kind tuned for) where RUN may see logits, and\n"
            "the whole distribution. After \"keyhole eval\" also: whether to abstain, the set of\n"
            "classes that holds the true one, and whether it is out-of-distribution. Input of\n"
            "any length passes through in small parts. A model or task that RUN was not tuned\n"
            "with is refused. doc/prediction-schema.md describes every key.\n\n"
            "  keyhole predict run \"My card was charged twice.\"\n"
            "  echo \"a gorgeous film\" | keyhole predict run\n"
            "  keyhole predict run test.tsv --tsv > answers.tsv\n"
            "  keyhole predict run reviews.jsonl --model /models/roberta-large --with-text\n"
            "  keyhole predict run test.tsv --output probs | keyhole metrics -",
    .opts = predict_table,
    .opts_size = sizeof(predict_opts),
    .run = run_predict,
};
