# Every command of the project. `make help` lists them; CI calls the same ones.
SHELL := /bin/bash
CARGO ?= cargo
RUN_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help run build program test check drawings drawings-check fmt clippy subjects dependencies doc fuzz fuzz-seeds bench bench-engine bench-cassandra bench-faces bench-http bench-peers bench-activity bench-history bench-writer bench-replay bench-dump bench-feed bench-follower bench-tables demo-tuning demo-writer demo-replay cluster-up cluster-down test-cluster test-cluster-secure test-kafka test-otel test-clients test-pages test-monitoring test-hostile test-writer test-writer-net test-replay test-long test-crash test-faults test-real clean prerequisites install reference

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

prerequisites:
	@scripts/prerequisites.sh

build: prerequisites ## the program with its debug information, target/release/exacat
	$(CARGO) build --release --locked -p exacat-cli

# Program for the tests with other programs. CI takes that of `make test`: it is there, with assertions on.
PROGRAM ?= target/release/exacat
ifeq ($(PROGRAM),target/debug/exacat)
program: prerequisites
	$(CARGO) build --locked --lib --bins --tests --workspace
else
program: build
endif

run: prerequisites ## build and start the service with a sample catalogue; RUN_ARGS='--data DIR' for another place
	@CARGO="$(CARGO)" scripts/run.sh $(RUN_ARGS)

PREFIX ?= /usr/local
install: build ## the program without debug information, and that in bin/.debug; PREFIX, DESTDIR
	@scripts/install.sh target/release/exacat $(PREFIX) $(DESTDIR)

TEST_ARGS ?=
test: prerequisites ## all tests, one profile, bounded, several programs at a time; what CI runs. TEST_ARGS='-p exacat-model'
	@CARGO="$(CARGO)" scripts/run-tests.py --locked --lib --bins --tests $(if $(TEST_ARGS),$(TEST_ARGS),--workspace)
	$(CARGO) test --locked --doc -p exacat-client

check: fmt clippy subjects dependencies drawings-check fuzz-seeds ## formatting, lints, commit subjects, dependencies, drawings, fuzz targets on their seeds

fmt:
	$(CARGO) fmt --all -- --check

clippy:
	$(CARGO) clippy --workspace --all-targets --features exacat-cli/kafka --locked -- -D warnings

subjects:
	@scripts/check-commits.sh

# Lock files of other workspaces must be current: these are built with --locked, and too long to be built here.
dependencies:
	@python3 scripts/check-dependencies.py
	@for workspace in bench/peers fuzz; do \
	    $(CARGO) metadata --locked --format-version 1 --filter-platform x86_64-unknown-linux-gnu \
	        --manifest-path $$workspace/Cargo.toml > /dev/null || exit 1; \
	done
	@if command -v cargo-deny >/dev/null 2>&1; then cargo deny check; \
	    else echo "known vulnerabilities: not checked, cargo-deny is not installed (cargo install --locked cargo-deny)"; fi

drawings: ## the drawings of docs/drawings, rendered to SVG (needs graphviz)
	@scripts/drawings.sh render

drawings-check:
	@scripts/drawings.sh check

reference: prerequisites ## the pages of docs/reference that are made from the program
	$(CARGO) run --locked -p exacat-cli -- reference docs/reference

doc: ## the API documentation
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

# Files as arguments run once each, without the instrumentation that only the nightly compiler has.
fuzz-seeds: prerequisites ## every fuzz target, built by the stable compiler, on its seeds and on its own source
	$(CARGO) build --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz --bins
	@for source in fuzz/fuzz_targets/*.rs; do \
	    target=$$(basename $$source .rs); \
	    seeds=$$(find fuzz/seeds/$$target -type f 2>/dev/null); \
	    target/fuzz/debug/$$target $$source $$seeds > target/fuzz/$$target.log 2>&1 \
	        || { tail -20 target/fuzz/$$target.log; echo "fuzz target $$target fails on a seed"; exit 1; }; \
	done

FUZZ_SECONDS ?= 60
fuzz: ## every fuzz target for FUZZ_SECONDS each (nightly compiler, cargo-fuzz)
	@command -v cargo-fuzz >/dev/null 2>&1 || $(CARGO) install --locked cargo-fuzz
	cd fuzz && for target in $$(cargo +nightly fuzz list); do \
	    mkdir -p corpus/$$target seeds/$$target; \
	    cargo +nightly fuzz run $$target corpus/$$target seeds/$$target -- -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048 || exit 1; done

BENCH_ARGS ?=
bench-engine: build ## speed, steadiness and size of the embedded engine; BENCH_ARGS='--entries 20000000'
	target/release/exacat bench --engine $(BENCH_ARGS)

bench: build ## speed in process and over the network; BENCH_ARGS='--entries 1000000'
	target/release/exacat bench $(BENCH_ARGS)

HTTP_ARGS ?=
bench-activity: build ## the cost of the states of requests, beside a build without them; BENCH_ARGS='--entries 1M'
	$(CARGO) build --release --locked --package exacat-cli --features unmeasured --target-dir target/unmeasured
	python3 scripts/bench-activity.py target/release/exacat target/unmeasured/release/exacat $(BENCH_ARGS)

HISTORY_ARGS ?=
bench-history: build ## durable values of elements a second, beside InfluxDB and VictoriaMetrics; HISTORY_ARGS='--peers'
	$(CARGO) build --release --locked -p exacat-bench --bin bench-history
	python3 scripts/bench-history.py target/release/exacat target/release/bench-history $(HISTORY_ARGS)

WRITER_ARGS ?=
bench-writer: build ## the writer service beside what the file system reaches, and xrdcp and curl; WRITER_ARGS=--short
	python3 scripts/bench-writer.py target/release/exacat $(WRITER_ARGS)

test-writer: program ## writer services, producers, disks and the catalogue under faults, every event read back; WRITER_ARGS=--short
	python3 scripts/test-writer.py $(PROGRAM) $(WRITER_ARGS)

test-writer-net: program ## writer services in network namespaces, with multicast and packet loss; needs root
	python3 scripts/test-writer-net.py $(PROGRAM)

DEMO_ARGS ?=
demo-writer: program ## events from producers into the catalogue, with kills, and on to another storage element
	scripts/demo-writer.sh $(PROGRAM) $(DEMO_ARGS)

REPLAY_ARGS ?=
bench-replay: build ## the replay beside xrdcp and python-XRootD, its punctuality, what its service bears; REPLAY_ARGS='--only opens late --short'
	$(CARGO) build --release --locked -p exacat-bench --bin bench-replay
	python3 scripts/bench-replay.py target/release/exacat $(REPLAY_ARGS)

test-replay: program ## replays through real XCaches with faults; skips them where XCache is not installed; REPLAY_ARGS='--short --only purge'
	python3 scripts/test-replay.py $(PROGRAM) $(REPLAY_ARGS)

demo-replay: build ## a trace replayed through a cache whose origin is the catalogue; ends with the report as a page
	scripts/demo-replay.sh target/release/exacat

demo-tuning: program ## a load with four faults, removed one by one; the report names the top wait each time
	python3 scripts/demo-tuning.py $(PROGRAM) $(DEMO_ARGS)

# Two million lines take about a minute.
bench-dump: build ## processor time of se compare for each line of a storage dump; DUMP_ARGS='--lines 10000000'
	python3 scripts/bench-dump.py target/release/exacat $(DUMP_ARGS)

FEED_ARGS ?=
bench-feed: build ## changes that a feed delivers a second, into a directory and to a webhook; FEED_ARGS='--files 200000'
	python3 scripts/bench-feed.py target/release/exacat $(FEED_ARGS)

FOLLOWER_ARGS ?=
bench-follower: build ## lag and catch-up of a follower, and the time of a change with a standby; FOLLOWER_ARGS='--files 200000'
	python3 scripts/bench-follower.py target/release/exacat $(FOLLOWER_ARGS)

TABLE_ENTRIES ?= 500000
bench-tables: prerequisites ## processor time of export --format parquet for each entry, by table; TABLE_ENTRIES
	EXACAT_BENCH_ENTRIES=$(TABLE_ENTRIES) $(CARGO) test --release --locked -p exacat-analytics --test tables -- --ignored --nocapture

bench-http: build ## REST and WebDAV beside a bare HTTP answer, and beside hostile clients; HTTP_ARGS='--files 100000'
	python3 scripts/bench-http.py target/release/exacat $(HTTP_ARGS)
	python3 scripts/test-hostile.py target/release/exacat --only http

FACES_ARGS ?=
bench-faces: ## commands a second as alien.py sends them, stats and redirections of XRootD beside a real server's; FACES_ARGS='10 1000' (seconds, files listed)
	$(CARGO) run --release --locked -p exacat-bench --bin bench-faces -- $(FACES_ARGS)

PEERS_ARGS ?=
bench-peers: build ## exacat beside RocksDB and MariaDB, which it installs; PEERS_ARGS='--entries 20M'
	@CARGO="$(CARGO)" scripts/bench-peers.sh target/release/exacat $(PEERS_ARGS)

EXACAT_TEST_ROUNDS ?= 20
test-long: prerequisites ## the random, concurrent and fault tests at length; EXACAT_TEST_ROUNDS
	@EXACAT_TEST_ROUNDS=$(EXACAT_TEST_ROUNDS) CARGO="$(CARGO)" scripts/run-tests.py --release --locked --lib --bins --tests --workspace

test-crash: prerequisites ## kill -9 loops of the real server at length
	EXACAT_TEST_ROUNDS=$(EXACAT_TEST_ROUNDS) $(CARGO) test --release --locked -p exacat-cli --test kill --test elements -- --nocapture
	EXACAT_TEST_ROUNDS=$(EXACAT_TEST_ROUNDS) $(CARGO) test --release --locked -p exacat-history-archive --lib -- killed_history --nocapture

test-faults: prerequisites ## failing disks, flipped bits, power cuts, repairs, random merges at length; EXACAT_TEST_SEED repeats one
	EXACAT_TEST_ROUNDS=$(EXACAT_TEST_ROUNDS) $(CARGO) test --release --locked -p exacat-store-embedded --lib -- \
	    fault crash damage repairing restoring schedules fuzzed
	EXACAT_TEST_ROUNDS=$(EXACAT_TEST_ROUNDS) $(CARGO) test --release --locked -p exacat-history -p exacat-history-archive --lib -- \
	    crash damage faults merges model restore

test-otel: prerequisites ## traces, in a build with the feature otel
	$(CARGO) test --locked --workspace --features exacat-server/otel --test traces
	$(CARGO) test --locked --workspace --features exacat-server/otel --lib traces::

CLIENTS_ARGS ?=
test-clients: program ## the real alien.py, xrdcp, gfal2, uproot, XCache, curl, davix, rclone, litmus, Python's clients of InfluxDB against a server, with xrootd as storage where it is installed
	python3 scripts/test-clients.py $(PROGRAM) $(CLIENTS_ARGS)

PAGES_ARGS ?=
test-pages: program ## the web pages in a headless Chromium, checked by axe-core; PAGES_ARGS='--shots DIR --only large' keeps screenshots
	python3 scripts/test-pages.py $(PROGRAM) $(PAGES_ARGS)

MONITORING_ARGS ?=
test-monitoring: program ## metrics, alert rules and dashboards with the real Prometheus, which it installs; MONITORING_ARGS='--cassandra HOSTS'
	@scripts/test-monitoring.sh $(PROGRAM) $(MONITORING_ARGS)

HOSTILE_ARGS ?=
test-hostile: program ## clients that mean no good, 10 000 idle ones too: memory, and how a good one fares beside them; HOSTILE_ARGS='--seconds 30'
	python3 scripts/test-hostile.py $(PROGRAM) $(HOSTILE_ARGS)

test-real: prerequisites ## whole real listings through the binary; EXACAT_REAL_DATA=DIR
	EXACAT_TEST_ROUNDS=$(EXACAT_TEST_ROUNDS) $(CARGO) test --release --locked -p exacat-cli --test real_data -- --include-ignored --nocapture

CLUSTER_DIR ?= target/cluster
cluster-up: ## a Cassandra ring of CLUSTER_NODES (3 or 1) on loopback, see cluster/README.md
	@cluster/up.sh $(CLUSTER_DIR)

cluster-down: ## stops that ring
	@cluster/down.sh $(CLUSTER_DIR)

test-cluster: prerequisites ## the Cassandra store on a ring that it starts and stops; CLUSTER_NODES
	@cluster/up.sh $(CLUSTER_DIR); code=0; \
	    export EXACAT_CASSANDRA=$$(cat $(CLUSTER_DIR)/hosts) EXACAT_CASSANDRA_DIRECTORY=$$(realpath $(CLUSTER_DIR)); \
	    $(CARGO) test --locked -p exacat-testkit --test cassandra -- --include-ignored --nocapture --skip secure:: || code=$$?; \
	    case $$EXACAT_CASSANDRA in \
	        *,*,*) $(CARGO) test --locked -p exacat-testkit --test cassandra-nodes -- --include-ignored --nocapture --test-threads 1 || code=$$? ;; \
	        *) echo "tests that kill nodes: not run, they need CLUSTER_NODES=3" ;; esac; \
	    $(CARGO) test --locked -p exacat-cli --test cluster -- --include-ignored --nocapture --skip on_secure_cluster || code=$$?; \
	    scripts/test-monitoring.sh target/debug/exacat --cassandra $$EXACAT_CASSANDRA || code=$$?; \
	    cluster/down.sh $(CLUSTER_DIR); exit $$code

SECURE_DIR ?= target/cluster-secure
SECURE = CLUSTER_SECURE=1 CLUSTER_NODES=1 CLUSTER_NETWORK=127.0.1 CLUSTER_PORT=9142 CLUSTER_JMX=8099 CLUSTER_HEAP_MB=$${CLUSTER_HEAP_MB:-320} \
    CLUSTER_JARS=$${CLUSTER_JARS:-$$(realpath -m $(CLUSTER_DIR)/jars)}
test-cluster-secure: prerequisites ## a cluster with TLS and passwords, one node of it, started and stopped
	@$(SECURE) cluster/up.sh $(SECURE_DIR); code=0; \
	    export EXACAT_CASSANDRA=$$(cat $(SECURE_DIR)/hosts) EXACAT_CASSANDRA_SECURE=$$(realpath $(SECURE_DIR))/secure; \
	    $(CARGO) test --locked -p exacat-testkit --test cassandra -- --include-ignored --nocapture secure:: consistency:: || code=$$?; \
	    $(CARGO) test --locked -p exacat-cli --test cluster -- --include-ignored --nocapture secure || code=$$?; \
	    cluster/down.sh $(SECURE_DIR); exit $$code

KAFKA_DIR ?= target/kafka
test-kafka: prerequisites ## the Kafka sink of feeds on a broker that it starts, kills and stops, see cluster/README.md
	@cluster/kafka.sh up $(KAFKA_DIR) || exit 1; code=0; \
	    export EXACAT_KAFKA_SCRIPT=$$(realpath cluster/kafka.sh) EXACAT_KAFKA_DIRECTORY=$$(realpath $(KAFKA_DIR)); \
	    $(CARGO) test --locked -p exacat-feed --features kafka --lib || code=$$?; \
	    $(CARGO) test --locked -p exacat-feed --features kafka --test feeds -- --include-ignored --nocapture --test-threads 1 || code=$$?; \
	    cluster/kafka.sh down $(KAFKA_DIR); exit $$code

CASSANDRA_ARGS ?=
bench-cassandra: prerequisites ## the Cassandra store beside the driver alone, on a ring that it starts and stops; CASSANDRA_ARGS='10' (seconds each)
	$(CARGO) build --release --locked -p exacat-bench --bin bench-cassandra
	@CLUSTER_DURABLE=1 CLUSTER_HEAP_MB=$${CLUSTER_HEAP_MB:-768} cluster/up.sh $(CLUSTER_DIR); code=0; \
	    export EXACAT_CASSANDRA=$$(cat $(CLUSTER_DIR)/hosts) EXACAT_CASSANDRA_DIRECTORY=$$(realpath $(CLUSTER_DIR)); \
	    target/release/bench-cassandra $(CASSANDRA_ARGS) || code=$$?; \
	    cluster/down.sh $(CLUSTER_DIR); exit $$code

clean:
	$(CARGO) clean
