/* cmd_bench_train.c - keyhole bench train: how fast training is, beside nothing but the matrix
 * products that it needs. */
#include "cli.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "train/adamw.h"
#include "train/corpus.h"
#include "train/gradient.h"
#include "model/random_model.h"

#include <cblas.h>
#include <math.h>
#include <string.h>

typedef struct train_opts {
    int layers, hidden, heads, inner, vocab, seq, batch, shards, reps;
    double mask_rate;
    bool json;
} train_opts;

#define AT(field) offsetof(train_opts, field)
static const kh_opt train_table[] = {
    { "layers", KH_OPT_INT, AT(layers), "6", .min = 1, .max = 1024, .arg = "N", .help = "layers" },
    { "hidden", KH_OPT_INT, AT(hidden), "256", .min = 16, .max = 1 << 14, .arg = "N",
        .help = "hidden size" },
    { "heads", KH_OPT_INT, AT(heads), "0", .max = 1 << 12, .arg = "N",
        .help = "attention heads; 0: one for each 64 of the hidden size" },
    { "inner", KH_OPT_INT, AT(inner), "0", .max = 1 << 16, .arg = "N",
        .help = "feed-forward size; 0: four times the hidden size" },
    { "vocab", KH_OPT_INT, AT(vocab), "30522", .min = 16, .max = 1 << 20, .arg = "N",
        .help = "vocabulary" },
    { "seq", KH_OPT_INT, AT(seq), "64", .min = 8, .max = 1 << 14, .arg = "N",
        .help = "tokens of a sequence" },
    { "batch", KH_OPT_INT, AT(batch), "64", .min = 1, .max = 1 << 14, .arg = "N",
        .help = "sequences of a step" },
    { "mask-rate", KH_OPT_NUMBER, AT(mask_rate), "0.15", .min = 0.01, .max = 0.9, .arg = "X",
        .help = "share of tokens to be guessed" },
    { "shards", KH_OPT_INT, AT(shards), "4", .min = 1, .max = 1024, .arg = "N",
        .help = "parts of a batch that threads share" },
    { "reps", KH_OPT_INT, AT(reps), "5", .min = 1, .max = 10000, .arg = "N",
        .help = "steps; the best counts" },
    { "json", KH_OPT_FLAG, AT(json), .help = "print JSON" },
    { 0 },
};

/* One thread is measured by what it has used, so that other programs do not count. */
static double now(void) { return kh_threads() == 1 ? kh_clock_process() : kh_clock(); }

/* A model of random weights, a batch of random text, an optimiser. */
typedef struct bench {
    const train_opts *o;
    kh_params params;
    kh_layer *no_layer;
    float *w;
    kh_adamw adamw;
    kh_gradient *gradient;
    kh_slot *slot;
    int *start, *first_at, *at;
    int32_t *target;
    int tokens, places;
    float *room; /* operands and results of the products alone */
    size_t room_size;
} bench;

static void bench_free(bench *b) {
    kh_params_free(&b->params);
    kh_adamw_free(&b->adamw);
    kh_gradient_free(b->gradient);
    void *all[] = { b->no_layer, b->w, b->slot, b->start, b->first_at, b->at, b->target, b->room };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        kh_free(all[i]);
}

static void make_text(bench *b) {
    const train_opts *o = b->o;
    kh_rng r = kh_rng_stream(1, KH_RNG_TEST, 0, 0);
    for (int s = 0; s <= o->batch; s++)
        b->start[s] = s * o->seq;
    for (int s = 0; s < o->batch; s++) {
        b->first_at[s] = b->places;
        for (int i = 0; i < o->seq; i++) {
            b->slot[s * o->seq + i] =
                (kh_slot){ (int32_t)kh_rng_below(&r, (uint32_t)o->vocab), -1, -1, 2 + i };
            if (kh_rng_uniform(&r) < o->mask_rate || (i == 1 && b->places == b->first_at[s])) {
                b->at[b->places] = s * o->seq + i;
                b->target[b->places++] = (int32_t)kh_rng_below(&r, (uint32_t)o->vocab);
            }
        }
    }
    b->first_at[o->batch] = b->places;
}

static int bench_init(bench *b, const train_opts *o, kh_err *err) {
    kh_config c = *kh_arch_find("roberta-tiny");
    c.layers = o->layers;
    c.hidden = o->hidden;
    c.heads = o->heads;
    if (c.heads == 0) /* 64 values a head, as BERT and RoBERTa of every size have */
        c.heads = o->hidden >= 64 ? o->hidden / 64 : 1;
    c.inner = o->inner ? o->inner : 4 * o->hidden;
    c.vocab = o->vocab;
    c.positions = o->seq + 2;
    *b = (bench){ .o = o, .tokens = o->batch * o->seq };
    int rc = kh_config_check(&c, "bench train", err);
    if (rc != 0 || (rc = kh_params_init(&b->params, &c, err)) != 0)
        return rc;
    size_t tokens = (size_t)b->tokens, seqs = (size_t)o->batch + 1,
           widest = (size_t)(c.inner > c.vocab ? c.inner : c.vocab);
    size_t rows = tokens / (size_t)o->shards + (size_t)o->seq,
           third = rows * (size_t)(c.inner > 3 * c.hidden ? c.inner : 3 * c.hidden);
    third = third > widest * (size_t)c.hidden ? third : widest * (size_t)c.hidden;
    third = third > rows * widest / 4 ? third : rows * widest / 4;
    b->room_size = third;
    b->no_layer = kh_calloc((size_t)c.layers, sizeof *b->no_layer);
    b->w = kh_aligned(b->params.size * sizeof *b->w);
    b->slot = kh_calloc(tokens, sizeof *b->slot);
    b->start = kh_calloc(seqs, sizeof *b->start);
    b->first_at = kh_calloc(seqs, sizeof *b->first_at);
    b->at = kh_calloc(tokens, sizeof *b->at);
    b->target = kh_calloc(tokens, sizeof *b->target);
    b->room = kh_calloc(3 * third * (size_t)o->shards, sizeof *b->room);
    if (!b->no_layer || !b->w || !b->slot || !b->start || !b->first_at || !b->at || !b->target ||
        !b->room)
        return kh_fail_memory(err);
    kh_params_take(&b->params, &(kh_model){ .config = c, .w = { .layer = b->no_layer } }, 1, b->w);
    make_text(b);
    if ((rc = kh_adamw_init(&b->adamw, &(kh_param_group){ b->params.size, true }, 1, err)) != 0)
        return rc;
    return kh_gradient_new(&b->gradient, &b->params, o->shards, KH_WRT_WEIGHTS, 0, 0, err);
}

static int train_once(bench *b, double *seconds, kh_err *err) {
    kh_packed text = { b->o->batch, b->start, b->slot, b->at, b->first_at };
    kh_lm_loss loss = { .target = b->target, .scale = 1.0 / b->places };
    kh_adamw_opts adamw = kh_adamw_defaults();
    double value, began = now();
    adamw.clip = 1;
    int rc = kh_gradient_run(
        b->gradient, &(kh_pass_f32){ .w = b->w, .text = &text, .loss = &loss }, true, &value, err);
    if (rc == 0)
        kh_adamw_step(&b->adamw, &adamw, 1e-4, b->w, kh_gradient_weights(b->gradient), NULL);
    *seconds = now() - began;
    return rc;
}

/* ------------------------------------------------------------------------------ products alone */

/* y = x w^T, dx = dy w and dw = dy^T x for x [m, k], w [n, k]; returns the floating-point
 * operations. */
static double products(bench *b, int shard, int m, int n, int k, bool run) {
    float *x = b->room + 3 * (size_t)shard * b->room_size, *w = x + b->room_size,
          *y = w + b->room_size;
    if (run) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, x, k, w, k, 0, y, n);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, k, n, 1, y, n, w, k, 0, x, k);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, k, m, 1, y, n, x, k, 0, w, k);
    }
    return 6.0 * m * n * k;
}

/* All products with weights of one shard of a step. */
static double shard_products(bench *b, int shard, bool run) {
    const kh_config *c = &b->params.config;
    int t = b->tokens / b->o->shards, r = b->places / b->o->shards, h = c->hidden;
    double sum = 0;
    for (int l = 0; l < c->layers; l++) {
        int m = l < c->layers - 1 ? t : r;
        sum += l < c->layers - 1
            ? products(b, shard, t, 3 * h, h, run)
            : products(b, shard, t, 2 * h, h, run) + products(b, shard, r, h, h, run);
        sum += products(b, shard, m, h, h, run) + products(b, shard, m, c->inner, h, run) +
            products(b, shard, m, h, c->inner, run);
    }
    return sum + products(b, shard, r, h, h, run) + products(b, shard, r, c->vocab, h, run);
}

static double multiply_once(bench *b) {
    int threads = kh_threads() < b->o->shards ? kh_threads() : b->o->shards;
    double began = now();
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int i = 0; i < b->o->shards; i++)
        shard_products(b, i, true);
    return now() - began;
}

static int run_bench(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args, (void)args;
    const train_opts *o = opts;
    bench b;
    double best = INFINITY, alone = INFINITY, seconds;
    int rc = bench_init(&b, o, err);
    for (int i = 0; i < o->reps && rc == 0; i++) {
        rc = train_once(&b, &seconds, err);
        best = seconds < best ? seconds : best;
        seconds = multiply_once(&b);
        alone = seconds < alone ? seconds : alone;
    }
    if (rc == 0) {
        double work = shard_products(&b, 0, false) * o->shards, speed = b.tokens / best;
        double gflops = work / best * 1e-9, most = work / alone * 1e-9;
        kh_buf out = kh_buf_init(1 << 12);
        kh_json_out j = kh_json_out_init(&out, KH_JSON_COMPACT);
        kh_json_open_object(&j, NULL);
        kh_json_put_int(&j, "layers", o->layers);
        kh_json_put_int(&j, "hidden", o->hidden);
        kh_json_put_int(&j, "seq", o->seq);
        kh_json_put_int(&j, "batch", o->batch);
        kh_json_put_int(&j, "threads", kh_threads());
        kh_json_put_fixed(&j, "tokens_per_second", speed, 0);
        kh_json_put_fixed(&j, "gflops", gflops, 1);
        kh_json_put_fixed(&j, "sgemm_gflops", most, 1);
        kh_json_put_fixed(&j, "share_of_sgemm", alone / best, 3);
        kh_json_close(&j);
        if (o->json)
            rc = cli_print_json(&j, stdout, err);
        else
            printf(
                "%d x %d, sequences of %d, %d a step, %d threads: %.0f tokens/s, %.1f GFLOP/s in "
                "products with weights;\n"
                "the same products alone: %.1f GFLOP/s, so training runs at %.3f of their speed\n",
                o->layers, o->hidden, o->seq, o->batch, kh_threads(), speed, gflops, most,
                alone / best);
        kh_buf_free(&out);
    }
    bench_free(&b);
    return rc;
}

const cli_command cmd_bench_train = {
    .name = "bench train",
    .args = "",
    .summary = "Time steps of training beside their matrix products alone",
    .text = "Makes a random model and random text, and times whole steps of pre-training\n"
            "(forward, backward, AdamW) and, in turn with them, the products with weights\n"
            "that a step needs and nothing else. bench/train_peer.py times PyTorch on the\n"
            "same shapes.\n"
            "\n"
            "  keyhole bench train --layers 6 --hidden 256 --seq 64\n"
            "  keyhole bench train --layers 6 --hidden 384 --seq 64 --threads 2 --json",
    .opts = train_table,
    .opts_size = sizeof(train_opts),
    .run = run_bench,
};
