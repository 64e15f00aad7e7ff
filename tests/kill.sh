# kill.sh - what the tests that kill runs share; sourced after tap.sh. Makes a tiny model, rows and a task in $here.
model=$here/model data=$here/data task=$here/toy.json
: >"$here/out" >"$here/err"
mkdir "$data"
cat >"$task" <<'END'
{ "name": "toy", "template": "{text} It was {mask} .",
  "labels": [ { "name": "bad", "words": ["lower"] }, { "name": "good", "words": ["better"] } ] }
END
{
    printf 'label\ttext\n'
    for i in $(seq 40); do printf '%d\tthe boats number %d were green\n' $((i % 2)) "$i"; done
} >"$data/train.tsv"
tiny_model() { # DIR SEED
    "$KEYHOLE" model random --arch tiny --seed "$2" --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-bpe.json \
        --out "$1" >/dev/null
}
tiny_model "$model" 3 || { echo "not ok 1 - a tiny model"; exit 1; }
common=(--model "$model" --task "$task" --data "$data" --effort paper --shots 8 --dim 12 --slots 5 --p0 random)

# A run of each method that takes a second or so; what is not named here takes its defaults.
options_of() { # METHOD
    case $1 in
    bbt) echo --budget-generations 60 --dev-every 7 --pop 10 --sigma 3 ;;
    ensemble) echo --budget-generations 15 --dev-every 4 --members 4 --pop 10 --sigma 3 ;;
    elbo) echo --budget-generations 10 --pop 10 --draws 4 --samples 10 --dev-every 4 ;;
    abc-smc) echo --samples 30 --max-misses 20 --budget-generations 8 ;;
    smc) echo --samples 40 --budget-levels 6 --dev-every 2 ;;
    snpe) echo --budget-rounds 3 --simulations 60 --samples 10 --transforms 3 --hidden 20 --max-epochs 30 ;;
    esac
}

# field NAME: a number out of "keyhole runs --json" in $here/out
field() { sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p" "$here/out" | head -n 1; }
# same A B: two runs left the same; model-tuning's posterior.json names the folder of the model that it made
same() {
    local file
    cmp <(sed "s|$1/|RUN/|g" "$1/posterior.json") <(sed "s|$2/|RUN/|g" "$2/posterior.json") && cmp "$1/log.txt" "$2/log.txt" ||
        return 1
    for file in posterior.safetensors model/model.safetensors; do
        [ ! -e "$1/$file" ] && [ ! -e "$2/$file" ] || cmp "$1/$file" "$2/$file" || return 1
    done
}

# whole METHOD: the run without interruption, in $here/METHOD, its wall time in milliseconds in $took
whole() {
    local start
    start=$(date +%s%N)
    # shellcheck disable=SC2046
    "$KEYHOLE" tune --method "$1" "${common[@]}" $(options_of "$1") --out "$here/$1" >"$here/out" 2>"$here/err" || return 1
    took=$((($(date +%s%N) - start) / 1000000))
}

# killed METHOD TIMES: kills a run TIMES times with SIGKILL, at random moments, and lets it end. The result
# must be that of the whole run, and the journal must hold no more than its answers.
killed() {
    local method=$1 times=$2 run=$here/$1-killed pid ms landed=0 want_queries want_answers
    rm -rf "$run"
    for turn in $(seq "$times"); do
        # shellcheck disable=SC2046
        "$KEYHOLE" tune --method "$method" "${common[@]}" $(options_of "$method") --out "$run" --resume >"$here/out" 2>"$here/err" &
        pid=$!
        ms=$((30 + RANDOM % (2 * took / times + 1))) # each goes on for a random share of what is left,
        [ "$turn" -eq 1 ] && ms=$((took / 4))          # and the first is early enough to hit
        sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
        kill -KILL $pid 2>/dev/null && landed=$((landed + 1))
        wait $pid 2>/dev/null
    done
    echo "# $method: $landed of $times kills landed"
    [ "$landed" -gt 0 ] || return 1
    # shellcheck disable=SC2046
    run 0 tune --method "$method" "${common[@]}" $(options_of "$method") --out "$run" --resume && same "$here/$method" "$run" ||
        return 1
    run 0 runs "$here/$method" --json && want_queries=$(field queries) want_answers=$(field answers) || return 1
    run 0 runs "$run" --json && [ "$(field queries)" = "$want_queries" ] && [ "$(field answers)" = "$want_answers" ] &&
        out_has '"state":"finished"'
}
