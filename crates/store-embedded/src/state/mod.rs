//! The state: everything in the catalogue at one revision, exact after every change.
//!
//! [`apply`](State::apply) (in `apply.rs`) is the only way to change it: it takes one change of the
//! log, which was decided before. A [`Lookup`] reads it, for readers (`read.rs`, `resolve.rs`) and for
//! deciding (`view.rs`). The rules themselves are [`exacat_store::rules`].
//!
//! ```text
//!   in memory, whole:  directories · accounts · records · upload reservations
//!   in the table:      entries, by name and by GUID · trash · members · expiry · deletions
//!                      (see keyspace.rs)
//! ```
//! State that is only in memory is written with each frozen memtable (`resident.rs`), and read at
//! opening.

mod accounts;
mod apply;
mod audit;
mod deletions;
mod digest;
mod directories;
mod gathered;
mod lookup;
mod operations;
mod read;
mod resident;
mod resolve;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use exacat_model::{DirId, Guid, Record, RecordKey, RecordKind, Reservation, Revision, SeNumber, TimeMs};
use exacat_store::Sample;
use exacat_store::rules::{self, Top};

use crate::defect::Defect;
use crate::metric_table;
use crate::page::RowRoom;
use crate::run::Cache;
use crate::table::{Table, Version};

pub(crate) use accounts::Accounts;
pub(crate) use deletions::deletion_of;
pub(crate) use digest::Digest;
pub(crate) use digest::Item;
pub(crate) use directories::{Above, Directories, Directory};
pub(crate) use gathered::Gathered;
pub(crate) use lookup::{AsOf, Lookup};
pub(crate) use operations::Operations;
pub(crate) use read::{MovedSince, REPLICAS_CURSOR_BYTES_MAX};
pub(crate) use resident::{Frozen, decoded};
pub(crate) use resolve::Hints;

/// Everything in the catalogue at one revision.
pub(crate) struct State {
    /// Revision of the last change.
    pub revision: Revision,
    /// Time of the last change.
    pub time: TimeMs,
    /// Number of the next directory.
    pub next_directory: u64,
    /// Entries in the tree and the trash, without the root.
    pub entries: u64,
    pub accounts: Accounts,
    pub table: Table,
    pub directories: Directories,
    /// Last change of permissions outside of directories: of owner, group or mode of an entry, of
    /// an account or a token. 0 if there was none since the store was opened.
    rights: Revision,
    /// Number of changes of accounts and tokens since the store was opened.
    pub credentials: Arc<AtomicU64>,
    /// Revision after which changes have traces; older releases kept none.
    pub traces_since: Revision,
    /// Number of items in the trash.
    trash_items: u64,
    reservations: BTreeMap<Guid, Reservation>,
    reservation_expiry: BTreeSet<(TimeMs, Guid)>,
    records: BTreeMap<RecordKey, (Record, Revision)>,
    record_names: BTreeMap<(RecordKind, String), RecordKey>,
    digest: Digest,
    /// Accounts as they were last written, by key.
    accounts_written: BTreeMap<Vec<u8>, Vec<u8>>,
    room: RowRoom,
    /// Reason why the state answers nothing for now.
    pub switched_off: Option<&'static str>,
    /// True for a filtered follower: it takes directories of any number, and no deletions.
    pub is_filtered: bool,
    /// Random per process: no client can choose paths that collide.
    seed: u64,
}

impl State {
    /// Creates a state without entries, even without the root, over these runs.
    fn empty(seed: u64, version: Arc<Version>, cache: Arc<Cache>) -> Self {
        State {
            revision: Revision(0),
            time: TimeMs(0),
            next_directory: DirId::ROOT.0 + 1,
            entries: 0,
            accounts: Accounts::default(),
            table: Table::new(version, cache, seed),
            directories: Directories::new(seed),
            rights: Revision(0),
            credentials: Arc::default(),
            traces_since: Revision(0),
            trash_items: 0,
            reservations: BTreeMap::new(),
            reservation_expiry: BTreeSet::new(),
            records: BTreeMap::new(),
            record_names: BTreeMap::new(),
            digest: Digest::default(),
            accounts_written: BTreeMap::new(),
            room: RowRoom::default(),
            switched_off: None,
            is_filtered: false,
            seed,
        }
    }

    /// Creates an empty state, to be filled with gathered rows.
    pub(crate) fn bare(seed: u64, cache: Arc<Cache>) -> Self {
        Self::empty(seed, Arc::default(), cache)
    }

    /// Creates the state of a new catalogue (clause N1).
    pub(crate) fn new(seed: u64, cache: Arc<Cache>) -> Result<Self, Defect> {
        let mut state = Self::empty(seed, Arc::default(), cache);
        state.insert_entry(&rules::new_root(), None, None)?;
        state.add_admin()?;
        Ok(state)
    }

    /// Adds the admin and the admin's group, as a new catalogue has them.
    pub(crate) fn add_admin(&mut self) -> Result<(), Defect> {
        rules::new_records().into_iter().try_for_each(|record| self.set_record(record, Revision(0)))
    }

    /// Returns the digest, equal for equal states.
    pub(crate) fn digest(&self) -> u128 {
        self.digest.value()
    }

    // ---- look-ups in memory ----

    /// Returns the directory with this number.
    pub(crate) fn directory(&self, id: DirId) -> Option<&Directory> {
        self.directories.get(id)
    }

    /// Returns this directory and those above it, nearest first.
    pub(crate) fn way_up(&self, from: DirId) -> impl Iterator<Item = (DirId, &Directory)> {
        self.directories.way_up(from)
    }

    /// Returns the end of the way up from this directory.
    pub(crate) fn top(&self, from: DirId) -> Top {
        self.directories.climb(from, |_| ())
    }

    /// Says whether this directory is in the tree.
    pub(crate) fn is_alive(&self, directory: DirId) -> bool {
        self.top(directory) == Top::Root
    }

    /// Returns the number of components in the path of this directory.
    pub(crate) fn depth(&self, directory: DirId) -> usize {
        self.way_up(directory).count().saturating_sub(1)
    }

    /// Returns the last change of anything on which permission depends; 0 if there was none since
    /// the store was opened.
    pub(crate) fn rights_changed(&self) -> Revision {
        self.rights.max(self.directories.shape)
    }

    /// Says whether the directory is empty. A missing one is.
    pub(crate) fn is_empty_directory(&self, directory: DirId) -> bool {
        // The usage counts everything in it.
        self.directory(directory).is_none_or(|directory| directory.usage.is_empty())
    }

    pub(crate) fn reservation(&self, guid: Guid) -> Option<&Reservation> {
        self.reservations.get(&guid)
    }

    pub(crate) fn record(&self, key: RecordKey) -> Option<&(Record, Revision)> {
        self.records.get(&key)
    }

    /// Returns the records of one kind.
    pub(crate) fn records_of(&self, kind: RecordKind) -> impl Iterator<Item = &Record> {
        self.records.values().map(|(record, _)| record).filter(move |record| record.key().kind() == kind)
    }

    /// Returns the key of the record with this kind and name.
    pub(crate) fn record_named(&self, kind: RecordKind, name: &str) -> Option<RecordKey> {
        self.record_names.get(&(kind, name.to_owned())).copied()
    }

    /// Returns the storage element with this number.
    pub(crate) fn se(&self, number: SeNumber) -> Option<&exacat_model::Se> {
        match self.record(RecordKey::Se(number)) {
            Some((Record::Se(se), _)) => Some(se),
            _ => None,
        }
    }

    // ---- metrics ----

    /// Returns the memory taken, by part; ignores small parts.
    pub(crate) fn memory(&self) -> [(&'static str, u64); 6] {
        let pairs: usize = self.accounts.ses.values().map(|se| se.directories.len()).sum();
        let frozen: u64 = self.table.frozen().iter().map(|memtable| memtable.bytes()).sum();
        let runs: usize = self.table.version().runs.iter().map(|run| run.memory_bytes()).sum();
        [
            ("memtable", self.table.active().bytes()),
            ("frozen", frozen),
            ("runs", runs as u64),
            ("cache", self.table.cache().bytes()),
            ("directories", self.directories.bytes()),
            ("se_directories", (pairs * 12) as u64),
        ]
    }

    /// Returns counts for a status.
    pub(crate) fn counts(&self) -> Vec<Sample> {
        let runs = &self.table.version().runs;
        let rows: u64 = runs.iter().map(|run| run.rows().0).sum();
        vec![
            metric_table::DIRECTORIES.is(self.directories.len().saturating_sub(1)),
            metric_table::TRASH_ITEMS.is(self.trash_items),
            metric_table::RESERVATIONS.is(self.reservations.len() as u64),
            metric_table::RECORDS.is(self.records.len() as u64),
            metric_table::MEMTABLE_ROWS.is(self.table.active().rows() as u64),
            metric_table::MEMTABLES_FROZEN.is(self.table.frozen().len() as u64),
            metric_table::RUNS.is(runs.len() as u64),
            metric_table::RUN_ROWS.is(rows),
        ]
    }
}
