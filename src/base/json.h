/* json.h - strict JSON on top of jansson: one value per text, no duplicate keys, at most 64 levels,
 * valid UTF-8, and getters whose complaints name the file and the key.
 *
 *     json_t *root;
 *     if (kh_json_read("task.json", 1 << 20, &root, err)) return err->code;
 *     int hidden;
 *     if (kh_json_int(root, "hidden_size", 1, 65536, &hidden, "config.json", err)) goto done;
 *
 * Many keys at a time are read by base/json_in.h; JSON is written by base/json_out.h. */
#ifndef KH_BASE_JSON_H
#define KH_BASE_JSON_H

#include "base/buf.h"
#include "keyhole.h"

#include <jansson.h>

enum { KH_JSON_DEPTH = 64 };

/* A text may become a tree of so many bytes, and so many times its own: tokenizer files of merges
 * in pairs, the densest that people have, take 20 times theirs but are small. */
#define KH_JSON_TREE ((size_t)256 << 20)
enum { KH_JSON_TREE_RATIO = 8 };
/* What parsing n bytes will take in memory beside them, at most; nothing is built for the answer.
 */
size_t kh_json_cost(const char *text, size_t n);

/* Parses n bytes; `name` is what messages call them. *root is new (json_decref it), NULL on
 * failure. */
int kh_json_parse(const char *text, size_t n, const char *name, json_t **root, kh_err *err);
/* The same for text that starts on line `first` of a file, such as one line of a JSONL file. */
int kh_json_parse_line(
    const char *text, size_t n, const char *name, long first, json_t **root, kh_err *err);
/* Reads a file of at most max bytes. */
int kh_json_read(const char *path, size_t max, json_t **root, kh_err *err);

/* Getters: a missing key or a wrong type is KH_EFORMAT with a sentence; borrowed results live as
 * long as obj. `place` names the file (and the object in it) for the sentence. */
int kh_json_int(const json_t *obj, const char *key, long min, long max, int *out, const char *place,
    kh_err *err);
int kh_json_number(const json_t *obj, const char *key, double *out, const char *place, kh_err *err);
int kh_json_bool(const json_t *obj, const char *key, bool *out, const char *place, kh_err *err);
int kh_json_string(
    const json_t *obj, const char *key, const char **out, const char *place, kh_err *err);

/* The same for optional keys: absent or null leaves *out as it is. */
int kh_json_int_opt(const json_t *obj, const char *key, long min, long max, int *out,
    const char *place, kh_err *err);
int kh_json_number_opt(
    const json_t *obj, const char *key, double *out, const char *place, kh_err *err);
int kh_json_bool_opt(const json_t *obj, const char *key, bool *out, const char *place, kh_err *err);
int kh_json_string_opt(
    const json_t *obj, const char *key, const char **out, const char *place, kh_err *err);

/* Appends s as a JSON string, quotes included. Bytes that are not UTF-8 become U+FFFD. */
void kh_json_quote(kh_buf *out, const char *s, size_t n);

/* Appends a whole number; one that other readers of JSON would round or refuse (above 2^53) as a
 * string of digits. */
void kh_json_u64(kh_buf *out, uint64_t);

#endif
