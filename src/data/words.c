/* words.c - label words as token ids.
 *
 * A word inside a sentence has a space before it, and byte-level tokenizers see that: RoBERTa's
 * answer at a mask is " great", not "great". The published code took the first token of the word
 * without its space; paper_exact does so too. */
#include "base/alloc.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/map.h"
#include "data/chat.h"
#include "keyhole.h"

#include <stdlib.h>
#include <string.h>

typedef struct words_memory {
    kh_words words;
    kh_arena arena;
} words_memory;

/* The tokens of `text` as they stand behind `before`, which is encoded too and taken off: where a
 * tokenizer puts a space of its own in front of a text, a word alone would have two. */
static int encode_behind(const kh_tokenizer *tok, const char *before, const char *between,
    const char *text, kh_ids *out, kh_err *err) {
    kh_ids front = { 0 }, all = { 0 };
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_buf_printf(&b, "%s%s%s", before, between, text);
    int rc = kh_buf_failed(&b) ? kh_fail_memory(err) : 0;
    if (rc == 0)
        rc = kh_tokenizer_encode(tok, before, strlen(before), KH_ENCODE_PLAIN, &front, err);
    if (rc == 0)
        rc = kh_tokenizer_encode(tok, b.data, b.len, KH_ENCODE_PLAIN, &all, err);
    bool parted = rc == 0 && all.n > front.n && front.n > 0 &&
        memcmp(all.id, front.id, (size_t)front.n * sizeof *all.id) == 0;
    if (parted && kh_grow(&out->id, &out->cap, (size_t)(all.n - front.n), sizeof *out->id)) {
        memcpy(out->id, all.id + front.n, (size_t)(all.n - front.n) * sizeof *out->id);
        out->n = all.n - front.n;
    } else if (parted)
        rc = kh_fail_memory(err);
    else if (rc == 0) /* the two have grown together */
        rc = kh_tokenizer_encode(
            tok, b.data + strlen(before), b.len - strlen(before), KH_ENCODE_PLAIN, out, err);
    kh_ids_free(&front);
    kh_ids_free(&all);
    kh_buf_free(&b);
    return rc;
}

static int encode_word(words_memory *m, const kh_tokenizer *tok, const char *text, bool exact,
    const kh_chat *chat, kh_word *out, kh_err *err) {
    kh_ids ids = { 0 };
    int rc;
    if (exact)
        rc = kh_tokenizer_encode(tok, text, strlen(text), KH_ENCODE_PLAIN, &ids, err);
    else if (chat)
        rc = encode_behind(tok, chat->lead[0], chat->lead[1], text, &ids, err);
    else
        rc = encode_behind(tok, "a", " ", text, &ids, err);
    if (rc != 0)
        goto done;
    int32_t *id = kh_arena_array(&m->arena, (size_t)ids.n + 1, sizeof *id),
            unk = kh_tokenizer_special(tok, KH_TOKEN_UNK);
    if (!id) {
        rc = kh_fail_memory(err);
        goto done;
    }
    out->id = id;
    out->n_token = ids.n;
    out->n_id = exact && ids.n > 1 ? 1 : ids.n;
    out->unknown = ids.n == 0;
    for (int i = 0; i < ids.n; i++) {
        id[i] = ids.id[i];
        out->unknown |= i < out->n_id && id[i] == unk;
    }
    if ((out->text = kh_arena_strndup(&m->arena, text, strlen(text))) == NULL)
        rc = kh_fail_memory(err);
done:
    kh_ids_free(&ids);
    return rc;
}

/* For each word the first word of another class whose first token (whole: all tokens) is the same,
 * or -1, into clash[n]. */
static int find_clashes(const kh_word *word, int n, bool whole, int *clash, kh_err *err) {
    kh_map seen = { 0 };
    int *other = kh_malloc((size_t)n *
        sizeof *other); /* for the first word of its tokens: the first one of another class */
    int rc = other ? 0 : kh_fail_memory(err);
    for (int i = 0; i < n && rc == 0; i++) {
        size_t bytes = (size_t)(whole ? word[i].n_id : 1) * sizeof *word[i].id;
        int32_t first = i;
        other[i] = -1;
        if (word[i].n_id > 0 && kh_map_add(&seen, (const char *)word[i].id, bytes, i, &first) < 0)
            rc = kh_fail_memory(err);
        clash[i] = first;
        if (other[first] < 0 && word[first].label != word[i].label)
            other[first] = i;
    }
    for (int i = 0; i < n && rc == 0; i++)
        clash[i] = word[clash[i]].label != word[i].label ? clash[i] : other[clash[i]];
    kh_map_free(&seen);
    kh_free(other);
    return rc;
}

static int mark_clashes(kh_word *word, int n, kh_err *err) {
    int *clash = kh_malloc((size_t)n * sizeof *clash), rc = clash ? 0 : kh_fail_memory(err);
    if (rc == 0)
        rc = find_clashes(word, n, true, clash, err);
    for (int i = 0; i < n && rc == 0; i++)
        word[i].same = clash[i];
    if (rc == 0)
        rc = find_clashes(word, n, false, clash, err);
    for (int i = 0; i < n && rc == 0; i++)
        word[i].first_same = clash[i];
    kh_free(clash);
    return rc;
}

static int ascending(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

/* The distinct lengths of words. */
static int find_variants(words_memory *m, kh_err *err) {
    kh_words *w = &m->words;
    int *length = kh_arena_array(&m->arena, (size_t)w->n_word, sizeof *length), n = 0;
    if (!length)
        return kh_fail_memory(err);
    for (int i = 0; i < w->n_word; i++)
        length[i] = w->word[i].n_id > 0 ? w->word[i].n_id : 1;
    qsort(length, (size_t)w->n_word, sizeof *length, ascending);
    for (int i = 0; i < w->n_word; i++)
        if (n == 0 || length[n - 1] != length[i])
            length[n++] = length[i];
    w->n_mask = length;
    w->n_variant = n;
    return 0;
}

int kh_words_new(
    kh_words **out, const kh_task *task, const kh_tokenizer *tok, bool paper_exact, kh_err *err) {
    *out = NULL;
    words_memory *m = kh_calloc(1, sizeof *m);
    if (!m)
        return kh_fail_memory(err);
    kh_words *w = &m->words;
    w->memory = m;
    w->n_label = task->n_label;
    w->paper_exact = paper_exact;
    w->mean = task->mean;
    const kh_chat *chat = task->chat ? kh_chat_named(task->chat) : NULL;
    int n = 0, rc = 0;
    for (int k = 0; k < task->n_label; k++)
        n += task->label[k].n_word;
    kh_word *word = kh_arena_array(&m->arena, (size_t)n, sizeof *word);
    if (!word)
        rc = kh_fail_memory(err);
    w->word = word;
    for (int k = 0; k < task->n_label && rc == 0; k++)
        for (int i = 0; i < task->label[k].n_word && rc == 0; i++) {
            word[w->n_word].label = k;
            rc = encode_word(
                m, tok, task->label[k].word[i], paper_exact, chat, &word[w->n_word++], err);
        }
    if (rc == 0)
        rc = mark_clashes(word, n, err);
    if (rc == 0)
        rc = find_variants(m, err);
    if (rc != 0)
        kh_words_free(w);
    else
        *out = w;
    return rc;
}

void kh_words_continue(kh_words *w) {
    ((int *)w->n_mask)[0] = 1; /* our own array: find_variants made it, and it is never empty */
    w->n_variant = 1;
    w->next = true;
}

int kh_words_check(const kh_words *w, const kh_task *task, kh_err *err) {
    for (int i = 0; i < w->n_word; i++) {
        const kh_word *word = &w->word[i];
        if (word->unknown)
            return kh_fail(err, KH_EMISMATCH,
                "task \"%s\": the tokenizer does not know the word \"%s\" of label \"%s\"; choose "
                "another",
                task->name, word->text, task->label[word->label].name);
        if (word->same >= 0)
            return kh_fail(err, KH_EMISMATCH,
                "task \"%s\": the words \"%s\" and \"%s\", of labels \"%s\" and \"%s\", are the "
                "same to this tokenizer%s",
                task->name, word->text, w->word[word->same].text, task->label[word->label].name,
                task->label[w->word[word->same].label].name,
                w->paper_exact ? ", of which the first token counts" : "");
    }
    return 0;
}

void kh_words_free(kh_words *w) {
    if (!w)
        return;
    words_memory *m = w->memory;
    kh_arena_free(&m->arena);
    kh_free(m);
}
