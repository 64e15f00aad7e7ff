/* json_in.c - see json_in.h: the getters of json.h, with the first failure kept. */
#include "base/json_in.h"

#include "base/err.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int kh_json_refuse(kh_json_in *r, int code, const char *fmt, ...) {
    char sentence[sizeof((kh_err *)0)->msg];
    va_list args;
    if (r->rc != 0)
        return r->rc;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, args);
    va_end(args);
    r->rc = kh_fail(r->err, code, "%s: %s", r->name, sentence);
    return r->rc;
}

int kh_json_get_int(kh_json_in *r, const json_t *obj, const char *key, long min, long max) {
    int x = 0;
    if (r->rc == 0)
        r->rc = kh_json_int(obj, key, min, max, &x, r->name, r->err);
    return x;
}

double kh_json_get_number(kh_json_in *r, const json_t *obj, const char *key) {
    double x = 0;
    if (r->rc == 0)
        r->rc = kh_json_number(obj, key, &x, r->name, r->err);
    return x;
}

bool kh_json_get_bool(kh_json_in *r, const json_t *obj, const char *key) {
    bool x = false;
    if (r->rc == 0)
        r->rc = kh_json_bool(obj, key, &x, r->name, r->err);
    return x;
}

const char *kh_json_get_string(kh_json_in *r, const json_t *obj, const char *key) {
    const char *s = "";
    if (r->rc == 0)
        r->rc = kh_json_string(obj, key, &s, r->name, r->err);
    return s;
}

const json_t *kh_json_get_object(kh_json_in *r, const json_t *obj, const char *key) {
    const json_t *o = r->rc == 0 ? json_object_get(obj, key) : NULL;
    if (json_is_object(o))
        return o;
    kh_json_refuse(r, KH_EFORMAT, "\"%s\" must be an object", key);
    return NULL;
}

const json_t *kh_json_get_array(kh_json_in *r, const json_t *obj, const char *key, size_t most) {
    const json_t *a = r->rc == 0 ? json_object_get(obj, key) : NULL;
    if (json_is_array(a) && json_array_size(a) <= most)
        return a;
    kh_json_refuse(r, KH_EFORMAT, "\"%s\" must be an array of at most %zu elements", key, most);
    return NULL;
}

/* A whole number from 0, as a number or a string of digits; or of hexadecimal digits. */
static uint64_t whole(kh_json_in *r, const json_t *v, const char *what, int base) {
    if (r->rc != 0)
        return 0;
    if (base == 10 && json_is_integer(v) && json_integer_value(v) >= 0)
        return (uint64_t)json_integer_value(v);
    const char *s = json_is_string(v) ? json_string_value(v) : "";
    bool digits = *s && strspn(s, base == 16 ? "0123456789abcdef" : "0123456789") == strlen(s);
    errno = 0;
    uint64_t x = digits ? strtoull(s, NULL, base) : 0;
    if (!digits || errno != 0)
        kh_json_refuse(r, KH_EFORMAT, "\"%s\" must be %s", what,
            base == 16 ? "a string of at most 16 hexadecimal digits" : "a whole number from 0");
    return r->rc == 0 ? x : 0;
}

uint64_t kh_json_get_u64(kh_json_in *r, const json_t *obj, const char *key) {
    return whole(r, json_object_get(obj, key), key, 10);
}

uint64_t kh_json_get_hex(kh_json_in *r, const json_t *obj, const char *key) {
    return whole(r, json_object_get(obj, key), key, 16);
}

int kh_json_int_or(
    kh_json_in *r, const json_t *obj, const char *key, long min, long max, int other) {
    if (r->rc == 0)
        r->rc = kh_json_int_opt(obj, key, min, max, &other, r->name, r->err);
    return other;
}

double kh_json_number_or(kh_json_in *r, const json_t *obj, const char *key, double other) {
    if (r->rc == 0)
        r->rc = kh_json_number_opt(obj, key, &other, r->name, r->err);
    return other;
}

bool kh_json_bool_or(kh_json_in *r, const json_t *obj, const char *key, bool other) {
    if (r->rc == 0)
        r->rc = kh_json_bool_opt(obj, key, &other, r->name, r->err);
    return other;
}

const char *kh_json_string_or(
    kh_json_in *r, const json_t *obj, const char *key, const char *other) {
    if (r->rc == 0)
        r->rc = kh_json_string_opt(obj, key, &other, r->name, r->err);
    return other;
}

int kh_json_at_int(
    kh_json_in *r, const json_t *array, size_t i, const char *what, long min, long max) {
    const json_t *v = json_array_get(array, i);
    if (r->rc == 0 && json_is_integer(v) && json_integer_value(v) >= min &&
        json_integer_value(v) <= max)
        return (int)json_integer_value(v);
    kh_json_refuse(r, KH_EFORMAT, "element %zu of \"%s\" must be a whole number from %ld to %ld", i,
        what, min, max);
    return 0;
}

double kh_json_at_number(kh_json_in *r, const json_t *array, size_t i, const char *what) {
    const json_t *v = json_array_get(array, i);
    if (r->rc == 0 && json_is_number(v) && isfinite(json_number_value(v)))
        return json_number_value(v);
    kh_json_refuse(r, KH_EFORMAT, "element %zu of \"%s\" must be a number", i, what);
    return 0;
}

uint64_t kh_json_at_u64(kh_json_in *r, const json_t *array, size_t i, const char *what) {
    return whole(r, json_array_get(array, i), what, 10);
}
