/* sha256.h - SHA-256 (FIPS 180-4), for files whose hash somebody publishes.
 *
 *     kh_sha256 s;
 *     kh_sha256_start(&s);
 *     kh_sha256_more(&s, bytes, n);
 *     kh_sha256_end(&s, hex);
 */
#ifndef KH_BASE_SHA256_H
#define KH_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct kh_sha256 {
    uint32_t h[8];
    uint64_t n; /* bytes so far */
    unsigned char block[64];
} kh_sha256;

void kh_sha256_start(kh_sha256 *);
void kh_sha256_more(kh_sha256 *, const void *bytes, size_t n);
void kh_sha256_end(kh_sha256 *, char hex[65]);

#endif
