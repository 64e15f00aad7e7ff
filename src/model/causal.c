/* causal.c - decoders: prompts x sequences -> scores of words that continue them.
 *
 * A token of a decoder depends on those before it alone, so what several sequences begin with is
 * computed once: a question is a tree whose nodes are runs of tokens, and a node keeps its keys and
 * values for its children.
 *
 *   root      what all sequences begin with; what of it an earlier question began with, the
 *             engine has kept
 *   middle    the soft prompt and what follows it in all sequences; or, if texts stand before the
 *             prompt, each text, whose keys and values the engine keeps for later questions; or, of
 *             sequences without slots, each text that stands first, if they are to be kept
 *   leaf      the rest of a sequence with a prompt; its last token is where the answer begins
 *   word      tokens of label words, for words of several tokens: one node for each beginning that
 *             words share
 *
 * Nodes of a level are spread over the threads in groups of about GROUP_ROWS rows that one thread
 * carries through all layers. Sums have one order (kernels.h), so bits depend neither on what was
 * kept nor on grouping.
 *
 * T rows (tokens), H hidden, I inner, V vocabulary, Q and K as in packed.h, L layers. */
#include "model/packed.h"

#include "base/alloc.h"
#include "base/err.h"
#include "model/kv_cache.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum {
    GROUP_ROWS = 192,
    ROUND_BYTES = 256 << 20, /* keys and values of a round's middle nodes */
    FIRST_MOST = 8,          /* ids that may stand before a text that stands first */
};

/* Some tokens that follow those of the parent. */
typedef struct node {
    const struct node *parent; /* NULL: they are the first */
    int first, rows;           /* place of the first one, and how many */
    const int32_t *id;         /* [rows] */
    int slot, n_slot;          /* rows [slot, slot + n_slot) of them are a soft prompt, */
    const float *prompt;       /* [n_slot, H] */
    float *kv;                 /* [L, rows, 2 K], or NULL: not kept */
    int ld;                    /* 0, or the rows that a layer of kv has: the first are ours */
    int seq, ask; /* what a leaf belongs to: the sequence, and the number of the prompt */
} node;

/* What is wanted of the last layer. */
typedef enum wanted { WANT_KEYS, WANT_LAST, WANT_ALL } wanted;

/* What a thread computes in. */
typedef struct work {
    float *x, *y;        /* [rows, H] */
    float *q, *ctx;      /* [rows, Q] */
    float *kv;           /* [rows, 2 K] */
    float *inner, *gate; /* [rows, I] */
    kh_part *part;       /* [depth + nodes] */
    int *queries;        /* [nodes] */
    float *block;
    void *scratch;
    float *vocab;                   /* [V], if words have several tokens */
    int rows, keys, longest, nodes; /* what there is room for */
} work;

/* ----------------------------------------------------------------------------- one group */

static void norm(
    const kh_engine *e, const float *x, int rows, const float *g, const float *b, float *y) {
    int H = e->model->config.hidden;
    float eps = (float)e->model->config.eps;
    if (e->model->config.arch->norm == KH_NORM_LAYER)
        e->kernels->layer_norm(x, rows, H, eps, g, b, y);
    else
        e->kernels->rms_norm(x, (size_t)H, rows, H, eps, g, y);
}

static void embed(const kh_engine *e, const node *n, float *x, float *row) {
    const kh_weights *w = &e->model->w;
    size_t H = (size_t)e->model->config.hidden;
    float scale = kh_config_word_scale(&e->model->config);
    for (int r = 0; r < n->rows; r++, x += H) {
        bool soft = r >= n->slot && r < n->slot + n->n_slot;
        if (soft)
            memcpy(x, n->prompt + (size_t)(r - n->slot) * H, H * sizeof *x);
        else
            kh_tensor_row(&w->word, n->id[r], x);
        for (size_t i = 0; i < H && !soft; i++)
            x[i] *= scale;
        if (!w->position.data)
            continue;
        kh_tensor_row(&w->position, n->first + r, row);
        for (size_t i = 0; i < H; i++)
            x[i] += row[i];
    }
}

/* Norm and position of heads: rows that stand `ld` apart, the last `kept` of each node. */
static void place_heads(const kh_engine *e, int layer, node *const *n, int nodes, bool last_only,
    float *x, size_t ld, int heads, const float *gain) {
    const kh_config *c = &e->model->config;
    size_t width = (size_t)kh_config_head_width(c);
    for (int i = 0; i < nodes; i++)
        for (int r = last_only ? n[i]->rows - 1 : 0; r < n[i]->rows; r++, x += ld) {
            if (gain)
                e->kernels->rms_norm(x, width, heads, (int)width, (float)c->eps, gain, x);
            if (c->arch->position == KH_POSITION_ROTARY)
                kh_turn(e, layer, n[i]->first + r, x, heads);
        }
}

/* The parts before a node, from the first token on; returns how many. */
static int chain(const node *n, int layer, size_t K, kh_part *out) {
    int depth = 0;
    for (const node *p = n->parent; p; p = p->parent)
        depth++;
    int at = depth;
    for (const node *p = n->parent; p; p = p->parent) {
        int rows = p->ld > 0 ? p->ld : p->rows;
        const float *k = p->kv + (size_t)layer * (size_t)rows * 2 * K;
        out[--at] = (kh_part){ k, k + K, 2 * K, p->rows };
    }
    return depth;
}

/* Attention of all nodes; those with the same parent together. */
static void attend(
    const kh_engine *e, int layer, node *const *n, int nodes, bool last_only, work *w) {
    const kh_config *c = &e->model->config;
    size_t Q = (size_t)kh_config_q_width(c), K = (size_t)kh_config_kv_width(c), query = 0, row = 0;
    for (int first = 0, end; first < nodes; first = end) {
        int depth = chain(n[first], layer, K, w->part), asked = 0;
        kh_part *own = w->part + depth;
        for (end = first; end < nodes && n[end]->parent == n[first]->parent; end++) {
            const float *k = w->kv + row * 2 * K;
            own[end - first] = (kh_part){ k, k + K, 2 * K, n[end]->rows };
            w->queries[end - first] = last_only ? 1 : n[end]->rows;
            asked += w->queries[end - first];
            row += (size_t)n[end]->rows;
        }
        e->kernels->causal(&(kh_causal){ .q = w->q + query * Q,
                               .ldq = Q,
                               .heads = c->heads,
                               .kv_heads = kh_config_kv_heads(c),
                               .d = kh_config_head_width(c),
                               .scale = (float)kh_config_attention_scale(c),
                               .window = kh_config_window(c, layer),
                               .shared = w->part,
                               .n_shared = depth,
                               .own = own,
                               .queries = w->queries,
                               .n_seq = end - first,
                               .out = w->ctx + query * Q,
                               .ldo = Q },
            w->scratch);
        query += (size_t)asked;
    }
}

/* Moves the last row of every node to the front. */
static void keep_last(node *const *n, int nodes, size_t H, float *x) {
    size_t row = 0;
    for (int i = 0; i < nodes; i++) {
        row += (size_t)n[i]->rows;
        memmove(x + (size_t)i * H, x + (row - 1) * H, H * sizeof *x);
    }
}

static void swap(float **a, float **b) {
    float *t = *a;
    *a = *b;
    *b = t;
}

/* x += the dense layer d of what it reads; post: norm of what is added. The rows move to the other
 * buffer and back. */
static void add_dense(const kh_engine *e, const kh_dense *d, const float *from, int rows,
    const float *post, work *w) {
    if (!post) {
        kh_dense_apply(e, d, from, rows, w->x, KH_PLAIN, w->y, w->scratch);
        swap(&w->x, &w->y);
        return;
    }
    size_t n = (size_t)rows * (size_t)e->model->config.hidden;
    kh_dense_apply(e, d, from, rows, NULL, KH_PLAIN, w->y, w->scratch);
    norm(e, w->y, rows, post, NULL, w->y);
    for (size_t i = 0; i < n; i++)
        w->x[i] += w->y[i];
}

/* Attention and feed-forward of `rows` rows, whose normalised inputs are in y. */
static void finish_layer(const kh_engine *e, int layer, int rows, work *w) {
    const kh_packed_layer *p = &e->layer[layer];
    const kh_config *c = &e->model->config;
    kh_epilogue act = kh_epilogue_of(c->act);
    add_dense(e, &p->o, w->ctx, rows, p->post1_g, w);
    norm(e, w->x, rows, p->ln2_g, p->ln2_b, w->y);
    kh_dense_apply(e, &p->up, w->y, rows, NULL, p->gate.w ? KH_PLAIN : act, w->inner, w->scratch);
    if (p->gate.w) {
        kh_dense_apply(e, &p->gate, w->y, rows, NULL, act, w->gate, w->scratch);
        for (size_t i = 0; i < (size_t)rows * (size_t)c->inner; i++)
            w->inner[i] *= w->gate[i];
    }
    add_dense(e, &p->down, w->inner, rows, p->post2_g, w);
}

/* Nodes through the first `layers` layers. Leaves the rows that are wanted in w->x. */
static void run_nodes(
    const kh_engine *e, node *const *n, int nodes, int layers, wanted want, work *w) {
    const kh_config *c = &e->model->config;
    size_t H = (size_t)c->hidden, K = (size_t)kh_config_kv_width(c), at = 0;
    int rows = 0;
    for (int i = 0; i < nodes; i++) {
        embed(e, n[i], w->x + at, w->y);
        at += (size_t)n[i]->rows * H;
        rows += n[i]->rows;
    }
    for (int l = 0; l < layers; l++) {
        const kh_packed_layer *p = &e->layer[l];
        bool last = l == layers - 1, only = last && want == WANT_LAST;
        norm(e, w->x, rows, p->ln1_g, p->ln1_b, w->y);
        kh_dense_apply(e, &p->kv, w->y, rows, NULL, KH_PLAIN, w->kv, w->scratch);
        place_heads(e, l, n, nodes, false, w->kv, 2 * K, kh_config_kv_heads(c), p->kn_g);
        at = 0;
        for (int i = 0; i < nodes; i++) {
            size_t size = (size_t)n[i]->rows * 2 * K;
            if (n[i]->kv)
                memcpy(n[i]->kv + (size_t)l * size, w->kv + at, size * sizeof *w->kv);
            at += size;
        }
        if (last && want == WANT_KEYS)
            return;
        if (only) {
            keep_last(n, nodes, H, w->x);
            keep_last(n, nodes, H, w->y);
            rows = nodes;
        }
        kh_dense_apply(e, &p->q, w->y, rows, NULL, KH_PLAIN, w->q, w->scratch);
        place_heads(e, l, n, nodes, only, w->q, (size_t)kh_config_q_width(c), c->heads, p->qn_g);
        attend(e, l, n, nodes, only, w);
        finish_layer(e, l, rows, w);
    }
}

/* ------------------------------------------------------------------------------ calls */

typedef struct call call;
/* What a call makes of the rows of a group; not 0: out of memory. */
typedef int take_fn(call *, node *const *n, int nodes, work *);

struct call {
    kh_engine *e;
    const kh_question *ask;
    int layers;
    take_fn *take;
    float *out;
    kh_dense label; /* words of one token: the decoder's rows of them */
    const int *at;  /* kh_causal_vocabulary: places */
    int n_at;
    const struct trie *trie; /* words of several tokens */
    int longest;             /* places of a sequence, words included */
};

static void work_free(work *w) {
    kh_free(w->block);
    kh_free(w->scratch);
    kh_free(w->part);
    kh_free(w->queries);
    kh_free(w->vocab);
    *w = (work){ 0 };
}

/* Places before a node. */
static int depth_of(const node *n) {
    int depth = 0;
    for (; n; n = n->parent)
        depth++;
    return depth;
}

/* Room for a group; grows what is too small. */
static bool work_fit(const call *c, work *w, node *const *n, int nodes) {
    const kh_config *g = &c->e->model->config;
    int rows = 0, depth = 0, longest = 0, shared = 0;
    for (int i = 0; i < nodes; i++) {
        int end = n[i]->first + n[i]->rows, d = depth_of(n[i]);
        rows += n[i]->rows;
        shared = n[i]->first > shared ? n[i]->first : shared;
        longest = end > longest ? end : longest;
        depth = d > depth ? d : depth;
    }
    int keys = rows + shared;
    if (rows <= w->rows && keys <= w->keys && longest <= w->longest && nodes + depth <= w->nodes)
        return true;
    float *vocab = w->vocab; /* stays */
    w->vocab = NULL;
    work_free(w);
    w->vocab = vocab;
    size_t N = (size_t)(rows > nodes ? rows : nodes), H = (size_t)g->hidden, I = (size_t)g->inner,
           Q = (size_t)kh_config_q_width(g), K = (size_t)kh_config_kv_width(g);
    w->block = kh_aligned(N * (2 * H + 2 * Q + 2 * K + 2 * I) * sizeof *w->block);
    w->part = kh_calloc((size_t)(nodes + depth), sizeof *w->part);
    w->queries = kh_calloc((size_t)nodes, sizeof *w->queries);
    size_t products = kh_kernels_scratch((int)N, kh_config_head_width(g));
    size_t attention =
        kh_causal_scratch((int)N, keys, nodes + depth, longest, kh_config_head_width(g));
    w->scratch = kh_aligned(products > attention ? products : attention);
    if (!w->block || !w->part || !w->queries || !w->scratch)
        return false;
    w->x = w->block, w->y = w->x + N * H, w->q = w->y + N * H, w->ctx = w->q + N * Q;
    w->kv = w->ctx + N * Q, w->inner = w->kv + N * 2 * K, w->gate = w->inner + N * I;
    w->rows = rows, w->keys = keys, w->longest = longest, w->nodes = nodes + depth;
    return true;
}

/* Threads cost more than they bring to a call of less than a millisecond or so. */
static int worthwhile_threads(const call *c, double rows) {
    const kh_config *g = &c->e->model->config;
    double products = rows * g->layers * g->hidden * (4.0 * g->hidden + 2.0 * g->inner);
    return products > 5e7 ? kh_threads() : 1;
}

/* Where groups end: nodes of about equal rows, siblings together. */
static int cut_groups(node *const *n, int nodes, int threads, int *cut) {
    long total = 0, rows = 0;
    for (int i = 0; i < nodes; i++)
        total += n[i]->rows;
    long groups = ((total + GROUP_ROWS - 1) / GROUP_ROWS + threads - 1) / threads * threads;
    int used = 0;
    cut[0] = 0;
    for (int i = 0; i < nodes; i++) {
        if (i > cut[used] && (rows + n[i]->rows / 2) * groups > (used + 1) * total)
            cut[++used] = i;
        rows += n[i]->rows;
    }
    cut[++used] = nodes;
    return used;
}

static size_t kv_floats(const kh_engine *e, int rows) {
    const kh_config *c = &e->model->config;
    return (size_t)c->layers * (size_t)rows * 2 * (size_t)kh_config_kv_width(c);
}

/* Beginnings of words, without their last tokens: each once. */
typedef struct trie {
    struct beginning {
        int32_t id;
        int parent; /* -1: the answer's first token */
        int depth;  /* tokens of it, from 1 */
    } * item;
    int n, deepest;
    int *of; /* [n_word, deepest + 1]: the beginning of so many tokens, -1: none */
} trie;

/* Whether words go on after the leaves of this level. */
static bool wants_words(const call *c, wanted want) {
    return want == WANT_LAST && c->trie && c->trie->n > 0;
}

/* Then leaves keep their keys and values while their group lasts: in one block, NULL if there is
 * none. */
static float *keep_keys(const call *c, node *const *n, int nodes, wanted want) {
    size_t all = 0;
    if (!wants_words(c, want))
        return NULL;
    for (int i = 0; i < nodes; i++)
        all += kv_floats(c->e, n[i]->rows);
    float *kept = kh_aligned(all * sizeof *kept), *at = kept;
    for (int i = 0; i < nodes && kept; i++) {
        n[i]->kv = at;
        at += kv_floats(c->e, n[i]->rows);
    }
    return kept;
}

/* All nodes of a level. */
static int run_level(call *c, node *const *n, int nodes, wanted want, kh_err *err) {
    double rows = 0;
    if (nodes == 0)
        return 0;
    for (int i = 0; i < nodes; i++)
        rows += n[i]->rows;
    int threads = worthwhile_threads(c, rows), *cut = kh_calloc((size_t)nodes + 2, sizeof *cut);
    work *all = kh_calloc((size_t)threads, sizeof *all);
    bool failed = !cut || !all;
    int groups = failed ? 0 : cut_groups(n, nodes, threads, cut);
#pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(|| : failed)
    for (int g = 0; g < groups; g++) {
        work *w = &all[omp_get_thread_num()];
        node *const *some = n + cut[g];
        int many = cut[g + 1] - cut[g];
        if (failed || !work_fit(c, w, some, many)) {
            failed = true;
            continue;
        }
        float *kept = keep_keys(c, some, many, want);
        if (!kept && wants_words(c, want)) {
            failed = true;
            continue;
        }
        run_nodes(c->e, some, many, c->layers, want, w);
        if (want != WANT_KEYS)
            failed = c->take(c, some, many, w) != 0 || failed;
        kh_free(kept);
    }
    for (int t = 0; all && t < threads; t++)
        work_free(&all[t]);
    kh_free(all);
    kh_free(cut);
    return failed ? kh_fail_memory(err) : 0;
}

/* --------------------------------------------------------------------- the tree of a question */

/* Where the sequences of a batch part: `root` ids are the same in all; `prompt_first` says that
 * nothing else stands before the slots; after them `common` ids are the same in all. Without slots,
 * `text_first`: texts are kept, and the last `tail` ids, at least one, are the same in all. */
typedef struct shape {
    int root, common, tail;
    bool slots, prompt_first, text_first;
} shape;

static const int32_t *ids_of(const kh_batch *b, int s) { return b->id + b->start[s]; }
static int length_of(const kh_batch *b, int s) { return (int)(b->start[s + 1] - b->start[s]); }

/* How many ids all sequences share from `from` on, each counting from its own `at`; at least one id
 * of each is left. */
static int shared_ids(const kh_batch *b, bool after_slots, int limit) {
    int n = limit;
    for (int s = 0; s < b->n_seq; s++) {
        int from = after_slots ? b->slot[s] + b->n_slot : 0, left = length_of(b, s) - from - 1;
        int first = after_slots ? b->slot[0] + b->n_slot : 0, i = 0;
        n = left < n ? left : n;
        while (i < n && ids_of(b, s)[from + i] == ids_of(b, 0)[first + i])
            i++;
        n = i;
    }
    return n > 0 ? n : 0;
}

/* How many ids all sequences end with, of those after the first `from`; at least the last one. */
static int shared_tail(const kh_batch *b, int from) {
    int n = length_of(b, 0) - from;
    for (int s = 0; s < b->n_seq; s++) {
        const int32_t *first = b->id + b->start[1], *mine = b->id + b->start[s + 1];
        int most = length_of(b, s) - from, i = 0;
        while (i < n && i < most && mine[-1 - i] == first[-1 - i])
            i++;
        n = i;
    }
    return n > 0 ? n : 1;
}

static shape shape_of(const kh_batch *b, bool keep_texts) {
    shape sh = { .slots = b->n_slot > 0 };
    int limit = length_of(b, 0);
    for (int s = 0; s < b->n_seq && sh.slots; s++)
        limit = b->slot[s] < limit ? b->slot[s] : limit;
    sh.root = shared_ids(b, false, limit);
    sh.prompt_first = sh.slots;
    for (int s = 0; s < b->n_seq && sh.slots; s++)
        if (b->slot[s] != sh.root || length_of(b, s) == b->slot[s] + b->n_slot)
            sh.prompt_first = false;
    if (sh.slots && !sh.prompt_first)
        sh.root = 0; /* texts are kept from place 0 on, whatever a batch happens to share */
    sh.common = sh.prompt_first ? shared_ids(b, true, length_of(b, 0)) : 0;
    sh.text_first = keep_texts && !sh.slots && b->n_seq > 1 && sh.root <= FIRST_MOST;
    if (sh.text_first)
        sh.tail = shared_tail(b, sh.root);
    return sh;
}

/* Where the text of a sequence ends. */
static int text_end(const kh_batch *b, const shape *sh, int s) {
    return sh->slots ? b->slot[s] : length_of(b, s) - sh->tail;
}

/* The leaf of sequence s with prompt p under a parent. */
static node leaf_of(const call *c, const shape *sh, const node *parent, int s, int p) {
    const kh_batch *b = c->ask->batch;
    int from = parent ? parent->first + parent->rows : 0;
    node n = { .parent = parent,
        .first = from,
        .rows = length_of(b, s) - from,
        .id = ids_of(b, s) + from,
        .seq = s,
        .ask = p };
    if (sh->slots && !sh->prompt_first) {
        n.slot = b->slot[s] - from;
        n.n_slot = b->n_slot;
        n.prompt =
            c->ask->prompt + (size_t)p * (size_t)b->n_slot * (size_t)c->e->model->config.hidden;
    }
    return n;
}

/* Leaves of prompts [p0, p1) with sequences [s0, s1), whose parents stand in mid: one for each
 * prompt, or for each sequence; NULL: the root, or none. */
static int run_leaves(call *c, const shape *sh, const node *root, const node *mid, int p0, int p1,
    int s0, int s1, kh_err *err) {
    size_t n = (size_t)(p1 - p0) * (size_t)(s1 - s0), at = 0;
    node *leaf = kh_calloc(n, sizeof *leaf), **list = kh_calloc(n, sizeof *list);
    int rc = leaf && list ? 0 : kh_fail_memory(err);
    bool by_prompt = sh->prompt_first;
    int outer = by_prompt ? p1 - p0 : s1 - s0, within = by_prompt ? s1 - s0 : p1 - p0;
    for (int i = 0; i < outer && rc == 0; i++)
        for (int j = 0; j < within; j++, at++) {
            const node *parent = mid ? &mid[i] : root;
            if (parent && parent->rows == 0)
                parent = parent->parent;
            leaf[at] = leaf_of(c, sh, parent, s0 + (by_prompt ? j : i), p0 + (by_prompt ? i : j));
            list[at] = &leaf[at];
        }
    if (rc == 0)
        rc = run_level(c, list, (int)n, WANT_LAST, err);
    kh_free(leaf);
    kh_free(list);
    return rc;
}

/* Computes the keys and values of middle nodes that are not known yet. */
static int run_middle(call *c, node *mid, int n, const bool *known, kh_err *err) {
    node **list = kh_calloc((size_t)n + 1, sizeof *list);
    int many = 0, rc = list ? 0 : kh_fail_memory(err);
    for (int i = 0; i < n && rc == 0; i++)
        if (!(known && known[i]) && mid[i].rows > 0)
            list[many++] = &mid[i];
    if (rc == 0)
        rc = run_level(c, list, many, WANT_KEYS, err);
    kh_free(list);
    return rc;
}

/* Prompts first: each prompt once for all sequences. */
static int run_prompts(call *c, const shape *sh, const node *root, kh_err *err) {
    const kh_batch *b = c->ask->batch;
    size_t H = (size_t)c->e->model->config.hidden;
    int rows = b->n_slot + sh->common, n = c->ask->n_prompt, rc = 0;
    size_t each = kv_floats(c->e, rows);
    int at_once = (int)(ROUND_BYTES / (each * sizeof(float))) + 1;
    at_once = at_once < n ? at_once : n;
    node *mid = kh_calloc((size_t)at_once, sizeof *mid);
    float *kv = kh_aligned((size_t)at_once * each * sizeof *kv);
    if (!mid || !kv)
        rc = kh_fail_memory(err);
    for (int p0 = 0; p0 < n && rc == 0; p0 += at_once) {
        int p1 = n - p0 < at_once ? n : p0 + at_once;
        for (int p = p0; p < p1; p++)
            mid[p - p0] = (node){ .parent = root,
                .first = sh->root,
                .rows = rows,
                .id = ids_of(b, 0) + sh->root,
                .n_slot = b->n_slot,
                .prompt = c->ask->prompt + (size_t)p * (size_t)b->n_slot * H,
                .kv = kv + (size_t)(p - p0) * each };
        rc = run_middle(c, mid, p1 - p0, NULL, err);
        if (rc == 0)
            rc = run_leaves(c, sh, root, mid, p0, p1, 0, b->n_seq, err);
    }
    kh_free(mid);
    kh_free(kv);
    return rc;
}

/* Texts first: each text once for all prompts, and for later questions. */
static int run_texts(call *c, const shape *sh, const node *root, kh_err *err) {
    const kh_batch *b = c->ask->batch;
    kh_kv_cache *cache = sh->slots ? c->e->cache : c->e->texts;
    int rc = 0, n_prompt = sh->slots ? c->ask->n_prompt : 1;
    kh_kv_cache_begin(cache);
    for (int s0 = 0, s1; s0 < b->n_seq && rc == 0; s0 = s1) {
        size_t floats = 0;
        for (s1 = s0; s1 < b->n_seq && (s1 == s0 || floats * sizeof(float) < ROUND_BYTES); s1++)
            floats += kv_floats(c->e, text_end(b, sh, s1) - sh->root);
        size_t many = (size_t)(s1 - s0);
        node *mid = kh_calloc(many, sizeof *mid);
        float **fresh = kh_calloc(many, sizeof *fresh); /* not in the cache: ours to free */
        bool *known = kh_calloc(many, sizeof *known);
        if (!mid || !fresh || !known)
            rc = kh_fail_memory(err);
        for (size_t i = 0; i < many && rc == 0; i++) {
            int s = s0 + (int)i, end = text_end(b, sh, s), rows = end - sh->root;
            size_t bytes = kv_floats(c->e, rows) * sizeof(float);
            mid[i] = (node){
                .parent = root, .first = sh->root, .rows = rows, .id = ids_of(b, s) + sh->root
            };
            if (rows == 0)
                continue;
            mid[i].kv = kh_kv_cache_get(cache, ids_of(b, s), sh->root, end, bytes, &known[i]);
            if (!mid[i].kv)
                mid[i].kv = fresh[i] = kh_aligned(bytes);
            if (!mid[i].kv)
                rc = kh_fail_memory(err);
        }
        if (rc == 0)
            rc = run_middle(c, mid, (int)many, known, err);
        kh_kv_cache_settle(cache, rc == 0);
        if (rc == 0)
            rc = run_leaves(c, sh, root, mid, 0, n_prompt, s0, s1, err);
        for (size_t i = 0; fresh && i < many; i++)
            kh_free(fresh[i]);
        kh_free(mid);
        kh_free(fresh);
        kh_free(known);
    }
    return rc;
}

/* What a question begins with: what is known from earlier ones, then what is not. */
typedef struct origin {
    node known, fresh;
    const kh_kv_head *from; /* of the known */
} origin;

/* The root of a question, computed as far as it is not known; *at: its last node, NULL if there is
 * none. */
static int run_root(call *c, int rows, origin *r, const node **at, kh_err *err) {
    const int32_t *id = ids_of(c->ask->batch, 0);
    int shared = 0, rc = 0;
    *r = (origin){ .from = kh_kv_heads_find(c->e->heads, id, rows, &shared) };
    *at = NULL;
    if (r->from) {
        r->known = (node){ .rows = shared, .id = id, .kv = r->from->kv, .ld = r->from->n };
        *at = &r->known;
    }
    if (shared < rows) {
        node *n = &r->fresh;
        *n = (node){ .parent = *at, .first = shared, .rows = rows - shared, .id = id + shared };
        n->kv = kh_aligned(kv_floats(c->e, n->rows) * sizeof *n->kv);
        rc = n->kv ? run_level(c, &n, 1, WANT_KEYS, err) : kh_fail_memory(err);
        *at = n;
    }
    return rc;
}

/* Where several sequences begin alike, others will: all of it is kept. A single one ends in a text
 * that may never come again: what it shares with an earlier one is kept, or all of it, to see what
 * the next will share. */
static void keep_root(call *c, int rows, const origin *r) {
    const kh_batch *b = c->ask->batch;
    const int32_t *id = ids_of(b, 0);
    int shared = r->known.rows;
    if (b->n_seq > 1 || !r->from) {
        if (shared < rows)
            kh_kv_heads_keep(c->e->heads, r->from, shared, id, rows, r->fresh.kv);
    } else if (shared < r->from->n && shared < rows)
        kh_kv_heads_keep(c->e->heads, r->from, shared, id, shared, NULL);
}

/* Where keys and values are kept from question to question. */
static bool make_caches(kh_engine *e) {
    const kh_config *c = &e->model->config;
    if (!e->cache)
        e->cache = kh_kv_cache_new(e->cache_bytes);
    if (!e->heads)
        e->heads =
            kh_kv_heads_new((e->cache_bytes + 7) / 8, c->layers, 2 * (size_t)kh_config_kv_width(c));
    if (!e->texts && e->keepers > 0)
        e->texts = kh_kv_cache_new(e->cache_bytes);
    return e->cache && e->heads && (e->texts || e->keepers == 0);
}

/* Every prompt with every sequence. */
static int run_tree(call *c, kh_err *err) {
    kh_engine *e = c->e;
    const kh_batch *b = c->ask->batch;
    if (!make_caches(e) || !kh_turns_make(e, c->longest))
        return kh_fail_memory(err);
    shape sh = shape_of(b, e->texts != NULL);
    origin root = { 0 };
    const node *at = NULL;
    int rc = sh.root > 0 ? run_root(c, sh.root, &root, &at, err) : 0;
    if (rc == 0 && sh.prompt_first)
        rc = run_prompts(c, &sh, at, err);
    else if (rc == 0 && (sh.slots || sh.text_first))
        rc = run_texts(c, &sh, at, err);
    else if (rc == 0)
        rc = run_leaves(c, &sh, at, NULL, 0, 1, 0, b->n_seq, err);
    if (rc == 0 && sh.root > 0)
        keep_root(c, sh.root, &root);
    kh_free(root.fresh.kv);
    return rc;
}

/* ------------------------------------------------------------------------------ label words */

static bool trie_make(trie *t, const kh_words *w) {
    int most = 0, all = 0;
    for (int k = 0; k < w->n_word; k++) {
        most = w->word[k].n_id > most ? w->word[k].n_id : most;
        all += w->word[k].n_id;
    }
    *t = (trie){ .item = kh_calloc((size_t)all + 1, sizeof *t->item),
        .deepest = most - 1,
        .of = kh_calloc((size_t)w->n_word * (size_t)(most + 1) + 1, sizeof *t->of) };
    for (int k = 0; k < w->n_word && t->item && t->of; k++) {
        int at = -1;
        for (int d = 0; d < most; d++) {
            t->of[k * most + d] = d < w->word[k].n_id ? at : -1;
            if (d + 1 >= w->word[k].n_id)
                continue;
            int i = 0;
            while (i < t->n && (t->item[i].parent != at || t->item[i].id != w->word[k].id[d]))
                i++;
            if (i == t->n)
                t->item[t->n++] = (struct beginning){ w->word[k].id[d], at, d + 1 };
            at = i;
        }
    }
    return t->item && t->of;
}

static void trie_free(trie *t) {
    kh_free(t->item);
    kh_free(t->of);
}

static void final_norm(const kh_engine *e, const float *x, int rows, float *y) {
    norm(e, x, rows, e->final_g, e->final_b, y);
}

/* Where the scores of a leaf's words stand. */
static float *score_of(const call *c, const node *leaf) {
    const kh_batch *b = c->ask->batch;
    return c->out +
        ((size_t)leaf->ask * (size_t)b->n_row + (size_t)(leaf->seq / b->n_variant)) *
        (size_t)c->ask->words->n_word;
}

/* Words of one token: their logits. */
static int take_single(call *c, node *const *n, int nodes, work *w) {
    size_t n_word = (size_t)c->ask->words->n_word;
    float *scores = kh_aligned((size_t)nodes * n_word * sizeof *scores);
    if (!scores)
        return -1;
    final_norm(c->e, w->x, nodes, w->y);
    kh_dense_apply(c->e, &c->label, w->y, nodes, NULL, KH_PLAIN, scores, w->scratch);
    for (int i = 0; i < nodes; i++)
        memcpy(score_of(c, n[i]), scores + (size_t)i * n_word, n_word * sizeof *scores);
    kh_free(scores);
    return 0;
}

/* Adds the log-probabilities of the tokens after a beginning (-1: none) to the words that have it;
 * y is the normalised row of its last token. */
static void add_tokens(
    const call *c, int beginning, int depth, const float *y, float *score, work *w) {
    const kh_words *words = c->ask->words;
    kh_dense_apply(c->e, &c->e->decoder, y, 1, NULL, KH_PLAIN, w->vocab, w->scratch);
    kh_log_softmax(w->vocab, c->e->decoder.n);
    for (int k = 0; k < words->n_word; k++)
        if (depth < words->word[k].n_id &&
            c->trie->of[k * (c->trie->deepest + 1) + depth] == beginning)
            score[k] += w->vocab[words->word[k].id[depth]];
}

/* The beginnings of words after every leaf of a group, shorter ones first: nodes of one token under
 * the leaves, or under shorter beginnings. */
static int run_beginnings(call *c, node *const *leaf, int n, work *w) {
    const trie *t = c->trie;
    kh_engine *e = c->e;
    size_t each = kv_floats(e, 1), many = (size_t)n * (size_t)t->n;
    size_t H = (size_t)e->model->config.hidden;
    node *all = kh_calloc(many + 1, sizeof *all), **list = kh_calloc(many + 1, sizeof *list);
    float *kv = kh_aligned((many + 1) * each * sizeof *kv);
    work deeper = { 0 };
    deeper.vocab = w->vocab;
    int rc = all && list && kv ? 0 : -1;
    for (int depth = 1; depth <= t->deepest && rc == 0; depth++) {
        int used = 0;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < t->n; j++)
                if (t->item[j].depth == depth) {
                    size_t at = (size_t)i * (size_t)t->n + (size_t)j;
                    const node *up = depth == 1
                        ? leaf[i]
                        : &all[(size_t)i * (size_t)t->n + (size_t)t->item[j].parent];
                    all[at] = (node){ .parent = up,
                        .first = up->first + up->rows,
                        .rows = 1,
                        .id = &t->item[j].id,
                        .kv = kv + at * each,
                        .seq = i,
                        .ask = j };
                    list[used++] = &all[at];
                }
        if (used == 0)
            break;
        if (!work_fit(c, &deeper, list, used)) {
            rc = -1;
            break;
        }
        run_nodes(e, list, used, c->layers, WANT_LAST, &deeper);
        final_norm(e, deeper.x, used, deeper.y);
        for (int i = 0; i < used; i++)
            add_tokens(c, list[i]->ask, depth, deeper.y + (size_t)i * H,
                score_of(c, leaf[list[i]->seq]), &deeper);
    }
    deeper.vocab = NULL;
    work_free(&deeper);
    kh_free(all);
    kh_free(list);
    kh_free(kv);
    return rc;
}

/* Words of several tokens: the log-probability of each, given those before it, added up. */
static int take_multiple(call *c, node *const *n, int nodes, work *w) {
    size_t H = (size_t)c->e->model->config.hidden;
    const kh_words *words = c->ask->words;
    if (!w->vocab && !(w->vocab = kh_aligned((size_t)c->e->decoder.n * sizeof *w->vocab)))
        return -1;
    final_norm(c->e, w->x, nodes, w->y);
    for (int i = 0; i < nodes; i++) {
        memset(score_of(c, n[i]), 0, (size_t)words->n_word * sizeof *c->out);
        add_tokens(c, -1, 0, w->y + (size_t)i * H, score_of(c, n[i]), w);
    }
    int rc = c->trie->n > 0 ? run_beginnings(c, n, nodes, w) : 0;
    for (int i = 0; i < nodes && words->mean; i++)
        for (int k = 0; k < words->n_word; k++)
            score_of(c, n[i])[k] /= (float)(words->word[k].n_id > 0 ? words->word[k].n_id : 1);
    return rc;
}

int kh_causal_score(kh_engine *e, const kh_question *ask, float *logits, kh_err *err) {
    const kh_words *words = ask->words;
    const kh_batch *b = ask->batch;
    bool single = true;
    trie t = { 0 };
    for (int k = 0; k < words->n_word; k++)
        single = single && words->word[k].n_id == 1;
    size_t n = (size_t)(b->n_slot > 0 ? ask->n_prompt : 1) * (size_t)b->n_row;
    call c = { .e = e,
        .ask = ask,
        .layers = e->model->config.layers,
        .longest = b->max_len,
        .take = single ? take_single : take_multiple };
    int rc = single ? kh_labels_pack(e, words, &c.label, err) : kh_decoder_pack(e, err);
    if (rc == 0 && !single && !trie_make(&t, words))
        rc = kh_fail_memory(err);
    c.trie = &t;
    c.longest += t.deepest > 0 ? t.deepest : 0;
    if (rc == 0 && c.longest > kh_config_max_tokens(&e->model->config))
        rc = kh_fail(err, KH_ELIMIT,
            "a sequence of %d tokens, label word included, is longer than the %d that the model "
            "can "
            "take",
            c.longest, kh_config_max_tokens(&e->model->config));
    if (rc == 0 && !(c.out = kh_calloc(n * (size_t)words->n_word, sizeof *c.out)))
        rc = kh_fail_memory(err);
    if (rc == 0)
        rc = run_tree(&c, err);
    if (rc == 0)
        kh_words_reduce(words, c.out, n, logits);
    kh_free(c.out);
    kh_dense_free(&c.label);
    trie_free(&t);
    return rc;
}

/* ------------------------------------------------------------------- sequences as they are */

static int take_vocabulary(call *c, node *const *n, int nodes, work *w) {
    const size_t *start = c->ask->batch->start, H = (size_t)c->e->model->config.hidden,
                 V = (size_t)c->e->decoder.n;
    const float *x = w->x;
    for (int i = 0; i < nodes; i++, x += (size_t)n[i - 1]->rows * H)
        for (int a = 0; a < c->n_at; a++) {
            size_t at = (size_t)c->at[a], s = (size_t)n[i]->seq;
            if (at < start[s] || at >= start[s + 1])
                continue;
            final_norm(c->e, x + (at - start[s]) * H, 1, w->y);
            kh_dense_apply(
                c->e, &c->e->decoder, w->y, 1, NULL, KH_PLAIN, c->out + (size_t)a * V, w->scratch);
            kh_log_softmax(c->out + (size_t)a * V, (int)V);
        }
    return 0;
}

static int take_hidden(call *c, node *const *n, int nodes, work *w) {
    size_t H = (size_t)c->e->model->config.hidden, row = 0;
    for (int i = 0; i < nodes; i++) {
        memcpy(c->out + c->ask->batch->start[n[i]->seq] * H, w->x + row * H,
            (size_t)n[i]->rows * H * sizeof *w->x);
        row += (size_t)n[i]->rows;
    }
    return 0;
}

/* Whole sequences, each for itself, with the one prompt if there are slots. */
static int run_plain(call *c, kh_err *err) {
    const kh_batch *b = c->ask->batch;
    node *all = kh_calloc((size_t)b->n_seq + 1, sizeof *all);
    node **list = kh_calloc((size_t)b->n_seq + 1, sizeof *list);
    int rc = all && list && kh_turns_make(c->e, b->max_len) ? 0 : kh_fail_memory(err);
    for (int s = 0; s < b->n_seq && rc == 0; s++) {
        all[s] = (node){ .rows = length_of(b, s), .id = ids_of(b, s), .seq = s };
        if (b->n_slot > 0)
            all[s].slot = b->slot[s], all[s].n_slot = b->n_slot, all[s].prompt = c->ask->prompt;
        list[s] = &all[s];
    }
    if (rc == 0)
        rc = run_level(c, list, b->n_seq, WANT_ALL, err);
    kh_free(all);
    kh_free(list);
    return rc;
}

int kh_causal_vocabulary(
    kh_engine *e, const kh_question *q, const int *at, int n_at, float *out, kh_err *err) {
    call c = { .e = e,
        .ask = q,
        .layers = e->model->config.layers,
        .take = take_vocabulary,
        .out = out,
        .at = at,
        .n_at = n_at };
    int rc = kh_decoder_pack(e, err);
    return rc ? rc : run_plain(&c, err);
}

int kh_causal_hidden(kh_engine *e, const kh_question *q, int layers, float *out, kh_err *err) {
    call c = { .e = e, .ask = q, .layers = layers, .take = take_hidden, .out = out };
    return run_plain(&c, err);
}

void kh_causal_free(kh_engine *e) {
    kh_kv_cache_free(e->cache);
    kh_kv_cache_free(e->texts);
    kh_kv_heads_free(e->heads);
}

void kh_engine_cache(kh_engine *e, size_t bytes) {
    kh_causal_free(e);
    e->cache = e->texts = NULL;
    e->heads = NULL;
    e->cache_bytes = bytes;
}

void kh_engine_keep_texts(kh_engine *e, bool keep) {
    e->keepers += keep ? 1 : -1;
    if (e->keepers > 0)
        return;
    kh_kv_cache_free(e->texts);
    e->texts = NULL;
}
