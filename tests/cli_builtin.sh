#!/bin/bash
# cli_builtin.sh - the word "builtin" wherever a model is named: found by KEYHOLE_MODELS and by where the program is, the sentence where it
# is not, the same bits as by its path; and the demo on it, with random weights.
. tests/tap.sh
models=$here/models model=$here/models/builtin data=examples/reviews
program=$(realpath "$KEYHOLE")
: >"$here/out" && : >"$here/err"
unset KEYHOLE_MODELS

random_model() {
    mkdir "$models" && run 0 model random --arch tiny --seed 3 --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-bpe.json \
        --out "$model"
}
ok "a tiny model" random_model

# ---- where it is looked for
export KEYHOLE_MODELS=$models
ok "KEYHOLE_MODELS names a folder of models" both 0 "model        $model" inspect builtin
KEYHOLE_MODELS=$here/none
absent="the built-in model is not here: there is none in $here/none/builtin; set KEYHOLE_MODELS to the folder that holds \"builtin\", make it with \"make builtin\" in keyhole's sources, or give the folder of another model"
ok "which then is the only one" says 1 "keyhole: $absent" inspect builtin
ok "a tokenizer is not found there either" says 1 "$absent" tokenize --model builtin
ok "nor does the demo begin" says 1 "$absent" demo --out "$here/demo"
nothing_written() { [ ! -e "$here/demo" ]; }
ok "or write anything" nothing_written
unset KEYHOLE_MODELS

# place WHERE - the program in a folder of its own, as a tree or an installation has it.
# With an emulator (RUNNER) KEYHOLE is a script beside the build: the program itself is put there, and a script that starts it.
place() {
    mkdir -p "$here/$1" || return 1
    [ -n "${RUNNER:-}" ] || { cp "$program" "$here/$1/keyhole"; return; }
    cp "$(dirname "$program")/release/keyhole" "$here/$1/program" &&
        printf '#!/bin/sh\nexec %s "%s" "$@"\n' "$RUNNER" "$here/$1/program" >"$here/$1/keyhole" && chmod +x "$here/$1/keyhole"
}
run_there() { (cd / && "$here/$1/keyhole" inspect builtin) >"$here/out" 2>"$here/err"; }
in_tree() {
    place tree/build/release && mkdir -p "$here/tree/src/base" && cp src/base/place.c "$here/tree/src/base" &&
        mkdir "$here/tree/models" && cp -R "$model" "$here/tree/models" && run_there tree/build/release &&
        out_has "model        $here/tree/models/builtin"
}
ok "a program in the tree it was built in finds the tree's" in_tree
installed() {
    place usr/bin && mkdir -p "$here/usr/share/keyhole/models" && cp -R "$model" "$here/usr/share/keyhole/models" &&
        run_there usr/bin && out_has "model        $here/usr/share/keyhole/models/builtin"
}
ok "an installed one finds the installed one" installed
by_link() { mkdir "$here/links" && ln -s "$here/usr/bin/keyhole" "$here/links/keyhole" && run_there links &&
    out_has "$here/usr/share"; }
ok "through a link, too" by_link
# Two folders above an installed program somebody may have models of his own.
not_by_chance() {
    place home/local/bin && cp -R "$models" "$here/home/models" && ! run_there home/local/bin &&
        err_has "there is none in $here/home/local/bin/../share/keyhole/models/builtin;" && rm -r "$here/home"
}
ok "models that lie about are not taken for it" not_by_chance
only_a_card() { rm "$here/tree/models/builtin/config.json" && ! run_there tree/build/release &&
    err_has "$here/tree/models/builtin, "; }
ok "a folder without a model is not one" only_a_card
rm -r "$here/tree" "$here/usr" "$here/links"

# ---- everywhere a model is named
export KEYHOLE_MODELS=$models
echo "It was great" >"$here/text"
for_text() { "$KEYHOLE" "$@" <"$here/text" >"$here/out" 2>"$here/err"; }
ok "tokenize" for_text tokenize --model builtin
ok "fill-mask" run 0 fill-mask --model builtin --top 2 "It was <mask>."
ok "features" for_text features --model builtin --pool mean
ok "task show" run 0 task show examples/reviews/task.json --model builtin
ok "data stats" run 0 data stats $data --model builtin
ok "bench engine" run 0 bench engine --model builtin --rows 2 --length 8 --reps 1
pretrain() { run 0 pretrain --corpus tests/tap.sh --init builtin --tokenizer builtin --out "$here/more" --steps 1 \
    --batch-tokens 64 --seq-len 16 && [ -s "$here/more/tokenizer.json" ]; }
ok "pretrain --init" pretrain
in_folder() { mkdir -p "$here/cwd/builtin" && (cd "$here/cwd" &&
    "$program" inspect ./builtin) >"$here/out" 2>"$here/err"; [ $? -eq 1 ] && err_has "./builtin/config.json"; }
ok "a folder of that name is ./builtin" in_folder

cat >"$here/toy.json" <<'TASK'
{ "name": "toy", "template": "{text} It was {mask} .",
  "labels": [ { "name": "bad", "words": ["lower"] }, { "name": "good", "words": ["better"] } ] }
TASK
tune() { # tune MODEL OUT
    run 0 tune --method bbt --model "$1" --task "$here/toy.json" --data $data --effort paper --shots 4 --dim 5 --slots 3 --p0 random --pop 4 \
        --budget-generations 2 \
        --dev-every 1 --out "$here/$2"
}
ok "tune by the word" tune builtin word
ok "and by the path" tune "$model" path
same_bits() { cmp "$here/word/posterior.safetensors" "$here/path/posterior.safetensors" &&
    diff <(sed "s#$model#builtin#" "$here/path/posterior.json") "$here/word/posterior.json"; }
ok "the same posterior, but for the name" same_bits
elsewhere() { mv "$models" "$here/moved" && KEYHOLE_MODELS=$here/moved for_text predict "$here/word" --output tsv; }
ok "a run on the word is used wherever the model is now" elsewhere
KEYHOLE_MODELS=$here/moved
ok "eval" run 0 eval "$here/word" --rows 10 --bootstrap 0 --no-report --model builtin
peft() { run 0 export "$here/word" --format npz --out "$here/z.npz" --model builtin; }
ok "export" peft
served() {
    "$KEYHOLE" serve --model builtin --port 0 >"$here/out" 2>"$here/err" &
    local id=$!
    soon $id grep -q 'http://' "$here/err" "$here/out"
    local url=$(grep -oh 'http://[0-9.:]*' "$here/err" "$here/out" | head -n 1)
    [ -n "$url" ] && "$KEYHOLE" tune --method manual --model "$url" --task "$here/toy.json" --data $data --shots 4 \
        --out "$here/served" >"$here/out" 2>"$here/err" &&
        grep -q '"path": "builtin"' "$here/served/posterior.json"
    local got=$?
    kill $id && wait $id 2>/dev/null
    return $got
}
if ! "$KEYHOLE" serve --model /nowhere 2>&1 | grep -q "built without libmicrohttpd"; then ok "serve gives its tokenizer and its name" served
else n=$((n + 1)); echo "# skipped: serve: built without libmicrohttpd"; echo "ok $n - serve gives its tokenizer and its name # SKIP built without libmicrohttpd"; fi

# ---- the demo, whose answers are nonsense here
ok "the demo ends" run 0 demo --rows 10 --out "$here/demo"
for words in "$ keyhole tune --method manual --model builtin" "example  method  sees" "topics   smc     labels only" \
    "tickets  auto    log-probabilities" "$here/demo/topics-auto/report.html" "r reviews, t topics, k tickets" \
    "$ keyhole predict $here/demo/tickets-auto" "keyhole serve --run $here/demo/"; do
    ok "it says: $words" out_has "$words"
done
reports() { for run in reviews topics tickets; do for method in manual auto smc; do [ -s "$here/demo/$run-$method/report.html" ] || return 1; done; done; }
ok "nine reports" reports
ok "what the commands said is kept" grep -q '^saved     .*/topics-smc' "$here/demo/log.txt"
again() {
    cp "$here/demo/topics-smc/posterior.json" "$here/first" && run 0 demo --rows 10 --out "$here/demo" --json && cmp "$here/first" "$here/demo/topics-smc/posterior.json" &&
        [ "$(grep -o '"accuracy":[0-9.]*,"nll":[0-9.]*,"ece":[0-9.]*,"answered":[0-9.nul]*,"risk":[0-9.nul]*,"ood_auroc":[0-9.]*,' "$here/out" | wc -l)" -eq 9 ]
}
ok "again, the same bits; as JSON" again
ok "examples that are not there" says 1 "$here/none/reviews" demo --data "$here/none" --out "$here/demo2"
: >"$here/no"
ok "a folder that cannot be made" says 1 "$here/no" demo --out "$here/no/where"
echo "1..$n"
exit $failed
