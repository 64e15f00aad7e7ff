/* torch_file.c - see torch_file.h. */
#include "plm/torch_file.h"

#include "base/alloc.h"
#include "base/err.h"
#include "base/zip.h"
#include "model/tensor.h"

#include <stdio.h>
#include <string.h>

static const char WHO[] = "prompt_embeds";

/* ------------------------------------------------------------------------------------- writing */

static void put_int(kh_buf *b, int x) {
    kh_buf_char(b, 'J'); /* BININT: four bytes */
    for (int i = 0; i < 4; i++)
        kh_buf_char(b, (char)((uint32_t)x >> (8 * i) & 255));
}

static void put_string(kh_buf *b, const char *s) {
    size_t n = strlen(s);
    kh_buf_char(b, 'X'); /* BINUNICODE */
    for (int i = 0; i < 4; i++)
        kh_buf_char(b, (char)(n >> (8 * i) & 255));
    kh_buf_text(b, s);
}

void kh_torch_put(kh_buf *out, const float *x, int rows, int cols) {
    kh_buf p = kh_buf_init(1 << 12);
    kh_buf_bytes(&p, "\x80\x02", 2);
    kh_buf_text(&p, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_string(&p, "storage");
    kh_buf_text(&p, "ctorch\nFloatStorage\n");
    put_string(&p, "0");
    put_string(&p, "cpu");
    put_int(&p, rows * cols);
    kh_buf_text(&p, "tQ"); /* TUPLE, BINPERSID: the storage */
    put_int(&p, 0);
    put_int(&p, rows), put_int(&p, cols), kh_buf_char(&p, (char)0x86); /* shape */
    put_int(&p, cols), put_int(&p, 1), kh_buf_char(&p, (char)0x86);    /* strides */
    kh_buf_char(&p, (char)0x89);                                       /* no gradient */
    kh_buf_text(&p, "ccollections\nOrderedDict\n)RtR.");
    kh_zip z = kh_zip_start(out);
    if (kh_buf_failed(&p))
        out->failed = true;
    kh_zip_add(&z, "archive/data.pkl", p.data, p.len);
    kh_zip_add(&z, "archive/byteorder", "little", 6);
    kh_zip_add(&z, "archive/data/0", x, (size_t)rows * (size_t)cols * sizeof *x);
    kh_zip_add(&z, "archive/version", "3\n", 2);
    kh_zip_finish(&z);
    kh_buf_free(&p);
}

/* ------------------------------------------------------------------------------------- reading */

typedef enum kind { NOTHING, MARK, INT, TEXT, GLOBAL, TUPLE, STORAGE, TENSOR, DICT } kind;
enum { REBUILD, ORDERED, FLOAT, HALF, BFLOAT };

static const char *const NAMES[] = { [REBUILD] = "torch._utils\n_rebuild_tensor_v2\n",
    [ORDERED] = "collections\nOrderedDict\n",
    [FLOAT] = "torch\nFloatStorage\n",
    [HALF] = "torch\nHalfStorage\n",
    [BFLOAT] = "torch\nBFloat16Storage\n" };
enum { N_NAME = sizeof NAMES / sizeof NAMES[0], MOST = 256 };

typedef struct value {
    kind kind;
    long long number; /* INT; GLOBAL: which name; STORAGE: its type */
    const unsigned char *text;
    size_t n_text;   /* TEXT, and STORAGE: its key */
    int first, n;    /* TUPLE: values in the pool */
    long long count; /* STORAGE: numbers */
    int storage;     /* TENSOR: in the pool */
    long long offset, dim[3], stride[3];
    int rank;
} value;

typedef struct machine {
    const unsigned char *at, *end;
    value pool[MOST]; /* of tuples and tensors */
    int n_pool;
    value stack[64];
    int depth;
    value memo[64];
    const char *wrong;
} machine;

static bool fail(machine *m, const char *why) {
    m->wrong = m->wrong ? m->wrong : why;
    return false;
}

static bool push(machine *m, value v) {
    if (m->depth >= 64)
        return fail(m, "it is nested too deeply");
    m->stack[m->depth++] = v;
    return true;
}

static bool pop(machine *m, value *v) {
    if (m->depth == 0)
        return fail(m, "it takes what is not there");
    *v = m->stack[--m->depth];
    return true;
}

/* The next n bytes, or NULL. */
static const unsigned char *take(machine *m, size_t n) {
    if ((size_t)(m->end - m->at) < n) {
        fail(m, "it is cut short");
        return NULL;
    }
    m->at += n;
    return m->at - n;
}

/* n bytes, little-endian; signed if they are four. */
static bool take_int(machine *m, size_t n, long long *out) {
    const unsigned char *p = take(m, n);
    if (!p)
        return false;
    uint32_t x = 0;
    for (size_t i = 0; i < n; i++)
        x |= (uint32_t)p[i] << (8 * i);
    *out = n == 4 ? (int32_t)x : (long long)x;
    return true;
}

static bool read_global(machine *m) {
    for (int i = 0; i < N_NAME; i++) {
        size_t n = strlen(NAMES[i]);
        if ((size_t)(m->end - m->at) >= n && memcmp(m->at, NAMES[i], n) == 0) {
            m->at += n;
            return push(m, (value){ .kind = GLOBAL, .number = i });
        }
    }
    return fail(m, "it names something that a plain f32, f16 or bf16 tensor does not need");
}

/* The last n values as a tuple. */
static bool make_tuple(machine *m, int n) {
    if (n > m->depth || m->n_pool + n > MOST)
        return fail(m, "a tuple has too many or too few values");
    value t = { .kind = TUPLE, .first = m->n_pool, .n = n };
    for (int i = m->depth - n; i < m->depth; i++) {
        if (m->stack[i].kind == MARK)
            return fail(m, "a tuple holds a mark");
        m->pool[m->n_pool++] = m->stack[i];
    }
    m->depth -= n;
    return push(m, t);
}

static bool tuple_to_mark(machine *m) {
    int n = 0;
    while (n < m->depth && m->stack[m->depth - 1 - n].kind != MARK)
        n++;
    if (n == m->depth)
        return fail(m, "a tuple has no start");
    int at = m->depth - 1 - n; /* the mark goes */
    memmove(&m->stack[at], &m->stack[at + 1], (size_t)n * sizeof *m->stack);
    m->depth--;
    return make_tuple(m, n);
}

static bool is_text(const value *v, const char *s) {
    return v->kind == TEXT && v->n_text == strlen(s) && memcmp(v->text, s, v->n_text) == 0;
}

/* ("storage", type, key, "cpu", count) */
static bool make_storage(machine *m) {
    value t;
    if (!pop(m, &t))
        return false;
    const value *v = &m->pool[t.first];
    if (t.kind != TUPLE || t.n != 5 || !is_text(&v[0], "storage") || v[1].kind != GLOBAL ||
        v[1].number < FLOAT || v[2].kind != TEXT || v[3].kind != TEXT || v[4].kind != INT ||
        v[4].number < 0)
        return fail(m, "its storage is not that of a plain tensor");
    return push(m,
        (value){ .kind = STORAGE,
            .number = v[1].number,
            .text = v[2].text,
            .n_text = v[2].n_text,
            .count = v[4].number });
}

static bool dims(const value *pool, const value *t, long long *out) {
    for (int i = 0; i < t->n; i++) {
        const value *v = &pool[t->first + i];
        if (v->kind != INT || v->number < 0)
            return false;
        out[i] = v->number;
    }
    return true;
}

/* _rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks) and OrderedDict(). */
static bool reduce(machine *m) {
    value args, f;
    if (!pop(m, &args) || !pop(m, &f))
        return false;
    if (f.kind == GLOBAL && f.number == ORDERED && args.kind == TUPLE && args.n == 0)
        return push(m, (value){ .kind = DICT });
    const value *v = &m->pool[args.first];
    if (f.kind != GLOBAL || f.number != REBUILD || args.kind != TUPLE || args.n != 6 ||
        v[0].kind != STORAGE || v[1].kind != INT || v[2].kind != TUPLE || v[3].kind != TUPLE ||
        v[2].n != v[3].n || v[2].n < 2 || v[2].n > 3 || v[5].kind != DICT)
        return fail(m, "it is not a dense tensor of two dimensions");
    value t = { .kind = TENSOR, .storage = args.first, .offset = v[1].number, .rank = v[2].n };
    return dims(m->pool, &v[2], t.dim) && dims(m->pool, &v[3], t.stride)
        ? push(m, t)
        : fail(m, "its shape is not made of numbers");
}

static bool put_memo(machine *m, long long i) {
    if (m->depth == 0 || i < 0 || i >= 64)
        return fail(m, "it remembers too much");
    m->memo[i] = m->stack[m->depth - 1];
    return true;
}

static bool get_memo(machine *m, long long i) {
    return i >= 0 && i < 64 && m->memo[i].kind != NOTHING ? push(m, m->memo[i])
                                                          : fail(m, "it recalls what it never saw");
}

static bool read_text(machine *m) {
    long long n;
    value v = { .kind = TEXT };
    if (!take_int(m, 4, &n) || n < 0 || n > 64)
        return fail(m, "a string in it is too long");
    v.n_text = (size_t)n;
    v.text = take(m, v.n_text);
    return v.text && push(m, v);
}

/* One instruction; true if another follows. */
static bool step(machine *m) {
    const unsigned char *op = take(m, 1);
    long long x = 0;
    if (!op)
        return false;
    switch (*op) {
    case 'c': return read_global(m);
    case '(': return push(m, (value){ .kind = MARK });
    case 't': return tuple_to_mark(m);
    case ')': return push(m, (value){ .kind = TUPLE, .first = 0 });
    case 0x85: return make_tuple(m, 1);
    case 0x86: return make_tuple(m, 2);
    case 0x87: return make_tuple(m, 3);
    case 'K': return take_int(m, 1, &x) && push(m, (value){ .kind = INT, .number = x });
    case 'M': return take_int(m, 2, &x) && push(m, (value){ .kind = INT, .number = x });
    case 'J': return take_int(m, 4, &x) && push(m, (value){ .kind = INT, .number = x });
    case 'X': return read_text(m);
    case 0x88:
    case 0x89:
        return push(
            m, (value){ .kind = INT, .number = -1 }); /* true, false: only as requires_grad */
    case 'Q': return make_storage(m);
    case 'R': return reduce(m);
    case 'q': return take_int(m, 1, &x) && put_memo(m, x);
    case 'r': return take_int(m, 4, &x) && put_memo(m, x);
    case 'h': return take_int(m, 1, &x) && get_memo(m, x);
    case 'j': return take_int(m, 4, &x) && get_memo(m, x);
    case '.': return false;
    default: return fail(m, "it holds an instruction that a plain tensor does not need");
    }
}

static const kh_zip_entry *find(
    const kh_zip_list *zip, const char *dir, size_t n_dir, const char *what, size_t n) {
    for (int i = 0; i < zip->n; i++) {
        const kh_zip_entry *e = &zip->entry[i];
        if (e->n_name == n_dir + n && memcmp(e->name, dir, n_dir) == 0 &&
            memcmp(e->name + n_dir, what, n) == 0)
            return e;
    }
    return NULL;
}

static int widen(
    const kh_zip_entry *e, long long type, size_t from, size_t n, float **out, kh_err *err) {
    float *x = kh_malloc((n ? n : 1) * sizeof *x);
    if (!x)
        return kh_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        if (type == FLOAT)
            memcpy(&x[i], e->bytes + 4 * (from + i), 4);
        else {
            memcpy(&h, e->bytes + 2 * (from + i), 2);
            x[i] = type == HALF ? kh_f32_of_f16(h) : kh_f32_of_bf16(h);
        }
    }
    *out = x;
    return 0;
}

/* The tensor's numbers, if its shape, strides and storage agree. */
static int read_numbers(const machine *m, const kh_zip_list *zip, const char *dir, size_t n_dir,
    int max_rows, int max_cols, float **x, int *rows, int *cols, kh_err *err) {
    const value *t = &m->stack[0], *s = &m->pool[t->storage];
    int r = t->rank - 2; /* where the rows are counted */
    char name[80];
    int n_name = snprintf(name, sizeof name, "data/%.*s", (int)s->n_text, (const char *)s->text);
    const kh_zip_entry *e = find(zip, dir, n_dir, name, (size_t)n_name);
    size_t size = s->number == FLOAT ? 4 : 2;
    if (t->rank == 3 && t->dim[0] != 1)
        return kh_fail(err, KH_EFORMAT,
            "%s: a tensor of three dimensions, the first of them %lld; expected rows and columns",
            WHO, t->dim[0]);
    if (t->dim[r] < 1 || t->dim[r] > max_rows || t->dim[r + 1] < 1 || t->dim[r + 1] > max_cols)
        return kh_fail(err, KH_ELIMIT,
            "%s: a tensor of %lld x %lld; at most %d rows of %d are taken", WHO, t->dim[r],
            t->dim[r + 1], max_rows, max_cols);
    long long count = t->dim[r] * t->dim[r + 1];
    if (t->stride[r + 1] != 1 || (t->stride[r] != t->dim[r + 1] && t->dim[r] > 1) || t->offset < 0)
        return kh_fail(err, KH_EFORMAT, "%s: the tensor is not contiguous", WHO);
    if (!e || e->n != (size_t)s->count * size || t->offset > s->count ||
        count > s->count - t->offset)
        return kh_fail(err, KH_EFORMAT,
            "%s: the tensor's numbers are not there, or not as many as it says", WHO);
    *rows = (int)t->dim[r];
    *cols = (int)t->dim[r + 1];
    return widen(e, s->number, (size_t)t->offset, (size_t)count, x, err);
}

int kh_torch_get(const void *bytes, size_t n, int max_rows, int max_cols, float **x, int *rows,
    int *cols, kh_err *err) {
    kh_zip_list zip;
    *x = NULL;
    int rc = kh_zip_read(&zip, bytes, n, WHO, err);
    if (rc != 0)
        return rc;
    const char *dir = zip.n > 0 ? zip.entry[0].name : "",
               *slash = zip.n > 0 ? memchr(dir, '/', zip.entry[0].n_name) : NULL;
    size_t n_dir = slash ? (size_t)(slash - dir) + 1 : 0;
    const kh_zip_entry *pickle = find(&zip, dir, n_dir, "data.pkl", 8),
                       *version = find(&zip, dir, n_dir, "version", 7),
                       *order = find(&zip, dir, n_dir, "byteorder", 9);
    if (!pickle || !version || n_dir == 0 ||
        (order && (order->n != 6 || memcmp(order->bytes, "little", 6) != 0)))
        return kh_fail(
            err, KH_EFORMAT, "%s: not a file of torch.save, or not a little-endian one", WHO);
    if (pickle->n < 2 || pickle->n > 4096 || memcmp(pickle->bytes, "\x80\x02", 2) != 0)
        return kh_fail(err, KH_EFORMAT,
            "%s: its pickle is not of protocol 2, or too long for one tensor", WHO);
    machine *m = kh_calloc(1, sizeof *m);
    if (!m)
        return kh_fail_memory(err);
    m->at = pickle->bytes + 2;
    m->end = pickle->bytes + pickle->n;
    while (step(m))
        ;
    if (!m->wrong && (m->depth != 1 || m->stack[0].kind != TENSOR || m->at != m->end))
        m->wrong = "it holds something else than one tensor";
    rc = m->wrong ? kh_fail(err, KH_EFORMAT, "%s: its pickle is not read: %s", WHO, m->wrong)
                  : read_numbers(m, &zip, dir, n_dir, max_rows, max_cols, x, rows, cols, err);
    kh_free(m);
    return rc;
}
