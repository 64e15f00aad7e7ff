/* services.c - the table of services that a URL can stand for. */
#include "plm/services.h"

#include "base/err.h"

#include <string.h>

static const struct {
    const char *name;
    kh_service_open *open;
} SERVICES[] = {
    { "keyhole", kh_keyhole_open },
    { "vllm-completions", kh_vllm_completions_open },
    { "vllm-chat", kh_vllm_chat_open },
    { "sglang", kh_sglang_open },
    { "openai", kh_openai_open },
    { "decisions", kh_decisions_service },
    { "systemone", kh_systemone_service },
};

enum { N_SERVICE = sizeof SERVICES / sizeof SERVICES[0] };

bool kh_speaks(const char *backend) {
    int i = 1; /* the first is keyhole's own */
    while (backend && i < N_SERVICE && strcmp(SERVICES[i].name, backend) != 0)
        i++;
    return backend && i < N_SERVICE;
}

/* A service takes the connection over, also when it fails to open: from kh_http_open on nobody here
 * closes it. */
int kh_service_find(kh_service *out, const char *url, const kh_http_opts *opts,
    const kh_hooks *hooks, kh_err *err) {
    kh_http_opts o = opts ? *opts : kh_http_defaults();
    const char *name = o.backend ? o.backend : SERVICES[0].name;
    kh_http *http;
    int i = 0;
    *out = (kh_service){ 0 };
    while (i < N_SERVICE && strcmp(SERVICES[i].name, name) != 0)
        i++;
    if (i == N_SERVICE)
        return kh_fail(err, KH_EARG,
            "unknown backend \"%.60s\"; a URL may speak keyhole, vllm-completions, vllm-chat, "
            "sglang, openai, decisions or systemone",
            name);
    int rc = kh_http_open(&http, url, &o, hooks, err);
    return rc == 0 ? SERVICES[i].open(out, http, &o, err) : rc;
}
