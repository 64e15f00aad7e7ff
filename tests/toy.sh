# toy.sh - a task, its data and a model that are made in a second; sourced after tap.sh, not run. Answers of the random model mean
# nothing: what is tested is everything around them. Rows alternate between two classes.
mkdir "$here/data"
cat >"$here/toy.json" <<'END'
{ "name": "toy", "template": "{text} It was {mask} .",
  "labels": [ { "name": "bad", "words": ["lower"] }, { "name": "good", "words": ["better"] } ] }
END
{
    printf 'label\ttext\n'
    for i in $(seq 24); do printf '%d\tthe boats number %d were green\n' $((i % 2)) "$i"; done
} >"$here/data/train.tsv"
model=$here/model
random_model() {
    run 0 model random --arch tiny --seed 3 --std 0.3 --tokenizer tests/vectors/tokenizers/tiny-bpe.json --out "$model"
}
