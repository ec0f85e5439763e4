#!/usr/bin/env bash
# `make demo-replay`: a generated trace, its files in a catalogue, an origin without disk, a cache, two agents
# that read through it, and the report of clients, cache and origin side by side. Everything runs on this
# machine, in a directory that is removed; only the page with the report stays.
# Usage: demo-replay.sh EXACAT [PAGE.html]
set -euo pipefail

exacat=$(realpath "$1")
page=${2:-$(mktemp --suffix=.html -t exacat-replay-XXXXXX)}
page=$(realpath "$page")
place=$(mktemp -d -t exacat-demo-XXXXXX)
pids=()
say() { echo; echo "== $*"; }
# Prints a command as a person would type it, and runs it.
show() { echo "\$ exacat $*"; "$exacat" "$@"; }
fail() { echo "demo-replay: $*" >&2; tail -n 5 "$place"/*.log >&2; exit 1; }
end() {
    local pid turn
    for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
    for turn in $(seq 100); do
        if [ -z "$(jobs -rp)" ]; then break; fi
        sleep 0.1
    done
    # Those that do not end in order.
    for pid in $(jobs -rp); do kill -KILL "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$place"
    # There is no report if the demonstration did not come that far.
    if [ ! -s "$page" ]; then rm -f "$page"; fi
}
trap end EXIT
trap 'exit 130' INT TERM
# Waits for a condition: what it is, then a command.
await() {
    local what=$1 turn; shift
    for turn in $(seq 300); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done
    fail "$what: not within 30 s"
}
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
listens() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
# Starts a service of exacat: name, then its words. It prints a line of JSON when it serves.
start() {
    local name=$1; shift
    echo "\$ exacat $*"
    "$exacat" --json "$@" >"$place/$name.out" 2>"$place/$name.log" &
    pids+=($!)
    await "$name serves" test -s "$place/$name.out"
}
told() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$place/$1.out" "$2"; }
# Nothing is read from or left in the directories of the caller.
export EXACAT_DATA=$place/catalogue EXACAT_SERVER=unix:$place/catalogue/exacat.sock

say "a trace of one day, and what it asks of a cache"
trace=$place/day.trace
show replay generate --out "$trace" --files 1500 --accesses 5000 --days 1 --size 300kB --seed 21 --below /demo/data
show replay show "$trace" --cache 100MB --cache 10GB

say "an origin that has the files of the trace by name and size only: 20 ms to open, 200 MB/s"
origin_port=$(free_port)
start origin replay origin --trace "$trace" --listen "127.0.0.1:$origin_port" --control 127.0.0.1:0 \
    --open-delay 20ms --bandwidth 200MB

say "a catalogue with these files: size, checksum, and the place at the origin"
catalogue_port=$(free_port)
"$exacat" serve --listen none --xrootd "127.0.0.1:$catalogue_port" --xrootd-name 127.0.0.1 >"$place/catalogue.log" 2>&1 &
pids+=($!)
await "the catalogue answers" "$exacat" whoami
prefix=root://127.0.0.1:$origin_port
show se add DEMO::ORIGIN --prefix "$prefix"
awk -F'\t' -v prefix="$prefix" 'BEGIN { OFS = "\t"; print "lfn", "size", "checksum", "pfn" }
    !/^#/ && !seen[$2]++ { print $2, $3, "adler32:" $4, prefix "/" $2 }' "$trace" >"$place/files.tsv"
show import "$place/files.tsv" --se DEMO::ORIGIN
show whereis "$(sed -n '2s/\t.*//p' "$place/files.tsv")"
# The cache shows no token: the catalogue knows it by its address.
show user add cache --subject host:127.0.0.1

say "the replay service; it takes the records of the cache, and asks the origin for its counters"
start service replay serve --trace "$trace" --runs "$place/runs" --listen 127.0.0.1:0 --collect 127.0.0.1:0 \
    --origin "$(told origin control)"
EXACAT_REPLAY=$(told service url)
export EXACAT_REPLAY

say "a cache"
library=
for file in /usr/lib/*/libXrdPfc-5.so /usr/lib64/libXrdPfc-5.so; do
    if [ -e "$file" ]; then library=$file; fi
done
if command -v xrootd >/dev/null && [ -n "$library" ]; then
    cache_port=$(free_port)
    mkdir -p "$place"/xcache/{ns,data,meta,admin}
    cat >"$place/xcache/xcache.cf" <<CONFIG
xrd.port $cache_port
all.role server
all.sitename DEMO
all.export /demo
all.adminpath $place/xcache/admin
all.pidpath $place/xcache/admin
oss.localroot $place/xcache/ns
oss.space data $place/xcache/data
oss.space meta $place/xcache/meta
ofs.osslib libXrdPss.so
pss.cachelib libXrdPfc.so
pss.origin 127.0.0.1:$catalogue_port
pfc.spaces data meta
pfc.ram 1g
pfc.blocksize 256k
pfc.prefetch 0
pfc.diskusage 0.98 0.99
xrootd.async off
xrootd.mongstream pfc use flush 2s maxlen 1500 send json insthdr $(told service collect)
xrd.report $(told service collect) every 2s all
CONFIG
    as=()
    if [ "$(id -u)" -eq 0 ]; then
        # It does not run as root.
        chmod 711 "$place" && chown -R nobody "$place/xcache"
        as=(setpriv --reuid nobody --regid nogroup --clear-groups)
    fi
    (cd "$place/xcache" && exec "${as[@]}" xrootd -c xcache.cf -l "$place/xcache/log" -n demo) >"$place/xcache.log" 2>&1 &
    pids+=($!)
    await "the XCache listens" listens "$cache_port"
    cache=root://127.0.0.1:$cache_port
    echo "XCache $(xrootd -v 2>&1) at $cache; its misses ask the catalogue, which sends them to the origin"
    run_options=(--cache-size 10GB --block 256KiB)
else
    cache=root://127.0.0.1:$origin_port
    echo "NO CACHE: xrootd with libXrdPfc is not installed (Debian: xrootd-server xrootd-server-plugins)."
    echo "The agents read straight from the origin: the report has no records of a cache, and no hits."
    run_options=()
fi

say "a run: the day in 30 s"
show replay run create demo --speed 2880 "${run_options[@]}"

say "two agents"
agents=()
for number in 1 2; do
    echo "\$ exacat replay agent --run demo --cache $cache --name agent$number --in-flight 32"
    "$exacat" --json replay agent --run demo --cache "$cache" --name "agent$number" --in-flight 32 \
        >"$place/agent$number.out" 2>"$place/agent$number.log" &
    agents+=($!)
    pids+=($!)
done
show replay run start demo >"$place/start.log"
echo "\$ exacat replay run start demo"
echo "\$ exacat replay run wait demo"
timeout 100 "$exacat" replay run wait demo || fail "the run does not end well"
for number in 0 1; do wait "${agents[$number]}" || fail "agent $((number + 1)) failed"; done

if [ "$cache" != "root://127.0.0.1:$origin_port" ]; then
    say "the last records of the cache: it closes files up to 30 s after their clients did"
    # Share of the bytes of clients that are in records, in percent.
    recorded() {
        "$exacat" --json replay report demo | python3 -c 'import json, sys
report = json.load(sys.stdin)
told = sum(cache["bytes_hit"] + cache["bytes_miss"] + cache["bytes_bypass"] for cache in report["cache_records"])
print(100 * told // max(1, report["totals"]["bytes"]))'
    }
    for turn in $(seq 45); do
        if [ "$(recorded)" -ge 99 ]; then break; fi
        sleep 1
    done
    echo "records have $(recorded) % of the bytes that came to clients, after $turn s"
fi

say "the report: clients, cache and origin, side by side"
show replay report demo --html "$page"
say "the same as a page: $page"
if [ -n "${DISPLAY:-}" ] && command -v xdg-open >/dev/null; then
    xdg-open "$page" >/dev/null 2>&1 || true
fi
