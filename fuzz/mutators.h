/* mutators.h - damage that knows what it damages: lengths and counts stay right, or are wrong on
 * purpose, so that a fuzzer gets behind the first check.
 *
 * Each changes n bytes in place, to at most max, by the draws of `seed` alone, and returns the new
 * length; 0: it found nothing to change. fuzz/custom_*.c hand them to libFuzzer, tests/test_fuzz.c
 * tries them without it. */
#ifndef KH_FUZZ_MUTATORS_H
#define KH_FUZZ_MUTATORS_H

#include <stddef.h>
#include <stdint.h>

size_t kh_mutate_gguf(uint8_t *bytes, size_t n, size_t max, unsigned seed);
size_t kh_mutate_json(uint8_t *bytes, size_t n, size_t max, unsigned seed);

#endif
