/* texts.c - see texts.h. */
#include "texts.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"

#include <string.h>
#include <unistd.h>

/* A line that is a JSON string becomes what the string says. */
static int decode_line(cli_texts *t, kh_err *err) {
    char place[64];
    snprintf(place, sizeof place, "standard input: line %ld", t->line);
    json_t *value;
    int rc = kh_json_parse(t->buffer.data, t->buffer.len, place, &value, err);
    if (rc == 0 && !json_is_string(value))
        rc = kh_fail(err, KH_EFORMAT, "%s: must be a JSON string", place);
    if (t->decoded.max == 0)
        t->decoded = kh_buf_init(KH_BUF_MAX);
    if (rc == 0) {
        kh_buf_reset(&t->decoded);
        kh_buf_bytes(&t->decoded, json_string_value(value), json_string_length(value));
        if (kh_buf_failed(&t->decoded))
            rc = kh_fail_memory(err);
    }
    json_decref(value);
    return rc;
}

int cli_texts_next(cli_texts *t, const char **text, size_t *n, kh_err *err) {
    if (t->n_args > 0) {
        if (t->next == t->n_args)
            return 0;
        *text = t->args[t->next++];
        *n = strlen(*text);
        return 1;
    }
    int rc = cli_read_line(stdin, &t->buffer, err);
    if (rc <= 0)
        return rc;
    t->line++;
    if (t->json && (rc = decode_line(t, err)) < 0)
        return rc;
    const kh_buf *from = t->json ? &t->decoded : &t->buffer;
    *text = from->data ? from->data : "";
    *n = from->len;
    return 1;
}

void cli_texts_free(cli_texts *t) {
    kh_buf_free(&t->buffer);
    kh_buf_free(&t->decoded);
}

int cli_texts_fail(const cli_texts *t, kh_err *err) {
    return t->line > 0 ? kh_err_prefix(err, "standard input: line %ld", t->line) : err->code;
}

/* -------------------------------------------------------------------------------------- chunks */

enum {
    CHUNK_TOKENS = 4096
}; /* and one text: what the engine computes at once in any case, and little memory */

static void chunk_free(cli_chunk *c) {
    kh_buf_free(&c->bytes);
    kh_ids_free(&c->ids);
    kh_free(c->text);
    kh_free(c->start);
    kh_free(c->mask);
    kh_free(c->slot);
}

static void chunk_reset(cli_chunk *c) {
    kh_buf_reset(&c->bytes);
    c->n = c->ids.n = c->batch.max_len = 0;
}

/* Takes a text whose ids were appended. */
static int chunk_add(cli_chunk *c, const char *text, size_t n, kh_err *err) {
    size_t count = (size_t)c->n;
    kh_buf_bytes(&c->bytes, text, n);
    if (kh_buf_failed(&c->bytes) || !kh_grow(&c->text, &c->text_cap, count + 2, sizeof *c->text) ||
        !kh_grow(&c->start, &c->start_cap, count + 2, sizeof *c->start) ||
        !kh_grow(&c->mask, &c->mask_cap, count + 1, sizeof *c->mask) ||
        !kh_grow(&c->slot, &c->slot_cap, count + 1, sizeof *c->slot))
        return kh_fail_memory(err);
    c->text[0] = c->start[0] = 0;
    c->text[count + 1] = c->bytes.len;
    c->start[count + 1] = (size_t)c->ids.n;
    c->mask[count] = 0;
    c->slot[count] = -1;
    int length = c->ids.n - (int)c->start[count];
    c->batch.max_len = length > c->batch.max_len ? length : c->batch.max_len;
    c->n++;
    return 0;
}

static int chunk_answer(cli_chunk *c, const cli_asker *asker, kh_err *err) {
    static const int ONE = 1;
    if (c->n == 0)
        return 0;
    c->batch = (kh_batch){ .n_row = c->n,
        .n_variant = 1,
        .n_seq = c->n,
        .max_len = c->batch.max_len,
        .id = c->ids.id,
        .start = c->start,
        .n_mask = &ONE,
        .mask = c->mask,
        .slot = c->slot };
    int rc = asker->answer(asker->user, c, err);
    chunk_reset(c);
    return rc;
}

int cli_texts_ask(cli_texts *t, const cli_asker *asker, int most, kh_err *err) {
    cli_chunk c = { .bytes = kh_buf_init(KH_BUF_MAX) };
    const char *text;
    size_t n;
    int rc = 0;
    if (t->n_args == 0 && isatty(STDIN_FILENO))
        most = 1; /* somebody waits for the answer */
    while (rc == 0 && (rc = cli_texts_next(t, &text, &n, err)) > 0) {
        int before = c.ids.n, full = asker->encode(asker->user, text, n, &c.ids, err);
        if (full < 0)
            c.ids.n = before;
        rc = full < 0 ? cli_texts_fail(t, err) : chunk_add(&c, text, n, err);
        if (rc == 0 && (full > 0 || c.n == most || c.ids.n >= CHUNK_TOKENS))
            rc = chunk_answer(&c, asker, err);
    }
    kh_err later;
    if (chunk_answer(&c, asker, rc == 0 ? err : &later) != 0 && rc == 0)
        rc = err->code;
    chunk_free(&c);
    return rc;
}

/* The K largest log-probabilities, largest first, smaller ids first among equals: insertion into a
 * short sorted list. */
void cli_best_tokens(const float *logprob, int vocab, int32_t *best, int top) {
    int n = 0;
    for (int32_t id = 0; id < vocab; id++) {
        if (n == top && !(logprob[id] > logprob[best[n - 1]]))
            continue;
        int i = n < top ? n++ : n - 1;
        for (; i > 0 && logprob[id] > logprob[best[i - 1]]; i--)
            best[i] = best[i - 1];
        best[i] = id;
    }
}

int cli_put_token(kh_buf *out, kh_json_out *json, const kh_tokenizer *tokenizer, int rank,
    int32_t id, double logprob, kh_err *err) {
    char *text = NULL;
    size_t n = 0;
    bool named = id < kh_tokenizer_size(tokenizer);
    const char *token = named ? kh_tokenizer_token(tokenizer, id) : NULL;
    int rc = token ? kh_tokenizer_decode(tokenizer, &id, 1, false, &text, &n, err) : 0;
    if (rc != 0)
        return rc;
    if (json) {
        kh_json_open_object(json, NULL);
        kh_json_put_int(json, "id", id);
        kh_json_put_number(json, "logprob", logprob, 9);
        kh_json_put_string(json, "token", token ? token : "");
        kh_json_put_text(json, "text", text ? text : "", n);
        kh_json_close(json);
    } else {
        kh_buf_printf(out, "  %2d  %8.4f  %6d  ", rank + 1, logprob, id);
        kh_json_quote(out, text ? text : "", n);
        kh_buf_char(out, '\n');
    }
    kh_text_free(text);
    return 0;
}
