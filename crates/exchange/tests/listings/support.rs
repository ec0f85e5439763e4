//! A real catalogue over the memory store, called without a network, with faults at any call.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use exacat_catalogue::{Caller, Catalogue, Settings};
use exacat_exchange::export::{ExportOptions, ExportReport, export};
use exacat_exchange::import::{ImportOptions, ImportReport, import};
use exacat_exchange::resume::StateAt;
use exacat_exchange::verify::{VerifyReport, verify};
use exacat_model::answer::Stat;
use exacat_model::operation::{SeSettings, UserSettings};
use exacat_model::{
    Answer, Error, ErrorKind, Lfn, Operation, Record, RecordKey, SeName, TimeMs, TimelineId, Timelines,
    UserId,
};
use exacat_store::{Clock, Store};
use exacat_testkit::memory::MemoryStore;
use exacat_testkit::settings;

/// A clock that advances by a millisecond at each reading.
#[derive(Default)]
pub(crate) struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> TimeMs {
        TimeMs(1_700_000_000_000 + self.0.fetch_add(1, Ordering::SeqCst))
    }
}

/// Fault of a call that writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No fault.
    None,
    /// From this call on nothing is done.
    Stop(u64),
    /// This call is done, but its answer is lost; from the next one on nothing is done.
    LoseAnswerAndStop(u64),
    /// The answers to every n-th call are lost: `Unknown`.
    LoseEvery(u64),
}

/// A catalogue and its administrator.
pub(crate) struct Direct {
    catalogue: Arc<Catalogue>,
    admin: Caller,
    /// Number of calls that write so far.
    pub writes: AtomicU64,
    fault: parking_lot::Mutex<Fault>,
}

impl Direct {
    pub(crate) async fn new() -> Arc<Direct> {
        Direct::on(Timelines::new(TimelineId([1; 16]))).await
    }

    /// Makes a catalogue with these timelines.
    pub(crate) async fn on(timelines: Timelines) -> Arc<Direct> {
        let clock: Arc<dyn Clock> = Arc::new(Ticking(AtomicU64::new(0)));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock)).on_timelines(timelines));
        let Some((Record::User(admin), _)) = store.record(RecordKey::User(UserId::ADMIN)).await.unwrap()
        else {
            panic!("no admin");
        };
        let catalogue = Catalogue::open(store, clock, Settings::default()).await.unwrap();
        Arc::new(Direct {
            catalogue,
            admin: Caller::of(&admin, Lfn::root(), true),
            writes: AtomicU64::new(0),
            fault: parking_lot::Mutex::new(Fault::None),
        })
    }

    /// Makes a catalogue with these SEs registered, each with its own prefix.
    pub(crate) async fn with_ses(names: &[&str]) -> Arc<Direct> {
        let direct = Direct::new().await;
        for name in names {
            direct.se(name, &format!("root://{}//store", name.to_lowercase().replace(':', "-"))).await;
        }
        direct
    }

    pub(crate) async fn se(&self, name: &str, prefix: &str) {
        let settings = SeSettings { prefix: Some(prefix.to_owned()), only_new: true, ..settings::se(name) };
        self.ask(Operation::SeSet(settings)).await;
    }

    pub(crate) async fn user(&self, name: &str) {
        let settings = UserSettings { only_new: true, ..settings::user(name) };
        self.ask(Operation::UserSet(Box::new(settings))).await;
    }

    /// Returns the store.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.catalogue.store()
    }

    pub(crate) fn set_fault(&self, fault: Fault) {
        *self.fault.lock() = fault;
        self.writes.store(0, Ordering::SeqCst);
    }

    async fn execute(&self, operation: Operation) -> Result<Answer, Error> {
        let id = self.catalogue.new_operation_id()?;
        self.catalogue.execute(&self.admin, id, operation).await
    }

    /// Carries out an operation that must succeed.
    pub(crate) async fn ask(&self, operation: Operation) -> Answer {
        let answer =
            self.execute(operation.clone()).await.unwrap_or_else(|error| panic!("{error} of {operation:?}"));
        if let Answer::EachDone(items) = &answer {
            assert!(items.iter().all(Result::is_ok), "{items:?} of {operation:?}");
        }
        answer
    }

    pub(crate) async fn stat(&self, path: &str) -> Result<Stat, Error> {
        match self.ask(Operation::Stat { lfns: vec![lfn(path)], follow: false }).await {
            Answer::Stats(mut stats) => stats.remove(0),
            other => panic!("{other:?}"),
        }
    }

    /// Returns everything in it, as a full export.
    pub(crate) async fn dump(&self) -> String {
        self.export(&ExportOptions::default()).await.0
    }

    pub(crate) async fn export(&self, options: &ExportOptions) -> (String, ExportReport) {
        let shared = Shared::default();
        let report = export(self, Box::new(shared.clone()), options, |_| {}).await.unwrap();
        (shared.text(), report)
    }

    /// Returns everything but the parts that differ from run to run: times, and GUIDs that the
    /// catalogue made up.
    pub(crate) async fn dump_given(&self) -> String {
        let columns = "kind,lfn,size,checksum,owner,group,mode,job,replicas,tags,target";
        let options = ExportOptions { columns: Some(columns_of(columns)), ..ExportOptions::default() };
        // Members are in the order of their GUIDs.
        let mut lines: Vec<String> = self.export(&options).await.0.lines().map(str::to_owned).collect();
        let members = lines.iter().position(|line| line.starts_with("member\t")).unwrap_or(lines.len());
        lines[members..].sort();
        lines.join("\n") + "\n"
    }

    /// Checks that the counters and indices are right.
    pub(crate) async fn check(&self) {
        match self.ask(Operation::Fsck).await {
            Answer::Fsck(audit) => assert_eq!(audit.findings, []),
            other => panic!("{other:?}"),
        }
    }
}

impl exacat_exchange::Catalogue for Direct {
    async fn call(&self, operation: Operation) -> Result<Answer, Error> {
        if !operation.writes() {
            return self.execute(operation).await;
        }
        let number = self.writes.fetch_add(1, Ordering::SeqCst);
        let fault = *self.fault.lock();
        let stopped = Error::new(ErrorKind::Denied, "the test stops here");
        let lost = Error::new(ErrorKind::Unknown, "the test lost the answer");
        match fault {
            Fault::Stop(at) if number >= at => Err(Error { kind: ErrorKind::Internal, ..stopped }),
            Fault::LoseAnswerAndStop(at) if number > at => {
                Err(Error { kind: ErrorKind::Internal, ..stopped })
            }
            Fault::LoseAnswerAndStop(at) if number == at => {
                let _answer = self.execute(operation).await;
                Err(Error { kind: ErrorKind::Internal, ..lost })
            }
            Fault::LoseEvery(n) if number % n == n - 1 => {
                let _answer = self.execute(operation).await;
                Err(lost)
            }
            _ => self.execute(operation).await,
        }
    }
}

/// A writer whose content a test can read.
#[derive(Clone, Default)]
pub(crate) struct Shared(Arc<parking_lot::Mutex<Vec<u8>>>);

impl Shared {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub(crate) fn lfn(text: &str) -> Lfn {
    Lfn::parse(text).unwrap()
}

pub(crate) fn se_name(text: &str) -> SeName {
    SeName::parse(text).unwrap()
}

pub(crate) fn columns_of(text: &str) -> Vec<exacat_exchange::columns::Role> {
    text.split(',').map(|name| exacat_exchange::columns::Role::parse(name).unwrap()).collect()
}

/// A directory with a listing and its reject file.
pub(crate) struct Fixture {
    pub directory: tempfile::TempDir,
    pub listing: PathBuf,
    pub rejects: PathBuf,
}

impl Fixture {
    pub(crate) fn new(name: &str, content: impl AsRef<[u8]>) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let listing = directory.path().join(name);
        std::fs::write(&listing, content).unwrap();
        let rejects = directory.path().join("rejects.tsv");
        Fixture { directory, listing, rejects }
    }

    /// Makes options with a reject file.
    pub(crate) fn options(&self, change: impl FnOnce(&mut ImportOptions)) -> ImportOptions {
        let mut options = ImportOptions { rejects: Some(self.rejects.clone()), ..ImportOptions::default() };
        change(&mut options);
        options
    }

    pub(crate) async fn import(&self, catalogue: &Arc<Direct>, options: &ImportOptions) -> ImportReport {
        self.try_import(catalogue, options).await.unwrap()
    }

    pub(crate) async fn try_import(
        &self,
        catalogue: &Arc<Direct>,
        options: &ImportOptions,
    ) -> Result<ImportReport, exacat_exchange::Error> {
        import(Arc::clone(catalogue), &self.listing, options, |_| {}).await
    }

    pub(crate) async fn verify(&self, catalogue: &Arc<Direct>, options: &ImportOptions) -> VerifyReport {
        verify(Arc::clone(catalogue), &self.listing, &options.listing, None, |_| {}).await.unwrap()
    }

    /// Returns `line reason` of each reject, in the order of the file.
    pub(crate) fn rejected(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.rejects).unwrap();
        let rows = text.lines().skip(1).map(|line| {
            let fields: Vec<&str> = line.split('\t').collect();
            assert_eq!(fields.len(), 4, "{line}");
            format!("{} {}", fields[0], fields[1])
        });
        rows.collect()
    }

    pub(crate) fn state(&self) -> PathBuf {
        exacat_exchange::resume::state_beside(&self.listing)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Turns the state file off.
pub(crate) fn no_state(options: &mut ImportOptions) {
    options.state = StateAt::Nowhere;
}

/// Returns the path of a real listing.
pub(crate) fn real_data(name: &str) -> PathBuf {
    let directory = match std::env::var_os("EXACAT_REAL_DATA") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    let path = directory.join(name);
    assert!(path.is_file(), "{name} is not there; EXACAT_REAL_DATA names the directory of the real listings");
    path
}

/// Compares long texts, and shows only the first lines that differ.
#[track_caller]
pub(crate) fn assert_same_lines(found: &str, wanted: &str, about: &dyn std::fmt::Debug) {
    if found == wanted {
        return;
    }
    let mut lines = found.lines().zip(wanted.lines()).enumerate();
    let first = lines.find(|(_, (found, wanted))| found != wanted);
    panic!(
        "{about:?}: {} lines, not {}; first difference {first:?}",
        found.lines().count(),
        wanted.lines().count()
    );
}
