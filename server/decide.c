/* decide.c - POST /v1/decisions and POST /v1/systemone: closed questions in, a probability for
 * every option out.
 *
 * A tuned classifier answers what its labels answer: a choice among them, or a score of them, gets
 * the calibrated distribution in the order of the options; a predicate the probability of the class
 * that it names. What it was not tuned for is refused, with the labels that it knows: as a refusal
 * in the first format, with 422 in the second. What keyhole knows beside that (the conformal set,
 * whether to abstain, whether the text is out-of-distribution) stands under the key "keyhole",
 * which clients that know of no such thing pass over.
 *
 * An untuned model answers any question by scoring the options as words in place of a mask. The
 * instructions become the template, or are one (doc/serving.md). Where the server lets no
 * probability out (--access labels), or the classifier has none, a choice is answered without, and
 * what is nothing but a probability is refused. */
#include "server/server_parts.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json_out.h"
#include "posterior/posterior.h"
#include "posterior/prediction.h"
#include "server/questions.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

enum { DIGITS = 17 }; /* what a client takes the logarithm of comes back as the same float */

/* What is said to one question. */
typedef struct verdict {
    const char *why; /* it is refused; NULL: answered */
    int *label;      /* [n_option] a tuned classifier's class for each option */
    double *p;       /* [n_option], or NULL: only best is known */
    int best;
} verdict;

/* One request. */
typedef struct decide {
    kh_asked q;
    kh_tuned *by; /* NULL: the untuned model */
    verdict *verdict;
    kh_row row;
    long long tokens;
} decide;

static void free_decide(void *parsed) {
    decide *d = parsed;
    if (d)
        kh_asked_free(&d->q);
    kh_free(d);
}

/* ------------------------------------------------------------------- questions for a classifier */

static const char *complain(decide *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static const char *complain(decide *d, const char *fmt, ...) {
    char text[900];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const char *copy =
        kh_arena_strndup(&d->q.arena, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
    return copy ? copy : "out of memory";
}

/* The labels of a task, for a sentence; cut where it would become long. */
static void list_labels(const kh_task *t, char *out, size_t cap) {
    size_t n = 0;
    out[0] = '\0';
    for (int k = 0; k < t->n_label && n + 80 < cap; k++)
        n += (size_t)snprintf(out + n, cap - n, "%s\"%.60s\"", k ? ", " : "", t->label[k].name);
    if (n + 80 >= cap)
        snprintf(out + n, cap - n, ", ...");
}

/* A label by its name, or by the first of its words where names are numbers; -1: none. */
static int find_label(const kh_task *t, const char *name) {
    for (int k = 0; k < t->n_label; k++)
        if (strcmp(t->label[k].name, name) == 0)
            return k;
    for (int k = 0; k < t->n_label; k++)
        if (t->label[k].n_word > 0 && strcmp(t->label[k].word[0], name) == 0)
            return k;
    return -1;
}

/* Whether a word stands in a text by itself, in whatever case. */
static bool mentions(const char *text, const char *word) {
    size_t n = strlen(word);
    for (const char *at = text; n > 0 && (at = strcasestr(at, word)) != NULL; at++)
        if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[n]))
            return true;
    return false;
}

/* The class that a predicate names: by its name, by what "true" is said to be, or by the one label
 * that its instructions mention. */
static int named_class(const kh_task *t, const kh_ask *a) {
    int k = a->name ? find_label(t, a->name) : -1, found = -1;
    if (k < 0)
        k = find_label(t, a->option[0].description);
    for (int i = 0; k < 0 && i < t->n_label; i++)
        if (mentions(a->text, t->label[i].name)) {
            if (found >= 0)
                return -1;
            found = i;
        }
    return k >= 0 ? k : found;
}

/* Options that were left to us are the labels. */
static int own_options(decide *d, kh_ask *a, const kh_task *t, kh_err *err) {
    a->option = kh_arena_array(&d->q.arena, (size_t)t->n_label, sizeof *a->option);
    if (!a->option)
        return kh_fail_memory(err);
    for (int k = 0; k < t->n_label; k++)
        a->option[k] = (kh_ask_option){ .name = t->label[k].name, .description = "" };
    a->n_option = t->n_label;
    return 0;
}

static int match(decide *d, kh_ask *a, verdict *v, kh_err *err) {
    const kh_task *t = kh_posterior_describe(d->by->what.posterior).task;
    char labels[600];
    list_labels(t, labels, sizeof labels);
    int rc = a->n_option == 0 ? own_options(d, a, t, err) : 0;
    if (rc != 0)
        return rc;
    v->label = kh_arena_array(&d->q.arena, (size_t)a->n_option, sizeof *v->label);
    v->p = kh_arena_array(&d->q.arena, (size_t)a->n_option, sizeof *v->p);
    if (!v->label || !v->p)
        return kh_fail_memory(err);
    if (t->pair != (d->q.b != NULL)) {
        v->why = t->pair ? "this classifier takes pairs: an object with text_a and text_b"
                         : "this classifier takes one text, not a pair";
        return 0;
    }
    if (a->kind == KH_ASK_PREDICATE) {
        v->label[0] = named_class(t, a);
        if (v->label[0] < 0)
            v->why = complain(d,
                "the question does not name one of the classes that this classifier knows (%s)",
                labels);
        return 0;
    }
    for (int i = 0; i < a->n_option; i++) {
        v->label[i] = find_label(t, a->option[i].name);
        for (int k = 0; k < i && v->label[i] >= 0; k++)
            if (v->label[k] == v->label[i])
                v->label[i] = -1;
        if (v->label[i] < 0 || a->n_option != t->n_label) {
            v->why = complain(
                d, "the options must be the classes that this classifier knows (%s)", labels);
            return 0;
        }
    }
    return 0;
}

/* What the distribution over labels says to a question. */
static void answer_by_labels(const kh_ask *a, verdict *v, const double *p) {
    if (a->kind == KH_ASK_PREDICATE) {
        v->p[0] = p[v->label[0]];
        v->p[1] = 1 - v->p[0];
    }
    for (int i = 0; i < a->n_option && a->kind != KH_ASK_PREDICATE; i++)
        v->p[i] = p[v->label[i]];
    v->best = kh_predicted(v->p, a->n_option);
}

/* ----------------------------------------------------------------------- questions for a model */

static void put_plain(kh_buf *b, const char *s) {
    for (; *s; s++) {
        kh_buf_char(b, *s);
        if (*s == '{' || *s == '}')
            kh_buf_char(b, *s);
    }
}

/* Instructions that hold {mask} are a template as task files have them. What stands before their
 * first line break is for readers that do not know that. */
static const char *given_template(const kh_ask *a) {
    const char *line = strchr(a->text, '\n');
    const char *from = line && strstr(line, "{mask}") ? line + 1 : a->text;
    return strstr(from, "{mask}") && strstr(from, "{text") ? from : NULL;
}

static void put_template(const decide *d, const kh_ask *a, bool next, kh_buf *b) {
    const char *given = given_template(a);
    if (given) {
        kh_buf_text(b, given);
        return;
    }
    kh_buf_text(b, d->q.b ? "{text_a} {text_b}" : "{text}");
    if (*a->text)
        kh_buf_text(b, next ? "\n" : " ");
    put_plain(b, a->text);
    for (int i = 0; next && a->kind != KH_ASK_PREDICATE && i < a->n_option; i++) {
        kh_buf_text(b, i ? ", " : "\nOptions: ");
        put_plain(b, a->option[i].name);
        if (*a->option[i].description && a->kind == KH_ASK_CHOICE) {
            kh_buf_text(b, " (");
            put_plain(b, a->option[i].description);
            kh_buf_char(b, ')');
        }
    }
    kh_buf_text(b, next ? "\nAnswer: {mask}" : " {mask}.");
}

/* The options as label words. */
static const kh_label *labels_of(decide *d, const kh_ask *a) {
    static const char *const YES_NO[] = { "Yes", "No" };
    kh_label *label = kh_arena_array(&d->q.arena, (size_t)a->n_option, sizeof *label);
    const char **word = kh_arena_array(&d->q.arena, (size_t)a->n_option, sizeof *word);
    if (!label || !word)
        return NULL;
    for (int i = 0; i < a->n_option; i++) {
        word[i] = a->kind == KH_ASK_PREDICATE ? YES_NO[i] : a->option[i].name;
        label[i] = (kh_label){ .name = word[i], .word = &word[i], .n_word = 1 };
    }
    return label;
}

static int score_row(kh_server *s, decide *d, const kh_ask *a, verdict *v, const kh_task *task,
    const kh_words *words, kh_err *err) {
    kh_batch_opts o = { .max_len = s->limits.max_len, .next = kh_plm_describe(s->what.plm).next };
    float *logprob = kh_arena_array(&d->q.arena, (size_t)a->n_option, sizeof *logprob);
    kh_batch *batch = NULL;
    int rc = logprob ? 0 : kh_fail_memory(err);
    if (rc == 0)
        rc = kh_batch_encode(
            &batch, kh_plm_tokenizer(s->what.plm), task, words, &d->row, 1, &o, err);
    kh_question q = { batch, words, KH_INJECT_NONE, NULL, 1 };
    if (rc == 0 && s->scorer)
        rc = kh_plm_score(s->scorer, &q, logprob, err);
    else if (rc == 0)
        rc = kh_plm_answer(s->labeler, &q, &v->best, err);
    for (int i = 0; i < a->n_option && rc == 0 && s->scorer; i++)
        v->p[i] = exp((double)logprob[i]);
    if (rc == 0 && s->scorer)
        v->best = kh_predicted(v->p, a->n_option);
    kh_batch_free(batch);
    return rc;
}

/* One question to the model itself. What its words, or the template, cannot do is a refusal. */
static int ask_model(kh_server *s, decide *d, const kh_ask *a, verdict *v, kh_err *err) {
    kh_buf text = kh_buf_init(KH_BUF_MAX);
    const kh_label *label = labels_of(d, a);
    v->p = s->scorer ? kh_arena_array(&d->q.arena, (size_t)a->n_option, sizeof *v->p) : NULL;
    put_template(d, a, kh_plm_describe(s->what.plm).next, &text);
    if (!label || (s->scorer && !v->p) || kh_buf_failed(&text)) {
        kh_buf_free(&text);
        return kh_fail_memory(err);
    }
    kh_task task = { .name = "question",
        .plain = text.data,
        .soft = text.data,
        .label = label,
        .n_label = a->n_option,
        .pair = d->q.b != NULL };
    kh_words *words = NULL;
    kh_err wrong = { 0 };
    int rc = kh_words_new(&words, &task, kh_plm_tokenizer(s->what.plm), false, &wrong);
    if (rc == 0)
        rc = kh_words_check(words, &task, &wrong);
    if (rc == 0) /* at access level labels the options are not the client's to choose */
        rc = kh_guard_words(s, words, &wrong);
    if (rc == 0)
        rc = score_row(s, d, a, v, &task, words, &wrong);
    if (rc == KH_EARG || rc == KH_EFORMAT || rc == KH_ELIMIT || rc == KH_EMISMATCH) {
        v->why = complain(d, "%s", wrong.msg);
        rc = 0;
    } else if (rc != 0 && err) {
        *err = wrong;
    }
    kh_words_free(words);
    kh_buf_free(&text);
    return rc;
}

/* ------------------------------------------------------------------------------------- writing */

/* How far the best option is from chance: 0 if all are equal, 1 if it is certain. */
static double confidence(const verdict *v, int n) {
    double c = (n * v->p[v->best] - 1) / (n - 1);
    return c > 0 ? c : 0;
}

static void put_value(kh_json_out *j, const char *key, const kh_ask_option *o) {
    if (o->boolean)
        kh_json_put_bool(j, key, strcmp(o->name, "true") == 0);
    else
        kh_json_put_string(j, key, o->name);
}

static double expected(const kh_ask *a, const verdict *v) {
    double sum = 0;
    for (int i = 0; i < a->n_option; i++)
        sum += i * v->p[i];
    return sum;
}

static void put_confidence(kh_json_out *j, const kh_ask *a, const verdict *v) {
    if (v->p)
        kh_json_put_number(j, "confidence", confidence(v, a->n_option), DIGITS);
    else
        kh_json_put_null(j, "confidence");
}

/* The class of a refusal's reason is ours: the format has none. */
static void put_refusal(kh_json_out *j, const verdict *v) {
    kh_json_open_object(j, "keyhole");
    kh_json_put_string(j, "reason", v->why);
    kh_json_close(j);
}

static void put_probabilities(kh_json_out *j, const kh_ask *a, const verdict *v) {
    kh_json_open_array(j, "probabilities");
    for (int i = 0; i < a->n_option && v->p; i++) {
        kh_json_open_object(j, NULL);
        if (a->kind == KH_ASK_SCORE) {
            kh_json_put_int(j, "value", i);
            kh_json_put_string(j, "label", a->option[i].name);
        } else {
            put_value(j, "value", &a->option[i]);
        }
        kh_json_put_number(j, "probability", v->p[i], DIGITS);
        kh_json_close(j);
    }
    kh_json_close(j);
}

static void put_decision(kh_json_out *j, const kh_ask *a, const verdict *v) {
    static const char *const TYPE[] = { "predicate", "choice", "score" };
    kh_json_open_object(j, NULL);
    kh_json_put_string(j, "type", v->why ? "refusal" : TYPE[a->kind]);
    kh_json_put_string(j, "name", a->name);
    if (v->why) {
        put_refusal(j, v);
    } else if (a->kind == KH_ASK_PREDICATE) {
        kh_json_put_number(j, "probability", v->p[0], DIGITS);
    } else {
        if (a->kind == KH_ASK_CHOICE)
            put_value(j, "choice", &a->option[v->best]);
        else
            kh_json_put_number(j, "score", expected(a, v), DIGITS);
        put_confidence(j, a, v);
        put_probabilities(j, a, v);
    }
    kh_json_close(j);
}

static void put_legend(kh_json_out *j, const kh_ask *a) {
    char number[16];
    kh_json_open_object(j, "legend");
    for (int i = 0; i < a->n_option; i++) {
        const json_t *given = a->option[i].legend;
        snprintf(number, sizeof number, "%d", i);
        if (json_is_null(given))
            kh_json_put_null(j, number);
        else
            kh_json_put_string(j, number, a->option[i].description);
    }
    kh_json_close(j);
}

static void put_systemone(kh_json_out *j, const kh_ask *a, const verdict *v) {
    static const char *const TYPE[] = { "noul", "choice", "score" };
    char number[16];
    kh_json_open_object(j, a->name);
    kh_json_put_string(j, "type", TYPE[a->kind]);
    if (a->kind == KH_ASK_PREDICATE) {
        kh_json_put_number(j, "noul", v->p[0], DIGITS);
        kh_json_close(j);
        return;
    }
    if (a->kind == KH_ASK_CHOICE)
        kh_json_put_string(j, "choice", a->option[v->best].name);
    else
        kh_json_put_number(j, "score", expected(a, v), DIGITS);
    put_confidence(j, a, v);
    if (a->kind == KH_ASK_SCORE)
        put_legend(j, a);
    kh_json_open_object(j, "probabilities");
    for (int i = 0; i < a->n_option && v->p; i++) {
        snprintf(number, sizeof number, "%d", i);
        kh_json_put_number(
            j, a->kind == KH_ASK_SCORE ? number : a->option[i].name, v->p[i], DIGITS);
    }
    kh_json_close(j);
    kh_json_close(j);
}

static void put_usage(kh_json_out *j, const decide *d) {
    kh_json_open_object(j, "usage");
    kh_json_put_int(j, "input_tokens", d->tokens);
    if (!d->q.systemone) {
        kh_json_open_object(j, "input_tokens_details");
        kh_json_put_int(j, "cached_tokens", 0);
        kh_json_put_int(j, "cache_write_tokens", 0);
        kh_json_close(j);
    }
    kh_json_put_int(j, "output_tokens", 0);
    if (!d->q.systemone) {
        kh_json_open_object(j, "output_tokens_details");
        kh_json_put_int(j, "reasoning_tokens", 0);
        kh_json_close(j);
        kh_json_put_int(j, "total_tokens", d->tokens);
    }
    kh_json_close(j);
}

/* record NULL: there is none. */
static void put_reply(kh_server *s, kh_call *c, const kh_prediction *record) {
    const decide *d = c->parsed;
    for (int i = 0; i < d->q.n && d->q.systemone; i++)
        if (d->verdict[i].why) { /* the format has no refusal for a question */
            kh_reply_fail(c, 422, "question \"%.80s\": %s", d->q.ask[i].name, d->verdict[i].why);
            return;
        }
    kh_reply_text(c, 200, NULL, "");
    kh_json_out j = kh_json_out_init(&c->reply.body, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "model", d->by ? d->by->what.name : s->what.name);
    if (d->q.systemone)
        kh_json_open_object(&j, "answers");
    else
        kh_json_open_array(&j, "answers");
    for (int i = 0; i < d->q.n; i++)
        (d->q.systemone ? put_systemone : put_decision)(&j, &d->q.ask[i], &d->verdict[i]);
    kh_json_close(&j);
    put_usage(&j, d);
    if (record)
        kh_prediction_json(record, &(kh_prediction_view){ 0 }, &j, "keyhole");
    kh_json_close(&j);
    kh_buf_char(&c->reply.body, '\n');
}

/* ----------------------------------------------------------------------------------- answering */

/* The inputs of several requests in one question to the classifier. */
static int ask_tuned(kh_server *s, kh_tuned *by, kh_call **calls, int n, kh_err *err) {
    kh_posterior_info info = kh_posterior_describe(by->what.posterior);
    size_t k = (size_t)info.task->n_label, rows = (size_t)n;
    kh_row *row = kh_calloc(rows, sizeof *row);
    double *p = kh_calloc(rows * (2 * k + 3), sizeof *p);
    bool *in = kh_calloc(k, sizeof *in);
    int rc = row && p && in ? 0 : kh_fail_memory(err);
    for (int i = 0; i < n && rc == 0; i++)
        row[i] = ((const decide *)calls[i]->parsed)->row;
    kh_explained said = { p, p ? p + rows * k : NULL, p ? p + 2 * rows * k : NULL,
        p ? p + 2 * rows * k + rows : NULL, p ? p + 2 * rows * (k + 1) : NULL };
    if (rc == 0)
        rc = kh_predictor_explain(by->predictor, row, n, &said, err);
    for (int i = 0; i < n && rc == 0; i++) {
        decide *d = calls[i]->parsed;
        for (int a = 0; a < d->q.n; a++)
            if (isnan(p[(size_t)i * k]))
                d->verdict[a].why = "the service behind this classifier refused to answer";
            else if (!d->verdict[a].why)
                answer_by_labels(&d->q.ask[a], &d->verdict[a], p + (size_t)i * k);
        for (int a = 0; a < d->q.n && !by->probabilities; a++)
            d->verdict[a].p = NULL;
        kh_prediction record =
            kh_prediction_of(info.task, &row[i], &said, i, by->decides ? &by->decisions : NULL, in);
        put_reply(s, calls[i], &record);
    }
    if (rc == 0)
        atomic_fetch_add(&s->count.queries, (long long)n * info.samples);
    kh_free(row);
    kh_free(p);
    kh_free(in);
    return rc;
}

static int ask_untuned(kh_server *s, kh_call *c, kh_err *err) {
    decide *d = c->parsed;
    int rc = 0;
    for (int i = 0; i < d->q.n && rc == 0; i++)
        if (!d->verdict[i].why)
            rc = ask_model(s, d, &d->q.ask[i], &d->verdict[i], err);
    if (rc == 0)
        put_reply(s, c, NULL);
    atomic_fetch_add(&s->count.queries, rc == 0 ? d->q.n : 0);
    return rc;
}

static void run(kh_server *s, kh_call **calls, int n) {
    kh_tuned *by = ((const decide *)calls[0]->parsed)->by;
    kh_err err = { 0 };
    if (by && ask_tuned(s, by, calls, n, &err) == 0)
        return;
    for (int i = 0; i < n; i++) /* one of several may be the guilty one */
        if (by ? (n == 1 || ask_tuned(s, by, &calls[i], 1, &err) != 0)
               : ask_untuned(s, calls[i], &err) != 0)
            kh_reply_err(calls[i], &err);
}

static bool joins(const kh_call *a, const kh_call *b) {
    const decide *d = a->parsed, *e = b->parsed;
    return d->by && d->by == e->by;
}

static const kh_way DECIDE = { joins, run, free_decide, true };

/* Refuses what can be refused without a look at the text; how many questions are left, or < 0. */
static int consider(kh_server *s, decide *d, kh_err *err) {
    bool probabilities = d->by ? d->by->probabilities : s->scorer != NULL;
    int left = 0;
    d->verdict = kh_arena_array(&d->q.arena, (size_t)d->q.n, sizeof *d->verdict);
    if (!d->verdict)
        return kh_fail_memory(err);
    for (int i = 0; i < d->q.n; i++) {
        verdict *v = &d->verdict[i];
        int rc = d->by ? match(d, &d->q.ask[i], v, err) : 0;
        if (rc != 0)
            return rc;
        if (!v->why && !probabilities && d->q.ask[i].kind != KH_ASK_CHOICE)
            v->why = "there are labels here and no probabilities (access level labels); a choice "
                     "can be answered";
        if (!v->why && d->q.ask[i].n_option == 0)
            v->why = "a choice needs its options: this is a model without labels of its own";
        left += !v->why;
    }
    return left;
}

/* Paid for as it will be again when the box is asked; 0 without a count if there is a reply. */
static int count_tokens(kh_server *s, kh_call *c, decide *d, kh_err *err) {
    kh_plm *plm = d->by ? d->by->what.plm : s->what.plm;
    kh_ids ids = { 0 };
    if (!kh_guard_charge(s, c, kh_encode_cost(d->q.n_all)))
        return 0;
    int rc = kh_tokenizer_encode(
        kh_plm_tokenizer(plm), d->q.all, d->q.n_all, KH_ENCODE_PLAIN, &ids, err);
    d->tokens = ids.n;
    kh_ids_free(&ids);
    return rc;
}

static int prepare(kh_server *s, kh_call *c, decide *d, kh_err *err) {
    int rc = kh_asked_read(&d->q, c->body.data ? c->body.data : "", c->body.len, err);
    if (rc == 0 && s->n_tuned > 0 && !(d->by = kh_tuned_find(s, c, d->q.model)))
        return 0;
    if (rc == 0)
        rc = count_tokens(s, c, d, err);
    if (rc != 0 || c->reply.status != 0)
        return rc;
    bool own = d->by || d->q.b;
    d->row = (kh_row){ .a = own ? d->q.a : d->q.all,
        .n_a = own ? d->q.n_a : d->q.n_all,
        .b = d->q.b,
        .n_b = d->q.n_b,
        .label = -1 };
    int left = consider(s, d, err);
    if (left == 0) /* nothing to ask the model about */
        put_reply(s, c, NULL);
    int samples = d->by ? kh_posterior_describe(d->by->what.posterior).samples : d->q.n;
    c->cost = (long long)samples * s->limits.max_len;
    c->queries = samples;
    c->bound = 4096 + 4 * c->body.len;
    return left < 0 ? left : 0;
}

static void post(kh_server *s, kh_call *c, bool systemone) {
    kh_err err = { 0 };
    decide *d = kh_calloc(1, sizeof *d);
    if (!d) {
        kh_reply_fail(c, 503, "out of memory");
        return;
    }
    d->q.systemone = systemone;
    c->parsed = d;
    c->way = &DECIDE;
    int rc = prepare(s, c, d, &err);
    if (rc != 0 && systemone && (rc == KH_EFORMAT || rc == KH_EARG))
        kh_reply_fail(c, 422, "%s", err.msg);
    else if (rc != 0)
        kh_reply_err(c, &err);
}

void kh_post_decisions(kh_server *s, kh_call *c) { post(s, c, false); }
void kh_post_systemone(kh_server *s, kh_call *c) { post(s, c, true); }
