#!/usr/bin/env python3
"""Drives schemathesis over the OpenAPI document of a running server: every operation, with an administrator's token, with
that of a plain user, and with none.

Usage: rest_schema.py EXACAT-BINARY [--venv DIR] [--examples N] [--seed N] [--keep]
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from clients_rig import Failed, Left, free_port, say, wait_until

PACKAGE = "schemathesis==4.32.5"
# Bounds of the whole, for continuous integration.
EXAMPLES, SECONDS = 10, 420

# Requests of JSON lines go out as they are. Two headers would make most requests idle: one waits for a revision, the other
# acts as a user that does not exist; a few of each are enough.
HOOKS = '''
import os
import random
import schemathesis

@schemathesis.serializer("application/x-ndjson")
def lines(context, value):
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")

@schemathesis.hook
def filter_case(context, case):
    # The body of a request of lines is text. A number or list in its place would go out as a line, which is accepted.
    return case.media_type != "application/x-ndjson" or isinstance(case.body, (str, bytes))

@schemathesis.hook
def before_call(context, case, kwargs):
    # An LFN is the rest of the path: its slashes stay, which OpenAPI cannot say.
    parameters = case.path_parameters or {}
    if isinstance(parameters.get("lfn"), str):
        parameters["lfn"] = parameters["lfn"].replace("%2F", "/").split("/")[0] or "demo"
    if case.path.endswith("/backups") and isinstance(case.body, dict) and str(case.body.get("directory", "")).startswith("/"):
        case.body["directory"] = os.path.join(os.environ["BACKUPS"], "backups")
    headers = case.headers or {}
    for name in ("Exacat-At-Least", "Exacat-Act-As"):
        value = headers.get(name)
        if value is not None and value != "0" and random.random() > 1 / 16:
            del headers[name]
        elif name == "Exacat-At-Least" and value is not None:
            headers[name] = "0"
    # The coverage phase takes an empty value for one that fits the pattern; none does.
    if headers.get("If-Match") == "":
        del headers["If-Match"]
'''

# Statuses of requests that fit their schemas, beside success: the present state of the catalogue refuses them.
REFUSED = [401, 403, 404, 409, 412, 413, 429, 503, 507]
# Rules between fields, and languages of patterns and expressions: JSON Schema has no words for them, so 400 is true here.
WITH_RULES = {
    "GET /api/v1/activity": "months have their days, a time is after 1970, and a period does not end before it begins",
    "POST /api/v1/find": "patterns, regular expressions and expressions over tags have grammars",
    "PATCH /api/v1/entries/{lfn}": "at least one attribute",
    "PUT /api/v1/files/{lfn}": "two checksums of one kind contradict, an archive is named in one way",
    "POST /api/v1/uploads": "two checksums of one kind contradict, storage elements are named once",
    "POST /api/v1/uploads/{guid}/commit": "two checksums of one kind contradict",
    "PATCH /api/v1/collections/{lfn}": "at least one edit, of a collection",
    "GET /api/v1/collections/{lfn}": "the entry is a collection",
    "PUT /api/v1/directories/{lfn}": "parents=true accepts an existing directory, If-None-Match: * refuses it",
    "PATCH /api/v1/tags/{lfn}": "a key is named once",
    "PUT /api/v1/ses/{name}": "a prefix is the start of a URL",
    "PUT /api/v1/users/{name}": "lists name each thing once",
    "POST /api/v1/tokens": "lifetimes have bounds that an operator sets",
    "PUT /api/v1/links/{lfn}": "a target is not the link itself",
    "PUT /api/v1/throttles/{owner}": "a whole number has no point",
    "PUT /api/v1/history/{name}": "lists name each account once, whole numbers have no point",
    "POST /api/v1/history/{name}/rows": "values have the type of their column, one for each time",
    "GET /api/v1/history/{name}/values": "times are from 1677 to 2262, and months have their days",
    "GET /api/v1/history/{name}/rows": "a range of times does not end before it begins",
    "GET /api/v1/history/{name}/aggregates": "a range of times does not end before it begins",
    "PUT /api/v1/feeds/{name}": "a directory has no secret, a webhook has the URL of a host, a position is not after the last one",
    "POST /api/v1/feeds/{name}/rewind": "a position is not after the last one",
    "POST /api/v1/move": "a directory does not move below itself",
}


def config(port):
    lines = ["[checks.positive_data_acceptance]", f"expected-statuses = {json.dumps(['2xx', '3xx', *map(str, REFUSED)])}",
             # A number beyond a limit of the catalogue is refused with 413.
             "[checks.negative_data_rejection]",
             'expected-statuses = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx"]',
             # A server that is told to wait, or that is short of storage elements, says 503: no defect.
             "[checks.not_a_server_error]", 'expected-statuses = ["2xx", "3xx", "4xx", "503", "507"]']
    for name in WITH_RULES:
        lines += ["[[operations]]", f'include-name = "{name}"',
                  "checks.positive_data_acceptance.expected-statuses = "
                  + json.dumps(["2xx", "3xx", "400", *map(str, REFUSED)])]
    return "\n".join(lines) + "\n"


class Server:
    def __init__(self, exacat, place, *more):
        self.exacat, self.place, self.data = exacat, place, place / "data"
        log = open(place / "exacat.log", "wb")
        self.port = free_port()
        command = [exacat, "--data", str(self.data), "serve", "--listen", "none", "--http", f"127.0.0.1:{self.port}",
                   "--http-plain", *more]
        self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        wait_until("exacat serves", lambda: (self.data / "server.json").exists())

    def run(self, *words):
        done = subprocess.run([self.exacat, "--data", str(self.data), *words], capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise Failed(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def token(self, *words):
        return json.loads(self.run("--json", "token", "issue", *words))["secret"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Failed("exacat did not stop") from None


def install(venv):
    """Returns the program, or says why it cannot be had."""
    program = venv / "bin" / "schemathesis"
    if program.exists():
        return program
    try:
        if not (venv / "bin" / "pip").exists():
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, capture_output=True, timeout=120)
        subprocess.run([str(venv / "bin" / "pip"), "install", "-q", PACKAGE], check=True, capture_output=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        raise Left(f"schemathesis cannot be installed here: {error}") from error
    return program


def drive(program, server, name, token, phases, more, examples, seed):
    """Runs it once; returns its summary."""
    work = server.place / name
    work.mkdir()
    (work / "schemathesis.toml").write_text(config(server.port))
    (work / "hooks.py").write_text(HOOKS)
    command = [str(program), "run", f"http://127.0.0.1:{server.port}/api/v1/openapi.json", "--max-examples", str(examples),
               "--seed", str(seed), "--phases", phases, "--request-timeout", "60", "--suppress-health-check", "all", *more]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(work), "BACKUPS": str(server.place)}
    if token:
        # In a file of its own, so that it is in no list of processes.
        (work / "schemathesis.toml").write_text(f'headers = {{ Authorization = "Bearer {token}" }}\n' + config(server.port))
        os.chmod(work / "schemathesis.toml", 0o600)
    try:
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"schemathesis, {name}: not done within {SECONDS} s\n{error.stdout}") from None
    text = done.stdout + done.stderr
    (work / "output.txt").write_text(text)
    tested = re.search(r"Tested: (\d+)", text)
    selected = re.search(r"Selected: (\d+)/(\d+)", text)
    cases = re.search(r"(\d+) generated", text)
    if done.returncode != 0 or not (tested and selected and cases) or tested.group(1) != selected.group(1):
        raise Failed(f"schemathesis, {name}: status {done.returncode}\n{text}")
    if "--include-operation-id" not in more and "--exclude-operation-id" not in more and selected.group(1) != selected.group(2):
        raise Failed(f"schemathesis, {name}: {selected.group(1)} of {selected.group(2)} operations")
    return f"{tested.group(1)} of {selected.group(2)} operations, {cases.group(1)} cases, 0 failures"


def check(exacat, place, venv, examples=EXAMPLES, seed=1):
    """Checks the API of a new server; returns a line for each run."""
    program = install(venv)
    server = Server(exacat, place)
    try:
        server.run("generate", "--entries", "200")
        server.run("user", "add", "plain")
        lines = []
        # It revokes tokens that it saw in answers, its own among them: that operation comes last, under a new token.
        # The links between answers and requests (stateful) would do the same. A drained server answers 503 to
        # everything else, so the drain is driven last too, together with its end.
        phases, admin = "examples,coverage,fuzzing", ["--lifetime", "1h", "--write"]
        last = ["revokeToken", "drainServer", "resumeServer"]
        others = [word for name in last for word in ("--exclude-operation-id", name)]
        drains = [word for name in last[1:] for word in ("--include-operation-id", name)]
        for name, words, phases, more in [
            ("administrator", admin, phases, others),
            ("plain user", [*admin, "--user", "plain"], phases, others),
            ("revocation", admin, phases, ["--include-operation-id", "revokeToken"]),
            ("drain", admin, phases, drains),
            ("nobody", None, "examples,coverage", []),
        ]:
            token = server.token(*words) if words else None
            lines.append(f"{name}: {drive(program, server, name, token, phases, more, examples, seed)}")
            server.run("drain", "--resume")
        if server.process.poll() is not None:
            raise Failed(f"exacat ended with status {server.process.returncode}")
        return lines
    finally:
        if server.process.poll() is None:
            server.stop()


def rest(rig):
    """schemathesis over the OpenAPI document of the REST API: every operation, as an administrator, a user and nobody."""
    place = rig.place / "schema"
    place.mkdir()
    for line in check(rig.exacat, place, rig.venv):
        say(f"  {line}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("exacat")
    parser.add_argument("--venv", type=pathlib.Path)
    parser.add_argument("--examples", type=int, default=EXAMPLES)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    place = pathlib.Path(tempfile.mkdtemp(prefix="exacat-schema-"))
    try:
        exacat = str(pathlib.Path(args.exacat).resolve())
        for line in check(exacat, place, args.venv or place / "venv", args.examples, args.seed):
            say(f"schemathesis, {line}")
    except Left as left:
        say(f"left out: schemathesis: {left}")
    except Failed as failed:
        say(f"FAILED: {failed}")
        return 1
    finally:
        if args.keep:
            say(f"kept: {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
