/* fuzz_config.c - any bytes as config.json: what is accepted is in range and survives being written
 * and read again. */
#include "model/config.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    kh_config c, again;
    kh_err err;
    if (kh_config_parse(&c, (const char *)bytes, n, "config.json", &err) != 0)
        return 0;
    if (c.layers < 1 || c.pad >= c.vocab || kh_config_max_tokens(&c) < 1 ||
        (c.head_width == 0 && c.hidden % c.heads != 0) || c.heads % kh_config_kv_heads(&c) != 0 ||
        kh_config_q_width(&c) < 1 || kh_config_kv_width(&c) > kh_config_q_width(&c))
        abort();
    kh_buf text = kh_buf_init(1 << 16);
    kh_config_put(&c, KH_DTYPE_F16, &text);
    if (kh_config_parse(&again, text.data, text.len, "config.json", &err) != 0)
        abort();
    if (again.hidden != c.hidden || again.vocab != c.vocab ||
        again.first_position != c.first_position || again.tied != c.tied || again.act != c.act)
        abort();
    if (again.arch != c.arch || again.bias != c.bias || again.rope.kind != c.rope.kind ||
        kh_config_q_width(&again) != kh_config_q_width(&c) ||
        kh_config_kv_width(&again) != kh_config_kv_width(&c))
        abort();
    for (int l = 0; l < c.layers; l++)
        if (kh_config_window(&again, l) != kh_config_window(&c, l))
            abort();
    kh_buf_free(&text);
    return 0;
}
