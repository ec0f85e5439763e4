//! Results of reads.

use exacat_model::limits::{PAGE_ITEMS_MAX, PAGE_MEMORY_MAX, READ_BATCH_MAX, READ_MEMORY_MAX};
use exacat_model::{
    At, Body, Change, Checksums, DirId, Effect, Entry, EntryId, Error, File, GroupId, Guid, Lfn, Measured,
    Mode, Previous, Record, RecordKey, Replica, Reservation, Revision, SeNumber, TrashId, Usage, UserId,
    canonical_enum, canonical_struct,
};
use smallvec::SmallVec;

use crate::metric::Sample;

/// Refuses a read of more keys than permitted.
pub fn within_batch(keys: usize) -> exacat_model::Result<()> {
    if keys > READ_BATCH_MAX {
        return Err(Error::limit("the number of items asked for at once", keys, READ_BATCH_MAX));
    }
    Ok(())
}

/// Sum of the bytes of the entries that a read of many keys has found so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadBytes(usize);

impl ReadBytes {
    /// Adds an entry; refuses more than [`READ_MEMORY_MAX`] in all.
    pub fn add(&mut self, found: Option<&impl Measured>) -> exacat_model::Result<()> {
        self.0 += found.map_or(0, Measured::bytes);
        if self.0 > READ_MEMORY_MAX {
            return Err(Error::limit("the bytes of the entries read at once", self.0, READ_MEMORY_MAX));
        }
        Ok(())
    }
}

/// Facts about a directory on a path that permission depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// The directory.
    pub id: DirId,
    /// Its owner.
    pub owner: UserId,
    /// Its group.
    pub group: GroupId,
    /// Its mode.
    pub mode: Mode,
}

impl Ancestor {
    /// Makes the ancestor of a directory; none for other entries.
    pub fn of(entry: &Entry) -> Option<Ancestor> {
        Some(Ancestor { id: entry.directory()?, owner: entry.owner, group: entry.group, mode: entry.mode })
    }
}

/// Directories from the root downwards.
pub type Ancestors = SmallVec<[Ancestor; 10]>;

/// Result of resolving a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution {
    /// Directories on the path, the root first, without the entry itself even if it is a directory.
    /// Empty only for the root itself, and for a path that is elsewhere.
    pub ancestors: Ancestors,
    /// End of the path.
    pub end: ResolutionEnd,
}

/// End of path resolution.
#[derive(Clone, Debug, PartialEq)]
pub enum ResolutionEnd {
    /// The path ends at this entry, with no component left over.
    Found(Box<Entry>),
    /// The component after the last ancestor does not exist. `components` were resolved before.
    Missing {
        /// Number of components that were found.
        components: usize,
    },
    /// The path meets an entry that is no directory, with components left over. If it is a link,
    /// the catalogue follows it.
    Stopped {
        /// The entry.
        entry: Box<Entry>,
        /// Number of components that led to it.
        components: usize,
    },
    /// The store has only a part of the catalogue, and the path is not in it. The error says where it is.
    Elsewhere(Box<Error>),
}

/// Files found by their paths: the part of a [`Resolution`] that a look-up needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Files {
    /// Directories on the paths, as in [`Resolution::ancestors`]. Files of one directory may share one item.
    pub ways: Vec<Ancestors>,
    /// One result per path: none if it does not end at a file.
    pub found: Vec<Option<FoundFile>>,
}

/// A file that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundFile {
    /// Index in [`Files::ways`].
    pub way: usize,
    /// Its owner.
    pub owner: UserId,
    /// Its group.
    pub group: GroupId,
    /// Its mode.
    pub mode: Mode,
    /// Fields of the file.
    pub file: File,
}

impl FromIterator<Resolution> for Files {
    fn from_iter<T: IntoIterator<Item = Resolution>>(resolutions: T) -> Self {
        let mut files = Files::default();
        for Resolution { ancestors, end } in resolutions {
            let found = match end {
                ResolutionEnd::Found(entry) => match *entry {
                    Entry { owner, group, mode, body: Body::File(file), .. } => {
                        files.ways.push(ancestors);
                        Some(FoundFile { way: files.ways.len() - 1, owner, group, mode, file })
                    }
                    _ => None,
                },
                ResolutionEnd::Missing { .. }
                | ResolutionEnd::Stopped { .. }
                | ResolutionEnd::Elsewhere(_) => None,
            };
            files.found.push(found);
        }
        files
    }
}

impl ResolutionEnd {
    /// Returns the entry that the path ends at or stops at.
    pub fn entry(&self) -> Option<&Entry> {
        match self {
            ResolutionEnd::Found(entry) | ResolutionEnd::Stopped { entry, .. } => Some(entry),
            ResolutionEnd::Missing { .. } | ResolutionEnd::Elsewhere(_) => None,
        }
    }
}

/// A replica on the storage element that was asked for, with the facts of its file that are compared
/// with the storage.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredReplica {
    /// The file.
    pub guid: Guid,
    /// Version of the file's entry.
    pub revision: Revision,
    /// Bytes of the file, if known.
    pub size: Option<u64>,
    /// Its known checksums.
    pub checksums: Checksums,
    /// State and place of the replica.
    pub replica: Replica,
}

/// A page of replicas on a storage element, and the cursor of the next.
pub type ReplicasPage = (Page<StoredReplica>, Vec<u8>);

impl StoredReplica {
    /// Returns the replica on a storage element; none if the entry has none there.
    pub fn of(entry: Entry, se: SeNumber) -> Option<Self> {
        let Body::File(File { guid, size, checksums, replicas, .. }) = entry.body else { return None };
        let replica = replicas.into_iter().find(|replica| replica.se == se)?;
        Some(StoredReplica { guid, revision: entry.revision, size, checksums, replica })
    }
}

impl Measured for StoredReplica {
    fn bytes(&self) -> usize {
        size_of::<Self>() - size_of::<Replica>() + self.replica.bytes()
    }
}

/// Location of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryLocation {
    /// In the tree, under this LFN.
    Tree(Lfn),
    /// In the trash: the item itself, or below it.
    Trash(TrashId),
}

/// An entry found by its id.
#[derive(Clone, Debug, PartialEq)]
pub struct Located {
    /// The entry.
    pub entry: Entry,
    /// Location of the entry.
    pub place: EntryLocation,
    /// Directories above it in the tree, the root first. In the trash: those above it below the
    /// item, the item first; empty for the item itself.
    pub ancestors: Ancestors,
}

/// A bounded part of a listing.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// True if more may follow the last item.
    pub more: bool,
}

/// A page that is being filled: up to `limit` items, [`PAGE_ITEMS_MAX`] of them, or the item that
/// brings it to [`PAGE_MEMORY_MAX`].
#[derive(Debug)]
pub struct PageInProgress<T> {
    items: Vec<T>,
    bytes: usize,
    limit: usize,
}

impl<T: Measured> PageInProgress<T> {
    /// Begins a page of at most `limit` items, with memory for `expected` of them.
    pub fn new(limit: usize, expected: usize) -> Self {
        let limit = limit.min(PAGE_ITEMS_MAX);
        PageInProgress { items: Vec::with_capacity(expected.min(limit)), bytes: 0, limit }
    }

    /// True if the page takes no further item.
    pub fn is_full(&self) -> bool {
        self.items.len() >= self.limit || self.bytes >= PAGE_MEMORY_MAX
    }

    /// Adds an item to a page that is not full.
    pub fn push(&mut self, item: T) {
        self.bytes += item.bytes();
        self.items.push(item);
    }

    /// Returns the items so far.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// Ends the page; `more` says whether more may follow.
    pub fn end(self, more: bool) -> Page<T> {
        Page { items: self.items, more }
    }
}

impl<T: Measured> Page<T> {
    /// Makes a page of the first of these items.
    pub fn of(items: impl IntoIterator<Item = T>, limit: usize) -> Self {
        let (mut page, mut items) = (PageInProgress::new(limit, 0), items.into_iter());
        while !page.is_full() {
            match items.next() {
                Some(item) => page.push(item),
                None => return page.end(false),
            }
        }
        page.end(items.next().is_some())
    }
}

/// Subject of a usage read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsageOf {
    /// Everything below a directory, without itself. It may be in the tree or in the trash.
    Directory(DirId),
    /// All entries of an owner, in the tree and in the trash.
    User(UserId),
    /// All entries of a group, in the tree and in the trash.
    Group(GroupId),
    /// All replicas that take space on a storage element, in the tree and in the trash. `files` and
    /// `replicas` have their number, `bytes` and `replica_bytes` their bytes.
    Se(SeNumber),
    /// The deletion queue of a storage element, counted as for `Se`.
    Deletions(SeNumber),
}

canonical_enum!(UsageOf { 1 => Directory(id), 2 => User(id), 3 => Group(id), 4 => Se(se), 5 => Deletions(se) });

/// Usage, and the part of the quota that upload reservations hold. Only users and groups have
/// reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Usage.
    pub usage: Usage,
    /// Held by upload reservations.
    pub reserved: Usage,
}

canonical_struct!(Account { usage, reserved });

/// Expired items.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    /// Upload reservations to release.
    pub reservations: Vec<Reservation>,
    /// Entries in the tree to remove.
    pub entries: Vec<Entry>,
}

/// A record, and the change that last set it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordEntry {
    /// Its key.
    pub key: RecordKey,
    /// The record.
    pub record: Record,
    /// The change that last set it.
    pub revision: Revision,
}

impl Measured for RecordEntry {
    fn bytes(&self) -> usize {
        size_of::<RecordEntry>() + self.record.bytes()
    }
}

/// A part of the history.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangePage {
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// Last revision covered: the cursor for the next page. May be after the last change of the
    /// page, never after the last committed one.
    pub up_to: Revision,
    /// Oldest change that is still kept, or the next one if none is. A reader with a cursor before
    /// `oldest - 1` has missed changes, and gets those from `oldest` on.
    pub oldest: Revision,
}

/// Trace of an entry that left a name or was purged; leads to the change that did this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trace {
    /// The last change that took an entry from this name.
    Left(At),
    /// The last purge of an entry of this identity.
    Ended(EntryId),
}

impl Trace {
    /// Returns the traces that a change leaves.
    pub fn of(effect: &Effect) -> impl Iterator<Item = Trace> {
        let ended = match effect {
            Effect::Purged { entry, .. } => Some(Trace::Ended(entry.id())),
            _ => None,
        };
        effect.vacated().cloned().map(Trace::Left).into_iter().chain(ended)
    }
}

/// Known traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traces {
    /// Change that each trace leads to; none if there is no such trace.
    pub found: Vec<Option<Revision>>,
    /// Traces of changes after this one are complete. Those of earlier changes, made by an older
    /// release, may be missing.
    pub since: Revision,
}

/// Changes of one entry, the newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct Trail {
    /// The changes.
    pub changes: Vec<Change>,
    /// Continuation of the trail.
    pub end: TrailEnd,
}

/// Continuation of a trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrailEnd {
    /// The last returned change created the entry, or the entry was in the new catalogue.
    Beginning,
    /// The limit was reached; the trail continues with this change.
    More(Revision),
    /// The log does not keep the entry's earlier changes.
    NotKept,
    /// The last returned change, from an older release, does not name the one before it. Earlier
    /// changes are found by reading the log before this revision.
    Unlinked(Revision),
}

impl TrailEnd {
    /// Returns how the trail continues before this change, if `oldest` is the oldest that is kept.
    pub fn before(change: &Change, oldest: Revision) -> Self {
        match change.effect.previous() {
            Previous::None | Previous::At(Revision(0)) => TrailEnd::Beginning,
            Previous::At(previous) if previous >= oldest && previous < change.revision => {
                TrailEnd::More(previous)
            }
            Previous::At(_) => TrailEnd::NotKept,
            Previous::Unknown => TrailEnd::Unlinked(change.revision),
        }
    }
}

/// Metrics of a store for an operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreStatus {
    /// Kind of the store: `memory`, `embedded` …
    pub kind: String,
    /// The last committed change.
    pub revision: Revision,
    /// Entries in the tree and the trash, the root not counted.
    pub entries: u64,
    /// Its metrics.
    pub metrics: Vec<Sample>,
    /// Warnings for an operator, in words; empty if all is well.
    pub warnings: Vec<String>,
}

impl StoreStatus {
    /// Returns the metrics by their names in a status (`log_plain_bytes`, `sync_us_p99` …).
    pub fn named(&self) -> Vec<(String, u64)> {
        self.metrics.iter().flat_map(Sample::shown).collect()
    }

    /// Returns a metric by its name in a status.
    pub fn named_one(&self, name: &str) -> Option<u64> {
        self.named().into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}
