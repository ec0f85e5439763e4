//! Changes: what applied mutations did, one per revision, with enough before and after to tell the history,
//! to follow it, and to undo it in thought.

use crate::account::{GroupId, Mode, UserId};
use crate::checksum::{Checksum, Checksums};
use crate::entry::{At, Entry, EntryId, Replica, Revision};
use crate::guid::Guid;
use crate::lfn::Lfn;
use crate::mutation::{Booking, DeletionId, OperationId, PurgeTarget, TrashId};
use crate::registry::{Record, RecordKey};
use crate::se::SeNumber;
use crate::tag::{TagKey, TagValue};
use crate::time::TimeMs;
use crate::{canonical_enum, canonical_struct};

/// One field of an entry, before and after.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "before and after say themselves")]
pub enum FieldChange {
    /// The owner.
    Owner { before: UserId, after: UserId },
    /// The group.
    Group { before: GroupId, after: GroupId },
    /// The permission bits.
    Mode { before: Mode, after: Mode },
    /// The time its content was made.
    Modified { before: TimeMs, after: TimeMs },
    /// The expiry.
    Expires { before: Option<TimeMs>, after: Option<TimeMs> },
    /// The job.
    Job { before: Option<u64>, after: Option<u64> },
    /// The size became known.
    Size { after: u64 },
    /// A checksum became known.
    Checksum { after: Checksum },
    /// A replica came, went or changed its state; `deletion` if the physical copy was to go to the deletion queue.
    Replica { before: Option<Replica>, after: Option<Replica>, deletion: Option<DeletionId> },
    /// A tag was set or taken away.
    Tag { key: TagKey, before: Option<TagValue>, after: Option<TagValue> },
    /// A file came into a collection or left it.
    Member { guid: Guid, added: bool },
}

canonical_enum!(FieldChange {
    1 => Owner { before, after },
    2 => Group { before, after },
    3 => Mode { before, after },
    4 => Modified { before, after },
    5 => Expires { before, after },
    6 => Job { before, after },
    7 => Size { after },
    8 => Checksum { after },
    9 => Replica { before, after, deletion },
    10 => Tag { key, before, after },
    11 => Member { guid, added },
});

/// What an applied mutation did. What it does to deletion queues follows from it: a copy that a file has now, or that
/// is booked, is taken off the queue; one that the file or booking of the GUID has still does not go there.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// An entry came to be.
    Created {
        /// As it is now.
        entry: Box<Entry>,
    },
    /// Fields of an entry changed.
    Updated {
        /// Where it stands.
        at: At,
        /// Which entry.
        id: EntryId,
        /// What changed; never empty.
        fields: Vec<FieldChange>,
    },
    /// An entry moved, with all that is below it.
    Moved {
        /// Which entry.
        id: EntryId,
        /// Where it stood.
        from: At,
        /// Where it stands.
        to: At,
    },
    /// An entry went to the trash, with all that is below it. The trash item's id is the revision.
    Removed {
        /// Which entry.
        id: EntryId,
        /// Where it stood.
        at: At,
        /// The path it had.
        lfn: Lfn,
    },
    /// An item came back from the trash.
    Restored {
        /// Which item.
        trash: TrashId,
        /// Which entry.
        id: EntryId,
        /// Where it stands.
        to: At,
    },
    /// An entry in the trash ended.
    Purged {
        /// Where in the trash it was.
        target: PurgeTarget,
        /// As it last was. Its replicas that take space went to the deletion queues, numbered in their order.
        entry: Box<Entry>,
    },
    /// An upload was booked.
    Booked {
        /// As booked.
        booking: Box<Booking>,
        /// The booking it replaced. What that had pending and this has not went to the deletion queues, numbered in the
        /// order it had there.
        before: Option<Box<Booking>>,
    },
    /// A booked replica became visible.
    Committed {
        /// The file's GUID.
        guid: Guid,
        /// Where it stands.
        at: At,
        /// The file, if this made it; otherwise it was there and got `replica`.
        created: Option<Box<Entry>>,
        /// The replica.
        replica: Replica,
        /// Checksums the file got with it; none if this made the file, for then they are in `created`.
        checksums: Checksums,
    },
    /// A booking, or one replica of it, was given up. Its pending replicas went to the deletion queues,
    /// numbered in their order.
    Released {
        /// The booking as it was.
        booking: Box<Booking>,
        /// Only this replica.
        se: Option<SeNumber>,
    },
    /// Deletions were done.
    Dequeued {
        /// On this SE.
        se: SeNumber,
        /// These.
        done: Vec<DeletionId>,
    },
    /// A record of the registry changed.
    Recorded {
        /// Which.
        key: RecordKey,
        /// As it was.
        before: Option<Box<Record>>,
        /// As it is.
        after: Option<Box<Record>>,
    },
}

canonical_enum!(Effect {
    1 => Created { entry },
    2 => Updated { at, id, fields },
    3 => Moved { id, from, to },
    4 => Removed { id, at, lfn },
    5 => Restored { trash, id, to },
    6 => Purged { target, entry },
    7 => Booked { booking, before },
    8 => Committed { guid, at, created, replica, checksums },
    9 => Released { booking, se },
    10 => Dequeued { se, done },
    11 => Recorded { key, before, after },
});

impl Effect {
    /// Its name in listings of changes.
    pub fn name(&self) -> &'static str {
        match self {
            Effect::Created { .. } => "created",
            Effect::Updated { .. } => "updated",
            Effect::Moved { .. } => "moved",
            Effect::Removed { .. } => "removed",
            Effect::Restored { .. } => "restored",
            Effect::Purged { .. } => "purged",
            Effect::Booked { .. } => "booked",
            Effect::Committed { .. } => "committed",
            Effect::Released { .. } => "released",
            Effect::Dequeued { .. } => "dequeued",
            Effect::Recorded { .. } => "recorded",
        }
    }

    /// The entry it touched, if it touched one.
    pub fn entry_id(&self) -> Option<EntryId> {
        match self {
            Effect::Created { entry } | Effect::Purged { entry, .. } => Some(entry.id()),
            Effect::Updated { id, .. }
            | Effect::Moved { id, .. }
            | Effect::Removed { id, .. }
            | Effect::Restored { id, .. } => Some(*id),
            Effect::Committed { guid, .. } => Some(EntryId::Object(*guid)),
            Effect::Booked { booking, .. } | Effect::Released { booking, .. } => {
                Some(EntryId::Object(booking.guid))
            }
            Effect::Dequeued { .. } | Effect::Recorded { .. } => None,
        }
    }

    /// Where the entry stands after it (before it, if it is gone), if it touched one.
    pub fn at(&self) -> Option<&At> {
        match self {
            Effect::Created { entry } => Some(&entry.at),
            Effect::Updated { at, .. } | Effect::Removed { at, .. } | Effect::Committed { at, .. } => {
                Some(at)
            }
            Effect::Moved { to, .. } | Effect::Restored { to, .. } => Some(to),
            Effect::Purged { .. }
            | Effect::Booked { .. }
            | Effect::Released { .. }
            | Effect::Dequeued { .. }
            | Effect::Recorded { .. } => None,
        }
    }
}

/// One item of the history.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Its position.
    pub revision: Revision,
    /// When it was committed; never less than the one before.
    pub time: TimeMs,
    /// Who asked for it.
    pub who: UserId,
    /// The request it was part of.
    pub operation: OperationId,
    /// Which mutation of the request.
    pub index: u32,
    /// What it did.
    pub effect: Effect,
}

canonical_struct!(Change { revision, time, who, operation, index, effect });

/// An entry in the trash.
#[derive(Clone, Debug, PartialEq)]
pub struct TrashItem {
    /// Which item.
    pub id: TrashId,
    /// The path it had.
    pub lfn: Lfn,
    /// The entry; `at` is where it stood.
    pub entry: Entry,
    /// Who removed it.
    pub removed_by: UserId,
    /// When.
    pub removed: TimeMs,
    /// What it counts, with all that is below it.
    pub usage: crate::entry::Usage,
}

canonical_struct!(TrashItem { id, lfn, entry, removed_by, removed, usage });

/// A physical copy that an SE is to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Which item of the queue.
    pub id: DeletionId,
    /// The file it was a copy of.
    pub guid: Guid,
    /// Bytes, if known.
    pub size: Option<u64>,
    /// Where it is: derived or explicit.
    pub location: crate::entry::Location,
    /// Since when.
    pub queued: TimeMs,
}

canonical_struct!(Deletion { id, guid, size, location, queued });
