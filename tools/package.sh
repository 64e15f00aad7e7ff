#!/bin/bash
# package.sh wheel|dist OUT VERSION ARCH PACKAGES - what people without a compiler install, made from the build in OUT, in PACKAGES:
#   wheel   the Python package with the library, the libraries that it needs and the built-in model
#   dist    a tarball that runs from any folder: program, library, header, model, examples, man page, completion, licences
# Both carry all but glibc (tools/bundle.sh). Nothing here knows how large the model is or which files it has.
# For another machine than this one, CROSS is what its binutils' names begin with, and LDD what lists its libraries.
set -eu
kind=$1 out=$2 version=$3 arch=$4 packages=$5
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$packages"

model() { # model SHARE: the built-in model below SHARE
    mkdir -p "$1/models"
    cp -R models/builtin "$1/models/"
}

case $kind in
wheel)
    root=$tree/keyhole
    mkdir -p "$root/lib"
    cp python/keyhole/*.py python/keyhole/py.typed include/keyhole.h "$root/"
    install -m 644 "$out/libkeyhole.so" "$root/lib/libkeyhole.so.0"
    "${CROSS:-}strip" --strip-unneeded "$root/lib/libkeyhole.so.0"
    model "$root/share/keyhole"
    glibc=$(tools/bundle.sh "$root/lib" "$root/licenses" "$root/lib/libkeyhole.so.0")
    cp LICENSE NOTICE "$root/licenses/"
    "${PYTHON:-/usr/bin/python3}" tools/make_wheel.py "$version" "$arch" "$glibc" "$tree" "$packages"
    ;;
dist)
    name=keyhole-$version-linux-$arch
    root=$tree/$name
    mkdir -p "$root/bin" "$root/lib" "$root/include" "$root/share/man/man1" "$root/share/keyhole" "$root/share/completions" "$root/share/licenses"
    install -m 755 "$out/keyhole" "$root/bin/keyhole"
    install -m 755 "$out/libkeyhole.so" "$root/lib/libkeyhole.so.0"
    "${CROSS:-}strip" --strip-unneeded "$root/bin/keyhole" "$root/lib/libkeyhole.so.0"
    ln -s libkeyhole.so.0 "$root/lib/libkeyhole.so"
    cp include/keyhole.h "$root/include/"
    model "$root/share/keyhole"
    cp -R examples "$root/share/keyhole/"
    cp "$out/keyhole.1" "$root/share/man/man1/"
    cp "$out"/keyhole.bash "$out"/keyhole.zsh "$out"/keyhole.fish "$root/share/completions/"
    mkdir -p "$root/python/keyhole"
    cp python/keyhole/*.py python/keyhole/py.typed include/keyhole.h "$root/python/keyhole/"
    ln -s ../../lib "$root/python/keyhole/lib"
    cp python/README.md python/example.py "$root/python/"
    glibc=$(tools/bundle.sh "$root/lib" "$root/share/licenses" "$root/bin/keyhole" "$root/lib/libkeyhole.so.0")
    cp LICENSE NOTICE "$root/share/licenses/"
    cp LICENSE README.md CHANGELOG.md "$root/"
    printf 'keyhole %s for linux-%s with glibc %s or newer. bin/keyhole runs where it is; PYTHONPATH=python finds the Python package.\n' \
        "$version" "$arch" "$glibc" >"$root/INSTALL"
    tar -C "$tree" --sort=name --owner=0 --group=0 --numeric-owner --mtime=2020-01-01 -czf "$packages/$name.tar.gz" "$name"
    echo "$packages/$name.tar.gz"
    ;;
esac
