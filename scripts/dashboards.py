#!/usr/bin/env python3
"""Writes the dashboards of docs/operating/dashboards. With --check it only says whether they are current.

A panel is a line: title, description, unit, and queries with their legends. In a query, `$S` selects the chosen servers, `$R`
is the range of rates. A panel that needs more than a server has a tag: `node_exporter`; `cluster` for a catalogue over
Cassandra or ScyllaDB; `block_device` for data on a block device; `task_delayacct` for this setting of the kernel.
"""

import json
import pathlib
import sys

PLACE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "operating" / "dashboards"
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS, HEIGHT = 24, 8
READS = "stat|whereis|lfns|list|find|du|trash-list|tag-get|collection-members|archive-members|log|changes"
DELETES = "remove|trash-purge|se-deleted"
CHANGES = "mkdir|register|link|set-attributes|set-replicas|move|trash-restore|tag-set|collection-create|collection-edit|" \
          "upload-reserve|upload-commit|upload-abort"
FAULTS = "internal|corrupt|unavailable|unknown|busy"
QUANTILES = [(0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (0.999, "p99.9")]


def rate(metric, labels="", by="", over="$R"):
    selected = "$S" + (", " + labels if labels else "")
    summed = f"sum by ({by})" if by else "sum"
    return f"{summed} (rate({metric}{{{selected}}}[{over}]))"


def quantile(share, metric, labels="", by=""):
    return f"histogram_quantile({share}, {rate(metric + '_bucket', labels, ', '.join(['le', by] if by else ['le']))})"


def quantiles(metric, labels=""):
    return [(quantile(share, metric, labels), name) for share, name in QUANTILES]


def mean(metric, labels="", by=""):
    return f"{rate(metric + '_sum', labels, by)} / {rate(metric + '_count', labels, by)}"


def share_of(part, whole):
    return f"{part} / clamp_min({whole}, 1e-9)"


def or_zero(query):
    return f"({query} or vector(0))"


class Dashboard:
    def __init__(self, name, title, description):
        self.name, self.title, self.description = name, title, description
        self.panels, self.left, self.top, self.row_height = [], 0, 0, 0

    def place(self, width, height):
        if self.left + width > COLUMNS:
            self.left, self.top = 0, self.top + self.row_height
            self.row_height = 0
        place = {"x": self.left, "y": self.top, "w": width, "h": height}
        self.left, self.row_height = self.left + width, max(self.row_height, height)
        return place

    def row(self, title, description):
        self.left, self.top, self.row_height = 0, self.top + self.row_height, 0
        self.panels.append({"id": len(self.panels) + 1, "type": "row", "title": title, "description": description,
                            "collapsed": False, "gridPos": self.place(COLUMNS, 1), "panels": []})
        self.left, self.top, self.row_height = 0, self.top + 1, 0

    def panel(self, title, description, unit, queries, kind="timeseries", width=8, height=HEIGHT, tags=(), stack=False, **more):
        targets = []
        for number, (query, legend) in enumerate(queries):
            target = {"refId": chr(ord("A") + number), "datasource": DATASOURCE, "legendFormat": legend,
                      "expr": query.replace("$S", 'instance=~"$instance"').replace("$R", "$__rate_interval")}
            if kind in ("table", "stat"):
                target["instant"] = True
            if kind in ("table", "heatmap"):
                target["format"] = kind
            targets.append(target)
        defaults = {"unit": unit}
        options = {}
        if kind == "timeseries":
            defaults["custom"] = {"fillOpacity": 30 if stack else 0, "lineWidth": 1, "showPoints": "never",
                                  "stacking": {"mode": "normal" if stack else "none", "group": "A"}}
            options = {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["last", "min", "mean", "max"]},
                       "tooltip": {"mode": "multi", "sort": "desc"}}
        elif kind == "heatmap":
            options = {"calculate": False, "yAxis": {"unit": unit, "axisPlacement": "left"}, "legend": {"show": True},
                       "color": {"mode": "scheme", "scheme": "Blues", "steps": 32}, "tooltip": {"mode": "single", "yHistogram": True}}
        elif kind == "stat":
            options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "none"}
        panel = {"id": len(self.panels) + 1, "type": kind, "title": title, "description": description, "datasource": DATASOURCE,
                 "gridPos": self.place(width, height), "fieldConfig": {"defaults": defaults, "overrides": []},
                 "options": options, "targets": targets, **more}
        if tags:
            panel["tags"] = list(tags)
        self.panels.append(panel)

    def heatmap(self, title, description, metric, labels="", **more):
        """The distribution of a histogram over time."""
        selected = "$S" + (", " + labels if labels else "")
        self.panel(title, description, "s", [(f"sum by (le) (increase({metric}_bucket{{{selected}}}[$R]))", "{{le}}")],
                   kind="heatmap", **more)

    def stat(self, title, description, unit, query, **more):
        self.panel(title, description, unit, [(query, "")], kind="stat", width=4, height=4, **more)

    def table(self, title, description, columns, width=COLUMNS, **more):
        """Columns: query, name, unit. Rows are joined by the labels that all have."""
        names = {f"Value #{chr(ord('A') + number)}": name for number, (_, name, _) in enumerate(columns)}
        overrides = [{"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": unit}]}
                     for _, name, unit in columns]
        joined = [{"id": "merge", "options": {}},
                  {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": names}}]
        self.panel(title, description, "short", [(query, name) for query, name, _ in columns], kind="table", width=width,
                   transformations=joined, **more)
        panel = self.panels[-1]
        panel["fieldConfig"]["overrides"] = overrides
        panel["options"] = {"footer": {"show": True, "reducer": ["sum", "mean"], "fields": ""}}

    def json(self):
        datasource = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
        instance = {"name": "instance", "label": "Server", "type": "query", "datasource": DATASOURCE, "refresh": 2, "multi": True,
                    "includeAll": True, "allValue": ".*", "query": "label_values(exacat_up_seconds, instance)",
                    "current": {"text": "All", "value": "$__all"}}
        board = {"uid": f"exacat-{self.name}", "title": self.title, "description": self.description, "tags": ["exacat"],
                 "schemaVersion": 39, "editable": True, "refresh": "30s", "time": {"from": "now-3h", "to": "now"},
                 "templating": {"list": [datasource, instance]}, "panels": self.panels}
        # One line for a panel keeps the file readable, and its history too.
        panels = ",\n".join("  " + json.dumps(panel, ensure_ascii=False) for panel in self.panels)
        head = {key: value for key, value in board.items() if key != "panels"}
        return json.dumps(head, ensure_ascii=False, indent=1)[:-2] + f',\n "panels": [\n{panels}\n ]\n}}\n'


def latencies(board):
    board.row("Latency", "From receipt to answer.")
    board.panel("Look-ups", "Time of stat and whereis.", "s",
                quantiles("exacat_request_seconds", 'operation=~"stat|whereis"'))
    board.heatmap("Look-ups by their time", "Their number by length: two bands are hits and misses of the caches.",
                  "exacat_request_seconds", 'operation=~"stat|whereis"')
    board.panel("Places of a file", "Time to get logical and physical information: whereis.", "s",
                quantiles("exacat_request_seconds", 'operation="whereis"'))
    board.panel("Changes", "Time of changes. Most of it is the sync of the log.", "s",
                quantiles("exacat_request_seconds", f'operation=~"{CHANGES}|{DELETES}"'))
    board.panel("p99 by operation", "99 % of the requests are faster.", "s",
                [(quantile(0.99, "exacat_request_seconds", by="operation"), "{{operation}}")])
    board.panel("Average by operation", "Mean time of a request.", "s",
                [(mean("exacat_request_seconds", by="operation"), "{{operation}}")])
    board.panel("Listings", "Time of list and find: pages of directories.", "s",
                quantiles("exacat_request_seconds", 'operation=~"list|find"'))


def rates(board):
    board.row("Rates", "Requests and items of all operations.")
    board.panel("Reads, changes, deletes", "Requests a second by kind.", "reqps", [
        (rate("exacat_requests_total", f'operation=~"{READS}"'), "reads"),
        (rate("exacat_requests_total", f'operation=~"{CHANGES}"'), "changes"),
        (rate("exacat_requests_total", f'operation=~"{DELETES}"'), "deletes")])
    board.panel("Requests by operation", "Requests a second.", "reqps",
                [(rate("exacat_requests_total", by="operation"), "{{operation}}")])
    board.panel("Items by operation", "Items a second: a batch has many.", "ops",
                [(rate("exacat_request_items_total", by="operation"), "{{operation}}")])
    reads = rate("exacat_requests_total", f'operation=~"{READS}"')
    changes = rate("exacat_requests_total", f'operation=~"{CHANGES}|{DELETES}"')
    board.stat("Reads per change", "Requests that read, per request that changes.", "short", share_of(reads, changes))
    board.stat("Bytes sent per byte received", "Volume of reads against that of writes.", "short",
               share_of(rate("exacat_sent_bytes_total"), rate("exacat_received_bytes_total")))
    board.panel("Network", "Bytes from and to clients.", "Bps", [
        (rate("exacat_received_bytes_total"), "received"), (rate("exacat_sent_bytes_total"), "sent")])
    board.panel("Rate and connections", "Requests a second beside the connections they come from.", "short", [
        (rate("exacat_requests_total"), "requests a second"),
        ('sum (exacat_held{$S, bound=~"connections.*"})', "connections")])


def errors(board):
    board.row("Errors and refusals", "Requests that failed, and those that the server refused to protect itself.")
    board.panel("Outcomes other than ok", "Requests a second by outcome; zero while all go well.", "reqps",
                [(rate("exacat_requests_total", 'outcome!="ok"', "outcome"), "{{outcome}}")])
    board.panel("Share of failures", "Failures by the fault of the server, of all requests.", "percentunit",
                [(share_of(or_zero(rate("exacat_requests_total", f'outcome=~"{FAULTS}"')), rate("exacat_requests_total")), "failures")])
    board.panel("Refused at a bound", "Requests and connections refused, by bound.", "ops", [
        (rate("exacat_refused_at_bound_total", by="bound"), "{{bound}}"),
        (rate("exacat_lane_refused_total", by="lane"), "lane {{lane}}")])
    board.panel("Connections refused or broken", "Connections that ended against their will.", "ops", [
        (rate("exacat_connections_refused_total"), "refused"),
        (rate("exacat_handshakes_failed_total"), "handshake failed"),
        (rate("exacat_authentications_refused_total"), "credentials refused"),
        (rate("exacat_connections_stalled_total"), "client does not read"),
        (rate("exacat_connections_idle_closed_total"), "idle")])
    board.panel("Defects and slow requests", "Panics, frames that are not well-formed, and slow requests.", "ops", [
        (rate("exacat_request_panics_total"), "panics"), (rate("exacat_frames_refused_total"), "bad frames"),
        (rate("exacat_slow_requests_total"), "slow requests")])


def contents(board):
    board.row("The catalogue in time", "Entries, files, replicas and bytes: choose a long range of time.")
    board.panel("Entries", "Entries in the tree and the trash, files, replicas.", "short", [
        ("max (exacat_store_entries{$S})", "entries"), ("max (exacat_files{$S})", "files"),
        ("max (exacat_replicas{$S})", "replicas")])
    board.panel("Bytes", "Logical bytes of files, and bytes of their replicas.", "bytes", [
        ("max (exacat_file_bytes{$S})", "files"), ("max (exacat_replica_bytes{$S})", "replicas")])
    board.panel("Changes committed", "Changes a second: the rate of the changefeed.", "ops",
                [("max (deriv(exacat_store_revision{$S}[$R]))", "changes")])


def followed(board):
    board.row("Feeds and followers", "Consumers of the changes; see docs/operating/feeds.md and docs/operating/followers.md.")
    board.panel("Age of what feeds lack", "Age of the oldest change that the sink of a feed lacks.", "s",
                [("max by (feed) (exacat_feed_lag_seconds{$S})", "{{feed}}")])
    board.panel("Changes that feeds lack", "Changes of the catalogue that the sink of a feed lacks.", "short",
                [("max by (feed) (exacat_feed_lag_changes{$S})", "{{feed}}")])
    board.panel("Events of feeds", "Events that sinks acknowledged, and failed attempts, a second.", "ops", [
        (rate("exacat_feed_events_total", by="feed"), "{{feed}}"),
        (rate("exacat_feed_failures_total", by="feed"), "{{feed}} failed")])
    board.panel("Feeds by state", "Feeds that are running, paused, lost or failed.", "short",
                [("sum by (state) (exacat_feed_state{$S})", "{{state}}")], stack=True)
    board.panel("Followers", "Followers of these servers: following, or away.", "short",
                [("sum by (state) (exacat_followers{$S})", "{{state}}")], stack=True)
    board.panel("Changes that followers lack", "Changes that a follower has not durably.", "short",
                [("max by (follower) (exacat_follower_behind_changes{$S})", "{{follower}}")])
    board.panel("Time without a word of a follower", "Time since it last asked for changes.", "s",
                [("max by (follower) (exacat_follower_unseen_seconds{$S})", "{{follower}}")])
    board.panel("Behind the source", "Of servers that are followers: the time for which their state may be out of date.", "s",
                [("max by (instance) (exacat_behind_seconds{$S})", "{{instance}}")])
    board.panel("Comparison with the source", "Of followers of one directory: rows compared, and what they had wrong.", "short", [
        ("sum (exacat_follower_compared_rows{$S})", "rows"),
        ("sum (exacat_follower_differences_total{$S})", "differences")])


def elements(board):
    board.row("History of elements", "Servers with --history; see docs/operating/history.md.")
    board.panel("Rows and batches", "Durable ones, a second.", "ops", [
        (rate("exacat_history_rows_total"), "rows"), (rate("exacat_history_batches_total"), "batches"),
        (rate("exacat_history_refused_total"), "refused batches")])
    board.panel("Time of writes and reads", "From receipt to answer, p50 and p99.", "s", [
        (quantile(share, "exacat_request_seconds", f'operation="{operation}"'), f"{operation} {name}")
        for operation in ("element-write", "element-rows", "element-values", "element-aggregates")
        for share, name in ((0.5, "p50"), (0.99, "p99"))])
    board.panel("Log", "Syncs a second, batches that share one, and mean time of one in ms.", "short", [
        (rate("exacat_history_log_syncs_total"), "syncs"),
        (share_of(rate("exacat_history_batches_total"), rate("exacat_history_log_syncs_total")), "batches in a sync"),
        (share_of(rate("exacat_history_log_seconds_total"), rate("exacat_history_log_syncs_total")) + " * 1000", "ms a sync")])
    board.panel("Stalls", "Seconds in a second in which batches wait for a flush, and flushes that wait.", "short", [
        (rate("exacat_history_stall_seconds_total"), "stalled"), ("sum (exacat_history_flushes_waiting{$S})", "flushes waiting")])
    board.panel("Elements and rows", "Elements, rows in memory, rows in runs.", "short", [
        ("sum (exacat_history_elements{$S})", "elements"), ("sum (exacat_history_rows_in_memory{$S})", "rows in memory"),
        ("sum (exacat_history_run_rows{$S})", "rows in runs")])
    board.panel("Runs", "Sorted runs, and their bytes for each row.", "short", [
        ("sum (exacat_history_runs{$S})", "runs"),
        (share_of("sum (exacat_history_run_bytes{$S})", "sum (exacat_history_run_rows{$S})"), "bytes a row")])
    board.panel("Archive", "Rows archived a second, and attempts that failed.", "ops", [
        (rate("exacat_history_archived_rows_total"), "rows"), (rate("exacat_history_archive_failures_total"), "failures")])
    board.stat("Problems", "Things that the history cannot do now: exacat status.", "short", "sum (exacat_history_problems{$S})")


def machine(board):
    board.row("Machine (node_exporter)", "Needs node_exporter on the machines.")
    tags = ["node_exporter"]
    board.panel("Processor by mode", "Share of all processors.", "percentunit",
                [("sum by (mode) (rate(node_cpu_seconds_total[$R])) / on () group_left () sum (rate(node_cpu_seconds_total[$R]))",
                  "{{mode}}")], stack=True, tags=tags)
    board.panel("Load", "Threads that run or wait to run.", "short",
                [("node_load1", "{{instance}} 1 min"), ("node_load15", "{{instance}} 15 min")], tags=tags)
    board.panel("Memory", "Memory of the machine.", "bytes", [
        ("node_memory_MemTotal_bytes", "total"), ("node_memory_MemAvailable_bytes", "available"),
        ("node_memory_Buffers_bytes", "buffers"), ("node_memory_Cached_bytes", "cached"), ("node_memory_MemFree_bytes", "free")],
                tags=tags)
    board.panel("Disk time of a request", "Mean time of reads and writes.", "s", [
        ("rate(node_disk_read_time_seconds_total[$R]) / rate(node_disk_reads_completed_total[$R])", "read {{device}}"),
        ("rate(node_disk_write_time_seconds_total[$R]) / rate(node_disk_writes_completed_total[$R])", "write {{device}}")], tags=tags)
    board.panel("Disk in use", "Share of time in which the disk works.", "percentunit",
                [("rate(node_disk_io_time_seconds_total[$R])", "{{device}}")], tags=tags)
    board.panel("Disk space", "Free bytes by file system.", "bytes",
                [("node_filesystem_avail_bytes", "{{mountpoint}}")], tags=tags)
    board.panel("Network of the machine", "Bytes by device.", "Bps", [
        ("rate(node_network_receive_bytes_total[$R])", "received {{device}}"),
        ("rate(node_network_transmit_bytes_total[$R])", "sent {{device}}")], tags=tags)


def single_server():
    board = Dashboard("single-server", "exacat: single server", "One server with the embedded store.")
    board.row("Health", "Is it well?")
    board.stat("Up", "Servers that answer.", "short", 'count (exacat_serving{$S} == 1)')
    board.stat("Take changes", "Servers whose store takes changes.", "short", "sum (exacat_ready{$S})")
    board.stat("Warnings", "Things an operator should know: exacat status.", "short", "sum (exacat_store_warnings{$S})")
    board.stat("Alerts", "Alerts of exacat.rules.yml that fire.", "short",
               'count (ALERTS{alertname=~"Exacat.*", alertstate="firing"}) or vector(0)')
    board.stat("Revision", "The last committed change.", "short", "max (exacat_store_revision{$S})")
    board.stat("Running for", "Time since the start.", "s", "min (exacat_up_seconds{$S})")
    rates(board)
    latencies(board)
    errors(board)
    board.row("Average active requests", "Requests in progress, by the state they are in. Compare with the number of processors.")
    board.panel("By class of wait", "Seconds of requests in a second, by class. Above the number of processors in class cpu: overload.",
                "short", [(rate("exacat_request_state_seconds_total", by="class"), "{{class}}"),
                          ("max (exacat_processors{$S})", "processors")], stack=True, width=12)
    board.panel("By state", "Seconds of requests in a second, by state.", "short",
                [(rate("exacat_request_state_seconds_total", by="state"), "{{state}}")], stack=True, width=12)
    board.panel("Requests in progress", "Requests by state, now.", "short",
                [("sum by (state) (exacat_requests_in_state{$S})", "{{state}}")])
    board.panel("p99 of waits", "99 % of the waits of a request are shorter, by state.", "s",
                [(quantile(0.99, "exacat_wait_seconds", by="state"), "{{state}}")])
    board.table("Waits", "Number, time and average of waits in the last hour, by state; docs/reference/waits.md has the remedies.", [
        ("sum by (state) (increase(exacat_wait_seconds_count{$S}[1h]))", "waits", "short"),
        ("sum by (state) (increase(exacat_wait_seconds_sum{$S}[1h]))", "time", "s"),
        ("sum by (state) (increase(exacat_wait_seconds_sum{$S}[1h])) / sum by (state) (increase(exacat_wait_seconds_count{$S}[1h]))",
         "average", "s")], width=8)
    board.panel("Time without a name", "Share of the time of requests that no state explains.", "percentunit",
                [(share_of(or_zero(rate("exacat_request_state_seconds_total", 'class="unaccounted"')),
                           rate("exacat_request_life_seconds_total")), "unaccounted")])
    board.panel("Processor by thread role", "Seconds on a processor in a second.", "short",
                [(rate("exacat_thread_cpu_seconds_total", by="role"), "{{role}}")], stack=True)
    board.panel("Run queue by thread role", "Seconds in which threads were ready, and no processor was free: slow storage may be this.",
                "short", [(rate("exacat_thread_runqueue_seconds_total", by="role"), "{{role}}")], stack=True)
    board.panel("Stretches on a processor", "Length at p99 by thread role: means of a thread in a second.", "s",
                [(quantile(0.99, "exacat_thread_on_cpu_stretch_seconds", by="role"), "{{role}}")])
    board.panel("Stretches off a processor", "Length at p50 by thread role, in the queue or waiting: means of a thread in a second.", "s",
                [(quantile(0.5, "exacat_thread_off_cpu_stretch_seconds", by="role"), "{{role}}")])
    board.heatmap("All stretches on a processor", "Their number by length, all roles: a load of its own shows as a band.",
                  "exacat_thread_on_cpu_stretch_seconds")
    board.heatmap("All stretches off a processor", "Their number by length, all roles, in the queue or waiting.",
                  "exacat_thread_off_cpu_stretch_seconds")
    board.panel("Waits for block devices by thread role", "Seconds in a second, a part of the waits of threads.", "short",
                [(rate("exacat_thread_io_wait_seconds_total", by="role"), "{{role}}")], stack=True, tags=["task_delayacct"])
    board.panel("Threads", "By role.", "short", [("sum by (role) (exacat_threads{$S})", "{{role}}")])
    board.panel("Processor time", "Processor seconds of the process in a second.", "short", [
        (rate("process_cpu_seconds_total"), "used"), ("max (exacat_processors{$S})", "processors")])
    board.row("Log", "Every change waits until its commit group is synced.")
    board.panel("Time of a sync", "Time to write and sync a commit group.", "s", quantiles("exacat_store_log_sync_seconds"))
    disk = {"tags": ["block_device"]}
    board.panel("Time of the disk itself", "Mean time of its flushes, writes and reads, of all programs, beside that of a sync.", "s", [
        (mean("exacat_store_log_sync_seconds"), "sync of the log"),
        *[(share_of(rate(f"exacat_data_disk_{one}_seconds_total"), rate(f"exacat_data_disk_{many}_total")), one)
          for one, many in (("flush", "flushes"), ("write", "writes"), ("read", "reads"))]], **disk)
    board.panel("Disk of the data", "Share of the time with a request, and requests in progress, of all programs.", "short", [
        (rate("exacat_data_disk_busy_seconds_total"), "share of time"),
        (rate("exacat_data_disk_request_seconds_total"), "requests in progress")], **disk)
    board.panel("Syncs and changes", "A second.", "ops", [
        (rate("exacat_store_log_sync_seconds_count"), "syncs"), (rate("exacat_store_changes_total"), "changes"),
        (rate("exacat_store_requests_total"), "requests of changes")])
    board.panel("Requests in a commit group", "The larger, the more changes share a sync.", "short", [
        (mean("exacat_store_group_requests"), "average"), (quantile(0.99, "exacat_store_group_requests"), "p99")])
    board.panel("Time of changes against their rate", "The line at 100 ms is the goal for the longest stall.", "short", [
        (quantile(0.99, "exacat_request_seconds", f'operation=~"{CHANGES}"') + " * 1000", "p99 in ms"),
        (rate("exacat_store_changes_total"), "changes a second"), ("vector(100)", "goal in ms")])
    board.panel("Size of the log", "Bytes on disk, by form of the segments.", "bytes",
                [("sum by (form) (exacat_store_log_size_bytes{$S})", "{{form}}")])
    board.row("Caches", "Pages of sorted runs in memory.")
    board.panel("Hits", "Parts found in the page cache, a second.", "ops",
                [(rate("exacat_store_cache_hits_total", by="cache"), "{{cache}}")])
    board.panel("Misses", "Parts read from the disk, a second.", "ops",
                [(rate("exacat_store_cache_misses_total", by="cache"), "{{cache}}")])
    board.panel("Hit ratio", "Share of the parts that were in memory.", "percentunit",
                [(share_of(rate("exacat_store_cache_hits_total", by="cache"),
                           f"({rate('exacat_store_cache_hits_total', by='cache')} + {rate('exacat_store_cache_misses_total', by='cache')})"),
                  "{{cache}}")])
    board.panel("Size of the cache", "Bytes, and their bound.", "bytes", [
        ('sum (exacat_store_memory_bytes{$S, part="cache"})', "cache"), ("sum (exacat_store_cache_limit_bytes{$S})", "bound")])
    board.row("Sorted runs and compaction", "Work behind the changes.")
    board.panel("Runs by tier", "Sorted runs.", "short", [("sum by (tier) (exacat_store_tier_runs{$S})", "tier {{tier}}")], stack=True)
    board.panel("Bytes by tier", "Size on disk.", "bytes", [("sum by (tier) (exacat_store_tier_bytes{$S})", "tier {{tier}}")], stack=True)
    board.panel("Rows by tier", "Rows in sorted runs.", "short", [("sum by (tier) (exacat_store_tier_rows{$S})", "tier {{tier}}")], stack=True)
    board.panel("Bytes written", "By the log and by background work, a second.", "Bps", [
        (rate("exacat_store_log_written_bytes_total"), "log"),
        (rate("exacat_store_background_written_bytes_total", by="work"), "{{work}}")], stack=True)
    written = rate("exacat_store_background_written_bytes_total", 'work!="archives"', over="1h")
    board.panel("Write amplification", "Bytes written for a byte of the log, over an hour.", "short",
                [(f"1 + {share_of(written, rate('exacat_store_log_written_bytes_total', over='1h'))}", "log, flushes, compactions")])
    board.panel("Entries against rate of changes", "Changes a second beside the entries in the catalogue: no write cliff.", "short", [
        (rate("exacat_store_changes_total"), "changes a second"), ("sum (exacat_store_entries{$S}) / 1e6", "million entries")])
    board.panel("Debt and pauses", "Runs that compaction owes, and seconds in a second that the writer waits for it.", "short", [
        ("sum (exacat_store_compaction_debt_runs{$S})", "runs owed"),
        (rate("exacat_store_backpressure_seconds_total", by="cause"), "waits: {{cause}}")])
    board.panel("Background work", "Seconds of work in a second, and work in progress.", "short", [
        (rate("exacat_store_background_seconds_total", by="work"), "{{work}}"),
        ("sum by (work) (exacat_store_background_running{$S})", "running: {{work}}")])
    board.panel("Background work done", "Memtables flushed, compactions, segments archived, in an hour.", "short",
                [("sum by (work) (increase(exacat_store_background_total{$S}[1h]))", "{{work}}")])
    board.panel("Free space", "Of the disk of the data directory, beside the size of all runs.", "bytes", [
        ("min (exacat_store_disk_free_bytes{$S})", "free"), ("sum (exacat_store_runs_bytes{$S})", "runs")])
    board.row("Memory and files", "Of the process.")
    board.panel("Memory of the store", "By part.", "bytes", [("sum by (part) (exacat_store_memory_bytes{$S})", "{{part}}")], stack=True)
    board.panel("Memory of the process", "In RAM, and the most it may take.", "bytes", [
        ("sum (process_resident_memory_bytes{$S})", "in RAM"), ("sum (exacat_memory_limit_bytes{$S})", "limit"),
        ("sum (exacat_output_bytes{$S})", "unread answers")])
    board.panel("Open files and threads", "Connections are open files too.", "short", [
        ("sum (process_open_fds{$S})", "open files"), ("sum (process_max_fds{$S})", "limit"), ("sum (process_threads{$S})", "threads")])
    board.row("Queues", "Which stage is full?")
    board.table("Bounds", "In progress, most, and refused since the start.", [
        ("sum by (bound) (exacat_held{$S})", "in progress", "short"), ("sum by (bound) (exacat_held_max{$S})", "most", "short"),
        ("sum by (bound) (exacat_refused_at_bound_total{$S})", "refused", "short")], width=12)
    board.panel("Lanes", "Requests that run, and that wait for a slot.", "short", [
        ("sum by (lane) (exacat_lane_running{$S})", "running: {{lane}}"),
        ("sum by (lane) (exacat_lane_waiting{$S})", "waiting: {{lane}}"),
        ("sum (exacat_store_queue_requests{$S})", "waiting for the writer")], width=12)
    board.panel("Background workers", "Things done a second: expiry and purges.", "ops",
                [(rate("exacat_worker_done_total", by="worker"), "{{worker}}")])
    board.panel("Errors of workers", "Steps that failed, a second.", "ops",
                [(rate("exacat_worker_errors_total", by="worker"), "{{worker}}")])
    board.panel("Time of workers", "Seconds of steps in a second.", "short",
                [(rate("exacat_worker_seconds_total", by="worker"), "{{worker}}")])
    board.row("Protocols", "Clients by protocol.")
    board.panel("Connections", "Open ones, by kind.", "short", [('sum by (bound) (exacat_held{$S, bound=~"connections.*"})', "{{bound}}"),
                                                                ("sum (exacat_users{$S})", "users")])
    board.panel("JAliEn", "Commands a second.", "ops", [
        (rate("exacat_jalien_commands_total"), "commands"), (rate("exacat_jalien_commands_failed_total"), "failed")])
    board.panel("XRootD", "Requests a second, and clients sent to a storage element.", "ops", [
        (rate("exacat_xrootd_requests_total"), "requests"), (rate("exacat_xrootd_requests_failed_total"), "refused"),
        (rate("exacat_xrootd_redirects_total"), "redirects"), (rate("exacat_xrootd_waits_total"), "told to wait")])
    followed(board)
    elements(board)
    contents(board)
    machine(board)
    return board


def cluster():
    tags = ["cluster"]
    board = Dashboard("cluster", "exacat: cluster", "Several servers of one catalogue over Cassandra or ScyllaDB.")
    board.row("Servers", "One row each; the footer has the sum and the average.")
    board.table("Servers", "State, rate, time and size of each server.", [
        ("sum by (instance) (exacat_ready{$S})", "ready", "short"),
        ("sum by (instance) (exacat_up_seconds{$S})", "running for", "s"),
        (rate("exacat_requests_total", by="instance", over="5m"), "requests/s", "reqps"),
        (f"histogram_quantile(0.99, {rate('exacat_request_seconds_bucket', by='le, instance', over='5m')})", "p99", "s"),
        (rate("process_cpu_seconds_total", by="instance", over="5m"), "processors", "short"),
        ("sum by (instance) (process_resident_memory_bytes{$S})", "memory", "bytes"),
        ('sum by (instance) (exacat_held{$S, bound=~"connections.*"})', "connections", "short"),
        ("max by (instance) (exacat_store_revision{$S})", "revision", "short")])
    board.panel("Versions", "Servers by version of the program.", "short",
                [("count by (version) (exacat_build_info{$S})", "{{version}}")])
    board.panel("Operations by server", "Requests a second.", "reqps", [(rate("exacat_requests_total", by="instance"), "{{instance}}"),
                                                                       (rate("exacat_requests_total"), "sum")])
    board.panel("Average latency by server", "Mean time of a request.", "s", [(mean("exacat_request_seconds", by="instance"), "{{instance}}")])
    board.panel("p99 by server", "99 % of the requests are faster.", "s", [(quantile(0.99, "exacat_request_seconds", by="instance"), "{{instance}}")])
    board.panel("Reads by server", "Requests a second.", "reqps",
                [(rate("exacat_requests_total", f'operation=~"{READS}"', "instance"), "{{instance}}")])
    board.panel("Changes by server", "Requests a second.", "reqps",
                [(rate("exacat_requests_total", f'operation=~"{CHANGES}|{DELETES}"', "instance"), "{{instance}}")])
    board.panel("Lag", "Changes of the newest server that another one has not read.", "short",
                [("max (exacat_store_revision{$S}) - on () group_right () max by (instance) (exacat_store_revision{$S})", "{{instance}}")])
    rates(board)
    latencies(board)
    errors(board)
    board.row("Statements of the database", "As the servers see them.")
    board.panel("Statements", "Sent a second, by kind.", "ops", [(rate("exacat_store_statements_total", by="kind"), "{{kind}}")], tags=tags)
    board.panel("p99 of statements", "By kind, with the driver's retries.", "s",
                [(quantile(0.99, "exacat_store_statement_seconds", by="kind"), "{{kind}}")], tags=tags)
    board.panel("Average of statements", "By kind.", "s", [(mean("exacat_store_statement_seconds", by="kind"), "{{kind}}")], tags=tags)
    board.panel("Time of a node's answer", "To one attempt of a statement.", "s", quantiles("exacat_store_node_answer_seconds"), tags=tags)
    board.panel("Errors", "Attempts that failed, by reason: time-outs, unavailable, overloaded, connection.", "ops",
                [(rate("exacat_store_statement_errors_total", by="error"), "{{error}}")], tags=tags)
    board.panel("Retries", "A second.", "ops", [
        (rate("exacat_store_statements_retried_total"), "retried by the driver"),
        (rate("exacat_store_statements_speculative_total"), "sent to a second node"),
        (rate("exacat_store_reads_repeated_total"), "reads repeated by the server")], tags=tags)
    board.row("Nodes of the database", "As the servers see them.")
    board.stat("Nodes", "Of the cluster.", "short", "max (exacat_store_nodes{$S})", tags=tags)
    board.stat("Away", "Not connected to a server.", "short", "max (exacat_store_nodes_away{$S})", tags=tags)
    board.stat("Unresponsive", "Got a statement and answer nothing.", "short", "max (exacat_store_nodes_unresponsive{$S})", tags=tags)
    board.table("Nodes", "Attempts and failures a second, and time of an answer.", [
        (rate("exacat_store_node_statements_total", by="node", over="5m"), "statements/s", "ops"),
        (rate("exacat_store_node_failures_total", by="node", over="5m"), "failed/s", "ops"),
        (f"histogram_quantile(0.5, {rate('exacat_store_node_seconds_bucket', by='le, node', over='5m')})", "p50", "s"),
        (f"histogram_quantile(0.99, {rate('exacat_store_node_seconds_bucket', by='le, node', over='5m')})", "p99", "s")],
                width=12, tags=tags)
    board.row("Log and tables", "One ordered log; the tables follow it.")
    board.panel("Commit groups", "Groups and changes a second.", "ops", [
        (rate("exacat_store_groups_total"), "groups"), (rate("exacat_store_changes_total"), "changes")], tags=tags)
    board.panel("Changes in a group", "Average, and p99.", "short", [
        (mean("exacat_store_group_changes"), "average"), (quantile(0.99, "exacat_store_group_changes"), "p99")], tags=tags)
    board.panel("Appends", "Lost against another server, unknown, waited for a flush, backed off.", "ops",
                [(rate("exacat_store_append_events_total", by="event"), "{{event}}")], tags=tags)
    board.panel("Forwarded", "Requests of changes forwarded between servers.", "ops",
                [(rate("exacat_store_forwarded_requests_total", by="direction"), "{{direction}}")], tags=tags)
    board.panel("Not flushed", "Changes that may be in the log alone, and flushes a second.", "short", [
        ("max by (instance) (exacat_store_unflushed_changes{$S})", "{{instance}}"),
        (rate("exacat_store_flushes_total"), "flushes")], tags=tags)
    board.row("Freshness and row cache", "Reads that need no statement.")
    board.panel("Age of the log head", "Since the last read of it at QUORUM.", "s",
                [("max by (instance) (exacat_store_head_age_seconds{$S})", "{{instance}}"),
                 ("max (exacat_store_stale_limit_seconds{$S})", "suffices for bounded staleness")], tags=tags)
    board.panel("Answers by consistency", "A second.", "ops", [
        (rate("exacat_store_answers_total", by="level"), "{{level}}"),
        (rate("exacat_store_answers_without_head_read_total"), "without a read of the log head")], tags=tags)
    board.panel("Cache hits", "Rows found, a second, by kind.", "ops", [(rate("exacat_store_cache_hits_total", by="cache"), "{{cache}}")], tags=tags)
    board.panel("Cache misses", "Rows that the cache did not know, a second.", "ops",
                [(rate("exacat_store_cache_misses_total", by="cache"), "{{cache}}")], tags=tags)
    board.panel("Hit ratio of the row cache", "Share of the rows that the cache knew.", "percentunit",
                [(share_of(rate("exacat_store_cache_hits_total"),
                           f"({rate('exacat_store_cache_hits_total')} + {rate('exacat_store_cache_misses_total')})"), "all kinds")], tags=tags)
    board.panel("Rows in the cache", "By server, and their bound.", "short", [
        ("max by (instance) (exacat_store_cached_rows{$S})", "{{instance}}"),
        ("max (exacat_store_cache_limit_rows{$S})", "bound")], tags=tags)
    contents(board)
    machine(board)
    return board


def storage_elements():
    board = Dashboard("storage-elements", "exacat: storage elements", "Replicas, redirects, failures and deletions by storage element.")
    board.row("Storage elements", "One row each; the footer has the sum.")
    board.table("Storage elements", "As the catalogue counts them.", [
        ("max by (se) (exacat_se_online{$S})", "online", "short"), ("max by (se) (exacat_se_replicas{$S})", "replicas", "short"),
        ("max by (se) (exacat_se_bytes{$S})", "bytes", "bytes"),
        ("max by (se) (exacat_se_deletions{$S})", "to delete", "short"),
        ("max by (se) (exacat_se_deletion_bytes{$S})", "bytes to delete", "bytes"),
        (rate("exacat_se_redirects_total", by="se", over="5m"), "redirects/s", "ops"),
        (rate("exacat_se_failures_total", by="se", over="5m"), "failures/s", "ops")])
    board.row("Contents", "Replicas and bytes.")
    board.panel("Bytes", "Of replicas that take space.", "bytes", [("max by (se) (exacat_se_bytes{$S})", "{{se}}")], stack=True, width=12)
    board.panel("Replicas", "That take space.", "short", [("max by (se) (exacat_se_replicas{$S})", "{{se}}")], stack=True, width=12)
    board.panel("Replication rate", "Replicas that a storage element gains, a second.", "ops",
                [("max by (se) (deriv(exacat_se_replicas{$S}[$R]))", "{{se}}")], width=12)
    board.stat("Replicas per file", "Average.", "short", "max (exacat_replicas{$S}) / max (exacat_files{$S})")
    board.stat("Offline or read-only", "Storage elements that take no uploads.", "short", "count (max by (se) (exacat_se_online{$S}) == 0) or vector(0)")
    board.row("Clients", "Of XRootD and HTTP.")
    board.panel("Redirects", "Clients sent to a storage element, a second.", "ops", [(rate("exacat_se_redirects_total", by="se, protocol"), "{{se}} by {{protocol}}")], width=12)
    board.panel("Failures", "That clients reported, a second.", "ops", [(rate("exacat_se_failures_total", by="se"), "{{se}}")], width=12)
    board.panel("Uploads", "Files opened for writing, committed, given up.", "ops", [
        (rate("exacat_xrootd_writes_total"), "opened"), (rate("exacat_xrootd_writes_committed_total"), "committed"),
        (rate("exacat_xrootd_writes_given_up_total"), "given up")], width=12)
    board.row("Deletion queues", "Replicas that wait for their deletion.")
    board.panel("Replicas to delete", "By storage element.", "short", [("max by (se) (exacat_se_deletions{$S})", "{{se}}")], width=12)
    board.panel("Bytes to delete", "By storage element.", "bytes", [("max by (se) (exacat_se_deletion_bytes{$S})", "{{se}}")], width=12)
    return board


def main():
    stale = []
    for board in (single_server(), cluster(), storage_elements()):
        path, text = PLACE / f"{board.name}.json", board.json()
        json.loads(text)
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                stale.append(path.name)
        else:
            path.write_text(text)
    if stale:
        sys.exit(f"not current: {', '.join(stale)}: scripts/dashboards.py writes them")


if __name__ == "__main__":
    main()
