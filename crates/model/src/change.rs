//! Changes: the effects of applied mutations, one per revision. Each has enough before and after to
//! show the history, to follow it, and to compute its inverse.

use crate::account::{GroupId, Mode, UserId};
use crate::checksum::{Checksum, Checksums};
use crate::codec::{Decode, DecodeError, Encode, Reader};
use crate::entry::{At, Entry, EntryId, Replica, Revision};
use crate::guid::Guid;
use crate::lfn::Lfn;
use crate::mutation::{DeletionId, OperationId, PurgeTarget, Reservation, TrashId};
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
    /// A replica was added, removed or changed its state; `deletion` if the physical copy went to
    /// the deletion queue.
    Replica { before: Option<Replica>, after: Option<Replica>, deletion: Option<DeletionId> },
    /// A tag was set or removed.
    Tag { key: TagKey, before: Option<TagValue>, after: Option<TagValue> },
    /// A file was added to a collection or removed from it.
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

/// Effect of an applied mutation.
///
/// A change of an existing entry names the entry's previous change (`previous`). So an entry's
/// history is a chain that readers follow backwards through the log. Changes of older logs do not
/// name it.
///
/// Its effect on deletion queues follows from it. A copy that now belongs to a file or an upload
/// reservation leaves the queue. A copy that the GUID's file or reservation still has does not
/// enter it.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// An entry was created.
    Created {
        /// The new entry.
        entry: Box<Entry>,
    },
    /// Fields of an entry changed.
    Updated {
        /// Place of the entry.
        at: At,
        /// Identity of the entry.
        id: EntryId,
        /// The changed fields; never empty.
        fields: Vec<FieldChange>,
        /// Entry's change before this one; none in logs of older releases.
        previous: Option<Revision>,
    },
    /// An entry moved, with everything below it.
    Moved {
        /// Identity of the entry.
        id: EntryId,
        /// Place before the move.
        from: At,
        /// Place after it.
        to: At,
        /// Entry's change before this one; none in logs of older releases.
        previous: Option<Revision>,
    },
    /// An entry moved to the trash, with everything below it. The trash item's id is the revision.
    Removed {
        /// Identity of the entry.
        id: EntryId,
        /// Place before the removal.
        at: At,
        /// The path it had.
        lfn: Lfn,
        /// Entry's change before this one; none in logs of older releases.
        previous: Option<Revision>,
    },
    /// An item was restored from the trash.
    Restored {
        /// Item of the trash.
        trash: TrashId,
        /// Identity of the entry.
        id: EntryId,
        /// Place after it.
        to: At,
        /// Entry's change before this one; none in logs of older releases.
        previous: Option<Revision>,
    },
    /// An entry in the trash was purged.
    Purged {
        /// Its place in the trash.
        target: PurgeTarget,
        /// The entry in its last state. Its replicas that take space went to the deletion queues,
        /// numbered in their order.
        entry: Box<Entry>,
    },
    /// An upload reservation was made.
    Reserved {
        /// The reservation as made.
        reservation: Box<Reservation>,
        /// The reservation that it replaced. Pending replicas that only the old one had went to the
        /// deletion queues, numbered in their old order.
        before: Option<Box<Reservation>>,
    },
    /// A reserved replica became visible.
    Committed {
        /// The file's GUID.
        guid: Guid,
        /// Place of the file.
        at: At,
        /// The file, if this change created it; otherwise the file existed and `replica` was added.
        created: Option<Box<Entry>>,
        /// The replica.
        replica: Replica,
        /// Checksums added to the file; none if this change created it, since `created` has them
        /// then.
        checksums: Checksums,
        /// File's change before this one; none if this change created it, and in logs of older
        /// releases.
        previous: Option<Revision>,
    },
    /// An upload reservation, or one replica of it, was released. Its pending replicas went to the
    /// deletion queues, numbered in their order.
    Released {
        /// The reservation before the release.
        reservation: Box<Reservation>,
        /// The only released replica; none if all were.
        se: Option<SeNumber>,
    },
    /// Deletions were completed.
    Dequeued {
        /// Storage element of the queue.
        se: SeNumber,
        /// The completed deletions.
        done: Vec<DeletionId>,
    },
    /// A record of the registry changed.
    Recorded {
        /// Key of the record.
        key: RecordKey,
        /// The record before; none if it is new.
        before: Option<Box<Record>>,
        /// The record after; none if it was dropped.
        after: Option<Box<Record>>,
    },
}

/// Offset of an effect's number when the entry's previous change follows its fields. Without the
/// offset the bytes are those of older releases, whose changes did not name it.
const LINKED: u8 = 20;

impl Effect {
    fn number(&self) -> u8 {
        let number = self.kind();
        if self.named_previous().is_some() { number + LINKED } else { number }
    }

    /// Returns the number of the kind, whether or not the previous change is named.
    fn kind(&self) -> u8 {
        match self {
            Effect::Created { .. } => 1,
            Effect::Updated { .. } => 2,
            Effect::Moved { .. } => 3,
            Effect::Removed { .. } => 4,
            Effect::Restored { .. } => 5,
            Effect::Purged { .. } => 6,
            Effect::Reserved { .. } => 7,
            Effect::Committed { .. } => 8,
            Effect::Released { .. } => 9,
            Effect::Dequeued { .. } => 10,
            Effect::Recorded { .. } => 11,
        }
    }

    /// Returns the previous change, if it follows the fields in the bytes.
    fn named_previous(&self) -> Option<Revision> {
        match self {
            Effect::Updated { previous, .. }
            | Effect::Moved { previous, .. }
            | Effect::Removed { previous, .. }
            | Effect::Restored { previous, .. }
            | Effect::Committed { previous, .. } => *previous,
            _ => None,
        }
    }
}

impl Encode for Effect {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.number());
        match self {
            Effect::Created { entry } => entry.encode(out),
            Effect::Updated { at, id, fields, .. } => {
                at.encode(out);
                id.encode(out);
                fields.encode(out);
            }
            Effect::Moved { id, from, to, .. } => {
                id.encode(out);
                from.encode(out);
                to.encode(out);
            }
            Effect::Removed { id, at, lfn, .. } => {
                id.encode(out);
                at.encode(out);
                lfn.encode(out);
            }
            Effect::Restored { trash, id, to, .. } => {
                trash.encode(out);
                id.encode(out);
                to.encode(out);
            }
            Effect::Purged { target, entry } => {
                target.encode(out);
                entry.encode(out);
            }
            Effect::Reserved { reservation, before } => {
                reservation.encode(out);
                before.encode(out);
            }
            Effect::Committed { guid, at, created, replica, checksums, .. } => {
                guid.encode(out);
                at.encode(out);
                created.encode(out);
                replica.encode(out);
                checksums.encode(out);
            }
            Effect::Released { reservation, se } => {
                reservation.encode(out);
                se.encode(out);
            }
            Effect::Dequeued { se, done } => {
                se.encode(out);
                done.encode(out);
            }
            Effect::Recorded { key, before, after } => {
                key.encode(out);
                before.encode(out);
                after.encode(out);
            }
        }
        if let Some(previous) = self.named_previous() {
            previous.encode(out);
        }
    }
}

impl Decode for Effect {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tag = reader.byte()?;
        let linked = tag > LINKED;
        let mut effect = match if linked { tag - LINKED } else { tag } {
            1 => Effect::Created { entry: Decode::decode(reader)? },
            2 => Effect::Updated {
                at: Decode::decode(reader)?,
                id: Decode::decode(reader)?,
                fields: Decode::decode(reader)?,
                previous: None,
            },
            3 => Effect::Moved {
                id: Decode::decode(reader)?,
                from: Decode::decode(reader)?,
                to: Decode::decode(reader)?,
                previous: None,
            },
            4 => Effect::Removed {
                id: Decode::decode(reader)?,
                at: Decode::decode(reader)?,
                lfn: Decode::decode(reader)?,
                previous: None,
            },
            5 => Effect::Restored {
                trash: Decode::decode(reader)?,
                id: Decode::decode(reader)?,
                to: Decode::decode(reader)?,
                previous: None,
            },
            6 => Effect::Purged { target: Decode::decode(reader)?, entry: Decode::decode(reader)? },
            7 => Effect::Reserved { reservation: Decode::decode(reader)?, before: Decode::decode(reader)? },
            8 => Effect::Committed {
                guid: Decode::decode(reader)?,
                at: Decode::decode(reader)?,
                created: Decode::decode(reader)?,
                replica: Decode::decode(reader)?,
                checksums: Decode::decode(reader)?,
                previous: None,
            },
            9 => Effect::Released { reservation: Decode::decode(reader)?, se: Decode::decode(reader)? },
            10 => Effect::Dequeued { se: Decode::decode(reader)?, done: Decode::decode(reader)? },
            11 => Effect::Recorded {
                key: Decode::decode(reader)?,
                before: Decode::decode(reader)?,
                after: Decode::decode(reader)?,
            },
            _ => return Err(reader.error("unknown variant of Effect")),
        };
        if linked {
            match &mut effect {
                Effect::Updated { previous, .. }
                | Effect::Moved { previous, .. }
                | Effect::Removed { previous, .. }
                | Effect::Restored { previous, .. }
                | Effect::Committed { previous, created: None, .. } => {
                    *previous = Some(Decode::decode(reader)?)
                }
                _ => return Err(reader.error("an effect that follows no other names a previous change")),
            }
        }
        Ok(effect)
    }
}

/// The previous change of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Previous {
    /// The entry was created by this change.
    None,
    /// This revision; 0 for an entry as the new catalogue had it.
    At(Revision),
    /// The change does not name it: it is from an older log, or not about an entry.
    Unknown,
}

impl Effect {
    /// All names, in the order of the numbers of the kinds.
    pub const NAMES: [&str; 11] = [
        "created",
        "updated",
        "moved",
        "removed",
        "restored",
        "purged",
        "reserved",
        "committed",
        "released",
        "dequeued",
        "recorded",
    ];

    /// Returns the name in listings of changes.
    pub fn name(&self) -> &'static str {
        Self::NAMES[usize::from(self.kind()) - 1]
    }

    /// Returns the entry's previous change.
    pub fn previous(&self) -> Previous {
        match self {
            Effect::Created { .. } | Effect::Committed { created: Some(_), .. } => Previous::None,
            // The entry in its last state has the revision of its last change.
            Effect::Purged { entry, .. } => Previous::At(entry.revision),
            _ => self.named_previous().map_or(Previous::Unknown, Previous::At),
        }
    }

    /// Returns the place that the entry left, if it left one.
    pub fn vacated(&self) -> Option<&At> {
        match self {
            Effect::Moved { from, .. } => Some(from),
            Effect::Removed { at, .. } => Some(at),
            Effect::Purged { target: PurgeTarget::Below { at, .. }, .. } => Some(at),
            _ => None,
        }
    }

    /// Returns the entry that changed; none for an upload reservation, which is not an entry yet.
    pub fn changed_entry(&self) -> Option<EntryId> {
        match self {
            Effect::Reserved { .. } | Effect::Released { .. } => None,
            _ => self.entry_id(),
        }
    }

    /// Returns the entry that the effect concerns, if any.
    pub fn entry_id(&self) -> Option<EntryId> {
        match self {
            Effect::Created { entry } | Effect::Purged { entry, .. } => Some(entry.id()),
            Effect::Updated { id, .. }
            | Effect::Moved { id, .. }
            | Effect::Removed { id, .. }
            | Effect::Restored { id, .. } => Some(*id),
            Effect::Committed { guid, .. } => Some(EntryId::Object(*guid)),
            Effect::Reserved { reservation, .. } | Effect::Released { reservation, .. } => {
                Some(EntryId::Object(reservation.guid))
            }
            Effect::Dequeued { .. } | Effect::Recorded { .. } => None,
        }
    }

    /// Returns the place of the entry after the effect, or before it if the entry is gone; none if
    /// it concerns no place.
    pub fn at(&self) -> Option<&At> {
        match self {
            Effect::Created { entry } => Some(&entry.at),
            Effect::Updated { at, .. } | Effect::Removed { at, .. } | Effect::Committed { at, .. } => {
                Some(at)
            }
            Effect::Moved { to, .. } | Effect::Restored { to, .. } => Some(to),
            Effect::Purged { .. }
            | Effect::Reserved { .. }
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
    /// Time of the commit; never less than that of the previous change.
    pub time: TimeMs,
    /// User that made it.
    pub who: UserId,
    /// Id of the request that it belongs to.
    pub operation: OperationId,
    /// Index of the mutation in the request.
    pub index: u32,
    /// Effect of the mutation.
    pub effect: Effect,
}

canonical_struct!(Change { revision, time, who, operation, index, effect });

/// An entry in the trash.
#[derive(Clone, Debug, PartialEq)]
pub struct TrashItem {
    /// Id of the item.
    pub id: TrashId,
    /// Path before the removal.
    pub lfn: Lfn,
    /// The entry; `at` is its place before the removal.
    pub entry: Entry,
    /// User that removed it.
    pub removed_by: UserId,
    /// Time of the removal.
    pub removed: TimeMs,
    /// Usage of the entry with everything below it.
    pub usage: crate::entry::Usage,
}

canonical_struct!(TrashItem { id, lfn, entry, removed_by, removed, usage });

/// A physical copy that an SE is to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Position in the queue.
    pub id: DeletionId,
    /// The file it was a copy of.
    pub guid: Guid,
    /// Bytes, if known.
    pub size: Option<u64>,
    /// Location of the copy: derived or explicit.
    pub location: crate::entry::Location,
    /// Time it entered the queue.
    pub queued: TimeMs,
}

canonical_struct!(Deletion { id, guid, size, location, queued });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::DirId;
    use crate::lfn::Name;

    fn at(name: &str) -> At {
        At { parent: DirId(7), name: Name::parse(name).unwrap() }
    }

    /// Goal: effects of older logs decode as written; effects that name the previous change have
    /// fixed bytes too.
    #[test]
    fn effect_with_and_without_the_previous_change_has_fixed_bytes() {
        let id = EntryId::Directory(DirId(9));
        let moved = |previous| Effect::Moved { id, from: at("a"), to: at("b"), previous };
        let old = [3, 1, 9, 7, 1, b'a', 7, 1, b'b'];
        let linked = [23, 1, 9, 7, 1, b'a', 7, 1, b'b', 0xac, 2];
        for (effect, bytes) in [(moved(None), &old[..]), (moved(Some(Revision(300))), &linked[..])] {
            assert_eq!(effect.to_bytes(), bytes);
            assert_eq!(Effect::from_bytes(bytes).unwrap(), effect);
        }
        assert_eq!(moved(None).previous(), Previous::Unknown);
        assert_eq!(moved(Some(Revision(300))).previous(), Previous::At(Revision(300)));
    }

    #[test]
    fn effect_that_follows_no_other_cannot_name_a_previous_change() {
        let dequeued = Effect::Dequeued { se: SeNumber(3), done: Vec::new() };
        let mut bytes = dequeued.to_bytes();
        assert_eq!(Effect::from_bytes(&bytes).unwrap(), dequeued);
        bytes[0] += LINKED;
        bytes.push(5);
        assert!(Effect::from_bytes(&bytes).is_err());
        assert!(Effect::from_bytes(&[LINKED]).is_err() && Effect::from_bytes(&[0]).is_err());
    }
}
