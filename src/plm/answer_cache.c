/* answer_cache.c - questions in units and pieces; see answer_cache.h. */
#include "plm/backend.h"
#include "plm/answer_cache.h"
#include "plm/together.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/err.h"
#include "model/question.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    ROWS_AT_ONCE = 64, /* of services that tell of every row: how often Ctrl-C is looked at */
    UNIT_ROWS = 64,    /* a prompt with more rows makes several units */
    GROWTH = 8, /* a piece is at most so many times as large as what the speed is known from */
    EACH = 4,   /* prompts for each of several ranks, at least: with fewer, they get crumbs and wait
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
    if (w->next) /* answers of encoders keep their keys */
        mix_int(h, 1 + w->mean);
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
    static const char *const NAME[] = { "labels", "logprobs", "energies" };
    return NAME[kind];
}

/* The same cells from (prompt, row) pair number `pair` on. */
static kh_cells cells_from(const kh_cells *c, size_t pair, size_t n_label) {
    return (kh_cells){ c->label ? c->label + pair : NULL,
        c->logprob ? c->logprob + pair * n_label : NULL, c->energy ? c->energy + pair : NULL };
}

static void cells_copy(const kh_cells *to, const kh_cells *from, size_t rows, size_t n_label) {
    if (to->label)
        memcpy(to->label, from->label, rows * sizeof *to->label);
    if (to->logprob)
        memcpy(to->logprob, from->logprob, rows * n_label * sizeof *to->logprob);
    if (to->energy)
        memcpy(to->energy, from->energy, rows * sizeof *to->energy);
}

static size_t row_bytes(const kh_cells *c, size_t n_label) {
    return c->label ? 2 : 4 * (n_label + (c->energy != NULL));
}

static unsigned char *put(unsigned char *out, uint32_t bits, int width) {
    for (int k = 0; k < width; k++)
        *out++ = (unsigned char)(bits >> (8 * k));
    return out;
}

static unsigned char *put_float(unsigned char *out, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return put(out, bits, 4);
}

static uint32_t take(const unsigned char **in, int width) {
    uint32_t bits = 0;
    for (int k = 0; k < width; k++)
        bits |= (uint32_t) * (*in)++ << (8 * k);
    return bits;
}

static float take_float(const unsigned char **in) {
    uint32_t bits = take(in, 4);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void encode(const kh_cells *c, size_t rows, size_t n_label, unsigned char *out) {
    for (size_t r = 0; r < rows; r++) {
        if (c->label)
            out = put(out, (uint32_t)c->label[r], 2);
        for (size_t k = 0; c->logprob && k < n_label; k++)
            out = put_float(out, c->logprob[r * n_label + k]);
        if (c->energy)
            out = put_float(out, c->energy[r]);
    }
}

/* No label of so few: a row that a service refused. */
static int label_of(uint32_t bits, size_t n_label) { return bits < n_label ? (int)bits : -1; }

static void decode(const unsigned char *in, size_t rows, size_t n_label, const kh_cells *c) {
    for (size_t r = 0; r < rows; r++) {
        if (c->label)
            c->label[r] = label_of(take(&in, 2), n_label);
        for (size_t k = 0; c->logprob && k < n_label; k++)
            c->logprob[r * n_label + k] = take_float(&in);
        if (c->energy)
            c->energy[r] = take_float(&in);
    }
}

/* -------------------------------------------------------------------------------------- asking */

/* All that a question on its way through the cache needs. */
typedef struct asking {
    const kh_answer_cache *cache;
    kh_plm *plm;
    kh_answer_kind kind;
    double *rate;
    kh_question q;        /* the prompts, and the rows of the block at hand */
    size_t prompt;        /* floats of a prompt */
    size_t rows, n_label; /* rows of a unit in this block; labels */
    size_t unit;          /* bytes of a unit in this block */
    int n_prompt, fewest; /* prompts in all; in a piece, if there are as many */
    size_t known_from;    /* queries that *rate was measured on */
    kh_answer_key *key;   /* [n_prompt] */
    kh_answer_unit *units;
    kh_cells piece;       /* [n_prompt, rows] what the box has answered */
    unsigned char *bytes; /* [n_prompt, unit] */
    kh_cells out;         /* of prompt 0 in this block */
    size_t stride;        /* rows between two prompts of out */
} asking;

/* Where the answers of a prompt go. */
static kh_cells place_of(const asking *a, int prompt) {
    return cells_from(&a->out, (size_t)prompt * a->stride, a->n_label);
}

static kh_question some_prompts(const asking *a, int first, int n) {
    kh_question q = a->q;
    q.prompt = q.prompt ? q.prompt + (size_t)first * a->prompt : NULL;
    q.n_prompt = n;
    return q;
}

/* How many prompts make the next piece. */
static int piece_size(const asking *a) {
    double rows = a->q.batch->n_row, queries = *a->rate * PIECE_SECONDS,
           most = (double)(a->known_from * GROWTH);
    double prompts = (queries < most ? queries : most) / rows;
    if (prompts < a->fewest)
        return a->fewest;
    return prompts > a->n_prompt ? a->n_prompt : (int)prompts;
}

/* ------------------------------------------------------------------- what a failed question left
 */

static kh_answer_unit unit_of(const asking *a, const kh_question *q, kh_answer_key key, int rows) {
    const kh_batch *b = q->batch;
    return (kh_answer_unit){ .key = key,
        .kind = a->kind,
        .n_row = rows,
        .tokens = (long long)(b->start[b->n_seq] - b->start[0]),
        .bytes = a->bytes };
}

/* One row of a question with one prompt, as a question of its own. *row must outlive it. */
static kh_question one_row(
    const asking *a, const kh_question *q, int prompt, int r, kh_batch *row) {
    kh_question one = *q;
    *row = kh_batch_part(q->batch, r, 1);
    one.batch = row;
    one.prompt = q->prompt ? q->prompt + (size_t)prompt * a->prompt : NULL;
    one.n_prompt = 1;
    return one;
}

static bool is_finite(const kh_cells *c, size_t n_label) {
    bool ok = !c->energy || isfinite(c->energy[0]);
    for (size_t k = 0; c->logprob && k < n_label; k++)
        ok = ok && isfinite(c->logprob[k]);
    return ok;
}

/* The question has failed, but some of it may have been answered, and paid for: each such row is
 * written down. What goes wrong here is nothing to the failure that is told. */
static void keep_parts(asking *a, const kh_question *q, const kh_cells *cells) {
    const unsigned char *answered = kh_plm_answered(a->plm);
    if (!answered || !a->cache->has_parts)
        return;
    int n_row = q->batch->n_row;
    for (int i = 0; i < q->n_prompt * n_row; i++) {
        kh_batch row;
        kh_question one = one_row(a, q, i / n_row, i % n_row, &row);
        kh_cells cell = cells_from(cells, (size_t)i, a->n_label);
        if (!answered[i] || !is_finite(&cell, a->n_label))
            continue;
        encode(&cell, 1, a->n_label, a->bytes);
        kh_answer_unit u =
            unit_of(a, &one, key_of(hash_rows(&one, a->kind), one.prompt, a->prompt), 1);
        u.n = a->unit / a->rows;
        u.part = true;
        if (a->cache->record(a->cache->self, &u, 1, NULL) != 0)
            return;
    }
}

/* Prompt i, of whose rows some may be known one by one: 1 if they were, and all are there now. */
static int patch(asking *a, int i, kh_err *err) {
    kh_question q = some_prompts(a, i, 1);
    int n_row = (int)a->rows, asked = 0, rc = 0;
    size_t each = a->unit / a->rows;
    unsigned char *known = kh_calloc((size_t)n_row, 1);
    if (!known)
        return kh_fail_memory(err);
    for (int r = 0; r < n_row && rc == 0; r++) {
        kh_batch row;
        kh_question one = one_row(a, &q, 0, r, &row);
        kh_answer_key key = key_of(hash_rows(&one, a->kind), one.prompt, a->prompt);
        double seconds = 0;
        if (!a->cache->known(a->cache->self, &key)) {
            asked++;
            continue;
        }
        rc = a->cache->recall(a->cache->self, &key, a->bytes, each, &seconds, err);
        known[r] = rc == 1;
        asked += rc == 0;
        rc = rc == 1 ? 0 : rc;
        kh_cells to = cells_from(&a->piece, (size_t)r, a->n_label);
        if (known[r]) {
            decode(a->bytes, 1, a->n_label, &to);
            kh_plm_count(a->plm, &one, seconds);
        }
    }
    bool some = asked < n_row;
    for (int r = 0, end; r < n_row && rc == 0 && some; r = end) {
        for (end = r + 1; end < n_row && known[end] == known[r]; end++)
            ;
        if (known[r])
            continue;
        kh_batch rows = kh_batch_part(q.batch, r, end - r);
        kh_question rest = q;
        rest.batch = &rows;
        kh_cells to = cells_from(&a->piece, (size_t)r, a->n_label);
        rc = kh_plm_ask_box(a->plm, &rest, &to, err);
        if (rc != 0)
            keep_parts(a, &rest, &to);
    }
    kh_free(known);
    if (rc != 0 || !some)
        return rc;
    encode(&a->piece, a->rows, a->n_label, a->bytes);
    kh_answer_unit u = unit_of(a, &q, a->key[i], asked);
    u.n = a->unit;
    rc = a->cache->record(a->cache->self, &u, 1, err);
    kh_cells to = place_of(a, i);
    cells_copy(&to, &a->piece, a->rows, a->n_label);
    return rc == 0 ? 1 : rc;
}

/* Prompts [first, first + n) are not on the cache: asks the box, writes the answers down, hands
 * them on. */
static int ask_piece(asking *a, int first, int n, kh_err *err) {
    kh_question q = some_prompts(a, first, n);
    kh_meter before = kh_plm_meter(a->plm);
    int rc = kh_plm_ask_box(a->plm, &q, &a->piece, err);
    if (rc != 0) {
        keep_parts(a, &q, &a->piece);
        return rc;
    }
    double seconds = kh_plm_meter(a->plm).seconds - before.seconds;
    const kh_batch *b = q.batch;
    for (int i = 0; i < n; i++) {
        unsigned char *bytes = a->bytes + (size_t)i * a->unit;
        kh_cells cells = cells_from(&a->piece, (size_t)i * a->rows, a->n_label);
        encode(&cells, a->rows, a->n_label, bytes);
        a->units[i] = (kh_answer_unit){ .key = a->key[first + i],
            .kind = a->kind,
            .n_row = b->n_row,
            .tokens = (long long)(b->start[b->n_seq] - b->start[0]),
            .seconds = seconds / n,
            .bytes = bytes,
            .n = a->unit };
    }
    rc = a->cache->record(a->cache->self, a->units, n, err);
    for (int i = 0; i < n && rc == 0; i++) {
        kh_cells to = place_of(a, first + i),
                 from = cells_from(&a->piece, (size_t)i * a->rows, a->n_label);
        cells_copy(&to, &from, a->rows, a->n_label);
    }
    a->known_from = (size_t)n * (size_t)b->n_row;
    *a->rate = seconds > 0 ? (double)a->known_from / seconds : 1e9;
    return rc;
}

/* Prompt `first` from the cache: 1 if it was there. */
static int recall(asking *a, int first, kh_err *err) {
    double seconds = 0;
    int rc = a->cache->recall(a->cache->self, &a->key[first], a->bytes, a->unit, &seconds, err);
    if (rc == 1) {
        kh_cells to = place_of(a, first);
        decode(a->bytes, a->rows, a->n_label, &to);
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
        if (rc == 0 && a->cache->has_parts && a->cache->has_parts(a->cache->self))
            rc = patch(a, i, err);
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

/* Room for a block of `most` rows with every prompt, in the kind of out. */
static bool make_room(asking *a, const kh_cells *out, size_t most) {
    size_t n = (size_t)a->n_prompt, pairs = n * most;
    a->key = kh_calloc(n, sizeof *a->key);
    a->units = kh_calloc(n, sizeof *a->units);
    a->bytes = kh_calloc(pairs, row_bytes(out, a->n_label));
    if (out->label)
        a->piece.label = kh_calloc(pairs, sizeof *a->piece.label);
    if (out->logprob)
        a->piece.logprob = kh_calloc(pairs * a->n_label, sizeof *a->piece.logprob);
    if (out->energy)
        a->piece.energy = kh_calloc(pairs, sizeof *a->piece.energy);
    return a->key && a->units && a->bytes && (!out->label || a->piece.label) &&
        (!out->logprob || a->piece.logprob) && (!out->energy || a->piece.energy);
}

static void free_room(asking *a) {
    kh_free(a->key);
    kh_free(a->units);
    kh_free(a->bytes);
    kh_free(a->piece.label);
    kh_free(a->piece.logprob);
    kh_free(a->piece.energy);
}

/* ---------------------------------------------------------------------------------- row by row */

/* Services that are paid for by the row tell of each answer as it comes. Every pair of a question
 * and a row is a unit of its own and is written down at once: whatever ends the process, no answer
 * that came is asked for again. Answers come in any order, so what is missing may lie anywhere. */
typedef struct pairs_asked {
    const kh_answer_cache *cache;
    kh_plm *plm;
    kh_answer_kind kind;
    const kh_question *q;
    int n, n_row;
    kh_answer_key *key; /* [n, n_row] */
    bool *known;        /* [n, n_row] */
    kh_cells out;
    size_t n_label;
    unsigned char *bytes; /* of one row */
    double since;
} pairs_asked;

static size_t pair_at(const pairs_asked *a, int question, int row) {
    return (size_t)question * (size_t)a->n_row + (size_t)row;
}

static int record_pair(void *user, int question, int row, kh_err *err) {
    pairs_asked *a = user;
    const kh_batch *b = a->q[question].batch;
    size_t pair = pair_at(a, question, row);
    kh_cells cells = cells_from(&a->out, pair, a->n_label);
    double now = kh_clock();
    encode(&cells, 1, a->n_label, a->bytes);
    size_t first = (size_t)row * (size_t)b->n_variant, end = first + (size_t)b->n_variant;
    kh_answer_unit unit = { .key = a->key[pair],
        .kind = a->kind,
        .n_row = 1,
        .tokens = (long long)(b->start[end] - b->start[first]),
        .seconds = now - a->since,
        .bytes = a->bytes,
        .n = row_bytes(&a->out, a->n_label) };
    a->since = now;
    return a->cache->record(a->cache->self, &unit, 1, err);
}

static void key_pairs(pairs_asked *a) {
    for (int k = 0; k < a->n; k++)
        for (int row = 0; row < a->n_row; row++) {
            kh_question one = a->q[k];
            kh_batch part = kh_batch_part(a->q[k].batch, row, 1);
            one.batch = &part;
            a->key[pair_at(a, k, row)] = key_of(hash_rows(&one, a->kind), NULL, 0);
        }
}

/* The answer from the cache: 1 if it was there. `sure`: it must be, or the journal is another's. */
static int recall_pair(pairs_asked *a, int question, int row, bool sure, kh_err *err) {
    double seconds = 0;
    size_t pair = pair_at(a, question, row);
    if (!sure && !a->cache->known(a->cache->self, &a->key[pair]))
        return 0;
    int rc = a->cache->recall(
        a->cache->self, &a->key[pair], a->bytes, row_bytes(&a->out, a->n_label), &seconds, err);
    if (rc == 1) {
        kh_cells to = cells_from(&a->out, pair, a->n_label);
        decode(a->bytes, 1, a->n_label, &to);
        kh_plm_count_pair(a->plm, &a->q[question], question, row, seconds, true);
        a->known[pair] = true;
    }
    return rc;
}

/* The first question of a row whose answer is not known, or -1. */
static int first_unknown(const pairs_asked *a, int row) {
    for (int k = 0; k < a->n; k++)
        if (!a->known[pair_at(a, k, row)])
            return k;
    return -1;
}

/* Rows from `first` on, until enough of them have something to ask; *end: the first that was not
 * looked at. */
static int ask_some_rows(pairs_asked *a, int first, int *end, kh_err *err) {
    int asked = 0, rc = 0;
    for (*end = first; *end < a->n_row && asked < ROWS_AT_ONCE && rc == 0; ++*end) {
        int k = first_unknown(a, *end);
        if (k < 0)
            continue;
        if (asked++ == 0 && a->cache->stop(a->cache->self))
            rc = kh_fail(err, KH_STOPPED, "stopped on request");
        else if (asked == 1) /* complains if answers are left over */
            rc = recall_pair(a, k, *end, true, err);
    }
    if (rc != 0 || asked == 0)
        return rc;
    kh_shared x = { .q = a->q,
        .n = a->n,
        .out = a->out,
        .first = first,
        .end = *end,
        .known = a->known,
        .watch = { record_pair, a } };
    a->since = kh_clock();
    return kh_plm_share_box(a->plm, &x, err);
}

int kh_answer_cache_share(const kh_answer_cache *cache, kh_plm *plm, const kh_question *q, int n,
    const kh_cells *out, kh_err *err) {
    int n_row = q->batch->n_row, rc = 0;
    size_t pairs = (size_t)n * (size_t)n_row;
    pairs_asked a = { .cache = cache,
        .plm = plm,
        .kind = kh_answer_kind_of(out->label, out->energy),
        .q = q,
        .n = n,
        .n_row = n_row,
        .key = kh_calloc(pairs, sizeof *a.key),
        .known = kh_calloc(pairs, sizeof *a.known),
        .out = *out,
        .n_label = (size_t)q->words->n_label };
    a.bytes = kh_calloc(1, row_bytes(out, a.n_label));
    if (a.key && a.known && a.bytes)
        key_pairs(&a);
    else
        rc = kh_fail_memory(err);
    for (int k = 0; k < n; k++)
        for (int row = 0; row < n_row && rc >= 0; row++)
            rc = recall_pair(&a, k, row, false, err);
    rc = rc > 0 ? 0 : rc;
    for (int first = 0, end; first < n_row && rc == 0; first = end)
        rc = ask_some_rows(&a, first, &end, err);
    kh_free(a.key);
    kh_free(a.known);
    kh_free(a.bytes);
    return rc;
}

int kh_answer_cache_ask(const kh_answer_cache *cache, kh_plm *plm, const kh_question *q,
    const kh_cells *out, double *rate, kh_err *err) {
    const kh_batch *b = q->batch;
    int n_prompt = kh_question_prompts(q), n_block = (b->n_row + UNIT_ROWS - 1) / UNIT_ROWS;
    if (n_prompt < 1 || b->n_row == 0)
        return kh_plm_ask_box(plm, q, out, err);
    assert(q->words->n_label <= 65536);
    if (b->n_slot == 0 && kh_plm_shares(plm))
        return kh_answer_cache_share(cache, plm, q, 1, out, err);
    kh_plm_info info = kh_plm_describe(plm);
    asking a = { .cache = cache,
        .plm = plm,
        .kind = kh_answer_kind_of(out->label, out->energy),
        .rate = rate,
        .n_prompt = n_prompt,
        .n_label = (size_t)q->words->n_label,
        .prompt = (size_t)b->n_slot * (size_t)info.hidden,
        .fewest = info.ranks > 1 ? EACH * info.ranks : 1,
        .stride = (size_t)b->n_row,
        /* after the first question its size says enough */
        .known_from = *rate > 0 ? kh_question_pairs(q) : 1 };
    size_t most = (size_t)(b->n_row < UNIT_ROWS ? b->n_row : UNIT_ROWS);
    int rc = make_room(&a, out, most) ? 0 : kh_fail_memory(err);
    for (int k = 0; k < n_block && rc == 0; k++) {
        int first = (int)((long long)b->n_row * k / n_block),
            end = (int)((long long)b->n_row * (k + 1) / n_block);
        kh_batch part = kh_batch_part(b, first, end - first);
        a.q =
            (kh_question){ &part, q->words, q->inject, b->n_slot > 0 ? q->prompt : NULL, n_prompt };
        a.rows = (size_t)(end - first);
        a.unit = a.rows * row_bytes(out, a.n_label);
        a.out = cells_from(out, (size_t)first, a.n_label);
        rc = ask_block(&a, err);
    }
    free_room(&a);
    return rc;
}
