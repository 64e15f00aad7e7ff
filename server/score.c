/* score.c - POST /v1/score: prompts x rows -> labels, or log-probabilities, with energies if
 * wanted, at the access level that the server has.
 *
 * Requests about the very same rows differ in their prompts only, and are asked as one question: a
 * client that cuts a population into several requests, or several clients on one task, fill the
 * engine together. An answer does not depend on what else was in the call; if a joined call fails,
 * each request is asked alone, and only the guilty one is refused. */
#include "server/server_parts.h"

#include "base/alloc.h"
#include "base/err.h"

#include <string.h>

static bool same_words(const kh_words *a, const kh_words *b) {
    if (a->n_word != b->n_word || a->n_label != b->n_label || a->n_variant != b->n_variant ||
        a->mean != b->mean ||
        memcmp(a->n_mask, b->n_mask, (size_t)a->n_variant * sizeof *a->n_mask) != 0)
        return false;
    for (int i = 0; i < a->n_word; i++)
        if (a->word[i].label != b->word[i].label || a->word[i].n_id != b->word[i].n_id ||
            memcmp(a->word[i].id, b->word[i].id, (size_t)a->word[i].n_id * sizeof *a->word[i].id) !=
                0)
            return false;
    return true;
}

static bool same_rows(const kh_batch *a, const kh_batch *b) {
    size_t n = (size_t)a->n_seq;
    return a->n_seq == b->n_seq && a->n_slot == b->n_slot &&
        memcmp(a->start, b->start, (n + 1) * sizeof *a->start) == 0 &&
        memcmp(a->mask, b->mask, n * sizeof *a->mask) == 0 &&
        memcmp(a->slot, b->slot, n * sizeof *a->slot) == 0 &&
        memcmp(a->id, b->id, a->start[n] * sizeof *a->id) == 0;
}

static bool joins(const kh_call *x, const kh_call *y) {
    const kh_wire_question *a = x->parsed, *b = y->parsed;
    return !a->task && !b->task && a->prompt && b->prompt && a->want == b->want &&
        a->inject == b->inject && same_words(&a->words, &b->words) &&
        same_rows(&a->batch, &b->batch);
}

/* Asks and writes the reply of each call, whose prompts stand one after another in q. */
static int ask(kh_server *s, kh_call **calls, int n, const kh_question *q, kh_err *err) {
    const kh_wire_question *first = calls[0]->parsed;
    bool labels = first->want == KH_ANSWER_LABELS, energies = first->want == KH_ANSWER_ENERGIES;
    int n_row = q->batch->n_row, n_label = q->words->n_label;
    size_t pairs = (size_t)q->n_prompt * (size_t)n_row;
    int *label = labels ? kh_malloc(pairs * sizeof *label) : NULL;
    float *logprob = labels ? NULL : kh_malloc(pairs * (size_t)n_label * sizeof *logprob);
    float *energy = energies ? kh_malloc(pairs * sizeof *energy) : NULL;
    size_t done = 0;
    int rc;
    if ((!label && !logprob) || (energies && !energy))
        rc = kh_fail_memory(err);
    else if (labels)
        rc = kh_plm_answer(s->labeler, q, label, err);
    else if (energies)
        rc = kh_plm_score_energy(s->scorer, q, logprob, energy, err);
    else
        rc = kh_plm_score(s->scorer, q, logprob, err);
    for (int i = 0; i < n && rc == 0; i++) {
        const kh_wire_question *mine = calls[i]->parsed;
        kh_reply_text(calls[i], 200, NULL, "");
        kh_wire_answer_put(&calls[i]->reply.body,
            &(kh_wire_answer){ s->what.name, mine->n_prompt, n_row, n_label,
                label ? label + done * (size_t)n_row : NULL,
                logprob ? logprob + done * (size_t)n_row * (size_t)n_label : NULL,
                energy ? energy + done * (size_t)n_row : NULL, mine->base64 });
        done += (size_t)mine->n_prompt;
    }
    if (rc == 0) {
        atomic_fetch_add(&s->count.queries, (long long)pairs);
        atomic_fetch_add(&s->count.prompts, q->n_prompt);
    }
    kh_free(label);
    kh_free(logprob);
    kh_free(energy);
    return rc;
}

static int ask_texts(kh_server *s, kh_call *c, kh_err *err) {
    const kh_wire_question *w = c->parsed;
    const kh_tokenizer *tok = kh_plm_tokenizer(s->what.plm);
    kh_batch_opts o = { .max_len = s->limits.max_len,
        .n_slot = w->n_slot,
        .slot_id = w->slot_id,
        .placement = w->inject == KH_INJECT_EMBED_PREFIX ? KH_SLOTS_PREFIX : KH_SLOTS_TEMPLATE,
        .paper_exact = w->paper_exact,
        .next = s->limits.next };
    kh_words *words = NULL;
    kh_batch *batch = NULL;
    int rc = kh_words_new(&words, w->task, tok, w->paper_exact, err);
    if (rc == 0 && o.next)
        kh_words_continue(words);
    if (rc == 0)
        rc = kh_guard_words(s, words, err);
    if (rc == 0)
        rc = kh_batch_encode(&batch, tok, w->task, words, w->row, w->n_row, &o, err);
    if (rc == 0 && batch->n_row < w->n_row)
        rc =
            kh_fail(err, KH_ELIMIT, "%d of the texts are too long for the model", batch->n_dropped);
    if (rc == 0)
        rc = ask(s, &c, 1, &(kh_question){ batch, words, w->inject, w->prompt, w->n_prompt }, err);
    kh_batch_free(batch);
    kh_words_free(words);
    return rc;
}

static int ask_one(kh_server *s, kh_call *c, kh_err *err) {
    const kh_wire_question *w = c->parsed;
    return w->task
        ? ask_texts(s, c, err)
        : ask(s, &c, 1, &(kh_question){ &w->batch, &w->words, w->inject, w->prompt, w->n_prompt },
              err);
}

static int ask_joined(kh_server *s, kh_call **calls, int n, kh_err *err) {
    const kh_wire_question *first = calls[0]->parsed;
    size_t size = (size_t)first->n_slot * (size_t)s->limits.hidden, at = 0;
    int total = 0;
    for (int i = 0; i < n; i++)
        total += ((const kh_wire_question *)calls[i]->parsed)->n_prompt;
    float *all = kh_malloc((size_t)total * size * sizeof *all);
    if (!all)
        return kh_fail_memory(err);
    for (int i = 0; i < n; i++) {
        const kh_wire_question *w = calls[i]->parsed;
        memcpy(all + at, w->prompt, (size_t)w->n_prompt * size * sizeof *all);
        at += (size_t)w->n_prompt * size;
    }
    int rc = ask(s, calls, n,
        &(kh_question){ &first->batch, &first->words, first->inject, all, total }, err);
    kh_free(all);
    return rc;
}

static void run(kh_server *s, kh_call **calls, int n) {
    kh_err err = { 0 };
    if (n > 1 && ask_joined(s, calls, n, &err) == 0)
        return;
    for (int i = 0; i < n; i++)
        if (ask_one(s, calls[i], &err) != 0)
            kh_reply_err(calls[i], &err);
}

static void free_question(void *parsed) {
    if (parsed)
        kh_wire_question_free(parsed);
    kh_free(parsed);
}

static const kh_way SCORE = { joins, run, free_question, false };

/* What the answer to so many pairs takes, twice as numbers (here and on the way to the box) and
 * once as text: nine digits, a sign, a point and an exponent at most. */
static size_t answer_bytes(const kh_wire_question *w, size_t pairs) {
    size_t n_label = (size_t)(w->task ? w->task->n_label : w->words.n_label),
           numbers = w->want == KH_ANSWER_LABELS ? 1 : n_label + 1;
    return pairs * numbers * (2 * sizeof(float) + 18) + 4096;
}

void kh_post_score(kh_server *s, kh_call *c) {
    kh_err err = { 0 };
    kh_wire_question *w = kh_calloc(1, sizeof *w);
    if (!w) {
        kh_reply_fail(c, 503, "out of memory");
        return;
    }
    c->parsed = w;
    c->way = &SCORE;
    int rc =
        kh_wire_question_parse(w, c->body.data ? c->body.data : "", c->body.len, &s->limits, &err);
    if (rc == 0 && !w->want_given)
        w->want = s->scorer ? KH_ANSWER_LOGPROBS : KH_ANSWER_LABELS;
    if (rc == 0 && w->want != KH_ANSWER_LABELS && !s->scorer)
        kh_reply_fail(
            c, 403, "this server was started with --access labels and lets no probability out");
    else if (rc == 0 && !w->task)
        rc = kh_guard_words(s, &w->words, &err);
    if (rc != 0)
        kh_reply_err(c, &err);
    if (c->reply.status != 0)
        return;
    int n_row = w->task ? w->n_row : w->batch.n_row;
    c->queries = (long long)w->n_prompt * n_row;
    c->bound = answer_bytes(w, (size_t)c->queries);
    long long tokens = w->batch.start ? (long long)w->batch.start[w->batch.n_seq] : 0;
    if (w->task) /* texts: not encoded yet, so the most that they can be */
        tokens = (long long)w->n_row * s->limits.max_len;
    size_t longest = 0;
    for (int i = 0; w->task && i < w->n_row; i++) {
        size_t n = w->row[i].n_a + w->row[i].n_b;
        longest = n > longest ? n : longest;
    }
    c->bound += kh_encode_cost(longest);
    c->cost = (long long)w->n_prompt * tokens;
}
