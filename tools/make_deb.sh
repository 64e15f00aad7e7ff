#!/bin/bash
# make_deb.sh OUT VERSION PACKAGES REQUIRES - Debian packages of the build in OUT, in the folder PACKAGES, and what lintian says of them:
#   keyhole          program, man page, completion for three shells
#   libkeyhole0      the shared library           libkeyhole-dev   header, static library, pkg-config file
#   keyhole-data     the built-in model and the example data, for all machines
#   python3-keyhole  the Python package, for all machines
# REQUIRES are the pkg-config names that the static library needs. What the binaries need is found by dpkg-shlibdeps; errors of lintian are
# errors here.
set -eu
out=$1 version=$2 packages=$(mkdir -p "$3" && realpath "$3") requires=$4
arch=$(dpkg --print-architecture) multi=$(gcc -print-multiarch)
revision=$version-1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

# begin NAME: the folder of a package, with the documents that every package has
begin() {
    root=$work/$1
    mkdir -p "$root/DEBIAN" "$root/usr/share/doc/$1"
    cp "$work/copyright" "$root/usr/share/doc/$1/copyright"
    gzip -9nc "$work/changelog" >"$root/usr/share/doc/$1/changelog.Debian.gz"
}
# needs FILE...: what dpkg-shlibdeps finds
needs() {
    (cd "$work" && mkdir -p debian && printf 'Source: keyhole\n\nPackage: keyhole\nArchitecture: any\n' >debian/control &&
        dpkg-shlibdeps --ignore-missing-info -O "$@" 2>/dev/null | sed 's/^shlibs:Depends=//')
}
# dev_packages: the packages that hold the headers and static libraries of what tools/keyhole.pc.in names
dev_packages() {
    local name file
    for name in $requires; do
        file=$(pkg-config --variable=pcfiledir "$name")/$name.pc
        dpkg -S "$(readlink -f "$file")" 2>/dev/null || dpkg -S "$file"
    done | cut -d: -f1 | sort -u | tr '\n' ',' | sed 's/,/, /g'
    echo "libutf8proc-dev, libopenblas-dev"
}
# finish NAME ARCH SECTION DEPENDS SUMMARY TEXT: control, sums, the package
finish() {
    local name=$1
    cat >"$root/DEBIAN/control" <<CONTROL
Package: $name
Source: keyhole
Version: $revision
Architecture: $2
Maintainer: The keyhole developers <keyhole@example.org>
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Section: $3
Priority: optional
Depends: $4
Description: $5
$(echo "$6" | fold -s -w 76 | sed 's/ *$//;s/^/ /')
CONTROL
    [ "$2" = "$arch" ] && [ "$name" = libkeyhole0 ] && sed -i '/^Priority/a Multi-Arch: same' "$root/DEBIAN/control"
    [ -n "$4" ] || sed -i '/^Depends/d' "$root/DEBIAN/control"
    (cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    dpkg-deb --root-owner-group -Zxz --build "$root" "$packages/${name}_${revision}_$2.deb" >/dev/null
    echo "$packages/${name}_${revision}_$2.deb"
}

cat >"$work/copyright" <<COPYRIGHT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: keyhole

Files: *
Copyright: 2026 the authors of keyhole
License: Apache-2.0
 On Debian systems the full text of the Apache License 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
COPYRIGHT
{ echo; sed 's/^/ /;s/^ $/ ./' NOTICE | sed '1s/^/Comment:\n/'; } >>"$work/copyright"
cat >"$work/changelog" <<CHANGELOG
keyhole ($revision) unstable; urgency=medium

  * Release $version; CHANGELOG.md in the sources says what changed.

 -- The keyhole developers <keyhole@example.org>  Wed, 01 Jan 2025 00:00:00 +0000
CHANGELOG

begin libkeyhole0
mkdir -p "$root/usr/lib/$multi"
install -m 644 "$out/libkeyhole.so" "$root/usr/lib/$multi/libkeyhole.so.$version"
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/lib/$multi/libkeyhole.so.$version"
ln -s "libkeyhole.so.$version" "$root/usr/lib/$multi/libkeyhole.so.0"
echo "libkeyhole 0 libkeyhole0 (>= $version)" >"$root/DEBIAN/shlibs"
echo "activate-noawait ldconfig" >"$root/DEBIAN/triggers"
finish libkeyhole0 "$arch" libs "$(needs "$root/usr/lib/$multi/libkeyhole.so.$version"), keyhole-data (= $revision)" \
    "text classifiers with trustworthy uncertainty, shared library" \
    "Turns a frozen language model and a handful of labelled texts into a classifier with calibrated probabilities, abstention at a stated risk and prediction sets. This package holds the shared library."

begin libkeyhole-dev
mkdir -p "$root/usr/lib/$multi/pkgconfig" "$root/usr/include"
install -m 644 include/keyhole.h "$root/usr/include/"
install -m 644 "$out/libkeyhole.a" "$root/usr/lib/$multi/"
strip --strip-debug --remove-section=.comment --remove-section=.note -p "$root/usr/lib/$multi/libkeyhole.a"
ln -s libkeyhole.so.0 "$root/usr/lib/$multi/libkeyhole.so"
sed -e "s|@PREFIX@|/usr|;s|@VERSION@|$version|;s|@LIBS@|$(pkg-config --libs $requires)|" -e "s|/lib\$|/lib/$multi|" tools/keyhole.pc.in >"$root/usr/lib/$multi/pkgconfig/keyhole.pc"
# A program that takes the static library links with what it needs: the shared libraries of these packages.
finish libkeyhole-dev "$arch" libdevel "libkeyhole0 (= $revision), $(dev_packages)" "text classifiers with trustworthy uncertainty, header" \
    "Header, static library and pkg-config file of libkeyhole, which turns a frozen language model and a handful of labelled texts into a classifier that knows its limits."

begin keyhole
mkdir -p "$root/usr/bin" "$root/usr/share/man/man1" "$root/usr/share/bash-completion/completions" \
    "$root/usr/share/zsh/vendor-completions" "$root/usr/share/fish/vendor_completions.d"
install -m 755 "$out/keyhole" "$root/usr/bin/keyhole"
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/bin/keyhole"
gzip -9nc "$out/keyhole.1" >"$root/usr/share/man/man1/keyhole.1.gz"
install -m 644 "$out/keyhole.bash" "$root/usr/share/bash-completion/completions/keyhole"
install -m 644 "$out/keyhole.zsh" "$root/usr/share/zsh/vendor-completions/_keyhole"
install -m 644 "$out/keyhole.fish" "$root/usr/share/fish/vendor_completions.d/keyhole.fish"
finish keyhole "$arch" science "$(needs "$root/usr/bin/keyhole"), keyhole-data (= $revision)" "text classifiers with trustworthy uncertainty" \
    "Turns a frozen language model that can be asked but not opened, and a handful of labelled texts, into a classifier with calibrated probabilities, abstention at a stated risk, prediction sets and a flag for texts that do not belong. It learns a distribution over prompts, from predicted labels alone if the model returns nothing else."
sed -i '/^Description/i Suggests: gnuplot-nox' "$work/keyhole/DEBIAN/control"
dpkg-deb --root-owner-group -Zxz --build "$work/keyhole" "$packages/keyhole_${revision}_$arch.deb" >/dev/null

begin keyhole-data
mkdir -p "$root/usr/share/keyhole/models"
cp -R models/builtin "$root/usr/share/keyhole/models/"
cp -R examples "$root/usr/share/keyhole/"
find "$root/usr" -type f -exec chmod 644 {} +
find "$root/usr" -type d -exec chmod 755 {} +
grep -rlZ '^#!' "$root/usr/share/keyhole/examples" | xargs -0r chmod 755
finish keyhole-data all science "" "text classifiers with trustworthy uncertainty, model and examples" \
    "The language model that comes with keyhole, and small data sets to try it on."

begin python3-keyhole
site=$root/usr/lib/python3/dist-packages
mkdir -p "$site/keyhole" "$site/keyhole-$version.dist-info"
install -m 644 python/keyhole/*.py python/keyhole/py.typed include/keyhole.h "$site/keyhole/"
printf 'Metadata-Version: 2.1\nName: keyhole\nVersion: %s\n' "$version" >"$site/keyhole-$version.dist-info/METADATA"
install -m 644 python/README.md "$root/usr/share/doc/python3-keyhole/README.md"
mkdir -p "$root/usr/share/doc/python3-keyhole/examples"
install -m 644 python/example.py "$root/usr/share/doc/python3-keyhole/examples/example.py"
cat >"$root/DEBIAN/postinst" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = configure ] && command -v py3compile >/dev/null 2>&1; then
    py3compile -p python3-keyhole
fi
exit 0
SCRIPT
cat >"$root/DEBIAN/prerm" <<'SCRIPT'
#!/bin/sh
set -e
if command -v py3clean >/dev/null 2>&1; then
    py3clean -p python3-keyhole
fi
exit 0
SCRIPT
chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm"
finish python3-keyhole all python "python3:any (>= 3.9), libkeyhole0 (>= $version)" "text classifiers with trustworthy uncertainty, for Python" \
    "The Python package keyhole: a classifier with scikit-learn's conventions, over libkeyhole. NumPy is used where it is there."
sed -i '/^Description/i Suggests: python3-numpy, python3-sklearn' "$work/python3-keyhole/DEBIAN/control"
dpkg-deb --root-owner-group -Zxz --build "$work/python3-keyhole" "$packages/python3-keyhole_${revision}_all.deb" >/dev/null

lintian --fail-on error --suppress-tags bad-distribution-in-changes-file,initial-upload-closes-no-bugs "$packages"/*_"$revision"_*.deb >"$packages/lintian.txt" || status=$?
echo "lintian: $(grep -c '^E:' "$packages/lintian.txt" || true) errors, $(grep -c '^W:' "$packages/lintian.txt" || true) warnings ($packages/lintian.txt)"
exit "${status:-0}"
