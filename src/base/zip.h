/* zip.h - the smallest zip archives: stored entries, no compression, no zip64. NumPy's .npz and
 * PyTorch's files are such.
 *
 *     kh_zip z = kh_zip_start(&buf);
 *     kh_zip_add(&z, "weights.npy", bytes, n);
 *     kh_zip_finish(&z);                               failure sticks to the buffer
 *
 * Reading is strict: what is compressed, encrypted, split, larger than 4 GB, inconsistent between
 * its two headers, overlapping or damaged is refused. */
#ifndef KH_BASE_ZIP_H
#define KH_BASE_ZIP_H

#include "base/buf.h"
#include "keyhole.h"

typedef struct kh_zip {
    kh_buf *out;
    kh_buf directory;
    size_t start; /* of the archive in out */
    int n;
} kh_zip;

kh_zip kh_zip_start(kh_buf *out);
void kh_zip_add(kh_zip *, const char *name, const void *bytes, size_t n);
void kh_zip_finish(kh_zip *);

enum { KH_ZIP_ENTRIES = 16 };

typedef struct kh_zip_entry {
    const char *name; /* n_name bytes of the archive */
    size_t n_name;
    const unsigned char *bytes;
    size_t n;
} kh_zip_entry;

typedef struct kh_zip_list {
    kh_zip_entry entry[KH_ZIP_ENTRIES];
    int n;
} kh_zip_list;

/* Everything points into the archive's bytes. `who` is what messages call it. */
int kh_zip_read(kh_zip_list *, const void *bytes, size_t n, const char *who, kh_err *err);

#endif
