//! Nodes of the ring that die, and nodes that stop for a while, under load: no client notices.
//! After its repair a node that was away has everything.
//!
//! These tests kill and pause nodes, so they have the ring for themselves. `make test-cluster` runs
//! them one by one, after the others, on a ring of three.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a panic is how a test says what it found"
)]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use exacat_model::{DirId, Guid, UserId};
use exacat_store::{Outcome, ResolutionEnd, Store};
use exacat_store_cassandra::CassandraStore;
use exacat_testkit::TestClock;
use exacat_testkit::cassandra::{CassandraFactory, Servers, ring};
use exacat_testkit::random::{outcome_name, request};
use exacat_testkit::scene::{at, create, lfn, new_directory, new_file, remove, rename, top};
use exacat_testkit::waiting::found_within;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::host_filter::AllowListHostFilter;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;

/// Clients of the load, over two servers.
const CLIENTS: u64 = 6;
/// Rounds of a client's work in each phase, all clients together.
const ROUNDS: u64 = 60;
/// Time limit for every wait.
const LIMIT: Duration = Duration::from_secs(240);

/// The ring that `cluster/up.sh` started.
struct Ring {
    directory: PathBuf,
    hosts: String,
}

impl Ring {
    fn find() -> Ring {
        let hosts = ring();
        let directory = std::env::var("EXACAT_CASSANDRA_DIRECTORY").ok().filter(|path| !path.is_empty());
        assert_eq!(hosts.split(',').count(), 3, "nodes of {hosts}");
        Ring {
            directory: directory.expect("EXACAT_CASSANDRA_DIRECTORY names the ring's directory").into(),
            hosts,
        }
    }

    fn script(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../cluster").join(name)
    }

    /// Sends a signal to a node's process.
    fn signal(&self, node: usize, name: &str) {
        let path = self.directory.join(format!("node{node}/pid"));
        let pid = std::fs::read_to_string(path).expect("the node's process id");
        let sent = Command::new("kill").arg(format!("-{name}")).arg(pid.trim()).status().expect("kill");
        assert!(sent.success(), "node {node} is not there");
    }

    /// Kills a node, and waits until its process is gone. Otherwise the node would pass for a running
    /// one when the ring is started again.
    async fn kill(&self, node: usize) {
        let path = self.directory.join(format!("node{node}/pid"));
        let pid = std::fs::read_to_string(path).expect("the node's process id");
        let process = PathBuf::from(format!("/proc/{}", pid.trim()));
        self.signal(node, "KILL");
        let ended = async || (!process.exists()).then_some(());
        found_within(LIMIT, &format!("the end of node {node}"), ended).await;
    }

    /// Starts the nodes that do not run, and waits until they answer.
    async fn start(&self) {
        self.start_but("").await;
    }

    /// Starts the nodes that do not run, but for one.
    async fn start_but(&self, dead: &str) {
        let mut command = Command::new(Self::script("up.sh"));
        command.env("CLUSTER_LEAVE", dead);
        command.arg(&self.directory).env("CLUSTER_NODES", "3").stdin(Stdio::null()).stdout(Stdio::null());
        let done = tokio::task::spawn_blocking(move || command.status()).await.expect("joined");
        assert!(done.expect("up.sh").success());
    }

    /// Runs a node's tool for operators.
    async fn tool(&self, node: usize, words: &[&str]) -> (bool, String) {
        let mut command = Command::new(Self::script("nodetool.sh"));
        command.arg(&self.directory).arg(node.to_string()).args(words).stdin(Stdio::null());
        let done = tokio::task::spawn_blocking(move || command.output())
            .await
            .expect("joined")
            .expect("nodetool.sh");
        let said = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Waits until all nodes see each other.
    async fn is_whole(&self) {
        let whole = async || {
            let mut up = 0;
            for node in 1..=3 {
                let (_, said) = self.tool(node, &["status"]).await;
                up += said.lines().filter(|line| line.starts_with("UN ")).count();
            }
            (up == 9).then_some(())
        };
        found_within(LIMIT, "the nodes to see each other", whole).await;
    }

    /// Waits until a node considers another one dead.
    async fn takes_for_dead(&self, node: usize) {
        let noticed = async || {
            let (_, status) = self.tool(node, &["status"]).await;
            status.lines().any(|line| line.starts_with("DN ")).then_some(())
        };
        found_within(LIMIT, &format!("node {node} to notice the dead one"), noticed).await;
    }

    /// Replaces a dead node by the documented steps.
    async fn replace(&self, node: usize, keyspace: &str) {
        let mut command = Command::new(Self::script("replace.sh"));
        command.arg(&self.directory).arg(node.to_string()).arg(keyspace).stdin(Stdio::null());
        let done = tokio::task::spawn_blocking(move || command.output()).await.expect("joined");
        let done = done.expect("replace.sh");
        let said = [done.stdout, done.stderr].concat();
        assert!(done.status.success(), "replace.sh: {}", String::from_utf8_lossy(&said));
    }

    /// Reads the end of the log from one node alone.
    async fn head_at(&self, node: usize, keyspace: &str) -> i64 {
        let host = self.hosts.split(',').nth(node - 1).expect("a node");
        let only = AllowListHostFilter::new([host]).expect("an address");
        let session = SessionBuilder::new().known_node(host).host_filter(Arc::new(only));
        let session = session.build().await.expect("a session");
        // A node that was killed learns of its tables from the others.
        let knows = async || session.use_keyspace(keyspace, true).await.ok();
        found_within(LIMIT, &format!("the keyspace at node {node}"), knows).await;
        let mut question = Statement::new("SELECT head FROM log WHERE segment = 1 LIMIT 1");
        question.set_consistency(Consistency::One);
        let rows = session.query_unpaged(question, ()).await.expect("rows").into_rows_result().expect("rows");
        rows.maybe_first_row::<(Option<i64>,)>().expect("a row").and_then(|(head,)| head).unwrap_or(0)
    }

    /// Repairs a node.
    async fn repair(&self, node: usize, keyspace: &str) {
        let (done, said) = self.tool(node, &["repair", "-full", keyspace]).await;
        assert!(done, "repair: {said}");
    }
}

/// Clients that work until they are told to end, and their results.
struct Load {
    stop: AtomicBool,
    rounds: AtomicU64,
    longest_us: AtomicU64,
    errors: parking_lot::Mutex<Vec<String>>,
}

impl Load {
    /// Waits until so many more rounds are done.
    async fn go_on(&self, what: &str, rounds: u64) {
        let (before, begun) = (self.rounds.load(SeqCst), Instant::now());
        self.longest_us.store(0, SeqCst);
        let done = async || {
            assert!(self.errors.lock().is_empty(), "{what}: {:?}", self.errors.lock());
            (self.rounds.load(SeqCst) >= before + rounds).then_some(())
        };
        found_within(LIMIT, &format!("{what}: {rounds} rounds"), done).await;
        let longest = Duration::from_micros(self.longest_us.load(SeqCst));
        let rate = rounds as f64 / begun.elapsed().as_secs_f64();
        eprintln!("{what}: {rate:.1} rounds/s of 3 changes and 2 look-ups, longest request {longest:.1?}");
    }

    async fn timed<T>(&self, work: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let done = work.await;
        self.longest_us.fetch_max(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX), SeqCst);
        done
    }

    /// Makes a file, looks it up at the other server, renames it and looks it up here; removes
    /// every third. Each request is made once: an error is one that a client would see.
    async fn client(&self, client: u64, home: DirId, here: &CassandraStore, other: &CassandraStore) {
        let mut number = 0u64;
        while !self.stop.load(SeqCst) {
            if let Err(error) = self.round(client, home, &mut number, here, other).await {
                self.errors.lock().push(error);
                return;
            }
            self.rounds.fetch_add(1, SeqCst);
        }
    }

    async fn round(
        &self,
        client: u64,
        home: DirId,
        number: &mut u64,
        here: &CassandraStore,
        other: &CassandraStore,
    ) -> Result<(), String> {
        *number += 1;
        let this = *number;
        let guid =
            Guid([&client.to_be_bytes()[..], &this.to_be_bytes()[..]].concat().try_into().expect("16 bytes"));
        let (first, second) = (format!("new{this}"), format!("file{this}"));
        let mut mutations = vec![
            create(new_file(at(home, &first), guid, Some(this), &[])),
            rename(at(home, &first), at(home, &second)),
        ];
        if this.is_multiple_of(3) {
            mutations.push(remove(at(home, &second)));
        }
        for (step, mutation) in mutations.into_iter().enumerate() {
            let operation = client << 40 | this << 4 | step as u64;
            let done = self.timed(here.apply(request(operation, UserId::ADMIN, vec![mutation]))).await;
            match done {
                Ok(outcomes) if outcome_name(&outcomes[0]) == "Applied" => {}
                other => return Err(format!("client {client}, change {step} of {this}: {other:?}")),
            }
            let (path, is_there) = match step {
                0 => (first.clone(), true),
                1 => (second.clone(), true),
                _ => (second.clone(), false),
            };
            if step > 0 || this.is_multiple_of(2) {
                let path = lfn(&format!("/home{client}/{path}"));
                let walk =
                    self.timed(other.resolve(&[path])).await.map_err(|error| format!("look-up: {error}"))?;
                let found = matches!(walk[0].end, ResolutionEnd::Found(_));
                if found != is_there {
                    return Err(format!(
                        "client {client}: change {step} of {this} was answered, and is not seen"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Goal: an answered append that only one survivor of a dead node has is not lost when the node is
/// replaced by the documented steps. Method: node 3 is away during the append, which nodes 1 and 2
/// answer; node 2 dies; node 3 comes back, without hints. Afterwards only nodes 2 and 3 are read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "kills nodes of a ring of three: make test-cluster"]
async fn node_replaced_by_the_documented_steps_loses_no_answered_append() {
    let ring = Ring::find();
    let factory = CassandraFactory { segment_changes: 50_000, ..CassandraFactory::on(ring.hosts.clone()) };
    let clock = TestClock::new();
    let mut catalogue = Servers::start(&factory, &clock).await;
    let keyspace = catalogue.settings().keyspace.clone();
    let store = catalogue.one_more().await;
    let make = async |number: u64, name: &str| {
        let make = create(new_directory(top(name)));
        let done = store.apply(request(number, UserId::ADMIN, vec![make])).await.expect("answered");
        assert_eq!(outcome_name(&done[0]), "Applied");
    };
    make(1, "before").await;
    for node in 1..=3 {
        let (done, said) = ring.tool(node, &["disablehandoff"]).await;
        assert!(done, "{said}");
    }
    ring.kill(3).await;
    ring.takes_for_dead(1).await;
    make(2, "answered").await;
    catalogue.end().await;
    ring.kill(2).await;
    ring.start_but("2").await;
    let (has_it, lacks_it) = (ring.head_at(1, &keyspace).await, ring.head_at(3, &keyspace).await);
    assert!(lacks_it < has_it, "node 3 missed the append: {lacks_it} and {has_it}");

    ring.replace(2, &keyspace).await;
    for node in 1..=3 {
        assert_eq!(ring.head_at(node, &keyspace).await, has_it, "node {node}");
    }
    // A quorum of the replaced node and the one that had missed it.
    ring.kill(1).await;
    let after = catalogue.one_more().await;
    assert_eq!(i64::try_from(after.revision().await.expect("a revision").0), Ok(has_it));
    let walk = after.resolve(&[lfn("/answered")]).await.expect("a look-up");
    assert!(matches!(walk[0].end, ResolutionEnd::Found(_)));
    ring.start().await;
    ring.is_whole().await;
    ring.repair(1, &keyspace).await;
    let audit = after.audit().await.expect("an audit");
    assert!(audit.findings.is_empty(), "{:?}", audit.findings);
    for node in 1..=3 {
        let (done, said) = ring.tool(node, &["enablehandoff"]).await;
        assert!(done, "{said}");
    }
}

/// Goal: a node that dies, or stops for a while, costs time and nothing else. No request fails, and
/// no answered change is missing. After a repair the node has all it missed: an audit reads it and
/// one other node alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "kills nodes of a ring of three: make test-cluster"]
async fn nodes_die_and_stop_and_no_client_notices() {
    let ring = Ring::find();
    let mut catalogue =
        Servers::start(&CassandraFactory::together(ring.hosts.clone()), &TestClock::new()).await;
    let keyspace = catalogue.settings().keyspace.clone();
    let servers = [catalogue.one_more().await, catalogue.one_more().await];
    let mut homes = Vec::new();
    for client in 0..CLIENTS {
        let make = create(new_directory(top(&format!("home{client}"))));
        let done =
            servers[0].apply(request(1 << 60 | client, UserId::ADMIN, vec![make])).await.expect("made");
        let Outcome::Applied { id: Some(exacat_model::EntryId::Directory(id)), .. } = done[0] else {
            panic!("{done:?}")
        };
        homes.push(id);
    }
    let load = Arc::new(Load {
        stop: AtomicBool::new(false),
        rounds: AtomicU64::new(0),
        longest_us: AtomicU64::new(0),
        errors: parking_lot::Mutex::default(),
    });
    let tasks: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (load, home) = (load.clone(), homes[client as usize]);
            let (here, other) =
                (servers[client as usize % 2].clone(), servers[(client as usize + 1) % 2].clone());
            tokio::spawn(async move { load.client(client, home, &here, &other).await })
        })
        .collect();
    load.go_on("all nodes there", ROUNDS).await;
    for node in 1..=3 {
        ring.signal(node, "STOP");
        load.go_on(&format!("node {node} paused"), ROUNDS).await;
        ring.signal(node, "CONT");
        load.go_on(&format!("node {node} goes on"), ROUNDS / 2).await;
    }
    ring.is_whole().await;
    ring.kill(3).await;
    load.go_on("node 3 killed", 2 * ROUNDS).await;
    let (start, more) = tokio::join!(ring.start(), load.go_on("node 3 starts", ROUNDS));
    let ((), ()) = (start, more);
    ring.is_whole().await;
    load.go_on("node 3 is back", ROUNDS).await;
    load.stop.store(true, SeqCst);
    for task in tasks {
        task.await.expect("a client");
    }
    assert!(load.errors.lock().is_empty(), "{:?}", load.errors.lock());
    for server in &servers {
        let metrics = server.status().await.expect("status").named();
        let wanted =
            ["statements", "reads_repeated", "appends_lost", "appends_unknown", "requests_forwarded_out"];
        let shown = metrics.iter().filter(|(name, _)| {
            wanted.contains(&name.as_str()) || name.starts_with("statements_") || name.starts_with("answer_")
        });
        eprintln!("{:?}", shown.collect::<Vec<_>>());
    }
    ring.repair(3, &keyspace).await;
    // Now a quorum is node 3 and one other: rows that node 3 missed would be missing here.
    ring.kill(1).await;
    let after = catalogue.one_more().await;
    let audit = after.audit().await.expect("an audit");
    assert!(audit.findings.is_empty(), "{:?}", audit.findings);
    ring.start().await;
    ring.is_whole().await;
    ring.repair(1, &keyspace).await;
    let audit = servers[0].audit().await.expect("an audit");
    assert!(audit.findings.is_empty(), "{:?}", audit.findings);
}
