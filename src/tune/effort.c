/* effort.c - see effort.h.
 *
 * Where the numbers come from. A query of the built-in model takes some 5 to 10 ms of one core, so
 * that 20,000 are two to three minutes and 3,000 half a minute. A search in d dimensions learns a
 * direction from about d evaluations: with a few hundred of them 50 dimensions are what can be
 * searched, and five slots hold these as well as fifty while questions are half as long. The first
 * step (sigma) is the width that smc learns for the prior, about sqrt(50): from sigma 1 a search
 * spends a third of so small a budget on growing. Rows: a candidate is asked about at most as many
 * train rows as leave some 25 generations in the budget. */
#include "tune/effort.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdio.h>
#include <string.h>

typedef struct setting {
    int queries; /* budget; 0: none */
    int slots, dim, rows;
    const char *set; /* "name=value name=value": over the defaults of the method's table */
} setting;

typedef struct row {
    const char *method; /* NULL: every method that has no row of its own */
    setting at[KH_EFFORTS];
} row;

enum { QUICK_QUERIES = 3000, NORMAL_QUERIES = 20000, THOROUGH_QUERIES = 120000 };
#define QUICK(d, more) [KH_EFFORT_QUICK] = { QUICK_QUERIES, 5, d, 32, more }
#define NORMAL(d, more) [KH_EFFORT_NORMAL] = { NORMAL_QUERIES, 5, d, 64, more }
#define THOROUGH(d, more) [KH_EFFORT_THOROUGH] = { THOROUGH_QUERIES, 10, d, 256, more }
/* Methods that ask about each row once, or compute gradients: no budget of queries, no dimension of
 * their own, no part of the rows. */
#define ONCE(quick, normal, thorough) \
    { \
        [KH_EFFORT_QUICK] = { .slots = 5, .set = quick }, \
        [KH_EFFORT_NORMAL] = { .slots = 10, .set = normal }, [KH_EFFORT_THOROUGH] = { \
            .slots = 20, \
            .set = thorough \
        } \
    }

/* The prior of z where draws are taken from it: five slots push a model less than the paper's
 * fifty, and from its variance nearly all draws answer as the template does. */
#define WIDE_5 "prior-variance=500"
#define WIDE_10 "prior-variance=250"
/* One of the better half may be left behind one time in ten: CMA-ES bears that well, and takes a
 * quarter fewer questions for a generation. */
#define RACE "race=0.1"
/* Looks at dev without a better one after which a search ends. On 25 searches of normal effort (two
 * seeds, five looks) it takes 0.55 of the questions, and the choice among its generations is worse
 * by 0.002 of a score whose standard error is twenty times that (doc/experiments.md). */
#define STALL "budget-stall=5"
/* Accepts the same for fewer questions. */
#define TIGHT "early-rejection=tight "

static const row ROWS[] = {
    { "bbt",
        { QUICK(25, "pop=8 sigma=6 dev-every=3 " RACE),
            NORMAL(50, "pop=10 sigma=6 dev-every=2 " STALL " " RACE),
            THOROUGH(100, "pop=20 sigma=6 dev-every=4 budget-stall=8 " RACE) } },
    { "ensemble",
        { QUICK(25, "members=3 pop=6 sigma=6 dev-every=2 " RACE),
            NORMAL(50, "members=5 pop=8 sigma=6 dev-every=3 " STALL " " RACE),
            THOROUGH(100, "members=10 pop=12 sigma=6 dev-every=4 budget-stall=8 " RACE) } },
    { "elbo",
        { QUICK(25, "pop=6 draws=2 samples=10 dev-every=3"),
            NORMAL(50, "pop=10 draws=4 samples=20 dev-every=4 " STALL),
            THOROUGH(100, "pop=16 draws=6 samples=50 dev-every=8 budget-stall=8") } },
    { "abc-rejection",
        { QUICK(25, "samples=20 " WIDE_5), NORMAL(50, "samples=50 " WIDE_5),
            THOROUGH(100, "samples=100 " WIDE_10) } },
    { "abc-smc",
        { QUICK(25, "samples=20 first-draws=12 " WIDE_5),
            NORMAL(50, "samples=50 first-draws=20 " WIDE_5),
            THOROUGH(100, "samples=100 first-draws=20 " WIDE_10) } },
    { "smc",
        { QUICK(25, "first-draws=12 reuse-draws=true " TIGHT WIDE_5),
            NORMAL(50, "first-draws=20 reuse-draws=true " TIGHT WIDE_5),
            THOROUGH(100, "samples=100 first-draws=40 reuse-draws=true " TIGHT WIDE_10) } },
    { "snpe",
        { QUICK(25, "budget-rounds=2 simulations=25 samples=10 transforms=3 max-epochs=40 " WIDE_5),
            NORMAL(50,
                "budget-rounds=3 simulations=80 samples=20 transforms=5 max-epochs=100 " WIDE_5),
            THOROUGH(100,
                "budget-rounds=4 simulations=100 samples=50 transforms=5 "
                "max-epochs=200 " WIDE_10) } },
    { "prompt-tuning", ONCE("epochs=30", "epochs=100", "epochs=200") },
    { "p-tuning-v2", ONCE("epochs=20", "epochs=60", "epochs=100") },
    { "model-tuning", ONCE("epochs=10", "epochs=30", "epochs=30") },
    { "feature-bilstm", ONCE("epochs=40", "epochs=100", "epochs=100") },
    { "icl", ONCE("demos=8", "demos=16", "demos=32 orders=4") },
    { "text-search",
        { QUICK(0, "candidates=16"), NORMAL(0, NULL), THOROUGH(0, "candidates=128") } },
    { "text-ensemble", { QUICK(0, "prompts=8"), NORMAL(0, NULL), THOROUGH(0, "prompts=32") } },
    { "text-smc", { QUICK(0, NULL), NORMAL(0, NULL), THOROUGH(0, NULL) } },
    { "auto", { QUICK(25, NULL), NORMAL(50, NULL), THOROUGH(100, NULL) } },
    { NULL, ONCE(NULL, NULL, NULL) },
};

static const char *const NAMES[KH_EFFORTS] = { [KH_EFFORT_PAPER] = "paper",
    [KH_EFFORT_QUICK] = "quick",
    [KH_EFFORT_NORMAL] = "normal",
    [KH_EFFORT_THOROUGH] = "thorough" };

const char *kh_effort_name(kh_effort e) { return NAMES[e]; }

bool kh_effort_find(kh_effort *out, const char *name) {
    for (int i = 0; i < KH_EFFORTS; i++)
        if (strcmp(NAMES[i], name) == 0) {
            *out = (kh_effort)i;
            return true;
        }
    return false;
}

static const setting *setting_of(kh_effort e, const char *method) {
    const row *r = ROWS;
    while (r->method && strcmp(r->method, method) != 0)
        r++;
    return &r->at[e];
}

int kh_effort_set(kh_effort e, const kh_method *m, void *opts, kh_err *err) {
    const char *at = setting_of(e, m->name)->set;
    int rc = 0;
    while (rc == 0 && at && *at) {
        char value[32];
        size_t n = strcspn(at, "="), len = strcspn(at + n + 1, " ");
        const kh_opt *option = kh_opts_find(m->opts, at, n);
        if (!option || len >= sizeof value)
            return kh_fail(
                err, KH_EARG, "the effort's settings for %s are wrong at \"%s\"", m->name, at);
        memcpy(value, at + n + 1, len);
        value[len] = '\0';
        rc = kh_opts_set(option, opts, value, err); /* numbers: nothing is borrowed from value */
        at += n + 1 + len;
        at += *at == ' ';
    }
    return rc;
}

/* Whether an option of the method called budget-... is not what the effort has it be; but when a
 * search that brings nothing ends is no bound to what it may ask. */
static int has_own_budget(kh_effort e, const kh_method *m, const void *opts, kh_err *err) {
    void *plain = kh_calloc(1, m->opts_size + 1);
    kh_buf a = kh_buf_init(1 << 10), b = kh_buf_init(1 << 10);
    if (!plain)
        return kh_fail_memory(err);
    kh_opts_init(m->opts, plain);
    int rc = kh_effort_set(e, m, plain, err);
    for (const kh_opt *option = m->opts; option && option->name && rc == 0; option++)
        if (strncmp(option->name, "budget-", 7) == 0 && strcmp(option->name, "budget-stall") != 0) {
            kh_opts_value(option, plain, &a);
            kh_opts_value(option, opts, &b);
        }
    if (rc == 0 && (kh_buf_failed(&a) || kh_buf_failed(&b)))
        rc = kh_fail_memory(err);
    else if (rc == 0) /* a method without budgets leaves both empty, without data */
        rc = a.len != b.len || (a.len > 0 && memcmp(a.data, b.data, a.len) != 0);
    kh_opts_free(m->opts, plain);
    kh_free(plain);
    kh_buf_free(&a);
    kh_buf_free(&b);
    return rc;
}

int kh_effort_fill(kh_tune_opts *o, const kh_method *m, const void *opts, int hidden, kh_err *err) {
    kh_effort e = o->paper_exact ? KH_EFFORT_PAPER : o->effort;
    const setting *s = setting_of(e, m->name);
    kh_space_opts paper = kh_space_defaults();
    o->effort = e;
    if (o->space.slots == 0)
        o->space.slots = s->slots ? s->slots : paper.slots;
    if (o->space.dim == 0) {
        long long most = (long long)o->space.slots * hidden;
        o->space.dim = s->dim ? s->dim : paper.dim;
        if (s->dim && o->space.dim > most)
            o->space.dim = (int)most;
    }
    if (o->search_rows == 0)
        o->search_rows = s->rows;
    if (o->max_queries > 0 || o->max_seconds > 0 || o->max_tokens > 0 || s->queries == 0)
        return 0;
    int own = has_own_budget(e, m, opts, err);
    if (own != 0)
        return own < 0 ? own : 0;
    o->max_queries = s->queries;
    return 1;
}
