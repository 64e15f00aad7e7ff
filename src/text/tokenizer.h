/* tokenizer.h - a tokenizer put together, for the files that load one (load_json.c, load_vocab.c)
 * and the one that runs it. */
#ifndef KH_TEXT_TOKENIZER_H
#define KH_TEXT_TOKENIZER_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/chain.h"
#include "text/spm.h"
#include "text/unigram.h"
#include "text/vocab.h"
#include "text/wordpiece.h"

enum { KH_N_SPECIAL = KH_TOKEN_EOS + 1 };

struct kh_tokenizer {
    kh_arena arena; /* names, contents, data of the steps */
    kh_vocab vocab; /* finds the model's tokens; names added ones too */
    kh_added added;
    kh_chain normalizers, pretokenizers, postprocessors, decoders;
    enum { KH_MODEL_NONE, KH_MODEL_BPE, KH_MODEL_WORDPIECE, KH_MODEL_UNIGRAM, KH_MODEL_SPM } model;
    kh_bpe bpe;
    kh_wordpiece wordpiece;
    kh_unigram unigram;
    kh_spm spm;
    bool raw_bytes; /* the last pre-tokenizer leaves bytes to the model */
    int32_t special[KH_N_SPECIAL];
    uint64_t fingerprint;
};

/* What stands beside the vocabulary: tokenizer_config.json, special_tokens_map.json,
 * added_tokens.json; each may be NULL. */
typedef struct kh_beside {
    json_t *config, *map, *added;
    const char *config_path, *map_path, *added_path; /* borrowed */
} kh_beside;                                         /* start as {0} */

enum { KH_TOKENIZER_FILE_MAX = 256 << 20 };

/* The files that define a tokenizer, as bytes: read from a folder, or come over a wire. */
typedef enum kh_tokenizer_part {
    KH_FILE_MAIN,   /* tokenizer.json, vocab.json, vocab.txt or a GGUF file */
    KH_FILE_MERGES, /* merges.txt, to a vocab.json */
    KH_FILE_CONFIG, /* tokenizer_config.json */
    KH_FILE_MAP,    /* special_tokens_map.json */
    KH_FILE_ADDED,  /* added_tokens.json */
    KH_N_TOKENIZER_FILE
} kh_tokenizer_part;

typedef struct kh_tokenizer_file {
    char *path; /* for messages, and to tell .txt from .json */
    kh_buf bytes;
    bool there;
} kh_tokenizer_file;

typedef struct kh_tokenizer_files {
    kh_tokenizer_file file[KH_N_TOKENIZER_FILE];
} kh_tokenizer_files;

/* path as kh_tokenizer_open takes it. Free the files, failed ones too. */
int kh_tokenizer_files_read(kh_tokenizer_files *, const char *path, kh_err *err);
void kh_tokenizer_files_free(kh_tokenizer_files *);
int kh_tokenizer_from_files(kh_tokenizer **out, const kh_tokenizer_files *, kh_err *err);

/* load_json.c: fills a zeroed tokenizer from a parsed tokenizer.json. `name` is what messages call
 * it. */
int kh_tokenizer_load_json(kh_tokenizer *, json_t *root, const char *name, kh_err *err);
/* The vocabulary {"token": id, ...}. */
int kh_tokenizer_load_ids(kh_tokenizer *, json_t *vocab, const char *place, kh_err *err);

/* load_gguf.c: the files that a GGUF file carries, or its vocabulary alone as a GGUF file. */
int kh_tokenizer_files_gguf(kh_tokenizer_files *, const char *path, kh_err *err);
/* Fills a zeroed tokenizer from the bytes of a GGUF file. *roles gets the tokens that play a part,
 * as tokenizer_config.json has them: json_decref it, also on failure. */
int kh_tokenizer_load_gguf(
    kh_tokenizer *, const char *bytes, size_t n, const char *name, json_t **roles, kh_err *err);

/* load_vocab.c: from the files that came before tokenizer.json; `text` is the content of merges.txt
 * or vocab.txt. */
int kh_tokenizer_load_merges(kh_tokenizer *, json_t *vocab, const char *vocab_path,
    const char *text, size_t n, const char *merges_path, const kh_beside *, kh_err *err);
int kh_tokenizer_load_words(
    kh_tokenizer *, const char *text, size_t n, const char *path, const kh_beside *, kh_err *err);
int kh_beside_open(
    kh_beside *, const kh_tokenizer_files *, kh_err *err); /* missing ones are fine */
void kh_beside_close(kh_beside *);
/* The token that plays the part "mask_token" etc. according to the files, or NULL; *flags its
 * object, if it has one. */
int kh_beside_role(
    const kh_beside *, const char *role, const char **token, const json_t **flags, kh_err *err);

/* tokenizer.c: appends the ids of front, text and back, encoded as one. Special tokens are
 * recognised in front and back, which are somebody's format, and never in the text, which is
 * anybody's. */
int kh_tokenizer_encode_between(const kh_tokenizer *, const char *front, const char *text, size_t n,
    const char *back, kh_ids *out, kh_err *err);
/* The id of a token, added or not, or -1. */
int32_t kh_tokenizer_find(const kh_tokenizer *, const char *token, size_t n);
/* Makes an added token findable; one whose content the model knows has the model's id, another gets
 * token->id. */
int kh_tokenizer_add_token(kh_tokenizer *, kh_added_token *, const char *place, kh_err *err);
/* The last step of loading: checks ids, links what finds added tokens, chooses the parts. */
int kh_tokenizer_ready(kh_tokenizer *, const char *name, const kh_beside *, kh_err *err);

/* Writes the files that kh_tokenizer_open reads at `path` into a folder, under the names by which
 * it finds them there. */
int kh_tokenizer_copy(const char *path, const char *folder, kh_err *err);

/* As kh_tokenizer_open, from the bytes of a tokenizer.json. */
int kh_tokenizer_from_json(
    kh_tokenizer **out, const char *bytes, size_t n, const char *name, kh_err *err);

#endif
