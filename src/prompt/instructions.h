/* instructions.h - what text prompts are made of: instructions, their edits, templates and label
 * words, from the task, from small built-in sets, or from the user's file. */
#ifndef KH_PROMPT_INSTRUCTIONS_H
#define KH_PROMPT_INSTRUCTIONS_H

#include "base/arena.h"
#include "keyhole.h"

/* A template, and the sets of label words that go with it. */
typedef struct kh_wording {
    const char *template;
    const kh_label **words; /* [n_words] of [n_label] */
    int n_words;
} kh_wording;

/* An instruction and what small edits make of it: text[0] is itself. */
typedef struct kh_instruction {
    const char **text; /* [n] */
    int n;
} kh_instruction;

/* All strings live in the arena. The first wording, with its first words, is the task's own; the
 * first instruction is none. */
typedef struct kh_material {
    kh_arena *arena;
    kh_wording *wording;
    kh_instruction *instruction;
    int n_wording, n_instruction;
    size_t cap_wording, cap_instruction;
    const kh_task *task;
    bool next; /* the model continues texts: no text may stand behind the answer */
} kh_material;

/* Synonyms, word by word. */
typedef struct kh_synonyms {
    struct kh_synonym {
        const char *word, *other;
    } * pair;
    int n;
    size_t cap;
} kh_synonyms;

/* Starts with what the task says itself: its template and words, its variants, the words of its
 * labels' names. Free the lists also on failure. */
int kh_material_start(kh_material *, kh_arena *, const kh_task *, bool next, kh_err *err);
/* The built-in set of the task's name, if there is one, and what any task's labels give. */
int kh_material_builtin(kh_material *, kh_err *err);
/* The lines of a file: a line with {mask} is a template, others are instructions; empty lines and
 * those that begin with # are passed over. */
int kh_material_file(kh_material *, const char *path, kh_err *err);
void kh_material_free(kh_material *);

/* Lines "word: synonym, synonym, ..."; name: what sentences call the text. */
int kh_synonyms_parse(
    kh_synonyms *, kh_arena *, const char *text, size_t n, const char *name, kh_err *err);
int kh_synonyms_builtin(kh_synonyms *, kh_arena *, kh_err *err);
int kh_synonyms_file(kh_synonyms *, kh_arena *, const char *path, kh_err *err);
/* What the model itself would put in place of each word of the instructions; needs one that fills
 * masks and runs in this process. */
int kh_synonyms_model(kh_synonyms *, kh_material *, kh_plm *, kh_err *err);
void kh_synonyms_free(kh_synonyms *);

/* Fills in the edits of every instruction: a word left out, two neighbours swapped, a word replaced
 * by a synonym; each different text once. synonyms NULL: none. */
int kh_material_edit(kh_material *, const kh_synonyms *, kh_err *err);

#endif
