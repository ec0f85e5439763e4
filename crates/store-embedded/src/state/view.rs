//! Reads of the state for the rules of the contract.

use std::borrow::Cow;

use exacat_model::{
    At, DeletionId, DirId, Entry, EntryId, GroupId, Guid, QuotaOf, Record, RecordKey, RecordKind,
    Reservation, Revision, SeNumber, TrashId, Usage, UserId,
};
use exacat_store::JudgedEntry;
use exacat_store::rules::{FoundEntry, Top, Trashed, View};

use super::State;
use crate::defect::Defect;
use crate::keyspace;
use crate::page::Row;

impl View for State {
    type Error = Defect;

    fn next_directory(&self) -> DirId {
        DirId(self.next_directory)
    }

    fn takes_directory(&self, number: DirId) -> bool {
        match self.is_filtered {
            true => number.0 > DirId::ROOT.0 && self.directory(number).is_none(),
            false => number == DirId(self.next_directory),
        }
    }

    fn at(&self, at: &At) -> Result<Option<Entry>, Defect> {
        self.look().find(at)
    }

    fn find(&self, id: EntryId) -> Result<Option<FoundEntry>, Defect> {
        self.look().find_id(id)
    }

    fn has_guid(&self, guid: Guid) -> Result<bool, Defect> {
        self.look().has_guid(guid)
    }

    fn is_file(&self, guid: Guid) -> Result<bool, Defect> {
        self.look().view.find_guid(guid, |row| row.is_some_and(Row::is_file))
    }

    fn climb(&self, directory: DirId, pass: impl FnMut(DirId)) -> Top {
        self.directories.climb(directory, pass)
    }

    fn rights(&self, directory: DirId) -> Result<Option<JudgedEntry>, Defect> {
        let id = EntryId::Directory(directory);
        let found = self.directory(directory);
        Ok(found.map(|found| JudgedEntry { id, owner: found.owner, group: found.group, mode: found.mode }))
    }

    fn is_empty(&self, directory: DirId) -> bool {
        self.is_empty_directory(directory)
    }

    fn trashed(&self, trash: TrashId) -> Result<Option<Trashed>, Defect> {
        let found = self.look().trashed(trash)?;
        Ok(found.map(|(entry, item)| Trashed {
            lfn: item.lfn,
            entry,
            removed_by: item.removed_by,
            removed: item.removed,
        }))
    }

    fn is_member(&self, collection: Guid, guid: Guid) -> Result<bool, Defect> {
        self.look().has_member(collection, guid)
    }

    fn reservation(&self, guid: Guid) -> Option<Cow<'_, Reservation>> {
        self.reservation(guid).map(Cow::Borrowed)
    }

    fn reservations_of(&self, user: UserId) -> usize {
        self.accounts.reservations.get(&user).map_or(0, |count| *count as usize)
    }

    fn record(&self, key: RecordKey) -> Option<(Cow<'_, Record>, Revision)> {
        self.record(key).map(|(record, revision)| (Cow::Borrowed(record), *revision))
    }

    fn record_named(&self, kind: RecordKind, name: &str) -> Option<RecordKey> {
        self.record_named(kind, name)
    }

    fn has_users(&self, group: GroupId) -> bool {
        self.records_of(RecordKind::User).any(|record| match record {
            Record::User(user) => user.group == group || user.groups.contains(&group),
            _ => false,
        })
    }

    fn counted(&self, of: QuotaOf) -> Usage {
        let account = match of {
            QuotaOf::User(user) => self.accounts.user(user),
            QuotaOf::Group(group) => self.accounts.group(group),
        };
        let mut sum = account.usage;
        sum.add(&account.reserved);
        sum
    }

    fn has_deletion(&self, se: SeNumber, id: DeletionId) -> Result<bool, Defect> {
        self.look().view.has(keyspace::DELETIONS, &keyspace::deletion_key(se, id))
    }

    fn is_se_in_use(&self, se: SeNumber) -> bool {
        self.accounts.ses.get(&se).is_some_and(|account| !account.is_unused())
    }
}
