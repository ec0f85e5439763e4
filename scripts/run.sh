#!/usr/bin/env bash
# `make run`: starts the service on the embedded default, with something in it to try the first time.
# Usage: run.sh EXACAT-BINARY [serve options]. Ctrl-C stops it.
set -euo pipefail

exacat=$1
shift
data=${XDG_DATA_HOME:-$HOME/.local/share}/exacat
previous=
for argument in "$@"; do
    [ "$previous" = "--data" ] && data=$argument
    case $argument in --data=*) data=${argument#--data=} ;; esac
    previous=$argument
done

"$exacat" serve "$@" &
server=$!
trap 'kill -TERM "$server" 2>/dev/null; wait "$server"; exit' INT TERM

export EXACAT_SERVER="unix:$data/exacat.sock"
ready=
for _ in $(seq 200); do
    if "$exacat" whoami >/dev/null 2>&1; then ready=yes; break; fi
    kill -0 "$server" 2>/dev/null || { wait "$server"; exit 1; }
    sleep 0.05
done
[ -n "$ready" ] || { echo "exacat: the server does not answer on $EXACAT_SERVER" >&2; kill -TERM "$server"; exit 1; }

if ! "$exacat" stat /demo >/dev/null 2>&1; then
    echo "A first start: loading a generated sample catalogue below /demo." >&2
    "$exacat" generate --entries 100000
fi

cat >&2 <<EOF

exacat serves a catalogue from $data. In another terminal, try:

  export PATH=$(dirname "$(realpath "$exacat")"):\$PATH EXACAT_SERVER=$EXACAT_SERVER
  exacat ls -l /demo
  exacat du -H /demo
  exacat find /demo 'AOD*.root' --size +1G
  exacat find /demo --tag 'year=2026 and type=raw'
  exacat whereis \$(exacat find /demo '*.root' --limit 1)
  exacat se usage
  exacat status
  exacat --help
  exacat find --help

Ctrl-C stops the service; what is in it stays.
EOF
wait "$server"
