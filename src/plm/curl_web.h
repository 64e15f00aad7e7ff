/* curl_web.h - a libcurl handle speaks HTTP and HTTPS, nothing else: a URL of a model must not make
 * it read files or talk to mail servers. Only for files that are built with libcurl. */
#ifndef KH_PLM_CURL_WEB_H
#define KH_PLM_CURL_WEB_H

#include <curl/curl.h>

/* The option by name came with libcurl 7.85; its predecessor warns there, and Debian 11 has 7.74.
 */
static inline CURLcode kh_curl_web_only(CURL *handle) {
#if LIBCURL_VERSION_NUM >= 0x075500
    return curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    return curl_easy_setopt(handle, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

#endif
