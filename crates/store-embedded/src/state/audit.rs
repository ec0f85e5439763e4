//! The audit: recomputes every index and every counter from the rows of one state, and compares.
//!
//! It walks over the whole table once, in order. A directory's counter is right if it is the sum
//! over its children of their own usage and the counters below them. If that holds for every
//! directory, all counters are right, and each check needs only one directory's sum in memory.

use std::collections::{BTreeMap, BTreeSet};

use exacat_model::codec::{Decode, Reader};
use exacat_model::{Audit, Body, DirId, Entry, EntryId, Guid, RecordKey, SeNumber, Usage};
use exacat_store::{Account, UsageOf, rules};

use super::accounts::{SeAccount, change};
use super::deletions::{deletion_of, hash_of};
use super::{Above, Accounts, Digest, Directory, Item, Lookup, State};
use crate::defect::Defect;
use crate::keyspace;
use crate::page::Row;
use crate::table::From;

/// State that the rows imply.
#[derive(Default)]
struct Expected {
    accounts: Accounts,
    digest: Digest,
    entries: u64,
    directories: u64,
    objects: u64,
    members: u64,
    /// Number of entries that expire: by the entries, and by the index.
    expiring: (u64, u64),
    trash_items: u64,
    records: u64,
    reservations: u64,
    /// Deletions by SE: their sum, and the numbers of queue rows and of index rows.
    deletions: BTreeMap<SeNumber, (Usage, u64, u64)>,
    /// Collection of the last member row.
    collection: Option<Guid>,
}

/// Rows of one directory.
struct InDirectory {
    id: DirId,
    sum: Usage,
    ses: BTreeMap<SeNumber, u32>,
}

/// An audit in progress.
struct AuditWork<'s> {
    state: &'s State,
    /// Look-ups outside of the walk.
    look: Lookup<'s>,
    expected: Expected,
    audit: Audit,
}

/// Returns the label of an entry in findings.
fn label(id: EntryId) -> String {
    match id {
        EntryId::Directory(directory) => format!("directory {}", directory.0),
        EntryId::Object(guid) => guid.to_string(),
    }
}

impl State {
    /// Returns the number of counters, without those of directories below the root. A storage element
    /// has two: of its replicas, and of its deletion queue.
    fn account_count(&self) -> u64 {
        let Accounts { users, groups, ses, .. } = &self.accounts;
        (users.len() + groups.len() + 2 * ses.len() + 1) as u64
    }

    /// Recomputes and compares everything.
    pub(crate) fn audit(&self) -> Result<Audit, Defect> {
        let audit =
            Audit { revision: self.revision, checked: Vec::new(), findings: Vec::new(), findings_total: 0 };
        let mut work = AuditWork { state: self, look: self.look(), expected: Expected::default(), audit };
        let mut rows = self.look_in_passing().view.from(From::START)?;
        let mut directories = self.directories.iter().peekable();
        let mut within: Option<InDirectory> = None;
        while let Some(row) = rows.next_there()? {
            if within.as_ref().is_none_or(|within| within.id != row.parent) {
                work.end_directory(within.take());
                while let Some((id, directory)) = directories.next_if(|(id, _)| *id < row.parent) {
                    work.nothing_in(id, directory);
                }
                if directories.next_if(|(id, _)| *id == row.parent).is_some() {
                    within =
                        Some(InDirectory { id: row.parent, sum: Usage::default(), ses: BTreeMap::new() });
                }
            }
            work.row(&row, within.as_mut())?;
        }
        work.end_directory(within);
        directories.for_each(|(id, directory)| work.nothing_in(id, directory));
        work.reservations()?;
        work.records();
        work.deletions();
        work.accounts();
        work.sizes();
        let AuditWork { expected, mut audit, .. } = work;
        audit.checked = vec![
            ("entries".into(), expected.entries),
            ("directories".into(), expected.directories),
            ("GUIDs".into(), expected.objects),
            ("expiries".into(), expected.expiring.1),
            ("trash items".into(), expected.trash_items),
            ("members".into(), expected.members),
            ("reservations".into(), expected.reservations),
            ("records".into(), expected.records),
            ("accounts".into(), self.account_count()),
        ];
        Ok(audit)
    }
}

impl AuditWork<'_> {
    fn find(&mut self, what: &str, which: impl std::fmt::Display, detail: impl std::fmt::Display) {
        self.audit.find(what, which, detail);
    }

    fn row(&mut self, row: &Row<'_>, within: Option<&mut InDirectory>) -> Result<(), Defect> {
        let bad = || Defect::new(format!("a row of table {:x} has a key of another kind", row.parent.0));
        match row.parent {
            keyspace::TRASH => self.trash_row(row)?,
            keyspace::EXPIRY => {
                self.expected.expiring.1 += 1;
                let (expires, id) = keyspace::expiring(row.name).ok_or_else(bad)?;
                let said = self.look.find_id(id)?;
                if said.is_none_or(|found| found.trash.is_some() || found.entry.expires != Some(expires)) {
                    self.find("index of expiring entries", label(id), "the entry does not expire then");
                }
            }
            keyspace::MEMBERS => {
                let (collection, member) = keyspace::member(row.name).ok_or_else(bad)?;
                if self.expected.collection.replace(collection) != Some(collection) {
                    let found = self.look.find_guid(collection)?;
                    if !found.is_some_and(|found| matches!(found.entry.body, Body::Collection { .. })) {
                        self.find("members", collection, "kept for an entry that is no collection");
                    }
                }
                self.expected.members += 1;
                self.expected.digest.add(Item::Member, &(collection, member));
            }
            keyspace::DELETIONS => self.deletion_row(row)?,
            keyspace::DELETION_PLACES => {
                let se = keyspace::se_of(row.name).ok_or_else(bad)?;
                self.expected.deletions.entry(se).or_default().2 += 1;
            }
            // Traces follow from changes that the log may have lost by retention, so they are not
            // checked.
            keyspace::TRACES => {}
            keyspace::RECORDS => {
                self.expected.records += 1;
                self.compare_record(row);
            }
            keyspace::RESERVATIONS => {
                self.expected.reservations += 1;
                let guid = row.name.first_chunk().map(|bytes| Guid(*bytes));
                if guid.is_none_or(|guid| {
                    self.state.reservation(guid).map(exacat_model::codec::Encode::to_bytes).as_deref()
                        != Some(row.rest)
                }) {
                    self.find("reservations", format!("{guid:?}"), "another in memory than in the table");
                }
            }
            // These rows are written with a memtable; memory has newer values.
            keyspace::DIRECTORIES | keyspace::ACCOUNTS | keyspace::OPERATIONS | keyspace::SUMMARY => {}
            keyspace::ROOT_IN => {
                let entry = row.entry()?.ok_or_else(bad)?;
                if entry.directory() != Some(DirId::ROOT) {
                    self.find("directories", "the root", "is something else");
                }
                self.identity(row, &entry)?;
                self.expiry(&entry)?;
                self.count(&entry, None)?;
            }
            _ => {
                let entry = row.entry()?.ok_or_else(bad)?;
                let which = label(entry.id());
                if row.trashed()?.is_some() {
                    self.find("trash", &which, "marked as an item of the trash, but stands in a directory");
                }
                self.identity(row, &entry)?;
                let Some(within) = within else {
                    self.find(
                        "directories",
                        &which,
                        format!("stands in directory {}, which is not there", row.parent.0),
                    );
                    return Ok(());
                };
                let usage = self.state.usage_with_below(&entry)?;
                within.sum.add(&usage);
                self.expiry(&entry)?;
                self.count(&entry, Some(within))?;
            }
        }
        Ok(())
    }

    /// Checks that the expiry index has an entry that expires.
    fn expiry(&mut self, entry: &Entry) -> Result<(), Defect> {
        if let Some(expires) = entry.expires {
            self.expected.expiring.0 += 1;
            if !self.look.view.has(keyspace::EXPIRY, &keyspace::expiry_key(expires, entry.id()))? {
                self.find("index of expiring entries", label(entry.id()), "is not in it");
            }
        }
        Ok(())
    }

    /// Compares the counters of a directory with the sum of its rows.
    fn end_directory(&mut self, within: Option<InDirectory>) {
        let Some(InDirectory { id, sum, ses }) = within else { return };
        let Some(kept) = self.state.directory(id) else { return };
        if kept.usage != sum {
            self.audit.find("usage of a directory", id.0, format!("kept {:?}, counted {sum:?}", kept.usage));
        }
        let counted: Vec<(SeNumber, u32)> = ses.into_iter().collect();
        if kept.ses() != counted.as_slice() {
            let detail = format!("kept {:?}, counted {counted:?}", kept.ses());
            self.audit.find("files of a directory by SE", id.0, detail);
        }
    }

    /// Checks a directory without any row.
    fn nothing_in(&mut self, id: DirId, kept: &Directory) {
        if !kept.usage.is_empty() || !kept.ses().is_empty() {
            self.audit.find("usage of a directory", id.0, format!("kept {:?}, nothing is in it", kept.usage));
        }
    }

    fn trash_row(&mut self, row: &Row<'_>) -> Result<(), Defect> {
        let bad = || Defect::new("a row of the trash is no item of it");
        let id = keyspace::trash_id(row.name).ok_or_else(bad)?;
        let (entry, item) = row.entry()?.zip(row.trashed()?).ok_or_else(bad)?;
        self.expected.trash_items += 1;
        if entry.revision != id.0 {
            self.find("trash", id.0.0, "the entry is not the one that was removed");
        }
        self.identity(row, &entry)?;
        self.count(&entry, None)?;
        self.expected.digest.add(Item::Trashed, &(id, (item.lfn, (item.removed_by, item.removed))));
        Ok(())
    }

    /// Checks the index by identity for an entry, and the facts kept beside a directory or
    /// collection.
    fn identity(&mut self, row: &Row<'_>, entry: &Entry) -> Result<(), Defect> {
        let which = label(entry.id());
        let Some(id) = entry.directory() else {
            self.expected.objects += 1;
            let here = |found: Option<&Row<'_>>| {
                found.is_some_and(|found| (found.parent, found.name) == (row.parent, row.name))
            };
            let here = match row.guid() {
                Some(guid) => self.look.view.find_guid(guid, here)?,
                None => false,
            };
            if !here {
                self.find("index of GUIDs", &which, "not found by its GUID");
            }
            if let Body::Collection { guid, members } = &entry.body {
                let mut kept = 0u64;
                self.look.scan(keyspace::MEMBERS, &guid.0, None, |_| {
                    kept += 1;
                    Ok(true)
                })?;
                if kept != *members {
                    self.find("members", &which, format!("says {members}, has {kept}"));
                }
            }
            return Ok(());
        };
        self.expected.directories += 1;
        let state = self.state;
        let above = match row.parent {
            keyspace::ROOT_IN => Some(Above::Nothing),
            keyspace::TRASH => keyspace::trash_id(row.name).map(Above::Trash),
            parent => Some(Above::Directory(parent)),
        };
        match state.directory(id) {
            None => self.find("directories", &which, "is not among them"),
            Some(kept) => {
                if Some(kept.above) != above || *kept.name != *entry.at.name.as_str() {
                    self.find("directories", &which, "its way up leads elsewhere");
                }
                if (kept.owner, kept.group, kept.mode) != (entry.owner, entry.group, entry.mode) {
                    self.find("ancestors", &which, "owner, group or mode differ from the entry's");
                }
                if let Above::Directory(parent) = kept.above
                    && state.directories.child(parent, kept.name.as_bytes()) != Some(id)
                {
                    self.find("index of names", &which, "not found by its name");
                }
            }
        }
        if id.0 >= state.next_directory {
            self.find("directories", &which, "its number was not given yet");
        }
        Ok(())
    }

    /// Counts an entry; `within` is the directory that has it, if one has.
    fn count(&mut self, entry: &Entry, within: Option<&mut InDirectory>) -> Result<(), Defect> {
        let expected = &mut self.expected;
        expected.entries += 1;
        expected.digest.add(Item::Entry, entry);
        expected.accounts.use_by(entry.owner, entry.group, &Usage::of(entry), &Usage::default())?;
        let Some(file) = entry.file() else { return Ok(()) };
        if !file.replicas.windows(2).all(|pair| pair[0].se < pair[1].se) {
            return Err(Defect::new(format!("the replicas of {} are not in order", file.guid)));
        }
        let mut within = within;
        for replica in file.replicas.iter().filter(|replica| replica.se != SeNumber::NONE) {
            let account = expected.accounts.ses.entry(replica.se).or_default();
            change(&mut account.usage, &Usage::of_replica(replica, file.size), &Usage::default())?;
            match within.as_deref_mut() {
                Some(within) => {
                    *within.ses.entry(replica.se).or_default() += 1;
                    account.directories.insert(within.id);
                }
                None => account.trashed += 1,
            }
        }
        Ok(())
    }

    fn deletion_row(&mut self, row: &Row<'_>) -> Result<(), Defect> {
        let deletion = deletion_of(row.rest)?;
        let se = keyspace::se_of(row.name).ok_or_else(|| Defect::new("a deletion of no SE"))?;
        let (id, which) = (deletion.id, format!("SE {} {:?}", se.0, deletion.id));
        if row.name != keyspace::deletion_key(se, id) {
            self.find("deletions", &which, "kept under another id");
        }
        if rules::is_in_use(self.state, se, deletion.guid, &deletion.location)? {
            self.find("deletions", &which, "the copy is in use");
        }
        let place = keyspace::place_key(se, hash_of(&deletion), id);
        if !self.look.view.has(keyspace::DELETION_PLACES, &place)? {
            self.find("index of a deletion queue", &which, "is not in it");
        }
        let (usage, count, _) = self.expected.deletions.entry(se).or_default();
        usage.add(&SeAccount::of_deletion(deletion.size));
        *count += 1;
        self.expected.digest.add(Item::Deletion, &(se, deletion));
        Ok(())
    }

    fn reservations(&mut self) -> Result<(), Defect> {
        let (state, expected, audit) = (self.state, &mut self.expected, &mut self.audit);
        let mut expiry = BTreeSet::new();
        for (guid, reservation) in &state.reservations {
            expected.digest.add(Item::Reservation, reservation);
            expiry.insert((reservation.expires, *guid));
            let reserved = reservation.reserved();
            expected.accounts.reserve_by(
                reservation.owner,
                reservation.group,
                &reserved,
                &Usage::default(),
            )?;
            expected.accounts.count_reservation(reservation.owner, true)?;
            for replica in &reservation.pending {
                expected.accounts.ses.entry(replica.se).or_default().reserved += 1;
            }
            if *guid != reservation.guid || reservation.pending.is_empty() {
                audit.find("reservations", guid, "kept under another GUID, or with nothing pending");
            }
        }
        if expiry != state.reservation_expiry {
            audit.find("index of expiring reservations", "all", "differs from the reservations");
        }
        if expected.accounts.reservations != state.accounts.reservations {
            audit.find("reservations of each user", "all", "differs from the reservations");
        }
        Ok(())
    }

    fn compare_record(&mut self, row: &Row<'_>) {
        let key = RecordKey::decode(&mut Reader::new(row.name)).ok();
        let same = key
            .and_then(|key| self.state.record(key))
            .is_some_and(|kept| exacat_model::codec::Encode::to_bytes(kept) == row.rest);
        if !same {
            self.find("records", format!("{:?}", row.name), "another in memory than in the table");
        }
    }

    fn records(&mut self) {
        let mut names = BTreeMap::new();
        for (key, (record, revision)) in &self.state.records {
            self.expected.digest.add(Item::Record, &(record.clone(), *revision));
            if let Some(name) = record.unique_name() {
                names.insert((key.kind(), name.to_owned()), *key);
            }
        }
        if names != self.state.record_names {
            self.find("names of records", "all", "differs from the records");
        }
    }

    fn deletions(&mut self) {
        let mut counted = std::mem::take(&mut self.expected.deletions);
        for (se, account) in &self.state.accounts.ses {
            let (usage, count, places) = counted.remove(se).unwrap_or_default();
            if usage != account.deletions_usage {
                self.find("usage of a deletion queue", se.0, "differs from its items");
            }
            if count != places {
                self.find("index of a deletion queue", se.0, "has more than its items");
            }
        }
        for se in counted.keys() {
            self.find("usage of a deletion queue", se.0, "there is none");
        }
    }

    fn accounts(&mut self) {
        let (state, expected, audit) = (self.state, &self.expected, &mut self.audit);
        fn differing<K: Ord + Copy>(
            kept: &BTreeMap<K, Account>,
            counted: &BTreeMap<K, Account>,
        ) -> Vec<(K, Account, Account)> {
            let keys: BTreeSet<K> = kept.keys().chain(counted.keys()).copied().collect();
            let of = |map: &BTreeMap<K, Account>, key: K| map.get(&key).copied().unwrap_or_default();
            let pairs = keys.into_iter().map(|key| (key, of(kept, key), of(counted, key)));
            pairs.filter(|(_, kept, counted)| kept != counted).collect()
        }
        for (user, kept, counted) in differing(&state.accounts.users, &expected.accounts.users) {
            audit.find("usage of a user", user.0, format!("kept {kept:?}, counted {counted:?}"));
        }
        for (group, kept, counted) in differing(&state.accounts.groups, &expected.accounts.groups) {
            audit.find("usage of a group", group.0, format!("kept {kept:?}, counted {counted:?}"));
        }
        let nothing = SeAccount::default();
        let ses: BTreeSet<SeNumber> =
            state.accounts.ses.keys().chain(expected.accounts.ses.keys()).copied().collect();
        for se in ses {
            let kept = state.accounts.ses.get(&se).unwrap_or(&nothing);
            let counted = expected.accounts.ses.get(&se).unwrap_or(&nothing);
            if kept.usage != counted.usage {
                let detail = format!("kept {:?}, counted {:?}", kept.usage, counted.usage);
                audit.find("usage of an SE", se.0, detail);
            }
            let places = |account: &SeAccount| (account.trashed, account.reserved);
            if kept.directories != counted.directories || places(kept) != places(counted) {
                audit.find("index of an SE's directories", se.0, "differs from the files and reservations");
            }
        }
    }

    fn sizes(&mut self) {
        let (state, expected, audit) = (self.state, &self.expected, &mut self.audit);
        let mut compare = |what: &str, kept: u64, counted: u64| {
            if kept != counted {
                audit.find(what, "all", format!("kept {kept}, counted {counted}"));
            }
        };
        compare("number of entries", state.entries + 1, expected.entries);
        compare("number of directories", state.directories.len(), expected.directories);
        compare("number of items of the trash", state.trash_items, expected.trash_items);
        compare("number of expiring entries", expected.expiring.1, expected.expiring.0);
        compare("number of records", state.records.len() as u64, expected.records);
        compare("number of reservations", state.reservations.len() as u64, expected.reservations);
        if state.digest() != expected.digest.value() {
            audit.find("digest", "all", "is not that of the entries");
        }
        let root = state.usage(UsageOf::Directory(DirId::ROOT));
        if root.reserved != Usage::default() {
            audit.find("usage of a directory", DirId::ROOT.0, "reserves something");
        }
    }
}
