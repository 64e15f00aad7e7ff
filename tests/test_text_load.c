/* test_text_load.c - tokenizers that cannot be opened or cannot go on, each with its sentence; and
 * memory that runs out at every single allocation. */
#include "test.h"

#include "base/alloc.h"
#include "base/file.h"
#include "text/tokenizer.h"

/* --------------------------------------------------------------------------- one sentence each */

#define MODEL \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define WITH(key, value) "{\"" key "\":" value "," MODEL "}"
#define NORMALIZER(value) WITH("normalizer", value)
#define PRE(value) WITH("pre_tokenizer", value)
#define POST(value) WITH("post_processor", value)
#define DECODER(value) WITH("decoder", value)
#define ADDED(value) WITH("added_tokens", "[" value "]")
#define BPE(rest) "{\"model\":{\"type\":\"BPE\"," rest "}}"
#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}"
#define TEMPLATE(single, tokens) \
    POST("{\"type\":\"TemplateProcessing\",\"single\":" single \
         ",\"pair\":[],\"special_tokens\":" tokens "}")
#define A_PIECE "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define THREE \
    "{\"type\":\"TemplateProcessing\",\"single\":[" A_PIECE "," A_PIECE "," A_PIECE \
    "],\"pair\":[],\"special_tokens\":{}}"
#define FLAGS \
    "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":" \
    "true"
#define SPLIT(pattern) \
    PRE("{\"type\":\"Split\",\"pattern\":" pattern ",\"behavior\":\"Isolated\",\"invert\":false}")

static const struct bad {
    const char *name, *json, *says;
} bad[] = {
    { "not JSON", "{", "t.json:1: not valid JSON" },
    { "duplicate key", "{\"model\":1,\"model\":2}",
        "t.json:1: not valid JSON: duplicate object key" },
    { "not an object", "[]", "t.json: a tokenizer.json must hold an object" },
    { "no model", "{}", "t.json: model: must be an object" },
    { "model without type", "{\"model\":{}}", "t.json: model: \"type\" is missing" },
    { "unknown model", "{\"model\":{\"type\":\"WordLevel\"}}",
        "t.json: model: type \"WordLevel\" is not supported; BPE, WordPiece and Unigram are" },
    { "type of model", "{\"model\":{\"type\":3}}", "t.json: model: \"type\" must be a string" },
    { "dropout", BPE("\"dropout\":0.1," VOCAB ",\"merges\":[]"),
        "t.json: model: \"dropout\" is 0.1: tokenizing at random is not supported" },
    { "no vocabulary", BPE("\"merges\":[]"), "t.json: model: the vocabulary must be an object" },
    { "empty vocabulary", BPE("\"vocab\":{},\"merges\":[]"),
        "t.json: model: the vocabulary must be an object" },
    { "id of a token", BPE("\"vocab\":{\"a\":\"0\"},\"merges\":[]"),
        "t.json: model: the id of token \"a\" must be a whole number" },
    { "negative id", BPE("\"vocab\":{\"a\":-1},\"merges\":[]"),
        "t.json: model: token \"a\" has id -1, ids go from 0 to 4194303" },
    { "huge id", BPE("\"vocab\":{\"a\":4194304},\"merges\":[]"),
        "t.json: model: token \"a\" has id 4194304" },
    { "same id", BPE("\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]"),
        "t.json: model: tokens \"a\" and \"b\" have the same id 1" },
    { "merges", BPE(VOCAB ",\"merges\":{}"), "t.json: model: \"merges\" must be a list" },
    { "merge of one", BPE(VOCAB ",\"merges\":[\"ab\"]"),
        "t.json: model: merges[0]: \"ab\" is not two tokens" },
    { "merge of three", BPE(VOCAB ",\"merges\":[\"a b\",\"a b c\"]"),
        "t.json: model: merges[1]: \"a b c\" is not two tokens" },
    { "merge of a number", BPE(VOCAB ",\"merges\":[[\"a\",1]]"),
        "t.json: model: merges[0]: a merge must be" },
    { "unknown left", BPE(VOCAB ",\"merges\":[\"x b\"]"),
        "t.json: model: merges[0]: token \"x\" is not in the vocabulary" },
    { "unknown right", BPE(VOCAB ",\"merges\":[[\"a\",\"y\"]]"),
        "t.json: model: merges[0]: token \"y\" is not in the vocabulary" },
    { "unknown outcome", BPE(VOCAB ",\"merges\":[\"b a\"]"),
        "t.json: model: merges[0]: token \"ba\" is not in the vocabulary" },
    { "shorter than prefix",
        BPE("\"continuing_subword_prefix\":\"##\"," VOCAB ",\"merges\":[\"a b\"]"),
        "\"b\" is shorter than the continuing_subword_prefix" },
    { "type of an option", BPE("\"fuse_unk\":1," VOCAB ",\"merges\":[]"),
        "t.json: model: \"fuse_unk\" must be true or false" },
    { "longest word",
        "{\"model\":{\"type\":\"WordPiece\",\"max_input_chars_per_word\":-1," VOCAB "}}",
        "\"max_input_chars_per_word\" must be a whole number" },

    { "unknown normalizer", NORMALIZER("{\"type\":\"Nmt\"}"),
        "t.json: normalizer: type \"Nmt\" is not supported" },
    { "normalizer is a list", NORMALIZER("[]"), "t.json: normalizer: must be an object or null" },
    { "normalizer without type", NORMALIZER("{}"), "t.json: normalizer: \"type\" is missing" },
    { "sequence without list", NORMALIZER("{\"type\":\"Sequence\"}"),
        "t.json: normalizer: a Sequence needs a list \"normalizers\"" },
    { "null in a sequence", NORMALIZER("{\"type\":\"Sequence\",\"normalizers\":[null]}"),
        "t.json: normalizer.normalizers[0]: must be an object" },
    { "unknown in a sequence",
        NORMALIZER("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"X\"}]}"),
        "t.json: normalizer.normalizers[1]: type \"X\" is not supported" },
    { "BertNormalizer", NORMALIZER("{\"type\":\"BertNormalizer\"}"),
        "t.json: normalizer (BertNormalizer): \"clean_text\" is missing" },
    { "Strip", NORMALIZER("{\"type\":\"Strip\",\"strip_left\":true}"),
        "t.json: normalizer (Strip): \"strip_right\" is missing" },
    { "Prepend", NORMALIZER("{\"type\":\"Prepend\"}"),
        "t.json: normalizer (Prepend): \"prepend\" is missing" },
    { "Replace", NORMALIZER("{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"X\":\"\"}}"),
        "t.json: normalizer (Replace): \"pattern\" must be {\"String\": ...} or {\"Regex\": ...}" },

    { "unknown pre-tokenizer", PRE("{\"type\":\"UnicodeScripts\"}"),
        "t.json: pre_tokenizer: type \"UnicodeScripts\" is not supported" },
    { "ByteLevel", PRE("{\"type\":\"ByteLevel\",\"add_prefix_space\":\"yes\"}"),
        "t.json: pre_tokenizer (ByteLevel): \"add_prefix_space\" must be true or false" },
    { "behavior", PRE("{\"type\":\"Punctuation\",\"behavior\":\"x\"}"),
        "t.json: pre_tokenizer (Punctuation): \"behavior\" is \"x\", expected Removed" },
    { "Digits", PRE("{\"type\":\"Digits\"}"),
        "t.json: pre_tokenizer (Digits): \"individual_digits\" is missing" },
    { "Split", PRE("{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"invert\":false}"),
        "t.json: pre_tokenizer (Split): \"behavior\" is missing" },
    { "Metaspace of two", PRE("{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"),
        "t.json: pre_tokenizer (Metaspace): \"replacement\" must be one character" },
    { "Metaspace of none", PRE("{\"type\":\"Metaspace\",\"replacement\":\"\"}"),
        "\"replacement\" must be one character" },
    { "Metaspace scheme",
        PRE("{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"x\"}"),
        "\"prepend_scheme\" is \"x\", expected always, first or never" },
    { "Metaspace prefix",
        PRE("{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":false}"),
        "\"add_prefix_space\" is false but \"prepend_scheme\" is not \"never\"" },

    { "bad regex", SPLIT("{\"Regex\":\"(\"}"),
        "t.json: pre_tokenizer (Split): the regular expression \"(\" is not valid: missing closing "
        "parenthesis" },
    { "regex with &&", SPLIT("{\"Regex\":\"[a&&b]\"}"),
        "the regular expression has \"&&\" inside [...], which is not supported" },
    { "regex with nested class", SPLIT("{\"Regex\":\"[a[bc]]\"}"),
        "the regular expression has \"[\" inside [...], which is not supported" },
    { "regex with {}+", SPLIT("{\"Regex\":\"a{1,3}+\"}"),
        "the regular expression has \"+\" after {...}, which is not supported" },

    { "unknown post-processor", POST("{\"type\":\"X\"}"),
        "t.json: post_processor: type \"X\" is not supported" },
    { "Roberta cls", POST("{\"type\":\"RobertaProcessing\",\"cls\":[\"a\"],\"sep\":[\"a\",0]}"),
        "t.json: post_processor (RobertaProcessing): \"cls\" must be [token, id]" },
    { "Bert sep", POST("{\"type\":\"BertProcessing\",\"cls\":[\"a\",0],\"sep\":[\"a\",-1]}"),
        "t.json: post_processor (BertProcessing): \"sep\" must be [token, id]" },
    { "id outside", POST("{\"type\":\"BertProcessing\",\"cls\":[\"a\",0],\"sep\":[\"a\",3]}"),
        "t.json: post_processor: id 3 is outside the vocabulary, whose highest id is 2" },
    { "template tokens", TEMPLATE("[]", "1"),
        "t.json: post_processor (TemplateProcessing): \"special_tokens\" must be an object" },
    { "template list", TEMPLATE("1", "{}"), "\"single\" must be a list of at most 1000 pieces" },
    { "template piece", TEMPLATE("[{\"X\":{}}]", "{}"),
        "a piece of \"single\" must be {\"Sequence\": ...} or {\"SpecialToken\": ...}" },
    { "template sequence", TEMPLATE("[{\"Sequence\":{\"id\":\"C\",\"type_id\":0}}]", "{}"),
        "a Sequence of \"single\" has id \"C\", expected A or B" },
    { "template B", TEMPLATE("[{\"Sequence\":{\"id\":\"B\",\"type_id\":0}}]", "{}"),
        "\"single\" speaks of sequence B" },
    { "template type", TEMPLATE("[{\"Sequence\":{\"id\":\"A\",\"type_id\":-1}}]", "{}"),
        "\"type_id\" must be a whole number" },
    { "template special", TEMPLATE("[{\"SpecialToken\":{\"id\":\"x\",\"type_id\":0}}]", "{}"),
        "special token \"x\" has no list \"ids\" in \"special_tokens\"" },
    { "template id",
        TEMPLATE("[{\"SpecialToken\":{\"id\":\"x\",\"type_id\":0}}]", "{\"x\":{\"ids\":[\"0\"]}}"),
        "an id of special token \"x\" is not a whole number" },
    { "template after a template",
        POST("{\"type\":\"Sequence\",\"processors\":[" THREE "," THREE "]}"),
        "TemplateProcessing follows a post-processor that already made 3 parts" },

    { "unknown decoder", DECODER("{\"type\":\"CTC\"}"),
        "t.json: decoder: type \"CTC\" is not supported" },
    { "WordPiece decoder", DECODER("{\"type\":\"WordPiece\",\"prefix\":\"##\"}"),
        "t.json: decoder (WordPiece): \"cleanup\" is missing" },
    { "BPEDecoder", DECODER("{\"type\":\"BPEDecoder\"}"),
        "t.json: decoder (BPEDecoder): \"suffix\" is missing" },
    { "Strip decoder", DECODER("{\"type\":\"Strip\",\"content\":\"xy\",\"start\":0,\"stop\":0}"),
        "t.json: decoder (Strip): \"content\" must be one character" },
    { "Strip count", DECODER("{\"type\":\"Strip\",\"content\":\"x\",\"start\":-1,\"stop\":0}"),
        "t.json: decoder (Strip): \"start\" must be a whole number" },

    { "added tokens", WITH("added_tokens", "{}"), "t.json: \"added_tokens\" must be a list" },
    { "added token", ADDED("1"), "t.json: added_tokens[0]: must be an object" },
    { "added token id", ADDED("{\"id\":-3,\"content\":\"x\"," FLAGS "}"),
        "t.json: added_tokens[0]: \"id\" must be a whole number" },
    { "added token flag", ADDED("{\"id\":3,\"content\":\"x\"}"),
        "t.json: added_tokens[0]: \"single_word\" is missing" },
    { "added token content", ADDED("{\"id\":3," FLAGS "}"),
        "t.json: added_tokens[0]: \"content\" is missing" },
    { "added twice",
        ADDED("{\"id\":3,\"content\":\"x\"," FLAGS "},{\"id\":4,\"content\":\"x\"," FLAGS "}"),
        "t.json: added_tokens[1]: added token \"x\" is given twice" },
    { "added with another's id", ADDED("{\"id\":2,\"content\":\"x\"," FLAGS "}"),
        "t.json: added_tokens[0]: tokens \"ab\" and \"x\" have the same id 2" },
};

static void test_bad(void **state) {
    const struct bad *b = *state;
    kh_tokenizer *t;
    kh_err err = { 0 };
    int rc = kh_tokenizer_from_json(&t, b->json, strlen(b->json), "t.json", &err);
    assert_true(rc < 0);
    assert_int_equal(rc, err.code);
    assert_null(t);
    assert_says(&err, b->says);
}

/* Sentences about things too long to write out above. */
static void test_limits(void **state) {
    (void)state;
    kh_tokenizer *t;
    kh_err err = { 0 };
    kh_buf json = kh_buf_init(KH_BUF_MAX);
    kh_buf_text(&json, "{" MODEL ",\"added_tokens\":[{\"id\":3," FLAGS ",\"content\":\"");
    for (int i = 0; i < 1025; i++)
        kh_buf_char(&json, 'x');
    kh_buf_text(&json, "\"}]}");
    assert_int_equal(kh_tokenizer_from_json(&t, json.data, json.len, "t.json", &err), KH_ELIMIT);
    assert_says(
        &err, "t.json: added_tokens[0]: an added token of 1025 bytes, at most 1024 are allowed");
    kh_buf_reset(&json);
    kh_buf_text(&json,
        "{" MODEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}");
    for (int i = 0; i < 1000; i++)
        kh_buf_text(&json, ",{\"type\":\"NFC\"}");
    kh_buf_text(&json, "]}}");
    assert_int_equal(kh_tokenizer_from_json(&t, json.data, json.len, "t.json", &err), KH_ELIMIT);
    assert_says(&err, "t.json: normalizer.normalizers[1000]: more than 1000 components");
    kh_buf_reset(&json);
    kh_buf_text(&json,
        "{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"invert\":"
        "false,\"pattern\":{\"Regex\":\"");
    for (int i = 0; i < 65537; i++)
        kh_buf_char(&json, 'x');
    kh_buf_text(&json, "\"}}}");
    assert_int_equal(kh_tokenizer_from_json(&t, json.data, json.len, "t.json", &err), KH_ELIMIT);
    assert_says(&err,
        "t.json: pre_tokenizer (Split): a regular expression of 65537 bytes, at most 65536 are "
        "allowed");
    kh_buf_free(&json);
}

static void test_one_token_two_ids(void **state) {
    (void)state;
    kh_vocab v = { 0 };
    kh_err err = { 0 };
    assert_int_equal(kh_vocab_add(&v, "a", 1, 0, "here", &err), 0);
    assert_int_equal(kh_vocab_add(&v, "a", 1, 7, "here", &err), KH_EFORMAT);
    assert_says(&err, "here: token \"a\" has two ids, 0 and 7");
    kh_vocab_free(&v);
}

/* ------------------------------------------------------------------------------ while encoding */

static kh_tokenizer *open_json(const char *json) {
    kh_tokenizer *t;
    kh_err err;
    if (kh_tokenizer_from_json(&t, json, strlen(json), "t.json", &err) != 0)
        fail_msg("%s", err.msg);
    return t;
}

/* Encoding fails, says so, and appends nothing. */
static void expect_failure(
    const char *json, const char *text, size_t n, int code, const char *says) {
    kh_tokenizer *t = open_json(json);
    kh_ids ids = { 0 };
    kh_err err = { 0 };
    assert_int_equal(kh_tokenizer_encode(t, text, n, 0, &ids, &err), code);
    assert_says(&err, says);
    assert_int_equal(ids.n, 0);
    kh_ids_free(&ids);
    kh_tokenizer_close(t);
}

static void test_unknown_token_missing(void **state) {
    (void)state;
    expect_failure(BPE("\"unk_token\":\"<unk>\"," VOCAB ",\"merges\":[]"), "abc", 3, KH_EMISMATCH,
        "a character is not in the tokenizer's vocabulary, and neither is its unk_token \"<unk>\"");
    expect_failure("{\"model\":{\"type\":\"WordPiece\"," VOCAB "}}", "abc", 3, KH_EMISMATCH,
        "a word is not in the tokenizer's vocabulary, and neither is its unk_token \"[UNK]\"");
}

static void test_text_too_long(void **state) {
    (void)state;
    expect_failure("{" MODEL "}", "a", ((size_t)1 << 30) + 1, KH_ELIMIT,
        "a text of 1073741825 bytes, at most 1073741824 can be tokenized at once");
}

static void test_regex_explodes(void **state) {
    (void)state;
    char text[64];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '!';
    expect_failure(SPLIT("{\"Regex\":\"(a+)+$\"}"), text, sizeof text, KH_ELIMIT,
        "the tokenizer's regular expression gave up at byte 0 of a text: match limit exceeded");
}

/* Truncation and padding are read over, whatever they say. */
static void test_truncation_and_padding_do_nothing(void **state) {
    (void)state;
    kh_tokenizer *t = open_json(
        "{\"truncation\":{\"max_length\":1},\"padding\":{\"strategy\":{\"Fixed\":8}}," MODEL "}");
    kh_ids ids = { 0 };
    assert_int_equal(kh_tokenizer_encode(t, "abab", 4, KH_ENCODE_FRAME, &ids, NULL), 0);
    assert_int_equal(ids.n, 2);
    kh_ids_free(&ids);
    kh_tokenizer_close(t);
}

/* Special tokens in a text from strangers are text; other added tokens are still found. */
static void test_plain(void **state) {
    (void)state;
    kh_tokenizer *t = open_json(ADDED(
        "{\"id\":3,\"content\":\"ab\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
        "\"normalized\":false,\"special\":true},"
        "{\"id\":4,\"content\":\"ba\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
        "\"normalized\":true,\"special\":false}"));
    kh_ids ids = { 0 };
    assert_int_equal(kh_tokenizer_id(t, "ab"), 2); /* the model's id counts, not the file's */
    assert_int_equal(kh_tokenizer_encode(t, "abba", 4, 0, &ids, NULL), 0);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.id[0], 2);
    assert_int_equal(ids.id[1], 4);
    ids.n = 0;
    assert_int_equal(kh_tokenizer_encode(t, "aba", 3, KH_ENCODE_PLAIN, &ids, NULL), 0);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.id[0], 0);
    assert_int_equal(ids.id[1], 4);
    kh_ids_free(&ids);
    kh_tokenizer_close(t);
}

/* What is appended goes behind what is there; an empty text is fine; NULL for an empty text too. */
static void test_appends(void **state) {
    (void)state;
    kh_tokenizer *t = open_json("{" MODEL "}");
    kh_ids ids = { 0 }, types = { 0 };
    char *text;
    size_t n;
    assert_int_equal(kh_tokenizer_encode(t, "", 0, 0, &ids, NULL), 0);
    assert_int_equal(kh_tokenizer_encode(t, NULL, 0, 0, &ids, NULL), 0);
    assert_int_equal(ids.n, 0);
    assert_int_equal(kh_tokenizer_encode(t, "a", 1, 0, &ids, NULL), 0);
    assert_int_equal(kh_tokenizer_encode_pair(t, "b", 1, "ab", 2, 0, &ids, &types, NULL), 0);
    assert_int_equal(ids.n, 3);
    assert_int_equal(types.n, 2);
    assert_int_equal(types.id[0], 0);
    assert_int_equal(types.id[1], 1);
    assert_int_equal(kh_tokenizer_decode(t, ids.id, ids.n, false, &text, &n, NULL), 0);
    assert_string_equal(text, "a b ab");
    kh_text_free(text);
    assert_int_equal(kh_tokenizer_decode(t, NULL, 0, false, &text, &n, NULL), 0);
    assert_string_equal(text, "");
    kh_text_free(text);
    kh_ids_free(&ids);
    kh_ids_free(&types);
    kh_tokenizer_close(t);
}

static void test_questions(void **state) {
    (void)state;
    kh_tokenizer *t = open_json("{" MODEL "}");
    assert_int_equal(kh_tokenizer_size(t), 3);
    assert_string_equal(kh_tokenizer_token(t, 2), "ab");
    assert_null(kh_tokenizer_token(t, 3));
    assert_null(kh_tokenizer_token(t, -1));
    assert_int_equal(kh_tokenizer_id(t, "b"), 1);
    assert_int_equal(kh_tokenizer_id(t, "c"), -1);
    for (int part = 0; part < KH_N_SPECIAL; part++)
        assert_int_equal(kh_tokenizer_special(t, (kh_special)part), -1);
    assert_int_equal(kh_tokenizer_special(t, (kh_special)99), -1);
    assert_false(kh_tokenizer_strips(t, 0, true));
    kh_tokenizer *other = open_json("{ " MODEL "}");
    assert_true(kh_tokenizer_fingerprint(t) != kh_tokenizer_fingerprint(other));
    kh_tokenizer_close(other);
    kh_tokenizer_close(t);
    kh_tokenizer_close(NULL);
}

/* --------------------------------------------------------------------------------------- files */

/* A folder of its own, filled file by file. */
typedef struct folder {
    char path[128];
} folder;

static folder make_folder(void) {
    folder f;
    snprintf(f.path, sizeof f.path, "/tmp/keyhole-test-XXXXXX");
    assert_non_null(mkdtemp(f.path));
    return f;
}

static void put_file(const folder *f, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static void remove_folder(const folder *f) {
    char command[256];
    snprintf(command, sizeof command, "rm -r '%s'", f->path);
    assert_int_equal(system(command), 0);
}

static void expect_no_open(const folder *f, const char *name, int code, const char *says) {
    char path[256];
    kh_tokenizer *t;
    kh_err err = { 0 };
    snprintf(path, sizeof path, "%s%s%s", f->path, *name ? "/" : "", name);
    assert_int_equal(kh_tokenizer_open(&t, path, &err), code);
    assert_null(t);
    assert_says(&err, says);
}

static void test_nothing_there(void **state) {
    (void)state;
    folder f = make_folder();
    expect_no_open(&f, "", KH_EMISSING,
        "holds no tokenizer: expected tokenizer.json, or vocab.json with merges.txt, or vocab.txt");
    expect_no_open(&f, "x.json", KH_EMISSING, "x.json: cannot open");
    expect_no_open(&f, "vocab.txt", KH_EMISSING, "vocab.txt: cannot open");
    expect_no_open(&f, "merges.txt", KH_EMISSING, "vocab.json: cannot open");
    put_file(&f, "vocab.json", "{\"a\":0}");
    expect_no_open(&f, "", KH_EMISSING, "merges.txt: cannot open");
    put_file(&f, "list.json", "[]");
    expect_no_open(&f, "list.json", KH_EFORMAT,
        "list.json: must hold an object: a tokenizer.json or a vocab.json");
    remove_folder(&f);
}

static void test_bad_merges_txt(void **state) {
    (void)state;
    folder f = make_folder();
    put_file(&f, "vocab.json", "{\"a\":0,\"b\":1,\"ab\":2}");
    put_file(&f, "merges.txt", "#version: 0.2\na b c\n");
    expect_no_open(
        &f, "", KH_EFORMAT, "merges.txt:2: a merge must be two tokens with a space between them");
    put_file(&f, "merges.txt", "#version: 0.2\na b\n\na b\n");
    expect_no_open(&f, "", KH_EFORMAT, "merges.txt:3: a merge must be two tokens");
    put_file(&f, "merges.txt", "a b\nb a\n");
    expect_no_open(&f, "", KH_EFORMAT, "merges.txt:2: token \"ba\" is not in the vocabulary");
    put_file(&f, "vocab.json", "{\"a\":\"x\"}");
    expect_no_open(&f, "", KH_EFORMAT, "vocab.json: the id of token \"a\" must be a whole number");
    remove_folder(&f);
}

static void test_bad_vocab_txt(void **state) {
    (void)state;
    folder f = make_folder();
    put_file(&f, "vocab.txt", "");
    expect_no_open(&f, "", KH_EFORMAT, "vocab.txt: holds no token");
    put_file(&f, "vocab.txt", "a\nb\r\na\n");
    expect_no_open(&f, "", KH_EFORMAT, "vocab.txt:3: token \"a\" stands in line 1 already");
    char path[256];
    snprintf(path, sizeof path, "%s/vocab.txt", f.path);
    assert_int_equal(kh_file_write(path, "a\nb\0c\n", 6, NULL), 0);
    expect_no_open(&f, "", KH_EFORMAT, "vocab.txt:2: a token holds a NUL byte");
    remove_folder(&f);
}

static void test_bad_files_beside(void **state) {
    (void)state;
    folder f = make_folder();
    put_file(&f, "vocab.txt", "[UNK]\n[CLS]\n[SEP]\na\n");
    put_file(&f, "tokenizer_config.json", "[]");
    expect_no_open(&f, "", KH_EFORMAT, "tokenizer_config.json: must hold an object");
    put_file(&f, "tokenizer_config.json", "{\"do_lower_case\":1}");
    expect_no_open(
        &f, "", KH_EFORMAT, "tokenizer_config.json: \"do_lower_case\" must be true or false");
    put_file(&f, "tokenizer_config.json", "{\"mask_token\":7}");
    expect_no_open(&f, "", KH_EFORMAT,
        "tokenizer_config.json: \"mask_token\" must be a token, or an object with the token as its "
        "\"content\"");
    put_file(&f, "tokenizer_config.json", "{\"sep_token\":{\"content\":\"[SEP]\",\"lstrip\":1}}");
    expect_no_open(
        &f, "", KH_EFORMAT, "tokenizer_config.json: sep_token: \"lstrip\" must be true or false");
    put_file(&f, "tokenizer_config.json", "{\"added_tokens_decoder\":[]}");
    expect_no_open(
        &f, "", KH_EFORMAT, "tokenizer_config.json: \"added_tokens_decoder\" must be an object");
    put_file(&f, "tokenizer_config.json", "{\"added_tokens_decoder\":{\"x\":{}}}");
    expect_no_open(&f, "", KH_EFORMAT,
        "tokenizer_config.json: added_tokens_decoder[\"x\"]: must be an id and an object");
    put_file(&f, "tokenizer_config.json", "{}");
    put_file(&f, "special_tokens_map.json", "{\"unk_token\":{\"content\":1}}");
    expect_no_open(&f, "", KH_EFORMAT, "special_tokens_map.json: \"unk_token\" must be a token");
    put_file(&f, "special_tokens_map.json", "{\"cls_token\":{\"content\":\"[CLS]\",\"rstrip\":1}}");
    expect_no_open(
        &f, "", KH_EFORMAT, "special_tokens_map.json: cls_token: \"rstrip\" must be true or false");
    put_file(&f, "special_tokens_map.json", "{}");
    put_file(&f, "added_tokens.json", "{\"x\":-1}");
    expect_no_open(&f, "", KH_EFORMAT,
        "added_tokens.json: the id of \"x\" must be a whole number from 0 to 4194303");
    remove_folder(&f);
}

/* What the files beside a vocabulary say is honoured. */
static void test_files_beside(void **state) {
    (void)state;
    folder f = make_folder();
    kh_tokenizer *t;
    kh_err err;
    kh_ids ids = { 0 };
    put_file(&f, "vocab.txt", "[UNK]\n[CLS]\n[SEP]\nA\na\nB\n\nC\n{M}\n");
    put_file(&f, "tokenizer_config.json",
        "{\"do_lower_case\":false,\"mask_token\":{\"content\":\"{M}\",\"rstrip\":true},"
        "\"added_tokens_decoder\":{\"20\":{\"content\":\"<new>\",\"special\":true}}}");
    put_file(&f, "special_tokens_map.json", "{\"pad_token\":\"B\"}");
    put_file(&f, "added_tokens.json", "{\"extra\":21}");
    if (kh_tokenizer_open(&t, f.path, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(
        kh_tokenizer_encode(t, "A a {M}  <new> extra B C", 24, KH_ENCODE_FRAME, &ids, &err), 0);
    const int32_t expected[] = { 1, 3, 4, 8, 20, 21, 5, 7, 2 };
    assert_int_equal(ids.n, 9);
    assert_memory_equal(ids.id, expected, sizeof expected);
    assert_int_equal(kh_tokenizer_size(t), 22);
    assert_null(kh_tokenizer_token(t, 6));
    assert_int_equal(kh_tokenizer_special(t, KH_TOKEN_MASK), 8);
    assert_int_equal(kh_tokenizer_special(t, KH_TOKEN_PAD), 5);
    assert_int_equal(kh_tokenizer_special(t, KH_TOKEN_BOS), 1);
    assert_int_equal(kh_tokenizer_special(t, KH_TOKEN_EOS), 2);
    assert_true(kh_tokenizer_strips(t, 8, false));
    assert_false(kh_tokenizer_strips(t, 8, true));
    kh_ids_free(&ids);
    kh_tokenizer_close(t);
    remove_folder(&f);
}

/* GPT-2's conventions: no frame; add_prefix_space from the configuration. */
static void test_gpt2_conventions(void **state) {
    (void)state;
    folder f = make_folder();
    kh_tokenizer *t;
    kh_err err;
    kh_ids ids = { 0 };
    put_file(&f, "vocab.json",
        "{\"a\":0,\"b\":1,\"\\u0120\":2,\"\\u0120a\":3,\"<|endoftext|>\":4,\"<s>\":5,\"</s>\":6}");
    put_file(&f, "merges.txt", "#version: 0.2\r\n\xC4\xA0 a\r\n");
    put_file(&f, "tokenizer_config.json",
        "{\"tokenizer_class\":\"GPT2Tokenizer\",\"add_prefix_space\":true,\"bos_token\":\"<|"
        "endoftext|>\"}");
    if (kh_tokenizer_open(&t, f.path, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(
        kh_tokenizer_encode(t, "ab<|endoftext|>a", 16, KH_ENCODE_FRAME, &ids, &err), 0);
    const int32_t expected[] = { 3, 1, 4, 3 };
    assert_int_equal(ids.n, 4);
    assert_memory_equal(ids.id, expected, sizeof expected);
    assert_int_equal(kh_tokenizer_special(t, KH_TOKEN_BOS), 4);
    kh_ids_free(&ids);
    kh_tokenizer_close(t);
    remove_folder(&f);
}

/* ---------------------------------------------------------------------------- long, hard texts */

/* The ids of a megabyte without a space; any tokenizer must be done within seconds even on a slow
 * machine under a sanitizer. */
static void test_megabyte_without_a_space(void **state) {
    const char *path = *state;
    enum { N = 1 << 20 };
    kh_tokenizer *t;
    kh_err err;
    kh_ids ids = { 0 };
    char *text = malloc(N), *back;
    size_t n;
    memset(text, 'a', N);
    if (kh_tokenizer_open(&t, path, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(kh_tokenizer_encode(t, text, N, 0, &ids, &err), 0);
    assert_true(ids.n > 0);
    assert_int_equal(kh_tokenizer_decode(t, ids.id, ids.n, true, &back, &n, &err), 0);
    kh_text_free(back);
    kh_ids_free(&ids);
    kh_tokenizer_close(t);
    free(text);
}

/* A megabyte of accents that all want to be sorted before their neighbours. */
static void test_megabyte_of_accents(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    kh_tokenizer *t = open_json(NORMALIZER("{\"type\":\"NFC\"}"));
    kh_ids ids = { 0 };
    char *text = malloc(N);
    for (int i = 0; i < N; i += 4)
        memcpy(text + i, "\xCC\x80\xCC\xA7", 4); /* classes 230 and 202 */
    assert_int_equal(kh_tokenizer_encode(t, text, N, 0, &ids, NULL), 0);
    kh_ids_free(&ids);
    kh_tokenizer_close(t);
    free(text);
}

/* One tokenizer, many threads, the same ids. */
static void test_shared_between_threads(void **state) {
    (void)state;
    static const char *const texts[] = { "Hello world", "the quick brown fox",
        "w\xC3\xB6rld <mask>", "antidisestablishmentarianism" };
    kh_tokenizer *t;
    kh_err err;
    kh_ids expected[4] = { { 0 } };
    int wrong = 0;
    assert_int_equal(kh_tokenizer_open(&t, "tests/vectors/tokenizers/tiny-bpe.json", &err), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(
            kh_tokenizer_encode(t, texts[i], strlen(texts[i]), 0, &expected[i], NULL), 0);
#pragma omp parallel for num_threads(4) reduction(+ : wrong)
    for (int i = 0; i < 4000; i++) {
        kh_ids ids = { 0 };
        const kh_ids *want = &expected[i % 4];
        int rc = kh_tokenizer_encode(t, texts[i % 4], strlen(texts[i % 4]), 0, &ids, NULL);
        wrong += rc != 0 || ids.n != want->n ||
            memcmp(ids.id, want->id, (size_t)ids.n * sizeof *ids.id) != 0;
        kh_ids_free(&ids);
    }
    assert_int_equal(wrong, 0);
    for (int i = 0; i < 4; i++)
        kh_ids_free(&expected[i]);
    kh_tokenizer_close(t);
}

/* ------------------------------------------------------------------------------- out of memory */

/* Opens, encodes and decodes. */
static int whole_way(const char *path, kh_err *err) {
    static const char text[] =
        "Hello <mask> [MASK] w\xC3\xB6rld\xFF, one two  three; antidisestablishmentarianism";
    kh_tokenizer *t;
    kh_ids ids = { 0 }, types = { 0 };
    char *back = NULL;
    size_t n;
    int rc = kh_tokenizer_open(&t, path, err);
    if (rc == 0)
        rc = kh_tokenizer_encode(t, text, sizeof text - 1, KH_ENCODE_FRAME, &ids, err);
    if (rc == 0)
        rc = kh_tokenizer_encode_pair(
            t, text, sizeof text - 1, "b", 1, KH_ENCODE_FRAME, &ids, &types, err);
    if (rc == 0)
        rc = kh_tokenizer_decode(t, ids.id, ids.n, true, &back, &n, err);
    kh_text_free(back);
    kh_ids_free(&ids);
    kh_ids_free(&types);
    kh_tokenizer_close(t);
    return rc;
}

static void test_out_of_memory(void **state) {
    const char *path = *state;
    kh_err err = { 0 };
    assert_int_equal(whole_way(path, &err), 0);
    for (int forever = 0; forever < 2; forever++)
        for (long n = 1;; n++) {
            kh_alloc_fail_at(n, forever);
            int rc = whole_way(path, &err);
            long asked = kh_alloc_count();
            kh_alloc_fail_at(0, false);
            if (rc == 0 && asked < n)
                break;
            assert_int_equal(rc, KH_ENOMEM);
            assert_true(n < 100000);
        }
}

int main(void) {
    enum { N_BAD = sizeof bad / sizeof *bad };
    static const char *const memory[] = { "tests/vectors/tokenizers/tiny-bpe",
        "tests/vectors/tokenizers/tiny-wordpiece", "tests/vectors/tokenizers/tiny-bpe.json",
        "tests/vectors/tokenizers/tiny-wordpiece.json",
        "tests/vectors/tokenizers/model-bpe-byte-fallback.json",
        "tests/vectors/tokenizers/norm-sequence.json",
        "tests/vectors/tokenizers/pre-metaspace-first-added.json",
        "tests/vectors/tokenizers/added-normalized-bert.json",
        "tests/vectors/tokenizers/dec-sequence.json", "tests/vectors/tokenizers/dec-llama.json",
        "tests/vectors/tokenizers/post-template-odd.json",
        "tests/vectors/tokenizers/pre-split-regex-words.json" };
    static const char *const lengthy[] = { "tests/vectors/tokenizers/tiny-bpe.json",
        "tests/vectors/tokenizers/tiny-wordpiece.json",
        "tests/vectors/tokenizers/model-bpe-byte-fallback.json",
        "tests/vectors/tokenizers/model-bpe-merge-order.json",
        "tests/vectors/tokenizers/model-wordpiece-max8.json",
        "tests/vectors/tokenizers/pre-split-regex-words.json" };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_one_token_two_ids),
        cmocka_unit_test(test_unknown_token_missing),
        cmocka_unit_test(test_text_too_long),
        cmocka_unit_test(test_regex_explodes),
        cmocka_unit_test(test_truncation_and_padding_do_nothing),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_appends),
        cmocka_unit_test(test_questions),
        cmocka_unit_test(test_nothing_there),
        cmocka_unit_test(test_bad_merges_txt),
        cmocka_unit_test(test_bad_vocab_txt),
        cmocka_unit_test(test_bad_files_beside),
        cmocka_unit_test(test_files_beside),
        cmocka_unit_test(test_gpt2_conventions),
        cmocka_unit_test(test_megabyte_of_accents),
        cmocka_unit_test(test_shared_between_threads),
    };
    enum {
        N_MEMORY = sizeof memory / sizeof *memory,
        N_LENGTHY = sizeof lengthy / sizeof *lengthy,
        N_OTHERS = sizeof others / sizeof *others
    };
    struct CMUnitTest tests[N_BAD + N_MEMORY + N_LENGTHY + N_OTHERS];
    static char names[N_MEMORY + N_LENGTHY][100];
    size_t n = 0, k = 0;
    for (size_t i = 0; i < N_BAD; i++)
        tests[n++] =
            (struct CMUnitTest){ bad[i].name, test_bad, NULL, NULL, (void *)(uintptr_t)&bad[i] };
    for (size_t i = 0; i < N_OTHERS; i++)
        tests[n++] = others[i];
    for (size_t i = 0; i < N_LENGTHY; i++, k++) {
        snprintf(names[k], sizeof names[k], "a megabyte: %s", strrchr(lengthy[i], '/') + 1);
        tests[n++] = (struct CMUnitTest){ names[k], test_megabyte_without_a_space, NULL, NULL,
            (void *)(uintptr_t)lengthy[i] };
    }
    for (size_t i = 0; i < N_MEMORY; i++, k++) {
        snprintf(names[k], sizeof names[k], "out of memory: %s", strrchr(memory[i], '/') + 1);
        tests[n++] = (struct CMUnitTest){ names[k], test_out_of_memory, NULL, NULL,
            (void *)(uintptr_t)memory[i] };
    }
    return _cmocka_run_group_tests("loading tokenizers", tests, n, NULL, NULL);
}
