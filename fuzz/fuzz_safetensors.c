/* fuzz_safetensors.c - any bytes as a safetensors file: opened or refused, and if opened every
 * array can be read. */
#include "model/safetensors.h"
#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (ftruncate(fd, 0) != 0 || pwrite(fd, bytes, n, 0) != (ssize_t)n)
        abort();
    kh_safetensors *f;
    kh_err err;
    if (kh_safetensors_open(&f, path, &err) != 0)
        return 0;
    int count;
    size_t total = 0;
    const kh_array *array = kh_safetensors_arrays(f, &count);
    for (int i = 0; i < count; i++) {
        char *into = kh_malloc(array[i].bytes);
        if (kh_safetensors_find(f, array[i].name) != &array[i] ||
            kh_safetensors_read(f, &array[i], 0, array[i].bytes, into, &err) != 0)
            abort();
        total += array[i].bytes;
        kh_free(into);
    }
    if (total > n)
        abort();
    kh_safetensors_close(f);
    return 0;
}
