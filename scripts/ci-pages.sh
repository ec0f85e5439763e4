#!/usr/bin/env bash
# `make test-pages` in continuous integration: the pages in a headless Chromium, where that and Playwright can be had. Where
# they cannot, that is said and is no failure; a page that fails is one.
set -euo pipefail
cd "$(dirname "$0")/.."

# The whole takes 3 minutes on two processors.
MINUTES=12
PACKAGES=(python3-venv)

leave_out() {
    echo "left out: the tests of pages: $1"
    exit 0
}

command -v python3 >/dev/null 2>&1 || leave_out "there is no python3"
has_chromium() {
    [ -n "${CHROMIUM:-}" ] || command -v chromium || command -v chromium-browser || command -v google-chrome
}
has_chromium >/dev/null || PACKAGES+=(chromium)

missing=()
for package in "${PACKAGES[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null 2>&1 || leave_out "these are not installed, and there is no apt: ${missing[*]}"
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || leave_out "these are not installed, and may not be: ${missing[*]}"
        as_root=(sudo -n)
    fi
    echo "installing ${missing[*]}"
    timeout 300 "${as_root[@]}" apt-get update -qq || leave_out "apt reaches no packages"
    timeout 300 "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" ||
        leave_out "apt does not install ${missing[*]}"
fi
timeout 300 python3 scripts/test-pages.py --prepare || leave_out "pip reaches no packages"

make program
status=0
timeout "${MINUTES}m" python3 scripts/test-pages.py "${PROGRAM:-target/release/exacat}" --short || status=$?
if [ "$status" -eq 124 ]; then
    echo "the tests of pages were not done within $MINUTES minutes"
fi
exit "$status"
