"""What `make test-clients` tries with clients of InfluxDB against `exacat serve --history`: Python's `influxdb` (version 1)
and `influxdb-client` (version 2), and the recorded requests of Telegraf, WinCC OA and Grafana, which cannot be installed.

`test-clients.py` runs the functions of TRIED, in this order, each with the rig of everything that runs. Parts that need a
package run in the Python of the rig's environment: this file is their program, and its argument is the part.
docs/compat/influxdb.md has the paths, statements and answers.
"""

import base64
import gzip
import http.client
import http.server
import json
import os
import pathlib
import sys
import threading
import time
import urllib.parse

import rest_schema
from clients_rig import Failed, expect, install, say

PACKAGES = ["influxdb==5.3.2", "influxdb-client==1.50.0"]
VERSION = "1.8.10"
# Milliseconds: some minutes before now, so that no time is in the future.
BASE = int(time.time()) // 60 * 60_000 - 600_000
MILLION = 1_000_000
# The texts of InfluxDB that clients search.
UNKNOWN = 'database not found: "nope"'
CONFLICT = ('partial write: field type conflict: input field "v" on measurement "ev" is type string, already exists as type '
            'float dropped=1')
EMPTY = {"results": [{"statement_id": 0}]}


# ---- the server, and requests without a client's package --------------------------------------------------------------------


class History:
    """A server with a history of elements, and tokens of its users."""

    def __init__(self, rig):
        place = rig.place / "history"
        place.mkdir()
        self.server = rest_schema.Server(rig.exacat, place, "--history")
        rig.running.append(self.server.process)
        self.server.run("user", "add", "reader")
        day = ["--lifetime", "1h"]
        self.environment = {
            **os.environ, "INFLUX_PORT": str(self.server.port), "INFLUX_BASE": str(BASE),
            "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
            # In the environment, so that no token is in a list of processes.
            "INFLUX_ADMIN": self.server.token(*day, "--write"),
            "INFLUX_READER": self.server.token(*day, "--write", "--user", "reader"),
            "INFLUX_READ_ONLY": self.server.token(*day),
        }


def history(rig):
    if not hasattr(rig, "influx"):
        rig.influx = History(rig)
        os.environ.update(rig.influx.environment)
    return rig.influx


def drive(rig, part):
    """Runs a part of this file in the Python that has the packages."""
    environment = history(rig).environment
    install(rig.venv, PACKAGES)
    told = rig.run([str(rig.venv / "bin" / "python"), str(pathlib.Path(__file__).resolve()), part], env=environment)
    for line in told.splitlines():
        say(f"  {line}")


def port():
    return int(os.environ["INFLUX_PORT"])


def token(name="ADMIN"):
    return os.environ[f"INFLUX_{name}"]


def ask(method, path, headers=None, body=None, chunked=False, who="ADMIN"):
    """Sends one request; returns status, headers and body."""
    headers = dict(headers or {})
    if who:
        headers.setdefault("Authorization", f"Token {token(who)}")
    connection = http.client.HTTPConnection("127.0.0.1", port(), timeout=60)
    try:
        if chunked:
            parts = [body[start:start + 100] for start in range(0, len(body), 100)]
            headers["Transfer-Encoding"] = "chunked"
            connection.request(method, path, body=iter(parts), headers=headers, encode_chunked=True)
        else:
            connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def query(text, database="controls", who="ADMIN", method="GET"):
    """Asks as Grafana does: times in milliseconds."""
    parameters = urllib.parse.urlencode({"db": database, "epoch": "ms", "q": text})
    status, _, body = ask(method, f"/query?{parameters}", who=who)
    return status, json.loads(body)


def values(text, database="controls"):
    """Returns the rows of the only series of an answer."""
    status, told = query(text, database)
    expect(f"{text}: one series", status == 200 and len(told["results"][0].get("series", [])) == 1, told)
    return told["results"][0]["series"][0]["values"]


def same(what, got, wanted):
    expect(what, got == wanted, f"got    {got}\nwanted {wanted}")


def refused(what, call, kind, **wanted):
    """Expects an exception with these attributes; `text` must be in its words."""
    text = wanted.pop("text", "")
    try:
        call()
    except kind as error:
        told = f"{type(error).__name__}: {error}"
        same(f"{what}: {told}", {name: getattr(error, name) for name in wanted}, wanted)
        expect(f"{what}: {text!r} in the error", text in str(error).replace('\\"', '"'), told)
        return
    raise Failed(f"{what}: was accepted")


# ---- Python's influxdb, version 1 -------------------------------------------------------------------------------------------


def v1():
    from influxdb import InfluxDBClient
    from influxdb.exceptions import InfluxDBClientError

    def client(who="ADMIN", **more):
        secret = token(who) if who else "no-token"
        return InfluxDBClient("127.0.0.1", port(), "any", secret, database="controls", **more)

    one = client()
    same("ping", one.ping(), VERSION)
    one.create_database("controls")
    one.create_database("controls")
    same("databases", one.get_list_database(), [{"name": "controls"}])
    same("retention policies", one.get_list_retention_policies(), [
        {"name": "autogen", "duration": "0s", "shardGroupDuration": "168h0m0s", "replicaN": 1, "default": True}])

    fields = {"v": 829.02, "n": -(2**53) - 1, "on": True, "text": 'a "quoted" \\ text, with = and ü', "zero": -0.0}
    points = [{"measurement": "types", "tags": {"e": "SYS1:dcs/a b,c=d", "alias": "HV crate"}, "time": BASE, "fields": fields}]
    one.write_points(points, time_precision="ms")
    got = list(one.query("SELECT * FROM types", epoch="ms").get_points())
    same("values of each type", got, [{"time": BASE, "e": "SYS1:dcs/a b,c=d", "alias": "HV crate", **fields}])
    same("types of fields", sorted((row["fieldKey"], row["fieldType"]) for row in
                                   one.query("SHOW FIELD KEYS FROM types").get_points()),
         [("n", "integer"), ("on", "boolean"), ("text", "string"), ("v", "float"), ("zero", "float")])

    # 2500 points in requests of 1000, compressed.
    points = [{"measurement": "batch", "tags": {"e": f"ch{n % 10}"}, "time": BASE + n, "fields": {"v": n / 4}}
              for n in range(2500)]
    client(gzip=True).write_points(points, time_precision="ms", batch_size=1000)
    got = list(one.query("SELECT v, e FROM batch", epoch="ms").get_points())
    same("2500 points, gzip, batches of 1000", got,
         [{"time": BASE + n, "v": n / 4, "e": f"ch{n % 10}"} for n in range(2500)])
    # The same batch again: a retry changes nothing.
    client(gzip=True).write_points(points, time_precision="ms", batch_size=1000)
    same("count after a retry", list(one.query("SELECT count(v) FROM batch").get_points())[0]["count"], 2500)
    got = one.query("SELECT mean(v) FROM batch GROUP BY e", epoch="ms")
    same("means by element", {tags["e"]: list(rows)[0]["mean"] for (_, tags), rows in got.items()},
         {f"ch{n}": (n + 1245) / 4 for n in range(10)})
    got = one.query("SELECT last(v) FROM batch WHERE e = 'ch3'", epoch="ms")
    same("latest value of an element", list(got.get_points()), [{"time": BASE + 2493, "last": 2493 / 4}])
    rows = [row for part in one.query("SELECT v FROM batch", chunked=True, chunk_size=1000) for row in part.get_points()]
    same("chunked answers", len(rows), 2500)

    # NaN is refused, and the rest of the batch is written.
    points = [{"measurement": "ev", "tags": {"e": "a"}, "time": BASE + n, "fields": {"v": v}}
              for n, v in enumerate([1.5, float("nan"), 2.5])]
    nan = (f"partial write: unable to parse 'ev,e=a v=nan {BASE + 1}': invalid number dropped=0")
    refused("NaN", lambda: one.write_points(points, time_precision="ms"), InfluxDBClientError, code=400, text=nan)
    same("the rest of the batch", values("SELECT v FROM ev"), [[BASE, 1.5], [BASE + 2, 2.5]])
    refused("only NaN", lambda: one.write_points(points[1:2], time_precision="ms"), InfluxDBClientError, code=400,
            text=f"unable to parse 'ev,e=a v=nan {BASE + 1}': invalid number")
    refused("a text in a field of floats", lambda: one.write_points(["ev,e=a v=\"text\" 1"], protocol="line"),
            InfluxDBClientError, code=400, text=CONFLICT)

    point = [{"measurement": "ev", "time": BASE, "fields": {"v": 9.0}}]

    def write(to, **more):
        return lambda: to.write_points(point, time_precision="ms", **more)

    refused("unknown database", write(one, database="nope"), InfluxDBClientError, code=404, text=UNKNOWN)
    refused("unknown database, read", lambda: one.query("SELECT v FROM ev", database="nope"), InfluxDBClientError, code=None,
            text="database not found: nope")
    refused("wrong token", write(client(None)), InfluxDBClientError, code=401)
    refused("user without the right to write", write(client("READER")), InfluxDBClientError, code=403,
            text="group controls: you may not write to it")
    refused("token for reading", write(client("READ_ONLY")), InfluxDBClientError, code=403,
            text="this token is for reading only")
    same("a refused write changed nothing", values("SELECT v FROM ev"), [[BASE, 1.5], [BASE + 2, 2.5]])
    same("any user reads a group without readers", len(list(client("READER").query("SELECT v FROM ev").get_points())), 2)
    refused("statement outside of the list", lambda: one.query("SELECT percentile(v, 5) FROM ev"), InfluxDBClientError,
            code=400, text="error parsing query")

    one.create_database("short_lived")
    one.alter_retention_policy("autogen", "short_lived", duration="36h")
    same("parts of a day count as one", one.get_list_retention_policies("short_lived")[0]["duration"], "48h0m0s")
    old = [{"measurement": "ev", "time": BASE - 4 * 86_400_000, "fields": {"v": 1.0}}]
    refused("before the retention", lambda: one.write_points(old, database="short_lived", time_precision="ms"),
            InfluxDBClientError, code=400, text="partial write: points beyond retention policy dropped=1")
    ahead = [{"measurement": "ev", "time": BASE + 86_400_000, "fields": {"v": 1.0}}]
    refused("a clock a day ahead", write_of(one, ahead), InfluxDBClientError, code=400,
            text="partial write: points beyond retention policy dropped=1")
    one.drop_database("short_lived")
    same("databases at the end", one.get_list_database(), [{"name": "controls"}])


def write_of(client, points):
    return lambda: client.write_points(points, time_precision="ms")


# ---- Python's influxdb-client, version 2 ------------------------------------------------------------------------------------


class Forward(http.server.BaseHTTPRequestHandler):
    """Refuses the first write as an overloaded server does, and forwards all others."""

    seen = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append(time.monotonic())
        status, text = 503, '{"error":"the history has too much to write: send the batch again later"}'
        if len(self.seen) > 1:
            headers = {name: self.headers[name] for name in ["Authorization", "Content-Encoding"] if self.headers[name]}
            status, _, text = ask("POST", self.path, headers, body)
        self.send_response(status)
        if status == 503:
            self.send_header("Retry-After", "1")
        if status != 204:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def v2():
    from influxdb_client import InfluxDBClient, Point, WriteOptions, WritePrecision
    from influxdb_client.client.write_api import SYNCHRONOUS
    from influxdb_client.rest import ApiException

    def client(who="ADMIN", where=None, **more):
        secret = token(who) if who else "no-token"
        return InfluxDBClient(f"http://127.0.0.1:{where or port()}", token=secret, org="any", **more)

    one = client()
    same("ping", one.ping(), True)
    same("version", one.version(), VERSION)
    same("health", (one.health().status, one.health().message), ("pass", "ready for queries and writes"))
    same("made by version 1", query('CREATE DATABASE "v2"', method="POST"), (200, EMPTY))

    for name, more in [("plain", {}), ("gzip", {"enable_gzip": True})]:
        write = client(**more).write_api(write_options=SYNCHRONOUS)
        point = Point(name).tag("e", "SYS1:dcs/a b,c=d").field("v", 829.02).field("n", 2**62).field("on", False)
        point = point.field("text", 'a "quoted" \\ text').time(BASE, WritePrecision.MS)
        write.write(bucket="v2", record=point, write_precision=WritePrecision.MS)
        write.write(bucket="v2/autogen", record=f"{name},e=u n=1i,v=2,u=18446744073709551615u {(BASE + 1) * MILLION}")
        same(f"{name}: values of each type", values(f"SELECT e::tag, n, \"on\", \"text\", u, v FROM \"{name}\"", "v2"), [
            [BASE, "SYS1:dcs/a b,c=d", 2**62, False, 'a "quoted" \\ text', None, 829.02],
            [BASE + 1, "u", 1, None, None, 2**64 - 1, 2]])

    # Batches of 1000, as a program that writes all the time has them.
    failed = []
    options = WriteOptions(batch_size=1000, flush_interval=60_000)
    with client(enable_gzip=True) as batching:
        with batching.write_api(write_options=options, error_callback=lambda *error: failed.append(error)) as write:
            for n in range(2500):
                point = Point("batch").tag("e", f"ch{n % 10}").field("v", n / 4).time(BASE + n, WritePrecision.MS)
                write.write(bucket="v2", record=point, write_precision=WritePrecision.MS)
    same("errors of batches", failed, [])
    same("2500 points", values("SELECT v FROM batch", "v2"), [[BASE + n, n / 4] for n in range(2500)])

    # 503 with Retry-After: the client waits and sends the same batch again.
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forward)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    retried = []
    options = WriteOptions(batch_size=10, retry_interval=100, max_retries=3)
    with client(where=proxy.server_address[1]) as batching:
        with batching.write_api(write_options=options, error_callback=lambda *error: failed.append(error),
                                retry_callback=lambda *error: retried.append(error)) as write:
            write.write(bucket="v2", record=[f"again v={n}i {(BASE + n) * MILLION}" for n in range(10)])
    proxy.shutdown()
    same("after 503: errors, retries, requests", (failed, len(retried), len(Forward.seen)), ([], 1, 2))
    expect("Retry-After is waited for", Forward.seen[1] - Forward.seen[0] >= 1, Forward.seen)
    same("rows after the retry", values("SELECT v FROM again", "v2"), [[BASE + n, n] for n in range(10)])

    def write(to, bucket="v2", record="ev v=1"):
        return lambda: to.write_api(write_options=SYNCHRONOUS).write(bucket=bucket, record=record)

    refused("unknown bucket", write(one, "nope"), ApiException, status=404, text="database not found")
    refused("wrong token", write(client(None)), ApiException, status=401)
    refused("user without the right to write", write(client("READER")), ApiException, status=403,
            text="group v2: you may not write to it")
    refused("token for reading", write(client("READ_ONLY")), ApiException, status=403,
            text="this token is for reading only")
    lines = f"ev v=1 {BASE * MILLION}\nbad line here x\nev v=2 {(BASE + 1) * MILLION}"
    refused("a bad line", write(one, record=lines), ApiException, status=400,
            text="partial write: unable to parse 'bad line here x': invalid field format dropped=0")
    same("the rest of the batch", values("SELECT v FROM ev", "v2"), [[BASE, 1], [BASE + 1, 2]])
    # This client leaves NaN out by itself.
    write(one, record=Point("nan").field("v", float("nan")).field("w", 1.0).time(BASE, WritePrecision.MS))()
    same("NaN is left out by the client", values("SHOW FIELD KEYS FROM nan", "v2"), [["w", "float"]])
    refused("Flux", lambda: one.query_api().query('from(bucket: "v2") |> range(start: -1h)'), ApiException, status=404)
    refused("buckets", lambda: one.buckets_api().find_bucket_by_name("v2"), ApiException, status=404)


def influx_v1(rig):
    """Python's influxdb 5.3.2: databases, points of each type, gzip, batches, queries, refusals, retention."""
    drive(rig, "v1")


def influx_v2(rig):
    """Python's influxdb-client 1.50.0: points of each type, gzip, batches, 503 and its retry, refusals."""
    drive(rig, "v2")


# ---- recorded requests ------------------------------------------------------------------------------------------------------


TELEGRAF = {"User-Agent": "Telegraf/1.36.0 Go/1.25.0"}


def influx_telegraf(rig):
    """Telegraf's recorded requests of both outputs: a form that makes the database, chunked gzip without a length."""
    history(rig)
    basic = base64.b64encode(f"telegraf:{token()}".encode()).decode()
    first = {**TELEGRAF, "Authorization": f"Basic {basic}"}
    form = urllib.parse.urlencode({"q": 'CREATE DATABASE "telegraf"'})
    headers = {**first, "Content-Type": "application/x-www-form-urlencoded"}
    status, _, body = ask("POST", "/query", headers, form)
    # It reads the body as JSON, and looks for an error of the statement.
    same("CREATE DATABASE", (status, json.loads(body)), (200, EMPTY))

    rows = 1000
    lines = "".join(f"cpu,cpu=cpu{n % 4},host=node\\ 1 usage_idle={n}.5,usage_user={n}i {(BASE + n) * MILLION}\n"
                    for n in range(rows)).encode()
    headers = {**first, "Content-Type": "text/plain; charset=utf-8", "Content-Encoding": "gzip"}
    status, told, body = ask("POST", "/write?db=telegraf", headers, gzip.compress(lines), chunked=True)
    # Any other status, 200 as well, makes it send the batch again.
    same("a batch: 204 and nothing else", (status, body, told["X-Influxdb-Version"]), (204, "", VERSION))
    same("its rows", values('SELECT usage_idle, usage_user, host::tag FROM cpu', "telegraf"),
         [[BASE + n, n + 0.5, n, "node 1"] for n in range(rows)])
    headers = {**TELEGRAF, "Content-Type": "text/plain; charset=utf-8", "Content-Encoding": "gzip"}
    path = "/api/v2/write?bucket=telegraf&org=alice"
    status, _, body = ask("POST", path, headers, gzip.compress(lines), chunked=True)
    same("the same batch to version 2", (status, body), (204, ""))
    same("count", values("SELECT count(usage_idle) FROM cpu", "telegraf")[0][1], rows)
    # A text with these words makes it send CREATE DATABASE again.
    status, told, body = ask("POST", "/write?db=nope", headers, gzip.compress(lines), chunked=True)
    same("unknown database", (status, json.loads(body), told["X-Influxdb-Error"].replace("\\", "")),
         (404, {"error": UNKNOWN}, UNKNOWN))
    status, told, body = ask("POST", "/write?db=telegraf", TELEGRAF, lines, who=None)
    same("no credentials", (status, told["WWW-Authenticate"]), (401, 'Basic realm="InfluxDB"'))
    # Lines that inflate to more than 25 MB: version 2 splits a batch at 413.
    bomb = gzip.compress(b"ev v=1 1\n" * 3_000_000)
    status, _, body = ask("POST", "/write?db=telegraf", headers, bomb, chunked=True)
    same("a body that inflates to 27 MB", (status, json.loads(body)), (413, {"error": "Request Entity Too Large"}))
    status, _, body = ask("POST", "/write?db=telegraf", TELEGRAF, b"cpu,cpu=cpu9 usage_idle=1\r\ncpu,cpu=cpu9 usage_user=2i")
    same("line ends of Windows, no last newline, times of the server", (status, body), (204, ""))
    got = values("SELECT usage_idle, usage_user FROM cpu WHERE cpu = 'cpu9'", "telegraf")
    same("its rows, one if both lines met one millisecond", [row[1:] for row in got] in (
        [[1, None], [None, 2]], [[1, 2]]), True)


def influx_winccoa(rig):
    """A row in the schema of WinCC OA's InfluxDB backend: five fields, 64 bits of status, a float that is none."""
    history(rig)
    same("CREATE DATABASE", query('CREATE DATABASE "winccoa"', method="POST"), (200, EMPTY))
    name = "System1:dcs/det2/hv/ch009522.actual.vMon"
    time_ns = BASE * MILLION + 1
    lines = (f"EVENT,name={name},variabletype=3,alias=HV\\ crate valuetype=3i,original_value_float=829.02,"
             f"_status64=281474976710913i,_manager=16777217i,_user=0i {time_ns}\n"
             f"EVENT,name={name},variabletype=3,alias=HV\\ crate valuetype=3i,original_value_float_special=\"NaN\","
             f"_status64=-9223372036854775808i,_manager=16777217i,_user=0i {time_ns + 1}\n")
    status, _, body = ask("POST", "/write?db=winccoa&precision=n", {}, lines)
    same("two rows", (status, body), (204, ""))
    parameters = urllib.parse.urlencode({"db": "winccoa", "epoch": "ns", "q":
        f"SELECT valuetype, original_value_float, original_value_float_special, _status64, _manager, _user FROM EVENT "
        f"WHERE \"name\" = '{name}'"})
    status, _, body = ask("GET", f"/query?{parameters}")
    same("what was written", json.loads(body)["results"][0]["series"][0]["values"], [
        [time_ns, 3, 829.02, None, 281474976710913, 16777217, 0],
        [time_ns + 1, 3, None, "NaN", -9223372036854775808, 16777217, 0]])
    same("the element", values("SHOW SERIES", "winccoa"), [[f"EVENT,alias=HV\\ crate,name={name},variabletype=3"]])


def influx_grafana(rig):
    """Grafana's recorded requests: the health check, its builder's queries, and what its editor asks for."""
    history(rig)
    same("CREATE DATABASE", query('CREATE DATABASE "grafana"', method="POST"), (200, EMPTY))
    # The parser of answers takes results[0] without a look.
    same("health check, nothing there", query("SHOW measurements", "grafana"), (200, EMPTY))
    lines = "".join(f"ev,e={element} v={n + add},q={n}i {(BASE + n * 5000) * MILLION}\n"
                    for n in range(6) for element, add in [("a", 0), ("b", 100)] if n != 2 or add)
    same("rows", ask("POST", "/write?db=grafana", {}, lines)[0], 204)
    same("health check", values("SHOW measurements", "grafana"), [["ev"]])

    def answer(text, name, columns, rows):
        told = query(text, "grafana")
        wanted = {"results": [{"statement_id": 0, "series": [{"name": name, "columns": columns, "values": rows}]}]}
        if not name:
            del wanted["results"][0]["series"][0]["name"]
        same(text, told, (200, wanted))

    # The forms of its editor, as its own tests have them (influxql_query_builder.test.ts).
    measurements = ("measurements", ["name"], [["ev"]])
    answer("SHOW MEASUREMENTS LIMIT 100", *measurements)
    answer("SHOW MEASUREMENTS WITH MEASUREMENT =~ /(?i)EV/ LIMIT 100", *measurements)
    answer("SHOW MEASUREMENTS WITH MEASUREMENT =~ /(?i)EV/ WHERE \"e\" = 'a' LIMIT 100", *measurements)
    answer("SHOW MEASUREMENTS WHERE \"e\" = 'a' LIMIT 100", *measurements)
    same("an escaped slash", query("SHOW MEASUREMENTS WITH MEASUREMENT =~ /(?i)e\\/v/ LIMIT 100", "grafana"), (200, EMPTY))
    for text in ['SHOW TAG KEYS FROM "ev"', "SHOW TAG KEYS FROM /.*/", "SHOW TAG KEYS", "SHOW TAG KEYS WHERE \"e\" = 'a'"]:
        answer(text, "ev", ["tagKey"], [["e"]])
    for text in ['SHOW TAG VALUES FROM "ev" WITH KEY = "e"', 'SHOW TAG VALUES WITH KEY = "e"']:
        answer(text, "ev", ["key", "value"], [["e", "a"], ["e", "b"]])
    for condition in ["\"e\" =~ /^(a)$/", "\"e\" = 'a'"]:
        answer(f'SHOW TAG VALUES FROM "autogen"."ev" WITH KEY = "e" WHERE {condition}', "ev", ["key", "value"], [["e", "a"]])
    for text in ['SHOW FIELD KEYS FROM "ev"', "SHOW FIELD KEYS FROM /^ev$/", "SHOW FIELD KEYS"]:
        answer(text, "ev", ["fieldKey", "fieldType"], [["q", "integer"], ["v", "float"]])
    answer('SHOW RETENTION POLICIES on "grafana"', "", ["name", "duration", "shardGroupDuration", "replicaN", "default"],
           [["autogen", "0s", "168h0m0s", 1, True]])

    # The builder's query: six intervals of 5 s, the third of element a is empty.
    end = BASE + 25_000
    between = f"time >= {BASE}ms and time <= {end}ms"
    text = f'SELECT mean("v") FROM "ev" WHERE {between} GROUP BY time(5s), "e"::tag fill(null)'
    series = [{"name": "ev", "tags": {"e": e}, "columns": ["time", "mean"],
               "values": [[BASE + n * 5000, None if n == 2 and not add else n + add] for n in range(6)]}
              for e, add in [("a", 0), ("b", 100)]]
    wanted = {"results": [{"statement_id": 0, "series": series}]}
    same("mean by element", query(text, "grafana"), (200, wanted))
    same("the same by POST", query(text, "grafana", method="POST"), (200, wanted))
    answer(f'SELECT mean("v") FROM "ev" WHERE ("e"::tag = \'a\') AND {between} GROUP BY time(10s) fill(none)', "ev",
           ["time", "mean"], [[BASE, 0.5], [BASE + 10_000, 3], [BASE + 20_000, 4.5]])
    answer(f'SELECT max("q") AS "top", count("v") FROM "ev" WHERE ("e" =~ /^(a|b)$/) AND {between} GROUP BY time(15s) '
           "fill(0)", "ev", ["time", "top", "count"], [[BASE, 2, 5], [BASE + 15_000, 5, 6]])
    answer(f'SELECT last("v") FROM "autogen"."ev" WHERE ("e"::tag = \'b\') AND {between}', "ev", ["time", "last"],
           [[end, 105]])
    answer(f'SELECT "v" FROM "ev" WHERE ("e" = \'a\') AND {between} ORDER BY time DESC LIMIT 2', "ev", ["time", "v"],
           [[end, 5], [end - 5000, 4]])
    same("two statements", query("SHOW MEASUREMENTS; SELECT v FROM nothing", "grafana"), (200, {"results": [
        {"statement_id": 0, "series": [{"name": "measurements", "columns": ["name"], "values": [["ev"]]}]},
        {"statement_id": 1}]}))
    status, told = query("SELECT FROM", "grafana")
    expect("a query that is none", status == 400 and told["error"].startswith("error parsing query: "), told)
    same("an unknown database", query("SHOW MEASUREMENTS", "nope"),
         (200, {"results": [{"statement_id": 0, "error": "database not found: nope"}]}))
    same("a user who is not known", query("SHOW MEASUREMENTS", "grafana", who=None)[0], 401)


TRIED = [influx_v1, influx_v2, influx_telegraf, influx_winccoa, influx_grafana]


def main():
    global BASE
    BASE = int(os.environ["INFLUX_BASE"])
    try:
        {"v1": v1, "v2": v2}[sys.argv[1]]()
    except Failed as why:
        sys.exit(str(why))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("run test-clients.py")
    main()
