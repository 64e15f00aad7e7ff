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

/* What a person calls a model, as a path in fresh memory (kh_free): KH_BUILTIN becomes its folder,
 * all else is a copy. */
int kh_place_model(char **out, const char *name, kh_err *err);

/* The folder of examples, in fresh memory. */
int kh_place_examples(char **out, kh_err *err);

#endif
