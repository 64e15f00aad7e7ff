/* task.c - what a task is: the built-in table (METHODS, section 3) and task files.
 *
 * A task file is one JSON object:
 *
 *     { "name": "mood", "template": "{text} All in all, it was {mask} .",
 *       "labels": [ { "name": "negative", "words": ["bad", "awful"] }, { "name": "positive",
 * "words": ["great"] } ], "metric": "accuracy" }
 *
 * with "soft_template" and "newline_escape" if needed, and for models that continue texts
 * "decoder_template" and "decoder_soft_template", which end with {mask}, "chat", "chat_system"
 * and "word_score". One template is enough: a template with
 * {prompt} is the soft one, and the plain one is it without {prompt} and the space after; otherwise
 * the soft one is "{prompt} . " and the template.
 *
 *     "variants": [ { "template": "Was it good ? {mask} . {text}", "words": [["no"], ["yes"]] } ]
 *
 * are other ways to ask for the same labels, words in their order: what a model is trained on so
 * that it learns to answer templates, and not one template. */
#include "data/task.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/controls.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_out.h"
#include "base/map.h"
#include "base/utf8.h"
#include "data/chat.h"
#include "data/template.h"

#include <string.h>

/* ------------------------------------------------------------------------------------ built in */

#define WORD(w) .word = (const char *const[]){ w }, .n_word = 1

static const kh_label sentiment[] = { { "negative", WORD("bad") }, { "positive", WORD("great") } };
static const kh_label news[] = { { "World", WORD("World") }, { "Sports", WORD("Sports") },
    { "Business", WORD("Business") }, { "Sci/Tech", WORD("Tech") } };
static const kh_label ontology[] = { { "Company", WORD("Company") },
    { "EducationalInstitution", WORD("Education") }, { "Artist", WORD("Artist") },
    { "Athlete", WORD("Athlete") }, { "OfficeHolder", WORD("Office") },
    { "MeanOfTransportation", WORD("Transportation") }, { "Building", WORD("Building") },
    { "NaturalPlace", WORD("Natural") }, { "Village", WORD("Village") },
    { "Animal", WORD("Animal") }, { "Plant", WORD("Plant") }, { "Album", WORD("Album") },
    { "Film", WORD("Film") }, { "WrittenWork", WORD("Written") } };
static const kh_label paraphrase[] = { { "not_equivalent", WORD("No") },
    { "equivalent", WORD("Yes") } };
static const kh_label entailment2[] = { { "entailment", WORD("Yes") },
    { "not_entailment", WORD("No") } };
static const kh_label entailment3[] = { { "entailment", WORD("Yes") }, { "neutral", WORD("Maybe") },
    { "contradiction", WORD("No") } };

#define LABELS(a) .label = (a), .n_label = (int)(sizeof(a) / sizeof(a)[0])
#define TEMPLATE(t) .plain = (t), .soft = "{prompt} . " t /* a full stop closes the soft prompt */
/* For models that continue texts: the answer stands at the end. */
#define NEXT(t) .next_plain = (t), .next_soft = "{prompt} . " t
#define IT_WAS TEMPLATE("{text} . It was {mask} ."), NEXT("{text} . It was {mask}")
#define QUESTION \
    TEMPLATE("{text_a} ? {mask} , {text_b}"), \
        NEXT("{text_a} Question: {text_b} Yes, maybe or no? Answer: {mask}")
#define SAME \
    TEMPLATE("{text_a} ? {mask} , {text_b}"), \
        NEXT("{text_a} Question: does this say the same? {text_b} Answer: {mask}")

static const kh_task builtin[] = {
    { .name = "sst2", IT_WAS, LABELS(sentiment) },
    { .name = "yelp", IT_WAS, LABELS(sentiment), .newline_escape = true },
    { .name = "imdb", IT_WAS, LABELS(sentiment) },
    { .name = "agnews",
        TEMPLATE("{mask} News: {text}"),
        NEXT("{text} Topic: {mask}"),
        LABELS(news) },
    { .name = "dbpedia",
        .plain = "[ Category: {mask} ] {text}",
        .soft = "{prompt} [ Category: {mask} ] {text}",
        NEXT("{text} Category: {mask}"),
        LABELS(ontology) },
    { .name = "mrpc", SAME, LABELS(paraphrase), .metric = KH_METRIC_F1, .pair = true },
    { .name = "rte", QUESTION, LABELS(entailment2), .pair = true },
    { .name = "snli", QUESTION, LABELS(entailment3), .pair = true },
    { .name = "mnli", QUESTION, LABELS(entailment3), .pair = true },
};

enum { N_BUILTIN = sizeof builtin / sizeof builtin[0] };

const kh_task *kh_task_builtin(int i) { return i >= 0 && i < N_BUILTIN ? &builtin[i] : NULL; }

static const char *const metric_names[] = { "accuracy", "f1" };

const char *kh_metric_name(kh_metric m) { return metric_names[m]; }

/* ---------------------------------------------------------------------------------- task files */

enum { FILE_MAX = 1 << 20, MAX_LABELS = 4096, MAX_TEMPLATE = 4096 };

typedef struct task_memory {
    kh_task task;
    kh_arena arena;
} task_memory;

typedef struct task_reader {
    const char *file; /* for messages */
    task_memory *m;
    kh_map words, names; /* seen so far, to find twins */
} task_reader;

static int keep(task_reader *r, const char *s, const char **out, kh_err *err) {
    *out = kh_arena_strndup(&r->m->arena, s, strlen(s));
    return *out ? 0 : kh_fail_memory(err);
}

static int refuse_unknown_keys(
    const json_t *object, const char *const *known, const char *place, kh_err *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        const char *const *k = known;
        while (*k && strcmp(*k, key) != 0)
            k++;
        if (!*k)
            return kh_fail(err, KH_EFORMAT, "%s: unknown key \"%.80s\"", place, key);
    }
    return 0;
}

/* Marks that Arabic and Hebrew are written with, which turn nothing but what they stand beside. */
static bool is_mark(uint32_t c) { return c == 0x61C || c == 0x200E || c == 0x200F; }

/* A name or word: not empty, no white space around it, no line breaks or control characters. */
static int check_word(const char *s, const char *what, const char *place, kh_err *err) {
    size_t n = strlen(s);
    if (n == 0)
        return kh_fail(err, KH_EFORMAT, "%s: an empty %s", place, what);
    if (s[0] == ' ' || s[n - 1] == ' ')
        return kh_fail(err, KH_EFORMAT,
            "%s: %s \"%s\" has a space around it; the space before a word is added by keyhole",
            place, what, s);
    int len;
    for (size_t i = 0; i < n; i += (size_t)len) {
        uint32_t c = kh_utf8_next(s + i, n - i, &len, NULL);
        if (kh_is_control(c) && !is_mark(c))
            return kh_fail(
                err, KH_EFORMAT, "%s: %s %zu bytes long holds a control character", place, what, n);
    }
    return 0;
}

static int read_word(
    task_reader *r, const json_t *v, int label, const char *place, const char **out, kh_err *err) {
    int32_t before;
    const char *s = json_string_value(v);
    if (!s || strlen(s) != json_string_length(v))
        return kh_fail(err, KH_EFORMAT, "%s: \"words\" must be strings", place);
    int rc = check_word(s, "word", place, err);
    if (rc == 0)
        rc = keep(r, s, out, err);
    if (rc != 0)
        return rc;
    int added = kh_map_add(&r->words, *out, strlen(*out), label, &before);
    if (added < 0)
        return kh_fail_memory(err);
    if (added == 0 && before == label)
        return kh_fail(err, KH_EFORMAT, "%s: word \"%s\" stands there twice", place, s);
    if (added == 0)
        return kh_fail(err, KH_EFORMAT,
            "%s: word \"%s\" also stands for label %d; a word can stand for one label only", place,
            s, before);
    return 0;
}

static int read_words(
    task_reader *r, const json_t *words, int k, const char *place, kh_label *out, kh_err *err) {
    if (!json_is_array(words) || json_array_size(words) == 0)
        return kh_fail(err, KH_EFORMAT, "%s: \"words\" must be a list of at least one word", place);
    size_t n = json_array_size(words);
    const char **word = kh_arena_array(&r->m->arena, n, sizeof *word);
    if (!word)
        return kh_fail_memory(err);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_word(r, json_array_get(words, i), k, place, &word[i], err);
    out->word = word;
    out->n_word = (int)n;
    return rc;
}

static int read_label(task_reader *r, const json_t *v, int k, kh_label *out, kh_err *err) {
    static const char *const known[] = { "name", "words", NULL };
    char place[512];
    snprintf(place, sizeof place, "%s: label %d", r->file, k);
    if (!json_is_object(v))
        return kh_fail(err, KH_EFORMAT, "%s: must be an object with \"name\" and \"words\"", place);
    const char *name;
    const json_t *words = json_object_get(v, "words");
    int rc = refuse_unknown_keys(v, known, place, err);
    if (rc == 0)
        rc = kh_json_string(v, "name", &name, place, err);
    if (rc == 0)
        rc = check_word(name, "name", place, err);
    if (rc == 0)
        rc = keep(r, name, &out->name, err);
    if (rc != 0)
        return rc;
    int added = kh_map_add(&r->names, out->name, strlen(out->name), k, NULL);
    if (added < 0)
        return kh_fail_memory(err);
    if (added == 0)
        return kh_fail(err, KH_EFORMAT, "%s: another label is called \"%s\" too", place, name);
    return read_words(r, words, k, place, out, err);
}

static int read_labels(task_reader *r, const json_t *root, kh_err *err) {
    kh_task *t = &r->m->task;
    const json_t *labels = json_object_get(root, "labels");
    size_t n = json_array_size(labels);
    if (!json_is_array(labels))
        return kh_fail(err, KH_EFORMAT,
            "%s: \"labels\" must be a list of objects with \"name\" and \"words\"", r->file);
    if (n < 2 || n > MAX_LABELS)
        return kh_fail(err, KH_EFORMAT, "%s: \"labels\" has %zu entries; a task needs from 2 to %d",
            r->file, n, (int)MAX_LABELS);
    kh_label *label = kh_arena_array(&r->m->arena, n, sizeof *label);
    if (!label)
        return kh_fail_memory(err);
    int rc = 0;
    for (size_t k = 0; k < n && rc == 0; k++)
        rc = read_label(r, json_array_get(labels, k), (int)k, &label[k], err);
    t->label = label;
    t->n_label = (int)n;
    return rc;
}

static int keep_printed(task_reader *r, kh_buf *b, const char **out, kh_err *err) {
    kh_buf_bytes(b, "", 0);
    int rc = kh_buf_failed(b) ? kh_fail_memory(err) : keep(r, b->data, out, err);
    kh_buf_free(b);
    return rc;
}

/* Parses a template under a key, so that messages name it. */
static int parse_template(
    const task_reader *r, const char *key, const char *s, kh_template *out, kh_err *err) {
    char place[512];
    snprintf(place, sizeof place, "%s: \"%s\"", r->file, key);
    if (strlen(s) > MAX_TEMPLATE)
        return kh_fail(err, KH_EFORMAT, "%s: %zu bytes long, at most %d are allowed", place,
            strlen(s), (int)MAX_TEMPLATE);
    return kh_template_parse(out, s, place, err);
}

static int derive_templates(
    task_reader *r, const char *template, const kh_template *parsed, kh_err *err) {
    kh_task *t = &r->m->task;
    kh_buf other = kh_buf_init(KH_BUF_MAX);
    if (parsed->prompt)
        kh_template_plain(&other, parsed);
    else
        kh_buf_printf(&other, "{prompt} . %s", template);
    int rc = keep(r, template, parsed->prompt ? &t->soft : &t->plain, err);
    if (rc == 0)
        return keep_printed(r, &other, parsed->prompt ? &t->plain : &t->soft, err);
    kh_buf_free(&other);
    return rc;
}

static int read_templates(task_reader *r, const json_t *root, kh_err *err) {
    const char *template = NULL, *soft = NULL;
    kh_template parsed, parsed_soft;
    int rc = kh_json_string(root, "template", &template, r->file, err);
    if (rc == 0)
        rc = kh_json_string_opt(root, "soft_template", &soft, r->file, err);
    if (rc == 0)
        rc = parse_template(r, "template", template, &parsed, err);
    if (rc == 0 && soft)
        rc = parse_template(r, "soft_template", soft, &parsed_soft, err);
    if (rc != 0)
        return rc;
    r->m->task.pair = parsed.pair;
    if (!soft)
        return derive_templates(r, template, &parsed, err);
    if (parsed.prompt)
        return kh_fail(err, KH_EFORMAT,
            "%s: {prompt} belongs into one of \"template\" and \"soft_template\"; both are there",
            r->file);
    if (!parsed_soft.prompt)
        return kh_fail(err, KH_EFORMAT, "%s: \"soft_template\" holds no {prompt}", r->file);
    if (parsed_soft.pair != parsed.pair)
        return kh_fail(err, KH_EFORMAT,
            "%s: \"template\" and \"soft_template\" must hold the same texts", r->file);
    rc = keep(r, template, &r->m->task.plain, err);
    return rc == 0 ? keep(r, soft, &r->m->task.soft, err) : rc;
}

/* A template for models that continue texts, soft or plain: nothing that counts stands behind its
 * mask, and it holds the texts of the others. */
static int read_next(task_reader *r, const char *key, const char *s, bool soft, kh_err *err) {
    kh_template t;
    int rc = parse_template(r, key, s, &t, err);
    if (rc != 0)
        return rc;
    if (t.pair != r->m->task.pair)
        return kh_fail(
            err, KH_EFORMAT, "%s: \"template\" and \"%s\" must hold the same texts", r->file, key);
    if (t.prompt != soft)
        return kh_fail(
            err, KH_EFORMAT, "%s: \"%s\" must %shold {prompt}", r->file, key, soft ? "" : "not ");
    if (t.part[t.n - 1].kind != KH_SEGMENT_MASK)
        return kh_fail(err, KH_EFORMAT, "%s: \"%s\" must end with {mask}, where the answer begins",
            r->file, key);
    return keep(r, s, soft ? &r->m->task.next_soft : &r->m->task.next_plain, err);
}

/* "decoder_template", "decoder_soft_template", "chat", "chat_system" and "word_score". */
static int read_continuation(task_reader *r, const json_t *root, kh_err *err) {
    const char *plain = NULL, *soft = NULL, *chat = NULL, *system = NULL, *score = "sum";
    int rc = kh_json_string_opt(root, "decoder_template", &plain, r->file, err);
    if (rc == 0)
        rc = kh_json_string_opt(root, "decoder_soft_template", &soft, r->file, err);
    if (rc == 0)
        rc = kh_json_string_opt(root, "chat", &chat, r->file, err);
    if (rc == 0)
        rc = kh_json_string_opt(root, "chat_system", &system, r->file, err);
    if (rc == 0)
        rc = kh_json_string_opt(root, "word_score", &score, r->file, err);
    if (rc == 0 && plain)
        rc = read_next(r, "decoder_template", plain, false, err);
    if (rc == 0 && soft)
        rc = read_next(r, "decoder_soft_template", soft, true, err);
    if (rc == 0 && plain && !soft) {
        kh_buf b = kh_buf_init(KH_BUF_MAX);
        kh_buf_printf(&b, "{prompt} . %s", plain);
        rc = keep_printed(r, &b, &r->m->task.next_soft, err);
    }
    if (rc == 0 && soft && !plain)
        rc = kh_fail(err, KH_EFORMAT,
            "%s: \"decoder_soft_template\" needs a \"decoder_template\" beside it", r->file);
    if (rc == 0 && chat && !kh_chat_named(chat))
        rc = kh_fail(err, KH_EFORMAT, "%s: the chat format \"%.40s\" is not known", r->file, chat);
    if (rc == 0 && chat)
        rc = keep(r, chat, &r->m->task.chat, err);
    if (rc == 0 && system)
        rc = keep(r, system, &r->m->task.chat_system, err);
    r->m->task.mean = strcmp(score, "mean") == 0;
    if (rc == 0 && !r->m->task.mean && strcmp(score, "sum") != 0)
        rc = kh_fail(
            err, KH_EFORMAT, "%s: \"word_score\" is \"%.40s\"; it is sum or mean", r->file, score);
    return rc;
}

static int read_metric(task_reader *r, const json_t *root, kh_err *err) {
    kh_task *t = &r->m->task;
    const char *metric = metric_names[KH_METRIC_ACCURACY];
    int rc = kh_json_string_opt(root, "metric", &metric, r->file, err);
    if (rc != 0)
        return rc;
    for (int i = 0; i < 2; i++)
        if (strcmp(metric, metric_names[i]) == 0) {
            t->metric = (kh_metric)i;
            if (t->metric == KH_METRIC_F1 && t->n_label != 2)
                return kh_fail(err, KH_EFORMAT,
                    "%s: metric \"f1\" is that of label 1 of two; this task has %d labels", r->file,
                    t->n_label);
            return 0;
        }
    return kh_fail(err, KH_EFORMAT,
        "%s: metric \"%.40s\" is not known; \"accuracy\" and \"f1\" are", r->file, metric);
}

/* One of "variants"; whatever it does not say is the task's. */
static int read_variant(task_reader *r, const json_t *v, int number, kh_task *out, kh_err *err) {
    static const char *const known[] = { "template", "words", NULL };
    const kh_task *t = &r->m->task;
    const json_t *words = json_object_get(v, "words");
    const char *template;
    kh_template parsed;
    char place[512];
    snprintf(place, sizeof place, "%s: variant %d", r->file, number);
    if (!json_is_object(v))
        return kh_fail(
            err, KH_EFORMAT, "%s: must be an object with \"template\" and \"words\"", place);
    int rc = refuse_unknown_keys(v, known, place, err);
    if (rc == 0)
        rc = kh_json_string(v, "template", &template, place, err);
    if (rc == 0)
        rc = parse_template(r, "variants", template, &parsed, err);
    if (rc != 0)
        return rc;
    if (parsed.prompt || parsed.pair != t->pair)
        return kh_fail(err, KH_EFORMAT, "%s: \"template\" must hold %s and no {prompt}", place,
            t->pair ? "{text_a} and {text_b}" : "{text}");
    if (words && json_array_size(words) != (size_t)t->n_label)
        return kh_fail(err, KH_EFORMAT, "%s: \"words\" must be %d lists, one for each label", place,
            t->n_label);
    *out = *t;
    kh_label *label = kh_arena_array(&r->m->arena, (size_t)t->n_label, sizeof *label);
    if (!label)
        return kh_fail_memory(err);
    memcpy(label, t->label, (size_t)t->n_label * sizeof *label);
    out->label = label;
    kh_map_free(&r->words); /* a variant may give a word to another label */
    for (int k = 0; k < t->n_label && words && rc == 0; k++)
        rc = read_words(r, json_array_get(words, (size_t)k), k, place, &label[k], err);
    return rc == 0 ? keep(r, template, &out->plain, err) : rc;
}

static int read_variants(task_reader *r, const json_t *root, kh_err *err) {
    const json_t *list = json_object_get(root, "variants");
    size_t n = json_array_size(list);
    if (!list)
        return 0;
    if (!json_is_array(list) || n > MAX_LABELS)
        return kh_fail(err, KH_EFORMAT,
            "%s: \"variants\" must be a list of at most %d objects with \"template\" and \"words\"",
            r->file, (int)MAX_LABELS);
    kh_task *variant = kh_arena_array(&r->m->arena, n + 1, sizeof *variant);
    int rc = variant ? 0 : kh_fail_memory(err);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = read_variant(r, json_array_get(list, i), (int)i, &variant[i], err);
    r->m->task.variant = variant;
    r->m->task.n_variant = (int)n;
    return rc;
}

static int read_task(task_reader *r, const json_t *root, kh_err *err) {
    static const char *const known[] = { "name", "template", "soft_template", "labels", "metric",
        "newline_escape", "decoder_template", "decoder_soft_template", "chat", "chat_system",
        "word_score", "variants", NULL };
    const char *name;
    if (!json_is_object(root))
        return kh_fail(err, KH_EFORMAT, "%s: a task file must hold one JSON object", r->file);
    int rc = refuse_unknown_keys(root, known, r->file, err);
    if (rc == 0)
        rc = kh_json_string(root, "name", &name, r->file, err);
    if (rc == 0)
        rc = check_word(name, "\"name\"", r->file, err);
    if (rc == 0)
        rc = keep(r, name, &r->m->task.name, err);
    if (rc == 0)
        rc = read_templates(r, root, err);
    if (rc == 0)
        rc = read_labels(r, root, err);
    if (rc == 0)
        rc = read_metric(r, root, err);
    if (rc == 0)
        rc = read_continuation(r, root, err);
    if (rc == 0)
        rc = kh_json_bool_opt(root, "newline_escape", &r->m->task.newline_escape, r->file, err);
    if (rc == 0)
        rc = read_variants(r, root, err);
    return rc;
}

int kh_task_parse(const kh_task **out, const char *json, size_t n, const char *name, kh_err *err) {
    task_reader r = { .file = name, .m = kh_calloc(1, sizeof *r.m) };
    json_t *root = NULL;
    *out = NULL;
    int rc = r.m ? kh_json_parse(json, n, name, &root, err) : kh_fail_memory(err);
    if (rc == 0)
        rc = read_task(&r, root, err);
    if (rc == 0) {
        r.m->task.memory = r.m;
        *out = &r.m->task;
    } else if (r.m) {
        kh_arena_free(&r.m->arena);
        kh_free(r.m);
    }
    kh_map_free(&r.words);
    kh_map_free(&r.names);
    json_decref(root);
    return rc;
}

static int no_such_task(const char *name, kh_err *err) {
    char names[256] = "";
    for (int i = 0; i < N_BUILTIN; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", builtin[i].name);
    }
    return kh_fail(
        err, KH_EMISSING, "%s: neither a task file nor a built-in task (%s)", name, names);
}

int kh_task_open(const kh_task **out, const char *name_or_file, kh_err *err) {
    *out = NULL;
    for (int i = 0; i < N_BUILTIN; i++)
        if (strcmp(builtin[i].name, name_or_file) == 0) {
            *out = &builtin[i];
            return 0;
        }
    char *inside = kh_dir_exists(name_or_file) ? kh_path_join(name_or_file, "task.json") : NULL;
    const char *path = inside && kh_file_exists(inside) ? inside : name_or_file;
    kh_buf bytes;
    int rc = kh_file_read(path, FILE_MAX, &bytes, err);
    if (rc == KH_EMISSING)
        rc = no_such_task(name_or_file, err);
    if (rc == 0)
        rc = kh_task_parse(out, bytes.data, bytes.len, path, err);
    kh_buf_free(&bytes);
    kh_free(inside);
    return rc;
}

void kh_task_close(const kh_task *t) {
    if (!t || !t->memory)
        return;
    task_memory *m = t->memory;
    kh_arena_free(&m->arena);
    kh_free(m);
}

const char *kh_task_template(const kh_task *t, bool soft, bool next) {
    const char *own = soft ? t->next_soft : t->next_plain;
    if (next && own)
        return own;
    return soft ? t->soft : t->plain;
}

/* ------------------------------------------------------------------------------------- writing */

static void put_line(kh_json_out *j, const char *key, const char *value) {
    kh_json_gap(j, "\n  ");
    kh_json_put_string(j, key, value);
}

static void put_words(kh_json_out *j, const char *key, const kh_label *label) {
    kh_json_open_array(j, key);
    for (int i = 0; i < label->n_word; i++)
        kh_json_put_string(j, NULL, label->word[i]);
    kh_json_close(j);
}

/* An object in a line of its own, with a space within its brackets. */
static void open_item(kh_json_out *j, const char *key, const char *value) {
    kh_json_gap(j, "\n    ");
    kh_json_open_object(j, NULL);
    kh_json_gap(j, " ");
    kh_json_put_string(j, key, value);
}

static void close_item(kh_json_out *j) {
    kh_json_gap(j, " ");
    kh_json_close(j);
}

static void open_list(kh_json_out *j, const char *key) {
    kh_json_gap(j, "\n  ");
    kh_json_open_array(j, key);
}

static void close_list(kh_json_out *j) {
    kh_json_gap(j, "\n  ");
    kh_json_close(j);
}

static void put_variant(kh_json_out *j, const kh_task *v) {
    open_item(j, "template", v->plain);
    kh_json_open_array(j, "words");
    for (int k = 0; k < v->n_label; k++)
        put_words(j, NULL, &v->label[k]);
    kh_json_close(j);
    close_item(j);
}

/* The same task gives the same bytes: their hash is one of the terms of a run. */
void kh_task_json(const kh_task *t, kh_buf *out) {
    kh_json_out j = kh_json_out_init(out, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    put_line(&j, "name", t->name);
    put_line(&j, "template", t->plain);
    put_line(&j, "soft_template", t->soft);
    if (t->next_plain) {
        put_line(&j, "decoder_template", t->next_plain);
        put_line(&j, "decoder_soft_template", t->next_soft);
    }
    if (t->chat)
        put_line(&j, "chat", t->chat);
    if (t->chat && t->chat_system)
        put_line(&j, "chat_system", t->chat_system);
    if (t->mean)
        put_line(&j, "word_score", "mean");
    open_list(&j, "labels");
    for (int k = 0; k < t->n_label; k++) {
        open_item(&j, "name", t->label[k].name);
        put_words(&j, "words", &t->label[k]);
        close_item(&j);
    }
    close_list(&j);
    put_line(&j, "metric", kh_metric_name(t->metric));
    if (t->n_variant > 0) {
        open_list(&j, "variants");
        for (int i = 0; i < t->n_variant; i++)
            put_variant(&j, &t->variant[i]);
        close_list(&j);
    }
    kh_json_gap(&j, "\n  ");
    kh_json_put_bool(&j, "newline_escape", t->newline_escape);
    kh_json_gap(&j, "\n");
    kh_json_close(&j);
    kh_buf_char(out, '\n');
}

int kh_task_save(const kh_task *t, const char *path, kh_err *err) {
    kh_buf json = kh_buf_init(1 << 24);
    kh_task_json(t, &json);
    int rc =
        kh_buf_failed(&json) ? kh_fail_memory(err) : kh_file_write(path, json.data, json.len, err);
    kh_buf_free(&json);
    return rc;
}
