/* mutators.c - see mutators.h. Both walk the file as it stands, trusting nothing in it, and
 * remember where things are; then one of a few changes is made. */
#include "mutators.h"

#include "base/rng.h"

#include <stdbool.h>
#include <string.h>

enum { MAX_PARTS = 512 };

/* Replaces bytes[at .. at + old) by len bytes of `by` (which may lie within the file: it is copied
 * first); returns the new length, or n if there is no room. */
static size_t splice(
    uint8_t *bytes, size_t n, size_t max, size_t at, size_t old, const uint8_t *by, size_t len) {
    uint8_t piece[1024];
    if (len > sizeof piece || n - old + len > max)
        return n;
    if (len > 0)
        memcpy(piece, by, len);
    memmove(bytes + at + len, bytes + at + old, n - at - old);
    if (len > 0)
        memcpy(bytes + at, piece, len);
    return n - old + len;
}

/* ---------------------------------------------------------------------------------------- GGUF */

/* A number of the file: its place, its size, and if it counts the bytes that follow it. */
typedef struct part {
    size_t at;
    int size;
    bool length;
} part;

/* An entry (a key with its value, or a tensor): from, to, and the place of the count of its kind.
 */
typedef struct entry {
    size_t from, to, count;
} entry;

typedef struct layout {
    const uint8_t *bytes;
    size_t n, at;
    bool bad;
    part part[MAX_PARTS];
    entry entry[MAX_PARTS];
    int n_part, n_entry;
} layout;

static uint64_t number_at(const uint8_t *p, int size) {
    uint64_t x = 0;
    for (int i = size; i-- > 0;)
        x = x << 8 | p[i];
    return x;
}

static void put_number(uint8_t *p, int size, uint64_t x) {
    for (int i = 0; i < size; i++, x >>= 8)
        p[i] = (uint8_t)x;
}

static uint64_t take(layout *l, int size, bool length) {
    if (l->bad || l->n - l->at < (size_t)size) {
        l->bad = true;
        return 0;
    }
    if (l->n_part < MAX_PARTS)
        l->part[l->n_part++] = (part){ l->at, size, length };
    l->at += (size_t)size;
    return number_at(l->bytes + l->at - (size_t)size, size);
}

static void take_text(layout *l) {
    uint64_t n = take(l, 8, true);
    l->bad |= n > l->n - l->at;
    l->at += l->bad ? 0 : (size_t)n;
}

static void take_value(layout *l, uint64_t type, int depth) {
    static const int SIZE[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    if (type == 8)
        take_text(l);
    else if (type == 9 && depth < 2) {
        uint64_t of = take(l, 4, false), count = take(l, 8, false);
        for (uint64_t i = 0; i < count && !l->bad; i++)
            take_value(l, of, depth + 1);
    } else if (type < 13 && SIZE[type])
        take(l, SIZE[type], false);
    else
        l->bad = true;
}

static void add_entry(layout *l, size_t from, size_t count) {
    if (!l->bad && l->n_entry < MAX_PARTS)
        l->entry[l->n_entry++] = (entry){ from, l->at, count };
}

static void look_gguf(layout *l) {
    take(l, 4, false);
    take(l, 4, false);
    uint64_t tensors = take(l, 8, false), values = take(l, 8, false);
    for (uint64_t i = 0; i < values && !l->bad; i++) {
        size_t from = l->at;
        take_text(l);
        take_value(l, take(l, 4, false), 0);
        add_entry(l, from, 16);
    }
    for (uint64_t i = 0; i < tensors && !l->bad; i++) {
        size_t from = l->at;
        take_text(l);
        uint64_t dims = take(l, 4, false);
        for (uint64_t d = 0; d < dims && !l->bad; d++)
            take(l, 8, false);
        take(l, 4, false);
        take(l, 8, false);
        add_entry(l, from, 8);
    }
}

/* A number that means trouble, or one beside what stands there. */
static uint64_t odd_number(kh_rng *r, uint64_t now) {
    static const uint64_t ODD[] = { 0, 1, 2, 31, 32, 33, 255, 65535, 0x7fffffff, 0x80000000,
        0xffffffff, (uint64_t)1 << 40, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX };
    switch (kh_rng_below(r, 4)) {
    case 0: return now + 1;
    case 1: return now - 1;
    case 2: return kh_rng_below(r, 48); /* types of values and of blocks */
    default: return ODD[kh_rng_below(r, sizeof ODD / sizeof ODD[0])];
    }
}

/* A text that is longer or shorter, with a length that says so. */
static size_t resize_text(uint8_t *b, size_t n, size_t max, const part *p, kh_rng *r) {
    static const uint8_t MORE[] = "\xE2\x96\x81 a<0x0A>\0\xFF";
    size_t len = (size_t)number_at(b + p->at, 8), at = p->at + 8 + len;
    size_t less = len > 0 ? kh_rng_below(r, (uint32_t)(len < 8 ? len : 8) + 1) : 0,
           more = kh_rng_below(r, sizeof MORE);
    size_t now = splice(b, n, max, at - less, less, MORE, more);
    if (now != n || more == less)
        put_number(b + p->at, 8, len - less + more);
    return now;
}

static size_t change_entry(uint8_t *b, size_t n, size_t max, const layout *l, kh_rng *r) {
    const entry *e = &l->entry[kh_rng_below(r, (uint32_t)l->n_entry)],
                *o = &l->entry[kh_rng_below(r, (uint32_t)l->n_entry)];
    uint64_t count = number_at(b + e->count, 8);
    bool again = kh_rng_below(r, 2) == 1;
    size_t now = again ? splice(b, n, max, e->to, 0, b + o->from, o->to - o->from)
                       : splice(b, n, max, e->from, e->to - e->from, b, 0);
    if (now != n) /* another kind's entry makes nonsense of it, which is welcome */
        put_number(b + e->count, 8, again ? count + 1 : count - 1);
    return now;
}

size_t kh_mutate_gguf(uint8_t *bytes, size_t n, size_t max, unsigned seed) {
    static layout l; /* large; a fuzzer has one thread */
    kh_rng r = kh_rng_stream(seed, KH_RNG_TEST, 0, 0);
    l = (layout){ .bytes = bytes, .n = n };
    look_gguf(&l);
    if (l.n_part == 0)
        return 0;
    if (l.n_entry > 0 && kh_rng_below(&r, 4) == 0)
        return change_entry(bytes, n, max, &l, &r);
    const part *p = &l.part[kh_rng_below(&r, (uint32_t)l.n_part)];
    if (p->length && !l.bad && kh_rng_below(&r, 4) > 0)
        return resize_text(bytes, n, max, p, &r);
    put_number(bytes + p->at, p->size, odd_number(&r, number_at(bytes + p->at, p->size)));
    return n;
}

/* ---------------------------------------------------------------------------------------- JSON */

/* The end of the value that begins here. */
static size_t value_end(const uint8_t *b, size_t n, size_t at) {
    int depth = 0;
    bool text = false;
    for (size_t i = at; i < n; i++) {
        if (text && b[i] == '\\')
            i++;
        else if (b[i] == '"')
            text = !text;
        else if (!text)
            depth += (b[i] == '{' || b[i] == '[') - (b[i] == '}' || b[i] == ']');
        bool word = b[at] != '"' && b[at] != '{' && b[at] != '[';
        if (i >= n) /* the last byte escapes nothing that is there */
            break;
        if (word && (i + 1 == n || strchr(",]}: \n\t", b[i + 1])))
            return i + 1;
        if (!word && !text && depth <= 0)
            return i + 1 < n ? i + 1 : n;
    }
    return n;
}

typedef struct span {
    size_t at, len;
} span;

/* Where values and keys begin: after what can stand before one. */
static int find_values(const uint8_t *b, size_t n, span out[MAX_PARTS]) {
    int found = 0;
    bool ready = true, text = false;
    for (size_t i = 0; i < n && found < MAX_PARTS; i++) {
        if (!text && ready && !strchr(" \n\t\r,:]}", b[i])) {
            out[found++] = (span){ i, value_end(b, n, i) - i };
            ready = false;
        }
        if (text && b[i] == '\\')
            i++;
        else if (b[i] == '"')
            text = !text;
        else if (!text)
            ready |= b[i] == '[' || b[i] == '{' || b[i] == ',' || b[i] == ':';
    }
    return found;
}

size_t kh_mutate_json(uint8_t *bytes, size_t n, size_t max, unsigned seed) {
    static const char *const WORD[] = { "null", "true", "false", "0", "-1", "1e308", "1e999", "0.1",
        "2147483648", "9007199254740993", "-0", "\"\"", "\"\\u0000\"", "\"\\ud800\"", "[]", "{}",
        "[[]]", "[{}]", "{\"\":0}", "\"mask\"" };
    static span s[MAX_PARTS];
    kh_rng r = kh_rng_stream(seed, KH_RNG_TEST, 0, 0);
    int found = find_values(bytes, n, s);
    if (found == 0)
        return 0;
    const span *a = &s[kh_rng_below(&r, (uint32_t)found)],
               *b = &s[kh_rng_below(&r, (uint32_t)found)];
    const char *word = WORD[kh_rng_below(&r, sizeof WORD / sizeof WORD[0])];
    size_t end = a->at + a->len, more;
    switch (kh_rng_below(&r, 5)) {
    case 0: return splice(bytes, n, max, a->at, a->len, (const uint8_t *)word, strlen(word));
    case 1: return splice(bytes, n, max, a->at, a->len, bytes + b->at, b->len);
    case 2: /* once more, behind a comma */
        more = splice(bytes, n, max, end, 0, bytes + a->at, a->len);
        return more == n ? n : splice(bytes, more, max, end, 0, (const uint8_t *)",", 1);
    case 3: /* away, with the comma behind it */
        return splice(bytes, n, max, a->at, a->len + (end < n && bytes[end] == ','), bytes, 0);
    default: /* one deeper */
        more = splice(bytes, n, max, end, 0, (const uint8_t *)"]", 1);
        return splice(bytes, more, max, a->at, 0, (const uint8_t *)"[", 1);
    }
}
