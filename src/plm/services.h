/* services.h - boxes on the other side of HTTP, one row each: how they are opened. */
#ifndef KH_PLM_SERVICES_H
#define KH_PLM_SERVICES_H

#include "plm/backend.h"
#include "plm/http.h"

/* An opened service. */
typedef struct kh_service {
    const kh_backend *backend;
    void *self;
    kh_tokenizer *tokenizer; /* belongs to whoever opened the service */
    kh_access access;        /* the most that it lets out */
} kh_service;

/* Takes the connection over, also when it fails. Asks what the service can do; that is no query. */
typedef int kh_service_open(kh_service *out, kh_http *, const kh_http_opts *, kh_err *err);
kh_service_open kh_keyhole_open, kh_vllm_completions_open, kh_vllm_chat_open, kh_sglang_open,
    kh_openai_open, kh_decisions_service, kh_systemone_service;

/* Opens the service that a URL and opts->backend name. out->tokenizer may be set on failure: close
 * it. */
int kh_service_find(
    kh_service *out, const char *url, const kh_http_opts *, const kh_hooks *, kh_err *err);

#endif
