/* text_json.h - the text prompts of a posterior as a part of posterior.json. */
#ifndef KH_POSTERIOR_TEXT_JSON_H
#define KH_POSTERIOR_TEXT_JSON_H

#include "base/json.h"
#include "base/json_out.h"
#include "posterior/posterior.h"

/* "rows": labelled rows that prompts show, as demonstrations of either kind. */
void kh_rows_json(const kh_row *, int n, kh_json_out *);
void kh_texts_json(const kh_posterior *, kh_json_out *);
/* p->n and p->task are there already; fills p->texts. */
int kh_texts_parse(kh_posterior *, const json_t *texts, const char *name, kh_err *err);

#endif
