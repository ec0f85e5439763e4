#!/usr/bin/env python3
"""`make test-writer`: writer services, producers and a catalogue as real processes, under faults. A checker reads every
certified file back: each acknowledged event is in exactly one, once and in order.

Usage: test-writer.py EXACAT [--short] [--only TEXT] [--seconds N] [--rate N] [--stall-max MS] [--keep]
"""

import argparse
import dataclasses
import sys
import time

import writer_faults
from clients_rig import Failed, Left, say
from writer_rig import rig_in

SHORT_SECONDS = 4


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("exacat")
    arguments.add_argument("--short", action="store_true", help="a part of it, in less than a minute")
    arguments.add_argument("--only", metavar="TEXT", help="faults with this in their names")
    arguments.add_argument("--seconds", type=int, help="time that producers send in each")
    arguments.add_argument("--rate", type=int, help="events a second")
    arguments.add_argument("--stall-max", type=int, metavar="MS", default=writer_faults.KILL_STALL_MS_MAX)
    arguments.add_argument("--keep", action="store_true", help="leave the logs of what failed in place")
    asked = arguments.parse_args()
    load = writer_faults.Load(stall_ms_max=asked.stall_max)
    if asked.short:
        load = dataclasses.replace(load, seconds=SHORT_SECONDS)
    if asked.seconds:
        load = dataclasses.replace(load, seconds=asked.seconds)
    if asked.rate:
        load = dataclasses.replace(load, rate=asked.rate)
    chosen = writer_faults.SHORT if asked.short else writer_faults.ALL
    chosen = [one for one in chosen if not asked.only or asked.only in one.__name__]
    failed, begun = [], time.monotonic()
    for fault in chosen:
        # A rig for each: what one leaves behind is no matter of the next.
        say(f"{fault.__name__}: {fault.__doc__}")
        began = time.monotonic()
        try:
            with rig_in(asked.exacat, keep=asked.keep) as rig:
                figures = fault(rig, load)
            words = "  ".join(f"{name} {value:.0f}" if isinstance(value, float) and value >= 1 else f"{name} {value}"
                              for name, value in figures.items())
            say(f"    ok, {time.monotonic() - began:.0f} s: {words}")
        except Left as why:
            say(f"    left out: {why}")
        except Failed as why:
            say(f"    FAILED, {time.monotonic() - began:.0f} s: {why}")
            failed.append(fault.__name__)
    say(f"{len(chosen)} faults in {time.monotonic() - begun:.0f} s, {len(failed)} failed {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
