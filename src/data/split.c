/* split.c - the few-shot split: ready-made, or drawn by seed (METHODS: shuffle, walk, first k of
 * each class to train, next k to dev). One file holds all three parts: what is neither train nor
 * dev is there to judge on. The draw depends on the seed and on the order of the rows in the file,
 * on nothing else. */
#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/rng.h"
#include "data/dataset.h"
#include "data/folder.h"

#include <stdio.h>
#include <string.h>

/* Rows of one file that train and dev may get at most, when their number is left to us: enough for
 * every method, and few enough that tuning ends. The rest is for judging. */
enum { TRAIN_MOST = 1000, DEV_MOST = 500 };

/* What a class gives to train and to dev. */
typedef struct quota {
    int train, dev;
} quota;

static int name_class(
    const kh_dataset *d, int k, int count, const char *needs, int suggest, kh_err *err) {
    char advice[64] = "";
    if (suggest > 0)
        snprintf(advice, sizeof advice, "; --shots %d would do", suggest);
    return kh_fail(err, KH_EFORMAT, "%s: class %d%s%s%s has %d row%s; %s%s", d->path, k,
        d->label[k] ? " (" : "", d->label[k] ? d->label[k] : "", d->label[k] ? ")" : "", count,
        count == 1 ? "" : "s", needs, advice);
}

static int fewest(const int *count, int n) {
    int least = count[0];
    for (int k = 1; k < n; k++)
        least = count[k] < least ? count[k] : least;
    return least;
}

/* A class with too few rows would make a lopsided split without a word; name it instead. */
static int check_classes(const kh_dataset *d, const int *count, int shots, kh_err *err) {
    char needs[128];
    snprintf(needs, sizeof needs, "%d shots for train and as many for dev need %ld", shots,
        2 * (long)shots);
    for (int k = 0; k < d->n_label; k++)
        if (count[k] < 2 * (long)shots)
            return name_class(d, k, count[k], needs, fewest(count, d->n_label) / 2, err);
    return d->n_label > 1
        ? 0
        : kh_fail(err, KH_EFORMAT, "%s: one class only; nothing to learn", d->path);
}

/* Three fifths of each class for train, one for dev, one for judging; at least one row each. */
static int share_out(const kh_dataset *d, const int *count, quota *q, kh_err *err) {
    int train_most = TRAIN_MOST / d->n_label, dev_most = DEV_MOST / d->n_label;
    for (int k = 0; k < d->n_label; k++) {
        if (count[k] < 3)
            return name_class(d, k, count[k],
                "train, dev and test need one each: add rows, or drop the class", 0, err);
        int dev = count[k] / 5 > 1 ? count[k] / 5 : 1, train = count[k] - 2 * dev;
        q[k].train = train > train_most && train_most > 0 ? train_most : train;
        q[k].dev = dev > dev_most && dev_most > 0 ? dev_most : dev;
    }
    return d->n_label > 1
        ? 0
        : kh_fail(err, KH_EFORMAT, "%s: one class only; nothing to learn", d->path);
}

/* Rows of each class in the order of the seed: the first go to part 0, train, the next to part 1,
 * dev, the rest to part 2. part[] may be NULL where it is not wanted. */
static int deal(
    kh_dataset **const part[3], const kh_dataset *d, const quota *q, uint64_t seed, kh_err *err) {
    size_t n = (size_t)d->n_row, n_label = (size_t)d->n_label;
    int *order = kh_malloc(n * sizeof *order), *picked = kh_malloc(n * sizeof *picked),
        *count = kh_malloc(n_label * sizeof *count);
    int rc = order && picked && count ? 0 : kh_fail_memory(err);
    if (rc == 0) {
        kh_rng r = kh_rng_stream(seed, KH_RNG_SPLIT, 0, 0);
        kh_rng_permutation(&r, order, d->n_row);
    }
    for (int p = 0; p < 3 && rc == 0; p++) {
        int taken = 0;
        if (!part[p])
            continue;
        memset(count, 0, n_label * sizeof *count);
        for (int i = 0; i < d->n_row; i++) {
            int label = d->row[order[i]].label;
            if (label < 0)
                continue;
            int at = count[label]++, from = p > 0 ? q[label].train : 0;
            from += p > 1 ? q[label].dev : 0;
            int size = p == 0 ? q[label].train : q[label].dev;
            if (at >= from && (p == 2 || at < from + size))
                picked[taken++] = order[i];
        }
        rc = kh_dataset_select(part[p], d, picked, taken, err);
    }
    kh_free(order);
    kh_free(picked);
    kh_free(count);
    return rc;
}

/* shots 0: of one file, shared out. */
static int draw(
    kh_dataset **const part[3], const kh_dataset *d, int shots, uint64_t seed, kh_err *err) {
    size_t n_label = (size_t)d->n_label;
    int *count = kh_malloc(n_label * sizeof *count);
    quota *q = kh_malloc(n_label * sizeof *q);
    int rc = count && q ? 0 : kh_fail_memory(err);
    if (rc == 0) {
        kh_dataset_count(d, count);
        for (size_t k = 0; k < n_label; k++)
            q[k] = (quota){ shots, shots };
        rc = shots > 0 ? check_classes(d, count, shots, err) : share_out(d, count, q, err);
    }
    if (rc == 0)
        rc = deal(part, d, q, seed, err);
    kh_free(count);
    kh_free(q);
    return rc;
}

static int draw_from(kh_split *out, const char *train, int shots, uint64_t seed,
    const kh_dataset_opts *opts, kh_err *err) {
    kh_dataset *all;
    kh_dataset **const part[] = { &out->train, &out->dev, NULL };
    int rc = kh_dataset_open(&all, train, opts, err);
    if (rc == 0)
        rc = draw(part, all, shots, seed, err);
    kh_dataset_close(all);
    out->drawn = true;
    return rc;
}

static int check_parts(const kh_split *s, const char *dir, kh_err *err) {
    const kh_dataset *train = s->train, *dev = s->dev;
    if (train->pairs != dev->pairs)
        return kh_fail(err, KH_EMISMATCH,
            "%s: the rows of train and dev do not have the same number of texts", dir);
    for (int k = 0; k < train->n_label && k < dev->n_label; k++)
        if (train->label[k] && dev->label[k] && strcmp(train->label[k], dev->label[k]) != 0)
            return kh_fail(err, KH_EMISMATCH,
                "%s: class %d is \"%s\" in train and \"%s\" in dev; name all classes in a "
                "labels.txt",
                dir, k, train->label[k], dev->label[k]);
    return 0;
}

int kh_split_open(kh_split *out, const char *dir, int shots, uint64_t seed,
    const kh_dataset_opts *opts, kh_err *err) {
    *out = (kh_split){ 0 };
    kh_folder ready = { 0 }, parts = { 0 };
    if (kh_file_exists(dir)) {
        int drawn = draw_from(out, dir, shots, seed, opts, err);
        if (drawn != 0)
            kh_split_close(out);
        return drawn;
    }
    int rc =
        shots > 0 ? kh_folder_split(dir, opts ? opts->task : NULL, shots, seed, &ready, err) : 0;
    if (rc == 0 && !ready.train)
        rc = kh_folder_find(dir, &parts, err);
    if (rc != 0)
        goto done;
    if (!ready.train && !parts.train)
        rc = kh_fail(err, KH_EMISSING,
            "%s: no train.tsv, train.csv or train.jsonl, and no ready-made split for %d shots and "
            "seed %llu",
            dir, shots, (unsigned long long)seed);
    else if (!ready.train && shots > 0)
        rc = draw_from(out, parts.train, shots, seed, opts, err);
    else if (!ready.train && !parts.dev)
        rc = kh_fail(err, KH_EMISSING,
            "%s: no dev.tsv, dev.csv or dev.jsonl beside the training rows; ask for a number of "
            "shots instead",
            dir);
    else {
        const kh_folder *p = ready.train ? &ready : &parts;
        rc = kh_dataset_open(&out->train, p->train, opts, err);
        if (rc == 0)
            rc = kh_dataset_open(&out->dev, p->dev, opts, err);
    }
    if (rc == 0)
        rc = check_parts(out, dir, err);
done:
    if (rc != 0)
        kh_split_close(out);
    kh_folder_free(&ready);
    kh_folder_free(&parts);
    return rc;
}

void kh_split_close(kh_split *s) {
    kh_dataset_close(s->train);
    kh_dataset_close(s->dev);
    *s = (kh_split){ 0 };
}

/* The rows of one file that are neither train nor dev. */
static int draw_rest(kh_dataset **out, const char *file, int shots, uint64_t seed,
    const kh_dataset_opts *opts, kh_err *err) {
    kh_dataset *all;
    kh_dataset **const part[] = { NULL, NULL, out };
    int rc = kh_dataset_open(&all, file, opts, err);
    if (rc == 0)
        rc = draw(part, all, shots, seed, err);
    kh_dataset_close(all);
    if (rc == 0 && kh_dataset_size(*out) == 0) {
        kh_dataset_close(*out);
        *out = NULL;
        rc = kh_fail(err, KH_EMISSING,
            "%s: %d shots for train and for dev leave no row to judge on; use fewer --shots", file,
            shots);
    }
    return rc;
}

int kh_test_open(kh_dataset **out, const char *dir, int shots, uint64_t seed,
    const kh_dataset_opts *opts, kh_err *err) {
    *out = NULL;
    if (kh_file_exists(dir))
        return draw_rest(out, dir, shots, seed, opts, err);
    kh_folder parts, ready = { 0 };
    int rc = kh_folder_find(dir, &parts, err);
    if (rc == 0 && !parts.test && shots > 0)
        rc = kh_folder_split(dir, opts ? opts->task : NULL, shots, seed, &ready, err);
    const char *path = parts.test ? parts.test : ready.test;
    if (rc == 0)
        rc = path
            ? kh_dataset_open(out, path, opts, err)
            : kh_fail(err, KH_EMISSING, "%s: no test.tsv, test.csv or test.jsonl to judge on", dir);
    kh_folder_free(&parts);
    kh_folder_free(&ready);
    return rc;
}
