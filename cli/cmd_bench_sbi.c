/* cmd_bench_sbi.c - keyhole bench sbi: likelihood-free methods on problems whose posterior is
 * known. */
#include "cli.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "tune/toys.h"

#include <math.h>
#include <string.h>

/* As toys.c has them, by number. */
static const char *const PROBLEMS[] = { "linear-gaussian", "signs", "two-moons" };

typedef struct bench_opts {
    int problem, dim, max_queries;
    const char *method, *samples_out;
    cli_chosen method_opts;
    uint64_t seed, problem_seed;
    bool paper_exact, trace, json;
} bench_opts;

static const kh_opt bench_table[] = {
    { "problem", KH_OPT_CHOICE, offsetof(bench_opts, problem), "linear-gaussian",
        .arg = KH_TOY_NAMES, .help = "what is asked" },
    { "dim", KH_OPT_INT, offsetof(bench_opts, dim), "2", .min = 1, .max = 1 << 16, .arg = "N",
        .help = "dimension" },
    { "method", KH_OPT_TEXT, offsetof(bench_opts, method), .arg = "NAME", .help = "how; see below",
        .required = true },
    { "seed", KH_OPT_SEED, offsetof(bench_opts, seed), "13", .arg = "N",
        .help = "of the method's random numbers" },
    { "problem-seed", KH_OPT_SEED, offsetof(bench_opts, problem_seed), "1", .arg = "N",
        .help = "of the observation and the simulator's noise" },
    { "budget-queries", KH_OPT_INT, offsetof(bench_opts, max_queries), .min = 1, .max = 2147483647,
        .arg = "N", .help = "stop before asking the simulator more" },
    { "paper-exact", KH_OPT_FLAG, offsetof(bench_opts, paper_exact),
        .help = "the published code's settings" },
    { "samples-out", KH_OPT_TEXT, offsetof(bench_opts, samples_out), .arg = "FILE",
        .help = "write the samples as TSV" },
    { "trace", KH_OPT_FLAG, offsetof(bench_opts, trace),
        .help = "a line for each generation on standard error" },
    CLI_JSON_OPTION(bench_opts),
    { 0 },
};

/* ------------------------------------------------------------------------------------- methods */

/* Draws from the posterior itself, by the problem's own means: the reference. */
typedef struct exact_opts {
    int samples;
} exact_opts;

static const kh_opt exact_table[] = {
    { "samples", KH_OPT_INT, offsetof(exact_opts, samples), "100", .min = 1, .max = 1 << 20,
        .arg = "N", .help = "draws returned" },
    { 0 },
};

static const kh_sampler reference = {
    .name = "reference",
    .summary = "exact draws from the posterior, to compare with",
    .opts = exact_table,
    .opts_size = sizeof(exact_opts),
};

static const kh_sampler *const METHODS[] = { &reference, &kh_sampler_abc_rejection,
    &kh_sampler_abc_smc, &kh_sampler_smc, &kh_sampler_snpe, NULL };

static bool method_at(int i, cli_variant *out) {
    const kh_sampler *m = METHODS[i];
    if (m)
        *out = (cli_variant){ m->name, m->summary, m->opts, m->opts_size, m->exact };
    return m != NULL;
}

static const cli_variants methods = { "method", "paper-exact", offsetof(bench_opts, method_opts),
    method_at, NULL };

static const kh_sampler *find_method(
    const char *name) { /* the parser has refused names that are not there */
    int i = 0;
    while (METHODS[i + 1] && strcmp(METHODS[i]->name, name) != 0)
        i++;
    return METHODS[i];
}

/* --------------------------------------------------------------------------------------- a run */

typedef struct bench {
    const bench_opts *o;
    kh_toy *toy;
    kh_simulator *sim;
    kh_population out;
    kh_monitor watch;
    int n;         /* samples, */
    double *theta; /* [n, dim] as the problem's parameters, of equal weight */
    int tolerance; /* the most errors of a sample; -1: not known */
} bench;

static bool may(kh_monitor *w, long long queries, int members, bool have) {
    (void)members, (void)have;
    const bench *b = w->self;
    if (b->o->max_queries > 0 && b->sim->asked + queries > b->o->max_queries)
        kh_monitor_stop(w, "the budget of %d queries is used up", b->o->max_queries);
    return !w->stopped[0];
}

static int trace(
    kh_monitor *w, const kh_population *p, const kh_level_done *step, bool last, kh_err *err) {
    (void)p, (void)last, (void)err;
    const bench *b = w->self;
    if (b->o->trace)
        fprintf(stderr, "gen=%d queries=%lld %s\n", step->gen, b->sim->asked, step->facts);
    return 0;
}

/* Rows of the table count the same: a weighted population is resampled, evenly. */
static int take_samples(bench *b, kh_err *err) {
    const kh_population *p = &b->out;
    size_t dim = (size_t)b->o->dim;
    kh_rng r = kh_rng_stream(b->o->seed, KH_RNG_RESAMPLE, UINT32_MAX, 0);
    double u = kh_rng_uniform(&r), sum = 0;
    b->n = p->n;
    b->theta = kh_malloc((size_t)p->n * dim * sizeof *b->theta);
    if (!b->theta)
        return kh_fail_memory(err);
    for (int i = 0, taken = 0; i < p->n; i++) {
        sum += p->weight[i] * p->n;
        for (; taken < p->n && (taken + u < sum || i == p->n - 1); taken++)
            kh_toy_parameters(
                b->toy, p->z + (size_t)i * (size_t)p->dim, 1, b->theta + (size_t)taken * dim);
        b->tolerance = p->errors[i] > b->tolerance ? p->errors[i] : b->tolerance;
    }
    return 0;
}

static int run_method(bench *b, kh_err *err) {
    const kh_sampler *m = find_method(b->o->method);
    if (m == &reference) {
        b->n = ((const exact_opts *)b->o->method_opts.opts)->samples;
        b->theta = kh_malloc((size_t)b->n * (size_t)b->o->dim * sizeof *b->theta);
        if (!b->theta)
            return kh_fail_memory(err);
        kh_toy_reference(b->toy, b->n, b->o->seed, b->theta);
        kh_monitor_stop(&b->watch, "there is nothing to search");
        return 0;
    }
    if (m->steps)
        kh_toy_carry_noise(b->toy);
    int rc = m->run(&b->out, b->sim, b->o->method_opts.opts, b->o->seed, &b->watch, err);
    return rc == 0 ? take_samples(b, err) : rc;
}

/* -------------------------------------------------------------------------------------- output */

static int write_samples(const bench *b, kh_err *err) {
    kh_buf out = kh_buf_init(KH_BUF_MAX);
    int dim = b->o->dim;
    for (int j = 0; j < dim; j++)
        kh_buf_printf(&out, "%sz%d", j ? "\t" : "", j + 1);
    kh_buf_char(&out, '\n');
    for (int i = 0; i < b->n; i++)
        for (int j = 0; j < dim; j++)
            kh_buf_printf(&out, "%.9g%c", b->theta[(size_t)i * (size_t)dim + (size_t)j],
                j + 1 < dim ? '\t' : '\n');
    int rc = kh_buf_failed(&out) ? kh_fail_memory(err)
                                 : kh_file_write(b->o->samples_out, out.data, out.len, err);
    kh_buf_free(&out);
    return rc;
}

static void moments(const bench *b, double *mean, double *var) {
    int dim = b->o->dim;
    for (int j = 0; j < dim; j++) {
        const double *x = b->theta + j;
        mean[j] = var[j] = 0;
        for (int i = 0; i < b->n; i++)
            mean[j] += x[(size_t)i * (size_t)dim] / b->n;
        for (int i = 0; i < b->n; i++)
            var[j] += (x[(size_t)i * (size_t)dim] - mean[j]) *
                (x[(size_t)i * (size_t)dim] - mean[j]) / b->n;
    }
}

static void put_json(
    const bench *b, kh_buf *out, const double *mean, const double *var, const double *known) {
    const bench_opts *o = b->o;
    size_t dim = (size_t)o->dim;
    kh_json_out j = kh_json_out_init(out, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "problem", PROBLEMS[o->problem]);
    kh_json_put_int(&j, "dim", o->dim);
    kh_json_put_string(&j, "method", o->method);
    kh_json_put_u64(&j, "seed", o->seed);
    kh_json_put_int(&j, "samples", b->n);
    if (b->tolerance >= 0)
        kh_json_put_int(&j, "tolerance", b->tolerance);
    else
        kh_json_put_null(&j, "tolerance");
    kh_json_put_int(&j, "queries", b->sim->asked);
    kh_json_put_int(&j, "saved", b->sim->saved);
    kh_json_put_number(&j, "ess", b->out.n ? kh_population_ess(&b->out) : b->n, 4);
    kh_json_put_int(&j, "ancestors", b->out.n ? kh_population_ancestors(&b->out) : b->n);
    kh_json_put_string(&j, "stopped", b->watch.stopped);
    kh_json_put_numbers(&j, "mean", mean, dim, 9);
    kh_json_put_numbers(&j, "variance", var, dim, 9);
    if (known) {
        kh_json_put_numbers(&j, "exact_mean", known, dim, 9);
        kh_json_put_numbers(&j, "exact_variance", known + dim, dim, 9);
    }
    kh_json_close(&j);
    kh_buf_char(out, '\n');
}

static void put_text(
    const bench *b, kh_buf *out, const double *mean, const double *var, const double *known) {
    const bench_opts *o = b->o;
    kh_buf_printf(out, "%s, dimension %d, %s, seed %llu: %d samples\n", PROBLEMS[o->problem],
        o->dim, o->method, (unsigned long long)o->seed, b->n);
    kh_buf_printf(out, "queries   %lld asked, %lld saved\n", b->sim->asked, b->sim->saved);
    if (b->tolerance >= 0)
        kh_buf_printf(out, "errors    at most %d\n", b->tolerance);
    kh_buf_printf(out, "stopped   %s\n", b->watch.stopped);
    for (int j = 0; j < o->dim && j < 10; j++) {
        kh_buf_printf(out, "z%-8d mean %9.4f variance %9.4f", j + 1, mean[j], var[j]);
        if (known)
            kh_buf_printf(out, "   exactly %9.4f %9.4f", known[j], known[o->dim + j]);
        kh_buf_char(out, '\n');
    }
}

static int print_result(const bench *b, kh_err *err) {
    size_t dim = (size_t)b->o->dim;
    kh_buf out = kh_buf_init(KH_BUF_MAX);
    double *own = kh_malloc(4 * dim * sizeof *own);
    int rc = own ? 0 : kh_fail_memory(err);
    if (rc == 0) {
        moments(b, own, own + dim);
        double *known = kh_toy_moments(b->toy, b->tolerance, own + 2 * dim, own + 3 * dim)
            ? own + 2 * dim
            : NULL;
        (b->o->json ? put_json : put_text)(b, &out, own, own + dim, known);
        rc = kh_buf_failed(&out) ? kh_fail_memory(err) : 0;
    }
    if (rc == 0)
        fputs(out.data, stdout);
    kh_buf_free(&out);
    kh_free(own);
    return rc;
}

static int run_bench(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args, (void)args;
    bench b = { .o = opts, .watch = { .may = may, .done = trace }, .tolerance = -1 };
    b.watch.self = &b;
    int rc = kh_toy_new(&b.toy, PROBLEMS[b.o->problem], b.o->dim, b.o->problem_seed, err);
    if (rc == 0) {
        b.sim = kh_toy_simulator(b.toy);
        rc = run_method(&b, err);
    }
    if (rc == 0 && b.o->samples_out)
        rc = write_samples(&b, err);
    if (rc == 0)
        rc = print_result(&b, err);
    kh_free(b.theta);
    kh_population_free(&b.out);
    kh_toy_free(b.toy);
    return rc;
}

const cli_command cmd_bench_sbi = {
    .name = "bench sbi",
    .args = "",
    .summary = "Run a likelihood-free method on a problem whose posterior is known",
    .text = "The methods that \"keyhole tune\" has for boxes that give labels only, on three toy\n"
            "problems. linear-gaussian observes z with noise; an error is half a unit off in\n"
            "one coordinate. signs is like the box: 32 labels, each the sign of a coordinate,\n"
            "in as many dimensions as wanted. two-moons is the two-dimensional benchmark of the\n"
            "literature. Printed are the mean and variance of the samples and, where they are\n"
            "known, those of the exact posterior given at most as many errors as the worst\n"
            "sample has. --samples-out writes a line of column names, then a line a sample,\n"
            "all of equal weight; a weighted population is resampled for it.\n"
            "\n"
            "Examples\n"
            "  keyhole bench sbi --method abc-rejection --dim 2\n"
            "  keyhole bench sbi --method reference --problem two-moons --samples 1000 \\\n"
            "      --samples-out moons.tsv",
    .opts = bench_table,
    .opts_size = sizeof(bench_opts),
    .run = run_bench,
    .variants = &methods,
};
