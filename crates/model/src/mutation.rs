//! Mutations: the closed set of requests to a store.
//!
//! The store's contract (`exacat_store::contract`) has one table of what each requires, does and
//! refuses. A mutation names its target by directory number and name, never by path: the catalogue
//! alone resolves paths.

use crate::account::{GroupId, Mode, UserId};
use crate::checksum::{Checksum, Checksums};
use crate::entry::{At, EntryId, Location, Replica, ReplicaState, Revision};
use crate::guid::Guid;
use crate::lfn::Lfn;
use crate::registry::{Record, RecordKey};
use crate::se::SeNumber;
use crate::tag::{Tag, TagKey};
use crate::time::TimeMs;
use crate::{canonical_enum, canonical_newtype, canonical_struct};

/// Id of one changing request, chosen by the client. The same id sent again is the same request,
/// and gets the first answer.
///
/// The first six bytes are the time of its creation, as in a UUID of version 7; the others are
/// random. So a server knows which part of the history can contain it, and refuses an id that is
/// too old to know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub [u8; 16]);

/// Bytes of an operation id that hold the time of its creation.
const MADE_BYTES: usize = 6;

impl OperationId {
    /// Makes a new id of the time `now`.
    pub fn new(now: TimeMs, random: [u8; 10]) -> Self {
        let mut id = [0; 16];
        id[..MADE_BYTES].copy_from_slice(&now.0.to_be_bytes()[8 - MADE_BYTES..]);
        id[MADE_BYTES..].copy_from_slice(&random);
        OperationId(id)
    }

    /// Returns the time of its creation.
    pub fn made(self) -> TimeMs {
        let mut time = [0; 8];
        time[8 - MADE_BYTES..].copy_from_slice(&self.0[..MADE_BYTES]);
        TimeMs(u64::from_be_bytes(time))
    }

    /// Derives an id: the same time, with the first of `bytes` in place of the random ones.
    pub fn derived(self, bytes: [u8; 10]) -> Self {
        let mut id = self.0;
        id[MADE_BYTES..].copy_from_slice(&bytes);
        OperationId(id)
    }
}

/// Hash of the user and the operation's canonical bytes. Distinguishes a repeated request from
/// another one under its id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u64);

canonical_newtype!(Fingerprint);

impl Fingerprint {
    /// An unknown fingerprint; differs from no other.
    pub const UNKNOWN: Fingerprint = Fingerprint(0);

    /// Makes a fingerprint of this hash, never the value for "unknown".
    pub fn of_hash(hash: u64) -> Self {
        Fingerprint(hash.max(1))
    }

    /// Says whether both are known, and not the same.
    pub fn differs(self, other: Fingerprint) -> bool {
        self != other && self != Self::UNKNOWN && other != Self::UNKNOWN
    }
}

canonical_newtype!(OperationId);

impl std::fmt::Debug for OperationId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Id of a trash item: the revision of the change that removed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrashId(pub Revision);

/// Id of an item of a deletion queue: its change, and its index in that change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeletionId {
    /// The change.
    pub revision: Revision,
    /// Index among the deletions of the change.
    pub index: u32,
}

canonical_newtype!(TrashId);
canonical_struct!(DeletionId { revision, index });

/// Condition on the entry at a place for a mutation to apply. Guards against acting on an entry
/// that replaced the one that the caller read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// Requires this entry, in any version.
    pub id: Option<EntryId>,
    /// Requires this version.
    pub revision: Option<Revision>,
}

canonical_struct!(Expect { id, revision });

impl Expect {
    /// Accepts any entry.
    pub const ANY: Expect = Expect { id: None, revision: None };

    /// Requires this entry, in any version.
    pub fn entry(id: EntryId) -> Self {
        Expect { id: Some(id), revision: None }
    }

    /// Requires this version.
    pub fn version(revision: Revision) -> Self {
        Expect { id: None, revision: Some(revision) }
    }
}

/// Condition on a record for a mutation of it to apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectRecord {
    /// Any record, or none.
    Any,
    /// No record exists.
    Absent,
    /// The last change of the record is this.
    Version(Revision),
}

canonical_enum!(ExpectRecord { 0 => Any, 1 => Absent, 2 => Version(revision) });

/// Content by kind of a new entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewBody {
    /// A directory; the store assigns its number.
    Directory,
    /// A file.
    File(crate::entry::File),
    /// A collection, without members yet.
    Collection {
        /// Its identity.
        guid: Guid,
    },
    /// A link.
    Link {
        /// Its identity.
        guid: Guid,
        /// Target path.
        target: Lfn,
    },
}

canonical_enum!(NewBody {
    1 => Directory,
    2 => File(file),
    3 => Collection { guid },
    4 => Link { guid, target },
});

/// An entry to create.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEntry {
    /// Place of the entry.
    pub at: At,
    /// Its owner.
    pub owner: UserId,
    /// Its group.
    pub group: GroupId,
    /// Its mode.
    pub mode: Mode,
    /// Time it was first added to a catalogue; none for the time of the commit.
    pub created: Option<TimeMs>,
    /// Time its content was made; none for the time of the commit.
    pub modified: Option<TimeMs>,
    /// Time from which the catalogue removes it to the trash.
    pub expires: Option<TimeMs>,
    /// Its tags, sorted by key, one per key.
    pub tags: Vec<Tag>,
    /// Content by kind.
    pub body: NewBody,
}

canonical_struct!(NewEntry { at, owner, group, mode, created, modified, expires, tags, body });

/// A change to one field of an entry. An edit whose result holds already changes nothing and is not
/// an error.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// Changes the owner; usage moves along.
    Owner(UserId),
    /// Changes the group; usage moves along.
    Group(GroupId),
    /// Sets the permission bits.
    Mode(Mode),
    /// Sets the time its content was made.
    Modified(TimeMs),
    /// Sets or removes its expiry.
    Expires(Option<TimeMs>),
    /// Sets or removes the job that made it.
    Job(Option<u64>),
    /// Sets an unknown size. Content is immutable: refused if another size is known.
    Size(u64),
    /// Adds a checksum. Refused if another one of the algorithm is known.
    Checksum(Checksum),
    /// Adds a replica, or sets its state. Refused if the SE holds one at another place.
    PutReplica(Replica),
    /// Removes a replica.
    DropReplica {
        /// The SE it is on.
        se: SeNumber,
        /// Also puts the physical copy on the SE's deletion queue.
        delete: bool,
    },
    /// Sets the state of a replica.
    ReplicaState {
        /// The SE it is on.
        se: SeNumber,
        /// The state.
        state: ReplicaState,
    },
    /// Sets a tag and replaces its value.
    SetTag(Tag),
    /// Removes a tag.
    UnsetTag(TagKey),
    /// Adds a file to a collection.
    AddMember(Guid),
    /// Removes a file from a collection.
    RemoveMember(Guid),
}

canonical_enum!(Edit {
    1 => Owner(owner),
    2 => Group(group),
    3 => Mode(mode),
    4 => Modified(time),
    5 => Expires(time),
    6 => Job(job),
    7 => Size(size),
    8 => Checksum(checksum),
    9 => PutReplica(replica),
    10 => DropReplica { se, delete },
    11 => ReplicaState { se, state },
    12 => SetTag(tag),
    13 => UnsetTag(key),
    14 => AddMember(guid),
    15 => RemoveMember(guid),
});

/// A replica of an upload reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedReplica {
    /// The storage element.
    pub se: SeNumber,
    /// Location on the storage element: derived or explicit.
    pub location: Location,
}

canonical_struct!(ReservedReplica { se, location });

/// An upload reservation: an upload in flight. Its GUID identifies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The GUID the file has or will have.
    pub guid: Guid,
    /// Path of the file. Its parents may be missing until the commit.
    pub lfn: Lfn,
    /// User whose quota it is reserved from, and who may commit.
    pub owner: UserId,
    /// The group the file will have.
    pub group: GroupId,
    /// The mode the file will have.
    pub mode: Mode,
    /// Bytes to be written.
    pub size: u64,
    /// Checksums the content will have.
    pub checksums: Checksums,
    /// The grid job.
    pub job: Option<u64>,
    /// Time it was made.
    pub created: TimeMs,
    /// Time from which the catalogue releases it.
    pub expires: TimeMs,
    /// Replicas not committed yet, by storage element.
    pub pending: Vec<ReservedReplica>,
    /// True if the file exists already: the reservation is for further replicas only.
    pub exists: bool,
}

canonical_struct!(Reservation {
    guid,
    lfn,
    owner,
    group,
    mode,
    size,
    checksums,
    job,
    created,
    expires,
    pending,
    exists
});

impl Reservation {
    /// Returns the part of the owner's and the group's quota that it holds.
    pub fn reserved(&self) -> crate::entry::Usage {
        let replicas = self.pending.len() as u64;
        crate::entry::Usage {
            files: u64::from(!self.exists),
            bytes: if self.exists { 0 } else { u128::from(self.size) },
            replicas,
            replica_bytes: u128::from(self.size) * u128::from(replicas),
            ..Default::default()
        }
    }
}

/// Entry to purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgeTarget {
    /// An item of the trash: not a directory, or a directory that is empty by now.
    Item(TrashId),
    /// An entry below a directory in the trash: not a directory, or empty.
    Below {
        /// Place of the entry.
        at: At,
        /// Condition on the entry.
        expect: Expect,
    },
}

canonical_enum!(PurgeTarget { 1 => Item(trash), 2 => Below { at, expect } });

/// The closed set of mutations.
#[derive(Clone, Debug, PartialEq)]
pub enum Mutation {
    /// Creates an entry.
    Create(Box<NewEntry>),
    /// Changes an entry: all edits or none.
    Update {
        /// Place of the entry.
        at: At,
        /// Condition on the entry at that place.
        expect: Expect,
        /// The edits.
        edits: Vec<Edit>,
    },
    /// Moves or renames an entry, with everything below it.
    Move {
        /// Place of the entry.
        from: At,
        /// Condition on the entry at that place.
        expect: Expect,
        /// Destination; the name must be free.
        to: At,
    },
    /// Moves an entry to the trash, with everything below it.
    Remove {
        /// Place of the entry.
        at: At,
        /// Condition on the entry at that place.
        expect: Expect,
        /// Refuses a directory that is not empty.
        only_empty: bool,
        /// Path to show in the trash.
        lfn: Lfn,
    },
    /// Restores an item of the trash.
    Restore {
        /// Item of the trash.
        trash: TrashId,
        /// Destination; the name must be free.
        to: At,
    },
    /// Purges an item of the trash, or an entry below one. Its physical copies go to the deletion
    /// queues of their SEs.
    Purge(PurgeTarget),
    /// Makes an upload reservation and reserves quota. Replaces the owner's reservation of the same
    /// GUID.
    Reserve(Box<Reservation>),
    /// Makes a reserved replica visible, and with the first one the file.
    Commit {
        /// GUID of the upload reservation.
        guid: Guid,
        /// The replica's SE.
        se: SeNumber,
        /// Place of the file.
        at: At,
        /// Bytes written; must equal those reserved.
        size: u64,
        /// Checksums of the written content; must not contradict the reserved ones.
        checksums: Checksums,
    },
    /// Ends an upload reservation or one replica of it. Copies that may have been written go to the
    /// deletion queue.
    Release {
        /// GUID of the upload reservation.
        guid: Guid,
        /// Releases only the replica on this SE.
        se: Option<SeNumber>,
        /// Only if it has expired by the time of the commit.
        only_expired: bool,
    },
    /// Removes completed deletions from an SE's queue.
    Dequeue {
        /// The SE.
        se: SeNumber,
        /// The completed deletions.
        done: Vec<DeletionId>,
    },
    /// Sets a record of the registry.
    SetRecord {
        /// The record.
        record: Box<Record>,
        /// Condition on the record.
        expect: ExpectRecord,
    },
    /// Drops a record of the registry.
    DropRecord {
        /// Key of the record.
        key: RecordKey,
        /// Condition on the record.
        expect: ExpectRecord,
    },
    /// Restores an entry below a directory in the trash, with everything below it. Its change is
    /// that of a move.
    RestoreBelow {
        /// Place of the entry.
        from: At,
        /// Condition on the entry at that place.
        expect: Expect,
        /// Destination; the name must be free.
        to: At,
    },
}

canonical_enum!(Mutation {
    1 => Create(new),
    2 => Update { at, expect, edits },
    3 => Move { from, expect, to },
    4 => Remove { at, expect, only_empty, lfn },
    5 => Restore { trash, to },
    6 => Purge(target),
    7 => Reserve(reservation),
    8 => Commit { guid, se, at, size, checksums },
    9 => Release { guid, se, only_expired },
    10 => Dequeue { se, done },
    11 => SetRecord { record, expect },
    12 => DropRecord { key, expect },
    13 => RestoreBelow { from, expect, to },
});

impl Mutation {
    /// Returns the name in metrics, logs and the table of the contract.
    pub fn name(&self) -> &'static str {
        match self {
            Mutation::Create(_) => "create",
            Mutation::Update { .. } => "update",
            Mutation::Move { .. } => "move",
            Mutation::Remove { .. } => "remove",
            Mutation::Restore { .. } => "restore",
            Mutation::Purge(_) => "purge",
            Mutation::Reserve(_) => "reserve",
            Mutation::Commit { .. } => "commit",
            Mutation::Release { .. } => "release",
            Mutation::Dequeue { .. } => "dequeue",
            Mutation::SetRecord { .. } => "set-record",
            Mutation::DropRecord { .. } => "drop-record",
            Mutation::RestoreBelow { .. } => "restore-below",
        }
    }
}
