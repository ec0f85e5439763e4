"""The peers of the writer service: xrdcp to a stock xrootd, and curl to nginx. Their files come from memory, as ours do."""

import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import time

from clients_rig import Left, expect, free_port, is_open, wait_until
from writer_rig import TOP, Process, cpu_seconds, tail

MEMORY = pathlib.Path("/dev/shm")
CLIENT_SECONDS = 300
NOBODY = 65534
# Packages of Debian that are unpacked and not installed: an installed nginx would start.
UNPACKED = {"nginx": "usr/sbin/nginx"}
INSTALLED = ("xrootd-server", "xrootd-client", "curl")


def tree_cpu(pid):
    """CPU seconds of a process and of its children that run."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu_seconds(pid) + sum(cpu_seconds(child) for child in children)


def fetched(package):
    """The program of a package of Debian, unpacked below target/peers."""
    place = pathlib.Path("target/peers").resolve() / package
    program = place / UNPACKED[package]
    if not program.exists():
        place.mkdir(parents=True, exist_ok=True)
        if not shutil.which("apt-get") or not shutil.which("dpkg"):
            raise Left(f"{package} is not here, and there is no apt")
        done = subprocess.run(["apt-get", "download", "-qq", package], cwd=place, capture_output=True, text=True, timeout=300)
        found = list(place.glob("*.deb"))
        if done.returncode != 0 or not found:
            raise Left(f"apt does not fetch {package}: {done.stderr.strip()[-200:]}")
        subprocess.run(["dpkg", "-x", found[0], place], check=True, timeout=60)
    return program


def install():
    """Installs what is missing, as root and by apt; what cannot be had is left out by its row."""
    missing = [name for name, program in zip(INSTALLED, ("xrootd", "xrdcp", "curl")) if not shutil.which(program)]
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        words = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
        subprocess.run(words, capture_output=True, timeout=600, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


class Peer:
    """A server, the command that sends it a file, and what its answer promises."""

    def __init__(self, bench):
        self.bench, self.rig = bench, bench.rig
        self.place, self.port, self.pid = bench.rig.fresh("peer"), free_port(), None

    def launch(self, command, user=None):
        if user is not None:
            # It does not run as root.
            os.chmod(self.rig.place, 0o755)
            for path in [self.place, *self.place.rglob("*")]:
                os.chown(path, user, user)
        self.process = Process(f"peer{self.rig.count}", command, self.rig.place, user=user)
        self.rig.running.append(self.process)

        def listens():
            expect(f"{command[0]} serves", self.process.is_running(), tail(self.process.log))
            return is_open(self.port)

        wait_until(f"{command[0]} listens", listens)
        self.pid = self.process.pid

    def stop(self):
        self.rig.end(self.process)
        shutil.rmtree(self.place, ignore_errors=True)

    def environment(self):
        return os.environ


class Xrootd(Peer):
    name, promise = "xrdcp to xrootd", "in the page cache, not synced; an interrupted copy begins anew"

    def start(self):
        if not shutil.which("xrootd") or not shutil.which("xrdcp"):
            raise Left("xrootd and xrdcp are not installed")
        (self.place / "files/data").mkdir(parents=True)
        config = self.place / "xrootd.cf"
        config.write_text(f"all.adminpath {self.place}\nall.pidpath {self.place}\noss.localroot {self.place}/files\n"
                          f"all.export /data\nxrd.port {self.port}\n")
        self.launch(["xrootd", "-c", config, "-l", self.place / "log", "-n", "peer"], NOBODY if os.geteuid() == 0 else None)

    def command(self, source, number):
        return ["xrdcp", "-N", "-f", source, f"root://127.0.0.1:{self.port}//data/{number}"]


class Nginx(Peer):
    name, promise = "curl to nginx PUT", "in the page cache, not synced; an interrupted copy begins anew"

    def start(self):
        if not shutil.which("curl"):
            raise Left("curl is not installed")
        program = shutil.which("nginx") or fetched("nginx")
        (self.place / "files").mkdir()
        config = self.place / "nginx.conf"
        user = "user root;\n" if os.geteuid() == 0 else ""
        temporary = "".join(f"    {kind}_temp_path {self.place}/temporary;\n" for kind in ("proxy", "fastcgi", "uwsgi", "scgi"))
        config.write_text(f"""{user}daemon off;
worker_processes 2;
pid {self.place}/pid;
error_log {self.place}/error;
events {{ }}
http {{
    access_log off;
    client_max_body_size 0;
    client_body_temp_path {self.place}/bodies;
{temporary}    server {{ listen 127.0.0.1:{self.port}; location / {{ root {self.place}/files; dav_methods PUT; }} }}
}}
""")
        self.launch([program, "-c", config, "-p", self.place, "-e", self.place / "error"])

    def command(self, source, number):
        return ["curl", "-sSf", "-T", source, f"http://127.0.0.1:{self.port}/{number}"]


class Exacat(Peer):
    name, promise = "exacat writer put", "synced, and certified in the catalogue with its checksum"

    def start(self):
        self.services = self.bench.services(1)
        self.pid = self.services[0].pid
        self.rig.count += 1
        self.below = f"{TOP}/put{self.rig.count}"

    def command(self, source, number):
        return [self.rig.exacat, "writer", "put", "--service", self.services[0].address, f"{self.below}/{number}", source]

    def environment(self):
        return self.rig.of_producer()

    def stop(self):
        self.rig.end(*self.services)
        shutil.rmtree(self.place, ignore_errors=True)


def sent(peer, sources):
    """Sends all files at once. Times in seconds to the last answer, and to the disk; CPU seconds of both sides."""
    server, clients = tree_cpu(peer.pid), resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    running = [subprocess.Popen(list(map(str, peer.command(source, number))), stdin=subprocess.DEVNULL, env=peer.environment(),
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for number, source in enumerate(sources)]
    for process in running:
        _, errors = process.communicate(timeout=CLIENT_SECONDS)
        expect(f"{peer.name} copies", process.returncode == 0, errors.decode(errors="replace")[-500:])
    answered = time.monotonic() - begun
    done = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["sync", "-f", peer.place], check=True, timeout=CLIENT_SECONDS)
    return {"answered": answered, "durable": time.monotonic() - begun, "server": tree_cpu(peer.pid) - server,
            "clients": done.ru_utime + done.ru_stime - clients.ru_utime - clients.ru_stime}


def compare(bench, count, size):
    """A row for each peer, in turns."""
    install()
    free = os.statvfs(MEMORY) if MEMORY.is_dir() else None
    if not free or free.f_bavail * free.f_frsize < 2 * count * size:
        raise Left(f"{MEMORY} has no room for the files")
    place = MEMORY / f"exacat-writer-{os.getpid()}"
    place.mkdir()
    try:
        sources = [place / str(number) for number in range(count)]
        content = os.urandom(1 << 20)
        for source in sources:
            with open(source, "wb") as file:
                for _ in range(size >> 20):
                    file.write(content)
        taken, why = {}, {}
        for _ in range(bench.asked.rounds):
            for kind in (Exacat, Xrootd, Nginx):
                if kind in why:
                    continue
                peer = kind(bench)
                try:
                    peer.start()
                    taken.setdefault(kind, []).append(sent(peer, sources))
                    peer.stop()
                except Left as reason:
                    why[kind] = str(reason)
        total = count * size / 1e9
        for kind, runs in taken.items():
            middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
            bench.row("peers", kind.name, {
                "MB/s": total * 1000 / middle["answered"], "TO DISK": total * 1000 / middle["durable"],
                "CPU s/GB": middle["server"] / total, "CLIENTS s/GB": middle["clients"] / total})
        for kind in taken:
            bench.note(f"{kind.name}: what is answered is {kind.promise}.")
        for kind, reason in why.items():
            bench.leave_out("peers", f"{kind.name}: left out", reason)
    finally:
        shutil.rmtree(place, ignore_errors=True)
