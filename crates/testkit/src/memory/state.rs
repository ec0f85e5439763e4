//! State of the memory store, and the scans that search it.

use std::collections::{BTreeMap, BTreeSet};

use exacat_model::{
    At, Change, Deletion, DeletionId, DirId, Entry, EntryId, Fingerprint, Guid, Name, OperationId, Record,
    RecordKey, Reservation, Revision, SeNumber, TimeMs, TrashId, Usage,
};
use exacat_store::Outcome;
use exacat_store::rules::{self, Trashed};

/// All facts that cannot be derived.
pub(super) struct State {
    /// Revision of the last change.
    pub revision: Revision,
    /// Time of the last change.
    pub time: TimeMs,
    /// Number of the next directory.
    pub next_directory: u64,
    /// The root.
    pub root: Entry,
    /// All entries by directory and name, but the root and the items of the trash. Entries below an
    /// item of the trash are here.
    pub entries: BTreeMap<DirId, BTreeMap<Name, Entry>>,
    pub trash: BTreeMap<TrashId, Trashed>,
    /// Members of each collection.
    pub members: BTreeMap<Guid, BTreeSet<Guid>>,
    pub reservations: BTreeMap<Guid, Reservation>,
    pub records: BTreeMap<RecordKey, (Record, Revision)>,
    pub deletions: BTreeMap<(SeNumber, DeletionId), Deletion>,
    pub changes: Vec<Change>,
    /// Number of changes so far of existing accounts and tokens.
    pub credentials: u64,
    /// Outcomes of each request's applied mutations (A6). They are never dropped, because the
    /// changes are kept as well.
    operations: BTreeMap<OperationId, BTreeMap<u32, Outcome>>,
    /// Fingerprints of requests that had one.
    fingerprints: BTreeMap<OperationId, Fingerprint>,
}

impl State {
    /// Makes the state of a new store (clause N1).
    pub(crate) fn new() -> Self {
        State {
            revision: Revision(0),
            time: TimeMs(0),
            next_directory: DirId::ROOT.0 + 1,
            root: rules::new_root(),
            entries: BTreeMap::new(),
            trash: BTreeMap::new(),
            members: BTreeMap::new(),
            reservations: BTreeMap::new(),
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

    /// Returns the outcome of the request's mutation, if it was applied and is remembered.
    pub(crate) fn remembered(&self, operation: OperationId, index: u32) -> Option<Outcome> {
        self.operations.get(&operation)?.get(&index).cloned()
    }

    /// Remembers the outcome of an applied mutation.
    pub(crate) fn remember(&mut self, operation: OperationId, index: u32, outcome: Outcome) {
        self.operations.entry(operation).or_default().insert(index, outcome);
    }

    /// Remembers the fingerprint of a request, if one of its mutations was applied.
    pub(crate) fn remember_fingerprint(&mut self, operation: OperationId, fingerprint: Fingerprint) {
        if self.operations.contains_key(&operation) {
            self.fingerprints.entry(operation).or_insert(fingerprint);
        }
    }

    /// Says whether a mutation of another request with this id was applied.
    pub(crate) fn is_another(&self, operation: OperationId, fingerprint: Fingerprint) -> bool {
        self.fingerprints.get(&operation).is_some_and(|first| first.differs(fingerprint))
    }

    // ---- places ----

    /// Returns the entry at a place, in the tree or below an item of the trash.
    pub(crate) fn at(&self, at: &At) -> Option<&Entry> {
        if *at == self.root.at {
            return Some(&self.root);
        }
        self.entries.get(&at.parent)?.get(&at.name)
    }

    /// Iterates over every entry but the root and the items of the trash.
    pub(crate) fn placed(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().flat_map(BTreeMap::values)
    }

    /// Iterates over every entry but the root, those in the trash included.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Entry> {
        self.placed().chain(self.trash.values().map(|item| &item.entry))
    }

    /// Iterates over the children of a directory.
    pub(crate) fn children(&self, directory: DirId) -> impl Iterator<Item = &Entry> {
        self.entries.get(&directory).into_iter().flat_map(BTreeMap::values)
    }

    /// Finds an entry by identity, wherever it is.
    pub(crate) fn find(&self, id: EntryId) -> Option<&Entry> {
        if id == self.root.id() {
            return Some(&self.root);
        }
        self.all().find(|entry| entry.id() == id)
    }

    /// Returns the id of the trash item that is this entry.
    pub(crate) fn trash_of(&self, id: EntryId) -> Option<TrashId> {
        self.trash.iter().find(|(_, item)| item.entry.id() == id).map(|(trash, _)| *trash)
    }

    // ---- sums ----

    /// Returns the usage of everything below a directory, without the directory itself.
    pub(crate) fn usage_below(&self, directory: DirId) -> Usage {
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

    /// Returns the usage of all entries that satisfy `wanted`.
    pub(crate) fn usage_where(&self, wanted: impl Fn(&Entry) -> bool) -> Usage {
        let mut sum = Usage::default();
        for entry in self.all().chain([&self.root]).filter(|entry| wanted(entry)) {
            sum.add(&Usage::of(entry));
        }
        sum
    }

    /// Returns what all upload reservations that satisfy `wanted` hold.
    pub(crate) fn reserved_where(&self, wanted: impl Fn(&Reservation) -> bool) -> Usage {
        let mut sum = Usage::default();
        for reservation in self.reservations.values().filter(|reservation| wanted(reservation)) {
            sum.add(&reservation.reserved());
        }
        sum
    }
}
