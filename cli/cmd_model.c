/* cmd_model.c - keyhole model random, a folder with a model of random weights; keyhole model prune,
 * one with fewer words. */
#include "corpus_args.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_out.h"
#include "train/convert.h"
#include "train/prune_model.h"
#include "model/random_model.h"
#include "text/tokenizer.h"

#include <string.h>

typedef struct random_opts {
    int arch, family, dtype;
    const char *out, *tokenizer;
    uint64_t seed;
    double std;
    int vocab, layers, hidden, heads, inner, positions;
} random_opts;

enum { ARCH_TINY = 7 };
static const char *const arch_name[] = { "roberta-large", "roberta-base", "bert-large", "bert-base",
    "gpt2", "tinyllama", "modernbert-base" };
static const char *const tiny_name[] = { "roberta-tiny", "bert-tiny", "gpt2-tiny", "llama-tiny",
    "modernbert-tiny" };

static const kh_opt random_table[] = {
    { "out", KH_OPT_TEXT, offsetof(random_opts, out), .arg = "DIR", .help = "the folder to write",
        .required = true },
    { "arch", KH_OPT_CHOICE, offsetof(random_opts, arch), "tiny",
        .arg =
            "roberta-large|roberta-base|bert-large|bert-base|gpt2|tinyllama|modernbert-base|tiny",
        .help = "whose sizes it has" },
    { "family", KH_OPT_CHOICE, offsetof(random_opts, family), "roberta",
        .arg = "roberta|bert|gpt2|llama|modernbert", .help = "what a tiny model is" },
    { "dtype", KH_OPT_CHOICE, offsetof(random_opts, dtype), "f32", .arg = "f32|f16|bf16",
        .help = "how numbers are stored" },
    { "seed", KH_OPT_SEED, offsetof(random_opts, seed), "0", .arg = "N",
        .help = "same seed, same file" },
    { "std", KH_OPT_NUMBER, offsetof(random_opts, std), "0.02", .min = 0, .max = 10, .arg = "X",
        .help = "standard deviation of the weights" },
    { "vocab", KH_OPT_INT, offsetof(random_opts, vocab), "0", .max = 1 << 24, .arg = "N",
        .help = "vocabulary; 0: the tokenizer's, or else the architecture's" },
    { "layers", KH_OPT_INT, offsetof(random_opts, layers), "0", .max = 1024, .arg = "N",
        .help = "layers; 0: the architecture's" },
    { "hidden", KH_OPT_INT, offsetof(random_opts, hidden), "0", .max = 1 << 16, .arg = "N",
        .help = "hidden size; 0: the architecture's" },
    { "heads", KH_OPT_INT, offsetof(random_opts, heads), "0", .max = 1 << 12, .arg = "N",
        .help = "attention heads; 0: the architecture's" },
    { "inner", KH_OPT_INT, offsetof(random_opts, inner), "0", .max = 1 << 20, .arg = "N",
        .help = "feed-forward size; 0: the architecture's" },
    { "positions", KH_OPT_INT, offsetof(random_opts, positions), "0", .max = 1 << 20, .arg = "N",
        .help = "rows of the position table; 0: the architecture's" },
    { "tokenizer", KH_OPT_TEXT, offsetof(random_opts, tokenizer), .arg = "PATH",
        .help = "a tokenizer's folder or file (tokenizer.json, vocab.txt), to be put beside the "
                "model" },
    { 0 },
};

/* The vocabulary must hold every id of the tokenizer, and the padding token is the tokenizer's. */
static int fit_tokenizer(kh_config *c, const random_opts *o, kh_err *err) {
    kh_tokenizer *tokenizer;
    int rc = kh_tokenizer_open(&tokenizer, o->tokenizer, err);
    if (rc != 0)
        return rc;
    int size = kh_tokenizer_size(tokenizer), pad = kh_tokenizer_special(tokenizer, KH_TOKEN_PAD);
    kh_tokenizer_close(tokenizer);
    if (o->vocab > 0 && o->vocab < size)
        return kh_fail(err, CLI_USAGE, "--vocab %d is too small for %s, which has %d tokens",
            o->vocab, o->tokenizer, size);
    if (o->vocab == 0)
        c->vocab = size;
    if (pad >= 0 && !c->arch->causal)
        kh_config_set_pad(c, pad);
    return 0;
}

static void set(int *field, int value) {
    if (value > 0)
        *field = value;
}

static int run_random(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args, (void)args;
    const random_opts *o = opts;
    kh_random_opts r = {
        .config = *kh_arch_find(o->arch == ARCH_TINY ? tiny_name[o->family] : arch_name[o->arch]),
        .dtype = (kh_dtype)(KH_DTYPE_F32 + o->dtype),
        .std = o->std,
        .seed = o->seed,
        .hooks = &cli_hooks,
    };
    set(&r.config.vocab, o->vocab);
    set(&r.config.layers, o->layers);
    set(&r.config.hidden, o->hidden);
    set(&r.config.heads, o->heads);
    set(&r.config.inner, o->inner);
    set(&r.config.positions, o->positions);
    int rc = o->tokenizer ? fit_tokenizer(&r.config, o, err) : 0;
    if (rc == 0)
        rc = kh_random_model_write(o->out, &r, err);
    if (rc == 0 && o->tokenizer)
        rc = kh_tokenizer_copy(o->tokenizer, o->out, err);
    return rc;
}

const cli_command cmd_model_random = {
    .name = "model random",
    .args = "",
    .summary = "Write a model with random weights",
    .text = "Writes config.json and model.safetensors as Hugging Face lays them out, with\n"
            "weights as its classes start them: normal, mean 0, standard deviation 0.02.\n"
            "The weights depend on the seed alone, not on machine or threads. Random models\n"
            "answer nonsense at full speed: they are for tests, benchmarks and as the start\n"
            "of training. The file is written piece by piece and appears when it is whole.\n"
            "\n"
            "  keyhole model random --arch tiny --family bert --out /tmp/tiny\n"
            "  keyhole model random --arch roberta-large --dtype bf16 --out /tmp/large\n"
            "  keyhole model random --layers 4 --hidden 256 --heads 4 --inner 1024 \\\n"
            "      --tokenizer tokenizer.json --out /tmp/start",
    .opts = random_table,
    .opts_size = sizeof(random_opts),
    .run = run_random,
};

/* --------------------------------------------------------------------------------------- prune */

typedef struct prune_opts {
    const char *model, *out;
    kh_strings corpus, task;
    int vocab, dtype;
    bool json;
} prune_opts;

static const kh_opt prune_table[] = {
    { "model", KH_OPT_TEXT, offsetof(prune_opts, model), .arg = "DIR",
        .help = "a BERT model with its tokenizer.json", .required = true },
    { "corpus", KH_OPT_LIST, offsetof(prune_opts, corpus), .arg = "FILE[:WEIGHT]",
        .help = "text whose tokens are counted, times the weight", .required = true },
    { "out", KH_OPT_TEXT, offsetof(prune_opts, out), .arg = "DIR", .help = "the folder to write",
        .required = true },
    { "vocab", KH_OPT_INT, offsetof(prune_opts, vocab), "12000", .min = 1, .max = 1 << 22,
        .arg = "N", .help = "tokens that stay" },
    { "task", KH_OPT_LIST, offsetof(prune_opts, task), .arg = "NAME|FILE",
        .help = "label words of these tasks stay too; those of built-in tasks always do" },
    { "dtype", KH_OPT_CHOICE, offsetof(prune_opts, dtype), "same", .arg = "same|f32|f16|bf16",
        .help = "how numbers are stored" },
    { "json", KH_OPT_FLAG, offsetof(prune_opts, json), .help = "print the result as JSON" },
    { 0 },
};

typedef struct word_list {
    const char **item;
    int n;
    size_t cap;
} word_list;

static int add_words(word_list *w, const kh_task *task, kh_err *err) {
    for (int k = 0; k < task->n_label; k++)
        for (int i = 0; i < task->label[k].n_word; i++) {
            if (!kh_grow(&w->item, &w->cap, (size_t)w->n + 1, sizeof *w->item))
                return kh_fail_memory(err);
            w->item[w->n++] = task->label[k].word[i];
        }
    return 0;
}

static int print_pruned(const prune_opts *o, const kh_pruned *r, kh_err *err) {
    if (!o->json) {
        printf("%s: %d of %d tokens, %.2f %% of the corpus's; %zu weights\n", o->out, r->after,
            r->before, 100 * r->covered, r->params);
        return 0;
    }
    kh_buf b = kh_buf_init(KH_BUF_MAX);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_string(&j, "out", o->out);
    kh_json_put_int(&j, "before", r->before);
    kh_json_put_int(&j, "after", r->after);
    kh_json_put_fixed(&j, "covered", r->covered, 6);
    kh_json_put_int(&j, "params", (long long)r->params);
    kh_json_close(&j);
    return cli_print_json(&j, stdout, err);
}

static int run_prune(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args, (void)args;
    const prune_opts *o = opts;
    word_list words = { 0 };
    cli_corpus corpus;
    const kh_task **task = kh_calloc((size_t)o->task.n + 1, sizeof *task);
    int rc = cli_corpus_parse(&corpus, &o->corpus, err);
    if (rc == 0 && !task)
        rc = kh_fail_memory(err);
    for (int i = 0; kh_task_builtin(i) && rc == 0; i++)
        rc = add_words(&words, kh_task_builtin(i), err);
    for (int i = 0; i < o->task.n && rc == 0; i++)
        if ((rc = kh_task_open(&task[i], o->task.item[i], err)) == 0)
            rc = add_words(&words, task[i], err);
    kh_prune_opts p = {
        .model = o->model,
        .out = o->out,
        .corpus = { .file = (const char *const *)corpus.path,
            .weight = corpus.weight,
            .n_file = corpus.n,
            .hooks = &cli_hooks },
        .word = words.item,
        .n_word = words.n,
        .vocab = o->vocab,
        .dtype = o->dtype == 0 ? KH_DTYPE_ANY : (kh_dtype)(KH_DTYPE_F32 + o->dtype - 1),
    };
    kh_pruned result;
    if (rc == 0)
        rc = kh_model_prune(&result, &p, err);
    if (rc == 0)
        rc = print_pruned(o, &result, err);
    for (int i = 0; task && i < o->task.n; i++)
        kh_task_close(task[i]);
    kh_free(task);
    kh_free(words.item);
    cli_corpus_free(&corpus);
    return rc;
}

const cli_command cmd_model_prune = {
    .name = "model prune",
    .args = "",
    .summary = "Take from a BERT model the words that a corpus does not use",
    .text = "Most weights of a small model are its vocabulary. This counts the tokens of a\n"
            "corpus, keeps the most frequent ones, their rows of the word embeddings and of\n"
            "the decoder, and everything else as it is. Special tokens, single characters\n"
            "and label words always stay. A text whose tokens stayed has the same hidden\n"
            "states as before; other words are spelled with the tokens that are left. To\n"
            "learn to live with that, and for a head if there is none, train on:\n"
            "\n"
            "  keyhole model prune --model minilm --corpus wiki.txt reviews.txt:3 \\\n"
            "      --vocab 12000 --task reviews/task.json --out small\n"
            "  keyhole pretrain --init small --tokenizer small --corpus wiki.txt \\\n"
            "      reviews.txt:3 --out model --lr 5e-4 --tokens 1e8 --dtype bf16",
    .opts = prune_table,
    .opts_size = sizeof(prune_opts),
    .run = run_prune,
};

/* ------------------------------------------------------------------------------------- convert */

typedef struct convert_opts {
    const char *model, *out;
    int format, type;
    bool json;
} convert_opts;

enum { FORMAT_GGUF, FORMAT_SAFETENSORS };
static const kh_dtype convert_types[] = { KH_DTYPE_Q8_0, KH_DTYPE_Q4_0, KH_DTYPE_BF16, KH_DTYPE_F16,
    KH_DTYPE_F32 };

static const kh_opt convert_table[] = {
    { "model", KH_OPT_TEXT, offsetof(convert_opts, model), .arg = "DIR|FILE|builtin",
        .help = "a model folder or GGUF file", .required = true },
    { "format", KH_OPT_CHOICE, offsetof(convert_opts, format), "gguf", .arg = "gguf|safetensors",
        .help = "the container" },
    { "type", KH_OPT_CHOICE, offsetof(convert_opts, type), "bf16", .arg = "q8_0|q4_0|bf16|f16|f32",
        .help = "how matrices are stored" },
    { "out", KH_OPT_TEXT, offsetof(convert_opts, out), .arg = "FILE|DIR",
        .help = "the GGUF file, or the folder, to write", .required = true },
    CLI_JSON_OPTION(convert_opts),
    { 0 },
};

static int run_convert(void *opts, int n_args, char **args, kh_err *err) {
    (void)n_args, (void)args;
    const convert_opts *o = opts;
    kh_converted c;
    int rc = kh_model_convert(&c,
        &(kh_convert_opts){ .model = o->model,
            .out = o->out,
            .gguf = o->format == FORMAT_GGUF,
            .dtype = convert_types[o->type],
            .hooks = &cli_hooks },
        err);
    if (rc != 0)
        return rc;
    if (!o->json) {
        printf("%s: %d tensors, %.1f MB of weights, %.1f before\n", o->out, c.tensors,
            (double)c.after / 1e6, (double)c.before / 1e6);
        return 0;
    }
    kh_buf b = kh_buf_init(1 << 16);
    kh_json_out j = kh_json_out_init(&b, KH_JSON_COMPACT);
    kh_json_open_object(&j, NULL);
    kh_json_put_int(&j, "tensors", c.tensors);
    kh_json_put_int(&j, "bytes_before", (long long)c.before);
    kh_json_put_int(&j, "bytes", (long long)c.after);
    kh_json_close(&j);
    return cli_print_json(&j, stdout, err);
}

const cli_command cmd_model_convert = {
    .name = "model convert",
    .args = "",
    .summary = "Write a model in another container or number format",
    .text = "Makes a GGUF file of a folder, or a folder of a GGUF file. In a GGUF file matrices\n"
            "may be rounded to blocks of 8 bits (q8_0: half of bf16) or 4 bits (q4_0: about\n"
            "a third of it, as word embeddings have 8); an encoder keeps its\n"
            "masked-language-model head, and the tokenizer goes along. A file made from a\n"
            "folder is for keyhole: llama.cpp has other names, and no masked-language-model\n"
            "heads. A file made from one of llama.cpp's can be read by both.\n"
            "\n"
            "Examples\n"
            "  keyhole model convert --model builtin --type q8_0 --out small.gguf\n"
            "  keyhole fill-mask --model small.gguf \"The film was <mask>.\"\n"
            "  keyhole model convert --model tinyllama.gguf --format safetensors --out tinyllama",
    .opts = convert_table,
    .opts_size = sizeof(convert_opts),
    .run = run_convert,
};
