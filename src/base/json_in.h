/* json_in.h - a sticky reader: ask for everything, check once. After the first failure, whose
 * sentence stays, every call does nothing and gives back something harmless: 0, false, "", an empty
 * array or object.
 *
 *     kh_json_in r = { "posterior.json", err, 0 };
 *     const json_t *data = kh_json_get_object(&r, root, "data");
 *     p->shots = kh_json_get_int(&r, data, "shots", 0, 1 << 20);
 *     p->dev   = kh_json_get_number(&r, data, "dev");
 *     if (p->shots > most)
 *         kh_json_refuse(&r, KH_EFORMAT, "%d shots, at most %d", p->shots, most);
 *     return r.rc;
 *
 * Sentences begin with the name and are those of json.h. A result that is borrowed (string, array,
 * object) lives as long as the tree. */
#ifndef KH_BASE_JSON_IN_H
#define KH_BASE_JSON_IN_H

#include "base/json.h"

typedef struct kh_json_in {
    const char *name; /* of the file, for sentences */
    kh_err *err;
    int rc; /* of the first failure */
} kh_json_in;

/* Fails with "name: sentence", unless something failed before. Returns rc. */
int kh_json_refuse(kh_json_in *, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A key that must be there, and must be of this kind. */
int kh_json_get_int(kh_json_in *, const json_t *obj, const char *key, long min, long max);
double kh_json_get_number(kh_json_in *, const json_t *obj, const char *key);
bool kh_json_get_bool(kh_json_in *, const json_t *obj, const char *key);
const char *kh_json_get_string(kh_json_in *, const json_t *obj, const char *key);
const json_t *kh_json_get_object(kh_json_in *, const json_t *obj, const char *key);
const json_t *kh_json_get_array(kh_json_in *, const json_t *obj, const char *key, size_t most);
/* As kh_json_put_u64 and kh_json_put_hex write them. */
uint64_t kh_json_get_u64(kh_json_in *, const json_t *obj, const char *key);
uint64_t kh_json_get_hex(kh_json_in *, const json_t *obj, const char *key);

/* A key that may be absent or null, and what it counts as then. */
int kh_json_int_or(kh_json_in *, const json_t *obj, const char *key, long min, long max, int other);
double kh_json_number_or(kh_json_in *, const json_t *obj, const char *key, double other);
bool kh_json_bool_or(kh_json_in *, const json_t *obj, const char *key, bool other);
const char *kh_json_string_or(
    kh_json_in *, const json_t *obj, const char *key, const char *other); /* other may be NULL */

/* Element i of an array; `what` is the array's name in sentences. */
int kh_json_at_int(
    kh_json_in *, const json_t *array, size_t i, const char *what, long min, long max);
double kh_json_at_number(kh_json_in *, const json_t *array, size_t i, const char *what);
uint64_t kh_json_at_u64(kh_json_in *, const json_t *array, size_t i, const char *what);

#endif
