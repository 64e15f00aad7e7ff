/* postprocess.c - see postprocess.h. */
#include "text/postprocess.h"

#include "base/alloc.h"
#include "base/err.h"
#include "text/vocab.h"

#include <string.h>

static int add_next(kh_parts *p, kh_id_part part, kh_err *err) {
    if (!kh_grow(&p->next, &p->cap_next, (size_t)p->n_next + 1, sizeof *p->next))
        return kh_fail_memory(err);
    p->next[p->n_next++] = part;
    return 0;
}

static void swap(kh_parts *p) {
    kh_id_part *part = p->part;
    size_t cap = p->cap;
    p->part = p->next;
    p->cap = p->cap_next;
    p->n = p->n_next;
    p->next = part;
    p->cap_next = cap;
    p->n_next = 0;
}

int kh_parts_add(kh_parts *p, kh_id_part part, kh_err *err) {
    if (!kh_grow(&p->part, &p->cap, (size_t)p->n + 1, sizeof *p->part))
        return kh_fail_memory(err);
    p->part[p->n++] = part;
    return 0;
}

void kh_parts_free(kh_parts *p) {
    kh_free(p->part);
    kh_free(p->next);
}

/* ------------------------------------------------ RobertaProcessing, BertProcessing, ByteLevel */

/* obj[key] is [token, id]. */
static int load_pair(
    const json_t *obj, const char *key, int32_t *id, const kh_source *from, kh_err *err) {
    const json_t *v = json_object_get(obj, key), *n = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_string(json_array_get(v, 0)) || !json_is_integer(n) ||
        json_integer_value(n) < 0 || json_integer_value(n) >= KH_VOCAB_MAX)
        return kh_fail(err, KH_EFORMAT, "%s: \"%s\" must be [token, id]", from->place, key);
    *id = (int32_t)json_integer_value(n);
    return 0;
}

static int load_around(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    kh_around *a = self;
    int rc = load_pair(obj, "cls", &a->cls, from, err);
    return rc ? rc : load_pair(obj, "sep", &a->sep, from, err);
}

/* Puts special tokens around each group: first before group 0, before before the others (NULL:
 * nothing), after behind all. typed: around groups other than the first they are of type 1. */
static int put_around(kh_parts *p, const int32_t *first, const int32_t *before,
    const int32_t *after, bool typed, kh_err *err) {
    int rc = 0;
    for (int i = 0; i < p->n && rc == 0; i++) {
        const kh_id_part *part = &p->part[i];
        bool starts = i == 0 || p->part[i - 1].group != part->group,
             ends = i + 1 == p->n || p->part[i + 1].group != part->group;
        const int32_t *front = part->group == 0 ? first : before;
        int32_t type_id = typed && part->group > 0 ? 1 : 0;
        if (starts && front)
            rc = add_next(p, (kh_id_part){ front, 1, type_id, part->group }, err);
        if (rc == 0)
            rc = add_next(p, *part, err);
        if (rc == 0 && ends)
            rc = add_next(p, (kh_id_part){ after, 1, type_id, part->group }, err);
    }
    swap(p);
    return rc;
}

/* Roberta: <s> A </s> </s> B </s>, all of type 0. */
static int run_roberta(const void *self, void *state, kh_err *err) {
    const kh_around *a = self;
    kh_parts *p = state;
    for (int i = 0; i < p->n; i++)
        p->part[i].type_id = 0;
    return p->special ? put_around(p, &a->cls, &a->sep, &a->sep, false, err) : 0;
}

/* Bert: [CLS] A [SEP] of type 0, B [SEP] of type 1. */
static int run_bert(const void *self, void *state, kh_err *err) {
    const kh_around *a = self;
    kh_parts *p = state;
    return p->special ? put_around(p, &a->cls, NULL, &a->sep, true, err) : 0;
}

/* Moves offsets only. */
static int run_byte_level(const void *self, void *state, kh_err *err) {
    (void)self, (void)state, (void)err;
    return 0;
}

/* -------------------------------------------------------------------------- TemplateProcessing */

typedef struct template_piece {
    int sequence;      /* 0 A, 1 B, -1 special tokens */
    const int32_t *id; /* those */
    int n;
    int32_t type_id;
} template_piece;

typedef struct template {
    template_piece *piece[2]; /* for a single sequence, for a pair */
    int n[2];
}
template;

static int load_special(template_piece *piece, const char *name, const json_t *tokens,
    const kh_source *from, kh_err *err) {
    const json_t *ids = json_object_get(json_object_get(tokens, name), "ids");
    if (!json_is_array(ids))
        return kh_fail(err, KH_EFORMAT,
            "%s: special token \"%.100s\" has no list \"ids\" in \"special_tokens\"", from->place,
            name);
    size_t n = json_array_size(ids);
    int32_t *id = kh_arena_array(from->arena, n ? n : 1, sizeof *id);
    if (!id)
        return kh_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(ids, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= KH_VOCAB_MAX)
            return kh_fail(err, KH_EFORMAT,
                "%s: an id of special token \"%.100s\" is not a whole number from 0 to %d",
                from->place, name, KH_VOCAB_MAX - 1);
        id[i] = (int32_t)json_integer_value(v);
    }
    piece->id = id;
    piece->n = (int)n;
    return 0;
}

static int load_piece(template_piece *piece, const json_t *obj, const json_t *tokens,
    const char *key, const kh_source *from, kh_err *err) {
    const json_t *sequence = json_object_get(obj, "Sequence"),
                 *special = json_object_get(obj, "SpecialToken");
    const json_t *v = sequence ? sequence : special;
    const char *name;
    int type_id = 0;
    if (!json_is_object(v) || json_object_size(obj) != 1)
        return kh_fail(err, KH_EFORMAT,
            "%s: a piece of \"%s\" must be {\"Sequence\": ...} or {\"SpecialToken\": ...}",
            from->place, key);
    int rc = kh_json_string(v, "id", &name, from->place, err);
    if (rc == 0)
        rc = kh_json_int(v, "type_id", 0, 1 << 30, &type_id, from->place, err);
    if (rc != 0)
        return rc;
    piece->type_id = type_id;
    if (special) {
        piece->sequence = -1;
        return load_special(piece, name, tokens, from, err);
    }
    if (strcmp(name, "A") != 0 && strcmp(name, "B") != 0)
        return kh_fail(err, KH_EFORMAT,
            "%s: a Sequence of \"%s\" has id \"%.50s\", expected A or B", from->place, key, name);
    piece->sequence = name[0] - 'A';
    if (piece->sequence == 1 && strcmp(key, "single") == 0)
        return kh_fail(err, KH_EFORMAT, "%s: \"single\" speaks of sequence B", from->place);
    return 0;
}

static int load_template(void *self, const json_t *obj, const kh_source *from, kh_err *err) {
    static const char *const keys[] = { "single", "pair" };
    template *t = self;
    const json_t *tokens = json_object_get(obj, "special_tokens");
    if (!json_is_object(tokens))
        return kh_fail(err, KH_EFORMAT, "%s: \"special_tokens\" must be an object", from->place);
    for (int k = 0; k < 2; k++) {
        const json_t *list = json_object_get(obj, keys[k]);
        if (!json_is_array(list) || json_array_size(list) > 1000)
            return kh_fail(err, KH_EFORMAT, "%s: \"%s\" must be a list of at most 1000 pieces",
                from->place, keys[k]);
        t->n[k] = (int)json_array_size(list);
        t->piece[k] = kh_arena_array(from->arena, (size_t)t->n[k] + 1, sizeof **t->piece);
        if (!t->piece[k])
            return kh_fail_memory(err);
        for (int i = 0; i < t->n[k]; i++) {
            int rc = load_piece(
                &t->piece[k][i], json_array_get(list, (size_t)i), tokens, keys[k], from, err);
            if (rc != 0)
                return rc;
        }
    }
    return 0;
}

static int run_template(const void *self, void *state, kh_err *err) {
    const template *t = self;
    kh_parts *p = state;
    int rc = 0, k = p->n > 0 ? p->part[p->n - 1].group : 0, group = 0;
    if (k > 1)
        return kh_fail(err, KH_EUNSUPPORTED,
            "the tokenizer's TemplateProcessing follows a post-processor that already made %d "
            "parts",
            k + 1);
    for (int i = 0; i < t->n[k] && rc == 0; i++) {
        const template_piece *piece = &t->piece[k][i];
        if (piece->sequence < 0 && !p->special)
            continue;
        if (piece->sequence < 0)
            rc = add_next(p, (kh_id_part){ piece->id, piece->n, piece->type_id, group }, err);
        for (int j = 0; j < p->n && piece->sequence >= 0 && rc == 0; j++)
            if (p->part[j].group == piece->sequence)
                rc = add_next(
                    p, (kh_id_part){ p->part[j].id, p->part[j].n, piece->type_id, group }, err);
        group++;
    }
    swap(p);
    return rc;
}

const kh_kind kh_postprocessors[] = {
    { "RobertaProcessing", sizeof(kh_around), load_around, run_roberta, NULL },
    { "BertProcessing", sizeof(kh_around), load_around, run_bert, NULL },
    { "ByteLevel", 0, NULL, run_byte_level, NULL },
    { "TemplateProcessing", sizeof(template), load_template, run_template, NULL },
    { 0 },
};

/* ------------------------------------------------------------------------------- what they add */

int32_t kh_postprocessors_max_id(const kh_chain *c) {
    int32_t max = -1;
    for (int i = 0; i < c->n; i++) {
        if (c->step[i].kind->load == load_around) {
            const kh_around *a = c->step[i].self;
            max = a->cls > max ? a->cls : max;
            max = a->sep > max ? a->sep : max;
        } else if (c->step[i].kind->load == load_template) {
            const template *t = c->step[i].self;
            for (int k = 0; k < 2; k++)
                for (int j = 0; j < t->n[k]; j++)
                    for (int x = 0; x < t->piece[k][j].n; x++)
                        max = t->piece[k][j].id[x] > max ? t->piece[k][j].id[x] : max;
        }
    }
    return max;
}

int kh_postprocessors_ends(const kh_chain *c, int32_t *first, int32_t *last, kh_err *err) {
    kh_parts p = { .special = true };
    static const int32_t marker = -1; /* stands for the sequence */
    *first = *last = -1;
    int rc = kh_parts_add(&p, (kh_id_part){ &marker, 1, 0, 0 }, err);
    if (rc == 0)
        rc = kh_chain_run(c, &p, err);
    if (rc == 0 && p.n > 0) {
        const kh_id_part *start = &p.part[0], *end = &p.part[p.n - 1];
        *first = start->n > 0 ? start->id[0] : -1;
        *last = end->n > 0 ? end->id[end->n - 1] : -1;
    }
    kh_parts_free(&p);
    return rc;
}
