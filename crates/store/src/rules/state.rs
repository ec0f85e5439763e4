//! Writes that the rules need to a state.

use exacat_model::{
    Deletion, DeletionId, Entry, Guid, Location, Record, RecordKey, Reservation, Revision, SeNumber, TimeMs,
    TrashId, UserId,
};

use super::view::{Trashed, View};

/// Facts about a change, beside its effect, on which the state depends.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Revision of the change.
    pub revision: Revision,
    /// Time of the change.
    pub time: TimeMs,
    /// User that made it.
    pub who: UserId,
}

/// A state to which changes can be applied. Each state maintains its own counters and indices.
///
/// After an error the state may be half changed, and the caller must discard it.
pub trait State: View {
    /// Puts a new entry at its free place. `encoded` are its canonical bytes, if the caller has
    /// them. Such an entry was decided on this very state.
    fn insert(&mut self, entry: &Entry, encoded: Option<&[u8]>) -> Result<(), Self::Error>;

    /// Replaces an entry by `new`: of the same identity, at the same place.
    fn replace(&mut self, old: &Entry, new: Entry) -> Result<(), Self::Error>;

    /// Moves an entry with everything below it to the free place of `new`.
    fn relocate(&mut self, old: &Entry, new: Entry) -> Result<(), Self::Error>;

    /// Moves an entry with everything below it to the trash.
    fn put_trashed(&mut self, trash: TrashId, old: &Entry, item: Trashed) -> Result<(), Self::Error>;

    /// Moves an item of the trash to the free place of `new`.
    fn restore(&mut self, trash: TrashId, item: &Trashed, new: Entry) -> Result<(), Self::Error>;

    /// Removes an item of the trash; not its members.
    fn purge_trashed(&mut self, trash: TrashId, item: &Trashed) -> Result<(), Self::Error>;

    /// Removes an entry below an item of the trash; not its members.
    fn purge(&mut self, entry: &Entry) -> Result<(), Self::Error>;

    /// Adds or removes a member.
    fn set_member(&mut self, collection: Guid, guid: Guid, is: bool) -> Result<(), Self::Error>;

    /// Removes all members of a collection.
    fn forget_members(&mut self, collection: Guid) -> Result<(), Self::Error>;

    /// Replaces the upload reservation of a GUID by another, or by none.
    fn set_reservation(&mut self, guid: Guid, after: Option<Reservation>) -> Result<(), Self::Error>;

    /// Sets a record.
    fn put_record(&mut self, record: Record, revision: Revision) -> Result<(), Self::Error>;

    /// Drops a record, if it exists.
    fn drop_record(&mut self, key: RecordKey) -> Result<(), Self::Error>;

    /// Returns the keys of a user's tokens.
    fn tokens_of(&self, user: UserId) -> Vec<RecordKey>;

    /// Puts a deletion on the queue of a storage element.
    fn put_deletion(&mut self, se: SeNumber, deletion: Deletion) -> Result<(), Self::Error>;

    /// Takes a deletion off the queue.
    fn take_deletion(&mut self, se: SeNumber, id: DeletionId) -> Result<(), Self::Error>;

    /// Returns the deletions of one physical copy, whichever file each is of.
    fn deletions_of(
        &self,
        se: SeNumber,
        guid: Guid,
        location: &Location,
    ) -> Result<Vec<DeletionId>, Self::Error>;

    /// Passes all deletions of a storage element to `each`.
    fn each_deletion(
        &self,
        se: SeNumber,
        each: impl FnMut(Deletion) -> Result<(), Self::Error>,
    ) -> Result<(), Self::Error>;
}
