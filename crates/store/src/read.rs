//! What reads give.

use exacat_model::limits::READ_BATCH_MAX;
use exacat_model::{
    At, Body, Booking, Change, DirId, Effect, Entry, EntryId, Error, File, GroupId, Lfn, Mode, Previous,
    Record, RecordKey, Revision, SeNumber, TrashId, Usage, UserId, canonical_enum, canonical_struct,
};
use smallvec::SmallVec;

/// Refuses to look for more at once than may be asked for.
pub fn within_batch(keys: usize) -> exacat_model::Result<()> {
    if keys > READ_BATCH_MAX {
        return Err(Error::limit("the number of items asked for at once", keys, READ_BATCH_MAX));
    }
    Ok(())
}

/// What permission needs to know of a directory on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// The directory.
    pub id: DirId,
    /// Its owner.
    pub owner: UserId,
    /// Its group.
    pub group: GroupId,
    /// Its mode.
    pub mode: Mode,
}

impl Gate {
    /// The gate a directory entry is; none if it is no directory.
    pub fn of(entry: &Entry) -> Option<Gate> {
        Some(Gate { id: entry.directory()?, owner: entry.owner, group: entry.group, mode: entry.mode })
    }
}

/// Directories from the root downwards.
pub type Gates = SmallVec<[Gate; 10]>;

/// Where a path leads.
#[derive(Clone, Debug, PartialEq)]
pub struct Walk {
    /// The directories passed, the root first; the entry itself is not among them, even if it is a
    /// directory. Empty only for the root itself.
    pub gates: Gates,
    /// How it ended.
    pub end: WalkEnd,
}

/// How following a path ended.
#[derive(Clone, Debug, PartialEq)]
pub enum WalkEnd {
    /// At this entry, with no component left over.
    Found(Box<Entry>),
    /// The component after the last gate is not in it. `components` were followed before.
    Missing {
        /// How many components were found.
        components: usize,
    },
    /// At an entry that is no directory, with components left over. If it is a link, the catalogue follows it.
    Stopped {
        /// The entry.
        entry: Box<Entry>,
        /// How many components led to it.
        components: usize,
    },
}

/// Files found by their paths: what a look-up needs of a [`Walk`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Files {
    /// Directories passed, as in [`Walk::gates`]. Files of one directory may have one way in common.
    pub ways: Vec<Gates>,
    /// One per path: none if it does not end at a file.
    pub found: Vec<Option<FoundFile>>,
}

/// A file that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundFile {
    /// Its place in [`Files::ways`].
    pub way: usize,
    /// Its owner.
    pub owner: UserId,
    /// Its group.
    pub group: GroupId,
    /// Its mode.
    pub mode: Mode,
    /// What it is.
    pub file: File,
}

impl FromIterator<Walk> for Files {
    fn from_iter<T: IntoIterator<Item = Walk>>(walks: T) -> Self {
        let mut files = Files::default();
        for Walk { gates, end } in walks {
            let found = match end {
                WalkEnd::Found(entry) => match *entry {
                    Entry { owner, group, mode, body: Body::File(file), .. } => {
                        files.ways.push(gates);
                        Some(FoundFile { way: files.ways.len() - 1, owner, group, mode, file })
                    }
                    _ => None,
                },
                WalkEnd::Missing { .. } | WalkEnd::Stopped { .. } => None,
            };
            files.found.push(found);
        }
        files
    }
}

/// Where an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
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
    /// Where it is.
    pub place: Place,
    /// The directories above it in the tree, the root first. In the trash: those above it below the item, the
    /// item's own first; empty for the item itself.
    pub gates: Gates,
}

/// A bounded part of something longer.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// There may be more after the last of them.
    pub more: bool,
}

/// What a usage is asked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UsageOf {
    /// All that is below a directory, without itself. In the tree or in the trash.
    Directory(DirId),
    /// All entries of an owner, in the tree and in the trash.
    User(UserId),
    /// All entries of a group, in the tree and in the trash.
    Group(GroupId),
    /// All replicas that take space on a storage element, in the tree and in the trash: their number in
    /// `files` and `replicas`, their bytes in `bytes` and `replica_bytes`.
    Se(SeNumber),
    /// All that waits in the deletion queue of a storage element, counted as for `Se`.
    Deletions(SeNumber),
}

canonical_enum!(UsageOf { 1 => Directory(id), 2 => User(id), 3 => Group(id), 4 => Se(se), 5 => Deletions(se) });

/// What is used, and what bookings reserve. For other than users and groups nothing is reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// What is used.
    pub usage: Usage,
    /// What is reserved.
    pub reserved: Usage,
}

canonical_struct!(Account { usage, reserved });

/// What has expired.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Due {
    /// Bookings to release.
    pub bookings: Vec<Booking>,
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

/// A part of the history.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangePage {
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// Everything up to here has been given: the cursor for the next page. May be beyond the last change
    /// given, never beyond the last committed one.
    pub up_to: Revision,
    /// The oldest change that is still kept, or the next one if none is; a reader whose cursor is before `oldest - 1` has
    /// missed changes, and gets those from `oldest` on.
    pub oldest: Revision,
}

/// A trace of an entry that went from a name or ended: it leads to the change that did this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trace {
    /// The last change that took an entry from this name.
    Left(At),
    /// The last purge of an entry of this identity.
    Ended(EntryId),
}

impl Trace {
    /// The traces that a change leaves.
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
    /// For each trace asked for, the change it leads to; none if there is no such trace.
    pub found: Vec<Option<Revision>>,
    /// Traces of changes after this one are complete. Those of earlier changes, which an older release
    /// made, may be missing.
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
    /// The entry came to be with the last change given, or with the catalogue.
    Beginning,
    /// With this change of the entry: the limit was reached.
    More(Revision),
    /// The log does not keep the entry's earlier changes.
    NotKept,
    /// The last change given, of an older release, does not name the one before it: earlier changes are
    /// found by reading the log before this revision.
    Unlinked(Revision),
}

impl TrailEnd {
    /// Returns how the trail goes on before this change, if `oldest` is the oldest that is kept.
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

/// Figures of a store for an operator.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreStatus {
    /// Which store: `memory`, `embedded` …
    pub kind: String,
    /// The last committed change.
    pub revision: Revision,
    /// Entries in the tree and the trash, the root not counted.
    pub entries: u64,
    /// Named figures with their unit in the name (`log_bytes`, `sync_us_p99` …).
    pub figures: Vec<(String, u64)>,
    /// What an operator should know, in words; empty if all is well.
    pub warnings: Vec<String>,
}

canonical_struct!(StoreStatus { kind, revision, entries, figures, warnings });
