/* suggest.h - the nearest name to what was typed. */
#ifndef KH_CLI_SUGGEST_H
#define KH_CLI_SUGGEST_H

#include <stddef.h>

/* The fewest insertions, deletions, replacements and swaps of neighbours that make one word of the
 * other; words of more than 63 bytes are far from everything. */
int cli_distance(const char *a, size_t n_a, const char *b);

/* Keeps the nearest of the names that are offered. */
typedef struct cli_suggestion {
    const char *typed;
    size_t n;
    const char *best;
    int distance;
} cli_suggestion;
cli_suggestion cli_suggest(const char *typed, size_t n);
void cli_suggest_offer(cli_suggestion *, const char *name);
/* The nearest, if it is near enough to be meant; or NULL. */
const char *cli_suggested(const cli_suggestion *);

#endif
