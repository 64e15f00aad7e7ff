/* cmd_tokenizer.c - "keyhole tokenizer train": a vocabulary of one's own. */
#include "cli.h"

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_out.h"
#include "text/bpe_train.h"

#include <string.h>

typedef struct train_opts {
    kh_strings corpus, special;
    int vocab, min_frequency, style;
    uint64_t limit_bytes;
    bool prefix_space, lowercase, json;
    const char *out;
} train_opts;

static const kh_opt train_table[] = {
    { "corpus", KH_OPT_LIST, offsetof(train_opts, corpus), .arg = "FILE",
        .help = "plain UTF-8 text, one text per line; - is standard input", .required = true },
    { "out", KH_OPT_TEXT, offsetof(train_opts, out), .arg = "FILE",
        .help = "the tokenizer.json to write", .required = true },
    { "vocab", KH_OPT_INT, offsetof(train_opts, vocab), "30000", .min = 1, .max = 10000000,
        .arg = "N", .help = "tokens in all: special tokens, the 256 bytes, merges" },
    { "min-frequency", KH_OPT_INT, offsetof(train_opts, min_frequency), "2", .min = 1,
        .max = 2147483647, .arg = "N", .help = "do not merge a pair that occurs less often" },
    { "style", KH_OPT_CHOICE, offsetof(train_opts, style), "roberta", .arg = "roberta|gpt2",
        .help = "put <s> and </s> around texts, or nothing" },
    { "special", KH_OPT_LIST, offsetof(train_opts, special), .arg = "TOKEN",
        .help = "special tokens, ids from 0; default <s> <pad> </s> <unk> <mask>, for gpt2 "
                "<|endoftext|>" },
    { "prefix-space", KH_OPT_FLAG, offsetof(train_opts, prefix_space),
        .help = "start every text with a space" },
    { "lowercase", KH_OPT_FLAG, offsetof(train_opts, lowercase),
        .help = "treat Film and film alike: capital letters become small" },
    { "limit-bytes", KH_OPT_SEED, offsetof(train_opts, limit_bytes), "0", .arg = "N",
        .help = "stop reading after the line that holds byte N; 0 reads everything" },
    { "json", KH_OPT_FLAG, offsetof(train_opts, json), .help = "print the summary as JSON" },
    { 0 },
};

static int print_json(const train_opts *o, const kh_bpe_stats *s, kh_err *err) {
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_buf options = kh_buf_init(KH_BUF_MAX);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "out", o->out);
    kh_json_put_int(&j, "tokens", s->tokens);
    kh_json_put_int(&j, "merges", s->merges);
    kh_json_put_int(&j, "bytes", (long long)s->bytes);
    kh_json_put_int(&j, "lines", (long long)s->lines);
    kh_json_put_int(&j, "words", (long long)s->words);
    kh_json_put_int(&j, "distinct_words", s->distinct);
    kh_opts_json(train_table, o, &options);
    kh_json_put_json(&j, "options", options.data ? options.data : "", options.len);
    kh_json_close(&j);
    kh_buf_free(&options);
    return cli_print_json(&j, stdout, err);
}

static int run_train(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args, (void)args;
    const train_opts *o = opts;
    const kh_bpe_opts bpe = {
        .words = { o->corpus.item, o->corpus.n, o->limit_bytes, o->prefix_space, o->lowercase },
        .vocab = o->vocab,
        .min_frequency = o->min_frequency,
        .style = o->style == 0 ? KH_BPE_ROBERTA : KH_BPE_GPT2,
        .special = o->special.item,
        .n_special = o->special.n,
    };
    kh_buf tokenizer = kh_buf_init(KH_BUF_MAX);
    kh_bpe_stats s;
    int rc = kh_bpe_train(&bpe, &cli_hooks, &tokenizer, &s, err);
    if (rc == 0)
        rc = kh_file_write(o->out, tokenizer.data, tokenizer.len, err);
    kh_buf_free(&tokenizer);
    if (rc != 0)
        return rc;
    if (o->json)
        return print_json(o, &s, err);
    printf("%s: %d tokens, %d merges, from %llu lines, %llu words, %d of them distinct\n", o->out,
        s.tokens, s.merges, (unsigned long long)s.lines, (unsigned long long)s.words, s.distinct);
    return 0;
}

const cli_command cmd_tokenizer_train = {
    .name = "tokenizer train",
    .args = "",
    .summary = "Learn a byte-level BPE vocabulary from text and write a tokenizer.json",
    .text = "Reads plain text, one text per line, and merges the most frequent pair of\n"
            "neighbouring tokens, again and again, until the vocabulary is full. The result\n"
            "is the one that Hugging Face's ByteLevelBPETokenizer learns, merge for merge\n"
            "(equally frequent pairs: the smaller ids first), and its tools read the file.\n"
            "The same text and options give the same bytes for any number of threads.\n"
            "\n"
            "  keyhole tokenizer train --corpus wiki.txt --vocab 30000 --out tokenizer.json\n"
            "  xz -dc wiki.txt.xz | keyhole tokenizer train --corpus - --out tokenizer.json\n"
            "  keyhole tokenizer train --corpus a.txt b.txt --style gpt2 --vocab 8000 \\\n"
            "      --special '<|endoftext|>' '<|pad|>' --out tokenizer.json",
    .opts = train_table,
    .opts_size = sizeof(train_opts),
    .run = run_train,
};
