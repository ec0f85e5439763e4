#!/usr/bin/env python3
"""Keeps an exact SQLite mirror of a subtree of exacat, from the directory of a feed.

    exacat feed create mirror --sink dir:/srv/feed --under /data --from copy --when-lost copy
    feed_mirror.py /srv/feed mirror.db            # once
    feed_mirror.py /srv/feed mirror.db --follow   # for ever
    feed_mirror.py /srv/feed mirror.db --list     # paths in order, and a digest of them

Each segment is applied in one transaction together with the position behind it, so the mirror survives
an end of this program at any moment. Needs only the standard library. docs/reference/feed.md describes
the events.
"""

import argparse
import hashlib
import json
import os
import sqlite3
import sys
import time

SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    id TEXT PRIMARY KEY, parent TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,
    stale INTEGER NOT NULL DEFAULT 0, content TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_parent ON entries (parent, name);
CREATE TABLE IF NOT EXISTS state (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
# An entry, and everything below it.
BELOW = """
WITH RECURSIVE below(id) AS (
    VALUES (?) UNION SELECT entries.id FROM entries JOIN below ON entries.parent = below.id
                     WHERE entries.id <> entries.parent
) """


def merged(target, patch):
    """Returns the target with a merge patch (RFC 7396) applied."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merged(target.get(key), value)
    return target


class Mirror:
    def __init__(self, path):
        # Transactions are begun by hand, one for each segment.
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.executescript(SCHEMA)

    def state(self, key, default):
        row = self.db.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return json.loads(row[0]) if row else default

    def keep(self, key, value):
        self.db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (key, json.dumps(value)))

    def segment(self, generation, name, lines):
        """Applies a segment, or nothing of it."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            position = tuple(self.state("position", (0, 0, 0)))
            for line in lines:
                event = json.loads(line)
                place = (generation, event["revision"], event["index"])
                # A feed delivers at least once: the changes that come again are left out. Rows of
                # copies come with versions, which say themselves what is newer.
                if event["op"] in "cumdx" and place <= position:
                    continue
                position = max(position, place)
                self.apply(event)
            self.keep("position", position)
            self.keep("segment", name)
            self.db.execute("COMMIT")
        except BaseException:
            self.db.execute("ROLLBACK")
            raise

    def apply(self, event):
        op = event["op"]
        if op in ("c", "m") and event.get("rows"):
            # What is there now follows as rows.
            self.keep("exact", False)
            self.remove(event)
        elif op in ("c", "r"):
            version = event["version"] if op == "r" else event["revision"]
            self.db.execute(
                "INSERT INTO entries VALUES (?, ?, ?, ?, 0, ?) ON CONFLICT (id) DO UPDATE SET "
                "parent = excluded.parent, name = excluded.name, version = excluded.version, "
                "stale = 0, content = excluded.content WHERE stale OR version <= excluded.version",
                (event["entry"], event["parent"], event["name"], version, json.dumps(event["after"])),
            )
        elif op == "u":
            row = self.newer(event)
            if row:
                content = merged(json.loads(row[0]), event["after"])
                self.db.execute(
                    "UPDATE entries SET content = ?, version = ? WHERE id = ?",
                    (json.dumps(content), event["revision"], event["entry"]),
                )
        elif op == "m":
            # One row, however much is below it.
            if self.newer(event):
                self.db.execute(
                    "UPDATE entries SET parent = ?, name = ?, version = ? WHERE id = ?",
                    (event["parent"], event["name"], event["revision"], event["entry"]),
                )
        elif op == "d" and event.get("all"):
            self.db.execute("DELETE FROM entries")
        elif op == "d":
            self.remove(event)
        elif op == "copy":
            self.keep("exact", False)
            self.db.execute("UPDATE entries SET stale = 1")
        elif op == "copied":
            self.db.execute("DELETE FROM entries WHERE stale")
        elif op == "mark":
            if event.get("exact"):
                self.keep("exact", True)
        elif op in ("lost", "parted"):
            print(f"feed_mirror: {op} at revision {event['revision']}", file=sys.stderr)

    def newer(self, event):
        """Returns the content of an entry if the change is newer than what is known of it."""
        return self.db.execute(
            "SELECT content FROM entries WHERE id = ? AND version < ?", (event["entry"], event["revision"])
        ).fetchone()

    def remove(self, event):
        """Removes an entry with everything below it, unless the change is older than what is known of it."""
        known = self.db.execute("SELECT version FROM entries WHERE id = ?", (event["entry"],)).fetchone()
        if known is None or known[0] < event["revision"]:
            delete = BELOW + "DELETE FROM entries WHERE id IN (SELECT id FROM below)"
            self.db.execute(delete, (event["entry"],))

    def paths(self):
        """Returns all entries by path, relative to the top of the mirror, in the order of their bytes."""
        rows = self.db.execute("SELECT id, parent, name, content FROM entries").fetchall()
        by_id = {row[0]: row for row in rows}
        known = {}

        def path(entry):
            chain = []
            while entry not in known:
                row = by_id[entry]
                if row[1] == entry or row[1] not in by_id:
                    known[entry] = ""
                    break
                chain.append(row)
                entry = row[1]
            for row in reversed(chain):
                known[row[0]] = f"{known[row[1]]}/{row[2]}"
            return known[chain[0][0] if chain else entry]

        return sorted((path(row[0]), json.loads(row[3])) for row in rows)


def read(mirror, directory):
    """Applies the segments that are new. Returns their number."""
    last = mirror.state("segment", "")
    count = 0
    for name in sorted(os.listdir(directory)):
        # A segment that is sent again may have more lines than before, under a later name.
        if not name.endswith(".ndjson") or name <= last:
            continue
        with open(os.path.join(directory, name), encoding="utf-8") as lines:
            mirror.segment(int(name.split("-")[0]), name, lines)
        count += 1
    return count


def main():
    parser = argparse.ArgumentParser(description="Mirror of a subtree of exacat in SQLite")
    parser.add_argument("directory", help="directory of the feed's segments")
    parser.add_argument("database", help="file of the mirror")
    parser.add_argument("--follow", action="store_true", help="wait for further segments, for ever")
    parser.add_argument("--list", action="store_true", help="print all entries and their digest")
    arguments = parser.parse_args()
    mirror = Mirror(arguments.database)
    while True:
        read(mirror, arguments.directory)
        if not arguments.follow:
            break
        time.sleep(1)
    if arguments.list:
        digest = hashlib.sha256()
        for path, content in mirror.paths():
            line = f"{path or '/'}\t{content['kind']}\t{content.get('size', '')}\t{content['owner']}"
            digest.update(line.encode() + b"\n")
            print(line)
        print(f"{digest.hexdigest()} exact={mirror.state('exact', True)}", file=sys.stderr)


if __name__ == "__main__":
    main()
