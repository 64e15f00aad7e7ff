/* keyhole.h - a distribution over soft prompts for a frozen language model, and the classifier made of it.
 *
 * This header is the manual of libkeyhole. It follows the flow of the data: text becomes ids, rows become encoded
 * batches, a model answers questions about them.
 *
 * Conventions, everywhere
 *   - Fallible calls return int: 0 done; > 0 recoverable, or more to come; < 0 failed. The last parameter, kh_err *err
 *     (NULL is allowed), then holds a code and one full sentence for a person.
 *   - open/close own OS resources, new/free own memory, init fills the caller's struct. close and free accept NULL.
 *   - The library never prints, never exits, and touches no file that it was not asked to touch.
 *   - Text is UTF-8 with a length; it may hold NUL bytes. Invalid bytes become U+FFFD as Python's errors="replace" does.
 *   - Nothing here is random unless a seed is an argument; the same seed gives the same bits.
 */
#ifndef KEYHOLE_H
#define KEYHOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define KH_API __attribute__((visibility("default")))
#else
#define KH_API
#endif

#define KH_VERSION "0.1.0"

/* The version of the library that is linked, which may differ from the header's. */
KH_API const char *kh_version(void);

/* ------------------------------------------------------------------------------------------------ errors */

/* name, value, meaning */
#define KH_CODES(X) \
    X(KH_OK, 0, "done") \
    X(KH_RETRY, 1, "may succeed later") \
    X(KH_STOPPED, 2, "stopped on request") \
    X(KH_ENOMEM, -1, "out of memory") \
    X(KH_EIO, -2, "cannot read or write") \
    X(KH_EMISSING, -3, "not found") \
    X(KH_EFORMAT, -4, "malformed input") \
    X(KH_EARG, -5, "wrong argument") \
    X(KH_ELIMIT, -6, "limit exceeded") \
    X(KH_EUNSUPPORTED, -7, "not supported") \
    X(KH_EMISMATCH, -8, "things that do not belong together")

enum kh_code {
#define KH_CODE_ENUM(name, value, text) name = value,
    KH_CODES(KH_CODE_ENUM)
#undef KH_CODE_ENUM
};

typedef struct kh_err {
    int code;       /* one of the above */
    long line;      /* line of the file that the message names, from 1; 0 if there is none */
    char msg[1024]; /* one sentence: the file, the place, what was found, what was expected */
} kh_err;

/* The meaning of a code; never NULL. */
KH_API const char *kh_code_text(int code);

/* ------------------------------------------------------------------------------------------ log, progress */

typedef enum kh_level { KH_DEBUG, KH_INFO, KH_WARN } kh_level;

typedef struct kh_progress {
    const char *phase; /* what is being done, e.g. "tokenizer train" */
    long done, total;  /* total 0: unknown */
    const char *note;  /* key=value pairs for people and plots, or NULL */
} kh_progress;

/* What a long call tells its caller; all may be NULL. A progress callback that returns non-zero stops the work
 * cleanly: the call then returns KH_STOPPED. Callbacks run on the calling thread. */
typedef struct kh_hooks {
    int (*progress)(void *user, const kh_progress *);
    void (*log)(void *user, kh_level, const char *line);
    void *user;
} kh_hooks;

/* -------------------------------------------------------------------------------------------------- threads */

/* How many threads the library may use; 0 (the start value) means one for each core. Results never depend on it. */
KH_API void kh_threads_set(int n);
KH_API int kh_threads(void);

/* ---------------------------------------------------------------------------------- text -> ids (src/text) */

/* A tokenizer as Hugging Face's tools define it, read from their files. Immutable after open: share it between threads. */
typedef struct kh_tokenizer kh_tokenizer;

/* path: a model folder, a tokenizer.json, a vocab.json (with merges.txt beside it), a merges.txt or a vocab.txt. In a
 * folder tokenizer.json is preferred. A component that is not known is refused by name, never ignored. */
KH_API int kh_tokenizer_open(kh_tokenizer **out, const char *path, kh_err *err);
KH_API void kh_tokenizer_close(kh_tokenizer *);

/* A growable list of token ids; start as {0}. */
typedef struct kh_ids {
    int32_t *id;
    int n;
    size_t cap;
} kh_ids;
KH_API void kh_ids_free(kh_ids *);

enum kh_encode_flags {
    KH_ENCODE_FRAME = 1, /* add what the post-processor adds: <s> ... </s>, [CLS] ... [SEP] */
    KH_ENCODE_PLAIN = 2, /* special tokens inside the text are ordinary characters: for text from strangers */
};

/* Appends the ids of text to *out. */
KH_API int kh_tokenizer_encode(const kh_tokenizer *, const char *text, size_t n, unsigned flags, kh_ids *out, kh_err *err);
/* The same for a pair; type_id, if not NULL, gets the token type of each id appended to out. */
KH_API int kh_tokenizer_encode_pair(const kh_tokenizer *, const char *a, size_t na, const char *b, size_t nb, unsigned flags,
    kh_ids *out, kh_ids *type_id, kh_err *err);

/* Fresh text (kh_text_free) of the ids; *n gets its length. skip_special leaves special tokens out. */
KH_API int kh_tokenizer_decode(const kh_tokenizer *, const int32_t *id, int n_id, bool skip_special, char **text, size_t *n, kh_err *err);
KH_API void kh_text_free(char *text);

/* Number of ids: every id is in 0 .. size-1. */
KH_API int kh_tokenizer_size(const kh_tokenizer *);
/* The token of an id as it stands in the vocabulary, or NULL; lives as long as the tokenizer. */
KH_API const char *kh_tokenizer_token(const kh_tokenizer *, int32_t id);
/* The id of a token, or -1. */
KH_API int32_t kh_tokenizer_id(const kh_tokenizer *, const char *token);

typedef enum kh_special { KH_TOKEN_MASK, KH_TOKEN_UNK, KH_TOKEN_PAD, KH_TOKEN_BOS, KH_TOKEN_EOS } kh_special;
/* The id that plays this part ([CLS] is BOS, [SEP] is EOS), or -1 if the tokenizer has none. */
KH_API int32_t kh_tokenizer_special(const kh_tokenizer *, kh_special);
/* Whether this token takes the white space before it (RoBERTa's <mask> does) or after it. */
KH_API bool kh_tokenizer_strips(const kh_tokenizer *, int32_t id, bool left);
/* Changes whenever encoding could change: a hash over the files. */
KH_API uint64_t kh_tokenizer_fingerprint(const kh_tokenizer *);

/* ------------------------------------------------------------------------ rows -> encoded batches (src/data) */

/* (added by the data room) */

/* ------------------------------------------------------------------ ids + prompt -> hidden states (src/model) */

/* How numbers are stored. */
typedef enum kh_dtype { KH_DTYPE_ANY, KH_DTYPE_F32, KH_DTYPE_F16, KH_DTYPE_BF16 } kh_dtype;

/* Where a soft prompt of m rows enters an encoder (doc/model.md has the formulas). The names are what artefacts record. */
#define KH_INJECTS(X) \
    X(KH_INJECT_NONE, "none")                   /* no soft prompt */ \
    X(KH_INJECT_POST_LN_ADD, "post-ln-add")     /* added to the embedding output of ids 1..m, which hold their place */ \
    X(KH_INJECT_EMBED_PREFIX, "embed-prefix")   /* m word embeddings before the first id */ \
    X(KH_INJECT_EMBED_INPLACE, "embed-inplace") /* m word embeddings after the first id */

typedef enum kh_inject {
#define KH_INJECT_ENUM(name, text) name,
    KH_INJECTS(KH_INJECT_ENUM)
#undef KH_INJECT_ENUM
} kh_inject;
KH_API const char *kh_inject_name(kh_inject);
KH_API int kh_inject_find(kh_inject *out, const char *name, kh_err *err);

/* An encoder as Hugging Face's folders hold it: config.json and model.safetensors (or its index and shards). Immutable
 * after open: share it between threads. */
typedef struct kh_model kh_model;

typedef struct kh_model_opts {
    kh_dtype store;         /* what matrices are kept as in memory; KH_DTYPE_ANY: as they are in the file */
    const char *need_head;  /* what needs a masked-language-model head, e.g. "fill-mask": refuses a model without; or NULL */
    bool allow_nonfinite;   /* do not refuse NaN and infinite weights */
    const kh_hooks *hooks;  /* warnings about tensors that are not used; NULL: none */
} kh_model_opts;

/* opts NULL means all zero. */
KH_API int kh_model_open(kh_model **out, const char *dir, const kh_model_opts *opts, kh_err *err);
KH_API void kh_model_close(kh_model *);

typedef struct kh_model_info {
    const char *type; /* "bert", "roberta", ... as config.json calls it */
    int layers, hidden, heads, inner, vocab;
    int max_tokens; /* the longest sequence, special tokens and soft prompt included */
    bool head;      /* has a masked-language-model head */
    bool tied;      /* whose decoder is the word-embedding matrix */
    kh_dtype dtype; /* of the word embeddings in the file */
    size_t params;  /* a tied decoder is counted once */
    size_t bytes;   /* of weights in memory */
    uint64_t fingerprint; /* over sizes and all weights; not over names, shards or the folder */
} kh_model_info;
KH_API kh_model_info kh_model_describe(const kh_model *);

#ifdef __cplusplus
}
#endif
#endif
