#!/usr/bin/env python3
"""`make test-monitoring`: metrics, alert rules and dashboards, with the real Prometheus and promtool.

Usage: test-monitoring.py EXACAT-BINARY [--cassandra HOSTS] [--keep DIRECTORY]

Checks the files first. Then a server serves a small load of mixed operations, a Prometheus scrapes it, and every
panel must show something. Panels that need node_exporter where it is not installed, or a cluster (without
--cassandra), are named and left out.
"""

import argparse
import datetime
import http.client
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.parse

from clients_rig import Failed, expect, free_port, is_open, say, wait_until

HERE = pathlib.Path(__file__).resolve().parent
OPERATING = HERE.parent / "docs" / "operating"
REFERENCE = HERE.parent / "docs" / "reference" / "metrics.md"
KINDS = {"timeseries", "stat", "table", "heatmap", "row"}
# Time until every panel must show something, under load.
PATIENCE = 120
INTERVAL = "20s"
OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
# Names in queries that are functions, keywords or labels of Prometheus itself.
WORDS = {"sum", "rate", "by", "max", "min", "count", "increase", "histogram_quantile", "vector", "or", "and", "on", "group_right",
         "group_left", "clamp_min", "deriv", "unless", "ALERTS", "alertname", "alertstate", "instance", "job", "le"}


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    expect(" ".join(map(str, command[:3])), done.returncode == 0, done.stdout + done.stderr)
    return done.stdout


def known_metrics():
    """Metrics of the reference with their labels, as they are at /metrics."""
    known = {}
    for line in REFERENCE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) >= 4 and cells[0].startswith("`"):
            name, labels = cells[0].strip("`"), set(filter(None, cells[2].split(", ")))
            ends = ["_bucket", "_sum", "_count"] if cells[1] == "histogram" else [""]
            known |= {name + end: labels | ({"le"} if end == "_bucket" else set()) for end in ends}
    return known


def check_names(where, query, known):
    """Every metric and label of a query must exist."""
    bare = re.sub(r'"[^"]*"', '""', query)
    metrics = set(re.findall(r"\b(?:exacat|process)_[a-z0-9_]+", bare))
    unknown = metrics - set(known)
    expect(f"{where}: the metrics are those of the reference", not unknown, unknown)
    labels = set().union(*(known[metric] for metric in metrics)) | {"instance", "job", "alertname", "alertstate", "mode", "device",
                                                                     "mountpoint"}
    used = {label for selected in re.findall(r"{([^}]*)}", bare) for label in re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)", selected)}
    for group in re.findall(r"\b(?:by|on|group_left|group_right)\s*\(([^)]*)\)", bare):
        used |= {label.strip() for label in group.split(",") if label.strip()}
    expect(f"{where}: the labels are those of its metrics", used <= labels, used - labels)


def load_dashboards():
    return {path.name: json.loads(path.read_text()) for path in sorted((OPERATING / "dashboards").glob("*.json"))}


def replaced(query):
    return query.replace("$__rate_interval", INTERVAL).replace("$instance", ".*")


def check_dashboards(boards, place):
    run(HERE / "dashboards.py", "--check")
    known, rules = known_metrics(), []
    for name, board in boards.items():
        variables = {variable["name"] for variable in board["templating"]["list"]}
        expect(f"{name} has its variables", {"datasource", "instance"} <= variables, variables)
        ids, taken = set(), set()
        for panel in board["panels"]:
            where = f"{name}: {panel.get('title')}"
            expect(f"{where} has a new id", panel["id"] not in ids)
            ids.add(panel["id"])
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            expect(f"{where} overlaps no other panel, and fits", not cells & taken and at["x"] + at["w"] <= 24, at)
            taken |= cells
            expect(f"{where} has a title, a description and a kind", panel["title"] and panel["description"] and
                   panel["type"] in KINDS)
            if panel["type"] == "row":
                continue
            expect(f"{where} has a unit and the data source", panel["fieldConfig"]["defaults"]["unit"] and
                   panel["datasource"]["uid"] == "${datasource}" and panel["targets"])
            for target in panel["targets"]:
                query = replaced(target["expr"])
                expect(f"{where}: no variable is left", "$" not in query, query)
                if "node_exporter" not in panel.get("tags", []):
                    check_names(where, query, known)
                rules.append({"record": f"panel:{len(rules)}", "expr": query})
    path = place / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    run("promtool", "check", "rules", path)
    say(f"dashboards: {len(rules)} queries of {len(boards)} dashboards are well-formed")


def check_rules():
    rules, tests = (OPERATING / name for name in ("exacat.rules.yml", "exacat.rules.test.yml"))
    run("promtool", "check", "rules", rules)
    run("promtool", "test", "rules", tests)
    alerts = re.findall(r"- alert: (\w+)", rules.read_text())
    known, page = known_metrics(), (OPERATING / "monitor.md").read_text()
    for alert in re.split(r"(?=- alert: )", rules.read_text())[1:]:
        name, expr = re.match(r"- alert: (\w+)\s+expr: (.*?)\n        (?:for|labels):", alert, re.S).groups()
        check_names(name, expr, known)
        missing = [part for part in ("severity:", "summary:", "description:", f'runbook_url: "monitor.md#{name.lower()}"')
                   if part not in alert]
        expect(f"{name} has all parts", not missing, missing)
        expect(f"{name} has a paragraph", f"\n### {name}\n" in page)
    cases = re.findall(r"alertname: (\w+)\n\s+exp_alerts:( \[\])?", tests.read_text())
    for alert in alerts:
        kinds = {bool(quiet) for name, quiet in cases if name == alert}
        expect(f"{alert} has a test in which it fires, and one in which it stays quiet", kinds == {True, False}, kinds)
    say(f"alerts: {len(alerts)} rules pass their tests")


class Service:
    """A server with a load of mixed operations."""

    def __init__(self, exacat, place, cassandra):
        self.exacat, self.data, self.port = exacat, place / "data", free_port()
        serve = ["serve", "--listen", "none", "--http", f"127.0.0.1:{self.port}", "--http-plain", "--history"]
        if cassandra:
            address = f"cassandra://{cassandra}/exacat_monitoring_{os.getpid()}"
            copies = min(3, len(cassandra.split(",")))
            run(exacat, "schema", "create", address, "--replication",
                f"{{'class': 'NetworkTopologyStrategy', 'datacenter1': {copies}}}")
            serve += ["--store", address]
        self.log = open(place / "server.log", "wb")
        self.process = subprocess.Popen([exacat, "--data", self.data, *serve], stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log)
        wait_until("the server listens", lambda: is_open(self.port) and (self.data / "server.json").exists())
        self.token = (self.data / "admin.token").read_text().strip()
        self.command("se", "add", "DEMO::DISK::SE1", "--prefix", "root://se1.example.org:1094//data")
        self.command("generate", "--entries", "2000")
        self.command("history", "set", "load")
        self.follower = None if cassandra else self.follow(place)
        self.is_over, self.fault = threading.Event(), None
        self.thread = threading.Thread(target=self.load)
        self.thread.start()

    def follow(self, place):
        """Begins a feed, and a follower of one directory: both have metrics and panels of their own."""
        self.command("feed", "create", "mirror", "--sink", f"dir:{place / 'feed'}")
        data, self.follower_port = place / "follower", free_port()
        follow = [self.exacat, "follow", f"http://127.0.0.1:{self.port}", "--under", "/load", "--token-file",
                  self.data / "admin.token", "--data", data, "--listen", "none", "--http", f"127.0.0.1:{self.follower_port}",
                  "--http-plain"]
        self.command("mkdir", "/load")
        process = subprocess.Popen(follow, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        wait_until("the follower listens", lambda: is_open(self.follower_port))
        return process

    def ports(self):
        return [self.port] + ([self.follower_port] if self.follower else [])

    def command(self, *arguments):
        return run(self.exacat, "--data", self.data, *arguments)

    def rest(self, method, target, body=None, wanted=200):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Authorization": f"Bearer {self.token}"} | ({"Content-Type": "application/json"} if body else {})
        connection.request(method, "/api/v1" + target, body=json.dumps(body) if body else None, headers=headers)
        answer = connection.getresponse()
        told = answer.read()
        connection.close()
        expect(f"{method} {target}: status {wanted}", answer.status == wanted, told[:1000])

    def load(self):
        number = 0
        try:
            while not self.is_over.is_set():
                number += 1
                at = f"/load/d{number}"
                self.rest("PUT", f"/directories{at}?parents=true")
                for file in range(5):
                    self.rest("PUT", f"/files{at}/f{file}", {"size": 1000 * file})
                    self.rest("GET", f"/entries{at}/f{file}")
                    self.rest("GET", f"/replicas{at}/f{file}")
                self.rest("GET", f"/children{at}")
                self.rest("GET", f"/children{at}/missing", wanted=404)
                self.rest("DELETE", f"/entries{at}/f0")
                now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                self.rest("POST", "/history/load/rows", {"rows": [{"key": "hv,element=crate1", "times": [now],
                          "columns": [{"field": "v", "type": "float", "values": [number]}]}]})
                for what in ("values", "rows", "aggregates"):
                    self.rest("GET", f"/history/load/{what}?element=crate1&limit=10" +
                              ("" if what == "values" else f"&from={time.time() - 10:.0f}&to={time.time():.0f}"))
                if number % 20 == 1:
                    self.command("find", "/load", "f1")
                    self.command("du", "/load")
                    # A check writes the memtable into a sorted run.
                    self.command("fsck")
        except Exception as error:  # pylint: disable=broad-except
            self.fault = error

    def scrape(self, accept, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        began = time.perf_counter()
        connection.request("GET", "/metrics", headers={"Accept": accept})
        text = connection.getresponse().read().decode()
        took = time.perf_counter() - began
        connection.close()
        return text, took

    def check_metrics(self):
        ends = {known.removesuffix(end) for known in known_metrics() for end in ("", "_bucket")}
        families = set()
        for port in self.ports():
            text, _ = self.scrape("text/plain", port)
            done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
            expect("promtool check metrics", done.returncode == 0 and not done.stderr.strip(), done.stdout + done.stderr)
            families |= set(re.findall(r"^# TYPE (\S+) ", text, re.M))
        expect("every metric is in the reference", families <= ends, families - ends)
        text, _ = self.scrape("text/plain", self.port)
        times = [self.scrape(OPEN_METRICS, self.port) for _ in range(50)]
        expect("OpenMetrics ends", times[0][0].endswith("# EOF\n") and " # {request=" in times[0][0])
        samples = sum(not line.startswith("#") for line in text.splitlines())
        say(f"metrics: {len(families)} families, {samples} samples pass promtool; a scrape under load takes "
            f"{statistics.median(took for _, took in times) * 1e3:.1f} ms (median of 50)")

    def end(self):
        self.is_over.set()
        self.thread.join()
        for process in filter(None, [self.follower, self.process]):
            process.terminate()
            process.wait(60)
        if self.fault:
            raise self.fault


class NodeExporter:
    """The figures of this machine, if Debian's node_exporter is installed."""

    def __init__(self, place):
        self.process, self.port = None, free_port()
        program = shutil.which("prometheus-node-exporter")
        if program:
            self.log = open(place / "node-exporter.log", "wb")
            self.process = subprocess.Popen([program, f"--web.listen-address=127.0.0.1:{self.port}"], stdin=subprocess.DEVNULL,
                                            stdout=self.log, stderr=self.log)
            wait_until("node_exporter listens", lambda: is_open(self.port))

    def end(self):
        if self.process:
            self.process.terminate()
            self.process.wait(60)


class Prometheus:
    def __init__(self, place, ports):
        self.port, self.node_exporter = free_port(), NodeExporter(place)
        jobs = {"exacat": ports} | ({"node": [self.node_exporter.port]} if self.node_exporter.process else {})
        config = place / "prometheus.yml"
        config.write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "5s"}, "rule_files": [str(OPERATING / "exacat.rules.yml")],
            "scrape_configs": [{"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}
                               for job, ports in jobs.items()]}))
        self.log = open(place / "prometheus.log", "wb")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={place / 'prometheus'}",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        wait_until("Prometheus listens", lambda: is_open(self.port))
        wait_until("Prometheus answers", lambda: self.get("status/buildinfo") is not None)

    def get(self, path, **query):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", f"/api/v1/{path}?" + urllib.parse.urlencode(query))
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        # While it starts, it answers in words.
        return json.loads(text) if answer.status in (200, 400, 422) else None

    def shows(self, query):
        """True if a query returns a number."""
        answer = self.get("query", query=query)
        expect(query, answer and answer["status"] == "success", answer)
        values = [sample["value"][1] for sample in answer["data"]["result"] if sample.get("value")] if \
            answer["data"]["resultType"] == "vector" else ["0"]
        return any(math.isfinite(float(value)) for value in values)

    def end(self):
        self.process.terminate()
        self.process.wait(60)
        self.node_exporter.end()


def check_panels(boards, prometheus, service, with_cluster):
    # A server of one store has no panels of the other.
    left_out = {"embedded"} if with_cluster else {"cluster"}
    if not prometheus.node_exporter.process:
        left_out.add("node_exporter")
    wait_until("the server is scraped", lambda: prometheus.shows("exacat_up_seconds"))
    # The kernel has no counters of a disk below overlay, tmpfs or a network, and none of waits unless it is
    # told to count them.
    if not prometheus.shows("exacat_data_disk_reads_total"):
        left_out.add("block_device")
    if not prometheus.shows("exacat_thread_io_wait_seconds_total"):
        left_out.add("task_delayacct")
    waiting, without = [], []
    for name, board in boards.items():
        if with_cluster and name == "single-server.json":
            continue
        for panel in board["panels"]:
            if left_out & set(panel.get("tags", [])):
                without.append(f"{name}: {panel['title']} ({', '.join(panel['tags'])})")
            else:
                waiting += [(f"{name}: {panel['title']}", replaced(target["expr"])) for target in panel.get("targets", [])]
    number, end = len(waiting), time.monotonic() + PATIENCE
    while waiting and time.monotonic() < end and not service.fault:
        waiting = [(panel, query) for panel, query in waiting if not prometheus.shows(query)]
        time.sleep(1)
    for panel, query in waiting:
        say(f"EMPTY {panel}: {query}")
    expect(f"all {number} queries show something", not waiting, f"{len(waiting)} do not")
    targets = prometheus.get("targets")["data"]["activeTargets"]
    expect("the server is scraped without an error", all(target["health"] == "up" for target in targets), targets)
    say(f"panels: {number} queries show something; left out are")
    for panel in without:
        say(f"  {panel}")


def main():
    arguments = argparse.ArgumentParser(description="metrics, alert rules and dashboards with the real Prometheus")
    arguments.add_argument("exacat")
    arguments.add_argument("--cassandra", help="nodes of a ring: its panels are tried too")
    arguments.add_argument("--keep", help="directory for the files of the servers")
    given = arguments.parse_args()
    exacat = os.path.abspath(given.exacat)
    place = pathlib.Path(given.keep or tempfile.mkdtemp(prefix="exacat-monitoring-"))
    place.mkdir(parents=True, exist_ok=True)
    try:
        boards = load_dashboards()
        check_rules()
        check_dashboards(boards, place)
        service = Service(exacat, place, given.cassandra)
        try:
            prometheus = Prometheus(place, service.ports())
            try:
                check_panels(boards, prometheus, service, bool(given.cassandra))
            finally:
                prometheus.end()
            service.check_metrics()
        finally:
            service.end()
    except Failed as failure:
        say(f"FAILED: {failure}")
        raise SystemExit(1) from None
    finally:
        if not given.keep:
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
