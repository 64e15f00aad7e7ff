/* instructions.c - see instructions.h. The sets are small on purpose: a few different ways to ask,
 * not many alike.
 *
 * What text prompts are made of: instructions, templates with label words, and edits of
 * instructions (a synonym, a word left out, two neighbours swapped). The task's own template, its
 * own words and no instruction come first and are number 0 of each list, so that the point of all
 * zeros is the plain task. Duplicates are dropped, so that a prior over the lists is uniform over
 * different texts. */
#include "prompt/instructions.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "data/task.h"
#include "data/template.h"
#include "model/engine.h"
#include "plm/backend.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    FILE_MAX = 1 << 20,
    LINE_MAX_BYTES = 4096,
    NAMES_MOST = 12, /* labels that an instruction lists; more are no instruction to read */
    WORDS_MOST = 40, /* of an instruction that are edited, the first ones */
    EDITS_MOST = 64, /* of one instruction */
    FILLS = 3,       /* words that the model proposes for one place */
    FILL_LOOKS = 40, /* of its best tokens, which need not be words */
};

/* ---------------------------------------------------------------------------- the built-in sets
 */

typedef struct text_set {
    const char *tasks;              /* names, with spaces around them */
    const char *const *instruction; /* ends in NULL */
    const char *const *template;    /* ends in NULL */
    const char *const (*words)[3];  /* label words of a set, in the order of labels; ends in NULL */
} text_set;

#define LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define WORDS(...) ((const char *const[][3]){ __VA_ARGS__, { NULL } })

static const text_set SETS[] = {
    { " sst2 yelp imdb reviews ",
        LIST("Decide whether the opinion is good or bad.",
            "Read the review and say how the writer felt about it.",
            "Classify the sentiment of the following review.",
            "Is this a recommendation or a warning?"),
        LIST("{text} All in all, it was {mask} .", "{text} I think it is {mask} .",
            "{text} The verdict: {mask} ."),
        WORDS({ "terrible", "wonderful" }, { "horrible", "amazing" }, { "bad", "wonderful" },
            { "terrible", "great" }) },
    { " agnews topics ",
        LIST("Decide which section of the newspaper the article belongs to.",
            "Name the topic of the following news item.",
            "Sort the article into one of the sections of a news site."),
        LIST("{text} This news is about {mask} .", "{text} Section: {mask} .",
            "{text} Category: {mask} ."),
        NULL },
    { " dbpedia ",
        LIST("Say what kind of thing the text describes.",
            "Name the category of the encyclopedia article."),
        LIST("{text} This is about a {mask} .", "{text} Category: {mask} ."), NULL },
    { " mrpc ",
        LIST("Do the two sentences mean the same?",
            "Decide whether one sentence is a paraphrase of the other."),
        LIST("{text_a} {text_b} Same meaning? {mask} ."), WORDS({ "different", "same" }) },
    { " rte snli mnli ",
        LIST("Does the second sentence follow from the first?",
            "Decide whether the hypothesis is true, given the premise."),
        LIST("{text_a} Does it follow that {text_b} ? {mask} ."), NULL },
};
enum { N_SET = sizeof SETS / sizeof *SETS };

static const char SYNONYMS[] = "decide: determine, judge\n"
                               "say: tell, state\n"
                               "name: give, state\n"
                               "classify: label, judge\n"
                               "sort: put, file\n"
                               "read: consider\n"
                               "review: text, opinion\n"
                               "text: passage, input\n"
                               "article: text, story\n"
                               "news: press\n"
                               "topic: subject, theme\n"
                               "category: class, kind\n"
                               "sentence: text, statement\n"
                               "sentences: texts, statements\n"
                               "opinion: view, review\n"
                               "writer: author, speaker\n"
                               "good: positive\n"
                               "bad: negative\n"
                               "following: next\n"
                               "section: part\n"
                               "label: class\n";

/* -------------------------------------------------------------------------------------- adding */

static char *keep_line(kh_material *m, const char *s, size_t n) {
    return kh_arena_strndup(m->arena, s, n);
}

/* Room for all its edits at once: an arena cannot grow. */
static int add_instruction(kh_material *m, const char *text, kh_err *err) {
    for (int i = 0; i < m->n_instruction; i++)
        if (strcmp(m->instruction[i].text[0], text) == 0)
            return 0;
    const char **list = kh_arena_array(m->arena, EDITS_MOST + 1, sizeof *list);
    if (!list ||
        !kh_grow(&m->instruction, &m->cap_instruction, (size_t)m->n_instruction + 1,
            sizeof *m->instruction) ||
        !(list[0] = keep_line(m, text, strlen(text))))
        return kh_fail_memory(err);
    m->instruction[m->n_instruction++] = (kh_instruction){ list, 1 };
    return 0;
}

/* Whether a model can be asked with it; others are passed over, unless they are the task's own. A
 * model that continues texts answers behind everything: nothing but literals may stand after the
 * mask. */
static bool usable(const kh_material *m, const char *template) {
    kh_template t;
    bool behind = false,
         good =
             kh_template_parse(&t, template, "", NULL) == 0 && t.pair == m->task->pair && !t.prompt;
    for (int i = 0; good && i < t.n && m->next; i++) {
        good = !behind || t.part[i].kind == KH_SEGMENT_LITERAL;
        behind |= t.part[i].kind == KH_SEGMENT_MASK;
    }
    return good;
}

static bool same_words(const kh_label *a, const kh_label *b, int n_label) {
    bool same = true;
    for (int k = 0; k < n_label && same; k++) {
        same = a[k].n_word == b[k].n_word;
        for (int w = 0; same && w < a[k].n_word; w++)
            same = strcmp(a[k].word[w], b[k].word[w]) == 0;
    }
    return same;
}

/* A template with some words; the words join those of the same template. */
static int add_wording(kh_material *m, const char *template, const kh_label *words, kh_err *err) {
    enum { SETS_MOST = 16 };
    kh_wording *w = NULL;
    if (m->n_wording > 0 && !usable(m, template))
        return 0;
    for (int i = 0; i < m->n_wording && !w; i++)
        w = strcmp(m->wording[i].template, template) == 0 ? &m->wording[i] : NULL;
    if (!w) {
        const kh_label **list = kh_arena_array(m->arena, SETS_MOST, sizeof *list);
        char *copy = keep_line(m, template, strlen(template));
        if (!list || !copy ||
            !kh_grow(&m->wording, &m->cap_wording, (size_t)m->n_wording + 1, sizeof *m->wording))
            return kh_fail_memory(err);
        w = &m->wording[m->n_wording++];
        *w = (kh_wording){ copy, list, 0 };
    }
    for (int i = 0; i < w->n_words; i++)
        if (same_words(w->words[i], words, m->task->n_label))
            return 0;
    if (w->n_words < SETS_MOST)
        w->words[w->n_words++] = words;
    return 0;
}

/* The task's labels, each with one word of a list. NULL: out of memory. */
static const kh_label *with_words(kh_material *m, const char *const *word) {
    int n = m->task->n_label;
    kh_label *label = kh_arena_array(m->arena, (size_t)n, sizeof *label);
    const char **copy = kh_arena_array(m->arena, (size_t)n, sizeof *copy);
    for (int k = 0; label && copy && k < n; k++) {
        copy[k] = word[k];
        label[k] = (kh_label){ .name = m->task->label[k].name, .word = &copy[k], .n_word = 1 };
    }
    return label && copy ? label : NULL;
}

/* The first word of every label's name, if they are all different: *out stays NULL if not. Names
 * such as "World news" give "world": a label word must be one that a model could say. */
static int name_words(kh_material *m, const kh_label **out, kh_err *err) {
    int n = m->task->n_label, rc = 0;
    const char **word = kh_arena_array(m->arena, (size_t)n, sizeof *word);
    bool good = word != NULL;
    *out = NULL;
    for (int k = 0; good && rc == 0 && k < n; k++) {
        kh_buf b = kh_buf_init(1 << 16);
        kh_label_name_words(m->task->label[k].name, &b);
        kh_buf_bytes(&b, "", 0);
        size_t len = kh_buf_failed(&b) ? 0 : strcspn(b.data, " ");
        good = len > 0;
        if (kh_buf_failed(&b) || (good && !(word[k] = keep_line(m, b.data, len))))
            rc = kh_fail_memory(err);
        for (int j = 0; rc == 0 && good && j < k; j++)
            good = strcmp(word[j], word[k]) != 0;
        kh_buf_free(&b);
    }
    if (!word)
        rc = kh_fail_memory(err);
    if (rc == 0 && good && !(*out = with_words(m, word)))
        rc = kh_fail_memory(err);
    return rc;
}

int kh_material_start(
    kh_material *m, kh_arena *arena, const kh_task *task, bool next, kh_err *err) {
    const kh_label *names;
    *m = (kh_material){ .arena = arena, .task = task, .next = next };
    int rc = add_wording(m, kh_task_template(task, false, next), task->label, err);
    if (rc == 0)
        rc = add_instruction(m, "", err);
    if (rc == 0)
        rc = name_words(m, &names, err);
    if (rc == 0 && names)
        rc = add_wording(m, m->wording[0].template, names, err);
    for (int i = 0; i < task->n_variant && rc == 0; i++)
        rc = add_wording(m, task->variant[i].plain, task->variant[i].label, err);
    return rc;
}

void kh_material_free(kh_material *m) {
    kh_free(m->wording);
    kh_free(m->instruction);
    *m = (kh_material){ 0 };
}

/* "a, b or c" */
static void put_names(const kh_task *t, kh_buf *b) {
    for (int k = 0; k < t->n_label; k++) {
        const char *glue = k + 1 < t->n_label ? ", " : " or ";
        kh_buf_printf(b, "%s%s", k ? glue : "", t->label[k].name);
    }
}

/* What any task's name and labels give. */
static int add_generic(kh_material *m, kh_err *err) {
    static const char *const ASK[] = { "Classify the text as %s.",
        "Which label fits the text: %s?" };
    static const char *const PAIR[] = { "Classify the two texts as %s.",
        "Which label fits the two texts: %s?" };
    static const char *const SINGLE_TEMPLATE[] = { "{text} This is {mask} .",
        "{text} Label: {mask} ." };
    static const char *const PAIR_TEMPLATE[] = { "{text_a} {text_b} Answer: {mask} ." };
    const kh_task *t = m->task;
    int rc = 0, n = t->pair ? 1 : 2;
    for (int i = 0; i < n && rc == 0; i++)
        rc = add_wording(m, (t->pair ? PAIR_TEMPLATE : SINGLE_TEMPLATE)[i], t->label, err);
    for (int i = 0; i < 2 && rc == 0 && t->n_label <= NAMES_MOST; i++) {
        kh_buf names = kh_buf_init(1 << 16), text = kh_buf_init(1 << 16);
        put_names(t, &names);
        kh_buf_bytes(&names, "", 0);
        if (!kh_buf_failed(&names)) { /* one %s in each */
            const char *form = (t->pair ? PAIR : ASK)[i], *at = strstr(form, "%s");
            kh_buf_bytes(&text, form, (size_t)(at - form));
            kh_buf_text(&text, names.data);
            kh_buf_text(&text, at + 2);
        }
        rc = kh_buf_failed(&names) || kh_buf_failed(&text) ? kh_fail_memory(err)
                                                           : add_instruction(m, text.data, err);
        kh_buf_free(&names);
        kh_buf_free(&text);
    }
    return rc;
}

static const text_set *set_of(const kh_task *t) {
    char name[128];
    snprintf(name, sizeof name, " %s ", t->name);
    for (int i = 0; i < N_SET; i++)
        if (strstr(SETS[i].tasks, name))
            return &SETS[i];
    return NULL;
}

/* Sets of words go with templates that the task's own words fit: "It was good" reads well wherever
 * "It was great" does. */
int kh_material_builtin(kh_material *m, kh_err *err) {
    const text_set *s = set_of(m->task);
    int rc = 0, n_label = m->task->n_label;
    for (int i = 0; s && s->instruction[i] && rc == 0; i++)
        rc = add_instruction(m, s->instruction[i], err);
    for (const char *const *at = s ? s->template : NULL; at && *at && rc == 0; at++)
        rc = add_wording(m, *at, m->task->label, err);
    for (int i = 0; s && s->words && s->words[i][0] && rc == 0 && n_label == 2; i++) {
        const kh_label *words = with_words(m, s->words[i]);
        if (!words)
            rc = kh_fail_memory(err);
        for (int t = 0; t < m->n_wording && rc == 0; t++) /* where the task's own would do */
            if (same_words(m->wording[t].words[0], m->task->label, n_label))
                rc = add_wording(m, m->wording[t].template, words, err);
    }
    return rc == 0 ? add_generic(m, err) : rc;
}

/* ------------------------------------------------------------------------------ the user's file
 */

/* One line: without white space around it. A line with {mask} is a template, any other an
 * instruction; # begins a comment. */
static int add_line(
    kh_material *m, const char *s, size_t n, const char *path, long number, kh_err *err) {
    char place[600], text[LINE_MAX_BYTES + 1];
    kh_template t;
    while (n > 0 && isspace((unsigned char)s[0]))
        s++, n--;
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        n--;
    if (n == 0 || s[0] == '#')
        return 0;
    snprintf(place, sizeof place, "%s, line %ld", path, number);
    if (n > LINE_MAX_BYTES || memchr(s, '\0', n))
        return kh_fail(err, KH_EFORMAT,
            "%s: an instruction is one line of at most %d bytes, without zero bytes", place,
            LINE_MAX_BYTES);
    memcpy(text, s, n);
    text[n] = '\0';
    if (!strstr(text, "{mask}"))
        return add_instruction(m, text, err);
    int rc = kh_template_parse(&t, text, place, err);
    if (rc == 0 && !usable(m, text))
        rc = kh_fail(err, KH_EFORMAT,
            "%s: the template \"%s\" does not fit task \"%s\"; it must hold %s%s and no {prompt}",
            place, text, m->task->name, m->task->pair ? "{text_a} and {text_b}" : "{text}",
            m->next ? " before {mask}" : "");
    return rc == 0 ? add_wording(m, text, m->task->label, err) : rc;
}

int kh_material_file(kh_material *m, const char *path, kh_err *err) {
    kh_buf bytes = kh_buf_init(0);
    int rc = kh_file_read(path, FILE_MAX, &bytes, err), before = m->n_instruction + m->n_wording;
    long number = 0;
    for (size_t at = 0; rc == 0 && at < bytes.len;) {
        const char *end = memchr(bytes.data + at, '\n', bytes.len - at);
        size_t n = end ? (size_t)(end - bytes.data) - at : bytes.len - at;
        rc = add_line(m, bytes.data + at, n, path, ++number, err);
        at += n + 1;
    }
    if (rc == 0 && m->n_instruction + m->n_wording == before)
        rc = kh_fail(err, KH_EFORMAT,
            "%s: holds no instruction; write one a line, or a template with {mask}", path);
    kh_buf_free(&bytes);
    return rc;
}

/* ------------------------------------------------------------------------------------ synonyms */

static int add_synonym(kh_synonyms *y, kh_arena *a, const char *word, size_t n_word,
    const char *other, size_t n_other, kh_err *err) {
    if (!kh_grow(&y->pair, &y->cap, (size_t)y->n + 1, sizeof *y->pair))
        return kh_fail_memory(err);
    struct kh_synonym *p = &y->pair[y->n];
    p->word = kh_arena_strndup(a, word, n_word);
    p->other = kh_arena_strndup(a, other, n_other);
    if (!p->word || !p->other)
        return kh_fail_memory(err);
    y->n++;
    return 0;
}

/* The next item up to a comma or the end, without spaces around it. */
static const char *next_item(const char *s, const char *end, size_t *n, const char **rest) {
    const char *comma = memchr(s, ',', (size_t)(end - s));
    *rest = comma ? comma + 1 : end;
    end = comma ? comma : end;
    while (s < end && isspace((unsigned char)*s))
        s++;
    while (s < end && isspace((unsigned char)end[-1]))
        end--;
    *n = (size_t)(end - s);
    return s;
}

static int parse_synonyms(kh_synonyms *y, kh_arena *a, const char *s, const char *end,
    const char *name, long number, kh_err *err) {
    const char *colon = memchr(s, ':', (size_t)(end - s)), *rest;
    size_t n_word, n_other;
    const char *word = next_item(s, colon ? colon : end, &n_word, &rest);
    if (n_word == 0 && !colon)
        return 0;
    if (!colon || n_word == 0 || memchr(s, '\0', (size_t)(end - s)))
        return kh_fail(err, KH_EFORMAT,
            "%s, line %ld: synonyms are written \"word: other, other\", one word a line", name,
            number);
    int rc = 0;
    for (const char *at = colon + 1; at < end && rc == 0; at = rest) {
        const char *other = next_item(at, end, &n_other, &rest);
        if (n_other > 0)
            rc = add_synonym(y, a, word, n_word, other, n_other, err);
    }
    return rc;
}

int kh_synonyms_parse(
    kh_synonyms *y, kh_arena *a, const char *text, size_t n, const char *name, kh_err *err) {
    int rc = 0;
    long number = 0;
    for (const char *at = text, *end = text + n; at < end && rc == 0;) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        line = line ? line : end;
        number++;
        rc = *at == '#' ? 0 : parse_synonyms(y, a, at, line, name, number, err);
        at = line + 1;
    }
    return rc;
}

int kh_synonyms_builtin(kh_synonyms *y, kh_arena *a, kh_err *err) {
    return kh_synonyms_parse(y, a, SYNONYMS, sizeof SYNONYMS - 1, "the built-in synonyms", err);
}

int kh_synonyms_file(kh_synonyms *y, kh_arena *a, const char *path, kh_err *err) {
    kh_buf bytes = kh_buf_init(0);
    int rc = kh_file_read(path, FILE_MAX, &bytes, err);
    if (rc == 0)
        rc = kh_synonyms_parse(y, a, bytes.data ? bytes.data : "", bytes.len, path, err);
    kh_buf_free(&bytes);
    return rc;
}

void kh_synonyms_free(kh_synonyms *y) {
    kh_free(y->pair);
    *y = (kh_synonyms){ 0 };
}

/* --------------------------------------------------------------------------------------- edits */

/* A text cut at its spaces; the word itself is without the punctuation behind it. */
typedef struct text_words {
    const char *s[WORDS_MOST];
    size_t n_bytes[WORDS_MOST], n_bare[WORDS_MOST];
    int n;
    const char *rest; /* behind the last of them; stays as it is */
} text_words;

static void split_words(text_words *w, const char *text) {
    const char *at = text;
    w->n = 0;
    while (*at && w->n < WORDS_MOST) {
        size_t n = strcspn(at, " "), bare = n;
        while (bare > 0 && ispunct((unsigned char)at[bare - 1]))
            bare--;
        if (n > 0) {
            w->s[w->n] = at;
            w->n_bytes[w->n] = n;
            w->n_bare[w->n++] = bare;
        }
        at += n + (at[n] == ' ');
    }
    w->rest = at;
}

/* Writes the words with word `drop` left out, `swap` and its right neighbour swapped, `replace`
 * replaced; -1: nothing of that. Punctuation stays where it is. */
static void write_edit(
    const text_words *w, int drop, int swap, int replace, const char *other, kh_buf *out) {
    bool first = true;
    for (int i = 0; i < w->n; i++) {
        int from = i;
        if (swap >= 0 && (i == swap || i == swap + 1))
            from = 2 * swap + 1 - i;
        if (i == drop)
            continue;
        kh_buf_text(out, first ? "" : " ");
        first = false;
        if (i == replace)
            kh_buf_text(out, other);
        else
            kh_buf_bytes(out, w->s[from], w->n_bare[from]);
        kh_buf_bytes(out, w->s[i] + w->n_bare[i], w->n_bytes[i] - w->n_bare[i]);
    }
    kh_buf_text(out, *w->rest ? " " : "");
    kh_buf_text(out, w->rest);
}

static int add_edit(kh_material *m, kh_instruction *x, kh_buf *text, kh_err *err) {
    int rc = kh_buf_failed(text) ? kh_fail_memory(err) : 0;
    bool known = rc != 0 || x->n > EDITS_MOST;
    for (int i = 0; i < x->n && !known; i++)
        known = strcmp(x->text[i], text->data) == 0;
    if (!known && !(x->text[x->n] = keep_line(m, text->data, text->len)))
        rc = kh_fail_memory(err);
    else if (!known)
        x->n++;
    kh_buf_free(text);
    return rc;
}

/* Edits do not nest: every one is a step from the instruction that a person wrote, so that all of
 * them stay readable. */
static int edit_one(kh_material *m, kh_instruction *x, const kh_synonyms *y, kh_err *err) {
    text_words w;
    split_words(&w, x->text[0]);
    int rc = 0;
    for (int i = 0; i < w.n && rc == 0; i++)
        for (int k = 0; y && k < y->n && rc == 0; k++)
            if (strlen(y->pair[k].word) == w.n_bare[i] &&
                strncasecmp(y->pair[k].word, w.s[i], w.n_bare[i]) == 0) {
                kh_buf text = kh_buf_init(KH_BUF_MAX);
                write_edit(&w, -1, -1, i, y->pair[k].other, &text);
                if (!kh_buf_failed(&text) && i == 0 && isupper((unsigned char)w.s[0][0]))
                    text.data[0] = (char)toupper((unsigned char)text.data[0]);
                rc = add_edit(m, x, &text, err);
            }
    for (int i = 0; i < w.n && w.n > 2 && rc == 0; i++) {
        kh_buf text = kh_buf_init(KH_BUF_MAX);
        write_edit(&w, i, -1, -1, NULL, &text);
        rc = add_edit(m, x, &text, err);
    }
    for (int i = 0; i + 1 < w.n && rc == 0; i++) {
        kh_buf text = kh_buf_init(KH_BUF_MAX);
        write_edit(&w, -1, i, -1, NULL, &text);
        rc = add_edit(m, x, &text, err);
    }
    return rc;
}

int kh_material_edit(kh_material *m, const kh_synonyms *y, kh_err *err) {
    int rc = 0;
    for (int i = 0; i < m->n_instruction && rc == 0; i++)
        if (m->instruction[i].text[0][0])
            rc = edit_one(m, &m->instruction[i], y, err);
    return rc;
}

/* ------------------------------------------------------------------- synonyms of the model's own
 */

/* A token that is a word: letters alone, and a beginning in the sense of its vocabulary. */
static bool is_word(const char *s) {
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if (!isalpha((unsigned char)s[i]))
            return false;
    return n > 1;
}

/* The best few tokens at a mask that are words, and not the word that stood there. */
static int keep_fills(kh_synonyms *y, kh_arena *a, const kh_tokenizer *tok, float *logprob,
    int vocab, const text_words *w, int at, kh_err *err) {
    int rc = 0;
    for (int look = 0, found = 0; look < FILL_LOOKS && found < FILLS && rc == 0; look++) {
        int best = 0;
        for (int k = 1; k < vocab; k++)
            best = logprob[k] > logprob[best] ? k : best;
        logprob[best] = -INFINITY;
        int32_t id = best;
        char *text = NULL;
        size_t n;
        rc = kh_tokenizer_decode(tok, &id, 1, true, &text, &n, err);
        const char *word = rc == 0 ? text + strspn(text, " ") : "";
        if (rc == 0 && is_word(word) && strncasecmp(word, w->s[at], w->n_bare[at]) != 0) {
            rc = add_synonym(y, a, w->s[at], w->n_bare[at], word, strlen(word), err);
            found++;
        }
        kh_text_free(text);
    }
    return rc;
}

/* One instruction with the mask in place of one word. */
static int fill_place(kh_synonyms *y, kh_material *m, kh_plm *plm, float *logprob,
    const text_words *w, int at, kh_err *err) {
    const kh_tokenizer *tok = kh_plm_tokenizer(plm);
    struct kh_engine *e = kh_plm_engine(plm);
    int32_t mask = kh_tokenizer_special(tok, KH_TOKEN_MASK);
    kh_buf text = kh_buf_init(KH_BUF_MAX);
    kh_ids ids = { 0 };
    kh_single single;
    write_edit(w, -1, -1, at, kh_tokenizer_token(tok, mask), &text);
    int rc = kh_buf_failed(&text) ? kh_fail_memory(err) : 0, place = -1;
    if (rc == 0)
        rc = kh_tokenizer_encode(tok, text.data, text.len, KH_ENCODE_FRAME, &ids, err);
    for (int i = 0; rc == 0 && i < ids.n && place < 0; i++)
        place = ids.id[i] == mask ? i : -1;
    if (rc == 0 && place >= 0) {
        kh_single_init(&single, ids.id, ids.n);
        rc = kh_engine_vocabulary(
            e, &(kh_question){ .batch = &single.batch }, &place, 1, logprob, err);
        if (rc == 0)
            rc = keep_fills(y, m->arena, tok, logprob, kh_tokenizer_size(tok), w, at, err);
    }
    kh_ids_free(&ids);
    kh_buf_free(&text);
    return rc;
}

/* The model proposes what it would rather read; no label and no row is looked at. */
int kh_synonyms_model(kh_synonyms *y, kh_material *m, kh_plm *plm, kh_err *err) {
    const kh_tokenizer *tok = kh_plm_tokenizer(plm);
    struct kh_engine *e = kh_plm_engine(plm);
    if (!e || kh_tokenizer_special(tok, KH_TOKEN_MASK) < 0)
        return kh_fail(err, KH_EUNSUPPORTED,
            "--synonyms model needs a model that fills masks in this process; --synonyms FILE "
            "takes a list, --synonyms builtin the built-in one");
    size_t vocab = (size_t)kh_model_describe(kh_engine_model(e)).vocab,
           size = (size_t)kh_tokenizer_size(tok);
    float *logprob = kh_calloc(vocab > size ? vocab : size, sizeof *logprob);
    int rc = logprob ? 0 : kh_fail_memory(err);
    for (size_t k = vocab; rc == 0 && k < size; k++)
        logprob[k] = -INFINITY; /* tokens that the model does not have */
    for (int i = 0; i < m->n_instruction && rc == 0; i++) {
        text_words w;
        split_words(&w, m->instruction[i].text[0]);
        for (int k = 0; k < w.n && rc == 0; k++)
            if (w.n_bare[k] > 3) /* short words hold a sentence together */
                rc = fill_place(y, m, plm, logprob, &w, k, err);
    }
    kh_free(logprob);
    return rc;
}
