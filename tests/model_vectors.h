/* model_vectors.h - reads the expected.txt files of tests/vectors (tools/make_model_vectors.py says
 * what is in them), so that every forward pass can be held against the same numbers. */
#ifndef KH_TEST_MODEL_VECTORS_H
#define KH_TEST_MODEL_VECTORS_H

#include "test.h"

#include "model/model.h"

#include <math.h>

static inline kh_model *open_model(const char *dir) {
    kh_model *m;
    kh_err err;
    if (kh_model_open(&m, dir, NULL, &err) != 0)
        fail_msg("%s", err.msg);
    return m;
}

typedef struct vector_case {
    char name[128];
    kh_inject inject;
    int32_t *id;
    int n_id;
    float *prompt; /* [n_prompt, H] */
    int n_prompt;
    double *hidden; /* [layers, tokens, width], layers = L + 1; NULL: not recorded */
    int layers, tokens, width;
    int at[4];         /* places with logits */
    double *logits[4]; /* [n_vocab] */
    int n_at, n_vocab;
    int top_at; /* the other form: a place and its best tokens */
    int32_t top_id[32];
    double top_logit[32];
    int n_top;
} vector_case;

/* All numbers of the line from `text` on; *n becomes how many. */
static inline double *vector_numbers(char *text, int *n) {
    size_t cap = strlen(text) / 2 + 2;
    double *x = malloc(cap * sizeof *x);
    assert_non_null(x);
    char *end;
    for (*n = 0;; text = end) {
        double value = strtod(text, &end);
        if (end == text)
            return x;
        x[(*n)++] = value;
    }
}

static inline void vector_line(vector_case *c, char *line) {
    char *rest = line + strcspn(line, " ");
    if (*rest)
        *rest++ = '\0';
    if (strcmp(line, "case") == 0)
        snprintf(c->name, sizeof c->name, "%s", rest);
    if (strcmp(line, "inject") == 0)
        assert_int_equal(kh_inject_find(&c->inject, rest, NULL), 0);
    if (strcmp(line, "case") == 0 || strcmp(line, "inject") == 0)
        return;
    int n;
    double *x = vector_numbers(rest, &n);
    if (strcmp(line, "ids") == 0) {
        c->id = malloc((size_t)n * sizeof *c->id);
        c->n_id = n;
        for (int i = 0; i < n; i++)
            c->id[i] = (int32_t)x[i];
    } else if (strcmp(line, "prompt") == 0) {
        c->n_prompt = (int)x[0];
        c->prompt = malloc((size_t)n * sizeof *c->prompt);
        for (int i = 1; i < n; i++)
            c->prompt[i - 1] = (float)x[i];
    } else if (strcmp(line, "hidden") == 0) {
        c->layers = (int)x[0], c->tokens = (int)x[1], c->width = (int)x[2];
        assert_int_equal(n - 3, c->layers * c->tokens * c->width);
        memmove(x, x + 3, (size_t)(n - 3) * sizeof *x);
        c->hidden = x;
        return;
    } else if (strcmp(line, "logits") == 0) {
        c->at[c->n_at] = (int)x[0];
        c->n_vocab = n - 1;
        memmove(x, x + 1, (size_t)(n - 1) * sizeof *x);
        c->logits[c->n_at++] = x;
        return;
    } else if (strcmp(line, "top") == 0) {
        c->top_at = (int)x[0];
        c->n_top = n / 2;
        for (int i = 0; i < c->n_top; i++)
            c->top_id[i] = (int32_t)x[2 * i + 1], c->top_logit[i] = x[2 * i + 2];
    } else
        fail_msg("expected.txt: unknown key \"%s\"", line);
    free(x);
}

/* The next case of the file, or false at its end. */
static inline bool vector_next(FILE *f, vector_case *c) {
    *c = (vector_case){ 0 };
    char *line = NULL;
    size_t cap = 0;
    bool ended = false;
    while (!ended && getline(&line, &cap, f) > 0) {
        line[strcspn(line, "\n")] = '\0';
        ended = strcmp(line, "end") == 0;
        if (!ended)
            vector_line(c, line);
    }
    free(line);
    return ended;
}

static inline void vector_free(vector_case *c) {
    free(c->id);
    free(c->prompt);
    free(c->hidden);
    for (int i = 0; i < c->n_at; i++)
        free(c->logits[i]);
}

/* The largest difference, relative to the largest number expected. */
static inline double vector_error(const float *have, const double *want, size_t n) {
    double worst = 0, scale = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)have[i] - want[i]);
        worst = d > worst || isnan(d) ? d : worst;
        scale = fabs(want[i]) > scale ? fabs(want[i]) : scale;
    }
    return isnan(worst) ? INFINITY : worst / scale;
}

/* The largest difference. */
static inline double vector_difference(const float *have, const double *want, size_t n) {
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)have[i] - want[i]);
        worst = d > worst || isnan(d) ? d : worst;
    }
    return isnan(worst) ? INFINITY : worst;
}

#endif
