#!/usr/bin/env bash
# `make run`: builds the program, and starts the service on the embedded default, with something in it to try the
# first time. Says each step, and the time that it took.
# Usage: run.sh [serve options]. Ctrl-C stops it.
set -euo pipefail
cd "$(dirname "$0")/.."

exacat=target/release/exacat
say() { echo "exacat: $*" >&2; }
# Milliseconds since the Epoch.
now() { date +%s%3N; }
seconds_since() { awk -v from="$1" -v to="$(now)" 'BEGIN { printf "%.1f s", (to - from) / 1000 }'; }

if [ -x "$exacat" ]; then
    say "1 of 3: building what changed"
else
    say "1 of 3: building; the first time takes about 9 minutes on two cores"
fi
begun=$(now)
"${CARGO:-cargo}" build --release --locked -p exacat-cli
say "1 of 3: built in $(seconds_since "$begun")"
data=${XDG_DATA_HOME:-$HOME/.local/share}/exacat
previous=
# The history of elements too, unless the options say where everything is.
history=--history
for argument in "$@"; do
    [ "$previous" = "--data" ] && data=$argument
    case $argument in
    --data=*) data=${argument#--data=} ;;
    --history | --snapshot* | --store*) history= ;;
    esac
    previous=$argument
done

say "2 of 3: starting the service on $data"
begun=$(now)
"$exacat" serve $history "$@" &
server=$!
trap 'kill -TERM "$server" 2>/dev/null; wait "$server"; exit' INT TERM

export EXACAT_SERVER="unix:$data/exacat.sock"
ready=
for _ in $(seq 200); do
    if "$exacat" whoami >/dev/null 2>&1; then ready=yes; break; fi
    kill -0 "$server" 2>/dev/null || { wait "$server"; exit 1; }
    sleep 0.05
done
[ -n "$ready" ] || { say "the server does not answer on $EXACAT_SERVER"; kill -TERM "$server"; exit 1; }
say "2 of 3: answers after $(seconds_since "$begun")"

if ! "$exacat" stat /demo >/dev/null 2>&1; then
    say "3 of 3: a first start: loading a sample catalogue of 100000 entries below /demo"
    begun=$(now)
    "$exacat" generate --entries 100000
    say "3 of 3: loaded in $(seconds_since "$begun")"
else
    say "3 of 3: the sample catalogue below /demo is there"
fi

if [ -n "$history" ] && ! "$exacat" history stat demo >/dev/null 2>&1; then
    # Two hours of a voltage, a temperature and a state, a value each 10 s.
    awk -v now="$(date +%s)" 'BEGIN {
        print "element,time,v:float"
        for (at = now - 7200; at < now; at += 10) {
            printf "demo/hv1.vMon,%d,%.2f\n", at, 829 + sin(at / 600) * 3
            printf "demo/crate1.temperature,%d,%.1f\n", at, 31 + cos(at / 1800)
            printf "demo/hv1.state,%d,%d\n", at, at % 3600 > 600
        }
    }' | { "$exacat" history set demo && "$exacat" history import --format csv demo -; }
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
  exacat history latest 'demo:*'
  exacat history get demo:demo/hv1.vMon --from '1h ago' --every 10m
  exacat status
  exacat --help
  exacat find --help

Ctrl-C stops the service; what is in it stays.
EOF
wait "$server"
