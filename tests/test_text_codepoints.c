/* test_text_codepoints.c - every code point through every component that looks at characters,
 * against what Hugging Face's library does (tests/vectors/tokenizers/codepoints.txt; the README
 * beside it says what each section asks). */
#include "test.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/map.h"
#include "base/utf8.h"
#include "text/normalize.h"
#include "text/pieces.h"
#include "text/pretokenize.h"

enum { N_CODE = 0x110000 };

/* A chain of one family and the state to run it on. */
typedef struct rig {
    kh_arena arena;
    kh_chain chain;
    kh_norm norm;
    kh_pieces pieces;
} rig;

static void open_rig(rig *r, const kh_kind *kinds, const char *list_key, const char *definition) {
    json_t *obj;
    kh_err err;
    *r = (rig){ 0 };
    if (kh_json_parse(definition, strlen(definition), "test", &obj, &err) != 0 ||
        kh_chain_load(&r->chain, kinds, list_key, obj, &(kh_source){ "test", &r->arena }, &err) !=
            0)
        fail_msg("%s", err.msg);
    json_decref(obj);
}

static void close_rig(rig *r) {
    kh_chain_free(&r->chain);
    kh_arena_free(&r->arena);
    kh_norm_free(&r->norm);
    kh_pieces_free(&r->pieces);
}

/* The normalized text, in r->norm. */
static void normalize(rig *r, const char *s, size_t n) {
    kh_norm_start(&r->norm, s, n, 0);
    assert_int_equal(kh_chain_run(&r->chain, &r->norm, NULL), 0);
}

static bool gives(const rig *r, const char *s, size_t n) {
    return r->norm.n == n && memcmp(r->norm.s, s, n) == 0;
}

/* How many pieces before + c + after becomes. */
static int count_pieces(rig *r, const char *before, uint32_t c, const char *after) {
    char text[16];
    size_t n = strlen(before);
    memcpy(text, before, n);
    n += (size_t)kh_utf8_put(c, text + n);
    memcpy(text + n, after, strlen(after));
    assert_int_equal(kh_pieces_start(&r->pieces, text, n + strlen(after), NULL), 0);
    assert_int_equal(kh_chain_run(&r->chain, &r->pieces, NULL), 0);
    return r->pieces.n;
}

/* ------------------------------------------------------------------------------------- classes */

static const char *class_clean(rig *r, uint32_t c, const char *s, size_t n) {
    (void)c;
    normalize(r, s, n);
    return r->norm.n == 0  ? "removed"
        : gives(r, " ", 1) ? "space"
        : gives(r, s, n)   ? ""
                           : "changed";
}

static const char *class_chinese(rig *r, uint32_t c, const char *s, size_t n) {
    (void)c;
    normalize(r, s, n);
    return gives(r, s, n) ? "" : "spaced";
}

static const char *class_removed(rig *r, uint32_t c, const char *s, size_t n) {
    (void)c;
    normalize(r, s, n);
    return r->norm.n == 0 ? "removed" : "";
}

static const char *class_strip(rig *r, uint32_t c, const char *s, size_t n) {
    (void)c;
    normalize(r, s, n);
    return r->norm.n == 0 ? "space" : "";
}

static const char *class_gpt2(rig *r, uint32_t c, const char *s, size_t n) {
    (void)s, (void)n;
    return count_pieces(r, "a", c, "") == 1 ? "L"
        : count_pieces(r, "1", c, "") == 1  ? "N"
        : count_pieces(r, "!", c, "") == 1  ? ""
                                            : "space";
}

static const char *class_bert_split(rig *r, uint32_t c, const char *s, size_t n) {
    (void)s, (void)n;
    int k = count_pieces(r, "a", c, "a");
    return k == 1 ? "" : k == 2 ? "space" : "punctuation";
}

static const char *class_yes(rig *r, uint32_t c, const char *s, size_t n) {
    (void)s, (void)n;
    return count_pieces(r, "a", c, "a") == 3 ? "yes" : "";
}

static const char *class_whitespace(rig *r, uint32_t c, const char *s, size_t n) {
    (void)s, (void)n;
    int k = count_pieces(r, "a", c, "a");
    return k == 1 ? "word" : k == 2 ? "space" : "";
}

/* A block of 256 at a time, between characters that no class holds: a match stands as a piece of
 * one character. */
static const char *class_regex(rig *r, uint32_t c, const char *s, size_t n) {
    static bool yes[256];
    (void)s, (void)n;
    if (c % 256 == 0) {
        char text[256 * 5 + 1];
        size_t len = 0, start[256];
        for (uint32_t k = 0; k < 256; k++) {
            text[len++] = '\1';
            start[k] = len;
            len += (size_t)kh_utf8_put(c + k, text + len);
        }
        text[len++] = '\1';
        assert_int_equal(kh_pieces_start(&r->pieces, text, len, NULL), 0);
        assert_int_equal(kh_chain_run(&r->chain, &r->pieces, NULL), 0);
        for (int k = 0, i = 0; k < 256; k++) {
            while (i < r->pieces.n && r->pieces.list[i].at < start[k])
                i++;
            yes[k] = i < r->pieces.n && r->pieces.list[i].at == start[k];
        }
    }
    return yes[c % 256] ? "yes" : "";
}

#define BERT(clean, chinese, strip, lower) \
    "{\"type\":\"BertNormalizer\",\"clean_text\":" clean ",\"handle_chinese_chars\":" chinese \
    ",\"strip_accents\":" strip ",\"lowercase\":" lower "}"
#define REGEX(pattern) \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}"

static const struct class_row {
    const char *name;
    bool normalizer;
    const char *definition;
    const char *(*ask)(rig *, uint32_t c, const char *s, size_t n);
} classes[] = {
    { "clean", true, BERT("true", "false", "false", "false"), class_clean },
    { "chinese", true, BERT("false", "true", "false", "false"), class_chinese },
    { "bert-mn", true, BERT("false", "false", "true", "false"), class_removed },
    { "strip-accents", true, "{\"type\":\"StripAccents\"}", class_removed },
    { "strip", true, "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}", class_strip },
    { "gpt2", false, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}", class_gpt2 },
    { "bert-split", false, "{\"type\":\"BertPreTokenizer\"}", class_bert_split },
    { "punctuation", false, "{\"type\":\"Punctuation\",\"behavior\":\"Isolated\"}", class_yes },
    { "whitespace", false, "{\"type\":\"Whitespace\"}", class_whitespace },
    { "digits", false, "{\"type\":\"Digits\",\"individual_digits\":false}", class_yes },
    { "\\s", false, REGEX("\\\\s"), class_regex },
    { "\\w", false, REGEX("\\\\w"), class_regex },
    { "\\d", false, REGEX("\\\\d"), class_regex },
    { "\\p{L}", false, REGEX("\\\\p{L}"), class_regex },
    { "\\p{M}", false, REGEX("\\\\p{M}"), class_regex },
    { "\\p{N}", false, REGEX("\\\\p{N}"), class_regex },
    { "\\p{P}", false, REGEX("\\\\p{P}"), class_regex },
    { "\\p{S}", false, REGEX("\\\\p{S}"), class_regex },
    { "\\p{Z}", false, REGEX("\\\\p{Z}"), class_regex },
    { "\\p{Lu}", false, REGEX("\\\\p{Lu}"), class_regex },
    { "\\p{Ll}", false, REGEX("\\\\p{Ll}"), class_regex },
    { "\\p{Han}", false, REGEX("\\\\p{Han}"), class_regex },
};

/* Opens the file after the line "kind name". */
static FILE *open_section(const char *kind, const char *name) {
    char line[256], head[64];
    FILE *f = fopen("tests/vectors/tokenizers/codepoints.txt", "r");
    assert_non_null(f);
    snprintf(head, sizeof head, "%s %s\n", kind, name);
    while (fgets(line, sizeof line, f))
        if (strcmp(line, head) == 0)
            return f;
    fail_msg("codepoints.txt has no section %s %s", kind, name);
    return NULL;
}

static void test_class(void **state) {
    const struct class_row *row = *state;
    FILE *f = open_section("class", row->name);
    unsigned first = 0, last = 0;
    char expected[32] = "", line[256];
    bool more = true;
    int wrong = 0;
    rig r;
    open_rig(&r, row->normalizer ? kh_normalizers : kh_pretokenizers,
        row->normalizer ? "normalizers" : "pretokenizers", row->definition);
    for (uint32_t c = 0; c < N_CODE; c++) {
        char s[4];
        if (c >= 0xD800 && c < 0xE000)
            continue;
        while (more && (c > last || !expected[0]))
            more = fgets(line, sizeof line, f) &&
                sscanf(line, "%x %x %31s", &first, &last, expected) == 3;
        const char *want = more && c >= first ? expected : "";
        const char *have = row->ask(&r, c, s, (size_t)kh_utf8_put(c, s));
        if (strcmp(have, want) != 0 && ++wrong <= 20)
            printf("# %s: U+%04X is \"%s\", expected \"%s\"\n", row->name, (unsigned)c, have, want);
    }
    fclose(f);
    close_rig(&r);
    assert_int_equal(wrong, 0);
}

/* The canonical combining class, seen through the order that NFD gives to marks. */
static void test_combining(void **state) {
    (void)state;
    FILE *f = open_section("class", "combining");
    char line[256];
    unsigned first, last, class;
    rig r;
    int wrong = 0, checked = 0;
    open_rig(&r, kh_normalizers, "normalizers", "{\"type\":\"NFD\"}");
    while (fgets(line, sizeof line, f) && sscanf(line, "%x %x %u", &first, &last, &class) == 3)
        for (uint32_t c = first; c <= last; c++, checked++) {
            /* U+0300 is of class 230, U+0334 of class 1. A mark goes before the first of a higher
             * class, behind its own. */
            char text[16] = "a", want[16] = "a";
            size_t n = 1, k = 1;
            const uint32_t given[] = { class < 230 ? 0x300 : c, class < 230 ? c : 0x334 };
            const uint32_t sorted[] = { class < 230 ? c : 0x334, class < 230 ? 0x300 : c };
            for (int i = 0; i < 2; i++) {
                n += (size_t)kh_utf8_put(given[i], text + n);
                k += (size_t)kh_utf8_put(sorted[i], want + k);
            }
            normalize(&r, text, n);
            if (!gives(&r, want, k) && ++wrong <= 20)
                printf("# U+%04X has not the combining class %u\n", (unsigned)c, class);
        }
    fclose(f);
    close_rig(&r);
    assert_true(checked > 500);
    assert_int_equal(wrong, 0);
}

/* -------------------------------------------------------------------------------------- hashes */

static const struct hash_row {
    const char *name, *definition;
} hashes[] = {
    { "bert", BERT("true", "true", "null", "true") },
    { "lowercase", "{\"type\":\"Lowercase\"}" },
    { "nfd", "{\"type\":\"NFD\"}" },
    { "nfkd", "{\"type\":\"NFKD\"}" },
    { "nfc", "{\"type\":\"NFC\"}" },
    { "nfkc", "{\"type\":\"NFKC\"}" },
    { "compose",
        "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFD\"},{\"type\":\"NFC\"}]}" },
};

/* One block of 256: the hash of its outputs; *same: none differs from its input. */
static uint64_t hash_block(rig *r, uint32_t first, bool *same) {
    uint64_t hash = KH_HASH64_START;
    *same = true;
    for (uint32_t c = first; c < first + 256; c++) {
        char s[4];
        size_t n = (size_t)kh_utf8_put(c, s);
        normalize(r, s, n);
        *same &= gives(r, s, n);
        hash = kh_hash64_more(hash, r->norm.s, r->norm.n);
        hash = kh_hash64_more(hash, "\xff", 1);
    }
    return hash;
}

static void test_hash(void **state) {
    const struct hash_row *row = *state;
    FILE *f = open_section("hash", row->name);
    char line[256];
    unsigned listed = 0;
    unsigned long long expected = 0;
    bool more = fgets(line, sizeof line, f) && sscanf(line, "%x %llx", &listed, &expected) == 2;
    int wrong = 0;
    rig r;
    open_rig(&r, kh_normalizers, "normalizers", row->definition);
    for (uint32_t c = 0; c < N_CODE; c += 256) {
        if (c >= 0xD800 && c < 0xE000)
            continue;
        bool same;
        uint64_t hash = hash_block(&r, c, &same);
        bool is_listed = more && listed == c;
        if ((is_listed ? hash != expected : !same) && ++wrong <= 20)
            printf("# %s: the block of U+%04X differs\n", row->name, (unsigned)c);
        if (is_listed)
            more = fgets(line, sizeof line, f) && sscanf(line, "%x %llx", &listed, &expected) == 2;
    }
    fclose(f);
    close_rig(&r);
    assert_false(more);
    assert_int_equal(wrong, 0);
}

int main(void) {
    enum { N_CLASS = sizeof classes / sizeof *classes, N_HASH = sizeof hashes / sizeof *hashes };
    struct CMUnitTest tests[N_CLASS + N_HASH + 1];
    size_t n = 0;
    for (size_t i = 0; i < N_CLASS; i++)
        tests[n++] = (struct CMUnitTest){ classes[i].name, test_class, NULL, NULL,
            (void *)(uintptr_t)&classes[i] };
    for (size_t i = 0; i < N_HASH; i++)
        tests[n++] = (struct CMUnitTest){ hashes[i].name, test_hash, NULL, NULL,
            (void *)(uintptr_t)&hashes[i] };
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_combining);
    return _cmocka_run_group_tests("every code point", tests, n, NULL, NULL);
}
