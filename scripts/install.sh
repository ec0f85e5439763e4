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
# The stripped program has no names: a function has one only through the link.
main=$(nm --defined-only "$debug" | awk '$3 == "main" { print $1 }')
found=$(addr2line -f -e "$new" "0x$main")
if [ "${found%%$'\n'*}" != main ]; then
    echo "install: the debug link does not lead from the program to $debug" >&2
    exit 1
fi
# Last, and at once: a running service keeps the file that it was started from.
mv "$new" "$directory/exacat"
du -h --apparent-size "$directory/exacat" "$debug" | sed 's/^/installed: /'
