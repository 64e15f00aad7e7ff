/* features.h - what a head reads of a row: hidden states of the last layer over the row in the
 * plain template. */
#ifndef KH_POSTERIOR_FEATURES_H
#define KH_POSTERIOR_FEATURES_H

#include "train/heads.h"
#include "plm/trainable.h"

typedef struct kh_features {
    kh_head_row *row; /* [n] with the rows' labels; their states lie in `state` */
    int n;
    float *state;
    size_t used, cap; /* numbers */
} kh_features;        /* start as {0} */

/* Free it, also after failure. Of label words with several lengths the first has the say about the
 * template. */
int kh_features_read(kh_features *, kh_plm *, const kh_task *, const kh_words *,
    const kh_batch_opts *, kh_pool, const kh_row *rows, int n, kh_err *err);
void kh_features_free(kh_features *);

#endif
