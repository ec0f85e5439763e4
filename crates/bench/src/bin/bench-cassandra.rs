//! `make bench-cassandra`: the store on a ring beside the driver alone on the same ring, in one
//! run. It measures look-ups, listings, creates and bulk registration: rate, times and CPU of the
//! nodes.
//!
//! `bench-cassandra [SECONDS]`: seconds for each measurement. `EXACAT_CASSANDRA` names the nodes.
//! `EXACAT_CASSANDRA_DIRECTORY` is the directory in which `cluster/up.sh` started them, for their
//! CPU time.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a program for those who work on this, which tells figures"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use exacat_model::{
    At, DirId, EntryId, Guid, Lfn, Mode, Mutation, Name, NewBody, NewEntry, OperationId, UserId,
};
use exacat_store::{Outcome, Request, ResolutionEnd, Store, SystemClock};
use exacat_store_cassandra::{CassandraSettings, CassandraStore, PeersAt, create_schema, drop_schema};
use hdrhistogram::Histogram;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};

/// Rows, and files, that are looked up.
const ROWS: u64 = 5_000;
/// Entries of a directory that is listed, and rows of a partition that is read.
const SLICE: u64 = 1000;
/// Rows of a raw batch: beyond it a node as delivered warns.
const BATCH: usize = 50;
/// Mutations of a bulk request.
const BULK: u64 = 1000;

/// Statistics of this process.
const OWN: &str = "/proc/self/stat";

/// CPU time of a process, in microseconds.
fn cpu_of(stat: impl AsRef<Path>) -> u64 {
    let stat = std::fs::read_to_string(stat).unwrap_or_default();
    let rest = stat.rsplit(')').next().unwrap_or_default().to_owned();
    let fields: Vec<u64> = rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    // User and system time, in hundredths of a second.
    (fields.get(11).unwrap_or(&0) + fields.get(12).unwrap_or(&0)) * 10_000
}

/// Parameters of all measurements.
struct Bench {
    nodes: Vec<PathBuf>,
    seconds: u64,
    numbers: AtomicU64,
}

impl Bench {
    /// CPU time of all nodes, in microseconds.
    fn cpu(&self) -> u64 {
        self.nodes.iter().map(cpu_of).sum()
    }

    fn next(&self) -> u64 {
        self.numbers.fetch_add(1, SeqCst)
    }

    /// Runs a request repeatedly for some seconds, with so many in flight; each counts as `each`.
    async fn measure<F>(
        &self,
        what: &str,
        in_flight: usize,
        each: u64,
        work: impl Fn(u64) -> F + Clone + Send + 'static,
    ) -> f64
    where
        F: Future<Output = Result<(), String>> + Send,
    {
        let done = Arc::new(AtomicU64::new(0));
        let failed = Arc::new(AtomicU64::new(0));
        let (cpu, own, begun) = (self.cpu(), cpu_of(OWN), Instant::now());
        let end = begun + Duration::from_secs(self.seconds);
        let tasks: Vec<_> = (0..in_flight as u64)
            .map(|_| {
                let (work, done, failed) = (work.clone(), done.clone(), failed.clone());
                let first = self.next() << 24;
                tokio::spawn(async move {
                    let mut times = Histogram::<u64>::new_with_bounds(1, 120_000_000, 3).unwrap();
                    let mut number = first;
                    while Instant::now() < end {
                        let begun = Instant::now();
                        let ended = work(number).await;
                        times.saturating_record(
                            u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX),
                        );
                        match ended {
                            Ok(()) => done.fetch_add(1, SeqCst),
                            Err(why) => {
                                if failed.fetch_add(1, SeqCst) == 0 {
                                    println!("  {why}");
                                }
                                tokio::time::sleep(Duration::from_millis(10)).await;
                                0
                            }
                        };
                        number += 1;
                    }
                    times
                })
            })
            .collect();
        let mut times = Histogram::<u64>::new_with_bounds(1, 120_000_000, 3).unwrap();
        for task in tasks {
            times.add(task.await.unwrap()).unwrap();
        }
        let elapsed = begun.elapsed().as_secs_f64();
        let (cpu, own) = (self.cpu() - cpu, cpu_of(OWN) - own);
        let done = done.load(SeqCst) * each;
        let rate = done as f64 / elapsed;
        let ms = |share| times.value_at_quantile(share) as f64 / 1000.0;
        println!(
            "| {what} | {in_flight} | {rate:.0} | {:.1} / {:.1} | {} | {:.1} | {} |",
            ms(0.5),
            ms(0.99),
            cpu / done.max(1),
            own as f64 / done.max(1) as f64,
            failed.load(SeqCst)
        );
        rate
    }
}

async fn raw(settings: &CassandraSettings) -> Arc<Session> {
    let policy = DefaultPolicy::builder().enable_shuffling_replicas(false).build();
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .serial_consistency(Some(SerialConsistency::Serial))
        .load_balancing_policy(policy)
        .build();
    let session = SessionBuilder::new()
        .known_nodes(&settings.hosts)
        .default_execution_profile_handle(profile.into_handle())
        .build()
        .await
        .unwrap();
    session.use_keyspace(settings.keyspace.as_str(), true).await.unwrap();
    let table = "CREATE TABLE raw (part bigint, name text, a bigint, b bigint, c bigint, blob blob, PRIMARY KEY (part, name))";
    session.query_unpaged(table, ()).await.unwrap();
    Arc::new(session)
}

async fn prepared(session: &Session, text: &str) -> PreparedStatement {
    let mut statement = session.prepare(text).await.unwrap();
    statement.set_is_idempotent(true);
    statement.set_page_size(2000);
    statement
}

fn row(part: u64, name: u64) -> (i64, String, i64, i64, i64, Vec<u8>) {
    (part as i64, format!("file{name:032}"), 1, 2, 3, vec![name as u8; 140])
}

fn said<T>(answer: Result<T, impl std::fmt::Display>) -> Result<T, String> {
    answer.map_err(|error| error.to_string())
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn id(number: u64) -> [u8; 16] {
    // Spread as GUIDs are.
    let mixed =
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..].copy_from_slice(&mixed.to_be_bytes());
    bytes
}

fn new(at: At, body: NewBody) -> Mutation {
    Mutation::Create(Box::new(NewEntry {
        at,
        owner: UserId(0),
        group: exacat_model::GroupId(0),
        mode: Mode::FILE,
        created: None,
        modified: None,
        expires: None,
        tags: Vec::new(),
        body,
    }))
}

fn file(parent: DirId, number: u64) -> Mutation {
    let at = At { parent, name: name(&format!("file{number:032}")) };
    let file = exacat_model::File {
        guid: Guid(id(number)),
        size: Some(1_000_000),
        checksums: exacat_model::Checksums::none(),
        job: None,
        replicas: Vec::new(),
    };
    new(at, NewBody::File(file))
}

async fn apply(
    store: &CassandraStore,
    number: u64,
    mutations: Vec<Mutation>,
) -> Result<Vec<Outcome>, String> {
    let request = Request::new(OperationId(id(number)), UserId(0), mutations);
    let outcomes = store.apply(request).await.map_err(|error| format!("{error:?}"))?;
    match outcomes.iter().find(|one| !matches!(one, Outcome::Applied { .. })) {
        None => Ok(outcomes),
        Some(other) => Err(format!("{other:?}")),
    }
}

async fn directory(store: &CassandraStore, number: u64) -> DirId {
    let at = At { parent: DirId::ROOT, name: name(&format!("d{number}")) };
    match apply(store, number, vec![new(at, NewBody::Directory)]).await.unwrap()[0] {
        Outcome::Applied { id: Some(EntryId::Directory(id)), .. } => id,
        ref other => panic!("{other:?}"),
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let seconds = std::env::args().nth(1).map_or(10, |text| text.parse().unwrap());
    let hosts =
        std::env::var("EXACAT_CASSANDRA").unwrap_or_else(|_| "127.0.0.1,127.0.0.2,127.0.0.3".to_owned());
    let directory_of_ring = std::env::var("EXACAT_CASSANDRA_DIRECTORY").unwrap_or_default();
    let copies = hosts.split(',').count().min(3);
    let nodes = (1..=copies)
        .filter_map(|node| std::fs::read_to_string(format!("{directory_of_ring}/node{node}/pid")).ok())
        .map(|pid| PathBuf::from(format!("/proc/{}/stat", pid.trim())))
        .collect();
    let mut settings =
        CassandraSettings::new(&hosts, &format!("exacat_bench_{}", std::process::id())).unwrap();
    settings.peers = PeersAt::Anywhere;
    create_schema(&settings, &format!("{{'class': 'NetworkTopologyStrategy', 'datacenter1': {copies}}}"))
        .await
        .unwrap();
    // Above the number of any earlier operation of this run.
    let bench = Bench { nodes, seconds, numbers: AtomicU64::new(1 << 16) };
    run(&bench, &settings).await;
    drop_schema(&settings).await.unwrap();
}

async fn run(bench: &Bench, settings: &CassandraSettings) {
    let session = raw(settings).await;
    let store = CassandraStore::open(settings.clone(), Arc::new(SystemClock)).await.unwrap();
    let words = "INSERT INTO raw (part, name, a, b, c, blob) VALUES (?, ?, ?, ?, ?, ?)";
    let insert = Arc::new(prepared(&session, words).await);
    let conditional = Arc::new(prepared(&session, &format!("{words} IF NOT EXISTS")).await);
    let select = Arc::new(prepared(&session, "SELECT * FROM raw WHERE part = ? AND name = ?").await);
    let slice = Arc::new(prepared(&session, "SELECT * FROM raw WHERE part = ? LIMIT 1000").await);

    println!(
        "| what | in flight | a second | p50 / p99 ms | CPU of the nodes, µs each | CPU here | failed |"
    );
    println!("|---|---|---|---|---|---|---|");
    let inserting = {
        let (session, insert) = (session.clone(), insert.clone());
        move |number: u64| {
            let (session, insert) = (session.clone(), insert.clone());
            async move { said(session.execute_unpaged(&insert, row(number % ROWS, 0)).await).map(drop) }
        }
    };
    // Lets the nodes compile their code first.
    bench.measure("warming up: raw insert", 64, 1, inserting.clone()).await;
    for number in 0..ROWS {
        said(session.execute_unpaged(&insert, row(number, 0)).await).unwrap();
    }
    for number in 0..SLICE {
        said(session.execute_unpaged(&insert, row(ROWS + 1, number)).await).unwrap();
    }
    let mut directories = Vec::new();
    for number in 0..64 {
        directories.push(directory(&store, number).await);
    }
    // A directory of exactly one page, and files to look up.
    let listed = directories[0];
    let files = (0..SLICE).map(|number| file(listed, number)).collect();
    apply(&store, 1000, files).await.unwrap();
    let one = directories[1];

    // A store that keeps nothing of what it reads, once its rows are in the tables.
    let cold = CassandraSettings { cache_rows: 1, filter_bytes: 0, ..settings.clone() };
    let cold = CassandraStore::open(cold, Arc::new(SystemClock)).await.unwrap();
    looking_up(bench, &session, [&store, &cold], (&select, &slice), listed).await;
    cold.close().await.unwrap();

    let creating = |servers: Vec<Arc<CassandraStore>>, directories: Vec<DirId>| {
        move |number: u64| {
            let store = servers[(number % servers.len() as u64) as usize].clone();
            let parent = directories[(number % directories.len() as u64) as usize];
            async move { apply(&store, number | 1 << 62, vec![file(parent, number | 1 << 61)]).await.map(drop) }
        }
    };
    let inserting_if = |parts: u64| {
        let (session, conditional) = (session.clone(), conditional.clone());
        move |number: u64| {
            let (session, conditional) = (session.clone(), conditional.clone());
            let part = if parts == 1 { ROWS + 2 } else { number };
            async move { said(session.execute_unpaged(&conditional, row(part, number)).await).map(drop) }
        }
    };
    let raw_own = bench.measure("raw conditional insert, own partitions", 32, 1, inserting_if(0)).await;
    let mut ours = 0f64;
    for in_flight in [32, 256] {
        ours = ours.max(
            bench
                .measure(
                    "**create**, 62 directories",
                    in_flight,
                    1,
                    creating(vec![store.clone()], directories[2..].to_vec()),
                )
                .await,
        );
    }
    println!(
        "create in different directories: {:.0} % of a raw conditional insert (80 wanted)",
        100.0 * ours / raw_own
    );
    let raw_one = bench.measure("raw conditional insert, one partition", 32, 1, inserting_if(1)).await;
    let mut single = 0f64;
    for in_flight in [32, 256] {
        single = single.max(
            bench
                .measure("**create**, one directory", in_flight, 1, creating(vec![store.clone()], vec![one]))
                .await,
        );
    }
    let other = CassandraStore::open(settings.clone(), Arc::new(SystemClock)).await.unwrap();
    let figure = |figures: Vec<(String, u64)>, name: &str| {
        figures.into_iter().find(|(this, _)| this == name).map_or(0, |(_, value)| value)
    };
    let before = store.status().await.unwrap().named();
    let both = creating(vec![store.clone(), other.clone()], vec![one]);
    let two = bench.measure("**create**, one directory, two servers, one just opened", 256, 1, both).await;
    let after = store.status().await.unwrap().named();
    let told: Vec<String> = [
        "groups",
        "changes",
        "statements_conditional_batches",
        "appends_lost",
        "appends_unknown",
        "appends_backed_off",
        "requests_forwarded_in",
        "statements_reads",
        "rounds_fetched",
    ]
    .iter()
    .map(|name| format!("{name} {}", figure(after.clone(), name) - figure(before.clone(), name)))
    .collect();
    println!("of the first of the two: {}", told.join(", "));
    other.close().await.unwrap();
    println!("create in one directory by two servers at once: {:.0} % of one server's", 100.0 * two / single);
    println!("create in one directory: {:.1} times the raw contended insert (20 wanted)", single / raw_one);
    bulk(bench, &session, &store, &insert, directories[1], single).await;
    storage_elements(&store).await;
    generated_tree(bench, &store).await;
    store.close().await.unwrap();
}

async fn looking_up(
    bench: &Bench,
    session: &Arc<Session>,
    [store, cold]: [&Arc<CassandraStore>; 2],
    (select, slice): (&Arc<PreparedStatement>, &Arc<PreparedStatement>),
    listed: DirId,
) {
    let (raw_session, raw_select) = (session.clone(), select.clone());
    let selecting = move |number: u64| {
        let (session, select) = (raw_session.clone(), raw_select.clone());
        async move {
            let (part, name, ..) = row(number % ROWS, 0);
            said(session.execute_unpaged(&select, (part, name)).await).map(drop)
        }
    };
    let ours = store.clone();
    let walking = move |number: u64| {
        let store = ours.clone();
        async move {
            let path = Lfn::parse(&format!("/d0/file{:032}", number % SLICE)).unwrap();
            match said(store.resolve(&[path]).await)?[0].end {
                ResolutionEnd::Found(_) => Ok(()),
                ref other => Err(format!("{other:?}")),
            }
        }
    };
    let raw_rate = bench.measure("raw select by key, QUORUM", 64, 1, selecting).await;
    let rate = bench.measure("**look-up** of a path that is known", 64, 1, walking).await;
    println!("look-up: {:.0} % of the raw select (90 wanted)", 100.0 * rate / raw_rate);
    let (raw_session, raw_slice) = (session.clone(), slice.clone());
    let slicing = move |_| {
        let (session, slice) = (raw_session.clone(), raw_slice.clone());
        async move {
            let rows = said(session.execute_unpaged(&slice, ((ROWS + 1) as i64,)).await)?;
            let count = said(rows.into_rows_result())?.rows_num();
            if count == SLICE as usize { Ok(()) } else { Err(format!("{count} rows")) }
        }
    };
    let listing = |store: Arc<CassandraStore>| {
        move |_| {
            let store = store.clone();
            async move {
                let page = said(store.list(listed, None, SLICE as usize).await)?;
                match page.map_or(0, |page| page.items.len()) as u64 {
                    SLICE => Ok(()),
                    other => Err(format!("{other} entries")),
                }
            }
        }
    };
    let raw_rate = bench.measure("raw slice of 1000 rows, QUORUM", 8, 1, slicing).await;
    let rate = bench.measure("**ls** of 1000, read", 8, 1, listing(cold.clone())).await;
    println!(
        "ls of 1000, each read from its table: {:.0} % of the raw slice (90 wanted)",
        100.0 * rate / raw_rate
    );
    let rate = bench.measure("**ls** of 1000, known", 8, 1, listing(store.clone())).await;
    println!("ls of 1000 that was listed before: {:.0} % of the raw slice", 100.0 * rate / raw_rate);
}

/// Shape of the benchmark of 2017: a generated tree of ten entries a directory, made by 100
/// workers. Every other entry is a file with two replicas, the rest are links. Then whereis of
/// files, with directories drawn from a Gaussian.
async fn generated_tree(bench: &Bench, store: &Arc<CassandraStore>) {
    let top = directory(store, 1 << 40).await;
    let inserting = {
        let store = store.clone();
        let made = Arc::new(AtomicU64::new(0));
        (made.clone(), move |_: u64| {
            let (store, root) = (store.clone(), made.fetch_add(1, SeqCst));
            async move {
                let at = At { parent: top, name: name(&root.to_string()) };
                let make = apply(&store, (1 << 41) | root, vec![new(at, NewBody::Directory)]).await?;
                let Outcome::Applied { id: Some(EntryId::Directory(parent)), .. } = make[0] else {
                    return Err(format!("{make:?}"));
                };
                let entries = (1..=10).map(|place| generated(parent, root, place)).collect();
                apply(&store, (1 << 42) | root, entries).await.map(drop)
            }
        })
    };
    let (made, inserting) = inserting;
    bench.measure("2017: directories of 10 entries inserted, by entry", 100, 10, inserting).await;
    let made = made.load(SeqCst).max(1);
    let ours = store.clone();
    let asking = move |number: u64| {
        let store = ours.clone();
        async move {
            // The sum of twelve uniform numbers is nearly a Gaussian: centred, its width a tenth of
            // the range.
            let even =
                |turn: u64| f64::from(u32::from_be_bytes(id(number * 12 + turn)[8..12].try_into().unwrap()));
            let sum: f64 = (0..12).map(|turn| even(turn) / f64::from(u32::MAX)).sum();
            let root = (made as f64 * (0.5 + (sum - 6.0) / 10.0)).clamp(0.0, made as f64 - 1.0) as u64;
            let path =
                Lfn::parse(&format!("/d{}/{root}/file{}_{root}", 1u64 << 40, 2 + 2 * (number % 5))).unwrap();
            match said(store.resolve(&[path]).await)?[0].end {
                ResolutionEnd::Found(_) => Ok(()),
                // Its directory was made last, and the run ended before its files were made.
                ResolutionEnd::Missing { .. } if root + 100 >= made => Ok(()),
                ref other => Err(format!("{other:?}")),
            }
        }
    };
    bench.measure("2017: whereis, Gaussian", 100, 1, asking).await;
}

/// Makes an entry of that tree.
fn generated(parent: DirId, root: u64, place: u64) -> Mutation {
    let number = (1 << 58) | (root * 10 + place);
    let at = At { parent, name: name(&format!("file{place}_{root}")) };
    if place % 2 == 1 {
        let target = Lfn::parse("/cassandra/0/100/10000").unwrap();
        return new(at, NewBody::Link { guid: Guid(id(number)), target });
    }
    let mut checksums = exacat_model::Checksums::none();
    checksums.add(exacat_model::Checksum::parse("md5:d41d8cd98f00b204e9800998ecf8427e").unwrap()).unwrap();
    let replica = |se| exacat_model::Replica {
        se: exacat_model::SeNumber(se),
        state: exacat_model::ReplicaState::Available,
        location: exacat_model::Location::Derived,
    };
    let first = 1 + (number % 15) as u16;
    let file = exacat_model::File {
        guid: Guid(id(number)),
        size: Some(number % 100_000),
        checksums,
        job: Some(number % 1_000_000),
        replicas: vec![replica(first), replica(first + 15)],
    };
    new(at, NewBody::File(file))
}

/// Makes the storage elements of that benchmark.
async fn storage_elements(store: &CassandraStore) {
    for number in 1..=30u16 {
        let se = exacat_model::Se {
            number: exacat_model::SeNumber(number),
            name: exacat_model::SeName::parse(&format!("Generated::SITE::SE{number}")).unwrap(),
            prefix: "root://host//data".to_owned(),
            qos: Vec::new(),
            status: exacat_model::SeStatus::Online,
            distances: Vec::new(),
            https: String::new(),
        };
        apply(
            store,
            (1 << 43) | u64::from(number),
            vec![Mutation::SetRecord {
                record: Box::new(exacat_model::Record::Se(se)),
                expect: exacat_model::ExpectRecord::Any,
            }],
        )
        .await
        .unwrap();
    }
}

async fn bulk(
    bench: &Bench,
    session: &Arc<Session>,
    store: &Arc<CassandraStore>,
    insert: &Arc<PreparedStatement>,
    one: DirId,
    single: f64,
) {
    let (raw_session, raw_insert) = (session.clone(), insert.clone());
    let batching = move |number: u64| {
        let (session, insert) = (raw_session.clone(), raw_insert.clone());
        async move {
            let mut batch = Batch::new(BatchType::Unlogged);
            let mut values = Vec::with_capacity(BATCH);
            for place in 0..BATCH as u64 {
                batch.append_statement((*insert).clone());
                values.push(row(number, place));
            }
            said(session.batch(&batch, values).await).map(drop)
        }
    };
    let ours = store.clone();
    let registering = move |number: u64| {
        let store = ours.clone();
        async move {
            let files = (0..BULK).map(|place| file(one, (1 << 60) | (number * BULK + place))).collect();
            apply(&store, number | 1 << 59, files).await.map(drop)
        }
    };
    let raw_rate = bench.measure("raw unlogged batches of 50 rows, by row", 16, BATCH as u64, batching).await;
    let rate = bench.measure("**registration** in requests of 1000", 4, BULK, registering).await;
    println!(
        "registration: {:.0} times single creates (10 wanted), {:.0} % of the raw batches (60 wanted)",
        rate / single,
        100.0 * rate / raw_rate
    );
}
