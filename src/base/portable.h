/* portable.h - the few things that Linux has a call of its own for, each with what any Unix can do
 * instead. -DKH_PORTABLE takes the second way on Linux, too: "make test-portable" compiles it and
 * runs the tests that pass through it. Other systems than Linux have not been tried;
 * doc/packages.md lists what else differs. */
#ifndef KH_BASE_PORTABLE_H
#define KH_BASE_PORTABLE_H

#include <stdbool.h>
#include <stddef.h>

/* Random bytes from the system. wait: until it has gathered enough; false: it has not. */
bool kh_random_bytes(void *out, size_t n, bool wait);
/* A pipe that programs started later do not inherit; 0, or -1 with errno set. */
int kh_pipe(int fd[2]);
/* Cores that this process may use. */
int kh_cores_allowed(void);
/* The path of the running program, NUL-terminated; its length, or 0 where the system does not
 * tell. */
size_t kh_own_program(char *path, size_t cap);
/* Freed memory goes back to the system, where the C library can be told so. */
void kh_give_back(void);

#endif
