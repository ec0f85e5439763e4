#!/usr/bin/env python3
"""`make bench-feed`: changes that a feed delivers a second, and the server's processor time for each.

Usage: bench-feed.py EXACAT-BINARY [--files N] [--rounds N]

Imports N files through a server, each one change with a checksum and a replica, and lets feeds deliver them: the changes from
the start, and a copy of the entries, into a directory and to a webhook on loopback, which reads its requests and keeps
nothing. Figures are medians of all rounds. Every feed must have delivered as many events as there are files, or more.
"""

import argparse
import contextlib
import http.server
import json
import os
import pathlib
import shutil
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from clients_rig import Failed, expect, say, wait_until
from writer_rig import Process, cpu_seconds

SE = "se.example.org"
LONGEST = 900


def bytes_of(directory):
    """Bytes of all segments, also of the unfinished one; the manifest would grow when the last one ends."""
    total = 0
    for path in directory.glob("*-*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size
    return total


class Hook(http.server.BaseHTTPRequestHandler):
    """A webhook that takes everything."""

    protocol_version = "HTTP/1.1"
    received = 0

    def do_POST(self):
        size = int(self.headers["Content-Length"])
        while size > 0:
            part = len(self.rfile.read(min(size, 1 << 20)))
            Hook.received += part
            size -= part
        self.send_response(204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Hooks(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True


class Bench:
    def __init__(self, exacat, place):
        self.exacat, self.place = exacat, pathlib.Path(place)
        self.environment = {**os.environ, "EXACAT_DATA": str(self.place / "data")}
        self.server = Process("server", [exacat, "--json", "serve", "--listen", "127.0.0.1:0", "--log", "error"], self.place,
                              environment=self.environment)
        self.server.announced()

    def run(self, *words):
        done = subprocess.run([self.exacat, "--json", *map(str, words)], env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=LONGEST)
        expect(f"exacat {' '.join(map(str, words))}", done.returncode == 0, done.stderr[-2000:])
        return done.stdout

    def load(self, files):
        listing = self.place / "files.tsv"
        with open(listing, "w") as out:
            for number in range(files):
                lfn = f"/mc26/{number // 1000:06}/AOD.{number:09}.pool.root"
                out.write(f"{lfn}\t{number}\tadler32:{number + 1:08x}\troot://{SE}//data/rucio{lfn}\n")
        self.run("import", listing, "--columns", "lfn,size,checksum,pfn", "--se-auto", "--state", "none")

    def delivered(self, files, sink, size, *options):
        """Lets a feed deliver everything. Returns seconds to the last byte, CPU seconds, events, bytes."""
        before, began = cpu_seconds(self.server.pid), time.monotonic()
        self.run("feed", "create", "f", "--sink", sink, *options)
        had, last, used = size(), began, 0.0
        while True:
            time.sleep(0.05)
            now = time.monotonic()
            if size() > had:
                had, last, used = size(), now, cpu_seconds(self.server.pid) - before
            elif now > last + 1:
                # A last segment ends by its age, and counts as delivered then.
                feed = json.loads(self.run("feed", "show", "f"))
                expect("the feed runs", feed["state"] == "running" and now < began + LONGEST, feed)
                if feed["lag_changes"] == 0 and not feed["copying"]:
                    break
        expect(f"all events are delivered: {feed['events']}", feed["events"] >= files, feed)
        self.run("feed", "drop", "f")
        return last - began, used, feed["events"], had


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exacat")
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    hooks = Hooks(("127.0.0.1", 0), Hook)
    threading.Thread(target=hooks.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(os.path.realpath(asked.exacat), place)
        try:
            bench.load(asked.files)
            say(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; {asked.files} files; medians of {asked.rounds} rounds\n")
            say(f"{'':28} {'events/s':>10} {'CPU us/event':>13} {'bytes/event':>12}")
            hook = f"http://127.0.0.1:{hooks.server_address[1]}/"
            segments = bench.place / "segments"
            for name, options in (("changes", ["--from", "start"]), ("copy", ["--from", "copy"])):
                for sink, more in ((f"dir:{segments}", []), (hook, ["--allow-private"])):
                    rows = []
                    for _ in range(asked.rounds):
                        Hook.received = 0
                        size = (lambda: Hook.received) if more else lambda: bytes_of(segments)
                        took, used, events, size = bench.delivered(asked.files, sink, size, *options, *more)
                        rows.append((events / took, used / events * 1e6, size / events))
                        shutil.rmtree(segments, ignore_errors=True)
                    rate, cpu, size = (statistics.median(column) for column in zip(*rows))
                    to = "a webhook" if more else "a directory"
                    say(f"{f'{name}, to {to}':28} {rate:10.0f} {cpu:13.2f} {size:12.0f}")
        finally:
            bench.server.kill()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as why:
        sys.exit(f"bench-feed: {why}")
