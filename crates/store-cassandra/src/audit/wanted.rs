//! Derives indices and counters again, partition by partition, and compares them with the stored
//! ones.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use exacat_model::{
    At, Audit, Body, DeletionId, DirId, Entry, EntryId, Error, Guid, Record, RecordKey, Result, SeNumber,
    TrashId, Usage,
};
use exacat_store::UsageOf;
use tokio::sync::mpsc;

use super::gathered::Gathered;
use super::spill::{From, Spill};
use crate::limits::{AUDIT_DIRECTORIES_MAX, AUDIT_STEPS_UP_MAX};
use crate::rows::{AfterImage, Counted, Key, Row, Totals, Where, copy_of, member_bounds, usage_of_deletion};

/// Spills the input, and compares it once it is complete; none if it never was.
pub(super) fn compare(
    mut gathered: mpsc::Receiver<Gathered>,
    mut state: Spill,
    follows: Spill,
) -> Result<Option<Audit>> {
    let mut audit = Audit::default();
    let mut read = 0;
    loop {
        match gathered.blocking_recv() {
            Some(Gathered::Rows(after_images)) => {
                read += after_images.len() as u64;
                after_images.iter().try_for_each(|after_image| state.put(From::Table, after_image))?;
            }
            Some(Gathered::AfterImages(after_images)) => {
                let kept = after_images
                    .iter()
                    .filter(|after_image| !matches!(after_image.key, Key::Operation(_) | Key::Layout(_)));
                kept.into_iter().try_for_each(|after_image| state.put(From::Log, after_image))?;
            }
            Some(Gathered::All { revision, misplaced }) => {
                audit.revision = revision;
                for one in misplaced {
                    let at = At { parent: one.parent, name: one.name };
                    audit.find(
                        "partition",
                        place_text(&at),
                        format!("in partition {} nobody looks for it", one.bucket),
                    );
                }
                break;
            }
            None => return Ok(None),
        }
    }
    audit.checked.push(("rows read".to_owned(), read));
    let mut wanted = Wanted::new(audit, follows);
    for partition in 0..state.partitions() {
        wanted.look_at(&rows_of(&state, partition)?)?;
    }
    wanted.sum_up()?;
    for partition in 0..state.partitions() {
        wanted.compare(partition, rows_of(&state, partition)?.rows)?;
    }
    let Wanted { mut audit, compared, .. } = wanted;
    audit.checked.push(("rows that follow from others".to_owned(), compared));
    Ok(Some(audit))
}

/// A partition as it is at the head.
#[derive(Default)]
struct Rows {
    rows: BTreeMap<Key, Row>,
    /// Keys that the tables have twice and no change corrected.
    twice: BTreeSet<Key>,
}

impl Rows {
    fn accept(&mut self, from: From, after_image: AfterImage) {
        let AfterImage { key, row } = after_image;
        match (from, row) {
            (From::Table, Some(row)) => {
                if self.rows.contains_key(&key) {
                    self.twice.insert(key.clone());
                }
                self.rows.insert(key, row);
            }
            (From::Log, Some(row)) => {
                self.twice.remove(&key);
                self.rows.insert(key, row);
            }
            (_, None) => {
                if let Key::Members(collection) = &key {
                    let (from, until) = member_bounds(*collection);
                    let gone: Vec<Key> = self.rows.range(from..=until).map(|(key, _)| key.clone()).collect();
                    gone.iter().for_each(|key| drop(self.rows.remove(key)));
                }
                self.twice.remove(&key);
                self.rows.remove(&key);
            }
        }
    }
}

fn rows_of(state: &Spill, partition: usize) -> Result<Rows> {
    let mut rows = Rows::default();
    state.each(partition, |from, after_image| {
        rows.accept(from, after_image);
        Ok(())
    })?;
    Ok(rows)
}

/// Sums of one directory.
#[derive(Default)]
struct Directory {
    /// True once its entry was seen.
    there: bool,
    /// None for the root and for items of the trash.
    parent: Option<DirId>,
    children: u64,
    /// Usage of its direct children.
    direct: Usage,
    /// Usage of everything below it.
    below: Usage,
}

/// Rows and sums that must follow from the stored entries.
struct Wanted {
    audit: Audit,
    /// Rows that must be there.
    follows: Spill,
    records: BTreeMap<RecordKey, Record>,
    kept_totals: Option<Totals>,
    totals: Totals,
    accounts: BTreeMap<UsageOf, Counted>,
    directories: HashMap<DirId, Directory>,
    /// For each collection: the number of members it states, and the number found.
    members: BTreeMap<Guid, (u64, u64)>,
    compared: u64,
}

fn place_text(at: &At) -> String {
    format!("{} in directory {}", at.name, at.parent.0)
}

impl Wanted {
    fn new(audit: Audit, follows: Spill) -> Self {
        Wanted {
            audit,
            follows,
            records: BTreeMap::new(),
            kept_totals: None,
            totals: Totals::default(),
            accounts: BTreeMap::new(),
            directories: HashMap::new(),
            members: BTreeMap::new(),
            compared: 0,
        }
    }

    fn follows(&mut self, key: Key, row: Row) -> Result<()> {
        self.follows.put(From::Table, &AfterImage { key, row: Some(row) })
    }

    fn account(&mut self, of: UsageOf) -> &mut Counted {
        self.accounts.entry(of).or_default()
    }

    fn directory(&mut self, id: DirId) -> Result<&mut Directory> {
        if self.directories.len() >= AUDIT_DIRECTORIES_MAX && !self.directories.contains_key(&id) {
            let what = "the number of directories of a catalogue that is checked";
            return Err(Error::limit(what, self.directories.len() + 1, AUDIT_DIRECTORIES_MAX));
        }
        Ok(self.directories.entry(id).or_default())
    }

    fn is_se(&self, se: SeNumber) -> bool {
        self.records.contains_key(&RecordKey::Se(se))
    }

    /// Processes a partition. The first one has the records and totals.
    fn look_at(&mut self, partition: &Rows) -> Result<()> {
        self.records(&partition.rows);
        for key in &partition.twice {
            self.audit.find("partition", format!("{key:?}"), "it stands in two partitions of its table");
        }
        for (key, row) in &partition.rows {
            match (key, row) {
                (Key::Entry(at), Row::Entry(entry)) => {
                    if entry.at != *at {
                        let where_ = format!("it is kept at {}", place_text(at));
                        self.audit.find("place", place_text(&entry.at), where_);
                    }
                    self.entry(entry, None)?;
                }
                (Key::Trash(id), Row::Trash(item)) => {
                    self.totals.trash += 1;
                    self.entry(&item.entry, Some(*id))?;
                }
                (Key::Reservation(guid), Row::Reservation(reservation)) => {
                    self.reservation(*guid, reservation)?
                }
                (Key::Deletion { se, id }, Row::Deletion(deletion)) => self.deletion(*se, *id, deletion)?,
                (Key::Member { collection, .. }, _) => self.members.entry(*collection).or_default().1 += 1,
                (Key::Totals, Row::Totals(totals)) => self.kept_totals = Some(*totals),
                _ => {}
            }
        }
        Ok(())
    }

    fn records(&mut self, rows: &BTreeMap<Key, Row>) {
        let mut names = BTreeSet::new();
        for (key, row) in rows {
            let (Key::Record(key), Row::Record { record, .. }) = (key, row) else { continue };
            let which = format!("{key:?}");
            if record.key() != *key {
                self.audit.find("records", &which, "it is kept under another key");
            }
            if record.unique_name().is_some_and(|name| !names.insert((key.kind(), name.to_owned()))) {
                self.audit.find("records", &which, "another has its name");
            }
            self.records.insert(*key, record.clone());
        }
        for (key, row) in rows {
            let (Key::Record(key), Row::Record { record, .. }) = (key, row) else { continue };
            if record.refers_to().is_some_and(|needs| !self.records.contains_key(&needs)) {
                self.audit.find("records", format!("{key:?}"), "it refers to a record that is not there");
            }
        }
    }

    fn entry(&mut self, entry: &Entry, trash: Option<TrashId>) -> Result<()> {
        let id = entry.id();
        let is_root = id == EntryId::Directory(DirId::ROOT);
        let next = self.kept_totals.map_or(u64::MAX, |totals| totals.next_directory);
        if let Some(number) = entry.directory() {
            let parent = (trash.is_none() && !is_root).then_some(entry.at.parent);
            let directory = self.directory(number)?;
            let twice = std::mem::replace(&mut directory.there, true);
            directory.parent = parent;
            if twice {
                self.audit.find("identity", place_text(&entry.at), "another entry has its id");
            }
            if number.0 >= next {
                self.audit.find("identity", place_text(&entry.at), "its number is still to be given");
            }
        }
        if entry.revision > self.audit.revision {
            self.audit.find("revision", place_text(&entry.at), "it is of a change that is not there");
        }
        let usage = Usage::of(entry);
        self.account(UsageOf::User(entry.owner)).usage.add(&usage);
        self.account(UsageOf::Group(entry.group)).usage.add(&usage);
        self.totals.entries += u64::from(!is_root);
        if !is_root && trash.is_none() {
            let above = self.directory(entry.at.parent)?;
            above.children += 1;
            above.direct.add(&usage);
        }
        let place = trash.map_or_else(|| Where::At(entry.at.clone()), Where::Trash);
        self.follows(Key::Place(id), Row::Place(place))?;
        if let Some(expires) = entry.expires.filter(|_| trash.is_none()) {
            self.follows(Key::due(expires, id), Row::There)?;
        }
        if let Body::Collection { guid, members } = &entry.body {
            self.members.entry(*guid).or_default().0 = *members;
        }
        self.replicas(entry)
    }

    fn replicas(&mut self, entry: &Entry) -> Result<()> {
        let Some(file) = entry.file() else { return Ok(()) };
        if !file.replicas.is_sorted_by(|one, next| one.se < next.se) {
            self.audit.find("replicas", place_text(&entry.at), "they are not sorted, or two are on one SE");
        }
        for replica in &file.replicas {
            let known = replica.se == SeNumber::NONE || self.is_se(replica.se);
            if replica.check().is_err() || !known {
                self.audit.find(
                    "replicas",
                    place_text(&entry.at),
                    format!("a bad one on SE {}", replica.se.0),
                );
            }
            if replica.se != SeNumber::NONE {
                let account = self.account(UsageOf::Se(replica.se));
                account.usage.add(&Usage::of_replica(replica, file.size));
                account.replicas += 1;
                self.follows(Key::on_se(replica.se, file.guid), Row::There)?;
            }
        }
        Ok(())
    }

    fn reservation(&mut self, guid: Guid, reservation: &exacat_model::Reservation) -> Result<()> {
        self.totals.reservations += 1;
        if reservation.guid != guid || reservation.pending.is_empty() {
            self.audit.find("reservations", guid, "it is of another GUID, or nothing is pending");
        }
        let reserved = reservation.reserved();
        let user = self.account(UsageOf::User(reservation.owner));
        user.reserved.add(&reserved);
        user.reservations += 1;
        self.account(UsageOf::Group(reservation.group)).reserved.add(&reserved);
        for pending in &reservation.pending {
            self.account(UsageOf::Se(pending.se)).reservations += 1;
            if !self.is_se(pending.se) {
                self.audit.find("reservations", guid, format!("SE {} is not registered", pending.se.0));
            }
        }
        self.follows(Key::reservation_due(reservation), Row::There)
    }

    fn deletion(&mut self, se: SeNumber, id: DeletionId, deletion: &exacat_model::Deletion) -> Result<()> {
        self.totals.deletions += 1;
        self.account(UsageOf::Se(se)).deletions.add(&usage_of_deletion(deletion));
        if !self.is_se(se) {
            self.audit.find("deletions", format!("{id:?}"), format!("SE {} is not registered", se.0));
        }
        match copy_of(deletion) {
            Some(copy) => self.follows(Key::Copy { se, copy }, Row::Copies(vec![id])),
            None => {
                self.audit.find("deletions", format!("{id:?}"), "it is of a part of an archive");
                Ok(())
            }
        }
    }

    /// Adds up all partitions. Called once every partition was processed.
    fn sum_up(&mut self) -> Result<()> {
        self.add_up_directories();
        for (id, directory) in std::mem::take(&mut self.directories) {
            let counted =
                Counted { usage: directory.below, children: directory.children, ..Counted::default() };
            self.accounts.insert(UsageOf::Directory(id), counted);
        }
        for (of, counted) in std::mem::take(&mut self.accounts) {
            if counted != Counted::default() {
                self.follows(Key::Account(of), Row::Account(counted))?;
            }
        }
        for (guid, (said, kept)) in std::mem::take(&mut self.members) {
            if said != kept {
                self.audit.find("members", guid, format!("it says {said}, {kept} are kept"));
            }
        }
        let found = self.totals;
        match self.kept_totals {
            None => self.audit.find("totals", "the catalogue", "they are not there"),
            Some(kept) => {
                let counts =
                    |totals: &Totals| (totals.entries, totals.trash, totals.reservations, totals.deletions);
                if counts(&kept) != counts(&found) {
                    self.audit.find(
                        "totals",
                        "the catalogue",
                        format!("{kept:?} are kept, {found:?} were found"),
                    );
                }
            }
        }
        let counts = [
            ("entries", found.entries),
            ("reservations", found.reservations),
            ("deletions", found.deletions),
            ("records", self.records.len() as u64),
        ];
        self.audit.checked.extend(counts.map(|(what, count)| (what.to_owned(), count)));
        Ok(())
    }

    /// Adds the direct usage of each directory to all directories above it.
    fn add_up_directories(&mut self) {
        self.audit.checked.push(("directories".to_owned(), self.directories.len() as u64));
        let direct: Vec<(DirId, Usage)> = self
            .directories
            .iter()
            .filter(|(_, directory)| directory.children > 0)
            .map(|(id, directory)| (*id, directory.direct))
            .collect();
        for (id, usage) in direct {
            let mut here = id;
            for steps in 0.. {
                let Some(directory) = self.directories.get_mut(&here).filter(|_| steps < AUDIT_STEPS_UP_MAX)
                else {
                    self.audit.find("reach", id.0, "a directory is below itself");
                    break;
                };
                if !directory.there {
                    self.audit.find("reach", here.0, "entries are in a directory that cannot be reached");
                    break;
                }
                directory.below.add(&usage);
                match directory.parent {
                    Some(parent) => here = parent,
                    None => break,
                }
            }
        }
        // A missing directory was reported above, through its children.
        self.directories.retain(|_, directory| directory.there);
    }

    /// Compares the stored rows of a partition with the derived ones.
    fn compare(&mut self, partition: usize, kept: BTreeMap<Key, Row>) -> Result<()> {
        let (follows, audit) = (&self.follows, &mut self.audit);
        let mut wanted: BTreeMap<Key, Row> = BTreeMap::new();
        follows.each(partition, |_, AfterImage { key, row }| {
            match (wanted.get_mut(&key), row) {
                (Some(Row::Copies(ids)), Some(Row::Copies(more))) => ids.extend(more),
                (Some(_), _) if matches!(key, Key::Place(EntryId::Object(_))) => {
                    audit.find("identity", format!("{key:?}"), "two entries have this id");
                }
                (_, Some(row)) => drop(wanted.insert(key, row)),
                (_, None) => {}
            }
            Ok(())
        })?;
        for (key, row) in &wanted {
            self.compared += 1;
            match kept.get(key) {
                Some(kept) if same(kept, row) => {}
                Some(kept) => {
                    audit.find("index", format!("{key:?}"), format!("{kept:?} is kept, {row:?} was found"));
                }
                None => audit.find("index", format!("{key:?}"), "it is missing"),
            }
        }
        for key in kept.keys().filter(|key| is_derived(key) && !wanted.contains_key(*key)) {
            audit.find("index", format!("{key:?}"), "there is no reason for it");
        }
        Ok(())
    }
}

/// Says whether such rows follow from other rows.
fn is_derived(key: &Key) -> bool {
    matches!(
        key,
        Key::Place(_)
            | Key::Copy { .. }
            | Key::Account(_)
            | Key::OnSe { .. }
            | Key::ReservationDue { .. }
            | Key::Due { .. }
    )
}

fn same(kept: &Row, wanted: &Row) -> bool {
    match (kept, wanted) {
        // The order in which deletions were queued does not matter.
        (Row::Copies(kept), Row::Copies(wanted)) => {
            kept.iter().collect::<BTreeSet<_>>() == wanted.iter().collect::<BTreeSet<_>>()
        }
        (kept, wanted) => kept == wanted,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use exacat_model::{
        Checksums, File, GroupId, Location, Mode, Name, Replica, ReplicaState, Revision, TimeMs, UserId,
    };
    use exacat_store::rules::{new_records, new_root};

    use super::*;

    const HEAD: Revision = Revision(9);

    fn after_image(key: Key, row: Row) -> AfterImage {
        AfterImage { key, row: Some(row) }
    }

    fn spill(partitions: usize) -> Spill {
        Spill::new(&std::env::temp_dir(), partitions).unwrap()
    }

    fn entry(parent: u64, name: &str, body: Body) -> AfterImage {
        let at = At { parent: DirId(parent), name: Name::parse(name).unwrap() };
        let entry = Entry {
            at: at.clone(),
            owner: UserId(1),
            group: GroupId(1),
            mode: Mode::FILE,
            created: TimeMs(1),
            modified: TimeMs(2),
            revision: Revision(3),
            expires: Some(TimeMs(1000)),
            tags: Vec::new(),
            body,
        };
        after_image(Key::Entry(at), Row::Entry(entry))
    }

    fn file(number: u8) -> Body {
        let location = Location::Member { archive: Guid([200; 16]), member: "m".to_owned() };
        let replicas = vec![Replica { se: SeNumber::NONE, state: ReplicaState::Available, location }];
        Body::File(File {
            guid: Guid([number; 16]),
            size: Some(5),
            checksums: Checksums::none(),
            job: None,
            replicas,
        })
    }

    /// The root, a directory in it, files in that, a collection, the records, and the totals.
    fn catalogue() -> Vec<AfterImage> {
        let mut all = vec![
            after_image(Key::root(), Row::Entry(new_root())),
            entry(DirId::ROOT.0, "d", Body::Directory(DirId(5))),
        ];
        all.extend((1..=20).map(|number| entry(5, &format!("f{number}"), file(number))));
        let collection = Guid([99; 16]);
        all.push(entry(5, "c", Body::Collection { guid: collection, members: 2 }));
        all.extend(
            [1, 2].map(|one| after_image(Key::Member { collection, guid: Guid([one; 16]) }, Row::There)),
        );
        all.extend(new_records().map(|record| {
            after_image(Key::Record(record.key()), Row::Record { record, revision: Revision(1) })
        }));
        let totals = Totals { next_directory: 6, entries: 22, ..Totals::default() };
        all.push(after_image(Key::Totals, Row::Totals(totals)));
        all
    }

    /// The same, with all rows that follow from it.
    fn whole() -> Vec<AfterImage> {
        let mut all = catalogue();
        let mut wanted = Wanted::new(Audit { revision: HEAD, ..Audit::default() }, spill(1));
        let mut state = spill(1);
        all.iter().for_each(|after_image| state.put(From::Table, after_image).unwrap());
        wanted.look_at(&rows_of(&state, 0).unwrap()).unwrap();
        wanted.sum_up().unwrap();
        wanted
            .follows
            .each(0, |_, after_image| {
                all.push(after_image);
                Ok(())
            })
            .unwrap();
        all
    }

    fn audited(tables: Vec<AfterImage>, log: Vec<AfterImage>) -> Audit {
        let (to, gathered) = mpsc::channel(4);
        to.try_send(Gathered::Rows(tables)).unwrap();
        to.try_send(Gathered::AfterImages(log)).unwrap();
        to.try_send(Gathered::All { revision: HEAD, misplaced: Vec::new() }).unwrap();
        compare(gathered, spill(5), spill(5)).unwrap().unwrap()
    }

    /// Goal: matching rows pass. Each row that is missing, superfluous, different or doubled is
    /// found. An after-image in the log counts more than the row that was read.
    #[test]
    fn every_row_that_is_wrong_is_found() {
        let all = whole();
        let derived = all.iter().filter(|after_image| is_derived(&after_image.key)).count();
        // Places and expiries of 22 entries and the root's place; counters of two users and groups,
        // and of two directories.
        assert!(derived > 45, "{derived}");
        assert_eq!(audited(all.clone(), Vec::new()).findings, []);
        for (number, after_image) in all.iter().enumerate() {
            let which = &after_image.key;
            let mut less = all.clone();
            let gone = less.remove(number);
            // References to records are for the catalogue to check.
            let matters = !matches!(which, Key::Record(RecordKey::User(_)));
            assert_eq!(audited(less.clone(), Vec::new()).findings_total > 0, matters, "{which:?} is missing");
            // A change put the row there meanwhile, or removed it.
            assert_eq!(audited(less, vec![gone.clone()]).findings, [], "{which:?} is in the log");
            let taken = AfterImage { key: which.clone(), row: None };
            assert_eq!(audited(all.clone(), vec![taken]).findings_total > 0, matters, "{which:?} is gone");
            let twice = [all.clone(), vec![gone.clone()]].concat();
            let found = audited(twice.clone(), Vec::new());
            assert!(found.findings.iter().any(|finding| finding.what == "partition"), "{which:?} twice");
            assert_eq!(audited(twice, vec![gone]).findings, [], "{which:?} was written meanwhile");
        }
        for key in [
            Key::Place(EntryId::Object(Guid([77; 16]))),
            Key::on_se(SeNumber(3), Guid([1; 16])),
            Key::due(TimeMs(5), EntryId::Directory(DirId(5))),
            Key::Copy { se: SeNumber(3), copy: "guid:x".to_owned() },
        ] {
            let more = [all.clone(), vec![after_image(key.clone(), Row::There)]].concat();
            assert_eq!(audited(more, Vec::new()).findings_total, 1, "{key:?} is too many");
        }
        let other = entry(5, "f7", file(8));
        let audit = audited([all.clone(), vec![other.clone()]].concat(), vec![other]);
        assert!(audit.findings.iter().any(|finding| finding.what == "identity"), "{:?}", audit.findings);
    }

    #[test]
    fn circles_and_lost_directories_are_found() {
        let all = [
            whole(),
            vec![
                entry(8, "a", Body::Directory(DirId(9))),
                entry(9, "b", Body::Directory(DirId(8))),
                entry(33, "nowhere", file(60)),
            ],
        ]
        .concat();
        let found = audited(all, Vec::new()).findings;
        let reach: BTreeSet<_> = found
            .iter()
            .filter(|one| one.what == "reach")
            .map(|one| (one.which.as_str(), one.detail.as_str()))
            .collect();
        let expected = [
            ("33", "entries are in a directory that cannot be reached"),
            ("8", "a directory is below itself"),
            ("9", "a directory is below itself"),
        ];
        assert_eq!(reach, expected.into());
    }

    /// Goal: members are removed with their collection, and members that the log adds later stay.
    #[test]
    fn members_that_went_together_are_gone() {
        let collection = Guid([99; 16]);
        let member = |one| Key::Member { collection, guid: Guid([one; 16]) };
        let log = vec![
            AfterImage { key: Key::Members(collection), row: None },
            after_image(member(3), Row::There),
            after_image(member(4), Row::There),
        ];
        assert_eq!(audited(whole(), log.clone()).findings, []);
        let audit = audited(whole(), log[..2].to_vec());
        assert_eq!(audit.findings.iter().map(|one| one.what.as_str()).collect::<Vec<_>>(), ["members"]);
    }

    #[test]
    fn what_was_cut_off_says_nothing() {
        let (to, gathered) = mpsc::channel(4);
        to.try_send(Gathered::Rows(catalogue())).unwrap();
        drop(to);
        assert!(compare(gathered, spill(1), spill(1)).unwrap().is_none());
    }
}
