/* cmd_serve.c - keyhole serve: a model as a black box behind HTTP, or a tuned classifier. */
#include "cli.h"

#include "base/alloc.h"
#include "base/err.h"
#include "server/server.h"

#include <signal.h>
#include <string.h>

enum { SERVE_LABELS, SERVE_LOGPROBS, SERVE_EMBEDDINGS };

typedef struct serve_opts {
    const char *model, *name;
    int access, precision;
    kh_server_opts server;
} serve_opts;

static const kh_opt serve_table[] = {
    { "model", KH_OPT_TEXT, offsetof(serve_opts, model), .arg = "DIR", .help = "a model folder with its tokenizer" },
    { "access", KH_OPT_CHOICE, offsetof(serve_opts, access), "labels", .arg = "labels|logprobs|embeddings",
        .help = "what is let out: labels; their log-probabilities; the vocabulary's and hidden states, too" },
    { "name", KH_OPT_TEXT, offsetof(serve_opts, name), .arg = "NAME", .help = "of the model on the wire; default: what --model says" },
    { "precision", KH_OPT_CHOICE, offsetof(serve_opts, precision), "f32", .arg = "f32|bf16|int8|auto",
        .help = "of the model; bf16 is faster where the CPU has it" },
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
        printf("serving %s at http%s://%s%s%s:%d\n", what->name, o->server.tls_cert ? "s" : "", six ? "[" : "", o->server.host, six ? "]" : "",
            kh_server_port(s));
        fflush(stdout);
        sigwait(&ends, &signal);
        fprintf(stderr, "keyhole: answering what is waiting, then stopping\n");
        kh_server_stop(s);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static int run_serve(void *opts, int n_args, char **args, kh_err *err) {
    const serve_opts *o = opts;
    kh_plm *plm = NULL;
    (void)n_args, (void)args;
    if (!o->model)
        return kh_fail(err, CLI_USAGE, "--model DIR is needed");
    kh_served what = { .name = o->name ? o->name : o->model, .dir = o->model, .embeddings = o->access == SERVE_EMBEDDINGS };
    int rc = kh_plm_open(&plm, o->model,
        &(kh_plm_opts){ .access = o->access == SERVE_LABELS ? KH_ACCESS_LABELS : KH_ACCESS_LOGPROBS,
            .precision = (kh_precision)o->precision,
            .hooks = &cli_hooks },
        err);
    what.plm = plm;
    if (rc == 0)
        rc = serve(&what, o, err);
    kh_plm_close(plm);
    return rc;
}

const cli_command cmd_serve = {
    .name = "serve",
    .args = "",
    .summary = "A model as a black box behind HTTP",
    .text = "Stands a model up as the kind of service that keyhole tunes through: soft prompts\n"
            "and texts in, and out no more than --access says. It listens on this machine alone\n"
            "unless --host says otherwise. Requests that wait are answered together; when too\n"
            "many do, they get 429 with Retry-After. SIGTERM ends it after it has answered what\n"
            "is waiting. doc/serving.md describes the API; /metrics speaks to Prometheus.\n\n"
            "  keyhole serve --model DIR --access labels --port 8080 &\n"
            "  keyhole tune --model http://127.0.0.1:8080 --method manual --task sst2 ...\n"
            "  curl http://127.0.0.1:8080/v1/model\n"
            "  KEYHOLE_SERVE_TOKEN=secret keyhole serve --model DIR --host 0.0.0.0 \\\n"
            "      --tls-cert cert.pem --tls-key key.pem",
    .opts = serve_table,
    .opts_size = sizeof(serve_opts),
    .run = run_serve,
};
