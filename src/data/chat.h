/* chat.h - how chat models want a message to be wrapped: what stands before a user's message, and
 * what stands between it and the answer. All of it is encoded as one with the message; special
 * tokens in it are special, those in the message are not. */
#ifndef KH_DATA_CHAT_H
#define KH_DATA_CHAT_H

#include "keyhole.h"

typedef struct kh_chat {
    const char *name;      /* what tasks and posteriors record */
    const char *mark;      /* stands in every "chat_template" of this kind */
    bool bos;              /* the start token stands in front; the others write none */
    bool trim;             /* white space around the message is taken off */
    const char *system[2]; /* around a message that is there before the user's; NULL: none is */
    const char *front;     /* before the message */
    const char *back;      /* after it; then the answer begins */
    const char *lead[2];   /* the end of that, and what stands between it and a word */
} kh_chat;

/* By name; NULL: there is none. */
const kh_chat *kh_chat_named(const char *name);
/* The format of a model, found by "chat_template" in the tokenizer_config.json of its folder, or by
 * the key of its GGUF file. *system: the message that its template puts in front of all others
 * unless it is given one, or NULL; kh_free it. */
int kh_chat_find(const kh_chat **out, char **system, const char *model, kh_err *err);

#endif
