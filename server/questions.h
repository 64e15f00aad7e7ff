/* questions.h - closed questions about one input, as two formats write them: POST /v1/decisions and
 * POST /v1/systemone. Reading makes one thing of both; doc/serving.md has the formats.
 *
 *     kh_asked q = { .systemone = false };
 *     if (kh_asked_read(&q, body, n, err) == 0) ...       q.ask[0 .. q.n)
 *     kh_asked_free(&q);                                  failed ones too
 */
#ifndef KH_SERVER_QUESTIONS_H
#define KH_SERVER_QUESTIONS_H

#include "base/arena.h"
#include "base/json.h"
#include "keyhole.h"

enum {
    KH_ASKED_MOST = 400,   /* questions of a request */
    KH_OPTIONS_MOST = 255, /* choices, or levels, of a question */
};

typedef enum kh_ask_kind { KH_ASK_PREDICATE, KH_ASK_CHOICE, KH_ASK_SCORE } kh_ask_kind;

typedef struct kh_ask_option {
    const char *name;        /* what a choice is called, or a level says; "true" of a boolean */
    bool boolean;            /* the value is true or false and not the word */
    const char *description; /* "": none */
    const json_t *legend;    /* systemone: the description as it was given */
} kh_ask_option;

typedef struct kh_ask {
    kh_ask_kind kind;
    const char *name;      /* NULL: unnamed */
    const char *text;      /* the instructions; "": none */
    kh_ask_option *option; /* of a predicate two: true, false */
    int n_option;          /* 0: a choice that leaves its options to us */
} kh_ask;

typedef struct kh_asked {
    bool systemone;    /* the format; the caller says so */
    const char *model; /* the name asked for, or NULL */
    const char *a, *b; /* the text; b NULL unless the input is an object with text_a and text_b */
    const char *all;   /* the text with what developers and systems said */
    size_t n_a, n_b, n_all; /* their lengths: they may hold NUL bytes */
    kh_ask *ask;
    int n;
    json_t *root;
    kh_arena arena; /* holds what is not in root */
} kh_asked;

int kh_asked_read(kh_asked *, const char *body, size_t n, kh_err *err);
void kh_asked_free(kh_asked *);

#endif
