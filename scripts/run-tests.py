#!/usr/bin/env python3
"""Builds all test programs once, then runs several of them at a time.

`cargo test` runs one program after the other, and most programs wait: for disks, timers and child
processes. The script prints the closing line of each program as `cargo test` does, and the whole output
of a program that fails. Arguments after `--` go to every program.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A program that runs longer is stopped, and counts as failed.
PROGRAM_SECONDS_MAX = 1800
# Lines kept of the output of a program that fails; the whole is in the named file.
LINES_SHOWN_MAX = 5000
# Tests of real listings are ignored, but run where the listings are.
LISTINGS = pathlib.Path(os.environ.get("EXACAT_REAL_DATA", ROOT.parent / "shared/data"))
HAS_LISTINGS = (LISTINGS / "odp_files.tsv.zst").exists()
OF_LISTINGS = ("listings", "real_data")


class Program:
    """One test program, its process, and the file of its output."""

    def __init__(self, artifact, output):
        self.name = artifact["target"]["name"]
        self.path = artifact["executable"]
        self.manifest = pathlib.Path(artifact["manifest_path"])
        self.package = self.manifest.parent.name
        source = pathlib.Path(artifact["target"]["src_path"]).relative_to(self.manifest.parent)
        self.title = f"{self.package} {source}"
        self.log = output / f"{self.package}-{pathlib.Path(self.path).name}.log"
        self.process = None
        self.begun = 0.0

    def start(self, arguments):
        given = list(arguments)
        if HAS_LISTINGS and self.name in OF_LISTINGS:
            given.append("--include-ignored")
        # The test of the example in C builds its library by itself otherwise.
        environment = dict(os.environ, CARGO_MANIFEST_DIR=str(self.manifest.parent), EXACAT_LIBRARIES_BUILT="1")
        self.begun = time.monotonic()
        # A session of its own: whatever it starts ends with it.
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [self.path, *given], cwd=self.manifest.parent, env=environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def seconds(self):
        return time.monotonic() - self.begun

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def report(self):
        """Prints the program's result, and returns its counts of passed, failed and ignored tests."""
        lines = self.log.read_text(errors="replace").splitlines()
        failed = self.process.returncode != 0
        print(f"     Running {self.title} ({self.seconds():.1f} s)")
        if failed:
            if len(lines) > LINES_SHOWN_MAX:
                print(f"the last {LINES_SHOWN_MAX} lines of {self.log}:")
            print("\n".join(lines[-LINES_SHOWN_MAX:]))
            print(f"error: {self.title} ended with {self.process.returncode}")
        else:
            print("\n".join(line for line in lines if " ... ignored" in line or line.startswith("test result:")))
        sys.stdout.flush()
        counts = [0, 0, 0]
        for line in lines:
            if line.startswith("test result:"):
                words = line.replace(";", "").split()
                for place, word in enumerate(("passed", "failed", "ignored")):
                    counts[place] += int(words[words.index(word) - 1])
        return counts


def build(cargo, cargo_arguments):
    """Builds all test programs and the libraries, and returns cargo's descriptions of the programs."""
    command = [cargo, "build", "--message-format=json-render-diagnostics", *cargo_arguments]
    built = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=False)
    if built.returncode != 0:
        sys.exit(built.returncode)
    artifacts = []
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["executable"] and message["profile"]["test"]:
            artifacts.append(message)
    return artifacts


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=min(2 * (os.cpu_count() or 1), 8), help="programs at a time")
    own, tests = sys.argv[1:], []
    if "--" in own:
        tests = own[own.index("--") + 1:]
        own = own[:own.index("--")]
    given, cargo_arguments = parser.parse_known_args(own)
    jobs = max(1, given.jobs)
    cargo = os.environ.get("CARGO", "cargo")

    artifacts = build(cargo, cargo_arguments)
    output = ROOT / "target" / "test-output"
    output.mkdir(parents=True, exist_ok=True)
    waiting = [Program(artifact, output) for artifact in artifacts]
    # The longest of the last run begin first, so that none is left alone at the end.
    times_file = output / "seconds.json"
    try:
        times = json.loads(times_file.read_text())
    except (OSError, ValueError):
        times = {}
    waiting.sort(key=lambda program: -times.get(program.title, PROGRAM_SECONDS_MAX))

    begun, running, failed, totals = time.monotonic(), [], [], [0, 0, 0]
    count = len(waiting)
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                program = waiting.pop(0)
                program.start(tests)
                running.append(program)
            time.sleep(0.02)
            for program in list(running):
                if program.process.poll() is None and program.seconds() < PROGRAM_SECONDS_MAX:
                    continue
                program.end()
                running.remove(program)
                times[program.title] = round(program.seconds(), 1)
                totals = [sum(pair) for pair in zip(totals, program.report())]
                if program.process.returncode != 0:
                    failed.append(program.title)
    except KeyboardInterrupt:
        return 130
    finally:
        for program in running:
            program.end()
        times_file.write_text(json.dumps(times, indent=1))
    print(f"{count} programs, {jobs} at a time, {time.monotonic() - begun:.0f} s: {totals[0]} tests passed, "
          f"{totals[1]} failed, {totals[2]} ignored")
    for title in failed:
        print(f"error: tests of {title} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
