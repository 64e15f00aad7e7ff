/* cmd_task.c - keyhole task list, show, check: templates and label words, and what a tokenizer
 * makes of them. */
#include "cli.h"

#include "base/err.h"
#include "base/json.h"
#include "base/alloc.h"
#include "base/file.h"
#include "data/task.h"
#include "model/config.h"

#include <string.h>

static int print_buf(kh_buf *b, kh_err *err) {
    int rc = kh_buf_failed(b) ? kh_fail_memory(err) : 0;
    if (rc == 0)
        fwrite(b->data, 1, b->len, stdout);
    kh_buf_free(b);
    return rc;
}

/* ---------------------------------------------------------------------------------------- list */

typedef struct list_opts {
    bool json;
} list_opts;

static const kh_opt list_table[] = {
    CLI_JSON_OPTION(list_opts),
    { 0 },
};

static int list_json(kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_buf_text(&b, "[\n");
    for (int i = 0; kh_task_builtin(i); i++) {
        kh_buf_text(&b, i ? ",\n" : "");
        kh_task_json(kh_task_builtin(i), &b);
    }
    kh_buf_text(&b, "]\n");
    return print_buf(&b, err);
}

static int run_list(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args;
    (void)args;
    if (((const list_opts *)opts)->json)
        return list_json(err);
    printf("%-8s  %-5s  %-6s  %-8s  %s\n", "task", "texts", "labels", "metric", "template");
    for (int i = 0; kh_task_builtin(i); i++) {
        const kh_task *t = kh_task_builtin(i);
        printf("%-8s  %-5s  %-6d  %-8s  %s\n", t->name, t->pair ? "two" : "one", t->n_label,
            kh_metric_name(t->metric), t->plain);
    }
    return 0;
}

const cli_command cmd_task_list = {
    .name = "task list",
    .args = "",
    .summary = "List the built-in tasks",
    .text = "A task is a template with a mask, and words that stand for the classes. These are "
            "built in;\n"
            "\"keyhole task show NAME --json > my.json\" makes a file of one to start your own "
            "from.\n\n"
            "  keyhole task list\n  keyhole task list --json | jq '.[].name'",
    .opts = list_table,
    .opts_size = sizeof(list_opts),
    .run = run_list,
};

/* ----------------------------------------------------------------------------- words as tokens */

typedef struct show_opts {
    const char *model;
    bool exact, json;
} show_opts;

#define OPT_EXACT \
    { \
        "paper-exact", KH_OPT_FLAG, offsetof(show_opts, exact), \
            .help = "label words as the published code takes them: first token, no space" \
    }

static const kh_opt show_table[] = {
    CLI_TOKENIZER_OPTION(show_opts, "show what this model's tokenizer makes of the label words"),
    OPT_EXACT,
    { "json", KH_OPT_FLAG, offsetof(show_opts, json),
        .help = "print the task as a task file that can be edited" },
    { 0 },
};

/* The task's words as one tokenizer sees them. */
typedef struct view {
    const kh_task *task;
    kh_tokenizer *tok;
    kh_words *words;
    bool next; /* the model continues texts */
} view;

static void close_view(view *v) {
    kh_words_free(v->words);
    kh_tokenizer_close(v->tok);
    kh_task_close(v->task);
}

/* Whether a model folder, or file, is that of a decoder; a tokenizer alone is none. */
static bool is_decoder(const char *model) {
    kh_config c;
    size_t n = strlen(model);
    if (n > 5 && strcmp(model + n - 5, ".gguf") == 0)
        return true;
    char *path = kh_path_join(model, "config.json");
    bool causal = path && kh_config_read(&c, path, NULL) == 0 && c.arch->causal;
    kh_free(path);
    return causal;
}

static int open_view(view *v, const char *task, const show_opts *o, kh_err *err) {
    *v = (view){ 0 };
    int rc = kh_task_open(&v->task, task, err);
    if (rc == 0 && o->model)
        rc = kh_tokenizer_open(&v->tok, o->model, err);
    if (rc == 0 && o->model)
        rc = kh_words_new(&v->words, v->task, v->tok, o->exact, err);
    v->next = rc == 0 && o->model && is_decoder(o->model);
    if (v->next)
        kh_words_continue(v->words);
    return rc;
}

/* Complaints that make the task unusable with this tokenizer, one a line; returns how many. */
static int problems(const view *v, kh_buf *out) {
    int n = 0;
    const kh_words *w = v->words;
    if (!v->next && kh_tokenizer_special(v->tok, KH_TOKEN_MASK) < 0) {
        kh_buf_text(out,
            "the tokenizer has no mask token; a masked language model, such as BERT or RoBERTa, is "
            "needed\n");
        n++;
    }
    for (int i = 0; i < w->n_word; i++) {
        const kh_word *word = &w->word[i];
        const char *label = v->task->label[word->label].name;
        if (word->unknown) {
            kh_buf_printf(out, "\"%s\" (%s) is unknown to the tokenizer\n", word->text, label);
            n++;
        } else if (word->same >= 0 &&
            (word->same > i || w->word[word->same].same != i)) { /* each two once */
            const kh_word *other = &w->word[word->same];
            kh_buf_printf(out,
                "\"%s\" (%s) and \"%s\" (%s) become the same tokens and cannot be told apart\n",
                word->text, label, other->text, v->task->label[other->label].name);
            n++;
        }
    }
    return n;
}

static void put_tokens(const view *v, const kh_word *word, kh_buf *out) {
    for (int t = 0; t < word->n_token; t++) {
        const char *token = kh_tokenizer_token(v->tok, word->id[t]);
        kh_buf_printf(out, "%s%s", t ? " " : "", token ? token : "?");
    }
}

/* What is worth knowing but works. */
static void notes(const view *v, kh_buf *out) {
    const kh_words *w = v->words;
    for (int i = 0; i < w->n_word; i++) {
        const kh_word *word = &w->word[i],
                      *other = word->first_same >= 0 ? &w->word[word->first_same] : NULL;
        const char *label = v->task->label[word->label].name;
        if (word->n_token > 1) {
            kh_buf_printf(out, "\"%s\" (%s) is %d tokens, ", word->text, label, word->n_token);
            put_tokens(v, word, out);
            if (w->paper_exact)
                kh_buf_text(out, "; the first counts\n");
            else
                kh_buf_printf(out, "; all words are then scored by their %slog-probability\n",
                    w->next && !w->mean ? "whole " : "mean ");
        }
        if (other && word->same < 0 && (word->first_same > i || other->first_same != i))
            kh_buf_printf(out, "\"%s\" (%s) and \"%s\" (%s) start with the same token\n",
                word->text, label, other->text, v->task->label[other->label].name);
    }
}

static void print_lines(const char *mark, const kh_buf *lines) {
    for (const char *at = lines->len ? lines->data : ""; *at;) {
        size_t n = strcspn(at, "\n");
        printf("%s: %.*s\n", mark, (int)n, at);
        at += n + (at[n] == '\n');
    }
}

static void print_words(const view *v) {
    for (int k = 0; k < v->task->n_label; k++) {
        const kh_label *label = &v->task->label[k];
        printf("  %2d  %-24s", k, label->name);
        for (int i = 0; i < label->n_word; i++)
            printf("%s%s", i ? ", " : "", label->word[i]);
        putchar('\n');
    }
    if (!v->words)
        return;
    printf("\n%-20s  %-20s  tokens (ids)\n", "word", "label");
    for (int i = 0; i < v->words->n_word; i++) {
        const kh_word *word = &v->words->word[i];
        printf("%-20s  %-20s ", word->text, v->task->label[word->label].name);
        for (int t = 0; t < word->n_id; t++) {
            const char *token = kh_tokenizer_token(v->tok, word->id[t]);
            printf(" %s (%d)", token ? token : "?", word->id[t]);
        }
        putchar('\n');
    }
}

static int run_show(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args;
    const show_opts *o = opts;
    view v;
    kh_buf bad = kh_buf_init(KH_BUF_MAX), good = kh_buf_init(KH_BUF_MAX);
    if (o->json && o->model)
        return kh_fail(err, CLI_USAGE,
            "--json prints a task file, which holds no tokens; use \"task check --json --model\" "
            "for those");
    int rc = open_view(&v, args[0], o, err);
    if (rc != 0)
        goto done;
    if (o->json) {
        kh_buf b = kh_buf_init(KH_BUF_MAX);
        kh_task_json(v.task, &b);
        rc = print_buf(&b, err);
        goto done;
    }
    printf("task           %s\ntemplate       %s\nsoft template  %s\n%smetric         %s\nlabels\n",
        v.task->name, kh_task_template(v.task, false, v.next),
        kh_task_template(v.task, true, v.next),
        v.next ? "asked by       a continuation: the label word follows the template\n" : "",
        kh_metric_name(v.task->metric));
    print_words(&v);
    if (v.words) {
        problems(&v, &bad);
        notes(&v, &good);
        rc = kh_buf_failed(&bad) || kh_buf_failed(&good) ? kh_fail_memory(err) : 0;
        print_lines("problem", &bad);
        print_lines("note", &good);
    }
done:
    close_view(&v);
    kh_buf_free(&bad);
    kh_buf_free(&good);
    return rc;
}

const cli_command cmd_task_show = {
    .name = "task show",
    .args = "NAME|FILE",
    .min_args = 1,
    .max_args = 1,
    .summary = "Show a task: template, metric, label words and the tokens they become",
    .text =
        "With --model each label word is shown as the tokenizer of that model sees it. A word is\n"
        "taken as it stands inside a sentence, with a space before it. A word of several tokens\n"
        "works, but costs a mask for each of them; single tokens are better where there are "
        "any.\n\n"
        "  keyhole task show agnews --model DIR\n"
        "  keyhole task show sst2 --json > mine.json && $EDITOR mine.json && keyhole task check "
        "mine.json",
    .opts = show_table,
    .opts_size = sizeof(show_opts),
    .run = run_show,
};

/* --------------------------------------------------------------------------------------- check */

static const kh_opt check_table[] = {
    CLI_TOKENIZER_OPTION(show_opts, "check the label words with this model's tokenizer too"),
    OPT_EXACT,
    CLI_JSON_OPTION(show_opts),
    { 0 },
};

static void put_lines(kh_json_out *j, const char *key, const kh_buf *lines) {
    kh_json_open_array(j, key);
    for (const char *at = lines->len ? lines->data : ""; *at;) {
        size_t n = strcspn(at, "\n");
        kh_json_put_text(j, NULL, at, n);
        at += n + (at[n] == '\n');
    }
    kh_json_close(j);
}

static void put_words(kh_json_out *j, const view *v) {
    kh_json_open_array(j, "words");
    for (int i = 0; i < v->words->n_word; i++) {
        const kh_word *word = &v->words->word[i];
        kh_json_open_object(j, NULL);
        kh_json_put_string(j, "word", word->text);
        kh_json_put_string(j, "label", v->task->label[word->label].name);
        kh_json_open_array(j, "ids");
        for (int t = 0; t < word->n_id; t++)
            kh_json_put_int(j, NULL, word->id[t]);
        kh_json_close(j);
        kh_json_open_array(j, "tokens");
        for (int t = 0; t < word->n_id; t++) {
            const char *token = kh_tokenizer_token(v->tok, word->id[t]);
            kh_json_put_string(j, NULL, token ? token : "?");
        }
        kh_json_close(j);
        kh_json_close(j);
    }
    kh_json_close(j);
}

static int check_json(const view *v, int n, const kh_buf *bad, const kh_buf *good, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "task", v->task->name);
    kh_json_put_bool(&j, "usable", n == 0);
    put_lines(&j, "problems", bad);
    put_lines(&j, "notes", good);
    if (v->words)
        put_words(&j, v);
    kh_json_close(&j);
    return cli_print_json(&j, stdout, err);
}

static int run_check(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args;
    const show_opts *o = opts;
    view v;
    kh_buf bad = kh_buf_init(KH_BUF_MAX), good = kh_buf_init(KH_BUF_MAX);
    int n = 0, rc = open_view(&v, args[0], o, err);
    if (rc != 0)
        goto done;
    if (v.words) {
        n = problems(&v, &bad);
        notes(&v, &good);
        rc = kh_buf_failed(&bad) || kh_buf_failed(&good) ? kh_fail_memory(err) : 0;
    }
    if (rc == 0 && o->json)
        rc = check_json(&v, n, &bad, &good, err);
    else if (rc == 0) {
        print_lines("problem", &bad);
        print_lines("note", &good);
        if (n == 0)
            printf("%s: task \"%s\" is usable: %s, %d labels, metric %s\n", args[0], v.task->name,
                v.task->pair ? "two texts" : "one text", v.task->n_label,
                kh_metric_name(v.task->metric));
    }
    if (rc == 0 && n > 0)
        rc = kh_fail(err, KH_EMISMATCH, "%s: task \"%s\" cannot be used with %s", args[0],
            v.task->name, o->model);
done:
    close_view(&v);
    kh_buf_free(&bad);
    kh_buf_free(&good);
    return rc;
}

const cli_command cmd_task_check = {
    .name = "task check",
    .args = "NAME|FILE",
    .min_args = 1,
    .max_args = 1,
    .summary = "Check a task file, and with --model its label words",
    .text =
        "Reads the file strictly: an unknown key, a misspelt placeholder or a word that stands "
        "for\n"
        "two labels is named. With --model, words that the tokenizer does not know or cannot tell\n"
        "apart are problems (exit 1); words of several tokens are notes.\n\n"
        "  keyhole task check mine.json\n"
        "  keyhole task check mine.json --model DIR --json",
    .opts = check_table,
    .opts_size = sizeof(show_opts),
    .run = run_check,
};
