"""Faults of writer services, producers, disks and the catalogue, on real processes under load.

Each function takes a rig and a load, and returns figures. It raises Failed if an acknowledged event is not in exactly one
certified file, once and in order, and Left if the fault cannot be made here.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import zlib

from clients_rig import Failed, Left, expect, free_port, wait_until
from writer_rig import EVENT_HEAD, PATTERN, TOP, bytes_below, check_run, tail

# Longest times that a producer may stand still, as docs/operating/writer.md promises them.
KILL_STALL_MS_MAX = 2_000
# Time that a hanging service hangs, and that a catalogue is away.
HANG_SECONDS, AWAY_SECONDS = 10, 5
# Memory of a program of producers beside that of `--memory`: code, threads, buffers of sockets.
PRODUCER_BESIDE_BYTES = 192 << 20
# The allocator returns freed memory at once, and reserves none ahead: the peak is what the program holds.
PRODUCER_ALLOCATOR = {"MIMALLOC_PURGE_DELAY": "0", "MIMALLOC_ARENA_EAGER_COMMIT": "0"}
# Attempts to begin.
BEGINNINGS_MAX = 5
# Size of the file system that fills up.
SMALL_BYTES = 160 << 20
EIO = 5
SHIM = pathlib.Path(__file__).with_name("writer_shim.c")


@dataclasses.dataclass
class Load:
    """What producers send."""

    seconds: int = 8
    producers: int = 6
    streams: int = 1
    size: str = "1KiB..60KiB"
    # Events a second of all producers together; 0 for as many as they can.
    rate: int = 2_000
    file_bytes: str = "8MB"
    # Bytes of events that each producer may keep.
    memory: int = 32 << 20
    memory_of_service: str = "128MiB"
    stall_ms_max: int = KILL_STALL_MS_MAX

    def options(self):
        words = ["--producers", self.producers, "--streams", self.streams, "--size", self.size, "--seconds", self.seconds,
                 "--file-bytes", self.file_bytes, "--memory", self.memory]
        return words + (["--rate", self.rate] if self.rate else [])

    def of_service(self, free_min="64MiB"):
        return ["--memory", self.memory_of_service, "--free-min", free_min, "--orphan", "20s"]


def begin(rig, load, count, title, **more):
    """Services, and a producer that writes to all of them."""
    services = rig.start_services(count, load.of_service(), **more)
    return services, sending(rig, load, services, title)


def sending(rig, load, services, title):
    """A producer whose bytes reach the services."""
    for _ in range(BEGINNINGS_MAX):
        rig.count += 1
        producer = rig.produce(f"{title}{rig.count}", services, load.options(), environment=PRODUCER_ALLOCATOR)
        before = written(services)
        wait_until("bytes reach the services", lambda: written(services) > before + (2 << 20) or not producer.is_running())
        if producer.is_running():
            return producer
        rig.running.remove(producer)
        # On a machine with other work it gives up before a service had time to answer.
        expect("the producer sends", "answered within" in tail(producer.log), tail(producer.log))
    raise Failed(f"the producer reaches no service: {tail(producer.log)}")


def written(services):
    return sum(service.written() for service in services)


def more_is_written(services, count=4 << 20):
    """Waits until more bytes are in the parts of services."""
    before = written(services)
    wait_until("more is written", lambda: written(services) >= before + count)


def judge(rig, load, producer, what=None):
    """Waits for a producer, and proves what its figures say."""
    figures = producer.finish(load.seconds + 180)
    is_whole = producer.status == 0 and figures["certified"] == figures["files"]
    expect("all files are certified", is_whole, f"{figures}\n{tail(producer.log)}")
    expect("the producer has sent something", figures["events"] > 0, figures)
    bound = load.memory * load.producers
    expect("its memory for events is bounded", figures["memory_bytes_max"] <= bound, figures)
    expect("its memory is bounded", producer.peak <= bound + PRODUCER_BESIDE_BYTES, f"{producer.peak >> 20} MiB")
    checked = check_run(rig, producer.run, figures["events"] - figures["shed"])
    expect("nothing is certified that was not sent", checked.events == figures["events"] - figures["shed"],
           f"{checked.events}: {figures}")
    told = {"events": checked.events, "files": checked.files, "stall_ms": figures["stall_ms_max"],
            "ack_p99_ms": figures["ack_ms"]["p99"], "ack_max_ms": figures["ack_ms"]["max"], "duplicates": figures["duplicates"],
            "reconnects": figures["reconnects"], "memory_mib": producer.peak >> 20, **(what or {})}
    rig.running.remove(producer)
    return told


def stall_is_short(load, told):
    expect(f"no producer stands still for {load.stall_ms_max} ms", told["stall_ms"] <= load.stall_ms_max, told)


class Made:
    """Certified files that are made up, for the checker."""

    def __init__(self, *files):
        self.contents = {f"/{at}": b"".join(events) for at, events in enumerate(files)}
        self.counts = {f"/{at}": len(events) for at, events in enumerate(files)}

    def certified(self, run):
        return [{"lfn": lfn, "size": len(content), "checksums": [f"adler32:{zlib.adler32(content):08x}"],
                 "tags": {"run": run, "events": self.counts[lfn]}} for lfn, content in self.contents.items()]

    def read_back(self, lfn):
        return self.contents[lfn]


def event(number, size=100, producer=3, stream=1):
    begin = number % len(PATTERN) + EVENT_HEAD.size
    rest = (PATTERN * (size // len(PATTERN) + 3))[begin:begin + size - EVENT_HEAD.size]
    return EVENT_HEAD.pack(size, producer, stream, number) + rest


# ---- what is tried -------------------------------------------------------------------------------


def checker(rig, load):
    """No fault of a service: files that are made up, to see that the checker finds what is wrong."""
    right = [event(number, size) for number, size in enumerate([16, 100, 1000, 70_000, 17])]
    damaged = bytearray(right[3])
    damaged[60_000] ^= 1
    checked = check_run(Made(right[:2], right[2:]), "5", 5)
    expect("right files are right", (checked.files, checked.events) == (2, 5), checked)
    wrong = {"missing between": (right[:2], right[3:]), "missing at the beginning": (right[1:],),
             "missing at the end": (right[:4],), "twice in a file": (right[:2] + right[1:],),
             "in two files": (right[:3], right[2:]), "out of order": (right[:1] + right[2:3] + right[1:2] + right[3:],),
             "damaged": (right[:3] + [bytes(damaged)] + right[4:],), "cut": (right[:4] + [right[4][:-1]],)}
    for what, files in wrong.items():
        try:
            check_run(Made(*files), "5", 5)
        except Failed:
            continue
        raise Failed(f"the checker finds nothing wrong with events that are {what}")
    return {"found": len(wrong)}


def nothing(rig, load):
    """Two services and no fault: both have a share of the bytes."""
    services, producer = begin(rig, load, 2, "plain")
    told = judge(rig, load, producer)
    shares = [service.written() for service in services]
    told["share"] = round(min(shares) / max(1, sum(shares)), 2)
    rig.end(*services)
    return told


def new_directories(rig, load):
    """Directories that are made with the first file: the producer goes on to use them."""
    services = rig.start_services(1, load.of_service())
    for below in (f"{TOP}/new/deep", f"{TOP}/new/deep", f"{TOP}/new"):
        rig.count += 1
        producer = rig.produce(f"new{rig.count}", services, ["--producers", 2, "--size", "20kB", "--events", 40, "--file-events",
                                                             10], below=below)
        told = judge(rig, dataclasses.replace(load, producers=2, memory=256 << 20), producer)
    owners = {json.loads(rig.ask("--json", "stat", name))["owner"] for name in (f"{TOP}/new", f"{TOP}/new/deep")}
    expect("the directories are the producer's", owners == {"daq"}, owners)
    rig.end(*services)
    return told


def service_killed(rig, load):
    """kill -9 of one of two services under load, and its restart."""
    services, producer = begin(rig, load, 2, "kill")
    more_is_written(services[:1], 1 << 20)
    services[0].kill()
    more_is_written(services[1:])
    services[0].start_again()
    told = judge(rig, load, producer)
    rig.end(*services)
    stall_is_short(load, told)
    return told


def service_hangs(rig, load):
    """SIGSTOP of one of two services for 10 s."""
    services, producer = begin(rig, load, 2, "hang")
    more_is_written(services[:1], 1 << 20)
    services[0].signal(signal.SIGSTOP)
    end = time.monotonic() + HANG_SECONDS
    more_is_written(services[1:])
    wait_until("it has hung for long enough", lambda: time.monotonic() >= end)
    services[0].signal(signal.SIGCONT)
    told = judge(rig, load, producer)
    rig.end(*services)
    stall_is_short(load, told)
    # Producers go elsewhere when the service is silent, and do not wait until it goes on.
    expect("no event waits for the service that hangs", told["ack_max_ms"] < 1000 * HANG_SECONDS, told)
    return told


def producer_killed(rig, load):
    """kill -9 of one of two programs of producers: the other goes on, and nothing half is in the catalogue."""
    services, producer = begin(rig, load, 2, "dead")
    other = sending(rig, load, services, "other")
    wait_until("a file is certified", lambda: rig.certified(producer.run))
    producer.kill()
    told = judge(rig, load, other)
    checked = check_run(rig, producer.run)
    told["files_of_killed"] = checked.files
    told["listed"] = sum(len(listed(service)) for service in services)
    expect("files that are not certified are listed", told["listed"] > 0)
    rig.end(*services)
    return told


def listed(service):
    """The files of a service that are not certified. Each has a reason."""
    files = service.files("open", "closed", "failed")
    expect("each has a reason", all(one["reason"] for one in files), files)
    return files


def catalogue_away(rig, load):
    """The catalogue killed, and started again after 5 s."""
    services, producer = begin(rig, load, 2, "away")
    rig.catalogue.kill()
    rig.running.remove(rig.catalogue)
    end = time.monotonic() + AWAY_SECONDS
    wait_until("it was away for long enough", lambda: time.monotonic() >= end)
    rig.start_catalogue()
    told = judge(rig, load, producer)
    rig.end(*services)
    return told


def all_killed(rig, load):
    """kill -9 of all services and of the catalogue at once, and their restart; the producers go on."""
    services, producer = begin(rig, load, 2, "all")
    for process in [*services, rig.catalogue]:
        process.kill()
    rig.running.remove(rig.catalogue)
    rig.start_catalogue()
    for service in services:
        service.start_again()
    told = judge(rig, load, producer)
    rig.end(*services)
    return told


def power_cut(rig, load):
    """kill -9 of everything, producers too: what was certified is whole, what was not is listed."""
    services, producer = begin(rig, load, 2, "power")
    wait_until("files are certified", lambda: len(rig.certified(producer.run)) >= 2)
    for process in [producer, *services, rig.catalogue]:
        process.kill()
    before = producer.told()
    rig.running.remove(rig.catalogue)
    rig.start_catalogue()
    for service in services:
        service.start_again()
    checked = check_run(rig, producer.run)
    expect("certified files are there again", checked.files >= 2, f"{checked.files} files, told {before}")
    told = {"files": checked.files, "events": checked.events,
            "listed": sum(len(listed(service)) for service in services)}
    rig.end(*services)
    return told


def three_services(rig, load):
    """Three services, one of them killed at a time, in turn."""
    load = dataclasses.replace(load, seconds=max(load.seconds, 12))
    services, producer = begin(rig, load, 3, "three")
    kills = 0
    for service in services:
        others = [other for other in services if other is not service]
        if not producer.is_running():
            break
        service.kill()
        kills += 1
        with contextlib.suppress(Exception):
            more_is_written(others)
        service.start_again()
    told = judge(rig, load, producer, {"kills": kills})
    rig.end(*services)
    return told


def disk_full(rig, load):
    """The volume of one of two services becomes full."""
    place = rig.fresh("small")
    image = place.with_suffix(".img")
    with open(image, "wb") as file:
        file.truncate(SMALL_BYTES)
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        raise Left("only root mounts a small file system, by mkfs.ext4")
    made = subprocess.run(["mkfs.ext4", "-q", image], capture_output=True, text=True, timeout=60)
    mounted = made.returncode == 0 and subprocess.run(["mount", "-o", "loop", image, place], capture_output=True, timeout=60)
    if not mounted or mounted.returncode != 0:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "none", place], capture_output=True,
                                 timeout=60)
        if mounted.returncode != 0:
            raise Left(f"no small file system can be mounted: {mounted.stderr}")
    try:
        # It is to meet the end of the space, and not to know of it before.
        (place / "volume").mkdir()
        ports = free_port(), free_port()
        seeds = [["--seeds", f"127.0.0.1:{port}"] for port in reversed(ports)]
        small = rig.service([place / "volume"], [*load.of_service(free_min="0B"), *seeds[0]], name=f"small{rig.count}",
                            port=ports[0])
        other = rig.service([rig.fresh("volume")], [*load.of_service(), *seeds[1]], port=ports[1])
        small.wait_ready()
        other.wait_ready()
        load = dataclasses.replace(load, rate=0, seconds=max(6, load.seconds // 2))
        producer = sending(rig, load, [small, other], "full")
        told = judge(rig, load, producer)
        told["small_mib"] = bytes_below(place) >> 20
        rig.end(small, other)
        return told
    finally:
        for process in [one for one in rig.running if one.name.startswith("small")]:
            process.kill()
        subprocess.run(["umount", "-l", place], capture_output=True, timeout=60)
        image.unlink(missing_ok=True)


def failing(rig, load, title, settings):
    """Two services; the calls of the first for its disk fail as the settings say."""
    compiler = shutil.which("cc")
    if not compiler:
        raise Left("there is no C compiler for the disk that fails")
    library, told_by = rig.place / "writer_shim.so", rig.fresh("shim") / "told"
    if not library.exists():
        done = subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, SHIM, "-ldl"], capture_output=True,
                              text=True, timeout=60)
        if done.returncode != 0:
            raise Left(f"the disk that fails is not compiled: {done.stderr}")
    shim = {"LD_PRELOAD": str(library), "SHIM_ERROR": str(EIO), "SHIM_TOLD": str(told_by),
            **{name: str(value) for name, value in settings.items()}}
    services, producer = begin(rig, load, 2, title, environment=[shim, {}])
    told = judge(rig, load, producer)
    failures = told_by.read_text().splitlines() if told_by.exists() else []
    expect("the disk has failed", failures)
    told["failed_calls"] = len(failures)
    rig.end(*services)
    return told


def sync_fails(rig, load):
    """EIO of one fdatasync of a part: its file goes on elsewhere."""
    return failing(rig, load, "sync", {"SHIM_CALL": "sync", "SHIM_PATH": "/parts/", "SHIM_AFTER": 40, "SHIM_COUNT": 1})


def write_fails(rig, load):
    """EIO of three writes of parts."""
    return failing(rig, load, "write", {"SHIM_CALL": "write", "SHIM_PATH": "/parts/", "SHIM_AFTER": 40, "SHIM_COUNT": 3})


def index_fails(rig, load):
    """EIO of every sync of an index from one moment on: its volume takes nothing more."""
    return failing(rig, load, "index", {"SHIM_CALL": "sync", "SHIM_PATH": "/index/", "SHIM_AFTER": 60, "SHIM_COUNT": 0})


ALL = [checker, nothing, new_directories, service_killed, service_hangs, producer_killed, catalogue_away, all_killed, power_cut, three_services,
       disk_full, sync_fails, write_fails, index_fails]
SHORT = [checker, nothing, new_directories, service_killed, sync_fails, all_killed]
