#!/usr/bin/env python3
"""`make bench-follower`: the lag of a follower under load, how fast it catches up, and what a standby costs.

Usage: bench-follower.py EXACAT-BINARY [--files N] [--rounds N]

Source, follower and load share the machine. The load imports N files, each one change with a checksum and a replica.

lag       how long the follower lacks changes while the load runs, asked every 20 ms as its users see it
under     lag and first copy of a follower of one directory, which has all changes or none
catch up  the follower is stopped for an import and started again: changes a second until it lacks none
standby   time of one directory after the other, made over one HTTP connection: with a follower that the source
          waits for, with one that it does not wait for, and alone; the three take turns
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from clients_rig import Failed, expect, say, wait_until
from writer_rig import Process, cpu_seconds

SE = "se.example.org"
LONGEST = 900
HTTP = ["--http-plain", "--log", "warn"]
SAMPLE_EVERY = 0.02
MADE = 1000


class Server:
    """A source or a follower."""

    def __init__(self, bench, name, words, source=None):
        self.place = bench.place / name
        self.data = self.place / "data"
        self.place.mkdir(exist_ok=True)
        self.bench, self.name = bench, name
        self.environment = {**os.environ, "EXACAT_DATA": str(self.data)}
        listen = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        self.process = Process(name, [bench.exacat, "--json", *words, *listen, *HTTP], self.place, environment=self.environment)
        self.http = self.process.announced(LONGEST)["http"].split("//")[-1]
        self.connection = http.client.HTTPConnection(self.http, timeout=60)
        # The accounts of a follower are those of its source.
        self.token = source.token if source else (self.data / "admin.token").read_text().strip()
        bench.running.append(self)

    def asks(self, path, method="GET"):
        """Headers and body of an answer."""
        self.connection.request(method, path, headers={"Authorization": f"Bearer {self.token}"})
        answer = self.connection.getresponse()
        body = answer.read()
        expect(f"{method} {path} of {self.name}: {answer.status} {body[:500]}", answer.status < 300)
        return answer.headers, body

    def revision(self):
        return json.loads(self.asks("/api/v1/position")[1])["revision"]

    def behind(self):
        """Milliseconds and changes that a follower lacks."""
        headers = self.asks("/api/v1/position")[0]
        return int(headers["exacat-behind-ms"]), int(headers["exacat-behind"])

    def cpu(self):
        return cpu_seconds(self.process.pid)

    def run(self, *words):
        command = [self.bench.exacat, *map(str, words)]
        done = subprocess.run(command, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=LONGEST)
        expect(f"exacat {' '.join(map(str, words))}", done.returncode == 0, done.stderr[-2000:])

    def stop(self):
        self.process.stop()


class Bench:
    def __init__(self, exacat, place):
        self.exacat, self.place, self.listings = exacat, pathlib.Path(place), 0
        self.running = []

    def source(self, name, *words):
        return Server(self, name, ["serve", *words])

    def follower(self, name, source, *more):
        words = ["follow", f"http://{source.http}", "--token-file", str(source.data / "admin.token"), *more]
        return Server(self, name, words, source)

    def listing(self, files):
        """Writes a listing of new files."""
        self.listings += 1
        path = self.place / "files.tsv"
        with open(path, "w") as out:
            for number in range(files):
                lfn = f"/mc26/{self.listings}/{number // 1000:06}/AOD.{number:09}.pool.root"
                out.write(f"{lfn}\t{number}\tadler32:{number + 1:08x}\troot://{SE}//data/rucio{lfn}\n")
        return ["import", path, "--columns", "lfn,size,checksum,pfn", "--se-auto", "--state", "none"]

    def lag(self, source, follower, files):
        """Imports while the follower follows. Returns changes a second, lags in ms, and CPU microseconds of a change."""
        words = [self.exacat, *map(str, self.listing(files))]
        before, began = source.revision(), time.monotonic()
        used = source.cpu(), follower.cpu()
        load = subprocess.Popen(words, env=source.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        lags = []
        while load.poll() is None:
            lags.append(follower.behind()[0])
            time.sleep(SAMPLE_EVERY)
        took = time.monotonic() - began
        expect("the load ends well", load.returncode == 0, load.stderr.read()[-2000:])
        changes = source.revision() - before
        wait_until("the follower has everything", lambda: follower.revision() == source.revision(), LONGEST)
        cpu = [(now.cpu() - then) / changes * 1e6 for now, then in zip((source, follower), used)]
        return changes / took, lags, cpu

    def lags(self, title, source, follower, files):
        """Measures the lag, shows it, and returns changes a second."""
        rate, lags, cpu = self.lag(source, follower, files)
        row = "".join(f" {one:6} ms" for one in (percentile(lags, 0.5), percentile(lags, 0.99), max(lags)))
        say(f"{title:18} {rate:10.0f}{row} {cpu[0]:9.2f} + {cpu[1]:.2f}")
        return rate

    def copies_rows(self, source, name, under):
        """Starts a follower of a directory. Returns seconds until it has its rows."""
        began = time.monotonic()
        follower = self.follower(name, source, "--under", under)
        wait_until("the follower has everything", lambda: follower.revision() == source.revision(), LONGEST)
        return time.monotonic() - began, follower

    def catches_up(self, source, name, files):
        """Starts a follower that lacks the changes of an import. Returns changes a second from its start on."""
        before = source.revision()
        source.run(*self.listing(files))
        changes = source.revision() - before
        began = time.monotonic()
        follower = self.follower(name, source)
        wait_until("the follower has everything", lambda: follower.revision() == source.revision(), LONGEST)
        return changes / (time.monotonic() - began), follower

    def made(self, source, top):
        """Milliseconds for each of some directories, one after the other."""
        source.asks(f"/dav/{top}", "MKCOL")
        times = []
        for number in range(MADE):
            began = time.perf_counter()
            source.asks(f"/dav/{top}/{number}", "MKCOL")
            times.append((time.perf_counter() - began) * 1e3)
        return times


def percentile(values, part):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exacat")
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(os.path.realpath(asked.exacat), place)
        try:
            say(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; {asked.files} files a round\n")
            source = bench.source("source")
            follower = bench.follower("follower", source)
            say(f"{'':18} {'changes/s':>10} {'lag p50':>9} {'p99':>9} {'longest':>9} {'CPU us/change':>20}")
            rounds = range(asked.rounds)
            rates = [bench.lags(f"lag, round {number + 1}", source, follower, asked.files) for number in rounds]
            follower.stop()
            source.run("mkdir", "/else")
            seconds = []
            for under in ("/mc26", "/else"):
                took, filtered = bench.copies_rows(source, f"under{under.replace('/', '-')}", under)
                seconds.append(took)
                bench.lags(f"under {under}", source, filtered, asked.files)
                filtered.stop()
            say(f"\n{'first copy of rows':18} {asked.rounds * asked.files / seconds[0]:10.0f} rows/s")
            follower = bench.follower("follower", source)
            wait_until("the follower has everything", lambda: follower.revision() == source.revision(), LONGEST)
            speeds = []
            for _ in range(asked.rounds):
                follower.stop()
                speed, follower = bench.catches_up(source, "follower", asked.files)
                speeds.append(speed)
            speed, rate = statistics.median(speeds), statistics.median(rates)
            say(f"{'catch up':18} {speed:10.0f} changes/s, {speed / rate:.1f} times the rate of the load beside a follower")
            follower.stop()
            source.stop()

            waiting = bench.source("waiting", "--standby-acks", "1", "--standby-go-on", "30s")
            standby = bench.follower("standby", waiting)
            plain = bench.source("plain")
            beside = bench.follower("beside", plain)
            alone = bench.source("alone")
            kinds = {"alone": alone, "with a follower": plain, "with a standby": waiting}
            times = {kind: [] for kind in kinds}
            for number in range(asked.rounds):
                for kind, server in kinds.items():
                    times[kind].append(bench.made(server, f"d{number}"))
            say(f"\n{'one change':18} {'p50':>9} {'p99':>9}   (HTTP, {MADE} a round)")
            for kind, rounds in times.items():
                middle = [statistics.median(percentile(one, part) for one in rounds) for part in (0.5, 0.99)]
                say(f"{kind:18} {middle[0]:6.2f} ms {middle[1]:6.2f} ms")
            for server in (standby, beside):
                server.stop()
        finally:
            for server in bench.running:
                with contextlib.suppress(Exception):
                    server.process.kill()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as why:
        sys.exit(f"bench-follower: {why}")
