/* controls.h - sentences and log lines quote names out of files and answers of services; what such
 * a text could do to a terminal stays where it came from. */
#ifndef KH_BASE_CONTROLS_H
#define KH_BASE_CONTROLS_H

#include <stdbool.h>
#include <stdint.h>

/* C0, DEL and C1, which command a terminal; characters that turn the direction of a line around;
 * the separators of lines. */
static inline bool kh_is_control(uint32_t c) {
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x61C || c == 0x200E || c == 0x200F ||
        (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

/* Each byte of such a character becomes '?', in UTF-8 as it is written; the length stays. */
static inline void kh_hide_controls(char *text) {
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        if ((*c == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0) || (*c == 0xD8 && c[1] == 0x9C))
            c[0] = c[1] = '?';
        else if (*c == 0xE2 &&
            ((c[1] == 0x80 && (c[2] == 0x8E || c[2] == 0x8F || (c[2] >= 0xA8 && c[2] <= 0xAE))) ||
                (c[1] == 0x81 && c[2] >= 0xA6 && c[2] <= 0xA9)))
            c[0] = c[1] = c[2] = '?';
        else if (*c < 0x20 || *c == 0x7F)
            *c = '?';
    }
}

#endif
