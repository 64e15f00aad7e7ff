#!/bin/bash
# check_tree.sh [CHECK] - what the tree promises of itself: includes follow the list of rooms in the Makefile, file names are unique and
# stand in the first line of their files, no type is defined in two headers, JSON is written by base/json_out.h, conditional
# expressions are not nested, lines have at most 100 columns; and, by name only, "format": clang-format, Debian's version 14, would
# change nothing. Prints what is wrong; exits 0 if nothing is.
cd "$(dirname "$0")/.." || exit 2
bad=0
wrong() { echo "$*"; bad=1; }

rooms=$(sed -n 's/^ROOMS *:= *//p' Makefile)
code=$({ git ls-files 'src/*.[ch]' 'cli/*.[ch]' 'server/*.[ch]' 'include/*.h' 'tests/*.[ch]' 'fuzz/*.c' 'examples/*.c' 2>/dev/null ||
    find src cli server include tests fuzz examples -name '*.[ch]'; } | sort -u)

includes() { # a file includes headers of its own room and of rooms above it
    local above="" room file name
    for room in $rooms; do
        above="$above $room"
        for file in src/"$room"/*.[ch]; do
            for name in $(sed -n 's|^#include "\([a-z]*\)/.*|\1|p' "$file"); do
                case " $above " in *" $name "*) ;; *) wrong "$file: includes $name/, which is below $room" ;; esac
            done
        done
    done
    for room in src/*/; do
        room=$(basename "$room")
        case " $rooms mpi " in *" $room "*) ;; *) wrong "src/$room: is not in the Makefile's list of rooms" ;; esac
    done
    grep -nE '^#include "(cli|server)/' src/*/*.[ch] && wrong "a room includes cli or server"
}

internals() { # what cli takes from inside stands in cli/internal.h, with the reason
    local name
    for name in $(sed -n 's|^#include "\([a-z]*/[a-z_0-9]*\.h\)".*|\1|p' cli/*.[ch] | sort -u); do
        case $name in server/*) continue ;; esac
        grep -q "^ \* $name " cli/internal.h || wrong "cli includes $name, which cli/internal.h does not list"
    done
}

names() {
    local twice
    twice=$(echo "$code" | grep -E '^(src|cli|server)/' | sed 's|.*/||' | sort | uniq -d)
    for file in $twice; do wrong "$file: is the name of $(echo "$code" | grep -E '^(src|cli|server)/' | grep -c "/$file$") files"; done
}

heads() { # a file begins by saying its own name, also after it was renamed
    local file
    for file in $(echo "$code" | grep -E '^(src|cli|server|tests|fuzz|examples)/'); do
        head -n 1 "$file" | grep -qF "${file##*/}" || wrong "$file: its first line does not name it: $(head -n 1 "$file" | cut -c1-60)"
    done
}

types() { # a name that two headers define; "struct x;" and "typedef struct x x;" only announce it
    local twice
    twice=$(for file in $(echo "$code" | grep -E '^(src|cli|server|include)/.*\.h$'); do
        tr '\n' ' ' <"$file" | grep -oE '(struct|enum|union) +(kh|cli)_[a-z0-9_]+ *\{' | sed -E 's/(struct|enum|union) +([a-z0-9_]+).*/\2/' | sort -u
    done | sort | uniq -d)
    for name in $twice; do wrong "$name: is defined in $(grep -lE "(struct|enum|union) +$name *\{" $(echo "$code" | grep '\.h$') | tr '\n' ' ')"; done
}

# Files with JSON in a string: each for its reason. All other JSON is written by base/json_out.h.
json_exceptions() {
    cat <<'END'
cli/cmd_calibrate.c       help: an example
cli/cmd_metrics.c         help: an example
cli/cmd_predict.c         a list without end, written row by row: it is not held in memory
cli/cmd_serve.c           help: an example
cli/cmd_tokenize.c        help: an example
server/describe.c         two answers that never change
server/server.c           the answer when memory has run out
src/judge/predictions.c   sentences that show what a line should be
src/model/safetensors.c   a sentence
src/plm/decision_service.c  a constant tokenizer file, but for its alphabet
src/text/postprocess.c    a sentence
src/text/regex.c          a sentence
END
}

json() {
    local file
    for file in $(grep -lE '\{\\"|,\\"[A-Za-z_%]+\\":|\\"[a-z_%]+\\": ?(%[^zs]|\{|\[|\\")' $(echo "$code" | grep -E '^(src|cli|server)/.*\.c$')); do
        json_exceptions | grep -q "^$file " || wrong "$file: writes JSON by hand; base/json_out.h is for that (tools/check_tree.sh lists exceptions)"
    done
}

# Conditional expressions within a branch of another one: "a ? b : c ? d : e" makes a reader keep a stack. An argument of a call and
# a subscript are expressions of their own and do not count.
nested_list() {
    awk '
    FNR == 1 { comment = 0; n = 0; open[0] = 0; before = "" }
    /^[ \t]*#/ { if (!comment) next }
    {
        line = $0
        gsub(/\\./, "__", line) # literals hold no operators
        gsub(/\047"\047/, "c", line)
        gsub(/"[^"]*"/, "s", line)
        while (comment || (at = index(line, "/*"))) {
            head = comment ? "" : substr(line, 1, at - 1)
            tail = comment ? line : substr(line, at + 2)
            end = index(tail, "*/")
            comment = !end
            line = head " " (end ? substr(tail, end + 2) : "")
            if (comment)
                break
        }
        gsub(/\047[^\047]*\047/, "c", line)
        for (i = 1; i <= length(line); i++) {
            c = substr(line, i, 1)
            if (c == " " || c == "\t")
                continue
            if (c == "[" || (c == "(" && before ~ /[A-Za-z0-9_)\]]/))
                open[++n] = 0
            else if (c == "(") {
                open[n + 1] = open[n]
                n++
            } else if (c == ")" || c == "]")
                n -= n > 0
            else if (c == ",")
                open[n] = 0
            else if (c == ";" || c == "{" || c == "}") {
                n = 0
                open[0] = 0
            } else if (c == "?" && open[n]++)
                print FILENAME ":" FNR ": a conditional expression within another"
            before = c
        }
    }' $(echo "$code" | grep -E '^(src|cli|server|include)/' | grep -v unicode_data.h)
}

nested() {
    local found
    found=$(nested_list)
    [ -z "$found" ] || wrong "nested conditional expressions; use if, a table or a function:
$found"
}

columns() {
    local long
    long=$(echo "$code" | grep -v unicode_data.h | LC_ALL=C.UTF-8 xargs grep -nP '^.{101,}' /dev/null | cut -c1-60)
    [ -z "$long" ] || wrong "lines of more than 100 columns:
$long"
}

format() { # all at once first: the usual case is that nothing is wrong
    local file
    echo "$code" | grep -v unicode_data.h | xargs -P 2 -n 50 clang-format --dry-run -Werror >/dev/null 2>&1 && return
    for file in $(echo "$code" | grep -v unicode_data.h); do
        clang-format --dry-run -Werror "$file" >/dev/null 2>&1 || wrong "$file: clang-format -i $file would change it"
    done
}

if [ "$1" = format ]; then
    format
elif [ -n "$1" ]; then
    "$1"
else
    includes; internals; names; heads; types; json; nested; columns
fi
exit $bad
