/* batch.c - rows and a template become sequences of ids.
 *
 * Mask and slots split the text, as added tokens do in Hugging Face's tokenizers: what stands
 * before, between and behind them is filled in and encoded piece by piece, always as plain text, so
 * that nothing in a row can become a special token. The frame (<s> ... </s>) is that of the empty
 * text.
 *
 *     front  [slots]  piece  [masks]  piece  back
 *
 * A chat's markup is encoded as one with the piece that it stands beside, as Hugging Face's library
 * does with the text that a chat template gives; it writes the start token itself, or none.
 *
 * A row that is too long is filled in again with less of its texts: `keep` characters of each at
 * most. The largest keep that fits is found by doubling and halving, because the tokens of a text
 * cannot be counted without encoding it. */
#include "base/alloc.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/utf8.h"
#include "data/chat.h"
#include "data/task.h"
#include "data/template.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

#include <limits.h>
#include <stdint.h>
#include <string.h>

enum { FIRST_SLOT = 1000 }; /* the published code's slots hold vocabulary ids 1000, 1001, ... */
enum { CHUNK_ROWS = 32 };   /* rows that one thread takes at a time */
enum { MAX_ITEMS = 7 };     /* mask and slots, pieces of text around them, and a chat's two ends */

typedef struct item {
    enum { ITEM_TEXT, ITEM_MASK, ITEM_SLOTS } kind;
    int from, to;                 /* text: parts of the template */
    bool strip_left, strip_right; /* text: the neighbour takes the white space on this side */
    bool front, back;             /* text: the chat's markup stands on this side */
} item;

/* What is the same for all rows. */
typedef struct plan {
    const kh_tokenizer *tok;
    const kh_task *task;
    const kh_words *words;
    const kh_batch_opts *o;
    kh_template template;
    item item[MAX_ITEMS];
    int n_item;
    kh_ids frame;        /* of the empty text */
    int n_front;         /* how much of it stands in front */
    const kh_chat *chat; /* NULL: none */
    kh_buf chat_front;   /* what stands before a chat's message */
    int32_t mask_id;
    int32_t *slot; /* [o->n_slot] */
    int most_masks;
} plan;

/* What a thread reuses from row to row: the text of a piece, the ids of all pieces, and where each
 * piece ends in them. */
typedef struct scratch {
    kh_buf text;
    kh_ids ids;
    int end[MAX_ITEMS];
} scratch;

/* ------------------------------------------------------------------------------------ the plan */

/* The template's slots go right after its last text. */
static void put_slots_after(kh_template *t) {
    int at = t->n;
    while (at > 0 && t->part[at - 1].kind != KH_SEGMENT_A && t->part[at - 1].kind != KH_SEGMENT_B)
        at--;
    memmove(&t->part[at + 1], &t->part[at], (size_t)(t->n - at) * sizeof *t->part);
    t->part[at] = (kh_template_part){ .kind = KH_SEGMENT_PROMPT };
    t->n++;
    t->prompt = true;
}

static void find_items(plan *p) {
    bool mask_left = p->o->next ||
        kh_tokenizer_strips(p->tok, p->mask_id, true), /* words bring their space with them */
        mask_right = !p->o->next && kh_tokenizer_strips(p->tok, p->mask_id, false);
    for (int i = 0; i < p->template.n; i++) {
        kh_segment_kind kind = p->template.part[i].kind;
        item *last = p->n_item > 0 ? &p->item[p->n_item - 1] : NULL;
        if (kind == KH_SEGMENT_MASK || kind == KH_SEGMENT_PROMPT) {
            if (last && last->kind == ITEM_TEXT)
                last->strip_right = kind == KH_SEGMENT_PROMPT || mask_left;
            p->item[p->n_item++] =
                (item){ .kind = kind == KH_SEGMENT_MASK ? ITEM_MASK : ITEM_SLOTS };
        } else if (last && last->kind == ITEM_TEXT)
            last->to = i + 1;
        else
            p->item[p->n_item++] = (item){ .kind = ITEM_TEXT,
                .from = i,
                .to = i + 1,
                .strip_left = last && last->kind == ITEM_MASK && mask_right };
    }
}

/* All of the frame up to the token that begins a text stands in front; the rest stands behind. */
static int find_frame(plan *p, kh_err *err) {
    int32_t bos = kh_tokenizer_special(p->tok, KH_TOKEN_BOS);
    int rc = kh_tokenizer_encode(p->tok, "", 0, KH_ENCODE_FRAME, &p->frame, err);
    for (int i = 0; i < p->frame.n && rc == 0; i++)
        if (p->frame.id[i] == bos) {
            p->n_front = i + 1;
            break;
        }
    return rc;
}

/* The markup in front of a message. A chat has no frame: it writes its own start. */
static int find_chat(plan *p, kh_err *err) {
    const kh_task *task = p->task;
    if (!task->chat || !p->o->next)
        return 0;
    const kh_chat *c = p->chat = kh_chat_named(task->chat);
    if (!c)
        return kh_fail(err, KH_EUNSUPPORTED, "task \"%s\": the chat format \"%s\" is not known",
            task->name, task->chat);
    const char *bos = kh_tokenizer_token(p->tok, kh_tokenizer_special(p->tok, KH_TOKEN_BOS));
    if (c->bos && bos)
        kh_buf_text(&p->chat_front, bos);
    if (c->system[0] && task->chat_system)
        kh_buf_printf(&p->chat_front, "%s%s%s", c->system[0], task->chat_system, c->system[1]);
    kh_buf_text(&p->chat_front, c->front);
    p->frame.n = p->n_front = 0;
    return kh_buf_failed(&p->chat_front) ? kh_fail_memory(err) : 0;
}

/* The text at a place of the items: the one that is there, or a new, empty one. */
static item *text_at(plan *p, int at, bool there) {
    if (!there) {
        memmove(&p->item[at + 1], &p->item[at], (size_t)(p->n_item++ - at) * sizeof *p->item);
        p->item[at] = (item){ .kind = ITEM_TEXT };
    }
    return &p->item[at];
}

/* Gives the markup of a chat to the texts beside it: the first one, and the last before the answer.
 */
static void wrap_items(plan *p) {
    item *first = text_at(p, 0, p->item[0].kind == ITEM_TEXT);
    first->front = true;
    first->strip_left = p->chat->trim;
    int mask = 0;
    while (p->item[mask].kind != ITEM_MASK)
        mask++;
    bool there = p->item[mask - 1].kind == ITEM_TEXT;
    text_at(p, there ? mask - 1 : mask, there)->back = true;
}

static int find_slots(plan *p, kh_err *err) {
    const kh_batch_opts *o = p->o;
    int size = kh_tokenizer_size(p->tok);
    p->slot = kh_malloc((size_t)o->n_slot * sizeof *p->slot);
    if (!p->slot)
        return kh_fail_memory(err);
    for (int i = 0; i < o->n_slot; i++) {
        p->slot[i] = o->slot_id ? o->slot_id[i] : FIRST_SLOT + i;
        if (p->slot[i] < 0 || p->slot[i] >= size)
            return kh_fail(err, KH_EARG,
                "the id %d of prompt slot %d is not in the vocabulary of %d tokens", p->slot[i], i,
                size);
    }
    return 0;
}

static int check_rows(const plan *p, const kh_row *rows, int n, kh_err *err) {
    for (int i = 0; i < n; i++) {
        if (p->task->pair != (rows[i].b != NULL))
            return kh_fail(err, KH_EMISMATCH, "row %d has %s, but task \"%s\" takes %s", i,
                rows[i].b ? "two texts" : "one text", p->task->name, p->task->pair ? "two" : "one");
        if (rows[i].label < -1 || rows[i].label >= p->task->n_label)
            return kh_fail(err, KH_EMISMATCH, "row %d has label %d, but task \"%s\" has %d labels",
                i, rows[i].label, p->task->name, p->task->n_label);
    }
    return 0;
}

static int check_options(const plan *p, int n, kh_err *err) {
    const kh_batch_opts *o = p->o;
    if (o->max_len < 1 || o->n_slot < 0 || n < 0)
        return kh_fail(err, KH_EARG,
            "a batch of %d rows, %d slots and sequences of %d tokens cannot be made", n, o->n_slot,
            o->max_len);
    if (p->words->n_label != p->task->n_label)
        return kh_fail(err, KH_EMISMATCH, "label words for %d labels, but task \"%s\" has %d",
            p->words->n_label, p->task->name, p->task->n_label);
    if (n > INT_MAX / p->words->n_variant)
        return kh_fail(err, KH_ELIMIT, "%d rows with %d word lengths are too many for one batch", n,
            p->words->n_variant);
    if (p->mask_id < 0 && !o->next)
        return kh_fail(err, KH_EUNSUPPORTED,
            "the tokenizer has no mask token; a masked language model, such as BERT or RoBERTa, is "
            "needed");
    return p->words->paper_exact ? 0 : kh_words_check(p->words, p->task, err);
}

/* ------------------------------------------------------------------------------------- one row */

/* White space at the end, in the sense that tokenizers give it. */
static size_t without_space_behind(const char *s, size_t n) {
    while (n > 0) {
        size_t at = n - 1;
        while (at > 0 && n - at < 4 && ((unsigned char)s[at] & 0xC0) == 0x80)
            at--;
        int len;
        uint32_t c = kh_utf8_next(s + at, n - at, &len, NULL);
        if ((size_t)len != n - at || !kh_is_space(c))
            break;
        n = at;
    }
    return n;
}

static size_t space_in_front(const char *s, size_t n) {
    size_t at = 0;
    while (at < n) {
        int len;
        if (!kh_is_space(kh_utf8_next(s + at, n - at, &len, NULL)))
            break;
        at += (size_t)len;
    }
    return at;
}

static size_t count_characters(const char *s, size_t n) {
    size_t count = 0;
    int len;
    for (size_t at = 0; at < n; at += (size_t)len, count++)
        kh_utf8_next(s + at, n - at, &len, NULL);
    return count;
}

/* The bytes of the first `keep` characters; a cut text loses the white space before the cut. */
static size_t first_characters(const char *s, size_t n, size_t keep) {
    size_t at = 0;
    int len;
    if (keep >= n)
        return n;
    for (; keep > 0 && at < n; keep--, at += (size_t)len)
        kh_utf8_next(s + at, n - at, &len, NULL);
    return at < n ? without_space_behind(s, at) : n;
}

static void put_field(const plan *p, kh_buf *out, const char *s, size_t n, size_t keep) {
    n = first_characters(s, n, keep);
    while (p->task->newline_escape && n > 0) {
        const char *escape = memmem(s, n, "\\n", 2);
        if (!escape)
            break;
        kh_buf_bytes(out, s, (size_t)(escape - s));
        kh_buf_char(out, ' ');
        n -= (size_t)(escape + 2 - s);
        s = escape + 2;
    }
    kh_buf_bytes(out, s, n);
}

/* Fills in and encodes all pieces of text, at most `keep` characters of each text of the row. */
static int encode_pieces(const plan *p, const kh_row *row, size_t keep, scratch *s, kh_err *err) {
    s->ids.n = 0;
    for (int i = 0; i < p->n_item; i++) {
        const item *it = &p->item[i];
        kh_buf_reset(&s->text);
        for (int k = it->from; k < it->to; k++) {
            const kh_template_part *part = &p->template.part[k];
            if (part->kind == KH_SEGMENT_LITERAL)
                kh_template_literal(&s->text, part);
            else if (part->kind == KH_SEGMENT_A)
                put_field(p, &s->text, row->a, row->n_a, keep);
            else
                put_field(p, &s->text, row->b, row->n_b, keep);
        }
        if (kh_buf_failed(&s->text))
            return kh_fail_memory(err);
        const char *text = s->text.data;
        size_t n = it->strip_right ? without_space_behind(text, s->text.len) : s->text.len;
        size_t skip = it->strip_left ? space_in_front(text, n) : 0;
        skip = skip < n ? skip : n;
        int rc = 0;
        if (it->front || it->back)
            rc = kh_tokenizer_encode_between(p->tok, it->front ? p->chat_front.data : "",
                n > skip ? text + skip : "", n - skip, it->back ? p->chat->back : "", &s->ids, err);
        else if (n > skip)
            rc = kh_tokenizer_encode(p->tok, text + skip, n - skip, KH_ENCODE_PLAIN, &s->ids, err);
        if (rc != 0)
            return rc;
        s->end[i] = s->ids.n;
    }
    return 0;
}

/* The length of the row's longest sequence. */
static long sequence_length(const plan *p, const scratch *s) {
    return (long)p->frame.n + p->o->n_slot + s->ids.n + p->most_masks;
}

/* Fills s with the most of the row's texts that fits; nothing of them always does. */
static int fit(const plan *p, const kh_row *row, scratch *s, kh_err *err) {
    size_t a = count_characters(row->a, row->n_a),
           b = row->b ? count_characters(row->b, row->n_b) : 0;
    size_t fits = 0, too_many = a > b ? a : b,
           keep = (size_t)p->o->max_len; /* a token is seldom less than a character */
    bool doubling = true;
    while (too_many - fits > 1) {
        if (keep >= too_many || !doubling)
            keep = fits + (too_many - fits) / 2;
        int rc = encode_pieces(p, row, keep, s, err);
        if (rc != 0)
            return rc;
        if (sequence_length(p, s) <= p->o->max_len) {
            fits = keep;
            keep *= 2;
        } else {
            too_many = keep;
            doubling = false;
        }
    }
    return encode_pieces(p, row, fits, s, err);
}

/* A model that continues texts does not see what stands behind the mask: a text there would be
 * lost. */
static int check_order(const plan *p, kh_err *err) {
    bool behind = false;
    for (int i = 0; i < p->template.n && p->o->next; i++) {
        kh_segment_kind kind = p->template.part[i].kind;
        behind |= kind == KH_SEGMENT_MASK;
        if (behind && (kind == KH_SEGMENT_A || kind == KH_SEGMENT_B || kind == KH_SEGMENT_PROMPT))
            return kh_fail(err, KH_EUNSUPPORTED,
                "task \"%s\": texts or prompt stand behind {mask} in its template, where a model "
                "that continues texts cannot see "
                "them",
                p->task->name);
    }
    return 0;
}

/* Appends the sequence with n_mask masks to out; `next`: what stands in front of them. */
static int assemble(
    const plan *p, const scratch *s, int n_mask, kh_ids *out, int *mask, int *slot, kh_err *err) {
    int need = p->frame.n + p->o->n_slot + s->ids.n + n_mask;
    if (out->n > INT_MAX - need)
        return kh_fail(err, KH_ELIMIT, "rows of more than %d tokens together", INT_MAX);
    if (!kh_grow(&out->id, &out->cap, (size_t)out->n + (size_t)need, sizeof *out->id))
        return kh_fail_memory(err);
    int32_t *start = out->id + out->n, *at = start;
    size_t slot_bytes = (size_t)p->o->n_slot * sizeof *at;
    *slot = -1;
    if (p->o->n_slot > 0 && p->o->placement == KH_SLOTS_PREFIX) {
        *slot = 0;
        memcpy(at, p->slot, slot_bytes);
        at += p->o->n_slot;
    }
    for (int i = 0; i < p->n_front; i++)
        *at++ = p->frame.id[i];
    for (int i = 0; i < p->n_item; i++)
        switch (p->item[i].kind) {
        case ITEM_TEXT:
            for (int k = i > 0 ? s->end[i - 1] : 0; k < s->end[i]; k++)
                *at++ = s->ids.id[k];
            break;
        case ITEM_MASK:
            *mask = (int)(at - start);
            if (p->o->next) {
                out->n += *mask;
                return 0;
            }
            for (int k = 0; k < n_mask; k++)
                *at++ = p->mask_id;
            break;
        case ITEM_SLOTS:
            *slot = (int)(at - start);
            memcpy(at, p->slot, slot_bytes);
            at += p->o->n_slot;
            break;
        }
    for (int i = p->n_front; i < p->frame.n; i++)
        *at++ = p->frame.id[i];
    out->n += need;
    return 0;
}

/* ------------------------------------------------------------------------------------ all rows */

typedef struct encoding {
    const plan *p;
    const kh_row *rows;
    int n, n_chunk;
    kh_ids *chunk;          /* [n_chunk] */
    int *len, *mask, *slot; /* [n * n_variant] */
    unsigned char *state;   /* [n] */
    int failed;             /* the first chunk that failed, n_chunk: none */
    int rc;
    kh_err err;
} encoding;

enum { ROW_WHOLE, ROW_CUT, ROW_DROPPED };

static int encode_row(encoding *e, int i, kh_ids *out, scratch *s, kh_err *err) {
    const plan *p = e->p;
    int n_variant = p->words->n_variant, rc = encode_pieces(p, &e->rows[i], SIZE_MAX, s, err);
    e->state[i] = ROW_WHOLE;
    if (rc == 0 && sequence_length(p, s) > p->o->max_len) {
        e->state[i] = p->o->paper_exact ? ROW_DROPPED : ROW_CUT;
        if (p->o->paper_exact)
            return 0;
        rc = fit(p, &e->rows[i], s, err);
    }
    for (int v = 0; v < n_variant && rc == 0; v++) {
        int q = i * n_variant + v, before = out->n;
        rc = assemble(p, s, p->words->n_mask[v], out, &e->mask[q], &e->slot[q], err);
        e->len[q] = out->n - before;
    }
    return rc;
}

static void encode_chunk(encoding *e, int c, scratch *s) {
    kh_err err = { 0 };
    int from = c * CHUNK_ROWS, to = e->n - from > CHUNK_ROWS ? from + CHUNK_ROWS : e->n, rc = 0,
        failed;
#pragma omp atomic read
    failed = e->failed;
    if (failed < c) /* an earlier row has failed: the batch is lost, and the earliest complaint is
                       the one to tell */
        return;
    for (int i = from; i < to && rc == 0; i++)
        rc = encode_row(e, i, &e->chunk[c], s, &err);
    if (rc == 0)
        return;
#pragma omp critical(kh_batch_failed)
    if (c < e->failed) {
#pragma omp atomic write
        e->failed = c;
        e->rc = rc;
        e->err = err;
    }
}

static int encode_all(encoding *e, kh_err *err) {
    int threads = kh_threads() < e->n_chunk ? kh_threads() : e->n_chunk;
#pragma omp parallel num_threads(threads > 0 ? threads : 1)
    {
        scratch s = { .text = kh_buf_init(KH_BUF_MAX) };
#pragma omp for schedule(dynamic)
        for (int c = 0; c < e->n_chunk; c++)
            encode_chunk(e, c, &s);
        kh_buf_free(&s.text);
        kh_ids_free(&s.ids);
    }
    if (e->rc != 0 && err)
        *err = e->err;
    return e->rc;
}

/* ----------------------------------------------------------------------------------- the batch */

typedef struct batch_memory {
    kh_batch batch;
    kh_arena arena;
} batch_memory;

/* Puts the chunks together, in order, without the rows that were dropped. */
static int collect(batch_memory *m, const encoding *e, kh_err *err) {
    kh_batch *b = &m->batch;
    const plan *p = e->p;
    int n_variant = p->words->n_variant;
    size_t rows = (size_t)e->n, seqs = rows * (size_t)n_variant, total = 0;
    for (int c = 0; c < e->n_chunk; c++)
        total += (size_t)e->chunk[c].n;
    int32_t *id = kh_arena_array(&m->arena, total, sizeof *id);
    size_t *start = kh_arena_array(&m->arena, seqs + 1, sizeof *start);
    int *mask = kh_arena_array(&m->arena, seqs, sizeof *mask),
        *slot = kh_arena_array(&m->arena, seqs, sizeof *slot);
    int *label = kh_arena_array(&m->arena, rows, sizeof *label),
        *row = kh_arena_array(&m->arena, rows, sizeof *row);
    int *n_mask = kh_arena_array(&m->arena, (size_t)n_variant, sizeof *n_mask);
    if (!id || !start || !mask || !slot || !label || !row || !n_mask)
        return kh_fail_memory(err);
    size_t at = 0;
    for (int c = 0; c < e->n_chunk; c++) {
        if (e->chunk[c].n > 0)
            memcpy(id + at, e->chunk[c].id, (size_t)e->chunk[c].n * sizeof *id);
        at += (size_t)e->chunk[c].n;
    }
    for (int i = 0; i < e->n; i++) {
        b->n_truncated += e->state[i] == ROW_CUT;
        b->n_dropped += e->state[i] == ROW_DROPPED;
        if (e->state[i] == ROW_DROPPED)
            continue;
        for (int q = i * n_variant; q < (i + 1) * n_variant; q++, b->n_seq++) {
            mask[b->n_seq] = e->mask[q];
            slot[b->n_seq] = e->slot[q];
            start[b->n_seq + 1] = start[b->n_seq] + (size_t)e->len[q];
            b->max_len = e->len[q] > b->max_len ? e->len[q] : b->max_len;
        }
        label[b->n_row] = e->rows[i].label;
        row[b->n_row++] = i;
    }
    memcpy(n_mask, p->words->n_mask, (size_t)n_variant * sizeof *n_mask);
    b->n_variant = n_variant;
    b->n_slot = p->o->n_slot;
    b->id = id, b->start = start, b->mask = mask, b->slot = slot, b->label = label, b->row = row,
    b->n_mask = n_mask;
    return 0;
}

static int encode_rows(batch_memory *m, const plan *p, const kh_row *rows, int n, kh_err *err) {
    size_t seqs = (size_t)n * (size_t)p->words->n_variant;
    encoding e = {
        .p = p, .rows = rows, .n = n, .n_chunk = n / CHUNK_ROWS + (n % CHUNK_ROWS != 0)
    };
    e.failed = e.n_chunk;
    e.chunk = kh_calloc((size_t)e.n_chunk, sizeof *e.chunk);
    e.len = kh_calloc(seqs, sizeof *e.len);
    e.mask = kh_calloc(seqs, sizeof *e.mask);
    e.slot = kh_calloc(seqs, sizeof *e.slot);
    e.state = kh_calloc((size_t)n, 1);
    int rc =
        e.chunk && e.len && e.mask && e.slot && e.state ? encode_all(&e, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = collect(m, &e, err);
    for (int c = 0; e.chunk && c < e.n_chunk; c++)
        kh_ids_free(&e.chunk[c]);
    kh_free(e.chunk);
    kh_free(e.len);
    kh_free(e.mask);
    kh_free(e.slot);
    kh_free(e.state);
    return rc;
}

/* The template with nothing in it must fit, or no row will. */
static int check_room(const plan *p, kh_err *err) {
    scratch s = { .text = kh_buf_init(KH_BUF_MAX) };
    kh_row empty = { .a = "", .b = "" };
    int rc = encode_pieces(p, &empty, 0, &s, err);
    if (rc == 0 && sequence_length(p, &s) > p->o->max_len)
        rc = kh_fail(err, KH_ELIMIT,
            "task \"%s\": template, mask and %d prompt slots alone take %ld tokens, but the model "
            "reads %d",
            p->task->name, p->o->n_slot, sequence_length(p, &s), p->o->max_len);
    kh_buf_free(&s.text);
    kh_ids_free(&s.ids);
    return rc;
}

int kh_batch_encode(kh_batch **out, const kh_tokenizer *tok, const kh_task *task,
    const kh_words *words, const kh_row *rows, int n, const kh_batch_opts *opts, kh_err *err) {
    *out = NULL;
    plan p = { .tok = tok,
        .task = task,
        .words = words,
        .o = opts,
        .chat_front = kh_buf_init(KH_BUF_MAX),
        .mask_id = kh_tokenizer_special(tok, KH_TOKEN_MASK) };
    bool soft = opts->n_slot > 0 && opts->placement == KH_SLOTS_TEMPLATE;
    batch_memory *m = kh_calloc(1, sizeof *m);
    int rc = m ? check_options(&p, n, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = check_rows(&p, rows, n, err);
    if (rc == 0)
        rc = kh_template_parse(
            &p.template, kh_task_template(task, soft, opts->next), task->name, err);
    if (rc == 0)
        rc = find_frame(&p, err);
    if (rc == 0)
        rc = find_chat(&p, err);
    if (rc == 0)
        rc = find_slots(&p, err);
    if (rc == 0) {
        p.most_masks = words->n_mask[words->n_variant - 1];
        for (int i = 0; i < words->n_word && opts->next; i++) /* words stand behind the sequence */
            if (words->word[i].n_id > p.most_masks)
                p.most_masks = words->word[i].n_id;
        if (opts->n_slot > 0 && opts->placement == KH_SLOTS_AFTER)
            put_slots_after(&p.template);
        find_items(&p);
        if (p.chat)
            wrap_items(&p);
        rc = check_order(&p, err);
    }
    if (rc == 0)
        rc = check_room(&p, err);
    if (rc == 0)
        rc = encode_rows(m, &p, rows, n, err);
    kh_ids_free(&p.frame);
    kh_buf_free(&p.chat_front);
    kh_free(p.slot);
    if (rc == 0) {
        m->batch.memory = m;
        m->batch.task = task;
        m->batch.given = rows;
        *out = &m->batch;
    } else if (m) {
        kh_arena_free(&m->arena);
        kh_free(m);
    }
    return rc;
}

void kh_batch_free(kh_batch *b) {
    if (!b)
        return;
    batch_memory *m = b->memory;
    kh_arena_free(&m->arena);
    kh_free(m);
}
