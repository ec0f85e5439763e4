//! Tests of the engine as a whole on a simulated disk, beyond the reach of the conformance suite.

pub(crate) mod archiving;
pub(crate) mod backups;
mod behaviour;
mod crash;
mod damage;
mod fault_matrix;
mod faults;
mod following;
mod fuzzed;
mod golden;
mod loading;
mod log_end;
mod older;
mod past;
mod private;
mod reading;
mod repairing;
mod restoring;
mod retention;
pub(crate) mod schedules;
mod snapshots;
mod timelines;
mod workload;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_model::{
    At, Change, Checksums, DirId, Expect, File, GroupId, Guid, Lfn, Mode, Mutation, Name, NewBody, NewEntry,
    OperationId, Revision, Se, SeName, SeNumber, SeStatus, TimeMs, UserId,
};
use exacat_store::{Clock, Outcome, Request, Store};

use crate::{EmbeddedSettings, EmbeddedStore};
use exacat_testkit::simulated::SimulatedDisk;

/// Returns this many seeds, times the number in `EXACAT_TEST_ROUNDS`; or the one in
/// `EXACAT_TEST_SEED`, which a failed test has printed.
pub(crate) fn seeds(usual: u64) -> impl Iterator<Item = Seed> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let all = match number("EXACAT_TEST_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..usual * number("EXACAT_TEST_ROUNDS").unwrap_or(1),
    };
    all.map(Seed)
}

/// A seed, which is printed if the test fails while this lives.
pub(crate) struct Seed(pub u64);

impl Drop for Seed {
    #[allow(clippy::print_stderr, reason = "it is how a failure is told")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to try this again: EXACAT_TEST_SEED={}", self.0);
        }
    }
}

/// A clock that advances by a second at each reading.
#[derive(Default)]
pub(crate) struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> TimeMs {
        TimeMs(1_790_000_000_000 + 1000 * self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// Returns settings with small segments and memtables, so that a few requests fill one.
pub(crate) fn settings() -> EmbeddedSettings {
    EmbeddedSettings {
        segment_bytes: 4096,
        // Few rows give several runs, and compactions.
        memtable_rows: 60,
        // The committer thread commits every group: its failures must show up in other threads.
        commit_at_once_bytes: 0,
        // Tests of the archive take its steps one by one.
        archive: false,
        // Tests that count operations of the disk request end marks themselves.
        mark_idle: std::time::Duration::MAX,
        ..EmbeddedSettings::at("/data")
    }
}

pub(crate) fn open(disk: &SimulatedDisk) -> Arc<EmbeddedStore> {
    try_open(disk).unwrap()
}

pub(crate) fn try_open(disk: &SimulatedDisk) -> exacat_model::Result<Arc<EmbeddedStore>> {
    EmbeddedStore::open_on(disk.shared(), settings(), Arc::new(TestClock::default()))
}

/// Opens a store that writes runs only on request.
pub(crate) fn open_without_runs(disk: &SimulatedDisk) -> Arc<EmbeddedStore> {
    let settings = EmbeddedSettings { memtable_rows: 1 << 20, ..settings() };
    EmbeddedStore::open_on(disk.shared(), settings, Arc::new(TestClock::default())).unwrap()
}

/// Writes an end mark, as the store does after idle time. True if it wrote one.
pub(crate) async fn mark(store: &EmbeddedStore) -> bool {
    store.ask(|reply| crate::command::Command::Mark { reply: Some(reply) }).await.unwrap().unwrap()
}

/// Removes the runs: the whole log alone suffices.
pub(crate) fn without_runs(disk: &SimulatedDisk) {
    for path in disk.files("").iter().filter(|path| path.starts_with("/data/runs")) {
        disk.vanish(path);
    }
}

/// Returns an id made at about the time at which the test's clock reaches so many requests.
pub(crate) fn operation(number: u64) -> OperationId {
    let mut random = [0; 10];
    random[..8].copy_from_slice(&number.to_le_bytes());
    OperationId::new(TimeMs(1_790_000_000_000 + 1000 * (number % (1 << 32))), random)
}

pub(crate) fn request(number: u64, mutations: Vec<Mutation>) -> Request {
    Request::new(operation(number), UserId(0), mutations)
}

pub(crate) fn at(parent: DirId, name: &str) -> At {
    At { parent, name: Name::parse(name).unwrap() }
}

pub(crate) fn new_entry(parent: DirId, name: &str, body: NewBody) -> Mutation {
    Mutation::Create(Box::new(NewEntry {
        at: at(parent, name),
        owner: UserId(0),
        group: GroupId(0),
        mode: Mode::FILE,
        created: None,
        modified: None,
        expires: None,
        tags: Vec::new(),
        body,
    }))
}

pub(crate) fn mkdir(parent: DirId, name: &str) -> Mutation {
    new_entry(parent, name, NewBody::Directory)
}

pub(crate) fn guid(number: u64) -> Guid {
    let mut guid = [0; 16];
    guid[..8].copy_from_slice(&number.to_be_bytes());
    Guid(guid)
}

pub(crate) fn file(parent: DirId, name: &str, number: u64) -> Mutation {
    let file = File {
        guid: guid(number),
        size: Some(number),
        checksums: Checksums::none(),
        job: None,
        replicas: Vec::new(),
    };
    new_entry(parent, name, NewBody::File(file))
}

pub(crate) fn se(number: u16) -> Mutation {
    let record = exacat_model::Record::Se(Se {
        number: SeNumber(number),
        name: SeName::parse(&format!("SE{number}")).unwrap(),
        prefix: "root://host/".trim_end_matches('/').to_owned(),
        qos: Vec::new(),
        status: SeStatus::Online,
        distances: Vec::new(),
        https: String::new(),
    });
    Mutation::SetRecord { record: Box::new(record), expect: exacat_model::ExpectRecord::Any }
}

pub(crate) fn remove(parent: DirId, name: &str) -> Mutation {
    let lfn = Lfn::parse("/somewhere").unwrap();
    Mutation::Remove { at: at(parent, name), expect: Expect::ANY, only_empty: false, lfn }
}

/// Applies one request, all of which must be applied.
pub(crate) async fn apply(store: &EmbeddedStore, number: u64, mutations: Vec<Mutation>) -> Vec<Outcome> {
    let outcomes = store.apply(request(number, mutations)).await.unwrap();
    for outcome in &outcomes {
        assert!(matches!(outcome, Outcome::Applied { .. }), "{outcome:?}");
    }
    outcomes
}

/// Returns the whole history, read in pages of `limit`.
pub(crate) async fn history(store: &EmbeddedStore, limit: usize) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    loop {
        let after = changes.last().map_or(Revision(0), |change| change.revision);
        let page = store.changes(after, limit).await.unwrap();
        assert!(page.changes.len() <= limit);
        if page.changes.is_empty() {
            return changes;
        }
        assert_eq!(page.up_to, page.changes.last().unwrap().revision);
        changes.extend(page.changes);
    }
}

/// Checks that every index and every counter is right.
pub(crate) async fn assert_sound(store: &EmbeddedStore) {
    let audit = store.audit().await.unwrap();
    assert_eq!(audit.findings_total, 0, "{:?}", audit.findings);
}
