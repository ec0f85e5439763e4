//! What can be tested without a cluster: rows become columns and rows again, and what is known stays exact.
#![allow(clippy::unwrap_used, reason = "tests")]

use exacat_model::{
    At, Body, BookedReplica, Booking, Checksum, Checksums, Deletion, DeletionId, DirId, Entry, EntryId, File,
    GroupId, Guid, Lfn, Location, Mode, Name, Pfn, Replica, ReplicaState, Revision, SeNumber, Tag, TagKey,
    TagValue, TimeMs, TrashId, Usage, UserId,
};
use exacat_store::UsageOf;
use exacat_store::rules::{Trashed, View, new_records, new_root};
use scylla::value::Row as CqlRow;

use crate::cluster::moment;
use crate::known::{Group, Known};
use crate::rows::{Counted, Image, Key, Remembered, Row, Totals, Where};
use crate::tables::{self, Columns};
use crate::working::{Look, Need, counted};

fn guid(number: u8) -> Guid {
    Guid([number; 16])
}

fn at(parent: u64, name: &str) -> At {
    At { parent: DirId(parent), name: Name::parse(name).unwrap() }
}

fn entry(name: &str, body: Body) -> Entry {
    let tag = |key: &str, value| Tag { key: TagKey::parse(key).unwrap(), value };
    Entry {
        at: at(7, name),
        owner: UserId(u32::MAX),
        group: GroupId(3),
        mode: Mode::new(0o751).unwrap(),
        created: TimeMs(0),
        modified: TimeMs(u64::MAX),
        revision: Revision(9),
        expires: Some(TimeMs(u64::MAX)),
        tags: vec![
            tag("a", TagValue::Integer(i64::MIN)),
            tag("b", TagValue::Real(-0.5)),
            tag("c", TagValue::Text("'; --".to_owned())),
            tag("d", TagValue::Time(TimeMs(5))),
            tag("e", TagValue::Boolean(true)),
        ],
        body,
    }
}

fn file(size: Option<u64>, job: Option<u64>, replicas: Vec<Replica>) -> Body {
    let mut checksums = Checksums::none();
    checksums.add(Checksum::parse("adler32:00000001").unwrap()).unwrap();
    checksums.add(Checksum::parse("md5:d41d8cd98f00b204e9800998ecf8427e").unwrap()).unwrap();
    Body::File(File { guid: guid(1), size, checksums, job, replicas })
}

fn replica(se: u16, state: ReplicaState, location: Location) -> Replica {
    Replica { se: SeNumber(se), state, location }
}

fn rows() -> Vec<(Key, Row)> {
    let member = Location::Member { archive: guid(4), member: "a b/c".to_owned() };
    let explicit = Location::Explicit(Pfn::parse("root://h//x?y=z").unwrap());
    let replicas = vec![
        replica(1, ReplicaState::Lost, Location::Derived),
        replica(u16::MAX, ReplicaState::Suspect, explicit.clone()),
    ];
    let entries = [
        entry("d", Body::Directory(DirId(u64::from(u32::MAX)))),
        entry("f", file(None, None, Vec::new())),
        entry("g", file(Some(0), Some(u64::MAX), replicas)),
        entry("ä'\n", file(Some(1 << 60), Some(0), vec![replica(0, ReplicaState::Available, member)])),
        entry("c", Body::Collection { guid: guid(2), members: 12 }),
        entry("l", Body::Link { guid: guid(3), target: Lfn::parse("/a/ b").unwrap() }),
        Entry { expires: None, tags: Vec::new(), ..entry("e", file(None, None, Vec::new())) },
        new_root(),
    ];
    let booking = Booking {
        guid: guid(5),
        lfn: Lfn::parse("/a").unwrap(),
        owner: UserId(1),
        group: GroupId(2),
        mode: Mode::FILE,
        size: 7,
        checksums: Checksums::none(),
        job: None,
        created: TimeMs(1),
        expires: TimeMs(2),
        pending: vec![BookedReplica { se: SeNumber(1), location: Location::Derived }],
        exists: false,
    };
    let id = DeletionId { revision: Revision(1 << 40), index: 3 };
    let deletion = |location| Deletion { id, guid: guid(1), size: None, location, queued: TimeMs(4) };
    let usage = Usage { files: 1, bytes: u128::from(u64::MAX) * 5, directories: 2, ..Usage::default() };
    let item = Trashed {
        lfn: Lfn::parse("/as/it/was").unwrap(),
        entry: entries[2].clone(),
        removed_by: UserId(3),
        removed: TimeMs(8),
    };
    let mut rows: Vec<(Key, Row)> =
        entries.into_iter().map(|entry| (Key::Entry(entry.at.clone()), Row::Entry(entry))).collect();
    rows.extend(
        new_records()
            .map(|record| (Key::Record(record.key()), Row::Record { record, revision: Revision(2) })),
    );
    rows.extend([
        (Key::Totals, Row::Totals(Totals { next_directory: 2, requests: 3, ..Totals::default() })),
        (Key::Place(EntryId::Object(guid(1))), Row::Place(Where::At(at(3, "x")))),
        (Key::Place(EntryId::Directory(DirId(5))), Row::Place(Where::Trash(TrashId(Revision(6))))),
        (Key::Place(new_root().id()), Row::Place(Where::At(new_root().at))),
        (Key::Trash(TrashId(Revision(6))), Row::Trash(item)),
        (Key::Booking(guid(5)), Row::Booking(booking)),
        (Key::Member { collection: guid(2), guid: guid(1) }, Row::There),
        (Key::Deletion { se: SeNumber(9), id }, Row::Deletion(deletion(Location::Derived))),
        (Key::Deletion { se: SeNumber(8), id }, Row::Deletion(deletion(explicit))),
        (Key::Copy { se: SeNumber(9), copy: "pfn:x".to_owned() }, Row::Copies(vec![id, id])),
        (
            Key::Account(UsageOf::User(UserId(4))),
            Row::Account(Counted { usage, bookings: 2, ..Counted::default() }),
        ),
        (
            Key::Operation(exacat_model::OperationId([3; 16])),
            Row::Operation(Remembered { ordinal: 4, outcomes: vec![(0, (Revision(1), None))] }),
        ),
    ]);
    rows
}

/// Columns that a statement reads or writes, in its order.
fn columns(text: &str) -> Vec<String> {
    let list = match text.strip_prefix("SELECT ") {
        Some(rest) => rest.split(" FROM ").next().unwrap(),
        None => text.split('(').nth(1).unwrap().split(')').next().unwrap(),
    };
    list.split(',').map(|name| name.trim().to_owned()).collect()
}

/// Goal: what is written is read again, for every kind of row, by statements that name the same columns; and no value is null.
#[test]
fn rows_become_columns_and_rows_again() {
    let rows = rows();
    assert!(rows.len() > 20);
    for (key, row) in rows {
        let bounds = tables::write(&key, Some(&row)).unwrap();
        let write = bounds.last().unwrap();
        let written = columns(write.text);
        assert_eq!(written.len(), write.values.len(), "{}", write.text);
        let select = tables::select(&key).unwrap();
        let value = |name: &String| {
            let place = written.iter().position(|other| other == name).unwrap();
            Some(write.values[place].clone())
        };
        let read = CqlRow { columns: columns(select.text).iter().map(value).collect() };
        assert_eq!(tables::row_of(&key, Columns::new(read)).unwrap(), row, "{key:?}");
        let images = vec![Image { key, row: Some(row) }];
        let mut bytes = Vec::new();
        exacat_model::codec::Encode::encode(&images, &mut bytes);
        assert_eq!(<Vec<Image> as exacat_model::codec::Decode>::from_bytes(&bytes).unwrap(), images);
    }
}

#[test]
fn a_row_of_another_kind_is_refused() {
    assert!(tables::write(&Key::Totals, Some(&Row::There)).is_err());
    let cut = CqlRow { columns: Vec::new() };
    assert!(tables::row_of(&Key::Totals, Columns::new(cut)).is_err());
}

fn account(files: u64) -> Row {
    Row::Account(Counted { usage: Usage { files, ..Usage::default() }, ..Counted::default() })
}

fn group(first: u64, last: u64, images: Vec<(Key, Option<Row>)>) -> Group {
    let images = images.into_iter().map(|(key, row)| Image { key, row }).collect();
    Group { first: Revision(first), last: Revision(last), images }
}

/// Goal: what is known is what the groups made of it, whatever is fetched meanwhile.
#[test]
fn what_is_known_stays_exact() {
    let key = Key::Account(UsageOf::User(UserId(1)));
    let files = |known: &Known| {
        let look = Look::new(known, None);
        let files = counted(&look, UsageOf::User(UserId(1))).usage.files;
        (files, look.needs().into_iter().collect::<Vec<_>>())
    };
    let mut known = Known::new(Revision(0), 100);
    assert_eq!(files(&known), (0, vec![Need::Row(key.clone())]));
    let epoch = known.epoch();
    assert!(known.install(&group(1, 3, vec![(key.clone(), Some(account(5)))])));
    // What was fetched before the group was known is older.
    known.fetched(epoch, vec![(key.clone(), Some(account(4)))]);
    assert_eq!(files(&known), (5, vec![]));
    assert!(known.install(&group(1, 3, vec![(key.clone(), None)])), "known already");
    assert_eq!(files(&known), (5, vec![]));
    assert!(!known.install(&group(5, 5, vec![])), "one is missing");
    assert!(known.install(&group(4, 4, vec![(key.clone(), None)])));
    assert_eq!(files(&known), (0, vec![]));
    assert_eq!(known.head(), Revision(4));
}

/// Goal: beyond its bound all is forgotten but records and the last group; what was fetched before that counts no more.
#[test]
fn what_is_forgotten_is_fetched_again() {
    let key = |number| Key::Account(UsageOf::Directory(DirId(number)));
    let mut known = Known::new(Revision(0), 10);
    let [user, _] = new_records();
    known.insert_record(Key::Record(user.key()), Row::Record { record: user.clone(), revision: Revision(0) });
    let epoch = known.epoch();
    known.fetched(epoch, (0..9).map(|number| (key(number), Some(account(number)))).collect());
    assert_eq!((known.len(), known.epoch()), (10, epoch), "as many as allowed");
    assert!(known.install(&group(1, 1, vec![(key(100), Some(account(1)))])));
    assert_ne!(known.epoch(), epoch);
    assert_eq!(known.len(), 2);
    assert!(known.get(&key(100)).is_some() && known.get(&key(1)).is_none());
    known.fetched(epoch, vec![(key(1), Some(account(7)))]);
    assert!(known.get(&key(1)).is_none(), "it is of before");
    assert!(Look::new(&known, None).record(user.key()).is_some());
}

/// Goal: of a collection that was forgotten none is a member, whatever the table still says; what the same group adds is one.
#[test]
fn members_go_together() {
    let member = |number| Key::Member { collection: guid(1), guid: guid(number) };
    let mut known = Known::new(Revision(0), 100);
    known.fetched(known.epoch(), vec![(member(2), Some(Row::There))]);
    let images = vec![(Key::Members(guid(1)), None), (member(3), Some(Row::There))];
    assert!(known.install(&group(1, 2, images)));
    let look = Look::new(&known, None);
    let is = |number| look.is_member(guid(1), guid(number));
    assert_eq!((is(2), is(3), is(4)), (false, true, false));
    assert!(look.needs().is_empty());
    // In the tables the row the group added counts more than the taking away.
    assert!(moment(Revision(2), true) < moment(Revision(2), false));
    assert!(moment(Revision(1), false) < moment(Revision(2), true));
}
