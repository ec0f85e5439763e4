//! Rows in the tables: the statements that read, write and delete each kind of key.

use exacat_model::codec::{Decode, Encode};
use exacat_model::{
    At, Deletion, DeletionId, DirId, Entry, EntryId, Error, ErrorKind, Fingerprint, GroupId, Guid, Lfn,
    Location, Name, OperationId, Pfn, RecordKey, Result, Revision, SeNumber, TimeMs, TrashId, Usage, UserId,
};
use exacat_store::UsageOf;
use exacat_store::rules::Trashed;
use scylla::value::{CqlTimestamp, CqlValue, CqlVarint};
use uuid::Uuid;

use crate::layout::{
    self, REVISION_BITS, RUN_BITS, shard_of_object, shard_of_operation, shard_of_reservation,
};
use crate::rows::{Key, Remembered, Row, Totals, Where};
use crate::statement::{Text, cql};

/// Values of a statement, or columns of a row.
pub(crate) type Values = Vec<CqlValue>;

/// A statement's text with its values.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub text: Text,
    pub values: Values,
}

/// Milliseconds of a day: expiring items are stored by day.
pub(crate) const DAY_MS: u64 = 86_400_000;
/// Name of the kind of expiring entries.
pub(crate) const DUE_ENTRY: &str = "entry";
/// Name of the kind of expiring upload reservations.
pub(crate) const DUE_RESERVATION: &str = "reservation";

pub(crate) fn big(number: u64) -> CqlValue {
    // 64 bits are stored as they are: no number in use has the sign bit.
    CqlValue::BigInt(number as i64)
}

pub(crate) fn int(number: u32) -> CqlValue {
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
    revision.0 >> REVISION_BITS
}

fn id_key(id: EntryId) -> Vec<u8> {
    match id {
        EntryId::Directory(id) => [&[1][..], &id.0.to_be_bytes()].concat(),
        EntryId::Object(guid) => [&[2][..], &guid.0].concat(),
    }
}

fn id_of_key(bytes: &[u8]) -> Result<EntryId> {
    let bad = || corrupt("an identity in the index of expiring entries");
    match bytes.split_first().ok_or_else(bad)? {
        (1, rest) => Ok(EntryId::Directory(DirId(u64::from_be_bytes(rest.try_into().map_err(|_| bad())?)))),
        (2, rest) => Ok(EntryId::Object(Guid(rest.try_into().map_err(|_| bad())?))),
        _ => Err(bad()),
    }
}

pub(crate) fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{what} in the tables cannot be read: exacat fsck says more"))
}

/// Names of the kinds in the table of accounts.
const ACCOUNT_KINDS: [&str; 4] = ["directory", "user", "group", "se"];

/// Place of an account's kind among these, and its number.
fn account_of_key(of: UsageOf) -> (u8, u64) {
    match of {
        UsageOf::Directory(id) => (0, id.0),
        UsageOf::User(id) => (1, u64::from(id.0)),
        UsageOf::Group(id) => (2, u64::from(id.0)),
        UsageOf::Se(se) | UsageOf::Deletions(se) => (3, u64::from(se.0)),
    }
}

fn account_key(of: UsageOf) -> Values {
    let (kind, id) = account_of_key(of);
    let kind = ACCOUNT_KINDS.get(usize::from(kind)).copied().unwrap_or_default();
    vec![text(kind), big(id >> RUN_BITS), big(id)]
}

/// Values of the primary key of an outcome.
fn operation_values(operation: OperationId) -> Values {
    vec![
        big(layout::epoch_of(operation)),
        int(shard_of_operation(operation) as u32),
        blob(operation.0.to_vec()),
    ]
}

fn se(se: SeNumber) -> CqlValue {
    int(u32::from(se.0))
}

/// Key columns, in the order of the table's primary key. An entry is in its first partition.
fn key_values(key: &Key) -> Values {
    match key {
        Key::Totals => vec![int(0)],
        Key::Entry(at) => entry_key(at, 0),
        Key::Place(EntryId::Directory(id)) => vec![big(id.0 >> RUN_BITS), big(id.0)],
        Key::Place(EntryId::Object(guid)) => vec![int(shard_of_object(*guid) as u32), uuid(*guid)],
        Key::Trash(id) => vec![big(bucket(id.0)), big(id.0.0)],
        Key::Reservation(guid) => vec![int(shard_of_reservation(*guid)), blob(guid.0.to_vec())],
        Key::Record(key) => vec![text(key.kind().name()), blob(key.to_bytes())],
        Key::Members(collection) => vec![uuid(*collection)],
        Key::Member { collection, guid } => vec![uuid(*collection), blob(guid.0.to_vec())],
        Key::Deletion { se: number, id } => {
            vec![se(*number), big(bucket(id.revision)), big(id.revision.0), int(id.index)]
        }
        Key::Copy { se: number, copy } => vec![se(*number), text(copy)],
        Key::Account(of) => account_key(*of),
        Key::Operation(id) => operation_values(*id),
        Key::OnSe { se: number, shard, guid } => {
            vec![se(*number), int(u32::from(*shard)), blob(guid.0.to_vec())]
        }
        Key::ReservationDue { expires, guid } => {
            let at = expires.0;
            vec![text(DUE_RESERVATION), big(at / DAY_MS), big(at), blob(id_key(EntryId::Object(*guid)))]
        }
        Key::Due { expires, id } => {
            let at = expires.0;
            vec![text(DUE_ENTRY), big(at / DAY_MS), big(at), blob(id_key(*id))]
        }
        Key::Layout(directory) => vec![int(0), big(directory.0)],
    }
}

fn entry_key(at: &At, bucket: u32) -> Values {
    vec![big(at.parent.0), int(bucket), text(at.name.as_str())]
}

/// Statements that read one row: the first one that returns a row has it. None for rows that are
/// never read alone. `level` is that of the entry's directory.
pub(crate) fn select(key: &Key, level: u8) -> Option<Vec<Bound>> {
    let text = match key {
        Key::Totals => {
            cql!(
                "SELECT id, next_directory, time, entries_all, requests, trash, reservations, deletions FROM totals WHERE id = ?"
            )
        }
        Key::Entry(at) => {
            let text = cql!("SELECT entry FROM children WHERE parent = ? AND bucket = ? AND name = ?");
            let bound = |bucket| Bound { text, values: entry_key(at, bucket) };
            return Some(layout::buckets_of(level, &at.name).map(bound).collect());
        }
        Key::Place(EntryId::Directory(_)) => {
            cql!("SELECT directory, parent, name FROM directories WHERE run = ? AND directory = ?")
        }
        Key::Place(EntryId::Object(_)) => {
            cql!("SELECT guid, parent, name FROM objects WHERE shard = ? AND guid = ?")
        }
        Key::Trash(_) => {
            cql!(
                "SELECT bucket, trash, lfn, removed_by, removed, entry FROM trash WHERE bucket = ? AND trash = ?"
            )
        }
        Key::Reservation(_) => {
            cql!("SELECT shard, guid, reservation FROM reservations WHERE shard = ? AND guid = ?")
        }
        Key::Record(_) => cql!("SELECT kind, key, revision, record FROM records WHERE kind = ? AND key = ?"),
        Key::Member { .. } => cql!("SELECT collection, guid FROM members WHERE collection = ? AND guid = ?"),
        Key::Deletion { .. } => {
            cql!(
                "SELECT se, bucket, revision, position, guid, size, pfn, queued FROM deletions WHERE se = ? AND bucket = ? AND revision = ? AND position = ?"
            )
        }
        Key::Copy { .. } => cql!("SELECT se, copy, deletions FROM copies WHERE se = ? AND copy = ?"),
        Key::Account(_) => {
            cql!("SELECT kind, id, counted FROM accounts WHERE kind = ? AND run = ? AND id = ?")
        }
        Key::Operation(_) => {
            cql!(
                "SELECT operation, fingerprint, outcomes FROM operations WHERE epoch = ? AND shard = ? AND operation = ?"
            )
        }
        Key::Layout(_) => cql!("SELECT directory, level FROM layouts WHERE id = ? AND directory = ?"),
        Key::Members(_) | Key::OnSe { .. } | Key::ReservationDue { .. } | Key::Due { .. } => return None,
    };
    Some(vec![Bound { text, values: key_values(key) }])
}

/// Reads entries of one partition at once. The answer leaves out missing ones.
pub(crate) fn select_entries<'a>(parent: DirId, bucket: u32, names: impl Iterator<Item = &'a Name>) -> Bound {
    let names = CqlValue::List(names.map(|name| text(name.as_str())).collect());
    Bound {
        text: cql!("SELECT entry FROM children WHERE parent = ? AND bucket = ? AND name IN ?"),
        values: vec![big(parent.0), int(bucket), names],
    }
}

/// Reads places of files in one partition at once. The answer leaves out missing ones.
pub(crate) fn select_objects(shard: u64, guids: impl Iterator<Item = Guid>) -> Bound {
    Bound {
        text: cql!("SELECT guid, parent, name FROM objects WHERE shard = ? AND guid IN ?"),
        values: vec![int(shard as u32), CqlValue::List(guids.map(uuid).collect())],
    }
}

/// Parser of a key from a row of a whole table.
type KeyOf = fn(Columns) -> Result<Key>;

/// Statements that read all keys of the filter, with their parsers.
pub(crate) const FILTERED_KEYS: [(Text, KeyOf); 6] = [
    (cql!("SELECT parent, name FROM children"), |mut row| {
        let parent = DirId(row.big()?);
        Ok(Key::Entry(At { parent, name: name_of(&row.text()?)? }))
    }),
    (cql!("SELECT guid FROM objects"), |mut row| Ok(Key::Place(EntryId::Object(row.guid()?)))),
    (cql!("SELECT operation FROM operations"), |mut row| {
        let id = row.blob()?.try_into().map_err(|_| corrupt("an operation's id"))?;
        Ok(Key::Operation(OperationId(id)))
    }),
    (cql!("SELECT guid FROM reservations"), |mut row| Ok(Key::Reservation(row.guid()?))),
    (cql!("SELECT se, copy FROM copies"), |mut row| {
        Ok(Key::Copy { se: SeNumber(row.int()? as u16), copy: row.text()? })
    }),
    (cql!("SELECT kind, id FROM accounts"), |mut row| {
        let kind = row.text()?;
        Ok(Key::Account(account_of(&kind, row.big()?)?))
    }),
];

pub(crate) fn name_of(text: &str) -> Result<Name> {
    if text == Name::root().as_str() { Ok(Name::root()) } else { Name::parse(text) }
}

/// Rows with the same one are in one partition of one table: they can be written together.
pub(crate) type Partition = (u8, u64, u64);

/// One write of a row.
pub(crate) struct Written {
    pub bound: Bound,
    /// None where partitions have one row.
    pub partition: Option<Partition>,
    /// True if it must be there before any other write: the list by which an index finds its parts.
    pub first: bool,
}

/// Partition of a row that shares one with others.
fn partition(key: &Key, row: Option<&Row>) -> Option<Partition> {
    let halves = |guid: &Guid| {
        let number = u128::from_be_bytes(guid.0);
        ((number >> 64) as u64, number as u64)
    };
    Some(match key {
        Key::Place(EntryId::Directory(id)) => (2, id.0 >> RUN_BITS, 0),
        Key::Place(EntryId::Object(guid)) => (3, shard_of_object(*guid), 0),
        Key::Operation(id) => {
            row?;
            (4, layout::epoch_of(*id), shard_of_operation(*id))
        }
        Key::OnSe { se, shard, .. } => (5, u64::from(se.0), u64::from(*shard)),
        Key::Reservation(guid) => (6, u64::from(shard_of_reservation(*guid)), 0),
        Key::Deletion { se, id } => (7, u64::from(se.0), bucket(id.revision)),
        Key::Trash(id) => (8, bucket(id.0), 0),
        Key::Account(of) => {
            let (kind, id) = account_of_key(*of);
            (9 + kind, id >> RUN_BITS, 0)
        }
        Key::Member { collection, .. } => {
            let (upper, lower) = halves(collection);
            // Beyond the kinds of accounts.
            return Some((20, upper, lower));
        }
        Key::ReservationDue { expires, .. } => (21, expires.0 / DAY_MS, 0),
        Key::Due { expires, .. } => (22, expires.0 / DAY_MS, 0),
        Key::Totals
        | Key::Entry(_)
        | Key::Record(_)
        | Key::Members(_)
        | Key::Copy { .. }
        | Key::Layout(_) => return None,
    })
}

fn entry_partition(at: &At, bucket: u32) -> Option<Partition> {
    Some((1, at.parent.0, u64::from(bucket)))
}

/// Statements that put this row into the tables, or delete it, in a directory of this `level`. They
/// write every column, and none is null. So the newest row is whole, and leaves no tombstones of
/// cells.
pub(crate) fn write(key: &Key, row: Option<&Row>, level: u8) -> Result<Vec<Written>> {
    if let Key::Entry(at) = key {
        // A row in a partition of a lower level is deleted. The new row goes to the partition of
        // the directory's present level.
        let mut all = Vec::with_capacity(1 + usize::from(level));
        for bucket in layout::buckets_of(level, &at.name) {
            let bound = match row {
                Some(Row::Entry(entry)) if all.is_empty() => insert_entry(entry, bucket),
                Some(Row::Entry(_)) | None => Bound {
                    text: cql!("DELETE FROM children WHERE parent = ? AND bucket = ? AND name = ?"),
                    values: entry_key(at, bucket),
                },
                Some(_) => return Err(another_kind(key)),
            };
            all.push(Written { bound, partition: entry_partition(at, bucket), first: false });
        }
        return Ok(all);
    }
    let partition = partition(key, row);
    let written = |bound, first: bool| Written { bound, partition: partition.filter(|_| !first), first };
    let Some(row) = row else {
        return Ok(delete(key).map(|bound| written(bound, false)).into_iter().collect());
    };
    let mut values = key_values(key);
    let text_of = match (key, row) {
        (Key::Totals, Row::Totals(totals)) => {
            let Totals { next_directory, time: last, entries, requests, trash, reservations, deletions } =
                totals;
            values.extend([big(*next_directory), time(*last)]);
            values.extend([entries, requests, trash, reservations, deletions].map(|number| big(*number)));
            cql!(
                "INSERT INTO totals (id, next_directory, time, entries_all, requests, trash, reservations, deletions) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
            )
        }
        (Key::Place(id), Row::Place(place)) => {
            values.extend(match place {
                Where::At(at) => [big(at.parent.0), text(at.name.as_str())],
                // An item of the trash: its number, negated.
                Where::Trash(trash) => [CqlValue::BigInt(-(trash.0.0 as i64)), text("")],
            });
            match id {
                EntryId::Directory(_) => {
                    cql!("INSERT INTO directories (run, directory, parent, name) VALUES (?, ?, ?, ?)")
                }
                EntryId::Object(_) => {
                    cql!("INSERT INTO objects (shard, guid, parent, name) VALUES (?, ?, ?, ?)")
                }
            }
        }
        (Key::Trash(_), Row::Trash(item)) => {
            values.extend([text(item.lfn.as_str()), big(u64::from(item.removed_by.0)), time(item.removed)]);
            values.push(blob(item.entry.to_bytes()));
            cql!(
                "INSERT INTO trash (bucket, trash, lfn, removed_by, removed, entry) VALUES (?, ?, ?, ?, ?, ?)"
            )
        }
        (Key::Reservation(_), Row::Reservation(reservation)) => {
            values.extend([
                text(reservation.lfn.as_str()),
                big(u64::from(reservation.owner.0)),
                big(reservation.size),
            ]);
            values.extend([time(reservation.expires), blob(reservation.to_bytes())]);
            cql!(
                "INSERT INTO reservations (shard, guid, lfn, owner, size, expires, reservation) VALUES (?, ?, ?, ?, ?, ?, ?)"
            )
        }
        (Key::Record(_), Row::Record { record, revision }) => {
            values.extend([text(record.unique_name().unwrap_or("")), big(revision.0)]);
            values.extend([text(&format!("{record:?}")), blob(record.to_bytes())]);
            cql!("INSERT INTO records (kind, key, name, revision, shown, record) VALUES (?, ?, ?, ?, ?, ?)")
        }
        (Key::Member { .. }, Row::There) => cql!("INSERT INTO members (collection, guid) VALUES (?, ?)"),
        (Key::Deletion { .. }, Row::Deletion(deletion)) => {
            let pfn = match &deletion.location {
                Location::Explicit(pfn) => pfn.as_str(),
                _ => "",
            };
            values.extend([uuid(deletion.guid), size_value(deletion.size), text(pfn), time(deletion.queued)]);
            cql!(
                "INSERT INTO deletions (se, bucket, revision, position, guid, size, pfn, queued) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
            )
        }
        (Key::Copy { .. }, Row::Copies(ids)) => {
            let id = |id: &DeletionId| CqlValue::Tuple(vec![Some(big(id.revision.0)), Some(int(id.index))]);
            values.push(CqlValue::List(ids.iter().map(id).collect()));
            cql!("INSERT INTO copies (se, copy, deletions) VALUES (?, ?, ?)")
        }
        (Key::Account(_), Row::Account(counted)) => {
            let Usage { directories, files, members, others, replicas, bytes, member_bytes, replica_bytes } =
                counted.usage;
            values.extend([directories, files, members, others, replicas].map(big));
            values.extend([bytes, member_bytes, replica_bytes].map(var));
            values.push(blob(counted.to_bytes()));
            cql!(
                "INSERT INTO accounts (kind, run, id, directories, files, members, others, replicas, bytes, member_bytes, replica_bytes, counted) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
            )
        }
        (Key::Operation(id), Row::Operation(remembered)) => {
            values = operation_values(*id);
            values.extend([big(remembered.fingerprint.0), blob(remembered.outcomes.to_bytes())]);
            cql!(
                "INSERT INTO operations (epoch, shard, operation, fingerprint, outcomes) VALUES (?, ?, ?, ?, ?)"
            )
        }
        (Key::Layout(_), Row::Layout(level)) => {
            values.push(int(u32::from(*level)));
            cql!("INSERT INTO layouts (id, directory, level) VALUES (?, ?, ?)")
        }
        (Key::OnSe { .. }, Row::There) => cql!("INSERT INTO on_se (se, shard, guid) VALUES (?, ?, ?)"),
        (Key::ReservationDue { .. } | Key::Due { .. }, Row::There) => {
            // The day first: an index without its day would be missing, an empty day is harmless.
            let day = Bound {
                text: cql!("INSERT INTO due_days (kind, day) VALUES (?, ?)"),
                values: values[..2].to_vec(),
            };
            let due =
                Bound { text: cql!("INSERT INTO due (kind, day, expires, id) VALUES (?, ?, ?, ?)"), values };
            return Ok(vec![written(day, true), written(due, false)]);
        }
        _ => return Err(another_kind(key)),
    };
    Ok(vec![written(Bound { text: text_of, values }, false)])
}

fn another_kind(key: &Key) -> Error {
    Error::new(ErrorKind::Corrupt, format!("a row of another kind under {key:?}"))
}

/// Statement that deletes a row; none for outcomes of requests, which expire.
fn delete(key: &Key) -> Option<Bound> {
    let text = match key {
        Key::Totals => cql!("DELETE FROM totals WHERE id = ?"),
        Key::Entry(_) | Key::Operation(_) => return None,
        Key::Place(EntryId::Directory(_)) => cql!("DELETE FROM directories WHERE run = ? AND directory = ?"),
        Key::Place(EntryId::Object(_)) => cql!("DELETE FROM objects WHERE shard = ? AND guid = ?"),
        Key::Trash(_) => cql!("DELETE FROM trash WHERE bucket = ? AND trash = ?"),
        Key::Reservation(_) => cql!("DELETE FROM reservations WHERE shard = ? AND guid = ?"),
        Key::Record(_) => cql!("DELETE FROM records WHERE kind = ? AND key = ?"),
        Key::Members(_) => cql!("DELETE FROM members WHERE collection = ?"),
        Key::Member { .. } => cql!("DELETE FROM members WHERE collection = ? AND guid = ?"),
        Key::Deletion { .. } => {
            cql!("DELETE FROM deletions WHERE se = ? AND bucket = ? AND revision = ? AND position = ?")
        }
        Key::Copy { .. } => cql!("DELETE FROM copies WHERE se = ? AND copy = ?"),
        Key::Account(_) => cql!("DELETE FROM accounts WHERE kind = ? AND run = ? AND id = ?"),
        Key::Layout(_) => cql!("DELETE FROM layouts WHERE id = ? AND directory = ?"),
        Key::OnSe { .. } => cql!("DELETE FROM on_se WHERE se = ? AND shard = ? AND guid = ?"),
        Key::ReservationDue { .. } | Key::Due { .. } => {
            cql!("DELETE FROM due WHERE kind = ? AND day = ? AND expires = ? AND id = ?")
        }
    };
    Some(Bound { text, values: key_values(key) })
}

/// No size is -1, which no file has.
fn size_value(size: Option<u64>) -> CqlValue {
    size.map_or(CqlValue::BigInt(-1), big)
}

/// Writes an entry: columns that a person looks for, and the whole entry in canonical bytes. Fewer
/// cells make listings cheap.
fn insert_entry(entry: &Entry, bucket: u32) -> Bound {
    let guid = match entry.id() {
        EntryId::Directory(id) => Guid(u128::from(id.0).to_be_bytes()),
        EntryId::Object(guid) => guid,
    };
    let mut values = entry_key(&entry.at, bucket);
    values.extend([text(entry.kind().name()), uuid(guid), size_value(entry.size()), time(entry.modified)]);
    values.push(blob(entry.to_bytes()));
    Bound {
        text: cql!(
            "INSERT INTO children (parent, bucket, name, kind, guid, size, modified, entry) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        ),
        values,
    }
}

/// Columns of a row that was read, taken one after the other.
pub(crate) struct Columns(std::vec::IntoIter<Option<CqlValue>>);

impl Columns {
    pub(crate) fn new(row: scylla::value::Row) -> Self {
        Columns(row.columns.into_iter())
    }

    fn value(&mut self) -> Result<CqlValue> {
        self.0.next().flatten().ok_or_else(|| corrupt("a column without a value"))
    }

    /// Takes a number; none if it is null.
    pub(crate) fn maybe_big(&mut self) -> Result<Option<u64>> {
        match self.0.next().flatten() {
            None => Ok(None),
            Some(CqlValue::BigInt(number)) => Ok(Some(number as u64)),
            Some(other) => Err(corrupt(format!("{other:?}"))),
        }
    }

    pub(crate) fn big(&mut self) -> Result<u64> {
        self.maybe_big()?.ok_or_else(|| corrupt("a number without a value"))
    }

    pub(crate) fn int(&mut self) -> Result<u32> {
        match self.value()? {
            CqlValue::Int(number) => Ok(number as u32),
            other => Err(corrupt(format!("{other:?}"))),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        match self.value()? {
            CqlValue::Text(text) => Ok(text),
            other => Err(corrupt(format!("{other:?}"))),
        }
    }

    /// Takes bytes; empty if it is null.
    pub(crate) fn blob(&mut self) -> Result<Vec<u8>> {
        match self.0.next().flatten() {
            None | Some(CqlValue::Empty) => Ok(Vec::new()),
            Some(CqlValue::Blob(bytes)) => Ok(bytes),
            Some(other) => Err(corrupt(format!("{other:?}"))),
        }
    }

    pub(crate) fn guid(&mut self) -> Result<Guid> {
        match self.value()? {
            CqlValue::Uuid(uuid) => Ok(Guid(uuid.into_bytes())),
            CqlValue::Blob(bytes) => bytes.try_into().map(Guid).map_err(|_| corrupt("a GUID")),
            other => Err(corrupt(format!("{other:?}"))),
        }
    }

    pub(crate) fn time(&mut self) -> Result<TimeMs> {
        self.maybe_time()?.ok_or_else(|| corrupt("a time without a value"))
    }

    /// Takes a time; none if it is null.
    pub(crate) fn maybe_time(&mut self) -> Result<Option<TimeMs>> {
        match self.0.next().flatten() {
            None => Ok(None),
            Some(CqlValue::Timestamp(time)) => Ok(Some(TimeMs(time.0 as u64))),
            Some(other) => Err(corrupt(format!("{other:?}"))),
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
}

/// Parses the row that [`select`] reads for this key.
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
                reservations: row.big()?,
                deletions: row.big()?,
            })
        }
        Key::Entry(_) => entry_row_of(row)?.1,
        Key::Place(id) => {
            match id {
                EntryId::Directory(_) => drop(row.big()?),
                EntryId::Object(_) => drop(row.guid()?),
            }
            Row::Place(place_of(row)?)
        }
        Key::Trash(_) => trash_of(row)?.1,
        Key::Reservation(_) => reservation_of(row)?.1,
        Key::Record(_) => record_of(row)?.1,
        Key::Member { .. } => Row::There,
        Key::Deletion { .. } => deletion_of(row)?.1,
        Key::Copy { .. } => copies_of(row)?.1,
        Key::Account(_) => account_row_of(row)?.1,
        Key::Operation(_) => {
            row.blob()?;
            Row::Operation(Remembered { fingerprint: Fingerprint(row.big()?), outcomes: row.decoded()? })
        }
        Key::Layout(_) => layout_of(row)?.1,
        Key::Members(_) | Key::OnSe { .. } | Key::ReservationDue { .. } | Key::Due { .. } => Row::There,
    })
}

fn deletion_id_of(value: CqlValue) -> Result<DeletionId> {
    let mut row = Columns::tuple(value)?;
    Ok(DeletionId { revision: Revision(row.big()?), index: row.int()? })
}

fn place_of(mut row: Columns) -> Result<Where> {
    let (parent, name) = (row.big()?, row.text()?);
    let trash = (parent as i64).wrapping_neg();
    if trash > 0 {
        return Ok(Where::Trash(TrashId(Revision(trash as u64))));
    }
    Ok(Where::At(At { parent: DirId(parent), name: name_of(&name)? }))
}

// ---- rows of slices: with their keys ----

/// Parses a row of `trash`.
pub(crate) fn trash_of(mut row: Columns) -> Result<(Key, Row)> {
    row.big()?;
    let id = TrashId(Revision(row.big()?));
    let lfn = row.text()?;
    // As in the canonical bytes: a path may exceed the limits by now.
    let lfn = Lfn::from_bytes(&lfn.to_bytes()).map_err(corrupt)?;
    let removed_by = UserId(row.big()? as u32);
    let removed = row.time()?;
    let entry = row.decoded()?;
    Ok((Key::Trash(id), Row::Trash(Trashed { lfn, entry, removed_by, removed })))
}

/// Parses a row of `reservations`: shard, guid, reservation.
pub(crate) fn reservation_of(mut row: Columns) -> Result<(Key, Row)> {
    row.int()?;
    let guid = row.guid()?;
    Ok((Key::Reservation(guid), Row::Reservation(row.decoded()?)))
}

/// Parses a row of `records`: kind, key, revision, record.
pub(crate) fn record_of(mut row: Columns) -> Result<(Key, Row)> {
    row.text()?;
    let key: RecordKey = row.decoded()?;
    let revision = Revision(row.big()?);
    Ok((Key::Record(key), Row::Record { record: row.decoded()?, revision }))
}

/// Parses a row of `members`: collection, guid.
pub(crate) fn member_of(mut row: Columns) -> Result<(Key, Row)> {
    Ok((Key::Member { collection: row.guid()?, guid: row.guid()? }, Row::There))
}

/// Parses a row of `deletions`.
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

/// Parses a row of `on_se`.
pub(crate) fn on_se_of(mut row: Columns) -> Result<(Key, Row)> {
    let se = SeNumber(row.int()? as u16);
    let shard = row.int()? as u8;
    Ok((Key::OnSe { se, shard, guid: row.guid()? }, Row::There))
}

/// Parses a row of `due`: kind, day, expires, id.
pub(crate) fn due_of(mut row: Columns) -> Result<(Key, Row)> {
    let kind = row.text()?;
    row.big()?;
    let expires = TimeMs(row.big()?);
    let id = id_of_key(&row.blob()?)?;
    let key = match (kind.as_str(), id) {
        (DUE_ENTRY, id) => Key::Due { expires, id },
        (DUE_RESERVATION, EntryId::Object(guid)) => Key::ReservationDue { expires, guid },
        _ => return Err(corrupt("the index of expiring entries")),
    };
    Ok((key, Row::There))
}

/// Parses a row of `children`: entry.
pub(crate) fn entry_row_of(mut row: Columns) -> Result<(Key, Row)> {
    let entry: Entry = row.decoded()?;
    Ok((Key::Entry(entry.at.clone()), Row::Entry(entry)))
}

/// Parses a row of `layouts`: directory, level.
pub(crate) fn layout_of(mut row: Columns) -> Result<(Key, Row)> {
    let key = Key::Layout(DirId(row.big()?));
    let level = u8::try_from(row.int()?).map_err(corrupt)?;
    Ok((key, Row::Layout(level)))
}

/// Parses a row of `copies`: se, copy, deletions.
pub(crate) fn copies_of(mut row: Columns) -> Result<(Key, Row)> {
    let key = Key::Copy { se: SeNumber(row.int()? as u16), copy: row.text()? };
    let ids: Result<Vec<DeletionId>> = row.list()?.into_iter().map(deletion_id_of).collect();
    Ok((key, Row::Copies(ids?)))
}

fn account_of(kind: &str, id: u64) -> Result<UsageOf> {
    Ok(match kind {
        "directory" => UsageOf::Directory(DirId(id)),
        "user" => UsageOf::User(UserId(id as u32)),
        "group" => UsageOf::Group(GroupId(id as u32)),
        "se" => UsageOf::Se(SeNumber(id as u16)),
        other => return Err(corrupt(format!("an account of a {other}"))),
    })
}

/// Parses a row of `accounts`: kind, id, counted.
pub(crate) fn account_row_of(mut row: Columns) -> Result<(Key, Row)> {
    let kind = row.text()?;
    let of = account_of(&kind, row.big()?)?;
    Ok((Key::Account(of), Row::Account(row.decoded()?)))
}

/// Parses a row of `objects`: guid, parent, name.
pub(crate) fn object_row_of(mut row: Columns) -> Result<(Key, Row)> {
    let id = EntryId::Object(row.guid()?);
    place_row_of(id, row)
}

/// Parses a row of `directories` or `objects` after its identity.
pub(crate) fn place_row_of(id: EntryId, row: Columns) -> Result<(Key, Row)> {
    Ok((Key::Place(id), Row::Place(place_of(row)?)))
}
