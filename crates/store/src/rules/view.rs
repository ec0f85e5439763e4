//! Reads that the rules need from a state.

use std::borrow::Cow;

use exacat_model::{
    At, DeletionId, DirId, Entry, EntryId, GroupId, Guid, Lfn, Location, QuotaOf, Record, RecordKey,
    RecordKind, Replica, ReplicaState, Reservation, Revision, Se, SeNumber, TimeMs, TrashId, Usage, UserId,
    canonical_struct,
};

use super::decision::Misfit;
use crate::JudgedEntry;

/// An item of the trash; its usage is computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Trashed {
    /// Path before the removal.
    pub lfn: Lfn,
    /// The entry; `at` is its place before the removal.
    pub entry: Entry,
    /// User that removed it.
    pub removed_by: UserId,
    /// Time of the removal.
    pub removed: TimeMs,
}

canonical_struct!(Trashed { lfn, entry, removed_by, removed });

/// An entry that was found by its identity.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundEntry {
    /// The entry.
    pub entry: Entry,
    /// Item of the trash, if the entry is one itself.
    pub trash: Option<TrashId>,
}

/// Upper end of a chain of directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Top {
    /// The root: the directory is in the tree.
    Root,
    /// An item of the trash.
    Trash(TrashId),
    /// There is no such directory.
    Nowhere,
}

/// Reads that deciding needs.
pub trait View {
    /// Reason why the state cannot answer.
    type Error: From<Misfit>;

    /// Returns the number of the next directory.
    fn next_directory(&self) -> DirId;

    /// Says whether a new directory may have this number.
    fn takes_directory(&self, number: DirId) -> bool {
        number == self.next_directory()
    }

    /// Returns the entry at a place, in the tree or below an item of the trash.
    fn at(&self, at: &At) -> Result<Option<Entry>, Self::Error>;

    /// Returns the entry with this identity, wherever it is.
    fn find(&self, id: EntryId) -> Result<Option<FoundEntry>, Self::Error>;

    /// Says whether anything has this GUID.
    fn has_guid(&self, guid: Guid) -> Result<bool, Self::Error>;

    /// Says whether a file has this GUID.
    fn is_file(&self, guid: Guid) -> Result<bool, Self::Error> {
        Ok(self.find(EntryId::Object(guid))?.is_some_and(|found| found.entry.file().is_some()))
    }

    /// Passes this directory and those above it to `pass`, nearest first. Returns their upper end.
    fn climb(&self, directory: DirId, pass: impl FnMut(DirId)) -> Top;

    /// Returns the attributes of a directory that permission depends on.
    fn rights(&self, directory: DirId) -> Result<Option<JudgedEntry>, Self::Error>;

    /// Says whether a directory has no children.
    fn is_empty(&self, directory: DirId) -> bool;

    /// Returns an item of the trash.
    fn trashed(&self, trash: TrashId) -> Result<Option<Trashed>, Self::Error>;

    /// Says whether a GUID is a member of the collection.
    fn is_member(&self, collection: Guid, guid: Guid) -> Result<bool, Self::Error>;

    /// Returns the upload reservation of this GUID.
    fn reservation(&self, guid: Guid) -> Option<Cow<'_, Reservation>>;

    /// Returns the number of upload reservations of a user.
    fn reservations_of(&self, user: UserId) -> usize;

    /// Returns a record, and the change that last set it.
    fn record(&self, key: RecordKey) -> Option<(Cow<'_, Record>, Revision)>;

    /// Returns the key of the record with this kind and name.
    fn record_named(&self, kind: RecordKind, name: &str) -> Option<RecordKey>;

    /// Says whether any user is in the group.
    fn has_users(&self, group: GroupId) -> bool;

    /// Returns usage and reservations that count towards a quota.
    fn counted(&self, of: QuotaOf) -> Usage;

    /// Says whether a deletion is in the queue of a storage element.
    fn has_deletion(&self, se: SeNumber, id: DeletionId) -> Result<bool, Self::Error>;

    /// Says whether a storage element has replicas of any state, deletions or upload reservations.
    fn is_se_in_use(&self, se: SeNumber) -> bool;

    /// Says whether a directory is in the tree.
    fn is_alive(&self, directory: DirId) -> bool {
        self.climb(directory, |_| ()) == Top::Root
    }

    /// Says whether an entry is in the tree, not in the trash or below an item of it.
    fn is_in_tree(&self, found: &FoundEntry) -> bool {
        found.trash.is_none() && self.is_alive(found.entry.at.parent)
    }
}

/// Returns a storage element.
pub(super) fn se<V: View>(view: &V, se: SeNumber) -> Option<Cow<'_, Se>> {
    match view.record(RecordKey::Se(se))?.0 {
        Cow::Borrowed(Record::Se(se)) => Some(Cow::Borrowed(se)),
        Cow::Owned(Record::Se(se)) => Some(Cow::Owned(se)),
        _ => None,
    }
}

/// Returns the PFN of a copy of this file.
pub fn pfn<V: View>(view: &V, se_number: SeNumber, guid: Guid, location: &Location) -> String {
    let replica = Replica { se: se_number, state: ReplicaState::Available, location: location.clone() };
    replica.pfn(guid, se(view, se_number).as_deref())
}

/// Says whether the GUID's file has or plans a replica there that takes space.
pub fn is_in_use<V: View>(view: &V, se: SeNumber, guid: Guid, location: &Location) -> Result<bool, V::Error> {
    let same =
        |other: &Location| other == location || pfn(view, se, guid, other) == pfn(view, se, guid, location);
    if let Some(reservation) = view.reservation(guid)
        && reservation.pending.iter().any(|pending| pending.se == se && same(&pending.location))
    {
        return Ok(true);
    }
    let found = view.find(EntryId::Object(guid))?;
    let replica = found.as_ref().and_then(|found| found.entry.file()?.replica(se));
    Ok(replica.is_some_and(|replica| replica.takes_space() && same(&replica.location)))
}
