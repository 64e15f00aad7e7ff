/* secrets.h - keys and tokens that this process holds, and that no sentence, log line or journal
 * may repeat, whoever put them into a text: a service may echo the key in its complaint. */
#ifndef KH_BASE_SECRETS_H
#define KH_BASE_SECRETS_H

/* From now on the secret is hidden. At most 64 are kept, of at most 4 KB; it is never forgotten. */
void kh_secret_add(const char *secret);

/* Every stretch of eight characters or more that is part of a secret, or a whole shorter one,
 * becomes asterisks: an echo may be cut. One of less than six is a word, and no secret. */
void kh_hide_secrets(char *text);

#endif
