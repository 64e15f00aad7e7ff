/* place.h - where the things are that come with keyhole: its own model and the example data.
 *
 * A program is run from the tree that it was built in, or installed; both know where they are
 * themselves:
 *
 *     build/release/keyhole     ../../models/builtin          ../../examples
 *     PREFIX/bin/keyhole        ../share/keyhole/models/...   ../share/keyhole/examples
 *     PREFIX/lib/libkeyhole.so  the same, for other programs
 *
 * KEYHOLE_MODELS names a folder of models, and then only that one counts. */
#ifndef KH_BASE_PLACE_H
#define KH_BASE_PLACE_H

#include "keyhole.h"

#define KH_BUILTIN \
    "builtin" /* the word for the model that comes with keyhole; a folder of that name is \
                 "./builtin" */

#define KH_HUB "hf:" /* before the name of a model on a hub: hf:NAME[@REVISION][:PATTERN] */

/* The parts of such a name. */
typedef struct kh_hub_name {
    char name[256], revision[128]; /* "main" if none is given */
    char pattern[128];             /* of a GGUF file, or "": hf:org/model:Q4_0 has "*Q4_0*.gguf" */
} kh_hub_name;
int kh_place_hub_name(kh_hub_name *out, const char *model, kh_err *err);

/* Where models of a hub are kept, laid out as Hugging Face's own programs do, which share it:
 * HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub, and in it
 * models--ORG--MODEL/snapshots/COMMIT. In fresh memory. */
int kh_place_snapshot(char **out, const char *name, const char *commit, kh_err *err);
/* Notes that a revision is this commit. */
int kh_place_reference(const char *name, const char *revision, const char *commit, kh_err *err);

/* What a person calls a model, as a path in fresh memory (kh_free): KH_BUILTIN becomes its folder,
 * a name of a hub its snapshot or the GGUF file in it, if it has been pulled; all else is a copy.
 */
int kh_place_model(char **out, const char *name, kh_err *err);

/* The folder of examples, in fresh memory. */
int kh_place_examples(char **out, kh_err *err);

#endif
