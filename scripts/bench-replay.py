#!/usr/bin/env python3
"""`make bench-replay`: the replay beside xrdcp and python-XRootD, its punctuality, and what its service bears.

Usage: bench-replay.py EXACAT [--only PART …] [--rounds N] [--short] [--json] [--generator FILE] [--directory DIR]

The parts, in this order; each row is printed when it is done:
  opens       files of 100 kB opened, read and closed, a second: an agent with 1, 8 and 64 at once, beside processes of
              xrdcp and python-XRootD; from `exacat replay origin`, and from a real xrootd if it is installed
  bytes       GB a second of an agent on 64 connections: files of 64 MiB by reads of 1 MiB, plain and by pages
  late        lateness of an agent at 1000 and 5000 planned accesses a second
  omission    one run told both ways, from the intended and from the actual begin: a server that stands still for 2 s,
              one that is away for 2 s, one that is too slow
  service     items that the service hands out, and durable results that it takes, a second (needs `bench-replay`)
  plan        a month of production: time and memory from the start of the service to the first item

Everything runs on this machine, on loopback, in a directory that is removed. Root runs it in a network of its
own with loopback only: elsewhere xrdcp asks for the names of all addresses at each start, and waits 5 s for a
lost answer. Figures are medians of all rounds. CPU is that of each process, for an operation or a GB. WANTED
is the target, MET says whether the median reaches it; a missed one changes no exit status. A machine that
does other things at the time misses more.
"""

import argparse
import contextlib
import ctypes
import fcntl
import importlib.util
import json
import math
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from clients_rig import Failed, Left, expect, free_port, is_open, say, wait_until
from writer_rig import Process, cpu_seconds, peak_memory, tail

# Longest time of one run.
RUN_SECONDS = 900
# Longest time of one process of xrdcp.
COPY_SECONDS = 60
SMALL, LARGE = 100_000, 64 << 20
# Files of a trace of small ones, of a trace of large ones.
SMALL_FILES, LARGE_FILES = 200, 64
# Speed of a run whose accesses are all due at once.
AT_ONCE = 1e6
BEGIN_US = 1_700_000_000_000_000
MIB, GB = 1 << 20, 1e9
# Numbers of Linux: a network of its own, flags of an interface, the flag of one that is up.
CLONE_NEWNET, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x8914, 1
# User and group of a server that does not run as root.
NOBODY = 65534
# Seconds between the start of a run and its second access: agents learn of a start by asking.
LEAD = 3
# Widths of the first column, and of the one with targets.
NAME_WIDTH, WANTED_WIDTH = 44, 22
# Open, read and close, again and again, from threads of one process: python-XRootD, as its users write it.
PYTHON_CLIENT = """
import sys, threading, time
from XRootD import client
url, threads, seconds, files = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
end, counts = time.monotonic() + seconds, [0] * threads
def work(number):
    at = number
    while time.monotonic() < end:
        file = client.File()
        status, _ = file.open(f"{url}/bench/f{at % files:06}")
        assert status.ok, status
        status, data = file.read()
        assert status.ok and len(data) == 100000, status
        file.close()
        counts[number] += 1
        at += 1
began = time.monotonic()
all = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
for one in all: one.start()
for one in all: one.join()
print(sum(counts) / (time.monotonic() - began), sum(counts))
"""


def network_of_its_own():
    """Moves this process, and those that it starts, into a network with loopback only. Says whether it could."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    return True


def write_trace(path, files, size, accesses):
    """Writes a trace: `accesses` has pairs of a time in microseconds and the number of a file."""
    count = 0
    with open(path, "w", encoding="utf-8") as out:
        out.write('# exacat trace 1\n# {"made":"by bench-replay"}\n')
        for time_us, number in accesses:
            out.write(f"{BEGIN_US + time_us}\t/bench/f{number % files:06}\t{size}\t-\t-\t-\t-\n")
            count += 1
        out.write(f"# end {count}\n")


def arrivals(each_second, seconds, seed=1):
    """Times of independent accesses, so many a second, behind a single one."""
    yield 0, 0
    chance, at, number = random.Random(seed), float(LEAD), 1
    while at < LEAD + seconds:
        yield int(at * 1e6), number
        at += chance.expovariate(each_second)
        number += 1


class Server:
    """A server that agents read from, and its process."""

    def __init__(self, name, process, url, control=None):
        self.name, self.process, self.url, self.control = name, process, url, control


class Bench:
    """The processes that run, and the rows."""

    def __init__(self, asked, place):
        self.asked, self.place, self.exacat = asked, pathlib.Path(place), os.path.realpath(asked.exacat)
        self.running, self.count, self.heads = [], 0, None
        self.environment = {"EXACAT_DATA": str(self.place / "data"), "EXACAT_SERVER": "unix:/nowhere"}

    # ---- rows ------------------------------------------------------------------------------------

    def title(self, text):
        self.heads = None
        if not self.asked.json:
            say(f"\n{text}")

    def row(self, part, name, values, wanted="", is_met=None):
        """Prints a row, below the names of its columns where these are others than before."""
        values = {**values, "WANTED": wanted or "-", "MET": {None: "-", True: "yes", False: "NO"}[is_met]}
        if self.asked.json:
            return say(json.dumps({"part": part, "row": name, **values}))
        if self.heads != list(values):
            self.heads = list(values)
            say(f"{'':<{NAME_WIDTH}}" + "".join(f"{head:>{width_of(head)}}" for head in self.heads))
        say(f"{name:<{NAME_WIDTH}}" + "".join(f"{shown(value):>{width_of(head)}}" for head, value in values.items()))

    def leave_out(self, part, name, why):
        if self.asked.json:
            return say(json.dumps({"part": part, "row": name, "left out": str(why)}))
        say(f"{name:<{NAME_WIDTH}}  {why}")

    @contextlib.contextmanager
    def measured(self, part, name):
        """Lets a failed measurement be a row: the others go on."""
        try:
            yield
        except (Left, Failed, OSError, subprocess.SubprocessError) as why:
            self.leave_out(part, name, why if isinstance(why, Left) else f"FAILED: {why}")
            for agent in [one for one in self.running if one.name.startswith("agent")]:
                agent.kill()
                self.running.remove(agent)

    def rounds(self, most=None):
        return range(min(self.asked.rounds, most or self.asked.rounds))

    # ---- processes -------------------------------------------------------------------------------

    def launch(self, name, command, **more):
        self.count += 1
        process = Process(f"{name}{self.count}", command, self.place, environment=self.environment, **more)
        self.running.append(process)
        return process

    def end(self, *processes):
        for process in processes:
            process.stop()
            self.running.remove(process)

    def close(self):
        for process in reversed(self.running):
            process.signal(signal.SIGCONT)
            process.kill()

    def origin(self, trace, *options):
        process = self.launch("origin", [self.exacat, "--json", "replay", "origin", "--trace", trace, "--listen", "127.0.0.1:0",
                                         "--control", "127.0.0.1:0", *options])
        told = process.announced()
        return Server("origin", process, told["url"], told["control"])

    def xrootd(self, files, size):
        """A real server with the files of a trace: one file under many names."""
        if not shutil.which("xrootd"):
            raise Left("xrootd is not installed (Debian: xrootd-server)")
        self.count += 1
        place, port = self.place / f"xrootd-{self.count}", free_port()
        (place / "files" / "bench").mkdir(parents=True)
        first = place / "files" / "bench" / "f000000"
        first.write_bytes(random.Random(1).randbytes(size))
        for number in range(1, files):
            os.link(first, first.with_name(f"f{number:06}"))
        (place / "xrootd.cf").write_text(
            f"all.adminpath {place}\nall.pidpath {place}\noss.localroot {place}/files\nall.export /bench\nxrd.port {port}\n")
        user = None
        if os.geteuid() == 0:
            # It does not run as root.
            user = NOBODY
            self.place.chmod(0o755)
            for path in [place, *place.rglob("*")]:
                os.chown(path, user, user)
        process = self.launch("xrootd", ["xrootd", "-c", place / "xrootd.cf", "-l", place / "log", "-n", f"bench{self.count}"],
                              user=user)

        def listens():
            expect("xrootd serves", process.is_running(), tail(process.log) + tail(place / "log"))
            return is_open(port)

        wait_until("xrootd listens", listens)
        return Server("xrootd", process, f"root://127.0.0.1:{port}")

    def servers(self, trace, files, size):
        """The servers that are here, one after the other."""
        for part, start in (("origin", lambda: self.origin(trace)), ("xrootd", lambda: self.xrootd(files, size))):
            try:
                server = start()
            except Left as why:
                self.leave_out("servers", f"{part}: left out", why)
                continue
            yield server
            self.end(server.process)

    def service(self, trace, *options):
        """Starts a replay service; its URL is that of later commands."""
        self.count += 1
        runs = self.place / f"runs-{self.count}"
        process = self.launch("service", [self.exacat, "--json", "replay", "serve", "--trace", trace, "--runs", runs, "--listen",
                                          "127.0.0.1:0", *options])
        process.runs = runs
        self.environment["EXACAT_REPLAY"] = process.announced()["url"]
        return process

    def ask(self, *words, statuses=(0,)):
        """Runs a command of the replay."""
        done = subprocess.run([self.exacat, "--json", "replay", *map(str, words)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=RUN_SECONDS, env={**os.environ, **self.environment})
        expect(f"exacat replay {' '.join(map(str, words))}: status {done.returncode}", done.returncode in statuses,
               done.stdout[-2000:] + done.stderr[-2000:])
        return json.loads(done.stdout) if done.stdout.strip() else None

    def run(self, *options):
        """Creates and starts a run. Returns its name."""
        self.count += 1
        name = f"run{self.count}"
        self.ask("run", "create", name, "--start", *options)
        return name

    def agent(self, run, server, *options):
        return self.launch("agent", [self.exacat, "--json", "replay", "agent", "--run", run, "--cache", server.url, *options])

    def finish(self, agent):
        """Waits for the end of an agent. Returns its summary, with its CPU time."""
        end = time.monotonic() + RUN_SECONDS
        while agent.is_running():
            expect(f"{agent.name} ends", time.monotonic() < end, tail(agent.log))
            time.sleep(0.02)
        used, status = cpu_seconds(agent.pid), agent.process.wait()
        self.running.remove(agent)
        told = agent.told()
        expect(f"{agent.name} ends with status {status}", status == 0 and told, tail(agent.out) + tail(agent.log))
        return {**told[-1], "cpu": used}

    def driven(self, server, run_options, agent_options, may_fail=False):
        """A run of one agent. Returns its summary with CPU seconds of the agent and of the server."""
        run = self.run(*run_options)
        before = cpu_seconds(server.process.pid)
        summary = self.finish(self.agent(run, server, *agent_options))
        summary["server_cpu"] = cpu_seconds(server.process.pid) - before
        if not may_fail:
            expect("every access succeeds", list(summary["outcomes"]) == ["ok"], summary)
        return run, summary

    # ---- the parts -------------------------------------------------------------------------------

    def opens(self):
        self.title(f"Files of {SMALL // 1000} kB opened, read and closed")
        seconds = 2 if self.asked.short else 8
        trace = self.place / "opens.trace"
        write_trace(trace, SMALL_FILES, SMALL, ((0, number) for number in range(10_000 * seconds)))
        service = self.service(trace)
        for server in self.servers(trace, SMALL_FILES, SMALL):
            for count, guess in ((1, 4000), (8, 8000), (64, 10_000)):
                with self.measured("opens", f"{server.name}: agent, {count} at once"):
                    self.opens_of_agent(server, f"agent, {count} at once", ["--speed", AT_ONCE, "--accesses", guess * seconds],
                                        ["--in-flight", count], 10_000 if count == 64 else None)
            with self.measured("opens", f"{server.name}: agent, run of 64 in flight"):
                self.opens_of_agent(server, "agent, run of 64 in flight", ["--in-flight", 64, "--accesses", 2000 * seconds],
                                    ["--in-flight", 64], 10_000)
            with self.measured("opens", f"{server.name}: agent, 64 at once, connect anew"):
                self.opens_of_agent(server, "agent, 64 at once, connect anew", ["--speed", AT_ONCE, "--accesses", 2000 * seconds],
                                    ["--in-flight", 64, "--connect-anew"], None)
            self.opens_of_programs(server, seconds)
            for threads in (1, 8):
                with self.measured("opens", f"{server.name}: python-XRootD, {threads} threads"):
                    self.opens_of_python(server, threads, seconds)
        self.end(service)

    def opens_of_agent(self, server, name, run_options, agent_options, wanted):
        taken = [self.driven(server, run_options, agent_options)[1] for _ in self.rounds()]
        rate = median(taken, "accesses_per_second")
        self.row("opens", f"{server.name}: {name}", {
            "opens/s": rate, "CPU us": each(taken, "cpu"), "SERVER us": each(taken, "server_cpu"),
            "p50 ms": at(taken, "duration_us", 0), "p99 ms": at(taken, "duration_us", 1)},
            f">= {wanted}" if wanted else "", rate >= wanted if wanted else None)

    def opens_of_programs(self, server, seconds):
        if not shutil.which("xrdcp"):
            return self.leave_out("opens", f"{server.name}: xrdcp", "not installed")
        for count in (1, 4, 16):
            with self.measured("opens", f"{server.name}: xrdcp, {count} at once"):
                taken = [self.copied(server, count, seconds) for _ in self.rounds(3)]
                self.row("opens", f"{server.name}: xrdcp, {count} at once", {
                    "opens/s": median(taken, "rate"), "CPU us": median(taken, "cpu_us"), "SERVER us": median(taken, "server_us"),
                    "p50 ms": median(taken, "p50"), "p99 ms": median(taken, "p99")})
        with self.measured("opens", f"{server.name}: agent --xrdcp, 4 at once"):
            # The CPU time of its processes is not its own.
            taken = [self.driven(server, ["--speed", AT_ONCE, "--accesses", 60 * seconds], ["--in-flight", 4, "--xrdcp"])[1]
                     for _ in self.rounds(1)]
            self.row("opens", f"{server.name}: agent --xrdcp, 4 at once", {
                "opens/s": median(taken, "accesses_per_second"), "CPU us": "-", "SERVER us": each(taken, "server_cpu"),
                "p50 ms": at(taken, "duration_us", 0), "p99 ms": at(taken, "duration_us", 1)})

    def copied(self, server, count, seconds):
        """Processes of xrdcp one after the other, from so many threads."""
        times, failures, end = [], [], time.monotonic() + seconds

        def work(number):
            while time.monotonic() < end and not failures:
                began = time.monotonic()
                try:
                    done = subprocess.run(["xrdcp", "-f", "-s", f"{server.url}//bench/f{number % SMALL_FILES:06}", "/dev/null"],
                                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COPY_SECONDS)
                except (OSError, subprocess.SubprocessError) as why:
                    return failures.append(str(why))
                times.append(1000 * (time.monotonic() - began))
                if done.returncode != 0:
                    failures.append(done.stderr)

        before, of_server, began = children_seconds(), cpu_seconds(server.process.pid), time.monotonic()
        threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expect("xrdcp copies", not failures, failures[:1])
        took, times = time.monotonic() - began, sorted(times)
        return {"rate": len(times) / took, "cpu_us": 1e6 * (children_seconds() - before) / len(times),
                "server_us": 1e6 * (cpu_seconds(server.process.pid) - of_server) / len(times),
                "p50": statistics.median(times), "p99": times[math.ceil(0.99 * len(times)) - 1]}

    def opens_of_python(self, server, threads, seconds):
        if importlib.util.find_spec("XRootD") is None:
            raise Left("not installed (PyPI: xrootd)")
        rates, cpus, servers = [], [], []
        for _ in self.rounds(3):
            before, of_server = children_seconds(), cpu_seconds(server.process.pid)
            words = [f"{server.url}/", threads, seconds, SMALL_FILES]
            done = subprocess.run([sys.executable, "-c", PYTHON_CLIENT, *map(str, words)], stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=120)
            expect("python-XRootD reads", done.returncode == 0, done.stderr[-1000:])
            rate, count = map(float, done.stdout.split())
            rates.append(rate)
            cpus.append(1e6 * (children_seconds() - before) / count)
            servers.append(1e6 * (cpu_seconds(server.process.pid) - of_server) / count)
        self.row("opens", f"{server.name}: python-XRootD, {threads} threads", {
            "opens/s": statistics.median(rates), "CPU us": statistics.median(cpus), "SERVER us": statistics.median(servers),
            "p50 ms": "-", "p99 ms": "-"})

    def bytes(self):
        self.title("Files of 64 MiB on 64 connections, reads of 1 MiB")
        count = 128 if self.asked.short else 512
        trace = self.place / "bytes.trace"
        write_trace(trace, LARGE_FILES, LARGE, ((0, number) for number in range(count)))
        service = self.service(trace)
        for server in self.servers(trace, LARGE_FILES, LARGE):
            for name, options in (("reads", []), ("pages", ["--pages"])):
                with self.measured("bytes", f"{server.name}: agent, {name}"):
                    words = ["--in-flight", 64, "--read-size", "1MiB", *options]
                    taken = [self.driven(server, ["--speed", AT_ONCE], words)[1] for _ in self.rounds()]
                    for one in taken:
                        one.update(gb_s=one["bytes"] / one["seconds"] / GB, cpu_gb=one["cpu"] / one["bytes"] * GB,
                                   server_gb=one["server_cpu"] / one["bytes"] * GB)
                        expect("all bytes", one["bytes"] == count * LARGE, one)
                    rate = median(taken, "gb_s")
                    self.row("bytes", f"{server.name}: agent, {name}", {
                        "GB/s": rate, "CPU s/GB": median(taken, "cpu_gb"), "SERVER s/GB": median(taken, "server_gb"),
                        "first byte p50 ms": at(taken, "first_byte_us", 0), "p99 ms": at(taken, "first_byte_us", 1)},
                        ">= 2", rate >= 2)
        self.end(service)

    def late(self):
        seconds = 5 if self.asked.short else 20
        self.title(f"Lateness of an agent, independent accesses to files of 4 kB, {seconds} s")
        for rate in (1000, 5000):
            trace = self.place / f"late-{rate}.trace"
            write_trace(trace, 10_000, 4096, arrivals(rate, seconds))
            service, origin = self.service(trace), self.origin(trace)
            with self.measured("late", f"{rate} accesses/s"):
                taken = [self.driven(origin, [], ["--in-flight", 256])[1] for _ in self.rounds()]
                p99 = at(taken, "late_us", 1)
                self.row("late", f"{rate} accesses/s", {
                    "late p50 ms": at(taken, "late_us", 0), "p99 ms": p99, "max ms": at(taken, "late_us", 2),
                    "duration p99 ms": at(taken, "duration_us", 1), "CPU us": each(taken, "cpu"),
                    "SERVER us": each(taken, "server_cpu")}, "p99 < 5 ms", p99 < 5)
            self.end(service, origin.process)

    def omission(self):
        self.title("One run told both ways: 1000 accesses/s for 10 s, 64 at once")
        trace = self.place / "omission.trace"
        write_trace(trace, 10_000, SMALL, arrivals(1000, 10))
        service = self.service(trace)

        def nothing(_origin):
            pass

        def stands_still(origin):
            time.sleep(LEAD + 4)
            origin.process.signal(signal.SIGSTOP)
            time.sleep(2)
            origin.process.signal(signal.SIGCONT)

        def is_away(origin):
            time.sleep(LEAD + 4)
            order = urllib.request.Request(f"{origin.control}/api/v1/origin/gone?seconds=2", method="POST")
            urllib.request.urlopen(order, timeout=10).read()

        for name, disturb, options in (("undisturbed", nothing, []), ("stands still for 2 s", stands_still, []),
                                       ("away for 2 s", is_away, []), ("20 % too slow", nothing, ["--bandwidth", "80MB"])):
            with self.measured("omission", name):
                origin = self.origin(trace, *options)
                try:
                    self.both_ways(name, origin, disturb)
                finally:
                    self.end(origin.process)
        self.end(service)

    def both_ways(self, name, origin, disturb):
        taken = []
        for _ in self.rounds(3):
            run = self.run()
            agent = self.agent(run, origin, "--in-flight", 64)
            disturb(origin)
            self.finish(agent)
            report = self.ask("report", run)
            rows = {row["from"]: row["figures"] for row in report["durations"] if row["class"] == "all"}
            failed = report["totals"]["errors"]
            taken.append({f"{begin} {key}": rows[begin][f"{key}_us"] / 1000 for begin in ("intended", "actual")
                          for key in ("p50", "p99", "max")} | {"failed": failed})
        figures = {key: median(taken, key) for key in taken[0]}
        shows = figures["intended p99"] > 5 * figures["actual p99"]
        self.row("omission", name, {
            "INTENDED p50 ms": figures["intended p50"], "p99 ms": figures["intended p99"], "max ms": figures["intended max"],
            "ACTUAL p50": figures["actual p50"], "p99": figures["actual p99"], "max": figures["actual max"],
            "failed": figures["failed"]},
            *(("it shows", shows) if name in ("stands still for 2 s", "20 % too slow") else ("", None)))

    def service_alone(self):
        self.title("Items handed out by the service, and durable results taken")
        generator = self.asked.generator or pathlib.Path(self.exacat).with_name("bench-replay")
        if not os.access(generator, os.X_OK):
            return self.leave_out("service", "service", f"{generator} is missing: cargo build -p exacat-bench --bin bench-replay")
        items = 200_000 if self.asked.short else 1_000_000
        trace = self.place / "items.trace.zst"
        self.generate(trace, items)
        process = self.service(trace)
        url = self.environment["EXACAT_REPLAY"]
        for name, clients, batch, options in (
                ("8 agents, batches of 500", 8, 500, []), ("8 agents, batches of 1000", 8, 1000, []),
                ("8 agents, batches of 1000, any order", 8, 1000, ["--order", "any"]),
                ("64 agents, batches of 500", 64, 500, []), ("1 agent, batches of 1000", 1, 1000, [])):
            with self.measured("service", name):
                taken = []
                for _ in self.rounds():
                    run = self.run("--speed", AT_ONCE, *options)
                    words = ["--url", url, "--run", run, "--clients", clients, "--batch", batch, "--pid", process.pid, "--json"]
                    done = subprocess.run([generator, *map(str, words)], capture_output=True, text=True, timeout=RUN_SECONDS,
                                          stdin=subprocess.DEVNULL)
                    expect("bench-replay", done.returncode == 0, done.stdout + done.stderr[-2000:])
                    taken.append(json.loads(done.stdout))
                    view = self.ask("run", "show", run)
                    expect("each item has one result", (view["ended"], view["state"]) == (view["accesses"], "done"), view)
                rate = median(taken, "items_s")
                self.row("service", name, {
                    "items/s": rate, "SERVICE us": median(taken, "service_us"), "generator us": median(taken, "generator_us"),
                    "items p50 ms": median(taken, "items_p50_ms"), "p99 ms": median(taken, "items_p99_ms"),
                    "results p50": median(taken, "results_p50_ms"), "p99": median(taken, "results_p99_ms"),
                    "MiB": median(taken, "memory_mib")}, ">= 50000", rate >= 50_000)
        self.end(process)

    def generate(self, trace, accesses):
        """Generates a trace like those of production. Returns the seconds and the bytes of memory."""
        began = time.monotonic()
        process = self.launch("generate", [self.exacat, "--json", "replay", "generate", "--out", trace, "--accesses", accesses,
                                           "--files", max(1000, accesses // 5)])
        peak = 0
        while process.is_running():
            expect("the trace is generated", time.monotonic() < began + RUN_SECONDS)
            peak = max(peak, peak_memory(process.pid))
            time.sleep(0.05)
        took = time.monotonic() - began
        self.running.remove(process)
        expect("exacat replay generate", process.process.wait() == 0, tail(process.log))
        return took, peak

    def plan(self):
        accesses = 1_000_000 if self.asked.short else 10_000_000
        self.title(f"A month of production, {accesses // 1_000_000} M accesses")
        trace = self.place / "month.trace.zst"
        with self.measured("plan", "from the start to the first item"):
            took, peak = self.generate(trace, accesses)
            self.row("plan", "generated", {"s": took, "peak MiB": peak // MIB, "file MiB": trace.stat().st_size // MIB})
            taken = [self.planned(trace) for _ in self.rounds(3)]
            seconds, memory = median(taken, "s"), median(taken, "peak")
            self.row("plan", "from the start to the first item", {
                "s": seconds, "peak MiB": memory // MIB, "serves s": median(taken, "serves"), "made s": median(taken, "made")},
                "< 60 s, < 1024 MiB", seconds < 60 and memory < 1 << 30)
            again = [one["again"] for one in taken]
            self.row("plan", "started again, with that run", {
                "s": statistics.median(again), "peak MiB": median(taken, "again peak") // MIB})

    def planned(self, trace):
        began = time.monotonic()
        process = self.service(trace)
        serves = time.monotonic() - began
        run = self.run("--speed", AT_ONCE)
        made = time.monotonic() - began - serves
        url = f"{self.environment['EXACAT_REPLAY']}/api/v1/runs/{run}/items"
        body = json.dumps({"agent": "one", "cache": "root://c", "driver": "xrootd", "count": 1}).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        answer = json.load(urllib.request.urlopen(request, timeout=60))
        seconds = time.monotonic() - began
        expect("an item", len(answer["items"]) == 1, answer)
        peak, runs = peak_memory(process.pid), process.runs
        self.end(process)
        began = time.monotonic()
        process = self.launch("service", [self.exacat, "--json", "replay", "serve", "--runs", runs, "--listen", "127.0.0.1:0"])
        process.announced()
        again, again_peak = time.monotonic() - began, peak_memory(process.pid)
        self.end(process)
        shutil.rmtree(runs)
        return {"s": seconds, "peak": peak, "serves": serves, "made": made, "again": again, "again peak": again_peak}


def width_of(head):
    return WANTED_WIDTH if head == "WANTED" else max(len(head), 7) + 2


def shown(value):
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return str(value)


def median(taken, key):
    return statistics.median(one[key] for one in taken)


def each(taken, key):
    """Microseconds of CPU time for an access."""
    return statistics.median(1e6 * one[key] / one["accesses"] for one in taken)


def at(taken, key, place):
    """Milliseconds: the median (0), the 99 % quantile (1) or the most (2) of some times."""
    return statistics.median(one[key][place] / 1000 for one in taken)


def children_seconds():
    """CPU time of all processes that ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


PARTS = {"opens": Bench.opens, "bytes": Bench.bytes, "late": Bench.late, "omission": Bench.omission,
         "service": Bench.service_alone, "plan": Bench.plan}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("exacat")
    arguments.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS), metavar="PART")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--short", action="store_true", help="less of everything, to see that it works")
    arguments.add_argument("--json", action="store_true", help="a document for each row")
    arguments.add_argument("--generator", help="the program bench-replay [beside EXACAT]")
    arguments.add_argument("--directory", help="for everything [that of temporary files]")
    arguments.add_argument("--here", action="store_true", help="in the network of the machine, also for root")
    asked = arguments.parse_args()
    # SIGTERM ends it in order too: nothing is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begun = time.monotonic()
    is_apart = not asked.here and network_of_its_own()
    if not asked.json:
        where = "a network with loopback only" if is_apart else "the network of the machine"
        say(f"{os.cpu_count()} cores for all processes, load average {os.getloadavg()[0]:.1f} at the start; {where}; medians of "
            f"{asked.rounds} rounds")
    with tempfile.TemporaryDirectory(prefix="exacat-bench-replay-", dir=asked.directory, ignore_cleanup_errors=True) as place:
        bench = Bench(asked, place)
        try:
            for part in asked.only:
                with bench.measured(part, part):
                    PARTS[part](bench)
        finally:
            bench.close()
    if not asked.json:
        say(f"\n{time.monotonic() - begun:.0f} s, load average {os.getloadavg()[0]:.1f} at the end")
    return 0


if __name__ == "__main__":
    sys.exit(main())
