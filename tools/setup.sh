#!/bin/sh
# setup.sh PACKAGE... - installs the Debian packages that are missing; prints nothing when all are there.
# Where installing is not permitted it prints the command to run and fails.
missing=
for package; do
    # A package may be there for several architectures: a line each.
    dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -qx 'install ok installed' ||
        missing="$missing $package"
done
[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    # Not a Debian machine: the compiler will say what it cannot find.
    echo "setup: this build was made for Debian; it needs what these packages hold:$missing" >&2
    exit 0
fi
if [ "$(id -u)" -eq 0 ]; then
    sudo=
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    sudo='sudo -n'
elif command -v sudo >/dev/null 2>&1 && [ -t 0 ]; then
    sudo=sudo
else
    echo "setup: packages are missing and may not be installed from here. Run, as root:" >&2
    echo "    apt-get install -y --no-install-recommends$missing" >&2
    exit 1
fi
echo "setup: installing$missing" >&2
export DEBIAN_FRONTEND=noninteractive
install() { $sudo apt-get install -y -q --no-install-recommends $missing; }
log=$(mktemp)
if ! install >"$log" 2>&1; then
    $sudo apt-get update -q >>"$log" 2>&1
    if ! install >>"$log" 2>&1; then
        tail -n 20 "$log" >&2
        echo "setup: that failed; run it yourself to see more: apt-get install -y --no-install-recommends$missing" >&2
        rm -f "$log"
        exit 1
    fi
fi
rm -f "$log"
