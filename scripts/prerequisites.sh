#!/usr/bin/env bash
# Installs what the build needs and the machine lacks: a C compiler for the compression and TLS libraries, and a
# C++ compiler for the fuzz targets.
# Prints nothing where nothing is missing.
set -euo pipefail

missing=()
{ command -v cc && command -v c++; } >/dev/null 2>&1 || missing+=(build-essential)

if ! command -v cargo >/dev/null 2>&1; then
    echo "exacat: Rust is not installed; see https://rustup.rs, then run this again" >&2
    exit 1
fi

if [ ${#missing[@]} -gt 0 ]; then
    echo "exacat: installing ${missing[*]}" >&2
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 || { echo "exacat: please install: ${missing[*]}" >&2; exit 1; }
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" apt-get install -y -qq "${missing[@]}"
fi
