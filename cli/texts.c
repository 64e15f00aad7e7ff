/* texts.c - see texts.h. */
#include "texts.h"

#include "base/err.h"
#include "base/json.h"

#include <string.h>

/* A line that is a JSON string becomes what the string says. */
static int decode_line(cli_texts *t, kh_err *err) {
    char place[64];
    snprintf(place, sizeof place, "standard input: line %ld", t->line);
    json_t *value;
    int rc = kh_json_parse(t->buffer.data, t->buffer.len, place, &value, err);
    if (rc == 0 && !json_is_string(value))
        rc = kh_fail(err, KH_EFORMAT, "%s: must be a JSON string", place);
    if (t->decoded.max == 0)
        t->decoded = kh_buf_init(KH_BUF_MAX);
    if (rc == 0) {
        kh_buf_reset(&t->decoded);
        kh_buf_bytes(&t->decoded, json_string_value(value), json_string_length(value));
        if (kh_buf_failed(&t->decoded))
            rc = kh_fail_memory(err);
    }
    json_decref(value);
    return rc;
}

int cli_texts_next(cli_texts *t, const char **text, size_t *n, kh_err *err) {
    if (t->n_args > 0) {
        if (t->next == t->n_args)
            return 0;
        *text = t->args[t->next++];
        *n = strlen(*text);
        return 1;
    }
    int rc = cli_read_line(stdin, &t->buffer, err);
    if (rc <= 0)
        return rc;
    t->line++;
    if (t->json && (rc = decode_line(t, err)) < 0)
        return rc;
    const kh_buf *from = t->json ? &t->decoded : &t->buffer;
    *text = from->data ? from->data : "";
    *n = from->len;
    return 1;
}

void cli_texts_free(cli_texts *t) {
    kh_buf_free(&t->buffer);
    kh_buf_free(&t->decoded);
}

int cli_texts_fail(const cli_texts *t, kh_err *err) {
    return t->line > 0 ? kh_err_prefix(err, "standard input: line %ld", t->line) : err->code;
}
