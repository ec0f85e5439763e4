#!/usr/bin/env bash
# Renders the drawings of docs/drawings to SVG, or checks that each SVG is that of its source.
# Usage: drawings.sh render|check. Rendering needs `dot` of Graphviz, and the check does not.
# Each SVG names the SHA-256 of its source: versions of `dot` render the same source differently.
set -euo pipefail
cd "$(dirname "$0")/../docs/drawings"

marked() { echo "<!-- source $1 sha256 $(sha256sum < "$1" | cut -d' ' -f1) -->"; }

case ${1:-} in
render)
    command -v dot >/dev/null || { echo "drawings: dot is not installed (apt install graphviz)" >&2; exit 1; }
    for source in *.dot; do
        dot -Tsvg "$source" > "${source%.dot}.svg"
        marked "$source" >> "${source%.dot}.svg"
    done
    ;;
check)
    stale=0
    for source in *.dot; do
        drawing=${source%.dot}.svg
        grep -qxF "$(marked "$source")" "$drawing" 2>/dev/null \
            || { echo "drawings: $drawing is not that of $source; render it: make drawings" >&2; stale=1; }
    done
    for drawing in *.svg; do
        [ -e "${drawing%.svg}.dot" ] || { echo "drawings: $drawing has no source" >&2; stale=1; }
    done
    if command -v dot >/dev/null; then
        for source in *.dot; do dot -Tsvg "$source" > /dev/null || stale=1; done
    else
        echo "drawings: compared with their sources, not rendered; dot is not installed (apt install graphviz)" >&2
    fi
    exit $stale
    ;;
*)
    echo "usage: drawings.sh render|check" >&2
    exit 1
    ;;
esac
