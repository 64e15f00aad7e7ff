/* flow.c - see flow.h.
 *
 * Weights are one array. First stands a matrix [T H, C] that reads x for all transforms in one
 * product; then, for each transform, W0 [H, D], b0 [H], for further layers W [H, H], b [H], and
 * last V [2 D, H], c [2 D], whose first D rows give the unbounded l and the others t. Products are
 * plain ones over matrices that hold zeros at masked places: at 60 units, cutting them into the
 * blocks that are not zero gains less than smaller products lose.
 *
 * Letters: T transforms, D dim, H hidden units, L layers, C context, n rows. */
#include "tune/flow.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/size.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

static const double BOUND = 4; /* of l: one transform scales by at most e^4, ten by e^40 */
static const double LAST =
    0.1; /* the last layer's weights start so much smaller: q starts near the standard normal */
static const double FAR =
    5; /* spreads: an x further off than simulations ever were counts as so far off */
static const double LOG_2PI = 1.8378770664093453;

struct kh_flow {
    int T, D, H, L, C;
    size_t per, size; /* weights of a transform, of all */
    double *w;        /* [size] */
    int *perm;        /* [T, D] */
    int *degree;      /* [H], ascending */
    int *ready;       /* [D] how many units output i sees */
    double *z_mean, *z_sd, *x_mean, *x_sd;
    double log_sd; /* sum of log z_sd */
};

/* What the backward pass needs of a transform, for all rows. */
typedef struct trace {
    double *y; /* [n, D] */
    double *h; /* [L, n, H] outputs of the units */
    double *o; /* [n, 2 D] what l is made of, and t */
    double *s; /* [n, D] exp(l) */
} trace;

struct kh_flow_work {
    int max_rows, max_contexts, m, n;
    double *x;             /* [m, C] standardised */
    double *c, *dc;        /* [m, T H] what x gives the units, and its gradient */
    const int *of;         /* [n], the caller's */
    trace *t;              /* [T] */
    double *u;             /* [n, D] */
    double *du, *dy;       /* [n, D] */
    double *dout;          /* [n, 2 D] */
    double *da, *db;       /* [n, H] */
    double *one_y, *one_h; /* [D], [L, H] for a single draw */
    double *memory;
};

/* ---------------------------------------------------------------------------------- making one */

/* (S4). Degrees begin at 0: such units see x only, so that scale and shift of the first coordinate
 * depend on x. */
static int degree_of(int k, int D, int H) { return (int)((long long)k * D / H); }

/* Matrix and biases of layer l; l = L is the output, two numbers a coordinate. */
static size_t layer_size(const kh_flow *f, int l) {
    size_t H = (size_t)f->H;
    if (l == 0)
        return H * (size_t)f->D + H;
    return l < f->L ? H * H + H : 2 * (size_t)f->D * H + 2 * (size_t)f->D;
}

/* Layer l of transform t; l = L is the output. Its biases stand behind its matrix. */
static size_t layer_at(const kh_flow *f, int t, int l) {
    size_t at = (size_t)f->T * (size_t)f->H * (size_t)f->C + (size_t)t * f->per;
    for (int i = 0; i < l; i++)
        at += layer_size(f, i);
    return at;
}

static int layer_rows(const kh_flow *f, int l) { return l < f->L ? f->H : 2 * f->D; }
static int layer_cols(const kh_flow *f, int l) { return l == 0 ? f->D : f->H; }

/* How many of the first inputs row r of layer l may see: all others are masked, because units stand
 * in order. */
static int visible(const kh_flow *f, int l, int r) {
    if (l == 0)
        return f->degree[r];
    int degree = l < f->L ? f->degree[r] : r % f->D;
    return f->ready[degree];
}

/* Also applied to gradients: masked weights stay exactly zero, and Adam's moments with them. */
void kh_flow_mask(const kh_flow *f, double *a) {
    for (int t = 0; t < f->T; t++)
        for (int l = 0; l <= f->L; l++) {
            double *w = a + layer_at(f, t, l);
            int cols = layer_cols(f, l);
            for (int r = 0; r < layer_rows(f, l); r++)
                for (int c = visible(f, l, r); c < cols; c++)
                    w[(size_t)r * (size_t)cols + (size_t)c] = 0;
        }
}

static void fill_uniform(double *w, size_t n, double bound, kh_rng r) {
    for (size_t i = 0; i < n; i++)
        w[i] = bound * (2 * kh_rng_uniform(&r) - 1);
}

/* As PyTorch draws linear layers: within 1 / sqrt(inputs). Biases start at zero. */
static void draw_weights(kh_flow *f, uint64_t seed) {
    fill_uniform(f->w, (size_t)f->T * (size_t)f->H * (size_t)f->C, 1 / sqrt(f->C),
        kh_rng_stream(seed, KH_RNG_FLOW, 0, 0));
    for (int t = 0; t < f->T; t++)
        for (int l = 0; l <= f->L; l++) {
            int cols = layer_cols(f, l);
            fill_uniform(f->w + layer_at(f, t, l), (size_t)layer_rows(f, l) * (size_t)cols,
                (l == f->L ? LAST : 1) / sqrt(cols),
                kh_rng_stream(seed, KH_RNG_FLOW, (uint32_t)t + 1, (uint32_t)l));
        }
    kh_flow_mask(f, f->w);
}

/* Units in the order of their degrees make every mask a prefix of a row (`visible`), and let a draw
 * compute each unit once, when its inputs are known. Permutations are fixed for the life of a flow.
 */
static void fill_orders(kh_flow *f, uint64_t seed) {
    for (int k = 0; k < f->H; k++)
        f->degree[k] = degree_of(k, f->D, f->H);
    for (int i = 0, k = 0; i < f->D; i++) {
        while (k < f->H && f->degree[k] <= i)
            k++;
        f->ready[i] = k;
    }
    for (int t = 0; t < f->T; t++) {
        kh_rng r = kh_rng_stream(seed, KH_RNG_FLOW_ORDER, (uint32_t)t, 0);
        kh_rng_permutation(&r, f->perm + (size_t)t * (size_t)f->D, f->D);
    }
}

/* True if the weights can be counted and their number is within reason. */
static bool count_weights(kh_flow *f) {
    size_t context, all;
    for (int l = 0; l <= f->L; l++)
        f->per += layer_size(f, l);
    return kh_mul((size_t)f->T * (size_t)f->H, (size_t)f->C, &context) &&
        kh_mul((size_t)f->T, f->per, &all) && kh_add(context, all, &f->size) &&
        f->size < (size_t)1 << 40;
}

/* Near the standard normal at the start (LAST), with the identity as standardisation until
 * kh_flow_standardise is told otherwise. */
int kh_flow_new(
    kh_flow **out, int dim, int context, const kh_flow_opts *o, uint64_t seed, kh_err *err) {
    *out = NULL;
    size_t D = (size_t)dim, C = (size_t)context;
    kh_flow *f = kh_calloc(1, sizeof *f);
    if (!f)
        return kh_fail_memory(err);
    *f = (kh_flow){ .T = o->transforms, .D = dim, .H = o->hidden, .L = o->layers, .C = context };
    if (!count_weights(f)) {
        kh_flow_free(f);
        return kh_fail(err, KH_ELIMIT,
            "a flow of %d transforms of %d units for %d numbers given %d has too many weights",
            o->transforms, o->hidden, dim, context);
    }
    f->w = kh_aligned(f->size * sizeof *f->w);
    f->perm = kh_calloc((size_t)f->T * D, sizeof *f->perm);
    f->degree = kh_calloc((size_t)f->H, sizeof *f->degree);
    f->ready = kh_calloc(D, sizeof *f->ready);
    f->z_mean = kh_calloc(D, sizeof *f->z_mean);
    f->z_sd = kh_calloc(D, sizeof *f->z_sd);
    f->x_mean = kh_calloc(C, sizeof *f->x_mean);
    f->x_sd = kh_calloc(C, sizeof *f->x_sd);
    if (!f->w || !f->perm || !f->degree || !f->ready || !f->z_mean || !f->z_sd || !f->x_mean ||
        !f->x_sd) {
        kh_flow_free(f);
        return kh_fail_memory(err);
    }
    memset(f->w, 0, f->size * sizeof *f->w);
    for (size_t i = 0; i < D; i++)
        f->z_sd[i] = 1;
    for (size_t i = 0; i < C; i++)
        f->x_sd[i] = 1;
    fill_orders(f, seed);
    draw_weights(f, seed);
    *out = f;
    return 0;
}

void kh_flow_free(kh_flow *f) {
    if (!f)
        return;
    kh_free(f->w);
    kh_free(f->perm);
    kh_free(f->degree);
    kh_free(f->ready);
    kh_free(f->z_mean);
    kh_free(f->z_sd);
    kh_free(f->x_mean);
    kh_free(f->x_sd);
    kh_free(f);
}

int kh_flow_dim(const kh_flow *f) { return f->D; }
double *kh_flow_weights(kh_flow *f) { return f->w; }
size_t kh_flow_size(const kh_flow *f) { return f->size; }
const int *kh_flow_order(const kh_flow *f, int t) { return f->perm + (size_t)t * (size_t)f->D; }

/* z by the prior, x by the simulations of the first round: units work best on numbers around one.
 * The density of z, not of the standardised one, is what is returned: log_sd. */
void kh_flow_standardise(kh_flow *f, const double *z_mean, const double *z_sd, const double *x_mean,
    const double *x_sd) {
    memcpy(f->z_mean, z_mean, (size_t)f->D * sizeof *z_mean);
    memcpy(f->z_sd, z_sd, (size_t)f->D * sizeof *z_sd);
    memcpy(f->x_mean, x_mean, (size_t)f->C * sizeof *x_mean);
    memcpy(f->x_sd, x_sd, (size_t)f->C * sizeof *x_sd);
    f->log_sd = 0;
    for (int i = 0; i < f->D; i++)
        f->log_sd += log(z_sd[i]);
}

/* -------------------------------------------------------------------------------- room to work */

/* Hands out parts of one block, each on a border of 64 bytes. Without a block it only adds up. */
static double *part(double *block, size_t *used, size_t n) {
    double *p = block ? block + *used : NULL;
    *used += (n + 7) / 8 * 8;
    return p;
}

/* Run twice: once without a block to find its size, once to hand it out. */
static size_t lay_out(kh_flow_work *w, const kh_flow *f, double *block) {
    size_t n = (size_t)w->max_rows, m = (size_t)w->max_contexts, used = 0;
    size_t D = (size_t)f->D, H = (size_t)f->H, L = (size_t)f->L, T = (size_t)f->T;
    w->x = part(block, &used, m * (size_t)f->C);
    w->c = part(block, &used, m * T * H);
    w->dc = part(block, &used, m * T * H);
    for (size_t t = 0; t < T; t++) {
        w->t[t].y = part(block, &used, n * D);
        w->t[t].h = part(block, &used, L * n * H);
        w->t[t].o = part(block, &used, n * 2 * D);
        w->t[t].s = part(block, &used, n * D);
    }
    w->u = part(block, &used, n * D);
    w->du = part(block, &used, n * D);
    w->dy = part(block, &used, n * D);
    w->dout = part(block, &used, n * 2 * D);
    w->da = part(block, &used, n * H);
    w->db = part(block, &used, n * H);
    w->one_y = part(block, &used, D);
    w->one_h = part(block, &used, L * H);
    return used;
}

int kh_flow_work_new(
    kh_flow_work **out, const kh_flow *f, int max_rows, int max_contexts, kh_err *err) {
    *out = NULL;
    kh_flow_work *w = kh_calloc(1, sizeof *w);
    if (!w)
        return kh_fail_memory(err);
    *w = (kh_flow_work){ .max_rows = max_rows,
        .max_contexts = max_contexts,
        .t = kh_calloc((size_t)f->T, sizeof *w->t) };
    w->memory = w->t ? kh_aligned(lay_out(w, f, NULL) * sizeof *w->memory) : NULL;
    if (!w->memory) {
        kh_flow_work_free(w);
        return kh_fail_memory(err);
    }
    lay_out(w, f, w->memory);
    *out = w;
    return 0;
}

void kh_flow_work_free(kh_flow_work *w) {
    if (!w)
        return;
    kh_free(w->t);
    kh_free(w->memory);
    kh_free(w);
}

/* ------------------------------------------------------------------------------------ products */

/* y [n, rows] = a [n, cols] times w [rows, cols] transposed; added to what is there if `add`. */
static void times(
    const double *a, const double *w, double *y, int n, int rows, int cols, bool add) {
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, rows, cols, 1, a, cols, w, cols,
        add ? 1 : 0, y, rows);
}

/* da [n, cols] = dy [n, rows] times w [rows, cols]; added to what is there if `add`. */
static void times_back(
    const double *dy, const double *w, double *da, int n, int rows, int cols, bool add) {
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, cols, rows, 1, dy, rows, w, cols,
        add ? 1 : 0, da, cols);
}

/* dw [rows, cols] += dy [n, rows] transposed times a [n, cols]. */
static void times_weights(
    const double *dy, const double *a, double *dw, int n, int rows, int cols) {
    cblas_dgemm(
        CblasRowMajor, CblasTrans, CblasNoTrans, rows, cols, n, 1, dy, rows, a, cols, 1, dw, cols);
}

static void add_columns(const double *dy, double *db, int n, int rows) {
    for (int i = 0; i < n; i++)
        for (int r = 0; r < rows; r++)
            db[r] += dy[(size_t)i * (size_t)rows + (size_t)r];
}

/* l = a / sqrt(1 + (a / B)^2): the identity near 0, never beyond B. */
static double bounded(double a) { return a / sqrt(1 + a * a / (BOUND * BOUND)); }

static double bounded_slope(double a) {
    double q = 1 / (1 + a * a / (BOUND * BOUND));
    return q * sqrt(q);
}

/* What a unit makes of its sum: a sigmoid like tanh, which took more than half of all time. */
static double squashed(double a) { return a / sqrt(1 + a * a); }

static double squashed_slope(double h) { /* by what came out */
    double q = 1 - h * h;
    return q * sqrt(q);
}

/* ------------------------------------------------------------------------------------- density */

/* The part of the first layer that reads x, for all transforms in one product: x is shared by all
 * atoms of an item. */
void kh_flow_context(const kh_flow *f, kh_flow_work *w, const float *x, int m) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < f->C; j++) {
            size_t at = (size_t)i * (size_t)f->C + (size_t)j;
            w->x[at] = fmax(-FAR, fmin(FAR, ((double)x[at] - f->x_mean[j]) / f->x_sd[j]));
        }
    w->m = m;
    times(w->x, f->w, w->c, m, f->T * f->H, f->C, false);
    memset(w->dc, 0, (size_t)m * (size_t)(f->T * f->H) * sizeof *w->dc);
}

/* The units of the first layer before tanh start from their biases and what x gives them. */
static void start_units(
    const kh_flow *f, const kh_flow_work *w, int t, const double *bias, double *h) {
    for (int i = 0; i < w->n; i++) {
        const double *c = w->c + ((size_t)w->of[i] * (size_t)f->T + (size_t)t) * (size_t)f->H;
        for (int k = 0; k < f->H; k++)
            h[(size_t)i * (size_t)f->H + (size_t)k] = bias[k] + c[k];
    }
}

static void start_biases(const double *bias, double *y, int n, int rows) {
    for (int i = 0; i < n; i++)
        memcpy(y + (size_t)i * (size_t)rows, bias, (size_t)rows * sizeof *y);
}

/* y -> o: all units of a transform. */
static void run_network(const kh_flow *f, const kh_flow_work *w, int t, const trace *r) {
    size_t units = (size_t)w->n * (size_t)f->H;
    const double *in = r->y;
    for (int l = 0; l <= f->L; l++) {
        int rows = layer_rows(f, l), cols = layer_cols(f, l);
        const double *matrix = f->w + layer_at(f, t, l),
                     *bias = matrix + (size_t)rows * (size_t)cols;
        double *out = l < f->L ? r->h + (size_t)l * units : r->o;
        if (l == 0)
            start_units(f, w, t, bias, out);
        else
            start_biases(bias, out, w->n, rows);
        times(in, matrix, out, w->n, rows, cols, true);
        for (size_t i = 0; l < f->L && i < units; i++)
            out[i] = squashed(out[i]);
        in = out;
    }
}

/* (S1) to (S3). The trace that is left in w is what kh_flow_backward needs. */
void kh_flow_density(
    const kh_flow *f, kh_flow_work *w, const double *z, const int *of, int n, double *logq) {
    size_t D = (size_t)f->D;
    w->n = n;
    w->of = of;
    for (size_t i = 0; i < (size_t)n; i++) {
        logq[i] = -f->log_sd - (double)f->D * LOG_2PI / 2;
        for (size_t j = 0; j < D; j++)
            w->u[i * D + j] = (z[i * D + j] - f->z_mean[j]) / f->z_sd[j];
    }
    for (int t = 0; t < f->T; t++) {
        trace *r = &w->t[t];
        const int *perm = kh_flow_order(f, t);
        for (size_t i = 0; i < (size_t)n; i++)
            for (size_t j = 0; j < D; j++)
                r->y[i * D + j] = w->u[i * D + (size_t)perm[j]];
        run_network(f, w, t, r);
        for (size_t i = 0; i < (size_t)n; i++) {
            const double *a = r->o + i * 2 * D, *shift = a + D;
            double sum = 0;
            for (size_t j = 0; j < D; j++) {
                double l = bounded(a[j]);
                sum += l;
                r->s[i * D + j] = exp(l);
                w->u[i * D + j] = r->y[i * D + j] * r->s[i * D + j] + shift[j];
            }
            logq[i] += sum;
        }
    }
    for (size_t i = 0; i < (size_t)n; i++)
        for (size_t j = 0; j < D; j++)
            logq[i] -= w->u[i * D + j] * w->u[i * D + j] / 2;
}

const double *kh_flow_latent(const kh_flow_work *w) { return w->u; }

/* ----------------------------------------------------------------------------------- gradients */

/* dout -> gradients of a transform's weights; what the units did to y is added to dy. */
static void run_network_back(const kh_flow *f, kh_flow_work *w, int t, double *grad) {
    const trace *r = &w->t[t];
    size_t units = (size_t)w->n * (size_t)f->H;
    double *dy = w->dout, *spare = w->da;
    for (int l = f->L; l >= 0; l--) {
        int rows = layer_rows(f, l), cols = layer_cols(f, l);
        size_t at = layer_at(f, t, l);
        const double *in = l == 0 ? r->y : r->h + (size_t)(l - 1) * units;
        times_weights(dy, in, grad + at, w->n, rows, cols);
        add_columns(dy, grad + at + (size_t)rows * (size_t)cols, w->n, rows);
        if (l == 0)
            break;
        times_back(dy, f->w + at, spare, w->n, rows, cols, false);
        for (size_t i = 0; i < units; i++)
            spare[i] *= squashed_slope(in[i]);
        dy = spare;
        spare = spare == w->da ? w->db : w->da;
    }
    for (int i = 0; i < w->n; i++) {
        double *dc = w->dc + ((size_t)w->of[i] * (size_t)f->T + (size_t)t) * (size_t)f->H;
        for (int k = 0; k < f->H; k++)
            dc[k] += dy[(size_t)i * (size_t)f->H + (size_t)k];
    }
    times_back(dy, f->w + layer_at(f, t, 0), w->dy, w->n, f->H, f->D, true);
}

/* The chain rule, from the last transform to the first. g [n] is d loss / d logq; d(-u^2 / 2) / du
 * = -u begins it, and each l_i adds g itself, as it stands in logq directly. */
void kh_flow_backward(const kh_flow *f, kh_flow_work *w, const double *g, double *grad) {
    size_t D = (size_t)f->D, n = (size_t)w->n;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < D; j++)
            w->du[i * D + j] = -g[i] * w->u[i * D + j];
    for (int t = f->T - 1; t >= 0; t--) {
        const trace *r = &w->t[t];
        const int *perm = kh_flow_order(f, t);
        for (size_t i = 0; i < n; i++) {
            double *da = w->dout + i * 2 * D, *dshift = da + D;
            const double *a = r->o + i * 2 * D;
            for (size_t j = 0; j < D; j++) {
                double du = w->du[i * D + j], s = r->s[i * D + j];
                da[j] = (du * r->y[i * D + j] * s + g[i]) * bounded_slope(a[j]);
                dshift[j] = du;
                w->dy[i * D + j] = du * s;
            }
        }
        run_network_back(f, w, t, grad);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < D; j++)
                w->du[i * D + (size_t)perm[j]] = w->dy[i * D + j];
    }
}

void kh_flow_context_backward(const kh_flow *f, kh_flow_work *w, double *grad) {
    times_weights(w->dc, w->x, grad, w->m, f->T * f->H, f->C);
    memset(w->dc, 0, (size_t)w->m * (size_t)(f->T * f->H) * sizeof *w->dc);
}

/* --------------------------------------------------------------------------------------- draws */

static double dot(const double *a, const double *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Units first .. end - 1 of every layer; the coordinates and units that they see are known. h [L,
 * H]. */
static void run_units(
    const kh_flow *f, int t, const double *c, const double *y, double *h, int first, int end) {
    for (int l = 0; l < f->L; l++) {
        int cols = layer_cols(f, l);
        const double *matrix = f->w + layer_at(f, t, l),
                     *bias = matrix + (size_t)f->H * (size_t)cols;
        const double *in = l == 0 ? y : h + (size_t)(l - 1) * (size_t)f->H;
        for (int k = first; k < end; k++)
            h[(size_t)l * (size_t)f->H + (size_t)k] = squashed(bias[k] + (l == 0 ? c[k] : 0) +
                dot(matrix + (size_t)k * (size_t)cols, in, visible(f, l, k)));
    }
}

/* The two outputs of coordinate i. */
static void run_output(const kh_flow *f, int t, const double *h, int i, double *l, double *shift) {
    const double *matrix = f->w + layer_at(f, t, f->L),
                 *bias = matrix + 2 * (size_t)f->D * (size_t)f->H;
    const double *in = h + (size_t)(f->L - 1) * (size_t)f->H;
    *l = bounded(bias[i] + dot(matrix + (size_t)i * (size_t)f->H, in, f->ready[i]));
    *shift = bias[f->D + i] + dot(matrix + (size_t)(f->D + i) * (size_t)f->H, in, f->ready[i]);
}

/* One transform undone for one row: v [D] is u and becomes what the transform was given. */
static void undo_transform(const kh_flow *f, kh_flow_work *w, int t, const double *c, double *v) {
    const int *perm = kh_flow_order(f, t);
    double *y = w->one_y;
    for (int i = 0, known = 0; i < f->D; i++) {
        double l, shift;
        run_units(f, t, c, y, w->one_h, known, f->ready[i]);
        known = f->ready[i];
        run_output(f, t, w->one_h, i, &l, &shift);
        y[i] = (v[i] - shift) * exp(-l);
    }
    for (int i = 0; i < f->D; i++)
        v[perm[i]] = y[i];
}

void kh_flow_inverse(const kh_flow *f, kh_flow_work *w, int of, const double *u, double *z) {
    memcpy(z, u, (size_t)f->D * sizeof *z);
    for (int t = f->T - 1; t >= 0; t--)
        undo_transform(f, w, t, w->c + ((size_t)of * (size_t)f->T + (size_t)t) * (size_t)f->H, z);
    for (int j = 0; j < f->D; j++)
        z[j] = z[j] * f->z_sd[j] + f->z_mean[j];
}
