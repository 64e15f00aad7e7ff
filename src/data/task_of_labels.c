/* task_of_labels.c - a task for a file that comes without one: its labels, and words from their
 * names. What is written here is a task file in memory, so that all checks are those of task
 * files. */
#include "data/task.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json_out.h"
#include "base/map.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Letters of any script count: bytes above 0x7F are parts of them. */
static bool is_letter(unsigned char c) { return isalpha(c) || c >= 0x80; }

/* A new word begins where lower case turns into upper case: "OfficeHolder". */
static bool is_hump(const char *s, size_t i) {
    return i > 0 && islower((unsigned char)s[i - 1]) && isupper((unsigned char)s[i]);
}

void kh_label_name_words(const char *name, kh_buf *out) {
    bool open = false;
    size_t from = out->len;
    for (size_t i = 0; name[i]; i++) {
        unsigned char c = (unsigned char)name[i];
        if (!is_letter(c)) {
            open = false;
            continue;
        }
        if ((!open || is_hump(name, i)) && out->len > from)
            kh_buf_char(out, ' ');
        open = true;
        kh_buf_char(out, (char)(c < 0x80 ? tolower(c) : c));
    }
    if (out->len ==
        from) /* digits or signs alone: the name itself, whatever the model makes of it */
        kh_buf_text(out, name);
}

typedef struct maker {
    const kh_dataset *d;
    kh_map owner;   /* word -> the first label that has it */
    kh_map shared;  /* words that another label has too */
    kh_buf *phrase; /* [n_label] words with spaces between */
    kh_buf json;
} maker;

/* Calls each word of a phrase in turn. */
static const char *next_word(const char *at, size_t *n) {
    at += strspn(at, " ");
    *n = strcspn(at, " ");
    return at;
}

static int own_words(maker *m, int k, kh_err *err) {
    size_t n;
    for (const char *w = next_word(m->phrase[k].data, &n); n; w = next_word(w + n, &n)) {
        int32_t before = k;
        int added = kh_map_add(&m->owner, w, n, k, &before);
        if (added == 0 && before != k)
            added = kh_map_add(&m->shared, w, n, k, NULL);
        if (added < 0)
            return kh_fail_memory(err);
    }
    return 0;
}

/* "no_fee" and "fee" share a word, and only one of them has another: a label that is left without
 * words takes its name whole. */
static void put_words(maker *m, int k, const char *name, kh_json_out *j) {
    int put = 0;
    size_t n;
    kh_map twice = { 0 };
    for (const char *w = next_word(m->phrase[k].data, &n); n; w = next_word(w + n, &n)) {
        int32_t other;
        if (kh_map_get(&m->shared, w, n, &other) || kh_map_add(&twice, w, n, 0, NULL) != 1)
            continue;
        kh_json_put_text(j, NULL, w, n);
        put++;
    }
    if (put == 0)
        kh_json_put_string(j, NULL, name);
    kh_map_free(&twice);
}

static int put_task(maker *m, const char *name, const char *template, kh_err *err) {
    kh_json_out j = kh_json_out_init(&m->json, KH_JSON_SPACED);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "name", name);
    kh_json_put_string(&j, "template", template);
    kh_json_open_array(&j, "labels");
    for (int k = 0; k < kh_dataset_labels(m->d); k++) {
        char number[16];
        const char *label = kh_dataset_label(m->d, k);
        snprintf(number, sizeof number, "%d", k);
        label = label ? label : number;
        kh_json_open_object(&j, NULL);
        kh_json_put_string(&j, "name", label);
        kh_json_open_array(&j, "words");
        put_words(m, k, label, &j);
        kh_json_close(&j);
        kh_json_close(&j);
    }
    kh_json_close(&j);
    kh_json_close(&j);
    return kh_json_out_done(&j) ? 0 : kh_fail_memory(err);
}

int kh_task_of_labels(const kh_task **out, const char *name, const char *template,
    const kh_dataset *d, const char *const *words, kh_err *err) {
    int n_label = kh_dataset_labels(d), rc = 0;
    maker m = { .d = d,
        .phrase = kh_calloc((size_t)n_label + 1, sizeof *m.phrase),
        .json = kh_buf_init(1 << 24) };
    *out = NULL;
    if (!m.phrase)
        return kh_fail_memory(err);
    for (int k = 0; k < n_label && rc == 0; k++) {
        char number[16];
        const char *label = kh_dataset_label(d, k);
        snprintf(number, sizeof number, "%d", k);
        m.phrase[k] = kh_buf_init(1 << 20);
        if (words && words[k])
            kh_buf_text(&m.phrase[k], words[k]);
        else
            kh_label_name_words(label ? label : number, &m.phrase[k]);
        rc = kh_buf_failed(&m.phrase[k]) ? kh_fail_memory(err) : own_words(&m, k, err);
    }
    if (rc == 0)
        rc = put_task(&m, name, template, err);
    if (rc == 0)
        rc = kh_task_parse(out, m.json.data, m.json.len, kh_dataset_path(d), err);
    for (int k = 0; k < n_label; k++)
        kh_buf_free(&m.phrase[k]);
    kh_free(m.phrase);
    kh_buf_free(&m.json);
    kh_map_free(&m.owner);
    kh_map_free(&m.shared);
    return rc;
}
