/* faulty.h - a file system for SQLite that fails when it is told to: everything goes through to the
 * real one, but the n-th write from now fails as on a full disk (or with another code). */
#ifndef KH_TEST_FAULTY_H
#define KH_TEST_FAULTY_H

#include <sqlite3.h>
#include <stddef.h>
#include <stdlib.h>

typedef struct faulty_file {
    sqlite3_file base;
    sqlite3_file *real; /* right behind */
} faulty_file;

static sqlite3_vfs faulty_vfs, *faulty_below;
static long faulty_at,
    faulty_writes; /* the write that fails, and how many there were; at 0: none fails */
static int faulty_code = SQLITE_FULL;

#define REAL(f) (((faulty_file *)(f))->real)

static int faulty_close(sqlite3_file *f) {
    return REAL(f)->pMethods ? REAL(f)->pMethods->xClose(REAL(f)) : SQLITE_OK;
}
static int faulty_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at) {
    return REAL(f)->pMethods->xRead(REAL(f), p, n, at);
}
static int faulty_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at) {
    faulty_writes++;
    return faulty_at > 0 && faulty_writes >= faulty_at
        ? faulty_code
        : REAL(f)->pMethods->xWrite(REAL(f), p, n, at);
}
static int faulty_truncate(sqlite3_file *f, sqlite3_int64 n) {
    return REAL(f)->pMethods->xTruncate(REAL(f), n);
}
static int faulty_sync(sqlite3_file *f, int flags) {
    return REAL(f)->pMethods->xSync(REAL(f), flags);
}
static int faulty_size(sqlite3_file *f, sqlite3_int64 *n) {
    return REAL(f)->pMethods->xFileSize(REAL(f), n);
}
static int faulty_lock(sqlite3_file *f, int kind) {
    return REAL(f)->pMethods->xLock(REAL(f), kind);
}
static int faulty_unlock(sqlite3_file *f, int kind) {
    return REAL(f)->pMethods->xUnlock(REAL(f), kind);
}
static int faulty_reserved(sqlite3_file *f, int *out) {
    return REAL(f)->pMethods->xCheckReservedLock(REAL(f), out);
}
static int faulty_control(sqlite3_file *f, int op, void *arg) {
    return REAL(f)->pMethods->xFileControl(REAL(f), op, arg);
}
static int faulty_sector(sqlite3_file *f) { return REAL(f)->pMethods->xSectorSize(REAL(f)); }
static int faulty_device(sqlite3_file *f) {
    return REAL(f)->pMethods->xDeviceCharacteristics(REAL(f));
}
static int faulty_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **out) {
    return REAL(f)->pMethods->xShmMap(REAL(f), page, size, extend, out);
}
static int faulty_shm_lock(sqlite3_file *f, int at, int n, int flags) {
    return REAL(f)->pMethods->xShmLock(REAL(f), at, n, flags);
}
static void faulty_shm_barrier(sqlite3_file *f) { REAL(f)->pMethods->xShmBarrier(REAL(f)); }
static int faulty_shm_unmap(sqlite3_file *f, int drop) {
    return REAL(f)->pMethods->xShmUnmap(REAL(f), drop);
}

static const sqlite3_io_methods faulty_methods = { .iVersion = 2,
    .xClose = faulty_close,
    .xRead = faulty_read,
    .xWrite = faulty_write,
    .xTruncate = faulty_truncate,
    .xSync = faulty_sync,
    .xFileSize = faulty_size,
    .xLock = faulty_lock,
    .xUnlock = faulty_unlock,
    .xCheckReservedLock = faulty_reserved,
    .xFileControl = faulty_control,
    .xSectorSize = faulty_sector,
    .xDeviceCharacteristics = faulty_device,
    .xShmMap = faulty_shm_map,
    .xShmLock = faulty_shm_lock,
    .xShmBarrier = faulty_shm_barrier,
    .xShmUnmap = faulty_shm_unmap };

static int faulty_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *got) {
    faulty_file *file = (faulty_file *)f;
    (void)v;
    file->real = (sqlite3_file *)(file + 1);
    int rc = faulty_below->xOpen(faulty_below, name, file->real, flags, got);
    file->base.pMethods = rc == SQLITE_OK ? &faulty_methods : NULL;
    return rc;
}

/* From now on the default of this process. */
static void faulty_install(void) {
    faulty_below = sqlite3_vfs_find(NULL);
    faulty_vfs = *faulty_below;
    faulty_vfs.zName = "faulty";
    faulty_vfs.pNext = NULL;
    faulty_vfs.szOsFile = (int)sizeof(faulty_file) + faulty_below->szOsFile;
    faulty_vfs.xOpen = faulty_open;
    sqlite3_vfs_register(&faulty_vfs, 1);
}

/* Write number n from now on fails, and all after it; 0: none. */
static void faulty_fail(long n, int code) {
    faulty_at = n;
    faulty_writes = 0;
    faulty_code = code;
}

#endif
