/* custom_json.c - libFuzzer's mutations with the knowledge of mutators.h: two of three by it.
 * Linked to the targets that read JSON (Makefile). */
#include "mutators.h"

size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t n, size_t max, unsigned seed) {
    size_t now = seed % 3 ? kh_mutate_json(bytes, n, max, seed / 3) : 0;
    return now ? now : LLVMFuzzerMutate(bytes, n, max);
}
