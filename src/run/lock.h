/* lock.h - one process at a time works on a run: an advisory lock on RUN/run.lock, held as long as
 * the process lives. */
#ifndef KH_RUN_LOCK_H
#define KH_RUN_LOCK_H

#include "keyhole.h"

typedef struct kh_lock {
    char *path;
    int fd;
} kh_lock;

/* Fails at once, naming the other process, if the lock is taken. Release it also after failure. */
int kh_lock_take(kh_lock *, const char *dir, kh_err *err);
/* Removes the file, too. */
void kh_lock_release(kh_lock *);
/* Whether a process holds the lock of this folder. */
bool kh_lock_held(const char *dir);

#endif
