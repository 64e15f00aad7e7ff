#!/bin/bash
# cli_task.sh - keyhole task list, show and check, as a user types them.
. tests/tap.sh

bpe=tests/vectors/tokenizers/tiny-bpe.json
wordpiece=tests/vectors/tokenizers/tiny-wordpiece.json
maskless=tests/vectors/tokenizers/pre-bytelevel.json
task() { printf '{"name":"mine","template":"{text} = {mask}","labels":[{"name":"a","words":[%s]},{"name":"b","words":[%s]}]}' "$1" \
    "$2"; }

ok "list" both 0 "mrpc      two    2       f1        {text_a} ? {mask} , {text_b}" task list
ok "list has nine tasks and a header" test "$(wc -l <"$here/out")" -eq 10
ok "list as JSON" both 0 '"name": "dbpedia"' task list --json
ok "show" both 0 "soft template  {prompt} . {text} . It was {mask} ." task show sst2
ok "show names labels and words" out_has "1  positive                great"
ok "show as a task file" both 0 '"template": "{mask} News: {text}"' task show agnews --json
cp "$here/out" "$here/agnews.json"
ok "the task file reads back" both 0 "task \"agnews\" is usable: one text, 4 labels, metric accuracy" task check "$here/agnews.json"
ok "and shows the same" run 0 task show "$here/agnews.json" --json
ok "to the byte" cmp -s "$here/out" "$here/agnews.json"

task '"the"' '"and"' >"$here/good.json"
ok "show with a model" both 0 "Ġthe (" task show "$here/good.json" --model $bpe
ok "single tokens need no note" bash -c '! grep -q note: "$0"' "$here/out"
ok "check with a model" both 0 "is usable" task check "$here/good.json" --model $bpe
task '"the the"' '"the and","was"' >"$here/long.json"
ok "words of several tokens are shown" both 0 'note: "the the" (a) is 2 tokens, Ġthe Ġthe; all words are then scored' \
    task show "$here/long.json" --model $bpe
ok "a shared first token is noted" out_has 'note: "the the" (a) and "the and" (b) start with the same token'
ok "several tokens are usable" both 0 "is usable" task check "$here/long.json" --model $bpe
ok "first token of the paper" both 1 'problem: "the the" (a) and "the and" (b) become the same tokens and cannot be told apart' \
    task check "$here/long.json" --model $bpe --paper-exact
ok "the first counts" out_has "; the first counts"
task '"t"' '"T"' >"$here/same.json"
ok "words that fall together" says 1 "task \"mine\" cannot be used with $wordpiece" task check "$here/same.json" --model $wordpiece
ok "are named" out_has 'problem: "t" (a) and "T" (b) become the same tokens'
ok "and shown" both 0 'problem: "t" (a) and "T" (b)' task show "$here/same.json" --model $wordpiece
task '"t"' '"😀"' >"$here/unknown.json"
ok "unknown words" both 1 'problem: "😀" (b) is unknown to the tokenizer' task check "$here/unknown.json" --model $wordpiece
ok "as JSON" both 1 '"usable": false, "problems": ["\"😀\" (b) is unknown to the tokenizer"]' task check "$here/unknown.json" \
    --model $wordpiece --json
ok "ids and tokens as JSON" both 0 '{"word": "the", "label": "a", "ids": [' task check "$here/good.json" --model $bpe --json
ok "a tokenizer without a mask" both 1 "problem: the tokenizer has no mask token" task check "$here/good.json" --model $maskless

printf '{"name":"x","template":"{text} {msk}"}' >"$here/typo.json"
ok "a misspelt placeholder" says 1 'typo.json: "template": "{text} {msk}" has an unknown placeholder at "{msk}"' \
    task check "$here/typo.json"
ok "an unknown task" says 1 "sst9: neither a task file nor a built-in task (sst2," task show sst9
ok "a missing model" says 1 "nowhere" task show sst2 --model "$here/nowhere"
ok "--json and --model do not go together" says 2 "use \"task check --json --model\"" task show sst2 --json --model $bpe
ok "show wants a name" says 2 "NAME|FILE is needed" task show
ok "help teaches" both 0 "keyhole task show agnews --model DIR" task show --help
echo "1..$n"
exit $failed
