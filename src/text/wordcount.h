/* wordcount.h - how often each GPT-2 piece occurs in a corpus: what byte-pair encoding is trained
 * on.
 *
 *     kh_counts words = {0};
 *     rc = kh_counts_read(&words, &(kh_counts_opts){ .path = paths, .n_path = 2 }, hooks, err);
 *     ... words.word[0 .. words.n) in the order of their first appearance ...
 *     kh_counts_free(&words);
 */
#ifndef KH_TEXT_WORDCOUNT_H
#define KH_TEXT_WORDCOUNT_H

#include "base/arena.h"
#include "base/map.h"
#include "keyhole.h"

typedef struct kh_counted {
    const char *text; /* UTF-8, not NUL-terminated */
    uint32_t len;
    uint64_t count;
} kh_counted;

typedef struct kh_counts {
    kh_counted *word;
    int n;
    size_t cap;
    kh_map index;                 /* text -> index into word */
    kh_arena texts;               /* where the texts live */
    uint64_t bytes, lines, total; /* read so far; total: all pieces */
} kh_counts;                      /* start as {0} */

typedef struct kh_counts_opts {
    const char *const *path; /* "-" is standard input */
    int n_path;
    uint64_t limit_bytes; /* stop after the line that holds byte number limit_bytes; 0: read
                             everything */
    bool prefix_space;    /* a space goes before each line that does not start with one */
    bool lowercase;       /* characters as the normalizer "Lowercase" leaves them */
} kh_counts_opts;

/* Reads plain UTF-8, one text per line; as in Hugging Face's tools the newline is part of its text.
 * Broken bytes become U+FFFD. Lines of more than 64 MB and compressed files are refused. Pieces are
 * counted by kh_threads() threads; the result does not depend on how many. Free *words also after a
 * failure. */
int kh_counts_read(kh_counts *words, const kh_counts_opts *, const kh_hooks *, kh_err *err);
void kh_counts_free(kh_counts *);

#endif
