//! Applying a change: a pure function of state and change, with no decision in it.
//!
//! A change that does not fit the state is a [`Defect`]: it was not decided on this state. Then the state may be
//! half changed, and whoever applies must give it up.

use exacat_model::{
    At, Body, Booking, Change, Deletion, DeletionId, DirId, Effect, Entry, FieldChange, File, Guid, Lfn,
    Mutation, NewBody, PurgeTarget, QuotaOf, Record, RecordKey, Replica, Revision, SeNumber, Tag, TimeMs,
    TrashId, Usage, UserId,
};

use super::accounts::change;
use super::arena::Handle;
use super::packed::{name_of, pack};
use super::{Above, Children, Defect, Directory, Item, State, Trashed};

/// What a change says beside its effect, as far as the state depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    pub revision: Revision,
    pub time: TimeMs,
    pub who: UserId,
}

/// No usage.
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
    Defect(format!("nothing is called {:?} in directory {}", at.name, at.parent.0))
}

impl State {
    /// Brings in what creating these will need. A name or a GUID that is new is looked for in vain at a place of memory
    /// that nobody has been at for long; asked for one after the other, each would be waited for.
    pub fn touch(&self, soon: &[Mutation]) {
        let mut touched = 0;
        for mutation in soon {
            if let Mutation::Create(new) = mutation {
                touched ^= self.names.touch(self.name_hash(new.at.parent, new.at.name.as_str().as_bytes()));
                if let NewBody::File(file) = &new.body {
                    touched ^= self.guids.touch(self.guid_hash(file.guid));
                }
            }
        }
        std::hint::black_box(touched);
    }

    /// Applies a change of the history.
    pub fn apply_change(&mut self, change: &Change) -> Result<(), Defect> {
        let stamp = Stamp { revision: change.revision, time: change.time, who: change.who };
        self.apply(stamp, &change.effect, None)
    }

    /// Applies the next change; `encoded` is its effect's canonical bytes, if they are there already.
    pub fn apply(&mut self, stamp: Stamp, effect: &Effect, encoded: Option<&[u8]>) -> Result<(), Defect> {
        if stamp.revision.0 != self.revision.0 + 1 {
            let (got, last) = (stamp.revision.0, self.revision.0);
            return Err(Defect(format!("change {got} does not follow change {last}")));
        }
        if stamp.time < self.time {
            return Err(Defect(format!("change {} is before the one before it", stamp.revision.0)));
        }
        match effect {
            // Behind the number of the effect stands the entry, and nothing else.
            Effect::Created { entry } => self.create(entry, encoded.and_then(|bytes| bytes.get(1..)))?,
            Effect::Updated { at, fields, .. } => self.update(stamp, at, fields)?,
            Effect::Moved { from, to, .. } => self.relocate(stamp, from, to)?,
            Effect::Removed { at, lfn, .. } => self.remove(stamp, at, lfn)?,
            Effect::Restored { trash, to, .. } => self.restore(stamp, *trash, to)?,
            Effect::Purged { target, .. } => self.purge(stamp, target)?,
            Effect::Booked { booking, before } => {
                self.set_booking(booking.guid, Some((**booking).clone()))?;
                for pending in &booking.pending {
                    self.take_off_queue(pending.se, booking.guid, &pending.location)?;
                }
                if let Some(before) = before {
                    self.give_up(stamp, before, None)?;
                }
            }
            Effect::Committed { guid, created, replica, checksums, at } => match created {
                Some(entry) => {
                    self.create(entry, None).and_then(|()| self.commit_booking(*guid, replica.se))?
                }
                None => {
                    let handle = self.find(at).ok_or_else(|| nothing_at(at))?;
                    let old = self.entry(handle)?;
                    let mut new = old.clone();
                    let file = file_of(&mut new)?;
                    put_replica(file, replica.se, Some(replica.clone()));
                    for checksum in checksums.iter() {
                        file.checksums.add(*checksum).map_err(|error| Defect(error.message))?;
                    }
                    new.revision = stamp.revision;
                    self.swap_entry(handle, &old, &new)?;
                    self.wanted(*guid, replica)?;
                    self.commit_booking(*guid, replica.se)?;
                }
            },
            Effect::Released { booking, se } => self.release(stamp, booking, *se)?,
            Effect::Dequeued { se, done } => {
                for id in done {
                    self.take_deletion(*se, *id)?;
                }
            }
            Effect::Recorded { key, before, after } => match after {
                Some(record) => {
                    self.set_record((**record).clone(), stamp.revision);
                    if let (Some(Record::Se(before)), Record::Se(after)) = (before.as_deref(), &**record)
                        && before.prefix != after.prefix
                    {
                        self.prefix_changed(after.number)?;
                    }
                }
                None => self.drop_record(*key),
            },
        }
        self.revision = stamp.revision;
        self.time = stamp.time;
        Ok(())
    }

    // ---- entries ----

    fn create(&mut self, entry: &Entry, encoded: Option<&[u8]>) -> Result<(), Defect> {
        if let Body::Directory(id) = &entry.body {
            if id.0 != self.next_directory {
                return Err(Defect(format!("directory {} is not the next one", id.0)));
            }
            self.next_directory += 1;
        }
        if let Body::Collection { members, .. } = &entry.body
            && *members != 0
        {
            return Err(Defect::new("a new collection has members"));
        }
        self.insert_entry(entry, false, encoded)?;
        match entry.file() {
            Some(file) => file.replicas.iter().try_for_each(|replica| self.wanted(file.guid, replica)),
            None => Ok(()),
        }
    }

    fn update(&mut self, stamp: Stamp, at: &At, fields: &[FieldChange]) -> Result<(), Defect> {
        let handle = self.find(at).ok_or_else(|| nothing_at(at))?;
        let old = self.entry(handle)?;
        let mut new = old.clone();
        let mut gone = Vec::new();
        for field in fields {
            gone.extend(self.update_field(stamp, &mut new, field)?);
        }
        new.revision = stamp.revision;
        self.swap_entry(handle, &old, &new)?;
        for field in fields {
            if let (FieldChange::Replica { after: Some(replica), .. }, Some(guid)) = (field, new.guid()) {
                self.wanted(guid, replica)?;
            }
        }
        gone.into_iter().try_for_each(|(se, deletion)| self.queue_deletion(se, deletion))
    }

    /// Changes a field; gives the deletion that is to be queued.
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
                file_of(entry)?.checksums.add(*after).map_err(|error| Defect(error.message))?;
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
        let handle = self.find(from).ok_or_else(|| nothing_at(from))?;
        let old = self.entry(handle)?;
        if let Some(id) = old.directory()
            && self.way_up(to.parent).any(|(above, _)| above == id)
        {
            return Err(Defect(format!("directory {} would move below itself", id.0)));
        }
        let new = Entry { at: to.clone(), revision: stamp.revision, ..old.clone() };
        self.unlink(handle, from)?;
        let usage = self.usage_with_below(&old)?;
        self.change_up(from.parent, &NOTHING, &usage)?;
        if let Some(file) = old.file() {
            self.move_replicas(&file.replicas, Some(from.parent), Some(to.parent))?;
        }
        let handle = self.repack(handle, &new, false, false)?;
        if let Some(id) = old.directory() {
            self.directory_mut(id)?.above = Above::Directory(to.parent);
        }
        self.link(handle, to)?;
        self.add_up(to.parent, &usage)?;
        self.digest.take(Item::Entry, &old);
        self.digest.add(Item::Entry, &new);
        Ok(())
    }

    fn remove(&mut self, stamp: Stamp, at: &At, lfn: &Lfn) -> Result<(), Defect> {
        let handle = self.find(at).ok_or_else(|| nothing_at(at))?;
        let old = self.entry(handle)?;
        if old.directory() == Some(DirId::ROOT) {
            return Err(Defect::new("the root cannot be removed"));
        }
        let new = Entry { revision: stamp.revision, ..old.clone() };
        let id = TrashId(stamp.revision);
        self.unlink(handle, at)?;
        let usage = self.usage_with_below(&old)?;
        self.change_up(at.parent, &NOTHING, &usage)?;
        if let Some(file) = old.file() {
            self.move_replicas(&file.replicas, Some(at.parent), None)?;
        }
        if let Some(expires) = old.expires {
            self.expiry.remove(&(expires, old.id()));
        }
        let handle = self.repack(handle, &new, true, false)?;
        if let Some(directory) = old.directory() {
            self.directory_mut(directory)?.above = Above::Trash(id);
        }
        let item = Trashed { handle, lfn: lfn.clone(), removed_by: stamp.who, removed: stamp.time };
        self.digest.take(Item::Entry, &old);
        self.digest.add(Item::Entry, &new);
        self.insert_trashed(id, item);
        Ok(())
    }

    /// Keeps an item of the trash whose entry is there.
    pub(super) fn insert_trashed(&mut self, id: TrashId, item: Trashed) {
        self.digest.add(Item::Trashed, &(id, (item.lfn.clone(), (item.removed_by, item.removed))));
        self.trash.insert(id, item);
    }

    fn forget_trashed(&mut self, id: TrashId) -> Result<Trashed, Defect> {
        let item =
            self.trash.remove(&id).ok_or_else(|| Defect(format!("there is no trash item {}", id.0.0)))?;
        self.digest.take(Item::Trashed, &(id, (item.lfn.clone(), (item.removed_by, item.removed))));
        Ok(item)
    }

    fn restore(&mut self, stamp: Stamp, trash: TrashId, to: &At) -> Result<(), Defect> {
        let item = self.forget_trashed(trash)?;
        let old = self.entry(item.handle)?;
        let new = Entry { at: to.clone(), revision: stamp.revision, ..old.clone() };
        let handle = self.repack(item.handle, &new, false, false)?;
        if let Some(id) = old.directory() {
            self.directory_mut(id)?.above = Above::Directory(to.parent);
        }
        self.link(handle, to)?;
        let usage = self.usage_with_below(&new)?;
        self.add_up(to.parent, &usage)?;
        if let Some(file) = new.file() {
            self.move_replicas(&file.replicas, None, Some(to.parent))?;
        }
        if let Some(expires) = new.expires {
            self.expiry.insert((expires, new.id()));
        }
        self.digest.take(Item::Entry, &old);
        self.digest.add(Item::Entry, &new);
        Ok(())
    }

    fn purge(&mut self, stamp: Stamp, target: &PurgeTarget) -> Result<(), Defect> {
        let (handle, trashed) = match target {
            PurgeTarget::Item(trash) => (self.forget_trashed(*trash)?.handle, true),
            PurgeTarget::Below { at, .. } => (self.find(at).ok_or_else(|| nothing_at(at))?, false),
        };
        let entry = self.entry(handle)?;
        if let Some(id) = entry.directory()
            && (id == DirId::ROOT || !self.is_empty_directory(id))
        {
            return Err(Defect(format!("directory {} cannot be purged", id.0)));
        }
        let usage = Usage::of(&entry);
        if !trashed {
            self.unlink(handle, &entry.at)?;
            self.change_up(entry.at.parent, &NOTHING, &usage)?;
            if let Some(expires) = entry.expires {
                self.expiry.remove(&(expires, entry.id()));
            }
        }
        self.accounts.use_by(entry.owner, entry.group, &NOTHING, &usage)?;
        match &entry.body {
            Body::Directory(id) => {
                let index = usize::try_from(id.0).unwrap_or(usize::MAX);
                if let Some(slot) = self.directories.get_mut(index) {
                    *slot = None;
                    self.directories_present -= 1;
                }
            }
            Body::File(file) => {
                let place = if trashed { None } else { Some(entry.at.parent) };
                self.accounts.place_replicas(&file.replicas, file.size, place, false)?;
            }
            Body::Collection { guid, .. } => {
                for member in self.members.remove(guid).unwrap_or_default() {
                    self.digest.take(Item::Member, &(*guid, member));
                }
            }
            Body::Link { .. } => {}
        }
        if let Some(guid) = entry.guid() {
            let hash = self.guid_hash(guid);
            self.guids.remove(hash, handle);
        }
        self.arena.remove(handle);
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

    // ---- bookings ----

    fn commit_booking(&mut self, guid: Guid, se: SeNumber) -> Result<(), Defect> {
        let mut booking =
            self.booking(guid).cloned().ok_or_else(|| Defect(format!("there is no booking of {guid}")))?;
        booking.pending.retain(|replica| replica.se != se);
        booking.exists = true;
        let left = if booking.pending.is_empty() { None } else { Some(booking) };
        self.set_booking(guid, left)
    }

    fn release(&mut self, stamp: Stamp, booking: &Booking, se: Option<SeNumber>) -> Result<(), Defect> {
        let mut left = booking.clone();
        left.pending.retain(|replica| se.is_some_and(|se| replica.se != se));
        let left = if left.pending.is_empty() { None } else { Some(left) };
        self.set_booking(booking.guid, left)?;
        self.give_up(stamp, booking, se)
    }

    /// Queues what a booking that was had pending, on one SE or on all.
    fn give_up(&mut self, stamp: Stamp, was: &Booking, se: Option<SeNumber>) -> Result<(), Defect> {
        let gone = was.pending.iter().filter(|replica| se.is_none_or(|se| replica.se == se));
        for (index, replica) in (0u32..).zip(gone) {
            let id = DeletionId { revision: stamp.revision, index };
            let (guid, size, location) = (was.guid, Some(was.size), replica.location.clone());
            self.queue_deletion(replica.se, Deletion { id, guid, size, location, queued: stamp.time })?;
        }
        Ok(())
    }

    /// Keeps a booking in place of the GUID's last one, or none.
    pub(super) fn set_booking(&mut self, guid: Guid, after: Option<Booking>) -> Result<(), Defect> {
        let before = self.bookings.remove(&guid);
        if let Some(booking) = &before {
            self.digest.take(Item::Booking, booking);
            self.booking_expiry.remove(&(booking.expires, guid));
            self.accounts.reserve_by(booking.owner, booking.group, &NOTHING, &booking.reserved())?;
            self.accounts.count_booking(booking.owner, false)?;
            for replica in &booking.pending {
                let se = self.accounts.ses.entry(replica.se).or_default();
                se.booked = se
                    .booked
                    .checked_sub(1)
                    .ok_or_else(|| Defect::new("an SE's count of booked replicas is wrong"))?;
            }
        }
        let pending: Vec<SeNumber> =
            before.iter().flat_map(|booking| &booking.pending).map(|replica| replica.se).collect();
        if let Some(booking) = after {
            self.digest.add(Item::Booking, &booking);
            self.booking_expiry.insert((booking.expires, guid));
            self.accounts.reserve_by(booking.owner, booking.group, &booking.reserved(), &NOTHING)?;
            self.accounts.count_booking(booking.owner, true)?;
            for replica in &booking.pending {
                self.accounts.ses.entry(replica.se).or_default().booked += 1;
            }
            self.bookings.insert(guid, booking);
        }
        pending.into_iter().for_each(|se| self.accounts.forget_if_unused(se));
        Ok(())
    }

    // ---- members, records ----

    pub(super) fn set_member(&mut self, collection: Guid, member: Guid, added: bool) -> Result<(), Defect> {
        let members = self.members.entry(collection).or_default();
        let changed = if added { members.insert(member) } else { members.remove(&member) };
        if !changed {
            return Err(Defect(format!("{member} is a member, or is none, already")));
        }
        if members.is_empty() {
            self.members.remove(&collection);
        }
        match added {
            true => self.digest.add(Item::Member, &(collection, member)),
            false => self.digest.take(Item::Member, &(collection, member)),
        }
        Ok(())
    }

    pub(super) fn set_record(&mut self, record: Record, revision: Revision) {
        let key = record.key();
        self.forget_record(key);
        if let Some(name) = record.unique_name() {
            self.record_names.insert((key.kind(), name.to_owned()), key);
        }
        self.digest.add(Item::Record, &(record.clone(), revision));
        self.records.insert(key, (record, revision));
    }

    fn forget_record(&mut self, key: RecordKey) {
        if let Some((record, revision)) = self.records.remove(&key) {
            if let Some(name) = record.unique_name() {
                self.record_names.remove(&(key.kind(), name.to_owned()));
            }
            self.digest.take(Item::Record, &(record, revision));
        }
    }

    /// Drops a record, and those that make no sense without it.
    fn drop_record(&mut self, key: RecordKey) {
        self.forget_record(key);
        match key {
            RecordKey::User(user) => {
                let of_user = |record: &Record| match record {
                    Record::Token(token) if token.user == user => Some(record.key()),
                    _ => None,
                };
                let tokens: Vec<RecordKey> =
                    self.records.values().filter_map(|(record, _)| of_user(record)).collect();
                tokens.into_iter().for_each(|token| self.forget_record(token));
                self.forget_record(RecordKey::Quota(QuotaOf::User(user)));
            }
            RecordKey::Group(group) => self.forget_record(RecordKey::Quota(QuotaOf::Group(group))),
            RecordKey::Se(_) | RecordKey::Quota(_) | RecordKey::Token(_) => {}
        }
    }

    // ---- entries in all their indices ----

    /// Puts an entry into the arena and every index, and counts it. `trashed`: it is itself an item of the trash.
    pub(super) fn insert_entry(
        &mut self,
        entry: &Entry,
        trashed: bool,
        encoded: Option<&[u8]>,
    ) -> Result<(), Defect> {
        let mut packed = std::mem::take(&mut self.scratch);
        pack(entry, trashed, &mut packed);
        let handle = self.arena.insert(&packed);
        self.scratch = packed;
        let handle = handle.ok_or_else(|| Defect::new("the memory for entries is full"))?;
        let id = entry.id();
        if self.find_id(id).is_some() {
            return Err(Defect(format!("{id:?} is there already")));
        }
        match &entry.body {
            Body::Directory(number) => {
                let directory = Directory {
                    handle,
                    above: match *number {
                        DirId::ROOT => Above::Nothing,
                        _ if trashed => Above::Trash(TrashId(entry.revision)),
                        _ => Above::Directory(entry.at.parent),
                    },
                    owner: entry.owner,
                    group: entry.group,
                    mode: entry.mode,
                    children: Children::default(),
                    usage: NOTHING,
                };
                if number.0 >= self.next_directory {
                    return Err(Defect(format!("directory {} was never made", number.0)));
                }
                let index = usize::try_from(number.0).map_err(|_| Defect::new("too many directories"))?;
                if self.directories.len() <= index {
                    self.directories.resize_with(index + 1, || None);
                }
                self.directories[index] = Some(Box::new(directory));
                self.directories_present += 1;
            }
            _ => {
                let guid = entry.guid().ok_or_else(|| Defect::new("an entry without identity"))?;
                let hash = self.guid_hash(guid);
                self.guids.insert(hash, handle);
            }
        }
        let usage = Usage::of(entry);
        self.accounts.add_use(entry.owner, entry.group, &usage);
        let is_root = entry.directory() == Some(DirId::ROOT);
        if is_root {
            self.link_name(handle, &entry.at)?;
        } else if !trashed {
            self.link(handle, &entry.at)?;
            self.add_up(entry.at.parent, &usage)?;
        }
        if let Some(file) = entry.file() {
            let place = if trashed { None } else { Some(entry.at.parent) };
            self.accounts.place_replicas(&file.replicas, file.size, place, true)?;
        }
        if let Some(expires) = entry.expires
            && !trashed
        {
            self.expiry.insert((expires, id));
        }
        self.entries += u64::from(!is_root);
        match encoded {
            Some(bytes) => self.digest.add_bytes(Item::Entry, bytes),
            None => self.digest.add(Item::Entry, entry),
        }
        Ok(())
    }

    /// Puts `new` in the place of `old`: the same entry at the same place, neither an item of the trash.
    fn swap_entry(&mut self, handle: Handle, old: &Entry, new: &Entry) -> Result<(), Defect> {
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
            self.accounts.place_replicas(&is.replicas, is.size, place, true)?;
            self.accounts.place_replicas(&was.replicas, was.size, place, false)?;
            was.replicas.iter().for_each(|replica| self.accounts.forget_if_unused(replica.se));
        }
        if old.expires != new.expires {
            if let Some(expires) = old.expires {
                self.expiry.remove(&(expires, old.id()));
            }
            if let Some(expires) = new.expires {
                self.expiry.insert((expires, new.id()));
            }
        }
        if let Some(id) = new.directory() {
            let directory = self.directory_mut(id)?;
            (directory.owner, directory.group, directory.mode) = (new.owner, new.group, new.mode);
        }
        self.repack(handle, new, false, true)?;
        self.digest.take(Item::Entry, old);
        self.digest.add(Item::Entry, new);
        Ok(())
    }

    /// Stores the new bytes of an entry. If they have to go elsewhere, the indices follow: by GUID or directory always,
    /// by name if it is `linked`. An item of the trash is the caller's to follow.
    fn repack(&mut self, handle: Handle, new: &Entry, trashed: bool, linked: bool) -> Result<Handle, Defect> {
        let mut packed = std::mem::take(&mut self.scratch);
        pack(new, trashed, &mut packed);
        let new_handle = match self.arena.overwrite(handle, &packed) {
            true => Some(handle),
            false => self.arena.insert(&packed),
        };
        self.scratch = packed;
        let new_handle = new_handle.ok_or_else(|| Defect::new("the memory for entries is full"))?;
        if new_handle == handle {
            return Ok(handle);
        }
        let mut found = match (new.guid(), new.directory()) {
            (Some(guid), _) => self.guids.replace(self.guid_hash(guid), handle, new_handle),
            (None, Some(id)) => {
                self.directory_mut(id)?.handle = new_handle;
                true
            }
            (None, None) => false,
        };
        if linked {
            let name = new.at.name.as_str().as_bytes();
            found &= self.names.replace(self.name_hash(new.at.parent, name), handle, new_handle);
            if new.directory() != Some(DirId::ROOT) {
                let State { directories, arena, .. } = self;
                let parent =
                    usize::try_from(new.at.parent.0).ok().and_then(|index| directories.get_mut(index));
                found &= parent.and_then(Option::as_deref_mut).is_some_and(|parent| {
                    parent.children.replace(handle, new_handle, name, |other| name_of(arena.get(other)))
                });
            }
        }
        if !found {
            return Err(Defect(format!("{:?} is missing from an index", new.id())));
        }
        self.arena.remove(handle);
        Ok(new_handle)
    }

    /// Makes an entry found by name, and a child of its directory.
    fn link(&mut self, handle: Handle, at: &At) -> Result<(), Defect> {
        self.link_name(handle, at)?;
        let State { directories, arena, .. } = self;
        let parent = usize::try_from(at.parent.0).ok().and_then(|index| directories.get_mut(index));
        let parent = parent
            .and_then(Option::as_deref_mut)
            .ok_or_else(|| Defect(format!("there is no directory {}", at.parent.0)))?;
        let name = at.name.as_str().as_bytes();
        parent.children.insert(handle, name, |other| name_of(arena.get(other)));
        Ok(())
    }

    fn link_name(&mut self, handle: Handle, at: &At) -> Result<(), Defect> {
        if self.find(at).is_some() {
            return Err(Defect(format!("{:?} is taken in directory {}", at.name, at.parent.0)));
        }
        let hash = self.name_hash(at.parent, at.name.as_str().as_bytes());
        self.names.insert(hash, handle);
        Ok(())
    }

    fn unlink(&mut self, handle: Handle, at: &At) -> Result<(), Defect> {
        let name = at.name.as_str().as_bytes();
        let named = self.names.remove(self.name_hash(at.parent, name), handle);
        let State { directories, arena, .. } = self;
        let parent = usize::try_from(at.parent.0).ok().and_then(|index| directories.get_mut(index));
        let listed = parent
            .and_then(Option::as_deref_mut)
            .is_some_and(|parent| parent.children.remove(handle, name, |other| name_of(arena.get(other))));
        if named && listed { Ok(()) } else { Err(nothing_at(at)) }
    }

    /// Adds to what is counted in this directory and those above it.
    fn add_up(&mut self, from: DirId, usage: &Usage) -> Result<(), Defect> {
        self.count_up(from, |counted| {
            counted.add(usage);
            Ok(())
        })
    }

    /// Changes what is counted in this directory and those above it.
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
            let directory = self.directory_mut(id)?;
            count(&mut directory.usage)?;
            next = match directory.above {
                Above::Directory(above) => Some(above),
                Above::Nothing | Above::Trash(_) => None,
            };
        }
        Ok(())
    }

    /// What an entry counts with all that is below it.
    pub(super) fn usage_with_below(&self, entry: &Entry) -> Result<Usage, Defect> {
        let mut usage = Usage::of(entry);
        if let Some(id) = entry.directory() {
            let directory =
                self.directory(id).ok_or_else(|| Defect(format!("there is no directory {}", id.0)))?;
            usage.add(&directory.usage);
        }
        Ok(usage)
    }

    fn move_replicas(
        &mut self,
        replicas: &[Replica],
        from: Option<DirId>,
        to: Option<DirId>,
    ) -> Result<(), Defect> {
        for replica in replicas.iter().filter(|replica| replica.se != SeNumber::NONE && from != to) {
            let account = self.accounts.ses.entry(replica.se).or_default();
            account.move_file(to, true)?;
            account.move_file(from, false)?;
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

/// Puts a file's replica on this SE in its place in the order of SEs, or takes it away.
fn put_replica(file: &mut File, se: SeNumber, after: Option<Replica>) {
    file.replicas.retain(|replica| replica.se != se);
    if let Some(replica) = after {
        let index = file.replicas.partition_point(|other| other.se < se);
        file.replicas.insert(index, replica);
    }
}
