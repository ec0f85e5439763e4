//! Applies a change: a pure function of state and change, without any decision.
//!
//! A change that does not fit the state is a [`Defect`]: it was not decided on this state. The
//! state may then be half changed, and the caller must give it up.

use std::sync::atomic::Ordering;

use exacat_model::codec::Encode;
use exacat_model::{
    At, Body, Change, Deletion, DeletionId, DirId, Effect, Entry, FieldChange, File, Guid, Lfn, PurgeTarget,
    QuotaOf, Record, RecordKey, Replica, Reservation, Revision, SeNumber, Tag, TimeMs, TrashId, Usage,
    UserId,
};
use exacat_store::{Trace, rules};

use super::accounts::change;
use super::{Above, Directory, Item, State};
use crate::defect::Defect;
use crate::keyspace;
use crate::page::{Row, Trashed};

/// Facts about a change, beside its effect, on which the state depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub revision: Revision,
    pub time: TimeMs,
    pub who: UserId,
}

/// The empty usage.
pub(super) const NOTHING: Usage = Usage {
    directories: 0,
    files: 0,
    members: 0,
    others: 0,
    replicas: 0,
    bytes: 0,
    member_bytes: 0,
    replica_bytes: 0,
};

fn nothing_at(at: &At) -> Defect {
    Defect::new(format!("nothing is called {:?} in directory {}", at.name, at.parent.0))
}

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
        match effect {
            // The effect's bytes are its number, then the entry, and nothing else.
            Effect::Created { entry } => self.create(entry, encoded.and_then(|bytes| bytes.get(1..)))?,
            Effect::Updated { at, fields, .. } => self.update(stamp, at, fields)?,
            Effect::Moved { from, to, .. } => self.relocate(stamp, from, to)?,
            Effect::Removed { at, lfn, .. } => self.remove(stamp, at, lfn)?,
            Effect::Restored { trash, to, .. } => self.restore(stamp, *trash, to)?,
            Effect::Purged { target, .. } => self.purge(stamp, target)?,
            Effect::Reserved { reservation, before } => {
                self.set_reservation(reservation.guid, Some((**reservation).clone()))?;
                for pending in &reservation.pending {
                    self.take_off_queue(pending.se, reservation.guid, &pending.location)?;
                }
                if let Some(before) = before {
                    self.give_up(stamp, before, None)?;
                }
            }
            Effect::Committed { guid, created, replica, checksums, at, .. } => match created {
                Some(entry) => {
                    self.create(entry, None).and_then(|()| self.commit_reservation(*guid, replica.se))?
                }
                None => {
                    let old = self.standing(at)?;
                    let mut new = old.clone();
                    let file = file_of(&mut new)?;
                    put_replica(file, replica.se, Some(replica.clone()));
                    for checksum in checksums.iter() {
                        file.checksums.add(*checksum).map_err(|error| Defect::new(error.message))?;
                    }
                    new.revision = stamp.revision;
                    self.swap_entry(&old, &new)?;
                    self.wanted(*guid, replica)?;
                    self.commit_reservation(*guid, replica.se)?;
                }
            },
            Effect::Released { reservation, se } => self.release(stamp, reservation, *se)?,
            Effect::Dequeued { se, done } => {
                for id in done {
                    self.take_deletion(*se, *id)?;
                }
            }
            Effect::Recorded { key, before, after } => match after {
                Some(record) => {
                    self.set_record((**record).clone(), stamp.revision)?;
                    if let (Some(Record::Se(before)), Record::Se(after)) = (before.as_deref(), &**record)
                        && before.prefix != after.prefix
                    {
                        self.prefix_changed(after.number)?;
                    }
                }
                None => self.drop_record(*key)?,
            },
        }
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

    // ---- entries ----

    fn create(&mut self, entry: &Entry, encoded: Option<&[u8]>) -> Result<(), Defect> {
        if let Body::Directory(id) = &entry.body {
            if id.0 != self.next_directory {
                return Err(Defect::new(format!("directory {} is not the next one", id.0)));
            }
            self.next_directory += 1;
        }
        if let Body::Collection { members, .. } = &entry.body
            && *members != 0
        {
            return Err(Defect::new("a new collection has members"));
        }
        self.insert_entry(entry, None, encoded)?;
        match entry.file() {
            Some(file) => file.replicas.iter().try_for_each(|replica| self.wanted(file.guid, replica)),
            None => Ok(()),
        }
    }

    fn update(&mut self, stamp: Stamp, at: &At, fields: &[FieldChange]) -> Result<(), Defect> {
        let old = self.standing(at)?;
        let mut new = old.clone();
        let mut gone = Vec::new();
        for field in fields {
            gone.extend(self.update_field(stamp, &mut new, field)?);
        }
        new.revision = stamp.revision;
        self.swap_entry(&old, &new)?;
        for field in fields {
            if let (FieldChange::Replica { after: Some(replica), .. }, Some(guid)) = (field, new.guid()) {
                self.wanted(guid, replica)?;
            }
        }
        gone.into_iter().try_for_each(|(se, deletion)| self.queue_deletion(se, deletion))
    }

    /// Changes a field; returns the deletion to be queued.
    fn update_field(
        &mut self,
        stamp: Stamp,
        entry: &mut Entry,
        field: &FieldChange,
    ) -> Result<Option<(SeNumber, Deletion)>, Defect> {
        match field {
            FieldChange::Owner { after, .. } => entry.owner = *after,
            FieldChange::Group { after, .. } => entry.group = *after,
            FieldChange::Mode { after, .. } => entry.mode = *after,
            FieldChange::Modified { after, .. } => entry.modified = *after,
            FieldChange::Expires { after, .. } => entry.expires = *after,
            FieldChange::Job { after, .. } => file_of(entry)?.job = *after,
            FieldChange::Size { after } => file_of(entry)?.size = Some(*after),
            FieldChange::Checksum { after } => {
                file_of(entry)?.checksums.add(*after).map_err(|error| Defect::new(error.message))?;
            }
            FieldChange::Replica { before, after, deletion } => {
                let file = file_of(entry)?;
                let Some(se) = after.as_ref().or(before.as_ref()).map(|replica| replica.se) else {
                    return Err(Defect::new("a replica changed from none to none"));
                };
                put_replica(file, se, after.clone());
                if let (Some(id), Some(gone)) = (deletion, before) {
                    let (guid, size) = (file.guid, file.size);
                    let location = gone.location.clone();
                    return Ok(Some((se, Deletion { id: *id, guid, size, location, queued: stamp.time })));
                }
            }
            FieldChange::Tag { key, after, .. } => {
                match entry.tags.binary_search_by(|tag| tag.key.cmp(key)) {
                    Ok(index) => match after {
                        Some(value) => entry.tags[index].value = value.clone(),
                        None => drop(entry.tags.remove(index)),
                    },
                    Err(index) => {
                        if let Some(value) = after {
                            entry.tags.insert(index, Tag { key: key.clone(), value: value.clone() });
                        }
                    }
                }
            }
            FieldChange::Member { guid, added } => {
                let Body::Collection { guid: collection, members } = &mut entry.body else {
                    return Err(Defect::new("a member of what is no collection changed"));
                };
                self.set_member(*collection, *guid, *added)?;
                *members = if *added { *members + 1 } else { members.saturating_sub(1) };
            }
        }
        Ok(None)
    }

    fn relocate(&mut self, stamp: Stamp, from: &At, to: &At) -> Result<(), Defect> {
        let old = self.standing(from)?;
        if let Some(id) = old.directory()
            && self.way_up(to.parent).any(|(above, _)| above == id)
        {
            return Err(Defect::new(format!("directory {} would move below itself", id.0)));
        }
        self.check_free(to)?;
        let new = Entry { at: to.clone(), revision: stamp.revision, ..old.clone() };
        let usage = self.usage_with_below(&old)?;
        self.change_up(from.parent, &NOTHING, &usage)?;
        if let Some(file) = old.file() {
            self.move_replicas(&file.replicas, Some(from.parent), Some(to.parent))?;
        }
        self.put_gone(from)?;
        self.put_entry(&new)?;
        if let Some(id) = old.directory() {
            self.directories.relocate(id, Above::Directory(to.parent), to.name.as_str(), stamp.revision)?;
        }
        self.add_up(to.parent, &usage)?;
        self.digest.take(Item::Entry, &old);
        self.digest.add(Item::Entry, &new);
        Ok(())
    }

    fn remove(&mut self, stamp: Stamp, at: &At, lfn: &Lfn) -> Result<(), Defect> {
        let old = self.standing(at)?;
        if old.directory() == Some(DirId::ROOT) {
            return Err(Defect::new("the root cannot be removed"));
        }
        let new = Entry { revision: stamp.revision, ..old.clone() };
        let id = TrashId(stamp.revision);
        let usage = self.usage_with_below(&old)?;
        self.change_up(at.parent, &NOTHING, &usage)?;
        if let Some(file) = old.file() {
            self.move_replicas(&file.replicas, Some(at.parent), None)?;
        }
        if let Some(expires) = old.expires {
            self.drop_side(keyspace::EXPIRY, &keyspace::expiry_key(expires, old.id()))?;
        }
        self.put_gone(at)?;
        if let Some(directory) = old.directory() {
            self.directories.relocate(directory, Above::Trash(id), at.name.as_str(), stamp.revision)?;
        }
        self.digest.take(Item::Entry, &old);
        self.digest.add(Item::Entry, &new);
        let item = Trashed { at: at.clone(), lfn: lfn.clone(), removed_by: stamp.who, removed: stamp.time };
        self.put_trashed(id, &new, &item)
    }

    /// Stores an item of the trash; its entry is counted already.
    fn put_trashed(&mut self, id: TrashId, entry: &Entry, item: &Trashed) -> Result<(), Defect> {
        self.digest.add(Item::Trashed, &(id, (item.lfn.clone(), (item.removed_by, item.removed))));
        self.trash_items += 1;
        let key = keyspace::trash_key(id);
        let State { room, table, .. } = self;
        table.put(&room.trashed(entry, &key, item))
    }

    /// Removes an item of the trash; returns its entry.
    fn forget_trashed(&mut self, id: TrashId) -> Result<Entry, Defect> {
        let missing = || Defect::new(format!("there is no trash item {}", id.0.0));
        let (entry, item) = self.look().trashed(id)?.ok_or_else(missing)?;
        self.digest.take(Item::Trashed, &(id, (item.lfn, (item.removed_by, item.removed))));
        self.trash_items -= 1;
        self.drop_side(keyspace::TRASH, &keyspace::trash_key(id))?;
        Ok(entry)
    }

    fn restore(&mut self, stamp: Stamp, trash: TrashId, to: &At) -> Result<(), Defect> {
        self.check_free(to)?;
        let old = self.forget_trashed(trash)?;
        let new = Entry { at: to.clone(), revision: stamp.revision, ..old.clone() };
        self.put_entry(&new)?;
        if let Some(id) = old.directory() {
            self.directories.relocate(id, Above::Directory(to.parent), to.name.as_str(), stamp.revision)?;
        }
        let usage = self.usage_with_below(&new)?;
        self.add_up(to.parent, &usage)?;
        if let Some(file) = new.file() {
            self.move_replicas(&file.replicas, None, Some(to.parent))?;
        }
        if let Some(expires) = new.expires {
            self.put_side(keyspace::EXPIRY, &keyspace::expiry_key(expires, new.id()), &[])?;
        }
        self.digest.take(Item::Entry, &old);
        self.digest.add(Item::Entry, &new);
        Ok(())
    }

    fn purge(&mut self, stamp: Stamp, target: &PurgeTarget) -> Result<(), Defect> {
        let (entry, trashed) = match target {
            PurgeTarget::Item(trash) => (self.forget_trashed(*trash)?, true),
            PurgeTarget::Below { at, .. } => (self.standing(at)?, false),
        };
        if let Some(id) = entry.directory()
            && (id == DirId::ROOT || !self.is_empty_directory(id))
        {
            return Err(Defect::new(format!("directory {} cannot be purged", id.0)));
        }
        let usage = Usage::of(&entry);
        if !trashed {
            self.put_gone(&entry.at)?;
            self.change_up(entry.at.parent, &NOTHING, &usage)?;
            if let Some(expires) = entry.expires {
                self.drop_side(keyspace::EXPIRY, &keyspace::expiry_key(expires, entry.id()))?;
            }
        }
        self.accounts.use_by(entry.owner, entry.group, &NOTHING, &usage)?;
        match &entry.body {
            Body::Directory(id) => self.directories.remove(*id, stamp.revision)?,
            Body::File(file) => {
                let place = if trashed { None } else { Some(entry.at.parent) };
                self.place_replicas(&file.replicas, file.size, place, false)?;
            }
            Body::Collection { guid, .. } => self.forget_members(*guid)?,
            Body::Link { .. } => {}
        }
        if let Some(guid) = entry.guid() {
            self.table.put(&Row::purged(&guid, stamp.revision))?;
        }
        self.entries -= 1;
        self.digest.take(Item::Entry, &entry);
        let Some(file) = entry.file() else { return Ok(()) };
        let gone = file.replicas.iter().filter(|replica| replica.takes_space());
        for (index, replica) in (0u32..).zip(gone) {
            let id = DeletionId { revision: stamp.revision, index };
            let (guid, size, location) = (file.guid, file.size, replica.location.clone());
            self.queue_deletion(replica.se, Deletion { id, guid, size, location, queued: stamp.time })?;
        }
        file.replicas.iter().for_each(|replica| self.accounts.forget_if_unused(replica.se));
        Ok(())
    }

    // ---- upload reservations ----

    fn commit_reservation(&mut self, guid: Guid, se: SeNumber) -> Result<(), Defect> {
        let mut reservation = self
            .reservation(guid)
            .cloned()
            .ok_or_else(|| Defect::new(format!("there is no reservation of {guid}")))?;
        reservation.pending.retain(|replica| replica.se != se);
        reservation.exists = true;
        let left = if reservation.pending.is_empty() { None } else { Some(reservation) };
        self.set_reservation(guid, left)
    }

    fn release(
        &mut self,
        stamp: Stamp,
        reservation: &Reservation,
        se: Option<SeNumber>,
    ) -> Result<(), Defect> {
        let mut left = reservation.clone();
        left.pending.retain(|replica| se.is_some_and(|se| replica.se != se));
        let left = if left.pending.is_empty() { None } else { Some(left) };
        self.set_reservation(reservation.guid, left)?;
        self.give_up(stamp, reservation, se)
    }

    /// Queues the pending replicas of an upload reservation for deletion, on one SE or on all.
    fn give_up(&mut self, stamp: Stamp, was: &Reservation, se: Option<SeNumber>) -> Result<(), Defect> {
        let gone = was.pending.iter().filter(|replica| se.is_none_or(|se| replica.se == se));
        for (index, replica) in (0u32..).zip(gone) {
            let id = DeletionId { revision: stamp.revision, index };
            let (guid, size, location) = (was.guid, Some(was.size), replica.location.clone());
            self.queue_deletion(replica.se, Deletion { id, guid, size, location, queued: stamp.time })?;
        }
        Ok(())
    }

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

    fn forget_members(&mut self, collection: Guid) -> Result<(), Defect> {
        let mut members = Vec::new();
        self.look().scan(keyspace::MEMBERS, &collection.0, None, |row| {
            members.extend(keyspace::member(row.name).map(|(_, member)| member));
            Ok(true)
        })?;
        members.into_iter().try_for_each(|member| self.set_member(collection, member, false))
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

    /// Drops a record, and those that depend on it.
    fn drop_record(&mut self, key: RecordKey) -> Result<(), Defect> {
        self.forget_record(key)?;
        match key {
            RecordKey::User(user) => {
                let of_user = |record: &Record| match record {
                    Record::Token(token) if token.user == user => Some(record.key()),
                    _ => None,
                };
                let tokens: Vec<RecordKey> =
                    self.records.values().filter_map(|(record, _)| of_user(record)).collect();
                tokens.into_iter().try_for_each(|token| self.forget_record(token))?;
                self.forget_record(RecordKey::Quota(QuotaOf::User(user)))
            }
            RecordKey::Group(group) => self.forget_record(RecordKey::Quota(QuotaOf::Group(group))),
            RecordKey::Se(_) | RecordKey::Quota(_) | RecordKey::Token(_) => Ok(()),
        }
    }

    // ---- rows ----

    /// Returns the revision of the change that is being applied.
    fn now(&self) -> Revision {
        Revision(self.revision.0 + 1)
    }

    /// Returns the entry at this place.
    fn standing(&self, at: &At) -> Result<Entry, Defect> {
        self.look().find(at)?.ok_or_else(|| nothing_at(at))
    }

    fn check_free(&self, at: &At) -> Result<(), Defect> {
        match self.look().has(at)? {
            true => Err(Defect::new(format!("{:?} is taken in directory {}", at.name, at.parent.0))),
            false => Ok(()),
        }
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
            if trashed.is_none() {
                self.check_free(&entry.at)?;
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
            Some(item) => self.put_trashed(TrashId(entry.revision), entry, item)?,
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

    /// Replaces `old` by `new`: the same entry at the same place, neither an item of the trash.
    fn swap_entry(&mut self, old: &Entry, new: &Entry) -> Result<(), Defect> {
        let (before, after) = (Usage::of(old), Usage::of(new));
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
        self.put_entry(new)?;
        self.digest.take(Item::Entry, old);
        self.digest.add(Item::Entry, new);
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

fn file_of(entry: &mut Entry) -> Result<&mut File, Defect> {
    match &mut entry.body {
        Body::File(file) => Ok(file),
        _ => Err(Defect::new("a change of a file's field is of what is no file")),
    }
}

/// Puts or removes a file's replica on this SE; replicas are in the order of SEs.
fn put_replica(file: &mut File, se: SeNumber, after: Option<Replica>) {
    file.replicas.retain(|replica| replica.se != se);
    if let Some(replica) = after {
        let index = file.replicas.partition_point(|other| other.se < se);
        file.replicas.insert(index, replica);
    }
}
