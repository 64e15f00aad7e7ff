/* cmd_bench_cmaes.c - keyhole bench cmaes: the optimiser on functions whose optimum is known. */
#include "cli.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/rng.h"
#include "tune/cmaes.h"

#include <math.h>
#include <string.h>

/* ----------------------------------------------------------------------------------- functions */

static double conditioned(double i, int n, double exponent) {
    return n > 1 ? pow(10, exponent * i / (n - 1)) : 1;
}

static double sphere(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

static double ellipsoid(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += conditioned(i, n, 6) * x[i] * x[i];
    return sum;
}

static double cigar(const double *x, int n) { return x[0] * x[0] + 1e6 * sphere(x + 1, n - 1); }

static double discus(const double *x, int n) { return 1e6 * x[0] * x[0] + sphere(x + 1, n - 1); }

static double diffpow(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += pow(fabs(x[i]), n > 1 ? 2 + 10.0 * i / (n - 1) : 2);
    return sum;
}

static double rosenbrock(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i + 1 < n; i++) {
        double a = x[i] * x[i] - x[i + 1], b = x[i] - 1;
        sum += 100 * a * a + b * b;
    }
    return sum;
}

static double rastrigin(const double *x, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i] + 10 * (1 - cos(2 * M_PI * x[i]));
    return sum;
}

static const struct {
    const char *name;
    double (*f)(const double *x, int n);
    bool rotated;
} FUNCTIONS[] = {
    { "sphere", sphere, false },
    { "ellipsoid", ellipsoid, false },
    { "cigar", cigar, false },
    { "discus", discus, false },
    { "diffpow", diffpow, false },
    { "rosenbrock", rosenbrock, false },
    { "rastrigin", rastrigin, false },
    { "rotated-ellipsoid", ellipsoid, true },
    { "rotated-cigar", cigar, true },
    { "rotated-discus", discus, true },
    { "rotated-diffpow", diffpow, true },
    { "rotated-rosenbrock", rosenbrock, true },
    { "rotated-rastrigin", rastrigin, true },
};

/* As FUNCTIONS. */
#define FUNCTION_NAMES \
    "sphere|ellipsoid|cigar|discus|diffpow|rosenbrock|rastrigin|" \
    "rotated-ellipsoid|rotated-cigar|rotated-discus|rotated-diffpow|rotated-rosenbrock|rotated-" \
    "rastrigin"

/* ------------------------------------------------------------------------------------- options */

typedef struct bench_opts {
    int function, dim;
    bool json;
    double x0, sigma;
    kh_cmaes_opts cmaes;
} bench_opts;

static const kh_opt bench_table[] = {
    { "function", KH_OPT_CHOICE, offsetof(bench_opts, function), "sphere", .arg = FUNCTION_NAMES,
        .help = "what is minimised" },
    { "dim", KH_OPT_INT, offsetof(bench_opts, dim), "10", .min = 1, .max = KH_CMAES_MAX_SEPARABLE,
        .arg = "N", .help = "dimension" },
    { "x0", KH_OPT_NUMBER, offsetof(bench_opts, x0), "3", .arg = "V",
        .help = "every coordinate of the start" },
    { "sigma", KH_OPT_NUMBER, offsetof(bench_opts, sigma), "2", .min = 1e-100, .max = 1e100,
        .arg = "S", .help = "first step size" },
    KH_CMAES_ROWS(bench_opts, cmaes),
    CLI_JSON_OPTION(bench_opts),
    { 0 },
};

/* ---------------------------------------------------------------------------------------- runs */

/* A random rotation, [n, n]: normal rows made orthonormal one after another (Gram and Schmidt, each
 * twice for accuracy). */
static double *rotation(int n, uint64_t seed) {
    size_t size = (size_t)n;
    double *r = kh_calloc(size * size, sizeof *r);
    for (size_t i = 0; r && i < size; i++) {
        kh_rng stream = kh_rng_stream(seed, KH_RNG_TEST, (uint32_t)i, 0);
        double *row = r + i * size;
        for (size_t j = 0; j < size; j++)
            row[j] = kh_rng_normal(&stream);
        for (size_t k = 0; k < 2 * i; k++) {
            const double *other = r + k % i * size;
            double dot = 0;
            for (size_t j = 0; j < size; j++)
                dot += row[j] * other[j];
            for (size_t j = 0; j < size; j++)
                row[j] -= dot * other[j];
        }
        double length = sqrt(sphere(row, n));
        for (size_t j = 0; j < size; j++)
            row[j] /= length;
    }
    return r;
}

typedef struct problem {
    double (*f)(const double *x, int n);
    int n;
    double *turn;   /* [n, n], or NULL */
    double *x;      /* [pop, n] */
    double *turned; /* [n] */
    double *value;  /* [pop] */
    double own;     /* seconds spent in ask and tell */
} problem;

static double evaluate(const problem *p, const double *x) {
    if (!p->turn)
        return p->f(x, p->n);
    for (int i = 0; i < p->n; i++) {
        const double *row = p->turn + (size_t)i * (size_t)p->n;
        p->turned[i] = 0;
        for (int j = 0; j < p->n; j++)
            p->turned[i] += row[j] * x[j];
    }
    return p->f(p->turned, p->n);
}

static void minimise(kh_cmaes *c, problem *p) {
    while (!kh_cmaes_stop(c)) {
        double start = kh_clock();
        kh_cmaes_ask(c, p->x);
        p->own += kh_clock() - start;
        for (int k = 0; k < kh_cmaes_pop(c); k++)
            p->value[k] = evaluate(p, p->x + (size_t)k * (size_t)p->n);
        start = kh_clock();
        kh_cmaes_tell(c, p->value);
        p->own += kh_clock() - start;
    }
}

static int print_json(const bench_opts *o, const kh_cmaes *c, double own, kh_err *err) {
    kh_buf b = kh_buf_init(1 << 16);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
    double f;
    kh_cmaes_best(c, &f);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "function", FUNCTIONS[o->function].name);
    kh_json_put_int(&j, "dim", o->dim);
    kh_json_put_number(&j, "x0", o->x0, 17);
    kh_json_put_number(&j, "sigma0", o->sigma, 17);
    kh_json_put_string(&j, "variant", o->cmaes.variant == KH_CMAES_FULL ? "full" : "separable");
    kh_json_put_int(&j, "pop", kh_cmaes_pop(c));
    kh_json_put_u64(&j, "seed", o->cmaes.seed);
    kh_json_put_int(&j, "evaluations", kh_cmaes_evals(c));
    kh_json_put_int(&j, "generations", kh_cmaes_generation(c));
    kh_json_put_number(&j, "f", f, 17);
    kh_json_put_string(&j, "stop", kh_cmaes_stop_name(kh_cmaes_stop(c)));
    kh_json_put_number(&j, "sigma", kh_cmaes_sigma(c), 17);
    kh_json_put_fixed(&j, "own_seconds", own, 6);
    kh_json_put_fixed(&j, "own_seconds_per_generation", own / (double)kh_cmaes_generation(c), 6);
    kh_json_close(&j);
    return cli_print_json(&j, stdout, err);
}

static void print_text(const bench_opts *o, const kh_cmaes *c, double own) {
    double f;
    kh_cmaes_best(c, &f);
    printf("%s, dimension %d, population %d, seed %llu\n", FUNCTIONS[o->function].name, o->dim,
        kh_cmaes_pop(c), (unsigned long long)o->cmaes.seed);
    printf("evaluations  %lld in %lld generations\n", kh_cmaes_evals(c), kh_cmaes_generation(c));
    printf("f            %.6g\n", f);
    printf("stopped      %s: %s\n", kh_cmaes_stop_name(kh_cmaes_stop(c)),
        kh_cmaes_stop_text(kh_cmaes_stop(c)));
    printf("own time     %.3f s, %.3f ms a generation\n", own,
        1e3 * own / (double)kh_cmaes_generation(c));
}

static int problem_make(problem *p, const bench_opts *o, int pop, kh_err *err) {
    size_t n = (size_t)o->dim;
    bool rotated = FUNCTIONS[o->function].rotated;
    *p = (problem){ .f = FUNCTIONS[o->function].f,
        .n = o->dim,
        .x = kh_calloc(n * (size_t)pop, sizeof(double)),
        .turned = kh_calloc(n, sizeof(double)),
        .value = kh_calloc((size_t)pop, sizeof(double)),
        .turn = rotated ? rotation(o->dim, o->cmaes.seed) : NULL };
    return !p->x || !p->turned || !p->value || (rotated && !p->turn) ? kh_fail_memory(err) : 0;
}

static void problem_free(problem *p) {
    kh_free(p->turn);
    kh_free(p->x);
    kh_free(p->turned);
    kh_free(p->value);
}

static int run_bench(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args, (void)args;
    const bench_opts *o = opts;
    if (FUNCTIONS[o->function].rotated && o->dim > KH_CMAES_MAX_FULL)
        return kh_fail(err, CLI_USAGE, "rotated functions take at most %d dimensions; got --dim %d",
            KH_CMAES_MAX_FULL, o->dim);
    kh_cmaes *c = NULL;
    problem p = { 0 };
    double *x0 = kh_calloc((size_t)o->dim, sizeof *x0);
    for (int i = 0; x0 && i < o->dim; i++)
        x0[i] = o->x0;
    int rc = x0 ? kh_cmaes_new(&c, x0, o->dim, o->sigma, &o->cmaes, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = problem_make(&p, o, kh_cmaes_pop(c), err);
    if (rc == 0) {
        minimise(c, &p);
        if (o->json)
            rc = print_json(o, c, p.own, err);
        else
            print_text(o, c, p.own);
    }
    problem_free(&p);
    kh_cmaes_free(c);
    kh_free(x0);
    return rc;
}

const cli_command cmd_bench_cmaes = {
    .name = "bench cmaes",
    .args = "",
    .summary = "Run CMA-ES on a test function",
    .text = "Minimises a function with a known optimum (f = 0) and prints how many\n"
            "evaluations it took, the value reached, why it stopped, and the optimiser's own\n"
            "time. The functions are those of the literature. A random rotation makes the\n"
            "coordinates depend on each other, which should not change the number of\n"
            "evaluations.\n"
            "\n"
            "Examples\n"
            "  keyhole bench cmaes --function ellipsoid --dim 20 --target 1e-9\n"
            "  keyhole bench cmaes --function rotated-ellipsoid --dim 20 --target 1e-9\n"
            "  keyhole bench cmaes --function rosenbrock --dim 40 --x0 0 --sigma 0.5 --json\n"
            "  keyhole bench cmaes --dim 1000 --pop 20 --max-evals 2000\n"
            "  keyhole bench cmaes --dim 10000 --variant separable --max-evals 20000",
    .opts = bench_table,
    .opts_size = sizeof(bench_opts),
    .run = run_bench,
};
