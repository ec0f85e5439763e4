#!/usr/bin/env python3
"""`make bench-activity`: the cost of the states of requests, beside a build without them.

Usage: bench-activity.py WITH-STATES WITHOUT-STATES [--entries N] [--rounds N] [--only TEXT]

Runs `exacat bench --network` with both programs in turns, and shows the medians of rate and CPU per item, of load
generator and server together, with the ratio. It also shows the processor time of a server at rest, which samples once
a second.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from clients_rig import Failed, expect, say, wait_until


def bench(program, asked):
    command = [program, "--json", "bench", "--network", "--entries", str(asked.entries), "--only", asked.only]
    done = subprocess.run(command, capture_output=True, text=True)
    expect(" ".join(command), done.returncode == 0, done.stderr)
    rows = map(json.loads, done.stdout.splitlines())
    return {row["what"]: (row["items"] / row["wall_s"], row["cpu_s"] * 1e6 / row["items"]) for row in rows
            if row["cpu_s"] > 0.05 and "bare" not in row["what"] and "echo" not in row["what"]}


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
    arguments.add_argument("--entries", type=int, default=300_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--only", default="whereis")
    asked = arguments.parse_args()
    programs = [asked.measured, asked.unmeasured]
    taken = [{}, {}]
    for number in range(asked.rounds):
        # In turns, and the first one first in every second round.
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            for what, figures in bench(programs[which], asked).items():
                taken[which].setdefault(what, []).append(figures)
        say(f"round {number + 1} of {asked.rounds}")
    say(f"{'':<46} {'WITH':>10} {'WITHOUT':>10} {'RATE':>6} {'WITH':>8} {'WITHOUT':>8} {'CPU':>6}")
    for what in taken[0]:
        if what in taken[1]:
            (rate, cpu), (bare, bare_cpu) = ([statistics.median(column) for column in zip(*one[what])] for one in taken)
            say(f"{what[:46]:<46} {rate:>8.0f}/s {bare:>8.0f}/s {rate / bare:>6.3f} {cpu:>5.2f} us {bare_cpu:>5.2f} us {cpu / bare_cpu:>6.3f}")
    rest = [at_rest(program, 30) for program in programs]
    say(f"server at rest: {rest[0]:.3%} of a processor, without states {rest[1]:.3%} (both sample once a second)")


if __name__ == "__main__":
    try:
        main()
    except Failed as why:
        sys.exit(f"bench-activity: {why}")
