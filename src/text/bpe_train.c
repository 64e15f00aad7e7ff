/* bpe_train.c - byte-pair encoding, learned.
 *
 * Every distinct word of the corpus starts as its bytes. Then, until the vocabulary is full: take
 * the adjacent pair of tokens that occurs most often (each word weighs as often as it was seen; of
 * equals, the pair with the smallest first id, then the smallest second id, which is the rule of
 * Hugging Face's trainer), make it a token, and replace it in all words, from left to right.
 *
 * Work is proportional to what changes. All words lie in one array of cells; a token stands in its
 * first cell, and the cells that it has swallowed tell how long it is, so that neighbours are found
 * without a scan, however long the word. A pair knows its places; a queue keeps pairs by count.
 * When c = (a, b) is merged, only pairs beside an occurrence lose or gain, and each gained pair
 * holds c. A pair gains only in the step that makes the younger of its two tokens, because no token
 * can be made by two different pairs: merges are applied everywhere, in one order, so a stretch of
 * bytes inside token borders is always cut alike. Hence after its step a pair only loses; its count
 * in the queue is an upper bound that is corrected when the pair comes up, its list of places is
 * written once, in ascending order, and one that starts below the minimum frequency is never
 * stored. All lists together are at most three times as long as the words. */
#include "text/bpe_train.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/hooks.h"
#include "base/json_out.h"
#include "base/utf8.h"
#include "text/bytelevel.h"

#include <string.h>

/* Where a pair occurs: the cell of its first token, and the word, for its weight. */
typedef struct place {
    uint32_t cell;
    int word;
} place;

typedef struct pair {
    uint64_t key; /* first id << 32 | second id */
    int64_t count;
    size_t first, n; /* into places; some may have gone since */
} pair;

/* A place of a pair that was made in the current step. */
typedef struct gained {
    int pair;
    place place;
} gained;

typedef struct queued {
    int64_t count; /* when it was queued: at least what it is now */
    uint64_t key;
    int pair;
} queued;

typedef struct trainer {
    int64_t min_count;
    int vocab;
    /* tokens */
    kh_arena texts;
    const char **token; /* [vocab] as it stands in the vocabulary: bytes as printable characters */
    int n_token, n_merge;
    uint64_t *merge; /* [vocab] keys, in the order learned */
    kh_map special;  /* text -> id; a merge that spells a special token gets its id */
    /* words */
    int32_t *cells;
    int64_t *weight; /* how often a word was seen */
    /* pairs */
    pair *pairs;
    size_t n_pair, pairs_cap;
    int *table; /* open addressing: index into pairs, or -1 */
    size_t table_cap;
    place *places; /* the lists */
    size_t n_place, places_cap;
    queued *queue; /* a heap */
    size_t n_queue, queue_cap;
    /* the current step */
    pair *fresh; /* the pairs made, all with the new token c */
    gained *gained;
    size_t n_fresh, fresh_cap, n_gained, gained_cap;
    int *left, *right; /* [vocab] of token x: 1 + index into fresh of (x, c) and of (c, x), or 0 */
    bool failed;       /* out of memory */
} trainer;

static uint64_t pair_key(int32_t a, int32_t b) { return (uint64_t)(uint32_t)a << 32 | (uint32_t)b; }

/* ---------------------------------------------------------------------------------- vocabulary */

/* Adds a token; its text is kept. Returns its id, or -1 when out of memory. */
static int add_token(trainer *t, const char *text, size_t n) {
    const char *copy = kh_arena_strndup(&t->texts, text, n);
    if (!copy)
        return -1;
    t->token[t->n_token] = copy;
    return t->n_token++;
}

static int add_specials(trainer *t, const kh_bpe_opts *o, kh_err *err) {
    for (int k = 0; k < o->n_special; k++) {
        const char *s = o->special[k];
        int id = add_token(t, s, strlen(s));
        if (id < 0 || kh_map_add(&t->special, t->token[id], strlen(s), id, NULL) < 0)
            return kh_fail_memory(err);
    }
    return 0;
}

/* The 256 bytes in the order of the characters that stand for them; id[byte] becomes the token. */
static int add_bytes(trainer *t, int32_t id[256], kh_err *err) {
    for (uint32_t c = 0; c < 0x144; c++) {
        char s[4];
        int b = kh_char_byte(c), n = kh_utf8_put(c, s);
        if (b < 0 || kh_map_get(&t->special, s, (size_t)n, &id[b]))
            continue;
        if ((id[b] = add_token(t, s, (size_t)n)) < 0)
            return kh_fail_memory(err);
    }
    return 0;
}

/* The token of a merge, new unless its text is that of a special token; -1 when out of memory. */
static int32_t merged_token(trainer *t, uint64_t key) {
    const char *a = t->token[key >> 32], *b = t->token[(uint32_t)key];
    size_t na = strlen(a), nb = strlen(b);
    char *text = kh_arena_alloc(&t->texts, na + nb + 1);
    if (!text)
        return -1;
    memcpy(text, a, na);
    memcpy(text + na, b, nb);
    int32_t id;
    if (kh_map_get(&t->special, text, na + nb, &id))
        return id;
    t->token[t->n_token] = text;
    return t->n_token++;
}

/* ----------------------------------------------------------------------------- pairs and queue */

static size_t slot_of(const trainer *t, uint64_t key) {
    uint64_t h = key * 0x9E3779B97F4A7C15u;
    size_t mask = t->table_cap - 1, i = (size_t)(h ^ h >> 32) & mask;
    while (t->table[i] >= 0 && t->pairs[t->table[i]].key != key)
        i = (i + 1) & mask;
    return i;
}

/* Doubles the table, which is at most half full. */
static bool grow_table(trainer *t) {
    size_t cap = t->table_cap ? t->table_cap * 2 : 1024;
    int *bigger = kh_calloc(cap, sizeof *bigger);
    if (!bigger)
        return false;
    kh_free(t->table);
    t->table = bigger;
    t->table_cap = cap;
    memset(bigger, 0xFF, cap * sizeof *bigger);
    for (size_t k = 0; k < t->n_pair; k++)
        bigger[slot_of(t, t->pairs[k].key)] = (int)k;
    return true;
}

static bool is_before(const queued *a, const queued *b) {
    return a->count > b->count || (a->count == b->count && a->key < b->key);
}

static bool queue_push(trainer *t, queued q) {
    if (!kh_grow(&t->queue, &t->queue_cap, t->n_queue + 1, sizeof *t->queue))
        return false;
    size_t i = t->n_queue++;
    for (; i > 0 && is_before(&q, &t->queue[(i - 1) / 2]); i = (i - 1) / 2)
        t->queue[i] = t->queue[(i - 1) / 2];
    t->queue[i] = q;
    return true;
}

static queued queue_pop(trainer *t) {
    queued top = t->queue[0], last = t->queue[--t->n_queue];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < t->n_queue) {
        if (child + 1 < t->n_queue && is_before(&t->queue[child + 1], &t->queue[child]))
            child++;
        if (!is_before(&t->queue[child], &last))
            break;
        t->queue[i] = t->queue[child];
        i = child;
    }
    t->queue[i] = last;
    return top;
}

/* Stores a pair that occurs often enough and queues it. */
static bool add_pair(trainer *t, pair p) {
    if (t->n_pair >= INT32_MAX || (t->n_pair * 2 >= t->table_cap && !grow_table(t)) ||
        !kh_grow(&t->pairs, &t->pairs_cap, t->n_pair + 1, sizeof *t->pairs))
        return false;
    int at = (int)t->n_pair++;
    t->pairs[at] = p;
    t->table[slot_of(t, p.key)] = at;
    return queue_push(t, (queued){ p.count, p.key, at });
}

/* --------------------------------------------------------------------------------------- words */

/* A cell holds the id of the token that starts there, or a negative number: BORDER before, between
 * and after words, else a cell inside a token. Of a token of n > 1 cells the second and the last
 * hold -n. */
enum { BORDER = INT32_MIN, INSIDE = -1 };

static size_t length_at(const int32_t *cells, size_t at) {
    int32_t second = cells[at + 1];
    return second < 0 && second != BORDER ? (size_t)-second : 1;
}

/* The cell of the token that ends before `at`; only if there is one. */
static size_t before(const int32_t *cells, size_t at) {
    return cells[at - 1] < 0 ? at - (size_t)-cells[at - 1] : at - 1;
}

static int load_words(trainer *t, const kh_counts *from, const int32_t id[256], kh_err *err) {
    size_t n = 1, at = 0;
    for (int k = 0; k < from->n; k++)
        n += (size_t)from->word[k].len + 1;
    t->cells = n <= UINT32_MAX ? kh_calloc(n, sizeof *t->cells)
                               : NULL; /* places number cells with 32 bits */
    t->weight = kh_calloc((size_t)from->n, sizeof *t->weight);
    if (!t->cells || !t->weight)
        return kh_fail_memory(err);
    t->cells[at++] = BORDER;
    for (int k = 0; k < from->n; k++) {
        const kh_counted *w = &from->word[k];
        t->weight[k] = (int64_t)w->count;
        for (uint32_t i = 0; i < w->len; i++)
            t->cells[at++] = id[(uint8_t)w->text[i]];
        t->cells[at++] = BORDER;
    }
    return 0;
}

/* Counts every pair of bytes and its places in square[first * 256 + second]. */
static void tally(pair *square, const kh_counts *from) {
    for (int w = 0; w < from->n; w++) {
        const uint8_t *s = (const uint8_t *)from->word[w].text;
        for (uint32_t i = 0; i + 1 < from->word[w].len; i++) {
            pair *p = &square[s[i] * 256 + s[i + 1]];
            p->count += (int64_t)from->word[w].count;
            p->n++;
        }
    }
}

/* Writes the places of each pair that occurs often enough into its list; p->n counts them anew. */
static void list_places(pair *square, const kh_counts *from, int64_t min_count, place *places) {
    size_t cell = 1;
    for (int w = 0; w < from->n; w++) {
        const uint8_t *s = (const uint8_t *)from->word[w].text;
        for (uint32_t i = 0; i + 1 < from->word[w].len; i++) {
            pair *p = &square[s[i] * 256 + s[i + 1]];
            if (p->count >= min_count)
                places[p->first + p->n++] = (place){ (uint32_t)(cell + i), w };
        }
        cell += (size_t)from->word[w].len + 1;
    }
}

/* The pairs of bytes, all counted at once. */
static int first_pairs(trainer *t, const kh_counts *from, const int32_t id[256], kh_err *err) {
    enum { SQUARE = 256 * 256 };
    pair *square = kh_calloc(SQUARE, sizeof *square);
    int rc = square ? 0 : kh_fail_memory(err);
    if (rc != 0)
        goto done;
    tally(square, from);
    for (int k = 0; k < SQUARE; k++) {
        square[k].key = pair_key(id[k / 256], id[k % 256]);
        square[k].first = t->n_place;
        t->n_place += square[k].count >= t->min_count ? square[k].n : 0;
        square[k].n = 0;
    }
    if (!kh_grow(&t->places, &t->places_cap, t->n_place, sizeof *t->places)) {
        rc = kh_fail_memory(err);
        goto done;
    }
    list_places(square, from, t->min_count, t->places);
    for (int k = 0; k < SQUARE && rc == 0; k++)
        if (square[k].count >= t->min_count && !add_pair(t, square[k]))
            rc = kh_fail_memory(err);
done:
    kh_free(square);
    return rc;
}

/* ------------------------------------------------------------------------------------- merging */

/* The fresh pair (x, y), one of which is the new token c; made on first use. NULL when out of
 * memory. */
static pair *fresh_pair(trainer *t, int32_t x, int32_t y, int32_t c) {
    int *at = y == c ? &t->left[x] : &t->right[y];
    if (*at > 0)
        return &t->fresh[*at - 1];
    if (!kh_grow(&t->fresh, &t->fresh_cap, t->n_fresh + 1, sizeof *t->fresh)) {
        t->failed = true;
        return NULL;
    }
    t->fresh[t->n_fresh] = (pair){ .key = pair_key(x, y) };
    *at = (int)++t->n_fresh;
    return &t->fresh[t->n_fresh - 1];
}

static void gain(trainer *t, int32_t x, int32_t y, int32_t c, size_t cell, int word) {
    pair *p = fresh_pair(t, x, y, c);
    if (!p)
        return;
    if (!kh_grow(&t->gained, &t->gained_cap, t->n_gained + 1, sizeof *t->gained)) {
        t->failed = true;
        return;
    }
    t->gained[t->n_gained++] = (gained){ (int)(p - t->fresh), { (uint32_t)cell, word } };
    p->count += t->weight[word];
    p->n++;
}

static void lose(trainer *t, int32_t x, int32_t y, int32_t c, int word) {
    if (x == c ||
        y == c) { /* gained a moment ago: in "abab" the second ab turns (ab, a) into (ab, ab) */
        pair *p = fresh_pair(t, x, y, c);
        if (p)
            p->count -= t->weight[word];
        return;
    }
    int at = t->table[slot_of(t, pair_key(x, y))];
    if (at >= 0)
        t->pairs[at].count -= t->weight[word];
}

/* Replaces a b by c at one of the places that (a, b) had, unless it is gone. */
static void merge_at(trainer *t, place at, int32_t a, int32_t b, int32_t c) {
    int32_t *cells = t->cells;
    size_t first = at.cell;
    if (cells[first] != a)
        return;
    size_t second = first + length_at(cells, first);
    if (cells[second] != b)
        return;
    size_t end = second + length_at(cells, second);
    if (cells[first - 1] != BORDER) {
        size_t previous = before(cells, first);
        lose(t, cells[previous], a, c, at.word);
        gain(t, cells[previous], c, c, previous, at.word);
    }
    if (cells[end] != BORDER) {
        lose(t, b, cells[end], c, at.word);
        gain(t, c, cells[end], c, first, at.word);
    }
    cells[first] = c;
    cells[second] = INSIDE;
    cells[first + 1] = cells[end - 1] = -(int32_t)(end - first);
}

/* Turns what a step gained into pairs with their lists of places, and empties the step. */
static bool settle(trainer *t) {
    size_t need = t->n_place;
    for (size_t k = 0; k < t->n_fresh; k++) {
        pair *p = &t->fresh[k];
        t->left[p->key >> 32] = t->right[(uint32_t)p->key] = 0;
        p->first = need;
        need += p->count >= t->min_count ? p->n : 0;
        p->n = 0;
    }
    if (!kh_grow(&t->places, &t->places_cap, need, sizeof *t->places))
        return false;
    for (size_t k = 0; k < t->n_gained; k++) {
        pair *p = &t->fresh[t->gained[k].pair];
        if (p->count >= t->min_count)
            t->places[p->first + p->n++] = t->gained[k].place;
    }
    for (size_t k = 0; k < t->n_fresh; k++)
        if (t->fresh[k].count >= t->min_count && !add_pair(t, t->fresh[k]))
            return false;
    t->n_place = need;
    t->n_fresh = t->n_gained = 0;
    return true;
}

/* The pair to merge next, or NULL when none occurs often enough. */
static const pair *next_pair(trainer *t) {
    while (t->n_queue > 0) {
        queued q = queue_pop(t);
        const pair *p = &t->pairs[q.pair];
        if (p->count == q.count)
            return p;
        q.count = p->count;
        if (q.count >= t->min_count)
            queue_push(t, q); /* cannot fail: its room was just freed */
    }
    return NULL;
}

static int learn(trainer *t, const kh_hooks *hooks, kh_err *err) {
    int start = t->n_token, total = t->vocab - start, step = total / 50 + 1, rc = 0;
    while (t->n_token < t->vocab && rc == 0) {
        const pair *p = next_pair(t);
        if (!p)
            break;
        uint64_t key = p->key;
        size_t first = p->first, last = first + p->n;
        int32_t a = (int32_t)(key >> 32), b = (int32_t)(uint32_t)key, c = merged_token(t, key);
        if (c < 0)
            return kh_fail_memory(err);
        t->merge[t->n_merge++] = key;
        for (size_t k = first; k < last; k++)
            merge_at(t, t->places[k], a, b, c);
        if (t->failed || !settle(t))
            return kh_fail_memory(err);
        if ((t->n_token - start) % step == 0 || t->n_token == t->vocab)
            rc = kh_report_progress(hooks, "merge pairs", t->n_token - start, total, NULL);
    }
    return rc;
}

/* ---------------------------------------------------------------------------------------- JSON */

static void put_added(kh_json_out *j, const kh_bpe_opts *o) {
    kh_json_gap(j, "\n  ");
    kh_json_open_array(j, "added_tokens");
    for (int k = 0; k < o->n_special; k++) {
        kh_json_gap(j, "\n    ");
        kh_json_open_object(j, NULL);
        kh_json_put_int(j, "id", k);
        kh_json_put_string(j, "content", o->special[k]);
        kh_json_put_bool(j, "single_word", false);
        kh_json_put_bool(
            j, "lstrip", o->style == KH_BPE_ROBERTA && strcmp(o->special[k], "<mask>") == 0);
        kh_json_put_bool(j, "rstrip", false);
        kh_json_put_bool(j, "normalized", false);
        kh_json_put_bool(j, "special", true);
        kh_json_close(j);
    }
    kh_json_gap(j, o->n_special ? "\n  " : "");
    kh_json_close(j);
}

static int special_id(const kh_bpe_opts *o, const char *text) {
    for (int k = 0; k < o->n_special; k++)
        if (strcmp(o->special[k], text) == 0)
            return k;
    return -1;
}

static void put_special(kh_json_out *j, const char *key, const kh_bpe_opts *o, const char *text) {
    kh_json_open_array(j, key);
    kh_json_put_string(j, NULL, text);
    kh_json_put_int(j, NULL, special_id(o, text));
    kh_json_close(j);
}

static void put_byte_level(kh_json_out *j, const char *key, bool prefix_space, bool trim) {
    kh_json_gap(j, "\n  ");
    kh_json_open_object(j, key);
    kh_json_put_string(j, "type", "ByteLevel");
    kh_json_put_bool(j, "add_prefix_space", prefix_space);
    kh_json_put_bool(j, "trim_offsets", trim);
    kh_json_put_bool(j, "use_regex", true);
    kh_json_close(j);
}

static void put_post_processor(kh_json_out *j, const kh_bpe_opts *o) {
    if (o->style != KH_BPE_ROBERTA) {
        put_byte_level(j, "post_processor", o->words.prefix_space, false);
        return;
    }
    kh_json_gap(j, "\n  ");
    kh_json_open_object(j, "post_processor");
    kh_json_put_string(j, "type", "RobertaProcessing");
    put_special(j, "sep", o, "</s>");
    put_special(j, "cls", o, "<s>");
    kh_json_put_bool(j, "trim_offsets", true);
    kh_json_put_bool(j, "add_prefix_space", o->words.prefix_space);
    kh_json_close(j);
}

static void put_settings(kh_json_out *j, const kh_bpe_opts *o) {
    kh_json_gap(j, "\n  ");
    kh_json_put_string(j, "version", "1.0");
    kh_json_gap(j, "\n  ");
    kh_json_put_null(j, "truncation");
    kh_json_gap(j, "\n  ");
    kh_json_put_null(j, "padding");
    put_added(j, o);
    kh_json_gap(j, "\n  ");
    if (o->words.lowercase) {
        kh_json_open_object(j, "normalizer");
        kh_json_put_string(j, "type", "Lowercase");
        kh_json_close(j);
    } else
        kh_json_put_null(j, "normalizer");
    put_byte_level(j, "pre_tokenizer", o->words.prefix_space, true);
    put_post_processor(j, o);
    put_byte_level(j, "decoder", true, true);
}

/* What a BPE model of Hugging Face has beside vocabulary and merges; we use none of it. */
static void put_model_settings(kh_json_out *j) {
    static const char *const ABSENT[] = { "dropout", "unk_token", "continuing_subword_prefix",
        "end_of_word_suffix" };
    static const char *const OFF[] = { "fuse_unk", "byte_fallback", "ignore_merges" };
    kh_json_gap(j, "\n    ");
    kh_json_put_string(j, "type", "BPE");
    for (size_t i = 0; i < sizeof ABSENT / sizeof *ABSENT; i++) {
        kh_json_gap(j, "\n    ");
        kh_json_put_null(j, ABSENT[i]);
    }
    for (size_t i = 0; i < sizeof OFF / sizeof *OFF; i++) {
        kh_json_gap(j, "\n    ");
        kh_json_put_bool(j, OFF[i], false);
    }
}

/* Merges are written "a b" as all versions read them; no token holds a space. */
static void put_merges(kh_json_out *j, const trainer *t) {
    kh_buf both = kh_buf_init(KH_BUF_MAX);
    kh_json_gap(j, "\n    ");
    kh_json_open_array(j, "merges");
    for (int k = 0; k < t->n_merge; k++) {
        kh_buf_reset(&both);
        kh_buf_printf(&both, "%s %s", t->token[t->merge[k] >> 32], t->token[(uint32_t)t->merge[k]]);
        kh_json_gap(j, "\n      ");
        kh_json_put_text(j, NULL, both.data, both.len);
        j->out->failed |= both.failed;
    }
    kh_buf_free(&both);
    kh_json_gap(j, t->n_merge ? "\n    " : "");
    kh_json_close(j);
}

/* The form of Hugging Face's files. */
static void put_json(kh_buf *out, const trainer *t, const kh_bpe_opts *o) {
    kh_json_out j = kh_json_out_init(out, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    put_settings(&j, o);
    kh_json_gap(&j, "\n  ");
    kh_json_open_object(&j, "model");
    put_model_settings(&j);
    kh_json_gap(&j, "\n    ");
    kh_json_open_object(&j, "vocab");
    for (int k = 0; k < t->n_token; k++) {
        kh_json_gap(&j, "\n      ");
        kh_json_put_int(&j, t->token[k], k);
    }
    kh_json_gap(&j, "\n    ");
    kh_json_close(&j);
    put_merges(&j, t);
    kh_json_gap(&j, "\n  ");
    kh_json_close(&j);
    kh_json_gap(&j, "\n");
    kh_json_close(&j);
    kh_buf_char(out, '\n');
}

/* ----------------------------------------------------------------------------------- the whole */

static int check_specials(const kh_bpe_opts *o, kh_err *err) {
    kh_map seen = { 0 };
    int rc = 0;
    for (int k = 0; k < o->n_special && rc == 0; k++) {
        size_t n = strlen(o->special[k]); /* NOLINT(clang-analyzer-core.CallAndMessage): every style
                                             has its n_special */
        int32_t old;
        int added = 0;
        if (n == 0)
            rc = kh_fail(err, KH_EARG, "special token %d is empty", k);
        else if (!kh_utf8_valid(o->special[k], n))
            rc = kh_fail(err, KH_EARG, "special token %d is not valid UTF-8", k);
        else if ((added = kh_map_add(&seen, o->special[k], n, k, &old)) < 0)
            rc = kh_fail_memory(err);
        else if (added == 0)
            rc = kh_fail(err, KH_EARG, "special token \"%s\" is given twice, as number %d and %d",
                o->special[k], old, k);
    }
    kh_map_free(&seen);
    if (rc == 0 && o->style == KH_BPE_ROBERTA &&
        (special_id(o, "<s>") < 0 || special_id(o, "</s>") < 0))
        rc = kh_fail(err, KH_EARG,
            "the style roberta needs the special tokens <s> and </s>; add them, or use the style "
            "gpt2");
    return rc;
}

static int check(const kh_bpe_opts *o, kh_err *err) {
    if (o->words.n_path == 0)
        return kh_fail(err, KH_EARG, "no corpus: at least one file of text is needed");
    if (o->vocab < 256 + o->n_special)
        return kh_fail(err, KH_EARG,
            "a vocabulary of %d tokens is too small: %d special tokens and 256 bytes need %d",
            o->vocab, o->n_special, 256 + o->n_special);
    return check_specials(o, err);
}

static int trainer_init(trainer *t, const kh_bpe_opts *o, const kh_counts *words, kh_err *err) {
    size_t n = (size_t)o->vocab;
    int32_t id[256];
    t->vocab = o->vocab;
    t->min_count = o->min_frequency > 1 ? o->min_frequency : 1;
    t->token = kh_calloc(n, sizeof *t->token);
    t->merge = kh_calloc(n, sizeof *t->merge);
    t->left = kh_calloc(n, sizeof *t->left);
    t->right = kh_calloc(n, sizeof *t->right);
    if (!t->token || !t->merge || !t->left || !t->right || !grow_table(t))
        return kh_fail_memory(err);
    int rc = add_specials(t, o, err);
    if (rc == 0)
        rc = add_bytes(t, id, err);
    if (rc == 0)
        rc = load_words(t, words, id, err);
    return rc == 0 ? first_pairs(t, words, id, err) : rc;
}

static void trainer_free(trainer *t) {
    kh_arena_free(&t->texts);
    kh_map_free(&t->special);
    void *all[] = { t->token, t->merge, t->cells, t->weight, t->pairs, t->table, t->places,
        t->queue, t->fresh, t->gained, t->left, t->right };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        kh_free(all[k]);
}

int kh_bpe_train(const kh_bpe_opts *given, const kh_hooks *hooks, kh_buf *json, kh_bpe_stats *stats,
    kh_err *err) {
    static const char *const roberta[] = { "<s>", "<pad>", "</s>", "<unk>", "<mask>" },
                             *const gpt2[] = { "<|endoftext|>" };
    kh_bpe_opts o = *given;
    if (o.n_special == 0) {
        o.special = o.style == KH_BPE_ROBERTA ? roberta : gpt2;
        o.n_special = o.style == KH_BPE_ROBERTA ? 5 : 1;
    }
    kh_counts words = { 0 };
    trainer t = { 0 };
    int rc = check(&o, err);
    if (rc == 0)
        rc = kh_counts_read(&words, &o.words, hooks, err);
    if (rc == 0 && words.n == 0)
        rc = kh_fail(err, KH_EFORMAT, "%s: the corpus is empty", o.words.path[0]);
    if (rc == 0)
        rc = trainer_init(&t, &o, &words, err);
    kh_bpe_stats s = { words.bytes, words.lines, words.total, words.n, 0, 0 };
    kh_counts_free(&words);
    if (rc == 0)
        rc = learn(&t, hooks, err);
    if (rc != 0)
        goto done;
    s.tokens = t.n_token;
    s.merges = t.n_merge;
    if (t.n_token < o.vocab)
        kh_log(hooks, KH_WARN,
            "the corpus gives only %d of %d tokens: no other pair occurs %lld times", t.n_token,
            o.vocab, (long long)t.min_count);
    put_json(json, &t, &o);
    if (kh_buf_failed(json))
        rc = kh_fail_memory(err);
    if (stats)
        *stats = s;
done:
    trainer_free(&t);
    return rc;
}
