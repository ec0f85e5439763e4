#!/usr/bin/env python3
"""`make bench-writer`: the writer service beside the best that the file system does by itself, and beside its peers.

Usage: bench-writer.py EXACAT [--json] [--only PART …] [--rows TEXT] [--short] [--rounds N] [--bytes SIZE]
                       [--directory DIR] [options]

All parts take more than an hour. `--short` is for a quick look: one round of 256 MB, at 300 MB/s only, with
the edges of the sizes and numbers of producers. Figures for documents are medians of at least five rounds.

The parts, in this order; each row is printed when it is done:
  files       1, 8 and 256 files under a disk limited to 300 and 800 MB/s; the service and the file system alternate
  sizes       events of 1 B to 2 MiB, 300 and 800 MB/s
  producers   1 to 16 of them, 300 and 800 MB/s
  cpu         no limit: MB/s, and CPU seconds for each GB of the service and of the producers
  latency     acknowledgements at 300 MB/s of events of 30 kB from 16 producers, no limit of the disk
  small       events of 100 B from 16 producers
  faults      one of two services killed, hanging, back again: how long producers stand still
  reading     certified files are read by clients, and staged out, while others are written, 300 MB/s each way
  peers       xrdcp to xrootd, curl to nginx, beside `exacat writer put` of the same files

DISK is the file system by itself, without a service. SHARE is the service's part of that: the median over the rounds of each
pair, and LEAST the least. CPU is that of the service, for a GB; PRODUCERS have theirs in the next column, which includes making
the events. A limited disk needs root and control groups: only the processes of the service, or those of the file system's own
test, are in the limited group.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import writer_faults
import writer_peers
from clients_rig import Failed, Left, expect, say, wait_until
from writer_rig import Process, Throttle, cpu_seconds, rig_in

BASELINE = pathlib.Path(__file__).with_name("writer_baseline.py")
# Limits of the disk in MB/s.
LIMITS, SHORT_LIMITS = (300, 800), (300,)
# Sizes of events in bytes, and the sizes of one mixed run.
EVENTS, SHORT_EVENTS, MIXED = (1, 10, 100, 1_000, 10_000, 30_000, 100_000, 1 << 20, 2 << 20), (1, 100, 2 << 20), "1..2MiB"
PRODUCERS, SHORT_PRODUCERS = (1, 2, 4, 8, 16), (1, 16)
ROUNDS, SHORT_ROUNDS = 5, 1
RUN_BYTES, SHORT_RUN_BYTES = 2 * 10**9, 256 * 10**6
# The event of the source of these requirements, in bytes.
EVENT = 30_000
# Longest time of one run.
RUN_SECONDS = 600
MB = 1_000_000
# Events below this size cost CPU and no disk: such runs have a time in place of a number of bytes.
SMALL_EVENT, SMALL_SECONDS = 1_000, 6
LATENCY_SECONDS = 10
# Longest time until the load is even after a service is back.
EVEN_SECONDS_MAX = 60
# Files of one producer at a time, at most.
STREAMS_MAX = 32
# Width of the first column.
NAME_WIDTH = 28
UNITS = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}


def size_of(text):
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * factor)
    return int(text)


class Bench:
    """What all parts need: the rig, the limit of the disk if there can be one, the rows."""

    def __init__(self, asked, rig):
        self.asked, self.rig, self.throttle, self.why, self.heads = asked, rig, None, None, None
        try:
            self.throttle = Throttle(rig.place)
        except Left as why:
            self.why = str(why)

    def row(self, part, name, values):
        """Prints a row as soon as it is known, below the names of its columns where these are others than before."""
        if self.asked.json:
            say(json.dumps({"part": part, "row": name, **values}))
            return
        if self.heads != list(values):
            self.heads = list(values)
            say(f"{'':<{NAME_WIDTH}}" + "".join(f"{head:>{width_of(head)}}" for head in self.heads))
        say(f"{name:<{NAME_WIDTH}}" + "".join(f"{shown(value):>{width_of(head)}}" for head, value in values.items()))

    def leave_out(self, part, name, why):
        if self.asked.json:
            say(json.dumps({"part": part, "row": name, "left out": why}))
        else:
            say(f"{name:<{NAME_WIDTH}}  {why}")

    def note(self, text):
        if not self.asked.json:
            say(text)

    def title(self, text):
        self.heads = None
        if not self.asked.json:
            say(f"\n{text}")

    def limited(self, write=0, read=0):
        if not self.throttle:
            raise Left(self.why)
        self.throttle.limit(write, read)

    # ---- one run of each -------------------------------------------------------------------------

    def file_system(self, size, files, read=None):
        """The file system by itself, in the group."""
        directory = self.rig.fresh("plain")
        words = [sys.executable, BASELINE, directory, size, files, *(["--read", read] if read else [])]
        process = Process(f"baseline{self.rig.count}", words, self.rig.place, group=self.throttle)
        self.rig.running.append(process)
        status = process.process.wait(RUN_SECONDS)
        self.rig.running.remove(process)
        expect("the file system's own test", status == 0, process.log.read_text())
        remove(directory)
        return process.told()[-1]

    def services(self, count, options=()):
        words = ["--memory", self.asked.memory, "--free-min", "64MiB", *options]
        return self.rig.start_services(count, words, group=[self.throttle] * count)

    def produced(self, services, options):
        """A run of producers. Adds MB/s, and CPU seconds for a GB of both sides."""
        self.rig.count += 1
        before = sum(cpu_seconds(service.pid) for service in services)
        producer = self.rig.produce(f"bench{self.rig.count}", services, options)
        figures = producer.finish(RUN_SECONDS)
        self.rig.running.remove(producer)
        expect("all files are certified", figures["certified"] == figures["files"], figures)
        used = sum(cpu_seconds(service.pid) for service in services) - before
        size = max(1, figures["bytes"])
        figures.update(mb_s=figures["bytes"] / figures["seconds"] / MB, events_s=figures["events"] / figures["seconds"],
                       service_cpu=used / size * 1e9, producer_cpu=producer.cpu / size * 1e9)
        return figures

    def load(self, size, files, producers=None, event=EVENT):
        """Options of producers that write so many files at a time."""
        producers = producers or min(16, files)
        streams = max(1, files // producers)
        expect("so many files fit", streams <= STREAMS_MAX, f"{files} files of {producers} producers")
        words = ["--producers", producers, "--streams", streams, "--size", event, "--memory", self.asked.producer_memory]
        if isinstance(event, int) and event < SMALL_EVENT:
            words += ["--seconds", SMALL_SECONDS]
        else:
            words += ["--bytes", size]
        # No file ends before the run does.
        return [*words, "--file-bytes", max(size, 1 << 30)]

    def pairs(self, part, name, limit, files, options):
        """Alternates the file system and the service; a row of medians."""
        if self.asked.rows not in name:
            return
        self.limited(write=limit)
        plain, ours = [], []
        for _ in range(self.asked.rounds):
            # A service of its own for each round: what it wrote is removed with it.
            services = self.services(1)
            plain.append(self.file_system(self.asked.bytes, files))
            ours.append(self.produced(services, options))
            self.rig.end(*services)
        shares = [one["mb_s"] / other["mb_s"] for one, other in zip(ours, plain)]
        self.row(part, name, {
            "DISK MB/s": median(plain, "mb_s"), "MB/s": median(ours, "mb_s"),
            "SHARE %": 100 * statistics.median(shares), "LEAST %": 100 * min(shares),
            "CPU s/GB": median(ours, "service_cpu"), "PRODUCERS s/GB": median(ours, "producer_cpu"),
            "ack p99 ms": statistics.median(one["ack_ms"]["p99"] for one in ours)})

    # ---- the parts -------------------------------------------------------------------------------

    def files(self):
        self.title(f"Files at a time, events of {EVENT} B, a limited disk; medians of {self.asked.rounds}")
        for limit in self.limits():
            for files in (1, 8, 256):
                self.pairs("files", f"{limit} MB/s, {files} files", limit * MB, files, self.load(self.asked.bytes, files))

    def limits(self):
        return SHORT_LIMITS if self.asked.short else LIMITS

    def sizes(self):
        self.title(f"Sizes of events, 16 producers and files, a limited disk; medians of {self.asked.rounds}")
        for limit in self.limits():
            for event in [*(SHORT_EVENTS if self.asked.short else EVENTS), MIXED]:
                load = self.load(self.asked.bytes, 16, 16, event)
                self.pairs("sizes", f"{limit} MB/s, {event} B", limit * MB, 16, load)

    def producers(self):
        self.title(f"Producers with a file each, events of {EVENT} B, a limited disk; medians of {self.asked.rounds}")
        for limit in self.limits():
            for count in SHORT_PRODUCERS if self.asked.short else PRODUCERS:
                load = self.load(self.asked.bytes, count, count)
                self.pairs("producers", f"{limit} MB/s, {count} producers", limit * MB, count, load)

    def cpu(self):
        self.title(f"No limit, 16 producers, events of {EVENT} B; medians of {self.asked.rounds}")
        if self.throttle:
            self.throttle.limit()
        # The catalogue of the rig has a certificate for this machine.
        certificate, key = self.rig.data / "server.crt", self.rig.data / "server.key"
        with_tls = ["--certificate", certificate, "--key", key], ["--service-ca", certificate]
        for files, name, (of_service, of_producer) in [
            (1, "1 files", ([], [])), (16, "16 files", ([], [])), (256, "256 files", ([], [])), (16, "16 files, TLS", with_tls)]:
            plain, ours = [], []
            for _ in range(self.asked.rounds):
                services = self.services(1, of_service)
                plain.append(self.file_system(self.asked.bytes, files))
                ours.append(self.produced(services, [*self.load(self.asked.bytes, files), *of_producer]))
                self.rig.end(*services)
            self.row("cpu", name, {
                "DISK MB/s": median(plain, "mb_s"),
                "DISK CPU s/GB": statistics.median(one["cpu_s"] / self.asked.bytes * 1e9 for one in plain),
                "MB/s": median(ours, "mb_s"), "CPU s/GB": median(ours, "service_cpu"),
                "PRODUCERS s/GB": median(ours, "producer_cpu")})

    def latency(self):
        self.title(f"Acknowledgements, 16 producers, events of 30 kB at 300 MB/s, no limit; medians of {self.asked.rounds}")
        if self.throttle:
            self.throttle.limit()
        taken = []
        for _ in range(self.asked.rounds):
            services = self.services(1)
            taken.append(self.produced(services, ["--producers", 16, "--size", EVENT, "--rate", 300 * MB // EVENT, "--seconds",
                                                  LATENCY_SECONDS, "--file-bytes", "2GB",
                                                  "--memory", self.asked.producer_memory]))
            self.rig.end(*services)
        acks = [one["ack_ms"] for one in taken]
        self.row("latency", f"{median(taken, 'mb_s'):.0f} MB/s", {
            **{f"ack {key} ms": median(acks, key) for key in ("p50", "p99", "p999")},
            "worst p99 ms": max(one["p99"] for one in acks), "longest ms": max(one["max"] for one in acks),
            "stall max ms": max(one["stall_ms_max"] for one in taken)})

    def small(self):
        self.title("Events of 100 B from 16 producers")
        if self.throttle:
            self.throttle.limit()
        taken = []
        for _ in range(self.asked.rounds):
            services = self.services(1)
            taken.append(self.produced(services, self.load(self.asked.bytes, 16, 16, 100)))
            self.rig.end(*services)
        self.row("small", "100 B", {
            "M events/s": median(taken, "events_s") / 1e6, "MB/s": median(taken, "mb_s"),
            "service CPU us": statistics.median(one["service_cpu"] * 100 / 1e3 for one in taken),
            "producers CPU us": statistics.median(one["producer_cpu"] * 100 / 1e3 for one in taken)})

    def faults(self):
        self.title("Faults under load, two services; every event is read back")
        if self.throttle:
            self.throttle.limit()
        load = writer_faults.Load(seconds=10)
        for fault in (writer_faults.nothing, writer_faults.service_killed, writer_faults.service_hangs,
                      writer_faults.disk_full, writer_faults.sync_fails):
            self.fault(fault.__name__.replace("_", " "), lambda: self.with_own_rig(fault, load))
        self.fault("service killed and back", self.fail_back)

    def with_own_rig(self, fault, load):
        """A catalogue of its own, as some kill that too."""
        with rig_in(self.asked.exacat, self.asked.directory) as rig:
            return fault(rig, load)

    def fault(self, name, run):
        """A row of medians."""
        try:
            taken = [run() for _ in range(self.asked.rounds)]
        except (Left, Failed) as why:
            self.leave_out("faults", name, str(why))
            self.rig.clear()
            return
        self.row("faults", name, {key: median(taken, key) for key in taken[0]})

    def fail_back(self):
        """A service comes back: the time until both have nearly the same share of what is written."""
        services = self.services(2)
        self.rig.count += 1
        producer = self.rig.produce(f"back{self.rig.count}", services, [
            "--producers", 16, "--size", EVENT, "--rate", 100 * MB // EVENT, "--seconds", 75, "--file-bytes", "16MB",
            "--memory", self.asked.producer_memory])
        wait_until("both have bytes", lambda: all(service.written() > 16 * MB for service in services))
        services[0].kill()
        alone = services[1].written()
        wait_until("the other goes on", lambda: services[1].written() > alone + 64 * MB)
        services[0].start_again()
        began, taken, last = time.monotonic(), None, [service.written() for service in services]
        while taken is None and producer.is_running() and time.monotonic() < began + EVEN_SECONDS_MAX:
            time.sleep(3)
            now = [service.written() for service in services]
            grown = [after - before for after, before in zip(now, last)]
            last = now
            if min(grown) >= 0.8 * sum(grown) / 2:
                taken = time.monotonic() - began
        figures = producer.finish(RUN_SECONDS)
        self.rig.running.remove(producer)
        self.rig.end(*services)
        expect(f"the load is even within {EVEN_SECONDS_MAX} s", taken is not None)
        return {"stall ms": figures["stall_ms_max"], "failed": figures["failed"], "even within s": taken}

    def reading(self):
        self.title("Reading at the same time, 300 MB/s each way")
        self.limited(300 * MB, 300 * MB)
        for name, read in (("written, and read", self.read_by_clients), ("written, and staged out", self.staged_out)):
            try:
                self.written_and_read(name, read)
            except Left as why:
                self.leave_out("reading", name, why)

    def written_and_read(self, name, read_meanwhile):
        """Writes files while certified ones are read, in turn with the file system; `read_meanwhile` returns bytes and seconds."""
        plain, ours = [], []
        for _ in range(self.asked.rounds):
            services = self.services(1)
            load = ["--producers", 8, "--size", EVENT, "--memory", self.asked.producer_memory, "--file-bytes", 128 * MB]
            self.rig.count += 1
            # More than can be read meanwhile.
            first = self.rig.produce(f"older{self.rig.count}", services, [*load, "--bytes", self.asked.bytes])
            first.finish(RUN_SECONDS)
            self.rig.running.remove(first)
            files = self.rig.certified(first.run)
            older = max((services[0].volumes[0] / "parts").glob("*"), key=lambda path: path.stat().st_size)
            plain.append(self.file_system(self.asked.bytes // 2, 8, older))
            self.rig.count += 1
            second = self.rig.produce(f"newer{self.rig.count}", services, [*load, "--bytes", self.asked.bytes // 2])
            read, seconds = read_meanwhile(second, services[0], files)
            figures = second.finish(RUN_SECONDS)
            self.rig.running.remove(second)
            ours.append({"mb_s": figures["bytes"] / figures["seconds"] / MB, "read_mb_s": read / seconds / MB})
            self.rig.end(*services)
        sums = [(one["mb_s"] + one["read_mb_s"]) / (other["mb_s"] + other["read_mb_s"]) for one, other in zip(ours, plain)]
        self.row("reading", name, {
            "DISK MB/s": f"{median(plain, 'mb_s'):.0f}+{median(plain, 'read_mb_s'):.0f}",
            "MB/s": f"{median(ours, 'mb_s'):.0f}+{median(ours, 'read_mb_s'):.0f}",
            "SHARE %": 100 * statistics.median(sums)})

    def read_by_clients(self, producer, service, files):
        read, begun = 0, time.monotonic()
        while producer.is_running():
            self.read_one(files[0]["lfn"], service)
            read += files[0]["size"]
            files.append(files.pop(0))
        return read, time.monotonic() - begun

    def staged_out(self, producer, service, files):
        """The mover copies to a directory in memory, so that the limited disk has its reads only."""
        memory = writer_peers.MEMORY
        if not memory.is_dir() or shutil.disk_usage(memory).free < 2 * self.asked.bytes:
            raise Left(f"{memory} has no room for {2 * self.asked.bytes / 1e9:.0f} GB")
        self.rig.count += 1
        name = f"BENCH::STAGED{self.rig.count}"
        with tempfile.TemporaryDirectory(dir=memory) as place:
            self.rig.ask("se", "add", name, "--prefix", f"file://{place}")
            words = [self.rig.exacat, "writer", "stage-out", "--at", f"http://{service.host}:{service.http_port}", "--to", name,
                     *(file["lfn"] for file in files)]
            begun = time.monotonic()
            environment = {**os.environ, **self.rig.environment, "EXACAT_TOKEN": self.rig.admin_token}
            mover = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True)
            while producer.is_running() and mover.poll() is None:
                time.sleep(0.02)
            seconds = time.monotonic() - begun
            read = sum(path.stat().st_size for path in pathlib.Path(place).rglob("*") if path.is_file())
            told, _ = mover.communicate(timeout=RUN_SECONDS)
            expect("all files are staged out", mover.returncode == 0, told)
        return read, seconds

    def read_one(self, lfn, service):
        """Reads a file by the command, and throws it away."""
        done = self.rig.reads(lfn, service, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        expect(f"{lfn} is read", done.returncode == 0, done.stderr)

    def peers(self):
        self.title("Beside others: 16 programs at once, a file of 128 MiB from memory each, no limit")
        if self.throttle:
            self.throttle.limit()
        writer_peers.compare(self, 16, 128 << 20)


def width_of(head):
    return max(len(head), 7) + 2


def shown(value):
    if isinstance(value, float):
        return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return str(value)


def median(runs, key):
    return statistics.median(one[key] for one in runs)


def remove(directory):
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()


PARTS = ("files", "sizes", "producers", "cpu", "latency", "small", "faults", "reading", "peers")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("exacat")
    arguments.add_argument("--json", action="store_true", help="a document for each row")
    arguments.add_argument("--only", nargs="*", choices=PARTS, default=PARTS, metavar="PART")
    arguments.add_argument("--rows", default="", metavar="TEXT", help="of limited disks, those with this in their names")
    arguments.add_argument("--short", action="store_true", help="a quick look: fewer rows, one round of 256 MB")
    arguments.add_argument("--rounds", type=int, metavar="NUMBER", help=f"of each row [{ROUNDS}]")
    arguments.add_argument("--bytes", type=size_of, metavar="SIZE", help="of each run [2GB]")
    arguments.add_argument("--memory", default="1GiB", metavar="SIZE", help="of a service")
    arguments.add_argument("--producer-memory", default="32MiB", metavar="SIZE", help="of each producer")
    arguments.add_argument("--directory", help="on the disk that is measured [the temporary one]")
    asked = arguments.parse_args()
    asked.rounds = asked.rounds or (SHORT_ROUNDS if asked.short else ROUNDS)
    asked.bytes = asked.bytes or (SHORT_RUN_BYTES if asked.short else RUN_BYTES)
    if asked.rounds < 1 or asked.bytes < 1:
        arguments.error("--rounds and --bytes are at least 1")
    begun = time.monotonic()
    with rig_in(asked.exacat, asked.directory) as rig:
        bench = Bench(asked, rig)
        try:
            for part in PARTS:
                if part not in asked.only:
                    continue
                try:
                    getattr(bench, part)()
                except Left as why:
                    bench.leave_out(part, f"{part}: left out", str(why))
                except Failed as why:
                    bench.leave_out(part, f"{part}: FAILED", str(why))
                    rig.clear()
        finally:
            rig.close()
            if bench.throttle:
                bench.throttle.close()
    if not asked.json:
        say(f"\n{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    try:
        main()
    except Failed as why:
        sys.exit(f"bench-writer: {why}")
