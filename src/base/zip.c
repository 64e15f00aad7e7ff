/* zip.c - see zip.h. Layout: local header + bytes of each entry, then the directory, then its end.
 * All numbers little-endian. */
#include "base/zip.h"

#include "base/err.h"

#include <string.h>

static void put16(kh_buf *b, unsigned x) {
    kh_buf_char(b, (char)(x & 255)), kh_buf_char(b, (char)(x >> 8 & 255));
}
static void put32(kh_buf *b, uint32_t x) { put16(b, x & 65535), put16(b, x >> 16); }
static unsigned get16(const unsigned char *p) { return (unsigned)(p[0] | p[1] << 8); }
static uint32_t get32(const unsigned char *p) {
    return (uint32_t)get16(p) | (uint32_t)get16(p + 2) << 16;
}

/* CRC-32 (ISO 3309), four bits at a time: the table is short enough to be checked by eye. */
static uint32_t crc32_of(const unsigned char *p, size_t n) {
    static const uint32_t T[16] = { 0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190,
        0x6b6b51f4, 0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c };
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        c = T[(c ^ p[i]) & 15] ^ (c >> 4);
        c = T[(c ^ (uint32_t)(p[i] >> 4)) & 15] ^ (c >> 4);
    }
    return ~c;
}

/* ------------------------------------------------------------------------------------- writing */

kh_zip kh_zip_start(kh_buf *out) {
    return (kh_zip){ .out = out, .directory = kh_buf_init(1 << 20), .start = out->len };
}

/* What both headers share: from "version needed" to the length of the extra field. Dated 1 January
 * 1980: the same content gives the same bytes. */
static void put_facts(kh_buf *b, uint32_t crc, size_t n, size_t n_name) {
    put16(b, 20), put16(b, 0), put16(b, 0), put16(b, 0), put16(b, 0x21);
    put32(b, crc), put32(b, (uint32_t)n), put32(b, (uint32_t)n);
    put16(b, (unsigned)n_name), put16(b, 0);
}

void kh_zip_add(kh_zip *z, const char *name, const void *bytes, size_t n) {
    size_t n_name = strlen(name), at = z->out->len - z->start;
    if (n > 0xfffffffeu || at > 0xfffffffeu || z->n >= 65535) {
        z->out->failed = true;
        return;
    }
    uint32_t crc = crc32_of(bytes, n);
    put32(z->out, 0x04034b50);
    put_facts(z->out, crc, n, n_name);
    kh_buf_text(z->out, name);
    kh_buf_bytes(z->out, bytes, n);
    put32(&z->directory, 0x02014b50), put16(&z->directory, 20);
    put_facts(&z->directory, crc, n, n_name);
    put16(&z->directory, 0), put16(&z->directory, 0), put16(&z->directory, 0),
        put32(&z->directory, 0);
    put32(&z->directory, (uint32_t)at);
    kh_buf_text(&z->directory, name);
    z->n++;
}

void kh_zip_finish(kh_zip *z) {
    size_t at = z->out->len - z->start;
    if (kh_buf_failed(&z->directory) || at > 0xfffffffeu)
        z->out->failed = true;
    kh_buf_bytes(z->out, z->directory.data, z->directory.len);
    put32(z->out, 0x06054b50), put16(z->out, 0), put16(z->out, 0);
    put16(z->out, (unsigned)z->n), put16(z->out, (unsigned)z->n);
    put32(z->out, (uint32_t)z->directory.len), put32(z->out, (uint32_t)at), put16(z->out, 0);
    kh_buf_free(&z->directory);
}

/* ------------------------------------------------------------------------------------- reading */

enum { END = 22, CENTRAL = 46, LOCAL = 30, ECHO = 56 + 20 };

/* The entry whose directory record is at p, of which `left` bytes remain; *took gets the record's
 * length, and *next, the end of the last entry's bytes, moves on: entries stand in the order of the
 * directory and do not overlap. */
static const char *read_entry(kh_zip_entry *e, const unsigned char *all, size_t directory,
    const unsigned char *p, size_t left, size_t *took, size_t *next) {
    if (left < CENTRAL || get32(p) != 0x02014b50)
        return "its directory is damaged";
    size_t n_name = get16(p + 28), extra = get16(p + 30), comment = get16(p + 32),
           size = get32(p + 24), at = get32(p + 42);
    *took = CENTRAL + n_name + extra + comment;
    if (*took > left || n_name == 0)
        return "its directory is damaged";
    if (get16(p + 10) != 0)
        return "an entry is compressed";
    if (get16(p + 8) & ~0x0808u) /* a data descriptor and UTF-8 names are harmless */
        return "an entry is encrypted";
    if (get32(p + 20) != size || size == 0xffffffffu || at == 0xffffffffu || get16(p + 34) != 0)
        return "an entry is in zip64 form, split or inconsistent";
    if (at < *next || at > directory || directory - at < LOCAL || get32(all + at) != 0x04034b50)
        return "an entry is not where the directory says";
    size_t n_local = get16(all + at + 26), local_extra = get16(all + at + 28),
           head = LOCAL + n_local + local_extra;
    bool told = (get16(p + 8) & 8) == 0;
    if (directory - at < head || directory - at - head < size || n_local != n_name ||
        memcmp(all + at + LOCAL, p + CENTRAL, n_name) != 0 || get16(all + at + 8) != 0 ||
        (told && (get32(all + at + 18) != size || get32(all + at + 22) != size)))
        return "an entry's two headers differ";
    *e = (kh_zip_entry){ (const char *)p + CENTRAL, n_name, all + at + head, size };
    if (crc32_of(e->bytes, e->n) != get32(p + 16))
        return "an entry is damaged: its checksum differs";
    *next = at + head + size;
    return NULL;
}

/* PyTorch puts a zip64 record and its locator between the directory and the end, and says the same
 * in them once more. */
static bool is_echo(const unsigned char *p, size_t entries, size_t size, size_t at) {
    uint64_t want[] = { entries, entries, size, at };
    bool same = get32(p) == 0x06064b50 && get32(p + 56) == 0x07064b50 &&
        get32(p + 64) == at + size && get32(p + 68) == 0;
    for (int i = 0; i < 4; i++)
        same = same && get32(p + 24 + 8 * i) == want[i] && get32(p + 28 + 8 * i) == 0;
    return same;
}

int kh_zip_read(kh_zip_list *out, const void *bytes, size_t n, const char *who, kh_err *err) {
    const unsigned char *all = bytes, *end = all + (n < END ? 0 : n - END);
    const char *wrong = NULL;
    out->n = 0;
    if (n < END || get32(end) != 0x06054b50 || get16(end + 20) != 0)
        return kh_fail(
            err, KH_EFORMAT, "%s: not a zip archive, or one with something behind its end", who);
    size_t entries = get16(end + 10), size = get32(end + 12), at = get32(end + 16), next = 0;
    size_t gap = size > n - END || at > n - END - size ? SIZE_MAX : n - END - size - at;
    if (get16(end + 4) != 0 || get16(end + 6) != 0 || get16(end + 8) != entries ||
        !(gap == 0 || (gap == ECHO && is_echo(all + at + size, entries, size, at))))
        return kh_fail(err, KH_EFORMAT,
            "%s: the end of the zip archive is damaged, or it is split or in zip64 form", who);
    if (entries > KH_ZIP_ENTRIES)
        return kh_fail(err, KH_ELIMIT, "%s: a zip archive of %zu entries; at most %d are read", who,
            entries, (int)KH_ZIP_ENTRIES);
    const unsigned char *p = all + at, *stop = p + size;
    for (size_t i = 0, took; i < entries && !wrong; i++, p += took) {
        took = 0;
        wrong = read_entry(&out->entry[out->n++], all, at, p, (size_t)(stop - p), &took, &next);
    }
    if (!wrong && p != stop)
        wrong = "its directory is damaged";
    return wrong ? kh_fail(err, KH_EFORMAT, "%s: a zip archive that is not read: %s", who, wrong)
                 : 0;
}
