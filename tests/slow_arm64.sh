#!/bin/bash
# slow_arm64.sh - tarball and wheel for 64-bit ARM: cross-built, and the tarball run by an emulator. Of the system they use glibc alone.
. tests/tap.sh
: >"$here/out"; : >"$here/err"
skip_all() { echo "# skipped: slow_arm64: $1"; echo "ok 1 - packages for ARM # SKIP $1"; echo "1..1"; exit 0; }
make -s setup-arm64 >/dev/null 2>"$here/err" || skip_all "no cross-compiler or emulator"
packages=build-arm64/packages
ok "tarball and wheel are made" make -s dist-arm64 wheel-arm64
tar -C "$here" -xzf $packages/keyhole-*-linux-aarch64.tar.gz
k=$(echo "$here"/keyhole-*-linux-aarch64)
ok "for ARM, all of them" eval '[ -z "$(for f in "$k"/bin/keyhole "$k"/lib/*.so*; do file -L "$f"; done | grep -v "ARM aarch64")" ]'
own() { # all but glibc's is found beside the program
    qemu-aarch64 /lib/ld-linux-aarch64.so.1 --list "$k/bin/keyhole" >"$here/out" 2>"$here/err" && grep -q -- -keyhole.so "$here/out" &&
        ! awk '$2 == "=>" && $3 !~ "^'"$here"'"' "$here/out" | grep -vE '^\s*(libc|libm|libdl|libpthread|librt|libresolv|libgcc_s)\.so'
}
ok "with their own libraries" own
arm() { (cd "$here" && qemu-aarch64 -cpu max "$k/bin/keyhole" "$@") >"$here/out" 2>"$here/err"; }
ok "it knows ARM's kernels" eval 'arm --version --json && out_has "\"machine\": \"aarch64\"" && out_has "neon-i8mm"'
answers() { # the built-in model's words, and their log-probabilities to two places, are those of this machine
    local text="Refund my last [MASK]."
    arm fill-mask --model builtin "$text" && "$KEYHOLE" fill-mask --model builtin "$text" >"$here/want" &&
        diff <(awk 'NF == 4 { printf "%.2f %s\n", $2, $4 }' "$here/out") <(awk 'NF == 4 { printf "%.2f %s\n", $2, $4 }' "$here/want") && grep -q money "$here/out"
}
ok "its built-in model answers as here" answers
ok "the wheel says what it is for" eval '[ -e "$(echo $packages/keyhole-*-manylinux_2_[0-9]*_aarch64.whl)" ]'
ok "and holds a library for ARM" eval 'unzip -p $packages/keyhole-*_aarch64.whl keyhole/lib/libkeyhole.so.0 >"$here/lib.so" && file "$here/lib.so" | grep -q "ARM aarch64"'
echo "1..$n"
exit $failed
