/* cmd_predict.c - keyhole predict: texts in, labels with their distributions out. */
#include "rows.h"
#include "open_run.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "judge/decisions.h"
#include "plm/http.h"

#include <math.h>
#include <string.h>

enum { OUT_JSONL, OUT_TSV, OUT_PROBS };

typedef struct predict_opts {
    const char *model, *task;
    int format, output, precision;
    bool text;
    kh_http_opts http;
} predict_opts;

static const kh_opt predict_table[] = {
    { "model", KH_OPT_TEXT, offsetof(predict_opts, model), .arg = "DIR|URL|builtin",
        .help = "where the model is now; without it, where it was when tuning" },
    { "task", KH_OPT_TEXT, offsetof(predict_opts, task), .arg = "NAME|FILE",
        .help = "checked against the one that was tuned for" },
    { "format", KH_OPT_CHOICE, offsetof(predict_opts, format), "auto", .arg = CLI_ROWS_FORMATS,
        .help = "of the input; auto: by the file's name" },
    { "output", KH_OPT_CHOICE, offsetof(predict_opts, output), "jsonl", .arg = "jsonl|tsv|probs",
        .help = "one JSON object a row; a table; or what \"keyhole metrics\" reads" },
    { "text", KH_OPT_FLAG, offsetof(predict_opts, text), .help = "repeat the text in the output" },
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
    size_t cap_p, cap_votes, cap_ambiguity, cap_energy;
    bool *in; /* [n_label] a conformal set */
    kh_buf out;
} predict;

/* All that is said of a row. */
typedef struct answer {
    const double *p;
    int best;
    double confidence, entropy, ambiguity,
        disagreement; /* the last two NaN where samples only vote */
    double energy;    /* NaN where it is not known */
    kh_decision d;    /* without decisions, only the score */
} answer;

static answer answer_of(predict *u, const kh_row *row, int i) {
    int n = u->task->n_label;
    answer a = { .p = u->said.p + (size_t)i * (size_t)n };
    kh_decomposition parts = kh_explained_parts(&u->said, i, n);
    a.best = kh_predicted(a.p, n);
    a.confidence = a.p[a.best];
    a.entropy = parts.total;
    a.ambiguity = parts.ambiguity;
    a.disagreement = parts.disagreement;
    a.energy = u->said.energy[i];
    a.d =
        (kh_decision){ .ood_score = isnan(a.energy) ? 1 - a.confidence : a.energy, .set_size = -1 };
    if (u->decides)
        a.d = kh_decide(&u->decisions, row, a.p, a.energy, u->in);
    return a;
}

/* ---------------------------------------------------------------------------------------- JSON */

static void put_known(kh_buf *b, const char *key, double x) {
    if (isnan(x))
        kh_buf_printf(b, ",\"%s\":null", key);
    else
        kh_buf_printf(b, ",\"%s\":%.9g", key, x);
}

static void put_flag(kh_buf *b, const char *key, bool known, bool value) {
    kh_buf_printf(b, ",\"%s\":%s", key, !known ? "null" : value ? "true" : "false");
}

static void put_set(predict *u, const answer *a) {
    kh_buf *b = &u->out;
    kh_buf_text(b, a->d.set_size < 0 ? ",\"set\":null" : ",\"set\":[");
    for (int k = 0, n = 0; a->d.set_size >= 0 && k < u->task->n_label; k++)
        if (u->in[k]) {
            kh_buf_text(b, n++ ? "," : "");
            kh_json_quote(b, u->task->label[k].name, strlen(u->task->label[k].name));
        }
    kh_buf_text(b, a->d.set_size < 0 ? "" : "]");
}

/* Whether there is a threshold for foreign rows. */
static bool knows_foreign(const predict *u) { return u->decides && isfinite(u->decisions.ood); }
static bool knows_abstain(const predict *u) { return u->decides && u->decisions.opts.max_risk > 0; }

static void put_json(predict *u, const kh_row *row, const answer *a) {
    kh_buf *b = &u->out;
    const kh_label *label = u->task->label;
    kh_buf_printf(b, "{\"line\":%ld,\"label\":", row->line);
    kh_json_quote(b, label[a->best].name, strlen(label[a->best].name));
    kh_buf_printf(b, ",\"confidence\":%.9g,\"entropy\":%.9g", a->confidence, a->entropy);
    put_known(b, "ambiguity", a->ambiguity);
    put_known(b, "disagreement", a->disagreement);
    if (!isnan(a->energy))
        put_known(b, "energy", a->energy);
    put_flag(b, "abstain", knows_abstain(u), a->d.abstain);
    put_set(u, a);
    kh_buf_printf(b, ",\"ood_score\":%.9g", a->d.ood_score);
    put_flag(b, "ood", knows_foreign(u), a->d.foreign);
    kh_buf_text(b, ",\"distribution\":{");
    for (int k = 0; k < u->task->n_label; k++) {
        kh_buf_text(b, k ? "," : "");
        kh_json_quote(b, label[k].name, strlen(label[k].name));
        kh_buf_printf(b, ":%.9g", a->p[k]);
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
static void put_probs(predict *u, const kh_row *row, const answer *a) {
    for (int k = 0; k < u->task->n_label; k++)
        kh_buf_printf(&u->out, "%s%.9g", k ? "," : "{\"probs\":[", a->p[k]);
    kh_buf_char(&u->out, ']');
    if (!isnan(a->energy))
        put_known(&u->out, "energy", a->energy);
    if (row->label >= 0)
        kh_buf_printf(&u->out, ",\"label\":%d", row->label);
    kh_buf_text(&u->out, "}\n");
}

/* --------------------------------------------------------------------------------------- table */

/* Tabs and line breaks would break the table. */
static void put_field(kh_buf *b, const char *s, size_t n) {
    kh_buf_char(b, '\t');
    for (size_t i = 0; i < n; i++)
        kh_buf_char(b, strchr("\t\n\r", s[i]) ? ' ' : s[i]);
}

static void put_tsv_header(predict *u) {
    kh_buf_text(&u->out,
        "line\tlabel\tconfidence\tentropy\tambiguity\tdisagreement\tabstain\tset\tenergy\tood_"
        "score\tood");
    for (int k = 0; k < u->task->n_label; k++) {
        kh_buf_text(&u->out, "\tp_");
        kh_buf_text(&u->out, u->task->label[k].name);
    }
    kh_buf_text(&u->out, !u->o->text ? "\n" : u->task->pair ? "\ttext_a\ttext_b\n" : "\ttext\n");
}

/* What is not known is empty. */
static void put_tsv_number(kh_buf *b, double x) {
    if (isnan(x))
        kh_buf_char(b, '\t');
    else
        kh_buf_printf(b, "\t%.9g", x);
}

static void put_tsv_flag(kh_buf *b, bool known, bool value) {
    kh_buf_text(b, !known ? "\t" : value ? "\tyes" : "\tno");
}

static void put_tsv(predict *u, const kh_row *row, const answer *a) {
    kh_buf *b = &u->out;
    kh_buf_printf(b, "%ld\t%s\t%.9g\t%.9g", row->line, u->task->label[a->best].name, a->confidence,
        a->entropy);
    put_tsv_number(b, a->ambiguity);
    put_tsv_number(b, a->disagreement);
    put_tsv_flag(b, knows_abstain(u), a->d.abstain);
    kh_buf_char(b, '\t');
    for (int k = 0, n = 0; a->d.set_size >= 0 && k < u->task->n_label; k++)
        if (u->in[k])
            kh_buf_printf(b, "%s%s", n++ ? "|" : "", u->task->label[k].name);
    put_tsv_number(b, a->energy);
    put_tsv_number(b, a->d.ood_score);
    put_tsv_flag(b, knows_foreign(u), a->d.foreign);
    for (int k = 0; k < u->task->n_label; k++)
        kh_buf_printf(b, "\t%.9g", a->p[k]);
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
    size_t need = (size_t)n * (size_t)u->task->n_label;
    if (!kh_grow(&u->said.p, &u->cap_p, need, sizeof *u->said.p) ||
        !kh_grow(&u->said.votes, &u->cap_votes, need, sizeof *u->said.votes) ||
        !kh_grow(&u->said.ambiguity, &u->cap_ambiguity, (size_t)n, sizeof *u->said.ambiguity) ||
        !kh_grow(&u->said.energy, &u->cap_energy, (size_t)n, sizeof *u->said.energy))
        return kh_fail_memory(err);
    int rc = kh_predictor_explain(u->predictor, rows, n, &u->said, err);
    static void (*const PUT[])(
        predict *, const kh_row *, const answer *) = { put_json, put_tsv, put_probs };
    for (int i = 0; i < n && rc == 0; i++) {
        answer a = answer_of(u, &rows[i], i);
        PUT[u->o->output](u, &rows[i], &a);
    }
    return rc == 0 ? flush_out(u, err) : rc;
}

/* --------------------------------------------------------------------------------- the command */

/* Decisions are made if they were fitted; a posterior that was never evaluated can do without. */
static int open_decisions(predict *u, kh_err *err) {
    int rc = kh_decisions_open(&u->decisions, u->run.dir, err);
    u->decides = rc == 0;
    if (rc == KH_EMISSING && u->o->output != OUT_PROBS)
        fprintf(stderr,
            "keyhole: abstain, set and ood are left out; \"keyhole eval %s --data DIR\" says when "
            "to abstain\n",
            u->run.dir);
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
    kh_decisions_free(&u.decisions);
    kh_predictor_free(u.predictor);
    kh_task_close(u.given);
    cli_run_free(&u.run);
    kh_free(u.said.p);
    kh_free(u.said.votes);
    kh_free(u.said.ambiguity);
    kh_free(u.said.energy);
    kh_free(u.in);
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
            "label, confidence (the largest probability), entropy in nats and its parts\n"
            "(ambiguity: the prompts are unsure; disagreement: they contradict each other),\n"
            "energy (how little the text is of the kind tuned for) where RUN may see logits, and\n"
            "the whole distribution. After \"keyhole eval\" also: whether to abstain, the set of\n"
            "classes that holds the true one, and whether the text is foreign (ood). Input of\n"
            "any length passes through in small parts. A model or task that RUN was not tuned\n"
            "with is refused.\n\n"
            "  echo \"a gorgeous film\" | keyhole predict run\n"
            "  keyhole predict run test.tsv --output tsv > answers.tsv\n"
            "  keyhole predict run reviews.jsonl --model /models/roberta-large --text\n"
            "  keyhole predict run test.tsv --output probs | keyhole metrics -",
    .opts = predict_table,
    .opts_size = sizeof(predict_opts),
    .run = run_predict,
};
