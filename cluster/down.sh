#!/bin/bash
# Stops the nodes that up.sh started in this directory, each by its own process id. The data stay.
set -euo pipefail
directory=${1:?usage: down.sh DIRECTORY}
for file in "$directory"/node*/pid; do
    [[ -f $file ]] || continue
    id=$(cat "$file")
    # Still the node, and not another process that was given its number since?
    if tr '\0' ' ' <"/proc/$id/cmdline" 2>/dev/null | grep -q CassandraDaemon; then
        kill "$id" 2>/dev/null || true
    fi
done
for file in "$directory"/node*/pid; do
    [[ -f $file ]] || continue
    id=$(cat "$file")
    for _ in $(seq 1 600); do kill -0 "$id" 2>/dev/null || break; sleep 0.1; done
    kill -9 "$id" 2>/dev/null || true
    rm -f "$file"
done
rm -f "$directory/hosts"
