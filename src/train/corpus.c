/* corpus.c - text files into lines of ids, and windows over them; see corpus.h. A file is read
 * whole, cut into chunks of whole lines, and the chunks are encoded in parallel and joined in
 * order. */
#include "train/corpus.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hooks.h"
#include "base/map.h"

#include <limits.h>
#include <string.h>

/* A chunk keeps a thread busy for a while; fewer than four tokens leave nothing to predict from. */
enum { CHUNK_BYTES = 1 << 20, SHORTEST = 4 };
/* 64 GB: a wrong path, not a corpus. */
#define FILE_MAX_BYTES ((size_t)1 << 36)

static bool lines_add(kh_lines *l, const int32_t *id, size_t n) {
    if (!kh_grow(&l->id, &l->cap, l->n + n, sizeof *l->id) ||
        !kh_grow(&l->start, &l->line_cap, l->n_line + 2, sizeof *l->start))
        return false;
    memcpy(l->id + l->n, id, n * sizeof *id);
    l->start[l->n_line] = l->n;
    l->n += n;
    l->start[++l->n_line] = l->n;
    return true;
}

static bool lines_join(kh_lines *to, const kh_lines *from) {
    for (size_t i = 0; i < from->n_line; i++)
        if (!lines_add(to, from->id + from->start[i], from->start[i + 1] - from->start[i]))
            return false;
    return true;
}

static void lines_free(kh_lines *l) {
    kh_free(l->id);
    kh_free(l->start);
    *l = (kh_lines){ 0 };
}

/* ------------------------------------------------------------------------------------- reading */

typedef struct chunk {
    const char *text;
    size_t n;
    kh_lines train, held_out;
    int rc;
    kh_err err;
} chunk;

/* The same text gives the same answer, whatever file it is in. By the hash of the line: a line that
 * stands in two files, or in a later version of one, stays on the side where it was. The multiplier
 * spreads the hash's bits to the top ones. */
static bool is_held_out(const char *line, size_t n, double share) {
    return (double)(kh_hash64(line, n) * 0x9E3779B97F4A7C15u >> 32) < share * 4294967296.0;
}

/* Every line ends in EOS: joined windows run over line ends, and the model should see where they
 * are. */
static int encode_line(chunk *c, const kh_tokenizer *t, const char *line, size_t n, double share,
    kh_ids *ids, kh_err *err) {
    int32_t eos = kh_tokenizer_special(t, KH_TOKEN_EOS);
    ids->n = 0;
    int rc = kh_tokenizer_encode(t, line, n, KH_ENCODE_PLAIN, ids, err);
    if (rc != 0 || ids->n == 0)
        return rc;
    if (!kh_grow(&ids->id, &ids->cap, (size_t)ids->n + 1, sizeof *ids->id))
        return kh_fail_memory(err);
    ids->id[ids->n++] = eos;
    return lines_add(
               is_held_out(line, n, share) ? &c->held_out : &c->train, ids->id, (size_t)ids->n)
        ? 0
        : kh_fail_memory(err);
}

static void encode_chunk(chunk *c, const kh_tokenizer *t, double share) {
    kh_ids ids = { 0 };
    for (size_t at = 0; at < c->n && c->rc == 0;) {
        const char *end = memchr(c->text + at, '\n', c->n - at);
        size_t n = end ? (size_t)(end - c->text) - at : c->n - at;
        c->rc = encode_line(c, t, c->text + at, n, share, &ids, &c->err);
        at += n + 1;
    }
    kh_ids_free(&ids);
}

/* Chunks of whole lines; returns how many. */
static size_t cut_text(const char *text, size_t n, chunk *out) {
    size_t count = 0;
    for (size_t at = 0; at < n; count++) {
        size_t to = n - at > CHUNK_BYTES ? at + CHUNK_BYTES : n;
        const char *end = to < n ? memchr(text + to, '\n', n - to) : NULL;
        to = end ? (size_t)(end - text) + 1 : n;
        out[count] = (chunk){ .text = text + at, .n = to - at };
        at = to;
    }
    return count;
}

static int join_chunk(chunk *c, kh_lines *train, kh_lines *held_out, int rc, kh_err *err) {
    if (rc == 0 && c->rc != 0) {
        rc = c->rc;
        if (err)
            *err = c->err;
    }
    if (rc == 0 && (!lines_join(train, &c->train) || !lines_join(held_out, &c->held_out)))
        rc = kh_fail_memory(err);
    lines_free(&c->train);
    lines_free(&c->held_out);
    return rc;
}

/* Chunks are joined in the order of the file: ids do not depend on the number of threads. */
static int read_file(kh_lines *train, kh_lines *held_out, const kh_tokenizer *t, const char *path,
    double share, kh_err *err) {
    kh_buf text;
    int rc = kh_file_read(path, FILE_MAX_BYTES, &text, err);
    chunk *all = rc == 0 ? kh_calloc(text.len / CHUNK_BYTES + 1, sizeof *all) : NULL;
    if (rc == 0 && !all)
        rc = kh_fail_memory(err);
    if (rc == 0 && text.len > 4 &&
        (memcmp(text.data, "\xFD\x37zXZ", 5) == 0 || memcmp(text.data, "\x1F\x8B\x08", 3) == 0))
        rc = kh_fail(err, KH_EUNSUPPORTED,
            "%s: is compressed, expected plain text; unpack it first (xz -d, gunzip)", path);
    size_t n = rc == 0 ? cut_text(text.data, text.len, all) : 0;
#pragma omp parallel for num_threads(kh_threads()) schedule(dynamic, 1)
    for (size_t i = 0; i < n; i++)
        encode_chunk(&all[i], t, share);
    for (size_t i = 0; i < n; i++)
        rc = join_chunk(&all[i], train, held_out, rc, err);
    kh_free(all);
    kh_buf_free(&text);
    return rc;
}

int kh_corpus_read(kh_corpus *c, const kh_tokenizer *t, const kh_corpus_opts *o, kh_err *err) {
    size_t files = (size_t)o->n_file;
    *c = (kh_corpus){ .n_file = o->n_file,
        .file = kh_calloc(files, sizeof *c->file),
        .weight = kh_calloc(files, sizeof *c->weight) };
    int rc = c->file && c->weight ? 0 : kh_fail_memory(err);
    for (int i = 0; i < o->n_file && rc == 0; i++) {
        c->weight[i] = o->weight[i];
        rc =
            read_file(&c->file[i], &c->held_out, t, o->file[i], o->valid ? 0 : o->valid_share, err);
        if (rc == 0 && c->file[i].n == 0)
            rc = kh_fail(err, KH_EFORMAT, "%s: holds no text to train on", o->file[i]);
        c->tokens += c->file[i].n;
        if (rc == 0 && kh_report_progress(o->hooks, "tokenise", i + 1, o->n_file, NULL) != 0)
            rc = kh_fail(err, KH_STOPPED, "%s: stopped on request", o->file[i]);
    }
    if (rc == 0 && o->valid)
        rc = read_file(&c->held_out, &c->held_out, t, o->valid, 0, err);
    return rc;
}

void kh_corpus_free(kh_corpus *c) {
    for (int i = 0; i < c->n_file && c->file; i++)
        lines_free(&c->file[i]);
    lines_free(&c->held_out);
    kh_free(c->file);
    kh_free(c->weight);
    *c = (kh_corpus){ 0 };
}

/* ------------------------------------------------------------------------------------- windows */

static bool windows_add(kh_windows *w, size_t at, size_t n) {
    if (!kh_grow(&w->item, &w->cap, w->n + 1, sizeof *w->item))
        return false;
    w->item[w->n++] = (kh_window){ at, (int)n };
    return true;
}

/* Pieces of n tokens from `at` on, all of about one length. */
static bool cut_pieces(kh_windows *w, size_t at, size_t n, size_t longest) {
    size_t pieces = (n + longest - 1) / longest;
    for (size_t i = 0; i < pieces; i++) {
        size_t from = n * i / pieces, to = n * (i + 1) / pieces;
        if (to - from >= SHORTEST && !windows_add(w, at + from, to - from))
            return false;
    }
    return true;
}

/* joined: windows of full length across lines. Otherwise a line is a sequence of its own, and a
 * long one is cut into pieces of about one length rather than a full one and a rest. */
int kh_windows_make(kh_windows *w, const kh_lines *l, int longest, bool joined, kh_err *err) {
    size_t most = (size_t)longest;
    bool ok = true;
    for (size_t at = 0; joined && ok && at + SHORTEST < l->n; at += most)
        ok = windows_add(w, at, l->n - 1 - at < most ? l->n - 1 - at : most);
    for (size_t i = 0; !joined && ok && i < l->n_line; i++)
        ok = cut_pieces(
            w, l->start[i], l->start[i + 1] - l->start[i] - 1, most); /* without the EOS */
    return ok ? 0 : kh_fail_memory(err);
}

int kh_window_sampler_init(kh_window_sampler *s, const kh_corpus *c, int longest, bool joined,
    uint64_t seed, int phase, kh_err *err) {
    size_t n = (size_t)c->n_file;
    *s = (kh_window_sampler){ .n_file = c->n_file,
        .seed = seed,
        .phase = phase,
        .windows = kh_calloc(n, sizeof *s->windows),
        .order = kh_calloc(n, sizeof *s->order),
        .epoch = kh_calloc(n, sizeof *s->epoch),
        .share = kh_calloc(n, sizeof *s->share),
        .drawn = kh_calloc(n, sizeof *s->drawn) };
    int rc = s->windows && s->order && s->epoch && s->share && s->drawn ? 0 : kh_fail_memory(err);
    double total = 0;
    for (int i = 0; i < c->n_file && rc == 0; i++) {
        rc = kh_windows_make(&s->windows[i], &c->file[i], longest, joined, err);
        if (rc == 0 && s->windows[i].n > INT_MAX)
            rc = kh_fail(err, KH_ELIMIT, "the corpus has more than %d windows of %d tokens",
                INT_MAX, longest);
        s->epoch[i] = -1;
        s->share[i] = c->weight[i] * (double)s->windows[i].n;
        total += s->share[i];
    }
    if (rc == 0 && total <= 0)
        rc = kh_fail(err, KH_EARG,
            "the corpus holds no line of %d tokens or more, or all its weights are 0",
            (int)SHORTEST);
    return rc;
}

void kh_window_sampler_free(kh_window_sampler *s) {
    for (int i = 0; i < s->n_file; i++) {
        if (s->windows)
            kh_free(s->windows[i].item);
        if (s->order)
            kh_free(s->order[i]);
    }
    kh_free(s->windows);
    kh_free(s->order);
    kh_free(s->epoch);
    kh_free(s->share);
    kh_free(s->drawn);
    *s = (kh_window_sampler){ 0 };
}

/* Without replacement within an epoch of a file: its order is a permutation named by (file, phase,
 * epoch), so that a resumed run needs the counts alone. */
int kh_window_sampler_next(
    kh_window_sampler *s, kh_rng *rng, int *file, const kh_window **window, kh_err *err) {
    int f = *file = kh_rng_categorical(rng, s->share, s->n_file);
    kh_windows *w = &s->windows[f];
    long epoch = (long)(s->drawn[f] / w->n);
    if (!s->order[f] && !(s->order[f] = kh_malloc(w->n * sizeof **s->order)))
        return kh_fail_memory(err);
    if (s->epoch[f] != epoch) {
        kh_rng shuffle = kh_rng_stream(
            s->seed, KH_RNG_EPOCH, (uint32_t)f, (uint32_t)s->phase << 20 | (uint32_t)epoch);
        kh_rng_permutation(&shuffle, s->order[f], (int)w->n);
        s->epoch[f] = epoch;
    }
    *window = &w->item[s->order[f][s->drawn[f]++ % w->n]];
    return 0;
}
