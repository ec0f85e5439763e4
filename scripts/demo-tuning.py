#!/usr/bin/env python3
"""`make demo-tuning`: a load with four faults, removed one by one; the report names the top wait each time.

Usage: demo-tuning.py EXACAT-BINARY [--entries N] [--seconds N]

The faults: many searches of everything at once, files registered one by one, a cache that is too small, and another
program on the processors. At each step the script asks for the report of the last seconds, and fails if it names
another wait than the fault that dominates: as JSON, and as a person reads it, in the printed table or a finding. Server
and clients share the machine; times are therefore no benchmark.
"""

import argparse
import http.client
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

from clients_rig import Failed, expect, free_port, is_open, say, wait_until

SEARCHERS = 24
WRITERS = 6
READERS = 2
# Programs that take processors, and seconds of processor time that make a report believe it.
BURNERS = 6
BATCH = 500


class Load:
    """Clients that go on until they are told to stop."""

    def __init__(self, demo):
        self.demo, self.stop, self.failures, self.threads = demo, threading.Event(), [], []

    def start(self, count, work):
        for number in range(count):
            thread = threading.Thread(target=self.run, args=(work, number))
            thread.start()
            self.threads.append(thread)

    def run(self, work, number):
        try:
            with self.demo.connection() as connection:
                for turn in itertools.count():
                    if self.stop.is_set():
                        return
                    work(connection, number, turn)
        except Exception as why:
            self.failures.append(why)

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        if self.failures:
            raise Failed(f"a client failed: {self.failures[0]!r}")


class Connection:
    def __init__(self, port, token):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.token = token

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.close()

    def call(self, method, target, body=None, kind="application/json"):
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind, "Accept": kind}
        self.http.request(method, f"/api/v1{target}", body, headers)
        answer = self.http.getresponse()
        text = answer.read()
        expect("a good answer", answer.status < 300, f"{method} {target}: {answer.status} {text[:300]}")
        return text


class Demo:
    def __init__(self, exacat, place, asked):
        self.exacat, self.asked, self.data = exacat, asked, pathlib.Path(place) / "data"
        self.log = open(pathlib.Path(place) / "log", "wb")
        self.server, self.port, self.names = None, 0, itertools.count()

    def run(self, *arguments):
        command = [self.exacat, "--data", str(self.data), *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
        expect(" ".join(command), done.returncode == 0, done.stderr)
        return done.stdout

    def serve(self, *options):
        self.end()
        self.port = free_port()
        command = [self.exacat, "--data", str(self.data), "serve", "--listen", "none", "--jalien", "none", "--xrootd", "none",
                   "--http", f"127.0.0.1:{self.port}", "--http-plain", *options]
        self.server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        wait_until("the server", lambda: is_open(self.port) or self.server.poll() is not None)
        expect("the server runs", self.server.poll() is None, "see the log")

    def end(self):
        if self.server:
            self.server.terminate()
            self.server.wait(60)
            self.server = None

    def connection(self):
        return Connection(self.port, (self.data / "admin.token").read_text().strip())

    # The work of clients.

    def search(self, connection, _number, _turn):
        connection.call("POST", "/find", json.dumps({"lfn": "/demo", "name": "no-such-*"}))

    def write_one(self, connection, *_):
        connection.call("PUT", f"/files/written/f{next(self.names)}?parents=true", json.dumps({"size": 1}))

    def write_many(self, connection, *_):
        lines = "".join(json.dumps({"lfn": f"/written/f{next(self.names)}", "size": 1}) + "\n" for _ in range(BATCH))
        connection.call("POST", "/files?parents=true", lines, "application/x-ndjson")
        # As many files as before, and no more.
        time.sleep(1)

    def read(self, connection, *_):
        lines = "".join(json.dumps({"lfn": name}) + "\n" for name in random.choices(self.files, k=200))
        connection.call("POST", "/entries", lines, "application/x-ndjson")

    def measure(self, searchers, write, writers):
        # Whole seconds, after a restart too.
        time.sleep(1)
        began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        load = Load(self)
        load.start(searchers, self.search)
        load.start(writers, write)
        load.start(READERS, self.read)
        time.sleep(self.asked.seconds)
        # Requests count where they end, so those that wait now are to end first.
        load.end()
        time.sleep(2)
        period = json.loads(self.run("--json", "report", "--from", began))
        return period, self.run("report", "--from", period["from"], "--to", period["to"])


OTHER_CLASSES = ("cpu", "idle", "unaccounted")


def printed_top_wait(report):
    """The first wait of the printed table of states, which begins with the longest."""
    lines = report.splitlines()
    table = lines[lines.index("Where the time went") + 1:]
    rows = itertools.takewhile(str.strip, itertools.dropwhile(lambda line: not line.startswith("STATE"), table))
    return next(row[0] for row in list(map(str.split, rows))[1:] if row[1] not in OTHER_CLASSES)


def printed_findings(report):
    """The findings above the tables, each in one line."""
    head = itertools.takewhile(str.strip, report.splitlines()[1:])
    return "\n".join(head).replace("\n  ", " ").splitlines()


def top_wait(period):
    waits = [state for state in period["states"] if state["class"] not in OTHER_CLASSES]
    busy = sum(state["time_us"] for state in period["states"] if state["class"] != "idle")
    top = max(waits, key=lambda state: state["time_us"])
    unaccounted = sum(state["time_us"] for state in period["states"] if state["class"] == "unaccounted")
    expect("hardly any time has no name", unaccounted <= 0.05 * busy, period["states"])
    return top["state"], top["time_us"] / busy, top["requests"], top["time_us"] / max(1, top["requests"])


def queued(period):
    """Part of the time that threads were ready, in which no processor was free."""
    queue, cpu = (sum(thread[key] for thread in period["threads"]) for key in ("queue_us", "cpu_us"))
    return queue / max(1, queue + cpu)


def show_findings(report):
    for finding in printed_findings(report)[:3]:
        say(f"     {finding[:110]}")


def step(number, fault, measured, wanted):
    period, report = measured
    state, share, requests, average = top_wait(period)
    say(f"{number}  {fault:<44} {state:<14} {share:>5.0%} {requests:>8} {average / 1000:>9.2f} ms")
    show_findings(report)
    expect(f"step {number}: the report names {wanted}", state in wanted, json.dumps(period["states"], indent=1))
    expect(f"step {number}: the printed report names {state}", printed_top_wait(report) == state, report)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("exacat")
    arguments.add_argument("--entries", type=int, default=200_000)
    arguments.add_argument("--seconds", type=int, default=8)
    asked = arguments.parse_args()
    random.seed(1)
    with tempfile.TemporaryDirectory() as place:
        demo = Demo(asked.exacat, place, asked)
        burners = []
        try:
            demo.serve()
            demo.run("generate", "--entries", str(asked.entries), "--quiet")
            demo.run("mkdir", "/written")
            demo.files = [line for line in demo.run("find", "/demo", "--type", "f").splitlines()][: asked.entries // 2]
            expect("there are files", len(demo.files) > 1000)
            # A clone of a snapshot has everything in sorted runs, as a catalogue that runs for long.
            burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BURNERS)]
            say(f"   {'FAULTS STILL THERE':<44} {'TOP WAIT':<14} SHARE REQUESTS    AVERAGE")
            demo.serve("--cache", "1MiB")
            step(1, "searches, single files, small cache, burners", demo.measure(SEARCHERS, demo.write_one, WRITERS),
                 ("admission",))
            step(2, "single files, small cache, burners", demo.measure(0, demo.write_one, WRITERS),
                 ("log_sync", "commit_queue", "commit_group"))
            step(3, "small cache, burners", demo.measure(0, demo.write_many, 1), ("page_read",))
            demo.serve()
            period, report = demo.measure(0, demo.write_many, 1)
            before = queued(period)
            say(f"4  {'burners':<44} {'(processors)':<14} {before:>5.0%}")
            show_findings(report)
            queue = [finding for finding in printed_findings(report) if "processor" in finding]
            expect("step 4: a printed finding names the processors", queue, json.dumps(period["threads"], indent=1))
            while burners:
                burners.pop().kill()
            period, _ = demo.measure(0, demo.write_many, 1)
            say(f"5  {'none':<44} {'(processors)':<14} {queued(period):>5.0%}")
            # Other programs of the machine may still take some.
            expect("step 5: threads wait less for processors", queued(period) < before / 1.25, period["threads"])
        finally:
            for burner in burners:
                burner.kill()
            demo.end()
    say("the report named the fault at each step")


if __name__ == "__main__":
    try:
        main()
    except Failed as why:
        sys.exit(f"demo-tuning: {why}")
