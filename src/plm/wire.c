/* wire.c - see wire.h. Numbers travel as little-endian bytes: a prompt arrives with the bits that
 * were sent.
 *
 * Both directions of both messages live in this one file, so that a change of the format cannot be
 * made on one side only. Reading trusts nothing: shapes are multiplied with overflow checks and
 * compared with the limits before memory is taken; positions of masks and slots are checked against
 * every sequence, so that what is accepted here can go to the engine without another look.
 * tests/test_plm_wire.c and fuzz_request_score.c try to break it. */
#include "plm/wire.h"

#include "base/alloc.h"
#include "base/base64.h"
#include "base/err.h"
#include "base/size.h"
#include "model/tensor.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire format is little-endian, and so are the machines that this was written for"
#endif

/* -------------------------------------------------------------------------------------- floats */

void kh_wire_floats_put(kh_json_out *j, const float *x, size_t n) {
    kh_json_put_string(j, "dtype", "f32");
    kh_json_put_base64(j, "data", x, n * sizeof *x);
}

/* *count is the product of the shape, at most `most`, whatever the numbers are. */
static int read_shape(const json_t *obj, const char *place, int rank, size_t most, size_t *shape,
    size_t *count, kh_err *err) {
    const json_t *dims = json_object_get(obj, "shape");
    if (!json_is_array(dims) || json_array_size(dims) != (size_t)rank)
        return kh_fail(
            err, KH_EFORMAT, "%s: \"shape\" must be an array of %d whole numbers", place, rank);
    *count = 1;
    for (size_t i = 0; i < (size_t)rank; i++) {
        const json_t *d = json_array_get(dims, i);
        if (!json_is_integer(d) || json_integer_value(d) < 1 || json_integer_value(d) > INT_MAX)
            return kh_fail(err, KH_EFORMAT,
                "%s: number %zu of \"shape\" must be a whole number from 1", place, i);
        shape[i] = (size_t)json_integer_value(d);
        if (!kh_mul(*count, shape[i], count) || *count > most)
            return kh_fail(
                err, KH_ELIMIT, "%s: \"shape\" holds more than %zu numbers", place, most);
    }
    return 0;
}

/* KH_DTYPE_ANY: none of those that travel. */
static kh_dtype dtype_named(const char *type) {
    static const struct {
        const char *name;
        kh_dtype type;
    } known[] = { { "f32", KH_DTYPE_F32 }, { "f16", KH_DTYPE_F16 }, { "bf16", KH_DTYPE_BF16 } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(type, known[i].name) == 0)
            return known[i].type;
    return KH_DTYPE_ANY;
}

/* Memory for n floats is taken only once the base64 text has shown that it holds as many. */
int kh_wire_floats(const json_t *obj, const char *place, int rank, size_t most, size_t *shape,
    float **out, kh_err *err) {
    const char *type = "f32";
    size_t n = 0;
    *out = NULL;
    if (!json_is_object(obj))
        return kh_fail(
            err, KH_EFORMAT, "%s: must be an object with \"dtype\", \"shape\" and \"data\"", place);
    int rc = kh_json_string_opt(obj, "dtype", &type, place, err);
    if (rc == 0)
        rc = read_shape(obj, place, rank, most, shape, &n, err);
    if (rc != 0)
        return rc;
    kh_dtype dtype = dtype_named(type);
    if (dtype == KH_DTYPE_ANY)
        return kh_fail(
            err, KH_EFORMAT, "%s: \"dtype\" must be f32, f16 or bf16, not \"%.20s\"", place, type);
    const json_t *data = json_object_get(obj, "data");
    const char *text = json_string_value(data);
    size_t length = json_string_length(data), size = dtype == KH_DTYPE_F32 ? 4 : 2,
           bytes = text ? kh_base64_size(text, length) : 0;
    if (!text || bytes != n * size)
        return kh_fail(err, KH_EFORMAT,
            "%s: \"data\" must be base64 of %zu bytes, %zu numbers of type %s", place, n * size, n,
            type);
    float *x = kh_malloc(n * sizeof *x);
    if (!x)
        return kh_fail_memory(err);
    char *raw = (char *)x +
        n *
            (sizeof *x -
                size); /* narrow numbers stand in the second half and are widened from the front */
    if (!kh_base64_get(text, length, raw)) {
        kh_free(x);
        return kh_fail(err, KH_EFORMAT, "%s: \"data\" is not base64", place);
    }
    for (size_t i = 0; i < n && size == 2; i++) {
        uint16_t h;
        memcpy(&h, raw + 2 * i, 2);
        x[i] = dtype == KH_DTYPE_F16 ? kh_f32_of_f16(h) : kh_f32_of_bf16(h);
    }
    *out = x;
    return 0;
}

/* --------------------------------------------------------------------------- writing questions */

/* "labels": for each label the list of its words, each a list of ids. */
static void put_words(kh_json_out *j, const kh_words *w) {
    kh_json_put_ints(j, "masks", w->n_mask, (size_t)w->n_variant);
    kh_json_open_array(j, "labels");
    for (int i = 0; i < w->n_word; i++) {
        bool first = i == 0 || w->word[i - 1].label != w->word[i].label;
        if (first && i > 0)
            kh_json_close(j);
        if (first)
            kh_json_open_array(j, NULL);
        kh_json_put_ints(j, NULL, w->word[i].id, (size_t)w->word[i].n_id);
    }
    kh_json_close(j);
    kh_json_close(j);
}

/* Soft prompts are by far the largest part of a question, and losing bits of them would make the
 * remote box another box: base64 of the floats themselves, never decimals. */
static void put_prompts(kh_json_out *j, const kh_question *q, int hidden) {
    const kh_batch *b = q->batch;
    const int shape[] = { q->n_prompt, b->n_slot, hidden };
    kh_json_put_ints(j, "slot", b->slot, (size_t)b->n_seq);
    kh_json_put_string(j, "inject", kh_inject_name(q->inject));
    kh_json_open_object(j, "prompts");
    kh_json_put_ints(j, "shape", shape, 3);
    kh_wire_floats_put(j, q->prompt, (size_t)q->n_prompt * (size_t)b->n_slot * (size_t)hidden);
    kh_json_close(j);
}

void kh_wire_question_put(kh_buf *out, const kh_question *q, int hidden, kh_answer_kind want) {
    const kh_batch *b = q->batch;
    kh_json_out j = kh_json_out_init(out, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "want", kh_answer_kind_name(want));
    kh_json_put_string(&j, "encoding", "base64");
    kh_json_open_array(&j, "ids");
    for (int s = 0; s < b->n_seq; s++)
        kh_json_put_ints(&j, NULL, b->id + b->start[s], (size_t)(b->start[s + 1] - b->start[s]));
    kh_json_close(&j);
    if (q->words->next) {
        kh_json_put_bool(&j, "next", true);
        kh_json_put_bool(&j, "mean", q->words->mean);
    } else
        kh_json_put_ints(&j, "mask", b->mask, (size_t)b->n_seq);
    put_words(&j, q->words);
    if (b->n_slot > 0)
        put_prompts(&j, q, hidden);
    kh_json_close(&j);
}

/* --------------------------------------------------------------------------- reading questions */

typedef struct reader {
    kh_wire_question *q;
    const kh_wire_limits *l;
    kh_err *err;
} reader;

static const char PLACE[] = "request";

/* One element more than asked for: arrays without elements are not NULL. */
static void *room(reader *r, size_t n, size_t size) {
    return kh_arena_array(&r->q->arena, n + 1, size);
}

/* *out [*n], fresh in the arena, from an array of whole numbers from min to max. */
static int read_ints(reader *r, const json_t *array, const char *what, int min, int max,
    size_t most, int **out, size_t *n) {
    if (!json_is_array(array) || json_array_size(array) > most)
        return kh_fail(r->err, KH_EFORMAT,
            "%s: \"%s\" must be an array of at most %zu whole numbers", PLACE, what, most);
    *n = json_array_size(array);
    if (!(*out = room(r, *n, sizeof **out)))
        return kh_fail_memory(r->err);
    for (size_t i = 0; i < *n; i++) {
        const json_t *v = json_array_get(array, i);
        json_int_t x = json_is_integer(v) ? json_integer_value(v) : (json_int_t)min - 1;
        if (x < min || x > max)
            return kh_fail(r->err, KH_EFORMAT,
                "%s: number %zu of \"%s\" must be a whole number from %d to %d", PLACE, i, what,
                min, max);
        (*out)[i] = (int)x;
    }
    return 0;
}

/* No prompts at all means one empty prompt: the template as it is. NaN and infinity are refused
 * here, because behind this point they would look like a fault of the model. */
static int read_prompts(reader *r, const json_t *root) {
    kh_wire_question *q = r->q;
    const json_t *prompts = json_object_get(root, "prompts");
    const char *inject = "post-ln-add";
    size_t shape[3], most = (size_t)r->l->prompts * (size_t)r->l->max_len * (size_t)r->l->hidden;
    q->n_prompt = 1;
    if (!prompts || json_is_null(prompts))
        return 0;
    int rc = kh_json_string_opt(root, "inject", &inject, PLACE, r->err);
    if (rc == 0 &&
        ((rc = kh_inject_find(&q->inject, inject, r->err)) != 0 || q->inject == KH_INJECT_NONE))
        return kh_fail(r->err, KH_EFORMAT,
            "%s: \"inject\" must be post-ln-add, embed-prefix or embed-inplace", PLACE);
    if (rc == 0)
        rc = kh_wire_floats(prompts, "request: \"prompts\"", 3, most, shape, &q->prompt, r->err);
    if (rc != 0)
        return rc;
    if (shape[0] > (size_t)r->l->prompts)
        return kh_fail(r->err, KH_ELIMIT, "%s: %zu prompts; at most %d are taken at a time", PLACE,
            shape[0], r->l->prompts);
    if (shape[2] != (size_t)r->l->hidden || shape[1] > (size_t)r->l->max_len)
        return kh_fail(r->err, KH_EFORMAT,
            "%s: prompts of %zu x %zu numbers; the model takes at most %d rows of %d", PLACE,
            shape[1], shape[2], r->l->max_len, r->l->hidden);
    q->n_prompt = (int)shape[0];
    q->n_slot = (int)shape[1];
    for (size_t i = 0; i < shape[0] * shape[1] * shape[2]; i++)
        if (!isfinite(q->prompt[i]))
            return kh_fail(r->err, KH_EFORMAT, "%s: prompt %zu holds NaN or infinity", PLACE,
                i / (shape[1] * shape[2]));
    return 0;
}

/* "labels": label -> words -> ids; label after label into q->words. */
static int read_words(reader *r, const json_t *root) {
    /* Far above any task of the paper (14 labels, one word each), far below what makes a server
     * allocate for a stranger. */
    enum { MOST_LABELS = 4096, MOST_WORDS = 8192 };
    kh_words *w = &r->q->words;
    const json_t *labels = json_object_get(root, "labels"), *one;
    size_t k, i, n = 0;
    json_array_foreach(labels, k, one) n += json_array_size(one);
    if (!json_is_array(labels) || json_array_size(labels) < 2 ||
        json_array_size(labels) > MOST_LABELS || n > MOST_WORDS)
        return kh_fail(r->err, KH_EFORMAT,
            "%s: \"labels\" must be 2 to %d arrays, one for each label, of at most %d words "
            "together",
            PLACE, MOST_LABELS, MOST_WORDS);
    kh_word *word = room(r, n, sizeof *word);
    if (!word)
        return kh_fail_memory(r->err);
    w->word = word;
    w->n_label = (int)json_array_size(labels);
    json_array_foreach(labels, k, one) {
        if (!json_is_array(one) || json_array_size(one) == 0)
            return kh_fail(r->err, KH_EFORMAT,
                "%s: label %zu has no words; each is an array of token ids", PLACE, k);
        for (i = 0; i < json_array_size(one); i++) {
            int *id;
            size_t n_id;
            int rc =
                read_ints(r, json_array_get(one, i), "labels", 0, r->l->vocab - 1, 64, &id, &n_id);
            if (rc == 0 && n_id == 0)
                rc = kh_fail(r->err, KH_EFORMAT, "%s: a word of label %zu has no tokens", PLACE, k);
            if (rc != 0)
                return rc;
            word[w->n_word++] = (kh_word){ .text = "",
                .label = (int)k,
                .id = id,
                .n_token = (int)n_id,
                .n_id = (int)n_id,
                .same = -1,
                .first_same = -1 };
        }
    }
    return 0;
}

/* "masks": the lengths of words, ascending, each once, and no word of another length. */
static int read_variants(reader *r, const json_t *root) {
    kh_words *w = &r->q->words;
    const json_t *masks = json_object_get(root, "masks");
    int *length;
    size_t n = 1;
    int bad = kh_json_bool_opt(root, "next", &w->next, PLACE, r->err);
    if (bad == 0)
        bad = kh_json_bool_opt(root, "mean", &w->mean, PLACE, r->err);
    if (bad != 0)
        return bad;
    if (w->next != r->l->next)
        return kh_fail(r->err, KH_EMISMATCH,
            w->next
                ? "%s: \"next\" is true, but the model fills masks"
                : "%s: the model continues texts: \"next\" must be true, and there are no masks",
            PLACE);
    if (w->next)
        masks = NULL;
    if (masks) {
        int rc = read_ints(r, masks, "masks", 1, 64, 64, &length, &n);
        if (rc != 0)
            return rc;
    } else if (!(length = room(r, 1, sizeof *length)))
        return kh_fail_memory(r->err);
    else
        length[0] = 1;
    bool ok = n > 0, seen[65] = { false };
    for (size_t i = 0; i < n; i++) {
        ok = ok && (i == 0 || length[i] > length[i - 1]);
        seen[length[i]] = true;
    }
    for (int i = 0; i < w->n_word && ok && !w->next; i++)
        ok = seen[w->word[i].n_id];
    if (!ok)
        return kh_fail(r->err, KH_EFORMAT,
            "%s: \"masks\" must name the lengths of the label words in tokens, ascending, each "
            "once",
            PLACE);
    w->n_mask = length;
    w->n_variant = (int)n;
    return 0;
}

/* Masks and slots within each sequence, and the same ids in the slots of all. */
static int check_sequences(reader *r) {
    const kh_batch *b = &r->q->batch;
    const int32_t *slots = b->n_slot > 0 ? b->id + b->start[0] + b->slot[0] : NULL;
    for (int s = 0; s < b->n_seq; s++) {
        int length = (int)(b->start[s + 1] - b->start[s]), masks = b->n_mask[s % b->n_variant];
        if (length < 1)
            return kh_fail(r->err, KH_EFORMAT, "%s: sequence %d has no tokens", PLACE, s);
        if (b->mask[s] > length - masks)
            return kh_fail(r->err, KH_EFORMAT, "%s: sequence %d of %d tokens has its masks at %d",
                PLACE, s, length, b->mask[s]);
        if (b->n_slot > 0 && b->slot[s] > length - b->n_slot)
            return kh_fail(r->err, KH_EFORMAT, "%s: sequence %d of %d tokens has %d slots at %d",
                PLACE, s, length, b->n_slot, b->slot[s]);
        if (b->n_slot > 0 &&
            memcmp(b->id + b->start[s] + b->slot[s], slots, (size_t)b->n_slot * sizeof *slots) != 0)
            return kh_fail(r->err, KH_EFORMAT,
                "%s: the slots of sequence %d hold other ids than those of sequence 0", PLACE, s);
    }
    return 0;
}

/* One position for each sequence; 0-based, within the longest that the model takes. */
static int read_places(reader *r, const json_t *root, const char *key, int **out) {
    size_t n, want = (size_t)r->q->batch.n_seq;
    int rc = read_ints(r, json_object_get(root, key), key, 0, r->l->max_len - 1, want, out, &n);
    return rc == 0 && n != want
        ? kh_fail(r->err, KH_EFORMAT, "%s: \"%s\" must have a number for each of %zu sequences",
              PLACE, key, want)
        : rc;
}

/* Rows times variants sequences, each with ids of its own (ragged: start [n_seq + 1]). The limit of
 * tokens counts every prompt, since each is asked with every row. There are no labels in a
 * question: -1. */
static int read_ids(reader *r, const json_t *root, const json_t *ids) {
    kh_batch *b = &r->q->batch;
    size_t n_seq = json_array_size(ids), total = 0;
    int *mask, *slot, *label, *row, rc = 0;
    b->n_variant = r->q->words.n_variant;
    b->n_mask = r->q->words.n_mask;
    if (n_seq == 0 || n_seq % (size_t)b->n_variant != 0 ||
        n_seq / (size_t)b->n_variant > (size_t)r->l->rows)
        return kh_fail(r->err, KH_EFORMAT, "%s: \"ids\" must hold 1 to %d rows of %d sequence%s",
            PLACE, r->l->rows, b->n_variant, b->n_variant == 1 ? "" : "s");
    b->n_seq = (int)n_seq;
    b->n_row = b->n_seq / b->n_variant;
    b->n_slot = r->q->n_slot;
    for (size_t s = 0; s < n_seq; s++)
        total += json_array_size(json_array_get(ids, s));
    if ((long long)total > r->l->tokens / r->q->n_prompt)
        return kh_fail(r->err, KH_ELIMIT,
            "%s: %d prompts with %zu tokens of rows; at most %lld tokens are taken at a time",
            PLACE, r->q->n_prompt, total, r->l->tokens);
    int32_t *all = room(r, total, sizeof *all);
    size_t *start = room(r, n_seq + 1, sizeof *start);
    if (!all || !start)
        return kh_fail_memory(r->err);
    for (size_t s = 0; s < n_seq && rc == 0; s++) {
        int *one;
        size_t n;
        rc = read_ints(
            r, json_array_get(ids, s), "ids", 0, r->l->vocab - 1, (size_t)r->l->max_len, &one, &n);
        if (rc != 0)
            break;
        memcpy(all + start[s], one, n * sizeof *one);
        start[s + 1] = start[s] + n;
        b->max_len = (int)n > b->max_len ? (int)n : b->max_len;
    }
    b->id = all, b->start = start;
    if (rc == 0 && !r->q->words.next)
        rc = read_places(r, root, "mask", &mask);
    else if (rc == 0 && !(mask = room(r, n_seq, sizeof *mask))) /* zeros: nobody looks there */
        rc = kh_fail_memory(r->err);
    if (rc == 0 && b->n_slot > 0)
        rc = read_places(r, root, "slot", &slot);
    else if (rc == 0 && !(slot = room(r, n_seq, sizeof *slot)))
        rc = kh_fail_memory(r->err);
    for (size_t s = 0; s < n_seq && rc == 0 && b->n_slot == 0; s++)
        slot[s] = -1;
    if (rc == 0 &&
        (!(label = room(r, n_seq, sizeof *label)) || !(row = room(r, n_seq, sizeof *row))))
        rc = kh_fail_memory(r->err);
    if (rc != 0)
        return rc;
    for (int i = 0; i < b->n_row; i++)
        label[i] = -1, row[i] = i;
    b->mask = mask, b->slot = slot, b->label = label, b->row = row;
    return check_sequences(r);
}

/* Texts are copied: the JSON tree is gone before the rows are encoded. */
static int read_text(reader *r, const json_t *v, kh_row *row) {
    const json_t *a = r->q->task->pair ? json_array_get(v, 0) : v,
                 *b = r->q->task->pair ? json_array_get(v, 1) : NULL;
    if (!json_is_string(a) || (r->q->task->pair && (!json_is_string(b) || json_array_size(v) != 2)))
        return kh_fail(r->err, KH_EFORMAT, "%s: each of \"texts\" must be %s for task \"%.60s\"",
            PLACE, r->q->task->pair ? "an array of two strings" : "a string", r->q->task->name);
    *row = (kh_row){ .label = -1 };
    char *copy = kh_arena_strndup(&r->q->arena, json_string_value(a), json_string_length(a));
    char *other =
        b ? kh_arena_strndup(&r->q->arena, json_string_value(b), json_string_length(b)) : NULL;
    if (!copy || (b && !other))
        return kh_fail_memory(r->err);
    row->a = copy, row->n_a = json_string_length(a);
    row->b = other, row->n_b = b ? json_string_length(b) : 0;
    return 0;
}

/* A task by its name (a file is none of a client's business) or as an object. */
static int read_task(reader *r, const json_t *task) {
    const char *name = json_string_value(task);
    for (int i = 0; name && kh_task_builtin(i); i++)
        if (strcmp(kh_task_builtin(i)->name, name) == 0)
            return kh_task_open(&r->q->task, name, r->err);
    if (!json_is_object(task))
        return kh_fail(r->err, KH_EFORMAT,
            "%s: \"task\" must be the name of a built-in task or a task as an object", PLACE);
    char *text = json_dumps(task, JSON_COMPACT);
    int rc = text ? kh_task_parse(&r->q->task, text, strlen(text), "request: \"task\"", r->err)
                  : kh_fail_memory(r->err);
    free(text);
    return rc;
}

/* Encoding is left to the server's queue, outside the parser, so the tokens are not known yet: they
 * are bounded by max_len for each text. */
static int read_texts(reader *r, const json_t *root, const json_t *texts) {
    kh_wire_question *q = r->q;
    size_t n = json_array_size(texts);
    int rc = kh_json_bool_opt(root, "paper_exact", &q->paper_exact, PLACE, r->err);
    if (rc == 0)
        rc = read_task(r, json_object_get(root, "task"));
    if (rc == 0 && (n == 0 || n > (size_t)r->l->rows))
        rc =
            kh_fail(r->err, KH_EFORMAT, "%s: \"texts\" must hold 1 to %d texts", PLACE, r->l->rows);
    if (rc == 0 && (long long)n * r->l->max_len > r->l->tokens / q->n_prompt)
        rc = kh_fail(r->err, KH_ELIMIT,
            "%s: %d prompts with %zu texts; at most %lld tokens are taken at a time", PLACE,
            q->n_prompt, n, r->l->tokens);
    if (rc == 0 && !(q->row = room(r, n, sizeof *q->row)))
        rc = kh_fail_memory(r->err);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_text(r, json_array_get(texts, i), &q->row[i]);
    q->n_row = (int)n;
    const json_t *slots = json_object_get(root, "slot_ids");
    size_t n_slot;
    if (rc == 0 && slots) {
        rc = read_ints(
            r, slots, "slot_ids", 0, r->l->vocab - 1, (size_t)r->l->max_len, &q->slot_id, &n_slot);
        if (rc == 0 && n_slot != (size_t)q->n_slot)
            rc = kh_fail(r->err, KH_EFORMAT, "%s: %zu \"slot_ids\" for prompts of %d rows", PLACE,
                n_slot, q->n_slot);
    }
    return rc;
}

/* Either ids, from keyhole's own client, which has fetched the tokenizer and encodes as a local box
 * would; or texts, from everybody else. */
static int read_question(reader *r, const json_t *root) {
    kh_wire_question *q = r->q;
    const char *want = NULL, *encoding = "json";
    const json_t *ids = json_object_get(root, "ids"), *texts = json_object_get(root, "texts");
    if (!json_is_object(root))
        return kh_fail(r->err, KH_EFORMAT, "%s: must be an object", PLACE);
    int rc = kh_json_string_opt(root, "want", &want, PLACE, r->err);
    if (rc == 0)
        rc = kh_json_string_opt(root, "encoding", &encoding, PLACE, r->err);
    while (rc == 0 && want && strcmp(want, kh_answer_kind_name(q->want)) != 0)
        if (q->want++ == KH_ANSWER_ENERGIES)
            rc = kh_fail(r->err, KH_EFORMAT,
                "%s: \"want\" must be labels, logprobs or energies, not \"%.20s\"", PLACE, want);
    if (rc == 0 && strcmp(encoding, "json") != 0 && strcmp(encoding, "base64") != 0)
        rc = kh_fail(r->err, KH_EFORMAT, "%s: \"encoding\" must be json or base64, not \"%.20s\"",
            PLACE, encoding);
    if (rc == 0 && json_is_array(ids) == json_is_array(texts))
        rc = kh_fail(r->err, KH_EFORMAT,
            "%s: must hold either \"ids\" with \"labels\", or \"texts\" with \"task\"", PLACE);
    if (rc != 0)
        return rc;
    q->want_given = want != NULL;
    q->base64 = strcmp(encoding, "base64") == 0;
    rc = read_prompts(r, root);
    if (rc == 0 && json_is_array(texts))
        return read_texts(r, root, texts);
    if (rc == 0)
        rc = read_words(r, root);
    if (rc == 0)
        rc = read_variants(r, root);
    return rc == 0 ? read_ids(r, root, ids) : rc;
}

int kh_wire_question_parse(
    kh_wire_question *q, const char *body, size_t n, const kh_wire_limits *l, kh_err *err) {
    *q = (kh_wire_question){ 0 };
    kh_err own;
    reader r = { q, l, err ? err : &own };
    json_t *root;
    int rc = kh_json_parse(body, n, PLACE, &root, r.err);
    if (rc == 0)
        rc = read_question(&r, root);
    json_decref(root);
    return rc;
}

void kh_wire_question_free(kh_wire_question *q) {
    kh_free(q->prompt);
    kh_task_close(q->task);
    kh_arena_free(&q->arena);
}

/* ------------------------------------------------------------------------------------- answers */

enum { DIGITS = 9 }; /* name a float exactly */

/* -9999 stands for minus infinity, as OpenAI's API has it for log-probabilities. */
static void put_nested(kh_json_out *j, const float *x, int n_prompt, int n_row, int n_label) {
    kh_json_open_array(j, "logprobs");
    for (int p = 0; p < n_prompt; p++) {
        kh_json_open_array(j, NULL);
        for (int i = 0; i < n_row; i++) {
            kh_json_open_array(j, NULL);
            for (int k = 0; k < n_label; k++, x++) /* JSON has no infinity */
                kh_json_put_number(j, NULL, isinf(*x) ? -9999.0 : (double)*x, DIGITS);
            kh_json_close(j);
        }
        kh_json_close(j);
    }
    kh_json_close(j);
}

static void put_energy(kh_json_out *j, const kh_wire_answer *a) {
    size_t n_row = (size_t)a->n_row;
    if (a->base64) {
        kh_json_open_object(j, "energy");
        kh_json_put_ints(j, "shape", (const int[]){ a->n_prompt, a->n_row }, 2);
        kh_wire_floats_put(j, a->energy, (size_t)a->n_prompt * n_row);
        kh_json_close(j);
        return;
    }
    kh_json_open_array(j, "energy");
    for (int p = 0; p < a->n_prompt; p++)
        kh_json_put_floats(j, NULL, a->energy + (size_t)p * n_row, n_row, DIGITS);
    kh_json_close(j);
}

void kh_wire_answer_put(kh_buf *out, const kh_wire_answer *a) {
    kh_json_out j = kh_json_out_init(out, KH_JSON_COMPACT);
    const int shape[] = { a->n_prompt, a->n_row, a->n_label };
    size_t pairs = (size_t)a->n_prompt * (size_t)a->n_row;
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "model", a->model);
    kh_json_put_string(&j, "want", kh_answer_kind_name(kh_answer_kind_of(a->label, a->energy)));
    kh_json_put_ints(&j, "shape", shape, a->label ? 2 : 3);
    if (a->label)
        kh_json_put_ints(&j, "labels", a->label, pairs);
    else if (a->base64)
        kh_wire_floats_put(&j, a->logprob, pairs * (size_t)a->n_label);
    else
        put_nested(&j, a->logprob, a->n_prompt, a->n_row, a->n_label);
    if (a->energy && !a->label)
        put_energy(&j, a);
    kh_json_close(&j);
    kh_buf_char(out, '\n');
}

/* What a service answers is checked like a file: it may be any program behind that address. */
static int take_labels(const json_t *root, const kh_wire_wanted *w, const char *who, kh_err *err) {
    const json_t *labels = json_object_get(root, "labels");
    size_t n = (size_t)w->n_prompt * (size_t)w->n_row;
    if (!json_is_array(labels) || json_array_size(labels) != n)
        return kh_fail(err, KH_EFORMAT, "%s: answered with %zu labels to %d prompts x %d rows", who,
            json_array_size(labels), w->n_prompt, w->n_row);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(labels, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= w->n_label)
            return kh_fail(err, KH_EFORMAT,
                "%s: answered prompt %zu, row %zu with a label outside 0..%d", who,
                i / (size_t)w->n_row, i % (size_t)w->n_row, w->n_label - 1);
        w->label[i] = (int)json_integer_value(v);
    }
    return 0;
}

/* Log-probabilities of label words need not add up to one, but none is above 0; NaN fails the
 * comparison, too. Minus infinity is allowed: a word that the model never says. */
static int take_logprobs(
    const json_t *root, const kh_wire_wanted *w, const char *who, kh_err *err) {
    size_t shape[3], n_label = (size_t)w->n_label, n_row = (size_t)w->n_row,
                     n = (size_t)w->n_prompt * n_row * n_label;
    float *x;
    int rc = kh_wire_floats(root, who, 3, n, shape, &x, err);
    if (rc != 0)
        return rc;
    if (shape[0] != (size_t)w->n_prompt || shape[1] != n_row || shape[2] != n_label)
        rc = kh_fail(err, KH_EFORMAT,
            "%s: answered with shape [%zu, %zu, %zu], expected [%d, %d, %d]", who, shape[0],
            shape[1], shape[2], w->n_prompt, w->n_row, w->n_label);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (!(x[i] <= 0)) {
            size_t pair = i / n_label;
            rc = kh_fail(err, KH_EFORMAT,
                "%s: answered prompt %zu, row %zu with %g, which is no log-probability", who,
                pair / n_row, pair % n_row, (double)x[i]);
        }
    if (rc == 0)
        memcpy(w->logprob, x, n * sizeof *x);
    kh_free(x);
    return rc;
}

static int take_energies(
    const json_t *root, const kh_wire_wanted *w, const char *who, kh_err *err) {
    size_t shape[2], n_row = (size_t)w->n_row, n = (size_t)w->n_prompt * n_row;
    float *x = NULL;
    const json_t *energy = json_object_get(root, "energy");
    int rc = energy
        ? kh_wire_floats(energy, who, 2, n, shape, &x, err)
        : kh_fail(err, KH_EFORMAT, "%s: answered without \"energy\", which was asked for", who);
    if (rc == 0 && (shape[0] != (size_t)w->n_prompt || shape[1] != n_row))
        rc = kh_fail(err, KH_EFORMAT,
            "%s: answered with energies of shape [%zu, %zu], expected [%d, %d]", who, shape[0],
            shape[1], w->n_prompt, w->n_row);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (!isfinite(x[i]))
            rc = kh_fail(err, KH_EFORMAT,
                "%s: answered prompt %zu, row %zu with an energy that is not a number", who,
                i / n_row, i % n_row);
    if (rc == 0)
        memcpy(w->energy, x, n * sizeof *x);
    kh_free(x);
    return rc;
}

int kh_wire_answer_parse(
    const char *body, size_t n, const kh_wire_wanted *w, const char *who, kh_err *err) {
    json_t *root;
    int rc = kh_json_parse(body, n, who, &root, err);
    if (rc == 0)
        rc = w->label ? take_labels(root, w, who, err) : take_logprobs(root, w, who, err);
    if (rc == 0 && w->energy)
        rc = take_energies(root, w, who, err);
    json_decref(root);
    return rc;
}
