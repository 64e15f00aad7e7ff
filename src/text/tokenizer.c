/* tokenizer.c - opening, encoding, decoding.
 *
 * The flow of a text: broken UTF-8 replaced; added tokens cut out of the raw text; what is left
 * normalized; added tokens cut out of that; what is left cut by the pre-tokenizers; each piece
 * given to the model; special tokens put around by the post-processors. A tokenizer is never
 * written to after it is open; all that changes lives in one `work` per call. */
#include "text/tokenizer.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/file.h"
#include "base/place.h"
#include "base/utf8.h"
#include "text/decode.h"
#include "text/normalize.h"
#include "text/pieces.h"
#include "text/postprocess.h"
#include "text/pretokenize.h"

#include <errno.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- life */

void kh_ids_free(kh_ids *ids) {
    kh_free(ids->id);
    *ids = (kh_ids){ 0 };
}

void kh_text_free(char *text) { kh_free(text); }

void kh_tokenizer_close(kh_tokenizer *t) {
    if (!t)
        return;
    kh_chain_free(&t->normalizers);
    kh_chain_free(&t->pretokenizers);
    kh_chain_free(&t->postprocessors);
    kh_chain_free(&t->decoders);
    kh_added_free(&t->added);
    kh_bpe_free(&t->bpe);
    kh_wordpiece_free(&t->wordpiece);
    kh_unigram_free(&t->unigram);
    kh_spm_free(&t->spm);
    kh_vocab_free(&t->vocab);
    kh_arena_free(&t->arena);
    kh_free(t);
}

int32_t kh_tokenizer_find(const kh_tokenizer *t, const char *token, size_t n) {
    const kh_added_token *added = kh_added_find(&t->added, token, n);
    return added ? added->id : kh_vocab_id(&t->vocab, token, n);
}

int kh_tokenizer_add_token(kh_tokenizer *t, kh_added_token *token, const char *place, kh_err *err) {
    if (token->n == 0)
        return 0;
    int32_t known = kh_vocab_id(&t->vocab, token->content, token->n);
    if (known >= 0)
        token->id = known;
    int rc = kh_added_add(&t->added, token, &t->arena, place, err);
    if (rc == 0 && known < 0)
        rc = kh_vocab_name(&t->vocab, token->content, token->n, token->id, place, err);
    return rc;
}

/* ----------------------------------------------------------------------------------- the parts */

/* The names under which a part is found: in the files beside the vocabulary, and by habit. */
static const struct {
    const char *role[2];
    const char *habit[3];
} parts[KH_N_SPECIAL] = {
    [KH_TOKEN_MASK] = { { "mask_token" }, { "<mask>", "[MASK]" } },
    [KH_TOKEN_UNK] = { { "unk_token" }, { "<unk>", "[UNK]" } },
    [KH_TOKEN_PAD] = { { "pad_token" }, { "<pad>", "[PAD]" } },
    [KH_TOKEN_BOS] = { { "bos_token", "cls_token" }, { "<s>", "[CLS]", "<|endoftext|>" } },
    [KH_TOKEN_EOS] = { { "eos_token", "sep_token" }, { "</s>", "[SEP]", "<|endoftext|>" } },
};

static int choose_part(kh_tokenizer *t, int part, const kh_beside *beside, kh_err *err) {
    int32_t *id = &t->special[part];
    *id = -1;
    for (int i = 0; i < 2 && parts[part].role[i] && *id < 0; i++) {
        const char *token;
        const json_t *flags;
        int rc = kh_beside_role(beside, parts[part].role[i], &token, &flags, err);
        if (rc != 0)
            return rc;
        if (token)
            *id = kh_tokenizer_find(t, token, strlen(token));
    }
    const char *unk = t->model == KH_MODEL_BPE ? t->bpe.unk_token : t->wordpiece.unk_token;
    if (part == KH_TOKEN_UNK && *id < 0 && t->model == KH_MODEL_UNIGRAM)
        *id = t->unigram.unk;
    if (part == KH_TOKEN_UNK && *id < 0 && unk)
        *id = kh_tokenizer_find(t, unk, strlen(unk));
    for (int i = 0; i < 3 && parts[part].habit[i] && *id < 0; i++)
        *id = kh_tokenizer_find(t, parts[part].habit[i], strlen(parts[part].habit[i]));
    return 0;
}

static int choose_parts(kh_tokenizer *t, const kh_beside *beside, kh_err *err) {
    for (int i = 0; i < KH_N_SPECIAL; i++) {
        int rc = choose_part(t, i, beside, err);
        if (rc != 0)
            return rc;
    }
    int32_t first, last;
    int rc = kh_postprocessors_ends(&t->postprocessors, &first, &last, err);
    if (rc != 0)
        return rc;
    if (t->special[KH_TOKEN_BOS] < 0)
        t->special[KH_TOKEN_BOS] = first;
    if (t->special[KH_TOKEN_EOS] < 0)
        t->special[KH_TOKEN_EOS] = last;
    return 0;
}

int kh_tokenizer_ready(kh_tokenizer *t, const char *name, const kh_beside *beside, kh_err *err) {
    int rc = kh_added_ready(&t->added, &t->normalizers, &t->arena, err);
    if (rc != 0)
        return rc;
    int32_t max = kh_postprocessors_max_id(&t->postprocessors);
    if (max >= t->vocab.size)
        return kh_fail(err, KH_EFORMAT,
            "%s: post_processor: id %d is outside the vocabulary, whose highest id is %d", name,
            max, t->vocab.size - 1);
    const kh_chain *pre = &t->pretokenizers;
    if (pre->n > 0 && strcmp(pre->step[pre->n - 1].kind->name, "ByteLevel") == 0 &&
        t->model == KH_MODEL_BPE && t->bpe.reads_bytes) {
        t->raw_bytes = true;
        ((kh_byte_level *)pre->step[pre->n - 1].self)->raw = true;
    }
    rc = choose_parts(t, beside, err);
    t->fingerprint = kh_hash64_more(t->fingerprint, t->special, sizeof t->special);
    return rc;
}

/* ------------------------------------------------------------------------------------- opening */

static bool ends_with(const char *s, const char *end) {
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

static int load_json(
    kh_tokenizer *t, const kh_tokenizer_files *f, const kh_beside *beside, kh_err *err) {
    const kh_tokenizer_file *main = &f->file[KH_FILE_MAIN], *merges = &f->file[KH_FILE_MERGES];
    json_t *root;
    int rc = kh_json_parse(main->bytes.data, main->bytes.len, main->path, &root, err);
    if (rc != 0)
        return rc;
    json_t *model =
        json_object_get(root, "model"); /* an id where "model" is a token of a vocab.json */
    if (!merges->path || (model && !json_is_integer(model)))
        rc = kh_tokenizer_load_json(t, root, main->path, err);
    else if (!json_is_object(root))
        rc = kh_fail(err, KH_EFORMAT, "%s: must hold an object: a tokenizer.json or a vocab.json",
            main->path);
    else if (!merges->there) {
        errno = ENOENT;
        rc = kh_fail_errno(err, merges->path, "cannot open");
    } else {
        t->fingerprint = kh_hash64_more(t->fingerprint, merges->bytes.data, merges->bytes.len);
        rc = kh_tokenizer_load_merges(
            t, root, main->path, merges->bytes.data, merges->bytes.len, merges->path, beside, err);
    }
    json_decref(root);
    return rc;
}

int kh_tokenizer_from_files(kh_tokenizer **out, const kh_tokenizer_files *f, kh_err *err) {
    *out = NULL;
    const kh_tokenizer_file *main = &f->file[KH_FILE_MAIN];
    kh_tokenizer *t = kh_calloc(1, sizeof *t);
    kh_beside beside = { 0 };
    if (!t)
        return kh_fail_memory(err);
    t->fingerprint = kh_hash64(main->bytes.data, main->bytes.len);
    int rc = kh_beside_open(&beside, f, err);
    if (rc == 0 && ends_with(main->path, ".gguf"))
        rc = kh_tokenizer_load_gguf(
            t, main->bytes.data, main->bytes.len, main->path, &beside.config, err);
    else if (rc == 0 && ends_with(main->path, ".txt"))
        rc =
            kh_tokenizer_load_words(t, main->bytes.data, main->bytes.len, main->path, &beside, err);
    else if (rc == 0)
        rc = load_json(t, f, &beside, err);
    if (rc == 0)
        rc = kh_tokenizer_ready(t, main->path, &beside, err);
    kh_beside_close(&beside);
    if (rc == 0)
        *out = t;
    else
        kh_tokenizer_close(t);
    return rc;
}

int kh_tokenizer_from_json(
    kh_tokenizer **out, const char *bytes, size_t n, const char *name, kh_err *err) {
    kh_tokenizer_files f = { .file[KH_FILE_MAIN] = { (char *)name,
                                 { .data = (char *)bytes, .len = n }, true } }; /* only read */
    return kh_tokenizer_from_files(out, &f, err);
}

/* The file of a folder that defines the tokenizer, in fresh memory in *path. */
static int find_in_folder(const char *folder, char **path, kh_err *err) {
    static const char *const names[] = { "tokenizer.json", "vocab.json", "vocab.txt",
        "tokenizer.gguf" };
    for (int i = 0; i < 4; i++) {
        char *candidate = kh_path_join(folder, names[i]);
        if (!candidate)
            return kh_fail_memory(err);
        if (kh_file_exists(candidate)) {
            *path = candidate;
            return 0;
        }
        kh_free(candidate);
    }
    return kh_fail(err, KH_EMISSING,
        "%s: holds no tokenizer: expected tokenizer.json, or vocab.json with merges.txt, or "
        "vocab.txt",
        folder);
}

/* What --model or a caller names, as the path of the main file. */
static int find_main(const char *path, char **file, kh_err *err) {
    if (kh_dir_exists(path))
        return find_in_folder(path, file, err);
    if (strcmp(kh_path_base(path), "merges.txt") == 0) {
        size_t n = (size_t)(kh_path_base(path) - path);
        char *folder = kh_strndup(n ? path : "./", n ? n : 2);
        *file = folder ? kh_path_join(folder, "vocab.json") : NULL;
        kh_free(folder);
    } else
        *file = kh_strdup(path);
    return *file ? 0 : kh_fail_memory(err);
}

/* A file that may be missing. */
static int read_beside(
    kh_tokenizer_file *f, const char *folder, const char *name, size_t max, kh_err *err) {
    f->path = kh_path_join(folder, name);
    if (!f->path)
        return kh_fail_memory(err);
    f->there = kh_file_exists(f->path);
    return f->there ? kh_file_read(f->path, max, &f->bytes, err) : 0;
}

static const char *const file_names[] = {
    [KH_FILE_MERGES] = "merges.txt",
    [KH_FILE_CONFIG] = "tokenizer_config.json",
    [KH_FILE_MAP] = "special_tokens_map.json",
    [KH_FILE_ADDED] = "added_tokens.json",
};

int kh_tokenizer_files_read(kh_tokenizer_files *f, const char *path, kh_err *err) {
    *f = (kh_tokenizer_files){ 0 };
    kh_tokenizer_file *main = &f->file[KH_FILE_MAIN];
    char *place;
    int rc = kh_place_model(&place, path, err);
    if (rc == 0)
        rc = find_main(place, &main->path, err);
    kh_free(place);
    if (rc == 0 && ends_with(main->path, ".gguf")) {
        char *gguf = main->path;
        main->path = NULL;
        rc = kh_tokenizer_files_gguf(f, gguf, err);
        kh_free(gguf);
        return rc;
    }
    if (rc == 0)
        rc = kh_file_read(main->path, KH_TOKENIZER_FILE_MAX, &main->bytes, err);
    main->there = rc == 0;
    const char *base = rc == 0 ? kh_path_base(main->path) : "";
    char *folder = NULL;
    if (rc == 0 && base > main->path)
        folder = kh_strndup(main->path, (size_t)(base - main->path));
    else if (rc == 0)
        folder = kh_strdup("./");
    if (rc == 0 && !folder)
        rc = kh_fail_memory(err);
    bool old = !ends_with(base, ".txt") &&
        strcmp(base, "tokenizer.json") != 0; /* perhaps a vocab.json, which needs merges.txt */
    for (int i = old ? KH_FILE_MERGES : KH_FILE_CONFIG; i < KH_N_TOKENIZER_FILE && rc == 0; i++)
        rc = read_beside(&f->file[i], folder, file_names[i],
            i == KH_FILE_MERGES ? KH_TOKENIZER_FILE_MAX : 16 << 20, err);
    kh_free(folder);
    return rc;
}

void kh_tokenizer_files_free(kh_tokenizer_files *f) {
    for (int i = 0; i < KH_N_TOKENIZER_FILE; i++) {
        kh_free(f->file[i].path);
        kh_buf_free(&f->file[i].bytes);
    }
}

int kh_tokenizer_open(kh_tokenizer **out, const char *path, kh_err *err) {
    *out = NULL;
    kh_tokenizer_files files;
    int rc = kh_tokenizer_files_read(&files, path, err);
    if (rc == 0)
        rc = kh_tokenizer_from_files(out, &files, err);
    kh_tokenizer_files_free(&files);
    return rc;
}

/* The main file may have any name where it comes from. */
static const char *name_in_folder(const kh_tokenizer_files *f, int i) {
    const char *base = kh_path_base(f->file[KH_FILE_MAIN].path);
    if (i != KH_FILE_MAIN)
        return file_names[i];
    if (ends_with(base, ".gguf"))
        return "tokenizer.gguf";
    if (ends_with(base, ".txt"))
        return "vocab.txt";
    return f->file[KH_FILE_MERGES].there ? "vocab.json" : "tokenizer.json";
}

int kh_tokenizer_copy(const char *path, const char *folder, kh_err *err) {
    kh_tokenizer_files f;
    int rc = kh_tokenizer_files_read(&f, path, err);
    for (int i = 0; i < KH_N_TOKENIZER_FILE && rc == 0; i++) {
        if (!f.file[i].there)
            continue;
        char *to = kh_path_join(folder, name_in_folder(&f, i));
        rc = to ? kh_file_write(to, f.file[i].bytes.data, f.file[i].bytes.len, err)
                : kh_fail_memory(err);
        kh_free(to);
    }
    kh_tokenizer_files_free(&f);
    return rc;
}

/* ------------------------------------------------------------------------------------ encoding */

typedef struct work {
    kh_pieces pieces;
    kh_norm norm;
    kh_bpe_scratch bpe;
    kh_unigram_scratch unigram;
    kh_spm_scratch spm;
    kh_buf valid; /* the text, if it had to be mended */
} work;

static void free_work(work *w) {
    kh_pieces_free(&w->pieces);
    kh_norm_free(&w->norm);
    kh_bpe_scratch_free(&w->bpe);
    kh_unigram_scratch_free(&w->unigram);
    kh_spm_scratch_free(&w->spm);
    kh_buf_free(&w->valid);
}

static bool is_valid(const char *s, size_t n) {
    int ok = 1, len;
    for (size_t i = 0; i < n && ok; i += (size_t)len) {
        i += kh_ascii_prefix(s + i, n - i);
        if (i == n)
            break;
        kh_utf8_next(s + i, n - i, &len, &ok);
    }
    return ok;
}

/* The text with broken UTF-8 replaced: itself, or a copy in w->valid. */
static int mend(work *w, const char **text, size_t *n, kh_err *err) {
    if (*n > KH_TEXT_MAX)
        return kh_fail(err, KH_ELIMIT, "a text of %zu bytes, at most %zu can be tokenized at once",
            *n, KH_TEXT_MAX);
    if (is_valid(*text, *n))
        return 0;
    kh_buf *out = &w->valid;
    *out = kh_buf_init(KH_TEXT_MAX);
    for (size_t i = 0; i < *n;) {
        int len, ok = 1;
        kh_utf8_next(*text + i, *n - i, &len, &ok);
        kh_buf_bytes(out, ok ? *text + i : "\xEF\xBF\xBD", ok ? (size_t)len : 3);
        i += (size_t)len;
    }
    if (kh_buf_failed(out))
        return kh_fail_memory(err);
    *text = out->data;
    *n = out->len;
    return 0;
}

/* Appends the ids of one piece of text, as the model cuts it. */
static int encode_piece(
    const kh_tokenizer *t, const char *s, size_t n, work *w, kh_ids *out, kh_err *err) {
    switch (t->model) {
    case KH_MODEL_BPE: return kh_bpe_encode(&t->bpe, s, n, t->raw_bytes, &w->bpe, out, err);
    case KH_MODEL_UNIGRAM: return kh_unigram_encode(&t->unigram, s, n, &w->unigram, out, err);
    case KH_MODEL_SPM: return kh_spm_encode(&t->spm, s, n, &w->spm, out, err);
    default: return kh_wordpiece_encode(&t->wordpiece, s, n, out, err);
    }
}

/* Appends the ids of one text of valid UTF-8, without special tokens around it; from and to: where
 * special tokens inside it are ordinary characters. */
static int encode_valid(const kh_tokenizer *t, const char *text, size_t n, size_t from, size_t to,
    work *w, kh_ids *out, kh_err *err) {
    kh_pieces *p = &w->pieces;
    int rc = kh_pieces_start(p, text, n, err);
    if (rc == 0 && p->n > 0) {
        p->list[0].plain_from = (uint32_t)from;
        p->list[0].plain_to = (uint32_t)to;
    }
    if (rc == 0)
        rc = kh_added_split(&t->added, &t->normalizers, p, &w->norm, err);
    if (rc == 0)
        rc = kh_chain_run(&t->pretokenizers, p, err);
    if (rc == 0)
        rc = kh_ids_room(out, (size_t)p->n, err);
    for (int i = 0; i < p->n && rc == 0; i++) {
        const kh_piece *piece = &p->list[i];
        if (piece->id >= 0)
            rc = kh_ids_push(out, piece->id, err);
        else
            rc = encode_piece(t, p->text + piece->at, piece->len, w, out, err);
    }
    return rc;
}

/* Appends the ids of one text, without special tokens around it. */
static int encode_text(
    const kh_tokenizer *t, const char *text, size_t n, unsigned flags, kh_ids *out, kh_err *err) {
    work w = { .bpe = kh_bpe_scratch_init() };
    int rc = mend(&w, &text, &n, err);
    if (rc == 0)
        rc = encode_valid(t, text, n, 0, flags & KH_ENCODE_PLAIN ? n : 0, &w, out, err);
    free_work(&w);
    return rc;
}

int kh_tokenizer_encode_between(const kh_tokenizer *t, const char *front, const char *text,
    size_t n, const char *back, kh_ids *out, kh_err *err) {
    work w = { .bpe = kh_bpe_scratch_init() };
    kh_buf all = kh_buf_init(KH_TEXT_MAX);
    int rc = mend(&w, &text, &n, err);
    if (rc == 0) {
        kh_buf_text(&all, front);
        kh_buf_bytes(&all, text, n);
        kh_buf_text(&all, back);
        rc = kh_buf_failed(&all) ? kh_fail_memory(err) : 0;
    }
    if (rc == 0 && all.len > 0)
        rc = encode_valid(t, all.data, all.len, strlen(front), strlen(front) + n, &w, out, err);
    kh_buf_free(&all);
    free_work(&w);
    return rc;
}

/* Appends the parts' ids, and their types if wanted. */
static int append_parts(const kh_parts *parts_made, kh_ids *out, kh_ids *type_id, kh_err *err) {
    size_t total = 0;
    for (int i = 0; i < parts_made->n; i++)
        total += (size_t)parts_made->part[i].n;
    int rc = kh_ids_room(out, total, err);
    if (rc == 0 && type_id)
        rc = kh_ids_room(type_id, total, err);
    for (int i = 0; i < parts_made->n && rc == 0; i++) {
        const kh_id_part *part = &parts_made->part[i];
        for (int k = 0; k < part->n; k++) {
            out->id[out->n++] = part->id[k];
            if (type_id)
                type_id->id[type_id->n++] = part->type_id;
        }
    }
    return rc;
}

static int encode(const kh_tokenizer *t, const char *const *text, const size_t *n, int n_text,
    unsigned flags, kh_ids *out, kh_ids *type_id, kh_err *err) {
    kh_ids ids[2] = { { 0 } };
    kh_parts made = { .special = (flags & KH_ENCODE_FRAME) != 0 };
    int rc = 0;
    for (int i = 0; i < n_text && rc == 0; i++) {
        rc = encode_text(t, text[i], n[i], flags, &ids[i], err);
        if (rc == 0)
            rc = kh_parts_add(&made, (kh_id_part){ ids[i].id, ids[i].n, i, i }, err);
    }
    if (rc == 0)
        rc = kh_chain_run(&t->postprocessors, &made, err);
    if (rc == 0)
        rc = append_parts(&made, out, type_id, err);
    kh_parts_free(&made);
    kh_ids_free(&ids[0]);
    kh_ids_free(&ids[1]);
    return rc;
}

int kh_tokenizer_encode(
    const kh_tokenizer *t, const char *text, size_t n, unsigned flags, kh_ids *out, kh_err *err) {
    return encode(t, &text, &n, 1, flags, out, NULL, err);
}

int kh_tokenizer_encode_pair(const kh_tokenizer *t, const char *a, size_t na, const char *b,
    size_t nb, unsigned flags, kh_ids *out, kh_ids *type_id, kh_err *err) {
    return encode(t, (const char *const[2]){ a, b }, (const size_t[2]){ na, nb }, 2, flags, out,
        type_id, err);
}

/* ------------------------------------------------------------------------------------ decoding */

/* The string of an id for decoding, or NULL. */
static const char *decoded(const kh_tokenizer *t, int32_t id, size_t *n) {
    if (id < 0 || id >= t->vocab.size || !t->vocab.token[id])
        return NULL;
    *n = t->vocab.len[id];
    const kh_added_token *added = kh_added_find(&t->added, t->vocab.token[id], *n);
    if (!added || added->id != id)
        return t->vocab.token[id];
    *n = added->n_decoded;
    return added->decoded;
}

int kh_tokenizer_decode(const kh_tokenizer *t, const int32_t *id, int n_id, bool skip_special,
    char **text, size_t *n, kh_err *err) {
    kh_unfold u;
    kh_unfold_init(&u);
    int rc = 0;
    *text = NULL;
    *n = 0;
    for (int i = 0; i < n_id && rc == 0; i++) {
        size_t len;
        const char *s = decoded(t, id[i], &len);
        const kh_added_token *added = s && skip_special ? kh_added_find(&t->added, s, len) : NULL;
        if (!s || (added && added->special))
            continue;
        if (t->decoders.n == 0 && u.list[0].n > 0)
            kh_buf_char(&u.list[0].text, ' ');
        kh_buf_bytes(&u.list[0].text, s, len);
        rc = kh_list_close(&u.list[0], err);
    }
    if (rc == 0)
        rc = kh_chain_run(&t->decoders, &u, err);
    kh_buf *made = &u.list[u.now].text;
    kh_buf_bytes(made, "", 0);
    if (rc == 0 && (*text = kh_buf_take(made, n)) == NULL)
        rc = kh_fail_memory(err);
    kh_unfold_free(&u);
    return rc;
}

/* ----------------------------------------------------------------------------------- questions */

int kh_tokenizer_size(const kh_tokenizer *t) { return t->vocab.size; }

const char *kh_tokenizer_token(const kh_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->vocab.size ? t->vocab.token[id] : NULL;
}

int32_t kh_tokenizer_id(const kh_tokenizer *t, const char *token) {
    return kh_tokenizer_find(t, token, strlen(token));
}

int32_t kh_tokenizer_special(const kh_tokenizer *t, kh_special part) {
    return part >= 0 && (int)part < KH_N_SPECIAL ? t->special[part] : -1;
}

bool kh_tokenizer_strips(const kh_tokenizer *t, int32_t id, bool left) {
    const char *token = kh_tokenizer_token(t, id);
    const kh_added_token *added = token ? kh_added_find(&t->added, token, t->vocab.len[id]) : NULL;
    return added && (left ? added->lstrip : added->rstrip);
}

uint64_t kh_tokenizer_fingerprint(const kh_tokenizer *t) { return t->fingerprint; }
