/* split.c - the few-shot split: ready-made, or drawn by seed (METHODS: shuffle, walk, first k of
 * each class to train, next k to dev). The draw depends on the seed and on the order of the rows in
 * the file, on nothing else. */
#include "base/alloc.h"
#include "base/err.h"
#include "base/rng.h"
#include "data/dataset.h"
#include "data/folder.h"

#include <string.h>

/* A class with too few rows would make a lopsided split without a word; name it instead. */
static int check_classes(const kh_dataset *d, const int *count, int shots, kh_err *err) {
    for (int k = 0; k < d->n_label; k++)
        if (count[k] < 2 * (long)shots)
            return kh_fail(err, KH_EFORMAT,
                "%s: class %d%s%s%s has %d rows; %d shots for train and as many for dev need %ld",
                d->path, k, d->label[k] ? " (" : "", d->label[k] ? d->label[k] : "",
                d->label[k] ? ")" : "", count[k], shots, 2 * (long)shots);
    return d->n_label > 1
        ? 0
        : kh_fail(err, KH_EFORMAT, "%s: one class only; nothing to learn", d->path);
}

static int draw(kh_split *out, const kh_dataset *d, int shots, uint64_t seed, kh_err *err) {
    size_t n = (size_t)d->n_row, n_label = (size_t)d->n_label;
    int *order = kh_malloc(n * sizeof *order), *picked = kh_malloc(n * sizeof *picked),
        *count = kh_malloc(n_label * sizeof *count);
    int rc = order && picked && count ? 0 : kh_fail_memory(err);
    if (rc != 0)
        goto done;
    kh_dataset_count(d, count);
    rc = check_classes(d, count, shots, err);
    if (rc != 0)
        goto done;
    kh_rng r = kh_rng_stream(seed, KH_RNG_SPLIT, 0, 0);
    kh_rng_permutation(&r, order, d->n_row);
    kh_dataset **const part[] = { &out->train, &out->dev };
    for (int p = 0; p < 2 && rc == 0; p++) {
        int taken = 0;
        for (size_t k = 0; k < n_label; k++)
            count[k] = 0;
        for (int i = 0; i < d->n_row; i++) {
            int label = d->row[order[i]].label;
            if (label < 0 || count[label] >= (p + 1) * shots)
                continue;
            if (count[label]++ >= p * shots)
                picked[taken++] = order[i];
        }
        rc = kh_dataset_select(part[p], d, picked, taken, err);
    }
done:
    kh_free(order);
    kh_free(picked);
    kh_free(count);
    return rc;
}

static int draw_from(kh_split *out, const char *train, int shots, uint64_t seed,
    const kh_dataset_opts *opts, kh_err *err) {
    kh_dataset *all;
    int rc = kh_dataset_open(&all, train, opts, err);
    if (rc == 0)
        rc = draw(out, all, shots, seed, err);
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

int kh_test_open(kh_dataset **out, const char *dir, int shots, uint64_t seed,
    const kh_dataset_opts *opts, kh_err *err) {
    *out = NULL;
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
