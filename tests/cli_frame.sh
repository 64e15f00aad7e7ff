#!/bin/bash
# cli_frame.sh - what all commands share: exit codes, complaints, help, the man page, completion.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=0
ok() { n=$((n + 1)); if eval "$2"; then echo "ok $n - $1"; else echo "not ok $n - $1"; failed=1; fi; }
skip() { n=$((n + 1)); echo "# skipped: $1: $2"; echo "ok $n - $1 # SKIP $2"; }
# gives STATUS ARGS...: runs keyhole, keeps its output, compares the exit status
gives() { local status=$1; shift; "$KEYHOLE" "$@" >"$dir/out" 2>"$dir/err" </dev/null; [ $? -eq "$status" ]; }
out() { grep -qF -- "$1" "$dir/out"; }
err() { grep -qF -- "$1" "$dir/err"; }
quiet() { [ ! -s "$dir/$1" ]; }

ok "no command: the overview on stderr, exit 2" 'gives 2 && err "usage: keyhole COMMAND" && quiet out'
ok "--help: the overview on stdout, exit 0" 'gives 0 --help && out "usage: keyhole COMMAND" && quiet err'
ok "help: the same" 'gives 0 --help && cp $dir/out $dir/1 && gives 0 help && cmp $dir/1 $dir/out'
ok "--version" 'gives 0 --version && grep -qxE "keyhole [0-9]+\.[0-9]+\.[0-9]+" $dir/out'
ok "--version --json has the facts of the build" '
    gives 0 --version --json && grep -qxE "\{\"version\": \"[0-9.]+\", \"machine\": \"[a-z0-9_]+\", \"compiler\": \".+\"kernels\": \[.+\], \"kernels_in_use\": .+\}" $dir/out'
ok "--version takes nothing else" 'gives 2 --version --jason && err "takes nothing but --json"'
ok "version is that of the header" 'grep -q "KH_VERSION \"$("$KEYHOLE" --version | cut -d" " -f2)\"" include/keyhole.h'

ok "unknown command" 'gives 2 nonsense && err "keyhole: unknown command \"nonsense\"" && err "Try \"keyhole --help\"." && quiet out'
ok "unknown command of a family" 'gives 2 tokenizer nonsense && err "keyhole: unknown command \"tokenizer nonsense\""'
ok "a family alone lists itself on stderr, exit 2" '
    gives 2 tokenizer && err "usage: keyhole tokenizer COMMAND" &&
    err "tokenizer train" && quiet out'
ok "a family with --help lists itself on stdout" 'gives 0 tokenizer --help && out "tokenizer train" && quiet err'
ok "help of a family lists it" 'gives 0 help tokenizer && out "usage: keyhole tokenizer COMMAND"'
ok "help of a command is its --help" '
    gives 0 tokenizer train --help && cp $dir/out $dir/1 &&
    gives 0 help tokenizer train && cmp $dir/1 $dir/out'
ok "help of an unknown command" 'gives 2 help nonsense && err "unknown command \"nonsense\""'
ok "help of too much" 'gives 2 help a b c && err "unexpected argument \"c\" for \"keyhole help\""'

ok "unknown option" '
    gives 2 help --nonsense && err "keyhole: unknown option --nonsense for \"keyhole help\"" &&
    err "Try \"keyhole help --help\"."'
ok "unknown option with a value" 'gives 2 help --nonsense=1 && err "unknown option --nonsense for"'
ok "the start of an option is not the option" 'gives 2 help --ma && err "unknown option --ma for"'
ok "short option" 'gives 2 help -x && err "unknown option \"-x\": options are long and start with two dashes"'
ok "option without its value" 'gives 2 help --threads && err "--threads needs a value: N"'
ok "option with a wrong value" 'gives 2 help --threads many && err "--threads takes a whole number from 0 to 1024; got \"many\""'
ok "--name=value" 'gives 0 help --threads=2 && gives 2 help --threads= && err "got \"\""'
ok "flag with a value" '
    gives 0 help --man=false && out "usage: keyhole COMMAND" &&
    gives 2 help --man=perhaps && err "--man takes no value, or true or false"'
ok "--no-flag undoes a flag" 'gives 0 help --man --no-man && out "usage: keyhole COMMAND"'
ok "--no- is for flags only" 'gives 2 tokenizer train --no-vocab && err "unknown option --no-vocab"'
ok "words after -- are arguments" 'gives 2 help -- --man && err "unknown command \"--man\""'
ok "--help wins over what is missing" 'gives 0 tokenizer train --help && out "usage: keyhole tokenizer train"'
ok "a failure is exit 1 and one sentence" '
    gives 1 tokenizer train --corpus /nonexistent --out $dir/x && [ "$(wc -l <$dir/err)" -eq 1 ] &&
    err "keyhole: /nonexistent:"'

if [ -w /dev/full ]; then
    for args in help --help --version "tokenizer --help" "help --man" "help --bash-completion"; do
        ok "a full disk under keyhole $args is exit 1" '
            "$KEYHOLE" $args >/dev/full 2>$dir/err;
            [ $? -eq 1 ] && err "keyhole: cannot write to standard output"'
    done
else
    skip "a full disk is exit 1" "/dev/full is not there"
fi
ok "a closed standard output is exit 1" '"$KEYHOLE" help >&- 2>$dir/err; [ $? -eq 1 ] && err "cannot write to standard output"'

# all_explained OPTION...: whether the help in $dir/out has a line for each; --no-x may stand as --[no-]x.
all_explained() {
    for o; do
        sed 's/^  --\[no-\]/  --no-/' "$dir/out" | grep -qE -- "^  $o( |\$)" || { echo "# $o is not explained"; return 1; }
    done
}

# Every command, as the completion script lists them: name|options
"$KEYHOLE" help --bash-completion >"$dir/completion"
sed -n 's/^        "\(.*\)") opts="\(.*\)" ;;$/\1|\2/p' "$dir/completion" >"$dir/commands"
"$KEYHOLE" help --man >"$dir/keyhole.1"
ok "there are commands" '[ "$(wc -l <$dir/commands)" -ge 2 ]'
while IFS='|' read -r name opts; do
    ok "keyhole $name --help teaches every option" '
        gives 0 $name --help && out "usage: keyhole $name" && quiet err &&
        all_explained $opts'
    ok "keyhole $name --help has an example and fits 80 columns" 'out "  keyhole ${name%% *}" && [ "$(wc -L <$dir/out)" -le 80 ]'
    ok "the overview names keyhole $name" 'gives 0 help && out "  $name "'
    ok "the man page holds keyhole $name" 'sed "s/\\\\-/-/g" $dir/keyhole.1 | grep -qF "SS \"keyhole $name"'
done <"$dir/commands"

if command -v man >/dev/null && man --warnings -l "$dir/keyhole.1" >"$dir/page" 2>"$dir/err" </dev/null && [ -s "$dir/page" ]; then
    ok "man renders the page without warnings" 'quiet err && grep -q "^KEYHOLE(1)" $dir/page'
    # An option with a long name may stand alone on a line; sentences have seven spaces before them and are filled.
    ok "its sentences are filled to the width of the reader" '
        MANWIDTH=70 man -l $dir/keyhole.1 </dev/null 2>/dev/null | grep -E "^ {7}[A-Z]" | LC_ALL=C.UTF-8 wc -L >$dir/out && [ "$(cat $dir/out)" -le 70 ]'
elif command -v groff >/dev/null; then
    ok "groff renders the page without warnings" '
        groff -man -ww -Tutf8 $dir/keyhole.1 >$dir/page 2>$dir/err && quiet err &&
        [ -s $dir/page ]'
else
    skip "the man page renders without warnings" "neither man nor groff is there"
fi

ok "the completion script is bash" 'bash -n $dir/completion'
# complete WORD...: what <TAB> offers after these words
complete_words() {
    bash -c 'source "$1"; shift; COMP_WORDS=(keyhole "$@"); COMP_CWORD=$#; _keyhole; printf "%s\n" "${COMPREPLY[@]}"' \
        - "$dir/completion" "$@"
}
ok "to<TAB> completes" 'complete_words to | grep -qx tokenizer'
ok "each first word is offered once" '[ -z "$(complete_words "" | sort | uniq -d)" ] && complete_words "" | grep -qx help'
ok "the second word of a family completes" 'complete_words tokenizer tr | grep -qx train'
ok "options complete" 'complete_words tokenizer train --co | grep -qx -- --corpus && complete_words help --m | grep -qx -- --man'
ok "files complete after a command" 'complete_words tokenizer train --corpus Makef | grep -qx Makefile'

"$KEYHOLE" help --fish-completion >"$dir/keyhole.fish"
"$KEYHOLE" help --zsh-completion >"$dir/_keyhole"
ok "zsh and fish know every command" '
    cut -d"|" -f1 $dir/commands | while read -r c; do grep -q "^        .$c.)$" $dir/_keyhole || exit 1; done &&
        [ -z "$(cut -d"|" -f1 $dir/commands | cut -d" " -f1 | while read -r c; do grep -q -- " $c[; '"'"']" $dir/keyhole.fish || echo $c; done)" ]'
ok "their descriptions read as sentences" '! grep -n "^complete.*-d .[^:]*[a-z]  [a-z]" $dir/keyhole.fish && ! grep -n "[a-z]  [a-z][^:]*\]" $dir/_keyhole'
if command -v fish >/dev/null; then
    fishes() { fish --no-config -c "source $dir/keyhole.fish; complete -C \"keyhole $1\"" 2>$dir/err; }
    ok "fish: to<TAB>" 'fishes to | grep -q "^tokenizer" && quiet err'
    ok "fish: the second word of a family" 'fishes "tokenizer " | grep -q "^train" && ! fishes "tune " | grep -q "^train"'
    ok "fish: options and the values of choices" 'fishes "tune --acc" | grep -q "^--access" && fishes "tune --access l" | grep -q "^labels" &&
        fishes "tune --method s" | grep -q "^smc"'
else
    skip "completion for fish" "no fish"
fi
if command -v zsh >/dev/null; then
    # zshes CURRENT WORD...: what the function hands to zsh's own
    zshes() { zsh -fc 'compdef() { :; }; _describe() { print -l ${(P)2}; }; _arguments() { print -l -- "$@"; }; source "$1"; CURRENT=$2
        words=(keyhole "${@:3}"); _keyhole' - "$dir/_keyhole" "$@" 2>$dir/err; }
    ok "the script is zsh" 'zsh -n $dir/_keyhole'
    ok "zsh: commands, and those of a family" 'zshes 2 "" | grep -q "^tune:" && zshes 3 tokenizer "" | grep -q "^train:" && quiet err'
    ok "zsh: options and the values of choices" 'zshes 3 tune "" | grep -q "^--access\[.*(labels logprobs weights)" && zshes 4 tokenizer train "" | grep -q "^--corpus"'
else
    skip "completion for zsh" "no zsh"
fi
echo "1..$n"
[ -z "$failed" ]
