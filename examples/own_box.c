/* own_box.c - tuning against a model of one's own: a table of functions is all that it takes.
 *
 *     cc own_box.c $(pkg-config --cflags --libs keyhole) -lm -o own_box
 *     ./own_box builtin examples/reviews
 *
 * The model here is a toy in this process: every token id has a vector of pseudo-random numbers, a
 * row is the mean of its vectors plus the mean of the soft prompt, and a label's logit is the inner
 * product with the vector of its word. A client of a service would send the texts instead
 * (kh_tokenizer_decode) and wait for its answers. */
#include <keyhole.h>
#include <stdio.h>
#include <stdlib.h>

enum { HIDDEN = 16 };

/* Entry k of the vector of a token: any fixed function of both will do. */
static float embedding(int32_t id, int k) {
    uint32_t x = (uint32_t)id * 2654435761u + (uint32_t)k * 40503u;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
    return (float)(x % 2001) / 1000.0f - 1.0f;
}

static int score(void *self, const kh_question *q, float *logits, kh_err *err) {
    const kh_batch *b = q->batch;
    long *questions = self;
    (void)err;
    int n_prompt = b->n_slot > 0 ? q->n_prompt : 1;
    *questions += (long)n_prompt * b->n_row;
    for (int p = 0; p < n_prompt; p++)
        for (int r = 0; r < b->n_row; r++) {
            float mean[HIDDEN] = { 0 };
            int s = r * b->n_variant; /* the row's first sequence */
            for (size_t t = b->start[s]; t < b->start[s + 1]; t++)
                for (int k = 0; k < HIDDEN; k++)
                    mean[k] += embedding(b->id[t], k) / (float)(b->start[s + 1] - b->start[s]);
            for (int i = 0; i < b->n_slot; i++)
                for (int k = 0; k < HIDDEN; k++)
                    mean[k] += q->prompt[(p * b->n_slot + i) * HIDDEN + k] / (float)b->n_slot;
            float *out =
                logits + ((size_t)p * (size_t)b->n_row + (size_t)r) * (size_t)q->words->n_label;
            for (int w = 0; w < q->words->n_word; w++) {
                const kh_word *word = &q->words->word[w];
                out[word->label] = 0;
                for (int k = 0; k < HIDDEN; k++)
                    out[word->label] += mean[k] * embedding(word->id[0], k);
            }
        }
    return 0;
}

int main(int argc, char **argv) {
    const char *data = argc > 2 ? argv[2] : "examples/reviews";
    char file[4096];
    long questions = 0;
    kh_box box = { .name = "toy",
        .access = KH_ACCESS_LABELS, /* whatever score computes, methods see labels alone */
        .tokenizer = argc > 1 ? argv[1] : "builtin",
        .hidden = HIDDEN,
        .max_len = 512,
        .fingerprint = 1,
        .score = score };
    kh_err err;
    const kh_task *task = NULL;
    kh_plm *plm = NULL;
    kh_split rows = { 0 };
    kh_posterior *posterior = NULL;
    kh_tune_opts o = kh_tune_defaults();
    o.seed = 13, o.space.dim = 10, o.space.slots = 2, o.max_queries = 20000;
    o.space.p0 = KH_P0_RANDOM;
    o.fallback = KH_FALLBACK_NONE; /* samples are to be seen, better than the template or not */
    snprintf(file, sizeof file, "%s/task.json", data);
    int rc = kh_plm_new(&plm, &box, &questions, &err) || kh_task_open(&task, file, &err) ||
        kh_split_open(&rows, data, 0, 0, &(kh_dataset_opts){ .task = task }, &err) ||
        kh_tune(&posterior, "smc", NULL, plm, task, rows.train, rows.dev, &o, &err);
    if (rc == 0) {
        kh_posterior_info i = kh_posterior_describe(posterior);
        const float *z = kh_posterior_z(posterior), *w = kh_posterior_weights(posterior);
        printf("%d samples of %d numbers, %ld questions, dev accuracy %.3f\n", i.samples, i.dim,
            questions, i.dev);
        printf("first sample: weight %.4f, z = %.3f %.3f ...\n", (double)w[0], (double)z[0],
            (double)z[1]);
        printf("stopped: %s\n", i.stopped);
    } else
        fprintf(stderr, "%s\n", err.msg);
    kh_posterior_free(posterior), kh_split_close(&rows), kh_task_close(task), kh_plm_close(plm);
    return rc != 0;
}
