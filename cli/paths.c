/* paths.c - names of files: folders made on the way, paths that hold from any folder, and runs
 * named after their data. */
#include "cli.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>

int cli_make_parents(const char *path, kh_err *err) {
    char *copy = kh_strdup(path);
    int rc = copy ? 0 : kh_fail_memory(err);
    for (char *slash = copy; rc == 0 && (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = '\0';
        if (!kh_dir_exists(copy))
            rc = kh_dir_make(copy, err);
        *slash = '/';
    }
    kh_free(copy);
    return rc;
}

char *cli_absolute(const char *path) {
    bool there = kh_file_exists(path) || kh_dir_exists(path);
    char *whole = there ? realpath(path, NULL) : NULL, *copy = kh_strdup(whole ? whole : path);
    free(whole);
    return copy;
}

char *cli_stem(const char *path) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t from = end;
    while (from > 0 && path[from - 1] != '/')
        from--;
    const char *dot = memchr(path + from + 1, '.', end > from + 1 ? end - from - 1 : 0);
    if (dot)
        end = (size_t)(dot - path);
    return end > from ? kh_strndup(path + from, end - from) : kh_strdup("data");
}

char *cli_run_name(const char *data) {
    char *stem = cli_stem(data);
    kh_buf b = kh_buf_init(1 << 16);
    if (stem)
        kh_buf_printf(&b, "%s-run", stem);
    kh_free(stem);
    return stem ? kh_buf_take(&b, NULL) : NULL;
}
