#!/usr/bin/env bash
# `make test-pages` in continuous integration: the pages in a headless Chromium, where that and Playwright can
# be had. Where they cannot, that is said and is no failure; a page that fails is one.
set -euo pipefail
cd "$(dirname "$0")/.."

# The whole takes 3 minutes on two processors.
MINUTES=12
PACKAGES=(python3-venv)

TESTS='the tests of pages'
. scripts/ci-packages.sh

command -v python3 >/dev/null 2>&1 || leave_out "there is no python3"
has_chromium() {
    [ -n "${CHROMIUM:-}" ] || command -v chromium || command -v chromium-browser || command -v google-chrome
}
has_chromium >/dev/null || PACKAGES+=(chromium)

install_or_leave_out "${PACKAGES[@]}"
timeout 300 python3 scripts/test-pages.py --prepare || leave_out "pip reaches no packages"

make program
status=0
timeout "${MINUTES}m" python3 scripts/test-pages.py "${PROGRAM:-target/release/exacat}" --short || status=$?
if [ "$status" -eq 124 ]; then
    echo "the tests of pages were not done within $MINUTES minutes"
fi
exit "$status"
