/* decision_service.c - boxes that answer closed questions: POST /v1/decisions and POST
 * /v1/systemone, a text in, a probability for every option out.
 *
 * They read text and know no tokens, so the box has a tokenizer of bytes: it cuts and hashes rows
 * as all methods want it, and costs nothing. What is sent is the row's own text as the input, and
 * one choice question: the template of the task as its instructions, the label words as its
 * options. The probability of a label is the sum over its words. keyhole's own server takes the
 * template for what it is and scores the words in place of the mask: the answers are those of the
 * model beside it, to the last bit wherever a probability survives its way through text.
 *
 * A request has one input, and questions of several prompts about it go together: a row costs one
 * input and as many questions as there are prompts.
 *
 * A service is a stranger: answers must be as many as questions, under their names, with every
 * option once and probabilities that are some. A refusal is an answer that is missing: it is asked
 * for again, alone, and then the row is named and left out, unless nothing else was ever answered.
 * Zeros, which services that round send, have no logarithm: they count as FLOOR, and that is said.
 * Answers are recorded one by one as they come (kh_row_watch), since each may have been paid for.
 */
#include "plm/services.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/hooks.h"
#include "base/json.h"
#include "base/json_out.h"
#include "base/map.h"
#include "model/question.h"
#include "text/bytelevel.h"
#include "text/tokenizer.h"

#include <math.h>
#include <string.h>
#include <strings.h>

enum {
    MAX_LEN = 1 << 20, /* bytes of a row: the service cuts what is too long for it */
    ANSWER_MAX = 1 << 22,
    MASK = 256,              /* the id after those of the bytes */
    TEMPLATES_MAX = 1 << 18, /* bytes of the templates in one request, unless one alone has more */
    REFUSALS_MAX = 8, /* rows refused before any answer: this service will not answer at all */
};

static const double FLOOR = 1e-6; /* what a probability of 0 counts as */

typedef struct service {
    bool systemone;
    kh_http *http;
    const kh_hooks *hooks;
    char *model;
    bool told_zero;
    bool answered; /* anything at all, ever */
} service;

static const char *name_of(const service *s) { return s->systemone ? "systemone" : "decisions"; }

/* -------------------------------------------------------------------------- a tokenizer of bytes
 */

/* tokenizer.json of a byte-level BPE without merges. */
static void put_tokenizer(kh_buf *b) {
    kh_buf_text(b,
        "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":256,"
        "\"content\":\"<mask>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
        "\"normalized\":false,\"special\":true}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":"
        "\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
        "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
        "\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"dropout\":null,"
        "\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
        "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\"merges\":[],"
        "\"vocab\":{");
    for (int i = 0; i < 256; i++) {
        uint32_t c = kh_byte_char((uint8_t)i);
        char utf8[2] = { (char)c, 0 };
        if (c >= 0x80) {
            utf8[0] = (char)(0xC0 | c >> 6);
            utf8[1] = (char)(0x80 | (c & 0x3F));
        }
        kh_buf_text(b, i ? "," : "");
        kh_json_quote(b, utf8, c >= 0x80 ? 2 : 1);
        kh_buf_printf(b, ":%d", i);
    }
    kh_buf_printf(b, ",\"<mask>\":%d}}}", MASK);
}

static int open_tokenizer(kh_tokenizer **out, kh_err *err) {
    kh_tokenizer_files f = { 0 };
    kh_tokenizer_file *main = &f.file[KH_FILE_MAIN];
    int rc = 0;
    for (int i = 0; i < KH_N_TOKENIZER_FILE && rc == 0; i++)
        if (!(f.file[i].path = kh_strdup(i == KH_FILE_MAIN ? "tokenizer.json" : "none")))
            rc = kh_fail_memory(err);
    main->bytes = kh_buf_init(1 << 16);
    main->there = true;
    put_tokenizer(&main->bytes);
    if (rc == 0 && kh_buf_failed(&main->bytes))
        rc = kh_fail_memory(err);
    if (rc == 0)
        rc = kh_tokenizer_from_files(out, &f, err);
    kh_tokenizer_files_free(&f);
    return rc;
}

/* ------------------------------------------------------------------------------------ requests */

/* One request: a row with some of the questions. */
typedef struct job {
    int row, first, n; /* questions first .. first + n - 1, as far as they are OPEN */
} job;

/* What is known of the answer to a question about a row: nothing; all, and the watch was told;
 * that there is none, which is told when anything else was answered. */
typedef enum progress { OPEN, TOLD, MISSING } progress;

typedef struct asking {
    service *s;
    const kh_shared *shared;
    const kh_question *q; /* the one that a request is being made, or an answer read, for */
    job *job;             /* [n_job] */
    int n_job;
    unsigned char *state; /* [questions, rows] */
    double *word;         /* [label words] of one answer */
    int n_row, refused;   /* rows in all; those that were given up */
} asking;

static unsigned char *state_of(const asking *a, int question, int row) {
    return &a->state[(size_t)question * (size_t)a->n_row + (size_t)row];
}

static const kh_row *row_of(const kh_question *q, int i) {
    return &q->batch->given[q->batch->row[i]];
}

/* What the k-th question of a request is called. */
static const char *question_name(int k, char name[16]) {
    snprintf(name, 16, k > 0 ? "q%d" : "q", k + 1);
    return name;
}

static void put_pair(kh_json_out *j, const char *key, const kh_row *row) {
    kh_json_open_object(j, key);
    kh_json_put_text(j, "text_a", row->a, row->n_a);
    kh_json_put_text(j, "text_b", row->b, row->n_b);
    kh_json_close(j);
}

static void put_input(kh_json_out *j, const asking *a, const kh_row *row) {
    const char *key = a->s->systemone ? "state" : "input";
    if (!row->b) {
        kh_json_put_text(j, key, row->a, row->n_a);
    } else if (a->s->systemone) {
        put_pair(j, key, row);
    } else {
        kh_json_open_array(j, key);
        kh_json_open_object(j, NULL);
        kh_json_put_string(j, "role", "user");
        kh_json_open_array(j, "content");
        kh_json_open_object(j, NULL);
        kh_json_put_string(j, "type", "input_json");
        put_pair(j, "data", row);
        kh_json_close(j);
        kh_json_close(j);
        kh_json_close(j);
        kh_json_close(j);
    }
}

/* A word is described by the name of its label, if that says more. */
static const char *description(const asking *a, int word) {
    const kh_word *w = &a->q->words->word[word];
    const char *name = a->q->batch->task->label[w->label].name;
    return strcasecmp(name, w->text) == 0 ? NULL : name;
}

static void put_options(kh_json_out *j, const asking *a) {
    const kh_words *w = a->q->words;
    if (a->s->systemone) {
        kh_json_open_object(j, "criteria");
        for (int i = 0; i < w->n_word; i++)
            kh_json_put_string(j, w->word[i].text, description(a, i));
    } else {
        kh_json_open_array(j, "choices");
        for (int i = 0; i < w->n_word; i++) {
            kh_json_open_object(j, NULL);
            kh_json_put_string(j, "value", w->word[i].text);
            if (description(a, i))
                kh_json_put_string(j, "description", description(a, i));
            kh_json_close(j);
        }
    }
    kh_json_close(j);
}

/* The first line is for services that know no templates; doc/serving.md. */
static void put_instructions(kh_json_out *j, const asking *a, kh_buf *scratch) {
    kh_buf_printf(scratch, "Which option fits best at {mask}, where %s the input?\n%s",
        a->q->batch->task->pair ? "{text_a} and {text_b} are the texts of" : "{text} is",
        a->q->batch->task->plain);
    if (kh_buf_failed(scratch))
        j->out->failed = true;
    else
        kh_json_put_text(j, "instructions", scratch->data, scratch->len);
}

static void put_question(kh_json_out *j, const asking *a, const char *name) {
    kh_buf text = kh_buf_init(KH_BUF_MAX);
    kh_json_open_object(j, a->s->systemone ? name : NULL);
    if (!a->s->systemone)
        kh_json_put_string(j, "name", name);
    kh_json_put_string(j, "type", "choice");
    put_instructions(j, a, &text);
    put_options(j, a);
    kh_json_close(j);
    kh_buf_free(&text);
}

static int make_request(void *user, int i, const char **path, kh_buf *body, kh_err *err) {
    asking *a = user;
    const job *j = &a->job[i];
    kh_json_out out = kh_json_out_init(body, KH_JSON_COMPACT);
    char name[16];
    int asked = 0;
    (void)err;
    *path = a->s->systemone ? "/v1/systemone" : "/v1/decisions";
    kh_json_open_object(&out, NULL);
    kh_json_put_string(&out, "model", a->s->model);
    put_input(&out, a, row_of(a->shared->q, j->row));
    if (a->s->systemone)
        kh_json_open_object(&out, "questions");
    else
        kh_json_open_array(&out, "questions");
    for (int k = j->first; k < j->first + j->n; k++)
        if (*state_of(a, k, j->row) == OPEN) {
            a->q = &a->shared->q[k];
            put_question(&out, a, question_name(asked++, name));
        }
    kh_json_close(&out);
    kh_json_close(&out);
    return 0;
}

/* ------------------------------------------------------------------------------------- answers */

/* Where a row stands, for sentences: the line of its file and how it begins. */
static void place_of(const asking *a, int i, char *out, size_t cap) {
    const kh_row *row = row_of(a->shared->q, i);
    int n = row->n_a < 40 ? (int)row->n_a : 40;
    while (n > 0 && n < (int)row->n_a && ((unsigned char)row->a[n] & 0xC0) == 0x80)
        n--;
    if (row->line > 0)
        snprintf(out, cap, "the row at line %ld (\"%.*s%s\")", row->line, n, row->a,
            n < (int)row->n_a ? "..." : "");
    else
        snprintf(out, cap, "the row \"%.*s%s\"", n, row->a, n < (int)row->n_a ? "..." : "");
}

static int complain(const asking *a, int i, int code, kh_err *err, const char *what) {
    char place[160];
    place_of(a, i, place, sizeof place);
    return kh_fail(err, code, "%s: %s %s", kh_http_url(a->s->http), what, place);
}

/* The word that an option of the answer is, or -1. */
static int find_word(const kh_words *w, const char *value) {
    for (int i = 0; value && i < w->n_word; i++)
        if (strcmp(w->word[i].text, value) == 0)
            return i;
    return -1;
}

/* One probability. NULL, or what is wrong. */
static const char *note(const asking *a, const char *value, const json_t *p, double *word) {
    int i = find_word(a->q->words, value);
    if (i < 0)
        return "named an option that was not asked for, in its answer about";
    if (!isnan(word[i]))
        return "gave an option two probabilities, in its answer about";
    word[i] = json_is_number(p) ? json_number_value(p) : NAN;
    return word[i] >= 0 && word[i] <= 1 + 1e-6
        ? NULL
        : "gave a probability that is not between 0 and 1, in its answer about";
}

static const char *read_probabilities(const asking *a, const json_t *list, double *word) {
    const json_t *one;
    json_t *object = (json_t *)(uintptr_t)list, *p;
    const char *value, *wrong = NULL;
    size_t i;
    double sum = 0;
    int n = a->q->words->n_word;
    for (int k = 0; k < n; k++)
        word[k] = NAN;
    if (json_array_size(list) + json_object_size(list) == 0)
        return "sent no probabilities (--access labels does without) in its answer about";
    json_array_foreach(list, i, one) if (!wrong) wrong =
        note(a, json_string_value(json_object_get(one, "value")),
            json_object_get(one, "probability"), word);
    json_object_foreach(object, value, p) if (!wrong) wrong = note(a, value, p, word);
    for (int k = 0; k < n && !wrong; k++) {
        if (isnan(word[k]))
            wrong = "left an option without a probability, in its answer about";
        sum += word[k];
    }
    /* Services round; 5e-3 an option is two digits. */
    if (!wrong && !(fabs(sum - 1) <= 0.02 + 5e-3 * n))
        wrong = "sent probabilities that do not add up to 1, in its answer about";
    return wrong;
}

/* Log-probabilities of the labels, normalised. */
static void place_logprobs(const asking *a, const double *word, float *out) {
    const kh_words *w = a->q->words;
    double total = 0;
    bool zero = false;
    for (int pass = 0; pass < 2; pass++)
        for (int k = 0, i = 0; k < w->n_label; k++) {
            double p = 0;
            for (; i < w->n_word && w->word[i].label == k; i++)
                p += word[i];
            zero |= p < FLOOR * 1e-6;
            p = p < FLOOR * 1e-6 ? FLOOR : p;
            if (pass == 0)
                total += p;
            else /* a sum that is one but for the last bits is left as it is: floats come back */
                out[k] = (float)(fabs(total - 1) < 1e-6 ? log(p) : log(p / total));
        }
    if (zero && !a->s->told_zero)
        kh_log(a->s->hooks, KH_WARN,
            "%s: some of its probabilities are 0; they count as %g from here on",
            kh_http_url(a->s->http), FLOOR);
    a->s->told_zero |= zero;
}

/* The label that was chosen, or what is wrong. */
static const char *place_label(const asking *a, const json_t *answer, int *label) {
    int word = find_word(a->q->words, json_string_value(json_object_get(answer, "choice")));
    if (word < 0)
        return "chose an option that was not asked for, in its answer about";
    *label = a->q->words->word[word].label;
    return NULL;
}

/* The answer to the k-th question of a request; NULL: *wrong says why there is none. */
static const json_t *find_answer(
    const asking *a, const json_t *answers, int k, const char **wrong) {
    char asked[16];
    bool object = a->s->systemone;
    const char *name = question_name(k, asked);
    const json_t *one =
        object ? json_object_get(answers, name) : json_array_get(answers, (size_t)k);
    const json_t *said = json_object_get(one, "name");
    bool named = object || !said || json_is_null(said) ||
        (json_is_string(said) && strcmp(json_string_value(said), name) == 0);
    *wrong =
        json_is_object(one) && named ? NULL : "sent an answer under another question's name about";
    return *wrong ? NULL : one;
}

/* One answer into its place. *refused: there is none. NULL, or what is wrong. */
static const char *place_answer(const asking *a, const json_t *answer, size_t pair, bool *refused) {
    const kh_cells *out = &a->shared->out;
    const char *type = json_string_value(json_object_get(answer, "type"));
    *refused = type && strcmp(type, "refusal") == 0;
    if (*refused)
        return NULL;
    if (!type || strcmp(type, "choice") != 0)
        return "sent an answer that is no choice about";
    if (out->label)
        return place_label(a, answer, &out->label[pair]);
    const char *wrong = read_probabilities(a, json_object_get(answer, "probabilities"), a->word);
    if (!wrong)
        place_logprobs(a, a->word, out->logprob + pair * (size_t)a->q->words->n_label);
    return wrong;
}

static int tell(const asking *a, int question, int row, kh_err *err) {
    const kh_row_watch *w = &a->shared->watch;
    *state_of(a, question, row) = TOLD;
    return w->done ? w->done(w->user, question, row, err) : 0;
}

/* Every answer that is one is kept, whatever its neighbours are. */
static int take_answers(asking *a, const job *j, const json_t *answers, kh_err *err) {
    const char *wrong = NULL;
    bool refused = false;
    int asked = 0, rc = 0;
    for (int k = j->first; k < j->first + j->n && rc == 0; k++) {
        const char *amiss;
        bool none = false;
        if (*state_of(a, k, j->row) != OPEN)
            continue;
        a->q = &a->shared->q[k];
        const json_t *one = find_answer(a, answers, asked++, &amiss);
        if (!amiss)
            amiss = place_answer(a, one, (size_t)k * (size_t)a->n_row + (size_t)j->row, &none);
        if (!amiss && !none)
            rc = tell(a, k, j->row, err);
        a->s->answered |= !amiss && !none;
        refused |= none;
        wrong = wrong ? wrong : amiss;
    }
    if (rc == 0 && wrong)
        rc = complain(a, j->row, KH_EFORMAT, err, wrong);
    if (rc == 0 && refused)
        rc = complain(a, j->row, KH_RETRY, err, "refused to answer about");
    return rc;
}

static int take_answer(void *user, int i, const char *body, size_t n, kh_err *err) {
    asking *a = user;
    const job *j = &a->job[i];
    bool object = a->s->systemone;
    json_t *root;
    size_t open = 0;
    for (int k = j->first; k < j->first + j->n; k++)
        open += *state_of(a, k, j->row) == OPEN;
    int rc = kh_json_parse(body, n, kh_http_url(a->s->http), &root, err);
    if (rc != 0)
        return rc;
    const json_t *answers = json_object_get(root, "answers");
    if (object ? !json_is_object(answers) : !json_is_array(answers))
        rc = complain(a, j->row, KH_EFORMAT, err, "sent no \"answers\" about");
    else if ((object ? json_object_size(answers) : json_array_size(answers)) != open)
        rc = complain(a, j->row, KH_EFORMAT, err,
            "sent another number of answers than there were questions about");
    else
        rc = take_answers(a, j, answers, err);
    json_decref(root);
    return rc;
}

/* The row stays without some of its answers. */
static int give_up(void *user, int i, int tries, const kh_err *why, kh_err *err) {
    asking *a = user;
    const job *j = &a->job[i];
    const kh_cells *out = &a->shared->out;
    int n_label = a->shared->q->words->n_label, rc = 0;
    if (!a->s->answered && ++a->refused >= REFUSALS_MAX)
        return kh_fail(
            err, KH_EIO, "%s, in %d tries, like every other row so far", why->msg, tries);
    kh_log(a->s->hooks, KH_WARN, "%s, in %d tries; the row is left out", why->msg, tries);
    for (int k = j->first; k < j->first + j->n && rc == 0; k++) {
        size_t pair = (size_t)k * (size_t)a->n_row + (size_t)j->row;
        if (*state_of(a, k, j->row) != OPEN)
            continue;
        *state_of(a, k, j->row) = MISSING;
        if (out->label)
            out->label[pair] = -1;
        for (int c = 0; out->logprob && c < n_label; c++)
            out->logprob[pair * (size_t)n_label + (size_t)c] = NAN;
        if (a->s->answered)
            rc = tell(a, k, j->row, err);
    }
    return rc;
}

/* -------------------------------------------------------------------------------------- asking */

/* How many questions go into a request: KH_SHARED_MOST, or fewer if their templates are long. */
static int questions_a_request(const kh_shared *x) {
    size_t longest = 1;
    for (int k = 0; k < x->n; k++) {
        size_t n = strlen(x->q[k].batch->task->plain);
        longest = n > longest ? n : longest;
    }
    size_t most = TEMPLATES_MAX / longest;
    if (most > KH_SHARED_MOST)
        return KH_SHARED_MOST;
    return most > 0 ? (int)most : 1;
}

/* The requests that are to be made: no row without an open question. */
static void list_jobs(asking *a) {
    int each = questions_a_request(a->shared), n = a->shared->n;
    for (int row = a->shared->first; row < a->shared->end; row++)
        for (int first = 0; first < n; first += each) {
            job j = { row, first, n - first < each ? n - first : each };
            bool any = false;
            for (int k = first; k < first + j.n; k++)
                any |= *state_of(a, k, row) == OPEN;
            if (any)
                a->job[a->n_job++] = j;
        }
}

/* Refusals that came before the first answer. A service that answers nothing at all leaves none of
 * them behind as if it were an answer. */
static int tell_missing(const asking *a, kh_err *err) {
    int rc = 0;
    for (int k = 0; k < a->shared->n; k++)
        for (int row = 0; row < a->n_row && rc == 0; row++)
            if (*state_of(a, k, row) == MISSING) {
                if (!a->s->answered)
                    return complain(a, row, KH_EIO, err, "answered nothing, and refused even");
                rc = tell(a, k, row, err);
            }
    return rc;
}

static int check(const service *s, const kh_shared *x, kh_err *err) {
    for (int k = 0; k < x->n; k++) {
        const kh_batch *b = x->q[k].batch;
        if (b->n_slot > 0)
            return kh_fail(err, KH_EUNSUPPORTED,
                "a service of the kind \"%s\" takes texts and no soft prompts; methods manual and "
                "icl do without",
                name_of(s));
        if (!b->given || !b->task)
            return kh_fail(err, KH_EUNSUPPORTED,
                "a service of the kind \"%s\" takes texts, and these rows are tokens only",
                name_of(s));
    }
    return 0;
}

static int share(void *self, const kh_shared *x, kh_err *err) {
    service *s = self;
    asking a = { .s = s, .shared = x, .n_row = x->q->batch->n_row };
    size_t pairs = (size_t)x->n * (size_t)a.n_row, words = 1;
    int rc = check(s, x, err);
    if (rc != 0)
        return rc;
    for (int k = 0; k < x->n; k++)
        words = (size_t)x->q[k].words->n_word > words ? (size_t)x->q[k].words->n_word : words;
    a.state = kh_calloc(pairs + 1, 1);
    a.job = kh_calloc(pairs + 1, sizeof *a.job);
    a.word = kh_malloc(words * sizeof *a.word);
    if (!a.state || !a.job || !a.word)
        rc = kh_fail_memory(err);
    for (size_t i = 0; i < pairs && rc == 0 && x->known; i++)
        if (x->known[i]) {
            a.state[i] = TOLD;
            s->answered = true;
        }
    if (rc == 0) {
        list_jobs(&a);
        rc = kh_http_run(s->http,
            &(kh_http_jobs){ a.n_job, make_request, take_answer, &a, ANSWER_MAX, give_up }, err);
    }
    if (rc == 0)
        rc = tell_missing(&a, err);
    kh_free(a.state);
    kh_free(a.job);
    kh_free(a.word);
    return rc;
}

static int ask(service *s, const kh_question *q, const kh_cells *out, kh_err *err) {
    return share(s, &(kh_shared){ .q = q, .n = 1, .out = *out, .end = q->batch->n_row }, err);
}

static int score(void *self, const kh_question *q, float *logprob, float *energy, kh_err *err) {
    (void)energy;
    return ask(self, q, &(kh_cells){ .logprob = logprob }, err);
}

static int answer(void *self, const kh_question *q, int *label, kh_err *err) {
    return ask(self, q, &(kh_cells){ .label = label }, err);
}

static void describe(const void *self, kh_plm_info *info) {
    const service *s = self;
    info->backend = name_of(s);
    info->hidden = 1;
    info->max_len = MAX_LEN;
    info->fingerprint = kh_hash64(s->model, strlen(s->model));
    info->precision = info->kernels = "the service's own";
    info->model = s->model;
}

static int no_embeddings(void *self, double *mean, double *std, kh_err *err) {
    (void)mean, (void)std;
    return kh_fail(err, KH_EUNSUPPORTED,
        "a service of the kind \"%s\" takes texts and no soft prompts; methods manual and icl do "
        "without",
        name_of(self));
}

static int no_embedding(void *self, int32_t id, float *row, kh_err *err) {
    double mean, std;
    (void)id, (void)row;
    return no_embeddings(self, &mean, &std, err);
}

static void close_service(void *self) {
    service *s = self;
    if (!s)
        return;
    kh_http_close(s->http);
    kh_free(s->model);
    kh_free(s);
}

static const kh_backend DECISIONS = { .name = "decisions",
    .score = score,
    .normalised = true,
    .bytes_a_token = 4, /* of English text, as byte-pair encodings have it */
    .answer = answer,
    .share = share,
    .describe = describe,
    .embedding_stats = no_embeddings,
    .embedding_row = no_embedding,
    .close = close_service };

/* ------------------------------------------------------------------------------------- opening */

/* The model's name: the one given, or the first that the service lists in either way. */
static int find_model(service *s, const char *given, kh_err *err) {
    kh_buf text = kh_buf_init(0);
    json_t *root = NULL;
    const char *name = given;
    int rc = given ? 0 : kh_http_ask(s->http, "/v1/models", NULL, ANSWER_MAX, &text, err);
    if (rc == 0 && !given) {
        rc = kh_json_parse(text.data, text.len, kh_http_url(s->http), &root, err);
        name = json_string_value(
            json_object_get(json_array_get(json_object_get(root, "data"), 0), "id"));
        if (!name)
            name = json_string_value(
                json_object_get(json_array_get(json_object_get(root, "models"), 0), "name"));
        if (rc == 0 && !name)
            rc = kh_fail(err, KH_EFORMAT, "%s: lists no model; --model-name gives its name",
                kh_http_url(s->http));
    }
    if (rc == 0 && !(s->model = kh_strdup(name)))
        rc = kh_fail_memory(err);
    json_decref(root);
    kh_buf_free(&text);
    return rc;
}

/* Nothing is asked that costs: whether probabilities come shows in the first answer. */
static int open_service(
    kh_service *out, bool systemone, kh_http *http, const kh_http_opts *o, kh_err *err) {
    service *s = kh_calloc(1, sizeof *s);
    if (!s) {
        kh_http_close(http);
        return kh_fail_memory(err);
    }
    *s = (service){ .systemone = systemone, .http = http, .hooks = kh_http_hooks(http) };
    int rc = open_tokenizer(&out->tokenizer, err);
    if (rc == 0)
        rc = find_model(s, o->model, err);
    if (rc != 0) {
        close_service(s);
        return rc;
    }
    out->access = KH_ACCESS_LOGPROBS;
    out->backend = &DECISIONS;
    out->self = s;
    return 0;
}

int kh_decisions_service(kh_service *out, kh_http *http, const kh_http_opts *o, kh_err *err) {
    return open_service(out, false, http, o, err);
}
int kh_systemone_service(kh_service *out, kh_http *http, const kh_http_opts *o, kh_err *err) {
    return open_service(out, true, http, o, err);
}
