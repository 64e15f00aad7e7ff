#!/bin/bash
# slow_install.sh - what `make install` leaves is complete: a program links against it, shared and static, by pkg-config.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=0 failed=
ok() { n=$((n + 1)); if eval "$2" >"$dir/log" 2>&1; then echo "ok $n - $1"; else echo "not ok $n - $1"; sed 's/^/# /' \
    "$dir/log"; failed=1; fi; }

cat >"$dir/user.c" <<'END'
#include <keyhole.h>
#include <stdio.h>
int main(int argc, char **argv) {
    kh_err err;
    kh_tokenizer *tok;
    if (argc < 2 || kh_tokenizer_open(&tok, argv[1], &err))
        return 1;
    kh_ids ids = { 0 };
    int rc = kh_tokenizer_encode(tok, "It was great.", 13, KH_ENCODE_FRAME, &ids, &err);
    printf("%s %d\n", kh_version(), ids.n);
    kh_ids_free(&ids);
    kh_tokenizer_close(tok);
    return rc;
}
END
tokenizer=tests/vectors/tokenizers/tiny-bpe.json
export PKG_CONFIG_PATH=$dir/prefix/lib/pkgconfig
ok "make install" 'make -s install PREFIX=$dir/prefix'
for file in bin/keyhole lib/libkeyhole.a lib/libkeyhole.so lib/libkeyhole.so.0 include/keyhole.h lib/pkgconfig/keyhole.pc \
    share/man/man1/keyhole.1 share/bash-completion/completions/keyhole share/keyhole/examples/reviews/task.json; do
    ok "$file is there" '[ -s "$dir/prefix/$file" ]'
done
ok "the program runs" '"$dir/prefix/bin/keyhole" --version'
models=$dir/prefix/share/keyhole/models
ok "the installed program finds the model that is installed" '"$dir/prefix/bin/keyhole" model random --arch tiny --out $dir/tiny && rm -rf $models/builtin &&
    mv $dir/tiny $models/builtin && cp $tokenizer $models/builtin/tokenizer.json &&
    (cd / && "$dir/prefix/bin/keyhole" inspect builtin) | grep -F "$models/builtin"'
ok "a program links with the shared library" 'gcc -Wall -Werror -o $dir/shared $dir/user.c $(pkg-config --cflags --libs keyhole) &&
    LD_LIBRARY_PATH=$dir/prefix/lib $dir/shared $tokenizer'
ok "which finds the model by its own place" 'LD_LIBRARY_PATH=$dir/prefix/lib $dir/shared builtin'
ok "a program links with the static library" 'gcc -Wall -Werror -o $dir/static $dir/user.c $(pkg-config --cflags keyhole) $dir/prefix/lib/libkeyhole.a \
    $(pkg-config --static --libs keyhole | sed "s/-lkeyhole//") && $dir/static $tokenizer'
ok "the header reads as C++" 'command -v g++ >/dev/null || exit 0; echo "#include <keyhole.h>" | g++ -Wall -Werror -fsyntax-only -x c++ $(pkg-config --cflags keyhole) -'
ok "the shared library shows nothing but kh_ names" \
    '[ -z "$(nm -D --defined-only $dir/prefix/lib/libkeyhole.so | grep -v " kh_\| \.gomp_critical_user_kh_")" ]'
ok "make uninstall" 'make -s uninstall PREFIX=$dir/prefix && [ -z "$(find $dir/prefix -type f)" ]'
echo "1..$n"
[ -z "$failed" ]
