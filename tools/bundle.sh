#!/bin/bash
# bundle.sh LIBDIR LICENCES FILE... - makes programs and libraries independent of what a machine has installed: copies each FILE's shared
# libraries that are not glibc's to LIBDIR under names of their own, lets all of them find each other by where they are, puts the
# licences of their Debian packages into LICENCES, and prints the oldest glibc that everything needs, e.g. 2.34.
#
# The names differ from the system's (libssl-keyhole.so.3), since a process has one library of a name: with the usual names a Python that
# loads its own libssl later would be given ours.
set -eu
lib=$1 licences=$2
shift 2
mkdir -p "$lib" "$licences"
# What every glibc system has; the same list as manylinux's, as far as it occurs here.
system='^(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libgcc_s)\.so'

needed() { ${LDD:-ldd} "$1" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | grep -vE "$system" || true; }
own_name() { echo "${1%%.so*}-keyhole.so${1#*.so}"; }

wanted=$(for file; do needed "$file"; done | sort -u)
printf '%s\n' "$wanted" | while read -r name path; do
    if [ -n "$name" ]; then install -m 644 "$path" "$lib/$(own_name "$name")"; fi
done
# The packages' licences. One question for all, as each takes a second; /lib is /usr/lib, and dpkg may know either name.
printf '%s\n' "$wanted" | while read -r _ path; do
    if [ -n "$path" ]; then real=$(readlink -f "$path"); printf '%s\n%s\n' "$real" "${real#/usr}"; fi
done | xargs -r dpkg -S 2>/dev/null | cut -d: -f1 | sort -u | while read -r package; do
    cp -L "/usr/share/doc/$package/copyright" "$licences/$package.txt"
done

# relink FILE RPATH: its needs by their new names, found beside it. One change a call: patchelf 0.14 spoils files when it makes several.
relink() {
    local name
    for name in $(patchelf --print-needed "$1"); do
        if [ -e "$lib/$(own_name "$name")" ]; then patchelf --replace-needed "$name" "$(own_name "$name")" "$1"; fi
    done
    patchelf --set-rpath "$2" "$1"
}
for file in "$lib"/*-keyhole.so*; do
    patchelf --set-soname "$(basename "$file")" "$file"
    relink "$file" '$ORIGIN'
done
for file; do
    relink "$file" "\$ORIGIN$(realpath --relative-to="$(dirname "$file")" "$lib" | sed 's/^\.$//;s|^|/|;s|^/$||')"
done

for file in "$lib"/* "$@"; do
    if [ -f "$file" ]; then "${CROSS:-}objdump" -T "$file" 2>/dev/null | grep -o 'GLIBC_2\.[0-9]*' || true; fi
done | sort -u -t. -k2,2n | tail -n 1 | sed 's/GLIBC_//'
