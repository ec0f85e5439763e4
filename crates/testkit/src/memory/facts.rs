//! Reads and writes of the state that the rules of the reference need, each by scans.

use std::collections::btree_map::Entry as Slot;

use exacat_model::{
    At, Deletion, DeletionId, DirId, Entry, EntryId, GroupId, Guid, Location, QuotaOf, Record, RecordKey,
    RecordKind, Replica, ReplicaState, Reservation, Revision, SeNumber, TrashId, Usage, UserId,
};
use exacat_store::rules::{Top, Trashed};

use super::state::State;

impl State {
    /// Says whether the directory has no children.
    pub(crate) fn is_empty(&self, directory: DirId) -> bool {
        self.children(directory).next().is_none()
    }

    /// Returns an item of the trash.
    pub(crate) fn trashed(&self, trash: TrashId) -> Option<Trashed> {
        self.trash.get(&trash).cloned()
    }

    /// Says whether a GUID is a member of the collection.
    pub(crate) fn is_member(&self, collection: Guid, guid: Guid) -> bool {
        self.members.get(&collection).is_some_and(|members| members.contains(&guid))
    }

    /// Returns the upload reservation of this GUID.
    pub(crate) fn reservation(&self, guid: Guid) -> Option<Reservation> {
        self.reservations.get(&guid).cloned()
    }

    /// Returns the number of upload reservations of a user.
    pub(crate) fn reservations_of(&self, user: UserId) -> usize {
        self.reservations.values().filter(|reservation| reservation.owner == user).count()
    }

    /// Returns a record, and the change that last set it.
    pub(crate) fn record(&self, key: RecordKey) -> Option<(Record, Revision)> {
        self.records.get(&key).cloned()
    }

    /// Returns the key of the record with this kind and name.
    pub(crate) fn record_named(&self, kind: RecordKind, name: &str) -> Option<RecordKey> {
        let mut of_kind = self.records.iter().filter(|(key, _)| key.kind() == kind);
        of_kind.find(|(_, (record, _))| record.unique_name() == Some(name)).map(|(key, _)| *key)
    }

    /// Says whether any user is in the group.
    pub(crate) fn has_users(&self, group: GroupId) -> bool {
        self.records.values().any(|(record, _)| match record {
            Record::User(user) => user.group == group || user.groups.contains(&group),
            _ => false,
        })
    }

    /// Returns usage and reservations that count towards a quota.
    pub(crate) fn counted(&self, of: QuotaOf) -> Usage {
        let (mut sum, reserved) = match of {
            QuotaOf::User(user) => (
                self.usage_where(|entry| entry.owner == user),
                self.reserved_where(|reservation| reservation.owner == user),
            ),
            QuotaOf::Group(group) => (
                self.usage_where(|entry| entry.group == group),
                self.reserved_where(|reservation| reservation.group == group),
            ),
        };
        sum.add(&reserved);
        sum
    }

    /// Returns a deletion in the queue of a storage element.
    pub(crate) fn deletion(&self, se: SeNumber, id: DeletionId) -> Option<Deletion> {
        self.deletions.get(&(se, id)).cloned()
    }

    /// Says whether a storage element has replicas of any state, deletions or upload reservations.
    pub(crate) fn se_in_use(&self, se: SeNumber) -> bool {
        let reserved = |reservation: &Reservation| reservation.pending.iter().any(|pending| pending.se == se);
        self.all().filter_map(Entry::file).any(|file| file.replica(se).is_some())
            || self.deletions.keys().any(|(of, _)| *of == se)
            || self.reservations.values().any(reserved)
    }

    /// Returns this directory and those above it, nearest first, and their upper end. If that is an
    /// item of the trash, its entry comes last.
    pub(crate) fn way_up(&self, directory: DirId) -> (Vec<Entry>, Top) {
        let mut way = Vec::new();
        let mut directory = directory;
        loop {
            let id = EntryId::Directory(directory);
            let Some(entry) = self.find(id) else { return (way, Top::Nowhere) };
            way.push(entry.clone());
            if directory == DirId::ROOT {
                return (way, Top::Root);
            }
            if let Some(trash) = self.trash_of(id) {
                return (way, Top::Trash(trash));
            }
            directory = entry.at.parent;
        }
    }

    /// Says whether the chain of parents ends at the root.
    pub(crate) fn alive(&self, directory: DirId) -> bool {
        self.way_up(directory).1 == Top::Root
    }

    /// Returns the PFN of a copy of this file.
    pub(crate) fn pfn(&self, se: SeNumber, guid: Guid, location: &Location) -> String {
        let record = match self.record(RecordKey::Se(se)) {
            Some((Record::Se(record), _)) => Some(record),
            _ => None,
        };
        Replica { se, state: ReplicaState::Available, location: location.clone() }.pfn(guid, record.as_ref())
    }

    /// Says whether the file of this GUID has a replica that takes space there, or a reserved one.
    pub(crate) fn in_use(&self, se: SeNumber, guid: Guid, location: &Location) -> bool {
        let pfn = self.pfn(se, guid, location);
        let file = self.find(EntryId::Object(guid)).and_then(Entry::file);
        let replica = file.and_then(|file| file.replica(se)).filter(|replica| replica.takes_space());
        let reservation = self.reservation(guid);
        let pending = reservation
            .as_ref()
            .and_then(|reservation| reservation.pending.iter().find(|pending| pending.se == se));
        let locations = [replica.map(|one| &one.location), pending.map(|one| &one.location)];
        locations.into_iter().flatten().any(|other| self.pfn(se, guid, other) == pfn)
    }
}

// ---- writes ----

impl State {
    /// Puts an entry at its place and replaces the one there.
    pub(crate) fn put_entry(&mut self, entry: Entry) {
        if entry.at == self.root.at {
            self.root = entry;
            return;
        }
        let At { parent, name } = entry.at.clone();
        match self.entries.entry(parent).or_default().entry(name) {
            Slot::Vacant(slot) => drop(slot.insert(entry)),
            Slot::Occupied(mut slot) => drop(slot.insert(entry)),
        }
    }

    /// Removes and returns the entry at a place; not the root.
    pub(crate) fn take_entry(&mut self, at: &At) -> Option<Entry> {
        let children = self.entries.get_mut(&at.parent)?;
        let entry = children.remove(&at.name);
        if children.is_empty() {
            self.entries.remove(&at.parent);
        }
        entry
    }

    /// Puts an item into the trash.
    pub(crate) fn put_trashed(&mut self, trash: TrashId, item: Trashed) {
        self.trash.insert(trash, item);
    }

    /// Takes an item out of the trash.
    pub(crate) fn take_trashed(&mut self, trash: TrashId) -> Option<Trashed> {
        self.trash.remove(&trash)
    }

    /// Gives a collection an empty set of members.
    pub(crate) fn begin_members(&mut self, collection: Guid) {
        self.members.insert(collection, Default::default());
    }

    /// Drops the members of a collection.
    pub(crate) fn forget_members(&mut self, collection: Guid) {
        self.members.remove(&collection);
    }

    /// Adds or removes a member.
    pub(crate) fn set_member(&mut self, collection: Guid, guid: Guid, is: bool) {
        let members = self.members.entry(collection).or_default();
        if is {
            members.insert(guid);
        } else {
            members.remove(&guid);
        }
    }

    /// Puts an upload reservation and replaces the one of its GUID.
    pub(crate) fn put_reservation(&mut self, reservation: Reservation) {
        self.reservations.insert(reservation.guid, reservation);
    }

    /// Ends an upload reservation.
    pub(crate) fn drop_reservation(&mut self, guid: Guid) {
        self.reservations.remove(&guid);
    }

    /// Sets a record, or drops it.
    pub(crate) fn put_record(&mut self, key: RecordKey, record: Option<Record>, revision: Revision) {
        match record {
            Some(record) => drop(self.records.insert(key, (record, revision))),
            None => drop(self.records.remove(&key)),
        }
    }

    /// Returns the keys of a user's tokens.
    pub(crate) fn tokens_of(&self, user: UserId) -> Vec<RecordKey> {
        let tokens = self
            .records
            .iter()
            .filter(|(_, (record, _))| matches!(record, Record::Token(token) if token.user == user));
        tokens.map(|(key, _)| *key).collect()
    }

    /// Puts a deletion on the queue of a storage element.
    pub(crate) fn put_deletion(&mut self, se: SeNumber, deletion: Deletion) {
        self.deletions.insert((se, deletion.id), deletion);
    }

    /// Removes and returns a deletion.
    pub(crate) fn take_deletion(&mut self, se: SeNumber, id: DeletionId) -> Option<Deletion> {
        self.deletions.remove(&(se, id))
    }

    /// Returns the deletions of one physical copy.
    pub(crate) fn deletions_of(&self, se: SeNumber, pfn: &str) -> Vec<DeletionId> {
        let same = |deletion: &Deletion| self.pfn(se, deletion.guid, &deletion.location) == pfn;
        let of_se = self.deletions.iter().filter(|((of, _), deletion)| *of == se && same(deletion));
        of_se.map(|((_, id), _)| *id).collect()
    }

    /// Returns all deletions of a storage element.
    pub(crate) fn deletions_on(&self, se: SeNumber) -> Vec<Deletion> {
        let of_se = self.deletions.iter().filter(|((of, _), _)| *of == se);
        of_se.map(|(_, deletion)| deletion.clone()).collect()
    }
}
