/* controls.h - sentences and log lines quote names out of files and answers of services; what such
 * a text could do to a terminal stays where it came from. */
#ifndef KH_BASE_CONTROLS_H
#define KH_BASE_CONTROLS_H

/* C0, DEL, and C1 as UTF-8 writes it (C2 80 to C2 9F) become '?'. */
static inline void kh_hide_controls(char *text) {
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        if (*c == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0)
            c[0] = c[1] = '?';
        else if (*c < 0x20 || *c == 0x7F)
            *c = '?';
    }
}

#endif
