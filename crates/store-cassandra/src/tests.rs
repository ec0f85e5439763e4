//! Tests without a cluster: rows become columns and rows again, and the row cache stays exact.
#![allow(clippy::unwrap_used, reason = "tests")]

use exacat_model::{
    At, Body, Checksum, Checksums, Deletion, DeletionId, DirId, Entry, EntryId, File, Fingerprint, GroupId,
    Guid, Lfn, Location, Mode, Name, Pfn, Replica, ReplicaState, Reservation, ReservedReplica, Revision,
    SeNumber, Tag, TagKey, TagValue, TimeMs, TrashId, Usage, UserId,
};
use exacat_store::UsageOf;
use exacat_store::rules::{Trashed, new_records, new_root};
use scylla::value::Row as CqlRow;

use crate::cluster::moment;
use crate::row_cache::{Bounds, Group, Installed, RowCache};
use crate::rows::{AfterImage, Counted, Key, Remembered, Row, Totals, Where};
use crate::tables::{self, Columns};
use crate::working::{CacheView, Need, counted, record};

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
    let reservation = Reservation {
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
        pending: vec![ReservedReplica { se: SeNumber(1), location: Location::Derived }],
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
        (Key::Reservation(guid(5)), Row::Reservation(reservation)),
        (Key::Member { collection: guid(2), guid: guid(1) }, Row::There),
        (Key::Deletion { se: SeNumber(9), id }, Row::Deletion(deletion(Location::Derived))),
        (Key::Deletion { se: SeNumber(8), id }, Row::Deletion(deletion(explicit))),
        (Key::Copy { se: SeNumber(9), copy: "pfn:x".to_owned() }, Row::Copies(vec![id, id])),
        (
            Key::Account(UsageOf::User(UserId(4))),
            Row::Account(Counted { usage, reservations: 2, ..Counted::default() }),
        ),
        (Key::Layout(DirId(7)), Row::Layout(2)),
        (
            Key::Operation(exacat_model::OperationId([3; 16])),
            Row::Operation(Remembered {
                fingerprint: Fingerprint(4),
                outcomes: vec![(0, (Revision(1), None))],
            }),
        ),
    ]);
    rows
}

/// Lists the columns that a statement reads or writes, in its order.
fn columns(text: &str) -> Vec<String> {
    let list = match text.strip_prefix("SELECT ") {
        Some(rest) => rest.split(" FROM ").next().unwrap(),
        None => text.split('(').nth(1).unwrap().split(')').next().unwrap(),
    };
    list.split(',').map(|name| name.trim().to_owned()).collect()
}

/// Goal: every kind of row is read as it was written, by statements with the same columns, and no
/// value is null.
#[test]
fn rows_become_columns_and_rows_again() {
    let rows = rows();
    assert!(rows.len() > 20);
    for (key, row) in rows {
        let written = tables::write(&key, Some(&row), 0).unwrap();
        let write = &written.last().unwrap().bound;
        let names = columns(write.text.as_str());
        assert_eq!(names.len(), write.values.len(), "{:?}", write.text);
        let select = &tables::select(&key, 0).unwrap()[0];
        let value = |name: &String| {
            let place = names.iter().position(|other| other == name).unwrap();
            Some(write.values[place].clone())
        };
        let read = CqlRow { columns: columns(select.text.as_str()).iter().map(value).collect() };
        assert_eq!(tables::row_of(&key, Columns::new(read)).unwrap(), row, "{key:?}");
        let after_images = vec![AfterImage { key, row: Some(row) }];
        let mut bytes = Vec::new();
        exacat_model::codec::Encode::encode(&after_images, &mut bytes);
        assert_eq!(
            <Vec<AfterImage> as exacat_model::codec::Decode>::from_bytes(&bytes).unwrap(),
            after_images
        );
    }
}

#[test]
fn a_row_of_another_kind_is_refused() {
    assert!(tables::write(&Key::Totals, Some(&Row::There), 0).is_err());
    assert!(tables::write(&Key::root(), Some(&Row::There), 0).is_err());
    let cut = CqlRow { columns: Vec::new() };
    assert!(tables::row_of(&Key::Totals, Columns::new(cut)).is_err());
}

fn known_of(rows: usize) -> RowCache {
    RowCache::new(Revision(0), Bounds { rows, filter_bytes: 0, partition_rows: 1000 })
}

fn account(files: u64) -> Row {
    Row::Account(Counted { usage: Usage { files, ..Usage::default() }, ..Counted::default() })
}

fn group(first: u64, last: u64, after_images: Vec<(Key, Option<Row>)>) -> Group {
    let after_images = after_images.into_iter().map(|(key, row)| AfterImage { key, row }).collect();
    Group { first: Revision(first), last: Revision(last), after_images, bytes: 10, ..Group::default() }
}

fn installs(cache: &mut RowCache, group: &Group) -> bool {
    cache.install(group) == Installed::Yes
}

/// Goal: a server installs a group only if it follows the one that it has. Method: two branches
/// that part after change 2, in the places where one replaces the other.
#[test]
fn group_of_another_branch_is_never_installed() {
    let linked = |number: u64, id: u8, before: u8| Group {
        id: [id; 16],
        before: Some([before; 16]),
        ..group(number, number, vec![])
    };
    let mut cache = known_of(100);
    for (number, id, before) in [(1, 1, 0), (2, 2, 1), (3, 3, 2)] {
        assert_eq!(cache.install(&linked(number, id, before)), Installed::Yes);
    }
    assert_eq!(cache.end(), (Revision(3), Some(Some([3; 16]))));
    // The other branch has a change 3 of its own, group 13, and a change 4 after that.
    assert_eq!(cache.install(&linked(4, 14, 13)), Installed::OtherBranch);
    assert_eq!(cache.head(), Revision(3));
    let longer = Group { last: Revision(5), ..linked(3, 15, 2) };
    assert_eq!(cache.install(&longer), Installed::OtherBranch, "it begins within the cached log");
    assert_eq!(cache.install(&linked(5, 5, 4)), Installed::Gap);
    assert_eq!(cache.install(&linked(4, 4, 3)), Installed::Yes);
}

/// Goal: groups that were appended before schema version 6 are installed as they are. The first one
/// that names its predecessor continues them.
#[test]
fn groups_without_predecessor_are_installed_until_one_has_it() {
    let mut cache = known_of(100);
    assert!(installs(&mut cache, &group(1, 1, vec![])));
    cache.take_tail(Revision(1), None);
    cache.take_tail(Revision(1), Some([9; 16]));
    assert_eq!(cache.end(), (Revision(1), Some(None)), "the cached end stays");
    let first = Group { id: [2; 16], before: Some([0; 16]), ..group(2, 2, vec![]) };
    assert!(installs(&mut cache, &first));
    assert_eq!(cache.end().1, Some(Some([2; 16])));
    // A server that was opened at the head learns the tail from the log.
    let mut opened = RowCache::new(Revision(2), cache.bounds());
    assert_eq!(opened.end(), (Revision(2), None));
    opened.take_tail(Revision(1), Some([7; 16]));
    opened.take_tail(Revision(2), Some([2; 16]));
    let other = Group { id: [4; 16], before: Some([3; 16]), ..group(3, 3, vec![]) };
    assert_eq!(opened.install(&other), Installed::OtherBranch);
}

/// Goal: the row cache follows the groups, whatever is fetched meanwhile.
#[test]
fn what_is_known_stays_exact() {
    let key = Key::Account(UsageOf::User(UserId(1)));
    let files = |cache: &RowCache| {
        let view = CacheView::new(cache, None);
        let files = counted(&view, UsageOf::User(UserId(1))).usage.files;
        (files, view.needs().into_iter().collect::<Vec<_>>())
    };
    let mut cache = known_of(100);
    assert_eq!(files(&cache), (0, vec![Need::Row(key.clone())]));
    let epoch = cache.epoch();
    assert!(installs(&mut cache, &group(1, 3, vec![(key.clone(), Some(account(5)))])));
    // Rows fetched before the group was installed are older.
    cache.fetched(epoch, vec![(key.clone(), Some(account(4)))]);
    assert_eq!(files(&cache), (5, vec![]));
    assert!(installs(&mut cache, &group(1, 3, vec![(key.clone(), None)])), "known already");
    assert_eq!(files(&cache), (5, vec![]));
    assert!(!installs(&mut cache, &group(5, 5, vec![])), "one is missing");
    assert!(installs(&mut cache, &group(4, 4, vec![(key.clone(), None)])));
    assert_eq!(files(&cache), (0, vec![]));
    assert_eq!(cache.head(), Revision(4));
}

/// Goal: a full cache evicts all rows but those always cached and those not yet in the tables. Rows
/// fetched before the eviction are discarded.
#[test]
fn what_is_forgotten_is_fetched_again() {
    let key = |number| Key::Account(UsageOf::Directory(DirId(number)));
    let mut cache = known_of(10);
    let [user, _] = new_records();
    cache.insert_permanent(
        Key::Record(user.key()),
        Row::Record { record: user.clone(), revision: Revision(0) },
    );
    let epoch = cache.epoch();
    cache.fetched(epoch, (0..9).map(|number| (key(number), Some(account(number)))).collect());
    assert!(installs(&mut cache, &group(1, 1, vec![(key(100), Some(account(1)))])));
    assert_eq!(
        (cache.len(), cache.epoch()),
        (11, epoch),
        "what is in the log alone is beside what is allowed"
    );
    cache.flush(Revision(1));
    assert!(installs(&mut cache, &group(2, 2, vec![(key(101), Some(account(1)))])));
    assert_ne!(cache.epoch(), epoch);
    assert_eq!(cache.len(), 2);
    assert!(cache.get(&key(101)).is_some() && cache.get(&key(100)).is_none() && cache.get(&key(1)).is_none());
    assert!(!cache.fetched(epoch, vec![(key(1), Some(account(7)))]));
    assert!(cache.get(&key(1)).is_none(), "it is of before");
    assert!(record(&CacheView::new(&cache, None), user.key()).is_some());
}

/// Goal: a flush writes the after-images of all groups as of one moment. Later groups wait for the
/// next flush, and failed writes are repeated.
#[test]
fn what_is_frozen_is_of_one_moment() {
    let key = |number| Key::Account(UsageOf::Directory(DirId(number)));
    let member = |number| Key::Member { collection: guid(1), guid: guid(number) };
    let mut cache = known_of(1000);
    assert!(cache.freeze().is_none());
    assert!(installs(
        &mut cache,
        &group(1, 2, vec![(key(1), Some(account(1))), (member(1), Some(Row::There))])
    ));
    assert!(installs(&mut cache, &group(3, 3, vec![(key(1), Some(account(2))), (key(2), Some(account(1)))])));
    let first = cache.freeze().unwrap();
    assert_eq!((first.up_to, first.rows.len()), (Revision(3), 3));
    assert!(first.rows.iter().any(|(of, row, _)| *of == key(1) && row.as_deref() == Some(&account(2))));
    // A group arrives during the write, and the write fails.
    assert!(installs(&mut cache, &group(4, 4, vec![(key(2), None), (Key::Members(guid(1)), None)])));
    let again = cache.freeze().unwrap();
    let keys: Vec<Key> = again.rows.iter().map(|(key, ..)| key.clone()).collect();
    assert_eq!(again.up_to, Revision(4));
    assert_eq!(keys, [Key::Members(guid(1)), key(1), key(2)], "its members go with their partition");
    assert!(again.rows.iter().any(|(of, row, _)| *of == key(2) && row.is_none()));
    // Another server flushed the first three.
    assert_eq!(cache.unflushed_bytes(), 30);
    cache.flush(Revision(3));
    assert_eq!((cache.flushed(), cache.unflushed_bytes()), (Revision(3), 10));
    assert_eq!(cache.freeze().unwrap().up_to, Revision(4), "a failed write leaves them frozen");
    cache.flush(Revision(4));
    assert!(cache.freeze().is_none());
    cache.flush(Revision(2));
    assert_eq!(cache.flushed(), Revision(4), "it does not go back");
}

/// Goal: a key outside of a complete filter does not exist and is not read. A directory that was
/// listed whole twice has no other children.
#[test]
fn what_is_not_there_is_known() {
    let place = |number| Key::Place(EntryId::Object(guid(number)));
    let mut cache =
        RowCache::new(Revision(0), Bounds { rows: 100, filter_bytes: 1 << 12, partition_rows: 1000 });
    cache.filter_has(&[place(1)]);
    assert!(cache.get(&place(2)).is_none(), "not every key was taken in yet");
    cache.filter_is_whole();
    assert!(cache.get(&place(1)).is_none(), "it may be there");
    assert!(matches!(cache.get(&place(2)), Some(None)));
    let where_it_is = Row::Place(Where::At(at(1, "x")));
    assert!(installs(&mut cache, &group(1, 1, vec![(place(2), Some(where_it_is)), (place(3), None)])));
    assert!(matches!(cache.get(&place(2)), Some(Some(_))));
    cache.flush(Revision(1));
    // The key is evicted with many others, and the filter still has it.
    let many =
        (0..200).map(|number| (Key::Member { collection: guid(9), guid: guid(number) }, Some(Row::There)));
    cache.fetched(cache.epoch(), many.collect());
    cache.fetched(cache.epoch(), Vec::new());
    assert!(cache.get(&place(2)).is_none());
    assert!(matches!(cache.get(&place(3)), Some(None)));
    cache.drop_filter();
    assert!(cache.get(&place(9)).is_none());

    let child = |name: &str| Key::Entry(at(7, name));
    let row = std::sync::Arc::new(Row::Entry(entry("a", file(None, None, Vec::new()))));
    let rows = [(child("a"), row)];
    cache.listed(cache.epoch(), DirId(7), &rows);
    assert!(!cache.is_listed(DirId(7)) && cache.get(&child("b")).is_none());
    cache.listed(cache.epoch(), DirId(7), &rows);
    assert!(cache.is_listed(DirId(7)));
    assert!(matches!(cache.get(&child("b")), Some(None)) && matches!(cache.get(&child("a")), Some(Some(_))));
}

/// Goal: a name is read in each partition where it can be, first in that of the directory's level.
/// It is written there and deleted from the others.
#[test]
fn a_name_is_in_one_partition_of_each_level() {
    let key = Key::Entry(at(7, "f"));
    let row = Row::Entry(entry("f", file(None, None, Vec::new())));
    for level in 0..=crate::layout::LEVEL_MAX {
        let reads = tables::select(&key, level).unwrap();
        let writes = tables::write(&key, Some(&row), level).unwrap();
        assert_eq!((reads.len(), writes.len()), (usize::from(level) + 1, usize::from(level) + 1));
        for (place, (read, write)) in reads.iter().zip(&writes).enumerate() {
            assert_eq!(read.values[..3], write.bound.values[..3]);
            assert_eq!(write.bound.text.as_str().starts_with("INSERT"), place == 0);
        }
        let gone = tables::write(&key, None, level).unwrap();
        assert!(gone.iter().all(|written| written.bound.text.as_str().starts_with("DELETE")));
    }
}

/// Goal: an evicted collection has no members, whatever the table still has. Members that the same
/// group adds exist.
#[test]
fn members_go_together() {
    let member = |number| Key::Member { collection: guid(1), guid: guid(number) };
    let mut cache = known_of(100);
    cache.fetched(cache.epoch(), vec![(member(2), Some(Row::There))]);
    let after_images = vec![(Key::Members(guid(1)), None), (member(3), Some(Row::There))];
    assert!(installs(&mut cache, &group(1, 2, after_images)));
    let view = CacheView::new(&cache, None);
    let is = |number| view.get(&Key::Member { collection: guid(1), guid: guid(number) }).is_some();
    assert_eq!((is(2), is(3), is(4)), (false, true, false));
    assert!(view.needs().is_empty());
    // In the tables the row that the group added outranks the deletion.
    assert!(moment(Revision(2), true) < moment(Revision(2), false));
    assert!(moment(Revision(1), false) < moment(Revision(2), true));
}

/// Goal: all of a path whose directories were evicted is fetched at once. A wrong guess only costs
/// a read in vain.
#[test]
fn evicted_path_is_fetched_in_one_round() {
    let directory = |parent: u64, name: &str, id: u64| {
        let entry = Entry { at: at(parent, name), ..entry(name, Body::Directory(DirId(id))) };
        (Key::Entry(entry.at.clone()), Some(Row::Entry(entry)))
    };
    let root = (Key::root(), Some(Row::Entry(new_root())));
    let way = [directory(1, "a", 2), directory(2, "b", 3), directory(3, "c", 4)];
    let mut cache = known_of(16);
    let needs = |cache: &RowCache, path: &str| {
        let view = CacheView::new(cache, None);
        crate::reads::resolve(&view, &Lfn::parse(path).unwrap());
        view.needs().into_iter().collect::<Vec<_>>()
    };
    let need = |parent, name: &str| Need::Row(Key::Entry(at(parent, name)));
    cache.fetched(cache.epoch(), way.iter().cloned().chain([root.clone()]).collect());
    assert_eq!(needs(&cache, "/a/b/c/d"), [need(4, "d")]);
    // Too many rows: all are evicted.
    let account = |number| (Key::Account(UsageOf::Directory(DirId(number))), Some(account(1)));
    assert!(installs(&mut cache, &group(1, 1, (100..120).map(account).collect())));
    cache.flush(Revision(1));
    cache.fetched(cache.epoch(), Vec::new());
    let all = [Need::Row(Key::root()), need(1, "a"), need(2, "b"), need(3, "c"), need(4, "d")];
    let mut wanted = all.to_vec();
    wanted.sort();
    assert_eq!(needs(&cache, "/a/b/c/d"), wanted);
    // It is another directory by now: the rows fetched below it are not used.
    assert!(installs(&mut cache, &group(2, 2, vec![root, directory(1, "a", 9)])));
    assert_eq!(needs(&cache, "/a/b/c/d"), [need(9, "b")]);
}
