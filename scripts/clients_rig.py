"""What the scripts share that drive real clients: how a failure is said, how something is waited for."""

import socket
import subprocess
import time

PATIENCE = 300


class Failed(Exception):
    """A client did not do what it should."""


class Left(Exception):
    """Something cannot be tried here, and why."""


def say(text):
    print(text, flush=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(what, holds, patience=PATIENCE):
    end = time.monotonic() + patience
    while not holds():
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {patience} s")
        time.sleep(0.05)


def is_open(port, host="127.0.0.1"):
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def expect(what, holds, told=""):
    if not holds:
        raise Failed(f"{what}\n{told}")


def install(venv, packages, seconds=300):
    """Installs packages into an environment of Python, or says why they cannot be had."""
    names = " ".join(packages)
    try:
        done = subprocess.run([str(venv / "bin" / "pip"), "install", "-q", *packages], capture_output=True, text=True,
                              timeout=seconds)
    except (OSError, subprocess.SubprocessError) as error:
        raise Left(f"{names} cannot be installed here: {error}") from error
    if done.returncode != 0:
        raise Left(f"{names} cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")
