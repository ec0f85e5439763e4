"""A replay in a directory of its own: traces, an origin without disk, real XCaches, the service, agents."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request

from clients_rig import Failed, Left, expect, free_port, is_open, wait_until

# Signals by which a program ends that has a defect.
DEFECTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL}
LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
BLOCK = 1 << 20
# A cache gives up an origin that is away after seconds, not minutes.
IMPATIENT = {"XRD_CONNECTIONWINDOW": "3", "XRD_CONNECTIONRETRY": "1", "XRD_REQUESTTIMEOUT": "20",
             "XRD_STREAMTIMEOUT": "20", "XRD_TIMEOUTRESOLUTION": "1", "XRD_STREAMERRORWINDOW": "1"}
# Hosts that do not answer are asked for the names of addresses otherwise.
QUICK = {"RES_OPTIONS": "timeout:1 attempts:1"}


def need_xcache():
    if not shutil.which("xrootd") or not (LIBRARIES / "libXrdPfc-5.so").exists():
        raise Left("XCache is not installed (Debian: xrootd-server xrootd-server-plugins)")


class Cache:
    """An XCache 5, run as nobody."""

    def __init__(self, rig, name, origin, collect, prefetch=0, block=BLOCK, space=None, usage="0.98 0.99", more=""):
        self.rig, self.name, self.port, self.place = rig, name, free_port(), rig.place / name
        for directory in ["ns", "admin"]:
            (self.place / directory).mkdir(parents=True)
        self.space = space or self.place / "space"
        for directory in ["data", "meta"]:
            (self.space / directory).mkdir(parents=True, exist_ok=True)
        (self.place / "cf").write_text(f"""xrd.port {self.port}
all.role server
all.export /data
all.adminpath {self.place}/admin
all.pidpath {self.place}/admin
oss.localroot {self.place}/ns
oss.space data {self.space}/data
oss.space meta {self.space}/meta
ofs.osslib libXrdPss.so
pss.cachelib libXrdPfc.so
pss.origin {origin}
pfc.spaces data meta
pfc.ram 1g
pfc.blocksize {block}
pfc.prefetch {prefetch}
pfc.diskusage {usage}
xrootd.async off
xrootd.mongstream pfc use flush 1s maxlen 1500 send json insthdr 127.0.0.1:{collect}
xrootd.monitor all auth flush 1s window 1s fstat 1s lfn ops xfr 1 dest files fstat info user 127.0.0.1:{collect}
xrd.report 127.0.0.1:{collect} every 5s all
{more}
""")
        self.process = None
        self.start()

    @property
    def url(self):
        return f"root://127.0.0.1:{self.port}"

    def start(self):
        user = {}
        if os.geteuid() == 0:
            # It does not run as root.
            for top in [self.place, self.space]:
                for path in [top, *top.rglob("*")]:
                    with contextlib.suppress(FileNotFoundError):
                        os.chown(path, 65534, 65534, follow_symlinks=False)
            user = {"user": 65534, "group": 65534}
        command = ["xrootd", "-c", str(self.place / "cf"), "-l", str(self.place / "log"), "-n", self.name]
        self.process = self.rig.start(command, self.name, env=dict(os.environ, **IMPATIENT, **QUICK), cwd=self.place, **user)
        wait_until(f"the cache {self.name} listens", lambda: is_open(self.port) or self.process.poll() is not None)
        expect(f"the cache {self.name} runs", self.process.poll() is None, self.rig.tail(self.name))

    def crashed(self):
        """The signal of its own defect that ended it, if one did."""
        return signal.Signals(-self.process.returncode).name if -(self.process.poll() or 0) in DEFECTS else None

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def clear(self):
        """Removes everything from a cache that is stopped: 5.5.3 has no command for that."""
        for directory in [self.place / "ns", self.space / "data", self.space / "meta"]:
            shutil.rmtree(directory)
            directory.mkdir()


class Rig:
    def __init__(self, exacat):
        self.exacat = exacat
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="exacat-replay-"))
        self.place.chmod(0o755)
        self.processes, self.origin, self.service, self.caches = [], None, None, []
        self.mounts, self.sent_before = [], {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.kill()
            process.wait()
        for mount in self.mounts:
            subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(self.place, ignore_errors=True)

    def start(self, command, name, **options):
        log = open(self.place / f"{name}.log", "ab")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options)
        log.close()
        self.processes.append(process)
        return process

    def tail(self, name):
        path = self.place / f"{name}.log"
        return path.read_text(errors="replace")[-2000:] if path.exists() else ""

    def serving(self, args, name):
        """Starts a command that says in its first line, as JSON, where it is."""
        log = open(self.place / f"{name}.log", "ab")
        process = subprocess.Popen([self.exacat, "--json", *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=log, text=True)
        log.close()
        self.processes.append(process)
        line = process.stdout.readline()
        expect(f"{name} starts", line, self.tail(name))
        return process, json.loads(line)

    # ---- traces --------------------------------------------------------------------------------------------

    def trace(self, rows):
        """Writes a trace of rows (seconds, name, size, reads). Checksums come from the origin's content."""
        plain = self.place / "plain.tsv"
        plain.write_text("time\tname\tsize\treads\n" + "".join(
            f"{1_700_000_000 + at:.6f}\t{name}\t{size}\t{reads}\n" for at, name, size, reads in rows))
        path = self.place / "t.trace"
        self.run("replay", "import", plain, "--out", path, "--columns", "time=time,name=name,size=size,reads=reads")
        return path

    def run(self, *args, status=0):
        done = subprocess.run([self.exacat, *map(str, args)], capture_output=True, text=True, timeout=280)
        if done.returncode != status:
            raise Failed(f"exacat {' '.join(map(str, args))}: status {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
        return done.stdout

    def json(self, *args, status=0):
        return json.loads(self.run("--json", *args, status=status))

    # ---- the parts -----------------------------------------------------------------------------------------

    def start_origin(self, trace, *options):
        process, said = self.serving(["replay", "origin", "--trace", trace, "--listen", "127.0.0.1:0",
                                      "--control", "127.0.0.1:0", *options], "origin")
        self.origin = {"process": process, "control": said["control"], "place": said["url"].split("//")[1]}

    def order(self, path):
        request = urllib.request.Request(f"{self.origin['control']}/api/v1/origin/{path}", method="POST")
        urllib.request.urlopen(request, timeout=20).close()

    def origin_bytes(self):
        with urllib.request.urlopen(f"{self.origin['control']}/api/v1/origin", timeout=20) as answer:
            return json.load(answer)["bytes_out"]

    def start_service(self, trace, *options):
        at = self.service or {"port": free_port(), "collect": free_port()}
        process, said = self.serving(
            ["replay", "serve", "--trace", trace, "--runs", self.place / "runs", "--listen", f"127.0.0.1:{at['port']}",
             "--collect", f"127.0.0.1:{at['collect']}", "--origin", self.origin["control"], *options], "service")
        self.service = {**at, "process": process, "url": said["url"]}
        os.environ["EXACAT_REPLAY"] = said["url"]

    def kill_service(self):
        self.service["process"].kill()
        self.service["process"].wait()

    def cache(self, name="cache", origin=None, **options):
        cache = Cache(self, name, origin or self.origin["place"], self.service["collect"], **options)
        self.caches.append(cache)
        return cache

    def create(self, run, *options):
        self.sent_before[run] = self.origin_bytes()
        self.run("replay", "run", "create", run, "--start", "--block", BLOCK, *options)

    def agent(self, run, cache, *options, name=None):
        log = self.place / f"agent-{name or run}.json"
        command = [self.exacat, "--json", "replay", "agent", "--run", run, "--cache", cache, *options]
        if name:
            command += ["--name", name]
        process = self.start_to(list(map(str, command)), log)
        return process, log

    def start_to(self, command, path):
        with open(path, "wb") as out, open(f"{path}.log", "ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, env=dict(os.environ, **QUICK))
        self.processes.append(process)
        return process

    def finish(self, agent, status=0):
        process, log = agent
        try:
            process.wait(240)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"an agent does not end: {self.service_state()}") from error
        expect(f"an agent ends with {status}", process.returncode == status,
               f"status {process.returncode}\n{pathlib.Path(f'{log}.log').read_text()[-1500:]}")
        text = log.read_text()
        return json.loads(text) if text else None

    def service_state(self):
        with contextlib.suppress(Exception):
            return self.run("replay", "run", "ls")
        return "the service does not answer"

    def whole(self, run, cache, *options, agents=1, create=()):
        """A run from its creation to its end. Returns its report."""
        self.create(run, *create)
        made = [self.agent(run, cache, *options, name=f"{run}-{number}") for number in range(agents)]
        for agent in made:
            self.finish(agent)
        return self.report(run)

    def ended(self, run):
        return self.json("replay", "run", "show", run)["ended"]

    def until_ended(self, run, count):
        wait_until(f"{count} accesses of {run} end", lambda: self.ended(run) >= count)

    def report(self, run, records=None):
        """Returns the report of a run that is done; with `records`, once caches have told of so many files."""
        def told():
            report = self.json("replay", "report", run)
            return report, sum(cache["records"] for cache in report["cache_records"] if cache["place"] == 0)
        self.run("replay", "run", "wait", run)
        begun = time.monotonic()
        while True:
            report, count = told()
            # The service asks the origin every second, and caches tell of files after they were closed.
            sent = sum(origin["bytes_out"] for origin in report["origins"])
            has_origin = sent >= self.origin_bytes() - self.sent_before[run] or time.monotonic() > begun + 5
            if has_origin and (records is None or count >= records) or time.monotonic() > begun + 60:
                return report
            time.sleep(0.3)

    # ---- what must hold ------------------------------------------------------------------------------------

    def complete(self, report, accesses, failed=0):
        """Every item has exactly one final result, and the sums of all tables are the same."""
        totals = report["totals"]
        expect("every access has one result", totals["accesses"] == accesses, totals)
        expect(f"{failed} accesses failed", failed is None or totals["errors"] == failed, report["outcomes"])
        expect("the outcomes are all accesses", sum(row["accesses"] for row in report["outcomes"]) == accesses, report["outcomes"])
        handing = report["handing_out"]
        expect("nothing is under a lease", handing["in_flight"] == 0, handing)
        expect("no result was refused", handing["refused_results"] == 0, handing)

    def share(self, report, quantity, view):
        for row in report["hits"]:
            if row["quantity"] == quantity and row["view"] == view:
                return row["share"] if "share" in row else (row["part"] / row["of"] if row["of"] else 0)
        raise Failed(f"the report has no hits of {quantity} by {view}: {report['hits']}")


def zipf(seed, files, accesses, sizes=(200_000, 3_000_000), every=0.01, reads="-"):
    """Rows of a trace: files of some sizes, the first ones read the most."""
    rng = random.Random(seed)
    size = [rng.randrange(*sizes) for _ in range(files)]
    weights = [1 / (rank + 1) for rank in range(files)]
    chosen = rng.choices(range(files), weights, k=accesses)
    return [(at * every, f"/data/f{file:04}", size[file], reads) for at, file in enumerate(chosen)]
