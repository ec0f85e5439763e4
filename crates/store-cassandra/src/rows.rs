//! What is kept, as keys and rows: the words that the log's images, the tables and what a server knows have in common.
//!
//! Some rows say what is (entries, trash, bookings, records, members, deletions, operations); the others follow from
//! them and are kept because they are asked for: places by identity, accounts, indices by SE, by copy and by expiry, layouts, totals.

use exacat_model::{
    At, Booking, Deletion, DeletionId, DirId, Entry, EntryId, Fingerprint, Guid, Name, OperationId, Record,
    RecordKey, Revision, SeNumber, TimeMs, TrashId, Usage, canonical_enum, canonical_struct,
};
use exacat_store::UsageOf;
use exacat_store::rules::Trashed;

use crate::layout;

/// Names a row. Keys that are listed sort in the order of the listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    /// What all of the catalogue adds up to.
    Totals,
    /// What stands there.
    Entry(At),
    /// Where the entry of this identity is.
    Place(EntryId),
    /// An item of the trash.
    Trash(TrashId),
    /// The booking of this GUID.
    Booking(Guid),
    /// A record.
    Record(RecordKey),
    /// All members of a collection: only ever taken away.
    Members(Guid),
    /// One member.
    Member { collection: Guid, guid: Guid },
    /// One item of an SE's deletion queue.
    Deletion { se: SeNumber, id: DeletionId },
    /// The deletions of one copy, by what its location says.
    Copy { se: SeNumber, copy: String },
    /// A counter. Deletions are counted with their SE.
    Account(UsageOf),
    /// What a request came to.
    Operation(OperationId),
    /// A file has a replica on this SE.
    OnSe { se: SeNumber, shard: u8, guid: Guid },
    /// A booking expires.
    BookingDue { expires: TimeMs, guid: Guid },
    /// An entry in the tree, or below an item of the trash, expires.
    Due { expires: TimeMs, id: EntryId },
    /// Over how many partitions the children of this directory are spread, if it has or had very many.
    Layout(DirId),
}

canonical_enum!(Key {
    1 => Totals,
    2 => Entry(at),
    3 => Place(id),
    4 => Trash(id),
    5 => Booking(guid),
    6 => Record(key),
    7 => Members(guid),
    8 => Member { collection, guid },
    9 => Deletion { se, id },
    10 => Copy { se, copy },
    11 => Account(of),
    12 => Operation(id),
    13 => OnSe { se, shard, guid },
    14 => BookingDue { expires, guid },
    15 => Due { expires, id },
    16 => Layout(directory),
});

impl Key {
    pub fn on_se(se: SeNumber, guid: Guid) -> Self {
        Key::OnSe { se, shard: layout::shard_on_se(guid), guid }
    }

    /// The index of what expires. Beyond what the tables can order all is the same.
    pub fn due(expires: TimeMs, id: EntryId) -> Self {
        Key::Due { expires: TimeMs(expires.0.min(i64::MAX as u64)), id }
    }

    /// The same for bookings.
    pub fn booking_due(booking: &Booking) -> Self {
        Key::BookingDue { expires: TimeMs(booking.expires.0.min(i64::MAX as u64)), guid: booking.guid }
    }

    pub fn root() -> Self {
        Key::Entry(At { parent: DirId::ROOT, name: Name::root() })
    }
}

/// Where an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    At(At),
    Trash(TrashId),
}

canonical_enum!(Where { 1 => At(at), 2 => Trash(id) });

/// What all of the catalogue adds up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub next_directory: u64,
    /// The last change's.
    pub time: TimeMs,
    /// In the tree and the trash, the root not counted.
    pub entries: u64,
    /// Requests of which something was applied.
    pub requests: u64,
    pub trash: u64,
    pub bookings: u64,
    pub deletions: u64,
}

canonical_struct!(Totals { next_directory, time, entries, requests, trash, bookings, deletions });

/// What one counter counts: of a directory what is below, of a user or group what is theirs, of an SE what is on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub usage: Usage,
    pub reserved: Usage,
    /// Of a user: bookings. Of an SE: bookings with a replica pending there.
    pub bookings: u64,
    /// Of an SE: what waits to be deleted.
    pub deletions: Usage,
    /// Of an SE: replicas of any state.
    pub replicas: u64,
    /// Of a directory: what is directly in it.
    pub children: u64,
}

canonical_struct!(Counted { usage, reserved, bookings, deletions, replicas, children });

/// What a request's applied mutations came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    pub fingerprint: Fingerprint,
    pub outcomes: Vec<(u32, (Revision, Option<EntryId>))>,
}

canonical_struct!(Remembered { fingerprint, outcomes });

/// A row's content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Row {
    Totals(Totals),
    Entry(Entry),
    Place(Where),
    Trash(Trashed),
    Booking(Booking),
    Record {
        record: Record,
        revision: Revision,
    },
    /// All that is to say is in the key.
    There,
    Deletion(Deletion),
    Copies(Vec<DeletionId>),
    Account(Counted),
    Operation(Remembered),
    /// How often the partitions of a directory's children were multiplied.
    Layout(u8),
}

canonical_enum!(Row {
    1 => Totals(totals),
    2 => Entry(entry),
    3 => Place(place),
    4 => Trash(item),
    5 => Booking(booking),
    6 => Record { record, revision },
    7 => There,
    8 => Deletion(deletion),
    9 => Copies(ids),
    10 => Account(counted),
    11 => Operation(remembered),
    12 => Layout(level),
});

/// What a row became; none if there is none any more.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Image {
    pub key: Key,
    pub row: Option<Row>,
}

canonical_struct!(Image { key, row });

/// By what the deletions of a copy are found: a derived location by its file, an explicit one by its PFN.
pub(crate) fn copy_of(deletion: &Deletion) -> Option<String> {
    match &deletion.location {
        exacat_model::Location::Derived => Some(derived_copy(deletion.guid)),
        exacat_model::Location::Explicit(pfn) => Some(explicit_copy(pfn.as_str())),
        exacat_model::Location::Member { .. } => None,
    }
}

/// Of a derived location.
pub(crate) fn derived_copy(guid: Guid) -> String {
    format!("guid:{guid}")
}

/// Of an explicit location.
pub(crate) fn explicit_copy(pfn: &str) -> String {
    format!("pfn:{pfn}")
}

/// What one deletion counts.
pub(crate) fn usage_of_deletion(deletion: &Deletion) -> Usage {
    let bytes = u128::from(deletion.size.unwrap_or(0));
    Usage { files: 1, replicas: 1, bytes, replica_bytes: bytes, ..Usage::default() }
}
