/* secrets.c - see secrets.h. A table for the whole process, because sentences are made everywhere
 * and most places do not know of the key; it is written under a lock and only ever grows, so that
 * reading needs none. Texts are short (a sentence, a log line), so the search is the plain one. */
#include "base/secrets.h"

#include "base/alloc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

enum { MOST = 64, LONGEST = 4096, PART = 8, SHORTEST = 6 }; /* SHORTEST: less is a word */

static char *secret[MOST];
static atomic_int n_secret;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void kh_secret_add(const char *text) {
    size_t n = strlen(text);
    if (n == 0 || n > LONGEST)
        return;
    pthread_mutex_lock(&lock);
    int k = atomic_load(&n_secret);
    bool known = k == MOST;
    for (int i = 0; i < k && !known; i++)
        known = strcmp(secret[i], text) == 0;
    if (!known && (secret[k] = kh_strdup(text)) != NULL)
        atomic_store(&n_secret, k + 1);
    pthread_mutex_unlock(&lock);
}

/* How many bytes from `at` on are a part of the secret. */
static size_t match(const char *at, const char *s) {
    size_t best = 0, least = strlen(s) < PART ? strlen(s) : PART;
    if (least < SHORTEST)
        return 0;
    for (; *s; s++) {
        size_t n = 0;
        while (s[n] && at[n] == s[n])
            n++;
        best = n > best ? n : best;
    }
    return best >= least ? best : 0;
}

void kh_hide_secrets(char *text) {
    int k = atomic_load(&n_secret);
    for (char *at = text; k > 0 && *at;) {
        size_t n = 0;
        for (int i = 0; i < k; i++) {
            size_t found = match(at, secret[i]);
            n = found > n ? found : n;
        }
        memset(at, '*', n);
        at += n ? n : 1;
    }
}
