#!/usr/bin/env python3
"""`make bench-dump`: processor time of `exacat se compare` for each line of a storage dump.

Usage: bench-dump.py EXACAT-BINARY [--lines N] [--rounds N]

Imports N files into a data directory of its own, and compares dumps of them in random order. Each line is compared with a copy
of the catalogue, so a run reads, sorts and judges 2 N records. Figures are medians of all rounds. Every run must find all
copies, and the one file that is dark.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

SE = "se.example.org"


def say(text):
    print(text, flush=True)


def run(command):
    """Runs a command; returns its output, and its wall and processor seconds."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"{' '.join(command)} failed")
        out.seek(0)
        return out.read().decode(), time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def path(number):
    mixed = number * 0x9E3779B97F4A7C15 % 2**64
    return f"/data/rucio/mc26/{mixed >> 56:02x}/{mixed >> 48 & 255:02x}/AOD.{number:09d}._{mixed % 10**6:06d}.pool.root.1"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("exacat")
    parser.add_argument("--lines", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    lines = options.lines
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        data = str(place / "data")
        with open(place / "files.tsv", "w") as out:
            for number in range(lines):
                out.write(f"/f/{number // 1000}/{number}\t{number}\tadler32:{number + 1:08x}\troot://{SE}/{path(number)}\n")
        # A server makes the catalogue at its first start.
        server = subprocess.Popen([options.exacat, "--json", "serve", "--listen", "127.0.0.1:0", "--log", "error", "--data", data],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        server.stdout.readline()
        server.terminate()
        server.wait()
        columns = "lfn,size,checksum,pfn"
        run([options.exacat, "-q", "import", "--offline", str(place / "files.tsv"), "--columns", columns, "--se-auto",
             "--data", data, "--state", "none"])
        order = list(range(lines))
        random.Random(1).shuffle(order)
        with open(place / "paths", "w") as paths, open(place / "dump.csv", "w") as rows:
            for number in order:
                paths.write(f"{path(number)}\n")
                rows.write(f"{path(number)},{number},{number + 1:08x}\n")
            paths.write("/data/dark\n")
            rows.write("/data/dark,1,00000001\n")
        (place / "one").write_text(f"{path(0)}\n/data/dark\n")
        subprocess.run(["zstd", "-q", str(place / "dump.csv")], check=True)
        say(f"{lines} lines, {lines} copies, {os.path.getsize(place / 'dump.csv') / lines:.0f} bytes a line\n")
        say(f"{'dump':28} {'wall s':>8} {'CPU s':>8} {'CPU us/line':>12} {'lines/s/core':>13} {'MiB':>6}")
        cases = [
            ("one line: open and list", "one", []),
            ("paths", "paths", []),
            ("path,size,checksum", "dump.csv", []),
            ("the same, zstd", "dump.csv.zst", []),
            ("the same, 32 MiB memory", "dump.csv", ["--memory", "32MiB", "--temp", str(place)]),
        ]
        for name, dump, more in cases:
            figures = []
            for _ in range(options.rounds):
                command = [options.exacat, "--json", "se", "compare", SE, str(place / dump), "--offline", "--data", data]
                out, wall, cpu, memory = run(command + more)
                classes = {one["class"]: one["copies"] for one in json.loads(out)["classes"]}
                expected = 1 if dump == "one" else lines
                if classes["same"] != expected:
                    sys.exit(f"{name}: {classes}")
                figures.append((wall, cpu, memory))
            wall, cpu, memory = (statistics.median(column) for column in zip(*figures))
            say(f"{name:28} {wall:8.2f} {cpu:8.2f} {cpu / lines * 1e6:12.3f} {lines / cpu:13.0f} {memory:6.0f}")


if __name__ == "__main__":
    main()
