/* json_out.c - see json_out.h. The writer keeps, for each level that is open, whether it is an
 * object, whether it has anything in it and whether it is tight: three words of bits, as deep as
 * our own reader goes (KH_JSON_DEPTH). Every call first settles what must stand before a value
 * (comma, white space, key); a call that would break the document marks the buffer as failed and
 * writes nothing. */
#include "base/json_out.h"

#include "base/base64.h"
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

kh_json_out kh_json_out_init(kh_buf *out, kh_json_style style) {
    return (kh_json_out){ .out = out, .compact = style == KH_JSON_COMPACT };
}

bool kh_json_out_done(const kh_json_out *j) {
    return !j->out->failed && j->depth == 0 && j->written;
}

/* Sticks until the end: a document that is not JSON is never mistaken for one. */
static bool misused(kh_json_out *j) {
    j->out->failed = true;
    return false;
}

static void put_gap(kh_json_out *j) {
    kh_buf_text(j->out, j->gap);
    j->gap[0] = '\0';
}

/* What stands before a value: false if none can stand here. */
static bool begin(kh_json_out *j, const char *key) {
    bool in_object = j->object & 1, inside = j->depth > 0;
    if (j->out->failed || (key != NULL) != (inside && in_object) || (!inside && j->written))
        return misused(j);
    if (j->filled & 1) {
        kh_buf_char(j->out, ',');
        if (!j->gap[0] && !(j->compact & 1))
            kh_buf_char(j->out, ' ');
    }
    put_gap(j);
    if (inside)
        j->filled |= 1;
    else
        j->written = true;
    if (key) {
        kh_json_quote(j->out, key, strlen(key));
        kh_buf_text(j->out, j->compact & 1 ? ":" : ": ");
    }
    return !j->out->failed;
}

/* A level begins as tight as the one around it. */
static void open_level(kh_json_out *j, const char *key, bool object) {
    if (j->depth >= KH_JSON_DEPTH - 1) {
        misused(j);
        return;
    }
    if (!begin(j, key))
        return;
    kh_buf_char(j->out, object ? '{' : '[');
    j->depth++;
    j->object = j->object << 1 | object;
    j->filled <<= 1;
    j->compact = j->compact << 1 | (j->compact & 1);
}

void kh_json_open_object(kh_json_out *j, const char *key) { open_level(j, key, true); }
void kh_json_open_array(kh_json_out *j, const char *key) { open_level(j, key, false); }

void kh_json_close(kh_json_out *j) {
    if (j->depth == 0 || j->out->failed) {
        misused(j);
        return;
    }
    put_gap(j);
    kh_buf_char(j->out, j->object & 1 ? '}' : ']');
    j->depth--;
    j->object >>= 1;
    j->filled >>= 1;
    j->compact >>= 1;
}

void kh_json_gap(kh_json_out *j, const char *white) {
    size_t n = strlen(white);
    if (n >= sizeof j->gap || strspn(white, " \t\n\r") != n)
        misused(j);
    else
        memcpy(j->gap, white, n + 1);
}

void kh_json_tight(kh_json_out *j) { j->compact |= 1; }

void kh_json_put_text(kh_json_out *j, const char *key, const char *s, size_t n) {
    if (begin(j, key))
        kh_json_quote(j->out, s, n);
}

void kh_json_put_string(kh_json_out *j, const char *key, const char *s) {
    if (s)
        kh_json_put_text(j, key, s, strlen(s));
    else
        kh_json_put_null(j, key);
}

void kh_json_put_bool(kh_json_out *j, const char *key, bool x) {
    if (begin(j, key))
        kh_buf_text(j->out, x ? "true" : "false");
}

void kh_json_put_null(kh_json_out *j, const char *key) {
    if (begin(j, key))
        kh_buf_text(j->out, "null");
}

void kh_json_put_int(kh_json_out *j, const char *key, long long x) {
    if (begin(j, key))
        kh_buf_printf(j->out, "%lld", x);
}

void kh_json_put_u64(kh_json_out *j, const char *key, uint64_t x) {
    if (begin(j, key))
        kh_json_u64(j->out, x);
}

void kh_json_put_hex(kh_json_out *j, const char *key, uint64_t x) {
    if (begin(j, key))
        kh_buf_printf(j->out, "\"%016" PRIx64 "\"", x);
}

/* printf writes the decimal point of the locale, which may be a comma or several bytes: whatever is
 * no part of a number otherwise is that point. */
static void put_decimal(kh_json_out *j, const char *key, double x, int digits, char how) {
    char text[512]; /* the longest: 309 digits, a point, and as many decimals as are let through */
    if (!isfinite(x)) {
        kh_json_put_null(j, key);
        return;
    }
    if (digits < 0 || digits > 99) {
        misused(j);
        return;
    }
    if (!begin(j, key))
        return;
    snprintf(text, sizeof text, how == 'g' ? "%.*g" : "%.*f", digits, x);
    for (const char *c = text; *c;) {
        size_t plain = strspn(c, "0123456789+-e");
        kh_buf_bytes(j->out, c, plain);
        c += plain;
        if (*c)
            kh_buf_char(j->out, '.');
        c += strcspn(c, "0123456789+-e");
    }
}

void kh_json_put_number(kh_json_out *j, const char *key, double x, int digits) {
    put_decimal(j, key, x, digits, 'g');
}

void kh_json_put_fixed(kh_json_out *j, const char *key, double x, int decimals) {
    put_decimal(j, key, x, decimals, 'f');
}

void kh_json_put_numbers(kh_json_out *j, const char *key, const double *x, size_t n, int digits) {
    kh_json_open_array(j, key);
    for (size_t i = 0; i < n; i++)
        kh_json_put_number(j, NULL, x[i], digits);
    kh_json_close(j);
}

void kh_json_put_floats(kh_json_out *j, const char *key, const float *x, size_t n, int digits) {
    kh_json_open_array(j, key);
    for (size_t i = 0; i < n; i++)
        kh_json_put_number(j, NULL, (double)x[i], digits);
    kh_json_close(j);
}

void kh_json_put_ints(kh_json_out *j, const char *key, const int *x, size_t n) {
    kh_json_open_array(j, key);
    for (size_t i = 0; i < n; i++)
        kh_json_put_int(j, NULL, x[i]);
    kh_json_close(j);
}

void kh_json_put_base64(kh_json_out *j, const char *key, const void *bytes, size_t n) {
    if (!begin(j, key))
        return;
    kh_buf_char(j->out, '"');
    kh_base64_put(j->out, bytes, n);
    kh_buf_char(j->out, '"');
}

void kh_json_put_json(kh_json_out *j, const char *key, const char *json, size_t n) {
    json_t *root;
    if (kh_json_parse(json, n, "", &root, NULL) != 0)
        misused(j);
    else if (begin(j, key))
        kh_buf_bytes(j->out, json, n);
    json_decref(root);
}
