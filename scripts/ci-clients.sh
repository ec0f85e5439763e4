#!/usr/bin/env bash
# `make test-clients` in continuous integration: the real clients, where their packages can be had. Where they
# cannot, that is said and is no failure; a client that fails is one.
set -euo pipefail
cd "$(dirname "$0")/.."

# The whole takes 10 minutes.
MINUTES=20
PACKAGES=(xrootd-server xrootd-server-plugins xrootd-client xrootd-scitokens-plugins openssl python3-venv
    gfal2-util-scripts gfal2-plugin-xrootd gfal2-plugin-file gfal2-plugin-http xrootd-client-http-plugins davix curl
    rclone cadaver litmus)

TESTS='the tests with real clients'
. scripts/ci-packages.sh

command -v python3 >/dev/null 2>&1 || leave_out "there is no python3"
python3 -c 'import sqlite3, ssl' 2>/dev/null || leave_out "python3 lacks sqlite3 or ssl"

install_or_leave_out "${PACKAGES[@]}"

venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
python3 -m venv "$venv/venv" || leave_out "python3 makes no environment (python3-venv)"
timeout 300 "$venv/venv/bin/pip" install -q alienpy || leave_out "pip reaches no packages"

make program
status=0
timeout "${MINUTES}m" python3 scripts/test-clients.py "${PROGRAM:-target/release/exacat}" --venv "$venv/venv" || status=$?
if [ "$status" -eq 124 ]; then
    echo "the tests with real clients were not done within $MINUTES minutes"
fi
exit "$status"
