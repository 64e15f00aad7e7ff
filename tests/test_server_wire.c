/* test_server_wire.c - HTTP/1.1 as RFC 9112 wants it read, on raw sockets: requests whose ends
 * could be seen in two ways, heads that are none, chunks that do not add up. A server behind
 * another one must never take for a request what the one in front took for a body (request
 * smuggling), so what is ambiguous is refused, and no connection goes on after it. The requests are
 * ours, after sections 2 to 7 of the RFC; doc/reliability.md says what those of others found. */
#include "site.h"

#ifdef KH_WITH_MHD

#define HOST "Host: localhost\r\n"
#define POST(heads) \
    "POST /v1/score HTTP/1.1\r\n" HOST "Content-Type: application/json\r\n" heads "\r\n"
#define SECOND "GET /smuggled HTTP/1.1\r\n" HOST "\r\n"

typedef struct wire {
    const char *name, *bytes; /* \1 stands for NUL, which a string cannot hold */
} wire;

static int count_of(const char *text, const char *what) {
    int n = 0;
    for (; (text = strstr(text, what)) != NULL; text += strlen(what))
        n++;
    return n;
}

/* No request of these may be answered as a good one, and what follows it on the connection not at
 * all. (A header without a name is dropped by libmicrohttpd before we see it, and says nothing.) */
static void try_all(const wire *list, size_t n) {
    site s = site_open(KH_ACCESS_LABELS, NULL);
    int wrong = 0;
    for (size_t i = 0; i < n; i++) {
        char sent[1024];
        size_t bytes = strlen(list[i].bytes);
        assert_true(bytes <= sizeof sent);
        for (size_t k = 0; k < bytes; k++)
            sent[k] = list[i].bytes[k] == 1 ? '\0' : list[i].bytes[k];
        talk(kh_server_port(s.server), sent, bytes, answer, sizeof answer, 0.4);
        /* the second request, if it is seen as one, is to a place that is not there */
        int good = count_of(answer, "HTTP/1.1 2"), second = count_of(answer, "HTTP/1.1 404");
        if (good + second > 0) {
            printf("# %s: %d good answers, %d to the second request\n", list[i].name, good, second);
            wrong++;
        }
        if (ask(&s, "GET", "/health", "", "", answer, sizeof answer) != 200)
            fail_msg("%s: the server is gone", list[i].name);
    }
    site_close(&s);
    assert_int_equal(wrong, 0);
}

#define TRY(list) try_all(list, sizeof list / sizeof list[0])

static void what_is_good_is_answered(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LABELS, NULL);
    static const char
        TWO[] = "GET /health HTTP/1.1\r\n" HOST "\r\nGET /health HTTP/1.1\r\n" HOST
                "Connection: close\r\n\r\n",
        CHUNKS[] =
            POST("Transfer-Encoding: chunked\r\nConnection: close\r\n") "1\r\n{\r\n1;name="
                                                                        "value\r\n}\r\n0\r\n\r\n";
    talk(kh_server_port(s.server), TWO, sizeof TWO - 1, answer, sizeof answer, 5);
    assert_int_equal(count_of(answer, "HTTP/1.1 200"), 2);
    talk(kh_server_port(s.server), CHUNKS, sizeof CHUNKS - 1, answer, sizeof answer, 5);
    assert_int_equal(count_of(answer, "HTTP/1.1 400"), 1); /* {} is read, and no question */
    site_close(&s);
}

static void a_body_is_never_a_request(void **state) {
    (void)state;
    static const wire LIST[] = {
        { "length and chunks",
            POST("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n") "0\r\n\r\n" SECOND },
        { "chunks and length",
            POST("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n") "0\r\n\r\n" SECOND },
        { "two lengths", POST("Content-Length: 2\r\nContent-Length: 60\r\n") "{}" SECOND },
        { "two lengths, longer first",
            POST("Content-Length: 60\r\nContent-Length: 2\r\n") "{}" SECOND },
        { "a list of lengths", POST("Content-Length: 2, 60\r\n") "{}" SECOND },
        { "a length with a sign", POST("Content-Length: +2\r\n") "{}" SECOND },
        { "a negative length", POST("Content-Length: -1\r\n") "{}" SECOND },
        { "a length in hexadecimal", POST("Content-Length: 0x2\r\n") "{}" SECOND },
        { "a length with letters", POST("Content-Length: 2a\r\n") "{}" SECOND },
        { "an empty length", POST("Content-Length: \r\n") SECOND },
        { "a length beyond 64 bits", POST("Content-Length: 18446744073709551618\r\n") "{}" SECOND },
        { "space before the colon", POST("Content-Length : 60\r\n") "{}" SECOND },
        { "an unknown coding", POST("Transfer-Encoding: xchunked\r\n") "0\r\n\r\n" SECOND },
        { "chunked is not last",
            POST("Transfer-Encoding: chunked, identity\r\n") "0\r\n\r\n" SECOND },
        { "chunked twice",
            POST("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n") "0\r\n\r"
                                                                                 "\n" SECOND },
        { "chunked behind another",
            POST("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n") "0\r\n\r"
                                                                                  "\n" SECOND },
        { "a coding in quotes", POST("Transfer-Encoding: \"chunked\"\r\n") "0\r\n\r\n" SECOND },
        { "a folded coding", POST("Transfer-Encoding:\r\n chunked\r\n") "0\r\n\r\n" SECOND },
        { "a coding behind a control character",
            POST("X: y\rTransfer-Encoding: chunked\r\n") "0\r\n\r\n" SECOND },
        { "a coding in HTTP/1.0",
            "POST /v1/score HTTP/1.0\r\n" HOST
            "Content-Type: application/json\r\nTransfer-Encoding: "
            "chunked\r\n\r\n0\r\n\r\n" SECOND },
    };
    TRY(LIST);
}

static void chunks_must_add_up(void **state) {
    (void)state;
#define CHUNKED(body) POST("Transfer-Encoding: chunked\r\n") body SECOND
    static const wire LIST[] = {
        { "hexadecimal by 0x", CHUNKED("0x2\r\n{}\r\n0\r\n\r\n") },
        { "a negative size", CHUNKED("-2\r\n{}\r\n0\r\n\r\n") },
        { "a size with a sign", CHUNKED("+2\r\n{}\r\n0\r\n\r\n") },
        { "no size", CHUNKED("\r\n{}\r\n0\r\n\r\n") },
        { "a size beyond 64 bits", CHUNKED("10000000000000002\r\n{}\r\n0\r\n\r\n") },
        { "more than its size", CHUNKED("1\r\n{}\r\n0\r\n\r\n") },
        { "letters that are no digits", CHUNKED("2g\r\n{}\r\n0\r\n\r\n") },
    };
    TRY(LIST);
}

static void heads_must_be_heads(void **state) {
    (void)state;
    static const wire LIST[] = {
        { "no host", "GET /health HTTP/1.1\r\n\r\n" },
        { "two hosts", "GET /health HTTP/1.1\r\n" HOST "Host: example.org\r\n\r\n" },
        { "a host of another name first",
            "GET /health HTTP/1.1\r\nHost: example.org\r\n" HOST "\r\n" },
        { "a version to come", "GET /health HTTP/3.0\r\n" HOST "\r\n" },
        { "a version in small letters", "GET /health http/1.1\r\n" HOST "\r\n" },
        { "no version", "GET /health\r\n\r\n" },
        { "a head without a colon", "GET /health HTTP/1.1\r\n" HOST "nothing\r\n\r\n" },
        { "a method that is none", "G@T /health HTTP/1.1\r\n" HOST "\r\n" },
        { "a folded first line", " GET /health HTTP/1.1\r\n" HOST "\r\n" },
    };
    TRY(LIST);
}

/* What a value cannot hold: others might see it end there. (For libmicrohttpd 0.9.75 a value itself
 * ends at NUL, so that we do not see what is behind.) */
static void heads_hold_no_controls(void **state) {
    (void)state;
#define HEAD(line) "GET /health HTTP/1.1\r\n" HOST line "\r\n\r\n" SECOND
    static const wire LIST[] = {
        { "a bare CR", HEAD("X: y\rContent-Length: 60") },
        { "two of them", HEAD("X: y\r\rGET /smuggled HTTP/1.1\rHost: localhost\r\rZ: 1") },
        { "a bell", HEAD("X: y\az") },
        { "a form feed", HEAD("X: \f") },
        { "a DEL", HEAD("X: y\x7fz") },
        { "NUL in a name", HEAD("X\1Y: z") },
    };
    TRY(LIST);
}

static void tabs_and_letters_are_fine(void **state) {
    (void)state;
    site s = site_open(KH_ACCESS_LABELS, NULL);
    static const char GOOD[] = "GET /health HTTP/1.1\r\n" HOST
                               "X: a\tb D\xc3\xbcsseldorf \xff\r\nConnection: close\r\n\r\n";
    talk(kh_server_port(s.server), GOOD, sizeof GOOD - 1, answer, sizeof answer, 5);
    assert_int_equal(count_of(answer, "HTTP/1.1 200"), 1);
    site_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_good_is_answered),
        cmocka_unit_test(a_body_is_never_a_request),
        cmocka_unit_test(chunks_must_add_up),
        cmocka_unit_test(heads_must_be_heads),
        cmocka_unit_test(heads_hold_no_controls),
        cmocka_unit_test(tabs_and_letters_are_fine),
    };
    return cmocka_run_group_tests_name("HTTP on the wire", tests, tiny_setup, tiny_teardown);
}

#else
int main(void) {
    printf("# skipped: wire: built without libmicrohttpd\nok 1 - wire # SKIP built without "
           "libmicrohttpd\n");
    return 0;
}
#endif
