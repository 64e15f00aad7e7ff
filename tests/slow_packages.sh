#!/bin/bash
# slow_packages.sh - what people without a compiler install, tried as they would: in roots that hold nothing but Debian's smallest
# system. Wheel by pip and packages by apt give the same answers to the ten lines of python/README.md; the tarball runs in the home of
# somebody who is not root; wheel and tarball of tools/make_old.sh do so on an older Debian. Needs root, debootstrap and Debian's archive.
# KEYHOLE_ROOTS=folder keeps the roots for the next time.
. tests/tap.sh
: >"$here/out"; : >"$here/err"
skip_all() { echo "# skipped: slow_packages: $1"; echo "ok 1 - packages # SKIP $1"; echo "1..1"; exit 0; }
[ "$(id -u)" -eq 0 ] || skip_all "chroot needs root"
tools/setup.sh debootstrap >/dev/null || skip_all "no debootstrap"
old=${KEYHOLE_OLD_SUITE:-bullseye} mirror=${MIRROR:-http://deb.debian.org/debian}
roots=$(mkdir -p "${KEYHOLE_ROOTS:-$here/roots}" && realpath "${KEYHOLE_ROOTS:-$here/roots}")
packages=build/packages

# bare NAME SUITE PACKAGES: a root of the smallest system and a few packages, made once and copied
bare() {
    [ -e "$roots/$1/etc/debian_version" ] && return 0
    debootstrap --variant=minbase ${3:+--include=$3} "$2" "$roots/$1" "$mirror" >"$here/out" 2>"$here/err" || { rm -rf "${roots:?}/$1"; return 1; }
    cp /etc/resolv.conf /etc/hosts "$roots/$1/etc/"
    cp -n /etc/apt/apt.conf.d/99* "$roots/$1/etc/apt/apt.conf.d/" 2>/dev/null || true # how this machine reaches the archive
    useradd --root "$roots/$1" -m ann
}
# fresh NAME COPY
fresh() { rm -rf "${roots:?}/$2"; cp -a "$roots/$1" "$roots/$2"; }
# inside ROOT USER COMMAND: with /proc, which pip and OpenBLAS look at; nothing is mounted outside
inside() {
    unshare -m --propagation private bash -c 'mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" &&
        exec chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive su "$2" -s /bin/bash -c "$3"' \
        - "$roots/$1" "$2" "cd && $3" >"$here/out" 2>"$here/err"
}
sed -n '/^```python$/,/^```$/{/^```$/q;/^```/d;p}' python/README.md >"$here/ten.py"

ok "wheel, tarball and packages are made" make -s wheel dist deb
no_complaints() { ! grep -q '^[EW]:' $packages/lintian.txt; }
ok "lintian has neither errors nor warnings" no_complaints
ok "a bare Debian 12" bare bookworm bookworm ""
ok "a bare Debian 12 with pip" bare bookworm-pip bookworm python3-venv

wheel() { # wheel ROOT FOLDER: as the README says, by somebody who is not root
    fresh "$1" wheel && cp "$2"/*.whl "$here/ten.py" "$roots/wheel/home/ann/" &&
        inside wheel ann 'python3 -m venv env && env/bin/pip install -q --no-index ./keyhole-*.whl && env/bin/python ten.py'
}
ok "the wheel, by pip, runs the ten lines" wheel bookworm-pip $packages
cp "$here/out" "$here/by-pip"
ok "three decisions" eval '[ "$(grep -c "^Decision(label=" "$here/by-pip")" -eq 3 ]'

deb() {
    fresh bookworm deb && cp $packages/*.deb "$roots/deb/tmp/" && cp "$here/ten.py" "$roots/deb/home/ann/" &&
        inside deb root 'apt-get update -q && apt-get install -y -q --no-install-recommends /tmp/{keyhole,libkeyhole0,keyhole-data,python3-keyhole}_*.deb' &&
        inside deb ann 'keyhole --version && python3 ten.py' && sed -i 1d "$here/out"
}
ok "the packages, by apt, run the ten lines" deb
ok "with the same answers" cmp "$here/out" "$here/by-pip"
links() {
    cp examples/own_box.c "$roots/deb/home/ann/" &&
        inside deb root 'apt-get install -y -q --no-install-recommends gcc libc6-dev pkg-config /tmp/libkeyhole-dev_*.deb' &&
        inside deb ann 'gcc -o shared own_box.c $(pkg-config --cflags --libs keyhole) -lm && gcc -o fixed own_box.c $(pkg-config --cflags keyhole) \
            -Wl,-Bstatic -lkeyhole -Wl,-Bdynamic $(pkg-config --static --libs keyhole | sed s/-lkeyhole//) && ldd shared && ldd fixed' &&
        [ "$(grep -c libkeyhole "$here/out")" -eq 1 ]
}
ok "a program links with libkeyhole-dev, shared and static" links
ok "the packages can be removed" inside deb root 'apt-get purge -y -q keyhole libkeyhole0 libkeyhole-dev keyhole-data python3-keyhole && [ ! -e /usr/share/keyhole ]'

tarball() { # tarball ROOT FOLDER: in a home folder, run from another one
    fresh "$1" tarball && cp "$2"/keyhole-*.tar.gz "$roots/tarball/home/ann/" &&
        inside tarball ann 'tar xzf keyhole-*.tar.gz && mkdir work && cd work && k=$(echo ~/keyhole-*/) && "$k"bin/keyhole tune --effort quick \
            --method manual --out run "$k"share/keyhole/examples/tickets.csv && "$k"bin/keyhole predict run "I was charged twice"' && out_has '"label":'
}
ok "the tarball runs where it was unpacked, without root" tarball bookworm $packages

ok "packages for an older Debian ($old)" tools/make_old.sh "$old" "$roots/$old-build" build/"$old"
ok "a bare Debian $old with pip" bare "$old" "$old" python3-venv
ok "its wheel, by pip, runs the ten lines there" wheel "$old" build/"$old"/packages
ok "its tarball runs there" tarball "$old" build/"$old"/packages
# The program asks the CPU in a constructor: none is called if its start file is of another C library than the rest.
kernels() { sed 's/.*"kernels": \[\([^]]*\)\].*/\1/'; }
all_kernels() { inside tarball ann 'keyhole-*/bin/keyhole --version --json' && [ "$(kernels <"$here/out")" = "$("$KEYHOLE" --version --json | kernels)" ]; }
ok "with all kernels of this machine" all_kernels
ok "its wheel runs on Debian 12" wheel bookworm-pip build/"$old"/packages
refused() { fresh "$old" wheel && cp $packages/*.whl "$roots/wheel/home/ann/" && ! inside wheel ann 'python3 -m venv env && env/bin/pip install -q --no-index ./keyhole-*.whl' &&
    err_has "not a supported wheel"; }
ok "a wheel for newer systems is refused by pip, not by a crash" refused
rm -rf "$roots"/{wheel,deb,tarball}
echo "1..$n"
exit $failed
