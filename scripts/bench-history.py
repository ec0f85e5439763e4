#!/usr/bin/env python3
"""`make bench-history`: durable values of elements a second, exacat beside its peers, in one run.

Usage: bench-history.py EXACAT GENERATOR [--peers] [options]
       bench-history.py EXACAT GENERATOR --steady SECONDS [--elements N …]
       bench-history.py EXACAT GENERATOR --large ROWS [--elements N …]
       bench-history.py EXACAT GENERATOR --experiment
       bench-history.py EXACAT GENERATOR --stored [--rows N] [--elements N …]

Each server starts with an empty directory. The same generator sends the same rows to each: first new elements, then
known ones. CPU is that of a row, in the server and in the generator. LATEST and RANGE are medians of reads of one
element after that: its last value, and 300 rows of it. BYTES are those on disk for each row once the server has stopped.

--peers       InfluxDB 1.8.10, VictoriaMetrics 1.122.0 (built with Go) and PostgreSQL. What is missing is named.
--steady      150000 rows a second, at the time of now, with 100 reads of a latest value and 10 of a range a second.
--large       so many rows in one run, with figures at each power of ten from a million on.
--stored      the figures of the stored forms alone, which also end a run beside the peers: the start after
              `kill -9` with all rows in the log, bytes a row after merging with the files of names and latest
              values, and the rate and the size of the archive.
--experiment  the steps by which a database of control values went from 100 to 150000 changes a second (single values,
              bulk, a partition for each client, space made ahead), each with its top waits.
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
POSTGRESQL = pathlib.Path("/usr/lib/postgresql")
# Longest build of a peer, and longest run of the generator.
BUILD_SECONDS, RUN_SECONDS = 1800, 14400
# Reads at each mark.
READS = 500


def bytes_below(directory):
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


class Server:
    """A server in a directory of its own."""

    reader, user = "influx", None

    def __init__(self, name, promise, place):
        self.name, self.promise, self.place, self.port = name, promise, place, free_port()
        self.token = None

    def start(self, command, environment=None, answers=None):
        self.log = open(self.place / "log", "wb")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, user=self.user,
                                        env={**os.environ, **(environment or {})})

        def is_up():
            expect(self.name, self.process.poll() is None, f"it ended: {(self.place / 'log').read_text()[-500:]}")
            try:
                return answers() if answers else self.answers()
            except OSError:
                return False

        wait_until(f"{self.name} answers", is_up)

    def answers(self):
        return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ping", timeout=5).status in (200, 204)

    def address(self):
        return ["--url", f"http://127.0.0.1:{self.port}", "--reader", self.reader]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(300)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


def exacat(program, place, options=()):
    server = Server("exacat", "after fdatasync", place)
    server.data, server.reader = place / "data", "rest"
    server.start([program, "--data", str(server.data), "serve", "--listen", "none", "--http", f"127.0.0.1:{server.port}",
                  "--http-plain", "--history", *options])
    token = subprocess.run([program, "--data", str(server.data), "--json", "token", "issue", "--write", "--lifetime", "1d"],
                           capture_output=True, text=True, timeout=60)
    expect("token issue", token.returncode == 0, token.stderr)
    server.token = json.loads(token.stdout)["secret"]
    server.directory = server.data / "history"
    return server


def influxdb(program, place):
    server = Server("InfluxDB 1.8.10", "after fsync", place)
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
    server = Server("VictoriaMetrics", "before the disk: up to 5 s are lost", place)
    server.directory, server.reader = place / "data", "victoria"
    # A search sees rows that are older than the latency offset only, which is no time of the reads.
    server.start([program, f"-storageDataPath={server.directory}", f"-httpListenAddr=127.0.0.1:{server.port}",
                  "-retentionPeriod=10y", "-search.latencyOffset=0s"])
    return server


def postgresql(programs, place):
    server = Server("PostgreSQL 15", "after fdatasync; takes numbers, not names; a retry doubles rows", place)
    server.directory = place / "data"
    if os.geteuid() == 0:
        # It refuses to run as root.
        server.user = "postgres"
        shutil.chown(place, "postgres")
    done = subprocess.run([programs / "initdb", "-D", server.directory, "-A", "trust", "-U", "postgres"], user=server.user,
                          capture_output=True, text=True, timeout=120)
    expect("initdb", done.returncode == 0, done.stderr)
    settings = {"port": server.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": place,
                "shared_buffers": "1GB", "max_wal_size": "8GB", "max_connections": 100}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]

    def ask(database, statement):
        return subprocess.run(["psql", "-X", "-q", "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", database, "-c",
                               statement], capture_output=True, text=True, timeout=60)

    server.start([programs / "postgres", "-D", server.directory, *options],
                 answers=lambda: ask("postgres", "SELECT 1").returncode == 0)
    made = [ask("postgres", "CREATE DATABASE bench"),
            ask("bench", "CREATE TABLE ev (e int, t bigint, v float8, q int); CREATE INDEX ON ev (e, t)")]
    expect("the table", all(one.returncode == 0 for one in made), made[-1].stderr)
    server.address = lambda: ["--sql", f"127.0.0.1:{server.port}"]
    return server


def peers(place):
    """Finds or builds the peers, and says which one is left out and why."""
    found = []
    go = shutil.which("go")
    if go is None:
        say("left out: InfluxDB and VictoriaMetrics: there is no go")
    else:
        place.mkdir(parents=True, exist_ok=True)
        found += built(go, place)
    versions = sorted(POSTGRESQL.glob("*/bin"), key=lambda path: int(path.parent.name))
    if versions and shutil.which("psql"):
        found.append((postgresql, versions[-1]))
    else:
        say("left out: PostgreSQL: it is not installed")
    return found


def built(go, place):
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


def generated(server, generator, options, each=None):
    """Runs the generator against a server. Returns its figures; calls `each` with each as it comes."""
    environment = {**os.environ, **({"EXACAT_TOKEN": server.token} if server.token else {})}
    command = [generator, "--json", *server.address(), "--pid", str(server.process.pid), *map(str, options)]
    parts = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as running:
        for line in running.stdout:
            parts.append(json.loads(line))
            if each:
                each(parts[-1])
        errors = running.stderr.read()
    expect(f"the generator against {server.name}", running.returncode == 0, errors[-2000:])
    return parts


def on_server(start, program, work, options=()):
    """Runs `work` on a new server. Returns the server, the result, and the bytes on disk after its stop."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="exacat-history-"))
    try:
        server = start(program, place, options) if options else start(program, place)
        try:
            result = work(server)
        finally:
            server.stop()
        return server, result, bytes_below(server.directory)
    finally:
        shutil.rmtree(place, ignore_errors=True)


HEAD = (f"{'SERVER':<16}{'ROWS':<8}{'K ROWS/S':>8}{'CPU US':>11}{'P99 MS':>7}{'MAX MS':>7}{'LATEST':>8}{'RANGE':>7}"
        f"{'BYTES':>6}{'MIB':>6}")


def line(name, what, part, size=None):
    reads = (f"{part['latest_p50_ms']:>8.2f}{part['range_p50_ms']:>7.2f}" if "latest_p50_ms" in part else " " * 15)
    return (f"{name:<16}{what:<8}{part['rows_s'] / 1000:>8.1f}{part['server_us']:>6.2f}+{part['generator_us']:>4.2f}"
            f"{part['p99_ms']:>7.0f}{part['max_ms']:>7.0f}{reads}{'' if size is None else f'{size:.1f}':>6}{part['memory_mib']:>6}")


def median_of(parts):
    return {key: statistics.median(part[key] for part in parts) for key in parts[0] if key != "what"}


def compare(asked):
    """The table of all servers."""
    servers = [(exacat, asked.exacat)] + (peers(pathlib.Path("target/peers").resolve()) if asked.peers else [])
    for elements in asked.elements:
        options = ["--elements", elements, "--rows", asked.rows, "--batch", asked.batch, "--connections", asked.connections,
                   "--reads", READS]
        say(f"\n{asked.rows} rows of {elements} elements, batches of {asked.batch}, {asked.connections} connections, "
            f"median of {asked.rounds}")
        say(HEAD)
        taken = {}
        for _ in range(asked.rounds):
            # In turns, so that a slow minute of the machine meets all of them.
            for start, program in servers:
                server, parts, size = on_server(start, program, lambda one: generated(one, asked.generator, options))
                taken.setdefault(server.name, (server.promise, []))[1].append((parts, size))
        for name, (_, rounds) in taken.items():
            for number, part in enumerate(rounds[0][0]):
                size = statistics.median(size for _, size in rounds) / asked.rows
                say(line(name, part["what"].split()[0], median_of([parts[number] for parts, _ in rounds]),
                         size if number == len(rounds[0][0]) - 1 else None))
        for name, (promise, _) in taken.items():
            say(f"{name}: answers {promise}.")


def steady(asked):
    """A long run at a fixed rate."""
    for elements in asked.elements:
        say(f"\n{asked.rate} rows/s of {elements} elements for {asked.steady} s, {asked.connections} connections, batches of "
            f"{asked.batch}; 100 latest values and 10 ranges a second; times from the planned moment")
        say(f"{'TENTH':<7}{'K ROWS/S':>9}{'SERVER':>8}{'P50 MS':>8}{'P99 MS':>8}{'MAX MS':>8}{'LATEST P50':>12}{'P99':>7}{'RANGE P50':>11}{'P99':>8}{'MIB':>6}")

        def show(part):
            share = part["server_us"] * part["rows_s"] / 1e6
            say(f"{part['what'].split()[1]:<7}{part['rows_s'] / 1000:>9.1f}{share:>6.0%} c{part['p50_ms']:>8.1f}{part['p99_ms']:>8.1f}{part['max_ms']:>8.0f}"
                f"{part['latest_p50_ms']:>12.2f}{part['latest_p99_ms']:>7.1f}{part['range_p50_ms']:>11.2f}{part['range_p99_ms']:>8.1f}{part['memory_mib']:>6}")

        options = ["--elements", elements, "--batch", asked.batch, "--connections", asked.connections, "--steady",
                   asked.steady, "--rate", asked.rate]
        _, parts, size = on_server(exacat, asked.exacat, lambda one: generated(one, asked.generator, options, show))
        rows = sum(part["rows"] for part in parts)
        refused = sum(part["refused"] for part in parts)
        say(f"{rows} rows, longest batch {max(part['max_ms'] for part in parts):.0f} ms, last tenth "
            f"{parts[-1]['rows_s'] / parts[0]['rows_s']:.1%} of the first, refused {refused}, {size / rows:.1f} bytes a row on disk")


def large(asked):
    """Many rows, with figures at each power of ten."""
    marks = []
    mark = 1_000_000
    while mark < asked.large:
        marks.append(mark)
        mark *= 10
    marks.append(asked.large)
    for elements in asked.elements:
        say(f"\n{asked.large} rows of {elements} elements, batches of {asked.batch}, {asked.connections} connections")
        say(HEAD)

        def show(part):
            say(line("exacat", f"{int(part['what'].split()[1]) / 1e6:.0f} M", part))

        # Each element has a row every 7 seconds, as in a steady run of a million.
        span = max(1, asked.large // elements) * 7
        options = ["--elements", elements, "--rows", asked.large, "--batch", asked.batch, "--connections", asked.connections,
                   "--reads", READS, "--span", span, "--marks", ",".join(map(str, marks))]
        _, parts, size = on_server(exacat, asked.exacat, lambda one: generated(one, asked.generator, options, show))
        say(f"{size / asked.large:.1f} bytes a row on disk after the stop, {size / 2**30:.1f} GiB, the kept log included")


def history_metrics(server):
    """Returns the metrics of the history by their names."""
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/metrics",
                                     headers={"Authorization": f"Bearer {server.token}"})
    lines = urllib.request.urlopen(request, timeout=30).read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("exacat_history_"))
    return {name: float(value) for name, value in pairs}


def thread_seconds(process, name):
    """Returns the processor time that the thread of this name has used so far."""
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    raise Failed(f"the server has no thread {name}")


def length_below(directory, ending=""):
    return sum(path.stat().st_size for path in directory.rglob(f"*{ending}") if path.is_file())


def stored(asked):
    """The start after a kill, and the sizes and rates of merged runs and of the archive."""
    say(f"\n{asked.rows} rows, batches of {asked.batch}, {asked.connections} connections")
    say(f"{'ELEMENTS':>9}{'START S':>9}{'RUNS':>6}{'BYTES A ROW':>13}{'ARCHIVE B A ROW':>17}{'M ROWS/S A CORE':>17}")
    for elements in asked.elements:
        place = pathlib.Path(tempfile.mkdtemp(prefix="exacat-history-"))
        try:
            def fill(server, span, elements=elements):
                generated(server, asked.generator, ["--elements", elements, "--rows", asked.rows, "--batch", asked.batch,
                                                    "--connections", asked.connections, "--span", span])

            # All rows are in the log and in memory only: a flush comes with 128 MiB of them.
            server = exacat(asked.exacat, place)
            fill(server, 3600)
            in_log = history_metrics(server)["exacat_history_rows_in_memory"]
            server.process.kill()
            server.process.wait()
            server.log.close()
            begun = time.monotonic()
            server = exacat(asked.exacat, place)
            start = time.monotonic() - begun
            expect("rows after the kill", history_metrics(server)["exacat_history_rows_in_memory"] >= in_log, "some are missing")
            # A stop writes a run. Rows of other times are in a second one, and the next start merges both.
            server.stop()
            server = exacat(asked.exacat, place)
            fill(server, 3601)
            server.stop()
            server = exacat(asked.exacat, place)
            wait_until("the runs of the day are merged", lambda: history_metrics(server)["exacat_history_runs"] == 1,
                       RUN_SECONDS)
            metrics = history_metrics(server)
            server.stop()
            size = length_below(server.directory / "files") / metrics["exacat_history_run_rows"]
            archive = place / "archive"
            server = exacat(asked.exacat, place, ["--history-archive", str(archive), "--history-archive-after", "1"])
            used = thread_seconds(server.process, "exacat-hist-arc")
            wait_until("the day is archived", lambda: history_metrics(server)["exacat_history_archived_rows_total"] > 0,
                       RUN_SECONDS)
            used = thread_seconds(server.process, "exacat-hist-arc") - used
            rows = history_metrics(server)["exacat_history_archived_rows_total"]
            server.stop()
            say(f"{elements:>9}{start:>9.2f}{metrics['exacat_history_runs']:>6.0f}{size:>13.2f}"
                f"{length_below(archive, '.parquet') / rows:>17.2f}{rows / used / 1e6:>17.2f}")
        finally:
            shutil.rmtree(place, ignore_errors=True)


# Steps of the experiment: title, clients, rows of a request, rows, options of generator and server.
LATE = ("--no-history-preallocation",)
STEPS = (
    ("single values, one client", 1, 1, 20_000, (), LATE),
    ("single values", 50, 1, 200_000, (), LATE),
    ("bulk, one client", 1, 1000, 3_000_000, (), LATE),
    ("bulk", 50, 1000, 10_000_000, (), LATE),
    ("a group for each client", 50, 1000, 10_000_000, ("--partition",), LATE),
    ("space made ahead", 50, 1000, 10_000_000, ("--partition",), ()),
)


def experiment(asked):
    """The steps of the experiment, with the top waits of each."""
    say(f"{'STEP':<26}{'CLIENTS':>7}{'BATCH':>6}{'ROWS/S':>9}{'P50 MS':>8}{'MAX MS':>7}  TOP WAITS OF THE WRITES")
    for title, clients, batch, rows, more, options in STEPS:

        def work(server, clients=clients, batch=batch, rows=rows, more=more):
            known = generated(server, asked.generator, ["--elements", 10_000, "--rows", rows, "--batch", batch, "--connections",
                                                        clients, *more])[-1]
            # The server keeps its activity each second.
            time.sleep(2)
            report = subprocess.run([asked.exacat, "--data", str(server.data), "--json", "report", "--from", "1h"],
                                    capture_output=True, text=True, timeout=60)
            expect("report", report.returncode == 0, report.stderr)
            return known, json.loads(report.stdout)["states"]

        _, (known, states), _ = on_server(exacat, asked.exacat, work, options)
        total = sum(state["time_us"] for state in states)
        top = sorted(states, key=lambda state: -state["time_us"])[:3]
        waits = ", ".join(f"{state['state']} {state['time_us'] / total:.0%}" for state in top)
        say(f"{title:<26}{clients:>7}{batch:>6}{known['rows_s']:>9.0f}{known['p50_ms']:>8.1f}{known['max_ms']:>7.0f}  {waits}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("exacat")
    arguments.add_argument("generator")
    arguments.add_argument("--rows", type=int, default=3_000_000)
    arguments.add_argument("--elements", type=int, nargs="*", default=[10_000, 1_000_000])
    arguments.add_argument("--batch", type=int, default=1000)
    arguments.add_argument("--connections", type=int, default=50)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--rate", type=int, default=150_000)
    arguments.add_argument("--peers", action="store_true")
    arguments.add_argument("--steady", type=int, metavar="SECONDS")
    arguments.add_argument("--large", type=int, metavar="ROWS")
    arguments.add_argument("--experiment", action="store_true")
    arguments.add_argument("--stored", action="store_true")
    asked = arguments.parse_args()
    if asked.steady:
        steady(asked)
    elif asked.large:
        large(asked)
    elif asked.experiment:
        experiment(asked)
    elif asked.stored:
        stored(asked)
    else:
        compare(asked)
        stored(asked)


if __name__ == "__main__":
    try:
        main()
    except Failed as why:
        sys.exit(f"bench-history: {why}")
