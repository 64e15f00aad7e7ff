/* folder.c - finds files in data folders. Two layouts hold ready-made few-shot splits:
 *
 *     DIR/kshot16/seed13.train.tsv  seed13.dev.tsv                          with DIR/test.tsv
 *     DIR/k-shot/SST-2/16-13/train.tsv  dev.tsv  test.tsv                   LM-BFF's tree
 *
 * of which the second may also be entered at k-shot/SST-2 or at 16-13. */
#include "data/folder.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void kh_folder_free(kh_folder *p) {
    kh_free(p->train);
    kh_free(p->dev);
    kh_free(p->test);
    *p = (kh_folder){ 0 };
}

/* dir/stem.tsv, .csv or .jsonl, whichever is there first; NULL in *out if none is. */
static int find_file(const char *dir, const char *stem, char **out, kh_err *err) {
    static const char *const endings[] = { ".tsv", ".csv", ".jsonl" };
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        kh_buf b = kh_buf_init(KH_BUF_MAX);
        kh_buf_printf(&b, "%s/%s%s", dir, stem, endings[i]);
        char *path = kh_buf_take(&b, NULL);
        if (!path)
            return kh_fail_memory(err);
        if (kh_file_exists(path)) {
            *out = path;
            return 0;
        }
        kh_free(path);
    }
    *out = NULL;
    return 0;
}

static int find_parts(const char *dir, const char *prefix, kh_folder *out, kh_err *err) {
    char stem[64];
    *out = (kh_folder){ 0 };
    char **const into[] = { &out->train, &out->dev, &out->test };
    static const char *const part[] = { "train", "dev", "test" };
    int rc = 0;
    for (int i = 0; i < 3 && rc == 0; i++) {
        snprintf(stem, sizeof stem, "%s%s", prefix, part[i]);
        rc = find_file(dir, stem, into[i], err);
    }
    if (rc != 0)
        kh_folder_free(out);
    return rc;
}

int kh_folder_find(const char *dir, kh_folder *out, kh_err *err) {
    *out = (kh_folder){ 0 };
    if (!kh_dir_exists(dir))
        return kh_fail(err, KH_EMISSING, "%s: there is no such file or folder", dir);
    return find_parts(dir, "", out, err);
}

/* -------------------------------------------------------------------------------------- LM-BFF */

/* "16-13" */
static bool parse_name(const char *name, int *shots, uint64_t *seed) {
    char *dash, *end;
    if (!isdigit((unsigned char)name[0]))
        return false;
    errno = 0;
    long k = strtol(name, &dash, 10);
    if (errno || *dash != '-' || k < 1 || k > 1000000 || !isdigit((unsigned char)dash[1]))
        return false;
    *seed = strtoull(dash + 1, &end, 10);
    *shots = (int)k;
    return !errno && *end == '\0';
}

/* The letters and digits of a name, in lower case: "SST-2" is sst2. */
static bool same_task(const char *a, const char *b) {
    for (;;) {
        while (*a && !isalnum((unsigned char)*a))
            a++;
        while (*b && !isalnum((unsigned char)*b))
            b++;
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return false;
        if (!*a)
            return true;
        a++;
        b++;
    }
}

/* The last part of a path without its slashes at the end; empty for "/" and the like. */
static char *last_part(const char *path) {
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t from = end;
    while (from > 0 && path[from - 1] != '/')
        from--;
    return kh_strndup(path + from, end - from);
}

/* Calls each(user, dir, name) for the entries of a folder, in the order of their names, until one
 * returns non-zero. */
static int walk(const char *dir,
    int (*each)(void *user, const char *dir, const char *name, kh_err *err), void *user,
    kh_err *err) {
    struct dirent **entry = NULL;
    int n = scandir(dir, &entry, NULL, alphasort), rc = 0;
    if (n < 0)
        return errno == ENOENT || errno == ENOTDIR
            ? 0
            : kh_fail_errno(err, dir, "cannot list the folder");
    for (int i = 0; i < n; i++) {
        if (rc == 0 && entry[i]->d_name[0] != '.')
            rc = each(user, dir, entry[i]->d_name, err);
        free(entry[i]);
    }
    free(entry);
    return rc;
}

typedef struct task_search {
    const kh_task *task;
    char *found;
    int n;
} task_search;

static int try_task(void *user, const char *dir, const char *name, kh_err *err) {
    task_search *s = user;
    if (s->task && !same_task(s->task->name, name))
        return 0;
    char *path = kh_path_join(dir, name);
    if (!path)
        return kh_fail_memory(err);
    if (kh_dir_exists(path)) {
        s->n++;
        kh_free(s->found);
        s->found = path;
    } else
        kh_free(path);
    return 0;
}

/* The folder that holds K-S folders: k-shot/TASK below dir, or dir itself. Without a task, k-shot
 * must hold one task only. */
static int find_tree(const char *dir, const kh_task *task, char **out, kh_err *err) {
    task_search s = { .task = task };
    char *base = kh_path_join(dir, "k-shot");
    int rc = base ? walk(base, try_task, &s, err) : kh_fail_memory(err);
    kh_free(base);
    if (rc == 0 && s.n > 1)
        rc = kh_fail(err, KH_EARG,
            "%s/k-shot holds %d tasks; say which task is meant, or name the folder of one", dir,
            s.n);
    if (rc != 0) {
        kh_free(s.found);
        return rc;
    }
    *out = s.found ? s.found : kh_strdup(dir);
    return *out ? 0 : kh_fail_memory(err);
}

/* ----------------------------------------------------------------------------------- one split */

static int kshot_files(const char *dir, int shots, uint64_t seed, kh_folder *out, kh_err *err) {
    char name[64], prefix[64];
    snprintf(name, sizeof name, "kshot%d", shots);
    snprintf(prefix, sizeof prefix, "seed%llu.", (unsigned long long)seed);
    char *sub = kh_path_join(dir, name);
    int rc = sub ? find_parts(sub, prefix, out, err) : kh_fail_memory(err);
    kh_free(sub);
    if (rc == 0 && out->train && !out->test)
        rc = find_file(dir, "test", &out->test, err);
    return rc;
}

static int tree_files(
    const char *dir, const kh_task *task, int shots, uint64_t seed, kh_folder *out, kh_err *err) {
    char name[64], *tree = NULL, *sub = NULL;
    snprintf(name, sizeof name, "%d-%llu", shots, (unsigned long long)seed);
    int rc = find_tree(dir, task, &tree, err);
    if (rc == 0 && (sub = kh_path_join(tree, name)) == NULL)
        rc = kh_fail_memory(err);
    if (rc == 0)
        rc = find_parts(sub, "", out, err);
    kh_free(sub);
    kh_free(tree);
    return rc;
}

/* dir may itself be called K-S. Returns 1 if it is the wanted one. */
static int is_split(const char *dir, int shots, uint64_t seed, kh_err *err) {
    int k;
    uint64_t s;
    char *name = last_part(dir);
    if (!name)
        return kh_fail_memory(err);
    bool split = parse_name(name, &k, &s);
    kh_free(name);
    if (!split)
        return 0;
    if (k != shots || s != seed)
        return kh_fail(err, KH_EMISMATCH,
            "%s: this folder is the split of %d shots and seed %llu, but %d shots and seed %llu "
            "were asked for",
            dir, k, (unsigned long long)s, shots, (unsigned long long)seed);
    return 1;
}

/* 1: train and dev are both there; 0: neither. One without the other is refused, not replaced by a
 * draw. */
static int complete(const kh_folder *p, kh_err *err) {
    if (!p->train != !p->dev)
        return kh_fail(err, KH_EMISSING, "%s: the %s file that belongs to it is not there",
            p->train ? p->train : p->dev, p->train ? "dev" : "train");
    return p->train != NULL;
}

int kh_folder_split(
    const char *dir, const kh_task *task, int shots, uint64_t seed, kh_folder *out, kh_err *err) {
    *out = (kh_folder){ 0 };
    if (!kh_dir_exists(dir))
        return kh_fail(err, KH_EMISSING, "%s: there is no such file or folder", dir);
    int found = 0, rc = is_split(dir, shots, seed, err);
    if (rc < 0)
        return rc;
    for (int place = rc == 1 ? 0 : 1; place < 3 && found == 0; place++) {
        kh_folder_free(out);
        if (place == 0)
            rc = find_parts(dir, "", out, err);
        else if (place == 1)
            rc = kshot_files(dir, shots, seed, out, err);
        else
            rc = tree_files(dir, task, shots, seed, out, err);
        found = rc == 0 ? complete(out, err) : rc;
    }
    if (found != 1)
        kh_folder_free(out);
    return found < 0 ? found : 0;
}

/* ---------------------------------------------------------------------------------- all splits */

typedef struct split_list {
    kh_split_name *item;
    int n;
    size_t cap;
    int shots; /* inside kshotK */
} split_list;

static int add_split(split_list *l, int shots, uint64_t seed, const char *dir, kh_err *err) {
    if (!kh_grow(&l->item, &l->cap, (size_t)l->n + 1, sizeof *l->item))
        return kh_fail_memory(err);
    char *copy = dir ? kh_strdup(dir) : NULL;
    if (dir && !copy)
        return kh_fail_memory(err);
    l->item[l->n++] = (kh_split_name){ shots, seed, copy };
    return 0;
}

/* seed13.train.tsv in kshot16 */
static int try_seed(void *user, const char *dir, const char *name, kh_err *err) {
    (void)dir;
    split_list *l = user;
    char *end;
    if (strncmp(name, "seed", 4) != 0 || !isdigit((unsigned char)name[4]))
        return 0;
    errno = 0;
    uint64_t seed = strtoull(name + 4, &end, 10);
    return errno == 0 && strncmp(end, ".train.", 7) == 0 ? add_split(l, l->shots, seed, NULL, err)
                                                         : 0;
}

static int try_kshot(void *user, const char *dir, const char *name, kh_err *err) {
    split_list *l = user;
    char *end;
    if (strncmp(name, "kshot", 5) != 0 || !isdigit((unsigned char)name[5]))
        return 0;
    long shots = strtol(name + 5, &end, 10);
    if (*end || shots < 1 || shots > 1000000)
        return 0;
    char *sub = kh_path_join(dir, name);
    if (!sub)
        return kh_fail_memory(err);
    l->shots = (int)shots;
    int rc = walk(sub, try_seed, l, err);
    kh_free(sub);
    return rc;
}

static int try_tree(void *user, const char *dir, const char *name, kh_err *err) {
    int shots;
    uint64_t seed;
    if (!parse_name(name, &shots, &seed))
        return 0;
    char *sub = kh_path_join(dir, name);
    int rc = sub ? 0 : kh_fail_memory(err);
    if (rc == 0 && kh_dir_exists(sub))
        rc = add_split(user, shots, seed, sub, err);
    kh_free(sub);
    return rc;
}

static int by_shots_and_seed(const void *a, const void *b) {
    const kh_split_name *x = a, *y = b;
    if (x->shots != y->shots)
        return x->shots < y->shots ? -1 : 1;
    return x->seed < y->seed ? -1 : x->seed > y->seed;
}

int kh_folder_splits(
    const char *dir, const kh_task *task, kh_split_name **out, int *n, kh_err *err) {
    split_list l = { 0 };
    char *tree = NULL;
    int rc = walk(dir, try_kshot, &l, err);
    if (rc == 0)
        rc = find_tree(dir, task, &tree, err);
    if (rc == 0)
        rc = walk(tree, try_tree, &l, err);
    kh_free(tree);
    if (rc != 0) {
        kh_split_names_free(l.item, l.n);
        l = (split_list){ 0 };
    } else if (l.n > 0)
        qsort(l.item, (size_t)l.n, sizeof *l.item, by_shots_and_seed);
    *out = l.item;
    *n = l.n;
    return rc;
}

void kh_split_names_free(kh_split_name *s, int n) {
    for (int i = 0; i < n; i++)
        kh_free(s[i].dir);
    kh_free(s);
}
