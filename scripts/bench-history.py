#!/usr/bin/env python3
"""`make bench-history`: durable values a second by InfluxDB's line protocol, exacat beside its peers, in one run.

Usage: bench-history.py EXACAT GENERATOR [--rows N] [--elements N …] [--rounds N] [--peers]

Each server starts with an empty directory. The same generator (bench-history) sends the same batches to each: first
new elements, then known ones. The table shows rate, CPU of server and generator per row, times of batches, bytes on
disk after the server has stopped, and what an answer promises. With --peers it builds InfluxDB 1.8.10 and VictoriaMetrics
1.122.0 with Go, where there is one; what cannot be built is left out and named.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from clients_rig import Failed, expect, free_port, say, wait_until

INFLUXDB = "github.com/influxdata/influxdb/cmd/influxd@v1.8.10"
VICTORIA = "github.com/VictoriaMetrics/VictoriaMetrics v1.122.0"
# Longest build of a peer, and longest run of the generator.
BUILD_SECONDS, RUN_SECONDS = 1800, 1800


def bytes_below(directory):
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


class Server:
    """A server in a directory of its own."""

    def __init__(self, name, promise, place):
        self.name, self.promise, self.place, self.port = name, promise, place, free_port()
        self.token = None

    def start(self, command, environment=None):
        self.log = open(self.place / "log", "wb")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        env={**os.environ, **(environment or {})})

        def answers():
            expect(self.name, self.process.poll() is None, "it ended: see its log")
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ping", timeout=5).status in (200, 204)
            except OSError:
                return False

        wait_until(f"{self.name} answers", answers)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def exacat(program, place):
    server = Server("exacat", "on disk (fdatasync)", place)
    data = place / "data"
    server.start([program, "--data", str(data), "serve", "--listen", "none", "--http", f"127.0.0.1:{server.port}",
                  "--http-plain", "--history"])
    token = subprocess.run([program, "--data", str(data), "--json", "token", "issue", "--write", "--lifetime", "1d"],
                           capture_output=True, text=True, timeout=60)
    expect("token issue", token.returncode == 0, token.stderr)
    server.token = json.loads(token.stdout)["secret"]
    server.directory = data / "history"
    return server


def influxdb(program, place):
    server = Server("InfluxDB 1.8.10", "on disk (fsync)", place)
    server.directory = place / "data"
    settings = {"INFLUXDB_META_DIR": str(place / "data/meta"), "INFLUXDB_DATA_DIR": str(place / "data/data"),
                "INFLUXDB_DATA_WAL_DIR": str(place / "data/wal"), "INFLUXDB_DATA_INDEX_VERSION": "tsi1",
                "INFLUXDB_DATA_WAL_FSYNC_DELAY": "0s", "INFLUXDB_DATA_MAX_SERIES_PER_DATABASE": "0",
                "INFLUXDB_DATA_MAX_VALUES_PER_TAG": "0", "INFLUXDB_REPORTING_DISABLED": "true",
                "INFLUXDB_HTTP_BIND_ADDRESS": f"127.0.0.1:{server.port}", "INFLUXDB_BIND_ADDRESS": f"127.0.0.1:{free_port()}",
                "INFLUXDB_HTTP_LOG_ENABLED": "false", "HOME": str(place)}
    server.start([program, "run"], settings)
    return server


def victoria(program, place):
    server = Server("VictoriaMetrics 1.122", "in memory: up to 5 s are lost", place)
    server.directory = place / "data"
    server.start([program, f"-storageDataPath={server.directory}", f"-httpListenAddr=127.0.0.1:{server.port}",
                  "-retentionPeriod=10y"])
    return server


def peers(place):
    """Builds the peers, or says why one is left out."""
    go = shutil.which("go")
    if go is None:
        say("left out: InfluxDB and VictoriaMetrics: there is no go")
        return []
    place.mkdir(parents=True, exist_ok=True)
    found = []
    influxd = place / "influxd"
    if not influxd.exists():
        done = subprocess.run([go, "install", INFLUXDB], env={**os.environ, "GOBIN": str(place)}, capture_output=True,
                              text=True, timeout=BUILD_SECONDS)
        if done.returncode != 0:
            say(f"left out: InfluxDB cannot be built: {done.stderr[-300:]}")
    if influxd.exists():
        found.append((influxdb, str(influxd)))
    metrics = place / "victoria-metrics"
    if not metrics.exists():
        module = place / "victoria"
        module.mkdir(exist_ok=True)
        (module / "go.mod").write_text(f"module peer\n\ngo 1.24\n\nrequire {VICTORIA}\n")
        build = "github.com/VictoriaMetrics/VictoriaMetrics/app/victoria-metrics"
        done = subprocess.run([go, "build", "-mod=mod", "-o", str(metrics), build], cwd=module, capture_output=True,
                              text=True, timeout=BUILD_SECONDS)
        if done.returncode != 0:
            say(f"left out: VictoriaMetrics cannot be built: {done.stderr[-300:]}")
    if metrics.exists():
        found.append((victoria, str(metrics)))
    return found


def measure(start, program, generator, asked, elements):
    place = pathlib.Path(tempfile.mkdtemp(prefix="exacat-history-"))
    try:
        server = start(program, place)
        try:
            environment = {**os.environ, **({"EXACAT_TOKEN": server.token} if server.token else {})}
            done = subprocess.run(
                [generator, "--json", "--url", f"http://127.0.0.1:{server.port}", "--pid", str(server.process.pid),
                 "--elements", str(elements), "--rows", str(asked.rows), "--batch", str(asked.batch),
                 "--connections", str(asked.connections)],
                capture_output=True, text=True, timeout=RUN_SECONDS, env=environment)
            expect(f"the generator against {server.name}", done.returncode == 0, done.stderr[-2000:])
            resident = int(next(line for line in pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
                                if line.startswith("VmRSS")).split()[1]) * 1024
        finally:
            server.stop()
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return server, rows, bytes_below(server.directory), resident
    finally:
        shutil.rmtree(place, ignore_errors=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("exacat")
    arguments.add_argument("generator")
    arguments.add_argument("--rows", type=int, default=3_000_000)
    arguments.add_argument("--elements", type=int, nargs="*", default=[10_000, 1_000_000])
    arguments.add_argument("--batch", type=int, default=1000)
    arguments.add_argument("--connections", type=int, default=50)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--peers", action="store_true")
    asked = arguments.parse_args()
    servers = [(exacat, asked.exacat)] + (peers(pathlib.Path("target/peers")) if asked.peers else [])
    for elements in asked.elements:
        say(f"\n{asked.rows} rows of {elements} elements, batches of {asked.batch}, {asked.connections} connections, "
            f"median of {asked.rounds}")
        say(f"{'SERVER':<22} {'ELEMENTS':<9} {'ROWS/S':>9} {'SERVER':>8} {'GENERATOR':>10} {'P99':>8} {'MAX':>9} "
            f"{'BYTES/ROW':>10} {'MEMORY':>8}  ANSWERED WHEN")
        taken = {}
        for _ in range(asked.rounds):
            # In turns, so that a slow minute of the machine meets all of them.
            for start, program in servers:
                server, rows, size, resident = measure(start, program, asked.generator, asked, elements)
                taken.setdefault(server.name, (server.promise, []))[1].append((rows, size, resident))
        for name, (promise, rounds) in taken.items():
            for part in range(len(rounds[0][0])):
                def median(key, part=part, rounds=rounds):
                    return statistics.median(rows[part][key] for rows, _, _ in rounds)
                what = rounds[0][0][part]["what"].split()[0]
                size = statistics.median(size for _, size, _ in rounds) / asked.rows
                memory = statistics.median(resident for _, _, resident in rounds) / 2**20
                last = part == len(rounds[0][0]) - 1
                say(f"{name:<22} {what:<9} {median('rows_s'):>9.0f} {median('server_us'):>5.2f} us {median('generator_us'):>7.2f} us "
                    f"{median('p99_ms'):>5.0f} ms {median('max_ms'):>6.0f} ms "
                    + (f"{size:>10.1f} {memory:>4.0f} MiB" if last else f"{'':>10} {'':>8}") + f"  {promise}")


if __name__ == "__main__":
    try:
        main()
    except Failed as why:
        sys.exit(f"bench-history: {why}")
