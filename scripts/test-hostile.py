#!/usr/bin/env python3
"""`make test-hostile`: clients that mean no good, or do not know better, many at once, against a server of its own; beside
them one that behaves, every 20 ms. Prints what came of it: the server's memory, and how long the one that behaves waited.

Usage: test-hostile.py EXACAT-BINARY [--connections N] [--seconds N] [--only TEXT] [--nice N]

It fails if a client gets another answer than it should, if the server's memory grows beyond what is said for each, or if the
one that behaves is not answered. Times are shown and not judged: the machine is shared.
"""

import argparse
import asyncio
import base64
import json
import os
import pathlib
import resource
import ssl
import struct
import subprocess
import sys
import tempfile
import time

from clients_rig import Failed, expect, free_port, say

HANDSHAKE = struct.pack(">5i", 0, 0, 0, 4, 2012)
STAT, OPEN, LOGIN, PROTOCOL, DIRLIST, PING = 3017, 3010, 3007, 3006, 3004, 3011
OK, SO_FAR, ERROR, WAIT = 0, 4000, 4003, 4005
MEGABYTE = 1 << 20
# Connections opened at once: the backlog of a listener is finite, and a handshake that takes 10 s is given up.
AT_ONCE = 10
# Files of the directory that is listed.
MANY = 20_000
# Megabytes of answers that clients may leave unread, all together: the server's default.
UNREAD = 256
# Times within which one that behaves is answered, beside its times alone.
WITHIN = 2
# Milliseconds below which that is noise.
NOISE_MS = 5
# Megabytes by which the memory of a server varies whatever is done.
NOISE = 32


def request(number, carried=b"", body=b"", stream=1):
    return struct.pack(">HH", stream, number) + body.ljust(16, b"\0") + struct.pack(">i", len(carried)) + carried


class Root:
    """A client of XRootD, as far as it goes."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, rig):
        root = cls(*await asyncio.open_connection("127.0.0.1", rig.xrootd))
        root.writer.write(HANDSHAKE + request(PROTOCOL, body=struct.pack(">IB", 0x511, 0)) + request(LOGIN, body=struct.pack(">I8s", 1, b"test")))
        for _ in range(3):
            status, carried = await root.answer()
            expect("let in", status == OK, carried)
        return root

    async def answer(self):
        _, status, length = struct.unpack(">HHI", await self.reader.readexactly(8))
        return status, await self.reader.readexactly(length)

    async def ask(self, number, carried=b"", body=b""):
        self.writer.write(request(number, carried, body))
        await self.writer.drain()
        return await self.answer()

    async def ends(self):
        """The server ends it; what it says before."""
        return await asyncio.wait_for(self.reader.read(), 60)

    def close(self):
        self.writer.transport.abort()


class Alien:
    """A websocket, as alien.py holds it."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, rig, context=None):
        reader, writer = await asyncio.open_connection("localhost", rig.jalien, ssl=context or rig.context)
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write(f"GET /websocket/json HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                     f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        alien = cls(reader, writer)
        alien.status = int(head.split()[1])
        return alien

    def frame(self, payload, code=0x81):
        head = bytes([code])
        if len(payload) < 126:
            head += bytes([0x80 | len(payload)])
        elif len(payload) < 1 << 16:
            head += bytes([0x80 | 126]) + struct.pack(">H", len(payload))
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", len(payload))
        return head + b"\0\0\0\0" + payload

    async def message(self):
        """One text, put together; a close frame gives its number."""
        whole = b""
        while True:
            first, length = await self.reader.readexactly(2)
            if length == 126:
                length, = struct.unpack(">H", await self.reader.readexactly(2))
            elif length == 127:
                length, = struct.unpack(">Q", await self.reader.readexactly(8))
            payload = await self.reader.readexactly(length)
            if first & 15 == 8:
                return struct.unpack(">H", payload[:2])[0]
            whole += payload
            if first & 0x80:
                return whole

    async def ask(self, command, *options):
        self.writer.write(self.frame(json.dumps({"command": command, "options": options}).encode()))
        await self.writer.drain()
        return json.loads(await self.message())

    def close(self):
        self.writer.transport.abort()


class Web:
    """A connection of HTTP/1, plain."""

    def __init__(self, reader, writer, token):
        self.reader, self.writer, self.token = reader, writer, token

    @classmethod
    async def connect(cls, rig):
        # The kernel would take megabytes for those that do not read.
        return cls(*await asyncio.open_connection("127.0.0.1", rig.http, limit=1 << 16), rig.token)

    def send(self, method, path, *headers, body=b""):
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {self.token}", *headers, "", ""]
        self.writer.write("\r\n".join(lines).encode() + body)

    async def answer(self):
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length:")[1].split()[0])
        return int(head.split()[1]), await self.reader.readexactly(length)

    async def ends(self):
        """The server ends it; what it says before."""
        try:
            return await asyncio.wait_for(self.reader.read(), 120)
        except ConnectionError:
            return b""

    def close(self):
        self.writer.transport.abort()


class Http2:
    """A connection of HTTP/2, frame by frame."""

    @classmethod
    async def connect(cls, rig, window=1 << 20):
        context = rig.trusting()
        context.set_alpn_protocols(["h2"])
        http2 = cls()
        http2.reader, http2.writer = await asyncio.open_connection("localhost", rig.http, ssl=context)
        http2.head = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in [
            (b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"localhost"), (b":path", b"/api/v1/children/many"),
            (b"accept", b"application/x-ndjson"), (b"authorization", f"Bearer {rig.token}".encode())])
        http2.writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2.frame(4, 0, 0, struct.pack(">HI", 4, window)))
        return http2

    @staticmethod
    def frame(kind, flags, stream, payload=b""):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    async def floods(self, frames, held=0):
        """Sends as fast as it can until the server ends it, and holds the connection; the bytes sent."""
        sent = 0
        try:
            for bytes_ in frames:
                if self.writer.transport.is_closing():
                    break
                self.writer.write(bytes_)
                await self.writer.drain()
                # Draining an empty buffer does not let the loop see the end of the connection.
                await asyncio.sleep(0)
                if self.reader.at_eof() or self.reader.exception():
                    break
                sent += len(bytes_)
            await asyncio.sleep(held)
        except (ConnectionError, ssl.SSLError):
            pass
        self.close()
        return sent

    def close(self):
        self.writer.transport.abort()


class Rig:
    def __init__(self, exacat, place, connections):
        self.place, self.data = pathlib.Path(place), pathlib.Path(place) / "data"
        self.exacat = exacat
        self.xrootd, self.jalien, self.http = free_port(), free_port(), free_port()
        self.connections = connections
        command = [exacat, "--data", str(self.data), "serve", "--listen", "none", "--xrootd", f"127.0.0.1:{self.xrootd}",
                   "--jalien", f"127.0.0.1:{self.jalien}", "--http", f"127.0.0.1:{self.http}", "--http-plain", "--anonymous-reads", "--connections", str(connections * 2 + 500),
                   "--unauthenticated", str(connections + 500), "--unauthenticated-per-address", str(connections + 500)]
        self.server = subprocess.Popen(command, stdout=open(self.place / "log", "wb"), stderr=subprocess.STDOUT)
        end = time.monotonic() + 60
        while not (self.data / "server.json").exists():
            if time.monotonic() > end or self.server.poll() is not None:
                raise Failed(f"it does not serve: {(self.place / 'log').read_text()}")
            time.sleep(0.05)
        self.context = self.trusting(self.data / "jalien/admin.crt", self.data / "jalien/admin.key")
        self.token = (self.data / "admin.token").read_text().strip()
        names = "".join(json.dumps({"lfn": f"/many/file{number:05}"}) + "\n" for number in range(MANY))
        self.run("mkdir", "-p", "/d")
        self.run("register", "-p", "/d/f", "--size", "11")
        done = subprocess.run([exacat, "--data", str(self.data), "register", "-p", "--size", "1", "-"], input=names, text=True,
                              capture_output=True)
        expect("files are registered", done.returncode == 0, done.stderr)

    def run(self, *words):
        done = subprocess.run([self.exacat, "--data", str(self.data), *words], capture_output=True, text=True)
        expect(" ".join(words), done.returncode == 0, done.stderr)
        return done.stdout

    def trusting(self, certificate=None, key=None):
        context = ssl.create_default_context(cafile=str(self.data / "server.crt"))
        if certificate:
            context.load_cert_chain(str(certificate), str(key))
        return context

    def memory(self):
        """Megabytes that the server holds."""
        for line in pathlib.Path(f"/proc/{self.server.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise Failed("the server is gone")

    def files(self):
        return len(os.listdir(f"/proc/{self.server.pid}/fd"))


class Ports:
    """Where a server is, for the one that behaves."""

    def __init__(self, xrootd, jalien, http, data):
        self.xrootd, self.jalien, self.http, self.data = int(xrootd), int(jalien), int(http), pathlib.Path(data)
        self.token = (self.data / "admin.token").read_text().strip()
        self.context = Rig.trusting(self, self.data / "jalien/admin.crt", self.data / "jalien/admin.key")


async def behave(ports):
    """Asks over all protocols until standard input ends; prints how long each answer took."""
    root, alien, web = await Root.connect(ports), await Alien.connect(ports), await Web.connect(ports)
    times, over = {"xrootd": [], "jalien": [], "http": []}, asyncio.Event()

    async def stat_root():
        status, carried = await root.ask(STAT, b"/d/f")
        expect("a stat", status == OK and b" 11 " in carried, carried)

    async def stat_alien():
        told = await alien.ask("stat", "-nomsg", "/d/f")
        expect("a stat", told["results"][0]["size"] == "11", told)

    async def stat_web():
        web.send("GET", "/api/v1/entries/d/f")
        status, told = await web.answer()
        expect("a stat", status == 200 and json.loads(told)["size"] == 11, told)

    async def go(name, stat):
        while not over.is_set():
            began = time.monotonic()
            await asyncio.wait_for(stat(), 60)
            times[name].append(1000 * (time.monotonic() - began))
            await asyncio.sleep(0.02)

    async def end():
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        over.set()

    print("ready", flush=True)
    await asyncio.gather(go("xrootd", stat_root), go("jalien", stat_alien), go("http", stat_web), end())
    print(json.dumps(times), flush=True)


class Beside:
    """One that behaves, in a process of its own, as long as something goes on; and what the server holds meanwhile."""

    def __init__(self, rig):
        self.rig, self.over, self.times = rig, False, {}

    async def __aenter__(self):
        rig, pipe = self.rig, asyncio.subprocess.PIPE
        words = [sys.executable, __file__, "--beside", f"{rig.xrootd},{rig.jalien},{rig.http},{rig.data}", rig.exacat]
        # The one that behaves competes with the server only.
        words = ["nice", "-n", str(-rig.nice), *words] if rig.nice else words
        self.process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, limit=1 << 26)
        expect("the one that behaves is let in", await self.process.stdout.readline() == b"ready\n")
        self.before = self.most = rig.memory()
        self.most_files = rig.files()
        self.watching = asyncio.create_task(self.watch())
        return self

    async def watch(self):
        while not self.over:
            self.most = max(self.most, self.rig.memory())
            self.most_files = max(self.most_files, self.rig.files())
            await asyncio.sleep(0.2)

    async def __aexit__(self, kind, *_):
        self.over = True
        await self.watching
        self.process.stdin.close()
        told = await self.process.stdout.read()
        if await self.process.wait() != 0 and kind is None:
            raise Failed("the one that behaves was not served")
        self.times = json.loads(told or b"{}")

    def median(self, name):
        times = sorted(self.times.get(name, []))
        return times[len(times) // 2] if times else 0

    def told(self, name):
        times = sorted(self.times.get(name, []))
        if not times:
            return "none"
        return f"{len(times):>5} {times[len(times) // 2]:>7.1f} {times[int(0.99 * (len(times) - 1))]:>7.1f}"


async def gathered(makes):
    """So many at a time."""
    made, gate = [], asyncio.Semaphore(AT_ONCE)

    async def one(make):
        async with gate:
            made.append(await make())

    await asyncio.gather(*(one(make) for make in makes))
    return made


# ---- what they do --------------------------------------------------------------------------------------------------------


async def nothing_yet(rig, seconds):
    """nobody else is there"""
    await asyncio.sleep(seconds)
    return "", NOISE


async def idle_root(rig, seconds):
    """connections of XRootD on which nothing is asked"""
    roots = await gathered([lambda: Root.connect(rig)] * rig.connections)
    await asyncio.sleep(seconds)
    status, _ = await roots[-1].ask(PING)
    expect("the last one is answered", status == OK)
    for root in roots:
        root.close()
    # Each holds a buffer for what it reads.
    return f"{len(roots)} connections", NOISE + rig.connections * 24 / 1024


async def idle_alien(rig, seconds):
    """connections of alien.py on which nothing is asked"""
    aliens = await gathered([lambda: Alien.connect(rig)] * rig.connections)
    expect("all are let in", all(alien.status == 101 for alien in aliens))
    await asyncio.sleep(seconds)
    told = await aliens[-1].ask("pwd", "-nokeys")
    expect("the last one is answered", told["results"], told)
    for alien in aliens:
        alien.close()
    return f"{len(aliens)} connections", NOISE + rig.connections * 96 / 1024


async def frames(rig, seconds):
    """frames that are too long, cut off, or none"""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for length in [0x7fffffff, -1, 65537, -0x80000000]:
            root = await Root.connect(rig)
            root.writer.write(struct.pack(">HH", 1, STAT) + bytes(16) + struct.pack(">i", length))
            said = await root.ends()
            expect("it is said that it is too long", said[2:4] == struct.pack(">H", ERROR), said)
            root.close()
        root = await Root.connect(rig)
        root.writer.write(request(STAT, b"/d/f")[:30])
        root.close()
        for said in [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, os.urandom(200)]:
            reader, writer = await asyncio.open_connection("127.0.0.1", rig.xrootd)
            writer.write(said)
            await asyncio.wait_for(reader.read(), 60)
            writer.transport.abort()
        alien = await Alien.connect(rig)
        alien.writer.write(alien.frame(b"x" * (2 * MEGABYTE)))
        expect("1009, too long", await alien.message() == 1009)
        alien.close()
        for payload, code, number in [(b"\xff\xfe", 0x81, 1007), (b"{}", 0x82, 1003)]:
            alien = await Alien.connect(rig)
            alien.writer.write(alien.frame(payload, code))
            expect(f"{number}", await alien.message() == number)
            alien.close()
        count += 11
    return f"{count} of them", 64


async def slow_readers(rig, seconds):
    """clients that ask for long answers and read nothing"""
    each = min(500, rig.connections // 2)
    roots = await gathered([lambda: Root.connect(rig)] * each)
    aliens = await gathered([lambda: Alien.connect(rig)] * each)
    for root in roots:
        root.writer.transport.pause_reading()
        root.writer.write(request(DIRLIST, b"/many", body=b"\0" * 15 + b"\2") * 16)
    for alien in aliens:
        alien.writer.transport.pause_reading()
        alien.writer.write(alien.frame(b'{"command": "ls", "options": ["-l", "/many"]}') * 16)
    await asyncio.sleep(seconds)
    # Who reads is told long answers all the same.
    root, alien = await Root.connect(rig), await Alien.connect(rig)
    began = time.monotonic()
    status, carried = await root.ask(DIRLIST, b"/many")
    # Those that read nothing are of the same user as this one: as long as theirs are being made, it may be told to wait.
    while status == WAIT:
        await asyncio.sleep(1)
        status, carried = await root.ask(DIRLIST, b"/many")
    while status == SO_FAR:
        status, more = await root.answer()
        carried += more
    expect("all names", status == OK and len(carried.split(b"\n")) == MANY, (status, carried[:100]))
    told = await alien.ask("ls", "-nokeys", "/many")
    expect("all names", len(told["results"]) == MANY)
    took = time.monotonic() - began
    for one in [root, alien, *roots, *aliens]:
        one.close()
    # What all of them share, and for each a small part and the buffers on its way, those of TLS too.
    return f"{2 * each} clients, {took:.1f} s", NOISE + UNREAD + each * (64 + 256) / 1024


async def flood(rig, seconds):
    """requests sent ahead as fast as they go, answers read"""
    end, count = time.monotonic() + seconds, [0]

    async def root_client():
        root = await Root.connect(rig)
        while time.monotonic() < end:
            root.writer.write(request(STAT, b"/d/f") * 1000)
            for _ in range(1000):
                status, _ = await root.answer()
                expect("a stat", status == OK)
            count[0] += 1000
        root.close()

    async def alien_client():
        alien = await Alien.connect(rig)
        while time.monotonic() < end:
            alien.writer.write(alien.frame(b'{"command": "stat", "options": ["-nomsg", "/d/f"]}') * 500)
            for _ in range(500):
                expect("an answer", b'"11"' in await alien.message())
            count[0] += 500
        alien.close()

    await asyncio.gather(*[root_client() for _ in range(8)], *[alien_client() for _ in range(8)])
    return f"{count[0]} requests", 128


async def certificates(rig, seconds):
    """certificates of nobody, of another authority, or none"""
    place = rig.place / "nobody"
    place.mkdir(exist_ok=True)
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/O=exacat/CN=Users/CN=admin/OU=admin",
            "-keyout", str(place / "key"), "-out", str(place / "pem")]
    if subprocess.run(made, capture_output=True).returncode != 0:
        raise Failed("openssl makes no certificate")
    wrong = rig.trusting(place / "pem", place / "key")
    none = rig.trusting()
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for alien in await gathered([lambda: Alien.connect(rig, wrong), lambda: Alien.connect(rig, none)] * 10):
            expect("401", alien.status == 401, alien.status)
            alien.close()
            count += 1
    return f"{count} clients", 64


async def envelopes(rig, seconds):
    """envelopes that are forged, of another file, or come again"""
    alien = await Alien.connect(rig)
    rig.run("se", "add", "VO::S::E", "--prefix", "root://se.example//data", "--qos", "disk")
    md5 = "d41d8cd98f00b204e9800998ecf8427e"

    async def reserved(lfn):
        told = await alien.ask("access", "-nomsg", "-s", "11", "-m", md5, "write", lfn)
        return told["results"][0]

    async def commit(envelope, lfn, place):
        told = await alien.ask("commit", "-nomsg", envelope, "11", lfn, "644", "0", place["url"], place["se"], place["guid"], md5)
        return int(told["metadata"].get("exitcode", "0"))

    one, other = await reserved("/d/one"), await reserved("/d/other")
    head, claims, signature = one["envelope"].split(".")
    forged = json.loads(base64.urlsafe_b64decode(claims + "=="))
    forged["exacat"]["lfn"] = "/d/forged"
    forged = base64.urlsafe_b64encode(json.dumps(forged).encode()).decode().rstrip("=")
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for envelope in ["", "x", f"{head}.{claims}.", f"{none}.{claims}.", f"{head}.{forged}.{signature}",
                         f"{head}.{claims}.{signature[:-4]}AAAA", other["envelope"]]:
            expect("it is refused", await commit(envelope, "/d/one", one) != 0, envelope)
            count += 1
    expect("the right one is taken", await commit(one["envelope"], "/d/one", one) == 0)
    # Once more it says what is so, and nothing changes.
    before = rig.run("--json", "stat", "/d/one")
    await commit(one["envelope"], "/d/one", one)
    expect("nothing changes", rig.run("--json", "stat", "/d/one") == before)
    rig.run("rm", "/d/one")
    expect("of what was removed it brings nothing back", await commit(one["envelope"], "/d/one", one) != 0)
    alien.close()
    return f"{count} commits", 64


async def paths(rig, seconds):
    """paths that try to lead elsewhere"""
    root, alien = await Root.connect(rig), await Alien.connect(rig)
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for path, good in [(b"/d/../d/f", False), (b"/..", False), (b"/d/f\0/x", False), (b"/%2e%2e/d/f", False), (b"//d///f", True),
                           (b"/d/\xff", False), (b"/" + b"y/" * 600, False), (b"/d/f?../../etc", True)]:
            for number in [STAT, OPEN]:
                status, carried = await root.ask(number, path)
                fine = status == OK if good and number == STAT else status == ERROR
                expect(f"{path[:30]} of {number}", fine, (status, carried[:200]))
                count += 1
        for path, good in [("/d/../d/f", True), ("/../../etc/passwd", False), ("/%2e%2e/d/f", False), ("//d///f", True), ("/d/f\0", False)]:
            told = await alien.ask("stat", "-nomsg", path)
            expect(f"{path!r}", (told["metadata"].get("exitcode", "0") == "0") == good, told)
            count += 1
    root.close()
    alien.close()
    return f"{count} paths", 64


async def http_idle(rig, seconds):
    """connections of HTTP that were answered once, then idle"""
    webs = await gathered([lambda: Web.connect(rig)] * rig.connections)
    for web in webs:
        web.send("GET", "/livez")
    for web in webs:
        expect("it is answered", (await web.answer())[0] == 200)
    await asyncio.sleep(seconds)
    health = await Web.connect(rig)
    health.send("GET", "/healthz")
    expect("health", (await health.answer())[0] == 200)
    for web in webs:
        web.close()
    return f"{len(webs)} connections", NOISE + rig.connections * 24 / 1024


async def http_slow(rig, seconds):
    """HTTP headers and bodies that come by bytes"""
    each, end = min(1000, rig.connections // 4), time.monotonic() + seconds
    heads = await gathered([lambda: Web.connect(rig)] * each)
    bodies = await gathered([lambda: Web.connect(rig)] * each)
    for web in heads:
        web.writer.write(b"GET /api/v1/whoami HTTP/1.1\r\nX: ")
    for number, web in enumerate(bodies):
        kind = "application/x-ndjson" if number % 2 else "application/json"
        web.send("POST", ["/api/v1/find", "/api/v1/entries"][number % 2], f"Content-Type: {kind}", "Content-Length: 1000000")
    while time.monotonic() < end:
        for web in [*heads, *bodies]:
            if not web.writer.transport.is_closing():
                web.writer.write(b" ")
        await asyncio.sleep(0.5)
    for web in [*heads, *bodies]:
        web.close()
    return f"{2 * each} clients", NOISE + each * (24 + 96) / 1024


async def http_garbage(rig, seconds):
    """a gigabyte of garbage: raw, in lines, in one line, in TLS"""
    noise, sent, end = os.urandom(MEGABYTE), 0, time.monotonic() + 60 * seconds
    lines = b"\n".join(noise[at:at + 4000].replace(b"\n", b"") for at in range(0, MEGABYTE, 4000)) + b"\n"
    ndjson = ("Content-Type: application/x-ndjson", "Transfer-Encoding: chunked")
    kinds = [
        (None, noise),
        (("POST", "/api/v1/entries", *ndjson), lines),
        (("POST", "/api/v1/entries", *ndjson), noise.replace(b"\n", b"")),
        (("POST", "/api/v1/find", "Content-Type: application/json", "Transfer-Encoding: chunked"), noise),
        (("PROPFIND", "/dav/d", "Transfer-Encoding: chunked"), noise),
        (None, b"\x16\x03\x01" + noise),
    ]
    while sent < 1024 and time.monotonic() < end:
        for head, garbage in kinds:
            web = await Web.connect(rig)
            reading = asyncio.create_task(web.ends())
            if head:
                web.send(*head)
                garbage = b"%x\r\n%s\r\n" % (len(garbage), garbage)
            try:
                for _ in range(16):
                    web.writer.write(garbage)
                    await web.writer.drain()
                    sent += 1
                if head:
                    web.writer.write(b"0\r\n\r\n")
                    web.writer.write_eof()
            except ConnectionError:
                # The server has read enough of it.
                sent += 1
            try:
                await asyncio.wait_for(reading, 1)
            except asyncio.TimeoutError:
                pass
            web.close()
    return f"{sent} MB", 128


async def http_chunks(rig, seconds):
    """chunked bodies that are cut off, wrong, or of single bytes"""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for bad in [b"5\r\nab", b"zz\r\n", b"ffffffffffffffffff\r\n", b"-1\r\n", b"5;" + b"x" * 20_000 + b"\r\n", b"1\r\nxyz", b"", b"0\r\nA: b",
                    b"1\r\n \r\n" * 2000]:
            for path, kind in [("/api/v1/find", "application/json"), ("/api/v1/entries", "application/x-ndjson")]:
                web = await Web.connect(rig)
                web.send("POST", path, f"Content-Type: {kind}", "Transfer-Encoding: chunked", body=bad)
                web.writer.write_eof()
                said = await web.ends()
                expect("an error or an empty answer", b" 500 " not in said[:20], said)
                web.close()
                count += 1
    return f"{count} requests", 64


async def http_unread(rig, seconds):
    """HTTP clients that ask for long answers and read nothing"""
    each = min(500, rig.connections // 4)
    webs = await gathered([lambda: Web.connect(rig)] * each)
    for number, web in enumerate(webs):
        web.writer.transport.pause_reading()
        for _ in range(50):
            if number % 2:
                web.send("GET", "/api/v1/children/many", "Accept: application/x-ndjson")
            else:
                web.send("GET", "/api/v1/children/many?limit=10000")
    await asyncio.sleep(seconds)
    web = await Web.connect(rig)
    web.send("GET", "/api/v1/children/many?limit=1000")
    status, page = await web.answer()
    expect("a page", status == 200 and len(json.loads(page)["items"]) > 0, page[:200])
    for one in [web, *webs]:
        one.close()
    return f"{each} clients", NOISE + UNREAD + each * 256 / 1024


async def http_frames(rig, seconds):
    """HTTP/2: resets, settings, pings, endless headers, closed windows"""
    sent, frame = 0, Http2.frame
    for name in ["reset", "settings", "ping", "continuation", "empty", "windows"]:
        made = await gathered([lambda: Http2.connect(rig, 0 if name == "windows" else 1 << 20)] * 8)
        held = seconds if name == "windows" else 0

        def flood(one, name=name):
            streams = range(1, 2_000_000, 2)
            if name == "reset":
                return (frame(1, 5, stream, one.head) + frame(3, 0, stream, struct.pack(">I", 8)) for stream in streams)
            if name == "settings":
                return (frame(4, 0, 0, struct.pack(">HI", 3, 1)) * 100 for _ in streams)
            if name == "ping":
                return (frame(6, 0, 0, bytes(8)) * 100 for _ in streams)
            if name == "continuation":
                return (frame(9, 0, 1, bytes(16384)) if stream > 1 else frame(1, 1, 1, one.head) for stream in streams)
            if name == "empty":
                return (frame(0, 0, 1) * 100 if stream > 1 else frame(1, 4, 1, one.head) for stream in streams)
            return (frame(1, 5, stream, one.head) for stream in range(1, 256, 2))

        try:
            sent += sum(await asyncio.wait_for(asyncio.gather(*(one.floods(flood(one), held) for one in made)), 2 * max(seconds, 5)))
        except asyncio.TimeoutError:
            # The server answers settings and pings as long as the client reads.
            for one in made:
                one.close()
    return f"{sent // MEGABYTE} MB", NOISE + UNREAD


SCENES = [nothing_yet, idle_root, idle_alien, frames, slow_readers, flood, certificates, envelopes, paths,
          http_idle, http_slow, http_garbage, http_chunks, http_unread, http_frames]


async def all_of_it(rig, seconds, only):
    say(f"{'':<58} {'what':<20} {'MB':>5} {'most':>5} {'after':>5} {'files':>6}   {'xrootd: n, p50, p99 ms':<22}   jalien: n, p50, p99 ms   http: n, p50, p99 ms")
    failed, alone = 0, {}
    for scene in SCENES:
        if only not in scene.__name__ and scene is not nothing_yet:
            continue
        # Connections of the scene before are noticed to be gone one by one.
        end = time.monotonic() + 120
        while rig.files() > 100 and time.monotonic() < end:
            await asyncio.sleep(0.2)
        beside = Beside(rig)
        try:
            async with beside:
                what, room = await scene(rig, seconds)
        except (Failed, OSError, asyncio.IncompleteReadError, asyncio.TimeoutError) as why:
            failed += 1
            said = (rig.place / "log").read_text(errors="replace").splitlines()[-3:]
            say("\n".join([f"FAILED {scene.__name__}: {why!r}", *said]))
            continue
        await asyncio.sleep(1)
        say(f"{scene.__doc__:<58} {what:<20} {beside.before:>5.0f} {beside.most:>5.0f} {rig.memory():>5.0f} {beside.most_files:>6}   "
            f"{beside.told('xrootd'):<22}   {beside.told('jalien'):<22}   {beside.told('http')}")
        alone = alone or {name: beside.median(name) for name in beside.times}
        slow = [name for name, time_alone in alone.items() if beside.median(name) > max(WITHIN * time_alone, NOISE_MS)]
        if slow:
            say(f"  slower than {WITHIN} times alone: {', '.join(slow)}")
        if beside.most - beside.before > room:
            failed += 1
            say(f"FAILED {scene.__name__}: memory grew by more than {room:.0f} MB")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exacat")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--nice", type=int, default=0,
                        help="let the others yield the processors to the server and the one that behaves, as root: 19")
    parser.add_argument("--beside", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.beside:
        return asyncio.run(behave(Ports(*asked.beside.split(",", 3))))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # The server serves twice as many and 500 more, and keeps some hundred files for itself.
    room = (hard - 2000) // 2
    if asked.connections > room:
        say(f"{hard} files may be open here: {room} connections in place of {asked.connections}")
        asked.connections = room
    with tempfile.TemporaryDirectory(prefix="exacat-hostile-") as place:
        rig = Rig(os.path.realpath(asked.exacat), place, asked.connections)
        rig.nice = asked.nice
        os.nice(asked.nice)
        try:
            failed = asyncio.run(all_of_it(rig, asked.seconds, asked.only))
        finally:
            rig.server.terminate()
            try:
                rig.server.wait(30)
            except subprocess.TimeoutExpired:
                rig.server.kill()
    say(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
