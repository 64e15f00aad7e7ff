/* controls.h - sentences and log lines quote names out of files and answers of services; what such
 * a text could do to a terminal stays where it came from. */
#ifndef KH_BASE_CONTROLS_H
#define KH_BASE_CONTROLS_H

/* C0, DEL, and C1 as UTF-8 writes it (C2 80 to C2 9F) become '?'; so do the characters that turn
 * the direction of a line around (U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069), and
 * the separators of lines (U+2028, U+2029). */
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
