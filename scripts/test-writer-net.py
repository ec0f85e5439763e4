#!/usr/bin/env python3
"""Writer services in network namespaces on a bridge, with multicast and real packet loss. They find each other, and a
checker reads every certified file back.

Usage: test-writer-net.py EXACAT [--only TEXT] [--seconds N] [--keep]

It needs root, `ip netns` and nftables, and says so where they are not there.
"""

import argparse
import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import time

from clients_rig import Failed, Left, expect, say, wait_until
from writer_faults import PRODUCER_ALLOCATOR, Load, judge
from writer_rig import rig_in

GROUP, GROUP_PORT, PORT = "239.255.77.1", 27701, 27700
# Addresses of the bridge: the host, then the services, then the producers.
NETWORK = "10.177.77"
SERVICES = 3
# Loss of datagrams and of segments to services, in percent.
DATAGRAM_LOSS, SEGMENT_LOSS = 50, 2
STATE_UP, STATE_GONE = "up", "gone"


def run(*words, text=None):
    done = subprocess.run(list(map(str, words)), input=text, capture_output=True, text=True, timeout=30)
    expect(f"{' '.join(map(str, words))}: status {done.returncode}", done.returncode == 0, done.stdout + done.stderr)
    return done.stdout


class Network:
    """A bridge of this host, and namespaces on it. All of it goes away at the end."""

    def __init__(self, hosts):
        self.bridge, self.names = f"xw{os.getpid() % 100000}", []
        self.hosts = hosts

    def __enter__(self):
        if os.geteuid() != 0:
            raise Left("only root makes network namespaces")
        for program in ("ip", "nft"):
            if not shutil.which(program):
                raise Left(f"{program} is not installed")
        if subprocess.run(["ip", "netns", "add", f"{self.bridge}-0"], capture_output=True).returncode != 0:
            raise Left("network namespaces cannot be made here")
        subprocess.run(["ip", "netns", "del", f"{self.bridge}-0"], capture_output=True, check=False)
        try:
            run("ip", "link", "add", self.bridge, "type", "bridge")
            run("ip", "addr", "add", f"{NETWORK}.254/24", "dev", self.bridge)
            run("ip", "link", "set", self.bridge, "up")
            for number in range(1, self.hosts + 1):
                self.add(number)
        except BaseException:
            self.close()
            raise
        return self

    def add(self, number):
        name, outer, inner = f"{self.bridge}-{number}", f"{self.bridge}o{number}", f"{self.bridge}i{number}"
        run("ip", "netns", "add", name)
        self.names.append(name)
        run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
        run("ip", "link", "set", inner, "netns", name)
        run("ip", "link", "set", outer, "master", self.bridge, "up")
        run("ip", "-n", name, "addr", "add", f"{self.address(number)}/24", "dev", inner)
        run("ip", "-n", name, "link", "set", inner, "up")
        run("ip", "-n", name, "link", "set", "lo", "up")

    def address(self, number):
        return f"{NETWORK}.{number}"

    def inside(self, number):
        return ["ip", "netns", "exec", self.names[number - 1]]

    def cut(self, number, is_cut):
        """Takes the cable of a host, or puts it back."""
        run("ip", "link", "set", f"{self.bridge}o{number}", "down" if is_cut else "up")

    def lose(self, number, datagrams=0, segments=0):
        """Loses a share of the datagrams of the group, and of the segments of the protocol, that a host gets."""
        rules = ["table inet loss", "delete table inet loss"]
        if datagrams or segments:
            rules += ["table inet loss {", "chain input {", "type filter hook input priority 0;"]
            # nftables has no share of 100 %.
            some = f" numgen random mod 100 < {datagrams}" if datagrams < 100 else ""
            rules += [f"udp dport {GROUP_PORT}{some} drop"] if datagrams else []
            rules += [f"tcp {way} {PORT} numgen random mod 100 < {segments} drop" for way in ("dport", "sport")
                      if segments]
            rules += ["}", "}"]
        run(*self.inside(number), "nft", "-f", "-", text="\n".join(rules) + "\n")

    def close(self):
        for number, name in enumerate(self.names, 1):
            # A namespace goes later, when its last process has ended, and its cable with it.
            subprocess.run(["ip", "link", "del", f"{self.bridge}o{number}"], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True, check=False)

    def __exit__(self, *_):
        self.close()


def start(rig, network, load, numbers, seeds=None):
    """Starts services on these hosts, by multicast or with seeds."""
    services = []
    for number in numbers:
        words = [*load.of_service(), "--plain", f"{NETWORK}.0/24"]
        if seeds is None:
            words += ["--group", f"{GROUP}:{GROUP_PORT}", "--interface", network.address(number)]
        else:
            words += ["--seeds", ",".join(f"{network.address(seed)}:{PORT}" for seed in seeds)]
        services.append(rig.service([rig.fresh("volume")], words, name=f"writer{number}", host=network.address(number),
                                    port=PORT, inside=network.inside(number)))
    for service in services:
        service.wait_ready()
    return services


def states(service):
    """The state of each service, by its address, as one of them knows them."""
    with contextlib.suppress(OSError):
        return {one["address"]: one["state"] for one in service.asks("table")["services"]}
    return {}


def know_each_other(services):
    """Waits until each service knows that all are up; returns the time."""
    begun, wanted = time.monotonic(), {service.address: STATE_UP for service in services}
    for service in services:
        wait_until(f"{service.name} knows all services", lambda: states(service) == wanted)
    return {"known_s": round(time.monotonic() - begun, 1)}


def producing(rig, network, load, services):
    """A producer on a host of its own."""
    rig.count += 1
    producer = rig.produce(f"net{rig.count}", services, load.options(), inside=network.inside(SERVICES + 1),
                           environment=PRODUCER_ALLOCATOR)
    wait_until("bytes reach the services", lambda: sum(one.written() for one in services) > 1 << 20)
    return producer


def multicast_finds_all(rig, network, load):
    """Three services find each other by multicast, and a producer that knows one of them uses all."""
    services = start(rig, network, load, range(1, SERVICES + 1))
    figures = know_each_other(services)
    return judge(rig, load, producing(rig, network, load, services[:1]), figures)


def loss_only_delays(rig, network, load):
    """Half of the datagrams and some segments are lost. A service that starts again is found again."""
    for number in range(1, SERVICES + 1):
        network.lose(number, DATAGRAM_LOSS, SEGMENT_LOSS)
    services = start(rig, network, load, range(1, SERVICES + 1))
    figures = know_each_other(services)
    producer = producing(rig, network, load, services)
    services[0].kill()
    services[0].start_again()
    figures |= {f"again_{name}": value for name, value in know_each_other(services).items()}
    return judge(rig, load, producer, figures)


def no_multicast_but_seeds(rig, network, load):
    """No datagram arrives at all. Services with seeds find each other, their own address is among them."""
    for number in range(1, SERVICES + 1):
        network.lose(number, datagrams=100)
    services = start(rig, network, load, range(1, SERVICES + 1), seeds=range(1, SERVICES + 1))
    figures = know_each_other(services)
    return judge(rig, load, producing(rig, network, load, services[:1]), figures)


def cut_service_is_gone_and_comes_back(rig, network, load):
    """A cable is taken and put back. The others see the service go and come, and no event is lost."""
    services = start(rig, network, load, range(1, SERVICES + 1))
    know_each_other(services)
    producer = producing(rig, network, load, services)
    network.cut(1, True)
    wait_until("the service is gone", lambda: states(services[1]).get(services[0].address) == STATE_GONE)
    network.cut(1, False)
    return judge(rig, load, producer, know_each_other(services))


ALL = [multicast_finds_all, loss_only_delays, no_multicast_but_seeds, cut_service_is_gone_and_comes_back]


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("exacat")
    arguments.add_argument("--only", metavar="TEXT", help="tests with this in their names")
    arguments.add_argument("--seconds", type=int, default=8, help="time that producers send in each")
    arguments.add_argument("--keep", action="store_true", help="leave the logs of what failed in place")
    asked = arguments.parse_args()
    for command in ("serve", "produce"):
        told = subprocess.run([asked.exacat, "writer", command, "--help"], capture_output=True, text=True, timeout=30)
        if told.returncode != 0 or (command == "serve" and "--group" not in told.stdout):
            say(f"left out: {asked.exacat} has no `writer {command}` with what this needs")
            return 0
    load, failed = dataclasses.replace(Load(), seconds=asked.seconds), []
    for test in ALL:
        if asked.only and asked.only not in test.__name__:
            continue
        say(f"{test.__name__}: {test.__doc__}")
        try:
            with Network(SERVICES + 1) as network, rig_in(asked.exacat, keep=asked.keep) as rig:
                say("    ok: " + "  ".join(f"{name} {value}" for name, value in test(rig, network, load).items()))
        except Left as why:
            say(f"    left out: {why}")
        except Failed as why:
            say(f"    FAILED: {why}")
            failed.append(test.__name__)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
