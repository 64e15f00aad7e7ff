/* slow_soak.c - "keyhole serve" under mixed traffic for a while: clients that mean it, whose every
 * answer must be the right one to the last byte, beside clients that do not. Memory must stay flat,
 * no descriptor may be lost, and at the end the server must end in order. KEYHOLE_SOAK_SECONDS says
 * how long ("make soak SECONDS=3600"; 30 without), KEYHOLE_SOAK_PAUSE how many milliseconds each
 * client rests between two requests (20 without). Everything is on loopback. */
#include "tiny.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

enum { GOOD_CLIENTS = 3, BAD_CLIENTS = 3, ANSWER = 1 << 16, MOST_SAMPLES = 64 };

static const char *const POSTS[][2] = {
    { "/v1/score",
        "{\"want\":\"logprobs\",\"encoding\":\"json\",\"task\":{\"name\":\"toy\",\"template\":\"{"
        "text} It was {mask} .\","
        "\"labels\":[{\"name\":\"bad\",\"words\":[\"lower\"]},{\"name\":\"good\",\"words\":["
        "\"better\"]}]},"
        "\"texts\":[\"the boats were green\",\"small boats\"]}" },
    { "/v1/score",
        "{\"want\":\"labels\",\"ids\":[[0,30,31,4,2]],\"mask\":[3],\"labels\":[[[40]],[[41]]]}" },
    { "/v1/completions",
        "{\"prompt\":[\"the <mask> boats\",\"a <mask>\"],\"max_tokens\":1,\"logprobs\":5}" },
    { "/v1/completions",
        "{\"prompt\":[0,30,31,660,2],\"allowed_token_ids\":[40,41],\"return_tokens_as_token_ids\":"
        "true}" },
    { "/v1/decisions",
        "{\"input\":\"the boats were green\",\"questions\":[{\"type\":\"choice\",\"name\":\"q\","
        "\"instructions\":\"It "
        "was\",\"choices\":[{\"value\":\"lower\"},{\"value\":\"better\"}]}]}" },
    { "/v1/systemone",
        "{\"state\":\"small boats\",\"questions\":{\"q\":{\"type\":\"score\",\"instructions\":\"It "
        "was\",\"criteria\":[\"lower\",\"better\"]}}}" },
};
enum { N_POSTS = sizeof POSTS / sizeof POSTS[0] };

static int port;
static pid_t server;
static char want[N_POSTS][ANSWER]; /* the right answers */
static atomic_bool stop;
static atomic_long good, wrong, bad;
static int pause_ms;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static long option(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && atol(text) > 0 ? atol(text) : otherwise;
}

/* ---------------------------------------------------------------------------------- the server */

static void start_server(void) {
    const char *keyhole = getenv("KEYHOLE");
    int out[2];
    char line[256] = "";
    assert_int_equal(pipe(out), 0);
    server = fork();
    assert_true(server >= 0);
    if (server == 0) {
        dup2(out[1], 1);
        close(out[0]);
        close(out[1]);
        execl(keyhole ? keyhole : "build/release/keyhole", "keyhole", "serve", "--model", tiny_dir,
            "--port", "0", "--access", "logprobs", "--header-time", "2", "--body-time", "3",
            "--idle-time", "5", "--max-body", "1", "--queue", "64", "--connections", "64",
            (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    FILE *f = fdopen(out[0], "r");
    if (!fgets(line, sizeof line, f) || !strrchr(line, ':'))
        fail_msg("the server does not start: %s", line);
    port = atoi(strrchr(line, ':') + 1);
    fclose(f);
}

static long resident_kb(void) {
    char path[64], line[256];
    long kb = -1;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)server);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kb = atol(line + 6);
    if (f)
        fclose(f);
    return kb;
}

static int descriptors(void) {
    char path[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%ld/fd", (long)server);
    DIR *d = opendir(path);
    for (; d && readdir(d); n++)
        continue;
    if (d)
        closedir(d);
    return n;
}

/* --------------------------------------------------------------------------------- connections */

static int connect_to(void) {
    struct sockaddr_in a = { .sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct timeval t = { .tv_sec = 30 };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        close(fd);
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
    return fd;
}

static bool put(int fd, const char *bytes, size_t n) {
    while (n > 0) {
        ssize_t k = send(fd, bytes, n, MSG_NOSIGNAL);
        if (k <= 0)
            return false;
        bytes += k;
        n -= (size_t)k;
    }
    return true;
}

static size_t get_all(int fd, char *out) {
    size_t got = 0;
    for (ssize_t k; got + 1 < ANSWER && (k = recv(fd, out + got, ANSWER - 1 - got, 0)) > 0;)
        got += (size_t)k;
    out[got] = '\0';
    return got;
}

/* The body of the answer to POSTS[i], without the time in it; "" if it is not a 200. Status in
 * *status, 0 if nothing came. */
static const char *post(int i, char *answer, int *status) {
    char head[256];
    int fd = connect_to();
    *status = 0;
    answer[0] = '\0';
    if (fd < 0)
        return "";
    int k = snprintf(head, sizeof head,
        "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: "
        "close\r\nContent-Length: %zu\r\n\r\n",
        POSTS[i][0], strlen(POSTS[i][1]));
    if (put(fd, head, (size_t)k) && put(fd, POSTS[i][1], strlen(POSTS[i][1])))
        get_all(fd, answer);
    close(fd);
    char *body = strstr(answer, "\r\n\r\n"), *created = body ? strstr(body, "\"created\":") : NULL;
    if (created)
        memset(created, ' ', strspn(created, "\"created:0123456789"));
    *status = strncmp(answer, "HTTP/1.1 ", 9) == 0 ? atoi(answer + 9) : 0;
    return *status == 200 && body ? body : "";
}

/* ------------------------------------------------------------------------------------- clients */

static void rest(void) { usleep((useconds_t)pause_ms * 1000); }

/* A 429 is an answer, too: the house is full, and it says so. Asked again it must answer. */
static void *mean_it(void *self) {
    char *answer = malloc(ANSWER);
    for (unsigned i = (unsigned)(uintptr_t)self; !atomic_load(&stop); i++, rest()) {
        int which = (int)(i % N_POSTS), status;
        const char *body = post(which, answer, &status);
        for (int again = 0; again < 100 && (status == 429 || status == 0) && !atomic_load(&stop);
             again++) {
            rest();
            body = post(which, answer, &status);
        }
        if (status == 200 && strcmp(body, want[which]) == 0)
            atomic_fetch_add(&good, 1);
        else if (!atomic_load(&stop)) {
            atomic_fetch_add(&wrong, 1);
            printf("# status %d, answer %.300s\n", status, body);
        }
    }
    free(answer);
    return NULL;
}

static const char *const NONSENSE[] = {
    "",
    "\r\n\r\n\r\n",
    "GET",
    "GET / HTTP/1.1\r\n\r\n",
    "GET /v1/models HTTP/9.9\r\n\r\n",
    "BREW /pot HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "DELETE /v1/score HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "GET /../../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "GET /v1/embedding?id=99999999999 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    "application/json\r\nContent-Length: -5\r\n\r\n{}",
    "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    "application/json\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
    "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    "application/json\r\nContent-Length: 5000000\r\n\r\n{}",
    "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    "application/json\r\nContent-Length: 100\r\n\r\n{\"want\":",
    "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: "
    "close\r\nContent-Length: 2\r\n\r\n{}",
    "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: "
    "close\r\nContent-Length: 9\r\n\r\n[[[[[[[[[",
    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    "application/json\r\nConnection: close\r\nContent-Length: "
    "24\r\n\r\n{\"prompt_embeds\":\"UEsDB\"}",
    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    "application/json\r\nTransfer-Encoding: "
    "chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\nx",
    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    "application/json\r\nTransfer-Encoding: chunked\r\nContent-Length: "
    "3\r\n\r\nzz\r\n",
    "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    "GET /health HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n\r\n",
};
enum { N_NONSENSE = sizeof NONSENSE / sizeof NONSENSE[0] };

/* A head, or a body, larger than is taken. */
static void send_much(int fd, bool head) {
    static const char HEAD[] =
        "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX: ",
                      BODY[] = "POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                               "application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    char block[4096]; /* as a chunk: its size, so many bytes, and the end of the line */
    memset(block, 'a', sizeof block);
    if (!head) {
        memcpy(block, "ff9\r\n", 5);
        memcpy(block + 4094, "\r\n", 2);
    }
    bool ok = put(fd, head ? HEAD : BODY, head ? sizeof HEAD - 1 : sizeof BODY - 1);
    for (int i = 0; i < 400 && ok && !atomic_load(&stop); i++)
        ok = put(fd, block, sizeof block);
}

static void *mean_no_good(void *self) {
    kh_rng r = kh_rng_stream((uint64_t)(uintptr_t)self, KH_RNG_TEST, 1, 0);
    char *answer = malloc(ANSWER), junk[512];
    for (; !atomic_load(&stop); rest()) {
        int fd = connect_to();
        if (fd < 0)
            continue;
        unsigned kind = kh_rng_below(&r, 16);
        const char *text = NONSENSE[kh_rng_below(&r, N_NONSENSE)];
        struct timeval soon = { .tv_usec = 300000 };
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
        if (kind < 8)
            put(fd, text, strlen(text));
        else if (kind < 11) { /* noise */
            size_t n = kh_rng_below(&r, sizeof junk);
            for (size_t i = 0; i < n; i++)
                junk[i] = (char)kh_rng_below(&r, 256);
            put(fd, junk, n);
        } else if (kind == 11)
            send_much(fd, true);
        else if (kind == 12)
            send_much(fd, false);
        else if (kind <
            15) { /* a good question whose asker does not wait: the connection is torn */
            char head[256];
            const char *const *p = POSTS[kh_rng_below(&r, N_POSTS)];
            int k = snprintf(head, sizeof head,
                "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                "application/json\r\nContent-Length: %zu\r\n\r\n",
                p[0], strlen(p[1]));
            put(fd, head, (size_t)k);
            put(fd, p[1], strlen(p[1]) / (kind == 13 ? 1 : 2));
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger));
        } else { /* byte by byte, until it is told to go */
            for (size_t i = 0; text[i] && i < 40 && put(fd, text + i, 1) && !atomic_load(&stop);
                 i++)
                usleep(100000);
        }
        if (kind < 11)
            get_all(fd, answer);
        close(fd);
        atomic_fetch_add(&bad, 1);
    }
    free(answer);
    return NULL;
}

/* ---------------------------------------------------------------------------------------- soak */

static void serves_through_everything(void **state) {
    (void)state;
    long seconds = option("KEYHOLE_SOAK_SECONDS", 30);
    pthread_t thread[GOOD_CLIENTS + BAD_CLIENTS];
    long kb[MOST_SAMPLES];
    int fds[MOST_SAMPLES], n = 0, status;
    char *answer = malloc(ANSWER);
    pause_ms = (int)option("KEYHOLE_SOAK_PAUSE", 20);
    start_server();
    for (int i = 0; i < N_POSTS; i++) {
        const char *body = post(i, answer, &status);
        if (status != 200)
            fail_msg("%s: %s", POSTS[i][0], answer);
        strcpy(want[i], body);
    }
    usleep(200000);
    int fds_before = descriptors();
    double start = now();
    for (uintptr_t i = 0; i < GOOD_CLIENTS + BAD_CLIENTS; i++)
        assert_int_equal(
            pthread_create(&thread[i], NULL, i < GOOD_CLIENTS ? mean_it : mean_no_good, (void *)i),
            0);
    while (now() - start < (double)seconds) { /* samples, evenly over the time */
        usleep(100000);
        if (n < MOST_SAMPLES && now() - start >= (double)seconds * (n + 1) / MOST_SAMPLES) {
            kb[n] = resident_kb();
            fds[n++] = descriptors();
        }
    }
    atomic_store(&stop, true);
    for (int i = 0; i < GOOD_CLIENTS + BAD_CLIENTS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 100 && descriptors() > fds_before;
         i++) /* those that were left alone are ended by the clock */
        usleep(100000);
    int fds_after = descriptors();
    assert_true(n >= 8);
    long early = 0, late = 0;
    int most_fds = 0;
    for (int i = 0; i < n;
         i++) { /* the peak of the second quarter, when all is warm, and that of the last */
        if (i >= n / 4 && i < n / 2)
            early = kb[i] > early ? kb[i] : early;
        if (i >= n - n / 4)
            late = kb[i] > late ? kb[i] : late;
        most_fds = fds[i] > most_fds ? fds[i] : most_fds;
    }
    printf("# %ld s: %ld good requests, %ld wrong answers, %ld hostile connections\n", seconds,
        atomic_load(&good), atomic_load(&wrong), atomic_load(&bad));
    printf("# resident: %ld kB first, %ld kB at most in the second quarter, %ld kB at most in the "
           "last\n",
        kb[0], early, late);
    printf("# descriptors: %d before, %d at most, %d after\n", fds_before, most_fds, fds_after);
    assert_true(atomic_load(&good) > 0 && atomic_load(&bad) > 0);
    assert_int_equal(atomic_load(&wrong), 0);
    assert_int_equal(fds_after, fds_before);
    assert_true(late <= early + early / 10 + 4096);
    for (int i = 0; i < N_POSTS; i++)
        assert_string_equal(post(i, answer, &status), want[i]);
    assert_int_equal(kill(server, SIGTERM), 0);
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    server = 0;
    free(answer);
}

static int end_server(void **state) {
    if (server > 0)
        kill(server, SIGKILL);
    return tiny_teardown(state);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(serves_through_everything) };
    return cmocka_run_group_tests_name("soak", tests, tiny_setup, end_server);
}
