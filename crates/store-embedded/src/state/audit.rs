//! The audit: every index and every counter computed again from the entries of one state, and compared.
//!
//! A directory's counter is right if it is the sum over its children of what each counts and what is counted below it;
//! if that holds of every directory, all are right, and none needs more memory than its own line.

use std::collections::{BTreeMap, BTreeSet};

use exacat_model::{Audit, DirId, Entry, EntryId, Replica, SeNumber, TimeMs, TrashId, Usage};
use exacat_store::{Account, UsageOf};

use super::accounts::SeAccount;
use super::arena::Handle;
use super::load::{label, members_said};
use super::{Above, Accounts, Defect, Digest, Item, State};

/// What the entries say there should be.
#[derive(Default)]
struct Expected {
    accounts: Accounts,
    expiry: BTreeSet<(TimeMs, EntryId)>,
    digest: Digest,
    entries: u64,
    directories: u64,
    objects: u64,
    members: u64,
}

impl State {
    /// Recomputes and compares everything.
    pub fn audit(&self) -> Result<Audit, Defect> {
        let mut audit =
            Audit { revision: self.revision, checked: Vec::new(), findings: Vec::new(), findings_total: 0 };
        let mut expected = Expected::default();
        let root = self.directory(DirId::ROOT).ok_or_else(|| Defect::new("there is no root"))?;
        self.audit_entry(root.handle, None, &mut expected, &mut audit)?;
        self.audit_below(DirId::ROOT, &mut expected, &mut audit)?;
        for (id, item) in &self.trash {
            self.audit_trashed(*id, item.handle, &mut expected, &mut audit)?;
            let row = (*id, (item.lfn.clone(), (item.removed_by, item.removed)));
            expected.digest.add(Item::Trashed, &row);
        }
        self.audit_members(&mut expected, &mut audit)?;
        self.audit_bookings(&mut expected, &mut audit)?;
        self.audit_deletions(&mut expected, &mut audit)?;
        self.audit_records(&mut expected, &mut audit);
        self.audit_accounts(&expected, &mut audit);
        self.audit_sizes(&expected, &mut audit);
        audit.checked = vec![
            ("entries".into(), expected.entries),
            ("directories".into(), expected.directories),
            ("GUIDs".into(), expected.objects),
            ("expiries".into(), expected.expiry.len() as u64),
            ("trash items".into(), self.trash.len() as u64),
            ("members".into(), expected.members),
            ("bookings".into(), self.bookings.len() as u64),
            ("records".into(), self.records.len() as u64),
            ("accounts".into(), self.account_list().len() as u64),
        ];
        Ok(audit)
    }

    /// Checks all that is below a directory, and its counter and those below.
    fn audit_below(&self, top: DirId, expected: &mut Expected, audit: &mut Audit) -> Result<(), Defect> {
        let mut open = vec![top];
        while let Some(id) = open.pop() {
            let mut sum = Usage::default();
            let mut last: Option<Entry> = None;
            for handle in self.handles_in(id)? {
                let entry = self.audit_entry(handle, Some(id), expected, audit)?;
                if last.as_ref().is_some_and(|last| last.at.name >= entry.at.name) {
                    audit.find("order of children", id.0, format!("{:?} stands too late", entry.at.name));
                }
                sum.add(&self.usage_with_below(&entry)?);
                if let Some(below) = entry.directory() {
                    open.push(below);
                }
                last = Some(entry);
            }
            let kept = self.directory(id).map(|directory| directory.usage);
            if kept != Some(sum) {
                audit.find("usage of a directory", id.0, format!("kept {kept:?}, counted {sum:?}"));
            }
        }
        Ok(())
    }

    fn audit_trashed(
        &self,
        id: TrashId,
        handle: Handle,
        expected: &mut Expected,
        audit: &mut Audit,
    ) -> Result<(), Defect> {
        let front = self.front(handle)?;
        let marked = front.is_trashed();
        let entry = front.entry()?;
        if !marked || entry.revision != id.0 {
            audit.find("trash", id.0.0, "the entry is not marked as this item");
        }
        self.audit_identity(handle, &entry, expected, audit);
        self.count(&entry, None, expected)?;
        if let Some(directory) = entry.directory() {
            if self.is_trash_top(directory) != Some(id) {
                audit.find("trash", id.0.0, "the directory is not at its top");
            }
            self.audit_below(directory, expected, audit)?;
        }
        Ok(())
    }

    /// Checks an entry that stands in a directory (none: the root) against the indices.
    fn audit_entry(
        &self,
        handle: Handle,
        parent: Option<DirId>,
        expected: &mut Expected,
        audit: &mut Audit,
    ) -> Result<Entry, Defect> {
        let front = self.front(handle)?;
        let marked = front.is_trashed();
        let entry = front.entry()?;
        let which = label(entry.id());
        if marked {
            audit.find("trash", &which, "marked as an item of the trash, but stands in a directory");
        }
        if self.find(&entry.at) != Some(handle) {
            audit.find("index of names", &which, "not found by its name");
        }
        if entry.at.parent != parent.unwrap_or(DirId::ROOT) {
            audit.find("children", &which, "stands in another directory than it says");
        }
        if let (Some(id), Some(parent)) = (entry.directory(), parent)
            && self.directory(id).map(|directory| directory.above) != Some(Above::Directory(parent))
        {
            audit.find("directories", &which, "its way up leads elsewhere");
        }
        self.audit_identity(handle, &entry, expected, audit);
        if let Some(expires) = entry.expires {
            expected.expiry.insert((expires, entry.id()));
        }
        self.count(&entry, Some(entry.at.parent), expected)?;
        Ok(entry)
    }

    fn audit_identity(&self, handle: Handle, entry: &Entry, expected: &mut Expected, audit: &mut Audit) {
        let which = label(entry.id());
        if self.find_id(entry.id()) != Some(handle) {
            audit.find("index of identities", &which, "not found by what it is");
        }
        match entry.directory() {
            Some(id) => {
                let gate = self.directory(id).map(|kept| (kept.owner, kept.group, kept.mode));
                if gate != Some((entry.owner, entry.group, entry.mode)) {
                    audit.find("gates", &which, "owner, group or mode differ from the entry's");
                }
                if id.0 >= self.next_directory {
                    audit.find("directories", &which, "its number was not given yet");
                }
                expected.directories += 1;
            }
            None => expected.objects += 1,
        }
        if let Some((guid, said)) = members_said(entry) {
            let kept = self.members.get(&guid).map_or(0, BTreeSet::len) as u64;
            if kept != said {
                audit.find("members", &which, format!("says {said}, has {kept}"));
            }
        }
    }

    fn count(&self, entry: &Entry, directory: Option<DirId>, expected: &mut Expected) -> Result<(), Defect> {
        expected.entries += 1;
        expected.digest.add(Item::Entry, entry);
        expected.accounts.use_by(entry.owner, entry.group, &Usage::of(entry), &Usage::default())?;
        if let Some(file) = entry.file() {
            let replicas: &[Replica] = &file.replicas;
            expected.accounts.place_replicas(replicas, file.size, directory, true)?;
            if !replicas.windows(2).all(|pair| pair[0].se < pair[1].se) {
                return Err(Defect(format!("the replicas of {} are not in order", file.guid)));
            }
        }
        Ok(())
    }

    fn audit_members(&self, expected: &mut Expected, audit: &mut Audit) -> Result<(), Defect> {
        for (collection, members) in &self.members {
            let found = self.find_guid(*collection);
            let is_collection = match found {
                Some(handle) => self.front(handle)?.is_collection(),
                None => false,
            };
            if !is_collection || members.is_empty() {
                audit.find("members", collection, "kept for what is no collection, or kept empty");
            }
            for member in members {
                expected.members += 1;
                expected.digest.add(Item::Member, &(*collection, *member));
            }
        }
        Ok(())
    }

    fn audit_bookings(&self, expected: &mut Expected, audit: &mut Audit) -> Result<(), Defect> {
        let mut expiry = BTreeSet::new();
        for (guid, booking) in &self.bookings {
            expected.digest.add(Item::Booking, booking);
            expiry.insert((booking.expires, *guid));
            let reserved = booking.reserved();
            expected.accounts.reserve_by(booking.owner, booking.group, &reserved, &Usage::default())?;
            expected.accounts.count_booking(booking.owner, true)?;
            for replica in &booking.pending {
                expected.accounts.ses.entry(replica.se).or_default().booked += 1;
            }
            if *guid != booking.guid || booking.pending.is_empty() {
                audit.find("bookings", guid, "kept under another GUID, or with nothing pending");
            }
        }
        if expiry != self.booking_expiry {
            audit.find("index of expiring bookings", "all", "differs from the bookings");
        }
        if expected.accounts.bookings != self.accounts.bookings {
            audit.find("bookings of each user", "all", "differs from the bookings");
        }
        Ok(())
    }

    fn audit_deletions(&self, expected: &mut Expected, audit: &mut Audit) -> Result<(), Defect> {
        for (se, account) in &self.accounts.ses {
            let mut sum = Usage::default();
            let mut places = BTreeSet::new();
            for (id, deletion) in &account.deletions {
                expected.digest.add(Item::Deletion, &(*se, deletion.clone()));
                sum.add(&SeAccount::of_deletion(deletion.size));
                if *id != deletion.id {
                    audit.find("deletions", format!("SE {} {id:?}", se.0), "kept under another id");
                }
                places.insert(self.deletion_place(deletion));
                if self.is_in_use(*se, deletion.guid, &deletion.location)? {
                    audit.find("deletions", format!("SE {} {id:?}", se.0), "the copy is in use");
                }
            }
            if places != account.deletion_places {
                audit.find("index of a deletion queue", se.0, "differs from its items");
            }
            if sum != account.deletions_usage {
                audit.find("usage of a deletion queue", se.0, "differs from its items");
            }
        }
        Ok(())
    }

    fn audit_records(&self, expected: &mut Expected, audit: &mut Audit) {
        let mut names = BTreeMap::new();
        for (key, (record, revision)) in &self.records {
            expected.digest.add(Item::Record, &(record.clone(), *revision));
            if let Some(name) = record.unique_name() {
                names.insert((key.kind(), name.to_owned()), *key);
            }
        }
        if names != self.record_names {
            audit.find("names of records", "all", "differs from the records");
        }
    }

    fn audit_accounts(&self, expected: &Expected, audit: &mut Audit) {
        fn differing<K: Ord + Copy>(
            kept: &BTreeMap<K, Account>,
            counted: &BTreeMap<K, Account>,
        ) -> Vec<(K, Account, Account)> {
            let keys: BTreeSet<K> = kept.keys().chain(counted.keys()).copied().collect();
            let of = |map: &BTreeMap<K, Account>, key: K| map.get(&key).copied().unwrap_or_default();
            let pairs = keys.into_iter().map(|key| (key, of(kept, key), of(counted, key)));
            pairs.filter(|(_, kept, counted)| kept != counted).collect()
        }
        for (user, kept, counted) in differing(&self.accounts.users, &expected.accounts.users) {
            audit.find("usage of a user", user.0, format!("kept {kept:?}, counted {counted:?}"));
        }
        for (group, kept, counted) in differing(&self.accounts.groups, &expected.accounts.groups) {
            audit.find("usage of a group", group.0, format!("kept {kept:?}, counted {counted:?}"));
        }
        let nothing = SeAccount::default();
        let ses: BTreeSet<SeNumber> =
            self.accounts.ses.keys().chain(expected.accounts.ses.keys()).copied().collect();
        for se in ses {
            let kept = self.accounts.ses.get(&se).unwrap_or(&nothing);
            let counted = expected.accounts.ses.get(&se).unwrap_or(&nothing);
            if kept.usage != counted.usage {
                let detail = format!("kept {:?}, counted {:?}", kept.usage, counted.usage);
                audit.find("usage of an SE", se.0, detail);
            }
            let places = |account: &SeAccount| (account.trashed, account.booked);
            if kept.directories != counted.directories || places(kept) != places(counted) {
                audit.find("index of an SE's directories", se.0, "differs from the files and bookings");
            }
        }
    }

    fn audit_sizes(&self, expected: &Expected, audit: &mut Audit) {
        let mut compare = |what: &str, kept: u64, counted: u64| {
            if kept != counted {
                audit.find(what, "all", format!("kept {kept}, counted {counted}"));
            }
        };
        let placed = expected.entries - self.trash.len() as u64;
        compare("number of entries", self.entries + 1, expected.entries);
        compare("number of names", self.names.len() as u64, placed);
        compare("number of GUIDs", self.guids.len() as u64, expected.objects);
        compare("number of directories", self.directories_present, expected.directories);
        if self.expiry != expected.expiry {
            audit.find("index of expiring entries", "all", "differs from the entries");
        }
        if self.digest() != expected.digest.value() {
            audit.find("digest", "all", "is not that of what is there");
        }
        let root = self.usage(UsageOf::Directory(DirId::ROOT));
        if root.reserved != Usage::default() {
            audit.find("usage of a directory", DirId::ROOT.0, "reserves something");
        }
    }
}
