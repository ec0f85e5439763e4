//! Applies a change: a pure function of state and change, without any decision. The rules say what
//! changes ([`rules::perform`]), and this file has the counters and rows that follow.
//!
//! A change that does not fit the state is a [`Defect`]: it was not decided on this state. The
//! state may then be half changed, and the caller must give it up.

use std::sync::atomic::Ordering;

use exacat_model::codec::Encode;
use exacat_model::{
    At, Body, Change, Deletion, DeletionId, DirId, Effect, Entry, Guid, Location, Record, RecordKey,
    RecordKind, Replica, Reservation, Revision, SeNumber, TrashId, Usage, UserId,
};
use exacat_store::Trace;
use exacat_store::rules::{self, Stamp};

use super::accounts::{NOTHING, change};
use super::{Above, Directory, Item, State, deletion_of};
use crate::defect::Defect;
use crate::keyspace;
use crate::page::{Row, Trashed};

impl State {
    /// Applies a change of the history.
    pub(crate) fn apply_change(&mut self, change: &Change) -> Result<(), Defect> {
        let stamp = Stamp { revision: change.revision, time: change.time, who: change.who };
        self.apply(stamp, &change.effect, None)
    }

    /// Applies the next change; `encoded` are its effect's canonical bytes, if the caller has them.
    pub(crate) fn apply(
        &mut self,
        stamp: Stamp,
        effect: &Effect,
        encoded: Option<&[u8]>,
    ) -> Result<(), Defect> {
        if stamp.revision.0 != self.revision.0 + 1 {
            let (got, last) = (stamp.revision.0, self.revision.0);
            return Err(Defect::new(format!("change {got} does not follow change {last}")));
        }
        if stamp.time < self.time {
            return Err(Defect::new(format!("change {} is before the one before it", stamp.revision.0)));
        }
        rules::perform(self, stamp, effect, encoded)?;
        if rules::changes_credentials(effect) {
            self.rights = stamp.revision;
            self.credentials.fetch_add(1, Ordering::Release);
        }
        for trace in Trace::of(effect) {
            self.put_side(keyspace::TRACES, &keyspace::trace_key(&trace), &[])?;
        }
        self.revision = stamp.revision;
        self.time = stamp.time;
        Ok(())
    }

    // ---- the trash ----

    /// Puts the row of an item of the trash; its entry is counted already.
    fn insert_trashed(&mut self, id: TrashId, entry: &Entry, item: &Trashed) -> Result<(), Defect> {
        self.digest.add(Item::Trashed, &(id, (item.lfn.clone(), (item.removed_by, item.removed))));
        self.trash_items += 1;
        let key = keyspace::trash_key(id);
        let State { room, table, .. } = self;
        table.put(&room.trashed(entry, &key, item))
    }

    /// Removes the row of an item of the trash.
    fn forget_trashed(&mut self, id: TrashId, item: &rules::Trashed) -> Result<(), Defect> {
        self.digest.take(Item::Trashed, &(id, (item.lfn.clone(), (item.removed_by, item.removed))));
        self.trash_items -= 1;
        self.drop_side(keyspace::TRASH, &keyspace::trash_key(id))
    }

    /// Removes an entry whose row is gone already. `parent` is its directory; none for an item of
    /// the trash.
    fn forget_entry(&mut self, entry: &Entry, parent: Option<DirId>) -> Result<(), Defect> {
        let (revision, usage) = (self.now(), Usage::of(entry));
        self.accounts.use_by(entry.owner, entry.group, &NOTHING, &usage)?;
        if let Some(id) = entry.directory() {
            self.directories.remove(id, revision)?;
        }
        if let Some(file) = entry.file() {
            self.place_replicas(&file.replicas, file.size, parent, false)?;
            file.replicas.iter().for_each(|replica| self.accounts.forget_if_unused(replica.se));
        }
        if let Some(guid) = entry.guid() {
            self.table.put(&Row::purged(&guid, revision))?;
        }
        self.entries -= 1;
        self.digest.take(Item::Entry, entry);
        Ok(())
    }

    // ---- upload reservations ----

    /// Replaces the GUID's upload reservation by another, or by none.
    pub(crate) fn set_reservation(&mut self, guid: Guid, after: Option<Reservation>) -> Result<(), Defect> {
        let before = self.reservations.remove(&guid);
        match &after {
            Some(reservation) => self.put_side(keyspace::RESERVATIONS, &guid.0, &reservation.to_bytes())?,
            None if before.is_some() => self.drop_side(keyspace::RESERVATIONS, &guid.0)?,
            None => {}
        }
        if let Some(reservation) = &before {
            self.digest.take(Item::Reservation, reservation);
            self.reservation_expiry.remove(&(reservation.expires, guid));
            self.accounts.reserve_by(
                reservation.owner,
                reservation.group,
                &NOTHING,
                &reservation.reserved(),
            )?;
            self.accounts.count_reservation(reservation.owner, false)?;
            for replica in &reservation.pending {
                let se = self.accounts.ses.entry(replica.se).or_default();
                se.reserved = se
                    .reserved
                    .checked_sub(1)
                    .ok_or_else(|| Defect::new("an SE's count of reserved replicas is wrong"))?;
            }
        }
        let pending: Vec<SeNumber> =
            before.iter().flat_map(|reservation| &reservation.pending).map(|replica| replica.se).collect();
        if let Some(reservation) = after {
            self.digest.add(Item::Reservation, &reservation);
            self.reservation_expiry.insert((reservation.expires, guid));
            self.accounts.reserve_by(
                reservation.owner,
                reservation.group,
                &reservation.reserved(),
                &NOTHING,
            )?;
            self.accounts.count_reservation(reservation.owner, true)?;
            for replica in &reservation.pending {
                self.accounts.ses.entry(replica.se).or_default().reserved += 1;
            }
            self.reservations.insert(guid, reservation);
        }
        pending.into_iter().for_each(|se| self.accounts.forget_if_unused(se));
        Ok(())
    }

    // ---- members, records ----

    pub(crate) fn set_member(&mut self, collection: Guid, member: Guid, added: bool) -> Result<(), Defect> {
        if self.look().has_member(collection, member)? == added {
            return Err(Defect::new(format!("{member} is a member, or is none, already")));
        }
        let key = keyspace::member_key(collection, member);
        if added {
            self.digest.add(Item::Member, &(collection, member));
            return self.put_side(keyspace::MEMBERS, &key, &[]);
        }
        self.digest.take(Item::Member, &(collection, member));
        self.drop_side(keyspace::MEMBERS, &key)
    }

    pub(crate) fn set_record(&mut self, record: Record, revision: Revision) -> Result<(), Defect> {
        let key = record.key();
        self.forget_record(key)?;
        if let Some(name) = record.unique_name() {
            self.record_names.insert((key.kind(), name.to_owned()), key);
        }
        let row = (record, revision);
        self.digest.add(Item::Record, &row);
        self.put_side(keyspace::RECORDS, &keyspace::encoded_key(&key), &row.to_bytes())?;
        self.records.insert(key, row);
        Ok(())
    }

    fn forget_record(&mut self, key: RecordKey) -> Result<(), Defect> {
        if let Some((record, revision)) = self.records.remove(&key) {
            if let Some(name) = record.unique_name() {
                self.record_names.remove(&(key.kind(), name.to_owned()));
            }
            self.drop_side(keyspace::RECORDS, &keyspace::encoded_key(&key))?;
            self.digest.take(Item::Record, &(record, revision));
        }
        Ok(())
    }

    // ---- rows ----

    /// Returns the revision of the change that is being applied.
    fn now(&self) -> Revision {
        Revision(self.revision.0 + 1)
    }

    fn put_entry(&mut self, entry: &Entry) -> Result<(), Defect> {
        self.directories.content_changed(entry.at.parent, entry.revision);
        let State { room, table, .. } = self;
        table.put(&room.row(entry))
    }

    /// Puts the note that this place is empty now.
    fn put_gone(&mut self, at: &At) -> Result<(), Defect> {
        let revision = self.now();
        self.directories.content_changed(at.parent, revision);
        self.table.put(&Row::gone(keyspace::directory_of(at), at.name.as_str().as_bytes(), revision))
    }

    /// Stores a row beside the tree.
    pub(super) fn put_side(&mut self, table: DirId, key: &[u8], value: &[u8]) -> Result<(), Defect> {
        let revision = self.now();
        self.table.put(&Row::side(table, key, value, revision))
    }

    /// Removes a row beside the tree.
    pub(super) fn drop_side(&mut self, table: DirId, key: &[u8]) -> Result<(), Defect> {
        let revision = self.now();
        self.table.put(&Row::gone(table, key, revision))
    }

    // ---- entries with all that is counted ----

    /// Puts an entry and counts it; with `trashed`, as an item of the trash. `encoded` are its
    /// canonical bytes, if the caller has them. Such an entry was decided on this very state, and
    /// is not checked again.
    pub(crate) fn insert_entry(
        &mut self,
        entry: &Entry,
        trashed: Option<&Trashed>,
        encoded: Option<&[u8]>,
    ) -> Result<(), Defect> {
        let id = entry.id();
        if encoded.is_none() {
            if trashed.is_none() && self.look().has(&entry.at)? {
                let at = &entry.at;
                return Err(Defect::new(format!("{:?} is taken in directory {}", at.name, at.parent.0)));
            }
            if entry.guid().map_or(Ok(false), |guid| self.look().has_guid(guid))? {
                return Err(Defect::new(format!("{id:?} is there already")));
            }
        }
        if let Body::Directory(number) = &entry.body {
            let above = match *number {
                DirId::ROOT => Above::Nothing,
                _ if trashed.is_some() => Above::Trash(TrashId(entry.revision)),
                _ => Above::Directory(entry.at.parent),
            };
            if number.0 >= self.next_directory {
                return Err(Defect::new(format!("directory {} was never made", number.0)));
            }
            let (name, ancestor) = (entry.at.name.as_str(), (entry.owner, entry.group, entry.mode));
            let mut directory = Directory::new(above, name, ancestor.0, ancestor.1, ancestor.2);
            directory.content = entry.revision;
            self.directories.insert(*number, directory)?;
        } else if entry.guid().is_none() {
            return Err(Defect::new("an entry without identity"));
        }
        let usage = Usage::of(entry);
        self.accounts.add_use(entry.owner, entry.group, &usage);
        let is_root = entry.directory() == Some(DirId::ROOT);
        match trashed {
            Some(item) => self.insert_trashed(TrashId(entry.revision), entry, item)?,
            None => self.put_entry(entry)?,
        }
        if !is_root && trashed.is_none() {
            self.add_up(entry.at.parent, &usage)?;
        }
        if let Some(file) = entry.file() {
            let place = if trashed.is_some() { None } else { Some(entry.at.parent) };
            self.place_replicas(&file.replicas, file.size, place, true)?;
        }
        if let Some(expires) = entry.expires
            && trashed.is_none()
        {
            self.put_side(keyspace::EXPIRY, &keyspace::expiry_key(expires, id), &[])?;
        }
        self.entries += u64::from(!is_root);
        match encoded {
            Some(bytes) => self.digest.add_bytes(Item::Entry, bytes),
            None => self.digest.add(Item::Entry, entry),
        }
        Ok(())
    }

    /// Adds to the counters of this directory and those above it.
    pub(super) fn add_up(&mut self, from: DirId, usage: &Usage) -> Result<(), Defect> {
        self.count_up(from, |counted| {
            counted.add(usage);
            Ok(())
        })
    }

    /// Changes the counters of this directory and those above it.
    fn change_up(&mut self, from: DirId, plus: &Usage, minus: &Usage) -> Result<(), Defect> {
        self.count_up(from, |counted| change(counted, plus, minus))
    }

    fn count_up(
        &mut self,
        from: DirId,
        count: impl Fn(&mut Usage) -> Result<(), Defect>,
    ) -> Result<(), Defect> {
        let mut next = Some(from);
        while let Some(id) = next {
            let directory = self.directories.get_mut(id)?;
            count(&mut directory.usage)?;
            next = match directory.above {
                Above::Directory(above) => Some(above),
                Above::Nothing | Above::Trash(_) => None,
            };
        }
        Ok(())
    }

    /// Returns the usage of an entry with everything below it.
    pub(super) fn usage_with_below(&self, entry: &Entry) -> Result<Usage, Defect> {
        let mut usage = Usage::of(entry);
        if let Some(id) = entry.directory() {
            let directory =
                self.directory(id).ok_or_else(|| Defect::new(format!("there is no directory {}", id.0)))?;
            usage.add(&directory.usage);
        }
        Ok(usage)
    }

    /// Counts replicas that came or went, of a file in this directory (none: itself an item of the
    /// trash).
    pub(super) fn place_replicas(
        &mut self,
        replicas: &[Replica],
        size: Option<u64>,
        directory: Option<DirId>,
        come: bool,
    ) -> Result<(), Defect> {
        for replica in replicas.iter().filter(|replica| replica.se != SeNumber::NONE) {
            let usage = Usage::of_replica(replica, size);
            let (plus, minus) = if come { (&usage, &NOTHING) } else { (&NOTHING, &usage) };
            change(&mut self.accounts.ses.entry(replica.se).or_default().usage, plus, minus)?;
            self.move_file(replica.se, directory, come)?;
        }
        Ok(())
    }

    fn move_replicas(
        &mut self,
        replicas: &[Replica],
        from: Option<DirId>,
        to: Option<DirId>,
    ) -> Result<(), Defect> {
        for replica in replicas.iter().filter(|replica| replica.se != SeNumber::NONE && from != to) {
            self.move_file(replica.se, to, true)?;
            self.move_file(replica.se, from, false)?;
        }
        Ok(())
    }

    /// Counts a file with a replica on this SE that came into a directory (none: the trash) or left
    /// it.
    fn move_file(&mut self, se: SeNumber, directory: Option<DirId>, come: bool) -> Result<(), Defect> {
        let Some(id) = directory else {
            return self.accounts.ses.entry(se).or_default().move_trashed(come);
        };
        if self.directories.get_mut(id)?.move_file(se, come)? {
            let account = self.accounts.ses.entry(se).or_default();
            if come {
                account.directories.insert(id);
            } else {
                account.directories.remove(&id);
            }
        }
        Ok(())
    }
}

impl rules::State for State {
    fn insert(&mut self, entry: &Entry, encoded: Option<&[u8]>) -> Result<(), Defect> {
        if let Some(number) = entry.directory() {
            self.next_directory = self.next_directory.max(number.0.saturating_add(1));
        }
        self.insert_entry(entry, None, encoded)
    }

    fn replace(&mut self, old: &Entry, new: Entry) -> Result<(), Defect> {
        let (before, after) = (Usage::of(old), Usage::of(&new));
        if (old.owner, old.group) == (new.owner, new.group) {
            if before != after {
                self.accounts.use_by(new.owner, new.group, &after, &before)?;
            }
        } else {
            self.accounts.use_by(old.owner, old.group, &NOTHING, &before)?;
            self.accounts.add_use(new.owner, new.group, &after);
        }
        if before != after && old.directory() != Some(DirId::ROOT) {
            self.change_up(new.at.parent, &after, &before)?;
        }
        if let (Some(was), Some(is)) = (old.file(), new.file())
            && (was.replicas != is.replicas || was.size != is.size)
        {
            let place = Some(new.at.parent);
            self.place_replicas(&is.replicas, is.size, place, true)?;
            self.place_replicas(&was.replicas, was.size, place, false)?;
            was.replicas.iter().for_each(|replica| self.accounts.forget_if_unused(replica.se));
        }
        if old.expires != new.expires {
            if let Some(expires) = old.expires {
                self.drop_side(keyspace::EXPIRY, &keyspace::expiry_key(expires, old.id()))?;
            }
            if let Some(expires) = new.expires {
                self.put_side(keyspace::EXPIRY, &keyspace::expiry_key(expires, new.id()), &[])?;
            }
        }
        if (old.owner, old.group, old.mode) != (new.owner, new.group, new.mode) {
            self.rights = new.revision;
            if let Some(id) = new.directory() {
                let directory = self.directories.get_mut(id)?;
                (directory.owner, directory.group, directory.mode) = (new.owner, new.group, new.mode);
                self.directories.shape = new.revision;
            }
        }
        self.put_entry(&new)?;
        self.digest.take(Item::Entry, old);
        self.digest.add(Item::Entry, &new);
        Ok(())
    }

    fn relocate(&mut self, old: &Entry, new: Entry) -> Result<(), Defect> {
        let (from, to) = (&old.at, &new.at);
        let usage = self.usage_with_below(old)?;
        self.change_up(from.parent, &NOTHING, &usage)?;
        if let Some(file) = old.file() {
            self.move_replicas(&file.replicas, Some(from.parent), Some(to.parent))?;
        }
        self.put_gone(from)?;
        self.put_entry(&new)?;
        if let Some(id) = old.directory() {
            self.directories.relocate(id, Above::Directory(to.parent), to.name.as_str(), new.revision)?;
        }
        self.add_up(to.parent, &usage)?;
        self.digest.take(Item::Entry, old);
        self.digest.add(Item::Entry, &new);
        Ok(())
    }

    fn put_trashed(&mut self, trash: TrashId, old: &Entry, item: rules::Trashed) -> Result<(), Defect> {
        let rules::Trashed { lfn, entry: new, removed_by, removed } = item;
        let at = &old.at;
        let usage = self.usage_with_below(old)?;
        self.change_up(at.parent, &NOTHING, &usage)?;
        if let Some(file) = old.file() {
            self.move_replicas(&file.replicas, Some(at.parent), None)?;
        }
        if let Some(expires) = old.expires {
            self.drop_side(keyspace::EXPIRY, &keyspace::expiry_key(expires, old.id()))?;
        }
        self.put_gone(at)?;
        if let Some(directory) = old.directory() {
            self.directories.relocate(directory, Above::Trash(trash), at.name.as_str(), new.revision)?;
        }
        self.digest.take(Item::Entry, old);
        self.digest.add(Item::Entry, &new);
        self.insert_trashed(trash, &new, &Trashed { at: at.clone(), lfn, removed_by, removed })
    }

    fn restore(&mut self, trash: TrashId, item: &rules::Trashed, new: Entry) -> Result<(), Defect> {
        let (old, to) = (&item.entry, &new.at);
        self.forget_trashed(trash, item)?;
        self.put_entry(&new)?;
        if let Some(id) = old.directory() {
            self.directories.relocate(id, Above::Directory(to.parent), to.name.as_str(), new.revision)?;
        }
        let usage = self.usage_with_below(&new)?;
        self.add_up(to.parent, &usage)?;
        if let Some(file) = new.file() {
            self.move_replicas(&file.replicas, None, Some(to.parent))?;
        }
        if let Some(expires) = new.expires {
            self.put_side(keyspace::EXPIRY, &keyspace::expiry_key(expires, new.id()), &[])?;
        }
        self.digest.take(Item::Entry, old);
        self.digest.add(Item::Entry, &new);
        Ok(())
    }

    fn purge_trashed(&mut self, trash: TrashId, item: &rules::Trashed) -> Result<(), Defect> {
        self.forget_trashed(trash, item)?;
        self.forget_entry(&item.entry, None)
    }

    fn purge(&mut self, entry: &Entry) -> Result<(), Defect> {
        self.put_gone(&entry.at)?;
        self.change_up(entry.at.parent, &NOTHING, &Usage::of(entry))?;
        if let Some(expires) = entry.expires {
            self.drop_side(keyspace::EXPIRY, &keyspace::expiry_key(expires, entry.id()))?;
        }
        self.forget_entry(entry, Some(entry.at.parent))
    }

    fn set_member(&mut self, collection: Guid, guid: Guid, is: bool) -> Result<(), Defect> {
        self.set_member(collection, guid, is)
    }

    fn forget_members(&mut self, collection: Guid) -> Result<(), Defect> {
        let mut members = Vec::new();
        self.look().scan(keyspace::MEMBERS, &collection.0, None, |row| {
            members.extend(keyspace::member(row.name).map(|(_, member)| member));
            Ok(true)
        })?;
        members.into_iter().try_for_each(|member| self.set_member(collection, member, false))
    }

    fn set_reservation(&mut self, guid: Guid, after: Option<Reservation>) -> Result<(), Defect> {
        self.set_reservation(guid, after)
    }

    fn put_record(&mut self, record: Record, revision: Revision) -> Result<(), Defect> {
        self.set_record(record, revision)
    }

    fn drop_record(&mut self, key: RecordKey) -> Result<(), Defect> {
        self.forget_record(key)
    }

    fn tokens_of(&self, user: UserId) -> Vec<RecordKey> {
        let is_of_user = |record: &&Record| matches!(record, Record::Token(token) if token.user == user);
        self.records_of(RecordKind::Token).filter(is_of_user).map(Record::key).collect()
    }

    fn put_deletion(&mut self, se: SeNumber, deletion: Deletion) -> Result<(), Defect> {
        self.put_deletion(se, deletion)
    }

    fn take_deletion(&mut self, se: SeNumber, id: DeletionId) -> Result<(), Defect> {
        self.take_deletion(se, id)
    }

    fn deletions_of(&self, se: SeNumber, guid: Guid, location: &Location) -> Result<Vec<DeletionId>, Defect> {
        self.deletions_of(se, guid, location)
    }

    fn each_deletion(
        &self,
        se: SeNumber,
        mut each: impl FnMut(Deletion) -> Result<(), Defect>,
    ) -> Result<(), Defect> {
        self.look().scan(keyspace::DELETIONS, &keyspace::of_se(se), None, |row| {
            each(deletion_of(row.rest)?).map(|()| true)
        })
    }
}
