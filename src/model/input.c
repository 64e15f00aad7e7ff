/* input.c - how ids and a soft prompt become the sequence that the model sees; see model.h.
 *
 * Positions follow Hugging Face: kh_config_position has the rule. */
#include "model/model.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

static const char *const inject_names[] = {
#define KH_INJECT_TEXT(name, text) text,
    KH_INJECTS(KH_INJECT_TEXT)
#undef KH_INJECT_TEXT
};
enum { N_INJECTS = sizeof inject_names / sizeof *inject_names };

const char *kh_inject_name(kh_inject inject) { return inject_names[inject]; }

int kh_inject_find(kh_inject *out, const char *name, kh_err *err) {
    for (int i = 0; i < N_INJECTS; i++)
        if (strcmp(inject_names[i], name) == 0) {
            *out = (kh_inject)i;
            return 0;
        }
    return kh_fail(err, KH_EARG,
        "\"%.60s\" is no injection mode; there are post-ln-add, embed-prefix, embed-inplace and "
        "none",
        name);
}

/* Whether prompt rows stand in the sequence beside the ids. */
static bool is_embedded(const kh_input *in) {
    return in->inject == KH_INJECT_EMBED_PREFIX || in->inject == KH_INJECT_EMBED_INPLACE;
}

/* How many ids stand before the prompt. In place means behind the first token ([CLS], <s>), which
 * models expect at the front. */
static int ids_before(const kh_input *in) { return in->inject == KH_INJECT_EMBED_PREFIX ? 0 : 1; }

int kh_input_length(const kh_input *in) { return in->n_id + (is_embedded(in) ? in->n_prompt : 0); }

/* Ids behind an embedded prompt move by its length: where a mask stood in the ids is not where it
 * is in the sequence. */
int kh_input_place(const kh_input *in, int i) {
    return is_embedded(in) && i >= ids_before(in) ? i + in->n_prompt : i;
}

static int check_prompt(const kh_model *m, const kh_input *in, kh_err *err) {
    if (in->inject == KH_INJECT_NONE)
        return in->n_prompt == 0
            ? 0
            : kh_fail(
                  err, KH_EARG, "a soft prompt of %d rows needs an injection mode", in->n_prompt);
    if (in->n_prompt < 0 || (in->n_prompt > 0 && !in->prompt))
        return kh_fail(err, KH_EARG, "a soft prompt of %d rows has no numbers", in->n_prompt);
    if (in->inject == KH_INJECT_POST_LN_ADD && in->n_prompt > in->n_id - 1)
        return kh_fail(err, KH_EARG,
            "a soft prompt of %d rows is added to the ids after the first, of which there are only "
            "%d",
            in->n_prompt, in->n_id - 1);
    for (size_t i = 0; i < (size_t)in->n_prompt * (size_t)m->config.hidden; i++)
        if (!isfinite(in->prompt[i]))
            return kh_fail(err, KH_EARG, "the soft prompt holds NaN or infinity in row %zu",
                i / (size_t)m->config.hidden);
    return 0;
}

/* The last check before arithmetic: from here on indices are trusted. */
int kh_input_check(const kh_model *m, const kh_input *in, kh_err *err) {
    int max = kh_config_max_tokens(&m->config);
    if (in->n_id < 1)
        return kh_fail(err, KH_EARG, "a sequence without tokens has no hidden states");
    if (in->n_id > max || (is_embedded(in) && in->n_prompt > max - in->n_id))
        return kh_fail(err, KH_ELIMIT,
            "a sequence of %lld tokens is longer than the %d that the model can take",
            (long long)in->n_id + (is_embedded(in) ? in->n_prompt : 0), max);
    for (int i = 0; i < in->n_id; i++)
        if (in->id[i] < 0 || in->id[i] >= m->config.vocab)
            return kh_fail(err, KH_EARG,
                "token id %d is outside the model's vocabulary of %d; does the tokenizer belong to "
                "the model?",
                in->id[i], m->config.vocab);
    if (is_embedded(in) && m->config.embed > 0)
        return kh_fail(err, KH_EUNSUPPORTED,
            "models of type %s have word embeddings of a width of their own; take post-ln-add",
            m->config.arch->type);
    return check_prompt(m, in, err);
}

void kh_input_slots(const kh_model *m, const kh_input *in, kh_slot *out) {
    const kh_config *c = &m->config;
    int length = kh_input_length(in), before = ids_before(in), next = c->first_position;
    for (int t = 0; t < length; t++) {
        kh_slot *s = &out[t];
        *s = (kh_slot){ .id = -1, .embedded = -1, .added = -1 };
        int row = t - before;
        if (is_embedded(in) && row >= 0 && row < in->n_prompt)
            s->embedded = row;
        else
            s->id = in->id[is_embedded(in) && t >= before ? t - in->n_prompt : t];
        if (in->inject == KH_INJECT_POST_LN_ADD && row >= 0 && row < in->n_prompt)
            s->added = row;
        s->position = kh_config_position(c, s->id, is_embedded(in), &next);
    }
}
