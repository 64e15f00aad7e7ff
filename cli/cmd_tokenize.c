/* cmd_tokenize.c - keyhole tokenize: texts to token ids and back, one line each. */
#include "cli.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "text/pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct tokenize_opts {
    const char *model;
    bool json_input, json, special, plain, decode;
} tokenize_opts;

static const kh_opt table[] = {
    { "model", KH_OPT_TEXT, offsetof(tokenize_opts, model), .arg = "DIR|FILE|builtin",
        .required = true,
        .help = "a model folder, tokenizer.json, vocab.json (with merges.txt), vocab.txt or GGUF "
                "file" },
    { "decode", KH_OPT_FLAG, offsetof(tokenize_opts, decode),
        .help = "the other way: ids in, text out" },
    { "special", KH_OPT_FLAG, offsetof(tokenize_opts, special), "true",
        .help = "add special tokens around a text; with --decode, show them" },
    { "plain", KH_OPT_FLAG, offsetof(tokenize_opts, plain),
        .help = "take special tokens inside a text for ordinary characters" },
    { "json-input", KH_OPT_FLAG, offsetof(tokenize_opts, json_input),
        .help = "each line of input is JSON, so that a text may hold newlines" },
    CLI_JSON_OPTION(tokenize_opts),
    { 0 },
};

/* What one line of work needs. */
typedef struct job {
    const tokenize_opts *opts;
    kh_tokenizer *tokenizer;
    long number; /* of the line, from 1 */
    kh_ids ids;
    kh_buf out;
} job;

static int bad_line(const job *j, const char *expected, kh_err *err) {
    return kh_fail_at(err, KH_EFORMAT, "standard input", j->number, "expected %s", expected);
}

/* --------------------------------------------------------------------------------- text to ids */

static void print_ids(job *j) {
    for (int i = 0; i < j->ids.n; i++)
        kh_buf_printf(&j->out, "%s%d", i == 0 ? "" : " ", j->ids.id[i]);
}

static void print_tokens(job *j) {
    kh_json_out out = kh_json_out_init(&j->out, KH_JSON_COMPACT);
    kh_json_open_object(&out, NULL);
    kh_json_put_ints(&out, "ids", j->ids.id, (size_t)j->ids.n);
    kh_json_open_array(&out, "tokens");
    for (int i = 0; i < j->ids.n; i++) {
        const char *token = kh_tokenizer_token(j->tokenizer, j->ids.id[i]);
        kh_json_put_string(&out, NULL, token ? token : "");
    }
    kh_json_close(&out);
    kh_json_close(&out);
}

static int encode_line(job *j, const kh_buf *line, kh_err *err) {
    const char *text = line->data;
    size_t n = line->len;
    json_t *root = NULL;
    int rc = 0;
    if (j->opts->json_input) {
        if (kh_json_parse(line->data, line->len, "", &root, NULL) != 0 || !json_is_string(root))
            rc = bad_line(j, "a JSON string", err);
        else {
            text = json_string_value(root);
            n = json_string_length(root);
        }
    }
    unsigned flags =
        (j->opts->special ? KH_ENCODE_FRAME : 0u) | (j->opts->plain ? KH_ENCODE_PLAIN : 0u);
    if (rc == 0 && (rc = kh_tokenizer_encode(j->tokenizer, text, n, flags, &j->ids, err)) != 0)
        kh_err_prefix(err, "standard input:%ld", j->number);
    if (rc == 0 && j->opts->json)
        print_tokens(j);
    else if (rc == 0)
        print_ids(j);
    json_decref(root);
    return rc;
}

/* --------------------------------------------------------------------------------- ids to text */

static int add_id(job *j, long long id, kh_err *err) {
    int size = kh_tokenizer_size(j->tokenizer);
    if (id < 0 || id >= size)
        return kh_fail_at(err, KH_EARG, "standard input", j->number,
            "id %lld is outside the vocabulary, which goes from 0 to %d", id, size - 1);
    return kh_ids_push(&j->ids, (int32_t)id, err);
}

static int read_ids_json(job *j, const kh_buf *line, kh_err *err) {
    json_t *root = NULL;
    int rc = 0;
    const json_t *list = NULL;
    if (kh_json_parse(line->data, line->len, "", &root, NULL) == 0)
        list = json_is_object(root) ? json_object_get(root, "ids") : root;
    if (!json_is_array(list))
        rc = bad_line(j, "a JSON list of ids, or an object with one as its \"ids\"", err);
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++) {
        const json_t *id = json_array_get(list, i);
        rc = json_is_integer(id) ? add_id(j, json_integer_value(id), err)
                                 : bad_line(j, "whole numbers as ids", err);
    }
    json_decref(root);
    return rc;
}

static int read_ids(job *j, const kh_buf *line, kh_err *err) {
    const char *at = line->data;
    int rc = 0;
    while (rc == 0) {
        at += strspn(at, " \t");
        if (at == line->data + line->len)
            break;
        char *end;
        errno = 0;
        long long id = strtoll(at, &end, 10);
        if (end == at || errno != 0 || !strchr(" \t", *end) ||
            (*end == '\0' && end != line->data + line->len))
            return bad_line(j, "ids separated by spaces", err);
        rc = add_id(j, id, err);
        at = end;
    }
    return rc;
}

static int decode_line(job *j, const kh_buf *line, kh_err *err) {
    char *text;
    size_t n;
    int rc = j->opts->json_input ? read_ids_json(j, line, err) : read_ids(j, line, err);
    if (rc == 0)
        rc = kh_tokenizer_decode(
            j->tokenizer, j->ids.id, j->ids.n, !j->opts->special, &text, &n, err);
    if (rc != 0)
        return rc;
    if (j->opts->json)
        kh_json_quote(&j->out, text, n);
    else
        kh_buf_bytes(&j->out, text, n);
    kh_text_free(text);
    return 0;
}

/* ----------------------------------------------------------------------------------------- run */

/* The next argument, or without arguments the next line of standard input. */
static int next_text(const job *j, kh_buf *line, int n_args, char **args, kh_err *err) {
    if (n_args == 0)
        return cli_read_line(stdin, line, err);
    if (j->number == n_args)
        return 0;
    if (line->max == 0)
        *line = kh_buf_init(KH_BUF_MAX);
    kh_buf_reset(line);
    kh_buf_text(line, args[j->number]);
    return kh_buf_failed(line) ? kh_fail_memory(err) : 1;
}

static int run(void *opts, int n_args, char **args, kh_err *err) {
    job j = { .opts = opts, .out = kh_buf_init(KH_BUF_MAX) };
    kh_buf line = { 0 };
    int more = 0, rc = kh_tokenizer_open(&j.tokenizer, j.opts->model, err);
    while (rc == 0 && (more = next_text(&j, &line, n_args, args, err)) > 0) {
        j.number++;
        j.ids.n = 0;
        kh_buf_reset(&j.out);
        rc = j.opts->decode ? decode_line(&j, &line, err) : encode_line(&j, &line, err);
        kh_buf_char(&j.out, '\n');
        if (rc == 0 && kh_buf_failed(&j.out))
            rc = kh_fail_memory(err);
        if (rc == 0)
            fwrite(j.out.data, 1, j.out.len, stdout);
    }
    kh_buf_free(&line);
    kh_buf_free(&j.out);
    kh_ids_free(&j.ids);
    kh_tokenizer_close(j.tokenizer);
    return rc ? rc : more;
}

const cli_command cmd_tokenize = {
    .name = "tokenize",
    .args = "[TEXT...]",
    .max_args = -1,
    .summary = "Turn texts into token ids, or back",
    .text =
        "Prints the token ids of the texts, or of each line of standard input, exactly as\n"
        "Hugging Face's library \"tokenizers\" gives them. BPE, WordPiece and Unigram are\n"
        "known, and the vocabularies of GGUF files (llama, gpt2, bert); what uses anything\n"
        "else is refused by name.\n"
        "\n"
        "Examples\n"
        "  keyhole tokenize --model roberta-base 'Hello world'\n"
        "      0 31414 232 2\n"
        "  echo 'Hello world' | keyhole tokenize --model roberta-base --json\n"
        "      {\"ids\":[0,31414,232,2],\"tokens\":[\"<s>\",\"Hello\",\"\\u0120world\",\"</s>\"]}\n"
        "  echo '31414 232' | keyhole tokenize --model roberta-base --decode\n"
        "      Hello world\n"
        "  keyhole tokenize --model bert-base-uncased --no-special --json-input < texts.jsonl",
    .opts = table,
    .opts_size = sizeof(tokenize_opts),
    .run = run,
};
