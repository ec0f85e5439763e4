//! Mutations: the closed set of things that can be asked of a store.
//!
//! What each requires, does and refuses stands in one table, in the store's contract
//! (`exacat_store::contract`). A mutation names its target by directory number and name, never by path:
//! paths are the catalogue's matter.

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

/// Names one request to change something, chosen by the client: the same id sent again is the same
/// request, and gets the first answer.
///
/// The first six bytes are the time of its making, as in a UUID of version 7; the others are
/// random. So a server knows which part of the history can have it, and refuses an id that is too
/// old to be known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(pub [u8; 16]);

/// Bytes of an operation id that hold the time of its making.
const MADE_BYTES: usize = 6;

impl OperationId {
    /// A new id, made now.
    pub fn new(now: TimeMs, random: [u8; 10]) -> Self {
        let mut id = [0; 16];
        id[..MADE_BYTES].copy_from_slice(&now.0.to_be_bytes()[8 - MADE_BYTES..]);
        id[MADE_BYTES..].copy_from_slice(&random);
        OperationId(id)
    }

    /// The time of its making.
    pub fn made(self) -> TimeMs {
        let mut time = [0; 8];
        time[8 - MADE_BYTES..].copy_from_slice(&self.0[..MADE_BYTES]);
        TimeMs(u64::from_be_bytes(time))
    }

    /// An id derived from this one: made at the same time, with the first of these bytes in place of
    /// the random ones.
    pub fn derived(self, bytes: [u8; 10]) -> Self {
        let mut id = self.0;
        id[MADE_BYTES..].copy_from_slice(&bytes);
        OperationId(id)
    }
}

/// Hash of who asks and of the operation's canonical bytes: tells a repeated request from another
/// one under its id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u64);

canonical_newtype!(Fingerprint);

impl Fingerprint {
    /// None is known: it differs from no other.
    pub const UNKNOWN: Fingerprint = Fingerprint(0);

    /// Fingerprint of this hash, never the value that stands for "unknown".
    pub fn of_hash(hash: u64) -> Self {
        Fingerprint(hash.max(1))
    }

    /// Are both known, and not the same?
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

/// One item of the trash: the revision of the change that removed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrashId(pub Revision);

/// One item of a deletion queue: the change that put it there, and its place in that change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeletionId {
    /// The change.
    pub revision: Revision,
    /// Counts the deletions of one change.
    pub index: u32,
}

canonical_newtype!(TrashId);
canonical_struct!(DeletionId { revision, index });

/// What must be at a place for a mutation to go ahead. Guards against acting on something that took the
/// place of what was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    /// This entry, whatever changed in it.
    pub id: Option<EntryId>,
    /// This version.
    pub revision: Option<Revision>,
}

canonical_struct!(Expect { id, revision });

impl Expect {
    /// Whatever is there.
    pub const ANY: Expect = Expect { id: None, revision: None };

    /// This entry, whatever changed in it.
    pub fn entry(id: EntryId) -> Self {
        Expect { id: Some(id), revision: None }
    }

    /// This version.
    pub fn version(revision: Revision) -> Self {
        Expect { id: None, revision: Some(revision) }
    }
}

/// What a record must be like for a mutation of it to go ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectRecord {
    /// Whatever it is, or none.
    Any,
    /// There must be none.
    Absent,
    /// Its last change must be this.
    Version(Revision),
}

canonical_enum!(ExpectRecord { 0 => Any, 1 => Absent, 2 => Version(revision) });

/// What differs by kind in an entry to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewBody {
    /// A directory; the store gives it its number.
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
        /// The path it stands for.
        target: Lfn,
    },
}

canonical_enum!(NewBody {
    1 => Directory,
    2 => File(file),
    3 => Collection { guid },
    4 => Link { guid, target },
});

/// An entry to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEntry {
    /// Where.
    pub at: At,
    /// Its owner.
    pub owner: UserId,
    /// Its group.
    pub group: GroupId,
    /// Its mode.
    pub mode: Mode,
    /// When it came into the catalogue, if it was in one before; otherwise the time of the commit.
    pub created: Option<TimeMs>,
    /// When its content was made; otherwise the time of the commit.
    pub modified: Option<TimeMs>,
    /// It goes to the trash by itself from then on.
    pub expires: Option<TimeMs>,
    /// Its tags, sorted by key, one per key.
    pub tags: Vec<Tag>,
    /// What differs by kind.
    pub body: NewBody,
}

canonical_struct!(NewEntry { at, owner, group, mode, created, modified, expires, tags, body });

/// One thing to change in an entry. An edit that finds what it asks for already so changes nothing and is
/// not an error.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit {
    /// Give it to another owner; usage moves along.
    Owner(UserId),
    /// Give it to another group; usage moves along.
    Group(GroupId),
    /// Set the permission bits.
    Mode(Mode),
    /// Set the time its content was made.
    Modified(TimeMs),
    /// Set or drop its expiry.
    Expires(Option<TimeMs>),
    /// Set or drop the job that made it.
    Job(Option<u64>),
    /// Make its size known. Content is immutable: refused if another is known.
    Size(u64),
    /// Make a checksum known. Refused if another of the algorithm is known.
    Checksum(Checksum),
    /// Add a replica. Refused if the SE holds one at another place; a state that differs is set.
    PutReplica(Replica),
    /// Take a replica away.
    DropReplica {
        /// The SE it is on.
        se: SeNumber,
        /// Put the physical copy on the SE's deletion queue.
        delete: bool,
    },
    /// Say what is known of a replica.
    ReplicaState {
        /// The SE it is on.
        se: SeNumber,
        /// What is known.
        state: ReplicaState,
    },
    /// Set a tag, whatever value it had.
    SetTag(Tag),
    /// Take a tag away.
    UnsetTag(TagKey),
    /// Add a file to a collection.
    AddMember(Guid),
    /// Take a file out of a collection.
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

/// One replica an upload is to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookedReplica {
    /// The storage element.
    pub se: SeNumber,
    /// Where on it: derived or explicit.
    pub location: Location,
}

canonical_struct!(BookedReplica { se, location });

/// An upload in flight. Its GUID is its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booking {
    /// The GUID the file has or will have.
    pub guid: Guid,
    /// Where the file will stand. Parents may be missing until the commit.
    pub lfn: Lfn,
    /// Whose quota it is reserved from, and who may commit.
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
    /// When it was booked.
    pub created: TimeMs,
    /// It is released from then on.
    pub expires: TimeMs,
    /// Replicas not committed yet, by storage element.
    pub pending: Vec<BookedReplica>,
    /// The file exists already: this booking is for further replicas only.
    pub exists: bool,
}

canonical_struct!(Booking {
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

impl Booking {
    /// What it reserves from the owner's and the group's quota.
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

/// What is to be ended for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurgeTarget {
    /// An item of the trash: not a directory, or a directory that is empty by now.
    Item(TrashId),
    /// An entry below a directory in the trash: not a directory, or empty.
    Below {
        /// Where it stands.
        at: At,
        /// Which entry it must be.
        expect: Expect,
    },
}

canonical_enum!(PurgeTarget { 1 => Item(trash), 2 => Below { at, expect } });

/// The closed set of mutations.
#[derive(Clone, Debug, PartialEq)]
pub enum Mutation {
    /// Make an entry.
    Create(Box<NewEntry>),
    /// Change an entry: all edits or none.
    Update {
        /// Where it stands.
        at: At,
        /// What must be there.
        expect: Expect,
        /// What to change.
        edits: Vec<Edit>,
    },
    /// Move or rename an entry, with all that is below it.
    Move {
        /// Where it stands.
        from: At,
        /// What must be there.
        expect: Expect,
        /// Where it shall stand; the name must be free.
        to: At,
    },
    /// Move an entry to the trash, with all that is below it.
    Remove {
        /// Where it stands.
        at: At,
        /// What must be there.
        expect: Expect,
        /// Refuse a directory that is not empty.
        only_empty: bool,
        /// The path, to show in the trash.
        lfn: Lfn,
    },
    /// Bring an item of the trash back.
    Restore {
        /// Which.
        trash: TrashId,
        /// To where; the name must be free.
        to: At,
    },
    /// End an item of the trash, or an entry below one, for good: its physical copies go to the deletion
    /// queues of their SEs.
    Purge(PurgeTarget),
    /// Book an upload: reserve quota. The owner's booking of the same GUID is replaced.
    Book(Box<Booking>),
    /// Make a booked replica, and with the first one the file, visible.
    Commit {
        /// The booking.
        guid: Guid,
        /// The replica's SE.
        se: SeNumber,
        /// Where the file shall stand, or stands.
        at: At,
        /// Bytes written: must be what was booked.
        size: u64,
        /// Checksums of what was written: must not contradict what was booked.
        checksums: Checksums,
    },
    /// End a booking or one replica of it; what may have been written goes to the deletion queue.
    Release {
        /// The booking.
        guid: Guid,
        /// Only this replica.
        se: Option<SeNumber>,
        /// Only if it has expired by the time of the commit.
        only_expired: bool,
    },
    /// Take done deletions off an SE's queue.
    Dequeue {
        /// The SE.
        se: SeNumber,
        /// Which deletions were done.
        done: Vec<DeletionId>,
    },
    /// Set a record of the registry.
    SetRecord {
        /// The record.
        record: Box<Record>,
        /// What it must be like now.
        expect: ExpectRecord,
    },
    /// Drop a record of the registry.
    DropRecord {
        /// Which.
        key: RecordKey,
        /// What it must be like now.
        expect: ExpectRecord,
    },
    /// Bring an entry below a directory in the trash back, with all that is below it. Its change is
    /// that of a move.
    RestoreBelow {
        /// Where it stands.
        from: At,
        /// What must be there.
        expect: Expect,
        /// To where; the name must be free.
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
    7 => Book(booking),
    8 => Commit { guid, se, at, size, checksums },
    9 => Release { guid, se, only_expired },
    10 => Dequeue { se, done },
    11 => SetRecord { record, expect },
    12 => DropRecord { key, expect },
    13 => RestoreBelow { from, expect, to },
});

impl Mutation {
    /// Its name in metrics, logs and the table of the contract.
    pub fn name(&self) -> &'static str {
        match self {
            Mutation::Create(_) => "create",
            Mutation::Update { .. } => "update",
            Mutation::Move { .. } => "move",
            Mutation::Remove { .. } => "remove",
            Mutation::Restore { .. } => "restore",
            Mutation::Purge(_) => "purge",
            Mutation::Book(_) => "book",
            Mutation::Commit { .. } => "commit",
            Mutation::Release { .. } => "release",
            Mutation::Dequeue { .. } => "dequeue",
            Mutation::SetRecord { .. } => "set-record",
            Mutation::DropRecord { .. } => "drop-record",
            Mutation::RestoreBelow { .. } => "restore-below",
        }
    }
}
