#!/bin/bash
# "export --format peft" of a decoder is exact: the adapter, put where PEFT puts it, gives keyhole's own probabilities by a forward pass that
# was written for this with numpy (Debian's python3-numpy). See slow_peft.py.
. tests/tap.sh
/usr/bin/python3 -c 'import numpy' 2>/dev/null || { echo "1..1"; echo "# skipped: slow_peft: python3-numpy is not there"; echo "ok 1 - slow_peft # SKIP"; exit 0; }
. tests/kill.sh
rm -rf "$model"
cat >"$task" <<'END'
{ "name": "toy", "template": "{text} It was {mask} .", "decoder_template": "{text} It was {mask}",
  "labels": [ { "name": "bad", "words": ["lower"] }, { "name": "good", "words": ["better"] } ] }
END
"$KEYHOLE" model random --family llama --std 0.3 --seed 5 --tokenizer tests/vectors/tokenizers/tiny-bpe.json --hidden 64 --inner 256 --out "$model" >/dev/null
ok tune run 0 tune --method bbt "${common[@]}" --inject embed-prefix --budget-generations 4 --pop 6 --sigma 3 --calibrate none --out "$here/run"
ok export run 0 export "$here/run" --format peft --out "$here/peft"
exact() {
    local ids
    mapfile -t ids < <("$KEYHOLE" task show "$task" --model "$model" | sed -n 's/.*(\([0-9]*\))$/\1/p')
    [ ${#ids[@]} -eq 2 ] || return 1
    printf '%s\n' 'the boats' 'the boats number 7 were green' 'lower and lower' | while read -r text; do
        "$KEYHOLE" next --model "$model" --json --top 1 "$text It was" | grep -o '"ids":\[[^]]*\]' >"$here/ids"
        "$KEYHOLE" predict "$here/run" --jsonl "$text" >"$here/said" 2>"$here/err"
        sed "s/^{/{$(cat "$here/ids"),/" "$here/said"
    done >"$here/rows"
    [ "$(wc -l <"$here/rows")" -eq 3 ] && /usr/bin/python3 tests/slow_peft.py "$model" "$here/peft/sample-000" "$here/rows" "${ids[@]}"
}
ok exact exact
echo "1..$n"
exit $failed
