#!/usr/bin/env python3
"""What a file system reaches by itself: blocks of 1 MiB, O_DIRECT, four threads, each file synced inside of the time.

Usage: writer_baseline.py DIRECTORY BYTES FILES [--read FILE]
Prints {"mb_s", "seconds", "cpu_s", "read_mb_s"}; with --read, one more thread reads that file at the same time.
"""

import argparse
import json
import mmap
import os
import pathlib
import resource
import threading
import time

BLOCK = 1 << 20
THREADS = 4


class Files:
    """The files that a thread writes in turn."""

    def __init__(self, directory, number, sizes):
        self.directory, self.number, self.sizes = directory, number, sizes
        self.error = None
        # Written once before the time begins: the machine gives memory at its first use.
        self.block = mmap.mmap(-1, BLOCK)
        self.block.write(os.urandom(BLOCK))

    def run(self, go):
        try:
            go.wait()
            self.write()
        except OSError as error:
            self.error = error

    def write(self):
        names = [self.directory / f"{self.number}-{at}" for at in range(len(self.sizes))]
        opened = [os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_DIRECT, 0o600) for name in names]
        for at in range(max(self.sizes, default=0)):
            for file, size in zip(opened, self.sizes):
                if at < size and os.pwrite(file, self.block, at * BLOCK) != BLOCK:
                    raise OSError("a short write")
        for file in opened:
            os.fdatasync(file)
            os.close(file)


class Reader:
    """Reads a file again and again until it is told to end."""

    def __init__(self, path):
        self.path, self.is_over, self.count, self.error = path, False, 0, None
        self.block = mmap.mmap(-1, BLOCK)
        self.block.write(bytes(BLOCK))

    def run(self, go):
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
            go.wait()
            at = 0
            while not self.is_over:
                read = os.preadv(file, [self.block], at)
                at = at + read if read == BLOCK else 0
                self.count += read
            os.close(file)
        except OSError as error:
            self.error = error


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("directory", type=pathlib.Path)
    arguments.add_argument("bytes", type=int)
    arguments.add_argument("files", type=int)
    arguments.add_argument("--read", type=pathlib.Path)
    asked = arguments.parse_args()
    # Whole blocks: those of a file that is not the last one are one more or none.
    blocks = max(asked.files, asked.bytes // BLOCK)
    sizes = [blocks // asked.files + (at < blocks % asked.files) for at in range(asked.files)]
    # A file has one thread: those that extend the same file would wait for each other.
    writers = [Files(asked.directory, thread, sizes[thread::THREADS]) for thread in range(min(THREADS, asked.files))]
    reader = Reader(asked.read) if asked.read else None
    go = threading.Event()
    threads = [threading.Thread(target=one.run, args=(go,)) for one in writers]
    reading = threading.Thread(target=reader.run, args=(go,)) if reader else None
    for thread in [*threads, *([reading] if reading else [])]:
        thread.start()
    begun, used = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    go.set()
    for thread in threads:
        thread.join()
    directory = os.open(asked.directory, os.O_RDONLY)
    os.fsync(directory)
    seconds = time.monotonic() - begun
    read = reader.count if reader else 0
    if reader:
        reader.is_over = True
        reading.join()
    spent = resource.getrusage(resource.RUSAGE_SELF)
    for one in [*writers, *([reader] if reader else [])]:
        if one.error:
            raise SystemExit(f"writer_baseline: {one.error}")
    print(json.dumps({"mb_s": blocks * BLOCK / seconds / 1e6, "seconds": seconds, "read_mb_s": read / seconds / 1e6,
                      "cpu_s": spent.ru_utime + spent.ru_stime - used.ru_utime - used.ru_stime}))


if __name__ == "__main__":
    main()
