//! What the memory store keeps, and what it finds in it by scanning.

use std::collections::{BTreeMap, BTreeSet};

use exacat_model::{
    At, Booking, Change, Deletion, DeletionId, DirId, Entry, EntryId, Fingerprint, Guid, Name, OperationId,
    Record, RecordKey, Revision, SeNumber, TimeMs, TrashId, Usage,
};

use crate::Outcome;
use crate::rules::{self, Trashed};

/// Everything that cannot be derived.
pub(super) struct State {
    /// The last change's.
    pub revision: Revision,
    /// The last change's.
    pub time: TimeMs,
    /// What the next directory gets.
    pub next_directory: u64,
    /// The root.
    pub root: Entry,
    /// All entries but the root and the items of the trash: by directory and name. Those below an item of the trash
    /// are here.
    pub entries: BTreeMap<DirId, BTreeMap<Name, Entry>>,
    pub trash: BTreeMap<TrashId, Trashed>,
    /// Of each collection.
    pub members: BTreeMap<Guid, BTreeSet<Guid>>,
    pub bookings: BTreeMap<Guid, Booking>,
    pub records: BTreeMap<RecordKey, (Record, Revision)>,
    pub deletions: BTreeMap<(SeNumber, DeletionId), Deletion>,
    pub changes: Vec<Change>,
    /// Changes so far of accounts and tokens that were there.
    pub credentials: u64,
    /// Outcomes of each request's applied mutations (A6). All of them: the changes are kept as well.
    operations: BTreeMap<OperationId, BTreeMap<u32, Outcome>>,
    /// Fingerprints of requests that came with one.
    fingerprints: BTreeMap<OperationId, Fingerprint>,
}

impl State {
    /// Clause N1.
    pub fn new() -> Self {
        State {
            revision: Revision(0),
            time: TimeMs(0),
            next_directory: DirId::ROOT.0 + 1,
            root: rules::new_root(),
            entries: BTreeMap::new(),
            trash: BTreeMap::new(),
            members: BTreeMap::new(),
            bookings: BTreeMap::new(),
            records: rules::new_records()
                .into_iter()
                .map(|record| (record.key(), (record, Revision(0))))
                .collect(),
            deletions: BTreeMap::new(),
            changes: Vec::new(),
            credentials: 0,
            operations: BTreeMap::new(),
            fingerprints: BTreeMap::new(),
        }
    }

    // ---- operations ----

    /// The outcome the request's mutation had, if it was applied and is remembered.
    pub fn remembered(&self, operation: OperationId, index: u32) -> Option<Outcome> {
        self.operations.get(&operation)?.get(&index).cloned()
    }

    /// Remembers an applied mutation's outcome.
    pub fn remember(&mut self, operation: OperationId, index: u32, outcome: Outcome) {
        self.operations.entry(operation).or_default().insert(index, outcome);
    }

    /// Remembers the fingerprint of a request of which something was applied.
    pub fn remember_fingerprint(&mut self, operation: OperationId, fingerprint: Fingerprint) {
        if self.operations.contains_key(&operation) {
            self.fingerprints.entry(operation).or_insert(fingerprint);
        }
    }

    /// Was something applied of another request of this id?
    pub fn is_another(&self, operation: OperationId, fingerprint: Fingerprint) -> bool {
        self.fingerprints.get(&operation).is_some_and(|first| first.differs(fingerprint))
    }

    // ---- places ----

    /// What stands there, in the tree or below an item of the trash.
    pub fn at(&self, at: &At) -> Option<&Entry> {
        if *at == self.root.at {
            return Some(&self.root);
        }
        self.entries.get(&at.parent)?.get(&at.name)
    }

    /// Every entry but the root and the items of the trash.
    pub fn placed(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().flat_map(BTreeMap::values)
    }

    /// Every entry but the root, those in the trash included.
    pub fn all(&self) -> impl Iterator<Item = &Entry> {
        self.placed().chain(self.trash.values().map(|item| &item.entry))
    }

    /// The children of a directory.
    pub fn children(&self, directory: DirId) -> impl Iterator<Item = &Entry> {
        self.entries.get(&directory).into_iter().flat_map(BTreeMap::values)
    }

    /// The entry of this identity, wherever it is.
    pub fn find(&self, id: EntryId) -> Option<&Entry> {
        if id == self.root.id() {
            return Some(&self.root);
        }
        self.all().find(|entry| entry.id() == id)
    }

    /// The item of the trash that is this entry.
    pub fn trash_of(&self, id: EntryId) -> Option<TrashId> {
        self.trash.iter().find(|(_, item)| item.entry.id() == id).map(|(trash, _)| *trash)
    }

    // ---- sums ----

    /// What is below a directory adds up to, without itself.
    pub fn usage_below(&self, directory: DirId) -> Usage {
        let mut sum = Usage::default();
        let mut waiting = vec![directory];
        while let Some(directory) = waiting.pop() {
            for entry in self.children(directory) {
                sum.add(&Usage::of(entry));
                waiting.extend(entry.directory());
            }
        }
        sum
    }

    /// What all entries add up to that are so.
    pub fn usage_where(&self, wanted: impl Fn(&Entry) -> bool) -> Usage {
        let mut sum = Usage::default();
        for entry in self.all().chain([&self.root]).filter(|entry| wanted(entry)) {
            sum.add(&Usage::of(entry));
        }
        sum
    }

    /// What all bookings reserve that are so.
    pub fn reserved_where(&self, wanted: impl Fn(&Booking) -> bool) -> Usage {
        let mut sum = Usage::default();
        for booking in self.bookings.values().filter(|booking| wanted(booking)) {
            sum.add(&booking.reserved());
        }
        sum
    }
}
