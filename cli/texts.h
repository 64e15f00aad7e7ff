/* texts.h - the texts that a command works on: its arguments, or the lines of standard input. */
#ifndef KH_CLI_TEXTS_H
#define KH_CLI_TEXTS_H

#include "cli.h"

typedef struct cli_texts {
    char **args; /* with n_args > 0: these; otherwise standard input */
    int n_args;
    bool json; /* each line is a JSON string */
    int next;
    long line; /* of standard input, from 1; 0 for arguments */
    kh_buf buffer, decoded;
} cli_texts;

/* The next text in *text, which lives until the call after. Returns 1, or 0 when there is no more,
 * or < 0. */
int cli_texts_next(cli_texts *, const char **text, size_t *n, kh_err *err);
void cli_texts_free(cli_texts *);
/* Puts "standard input: line N: " in front of a message that is about the current text. Returns the
 * error's code. */
int cli_texts_fail(const cli_texts *, kh_err *err);

/* Texts that are asked about together: the engine is faster with many. */
typedef struct cli_chunk {
    int n;
    kh_buf bytes;     /* of the texts, one after the other */
    size_t *text;     /* [n + 1]: where each begins in bytes */
    kh_ids ids;       /* of all of them */
    kh_batch batch;   /* they as sequences */
    size_t *start;    /* [n + 1], of the batch */
    int *mask, *slot; /* [n]: places that the batch must have */
    size_t text_cap, start_cap, mask_cap, slot_cap;
} cli_chunk;

/* What a command does with its texts. */
typedef struct cli_asker {
    /* Appends the ids of a text and checks them. Returns > 0 if what was taken so far is enough for
     * one chunk. */
    int (*encode)(void *user, const char *text, size_t n, kh_ids *ids, kh_err *err);
    /* Prints the answers about a chunk. */
    int (*answer)(void *user, const cli_chunk *, kh_err *err);
    void *user;
} cli_asker;

/* Row of an option table: how many texts are asked about together. */
#define CLI_BATCH_OPTION(opts, field) \
    { \
        "batch", KH_OPT_INT, offsetof(opts, field), "32", \
            .min = 1, .max = 4096, .arg = "N", \
            .help = "texts computed together; with 1, each line is answered at once. The answers " \
                    "are the same" \
    }

/* Asks about all texts, at most `most` at a time, in their order; answers about what came before a
 * bad text are given. */
int cli_texts_ask(cli_texts *, const cli_asker *, int most, kh_err *err);

/* The `top` largest of log-probabilities, largest first, smaller ids first among equals. */
void cli_best_tokens(const float *logprob, int vocab, int32_t *best, int top);
/* One of them, as an object of json, or as a line of out if that is NULL. */
int cli_put_token(kh_buf *out, kh_json_out *json, const kh_tokenizer *, int rank, int32_t id,
    double logprob, kh_err *err);

#endif
