/* cache.c - questions in units and pieces; see cache.h. */
#include "plm/backend.h"
#include "plm/answer_cache.h"

#include "base/alloc.h"
#include "base/err.h"

#include <assert.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    UNIT_ROWS = 64, /* a prompt with more rows makes several units */
    GROWTH = 8,     /* a piece is at most so many times as large as what the speed is known from */
    EACH = 4, /* prompts for each of several ranks, at least: with fewer, they get crumbs and wait
                 for each other */
};
static const double PIECE_SECONDS =
    2; /* what a kill may cost, and how long Ctrl-C may take, unless EACH makes it more */

/* ---------------------------------------------------------------------------------------- keys */

static void mix(XXH3_state_t *h, const void *bytes, size_t n) { XXH3_128bits_update(h, bytes, n); }

static void mix_int(XXH3_state_t *h, long long x) {
    unsigned char b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (unsigned char)((unsigned long long)x >> (8 * i));
    mix(h, b, sizeof b);
}

/* Every number with its count before it, so that two lists cannot be taken for another two. */
static void mix_words(XXH3_state_t *h, const kh_words *w) {
    mix_int(h, w->n_word);
    for (int i = 0; i < w->n_word; i++) {
        mix_int(h, w->word[i].label);
        mix_int(h, w->word[i].n_id);
        for (int k = 0; k < w->word[i].n_id; k++)
            mix_int(h, w->word[i].id[k]);
    }
    mix_int(h, w->n_label);
    mix_int(h, w->n_variant);
    mix_int(h, w->paper_exact);
}

static void mix_rows(XXH3_state_t *h, const kh_batch *b) {
    mix_int(h, b->n_seq);
    mix_int(h, b->n_slot);
    for (int v = 0; v < b->n_variant; v++)
        mix_int(h, b->n_mask[v]);
    for (int s = 0; s < b->n_seq; s++) {
        mix_int(h, (long long)(b->start[s + 1] - b->start[s]));
        mix_int(h, b->mask[s]);
        mix_int(h, b->slot[s]);
        for (size_t i = b->start[s]; i < b->start[s + 1]; i++)
            mix_int(h, b->id[i]);
    }
}

static XXH128_hash_t hash_rows(const kh_question *q, kh_answer_kind kind) {
    XXH3_state_t h;
    XXH3_128bits_reset(&h);
    mix_int(&h, kind);
    mix_int(&h, q->inject);
    mix_words(&h, q->words);
    mix_rows(&h, q->batch);
    return XXH3_128bits_digest(&h);
}

static kh_answer_key key_of(XXH128_hash_t rows, const float *prompt, size_t n) {
    XXH3_state_t h;
    XXH3_128bits_reset(&h);
    mix_int(&h, (long long)rows.low64);
    mix_int(&h, (long long)rows.high64);
    if (prompt)
        mix(&h, prompt, n * sizeof *prompt);
    XXH128_hash_t k = XXH3_128bits_digest(&h);
    return (kh_answer_key){ k.low64, k.high64 };
}

/* --------------------------------------------------------------------- cells to bytes and back */

const char *kh_answer_kind_name(kh_answer_kind kind) {
    return kind == KH_ANSWER_LABELS  ? "labels"
        : kind == KH_ANSWER_LOGPROBS ? "logprobs"
                                     : "energies";
}

static size_t cell_bytes(kh_answer_kind kind) { return kind == KH_ANSWER_LABELS ? 2 : 4; }

static void encode(kh_answer_kind kind, const uint32_t *cell, size_t n, unsigned char *out) {
    size_t width = cell_bytes(kind);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits; /* the cell may be a float */
        memcpy(&bits, cell + i, sizeof bits);
        for (size_t k = 0; k < width; k++)
            *out++ = (unsigned char)(bits >> (8 * k));
    }
}

static void decode(kh_answer_kind kind, const unsigned char *in, size_t n, uint32_t *cell) {
    size_t width = cell_bytes(kind);
    for (size_t i = 0; i < n; i++) {
        cell[i] = 0;
        for (size_t k = 0; k < width; k++)
            cell[i] |= (uint32_t)*in++ << (8 * k);
    }
}

/* -------------------------------------------------------------------------------------- asking */

/* All that a question on its way through the cache needs. Labels are int and log-probabilities
 * float: both are cells of 32 bits here. */
typedef struct asking {
    const kh_answer_cache *cache;
    kh_plm *plm;
    kh_answer_kind kind;
    kh_ask_fn *ask;
    double *rate;
    kh_question q;        /* the prompts, and the rows of the block at hand */
    size_t prompt;        /* floats of a prompt */
    size_t unit;          /* cells of a unit in this block */
    int n_prompt, fewest; /* prompts in all; in a piece, if there are as many */
    size_t known_from;    /* queries that *rate was measured on */
    kh_answer_key *key;   /* [n_prompt] */
    kh_answer_unit *units;
    uint32_t *cell;       /* [n_prompt, unit] */
    unsigned char *bytes; /* [n_prompt, unit] coded */
    uint32_t *out;        /* of prompt 0 in this block */
    size_t stride;        /* cells between two prompts of out */
} asking;

static kh_question some_prompts(const asking *a, int first, int n) {
    kh_question q = a->q;
    q.prompt = q.prompt ? q.prompt + (size_t)first * a->prompt : NULL;
    q.n_prompt = n;
    return q;
}

static void deliver(const asking *a, int prompt, const uint32_t *cell) {
    memcpy(a->out + (size_t)prompt * a->stride, cell, a->unit * sizeof *cell);
}

/* How many prompts make the next piece. */
static int piece_size(const asking *a) {
    double rows = a->q.batch->n_row, queries = *a->rate * PIECE_SECONDS,
           most = (double)(a->known_from * GROWTH);
    double prompts = (queries < most ? queries : most) / rows;
    return prompts < a->fewest ? a->fewest : prompts > a->n_prompt ? a->n_prompt : (int)prompts;
}

/* Prompts [first, first + n) are not on the cache: asks the box, writes the answers down, hands
 * them on. */
static int ask_piece(asking *a, int first, int n, kh_err *err) {
    kh_question q = some_prompts(a, first, n);
    kh_meter before = kh_plm_meter(a->plm);
    int rc = a->ask(a->plm, &q, a->cell, err);
    if (rc != 0)
        return rc;
    double seconds = kh_plm_meter(a->plm).seconds - before.seconds;
    const kh_batch *b = q.batch;
    for (int i = 0; i < n; i++) {
        unsigned char *bytes = a->bytes + (size_t)i * a->unit * cell_bytes(a->kind);
        encode(a->kind, a->cell + (size_t)i * a->unit, a->unit, bytes);
        a->units[i] = (kh_answer_unit){ .key = a->key[first + i],
            .kind = a->kind,
            .n_row = b->n_row,
            .tokens = (long long)(b->start[b->n_seq] - b->start[0]),
            .seconds = seconds / n,
            .bytes = bytes,
            .n = a->unit * cell_bytes(a->kind) };
    }
    rc = a->cache->record(a->cache->self, a->units, n, err);
    for (int i = 0; i < n && rc == 0; i++)
        deliver(a, first + i, a->cell + (size_t)i * a->unit);
    a->known_from = (size_t)n * (size_t)b->n_row;
    *a->rate = seconds > 0 ? (double)a->known_from / seconds : 1e9;
    return rc;
}

/* Prompt `first` from the cache: 1 if it was there. */
static int recall(asking *a, int first, kh_err *err) {
    double seconds = 0;
    int rc = a->cache->recall(
        a->cache->self, &a->key[first], a->bytes, a->unit * cell_bytes(a->kind), &seconds, err);
    if (rc == 1) {
        decode(a->kind, a->bytes, a->unit, a->cell);
        deliver(a, first, a->cell);
        kh_question q = some_prompts(a, first, 1);
        kh_plm_count(a->plm, &q, seconds);
    }
    return rc;
}

/* Every prompt with the rows of one block. */
static int ask_block(asking *a, kh_err *err) {
    XXH128_hash_t rows = hash_rows(&a->q, a->kind);
    for (int i = 0; i < a->n_prompt; i++)
        a->key[i] =
            key_of(rows, a->q.prompt ? a->q.prompt + (size_t)i * a->prompt : NULL, a->prompt);
    int rc = 0;
    for (int i = 0; i < a->n_prompt && rc == 0;) {
        if (a->cache->stop(a->cache->self))
            return kh_fail(err, KH_STOPPED, "stopped on request");
        rc = recall(a, i, err);
        if (rc == 1) {
            rc = 0;
            i++;
        } else if (rc == 0) {
            int n = 1, most = piece_size(a);
            while (
                i + n < a->n_prompt && n < most && !a->cache->known(a->cache->self, &a->key[i + n]))
                n++;
            rc = ask_piece(a, i, n, err);
            i += n;
        }
    }
    return rc;
}

int kh_answer_cache_ask(const kh_answer_cache *cache, kh_plm *plm, const kh_question *q,
    kh_answer_kind kind, kh_ask_fn *ask, double *rate, void *out, kh_err *err) {
    const kh_batch *b = q->batch;
    int n_prompt = b->n_slot > 0 ? q->n_prompt : 1,
        n_block = (b->n_row + UNIT_ROWS - 1) / UNIT_ROWS, rc = 0;
    if (n_prompt < 1 || b->n_row == 0)
        return ask(plm, q, out, err);
    assert(q->words->n_label <= 65536);
    size_t n_label = (size_t)q->words->n_label, n = (size_t)n_prompt;
    size_t row_cells = kind == KH_ANSWER_LABELS ? 1 : n_label + (kind == KH_ANSWER_ENERGIES);
    size_t most = (size_t)(b->n_row < UNIT_ROWS ? b->n_row : UNIT_ROWS) * row_cells;
    asking a = {
        .cache = cache, .plm = plm, .kind = kind, .ask = ask, .rate = rate, .n_prompt = n_prompt
    };
    kh_plm_info info = kh_plm_describe(plm);
    a.prompt = b->n_slot > 0 ? (size_t)b->n_slot * (size_t)info.hidden : 0;
    a.fewest = info.ranks > 1 ? EACH * info.ranks : 1;
    a.stride = (size_t)b->n_row * row_cells;
    a.known_from =
        *rate > 0 ? n * (size_t)b->n_row : 1; /* after the first question its size says enough */
    a.key = kh_calloc(n, sizeof *a.key);
    a.units = kh_calloc(n, sizeof *a.units);
    a.cell = kh_calloc(n * most, sizeof *a.cell);
    a.bytes = kh_calloc(n * most, 4);
    if (!a.key || !a.units || !a.cell || !a.bytes)
        rc = kh_fail_memory(err);
    for (int k = 0; k < n_block && rc == 0; k++) {
        int first = (int)((long long)b->n_row * k / n_block),
            end = (int)((long long)b->n_row * (k + 1) / n_block);
        kh_batch part = kh_batch_part(b, first, end - first);
        a.q =
            (kh_question){ &part, q->words, q->inject, b->n_slot > 0 ? q->prompt : NULL, n_prompt };
        a.unit = (size_t)(end - first) * row_cells;
        a.out = (uint32_t *)out + (size_t)first * row_cells;
        rc = ask_block(&a, err);
    }
    kh_free(a.key);
    kh_free(a.units);
    kh_free(a.cell);
    kh_free(a.bytes);
    return rc;
}
