/* suggest.c - see suggest.h. The distance is that of Damerau and Levenshtein, restricted to swaps
 * of neighbours (optimal string alignment), by three rows of the usual table. */
#include "suggest.h"

#include <limits.h>
#include <string.h>

enum { LONGEST = 63 };

static int least(int a, int b) { return a < b ? a : b; }

int cli_distance(const char *a, size_t n_a, const char *b) {
    size_t n_b = strlen(b);
    int rows[3][LONGEST + 2], *before = rows[0], *last = rows[1], *row = rows[2];
    if (n_a > LONGEST || n_b > LONGEST)
        return INT_MAX;
    for (size_t j = 0; j <= n_b; j++)
        last[j] = (int)j;
    for (size_t i = 1; i <= n_a; i++) {
        row[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            int change = last[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least(change, least(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        int *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[n_b];
}

cli_suggestion cli_suggest(const char *typed, size_t n) {
    return (cli_suggestion){ .typed = typed, .n = n, .distance = INT_MAX };
}

void cli_suggest_offer(cli_suggestion *s, const char *name) {
    int d = cli_distance(s->typed, s->n, name);
    if (s->n >= 4 && strncmp(s->typed, name, s->n) == 0) /* the start of a name means the name */
        d = 1;
    if (d < s->distance) {
        s->distance = d;
        s->best = name;
    }
}

const char *cli_suggested(const cli_suggestion *s) {
    int near = s->n <= 4 ? 1 : 2;
    return s->best && s->distance <= near ? s->best : NULL;
}
