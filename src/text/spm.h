/* spm.h - SentencePiece's kind of byte pair encoding: characters are joined to the piece with the
 * best score, again and again; what has no piece is spelled in bytes. The vocabulary of Llama's
 * GGUF files. */
#ifndef KH_TEXT_SPM_H
#define KH_TEXT_SPM_H

#include "text/vocab.h"

typedef struct kh_spm {
    const kh_vocab *vocab;
    float *score;         /* [vocab->size]; NaN: not to be joined to (control, unknown, bytes) */
    int32_t unk;          /* or -1 */
    int32_t byte_id[256]; /* of <0x00> .. <0xFF>, or -1 */
    size_t longest;       /* bytes of the longest piece */
} kh_spm;                 /* zero it, fill the first three, then kh_spm_ready */

void kh_spm_ready(kh_spm *);
void kh_spm_free(kh_spm *);

/* Memory that texts share. */
typedef struct kh_spm_scratch {
    struct kh_spm_symbol *symbol;
    struct kh_spm_join *heap;
    size_t cap_symbol, cap_heap;
} kh_spm_scratch; /* start as {0} */
void kh_spm_scratch_free(kh_spm_scratch *);

/* Appends the ids of a text. */
int kh_spm_encode(
    const kh_spm *, const char *text, size_t n, kh_spm_scratch *, kh_ids *out, kh_err *err);

#endif
