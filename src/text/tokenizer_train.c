/* tokenizer_train.c - the public way to a vocabulary of one's own: bpe_train.h with a file at its
 * end. */
#include "text/bpe_train.h"

#include "base/err.h"
#include "base/file.h"

kh_tokenizer_train_opts kh_tokenizer_train_defaults(void) {
    /* as "keyhole tokenizer train": 30,000 tokens are what small models of this kind have */
    return (kh_tokenizer_train_opts){ .vocab = 30000, .min_frequency = 2 };
}

int kh_tokenizer_train(const kh_tokenizer_train_opts *o, const char *out, kh_err *err) {
    if (o->n_file < 1 || !o->file)
        return kh_fail(err, KH_EARG, "a vocabulary is learned from at least one file");
    kh_bpe_opts bpe = { .words = { .path = o->file,
                            .n_path = o->n_file,
                            .prefix_space = o->prefix_space,
                            .lowercase = o->lowercase },
        .vocab = o->vocab,
        .min_frequency = o->min_frequency,
        .style = o->gpt2 ? KH_BPE_GPT2 : KH_BPE_ROBERTA };
    kh_buf json = kh_buf_init(KH_BUF_MAX);
    int rc = kh_bpe_train(&bpe, o->hooks, &json, NULL, err);
    if (rc == 0)
        rc = kh_file_write(out, json.data, json.len, err);
    kh_buf_free(&json);
    return rc;
}
