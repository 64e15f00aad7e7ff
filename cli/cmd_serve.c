/* cmd_serve.c - keyhole serve: a model as a black box behind HTTP, or a tuned classifier. */
#include "launcher.h"
#include "open_run.h"

#include "base/alloc.h"
#include "base/err.h"
#include "plm/http.h"
#include "server/server.h"

#include <signal.h>
#include <string.h>

enum { SERVE_LABELS, SERVE_LOGPROBS, SERVE_EMBEDDINGS };

typedef struct serve_opts {
    const char *model, *name, *task;
    kh_strings run;
    int access, precision, words;
    kh_http_opts http;
    kh_server_opts server;
} serve_opts;

static const kh_opt serve_table[] = {
    { "model", KH_OPT_TEXT, offsetof(serve_opts, model), .arg = "DIR|builtin",
        .help = "a model folder with its tokenizer; with --run: where its model is now" },
    { "run", KH_OPT_LIST, offsetof(serve_opts, run), .arg = "[NAME=]RUN",
        .help = "serve the classifier that \"keyhole tune\" made there, with a page at /; several "
                "are chosen by NAME" },
    { "access", KH_OPT_CHOICE, offsetof(serve_opts, access), "labels",
        .arg = "labels|logprobs|embeddings",
        .help = "what a model lets out: labels; their log-probabilities; the vocabulary's and "
                "hidden states, too" },
    { "task", KH_OPT_TEXT, offsetof(serve_opts, task), .arg = "NAME|FILE",
        .help =
            "at --access labels: the task whose words may be asked about; default: those of the "
            "first question" },
    { "words", KH_OPT_CHOICE, offsetof(serve_opts, words), "fixed", .arg = "fixed|any",
        .help = "at --access labels: any lets clients choose them, and so measure probabilities" },
    { "name", KH_OPT_TEXT, offsetof(serve_opts, name), .arg = "NAME",
        .help = "of the model on the wire; default: what --model says" },
    { "precision", KH_OPT_CHOICE, offsetof(serve_opts, precision), "as-tuned",
        .arg = CLI_RUN_PRECISIONS, .help = "of the model; as-tuned is f32 without --run" },
    KH_HTTP_ROWS(serve_opts, http),
    KH_SERVER_ROWS(serve_opts, server),
    { 0 },
};

/* Until somebody ends it: SIGINT and SIGTERM are taken here and by no other thread. */
static int serve(const kh_served *what, const serve_opts *o, kh_err *err) {
    sigset_t ends, before;
    kh_server *s;
    int signal;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, &before);
    int rc = kh_server_start(&s, what, &o->server, err);
    if (rc == 0) {
        bool six = strchr(o->server.host, ':') != NULL;
        printf("serving %s at http%s://%s%s%s:%d\n", what->name, o->server.tls_cert ? "s" : "",
            six ? "[" : "", o->server.host, six ? "]" : "", kh_server_port(s));
        fflush(stdout);
        sigwait(&ends, &signal);
        fprintf(stderr, "keyhole: answering what is waiting, then stopping\n");
        kh_server_stop(s);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static int serve_model(const serve_opts *o, kh_err *err) {
    kh_plm *plm = NULL;
    const kh_task *task = NULL;
    kh_plm_opts box = { .access = o->access == SERVE_LABELS ? KH_ACCESS_LABELS : KH_ACCESS_LOGPROBS,
        .precision = o->precision > 0 ? (kh_precision)(o->precision - 1) : KH_F32,
        .hooks = &cli_hooks,
        .ranks = cli_ranks };
    int rc = o->task ? kh_task_open(&task, o->task, err) : 0;
    if (rc == 0)
        rc = kh_plm_open(&plm, o->model, &box, err);
    if (rc == 0)
        rc = serve(&(kh_served){ .plm = plm,
                       .task = task,
                       .any_words = o->words == 1,
                       .name = o->name ? o->name : o->model,
                       .dir = o->model,
                       .embeddings = o->access == SERVE_EMBEDDINGS },
            o, err);
    kh_plm_close(plm);
    kh_task_close(task);
    return rc;
}

/* NAME=RUN, or RUN, whose name is then --name or itself. */
static const char *split_run(const serve_opts *o, const char *item, char **name, kh_err *err) {
    const char *equals = strchr(item, '='), *dir = item;
    if (equals && equals > item && !memchr(item, '/', (size_t)(equals - item)))
        dir = equals + 1;
    *name = dir != item ? kh_strndup(item, (size_t)(equals - item))
                        : kh_strdup(o->name ? o->name : item);
    if (!*name)
        kh_fail_memory(err);
    return dir;
}

/* Runs of one model, asked in one way, share the box. */
static kh_plm *shared_box(const cli_run *runs, int n, const cli_run *r) {
    for (int i = 0; i < n; i++)
        if (runs[i].info.fingerprint == r->info.fingerprint &&
            runs[i].info.access == r->info.access && runs[i].info.model && r->info.model &&
            strcmp(runs[i].info.model, r->info.model) == 0 &&
            strcmp(runs[i].info.precision, r->info.precision) == 0)
            return runs[i].plm;
    return NULL;
}

static int serve_runs(const serve_opts *o, kh_err *err) {
    size_t n = (size_t)o->run.n;
    cli_run *runs = kh_calloc(n, sizeof *runs);
    kh_served *what = kh_calloc(n, sizeof *what);
    char **name = kh_calloc(n, sizeof *name);
    int rc = runs && what && name ? 0 : kh_fail_memory(err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        runs[i].http = &o->http;
        const char *dir = split_run(o, o->run.item[i], &name[i], err);
        rc = name[i] ? cli_run_read(&runs[i], dir, err) : KH_ENOMEM;
        if (rc == 0)
            runs[i].shared = shared_box(runs, (int)i, &runs[i]);
        if (rc == 0)
            rc = cli_run_box(&runs[i], o->model, o->precision, err);
        what[i] = (kh_served){
            .plm = runs[i].plm, .name = name[i], .posterior = runs[i].posterior, .run = dir
        };
    }
    if (rc == 0) {
        what[0].others = what + 1;
        what[0].n_other = (int)n - 1;
        rc = serve(&what[0], o, err);
    }
    for (size_t i = 0; runs && i < n; i++)
        cli_run_free(&runs[i]);
    for (size_t i = 0; name && i < n; i++)
        kh_free(name[i]);
    kh_free(runs);
    kh_free(what);
    kh_free(name);
    return rc;
}

static int run_serve(void *opts, int n_args, char **args, kh_err *err) {
    const serve_opts *o = opts;
    (void)n_args, (void)args;
    if (!o->model && o->run.n == 0)
        return kh_fail(err, CLI_USAGE, "--model DIR or --run RUN is needed");
    return o->run.n > 0 ? serve_runs(o, err) : serve_model(o, err);
}

const cli_command cmd_serve = {
    .name = "serve",
    .args = "",
    .summary = "A model as a black box behind HTTP, or a tuned classifier",
    .text = "Stands a model up as the kind of service that keyhole tunes through: soft prompts\n"
            "and texts in, and out no more than --access says. With --run it serves a tuned\n"
            "classifier: label, distribution, whether it would abstain. Both answer closed\n"
            "questions as the APIs /v1/decisions and /v1/systemone do. It listens on this machine "
            "alone\n"
            "unless --host says otherwise. Requests that wait are answered together; when too\n"
            "many do, they get 429 with Retry-After. SIGTERM ends it after it has answered what\n"
            "is waiting. doc/serving.md describes the API; /metrics speaks to Prometheus.\n\n"
            "  keyhole serve --model DIR --access labels --port 8080 &\n"
            "  keyhole tune --model http://127.0.0.1:8080 --method manual --task sst2 ...\n"
            "  curl http://127.0.0.1:8080/v1/model\n"
            "  keyhole serve --run RUN                    then look at http://127.0.0.1:8080/\n"
            "  curl --json '{\"text\":\"a gorgeous film\"}' http://127.0.0.1:8080/v1/classify\n"
            "  keyhole serve --run mood=RUN1 --run topic=RUN2     chosen by \"model\"\n"
            "  KEYHOLE_SERVE_TOKEN=secret keyhole serve --model DIR --host 0.0.0.0 \\\n"
            "      --tls-cert cert.pem --tls-key key.pem",
    .opts = serve_table,
    .opts_size = sizeof(serve_opts),
    .run = run_serve,
};
