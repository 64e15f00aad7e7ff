/* folder.h - what is where in a data folder. */
#ifndef KH_DATA_FOLDER_H
#define KH_DATA_FOLDER_H

#include "keyhole.h"

/* Files of a folder; NULL: not there. Free with kh_folder_free. */
typedef struct kh_folder {
    char *train, *dev, *test;
} kh_folder;
void kh_folder_free(kh_folder *);

/* train, dev and test (.tsv, .csv, .jsonl, in this order of preference) of a folder itself. */
int kh_folder_find(const char *dir, kh_folder *out, kh_err *err);

/* The files of the ready-made split of (shots, seed), with the test file that goes with it if there
 * is one. All NULL if the folder has none. task may be NULL. A folder that is itself the split of
 * other shots or another seed is refused. */
int kh_folder_split(
    const char *dir, const kh_task *task, int shots, uint64_t seed, kh_folder *out, kh_err *err);

typedef struct kh_split_name {
    int shots;
    uint64_t seed;
    char *dir; /* for LM-BFF's tree: the folder K-S; NULL for kshotK/seedS.* */
} kh_split_name;

/* All ready-made splits of a folder, by shots and seed. *n of them in *out; free with
 * kh_split_names_free. */
int kh_folder_splits(
    const char *dir, const kh_task *task, kh_split_name **out, int *n, kh_err *err);
void kh_split_names_free(kh_split_name *, int n);

#endif
