/* cmd_pretrain.c - keyhole pretrain: a masked language model of one's own. */
#include "corpus_args.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json_out.h"
#include "train/pretrain.h"
#include "model/random_model.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

typedef struct pretrain_opts {
    kh_strings corpus, rows, probe_task, probe_data;
    const char *valid, *tokenizer, *config, *arch, *init, *out, *seq_schedule;
    int family, layers, hidden, heads, inner, positions;
    int steps, batch_tokens, seq_len, windows, decay, dtype, precision, shards, eval_every,
        eval_tokens, probe_rows;
    double rows_share, tokens, lr, warmup, floor, weight_decay, clip, beta1, beta2, eps, mask_rate,
        dropout, valid_share;
    double checkpoint_every, budget_time;
    uint64_t seed;
    bool whole_word, recompute, resume, json;
} pretrain_opts;

#define AT(field) offsetof(pretrain_opts, field)
static const kh_opt pretrain_table[] = {
    { "corpus", KH_OPT_LIST, AT(corpus), .arg = "FILE[:WEIGHT]",
        .help = "plain text, one text a line; weight 2 comes twice as often", .required = true },
    { "rows", KH_OPT_LIST, AT(rows), .arg = "TASK=DIR[:WEIGHT]",
        .help = "also train rows of DIR, in the task's templates, their label's word at the mask" },
    { "rows-share", KH_OPT_NUMBER, AT(rows_share), "0.67", .min = 0, .max = 1, .arg = "X",
        .help = "share of rows, of tokens and of the loss; the rest is text" },
    { "tokenizer", KH_OPT_TEXT, AT(tokenizer), .arg = "FILE|DIR",
        .help = "whose ids the model learns", .required = true },
    { "out", KH_OPT_TEXT, AT(out), .arg = "DIR", .help = "the model's folder", .required = true },
    { "resume", KH_OPT_FLAG, AT(resume),
        .help = "go on where the run in --out was stopped or killed" },
    { "init", KH_OPT_TEXT, AT(init), .arg = "DIR|builtin",
        .help = "start from this model instead of random weights" },
    { "config", KH_OPT_TEXT, AT(config), .arg = "FILE",
        .help = "a config.json whose sizes the fresh model has" },
    { "arch", KH_OPT_TEXT, AT(arch), .arg = "NAME",
        .help = "or those of roberta-base, bert-base, roberta-large, bert-large" },
    { "family", KH_OPT_CHOICE, AT(family), "roberta", .arg = "roberta|bert",
        .help = "or a model of this family with these sizes:" },
    { "layers", KH_OPT_INT, AT(layers), "6", .min = 1, .max = 1024, .arg = "N", .help = "layers" },
    { "hidden", KH_OPT_INT, AT(hidden), "256", .min = 1, .max = 1 << 16, .arg = "N",
        .help = "hidden size" },
    { "heads", KH_OPT_INT, AT(heads), "0", .max = 1 << 12, .arg = "N",
        .help = "attention heads; 0: one for each 64 of the hidden size" },
    { "inner", KH_OPT_INT, AT(inner), "0", .max = 1 << 20, .arg = "N",
        .help = "feed-forward size; 0: four times the hidden size" },
    { "positions", KH_OPT_INT, AT(positions), "514", .min = 3, .max = 1 << 20, .arg = "N",
        .help = "rows of the position table" },
    { "steps", KH_OPT_INT, AT(steps), "0", .arg = "N", .help = "steps in all; or --tokens" },
    { "tokens", KH_OPT_NUMBER, AT(tokens), "0", .min = 0, .max = 1e15, .arg = "N",
        .help = "tokens in all, e.g. 2e8" },
    { "batch-tokens", KH_OPT_INT, AT(batch_tokens), "4096", .min = 8, .max = 1 << 24, .arg = "N",
        .help = "tokens of a step, at least" },
    { "seq-len", KH_OPT_INT, AT(seq_len), "64", .min = 8, .max = 1 << 16, .arg = "N",
        .help = "tokens of a sequence, at most" },
    { "seq-schedule", KH_OPT_TEXT, AT(seq_schedule), .arg = "LIST",
        .help = "lengths one after the other, each with its share of the steps: "
                "32:0.5,64:0.3,128:0.2" },
    { "windows", KH_OPT_CHOICE, AT(windows), "lines", .arg = "lines|joined",
        .help = "sequences end with their line, or run on" },
    { "lr", KH_OPT_NUMBER, AT(lr), "1e-3", .min = 0, .max = 10, .arg = "X",
        .help = "highest learning rate" },
    { "warmup", KH_OPT_NUMBER, AT(warmup), "0.02", .min = 0, .max = 1e9, .arg = "N",
        .help = "steps to reach it; below 1, a share of all" },
    { "decay", KH_OPT_CHOICE, AT(decay), "linear", .arg = "constant|linear|cosine",
        .help = "how the rate falls after that" },
    { "floor", KH_OPT_NUMBER, AT(floor), "0", .min = 0, .max = 1, .arg = "X",
        .help = "share of --lr that is left at the end" },
    { "weight-decay", KH_OPT_NUMBER, AT(weight_decay), "0.01", .min = 0, .max = 1, .arg = "X",
        .help = "of matrices only" },
    { "clip", KH_OPT_NUMBER, AT(clip), "1", .min = 0, .max = 1e9, .arg = "X",
        .help = "largest norm of the gradient; 0: any" },
    { "beta1", KH_OPT_NUMBER, AT(beta1), "0.9", .min = 0, .max = 0.9999999, .arg = "X",
        .help = "of AdamW's first moment" },
    { "beta2", KH_OPT_NUMBER, AT(beta2), "0.98", .min = 0, .max = 0.9999999, .arg = "X",
        .help = "of AdamW's second moment" },
    { "eps", KH_OPT_NUMBER, AT(eps), "1e-6", .min = 1e-12, .max = 1, .arg = "X",
        .help = "of AdamW" },
    { "mask-rate", KH_OPT_NUMBER, AT(mask_rate), "0.15", .min = 0.001, .max = 0.9, .arg = "X",
        .help = "share of tokens to be guessed" },
    { "whole-word", KH_OPT_FLAG, AT(whole_word), .help = "mask all tokens of a word together" },
    { "dropout", KH_OPT_NUMBER, AT(dropout), "0", .min = 0, .max = 0.9, .arg = "X",
        .help = "share of hidden numbers and attention that a step sets to 0; BERT was trained "
                "with 0.1" },
    { "precision", KH_OPT_CHOICE, AT(precision), "f32", .arg = "f32|bf16",
        .help = "of large products; bf16 is faster on CPUs that have it" },
    { "recompute", KH_OPT_FLAG, AT(recompute),
        .help =
            "compute layers twice instead of keeping what they made: less memory, the same bits" },
    { "valid", KH_OPT_TEXT, AT(valid), .arg = "FILE", .help = "held-out text" },
    { "valid-share", KH_OPT_NUMBER, AT(valid_share), "0.002", .min = 0, .max = 0.5, .arg = "X",
        .help = "or a share of all lines" },
    { "eval-every", KH_OPT_INT, AT(eval_every), "0", .arg = "STEPS",
        .help = "how often to look at held-out text; 0: 40 times" },
    { "eval-tokens", KH_OPT_INT, AT(eval_tokens), "32768", .min = 64, .max = 1 << 28, .arg = "N",
        .help = "of held-out text, at most" },
    { "probe-task", KH_OPT_LIST, AT(probe_task), .arg = "NAME|FILE",
        .help = "also measure this task without tuning" },
    { "probe-data", KH_OPT_LIST, AT(probe_data), .arg = "DIR",
        .help = "on the test rows of this folder, one for each task" },
    { "probe-rows", KH_OPT_INT, AT(probe_rows), "500", .min = 1, .max = 1 << 30, .arg = "N",
        .help = "rows of each, at most" },
    { "checkpoint-every", KH_OPT_NUMBER, AT(checkpoint_every), "300", .min = 0, .max = 1e9,
        .arg = "SECONDS", .help = "how often" },
    { "budget-time", KH_OPT_NUMBER, AT(budget_time), "0", .min = 0, .max = 1e9, .arg = "SECONDS",
        .help = "stop then; --resume goes on" },
    { "dtype", KH_OPT_CHOICE, AT(dtype), "f32", .arg = "f32|f16|bf16|q8_0",
        .help = "how model.safetensors stores numbers" },
    { "shards", KH_OPT_INT, AT(shards), "4", .min = 1, .max = 1024, .arg = "N",
        .help = "parts of a batch that threads share; another number gives other bits" },
    { "seed", KH_OPT_SEED, AT(seed), "0", .arg = "N", .help = "of weights, order and masks" },
    { "json", KH_OPT_FLAG, AT(json), .help = "print the result as JSON" },
    { 0 },
};

/* Ctrl-C and kill end the run after the step that is under way; a second one ends it at once. */
static volatile sig_atomic_t interrupted;

static void on_signal(int number) {
    interrupted = 1;
    signal(number, SIG_DFL);
}

static int show(void *user, const kh_progress *p) {
    (void)user;
    return cli_hooks.progress(cli_hooks.user, p) || interrupted;
}

static void show_log(void *user, kh_level level, const char *line) {
    (void)user;
    cli_hooks.log(cli_hooks.user, level, line);
}

/* ------------------------------------------------------------------------------------- options */

static void set(int *field, int value) {
    if (value > 0)
        *field = value;
}

/* The vocabulary and the padding token are the tokenizer's. */
static int fit_tokenizer(kh_config *c, const char *path, kh_err *err) {
    kh_tokenizer *t;
    int rc = kh_tokenizer_open(&t, path, err);
    if (rc != 0)
        return rc;
    int pad = kh_tokenizer_special(t, KH_TOKEN_PAD);
    c->vocab = kh_tokenizer_size(t);
    kh_config_set_pad(c, pad >= 0 ? pad : c->pad);
    kh_tokenizer_close(t);
    return 0;
}

static int choose_config(kh_config *c, const pretrain_opts *o, kh_err *err) {
    const char *tiny = o->family == 0 ? "roberta-tiny" : "bert-tiny";
    const kh_config *arch = kh_arch_find(o->arch ? o->arch : tiny);
    if ((o->config != NULL) + (o->arch != NULL) + (o->init != NULL) > 1)
        return kh_fail(err, CLI_USAGE, "give one of --config, --arch and --init");
    if (!arch)
        return kh_fail(err, CLI_USAGE, "--arch \"%s\" is not known", o->arch);
    *c = *arch;
    if (o->config) {
        int rc = kh_config_read(c, o->config, err);
        if (rc != 0)
            return rc;
    } else if (!o->arch) {
        c->layers = o->layers;
        c->hidden = o->hidden;
        c->heads = o->hidden >= 64 ? o->hidden / 64 : 1;
        c->inner = 4 * o->hidden;
        c->positions = o->positions;
        set(&c->heads, o->heads);
        set(&c->inner, o->inner);
    }
    int rc = fit_tokenizer(c, o->tokenizer, err);
    return rc ? rc : kh_config_check(c, "the new model", err);
}

static int read_schedule(kh_pretrain_opts *p, const pretrain_opts *o, kh_err *err) {
    p->phase[0] = (kh_phase){ o->seq_len, 1 };
    p->n_phase = 1;
    const char *at = o->seq_schedule;
    for (p->n_phase = at ? 0 : 1; at && *at;) {
        int used = 0;
        kh_phase *phase = &p->phase[p->n_phase];
        if (p->n_phase == KH_PHASES ||
            sscanf(at, "%d:%lf%n", &phase->length, &phase->share, &used) != 2 ||
            phase->length < 8 || !(phase->share > 0 && phase->share < 1e6) ||
            (at[used] && at[used] != ','))
            return kh_fail(err, CLI_USAGE,
                "--seq-schedule takes up to %d pairs LENGTH:SHARE, lengths of 8 or more; got "
                "\"%s\"",
                (int)KH_PHASES, o->seq_schedule);
        p->n_phase++;
        at += used + (at[used] == ',');
    }
    return p->n_phase > 0 ? 0 : kh_fail(err, CLI_USAGE, "--seq-schedule is empty");
}

static int choose_steps(kh_pretrain_opts *p, const pretrain_opts *o, kh_err *err) {
    if ((o->steps > 0) == (o->tokens > 0))
        return kh_fail(err, CLI_USAGE, "give either --steps N or --tokens N");
    double steps = o->steps > 0 ? o->steps : ceil(o->tokens / o->batch_tokens);
    if (steps > 4e9)
        return kh_fail(err, CLI_USAGE, "--tokens %g makes more than 4e9 steps", o->tokens);
    p->steps = (long)steps;
    long fortieth = p->steps / 40 > 0 ? p->steps / 40 : 1; /* enough points for a curve */
    p->eval_every = o->eval_every > 0 ? o->eval_every : fortieth;
    return 0;
}

/* -------------------------------------------------------------------------------------- probes */

/* Accuracy without tuning, on the first rows of a test file: the manual template and the task's
 * words. */
static int probe_rows(
    const kh_task *task, const kh_row *rows, int n, const char *dir, double *value, kh_err *err) {
    kh_plm *plm = NULL;
    kh_words *words = NULL;
    kh_batch *batch = NULL;
    float *logprob = kh_calloc((size_t)n * (size_t)task->n_label, sizeof *logprob);
    kh_err *e = err;
    int rc = logprob ? kh_plm_open(&plm, dir, &(kh_plm_opts){ .access = KH_ACCESS_LOGPROBS }, e)
                     : kh_fail_memory(e);
    if (rc == 0)
        rc = kh_words_new(&words, task, kh_plm_tokenizer(plm), false, e);
    kh_batch_opts batch_opts = { .max_len = plm ? kh_plm_describe(plm).max_len : 0 };
    if (rc == 0)
        rc = kh_batch_encode(&batch, kh_plm_tokenizer(plm), task, words, rows, n, &batch_opts, e);
    if (rc == 0)
        rc = kh_plm_score(kh_plm_scorer(plm, e),
            &(kh_question){ .batch = batch, .words = words, .n_prompt = 1 }, logprob, e);
    int right = 0;
    for (int i = 0; rc == 0 && i < batch->n_row; i++) {
        const float *p = logprob + (size_t)i * (size_t)task->n_label;
        int best = 0;
        for (int k = 1; k < task->n_label; k++)
            best = p[k] > p[best] ? k : best;
        right += best == batch->label[i];
    }
    *value = rc == 0 && batch->n_row > 0 ? (double)right / batch->n_row : 0;
    kh_batch_free(batch);
    kh_words_free(words);
    kh_plm_close(plm);
    kh_free(logprob);
    return rc;
}

static int probe(void *user, const char *dir, int i, double *value, kh_err *err) {
    const pretrain_opts *o = user;
    const kh_task *task = NULL;
    kh_dataset *data = NULL;
    int rc = kh_task_open(&task, o->probe_task.item[i], err);
    if (rc == 0)
        rc = kh_test_open(
            &data, o->probe_data.item[i], 0, 0, &(kh_dataset_opts){ .task = task }, err);
    if (rc == 0) {
        int n = kh_dataset_size(data) < o->probe_rows ? kh_dataset_size(data) : o->probe_rows;
        rc = probe_rows(task, kh_dataset_rows(data), n, dir, value, err);
    }
    kh_dataset_close(data);
    kh_task_close(task);
    return rc;
}

/* ----------------------------------------------------------------------------------------- run */

static int print_result(const pretrain_opts *o, const kh_pretrained *r, kh_err *err) {
    if (!o->json) {
        printf("%s: step %ld, %lld tokens in %.0f s, loss %.4f, held-out loss %.4f (stopped: %s)\n",
            o->out, r->step, r->tokens, r->seconds, r->loss, r->held_out, r->stopped);
        return 0;
    }
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "out", o->out);
    kh_json_put_int(&j, "step", r->step);
    kh_json_put_int(&j, "tokens", r->tokens);
    kh_json_put_fixed(&j, "seconds", r->seconds, 1);
    kh_json_put_fixed(&j, "loss", r->loss, 5);
    kh_json_put_fixed(&j, "held_out", isnan(r->held_out) ? -1 : r->held_out, 5);
    kh_json_put_string(&j, "stopped", r->stopped);
    kh_json_close(&j);
    return cli_print_json(&j, stdout, err);
}

static int run_pretrain(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args, (void)args;
    const pretrain_opts *o = opts;
    const kh_hooks hooks = { .progress = show, .log = show_log };
    cli_corpus corpus, rows = { 0 };
    int rc = cli_corpus_parse(&corpus, &o->corpus, err);
    if (rc == 0)
        rc = cli_rows_parse(&rows, &o->rows, err);
    kh_pretrain_opts p = {
        .corpus = { .file = (const char *const *)corpus.path,
            .weight = corpus.weight,
            .n_file = corpus.n,
            .valid = o->valid,
            .valid_share = o->valid_share,
            .hooks = &hooks },
        .rows = { .task = (const char *const *)rows.task,
            .dir = (const char *const *)rows.path,
            .weight = rows.weight,
            .n = rows.n,
            .hooks = &hooks },
        .rows_share = o->rows_share,
        .tokenizer = o->tokenizer,
        .init = o->init,
        .out = o->out,
        .dtype = (kh_dtype)(KH_DTYPE_F32 + o->dtype), /* in the order of the enum */
        .batch_tokens = o->batch_tokens,
        .joined = o->windows == 1,
        .adamw = { .lr = o->lr,
            .beta1 = o->beta1,
            .beta2 = o->beta2,
            .eps = o->eps,
            .weight_decay = o->weight_decay,
            .clip = o->clip,
            .warmup = o->warmup,
            .decay = o->decay,
            .floor = o->floor },
        .mask_rate = o->mask_rate,
        .whole_word = o->whole_word,
        .dropout = o->dropout,
        .bf16 = o->precision == 1,
        .recompute = o->recompute,
        .seed = o->seed,
        .shards = o->shards,
        .resume = o->resume,
        .checkpoint_every = o->checkpoint_every,
        .eval_tokens = o->eval_tokens,
        .budget = o->budget_time,
        .hooks = &hooks,
        .probe_name = o->probe_task.item,
        .n_probe = o->probe_task.n,
        .probe = probe,
        .user = opts,
    };
    if (rc == 0 && o->probe_task.n != o->probe_data.n)
        rc = kh_fail(err, CLI_USAGE,
            "%d --probe-task and %d --probe-data: each task needs one folder", o->probe_task.n,
            o->probe_data.n);
    if (rc == 0 && (rc = choose_steps(&p, o, err)) == 0 && (rc = read_schedule(&p, o, err)) == 0)
        rc = choose_config(&p.config, o, err);
    if (rc == 0) {
        kh_pretrained result;
        signal(SIGINT, on_signal);
        signal(SIGTERM, on_signal);
        rc = kh_pretrain(&result, &p, err);
        if (rc == 0)
            rc = print_result(o, &result, err);
    }
    cli_corpus_free(&corpus);
    cli_corpus_free(&rows);
    return rc;
}

const cli_command cmd_pretrain = {
    .name = "pretrain",
    .args = "",
    .summary = "Train a masked language model on plain text",
    .text = "Hides a share of the tokens of each sequence and learns to guess them. The\n"
            "result is a model folder in Hugging Face layout that every other command takes.\n"
            "The folder also keeps the state of the run: stop it with Ctrl-C, or kill it,\n"
            "and --resume goes on to the very weights that it would have reached. The same\n"
            "seed gives the same weights for any number of threads. log.tsv holds losses,\n"
            "rate and probes for plots. With --rows it also learns to answer questions:\n"
            "rows of a train file that neither the test file nor a ready-made split holds.\n"
            "\n"
            "  keyhole tokenizer train --corpus text.txt --vocab 16000 --out tok.json\n"
            "  keyhole pretrain --corpus text.txt --tokenizer tok.json --out model \\\n"
            "      --layers 6 --hidden 256 --tokens 2e8\n"
            "  keyhole pretrain --corpus wiki.txt reviews.txt:3 --tokenizer tok.json \\\n"
            "      --out model --seq-schedule 32:0.5,64:0.3,128:0.2 --tokens 1e9 \\\n"
            "      --probe-task sst2 --probe-data data/sst2\n"
            "  keyhole pretrain --corpus domain.txt --init roberta-base \\\n"
            "      --tokenizer roberta-base --out adapted --lr 1e-4 --steps 2000\n"
            "  keyhole pretrain --corpus domain.txt --init adapted --tokenizer adapted \\\n"
            "      --rows tickets.json=data/tickets --out asked --lr 1e-4 --steps 500\n"
            "  keyhole fill-mask --model model 'The film was <mask>.'",
    .opts = pretrain_table,
    .opts_size = sizeof(pretrain_opts),
    .run = run_pretrain,
};
