//! The state: everything the catalogue holds at one revision, exact after every change.
//!
//! [`apply`](State::apply) (in `apply.rs`) is the only way in: one change of the log, which was decided before. What is
//! found in it, a [`Lookup`] finds: for readers (`read.rs`, `walk.rs`), and for deciding (`lookup.rs`).
//!
//! ```text
//!   in memory, whole:  directories · accounts · records · bookings
//!   in the table:      entries, by name and by GUID · trash · members · expiry · deletions      (see keyspace.rs)
//! ```
//! What is in memory only is written with each memtable that is frozen (`resident.rs`), and read at opening.

mod accounts;
mod apply;
mod audit;
mod carry;
mod deletions;
mod digest;
mod directories;
mod gathered;
mod lookup;
mod operations;
mod read;
mod resident;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use exacat_model::{Booking, DirId, Guid, Record, RecordKey, RecordKind, Revision, SeNumber, TimeMs};
use exacat_store::rules;

use crate::defect::Defect;
use crate::page::RowRoom;
use crate::run::Cache;
use crate::table::{Table, Version};

pub(crate) use accounts::Accounts;
pub(crate) use apply::Stamp;
pub(crate) use carry::{Loader, Part, Summary};
pub(crate) use deletions::deletion_of;
pub(crate) use digest::Digest;
pub(crate) use digest::Item;
pub(crate) use directories::{Above, Directories, Directory, Top};
pub(crate) use gathered::Gathered;
pub(crate) use lookup::{AsOf, Lookup};
pub(crate) use operations::Operations;
pub(crate) use read::{MovedSince, REPLICAS_CURSOR_BYTES_MAX, ReplicasPage};
pub(crate) use resident::{Frozen, decoded};
pub(crate) use walk::Hints;

/// Everything the catalogue holds at one revision.
pub(crate) struct State {
    /// The last change's.
    pub revision: Revision,
    /// The last change's.
    pub time: TimeMs,
    /// What the next directory gets.
    pub next_directory: u64,
    /// Entries, in the tree and the trash, the root not counted.
    pub entries: u64,
    pub accounts: Accounts,
    pub table: Table,
    pub directories: Directories,
    /// The last change of who may do what, beside those of directories: of owner, group or mode of an
    /// entry, of an account or a token; 0 if there was none since the store was opened.
    rights: Revision,
    /// Changes of accounts and tokens since then.
    pub credentials: Arc<AtomicU64>,
    /// Traces of changes after this one are kept; older releases kept none.
    pub traces_since: Revision,
    /// Items of the trash.
    trash_items: u64,
    bookings: BTreeMap<Guid, Booking>,
    booking_expiry: BTreeSet<(TimeMs, Guid)>,
    records: BTreeMap<RecordKey, (Record, Revision)>,
    record_names: BTreeMap<(RecordKind, String), RecordKey>,
    digest: Digest,
    /// The accounts as they were written last, by key.
    accounts_written: BTreeMap<Vec<u8>, Vec<u8>>,
    room: RowRoom,
    /// Why nothing is answered from it for now.
    pub switched_off: Option<&'static str>,
    /// Random per process: nobody can choose paths that fall together.
    seed: u64,
}

impl State {
    /// A state with nothing in it, not even the root, over these runs.
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
            bookings: BTreeMap::new(),
            booking_expiry: BTreeSet::new(),
            records: BTreeMap::new(),
            record_names: BTreeMap::new(),
            digest: Digest::default(),
            accounts_written: BTreeMap::new(),
            room: RowRoom::default(),
            switched_off: None,
            seed,
        }
    }

    /// A state with nothing in it, to be filled with what was gathered.
    pub fn bare(seed: u64, cache: Arc<Cache>) -> Self {
        Self::empty(seed, Arc::default(), cache)
    }

    /// The state of a new catalogue (clause N1).
    pub fn new(seed: u64, cache: Arc<Cache>) -> Result<Self, Defect> {
        let mut state = Self::empty(seed, Arc::default(), cache);
        state.insert_entry(&rules::new_root(), None, None)?;
        state.add_admin()?;
        Ok(state)
    }

    /// Adds the admin and the admin's group, as a new catalogue has them.
    pub fn add_admin(&mut self) -> Result<(), Defect> {
        rules::new_records().into_iter().try_for_each(|record| self.set_record(record, Revision(0)))
    }

    /// Equal for equal states.
    pub fn digest(&self) -> u128 {
        self.digest.value()
    }

    // ---- look-ups in memory ----

    /// The directory of this number.
    pub fn directory(&self, id: DirId) -> Option<&Directory> {
        self.directories.get(id)
    }

    /// This directory and those above it, nearest first.
    pub fn way_up(&self, from: DirId) -> impl Iterator<Item = (DirId, &Directory)> {
        self.directories.way_up(from)
    }

    /// Where the way up from this directory ends; none if there is no such directory.
    pub fn top(&self, from: DirId) -> Option<Top> {
        self.directories.top(from)
    }

    /// Does the way up from this directory lead to the root?
    pub fn is_alive(&self, directory: DirId) -> bool {
        self.top(directory) == Some(Top::Root)
    }

    /// How many components the path of this directory has.
    pub fn depth(&self, directory: DirId) -> usize {
        self.way_up(directory).count().saturating_sub(1)
    }

    /// The last change of anything that permission is judged by; 0 if there was none since the store was
    /// opened.
    pub fn rights_changed(&self) -> Revision {
        self.rights.max(self.directories.shape)
    }

    /// Is the directory empty? One that is not there is.
    pub fn is_empty_directory(&self, directory: DirId) -> bool {
        // Whatever is in it is counted.
        self.directory(directory).is_none_or(|directory| directory.usage.is_empty())
    }

    pub fn booking(&self, guid: Guid) -> Option<&Booking> {
        self.bookings.get(&guid)
    }

    pub fn record(&self, key: RecordKey) -> Option<&(Record, Revision)> {
        self.records.get(&key)
    }

    /// The records of one kind.
    pub fn records_of(&self, kind: RecordKind) -> impl Iterator<Item = &Record> {
        self.records.values().map(|(record, _)| record).filter(move |record| record.key().kind() == kind)
    }

    /// Which record of the kind has this name.
    pub fn record_named(&self, kind: RecordKind, name: &str) -> Option<RecordKey> {
        self.record_names.get(&(kind, name.to_owned())).copied()
    }

    /// The storage element of this number.
    pub fn se(&self, number: SeNumber) -> Option<&exacat_model::Se> {
        match self.record(RecordKey::Se(number)) {
            Some((Record::Se(se), _)) => Some(se),
            _ => None,
        }
    }

    // ---- figures ----

    /// Memory taken, by part; what is small is not looked at.
    pub fn memory(&self) -> Vec<(&'static str, u64)> {
        let pairs: usize = self.accounts.ses.values().map(|se| se.directories.len()).sum();
        let frozen: u64 = self.table.frozen().iter().map(|memtable| memtable.bytes()).sum();
        let runs: usize = self.table.version().runs.iter().map(|run| run.memory_bytes()).sum();
        vec![
            ("memory_memtable_bytes", self.table.active().bytes()),
            ("memory_frozen_bytes", frozen),
            ("memory_runs_bytes", runs as u64),
            ("memory_cache_bytes", self.table.cache().bytes()),
            ("memory_cache_bytes_max", self.table.cache().bytes_max()),
            ("memory_directories_bytes", self.directories.bytes()),
            ("memory_se_directories_bytes", (pairs * 12) as u64),
        ]
    }

    /// Counts for a status.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let runs = &self.table.version().runs;
        let rows: u64 = runs.iter().map(|run| run.rows().0).sum();
        vec![
            ("directories", self.directories.len().saturating_sub(1)),
            ("trash_items", self.trash_items),
            ("bookings", self.bookings.len() as u64),
            ("records", self.records.len() as u64),
            ("rows_in_memory", self.table.active().rows() as u64),
            ("memtables_being_written", self.table.frozen().len() as u64),
            ("runs", runs.len() as u64),
            ("rows_in_runs", rows),
        ]
    }
}
