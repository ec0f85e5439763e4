#!/usr/bin/env python3
"""`make bench-http`: speed of the REST API, WebDAV and pages of a server of its own, on one machine.

Usage: bench-http.py EXACAT-BINARY [--files N] [--rounds N] [--seconds N] [--only TEXT]

Fills a catalogue over REST (that is the measurement of `register`), then reads it. Server and clients share the machine, so
each row has the server's CPU time beside the wall time. Figures are medians of all rounds. Every answer is counted to its
last row at first; the timed ones must have as many bytes. The bare answer is the same size, from the same HTTP library
without a catalogue, each round in turn with the real one.
"""

import argparse
import http.client
import os
import pathlib
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

from clients_rig import Failed, expect, free_port, say

# Bytes taken from a socket at a time.
READ_BYTES = 1 << 20
# Files in a line-by-line request for places.
BATCH = 10_000
# Connections that register and look up at once.
LANES = 4
# Kept connections of the load of single requests.
CONNECTIONS = 64
SMALL = 1000
# Browsers that show live figures.
BROWSERS = 20
TICK = os.sysconf("SC_CLK_TCK")
NDJSON = "Content-Type: application/x-ndjson\r\nAccept: application/x-ndjson\r\n"


class Process:
    """A server, with its processor time and memory."""

    def __init__(self, command, log):
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def memory(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise Failed("the server is gone")

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def wait_for(port, process):
    end = time.monotonic() + 120
    while time.monotonic() < end and process.process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise Failed("it does not serve")


class Web:
    """A connection that sends requests and counts the bytes of answers."""

    def __init__(self, port, token):
        self.stream = socket.create_connection(("127.0.0.1", port))
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.token, self.buffer, self.rest = token, bytearray(READ_BYTES), b""

    def send(self, method, target, headers="", body=b""):
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n{headers}{length}\r\n"
        self.stream.sendall(head.encode() + body)

    def head(self):
        came = b""
        while b"\r\n\r\n" not in came:
            part = self.stream.recv(READ_BYTES)
            if not part:
                raise Failed(f"the connection ended in {came[:200]}")
            came += part
        head, _, rest = came.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        expect("a good status", status in (200, 207), came[:1000])
        return head, rest

    def chunked(self, mark=b""):
        """Reads an answer in chunks to its end: when its first row came, its bytes, and how often the mark is in it."""
        _, rest = self.head()
        first = time.perf_counter() if rest.count(b"\n") > 1 else 0
        count, total, tail = rest.count(mark) if mark else 0, len(rest), rest[-64:]
        while not tail.endswith(b"\r\n0\r\n\r\n"):
            read = self.stream.recv_into(self.buffer)
            if not read:
                raise Failed("the connection ended in an answer")
            first = first or time.perf_counter()
            total += read
            if mark:
                part = tail[-len(mark) + 1:] + self.buffer[:read] if len(mark) > 1 else self.buffer[:read]
                count += part.count(mark)
            tail = (tail + self.buffer[max(0, read - 64):read])[-64:]
        return first, total, count

    def sized(self):
        """Reads an answer of known length; its bytes in all."""
        head, body = self.head()
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
        while len(body) < length:
            body += self.stream.recv(READ_BYTES)
        return len(head) + 4 + length

    def close(self):
        self.stream.close()


class Bench:
    def __init__(self, exacat, place, asked):
        self.exacat, self.place, self.asked = exacat, pathlib.Path(place), asked
        self.data, self.port = self.place / "data", free_port()
        self.log = open(self.place / "log", "wb")
        self.server = Process([exacat, "--data", str(self.data), "serve", "--listen", "none", "--http",
                               f"127.0.0.1:{self.port}", "--http-plain"], self.log)
        wait_for(self.port, self.server)
        end = time.monotonic() + 60
        while not (self.data / "server.json").exists() and time.monotonic() < end:
            time.sleep(0.02)
        self.token = (self.data / "admin.token").read_text().strip()
        done = subprocess.run([exacat, "--data", str(self.data), "se", "add", "BENCH::ONE", "--prefix", "root://one.example//d"],
                              capture_output=True, text=True)
        done.check_returncode()
        subprocess.run([exacat, "--data", str(self.data), "se", "add", "BENCH::TWO", "--prefix", "root://two.example//d"],
                       capture_output=True, check=True)

    def web(self):
        return Web(self.port, self.token)

    def wants(self, name):
        return self.asked.only in name


def rounded(rate):
    return f"{rate / 1e6:.2f} M" if rate >= 1e6 else f"{rate / 1e3:.0f} k" if rate >= 1e4 else f"{rate:.0f}"


def show(what, rate, cpu, wanted, more=""):
    say(f"{what:<52} {rounded(rate):>8}/s {cpu:>7.2f} µs  {wanted:<42} {more}")


def lfn(number):
    return f"/bench/many/26000{number:09}.{number * 2654435761 % 2**32:08x}.AO2D.root"


def line(name, number):
    return (f'{{"lfn":"{name}","size":{1000000000 + number},"checksums":["md5:{number * 0x9e3779b97f4a7c15 % 2**128:032x}"],'
            f'"replicas":[{{"se":"BENCH::ONE"}},{{"se":"BENCH::TWO"}}]}}\n')


def bodies_in_lanes(bench, target, bodies, rows_each, check):
    """Sends bodies over a few connections at once; seconds, and the server's seconds of CPU."""
    failures, left, lock = [], list(reversed(bodies)), threading.Lock()

    def lane():
        try:
            web = bench.web()
            while True:
                with lock:
                    if not left:
                        return web.close()
                    body = left.pop()
                # Answers come while the request is sent.
                sender = threading.Thread(target=web.send, args=("POST", target, NDJSON, body))
                sender.start()
                _, _, rows = web.chunked(check)
                sender.join()
                expect("a good row for each line", rows == rows_each, (rows, rows_each))
        except Exception as why:
            failures.append(why)

    cpu, began = bench.server.cpu(), time.perf_counter()
    lanes = [threading.Thread(target=lane) for _ in range(LANES)]
    for one in lanes:
        one.start()
    for one in lanes:
        one.join()
    took = time.perf_counter() - began
    if failures:
        raise failures[0]
    return took, bench.server.cpu() - cpu


def fill(bench):
    """Registers all files: the measurement of durable writes."""
    files, before = bench.asked.files, bench.server.memory()
    web = bench.web()
    for name in ["/bench", "/bench/many", "/bench/small"]:
        web.send("PUT", f"/api/v1/directories{name}", "Content-Length: 0\r\n")
        web.sized()
    web.close()
    small = "".join(line(f"/bench/small/file{number:04}.root", number) for number in range(SMALL)).encode()
    bodies_in_lanes(bench, "/api/v1/files", [small], SMALL, b'"result":"created"')
    rates, cpus, most, at = [], [], 0, 0
    while at < files:
        # Made beforehand: the client is not what is measured.
        part = min(20 * BATCH, files - at)
        bodies = ["".join(line(lfn(number), number) for number in range(first, first + BATCH)).encode()
                  for first in range(at, at + part, BATCH)]
        took, cpu = bodies_in_lanes(bench, "/api/v1/files", bodies, BATCH, b'"result":"created"')
        rates.append(part / took)
        cpus.append(1e6 * cpu / part)
        most = max(most, bench.server.memory())
        at += part
    show(f"NDJSON register, durable, {LANES} x {BATCH} lines", statistics.median(rates), statistics.median(cpus),
         ">= 100 k rows/s", f"server {before:.0f} -> {most:.0f} MB")


def whereis(bench):
    rates, cpus = [], []
    chance = random.Random(7)
    for _ in range(bench.asked.rounds):
        bodies = ["".join(f'{{"lfn":"{lfn(chance.randrange(bench.asked.files))}"}}\n' for _ in range(BATCH)).encode()
                  for _ in range(60)]
        took, cpu = bodies_in_lanes(bench, "/api/v1/replicas", bodies, BATCH, b'"replicas":[{')
        rates.append(60 * BATCH / took)
        cpus.append(1e6 * cpu / (60 * BATCH))
    show(f"NDJSON whereis, {LANES} x {BATCH} lines", statistics.median(rates), statistics.median(cpus), ">= 400 k rows/s",
         f"server {bench.server.memory():.0f} MB")


def one_stream(bench):
    """All files in one request, by a client that first reads nothing: the memory of the server meanwhile."""
    files = range(bench.asked.files)
    for name, target, check, lines in [
        ("whereis", "/api/v1/replicas", b'"replicas":[{', (f'{{"lfn":"{lfn(number)}"}}\n' for number in files)),
        ("register, same again", "/api/v1/files?existing=same", b'"result":"unchanged"', (line(lfn(number), number) for number in files)),
    ]:
        body = "".join(lines).encode()
        web, before, cpu, sent, over = bench.web(), bench.server.memory(), bench.server.cpu(), [0], threading.Event()
        most = [before]

        def send():
            web.send("POST", target, f"{NDJSON}Content-Length: {len(body)}\r\n")
            for at in range(0, len(body), READ_BYTES):
                web.stream.sendall(body[at:at + READ_BYTES])
                sent[0] += 1

        def watch():
            while not over.wait(0.02):
                most[0] = max(most[0], bench.server.memory())

        threads = [threading.Thread(target=send), threading.Thread(target=watch)]
        for thread in threads:
            thread.start()
        # The server stops reading once the answers wait.
        last = -1
        while sent[0] != last:
            last = sent[0]
            time.sleep(1)
        began = time.perf_counter()
        _, _, rows = web.chunked(check)
        took = time.perf_counter() - began
        over.set()
        for thread in threads:
            thread.join()
        web.close()
        expect("a good row for each line", rows == bench.asked.files, rows)
        cpu = 1e6 * (bench.server.cpu() - cpu) / bench.asked.files
        show(f"NDJSON {name}, 1 x {bench.asked.files} lines, late reader", rows / took, cpu, "bounded memory",
             f"stopped at {last} of {len(body) // READ_BYTES} MB, server at most +{most[0] - before:.0f} MB")


def listing(bench, name, method, target, headers, mark, rows, repeats):
    web = bench.web()
    web.send(method, target, headers)
    _, bytes_once, count = web.chunked(mark)
    expect(f"{rows} rows", count == rows, count)
    rates, cpus, firsts, most, before = [], [], [], 0, bench.server.memory()
    for _ in range(bench.asked.rounds):
        cpu, began = bench.server.cpu(), time.perf_counter()
        for _ in range(repeats):
            sent = time.perf_counter()
            web.send(method, target, headers)
            first, total, _ = web.chunked()
            expect("all bytes", total > 0.99 * bytes_once, (total, bytes_once))
            firsts.append(1000 * (first - sent))
            most = max(most, bench.server.memory())
        took = time.perf_counter() - began
        rates.append(rows * repeats / took)
        cpus.append(1e6 * (bench.server.cpu() - cpu) / (rows * repeats))
    web.close()
    show(name, statistics.median(rates), statistics.median(cpus), ">= 0.8 M rows/s, first row < 5 ms, bounded",
         f"first row {statistics.median(firsts):.1f} ms, {bytes_once / rows:.0f} B a row, server +{most - before:.0f} MB")


def listings(bench):
    lines, depth = "Accept: application/x-ndjson\r\n", "Depth: 1\r\n"
    files = bench.asked.files
    for rows, directory, repeats in [(SMALL, "/bench/small", 300), (files, "/bench/many", 1)]:
        # A PROPFIND has a row for the directory itself.
        listing(bench, f"NDJSON list of {rows} entries", "GET", f"/api/v1/children{directory}", lines, b'{"lfn":', rows, repeats)
        listing(bench, f"PROPFIND depth 1 of {rows} entries", "PROPFIND", f"/dav{directory}", depth, b"<D:response>", rows + 1,
                repeats)


def wrk(port, target, token, seconds):
    done = subprocess.run(["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--latency", "-H", f"Authorization: Bearer {token}",
                           f"http://127.0.0.1:{port}{target}"], capture_output=True, text=True)
    expect("wrk runs, every answer is 200", done.returncode == 0 and "Non-2xx" not in done.stdout, done.stdout + done.stderr)
    p99 = re.search(r"99%\s+([\d.]+\S+)", done.stdout)[1]
    return int(re.search(r"(\d+) requests in", done.stdout)[1]), p99


def one_entry(bench):
    if not shutil.which("wrk"):
        return say("one entry by REST: not measured, wrk is not installed")
    target = "/api/v1/entries/bench/small/file0007.root"
    web = bench.web()
    web.send("GET", target)
    size = web.sized()
    web.close()
    port = free_port()
    bare = Process([bench.exacat, "bench", "--bare-http", f"127.0.0.1:{port}", "--bare-bytes", str(size)], bench.log)
    try:
        wait_for(port, bare)
        web = Web(port, bench.token)
        web.send("GET", target)
        expect("answers of the same size", abs(web.sized() - size) < 16, size)
        web.close()
        rates, cpus, bare_rates, bare_cpus, ratios = [], [], [], [], []
        for _ in range(bench.asked.rounds):
            measured = []
            for process, at in [(bare, port), (bench.server, bench.port)]:
                cpu, began = process.cpu(), time.perf_counter()
                count, p99 = wrk(at, target, bench.token, bench.asked.seconds)
                measured.append((count / (time.perf_counter() - began), 1e6 * (process.cpu() - cpu) / count))
            (bare_rate, bare_cpu), (rate, cpu) = measured
            for figures, figure in [(rates, rate), (cpus, cpu), (bare_rates, bare_rate), (bare_cpus, bare_cpu),
                                    (ratios, rate / bare_rate)]:
                figures.append(figure)
        show(f"bare answer of {size} bytes, {CONNECTIONS} connections", statistics.median(bare_rates), statistics.median(bare_cpus), "")
        show(f"one entry by REST, {CONNECTIONS} connections", statistics.median(rates), statistics.median(cpus),
             "<= 12 µs, >= 70 % of the bare rate", f"{100 * statistics.median(ratios):.0f} % of it, p99 {p99}")
    finally:
        bare.end()


class Browser:
    """A person who is signed in to the pages."""

    def __init__(self, bench):
        self.port = bench.port
        page, told = self.ask("GET", "/sign-in")
        cookie = told.getheader("Set-Cookie").split(";")[0]
        form = re.search(r'name="form" value="([^"]+)"', page)[1]
        body = urllib.parse.urlencode({"form": form, "token": bench.token})
        _, told = self.ask("POST", "/sign-in", body, cookie)
        self.cookie = told.headers.get_all("Set-Cookie")[0].split(";")[0]

    def ask(self, method, target, body=None, cookie=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        headers = {"Cookie": cookie} if cookie else {}
        if body:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(method, target, body, headers)
        answer = connection.getresponse()
        expect(f"{method} {target}", answer.status in (200, 303), answer.status)
        page = answer.read().decode()
        connection.close()
        return page, answer


def pages(bench):
    """The time of pages, and the cost of open overviews to look-ups."""
    browser = Browser(bench)
    connection = http.client.HTTPConnection("127.0.0.1", bench.port)
    for name, start, count in [("page of 200 of a directory", "/browse/bench/many", 200), ("entry page", None, 200)]:
        times, cpu, target = [], bench.server.cpu(), start
        for number in range(count):
            target = target or "/entry" + lfn(number)
            began = time.perf_counter()
            connection.request("GET", target, headers={"Cookie": browser.cookie})
            answer = connection.getresponse()
            page = answer.read().decode()
            times.append(1000 * (time.perf_counter() - began))
            expect(target, answer.status == 200 and "<h1>" in page, page[:500])
            following = re.search(r'rel="next" href="([^"]+)"', page)
            target = following[1].replace("&#38;", "&") if start and following else start
        each = 1e6 * (bench.server.cpu() - cpu) / count
        p50, p99 = statistics.median(times), sorted(times)[int(0.99 * count)]
        show(f"{name}, {bench.asked.files} files", 1000 * count / sum(times), each, "p50 <= 20 ms", f"p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    connection.close()

    def watch():
        streams = []
        for _ in range(BROWSERS):
            stream = socket.create_connection(("127.0.0.1", bench.port))
            stream.sendall(f"GET /overview/events HTTP/1.1\r\nHost: localhost\r\nCookie: {browser.cookie}\r\n\r\n".encode())
            expect("live figures", b"event-stream" in stream.recv(READ_BYTES))
            streams.append(stream)
        return streams

    streams, cpu, began = watch(), bench.server.cpu(), time.perf_counter()
    time.sleep(max(10, bench.asked.seconds))
    busy = (bench.server.cpu() - cpu) / (time.perf_counter() - began)
    for stream in streams:
        stream.close()
    say(f"{BROWSERS} open overviews: {100 * busy:.2f} % of one core")
    if not shutil.which("wrk"):
        return say("look-ups beside them: not measured, wrk is not installed")
    ratios = []
    for number in range(2 * bench.asked.rounds):
        # The order changes, because the machine slows down and recovers.
        rates = {}
        for watched in [number % 2 == 0, number % 2 == 1]:
            streams = watch() if watched else []
            rates[watched] = wrk(bench.port, "/api/v1/entries/bench/small/file0007.root", bench.token, bench.asked.seconds)[0]
            for stream in streams:
                stream.close()
        ratios.append(rates[True] / rates[False])
    show_ratio = 100 * statistics.median(ratios)
    say(f"look-ups beside {BROWSERS} open overviews: {show_ratio:.1f} % of those without (wanted >= 99 %); "
        f"single rounds {100 * min(ratios):.1f} to {100 * max(ratios):.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exacat")
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--only", default="", help="one, list, whereis, stream or pages; the catalogue is always filled")
    parser.add_argument("--directory", help="for the data; the system's directory for temporary files if left out")
    asked = parser.parse_args()
    asked.files = max(BATCH, asked.files // BATCH * BATCH)
    with tempfile.TemporaryDirectory(prefix="exacat-bench-http-", dir=asked.directory) as place:
        bench = Bench(os.path.realpath(asked.exacat), place, asked)
        try:
            load = os.getloadavg()[0]
            say(f"{asked.files} files, {os.cpu_count()} cores for server and clients, load average {load:.1f} at the start; medians\n")
            say(f"{'':<52} {'rate':>10} {'CPU':>10}  {'wanted':<42}")
            fill(bench)
            for name, measure in [("one", one_entry), ("list", listings), ("whereis", whereis), ("stream", one_stream),
                                  ("pages", pages)]:
                if bench.wants(name):
                    measure(bench)
            say(f"\nload average {os.getloadavg()[0]:.1f} at the end")
        finally:
            bench.server.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
