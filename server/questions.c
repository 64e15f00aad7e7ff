/* questions.c - see questions.h. Everything is checked before it is believed: counts, kinds, names
 * that occur twice. JSON where text may stand (a state, instructions, descriptions) is read as its
 * text. A value true and a value "true" are two options. */
#include "server/questions.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/err.h"

#include <string.h>

static const char NAME[] = "request";

static const char *const KINDS[2][3] = { { "predicate", "choice", "score" },
    { "noul", "choice", "score" } };

/* ---------------------------------------------------------------------------------------- text */

static const char *keep(kh_asked *q, const char *s, size_t n, kh_err *err) {
    const char *copy = kh_arena_strndup(&q->arena, s, n);
    if (!copy)
        kh_fail_memory(err);
    return copy;
}

/* A value as text: a string itself, null nothing, anything else as JSON. NULL: out of memory. */
static const char *text_of(kh_asked *q, const json_t *v, kh_err *err) {
    if (!v || json_is_null(v))
        return "";
    if (json_is_string(v))
        return json_string_value(v);
    char *dumped = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    const char *copy = dumped ? keep(q, dumped, strlen(dumped), err) : NULL;
    if (!dumped)
        kh_fail_memory(err);
    free(dumped); /* jansson's own memory */
    return copy;
}

/* Parts of a message or of instructions, joined by line breaks. */
static int put_parts(kh_asked *q, const json_t *content, kh_buf *out, kh_err *err) {
    if (json_is_string(content)) {
        kh_buf_bytes(out, json_string_value(content), json_string_length(content));
        return 0;
    }
    size_t i;
    const json_t *part;
    if (!json_is_array(content))
        return kh_fail(err, KH_EFORMAT, "%s: content must be a string or an array of parts", NAME);
    json_array_foreach(content, i, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        const json_t *text = json_object_get(part, "text"), *data = json_object_get(part, "data");
        kh_buf_text(out, i ? "\n" : "");
        if (type && strcmp(type, "input_json") == 0 && data) {
            const char *dumped = text_of(q, data, err);
            if (!dumped)
                return KH_ENOMEM;
            kh_buf_text(out, dumped);
        } else if (type && json_is_string(text)) {
            kh_buf_bytes(out, json_string_value(text), json_string_length(text));
        } else {
            return kh_fail(err, KH_EFORMAT,
                "%s: a part of type \"%.40s\" cannot be read; input_text and input_json can", NAME,
                type ? type : "?");
        }
    }
    return 0;
}

static const char *take_text(kh_asked *q, kh_buf *b, kh_err *err) {
    const char *copy = kh_buf_failed(b) ? NULL : keep(q, b->data ? b->data : "", b->len, err);
    if (kh_buf_failed(b))
        kh_fail_memory(err);
    kh_buf_free(b);
    return copy;
}

/* --------------------------------------------------------------------------------------- input */

/* An object with text_a and text_b is a pair. */
static bool take_pair(kh_asked *q, const json_t *v) {
    const char *a = json_string_value(json_object_get(v, "text_a")),
               *b = json_string_value(json_object_get(v, "text_b"));
    if (!a || !b)
        return false;
    q->a = a;
    q->n_a = json_string_length(json_object_get(v, "text_a"));
    q->b = b;
    q->n_b = json_string_length(json_object_get(v, "text_b"));
    return true;
}

/* One message: what users say is the text; what all say is the text for models that are asked
 * anything. */
static int read_message(kh_asked *q, const json_t *m, kh_buf *user, kh_buf *all, kh_err *err) {
    const char *role = json_string_value(json_object_get(m, "role"));
    const json_t *content = json_object_get(m, "content");
    if (!role || !content)
        return kh_fail(err, KH_EFORMAT, "%s: a message must have \"role\" and \"content\"", NAME);
    size_t before = all->len;
    kh_buf_text(all, before > 0 ? "\n" : "");
    size_t from = all->len;
    int rc = put_parts(q, content, all, err);
    if (rc == 0 && strcmp(role, "user") == 0 && !kh_buf_failed(all)) {
        kh_buf_text(user, user->len > 0 ? "\n" : "");
        kh_buf_bytes(user, all->data ? all->data + from : "", all->len - from);
    }
    const json_t *part = json_array_size(content) == 1 ? json_array_get(content, 0) : NULL;
    take_pair(q, json_object_get(part, "data"));
    return rc;
}

static int read_messages(kh_asked *q, const json_t *input, kh_err *err) {
    kh_buf user = kh_buf_init(KH_BUF_MAX), all = kh_buf_init(KH_BUF_MAX);
    size_t i;
    const json_t *m;
    int rc = json_array_size(input) > 0
        ? 0
        : kh_fail(err, KH_EFORMAT, "%s: \"input\" has no messages", NAME);
    json_array_foreach(input, i, m) if (rc == 0) rc = read_message(q, m, &user, &all, err);
    size_t said = user.len;
    q->n_all = all.len;
    const char *text = take_text(q, &user, err);
    q->all = take_text(q, &all, err);
    if (!q->a) {
        q->a = said > 0 ? text : q->all;
        q->n_a = said > 0 ? said : q->n_all;
    }
    if (rc == 0 && (!text || !q->all))
        rc = KH_ENOMEM;
    return rc;
}

static int read_input(kh_asked *q, const json_t *v, kh_err *err) {
    if (q->systemone ? take_pair(q, v) : false) {
        q->all = text_of(q, v, err);
        q->n_all = q->all ? strlen(q->all) : 0;
        return q->all ? 0 : KH_ENOMEM;
    }
    if (!q->systemone && json_is_array(v))
        return read_messages(q, v, err);
    if (!v || (!q->systemone && !json_is_string(v)))
        return kh_fail(err, KH_EFORMAT,
            q->systemone ? "%s: there is no \"state\""
                         : "%s: \"input\" must be a text or an array of messages",
            NAME);
    q->a = q->all = text_of(q, v, err);
    if (!q->a)
        return KH_ENOMEM;
    q->n_a = q->n_all = json_is_string(v) ? json_string_length(v) : strlen(q->a);
    return 0;
}

/* ------------------------------------------------------------------------------------- options */

static int add_option(kh_asked *q, kh_ask *a, const json_t *value, const char *name,
    const json_t *description, kh_err *err) {
    kh_ask_option *o = &a->option[a->n_option];
    *o = (kh_ask_option){ .boolean = json_is_boolean(value), .legend = description };
    o->name = name;
    if (!name && o->boolean)
        o->name = json_is_true(value) ? "true" : "false";
    else if (!name)
        o->name = json_string_value(value);
    o->description = text_of(q, description, err);
    if (!o->description)
        return KH_ENOMEM;
    if (!o->name)
        return kh_fail(err, KH_EFORMAT, "%s: an option must be a string%s", NAME,
            q->systemone ? "" : ", true or false");
    for (int i = 0; i < a->n_option; i++)
        if (a->option[i].boolean == o->boolean && strcmp(a->option[i].name, o->name) == 0)
            return kh_fail(
                err, KH_EFORMAT, "%s: the option \"%.60s\" is there twice", NAME, o->name);
    a->n_option++;
    return 0;
}

static int make_options(kh_asked *q, kh_ask *a, size_t n, kh_err *err) {
    if (n < 2 || n > KH_OPTIONS_MOST)
        return kh_fail(
            err, KH_EFORMAT, "%s: %zu options; a question has 2 to %d", NAME, n, KH_OPTIONS_MOST);
    a->option = kh_arena_array(&q->arena, n, sizeof *a->option);
    return a->option ? 0 : kh_fail_memory(err);
}

static int read_predicate(kh_asked *q, kh_ask *a, const json_t *v, kh_err *err) {
    const json_t *criteria = json_object_get(v, "criteria");
    int rc = make_options(q, a, 2, err);
    for (int i = 0; i < 2 && rc == 0; i++) {
        const char *name = i == 0 ? "true" : "false";
        rc = add_option(
            q, a, i == 0 ? json_true() : json_false(), name, json_object_get(criteria, name), err);
    }
    return rc;
}

/* decisions: an array of objects; systemone: an object of descriptions by name, or a list. */
static int read_options(kh_asked *q, kh_ask *a, const json_t *list, kh_err *err) {
    const char *word = a->kind == KH_ASK_CHOICE ? "value" : "label", *key;
    json_t *object = (json_t *)(uintptr_t)list, *value;
    size_t i;
    const json_t *one;
    if (a->kind == KH_ASK_CHOICE && (!list || json_is_null(list)))
        return 0;
    bool named = q->systemone && a->kind == KH_ASK_CHOICE;
    if (named ? !json_is_object(list) : !json_is_array(list))
        return kh_fail(err, KH_EFORMAT, "%s: the options of a question must be %s", NAME,
            named ? "an object of descriptions" : "an array");
    int rc = make_options(q, a, named ? json_object_size(list) : json_array_size(list), err);
    if (rc != 0)
        return rc;
    json_object_foreach(object, key, value) if (rc == 0) rc =
        add_option(q, a, NULL, key, value, err);
    json_array_foreach(list, i, one) if (rc == 0) {
        if (q->systemone) { /* levels may be told apart by their places alone */
            char number[32];
            const char *text = text_of(q, one, err);
            snprintf(number, sizeof number, "%zu", i);
            if (text && !*text)
                text = keep(q, number, strlen(number), err);
            rc = text ? add_option(q, a, NULL, text, one, err) : KH_ENOMEM;
        } else {
            rc = add_option(
                q, a, json_object_get(one, word), NULL, json_object_get(one, "description"), err);
        }
    }
    return rc;
}

/* ----------------------------------------------------------------------------------- questions */

static int read_kind(const kh_asked *q, kh_ask *a, const json_t *v, kh_err *err) {
    const char *type = json_string_value(json_object_get(v, "type"));
    const char *const *kind = KINDS[q->systemone];
    for (int i = 0; type && i < 3; i++)
        if (strcmp(type, kind[i]) == 0) {
            a->kind = (kh_ask_kind)i;
            return 0;
        }
    return kh_fail(err, KH_EFORMAT,
        "%s: a question is of type \"%.40s\", expected %s, choice or score", NAME,
        type ? type : "?", kind[0]);
}

static int read_question(kh_asked *q, const char *name, const json_t *v, kh_err *err) {
    kh_ask *a = &q->ask[q->n];
    const json_t *text = json_object_get(v, "instructions");
    int rc = read_kind(q, a, v, err);
    if (rc != 0)
        return rc;
    const json_t *given = json_object_get(v, "name");
    a->name = q->systemone ? name : json_string_value(given);
    if (!q->systemone && given && !json_is_null(given) && !a->name)
        return kh_fail(err, KH_EFORMAT, "%s: the name of a question must be a string", NAME);
    if (json_is_array(text) && !q->systemone) {
        kh_buf b = kh_buf_init(KH_BUF_MAX);
        rc = put_parts(q, text, &b, err);
        a->text = take_text(q, &b, err);
    } else {
        a->text = text_of(q, text, err);
    }
    if (rc == 0 && !a->text)
        rc = KH_ENOMEM;
    if (rc == 0 && a->kind == KH_ASK_PREDICATE)
        rc = read_predicate(q, a, v, err);
    else if (rc == 0 && q->systemone)
        rc = read_options(q, a, json_object_get(v, "criteria"), err);
    else if (rc == 0)
        rc = read_options(
            q, a, json_object_get(v, a->kind == KH_ASK_CHOICE ? "choices" : "levels"), err);
    q->n += rc == 0;
    return rc;
}

static int read_questions(kh_asked *q, const json_t *list, kh_err *err) {
    bool right = q->systemone ? json_is_object(list) : json_is_array(list);
    size_t n = q->systemone ? json_object_size(list) : json_array_size(list), i;
    const char *name;
    json_t *object = (json_t *)(uintptr_t)list, *value;
    const json_t *one;
    if (!right || n < 1 || n > KH_ASKED_MOST)
        return kh_fail(err, KH_EFORMAT, "%s: \"questions\" must be %s of 1 to %d", NAME,
            q->systemone ? "an object" : "an array", KH_ASKED_MOST);
    q->ask = kh_arena_array(&q->arena, n, sizeof *q->ask);
    if (!q->ask)
        return kh_fail_memory(err);
    int rc = 0;
    json_object_foreach(object, name, value) if (rc == 0) rc = read_question(q, name, value, err);
    json_array_foreach(list, i, one) if (rc == 0) rc = read_question(q, NULL, one, err);
    return rc;
}

int kh_asked_read(kh_asked *q, const char *body, size_t n, kh_err *err) {
    int rc = kh_json_parse(body, n, NAME, &q->root, err);
    if (rc == 0 && !json_is_object(q->root))
        rc = kh_fail(err, KH_EFORMAT, "%s: must be a JSON object", NAME);
    if (rc != 0)
        return rc;
    q->model = json_string_value(json_object_get(q->root, "model"));
    rc = read_input(q, json_object_get(q->root, q->systemone ? "state" : "input"), err);
    return rc == 0 ? read_questions(q, json_object_get(q->root, "questions"), err) : rc;
}

void kh_asked_free(kh_asked *q) {
    json_decref(q->root);
    kh_arena_free(&q->arena);
    *q = (kh_asked){ .systemone = q->systemone };
}
