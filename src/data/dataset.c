/* dataset.c - files of labelled rows: TSV, CSV, JSONL.
 *
 * The file is read whole and kept; texts are cut out of it in place, so that a data set costs its
 * file and 48 bytes a row. Each format yields rows as (text a, text b, label code); labels.c turns
 * codes into labels when the last row is in. A row that is wrong ends the reading with a sentence,
 * or is counted and passed over if the caller asked for that. */
#include "data/dataset.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hooks.h"
#include "base/json.h"
#include "data/columns.h"
#include "data/label_names.h"
#include "data/sniff.h"
#include "data/table.h"

#include <limits.h>
#include <string.h>
#include <strings.h>

#define FILE_MAX ((size_t)1 << 36)

typedef struct reader {
    kh_dataset *d;
    const kh_dataset_opts *o;
    kh_labels labels;
    kh_columns columns;
    int at_a, at_b, at_label, at_name; /* tables: which column, -1 none */
    bool joined;                       /* tables: columns at_a to at_b are one text */
    int n_column;                      /* tables: fields of a row */
    int n_reported;
} reader;

/* A row that cannot be used is the end, or is counted if the caller wants it skipped. */
static int bad_row(reader *r, int rc, const kh_err *why, kh_err *err) {
    bool malformed = rc == KH_EFORMAT || rc == KH_ELIMIT;
    if (!malformed || !r->o->skip_bad_rows) {
        if (err)
            *err = *why;
        return rc;
    }
    r->d->n_skipped++;
    if (r->n_reported < (r->o->max_reports ? r->o->max_reports : 5)) {
        r->n_reported++;
        kh_log(r->o->hooks, KH_WARN, "%s", why->msg);
    }
    return 0;
}

/* A backslash and an n become a space. */
static void replace_escapes(kh_field *f) {
    size_t w = 0;
    for (size_t i = 0; i < f->n; i++, w++) {
        bool escape = f->s[i] == '\\' && i + 1 < f->n && f->s[i + 1] == 'n';
        f->s[w] = escape ? ' ' : f->s[i];
        i += escape;
    }
    f->n = w;
}

static int take_text(const reader *r, kh_field *f, long line, kh_err *err) {
    if (r->o->newline_escape || (r->o->task && r->o->task->newline_escape))
        replace_escapes(f);
    const char *s = f->s;
    kh_trim(&s, &f->n);
    f->s += s - f->s;
    return f->n ? 0 : kh_fail_at(err, KH_EFORMAT, r->d->path, line, "the text is empty");
}

/* b->s NULL: one text. code: of the label. */
static int add_row(reader *r, kh_field a, kh_field b, int code, long line, kh_err *err) {
    kh_dataset *d = r->d;
    int rc = take_text(r, &a, line, err);
    if (rc == 0 && b.s)
        rc = take_text(r, &b, line, err);
    if (rc != 0)
        return rc;
    if (code < 0 && !r->o->unlabelled) {
        d->n_undecided++;
        return 0;
    }
    if (d->n_row == INT_MAX)
        return kh_fail_at(err, KH_ELIMIT, d->path, line, "more than %d rows", INT_MAX);
    if (!kh_grow(&d->row, &d->cap, (size_t)d->n_row + 1, sizeof *d->row))
        return kh_fail_memory(err);
    d->row[d->n_row++] = (kh_row){ a.s, b.s, a.n, b.n, code, line };
    return 0;
}

static int read_label(reader *r, const char *s, size_t n, long line, int *code, kh_err *err) {
    const char *t = s;
    size_t left = n;
    kh_trim(&t, &left);
    *code = -1;
    if (left == 0 && r->o->unlabelled)
        return 0;
    return kh_labels_read(&r->labels, s, n, r->d->path, line, code, err);
}

/* What the columns say must be what the task needs. */
static int check_columns(
    reader *r, bool found, const char *half, const char *there, long line, kh_err *err) {
    const kh_columns *c = &r->columns;
    const kh_task *task = r->o->task;
    bool pairs = found && c->b && !c->join;
    const char *path = r->d->path;
    if (!found && half)
        return kh_fail_at(err, KH_EFORMAT, path, line,
            "no column \"%s\", which the other text column calls for", half);
    if (!found)
        return kh_fail_at(err, KH_EFORMAT, path, line,
            "no text column among %s; call it \"text\" (names looked for: %s)", there,
            KH_TEXT_COLUMNS);
    if (!c->label && !r->o->unlabelled)
        return kh_fail_at(err, KH_EFORMAT, path, line,
            "no label column among %s; call it \"label\" (names looked for: %s)", there,
            KH_LABEL_COLUMNS);
    if (task && task->pair != pairs)
        return kh_fail_at(err, KH_EMISMATCH, path, line, "rows hold %s, but task \"%s\" takes %s",
            pairs ? "two texts" : "one text", task->name, task->pair ? "two" : "one");
    r->d->pairs = pairs;
    return 0;
}

/* -------------------------------------------------------------------------------------- tables */

static bool same_name(const kh_field *f, const char *name) {
    const char *s = f->s;
    size_t n = f->n;
    kh_trim(&s, &n);
    return strlen(name) == n && strncasecmp(s, name, n) == 0;
}

static int find_column(const kh_table *t, const char *name) {
    for (int i = 0; name && i < t->n_field; i++)
        if (same_name(&t->field[i], name))
            return i;
    return -1;
}

static bool has_column(const void *table, const char *name) {
    return find_column(table, name) >= 0;
}

static int refuse_twins(const kh_table *t, const char *path, kh_err *err) {
    kh_map seen = { 0 };
    int rc = 0;
    for (int i = 0; i < t->n_field && rc == 0; i++) {
        const char *s = t->field[i].s;
        size_t n = t->field[i].n;
        kh_trim(&s, &n);
        int added = n ? kh_map_add(&seen, s, n, i, NULL) : 1;
        if (added < 0)
            rc = kh_fail_memory(err);
        else if (added == 0)
            rc = kh_fail_at(err, KH_EFORMAT, path, t->row_line, "two columns are called \"%.*s\"",
                n > 80 ? 80 : (int)n, s);
    }
    kh_map_free(&seen);
    return rc;
}

/* The names of the columns, for messages. */
static const char *list_columns(const kh_table *t, char *out, size_t cap) {
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < t->n_field && i < 12 && used + 64 < cap; i++) {
        int n = t->field[i].n > 40 ? 40 : (int)t->field[i].n;
        used +=
            (size_t)snprintf(out + used, cap - used, "%s\"%.*s\"", i ? ", " : "", n, t->field[i].s);
    }
    return out;
}

/* Beside one text in a file of two columns there is nothing but its label, whatever it is called.
 */
static bool wants_other(const reader *r, bool found, size_t n_column) {
    const kh_columns *c = &r->columns;
    return found && !c->b && !c->label && n_column == 2 && !r->o->unlabelled;
}

static int keep_name(reader *r, const kh_field *name, kh_err *err) {
    const char *s = name->s;
    size_t n = name->n;
    kh_trim(&s, &n);
    if (n == 0 || kh_column_numbers(s, n))
        return 0;
    char *kept = kh_arena_alloc(&r->d->arena, n + 1);
    if (!kept)
        return kh_fail_memory(err);
    memcpy(kept, s, n);
    kept[n] = '\0';
    r->columns.label = kept;
    return 0;
}

static int read_header(reader *r, const kh_table *t, kh_err *err) {
    const char *half;
    char there[768];
    int rc = refuse_twins(t, r->d->path, err);
    if (rc != 0)
        return rc;
    bool found = kh_columns_find(&r->columns, r->o->task, has_column, t, &half);
    if (wants_other(r, found, (size_t)t->n_field))
        rc = keep_name(r, &t->field[same_name(&t->field[0], r->columns.a) ? 1 : 0], err);
    if (rc == 0)
        rc = check_columns(r, found, half, list_columns(t, there, sizeof there), t->row_line, err);
    r->at_a = find_column(t, r->columns.a);
    r->at_b = find_column(t, r->columns.b);
    r->at_label = find_column(t, r->columns.label);
    r->at_name = find_column(t, r->columns.label_name);
    r->joined = r->columns.join;
    r->n_column = t->n_field;
    return rc;
}

/* Without names that are known: the class first or last, and one text in the other columns, or the
 * two texts of a pair task. */
static int guess_columns(reader *r, const kh_table *t, bool label_first, kh_err *err) {
    const kh_task *task = r->o->task;
    bool pairs = task && task->pair;
    if (t->n_field < 2)
        return kh_fail_at(err, KH_EFORMAT, r->d->path, t->row_line,
            "one column; without a header, a class and then texts are expected");
    if (pairs && t->n_field != 3)
        return kh_fail_at(err, KH_EMISMATCH, r->d->path, t->row_line,
            "%d columns; task \"%s\" needs a class and two texts", t->n_field, task->name);
    r->at_label = label_first ? 0 : t->n_field - 1;
    r->at_name = -1;
    r->at_a = label_first ? 1 : 0;
    r->at_b = label_first ? t->n_field - 1 : t->n_field - 2;
    r->joined = !pairs;
    r->n_column = t->n_field;
    r->d->pairs = pairs;
    return 0;
}

/* One text of several columns. Neighbours have a space between them as they stand; others need room
 * of their own. */
static int join_fields(reader *r, const kh_table *t, kh_field *out, kh_err *err) {
    kh_field a = t->field[r->at_a], b = t->field[r->at_b];
    bool neighbours = !r->columns.a || r->at_b == r->at_a + 1;
    *out = (kh_field){ a.s, (size_t)(b.s + b.n - a.s) };
    if (neighbours)
        return 0;
    *out = (kh_field){ kh_arena_alloc(&r->d->arena, a.n + 1 + b.n), a.n + 1 + b.n };
    if (!out->s)
        return kh_fail_memory(err);
    memcpy(out->s, a.s, a.n);
    out->s[a.n] = ' ';
    memcpy(out->s + a.n + 1, b.s, b.n);
    return 0;
}

static int read_fields(reader *r, const kh_table *t, kh_err *err) {
    if (t->n_field != r->n_column)
        return kh_fail_at(err, KH_EFORMAT, r->d->path, t->row_line,
            "%d columns, but %d in the first row", t->n_field, r->n_column);
    kh_field a = t->field[r->at_a], b = r->at_b >= 0 ? t->field[r->at_b] : (kh_field){ 0 };
    int code = -1, rc = 0;
    if (r->at_label >= 0 && !r->o->ignore_labels)
        rc = read_label(
            r, t->field[r->at_label].s, t->field[r->at_label].n, t->row_line, &code, err);
    if (rc == 0 && r->at_name >= 0 && !r->o->ignore_labels)
        rc = kh_labels_learn(&r->labels, code, t->field[r->at_name].s, t->field[r->at_name].n, err);
    if (rc != 0)
        return rc;
    if (r->joined && (rc = join_fields(r, t, &a, err)) != 0)
        return rc;
    return add_row(r, a, r->joined ? (kh_field){ 0 } : b, code, t->row_line, err);
}

/* The layout of the table at hand. What the caller says of its format stands. */
static int find_layout(reader *r, const char *at, const char *end, kh_layout *out, kh_err *err) {
    kh_dataset *d = r->d;
    *out = (kh_layout){ .sep = '\t', .header = true, .named = true, .label_first = true };
    if (d->format == KH_FORMAT_TSV)
        return 0;
    int rc = kh_sniff_layout(out, at, (size_t)(end - at), err);
    if (r->o->format != KH_FORMAT_AUTO && out->sep == '\t')
        *out = (kh_layout){ .sep = ',', .label_first = true };
    if (r->o->format == KH_FORMAT_CSV)
        out->header = out->named = true;
    if (r->o->format == KH_FORMAT_CSV_NOHEADER)
        out->header = out->named = false;
    d->format = out->header ? KH_FORMAT_CSV : KH_FORMAT_CSV_NOHEADER;
    return rc;
}

/* The first row: names of columns, or a row like others. *row becomes what kh_table_next said of
 * the row to go on with. */
static int read_first(
    reader *r, kh_table *t, const kh_layout *l, int *row, kh_err *why, kh_err *err) {
    t->line += r->o->lines_before;
    t->row_line += l->header ? 0 : r->o->lines_before;
    r->labels.from_one = !l->header;
    int rc = l->named ? read_header(r, t, err) : guess_columns(r, t, l->label_first, err);
    *row = rc == 0 && l->header ? kh_table_next(t, why) : 1;
    r->labels.names_only = r->o->label_names && !r->labels.list && r->at_name < 0;
    return rc;
}

static int read_table(reader *r, char *at, char *end, kh_err *err) {
    kh_dataset *d = r->d;
    kh_layout layout;
    kh_table t = { .path = d->path, .at = at, .end = end, .line = 1 };
    kh_err why;
    int row = 0, rc = find_layout(r, at, end, &layout, err);
    t.sep = layout.sep;
    t.quotes = d->format != KH_FORMAT_TSV;
    if (rc == 0)
        rc = kh_table_next(&t, err);
    if (rc == 0)
        rc = kh_fail(err, KH_EFORMAT, "%s: the file is empty", d->path);
    if (rc > 0)
        rc = read_first(r, &t, &layout, &row, &why, err);
    while (rc == 0 && row != 0) {
        rc = row > 0 ? read_fields(r, &t, &why) : row;
        if (rc != 0 && (rc = bad_row(r, rc, &why, err)) != 0)
            break;
        row = kh_table_next(&t, &why);
    }
    kh_table_free(&t);
    return rc;
}

/* --------------------------------------------------------------------------------------- JSONL */

static bool has_key(const void *object, const char *name) {
    return json_object_get(object, name) != NULL;
}

/* Copies a string of the parsed line into the line itself, which it came from in a longer form. */
static int keep_string(const json_t *object, const char *key, char **room, kh_field *out,
    const char *path, long line, kh_err *err) {
    const json_t *v = json_object_get(object, key);
    if (!json_is_string(v))
        return kh_fail_at(
            err, KH_EFORMAT, path, line, "\"%s\" %s", key, v ? "must be a string" : "is missing");
    *out = (kh_field){ *room, json_string_length(v) };
    if (memchr(json_string_value(v), '\0', out->n))
        return kh_fail_at(err, KH_EFORMAT, path, line, "\"%s\" holds a NUL byte", key);
    memcpy(*room, json_string_value(v), out->n);
    *room += out->n;
    return 0;
}

/* The label of an object: a whole number or a string. */
static int object_label(reader *r, const json_t *object, long line, int *code, kh_err *err) {
    const kh_columns *c = &r->columns;
    const json_t *v = c->label ? json_object_get(object, c->label) : NULL, *name;
    char digits[32];
    *code = -1;
    if (!v || json_is_null(v) || r->o->ignore_labels)
        return r->o->unlabelled
            ? 0
            : kh_fail_at(err, KH_EFORMAT, r->d->path, line, "\"%s\" is missing", c->label);
    int rc;
    if (json_is_string(v)) {
        rc = kh_row_check(json_string_value(v), json_string_length(v), r->d->path, line, err);
        if (rc == 0)
            rc = read_label(r, json_string_value(v), json_string_length(v), line, code, err);
    } else if (json_is_integer(v)) {
        int n = snprintf(digits, sizeof digits, "%lld", (long long)json_integer_value(v));
        rc = read_label(r, digits, (size_t)n, line, code, err);
    } else
        rc = kh_fail_at(err, KH_EFORMAT, r->d->path, line,
            "\"%s\" must be a whole number or a string", c->label);
    if (rc == 0 && c->label_name && json_is_string(name = json_object_get(object, c->label_name)))
        rc = kh_labels_learn(
            &r->labels, *code, json_string_value(name), json_string_length(name), err);
    return rc;
}

/* The first object decides which keys are the texts and the label of all. */
static int find_keys(reader *r, json_t *object, long line, kh_err *err) {
    const char *half, *key;
    json_t *value;
    int rc = 0;
    bool found = kh_columns_find(&r->columns, r->o->task, has_key, object, &half);
    if (wants_other(r, found, json_object_size(object))) {
        json_object_foreach(object, key, value) {
            if (rc == 0 && strcmp(key, r->columns.a) != 0)
                rc = keep_name(r, &(kh_field){ (char *)key, strlen(key) }, err);
        }
    }
    if (rc == 0)
        rc = check_columns(r, found, half, "its keys", line, err);
    r->labels.names_only = r->o->label_names && !r->labels.list && !r->columns.label_name;
    if (rc != 0)
        r->columns.a = NULL;
    return rc;
}

static int read_object(reader *r, json_t *object, char *room, long line, kh_err *err) {
    kh_field a = { 0 }, b = { 0 };
    int rc = 0, code;
    if (!json_is_object(object))
        return kh_fail_at(err, KH_EFORMAT, r->d->path, line, "each line must hold one JSON object");
    if (!r->columns.a)
        rc = find_keys(r, object, line, err);
    if (rc == 0)
        rc = keep_string(object, r->columns.a, &room, &a, r->d->path, line, err);
    if (rc == 0 && r->columns.join)
        *room++ = ' ';
    if (rc == 0 && r->columns.b)
        rc = keep_string(object, r->columns.b, &room, &b, r->d->path, line, err);
    if (rc == 0)
        rc = object_label(r, object, line, &code, err);
    if (rc != 0)
        return rc;
    if (r->columns.join) {
        a.n = (size_t)(b.s + b.n - a.s);
        b = (kh_field){ 0 };
    }
    return add_row(r, a, b, code, line, err);
}

static int read_line(reader *r, char *at, size_t n, long line, kh_err *err) {
    json_t *object = NULL;
    int rc = kh_row_check(at, n, r->d->path, line, err);
    if (rc == 0)
        rc = kh_json_parse_line(at, n, r->d->path, line, &object, err);
    if (rc == 0)
        rc = read_object(r, object, at, line, err);
    json_decref(object);
    return rc;
}

static int read_jsonl(reader *r, char *at, char *end, kh_err *err) {
    kh_err why;
    int rc = 0;
    for (long line = 1 + r->o->lines_before; at < end && rc == 0; line++) {
        char *stop = kh_line_end(at, end);
        const char *s = at;
        size_t n = (size_t)(stop - at);
        kh_trim(&s, &n);
        if (n > 0 && (rc = read_line(r, at, (size_t)(stop - at), line, &why)) != 0)
            rc = bad_row(r, rc, &why, err);
        at = stop < end ? stop + 1 : end;
    }
    return rc;
}

/* ----------------------------------------------------------------------------------- the whole */

static const char *const format_names[] = { "auto", "tsv", "csv", "csv-noheader", "jsonl" };

const char *kh_format_name(kh_format f) { return format_names[f]; }

/* By a file's first line of n bytes; KH_FORMAT_AUTO where it shows nothing. A tab decides before a
 * comma: sentences have commas. */
static kh_format format_of_line(const char *line, size_t n) {
    if (*line == '{')
        return KH_FORMAT_JSONL;
    if (memchr(line, '\t', n))
        return KH_FORMAT_TSV;
    return memchr(line, ',', n) ? KH_FORMAT_CSV : KH_FORMAT_AUTO;
}

/* By extension; failing that by the first line. KH_FORMAT_CSV stands for both kinds of it. */
static int find_format(kh_dataset *d, const kh_dataset_opts *o, char *at, char *end, kh_err *err) {
    static const struct {
        const char *ext;
        kh_format format;
    } known[] = { { ".tsv", KH_FORMAT_TSV }, { ".csv", KH_FORMAT_CSV },
        { ".jsonl", KH_FORMAT_JSONL }, { ".json", KH_FORMAT_JSONL } };
    d->format = o->format;
    const char *dot = strrchr(kh_path_base(d->path), '.');
    for (size_t i = 0; dot && d->format == KH_FORMAT_AUTO && i < sizeof known / sizeof known[0];
         i++)
        if (strcasecmp(dot, known[i].ext) == 0)
            d->format = known[i].format;
    while (at < end && (*at == '\n' || *at == '\r' || *at == ' '))
        at++;
    size_t n = (size_t)(kh_line_end(at, end) - at);
    if (n == 0)
        return kh_fail(err, KH_EFORMAT, "%s: the file is empty", d->path);
    if (d->format == KH_FORMAT_AUTO)
        d->format = format_of_line(at, n);
    if (d->format == KH_FORMAT_AUTO)
        return kh_fail(err, KH_EFORMAT,
            "%s: cannot tell what format this is; name it (tsv, csv, csv-noheader or jsonl)",
            d->path);
    return 0;
}

/* Codes become labels; rows whose code turns out to be none are bad rows. */
static int settle_labels(reader *r, kh_err *err) {
    kh_dataset *d = r->d;
    kh_err why;
    int n = 0, most = -1, rc = kh_labels_finish(&r->labels, err);
    for (int i = 0; i < d->n_row && rc == 0; i++) {
        kh_row *row = &d->row[i];
        rc = kh_labels_final(&r->labels, row->label, d->path, row->line, &row->label, &why);
        if (rc != 0) {
            rc = bad_row(r, rc, &why, err);
            continue;
        }
        most = row->label > most ? row->label : most;
        d->row[n++] = *row;
    }
    if (rc != 0)
        return rc;
    d->n_row = n;
    d->n_label = kh_labels_count(&r->labels) > most + 1 ? kh_labels_count(&r->labels) : most + 1;
    d->label = kh_arena_array(&d->arena, (size_t)d->n_label, sizeof *d->label);
    if (!d->label)
        return kh_fail_memory(err);
    for (int k = 0; k < d->n_label; k++) {
        const char *name = kh_labels_name(&r->labels, k);
        if (name && (d->label[k] = kh_arena_strndup(&d->arena, name, strlen(name))) == NULL)
            return kh_fail_memory(err);
    }
    return 0;
}

static int check_rows(const kh_dataset *d, kh_err *err) {
    if (d->n_row > 0)
        return 0;
    if (d->n_skipped > 0)
        return kh_fail(
            err, KH_EFORMAT, "%s: every one of its %d rows is malformed", d->path, d->n_skipped);
    if (d->n_undecided > 0)
        return kh_fail(
            err, KH_EFORMAT, "%s: none of its %d rows has a label", d->path, d->n_undecided);
    return kh_fail(err, KH_EFORMAT, "%s: a header, but no rows", d->path);
}

/* d->bytes holds the file. */
static int read_all(kh_dataset *d, bool on_disk, const kh_dataset_opts *o, kh_err *err) {
    reader r = { .d = d, .o = o };
    char *at = d->bytes.data, *end = at + d->bytes.len;
    if (end - at >= 3 && memcmp(at, "\xEF\xBB\xBF", 3) == 0)
        at += 3;
    int rc = kh_sniff_refuse(d->path, at, (size_t)(end - at), err);
    if (rc == 0)
        rc = find_format(d, o, at, end, err);
    if (rc == 0)
        rc = kh_labels_init(&r.labels, &d->arena, on_disk ? d->path : NULL, o->task, err);
    if (rc == 0)
        rc = d->format == KH_FORMAT_JSONL ? read_jsonl(&r, at, end, err)
                                          : read_table(&r, at, end, err);
    if (rc == 0)
        rc = settle_labels(&r, err);
    if (rc == 0)
        rc = check_rows(d, err);
    kh_labels_free(&r.labels);
    return rc;
}

static kh_dataset *new_dataset(const char *path, kh_err *err) {
    kh_dataset *d = kh_calloc(1, sizeof *d);
    if (d && (d->path = kh_arena_strndup(&d->arena, path, strlen(path))) == NULL) {
        kh_free(d);
        d = NULL;
    }
    if (!d)
        kh_fail_memory(err);
    return d;
}

int kh_dataset_open(kh_dataset **out, const char *path, const kh_dataset_opts *opts, kh_err *err) {
    static const kh_dataset_opts defaults;
    *out = NULL;
    kh_dataset *d = new_dataset(path, err);
    if (!d)
        return KH_ENOMEM;
    int rc = kh_file_read(path, FILE_MAX, &d->bytes, err);
    if (rc == 0)
        rc = read_all(d, true, opts ? opts : &defaults, err);
    if (rc != 0)
        kh_dataset_close(d);
    else
        *out = d;
    return rc;
}

int kh_dataset_parse(kh_dataset **out, const char *bytes, size_t n, const char *name,
    const kh_dataset_opts *opts, kh_err *err) {
    static const kh_dataset_opts defaults;
    *out = NULL;
    kh_dataset *d = new_dataset(name, err);
    if (!d)
        return KH_ENOMEM;
    d->bytes = kh_buf_init(FILE_MAX);
    kh_buf_bytes(&d->bytes, bytes, n);
    int rc = kh_buf_failed(&d->bytes) ? kh_fail_memory(err)
                                      : read_all(d, false, opts ? opts : &defaults, err);
    if (rc != 0)
        kh_dataset_close(d);
    else
        *out = d;
    return rc;
}

static const char *keep_text(kh_buf *bytes, const char *s, size_t n) {
    const char *at = bytes->data + bytes->len; /* there is room: the buffer must not move */
    kh_buf_bytes(bytes, s, n);
    return at;
}

/* Row number i of those wanted: by an index, or of one data set after the other. */
typedef struct wanted {
    const kh_dataset *from, *then;
    const int *index; /* NULL: all of `from`, then all of `then` */
    int n;
} wanted;

static const kh_row *wanted_row(const wanted *w, int i) {
    if (w->index)
        return &w->from->row[w->index[i]];
    return i < w->from->n_row ? &w->from->row[i] : &w->then->row[i - w->from->n_row];
}

static int copy_rows(kh_dataset *d, const wanted *w) {
    size_t total = 0;
    for (int i = 0; i < w->n; i++)
        total += wanted_row(w, i)->n_a + wanted_row(w, i)->n_b;
    d->bytes = kh_buf_init(KH_BUF_MAX);
    if (!kh_buf_reserve(&d->bytes, total) ||
        !kh_grow(&d->row, &d->cap, (size_t)w->n, sizeof *d->row))
        return KH_ENOMEM;
    for (int i = 0; i < w->n; i++) {
        kh_row row = *wanted_row(w, i);
        row.a = keep_text(&d->bytes, row.a, row.n_a);
        row.b = row.b ? keep_text(&d->bytes, row.b, row.n_b) : NULL;
        d->row[d->n_row++] = row;
    }
    return 0;
}

static int copy_of(kh_dataset **out, const wanted *w, kh_err *err) {
    const kh_dataset *from = w->from;
    *out = NULL;
    kh_dataset *d = new_dataset(from->path, err);
    if (!d)
        return KH_ENOMEM;
    d->format = from->format;
    d->pairs = from->pairs;
    d->n_label = from->n_label;
    d->label = kh_arena_array(&d->arena, (size_t)d->n_label, sizeof *d->label);
    int rc = d->label ? copy_rows(d, w) : KH_ENOMEM;
    for (int k = 0; k < d->n_label && rc == 0; k++)
        if (from->label[k] &&
            (d->label[k] = kh_arena_strndup(&d->arena, from->label[k], strlen(from->label[k]))) ==
                NULL)
            rc = KH_ENOMEM;
    if (rc != 0) {
        kh_dataset_close(d);
        return kh_fail_memory(err);
    }
    *out = d;
    return 0;
}

int kh_dataset_select(
    kh_dataset **out, const kh_dataset *from, const int *index, int n, kh_err *err) {
    return copy_of(out, &(wanted){ .from = from, .index = index ? index : &n, .n = n }, err);
}

int kh_dataset_join(kh_dataset **out, const kh_dataset *a, const kh_dataset *b, kh_err *err) {
    return copy_of(out, &(wanted){ .from = a, .then = b, .n = a->n_row + b->n_row }, err);
}

void kh_dataset_close(kh_dataset *d) {
    if (!d)
        return;
    kh_buf_free(&d->bytes);
    kh_free(d->row);
    kh_arena_free(&d->arena);
    kh_free(d);
}

int kh_dataset_size(const kh_dataset *d) { return d->n_row; }
const kh_row *kh_dataset_rows(const kh_dataset *d) { return d->row; }
bool kh_dataset_pairs(const kh_dataset *d) { return d->pairs; }
int kh_dataset_labels(const kh_dataset *d) { return d->n_label; }
const char *kh_dataset_label(const kh_dataset *d, int k) {
    return k >= 0 && k < d->n_label ? d->label[k] : NULL;
}
const char *kh_dataset_path(const kh_dataset *d) { return d->path; }
kh_format kh_dataset_format(const kh_dataset *d) { return d->format; }
int kh_dataset_skipped(const kh_dataset *d) { return d->n_skipped; }
int kh_dataset_undecided(const kh_dataset *d) { return d->n_undecided; }

void kh_dataset_count(const kh_dataset *d, int *count) {
    memset(count, 0, (size_t)d->n_label * sizeof *count);
    for (int i = 0; i < d->n_row; i++)
        if (d->row[i].label >= 0)
            count[d->row[i].label]++;
}

/* ------------------------------------------------------------------------------------- writing */

static void put_text(kh_buf *out, const char *s, size_t n) {
    size_t from = out->len;
    kh_buf_bytes(out, s, n);
    for (size_t i = from; i < out->len; i++)
        if (out->data[i] == '\t' || out->data[i] == '\n' || out->data[i] == '\r')
            out->data[i] = ' ';
}

int kh_dataset_write(const kh_dataset *d, const char *path, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_buf_text(&b, d->pairs ? "label\ttext_a\ttext_b\n" : "label\ttext\n");
    for (int i = 0; i < d->n_row; i++) {
        const kh_row *row = &d->row[i];
        if (row->label >= 0)
            kh_buf_printf(&b, "%d\t", row->label);
        else
            kh_buf_text(&b, "-\t");
        put_text(&b, row->a, row->n_a);
        if (row->b) {
            kh_buf_char(&b, '\t');
            put_text(&b, row->b, row->n_b);
        }
        kh_buf_char(&b, '\n');
    }
    int rc = kh_buf_failed(&b) ? kh_fail_memory(err) : kh_file_write(path, b.data, b.len, err);
    kh_buf_free(&b);
    return rc;
}

int kh_dataset_write_labels(const kh_dataset *d, const char *path, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    int rc = 0;
    for (int k = 0; k < d->n_label; k++) {
        if (!d->label[k])
            goto done;
        kh_buf_printf(&b, "%s\n", d->label[k]);
    }
    rc = kh_buf_failed(&b) ? kh_fail_memory(err) : kh_file_write(path, b.data, b.len, err);
done:
    kh_buf_free(&b);
    return rc;
}
