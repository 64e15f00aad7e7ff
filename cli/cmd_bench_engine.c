/* cmd_bench_engine.c - keyhole bench engine: how fast the engine answers, per precision, on made-up
 * sequences. */
#include "cli.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hooks.h"
#include "base/json_out.h"
#include "base/rng.h"
#include "model/engine.h"
#include "model/random_model.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct bench_opts {
    const char *model, *arch, *precision;
    int rows, length, longest, slots, prompts, reps;
    int layers, hidden, heads, inner, vocab;
    bool separate, after, json;
} bench_opts;

static const kh_opt bench_table[] = {
    { "model", KH_OPT_TEXT, offsetof(bench_opts, model), .arg = "DIR|builtin",
        .help = "a model folder; instead of --arch" },
    { "arch", KH_OPT_TEXT, offsetof(bench_opts, arch), .arg = "NAME",
        .help = "a random model: roberta-large, roberta-base, bert-large, bert-base" },
    { "layers", KH_OPT_INT, offsetof(bench_opts, layers), "0", .max = 1024, .arg = "N",
        .help = "with --arch: other layers" },
    { "hidden", KH_OPT_INT, offsetof(bench_opts, hidden), "0", .max = 1 << 16, .arg = "N",
        .help = "with --arch: another hidden size" },
    { "heads", KH_OPT_INT, offsetof(bench_opts, heads), "0", .max = 1 << 12, .arg = "N",
        .help = "with --arch: other heads" },
    { "inner", KH_OPT_INT, offsetof(bench_opts, inner), "0", .max = 1 << 20, .arg = "N",
        .help = "with --arch: another feed-forward size" },
    { "vocab", KH_OPT_INT, offsetof(bench_opts, vocab), "0", .max = 1 << 24, .arg = "N",
        .help = "with --arch: another vocabulary" },
    { "precision", KH_OPT_TEXT, offsetof(bench_opts, precision), "f32,bf16,int8", .arg = "LIST",
        .help = "which, separated by commas" },
    { "rows", KH_OPT_INT, offsetof(bench_opts, rows), "32", .min = 1, .max = 100000, .arg = "N",
        .help = "sequences" },
    { "length", KH_OPT_INT, offsetof(bench_opts, length), "0", .max = 100000, .arg = "T",
        .help = "tokens of a sequence, slots included; 80 if another case is described" },
    { "longest", KH_OPT_INT, offsetof(bench_opts, longest), "0", .max = 100000, .arg = "T",
        .help = "ragged: lengths from --length to this" },
    { "slots", KH_OPT_INT, offsetof(bench_opts, slots), "0", .max = 1000, .arg = "N",
        .help = "rows of a soft prompt" },
    { "after-text", KH_OPT_FLAG, offsetof(bench_opts, after),
        .help =
            "decoders: the soft prompt stands behind the text, and texts are kept between calls" },
    { "prompts", KH_OPT_INT, offsetof(bench_opts, prompts), "1", .min = 1, .max = 10000, .arg = "N",
        .help = "prompts, each with every sequence (with --slots)" },
    { "separate", KH_OPT_FLAG, offsetof(bench_opts, separate),
        .help = "one call for each prompt instead of one for all" },
    { "reps", KH_OPT_INT, offsetof(bench_opts, reps), "3", .min = 1, .max = 1000, .arg = "N",
        .help = "calls; the best counts" },
    { "json", KH_OPT_FLAG, offsetof(bench_opts, json),
        .help = "print one JSON object for each precision" },
    { 0 },
};

/* Resident memory now, in bytes, without what was freed; 0 where the system does not tell. */
static double resident(void) {
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
    FILE *f = fopen("/proc/self/statm", "r");
    long total = 0, pages = 0;
    if (f && fscanf(f, "%ld %ld", &total, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* ------------------------------------------------------------------------------- made-up input */

enum { TAIL = 5 }; /* tokens of a template behind a prompt that stands after the text */

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
    if (o->length < 4 || o->length < o->slots + TAIL + 1)
        return kh_fail(err, CLI_USAGE, "--length %d leaves no room for text behind --slots %d",
            o->length, o->slots);
    kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 0, 0);
    for (int s = 0; s < o->rows; s++) {
        int length = o->length + (int)kh_rng_below(&r, (uint32_t)(longest - o->length + 1));
        int slot = o->after ? length - o->slots - TAIL : 1;
        for (int t = 0; t < length; t++) { /* the same in all: the start, slots, a template's end */
            bool same = t == 0 || (t >= slot && t < slot + o->slots) || (o->after && t > slot);
            in->id[in->start[s] + (size_t)t] = 5 +
                (int32_t)(same ? t % (c->vocab - 5)
                               : (int)kh_rng_below(&r, (uint32_t)(c->vocab - 5)));
        }
        in->start[s + 1] = in->start[s] + (size_t)length;
        in->mask[s] = length - 3;
        in->slot[s] = o->slots > 0 ? slot : -1;
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

/* -------------------------------------------------------------------------------------- timing */

static int ask_once(
    kh_engine *e, const bench_opts *o, const input *in, float *logits, kh_err *err) {
    static const int32_t WORD[] = { 6, 7 };
    static const kh_word WORDS[] = { { .label = 0, .id = WORD, .n_id = 1 },
        { .label = 1, .id = WORD + 1, .n_id = 1 } };
    static const int ONE = 1;
    const kh_words words = {
        .word = WORDS, .n_word = 2, .n_label = 2, .n_mask = &ONE, .n_variant = 1
    };
    const kh_config *c = &kh_engine_model(e)->config;
    kh_inject inject = c->arch->embed_norm ? KH_INJECT_POST_LN_ADD : KH_INJECT_EMBED_INPLACE;
    size_t size = (size_t)o->slots * (size_t)c->hidden;
    int calls = o->separate ? o->prompts : 1, rc = 0;
    for (int i = 0; rc == 0 && i < calls; i++) {
        kh_question q = { &in->batch, &words, inject, in->prompt + (size_t)i * size,
            o->prompts / calls };
        rc = kh_engine_score(e, &q, logits, err);
    }
    return rc;
}

/* A case, measured: the best of the calls. */
typedef struct timing {
    double seconds, cpu; /* cpu: of all threads */
    double pairs;        /* prompts x sequences */
    double operations;   /* of the products and attention that were needed; 0 with slots, where some
                            are shared */
} timing;

/* Multiplications and additions of one sequence of T tokens: the last layer has keys and values for
 * all and the rest for one. */
static double operations_of(const kh_config *c, double T) {
    double H = c->hidden, dense = 2 * H * H + 2 * H * c->inner, pairs = 2 * T * H;
    return 2 * ((c->layers - 1) * T * (2 * H * H + dense + pairs) + T * 2 * H * H + dense + pairs);
}

static int time_case(kh_engine *e, const bench_opts *o, timing *t, kh_err *err) {
    const kh_config *config = &kh_engine_model(e)->config;
    input in = { 0 };
    *t = (timing){
        .seconds = 1e30, .cpu = 1e30, .pairs = (double)o->rows * (o->slots > 0 ? o->prompts : 1)
    };
    int rc = input_make(&in, o, config, err);
    for (int s = 0; rc == 0 && s < o->rows && o->slots == 0; s++)
        t->operations += operations_of(config, (double)(in.start[s + 1] - in.start[s]));
    float *logits = rc == 0 ? kh_calloc((size_t)t->pairs * 2, sizeof *logits) : NULL;
    if (rc == 0 && !logits)
        rc = kh_fail_memory(err);
    for (int i = 0; rc == 0 && i < o->reps; i++) {
        double start = kh_clock(), cpu = kh_clock_process();
        rc = ask_once(e, o, &in, logits, err);
        double seconds = kh_clock() - start;
        cpu = kh_clock_process() - cpu;
        t->seconds = seconds < t->seconds ? seconds : t->seconds;
        t->cpu = cpu < t->cpu ? cpu : t->cpu;
    }
    kh_free(logits);
    input_free(&in);
    return rc;
}

/* Operations a second that one core can do at most, in f32. */
static double peak_of(const kh_kernels *k) {
    double best = 0;
    for (int i = 0; i < 20; i++) {
        float result;
        double start = kh_clock_thread(), n = k->spin(200000, &result);
        double rate = n / (kh_clock_thread() - start);
        best = rate > best ? rate : best;
    }
    return best;
}

/* An engine and what opening it took. */
typedef struct opened {
    kh_engine *e;
    double seconds, bytes;
} opened;

static int open_engine(opened *x, const char *dir, kh_precision precision, kh_err *err) {
    kh_model *model;
    double start = kh_clock(), before = resident();
    *x = (opened){ 0 };
    int rc = kh_model_open(&model, dir,
        &(kh_model_opts){ .store = precision == KH_F32 ? KH_DTYPE_ANY : KH_DTYPE_BF16,
            .need_head = "bench engine" },
        err);
    if (rc == 0)
        rc = kh_engine_new(&x->e, model, precision, err);
    x->seconds = kh_clock() - start;
    x->bytes = resident() - before;
    return rc;
}

/* ------------------------------------------------------------------------------------- reports */

static void put_case(const bench_opts *o, const opened *x, const timing *t) {
    const char *precision = kh_precision_name(kh_engine_precision(x->e)),
               *kernels = kh_engine_kernels(x->e)->name;
    const char *name = o->model ? o->model : o->arch;
    if (o->json) {
        kh_buf b = kh_buf_init(KH_BUF_MAX);
        kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
        kh_json_open_object(&j, NULL);
        kh_json_put_string(&j, "model", name);
        kh_json_put_string(&j, "precision", precision);
        kh_json_put_string(&j, "kernels", kernels);
        kh_json_put_int(&j, "threads", kh_threads());
        kh_json_put_int(&j, "rows", o->rows);
        kh_json_put_int(&j, "length", o->length);
        kh_json_put_int(&j, "longest", o->longest > o->length ? o->longest : o->length);
        kh_json_put_int(&j, "prompts", o->prompts);
        kh_json_put_bool(&j, "separate", o->separate);
        kh_json_put_fixed(&j, "seconds", t->seconds, 4);
        kh_json_put_fixed(&j, "sequences_per_second", t->pairs / t->seconds, 3);
        kh_json_put_fixed(&j, "load_seconds", x->seconds, 2);
        kh_json_put_fixed(&j, "resident_gb", x->bytes / 1e9, 3);
        kh_json_close(&j);
        cli_print_json(&j, stdout, NULL);
    } else
        printf("%-6s %-8s %8.2f sequences/s   best call %8.3f s   loaded in %6.2f s   resident "
               "%6.3f GB\n",
            precision, kernels, t->pairs / t->seconds, t->seconds, x->seconds, x->bytes / 1e9);
}

/* The case that the options describe. */
static int bench_case(const bench_opts *o, const opened *x, kh_err *err) {
    timing t;
    int rc = time_case(x->e, o, &t, err);
    if (rc == 0)
        put_case(o, x, &t);
    return rc;
}

/* The table's row of the model itself: equal lengths, and ragged ones, as texts have them. */
static int bench_model(const bench_opts *o, const opened *x, kh_err *err) {
    bench_opts equal = *o, ragged = *o;
    timing t, r;
    equal.length = ragged.length = 80;
    ragged.longest = 110;
    int rc = time_case(x->e, &equal, &t, err);
    if (rc == 0)
        rc = time_case(x->e, &ragged, &r, err);
    if (rc == 0)
        printf("  %-9s %12.2f /s %12.2f /s %8.0f %% %10.2f s %10.3f GB\n",
            kh_precision_name(kh_engine_precision(x->e)), t.pairs / t.seconds, r.pairs / r.seconds,
            100 * t.operations / t.cpu / peak_of(kh_engine_kernels(x->e)), x->seconds,
            x->bytes / 1e9);
    return rc;
}

/* The table's row of the small shape: a population of prompts in one call, and in a call for each.
 */
static int bench_small(const bench_opts *o, const opened *x, kh_err *err) {
    bench_opts equal = *o, together = *o;
    timing t, one, many;
    equal.length = together.length = 80;
    together.slots = 50;
    together.prompts = 20;
    bench_opts separate = together;
    separate.separate = true;
    int rc = time_case(x->e, &equal, &t, err);
    if (rc == 0)
        rc = time_case(x->e, &together, &one, err);
    if (rc == 0)
        rc = time_case(x->e, &separate, &many, err);
    if (rc == 0)
        printf("  %-9s %12.1f /s %8.0f %% %12.1f /s %12.1f /s %8.2f\n",
            kh_precision_name(kh_engine_precision(x->e)), t.pairs / t.seconds,
            100 * t.operations / t.cpu / peak_of(kh_engine_kernels(x->e)), one.pairs / one.seconds,
            many.pairs / many.seconds, many.seconds / one.seconds);
    return rc;
}

typedef int bench_fn(const bench_opts *, const opened *, kh_err *);

/* The next precision of the list. Returns 1, or 0 at the end, or < 0. */
static int next_precision(const char **at, kh_precision *out, kh_err *err) {
    if (!**at)
        return 0;
    size_t n = strcspn(*at, ",");
    for (int p = KH_F32; p < KH_PRECISION_AUTO; p++) {
        const char *name = kh_precision_name((kh_precision)p);
        if (strlen(name) == n && memcmp(*at, name, n) == 0) {
            *at += n + ((*at)[n] == ',');
            *out = (kh_precision)p;
            return 1;
        }
    }
    return kh_fail(err, CLI_USAGE,
        "--precision takes f32, bf16 and int8, separated by commas; got \"%.*s\"", (int)n, *at);
}

/* One of the above in each precision of the list. */
static int bench_all(const bench_opts *o, const char *dir, bench_fn *fn, kh_err *err) {
    const char *at = o->precision;
    kh_precision precision;
    int rc;
    while ((rc = next_precision(&at, &precision, err)) > 0) {
        opened x;
        kh_log(&cli_hooks, KH_INFO, "%s: loading, then timing %d calls of %d sequences",
            kh_precision_name(precision), o->reps, o->rows);
        rc = open_engine(&x, dir, precision, err);
        if (rc == 0)
            rc = fn(o, &x, err);
        kh_engine_free(x.e);
        fflush(stdout);
        if (rc != 0)
            break;
    }
    return rc;
}

static void set(int *field, int value) {
    if (value > 0)
        *field = value;
}

/* A random model in a folder of its own under TMPDIR, removed afterwards. */
static int bench_random(const bench_opts *o, const kh_config *config, bench_fn *fn, kh_err *err) {
    kh_random_opts r = { .config = *config, .dtype = KH_DTYPE_BF16, .std = 0.02, .hooks = NULL };
    char *dir = kh_path_join(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", "keyhole-bench-XXXXXX");
    if (!dir)
        return kh_fail_memory(err);
    kh_log(&cli_hooks, KH_INFO, "making a random model of %d layers x %d", config->layers,
        config->hidden);
    int rc = mkdtemp(dir) ? kh_random_model_write(dir, &r, err)
                          : kh_fail_errno(err, dir, "cannot make the folder");
    if (rc == 0)
        rc = bench_all(o, dir, fn, err);
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

/* The model that --model or --arch names. */
static int bench_named(const bench_opts *o, bench_fn *fn, kh_err *err) {
    if (o->model)
        return bench_all(o, o->model, fn, err);
    kh_config config = *kh_arch_find(o->arch);
    set(&config.layers, o->layers);
    set(&config.hidden, o->hidden);
    set(&config.heads, o->heads);
    set(&config.inner, o->inner);
    set(&config.vocab, o->vocab);
    return bench_random(o, &config, fn, err);
}

/* The cases of bench/README.md that need no peer. */
static int bench_table_of(const bench_opts *o, kh_err *err) {
    kh_config small = *kh_arch_find("bert-base");
    small.layers = 6, small.hidden = 256, small.heads = 4, small.inner = 1024;
    small.vocab = 1000; /* no word is asked for */
    printf("%s, %d sequences, %d threads, %s kernels; the best of %d calls\n",
        o->model ? o->model : o->arch, o->rows, kh_threads(), kh_kernels_pick()->name, o->reps);
    printf("  %-9s %15s %15s %10s %12s %13s\n", "precision", "80 tokens", "80 to 110", "of peak",
        "loaded in", "resident");
    int rc = bench_named(o, bench_model, err);
    if (rc != 0)
        return rc;
    printf("6 layers x 256; a population is 20 prompts of 50 rows with every sequence\n");
    printf("  %-9s %15s %10s %15s %15s %8s\n", "precision", "80 tokens", "of peak", "population",
        "in 20 calls", "ratio");
    rc = bench_random(o, &small, bench_small, err);
    if (rc == 0)
        printf("of peak: of what the cores can multiply and add in f32, measured beside it, by "
               "processor time\n");
    return rc;
}

static int run_bench(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args, (void)args;
    bench_opts o = *(const bench_opts *)opts;
    if (!o.model == !o.arch)
        return kh_fail(err, CLI_USAGE, "give either --model DIR or --arch NAME");
    if (o.arch && !kh_arch_find(o.arch))
        return kh_fail(err, CLI_USAGE, "--arch \"%s\" is not known", o.arch);
    const char *at = o.precision; /* a wrong list is said before anything is timed */
    kh_precision each;
    int rc;
    while ((rc = next_precision(&at, &each, err)) > 0)
        ;
    if (rc < 0)
        return rc;
    if (!o.json && !o.separate && o.length == 0 && o.longest == 0 && o.slots == 0)
        return bench_table_of(&o, err);
    if (o.length == 0)
        o.length = 80;
    return bench_named(&o, bench_case, err);
}

const cli_command cmd_bench_engine = {
    .name = "bench engine",
    .args = "",
    .summary = "Time the engine on sequences of random tokens",
    .text =
        "Loads a model (or makes a random one) in each precision and prints how many\n"
        "sequences it answers in a second, how long loading took and what it occupies;\n"
        "then a small shape: its share of what the cores can do, and a population of\n"
        "prompts in one call against one call for each. With --length, --longest,\n"
        "--slots, --separate or --json it times only the case that these describe.\n"
        "Numbers mean something only beside others from the same machine and hour:\n"
        "\"make bench-peers\" runs PyTorch and ONNX Runtime next to this.\n"
        "\n"
        "  keyhole bench engine --arch roberta-large --precision f32,bf16,int8\n"
        "  keyhole bench engine --arch roberta-large --precision int8 --length 80 --longest 110\n"
        "  keyhole bench engine --arch roberta-base --slots 50 --prompts 20\n"
        "  keyhole bench engine --arch bert-base --layers 6 --hidden 256 --heads 4 --inner 1024 "
        "--length 80",
    .opts = bench_table,
    .opts_size = sizeof(bench_opts),
    .run = run_bench,
};
