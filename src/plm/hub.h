/* hub.h - models by name, from a hub that speaks Hugging Face's layout: the files that are needed,
 * into a folder that appears when it is complete.
 *
 *     char *path;
 *     if (kh_hub_pull(&path, "org/model@main", &(kh_hub_opts){ 0 }, err)) ...
 *     kh_model_open(&m, path, NULL, err);
 *
 * What was fetched of a file stays until the whole is there, and the next call goes on after it. A
 * token goes to the hub and to no host that it redirects to, and is in no message. */
#ifndef KH_PLM_HUB_H
#define KH_PLM_HUB_H

#include "keyhole.h"

typedef struct kh_hub_opts { /* {0} is the default */
    const char *endpoint;    /* NULL: HF_ENDPOINT, or https://huggingface.co */
    const char *token;       /* NULL: HF_TOKEN, or none */
    const char *pattern;     /* of the file wanted, e.g. a GGUF file; NULL: what a model needs */
    const char *out;         /* the folder to make; NULL: the cache (base/place.h) */
    int parallel;            /* files at a time; 0: 4 */
    int retries;             /* of one file without any progress; 0: 6 */
    double pause;            /* seconds before the first retry; they double; 0: half a second */
    const kh_hooks *hooks;   /* a line that says how much there is, and progress in bytes */
} kh_hub_opts;

/* name: ORG/MODEL or MODEL, perhaps with @REVISION. *path (kh_free): the folder, or the GGUF file
 * in it, that kh_model_open takes. */
int kh_hub_pull(char **path, const char *name, const kh_hub_opts *, kh_err *err);

/* Makes sure that what --model names is here: "hf:NAME[@REVISION][:PATTERN]" is pulled into the
 * cache unless it is there; every other name is fine as it is. */
int kh_hub_ensure(const char *model, const kh_hub_opts *, kh_err *err);

#endif
