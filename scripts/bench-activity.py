#!/usr/bin/env python3
"""`make bench-activity`: the cost of the states of requests, beside a build without them.

Usage: bench-activity.py WITH-STATES WITHOUT-STATES [--entries N] [--only TEXT]

`exacat bench` asks a server of each program in turns, and shows the ratios of rate and of the server's CPU per item. The
script also shows the processor time of a server at rest, which samples once a second.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

from clients_rig import Failed, expect, say, wait_until


def at_rest(program, seconds):
    """Share of a processor that a server without clients takes."""
    with tempfile.TemporaryDirectory() as place:
        data = pathlib.Path(place) / "data"
        with open(pathlib.Path(place) / "log", "wb") as log:
            command = [program, "--data", str(data), "serve", "--listen", "none", "--http", "none"]
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_until("the server", lambda: (data / "server.json").exists() or server.poll() is not None)
            time.sleep(5)

            def cpu():
                nanos = (int(task.joinpath("schedstat").read_text().split()[0])
                         for task in pathlib.Path(f"/proc/{server.pid}/task").iterdir())
                return sum(nanos) / 1e9

            before = cpu()
            time.sleep(seconds)
            return (cpu() - before) / seconds
        finally:
            server.terminate()
            server.wait(60)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("measured")
    arguments.add_argument("unmeasured")
    arguments.add_argument("--entries", default="300k")
    arguments.add_argument("--only", default="")
    asked = arguments.parse_args()
    programs = [asked.measured, asked.unmeasured]
    command = [asked.measured, "bench", "--entries", asked.entries, "--only", asked.only, "--beside", asked.unmeasured]
    expect(" ".join(command), subprocess.run(command).returncode == 0)
    rest = [at_rest(program, 30) for program in programs]
    say(f"server at rest: {rest[0]:.3%} of a processor, without states {rest[1]:.3%} (both sample once a second)")


if __name__ == "__main__":
    try:
        main()
    except Failed as why:
        sys.exit(f"bench-activity: {why}")
