/* pretrain.c - the loop of pre-training; see pretrain.h. Setting up, one step, looking at held-out
 * text, the loop. */
#include "train/pretrain.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hooks.h"
#include "model/random_model.h"
#include "train/training.h"
#include "text/tokenizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double SMOOTH = 0.98; /* of the loss that is shown: about the last 50 steps */

/* -------------------------------------------------------------------------------------- set-up */

/* A folder in which training has begun is not started anew by mistake. */
static int find_state(const kh_pretrain_opts *o, bool *there, kh_err *err) {
    char *path = kh_path_join(o->out, "training.json");
    if (!path)
        return kh_fail_memory(err);
    *there = kh_file_exists(path);
    int rc = *there && !o->resume
        ? kh_fail(err, KH_EARG,
              "%s: training has begun in this folder; go on with --resume, or give another --out",
              path)
        : 0;
    kh_free(path);
    return rc;
}

/* The model to start from: what is there already, --init, or fresh weights, which pass through a
 * file so that there is one way to make them. */
static int start_model(kh_training *t, bool there, kh_err *err) {
    const kh_pretrain_opts *o = t->o;
    const char *init = there ? o->out : o->init;
    kh_random_opts fresh = {
        .config = o->config, .dtype = KH_DTYPE_F32, .std = 0.02, .seed = o->seed, .hooks = o->hooks
    };
    kh_model *m = NULL;
    int rc = init ? 0 : kh_random_model_write(o->out, &fresh, err);
    if (rc == 0)
        rc = kh_model_open(&m, init ? init : o->out, &(kh_model_opts){ .hooks = o->hooks }, err);
    if (rc == 0)
        rc = kh_params_init(&t->params, &m->config, err);
    if (rc == 0 && !(t->w = kh_aligned(t->params.size * sizeof *t->w)))
        rc = kh_fail_memory(err);
    if (rc == 0)
        kh_params_take(&t->params, m, o->seed, t->w);
    kh_model_close(m);
    return rc;
}

/* AdamW wants runs of weights that decay and of weights that do not; neighbours of one kind are one
 * run. */
static int start_optimiser(kh_training *t, kh_err *err) {
    kh_param_group *segment = kh_calloc((size_t)t->params.n, sizeof *segment);
    int n = 0;
    if (!segment)
        return kh_fail_memory(err);
    for (int i = 0; i < t->params.n; i++) {
        const kh_param *p = &t->params.item[i];
        bool decay = kh_param_decays(p);
        if (n == 0 || segment[n - 1].decay != decay)
            segment[n++].decay = decay;
        segment[n - 1].n += (size_t)p->rows * (size_t)p->cols;
    }
    int rc = kh_adamw_init(&t->adamw, segment, n, err);
    kh_free(segment);
    return rc;
}

static int longest_phase(const kh_pretrain_opts *o) {
    int longest = 0;
    for (int i = 0; i < o->n_phase; i++)
        longest = o->phase[i].length > longest ? o->phase[i].length : longest;
    return longest;
}

/* Labelled rows, and their tasks' names for whoever uses the model. */
static int start_rows(kh_training *t, const kh_tokenizer *tokenizer, kh_err *err) {
    const kh_pretrain_opts *o = t->o;
    int rc = kh_labelled_read(&t->labelled, tokenizer, &o->rows, longest_phase(o), err);
    for (int i = 0; i < t->labelled.n && rc == 0; i++)
        rc = kh_config_add_seen(&t->params.config, kh_labelled_name(&t->labelled, i), err);
    return rc;
}

/* Held-out sequences of the longest kind, spread over all held-out lines, with masks of their own.
 * Evenly spread and masked once: every look at the held-out loss is about the same tokens, so that
 * a curve over steps compares like with like. */
static int start_held_out(kh_training *t, kh_err *err) {
    const kh_pretrain_opts *o = t->o;
    kh_windows w = { 0 };
    int rc = kh_windows_make(&w, &t->corpus.held_out, longest_phase(o) - 2, o->joined, err);
    size_t tokens = 0, step;
    for (size_t i = 0; i < w.n; i++)
        tokens += (size_t)w.item[i].n + 2;
    step = tokens > (size_t)o->eval_tokens && o->eval_tokens > 0
        ? (tokens + (size_t)o->eval_tokens - 1) / (size_t)o->eval_tokens
        : 1;
    for (size_t i = 0; i < w.n && rc == 0; i += step) {
        kh_rng rng = kh_rng_stream(o->seed, KH_RNG_HELD_OUT, (uint32_t)i, 0);
        if (t->n_held_out == 0 ||
            kh_masked_tokens(&t->held_out[t->n_held_out - 1]) >= o->batch_tokens) {
            if (!kh_grow(&t->held_out, &t->held_out_cap, (size_t)t->n_held_out + 1,
                    sizeof *t->held_out)) {
                rc = kh_fail_memory(err);
                break;
            }
            t->held_out[t->n_held_out++] = (kh_masked){ 0 };
        }
        kh_masked *last = &t->held_out[t->n_held_out - 1];
        rc = kh_masked_add(
            last, &t->masker, t->corpus.held_out.id + w.item[i].at, w.item[i].n, &rng, err);
    }
    kh_free(w.item);
    return rc;
}

/* The recipe is what may not change when training goes on: it decides which batch comes at which
 * step. The schedule may change, and the change is logged. */
static void describe(kh_training *t, const kh_tokenizer *tokenizer) {
    const kh_pretrain_opts *o = t->o;
    kh_buf *r = &t->recipe;
    kh_buf_printf(r,
        "params=%zu tokenizer=%016llx seed=%llu batch-tokens=%d shards=%d mask=%g whole-word=%d "
        "joined=%d",
        t->params.size, (unsigned long long)kh_tokenizer_fingerprint(tokenizer),
        (unsigned long long)o->seed, o->batch_tokens, o->shards, o->mask_rate, o->whole_word,
        o->joined);
    if (o->dropout > 0)
        kh_buf_printf(r, " dropout=%g", o->dropout);
    for (int i = 0; i < o->n_phase; i++)
        kh_buf_printf(r, "%s%d:%g", i ? "," : " phases=", o->phase[i].length, o->phase[i].share);
    for (int i = 0; i < t->corpus.n_file; i++)
        kh_buf_printf(
            r, "%s%zu:%g", i ? "," : " corpus=", t->corpus.file[i].n, t->corpus.weight[i]);
    for (int i = 0; i < t->labelled.n; i++)
        kh_buf_printf(r, "%s%s:%d:%g", i ? "," : " rows=", kh_labelled_name(&t->labelled, i),
            kh_labelled_rows(&t->labelled, i), o->rows.weight[i]);
    if (t->labelled.n > 0)
        kh_buf_printf(r, " rows-share=%g", o->rows_share);
    const kh_adamw_opts *a = &o->adamw;
    if (o->bf16)
        kh_buf_text(&t->schedule, "precision=bf16 ");
    kh_buf_printf(&t->schedule,
        "steps=%ld lr=%g beta1=%g beta2=%g eps=%g weight-decay=%g clip=%g warmup=%g decay=%d "
        "floor=%g",
        o->steps, a->lr, a->beta1, a->beta2, a->eps, a->weight_decay, a->clip, a->warmup, a->decay,
        a->floor);
    kh_buf_text(&t->log, "step\ttokens\tseconds\tloss\theld_out\tlr");
    for (int i = 0; i < o->n_probe; i++)
        kh_buf_printf(&t->log, "\t%s", o->probe_name[i]);
    kh_buf_char(&t->log, '\n');
}

static int check_lengths(const kh_training *t, kh_err *err) {
    int most = kh_config_max_tokens(&t->params.config);
    for (int i = 0; i < t->o->n_phase; i++)
        if (t->o->phase[i].length > most)
            return kh_fail(err, KH_EARG,
                "sequences of %d tokens are longer than the %d that the model can take",
                t->o->phase[i].length, most);
    return 0;
}

static int start_phase(kh_training *t, int phase, kh_err *err) {
    kh_window_sampler_free(&t->sampler);
    t->phase = phase;
    return kh_window_sampler_init(&t->sampler, &t->corpus, t->o->phase[phase].length - 2,
        t->o->joined, t->o->seed, phase, err);
}

/* A failure leaves the folder as it was but for files that were complete before; the order is from
 * cheap to expensive, so that a wrong option is told before minutes of tokenising. */
static int start(kh_training *t, bool *resumed, kh_err *err) {
    const kh_pretrain_opts *o = t->o;
    kh_tokenizer *tokenizer = NULL;
    bool there;
    int rc = find_state(o, &there, err);
    if (rc != 0 || (rc = kh_tokenizer_open(&tokenizer, o->tokenizer, err)) != 0 ||
        (rc = kh_dir_make(o->out, err)) != 0 || (rc = start_model(t, there, err)) != 0 ||
        (rc = check_lengths(t, err)) != 0 ||
        (rc = kh_masker_init(
             &t->masker, tokenizer, &t->params.config, o->mask_rate, o->whole_word, err)) != 0 ||
        (rc = start_optimiser(t, err)) != 0 ||
        (rc = kh_corpus_read(&t->corpus, tokenizer, &o->corpus, err)) != 0 ||
        (rc = start_held_out(t, err)) != 0 || (rc = start_rows(t, tokenizer, err)) != 0 ||
        (rc = kh_gradient_new(&t->gradient, &t->params, o->shards, KH_WRT_WEIGHTS, 0, 0, err)) != 0)
        goto done;
    describe(t, tokenizer);
    t->drawn = kh_calloc((size_t)t->corpus.n_file, sizeof *t->drawn);
    if (!t->drawn || kh_buf_failed(&t->recipe) || kh_buf_failed(&t->schedule) ||
        kh_buf_failed(&t->log)) {
        rc = kh_fail_memory(err);
        goto done;
    }
    if ((o->resume && (rc = kh_training_load(t, resumed, err)) != 0) ||
        (rc = start_phase(t, t->phase, err)) != 0)
        goto done;
    memcpy(t->sampler.drawn, t->drawn, (size_t)t->corpus.n_file * sizeof *t->drawn);
    rc = kh_tokenizer_copy(o->tokenizer, o->out, err);
done:
    kh_tokenizer_close(tokenizer);
    return rc;
}

static void finish(kh_training *t) {
    kh_params_free(&t->params);
    kh_free(t->w);
    kh_adamw_free(&t->adamw);
    kh_corpus_free(&t->corpus);
    kh_window_sampler_free(&t->sampler);
    kh_labelled_free(&t->labelled);
    kh_free(t->weight);
    kh_masker_free(&t->masker);
    kh_masked_free(&t->batch);
    for (int i = 0; i < t->n_held_out; i++)
        kh_masked_free(&t->held_out[i]);
    kh_free(t->held_out);
    kh_gradient_free(t->gradient);
    kh_free(t->drawn);
    kh_buf_free(&t->log);
    kh_buf_free(&t->recipe);
    kh_buf_free(&t->schedule);
}

/* ------------------------------------------------------------------------------------ one step */

/* Phases are shares of the steps: short sequences first are several times cheaper, long ones at the
 * end teach the positions. */
static int wanted_phase(const kh_pretrain_opts *o, long step) {
    double at = (double)step / (double)o->steps, total = 0, sum = 0;
    for (int i = 0; i < o->n_phase; i++)
        total += o->phase[i].share;
    for (int i = 0; i < o->n_phase; i++)
        if (at < (sum += o->phase[i].share / total))
            return i;
    return o->n_phase - 1;
}

/* Rows first: their targets are the first ones. Draws are named by (seed, step, number): step 1000
 * has the same batch whether training came there in one go or in ten. */
static int fill_rows(kh_training *t, kh_err *err) {
    int rc = 0, wanted = (int)(t->o->rows_share * t->o->batch_tokens);
    for (uint32_t i = 0; rc == 0 && kh_masked_tokens(&t->batch) < wanted; i++) {
        kh_rng rng = kh_rng_stream(t->o->seed, KH_RNG_ROWS, (uint32_t)t->step, i);
        rc = kh_labelled_add(&t->labelled, &t->masker, &rng, &t->batch, err);
    }
    return rc;
}

/* Two streams: which windows come, and what is masked in them. */
static int fill_text(kh_training *t, kh_err *err) {
    kh_rng pick = kh_rng_stream(t->o->seed, KH_RNG_PICK, (uint32_t)t->step, (uint32_t)t->phase);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && kh_masked_tokens(&t->batch) < t->o->batch_tokens; i++) {
        const kh_window *w;
        int file;
        if ((rc = kh_window_sampler_next(&t->sampler, &pick, &file, &w, err)) != 0)
            return rc;
        kh_rng mask = kh_rng_stream(t->o->seed, KH_RNG_MASK, (uint32_t)t->step, i);
        rc =
            kh_masked_add(&t->batch, &t->masker, t->corpus.file[file].id + w->at, w->n, &mask, err);
    }
    return rc;
}

/* A row has one target and a text many: without weights the rows would hardly count. Their share
 * of the loss is the share that was asked for; within each kind targets count alike. */
static int weigh_targets(kh_training *t, int rows, kh_err *err) {
    int all = kh_masked_targets(&t->batch);
    double share = rows == all ? 1 : t->o->rows_share;
    if (!kh_grow(&t->weight, &t->weight_cap, (size_t)all, sizeof *t->weight))
        return kh_fail_memory(err);
    for (int i = 0; i < all; i++)
        t->weight[i] = (float)(i < rows ? share / rows : (1 - share) / (all - rows));
    return 0;
}

static int fill_batch(kh_training *t, kh_err *err) {
    kh_masked_clear(&t->batch);
    int rc = t->labelled.n > 0 ? fill_rows(t, err) : 0, rows = kh_masked_targets(&t->batch);
    if (rc == 0)
        rc = fill_text(t, err);
    return rc == 0 && rows > 0 ? weigh_targets(t, rows, err) : rc;
}

/* The loss of a batch, times weights, added up and multiplied by scale. */
static int run_batch(kh_training *t, const kh_masked *b, const float *weight, double scale,
    bool gradients, double *value, kh_err *err) {
    kh_packed text = kh_masked_text(b);
    kh_lm_loss loss = { .target = b->target, .weight = weight, .scale = scale };
    kh_dropout dropout = { t->o->dropout, t->o->seed, (uint32_t)t->step };
    kh_pass_f32 pass = { .w = t->w,
        .text = &text,
        .loss = &loss,
        .dropout = dropout.rate > 0 ? &dropout : NULL,
        .recompute = t->o->recompute,
        .bf16 = t->o->bf16 };
    return kh_gradient_run(t->gradient, &pass, gradients, value, err);
}

/* A loss that is not finite ends training before the weights are touched: the last checkpoint is
 * still good. */
static int train_step(kh_training *t, double *rate, kh_err *err) {
    int phase = wanted_phase(t->o, t->step),
        rc = phase == t->phase ? 0 : start_phase(t, phase, err);
    double loss;
    if (rc != 0 || (rc = fill_batch(t, err)) != 0)
        return rc;
    const float *weight = t->labelled.n > 0 ? t->weight : NULL;
    double scale = weight ? 1 : 1.0 / kh_masked_targets(&t->batch);
    if ((rc = run_batch(t, &t->batch, weight, scale, true, &loss, err)) != 0)
        return rc;
    if (!isfinite(loss))
        return kh_fail(err, KH_ELIMIT,
            "the loss at step %ld is not a number; a lower --lr, a longer --warmup or --clip may "
            "help",
            t->step);
    *rate = kh_adamw_rate(&t->o->adamw, t->step, t->o->steps);
    kh_adamw_step(&t->adamw, &t->o->adamw, *rate, t->w, kh_gradient_weights(t->gradient), NULL);
    t->loss_sum = SMOOTH * t->loss_sum + (1 - SMOOTH) * loss;
    t->loss_weight = SMOOTH * t->loss_weight + (1 - SMOOTH);
    t->tokens += kh_masked_tokens(&t->batch);
    t->step++;
    return 0;
}

/* Held-out loss, probes, a row of the log. Probes measure a folder, as a user would: the model is
 * saved for them first. */
static int look(kh_training *t, double rate, kh_err *err) {
    const kh_pretrain_opts *o = t->o;
    int rc = 0;
    double sum = 0, targets = 0;
    for (int i = 0; i < t->n_held_out && rc == 0; i++) {
        double part;
        rc = run_batch(t, &t->held_out[i], NULL, 1, false, &part, err);
        sum += part;
        targets += kh_masked_targets(&t->held_out[i]);
    }
    t->held_out_loss = targets > 0 ? sum / targets : NAN;
    if (rc == 0 && o->n_probe > 0)
        rc = kh_training_save_model(t, err);
    kh_buf_printf(&t->log, "%ld\t%lld\t%.1f\t%.5f\t%.5f\t%.3e", t->step, t->tokens, t->seconds,
        t->loss_sum / t->loss_weight, t->held_out_loss, rate);
    for (int i = 0; i < o->n_probe && rc == 0; i++) {
        double value;
        rc = o->probe(o->user, o->out, i, &value, err);
        if (rc == 0)
            kh_buf_printf(&t->log, "\t%.5f", value);
    }
    kh_buf_char(&t->log, '\n');
    return rc ? rc : kh_training_save_log(t, err);
}

/* ------------------------------------------------------------------------------------ the loop */

static int report(const kh_training *t, double rate, long long tokens, double seconds) {
    double speed = seconds > 0 ? (double)tokens / seconds : 0,
           per_step = (double)t->tokens / (double)t->step;
    long left = speed > 0 ? (long)((double)(t->o->steps - t->step) * per_step / speed) : 0;
    char note[160];
    snprintf(note, sizeof note,
        "loss=%.4f held-out=%.4f lr=%.2e tokens=%lld tokens/s=%.0f left=%ld:%02ld:%02ld",
        t->loss_sum / t->loss_weight, t->held_out_loss, rate, t->tokens, speed, left / 3600,
        left / 60 % 60, left % 60);
    return kh_report_progress(t->o->hooks, "pretrain", t->step, t->o->steps, note);
}

static const char *loop_end(const kh_training *t, bool asked) {
    if (t->step >= t->o->steps)
        return "steps";
    if (asked)
        return "request";
    return t->o->budget > 0 && t->seconds >= t->o->budget ? "budget" : NULL;
}

/* The model is saved at the end and every checkpoint_every seconds; resuming repeats no step whose
 * state was saved. */
static int run_loop(kh_training *t, const char **stopped, kh_err *err) {
    const kh_pretrain_opts *o = t->o;
    double before = t->seconds, began = kh_clock(), saved = began, rate = 0;
    long long tokens = t->tokens;
    int rc = 0;
    bool asked = false;
    while (!(*stopped = loop_end(t, asked))) {
        if ((rc = train_step(t, &rate, err)) != 0)
            return rc;
        t->seconds = before + kh_clock() - began;
        bool due = t->step % o->eval_every == 0 || t->step == o->steps;
        if (due && (rc = look(t, rate, err)) != 0)
            return rc;
        asked = report(t, rate, t->tokens - tokens, kh_clock() - began) != 0;
        if (kh_clock() - saved >= o->checkpoint_every) {
            if ((rc = kh_training_save(t, err)) != 0)
                return rc;
            saved = kh_clock();
        }
    }
    return kh_training_save(t, err);
}

int kh_pretrain(kh_pretrained *out, const kh_pretrain_opts *o, kh_err *err) {
    kh_training t = { .o = o,
        .held_out_loss = NAN,
        .log = kh_buf_init(KH_BUF_MAX),
        .recipe = kh_buf_init(1 << 16),
        .schedule = kh_buf_init(1 << 16) };
    bool resumed = false;
    *out = (kh_pretrained){ .loss = NAN, .held_out = NAN, .stopped = "" };
    int rc = start(&t, &resumed, err);
    if (rc == 0)
        kh_log(o->hooks, KH_INFO,
            "%s: %zu weights, %zu tokens of text in %d file%s, %zu held out%s", o->out,
            t.params.size, t.corpus.tokens, t.corpus.n_file, t.corpus.n_file == 1 ? "" : "s",
            t.corpus.held_out.n, resumed ? ", resumed" : "");
    if (rc == 0)
        rc = run_loop(&t, &out->stopped, err);
    if (rc == 0)
        *out = (kh_pretrained){ t.step, t.tokens, t.seconds,
            t.loss_weight > 0 ? t.loss_sum / t.loss_weight : NAN, t.held_out_loss, out->stopped };
    finish(&t);
    return rc;
}
