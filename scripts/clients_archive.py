"""What `make test-clients` tries with readers of the history: DuckDB, pyarrow, pandas, Polars, delta-rs and, if asked, Spark.

They read the files that `exacat serve --history-archive` writes and the tables that it answers, and are compared with what the server answers
about the same days. `test-clients.py` runs the functions of TRIED. The part that needs packages runs in the
Python of the rig's environment: this file is then the program. A bucket is tried with moto, a server of S3.
docs/operating/history.md has the columns.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request

import rest_schema
from clients_rig import Failed, Left, expect, free_port, install, say, wait_until

PACKAGES = ["duckdb", "pyarrow", "pandas", "polars", "deltalake", "pytz", "moto[server]"]
# Spark is a download of half a gigabyte, and needs Java.
SPARK = ["pyspark"]
INSTALL_SECONDS = 600
DAY = 86_400
# Seconds: noon, five days ago.
OLD = int(time.time()) // DAY * DAY - 5 * DAY + DAY // 2
ELEMENTS, ROWS = 20, 50


def request(server, token, path, body=None):
    asked = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", data=body,
                                   headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return answer.read()


def query(server, token, text):
    return json.loads(request(server, token, "/query?" + urllib.parse.urlencode({"db": "dcs", "epoch": "ns", "q": text})))


def lines():
    """Two old days and today: float and quality, a large integer, a text, several fields without a value."""
    for day in (OLD, OLD + DAY, int(time.time()) - 60):
        for element in range(ELEMENTS):
            for row in range(ROWS):
                nanoseconds = (day * 1000 + row) * 1_000_000 + (7 if row == 3 else 0)
                yield f"ev,name=a{element} v={element + row / 8},q={row % 3}i {nanoseconds}"
        yield f"big v={2**63 - 1}i {day}000000000"
        yield f'txt v="on, \\"off\\"" {day}000000000'
        yield f"cpu,host=h idle=1.5,user=2 {day}000000000"


def serve_and_archive(rig, name, place, environment):
    """Starts a server with an archive, and writes; returns the server and a token."""
    directory = rig.place / name
    directory.mkdir()
    options = ["--history", "--history-archive", place, "--history-archive-after", "2"]
    os.environ.update(environment)
    server = rest_schema.Server(rig.exacat, directory, *options)
    rig.running.append(server.process)
    token = server.token("--lifetime", "1h", "--write")
    request(server, token, "/query?q=CREATE+DATABASE+dcs", b"")
    request(server, token, "/write?db=dcs", "\n".join(lines()).encode())
    return server, token


def counted(server, token):
    answer = query(server, token, "SELECT count(v) FROM ev")
    return answer["results"][0]["series"][0]["values"][0][1]


def told(rig, who, *words, **more):
    """What a program prints in the Python that has the packages."""
    done = subprocess.run([str(rig.venv / "bin" / "python"), *map(str, words)], capture_output=True, text=True, timeout=300, **more)
    if done.returncode != 0:
        raise Failed(f"{who}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def compare(rig, server, token, place, environment, *reader):
    """Compares what the packages read with the server's answers."""
    expected = {}
    for element in range(ELEMENTS):
        text = f"SELECT v, q FROM ev WHERE \"name\" = 'a{element}' AND time < {(OLD + 2 * DAY - DAY // 2) * 10**9}"
        expected[f"a{element}"] = query(server, token, text)["results"][0]["series"][0]["values"]
    expect(counted(server, token) == 3 * ELEMENTS * ROWS, "the server reads hot and archived days as one")
    asked = json.dumps({"expected": expected, "rows": ELEMENTS * ROWS * 2 + 8})
    say(told(rig, "readers of the archive", __file__, *reader, place, input=asked, env={**os.environ, **environment}))


def install_spark(rig):
    if not shutil.which("java"):
        raise Left("Spark: there is no java")
    install(rig.venv, SPARK, INSTALL_SECONDS)


def archive_in_a_directory(rig):
    """The archive in a directory, read by DuckDB, pyarrow, pandas, Polars and delta-rs; with --spark also by Spark."""
    install(rig.venv, PACKAGES, INSTALL_SECONDS)
    place = rig.place / "archived"
    server, token = serve_and_archive(rig, "archive-server", str(place), {})
    # Days are archived from runs: a stop writes these.
    server, token = restarted(rig, server, token, str(place))
    wait_until("days are archived", lambda: any(place.glob("_delta_log/*.json")))
    compare(rig, server, token, str(place), {})
    if rig.spark:
        install_spark(rig)
        compare(rig, server, token, str(place), {}, "spark")


def restarted(rig, server, token, place):
    server.process.terminate()
    server.process.wait(60)
    again = rest_schema.Server(rig.exacat, server.place, "--history", "--history-archive", place,
                               "--history-archive-after", "2")
    rig.running.append(again.process)
    return again, token


def archive_in_a_bucket(rig):
    """The archive in a bucket of moto, a server of S3; its objects are then read as a directory."""
    install(rig.venv, PACKAGES, INSTALL_SECONDS)
    port = free_port()
    moto = subprocess.Popen([str(rig.venv / "bin" / "moto_server"), "-p", str(port)], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    rig.running.append(moto)
    environment = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "exacat", "AWS_REGION": "us-east-1",
                   "AWS_SECRET_ACCESS_KEY": "exacat", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    python = [str(rig.venv / "bin" / "python"), __file__]
    aside = {**os.environ, **environment}

    def made():
        return subprocess.run([*python, "make-bucket"], env=aside, capture_output=True, timeout=60).returncode == 0

    wait_until("moto has a bucket", made)
    place = "s3://history/below/here"
    server, token = serve_and_archive(rig, "bucket-server", place, environment)
    server, token = restarted(rig, server, token, place)
    copy = rig.place / "copied"
    # Objects of moto stay in its memory, so they are copied until the log has a commit.

    def copied():
        subprocess.run([*python, "copy-bucket", str(copy)], env=aside, capture_output=True, timeout=60, check=True)
        return any(copy.glob("_delta_log/*.json"))

    wait_until("days are archived in the bucket", copied)
    compare(rig, server, token, str(copy), environment)


def rows_of(server, token, group, until):
    asked = urllib.request.Request(f"http://127.0.0.1:{server.port}/api/v1/history/{group}/rows?field=*{until}",
                                   headers={"Authorization": f"Bearer {token}", "Accept": "application/x-ndjson"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        rows = [json.loads(line) for line in answer]
    return sorted(rows, key=lambda row: (row["key"], row["time"]))


def tables_of_rows(rig):
    """Rows as CSV and as Arrow, read by pandas and pyarrow; Parquet and CSV, imported again."""
    install(rig.venv, PACKAGES, INSTALL_SECONDS)
    place = rig.place / "tables-archive"
    server, token = serve_and_archive(rig, "tables-server", str(place), {})
    server, token = restarted(rig, server, token, str(place))
    wait_until("days are archived", lambda: any(place.glob("_delta_log/*.json")))
    kinds = {"csv": "text/csv", "arrow": "application/vnd.apache.arrow.stream"}
    for name, kind in kinds.items():
        asked = urllib.request.Request(f"http://127.0.0.1:{server.port}/api/v1/history/dcs/rows?field=*",
                                       headers={"Authorization": f"Bearer {token}", "Accept": kind})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            (rig.place / f"rows.{name}").write_bytes(answer.read())
    say(told(rig, "readers of tables", __file__, "tables", rig.place))
    # What was exported comes back the same, whatever the form.
    archived = sorted(str(path) for path in place.rglob("*.parquet") if "group=dcs" in str(path))
    for group, files, part in (("of-csv", [str(rig.place / "rows.csv")], ""), ("of-archive", archived, OLD + 2 * DAY - DAY // 2)):
        server.run("history", "set", group)
        server.run("history", "import", group, *files)
        until = f"&to={part}" if part else ""
        first, second = (rows_of(server, token, name, until) for name in ("dcs", group))
        expect(first == second and len(first) > 0, f"{group}: {len(first)} rows, and {len(second)} after the import")
    server.run("history", "set", "foreign")
    server.run("history", "import", "foreign", str(rig.place / "foreign.parquet"))
    latest = json.loads(request(server, token, "/api/v1/history/foreign/values?element=det1&field=*"))["items"][0]["values"]
    expect(latest["v"]["value"] == 2.5 and latest["n"]["value"] == 2**63 - 1, f"{latest}")


def tables_of_the_catalogue(rig):
    """The catalogue as tables, with the queries of docs/operating/analytics.md by DuckDB and pandas; all rows also by Polars."""
    install(rig.venv, PACKAGES, INSTALL_SECONDS)
    directory = rig.place / "catalogue-tables"
    directory.mkdir()
    server = rest_schema.Server(rig.exacat, directory)
    rig.running.append(server.process)
    server.run("generate", "--entries", "5000")
    server.run("mkdir", "/removed")
    server.run("rm", "-r", "/removed")
    server.run("snapshot", "create", "today")
    for name, more in (("tables", []), ("history", ["--tables", "changes"])):
        server.run("export", "/", "--format", "parquet", "--snapshot", "today", "-o", str(directory / name), *more)
    server.run("export", "--check", str(directory / "tables"), "--snapshot", "today")
    scripts = pathlib.Path(__file__).parent
    page = scripts.parent / "docs" / "operating" / "analytics.md"
    queried = told(rig, "queries of the catalogue's tables", scripts / "analytics_queries.py", page, directory)
    answers = [json.loads(line) for line in queried.splitlines()]
    empty = [answer["query"] for answer in answers if answer.get("by") == "duckdb" and not answer["rows"]]
    expect(not empty, f"queries without an answer: {empty}")
    say(f"DuckDB and pandas answer {len(answers)} queries of the catalogue's tables")
    readers = ["polars"]
    if rig.spark:
        install_spark(rig)
        readers.append("spark")
    say(told(rig, "readers of the catalogue's tables", __file__, "catalogue", directory, *readers))


TRIED = [archive_in_a_directory, archive_in_a_bucket, tables_of_rows, tables_of_the_catalogue]


# ---- in the Python that has the packages ------------------------------------------------------------


def read(place, asked):
    import deltalake
    import duckdb
    import polars
    import pyarrow.dataset

    table = deltalake.DeltaTable(place)
    frame = table.to_pandas()
    rows = table.to_pyarrow_table().to_pylist()
    for row in rows:
        row["time_us"] = round(row["time"].timestamp() * 1_000_000)
    assert len(frame) == asked["rows"], f"delta-rs reads {len(frame)} rows of {asked['rows']}"
    columns = ["name", "time", "time_ns", "value", "quality", "field", "integer", "text", "fields", "series"]
    duck = duckdb.sql(f"SELECT {', '.join(columns)} FROM read_parquet('{place}/group=*/day=*/*.parquet', hive_partitioning=true) "
                      "WHERE \"group\" = 'dcs'").fetchall()
    assert len(duck) == asked["rows"], f"DuckDB reads {len(duck)} rows"
    arrow = pyarrow.dataset.dataset(place, format="parquet", partitioning="hive", exclude_invalid_files=True).to_table()
    assert arrow.num_rows == asked["rows"], f"pyarrow reads {arrow.num_rows} rows"
    for name, values in asked["expected"].items():
        # Not by pandas: a column of integers with gaps is one of floats there.
        of = [row for row in rows if row["series"] == f"ev,name={name}"]
        found = [[row["time_ns"] or row["time_us"] * 1000, row["value"], row["quality"]] for row in of]
        found.sort()
        assert found == values, f"{name}: delta-rs {found[:3]}, the server {values[:3]}"
        sums = duckdb.sql(f"SELECT sum(value), count(*) FROM read_parquet('{place}/group=*/day=*/*.parquet') WHERE name = '{name}'")
        assert sums.fetchall()[0] == (sum(row[1] for row in values), len(values)), f"{name}: DuckDB"
    # Polars by the files, and by the Delta log.
    files = polars.scan_parquet(f"{place}/group=*/day=*/*.parquet", hive_partitioning=True).filter(polars.col("group") == "dcs")
    for frame_of, read_by in ((files.collect(), "the files"), (polars.read_delta(place), "the Delta log")):
        assert frame_of.height == asked["rows"], f"Polars reads {frame_of.height} rows by {read_by}"
        for name, values in asked["expected"].items():
            nanoseconds = polars.coalesce("time_ns", polars.col("time").dt.epoch("us") * 1000)
            of = frame_of.filter(polars.col("series") == f"ev,name={name}").select(nanoseconds, "value", "quality").sort("time_ns")
            assert [list(row) for row in of.rows()] == values, f"{name}: Polars by {read_by}"
    largest = [row for row in duck if row[0] == "big"]
    assert len(largest) == 2 and all(int(row[6]) == 2**63 - 1 for row in largest), largest
    assert {row[7] for row in duck if row[0] == "txt"} == {'on, "off"'}
    assert {(row[5], row[3]) for row in duck if row[9] is None and row[0].startswith("cpu")} == {("idle", 1.5), ("user", 2.0)}
    print(f"delta-rs {deltalake.__version__}, DuckDB {duckdb.__version__}, Polars {polars.__version__}, pyarrow and pandas read "
          f"{len(frame)} rows as the server does")


def spark_session():
    from pyspark.sql import SparkSession

    made = SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "UTC").config("spark.ui.enabled", "false")
    return made.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1").getOrCreate()


def read_by_spark(place, asked):
    import pyspark
    from pyspark.sql import functions

    spark = spark_session()
    frame = spark.read.option("basePath", place).parquet(f"{place}/group=*/day=*").where("`group` = 'dcs'")
    assert frame.count() == asked["rows"], f"Spark reads {frame.count()} rows of {asked['rows']}"
    assert {str(row["day"]) for row in frame.select("day").distinct().collect()} == \
        {time.strftime("%Y-%m-%d", time.gmtime(day)) for day in (OLD, OLD + DAY)}
    nanoseconds = functions.coalesce(functions.col("time_ns"), functions.unix_micros("time") * 1000)
    series = frame.where("name LIKE 'a%'").select("series", nanoseconds.alias("at"), "value", "quality").orderBy("at").collect()
    for name, values in asked["expected"].items():
        found = [[row["at"], row["value"], row["quality"]] for row in series if row["series"] == f"ev,name={name}"]
        assert found == values, f"{name}: Spark {found[:3]}, the server {values[:3]}"
    largest = frame.where("name = 'big'").select("integer").collect()
    assert len(largest) == 2 and all(int(row["integer"]) == 2**63 - 1 for row in largest), largest
    spark.stop()
    print(f"Spark {pyspark.__version__} reads {asked['rows']} rows as the server does")


def read_catalogue(directory, readers):
    """Reads every row and column of the catalogue's tables."""
    import polars
    import pyarrow.parquet

    spark = spark_session() if "spark" in readers else None
    for table in sorted(directory.glob("*/*.parquet")):
        rows = int(pyarrow.parquet.read_schema(table).metadata[b"exacat.rows"])
        counted = [polars.read_parquet(table).height]
        if spark:
            counted.append(len(spark.read.parquet(str(table)).collect()))
        assert all(one == rows for one in counted), f"{table}: {counted} of {rows} rows"
    print(f"{' and '.join(readers)} read all rows of the catalogue's tables")


def read_tables(place):
    import pandas
    import pyarrow
    import pyarrow.ipc
    import pyarrow.parquet

    with open(place / "rows.arrow", "rb") as stream:
        table = pyarrow.ipc.open_stream(stream).read_all()
    frame = pandas.read_csv(place / "rows.csv")
    expected = 3 * (ELEMENTS * ROWS + 3)
    assert table.num_rows == len(frame) == expected, f"{table.num_rows} rows of Arrow, {len(frame)} of CSV, {expected} expected"
    assert str(table.schema.field("time").type) == "timestamp[ns, tz=UTC]", table.schema
    numbers = pandas.Series(table.column("v:float").to_pylist(), dtype="float64")
    assert numbers.equals(frame["v:float"].astype("float64")), "values of Arrow and of CSV differ"
    times = pandas.to_datetime(frame["time"], format="ISO8601", utc=True)
    assert (times.astype("datetime64[ns, UTC]").astype("int64") == table.column("time").cast("int64").to_pandas()).all()
    assert 2**63 - 1 in table.column("v:integer").to_pylist()
    assert 'on, "off"' in table.column("v:string").to_pylist()
    foreign = pyarrow.table({"name": ["det1", "det1", "det2"], "v": [1.5, 2.5, 3.5], "n": [1, 2**63 - 1, None],
                             "time": pyarrow.array([1, 2, 3], pyarrow.timestamp("us", "UTC"))})
    pyarrow.parquet.write_table(foreign, place / "foreign.parquet")
    print(f"pyarrow {pyarrow.__version__} reads {table.num_rows} rows of Arrow, pandas {pandas.__version__} the same of CSV")


def objects():
    import boto3

    return boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], region_name="us-east-1")


def copy_bucket(into):
    client = objects()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket="history"):
        for item in page.get("Contents", []):
            path = pathlib.Path(into) / item["Key"].removeprefix("below/here/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(client.get_object(Bucket="history", Key=item["Key"])["Body"].read())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make-bucket"]:
            objects().create_bucket(Bucket="history")
        case ["copy-bucket", into]:
            copy_bucket(into)
        case ["tables", place]:
            read_tables(pathlib.Path(place))
        case ["catalogue", directory, *readers]:
            read_catalogue(pathlib.Path(directory), readers)
        case ["spark", place]:
            read_by_spark(place, json.load(sys.stdin))
        case [place]:
            read(place, json.load(sys.stdin))
