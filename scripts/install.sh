#!/usr/bin/env bash
# `make install`: installs the program stripped, and its debug information in a file of its own, where gdb and perf
# look for it.
# Usage: install.sh EXACAT-BINARY PREFIX [DESTDIR]
set -euo pipefail

exacat=$1
directory=${3:-}$2/bin
install -d "$directory/.debug"
debug=$directory/.debug/exacat.debug
new=$(mktemp "$directory/.exacat.XXXXXX")
trap 'rm -f "$new" "$debug.new"' EXIT

objcopy --only-keep-debug "$exacat" "$debug.new"
chmod 644 "$debug.new"
mv "$debug.new" "$debug"
strip -o "$new" "$exacat"
objcopy --add-gnu-debuglink="$debug" "$new"
chmod 755 "$new"
# Last, and at once: a running service keeps the file that it was started from.
mv "$new" "$directory/exacat"
du -h --apparent-size "$directory/exacat" "$debug" | sed 's/^/installed: /'
