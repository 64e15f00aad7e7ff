#!/bin/bash
# make_old.sh SUITE ROOT OUT [VARIABLE=VALUE...] - wheel and tarball that run on an older Debian and on what is as old, in OUT/packages.
#
# A program needs the C library that it was linked with, or a newer one. So ROOT is filled with a Debian SUITE (debootstrap; as root), and
# keyhole is built by this machine's compiler with ROOT's headers and libraries (--sysroot): the older suite's own compiler may not know
# the instructions of the newest kernels. What is bundled is looked up and packed inside ROOT, so that it is the older suite's, too.
set -eu
suite=$1 root=$(mkdir -p "$2" && realpath "$2") out=$3
shift 3
mirror=${MIRROR:-http://deb.debian.org/debian}
needed=gcc,libc6-dev,pkg-config,libjansson-dev,libutf8proc-dev,libpcre2-dev,libxxhash-dev,libsqlite3-dev,libopenblas-dev,liblapacke-dev
needed=$needed,libcurl4-openssl-dev,libmicrohttpd-dev,patchelf,binutils,python3
[ "$(id -u)" -eq 0 ] || { echo "make_old: debootstrap and chroot need root" >&2; exit 1; }
if [ ! -e "$root/usr/include/jansson.h" ] || [ ! -e "$root/usr/bin/patchelf" ]; then
    echo "make_old: Debian $suite into $root" >&2
    debootstrap --variant=minbase --include="$needed" "$suite" "$root" "$mirror" >"$root.log" 2>&1 ||
        { tail -n 5 "$root.log" >&2; exit 1; }
fi
machine=$(gcc -print-multiarch)
lib=$root/usr/lib/$machine
# The linker would follow absolute links out of ROOT, to this machine's libraries.
find "$root/usr/lib" "$root/usr/lib64" "$root/etc/alternatives" -type l -lname '/*' | while read -r link; do
    ln -sfn "$(realpath -sm --relative-to="$(dirname "$link")" "$root$(readlink "$link")")" "$link"
done
# gcc would take its own OpenMP library, which needs this machine's C library. Of ROOT's gcc nothing else: its libgcc.a does not know
# all CPU features that this machine's gcc asks for.
openmp=$root/tmp/keyhole-openmp
mkdir -p "$openmp"
ln -sfn "$lib/libgomp.so.1" "$openmp/libgomp.so"
# -B: the start files, too, must be ROOT's. Since glibc 2.34 a program's constructors are called by the C library, and the start file no
# longer hands it the function that calls them: with this machine's, an older glibc would call none.
export PKG_CONFIG_LIBDIR=$lib/pkgconfig:$root/usr/share/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
make -s --no-print-directory all "CC=gcc --sysroot=$root -B$lib/" "LDFLAGS=-L$openmp" "BUILD=$out" MPICC= "$@"

# The tree that tools/package.sh reads, inside ROOT.
place=/tmp/keyhole-packing
rm -rf "${root:?}$place"
mkdir -p "$root$place/models"
trap 'rm -rf "${root:?}$place"' EXIT
cp -R --parents "$out"/release/keyhole "$out"/release/libkeyhole.so "$out"/release/keyhole.{1,bash,zsh,fish} \
    include python examples tools LICENSE NOTICE README.md CHANGELOG.md models/builtin "$root$place/"
version=$(sed -n 's/^#define KH_VERSION "\(.*\)"/\1/p' include/keyhole.h)
mkdir -p "$out/packages"
for kind in wheel dist; do
    chroot "$root" sh -c "cd $place && tools/package.sh $kind $out/release $version $(uname -m) packages" >/dev/null
done
cp "$root$place"/packages/* "$out/packages/"
ls "$out"/packages/*
