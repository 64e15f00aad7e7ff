/* chain.c - see chain.h. Recursion into sequences is bounded by the depth that kh_json allows. */
#include "text/chain.h"

#include "base/alloc.h"
#include "base/err.h"

#include <stdio.h>
#include <string.h>

enum { MAX_STEPS = 1000 };

static void *add_step(kh_chain *c, const kh_kind *kind, kh_arena *arena) {
    if (!kh_grow(&c->step, &c->cap, (size_t)c->n + 1, sizeof *c->step))
        return NULL;
    void *self = kh_arena_alloc(arena, kind->size ? kind->size : 1);
    if (self)
        c->step[c->n++] = (kh_chain_step){ kind, self };
    return self;
}

static const kh_kind *find_kind(const kh_kind *kinds, const char *name) {
    while (kinds->name && strcmp(kinds->name, name) != 0)
        kinds++;
    return kinds->name ? kinds : NULL;
}

void *kh_chain_add(kh_chain *c, const kh_kind *kinds, const char *name, kh_arena *arena) {
    return add_step(c, find_kind(kinds, name), arena);
}

static int load_sequence(kh_chain *c, const kh_kind *kinds, const char *list_key, const json_t *obj,
    const kh_source *from, kh_err *err) {
    const json_t *list = json_object_get(obj, list_key);
    if (!json_is_array(list))
        return kh_fail(
            err, KH_EFORMAT, "%s: a Sequence needs a list \"%s\"", from->place, list_key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        char place[640];
        snprintf(place, sizeof place, "%.500s.%s[%zu]", from->place, list_key, i);
        kh_source inner = { place, from->arena };
        const json_t *part = json_array_get(list, i);
        if (json_is_null(part))
            return kh_fail(err, KH_EFORMAT, "%s: must be an object", place);
        int rc = kh_chain_load(c, kinds, list_key, part, &inner, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int kh_chain_load(kh_chain *c, const kh_kind *kinds, const char *list_key, const json_t *obj,
    const kh_source *from, kh_err *err) {
    if (!obj || json_is_null(obj))
        return 0;
    if (!json_is_object(obj))
        return kh_fail(err, KH_EFORMAT, "%s: must be an object or null", from->place);
    const char *type;
    int rc = kh_json_string(obj, "type", &type, from->place, err);
    if (rc != 0)
        return rc;
    if (strcmp(type, "Sequence") == 0)
        return load_sequence(c, kinds, list_key, obj, from, err);
    const kh_kind *kind = find_kind(kinds, type);
    if (!kind)
        return kh_fail(
            err, KH_EUNSUPPORTED, "%s: type \"%.100s\" is not supported", from->place, type);
    if (c->n >= MAX_STEPS)
        return kh_fail(err, KH_ELIMIT, "%s: more than %d components", from->place, MAX_STEPS);
    void *self = add_step(c, kind, from->arena);
    if (!self)
        return kh_fail_memory(err);
    char place[640];
    snprintf(place, sizeof place, "%.500s (%s)", from->place, type);
    kh_source inner = { place, from->arena };
    return kind->load ? kind->load(self, obj, &inner, err) : 0;
}

int kh_chain_run(const kh_chain *c, void *state, kh_err *err) {
    int rc = 0;
    for (int i = 0; i < c->n && rc == 0; i++)
        rc = c->step[i].kind->run(c->step[i].self, state, err);
    return rc;
}

void kh_chain_free(kh_chain *c) {
    for (int i = 0; i < c->n; i++)
        if (c->step[i].kind->drop)
            c->step[i].kind->drop(c->step[i].self);
    kh_free(c->step);
    *c = (kh_chain){ 0 };
}
