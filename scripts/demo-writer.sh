#!/usr/bin/env bash
# `make demo-writer`: the way of events from producers into the catalogue, with a producer and a service killed
# on the way, and from there to another storage element. Everything runs on this machine, in a directory that
# is removed.
# Usage: demo-writer.sh EXACAT [SECONDS]
set -euo pipefail

exacat=$(realpath "$1")
seconds=${2:-8}
place=$(mktemp -d -t exacat-demo-XXXXXX)
pids=()
say() { echo; echo "== $*"; }
# Prints a command as a person would type it, and runs it.
show() { echo "\$ exacat $*"; "$exacat" "$@"; }
fail() { echo "demo-writer: $*" >&2; tail -n 5 "$place"/*.log >&2; exit 1; }
end() {
    local pid
    for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$place"
}
trap end EXIT
trap 'exit 130' INT TERM
# Waits for a condition: what it is, then a command.
await() {
    local what=$1 turn; shift
    for turn in $(seq 600); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    fail "$what: not within a minute"
}
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

say "a catalogue, an account for the producers, and a storage element for what the writer services have"
export EXACAT_SERVER=unix:$place/catalogue/exacat.sock EXACAT_DATA=$place/catalogue
"$exacat" --data "$place/catalogue" serve --listen none >"$place/catalogue.log" 2>&1 &
pids+=($!)
await "the catalogue answers" "$exacat" whoami
show user add daq
show mkdir -p /daq
show chown daq:daq /daq
show se add DEMO::DAQ::WRITER --prefix http://127.0.0.1/content
token=$("$exacat" token issue --user daq --write --lifetime 1h 2>/dev/null)

say "another storage element, for the copies"
if command -v xrootd >/dev/null && command -v xrdcp >/dev/null; then
    port=$(free_port)
    mkdir -p "$place/xrootd/files/data"
    printf '%s\n' "all.adminpath $place/xrootd" "all.pidpath $place/xrootd" "oss.localroot $place/xrootd/files" \
        "all.export /data" "xrd.port $port" >"$place/xrootd/xrootd.cf"
    as=()
    if [ "$(id -u)" -eq 0 ]; then
        # It does not run as root.
        chmod 755 "$place" && chown -R nobody "$place/xrootd"
        as=(setpriv --reuid nobody --regid nogroup --clear-groups)
    fi
    (cd "$place/xrootd" && exec "${as[@]}" xrootd -c "$place/xrootd/xrootd.cf" -l "$place/xrootd/log" -n demo) \
        >"$place/xrootd.log" 2>&1 &
    pids+=($!)
    await "xrootd listens" bash -c "</dev/tcp/127.0.0.1/$port"
    disk=root://127.0.0.1:$port//data
else
    echo "xrootd is not installed: a directory takes its place (Debian: xrootd-server xrootd-client)"
    mkdir -p "$place/disk"
    disk=file://$place/disk
fi
show se add DEMO::DISK --prefix "$disk"

say "two writer services; each knows the address of the other"
first=127.0.0.1:$(free_port) second=127.0.0.1:$(free_port)
first_http=127.0.0.1:$(free_port) second_http=127.0.0.1:$(free_port)
serve() { # number, address, address of HTTP, the other one
    echo "\$ exacat writer serve --volume volume$1 --se DEMO::DAQ::WRITER --listen $2 --http $3 --seeds $4 --stage-out DEMO::DISK --stage-prefix $disk"
    mkdir -p "$place/volume$1" "$place/data$1"
    # Each leaves its addresses in a data directory, as on machines of their own, and shows a token.
    EXACAT_DATA=$place/data$1 EXACAT_TOKEN=$(<"$place/catalogue/admin.token") "$exacat" --json writer serve \
        --volume "$place/volume$1" --se DEMO::DAQ::WRITER --listen "$2" --http "$3" \
        --seeds "$4" --stage-out DEMO::DISK --stage-prefix "$disk" --free-min 64MiB --memory 128MiB \
        >"$place/writer$1.out" 2>>"$place/writer$1.log" &
    service=$!
    pids+=("$service")
    await "service $1 listens" test -s "$place/writer$1.out"
}
serve 1 "$first" "$first_http" "$second"
killed_service=$service
serve 2 "$second" "$second_http" "$first"

say "four producers of runs 4711 and 4712, 1000 events a second each, for $seconds s"
producers=()
for number in 1 2 3 4; do
    run=4711
    # The one that will be killed has a run of its own: its open file stays uncertified.
    [ "$number" = 4 ] && run=4712
    EXACAT_TOKEN=$token "$exacat" --json writer produce --service "$first,$second" --below "/daq/$number" --run "$run" \
        --producers 1 --size 1KiB..60KiB --rate 1000 --events "$((seconds * 1000))" --file-bytes 8MB --memory 64MiB \
        >"$place/producer$number.out" 2>"$place/producer$number.log" &
    producers+=($!)
    pids+=($!)
done
echo "\$ exacat writer produce --service $first,$second --below /daq/1 --run 4711 --rate 1000 …"
certified() { [ "$("$exacat" find /daq -t f --tag "run=$1" | wc -l)" -ge "$2" ]; }
await "the first files are certified" certified 4711 2

say "kill -9 of producer 4, and of service 1; the producers go on with service 2"
kill -KILL "${producers[3]}" "$killed_service"
wait "${producers[3]}" "$killed_service" 2>/dev/null || true
count=$("$exacat" find /daq -t f --tag run=4711 | wc -l)
say "service 1 again, on the same volume"
serve 1 "$first" "$first_http" "$second"
for number in 0 1 2; do
    wait "${producers[$number]}" || fail "producer $((number + 1)) failed: $(cat "$place/producer$((number + 1)).log")"
done
for number in 1 2 3; do echo "producer $number: $(tail -n 1 "$place/producer$number.out")"; done
certified 4711 "$((count + 1))" || fail "no file was certified after the kill"

say "the files of the run, found by their tag; each has all its events, once"
show find /daq --tag run=4711 -t f
say "files of the killed producer that are not certified, and why"
show writer files --at "http://$first_http"
show writer files --at "http://$second_http"
show writer table --at "http://$second_http"

say "copied to the other storage element, verified, and registered there"
lfn=$("$exacat" find /daq -t f --tag run=4711 | head -n 1)
is_copied() { "$exacat" whereis "$lfn" | grep -q DEMO::DISK; }
await "$lfn is copied" is_copied
show whereis "$lfn"

say "read from there, and compared with the catalogue"
pfn=$("$exacat" --json whereis "$lfn" |
    python3 -c 'import json, sys; print(next(r["pfn"] for r in json.load(sys.stdin)["replicas"] if r["se"] == "DEMO::DISK"))')
case $pfn in
root:*) echo "\$ xrdcp $pfn back"; xrdcp -N -f "$pfn" "$place/back" ;;
*) cp "${pfn#file://}" "$place/back" ;;
esac
sum=$(python3 -c 'import sys, zlib; print(format(zlib.adler32(open(sys.argv[1], "rb").read()), "08x"))' "$place/back")
"$exacat" stat "$lfn" | grep -q "$sum" || fail "$lfn has another checksum than $sum"
echo "$(stat -c %s "$place/back") bytes with adler32 $sum, as the catalogue says"
