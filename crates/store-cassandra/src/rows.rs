//! Keys and rows: the form that after-images, tables and the row cache share.
//!
//! Some rows are primary: entries, trash, upload reservations, records, members, deletions,
//! operations. The others follow from them: places by identity, accounts, indices by SE, by copy
//! and by expiry, layouts, totals.

use std::collections::BTreeMap;
use std::sync::Arc;

use exacat_model::{
    At, Deletion, DeletionId, DirId, Entry, EntryId, Fingerprint, Guid, Measured, Name, OperationId, Record,
    RecordKey, Reservation, Revision, SeNumber, TimeMs, TrashId, Usage, canonical_enum, canonical_struct,
};
use exacat_store::UsageOf;
use exacat_store::rules::Trashed;

use crate::layout;

/// Names a row. Keys that are listed sort in the order of the listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// Totals of the catalogue.
    Totals,
    /// Entry at this place.
    Entry(At),
    /// Place of the entry of this identity.
    Place(EntryId),
    /// Item of the trash.
    Trash(TrashId),
    /// Upload reservation of this GUID.
    Reservation(Guid),
    /// Record.
    Record(RecordKey),
    /// All members of a collection. Such a row is only ever deleted.
    Members(Guid),
    /// One member.
    Member { collection: Guid, guid: Guid },
    /// One item of an SE's deletion queue.
    Deletion { se: SeNumber, id: DeletionId },
    /// Deletions of one copy, by its location.
    Copy { se: SeNumber, copy: String },
    /// Counter. The counter of an SE includes its deletions.
    Account(UsageOf),
    /// Outcomes of a request.
    Operation(OperationId),
    /// Index: a file has a replica on this SE.
    OnSe { se: SeNumber, shard: u8, guid: Guid },
    /// Index: an upload reservation expires.
    ReservationDue { expires: TimeMs, guid: Guid },
    /// Index: an entry in the tree, or below an item of the trash, expires.
    Due { expires: TimeMs, id: EntryId },
    /// Number of partitions of a directory's children, if it has or had very many.
    Layout(DirId),
}

canonical_enum!(Key {
    1 => Totals,
    2 => Entry(at),
    3 => Place(id),
    4 => Trash(id),
    5 => Reservation(guid),
    6 => Record(key),
    7 => Members(guid),
    8 => Member { collection, guid },
    9 => Deletion { se, id },
    10 => Copy { se, copy },
    11 => Account(of),
    12 => Operation(id),
    13 => OnSe { se, shard, guid },
    14 => ReservationDue { expires, guid },
    15 => Due { expires, id },
    16 => Layout(directory),
});

impl Key {
    pub(crate) fn on_se(se: SeNumber, guid: Guid) -> Self {
        Key::OnSe { se, shard: layout::shard_on_se(guid), guid }
    }

    /// Makes the key of an expiry. Times beyond the order of the tables count as the latest one.
    pub(crate) fn due(expires: TimeMs, id: EntryId) -> Self {
        Key::Due { expires: TimeMs(expires.0.min(i64::MAX as u64)), id }
    }

    /// Makes the key of an upload reservation's expiry, with the same bound.
    pub(crate) fn reservation_due(reservation: &Reservation) -> Self {
        Key::ReservationDue {
            expires: TimeMs(reservation.expires.0.min(i64::MAX as u64)),
            guid: reservation.guid,
        }
    }

    pub(crate) fn root() -> Self {
        Key::Entry(At { parent: DirId::ROOT, name: Name::root() })
    }
}

/// Place of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    At(At),
    Trash(TrashId),
}

canonical_enum!(Where { 1 => At(at), 2 => Trash(id) });

/// Totals of the catalogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub next_directory: u64,
    /// Time of the last change.
    pub time: TimeMs,
    /// Entries in the tree and the trash, without the root.
    pub entries: u64,
    /// Requests with at least one applied mutation.
    pub requests: u64,
    pub trash: u64,
    pub reservations: u64,
    pub deletions: u64,
}

canonical_struct!(Totals { next_directory, time, entries, requests, trash, reservations, deletions });

/// One counter: of a directory everything below it, of a user or group its entries, of an SE its
/// replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub usage: Usage,
    pub reserved: Usage,
    /// Upload reservations: of a user its own; of an SE those with a replica pending there.
    pub reservations: u64,
    /// Queued deletions of an SE.
    pub deletions: Usage,
    /// Replicas of any state on an SE.
    pub replicas: u64,
    /// Direct entries of a directory.
    pub children: u64,
}

canonical_struct!(Counted { usage, reserved, reservations, deletions, replicas, children });

/// Outcomes of a request's applied mutations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub fingerprint: Fingerprint,
    pub outcomes: Vec<(u32, (Revision, Option<EntryId>))>,
}

canonical_struct!(Remembered { fingerprint, outcomes });

/// Content of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Row {
    Totals(Totals),
    Entry(Entry),
    Place(Where),
    Trash(Trashed),
    Reservation(Reservation),
    Record {
        record: Record,
        revision: Revision,
    },
    /// Empty: the key says everything.
    There,
    Deletion(Deletion),
    Copies(Vec<DeletionId>),
    Account(Counted),
    Operation(Remembered),
    /// Level of a directory's partitions.
    Layout(u8),
}

canonical_enum!(Row {
    1 => Totals(totals),
    2 => Entry(entry),
    3 => Place(place),
    4 => Trash(item),
    5 => Reservation(reservation),
    6 => Record { record, revision },
    7 => There,
    8 => Deletion(deletion),
    9 => Copies(ids),
    10 => Account(counted),
    11 => Operation(remembered),
    12 => Layout(level),
});

impl Row {
    /// Returns the approximate memory in bytes of a row that listings show; 0 for other rows.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Row::Entry(entry) => entry.bytes(),
            Row::Trash(item) => item.entry.bytes() + item.lfn.as_str().len(),
            Row::Reservation(reservation) => reservation.bytes(),
            Row::Deletion(deletion) => deletion.bytes(),
            _ => 0,
        }
    }
}

/// Row after-image: a row after a change; none if it was deleted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AfterImage {
    pub key: Key,
    pub row: Option<Row>,
}

canonical_struct!(AfterImage { key, row });

/// Key of a copy's deletions: a derived location by its file, an explicit one by its PFN.
pub(crate) fn copy_of(deletion: &Deletion) -> Option<String> {
    match &deletion.location {
        exacat_model::Location::Derived => Some(derived_copy(deletion.guid)),
        exacat_model::Location::Explicit(pfn) => Some(explicit_copy(pfn.as_str())),
        exacat_model::Location::Member { .. } => None,
    }
}

/// Key of a derived location.
pub(crate) fn derived_copy(guid: Guid) -> String {
    format!("guid:{guid}")
}

/// Key of an explicit location.
pub(crate) fn explicit_copy(pfn: &str) -> String {
    format!("pfn:{pfn}")
}

/// Usage that one deletion counts.
pub(crate) fn usage_of_deletion(deletion: &Deletion) -> Usage {
    let bytes = u128::from(deletion.size.unwrap_or(0));
    Usage { files: 1, replicas: 1, bytes, replica_bytes: bytes, ..Usage::default() }
}

/// Rows that changed, and are not in the log yet.
pub(crate) type Changed = BTreeMap<Key, Option<Arc<Row>>>;

/// First and last possible key of a member of this collection.
pub(crate) fn member_bounds(collection: Guid) -> (Key, Key) {
    (Key::Member { collection, guid: Guid([0; 16]) }, Key::Member { collection, guid: Guid([0xff; 16]) })
}
