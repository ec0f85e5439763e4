"""Runs the queries of docs/operating/analytics.md on exported tables: those of DuckDB, and those of pandas.

Usage: analytics_queries.py PAGE DIRECTORY. The directory has `tables` and `history`. Prints a JSON object for each
query, with its rows. Ends with status 77 and names the package if one is not installed.
"""

import contextlib
import datetime
import decimal
import io
import json
import os
import pathlib
import sys

NOT_INSTALLED = 77


def blocks(text, language):
    """Returns the code blocks of a page in a language."""
    parts = text.split(f"```{language}\n")[1:]
    return [part.split("```")[0].strip() for part in parts]


def plain(value):
    if isinstance(value, decimal.Decimal):
        return int(value)
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    raise TypeError(f"{value!r}")


def main(page, directory):
    try:
        import duckdb
        import pandas
        import pyarrow
    except ImportError as error:
        print(f"not installed: {error.name}", file=sys.stderr)
        return NOT_INSTALLED
    text = pathlib.Path(page).read_text()
    os.chdir(directory)
    for query in blocks(text, "sql"):
        answer = duckdb.sql(query)
        rows = [dict(zip(answer.columns, row)) for row in answer.fetchall()]
        print(json.dumps({"query": query, "by": "duckdb", "rows": rows}, default=plain))
    for program in blocks(text, "python"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(program, {})
        print(json.dumps({"query": program, "by": "pandas", "printed": printed.getvalue()}))
    # Every table, whole, by each reader: no type is left out.
    for table in sorted(pathlib.Path().glob("*/*.parquet")):
        frame = pandas.read_parquet(table)
        counted = len(duckdb.sql(f"SELECT * FROM '{table}'").fetchall())
        metadata = pyarrow.parquet.read_schema(table).metadata
        rows = int(metadata[b"exacat.rows"])
        assert len(frame) == counted == rows, f"{table}: {len(frame)}, {counted}, {rows} rows"
        print(json.dumps({"table": str(table), "rows": rows, "columns": list(frame.columns)}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
