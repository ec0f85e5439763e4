//! Rows as the tables have them: for each kind of key how it is read, written and taken away.

use exacat_model::codec::{Decode, Encode};
use exacat_model::{
    At, Body, Checksum, Checksums, Deletion, DeletionId, DirId, Entry, EntryId, Error, ErrorKind, File,
    GroupId, Guid, Lfn, Location, Mode, Name, Pfn, RecordKey, Replica, ReplicaState, Result, Revision,
    SeNumber, Tag, TagKey, TagValue, TimeMs, TrashId, Usage, UserId,
};
use exacat_store::UsageOf;
use exacat_store::rules::Trashed;
use scylla::value::{CqlTimestamp, CqlValue, CqlVarint};
use uuid::Uuid;

use crate::rows::{Key, Remembered, Row, Totals, Where};

/// Values of a statement, or columns of a row.
pub(crate) type Values = Vec<CqlValue>;

/// A statement's text with its values.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub text: &'static str,
    pub values: Values,
}

/// Milliseconds of a day: what expires is kept by day.
pub(crate) const DAY_MS: u64 = 86_400_000;
/// Revisions of one bucket of trash or deletions, as a power of two.
pub(crate) const BUCKET_BITS: u32 = 20;
/// Kinds of what is due.
pub(crate) const DUE_ENTRY: &str = "entry";
/// The other.
pub(crate) const DUE_BOOKING: &str = "booking";

pub(crate) fn big(number: u64) -> CqlValue {
    // 64 bits are kept as they are; nothing in use is that large.
    CqlValue::BigInt(number as i64)
}

fn int(number: u32) -> CqlValue {
    CqlValue::Int(number as i32)
}

pub(crate) fn text(text: &str) -> CqlValue {
    CqlValue::Text(text.to_owned())
}

pub(crate) fn blob(bytes: Vec<u8>) -> CqlValue {
    CqlValue::Blob(bytes)
}

pub(crate) fn uuid(guid: Guid) -> CqlValue {
    CqlValue::Uuid(Uuid::from_bytes(guid.0))
}

pub(crate) fn time(time: TimeMs) -> CqlValue {
    CqlValue::Timestamp(CqlTimestamp(time.0 as i64))
}

fn var(number: u128) -> CqlValue {
    let mut bytes = vec![0];
    bytes.extend(number.to_be_bytes());
    CqlValue::Varint(CqlVarint::from_signed_bytes_be(bytes))
}

pub(crate) fn bucket(revision: Revision) -> u64 {
    revision.0 >> BUCKET_BITS
}

fn id_key(id: EntryId) -> Vec<u8> {
    match id {
        EntryId::Directory(id) => [&[1][..], &id.0.to_be_bytes()].concat(),
        EntryId::Object(guid) => [&[2][..], &guid.0].concat(),
    }
}

fn id_of_key(bytes: &[u8]) -> Result<EntryId> {
    let bad = || corrupt("an identity in the index of what expires");
    match bytes.split_first().ok_or_else(bad)? {
        (1, rest) => Ok(EntryId::Directory(DirId(u64::from_be_bytes(rest.try_into().map_err(|_| bad())?)))),
        (2, rest) => Ok(EntryId::Object(Guid(rest.try_into().map_err(|_| bad())?))),
        _ => Err(bad()),
    }
}

pub(crate) fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{what} in the tables cannot be read: exacat fsck says more"))
}

fn account_key(of: UsageOf) -> Values {
    let (kind, id) = match of {
        UsageOf::Directory(id) => ("directory", id.0),
        UsageOf::User(id) => ("user", u64::from(id.0)),
        UsageOf::Group(id) => ("group", u64::from(id.0)),
        UsageOf::Se(se) | UsageOf::Deletions(se) => ("se", u64::from(se.0)),
    };
    vec![text(kind), big(id)]
}

fn se(se: SeNumber) -> CqlValue {
    int(u32::from(se.0))
}

/// The key's columns, in the order of its table's primary key.
fn key_values(key: &Key) -> Values {
    match key {
        Key::Totals => vec![int(0)],
        Key::Entry(at) => vec![big(at.parent.0), int(0), text(at.name.as_str())],
        Key::Place(EntryId::Directory(id)) => vec![big(id.0)],
        Key::Place(EntryId::Object(guid)) => vec![uuid(*guid)],
        Key::Trash(id) => vec![big(bucket(id.0)), big(id.0.0)],
        Key::Booking(guid) => vec![int(0), blob(guid.0.to_vec())],
        Key::Record(key) => vec![text(key.kind().name()), blob(key.to_bytes())],
        Key::Members(collection) => vec![uuid(*collection)],
        Key::Member { collection, guid } => vec![uuid(*collection), blob(guid.0.to_vec())],
        Key::Deletion { se: number, id } => {
            vec![se(*number), big(bucket(id.revision)), big(id.revision.0), int(id.index)]
        }
        Key::Copy { se: number, copy } => vec![se(*number), text(copy)],
        Key::Account(of) => account_key(*of),
        Key::Operation(id) => vec![blob(id.0.to_vec())],
        Key::OnSe { se: number, shard, guid } => {
            vec![se(*number), int(u32::from(*shard)), blob(guid.0.to_vec())]
        }
        Key::BookingDue { expires, guid } => {
            let at = expires.0;
            vec![text(DUE_BOOKING), big(at / DAY_MS), big(at), blob(id_key(EntryId::Object(*guid)))]
        }
        Key::Due { expires, id } => {
            let at = expires.0;
            vec![text(DUE_ENTRY), big(at / DAY_MS), big(at), blob(id_key(*id))]
        }
    }
}

/// Reads one row: none for what is never read alone.
pub(crate) fn select(key: &Key) -> Option<Bound> {
    let text = match key {
        Key::Totals => {
            "SELECT id, next_directory, time, entries_all, requests, trash, bookings, deletions FROM totals WHERE id = ?"
        }
        Key::Entry(_) => SELECT_ENTRY,
        Key::Place(EntryId::Directory(_)) => {
            "SELECT directory, parent, name, trash FROM directories WHERE directory = ?"
        }
        Key::Place(EntryId::Object(_)) => "SELECT guid, parent, name, trash FROM objects WHERE guid = ?",
        Key::Trash(_) => {
            "SELECT bucket, trash, lfn, removed_by, removed, entry FROM trash WHERE bucket = ? AND trash = ?"
        }
        Key::Booking(_) => "SELECT shard, guid, booking FROM bookings WHERE shard = ? AND guid = ?",
        Key::Record(_) => "SELECT kind, key, revision, record FROM records WHERE kind = ? AND key = ?",
        Key::Member { .. } => "SELECT collection, guid FROM members WHERE collection = ? AND guid = ?",
        Key::Deletion { .. } => {
            "SELECT se, bucket, revision, position, guid, size, pfn, queued FROM deletions WHERE se = ? AND bucket = ? AND revision = ? AND position = ?"
        }
        Key::Copy { .. } => "SELECT se, copy, deletions FROM copies WHERE se = ? AND copy = ?",
        Key::Account(_) => "SELECT kind, id, counted FROM accounts WHERE kind = ? AND id = ?",
        Key::Operation(_) => "SELECT operation, ordinal, outcomes FROM operations WHERE operation = ?",
        Key::Members(_) | Key::OnSe { .. } | Key::BookingDue { .. } | Key::Due { .. } => return None,
    };
    Some(Bound { text, values: key_values(key) })
}

const SELECT_ENTRY: &str = "SELECT parent, bucket, name, kind, directory, guid, owner, group_id, mode, created, \
    modified, revision, expires, size, job, checksums, replicas, tags, target, members FROM children \
    WHERE parent = ? AND bucket = ? AND name = ?";

const INSERT_ENTRY: &str = "INSERT INTO children (parent, bucket, name, kind, directory, guid, owner, group_id, mode, \
    created, modified, revision, expires, size, job, checksums, replicas, tags, target, members) \
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// What makes the table say this of the key. Every column is written, and none is null: so the newest row is whole, and leaves no
/// tombstones of cells.
pub(crate) fn write(key: &Key, row: Option<&Row>) -> Result<Vec<Bound>> {
    let Some(row) = row else { return Ok(vec![delete(key)]) };
    let mut values = key_values(key);
    let text_of = match (key, row) {
        (Key::Totals, Row::Totals(totals)) => {
            let Totals { next_directory, time: last, entries, requests, trash, bookings, deletions } = totals;
            values.extend([big(*next_directory), time(*last)]);
            values.extend([entries, requests, trash, bookings, deletions].map(|number| big(*number)));
            "INSERT INTO totals (id, next_directory, time, entries_all, requests, trash, bookings, deletions) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        }
        (Key::Entry(_), Row::Entry(entry)) => {
            values.extend(entry_values(entry));
            INSERT_ENTRY
        }
        (Key::Place(id), Row::Place(place)) => {
            values.extend(match place {
                Where::At(at) => [big(at.parent.0), text(at.name.as_str()), big(0)],
                Where::Trash(trash) => [big(0), text(""), big(trash.0.0)],
            });
            match id {
                EntryId::Directory(_) => {
                    "INSERT INTO directories (directory, parent, name, trash) VALUES (?, ?, ?, ?)"
                }
                EntryId::Object(_) => "INSERT INTO objects (guid, parent, name, trash) VALUES (?, ?, ?, ?)",
            }
        }
        (Key::Trash(_), Row::Trash(item)) => {
            values.extend([text(item.lfn.as_str()), big(u64::from(item.removed_by.0)), time(item.removed)]);
            values.push(blob(item.entry.to_bytes()));
            "INSERT INTO trash (bucket, trash, lfn, removed_by, removed, entry) VALUES (?, ?, ?, ?, ?, ?)"
        }
        (Key::Booking(_), Row::Booking(booking)) => {
            values.extend([text(booking.lfn.as_str()), big(u64::from(booking.owner.0)), big(booking.size)]);
            values.extend([time(booking.expires), blob(booking.to_bytes())]);
            "INSERT INTO bookings (shard, guid, lfn, owner, size, expires, booking) VALUES (?, ?, ?, ?, ?, ?, ?)"
        }
        (Key::Record(_), Row::Record { record, revision }) => {
            values.extend([text(record.unique_name().unwrap_or("")), big(revision.0)]);
            values.extend([text(&format!("{record:?}")), blob(record.to_bytes())]);
            "INSERT INTO records (kind, key, name, revision, shown, record) VALUES (?, ?, ?, ?, ?, ?)"
        }
        (Key::Member { .. }, Row::There) => "INSERT INTO members (collection, guid) VALUES (?, ?)",
        (Key::Deletion { .. }, Row::Deletion(deletion)) => {
            let pfn = match &deletion.location {
                Location::Explicit(pfn) => pfn.as_str(),
                _ => "",
            };
            values.extend([uuid(deletion.guid), size_value(deletion.size), text(pfn), time(deletion.queued)]);
            "INSERT INTO deletions (se, bucket, revision, position, guid, size, pfn, queued) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        }
        (Key::Copy { .. }, Row::Copies(ids)) => {
            let id = |id: &DeletionId| CqlValue::Tuple(vec![Some(big(id.revision.0)), Some(int(id.index))]);
            values.push(CqlValue::List(ids.iter().map(id).collect()));
            "INSERT INTO copies (se, copy, deletions) VALUES (?, ?, ?)"
        }
        (Key::Account(_), Row::Account(counted)) => {
            let Usage { directories, files, members, others, replicas, bytes, member_bytes, replica_bytes } =
                counted.usage;
            values.extend([directories, files, members, others, replicas].map(big));
            values.extend([bytes, member_bytes, replica_bytes].map(var));
            values.push(blob(counted.to_bytes()));
            "INSERT INTO accounts (kind, id, directories, files, members, others, replicas, bytes, member_bytes, replica_bytes, counted) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        }
        (Key::Operation(_), Row::Operation(remembered)) => {
            values.extend([big(remembered.ordinal), blob(remembered.outcomes.to_bytes())]);
            "INSERT INTO operations (operation, ordinal, outcomes) VALUES (?, ?, ?)"
        }
        (Key::OnSe { .. }, Row::There) => "INSERT INTO on_se (se, shard, guid) VALUES (?, ?, ?)",
        (Key::BookingDue { .. } | Key::Due { .. }, Row::There) => {
            // The day first: an index nobody finds would be missing, a day with nothing in it is harmless.
            let day = Bound {
                text: "INSERT INTO due_days (kind, day) VALUES (?, ?)",
                values: values[..2].to_vec(),
            };
            let due = Bound { text: "INSERT INTO due (kind, day, expires, id) VALUES (?, ?, ?, ?)", values };
            return Ok(vec![day, due]);
        }
        _ => return Err(Error::new(ErrorKind::Corrupt, format!("a row of another kind under {key:?}"))),
    };
    Ok(vec![Bound { text: text_of, values }])
}

fn delete(key: &Key) -> Bound {
    let text = match key {
        Key::Totals => "DELETE FROM totals WHERE id = ?",
        Key::Entry(_) => "DELETE FROM children WHERE parent = ? AND bucket = ? AND name = ?",
        Key::Place(EntryId::Directory(_)) => "DELETE FROM directories WHERE directory = ?",
        Key::Place(EntryId::Object(_)) => "DELETE FROM objects WHERE guid = ?",
        Key::Trash(_) => "DELETE FROM trash WHERE bucket = ? AND trash = ?",
        Key::Booking(_) => "DELETE FROM bookings WHERE shard = ? AND guid = ?",
        Key::Record(_) => "DELETE FROM records WHERE kind = ? AND key = ?",
        Key::Members(_) => "DELETE FROM members WHERE collection = ?",
        Key::Member { .. } => "DELETE FROM members WHERE collection = ? AND guid = ?",
        Key::Deletion { .. } => {
            "DELETE FROM deletions WHERE se = ? AND bucket = ? AND revision = ? AND position = ?"
        }
        Key::Copy { .. } => "DELETE FROM copies WHERE se = ? AND copy = ?",
        Key::Account(_) => "DELETE FROM accounts WHERE kind = ? AND id = ?",
        Key::Operation(_) => "DELETE FROM operations WHERE operation = ?",
        Key::OnSe { .. } => "DELETE FROM on_se WHERE se = ? AND shard = ? AND guid = ?",
        Key::BookingDue { .. } | Key::Due { .. } => {
            "DELETE FROM due WHERE kind = ? AND day = ? AND expires = ? AND id = ?"
        }
    };
    Bound { text, values: key_values(key) }
}

/// None is said by a number nothing has.
fn size_value(size: Option<u64>) -> CqlValue {
    size.map_or(CqlValue::BigInt(-1), big)
}

fn entry_values(entry: &Entry) -> Values {
    let nil = || CqlValue::Uuid(Uuid::nil());
    let no_list = || CqlValue::List(Vec::new());
    let (mut directory, mut guid, mut size, mut job) = (big(0), nil(), size_value(None), text(""));
    let (mut checksums, mut replicas, mut target, mut members) = (no_list(), no_list(), text(""), big(0));
    match &entry.body {
        Body::Directory(id) => directory = big(id.0),
        Body::File(file) => {
            guid = uuid(file.guid);
            size = size_value(file.size);
            job = text(&file.job.map(|job| job.to_string()).unwrap_or_default());
            checksums = CqlValue::List(file.checksums.iter().map(|one| text(&one.to_string())).collect());
            replicas = CqlValue::List(file.replicas.iter().map(replica_value).collect());
        }
        Body::Collection { guid: of, members: count } => {
            guid = uuid(*of);
            members = big(*count);
        }
        Body::Link { guid: of, target: to } => {
            guid = uuid(*of);
            target = text(to.as_str());
        }
    }
    let tag = |tag: &Tag| {
        let shown = format!("{:?}", tag.value);
        CqlValue::Tuple(vec![
            Some(text(tag.key.as_str())),
            Some(text(&shown)),
            Some(blob(tag.value.to_bytes())),
        ])
    };
    vec![
        text(entry.kind().name()),
        directory,
        guid,
        big(u64::from(entry.owner.0)),
        big(u64::from(entry.group.0)),
        int(u32::from(entry.mode.bits())),
        time(entry.created),
        time(entry.modified),
        big(entry.revision.0),
        text(&entry.expires.map(|expires| expires.0.to_string()).unwrap_or_default()),
        size,
        job,
        checksums,
        replicas,
        CqlValue::List(entry.tags.iter().map(tag).collect()),
        target,
        members,
    ]
}

fn replica_value(replica: &Replica) -> CqlValue {
    let (pfn, archive, member) = match &replica.location {
        Location::Derived => (String::new(), String::new(), String::new()),
        Location::Explicit(pfn) => (pfn.as_str().to_owned(), String::new(), String::new()),
        Location::Member { archive, member } => (String::new(), archive.to_string(), member.clone()),
    };
    CqlValue::Tuple(vec![
        Some(se(replica.se)),
        Some(text(replica.state.name())),
        Some(text(&pfn)),
        Some(text(&archive)),
        Some(text(&member)),
    ])
}

/// Columns of a row that was read, taken one after the other.
pub(crate) struct Columns(std::vec::IntoIter<Option<CqlValue>>);

impl Columns {
    pub fn new(row: scylla::value::Row) -> Self {
        Columns(row.columns.into_iter())
    }

    fn value(&mut self) -> Result<CqlValue> {
        self.0.next().flatten().ok_or_else(|| corrupt("a column without a value"))
    }

    /// A number, or none if it is null.
    pub fn maybe_big(&mut self) -> Result<Option<u64>> {
        match self.0.next().flatten() {
            None => Ok(None),
            Some(CqlValue::BigInt(number)) => Ok(Some(number as u64)),
            Some(other) => Err(corrupt(format!("{other:?}"))),
        }
    }

    pub fn big(&mut self) -> Result<u64> {
        self.maybe_big()?.ok_or_else(|| corrupt("a number without a value"))
    }

    pub fn int(&mut self) -> Result<u32> {
        match self.value()? {
            CqlValue::Int(number) => Ok(number as u32),
            other => Err(corrupt(format!("{other:?}"))),
        }
    }

    pub fn text(&mut self) -> Result<String> {
        match self.value()? {
            CqlValue::Text(text) => Ok(text),
            other => Err(corrupt(format!("{other:?}"))),
        }
    }

    /// Bytes; none at all if it is null.
    pub fn blob(&mut self) -> Result<Vec<u8>> {
        match self.0.next().flatten() {
            None | Some(CqlValue::Empty) => Ok(Vec::new()),
            Some(CqlValue::Blob(bytes)) => Ok(bytes),
            Some(other) => Err(corrupt(format!("{other:?}"))),
        }
    }

    pub fn guid(&mut self) -> Result<Guid> {
        match self.value()? {
            CqlValue::Uuid(uuid) => Ok(Guid(uuid.into_bytes())),
            CqlValue::Blob(bytes) => bytes.try_into().map(Guid).map_err(|_| corrupt("a GUID")),
            other => Err(corrupt(format!("{other:?}"))),
        }
    }

    pub fn time(&mut self) -> Result<TimeMs> {
        match self.value()? {
            CqlValue::Timestamp(time) => Ok(TimeMs(time.0 as u64)),
            other => Err(corrupt(format!("{other:?}"))),
        }
    }

    fn list(&mut self) -> Result<Vec<CqlValue>> {
        match self.0.next().flatten() {
            None | Some(CqlValue::Empty) => Ok(Vec::new()),
            Some(CqlValue::List(items)) => Ok(items),
            Some(other) => Err(corrupt(format!("{other:?}"))),
        }
    }

    fn tuple(value: CqlValue) -> Result<Columns> {
        match value {
            CqlValue::Tuple(items) => Ok(Columns(items.into_iter())),
            other => Err(corrupt(format!("{other:?}"))),
        }
    }

    fn decoded<T: Decode>(&mut self) -> Result<T> {
        T::from_bytes(&self.blob()?).map_err(corrupt)
    }

    fn size(&mut self) -> Result<Option<u64>> {
        Ok(Some(self.big()?).filter(|size| *size != u64::MAX))
    }

    fn name(&mut self) -> Result<Name> {
        let text = self.text()?;
        if text == Name::root().as_str() { Ok(Name::root()) } else { Name::parse(&text) }
    }
}

/// Reads a row of an entry, all columns in the table's order.
pub(crate) fn entry_of(mut row: Columns) -> Result<Entry> {
    let parent = DirId(row.big()?);
    let _bucket = row.int()?;
    let name = row.name()?;
    let kind = row.text()?;
    let directory = DirId(row.big()?);
    let guid = row.guid()?;
    let owner = UserId(row.big()? as u32);
    let group = GroupId(row.big()? as u32);
    let mode = Mode::new(row.int()? as u16)?;
    let (created, modified) = (row.time()?, row.time()?);
    let revision = Revision(row.big()?);
    let expires = row.text()?;
    let expires = if expires.is_empty() { None } else { Some(TimeMs(expires.parse().map_err(corrupt)?)) };
    let size = row.size()?;
    let job = row.text()?;
    let job = if job.is_empty() { None } else { Some(job.parse().map_err(corrupt)?) };
    let mut checksums = Checksums::none();
    for checksum in row.list()? {
        let CqlValue::Text(text) = checksum else { return Err(corrupt("a checksum")) };
        checksums.add(Checksum::parse(&text)?)?;
    }
    let replicas: Result<Vec<Replica>> = row.list()?.into_iter().map(replica_of).collect();
    let tags: Result<Vec<Tag>> = row.list()?.into_iter().map(tag_of).collect();
    let target = row.text()?;
    let members = row.big()?;
    let body = match kind.as_str() {
        "directory" => Body::Directory(directory),
        "file" => Body::File(File { guid, size, checksums, job, replicas: replicas? }),
        "collection" => Body::Collection { guid, members },
        "link" => {
            // As in the canonical bytes: a target can be longer than what can be typed.
            let target = Lfn::from_bytes(&target.to_bytes()).map_err(corrupt)?;
            Body::Link { guid, target }
        }
        other => return Err(corrupt(format!("an entry of kind {other}"))),
    };
    let tags = tags?;
    Ok(Entry {
        at: At { parent, name },
        owner,
        group,
        mode,
        created,
        modified,
        revision,
        expires,
        tags,
        body,
    })
}

fn replica_of(value: CqlValue) -> Result<Replica> {
    let mut row = Columns::tuple(value)?;
    let se = SeNumber(row.int()? as u16);
    let state = ReplicaState::parse(&row.text()?)?;
    let (pfn, archive, member) = (row.text()?, row.text()?, row.text()?);
    let location = if !archive.is_empty() {
        Location::Member { archive: Guid::parse(&archive)?, member }
    } else if !pfn.is_empty() {
        Location::Explicit(Pfn::parse(&pfn)?)
    } else {
        Location::Derived
    };
    Ok(Replica { se, state, location })
}

fn tag_of(value: CqlValue) -> Result<Tag> {
    let mut row = Columns::tuple(value)?;
    let key = TagKey::parse(&row.text()?)?;
    let _shown = row.text()?;
    let value: TagValue = row.decoded()?;
    Ok(Tag { key, value })
}

/// The row that was read for this key by [`select`].
pub(crate) fn row_of(key: &Key, mut row: Columns) -> Result<Row> {
    Ok(match key {
        Key::Totals => {
            row.int()?;
            Row::Totals(Totals {
                next_directory: row.big()?,
                time: row.time()?,
                entries: row.big()?,
                requests: row.big()?,
                trash: row.big()?,
                bookings: row.big()?,
                deletions: row.big()?,
            })
        }
        Key::Entry(_) => Row::Entry(entry_of(row)?),
        Key::Place(id) => {
            match id {
                EntryId::Directory(_) => drop(row.big()?),
                EntryId::Object(_) => drop(row.guid()?),
            }
            Row::Place(place_of(row)?)
        }
        Key::Trash(_) => trash_of(row)?.1,
        Key::Booking(_) => booking_of(row)?.1,
        Key::Record(_) => record_of(row)?.1,
        Key::Member { .. } => Row::There,
        Key::Deletion { .. } => deletion_of(row)?.1,
        Key::Copy { .. } => copies_of(row)?.1,
        Key::Account(_) => account_of(row)?.1,
        Key::Operation(_) => {
            row.blob()?;
            Row::Operation(Remembered { ordinal: row.big()?, outcomes: row.decoded()? })
        }
        Key::Members(_) | Key::OnSe { .. } | Key::BookingDue { .. } | Key::Due { .. } => Row::There,
    })
}

fn deletion_id_of(value: CqlValue) -> Result<DeletionId> {
    let mut row = Columns::tuple(value)?;
    Ok(DeletionId { revision: Revision(row.big()?), index: row.int()? })
}

fn place_of(mut row: Columns) -> Result<Where> {
    let (parent, name, trash) = (row.big()?, row.text()?, row.big()?);
    if trash != 0 {
        return Ok(Where::Trash(TrashId(Revision(trash))));
    }
    let name = if name == Name::root().as_str() { Name::root() } else { Name::parse(&name)? };
    Ok(Where::At(At { parent: DirId(parent), name }))
}

// ---- rows of slices: with their keys ----

/// A row of `trash`.
pub(crate) fn trash_of(mut row: Columns) -> Result<(Key, Row)> {
    row.big()?;
    let id = TrashId(Revision(row.big()?));
    let lfn = row.text()?;
    // As in the canonical bytes: a path can have come to exceed the limits.
    let lfn = Lfn::from_bytes(&lfn.to_bytes()).map_err(corrupt)?;
    let removed_by = UserId(row.big()? as u32);
    let removed = row.time()?;
    let entry = row.decoded()?;
    Ok((Key::Trash(id), Row::Trash(Trashed { lfn, entry, removed_by, removed })))
}

/// A row of `bookings`: shard, guid, booking.
pub(crate) fn booking_of(mut row: Columns) -> Result<(Key, Row)> {
    row.int()?;
    let guid = row.guid()?;
    Ok((Key::Booking(guid), Row::Booking(row.decoded()?)))
}

/// A row of `records`: kind, key, revision, record.
pub(crate) fn record_of(mut row: Columns) -> Result<(Key, Row)> {
    row.text()?;
    let key: RecordKey = row.decoded()?;
    let revision = Revision(row.big()?);
    Ok((Key::Record(key), Row::Record { record: row.decoded()?, revision }))
}

/// A row of `members`: collection, guid.
pub(crate) fn member_of(mut row: Columns) -> Result<(Key, Row)> {
    Ok((Key::Member { collection: row.guid()?, guid: row.guid()? }, Row::There))
}

/// A row of `deletions`.
pub(crate) fn deletion_of(mut row: Columns) -> Result<(Key, Row)> {
    let se = SeNumber(row.int()? as u16);
    row.big()?;
    let id = DeletionId { revision: Revision(row.big()?), index: row.int()? };
    let guid = row.guid()?;
    let size = row.size()?;
    let pfn = row.text()?;
    let location = if pfn.is_empty() { Location::Derived } else { Location::Explicit(Pfn::parse(&pfn)?) };
    let queued = row.time()?;
    Ok((Key::Deletion { se, id }, Row::Deletion(Deletion { id, guid, size, location, queued })))
}

/// A row of `on_se`.
pub(crate) fn on_se_of(mut row: Columns) -> Result<(Key, Row)> {
    let se = SeNumber(row.int()? as u16);
    let shard = row.int()? as u8;
    Ok((Key::OnSe { se, shard, guid: row.guid()? }, Row::There))
}

/// A row of `due`: kind, day, expires, id.
pub(crate) fn due_of(mut row: Columns) -> Result<(Key, Row)> {
    let kind = row.text()?;
    row.big()?;
    let expires = TimeMs(row.big()?);
    let id = id_of_key(&row.blob()?)?;
    let key = match (kind.as_str(), id) {
        (DUE_ENTRY, id) => Key::Due { expires, id },
        (DUE_BOOKING, EntryId::Object(guid)) => Key::BookingDue { expires, guid },
        _ => return Err(corrupt("the index of what expires")),
    };
    Ok((key, Row::There))
}

/// A row of `children`.
pub(crate) fn entry_row_of(row: Columns) -> Result<(Key, Row)> {
    let entry = entry_of(row)?;
    Ok((Key::Entry(entry.at.clone()), Row::Entry(entry)))
}

/// A row of `copies`: se, copy, deletions.
pub(crate) fn copies_of(mut row: Columns) -> Result<(Key, Row)> {
    let key = Key::Copy { se: SeNumber(row.int()? as u16), copy: row.text()? };
    let ids: Result<Vec<DeletionId>> = row.list()?.into_iter().map(deletion_id_of).collect();
    Ok((key, Row::Copies(ids?)))
}

/// A row of `accounts`: kind, id, counted.
pub(crate) fn account_of(mut row: Columns) -> Result<(Key, Row)> {
    let (kind, id) = (row.text()?, row.big()?);
    let of = match kind.as_str() {
        "directory" => UsageOf::Directory(DirId(id)),
        "user" => UsageOf::User(UserId(id as u32)),
        "group" => UsageOf::Group(GroupId(id as u32)),
        "se" => UsageOf::Se(SeNumber(id as u16)),
        other => return Err(corrupt(format!("an account of a {other}"))),
    };
    Ok((Key::Account(of), Row::Account(row.decoded()?)))
}

/// A row of `directories` or `objects`.
pub(crate) fn place_row_of(id: EntryId, row: Columns) -> Result<(Key, Row)> {
    Ok((Key::Place(id), Row::Place(place_of(row)?)))
}
