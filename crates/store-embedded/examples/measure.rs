//! Measures the engine alone: durable creates, look-ups, memory, opening. Run it with `--release`.
//!
//! `measure [ENTRIES] [DIRECTORY]`; 1 000 000 entries in a temporary directory unless given.

#![allow(clippy::print_stdout, reason = "a program that prints what it measured")]
#![allow(clippy::unwrap_used, reason = "a measurement that fails has nothing better to do")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use exacat_model::{
    At, Checksum, ChecksumAlgorithm, Checksums, DirId, ExpectRecord, File, GroupId, Guid, Lfn, Location,
    Mode, Mutation, Name, NewBody, NewEntry, OperationId, Record, Replica, ReplicaState, Se, SeName,
    SeNumber, SeStatus, TimeMs, UserId,
};
use exacat_store::{Outcome, Request, Store, SystemClock, WalkEnd};
use exacat_store_embedded::{EmbeddedSettings, EmbeddedStore};

const FILES_PER_DIRECTORY: u64 = 100;
const BATCH: usize = 1000;
const CLIENTS: usize = 4;

fn mixed(number: u64) -> u64 {
    let z = (number.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

fn new(parent: DirId, name: &str, body: NewBody) -> Mutation {
    Mutation::Create(Box::new(NewEntry {
        at: At { parent, name: Name::parse(name).unwrap() },
        owner: UserId(0),
        group: GroupId(0),
        mode: Mode::FILE,
        created: None,
        modified: Some(TimeMs(1_780_000_000_000)),
        expires: None,
        tags: Vec::new(),
        body,
    }))
}

fn file_name(number: u64) -> String {
    format!("AliESDs_000600123.{:04}.{:014}.root", number % 10_000, number)
}

fn file(parent: DirId, number: u64) -> Mutation {
    let mut guid = [0; 16];
    guid[..8].copy_from_slice(&mixed(number).to_le_bytes());
    guid[8..].copy_from_slice(&number.to_be_bytes());
    let digest: Vec<u8> = (0..16).map(|at| (mixed(number) >> (at * 4)) as u8).collect();
    let replica = |se: u64| Replica {
        se: SeNumber(se as u16),
        state: ReplicaState::Available,
        location: Location::Derived,
    };
    let first = 1 + mixed(number / FILES_PER_DIRECTORY) % 300;
    new(
        parent,
        &file_name(number),
        NewBody::File(File {
            guid: Guid(guid),
            size: Some(1_000_000_000 + mixed(number) % 1_000_000_000),
            checksums: Checksums::one(Checksum::new(ChecksumAlgorithm::Md5, &digest).unwrap()),
            job: None,
            replicas: vec![replica(first), replica(first + 50)],
        }),
    )
}

fn operation() -> OperationId {
    let mut id = [0; 16];
    getrandom::fill(&mut id).unwrap();
    OperationId(id)
}

async fn apply(store: &EmbeddedStore, mutations: Vec<Mutation>) -> Vec<DirId> {
    let outcomes = store.apply(Request { operation: operation(), who: UserId(0), mutations }).await.unwrap();
    let made = outcomes.into_iter().map(|outcome| match outcome {
        Outcome::Applied { id: Some(exacat_model::EntryId::Directory(id)), .. } => id,
        Outcome::Applied { .. } => DirId(0),
        other => unreachable!("{other:?}"),
    });
    made.collect()
}

fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after = stat.rsplit(')').next().unwrap();
    let ticks: u64 = after.split_whitespace().skip(11).take(2).map(|text| text.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Makes the directories the files go into: eight levels, as experiments have.
async fn directories(store: &EmbeddedStore, count: u64) -> Vec<(DirId, String)> {
    let mut parent = DirId::ROOT;
    let mut path = String::new();
    for name in ["experiment", "data", "2026", "LHC26a", "000600123"] {
        parent = apply(store, vec![new(parent, name, NewBody::Directory)]).await[0];
        path = format!("{path}/{name}");
    }
    let mut made = Vec::new();
    while (made.len() as u64) < count {
        let name = format!("pass{}", made.len() / 1000);
        let pass = apply(store, vec![new(parent, &name, NewBody::Directory)]).await[0];
        let wanted = (count as usize - made.len()).min(1000);
        let names: Vec<String> = (0..wanted).map(|number| format!("{number:04}")).collect();
        let mutations = names.iter().map(|name| new(pass, name, NewBody::Directory)).collect();
        let ids = apply(store, mutations).await;
        made.extend(ids.into_iter().zip(names).map(|(id, below)| (id, format!("{path}/{name}/{below}"))));
    }
    made
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let entries: u64 = arguments.next().map_or(1_000_000, |text| text.parse().unwrap());
    let temporary = tempfile::tempdir().unwrap();
    let directory = arguments.next().map_or(temporary.path().to_owned(), Into::into);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(measure(entries, EmbeddedSettings::at(directory)));
}

async fn measure(entries: u64, settings: EmbeddedSettings) {
    let before = resident_bytes();
    let open = || EmbeddedStore::open(settings.clone(), Arc::new(SystemClock)).unwrap();
    let store = open();
    for number in 1..=400 {
        let se = Se {
            number: SeNumber(number),
            name: SeName::parse(&format!("VO::SITE::SE{number}")).unwrap(),
            prefix: format!("root://se{number}.example//data"),
            qos: Vec::new(),
            status: SeStatus::Online,
            distances: Vec::new(),
        };
        let record = Box::new(Record::Se(se));
        apply(&store, vec![Mutation::SetRecord { record, expect: ExpectRecord::Any }]).await;
    }
    let places = Arc::new(directories(&store, entries.div_ceil(FILES_PER_DIRECTORY)).await);

    let (begun, cpu_before) = (Instant::now(), cpu());
    let mut clients = Vec::new();
    for client in 0..CLIENTS as u64 {
        let (store, places) = (store.clone(), places.clone());
        clients.push(tokio::spawn(async move {
            let mut worst = Duration::ZERO;
            let mut at = client * BATCH as u64;
            while at < entries {
                let end = (at + BATCH as u64).min(entries);
                let mutations =
                    (at..end).map(|n| file(places[(n / FILES_PER_DIRECTORY) as usize].0, n)).collect();
                let sent = Instant::now();
                apply(&store, mutations).await;
                worst = worst.max(sent.elapsed());
                at += (BATCH * CLIENTS) as u64;
            }
            worst
        }));
    }
    let mut worst = Duration::ZERO;
    for client in clients {
        worst = worst.max(client.await.unwrap());
    }
    let took = begun.elapsed();
    println!(
        "create, {CLIENTS} clients, batches of {BATCH}, durable: {:.0} k/s, {:.2} us CPU each (client included), worst batch {worst:?}",
        entries as f64 / took.as_secs_f64() / 1000.0,
        (cpu() - cpu_before).as_micros() as f64 / entries as f64
    );

    let all = entries + places.len() as u64;
    let status = store.status().await.unwrap();
    println!("resident: {} bytes per entry", (resident_bytes() - before) / all);
    for (name, value) in &status.figures {
        if name.starts_with("memory") {
            println!("  {name}: {value} ({:.1} per entry)", *value as f64 / all as f64);
        } else {
            println!("  {name}: {value}");
        }
    }

    let path = |number: u64| {
        let place = &places[(number / FILES_PER_DIRECTORY) as usize].1;
        Lfn::parse(&format!("{place}/{}", file_name(number))).unwrap()
    };
    // More rounds are for a profiler.
    let rounds = std::env::var("WALK_ROUNDS").map_or(1, |text| text.parse().unwrap());
    for (what, batch, paths) in [
        ("anywhere", 128, (0..1_000_000u64).map(|n| path(mixed(n) % entries)).collect::<Vec<_>>()),
        ("anywhere", 1, (0..1_000_000u64).map(|n| path(mixed(n) % entries)).collect()),
        ("neighbours", 128, (0..1_000_000u64).map(|n| path(n % entries)).collect()),
    ] {
        let (begun, cpu_before) = (Instant::now(), cpu());
        for paths in (0..rounds).flat_map(|_| paths.chunks(batch)) {
            for walk in store.walk(paths).await.unwrap() {
                assert!(matches!(walk.end, WalkEnd::Found(_)));
            }
        }
        let each = begun.elapsed().as_nanos() as f64 / (rounds * paths.len()) as f64;
        let busy = (cpu() - cpu_before).as_nanos() as f64 / (rounds * paths.len()) as f64;
        println!("walk, {what}, batches of {batch}: {each:.0} ns each, {busy:.0} ns CPU");
    }
    let begun = Instant::now();
    let mut listed = 0;
    for (place, _) in places.iter().take(1000) {
        listed += store.list(*place, None, 10_000).await.unwrap().unwrap().items.len();
    }
    println!("list: {:.0} ns per entry", begun.elapsed().as_nanos() as f64 / listed as f64);
    let top = store.walk(&[Lfn::parse("/experiment/data/2026").unwrap()]).await.unwrap();
    let WalkEnd::Found(top) = &top[0].end else { unreachable!() };
    let begun = Instant::now();
    let to = At { parent: top.at.parent, name: Name::parse("moved").unwrap() };
    apply(&store, vec![Mutation::Move { from: top.at.clone(), expect: exacat_model::Expect::ANY, to }]).await;
    println!("move of a directory with all below: {:?}", begun.elapsed());
    let begun = Instant::now();
    let audit = store.audit().await.unwrap();
    println!("audit: {:?}, {} findings", begun.elapsed(), audit.findings_total);

    drop(store);
    let (begun, cpu_before) = (Instant::now(), cpu());
    let store = open();
    println!("open, last checkpoint and log: {:?}, {:?} CPU", begun.elapsed(), cpu() - cpu_before);
    let begun = Instant::now();
    store.close().await.unwrap();
    println!("close with a checkpoint: {:?}", begun.elapsed());
    drop(store);
    let (begun, cpu_before) = (Instant::now(), cpu());
    let store = open();
    println!("open, checkpoint only: {:?}, {:?} CPU", begun.elapsed(), cpu() - cpu_before);
    drop(store);
    std::fs::remove_dir_all(settings.directory.join("checkpoints")).unwrap();
    let (begun, cpu_before) = (Instant::now(), cpu());
    let store = open();
    println!("open, log only: {:?}, {:?} CPU", begun.elapsed(), cpu() - cpu_before);
    let log: u64 = std::fs::read_dir(settings.directory.join("log"))
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    println!("log: {} bytes per entry, reserved space included", log / all);
    drop(store);
}
