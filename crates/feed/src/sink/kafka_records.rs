//! Makes the records of a topic out of events: CloudEvents 1.0 in the binary mode of their Kafka binding.

use std::collections::BTreeMap;

use exacat_model::EntryId;
use rskafka::chrono::{DateTime, Utc};
use rskafka::record::Record;

use super::cloud::{Attributes, DATA_TYPE, SPEC_VERSION, put_type};
use crate::batch::{Batch, Head, Op};
use crate::json::{put_bare, put_entry, put_entry_bare, put_number};
use crate::limits::{KAFKA_BYTES, KAFKA_RECORDS};

/// Key of events about all that the feed shows.
const ALL: &[u8] = b"all";
/// Kind of the record that rows of a directory begin.
const ROWS: &str = "rows";
/// Bytes that the format adds to those of a record: the lengths of its parts, and those of its headers.
const RECORD_OVERHEAD: usize = 64;

/// Records of one request.
#[derive(Debug)]
pub(crate) struct RecordSet {
    pub records: Vec<Record>,
    /// Bytes before they are compressed.
    pub bytes: usize,
}

/// Returns the records of a batch, by request. All records of an event are in one request.
pub(crate) fn requests(batch: &Batch, attributes: &Attributes) -> impl Iterator<Item = RecordSet> {
    let mut events = batch.events();
    let mut next: Option<Vec<Record>> = None;
    std::iter::from_fn(move || {
        let mut set = RecordSet { records: Vec::new(), bytes: 0 };
        while let Some(records) =
            next.take().or_else(|| events.next().map(|(head, line)| records(head, line, attributes)))
        {
            let bytes =
                records.iter().map(|record| record.approximate_size() + RECORD_OVERHEAD).sum::<usize>();
            let is_full =
                set.records.len() + records.len() > KAFKA_RECORDS || set.bytes + bytes > KAFKA_BYTES;
            if is_full && !set.records.is_empty() {
                next = Some(records);
                break;
            }
            set.records.extend(records);
            set.bytes += bytes;
        }
        (!set.records.is_empty()).then_some(set)
    })
}

/// Returns the records of an event: its own, and those that make a compacted topic right.
fn records(head: &Head, line: &[u8], attributes: &Attributes) -> Vec<Record> {
    let (timestamp, key) = (timestamp(head), key(head));
    let value = line.strip_suffix(b"\n").unwrap_or(line).to_vec();
    let directory = head.entry.filter(|entry| matches!(entry, EntryId::Directory(_)));
    let mut records = vec![Record {
        key: Some(key.clone()),
        value: Some(value),
        headers: headers(head, attributes, head.op.name(), ""),
        timestamp,
    }];
    let tombstone = |key| Record { key: Some(key), value: None, headers: BTreeMap::new(), timestamp };
    match head.op {
        Op::Gone if head.entry.is_some() => {
            records.push(tombstone(key));
            records.extend(directory.map(|id| tombstone(rows_key(id))));
        }
        Op::Row => records.extend(directory.map(|id| Record {
            key: Some(rows_key(id)),
            value: Some(rows_value(head, id)),
            headers: headers(head, attributes, ROWS, ".rows"),
            timestamp,
        })),
        _ => {}
    }
    records
}

/// Returns the headers of a record.
fn headers(head: &Head, attributes: &Attributes, op: &str, id_end: &str) -> BTreeMap<String, Vec<u8>> {
    let made = |put: &dyn Fn(&mut Vec<u8>)| {
        let mut value = Vec::new();
        put(&mut value);
        value
    };
    let id = made(&|out| {
        attributes.put_id(out, head);
        out.extend_from_slice(id_end.as_bytes());
    });
    BTreeMap::from([
        ("ce_specversion".to_owned(), SPEC_VERSION.into()),
        ("ce_id".to_owned(), id),
        ("ce_source".to_owned(), attributes.source.as_bytes().to_vec()),
        ("ce_type".to_owned(), made(&|out| put_type(out, op))),
        ("ce_time".to_owned(), made(&|out| put_bare(out, head.time))),
        ("content-type".to_owned(), DATA_TYPE.into()),
    ])
}

/// Returns the key of the record that rows of a directory begin.
fn rows_key(directory: EntryId) -> Vec<u8> {
    let mut key = b"rows:".to_vec();
    put_entry_bare(&mut key, directory);
    key
}

/// Returns the value of that record. Compaction keeps it beside later events of the directory: entries with
/// older records were in the directory before it came into sight, and may be gone.
fn rows_value(head: &Head, directory: EntryId) -> Vec<u8> {
    let mut out = b"{\"revision\":".to_vec();
    put_number(&mut out, head.revision.0);
    out.extend_from_slice(b",\"index\":");
    put_number(&mut out, head.index);
    out.extend_from_slice(b",\"op\":\"rows\",\"entry\":");
    put_entry(&mut out, directory);
    out.push(b'}');
    out
}

/// Returns the key of an event's record. It is never missing: a compacted topic refuses records without one.
fn key(head: &Head) -> Vec<u8> {
    match (head.entry, head.op) {
        (Some(entry), _) => {
            let mut key = Vec::new();
            put_entry_bare(&mut key, entry);
            key
        }
        // A directory above the feed's went, or came back.
        (None, Op::Moved | Op::Gone) => ALL.to_vec(),
        (None, op) => op.name().as_bytes().to_vec(),
    }
}

/// Returns the time of an event. Times beyond the calendar of the format become its first one, which brokers
/// take unless they are configured otherwise.
fn timestamp(head: &Head) -> DateTime<Utc> {
    let ms = i64::try_from(head.time.0).ok();
    ms.and_then(DateTime::from_timestamp_millis).unwrap_or(DateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use exacat_model::{DirId, Guid, Revision, TimeMs, TimelineId};

    use super::*;

    fn attributes() -> Attributes {
        Attributes::new(Guid([7; 16]), TimelineId([0xab; 16]))
    }

    fn head(op: Op, entry: Option<EntryId>) -> Head {
        let time = TimeMs(1_800_000_000_120);
        Head { end: 0, op, revision: Revision(5), index: 0, time, version: 0, entry }
    }

    /// Makes a batch of events with lines of these lengths.
    fn batch(events: impl IntoIterator<Item = (Op, usize)>) -> Batch {
        let mut batch = Batch::default();
        for (op, length) in events {
            batch.bytes.extend(std::iter::repeat_n(b'x', length));
            let end = batch.bytes.len();
            batch.heads.push(Head { end, ..head(op, Some(EntryId::Directory(DirId(9)))) });
        }
        batch
    }

    fn shape(batch: &Batch) -> Vec<(usize, usize)> {
        requests(batch, &attributes()).map(|set| (set.records.len(), set.bytes)).collect()
    }

    /// Property: a record has the attributes of its event as the Kafka binding of CloudEvents has them, the
    /// line as its value, and the time of the event.
    #[test]
    fn record_is_a_cloud_event_with_the_entry_as_its_key() {
        let (attributes, guid) = (attributes(), Guid([3; 16]));
        let made = records(&head(Op::Created, Some(EntryId::Object(guid))), b"{\"a\":1}\n", &attributes);
        let [record] = &made[..] else { panic!("{made:?}") };
        assert_eq!(record.key, Some(guid.to_string().into_bytes()));
        assert_eq!(record.value.as_deref(), Some(&b"{\"a\":1}"[..]));
        assert_eq!(record.timestamp.timestamp_millis(), 1_800_000_000_120);
        let shown = |name: &str| String::from_utf8(record.headers[name].clone()).unwrap();
        let (catalogue, timeline) = (Guid([7; 16]), TimelineId([0xab; 16]));
        assert_eq!(shown("ce_id"), format!("{catalogue}.{timeline}.5.0.c"));
        assert_eq!(shown("ce_source"), format!("/exacat/{catalogue}"));
        assert_eq!((shown("ce_type"), shown("ce_specversion")), ("exacat.c".to_owned(), "1.0".to_owned()));
        assert_eq!(shown("ce_time"), TimeMs(1_800_000_000_120).to_string());
        assert_eq!((shown("content-type").as_str(), record.headers.len()), ("application/json", 6));
    }

    /// Property: only an entry that is gone has a tombstone; each record has a key; and no key of another
    /// event can be that of an entry.
    #[test]
    fn entry_that_is_gone_has_a_tombstone_and_every_record_a_key() {
        let (attributes, id) = (attributes(), EntryId::Directory(DirId(12)));
        let made = records(&head(Op::Gone, Some(id)), b"{}\n", &attributes);
        let shown: Vec<_> =
            made.iter().map(|record| (record.key.as_deref(), record.value.as_deref())).collect();
        let (key, rows) = (Some(&b"directory:12"[..]), Some(&b"rows:directory:12"[..]));
        assert_eq!(shown, [(key, Some(&b"{}"[..])), (key, None), (rows, None)]);
        assert!(made[1].headers.is_empty() && made[2].headers.is_empty());
        let file = Some(EntryId::Object(Guid([3; 16])));
        let counts = [Op::Gone, Op::Row].map(|op| records(&head(op, file), b"{}\n", &attributes).len());
        assert_eq!(counts, [2, 1]);
        for (op, key) in [
            (Op::Gone, "all"),
            (Op::Moved, "all"),
            (Op::Other, "x"),
            (Op::Mark, "mark"),
            (Op::CopyBegins, "copy"),
            (Op::CopyEnds, "copied"),
            (Op::Lost, "lost"),
            (Op::Parted, "parted"),
        ] {
            let made = records(&head(op, None), b"{}\n", &attributes);
            assert_eq!((made.len(), made[0].key.as_deref()), (1, Some(key.as_bytes())));
        }
        for op in [Op::Created, Op::Updated, Op::Moved] {
            let made = records(&head(op, Some(id)), b"{}\n", &attributes);
            assert_eq!((made.len(), made[0].key.as_deref()), (1, Some(&b"directory:12"[..])));
        }
    }

    /// Property: a row of a directory is followed by a record that compaction keeps apart, with an id of its
    /// own.
    #[test]
    fn row_of_a_directory_begins_its_rows() {
        let (attributes, id) = (attributes(), EntryId::Directory(DirId(12)));
        let row = Head { index: 3, version: 4, ..head(Op::Row, Some(id)) };
        let made = records(&row, b"{}\n", &attributes);
        let [row, rows] = &made[..] else { panic!("{made:?}") };
        assert_eq!(row.key.as_deref(), Some(&b"directory:12"[..]));
        assert_eq!(rows.key.as_deref(), Some(&b"rows:directory:12"[..]));
        let value: serde_json::Value = serde_json::from_slice(rows.value.as_ref().unwrap()).unwrap();
        let wanted = serde_json::json!({"revision": 5, "index": 3, "op": "rows", "entry": "directory:12"});
        assert_eq!(value, wanted);
        assert_eq!(rows.headers["ce_type"], b"exacat.rows");
        assert!(row.headers["ce_id"].ends_with(b".5.3.4") && rows.headers["ce_id"].ends_with(b".5.3.4.rows"));
    }

    /// Property: a request has at most so many records, and an event is never parted from its tombstones.
    #[test]
    fn requests_end_at_their_number_of_records() {
        let created = |count: usize| std::iter::repeat_n((Op::Created, 10), count);
        let counts = |batch: &Batch| shape(batch).iter().map(|(count, _)| *count).collect::<Vec<_>>();
        assert_eq!(counts(&batch([])), [] as [usize; 0]);
        assert_eq!(counts(&batch(created(KAFKA_RECORDS))), [KAFKA_RECORDS]);
        assert_eq!(counts(&batch(created(KAFKA_RECORDS + 1))), [KAFKA_RECORDS, 1]);
        let gone = created(KAFKA_RECORDS - 3).chain([(Op::Gone, 10)]);
        assert_eq!(counts(&batch(gone)), [KAFKA_RECORDS]);
        let gone = created(KAFKA_RECORDS - 2).chain([(Op::Gone, 10)]);
        assert_eq!(counts(&batch(gone)), [KAFKA_RECORDS - 2, 3]);
    }

    /// Property: a request has at most so many bytes, apart from one longer event, which goes alone.
    #[test]
    fn requests_end_at_their_number_of_bytes() {
        let rest = shape(&batch([(Op::Created, 0)]))[0].1;
        let half = KAFKA_BYTES / 2 - rest;
        assert_eq!(shape(&batch([(Op::Created, half), (Op::Created, half)])), [(2, KAFKA_BYTES)]);
        let more = shape(&batch([(Op::Created, half), (Op::Created, half + 1)]));
        assert_eq!(more, [(1, KAFKA_BYTES / 2), (1, KAFKA_BYTES / 2 + 1)]);
        let long = shape(&batch([(Op::Created, 1), (Op::Created, 2 * KAFKA_BYTES), (Op::Created, 1)]));
        assert_eq!(long.iter().map(|(count, _)| *count).collect::<Vec<_>>(), [1, 1, 1]);
        assert!(long[1].1 > 2 * KAFKA_BYTES);
    }

    #[test]
    fn time_beyond_the_calendar_is_no_panic() {
        for ms in [0, u64::MAX, i64::MAX as u64, 8_210_266_876_799_999] {
            let time = TimeMs(ms);
            let made = records(&Head { time, ..head(Op::Created, None) }, b"{}\n", &attributes());
            assert!(made[0].timestamp.timestamp_millis() <= ms.min(i64::MAX as u64) as i64);
        }
    }
}
