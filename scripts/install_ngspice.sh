#!/bin/sh
# Make the circuit simulator ngspice available: on the search path, or unpacked into a folder.
#   scripts/install_ngspice.sh [FOLDER]        FOLDER defaults to .venv/ngspice
# Where it cannot be had, one sentence says so; with CI=true that is an error.
set -eu
folder=${1:-.venv/ngspice}

installed() {
    command -v ngspice >/dev/null 2>&1 || [ -x "$folder/usr/bin/ngspice" ]
}

with_root() {
    [ "$(id -u)" = 0 ] || return 1
    apt-get install -y -qq ngspice >/dev/null 2>&1 && return 0
    apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq ngspice >/dev/null 2>&1
}

# The packages that are missing, unpacked side by side; Ngspice() finds their libraries there.
without_root() {
    work=$(mktemp -d)
    names=$(apt-get install --print-uris -y -o Debug::NoLocking=1 ngspice 2>/dev/null |
        sed -n "s/^'[^']*' \([^_ ]*\)_.*/\1/p")
    (cd "$work" && apt-get download -qq ${names:-ngspice} >/dev/null 2>&1) || return 1
    mkdir -p "$folder"
    for package in "$work"/*.deb; do
        dpkg-deb -x "$package" "$folder" || return 1
    done
    rm -rf "$work"
}

installed && exit 0
if command -v apt-get >/dev/null 2>&1 && { with_root || without_root; } && installed; then
    exit 0
fi
echo "ngspice could not be installed, so the tests of circuits will not run: install it with" \
    "your package manager, or set TOREQPROP_NGSPICE to the path of the program" >&2
[ "${CI:-}" != true ]
