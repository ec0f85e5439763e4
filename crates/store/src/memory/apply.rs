//! Applies a change to the state by the rules ([`crate::rules::perform`]), and answers their
//! questions by scans.

use std::collections::btree_map::Entry as Slot;

use exacat_model::{
    At, Change, Deletion, DeletionId, DirId, Entry, EntryId, Error, ErrorKind, GroupId, Guid, QuotaOf,
    Record, RecordKey, RecordKind, Reservation, Result, Revision, SeNumber, TrashId, Usage, UserId,
};

use super::state::State;
use crate::Outcome;
use crate::rules::{self, Trashed, View};

fn corrupt(change: &Change, what: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("change {} ({}) does not follow: {what}", change.revision.0, change.effect.name()),
    )
}

/// Applies a change. Refuses a change that does not fit the state as corrupt, because no history
/// contains it.
pub(super) fn apply(state: &mut State, change: Change) -> Result<()> {
    if change.revision.0 != state.revision.0 + 1 {
        return Err(corrupt(&change, "it is not the next"));
    }
    if change.time < state.time {
        return Err(corrupt(&change, "its time is before the last one's"));
    }
    rules::perform(state, &change).ok_or_else(|| corrupt(&change, "what it names is not as it was"))?;
    state.revision = change.revision;
    state.time = change.time;
    state.credentials += u64::from(rules::changes_credentials(&change.effect));
    let outcome = Outcome::Applied { revision: change.revision, id: change.effect.entry_id() };
    state.remember(change.operation, change.index, outcome);
    state.changes.push(change);
    Ok(())
}

impl View for State {
    fn next_directory(&self) -> u64 {
        self.next_directory
    }

    fn find(&self, id: EntryId) -> Option<(Entry, Option<TrashId>)> {
        let entry = State::find(self, id)?;
        Some((entry.clone(), self.trash_of(id)))
    }

    fn at(&self, at: &At) -> Option<Entry> {
        State::at(self, at).cloned()
    }

    fn is_empty(&self, directory: DirId) -> bool {
        self.children(directory).next().is_none()
    }

    fn trashed(&self, trash: TrashId) -> Option<Trashed> {
        self.trash.get(&trash).cloned()
    }

    fn is_member(&self, collection: Guid, guid: Guid) -> bool {
        self.members.get(&collection).is_some_and(|members| members.contains(&guid))
    }

    fn reservation(&self, guid: Guid) -> Option<Reservation> {
        self.reservations.get(&guid).cloned()
    }

    fn reservations_of(&self, user: UserId) -> usize {
        self.reservations.values().filter(|reservation| reservation.owner == user).count()
    }

    fn record(&self, key: RecordKey) -> Option<(Record, Revision)> {
        self.records.get(&key).cloned()
    }

    fn record_named(&self, kind: RecordKind, name: &str) -> Option<RecordKey> {
        let mut of_kind = self.records.iter().filter(|(key, _)| key.kind() == kind);
        of_kind.find(|(_, (record, _))| record.unique_name() == Some(name)).map(|(key, _)| *key)
    }

    fn has_users(&self, group: GroupId) -> bool {
        self.records.values().any(|(record, _)| match record {
            Record::User(user) => user.group == group || user.groups.contains(&group),
            _ => false,
        })
    }

    fn counted(&self, of: QuotaOf) -> Usage {
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

    fn deletion(&self, se: SeNumber, id: DeletionId) -> Option<Deletion> {
        self.deletions.get(&(se, id)).cloned()
    }

    fn se_holds(&self, se: SeNumber) -> Option<&'static str> {
        if self.all().filter_map(Entry::file).any(|file| file.replica(se).is_some()) {
            return Some("holds replicas");
        }
        if self.deletions.keys().any(|(of, _)| *of == se) {
            return Some("has deletions to do");
        }
        let reserved = |reservation: &Reservation| reservation.pending.iter().any(|pending| pending.se == se);
        self.reservations.values().any(reserved).then_some("has uploads in flight")
    }
}

impl rules::State for State {
    fn set_next_directory(&mut self, number: u64) {
        self.next_directory = number;
    }

    fn put_entry(&mut self, entry: Entry) {
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

    fn take_entry(&mut self, at: &At) -> Option<Entry> {
        let children = self.entries.get_mut(&at.parent)?;
        let entry = children.remove(&at.name);
        if children.is_empty() {
            self.entries.remove(&at.parent);
        }
        entry
    }

    fn put_trashed(&mut self, trash: TrashId, item: Trashed) {
        self.trash.insert(trash, item);
    }

    fn take_trashed(&mut self, trash: TrashId) -> Option<Trashed> {
        self.trash.remove(&trash)
    }

    fn begin_members(&mut self, collection: Guid) {
        self.members.insert(collection, Default::default());
    }

    fn forget_members(&mut self, collection: Guid) {
        self.members.remove(&collection);
    }

    fn set_member(&mut self, collection: Guid, guid: Guid, is: bool) {
        let members = self.members.entry(collection).or_default();
        if is {
            members.insert(guid);
        } else {
            members.remove(&guid);
        }
    }

    fn put_reservation(&mut self, reservation: Reservation) {
        self.reservations.insert(reservation.guid, reservation);
    }

    fn drop_reservation(&mut self, guid: Guid) {
        self.reservations.remove(&guid);
    }

    fn put_record(&mut self, key: RecordKey, record: Option<Record>, revision: Revision) {
        match record {
            Some(record) => drop(self.records.insert(key, (record, revision))),
            None => drop(self.records.remove(&key)),
        }
    }

    fn tokens_of(&self, user: UserId) -> Vec<RecordKey> {
        let tokens = self
            .records
            .iter()
            .filter(|(_, (record, _))| matches!(record, Record::Token(token) if token.user == user));
        tokens.map(|(key, _)| *key).collect()
    }

    fn put_deletion(&mut self, se: SeNumber, deletion: Deletion) {
        self.deletions.insert((se, deletion.id), deletion);
    }

    fn take_deletion(&mut self, se: SeNumber, id: DeletionId) -> Option<Deletion> {
        self.deletions.remove(&(se, id))
    }

    fn deletions_of(&self, se: SeNumber, pfn: &str) -> Vec<DeletionId> {
        let same = |deletion: &Deletion| self.pfn(se, deletion.guid, &deletion.location) == pfn;
        let of_se = self.deletions.iter().filter(|((of, _), deletion)| *of == se && same(deletion));
        of_se.map(|((_, id), _)| *id).collect()
    }

    fn deletions_on(&self, se: SeNumber) -> Vec<Deletion> {
        let of_se = self.deletions.iter().filter(|((of, _), _)| *of == se);
        of_se.map(|(_, deletion)| deletion.clone()).collect()
    }
}
