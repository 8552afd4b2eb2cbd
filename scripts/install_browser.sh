#!/bin/sh
# Make Chromium and Node available to the tests of the pages, with Debian's packages.
# Without root, or where they cannot be had, one sentence says so and those tests are skipped.
set -u

have_browser() {
    [ -n "${TOREQPROP_CHROMIUM:-}" ] && return 0
    for name in chromium chromium-browser google-chrome google-chrome-stable chrome; do
        command -v "$name" >/dev/null 2>&1 && return 0
    done
    return 1
}

missing() {
    have_browser || echo chromium
    command -v node >/dev/null 2>&1 || echo nodejs
}

install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 && return 0
    apt-get update -qq >/dev/null 2>&1 &&
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1
}

wanted=$(missing)
[ -z "$wanted" ] && exit 0
# shellcheck disable=SC2086 # a list of packages
install $wanted
left=$(missing | tr '\n' ' ')
[ -z "$left" ] && exit 0
echo "Not installed: ${left% }. The tests of the pages that need it are skipped: install it with" \
    "your package manager, or set TOREQPROP_CHROMIUM to the path of a browser" >&2
