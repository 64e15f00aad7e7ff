/* test_plm_hub.c - pulling from a hub that is sound, and from one that is not. */
#include "hub_server.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/place.h"
#include "plm/hub.h"

#include <dirent.h>
#include <sys/stat.h>

static char work[64], out[128], endpoint[64];

static void remove_tree(const char *path) {
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
}

/* One pull from a hub with this fault; the server's record is in *s. */
static int pull_from(hub_server *s, kh_hub_opts o, char **path, kh_err *err) {
    hub_start(s);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", s->port[0]);
    o.endpoint = endpoint;
    o.pause = 0.01;
    int rc = kh_hub_pull(path, "org/model", &o, err);
    hub_stop(s);
    return rc;
}

static void expect_whole(const char *folder) {
    kh_buf bytes;
    char path[256];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(kh_file_read(path, 1 << 20, &bytes, NULL), 0);
    assert_int_equal(bytes.len, HUB_WEIGHTS);
    assert_memory_equal(bytes.data, hub_weights(), HUB_WEIGHTS);
    kh_buf_free(&bytes);
    int n = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    assert_int_equal(n, 3); /* config.json, vocab.txt, model.safetensors and nothing else */
    snprintf(path, sizeof path, "%s.part", folder);
    assert_false(kh_dir_exists(path));
}

static void expect_nothing(void) {
    char part[160];
    snprintf(part, sizeof part, "%s.part", out);
    assert_false(kh_dir_exists(out));
    assert_false(kh_dir_exists(part));
}

static void a_sound_hub(void **state) {
    (void)state;
    hub_server s = { 0 };
    char *path = NULL;
    kh_err err;
    if (pull_from(&s, (kh_hub_opts){ .out = out, .token = "secret" }, &path, &err) != 0)
        fail_msg("%s", err.msg);
    assert_string_equal(path, out);
    kh_free(path);
    expect_whole(out);
    assert_int_equal(s.token_at_hub, 4); /* the listing and three files */
    /* What is there is not fetched again. */
    hub_server again = { 0 };
    assert_int_equal(pull_from(&again, (kh_hub_opts){ .out = out }, &path, &err), 0);
    kh_free(path);
    assert_int_equal(again.requests, 1);
    remove_tree(out);
}

static void redirects(void **state) {
    (void)state;
    hub_server s = { .redirect = true };
    char *path = NULL;
    kh_err err;
    if (pull_from(&s, (kh_hub_opts){ .out = out, .token = "secret" }, &path, &err) != 0)
        fail_msg("%s", err.msg);
    kh_free(path);
    expect_whole(out);
    assert_int_equal(s.token_at_storage, 0);
    assert_true(s.token_at_hub >= 4);
    remove_tree(out);
    static const hub_fault bad[] = { HUB_LOOP, HUB_DOWNGRADE };
    for (int i = 0; i < 2; i++) {
        hub_server b = { .fault = bad[i] };
        assert_int_equal(pull_from(&b, (kh_hub_opts){ .out = out }, &path, &err), KH_EIO);
        assert_says(&err, "leads nowhere that may be followed");
        expect_nothing();
    }
}

static void cut_and_resumed(void **state) {
    (void)state;
    static const hub_fault faults[] = { HUB_CUT, HUB_NO_RANGE };
    for (int i = 0; i < 2; i++) {
        hub_server s = { .fault = faults[i] };
        char *path = NULL;
        kh_err err;
        if (pull_from(&s, (kh_hub_opts){ .out = out }, &path, &err) != 0)
            fail_msg("%s", err.msg);
        kh_free(path);
        expect_whole(out);
        assert_true(s.ranges > 0);
        if (i == 0) /* no byte came twice */
            assert_int_equal(s.served, HUB_WEIGHTS);
        remove_tree(out);
    }
}

/* Bytes that are not those asked for would make a file of the right size and the wrong content.
 * What was there stays. */
static void other_bytes_than_asked_for_are_refused(void **state) {
    (void)state;
    static const hub_fault faults[] = { HUB_ELSEWHERE, HUB_NOWHERE };
    for (int i = 0; i < 2; i++) {
        hub_server s = { .fault = faults[i] };
        char *path = NULL, part[160];
        kh_err err = { 0 };
        struct stat st;
        assert_int_equal(pull_from(&s, (kh_hub_opts){ .out = out }, &path, &err), KH_EIO);
        assert_says(
            &err, "org/model: the hub answers with other bytes of \"model.safetensors\" than");
        snprintf(part, sizeof part, "%s.part/model.safetensors", out);
        assert_int_equal(stat(part, &st), 0);
        assert_int_equal(st.st_size, HUB_WEIGHTS / 2);
        hub_server more = { 0 };
        assert_int_equal(pull_from(&more, (kh_hub_opts){ .out = out }, &path, &err), 0);
        kh_free(path);
        expect_whole(out);
        remove_tree(out);
    }
}

/* What is here is no beginning of what the hub has, it says: all of it is fetched. */
static void a_hub_without_the_rest_is_asked_for_the_whole(void **state) {
    (void)state;
    hub_server s = { .fault = HUB_NO_REST };
    char *path = NULL;
    kh_err err;
    if (pull_from(&s, (kh_hub_opts){ .out = out }, &path, &err) != 0)
        fail_msg("%s", err.msg);
    kh_free(path);
    expect_whole(out);
    assert_int_equal(s.ranges, 1);
    remove_tree(out);
}

static int stop_later(void *user, const kh_progress *p) {
    (void)user;
    return p->done > 50000;
}

/* A pull that a person ends goes on with the next call. */
static void stopped_and_resumed(void **state) {
    (void)state;
    hub_server s = { .fault = HUB_CUT };
    kh_hooks hooks = { .progress = stop_later };
    char *path = NULL, part[160];
    kh_err err;
    int rc = pull_from(&s, (kh_hub_opts){ .out = out, .hooks = &hooks }, &path, &err);
    assert_int_equal(rc, KH_STOPPED);
    snprintf(part, sizeof part, "%s.part/model.safetensors", out);
    struct stat st;
    assert_int_equal(stat(part, &st), 0);
    assert_true(st.st_size > 0 && st.st_size < HUB_WEIGHTS);
    hub_server more = { 0 };
    assert_int_equal(pull_from(&more, (kh_hub_opts){ .out = out }, &path, &err), 0);
    kh_free(path);
    expect_whole(out);
    assert_true(more.served < HUB_WEIGHTS);
    remove_tree(out);
}

static void statuses(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *reason, *token;
        int code;
        const char *sentence;
    } cases[] = {
        { 401, "RepoNotFound", NULL, KH_EUNSUPPORTED,
            "needs a token; check the name, or set HF_TOKEN" },
        { 401, NULL, "secret", KH_EUNSUPPORTED, "does not accept the token" },
        { 403, "GatedRepo", NULL, KH_EUNSUPPORTED, "the model is gated; accept its terms at http" },
        { 404, "RepoNotFound", NULL, KH_EMISSING, "there is no model \"org/model\"" },
        { 404, "RevisionNotFound", NULL, KH_EMISSING, "has no revision \"main\"" },
        { 400, NULL, NULL, KH_EIO, "answers 400" },
        { 500, NULL, NULL, KH_EIO, "gave up after 2 tries" },
        { 429, NULL, NULL, KH_EIO, "too many requests (429)" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hub_server s = {
            .fault = HUB_STATUS, .status = cases[i].status, .reason = cases[i].reason
        };
        char *path = NULL;
        kh_err err = { 0 };
        kh_hub_opts o = { .out = out, .token = cases[i].token ? cases[i].token : "", .retries = 2 };
        int rc = pull_from(&s, o, &path, &err);
        if (rc != cases[i].code)
            fail_msg("%d: %d \"%s\"", cases[i].status, rc, err.msg);
        assert_says(&err, cases[i].sentence);
        assert_null(strstr(err.msg, "secret"));
        assert_null(path);
        expect_nothing();
    }
    static const int passing[] = { 429, 500, 503 };
    for (int i = 0; i < 3; i++) {
        hub_server s = { .fault = HUB_BUSY, .status = passing[i] };
        char *path = NULL;
        kh_err err;
        if (pull_from(&s, (kh_hub_opts){ .out = out }, &path, &err) != 0)
            fail_msg("%s", err.msg);
        kh_free(path);
        expect_whole(out);
        remove_tree(out);
    }
}

static void damaged(void **state) {
    (void)state;
    static const struct {
        hub_fault fault;
        int code;
        const char *sentence;
    } cases[] = { { HUB_WRONG, KH_EFORMAT, "is damaged: its sha256 is" },
        { HUB_LONG, KH_EFORMAT, "more bytes than the hub lists" },
        { HUB_GARBAGE, KH_EFORMAT, "not valid JSON" } };
    for (int i = 0; i < 3; i++) {
        hub_server s = { .fault = cases[i].fault };
        char *path = NULL;
        kh_err err = { 0 };
        int rc = pull_from(&s, (kh_hub_opts){ .out = out }, &path, &err);
        if (rc != cases[i].code)
            fail_msg("%d \"%s\"", rc, err.msg);
        assert_says(&err, cases[i].sentence);
        expect_nothing();
    }
    hub_server s = { .fault = HUB_EVIL_NAMES };
    char *path = NULL;
    kh_err err;
    assert_int_equal(pull_from(&s, (kh_hub_opts){ .out = out }, &path, &err), 0);
    kh_free(path);
    expect_whole(out);
    remove_tree(out);
}

static void one_file(void **state) {
    (void)state;
    hub_server s = { 0 };
    char *path = NULL, want[160];
    kh_err err;
    assert_int_equal(
        pull_from(&s, (kh_hub_opts){ .out = out, .pattern = "*q4.gguf" }, &path, &err), 0);
    snprintf(want, sizeof want, "%s/q4.gguf", out);
    assert_string_equal(path, want);
    assert_true(kh_file_exists(path));
    kh_free(path);
    remove_tree(out);
    hub_server both = { 0 };
    assert_int_equal(
        pull_from(&both, (kh_hub_opts){ .out = out, .pattern = "*.gguf" }, &path, &err), KH_EARG);
    assert_says(
        &err, "holds several GGUF files; choose one with --file: big.gguf (0 MB), sub/q4.gguf");
    hub_server none = { 0 };
    assert_int_equal(
        pull_from(&none, (kh_hub_opts){ .out = out, .pattern = "*.onnx" }, &path, &err),
        KH_EMISSING);
    assert_says(&err, "holds no file \"*.onnx\"");
    expect_nothing();
}

#define ITEM(name, size) "{\"rfilename\":\"" name "\",\"size\":" size "}"
#define MORE(name, size) "," ITEM(name, size)
#define LISTED(items) "{\"sha\":\"0123abcd\",\"siblings\":[" items "]}"

/* Weights in several files: the index and its shards, and nothing that only looks like them. */
static void shards_are_pulled_together(void **state) {
    (void)state;
    static const char SHARDED[] =
        LISTED(ITEM("config.json", "21") MORE("model.safetensors.index.json", "200000") MORE(
            "model-00001-of-00002.safetensors", "6") MORE("model-00002-of-00002.safetensors", "6")
                MORE("model-card.md", "6") MORE("other.safetensors", "6"));
    static const char *const FILES[] = { "config.json", "model.safetensors.index.json",
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors" };
    hub_server s = { .listing = SHARDED };
    char *path = NULL, name[200];
    kh_err err;
    if (pull_from(&s, (kh_hub_opts){ .out = out, .parallel = 99 }, &path, &err) != 0)
        fail_msg("%s", err.msg);
    assert_int_equal(s.requests, 5);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s/%s", path, FILES[i]);
        assert_true(kh_file_exists(name));
    }
    kh_free(path);
    remove_tree(out);
}

/* A GGUF model in several files is one model, named by its first. */
static void parts_of_a_gguf_file_are_pulled_together(void **state) {
    (void)state;
    static const char SPLIT[] = LISTED(ITEM("m-00002-of-00002.gguf", "6")
            MORE("m-00001-of-00002.gguf", "6") MORE("README.md", "6"));
    hub_server s = { .listing = SPLIT };
    char *path = NULL, want[200];
    kh_err err;
    if (pull_from(&s, (kh_hub_opts){ .out = out }, &path, &err) != 0)
        fail_msg("%s", err.msg);
    snprintf(want, sizeof want, "%s/m-00001-of-00002.gguf", out);
    assert_string_equal(path, want);
    assert_int_equal(s.requests, 3);
    kh_free(path);
    remove_tree(out);
}

/* Files of sub-folders lose them, and two of one name would be written into each other. */
static void files_of_one_name_are_refused(void **state) {
    (void)state;
    static const char TWO[] = LISTED(ITEM("config.json", "21") MORE("1_Pooling/config.json", "9"));
    hub_server s = { .listing = TWO };
    char *path = NULL;
    kh_err err = { 0 };
    kh_hub_opts o = { .out = out, .pattern = "*config.json" };
    assert_int_equal(pull_from(&s, o, &path, &err), KH_EARG);
    assert_says(&err, "config.json and 1_Pooling/config.json would be one file here; choose one");
    assert_null(path);
    expect_nothing();
    hub_server again = { .listing = TWO };
    o.pattern = "config.json";
    assert_int_equal(pull_from(&again, o, &path, &err), 0);
    kh_free(path);
    remove_tree(out);
}

/* A hub may quote what it was sent. */
static void an_echoed_token_is_hidden(void **state) {
    (void)state;
    hub_server s = {
        .fault = HUB_STATUS, .status = 400, .says = "bad token secret-of-a-hub \x1b[2J"
    };
    char *path = NULL;
    kh_err err = { 0 };
    kh_hub_opts o = { .out = out, .token = "secret-of-a-hub" };
    assert_int_equal(pull_from(&s, o, &path, &err), KH_EIO);
    assert_says(&err, "bad token ***************");
    assert_null(strstr(err.msg, "secret-of-a-hub"));
    assert_null(strchr(err.msg, 0x1b));
    expect_nothing();
}

/* Names that begin like this machine's own. */
static void a_token_stays_on_this_machine(void **state) {
    (void)state;
    static const char *const AWAY[] = { "http://127.evil.invalid", "http://localhost.evil.invalid",
        "http://127.0.0.1.evil.invalid:80", "http://[::1]evil.invalid",
        "http://localhost:80@evil.invalid" };
    char *path;
    kh_err err;
    for (int i = 0; i < 5; i++) {
        kh_hub_opts o = { .endpoint = AWAY[i], .out = out, .token = "secret", .retries = 1 };
        o.pause = 1e-3;
        assert_int_equal(kh_hub_pull(&path, "org/model", &o, &err), KH_EARG);
        assert_says(&err, "a token is not sent without encryption");
    }
}

/* What stands where files are made, and is another's: a link, or a second name. */
static void links_are_not_pulled_through(void **state) {
    (void)state;
    char part[160], name[200], victim[160];
    snprintf(part, sizeof part, "%s.part", out);
    snprintf(victim, sizeof victim, "%s-victim", out);
    for (int kind = 0; kind < 3; kind++) {
        hub_server s = { 0 };
        char *path = NULL;
        kh_err err = { 0 };
        kh_buf bytes;
        snprintf(name, sizeof name, "%s/config.json", kind == 2 ? victim : part);
        assert_int_equal(mkdir(kind == 2 ? victim : part, 0777), 0);
        if (kind == 2)
            assert_int_equal(symlink(victim, part), 0);
        const char *precious = kind == 2 ? name : victim;
        assert_int_equal(kh_file_write(precious, "precious", 8, NULL), 0);
        if (kind < 2)
            assert_int_equal(kind == 0 ? symlink(victim, name) : link(victim, name), 0);
        int rc = pull_from(&s, (kh_hub_opts){ .out = out }, &path, &err);
        kh_free(path);
        assert_int_equal(kh_file_read(precious, 99, &bytes, NULL), 0);
        assert_string_equal(bytes.data, "precious");
        kh_buf_free(&bytes);
        assert_int_equal(rc, KH_EIO);
        remove_tree(part);
        remove_tree(victim);
        remove_tree(out);
    }
}

/* What a hub may list, and why it is not fetched. */
static void listings_that_are_none(void **state) {
    (void)state;
#define SHA "{\"sha\":\"0123abcd\",\"siblings\":"
    static const struct {
        const char *listing, *pattern;
        int code;
        const char *says;
    } all[] = {
        { SHA "[{\"rfilename\":\"config.json\",\"size\":2},{\"rfilename\":\"pytorch_model.bin\","
              "\"size\":9}]}",
            NULL, KH_EUNSUPPORTED, "which is not read because such a file can run code" },
        { SHA "[{\"rfilename\":\"config.json\",\"size\":2}]}", NULL, KH_EUNSUPPORTED,
            "holds neither model.safetensors with config.json nor a GGUF file" },
        { SHA "[]}", NULL, KH_EFORMAT, "the hub lists 0 files" },
        { SHA "7}", NULL, KH_EFORMAT, "the hub lists 0 files" },
        { SHA "[7]}", NULL, KH_EFORMAT, "a file without a name" },
        { "{\"siblings\":[]}", NULL, KH_EFORMAT, "has no commit" },
        { "{\"sha\":\"../../x\",\"siblings\":[]}", NULL, KH_EFORMAT, "has no commit" },
        { "{\"sha\":\"abc\",\"siblings\":[]}", NULL, KH_EFORMAT, "has no commit" },
        { "[]", NULL, KH_EFORMAT, "has no commit" },
        { SHA "[{\"rfilename\":\"a.gguf\",\"size\":2},{\"rfilename\":\"b.gguf\",\"size\":2}]}",
            NULL, KH_EARG, "holds several GGUF files; choose one" },
        { SHA "[{\"rfilename\":\"a.gguf\",\"size\":2}]}", "*.txt", KH_EMISSING,
            "holds no file \"*.txt\"" },
        { SHA "[{\"rfilename\":\"config.json\",\"size\":2},{\"rfilename\":\"model.safetensors\","
              "\"size\":-5}]}",
            NULL, KH_EFORMAT, "model.safetensors" },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        hub_server s = { .listing = all[i].listing };
        char *path = NULL;
        kh_err err = { 0 };
        int rc = pull_from(&s, (kh_hub_opts){ .out = out, .pattern = all[i].pattern }, &path, &err);
        if (rc != all[i].code || !strstr(err.msg, all[i].says))
            fail_msg("%s: %d, %s", all[i].listing, rc, err.msg);
        assert_null(path);
        remove_tree(out);
    }
    hub_server s = { 0 };
    char *path = NULL;
    kh_err err = { 0 };
    assert_int_equal(
        pull_from(&s, (kh_hub_opts){ .out = out, .token = "a b\r\nHost: x" }, &path, &err),
        KH_EARG);
    assert_says(&err, "a character that no token has");
    assert_int_equal(s.requests, 0);
}

static void names(void **state) {
    (void)state;
    static const char *const bad[] = { "", "a/b/c", "../x", "a b", "x@", "a/b@../c", "a?b", "/x" };
    char *path;
    kh_err err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(kh_hub_pull(&path, bad[i],
                             &(kh_hub_opts){ .endpoint = "http://127.0.0.1:1", .out = out }, &err),
            KH_EARG);
        assert_null(path);
    }
    assert_int_equal(
        kh_hub_pull(&path, "org/model",
            &(kh_hub_opts){ .endpoint = "http://example.org", .token = "secret" }, &err),
        KH_EARG);
    assert_says(&err, "a token is not sent without encryption");
    assert_int_equal(
        kh_hub_pull(&path, "org/model", &(kh_hub_opts){ .endpoint = "ftp://x" }, &err), KH_EARG);
    kh_hub_name n;
    assert_int_equal(kh_place_hub_name(&n, "hf:org/model@v2:Q4_0", &err), 0);
    assert_string_equal(n.name, "org/model");
    assert_string_equal(n.revision, "v2");
    assert_string_equal(n.pattern, "*Q4_0*.gguf");
    assert_int_equal(kh_place_hub_name(&n, "hf:model", &err), 0);
    assert_string_equal(n.revision, "main");
    assert_string_equal(n.pattern, "");
    assert_int_equal(kh_place_hub_name(&n, "hf:../x", &err), KH_EARG);
    assert_int_equal(kh_place_hub_name(&n, "hf:", &err), KH_EARG);
}

/* --model hf:NAME: not there, pulled, there. */
static void the_cache(void **state) {
    (void)state;
    hub_server s = { 0 };
    char *path = NULL;
    kh_err err;
    setenv("HF_HOME", work, 1);
    unsetenv("HF_HUB_CACHE");
    assert_int_equal(kh_place_model(&path, "hf:org/model", &err), KH_EMISSING);
    assert_says(&err, "hf:org/model: is not here yet; \"keyhole pull org/model\" fetches it");
    hub_start(&s);
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", s.port[0]);
    kh_hub_opts o = { .endpoint = endpoint, .pause = 0.01 };
    if (kh_hub_ensure("hf:org/model", &o, &err) != 0)
        fail_msg("%s", err.msg);
    int requests = s.requests;
    assert_int_equal(kh_hub_ensure("hf:org/model", &o, &err), 0);
    assert_int_equal(kh_hub_ensure("some/folder", &o, &err), 0);
    assert_int_equal(s.requests, requests); /* nothing was asked */
    if (kh_hub_ensure("hf:org/model:q4", &o, &err) != 0)
        fail_msg("%s", err.msg);
    hub_stop(&s);
    assert_int_equal(kh_place_model(&path, "hf:org/model", &err), 0);
    char want[256];
    snprintf(want, sizeof want, "%s/hub/models--org--model/snapshots/%s", work, HUB_COMMIT);
    assert_string_equal(path, want);
    kh_free(path);
    assert_int_equal(kh_place_model(&path, "hf:org/model:q4", &err), 0);
    assert_non_null(strstr(path, "/q4.gguf"));
    kh_free(path);
    unsetenv("HF_HOME");
}

static void hashes(void **state) {
    (void)state;
    /* FIPS 180-4's own examples, and a million times "a". */
    static const struct {
        const char *text;
        int times;
        const char *hex;
    } cases[] = {
        { "", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
        { "abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
        { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
        { "a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kh_sha256 s;
        char hex[65];
        kh_sha256_start(&s);
        for (int k = 0; k < cases[i].times; k++)
            kh_sha256_more(&s, cases[i].text, strlen(cases[i].text));
        kh_sha256_end(&s, hex);
        assert_string_equal(hex, cases[i].hex);
    }
}

int main(void) {
    snprintf(work, sizeof work, "/tmp/keyhole-test-hub-XXXXXX");
    if (!mkdtemp(work))
        return 1;
    snprintf(out, sizeof out, "%s/model", work);
    unsetenv("HF_TOKEN");
    unsetenv("HF_ENDPOINT");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes),
        cmocka_unit_test(a_sound_hub),
        cmocka_unit_test(redirects),
        cmocka_unit_test(cut_and_resumed),
        cmocka_unit_test(other_bytes_than_asked_for_are_refused),
        cmocka_unit_test(a_hub_without_the_rest_is_asked_for_the_whole),
        cmocka_unit_test(stopped_and_resumed),
        cmocka_unit_test(statuses),
        cmocka_unit_test(damaged),
        cmocka_unit_test(one_file),
        cmocka_unit_test(shards_are_pulled_together),
        cmocka_unit_test(parts_of_a_gguf_file_are_pulled_together),
        cmocka_unit_test(files_of_one_name_are_refused),
        cmocka_unit_test(an_echoed_token_is_hidden),
        cmocka_unit_test(a_token_stays_on_this_machine),
        cmocka_unit_test(links_are_not_pulled_through),
        cmocka_unit_test(listings_that_are_none),
        cmocka_unit_test(names),
        cmocka_unit_test(the_cache),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_tree(work);
    return failed;
}
