//! The rules of the contract's table, for any state: deciding mutations, and applying changes.
//!
//! [`decide`] is a pure function from a state, seen through [`View`], to an effect. [`perform`]
//! applies a change to a [`State`]. The memory store has its state in maps and scans them. Another
//! store answers from where its state is. If a row is not in memory yet, it notes this, returns any
//! value, discards the result, fetches the row and decides again. This is safe because deciding
//! only reads.

mod checks;
mod decide;
mod edits;
mod effects;
mod judged;
mod paths;
pub mod refusals;

use exacat_model::{
    AccountName, At, Body, Deletion, DeletionId, DirId, Entry, EntryId, Group, GroupId, Guid, Lfn, Location,
    Mode, Name, QuotaOf, Record, RecordKey, RecordKind, Replica, ReplicaState, Reservation, Revision, Role,
    SeNumber, TimeMs, TrashId, Usage, User, UserId, canonical_struct,
};

use crate::Refusal;

pub use decide::decide;
pub use effects::perform;
pub use judged::{changes_credentials, judged_the_same, places};
pub use paths::{locate, resolve};

/// An effect; none if the requested state holds already; or a refusal.
pub type Decided = Result<Option<exacat_model::Effect>, Refusal>;

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

/// Returns the root of a new store (clause N1).
pub fn new_root() -> Entry {
    Entry {
        at: At { parent: DirId::ROOT, name: Name::root() },
        owner: UserId::ADMIN,
        group: GroupId::ADMIN,
        mode: Mode::DIRECTORY,
        created: TimeMs(0),
        modified: TimeMs(0),
        revision: Revision(0),
        expires: None,
        tags: Vec::new(),
        body: Body::Directory(DirId::ROOT),
    }
}

/// Returns the records of a new store (clause N1), of revision 0.
#[allow(clippy::expect_used, reason = "the constant is a valid account name")]
pub fn new_records() -> [Record; 2] {
    let admin = AccountName::parse("admin").expect("admin is a valid name");
    let user = User {
        id: UserId::ADMIN,
        name: admin.clone(),
        group: GroupId::ADMIN,
        groups: Vec::new(),
        roles: vec![Role::Admin],
        may_become: Vec::new(),
        subjects: Vec::new(),
        home: None,
        disabled: false,
    };
    [Record::User(user), Record::Group(Group { id: GroupId::ADMIN, name: admin })]
}

/// Upper end of a chain of directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Top {
    /// At the root: the directory is alive.
    Root,
    /// At this item of the trash.
    Trash(TrashId),
    /// There is no such directory.
    Nowhere,
}

/// Reads that deciding needs.
pub trait View {
    /// Returns the number of the next directory.
    fn next_directory(&self) -> u64;

    /// Finds an entry by identity, wherever it is; with its trash id if it is an item of the trash
    /// itself.
    fn find(&self, id: EntryId) -> Option<(Entry, Option<TrashId>)>;

    /// Returns the entry at a place, in the tree or below an item of the trash.
    fn at(&self, at: &At) -> Option<Entry>;

    /// Says whether the directory has no children.
    fn is_empty(&self, directory: DirId) -> bool;

    /// Returns an item of the trash.
    fn trashed(&self, trash: TrashId) -> Option<Trashed>;

    /// Says whether a GUID is a member of the collection.
    fn is_member(&self, collection: Guid, guid: Guid) -> bool;

    /// Returns the upload reservation of this GUID.
    fn reservation(&self, guid: Guid) -> Option<Reservation>;

    /// Returns the number of upload reservations of a user.
    fn reservations_of(&self, user: UserId) -> usize;

    /// Returns a record, and the change that last set it.
    fn record(&self, key: RecordKey) -> Option<(Record, Revision)>;

    /// Returns the key of the record with this kind and name.
    fn record_named(&self, kind: RecordKind, name: &str) -> Option<RecordKey>;

    /// Says whether any user is in the group.
    fn has_users(&self, group: GroupId) -> bool;

    /// Returns usage and reservations that count towards a quota.
    fn counted(&self, of: QuotaOf) -> Usage;

    /// Returns a deletion in the queue of a storage element.
    fn deletion(&self, se: SeNumber, id: DeletionId) -> Option<Deletion>;

    /// Returns why a storage element is in use, if it is: replicas of any state, deletions, upload
    /// reservations, in this order.
    fn se_holds(&self, se: SeNumber) -> Option<&'static str>;

    /// Returns this directory and those above it, nearest first, and their upper end. If that is an
    /// item of the trash, its entry comes last.
    fn way_up(&self, directory: DirId) -> (Vec<Entry>, Top) {
        let mut way = Vec::new();
        let mut directory = directory;
        loop {
            let Some((entry, trash)) = self.find(EntryId::Directory(directory)) else {
                return (way, Top::Nowhere);
            };
            let parent = entry.at.parent;
            way.push(entry);
            if directory == DirId::ROOT {
                return (way, Top::Root);
            }
            if let Some(trash) = trash {
                return (way, Top::Trash(trash));
            }
            directory = parent;
        }
    }

    /// Says whether the chain of parents ends at the root.
    fn alive(&self, directory: DirId) -> bool {
        self.way_up(directory).1 == Top::Root
    }

    /// Returns the PFN of a copy of this file.
    fn pfn(&self, se: SeNumber, guid: Guid, location: &Location) -> String {
        let record = match self.record(RecordKey::Se(se)) {
            Some((Record::Se(record), _)) => Some(record),
            _ => None,
        };
        Replica { se, state: ReplicaState::Available, location: location.clone() }.pfn(guid, record.as_ref())
    }

    /// Says whether the file of this GUID has a replica that takes space there, or a reserved one.
    fn in_use(&self, se: SeNumber, guid: Guid, location: &Location) -> bool {
        let pfn = self.pfn(se, guid, location);
        let found = self.find(EntryId::Object(guid));
        let file = found.as_ref().and_then(|(entry, _)| entry.file());
        let replica = file.and_then(|file| file.replica(se)).filter(|replica| replica.takes_space());
        let reservation = self.reservation(guid);
        let pending = reservation
            .as_ref()
            .and_then(|reservation| reservation.pending.iter().find(|pending| pending.se == se));
        let locations = [replica.map(|one| &one.location), pending.map(|one| &one.location)];
        locations.into_iter().flatten().any(|other| self.pfn(se, guid, other) == pfn)
    }
}

/// A state to which changes can be applied. Each state maintains its own counters and indices.
pub trait State: View {
    /// Sets the number of the next directory.
    fn set_next_directory(&mut self, number: u64);

    /// Puts an entry at its place and replaces the one there.
    fn put_entry(&mut self, entry: Entry);

    /// Removes and returns the entry at a place; not the root.
    fn take_entry(&mut self, at: &At) -> Option<Entry>;

    /// Puts an item into the trash.
    fn put_trashed(&mut self, trash: TrashId, item: Trashed);

    /// Takes an item out of the trash.
    fn take_trashed(&mut self, trash: TrashId) -> Option<Trashed>;

    /// Gives a collection an empty set of members.
    fn begin_members(&mut self, collection: Guid);

    /// Drops the members of a collection.
    fn forget_members(&mut self, collection: Guid);

    /// Adds or removes a member.
    fn set_member(&mut self, collection: Guid, guid: Guid, is: bool);

    /// Puts an upload reservation and replaces the one of its GUID.
    fn put_reservation(&mut self, reservation: Reservation);

    /// Ends an upload reservation.
    fn drop_reservation(&mut self, guid: Guid);

    /// Sets a record, or drops it.
    fn put_record(&mut self, key: RecordKey, record: Option<Record>, revision: Revision);

    /// Returns the keys of a user's tokens.
    fn tokens_of(&self, user: UserId) -> Vec<RecordKey>;

    /// Puts a deletion on the queue of a storage element.
    fn put_deletion(&mut self, se: SeNumber, deletion: Deletion);

    /// Removes and returns a deletion.
    fn take_deletion(&mut self, se: SeNumber, id: DeletionId) -> Option<Deletion>;

    /// Returns the deletions of one physical copy.
    fn deletions_of(&self, se: SeNumber, pfn: &str) -> Vec<DeletionId>;

    /// Returns all deletions of a storage element.
    fn deletions_on(&self, se: SeNumber) -> Vec<Deletion>;
}
