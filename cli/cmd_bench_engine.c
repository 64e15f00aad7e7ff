/* cmd_bench_engine.c - keyhole bench engine: how fast the engine answers, per precision, on made-up sequences. */
#include "cli.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/rng.h"
#include "model/engine.h"
#include "model/random_model.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct bench_opts {
    const char *model, *arch, *precision;
    int rows, length, longest, slots, prompts, reps;
    int layers, hidden, heads, inner, vocab;
    bool separate, json;
} bench_opts;

static const kh_opt bench_table[] = {
    { "model", KH_OPT_TEXT, offsetof(bench_opts, model), .arg = "DIR", .help = "a model folder; instead of --arch" },
    { "arch", KH_OPT_TEXT, offsetof(bench_opts, arch), .arg = "NAME",
        .help = "a random model: roberta-large, roberta-base, bert-large, bert-base" },
    { "layers", KH_OPT_INT, offsetof(bench_opts, layers), "0", .max = 1024, .arg = "N", .help = "with --arch: other layers" },
    { "hidden", KH_OPT_INT, offsetof(bench_opts, hidden), "0", .max = 1 << 16, .arg = "N",
        .help = "with --arch: another hidden size" },
    { "heads", KH_OPT_INT, offsetof(bench_opts, heads), "0", .max = 1 << 12, .arg = "N", .help = "with --arch: other heads" },
    { "inner", KH_OPT_INT, offsetof(bench_opts, inner), "0", .max = 1 << 20, .arg = "N",
        .help = "with --arch: another feed-forward size" },
    { "vocab", KH_OPT_INT, offsetof(bench_opts, vocab), "0", .max = 1 << 24, .arg = "N",
        .help = "with --arch: another vocabulary" },
    { "precision", KH_OPT_TEXT, offsetof(bench_opts, precision), "f32,bf16,int8", .arg = "LIST",
        .help = "which, separated by commas" },
    { "rows", KH_OPT_INT, offsetof(bench_opts, rows), "32", .min = 1, .max = 100000, .arg = "N", .help = "sequences" },
    { "length", KH_OPT_INT, offsetof(bench_opts, length), "80", .min = 4, .max = 100000, .arg = "T",
        .help = "tokens of a sequence, slots included" },
    { "longest", KH_OPT_INT, offsetof(bench_opts, longest), "0", .max = 100000, .arg = "T",
        .help = "ragged: lengths from --length to this" },
    { "slots", KH_OPT_INT, offsetof(bench_opts, slots), "0", .max = 1000, .arg = "N", .help = "rows of a soft prompt" },
    { "prompts", KH_OPT_INT, offsetof(bench_opts, prompts), "1", .min = 1, .max = 10000, .arg = "N",
        .help = "prompts, each with every sequence (with --slots)" },
    { "separate", KH_OPT_FLAG, offsetof(bench_opts, separate), .help = "one call for each prompt instead of one for all" },
    { "reps", KH_OPT_INT, offsetof(bench_opts, reps), "3", .min = 1, .max = 1000, .arg = "N", .help = "calls; the best counts" },
    { "json", KH_OPT_FLAG, offsetof(bench_opts, json), .help = "print one JSON object for each precision" },
    { 0 },
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Resident memory now, in bytes; 0 where the system does not tell. */
static double resident(void) {
    FILE *f = fopen("/proc/self/statm", "r");
    long total = 0, pages = 0;
    if (f && fscanf(f, "%ld %ld", &total, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* ------------------------------------------------------------------------------------------- made-up input */

/* Sequences of random ids; the mask is the third from the end, as templates have it. */
typedef struct input {
    int32_t *id;
    size_t *start;
    int *mask, *slot, n_mask;
    float *prompt;
    kh_batch batch;
} input;

static void input_free(input *in) {
    kh_free(in->id);
    kh_free(in->start);
    kh_free(in->mask);
    kh_free(in->slot);
    kh_free(in->prompt);
}

static int input_make(input *in, const bench_opts *o, const kh_config *c, kh_err *err) {
    int longest = o->longest > o->length ? o->longest : o->length;
    size_t n = (size_t)o->rows, n_float = (size_t)o->prompts * (size_t)o->slots * (size_t)c->hidden;
    *in = (input){ .n_mask = 1,
        .id = kh_calloc(n * (size_t)longest, sizeof *in->id),
        .start = kh_calloc(n + 1, sizeof *in->start),
        .mask = kh_calloc(n, sizeof *in->mask),
        .slot = kh_calloc(n, sizeof *in->slot),
        .prompt = kh_calloc(n_float + 1, sizeof *in->prompt) };
    if (!in->id || !in->start || !in->mask || !in->slot || !in->prompt)
        return kh_fail_memory(err);
    if (o->length < o->slots + 4)
        return kh_fail(err, CLI_USAGE, "--length %d leaves no room for text behind --slots %d", o->length, o->slots);
    kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 0, 0);
    for (int s = 0; s < o->rows; s++) {
        int length = o->length + (int)kh_rng_below(&r, (uint32_t)(longest - o->length + 1));
        for (int t = 0; t < length; t++)
            in->id[in->start[s] + (size_t)t] =
                5 + (int32_t)(t <= o->slots ? t % (c->vocab - 5) : (int)kh_rng_below(&r, (uint32_t)(c->vocab - 5)));
        in->start[s + 1] = in->start[s] + (size_t)length;
        in->mask[s] = length - 3;
        in->slot[s] = o->slots > 0 ? 1 : -1;
    }
    for (size_t i = 0; i < n_float; i++)
        in->prompt[i] = 0.1f * (float)kh_rng_normal(&r);
    in->batch = (kh_batch){ .n_row = o->rows,
        .n_variant = 1,
        .n_seq = o->rows,
        .n_slot = o->slots,
        .max_len = longest,
        .id = in->id,
        .start = in->start,
        .n_mask = &in->n_mask,
        .mask = in->mask,
        .slot = in->slot };
    return 0;
}

/* ------------------------------------------------------------------------------------------------- timing */

static int ask_once(kh_engine *e, const bench_opts *o, const input *in, float *logits, kh_err *err) {
    static const int32_t WORD[] = { 6, 7 };
    static const kh_word WORDS[] = { { .label = 0, .id = WORD, .n_id = 1 }, { .label = 1, .id = WORD + 1, .n_id = 1 } };
    static const int ONE = 1;
    const kh_words words = { .word = WORDS, .n_word = 2, .n_label = 2, .n_mask = &ONE, .n_variant = 1 };
    size_t size = (size_t)o->slots * (size_t)kh_engine_model(e)->config.hidden;
    int calls = o->separate ? o->prompts : 1, rc = 0;
    for (int i = 0; rc == 0 && i < calls; i++) {
        kh_question q = { &in->batch, &words, KH_INJECT_POST_LN_ADD, in->prompt + (size_t)i * size, o->prompts / calls };
        rc = kh_engine_score(e, &q, logits, err);
    }
    return rc;
}

static void report(const bench_opts *o, const kh_engine *e, double load, double bytes, double best, double pairs) {
    const char *precision = kh_precision_name(kh_engine_precision(e)), *kernels = kh_engine_kernels(e)->name;
    const char *name = o->model ? o->model : o->arch;
    if (o->json)
        printf("{\"model\":\"%s\",\"precision\":\"%s\",\"kernels\":\"%s\",\"threads\":%d,\"rows\":%d,\"length\":%d,\"longest\":%d,"
               "\"prompts\":%d,"
               "\"separate\":%s,\"seconds\":%.4f,\"sequences_per_second\":%.3f,\"load_seconds\":%.2f,\"resident_gb\":%.3f}\n",
            name, precision, kernels, kh_threads(), o->rows, o->length, o->longest > o->length ? o->longest : o->length, o->prompts,
            o->separate ? "true" : "false", best, pairs / best, load, bytes / 1e9);
    else
        printf("%-6s %-8s %8.2f sequences/s   best call %8.3f s   loaded in %6.2f s   resident %6.3f GB\n", precision, kernels,
            pairs / best, best, load, bytes / 1e9);
    fflush(stdout);
}

static int bench_precision(const bench_opts *o, const char *dir, kh_precision precision, kh_err *err) {
    kh_model *model;
    kh_engine *e = NULL;
    input in = { 0 };
    double pairs = (double)o->rows * (o->slots > 0 ? o->prompts : 1), best = 1e30;
    double start = now(), before = resident();
    int rc = kh_model_open(&model, dir,
        &(kh_model_opts){ .store = precision == KH_F32 ? KH_DTYPE_ANY : KH_DTYPE_BF16, .need_head = "bench engine" }, err);
    if (rc == 0)
        rc = kh_engine_new(&e, model, precision, err);
    double load = now() - start, bytes = resident() - before;
    if (rc == 0)
        rc = input_make(&in, o, &kh_engine_model(e)->config, err);
    float *logits = rc == 0 ? kh_calloc((size_t)pairs * 2, sizeof *logits) : NULL;
    if (rc == 0 && !logits)
        rc = kh_fail_memory(err);
    for (int i = 0; rc == 0 && i < o->reps; i++) {
        start = now();
        rc = ask_once(e, o, &in, logits, err);
        best = now() - start < best ? now() - start : best;
    }
    if (rc == 0)
        report(o, e, load, bytes, best, pairs);
    kh_free(logits);
    input_free(&in);
    kh_engine_free(e);
    return rc;
}

static int bench_all(const bench_opts *o, const char *dir, kh_err *err) {
    int rc = 0;
    for (const char *at = o->precision; rc == 0 && *at; at += *at == ',') {
        size_t n = strcspn(at, ",");
        int p = KH_F32;
        while (p < KH_PRECISION_AUTO &&
            (strlen(kh_precision_name((kh_precision)p)) != n || memcmp(at, kh_precision_name((kh_precision)p), n) != 0))
            p++;
        if (p == KH_PRECISION_AUTO)
            return kh_fail(err, CLI_USAGE, "--precision takes f32, bf16 and int8, separated by commas; got \"%.*s\"", (int)n, at);
        rc = bench_precision(o, dir, (kh_precision)p, err);
        at += n;
    }
    return rc;
}

static void set(int *field, int value) {
    if (value > 0)
        *field = value;
}

/* A random model in a folder of its own under TMPDIR, removed afterwards. */
static int bench_random(const bench_opts *o, kh_err *err) {
    const kh_config *arch = kh_arch_find(o->arch);
    if (!arch)
        return kh_fail(err, CLI_USAGE, "--arch \"%s\" is not known", o->arch);
    kh_random_opts r = { .config = *arch, .dtype = KH_DTYPE_BF16, .std = 0.02, .hooks = NULL };
    set(&r.config.layers, o->layers);
    set(&r.config.hidden, o->hidden);
    set(&r.config.heads, o->heads);
    set(&r.config.inner, o->inner);
    set(&r.config.vocab, o->vocab);
    char *dir = kh_path_join(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", "keyhole-bench-XXXXXX");
    if (!dir)
        return kh_fail_memory(err);
    int rc = mkdtemp(dir) ? kh_random_model_write(dir, &r, err) : kh_fail_errno(err, dir, "cannot make the folder");
    if (rc == 0)
        rc = bench_all(o, dir, err);
    static const char *const FILES[] = { "config.json", "model.safetensors" };
    for (int i = 0; i < 2; i++) {
        char *file = kh_path_join(dir, FILES[i]);
        if (file)
            unlink(file);
        kh_free(file);
    }
    rmdir(dir);
    kh_free(dir);
    return rc;
}

static int run_bench(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args, (void)args;
    const bench_opts *o = opts;
    if (!o->model == !o->arch)
        return kh_fail(err, CLI_USAGE, "give either --model DIR or --arch NAME");
    return o->model ? bench_all(o, o->model, err) : bench_random(o, err);
}

const cli_command cmd_bench_engine = {
    .name = "bench engine",
    .args = "",
    .summary = "Time the engine on sequences of random tokens",
    .text = "Loads a model (or makes a random one) in each precision and prints how many\n"
            "sequences it answers in a second, how long loading took and what it occupies.\n"
            "Numbers mean something only beside others from the same machine and hour:\n"
            "\"make bench-peers\" runs PyTorch and ONNX Runtime next to this.\n"
            "\n"
            "  keyhole bench engine --arch roberta-large\n"
            "  keyhole bench engine --arch roberta-large --precision int8 --length 80 --longest 110\n"
            "  keyhole bench engine --arch roberta-base --slots 50 --prompts 20\n"
            "  keyhole bench engine --arch bert-base --layers 6 --hidden 256 --heads 4 --inner 1024",
    .opts = bench_table,
    .opts_size = sizeof(bench_opts),
    .run = run_bench,
};
