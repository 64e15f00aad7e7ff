#!/bin/bash
# slow_builtin.sh - the recipe of the built-in model, on a corpus of a few lines: it ends in a model that is found and used, goes on after a
# stop, and complains about texts that are missing. Slow, because six layers of 256 are.
. tests/tap.sh
: >"$here/out" && : >"$here/err"
recipe() { tools/builtin.sh "$KEYHOLE" "$here/corpus" "$here/work" >"$here/out" 2>"$here/err"; }
export INTO=$here/models/builtin TOKENS=2000 KEYHOLE_MODELS=$here/models
no_corpus() { ! recipe && err_has "builtin: there are no texts in $here/corpus; CORPUS=DIR says where they are"; }
ok "no corpus" no_corpus
mkdir "$here/corpus"
no_file() { ! recipe && err_has "builtin: $here/corpus holds neither wikipedia_en_2015.txt.xz nor wikipedia_en_2015.txt"; }
ok "an incomplete one" no_file
i=2
for name in wikipedia_en_2015 imdb_unsup imdb_train yelp_reviews amazon_reviews agnews_nontest bbc_news reuters21578 movie_reviews_panglee \
    abc_news yahoo_questions nli_train_sentences subj_sentences brown webtext state_union_inaugural; do
    cut -f 2 examples/topics/test.tsv | sed -n "$i,$((i + 18))p" >"$here/corpus/$name.txt"
    i=$((i + 19))
done
xz "$here/corpus/brown.txt"
made() { recipe && out_has "builtin: the model is in $INTO" && out_has "stored as    Q8_0" && [ -s "$INTO/log.tsv" ]; }
ok "it makes a model" made
ok "which is the built-in one" both 0 "parameters   " inspect builtin
fingerprint() { "$KEYHOLE" inspect builtin | sed -n 's/^fingerprint *//p'; }
before=$(fingerprint)
again() { rm -r "$INTO" && recipe && [ "$(fingerprint)" = "$before" ]; }
ok "again, with nothing left to do: the same" again
warm() { INIT=$INTO INTO=$here/warm PRUNE=0; export INIT INTO PRUNE; tools/builtin.sh "$KEYHOLE" "$here/corpus" "$here/work2" \
    >"$here/out" 2>"$here/err" && cmp "$INIT/tokenizer.json" "$INTO/tokenizer.json"; }
ok "from a model that is there" warm
# Stage two, on a few rows of the examples that stand for two of the tasks; the vocabulary must know the words of tools/questions.
unset PRUNE
export INIT=models/builtin INTO=$here/asked PRUNE=0 STEPS=3 DATA=$here/data
no_rows() { mkdir "$DATA" && mkdir "$DATA/sst2" "$DATA/agnews" && for part in train test; do
    head -n 60 "examples/reviews/$part.tsv" >"$DATA/sst2/$part.tsv" && head -n 60 "examples/topics/$part.tsv" >"$DATA/agnews/$part.tsv" || return 1; done; }
ok "rows" no_rows
asked() { tools/builtin.sh "$KEYHOLE" "$here/corpus" "$here/work3" >"$here/out" 2>"$here/err" && out_has "stored as    Q8_0" &&
    grep -qF '"seen_tasks": ["sst2", "agnews"]' "$INTO/config.json" && [ -s "$INTO/stage1.tsv" ]; }
ok "stage two" asked
left_out() { LEAVE=sst2 INTO=$here/left tools/builtin.sh "$KEYHOLE" "$here/corpus" "$here/work4" >"$here/out" 2>"$here/err" &&
    grep -qF '"seen_tasks": ["agnews"]' "$here/left/config.json"; }
ok "without a family" left_out
stage_one() { STAGE=1 INTO=$here/first tools/builtin.sh "$KEYHOLE" "$here/corpus" "$here/work3" >"$here/out" 2>"$here/err" &&
    ! grep -q seen_tasks "$here/first/config.json"; }
ok "stage one alone has seen no row" stage_one
no_data() { ! (unset DATA; STAGE=2 tools/builtin.sh "$KEYHOLE" "$here/corpus" "$here/work5" >"$here/out" 2>"$here/err") &&
    err_has "builtin: stage two learns from labelled rows; DATA=DIR says where they are"; }
ok "no rows" no_data
echo "1..$n"
exit $failed
