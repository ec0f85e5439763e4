//! The audit: everything in the tables is read, of one state, and what follows from the rest is worked out again and compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use exacat_model::{
    At, Audit, Body, DirId, Entry, EntryId, Error, ErrorKind, RecordKey, Result, Revision, SeNumber, TimeMs,
    TrashId, Usage, UserId,
};
use exacat_store::UsageOf;

use crate::engine::Engine;
use crate::limits::{AUDIT_ROWS_MAX, ROUNDS_MAX};
use crate::rows::{Counted, Key, Row, Totals, Where, copy_of, usage_of_deletion};
use crate::tables::{self, Bound, Columns};

type All = BTreeMap<Key, Arc<Row>>;

/// How a table is read whole, and its rows with their keys.
type Whole = (&'static str, fn(Columns) -> Result<(Key, Row)>);

const TABLES: [Whole; 8] = [
    ("SELECT entry FROM children", tables::entry_row_of),
    ("SELECT bucket, trash, lfn, removed_by, removed, entry FROM trash", tables::trash_of),
    ("SELECT shard, guid, booking FROM bookings", tables::booking_of),
    ("SELECT kind, key, revision, record FROM records", tables::record_of),
    ("SELECT collection, guid FROM members", tables::member_of),
    ("SELECT se, bucket, revision, position, guid, size, pfn, queued FROM deletions", tables::deletion_of),
    ("SELECT se, shard, guid FROM on_se", tables::on_se_of),
    ("SELECT kind, day, expires, id FROM due", tables::due_of),
];

const KEYED_TABLES: [Whole; 4] = [
    ("SELECT directory, parent, name FROM directories", |mut row| {
        let id = EntryId::Directory(DirId(row.big()?));
        tables::place_row_of(id, row)
    }),
    ("SELECT guid, parent, name FROM objects", tables::object_row_of),
    ("SELECT se, copy, deletions FROM copies", tables::copies_of),
    ("SELECT kind, id, counted FROM accounts", tables::account_row_of),
];

/// Reads everything, and checks it.
pub(crate) async fn audit(engine: &Engine) -> Result<Audit> {
    for _ in 0..ROUNDS_MAX {
        let epoch = engine.known(|known| known.epoch());
        let mut all = All::new();
        for (text, read) in TABLES.into_iter().chain(KEYED_TABLES) {
            let bound = Bound { text, values: Vec::new() };
            let mut state = None;
            loop {
                let page = engine.cluster.slice(&bound, state).await?;
                for row in page.rows {
                    let (key, row) = read(Columns::new(row))?;
                    all.insert(key, Arc::new(row));
                }
                if all.len() > AUDIT_ROWS_MAX {
                    let why = format!(
                        "the catalogue has more rows than the {AUDIT_ROWS_MAX} an audit reads into memory"
                    );
                    return Err(Error::new(ErrorKind::Limit, why));
                }
                state = page.next;
                if state.is_none() {
                    break;
                }
            }
        }
        engine.answer(|look| Ok(crate::working::totals(look))).await?;
        // What changed while it was read is known, exactly: so this is the state at the head.
        let revision = engine.known(|known| {
            if known.epoch() != epoch {
                return None;
            }
            let last =
                Key::Due { expires: TimeMs(u64::MAX), id: EntryId::Object(exacat_model::Guid([0xff; 16])) };
            for (key, row) in known.range(&Key::Totals, &last) {
                match row {
                    Some(row) => drop(all.insert(key.clone(), row.clone())),
                    None => drop(all.remove(key)),
                }
            }
            all.retain(|key, _| !matches!(known.get(key), Some(None)));
            Some(known.head())
        });
        if let Some(revision) = revision {
            return Ok(check(&all, revision));
        }
    }
    Err(Error::new(ErrorKind::Unavailable, "the catalogue changes too fast for an audit: try again later"))
}

fn check(all: &All, revision: Revision) -> Audit {
    let mut audit = Audit { revision, checked: Vec::new(), findings: Vec::new(), findings_total: 0 };
    let mut wanted = Wanted::default();
    entries(all, revision, &mut wanted, &mut audit);
    bookings(all, &mut wanted, &mut audit);
    deletions(all, &mut wanted, &mut audit);
    records(all, &mut audit);
    wanted.finish();
    compare(all, wanted, &mut audit);
    audit
}

/// What must be kept because of what is.
#[derive(Default)]
struct Wanted {
    rows: BTreeMap<Key, Row>,
    accounts: BTreeMap<UsageOf, Counted>,
    totals: Totals,
    copies: BTreeMap<Key, Vec<exacat_model::DeletionId>>,
}

impl Wanted {
    fn account(&mut self, of: UsageOf) -> &mut Counted {
        self.accounts.entry(of).or_default()
    }

    fn finish(&mut self) {
        let accounts = std::mem::take(&mut self.accounts);
        let used = accounts.into_iter().filter(|(_, counted)| *counted != Counted::default());
        self.rows.extend(used.map(|(of, counted)| (Key::Account(of), Row::Account(counted))));
        let copies = std::mem::take(&mut self.copies);
        self.rows.extend(copies.into_iter().map(|(key, ids)| (key, Row::Copies(ids))));
    }
}

fn place_text(at: &At) -> String {
    format!("{} in directory {}", at.name, at.parent.0)
}

fn entries(all: &All, revision: Revision, wanted: &mut Wanted, audit: &mut Audit) {
    let next = match all.get(&Key::Totals).map(|row| &**row) {
        Some(Row::Totals(totals)) => totals.next_directory,
        _ => 0,
    };
    // Where directories are, by the entries themselves.
    let mut directories: BTreeMap<DirId, Option<DirId>> = BTreeMap::new();
    let mut list: Vec<(&Entry, Option<TrashId>)> = Vec::new();
    for (key, row) in all {
        match (key, &**row) {
            (Key::Entry(at), Row::Entry(entry)) => {
                if entry.at != *at {
                    audit.find("place", place_text(&entry.at), format!("it is kept at {}", place_text(at)));
                }
                list.push((entry, None));
            }
            (Key::Trash(id), Row::Trash(item)) => {
                wanted.totals.trash += 1;
                list.push((&item.entry, Some(*id)));
            }
            _ => {}
        }
    }
    for (entry, trash) in &list {
        if let Some(directory) = entry.directory() {
            let parent = trash.is_none().then_some(entry.at.parent);
            if directories.insert(directory, parent).is_some() {
                audit.find("identity", place_text(&entry.at), "another entry has its id");
            }
        }
    }
    for (entry, trash) in list {
        let id = entry.id();
        let is_root = id == EntryId::Directory(DirId::ROOT);
        if !is_root && trash.is_none() {
            wanted.account(UsageOf::Directory(entry.at.parent)).children += 1;
        }
        wanted.totals.entries += u64::from(!is_root);
        let place = trash.map_or_else(|| Where::At(entry.at.clone()), Where::Trash);
        if wanted.rows.insert(Key::Place(id), Row::Place(place)).is_some() && entry.directory().is_none() {
            audit.find("identity", place_text(&entry.at), "another entry has its id");
        }
        if entry.directory().is_some_and(|id| id.0 >= next) {
            audit.find("identity", place_text(&entry.at), "its number is still to be given");
        }
        if entry.revision > revision {
            audit.find("revision", place_text(&entry.at), "it is of a change that is not there");
        }
        let usage = Usage::of(entry);
        wanted.account(UsageOf::User(entry.owner)).usage.add(&usage);
        wanted.account(UsageOf::Group(entry.group)).usage.add(&usage);
        if !is_root && trash.is_none() {
            count_above(&directories, entry, &usage, wanted, audit);
            if let Some(expires) = entry.expires {
                wanted.rows.insert(Key::due(expires, id), Row::There);
            }
        } else if is_root && let Some(expires) = entry.expires {
            wanted.rows.insert(Key::due(expires, id), Row::There);
        }
        replicas(all, entry, wanted, audit);
        members(all, entry, audit);
    }
    let checked = wanted.totals.entries;
    audit.checked.push(("entries".to_owned(), checked));
    audit.checked.push(("directories".to_owned(), directories.len() as u64));
}

fn count_above(
    directories: &BTreeMap<DirId, Option<DirId>>,
    entry: &Entry,
    usage: &Usage,
    wanted: &mut Wanted,
    audit: &mut Audit,
) {
    let mut here = entry.at.parent;
    let mut passed = BTreeSet::new();
    loop {
        if !passed.insert(here) {
            audit.find("reach", here.0, "a directory is below itself");
            return;
        }
        wanted.account(UsageOf::Directory(here)).usage.add(usage);
        match directories.get(&here) {
            _ if here == DirId::ROOT => return,
            Some(Some(parent)) => here = *parent,
            // An item of the trash.
            Some(None) => return,
            None => {
                audit.find("reach", here.0, "entries are in a directory that cannot be reached");
                return;
            }
        }
    }
}

fn replicas(all: &All, entry: &Entry, wanted: &mut Wanted, audit: &mut Audit) {
    let Some(file) = entry.file() else { return };
    if !file.replicas.is_sorted_by(|one, next| one.se < next.se) {
        audit.find("replicas", place_text(&entry.at), "they are not sorted, or two are on one SE");
    }
    for replica in &file.replicas {
        let known = replica.se == SeNumber::NONE || all.contains_key(&Key::Record(RecordKey::Se(replica.se)));
        if replica.check().is_err() || !known {
            audit.find("replicas", place_text(&entry.at), format!("a bad one on SE {}", replica.se.0));
        }
        if replica.se != SeNumber::NONE {
            let account = wanted.account(UsageOf::Se(replica.se));
            account.usage.add(&Usage::of_replica(replica, file.size));
            account.replicas += 1;
            wanted.rows.insert(Key::on_se(replica.se, file.guid), Row::There);
        }
    }
}

fn members(all: &All, entry: &Entry, audit: &mut Audit) {
    let Body::Collection { guid, members } = &entry.body else { return };
    let (from, until) = crate::working::member_bounds(*guid);
    let kept = all.range(from..=until).count() as u64;
    if kept != *members {
        audit.find("members", guid, format!("it says {members}, {kept} are kept"));
    }
}

fn bookings(all: &All, wanted: &mut Wanted, audit: &mut Audit) {
    for (key, row) in all {
        let (Key::Booking(guid), Row::Booking(booking)) = (key, &**row) else { continue };
        wanted.totals.bookings += 1;
        if booking.guid != *guid || booking.pending.is_empty() {
            audit.find("bookings", guid, "it is of another GUID, or nothing is pending");
        }
        let reserved = booking.reserved();
        wanted.account(UsageOf::User(booking.owner)).reserved.add(&reserved);
        wanted.account(UsageOf::User(booking.owner)).bookings += 1;
        wanted.account(UsageOf::Group(booking.group)).reserved.add(&reserved);
        for pending in &booking.pending {
            wanted.account(UsageOf::Se(pending.se)).bookings += 1;
            if !all.contains_key(&Key::Record(RecordKey::Se(pending.se))) {
                audit.find("bookings", guid, format!("SE {} is not registered", pending.se.0));
            }
        }
        wanted.rows.insert(Key::booking_due(booking), Row::There);
    }
    audit.checked.push(("bookings".to_owned(), wanted.totals.bookings));
}

fn deletions(all: &All, wanted: &mut Wanted, audit: &mut Audit) {
    for (key, row) in all {
        let (Key::Deletion { se, id }, Row::Deletion(deletion)) = (key, &**row) else { continue };
        wanted.totals.deletions += 1;
        wanted.account(UsageOf::Se(*se)).deletions.add(&usage_of_deletion(deletion));
        if !all.contains_key(&Key::Record(RecordKey::Se(*se))) {
            audit.find("deletions", format!("{id:?}"), format!("SE {} is not registered", se.0));
        }
        match copy_of(deletion) {
            Some(copy) => wanted.copies.entry(Key::Copy { se: *se, copy }).or_default().push(*id),
            None => audit.find("deletions", format!("{id:?}"), "it is of a part of an archive"),
        }
    }
    audit.checked.push(("deletions".to_owned(), wanted.totals.deletions));
}

fn records(all: &All, audit: &mut Audit) {
    let mut names = BTreeSet::new();
    let from = Key::Record(RecordKey::User(UserId(0)));
    let mut count = 0;
    for (key, row) in all.range(from..) {
        let (Key::Record(key), Row::Record { record, .. }) = (key, &**row) else { break };
        count += 1;
        let which = format!("{key:?}");
        if record.key() != *key {
            audit.find("records", &which, "it is kept under another key");
        }
        if record.unique_name().is_some_and(|name| !names.insert((key.kind(), name.to_owned()))) {
            audit.find("records", &which, "another has its name");
        }
        if record.refers_to().is_some_and(|needs| !all.contains_key(&Key::Record(needs))) {
            audit.find("records", &which, "it refers to a record that is not there");
        }
    }
    audit.checked.push(("records".to_owned(), count));
}

/// Is it kept because of something else?
fn follows(key: &Key) -> bool {
    matches!(
        key,
        Key::Place(_)
            | Key::Copy { .. }
            | Key::Account(_)
            | Key::OnSe { .. }
            | Key::BookingDue { .. }
            | Key::Due { .. }
    )
}

fn compare(all: &All, wanted: Wanted, audit: &mut Audit) {
    if let Some(Row::Totals(kept)) = all.get(&Key::Totals).map(|row| &**row) {
        let Totals { entries, trash, bookings, deletions, .. } = wanted.totals;
        if (kept.entries, kept.trash, kept.bookings, kept.deletions) != (entries, trash, bookings, deletions)
        {
            audit.find(
                "totals",
                "the catalogue",
                format!("{kept:?} are kept, {:?} were found", wanted.totals),
            );
        }
    } else {
        audit.find("totals", "the catalogue", "they are not there");
    }
    let mut count = 0u64;
    for (key, row) in &wanted.rows {
        count += 1;
        match all.get(key) {
            Some(kept) if same(kept, row) => {}
            Some(kept) => {
                audit.find("index", format!("{key:?}"), format!("{kept:?} is kept, {row:?} was found"))
            }
            None => audit.find("index", format!("{key:?}"), "it is missing"),
        }
    }
    for key in all.keys().filter(|key| follows(key) && !wanted.rows.contains_key(*key)) {
        audit.find("index", format!("{key:?}"), "there is no reason for it");
    }
    audit.checked.push(("rows that follow from others".to_owned(), count));
}

fn same(kept: &Row, wanted: &Row) -> bool {
    match (kept, wanted) {
        // In whatever order they were queued.
        (Row::Copies(kept), Row::Copies(wanted)) => {
            kept.iter().collect::<BTreeSet<_>>() == wanted.iter().collect::<BTreeSet<_>>()
        }
        _ => kept == wanted,
    }
}
