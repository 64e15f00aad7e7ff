/* chat.h - how chat models want a message to be wrapped: what stands before a user's message, and
 * what stands between it and the answer. Special tokens in it are special; the start token is the
 * tokenizer's. */
#ifndef KH_DATA_CHAT_H
#define KH_DATA_CHAT_H

#include "keyhole.h"

typedef struct kh_chat {
    const char *name;  /* what tasks and posteriors record */
    const char *mark;  /* stands in every "chat_template" of this kind */
    const char *front; /* before the message */
    const char *back;  /* after it; then the answer begins */
} kh_chat;

/* By name; NULL: there is none. */
const kh_chat *kh_chat_named(const char *name);
/* The format of a model, found by "chat_template" in the tokenizer_config.json of its folder, or by
 * the key of its GGUF file. */
int kh_chat_find(const kh_chat **out, const char *model, kh_err *err);

#endif
