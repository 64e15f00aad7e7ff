/* label_names.c - see label_names.h. */
#include "data/label_names.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "data/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void kh_trim(const char **s, size_t *n) {
    while (*n > 0 && ((**s >= '\t' && **s <= '\r') || **s == ' ')) {
        ++*s;
        --*n;
    }
    while (*n > 0 && (((*s)[*n - 1] >= '\t' && (*s)[*n - 1] <= '\r') || (*s)[*n - 1] == ' '))
        --*n;
}

/* ------------------------------------------------------------------------------ lists of names */

static int add_name(kh_labels *l, const char *s, size_t n, kh_err *err) {
    char *copy = kh_arena_strndup(l->arena, s, n);
    if (!copy || !kh_grow(&l->name, &l->cap, (size_t)l->n + 1, sizeof *l->name) ||
        kh_map_add(&l->index, copy, n, l->n, NULL) < 0)
        return kh_fail_memory(err);
    l->name[l->n++] = copy;
    return 0;
}

static int add_listed(
    kh_labels *l, const char *s, size_t n, const char *path, long line, kh_err *err) {
    int32_t before;
    kh_trim(&s, &n);
    if (n == 0)
        return kh_fail_at(err, KH_EFORMAT, path, line, "an empty line among the label names");
    int rc = kh_row_check(s, n, path, line, err);
    if (rc != 0)
        return rc;
    if (kh_map_get(&l->index, s, n, &before))
        return kh_fail_at(err, KH_EFORMAT, path, line,
            "label name \"%.*s\" stands here and on line %d", (int)n, s, before + 1);
    if (l->n == KH_LABELS_MAX)
        return kh_fail_at(err, KH_EFORMAT, path, line, "more than %d labels", (int)KH_LABELS_MAX);
    return add_name(l, s, n, err);
}

static int read_list(kh_labels *l, const char *path, kh_err *err) {
    kh_buf bytes;
    int rc = kh_file_read(path, (size_t)KH_ROW_MAX, &bytes, err);
    if (rc != 0)
        goto done;
    char *at = bytes.data, *end = bytes.data + bytes.len;
    if (bytes.len >= 3 && memcmp(at, "\xEF\xBB\xBF", 3) == 0)
        at += 3;
    while (end > at && (end[-1] == '\n' || end[-1] == '\r' || end[-1] == ' ' || end[-1] == '\t'))
        end--;
    for (long line = 1; at < end && rc == 0; line++) {
        char *stop = kh_line_end(at, end);
        rc = add_listed(l, at, (size_t)(stop - at), path, line, err);
        at = stop < end ? stop + 1 : end;
    }
    if (rc == 0 && l->n < 2)
        rc = kh_fail(err, KH_EFORMAT,
            "%s: %d label names; one a line, and at least two, are expected", path, l->n);
    if (rc == 0 && (l->list = kh_arena_strndup(l->arena, path, strlen(path))) == NULL)
        rc = kh_fail_memory(err);
done:
    kh_buf_free(&bytes);
    return rc;
}

/* labels.txt in the folder of the file, or for ready-made splits (kshot16/seed13.train.tsv) in the
 * folder above. NULL: none. */
static int find_list(const char *path, char **found, kh_err *err) {
    size_t dir = (size_t)(kh_path_base(path) - path), up = dir;
    *found = NULL;
    while (up > 0 && path[up - 1] == '/')
        up--;
    while (up > 0 && path[up - 1] != '/')
        up--;
    bool kshot = dir > 0 && strncmp(path + up, "kshot", 5) == 0;
    for (int step = 0; step < (kshot ? 2 : 1); step++) {
        kh_buf b = kh_buf_init(KH_BUF_MAX);
        kh_buf_bytes(&b, path, step ? up : dir);
        kh_buf_text(&b, "labels.txt");
        char *list = kh_buf_take(&b, NULL);
        if (!list)
            return kh_fail_memory(err);
        if (kh_file_exists(list)) {
            *found = list;
            return 0;
        }
        kh_free(list);
    }
    return 0;
}

static int find_in_task(const kh_task *task, const char *name) {
    for (int k = 0; k < task->n_label; k++)
        if (strcasecmp(task->label[k].name, name) == 0)
            return k;
    return -1;
}

/* Brings labels.txt and the task together by name; if they have no name in common, by position. */
static int match_task(kh_labels *l, kh_err *err) {
    int known = 0, stranger = 0;
    l->order = kh_malloc((size_t)l->n * sizeof *l->order);
    if (!l->order)
        return kh_fail_memory(err);
    for (int i = l->n - 1; i >= 0; i--) {
        l->order[i] = find_in_task(l->task, l->name[i]);
        known += l->order[i] >= 0;
        if (l->order[i] < 0)
            stranger = i;
    }
    if (known == l->n)
        return 0;
    if (known > 0)
        return kh_fail(err, KH_EMISMATCH, "%s: label \"%s\" is not one of task \"%s\"", l->list,
            l->name[stranger], l->task->name);
    if (l->n != l->task->n_label)
        return kh_fail(err, KH_EMISMATCH, "%s: %d labels, but task \"%s\" has %d", l->list, l->n,
            l->task->name, l->task->n_label);
    kh_free(l->order);
    l->order = NULL;
    return 0;
}

static int name_task(kh_labels *l, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_buf_printf(&b, "task \"%s\"", l->task->name);
    l->list = kh_buf_failed(&b) ? NULL : kh_arena_strndup(l->arena, b.data, b.len);
    kh_buf_free(&b);
    return l->list ? 0 : kh_fail_memory(err);
}

int kh_labels_init(
    kh_labels *l, kh_arena *arena, const char *path, const kh_task *task, kh_err *err) {
    *l = (kh_labels){ .arena = arena, .task = task, .least = KH_LABELS_MAX };
    char *list = NULL;
    int rc = path ? find_list(path, &list, err) : 0;
    if (rc == 0 && list) {
        rc = read_list(l, list, err);
        if (rc == 0 && task)
            rc = match_task(l, err);
    } else if (rc == 0 && task) {
        for (int k = 0; k < task->n_label && rc == 0; k++)
            rc = add_name(l, task->label[k].name, strlen(task->label[k].name), err);
        if (rc == 0)
            rc = name_task(l, err);
    }
    kh_free(list);
    return rc;
}

/* ----------------------------------------------------------------------------------- one label */

/* The number that the digits s spell, or -1 if they are not digits or too many. */
static int number(const char *s, size_t n) {
    int value = 0;
    if (n == 0 || n > 9)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return -1;
        value = value * 10 + (s[i] - '0');
    }
    return value;
}

static int out_of_range(
    const kh_labels *l, int number, int base, const char *path, long line, kh_err *err) {
    return kh_fail_at(err, KH_EFORMAT, path, line,
        "label %d is out of range: the %d labels of %s are numbered %d to %d", number, l->n,
        l->list, base, l->n - 1 + base);
}

static int read_number(
    kh_labels *l, int value, const char *path, long line, int *code, kh_err *err) {
    if (l->list && !l->from_one && value >= l->n)
        return out_of_range(l, value, 0, path, line, err);
    if (value >= KH_LABELS_MAX)
        return kh_fail_at(err, KH_EFORMAT, path, line,
            "label %d: numbers of labels must be below %d", value, (int)KH_LABELS_MAX);
    if (value < l->least)
        l->least = value;
    *code = value;
    return 0;
}

static int unknown_name(
    const kh_labels *l, const char *s, size_t n, const char *path, long line, kh_err *err) {
    char known[256] = "";
    size_t used = 0;
    for (int i = 0; i < l->n && used + 3 < sizeof known; i++) {
        int more = snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", l->name[i]);
        if (more < 0 || used + (size_t)more >= sizeof known - 4) {
            snprintf(known + used, sizeof known - used, ", ...");
            break;
        }
        used += (size_t)more;
    }
    return kh_fail_at(err, KH_EFORMAT, path, line, "label \"%.*s\" is not one of %s (%s)",
        n > 80 ? 80 : (int)n, s, l->list, known);
}

static int read_name(
    kh_labels *l, const char *s, size_t n, const char *path, long line, int *code, kh_err *err) {
    int32_t at;
    if (kh_map_get(&l->index, s, n, &at)) {
        *code = at;
        return 0;
    }
    if (l->list)
        return unknown_name(l, s, n, path, line, err);
    if (l->n == KH_LABELS_MAX)
        return kh_fail_at(
            err, KH_EFORMAT, path, line, "more than %d different labels", (int)KH_LABELS_MAX);
    *code = l->n;
    return add_name(l, s, n, err);
}

int kh_labels_read(
    kh_labels *l, const char *s, size_t n, const char *path, long line, int *code, kh_err *err) {
    kh_trim(&s, &n);
    *code = -1;
    if ((n == 1 && s[0] == '-') || (n == 2 && memcmp(s, "-1", 2) == 0))
        return 0;
    if (n == 0)
        return kh_fail_at(err, KH_EFORMAT, path, line, "the label is empty");
    int32_t at;
    int value = number(s, n);
    bool name = value < 0 || l->names_only || (l->list && kh_map_get(&l->index, s, n, &at));
    if (l->kind != KH_LABELS_NONE && name != (l->kind == KH_LABELS_NAMES))
        return kh_fail_at(err, KH_EFORMAT, path, line,
            "label \"%.*s\" is a %s, but the labels before it are %s", n > 80 ? 80 : (int)n, s,
            name ? "name" : "number", name ? "numbers" : "names");
    int rc = name ? read_name(l, s, n, path, line, code, err)
                  : read_number(l, value, path, line, code, err);
    if (rc == 0)
        l->kind = name ? KH_LABELS_NAMES : KH_LABELS_NUMBERS;
    return rc;
}

/* Without a list, names of numbers are kept in `name` at their number; gaps are NULL. */
static int reserve_names(kh_labels *l, int n, kh_err *err) {
    if (!kh_grow(&l->name, &l->cap, (size_t)n, sizeof *l->name))
        return kh_fail_memory(err);
    while (l->n < n)
        l->name[l->n++] = NULL;
    return 0;
}

int kh_labels_learn(kh_labels *l, int code, const char *s, size_t n, kh_err *err) {
    if (l->list || l->kind != KH_LABELS_NUMBERS || code < 0)
        return 0;
    int rc = reserve_names(l, code + 1, err);
    if (rc == 0 && !l->name[code] && (l->name[code] = kh_arena_strndup(l->arena, s, n)) == NULL)
        rc = kh_fail_memory(err);
    return rc;
}

/* ------------------------------------------------------------------------- the end of the file */

typedef struct numbered {
    const char *name;
    int code;
} numbered;

static int by_name(const void *a, const void *b) {
    return strcmp(((const numbered *)a)->name, ((const numbered *)b)->name);
}

/* Names found in the file count in alphabetical order, so that two files with the same classes
 * agree. */
static int sort_names(kh_labels *l, kh_err *err) {
    numbered *all = kh_malloc((size_t)l->n * sizeof *all);
    l->order = kh_malloc((size_t)l->n * sizeof *l->order);
    int rc = all && l->order ? 0 : kh_fail_memory(err);
    for (int i = 0; i < l->n && rc == 0; i++)
        all[i] = (numbered){ l->name[i], i };
    if (rc == 0)
        qsort(all, (size_t)l->n, sizeof *all, by_name);
    for (int i = 0; i < l->n && rc == 0; i++) {
        l->order[all[i].code] = i;
        l->name[i] = all[i].name;
    }
    kh_free(all);
    return rc;
}

int kh_labels_finish(kh_labels *l, kh_err *err) {
    if (l->from_one && l->least == 0)
        l->from_one = false;
    if (l->kind != KH_LABELS_NUMBERS)
        l->from_one = false;
    return !l->list && l->kind == KH_LABELS_NAMES ? sort_names(l, err) : 0;
}

int kh_labels_final(
    const kh_labels *l, int code, const char *path, long line, int *label, kh_err *err) {
    *label = -1;
    if (code < 0)
        return 0;
    int at = code - (l->from_one ? 1 : 0);
    if (l->list && at >= l->n)
        return out_of_range(l, code, l->from_one ? 1 : 0, path, line, err);
    *label = l->order ? l->order[at] : at;
    return 0;
}

int kh_labels_count(const kh_labels *l) { return l->task ? l->task->n_label : l->n; }

const char *kh_labels_name(const kh_labels *l, int label) {
    if (l->task)
        return l->task->label[label].name;
    return label < l->n ? l->name[label] : NULL;
}

void kh_labels_free(kh_labels *l) {
    kh_map_free(&l->index);
    kh_free(l->name);
    kh_free(l->order);
    *l = (kh_labels){ 0 };
}
