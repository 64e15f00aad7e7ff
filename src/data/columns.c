/* columns.c - the column names of the data sets that people have: our own, GLUE's, Hugging Face's,
 * SetFit's. */
#include "data/columns.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

/* Tried from top to bottom; two texts before one, because files of pairs often hold a third text
 * beside them. */
static const struct text_names {
    const char *a, *b;
    bool join;
} texts[] = {
    { "text_a", "text_b", false },
    { "sentence1", "sentence2", false }, /* RTE, SNLI, MNLI, WNLI */
    { "premise", "hypothesis", false },  /* NLI at Hugging Face */
    { "#1 string", "#2 string", false }, /* MRPC */
    { "question1", "question2", false }, /* QQP */
    { "question", "sentence", false },   /* QNLI */
    { "text", NULL, false },
    { "sentence", NULL, false }, /* SST-2 */
    { "review", NULL, false },
    { "title", "content", true },     /* DBPedia, Amazon and Yelp at Hugging Face */
    { "title", "description", true }, /* AG News with a header */
    { "subject", "body", true },      /* mail and tickets */
    { "content", NULL, false },
    { "message", NULL, false },
    { "body", NULL, false },
    { "comment", NULL, false },
    { "utterance", NULL, false },
    { "tweet", NULL, false },
    { "ticket", NULL, false },
    { "query", NULL, false },
    { "document", NULL, false },
    { "description", NULL, false },
};

/* The last one goes beside a column of numbers. */
static const char *const labels[] = { "label", "gold_label", "quality", "is_duplicate", "class",
    "category", "target", "intent", "topic", "sentiment", "emotion", "tag", "type", "kind",
    "rating", "stars", "queue", "team", "department", "label_text" };

enum { N_TEXTS = sizeof texts / sizeof texts[0], N_LABELS = sizeof labels / sizeof labels[0] };

static bool find_texts(
    kh_columns *out, bool pairs, bool (*has)(const void *, const char *), const void *file) {
    for (int i = 0; i < N_TEXTS; i++) {
        const struct text_names *t = &texts[i];
        bool pair = t->b && !t->join;
        if (pair != pairs || !has(file, t->a) || (t->b && !has(file, t->b)))
            continue;
        out->a = t->a;
        out->b = t->b;
        out->join = t->join;
        return true;
    }
    return false;
}

bool kh_columns_find(kh_columns *out, const kh_task *task, bool (*has)(const void *, const char *),
    const void *file, const char **half) {
    *out = (kh_columns){ 0 };
    *half = NULL;
    for (int i = 0; i < N_LABELS && !out->label; i++)
        if (has(file, labels[i]))
            out->label = labels[i];
    const char *names = labels[N_LABELS - 1];
    if (out->label && out->label != names && has(file, names))
        out->label_name = names;
    bool pairs_first = !task || task->pair;
    if (find_texts(out, pairs_first, has, file) || find_texts(out, !pairs_first, has, file))
        return true;
    for (int i = 0; i < N_TEXTS && !*half; i++)
        if (texts[i].b && has(file, texts[i].a))
            *half = texts[i].b;
        else if (texts[i].b && has(file, texts[i].b))
            *half = texts[i].a;
    return false;
}

bool kh_column_numbers(const char *name, size_t n) {
    static const char *const NAMES[] = { "id", "index", "idx", "guid", "no", "nr", "#" };
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strlen(NAMES[i]) == n && strncasecmp(NAMES[i], name, n) == 0)
            return true;
    return false;
}
