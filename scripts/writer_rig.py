"""What the scripts of the writer share: a catalogue, writer services and producers as processes, a group of a slower disk,
and the checker that reads certified files back.

Tests in network namespaces give `inside=["ip", "netns", "exec", NAME]` to a service or a producer: the catalogue is reached
by its socket, which is in no namespace.
"""

import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zlib

from clients_rig import PATIENCE, Failed, Left, expect, free_port, wait_until

SE = "DEMO::DAQ::WRITER"
TOP = "/daq"
# Longest time for a service to end in order, and for a producer to end after its last event.
END_SECONDS = 60
TICKS = os.sysconf("SC_CLK_TCK")
# Time between two looks at the memory of a process.
MEMORY_EVERY = 0.2
DIES_WITH_PARENT = 1


def dies_with_parent():
    """Lets a process end with this script, also when that is killed."""
    ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)


def cpu_seconds(pid):
    """User and system time of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_memory(pid):
    """Largest resident memory of a process so far, in bytes; 0 once it has ended."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def bytes_below(directory):
    """Sum of the sizes of the files below a directory, where others make and remove files."""
    total = 0
    for root, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(root, name)).st_size
    return total


def tail(path, count=1500):
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")[-count:]
    return ""


class Process:
    """A child process with files for its output."""

    def __init__(self, name, command, place, environment=None, inside=(), group=None, user=None):
        self.name, self.out, self.log = name, place / f"{name}.out", place / f"{name}.log"
        with open(self.out, "wb") as out, open(self.log, "ab") as log:
            self.process = subprocess.Popen([*map(str, inside), *map(str, command)], stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=log, env={**os.environ, **(environment or {})},
                                            preexec_fn=dies_with_parent, user=user, group=user)
        if group:
            group.add(self.pid)

    @property
    def pid(self):
        return self.process.pid

    def is_running(self):
        # Leaves an end for others to see: its CPU time is there until it is waited for.
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return self.process.returncode is None and os.waitid(os.P_PID, self.pid, how) is None

    def told(self):
        """The documents that it wrote so far."""
        found = []
        for line in self.out.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def announced(self, patience=PATIENCE):
        """Waits for the document that it prints when it serves."""
        def has_told():
            expect(f"{self.name} serves", self.is_running(), tail(self.log))
            return bool(self.told())

        wait_until(f"{self.name} serves", has_told, patience)
        return self.told()[0]

    def signal(self, number):
        if self.is_running():
            self.process.send_signal(number)

    def kill(self):
        """Ends it as a power cut would."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """Ends it in order."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            return self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failed(f"{self.name} did not end within {END_SECONDS} s of SIGTERM: {tail(self.log)}") from None


class Service(Process):
    """A running writer service. It starts again on the same volumes and addresses."""

    def __init__(self, rig, name, volumes, options=(), **more):
        self.rig, self.volumes, self.options, self.more = rig, [pathlib.Path(path) for path in volumes], options, more
        self.label = name
        self.port, self.http_port = more.pop("port", None) or free_port(), free_port()
        self.host = more.pop("host", "127.0.0.1")
        self.address = f"{self.host}:{self.port}"
        self.launch()

    def launch(self):
        words = [self.rig.exacat, "--json", "writer", "serve", "--se", SE, "--listen", self.address, "--http",
                 f"{self.host}:{self.http_port}", *self.options]
        for volume in self.volumes:
            words += ["--volume", volume]
        # Its addresses are left in a directory of its own, as on a machine of its own.
        data = self.rig.place / f"data-{self.label}"
        data.mkdir(exist_ok=True)
        environment = {**self.rig.environment, "EXACAT_DATA": str(data), "EXACAT_TOKEN": self.rig.admin_token,
                       **self.more.get("environment", {})}
        super().__init__(self.label, words, self.rig.place, **{**self.more, "environment": environment})

    def wait_ready(self):
        self.view = self.announced()
        return self

    def start_again(self):
        expect(f"{self.name} has ended", not self.is_running())
        self.launch()
        return self.wait_ready()

    def asks(self, path):
        """An answer of its HTTP, as an operator gets it."""
        request = urllib.request.Request(f"http://{self.host}:{self.http_port}/api/v1/writer/{path}",
                                         headers={"Authorization": f"Bearer {self.rig.admin_token}"})
        return json.load(urllib.request.urlopen(request, timeout=30))

    def files(self, *stages):
        """The files that it knows in these stages."""
        found = []
        for stage in stages:
            after = ""
            while after is not None:
                page = self.asks(f"files?stage={stage}{after}")
                found += page["files"]
                after = page["next"] and f"&after={page['next']}"
        return found

    def written(self):
        """Bytes in the parts of all its volumes."""
        return sum(bytes_below(volume / "parts") for volume in self.volumes)


class Producer(Process):
    """A running `exacat writer produce`."""

    def __init__(self, rig, run, services, options=(), below=TOP, **more):
        self.run = run
        addresses = ",".join(service if isinstance(service, str) else service.address for service in services)
        words = [rig.exacat, "--json", "writer", "produce", "--service", addresses, "--below", below, "--run", run,
                 *map(str, options)]
        self.peak, self.cpu = 0, 0.0
        environment = {**rig.environment, "EXACAT_TOKEN": rig.token, **more.pop("environment", {})}
        super().__init__(f"produce-{run}", words, rig.place, environment=environment, **more)
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while self.process.returncode is None:
            self.peak = max(self.peak, peak_memory(self.pid))
            with contextlib.suppress(OSError, IndexError):
                self.cpu = cpu_seconds(self.pid)
            time.sleep(MEMORY_EVERY)

    def finish(self, seconds):
        """Waits for its end, and returns its figures."""
        end = time.monotonic() + seconds
        while self.is_running():
            if time.monotonic() > end:
                raise Failed(f"{self.name} is not done within {seconds} s: {tail(self.log)}")
            time.sleep(0.02)
        self.cpu = cpu_seconds(self.pid)
        status = self.process.wait()
        told = [one for one in self.told() if "events" in one]
        expect(f"{self.name} ends with status {status} and no figures", told, tail(self.out) + tail(self.log))
        self.status = status
        return told[-1]


class Rig:
    """A catalogue with a storage element and an account for producers, and the processes that use them."""

    def __init__(self, exacat, place):
        self.exacat, self.place = os.path.abspath(exacat), pathlib.Path(place)
        self.data = self.place / "catalogue"
        # Nothing is read from or left in the directories of who runs this.
        self.environment = {"EXACAT_SERVER": f"unix:{self.data}/exacat.sock", "EXACAT_DATA": str(self.data)}
        self.running, self.count = [], 0

    def start(self):
        self.start_catalogue()
        self.ask("user", "add", "daq")
        self.ask("mkdir", "-p", TOP)
        self.ask("chown", "daq:daq", TOP)
        self.ask("se", "add", SE, "--prefix", "http://127.0.0.1:1/content")
        self.token, self.admin_token = self.issue("daq"), self.issue("admin")

    def issue(self, user):
        return json.loads(self.ask("--json", "token", "issue", "--user", user, "--write", "--lifetime", "1d"))["secret"]

    def start_catalogue(self):
        (self.data / "server.json").unlink(missing_ok=True)
        self.catalogue = Process("catalogue", [self.exacat, "--data", self.data, "serve", "--listen", "127.0.0.1:0"], self.place)
        self.running.append(self.catalogue)

        def answers():
            expect("the catalogue serves", self.catalogue.is_running(), tail(self.catalogue.log))
            return self.tries("whoami").returncode == 0

        wait_until("the catalogue answers", answers)

    def tries(self, *words, seconds=120):
        """Runs a command of exacat, whatever comes of it."""
        return subprocess.run([self.exacat, *map(str, words)], capture_output=True, text=True, timeout=seconds,
                              env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL)

    def ask(self, *words, seconds=120):
        done = self.tries(*words, seconds=seconds)
        expect(f"exacat {' '.join(map(str, words))}: status {done.returncode}", done.returncode == 0, done.stdout + done.stderr)
        return done.stdout

    def fresh(self, name):
        """A new directory."""
        self.count += 1
        directory = self.place / f"{name}-{self.count}"
        directory.mkdir()
        return directory

    def start_services(self, count, options=(), **more):
        """Starts services that know each other by a list of addresses."""
        ports = [free_port() for _ in range(count)]
        services = []
        for number, port in enumerate(ports):
            seeds = ",".join(f"127.0.0.1:{other}" for other in ports if other != port)
            words = [*options, *(["--seeds", seeds] if seeds else [])]
            services.append(self.service([self.fresh("volume")], words, name=f"writer{self.count}", port=port,
                                         **{key: value[number] for key, value in more.items()}))
        for service in services:
            service.wait_ready()
        return services

    def service(self, volumes, options=(), name=None, **more):
        """Starts a service; `wait_ready` waits for it."""
        self.count += 1
        service = Service(self, name or f"writer{self.count}", volumes, options, **more)
        self.running.append(service)
        return service

    def produce(self, run, services, options=(), **more):
        producer = Producer(self, run, services, options, **more)
        self.running.append(producer)
        return producer

    def certified(self, run):
        """The files of a run in the catalogue."""
        lines = self.ask("--json", "find", TOP, "-t", "f", "--tag", f"run={run}").splitlines()
        return [json.loads(line) for line in lines]

    def read_back(self, lfn):
        """The content of a certified file, from a service that runs."""
        services = [one for one in self.running if isinstance(one, Service) and one.is_running()]
        told = []
        for service in services:
            done = self.reads(lfn, service)
            if done.returncode == 0:
                return done.stdout
            told.append(f"{service.name}: {done.stderr.decode(errors='replace').strip()}")
        raise Failed(f"{lfn} is not read back\n" + "\n".join(told))

    def reads(self, lfn, service, **more):
        """Runs the command that reads a file."""
        words = [self.exacat, "writer", "cat", "--at", f"http://{service.host}:{service.http_port}", lfn]
        return subprocess.run(words, stdin=subprocess.DEVNULL, env=self.of_producer(), timeout=300,
                              **(more or {"capture_output": True}))

    def of_producer(self):
        return {**os.environ, **self.environment, "EXACAT_TOKEN": self.token}

    def end(self, *processes):
        """Stops services, and removes their volumes."""
        for process in processes:
            process.stop()
            self.running.remove(process)
            for volume in getattr(process, "volumes", ()):
                shutil.rmtree(volume, ignore_errors=True)

    def clear(self):
        """Ends everything but the catalogue at once, and removes its volumes."""
        for process in [one for one in self.running if one is not self.catalogue]:
            process.kill()
            self.running.remove(process)
            for volume in getattr(process, "volumes", ()):
                shutil.rmtree(volume, ignore_errors=True)

    def close(self):
        for process in reversed(self.running):
            process.kill()


@contextlib.contextmanager
def rig_in(exacat, parent=None, keep=False):
    """A rig in a directory of its own, which is removed at the end, unless it is to be kept after a failure."""
    # SIGTERM ends it in order too: nothing is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    place = pathlib.Path(tempfile.mkdtemp(prefix="exacat-writer-", dir=parent))
    rig = Rig(exacat, place)
    failed = True
    try:
        rig.start()
        yield rig
        failed = False
    finally:
        rig.close()
        if not (failed and keep):
            shutil.rmtree(place, ignore_errors=True)


# ---- the disk as slow as it should be ------------------------------------------------------------


def whole_disk(directory):
    """Numbers of the disk that a directory is on: of the whole, as a throttle takes no partition."""
    device = os.stat(directory).st_dev
    numbers = f"{os.major(device)}:{os.minor(device)}"
    known = pathlib.Path("/sys/dev/block") / numbers
    if not known.exists():
        raise Left(f"{directory} is on no disk that can be throttled")
    if (known / "partition").exists():
        numbers = (known.resolve().parent / "dev").read_text().strip()
    return numbers


class Throttle:
    """A group of processes whose reads and writes of a disk are limited: version 1 or 2 of control groups."""

    def __init__(self, directory):
        if os.geteuid() != 0:
            raise Left("only root throttles a disk")
        self.disk, name = whole_disk(directory), f"exacat-writer-{os.getpid()}"
        first, second = pathlib.Path("/sys/fs/cgroup/blkio"), pathlib.Path("/sys/fs/cgroup")
        try:
            if (first / "blkio.throttle.write_bps_device").exists():
                self.version, self.place = 1, first / name
                self.place.mkdir()
            elif "io" in (second / "cgroup.controllers").read_text().split():
                (second / "cgroup.subtree_control").write_text("+io")
                self.version, self.place = 2, second / name
                self.place.mkdir()
            else:
                raise Left("control groups here do not throttle disks")
        except OSError as error:
            raise Left(f"control groups here do not throttle disks: {error}") from error

    def limit(self, write=0, read=0):
        """Sets bytes a second; 0 for none."""
        if self.version == 1:
            for way, rate in (("write", write), ("read", read)):
                (self.place / f"blkio.throttle.{way}_bps_device").write_text(f"{self.disk} {rate}")
        else:
            (self.place / "io.max").write_text(f"{self.disk} wbps={write or 'max'} rbps={read or 'max'}")

    def add(self, pid):
        (self.place / "cgroup.procs").write_text(str(pid))

    def close(self):
        wait_until("the group is empty", lambda: not (self.place / "cgroup.procs").read_text().strip())
        self.place.rmdir()


# ---- the checker ---------------------------------------------------------------------------------

# An event begins with its length (u32), producer (u16), stream (u16) and number (u64), little-endian; the
# others of its bytes follow from its number. `exacat writer produce --help` has it.
EVENT_HEAD = struct.Struct("<IHHQ")
EVENT_BYTES_MAX = 16 << 20
PATTERN = bytes(at * 31 % 256 for at in range(256))


@dataclasses.dataclass
class Checked:
    """What the certified files of a run have."""

    files: int = 0
    events: int = 0
    bytes: int = 0
    # Numbers of the events of each producer and stream, as (first, behind the last), in file order.
    ranges: dict = dataclasses.field(default_factory=dict)


def events_of(content, pattern):
    """The producer, stream and number of each event of a file, once its bytes are compared with what they should be."""
    at, end = 0, len(content)
    while at < end:
        if end - at < EVENT_HEAD.size:
            raise Failed(f"the file ends in the middle of an event, at {at}")
        length, producer, stream, number = EVENT_HEAD.unpack_from(content, at)
        if length < EVENT_HEAD.size or at + length > end:
            raise Failed(f"an event of {length} bytes at {at} of {end}")
        begin = number % len(PATTERN)
        if content[at + EVENT_HEAD.size:at + length] != pattern[begin + EVENT_HEAD.size:begin + length]:
            raise Failed(f"event {number} of producer {producer}, stream {stream}, at {at}: its bytes are others")
        yield producer, stream, number
        at += length


def check_run(rig, run, minimum=None):
    """Reads all certified files of a run. Each event is in one of them, once, in the order of its producer, and the
    catalogue has the right size, checksum and tags. `minimum` is the number of events that producers have an
    acknowledgement for, where that is known."""
    checked, pieces = Checked(), {}
    pattern = PATTERN * (EVENT_BYTES_MAX // len(PATTERN) + 2)
    for entry in rig.certified(run):
        lfn = entry["lfn"]
        content = rig.read_back(lfn)
        expect(f"{lfn} has its size", len(content) == entry["size"], f"{len(content)} of {entry['size']} bytes")
        right = f"adler32:{zlib.adler32(content):08x}"
        expect(f"{lfn} has its checksum", right in entry["checksums"], f"{right}: {entry['checksums']}")
        last, count = {}, 0
        for producer, stream, number in events_of(content, pattern):
            count += 1
            key = (producer, stream)
            if key in last and last[key][1] == number:
                last[key][1] = number + 1
            elif key in last:
                raise Failed(f"{lfn}: event {number} of {key} comes after {last[key][1] - 1}")
            else:
                last[key] = [number, number + 1]
        tags = entry.get("tags", {})
        expect(f"{lfn} has its number of events", tags.get("events") == count, f"{count}: {tags}")
        expect(f"{lfn} has its run", str(tags.get("run")) == str(run), tags)
        for key, (first, behind) in last.items():
            pieces.setdefault(key, []).append((first, behind, lfn))
        checked.files, checked.events, checked.bytes = checked.files + 1, checked.events + count, checked.bytes + len(content)
    for key, found in pieces.items():
        found.sort()
        for (_, behind, lfn), (first, _, other) in zip(found, found[1:]):
            expect(f"no event of {key} is in two files", behind <= first, f"{lfn} ends before {behind}, {other} begins at {first}")
        checked.ranges[key] = [(first, behind) for first, behind, _ in found]
    if minimum is not None:
        expect("every acknowledged event is in a certified file", checked.events >= minimum,
               f"{checked.events} of {minimum} events in {checked.files} files")
        for key, ranges in checked.ranges.items():
            gaps = [(behind, first) for (_, behind), (first, _) in zip(ranges, ranges[1:]) if behind != first]
            expect(f"no event of {key} is missing", ranges[0][0] == 0 and not gaps, f"begins at {ranges[0][0]}, gaps {gaps}")
    return checked
