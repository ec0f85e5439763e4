#!/usr/bin/env python3
"""`make test-replay`: replays through real XCaches, each with a fault or a shape of its own.

Usage: test-replay.py EXACAT-BINARY [--short] [--only TEXT]

In each scene every item must have exactly one final result, and the sums of clients, cache and origin must
agree within what the facts about XCache 5.5.3 explain. Where the trace foretells a hit rate, the measured one
is within 2 % of it. Everything runs on loopback, in a directory that is removed. Without XCache (Debian:
xrootd-server xrootd-server-plugins) the scenes say that they are skipped. `--short` shortens the time for
which the origin is away.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time

from clients_rig import Failed, Left, expect, free_port, is_open, say, wait_until
from replay_rig import BLOCK, Rig, need_xcache, zipf

# Distance of a measured share from the foretold one.
NEAR = 0.02
# Crashes of XCache after which a scene is not played again.
CRASHES_MAX = 2


def near(what, measured, foretold):
    expect(f"{what}: {measured:.4f} measured, {foretold:.4f} foretold", abs(measured - foretold) <= NEAR)


def blocks(rows):
    """Bytes that a cache fetches of whole files that it keeps: each file once."""
    return sum({name: size for _, name, size, _ in rows}.values())


def begin(rig, rows, *origin, cache=None, service=()):
    trace = rig.trace(rows)
    rig.start_origin(trace, *origin)
    rig.start_service(trace, *service)
    return rig.cache(**(cache or {}))


def sums(rig, report, rows, fetched):
    """Clients asked for what the trace asks, the cache says so too, and the origin sent what it fetched."""
    asked = report["totals"]["bytes_asked"]
    expect("all bytes came", report["totals"]["bytes"] == asked, report["totals"])
    records = report["cache_records"][0]
    told = records["bytes_hit"] + records["bytes_miss"] + records["bytes_bypass"]
    expect(f"the cache tells {told} of {asked} bytes", told == asked, records)
    expect("no datagram was lost", records["lost_datagrams"] == 0 and records["bad_datagrams"] == 0, records)
    sent = report["origins"][0]["bytes_out"]
    expect(f"the origin sent {sent} bytes, of {fetched}", abs(sent - fetched) <= NEAR * fetched, report["origins"])


def cold_and_warm(rig):
    """A cache larger than everything: a cold run finds what was read before, a warm run everything."""
    rows = zipf(1, 60, 400)
    cache = begin(rig, rows)
    options = ["--speed", "1", "--cache-size", "1TB"]
    cold = rig.whole("cold", cache.url, "--verify-content", agents=2, create=options)
    cold = rig.report("cold", records=1)
    # Records of files that were open together are one: all have been told when the bytes agree.
    wait_until("the cache tells of all files",
               lambda: rig.report("cold")["cache_records"][0]["bytes_hit"] + rig.report("cold")["cache_records"][0]["bytes_miss"]
               >= cold["totals"]["bytes_asked"])
    cold = rig.report("cold")
    rig.complete(cold, 400)
    sums(rig, cold, rows, blocks(rows))
    near("bytes that were not fetched", rig.share(cold, "bytes_fetched", "origin"), rig.share(cold, "bytes_asked", "trace"))
    near("bytes of the cache's records", rig.share(cold, "bytes_asked", "cache"), rig.share(cold, "bytes_asked", "trace"))
    # The same by the states of its files, on its disk.
    states = rig.json("replay", "cinfo", cache.place / "ns")
    asked = cold["totals"]["bytes_asked"]
    expect("all files are whole by their states", states["files"] == states["files_complete"] == len({row[1] for row in rows}), states)
    near("bytes hit, by the states of files", states["bytes_hit"] / asked, rig.share(cold, "bytes_asked", "trace"))
    before = rig.origin_bytes()
    warm = rig.whole("warm", cache.url, agents=2, create=options)
    rig.complete(warm, 400)
    expect("a warm run fetches nothing", rig.origin_bytes() == before, rig.origin_bytes() - before)
    compared = rig.run("replay", "report", "warm", "--compare", "cold")
    expect("two runs are compared", "cold" in compared and "warm" in compared, compared)


def sparse_reads(rig):
    """Reads of parts: the cache fetches whole blocks, and tells less."""
    size, step = 20 * BLOCK, 4 * BLOCK
    rows = [(number * 0.05, f"/data/s{number % 10}", size, f"4096/{step}") for number in range(40)]
    cache = begin(rig, rows)
    report = rig.whole("sparse", cache.url, "--verify-content", create=["--in-flight", "4", "--cache-size", "1TB"])
    report = rig.report("sparse", records=10)
    rig.complete(report, 40)
    asked, fetched = 40 * 5 * 4096, 10 * 5 * BLOCK
    expect("vector reads ask for what the trace says", report["totals"]["bytes"] == asked, report["totals"])
    sent = report["origins"][0]["bytes_out"]
    expect(f"{sent} bytes were fetched, whole blocks are {fetched}", abs(sent - fetched) <= NEAR * fetched)
    causes = [cause["name"] for difference in report["differences"] for cause in difference["causes"]]
    expect("the report names the rounding to blocks", any("block" in cause for cause in causes), causes)


def eight_readers(rig):
    """Eight clients of one cold file: it is fetched once, and told in one record."""
    rows = [(0, "/data/one", 64 * BLOCK, "-")] * 8
    cache = begin(rig, rows)
    report = rig.whole("eight", cache.url, "--connect-anew", create=["--in-flight", "8"])
    report = rig.report("eight", records=1)
    rig.complete(report, 8)
    sums(rig, report, rows, 64 * BLOCK)
    expect("eight sessions are fewer records", report["cache_records"][0]["records"] < 8, report["cache_records"])


def purge(rig):
    """A cache smaller than the files, which removes some: the next run finds those that are left."""
    mount = rig.place / "small"
    mount.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", mount], check=False).returncode:
        raise Left("a file system for a small cache needs root")
    rig.mounts.append(mount)
    files = [(f"/data/p{number:02}", 2 * BLOCK) for number in range(40)]
    rows = [(at * 0.02, name, size, "-") for at, (name, size) in enumerate(files)]
    cache = begin(rig, rows, cache={"space": mount / "space", "usage": "0.40 0.60 purgeinterval 60"})
    report = rig.whole("fill", cache.url, create=["--in-flight", "1"])
    rig.complete(report, 40)

    def kept():
        return {name for name, size in files if (path := cache.place / "ns" / name.lstrip("/")).exists()
                and path.resolve().exists() and path.resolve().stat().st_blocks * 512 >= size}
    wait_until("the cache removes files", lambda: len(kept()) < 30)
    # A purge removes one file after the other.
    time.sleep(2)
    left = kept()
    expect("some are left", 0 < len(left) < 40, left)
    before = rig.origin_bytes()
    second = rig.whole("again", cache.url, create=["--in-flight", "1"])
    rig.complete(second, 40)
    fetched = rig.origin_bytes() - before
    near("bytes that were not fetched", 1 - fetched / (80 * BLOCK), len(left) / 40)


def cache_restarted(rig):
    """The cache is killed in the middle, and comes back: clients see errors, and every access ends once."""
    rows = zipf(3, 40, 600)
    cache = begin(rig, rows, "--read-delay", "5ms")
    rig.create("restarted", "--speed", "1")
    agent = rig.agent("restarted", cache.url)
    rig.until_ended("restarted", 150)
    cache.stop()
    rig.until_ended("restarted", 200)
    cache.start()
    rig.finish(agent)
    report = rig.report("restarted", records=1)
    rig.complete(report, 600, failed=None)
    kinds = {row["outcome"] for row in report["outcomes"] if row["accesses"]}
    expect("the failures are those of connections", kinds <= {"ok", "connection", "handshake", "timeout", "server"}, kinds)
    expect("the cache was seen to start again", report["cache_records"][0]["restarts"] >= 1, report["cache_records"])


def origin_gone(rig):
    """The origin is away for a time: files that the cache has are read on, others fail or wait."""
    rows = zipf(4, 200, 1500, every=0.02)
    seconds = 4 if rig.is_short else 20
    cache = begin(rig, rows)
    rig.create("gone", "--speed", "1")
    agent = rig.agent("gone", cache.url, "--in-flight", "256")
    rig.until_ended("gone", 200)
    rig.order(f"gone?seconds={seconds}")
    rig.finish(agent)
    report = rig.report("gone")
    rig.complete(report, 1500, failed=None)
    expect("most accesses are good", report["totals"]["errors"] < 750, report["outcomes"])
    wait_until("the origin is back", lambda: is_open(int(rig.origin["place"].split(":")[1])))


def agent_killed(rig):
    """An agent is killed: another one makes its accesses when the leases have ended."""
    rows = zipf(5, 60, 4000)
    cache = begin(rig, rows, "--read-delay", "5ms")
    rig.create("killed", "--in-flight", "16", "--lease", "3")
    first, second = rig.agent("killed", cache.url, name="first"), rig.agent("killed", cache.url, name="second")
    wait_until("both have made accesses", lambda: {row["name"] for row in rig.json("replay", "report", "killed")["agents"]["rows"]}
               >= {"first", "second"})
    first[0].kill()
    rig.finish(second)
    report = rig.report("killed")
    rig.complete(report, 4000)
    expect("leases ran out", report["handing_out"]["leases_expired"] > 0, report["handing_out"])


def two_agents(rig, run, seed, accesses):
    """Two agents in a run with short leases, over an origin that is slow."""
    cache = begin(rig, zipf(seed, 60, accesses), "--read-delay", "5ms")
    rig.create(run, "--speed", "1", "--lease", "3")
    return [rig.agent(run, cache.url, "--verify-content", name=f"a{number}") for number in range(2)]


def each_once(rig, run, agents, accesses):
    """Every item has one result. Items are handed out again only when their leases have ended, also those
    whose answer was lost with the service."""
    for agent in agents:
        rig.finish(agent)
    report = rig.report(run)
    rig.complete(report, accesses)
    handing = report["handing_out"]
    # A result that comes after its lease, and before the item is handed out again, ends the item.
    again = handing["handed_out"] - accesses
    expect("nothing else was handed out twice", 0 <= again <= handing["leases_expired"], handing)


def service_killed(rig):
    """The service is killed three times: it goes on where it was, and agents bring their results."""
    agents = two_agents(rig, "served", 6, 900)
    for count in (150, 350, 600):
        rig.until_ended("served", count)
        rig.kill_service()
        rig.start_service(rig.place / "t.trace")
    each_once(rig, "served", agents, 900)


def service_hung(rig):
    """The service stands still for longer than its leases: every item still has one result."""
    agents = two_agents(rig, "hung", 10, 600)
    rig.until_ended("hung", 150)
    rig.service["process"].send_signal(signal.SIGSTOP)
    time.sleep(5)
    rig.service["process"].send_signal(signal.SIGCONT)
    each_once(rig, "hung", agents, 600)


def chain(rig):
    """Two caches, one behind the other: the first one's misses are the second one's requests."""
    rows = zipf(7, 40, 200)
    trace = rig.trace(rows)
    rig.start_origin(trace)
    rig.start_service(trace)
    far = rig.cache("far")
    cache = rig.cache("near", origin=f"127.0.0.1:{far.port}")
    report = rig.whole("chain", cache.url, "--verify-content", create=["--in-flight", "4"])
    rig.complete(report, 200)
    sent = report["origins"][0]["bytes_out"]
    expect(f"each file is fetched once: {sent} of {blocks(rows)}", abs(sent - blocks(rows)) <= NEAR * blocks(rows))
    def places():
        rows = rig.report("chain")["cache_records"]
        return {row["name"].rsplit(":", 1)[1]: row["place"] for row in rows if ":" in row["name"]}
    wait_until("both caches tell of files", lambda: {str(cache.port), str(far.port)} <= places().keys())
    places = places()
    expect("the caches have their places", (places[str(cache.port)], places[str(far.port)]) == (0, 1), places)


def prefetch(rig):
    """Prefetching: more is fetched than was asked for, and the records call it hits."""
    rows = [(number * 0.1, f"/data/w{number}", 32 * BLOCK, "0+4096") for number in range(8)]
    cache = begin(rig, rows, cache={"prefetch": 10})
    report = rig.whole("ahead", cache.url, create=["--in-flight", "2"])
    report = rig.report("ahead", records=8) if not rig.is_short else report
    rig.complete(report, 8)
    wait_until("the cache fetches ahead", lambda: rig.origin_bytes() > 8 * BLOCK)
    expect("clients read a little", report["totals"]["bytes"] == 8 * 4096, report["totals"])
    share = rig.share(rig.report("ahead"), "bytes_fetched", "origin")
    expect(f"more is fetched than was asked for: {share}", share < -100, share)


def wrong_checksum(rig):
    """Files whose bytes at the origin are not those of their checksum: each read of them is told as such."""
    trace = rig.place / "t.trace"
    rig.run("replay", "generate", "--out", trace, "--files", 50, "--accesses", 300, "--days", 1, "--size", "300kB", "--below",
            "/data", "--parts", 0)
    rig.start_origin(trace, "--wrong-share", "0.3", "--absent-share", "0.1")
    rig.start_service(trace)
    cache = rig.cache()
    report = rig.whole("wrong", cache.url, create=["--in-flight", "8"])
    rig.complete(report, 300, failed=None)
    counts = {row["outcome"]: row["accesses"] for row in report["outcomes"]}
    expect("wrong and missing files are told apart", counts.get("checksum", 0) > 0 and counts.get("not_found", 0) > 0
           and counts.get("ok", 0) > 0 and sum(counts[kind] for kind in counts if kind not in ("ok", "checksum", "not_found")) == 0, counts)
    again = rig.whole("again", cache.url, create=["--in-flight", "8"])
    repeated = {row["outcome"]: row["accesses"] for row in again["outcomes"]}
    expect("a second run finds the same", repeated == counts, (counts, repeated))


def programs(rig):
    """`xrdcp` as the client, beside the agent's own: the same bytes, and the same classes."""
    rows = zipf(8, 10, 24)
    cache = begin(rig, rows)
    report = rig.whole("programs", cache.url, "--xrdcp", "--in-flight", "2", create=["--in-flight", "4"])
    rig.complete(report, 24)
    expect("all bytes came", report["totals"]["bytes"] == report["totals"]["bytes_asked"], report["totals"])


def start_catalogue(rig, rows):
    """Starts a catalogue with the files of a trace. Returns its XRootD port, and its administrator's options."""
    port, data = free_port(), rig.place / "catalogue"
    rig.start([rig.exacat, "--data", data, "serve", "--listen", "none", "--xrootd", f"127.0.0.1:{port}",
               "--xrootd-name", "127.0.0.1"], "catalogue")
    exacat = ["--server", f"unix:{data}/exacat.sock", "--data", data]
    wait_until("the catalogue answers", lambda: subprocess.run([rig.exacat, *map(str, exacat), "whoami"], capture_output=True,
                                                               check=False).returncode == 0)
    prefix = f"root://{rig.origin['place']}"
    rig.run(*exacat, "se", "add", "DEMO::ORIGIN", "--prefix", prefix)
    listing = rig.place / "files.tsv"
    listing.write_text("lfn\tsize\tpfn\n" + "".join(f"{name}\t{size}\t{prefix}/{name}\n" for name, size in
                                                    {name: size for _, name, size, _ in rows}.items()))
    rig.run(*exacat, "import", listing, "--se", "DEMO::ORIGIN")
    return port, exacat


def expired_tokens(rig):
    """A token that has expired opens nothing, and is told as such; a valid one opens everything."""
    rows = zipf(10, 10, 40, sizes=(100_000, 200_000))
    trace = rig.trace(rows)
    rig.start_origin(trace)
    rig.start_service(trace)
    port, exacat = start_catalogue(rig, rows)
    token = rig.place / "token"
    options = ["--cache-token-file", token, "--cache-ca", rig.place / "catalogue" / "server.crt", "--token-host", "127.0.0.1"]
    token.write_text(rig.run(*exacat, "token", "issue", "--lifetime", "1s"))
    time.sleep(2)
    report = rig.whole("expired", f"root://localhost:{port}", *options, create=["--in-flight", "4"])
    rig.complete(report, 40, failed=40)
    kinds = {row["outcome"] for row in report["outcomes"] if row["accesses"]}
    expect("the failures are those of tokens", kinds <= {"expired", "denied", "handshake"}, report["outcomes"])
    token.write_text(rig.run(*exacat, "token", "issue", "--lifetime", "1h"))
    report = rig.whole("valid", f"root://localhost:{port}", "--verify-content", *options, create=["--in-flight", "4"])
    rig.complete(report, 40)


def catalogue(rig):
    """The catalogue as the name service of the cache: misses go to the replica that it names."""
    rows = zipf(9, 20, 100, sizes=(100_000, 400_000))
    trace = rig.trace(rows)
    rig.start_origin(trace)
    rig.start_service(trace)
    port, exacat = start_catalogue(rig, rows)
    rig.run(*exacat, "user", "add", "cache", "--subject", "host:127.0.0.1")
    cache = rig.cache(origin=f"127.0.0.1:{port}")
    report = rig.whole("named", cache.url, "--verify-content", create=["--in-flight", "4"])
    rig.complete(report, 100)
    sent = report["origins"][0]["bytes_out"]
    expect(f"each file is fetched once: {sent} of {blocks(rows)}", abs(sent - blocks(rows)) <= NEAR * blocks(rows))


SCENES = [cold_and_warm, sparse_reads, eight_readers, cache_restarted, origin_gone, agent_killed, service_killed, service_hung, chain,
          prefetch, wrong_checksum, programs, catalogue, expired_tokens, purge]


class Crashed(Exception):
    """A cache ended by a defect of its own, so the scene shows nothing."""


def play(scene, args):
    """Plays a scene. XCache 5.5 crashes now and then; then the scene is played again."""
    for again in range(CRASHES_MAX + 1):
        try:
            return play_once(scene, args)
        except Crashed as crash:
            expect(f"XCache crashed {again + 1} times", again < CRASHES_MAX, crash)
            say(f"again    {scene.__name__:<18} {crash}")


def play_once(scene, args):
    with Rig(args.exacat.resolve()) as rig:
        rig.is_short = args.short
        try:
            scene(rig)
        except Left:
            raise
        except Exception as error:
            if crashes := [f"{cache.name} ended with {name}" for cache in rig.caches if (name := cache.crashed())]:
                raise Crashed(", ".join(crashes)) from error
            for name in ["service", "origin", "cache"]:
                if text := rig.tail(name):
                    say(f"--- the end of {name}.log\n{text[-1200:]}")
            raise Failed(f"{type(error).__name__}: {error}") from error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exacat", type=pathlib.Path)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    os.environ.pop("EXACAT_REPLAY", None)
    passed, failed, skipped = 0, [], []
    for scene in SCENES:
        if args.only not in scene.__name__:
            continue
        begun = time.monotonic()
        try:
            need_xcache()
            play(scene, args)
            passed += 1
            say(f"ok       {scene.__name__:<18} {time.monotonic() - begun:5.1f} s  {scene.__doc__.splitlines()[0]}")
        except Left as reason:
            skipped.append(scene.__name__)
            say(f"skipped  {scene.__name__:<18} {reason}")
        except Failed as error:
            failed.append(scene.__name__)
            say(f"FAILED   {scene.__name__:<18} {error}")
    say(f"test-replay: {passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
