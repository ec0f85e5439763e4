//! The rules of the contract's table, over any state: what comes of a mutation, and what a change does.
//!
//! [`decide`] is a pure function of a state, seen through [`View`], to an effect; [`perform`] does what a change says to a
//! [`State`]. The memory store has its state in maps and scans them. A store that has its state elsewhere gives what is asked
//! for as it has it; if it has to fetch something first, it takes note, answers anything, throws the result away and asks again
//! when it has it: for nothing here does anything but ask.

mod decide;
mod edits;
mod effects;
mod judged;
mod paths;

use exacat_model::{
    AccountName, At, Body, Booking, Deletion, DeletionId, DirId, Entry, EntryId, Group, GroupId, Guid, Lfn,
    Location, Mode, Name, QuotaOf, Record, RecordKey, RecordKind, Replica, ReplicaState, Revision, Role,
    SeNumber, TimeMs, TrashId, Usage, User, UserId, canonical_struct,
};

use crate::Refusal;

pub use decide::decide;
pub use effects::perform;
pub use judged::{changes_credentials, judged_the_same, places};
pub use paths::{locate, walk};

/// An effect; none if all is so already; or why not.
pub type Decided = Result<Option<exacat_model::Effect>, Refusal>;

/// An item of the trash; what it counts is computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Trashed {
    /// The path it had.
    pub lfn: Lfn,
    /// The entry; `at` is where it stood.
    pub entry: Entry,
    /// Who removed it.
    pub removed_by: UserId,
    /// When.
    pub removed: TimeMs,
}

canonical_struct!(Trashed { lfn, entry, removed_by, removed });

/// The root of a new store (clause N1).
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

/// The records of a new store (clause N1), of revision 0.
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

/// Where the way up from a directory ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Top {
    /// At the root: the directory is alive.
    Root,
    /// At this item of the trash.
    Trash(TrashId),
    /// There is no such directory.
    Nowhere,
}

/// What deciding asks of a state.
pub trait View {
    /// What the next directory gets.
    fn next_directory(&self) -> u64;

    /// The entry of this identity, wherever it is; with the item of the trash that it is, if it is one itself.
    fn find(&self, id: EntryId) -> Option<(Entry, Option<TrashId>)>;

    /// What stands there, in the tree or below an item of the trash.
    fn at(&self, at: &At) -> Option<Entry>;

    /// Has the directory no children?
    fn is_empty(&self, directory: DirId) -> bool;

    /// An item of the trash.
    fn trashed(&self, trash: TrashId) -> Option<Trashed>;

    /// Is it a member of the collection?
    fn is_member(&self, collection: Guid, guid: Guid) -> bool;

    /// The booking of this GUID.
    fn booking(&self, guid: Guid) -> Option<Booking>;

    /// How many bookings a user has.
    fn bookings_of(&self, user: UserId) -> usize;

    /// A record, and the change that last set it.
    fn record(&self, key: RecordKey) -> Option<(Record, Revision)>;

    /// The record of this kind that has this name.
    fn record_named(&self, kind: RecordKind, name: &str) -> Option<RecordKey>;

    /// Is a user in the group?
    fn has_users(&self, group: GroupId) -> bool;

    /// What counts towards a quota: usage and reservations.
    fn counted(&self, of: QuotaOf) -> Usage;

    /// A deletion in the queue of a storage element.
    fn deletion(&self, se: SeNumber, id: DeletionId) -> Option<Deletion>;

    /// Why a storage element is in use, if it is: replicas of any state, deletions, bookings, in this order.
    fn se_holds(&self, se: SeNumber) -> Option<&'static str>;

    /// This directory and those above it, nearest first, and where they lead. The entry that an item of the trash is
    /// comes last, if they lead there.
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

    /// Does the way up lead to the root?
    fn alive(&self, directory: DirId) -> bool {
        self.way_up(directory).1 == Top::Root
    }

    /// The PFN of a copy of this file.
    fn pfn(&self, se: SeNumber, guid: Guid, location: &Location) -> String {
        let record = match self.record(RecordKey::Se(se)) {
            Some((Record::Se(record), _)) => Some(record),
            _ => None,
        };
        Replica { se, state: ReplicaState::Available, location: location.clone() }.pfn(guid, record.as_ref())
    }

    /// Has the file of this GUID a replica that takes space there, or is one booked there?
    fn in_use(&self, se: SeNumber, guid: Guid, location: &Location) -> bool {
        let pfn = self.pfn(se, guid, location);
        let found = self.find(EntryId::Object(guid));
        let file = found.as_ref().and_then(|(entry, _)| entry.file());
        let replica = file.and_then(|file| file.replica(se)).filter(|replica| replica.takes_space());
        let booking = self.booking(guid);
        let pending =
            booking.as_ref().and_then(|booking| booking.pending.iter().find(|pending| pending.se == se));
        let locations = [replica.map(|one| &one.location), pending.map(|one| &one.location)];
        locations.into_iter().flatten().any(|other| self.pfn(se, guid, other) == pfn)
    }
}

/// A state that changes can be done to. What follows from the rest - counters, indices - is its own matter.
pub trait State: View {
    /// Sets what the next directory gets.
    fn set_next_directory(&mut self, number: u64);

    /// Puts an entry where it says, in place of what is there.
    fn put_entry(&mut self, entry: Entry);

    /// Takes away what stands there; not the root.
    fn take_entry(&mut self, at: &At) -> Option<Entry>;

    /// Puts an item into the trash.
    fn put_trashed(&mut self, trash: TrashId, item: Trashed);

    /// Takes an item out of the trash.
    fn take_trashed(&mut self, trash: TrashId) -> Option<Trashed>;

    /// Lets a collection have members, none yet.
    fn begin_members(&mut self, collection: Guid);

    /// Forgets a collection's members.
    fn forget_members(&mut self, collection: Guid);

    /// Makes it a member or not.
    fn set_member(&mut self, collection: Guid, guid: Guid, is: bool);

    /// Keeps a booking, in place of the one of its GUID.
    fn put_booking(&mut self, booking: Booking);

    /// Ends a booking.
    fn drop_booking(&mut self, guid: Guid);

    /// Sets a record, or drops it.
    fn put_record(&mut self, key: RecordKey, record: Option<Record>, revision: Revision);

    /// A user's tokens.
    fn tokens_of(&self, user: UserId) -> Vec<RecordKey>;

    /// Puts a deletion on the queue of a storage element.
    fn put_deletion(&mut self, se: SeNumber, deletion: Deletion);

    /// Takes a deletion off the queue.
    fn take_deletion(&mut self, se: SeNumber, id: DeletionId) -> Option<Deletion>;

    /// The deletions of one physical copy.
    fn deletions_of(&self, se: SeNumber, pfn: &str) -> Vec<DeletionId>;

    /// All deletions of a storage element.
    fn deletions_on(&self, se: SeNumber) -> Vec<Deletion>;
}
